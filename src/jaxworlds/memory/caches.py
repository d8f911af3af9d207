"""Values loaded on demand and dropped when idle, and a cache bounded in bytes."""

import functools
import itertools
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .prediction import tree_bytes

# Orders every use of every lazy value and cached item, so that a manager can compare them.
_uses = itertools.count()


class LazyLoader:
    """A value loaded on first use, once, and dropped after `max_idle_time` seconds without use.

    There is no timer thread: an idle value is dropped at the next access (`get`, `loaded`, `nbytes`, or a
    `MemoryManager`). A loader that raises leaves nothing behind, and the next `get` tries again.

    ```python
    field = LazyLoader(lambda: np.load("field.npy"), max_idle_time=300.0)
    field.get()  # loads
    field.get()  # the same object
    field.release()  # forgets it; a value that others still hold stays alive there
    ```
    """

    def __init__(
        self,
        fn: Callable[[], Any],
        max_idle_time: float | int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        if max_idle_time is not None and not max_idle_time > 0:
            raise ValueError(
                f"`max_idle_time` must be positive seconds; got {max_idle_time}. Pass None to keep the value."
            )
        self._fn, self._max_idle_time, self._clock = fn, max_idle_time, clock
        self._lock = threading.RLock()
        self._value: Any = None
        self._is_loaded = False
        self._nbytes = 0
        self._last_used = 0.0
        self.last_use = -1
        self._managers: weakref.WeakSet[Any] = weakref.WeakSet()

    def get(self) -> Any:
        """The value, loading it if need be; other threads wait for one load."""
        with self._lock:
            self.release_if_idle()
            if not self._is_loaded:
                value = self._fn()
                self._value, self._nbytes, self._is_loaded = value, tree_bytes(value), True
            self._last_used, self.last_use = self._clock(), next(_uses)
            value = self._value
        for manager in list(self._managers):  # outside the lock: a manager takes its own first
            manager._enforce(just_used=self)
        return value

    @property
    def loaded(self) -> bool:
        """Whether the value is in memory now; an idle one is dropped first."""
        self.release_if_idle()
        return self._is_loaded

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded value; 0 when not loaded."""
        self.release_if_idle()
        return self._nbytes

    def release(self, *, wait: bool = True) -> int:
        """Forget the value and return its bytes; `wait=False` leaves a busy loader alone."""
        if not self._lock.acquire(blocking=wait):
            return 0
        try:
            freed, self._value, self._nbytes, self._is_loaded = self._nbytes, None, 0, False
            return freed
        finally:
            self._lock.release()

    def release_if_idle(self) -> int:
        """Forget the value if it was not used for `max_idle_time` seconds; return the bytes forgotten."""
        if self._max_idle_time is None or not self._lock.acquire(blocking=False):
            return 0  # never idle, or in use right now
        try:
            idle = self._is_loaded and self._clock() - self._last_used > self._max_idle_time
            return self.release() if idle else 0
        finally:
            self._lock.release()


def lazy_file(
    path: str | Path, loader_fn: Callable[[Path], Any], max_idle_time: float | int | None = 300.0
) -> LazyLoader:
    """A `LazyLoader` of `loader_fn(path)`; the file is first touched by `get`."""
    return LazyLoader(functools.partial(loader_fn, Path(path)), max_idle_time)


@dataclass
class _Item:
    value: Any
    nbytes: int
    last_use: int


class ByteLRU:
    """A thread-safe mapping that holds at most `max_bytes`, forgetting what was least recently used.

    An item larger than the whole budget is not kept: `put` returns False, and `get` will miss.

    ```python
    cache = ByteLRU(max_bytes=1_000_000)
    cache.put("episode", np.zeros(1000))
    cache.get("episode")
    ```
    """

    def __init__(
        self, max_bytes: int, max_items: int | None = None, *, sizeof: Callable[[Any], int] = tree_bytes
    ):
        if max_bytes < 1:
            raise ValueError(f"`max_bytes` must be at least 1; got {max_bytes}.")
        if max_items is not None and max_items < 1:
            raise ValueError(f"`max_items` must be at least 1; got {max_items}. Pass None for no limit.")
        self.max_bytes, self.max_items, self._sizeof = int(max_bytes), max_items, sizeof
        self._items: OrderedDict[Hashable, _Item] = OrderedDict()
        self._lock = threading.Lock()
        self._nbytes = 0
        self.hits = self.misses = self.evictions = self.refused = 0
        self._managers: weakref.WeakSet[Any] = weakref.WeakSet()

    def put(self, key: Hashable, value: Any) -> bool:
        """Keep `value`, replacing what `key` held; False if it is larger than the budget and so not kept."""
        nbytes = self._sizeof(value)
        with self._lock:
            self._drop(key)
            if nbytes > self.max_bytes:
                self.refused += 1
                return False
            self._items[key] = _Item(value, nbytes, next(_uses))
            self._nbytes += nbytes
            while self._nbytes > self.max_bytes or len(self._items) > (self.max_items or len(self._items)):
                self._evict()
        for manager in list(self._managers):
            manager._enforce()
        return key in self

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of `key`, which becomes the most recently used; `default` if it is missing."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                self.misses += 1
                return default
            self.hits += 1
            self._items.move_to_end(key)
            item.last_use = next(_uses)
            return item.value

    def discard(self, key: Hashable) -> int:
        """Forget `key` if it is there; return the bytes forgotten."""
        with self._lock:
            return self._drop(key)

    def clear(self) -> int:
        """Forget everything; return the bytes forgotten."""
        with self._lock:
            freed, self._nbytes = self._nbytes, 0
            self._items.clear()
            return freed

    def evict_oldest(self) -> int:
        """Forget the least recently used item; return the bytes forgotten."""
        with self._lock:
            return self._evict() if self._items else 0

    def keys(self) -> list[Hashable]:
        """The keys, least recently used first."""
        with self._lock:
            return list(self._items)

    @property
    def nbytes(self) -> int:
        """Bytes of all items together."""
        return self._nbytes

    @property
    def last_use(self) -> int:
        """Position of the oldest item in the order of all uses."""
        with self._lock:
            return next((item.last_use for item in self._items.values()), -1)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def _drop(self, key: Hashable) -> int:
        item = self._items.pop(key, None)
        freed = item.nbytes if item else 0
        self._nbytes -= freed
        return freed

    def _evict(self) -> int:
        self.evictions += 1
        return self._drop(next(iter(self._items)))

"""A memory budget over lazy values and caches, and a report of what this process holds."""

import gc
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .caches import ByteLRU, LazyLoader
from .prediction import MB, live_report


class MemoryManager:
    """One budget over lazy values and caches: when they hold more, the least recently used goes first.

    It owns what is registered with it and nothing else: neither XLA's own memory nor values that callers
    still hold. Registered things are not kept alive by it. A lazy value larger than the whole budget is
    handed to the caller but not kept, with a warning. As a context manager it releases everything at the end.

    ```python
    with MemoryManager(max_total_memory_mb=100.0) as manager:
        field = manager.register_lazy_loader(LazyLoader(lambda: np.zeros((1000, 1000))))
        field.get()
        manager.get_memory_report()["owned"]["mb"]  # 8.0
    ```
    """

    def __init__(self, max_total_memory_mb: float | int = 500.0):
        if not max_total_memory_mb > 0:
            raise ValueError(f"`max_total_memory_mb` must be positive; got {max_total_memory_mb}.")
        self.max_bytes = int(max_total_memory_mb * MB)
        self._loaders: weakref.WeakSet[LazyLoader] = weakref.WeakSet()
        self._caches: weakref.WeakSet[ByteLRU] = weakref.WeakSet()
        self._lock = threading.RLock()
        self.evictions = 0

    def register_lazy_loader(self, loader: LazyLoader) -> LazyLoader:
        """Put `loader` under the budget; returns it."""
        return self._register(loader, self._loaders)

    def register_cache(self, cache: ByteLRU) -> ByteLRU:
        """Put the items of `cache` under the budget; returns it."""
        return self._register(cache, self._caches)

    def _register(self, thing: Any, things: Any) -> Any:
        with self._lock:
            things.add(thing)
        thing._managers.add(self)
        self._enforce()
        return thing

    @property
    def nbytes(self) -> int:
        """Bytes that the registered loaders and caches hold now."""
        with self._lock:
            return sum(thing.nbytes for thing in (*self._loaders, *self._caches))

    def _enforce(self, just_used: LazyLoader | None = None) -> None:
        with self._lock:
            if just_used is not None and just_used.nbytes > self.max_bytes:
                size, budget = just_used.nbytes / MB, self.max_bytes / MB
                just_used.release(wait=False)
                self.evictions += 1
                warnings.warn(
                    f"a lazy value of {size:.1f} MB is larger than the whole budget of {budget:.1f} MB: it "
                    "is handed out but not kept, so each `get` loads it again. Raise `max_total_memory_mb`.",
                    stacklevel=4,
                )
            # Idle values go first (asking for `nbytes` drops them), then the least recently used.
            held = [thing for thing in (*self._loaders, *self._caches) if thing.nbytes]
            while held and self.nbytes > self.max_bytes:
                oldest = min(held, key=lambda thing: thing.last_use)
                is_loader = isinstance(oldest, LazyLoader)
                freed = oldest.release(wait=False) if is_loader else oldest.evict_oldest()
                self.evictions += freed > 0
                # Empty now, or busy in another thread, whose own `get` enforces again.
                if is_loader or not oldest.nbytes:
                    held.remove(oldest)

    def cleanup_memory(self, *, idle_only: bool = False) -> dict[str, int]:
        """Release everything registered (or only what is idle) and collect garbage; returns what that did.

        `freed_bytes` and `released` count what the manager let go of; it is free once nobody else holds it.
        """
        freed = released = 0
        with self._lock:
            for loader in list(self._loaders):
                nbytes = loader.release_if_idle() if idle_only else loader.release(wait=False)
                freed, released = freed + nbytes, released + (nbytes > 0)
            for cache in [] if idle_only else list(self._caches):
                released += len(cache)
                freed += cache.clear()
        done = {"freed_bytes": freed, "released": released, "collected_objects": gc.collect()}
        return {**done, "owned_bytes": self.nbytes}

    def get_memory_report(self) -> dict[str, Any]:
        """Bytes held, by kind.

        `monitor_stats`: the process (`current_mb` and `peak_mb`: resident), all live jax arrays
        (`live_arrays_mb`, `live_arrays`), and `device_stats` as the devices report them (None on a CPU).
        `owned`: what this manager can release, its budget, and what it evicted so far.
        """
        live = live_report()
        loaders, caches = list(self._loaders), list(self._caches)
        owned = self.nbytes
        return {
            "monitor_stats": {
                "current_mb": live.process_bytes / MB,
                "peak_mb": live.process_peak_bytes / MB,
                "live_arrays_mb": live.nbytes / MB,
                "live_arrays": live.count,
                "device_stats": live.device_stats,
            },
            "owned": {
                "mb": owned / MB,
                "bytes": owned,
                "budget_mb": self.max_bytes / MB,
                "loaders": len(loaders),
                "loaded": sum(loader.loaded for loader in loaders),
                "caches": len(caches),
                "cached_items": sum(map(len, caches)),
                "evictions": self.evictions,
            },
        }

    def __enter__(self) -> "MemoryManager":
        return self

    def __exit__(self, *_error: object) -> None:
        self.cleanup_memory()
        with self._lock:
            for thing in (*self._loaders, *self._caches):
                thing._managers.discard(self)
            self._loaders.clear()
            self._caches.clear()


_of_process: list[MemoryManager] = []
_lock = threading.Lock()


def get_memory_manager() -> MemoryManager:
    """The manager of this process, with the default budget of 500 MB; set its `max_bytes` to change that."""
    with _lock:
        if not _of_process:
            _of_process.append(MemoryManager())
        return _of_process[0]


@contextmanager
def frozen_garbage() -> Iterator[int]:
    """Exclude all present objects from garbage collection (after warm-up); yields their number.

    Collections then visit only what the block makes. This is what we offer for the guide's "garbage
    collection optimization"; there is no evidence that tuned thresholds help (ledger/core.md, 1c).
    """
    gc.collect()
    gc.freeze()
    try:
        yield gc.get_freeze_count()
    finally:
        gc.unfreeze()

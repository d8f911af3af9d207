"""The host side of taps: sinks, their bounded queues, isolation of failures, and statistics per name."""

import atexit
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import jax
import numpy as np

Sink = Callable[[Any], Any]

logger = logging.getLogger("jaxworlds.taps")

# How long a process that ends normally waits for queued values. Long enough for a slow writer, short enough
# for people.
_EXIT_WAIT_SECONDS = 10.0
# Failing sinks remembered per name. Only eager code that makes a new failing lambda at each call ever gets
# here.
_MAX_FAILING_SINKS = 64


@dataclass(frozen=True)
class TapStats:
    """Statistics of one tap. Times are milliseconds of wall clock on the host.

    `calls` are arrivals from the program, `delivered` the runs of the sink that ended (failed ones too);
    `dropped` met a full queue, `skipped` met a sink that was cut off. `total_ms`, `avg_ms`, `max_ms` and
    `min_ms` are the sink's own time, wherever it ran; `blocking_ms` is how long the program waited for the
    host function (with a queue: only the hand-over). `stall_ms_per_call` is what each call costs the
    program on top of that, even when the sink takes no time; it is None until `measure_call_cost()` ran.
    `last_value` is kept for taps without a sink.
    """

    name: str
    calls: int = 0
    items: int = 0
    delivered: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    min_ms: float = 0.0
    blocking_ms: float = 0.0
    bytes: int = 0
    errors: int = 0
    dropped: int = 0
    skipped: int = 0
    cut_off: bool = False
    last_error: str | None = None
    stall_ms_per_call: float | None = None
    last_value: Any = field(default=None, repr=False, compare=False)

    @property
    def avg_ms(self) -> float:
        """Mean time of one run of the sink."""
        return self.total_ms / self.delivered if self.delivered else 0.0

    def _trouble(self) -> str:
        counts = [f"{n} {what}" for what in ("errors", "dropped", "skipped") if (n := getattr(self, what))]
        return ", ".join([*counts, *(["cut off"] if self.cut_off else [])])

    def __str__(self) -> str:
        tail = f" ({self._trouble()})" if self._trouble() else ""
        return f"{self.name}: {self.calls} calls, {self.items} items, {self.avg_ms:.3f} ms each{tail}"


class _Record:
    """The mutable counters behind one `TapStats`; touched only under `_lock`."""

    def __init__(self) -> None:
        self.calls = self.items = self.delivered = self.bytes = 0
        self.errors = self.dropped = self.skipped = 0
        self.total = self.longest = self.blocking = 0.0
        self.shortest = float("inf")
        self.last_error: str | None = None
        self.last_value: Any = None
        # Sinks that failed last time: key -> [the sink, failures in a row, whether it is cut off].
        # Holding the sink keeps its id from being given to another one.
        self.failing: dict[Any, list[Any]] = {}

    def stats(self, name: str, stall_seconds: float | None) -> TapStats:
        alike = (field.name for field in fields(TapStats) if hasattr(self, field.name))
        return TapStats(
            name,
            total_ms=1e3 * self.total,
            max_ms=1e3 * self.longest,
            min_ms=1e3 * self.shortest if self.delivered else 0.0,
            blocking_ms=1e3 * self.blocking,
            cut_off=any(cut for _, _, cut in self.failing.values()),
            stall_ms_per_call=None if stall_seconds is None else 1e3 * stall_seconds,
            **{field: getattr(self, field) for field in alike},
        )


class _Worker:
    """A daemon thread that hands queued values to one function and never makes the caller wait."""

    def __init__(self, run: Callable[[Any], None], capacity: int, name: str) -> None:
        self._run, self._capacity, self._name = run, capacity, name
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._busy = self._closed = False
        self._thread: threading.Thread | None = None

    def offer(self, value: Any) -> bool:
        """Queue `value`; False when the queue is full or closed."""
        with self._changed:
            if self._closed or len(self._waiting) >= self._capacity:
                return False
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=f"tap-{self._name}", daemon=True)
                self._thread.start()
            self._waiting.append(value)
            self._changed.notify_all()
            return True

    def drain(self, timeout: float | None) -> bool:
        """Wait until nothing is queued or running; False when `timeout` seconds did not suffice."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self) -> None:
        """Take no more values; the thread ends once the queued ones are done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                value, self._busy = self._waiting.popleft(), True
            self._run(value)  # isolates the sink, so it does not raise
            del value  # a large value must not live until the next one arrives
            with self._changed:
                self._busy = False
                self._changed.notify_all()


class _Registration(NamedTuple):
    """A sink registered under a name, with its queue if it has one."""

    sink: Sink
    max_failures: int
    worker: _Worker | None


_lock = threading.Lock()
_records: dict[str, _Record] = {}
_registrations: dict[str, _Registration] = {}
_workers: list[_Worker] = []  # also those of replaced registrations until they are drained
_DEFAULT_MAX_FAILURES = 3


def register_sink(name: str, sink: Sink, queue: int | None = None, max_failures: int = 3) -> None:
    """Send every `tap(name, ...)` that names no sink of its own to `sink`; replaces an earlier registration.

    Looked up when a value arrives, so compiled programs follow without recompiling.

    **Arguments:**

    - `queue`: hold at most this many values and run `sink` in a background thread, so that a slow one does
        not stall the program; a value that finds the queue full is dropped and counted. None runs it at
        once.
    - `max_failures`: after this many failures in a row the sink is cut off.
    """
    if queue is not None and queue < 1:
        raise ValueError(
            f"`queue` must be at least 1; got {queue}. Pass `queue=None` to run the sink at once."
        )
    if max_failures < 1:
        raise ValueError(f"`max_failures` must be at least 1; got {max_failures}.")
    unregister_sink(name)
    worker = None
    if queue is not None:
        run = lambda value: _run_sink(name, sink, max_failures, value, in_worker=True)  # noqa: E731
        worker = _Worker(run, queue, name)
        atexit.unregister(_flush_at_exit)  # one registration, placed after (so run before) jax's own
        atexit.register(_flush_at_exit)
    with _lock:
        _registrations[name] = _Registration(sink, max_failures, worker)
        _records.setdefault(name, _Record()).failing.pop(_sink_key(sink), None)
        if worker is not None:
            _workers.append(worker)


def unregister_sink(name: str) -> None:
    """Forget the sink registered under `name`; values already queued still reach it."""
    with _lock:
        previous = _registrations.pop(name, None)
    if previous is not None and previous.worker is not None:
        previous.worker.close()


def deliver(name: str, sink: Sink | None, value: Any, items: int, started: float) -> None:
    """Give one value to its sink and count it; exceptions other than KeyboardInterrupt are caught.

    `started` is the `time.perf_counter()` at which the program called the host.
    """
    leaves = jax.tree.leaves(value)
    with _lock:
        record = _records.setdefault(name, _Record())
        record.calls += 1
        record.items += items
        record.bytes += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray))
        target = (
            _registrations.get(name) if sink is None else _Registration(sink, _DEFAULT_MAX_FAILURES, None)
        )
        if target is None:
            record.last_value = value
            record.delivered += 1
            record.shortest = 0.0
    try:
        if target is not None and target.worker is None:
            _run_sink(name, target.sink, target.max_failures, value)
        elif target is not None and target.worker is not None and not target.worker.offer(value):
            with _lock:
                record.dropped += 1
    finally:
        with _lock:
            record.blocking += time.perf_counter() - started


def _sink_key(sink: Sink) -> Any:
    """Identity of a sink that survives `obj.method` being a new object at each access."""
    owner = getattr(sink, "__self__", None)
    return id(sink) if owner is None else (id(owner), getattr(sink, "__name__", ""))


def _run_sink(name: str, sink: Sink, max_failures: int, value: Any, in_worker: bool = False) -> None:
    key = _sink_key(sink)
    with _lock:
        record = _records.setdefault(name, _Record())
        if key in record.failing and record.failing[key][2]:
            record.skipped += 1
            return
    start = time.perf_counter()
    try:
        sink(value)
    # The sink is user code and isolation is the point: an exception here would abort the compiled program
    # (ledger/core.md §2). SystemExit is a sink that gives up. KeyboardInterrupt is the user: it passes and
    # stops the run, except in a worker, where no signal arrives and only the sink itself can have raised
    # it.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not in_worker:
            raise
        _count_run(record, time.perf_counter() - start)
        _count_failure(name, record, key, sink, max_failures, error)
    else:
        _count_run(record, time.perf_counter() - start)
        with _lock:
            record.failing.pop(key, None)


def _count_run(record: _Record, seconds: float) -> None:
    with _lock:
        record.delivered += 1
        record.total += seconds
        record.longest = max(record.longest, seconds)
        record.shortest = min(record.shortest, seconds)


def _count_failure(
    name: str, record: _Record, key: Any, sink: Sink, max_failures: int, error: BaseException
) -> None:
    text = "".join(traceback.format_exception(error))
    with _lock:
        record.errors += 1
        first = record.errors == 1
        record.last_error = f"{type(error).__name__}: {error}"
        if key not in record.failing and len(record.failing) >= _MAX_FAILING_SINKS:
            record.failing.pop(next(iter(record.failing)))
        entry = record.failing.setdefault(key, [sink, 0, False])
        entry[1] += 1
        entry[2] = cut_off = entry[1] >= max_failures
    if first:
        logger.warning("The sink of tap %r failed; the computation goes on.\n%s", name, text)
    if cut_off:
        logger.warning(
            "The sink of tap %r failed %d times in a row and is cut off; last error: %s. "
            "Register it again or call `reset_tap_stats()` to give it another chance.",
            name,
            max_failures,
            record.last_error,
        )


def flush_taps(timeout: float | None = None) -> bool:
    """Wait until every value that programs sent so far has reached its sink.

    Waits for JAX first, then at most `timeout` seconds (None: as long as it takes) for the queues. Returns
    False when values are still waiting. Call it before you read what a sink wrote. Not from inside a sink.
    """
    jax.effects_barrier()
    deadline = None if timeout is None else time.monotonic() + timeout
    with _lock:
        workers = list(_workers)
    drained = [w.drain(None if deadline is None else max(0.0, deadline - time.monotonic())) for w in workers]
    with _lock:
        current = [r.worker for r in _registrations.values()]
        _workers[:] = [w for w in _workers if w in current or not w.drain(0.0)]
    return all(drained)


def _flush_at_exit() -> None:
    if not flush_taps(_EXIT_WAIT_SECONDS):
        logger.warning("The process ends with tap values still queued after %g s.", _EXIT_WAIT_SECONDS)


def snapshot(stall_seconds: float | None) -> dict[str, TapStats]:
    """The statistics of all names that received a value."""
    with _lock:
        return {name: r.stats(name, stall_seconds) for name, r in sorted(_records.items()) if r.calls}


def cost_so_far(name: str) -> tuple[int, float]:
    """How often tap `name` called the host and for how many seconds the program waited there."""
    with _lock:
        record = _records.get(name)
        return (record.calls, record.blocking) if record else (0, 0.0)


def reset_tap_stats() -> None:
    """Set all counters to zero and give every sink that was cut off another chance."""
    with _lock:
        _records.clear()

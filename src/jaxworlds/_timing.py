"""What every measurement shares: timing that waits for results, compile events, copies for donation, plain
text.
"""

import contextlib
import gc
import io
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"

# A sample shorter than this holds several calls: reading both clocks costs about 0.2 µs, so 1 ms makes it
# 0.02 %.
SAMPLE_SECONDS = 1e-3
_MOST_CALLS = 10_000


class CompileEvents:
    """Traces and compiles of this thread inside a `with` block, as `jax.monitoring` reports them.

    `compiles` counts programs handed to the backend; `disk_hits` of them came from the persistent cache.
    `trace_s` is the longest single trace: a function's trace contains those of the functions it calls.
    `lower_s` and `compile_s` are sums. With `every_thread` the work of all threads counts.
    """

    def __init__(self, *, every_thread: bool = False) -> None:
        self.trace_s = 0.0
        self.lower_s = 0.0
        self.compile_s = 0.0
        self.compiles = 0
        self.disk_hits = 0
        self._every_thread = every_thread
        self._thread = 0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds of the longest trace, and of all lowering and compiling."""
        return self.trace_s + self.lower_s + self.compile_s

    def __enter__(self) -> "CompileEvents":
        self._thread = threading.get_ident()
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._on_duration)
        jax.monitoring.unregister_event_listener(self._on_event)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if not self._counts():
            return
        with self._lock:
            if event == _TRACE:
                self.trace_s = max(self.trace_s, duration_secs)
            elif event == _LOWER:
                self.lower_s += duration_secs
            elif event == _COMPILE:
                self.compile_s += duration_secs
                self.compiles += 1

    def _on_event(self, event: str, **_: Any) -> None:
        if event == _CACHE_HIT and self._counts():
            with self._lock:
                self.disk_hits += 1

    def _counts(self) -> bool:
        return self._every_thread or threading.get_ident() == self._thread


def timed(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
    """The result of one call and its wall seconds, counted until every array of the result is ready."""
    start = time.perf_counter()
    result = fn(*args, **kwargs)
    jax.block_until_ready(result)
    return result, time.perf_counter() - start


def copy_arrays(tree: Any) -> Any:
    """The same tree with every JAX array copied, so that the callee may consume (donate) it."""
    return jax.tree.map(lambda leaf: _copy(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def _copy(array: jax.Array) -> jax.Array:
    # `array.copy()` would compile a program for each shape and sharding, and be counted with the caller's.
    # What no one has bound to a device must stay so, or the callee compiles once more for it.
    return jax.device_put(array, array.sharding if array.committed else None, may_alias=False)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keeps Python's cyclic collector out of timed stretches, as `timeit` does; collects once before."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class Sample:
    """Seconds per call of one timed stretch: wall clock, and CPU time over all threads."""

    wall_s: float
    cpu_s: float


class Sampler:
    """Times one function again and again on the same arguments, each call waiting for its result.

    The first call (not timed) warms up. Where it consumed arguments (`donate_argnums`, or a function that
    donates inside), later calls get fresh copies of exactly those arrays, made outside the timed stretch,
    one call a sample.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        *,
        may_donate: bool = True,
        most_calls: int = _MOST_CALLS,
    ) -> None:
        self._fn = fn
        leaves, self._structure = jax.tree.flatten(tuple(args))
        self._leaves: list[Any] = leaves
        first = copy_arrays(leaves) if may_donate else leaves
        jax.block_until_ready(first)
        jax.block_until_ready(fn(*self._structure.unflatten(first)))
        self.donated = tuple(
            index for index, leaf in enumerate(first) if isinstance(leaf, jax.Array) and leaf.is_deleted()
        )
        self.calls = 1
        once = self().wall_s
        if once < 10 * SAMPLE_SECONDS:  # one reading of a fast call may be anything
            once = min(once, self().wall_s, self().wall_s)
        if not self.donated and once < SAMPLE_SECONDS:
            self.calls = min(most_calls, math.ceil(SAMPLE_SECONDS / max(once, 1e-9)))

    def _arguments(self) -> tuple[Any, ...]:
        leaves = list(self._leaves)
        for index in self.donated:
            leaves[index] = _copy(leaves[index])
        jax.block_until_ready([leaves[index] for index in self.donated])
        return self._structure.unflatten(leaves)

    def __call__(self) -> Sample:
        """One timed stretch of `calls` calls."""
        fn, args, repeats = self._fn, self._arguments(), range(self.calls)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in repeats:
            jax.block_until_ready(fn(*args))
        jax.effects_barrier()  # callbacks belong to the call that made them
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Sample(wall / self.calls, cpu / self.calls)


def iqr(values: Sequence[float]) -> float:
    """Interquartile range: the spread that a few outliers do not move."""
    low, high = np.percentile(values, (25, 75))
    return float(high - low)


def format_seconds(seconds: float | int | None) -> str:
    """`1.2e-05` as `12.0 µs`; a missing figure as `-`."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        value = seconds / size
        if abs(value) >= 1:
            return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def format_bytes(size: float | int | None) -> str:
    """`2400000` as `2.40 MB`; a missing figure as `-`."""
    if size is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size:.0f} B"


def render(renderable: Any, width: int = 110) -> str:
    """A rich table as plain text, for `str()` and logs."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(renderable)
    return stream.getvalue().rstrip("\n")


def show(renderable: Any) -> None:
    """Print a rich table: fitted to a terminal, as wide as it needs in a file or a pipe."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        console.print(renderable)
    else:
        print(render(renderable))

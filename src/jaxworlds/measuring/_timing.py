"""Timing that waits for results, and copies of arrays that a call consumes."""

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

# A sample shorter than this holds several calls: reading both clocks costs about 0.2 µs, so 1 ms makes it
# 0.02 %.
SAMPLE_SECONDS = 1e-3
_MOST_CALLS = 10_000


def time_call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
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


@dataclass(frozen=True)
class Timings:
    """Samples of one function: seconds per call, each over `calls_per_sample` calls."""

    name: str
    times: tuple[float, ...]
    cpu_times: tuple[float, ...]
    calls_per_sample: int

    @property
    def median_s(self) -> float:
        """Median seconds per call."""
        return float(np.median(self.times))

    @property
    def iqr_s(self) -> float:
        """Interquartile range of the seconds per call: the spread that a few outliers do not move."""
        low, high = np.percentile(self.times, (25, 75))
        return float(high - low)

    @property
    def best_s(self) -> float:
        """Seconds per call of the fastest sample."""
        return min(self.times)

    @property
    def cpu_s(self) -> float:
        """Median CPU seconds per call over all threads: the steadier figure on a shared machine."""
        return float(np.median(self.cpu_times))

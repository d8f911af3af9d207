"""Memory while code runs: tracked operations, one monitored call, and the leak check."""

import functools
import gc
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from ..arguments import demand_call
from ..compile_events import CompileEvents
from .prediction import MB, live_bytes, live_report, predict_memory, process_memory

# --- tracked operations ---


_tracking = True


def set_memory_tracking(enabled: bool) -> None:
    """Turn `track_memory` and `track_operation_memory` on or off everywhere; off costs one test per call."""
    global _tracking
    _tracking = enabled


@dataclass
class MemoryUse:
    """Memory before and after one operation, in bytes. `measured` is False where tracking was off."""

    name: str
    measured: bool = False
    live_before: int = 0
    live_after: int = 0
    process_before: int = 0
    process_after: int = 0
    process_peak: int | None = None
    """Most resident bytes during the operation, where that was the most the process ever had; else None: the
    operating system keeps only that maximum."""

    @property
    def live_change(self) -> int:
        """Bytes of live arrays (all devices) that the operation left behind: exact."""
        return self.live_after - self.live_before

    @property
    def process_change(self) -> int:
        """Growth of the resident process: allocators keep freed memory, so read it as a hint."""
        return self.process_after - self.process_before

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.name}: memory not tracked"
        peak = "" if self.process_peak is None else f", a new peak of {self.process_peak / MB:.1f} MB"
        return (
            f"{self.name}: live arrays {self.live_change / MB:+.2f} MB to {self.live_after / MB:.2f} MB; "
            f"process {self.process_change / MB:+.1f} MB to {self.process_after / MB:.1f} MB{peak}"
        )


def _live() -> int:
    return sum(live_bytes().values())


@contextmanager
def track_operation_memory(
    name: str, *, enabled: bool | None = None, verbose: bool = False
) -> Iterator[MemoryUse]:
    """Measure the memory of a block; the object it yields is filled in when the block ends, also by an error.

    `enabled=None` follows `set_memory_tracking`. `verbose` prints one line.

    ```python
    with track_operation_memory("load the field") as use:
        field = jnp.zeros((100, 100, 100))
    use.live_change  # 4000000
    ```
    """
    use = MemoryUse(name)
    if not (_tracking if enabled is None else enabled):
        yield use
        return
    use.live_before = _live()
    use.process_before, peak_before = process_memory()
    try:
        yield use
    finally:
        use.live_after = _live()
        use.process_after, peak_after = process_memory()
        use.process_peak = peak_after if peak_after > peak_before else None
        use.measured = True
        if verbose:
            print(use)


def track_memory(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    enabled: bool | None = None,
    verbose: bool = False,
) -> Any:
    """Decorator that measures every call of a function; the latest `MemoryUse` is its `.memory_use`.

    Waits for the result, so that its memory is counted. With `enabled=False` the function itself comes back,
    untouched. Put it outside `jit`: inside, it would measure the tracing.

    ```python
    @track_memory
    def load():
        return jnp.zeros((1000, 250))


    load()
    load.memory_use.live_change  # 1000000, the result
    ```
    """
    if fn is None:
        return functools.partial(track_memory, name=name, enabled=enabled, verbose=verbose)
    if enabled is False:
        return fn
    label = name or getattr(fn, "__qualname__", repr(fn))

    @functools.wraps(fn)
    def tracker(*args: Any, **kwargs: Any) -> Any:
        if enabled is None and not _tracking:
            return fn(*args, **kwargs)
        with track_operation_memory(label, enabled=True, verbose=verbose) as use:
            result = jax.block_until_ready(fn(*args, **kwargs))
        tracker.memory_use = use  # pyright: ignore[reportAttributeAccessIssue]
        return result

    tracker.memory_use = MemoryUse(label)  # pyright: ignore[reportAttributeAccessIssue]
    return tracker


def monitor_memory_usage(fn: Callable[..., Any], *args: Any, verbose: bool = False) -> tuple[Any, int, int]:
    """Run `fn(*args)` once: its result, the bytes by which live arrays grew, and the peak in bytes.

    The peak is the most that arrays and temporaries took during the call. For a jitted function it is
    predicted from the program: what was live before, plus arguments that still had to be moved, outputs and
    temporaries, less what donation reuses. For any other function it is measured and only a lower bound: the
    growth of the device's or the process's own high-water mark.
    """
    before, (resident, _) = _live(), process_memory()
    device_peak = _device_peaks()
    extra = 0
    if hasattr(fn, "lower"):
        need, leaves = predict_memory(fn, *args), jax.tree.leaves(args)
        moved = sum(getattr(leaf, "nbytes", 0) for leaf in leaves if not isinstance(leaf, jax.Array))
        extra = moved + need.outputs + need.temporaries - need.aliased
    result = jax.block_until_ready(fn(*args))
    increase = _live() - before
    if not hasattr(fn, "lower"):
        grown = [peak - old for peak, old in zip(_device_peaks(), device_peak, strict=True)]
        extra = sum(grown) if grown else process_memory()[1] - resident
    peak = before + max(0, increase, extra)
    if verbose:
        print(f"memory increase: {increase / MB:.1f} MB, peak: {peak / MB:.1f} MB")
    return result, increase, peak


def _device_peaks() -> list[int]:
    """High-water marks of the devices that keep one (not CPUs)."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return [int(each["peak_bytes_in_use"]) for each in stats if "peak_bytes_in_use" in each]


# --- the leak check ---


@dataclass(frozen=True)
class LeakReport:
    """Memory after each iteration of `find_leaks`, and the verdict."""

    leaking: bool
    reason: str
    live_counts: tuple[int, ...]
    live_bytes: tuple[int, ...]
    compiles: tuple[int, ...]
    """Compilations in each iteration."""
    process_bytes: tuple[int, ...]
    interrupted: bool = False

    @property
    def recompiling(self) -> bool:
        """Whether at least every other iteration compiled something."""
        return sum(count > 0 for count in self.compiles) * 2 >= max(1, len(self.compiles))

    @property
    def process_slope(self) -> float:
        """Growth of the resident process in bytes per iteration (least squares); a hint, never a proof."""
        if len(self.process_bytes) < 2:
            return 0.0
        return statistics.linear_regression(range(len(self.process_bytes)), self.process_bytes).slope

    def __str__(self) -> str:
        verdict = "LEAKING" if self.leaking else "no leak found"
        rounds = f"{len(self.live_counts)} iterations{' (interrupted)' if self.interrupted else ''}"
        if not self.live_counts:
            return f"{verdict}: {self.reason}"
        return (
            f"{verdict}: {self.reason}\n"
            f"  {rounds}: live arrays {self.live_counts[0]} -> {self.live_counts[-1]}, "
            f"{self.live_bytes[0] / MB:.2f} -> {self.live_bytes[-1] / MB:.2f} MB; "
            f"{sum(self.compiles)} compilations; process {self.process_slope / MB:+.3f} MB per iteration"
        )


def find_leaks(fn: Callable[[], Any], *, iterations: int = 20, warmup: int = 3) -> LeakReport:
    """Call `fn()` again and again and say whether memory keeps growing, and through what.

    Judged by exact figures: the count and bytes of live arrays after each call (its result dropped, garbage
    collected), and compilations, since every compiled program stays in jax's cache. The resident size of the
    process only adds a hint. Growth that ends, as of a cache that fills, is no leak. Ctrl-C returns what was
    seen so far.

    ```python
    kept = []
    find_leaks(lambda: kept.append(jnp.ones(1000))).leaking  # True
    ```
    """
    demand_call(fn, "fn", "find_leaks(fn, iterations=20)")
    if iterations < 8:
        raise ValueError(f"`iterations` must be at least 8 to tell growth from noise; got {iterations}.")
    rows: list[tuple[int, int, int, int]] = []
    interrupted = False
    with CompileEvents(every_thread=True) as events:
        try:
            for _ in range(warmup):
                jax.block_until_ready(fn())
            for _ in range(iterations):
                before = events.compiles
                jax.block_until_ready(fn())
                gc.collect()  # a reference cycle is not a leak
                held = live_report(top=0)
                rows.append((held.count, held.nbytes, events.compiles - before, held.process_bytes))
        except KeyboardInterrupt:
            interrupted = True
    columns = tuple(zip(*rows, strict=True)) or ((),) * 4
    leaking, reason = _judge(*columns)
    return LeakReport(leaking, reason, *columns, interrupted=interrupted)


def _judge(
    counts: Sequence[int], sizes: Sequence[int], compiles: Sequence[int], resident: Sequence[int]
) -> tuple[bool, str]:
    if len(counts) < 8:
        return False, f"only {len(counts)} iterations were seen, too few to judge"
    reasons = []
    if _keeps_growing(counts) or _keeps_growing(sizes):
        grown = f"{counts[-1] - counts[0]} and {(sizes[-1] - sizes[0]) / MB:.3f} MB"
        reasons.append(f"live arrays grew by {grown} in {len(counts) - 1} iterations: something keeps them")
    compiled = sum(count > 0 for count in compiles)
    if compiled * 2 >= len(compiles):
        reasons.append(
            f"it compiled again in {compiled} of {len(compiles)} iterations, and each program stays cached: "
            "call one jitted function with arguments of the same shape, type and static values"
        )
    if reasons:
        return True, "; ".join(reasons)
    rise = (resident[-1] - resident[0]) / MB
    verdict = "live arrays and compiled programs do not grow"
    # A smaller rise is what allocators do by themselves (ledger/core.md, 1c).
    if _keeps_growing(resident) and rise > 16:
        verdict = (
            f"no array is kept, but the process grew by {rise:.0f} MB: look at host objects (NumPy, lists)"
        )
    return False, verdict


def _keeps_growing(values: Sequence[int]) -> bool:
    """Whether values rise from each quarter to the next: noise does not, nor a cache that is full by half."""
    cuts = [round(len(values) * part / 4) for part in range(5)]
    quarters = [values[start:stop] for start, stop in itertools.pairwise(cuts)]
    middles = [statistics.median(quarter) for quarter in quarters]
    rising = all(a < b for a, b in itertools.pairwise(middles))
    return rising and max(quarters[0]) < min(quarters[-1])

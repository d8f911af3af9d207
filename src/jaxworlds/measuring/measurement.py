"""Measuring compiled code: trace, lower, compile, steady state and peak bytes, figures that are never mixed."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax

from ..arguments import demand_call
from ..compile_events import CompileEvents
from ..memory import MemoryUnknownError, predict_memory
from ..text import format_bytes, format_seconds
from ._timing import Sampler, Timings, no_garbage_collection

Origin = Literal["fresh", "disk", "memory", "none"]


@dataclass(frozen=True)
class Measurement(Timings):
    """Cost of one function: tracing, lowering and compiling, each run, and memory.

    `times` and `cpu_times` are seconds per call, one entry per sample of `calls_per_sample` calls.
    `compile_origin` says where the executable came from: `fresh` from the compiler, `disk` from the
    persistent cache, `memory` when this process had it already (then `trace_s`, `lower_s` and `compile_s`
    are look-ups, not costs), `none` when nothing was compiled here. `compiles` counts all programs handed
    to the backend, `steady_compiles` those handed over while the clock ran: anything but 0 means that the
    function recompiles and `times` contain it. `peak_bytes` is predicted (argument + output + temporary −
    aliased); `program_bytes` is the size of the StableHLO text without source locations, so both are the
    same wherever the source lies.
    """

    compiles: int
    steady_compiles: int
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    compile_origin: Origin = "none"
    peak_bytes: int | None = None
    program_bytes: int | None = None
    items: int | float | None = None

    @property
    def rate(self) -> float | None:
        """Items per second at the median, where `items` was given."""
        return None if self.items is None else self.items / self.median_s

    def figures(self) -> dict[str, int | float]:
        """Figures for `Baseline.record` and JSON: integers are deterministic, floats vary from run to run.

        `compiles` is left out: it is 0 or 1 by whether this process met the function before.
        """
        names = ("steady_compiles", "program_bytes", "peak_bytes", "trace_s", "lower_s", "compile_s")
        names += ("median_s", "iqr_s", "best_s", "cpu_s")
        known = {name: getattr(self, name) for name in names}
        known["rate"] = None if self.rate is None else float(self.rate)
        return {name: value for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        lines = [f"{self.name}:"]
        if self.compile_origin != "none":
            stages = (("trace", self.trace_s), ("lower", self.lower_s), ("compile", self.compile_s))
            origin = {"disk": " (from the disk cache)", "memory": " (already compiled: look-ups only)"}
            text = ", ".join(f"{stage} {format_seconds(seconds)}" for stage, seconds in stages)
            lines.append(f"  once    {text}{origin.get(self.compile_origin, '')}")
        lines.append(
            f"  run     {format_seconds(self.median_s)} median, IQR {format_seconds(self.iqr_s)}, best "
            f"{format_seconds(self.best_s)}, CPU {format_seconds(self.cpu_s)} "
            f"({len(self.times)} samples × {self.calls_per_sample} calls)"
        )
        if self.rate is not None:
            lines.append(f"  rate    {self.rate:,.4g} items/s")
        if self.program_bytes is not None:
            lines.append(
                f"  memory  peak {format_bytes(self.peak_bytes)}, program {format_bytes(self.program_bytes)}"
            )
        if self.steady_compiles:
            lines.append(
                f"  WARNING: compiled {self.steady_compiles} times while timing; `CompileWatch` says why"
            )
        return "\n".join(lines)


def measure(
    fn: Callable[..., Any],
    *args: Any,
    repeats: int = 20,
    min_seconds: float | int = 0.2,
    max_seconds: float | int = 30.0,
    items: int | float | None = None,
    compiled: bool = True,
    name: str | None = None,
) -> Measurement:
    """Measure one function on these arguments.

    `fn` is a `jax.jit` or `eqx.filter_jit` function, or a plain function, which is jitted here (arrays and
    numbers are traced, everything else is static). With `compiled=False` a plain callable is timed as it
    is. Sampling takes `repeats` samples and at least `min_seconds`, but stops after `max_seconds` once it
    has three. A sample of a fast function holds many calls; every call waits for its result before the next
    one starts. Arguments that `fn` donates are copied before each call, outside the timed stretch: `args`
    stay valid. Bind keyword arguments with `functools.partial`. `items` is what one call processes, for
    `rate`.

        result = measure(lambda x: (x @ x).sum(), jnp.ones((64, 64)), items=64)
        print(result)                    # once: trace, lower, compile; run: median, IQR, best
        result.compile_s, result.median_s, result.peak_bytes
    """
    if repeats < 1:
        raise ValueError(
            f"`repeats` must be at least 1; got {repeats}. One sample is the least that can be reported."
        )
    demand_call(fn, "fn", "measure(fn, *args)")
    label = name or getattr(fn, "__name__", type(fn).__name__)
    with CompileEvents() as events:
        stages: dict[str, Any] = {}
        if compiled:
            fn, args = _jit(fn, args)
            stages = _stages(fn, args, events)
        donates = stages.pop("donates", True)
        with no_garbage_collection():
            sampler = Sampler(fn, args, may_donate=donates)
            before = events.compiles
            samples = []
            start = time.perf_counter()
            while len(samples) < repeats or time.perf_counter() - start < min_seconds:
                if time.perf_counter() - start >= max_seconds and len(samples) >= min(3, repeats):
                    break
                samples.append(sampler())
    return Measurement(
        name=label,
        times=tuple(sample.wall_s for sample in samples),
        cpu_times=tuple(sample.cpu_s for sample in samples),
        calls_per_sample=sampler.calls,
        compiles=events.compiles,
        steady_compiles=events.compiles - before,
        items=items,
        **stages,
    )


def _jit(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """`fn` itself when it can be lowered; otherwise a fresh jit of it over its traceable arguments."""
    if hasattr(fn, "lower"):
        return fn, args
    dynamic, static = eqx.partition(args, eqx.is_array_like)

    # A new function each time: `jax.jit(fn)` twice would share one cache and report the second as free.
    def call(dynamic: Any) -> Any:
        return fn(*eqx.combine(dynamic, static))

    if hasattr(fn, "__name__"):
        call.__name__ = call.__qualname__ = fn.__name__
    return jax.jit(call), (dynamic,)


def _stages(fn: Any, args: tuple[Any, ...], events: CompileEvents) -> dict[str, Any]:
    """Time trace, lower and compile apart; read the program's size, its peak and whether it donates."""
    start = time.perf_counter()
    if hasattr(fn, "trace"):
        traced = fn.trace(*args)
        trace_s = time.perf_counter() - start
        lowered = traced.lower()
    else:  # eqx.filter_jit traces inside `lower`; jax reports how long that part took
        lowered = fn.lower(*args)
        trace_s = events.trace_s
    lower_s = max(0.0, time.perf_counter() - start - trace_s)
    compiles, disk_hits = events.compiles, events.disk_hits
    start = time.perf_counter()
    executable = lowered.compile()
    compile_s = time.perf_counter() - start
    origin = "memory" if events.compiles == compiles else "disk" if events.disk_hits > disk_hits else "fresh"
    try:
        peak_bytes = predict_memory(executable).peak
    except MemoryUnknownError:
        peak_bytes = None
    program = getattr(lowered, "lowered", lowered)  # equinox wraps jax's own stages
    return {
        "trace_s": trace_s,
        "lower_s": lower_s,
        "compile_s": compile_s,
        "compile_origin": origin,
        "peak_bytes": peak_bytes,
        "program_bytes": len(program.as_text().encode()),
        "donates": any(leaf.donated for leaf in jax.tree.leaves(program.args_info)),
    }


def break_even(compile_s: float | int, baseline_s: float | int, run_s: float | int) -> int | float:
    """Calls until compiling has paid: `compile / (baseline − run)`, rounded up; infinite if it never does.

    `baseline_s` and `run_s` are seconds per call without and with compilation.

        break_even(52.6, 4.99, 2.22)     # 19 calls (a network of real size)
    """
    gain = baseline_s - run_s
    return math.ceil(compile_s / gain) if gain > 0 else math.inf

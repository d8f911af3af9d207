"""The guide's measurements of training steps, over the core: blocking and interleaved.

The guide's 3,386× is the first call over the second: compilation over execution, a speed-up of nothing.
What compiling buys is `benchmark_sustained_performance` of the *same* step with and without `jax.jit`, and
when it pays is `jaxworlds.measuring.break_even`. Gate changes on `jaxworlds.measuring.Baseline`, not on
these ratios.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from jaxworlds.measuring import compare, copy_arrays, time_call


class _Result(NamedTuple):
    ratio: Any
    first_result: Any
    second_result: Any


class CompilationSpeedup(_Result):
    """The guide's `(speedup, result1, result2)` with names, and the seconds of both calls."""

    first_call_s: float
    second_call_s: float

    def _not_a_number(self, other: object) -> NoReturn:
        raise TypeError(
            f"`measure_compilation_speedup` returns a 3-tuple, which does not compare with {other!r}. "
            "Unpack it: `ratio, first, second = ...`. The ratio is compile time over run time and no "
            "speed-up; use `benchmark_sustained_performance` for one."
        )

    __lt__ = __le__ = __gt__ = __ge__ = _not_a_number


def measure_compilation_speedup(jax_train_step: Callable[..., Any], *args: Any) -> CompilationSpeedup:
    """Seconds of the first call over seconds of the second: how much compiling costs in units of running.

    This is no speed-up: a slower compiler raises it, and a call that was compiled before gives about 1.
    Both calls wait for their results, and both get copies of `args`, so a step that donates its arguments
    may be measured.

        ratio, first, second = measure_compilation_speedup(step, params, batch)
    """
    first, first_s = time_call(jax_train_step, *copy_arrays(args))
    second, second_s = time_call(jax_train_step, *copy_arrays(args))
    result = CompilationSpeedup(first_s / second_s, first, second)
    result.first_call_s, result.second_call_s = first_s, second_s
    print(f"First call (trace, compile and run): {first_s:.4f}s")
    print(f"Second call (run): {second_s:.4f}s")
    print(f"First / second: {result.ratio:.1f}x (compile over run, not a speed-up)")
    return result


def benchmark_sustained_performance(
    jax_step: Callable[..., Any], regular_step: Callable[..., Any], args: Sequence[Any], n_runs: int = 10
) -> float:
    """Time of `regular_step` over that of `jax_step`: both warm, blocking, interleaved.

    The ratio says something about compilation only when both steps compute the same thing.

        benchmark_sustained_performance(jax.jit(step), step, (params, batch))
    """
    comparison = compare({"JAX": jax_step, "regular": regular_step}, *args, rounds=n_runs)
    regular = comparison["regular"]
    print(f"Median JAX time: {comparison['JAX'].median_s:.4g}s")
    print(f"Median regular time: {regular.median_s:.4g}s")
    low, high = regular.ratio_low, regular.ratio_high
    print(f"Sustained speedup: {regular.ratio:.1f}x (95 % interval {low:.1f} to {high:.1f})")
    return regular.ratio


def monitor_memory_usage(training_function: Callable[..., Any], *args: Any) -> tuple[Any, int, int]:
    """The guide's `(result, increase, peak)` in bytes, counting arrays on devices.

    The guide's tracemalloc is blind to them: 100 MB of JAX arrays show as 2.4 MB (ledger, core §1c).
    """
    from jaxworlds.memory import monitor_memory_usage as monitor

    return monitor(training_function, *args, verbose=True)

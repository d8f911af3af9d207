"""Monitoring: the times of repeated calls by name, compilation apart from the steady state."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compile_events import CompileEvents
from ..text import format_seconds, show
from ._timing import time_call


class PerformanceMonitor:
    """Times calls by name while a program runs, keeping those that compiled apart from the steady state.

    `metrics[name]` are the seconds of steady calls, `compiling[name]` of calls during which JAX compiled
    something (the first one, usually), `throughput[name]` the items per second of steady calls that said
    how many items.

        monitor = PerformanceMonitor()
        state = monitor.monitor("step_time", step, state, action, items=1024)
        monitor.get_statistics()["step_time_mean"]
        monitor.print_report()
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = {}
        self.compiling: dict[str, list[float]] = {}
        self.throughput: dict[str, list[float]] = {}

    def time_function(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
        """The result and the seconds of one call, counted until the result is ready; nothing is recorded."""
        return time_call(fn, *args, **kwargs)

    def monitor(
        self, name: str, fn: Callable[..., Any], *args: Any, items: int | float | None = None, **kwargs: Any
    ) -> Any:
        """Call `fn`, record its time under `name`, and return its result."""
        with CompileEvents() as events:
            result, seconds = time_call(fn, *args, **kwargs)
        self.record(name, seconds, items, compiled=events.compiles > 0)
        return result

    def record(
        self, name: str, seconds: float | int, items: int | float | None = None, *, compiled: bool = False
    ) -> None:
        """Record one call that was timed elsewhere; `compiled` says that its time contains a compilation."""
        if compiled:
            self.compiling.setdefault(name, []).append(float(seconds))
            return
        self.metrics.setdefault(name, []).append(float(seconds))
        if items is not None:
            # A clock too coarse for the call would divide by zero: one tick is the least it can have taken.
            least = time.get_clock_info("perf_counter").resolution
            self.throughput.setdefault(name, []).append(items / max(float(seconds), least))

    def get_statistics(self) -> dict[str, float]:
        """Plain floats: `<name>_mean`, `_std`, `_min`, `_max` of the steady seconds.

        Where calls compiled also `<name>_compiling_total`; where items are known `<name>_throughput_mean` and
        `_max`, and `throughput_mean` and `throughput_max` over all names.
        """
        stats: dict[str, float] = {}
        for name, times in self.metrics.items():
            for figure, reduce in (("mean", np.mean), ("std", np.std), ("min", np.min), ("max", np.max)):
                stats[f"{name}_{figure}"] = float(reduce(times))
        for name, times in self.compiling.items():
            stats[f"{name}_compiling_total"] = float(np.sum(times))
        pooled = [rate for rates in self.throughput.values() for rate in rates]
        of_names = {f"{name}_throughput": rates for name, rates in self.throughput.items()}
        for name, rates in (of_names | {"throughput": pooled}).items() if pooled else ():
            stats |= {f"{name}_mean": float(np.mean(rates)), f"{name}_max": float(np.max(rates))}
        return stats

    def reset(self) -> None:
        """Forget everything that was recorded."""
        for kept in (self.metrics, self.compiling, self.throughput):
            kept.clear()

    def table(self) -> Any:
        """A rich table with one row per name."""
        from rich.markup import escape
        from rich.table import Table

        stats = self.get_statistics()
        table = Table(title="Performance", title_justify="left")
        table.add_column("name")
        for heading in ("calls", "mean", "std", "min", "max", "items/s", "compiling"):
            table.add_column(heading, justify="right")
        for name in dict.fromkeys((*self.metrics, *self.compiling)):
            steady = [stats.get(f"{name}_{figure}") for figure in ("mean", "std", "min", "max")]
            rate = stats.get(f"{name}_throughput_mean")
            compiling = self.compiling.get(name, [])
            table.add_row(
                escape(name),
                str(len(self.metrics.get(name, []))),
                *map(format_seconds, steady),
                "-" if rate is None else f"{rate:,.0f}",
                f"{format_seconds(sum(compiling))} ({len(compiling)})" if compiling else "-",
            )
        return table

    def print_report(self) -> None:
        """Print the table."""
        show(self.table())

"""The performance guide's tools that need no environment: targets, hashable configs, lazy tasks, a monitor."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxworlds.caching import LazyLoader
from jaxworlds.memory import MB, live_bytes
from jaxworlds.monitoring import PerformanceMonitor as _CallMonitor
from jaxworlds.static import unhashable_path

TARGET_STEP_TIME = 1.0
"""Milliseconds per step of one environment."""
TARGET_THROUGHPUT = 10000
"""Steps per second of a batch."""
TARGET_MEMORY_REDUCTION = 0.9
"""Share of memory saved, against the mask format."""
TARGET_BATCH_EFFICIENCY = 0.8
"""Share of the best throughput that the hardware allows."""

# The guide's records, field by field, at 30×30: operation, selection, timestamp, pair index, validity.
_FIELDS_PER_ACTION = {"point": 6, "bbox": 8, "mask": 904}


def get_fields_per_action(format_name: str) -> int:
    """Numbers in one record of the action history, as the guide counts them for 30×30 grids."""
    if format_name not in _FIELDS_PER_ACTION:
        choices = ", ".join(map(repr, _FIELDS_PER_ACTION))
        raise ValueError(f"`format_name` must be one of {choices}; got {format_name!r}.")
    return _FIELDS_PER_ACTION[format_name]


def verify_config_hashability(config: Any) -> bool:
    """Whether `config` can be a static argument; prints the answer, and the path of the part that cannot.

    >>> verify_config_hashability(("point", [3, 4]))
    ❌ Configuration is not hashable: `config[1]` has no hash. Use tuples, frozensets or a `@config` there.
    False
    """
    path = unhashable_path(config)
    if path is None:
        print("✅ Configuration is hashable")
        return True
    remedy = "Use tuples, frozensets or a `@config` there."
    print(f"❌ Configuration is not hashable: `{path}` has no hash. {remedy}")
    return False


class LazyTaskLoader:
    """One task of a parser, read on first access to `task_data` and forgotten by `clear_cache`."""

    def __init__(self, task_index: int, parser: Any):
        self.task_index = task_index
        self.parser = parser
        self._loader = LazyLoader(functools.partial(parser.get_task_by_index, task_index))

    @property
    def task_data(self) -> Any:
        """The task; the first access, and the first after `clear_cache`, reads it."""
        return self._loader.get()

    def clear_cache(self) -> None:
        """Forget the task; what you still hold stays alive with you."""
        self._loader.release()


class PerformanceMonitor:
    """The guide's monitor: its metrics and statistics, with calls that compiled kept apart.

    `metrics` holds seconds (`step_times`, `reset_times`), items per second (`throughput`), megabytes of live
    arrays after each call (`memory_usage`), and by metric the seconds of calls during which JAX compiled
    (`jit_compilation_times`), which count in none of the others.

        monitor = PerformanceMonitor()
        state = monitor.monitor("step_times", step, state, items=1024)
        monitor.print_report()
    """

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {
            "step_times": [],
            "reset_times": [],
            "memory_usage": [],
            "throughput": [],
            "jit_compilation_times": {},
        }

    def time_function(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
        """The result of one call and its seconds, counted until the result is ready; nothing is recorded."""
        return _CallMonitor().time_function(func, *args, **kwargs)

    def monitor(
        self, metric: str, func: Callable[..., Any], *args: Any, items: int | None = None, **kwargs: Any
    ) -> Any:
        """Call `func`, file its time under `step_times` or `reset_times`, and return its result."""
        if metric not in ("step_times", "reset_times"):
            raise ValueError(f"`metric` must be 'step_times' or 'reset_times'; got {metric!r}.")
        call = _CallMonitor()
        result = call.monitor(metric, func, *args, items=items, **kwargs)
        if metric in call.compiling:
            self.metrics["jit_compilation_times"].setdefault(metric, []).extend(call.compiling[metric])
        self.metrics[metric].extend(call.metrics.get(metric, []))
        self.metrics["throughput"].extend(call.throughput.get(metric, []))
        self.metrics["memory_usage"].append(sum(live_bytes().values()) / MB)
        return result

    def get_statistics(self) -> dict[str, float]:
        """`step_time_{mean,std,min,max}`, `reset_time_{mean,std}` and `throughput_{mean,max}`, where known."""
        kept = (
            ("step_time", "step_times", ("mean", "std", "min", "max")),
            ("reset_time", "reset_times", ("mean", "std")),
            ("throughput", "throughput", ("mean", "max")),
        )
        return {
            f"{name}_{figure}": float(getattr(np, figure)(self.metrics[metric]))
            for name, metric, figures in kept
            if self.metrics[metric]
            for figure in figures
        }

    def print_report(self) -> None:
        """Print the statistics, and how long compiling took."""
        print("Performance report")
        for name, value in self.get_statistics().items():
            shown = f"{value:,.0f} per second" if name.startswith("throughput") else f"{1e3 * value:.3f} ms"
            print(f"  {name}: {shown}")
        for metric, seconds in self.metrics["jit_compilation_times"].items():
            print(f"  {metric}: {len(seconds)} calls compiled, in {sum(seconds):.3f} s")

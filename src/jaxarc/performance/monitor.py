"""The guide's monitor: times of resets and steps while a program runs, compilation kept apart."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxworlds.measuring import PerformanceMonitor as _CallMonitor
from jaxworlds.memory import MB, live_bytes

from ..dispatch import Stepped, arc_reset, arc_step, batch_step
from ..envs.config import JaxArcConfig
from ..envs.observations import ArcObservation
from ..envs.state import ArcEnvState
from ..envs.structured_actions import AbstractAction


class PerformanceMonitor:
    """The guide's monitor: its metrics and statistics, with calls that compiled kept apart.

    `metrics` holds seconds (`step_times`, `reset_times`), items per second (`throughput`), megabytes of live
    arrays after each call (`memory_usage`), and by metric the seconds of calls during which JAX compiled
    (`jit_compilation_times`), which count in none of the others.

        monitor = PerformanceMonitor()
        state, obs = monitor.monitor_reset(key, config, task)
        state, obs, reward, done, info = monitor.monitor_step(state, action, config)
        monitor.print_report()
    """

    def __init__(self) -> None:
        names = ("step_times", "reset_times", "memory_usage", "throughput")
        self.metrics: dict[str, Any] = {**{name: [] for name in names}, "jit_compilation_times": {}}

    def time_function(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
        """The result of one call and its seconds, counted until the result is ready; nothing is recorded."""
        return _CallMonitor().time_function(func, *args, **kwargs)

    def monitor(
        self, metric: str, func: Callable[..., Any], *args: Any, items: int | None = None, **kwargs: Any
    ) -> Any:
        """Call `func`, file its time under `step_times` or `reset_times`, and return its result."""
        if metric not in ("step_times", "reset_times"):
            raise ValueError(f"`metric` must be 'step_times' or 'reset_times'; got {metric!r}.")
        return self._time(metric, items, func, *args, **kwargs)

    def monitor_reset(
        self, key: Array, config: JaxArcConfig, task: Any
    ) -> tuple[ArcEnvState, ArcObservation]:
        """`arc_reset`, timed into `reset_times`."""
        return self._time("reset_times", None, arc_reset, key, config, task)

    def monitor_step(self, state: ArcEnvState, action: AbstractAction, config: JaxArcConfig) -> Stepped:
        """`arc_step`, timed into `step_times`."""
        return self._time("step_times", None, arc_step, state, action, config)

    def monitor_batch_step(
        self, states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig
    ) -> Stepped:
        """`batch_step`, timed into `throughput` as environment steps per second."""
        return self._time("batch_step", states.height.size, batch_step, states, actions, config)

    def _time(
        self, metric: str, items: int | None, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        call = _CallMonitor()
        result = call.monitor(metric, func, *args, items=items, **kwargs)
        if metric in call.compiling:
            self.metrics["jit_compilation_times"].setdefault(metric, []).extend(call.compiling[metric])
        if metric in self.metrics:
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

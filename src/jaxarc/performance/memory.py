"""What the environment takes of memory: by format, by batch size, over time; and holders for tasks and states."""

import functools
import gc
import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.random as jr
import numpy as np

from jaxworlds.memory import MB, LazyLoader, live_bytes, process_memory

from ..dispatch import Stepped, arc_reset, arc_step, batch_reset
from ..envs.config import JaxArcConfig
from ..envs.history import empty_history
from ..envs.state import ArcEnvState, join_tasks
from ..tasks.bank import JaxArcTask, as_bank
from ..tasks.mapped import MappedTasks, open_task_file
from ..tasks.parser import PathLike
from ..testing import create_mock_task, create_test_config
from .runners import scripted_action
from .targets import get_fields_per_action


def analyze_memory_usage_by_format() -> dict[str, dict[str, float]]:
    """Megabytes (10⁶ bytes) that the action history of one environment takes at 30×30 and 1,000 steps, by format.

    `action_history_mb` is the true, packed size; `fields_per_action` is what the guide counts in one record.
    """
    found: dict[str, dict[str, float]] = {}
    for name in ("point", "bbox", "mask"):
        size = empty_history(create_test_config(1000, selection_format=name)).nbytes / MB
        found[name] = {"action_history_mb": size, "fields_per_action": get_fields_per_action(name)}
        print(f"{name.capitalize()} format: {size:.3f} MB")
    print("\nMemory savings:")
    for name in ("point", "bbox"):
        saved = 1 - found[name]["action_history_mb"] / found["mask"]["action_history_mb"]
        print(f"{name.capitalize()} vs Mask: {saved:.1%} reduction")
    return found


def profile_memory_usage(
    config: JaxArcConfig, task: Any, batch_sizes: Iterable[int] = (1, 16, 64, 256)
) -> dict[int, dict[str, float]]:
    """Megabytes (10⁶ bytes) that `batch_reset` leaves behind, for each batch size: states and observations.

    Counted are live arrays, which is exact, without the tasks, which all environments share. Each entry
    holds `total_memory_mb`, `per_env_memory_mb`, and what was live in all, `memory_before` and `memory_after`.
    """
    tasks = task if isinstance(task, JaxArcTask) else as_bank(task)
    found: dict[int, dict[str, float]] = {}
    for size in batch_sizes:
        keys = jr.split(jr.key(42), size)
        jax.block_until_ready(batch_reset(keys, config, tasks))  # compiling may leave constants behind
        gc.collect()
        before = _live_mb()
        states, seen = jax.block_until_ready(batch_reset(keys, config, tasks))
        kept = join_tasks(states, None), seen
        del states
        after = _live_mb()
        del kept
        found[size] = {
            "total_memory_mb": after - before,
            "per_env_memory_mb": (after - before) / size,
            "memory_before": before,
            "memory_after": after,
        }
        print(f"Batch {size:3d}: {after - before:.3f} MB total, {(after - before) / size:.6f} MB per env")
    return found


def _live_mb() -> float:
    return sum(live_bytes().values()) / MB


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


class MemoryMappedTaskLoader:
    """The first `max_tasks` tasks of a file that `jaxarc.tasks.write_task_file` wrote, read as they are asked for.

    The file is opened at the first access, and only read. `jaxarc.tasks.open_task_file` gives the same tasks with
    ids, splits and banks.

        loader = MemoryMappedTaskLoader("tasks.arcbank")
        task = loader.get_task(0)
    """

    def __init__(self, data_path: PathLike, max_tasks: int = 1000):
        if max_tasks < 1:
            raise ValueError(f"`max_tasks` must be at least 1; got {max_tasks}.")
        self.data_path = data_path
        self.max_tasks = max_tasks

    @functools.cached_property
    def _tasks(self) -> MappedTasks:
        return open_task_file(self.data_path)

    def __len__(self) -> int:
        return min(self.max_tasks, len(self._tasks))

    def get_task(self, task_id: Any) -> JaxArcTask:
        """The task with this number."""
        row = operator.index(task_id)
        if not 0 <= row < len(self):
            raise ValueError(
                f"`task_id` must be from 0 to {len(self) - 1}; got {row}. The file has {len(self._tasks)} tasks, "
                f"and `max_tasks` is {self.max_tasks}."
            )
        return self._tasks.get_task(row)

    def get_batch_tasks(self, task_ids: Iterable[Any]) -> list[JaxArcTask]:
        """The tasks with these numbers, in their order."""
        return [self.get_task(task_id) for task_id in task_ids]


class StateMemoryPool:
    """States at the start of an episode, lent and taken back.

    It saves the time of a reset, not memory: arrays of JAX are never written into, so every step makes a new state,
    whatever becomes of the old one. `get_state` always gives the beginning of an episode; `return_state` also takes
    what steps have made of it, and puts the beginning back. At most `pool_size` states are kept.

        pool = StateMemoryPool(pool_size=50, config=config)
        state = pool.get_state()
        pool.return_state(state)
    """

    def __init__(self, pool_size: int = 100, config: JaxArcConfig | None = None, task: Any = None):
        if pool_size < 0:
            raise ValueError(f"`pool_size` must be at least 0; got {pool_size}.")
        self.pool_size = pool_size
        self.config = JaxArcConfig() if config is None else config
        self.task = create_mock_task(min(15, *self.config.canvas)) if task is None else task
        self.available_states: list[ArcEnvState] = []
        self.in_use_states: dict[int, ArcEnvState] = {}
        self._lent = 0
        self._made = 0

    def get_state(self) -> ArcEnvState:
        """A state of the pool, or a new one if none is left; no two that are lent are the same episode."""
        state = self.available_states.pop() if self.available_states else self._new_state()
        self._lent += 1
        if len(self.in_use_states) < self.pool_size:
            self.in_use_states[id(state)] = state
        return state

    def return_state(self, state: ArcEnvState) -> None:
        """Take back a state that was lent, or what has become of it."""
        if not self._lent:
            raise ValueError("`return_state` takes back what `get_state` lent, and nothing is lent now.")
        self._lent -= 1
        if self.in_use_states:
            own = id(state) if id(state) in self.in_use_states else next(iter(self.in_use_states))
            self.available_states.append(self.in_use_states.pop(own))

    def _new_state(self) -> ArcEnvState:
        self._made += 1
        return arc_reset(jr.fold_in(jr.key(42), self._made), self.config, self.task)[0]


LEAK_MB = 100
"""Growth above which `detect_memory_leaks` warns, in megabytes."""


def detect_memory_leaks(
    config: JaxArcConfig,
    task: Any,
    num_iterations: int = 1000,
    step: Callable[..., Stepped] = arc_step,
) -> list[tuple[int, float]]:
    """Step again and again and watch memory: samples `(iteration, megabytes of live arrays)`, every 100 and at the end.

    Warns (`RuntimeWarning`) if live arrays or the process grow by more than 100 MB from the first sample to the last.
    `step` is what to watch: `arc_step`, or a function of yours with its arguments, which may do more. To find even
    slow leaks of your own code, see `jaxworlds.memory.find_leaks`.
    """
    if num_iterations < 1:
        raise ValueError(f"`num_iterations` must be at least 1; got {num_iterations}.")
    samples: list[tuple[int, float]] = []
    resident: list[float] = []
    state, _ = arc_reset(jr.key(42), config, task)
    jax.block_until_ready(step(state, scripted_action(config, np.array(0)), config))  # compiles
    for i in range(num_iterations + 1):
        if i % 100 == 0 or i == num_iterations:
            state, _ = jax.block_until_ready(arc_reset(jr.fold_in(jr.key(42), i), config, task))
            gc.collect()
            samples.append((i, _live_mb()))
            resident.append(process_memory()[0] / MB)
            print(f"Iteration {i}: {samples[-1][1]:.1f} MB in arrays, process {resident[-1]:.1f} MB")
        if i < num_iterations:
            state, *_ = step(state, scripted_action(config, np.array(i)), config)
    grown = {"live arrays": samples[-1][1] - samples[0][1], "the process": resident[-1] - resident[0]}
    shown = ", ".join(f"{name} {change:+.1f} MB" for name, change in grown.items())
    print(f"\nMemory from iteration 0 to {samples[-1][0]}: {shown}")
    if max(grown.values()) > LEAK_MB:
        warnings.warn(
            f"Potential memory leak: {shown} in {samples[-1][0]} iterations.", RuntimeWarning, stacklevel=2
        )
    else:
        print("✅ No significant memory leak detected")
    return samples

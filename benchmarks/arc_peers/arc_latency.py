"""One step at a time from Python, each waited for: what people who debug and planners see."""

import time
from typing import Any

import jax
import jax.random as jr
from arc_program import Canvas, Sample, settings

from jaxarc.envs import BboxAction, JaxArcConfig, arc_reset, arc_step, batch_reset, batch_step
from jaxarc.envs.episodes import random_actions

ACTIONS = 64


class FromPython:
    """`arc_step`, or `batch_step` of a batch, called from Python with actions that lie ready."""

    def __init__(self, canvas: Canvas, batch: int | None, config: JaxArcConfig | None = None) -> None:
        self.batch = batch or 1
        self.config = config or settings(canvas.side, "bbox")
        key_reset, key_play = jr.split(jr.key(0))
        if batch is None:
            self._state, _ = arc_reset(key_reset, self.config, canvas.tasks)
        else:
            self._state, _ = batch_reset(jr.split(key_reset, batch), self.config, canvas.tasks)
        self._step: Any = arc_step if batch is None else batch_step
        keys = jr.split(key_play, ACTIONS)
        self._actions: list[Any] = [random_actions(key, self.config, batch, "bbox") for key in keys]
        jax.block_until_ready(self._actions)
        self._at = 0

    def _action(self) -> Any:
        return self._actions[self._at % ACTIONS]

    def call(self) -> None:
        """One step, waited for."""
        self._state, *_ = jax.block_until_ready(self._step(self._state, self._action(), self.config))
        self._at += 1

    def warm_up(self, limit_s: float) -> float:
        """Compile, and settle; returns the seconds of the first call."""
        began = time.perf_counter()
        self.call()
        first = time.perf_counter() - began
        while self._at < ACTIONS and time.perf_counter() - began < limit_s:
            self.call()
        return first

    def sample(self, seconds: float) -> Sample:
        """Calls for about this long."""
        calls, cpu, wall = 0, time.process_time(), time.perf_counter()
        while calls == 0 or time.perf_counter() - wall < seconds:
            self.call()
            calls += 1
        return Sample(calls * self.batch, time.perf_counter() - wall, time.process_time() - cpu)


class FromNumbers(FromPython):
    """The same, the action made from Python's integers at every step."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas, None)
        self._numbers = [
            tuple(int(part) for part in (a.operation, a.r1, a.c1, a.r2, a.c2)) for a in self._actions
        ]

    def _action(self) -> Any:
        return BboxAction(*self._numbers[self._at % ACTIONS])

"""Results of a run: the whole, and each chunk."""

import dataclasses
from typing import Any, Literal

import numpy as np

Outcome = Literal["finished", "stopped", "interrupted", "terminated"]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Result of one chunk, for `on_chunk`: the step reached, the observation, and the records."""

    step: int
    length: int
    observed: Any
    records: Any
    seconds: float


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The result of a run: the last carry, the records, and how it went."""

    carry: Any
    records: Any
    recorded_steps: np.ndarray
    step: int
    length: int
    first_step: int
    outcome: Outcome
    worlds: int
    seconds: float
    compile_seconds: float
    chunk: int

    @property
    def finished(self) -> bool:
        """Whether every step was taken."""
        return self.step == self.length

    @property
    def world_steps_per_second(self) -> float:
        """Steady rate of the steps taken by this call, over all worlds, compilation excluded."""
        return self.worlds * (self.step - self.first_step) / max(self.seconds - self.compile_seconds, 1e-9)

    def __str__(self) -> str:
        worlds, unit = (f"{self.worlds:,} worlds, ", "world-steps/s") if self.worlds != 1 else ("", "steps/s")
        return (
            f"{self.outcome} at step {self.step:,} of {self.length:,}: {worlds}"
            f"{self.world_steps_per_second:,.0f} {unit} ({self.seconds:.2f} s, "
            f"{self.compile_seconds:.2f} s of it compiling)"
        )

"""The result of a run: positions at the recorded times, and the outcome of every particle."""

import dataclasses
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Int8, Shaped

from ..fields.epoch import Epoch, as_epoch, in_seconds
from .particles import Outcome

OUTCOME_NAMES = tuple(outcome.sentence for outcome in Outcome)


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Where particles were at the recorded times, as NumPy arrays.

    A particle that has ended keeps the position where it ended, and one that is not released yet that of its release;
    `alive` says which are on their way. With an inlet a slot holds one particle after another; `generation` counts them.
    """

    positions: Float[np.ndarray, "times particles dim"] | None
    """None where only a reduction was kept."""
    times: Float[np.ndarray, " times"]
    ids: Shaped[np.ndarray, " particles"]
    alive: Bool[np.ndarray, "times particles"] | None
    ages: Float[np.ndarray, "times particles"] | None
    """Time since the release, or since the birth at an inlet, up to the moment in which the particle ended."""
    release_times: Float[np.ndarray, " particles"]
    outcomes: Int8[np.ndarray, " particles"]
    patches: Int[np.ndarray, " particles"]
    """The patch through which the particle left last, or -1."""
    patch_names: tuple[str, ...] = ()
    patch_counts: dict[str, int] = dataclasses.field(default_factory=dict)
    """How often each patch was met, by all particles over the whole run."""
    velocities: Float[np.ndarray, "times particles dim"] | None = None
    generation: Int[np.ndarray, "times particles"] | None = None
    reduced: Any = None
    """Results of `reduce` at each recorded time: arrays with a leading axis of times."""
    end_times: Float[np.ndarray, " particles"] | None = None
    """When each particle ended: the moment within the step in which it met a wall; NaN for those that did not end."""
    outcome: str = "finished"
    """Of the run: finished, stopped (by a callback), interrupted (Ctrl-C) or terminated (SIGTERM)."""
    outcome_names: tuple[str, ...] = OUTCOME_NAMES
    """The meaning of the numbers in `outcomes`."""
    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Device, precision, steps, seconds, and particle-steps per second of the whole call and of the compiled loop alone."""
    epoch: Epoch | None = None
    """The date of time 0, where the field had one; times are then seconds."""

    def __post_init__(self) -> None:
        for name in ("positions", "velocities"):
            value = getattr(self, name)
            if value is not None and value.shape[:2] != (len(self.times), len(self.ids)):
                raise ValueError(
                    f"`{name}` must have shape (times, particles, dim) = ({len(self.times)}, {len(self.ids)}, dim); "
                    f"got {value.shape}."
                )

    def __len__(self) -> int:
        """How many times are recorded."""
        return len(self.times)

    @property
    def particles(self) -> int:
        """How many particles there are."""
        return len(self.ids)

    @property
    def dates(self) -> Shaped[np.ndarray, " times"]:
        """The recorded times as `datetime64`, or as texts in calendars that NumPy does not have."""
        if self.epoch is None:
            raise ValueError(
                "`dates` needs the date of time 0, which this run does not know. Write "
                "`trajectory.with_epoch('2015-11-16').dates`."
            )
        return self.epoch.dates(self.times)

    def row_of(self, at: Any) -> int:
        """The number of the recorded time nearest to a time or a date; a warning where the times do not reach it."""
        seconds = self.seconds_of(at)
        row = int(np.argmin(np.abs(self.times - seconds)))
        low, high = float(self.times.min()), float(self.times.max())
        slack = 1e-6 * max(high - low, abs(low), abs(high))
        if not low - slack <= seconds <= high + slack:
            values = [seconds, low, high, float(self.times[row])]
            told = [f"{one:g}" for one in values] if self.epoch is None else self.epoch.texts(values)
            warnings.warn(
                f"`at` must lie within the recorded times, {told[1]} to {told[2]}; got {told[0]}. The time {told[3]} is taken.",
                UserWarning,
                stacklevel=3,
            )
        return row

    def seconds_of(self, at: Any, name: str = "at") -> float:
        """A time, or a date as a time."""
        remedy = "Give a time, or say the date of time 0: `trajectory.with_epoch('2015-11-16')`."
        seconds = float(in_seconds(at, self.epoch, name, remedy))
        if not np.isfinite(seconds):
            raise ValueError(f"`{name}` must be finite; got {at!r}. Give a time, such as {self.times[-1]:g}.")
        return seconds

    def with_epoch(self, epoch: Epoch | Any) -> "Trajectory":
        """The same trajectory with another date of time 0; None for none."""
        return dataclasses.replace(self, epoch=as_epoch(epoch))

    @property
    def final(self) -> Float[np.ndarray, "particles dim"]:
        """The positions at the last recorded time."""
        if self.positions is None:
            raise ValueError(
                "`final` needs positions, which this run did not keep. Track with keep_positions=True."
            )
        return self.positions[-1]

    def summary(self) -> str:
        """A summary of a few lines."""
        span = "no time"
        if len(self.times):
            ends = [f"{time:g}" for time in self.times[[0, -1]]]
            span = " to ".join(ends if self.epoch is None else self.epoch.texts(self.times[[0, -1]].tolist()))
        lines = [f"{self.particles:,} particles, {len(self)} recorded times from {span}: {self.outcome}"]
        for code, count in sorted(Counter(self.outcomes.tolist()).items()):
            lines.append(f"  {count:,} {self.outcome_names[code]}{self._at_once(code, count)}")
        met = {name: count for name, count in self.patch_counts.items() if count}
        if met:
            lines.append("  patches met: " + ", ".join(f"{name} {count:,}" for name, count in met.items()))
        if "particle_steps_per_second" in self.info:
            # A call with many results does not reach the rate of the compiled loop alone.
            rate = self.info.get("loop_particle_steps_per_second")
            loop = "" if rate is None else f" ({rate:,.0f} in the compiled loop alone)"
            lines.append(
                f"  {self.info['steps']:,} steps in {self.info['seconds']:.2f} s "
                f"({self.info['compile_seconds']:.2f} s compiling), "
                f"{self.info['particle_steps_per_second']:,.0f} particle-steps/s on {self.info['device']}{loop}"
            )
        return "\n".join(lines)

    def _at_once(self, code: int, count: int) -> str:
        """How many of those that the field does not move were so from the beginning: seeds on land, for example."""
        stopped = code in (Outcome.OUTSIDE, Outcome.NOT_FINITE)
        if not stopped or self.ages is None or self.generation is not None or not len(self):
            return ""
        still = int(((self.outcomes == code) & (self.ages[-1] == 0)).sum())
        began = "where it began" if still == 1 else "where they began"
        share = "" if count == 1 else "all of them " if still == count else f"{still:,} of them "
        return f", {share}{began}" if still else ""

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write to `.npz`, `.nc`, `.zarr` or `.vtp`/`.pvd`, by the suffix."""
        from ..io import save_trajectory

        return Path(save_trajectory(self, path, **options))

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory":
        """Read what `save` wrote."""
        from ..io import load_trajectory

        return load_trajectory(path)

    def to_dataset(self) -> Any:
        """The run as an `xarray.Dataset`."""
        from ..io import trajectory_dataset

        return trajectory_dataset(self)

    def plot(self, **options: Any) -> Any:
        """Paths as a picture; see `jaxtrace.visualization`."""
        from ..visualization import plot_paths

        return plot_paths(self, **options)

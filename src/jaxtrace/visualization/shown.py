"""The part of a trajectory that is drawn: particles, times, interruptions of paths, and values for the colours."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from ..boundaries.box import AXES
from ..tracking.trajectory import Trajectory
from .colors import KINDS, SCALE_LABELS

Dims = str | Sequence[int] | None
GOLDEN = (np.sqrt(5) - 1) / 2


@dataclasses.dataclass(frozen=True)
class Shown:
    """The part of a trajectory that is drawn."""

    positions: Float[np.ndarray, "times shown axes"]
    times: Float[np.ndarray, " times"]
    numbers: Int[np.ndarray, " shown"]
    """Numbers of the particles."""
    dims: tuple[int, ...]
    """Numbers of the coordinates."""
    joined: Bool[np.ndarray, "spans shown"]
    """Whether the path goes on to the next time; it does not across a period or after a new particle in the slot."""
    alive: Bool[np.ndarray, "times shown"]
    ended: Bool[np.ndarray, "times shown"]
    """Released and no longer alive. A particle that is neither alive nor ended is not released yet."""
    values: Float[np.ndarray, "times shown"]
    """The value that the colour shows: a number, or the number of a kind."""
    middle: Float[np.ndarray, " dim"]
    """Median of the positions, along all axes."""
    total: int
    """Particles of the whole trajectory."""

    @property
    def note(self) -> str:
        """How many particles are drawn, and of how many if not all are."""
        few = len(self.numbers)
        return f"{few:,} particles" if few == self.total else f"{few:,} of {self.total:,} particles"

    @property
    def extent(self) -> Float[np.ndarray, "2 axes"]:
        """Lowest and highest corner of all that is drawn."""
        seen = self.positions[self.alive | self.ended]
        seen = seen[np.isfinite(seen).all(axis=1)]
        if not len(seen):
            return np.stack([np.zeros(len(self.dims)), np.ones(len(self.dims))])
        return np.stack([seen.min(axis=0), seen.max(axis=0)])


def select(
    trajectory: Trajectory,
    color: str,
    dims: Dims = None,
    every: int | None = None,
    *,
    most: int,
    times: int | None = None,
    periods: Float[np.ndarray, " dim"] | None = None,
) -> Shown:
    """Take every `every`-th particle, or evenly at most `most` of them, and at most `times` of the times."""
    if color not in (*SCALE_LABELS, *KINDS):
        raise ValueError(f"`color` must be one of {', '.join([*SCALE_LABELS, *KINDS])}; got {color!r}.")
    whole = positions_of(trajectory)
    axes = axis_numbers(dims, whole.shape[-1])
    numbers = particle_numbers(whole.shape[1], every, most)
    positions = np.asarray(whole[:, numbers], np.float64)
    clock = np.asarray(trajectory.times, np.float64)
    alive, ended = _states(trajectory, numbers)
    broken = interruptions(positions, _births(trajectory, numbers), periods)
    values = _values(trajectory, color, numbers, positions, broken)
    # Evenly chosen times, the first and the last among them.
    count = len(clock) if times is None else min(times, len(clock))
    rows = np.unique(np.linspace(0, len(clock) - 1, count).round().astype(int))
    breaks = np.concatenate([np.zeros((1, len(numbers)), int), np.cumsum(broken, axis=0)])[rows]
    return Shown(
        positions[rows][:, :, list(axes)],
        clock[rows],
        numbers,
        axes,
        breaks[1:] == breaks[:-1],
        alive[rows],
        ended[rows],
        values[rows],
        np.nanmedian(positions.reshape(-1, positions.shape[-1]), axis=0),
        whole.shape[1],
    )


def positions_of(trajectory: Trajectory) -> Float[np.ndarray, "times particles dim"]:
    """The positions; a clear error if there are none."""
    if not isinstance(trajectory, Trajectory):
        raise TypeError(
            f"`trajectory` must be what track_particles returned; got {type(trajectory).__name__}. Pass it whole."
        )
    if trajectory.positions is None:
        raise ValueError(
            "`trajectory` must hold positions to be drawn; this one holds reductions only. "
            "Track without `reduce`."
        )
    return trajectory.positions


def axis_numbers(dims: Dims, dim: int) -> tuple[int, ...]:
    """The two or three coordinates to draw, from numbers or letters such as "xz" (default: all)."""
    chosen: Sequence[int | str] = range(dim) if dims is None else list(dims)
    numbers = tuple(AXES.find(a.lower()) if isinstance(a, str) else int(a) for a in chosen)
    wrong = len(set(numbers)) != len(numbers) or any(not 0 <= n < dim for n in numbers)
    if wrong or len(numbers) not in (2, 3):
        raise ValueError(
            f"`dims` must name two or three different axes among {AXES[:dim]}; got {dims!r}. "
            'Example: `dims="xy"`.'
        )
    return numbers


def particle_numbers(count: int, every: int | None, most: int) -> Int[np.ndarray, " shown"]:
    """Which of `count` particles are drawn.

    Without `every` they are spread by the golden ratio. Equal steps could coincide with the rows of a lattice of seeds
    and show one row only.
    """
    if every is not None:
        if every < 1:
            raise ValueError(f"`every` must be at least 1; got {every}. Leave it out to draw an even choice.")
        return np.arange(0, count, every)
    if count <= most:
        return np.arange(count)
    return np.sort(np.argsort(np.mod(np.arange(count) * GOLDEN, 1.0), kind="stable")[:most])


def interruptions(
    positions: Float[np.ndarray, "times shown dim"],
    births: Bool[np.ndarray, "spans shown"],
    periods: Float[np.ndarray, " dim"] | None = None,
) -> Bool[np.ndarray, "spans shown"]:
    """Where a path is interrupted: at a new particle in the same slot, and across a period.

    With `periods` (infinite along axes without one) a step longer than half a period has crossed it. Without them, one
    longer than half of the whole extent and than five times the median step has.
    """
    way = np.abs(np.diff(positions, axis=0))
    broken = births | ~np.isfinite(way).all(axis=-1)
    for axis in range(positions.shape[-1]):
        along = way[..., axis]
        if periods is not None:
            broken = broken | (along > periods[axis] / 2)
            continue
        moves = along[~broken & (along > 0)]
        if moves.size:
            extent = np.nanmax(positions[..., axis]) - np.nanmin(positions[..., axis])
            broken = broken | ((along > extent / 2) & (along > 5 * np.median(moves)))
    return broken


def _births(trajectory: Trajectory, numbers: Int[np.ndarray, " shown"]) -> Bool[np.ndarray, "spans shown"]:
    """Whether a slot holds another particle than at the time before, by its generation or else by its age."""
    if trajectory.generation is not None:
        return np.diff(np.asarray(trajectory.generation)[:, numbers], axis=0) != 0
    if trajectory.ages is not None:
        return np.diff(np.abs(np.asarray(trajectory.ages)[:, numbers]), axis=0) < 0
    return np.zeros((len(trajectory.times) - 1, len(numbers)), bool)


def _states(
    trajectory: Trajectory, numbers: Int[np.ndarray, " shown"]
) -> tuple[Bool[np.ndarray, "times shown"], Bool[np.ndarray, "times shown"]]:
    """Which particles are alive, and which have ended: one that never was alive has ended at its release."""
    times = np.asarray(trajectory.times)[:, None]
    if trajectory.alive is None:
        return np.ones((len(times), len(numbers)), bool), np.zeros((len(times), len(numbers)), bool)
    alive = np.asarray(trajectory.alive)[:, numbers]
    sign = 1.0 if times[-1] >= times[0] else -1.0
    released = sign * times >= sign * np.asarray(trajectory.release_times)[numbers]
    begun = np.logical_or.accumulate(alive, axis=0) | (released & ~alive.any(axis=0))
    return alive, begun & ~alive


def _values(
    trajectory: Trajectory,
    color: str,
    numbers: Int[np.ndarray, " shown"],
    positions: Float[np.ndarray, "times shown dim"],
    broken: Bool[np.ndarray, "spans shown"],
) -> Float[np.ndarray, "times shown"]:
    """The value that the colour shows, for every time and particle."""
    if color == "age" and trajectory.ages is None:
        raise ValueError('`color` can be "age" only for a trajectory with ages; this one has none.')
    ages = None if trajectory.ages is None else np.asarray(trajectory.ages, np.float64)[:, numbers]
    if color == "age" and ages is not None:
        return ages
    times = np.asarray(trajectory.times, np.float64)[:, None]
    if color == "time":
        return np.broadcast_to(times, positions.shape[:2])
    if color != "speed":
        named = trajectory.ids.dtype.kind not in "iuf"  # names have no order: particles are numbered
        each: dict[str, Shaped[np.ndarray, " particles"]] = {
            "id": np.arange(trajectory.particles) if named else trajectory.ids,
            "outcome": trajectory.outcomes,
            "patch": trajectory.patches,
        }
        return np.broadcast_to(np.asarray(each[color], np.float64)[numbers], positions.shape[:2])
    if trajectory.velocities is not None:
        return np.linalg.norm(np.asarray(trajectory.velocities, np.float64)[:, numbers], axis=-1)
    # Without recorded velocities: of the ways before and after each time.
    spans = np.abs(np.diff(times, axis=0))
    if ages is not None:  # released or ended between two times: it was on its way for a part
        aged = np.diff(ages, axis=0)
        spans = np.where(aged > 0, aged, spans)
    speed = np.linalg.norm(np.diff(positions, axis=0), axis=-1) / spans
    # A particle at rest has ended or not begun: its last speed stands for it.
    counts = (~broken & (speed > 0)).astype(float)
    speed = np.where(counts > 0, speed, 0.0)
    pad = ((1, 1), (0, 0))
    sums, parts = np.pad(speed, pad), np.pad(counts, pad)
    return (sums[1:] + sums[:-1]) / np.maximum(parts[1:] + parts[:-1], 1)

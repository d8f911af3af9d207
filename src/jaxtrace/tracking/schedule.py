"""The schedule: every time a tracker computes at, planned on the host in double precision before anything runs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxworlds.arguments import demand_no_dates

from ..settings import DOUBLE
from .checks import checked_span

Times = Float[np.ndarray, " _"]

# Step edges are numbered with int32, and so are the random numbers of a step.
_MOST_STEPS = 2**31 - 2**20
# Steps from slice to slice of a series when no `dt` is given.
_STEPS_PER_SLICE = 20
# More distinct release times than this for each step are rounded to step edges instead of making steps of their own.
_RELEASES_PER_STEP = 4


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Step edges from the first time to the last, and which of them are recorded or release particles.

    Edge 0 is the beginning; step k leads from edge k to edge k + 1. Backward in time the edges fall.
    """

    edges: Float[np.ndarray, " edges"]
    times: Float[np.ndarray, " times"]
    """The recorded times, both ends of the span among them."""
    marks: Int[np.ndarray, " times"]
    """The edge of each recorded time."""
    releases: Int[np.ndarray, " particles"]
    """The edge at which each particle begins to move."""
    release_times: Float[np.ndarray, " particles"]
    """The time of that edge: as asked for, or the next edge where there are too many times to meet each."""
    dt: float
    """No step is longer."""
    reason: str
    """Where `dt` comes from."""
    slices_met: int
    """How many slice times of the field are step edges."""

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.edges) - 1

    @property
    def backward(self) -> bool:
        """Whether time falls."""
        return bool(self.edges[-1] < self.edges[0])

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last time."""
        return float(self.edges[0]), float(self.edges[-1])

    @property
    def steps_per_record(self) -> tuple[int, int]:
        """The fewest and the most steps between two recorded times."""
        counts = np.diff(self.marks)
        return int(counts.min()), int(counts.max())


def plan_schedule(
    time_span: Sequence[float],
    n_timesteps: int | None = None,
    dt: float | None = None,
    *,
    record_every: int | None = None,
    release_times: Any = None,
    particles: int = 1,
    slice_times: Times | None = None,
    land_on_slices: bool = True,
    whole_intervals: bool = False,
) -> Schedule:
    """Cut `time_span` into steps.

    `time_span` rules: the run begins and ends exactly there, and goes back in time when the end is the smaller one.
    `n_timesteps` times are recorded, evenly spaced, both ends included; `dt` is the largest step. Steps are shortened
    so that they end on recorded times, on `slice_times` and on release times. Without `n_timesteps` every step is
    recorded, or every `record_every`-th. Without `dt` a step is a twentieth of the spacing of the slices, or the
    recorded spacing where the field has none (or where `whole_intervals` says that the integrator divides it itself).

    >>> plan = plan_schedule((0.0, 4.0), n_timesteps=1500, dt=0.005)
    >>> plan.steps, len(plan.times), plan.times[-1].item()
    (1499, 1500, 4.0)
    """
    start, end = checked_span(time_span)
    if start == end:
        raise ValueError(
            f"`time_span` must have a length; it begins and ends at {start}. Give a later end, or an earlier one to go back."
        )
    span = abs(end - start)
    n_timesteps, dt = _checked_counts(n_timesteps, dt, record_every, span)
    inner = _strictly_inside(slice_times, start, end)
    dt, reason = _largest_step(dt, n_timesteps, span, slice_times, whole_intervals)
    _check_resolution(dt, start, end)
    if n_timesteps is None:
        every = record_every or 1
        steps = every * math.ceil(_steps(span, dt) / every)
        times = np.linspace(start, end, steps // every + 1)
        dt = min(dt, span / steps)
    else:
        times = np.linspace(start, end, n_timesteps)
    stops = _merge(times, inner if land_on_slices else inner[:0], start, end)
    wanted = _checked_releases(release_times, particles, start, end)
    distinct = _strictly_inside(np.unique(wanted), start, end)
    if len(distinct) <= _RELEASES_PER_STEP * max(_steps(span, dt), len(stops) - 1):
        stops = _merge(stops, distinct, start, end)
    edges = _edges(stops, dt)
    sign = 1.0 if end > start else -1.0
    # The next edge from the wanted time on; rounding must not put a release one step too late.
    slack = min(_rounding(start, end), 0.5 * np.abs(np.diff(edges)).min())
    releases = np.searchsorted(sign * edges, sign * wanted - slack).astype(np.int64)
    releases = np.minimum(releases, len(edges) - 1)
    return Schedule(
        edges=edges,
        times=times,
        marks=np.searchsorted(sign * edges, sign * times),
        releases=releases,
        release_times=edges[releases],
        dt=float(dt),
        reason=reason,
        slices_met=int((np.abs(edges[_nearest(edges, inner)] - inner) <= _rounding(start, end)).sum()),
    )


def _checked_counts(
    n_timesteps: int | None, dt: float | None, record_every: int | None, span: float
) -> tuple[int | None, float | None]:
    demand_no_dates(dt, "dt")
    if dt is not None and not (_is_number(dt) and np.isfinite(dt) and dt > 0):
        raise ValueError(
            f"`dt` must be positive, the largest step; got {dt!r}. To go back in time give `time_span` a smaller end."
        )
    if n_timesteps is None and dt is None:
        raise ValueError(
            "`n_timesteps` or `dt` must be given: how many times to record, or the largest step; got neither."
        )
    if n_timesteps is not None and not (_is_number(n_timesteps) and n_timesteps == int(n_timesteps) >= 2):
        raise ValueError(
            f"`n_timesteps` must be a whole number, at least 2, since both ends of `time_span` are recorded; got {n_timesteps!r}."
        )
    if record_every is not None and n_timesteps is not None:
        raise ValueError(
            f"`record_every` and `n_timesteps` both say what is recorded; got {record_every} and {n_timesteps}. Give one."
        )
    if record_every is not None and record_every < 1:
        raise ValueError(f"`record_every` must be at least 1; got {record_every}.")
    if dt is not None and dt > span * (1 + 1e-9):
        raise ValueError(
            f"`dt` must not exceed the length of `time_span`, {span:g}; got {dt:g}. Leave it out for one step per record."
        )
    return None if n_timesteps is None else int(n_timesteps), None if dt is None else float(dt)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def _largest_step(
    dt: float | None, n_timesteps: int | None, span: float, slice_times: Times | None, whole: bool
) -> tuple[float, str]:
    """The largest step and where it comes from."""
    if dt is not None:
        return dt, "as given"
    assert n_timesteps is not None
    recorded = span / (n_timesteps - 1)
    if whole:
        return recorded, "the recorded spacing, which the integrator divides by itself"
    if slice_times is None or len(slice_times) < 2:
        return recorded, "the recorded spacing"
    spacing = float(np.diff(slice_times).min())
    fine = spacing / _STEPS_PER_SLICE
    if recorded <= fine:
        return recorded, "the recorded spacing"
    return fine, f"a {_STEPS_PER_SLICE}th of the slices' smallest spacing, {spacing:g}"


def _check_resolution(dt: float, start: float, end: float) -> None:
    """Times are computed with in the default precision: a step must be visible there."""
    latest = max(abs(start), abs(end))
    unit = float(np.spacing(np.asarray(latest, jnp.result_type(float))))
    if dt < 4 * unit:
        raise ValueError(
            f"`dt` must be at least 4 times the resolution of {jnp.result_type(float)} at time {latest:g}, which is "
            f"{unit:.2g}; got {dt:g}. Subtract an origin from all times, or {DOUBLE}."
        )


def _steps(length: Any, dt: float) -> Any:
    """How many steps a stretch takes; rounding must not add one."""
    return np.maximum(np.ceil(np.asarray(length) / dt * (1 - 1e-9)), 1).astype(np.int64)


def _strictly_inside(times: Times | None, start: float, end: float) -> Times:
    """Those strictly inside the span."""
    if times is None:
        return np.zeros(0)
    times = np.asarray(times, np.float64)
    return times[(times > min(start, end)) & (times < max(start, end))]


def _merge(stops: Times, more: Times, start: float, end: float) -> Times:
    """Both in the order of travel; one of `more` that rounding alone parts from a stop is left out."""
    sign = 1.0 if end > start else -1.0
    more = np.unique(sign * more)
    order = sign * stops
    place = np.clip(np.searchsorted(order, more), 1, len(order) - 1)
    gap = np.minimum(np.abs(more - order[place - 1]), np.abs(order[place] - more))
    return sign * np.sort(np.concatenate([order, more[gap > _rounding(start, end)]]))


def _nearest(edges: Times, times: Times) -> Int[np.ndarray, " _"]:
    """The edge next to each time."""
    sign = 1.0 if edges[-1] > edges[0] else -1.0
    place = np.clip(np.searchsorted(sign * edges, sign * times), 1, len(edges) - 1)
    return np.where(np.abs(edges[place - 1] - times) < np.abs(edges[place] - times), place - 1, place)


def _rounding(start: float, end: float) -> float:
    """Times closer than this count as one: those of a field are often kept in single precision."""
    return 4 * float(np.finfo(np.float32).eps) * max(abs(start), abs(end))


def _edges(stops: Times, dt: float) -> Times:
    """Steps of equal length from stop to stop, none longer than `dt`."""
    lengths = np.diff(stops)
    counts = _steps(np.abs(lengths), dt)
    total = int(counts.sum())
    if total > _MOST_STEPS:
        raise ValueError(f"`dt` must leave at most {_MOST_STEPS:,} steps; {dt:g} makes {total:,}. Raise it.")
    first = np.cumsum(counts) - counts
    within = np.arange(total) - np.repeat(first, counts)
    begin, length, count = (np.repeat(values, counts) for values in (stops[:-1], lengths, counts))
    return np.append(begin + length * (within / count), stops[-1])


def _checked_releases(release_times: Any, particles: int, start: float, end: float) -> Times:
    if release_times is None:
        return np.full(particles, start)
    demand_no_dates(release_times, "release_times")
    wanted = np.asarray(release_times, np.float64)
    if wanted.ndim == 0:
        wanted = np.full(particles, float(wanted))
    if wanted.shape != (particles,):
        raise ValueError(
            f"`release_times` must hold one time for each of the {particles} particles; got shape {wanted.shape}."
        )
    low, high = min(start, end), max(start, end)
    slack = _rounding(start, end)
    wrong = np.flatnonzero(~((wanted >= low - slack) & (wanted <= high + slack)))
    if wrong.size:
        raise ValueError(
            f"`release_times` must lie in `time_span`, {low:g} to {high:g}; {wrong.size} of {particles} do not, the first "
            f"is particle {wrong[0]} at {wanted[wrong[0]]:g}. Widen the span, or leave those particles out."
        )
    return np.clip(wanted, low, high)

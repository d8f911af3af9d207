"""A series of which a few slices lie on the device at a time, in a ring, and the plan of when each must be there."""

import dataclasses

import equinox as eqx
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Int32, Shaped

from ..base import AbstractGrid, Interpolation, Scalar
from ..grid_series import AbstractSeries, Extrapolation, slices_at
from ..moments import Layout
from ..weights import Knots

# A step's end may overshoot the planned time by rounding: t + dt in the clock's precision, from t and dt rounded.
_SLACK = 4


class RingField(AbstractSeries):
    """The slices around one chunk's times: slice k lies in slot k mod `slots`. Made by `RingKeeper.field_at`.

    It gives the numbers of a `TimeSeriesField` with all slices, at the times of its chunk.
    """

    data: Shaped[Array, "slots rows dim"]
    clock: Knots
    """When each slice of the whole series holds."""
    grid: AbstractGrid
    within: Int32[Array, " 2"]
    """The lowest and the highest interval between two slices whose slices are all present."""
    scale: Scalar
    dim: int = eqx.field(static=True)
    time_interpolation: Interpolation = eqx.field(static=True)
    extrapolation: Extrapolation = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    def time_stencil(self, t: Scalar) -> tuple[list[Int[Array, ""]], list[Scalar]]:
        """Slots and weights of the slices that count at one time."""
        numbers, weights = slices_at(self.clock, t, self.time_interpolation, self.within)
        slots = self.data.shape[0]
        return [lax.rem(number, lax.full_like(number, slots)) for number in numbers], weights


@dataclasses.dataclass(frozen=True, eq=False)
class RingPlan:
    """How a run is cut so that each chunk finds its slices on the device."""

    chunk: int
    """Units in a chunk."""
    slots: int
    """Slices in the ring: as many as any chunk needs at once."""
    staged: int
    """Slices on their way at a time: those the next chunk needs in addition."""
    slices: int
    """Slices of the whole series."""
    slice_bytes: int
    interpolation: Interpolation
    lowest: Int[np.ndarray, " units"]
    """The lowest interval between slices that each unit touches."""
    highest: Int[np.ndarray, " units"]

    @property
    def nbytes(self) -> int:
        """Device memory of the ring and of the slices on their way."""
        return (self.slots + self.staged) * self.slice_bytes

    @property
    def backward(self) -> bool:
        """Whether the units go back in time."""
        return bool(self.lowest[-1] < self.lowest[0] or self.highest[-1] < self.highest[0])

    def intervals(self, step: int, steps: int) -> tuple[int, int]:
        """The lowest and the highest interval between slices that a chunk touches."""
        ends = [step, min(step + steps, len(self.lowest)) - 1]  # the others lie between
        return int(self.lowest[ends].min()), int(self.highest[ends].max())

    def window(self, step: int, steps: int) -> tuple[int, int]:
        """The first and the last slice that a chunk needs."""
        lowest, highest = self.intervals(step, steps)
        first, last = _slices_needed(np.array([lowest]), np.array([highest]), self.interpolation, self.slices)
        return int(first[0]), int(last[0])

    def __str__(self) -> str:
        return (
            f"chunks of {self.chunk} units; {self.slots} of {self.slices} slices on the device and {self.staged} on their "
            f"way: {self.nbytes / 1e6:,.1f} MB instead of {self.slices * self.slice_bytes / 1e6:,.1f} MB"
        )


def plan(
    times: Float[np.ndarray, " slices"],
    unit_times: Float[np.ndarray, " edges"],
    interpolation: Interpolation,
    slice_bytes: int,
    *,
    limit_bytes: int | None = None,
    slots: int | None = None,
    multiple: int = 1,
    longest: int = 2048,
) -> RingPlan:
    """Cut the units between `unit_times` (rising, or falling for a run back in time) into chunks.

    A chunk is about as long as the spacing of the slices, so that little must be read before the run can begin, and
    shorter where `limit_bytes` (ring and slices on their way) or `slots` demand it. It is a multiple of `multiple`
    and, where one is near, a divisor of the number of units, so that all chunks share one program.
    """
    edges = _checked_edges(unit_times).astype(times.dtype)
    lowest, highest = _intervals_touched(times, edges)
    first, last = _slices_needed(lowest, highest, interpolation, len(times))
    units, touched = len(lowest), int(highest.max() - lowest.min()) + 1
    target = max(1, min(longest, -(-units // touched)) // multiple) * multiple

    fitting: dict[int, RingPlan] = {}
    misfit = None
    for chunk in range(target, 0, -multiple):
        used, staged = _chunk_needs(first, last, chunk)
        held = used if slots is None else slots
        found = RingPlan(chunk, held, staged, len(times), slice_bytes, interpolation, lowest, highest)
        misfit = _misfit(found, used, limit_bytes)
        if misfit is None:
            fitting[chunk] = found
            if units % chunk == 0 or 2 * chunk < max(fitting):
                break
    if not fitting:
        raise ValueError(misfit)
    even = [chunk for chunk in fitting if units % chunk == 0 and 2 * chunk >= max(fitting)]
    return fitting[even[0] if even else max(fitting)]


def _checked_edges(unit_times: Float[np.ndarray, " edges"]) -> Float[np.ndarray, " edges"]:
    edges = np.asarray(unit_times, np.float64)
    steps = np.diff(edges) if edges.ndim == 1 else np.zeros(0)
    if steps.size == 0 or not np.isfinite(edges).all() or ((steps < 0).any() and (steps > 0).any()):
        raise ValueError(
            "`unit_times` must hold the beginning of each unit and the end of the last, finite, and all rising or all "
            f"falling; got shape {edges.shape}."
        )
    return edges


def _intervals_touched(
    times: Float[np.ndarray, " slices"], edges: Float[np.ndarray, " edges"]
) -> tuple[Int[np.ndarray, " units"], Int[np.ndarray, " units"]]:
    """The lowest and the highest interval between slices in which each unit has times, rounding included."""
    low, high = np.minimum(edges[:-1], edges[1:]), np.maximum(edges[:-1], edges[1:])
    slack = _SLACK * np.spacing(np.abs(edges).max())
    if edges[-1] < edges[0]:
        low = low - slack
    else:
        high = high + slack
    last = max(len(times) - 2, 0)

    def interval(t: Float[np.ndarray, " units"]) -> Int[np.ndarray, " units"]:
        return np.clip(np.searchsorted(times, t, side="right") - 1, 0, last)

    return interval(low), interval(high)


def _slices_needed(
    lowest: Int[np.ndarray, " units"],
    highest: Int[np.ndarray, " units"],
    interpolation: Interpolation,
    slices: int,
) -> tuple[Int[np.ndarray, " units"], Int[np.ndarray, " units"]]:
    """The first and the last slice that times in a range of intervals need."""
    beyond = 1 if interpolation == "cubic" else 0
    return np.maximum(lowest - beyond, 0), np.minimum(highest + 1 + beyond, slices - 1)


def _chunk_needs(
    first: Int[np.ndarray, " units"], last: Int[np.ndarray, " units"], chunk: int
) -> tuple[int, int]:
    """The most slices that a chunk of `chunk` units needs, and the most that it adds to those of the chunk before."""
    starts = np.arange(0, len(first), chunk)
    ends = np.minimum(starts + chunk, len(first)) - 1  # what the units between need lies between
    first, last = np.minimum(first[starts], first[ends]), np.maximum(last[starts], last[ends])
    used = last - first + 1
    kept = np.minimum(last[1:], last[:-1]) - np.maximum(first[1:], first[:-1]) + 1
    return int(used.max()), int(max(1, (used[1:] - kept).max(initial=0)))


def _misfit(plan: RingPlan, used: int, limit_bytes: int | None) -> str | None:
    """Why a ring is too small for chunks that need `used` slices, or too large, with the arithmetic; None where it fits."""
    reason = f"a chunk of {plan.chunk} unit{'s' if plan.chunk > 1 else ''} with {plan.interpolation} interpolation in time needs"
    if used > plan.slots:
        return (
            f"`resident` must be at least {used}: {reason} {used} slices at once; got {plan.slots}. "
            "Raise it, record at shorter intervals, or interpolate linearly in time."
        )
    if limit_bytes is None or plan.nbytes <= limit_bytes:
        return None
    return (
        f"the memory limit must hold the smallest ring: {reason} {plan.slots} slices in the ring and {plan.staged} on the way, "
        f"({plan.slots} + {plan.staged}) × {plan.slice_bytes:,} bytes = {plan.nbytes:,} bytes; got {limit_bytes:,}. Allow that "
        "much, store shorter numbers (`dtype='float16'`), record at shorter intervals, or interpolate linearly in time."
    )

"""Fields larger than memory: slices are read and sent to the device while it integrates with those it has."""

import copy
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import DTypeLike, Shaped

from ..base import AbstractGrid, Interpolation
from ..epoch import Epoch, as_epoch
from ..grid_series import Extrapolation, TimedSlices, check_layout
from ..moments import Layout
from ..sphere import Sphere
from ..time_series import TimeSeriesField, series_grid, series_times, time_rule
from ..weights import Knots, ascending
from .ring_field import RingField, RingPlan, plan
from .ring_keeper import RingKeeper
from .slices import AbstractSlices, SliceError, as_slices, canonical, checked_slice


class StreamedField(TimedSlices):
    """A velocity known at some `times` on a `grid` (or at bare `positions`), with only a few slices in memory.

    `source` is an array or memory map (times, rows, dim), a folder or list of `.npy` files with one slice each, a
    function of the slice's number, or an `AbstractSlices`. Interpolation in time, `extrapolation`, `dtype`, `layout`
    and `epoch` are those of `TimeSeriesField`, and so are the numbers. The ring on the device is as small as the run
    allows; `resident` fixes its slices, `memory_limit_gb` bounds it together with the slices on their way. On the
    host `read_ahead` slices wait for their turn, by default twice as many as one chunk takes in.

        field = StreamedField("slices/", times=seconds, grid=grid, memory_limit_gb=2.0)
        with field.open(unit_times) as keeper:
            run(step, carry, units, shared_at=keeper.shared_at, chunk=keeper.chunk)
    """

    def __init__(
        self,
        source: Any,
        times: Any,
        grid: AbstractGrid | None = None,
        positions: Any = None,
        *,
        interpolation: Interpolation | None = None,
        time_interpolation: Interpolation | None = None,
        extrapolation: Extrapolation = "clamp",
        dtype: DTypeLike | None = None,
        layout: Layout = "direct",
        resident: int | None = None,
        memory_limit_gb: float | None = None,
        read_ahead: int | None = None,
        sphere: Sphere | None = None,
        epoch: Epoch | Any = None,
    ) -> None:
        self.grid = series_grid(grid, positions, interpolation, sphere)
        self.epoch, values = series_times(times, epoch)
        if values is None:
            raise ValueError("`times` must hold the time of each slice; got None.")
        self.source: AbstractSlices = as_slices(source, len(values))
        self.clock = Knots(ascending("times", values, "Count them from the first: `times - times[0]`."))
        self.time_interpolation: Interpolation = time_rule(time_interpolation, extrapolation, len(values))
        self.extrapolation: Extrapolation = extrapolation
        check_layout(layout, self.grid)
        self.layout: Layout = layout
        known = self.source.dtype if dtype is None else dtype
        self.dtype = canonical(jnp.result_type(float) if known is None else known)
        for name, value in (("resident", resident), ("read_ahead", read_ahead)):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1 slice; got {value}. Leave it out.")
        self.resident, self.read_ahead = resident, read_ahead
        self.limit_bytes = None if memory_limit_gb is None else math.floor(memory_limit_gb * 1e9)
        land = getattr(self.grid, "land_rows", None)
        self._land = None if land is None else np.asarray(land)

    @property
    def dim(self) -> int:
        """Number of coordinates of a point."""
        return self.grid.dim

    @property
    def slice_bytes(self) -> int:
        """Memory of one slice on the device."""
        return self.grid.size * self.dim * self.dtype.itemsize

    def plan(
        self,
        unit_times: Any,
        memory_limit_bytes: int | None = None,
        *,
        multiple: int = 1,
        longest: int = 2048,
    ) -> RingPlan:
        """How a run over the units between `unit_times` would be cut; see `jaxtrace.fields.streams.ring_field.plan`."""
        slots = None if self.resident is None else min(self.resident, len(self.source))
        return plan(
            np.asarray(self.times),
            np.asarray(unit_times, np.float64),
            self.time_interpolation,
            self.slice_bytes,
            limit_bytes=self.limit_bytes if memory_limit_bytes is None else memory_limit_bytes,
            slots=slots,
            multiple=multiple,
            longest=longest,
        )

    def open(
        self,
        unit_times: Any,
        memory_limit_bytes: int | None = None,
        *,
        multiple: int = 1,
        longest: int = 2048,
        sharding: Any = None,
        into: Callable[[RingField], Any] | None = None,
    ) -> RingKeeper:
        """Begin reading for a run over the units between `unit_times`. Use it in a `with`, which ends the reading.

        `into` makes what the run shares from the field; `sharding` says where the ring lies when a mesh is used.
        """
        planned = self.plan(unit_times, memory_limit_bytes, multiple=multiple, longest=longest)
        return RingKeeper(planned, self.empty_ring(planned.slots), self.read, self.read_ahead, sharding, into)

    def empty_ring(self, slots: int) -> RingField:
        """The field of a chunk before any slice is in its slot."""
        return RingField(
            data=jnp.zeros((slots, self.grid.size, self.dim), self.dtype),
            clock=self.clock,
            grid=self.grid,
            within=jnp.zeros(2, jnp.int32),
            scale=jnp.ones((), jnp.result_type(float)),
            dim=self.dim,
            time_interpolation=self.time_interpolation,
            extrapolation=self.extrapolation,
            layout=self.layout,
        )

    def read(self, number: int) -> Shaped[np.ndarray, "rows dim"]:
        """One slice, checked, in the type of the device."""
        try:
            values = self.source.read(number)
            return checked_slice(values, self.grid, self.dtype, self._land)
        except Exception as error:
            of = f", {name}" if (name := self.source.name(number)) else ""
            when = float(self.times[number])
            why = str(error).rstrip(".")
            raise SliceError(f"slice {number} (time {when:g}{of}) cannot be used: {why}.") from error

    def load(self) -> TimeSeriesField:
        """The same field with all slices on the device."""
        return TimeSeriesField(
            np.stack([self.read(number) for number in range(len(self.source))]),
            np.asarray(self.times),
            grid=self.grid,
            time_interpolation=self.time_interpolation,
            extrapolation=self.extrapolation,
            layout=self.layout,
            epoch=self.epoch,
        )

    def with_epoch(self, epoch: Epoch | Any) -> "StreamedField":
        """The same field with another date of time 0; None for none."""
        other = copy.copy(self)
        other.epoch = as_epoch(epoch)
        return other

    def with_layout(self, layout: Layout) -> "StreamedField":
        """The same field whose moments are laid out in another way."""
        check_layout(layout, self.grid)
        other = copy.copy(self)
        other.layout = layout
        return other

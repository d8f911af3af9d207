"""Fields larger than memory: slices are read and sent to the device while it integrates with those it has."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Shaped

from jaxworlds.arguments import demand_no_dates

from ..base import AbstractGrid, Interpolation, check_choice
from ..epoch import Epoch, as_epoch, first_and_seconds, has_dates
from ..grid_series import Extrapolation, check_layout
from ..moments import Layout
from ..sphere import Sphere
from ..time_series import TimeSeriesField, grid_through
from ..weights import Knots, ascending
from .ring_field import RingField, RingPlan, plan
from .ring_keeper import RingKeeper
from .slices import AbstractSlices, SliceError, as_slices, canonical, checked_slice


class StreamedField:
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
        if (positions is None) == (grid is None):
            both = "both" if grid is not None else "neither"
            raise ValueError(f"`positions` or `grid` must say where the data lie, one of them; got {both}.")
        for name, value in (("interpolation", interpolation), ("sphere", sphere)):
            if grid is not None and value is not None:
                raise ValueError(f"`{name}` belongs to the grid; give it to the grid instead.")
        self.epoch: Epoch | None = as_epoch(epoch)
        if has_dates(times):
            self.epoch, times = first_and_seconds(times, self.epoch, "times")
        demand_no_dates(times, "times")  # spans of time are refused
        values = np.atleast_1d(np.asarray(times))
        self.source: AbstractSlices = as_slices(source, len(values))
        self.clock = Knots(ascending("times", values, "Count them from the first: `times - times[0]`."))
        self.grid = grid if grid is not None else grid_through(positions, interpolation or "linear", sphere)
        default: Interpolation = "cubic" if len(values) >= 4 else "linear"
        self.time_interpolation: Interpolation = time_interpolation or default
        self.extrapolation: Extrapolation = extrapolation
        self.layout: Layout = layout
        check_choice("time_interpolation", self.time_interpolation, ("nearest", "linear", "cubic"))
        check_choice("extrapolation", extrapolation, ("clamp", "outside"))
        check_layout(layout, self.grid)
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
    def sphere(self) -> Sphere | None:
        """The grid's: values on a grid with a sphere are in m/s."""
        return self.grid.sphere

    @property
    def times(self) -> Float[Array, " times"]:
        """When each slice holds."""
        return self.clock.coordinates

    @property
    def time_range(self) -> tuple[float, float]:
        """The first and the last time; a single slice holds for all times."""
        if len(self.source) == 1:
            return (-np.inf, np.inf)
        return (float(self.times[0]), float(self.times[-1]))

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
        empty = RingField(
            data=jnp.zeros((planned.slots, self.grid.size, self.dim), self.dtype),
            clock=self.clock,
            grid=self.grid,
            within=jnp.zeros(2, jnp.int32),
            scale=jnp.ones((), jnp.result_type(float)),
            dim=self.dim,
            time_interpolation=self.time_interpolation,
            extrapolation=self.extrapolation,
            layout=self.layout,
        )
        return RingKeeper(planned, empty, self.read, self.read_ahead, sharding, into)

    def read(self, number: int) -> Shaped[np.ndarray, "rows dim"]:
        """One slice, checked, in the type of the device."""
        try:
            values = self.source.read(number)
            return checked_slice(values, self.grid, self.dtype, self._land)
        except Exception as error:
            of = f", {name}" if (name := self.source.name(number)) else ""
            when = float(self.times[number])
            raise SliceError(f"slice {number} (time {when:g}{of}) cannot be used: {error}.") from error

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
        other = object.__new__(StreamedField)
        other.__dict__.update(self.__dict__, epoch=as_epoch(epoch))
        return other

    def with_layout(self, layout: Layout) -> "StreamedField":
        """The same field whose moments are laid out in another way."""
        check_layout(layout, self.grid)
        other = object.__new__(StreamedField)
        other.__dict__.update(self.__dict__, layout=layout)
        return other

"""Fields in time slices, all or a few of them on the device: samples, moments, time weights."""

import abc
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, PyTree, Shaped

from .base import (
    AbstractField,
    AbstractGrid,
    AbstractMoment,
    FieldAtTime,
    Flag,
    Interpolation,
    Sample,
    Scalar,
    Vector,
    check_choice,
    copy_with,
)
from .chart import MomentOfRates, on_this_turn
from .isolation import isolate
from .moments import LAYOUTS, BlendedMoment, Layout, PackedMoment, pad_columns, sum_slices, weighted_sum
from .sphere import Sphere
from .weights import Knots, row_weights

Extrapolation = Literal["clamp", "outside"]
"""Before the first and after the last time the end slice holds; with "outside" samples also report `inside = False`."""


class TimedSlices:
    """What every series of slices says of itself: when each slice holds, and on which sphere."""

    clock: Knots
    grid: AbstractGrid

    @property
    def times(self) -> Float[Array, " times"]:
        """When each slice holds."""
        return self.clock.coordinates

    @property
    def time_range(self) -> tuple[float, float]:
        """The first and the last time; a single slice holds for all times."""
        if self.clock.count == 1:
            return (-np.inf, np.inf)
        return (float(self.times[0]), float(self.times[-1]))

    @property
    def sphere(self) -> Sphere | None:
        """The grid's: values on a grid with a sphere are in m/s."""
        return self.grid.sphere


class AbstractSeries(TimedSlices, AbstractField):
    """A velocity known at some times on a grid."""

    data: eqx.AbstractVar[Shaped[Array, "slots rows dim"]]
    clock: eqx.AbstractVar[Knots]
    """When each slice holds."""
    grid: eqx.AbstractVar[AbstractGrid]
    time_interpolation: eqx.AbstractVar[Interpolation]
    extrapolation: eqx.AbstractVar[Extrapolation]
    layout: eqx.AbstractVar[Layout]
    scale: eqx.AbstractVar[Scalar]
    """At least the greatest component of the data; 16-bit layouts scale by it."""

    @abc.abstractmethod
    def time_stencil(self, t: Scalar) -> tuple[list[Int[Array, ""]], list[Scalar]]:
        """Places in `data` and weights of the slices that count at one time."""

    def with_layout(self, layout: Layout) -> "AbstractSeries":
        """The same series whose moments are laid out in another way."""
        check_layout(layout, self.grid)
        return copy_with(self, layout=layout)

    @property
    def positions(self) -> Float[Array, "rows dim"]:
        """Where each row of the data lies."""
        return self.grid.positions

    @property
    def in_metres(self) -> "AbstractSeries":
        """On a sphere the same series with samples in m/s east and north; else the series itself."""
        return self if self.sphere is None else copy_with(self, grid=on_sphere(self.grid, None))

    @property
    def middle_longitude(self) -> Scalar | None:
        """On a sphere that of the grid."""
        return None if self.sphere is None else self.grid.middle[0]

    def start(self, x: Vector) -> PyTree:
        return self.grid.start(on_this_turn(x, self.middle_longitude))

    def sample(self, x: Vector, t: Scalar, hint: PyTree) -> Sample:
        if self.sphere is not None:
            return MomentOfRates(FieldAtTime(self.in_metres, t), self.middle_longitude, self.sphere).sample(
                x, hint
            )

        def here(x: Vector, t: Scalar, hint: PyTree) -> Sample:
            stencil = self.grid.stencil(x, hint)
            slices, weights = self.time_stencil(t)
            velocity = sum_slices(self.data, slices, weights, stencil, x.dtype)
            return Sample(velocity, stencil.inside & self.knows(t), stencil.hint)

        return isolate(self.always, here, x, jnp.asarray(t, self.times.dtype), hint)

    def at(self, t: Scalar) -> AbstractMoment:
        """The field at one time, laid out as `layout` says; blended layouts are worth it for many particles at once."""
        t = jnp.asarray(t, self.times.dtype)
        if self.sphere is not None:
            return MomentOfRates(self.in_metres.at(t), self.middle_longitude, self.sphere)
        if self.layout == "direct":
            return FieldAtTime(self, t)
        slices, weights = self.time_stencil(t)
        known = self.knows(t)

        def lay_out(*given: Array) -> Array:
            blended = weighted_sum(self.data, given[: len(slices)], given[len(slices) :])
            if self.layout == "cells16":
                blended = (blended / self.scale).astype(jnp.float16)
            padded = pad_columns(blended)
            return padded if self.layout == "rows" else self.grid.pack(padded)

        values = isolate(self.always, lay_out, *slices, *weights)
        if self.layout == "rows":
            return BlendedMoment(values, self.grid, known, self.always)
        scale = self.scale if self.layout == "cells16" else jnp.ones_like(self.scale)
        return PackedMoment(values, scale, self.grid, known, self.always)

    def knows(self, t: Scalar) -> Flag:
        """Whether samples at this time count as inside."""
        if self.extrapolation == "clamp" or self.clock.count == 1:
            return self.always
        return (t >= self.times[0]) & (t <= self.times[-1])

    @property
    def always(self) -> Flag:
        """True, as a value the compiler cannot foresee; see `isolate`."""
        return self.times[0] > -jnp.inf


def on_sphere(grid: AbstractGrid, sphere: Sphere | None) -> AbstractGrid:
    """The same grid with longitudes and latitudes on another sphere; None for plain coordinates."""
    return copy_with(grid, sphere=sphere)


def slices_at(
    clock: Knots, t: Scalar, interpolation: Interpolation, within: Int32[Array, " 2"] | None = None
) -> tuple[list[Int[Array, ""]], list[Scalar]]:
    """Numbers and weights of the slices that count at one time.

    `within` names the lowest and the highest interval between slices that may be used; beyond them the curve of the
    nearest one is carried on.
    """
    if clock.count == 1:
        return [jnp.int32(0)], [jnp.ones((), clock.coordinates.dtype)]
    held = jnp.clip(t, clock.coordinates[0], clock.coordinates[-1]).astype(clock.coordinates.dtype)
    interval = clock.locate(held)
    if within is not None:
        interval = jnp.clip(interval, within[0], within[1])
    return row_weights(clock.place(held, interval), clock.count, interpolation)


def check_layout(layout: Layout, grid: AbstractGrid) -> None:
    """Refuse a layout that is unknown or that this grid cannot have."""
    check_choice("layout", layout, LAYOUTS)
    if layout.startswith("cells") and not grid.packable:
        raise ValueError(
            f"`layout` must be 'direct' or 'rows' for this grid, whose cells cannot be packed; got {layout!r}."
        )

"""A velocity known at some times on a grid: `TimeSeriesField`, interpolated in space and in time."""

import dataclasses
import functools
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, DTypeLike, Float, Int, Shaped

from jaxworlds.arguments import demand_no_dates

from .base import AbstractGrid, Interpolation, check_choice
from .epoch import Epoch, as_epoch, first_and_seconds, has_dates
from .grid_series import AbstractSeries, Extrapolation, check_layout, on_sphere, slices_at
from .lattice import find_lattice
from .moments import Layout
from .sphere import Sphere
from .weights import Knots, ascending

AnyArray = Shaped[Array, "..."] | Shaped[np.ndarray, "..."]

# What users of older versions assign to, and the attribute that is meant.
_ASSIGNABLE = {
    "data": "data",
    "_data_dev": "data",
    "times": "times",
    "_times_dev": "times",
    "positions": "positions",
    "_pos_dev": "positions",
}


class TimeSeriesField(AbstractSeries):
    """Velocities `data` (times, rows, dim) on a `grid`, or at bare `positions` (rows, dim).

    Positions that form a lattice, in any order, become a uniform or rectilinear grid; others are triangulated. Both
    reproduce linear fields exactly. In time, cubic interpolation is the default from four slices on, linear below;
    one slice is a steady field. Beyond the first and last time the end slice holds; with `extrapolation="outside"`
    samples there also report `inside = False`. Arrays are converted once and lie on the device; in half precision
    (`dtype="float16"`) only the storage is short, the arithmetic follows the particles' positions. Where positions are
    longitudes and latitudes in degrees and velocities are in m/s, say so with `sphere=Sphere()`.

    `times` may be dates (`datetime64`, `datetime` or texts): they become seconds from the first one. `epoch` is the date
    of time 0; trackers of a field with one take dates too, and trajectories, files and pictures show them.

        field = TimeSeriesField(data=velocities, times=seconds, positions=nodes)
        field(points, 0.5)                      # velocities at many points
        field.replace(data=other_velocities)    # the same grid with other values
    """

    data: Shaped[Array, "times rows dim"]
    clock: Knots
    grid: AbstractGrid
    dim: int = eqx.field(static=True)
    time_interpolation: Interpolation = eqx.field(static=True)
    extrapolation: Extrapolation = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)
    epoch: Epoch | None = eqx.field(static=True)
    """The date of time 0, where one is known; times are then seconds."""
    scale: Float[Array, ""]
    """The greatest component of the data, by which 16-bit layouts scale."""

    def __init__(
        self,
        data: AnyArray,
        times: AnyArray | list[Any] | tuple[Any, ...] | None = None,
        positions: AnyArray | None = None,
        *,
        grid: AbstractGrid | None = None,
        interpolation: Interpolation | None = None,
        time_interpolation: Interpolation | None = None,
        extrapolation: Extrapolation = "clamp",
        dtype: DTypeLike | None = None,
        layout: Layout = "direct",
        sphere: Sphere | None = None,
        epoch: Epoch | Any = None,
    ) -> None:
        if (positions is None) == (grid is None):
            both = "both" if grid is not None else "neither"
            raise ValueError(f"`positions` or `grid` must say where the data lie, one of them; got {both}.")
        for name, value in (("interpolation", interpolation), ("sphere", sphere)):
            if grid is not None and value is not None:
                raise ValueError(f"`{name}` belongs to the grid; give it to the grid instead.")
        if positions is not None:
            grid = grid_through(positions, interpolation or "linear", sphere)
        assert grid is not None
        self.grid = grid
        self.dim = grid.dim
        self.data = _rows(data, times is None, grid, dtype)
        slices = self.data.shape[0]
        self.epoch = as_epoch(epoch)
        if times is not None and has_dates(times):
            self.epoch, times = first_and_seconds(times, self.epoch, "times")
        self.clock = Knots(_checked_times(times, slices))
        default = "cubic" if slices >= 4 else "linear"
        self.time_interpolation = time_interpolation or default
        self.extrapolation = extrapolation
        check_choice("time_interpolation", self.time_interpolation, ("nearest", "linear", "cubic"))
        check_choice("extrapolation", extrapolation, ("clamp", "outside"))
        check_layout(layout, grid)
        self.layout = layout
        self.scale = _greatest(self.data)

    def with_layout(self, layout: Layout) -> "TimeSeriesField":
        """The same field whose moments are laid out in another way."""
        check_layout(layout, self.grid)
        return self._copy(layout=layout)

    def with_epoch(self, epoch: Epoch | Any) -> "TimeSeriesField":
        """The same field with another date of time 0; None for none."""
        return self._copy(epoch=as_epoch(epoch))

    def _copy(self, **changes: Any) -> "TimeSeriesField":
        """The same arrays with other settings."""
        changed = object.__new__(TimeSeriesField)
        for field in dataclasses.fields(self):
            value = changes[field.name] if field.name in changes else getattr(self, field.name)
            object.__setattr__(changed, field.name, value)
        return changed

    def time_stencil(self, t: Float[Array, ""]) -> tuple[list[Int[Array, ""]], list[Float[Array, ""]]]:
        """Numbers and weights of the slices that count at one time."""
        return slices_at(self.clock, t, self.time_interpolation)

    def replace(self, **changes: Any) -> "TimeSeriesField":
        """A field with some of the constructor's arguments changed, and the others as they are here."""
        known = {
            "data",
            "times",
            "positions",
            "grid",
            "interpolation",
            "time_interpolation",
            "extrapolation",
            "layout",
            "sphere",
            "epoch",
        }
        if wrong := set(changes) - known - {"dtype"}:
            raise TypeError(
                f"`replace` knows {', '.join(sorted(known))} and dtype; got {', '.join(sorted(wrong))}."
            )
        if set(changes) == {"data"}:  # also inside compiled code, where times and grid have no values
            data = _rows(changes["data"], False, self.grid, None)
            if data.shape[0] == self.data.shape[0]:
                return eqx.tree_at(lambda f: (f.data, f.scale), self, (data, _greatest(data)))
        kept: dict[str, Any] = {
            "data": self.data,
            "times": None if self.clock.count == 1 else self.times,
            "time_interpolation": self.time_interpolation,
            "extrapolation": self.extrapolation,
            "layout": self.layout,
            "epoch": self.epoch,
        }
        if "interpolation" in changes and not {"positions", "grid"} & set(changes):
            kept["positions"] = self.positions
            kept["sphere"] = self.sphere
        elif "sphere" in changes and not {"positions", "grid"} & set(changes):
            changes["grid"] = on_sphere(self.grid, changes.pop("sphere"))
        elif "positions" not in changes:
            kept["grid"] = self.grid
        return TimeSeriesField(**{**kept, **changes})

    @property
    def _data_dev(self) -> Shaped[Array, "times rows dim"]:
        return self.data

    @property
    def _times_dev(self) -> Float[Array, " times"]:
        return self.times

    @property
    def _pos_dev(self) -> Float[Array, "rows dim"]:
        return self.positions

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except dataclasses.FrozenInstanceError:
            if name not in _ASSIGNABLE:
                raise
            _accept_same(_ASSIGNABLE[name], getattr(self, name), value)


def grid_through(
    positions: AnyArray, interpolation: Interpolation, sphere: Sphere | None = None
) -> AbstractGrid:
    """The grid whose values sit at `positions` (rows, dim): a lattice where they form one, else a triangulation."""
    points = np.asarray(positions)
    if points.ndim != 2 or not np.all(np.isfinite(points)):
        raise ValueError(f"`positions` must be finite and have shape (rows, dim); got shape {points.shape}.")
    lattice = find_lattice(points, interpolation, sphere)
    if lattice is not None:
        return lattice
    if interpolation == "cubic":
        raise ValueError(
            "`interpolation` must be 'linear' or 'nearest' at positions that form no lattice; got 'cubic'."
        )
    from .unstructured import delaunay_grid

    return delaunay_grid(points, interpolation, sphere=sphere)


def _rows(
    data: AnyArray, steady: bool, grid: AbstractGrid, dtype: DTypeLike | None
) -> Shaped[Array, "t n dim"]:
    """The data as (times, rows, dim) on the device, checked against the grid."""
    traced = isinstance(data, Tracer)
    values = data if isinstance(data, Array) else np.asarray(data)
    counts = getattr(grid, "counts", None)
    if steady and (values.ndim == 2 or values.shape[:-1] == counts):
        values = values[None]
    if counts is not None and values.shape[1:-1] == counts:
        values = values.reshape(values.shape[0], grid.size, -1)
    if values.ndim != 3 or values.shape[1:] != (grid.size, grid.dim):
        raise ValueError(
            f"`data` must have shape (times, {grid.size}, {grid.dim}) for this grid; got {tuple(data.shape)}."
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(np.float32)
    # Values on land are never read with a weight; they must not turn a sum into NaN either.
    finite = None if traced else np.asarray(jnp.isfinite(values).all(axis=(0, 2)))
    if finite is not None and not finite.all():
        land = getattr(grid, "land_rows", None)
        wrong = np.flatnonzero(~finite if land is None else ~finite & ~np.asarray(land))
        if wrong.size:
            raise ValueError(
                f"`data` must be finite; {wrong.size} of {grid.size} rows are not, the first is row {wrong[0]}. "
                "Mark land with the grid's `mask`."
            )
        values = jnp.where(jnp.isfinite(values), values, 0)
    with np.errstate(over="ignore"):  # told below
        stored = jnp.asarray(values, dtype)
    if not traced and stored.dtype.itemsize < values.dtype.itemsize and not bool(jnp.isfinite(stored).all()):
        raise ValueError(
            f"`data` must be finite in {stored.dtype}, whose greatest number is {float(jnp.finfo(stored.dtype).max):g}; got up "
            f"to {float(np.abs(np.asarray(values, np.float64)).max()):g}. Take other units, or a wider `dtype`."
        )
    return stored


def _greatest(data: Shaped[Array, "times rows dim"]) -> Float[Array, ""]:
    """The power of two next above the greatest component: dividing by it changes no digit. Not differentiated."""
    greatest = jnp.max(jnp.abs(jax.lax.stop_gradient(data))).astype(jnp.result_type(float))
    return jnp.ldexp(jnp.ones_like(greatest), jnp.frexp(greatest)[1])


def _checked_times(times: Any, slices: int) -> Float[np.ndarray, " times"]:
    if times is None:
        if slices != 1:
            raise ValueError(f"`times` must hold the time of each of the {slices} slices; got None.")
        return np.zeros(1, np.float32)
    demand_no_dates(times, "times")
    values = np.atleast_1d(np.asarray(times))
    if values.shape != (slices,):
        raise ValueError(
            f"`times` must hold the time of each of the {slices} slices; got shape {values.shape}."
        )
    return ascending("times", values, "Count them from the first: `times - times[0]`.")


def _accept_same(name: str, own: Array, value: Any) -> None:
    """Let an assignment of equal values pass, and refuse any other."""
    given = np.asarray(value) if not isinstance(value, Array) else value
    if given is not own and not (given.shape == own.shape and _equal(name, own, given)):
        raise AttributeError(
            f"A field is immutable, and `{name}` holds other values than those assigned. "
            f"Make a new one: `field = field.replace({name}=...)`."
        )
    _say_unnecessary()


def _equal(name: str, own: Array, given: Array | np.ndarray) -> bool:
    mine, theirs = np.asarray(own), np.asarray(jnp.asarray(given, own.dtype))
    if name != "positions":
        return np.array_equal(mine, theirs)
    # A recognised lattice keeps its axes, not every node: coordinates agree to rounding.
    return bool(np.all(np.abs(mine - theirs) <= 1e-5 * max(float(np.ptp(mine)), 1e-30)))


@functools.cache
def _say_unnecessary() -> None:
    warnings.warn(
        "Assigning to a field's arrays is unnecessary: they lie on the device since the field was made. "
        "The line can go.",
        UserWarning,
        stacklevel=4,
    )

"""A velocity known at some times on a grid: `TimeSeriesField`, interpolated in space and in time."""

import dataclasses
import functools
import inspect
import operator
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, DTypeLike, Float, Int, Shaped

from jaxworlds.arguments import demand_no_dates

from .base import AbstractGrid, Interpolation, Scalar, check_choice, copy_with
from .epoch import Epoch, as_epoch, first_and_seconds, has_dates
from .grid_series import AbstractSeries, Extrapolation, check_layout, on_sphere, slices_at
from .lattice import find_lattice
from .moments import Layout
from .sphere import Sphere
from .weights import Knots, ascending

AnyArray = Shaped[Array, "..."] | Shaped[np.ndarray, "..."]

# Names of attributes in older versions.
_OLD_NAMES = {"_data_dev": "data", "_times_dev": "times", "_pos_dev": "positions"}


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
    scale: Scalar
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
        self.grid = grid = series_grid(grid, positions, interpolation, sphere)
        self.dim = grid.dim
        self.data = _rows(data, times is None, grid, dtype)
        slices = self.data.shape[0]
        self.epoch, values = series_times(times, epoch)
        self.clock = Knots(_checked_times(values, slices))
        self.time_interpolation = time_rule(time_interpolation, extrapolation, slices)
        self.extrapolation = extrapolation
        check_layout(layout, grid)
        self.layout = layout
        self.scale = _greatest(self.data)

    def with_epoch(self, epoch: Epoch | Any) -> "TimeSeriesField":
        """The same field with another date of time 0; None for none."""
        return copy_with(self, epoch=as_epoch(epoch))

    def time_stencil(self, t: Scalar) -> tuple[list[Int[Array, ""]], list[Scalar]]:
        """Numbers and weights of the slices that count at one time."""
        return slices_at(self.clock, t, self.time_interpolation)

    def replace(self, **changes: Any) -> "TimeSeriesField":
        """A field with some of the constructor's arguments changed, and the others as they are here."""
        known = inspect.signature(TimeSeriesField).parameters.keys() - {"dtype"}
        if wrong := changes.keys() - known - {"dtype"}:
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

    _data_dev = property(operator.attrgetter("data"))
    _times_dev = property(operator.attrgetter("times"))
    _pos_dev = property(operator.attrgetter("positions"))

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except dataclasses.FrozenInstanceError:
            name = _OLD_NAMES.get(name, name)
            if name not in _OLD_NAMES.values():
                raise
            _accept_same(name, getattr(self, name), value)


def series_grid(
    grid: AbstractGrid | None,
    positions: AnyArray | None,
    interpolation: Interpolation | None,
    sphere: Sphere | None,
) -> AbstractGrid:
    """The grid of a series: the one that was given, or the one through the positions that were."""
    if (positions is None) == (grid is None):
        both = "both" if grid is not None else "neither"
        raise ValueError(f"`positions` or `grid` must say where the data lie, one of them; got {both}.")
    for name, value in (("interpolation", interpolation), ("sphere", sphere)):
        if grid is not None and value is not None:
            raise ValueError(f"`{name}` belongs to the grid; give it to the grid instead.")
    return grid or grid_through(np.asarray(positions), interpolation or "linear", sphere)


def series_times(times: Any, epoch: Any) -> tuple[Epoch | None, np.ndarray | None]:
    """The date of time 0, and times as numbers: seconds from that date where they were dates themselves."""
    known = as_epoch(epoch)
    if times is None:
        return known, None
    if has_dates(times):
        known, times = first_and_seconds(times, known, "times")
    demand_no_dates(times, "times")  # spans of time are refused
    return known, np.atleast_1d(np.asarray(times))


def time_rule(given: Interpolation | None, extrapolation: Extrapolation, slices: int) -> Interpolation:
    """How to interpolate in time; unknown words are refused."""
    chosen = given or ("cubic" if slices >= 4 else "linear")
    check_choice("time_interpolation", chosen, ("nearest", "linear", "cubic"))
    check_choice("extrapolation", extrapolation, ("clamp", "outside"))
    return chosen


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


def _greatest(data: Shaped[Array, "times rows dim"]) -> Scalar:
    """The power of two next above the greatest component: dividing by it changes no digit. Not differentiated."""
    greatest = jnp.max(jnp.abs(jax.lax.stop_gradient(data))).astype(jnp.result_type(float))
    return jnp.ldexp(jnp.ones_like(greatest), jnp.frexp(greatest)[1])


def _checked_times(values: np.ndarray | None, slices: int) -> Float[np.ndarray, " times"]:
    if values is None and slices == 1:
        return np.zeros(1, np.float32)
    if values is None or values.shape != (slices,):
        got = "None" if values is None else f"shape {values.shape}"
        raise ValueError(f"`times` must hold the time of each of the {slices} slices; got {got}.")
    return ascending("times", values, "Count them from the first: `times - times[0]`.")


def _accept_same(name: str, own: Array, value: Any) -> None:
    """Let an assignment of equal values pass, and refuse any other."""
    given = np.asarray(value) if not isinstance(value, Array) else value
    same = given is own
    if not same and given.shape == own.shape:
        mine, theirs = np.asarray(own), np.asarray(jnp.asarray(given, own.dtype))
        # A recognised lattice keeps its axes, not every node: coordinates agree to rounding.
        slack = 1e-5 * max(float(np.ptp(mine)), 1e-30) if name == "positions" else 0.0
        same = bool(np.all(np.abs(mine - theirs) <= slack))
    if not same:
        raise AttributeError(
            f"A field is immutable, and `{name}` holds other values than those assigned. "
            f"Make a new one: `field = field.replace({name}=...)`."
        )
    _say_unnecessary()


@functools.cache
def _say_unnecessary() -> None:
    warnings.warn(
        "Assigning to a field's arrays is unnecessary: they lie on the device since the field was made. "
        "The line can go.",
        UserWarning,
        stacklevel=4,
    )

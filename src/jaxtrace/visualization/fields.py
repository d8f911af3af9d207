"""The speed of a field on a raster of points, as numbers and as a picture."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..boundaries.box import AXES, Bounds, box_corners
from ..fields.base import AbstractField
from ..fields.epoch import epoch_of, in_seconds
from .canvas import axes_for, finish, label_axes, scale_place
from .colors import Look
from .shown import Dims, axis_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTSIDE = "#d0d0d0"
"""Colour of places where a field has no value."""


def field_bounds(field: AbstractField) -> Float[np.ndarray, "2 dim"] | None:
    """The box around a field's grid; None for a field without one."""
    grid = getattr(field, "grid", None)
    return None if grid is None else np.asarray(grid.bounds, np.float64)


def speed_raster(
    field: AbstractField,
    times: Sequence[float] | Float[np.ndarray, " times"],
    bounds: Float[np.ndarray, "2 axes"],
    dims: tuple[int, ...] = (0, 1),
    through: Float[np.ndarray, " dim"] | None = None,
    width: int = 160,
) -> Float[np.ndarray, "times height width"]:
    """The speed at the centres of the pixels of a raster at some times, the lowest row first; NaN outside the field.

    `bounds` are those of the two axes `dims`; along the others the raster lies at `through`.
    """
    extent = np.maximum(bounds[1] - bounds[0], 1e-30)
    counts = (width, int(np.clip(round(width * extent[1] / extent[0]), 2, 4 * width)))
    axes = [b + (np.arange(n) + 0.5) * e / n for b, e, n in zip(bounds[0], extent, counts, strict=True)]
    where = _points(np.meshgrid(*axes), dims, np.zeros(field.dim) if through is None else through)
    flat = where.reshape(-1, field.dim)
    rows = [np.linalg.norm(np.asarray(field(flat, float(t)), np.float64), axis=-1) for t in times]
    return np.stack(rows).reshape(len(rows), *where.shape[:-1])


def _points(
    plane: Sequence[Float[np.ndarray, "height width"]],
    axes: tuple[int, ...],
    through: Float[np.ndarray, " dim"],
) -> Float[Array, "height width dim"]:
    """Points in space from their coordinates in a plane of two axes; along the others they lie at `through`."""
    points = np.broadcast_to(through, (*plane[0].shape, len(through))).astype(np.float64)
    points[..., axes[0]], points[..., axes[1]] = plane
    return jnp.asarray(points, float)


def plot_speed(
    field: AbstractField,
    path: str | Path | None = None,
    *,
    time: Any = 0.0,
    bounds: Bounds | None = None,
    dims: Dims = None,
    through: Sequence[float] | None = None,
    length_unit: str = "",
    time_unit: str = "",
    ax: Any = None,
) -> "Figure":
    """Draw the speed of a field at a time or date over two of its axes, with arrows for the direction.

    `bounds` (all axes) may be left out for a field on a grid. In three dimensions the picture is a cut through the
    middle of the box, or through the point `through`.
    """
    epoch = epoch_of(field)
    time = _time_within(field, time)
    box = field_bounds(field) if bounds is None else box_corners(bounds)
    if box is None:
        raise ValueError("`bounds` must say what part to draw of a field that has no grid; got None.")
    axes = axis_numbers("xy" if dims is None and field.dim == 3 else dims, field.dim)
    if len(axes) != 2:
        raise ValueError(f"`dims` must name two axes; got {dims!r}.")
    point = box.mean(axis=0) if through is None else np.asarray(through, np.float64)
    seen = box[:, list(axes)]
    speed = np.ma.masked_invalid(speed_raster(field, [time], seen, axes, point)[0])
    figure, ax = axes_for(seen, ax)
    import matplotlib

    style = {"cmap": matplotlib.colormaps["viridis"].with_extremes(bad=OUTSIDE), "vmin": 0}
    image = ax.imshow(speed, origin="lower", extent=seen.T.ravel(), **style)
    _arrows(ax, field, time, seen, axes, point)
    label, _ = Look("speed", length_unit, time_unit, epoch=epoch).scale(0.0, 1.0)
    figure.colorbar(image, label=label, **scale_place(figure, ax))
    label_axes(ax, axes, length_unit)
    cut = [f"{AXES[a]} = {point[a]:.4g}" for a in range(field.dim) if a not in axes]
    when = f"t = {time:.4g} {time_unit}".strip() if epoch is None else epoch.text(time)
    ax.set_title(", ".join([when, *cut]), fontsize=10, loc="left")
    return finish(figure, path)


def _time_within(field: AbstractField, given: Any) -> float:
    """A time or date as a number. NaN and infinity are refused; outside the field the first or last slice is drawn."""
    epoch = epoch_of(field)
    time = float(in_seconds(given, epoch, "time"))
    low, high = field.time_range
    if not np.isfinite(time):
        raise ValueError(f"`time` must be finite; got {time}.")
    if low <= time <= high or getattr(field, "extrapolation", "clamp") == "outside":
        return time
    ends = [f"{one:g}" for one in (time, low, high)] if epoch is None else epoch.texts([time, low, high])
    warnings.warn(
        f"`time` must lie within the times of the field, {ends[1]} to {ends[2]}; got {ends[0]}. The "
        f"{'first' if time < low else 'last'} slice is drawn.",
        stacklevel=3,
    )
    return time


def _arrows(
    ax: Any,
    field: AbstractField,
    time: float,
    seen: Float[np.ndarray, "2 axes"],
    axes: tuple[int, ...],
    point: Float[np.ndarray, " dim"],
) -> None:
    """Some twenty arrows across, all of the same length because the colour shows the speed."""
    step = (seen[1, 0] - seen[0, 0]) / 24
    across, up = np.meshgrid(*(np.arange(low + step / 2, high, step) for low, high in seen.T))
    points = _points((across, up), axes, point)
    velocity = np.asarray(field(points.reshape(-1, field.dim), time), np.float64)
    flow = velocity.reshape(points.shape)[..., list(axes)]
    size = np.linalg.norm(flow, axis=-1, keepdims=True)
    unit = np.divide(flow, size, out=np.full_like(flow, np.nan), where=size > 0)
    # White with a dark rim: seen on both ends of the scale.
    style = {"color": "white", "edgecolor": "#222222", "linewidth": 0.35, "alpha": 0.9}
    ax.quiver(across, up, unit[..., 0], unit[..., 1], scale=36, width=0.0026, pivot="mid", **style)

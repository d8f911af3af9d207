"""Fields behind particles: the speed on a raster of points, as numbers and as a picture."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..boundaries.box import AXES, Bounds, box_corners
from ..fields.base import AbstractField
from ..fields.epoch import epoch_of, in_seconds
from .canvas import axes_for, finish, label_axes, scale_place
from .colors import scale_label
from .shown import Dims, axis_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTSIDE = "#d0d0d0"
"""Where a field has no value."""


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
    """The speed in the middles of a raster's pixels at some times, the first row lowest; NaN outside the field.

    `bounds` are those of the two axes `dims`; along the others the raster lies at `through`.
    """
    extent = np.maximum(bounds[1] - bounds[0], 1e-30)
    counts = (width, int(np.clip(round(width * extent[1] / extent[0]), 2, 4 * width)))
    axes = [b + (np.arange(n) + 0.5) * e / n for b, e, n in zip(bounds[0], extent, counts, strict=True)]
    across, up = np.meshgrid(*axes)
    points = np.zeros((*across.shape, field.dim))
    points[:] = 0.0 if through is None else through
    points[..., dims[0]], points[..., dims[1]] = across, up
    where = jnp.asarray(points.reshape(-1, field.dim), float)
    rows = [np.linalg.norm(np.asarray(field(where, float(t)), np.float64), axis=-1) for t in times]
    return np.stack(rows).reshape(len(rows), *across.shape)


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
    """The speed of a field at one time, or a date, over two of its axes, with arrows for the direction.

    `bounds` (all axes) may be left out for a field on a grid. In three dimensions the picture is a cut through the
    middle of the box, or through the point `through`.
    """
    epoch = epoch_of(field)
    time = float(in_seconds(time, epoch, "time"))
    _tell_time(field, time)
    box = field_bounds(field) if bounds is None else box_corners(bounds)
    if box is None:
        raise ValueError("`bounds` must say what part to draw of a field that has no grid; got None.")
    axes = axis_numbers("xy" if dims is None and field.dim == 3 else dims, field.dim)
    if len(axes) != 2:
        raise ValueError(f"`dims` must name two axes; got {dims!r}.")
    point = box.mean(axis=0) if through is None else np.asarray(through, np.float64)
    seen = box[:, list(axes)]
    speed = speed_raster(field, [time], seen, axes, point)[0]
    figure, ax = axes_for(seen, ax)
    import matplotlib

    colormap = matplotlib.colormaps["viridis"].with_extremes(bad=OUTSIDE)
    shown = np.ma.masked_invalid(speed)
    image = ax.imshow(shown, origin="lower", extent=seen.T.ravel(), cmap=colormap, vmin=0)
    _arrows(ax, field, time, seen, axes, point)
    label = scale_label("speed", length_unit, time_unit or ("" if epoch is None else "s"))
    figure.colorbar(image, label=label, **scale_place(figure, ax))
    label_axes(ax, axes, length_unit)
    cut = [f"{AXES[a]} = {point[a]:.4g}" for a in range(field.dim) if a not in axes]
    when = f"t = {time:.4g} {time_unit}".strip() if epoch is None else epoch.text(time)
    ax.set_title(", ".join([when, *cut]), fontsize=10, loc="left")
    return finish(figure, path)


def _tell_time(field: AbstractField, time: float) -> None:
    """Refuse a time that is none; warn of one that the field does not know, where another slice is drawn."""
    low, high = field.time_range
    if not np.isfinite(time):
        raise ValueError(f"`time` must be finite; got {time}.")
    if low <= time <= high or getattr(field, "extrapolation", "clamp") == "outside":
        return
    epoch = epoch_of(field)
    ends = [f"{one:g}" for one in (time, low, high)] if epoch is None else epoch.texts([time, low, high])
    warnings.warn(
        f"`time` must lie within the times of the field, {ends[1]} to {ends[2]}; got {ends[0]}. The "
        f"{'first' if time < low else 'last'} slice is drawn.",
        stacklevel=3,
    )


def _arrows(
    ax: Any,
    field: AbstractField,
    time: float,
    seen: Float[np.ndarray, "2 axes"],
    axes: tuple[int, ...],
    point: Float[np.ndarray, " dim"],
) -> None:
    """Some twenty arrows across, of equal length: the colour already tells the speed."""
    step = (seen[1, 0] - seen[0, 0]) / 24
    across, up = np.meshgrid(*(np.arange(low + step / 2, high, step) for low, high in seen.T))
    points = np.zeros((*across.shape, field.dim))
    points[:] = point
    points[..., axes[0]], points[..., axes[1]] = across, up
    velocity = np.asarray(field(jnp.asarray(points.reshape(-1, field.dim), float), time), np.float64)
    flow = velocity.reshape(points.shape)[..., list(axes)]
    size = np.linalg.norm(flow, axis=-1, keepdims=True)
    unit = np.divide(flow, size, out=np.full_like(flow, np.nan), where=size > 0)
    # White with a dark rim: seen on both ends of the scale.
    style = {"color": "white", "edgecolor": "#222222", "linewidth": 0.35, "alpha": 0.9}
    ax.quiver(across, up, unit[..., 0], unit[..., 1], scale=36, width=0.0026, pivot="mid", **style)

"""Parts of a figure of particles: its background, paths, dots, crosses, colour scale and legend."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..boundaries.base import AbstractBoundary
from ..fields.base import AbstractField
from ..tracking.trajectory import Trajectory
from .canvas import axes_for, draw_outlines, frame, free_style, label_axes, scale_place
from .colors import ENDED, KIND_COLORS, KINDS, Look, kind_numbers, limits, scale_colors, scale_numbers
from .fields import field_bounds, speed_raster
from .outlines import outlines
from .shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_background(
    shown: Shown,
    look: Look,
    field: AbstractField | None,
    boundary: AbstractBoundary | None,
    time: float,
    ax: Any = None,
) -> "tuple[Figure, Any]":
    """A figure with the speed of the field in grey and the lines of the boundary."""
    lines = outlines(boundary, shown.dims)
    extent = whole_extent(shown, field, boundary)
    figure, ax = axes_for(extent, ax)
    frame(ax, extent)
    if field is not None:  # in light grey, so that coloured paths stand out; white outside it
        speed = speed_raster(field, [time], extent, shown.dims, shown.middle)[0]
        top = 2.5 * (float(np.nanmax(speed, initial=0.0)) or 1.0)
        style = {"cmap": "Greys", "vmin": 0, "vmax": top, "interpolation": "bilinear", "zorder": 0}
        ax.imshow(np.ma.masked_invalid(speed), origin="lower", extent=extent.T.ravel(), **style)
    draw_outlines(ax, lines)
    label_axes(ax, shown.dims, look.length_unit)
    return figure, ax


def whole_extent(
    shown: Shown, field: AbstractField | None, boundary: AbstractBoundary | None
) -> Float[np.ndarray, "2 axes"]:
    """The corners of a box around the particles, the boundary and the field's grid."""
    known = [shown.extent, *(line.points for line in outlines(boundary, shown.dims))]
    if field is not None:
        if len(shown.dims) != 2:
            raise ValueError('`field` can be shown behind two axes only. Choose them, such as `dims="xy"`.')
        if field.dim != len(shown.middle):
            raise ValueError(
                f"`field` must have the {len(shown.middle)} dimensions of the trajectory; got {field.dim}. Leave it out, or "
                "give the field that moved the particles."
            )
        box = field_bounds(field)
        known += [] if box is None else [box[:, list(shown.dims)]]
    points = np.concatenate(known)
    return np.stack([points.min(axis=0), points.max(axis=0)])


def draw_paths(ax: Any, shown: Shown, look: Look) -> None:
    """All pieces of all paths as one collection, each with its colour."""
    ends = np.stack([shown.positions[:-1], shown.positions[1:]], axis=2)
    drawn = shown.joined & (np.abs(ends[:, :, 1] - ends[:, :, 0]).max(axis=-1) > 0)
    values = (shown.values[:-1] + shown.values[1:]) / 2
    # Particle by particle and not time by time, so that a path lies over another as a whole.
    pieces, level = ends.swapaxes(0, 1)[drawn.T], values.T[drawn.T]
    count = len(shown.numbers)
    style = {
        "linewidths": 1.3 if count <= 60 else 0.9 if count <= 300 else 0.6,
        "alpha": 0.95 if count <= 60 else 0.8,
        "capstyle": "butt",
        "zorder": 2,
        "colors": colors_of(level, shown, look),
        **free_style(len(shown.dims)),
    }
    if len(shown.dims) == 3:
        from mpl_toolkits.mplot3d.art3d import Line3DCollection

        ax.add_collection3d(Line3DCollection(list(pieces), **style))
    else:
        from matplotlib.collections import LineCollection

        ax.add_collection(LineCollection(list(pieces), **style), autolim=False)


def draw_particles(ax: Any, shown: Shown, look: Look, row: int, plain: bool = False) -> list[Any]:
    """A dot for every particle that is alive at a time, a cross for every one that has ended by then.

    `plain` dots are small and dark, for the heads of coloured paths. Returns what was drawn, so that it can be removed.
    """
    free = free_style(len(shown.dims)) | ({"depthshade": False} if len(shown.dims) == 3 else {})
    drawn = []
    alive, ended = shown.alive[row], shown.ended[row]
    if alive.any():
        count = int(alive.sum())
        size = (12 if count <= 60 else 4) if plain else float(np.clip(12_000 / count, 2, 24))
        color = "#222222" if plain else colors_of(shown.values[row, alive], shown, look)
        style = {"s": size, "c": color, "linewidths": 0, "zorder": 3}
        drawn.append(ax.scatter(*shown.positions[row, alive].T, **style, **free))
    if ended.any():
        size = float(np.clip(12_000 / int(ended.sum()), 8, 28))
        color = colors_of(shown.values[row, ended], shown, look) if look.color in KINDS else ENDED
        style = {"s": size, "c": color, "marker": "x", "linewidths": 0.9, "zorder": 4}
        drawn.append(ax.scatter(*shown.positions[row, ended].T, **style, **free))
    return drawn


def colors_of(values: Float[np.ndarray, " n"], shown: Shown, look: Look) -> Any:
    """Colours of values: on the scale, or one for each kind."""
    if look.color in KINDS:
        return list(np.array(KIND_COLORS)[kind_numbers(values.astype(int))])
    scale = scale_colors() / 255.0
    return scale[scale_numbers(values, limits(look.color, shown.values[shown.alive]), len(scale))]


def explain(figure: "Figure", ax: Any, trajectory: Trajectory, shown: Shown, look: Look, when: str) -> None:
    """Draw the heading, and the colour scale or a legend with the number of particles of each kind."""
    from matplotlib.lines import Line2D

    heading(ax, shown, look, when)
    handles = []
    if look.color in KINDS:
        for number, name, count in kinds(trajectory, look.color):
            color = KIND_COLORS[kind_numbers(number)]
            handles.append(Line2D([], [], color=color, linewidth=2.5, label=f"{name}: {count:,}"))
    else:
        _scale(figure, ax, shown, look)
        if shown.ended[-1].any():
            style = {"color": ENDED, "marker": "x", "linestyle": "none", "markersize": 5}
            handles.append(Line2D([], [], label="ended", **style))
    if handles:
        ax.legend(handles=handles, fontsize=8, **_legend_place(figure, ax, len(handles)))


def _legend_place(figure: "Figure", ax: Any, count: int) -> dict[str, Any]:
    """The place of the legend: under the axes, where it hides nothing; in three dimensions in a corner."""
    if hasattr(ax, "get_zlim"):
        return {"loc": "upper right", "framealpha": 0.85}
    from matplotlib.transforms import ScaledTranslation

    # Points below the axes: room for numbers and name of the axis.
    below = ax.transAxes + ScaledTranslation(0, -36 / 72, figure.dpi_scale_trans)
    place = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": below, "borderaxespad": 0.0}
    return {"loc": "upper center", "ncols": min(count, 2), "frameon": False, **place}


def heading(ax: Any, shown: Shown, look: Look, when: str) -> None:
    """Draw the title, the number of particles and the time."""
    words = f"{shown.note}, {when}"
    ax.set_title(f"{look.title}\n{words}" if look.title else words, fontsize=10, loc="left")


def kinds(trajectory: Trajectory, color: str) -> list[tuple[int, str, int]]:
    """Number, name and count of every outcome or patch that occurs, over all particles."""
    if color == "outcome":
        values, names = trajectory.outcomes, dict(enumerate(trajectory.outcome_names))
    else:
        values, names = trajectory.patches, dict(enumerate(trajectory.patch_names))
    numbers, counts = (found.tolist() for found in np.unique(values, return_counts=True))
    return [(n, names.get(n, "no patch"), count) for n, count in zip(numbers, counts, strict=True)]


def _scale(figure: "Figure", ax: Any, shown: Shown, look: Look) -> None:
    """Draw the colour scale beside the axes, with a pointed end if values lie beyond it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    values = shown.values[shown.alive]
    low, high = limits(look.color, values)
    beyond = bool(values.size) and float(np.nanmax(values)) > high * (1 + 1e-6)
    label, marks = look.scale(low, high)
    colors = ScalarMappable(Normalize(low, high), ListedColormap(scale_colors() / 255.0))
    extend = "max" if beyond else "neither"
    bar = figure.colorbar(colors, label=label, extend=extend, **scale_place(figure, ax))
    if marks:
        places, words = zip(*marks, strict=True)
        bar.set_ticks(list(places), labels=list(words))

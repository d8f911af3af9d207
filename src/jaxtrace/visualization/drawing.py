"""The parts of a figure of particles: the ground they move over, paths, dots, crosses, and what explains the colours."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..boundaries.base import AbstractBoundary
from ..fields.base import AbstractField
from ..fields.epoch import Epoch
from ..tracking.trajectory import Trajectory
from .canvas import axes_for, draw_outlines, frame, free_style, label_axes, scale_place
from .colors import ENDED, KINDS, NONE, OUTCOME_COLORS, limits, scale_colors, scale_label, scale_ticks
from .fields import field_bounds, speed_raster
from .outlines import outlines
from .shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Look:
    """How a picture is labelled."""

    color: str
    length_unit: str = ""
    time_unit: str = ""
    title: str = ""
    epoch: Epoch | None = None
    """The date of time 0: times are then shown as dates."""

    @property
    def speed_unit(self) -> str:
        """The unit of time in speeds: seconds where there are dates."""
        return self.time_unit or ("" if self.epoch is None else "s")

    def time(self, *times: float) -> str:
        """A time, or a span: as dates, or with its unit."""
        if self.epoch is not None:
            span = max(times) - min(times) or max(times)
            return " to ".join(self.epoch.texts(times, span))
        return f"t = {' to '.join(f'{time:.4g}' for time in times)} {self.time_unit}".rstrip()

    def frames(self, times: Float[np.ndarray, " times"]) -> list[str]:
        """What to write on each picture of an animation, all in one form."""
        if self.epoch is None:
            return [self.time(float(time)) for time in times]
        return self.epoch.texts(times.tolist(), float(times[-1] - times[0]))


def ground(
    shown: Shown,
    look: Look,
    field: AbstractField | None,
    boundary: AbstractBoundary | None,
    time: float,
    ax: Any = None,
) -> "tuple[Figure, Any]":
    """A figure whose axes hold the speed of the field in grey and the lines of the boundary."""
    lines = outlines(boundary, shown.dims)
    extent = whole_extent(shown, field, boundary)
    figure, ax = axes_for(extent, ax)
    frame(ax, extent)
    if field is not None:
        draw_speed(ax, speed_raster(field, [time], extent, shown.dims, shown.middle)[0], extent)
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


def draw_speed(
    ax: Any, speed: Float[np.ndarray, "height width"], extent: Float[np.ndarray, "2 axes"]
) -> None:
    """A field's speed in light grey, so that coloured paths stand out; white where there is none."""
    top = float(np.nanmax(speed, initial=0.0)) or 1.0
    ax.imshow(
        np.ma.masked_invalid(speed),
        origin="lower",
        extent=extent.T.ravel(),
        cmap="Greys",
        vmin=0,
        vmax=2.5 * top,
        interpolation="bilinear",
        zorder=0,
    )


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
    flat = free_style(len(shown.dims)) | ({"depthshade": False} if len(shown.dims) == 3 else {})
    drawn = []
    alive, ended = shown.alive[row], shown.ended[row]
    if alive.any():
        count = int(alive.sum())
        size = (12 if count <= 60 else 4) if plain else float(np.clip(12_000 / count, 2, 24))
        color = "#222222" if plain else colors_of(shown.values[row, alive], shown, look)
        drawn.append(
            ax.scatter(*shown.positions[row, alive].T, s=size, c=color, linewidths=0, zorder=3, **flat)
        )
    if ended.any():
        size = float(np.clip(12_000 / int(ended.sum()), 8, 28))
        known = look.color in KINDS
        color = colors_of(shown.values[row, ended], shown, look) if known else ENDED
        drawn.append(
            ax.scatter(
                *shown.positions[row, ended].T, s=size, c=color, marker="x", linewidths=0.9, zorder=4, **flat
            )
        )
    return drawn


def colors_of(values: Float[np.ndarray, " n"], shown: Shown, look: Look) -> Any:
    """Colours of values: on the scale, or one for each kind."""
    if look.color in KINDS:
        palette = np.array([*OUTCOME_COLORS, NONE])
        last = len(OUTCOME_COLORS)
        return list(palette[np.where(values < 0, last, values.astype(int) % last)])
    low, high = limits(look.color, shown.values[shown.alive])
    scale = scale_colors() / 255.0
    share = np.clip(np.nan_to_num((values - low) / (high - low)), 0.0, 1.0)
    return scale[np.rint(share * (len(scale) - 1)).astype(int)]


def explain(figure: "Figure", ax: Any, trajectory: Trajectory, shown: Shown, look: Look, when: str) -> None:
    """The heading, and the scale or the list of kinds with how many particles are of each."""
    from matplotlib.lines import Line2D

    heading(ax, shown, look, when)
    handles = []
    if look.color in KINDS:
        for number, name, count in kinds(trajectory, look.color):
            color = NONE if number < 0 else OUTCOME_COLORS[number % len(OUTCOME_COLORS)]
            handles.append(Line2D([], [], color=color, linewidth=2.5, label=f"{name}: {count:,}"))
    else:
        _scale(figure, ax, shown, look)
        if shown.ended[-1].any():
            style = {"color": ENDED, "marker": "x", "linestyle": "none", "markersize": 5}
            handles.append(Line2D([], [], label="ended", **style))
    if handles:
        ax.legend(handles=handles, fontsize=8, **_legend_place(figure, ax, len(handles)))


def _legend_place(figure: "Figure", ax: Any, count: int) -> dict[str, Any]:
    """Where the list of kinds stands: under the axes, where it hides nothing; in three dimensions in a corner."""
    if hasattr(ax, "get_zlim"):
        return {"loc": "upper right", "framealpha": 0.85}
    from matplotlib.transforms import ScaledTranslation

    # Points below the axes: room for numbers and name of the axis.
    below = ax.transAxes + ScaledTranslation(0, -36 / 72, figure.dpi_scale_trans)
    place = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": below, "borderaxespad": 0.0}
    return {"loc": "upper center", "ncols": min(count, 2), "frameon": False, **place}


def heading(ax: Any, shown: Shown, look: Look, when: str) -> None:
    """The title, how many particles are drawn, and when."""
    words = f"{shown.note}, {when}"
    ax.set_title(f"{look.title}\n{words}" if look.title else words, fontsize=10, loc="left")


def kinds(trajectory: Trajectory, color: str) -> list[tuple[int, str, int]]:
    """Number, name and count of every outcome or patch that occurs, over all particles."""
    if color == "outcome":
        values, names = np.asarray(trajectory.outcomes), dict(enumerate(trajectory.outcome_names))
    else:
        values, names = np.asarray(trajectory.patches), dict(enumerate(trajectory.patch_names))
    numbers, counts = np.unique(values, return_counts=True)
    return [
        (int(number), names.get(int(number), "no patch"), int(count))
        for number, count in zip(numbers, counts, strict=True)
    ]


def _scale(figure: "Figure", ax: Any, shown: Shown, look: Look) -> None:
    """The scale of numbers beside the axes, pointed where values lie beyond its end."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    values = shown.values[shown.alive]
    low, high = limits(look.color, values)
    beyond = bool(values.size) and float(np.nanmax(values)) > high * (1 + 1e-6)
    marked = scale_ticks(look.color, low, high, look.epoch, look.time_unit)
    bar = figure.colorbar(
        ScalarMappable(Normalize(low, high), ListedColormap(scale_colors() / 255.0)),
        label=scale_label(look.color, look.length_unit, look.speed_unit) if marked is None else marked[0],
        extend="max" if beyond else "neither",
        **scale_place(figure, ax),
    )
    if marked is not None and marked[1]:
        bar.set_ticks([place for place, _ in marked[1]], labels=[words for _, words in marked[1]])

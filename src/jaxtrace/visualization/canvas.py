"""Figures without global state: axes in the right proportions, their labels, and the file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from jaxworlds.store import atomic_write

from ..boundaries.box import AXES
from .colors import with_unit
from .outlines import BODY_COLOR, STYLES, Outline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = 'Pictures need matplotlib, which is not installed: `pip install "jaxworlds[trace]"`.'
OWN = "three axes of jaxtrace"
"""Label of three-dimensional axes that were made here, so that there is room for the scale."""
WIDTH = 8.0  # inches; a page's width at 100 dots per inch


def axes_for(extent: Float[np.ndarray, "2 axes"], ax: Any = None) -> "tuple[Figure, Any]":
    """A figure and its axes in the proportions of `extent`, or those of `ax` if it is given."""
    if ax is not None:
        if hasattr(ax, "get_zlim") != (extent.shape[1] == 3):
            raise ValueError(
                f"`ax` must be {'three' if extent.shape[1] == 3 else 'two'}-dimensional for this picture. "
                'Make it with `figure.add_subplot(projection="3d")`, or choose two axes with `dims`.'
            )
        return ax.figure, ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(MISSING) from error
    size = np.maximum(extent[1] - extent[0], 1e-30)
    if len(size) == 3:
        flat = float(size.max()) > 2 * float(np.sort(size)[1])  # a long duct needs less height than a cube
        figure = Figure(figsize=(WIDTH, 4.8 if flat else 6.2))
        # By hand: a layout engine measures a turned box by its uncut contents, and gives up.
        return figure, figure.add_axes((0.0, 0.06, 0.86, 0.86), projection="3d", label=OWN)
    tall = float(np.clip(0.85 * WIDTH * size[1] / size[0], 1.6, 9.0))
    figure = Figure(figsize=(WIDTH if tall < 8.9 else 6.5, tall + 0.9), layout="constrained")
    return figure, figure.add_subplot()


def scale_place(figure: "Figure", ax: Any) -> dict[str, Any]:
    """The place of the colour scale: in two dimensions exactly as high as the axes."""
    if not hasattr(ax, "get_zlim"):
        return {"cax": ax.inset_axes((1.015, 0, 0.022, 1))}
    if ax.get_label() == OWN:
        return {"cax": figure.add_axes((0.9, 0.24, 0.02, 0.52))}
    return {"ax": ax, "shrink": 0.6, "pad": 0.1}


def label_axes(ax: Any, dims: tuple[int, ...], length_unit: str) -> None:
    """Names of the axes with their unit."""
    for letter, axis in zip("xyz", dims, strict=False):
        getattr(ax, f"set_{letter}label")(with_unit(AXES[axis], length_unit))


def frame(ax: Any, extent: Float[np.ndarray, "2 axes"]) -> None:
    """Limits with a little room, and equal lengths along all axes."""
    from matplotlib.ticker import MaxNLocator

    size = extent[1] - extent[0]
    room = np.where(size > 0, 0.02 * size, 0.5 * max(float(size.max()), 1e-6))
    low, high = extent[0] - room, extent[1] + room
    for letter, a, b in zip("xyz", low, high, strict=False):
        getattr(ax, f"set_{letter}lim")(a, b)
    if len(size) == 2:
        ax.set_aspect("equal")
    else:
        # Slabs thinner than a fifth of their length would hide what happens in them.
        sides = np.maximum(high - low, 0.2 * float((high - low).max()))
        ax.set_box_aspect(sides, zoom=1.25 if np.sort(sides)[1] < 0.5 * sides.max() else 1.0)
        for axis, side in zip((ax.xaxis, ax.yaxis, ax.zaxis), sides / sides.max(), strict=True):
            axis.set_major_locator(MaxNLocator(nbins=6 if side > 0.6 else 3))
            axis.labelpad = 10 if side > 0.6 else 4


def free_style(axes: int) -> dict[str, Any]:
    """The style of lines and dots that may leave the rectangle of their axes, as a turned box does."""
    return {} if axes == 2 else {"clip_on": False}


def draw_outlines(ax: Any, lines: list[Outline]) -> None:
    """A boundary's lines and bodies, under the particles."""
    for line in lines:
        color, dashes, width = STYLES[line.kind]
        if line.kind == "body":
            ax.fill(*line.points.T, facecolor=BODY_COLOR, edgecolor=color, linewidth=width, zorder=1.5)
        else:
            free = free_style(line.points.shape[1])
            ax.plot(*line.points.T, color=color, linestyle=dashes, linewidth=width, zorder=1.5, **free)


def finish(figure: "Figure", path: str | Path | None) -> "Figure":
    """Write the figure to `path`, if it is given, in the format of its suffix; returns the figure."""
    if path is not None:
        kind = Path(path).suffix.lstrip(".").lower()
        known = figure.canvas.get_supported_filetypes()
        if kind not in known:
            raise ValueError(
                f"`path` must end in one of .{', .'.join(sorted(known))}; got {Path(path).name!r}."
            )
        with atomic_write(path) as file:
            figure.savefig(file, format=kind, dpi=150)
    return figure

"""Paths and positions of particles as figures, in two and three dimensions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..boundaries.base import AbstractBoundary
from ..fields.base import AbstractField
from ..tracking.trajectory import Trajectory
from .canvas import finish
from .colors import Look
from .figure_parts import draw_background, draw_particles, draw_paths, explain
from .outlines import periods_of
from .shown import Dims, axis_numbers, particle_numbers, positions_of, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond these a picture only becomes darker and slower: paths (half as many in three dimensions), their pieces, dots.
MOST_PATHS, MOST_PIECES, MOST_DOTS = 300, 90_000, 20_000


def plot_paths(
    trajectory: Trajectory,
    path: str | Path | None = None,
    dims: Dims = None,
    color: str = "speed",
    field: AbstractField | None = None,
    every: int | None = None,
    ax: Any = None,
    *,
    boundary: AbstractBoundary | None = None,
    length_unit: str = "",
    time_unit: str = "",
    title: str = "",
) -> "Figure":
    """Draw the paths of particles; with `path` the figure is also written there (.png, .svg, .pdf).

    `dims` selects two or three axes ("xz"); `color` is "speed", "age", "time", "id", "outcome" or "patch". In two
    dimensions the speed of `field` at the last time is shown in grey. If there are many particles, an even choice of them
    is drawn, or every `every`-th, and the picture says how many. Dots mark the ends of paths, crosses particles that have
    ended. `boundary` is drawn too. Paths are interrupted at its periods; without it periods are guessed from long jumps.

    ```python
    plot_paths(trajectory, "paths.png", color="age", boundary=boundary, length_unit="m", time_unit="s")
    ```
    """
    whole = positions_of(trajectory)
    look = Look(color, length_unit, time_unit, title, trajectory.epoch)
    most = MOST_PATHS if len(axis_numbers(dims, whole.shape[-1])) == 2 else MOST_PATHS // 2
    times = max(2, MOST_PIECES // max(len(particle_numbers(whole.shape[1], every, most)), 1))
    shown = select(trajectory, color, dims, every, most=most, times=times, periods=periods_of(boundary))
    figure, ax = draw_background(shown, look, field, boundary, float(shown.times[-1]), ax)
    draw_paths(ax, shown, look)
    draw_particles(ax, shown, look, len(shown.times) - 1, plain=True)
    explain(figure, ax, trajectory, shown, look, look.time(shown.times[0], shown.times[-1]))
    return finish(figure, path)


def plot_positions(
    trajectory: Trajectory,
    at: Any = None,
    path: str | Path | None = None,
    dims: Dims = None,
    color: str = "speed",
    field: AbstractField | None = None,
    every: int | None = None,
    ax: Any = None,
    *,
    boundary: AbstractBoundary | None = None,
    length_unit: str = "",
    time_unit: str = "",
    title: str = "",
) -> "Figure":
    """Draw particles at the recorded time nearest to `at` (default: the last); the other arguments are those of `plot_paths`.

    `at` is a time, or a date if the trajectory has an `epoch`.
    """
    if isinstance(at, Path) or (isinstance(at, str) and Path(at).suffix[1:].isalpha()):  # no date ends so
        name = str(at)
        raise TypeError(
            f"`at` must be a time; got {name!r}. Write `path={name!r}`, or a date such as `at='2015-11-16'`."
        )
    positions_of(trajectory)
    look = Look(color, length_unit, time_unit, title, trajectory.epoch)
    shown = select(trajectory, color, dims, every, most=MOST_DOTS, periods=periods_of(boundary))
    row = len(shown.times) - 1 if at is None else trajectory.row_of(at)
    figure, ax = draw_background(shown, look, field, boundary, float(shown.times[row]), ax)
    draw_particles(ax, shown, look, row)
    explain(figure, ax, trajectory, shown, look, look.time(shown.times[row]))
    return finish(figure, path)

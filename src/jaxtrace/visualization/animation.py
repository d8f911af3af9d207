"""Animations of particles, by the file's name: a page that plays by itself, a GIF or an animated PNG."""

from pathlib import Path
from typing import Any

from jaxworlds.store import atomic_write

from ..boundaries.base import AbstractBoundary
from ..fields.base import AbstractField
from ..fields.epoch import epoch_of
from ..tracking.trajectory import Trajectory
from .drawing import Look, draw_particles, explain, ground, heading
from .outlines import periods_of
from .player import player_html
from .shown import Dims, select

MOST_DOTS = 3000


def animate(
    trajectory: Trajectory,
    path: str | Path,
    dims: Dims = None,
    color: str = "speed",
    field: AbstractField | None = None,
    every: int | None = None,
    *,
    boundary: AbstractBoundary | None = None,
    frames: int | None = None,
    seconds: float = 8.0,
    length_unit: str = "",
    time_unit: str = "",
    title: str = "",
) -> Path:
    """Write an animation that lasts about `seconds`, and return its path.

    `.html` is one page with a player inside and needs nothing else; `.gif` and `.png` (or `.apng`) go where pages do
    not. At most `frames` recorded times are kept: 160 in a page, which moves particles smoothly between them, 80 in a
    picture. In pictures the field behind stands still at its middle time. The other arguments are those of
    `plot_paths`.

    ```python
    animate(trajectory, "flow.html", color="age", field=field, boundary=boundary, time_unit="s")
    ```
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".html", ".htm", ".gif", ".png", ".apng"):
        raise ValueError(f"`path` must end in .html, .gif, .png or .apng; got {path.name!r}.")
    if frames is not None and frames < 2:
        raise ValueError(f"`frames` must be at least 2; got {frames}.")
    if not seconds > 0:
        raise ValueError(f"`seconds` must be positive; got {seconds}.")
    look = Look(color, length_unit, time_unit, title, epoch_of(trajectory))
    if kind in (".html", ".htm"):
        page = player_html(
            trajectory,
            dims,
            color,
            field,
            every,
            boundary=boundary,
            frames=frames or 160,
            seconds=seconds,
            length_unit=length_unit,
            time_unit=time_unit,
            title=title,
        )
        with atomic_write(path, "w") as file:
            file.write(page)
        return path
    pictures = _pictures(trajectory, look, dims, field, every, boundary, frames or 80)
    with atomic_write(path) as file:
        pictures[0].save(
            file,
            format="GIF" if kind == ".gif" else "PNG",
            save_all=True,
            append_images=pictures[1:],
            duration=max(20, round(1000 * seconds / len(pictures))),
            loop=0,
        )
    return path


def _pictures(
    trajectory: Trajectory,
    look: Look,
    dims: Dims,
    field: AbstractField | None,
    every: int | None,
    boundary: AbstractBoundary | None,
    frames: int,
) -> list[Any]:
    """One picture for each kept time, all with the palette of the last."""
    shown = select(
        trajectory, look.color, dims, every, most=MOST_DOTS, times=frames, periods=periods_of(boundary)
    )
    middle = float(shown.times[len(shown.times) // 2])
    figure, ax = ground(shown, look, field, boundary, middle)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    explain(figure, ax, trajectory, shown, look, look.frames(shown.times)[-1])
    canvas.draw()
    figure.set_layout_engine(
        "none"
    )  # the layout stands; finding it anew for every frame takes most of the time
    pictures = []
    for row, words in enumerate(look.frames(shown.times)):
        drawn = draw_particles(ax, shown, look, row)
        heading(ax, shown, look, words)
        canvas.draw()
        pictures.append(
            Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
        )
        for artist in drawn:
            artist.remove()
    palette = pictures[-1].quantize(255)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]

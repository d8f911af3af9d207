"""Animations of particles: a page with a player, a GIF or an animated PNG, by the suffix of the file."""

from pathlib import Path
from typing import Any

from jaxworlds.store import atomic_write

from ..boundaries.base import AbstractBoundary
from ..fields.base import AbstractField
from ..fields.epoch import epoch_of
from ..tracking.trajectory import Trajectory
from .colors import Look
from .figure_parts import draw_background, draw_particles, explain, heading
from .outlines import periods_of
from .player import player_html
from .shown import Dims, Shown, select

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

    `.html` is a page with a player that needs no other file; `.gif` and `.png` (or `.apng`) are pictures. At most
    `frames` recorded times are kept: by default 160 in a page, which moves particles smoothly between them, and 80 in a
    picture. Pictures show the field at its middle time only. The other arguments are those of `plot_paths`.

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
    labels = {"length_unit": length_unit, "time_unit": time_unit, "title": title}
    if kind in (".html", ".htm"):
        frames = frames or 160
        page = player_html(
            trajectory, dims, color, field, every, boundary=boundary, frames=frames, seconds=seconds, **labels
        )
        with atomic_write(path, "w") as file:
            file.write(page)
        return path
    periods = periods_of(boundary)
    shown = select(trajectory, color, dims, every, most=MOST_DOTS, times=frames or 80, periods=periods)
    look = Look(color, **labels, epoch=epoch_of(trajectory))
    pictures = _pictures(trajectory, shown, look, field, boundary)
    duration = max(20, round(1000 * seconds / len(pictures)))
    series = {"save_all": True, "append_images": pictures[1:], "duration": duration, "loop": 0}
    with atomic_write(path) as file:
        pictures[0].save(file, format="GIF" if kind == ".gif" else "PNG", **series)
    return path


def _pictures(
    trajectory: Trajectory,
    shown: Shown,
    look: Look,
    field: AbstractField | None,
    boundary: AbstractBoundary | None,
) -> list[Any]:
    """One picture for each kept time, all with the palette of the last."""
    figure, ax = draw_background(shown, look, field, boundary, float(shown.times[len(shown.times) // 2]))
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    explain(figure, ax, trajectory, shown, look, look.frames(shown.times)[-1])
    canvas.draw()
    figure.set_layout_engine("none")  # finding the layout again for every frame takes most of the time
    pictures = []
    for row, words in enumerate(look.frames(shown.times)):
        drawn = draw_particles(ax, shown, look, row)
        heading(ax, shown, look, words)
        canvas.draw()
        picture = Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))
        pictures.append(picture.convert("RGB"))
        for artist in drawn:
            artist.remove()
    palette = pictures[-1].quantize(255)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]

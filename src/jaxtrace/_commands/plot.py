"""`jaxtrace plot`: trajectories and fields as pictures, pages and dots in the terminal."""

import html
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.commands import demand_suffix, say
from jaxworlds.store import atomic_write

from ..boundaries.box import AXES
from ..fields.epoch import epoch_of
from ..tracking.trajectory import Trajectory
from ..visualization import animate, plot_paths, plot_positions, plot_speed, terminal_picture
from ..visualization.colors import Look
from ..visualization.shown import axis_numbers
from .sources import box_of, is_trajectory, moment_of, open_field, read_trajectory

STILL, MOVING = (".png", ".svg", ".pdf"), (".html", ".gif")


def plot(
    file: str,
    out: Path | None,
    field: str | None,
    color: str,
    at: str | None,
    bounds: tuple[float, ...],
    reading: dict[str, Any],
    **axes: Any,
) -> int:
    """Draw what is in a file; `axes` are which ones (`dims`) and the units on them."""
    kind = None if out is None else demand_suffix(out, (*STILL, *MOVING), "out")
    if not is_trajectory(file):
        if out is None or kind == ".gif":
            raise ValueError("`--out` must name a picture of the field: .png, .svg, .pdf or .html.")
        draw_field(file, out, at, bounds, reading, **axes)
        say(f"wrote {out}")
        return 0
    found = read_trajectory(file, reading.pop("epoch", None), positions=True)
    moment = None if at is None else float(found.times[found.row_of(moment_of(at, found.epoch, "at"))])
    if out is None:
        columns = shutil.get_terminal_size().columns
        say(terminal_picture(found, moment, min(72, columns), axes["dims"]))
        say(frame_words(found, moment, axes["dims"]))
        say(found.summary())
        return 0
    axes |= {"color": color, "field": None if field is None else open_field(field, **reading)}
    if at is None:
        if kind in MOVING:
            animate(found, out, title=Path(file).stem, **axes)
        else:
            plot_paths(found, out, **axes)
    elif kind in MOVING:
        raise ValueError(f"`--at` is one time and {out.name} is an animation. Leave one of them out.")
    else:
        plot_positions(found, moment, out, **axes)
    say(f"wrote {out}")
    return 0


def frame_words(found: Trajectory, at: float | None, dims: str | None) -> str:
    """What the picture in the terminal spans: both axes from end to end, and its time."""
    assert found.positions is not None
    row = len(found.times) - 1 if at is None else found.row_of(at)
    ends = [
        f"{AXES[axis]} {np.nanmin(found.positions[..., axis]):.4g} to {np.nanmax(found.positions[..., axis]):.4g}"
        for axis in axis_numbers(dims or "xy", found.positions.shape[-1])[:2]
    ]
    return f"{', '.join(ends)}, {Look('id', epoch=found.epoch).time(float(found.times[row]))}"


def draw_field(
    name: str, out: Path, at: str | None, bounds: tuple[float, ...], reading: dict[str, Any], **axes: Any
) -> None:
    """The speed of a field at one time; on a page as SVG."""
    field = open_field(name, **reading)
    first = float(field.times[0]) if hasattr(field, "times") else 0.0
    box = box_of(name, field, bounds)
    time = first if at is None else moment_of(at, epoch_of(field), "at")
    figure = plot_speed(field, time=time, bounds=box, **axes)
    page = out.suffix.lower() == ".html"
    made = io.BytesIO()
    figure.savefig(made, format="svg" if page else out.suffix[1:].lower(), dpi=150)
    content = made.getvalue()
    if page:
        picture = content[content.index(b"<svg") :].decode()
        title = html.escape(name)
        content = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n{picture}</html>\n'.encode()
    with atomic_write(out) as written:
        written.write(content)

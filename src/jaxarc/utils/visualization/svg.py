"""Grids, pairs, tasks, steps and episodes as SVG, written without any library."""

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from . import scene as scenes
from .colors import ARC_COLORS
from .panels import GridLike
from .records import EpisodeRecord, StepRecord
from .scene import PAPER, Cells, Lines, Scene, Words, runs

# What XML 1.0 cannot hold at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def grid_svg(
    grid: GridLike,
    mask: GridLike | None = None,
    *,
    title: str = "",
    selection: GridLike | None = None,
    cell: int | None = None,
) -> str:
    """A grid in the colours of the official viewer; `selection` is outlined.

    Cells that are −1 or outside `mask` are not drawn. `cell` is the side of a cell; None fits it to the grid.
    """
    return scene_svg(scenes.grid_scene(grid, mask, title, selection, cell))


def pair_svg(input: GridLike, output: GridLike | None, *, title: str = "", cell: int | None = None) -> str:
    """Input and output side by side; an output of None is not shown."""
    return scene_svg(scenes.pair_scene(input, output, title, cell))


def task_svg(task: Any, *, title: str = "", answers: bool = False, cell: int | None = None) -> str:
    """All pairs of a task (see `task_pairs` for what a task may be); test outputs only with `answers`."""
    return scene_svg(scenes.task_scene(task, title, answers, cell))


def step_svg(
    step: StepRecord, *, title: str = "", target: GridLike | None = None, cell: int | None = None
) -> str:
    """One step: the grid before it with the selection outlined, the grid after it, and what it brought."""
    return scene_svg(scenes.step_scene(step, title, target, cell))


def episode_svg(
    episode: EpisodeRecord, *, title: str = "", max_steps: int = 60, cell: int | None = None
) -> str:
    """A whole episode on one page; of more than `max_steps` steps, evenly spread ones are shown."""
    return scene_svg(scenes.episode_scene(episode, title, max_steps, cell))


def scene_svg(scene: Scene, scale: int = 2) -> str:
    """A scene as SVG text, `scale` pixels a unit; it can be shown at any size."""
    size = f'width="{scale * scene.width}" height="{scale * scene.height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {scene.width} {scene.height}" role="img">',
        f"<title>{_text(scene.name)}</title>",
        f'<rect class="paper" width="{scene.width}" height="{scene.height}" fill="{PAPER}"/>',
        *map(_element, scene.items),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _text(words: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", words))


def _element(item: Cells | Lines | Words) -> str:
    if isinstance(item, Cells):
        return "\n".join(_cells(item))
    if isinstance(item, Lines):
        steps = (
            f"M{x1} {y1}H{x2}" if y1 == y2 else f"M{x1} {y1}V{y2}"
            for x1, y1, x2, y2 in item.segments.tolist()
        )
        style = f'stroke="{item.color}" stroke-width="{item.width:g}" stroke-linecap="square"'
        return f'<path class="{item.kind}" fill="none" {style} d={quoteattr("".join(steps))}/>'
    # A monospaced letter is 0.6 of the font's size wide: 6 units at 10, as wide as the letters of the PNG.
    style = f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{10 * item.size}"'
    place = f'x="{item.x}" y="{item.y + 7 * item.size}" xml:space="preserve"'
    return f'<text {place} {style} fill="{item.color}">{_text(item.text)}</text>'


def _cells(item: Cells) -> Iterator[str]:
    """One path for each colour, of one rectangle for each stretch of it in a row."""
    shapes: dict[int, list[str]] = {}
    for row, values in enumerate(item.colors):
        for start, length, color in runs(values):
            x, y, width = item.x + start * item.cell, item.y + row * item.cell, length * item.cell
            shapes.setdefault(color, []).append(f"M{x} {y}h{width}v{item.cell}h-{width}z")
    for color in sorted(shapes.keys() - {-1}):
        style = f'fill="{ARC_COLORS[color]}" shape-rendering="crispEdges"'
        yield f'<path class="cells" {style} d="{"".join(shapes[color])}"/>'

"""Grids, pairs, tasks, steps and episodes as PNG, and episodes as animated PNG, without a plotting library."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxworlds.pictures import animated_png

from . import scene as scenes
from ._font import text_dots
from .colors import ARC_COLORS, color_rgb
from .panels import (
    GridLike,
    cell_extent,
    episode_words,
    grid_panel,
    padded_panel,
    puzzle_panels,
    step_panels,
    step_words,
)
from .records import EpisodeRecord, StepRecord, operation_name
from .scene import FAINT, MARGIN, PAPER, TEXT, Cells, Lines, Scene

# Every colour a scene may use; its place here is its number in the picture.
_INKS = (scenes.INK, FAINT, scenes.LINE, scenes.LIGHT, scenes.SHADE, "#CCCCCC", "#0074D9")
_COLORS = tuple(dict.fromkeys((PAPER, *ARC_COLORS, *_INKS)))
_NUMBER = {color: number for number, color in enumerate(_COLORS)}
_RGB = np.array([color_rgb(color) for color in _COLORS], np.uint8)
_CELLS = np.array([_NUMBER[color] for color in ARC_COLORS], np.uint8)

Raster = UInt8[np.ndarray, "height width"]


def grid_png(
    grid: GridLike,
    mask: GridLike | None = None,
    *,
    title: str = "",
    selection: GridLike | None = None,
    cell: int | None = None,
    scale: int = 2,
) -> bytes:
    """The picture of `grid_svg` as a PNG file, `scale` pixels a unit."""
    return scene_png(scenes.grid_scene(grid, mask, title, selection, cell), scale)


def pair_png(
    input: GridLike, output: GridLike | None, *, title: str = "", cell: int | None = None, scale: int = 2
) -> bytes:
    """The picture of `pair_svg` as a PNG file."""
    return scene_png(scenes.pair_scene(input, output, title, cell), scale)


def task_png(
    task: Any, *, title: str = "", answers: bool = False, cell: int | None = None, scale: int = 2
) -> bytes:
    """The picture of `task_svg` as a PNG file."""
    return scene_png(scenes.task_scene(task, title, answers, cell), scale)


def step_png(
    step: StepRecord,
    *,
    title: str = "",
    target: GridLike | None = None,
    cell: int | None = None,
    scale: int = 2,
) -> bytes:
    """The picture of `step_svg` as a PNG file."""
    return scene_png(scenes.step_scene(step, title, target, cell), scale)


def episode_png(
    episode: EpisodeRecord, *, title: str = "", max_steps: int = 60, cell: int | None = None, scale: int = 2
) -> bytes:
    """The picture of `episode_svg` as a PNG file."""
    return scene_png(scenes.episode_scene(episode, title, max_steps, cell), scale)


def episode_animation(
    episode: EpisodeRecord, *, delay_ms: int = 500, cell: int | None = None, scale: int = 2
) -> bytes:
    """An episode as an animated PNG: one frame before the first step, then one for each step."""
    frames = _frames(episode, cell)
    width, height = max(f.width for f in frames), max(f.height for f in frames)
    rasters = [scene_raster(replace(f, width=width, height=height), scale) for f in frames]
    return animated_png(rasters, delay_ms, _RGB)


def scene_png(scene: Scene, scale: int = 2) -> bytes:
    """A scene as a PNG file."""
    return animated_png([scene_raster(scene, scale)], colors=_RGB)


def scene_raster(scene: Scene, scale: int = 2) -> Raster:
    """A scene as numbers of colours, `scale` pixels a unit."""
    if scale < 1:
        raise ValueError(f"`scale` must be at least 1 pixel a unit; got {scale}.")
    out = np.full((scale * scene.height, scale * scene.width), _NUMBER[PAPER], np.uint8)
    for item in scene.items:
        if isinstance(item, Cells):
            x, y, cell = scale * item.x, scale * item.y, scale * item.cell
            large = item.colors.repeat(cell, axis=0).repeat(cell, axis=1)
            part = out[y : y + large.shape[0], x : x + large.shape[1]]
            part[...] = np.where(large >= 0, _CELLS[large], part)
            continue
        number = _NUMBER[item.color]
        if isinstance(item, Lines):
            thick = max(1, round(scale * item.width))
            # The middle of the line is the middle of its pixels; the ends are as square as in the SVG.
            low, high = thick // 2, thick - thick // 2
            for x1, y1, x2, y2 in (scale * item.segments).tolist():
                out[max(0, y1 - low) : y2 + high, max(0, x1 - low) : x2 + high] = number
        else:
            dots = np.kron(text_dots(item.text), np.ones((scale * item.size,) * 2, bool))
            x, y = scale * item.x, scale * item.y
            part = out[y : y + dots.shape[0], x : x + dots.shape[1]]
            part[dots[: part.shape[0], : part.shape[1]]] = number
    return out


def _frames(episode: EpisodeRecord, cell: int | None) -> list[Scene]:
    """One scene for each frame, with every panel at its place in all of them."""
    steps = [step_panels(step)[:2] for step in episode.steps]
    pairs = [(grid_panel(episode.input, title="before"), grid_panel(episode.input, title="after")), *steps]
    shape = cell_extent([panel for pair in pairs for panel in pair])
    fixed = puzzle_panels(episode)
    cell = cell or scenes.cell_size([*fixed, *(p for pair in pairs for p in pair)], 150, 4, 16)
    frames = []
    for number, pair in enumerate(pairs):
        scene = Scene(episode.task_id)
        step = episode.steps[number - 1] if number else None
        name = f"{number}/{episode.length} " + (operation_name(step.operation) if step else "start")
        scene.write(MARGIN, MARGIN, name, size=2)
        words = step_words(step) if step else episode_words(episode)
        scene.write(MARGIN, MARGIN + 2 * TEXT, words, FAINT)
        # Titles of one length, so that the next panel does not move when a size gains a digit.
        named = [replace(panel, title=panel.title.ljust(12)) for panel in pair]
        panels = [fixed[0], *(padded_panel(panel, shape) for panel in named), *fixed[1:]]
        scenes.draw_blocks(scene, [panels], MARGIN, MARGIN + 3 * TEXT + 4, cell)
        frames.append(scene)
    return frames

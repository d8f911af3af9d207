"""Pictures as lists of cells, lines and words on a plane of whole units, which SVG and PNG then write alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int8

from ._font import ADVANCE, HEIGHT
from .panels import (
    GridLike,
    Panel,
    episode_panels,
    episode_words,
    grid_panel,
    pair_panels,
    size_words,
    step_panels,
    step_words,
    task_panels,
)
from .records import EpisodeRecord, StepRecord, operation_name

PAPER, INK, FAINT, LINE, LIGHT, SHADE = "#FFFFFF", "#222222", "#666666", "#555555", "#FFFFFF", "#111111"
MARGIN, GAP, TEXT = 8, 14, HEIGHT + 4
PAGE = 760  # units that blocks of panels fill before they go on below

Segments = Int[np.ndarray, "n 4"]


@dataclass(frozen=True)
class Cells:
    """The cells of a grid, `cell` units a side, its top left corner at (x, y); cells of −1 are not drawn."""

    x: int
    y: int
    cell: int
    colors: Int8[np.ndarray, "h w"]


@dataclass(frozen=True)
class Lines:
    """Horizontal and vertical lines, each x1, y1, x2, y2."""

    segments: Segments
    color: str
    width: float
    kind: str


@dataclass(frozen=True)
class Words:
    """A line of text whose top left corner is (x, y); `size` 2 is twice as large."""

    x: int
    y: int
    text: str
    color: str = INK
    size: int = 1


@dataclass
class Scene:
    """A picture: its size in units, its name, and what is on it, from back to front."""

    name: str
    width: int = 2 * MARGIN
    height: int = 2 * MARGIN
    items: list[Cells | Lines | Words] = field(default_factory=list)

    def add(self, item: Cells | Lines | Words, right: int, bottom: int) -> None:
        """Put `item` in front; the picture grows to hold (`right`, `bottom`) and a margin."""
        self.items.append(item)
        self.width, self.height = max(self.width, right + MARGIN), max(self.height, bottom + MARGIN)

    def write(self, x: int, y: int, text: str, color: str = INK, size: int = 1) -> None:
        """Put a line of text in front."""
        self.add(Words(x, y, text, color, size), x + text_width(text, size), y + HEIGHT * size)


def text_width(text: str, size: int = 1) -> int:
    """Units that a line of text takes."""
    return ADVANCE * size * len(text)


def runs(values: Int[np.ndarray, " n"]) -> list[tuple[int, int, int]]:
    """(first place, length, value) of each stretch of equal values."""
    if not values.size:
        return []
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    ends = [*starts[1:], len(values)]
    return [(int(a), int(b - a), int(values[a])) for a, b in zip(starts, ends, strict=True)]


def edges(marked: Bool[np.ndarray, "h w"], inner: bool) -> Segments:
    """The lines around the marked cells, in cells; with `inner` also those between them."""
    padded = np.pad(marked, 1).astype(np.int8)
    found = []
    for cells in (padded, padded.T):
        ahead, behind = cells[1:], cells[:-1]
        drawn = (ahead | behind) if inner else (ahead ^ behind)
        ends = np.diff(drawn, axis=1)
        place, start = np.nonzero(ends == 1)  # both in the same order, so that each start meets its end
        stop = np.nonzero(ends == -1)[1]
        found.append(np.stack([start, place, stop, place], axis=1))
    return np.concatenate([found[0], found[1][:, [1, 0, 3, 2]]])


def panel_size(panel: Panel, cell: int) -> tuple[int, int]:
    """Width and height of a panel with its words."""
    height, width = panel.cells.shape
    words = max(text_width(panel.title), text_width(panel.note))
    lines = bool(panel.title) + bool(panel.note)
    return max(cell * width, words), cell * height + TEXT * lines


def draw_panel(scene: Scene, panel: Panel, x: int, y: int, cell: int) -> None:
    """Title, note, cells, grid lines and the outline of the selection, with the top left corner at (x, y)."""
    for words, color in ((panel.title, INK), (panel.note, FAINT)):
        if words:
            scene.write(x, y, words, color)
            y += TEXT
    height, width = panel.cells.shape
    scene.add(Cells(x, y, cell, panel.cells), x + cell * width, y + cell * height)
    offset = np.array([x, y, x, y])
    lines = cell * edges(panel.cells >= 0, inner=True) + offset
    if cell > 2:  # at a few units a cell the lines would be all there is to see
        scene.add(Lines(lines, LINE, 0.5, "grid"), x, y)
    if panel.selection is not None and panel.selection.any():
        outline = cell * edges(panel.selection, inner=False) + offset
        right, bottom = int(outline[:, 2].max()), int(outline[:, 3].max())
        scene.add(Lines(outline, SHADE, 2.5, "shadow"), right, bottom)
        scene.add(Lines(outline, LIGHT, 1.0, "selection"), right, bottom)


def draw_blocks(
    scene: Scene,
    blocks: Sequence[Sequence[Panel]],
    x: int,
    y: int,
    cell: int | Sequence[int],
    aligned: bool = False,
) -> int:
    """Blocks of panels side by side, going on below where the page ends; returns the lowest unit used.

    `cell` is the side of a cell, of all blocks or of each. With `aligned` every block takes the room of the widest, so that
    they stand in columns.
    """
    sides = [cell] * len(blocks) if isinstance(cell, int) else cell
    sizes = [[panel_size(panel, side) for panel in block] for block, side in zip(blocks, sides, strict=True)]
    widths = [sum(w for w, _ in row) + GAP * (len(row) - 1) for row in sizes]
    left, at, bottom = x, y, y
    for block, row, width, side in zip(blocks, sizes, widths, sides, strict=True):
        room = max(widths) if aligned else width
        if left > x and left + room > PAGE:
            left, at = x, bottom + GAP
        place = left
        for panel, (w, h) in zip(block, row, strict=True):
            draw_panel(scene, panel, place, at, side)
            place, bottom = place + w + GAP, max(bottom, at + h)
        left += room + GAP
    return bottom


def cell_size(panels: Sequence[Panel], room: int, least: int, most: int) -> int:
    """Units a cell, so that the largest panel takes about `room`."""
    side = max((max(panel.cells.shape) for panel in panels), default=1)
    return int(np.clip(room // max(side, 1), least, most))


def grid_scene(
    grid: GridLike, mask: GridLike | None, title: str, selection: GridLike | None, cell: int | None
) -> Scene:
    """One grid."""
    panel = grid_panel(grid, mask, title, selection)
    scene = Scene(panel.title or f"grid {size_words(panel.cells)}")
    draw_panel(scene, panel, MARGIN, MARGIN, cell or cell_size([panel], 240, 6, 20))
    return scene


def pair_scene(input: GridLike, output: GridLike | None, title: str, cell: int | None) -> Scene:
    """Input and output side by side."""
    panels = pair_panels(input, output)
    scene = Scene(title or "pair")
    draw_blocks(scene, [panels], MARGIN, _heading(scene, title), cell or cell_size(panels, 240, 6, 20))
    return scene


def task_scene(task: Any, title: str, answers: bool, cell: int | None) -> Scene:
    """All pairs of a task; test outputs only with `answers`."""
    blocks = task_panels(task, answers)
    scene = Scene(title or "task")
    y = _heading(scene, title)
    # Each pair fills its room, so that small grids can be seen beside large ones; three pairs fit on a line.
    draw_blocks(scene, blocks, MARGIN, y, cell or [cell_size(block, 112, 3, 18) for block in blocks])
    return scene


def step_scene(step: StepRecord, title: str, target: GridLike | None, cell: int | None) -> Scene:
    """Before with the selection, after, and the words about it."""
    panels = step_panels(step, target)
    name = operation_name(step.operation)
    scene = Scene(f"{title}: {name}" if title else name)
    y = _heading(scene, scene.name, step_words(step))
    draw_blocks(scene, [panels], MARGIN, y, cell or cell_size(panels, 210, 5, 16))
    return scene


def episode_scene(episode: EpisodeRecord, title: str, max_steps: int, cell: int | None) -> Scene:
    """The puzzle, the curve of similarity, and the grid after each step."""
    blocks = episode_panels(episode, max_steps)
    name = title or f"{episode.task_id} ({episode.mode})".strip()
    scene = Scene(name)
    y = _heading(scene, name, episode_words(episode))
    cell = cell or cell_size([panel for block in blocks for panel in block], 120, 3, 12)
    y = draw_blocks(scene, blocks[:1], MARGIN, y, cell) + GAP
    y = _curve(scene, [step.similarity for step in episode.steps], MARGIN, y)
    if len(blocks) - 1 < episode.length:
        scene.write(MARGIN, y, f"{len(blocks) - 1} of {episode.length} steps", FAINT)
        y += TEXT
    draw_blocks(scene, blocks[1:], MARGIN, y, cell, aligned=True)
    return scene


def _heading(scene: Scene, title: str, words: str = "") -> int:
    """Title in large letters and words below; returns where the picture goes on."""
    y = MARGIN
    if title:
        scene.write(MARGIN, y, title, size=2)
        y += 2 * TEXT
    if words:
        scene.write(MARGIN, y, words, FAINT)
        y += TEXT + 4
    return y


def _curve(scene: Scene, values: Sequence[float], x: int, y: int, width: int = 360, height: int = 40) -> int:
    """Similarity over the steps as a staircase between 0 and 1; returns where the picture goes on."""
    if not values:
        return y
    scene.write(x, y, f"similarity over {len(values)} steps", FAINT)
    y += TEXT
    frame = np.array([(x, y, x + width, y), (x, y + height, x + width, y + height)])
    scene.add(Lines(frame, "#CCCCCC", 0.5, "frame"), x + width, y + height)
    at = np.linspace(x, x + width, len(values) + 1).round().astype(int)
    shares = np.clip(np.nan_to_num(np.array(values, np.float64)), 0, 1)
    level = (y + height * (1 - shares)).round().astype(int)
    flat = np.stack([at[:-1], level, at[1:], level], axis=1)
    ends = np.sort([level[:-1], level[1:]], axis=0)
    rise = np.stack([at[1:-1], ends[0], at[1:-1], ends[1]], axis=1)[ends[0] < ends[1]]
    scene.add(Lines(np.concatenate([flat, rise]), "#0074D9", 1.0, "curve"), x + width, y + height)
    return y + height + GAP

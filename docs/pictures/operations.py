"""Draws docs/pictures/operation-*.svg: what each operation makes of a grid, computed by the environment itself.

python docs/pictures/operations.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxarc.envs import (
    JaxArcConfig,
    MaskAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
)
from jaxarc.envs.operations import OPERATION_NAMES
from jaxarc.tasks import create_jax_task_from_data
from jaxarc.utils.visualization.colors import ARC_COLORS, readable_ink
from jaxworlds.store import atomic_write

CELL, GAP, TITLE = 20, 34, 24
START = [[0, 1, 1, 0], [0, 1, 2, 0], [3, 3, 0, 4], [3, 0, 0, 4]]
SMALL = [[5, 0], [0, 5]]
"""Inputs of the first and of the second demonstration, and, turned round, of the test pair."""
TASK = {
    "train": [{"input": START, "output": START}, {"input": SMALL, "output": SMALL}],
    "test": [{"input": SMALL[::-1], "output": SMALL}],
}
CONFIG = JaxArcConfig(
    dataset=UnifiedDatasetConfig(5, 5),
    action=UnifiedActionConfig(selection_format="mask", control_operations=True),
)
Box = tuple[int, int, int, int] | None


class Shown(NamedTuple):
    """An operation on the cells of a box (None selects nothing), after others that are not shown."""

    operation: int
    box: Box
    first: tuple[tuple[int, Box], ...] = ()
    said: str = ""


OBJECT = (0, 1, 1, 2)
PICTURES: dict[str, list[Shown]] = {
    "fill": [Shown(6, (1, 0, 2, 1)), Shown(0, (0, 1, 1, 2))],
    "flood": [Shown(18, (2, 1, 2, 1)), Shown(14, (3, 2, 3, 2))],
    "move": [Shown(operation, OBJECT) for operation in (20, 21, 22, 23)],
    "turn": [Shown(operation, (0, 1, 2, 2)) for operation in (24, 25, 26, 27)],
    "clipboard": [
        Shown(28, OBJECT, said="the grid stays"),
        Shown(29, (2, 2, 2, 2), ((28, OBJECT),), "after copying"),
        Shown(30, OBJECT),
        Shown(31, OBJECT),
    ],
    "grid": [
        Shown(32, None, ((6, (0, 0, 3, 3)),)),
        Shown(33, (0, 0, 4, 1)),
        Shown(34, None, said="compared with the answer"),
    ],
    "pairs": [
        Shown(35, None),
        Shown(36, None),
        Shown(37, None),
        Shown(38, None, ((37, None),)),
        Shown(39, None, ((7, (0, 0, 1, 3)),)),
        Shown(40, None, ((35, None),)),
        Shown(41, None),
    ],
}


def selection_mask(box: Box) -> np.ndarray:
    """The cells of a box on the canvas."""
    cells = np.zeros(CONFIG.canvas, bool)
    if box is not None:
        cells[box[0] : box[2] + 1, box[1] : box[3] + 1] = True
    return cells


def before_and_after(shown: Shown) -> tuple[np.ndarray, np.ndarray]:
    """The active grids around an operation, as the environment computes them."""
    start = jax.random.key(0), CONFIG, create_jax_task_from_data(TASK, 0)
    state, seen = arc_reset(*start, initial_pair_idx=0)
    for operation, box in shown.first:
        state, seen, *_ = arc_step(state, MaskAction(operation, selection_mask(box)), CONFIG)
    _, then, _, _, info = arc_step(state, MaskAction(shown.operation, selection_mask(shown.box)), CONFIG)
    if not info["valid_action"]:
        raise ValueError(f"{shown} must be a valid action; the environment refused it.")
    return _active(seen), _active(then)


def _active(seen: Any) -> np.ndarray:
    height, width = (int(side) for side in seen.size)
    return np.asarray(seen.grid)[:height, :width]


def _grid(cells: np.ndarray, x: float, y: float) -> Iterator[str]:
    """Cells with their colour and its number, so that nobody needs to tell colours apart."""
    for (row, col), value in np.ndenumerate(cells):
        left, top = x + col * CELL, y + row * CELL
        ink = readable_ink(int(value))
        yield f'<rect x="{left}" y="{top}" width="{CELL}" height="{CELL}" fill="{ARC_COLORS[value]}" stroke="#777"/>'
        yield f'<text x="{left + CELL / 2}" y="{top + CELL / 2 + 4}" fill="{ink}" text-anchor="middle">{value}</text>'


def _outline(box: Box, x: float, y: float) -> Iterator[str]:
    if box is not None:
        top, left, bottom, right = box
        size = f'width="{(right - left + 1) * CELL}" height="{(bottom - top + 1) * CELL}"'
        place = f'x="{x + left * CELL}" y="{y + top * CELL}"'
        for colour, width, dash in (("#fff", 4, ""), ("#d55e00", 3, ' stroke-dasharray="6 3"')):
            yield f'<rect {place} {size} fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def operation_picture(panels: list[Shown]) -> str:
    """One picture: before, an arrow, after, for each panel; the selection is dashed."""
    side = 5 * CELL
    wide = 2 * side + GAP
    parts: list[str] = []
    for k, shown in enumerate(panels):
        x, y = (k % 2) * (wide + 2 * GAP) + 4, (k // 2) * (side + TITLE + 20) + TITLE
        before, after = before_and_after(shown)
        note = f" ({shown.said})" if shown.said else ""
        name = f"{shown.operation}: {OPERATION_NAMES[shown.operation]}{note}"
        parts.append(f'<text x="{x}" y="{y - 8}" fill="#808080" font-size="13">{name}</text>')
        parts += [*_grid(before, x, y), *_outline(shown.box, x, y), *_grid(after, x + side + GAP, y)]
        middle, right = y + 2 * CELL, x + side + GAP - 8
        parts.append(f'<path d="M{right - 22} {middle}h16" stroke="#808080" stroke-width="2"/>')
        parts.append(f'<path d="M{right - 8} {middle - 5}l8 5l-8 5z" fill="#808080"/>')
    width = min(len(panels), 2) * (wide + 2 * GAP)
    height = -(-len(panels) // 2) * (side + TITLE + 20)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    )
    return head + 'font-size="11">\n' + "\n".join(parts) + "\n</svg>\n"


def pictures() -> dict[str, str]:
    """Every file of this script with what it must hold."""
    return {f"operation-{name}.svg": operation_picture(panels) for name, panels in PICTURES.items()}


def main() -> None:
    for name, text in pictures().items():
        with atomic_write(Path(__file__).with_name(name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()

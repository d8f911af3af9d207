"""Draws docs/pictures/flow-*.svg: how data flows through the core and through each system.

python docs/pictures/architecture.py
"""

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from jaxworlds.store import atomic_write

WIDE, HIGH, ACROSS, DOWN = 164, 50, 200, 96
HOST, DEVICE = "#e69f00", "#0072b2"
"""Distinct with any colour vision; boxes on the host are also dashed."""
INK = "#808080"
"""Reads on white and on dark paper."""


class Part(NamedTuple):
    """A box at a column and a row: what it is, and a line about it."""

    column: float
    row: float
    name: str
    about: str
    where: str = DEVICE


class Arrow(NamedTuple):
    """From one part to another, by their numbers, and what goes along."""

    start: int
    end: int
    said: str = ""


FLOWS: dict[str, tuple[list[Part], list[Arrow]]] = {
    "core": (
        [
            Part(0, 0, "files, arrays", "read once", HOST),
            Part(1, 0, "shared", "never copied per world"),
            Part(1, 1, "worlds", "the carry, donated"),
            Part(2, 0.5, "compiled chunk", "many steps, one program"),
            Part(3, 0, "records", "every n-th step"),
            Part(4, 0, "Rollout", "NumPy, fetched meanwhile", HOST),
            Part(3, 1, "taps, observe", "to you, only while on"),
            Part(4, 1, "checkpoint", "whole or refused", HOST),
        ],
        [Arrow(0, 1), Arrow(1, 3), Arrow(2, 3), Arrow(3, 4), Arrow(4, 5), Arrow(3, 6), Arrow(5, 7)],
    ),
    "jaxarc": (
        [
            Part(0, 0, "task files", "ARC JSON", HOST),
            Part(1, 0, "TaskSet", "packed, 4 bits a cell", HOST),
            Part(2, 0, "TaskBank", "once for all worlds"),
            Part(2, 1, "state", "bit planes of the grid"),
            Part(1, 1, "observation", "never the answer"),
            Part(0, 1, "policy", "yours"),
            Part(0, 2, "action", "operation, selection"),
            Part(2, 2, "operation", "one pipeline for all"),
            Part(3, 2, "compare", "reward, info, the end"),
            Part(3, 1, "autoreset", "a new task, same shape"),
        ],
        [
            *(Arrow(0, 1), Arrow(1, 2), Arrow(2, 3), Arrow(3, 4), Arrow(4, 5), Arrow(5, 6), Arrow(6, 7)),
            *(Arrow(3, 7), Arrow(7, 8), Arrow(8, 9), Arrow(9, 3)),
        ],
    ),
    "acbo": (
        [
            Part(0, 0, "text, prior", "or your own table", HOST),
            Part(1, 0, "SCM", "padded arrays"),
            Part(2, 0, "sample", "rows, with and without do"),
            Part(2, 1, "Dataset", "values, what was set"),
            Part(1, 1, "teacher, surrogate", "exact, or learned"),
            Part(0, 1, "posterior", "edges, parents, effects"),
            Part(0, 2, "strategy", "policy, EI, causal BO"),
            Part(1, 2, "experiment", "what to set", HOST),
            Part(2, 2, "the world", "you, or a simulator", HOST),
            Part(3, 2, "tell", "checked, saved first", HOST),
            Part(3, 1, "Optimizer", "recommend, explain, report", HOST),
        ],
        [
            *(Arrow(0, 1), Arrow(1, 2), Arrow(2, 3), Arrow(3, 4), Arrow(4, 5), Arrow(5, 6)),
            *(Arrow(6, 7), Arrow(7, 8), Arrow(8, 9), Arrow(9, 10), Arrow(10, 3)),
        ],
    ),
    "jaxtrace": (
        [
            Part(0, 0, "files or a formula", "VTK, NetCDF, Zarr", HOST),
            Part(1, 0, "grid", "geometry: rows, weights"),
            Part(2, 0, "field", "slices, or a ring of them"),
            Part(0, 1, "seeds", "positions", HOST),
            Part(1, 1, "particles", "position, hint, life"),
            Part(2, 1, "integrator", "samples the field"),
            Part(3, 1, "boundary", "walls, patches, inlets"),
            Part(3, 2, "records", "at the asked times"),
            Part(2, 2, "Trajectory", "with outcomes and counts", HOST),
            Part(1, 2, "pictures, files", "plots, VTK, NetCDF, Zarr", HOST),
        ],
        [
            *(Arrow(0, 1), Arrow(1, 2), Arrow(2, 5), Arrow(3, 4), Arrow(4, 5), Arrow(5, 6)),
            *(Arrow(6, 7), Arrow(7, 8), Arrow(8, 9)),
        ],
    ),
}
LOOPS = {"core": (3, 2, "the next chunk"), "jaxtrace": (6, 4, "the next step")}
"""An arrow that goes back above or below the others."""


def _corner(part: Part) -> tuple[float, float]:
    return 4 + part.column * ACROSS, 26 + part.row * DOWN


def _box(part: Part) -> list[str]:
    x, y = _corner(part)
    dash = ' stroke-dasharray="5 3"' if part.where == HOST else ""
    middle = x + WIDE / 2
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{WIDE}" height="{HIGH}" rx="6" fill="{part.where}" fill-opacity="0.15" '
        f'stroke="{part.where}" stroke-width="1.5"{dash}/>',
        f'<text x="{middle:g}" y="{y + 21:g}" fill="{INK}" text-anchor="middle" font-weight="bold">{escape(part.name)}</text>',
        f'<text x="{middle:g}" y="{y + 38:g}" fill="{INK}" text-anchor="middle" font-size="11">{escape(part.about)}</text>',
    ]


def _head(x: float, y: float, dx: int, dy: int) -> str:
    """The tip of an arrow that arrives at (x, y) in the direction (dx, dy)."""
    if dx:
        return f'<path d="M{x - 8 * dx:g} {y - 4:g}l{8 * dx} 4l{-8 * dx} 4z" fill="{INK}"/>'
    return f'<path d="M{x - 4:g} {y - 8 * dy:g}l4 {8 * dy}l4 {-8 * dy}z" fill="{INK}"/>'


def _arrow(start: Part, end: Part) -> list[str]:
    (x, y), (u, v) = _corner(start), _corner(end)
    line = f'stroke="{INK}" stroke-width="1.5" fill="none"'
    if start.column == end.column:
        dy = 1 if v > y else -1
        at, begin, stop = x + WIDE / 2, y + (HIGH if dy > 0 else 0), v + (0 if dy > 0 else HIGH)
        return [f'<path d="M{at:g} {begin:g}L{at:g} {stop - 6 * dy:g}" {line}/>', _head(at, stop, 0, dy)]
    dx = 1 if u > x else -1
    begin, stop = x + (WIDE if dx > 0 else 0), u + (0 if dx > 0 else WIDE)
    half = (begin + stop) / 2
    bent = f"L{half:g} {y + HIGH / 2:g}L{half:g} {v + HIGH / 2:g}"
    path = f'<path d="M{begin:g} {y + HIGH / 2:g}{bent}L{stop - 6 * dx:g} {v + HIGH / 2:g}" {line}/>'
    return [path, _head(stop, v + HIGH / 2, dx, 0)]


def _loop(start: Part, end: Part, said: str) -> list[str]:
    """An arrow out of the bottom of one part and into the bottom of another."""
    (x, y), (u, v) = _corner(start), _corner(end)
    low = max(y, v) + HIGH + 20
    begin, stop = x + WIDE / 2 - 40, u + WIDE / 2
    path = f"M{begin:g} {y + HIGH:g}L{begin:g} {low:g}L{stop:g} {low:g}L{stop:g} {v + HIGH + 6:g}"
    return [
        f'<path d="{path}" stroke="{INK}" stroke-width="1.5" fill="none"/>',
        _head(stop, v + HIGH, 0, -1),
        f'<text x="{(begin + stop) / 2:g}" y="{low - 5:g}" fill="{INK}" text-anchor="middle" font-size="11">{said}</text>',
    ]


def flow_picture(name: str) -> str:
    """One picture."""
    parts, arrows = FLOWS[name]
    lines = [line for part in parts for line in _box(part)]
    lines += [line for arrow in arrows for line in _arrow(parts[arrow.start], parts[arrow.end])]
    if name in LOOPS:
        start, end, said = LOOPS[name]
        lines += _loop(parts[start], parts[end], said)
    lines.append(
        f'<text x="4" y="14" fill="{INK}" font-size="11">dashed: on the host; solid: on the device</text>'
    )
    width = 8 + max(part.column for part in parts) * ACROSS + WIDE
    height = 26 + max(part.row for part in parts) * DOWN + HIGH + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
    return head + 'font-family="sans-serif" font-size="13">\n' + "\n".join(lines) + "\n</svg>\n"


def pictures() -> dict[str, str]:
    """Every file of this script with what it must hold."""
    return {f"flow-{name}.svg": flow_picture(name) for name in FLOWS}


def main() -> None:
    for name, text in pictures().items():
        with atomic_write(Path(__file__).with_name(name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()

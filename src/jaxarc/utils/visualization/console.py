"""Grids, pairs, tasks and steps in the terminal: in ARC's colours at 80 columns, or as digits where none are shown."""

import sys
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from .colors import ARC_COLORS, color_rgb, readable_ink
from .panels import (
    GridLike,
    Panel,
    episode_words,
    grid_panel,
    pair_panels,
    selection_words,
    step_panels,
    step_words,
    task_panels,
)
from .records import EpisodeRecord, StepRecord, operation_name

if TYPE_CHECKING:
    from rich.text import Text

Look = Literal["wide", "half", "digits", "narrow"]
"""Two columns a cell, half a line a cell, two columns with the digit, or one column with the digit."""
_GAP = 2


def render_grid(
    grid: GridLike,
    mask: GridLike | None = None,
    *,
    title: str = "",
    selection: GridLike | None = None,
    width: int | None = None,
    colors: bool = True,
) -> "Text":
    """A grid as `rich` text: two columns a cell where that fits `width`, else two rows to a line.

    Selected cells carry `[]`, or are paler where rows share a line. With `colors=False` the cells are digits
    and selected ones carry `*`.
    """
    return _blocks([[grid_panel(grid, mask, title, selection)]], width, colors)


def render_pair(
    input: GridLike,
    output: GridLike | None,
    *,
    title: str = "",
    width: int | None = None,
    colors: bool = True,
) -> "Text":
    """Input and output side by side where that fits `width` columns, if need be with two rows to a line, else stacked."""
    return _title(title, _blocks([pair_panels(input, output)], width, colors))


def render_task(
    task: Any, *, title: str = "", answers: bool = False, width: int | None = None, colors: bool = True
) -> "Text":
    """All pairs of a task, one below the other, all at one scale; test outputs only with `answers`."""
    return _title(title, _blocks(task_panels(task, answers), width, colors))


def render_step(
    step: StepRecord,
    *,
    title: str = "",
    target: GridLike | None = None,
    width: int | None = None,
    colors: bool = True,
) -> "Text":
    """One step: what was done and what it brought, the grid before with the selection, and the grid after."""
    from rich.text import Text

    name = f"{title} {operation_name(step.operation)}".lstrip()
    head = Text.assemble((name, "bold"), f" on {selection_words(step.selection)}\n")
    head.append(step_words(step), "" if step.valid else "red")
    return _join([head, _blocks([step_panels(step, target)], width, colors)])


def print_grid(
    grid: GridLike,
    mask: GridLike | None = None,
    *,
    title: str = "Grid",
    selection: GridLike | None = None,
    console: Any = None,
) -> None:
    """Print a grid with its size; in colours on a terminal, as digits elsewhere."""
    _print(console, render_grid, grid, mask, title=title, selection=selection)


def print_pair(input: GridLike, output: GridLike | None, *, title: str = "", console: Any = None) -> None:
    """Print input and output."""
    _print(console, render_pair, input, output, title=title)


def print_task(task: Any, *, title: str = "", answers: bool = False, console: Any = None) -> None:
    """Print all pairs of a task."""
    _print(console, render_task, task, title=title, answers=answers)


def print_step(
    step: StepRecord, *, title: str = "", target: GridLike | None = None, console: Any = None
) -> None:
    """Print one step."""
    _print(console, render_step, step, title=title, target=target)


def print_episode(episode: EpisodeRecord, *, console: Any = None) -> None:
    """Print one line about an episode."""
    from rich.text import Text

    color = {"solved": "green", "unfinished": "yellow"}.get(episode.outcome, "red")
    line = Text(f"{episode.task_id} ({episode.mode}): ".lstrip()).append(episode_words(episode), color)
    _print(console, lambda **_: line)


def _print(console: Any, render: Callable[..., "Text"], *shown: Any, **options: Any) -> None:
    """Print what `render` makes of the rest, as wide and as colourful as the console is; None is standard output."""
    from rich.console import Console

    out = console or Console(file=sys.stdout)
    text = render(*shown, **options, width=out.width, colors=out.is_terminal and not out.no_color)
    out.print(text, soft_wrap=True, highlight=False)  # a folded grid is unreadable


def _columns(panel: Panel, look: Look) -> int:
    return max(panel.cells.shape[1] * (2 if look in ("wide", "digits") else 1), len(panel.title))


def _fit(blocks: Sequence[Sequence[Panel]], width: int, colors: bool) -> Look | None:
    """The largest look in which every block fits the width, if there is one."""
    looks: tuple[Look, ...] = ("wide", "half") if colors else ("digits", "narrow")
    for look in looks:
        if all(sum(_columns(p, look) for p in b) + _GAP * (len(b) - 1) <= width for b in blocks):
            return look
    return None


def _blocks(blocks: Sequence[Sequence[Panel]], width: int | None, colors: bool) -> "Text":
    """Each block side by side, or all stacked where that does not fit; a width of None is that of the terminal."""
    from rich.console import Console

    width = Console().width if width is None else width
    look = _fit(blocks, width, colors)
    if look is None:
        blocks = [(panel,) for block in blocks for panel in block]
        look = _fit(blocks, width, colors) or ("half" if colors else "narrow")
    return _join([_beside(block, look) for block in blocks])


def _title(title: str, text: "Text") -> "Text":
    from rich.text import Text

    return _join([Text(title, style="bold"), text]) if title else text


def _join(parts: Sequence["Text"]) -> "Text":
    from rich.text import Text

    return Text("\n", no_wrap=True).join(parts)


def _beside(panels: Sequence[Panel], look: Look) -> "Text":
    """Panels side by side, each line of each filled up to the panel's width."""
    from rich.text import Text

    columns = []
    for panel in panels:
        title = [Text(panel.title)] if panel.title else []
        lines = _half_lines(panel) if look == "half" else _cell_lines(panel, look)
        columns.append([*title, *lines])
    widths = [_columns(panel, look) for panel in panels]
    made = []
    for row in zip_longest(*columns):
        present = max(i for i, part in enumerate(row) if part is not None) + 1
        parts = [Text() if part is None else part for part in row[:present]]
        for part, width in zip(parts[:-1], widths, strict=False):
            part.pad_right(width - part.cell_len)
        made.append(Text(" " * _GAP).join(parts))
    return _join(made)


def _mark_selection(panel: Panel, row: int, col: int) -> bool:
    return panel.selection is not None and bool(panel.selection[row, col])


def _cell_lines(panel: Panel, look: Look) -> list["Text"]:
    from rich.text import Text

    lines = []
    for row, values in enumerate(panel.cells.tolist()):
        line = Text()
        for col, color in enumerate(values):
            marked = _mark_selection(panel, row, col)
            if look == "wide":
                style = f"bold {readable_ink(color)} on {ARC_COLORS[color]}" if color >= 0 else ""
                line.append("[]" if marked else "  ", style)
            else:
                digit = str(color) if color >= 0 else "."
                line.append(digit if look == "narrow" else ("*" if marked else " ") + digit)
        lines.append(line)
    return lines


def _half_lines(panel: Panel) -> list["Text"]:
    """Two rows to a line: the upper cell is the ink of `▀`, the lower one its paper."""
    from rich.style import Style
    from rich.text import Text

    height, width = panel.cells.shape
    lines = []
    for row in range(0, height, 2):
        line = Text()
        for col in range(width):
            upper = _shade(panel, row, col)
            lower = _shade(panel, row + 1, col) if row + 1 < height else None
            if upper:
                line.append("▀", Style(color=upper, bgcolor=lower))
            else:
                line.append("▄" if lower else " ", Style(color=lower))
        lines.append(line)
    return lines


def _shade(panel: Panel, row: int, col: int) -> str | None:
    """The colour of a cell, paler where it is selected; None where there is no cell."""
    color, marked = int(panel.cells[row, col]), _mark_selection(panel, row, col)
    if color < 0:
        return "#FFFFFF" if marked else None
    if not marked:
        return ARC_COLORS[color]
    return "#{:02X}{:02X}{:02X}".format(*((part + 255) // 2 for part in color_rgb(ARC_COLORS[color])))

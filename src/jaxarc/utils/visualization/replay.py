"""An episode as one HTML file that plays by itself: no network, small enough for hundreds of steps."""

import html
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int8

from jaxworlds.store import atomic_write

from .colors import ARC_COLORS, COLOR_NAMES
from .records import EpisodeRecord, PairRecord, StepRecord, operation_name
from .scene import runs

_LETTERS = "abcdefghij"  # colours 0 to 9; digits are taken by the lengths of runs


def episode_html(episode: EpisodeRecord, path: Any = None, *, title: str = "") -> str:
    """A page that replays `episode`; with `path` it is also written there, whole or not at all.

    Play and pause, a slider, arrow keys, input and target, the working grid before and after with the selection
    outlined, the operation, reward, similarity, validity and outcome. In test mode there is no target in the file.
    """
    from jaxarc.envs.operations import Operation

    page = Path(__file__).with_name("replay_page.html").read_text(encoding="utf-8")
    name = title or f"{episode.task_id} ({episode.mode})".strip()
    # "<" would let a task's name end the script; JSON may spell it differently.
    data = json.dumps(replay_data(episode), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = page.replace("@RESIZE@", str(int(Operation.RESIZE)))
    text = page.replace("@TITLE@", html.escape(name)).replace("@DATA@", data)
    if path is not None:
        with atomic_write(path, "w") as file:
            file.write(text)
    return text


def replay_data(episode: EpisodeRecord) -> dict[str, Any]:
    """What the page holds, as plain JSON.

    `grids` are [height, width, cells]: stretches of a letter (colour 0 is `a`) or `.` (as in the grid listed
    before, of the same size) and their length where it is not 1. Steps are [operation, before, after, selection,
    reward, similarity, flags, pair], with numbers of grids and pairs; a selection is stretches of `.` and `x`.
    """
    grids = _Grids()
    own = next((step.pair_index for step in episode.steps if step.pair is None), 0)
    pairs = [_pair_data(PairRecord(episode.mode, own, episode.input, episode.target), grids)]
    steps = []
    for step in episode.steps:
        pair = 0
        if step.pair is not None:
            row = _pair_data(step.pair, grids)
            pairs += [] if row in pairs else [row]
            pair = pairs.index(row)
        steps.append(_step_data(step, grids, pair))
    used = sorted({step.operation for step in episode.steps})
    return {
        "task": episode.task_id,
        "outcome": episode.outcome,
        "reward": _number(episode.total_reward),
        "colors": ARC_COLORS,
        "names": COLOR_NAMES,
        "operations": {str(number): operation_name(number) for number in used},
        "pairs": pairs,
        "steps": steps,
        "grids": grids.rows,
    }


class _Grids:
    """A table of grids, each once, written as what changed against the one before."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._known: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._last: Int8[np.ndarray, "h w"] | None = None

    def number(self, grid: Int8[np.ndarray, "h w"]) -> int:
        """The place of `grid` in the table, where it is put if it is new."""
        cells = np.ascontiguousarray(grid, np.int8)
        key = (cells.shape, cells.tobytes())
        if key not in self._known:
            symbols = cells.ravel().copy()
            if self._last is not None and self._last.shape == cells.shape:
                symbols[cells.ravel() == self._last.ravel()] = -1
            text = _stretches(symbols, "." + _LETTERS)
            self._known[key] = len(self.rows)
            self.rows.append([*cells.shape, text])
            self._last = cells
        return self._known[key]


def _stretches(symbols: Int8[np.ndarray, " n"], letters: str) -> str:
    """Stretches of equal symbols as letter and length; symbol −1 is the first letter."""
    return "".join(
        letters[value + 1] + (str(length) if length > 1 else "") for _, length, value in runs(symbols)
    )


def _number(value: float) -> float | None:
    """A number that JSON can hold, to six digits; None for NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _pair_data(pair: PairRecord, grids: _Grids) -> list[Any]:
    target = None if pair.target is None else grids.number(pair.target)
    return [pair.mode, pair.index, grids.number(pair.input), target]


def _step_data(step: StepRecord, grids: _Grids, pair: int) -> list[Any]:
    before, after = grids.number(step.before), grids.number(step.after)
    flags = step.valid + 2 * step.terminated + 4 * step.truncated + 8 * step.success
    cells = step.selection.ravel().astype(np.int8) - np.int8(1)
    selection = [*step.selection.shape, _stretches(cells, ".x")]
    reward, similarity = _number(step.reward), _number(step.similarity)
    return [step.operation, before, after, selection, reward, similarity, flags, pair]

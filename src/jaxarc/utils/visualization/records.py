"""What happened, as plain NumPy: grids cut to their size, steps, episodes, and the recorder that plays one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Bool, Int8

from jaxworlds.static import replace

GridLike = ArrayLike | Sequence[Sequence[int]]
MODES = ("train", "test")


def grid_cells(grid: GridLike, mask: GridLike | None = None) -> Int8[np.ndarray, "h w"]:
    """A grid cut to its active size, with −1 at cells that do not belong to it.

    `grid` is (height, width) of colours 0 to 9; cells that are −1 or outside `mask` do not belong to it. Rows
    and columns after the last cell that does are cut off.
    """
    cells = np.asarray(grid)
    if cells.size == 0:
        return np.zeros((0, 0), np.int8)
    if cells.ndim != 2 or cells.dtype.kind not in "iub":
        raise ValueError(
            f"`grid` must be whole numbers in rows and columns; got {cells.dtype} of shape {cells.shape}."
        )
    inside = cells >= 0
    if mask is not None:
        given = np.asarray(mask).astype(bool)
        if given.shape != cells.shape:
            raise ValueError(f"`mask` must have the shape of `grid`; got {given.shape} and {cells.shape}.")
        inside = inside & given
    if np.any(inside & (cells > 9)):
        row, col = map(int, np.argwhere(inside & (cells > 9))[0])
        raise ValueError(
            f"`grid` must hold colours 0 to 9, and −1 outside; got {cells[row, col]} at row {row}, column {col}."
        )
    height, width = extent(inside)
    return np.where(inside, cells, -1).astype(np.int8)[:height, :width]


def extent(marked: Bool[np.ndarray, "h w"]) -> tuple[int, int]:
    """Rows and columns, counted from the top left, that hold all marked cells."""
    rows, cols = np.nonzero(marked)
    return (int(rows.max()) + 1, int(cols.max()) + 1) if rows.size else (0, 0)


def fit_selection(selection: GridLike, shape: tuple[int, int]) -> Bool[np.ndarray, "h w"]:
    """A selection cut or filled up with False to `shape`."""
    given = np.asarray(selection).astype(bool)
    if given.ndim != 2:
        raise ValueError(f"`selection` must have rows and columns; got shape {given.shape}.")
    fitted = np.zeros(shape, bool)
    part = given[: shape[0], : shape[1]]
    fitted[: part.shape[0], : part.shape[1]] = part
    return fitted


def operation_name(operation: int) -> str:
    """What operation `operation` is called, such as "fill 3"; ids that do not exist are called so."""
    from jaxarc.envs.operations import FIRST_EXTRA, LAST_EXTRA, OPERATION_NAMES

    if 0 <= operation < len(OPERATION_NAMES):
        return OPERATION_NAMES[operation]
    return f"{'extra' if FIRST_EXTRA <= operation <= LAST_EXTRA else 'unknown'} operation {operation}"


@dataclass(frozen=True)
class PairRecord:
    """The puzzle a step belongs to; `target` is None where it must not be seen."""

    mode: str
    index: int
    input: Int8[np.ndarray, "h w"]
    target: Int8[np.ndarray, "h2 w2"] | None = None


@dataclass(frozen=True)
class StepRecord:
    """One step: what was done, the working grid before and after it, and what the environment said.

    `pair` is the puzzle that the step led to, if it differs from the first one of the episode.
    """

    operation: int
    selection: Bool[np.ndarray, "H W"]
    before: Int8[np.ndarray, "h w"]
    after: Int8[np.ndarray, "h2 w2"]
    reward: float
    similarity: float
    valid: bool
    terminated: bool
    truncated: bool
    success: bool
    pair_index: int
    pair: PairRecord | None = None


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode: the puzzle it started with and its steps. `target` is None in test mode."""

    task_id: str
    mode: str
    input: Int8[np.ndarray, "h w"]
    target: Int8[np.ndarray, "h2 w2"] | None
    steps: tuple[StepRecord, ...]

    @property
    def total_reward(self) -> float:
        """The sum of all rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def success(self) -> bool:
        """Whether a step solved the task."""
        return any(step.success for step in self.steps)

    @property
    def length(self) -> int:
        """The number of steps."""
        return len(self.steps)

    @property
    def final_similarity(self) -> float:
        """The similarity after the last step; NaN before any."""
        return self.steps[-1].similarity if self.steps else float("nan")

    @property
    def outcome(self) -> str:
        """How it ended: solved, failed, out of steps, or unfinished."""
        if self.success:
            return "solved"
        if not self.steps or not (self.steps[-1].terminated or self.steps[-1].truncated):
            return "unfinished"
        return "failed" if self.steps[-1].terminated else "out of steps"


Policy = Callable[[Any, int], Any]


def record_episode(
    start: Any,
    actions: Iterable[Any] | Policy,
    config: Any,
    step: Callable[..., Any] | None = None,
    *,
    task_id: str | None = None,
    max_steps: int | None = None,
) -> EpisodeRecord:
    """Play one episode through the environment and record it; it stops when the episode is done.

    **Arguments:**

    - `start`: what `arc_reset` returned, `(state, obs)`, or the state alone.
    - `actions`: actions to take one after the other, or a policy `(obs, t) -> action`.
    - `config`: the environment's; its autoreset is switched off here, so that the last grid can be seen.
    - `step`: `arc_step`, or a function with its signature.
    - `task_id`: the name in the record; by default the index of the task.
    - `max_steps`: stop after this number of steps, even if the episode is not over.

    In test mode the record holds no target.
    """
    from jaxarc.dispatch import arc_step
    from jaxarc.envs.observations import observe
    from jaxarc.tasks.bank import as_bank

    step = step or arc_step
    config = replace(config, environment=replace(config.environment, autoreset=None))
    state, obs = start if isinstance(start, tuple) else (start, None)
    if callable(actions) and obs is None:
        obs = observe(state, as_bank(state.task_data), config)
    if np.ndim(state.height):
        raise ValueError(
            f"`start` must be one environment; got a batch of shape {np.shape(state.height)}. Begin with `arc_reset`."
        )
    first = _pair_of(state)
    pairs = {(first.mode, first.index): first}
    queue = None if callable(actions) else iter(actions)
    records: list[StepRecord] = []
    working, canvas = _working(state)
    while max_steps is None or len(records) < max_steps:
        if queue is None:
            action = actions(obs, len(records))  # pyright: ignore[reportCallIssue]
        elif (action := next(queue, None)) is None:
            break
        state, obs, reward, done, info = step(state, action, config)
        place = (MODES[int(state.episode_mode)], int(info["current_pair_index"]))
        pair = pairs[place] if place in pairs else pairs.setdefault(place, _pair_of(state))
        before, (working, canvas) = working, _working(state)
        selection = np.asarray(action.to_selection_mask(canvas)).astype(bool)
        grids = {"selection": selection, "before": before, "after": working}
        pair_led_to = None if pair is first else pair
        records.append(_step_record(int(action.operation), reward, info, **grids, pair=pair_led_to))
        if bool(done):
            break
    name = f"task {int(state.task_index)}" if task_id is None else task_id
    return EpisodeRecord(name, first.mode, first.input, first.target, tuple(records))


def _working(state: Any) -> tuple[Int8[np.ndarray, "h w"], tuple[int, int]]:
    """The working grid cut to its size, and the size of the canvas."""
    cells = np.asarray(state.working_grid)
    rows, cols = cells.shape
    return cells[: int(state.height), : int(state.width)].astype(np.int8), (rows, cols)


def _pair_of(state: Any) -> PairRecord:
    mode = MODES[int(state.episode_mode)]
    target = None if mode == "test" else grid_cells(state.target_grid)
    return PairRecord(mode, int(state.pair_index), grid_cells(state.input_grid), target)


def _step_record(operation: int, reward: Any, info: Any, **seen: Any) -> StepRecord:
    """What a step returned as plain numbers, beside the grids and the pair that were `seen`."""
    flags = {name: bool(info[name]) for name in ("terminated", "truncated", "success")}
    return StepRecord(
        operation=operation,
        reward=float(reward),
        similarity=float(info["similarity"]),
        valid=bool(info["valid_action"]),
        pair_index=int(info["current_pair_index"]),
        **flags,
        **seen,
    )

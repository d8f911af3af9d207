"""An agent that knows the answer: it resizes, paints and submits, with the environment's own actions alone."""

import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Int32

from jaxworlds.arguments import short

from ..dispatch import kernels_on
from ..envs.config import JaxArcConfig
from ..envs.operations import Operation
from ..envs.state import ArcEnvState, join_tasks
from ..envs.structured_actions import FORMATS, AbstractAction
from ..tasks.planes import MAX_SIDE
from .rollout import play_loop

_Box = tuple[int, int, int, int]
_Plan = list[tuple[int, Any]]  # operations with a box, or with a mask where masks are asked for


class Painted(eqx.Module):
    """Results of painting: the final states, whether each was solved, and how many steps each took."""

    states: ArcEnvState
    success: Bool[Array, " b"]
    steps: Int32[Array, " b"]


def painting_actions(
    grid: Any, target: Any, selection_format: str = "bbox", canvas: tuple[int, int] | None = None
) -> list[AbstractAction]:
    """Actions that turn `grid` into `target` and submit it: resize if needed, then paint what differs.

    Grids are 2-D colours; −1, as in observations, marks cells outside. Points paint cell by cell, boxes paint
    rectangles of one colour, masks one colour at a time. `canvas` is that of the environment, `config.canvas`, and the
    shape of masks. Left out, masks are 30×30; points and boxes need none, and grids up to 32×32 are painted.

    >>> [int(action.operation) for action in painting_actions([[1, 2]], [[1], [3]])]
    [33, 3, 34]
    """
    room = canvas or ((30, 30) if selection_format == "mask" else (MAX_SIDE, MAX_SIDE))
    start, end = _crop(grid, "grid"), _crop(target, "target")
    plan = _plan(start, end, selection_format, room)
    return [_action([step], selection_format, single=True) for step in plan]


def solve_by_painting(
    states: ArcEnvState, config: JaxArcConfig, selection_format: str | None = None
) -> Painted:
    """Paint the answer of every environment of a batch, all at once; it ends when every episode has.

    Boxes need the fewest steps after masks; `config.environment.max_episode_steps` must be enough for the longest.

    ```python
    states, _ = batch_reset(keys, config, tasks)
    assert solve_by_painting(states, config).success.all()
    ```
    """
    if config.environment.autoreset is not None:
        raise ValueError(
            "`config.environment.autoreset` must be None, or what was solved is gone; "
            f"got {config.environment.autoreset!r}."
        )
    form = selection_format or config.action.selection_format
    shown = np.where(states.working_grid_mask, states.working_grid, np.int8(-1))
    plans = [
        _plan(_crop(grid, "grid"), _crop(target, "target"), form, config.canvas)
        for grid, target in zip(shown, np.asarray(states.target_grid), strict=True)
    ]
    longest, limit = max(map(len, plans)), config.environment.max_episode_steps
    if longest > limit:
        raise ValueError(
            f"`config.environment.max_episode_steps` must be at least {longest} to paint with {form} actions; "
            f"got {limit}."
        )
    # Nothing changes after the submission that ends an episode, so repeating it fills the shorter plans up.
    # A power of two as the length keeps the number of programs low.
    length = 1 << (longest - 1).bit_length()
    padded = [plan + plan[-1:] * (length - len(plan)) for plan in plans]
    steps = [step for row in zip(*padded, strict=True) for step in row]
    flat = _action(steps, form)
    actions = jax.tree.map(lambda leaf: leaf.reshape(length, len(plans), *leaf.shape[1:]), flat)
    final = _play_actions(join_tasks(states, None), states.task_data, actions, config, kernels_on())
    return Painted(join_tasks(final, states.task_data), final.success, final.step_count)


@functools.partial(jax.jit, static_argnames="kernels")
def _play_actions(
    states: ArcEnvState, tasks: Any, actions: AbstractAction, config: JaxArcConfig, kernels: bool
) -> ArcEnvState:
    """The states when every episode is over; `actions` has the steps in front, then the batch."""
    return play_loop(lambda _, chosen: chosen, states, tasks, config, actions, until_over=True).states


def _crop(grid: Any, name: str) -> np.ndarray:
    """A grid without the cells that are marked as outside."""
    try:
        cells = np.asarray(grid)
    except ValueError:  # rows of different length
        raise ValueError(f"`{name}` must have rows of one length; got {short(grid)}.") from None
    if cells.ndim != 2:
        raise ValueError(
            f"`{name}` must be a grid, rows of colours; got the shape {cells.shape}. One row is [[1, 2, 3]]."
        )
    inside = cells >= 0
    return cells[: inside.any(1).sum(), : inside.any(0).sum()]


def _plan(grid: np.ndarray, target: np.ndarray, form: str, canvas: tuple[int, int]) -> _Plan:
    if form not in FORMATS:
        raise ValueError(f"`selection_format` must be 'point', 'bbox' or 'mask'; got {form!r}.")
    height, width = target.shape
    for name, (high, wide) in (("grid", grid.shape), ("target", target.shape)):
        if not (1 <= high <= canvas[0] and 1 <= wide <= canvas[1]):
            remedy = (
                f" Pass the environment's canvas, such as `canvas=({max(canvas[0], high)}, {max(canvas[1], wide)})`."
                if 1 <= high <= MAX_SIDE and 1 <= wide <= MAX_SIDE
                else ""
            )
            raise ValueError(
                f"`{name}` must have 1×1 to {canvas[0]}×{canvas[1]} cells; got {high}×{wide}.{remedy}"
            )
    corner = (height - 1, width - 1, height - 1, width - 1)
    boxes: list[tuple[int, _Box]] = []
    start = grid
    if grid.shape != target.shape:
        boxes.append((Operation.RESIZE, corner))
        start = np.zeros_like(target)
        both = np.minimum(grid.shape, target.shape)
        start[: both[0], : both[1]] = grid[: both[0], : both[1]]
    wrong = start != target
    if form == "point":
        boxes += [(int(target[r, c]), (int(r), int(c), int(r), int(c))) for r, c in np.argwhere(wrong)]
    elif form == "bbox":
        boxes += _rectangles(target, wrong)
    if form != "mask":
        return [*boxes, (Operation.SUBMIT, (0, 0, 0, 0))]
    room = [(0, side - used) for side, used in zip(canvas, target.shape, strict=True)]
    cells = [(int(colour), wrong & (target == colour)) for colour in np.unique(target[wrong])]
    if boxes:  # the resizing
        last = np.zeros(target.shape, bool)
        last[corner[:2]] = True
        cells.insert(0, (Operation.RESIZE, last))
    cells.append((Operation.SUBMIT, np.zeros(target.shape, bool)))
    return [(operation, np.pad(mask, room)) for operation, mask in cells]


def _rectangles(target: np.ndarray, wrong: np.ndarray) -> list[tuple[int, _Box]]:
    """Rectangles of one colour that together cover all wrong cells, each as large as its top-left cell allows."""
    left, boxes = wrong.copy(), []
    for r, c in np.argwhere(wrong):
        if not left[r, c]:
            continue
        same = target[r:, c:] == target[r, c]
        options = [_largest_at_corner(same), tuple(reversed(_largest_at_corner(same.T)))]
        height, width = max(options, key=lambda size: left[r : r + size[0], c : c + size[1]].sum())
        left[r : r + height, c : c + width] = False
        boxes.append((int(target[r, c]), (int(r), int(c), int(r + height - 1), int(c + width - 1))))
    return boxes


def _largest_at_corner(same: np.ndarray) -> tuple[int, int]:
    """Height and width of the rectangle at the top-left corner that is as wide as possible, and then as high."""
    width = _run(same[0])
    return _run(np.asarray(same[:, :width].all(1))), width


def _run(flags: np.ndarray) -> int:
    return len(flags) if flags.all() else int(np.argmin(flags))


def _action(steps: _Plan, form: str, single: bool = False) -> Any:
    """Steps of a plan as one action with an axis for them, or the only one without."""
    operations = np.array([operation for operation, _ in steps], np.int32)
    kind, names = FORMATS[form]
    if form == "mask":
        selections = [np.stack([mask for _, mask in steps])]
    else:
        selections = np.array([box for _, box in steps], np.int32).T[: len(names)]
    fields: tuple[Any, ...] = (operations, *selections)
    return kind(*(field[0] for field in fields)) if single else kind(*fields)

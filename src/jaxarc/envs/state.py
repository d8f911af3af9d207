"""The state of one environment: its grid, the task and pair it is at, and the tasks that a batch shares."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float32, Int8, Int32, UInt8, UInt32

from ..tasks import planes
from ..tasks.bank import Grid, JaxArcTask, TaskBank, as_bank, demand_fit, max_pairs, same_sizes
from .history import ActionHistory
from .operations import Workspace
from .vmap_guard import VmapGuard


class ArcEnvState(eqx.Module):
    """One environment, or a batch of them: every field has the batch's axes in front, except `task_data`.

    `task_data` holds the task or the bank, once for the whole batch; the state only says which task and pair it is at.
    `reset_mode` and `reset_pair` are where the episode began, and where `autoreset="same"` returns to. `wrong` and
    `solved` count wrong submissions and mark solved pairs, by mode and pair; they are there only if the operations that
    change the pair are.
    """

    planes: UInt32[Array, "*b 4 rows"]
    height: Int32[Array, "*b"]
    width: Int32[Array, "*b"]
    clipboard: UInt32[Array, "*b 4 rows"]
    clipboard_mask: UInt32[Array, "*b rows"]
    task_index: Int32[Array, "*b"]
    episode_mode: Int32[Array, "*b"]
    reset_mode: Int32[Array, "*b"]
    reset_pair: Int32[Array, "*b"]
    pair_index: Int32[Array, "*b"]
    step_count: Int32[Array, "*b"]
    attempts_used: Int32[Array, "*b"]
    similarity: Float32[Array, "*b"]
    terminated: Bool[Array, "*b"]
    truncated: Bool[Array, "*b"]
    success: Bool[Array, "*b"]
    wrong: UInt8[Array, "*b 2 pairs"] | None
    solved: Bool[Array, "*b 2 pairs"] | None
    key: UInt32[Array, "*b 2"]
    action_history: ActionHistory
    task_data: Any
    canvas_width: int = eqx.field(static=True)
    guard: VmapGuard = eqx.field(default=VmapGuard(), repr=False)

    @property
    def working_grid(self) -> Int8[Array, "*b rows cols"]:
        """The grid as colours, 0 outside of the active part."""
        return planes.decode(self.planes, self.canvas_width)

    @property
    def working_grid_mask(self) -> Bool[Array, "*b rows cols"]:
        """The active part of the grid."""
        return planes.show(self.planes, self.height, self.width, self.canvas_width) >= 0

    @property
    def done(self) -> Bool[Array, "*b"]:
        """Whether the episode is over."""
        return self.terminated | self.truncated

    @property
    def workspace(self) -> Workspace:
        """What operations act on, of one environment."""
        return Workspace(Grid(self.planes, self.height, self.width), self.clipboard, self.clipboard_mask)

    @property
    def input_grid(self) -> Int8[Array, "*b rows cols"]:
        """The input of the current pair, −1 outside of it."""
        return _cells_of(self, TaskBank.input_at)

    @property
    def target_grid(self) -> Int8[Array, "*b rows cols"]:
        """The output that solves the current pair, −1 outside of it. For people: no observation shows it."""
        return _cells_of(self, TaskBank.output_at)


def _cells_of(state: ArcEnvState, read: Callable[..., Grid]) -> Array:
    """A grid of the pair of every environment of a batch, however many axes it has."""
    if state.height.ndim:
        return jax.vmap(lambda one: _cells_of(one, read), in_axes=(state_axes(state),))(state)
    bank = as_bank(state.task_data)
    place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
    grid = read(bank, place, state.planes.shape[-1])
    cells = planes.show(grid.planes, grid.height, grid.width, state.canvas_width)
    return jnp.where(has_pair(state, bank), cells, jnp.int8(-1))


def has_pair(state: ArcEnvState, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether the bank has the task and the pair that a state is at, and both grids of it fit the canvas."""
    return bank.has_pair(
        *(state.task_index, state.episode_mode, state.pair_index),
        canvas=(state.planes.shape[-1], state.canvas_width),
    )


def replace_tasks(state: ArcEnvState, task_data: Any) -> ArcEnvState:
    """The same state with other tasks, such as a bank with new weights; it holds a copy of them, as after a reset.

    Tasks with grids that do not fit the state's canvas are refused, and so are tasks that lack the one that a state is
    at. Inside your own `jit` the values cannot be looked at: there the step says so (`info["task_missing"]`).
    """
    if not isinstance(task_data, JaxArcTask):
        task_data = as_bank(task_data)
    demand_tasks(state, task_data)
    arrays = [state.task_index, *jax.tree.leaves(task_data)]
    if is_shared(task_data) and not any(isinstance(leaf, Tracer) for leaf in arrays):
        bank = as_bank(task_data)
        first, index = int(bank.offset), np.asarray(state.task_index)
        if index.size and not ((index >= first) & (index < first + len(bank))).all():
            raise IndexError(
                f"`task_data` must hold the tasks that the states are at; it has {first} to {first + len(bank) - 1}, and "
                f"the states are at {index.min()} to {index.max()}. Pass the tasks of the reset, or reset with these."
            )
    return join_tasks(state, copy_tasks(task_data))


def copy_tasks(task_data: Any) -> Any:
    """The tasks in arrays of their own, which may be donated together with a state."""
    return same_sizes(jax.tree.map(jnp.copy, task_data), task_data)


def demand_tasks(state: ArcEnvState, task_data: Any) -> None:
    """Raise unless a state can go on with these tasks, as far as shapes tell, and values where they are known."""
    if task_data is None:
        raise ValueError(
            "`state` holds no tasks. Give it those of its reset: `replace_tasks(state, task_data)`, or keep the state as "
            "`arc_reset` returned it."
        )
    if is_deleted(task_data):
        raise ValueError(
            "`state.task_data` was donated with a state that came from this one: steps hand the tasks on. Keep the latest "
            "state, reset again, or give this one tasks: `replace_tasks(state, task_data)`."
        )
    demand_fit(task_data, state.planes.shape[-1], state.canvas_width)
    if state.wrong is not None:
        have, need = state.wrong.shape[-1], max_pairs(task_data)
        if have < need:
            raise ValueError(
                f"`task_data` has tasks of up to {need} pairs, and the states were reset with tasks of up to {have}: "
                "they have no room to mark the others as solved. Reset with these tasks."
            )


def join_tasks(state: ArcEnvState, task_data: Any) -> ArcEnvState:
    """The state with these tasks, unchecked and not copied, or without (None); quicker than `eqx.tree_at`."""
    new = object.__new__(ArcEnvState)
    for name in _FIELDS:
        object.__setattr__(new, name, getattr(state, name))
    object.__setattr__(new, "task_data", task_data)
    return new


_FIELDS = tuple(field.name for field in dataclasses.fields(ArcEnvState) if field.name != "task_data")


VmapGuard.state_class = ArcEnvState


def is_deleted(task_data: Any) -> bool:
    """True for tasks that were given away with a donated state."""
    first = jax.tree.leaves(task_data)[0]
    return isinstance(first, jax.Array) and not isinstance(first, Tracer) and first.is_deleted()


def is_shared(task_data: Any) -> bool:
    """Whether tasks stand once for a whole batch (as `batch_reset` leaves them) and not once per environment."""
    if isinstance(task_data, JaxArcTask):
        return task_data.num_train_pairs.ndim == 0
    return not isinstance(task_data, TaskBank) or task_data.first_pair.ndim == 1


VmapGuard.is_shared = staticmethod(is_shared)


def state_axes(state: ArcEnvState) -> Any:
    """The `in_axes` and `out_axes` of a batch of states, for a `jax.vmap` of your own.

    ```python
    axes = state_axes(states)
    step = jax.vmap(arc_step, in_axes=(axes, 0, None), out_axes=(axes, 0, 0, 0, 0))
    ```
    """
    axes = jax.tree.map(lambda _: 0, state)
    if not is_shared(state.task_data):
        return axes
    return join_tasks(axes, jax.tree.map(lambda _: None, state.task_data))


def state_bytes(state: ArcEnvState) -> int:
    """Bytes of one environment, the shared tasks not counted."""
    leaves = jax.tree.leaves(join_tasks(state, None))
    return sum(leaf.nbytes for leaf in leaves) // max(1, state.height.size)


def consistent(state: ArcEnvState, bank: TaskBank) -> Bool[Array, ""]:
    """Whether the state of one environment could have come about: sizes, indices, and nothing outside of the grid."""
    rows = state.planes.shape[-1]
    inside = Grid(state.planes, state.height, state.width).active
    row = state.task_index - bank.offset
    return (
        (state.height >= 1)
        & (state.height <= rows)
        & (state.width >= 1)
        & (state.width <= state.canvas_width)
        & ~jnp.any((state.planes & ~inside) != 0)
        & ~jnp.any((state.clipboard & ~state.clipboard_mask) != 0)
        # Colours above 9 have bit 3 and one of bits 1 and 2.
        & ~jnp.any((state.planes[3] & (state.planes[1] | state.planes[2])) != 0)
        & (row >= 0)
        & (row < len(bank))
        & (state.pair_index >= 0)
        & (state.pair_index < bank.pairs_of(state.task_index, state.episode_mode))
        & (state.step_count >= 0)
        & (state.similarity >= 0)
        & (state.similarity <= 1)
        & ~(state.success & ~state.terminated)
    )

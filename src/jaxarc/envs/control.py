"""Operations 35 to 41: switch to another pair of the task within the episode."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from ..tasks.bank import TEST, TRAIN, TaskBank
from .operations import Operation
from .state import ArcEnvState


def switch_pair(
    state: ArcEnvState, bank: TaskBank, operation: Int32[Array, ""]
) -> tuple[ArcEnvState, Bool[Array, ""], Bool[Array, ""]]:
    """The state at the pair that the operation names, whether it is such an operation, and whether that pair exists.

    The pair's input becomes the grid; the clipboard stays, except when the pair is reset; submissions that were wrong
    stay counted.
    """
    if state.wrong is None or state.solved is None:
        raise ValueError(
            "`state` must come from a reset with `control_operations=True`; it has no marks of pairs."
        )
    is_control = (operation >= Operation.NEXT_DEMONSTRATION) & (operation <= Operation.FIRST_UNSOLVED_TEST)
    mode, pair, there = _destination(state, state.solved, bank, operation)
    goes = is_control & there
    rows = state.planes.shape[-1]
    source = bank.input_at(bank.place_of(state.task_index, mode, pair), rows)
    resets = goes & (operation == Operation.RESET_PAIR)
    moved = replace(
        state,
        planes=jnp.where(goes, source.planes, state.planes),
        height=jnp.where(goes, source.height, state.height),
        width=jnp.where(goes, source.width, state.width),
        episode_mode=jnp.where(goes, mode, state.episode_mode),
        pair_index=jnp.where(goes, pair, state.pair_index),
        attempts_used=jnp.where(goes, state.wrong[mode, pair].astype(jnp.int32), state.attempts_used),
        clipboard=jnp.where(resets, jnp.uint32(0), state.clipboard),
        clipboard_mask=jnp.where(resets, jnp.uint32(0), state.clipboard_mask),
    )
    return moved, is_control, there | ~is_control


def _destination(
    state: ArcEnvState, solved: Array, bank: TaskBank, operation: Array
) -> tuple[Array, Array, Array]:
    """Mode and pair that the operation goes to, and whether there is such a pair (else the current one)."""
    forward = _any_of(operation, Operation.NEXT_DEMONSTRATION, Operation.NEXT_TEST)
    backward = _any_of(operation, Operation.PREVIOUS_DEMONSTRATION, Operation.PREVIOUS_TEST)
    seeks = _any_of(operation, Operation.FIRST_UNSOLVED_DEMONSTRATION, Operation.FIRST_UNSOLVED_TEST)
    test = _any_of(operation, Operation.NEXT_TEST, Operation.PREVIOUS_TEST, Operation.FIRST_UNSOLVED_TEST)
    demo = (forward | backward | seeks) & ~test
    mode = jnp.where(demo, TRAIN, jnp.where(test, TEST, state.episode_mode))
    count = bank.pairs_of(state.task_index, mode)
    stays = mode == state.episode_mode
    many = jnp.maximum(count, 1)
    following = jnp.where(stays, (state.pair_index + 1) % many, 0)
    preceding = jnp.where(stays, (state.pair_index - 1) % many, many - 1)
    unsolved = ~solved[mode] & (jnp.arange(solved.shape[1]) < count)
    pair = jnp.where(forward, following, jnp.where(backward, preceding, state.pair_index))
    pair = jnp.where(seeks, jnp.argmax(unsolved).astype(jnp.int32), pair)
    there = (count > 0) & (~seeks | jnp.any(unsolved))
    here = jnp.where(there, mode, state.episode_mode).astype(jnp.int32)
    return here, jnp.where(there, pair, state.pair_index).astype(jnp.int32), there


def _any_of(operation: Array, *codes: int) -> Array:
    return jnp.stack([operation == code for code in codes]).any(0)

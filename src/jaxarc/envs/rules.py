"""The rules around an operation: which are allowed, how a step is scored, and what it reports.

Functions whose shapes are "*b" serve one environment, a batch, or a kernel; the others serve one environment.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from ..tasks.bank import TEST, TRAIN, TaskBank
from . import operations as ops
from .config import EnvironmentConfig, JaxArcConfig
from .history import ActionHistory, remember
from .rewards import Transition, reward_of
from .state import ArcEnvState
from .structured_actions import AbstractAction


def allowed_operation(
    over: Array, operation: Array, placed: Array, config: JaxArcConfig
) -> tuple[Array, Array]:
    """The operation to carry out (−1 for none), and whether the operation exists and is allowed.

    `over` says that the episode is over, `placed` that the action lies on the canvas.
    """
    allowed = is_allowed(operation, config)
    return jnp.where(allowed & placed & ~over, operation, -1), allowed


def is_allowed(operation: Int32[Array, "*b"], config: JaxArcConfig) -> Bool[Array, "*b"]:
    """Whether an operation exists and is allowed."""
    exists = (operation >= 0) & (operation < config.action.num_operations)
    if config.action.extra_operations:
        exists |= is_extra(operation, config)
    if config.action.allowed_operations is None:
        return exists
    # Two words with a bit for each operation: kernels have no tables.
    words = [
        sum(1 << (one % 32) for one in config.action.allowed_operations if one // 32 == k) for k in (0, 1)
    ]
    word = jnp.where(operation < 32, jnp.uint32(words[0]), jnp.uint32(words[1]))
    return exists & (((word >> (operation & 31).astype(jnp.uint32)) & jnp.uint32(1)) == 1)


def is_extra(operation: Int32[Array, "*b"], config: JaxArcConfig) -> Bool[Array, "*b"]:
    """Whether an operation is one of the config's `extra_operations`."""
    return (operation >= ops.FIRST_EXTRA) & (
        operation < ops.FIRST_EXTRA + len(config.action.extra_operations)
    )


def operation_kind(operation: Int32[Array, ""], config: JaxArcConfig) -> Int32[Array, ""]:
    """`operations.operation_type` for all operations of a config, `extra_operations` included."""
    kind = ops.operation_type(operation)
    if not config.action.extra_operations:
        return kind
    return jnp.where(is_extra(operation, config), ops.OPERATION_TYPES.index(ops.EXTRA), kind)


class Tally(NamedTuple):
    """The progress of an episode."""

    steps: Int32[Array, "*b"]
    attempts: Int32[Array, "*b"]
    terminated: Bool[Array, "*b"]
    truncated: Bool[Array, "*b"]
    success: Bool[Array, "*b"]

    @property
    def over(self) -> Bool[Array, "*b"]:
        """Whether the episode is over."""
        return self.terminated | self.truncated


def update_tally(tally: Tally, wrong: Array, won: Array, rules: EnvironmentConfig) -> Tally:
    """The tally after a step that was a `wrong` submission, `won` the episode, or neither."""
    over = tally.over
    attempts = tally.attempts + wrong.astype(jnp.int32)
    steps = tally.steps + (~over).astype(jnp.int32)
    terminated = tally.terminated | won | (wrong & (attempts >= rules.max_attempts))
    truncated = (over & tally.truncated) | (~over & ~terminated & (steps >= rules.max_episode_steps))
    return Tally(steps, attempts, terminated, truncated, tally.success | won)


class Outcome(NamedTuple):
    """The result of a step. `was_over` says that the episode was over before it."""

    was_over: Bool[Array, "*b"]
    valid: Bool[Array, "*b"]
    submitted: Bool[Array, "*b"]
    solved: Bool[Array, "*b"]
    is_control: Bool[Array, "*b"]
    tally: Tally
    similarity: Float32[Array, "*b"]
    """Similarity of the grid and its target."""
    before: Float32[Array, "*b"]
    """Similarity before the step."""
    reached: Float32[Array, "*b"]
    """Similarity after the step with the target before it: `similarity`, or that of the pair's input where the step left
    or reset the pair."""


def similarity(agree: Int32[Array, "*b"], union: Int32[Array, "*b"]) -> Float32[Array, "*b"]:
    """The share of cells that agree; exactly 1 if all agree."""
    # A GPU divides with an error of up to 2 units in the last place (seen on an H200); all right must still be 1.
    share = agree.astype(jnp.float32) / union.astype(jnp.float32)
    return jnp.where(agree == union, jnp.float32(1), share)


class Attempt(NamedTuple):
    """An action that was carried out on one environment, before it is scored."""

    valid: Bool[Array, ""]
    submits: Bool[Array, ""]
    is_control: Bool[Array, ""]
    shares: tuple[Int32[Array, ""], Int32[Array, ""]]
    """Cells that agree with the target, and cells of both."""
    pair_start: tuple[Int32[Array, ""], Int32[Array, ""]] | None
    """The same for the input of the pair that the step started at, if pairs can change."""


def score_step(
    state: ArcEnvState, worked: ArcEnvState, attempt: Attempt, bank: TaskBank, config: JaxArcConfig
) -> tuple[ArcEnvState, Outcome]:
    """Compare one environment with its target after an action, update its tally and end its episode where it ends.

    `worked` is the state with the grid after the operation.
    """
    valid, submits, is_control, (agree, union), pair_start = attempt
    solved, submitted = agree == union, submits & valid
    right, wrong = submitted & solved, submitted & ~solved
    mode, pair = worked.episode_mode, worked.pair_index
    marks, counts = worked.solved, worked.wrong
    won = right
    if marks is not None and counts is not None:
        marks = marks.at[mode, pair].set(marks[mode, pair] | right)
        counts = counts.at[mode, pair].set((worked.attempts_used + wrong).astype(jnp.uint8))
    if config.environment.solve == "all" and marks is not None:
        needed = jnp.arange(marks.shape[1]) < bank.pairs_of(worked.task_index, mode)
        won = right & jnp.all(marks[mode] | ~needed)
    before = worked.step_count, worked.attempts_used, worked.terminated, worked.truncated, worked.success
    tally = update_tally(Tally(*before), wrong, won, config.environment)
    over = state.done
    near = jnp.where(over, state.similarity, similarity(agree, union))
    reached = near
    if pair_start is not None:
        reached = jnp.where(is_control & valid, similarity(*pair_start), near)
    outcome = Outcome(over, valid, submitted, solved, is_control, tally, near, state.similarity, reached)
    return with_outcome(replace(worked, wrong=counts, solved=marks), tally, near), outcome


def with_outcome(state: ArcEnvState, tally: Tally, new_similarity: Array) -> ArcEnvState:
    """The state with a new tally and similarity."""
    return eqx.tree_at(
        lambda s: (s.step_count, s.attempts_used, s.terminated, s.truncated, s.success, s.similarity),
        state,
        (*tally, new_similarity),
    )


def report_step(
    state: ArcEnvState,
    after: ArcEnvState,
    outcome: Outcome,
    placed: Array,
    action: AbstractAction,
    bank: TaskBank,
    config: JaxArcConfig,
) -> tuple[Float32[Array, ""], ActionHistory, dict[str, Any]]:
    """Reward, history and information of one environment's step from `state` to `after`."""
    tally, before, reached = outcome.tally, outcome.before, outcome.reached
    # On a test pair the similarity would tell the answer to the agent that sees the reward.
    shown = state.episode_mode == TRAIN
    if state.solved is not None:  # only an unsolved pair of the episode's own mode counts
        shown &= state.episode_mode == state.reset_mode
        shown &= ~state.solved[state.episode_mode, state.pair_index]
    transition = Transition(
        operation=action.operation,
        valid=outcome.valid,
        similarity_before=jnp.where(shown, before, jnp.float32(0)),
        similarity_after=jnp.where(shown, reached, jnp.float32(0)),
        submitted=outcome.submitted,
        solved=outcome.solved & (shown | outcome.submitted),
        success=tally.success & ~outcome.was_over,
        truncated=tally.truncated,
        episode_mode=after.episode_mode,
        step_count=tally.steps,
    )
    reward = jnp.where(outcome.was_over, jnp.float32(0), reward_of(config.reward)(transition))
    history = remember(
        *(state.action_history, action, action.selection_rows(*config.canvas), outcome.valid, placed),
        *(state.episode_mode, state.pair_index, ~outcome.was_over),
    )
    info = {
        "terminated": tally.terminated,
        "truncated": tally.truncated,
        "success": tally.success,
        "similarity": outcome.similarity,
        "similarity_improvement": reached - before,
        "step_count": tally.steps,
        "valid_action": outcome.valid,
        "was_over": outcome.was_over,
        "operation_type": operation_kind(action.operation, config),
        "is_control_operation": outcome.is_control,
        "episode_mode": after.episode_mode,
        "task_index": after.task_index,
        "current_pair_index": after.pair_index,
        "available_demo_pairs": bank.pairs_of(after.task_index, jnp.int32(TRAIN)),
        "available_test_pairs": bank.pairs_of(after.task_index, jnp.int32(TEST)),
        "attempts_used": tally.attempts,
        "action_history_length": history.length,
    }
    return reward, history, info


def without_result(state: ArcEnvState, missing: Array) -> ArcEnvState:
    """The state, over and with similarity NaN where its task is `missing`."""
    return replace(
        state,
        similarity=jnp.where(missing, jnp.float32(jnp.nan), state.similarity),
        terminated=state.terminated & ~missing,
        truncated=state.truncated | missing,
        success=state.success & ~missing,
    )


def with_workspace(state: ArcEnvState, space: ops.Workspace) -> ArcEnvState:
    """The state with a new grid and clipboard."""
    clipboard = {"clipboard": space.clipboard, "clipboard_mask": space.clipboard_mask}
    return replace(state, **vars(space.grid), **clipboard)

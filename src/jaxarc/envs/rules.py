"""What surrounds an operation: what is asked for, what comes of it, and how the next episode begins.

Everything here concerns the numbers of an environment; grids are worked on elsewhere: by `operations`, or for a whole
batch by the kernel of `jaxarc.envs.kernels`, which uses what works on many environments at once ("*b") too.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from ..tasks.bank import TEST, TRAIN, Grid, TaskBank
from . import operations as ops
from .config import FIRST_EXTRA, EnvironmentConfig, JaxArcConfig
from .draws import threefry
from .history import ActionHistory, empty_history, remember
from .kernels import native
from .rewards import Transition, reward_of
from .state import ArcEnvState, has_pair
from .structured_actions import AbstractAction

# --- what is asked for ---


def asked(over: Array, operation: Array, placed: Array, config: JaxArcConfig) -> tuple[Array, Array]:
    """The operation that is carried out, −1 if it may not be, and whether it is known.

    `over` says that the episode is over, `placed` that the action lies on the canvas.
    """
    known = is_known(operation, config)
    return jnp.where(known & placed & ~over, operation, -1), known


def is_known(operation: Int32[Array, "*b"], config: JaxArcConfig) -> Bool[Array, "*b"]:
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
    return (operation >= FIRST_EXTRA) & (operation < FIRST_EXTRA + len(config.action.extra_operations))


def kind_of(operation: Int32[Array, ""], config: JaxArcConfig) -> Int32[Array, ""]:
    """`operations.operation_type`, which knows those that are built in, for all operations of a config."""
    kind = ops.operation_type(operation)
    if not config.action.extra_operations:
        return kind
    return jnp.where(is_extra(operation, config), ops.OPERATION_TYPES.index("extra"), kind)


# --- what comes of it ---


class Tally(NamedTuple):
    """How far an episode is."""

    steps: Int32[Array, "*b"]
    attempts: Int32[Array, "*b"]
    terminated: Bool[Array, "*b"]
    truncated: Bool[Array, "*b"]
    success: Bool[Array, "*b"]

    @property
    def over(self) -> Bool[Array, "*b"]:
        """Whether the episode is over."""
        return self.terminated | self.truncated


def tally_of(state: ArcEnvState) -> Tally:
    """How far the episode of a state is."""
    return Tally(
        *(state.step_count, state.attempts_used, state.terminated, state.truncated, state.success),
    )


def counted(tally: Tally, wrong: Array, won: Array, rules: EnvironmentConfig) -> Tally:
    """The tally after a step, which was a wrong submission, or won the episode, or neither."""
    over = tally.over
    attempts = tally.attempts + wrong.astype(jnp.int32)
    steps = tally.steps + (~over).astype(jnp.int32)
    terminated = tally.terminated | won | (wrong & (attempts >= rules.max_attempts))
    truncated = (over & tally.truncated) | (~over & ~terminated & (steps >= rules.max_episode_steps))
    return Tally(steps, attempts, terminated, truncated, tally.success | won)


class Outcome(NamedTuple):
    """What a step came to. `was_over` says that the episode was over before it."""

    was_over: Bool[Array, "*b"]
    valid: Bool[Array, "*b"]
    submitted: Bool[Array, "*b"]
    solved: Bool[Array, "*b"]
    is_control: Bool[Array, "*b"]
    tally: Tally
    near: Float32[Array, "*b"]
    """How near the grid is to its target."""
    before: Float32[Array, "*b"]
    """How near it was before the step."""
    reached: Float32[Array, "*b"]
    """How near the step came to the same target: `near`, or where the pair was left or reset, that of its input."""


def similarity(agree: Int32[Array, "*b"], union: Int32[Array, "*b"]) -> Float32[Array, "*b"]:
    """The share of cells that agree; exactly 1 if all do."""
    # A GPU divides with an error of up to 2 units in the last place (seen on an H200); all right must still be 1.
    share = agree.astype(jnp.float32) / union.astype(jnp.float32)
    return jnp.where(agree == union, jnp.float32(1), share)


def judged(
    state: ArcEnvState,
    worked: ArcEnvState,
    shares: tuple[Array, Array],
    pair_start: tuple[Array, Array] | None,
    valid: Array,
    submits: Array,
    is_control: Array,
    bank: TaskBank,
    config: JaxArcConfig,
) -> tuple[ArcEnvState, Outcome]:
    """One environment after an action: compared with the answer, counted, and ended where it ends.

    `worked` is the state with the grid that the operation left, `shares` cells that agree with the target and cells of
    both; `pair_start` the same of the input of the pair that `state` was at, if pairs can change.
    """
    agree, union = shares
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
    tally = counted(tally_of(worked), wrong, won, config.environment)
    over = state.done
    near = jnp.where(over, state.similarity, similarity(agree, union))
    reached = near
    if pair_start is not None:
        reached = jnp.where(is_control & valid, similarity(*pair_start), near)
    outcome = Outcome(over, valid, submitted, solved, is_control, tally, near, state.similarity, reached)
    marked = eqx.tree_at(
        lambda s: (s.wrong, s.solved), worked, (counts, marks), is_leaf=lambda leaf: leaf is None
    )
    return with_outcome(marked, tally, near), outcome


def with_outcome(state: ArcEnvState, tally: Tally, near: Array) -> ArcEnvState:
    """The state with another tally and similarity."""
    return eqx.tree_at(
        lambda s: (s.step_count, s.attempts_used, s.terminated, s.truncated, s.success, s.similarity),
        state,
        (*tally, near),
    )


class Report(NamedTuple):
    """What is told of a step."""

    reward: Float32[Array, "*b"]
    history: ActionHistory
    info: dict[str, Any]


def reported(
    state: ArcEnvState,
    after: ArcEnvState,
    outcome: Outcome,
    placed: Array,
    action: AbstractAction,
    bank: TaskBank,
    config: JaxArcConfig,
) -> Report:
    """Reward, history and information of one environment's step from `state` to `after`."""
    tally, near = outcome.tally, outcome.near
    before, reached = outcome.before, outcome.reached
    # On a test pair the similarity would tell the answer to whoever sees the reward.
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
        "similarity": near,
        "similarity_improvement": reached - before,
        "step_count": tally.steps,
        "valid_action": outcome.valid,
        "was_over": outcome.was_over,
        "operation_type": kind_of(action.operation, config),
        "is_control_operation": outcome.is_control,
        "episode_mode": after.episode_mode,
        "task_index": after.task_index,
        "current_pair_index": after.pair_index,
        "available_demo_pairs": bank.pairs_of(after.task_index, jnp.int32(TRAIN)),
        "available_test_pairs": bank.pairs_of(after.task_index, jnp.int32(TEST)),
        "attempts_used": tally.attempts,
        "action_history_length": history.length,
    }
    return Report(reward, history, info)


# --- how the next episode begins ---


class Start(NamedTuple):
    """Where an episode begins, and the random key that it goes on with."""

    task: Int32[Array, "*b"]
    mode: Int32[Array, "*b"]
    pair: Int32[Array, "*b"]
    place: Int32[Array, "*b"]
    """Where the pair stands in the bank."""
    key: tuple[UInt32[Array, "*b"], UInt32[Array, "*b"]]


def drawn(key: tuple[Array, Array], bank: Any, mode: Array, task: Array | None, pair: Array | None) -> Start:
    """A place to begin: what is not given is random; `key` is the environment's own."""
    none = jnp.zeros_like(key[0])
    task_bits, pair_bits = threefry(key, (none, none + none.dtype.type(1)))
    if task is None:
        task = bank.draw_task(task_bits)
    # Choices that do not exist, which only traced code can make, must not reach another task: they become the nearest.
    task = jnp.clip(task, bank.offset, bank.offset + len(bank) - 1)
    mode = jnp.where(bank.pairs_of(task, mode) > 0, mode, TRAIN).astype(jnp.int32)
    count = bank.pairs_of(task, mode)
    if pair is None:
        # The upper 16 bits times the count, divided by 2^16: any pair is as likely, to 1 in 6,000 for 10 pairs.
        chosen = ((pair_bits >> 16).astype(jnp.int32) * count) >> 16
    else:
        chosen = jnp.clip(pair, 0, count - 1)
    return Start(task, mode, chosen, bank.place_of(task, mode, chosen), threefry(key, (none, none)))


def at_start(start: Start, bank: TaskBank, config: JaxArcConfig) -> tuple[ops.Workspace, Grid]:
    """The workspace at the start of an episode, its clipboard empty, and the target."""
    rows = config.canvas[0]
    source = bank.input_at(start.place, rows)
    blank = ops.Workspace(source, jnp.zeros_like(source.planes), jnp.zeros(rows, jnp.uint32))
    return blank, bank.output_at(start.place, rows)


def begun(start: Start, bank: TaskBank, config: JaxArcConfig) -> ArcEnvState:
    """The state of one environment at the start of an episode, without its tasks."""
    space, target = at_start(start, bank, config)
    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    marks = (2, bank.max_pairs) if config.action.control_operations else None
    return ArcEnvState(
        planes=space.grid.planes,
        height=space.grid.height,
        width=space.grid.width,
        clipboard=space.clipboard,
        clipboard_mask=space.clipboard_mask,
        task_index=start.task,
        episode_mode=start.mode,
        reset_mode=start.mode,
        reset_pair=start.pair,
        pair_index=start.pair,
        step_count=zero,
        attempts_used=zero,
        similarity=similarity(*ops.agreement(space.grid, target)),
        terminated=no,
        truncated=no,
        success=no,
        # Absent, not empty: XLA places arrays without elements as it likes, and a sharded batch would compile twice.
        wrong=None if marks is None else jnp.zeros(marks, jnp.uint8),
        solved=None if marks is None else jnp.zeros(marks, bool),
        key=jnp.stack(start.key),
        action_history=empty_history(config),
        task_data=None,
        canvas_width=config.canvas[1],
    )


def restarted(state: ArcEnvState, bank: TaskBank, done: Array, config: JaxArcConfig) -> ArcEnvState:
    """The state of one environment, or that of a new episode where the old one is over."""
    how = config.environment.autoreset
    assert how is not None, "only an episode that starts again by itself gets here"

    def begin(
        bank: TaskBank, done: Array, space: ops.Workspace, key: Array, task: Array, mode: Array, pair: Array
    ) -> native.Begun:
        given = None if how == "task" else task, pair if how == "same" else None
        start = drawn((key[0], key[1]), bank, mode, *given)
        new, target = at_start(start, bank, config)
        chosen = jax.tree.map(lambda a, b: jnp.where(done, a, b), new, space)
        words = jnp.stack(start.key)
        return native.Begun(
            chosen, words, start.task, start.mode, start.pair, *ops.agreement(new.grid, target)
        )

    origin = state.task_index, state.reset_mode, state.reset_pair
    fresh = native.begin_again(done, state.workspace, state.key, origin, bank, how, begin)
    no = jnp.zeros((), bool)
    new = (
        *(fresh.task, fresh.mode, fresh.mode, fresh.pair, fresh.pair, fresh.key),
        *(jnp.int32(0), jnp.int32(0), similarity(fresh.agree, fresh.union), no, no, no),
        *(None if marks is None else jnp.zeros_like(marks) for marks in (state.wrong, state.solved)),
        # The history's words stay: only the length says which belong to the episode.
        jnp.int32(0),
    )

    def changed(s: ArcEnvState) -> tuple[Any, ...]:
        return (
            *(s.task_index, s.episode_mode, s.reset_mode, s.pair_index, s.reset_pair, s.key),
            *(s.step_count, s.attempts_used, s.similarity, s.terminated, s.truncated, s.success),
            *(s.wrong, s.solved, s.action_history.length),
        )

    chosen = jax.tree.map(lambda a, b: jnp.where(done, a, b), new, changed(state))
    after = eqx.tree_at(changed, state, chosen, is_leaf=lambda leaf: leaf is None)
    return with_workspace(after, fresh.space)


def begun_as_asked(state: ArcEnvState, mode: Array, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether a new episode is of the `mode` of the one before, and its grids fit the canvas.

    `drawn` takes a demonstration where a task has no test pair: an episode for testing must not go on with that.
    """
    return (state.reset_mode == mode) & grids_fit(state, bank)


def grids_fit(state: ArcEnvState, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether the grids of a pair that exists fit the canvas."""
    if bank.height <= state.planes.shape[-1] and bank.width <= state.canvas_width:
        return jnp.ones(state.height.shape, bool)  # whatever was packed for a smaller canvas fits
    return has_pair(state, bank)


def without_result(state: ArcEnvState, missing: Array) -> ArcEnvState:
    """The state; where its task is `missing`, over and without a similarity."""
    return eqx.tree_at(
        lambda s: (s.similarity, s.terminated, s.truncated, s.success),
        state,
        (
            jnp.where(missing, jnp.float32(jnp.nan), state.similarity),
            state.terminated & ~missing,
            state.truncated | missing,
            state.success & ~missing,
        ),
    )


def with_workspace(state: ArcEnvState, space: ops.Workspace) -> ArcEnvState:
    """The state with another grid and clipboard."""
    return eqx.tree_at(
        lambda s: (s.planes, s.height, s.width, s.clipboard, s.clipboard_mask),
        state,
        (space.grid.planes, space.grid.height, space.grid.width, space.clipboard, space.clipboard_mask),
    )

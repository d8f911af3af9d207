"""The environment as pure functions: reset and step, for one environment and for a batch that shares its tasks."""

import functools
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float32, PyTree

from jaxworlds.checking import check, checking_on, clear_errors, is_checking

from ..tasks.bank import TEST, TRAIN, TaskBank, as_bank
from . import operations as ops
from .choosing import demand_batch, demand_match, prepared
from .config import JaxArcConfig, debug_level_number
from .control import switch_pair
from .history import ActionHistory, empty_history, remember
from .observations import ArcObservation, observe
from .rewards import Transition, reward_of
from .state import ArcEnvState, consistent, is_shared, with_tasks
from .structured_actions import AbstractAction, demand_action

Stepped = tuple[ArcEnvState, ArcObservation, Float32[Array, "*b"], Bool[Array, "*b"], dict[str, PyTree]]


def arc_reset(
    key: Array,
    config: JaxArcConfig,
    task_data: Any,
    episode_mode: Any = None,
    initial_pair_idx: Any = None,
    task_index: Any = None,
) -> tuple[ArcEnvState, ArcObservation]:
    """Start an episode: on a random task of the bank and a random pair of it, or on those chosen.

    **Arguments**

    - `key`: decides what is random, here and at every autoreset.
    - `task_data`: a `JaxArcTask`, a `TaskBank`, or a set of tasks such as `jaxarc.tasks.load("arc-agi-1")`.
    - `episode_mode`: 0 takes demonstration pairs, 1 test pairs; by default what the config says.
    - `initial_pair_idx`, `task_index`: the pair and the task to start with.

    What does not exist or does not fit the canvas is refused. Inside your own `jit` values cannot be looked at: there a
    pair that is too large becomes the last one, and a grid that does not fit fails only with checks on.

    ```python
    state, obs = arc_reset(jax.random.key(0), JaxArcConfig(), jaxarc.tasks.load("arc-agi-1"))
    ```
    """
    task_data, chosen = prepared(config, task_data, episode_mode, initial_pair_idx, task_index)
    state, seen = _checked(config, _reset, key, task_data, chosen, config)
    return with_tasks(state, task_data), seen


def batch_reset(
    keys: Array,
    config: JaxArcConfig,
    task_data: Any,
    episode_mode: Any = None,
    initial_pair_idx: Any = None,
    task_index: Any = None,
) -> tuple[ArcEnvState, ArcObservation]:
    """`arc_reset` for each key; the tasks are shared, what is chosen may differ between environments.

    The state's arrays have the batch's axis in front, except `state.task_data`, which is there once.
    """
    task_data, chosen = prepared(config, task_data, episode_mode, initial_pair_idx, task_index)
    demand_batch(keys, chosen)
    states, seen = _checked(config, _batch_reset, keys, task_data, chosen, config)
    return with_tasks(states, task_data), seen


def arc_step(state: ArcEnvState, action: AbstractAction, config: JaxArcConfig) -> Stepped:
    """Take one action: `(state, observation, reward, done, info)`.

    `info` describes the step just taken, also when the state that comes back is that of a new episode (`autoreset`):
    `terminated`, `truncated`, `success`, `similarity`, `step_count`, `valid_action`, `final_observation` and more.
    """
    demand_match(state, config, batched=False)
    if demand_action(action).operation.ndim:
        raise ValueError(
            f"`action` must be one action; got {action.operation.shape} of them. Use `batch_step` for a batch."
        )
    tasks = state.task_data
    new, *rest = _checked(config, _step, with_tasks(state, None), tasks, action, config)
    return with_tasks(new, tasks), *rest


def batch_step(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> Stepped:
    """`arc_step` for each environment of a batch; everything that comes back has the batch's axis in front."""
    demand_match(states, config, batched=True)
    if demand_action(actions).operation.shape != states.height.shape:
        raise ValueError(
            f"`actions` must hold one action for each of the {states.height.shape} environments; "
            f"got operations of shape {actions.operation.shape}."
        )
    tasks = states.task_data
    new, *rest = _checked(config, _batch_step, with_tasks(states, None), tasks, actions, config)
    return with_tasks(new, tasks), *rest


# --- reset ---


@functools.partial(jax.jit, static_argnames="on_error")
def _reset(
    key: Array, task_data: Any, chosen: dict[str, Array], config: JaxArcConfig, on_error: str | None
) -> Any:
    return _reset_one(key, as_bank(task_data), chosen, config, on_error)


@functools.partial(jax.jit, static_argnames="on_error")
def _batch_reset(
    keys: Array, task_data: Any, chosen: dict[str, Array], config: JaxArcConfig, on_error: str | None
) -> Any:
    bank = as_bank(task_data)
    axes = {name: 0 if value.ndim else None for name, value in chosen.items()}
    reset = lambda key, picked: _reset_one(key, bank, picked, config, on_error)  # noqa: E731
    return jax.vmap(reset, in_axes=(0, axes))(keys, chosen)


def _reset_one(
    key: Array, bank: TaskBank, chosen: dict[str, Array], config: JaxArcConfig, on_error: str | None
) -> tuple[ArcEnvState, ArcObservation]:
    words = _key_words(key)
    mode = chosen["episode_mode"]
    state = _new_episode(words, bank, mode, chosen.get("task_index"), chosen.get("initial_pair_idx"), config)
    if on_error is not None:
        place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
        sizes = jnp.stack([bank.input_sizes[place], bank.output_sizes[place]])
        too_large = jnp.any(sizes > jnp.asarray(config.canvas, jnp.int32))
        state = check(state, too_large, TOO_LARGE, on_error=on_error)
    return state, observe(state, bank, config)


def _key_words(key: Array) -> Array:
    """Two random words from a key of any kind; `vmap` gives what one key alone gives, which JAX's rbg keys do not."""
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    folded = data[:2]
    for start in range(2, data.shape[0], 2):
        mixed = jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)
        folded = mixed ^ data[start : start + 2]
    return jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)


def _new_episode(
    words: Array,
    bank: TaskBank,
    mode: Array,
    task: Array | None,
    pair: Array | None,
    config: JaxArcConfig,
    history: ActionHistory | None = None,
) -> ArcEnvState:
    """A state at the start of an episode, without its tasks; `words` is its own random key."""
    bits = jr.bits(jr.wrap_key_data(words, impl="threefry2x32"), (4,), jnp.uint32)
    if task is None:
        task = bank.draw_task(bits[2])
    # Choices that do not exist, which only traced code can make, must not reach another task: they become the nearest.
    task = jnp.clip(task, bank.offset, bank.offset + len(bank) - 1)
    mode = jnp.where(bank.pairs_of(task, mode) > 0, mode, TRAIN).astype(jnp.int32)
    count = bank.pairs_of(task, mode)
    if pair is None:
        # The upper 16 bits times the count, divided by 2^16: any pair is as likely, to 1 in 6,000 for 10 pairs.
        pair = ((bits[3] >> 16).astype(jnp.int32) * count) >> 16
    else:
        pair = jnp.clip(pair, 0, count - 1)
    rows, cols = config.canvas
    place = bank.place_of(task, mode, pair)
    source, target = bank.input_at(place, rows), bank.output_at(place, rows)
    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    marks = (2, bank.max_pairs) if config.action.control_operations else None
    return ArcEnvState(
        planes=source.planes,
        height=source.height,
        width=source.width,
        clipboard=jnp.zeros_like(source.planes),
        clipboard_mask=jnp.zeros(rows, jnp.uint32),
        task_index=task,
        episode_mode=mode,
        reset_mode=mode,
        reset_pair=pair,
        pair_index=pair,
        step_count=zero,
        attempts_used=zero,
        similarity=_similarity(*ops.agreement(source, target)),
        terminated=no,
        truncated=no,
        success=no,
        # Absent, not empty: XLA places arrays without elements as it likes, and a sharded batch would compile twice.
        wrong=None if marks is None else jnp.zeros(marks, jnp.uint8),
        solved=None if marks is None else jnp.zeros(marks, bool),
        key=bits[:2],
        action_history=history or empty_history(config),
        task_data=None,
        canvas_width=cols,
    )


def _similarity(agree: Array, union: Array) -> Array:
    # A GPU divides with an error of up to 2 units in the last place (seen on an H200); all right must still be 1.
    share = agree.astype(jnp.float32) / union.astype(jnp.float32)
    return jnp.where(agree == union, jnp.float32(1), share)


# --- step ---


def _checked(config: JaxArcConfig, step: Callable[..., Any], *args: Any) -> Any:
    """Call a compiled step: as it is, or with its checks in the program if they were asked for."""
    if not (is_checking() or debug_level_number(config.environment.debug_level)):
        return step(*args, on_error=None)
    # The variable is read here, at every call, so that setting it later still counts.
    on_error = os.environ.get("EQX_ON_ERROR", "raise")
    with checking_on():
        return clear_errors(step)(*args, on_error=on_error)


# The tasks go in beside the state and do not come out: `jit` would copy the bank at every step.
@functools.partial(jax.jit, static_argnames="on_error")
def _step(
    state: ArcEnvState, tasks: Any, action: AbstractAction, config: JaxArcConfig, on_error: str | None
) -> Any:
    return _step_one(state, as_bank(tasks), action, config, on_error)


@functools.partial(jax.jit, static_argnames="on_error")
def _batch_step(
    states: ArcEnvState, tasks: Any, actions: AbstractAction, config: JaxArcConfig, on_error: str | None
) -> Any:
    shared = is_shared(tasks)
    step = lambda state, own, action: _step_one(state, as_bank(own), action, config, on_error)  # noqa: E731
    return jax.vmap(step, in_axes=(0, None if shared else 0, 0))(states, tasks, actions)


class _Outcome(eqx.Module):
    """What one step comes to, apart from the grid."""

    similarity: Array
    solved: Array
    success: Array
    terminated: Array
    truncated: Array
    submitted: Array


def _step_one(
    state: ArcEnvState, bank: TaskBank, action: AbstractAction, config: JaxArcConfig, on_error: str | None
) -> Any:
    rows, cols = config.canvas
    over = state.done
    selection = action.selection_rows(rows, cols)
    known, placed = is_known(action.operation, config), action.on_canvas(rows, cols)
    operation = jnp.where(known & placed & ~over, action.operation, -1)

    place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
    space, fits = ops.apply_operation(state.workspace, operation, selection, bank.input_at(place, rows))
    worked = _with_workspace(state, space)
    is_control = jnp.zeros((), bool)
    if config.action.control_operations:
        worked, is_control, there = switch_pair(worked, bank, operation)
        fits &= there
        place = bank.place_of(worked.task_index, worked.episode_mode, worked.pair_index)
    if config.environment.solve == "all" and state.solved is not None:
        fits &= ~((operation == ops.SUBMIT) & state.solved[state.episode_mode, state.pair_index])
    valid = known & placed & fits & ~over

    after, outcome = _judged(state, worked, bank, place, (operation == ops.SUBMIT) & valid, config)
    before = jnp.where(is_control, outcome.similarity, state.similarity)
    # On a test pair the similarity would tell the answer to whoever sees the reward.
    shown = after.episode_mode == TRAIN
    transition = Transition(
        operation=action.operation,
        valid=valid,
        similarity_before=jnp.where(shown, before, jnp.float32(0)),
        similarity_after=jnp.where(shown, outcome.similarity, jnp.float32(0)),
        submitted=outcome.submitted,
        solved=outcome.solved,
        success=outcome.success & ~over,
        truncated=outcome.truncated,
        episode_mode=after.episode_mode,
        step_count=after.step_count,
    )
    reward = jnp.where(over, jnp.float32(0), reward_of(config.reward)(transition))
    history = remember(
        state.action_history, action, selection, valid, placed, state.episode_mode, state.pair_index, ~over
    )
    after = eqx.tree_at(lambda s: s.action_history, after, history)
    if on_error is not None:
        demands = ((known, OPERATION), (placed, COORDINATES), (fits, SELECTION))
        for met, message in demands:
            after, reward = check((after, reward), ~met & ~over, message, on_error=on_error)
        if debug_level_number(config.environment.debug_level) >= 2:
            after, reward = check((after, reward), ~consistent(after, bank), INCONSISTENT, on_error=on_error)

    last_seen = observe(after, bank, config)
    done = outcome.terminated | outcome.truncated
    info = {
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "success": outcome.success,
        "similarity": outcome.similarity,
        "similarity_improvement": outcome.similarity - before,
        "step_count": after.step_count,
        "valid_action": valid,
        "operation_type": ops.operation_type(action.operation),
        "is_control_operation": is_control,
        "episode_mode": after.episode_mode,
        "task_index": after.task_index,
        "current_pair_index": after.pair_index,
        "available_demo_pairs": bank.pairs_of(after.task_index, jnp.int32(TRAIN)),
        "available_test_pairs": bank.pairs_of(after.task_index, jnp.int32(TEST)),
        "attempts_used": after.attempts_used,
        "action_history_length": after.action_history.length,
        "final_observation": last_seen,
    }
    if config.environment.autoreset is None:
        return after, last_seen, reward, done, info
    new = _restarted(after, bank, done, config)
    return new, observe(new, bank, config), reward, done, info


OPERATION = (
    "`action.operation` must be an operation that exists and is allowed: 0 to 34, or to 41 with "
    "`control_operations=True`, and in `allowed_operations`. Without checks such an action is ignored."
)
COORDINATES = (
    "`action` must select cells of the canvas: rows and columns count from 0 and end before `max_grid_height` and "
    "`max_grid_width`. Without checks such an action is ignored."
)
SELECTION = (
    "`action` must select exactly one cell of the grid to flood, at least one to copy, cut or resize, and name a pair "
    "that is there and unsolved. Without checks such an action is ignored."
)
TOO_LARGE = "`task_data` must fit the canvas of `max_grid_height` × `max_grid_width` cells. Raise these, or select smaller tasks."
INCONSISTENT = (
    "`state` must be one that reset and step can make: a size within the canvas, nothing outside of it, a task and a "
    "pair that exist. Do not change its fields; start again with `arc_reset`."
)


def is_known(operation: Array, config: JaxArcConfig) -> Array:
    """Whether an operation exists and is allowed."""
    exists = (operation >= 0) & (operation < config.action.num_operations)
    if config.action.allowed_operations is None:
        return exists
    allowed = np.zeros(config.action.num_operations, bool)
    allowed[list(config.action.allowed_operations)] = True
    return exists & jnp.asarray(allowed)[jnp.clip(operation, 0, len(allowed) - 1)]


def _with_workspace(state: ArcEnvState, space: ops.Workspace) -> ArcEnvState:
    return eqx.tree_at(
        lambda s: (s.planes, s.height, s.width, s.clipboard, s.clipboard_mask),
        state,
        (space.grid.planes, space.grid.height, space.grid.width, space.clipboard, space.clipboard_mask),
    )


def _judged(
    state: ArcEnvState,
    worked: ArcEnvState,
    bank: TaskBank,
    place: Array,
    submitted: Array,
    config: JaxArcConfig,
) -> tuple[ArcEnvState, _Outcome]:
    """The state after an action: compared with the answer, counted, and ended where it ends."""
    over, rules = state.done, config.environment
    agree, union = ops.agreement(worked.workspace.grid, bank.output_at(place, config.canvas[0]))
    solved = agree == union
    right, wrong = submitted & solved, submitted & ~solved
    attempts = worked.attempts_used + wrong
    mode, pair = worked.episode_mode, worked.pair_index
    marks, counts = worked.solved, worked.wrong
    won = right
    if marks is not None and counts is not None:
        marks = marks.at[mode, pair].set(marks[mode, pair] | right)
        counts = counts.at[mode, pair].set(attempts.astype(jnp.uint8))
    if rules.solve == "all" and marks is not None:
        needed = jnp.arange(marks.shape[1]) < bank.pairs_of(worked.task_index, mode)
        won = right & jnp.all(marks[mode] | ~needed)
    steps = state.step_count + ~over
    terminated = state.terminated | won | (wrong & (attempts >= rules.max_attempts))
    truncated = jnp.where(over, state.truncated, ~terminated & (steps >= rules.max_episode_steps))
    similarity = jnp.where(over, state.similarity, _similarity(agree, union))
    outcome = _Outcome(similarity, solved, state.success | won, terminated, truncated, submitted)
    after = eqx.tree_at(
        lambda s: (
            *(s.step_count, s.attempts_used, s.similarity, s.terminated, s.truncated, s.success),
            *(s.wrong, s.solved),
        ),
        worked,
        (steps, attempts, similarity, terminated, truncated, outcome.success, counts, marks),
        is_leaf=lambda leaf: leaf is None,
    )
    return after, outcome


def _restarted(state: ArcEnvState, bank: TaskBank, done: Array, config: JaxArcConfig) -> ArcEnvState:
    """The state, or that of a new episode where the old one is over. Costs one read of the bank, no branch."""
    how = config.environment.autoreset
    task = None if how == "task" else state.task_index
    pair = state.reset_pair if how == "same" else None
    old = state.action_history
    history = ActionHistory(old.words, jnp.zeros_like(old.length), old.format)
    new = _new_episode(state.key, bank, state.reset_mode, task, pair, config, history)
    # The history's words are the same in both: only the length says which belong to the episode.
    dynamic, static = eqx.partition(state, eqx.is_array)
    fresh, _ = eqx.partition(new, eqx.is_array)
    chosen = jax.tree.map(lambda a, b: a if a is b else jnp.where(done, a, b), fresh, dynamic)
    return eqx.combine(chosen, static)

"""Reset and step of one environment: the definition in plain JAX that every batch and every kernel equals bit for bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float32, PyTree

from jaxworlds.checking import check

from ..tasks.bank import TaskBank
from . import operations as ops
from .config import JaxArcConfig, debug_level_number
from .control import switch_pair
from .observations import ArcObservation, observe
from .operations import Operation
from .parts import DEFINITION, Parts
from .rules import Attempt, allowed_operation, report_step, score_step, with_workspace, without_result
from .starts import grids_fit, initial_state, is_valid_restart, sample_start, threefry_once, with_restart
from .state import ArcEnvState, consistent, has_pair
from .structured_actions import AbstractAction

Stepped = tuple[ArcEnvState, ArcObservation, Float32[Array, "*b"], Bool[Array, "*b"], dict[str, PyTree]]
"""The results of a step: state, observation, reward, done, info."""


def reset_environment(
    key: Array, bank: TaskBank, chosen: dict[str, Array], config: JaxArcConfig, on_error: str | None = None
) -> tuple[ArcEnvState, ArcObservation]:
    """Start an episode on the mode, and the task and pair if any, that are `chosen`; the state holds no tasks.

    `on_error` is what a failed check does; None compiles no check.
    """
    words = _key_words(key)
    mode = chosen["episode_mode"]
    task, pair = chosen.get("task_index"), chosen.get("initial_pair_idx")
    start = sample_start((words[0], words[1]), bank, mode, task, pair, threefry_once)
    state = initial_state(start, bank, config)
    # `sample_start` takes the nearest of what does not exist: the state is at that, and says that it is not the choice.
    took = state.task_index, state.episode_mode, state.pair_index
    wanted = took[0] if task is None else task, mode, took[2] if pair is None else pair
    same = [one == other for one, other in zip(took, wanted, strict=True)]
    there = has_pair(state, bank) & same[0] & same[1] & same[2]
    state = without_result(state, ~there)
    if on_error is not None:
        state = check(state, ~there, MISSING, on_error=on_error)
    return state, observe(state, bank, config)


def _key_words(key: Array) -> Array:
    """Two random words from a key of any kind; `vmap` gives what one key alone gives, which JAX's rbg keys do not."""
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    folded = data[:2]
    for start in range(2, data.shape[0], 2):
        mixed = jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)
        folded = mixed ^ data[start : start + 2]
    return jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)


def step_environment(
    state: ArcEnvState,
    bank: TaskBank,
    action: AbstractAction,
    config: JaxArcConfig,
    on_error: str | None = None,
    parts: Parts = DEFINITION,
) -> Stepped:
    """Take one action; the state comes and goes without its tasks.

    `on_error` is what a failed check does; None compiles no check. `parts` carries out the expensive parts.
    """
    rows, cols = config.canvas
    there = is_there(state, bank)
    selection, placed = action.selection_rows(rows, cols), action.on_canvas(rows, cols)
    operation, allowed = allowed_operation(state.done, action.operation, placed, config)
    place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
    space, fits = parts.apply_operation(
        state.workspace, operation, selection, bank, place, config.action.rotation
    )
    if config.action.extra_operations:
        own, hits = ops.apply_extra(space.grid, operation, selection, config.action.extra_operations, cols)
        space = ops.Workspace(own, space.clipboard, space.clipboard_mask)
        fits &= hits
    worked = with_workspace(state, space)
    is_control, pair_start = jnp.zeros((), bool), None
    if config.action.control_operations:
        pair_start = parts.agreement(bank.input_at(place, rows), bank, place)
        worked, is_control, exists = switch_pair(worked, bank, operation)
        fits &= exists
        there &= grids_fit(worked, bank)
        place = bank.place_of(worked.task_index, worked.episode_mode, worked.pair_index)
    submits = operation == Operation.SUBMIT
    if state.solved is not None:
        fits &= ~(submits & (state.episode_mode != state.reset_mode))
        if config.environment.solve == "all":
            fits &= ~(submits & state.solved[state.episode_mode, state.pair_index])
    valid = allowed & placed & fits & ~state.done
    shares = parts.agreement(worked.workspace.grid, bank, place)
    attempt = Attempt(valid, submits, is_control, shares, pair_start)
    after, outcome = score_step(state, worked, attempt, bank, config)
    reward, history, info = report_step(state, after, outcome, placed, action, bank, config)
    after = eqx.tree_at(lambda s: s.action_history, after, history)
    done = outcome.tally.over
    if on_error is not None:
        demands = ((there, MISSING), (allowed, OPERATION), (placed, COORDINATES), (fits | ~there, SELECTION))
        for met, message in demands:
            after, reward = check((after, reward), ~met & ~state.done, message, on_error=on_error)
        if debug_level_number(config.environment.debug_level) >= 2:
            after, reward = check((after, reward), ~consistent(after, bank), INCONSISTENT, on_error=on_error)

    last_seen = observe(after, bank, config)
    info["final_observation"] = last_seen
    how = config.environment.autoreset
    if how is None:
        return flag_missing(there, (after, last_seen, reward, done, info))
    origin = after.task_index, after.reset_mode, after.reset_pair
    fresh = parts.restart(done, after.workspace, after.key, origin, bank, how)
    new = with_restart(after, done, fresh)
    new = without_result(new, done & ~is_valid_restart(new, state.reset_mode, bank))
    return flag_missing(there, (new, observe(new, bank, config), reward, done, info))


def is_there(states: ArcEnvState, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether the bank has the pair of a state, now and at every step before: lost tasks stay lost until a reset."""
    return has_pair(states, bank) & ~jnp.isnan(states.similarity)


def flag_missing(there: Bool[Array, "*b"], stepped: Stepped) -> Stepped:
    """The results of a step, of one environment or many: where the task was not `there`, over and NaN."""
    state, seen, reward, done, info = stepped
    missing = ~there
    lost = jnp.float32(jnp.nan)
    info = info | {
        "terminated": info["terminated"] & there,
        "truncated": info["truncated"] | missing,
        "success": info["success"] & there,
        "similarity": jnp.where(missing, lost, info["similarity"]),
        "similarity_improvement": jnp.where(missing, lost, info["similarity_improvement"]),
        "valid_action": info["valid_action"] & there,
        "task_missing": missing,
    }
    return without_result(state, missing), seen, jnp.where(missing, lost, reward), done | missing, info


OPERATION = (
    f"`action.operation` must be an operation that exists and is allowed: 0 to {ops.OPERATIONS - 1}, or to "
    f"{ops.CONTROL_OPERATIONS - 1} with `control_operations=True`, or one of `extra_operations` from {ops.FIRST_EXTRA} on, "
    "and in `allowed_operations`. Without checks such an action is ignored."
)
COORDINATES = (
    "`action` must select cells of the canvas: rows and columns count from 0 and end before `max_grid_height` and "
    "`max_grid_width`. Without checks such an action is ignored."
)
SELECTION = (
    "`action` must select cells of the grid, if it selects any: exactly one to flood, at least one to copy or cut (and to "
    "resize, where the whole canvas counts). A rotation about the center must stay on the grid, a control operation name "
    "a pair that is there, and only an unsolved pair of the episode's own mode is submitted. Without checks such an "
    "action is ignored."
)
MISSING = (
    "`task_data` must fit the canvas of `max_grid_height` × `max_grid_width` cells, and hold the task and the pair that "
    "the state is at. Raise these or select smaller tasks; use the tasks of the reset, a `task_index` and a pair that exist. "
    "Without checks such an episode is over, and its similarity and rewards are NaN."
)
INCONSISTENT = (
    "`state` must be one that reset and step can make: a size within the canvas, nothing outside of it, a task and a "
    "pair that exist. Do not change its fields; start again with `arc_reset`."
)

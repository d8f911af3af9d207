"""The environment as pure functions: reset and step, for one environment and for a batch that shares its tasks."""

import functools
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float32, PyTree

from jaxworlds.arguments import demand_key
from jaxworlds.checking import check, checking_on, clear_errors, is_checking
from jaxworlds.promotion import with_usual_promotion

from ..tasks.bank import TaskBank, as_bank
from . import operations as ops
from .choosing import demand_batch, demand_match, prepared
from .config import JaxArcConfig, debug_level_number
from .control import switch_pair
from .kernels import native
from .kernels.looking import fused_look
from .kernels.stepping import can_fuse, fused_step, kernels_exist, unless_mapped
from .kernels.switch import switched_on
from .observations import ArcObservation, observe
from .rules import (
    asked,
    begun,
    begun_as_asked,
    drawn,
    grids_fit,
    judged,
    reported,
    restarted,
    with_workspace,
    without_result,
)
from .state import ArcEnvState, consistent, has_pair, is_shared, join_tasks
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

    What does not exist or does not fit the canvas is refused. Inside your own `jit` values cannot be looked at: there the
    episode is over from the start (`truncated`), its similarity is NaN, and so are the rewards of its steps, which say
    `info["task_missing"]`. With checks on it raises.

    ```python
    state, obs = arc_reset(jax.random.key(0), JaxArcConfig(), jaxarc.tasks.load("arc-agi-1"))
    ```
    """
    task_data, chosen = prepared(config, task_data, episode_mode, initial_pair_idx, task_index)
    _demand_one(demand_key(key), chosen)
    state, seen = _checked(config, _reset, key, task_data, chosen, config)
    return join_tasks(state, task_data), seen


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
    return join_tasks(states, task_data), seen


def arc_step(state: ArcEnvState, action: AbstractAction, config: JaxArcConfig) -> Stepped:
    """Take one action: `(state, observation, reward, done, info)`.

    `info` describes the step just taken, also when the state that comes back is that of a new episode (`autoreset`):
    `terminated`, `truncated`, `success`, `similarity`, `step_count`, `valid_action`, `final_observation` and more. Where
    `info["task_missing"]`, the tasks lack what the state is at, or it does not fit the canvas: reward and similarity are
    NaN, and the episode is over until the next reset.
    """
    demand_match(state, config, batched=False)
    if demand_action(action).operation.ndim:
        raise ValueError(
            f"`action` must be one action; got {action.operation.shape} of them. Use `batch_step` for a batch."
        )
    tasks = state.task_data
    new, *rest = _checked(config, _step, join_tasks(state, None), tasks, action, config)
    return join_tasks(new, tasks), *rest


def batch_step(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> Stepped:
    """`arc_step` for each environment of a batch; everything that comes back has the batch's axis in front."""
    demand_match(states, config, batched=True)
    if demand_action(actions).operation.shape != states.height.shape:
        raise ValueError(
            f"`actions` must hold one action for each of the {states.height.shape} environments; "
            f"got operations of shape {actions.operation.shape}."
        )
    tasks = states.task_data
    new, *rest = _checked(config, _batch_step, join_tasks(states, None), tasks, actions, config)
    return join_tasks(new, tasks), *rest


def batch_observe(states: ArcEnvState, config: JaxArcConfig) -> ArcObservation:
    """What is seen of each environment of a batch, as reset and step give it.

    A loop of your own needs to carry only the states: packed observations would be held, and copied, a second time.
    """
    demand_match(states, config, batched=True)
    return with_usual_promotion(
        _batch_observe, join_tasks(states, None), states.task_data, config, switched_on()
    )


@functools.partial(jax.jit, static_argnames="kernels")
def _batch_observe(states: ArcEnvState, tasks: Any, config: JaxArcConfig, kernels: bool) -> ArcObservation:
    shared = is_shared(tasks)
    look = lambda state, own: observe(state, as_bank(own), config)  # noqa: E731
    plain = jax.vmap(look, in_axes=(0, None if shared else 0))
    if shared and kernels_exist():
        fused = lambda states, tasks: fused_look(states, as_bank(tasks), config)  # noqa: E731
        return jax.lax.platform_dependent(states, tasks, cuda=unless_mapped(fused, plain), default=plain)
    return plain(states, tasks)


# --- reset ---


def _demand_one(key: Array, chosen: dict[str, Array]) -> None:
    """Raise where there are several keys or choices."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    shapes = {"key": key.shape if typed else key.shape[:-1]}
    for name, shape in (shapes | {name: value.shape for name, value in chosen.items()}).items():
        if shape:
            raise ValueError(
                f"`{name}` must be a single one; got the shape {shape}. Use `batch_reset` for a batch."
            )


@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _reset(
    key: Array,
    task_data: Any,
    chosen: dict[str, Array],
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
) -> Any:
    return _reset_one(key, as_bank(task_data), chosen, config, on_error)


@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _batch_reset(
    keys: Array,
    task_data: Any,
    chosen: dict[str, Array],
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
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
    task, pair = chosen.get("task_index"), chosen.get("initial_pair_idx")
    state = begun(drawn((words[0], words[1]), bank, mode, task, pair), bank, config)
    # `drawn` takes the nearest of what does not exist: the state is at that, and says that it is not what was asked for.
    took = state.task_index, state.episode_mode, state.pair_index
    wanted = took[0] if task is None else task, mode, took[2] if pair is None else pair
    same = [one == other for one, other in zip(took, wanted, strict=True)]
    there = has_pair(state, bank) & same[0] & same[1] & same[2]
    state = without_result(state, ~there)
    if on_error is not None:
        state = check(state, ~there, MISSING, on_error=on_error)
    return state, observe(state, bank, config)


def _is_there(states: ArcEnvState, bank: TaskBank) -> Array:
    """Whether the bank has what a state is at, and it never lacked it before: what was lost stays lost until a reset."""
    return has_pair(states, bank) & ~jnp.isnan(states.similarity)


def _flagged(there: Array, made: Any) -> Any:
    """What a step made, of one environment or many; an outcome and no number where the task was not `there`."""
    state, seen, reward, done, info = made
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


def _key_words(key: Array) -> Array:
    """Two random words from a key of any kind; `vmap` gives what one key alone gives, which JAX's rbg keys do not."""
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    folded = data[:2]
    for start in range(2, data.shape[0], 2):
        mixed = jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)
        folded = mixed ^ data[start : start + 2]
    return jr.bits(jr.wrap_key_data(folded, impl="threefry2x32"), (2,), jnp.uint32)


# --- step ---


def _checked(config: JaxArcConfig, step: Callable[..., Any], *args: Any) -> Any:
    """Call a compiled step: as it is, or with its checks in the program if they were asked for.

    Whether kernels are switched on is a part of the program's name: turned off later, another program is made.
    """
    if not (is_checking() or debug_level_number(config.environment.debug_level)):
        return with_usual_promotion(step, *args, on_error=None, kernels=switched_on())
    # The variable is read here, at every call, so that setting it later still counts.
    on_error = os.environ.get("EQX_ON_ERROR", "raise")
    with checking_on():
        return with_usual_promotion(clear_errors(step), *args, on_error=on_error, kernels=switched_on())


# The tasks go in beside the state and do not come out: `jit` would copy the bank at every step.
@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _step(
    state: ArcEnvState,
    tasks: Any,
    action: AbstractAction,
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
) -> Any:
    return _step_one(state, as_bank(tasks), action, config, on_error)


@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _batch_step(
    states: ArcEnvState,
    tasks: Any,
    actions: AbstractAction,
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
) -> Any:
    shared = is_shared(tasks)
    step = lambda state, own, action: _step_one(state, as_bank(own), action, config, on_error)  # noqa: E731
    plain = jax.vmap(step, in_axes=(0, None if shared else 0, 0))
    if shared and on_error is None and can_fuse(states, actions, config):

        def fused(states: ArcEnvState, tasks: Any, actions: AbstractAction) -> Any:
            bank = as_bank(tasks)
            # First, and kept first: the kernel changes these arrays in place, and reading them later would copy them.
            where = lambda s: (s.task_index, s.episode_mode, s.pair_index)  # noqa: E731
            there, places = jax.lax.optimization_barrier((_is_there(states, bank), where(states)))
            return _flagged(there, fused_step(eqx.tree_at(where, states, places), bank, actions, config))

        return jax.lax.platform_dependent(
            states, tasks, actions, cuda=unless_mapped(fused, plain), default=plain
        )
    return plain(states, tasks, actions)


def _step_one(
    state: ArcEnvState, bank: TaskBank, action: AbstractAction, config: JaxArcConfig, on_error: str | None
) -> Any:
    rows, cols = config.canvas
    there = _is_there(state, bank)
    selection, placed = action.selection_rows(rows, cols), action.on_canvas(rows, cols)
    operation, known = asked(state.done, action.operation, placed, config)
    place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
    space, fits = native.apply_operation(
        state.workspace, operation, selection, bank, place, config.action.rotation
    )
    if config.action.extra_operations:
        own, hits = ops.apply_extra(space.grid, operation, selection, config.action.extra_operations, cols)
        space = ops.Workspace(own, space.clipboard, space.clipboard_mask)
        fits &= hits
    worked = with_workspace(state, space)
    is_control, pair_start = jnp.zeros((), bool), None
    if config.action.control_operations:
        pair_start = native.agreement(bank.input_at(place, rows), bank, place)
        worked, is_control, exists = switch_pair(worked, bank, operation)
        fits &= exists
        there &= grids_fit(worked, bank)
        place = bank.place_of(worked.task_index, worked.episode_mode, worked.pair_index)
    submits = operation == ops.SUBMIT
    if state.solved is not None:
        fits &= ~(submits & (state.episode_mode != state.reset_mode))
        if config.environment.solve == "all":
            fits &= ~(submits & state.solved[state.episode_mode, state.pair_index])
    valid = known & placed & fits & ~state.done
    shares = native.agreement(worked.workspace.grid, bank, place)
    after, outcome = judged(state, worked, shares, pair_start, valid, submits, is_control, bank, config)
    reward, history, info = reported(state, after, outcome, placed, action, bank, config)
    after = eqx.tree_at(lambda s: s.action_history, after, history)
    done = outcome.tally.over
    if on_error is not None:
        demands = ((there, MISSING), (known, OPERATION), (placed, COORDINATES), (fits | ~there, SELECTION))
        for met, message in demands:
            after, reward = check((after, reward), ~met & ~state.done, message, on_error=on_error)
        if debug_level_number(config.environment.debug_level) >= 2:
            after, reward = check((after, reward), ~consistent(after, bank), INCONSISTENT, on_error=on_error)

    last_seen = observe(after, bank, config)
    info["final_observation"] = last_seen
    if config.environment.autoreset is None:
        return _flagged(there, (after, last_seen, reward, done, info))
    new = restarted(after, bank, done, config)
    new = without_result(new, done & ~begun_as_asked(new, state.reset_mode, bank))
    return _flagged(there, (new, observe(new, bank, config), reward, done, info))


OPERATION = (
    "`action.operation` must be an operation that exists and is allowed: 0 to 34, or to 41 with "
    "`control_operations=True`, or one of `extra_operations` from 42 on, and in `allowed_operations`. Without checks such "
    "an action is ignored."
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

"""Reset and step as users call them, and the one place that picks what carries them out; `explain` says the choice.

A step is defined once, in `envs.environment`, for one environment. `jax.vmap` of that definition serves every device. Two
kernels are faster and give the same bits: C++ for the expensive parts on a CPU, and one kernel for a whole batch on a GPU.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxworlds.arguments import demand_key
from jaxworlds.checking import checking_on, clear_errors, is_checking
from jaxworlds.kernels import kernel_origin, switched_on
from jaxworlds.promotion import with_usual_promotion

from .envs._arguments import demand_batch, demand_match, reset_arguments
from .envs.config import JaxArcConfig, debug_level_number
from .envs.environment import Stepped as Stepped
from .envs.environment import flag_missing, is_there, reset_environment, step_environment
from .envs.observations import ArcObservation, observe
from .envs.parts import DEFINITION, Parts
from .envs.state import ArcEnvState, is_shared, join_tasks
from .envs.structured_actions import AbstractAction, demand_action
from .kernels import native
from .kernels.batch_observe import observe_batch
from .kernels.batch_step import step_batch, unless_mapped, why_no_batch_kernel
from .kernels.warp import why_no_gpu_kernels
from .tasks.bank import as_bank, same_sizes

SWITCH = "JAXARC_KERNELS"
"""The environment variable that turns kernels off: `JAXARC_KERNELS=off`."""


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

    The state holds a copy of the tasks: you may donate it to a program of yours, and your tasks stay.

    What does not exist or does not fit the canvas is refused. Inside your own `jit` values cannot be looked at: there the
    episode is over from the start (`truncated`), its similarity is NaN, and so are the rewards of its steps, which say
    `info["task_missing"]`. With checks on it raises.

    ```python
    state, obs = arc_reset(jax.random.key(0), JaxArcConfig(), jaxarc.tasks.load("arc-agi-1"))
    ```
    """
    task_data, chosen = reset_arguments(config, task_data, episode_mode, initial_pair_idx, task_index)
    _demand_one(demand_key(key), chosen)
    state, seen, own = _call(config, _reset, key, task_data, chosen, config)
    return join_tasks(state, same_sizes(own, task_data)), seen


def batch_reset(
    keys: Array,
    config: JaxArcConfig,
    task_data: Any,
    episode_mode: Any = None,
    initial_pair_idx: Any = None,
    task_index: Any = None,
) -> tuple[ArcEnvState, ArcObservation]:
    """`arc_reset` for each key; the tasks are shared, what is chosen may differ between environments.

    The state's arrays have the batch's axis in front, except `state.task_data`, which is there once: a copy of the tasks,
    so that you may donate the states and keep your tasks.
    """
    task_data, chosen = reset_arguments(config, task_data, episode_mode, initial_pair_idx, task_index)
    demand_batch(keys, chosen)
    states, seen, own = _call(config, _batch_reset, keys, task_data, chosen, config)
    return join_tasks(states, same_sizes(own, task_data)), seen


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
    new, *rest = _call(config, _step, join_tasks(state, None), tasks, action, config)
    return join_tasks(new, tasks), *rest


def batch_step(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> Stepped:
    """`arc_step` for each environment of a batch; every result has the batch's axis in front."""
    demand_match(states, config, batched=True)
    if demand_action(actions).operation.shape != states.height.shape:
        raise ValueError(
            f"`actions` must hold one action for each of the {states.height.shape} environments; "
            f"got operations of shape {actions.operation.shape}."
        )
    tasks = states.task_data
    new, *rest = _call(config, _batch_step, join_tasks(states, None), tasks, actions, config)
    return join_tasks(new, tasks), *rest


def batch_observe(states: ArcEnvState, config: JaxArcConfig) -> ArcObservation:
    """Observe each environment of a batch, as reset and step do.

    A loop of your own needs to carry only the states: packed observations would be held, and copied, a second time.
    """
    demand_match(states, config, batched=True)
    return with_usual_promotion(
        _batch_observe, join_tasks(states, None), states.task_data, config, kernels_on()
    )


# --- the choice ---


class Path(NamedTuple):
    """What carries out a step here, and why."""

    name: Literal["gpu", "cpu", "xla"]
    """"gpu": one kernel for the whole batch; "cpu": C++ for the expensive parts; "xla": the definition alone."""
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def explain(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> Path:
    """Say what will carry out `batch_step(states, actions, config)`, or `arc_step` of one environment, and why.

    ```python
    print(explain(states, actions, config))  # cpu: C++ kernels for operations 0 to 33, comparison and autoreset
    ```
    """
    batched = bool(states.height.ndim)
    demand_match(states, config, batched=batched)
    if not kernels_on():
        return Path("xla", f"`{SWITCH}=off` turns the kernels off")
    if not is_shared(states.task_data) and batched:
        return Path("xla", "every environment has tasks of its own, and kernels read one bank")
    backend = jax.default_backend()
    if backend == "gpu":
        why = _why_no_gpu_step(states, demand_action(actions), config, _is_checked(config))
        return Path("xla", why) if why else Path("gpu", "one kernel for the whole batch, autoreset included")
    if backend != "cpu":
        return Path("xla", f"there are no kernels for {backend.upper()}s")
    if native.names() is None:
        return Path("xla", "the C++ kernels cannot be compiled; `jaxworlds doctor` says why")
    extra = "; XLA for `extra_operations`" if config.action.extra_operations else ""
    origin = kernel_origin(native.SOURCE, native.MACROS)
    return Path("cpu", f"C++ kernels for operations 0 to 33, comparison and autoreset ({origin}){extra}")


def kernels_on() -> bool:
    """Whether kernels may be used; read whenever a step is called or traced."""
    return switched_on(SWITCH)


def parts_here() -> Parts:
    """What carries out the expensive parts of one environment's step; asked whenever a step is traced."""
    if kernels_on() and jax.default_backend() == "cpu" and native.names() is not None:
        return native.PARTS
    return DEFINITION


def _why_no_gpu_step(
    states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig, checked: bool
) -> str | None:
    """Why the GPU's kernel cannot take a step; None if it can."""
    if not states.height.ndim:
        return "the GPU's kernel takes batches, and this is one environment"
    if checked:
        return "checks are on, and the GPU's kernel has none"
    return why_no_gpu_kernels() or why_no_batch_kernel(states, actions, config)


def _is_checked(config: JaxArcConfig) -> bool:
    return is_checking() or bool(debug_level_number(config.environment.debug_level))


def _call(config: JaxArcConfig, function: Callable[..., Any], *args: Any) -> Any:
    """Call a compiled function: as it is, or with its checks in the program if they are on.

    Whether kernels are on is a part of the program's key: turned off later, another program is made.
    """
    if not _is_checked(config):
        return with_usual_promotion(function, *args, on_error=None, kernels=kernels_on())
    # The variable is read here, at every call, so that setting it later still counts.
    on_error = os.environ.get("EQX_ON_ERROR", "raise")
    with checking_on():
        return with_usual_promotion(clear_errors(function), *args, on_error=on_error, kernels=kernels_on())


# --- the programs ---


def _demand_one(key: Array, chosen: dict[str, Array]) -> None:
    """Raise for several keys or choices."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    shapes = {"key": key.shape if typed else key.shape[:-1]}
    for name, shape in (shapes | {name: value.shape for name, value in chosen.items()}).items():
        if shape:
            raise ValueError(
                f"`{name}` must be a single one; got the shape {shape}. Use `batch_reset` for a batch."
            )


# States get tasks of their own: who donates states would otherwise give away the user's tasks with them.
@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _reset(
    key: Array,
    task_data: Any,
    chosen: dict[str, Array],
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
) -> Any:
    state, seen = reset_environment(key, as_bank(task_data), chosen, config, on_error)
    return state, seen, jax.tree.map(jnp.copy, task_data)


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
    reset = lambda key, picked: reset_environment(key, bank, picked, config, on_error)  # noqa: E731
    states, seen = jax.vmap(reset, in_axes=(0, axes))(keys, chosen)
    return states, seen, jax.tree.map(jnp.copy, task_data)


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
    return step_environment(state, as_bank(tasks), action, config, on_error, parts_here())


@functools.partial(jax.jit, static_argnames=("on_error", "kernels"))
def _batch_step(
    states: ArcEnvState,
    tasks: Any,
    actions: AbstractAction,
    config: JaxArcConfig,
    on_error: str | None,
    kernels: bool,
) -> Any:
    shared, parts = is_shared(tasks), parts_here()
    step = lambda state, own, action: step_environment(  # noqa: E731
        state, as_bank(own), action, config, on_error, parts
    )
    plain = jax.vmap(step, in_axes=(0, None if shared else 0, 0))
    if shared and kernels_on() and not _why_no_gpu_step(states, actions, config, on_error is not None):

        def in_one_kernel(states: ArcEnvState, tasks: Any, actions: AbstractAction) -> Any:
            bank = as_bank(tasks)
            # First, and kept first: the kernel changes these arrays in place, and reading them later would copy them.
            where = lambda s: (s.task_index, s.episode_mode, s.pair_index)  # noqa: E731
            there, places = jax.lax.optimization_barrier((is_there(states, bank), where(states)))
            return flag_missing(there, step_batch(eqx.tree_at(where, states, places), bank, actions, config))

        return jax.lax.platform_dependent(
            states, tasks, actions, cuda=unless_mapped(in_one_kernel, plain), default=plain
        )
    return plain(states, tasks, actions)


@functools.partial(jax.jit, static_argnames="kernels")
def _batch_observe(states: ArcEnvState, tasks: Any, config: JaxArcConfig, kernels: bool) -> ArcObservation:
    shared = is_shared(tasks)
    look = lambda state, own: observe(state, as_bank(own), config)  # noqa: E731
    plain = jax.vmap(look, in_axes=(0, None if shared else 0))
    if shared and kernels_on() and not why_no_gpu_kernels():
        fused = lambda states, tasks: observe_batch(states, as_bank(tasks), config)  # noqa: E731
        return jax.lax.platform_dependent(states, tasks, cuda=unless_mapped(fused, plain), default=plain)
    return plain(states, tasks)

"""Checks of the arguments of reset and step, before anything is compiled: wrong ones raise a clear error."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxworlds.arguments import demand_key

from ..tasks.bank import TEST, TRAIN, JaxArcTask, TaskBank, as_bank, demand_fit
from .config import JaxArcConfig
from .state import ArcEnvState, demand_tasks, is_deleted, is_shared


def reset_arguments(
    config: Any, task_data: Any, mode: Any, pair: Any, task: Any
) -> tuple[JaxArcTask | TaskBank, dict[str, Array]]:
    """The tasks as the state will hold them, and the choices as int32 arrays."""
    if not isinstance(config, JaxArcConfig):
        raise TypeError(
            f"`config` must be a JaxArcConfig; got {type(config).__name__}. "
            "The order is arc_reset(key, config, task_data)."
        )
    if not isinstance(task_data, JaxArcTask):
        task_data = as_bank(task_data)
    if is_deleted(task_data):
        raise ValueError(
            "`task_data` was donated, alone or with a state that it was put into by hand. Load the tasks again; a state "
            "from a reset or from `replace_tasks(state, task_data)` holds a copy, which may be donated."
        )
    demand_fit(task_data, *config.canvas)
    if mode is None:
        mode = TEST if config.environment.episode_mode == "test" else TRAIN
    given = {"episode_mode": mode, "initial_pair_idx": pair, "task_index": task}
    chosen = {name: _whole(name, value) for name, value in given.items() if value is not None}
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((task_data, chosen))):
        draws = "task_index" not in chosen or config.environment.autoreset == "task"
        _demand_there(task_data, {name: np.asarray(value) for name, value in chosen.items()}, draws)
    return task_data, chosen


def _whole(name: str, value: Any) -> Array:
    """A choice as an int32 array; words and fractions are refused."""
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"`{name}` must be an integer, or one for each environment; got {value!r}.")
    return jnp.asarray(array, jnp.int32)


def _demand_there(task_data: JaxArcTask | TaskBank, chosen: dict[str, np.ndarray], draws: bool) -> None:
    """Raise if a chosen task or pair does not exist, or a task that may be drawn has no pair of the mode."""
    mode = chosen["episode_mode"]
    if not np.isin(mode, (TRAIN, TEST)).all():
        raise ValueError(f"`episode_mode` must be 0 (train) or 1 (test); got {mode}.")
    if len(chosen) == 1 and not mode.any():
        return  # every task has demonstrations: nothing to look up on the device
    bank = as_bank(task_data)
    counts = np.stack([np.asarray(bank.num_train), np.asarray(bank.num_test)])
    drawn = np.diff(np.asarray(bank.cumulative), prepend=0) > 0
    least = counts[:, drawn].min(axis=1)[mode]
    pairs = least
    if "task_index" in chosen:
        first, index = int(bank.offset), chosen["task_index"]
        if not ((index >= first) & (index < first + len(bank))).all():
            raise IndexError(f"`task_index` must be from {first} to {first + len(bank) - 1}; got {index}.")
        pairs = counts[mode, index - first]
    if (pairs < 1).any() or (draws and (least < 1).any()):
        raise ValueError(
            "`episode_mode` 1 needs test pairs, and a task that may be drawn has none. Select tasks that have them."
        )
    if "initial_pair_idx" in chosen:
        pair = chosen["initial_pair_idx"]
        if not ((pair >= 0) & (pair < pairs)).all():
            remedy = (
                "" if "task_index" in chosen else " That is what every task has; choose a `task_index` too."
            )
            raise IndexError(f"`initial_pair_idx` must be from 0 to {np.min(pairs) - 1}; got {pair}.{remedy}")


def demand_batch(keys: Array, chosen: dict[str, Array]) -> None:
    """Raise unless there are several keys, and one choice for all or one for each."""
    demand_key(keys, "keys")
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if keys.ndim != (1 if typed else 2):
        raise ValueError(
            f"`keys` must hold one key for each environment; got shape {keys.shape}. Use `jax.random.split(key, batch)`."
        )
    for name, value in chosen.items():
        if value.ndim and value.shape != keys.shape[:1]:
            raise ValueError(
                f"`{name}` must be one number, or one for each of the {keys.shape[0]} keys; got shape {value.shape}."
            )


def demand_match(state: Any, config: Any, *, batched: bool) -> None:
    """Raise unless the state is one (or a batch), and the config has its canvas."""
    if not isinstance(config, JaxArcConfig):
        raise TypeError(
            f"`config` must be a JaxArcConfig; got {type(config).__name__}. "
            "The config comes last: arc_step(state, action, config)."
        )
    if not isinstance(state, ArcEnvState):
        raise TypeError(
            f"`state` must come from a reset or a step; got {type(state).__name__}. "
            "The state comes first: arc_step(state, action, config)."
        )
    if state.height.ndim != batched:
        right = ("`arc_step`", "`batch_step` or `batch_observe`", "`jax.vmap` over these")[
            min(state.height.ndim, 2)
        ]
        raise ValueError(f"`state` holds environments of shape {state.height.shape}. Use {right} for these.")
    if config.action.control_operations and state.wrong is None:
        raise ValueError(
            "`config` has control operations, and the state was reset without. Step with the config of the reset."
        )
    canvas = (state.planes.shape[-1], state.canvas_width)
    if canvas != config.canvas:
        raise ValueError(
            f"`config` must have the canvas of the state, {canvas[0]}×{canvas[1]}; got {config.canvas[0]}×"
            f"{config.canvas[1]}. Step with the config of the reset."
        )
    demand_tasks(state, state.task_data)
    if batched:
        _warn_of_copies(state.task_data)


def _warn_of_copies(task_data: JaxArcTask | TaskBank) -> None:
    """Warn if every environment of a batch holds a bank of many tasks, as `lax.map` and `jnp.stack` leave them."""
    if not isinstance(task_data, TaskBank) or is_shared(task_data) or len(task_data) == 1:
        return
    count = task_data.first_pair.shape[0]
    warnings.warn(
        f"`states` hold a copy of the tasks for each environment ({count} × {task_data.nbytes / count / 1e6:.2f} MB), and "
        "are stepped without kernels. Reset with `batch_reset(keys, config, task_data)`: there the tasks stand once.",
        stacklevel=4,
    )

"""Rollouts: a policy plays a batch in one compiled loop."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from jaxworlds.arguments import demand_call, demand_key, short
from jaxworlds.static import is_hashable_config

from ..dispatch import batch_observe, batch_step, kernels_on
from ..envs.config import JaxArcConfig
from ..envs.episodes import Played, Policy
from ..envs.observations import ArcObservation
from ..envs.state import ArcEnvState, demand_tasks, join_tasks

ROLLOUT = "rollout(policy, params, states, observations, key, config, steps)"


def rollout(
    policy: Policy,
    params: PyTree,
    states: ArcEnvState,
    observations: ArcObservation,
    key: PRNGKeyArray,
    config: JaxArcConfig,
    steps: int,
) -> Played:
    """Let a policy play a batch for `steps` steps in one compiled loop.

    Without autoreset, environments whose episode is over wait: they earn nothing and count no step. `observations` are
    not used: the loop looks at the states itself.
    """
    demand_call(policy, "policy", ROLLOUT)
    if not isinstance(states, ArcEnvState):
        raise TypeError(
            f"`states` must come from batch_reset; got {type(states).__name__}. The order is {ROLLOUT}."
        )
    if not (isinstance(steps, int | np.integer) and steps >= 0):
        raise ValueError(
            f"`steps` must be a whole number of at least 0; got {short(steps)}. The order is {ROLLOUT}."
        )
    if not is_hashable_config(policy):
        raise TypeError(
            f"`policy` must be hashable, for it is part of the program; got {type(policy).__name__} with arrays in it. "
            "Pass what has arrays as `params`: "
            "rollout(lambda model, seen, key: model(seen, key), model, states, ...)."
        )
    demand_key(key)
    tasks = states.task_data
    demand_tasks(states, tasks)
    played = play(policy, params, join_tasks(states, None), tasks, key, config, steps, kernels_on())
    return eqx.tree_at(lambda p: p.states, played, join_tasks(played.states, tasks))


@functools.partial(jax.jit, static_argnames=("policy", "config", "steps", "kernels"))
def play(
    policy: Policy,
    params: PyTree,
    states: ArcEnvState,
    tasks: Any,
    key: PRNGKeyArray,
    config: JaxArcConfig,
    steps: int,
    kernels: bool = True,
) -> Played:
    """The compiled loop of `rollout`: the states come and go without their tasks, which `jit` would copy.

    `kernels` says whether they were switched on at the call: only a part of the program's name, so that a switch that is
    turned later makes another program.
    """

    look = lambda states: batch_observe(join_tasks(states, tasks), config)  # noqa: E731

    def step(carry: _Count, key: PRNGKeyArray) -> tuple[_Count, None]:
        # Looked at again, not carried: a loop would hold the packed grid twice and copy it at every step.
        actions = policy(params, look(carry.states), key)
        states, _, reward, done, info = batch_step(join_tasks(carry.states, tasks), actions, config)
        live = ~info["was_over"]
        ended = done & live
        return _Count(
            states=join_tasks(states, None),
            reward=carry.reward + reward,
            episodes=carry.episodes + ended.astype(jnp.int32),
            successes=carry.successes + (info["success"] & ended).astype(jnp.int32),
            steps=carry.steps + live.astype(jnp.int32),
        ), None

    batch = states.height.shape
    zero = jnp.zeros(batch, jnp.int32)
    start = _Count(states, jnp.zeros(batch, jnp.float32), zero, zero, zero)
    end = jax.lax.scan(step, start, jr.split(key, steps))[0]
    return Played(end.states, look(end.states), end.reward, end.episodes, end.successes, end.steps)


class _Count(NamedTuple):
    """What the loop of `play` carries."""

    states: ArcEnvState
    reward: Array
    episodes: Array
    successes: Array
    steps: Array

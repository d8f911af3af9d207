"""Rollouts: a policy plays a batch in one compiled loop."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float32, Int32, PRNGKeyArray, PyTree

from jaxworlds.arguments import demand_call, demand_key, short
from jaxworlds.static import is_hashable_config

from ..dispatch import batch_observe, batch_step, kernels_on
from ..envs.config import JaxArcConfig
from ..envs.episodes import Played, Policy
from ..envs.observations import ArcObservation
from ..envs.state import ArcEnvState, demand_tasks, join_tasks
from ..envs.structured_actions import AbstractAction

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
    """The program of `rollout`: states come and go without their tasks, which `jit` would copy.

    `kernels` says whether they are on at the call: it is only a part of the program's key, so that turning them off makes
    another program.
    """
    # States are looked at again, not carried with their observations: a loop would hold and copy the packed grid twice.
    choose = lambda states, key: policy(params, batch_observe(states, config), key)  # noqa: E731
    end = play_loop(choose, states, tasks, config, jr.split(key, steps))
    seen = batch_observe(join_tasks(end.states, tasks), config)
    return Played(end.states, seen, end.reward, end.episodes, end.solved, end.steps)


class Tally(eqx.Module):
    """A batch that plays: its states, without their tasks, and what each environment has done so far."""

    states: ArcEnvState
    steps: Int32[Array, " b"]
    episodes: Int32[Array, " b"]
    solved: Int32[Array, " b"]
    reward: Float32[Array, " b"]


def empty_tally(states: ArcEnvState) -> Tally:
    """The tally before the first step."""
    batch = states.height.shape
    zero = jnp.zeros(batch, jnp.int32)
    return Tally(join_tasks(states, None), zero, zero, zero, jnp.zeros(batch, jnp.float32))


def advance(tally: Tally, actions: AbstractAction, tasks: Any, config: JaxArcConfig) -> Tally:
    """Take one step of every environment and count it; an environment whose episode is over waits."""
    states, _, reward, done, info = batch_step(join_tasks(tally.states, tasks), actions, config)
    live = ~info["was_over"]
    ended = done & live
    return Tally(
        states=join_tasks(states, None),
        steps=tally.steps + live.astype(jnp.int32),
        episodes=tally.episodes + ended.astype(jnp.int32),
        solved=tally.solved + (info["success"] & ended).astype(jnp.int32),
        reward=tally.reward + reward,
    )


def play_loop(
    choose: Callable[[ArcEnvState, Any], AbstractAction],
    states: ArcEnvState,
    tasks: Any,
    config: JaxArcConfig,
    inputs: PyTree,
    until_over: bool = False,
) -> Tally:
    """The one loop that plays: `choose(states, input)` gives the actions of each step, one input after the other.

    With `until_over` it stops when every episode is over.
    """

    def step(tally: Tally, given: Any) -> Tally:
        return advance(tally, choose(join_tasks(tally.states, tasks), given), tasks, config)

    start = empty_tally(states)
    if not until_over:
        return jax.lax.scan(lambda tally, given: (step(tally, given), None), start, inputs)[0]
    count = jax.tree.leaves(inputs)[0].shape[0]

    def goes_on(carry: tuple[Array, Tally]) -> Array:
        t, tally = carry
        return (t < count) & ~jnp.all(tally.states.done)

    def body(carry: tuple[Array, Tally]) -> tuple[Array, Tally]:
        t, tally = carry
        return t + 1, step(tally, jax.tree.map(lambda leaf: leaf[t], inputs))

    return jax.lax.while_loop(goes_on, body, (jnp.int32(0), start))[1]

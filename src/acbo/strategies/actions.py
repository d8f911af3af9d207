"""Candidates for the next experiment: doing nothing, every variable alone over its range, and sets of several."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from acbo.beliefs.belief import recent
from acbo.beliefs.model_effects import single_actions
from acbo.data import Dataset, Key
from acbo.problem import Problem
from acbo.scms.graphs import ranks


class Actions(NamedTuple):
    """Rows of experiments; the first does nothing."""

    mask: Bool[Array, "actions d"]
    value: Float[Array, "actions d"]
    allowed: Bool[Array, " actions"]
    """True if all that is set can be set."""


def candidate_actions(problem: Problem, key: Key, places: int = 5, sets: int = 128) -> Actions:
    """Nothing, every variable at `places` values from end to end, and `sets` random sets where several may be set.

    Half of a random set's values lie at ends of ranges, where monotonic effects are largest.
    """
    d = problem.size
    mask, value = single_actions(problem, places)
    nothing = (jnp.zeros((1, d), bool), jnp.zeros((1, d), value.dtype))
    parts = [nothing, (mask, value)]
    if problem.max_simultaneous > 1:
        parts.append(random_actions(problem, key, sets))
    mask, value = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    return Actions(mask, value, jnp.all(problem.manipulable | ~mask, axis=-1))


def random_actions(
    problem: Problem, key: Key, count: int, least: int = 1
) -> tuple[Bool[Array, "count d"], Float[Array, "count d"]]:
    """Random sets of up to `max_simultaneous` manipulable variables at random values."""
    key_size, key_which, key_value, key_end = jr.split(key, 4)
    d, dtype = problem.size, problem.low.dtype
    size = jr.randint(key_size, (count, 1), least, problem.max_simultaneous + 1)
    scores = jnp.where(problem.manipulable, jr.uniform(key_which, (count, d), dtype), 2)
    mask = problem.manipulable & (jax.vmap(ranks)(scores) < size)
    part = jr.uniform(key_value, (count, d), dtype)
    end = jr.uniform(key_end, (count, d), dtype)
    part = jnp.where(end < 0.25, 0, jnp.where(end < 0.5, 1, part))
    value = problem.snap(problem.low * (1 - part) + problem.high * part)
    return mask, jnp.where(mask, value, 0)


def closer_actions(
    problem: Problem,
    mask: Bool[Array, " d"],
    value: Float[Array, " d"],
    step: Float[Array, ""] | float,
    key: Key,
) -> Float[Array, "near d"]:
    """Values around one action, itself first: each of 16 moves every set variable by at most `step` of its range."""
    noise = jr.uniform(key, (16, problem.size), value.dtype, -1, 1).at[0].set(0)
    near = value + step * noise * (problem.high - problem.low)
    return jnp.where(mask, problem.snap(near), 0)


def search_around(
    problem: Problem,
    actions: Actions,
    losses: Float[Array, " actions"],
    loss: Callable[[Actions], Float[Array, " near"]],
    steps: Float[Array, " rounds"],
    key: Key,
    least_gain: float = 0.0,
) -> tuple[Actions, Float[Array, " actions"]]:
    """Every action after a search around it, and its loss: one round for each step, whose gains exceed `least_gain`."""
    count, d = actions.mask.shape

    def closer(carry: tuple[Array, Array], turn: tuple[Array, Key]) -> tuple[tuple[Array, Array], None]:
        (value, least), (step, key) = carry, turn
        near = jax.vmap(lambda m, v, k: closer_actions(problem, m, v, step, k))(
            actions.mask, value, jr.split(key, count)
        )
        every = near.shape[1]
        mask, allowed = jnp.repeat(actions.mask, every, 0), jnp.repeat(actions.allowed, every, 0)
        found = loss(Actions(mask, near.reshape(-1, d), allowed)).reshape(count, every)
        which = jnp.argmin(found, axis=1)
        moved = jnp.take_along_axis(near, which[:, None, None], axis=1)[:, 0]
        better = found.min(1) < least - least_gain
        return (jnp.where(better[:, None], moved, value), jnp.where(better, found.min(1), least)), None

    start = (actions.value, losses)
    (value, losses), _ = jax.lax.scan(closer, start, (steps, jr.split(key, steps.shape[0])))
    return actions._replace(value=value), losses


def best_of(
    losses: Float[Array, " actions"], allowed: Bool[Array, " actions"]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The least loss among what is allowed; of equal ones the first."""
    held = jnp.where(allowed, losses, jnp.inf)
    return jnp.argmin(held), jnp.min(held)


def without_idle(
    graph: Bool[Array, "d d"], target: Int[Array, ""], mask: Bool[Array, "actions d"]
) -> Bool[Array, "actions d"]:
    """The variables of each set that act on the target by a path on which no other of the set lies.

    Setting the rest changes nothing that the target hears of: the expected target of both sets is the same.
    """
    edges = graph.astype(jnp.int32)
    reaching = jnp.broadcast_to(jnp.arange(graph.shape[0]) == target, mask.shape)
    for _ in range(graph.shape[0] - 1):
        reaching = reaching | (~mask & (reaching @ edges.T > 0))
    return mask & (reaching @ edges.T > 0)


def with_tried(problem: Problem, data: Dataset, actions: Actions, memory: int) -> Actions:
    """The candidates, and what was tried of late."""
    tried = data.intervened.any(1) & data.rows
    (mask, value, used), _ = recent((data.intervened, data.values, tried), data.values[:, 0], memory)
    mask = mask & used[:, None]
    return Actions(
        jnp.concatenate([actions.mask, mask]),
        jnp.concatenate([actions.value, jnp.where(mask, value, 0)]),
        jnp.concatenate([actions.allowed, used & jnp.all(problem.manipulable | ~mask, -1)]),
    )

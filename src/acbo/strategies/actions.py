"""Candidates for the next experiment: doing nothing, every variable alone over its range, and sets of several.

Some of them experiments contradict, whatever a model predicts: they are refuted.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from acbo.beliefs.belief import outcomes_of, recent
from acbo.beliefs.model_effects import single_actions
from acbo.data import Dataset, Key
from acbo.problem import Problem
from acbo.scms.graphs import ranks

NEAR = 0.06
"""Experiments count for an action that sets the same variables, each within this part of its range."""


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


def measured_near(
    problem: Problem, data: Dataset, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
    """Number of experiments with each action or a similar one, and their mean target; doing nothing counts as untried."""
    tried = data.intervened.any(1) & data.rows
    apart = jnp.abs(value[:, None] - data.values)
    close = jnp.all((mask[:, None] == data.intervened) & (~mask[:, None] | (apart <= _reach(problem))), -1)
    return _count_and_mean(data, close & tried & mask.any(-1)[:, None])


def measured_alone(
    problem: Problem, data: Dataset, value: Float[Array, "d places"]
) -> tuple[Float[Array, "d places"], Float[Array, "d places"]]:
    """The same for each variable set alone to each of its values, in a tenth of the time."""
    alone = data.rows & (data.intervened.sum(1) == 1)
    apart = jnp.abs(value[..., None] - data.values.T[:, None])
    close = (data.intervened & alone[:, None]).T[:, None] & (apart <= _reach(problem)[:, None, None])
    return _count_and_mean(data, close)


def is_refuted(
    problem: Problem,
    data: Dataset,
    mask: Bool[Array, "actions d"],
    value: Float[Array, "actions d"],
    least: int = 1,
) -> Bool[Array, " actions"]:
    """True if at least `least` experiments with this action were worse than doing nothing, by a standard error.

    The error is that of both means, from the scatter of the observations; it needs observations to compare with.
    """
    return _worse(problem, data, *measured_near(problem, data, mask, value), least)


def is_refuted_alone(
    problem: Problem, data: Dataset, value: Float[Array, "d places"], least: int = 1
) -> Bool[Array, "d places"]:
    """`is_refuted` for each variable set alone to each of its values."""
    return _worse(problem, data, *measured_alone(problem, data, value), least)


def _reach(problem: Problem) -> Float[Array, " d"]:
    """Largest difference at which two values of a variable count as the same; levels must be equal."""
    width = jnp.where(problem.high > problem.low, problem.high - problem.low, 1)
    return width * jnp.where(jnp.isnan(problem.levels).all(-1), NEAR, 1e-4)


def _count_and_mean(
    data: Dataset, close: Bool[Array, "*actions n"]
) -> tuple[Float[Array, "*actions"], Float[Array, "*actions"]]:
    here = close.astype(data.values.dtype)
    count = here.sum(-1)
    y = jnp.where(data.intervened.any(1) & data.rows, data.values[:, data.target], 0)
    return count, here @ y / jnp.maximum(count, 1)


def _worse(
    problem: Problem,
    data: Dataset,
    count: Float[Array, "*actions"],
    mean: Float[Array, "*actions"],
    least: int,
) -> Bool[Array, "*actions"]:
    found = outcomes_of(data)
    seen = jnp.any(data.rows & ~found.tried)
    error = found.scale * jnp.sqrt(1 / jnp.maximum(count, 1) + 1 / found.observed)
    return seen & (count >= least) & (problem.sign * (mean - found.centre) > error)

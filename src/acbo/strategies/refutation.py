"""Actions that experiments contradict, whatever a model predicts."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import outcomes_of
from acbo.data import Dataset
from acbo.problem import Problem

NEAR = 0.06
"""Experiments count for an action that sets the same variables, each within this part of its range."""


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

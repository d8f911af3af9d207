"""Actions that the experiments made speak against, whatever a model promises of them."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.beliefs.outcomes import outcomes_of
from acbo.data import Dataset
from acbo.experiments.problem import Problem

NEAR = 0.06
"""Experiments count for an action that sets the same variables, each within this part of its range."""


def measured_near(
    problem: Problem, data: Dataset, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
    """How often each action, or one like it, was tried, and the mean of what that gave; doing nothing was not tried."""
    tried = data.intervened.any(1) & data.rows
    width = jnp.where(problem.high > problem.low, problem.high - problem.low, 1)
    apart = jnp.abs(value[:, None] - data.values) / width
    # One level is not another, however near.
    reach = jnp.where(jnp.isnan(problem.levels).all(-1), NEAR, 1e-4)
    close = jnp.all((mask[:, None] == data.intervened) & (~mask[:, None] | (apart <= reach)), -1)
    here = (close & tried & mask.any(-1)[:, None]).astype(data.values.dtype)
    count = here.sum(1)
    y = jnp.where(tried, data.values[:, data.target], 0)
    return count, here @ y / jnp.maximum(count, 1)


def refuted(
    problem: Problem,
    data: Dataset,
    mask: Bool[Array, "actions d"],
    value: Float[Array, "actions d"],
    least: int = 1,
) -> Bool[Array, " actions"]:
    """Whether experiments with this action, at least so many, came out worse than doing nothing, by a standard error.

    The error is that of both means, from the scatter of the observations; it needs observations to compare with.
    """
    count, mean = measured_near(problem, data, mask, value)
    found = outcomes_of(data)
    seen = jnp.any(data.rows & ~found.tried)
    error = found.scale * jnp.sqrt(1 / jnp.maximum(count, 1) + 1 / found.observed)
    return seen & (count >= least) & (problem.sign * (mean - found.centre) > error)

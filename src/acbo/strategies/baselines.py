"""Strategies to compare with: random experiments, a Latin hypercube, and the oracle, which knows the true model."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM
from acbo.scms.true_effects import best_intervention

from .actions import random_actions
from .base import AbstractStrategy


def best_seen(problem: Problem, data: Dataset) -> Recommendation:
    """The experiment with the best target so far; doing nothing, where none beats the mean of the observations."""
    y = data.values[:, data.target]
    tried = data.intervened.any(1) & data.rows
    seen = data.rows & ~tried
    count = jnp.maximum(seen.sum(), 1)
    mean = jnp.where(seen.any(), jnp.where(seen, y, 0).sum() / count, 0)
    deviation = jnp.sqrt(jnp.where(seen, (y - mean) ** 2, 0).sum() / count)
    losses = jnp.where(tried, problem.sign * y, jnp.inf)
    best = jnp.argmin(losses)
    better = losses[best] < jnp.where(seen.any(), problem.sign * mean, jnp.inf)
    mask = data.intervened[best] & better
    return Recommendation(
        mask=mask,
        value=jnp.where(mask, data.values[best], 0),
        mean=jnp.where(better, y[best], mean),
        spread=jnp.where(better, deviation, deviation / jnp.sqrt(count)),
    )


class Random(AbstractStrategy):
    """Random variables at values uniform in their ranges."""

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_which, key_value = jr.split(key)
        return _uniform(problem, key_which, jr.uniform(key_value, (problem.size,), problem.low.dtype))

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        return best_seen(problem, data)


class LatinHypercube(AbstractStrategy):
    """Random variables at values that are spread evenly: of `trials` values, each falls into a slice of its own.

    The design follows from `seed`; how many experiments were made so far tells which comes next.
    """

    trials: int = 10
    seed: int = 0

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_which, key_value = jr.split(key)
        made = (data.intervened.any(1) & data.rows).sum()
        design = jr.fold_in(jr.key(self.seed), made // self.trials)
        slices = jr.permutation(
            design, jnp.tile(jnp.arange(self.trials), (problem.size, 1)), axis=1, independent=True
        )
        inside = jr.uniform(key_value, (problem.size,), problem.low.dtype)
        return _uniform(problem, key_which, (slices[:, made % self.trials] + inside) / self.trials)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        return best_seen(problem, data)


class Oracle(AbstractStrategy):
    """The best intervention of the true model, at once: a bound for all others."""

    scm: SCM

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        best = self.recommend(problem, data, key)
        return Choice(best.mask, best.value, ~best.mask.any(), best.spread)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        low, high = (best_intervention(self.scm, problem.max_simultaneous, least) for least in (True, False))
        best = jax.tree.map(lambda a, b: jnp.where(problem.sign > 0, a, b), low, high)
        do, value = best.intervention, best.value
        return Recommendation(do.mask, do.value, value, jnp.zeros_like(value))


def _uniform(problem: Problem, key: Key, part: Float[Array, " d"]) -> Choice:
    """A random set with these parts of the ranges as values."""
    mask = random_actions(problem, key, 1)[0][0]
    value = problem.snap(problem.low * (1 - part) + problem.high * part)
    zero = jnp.zeros((), problem.low.dtype)
    return Choice(mask, jnp.where(mask, value, 0), ~mask.any(), zero)

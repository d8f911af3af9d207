"""The strategy that knows the true model: a bound for all others."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM
from acbo.scms.true_effects import best_intervention

from .base import AbstractStrategy


class Oracle(AbstractStrategy):
    """The best intervention of the true model, at once."""

    scm: SCM

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        best = self.recommend(problem, data, key)
        return Choice(best.mask, best.value, ~best.mask.any(), best.spread)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        low = best_intervention(self.scm, problem.max_simultaneous, True)
        high = best_intervention(self.scm, problem.max_simultaneous, False)
        small = problem.sign > 0
        mask = jnp.where(small, low.intervention.mask, high.intervention.mask)
        value = jnp.where(small, low.intervention.value, high.intervention.value)
        return Recommendation(mask, value, jnp.where(small, low.value, high.value), jnp.zeros_like(low.value))

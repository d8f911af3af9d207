"""The compiled programs behind the optimizer: each is one function, compiled once per shape of its arrays."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.beliefs import BeliefSettings, draw_models, models_of
from acbo.beliefs.effects import expected_rows
from acbo.data import Dataset, Key
from acbo.experiments.problem import Choice, Problem, Recommendation
from acbo.inference import AbstractScore, edge_posterior
from acbo.scms.scm import SCM
from acbo.strategies.strategy import AbstractStrategy


@eqx.filter_jit
def next_choice(
    strategy: AbstractStrategy, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key
) -> Choice:
    """The strategy's next experiment."""
    return strategy.choose(problem, data, remaining, key)


@eqx.filter_jit
def final_choice(strategy: AbstractStrategy, problem: Problem, data: Dataset, key: Key) -> Recommendation:
    """The strategy's recommendation."""
    return strategy.recommend(problem, data, key)


@eqx.filter_jit
def believed_models(
    problem: Problem, data: Dataset, known: bool, key: Key, settings: BeliefSettings, score: AbstractScore
) -> SCM:
    """Models drawn from their posterior; where the graph is known, only their mechanisms are drawn."""
    if known:
        graphs = jnp.broadcast_to(problem.knowledge.required, (settings.models, data.size, data.size))
        return models_of(problem, data, graphs, key, settings)
    return draw_models(problem, data, key, settings, score)


@eqx.filter_jit
def believed_rows(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
) -> Float[Array, "models actions d"]:
    """The mean of all variables under each action, in each model."""
    return expected_rows(models, mask, value)


@eqx.filter_jit
def edge_probabilities(data: Dataset, problem: Problem, score: AbstractScore) -> Float[Array, "d d"]:
    """Probability of each edge, `[i, j]` for i → j."""
    return edge_posterior(data, score, problem.knowledge).edges

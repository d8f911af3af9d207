"""The compiled programs behind the optimizer: each is one function, compiled once per shape of its arrays."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.beliefs import AbstractBelief, BeliefSettings, Effects, corrected_belief, draw_models
from acbo.beliefs.model_effects import effects_of, expected_rows, target_variance
from acbo.data import Dataset, Key
from acbo.inference import AbstractScore, edge_posterior
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM
from acbo.strategies.base import AbstractStrategy


@eqx.filter_jit
def next_choice(
    strategy: AbstractStrategy, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key
) -> Choice:
    """The strategy's next experiment."""
    return strategy.choose(problem, data, remaining, key)


Action = tuple[Bool[Array, " d"], Float[Array, " d"]]
"""Mask and values of an action."""


@eqx.filter_jit
def final_choice(
    strategy: AbstractStrategy,
    problem: Problem,
    data: Dataset,
    belief: AbstractBelief,
    proposal: Action | None,
    key: Key,
) -> Recommendation:
    """The strategy's recommendation, by the belief where the strategy can; a network's proposal is looked at too."""
    by_belief = getattr(strategy, "advise", None)
    if by_belief is None:
        return strategy.recommend(problem, data, key)
    more = {} if proposal is None else {"proposal": proposal}
    return by_belief(problem, data, belief, key, **more)


def strategy_belief(
    strategy: AbstractStrategy,
    problem: Problem,
    data: Dataset,
    key: Key,
    settings: BeliefSettings,
) -> AbstractBelief:
    """The strategy's belief about the target, or by default one from causal models and experiments."""
    if hasattr(strategy, "belief") and not hasattr(strategy, "advise"):
        return own_belief(strategy, problem, data, key)
    models = strategy_models(strategy, problem, data, key, settings)
    return corrected_belief(problem, data, models, jr.fold_in(key, 1))


@eqx.filter_jit
def own_belief(strategy: Any, problem: Problem, data: Dataset, key: Key) -> AbstractBelief:
    """The belief of a strategy that has one of its own kind."""
    return strategy.belief(problem, data, key)


@eqx.filter_jit
def unchecked_proposal(strategy: AbstractStrategy, problem: Problem, data: Dataset) -> Action | None:
    """The recommendation of a trained network alone; None for other strategies."""
    proposal = getattr(strategy, "proposal", None)
    return None if proposal is None else proposal(problem, data)


class TargetForecast(NamedTuple):
    """Expected target under some actions, with bands."""

    effects: Effects
    expected: Float[Array, " actions"]
    low: Float[Array, " actions"]
    high: Float[Array, " actions"]


@eqx.filter_jit
def effect_bands(
    belief: AbstractBelief, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"], band: float
) -> TargetForecast:
    """E[target | do] of each action, with bounds that hold it with probability `band`."""
    found = belief.effects(mask, value)
    tail = (1 - band) / 2
    return TargetForecast(found, found.expected, found.quantile(tail), found.quantile(1 - tail))


@eqx.filter_jit
def strategy_models(
    strategy: AbstractStrategy,
    problem: Problem,
    data: Dataset,
    key: Key,
    settings: BeliefSettings,
) -> SCM:
    """Models as the strategy draws them, or from their posterior; where the graph is known, all have it."""
    own = getattr(strategy, "models", None)
    if own is not None:
        return own(problem, data, key)
    return draw_models(problem, data, key, settings)


@eqx.filter_jit
def outcome_predictions(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
) -> tuple[Float[Array, "models actions"], Float[Array, " actions"]]:
    """The expected target under each model, and the variance of a single measurement."""
    return effects_of(models, mask, value), target_variance(models, mask, value)


@eqx.filter_jit
def model_means(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
) -> Float[Array, "models actions d"]:
    """The mean of all variables under each action, in each model."""
    return expected_rows(models, mask, value)


@eqx.filter_jit
def edge_probabilities(data: Dataset, problem: Problem, score: AbstractScore) -> Float[Array, "d d"]:
    """Probability of each edge, `[i, j]` for i → j."""
    return edge_posterior(data, score, problem.knowledge).edges

"""Strategies with causal models drawn from their posterior: Thompson, improvement, knowledge, information."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import MEMORY, AbstractBelief, Belief, Effects, corrected_belief
from acbo.beliefs.model_effects import log_likelihood
from acbo.beliefs.posterior_models import BeliefSettings, draw_models
from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.interventions import hard
from acbo.scms.samples import draw_noise, propagate
from acbo.scms.scm import SCM

from .actions import Actions, best_of, candidate_actions, is_refuted, search_around, with_tried
from .base import AbstractStrategy

ROUNDS, STARTS = 4, 4
"""Rounds of the local search, and number of candidates it starts from."""
LEAST_GAIN = 2e-3
"""Least gain of a step of that search, in the target's units, so that values leave the ends of ranges only for a gain."""


class Prospect(NamedTuple):
    """The candidates for an experiment, and what models drawn from the belief expect of them."""

    problem: Problem
    models: SCM
    actions: Actions
    losses: Float[Array, "models actions"]
    """Expected targets, turned so that small is good."""
    key: Key


class AbstractBeliefBased(AbstractStrategy):
    """Recommendations by causal models drawn from their posterior, corrected by experiments."""

    @abc.abstractmethod
    def models(self, problem: Problem, data: Dataset, key: Key) -> SCM:
        """Causal models drawn from their posterior."""

    def belief(self, problem: Problem, data: Dataset, key: Key) -> Belief:
        """The belief about the target: the models, corrected by experiments."""
        return corrected_belief(problem, data, self.models(problem, data, key), jr.fold_in(key, 1))

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        key_belief, key_search = jr.split(key)
        return self.advise(problem, data, self.belief(problem, data, key_belief), key_search)

    @abc.abstractmethod
    def advise(self, problem: Problem, data: Dataset, belief: AbstractBelief, key: Key) -> Recommendation:
        """The recommendation given a belief."""


class AbstractModelBased(AbstractBeliefBased):
    """Experiments by their worth, which subclasses define."""

    settings: BeliefSettings = eqx.field(static=True, default=BeliefSettings())
    places: int = eqx.field(static=True, default=5)
    """Values of each variable that are candidates."""
    sets: int = eqx.field(static=True, default=128)
    """Sets of several variables that are candidates, where they may be set together."""

    def models(self, problem: Problem, data: Dataset, key: Key) -> SCM:
        return draw_models(problem, data, key, self.settings)

    @abc.abstractmethod
    def worth(self, prospect: Prospect) -> Float[Array, " actions"]:
        """Worth of each action."""

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_belief, key_actions, key_worth = jr.split(key, 3)
        belief = self.belief(problem, data, key_belief)
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        effects = belief.effects(actions.mask, actions.value)
        losses = problem.sign * _joint_draws(effects, actions, jr.fold_in(key_belief, 2))
        worth = self.worth(Prospect(problem, belief.models, actions, losses, key_worth))
        # Doing nothing is not an experiment.
        chosen, least = best_of(-worth, actions.allowed & actions.mask.any(-1))
        return Choice(actions.mask[chosen], actions.value[chosen], ~jnp.isfinite(least), -least)

    def advise(self, problem: Problem, data: Dataset, belief: AbstractBelief, key: Key) -> Recommendation:
        return best_action(problem, data, belief, key, self.places, self.sets)


def _joint_draws(effects: Effects, actions: Actions, key: Key) -> Float[Array, "models actions"]:
    """For each model, a draw of the expected target of every action; actions share the random number of a variable they set."""
    count, d = effects.mean.shape[0], actions.mask.shape[1]
    normals = jr.normal(key, (count, d), effects.mean.dtype) @ actions.mask.astype(effects.mean.dtype).T
    return effects.mean + effects.deviation * normals / jnp.sqrt(jnp.maximum(actions.mask.sum(-1), 1))


def best_action(
    problem: Problem,
    data: Dataset,
    belief: AbstractBelief,
    key: Key,
    places: int = 5,
    sets: int = 128,
    proposal: tuple[Bool[Array, " d"], Float[Array, " d"]] | None = None,
) -> Recommendation:
    """The action with the best expected target among the candidates, the actions tried, and those around the best of them.

    An action that experiments contradict (`is_refuted`) is not recommended, whatever the belief says. A `proposal` is one
    more candidate.
    """
    key_actions, key_search = jr.split(key)
    actions = with_tried(problem, data, candidate_actions(problem, key_actions, places, sets), MEMORY)
    if proposal is not None:
        one = Actions(proposal[0][None], proposal[1][None], jnp.ones(1, bool))
        actions = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), actions, one)

    def loss(actions: Actions) -> Float[Array, " actions"]:
        found = problem.sign * belief.effects(actions.mask, actions.value).expected
        bad = is_refuted(problem, data, actions.mask, actions.value)
        return jnp.where(actions.allowed & ~bad, found, jnp.inf)

    losses = loss(actions)
    _, order = jax.lax.top_k(-losses, STARTS)
    starts = jax.tree.map(lambda part: part[order], actions)
    steps = 0.5 / places * 0.5 ** jnp.arange(ROUNDS).astype(starts.value.dtype)
    found, least = search_around(problem, starts, losses[order], loss, steps, key_search, LEAST_GAIN)
    best = jnp.argmin(least)
    return recommendation_of(belief, found.mask[best], found.value[best])


def recommendation_of(
    belief: AbstractBelief, mask: Bool[Array, " d"], value: Float[Array, " d"]
) -> Recommendation:
    """An action as a recommendation, with its expected target."""
    found = belief.effects(mask[None], value[None])
    return Recommendation(mask, value, found.expected[0], found.spread[0])


class Thompson(AbstractModelBased):
    """The best experiment if one model, drawn from the posterior, were the truth."""

    def worth(self, prospect: Prospect) -> Float[Array, " actions"]:
        one = prospect.losses[jr.randint(prospect.key, (), 0, prospect.losses.shape[0])]
        return one[0] - one


class ExpectedImprovement(AbstractModelBased):
    """Expected improvement on the best mean so far, per unit of cost."""

    def worth(self, prospect: Prospect) -> Float[Array, " actions"]:
        _, incumbent = best_of(prospect.losses.mean(0), prospect.actions.allowed)
        gain = jnp.maximum(incumbent - prospect.losses, 0).mean(0)
        return gain / price(prospect.problem, prospect.actions)


class KnowledgeGradient(AbstractModelBased):
    """Expected improvement of the recommendation after the experiment, per unit of cost.

    Each model in turn is taken for the truth: it answers the experiment, the others are weighed by how well they
    explain the answer, and the truth says what their recommendation is worth.
    """

    def worth(self, prospect: Prospect) -> Float[Array, " actions"]:
        allowed = prospect.actions.allowed
        held, finite = (jnp.where(allowed, prospect.losses, other) for other in (jnp.inf, 0))
        count = held.shape[0]
        now = _leave_one_out(jnp.zeros((count, count), held.dtype), held, finite)
        weights = log_weights(prospect.models, prospect.actions, prospect.key)
        after = jax.lax.map(lambda w: _leave_one_out(w, held, finite), weights)
        return (now - after) / price(prospect.problem, prospect.actions)


def _leave_one_out(
    log_weights: Float[Array, "truths models"],
    held: Float[Array, "models actions"],
    finite: Float[Array, "models actions"],
) -> Float[Array, ""]:
    """The mean true loss of what the other models recommend."""
    models = held.shape[0]
    log = jnp.where(jnp.eye(models, dtype=bool), -jnp.inf, log_weights)
    share = jax.nn.softmax(log, axis=-1) if models > 1 else jnp.ones_like(log)
    mean = jnp.where(jnp.isinf(held[:1]), jnp.inf, share @ finite)
    chosen = jnp.argmin(mean, axis=-1)
    return jnp.take_along_axis(held, chosen[:, None], axis=1).mean()


class InformationGain(AbstractModelBased):
    """Expected information about the true model, in nats, per unit of cost."""

    def worth(self, prospect: Prospect) -> Float[Array, " actions"]:
        weights = log_weights(prospect.models, prospect.actions, prospect.key)
        own = jnp.diagonal(weights, axis1=1, axis2=2)
        gain = jnp.log(len(prospect.losses)) + (own - jax.nn.logsumexp(weights, axis=-1))
        return gain.mean(-1) / price(prospect.problem, prospect.actions)


def log_weights(models: SCM, actions: Actions, key: Key) -> Float[Array, "actions truths models"]:
    """log p(answer of the truth to the action | model), for one random answer of every model to every action."""
    count, (total, d) = models.target.shape[0], actions.mask.shape
    # The same noise for every action: their differences are less noisy than they are.
    noise = jax.vmap(lambda m, k: draw_noise(m, k, 1))(models, jr.split(key, count))

    def answer(model: SCM, noise: Float[Array, "1 d"]) -> Float[Array, "actions d"]:
        return propagate(model, jnp.broadcast_to(noise, (total, d)), hard(actions.mask, actions.value))

    rows = jax.vmap(answer)(models, noise)
    flat = rows.swapaxes(0, 1).reshape(total * count, d)
    mask = jnp.repeat(actions.mask, count, axis=0)
    found = jax.vmap(lambda model: log_likelihood(model, flat, mask))(models)
    return jnp.moveaxis(found.reshape(count, total, count), 0, -1)


def price(
    problem: Problem, actions: Actions, top: Float[Array, ""] | None = None
) -> Float[Array, " actions"]:
    """Cost relative to the most expensive candidate, whose cost may be given as `top`; never 0."""
    cost = problem.cost(actions.mask, actions.value)
    top = greatest_cost(problem, actions) if top is None else top
    return jnp.where(top > 0, jnp.maximum(cost / jnp.where(top > 0, top, 1), 0.01), 1)


def greatest_cost(problem: Problem, actions: Actions) -> Float[Array, ""]:
    """The greatest cost of what is allowed."""
    return jnp.max(jnp.where(actions.allowed, problem.cost(actions.mask, actions.value), 0))

"""Strategies that believe in causal models drawn from their posterior: Thompson, improvement, knowledge, information."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.beliefs.effects import effects_of, log_likelihood
from acbo.beliefs.models import draw_models, models_of
from acbo.beliefs.settings import BeliefSettings
from acbo.data import Dataset, Key
from acbo.experiments.problem import Choice, Problem, Recommendation
from acbo.scms.interventions import hard
from acbo.scms.sampling import draw_noise, propagate
from acbo.scms.scm import SCM

from .actions import Actions, best_of, candidate_actions, closer_actions
from .strategy import AbstractStrategy

ROUNDS, STARTS = 4, 4
"""How often the best values are searched around again, and around how many candidates."""


class AbstractBelieving(AbstractStrategy):
    """Beliefs by `draw_models`; subclasses say what makes an experiment worth its price."""

    settings: BeliefSettings = eqx.field(static=True, default=BeliefSettings())
    places: int = eqx.field(static=True, default=5)
    """Values of each variable that are candidates."""
    sets: int = eqx.field(static=True, default=128)
    """Sets of several variables that are candidates, where they may be set together."""
    graph_known: bool = eqx.field(static=True, default=False)
    """Whether `problem.knowledge.required` is the whole graph, of any size: nothing about it is drawn then."""

    def models(self, problem: Problem, data: Dataset, key: Key) -> SCM:
        """What is believed."""
        if self.graph_known:
            graphs = jnp.broadcast_to(
                problem.knowledge.required, (self.settings.models, problem.size, problem.size)
            )
            return models_of(problem, data, graphs, key, self.settings)
        return draw_models(problem, data, key, self.settings)

    @abc.abstractmethod
    def worth(
        self,
        problem: Problem,
        models: SCM,
        actions: Actions,
        losses: Float[Array, "models actions"],
        key: Key,
    ) -> Float[Array, " actions"]:
        """How much each action is worth; `losses` are their expected targets, to be made small."""

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_models, key_actions, key_worth = jr.split(key, 3)
        models = self.models(problem, data, key_models)
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        losses = problem.sign * effects_of(models, actions.mask, actions.value)
        worth = self.worth(problem, models, actions, losses, key_worth)
        # To do nothing is no experiment.
        chosen, least = best_of(-worth, actions.allowed & actions.mask.any(-1))
        return Choice(actions.mask[chosen], actions.value[chosen], ~jnp.isfinite(least), -least)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        key_models, key_actions = jr.split(key)
        return best_believed(
            problem, self.models(problem, data, key_models), key_actions, self.places, self.sets
        )


def best_believed(
    problem: Problem, models: SCM, key: Key, places: int = 5, sets: int = 128
) -> Recommendation:
    """The action with the best expected target over all models: of the candidates, and of what lies around the best."""
    key_actions, key_search = jr.split(key)
    actions = candidate_actions(problem, key_actions, places, sets)
    losses = problem.sign * effects_of(models, actions.mask, actions.value).mean(0)
    if not models.mechanism.units and problem.max_simultaneous == 1:
        # A linear effect of one variable is best at an end.
        best, _ = best_of(losses, actions.allowed)
        return _recommendation(models, actions.mask[best], actions.value[best])
    _, order = jax.lax.top_k(-jnp.where(actions.allowed, losses, jnp.inf), STARTS)
    mask, value = actions.mask[order], actions.value[order]

    def closer(
        value: Float[Array, "starts d"], turn: tuple[Array, Key]
    ) -> tuple[Float[Array, "starts d"], None]:
        step, key = turn
        near = jax.vmap(lambda m, v, k: closer_actions(problem, m, v, step, k))(
            mask, value, jr.split(key, STARTS)
        )
        flat = jnp.repeat(mask, near.shape[1], 0), near.reshape(-1, problem.size)
        found = problem.sign * effects_of(models, *flat).mean(0)
        which = jnp.argmin(found.reshape(STARTS, -1), axis=1)
        return jnp.take_along_axis(near, which[:, None, None], axis=1)[:, 0], None

    steps = 0.5 / places * 0.5 ** jnp.arange(ROUNDS).astype(value.dtype)
    value, _ = jax.lax.scan(closer, value, (steps, jr.split(key_search, ROUNDS)))
    losses = problem.sign * effects_of(models, mask, value).mean(0)
    allowed = actions.allowed[order]
    best, _ = best_of(losses, allowed)
    return _recommendation(models, mask[best], value[best])


def _recommendation(models: SCM, mask: Bool[Array, " d"], value: Float[Array, " d"]) -> Recommendation:
    effects = effects_of(models, mask[None], value[None])[:, 0]
    return Recommendation(mask, value, effects.mean(), effects.std())


class Thompson(AbstractBelieving):
    """The best experiment if one model, drawn from the posterior, were the truth."""

    def worth(
        self,
        problem: Problem,
        models: SCM,
        actions: Actions,
        losses: Float[Array, "models actions"],
        key: Key,
    ) -> Float[Array, " actions"]:
        one = losses[jr.randint(key, (), 0, losses.shape[0])]
        return one[0] - one


class ExpectedImprovement(AbstractBelieving):
    """By how much the expected target is believed to lie below the best mean so far, per unit of cost."""

    def worth(
        self,
        problem: Problem,
        models: SCM,
        actions: Actions,
        losses: Float[Array, "models actions"],
        key: Key,
    ) -> Float[Array, " actions"]:
        _, incumbent = best_of(losses.mean(0), actions.allowed)
        return jnp.maximum(incumbent - losses, 0).mean(0) / price(problem, actions)


class KnowledgeGradient(AbstractBelieving):
    """By how much better the recommendation is expected to be after the experiment, per unit of cost.

    Each model in turn is taken for the truth: it answers the experiment, the others are weighed by how well they
    explain the answer, and the truth says what their recommendation is worth.
    """

    def worth(
        self,
        problem: Problem,
        models: SCM,
        actions: Actions,
        losses: Float[Array, "models actions"],
        key: Key,
    ) -> Float[Array, " actions"]:
        held = jnp.where(actions.allowed, losses, jnp.inf)
        finite = jnp.where(actions.allowed, losses, 0)
        now = _leave_one_out(jnp.zeros((losses.shape[0], losses.shape[0]), losses.dtype), held, finite)
        weights = log_weights(models, actions, key)
        after = jax.lax.map(lambda w: _leave_one_out(w, held, finite), weights)
        return (now - after) / price(problem, actions)


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


class InformationGain(AbstractBelieving):
    """How much the experiment is expected to tell about which model is true, in nats, per unit of cost."""

    def worth(
        self,
        problem: Problem,
        models: SCM,
        actions: Actions,
        losses: Float[Array, "models actions"],
        key: Key,
    ) -> Float[Array, " actions"]:
        weights = log_weights(models, actions, key)
        own = jnp.diagonal(weights, axis1=1, axis2=2)
        gain = jnp.log(losses.shape[0]) + (own - jax.nn.logsumexp(weights, axis=-1))
        return gain.mean(-1) / price(problem, actions)


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
    """Cost relative to the dearest candidate, whose cost `top` may be given; never 0."""
    cost = problem.cost(actions.mask, actions.value)
    top = dearest(problem, actions) if top is None else top
    return jnp.where(top > 0, jnp.maximum(cost / jnp.where(top > 0, top, 1), 0.01), 1)


def dearest(problem: Problem, actions: Actions) -> Float[Array, ""]:
    """The greatest cost of what is allowed."""
    return jnp.max(jnp.where(actions.allowed, problem.cost(actions.mask, actions.value), 0))

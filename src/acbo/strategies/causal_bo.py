"""Causal Bayesian optimization with a known graph: effects from fitted mechanisms, corrected by what experiments showed."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import AbstractBelief, Effects
from acbo.beliefs.model_effects import effects_of
from acbo.beliefs.outcomes import outcomes_of, recent
from acbo.beliefs.posterior_models import BeliefSettings, models_of
from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM

from .actions import Actions, best_of, candidate_actions, closer_actions, with_tried, without_idle
from .base import AbstractStrategy
from .gp_ei import expected_gain, gp_posterior, most_gaining
from .model_based import greatest_cost, price

ROUNDS, STARTS, FIRST = 5, 8, 0.1
"""Rounds of the local search, number of candidates it starts from, and first step as a part of the range."""
WIDEST = 4.0
"""Deviations of the target, from its mean, within which effects are expected."""


class CausalBO(AbstractStrategy):
    """Expected improvement, where the mean and the doubt about an effect come from the graph and the data along it.

    Mechanisms are fitted along `problem.knowledge.required`. A Gaussian process corrects what they predict by what
    experiments have shown, in part for each set of variables alone and in part for each variable in all sets, so that
    hidden common causes and mechanisms of another kind mislead only for a while; where smooth mechanisms are of no use
    at all, they are left out of account, by the evidence. Variables whose effect others of a set cut off are not set.
    After Aglietti and others (2020), with doubt about the mechanisms added.
    """

    settings: BeliefSettings = eqx.field(static=True, default=BeliefSettings(models=32))
    places: int = eqx.field(static=True, default=9)
    sets: int = eqx.field(static=True, default=512)
    lengths: tuple[float, ...] = eqx.field(static=True, default=(0.05, 0.1, 0.2, 0.4, 0.8))
    signals: tuple[float, ...] = eqx.field(static=True, default=(0.03, 0.3, 1.0, 3.0))
    shares: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.5, 0.9))
    """Shares of the correction that are sums over variables, weighed by the likelihood."""
    noise: float | None = eqx.field(static=True, default=None)
    """Standard deviation of the target under one experiment; that of the observations if not given."""
    caution: float = eqx.field(static=True, default=1.0)
    """Deviations that count against a recommendation."""
    seed: int = eqx.field(static=True, default=0)
    """Of the models that are drawn: the same at every step, so that what experiments correct stays corrected."""
    memory: int = eqx.field(static=True, default=64)
    """Number of most recent experiments it uses; the cost grows with the square."""
    from_observations: bool = eqx.field(static=True, default=False)
    """True if mechanisms are fitted to observations alone; experiments that report means need it."""

    def models(self, problem: Problem, data: Dataset, key: Key) -> SCM:
        """Models with the known graph."""
        if self.from_observations:
            rows = data.rows & ~data.intervened.any(1)
            data = eqx.tree_at(lambda data: data.rows, data, rows)
        graphs = jnp.broadcast_to(
            problem.knowledge.required, (self.settings.models, problem.size, problem.size)
        )
        return models_of(problem, data, graphs, key, self.settings)

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_actions, key_closer, key_ties = jr.split(key, 3)
        models = self.models(problem, data, jr.key(self.seed))
        data = _without_idle_settings(problem, data)
        actions = self.candidates(problem, data, key_actions)
        mean, deviation = self.posterior(problem, data, models, actions)
        _, best = best_of(problem.sign * mean, actions.allowed)
        top = greatest_cost(problem, actions)

        def gain_of(
            actions: Actions, mean: Float[Array, " actions"], deviation: Float[Array, " actions"]
        ) -> Float[Array, " actions"]:
            gain = expected_gain(problem, mean, deviation, best) / price(problem, actions, top)
            if self.noise is None:
                return gain
            # With known noise, repeating an almost certain experiment is worth less (Huang and others, 2006).
            return gain * (1 - self.noise / jnp.sqrt(deviation**2 + self.noise**2))

        def loss(actions: Actions) -> Float[Array, " actions"]:
            return -gain_of(actions, *self.posterior(problem, data, models, actions))

        gain = gain_of(actions, mean, deviation)
        if self.search(problem, models):
            able = actions.allowed & actions.mask.any(-1)
            actions, losses = _closer(problem, actions, jnp.where(able, -gain, jnp.inf), loss, key_closer)
            gain = -losses
        return most_gaining(actions, gain, key_ties)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        key_actions, key_closer = jr.split(key)
        models = self.models(problem, data, jr.key(self.seed))
        data = _without_idle_settings(problem, data)
        actions = self.candidates(problem, data, key_actions)

        def loss(actions: Actions) -> Float[Array, " actions"]:
            mean, deviation = self.posterior(problem, data, models, actions)
            # Extrapolated values must promise more than measured ones.
            return jnp.where(actions.allowed, problem.sign * mean + self.caution * deviation, jnp.inf)

        losses = loss(actions)
        if self.search(problem, models):
            actions, losses = _closer(problem, actions, losses, loss, key_closer)
        best, _ = best_of(losses, actions.allowed)
        chosen = jax.tree.map(lambda part: part[best][None], actions)
        mean, deviation = self.posterior(problem, data, models, chosen)
        return Recommendation(actions.mask[best], actions.value[best], mean[0], deviation[0])

    def belief(self, problem: Problem, data: Dataset, key: Key) -> "CausalBelief":
        """The belief about the target: models along the graph, corrected by experiments."""
        models = self.models(problem, data, jr.key(self.seed))
        return CausalBelief(self, problem, _without_idle_settings(problem, data), models)

    def candidates(self, problem: Problem, data: Dataset, key: Key) -> Actions:
        """The first candidates: sets without idle variables, and recent experiments."""
        actions = _minimal_actions(problem, candidate_actions(problem, key, self.places, self.sets))
        return with_tried(problem, data, actions, self.memory)

    def search(self, problem: Problem, models: SCM) -> bool:
        """True if better values may lie between the candidates; a line is best at an end."""
        return models.mechanism.units > 0 or problem.max_simultaneous > 1

    def posterior(
        self, problem: Problem, data: Dataset, models: SCM, actions: Actions
    ) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
        """Mean and standard deviation of the expected target under each action."""
        y, tried, count, centre, scale = outcomes_of(data)
        noise = scale if self.noise is None else self.noise
        (made, levels, used), outcome = recent((data.intervened, data.values, tried), y, self.memory)
        made = made & used[:, None]
        mask = jnp.concatenate([actions.mask, made])
        value = jnp.concatenate([actions.value, jnp.where(made, levels, 0)])
        effects = effects_of(models, mask, value)
        # Far from all data smooth models promise anything: no more than a few deviations of it is believed.
        if models.mechanism.units:
            effects = jnp.clip(effects, centre - WIDEST * scale, centre + WIDEST * scale)
        expected, doubt = effects.mean(0), effects.std(0)
        asked = actions.mask.shape[0]
        lengths, signals = (jnp.asarray(x, y.dtype) for x in (self.lengths, self.signals))

        def correct(trust: float) -> tuple[Array, Array, Array]:
            prior = trust * (expected - centre) / scale
            residual = jnp.where(used, (outcome - centre) / scale - prior[asked:], 0)
            shift, spread, evidence = gp_posterior(
                problem,
                (made, levels, used),
                residual,
                (actions.mask, actions.value),
                noise / scale,
                lengths,
                signals,
                shares=self.shares if problem.max_simultaneous > 1 else (0.0,),
                memory=self.memory,
                doubts=(trust * doubt[asked:] / scale, trust * doubt[:asked] / scale),
            )
            return prior[:asked] + shift, spread, evidence

        # Experiments tell whether the observations' models are of any use where no observation lies.
        trusts = (1.0, 0.0) if models.mechanism.units else (1.0,)
        means, spreads, evidences = (jnp.stack(part) for part in zip(*map(correct, trusts), strict=True))
        weight = jax.nn.softmax(evidences)
        shift = weight @ means
        spread = jnp.sqrt(weight @ (spreads**2 + (means - shift) ** 2))
        nothing = ~actions.mask.any(-1)
        mean = jnp.where(nothing, centre, centre + scale * shift)
        return mean, jnp.maximum(jnp.where(nothing, scale / jnp.sqrt(count), scale * spread), 1e-4)


class CausalBelief(AbstractBelief):
    """The belief of `CausalBO`: one normal distribution for each action, and the models behind it."""

    strategy: CausalBO
    problem: Problem
    data: Dataset
    models: SCM

    def effects(self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]) -> Effects:
        actions = Actions(mask, value, jnp.ones(mask.shape[0], bool))
        actions = _minimal_actions(self.problem, actions)
        mean, deviation = self.strategy.posterior(self.problem, self.data, self.models, actions)
        return Effects(mean[None], deviation[None])


def _closer(
    problem: Problem,
    actions: Actions,
    losses: Float[Array, " actions"],
    loss: Callable[[Actions], Float[Array, " actions"]],
    key: Key,
) -> tuple[Actions, Float[Array, " starts"]]:
    """The best few actions, each after a search around it in ever smaller steps."""
    # The same action may come several times; random sums tell actions apart.
    marks = jr.normal(jr.fold_in(key, ROUNDS), (2, problem.size), losses.dtype)
    mark = actions.mask @ marks[0] + actions.value @ marks[1]
    again = jnp.any(jnp.tril(mark[:, None] == mark, -1), 1)
    _, order = jax.lax.top_k(-jnp.where(again, jnp.inf, losses), min(STARTS, losses.shape[0]))
    starts, losses = jax.tree.map(lambda part: part[order], actions), losses[order]
    count = losses.shape[0]

    def around(
        carry: tuple[Actions, Float[Array, " starts"]], turn: tuple[Array, Key]
    ) -> tuple[tuple[Actions, Float[Array, " starts"]], None]:
        actions, least = carry
        step, key = turn
        near = jax.vmap(lambda m, v, k: closer_actions(problem, m, v, step, k))(
            actions.mask, actions.value, jr.split(key, count)
        )
        every = near.shape[1]
        flat = Actions(
            jnp.repeat(actions.mask, every, 0),
            near.reshape(-1, problem.size),
            jnp.repeat(actions.allowed, every, 0),
        )
        found = loss(flat).reshape(count, every)
        which = jnp.argmin(found, axis=1)
        value = jnp.take_along_axis(near, which[:, None, None], axis=1)[:, 0]
        better = jnp.min(found, axis=1) < least
        value = jnp.where(better[:, None], value, actions.value)
        return (actions._replace(value=value), jnp.minimum(jnp.min(found, axis=1), least)), None

    steps = FIRST * 0.4 ** jnp.arange(ROUNDS).astype(actions.value.dtype)
    (starts, losses), _ = jax.lax.scan(around, (starts, losses), (steps, jr.split(key, ROUNDS)))
    return starts, losses


def _minimal_actions(problem: Problem, actions: Actions) -> Actions:
    mask = without_idle(problem.knowledge.required, problem.target, actions.mask)
    return actions._replace(mask=mask, value=jnp.where(mask, actions.value, 0))


def _without_idle_settings(problem: Problem, data: Dataset) -> Dataset:
    """The data as if idle variables had not been set: they only keep alike experiments apart."""
    mask = without_idle(problem.knowledge.required, problem.target, data.intervened)
    return eqx.tree_at(lambda data: data.intervened, data, mask)

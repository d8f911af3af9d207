"""Causal Bayesian optimization with a known graph: effects from fitted mechanisms, corrected by what experiments showed."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import AbstractBelief, Effects, outcomes_of, recent
from acbo.beliefs.model_effects import effects_of
from acbo.beliefs.posterior_models import BeliefSettings, models_of
from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM

from .actions import Actions, best_of, candidate_actions, search_around, with_tried, without_idle
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
    hidden common causes and mechanisms of another kind mislead only for a while; smooth mechanisms count as much as
    their evidence says, down to nothing. A variable whose effect the other variables of a set block is not set.
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
        belief = self.belief(problem, data, key)
        actions = self.candidates(belief, key_actions)
        mean, deviation = belief.posterior(actions)
        _, best = best_of(problem.sign * mean, actions.allowed)
        top = greatest_cost(problem, actions)

        def gain_of(actions: Actions, mean: Array, deviation: Array) -> Float[Array, " actions"]:
            gain = expected_gain(problem, mean, deviation, best) / price(problem, actions, top)
            if self.noise is None:
                return gain
            # With known noise, repeating an almost certain experiment is worth less (Huang and others, 2006).
            return gain * (1 - self.noise / jnp.sqrt(deviation**2 + self.noise**2))

        def loss(actions: Actions) -> Float[Array, " actions"]:
            return -gain_of(actions, *belief.posterior(actions))

        able = actions.allowed & actions.mask.any(-1)
        losses = jnp.where(able, -gain_of(actions, mean, deviation), jnp.inf)
        actions, losses = belief.search(actions, losses, loss, key_closer)
        return most_gaining(actions, -losses, key_ties)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        key_actions, key_closer = jr.split(key)
        belief = self.belief(problem, data, key)
        actions = self.candidates(belief, key_actions)

        def loss(actions: Actions) -> Float[Array, " actions"]:
            mean, deviation = belief.posterior(actions)
            # Extrapolated values must promise more than measured ones.
            return jnp.where(actions.allowed, problem.sign * mean + self.caution * deviation, jnp.inf)

        actions, losses = belief.search(actions, loss(actions), loss, key_closer)
        best, _ = best_of(losses, actions.allowed)
        mean, deviation = belief.posterior(jax.tree.map(lambda part: part[best][None], actions))
        return Recommendation(actions.mask[best], actions.value[best], mean[0], deviation[0])

    def belief(self, problem: Problem, data: Dataset, key: Key) -> "CausalBelief":
        """The belief about the target: models along the graph, corrected by experiments."""
        models = self.models(problem, data, jr.key(self.seed))
        # Idle variables that were set only keep alike experiments apart.
        mask = without_idle(problem.knowledge.required, problem.target, data.intervened)
        return CausalBelief(self, problem, eqx.tree_at(lambda data: data.intervened, data, mask), models)

    def candidates(self, belief: "CausalBelief", key: Key) -> Actions:
        """The first candidates: sets without idle variables, and recent experiments."""
        problem = belief.problem
        actions = _minimal_actions(problem, candidate_actions(problem, key, self.places, self.sets))
        return with_tried(problem, belief.data, actions, self.memory)


class CausalBelief(AbstractBelief):
    """The belief of `CausalBO`: one normal distribution for each action, and the models behind it."""

    strategy: CausalBO
    problem: Problem
    data: Dataset
    """All rows, as if idle variables had not been set."""
    models: SCM

    def effects(self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]) -> Effects:
        actions = Actions(mask, value, jnp.ones(mask.shape[0], bool))
        mean, deviation = self.posterior(_minimal_actions(self.problem, actions))
        return Effects(mean[None], deviation[None])

    def posterior(self, actions: Actions) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
        """Mean and standard deviation of the expected target under each action."""
        strategy, problem, data, models = self.strategy, self.problem, self.data, self.models
        y, tried, count, centre, scale = outcomes_of(data)
        noise = scale if strategy.noise is None else strategy.noise
        (made, levels, used), outcome = recent((data.intervened, data.values, tried), y, strategy.memory)
        made = made & used[:, None]
        mask = jnp.concatenate([actions.mask, made])
        value = jnp.concatenate([actions.value, jnp.where(made, levels, 0)])
        effects = effects_of(models, mask, value)
        # Far from all data smooth models promise anything: no more than a few deviations of it is believed.
        if models.mechanism.units:
            effects = jnp.clip(effects, centre - WIDEST * scale, centre + WIDEST * scale)
        expected, doubt = effects.mean(0), effects.std(0)
        asked = actions.mask.shape[0]
        lengths, signals = (jnp.asarray(x, y.dtype) for x in (strategy.lengths, strategy.signals))

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
                shares=strategy.shares if problem.max_simultaneous > 1 else (0.0,),
                memory=strategy.memory,
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

    def search(
        self,
        actions: Actions,
        losses: Float[Array, " actions"],
        loss: Callable[[Actions], Float[Array, " near"]],
        key: Key,
    ) -> tuple[Actions, Float[Array, " starts"]]:
        """The best few actions, each after a search around it; all as they are where a line is best at an end."""
        problem = self.problem
        if not self.models.mechanism.units and problem.max_simultaneous < 2:
            return actions, losses
        # The same action may come several times; random sums tell actions apart.
        marks = jr.normal(jr.fold_in(key, ROUNDS), (2, problem.size), losses.dtype)
        mark = actions.mask @ marks[0] + actions.value @ marks[1]
        again = jnp.any(jnp.tril(mark[:, None] == mark, -1), 1)
        _, order = jax.lax.top_k(-jnp.where(again, jnp.inf, losses), min(STARTS, losses.shape[0]))
        starts = jax.tree.map(lambda part: part[order], actions)
        steps = FIRST * 0.4 ** jnp.arange(ROUNDS).astype(actions.value.dtype)
        return search_around(problem, starts, losses[order], loss, steps, key)


def _minimal_actions(problem: Problem, actions: Actions) -> Actions:
    mask = without_idle(problem.knowledge.required, problem.target, actions.mask)
    return actions._replace(mask=mask, value=jnp.where(mask, actions.value, 0))

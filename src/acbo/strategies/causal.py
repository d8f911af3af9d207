"""Causal Bayesian optimization with a known graph: effects from fitted mechanisms, corrected by what experiments showed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo.beliefs.effects import effects_of
from acbo.beliefs.models import models_of
from acbo.beliefs.settings import BeliefSettings
from acbo.data import Dataset, Key
from acbo.experiments.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM

from .actions import Actions, best_of, candidate_actions, closer_actions
from .gp import gp_posterior, most_improving, outcomes_of, recent, with_tried
from .strategy import AbstractStrategy

ROUNDS = 4
WIDEST = 4.0
"""Deviations of the target, from its mean, within which effects are expected."""


class CausalBO(AbstractStrategy):
    """Expected improvement, where the mean and the doubt about an effect come from the graph and the data along it.

    Mechanisms are fitted along `problem.knowledge.required`. For every set of variables a Gaussian process corrects
    what they predict by what experiments on that set have shown, so that hidden common causes and mechanisms of another
    kind mislead only for a while. After Aglietti and others (2020), with doubt about the mechanisms added.
    """

    settings: BeliefSettings = eqx.field(static=True, default=BeliefSettings(models=32))
    places: int = eqx.field(static=True, default=9)
    sets: int = eqx.field(static=True, default=512)
    lengths: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.2, 0.4, 0.8))
    signals: tuple[float, ...] = eqx.field(static=True, default=(0.03, 0.3, 1.0, 3.0))
    noise: float | None = eqx.field(static=True, default=None)
    """Standard deviation of the target under one experiment; that of the observations if not given."""
    caution: float = eqx.field(static=True, default=1.0)
    """Deviations that count against a recommendation."""
    seed: int = eqx.field(static=True, default=0)
    """Of the models that are drawn: the same at every step, so that what experiments correct stays corrected."""
    memory: int = eqx.field(static=True, default=64)
    """How many experiments it looks back on, the last ones; the cost grows with the square."""
    from_observations: bool = eqx.field(static=True, default=False)
    """Whether mechanisms are fitted to observations alone; experiments that report means need it."""

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
        key_actions, key_near, key_ties = jr.split(key, 3)
        models = self.models(problem, data, jr.key(self.seed))
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        actions = _around_best(problem, data, with_tried(problem, data, actions, self.memory), key_near)
        mean, deviation = self.posterior(problem, data, models, actions)
        return most_improving(problem, actions, mean, deviation, key_ties)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        key_actions, key_near = jr.split(key)
        models = self.models(problem, data, jr.key(self.seed))
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        actions = _around_best(problem, data, with_tried(problem, data, actions, self.memory), key_near)
        mean, deviation = self.posterior(problem, data, models, actions)
        # What was only extrapolated must promise more than what was seen.
        best, _ = best_of(problem.sign * mean + self.caution * deviation, actions.allowed)
        return Recommendation(actions.mask[best], actions.value[best], mean[best], deviation[best])

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
        residual = jnp.where(used, outcome - expected[asked:], 0) / scale
        lengths, signals = (jnp.asarray(x, y.dtype) for x in (self.lengths, self.signals))
        shift, spread = gp_posterior(
            problem,
            (made, levels, used),
            residual,
            (actions.mask, actions.value),
            noise / scale,
            lengths,
            signals,
            memory=self.memory,
            doubts=(doubt[asked:] / scale, doubt[:asked] / scale),
        )
        nothing = ~actions.mask.any(-1)
        mean = jnp.where(nothing, centre, expected[:asked] + scale * shift)
        return mean, jnp.maximum(jnp.where(nothing, scale / jnp.sqrt(count), scale * spread), 1e-4)


def _around_best(problem: Problem, data: Dataset, actions: Actions, key: Key) -> Actions:
    """The candidates, and what lies around the four best experiments so far, ever closer."""
    y = problem.sign * data.values[:, data.target]
    tried = data.intervened.any(1) & data.rows
    _, rows = jax.lax.top_k(-jnp.where(tried, y, jnp.inf), min(4, y.shape[0]))
    mask = data.intervened[rows] & tried[rows][:, None]
    value = jnp.where(mask, data.values[rows], 0)
    steps = 0.15 * 0.4 ** jnp.arange(ROUNDS).astype(value.dtype)
    keys = jr.split(key, ROUNDS)
    near = jax.vmap(
        lambda step, key: jax.vmap(lambda m, v, k: closer_actions(problem, m, v, step, k))(
            mask, value, jr.split(key, mask.shape[0])
        )
    )(steps, keys)
    repeated = jnp.broadcast_to(mask[None, :, None], near.shape).reshape(-1, problem.size)
    return Actions(
        jnp.concatenate([actions.mask, repeated]),
        jnp.concatenate([actions.value, near.reshape(-1, problem.size)]),
        jnp.concatenate([actions.allowed, jnp.all(problem.manipulable | ~repeated, -1) & repeated.any(-1)]),
    )

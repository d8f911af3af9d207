"""The trained policy as a strategy: experiments by its distribution, recommendations by its predicted effects."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo.beliefs.models import models_of
from acbo.beliefs.settings import BeliefSettings
from acbo.data import Dataset, Key
from acbo.experiments.problem import Choice, Problem, Recommendation
from acbo.inference.graph_draws import draw_graphs
from acbo.strategies.believing import best_believed
from acbo.strategies.strategy import AbstractStrategy

from .acting import choice_of, draw_luck, pick
from .features import Scale, oriented, told
from .network import Outlook, PolicyNetwork, place_middles


class Policy(AbstractStrategy):
    """An acquisition network. Temperature 0 always takes the likeliest experiment; 1 is what it was trained with."""

    network: PolicyNetwork
    temperature: float = eqx.field(static=True, default=0.0)
    widening: float = eqx.field(static=True, default=1.7)
    """By how much predicted deviations are widened: those of the trained policy were found too small by this factor."""

    def outlook(self, problem: Problem, data: Dataset, remaining: Float[Array, ""]) -> tuple[Outlook, Scale]:
        """What the network makes of the situation."""
        turned = oriented(problem, data)
        known, scale = told(problem, turned, remaining)
        edges = self.network.posterior(known, turned, problem)
        return self.network(known, edges, problem, data.target), scale

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        outlook, _ = self.outlook(problem, data, remaining)
        luck = draw_luck(key, problem, self.network.config.places)
        picks, log = pick(outlook, problem, luck, self.temperature)
        return choice_of(outlook, problem, picks, log, luck)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        """The place with the best predicted effect; sets of several variables by models drawn from the posterior."""
        if problem.max_simultaneous > 1:
            key_graphs, key_models, key_search = jr.split(key, 3)
            graphs = draw_graphs(data, key_graphs, 32, knowledge=problem.knowledge)
            models = models_of(problem, data, graphs, key_models, BeliefSettings(models=32))
            return best_believed(problem, models, key_search)
        outlook, scale = self.outlook(problem, data, jnp.zeros((), problem.low.dtype))
        places = outlook.effect.shape[1]
        held = jnp.where(problem.manipulable[:, None], outlook.effect, jnp.inf).ravel()
        best = jnp.argmin(held)
        better = held[best] < 0
        mask = (jnp.arange(problem.size) == best // places) & better
        part = place_middles(places)[best % places].astype(problem.low.dtype)
        value = problem.snap(problem.low * (1 - part) + problem.high * part)
        centre, spread = scale.centre[data.target], scale.spread[data.target]
        mean = centre + spread * jnp.where(better, held[best], 0)
        doubt = self.widening * spread * outlook.doubt.ravel()[best]
        return Recommendation(mask, jnp.where(mask, value, 0), problem.sign * mean, doubt)

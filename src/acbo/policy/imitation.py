"""Labels for imitation: how often each experiment is best, over models drawn from the exact posterior."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from acbo.beliefs.belief_settings import BeliefSettings
from acbo.beliefs.model_effects import effects_of
from acbo.beliefs.posterior_models import draw_models
from acbo.data import Dataset, Key
from acbo.problem import Problem

from .policy_network import place_middles


def thompson_shares(
    problem: Problem, data: Dataset, key: Key, places: int, models: int = 32
) -> Float[Array, "d places"]:
    """The distribution of Thompson's experiments on single variables, at the middles of the places."""
    d = problem.size
    drawn = draw_models(problem, data, key, BeliefSettings(models=models))
    part = place_middles(places).astype(problem.low.dtype)
    value = problem.low[:, None] * (1 - part) + problem.high[:, None] * part
    mask = jnp.repeat(jnp.eye(d, dtype=bool), places, axis=0)
    losses = problem.sign * effects_of(drawn, mask, jnp.where(mask, value.reshape(-1, 1), 0))
    losses = jnp.where(jnp.repeat(problem.manipulable, places), losses, jnp.inf)
    best = jax.nn.one_hot(jnp.argmin(losses, axis=1), d * places, dtype=value.dtype)
    return best.mean(0).reshape(d, places)

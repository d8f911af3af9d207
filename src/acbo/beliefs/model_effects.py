"""Effects under drawn causal models: expected targets, expected rows, and likelihoods of outcomes."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.problem import Problem
from acbo.scms.interventions import hard
from acbo.scms.mechanisms import activate
from acbo.scms.samples import propagate
from acbo.scms.scm import SCM
from acbo.scms.true_effects import common_noise

DRAWS = 32
"""Draws behind each expectation of a smooth model."""


@eqx.filter_jit
def effects_of(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"], draws: int = DRAWS
) -> Float[Array, "models actions"]:
    """E[target | do] of every action under every model: exact for linear models, else over common draws."""
    return expected_rows(models, mask, value, draws)[..., models.target[0]]


def effect_of(
    models: SCM, problem: Problem, mask: Bool[Array, " d"], value: Float[Array, " d"]
) -> Float[Array, " models"]:
    """E[target | do] of one action under every model."""
    return effects_of(models, mask[None], problem.snap(value)[None])[:, 0]


@eqx.filter_jit
def effect_grid(models: SCM, problem: Problem, places: int) -> Float[Array, "models d places"]:
    """E[target | do(variable)] at evenly spaced values from the least to the greatest, for every single variable."""
    mask, value = single_actions(problem, places)
    return effects_of(models, mask, value).reshape(-1, problem.size, places)


@eqx.filter_jit
def expected_row(models: SCM, mask: Bool[Array, " d"], value: Float[Array, " d"]) -> Float[Array, " d"]:
    """The mean of all variables under an intervention, over models and noise."""
    return expected_rows(models, mask[None], value[None]).mean(0)[0]


def expected_rows(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"], draws: int = DRAWS
) -> Float[Array, "models actions d"]:
    """The mean of all variables under each action and each model."""

    def one(model: SCM) -> Float[Array, "actions d"]:
        if not model.mechanism.units:
            return propagate(model, jnp.zeros(mask.shape, value.dtype), hard(mask, value))
        return simulated_rows(model, mask, value, draws).mean(1)

    # One model after another where each is many rows: all at once would not fit the cache.
    return jax.vmap(one)(models) if not models.mechanism.units else jax.lax.map(one, models)


def target_variance(
    models: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"], draws: int = DRAWS
) -> Float[Array, " actions"]:
    """Variance of the target in one row of each action: the mean over models."""

    def one(model: SCM) -> Float[Array, " actions"]:
        return simulated_rows(model, mask, value, draws)[..., model.target].var(1)

    return jax.lax.map(one, models).mean(0)


def simulated_rows(
    model: SCM, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"], draws: int
) -> Float[Array, "actions draws d"]:
    """Rows of one model under each action, all with the same noise."""
    noise = common_noise(model, None, draws)
    each = hard(jnp.repeat(mask, noise.shape[0], 0), jnp.repeat(value, noise.shape[0], 0))
    return propagate(model, jnp.tile(noise, (mask.shape[0], 1)), each).reshape(mask.shape[0], -1, model.size)


def single_actions(
    problem: Problem, places: int
) -> tuple[Bool[Array, "actions d"], Float[Array, "actions d"]]:
    """Every variable alone at evenly spaced values, its ends among them: `places` rows for each, in order."""
    d = problem.size
    part = jnp.linspace(0, 1, places).astype(problem.low.dtype)
    value = problem.low[:, None] * (1 - part) + problem.high[:, None] * part
    mask = jnp.repeat(jnp.eye(d, dtype=bool), places, axis=0)
    return mask, problem.snap(jnp.where(mask, value.reshape(-1, 1), 0)) * mask


def log_likelihood(model: SCM, rows: Float[Array, "n d"], mask: Bool[Array, "n d"]) -> Float[Array, " n"]:
    """log p(row | model) of rows in which the masked variables were set."""
    m = model.mechanism
    mean = m.bias + rows @ m.weight
    if m.units:
        z = jnp.einsum("ni,ijk->jkn", rows, m.inner) + m.phase[..., None]
        active = jax.vmap(activate)(m.activation, m.reach, z)
        mean = mean + jnp.einsum("jk,jkn->nj", m.outer, active)
    free = model.live & ~mask
    scale = jnp.where(model.live, model.noise.scale, 1)
    score = -0.5 * ((rows - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * math.log(2 * math.pi)
    return jnp.sum(jnp.where(free, score, 0), axis=-1)

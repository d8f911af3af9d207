"""The true effect of an intervention: E[target | do(.)], exact for linear models and by simulation otherwise."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo.data import Key

from .draws import draw_uniform
from .interventions import Intervention
from .mechanisms import standard_noise
from .samples import propagate
from .scm import SCM

SAMPLES = 1024


@partial(jax.jit, static_argnames=("samples",))
def common_noise(scm: SCM, key: Key | None = None, samples: int = SAMPLES) -> Float[Array, "samples d"]:
    """Standard noise for comparing interventions on the same draws: each draw comes with its mirror image.

    Without a key it is the same on every call, so that differences of effects, and regrets, have little noise.
    """
    half = draw_uniform(jr.key(0) if key is None else key, (scm.size, (samples + 1) // 2))
    return standard_noise(scm.noise.kind[:, None], jnp.concatenate([half, -half], axis=1)).T


def simulated_effect(
    scm: SCM, noise: Float[Array, "samples d"], intervention: Intervention | None
) -> Float[Array, ""]:
    """Mean of the target over given noise."""
    return jnp.mean(propagate(scm, noise, intervention)[:, scm.target])


def linear_effect(scm: SCM, intervention: Intervention | None) -> Float[Array, ""]:
    """The mean of the target as if all mechanisms were linear: their noise has mean zero and drops out."""
    return propagate(scm, jnp.zeros((1, scm.size), scm.low.dtype), intervention)[0, scm.target]


@partial(jax.jit, static_argnames=("samples",))
def true_effect(
    scm: SCM, intervention: Intervention | None = None, key: Key | None = None, samples: int = SAMPLES
) -> Float[Array, ""]:
    """E[target | do(intervention)]; None is the observational mean. For many interventions, `vmap`.

    Linear models are exact, soft and shift interventions included. Others are averaged over `samples` draws, the same
    ones on every call unless `key` is given; the error is about the target's standard deviation / √samples.
    """
    exact = linear_effect(scm, intervention)
    if not scm.mechanism.units:
        return exact
    simulated = simulated_effect(scm, common_noise(scm, key, samples), intervention)
    return jnp.where(scm.is_linear, exact, simulated)


@partial(jax.jit, static_argnames=("minimize", "samples"))
def regret(
    scm: SCM,
    intervention: Intervention,
    best: Float[Array, ""],
    minimize: bool = True,
    key: Key | None = None,
    samples: int = SAMPLES,
) -> Float[Array, ""]:
    """Regret: the expected loss of the intervention beyond the best value of `best_intervention`."""
    loss = true_effect(scm, intervention, key, samples) - best
    return loss if minimize else -loss

"""Drawing a causal model from a prior, in one program whatever its size, family, mechanisms and noise."""

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from acbo.data import Key

from .draws import Draws, below, choose, uniform_between
from .families import draw_graph, draw_target, ensure_cause, graph_draws
from .mechanisms import (
    COS,
    CUBE,
    FOURIER,
    GAUSSIAN,
    HETEROSCEDASTIC,
    LINEAR,
    POLYNOMIAL,
    SQUARE,
    TANH,
    Mechanism,
    Noise,
)
from .prior import SCMPrior
from .scm import SCM

# Typical frequency of Fourier features and slope of tanh units, for inputs of unit variance.
FREQUENCY, SLOPE = 1.3, 1.5
# Inputs of random powers are held within ±3, where a cube reaches 27.
REACH = 3.0


@partial(jax.jit, static_argnames=("size", "units"))
def sample_scm(key: Key, prior: SCMPrior, size: int = 16, units: int = 8) -> SCM:
    """One model drawn from the prior, padded to `size` variables with `units` units each.

    Without units only linear mechanisms can be drawn, whatever the prior says. Sizes beyond `size` are held to it.
    """
    draws = Draws(key, 4 + graph_draws(size) + size * (2 * size + 10 + units * (size + 2)))
    least, most = prior.variables[0], jnp.minimum(prior.variables[1], size)
    least = jnp.minimum(least, most)
    live = jnp.arange(size) < least + below(draws.share(), most - least + 1)
    family = choose(draws.share(), prior.families)
    edges = uniform_between(draws.share(), prior.edges_per_variable)
    adjacency, order = draw_graph(draws, family, live, edges)
    adjacency = ensure_cause(adjacency, order, live)
    target = draw_target(draws.share(), adjacency, order, live)

    kind = choose(draws.share(size), prior.mechanisms) * (units > 0)
    noise_kind = choose(draws.share(size), prior.noises)
    # Nothing widens the noise of a variable without causes.
    noise_kind = jnp.where((noise_kind == HETEROSCEDASTIC) & ~adjacency.any(0), GAUSSIAN, noise_kind)
    signed, widening = draws.take(size, size), draws.take(size, size)
    weight = jnp.where(adjacency, jnp.sign(signed) * uniform_between(jnp.abs(signed), prior.weight), 0)
    side = draws.share(8, size)
    scale = jnp.where(live, uniform_between(side[0], prior.noise_scale), 0)

    signal = jnp.sqrt(jnp.sum(weight**2, axis=0))
    share = weight / jnp.where(signal > 0, signal, 1)
    variance = jnp.where(prior.unit_variance, signal**2 + scale**2, 1)
    gain = 1 / jnp.sqrt(jnp.where(variance > 0, variance, 1))
    mechanism = _mechanism(draws, kind, share, signal * gain, units)
    bias = jnp.where(live, uniform_between(side[1], prior.bias), 0)
    mechanism = eqx.tree_at(lambda m: m.bias, mechanism, mechanism.bias + bias)
    spread = jnp.where(noise_kind == HETEROSCEDASTIC, share * widening, 0)

    index = jnp.arange(size)
    possible = live & (index != target)
    # One cause of the target is always there to be manipulated.
    sure = index == jnp.argmin(jnp.where(adjacency[:, target], side[2], jnp.inf))
    sure = sure & adjacency[:, target]
    observed = live & ((side[3] >= prior.hidden) | sure | (index == target))
    manipulable = possible & observed & ((side[2] < prior.manipulable) | sure)
    return SCM(
        adjacency=adjacency,
        order=order,
        live=live,
        observed=observed,
        target=target,
        mechanism=mechanism,
        noise=Noise(noise_kind, scale * gain, spread),
        low=jnp.where(manipulable, -uniform_between(side[4], prior.reach), 0),
        high=jnp.where(manipulable, uniform_between(side[5], prior.reach), 0),
        cost_fixed=jnp.where(manipulable, uniform_between(side[6], prior.cost_fixed), 0),
        cost_unit=jnp.where(manipulable, uniform_between(side[7], prior.cost_unit), 0),
        manipulable=manipulable,
    )


def _mechanism(
    draws: Draws, kind: Int[Array, " d"], share: Float[Array, "d d"], signal: Float[Array, " d"], units: int
) -> Mechanism:
    """Mechanisms of the given kinds whose output has about the standard deviation `signal` for inputs of unit
    variance. `share` holds the parents' relative weights, of norm 1 for each variable."""
    size = kind.shape[0]
    polynomial, fourier, wave = kind == POLYNOMIAL, kind == FOURIER, jnp.arange(units) % 2
    # A polynomial is half linear, half powers.
    straight = jnp.where(kind == LINEAR, 1, jnp.where(polynomial, math.sqrt(0.5), 0))
    weight = share * signal * straight
    activation = jnp.where(
        polynomial[:, None], jnp.where(wave == 0, SQUARE, CUBE), jnp.where(fourier, COS, TANH)[:, None]
    )

    steep = jnp.where(polynomial, 1, jnp.where(fourier, FREQUENCY, SLOPE))
    inner = draws.normal(size, size, units) * (share * steep)[..., None]
    phase = draws.take(size, units) * jnp.where(fourier, math.pi, 1)[:, None]
    phase = jnp.where(polynomial[:, None], 0, phase)
    # Variance of one unit's output: 1/2 of a cosine, about 1/2 of tanh, 2 of a square and 15 of a cube.
    typical = jnp.where(activation == SQUARE, 8, jnp.where(activation == CUBE, 30, 0.5))
    strength = signal * jnp.where(polynomial, math.sqrt(0.5), jnp.where(kind == LINEAR, 0, 1))
    outer = draws.normal(size, units) * strength[:, None] / jnp.sqrt(typical * max(units, 1))
    middle = jnp.where(activation == SQUARE, outer * jnp.sum(inner**2, axis=0), 0).sum(-1)
    return Mechanism(
        bias=-middle,
        weight=weight,
        inner=jnp.where((outer != 0), inner, 0),
        phase=phase,
        outer=outer,
        activation=activation.astype(jnp.int32),
        reach=jnp.full((size, units), REACH, share.dtype),
    )

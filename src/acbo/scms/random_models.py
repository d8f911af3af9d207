"""Random causal models and their priors: one program draws every size, family, mechanism and noise."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32

from acbo.data import Key
from acbo.names import suggestion

from .draws import Draws, below, choose, uniform_between
from .families import FAMILIES, draw_graph, draw_target, ensure_cause, graph_draws
from .mechanisms import (
    COS,
    CUBE,
    FOURIER,
    GAUSSIAN,
    HETEROSCEDASTIC,
    LINEAR,
    MECHANISMS,
    NOISES,
    POLYNOMIAL,
    SQUARE,
    TANH,
    Mechanism,
    Noise,
)
from .scm import SCM

# Typical frequency of Fourier features and slope of tanh units, for inputs of unit variance.
FREQUENCY, SLOPE = 1.3, 1.5
# Inputs of random powers are held within ±3, where a cube reaches 27.
REACH = 3.0
# Kinds that are drawn; "other" only comes from texts.
DRAWN = MECHANISMS[:4]


class SCMPrior(eqx.Module):
    """A distribution of causal models. Pairs are the ends of uniform draws; weights need not sum to 1.

    Made by `scm_prior`. As an argument of a compiled function it can change, or be batched, without compiling.
    """

    families: Float[Array, " families"]
    mechanisms: Float[Array, " kinds"]
    noises: Float[Array, " noises"]
    variables: Int32[Array, " 2"]
    edges_per_variable: Float[Array, " 2"]
    weight: Float[Array, " 2"]
    """Magnitude of edge weights; signs are random."""
    noise_scale: Float[Array, " 2"]
    bias: Float[Array, " 2"]
    reach: Float[Array, " 2"]
    """Distance from 0 to either end of the range that an intervention may set."""
    cost_fixed: Float[Array, " 2"]
    cost_unit: Float[Array, " 2"]
    manipulable: Float[Array, ""]
    """Probability that a variable can be manipulated; at least one cause of the target always can."""
    hidden: Float[Array, ""]
    """Probability that a variable is not observed."""
    unit_variance: Bool[Array, ""]
    """True if signal and noise are scaled so that variables have about unit variance."""


def scm_prior(
    families: str | Sequence[str] | Mapping[str, float] = FAMILIES,
    mechanisms: str | Sequence[str] | Mapping[str, float] = DRAWN,
    noises: str | Sequence[str] | Mapping[str, float] = NOISES,
    *,
    variables: tuple[int, int] = (3, 16),
    edges_per_variable: tuple[float, float] = (1.0, 2.0),
    weight: tuple[float, float] = (0.5, 2.0),
    noise_scale: tuple[float, float] = (0.3, 1.0),
    bias: tuple[float, float] = (0.0, 0.0),
    reach: tuple[float, float] = (1.5, 3.0),
    cost_fixed: tuple[float, float] = (1.0, 1.0),
    cost_unit: tuple[float, float] = (0.0, 0.0),
    manipulable: float = 1.0,
    hidden: float = 0.0,
    unit_variance: bool = True,
) -> SCMPrior:
    """A distribution of causal models from names, sequences of names (equally likely) or names with weights.

    >>> scm_prior("chain", "linear", {"gaussian": 3, "laplace": 1}, variables=(5, 5)).noises.tolist()
    [3.0, 1.0, 0.0, 0.0]
    """
    least, most = variables
    if not 1 <= least <= most:
        raise ValueError(f"`variables` must be (least, most) with 1 <= least <= most; got {variables}.")
    for name, probability in (("manipulable", manipulable), ("hidden", hidden)):
        if not 0 <= probability <= 1:
            raise ValueError(f"`{name}` must be a probability from 0 to 1; got {probability}.")
    dtype = jnp.result_type(float)
    pairs = {
        "edges_per_variable": edges_per_variable,
        "weight": weight,
        "noise_scale": noise_scale,
        "bias": bias,
        "reach": reach,
        "cost_fixed": cost_fixed,
        "cost_unit": cost_unit,
    }
    for name, (low, high) in pairs.items():
        if not low <= high:
            raise ValueError(f"`{name}` must be (low, high) with low <= high; got {(low, high)}.")
    return SCMPrior(
        families=_weights("families", families, FAMILIES),
        mechanisms=_weights("mechanisms", mechanisms, DRAWN),
        noises=_weights("noises", noises, NOISES),
        variables=jnp.asarray(variables, jnp.int32),
        **{name: jnp.asarray(pair, dtype) for name, pair in pairs.items()},
        manipulable=jnp.asarray(manipulable, dtype),
        hidden=jnp.asarray(hidden, dtype),
        unit_variance=jnp.asarray(unit_variance),
    )


def linear_gaussian_prior(variables: int | tuple[int, int] = 10) -> SCMPrior:
    """The models that structure learners are compared on: Erdős–Rényi graphs with 1.5 edges per variable, weights
    of magnitude 0.5 to 2, Gaussian noise of scale 0.5 to 1.5, nothing rescaled."""
    return scm_prior(
        "erdos_renyi",
        "linear",
        "gaussian",
        variables=(variables, variables) if isinstance(variables, int) else variables,
        edges_per_variable=(1.5, 1.5),
        weight=(0.5, 2.0),
        noise_scale=(0.5, 1.5),
        unit_variance=False,
    )


def _weights(argument: str, given: Any, names: tuple[str, ...]) -> Float[Array, " _"]:
    if isinstance(given, str):
        given = {given: 1.0}
    elif not isinstance(given, Mapping):
        given = dict.fromkeys(given, 1.0)
    weights = np.zeros(len(names))
    for name, value in given.items():
        if name not in names:
            hint = suggestion(str(name), names)
            raise ValueError(f"`{argument}` must be among {', '.join(names)}; got {name!r}.{hint}")
        if not value >= 0:
            raise ValueError(f"`{argument}` must have weights of at least 0; got {value} for {name!r}.")
        weights[names.index(name)] = value
    if not weights.sum() > 0:
        raise ValueError(f"`{argument}` must give at least one a positive weight; got {given!r}.")
    return jnp.asarray(weights, jnp.result_type(float))


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

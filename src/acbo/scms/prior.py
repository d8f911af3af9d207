"""Random causal models: all choices are arrays, so that one program draws every size, family, mechanism and noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from acbo.names import suggestion

from .families import FAMILIES
from .mechanisms import MECHANISMS, NOISES

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

"""Noise of unit variance and its scale: four kinds from one uniform draw, so that all kinds share a program."""

import math
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

NoiseKind = Literal["gaussian", "laplace", "uniform", "heteroscedastic"]
NOISES: tuple[NoiseKind, ...] = get_args(NoiseKind)
GAUSSIAN, LAPLACE, UNIFORM, HETEROSCEDASTIC = range(len(NOISES))


class Noise(eqx.Module):
    """What is added to each variable's mechanism: `scale · √(1 + (spread · parents)²) · standard noise`.

    The standard noise has mean 0 and variance 1. `spread` is zero unless the noise is heteroscedastic, which is
    Gaussian noise that grows with the parents.
    """

    kind: Int32[Array, " d"]
    """Index into `NOISES`."""
    scale: Float[Array, " d"]
    """Standard deviation where the spread is zero."""
    spread: Float[Array, "d d"]
    """`[i, j]`: how strongly i widens the noise of j."""


def standard(kind: Int32[Array, "#d #n"], uniform: Float[Array, "d n"]) -> Float[Array, "d n"]:
    """Standard noise of the given kinds from numbers uniform in (-1, 1), by inverting its distribution."""
    gaussian = math.sqrt(2) * jax.lax.erf_inv(uniform)
    laplace = -math.sqrt(0.5) * jnp.sign(uniform) * jnp.log1p(-jnp.abs(uniform))
    flat = math.sqrt(3) * uniform
    return jnp.where(kind == LAPLACE, laplace, jnp.where(kind == UNIFORM, flat, gaussian))

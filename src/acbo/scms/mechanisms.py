"""Mechanisms and noise as arrays. A mechanism is a linear part and a layer of units, so that all kinds share a program.

    f_j(x) = bias_j + Σ_i weight_ij x_i + Σ_k outer_jk φ_jk(phase_jk + Σ_i inner_ijk x_i)

Linear mechanisms use no unit, random Fourier features use cosines, tanh networks tanh, polynomials powers (products
of variables are differences of powers of sums). The text language mixes them freely. A model may bring functions φ of
its own.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

Activation = Literal["cos", "tanh", "square", "cube", "exp"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
COS, TANH, SQUARE, CUBE, EXP = range(len(ACTIVATIONS))

MechanismKind = Literal["linear", "polynomial", "fourier", "tanh", "other"]
MECHANISMS: tuple[MechanismKind, ...] = get_args(MechanismKind)
LINEAR, POLYNOMIAL, FOURIER, TANH_NETWORK, OTHER = range(len(MECHANISMS))

# cos 2πt as a polynomial in t² for |t| <= 1/2, fitted at Chebyshev points; within 4e-7 in float32.
COSINE = (6.528658160194754, -25.967599247582257, 60.16763095066563, -85.45013953083755)
COSINE += (64.93911745989193, -19.739204499453805, 0.9999999890590225)
# 2π in two parts: the first has few digits, so that its multiples are exact in float32.
TURN = (6.28125, 2 * math.pi - 6.28125)
# exp stays finite in float32 below 88; what would be larger is held there.
LARGEST_EXPONENT = 80.0


class Mechanism(eqx.Module):
    """Parameters of all variables' mechanisms; `[i, j]` belongs to the edge from i to j. Entries off the edges are 0."""

    bias: Float[Array, " d"]
    weight: Float[Array, "d d"]
    inner: Float[Array, "d d k"]
    phase: Float[Array, "d k"]
    outer: Float[Array, "d k"]
    """Zero for units that are not in use."""
    activation: Int32[Array, "d k"]
    """Index into `ACTIVATIONS`, and beyond it into `functions`."""
    reach: Float[Array, "d k"]
    """Inputs of powers are held within ±reach, so that chains of random polynomials stay finite."""
    functions: tuple[tuple[str, Callable[[Any], Any]], ...] = eqx.field(static=True, default=())
    """Names and elementwise functions of the model's own: the activations after `ACTIVATIONS`. Part of the program."""

    @property
    def units(self) -> int:
        """Units per variable; without any, every mechanism is linear and programs say so."""
        return self.outer.shape[-1]

    @property
    def is_linear(self) -> Bool[Array, " d"]:
        """True for variables with a linear mechanism."""
        return jnp.all(self.outer == 0, axis=-1)

    @property
    def kind(self) -> Int32[Array, " d"]:
        """Index into `MECHANISMS` for each variable, read off its units; `other` where activations are mixed."""

        def only(*activations: int) -> Bool[Array, " d"]:
            fits = jnp.isin(self.activation, jnp.asarray(activations))
            return jnp.all(fits | (self.outer == 0), axis=-1)

        kinds = jnp.where(only(COS), FOURIER, jnp.where(only(TANH), TANH_NETWORK, OTHER))
        kinds = jnp.where(only(SQUARE, CUBE), POLYNOMIAL, kinds)
        return jnp.where(self.is_linear, LINEAR, kinds).astype(jnp.int32)


def cosine(z: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Cosine by a polynomial: XLA's is not vectorized on CPU, where it took most of the time of a dataset."""
    if z.dtype != jnp.float32:
        return jnp.cos(z)
    turns = jnp.round(z * (1 / (2 * math.pi)))
    square = ((z - turns * TURN[0] - turns * TURN[1]) * (1 / (2 * math.pi))) ** 2
    result = jnp.full_like(square, COSINE[0])
    for coefficient in COSINE[1:]:
        result = result * square + coefficient
    # Beyond about 1e6 single precision knows no angle, but the result must still be a cosine.
    return jnp.clip(result, -1, 1)


def activate(
    activation: Int32[Array, " k"],
    reach: Float[Array, " k"],
    z: Float[Array, "k n"],
    functions: tuple[tuple[str, Callable[[Any], Any]], ...] = (),
) -> Float[Array, "k n"]:
    """Each unit's function of its input: two transcendental functions serve all, as tanh z = 1 - 2/(exp 2z + 1)."""
    code = activation[:, None]
    held = jnp.clip(z, -reach[:, None], reach[:, None])
    # What a unit does not use must not overflow either, or its zero gradient would become NaN.
    exponent = jnp.where(code == TANH, 2 * z, jnp.where(code == EXP, z, 0))
    power = jnp.exp(jnp.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    square = held * held
    result = jnp.where(code == COS, cosine(z), 1 - 2 / (power + 1))
    result = jnp.where(code == EXP, power, result)
    result = jnp.where(code == SQUARE, square, jnp.where(code == CUBE, square * held, result))
    for number, (name, function) in enumerate(functions, start=len(ACTIVATIONS)):
        own = code == number
        # Units of other functions get an input that does no harm, whatever theirs is.
        made = jnp.asarray(function(jnp.where(own, z, 1)), z.dtype)
        if made.shape != z.shape:
            raise ValueError(
                f"`functions` must work on each number of an array; {name!r} made {made.shape} of {z.shape}."
            )
        result = jnp.where(own, made, result)
    return result


def no_units(size: int, units: int = 0) -> dict[str, Array]:
    """The fields of a mechanism without used units."""
    dtype = jnp.result_type(float)
    return {
        "inner": jnp.zeros((size, size, units), dtype),
        "phase": jnp.zeros((size, units), dtype),
        "outer": jnp.zeros((size, units), dtype),
        "activation": jnp.zeros((size, units), jnp.int32),
        "reach": jnp.full((size, units), jnp.inf, dtype),
    }


NoiseKind = Literal["gaussian", "laplace", "uniform", "heteroscedastic"]
NOISES: tuple[NoiseKind, ...] = get_args(NoiseKind)
GAUSSIAN, LAPLACE, UNIFORM, HETEROSCEDASTIC = range(len(NOISES))


class Noise(eqx.Module):
    """Noise of each variable: `scale · √(1 + (spread · parents)²) · standard noise`.

    The standard noise has mean 0 and variance 1. `spread` is zero unless the noise is heteroscedastic, which is
    Gaussian noise that grows with the parents.
    """

    kind: Int32[Array, " d"]
    """Index into `NOISES`."""
    scale: Float[Array, " d"]
    """Standard deviation where the spread is zero."""
    spread: Float[Array, "d d"]
    """`[i, j]`: how strongly i widens the noise of j."""


def standard_noise(kind: Int32[Array, "#d #n"], uniform: Float[Array, "d n"]) -> Float[Array, "d n"]:
    """Standard noise of the given kinds from numbers uniform in (-1, 1), by inverting its distribution."""
    gaussian = math.sqrt(2) * jax.lax.erf_inv(uniform)
    laplace = -math.sqrt(0.5) * jnp.sign(uniform) * jnp.log1p(-jnp.abs(uniform))
    flat = math.sqrt(3) * uniform
    return jnp.where(kind == LAPLACE, laplace, jnp.where(kind == UNIFORM, flat, gaussian))

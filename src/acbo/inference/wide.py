"""Numbers of any magnitude: a mantissa times a power of two, for sums over graphs that no float could hold.

Weights of graphs differ by factors such as e^500. Logarithms hold them but lose digits (at 500 a float32
has steps of 3e-5) and pay a logarithm and an exponential per sum. Here a sum is two shifts and an addition,
as exact as the float itself. Mantissas may be negative; zero has the least exponent.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

ZERO_EXPONENT = -(1 << 28)
"""Exponent of zero: below all others, and two of them still add within 32 bits."""


class Wide(NamedTuple):
    """The numbers `mantissa × 2^exponent`."""

    mantissa: Float[Array, "*shape"]
    exponent: Int32[Array, "*shape"]


def one_at(place: int, size: int, dtype: jnp.dtype) -> Wide:
    """A row of zeros but for a one at a place."""
    mantissa, exponent = jnp.zeros(size, dtype), jnp.full(size, ZERO_EXPONENT, jnp.int32)
    return Wide(mantissa.at[place].set(1.0), exponent.at[place].set(0))


def from_log(log: Float[Array, "*shape"]) -> Wide:
    """The numbers whose natural logarithms these are; -inf gives zero."""
    # Mantissa and exponent may be computed in two places, each of which would compute `log` again and round it its own
    # way: they must see the same number, and not split at 0, where the best score of every node lies.
    log = lax.optimization_barrier(log)
    real = log > -jnp.inf
    binary = jnp.where(real, log, 0.0) * (1 / math.log(2.0))
    whole = jnp.round(binary)
    mantissa = jnp.where(real, jnp.exp2(binary - whole), 0.0)
    return Wide(mantissa, jnp.where(real, whole.astype(jnp.int32), ZERO_EXPONENT))


def to_log(x: Wide) -> Float[Array, "*shape"]:
    """Natural logarithms; zero and negative numbers give -inf."""
    positive = x.mantissa > 0
    mantissa = jnp.where(positive, x.mantissa, 1.0)
    log = jnp.log(mantissa) + x.exponent.astype(mantissa.dtype) * math.log(2.0)
    return jnp.where(positive, log, -jnp.inf)


def ratio(x: Wide, y: Wide) -> Float[Array, "*shape"]:
    """`x / y` as plain floats; meant for quotients near or below 1."""
    return x.mantissa / y.mantissa * _power(x.exponent - y.exponent, x.mantissa.dtype)


def add(x: Wide, y: Wide) -> Wide:
    """`x + y`. Mantissas grow: `normalize` after a few thousand sums."""
    top = jnp.maximum(x.exponent, y.exponent)
    dtype = x.mantissa.dtype
    mantissa = x.mantissa * _power(x.exponent - top, dtype) + y.mantissa * _power(y.exponent - top, dtype)
    return Wide(mantissa, top)


def multiply(x: Wide, y: Wide) -> Wide:
    """`x * y`, not normalized."""
    return Wide(x.mantissa * y.mantissa, x.exponent + y.exponent)


def total(x: Wide, axis: int) -> Wide:
    """The sum along an axis, normalized."""
    top = jnp.max(x.exponent, axis=axis, keepdims=True)
    mantissa = jnp.sum(x.mantissa * _power(x.exponent - top, x.mantissa.dtype), axis=axis)
    return normalize(Wide(mantissa, jnp.squeeze(top, axis)))


def normalize(x: Wide) -> Wide:
    """The same numbers with mantissas in [1, 2) and their negatives."""
    width, bias, integer = _layout(x.mantissa.dtype)
    # One number for both parts, as in `from_log`: a sum near a power of two must not round up in one and down in the other.
    x = Wide(*lax.optimization_barrier((x.mantissa, x.exponent)))
    bits = lax.bitcast_convert_type(x.mantissa, integer)
    field = (bits >> width) & (2 * bias + 1)
    mantissa = (bits & ~((2 * bias + 1) << width)) | (bias << width)
    real = field > 0
    return Wide(
        jnp.where(real, lax.bitcast_convert_type(mantissa, x.mantissa.dtype), 0.0),
        jnp.where(real, x.exponent + field.astype(jnp.int32) - bias, ZERO_EXPONENT),
    )


def _layout(dtype: jnp.dtype) -> tuple[int, int, type]:
    """Bits of the fraction, bias of the exponent, and the integer of one size."""
    if dtype == jnp.float32:
        return 23, 127, jnp.int32
    if dtype == jnp.float64:
        return 52, 1023, jnp.int64
    raise TypeError(
        f"`dtype` must be float32 or float64; got {dtype}. Half precision cannot hold these sums."
    )


def _power(exponent: Int32[Array, "*shape"], dtype: jnp.dtype) -> Float[Array, "*shape"]:
    """2^exponent, made of its bits; 0 where no normal float is so small."""
    width, bias, integer = _layout(dtype)
    field = jnp.clip(exponent + bias, 0, 2 * bias).astype(integer)
    return lax.bitcast_convert_type(field << width, dtype)

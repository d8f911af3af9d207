"""The small parts of which the networks are made: affine maps, normalisation, perceptrons, dropout."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo.data import Key

MASKED = -1e9
"""The logit of what cannot be: finite, so that a row of nothing but padding gives no NaN."""


class Normals:
    """Standard normal numbers, dealt out one after another; without any, zeros, to count how many are needed.

    One draw for all weights compiles many times faster than one for each.
    """

    def __init__(self, numbers: Float[Array, " n"] | None = None) -> None:
        self.numbers, self.used = numbers, 0

    def take(self, *shape: int) -> Float[Array, "..."]:
        """The next numbers, in this shape."""
        first = self.used
        self.used += math.prod(shape)
        if self.numbers is None:
            return jnp.zeros(shape, jnp.float32)
        return self.numbers[first : self.used].reshape(shape)


class Dense(eqx.Module):
    """`x @ weight + bias` in the precision of `x`; the parameters stay float32."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, normals: Normals, scale: float = 1.0) -> None:
        self.weight = normals.take(inputs, outputs) * (scale * inputs**-0.5)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, "*tokens inputs"]) -> Float[Array, "*tokens outputs"]:
        return x @ self.weight.astype(x.dtype) + self.bias.astype(x.dtype)


class Norm(eqx.Module):
    """Mean 0 and variance 1 over the channels of each token, then a learned scale and shift."""

    scale: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __init__(self, width: int) -> None:
        self.scale = jnp.ones(width, jnp.float32)
        self.shift = jnp.zeros(width, jnp.float32)

    def __call__(self, x: Float[Array, "*tokens width"]) -> Float[Array, "*tokens width"]:
        wide = x.astype(jnp.float32)  # bfloat16 has 8 bits: too few for a variance
        wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)
        return (wide * self.scale + self.shift).astype(x.dtype)


class Perceptron(eqx.Module):
    """Normalisation, a wider layer, GELU, and back."""

    norm: Norm
    widen: Dense
    narrow: Dense

    def __init__(self, width: int, widening: int, *, normals: Normals) -> None:
        self.norm = Norm(width)
        self.widen = Dense(width, widening * width, normals=normals)
        self.narrow = Dense(widening * width, width, normals=normals, scale=0.5)

    def __call__(self, x: Float[Array, "*tokens width"]) -> Float[Array, "*tokens width"]:
        return self.narrow(jax.nn.gelu(self.widen(self.norm(x))))


def dropout(x: Float[Array, "*shape"], rate: float, key: Key | None) -> Float[Array, "*shape"]:
    """`x` with a share of `rate` set to zero and the rest scaled up; without a key, `x` itself."""
    if key is None or rate == 0:
        return x
    kept = jr.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / jnp.asarray(1 - rate, x.dtype), jnp.zeros((), x.dtype))

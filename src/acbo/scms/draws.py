"""Random choices from one array of uniform numbers.

A call of a random generator takes XLA about a second to compile on CPU, so that a model drawn with a key per choice
took half a minute; drawn from one array it takes a few seconds.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Int32

from acbo.data import Key


class Draws:
    """Uniform numbers in (-1, 1), handed out piece by piece; `count` must be what is taken in all."""

    def __init__(self, key: Key, count: int) -> None:
        self.numbers = draw_uniform(key, (count,))
        self.used = 0

    def take(self, *shape: int) -> Float[Array, "..."]:
        """The next numbers, uniform in (-1, 1)."""
        start, self.used = self.used, self.used + math.prod(shape)
        if self.used > len(self.numbers):
            raise ValueError(f"`count` must be at least {self.used}; got {len(self.numbers)}.")
        return self.numbers[start : self.used].reshape(shape)

    def share(self, *shape: int) -> Float[Array, "..."]:
        """The next numbers, uniform in (0, 1)."""
        return 0.5 + 0.5 * self.take(*shape)

    def normal(self, *shape: int) -> Float[Array, "..."]:
        """The next numbers, of the standard normal distribution."""
        return math.sqrt(2) * jax.lax.erf_inv(self.take(*shape))


def draw_uniform(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Numbers uniform in the open interval (-1, 1), where all inverse distributions are finite."""
    dtype = jnp.result_type(float)
    inner = 1 - float(jnp.finfo(dtype).epsneg)
    return jr.uniform(key, shape, dtype, -inner, inner)


def choose(share: Float[Array, "*n"], weights: Float[Array, " k"]) -> Int32[Array, "*n"]:
    """Indices with probabilities in proportion to `weights`, from numbers uniform in (0, 1)."""
    steps = jnp.cumsum(weights)
    passed = share[..., None] * steps[-1] >= steps
    # Rounding must not lead beyond the last index of positive weight.
    last = jnp.max(jnp.where(weights > 0, jnp.arange(weights.shape[0]), 0))
    return jnp.minimum(passed.sum(-1), last).astype(jnp.int32)


def below(share: Float[Array, "*n"], bound: Int[Array, ""]) -> Int32[Array, "*n"]:
    """Integers from 0 to `bound - 1`, all equally likely, from numbers uniform in (0, 1)."""
    return jnp.minimum(jnp.floor(share * bound), bound - 1).astype(jnp.int32)


def uniform_between(share: Float[Array, "*n"], pair: Float[Array, " 2"]) -> Float[Array, "*n"]:
    """Numbers between the two of a pair."""
    return pair[0] + (pair[1] - pair[0]) * share

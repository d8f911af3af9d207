"""Settings of the networks and the small parts they are made of: affine maps, normalisation, perceptrons, dropout."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from acbo._limits import require_all_at_least, require_one_of
from acbo.data import Key
from jaxworlds.static import config

T = TypeVar("T")
MASKED = -1e9
"""The logit of what cannot be: finite, so that a row of nothing but padding gives no NaN."""


@config
class NetworkConfig:
    """Sizes of a surrogate. Equal settings share every compiled program.

    - `encoder`: `"axial"` attends over rows and variables; `"statistics"` sees only pairwise statistics, so its cost
      does not grow with the number of rows.
    - `width`, `heads`, `widening`: of the tokens (row, variable) and their perceptrons.
    - `pair_width`: of the tokens (variable, variable), which both encoders have.
    - `rank`: of the pairwise correction to independent parents, in parent-set logits.
    - `precision`: of the arithmetic; parameters are float32 always.
    - `remat`: what the backward pass computes again instead of keeping it: `"none"`; `"dots"`, all but the products
      with weights, which an accelerator does faster than it fetches them; or `"all"`, whole layers.
    """

    encoder: str = "axial"
    width: int = 64
    pair_width: int = 64
    layers: int = 4
    heads: int = 4
    widening: int = 4
    rank: int = 8
    dropout: float = 0.0
    precision: str = "float32"
    remat: str = "none"

    def __post_init__(self) -> None:
        require_one_of("encoder", self.encoder, "axial", "statistics")
        overflow = "float16 overflows in attention."
        require_one_of("precision", self.precision, "float32", "bfloat16", why=overflow)
        require_one_of("remat", self.remat, "none", "dots", "all")
        require_all_at_least(self, 1, "width", "pair_width", "layers", "heads", "widening", "rank")
        if self.width % self.heads:
            divisor = next(count for count in range(self.heads, 0, -1) if self.width % count == 0)
            raise ValueError(
                f"`width` must be a multiple of `heads`; got {self.width} and {self.heads}. Try `heads={divisor}`."
            )
        if self.pair_width % 4:
            raise ValueError(
                f"`pair_width` must be a multiple of 4; got {self.pair_width}. Its quarters follow different paths."
            )
        if self.rank % 2:
            raise ValueError(
                f"`rank` must be even; got {self.rank}. Half of it draws parents together, half apart."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1; got {self.dropout}.")

    @property
    def dtype(self) -> Any:
        """The type of the arithmetic."""
        return jnp.bfloat16 if self.precision == "bfloat16" else jnp.float32


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


@eqx.filter_jit
def draw_parts(make: Callable[[Any, Normals], T], config: Any, key: Key) -> T:
    """`make(config, normals)`, with as many random numbers as it takes."""
    needed = Normals()
    jax.eval_shape(lambda: make(config, needed))
    return make(config, Normals(jr.normal(key, (needed.used,), jnp.float32)))


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

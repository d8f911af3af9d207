"""Layers on pairs of variables: what the pair (i, j) learns from the pairs that a third variable makes with both."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.data import Key

from .layers import Dense, NetworkConfig, Norm, Normals, Perceptron, dropout


class Triangles(eqx.Module):
    """Sums over a third variable k of products of the pairs that it makes with i and with j.

    Half of the channels follow the chain i, k, j; a quarter each the common cause and the common effect k.
    """

    norm: Norm
    project: Dense
    gate: Dense
    sum_norm: Norm
    merge: Dense

    def __init__(self, width: int, *, normals: Normals) -> None:
        self.norm = Norm(width)
        self.project = Dense(width, 2 * width, normals=normals)
        self.gate = Dense(width, 2 * width, normals=normals)
        self.sum_norm = Norm(width)
        self.merge = Dense(width, width, normals=normals, scale=0.5)

    def __call__(
        self, pairs: Float[Array, "d d width"], live: Bool[Array, " d"]
    ) -> Float[Array, "d d width"]:
        width = pairs.shape[-1]
        seen = self.norm(pairs)
        both = self.project(seen) * jax.nn.sigmoid(self.gate(seen))
        both = both * (live[:, None] & live)[..., None].astype(both.dtype)
        cuts = (width // 2, width * 3 // 4)
        left, right = (jnp.split(side, cuts, axis=-1) for side in jnp.split(both, 2, axis=-1))
        sums = [
            jnp.einsum("ikc,kjc->ijc", left[0], right[0]),
            jnp.einsum("kic,kjc->ijc", left[1], right[1]),
            jnp.einsum("ikc,jkc->ijc", left[2], right[2]),
        ]
        return self.merge(self.sum_norm(jnp.concatenate(sums, axis=-1)))


class PairBlock(eqx.Module):
    """One layer on pairs: triangles, then a perceptron for each pair. The sum stays float32."""

    triangles: Triangles
    perceptron: Perceptron
    dropout: float = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, config: NetworkConfig, *, normals: Normals) -> None:
        self.triangles = Triangles(config.pair_width, normals=normals)
        self.perceptron = Perceptron(config.pair_width, 2, normals=normals)
        self.dropout, self.precision = config.dropout, config.precision

    def __call__(
        self, pairs: Float[Array, "d d width"], live: Bool[Array, " d"], key: Key | None = None
    ) -> Float[Array, "d d width"]:
        keys = (None, None) if key is None else tuple(jr.split(key))
        told = self.triangles(pairs.astype(self.precision), live)
        pairs = pairs + dropout(told, self.dropout, keys[0]).astype(pairs.dtype)
        told = self.perceptron(pairs.astype(self.precision))
        return pairs + dropout(told, self.dropout, keys[1]).astype(pairs.dtype)


def apply_blocks(
    blocks: Any, pairs: Float[Array, "d d width"], live: Bool[Array, " d"]
) -> Float[Array, "d d width"]:
    """The pairs after a stack of `PairBlock`s, under one `scan`."""
    arrays, static = eqx.partition(blocks, eqx.is_array)

    def apply(pairs: Array, block: Any) -> tuple[Array, None]:
        return eqx.combine(block, static)(pairs, live), None

    return jax.lax.scan(apply, pairs, arrays)[0]

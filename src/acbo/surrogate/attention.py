"""Axial attention over rows × variables: each axis in turn, padding masked on both."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.data import Key

from .layers import MASKED, Dense, NetworkConfig, Norm, Normals, Perceptron, dropout
from .pairs import PairBlock


@jax.custom_vjp
def masked_softmax(
    logits: Float[Array, "*before tokens"], mask: Bool[Array, " tokens"]
) -> Float[Array, "*before tokens"]:
    """Softmax over the tokens that `mask` shows, summed in float32.

    Only the result is kept for the backward pass, in the precision of `logits`: a quarter of what JAX would keep.
    """
    wide = jnp.where(mask, logits.astype(jnp.float32), MASKED)
    return jax.nn.softmax(wide, axis=-1).astype(logits.dtype)


def _softmax_forward(logits: Array, mask: Array) -> tuple[Array, Array]:
    weights = masked_softmax(logits, mask)
    return weights, weights


def _softmax_backward(weights: Array, slope: Array) -> tuple[Array, None]:
    wide, steep = weights.astype(jnp.float32), slope.astype(jnp.float32)
    inner = (wide * steep).sum(-1, keepdims=True)
    return (wide * (steep - inner)).astype(weights.dtype), None


masked_softmax.defvjp(_softmax_forward, _softmax_backward)


class Attention(eqx.Module):
    """Multi-head attention among the tokens of one sequence."""

    norm: Norm
    project: Dense
    merge: Dense
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, normals: Normals) -> None:
        self.norm = Norm(width)
        self.project = Dense(width, 3 * width, normals=normals)
        self.merge = Dense(width, width, normals=normals, scale=0.5)
        self.heads = heads

    def __call__(
        self,
        x: Float[Array, "tokens width"],
        mask: Bool[Array, " tokens"],
        bias: Float[Array, "heads tokens tokens"] | None = None,
    ) -> Float[Array, "tokens width"]:
        """Attention of each token to those in `mask`; `bias` is added to the logits."""
        tokens, width = x.shape
        queries, keys, values = jnp.moveaxis(
            self.project(self.norm(x)).reshape(tokens, 3, self.heads, width // self.heads), 1, 0
        )
        logits = jnp.einsum("thk,shk->hts", queries, keys) * (width // self.heads) ** -0.5
        if bias is not None:
            logits = logits + bias
        weights = masked_softmax(logits, mask)
        return self.merge(jnp.einsum("hts,shk->thk", weights, values).reshape(tokens, width))


class LearnedCovariance(eqx.Module):
    """Means over rows of products of learned features of two variables: covariances that suit the task."""

    norm: Norm
    project: Dense
    merge: Dense

    def __init__(self, width: int, pair_width: int, *, normals: Normals) -> None:
        self.norm = Norm(width)
        self.project = Dense(width, pair_width, normals=normals)
        self.merge = Dense(pair_width // 2, pair_width, normals=normals, scale=0.5)

    def __call__(
        self, tokens: Float[Array, "n d width"], rows: Bool[Array, " n"]
    ) -> Float[Array, "d d pair_width"]:
        left, right = jnp.split(self.project(self.norm(tokens)), 2, axis=-1)
        share = rows / jnp.maximum(rows.sum(), 1)
        left = left * share[:, None, None].astype(left.dtype)
        return self.merge(jnp.einsum("nic,njc->ijc", left, right))


class AxialBlock(eqx.Module):
    """One layer: variables of a row look at each other, then rows of a variable, then pairs of variables learn of it."""

    bias: Dense
    pair_norm: Norm
    variables: Attention
    rows: Attention
    perceptron: Perceptron
    covariance: LearnedCovariance
    pairs: PairBlock
    dropout: float = eqx.field(static=True)

    def __init__(self, config: NetworkConfig, *, normals: Normals) -> None:
        width, pair_width = config.width, config.pair_width
        self.pair_norm = Norm(pair_width)
        self.bias = Dense(pair_width, config.heads, normals=normals, scale=0.1)
        self.variables = Attention(width, config.heads, normals=normals)
        self.rows = Attention(width, config.heads, normals=normals)
        self.perceptron = Perceptron(width, config.widening, normals=normals)
        self.covariance = LearnedCovariance(width, pair_width, normals=normals)
        self.pairs = PairBlock(config, normals=normals)
        self.dropout = config.dropout

    def __call__(
        self,
        tokens: Float[Array, "n d width"],
        pairs: Float[Array, "d d pair_width"],
        rows: Bool[Array, " n"],
        live: Bool[Array, " d"],
        key: Key | None = None,
    ) -> tuple[Float[Array, "n d width"], Float[Array, "d d pair_width"]]:
        keys = (None,) * 5 if key is None else tuple(jr.split(key, 5))
        bias = jnp.moveaxis(self.bias(self.pair_norm(pairs).astype(tokens.dtype)), -1, 0)
        across = jax.vmap(self.variables, in_axes=(0, None, None))(tokens, live, bias)
        tokens = tokens + dropout(across, self.dropout, keys[0])
        along = jax.vmap(self.rows, in_axes=(1, None), out_axes=1)(tokens, rows)
        tokens = tokens + dropout(along, self.dropout, keys[1])
        tokens = tokens + dropout(self.perceptron(tokens), self.dropout, keys[2])
        told = self.covariance(tokens, rows)
        pairs = pairs + dropout(told, self.dropout, keys[3]).astype(pairs.dtype)
        return tokens, self.pairs(pairs, live, keys[4])

"""Statistics of each pair of variables, at a cost that grows little with rows: the input of both encoders.

Every number is computed from standardised values, so neither the units nor the variances of variables can be seen:
in simulated models variances grow along the causal order, and a network would learn that instead of causes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.data import Dataset

FEATURES = 21
"""Numbers for each ordered pair, before those of the opposite pair are added."""

# Sums for covariances feed an inverse, which the 10 bits of TF32 would spoil.
_EXACT = jax.lax.Precision.HIGHEST


def standardise(data: Dataset) -> Float[Array, "n d"]:
    """Values with mean 0 and variance 1 in the rows where the variable was left alone; padding and constants are 0."""
    known = data.rows[:, None] & data.live
    free = known & ~data.intervened
    used = jnp.where(free.any(0), free, known)  # a variable that is set in every row has only those
    weight = used / jnp.maximum(used.sum(0), 1)
    mean = (weight * data.values).sum(0)
    centred = jnp.where(known, data.values - mean, 0.0)
    variance = (weight * centred**2).sum(0)
    # Rounding of a constant is no variation; `from_frame` refuses columns that would look like one.
    varies = variance > (100 * jnp.finfo(data.values.dtype).eps * mean) ** 2 + 1e-30
    scaled = centred * jnp.where(varies, jax.lax.rsqrt(jnp.where(varies, variance, 1.0)), 0.0)
    return jnp.clip(scaled, -10.0, 10.0).astype(jnp.float32)


def pair_statistics(data: Dataset, x: Float[Array, "n d"]) -> Float[Array, "d d features"]:
    """Statistics of each ordered pair (i, j) and of (j, i); `x` are the standardised values.

    They are: correlations and partial correlations, in observations alone and in all rows in which j was left alone;
    what setting i did to j; third and fourth moments; and the numbers of rows that stand behind them.
    """
    d = data.size
    rows, live = data.rows.astype(x.dtype), data.live
    set_ = (data.intervened & data.rows[:, None]).astype(x.dtype)
    free = rows[:, None] * (1 - set_)
    observed = rows * (1 - jnp.max(set_, axis=1))
    groups = jnp.concatenate([free, observed[:, None]], axis=1)
    count, correlation, partial, determined = _correlations(x, groups, live)
    column = jnp.arange(d)

    def towards(grouped: Float[Array, "groups d d"]) -> Float[Array, "d d"]:
        """[i, j] from the rows in which j was left alone."""
        return grouped[column, :, column].T

    numbers = [
        correlation[d],
        partial[d],
        jnp.abs(partial[d]),
        towards(correlation),
        jnp.abs(towards(correlation)),
        towards(partial),
        jnp.abs(towards(partial)),
        jnp.broadcast_to(determined[column, column], (d, d)),
        jnp.broadcast_to(jnp.log1p(count[:d]) / 5, (d, d)),
        jnp.broadcast_to(jnp.log1p(count[d]) / 5, (d, d)),
        *_effects(x, set_, free, observed),
        *_higher_moments(x, free),
        jnp.eye(d, dtype=x.dtype),
        jnp.broadcast_to(jnp.log1p(live.sum()) / 5, (d, d)),
    ]
    stacked = jnp.stack([number.astype(jnp.float32) for number in numbers], axis=-1)
    assert stacked.shape[-1] == FEATURES
    stacked = jnp.concatenate([stacked, stacked.swapaxes(0, 1)], axis=-1)
    return jnp.where((live[:, None] & live)[..., None], stacked, 0.0)


def _correlations(
    x: Float[Array, "n d"], groups: Float[Array, "n groups"], live: Bool[Array, " d"]
) -> tuple[
    Float[Array, " groups"],
    Float[Array, "groups d d"],
    Float[Array, "groups d d"],
    Float[Array, "groups d"],
]:
    """For each group of rows: their number, correlations, partial correlations, and 1 − R² of each variable.

    Partial correlations are given all other variables; a ridge that falls with the rows keeps them finite.
    """
    count = groups.sum(0)
    share = groups / jnp.maximum(count, 1)
    mean = jnp.einsum("ng,na->ga", share, x, precision=_EXACT)
    # [groups, rows, d] times [rows, d]: one matrix product for each group.
    second = jnp.einsum("gna,nb->gab", share.T[:, :, None] * x, x, precision=_EXACT)
    covariance = second - mean[:, :, None] * mean[:, None, :]
    variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    scale = jnp.where(variance > 1e-6, jax.lax.rsqrt(jnp.maximum(variance, 1e-6)), 0.0)
    correlation = covariance * scale[:, :, None] * scale[:, None, :]
    ridge = 0.02 + 0.1 * live.sum() / (count + 1)
    identity = jnp.eye(x.shape[1], dtype=x.dtype)
    off = jnp.where(identity > 0, 0.0, correlation)
    inverse = spd_inverse(off + identity * (1 + ridge[:, None, None]))
    spread = jax.lax.rsqrt(jnp.diagonal(inverse, axis1=-2, axis2=-1))
    partial = -inverse * spread[:, :, None] * spread[:, None, :] * (1 - identity)
    return count, off, partial, spread**2


def _effects(
    x: Float[Array, "n d"],
    set_: Float[Array, "n d"],
    free: Float[Array, "n d"],
    observed: Float[Array, " n"],
) -> list[Float[Array, "d d"]]:
    """Effects of setting i on j, from the rows in which i was set and j was not.

    Without an effect the scores have a variance of about 1, however many rows there are.
    """
    y = x - (observed[:, None] * x).sum(0) / (observed.sum() + 1)
    given = set_ * y

    def total(left: Float[Array, "n d"], right: Float[Array, "n d"]) -> Float[Array, "d d"]:
        return jnp.einsum("ni,nj->ij", left, right, precision=_EXACT)

    count = total(set_, free)
    cross, cause = total(given, free * y), total(given * y, free)
    effect, shift = total(set_, free * y**2), total(set_, free * y)
    score = jnp.arcsinh(cross * jax.lax.rsqrt(cause + 1e-3))
    moved = jnp.arcsinh(shift * jax.lax.rsqrt(count + 1e-3))
    return [
        score,
        jnp.abs(score),
        jnp.arcsinh(cross / (cause + 0.1)),
        cross * jax.lax.rsqrt((cause + 0.1) * (effect + 0.1)),
        jnp.log((effect + 1) / (count + 1)),
        moved,
        jnp.log1p(count) / 5,
    ]


def _higher_moments(x: Float[Array, "n d"], free: Float[Array, "n d"]) -> list[Float[Array, "d d"]]:
    """E[xᵢ² xⱼ] and E[xᵢ³ xⱼ] where j was left alone: what tells directions without experiments, if anything does."""
    bounded = jnp.clip(x, -4.0, 4.0)
    right = free * bounded / jnp.maximum(free.sum(0), 1)
    third = jnp.einsum("ni,nj->ij", bounded**2, right, precision=_EXACT)
    fourth = jnp.einsum("ni,nj->ij", bounded**3, right, precision=_EXACT)
    return [jnp.arcsinh(third), jnp.arcsinh(fourth)]


def spd_inverse(matrix: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The inverse of positive definite matrices by Gauss–Jordan elimination in place.

    Elementwise work only: for thousands of small matrices an accelerator does it far faster than a library call each.
    """
    index = jnp.arange(matrix.shape[-1])

    def eliminate(k: Array, m: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
        row = jax.lax.dynamic_index_in_dim(m, k, axis=-2)
        column = jax.lax.dynamic_index_in_dim(m, k, axis=-1)
        pivot = 1 / jax.lax.dynamic_index_in_dim(row, k, axis=-1)
        in_row, in_column = (index == k)[:, None], index == k
        m = jnp.where(in_row, row * pivot, m - column * row * pivot)
        return jnp.where(in_column, jnp.where(in_row, pivot, -column * pivot), m)

    return jax.lax.fori_loop(0, matrix.shape[-1], eliminate, matrix)

"""Bayesian regression of one variable on its parents, linear or smooth, with the noise's variance unknown."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.linear_algebra import solve_positive

# The noise's variance is inverse gamma: as many rows as these, with a tenth of a usual variable's variance.
PSEUDO_ROWS, RATE = 2, 0.1


def numbers_needed(rows: int, variables: int, units: int) -> int:
    """How many standard normal numbers `draw_coefficients` takes."""
    return 2 * rows + PSEUDO_ROWS + 1 + variables + units


class Coefficients(NamedTuple):
    """One draw of all that a mechanism needs; with a leading axis, of all variables."""

    bias: Float[Array, "*d"]
    weight: Float[Array, "..."]
    inner: Float[Array, "..."]
    phase: Float[Array, "..."]
    outer: Float[Array, "..."]
    scale: Float[Array, "*d"]


def draw_coefficients(
    values: Float[Array, "n d"],
    output: Float[Array, " n"],
    parents: Bool[Array, " d"],
    keep: Bool[Array, " n"],
    waves: Float[Array, "units d"],
    phases: Float[Array, " units"],
    lengths: Float[Array, " lengths"],
    slack: float,
    numbers: Float[Array, " numbers"],
    uniform: Float[Array, ""],
) -> Coefficients:
    """Coefficients of `output = bias + weight · x + outer · cos(inner · x + phase) + noise` drawn from their posterior.

    `numbers` are standard normal, `uniform` is one number from 0 to 1. The prior of coefficients is normal with `slack`
    times the noise's variance (the constant's is wide); the smooth part then is a Gaussian process of squared
    exponential kernel, in as many waves. Its length is drawn too.
    """
    rows = keep.astype(values.dtype)
    given = parents.astype(values.dtype)
    count = jnp.maximum(given.sum(), 1)
    units = phases.shape[0]
    n = rows.shape[0]

    def posterior(
        length: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Float[Array, " m"], Float[Array, " m"], Float[Array, ""]]:
        inner = waves * given / (length * jnp.sqrt(count))
        cosines = jnp.cos(values @ inner.T + phases) * (
            math.sqrt(2 / max(units, 1)) * jnp.minimum(given.sum(), 1)
        )
        columns = jnp.concatenate([jnp.ones_like(values[:, :1]), values * given, cosines], 1) * rows[:, None]
        prior = jnp.concatenate([jnp.full(1, 100.0), jnp.full(given.shape[0] + units, slack)]).astype(
            values.dtype
        )
        precision = jnp.matmul(columns.T, columns, precision="highest") + jnp.diag(1 / prior)
        target = output * rows
        # The solution for data and prior with noise of their own is a draw from the posterior: no root is needed.
        against = jnp.matmul(columns.T, jnp.stack([target, rows * numbers[:n]], 1), precision="highest")
        shaken = against[:, 1] + numbers[n : n + prior.shape[0]] / jnp.sqrt(prior)
        solved, log_det = solve_positive(precision, jnp.stack([against[:, 0], shaken], 1))
        rate = RATE + 0.5 * jnp.maximum(jnp.sum(target**2) - against[:, 0] @ solved[:, 0], 0)
        shape = (PSEUDO_ROWS + rows.sum()) / 2
        evidence = -0.5 * (log_det + jnp.sum(jnp.log(prior))) - shape * jnp.log(rate)
        return evidence, solved[:, 0], solved[:, 1], rate

    evidence, means, shakes, rates = jax.vmap(posterior)(lengths)
    along = jnp.cumsum(jax.nn.softmax(evidence))
    chosen = jnp.minimum(jnp.sum(along < uniform), lengths.shape[0] - 1)
    # A gamma number of half-integer shape is half a sum of squares of normals, which compiles far faster than jr.gamma.
    fresh = numbers[n + means.shape[1] :]
    squares = jnp.sum(rows * fresh[:n] ** 2) + jnp.sum(fresh[n:] ** 2)
    scale = jnp.sqrt(2 * rates[chosen] / squares)
    drawn = means[chosen] + scale * shakes[chosen]
    d = given.shape[0]
    some = math.sqrt(2 / max(units, 1)) * jnp.minimum(given.sum(), 1)
    return Coefficients(
        bias=drawn[0],
        weight=drawn[1 : d + 1] * given,
        inner=(waves * given / (lengths[chosen] * jnp.sqrt(count))),
        phase=phases,
        outer=drawn[d + 1 :] * some,
        scale=scale,
    )

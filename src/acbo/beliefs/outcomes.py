"""The target in observations and experiments, and its scale."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from acbo.data import Dataset


class Outcomes(NamedTuple):
    """The target in all rows, with its mean and scale in the observations."""

    target: Float[Array, " n"]
    tried: Bool[Array, " n"]
    """Which rows are experiments."""
    observed: Float[Array, ""] | Int[Array, ""]
    """Number of observations, at least 1."""
    centre: Float[Array, ""]
    scale: Float[Array, ""]
    """Mean and standard deviation of the observations; 0 and 1 where there are none."""


def outcomes_of(data: Dataset) -> Outcomes:
    """The target of a dataset, and the scale on which it is measured."""
    y = data.values[:, data.target]
    tried = data.intervened.any(1) & data.rows
    seen = data.rows & ~tried
    count = jnp.maximum(seen.sum(), 1)
    centre = jnp.where(seen, y, 0).sum() / count
    variance = jnp.where(seen.sum() > 1, jnp.where(seen, (y - centre) ** 2, 0).sum() / count, 1.0)
    return Outcomes(y, tried, count, centre, jnp.sqrt(jnp.maximum(variance, 1e-6)))


def recent(
    tried: tuple[Bool[Array, "n d"], Float[Array, "n d"], Bool[Array, " n"]],
    residual: Float[Array, " n"],
    memory: int,
) -> tuple[tuple[Bool[Array, "k d"], Float[Array, "k d"], Bool[Array, " k"]], Float[Array, " k"]]:
    """The last `memory` experiments alone: observations and padding would only cost time."""
    used = tried[2]
    n = used.shape[0]
    if n <= memory:
        return tried, residual
    _, rows = jax.lax.top_k(jnp.where(used, jnp.arange(n), -1), memory)
    return (tried[0][rows], tried[1][rows], used[rows]), residual[rows]

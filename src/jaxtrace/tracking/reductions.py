"""Reductions: what is kept of all particles at a recorded time when their positions are too many to keep."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .box import Bounds, box_corners
from .units import Snapshot


class AbstractReduction(eqx.Module):
    """A sum over particles, computed on the device at every recorded time; batches and devices add up.

    Only particles that are `moving` may count: batches are filled up with others.
    """

    @abc.abstractmethod
    def __call__(self, snapshot: Snapshot) -> Any:
        """Arrays that are sums over the particles of a batch."""

    def finish(self, total: Any) -> Any:
        """The result from the sums over all particles, NumPy arrays with a leading axis of times."""
        return total


class Count(AbstractReduction):
    """How many particles are moving, inside a box where bounds are given."""

    low: Float[Array, " dim"] | None = None
    high: Float[Array, " dim"] | None = None

    def __call__(self, snapshot: Snapshot) -> Any:
        inside = snapshot.moving
        if self.low is not None and self.high is not None:
            x = snapshot.position
            inside = inside & ((x >= self.low) & (x <= self.high)).all(-1)
        return inside.sum(dtype=jnp.int32)


class Histogram(AbstractReduction):
    """How many moving particles lie in each cell of a box; those outside it are not counted."""

    low: Float[Array, " dim"]
    high: Float[Array, " dim"]
    counts: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, snapshot: Snapshot) -> Any:
        shape = jnp.asarray(self.counts)
        at = (snapshot.position - self.low) / (self.high - self.low) * shape
        cell = jnp.minimum(jnp.floor(at).astype(jnp.int32), shape - 1)
        inside = snapshot.moving & ((at >= 0) & (at <= shape)).all(-1)
        strides = np.cumprod([1, *self.counts[:0:-1]])[::-1]
        flat = (jnp.where(inside[:, None], cell, 0) * jnp.asarray(strides.copy())).sum(-1)
        total = jnp.zeros(int(np.prod(self.counts)), jnp.int32)
        return total.at[flat].add(inside.astype(jnp.int32)).reshape(self.counts)


class Moments(AbstractReduction):
    """Number, mean and covariance of the moving particles' positions."""

    origin: Float[Array, " dim"] | None = None
    """A place near the particles, from which sums lose fewer digits; the coordinates' own unless given."""

    def __call__(self, snapshot: Snapshot) -> Any:
        x = snapshot.position if self.origin is None else snapshot.position - self.origin
        x = jnp.where(snapshot.moving[:, None], x, 0.0)
        return {
            "count": snapshot.moving.sum(dtype=jnp.int32),
            "sum": x.sum(0),
            "squares": jnp.einsum("ni,nj->ij", x, x, precision="highest"),
        }

    def finish(self, total: Any) -> Any:
        count = np.maximum(total["count"], 1)
        mean = total["sum"].astype(np.float64) / count[:, None]
        covariance = total["squares"] / count[:, None, None] - mean[:, :, None] * mean[:, None, :]
        shift = 0.0 if self.origin is None else np.asarray(self.origin)
        return {"count": total["count"], "mean": mean + shift, "covariance": covariance}


class MeanSquareDisplacement(AbstractReduction):
    """The mean square distance of the moving particles from where they began, along each axis."""

    seeds: Float[Array, "n dim"]

    def __call__(self, snapshot: Snapshot) -> Any:
        begun = self.seeds[jnp.minimum(snapshot.identity, self.seeds.shape[0] - 1)]
        way = jnp.where(snapshot.moving[:, None], snapshot.position - begun, 0.0)
        return {"count": snapshot.moving.sum(dtype=jnp.int32), "squares": (way**2).sum(0)}

    def finish(self, total: Any) -> Any:
        return total["squares"] / np.maximum(total["count"], 1)[:, None]


def histogram(bounds: Bounds, counts: int | Sequence[int]) -> Histogram:
    """A histogram over a box, `counts` cells along each axis."""
    low, high = box_corners(bounds)
    each = (counts,) * len(low) if isinstance(counts, int) else tuple(int(count) for count in counts)
    if len(each) != len(low) or min(each) < 1 or not (high > low).all():
        raise ValueError(
            f"`counts` must be at least 1 for each of the {len(low)} axes of a box with extent; got {counts} for {bounds}."
        )
    return Histogram(jnp.asarray(low, float), jnp.asarray(high, float), each)


def count_in(bounds: Bounds) -> Count:
    """How many particles are in a box."""
    low, high = box_corners(bounds)
    return Count(jnp.asarray(low, float), jnp.asarray(high, float))

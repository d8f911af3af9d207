"""Reductions: sums over all particles at each recorded time, for runs whose positions are too many to keep."""

import abc
import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..boundaries.base import AbstractBoundary
from ..boundaries.box import Bounds, box_corners
from ..fields.base import Vector
from .segment import Snapshot


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

    def _for_seeds(self, seeds: Float[np.ndarray, "particles dim"]) -> "AbstractReduction":
        """The reduction for a run that begins with these particles."""
        return self

    def _check(self, seeds: Float[np.ndarray, "particles dim"], boundary: AbstractBoundary) -> None:
        """Raise an error for particles or walls that the reduction cannot serve."""


class Count(AbstractReduction):
    """How many particles are moving, inside a box where bounds are given."""

    low: Vector | None = None
    high: Vector | None = None

    def __call__(self, snapshot: Snapshot) -> Any:
        inside = snapshot.moving
        if self.low is not None and self.high is not None:
            x = snapshot.position
            inside = inside & ((x >= self.low) & (x <= self.high)).all(-1)
        return inside.sum(dtype=jnp.int32)


class Histogram(AbstractReduction):
    """How many moving particles lie in each cell of a box; those outside it are not counted."""

    low: Vector
    high: Vector
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

    origin: Vector | None = None
    """A place near the particles, from which sums lose fewer digits; the middle of the seeds by default."""

    def _for_seeds(self, seeds: Float[np.ndarray, "particles dim"]) -> "AbstractReduction":
        middle = jnp.asarray(seeds.mean(0, dtype=np.float64), seeds.dtype)
        return self if self.origin is not None else dataclasses.replace(self, origin=middle)

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

    def _check(self, seeds: Float[np.ndarray, "particles dim"], boundary: AbstractBoundary) -> None:
        if self.seeds.shape != seeds.shape:
            raise ValueError(
                f"`seeds` of MeanSquareDisplacement must have shape {seeds.shape}, where each particle began; got "
                f"{self.seeds.shape}. Pass what track_particles gets."
            )
        if hasattr(boundary, "reinject"):
            raise ValueError(
                "`reduce` must not be MeanSquareDisplacement where an inlet fills slots with particles that begin elsewhere. "
                "Keep positions, or leave the inlet out."
            )
        parts = getattr(boundary, "parts", (boundary,))
        if any("periodic" in pair for part in parts for pair in getattr(part, "faces", ())):
            warnings.warn(
                "MeanSquareDisplacement measures from where particles began to where a periodic boundary brought them back: "
                "distances beyond half a period are too short. Track without the boundary in a field that knows its period.",
                stacklevel=3,
            )

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

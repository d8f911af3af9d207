"""Inlets: the places on a face of the domain where particles are born, as functions of a few random numbers."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from ..fields.base import AbstractField, Index
from ..fields.sphere import area_weights
from .base import Vector
from .box import AXES, Bounds, box_corners


class AbstractInlet(eqx.Module):
    """Where a particle is born: a pure function of three random words and of the place where it left."""

    @abc.abstractmethod
    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """A position, from four numbers uniform in [0, 1), the place the slot's last particle left, and the slot."""


class UniformInlet(AbstractInlet):
    """Evenly over the box between two corners; a face is a box without extent along one axis."""

    low: Vector
    high: Vector

    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """`low + u (high - low)`."""
        share = words[: left.shape[0]].astype(left.dtype)
        return self.low.astype(left.dtype) + share * (self.high - self.low).astype(left.dtype)


class GaussianInlet(AbstractInlet):
    """A bell along each axis, cut off at the corners without piling up there.

    `quantiles` are places below which equal shares of the bell lie; between two of them particles lie evenly. Reading
    a table costs a quarter of inverting the bell's distribution for every slot.
    """

    quantiles: Float[Array, "dim count"]

    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """A quantile drawn at random, along each axis."""
        last = self.quantiles.shape[1] - 1
        table = self.quantiles.astype(left.dtype)
        places = []
        for axis in range(left.shape[0]):
            at = words[axis].astype(left.dtype) * last
            number = jnp.minimum(at.astype(jnp.int32), last - 1)
            low, high = table[axis, number], table[axis, number + 1]
            places.append(low + (at - number) * (high - low))
        return jnp.stack(places)


class GridInlet(AbstractInlet):
    """A regular lattice on the face.

    `order="nearest"` puts a particle on the lattice point nearest to where it left across the flow, so that a cloud
    seeded as a lattice stays one; "cycle" goes by slot, which fills the lattice evenly.
    """

    low: Vector
    spacing: Vector
    counts: tuple[int, ...] = eqx.field(static=True)
    order: Literal["nearest", "cycle"] = eqx.field(static=True, default="nearest")

    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """A lattice point."""
        low, spacing = self.low.astype(left.dtype), self.spacing.astype(left.dtype)
        if self.order == "cycle":
            number = jnp.stack(jnp.unravel_index(slot % int(np.prod(self.counts)), self.counts))
        else:
            safe = jnp.where(spacing > 0, spacing, 1.0)
            number = jnp.clip(jnp.round((left - low) / safe), 0, np.array(self.counts) - 1)
        return low + number.astype(left.dtype) * spacing


class FluxInlet(AbstractInlet):
    """Cells of the face, chosen in proportion to the inflow through them; even within a cell.

    The choice is Walker's alias method: one table row per draw, however many cells there are.
    """

    corner: Float[Array, "cells dim"]
    size: Vector
    keep: Float[Array, " cells"]
    other: Int32[Array, " cells"]

    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """A cell by its share of the flow, then a place in it."""
        dim, cells = left.shape[0], self.keep.shape[0]
        drawn = jnp.minimum((words[3] * cells).astype(jnp.int32), cells - 1)
        # What remains of the word after choosing the row decides between the row and its alias.
        rest = words[3] * cells - drawn
        cell = jnp.where(rest < self.keep[drawn], drawn, self.other[drawn])
        inner = words[:dim].astype(left.dtype) * self.size.astype(left.dtype)
        return self.corner[cell].astype(left.dtype) + inner


class GeneratedInlet(AbstractInlet):
    """A user's function `(words, left, slot) -> position`."""

    function: Callable[[Array, Array, Array], Array]

    def place(self, words: Float[Array, " 4"], left: Vector, slot: Index) -> Vector:
        """The function's result."""
        return jnp.asarray(self.function(words, left, slot), left.dtype)


def face_inlet(
    bounds: Bounds,
    axis: int,
    upper: bool = False,
    distribution: str = "uniform",
    *,
    resolution: Sequence[int] | None = None,
    mean: Sequence[float] | None = None,
    deviation: float | Sequence[float] | None = None,
    field: AbstractField | None = None,
    time: float = 0.0,
    order: str = "nearest",
) -> AbstractInlet:
    """An inlet on one face of a box.

    `resolution` is the number of lattice points ("grid") or cells ("flux") along every axis; the one across the face
    is ignored. The default is 10 for "grid", and for "flux" 1024 on a line and 64 × 64 on a face: coarser cells would
    release too many particles beside walls, where the flow is slow. `mean` and `deviation` shape the bell of "gaussian"; the
    defaults are the face's middle and a sixth of its extent. "flux" weights the cells by the inflow of `field` at `time`.
    """
    corners = box_corners(bounds)
    dim = corners.shape[1]
    face = corners.copy()
    face[:, axis] = corners[1 if upper else 0, axis]
    low, high = face
    if distribution in ("uniform", "random"):
        return UniformInlet(jnp.asarray(low, float), jnp.asarray(high, float))
    if distribution == "gaussian":
        centre = (low + high) / 2 if mean is None else np.asarray(mean, float)
        width = (high - low) / 6 if deviation is None else np.broadcast_to(np.asarray(deviation, float), dim)
        good = np.isfinite(centre).all() and np.isfinite(width).all() and (width >= 0).all()
        if centre.shape != (dim,) or not good:
            raise ValueError(
                f"`mean` must have {dim} finite coordinates and `deviation` be finite and at least 0; got {mean}, {deviation}."
            )
        return GaussianInlet(jnp.asarray(_bell_quantiles(low, high, centre, width), float))
    usual = 10 if distribution == "grid" else 1024 if dim == 2 else 64
    counts = [usual] * dim if resolution is None else [int(n) for n in resolution]
    if len(counts) != dim or min(counts) < 1:
        raise ValueError(f"`resolution` must hold {dim} numbers of at least 1; got {resolution}.")
    counts[axis] = 1
    if distribution == "grid":
        parts = np.maximum(np.array(counts) - 1, 1)
        single = np.array(counts) == 1
        first = np.where(single, (low + high) / 2, low)
        spacing = np.where(single, 0.0, (high - low) / parts)
        if order not in ("nearest", "cycle"):
            raise ValueError(f"`order` must be 'nearest' or 'cycle'; got {order!r}.")
        return GridInlet(
            jnp.asarray(first, float), jnp.asarray(spacing, float), tuple(counts), cast(Any, order)
        )
    if distribution == "flux":
        if field is None:
            raise ValueError(
                '`field` must be given for the distribution "flux": it decides where fluid enters; got None.'
            )
        return _flux_inlet(field, low, high, axis, -1.0 if upper else 1.0, counts, time)
    raise ValueError(f"`distribution` must be uniform, gaussian, grid or flux; got {distribution!r}.")


def _bell_quantiles(
    low: np.ndarray, high: np.ndarray, mean: np.ndarray, width: np.ndarray, count: int = 4097
) -> np.ndarray:
    """Quantiles of a bell between two corners, along each axis; an axis without extent or width stands still."""
    from scipy.special import ndtr, ndtri

    rows = []
    for a, b, centre, sigma in zip(low, high, mean, width, strict=True):
        if a == b or sigma == 0:
            rows.append(np.full(count, np.clip(centre, a, b)))
            continue
        # On the side where the tail is thin, so that a bell centred far away keeps its digits.
        flip = -1.0 if (a + b) / 2 > centre else 1.0
        ends = np.sort([flip * (a - centre) / sigma, flip * (b - centre) / sigma])
        share = np.linspace(ndtr(ends[0]), ndtr(ends[1]), count)
        rows.append(np.sort(np.clip(centre + flip * sigma * ndtri(share), a, b)))
    return np.stack(rows)


def _flux_inlet(
    field: AbstractField,
    low: np.ndarray,
    high: np.ndarray,
    axis: int,
    inward: float,
    counts: Sequence[int],
    time: float,
) -> FluxInlet:
    """Cells of the face with the flow through their middles."""
    size = (high - low) / np.array(counts)
    lattice = np.meshgrid(*(np.arange(n) for n in counts), indexing="ij")
    corner = low + np.stack([number.ravel() for number in lattice], -1) * size
    points = jnp.asarray(corner + size / 2, float)
    velocity = np.asarray(field.in_metres(points, jnp.asarray(time, points.dtype)))[:, axis]
    flux = np.maximum(inward * np.where(np.isfinite(velocity), velocity, 0.0), 0.0).astype(np.float64)
    if field.sphere is not None and axis > 1:
        # Cells across a depth are as many degrees wide, not as many metres.
        flux = flux * area_weights(field.sphere, np.asarray(points[:, 1]))
    if not flux.sum() > 0:
        raise ValueError(
            f"`field` must flow in through the {AXES[axis]} face at time {time}; it flows out or rests everywhere there. "
            "Name the other face, or another time."
        )
    keep, other = alias_table(flux)
    return FluxInlet(
        jnp.asarray(corner, float), jnp.asarray(size, float), jnp.asarray(keep, float), jnp.asarray(other)
    )


def alias_table(weights: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], Any]:
    """Walker's alias table: row i is kept with probability keep[i], else replaced by other[i]."""
    count = len(weights)
    scaled = np.asarray(weights, np.float64) * (count / np.sum(weights))
    keep, other = np.ones(count), np.arange(count, dtype=np.int32)
    small, large = [list(np.flatnonzero(side)) for side in (scaled < 1, scaled >= 1)]
    while small and large:
        less, more = small.pop(), large[-1]
        keep[less], other[less] = scaled[less], more
        scaled[more] -= 1 - scaled[less]
        if scaled[more] < 1:
            small.append(large.pop())
    return keep, other

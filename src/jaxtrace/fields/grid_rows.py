"""How the rows of the data belong to a structured grid: their order, their places, the land among them."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Shaped

from .base import AbstractGrid, Flag, Interpolation, Scalar, Stencil, check_choice
from .land import Land, LandValues, drop_land
from .weights import Place, row_weights, take

Centring = Literal["node", "cell"]
"""Whether the data have one row for each node, or for each cell between the nodes."""
Order = Literal["C", "F"] | tuple[int, ...]
"""How rows are numbered: last axis fastest, first axis fastest, or the axes from slowest to fastest."""
Numbers = Int[np.ndarray, " size"] | Int[Array, " size"]
Mask = Bool[np.ndarray, "..."] | Bool[Array, "..."]
Rows = list[Int[Array, ""]]
Weights = list[Scalar]


class GridRows(eqx.Module):
    """How the rows of the data belong to a grid of `shape` nodes, and which of its cells are land."""

    shape: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)
    centring: Centring = eqx.field(static=True)
    interpolation: Interpolation = eqx.field(static=True)
    land_values: LandValues = eqx.field(static=True)
    rows: Int[Array, " size"] | None
    land: Land | None

    def __init__(
        self,
        shape: Sequence[int],
        interpolation: Interpolation,
        centring: Centring,
        order: Order,
        rows: Numbers | None,
        mask: Mask | None,
        land_values: LandValues,
    ) -> None:
        check_choice("interpolation", interpolation, ("nearest", "linear", "cubic"))
        check_choice("centring", centring, ("node", "cell"))
        check_choice("land_values", land_values, ("keep", "drop"))
        self.shape = tuple(int(n) for n in shape)
        if not self.shape or min(self.shape) < 1:
            raise ValueError(f"`shape` must hold at least one node along every axis; got {self.shape}.")
        self.interpolation, self.centring, self.land_values = interpolation, centring, land_values
        self.order = _axes_in_order(order, len(self.shape))
        if rows is not None and sorted(np.asarray(rows).tolist()) != list(range(self.size)):
            raise ValueError(f"`rows` must hold each number from 0 to {self.size - 1} once; got {rows}.")
        self.rows = None if rows is None else jnp.asarray(rows, jnp.int32)
        self.land = None if mask is None else Land(mask, self.shape, centring, np.asarray(self.numbers()))

    @property
    def counts(self) -> tuple[int, ...]:
        """Values along each axis."""
        return self.shape if self.centring == "node" else tuple(max(n - 1, 1) for n in self.shape)

    @property
    def size(self) -> int:
        """Rows the data must have."""
        return math.prod(self.counts)

    def numbers(self) -> Numbers:
        """The row of each value, the values taken with the last axis fastest."""
        flat = np.arange(self.size).reshape([self.counts[a] for a in self.order])
        flat = flat.transpose(np.argsort(self.order)).reshape(-1)
        return flat if self.rows is None else self.rows[flat]

    def stencil(
        self, places: list[Place | None], cells: list[Int[Array, ""]], inside: Flag, dtype: jnp.dtype
    ) -> Stencil:
        """Rows and weights from the place along each axis; None marks an axis with a single value."""
        rows, weights = self._product(places, self.interpolation)
        pack = rows[0] if self.packable else None
        if self.land is not None:
            cell_counts = tuple(max(n - 1, 1) for n in self.shape)
            steps = zip(cells, strides_of(cell_counts), strict=True)
            cell = sum((number * stride for number, stride in steps), jnp.int32(0))
            inside = inside & ~take(self.land.cells, cell)
            if self.land_values == "drop" and self.interpolation != "nearest":
                rows, weights = self._without_land(self.land, places, rows, weights)
        return Stencil(tuple(rows), tuple(w.astype(dtype) for w in weights), inside, (), pack)

    @property
    def plain(self) -> bool:
        """Whether the values are those of nodes, several along each axis, and none on land."""
        return self.land is None and self.centring == "node" and min(self.shape) >= 2

    @property
    def packable(self) -> bool:
        """Whether the rows of a stencil lie at fixed distances from its first one, and no more than eight of them."""
        drops = self.land is not None and self.land_values == "drop"
        return self.interpolation == "linear" and self.rows is None and not drops and len(self.shape) <= 3

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "size _"]:
        """For each row its value and those of the other corners of the cell that begins there."""
        strides = strides_of(self.counts, self.order)
        steps = [(0, stride) for stride, count in zip(strides, self.counts, strict=True) if count > 1]
        offsets = [sum(corner) for corner in itertools.product(*steps)]
        # Rows at the upper edges begin no cell; what wraps around there is never read.
        return jnp.concatenate([jnp.roll(values, -offset, axis=0) for offset in offsets], axis=1)

    def _product(self, places: list[Place | None], interpolation: Interpolation) -> tuple[Rows, Weights]:
        """The products of the axes' weights and the rows they belong to."""
        strides = strides_of(self.counts, self.order)
        rows, weights = [jnp.int32(0)], [jnp.ones(())]
        for place, count, stride in zip(places, self.counts, strides, strict=True):
            if place is not None:
                numbers, parts = row_weights(place, count, interpolation)
                rows = [row + (number * stride).astype(jnp.int32) for row in rows for number in numbers]
                weights = [weight * part for weight in weights for part in parts]
        return rows if self.rows is None else [take(self.rows, row) for row in rows], weights

    def _without_land(
        self, land: Land, places: list[Place | None], rows: Rows, weights: Weights
    ) -> tuple[Rows, Weights]:
        """Rows on land left out. Cubic weights change sign, so near land the linear ones take their place."""
        clamped = [p and p._replace(fraction=jnp.clip(p.fraction, 0, 1)) for p in places]
        near, positive = self._product(clamped, "linear")
        positive = drop_land(positive, [take(land.rows, row) for row in near])
        extra = len(rows) - len(near)
        near, positive = near + near[:1] * extra, positive + [jnp.zeros_like(positive[0])] * extra
        touched = functools.reduce(jnp.logical_or, [take(land.rows, row) for row in rows])
        return (
            [jnp.where(touched, a, b) for a, b in zip(near, rows, strict=True)],
            [jnp.where(touched, a, b) for a, b in zip(positive, weights, strict=True)],
        )


class AbstractStructuredGrid(AbstractGrid):
    """A grid whose values lie along axes, in the order of a `layout`."""

    layout: eqx.AbstractVar[GridRows]

    @property
    def dim(self) -> int:
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def counts(self) -> tuple[int, ...]:
        """Values along each axis."""
        return self.layout.counts

    @property
    def land_rows(self) -> Bool[Array, " size"] | None:
        """Which rows of the data lie on land."""
        return None if self.layout.land is None else self.layout.land.rows


def _axes_in_order(order: Order, dim: int) -> tuple[int, ...]:
    if order == "C":
        return tuple(range(dim))
    if order == "F":
        return tuple(reversed(range(dim)))
    if isinstance(order, str) or sorted(order) != list(range(dim)):
        raise ValueError(
            f"`order` must be 'C', 'F' or the {dim} axes from slowest to fastest; got {order!r}."
        )
    return tuple(order)


def strides_of(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """How far each axis steps in a flat array whose axes run from slowest to fastest in `order`, by default as they stand."""
    order = range(len(shape)) if order is None else order
    return tuple(math.prod(shape[a] for a in order[order.index(axis) + 1 :]) for axis in range(len(shape)))

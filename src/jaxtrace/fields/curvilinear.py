"""Grids of curved rows: quadrilaterals and hexahedra between nodes given one by one."""

import math
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, PyTree

from .base import Index, Stencil, Vector
from .curved_cells import NEWTON_STEPS, flat, settle, walk
from .grid_rows import AbstractStructuredGrid, Centring, GridRows, Mask, strides_of
from .land import LandValues, cell_corners
from .sphere import Sphere
from .weights import Place, take


class CurvilinearGrid(AbstractStructuredGrid):
    """Quadrilaterals between nodes `points` (nx, ny, 2), or hexahedra between (nx, ny, nz, 3).

    Neither the orientation of the axes nor their handedness matters. Data of nodes or cells are interpolated
    linearly in each cell, which is exact for linear fields, or taken from the nearest. `mask` marks land by cell or node.
    There is no cubic interpolation: its weights, taken along the rows, are exact for linear fields only where the rows
    are straight and evenly spaced.
    """

    points: Float[Array, "nodes dim"]
    """The nodes, last axis fastest."""
    middles: Float[Array, "cells dim"] | None
    """The middles of the cells, where the data are for cells."""
    first: Int32[Array, " bins"]
    """A cell near the middle of each bin."""
    corner: Vector
    per_unit: Vector
    bins: tuple[int, ...] = eqx.field(static=True)
    layout: GridRows

    def __init__(
        self,
        points: Float[Array, "..."] | Float[np.ndarray, "..."],
        *,
        interpolation: Literal["nearest", "linear"] = "linear",
        centring: Centring = "node",
        mask: Mask | None = None,
        land_values: LandValues = "keep",
        sphere: Sphere | None = None,
    ) -> None:
        self.sphere = sphere
        nodes = np.asarray(points)
        dim = nodes.shape[-1]
        if dim not in (2, 3) or nodes.ndim != dim + 1 or min(nodes.shape[:-1]) < 2:
            raise ValueError(
                f"`points` must have shape (nx, ny, 2) or (nx, ny, nz, 3) with two nodes or more along each axis; "
                f"got {nodes.shape}. For a single layer of nodes give two dimensions."
            )
        if not np.all(np.isfinite(nodes)):
            raise ValueError(
                "`points` must be finite; give nodes on land a position too and mark them with `mask`."
            )
        if interpolation not in ("nearest", "linear"):
            raise ValueError(
                f"`interpolation` must be 'nearest' or 'linear' on a curvilinear grid; got {interpolation!r}. Cubic weights "
                "along curved rows would not even reproduce a linear field; resample to a rectilinear grid for cubic."
            )
        shape = nodes.shape[:-1]
        if centring == "cell" and interpolation == "linear" and min(shape) < 3:
            raise ValueError(
                f"`points` must hold two cells or more along each axis for linear cell data; got nodes {shape}. "
                "Use `interpolation='nearest'`."
            )
        self.layout = GridRows(shape, interpolation, centring, "C", None, mask, land_values)
        self.points = jnp.asarray(nodes.reshape(-1, dim))
        middles = np.mean(cell_corners(nodes, dim), axis=0)
        self.middles = jnp.asarray(middles.reshape(-1, dim)) if centring == "cell" else None
        low, high = nodes.reshape(-1, dim).min(0), nodes.reshape(-1, dim).max(0)
        # About two bins per cell, as square as the box allows.
        side = (float(np.prod(high - low)) / (2 * math.prod(middles.shape[:-1]))) ** (1 / dim)
        self.bins = tuple(int(n) for n in np.clip(np.ceil((high - low) / side), 1, 2048))
        self.first = jnp.asarray(_nearest_cells(middles.reshape(-1, dim), low, high, self.bins))
        self.corner = jnp.asarray(low)
        self.per_unit = jnp.asarray(np.asarray(self.bins) / (high - low), self.corner.dtype)

    @property
    def bounds(self) -> Float[Array, "2 dim"]:
        return jnp.stack([self.points.min(0), self.points.max(0)])

    @property
    def middle(self) -> Vector:
        return self.corner + (0.5 * jnp.asarray(self.bins)).astype(self.corner.dtype) / self.per_unit

    @property
    def positions(self) -> Float[Array, "size dim"]:
        return self.points if self.middles is None else self.middles

    def start(self, x: Vector) -> Index:
        """The cell nearest to the middle of the bin that holds the point."""
        number = jnp.floor((x - self.corner) * self.per_unit).astype(jnp.int32)
        number = jnp.clip(number, 0, jnp.asarray(self.bins, jnp.int32) - 1)
        return take(
            self.first, jnp.sum(number * jnp.asarray(strides_of(self.bins), jnp.int32), dtype=jnp.int32)
        )

    def stencil(self, x: Vector, hint: PyTree) -> Stencil:
        shape = self.layout.shape
        seen = walk(self.points, shape, x, hint)
        # A walk from an old cell can end in a bay; a second one from the bins decides whether a point is outside.
        seen = walk(self.points, shape, x, self.start(x), seen)
        cell, local, inside = settle(self.points, shape, x, seen)
        # Inside, a place may lie beyond its cell by rounding; cutting that off would cost linear fields their digits.
        place = jnp.where(inside, local, jnp.clip(local, 0, 1))
        among = cell
        if self.middles is not None and self.layout.interpolation == "linear":
            among, place = self._between_middles(self.middles, x, cell, place)
        elif self.middles is not None:
            place = jnp.zeros_like(place)
        places: list[Place | None] = [Place(i, f) for i, f in zip(among, place, strict=True)]
        found = self.layout.stencil(places, list(cell), inside, x.dtype)
        return Stencil(found.rows, found.weights, found.inside, flat(cell, shape))

    def _between_middles(
        self, middles: Float[Array, "cells dim"], x: Vector, cell: Int32[Array, " dim"], place: Vector
    ) -> tuple[Int32[Array, " dim"], Vector]:
        """The place among the cells' middles; beyond the outermost the last ones are carried on."""
        counts = self.layout.counts
        begin = jnp.clip(cell - (place < 0.5), 0, jnp.asarray(counts, jnp.int32) - 2)
        seen = walk(middles, counts, x, flat(begin, counts))
        # Beyond the outermost middles the walk stops half a cell away: the rest takes a few steps more.
        among, local, _ = settle(middles, counts, x, seen, before=NEWTON_STEPS)
        # One cell beyond the outermost middles is further than any point of the grid lies.
        return among, jnp.clip(local, -1, 2)


def _nearest_cells(
    middles: Float[np.ndarray, "cells dim"],
    low: Float[np.ndarray, " dim"],
    high: Float[np.ndarray, " dim"],
    bins: tuple[int, ...],
) -> Int32[np.ndarray, " bins"]:
    """The cell whose middle is nearest to the middle of each bin."""
    from scipy.spatial import KDTree

    centres = [a + (np.arange(n) + 0.5) * (b - a) / n for a, b, n in zip(low, high, bins, strict=True)]
    at = np.stack(np.meshgrid(*centres, indexing="ij"), -1).reshape(-1, len(bins))
    return np.asarray(KDTree(middles).query(at)[1], np.int32)

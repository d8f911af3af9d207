"""Grids of curved rows: quadrilaterals and hexahedra between nodes given one by one.

A point's place in a cell is found by Newton's method on the cell's bilinear or trilinear map. Where it lies beyond
a face, the neighbour there is tried next; the first cell comes from a table of bins.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from .base import AbstractGrid, Stencil
from .land import LandValues, cell_corners
from .layout import Centring, Layout, Mask, strides_of
from .weights import Place, take

NEWTON_STEPS = 4
"""Per visited cell, from its middle: the error squares each time, and a wrong cell is seen sooner."""
OVERSHOOT = 0.5
"""How far beyond a cell, in its own units, Newton's method may look: far out, the map of a skewed cell folds."""


class Seen(NamedTuple):
    """The cell in which a walk ended, and the place of the point in the cell's own units."""

    cell: Int32[Array, " dim"]
    local: Float[Array, " dim"]


class CurvilinearGrid(AbstractGrid):
    """Quadrilaterals between nodes `points` (nx, ny, 2), or hexahedra between (nx, ny, nz, 3).

    Neither the orientation of the axes nor their handedness matters. Data of nodes or cells are interpolated
    linearly in each cell, which is exact for linear fields, or taken from the nearest. `mask` marks land by cell or node.
    """

    points: Float[Array, "nodes dim"]
    """The nodes, last axis fastest."""
    middles: Float[Array, "cells dim"] | None
    """The middles of the cells, where the data are for cells."""
    first: Int32[Array, " bins"]
    """A cell near the middle of each bin."""
    corner: Float[Array, " dim"]
    per_unit: Float[Array, " dim"]
    bins: tuple[int, ...] = eqx.field(static=True)
    layout: Layout

    def __init__(
        self,
        points: Float[Array, "..."] | Float[np.ndarray, "..."],
        *,
        interpolation: Literal["nearest", "linear"] = "linear",
        centring: Centring = "node",
        mask: Mask | None = None,
        land_values: LandValues = "keep",
    ) -> None:
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
                f"`interpolation` must be 'nearest' or 'linear' on a curvilinear grid; got {interpolation!r}."
            )
        shape = nodes.shape[:-1]
        if centring == "cell" and interpolation == "linear" and min(shape) < 3:
            raise ValueError(
                f"`points` must hold two cells or more along each axis for linear cell data; got nodes {shape}. "
                "Use `interpolation='nearest'`."
            )
        self.layout = Layout(shape, interpolation, centring, "C", None, mask, land_values)
        self.points = jnp.asarray(nodes.reshape(-1, dim))
        middles = np.mean(cell_corners(nodes, dim), axis=0)
        self.middles = jnp.asarray(middles.reshape(-1, dim)) if centring == "cell" else None
        low, high = nodes.reshape(-1, dim).min(0), nodes.reshape(-1, dim).max(0)
        self.bins = _bin_shape(high - low, math.prod(middles.shape[:-1]))
        self.first = jnp.asarray(_nearest_cells(middles.reshape(-1, dim), low, high, self.bins))
        self.corner = jnp.asarray(low)
        self.per_unit = jnp.asarray(np.asarray(self.bins) / (high - low), self.corner.dtype)

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

    @property
    def bounds(self) -> Float[Array, "2 dim"]:
        return jnp.stack([self.points.min(0), self.points.max(0)])

    @property
    def positions(self) -> Float[Array, "size dim"]:
        return self.points if self.middles is None else self.middles

    def start(self, x: Float[Array, " dim"]) -> Int32[Array, ""]:
        """The cell nearest to the middle of the bin that holds the point."""
        number = jnp.floor((x - self.corner) * self.per_unit).astype(jnp.int32)
        number = jnp.clip(number, 0, jnp.asarray(self.bins, jnp.int32) - 1)
        return take(self.first, jnp.sum(number * jnp.asarray(strides(self.bins), jnp.int32), dtype=jnp.int32))

    def stencil(self, x: Float[Array, " dim"], hint: PyTree) -> Stencil:
        shape = self.layout.shape
        seen = _walk(self.points, shape, x, hint)
        # A walk from an old cell can end in a bay; a second one from the bins decides whether a point is outside.
        seen = _walk(self.points, shape, x, self.start(x), seen)
        cell, local, inside = _settle(self.points, shape, x, seen)
        # Inside, a place may lie beyond its cell by rounding; cutting that off would cost linear fields their digits.
        place = jnp.where(inside, local, jnp.clip(local, 0, 1))
        if self.middles is not None and self.layout.interpolation == "linear":
            return self._between_middles(x, cell, place, inside)
        if self.layout.centring == "cell":
            places: list[Place | None] = [
                Place(i, jnp.zeros_like(f)) for i, f in zip(cell, place, strict=True)
            ]
        else:
            places = [Place(i, f) for i, f in zip(cell, place, strict=True)]
        found = self.layout.stencil(places, list(cell), inside, x.dtype)
        return Stencil(found.rows, found.weights, found.inside, _flat(cell, shape))

    def _between_middles(
        self,
        x: Float[Array, " dim"],
        cell: Int32[Array, " dim"],
        place: Float[Array, " dim"],
        inside: Bool[Array, ""],
    ) -> Stencil:
        """Weights from the cells' middles around the point; beyond the outermost the last ones are carried on."""
        assert self.middles is not None
        counts = self.layout.counts
        begin = jnp.clip(cell - (place < 0.5), 0, jnp.asarray(counts, jnp.int32) - 2)
        seen = _walk(self.middles, counts, x, _flat(begin, counts))
        # Beyond the outermost middles the walk stops half a cell away: the rest takes a few steps more.
        among, local, _ = _settle(self.middles, counts, x, seen, before=NEWTON_STEPS)
        # One cell beyond the outermost middles is further than any point of the grid lies.
        local = jnp.clip(local, -1, 2)
        places: list[Place | None] = [Place(i, f) for i, f in zip(among, local, strict=True)]
        found = self.layout.stencil(places, list(cell), inside, x.dtype)
        return Stencil(found.rows, found.weights, found.inside, _flat(cell, self.layout.shape))


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """How far each axis steps in a flat array whose last axis is the fastest."""
    return strides_of(tuple(shape), tuple(range(len(shape))))


def _flat(cell: Int32[Array, " dim"], shape: tuple[int, ...]) -> Int32[Array, ""]:
    return jnp.sum(cell * jnp.asarray(strides([n - 1 for n in shape]), jnp.int32), dtype=jnp.int32)


def _bin_shape(extent: Float[np.ndarray, " dim"], cells: int) -> tuple[int, ...]:
    """About two bins per cell, as square as the box allows."""
    side = (float(np.prod(extent)) / (2 * cells)) ** (1 / len(extent))
    return tuple(int(n) for n in np.clip(np.ceil(extent / side), 1, 2048))


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


def _walk(
    points: Float[Array, "nodes dim"],
    shape: tuple[int, ...],
    x: Float[Array, " dim"],
    start: Int32[Array, ""],
    seen: Seen | None = None,
) -> Seen:
    """From cell to cell towards `x`; a point `seen` before in a cell stays there."""
    points, x = jax.lax.stop_gradient((points, x))
    cells = [n - 1 for n in shape]
    last = jnp.asarray(cells, jnp.int32) - 1

    def proceed(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        cell, _, _, count = carry
        corners = _corners(points, shape, cell)
        # The map at the middle of the cell, carried on as if it were linear, says where to go from afar.
        far = _newton(corners, x, jnp.full_like(x, 0.5))
        local = jnp.clip(far, -OVERSHOOT, 1 + OVERSHOOT)
        change = jnp.inf
        for _ in range(NEWTON_STEPS):
            step = _newton(corners, x, local)
            change = jnp.max(jnp.abs(step - local))
            local = jnp.clip(step, -OVERSHOOT, 1 + OVERSHOOT)
        # Rounding may put a point on a face outside of both cells: the longer the walk, the more is allowed.
        slack = (1 + count / 8) * _slack(corners, x)
        held = jnp.all((local >= -slack) & (local <= 1 + slack)) & (change < 0.1)
        near = jnp.all(jnp.abs(far - 0.5) < 1.5) & (jnp.max(jnp.maximum(local - 1, -local)) > slack)
        guide = jnp.where(near, local, far)
        move = (guide > 1 + slack).astype(jnp.int32) - (guide < -slack).astype(jnp.int32)
        move = jnp.clip(cell + move, 0, last) - cell
        beyond = jnp.where(move == 0, -1.0, jnp.maximum(guide - 1, -guide))
        # Near the goal one axis at a time: two at once can circle around the node between four cells.
        single = jnp.where(jnp.arange(x.shape[0]) == jnp.argmax(beyond), move, 0)
        onward = cell + jnp.where(near, single, move)
        stay = held | jnp.all(onward == cell)
        return jnp.where(stay, cell, onward), local, stay, count + 1

    begin = jnp.stack([(start // s) % n for s, n in zip(strides(cells), cells, strict=True)]).astype(
        jnp.int32
    )
    local, done = jnp.full_like(x, 0.5), jnp.bool_(False)
    if seen is not None:
        done = _holds(points, shape, x, seen)
        begin, local = jnp.where(done, seen.cell, begin), jnp.where(done, seen.local, local)
    limit = 2 * sum(cells)
    state = (begin, local, done, jnp.int32(0))
    cell, local, _, _ = jax.lax.while_loop(lambda c: ~c[2] & (c[3] < limit), proceed, state)
    return Seen(*jax.lax.stop_gradient((cell, local)))


def _settle(
    points: Float[Array, "nodes dim"],
    shape: tuple[int, ...],
    x: Float[Array, " dim"],
    seen: Seen,
    before: int = 0,
) -> tuple[Int32[Array, " dim"], Float[Array, " dim"], Bool[Array, ""]]:
    """The cell, the place in it with its derivatives, and whether the point lies there."""
    corners = _corners(points, shape, seen.cell)
    local = seen.local
    for _ in range(before):
        local = jax.lax.stop_gradient(_newton(corners, x, local))
    # Two more steps, this time with derivatives: one makes the first derivative right, two the second as well.
    for _ in range(2):
        local = _newton(corners, x, local)
    return seen.cell, local, _holds(points, shape, x, Seen(seen.cell, local))


def _holds(
    points: Float[Array, "nodes dim"], shape: tuple[int, ...], x: Float[Array, " dim"], seen: Seen
) -> Bool[Array, ""]:
    """Whether the place lies in its cell, as nearly as rounding can tell."""
    slack = 8 * _slack(_corners(points, shape, seen.cell), x)
    return jnp.all((seen.local >= -slack) & (seen.local <= 1 + slack))


def _slack(corners: Float[Array, "corners dim"], x: Float[Array, " dim"]) -> Float[Array, ""]:
    """What rounding may change in a place: half an ulp far from the origin may be a visible part of a small cell."""
    size = jnp.max(jnp.abs(corners - corners[0]))
    return 8 * jnp.finfo(x.dtype).eps * (1 + jnp.max(jnp.abs(x)) / size)


def _corners(
    points: Float[Array, "nodes dim"], shape: tuple[int, ...], cell: Int32[Array, " dim"]
) -> Float[Array, "corners dim"]:
    steps = strides(shape)
    base = jnp.sum(cell * jnp.asarray(steps, jnp.int32), dtype=jnp.int32)
    offsets = [sum(c * s for c, s in zip(corner, steps, strict=True)) for corner in _cube(len(shape))]
    return take(points, base + jnp.asarray(offsets, jnp.int32))


def _cube(dim: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=dim))


def _newton(
    corners: Float[Array, "corners dim"], x: Float[Array, " dim"], local: Float[Array, " dim"]
) -> Float[Array, " dim"]:
    """One step of Newton's method towards the place in the cell that the map carries to `x`."""
    # Relative to a corner, so that the distance from the origin costs no digits.
    edges, target = corners - corners[0], x - corners[0]
    values = [jnp.stack([1 - part, part]) for part in local]
    rise = jnp.asarray([-1.0, 1.0], local.dtype)
    here = jnp.sum(_products(values)[:, None] * edges, 0)
    slopes = [
        jnp.sum(_products([*values[:axis], rise, *values[axis + 1 :]])[:, None] * edges, 0)
        for axis in range(local.shape[0])
    ]
    return local + _solve(slopes, target - here)


def _products(factors: list[Float[Array, " 2"]]) -> Float[Array, " corners"]:
    """The product of one factor from each axis for every corner, last axis fastest."""
    result = factors[0]
    for factor in factors[1:]:
        result = (result[:, None] * factor[None, :]).reshape(-1)
    return result


def _solve(columns: list[Float[Array, " dim"]], right: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The coefficients that make `right` from the columns; zero where these span no volume."""
    if len(columns) == 2:
        a, b = columns
        volume = a[0] * b[1] - a[1] * b[0]
        parts = [right[0] * b[1] - right[1] * b[0], a[0] * right[1] - a[1] * right[0]]
    else:
        a, b, c = columns
        crossed = [jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)]
        volume = jnp.sum(a * crossed[0])
        parts = [jnp.sum(right * n) for n in crossed]
    # Judged by the lengths of the edges themselves: no absolute size is small or large.
    scale = math.prod([jnp.sum(jnp.abs(column)) for column in columns], start=jnp.ones_like(volume))
    flat = jnp.abs(volume) <= 4 * jnp.finfo(right.dtype).eps * scale
    return jnp.where(flat, 0.0, jnp.stack(parts) / jnp.where(flat, 1.0, volume))

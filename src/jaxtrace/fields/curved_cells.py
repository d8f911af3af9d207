"""Walking through curved cells: the cell of a curvilinear grid that holds a point, and the point's place in it.

A point's place in a cell is found by Newton's method on the cell's bilinear or trilinear map. Where it lies beyond
a face, the neighbour there is tried next.
"""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from .base import Flag, Index, Scalar, Vector
from .grid_rows import strides_of
from .weights import take

NEWTON_STEPS = 4
"""Per visited cell, from its middle: the error squares each time, and a wrong cell is seen sooner."""
OVERSHOOT = 0.5
"""How far beyond a cell, in its own units, Newton's method may look: far out, the map of a skewed cell folds."""


class Seen(NamedTuple):
    """The cell in which a walk ended, and the place of the point in the cell's own units."""

    cell: Int32[Array, " dim"]
    local: Vector


def flat(cell: Int32[Array, " dim"], shape: tuple[int, ...]) -> Index:
    """The number of a cell of a grid of `shape` nodes."""
    return jnp.sum(cell * jnp.asarray(strides_of([n - 1 for n in shape]), jnp.int32), dtype=jnp.int32)


def walk(
    points: Float[Array, "nodes dim"],
    shape: tuple[int, ...],
    x: Vector,
    start: Index,
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

    begin = jnp.stack([(start // s) % n for s, n in zip(strides_of(cells), cells, strict=True)])
    begin = begin.astype(jnp.int32)
    local, done = jnp.full_like(x, 0.5), jnp.bool_(False)
    if seen is not None:
        done = _holds(points, shape, x, seen)
        begin, local = jnp.where(done, seen.cell, begin), jnp.where(done, seen.local, local)
    limit = 2 * sum(cells)
    state = (begin, local, done, jnp.int32(0))
    cell, local, _, _ = jax.lax.while_loop(lambda c: ~c[2] & (c[3] < limit), proceed, state)
    return Seen(*jax.lax.stop_gradient((cell, local)))


def settle(
    points: Float[Array, "nodes dim"], shape: tuple[int, ...], x: Vector, seen: Seen, before: int = 0
) -> tuple[Int32[Array, " dim"], Vector, Flag]:
    """The cell, the place in it with its derivatives, and whether the point lies there."""
    corners = _corners(points, shape, seen.cell)
    local = seen.local
    for _ in range(before):
        local = jax.lax.stop_gradient(_newton(corners, x, local))
    # Two more steps, this time with derivatives: one makes the first derivative right, two the second as well.
    for _ in range(2):
        local = _newton(corners, x, local)
    return seen.cell, local, _holds(points, shape, x, Seen(seen.cell, local))


def _holds(points: Float[Array, "nodes dim"], shape: tuple[int, ...], x: Vector, seen: Seen) -> Flag:
    """Whether the place lies in its cell, as nearly as rounding can tell."""
    slack = 8 * _slack(_corners(points, shape, seen.cell), x)
    return jnp.all((seen.local >= -slack) & (seen.local <= 1 + slack))


def _slack(corners: Float[Array, "corners dim"], x: Vector) -> Scalar:
    """What rounding may change in a place: half an ulp far from the origin may be a visible part of a small cell."""
    size = jnp.max(jnp.abs(corners - corners[0]))
    return 8 * jnp.finfo(x.dtype).eps * (1 + jnp.max(jnp.abs(x)) / size)


def _corners(
    points: Float[Array, "nodes dim"], shape: tuple[int, ...], cell: Int32[Array, " dim"]
) -> Float[Array, "corners dim"]:
    steps, cube = strides_of(shape), itertools.product((0, 1), repeat=len(shape))
    base = jnp.sum(cell * jnp.asarray(steps, jnp.int32), dtype=jnp.int32)
    offsets = [sum(c * s for c, s in zip(corner, steps, strict=True)) for corner in cube]
    return take(points, base + jnp.asarray(offsets, jnp.int32))


def _newton(corners: Float[Array, "corners dim"], x: Vector, local: Vector) -> Vector:
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


def _solve(columns: list[Vector], right: Vector) -> Vector:
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

"""Finding the simplex around a point on the device: a walk from the last one, and the bins where a walk gets stuck.

What a walk reads of a simplex is one row of 64 bytes in three dimensions, one line of a cache: the inverse of its edges,
its first corner and what lies behind its faces, all as whole numbers of the floats' width.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Int32

from ..base import Flag, Index, Scalar, Vector
from ..isolation import isolate
from ..subset import LARGE_BATCH, apply_to_subset
from ..weights import take
from .bins import Bins, Simplices
from .shapes import sum_products

GATHERING = ("cpu",)
"""Where a large batch is searched by one look at all and a walk for the few that have moved on."""
Reals = Float[Array, "*n"]
"""One number for a point, or one for each point of a block."""


class Found(NamedTuple):
    """The simplex around a point, or the last one of the walk towards it."""

    simplex: Index
    inside: Flag
    weights: tuple[Scalar, ...]
    """Barycentric coordinates; outside, those of a near point."""


class SimplexSearch(eqx.Module):
    """The simplices of a mesh, ready to be searched. A link is the simplex behind a face, or -1 - patch at a wall."""

    rows: Int[Array, "simplices width"]
    clear: Float[Array, " simplices"]
    """How far behind its walls a simplex can be extended without meeting another, in its own height."""
    bin_origin: Vector
    bin_scale: Vector
    bin_first: Int32[Array, " bins1"]
    bin_members: Int32[Array, " entries"]
    bin_start: Int32[Array, " bins"]
    box: Float[Array, "2 dim"]
    bin_shape: tuple[int, ...] = eqx.field(static=True)
    max_walk: int = eqx.field(static=True)

    def __init__(
        self,
        simplices: Simplices,
        links: Int[np.ndarray, "simplices dim1"],
        clear: Float[np.ndarray, " simplices"],
        bins: Bins,
        dtype: np.dtype,
        max_walk: int,
    ) -> None:
        self.rows = jnp.asarray(_rows(simplices, links, dtype))
        self.clear = jnp.asarray(clear, dtype)
        self.bin_origin = jnp.asarray(bins.origin, dtype)
        self.bin_scale = jnp.asarray(1 / bins.width, dtype)
        self.bin_first = jnp.asarray(bins.first, jnp.int32)
        self.bin_members = jnp.asarray(bins.members, jnp.int32)
        self.bin_start = jnp.asarray(bins.start, jnp.int32)
        corners = simplices.corners
        self.box = jnp.asarray(np.stack([corners.min((0, 1)), corners.max((0, 1))]), dtype)
        self.bin_shape, self.max_walk = bins.shape, max_walk

    @property
    def dim(self) -> int:
        return self.box.shape[1]

    @property
    def links(self) -> Int32[Array, "simplices dim1"]:
        """What lies behind each face of each simplex."""
        first = self.dim**2 + self.dim
        return self.rows[:, first : first + self.dim + 1].astype(jnp.int32)

    @property
    def frame(self) -> Float[Array, " numbers"]:
        """The box's lowest and highest corner, then origin and scale of the bins: what kernels read."""
        return jnp.concatenate([self.box.reshape(-1), self.bin_origin, self.bin_scale])

    @property
    def always(self) -> Flag:
        """True, as a value the compiler cannot foresee; see `isolate`."""
        return self.box[0, 0] > -jnp.inf

    def start(self, x: Vector) -> Index:
        """The simplex at the middle of the bin around the point."""
        return take(self.bin_start, self.bin(x))

    def find(self, x: Vector, hint: Int[Array, ""]) -> Found:
        """The simplex around a point, looked for from the simplex `hint`, and the point's weights in it."""
        own = x.astype(self.box.dtype)
        packed = _search(*lax.stop_gradient((self, own)), hint)
        simplex, inside = _decode(packed[0])
        rest = [lax.bitcast_convert_type(bits, own.dtype) for bits in packed[1:]]
        weights = _differentiable(self, simplex, inside, own, (1 - sum(rest[1:], rest[0]), *rest))
        return Found(simplex, inside, tuple(weight.astype(x.dtype) for weight in weights))

    def locate(self, x: Vector, hint: Int[Array, ""]) -> tuple[Index, Flag]:
        """The simplex around a point and True, or the last simplex of the walk towards it and False."""
        return _decode(_locate(*lax.stop_gradient((self, x.astype(self.box.dtype))), hint))

    def corners(self) -> Float[np.ndarray, "simplices dim1 dim"]:
        """The corners of all simplices, on the host."""
        d = self.dim
        numbers = np.asarray(self.rows[:, : d * d + d]).view(np.asarray(self.box).dtype).astype(np.float64)
        first = numbers[:, d * d :]
        edges = np.swapaxes(np.linalg.inv(numbers[:, : d * d].reshape(-1, d, d)), 1, 2)
        return np.concatenate([first[:, None], first[:, None] + edges], 1)

    def bin(self, x: Vector) -> Index:
        """The number of the bin around a point."""
        top = jnp.asarray(self.bin_shape, x.dtype) - 1
        place = jnp.clip((x - self.bin_origin) * self.bin_scale, 0, top).astype(jnp.int32)
        number = jnp.zeros((), jnp.int32)
        for axis, count in enumerate(self.bin_shape):
            number = number * count + place[axis]
        return jnp.clip(number, 0, self.bin_start.shape[0] - 1)  # NaN positions too end in a bin

    def reaches(self, x: Vector) -> Flag:
        """Whether the box around the mesh holds the point."""
        low, high = self.box
        slack = 8 * jnp.finfo(low.dtype).eps * jnp.max(jnp.abs(self.box))
        within = [(x[k] >= low[k] - slack) & (x[k] <= high[k] + slack) for k in range(self.dim)]
        return functools.reduce(jnp.logical_and, within)

    def row(self, simplex: Int[Array, ""]) -> tuple[list[list[Scalar]], list[Scalar], list[Int[Array, ""]]]:
        """The inverse of a simplex's edges, its first corner, and its links."""
        d = self.dim
        row = take(self.rows, simplex)
        # One by one: XLA would copy a converted part of the row for every particle.
        numbers = [lax.bitcast_convert_type(row[k], self.box.dtype) for k in range(d * d + d)]
        inverse = [numbers[d * i : d * i + d] for i in range(d)]
        return inverse, numbers[d * d :], [row[d * d + d + k] for k in range(d + 1)]

    def coordinates(
        self, simplex: Int[Array, ""], x: Vector
    ) -> tuple[list[Scalar], Scalar, list[Int[Array, ""]]]:
        """Barycentric coordinates, what rounding may change in them, and the links behind the faces opposite."""
        inverse, corner, links = self.row(simplex)
        offset = [x[k] - at for k, at in enumerate(corner)]
        rest = [sum_products(row, offset) for row in inverse]
        return [1 - sum(rest[1:], rest[0]), *rest], rounding(inverse, corner), links


def rounding(inverse: list[list[Reals]], corner: list[Reals]) -> Reals:
    """What the rounding of positions as large as a simplex's corner may change in its barycentric coordinates."""
    steep = [sum(map(jnp.abs, column[1:]), jnp.abs(column[0])) for column in zip(*inverse, strict=True)]
    return 2 * jnp.finfo(corner[0].dtype).eps * (2 + sum_products(steep, list(map(jnp.abs, corner))))


# What a search knows of a point, in one array so that XLA computes it in one loop: the simplex, and the bits of all
# weights but the first. Instead of the simplex s, -1 - s says that the point is not in it and no link leads on.
_Pack = Int[Array, " dim1"]


def _decode(code: Int[Array, "*n"]) -> tuple[Int32[Array, "*n"], Bool[Array, "*n"]]:
    return jnp.where(code < 0, -1 - code, code).astype(jnp.int32), code >= 0


def exit_of(
    weights: list[Reals], links: list[Int[Array, "*n"]], here: Int[Array, "*n"]
) -> tuple[Reals, Int[Array, "*n"]]:
    """The lowest of the weights whose face has a link, and that link."""
    behind, onward = jnp.full_like(weights[0], jnp.inf), here
    for weight, link in zip(weights, links, strict=True):
        leave = (link >= 0) & (weight < behind)
        behind, onward = jnp.where(leave, weight, behind), jnp.where(leave, link, onward)
    return behind, onward


def lowest(weights: list[Reals]) -> Reals:
    """The lowest of the weights."""
    return functools.reduce(jnp.minimum, weights)


def _glance(search: SimplexSearch, x: Vector, simplex: Index) -> _Pack:
    """The simplex itself if it holds the point, the next one on the way to it, or -1 - simplex at a wall."""
    weights, tolerance, links = search.coordinates(simplex, x)
    here = simplex.astype(search.rows.dtype)
    behind, onward = exit_of(weights, links, here)
    stays = jnp.where(lowest(weights) >= -tolerance, here, -1 - here)
    return _pack(jnp.where(behind < -tolerance, onward, stays), weights)


def _pack(code: Int[Array, ""], weights: list[Scalar]) -> _Pack:
    return jnp.stack([code, *(lax.bitcast_convert_type(w, code.dtype) for w in weights[1:])])


def near(weights: list[Reals]) -> list[Reals]:
    """Weights of a point outside a simplex, made those of a near point."""
    held = [jnp.clip(weight, 0, 1) for weight in weights]
    total = jnp.maximum(sum(held[1:], held[0]), 1e-6)
    return [weight / total for weight in held]


def _walk(search: SimplexSearch, x: Vector, begin: Index) -> Index:
    """The simplex around the point, or -1 - the last one; each is left through the face the point lies furthest behind."""

    # The simplex, or -1 - (2 × simplex + found) at the end: one number, so that XLA computes it once.
    def on(walk: tuple[Index, Index]) -> tuple[Index, Index]:
        state, steps = walk
        here = jnp.maximum(state, 0)  # those who have arrived read the first row: it is in the cache
        onward = _glance(search, x, here)[0].astype(jnp.int32)
        moves = (onward >= 0) & (onward != here) & (steps < search.max_walk)
        return jnp.where(moves, onward, -1 - (2 * here + (onward == here))), steps + 1

    walk = (begin, jnp.int32(0))
    if jax.default_backend() != "cpu":
        walk = on(on(walk))  # enough for most, and no loop whose end the host waits for
    ended = -1 - lax.while_loop(lambda walk: walk[0] >= 0, on, walk)[0]
    return jnp.where(ended % 2 == 1, ended // 2, -1 - ended // 2)


def _look_up(search: SimplexSearch, x: Vector, code: Index) -> Index:
    """After a walk that did not arrive: the member of the bin that holds the point, else the code as it was.

    Where the space behind the walls of the last simplex is known to be clear and the point lies there, it is outside.
    """
    done = jnp.int32(-2)  # slots count from -1, which stands for the last simplex itself

    def look(state: Int32[Array, " 2"]) -> Int32[Array, " 2"]:
        code, slot = state[0], state[1]
        number = search.bin(x)
        place, end = take(search.bin_first, number) + slot, take(search.bin_first, number + 1)
        member = take(search.bin_members, jnp.clip(place, 0, search.bin_members.shape[0] - 1))
        here = jnp.where(slot < 0, _decode(code)[0], member)
        weights, tolerance, links = search.coordinates(here, x)
        least = lowest(weights)
        shut = exit_of(weights, links, here)[0] >= -tolerance
        outside = (slot < 0) & shut & (least >= -take(search.clear, here))
        found = (slot >= 0) & (place < end) & (least >= -tolerance)
        more = ~(found | outside) & (place + 1 < end)
        return jnp.stack([jnp.where(found, here, code), jnp.where(more, slot + 1, done)])

    begin = jnp.stack([code, jnp.where((code < 0) & search.reaches(x), -1, done)])
    return lax.while_loop(lambda state: state[1] != done, look, begin)[0]


def _locate(search: SimplexSearch, x: Vector, hint: Int[Array, ""]) -> Index:
    begin = jnp.clip(hint, 0, search.rows.shape[0] - 1).astype(jnp.int32)
    return _look_up(search, x, _walk(search, x, begin))


def _search_one(search: SimplexSearch, x: Vector, hint: Int[Array, ""]) -> _Pack:
    code = _locate(search, x, hint)
    simplex, inside = _decode(code)
    weights = search.coordinates(simplex, x)[0]
    weights = [jnp.where(inside, w, n) for w, n in zip(weights, near(weights), strict=True)]
    return _pack(code.astype(search.rows.dtype), weights)


def _search_many(
    search: SimplexSearch, x: Float[Array, "n dim"], hint: Int[Array, " n"]
) -> Int[Array, "n dim1"]:
    """One look at all; a second one where many have moved on; then the walk for the few that are still on the way."""
    always, count = search.always, x.shape[0]
    begin = jnp.clip(hint, 0, search.rows.shape[0] - 1).astype(jnp.int32)
    glance = jax.vmap(functools.partial(_glance, search))

    def again(found: Int[Array, "n dim1"], _: Bool[Array, " n"]) -> tuple[Array, Array]:
        here = _decode(found[:, 0])[0]
        then = isolate(always, glance, x, here)
        return then, then[:, 0] != here

    found = isolate(always, glance, x, begin)
    moving = found[:, 0] != begin
    found, moving = lax.cond(jnp.sum(moving) > count // 6, again, lambda *same: same, found, moving)
    here = _decode(found[:, 0])[0]
    return apply_to_subset(functools.partial(_search_one, search), moving, (x, here), found, always)


_search = jax.custom_batching.custom_vmap(_search_one)


@_search.def_vmap
def _search_batch(
    size: int, batched: Any, search: SimplexSearch, x: Array, hint: Array
) -> tuple[Array, bool]:
    """Many points on one mesh at once; any other batch as `vmap` does it."""
    if size < LARGE_BATCH or any(jax.tree.leaves(batched[0])) or jax.default_backend() not in GATHERING:
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        return jax.vmap(_search_one, in_axes=axes, axis_size=size)(search, x, hint), True
    points = x if batched[1] else jnp.broadcast_to(x, (size, *x.shape))
    hints = hint if batched[2] else jnp.broadcast_to(hint, (size, *hint.shape))
    return _search_many(search, points, hints), True


@jax.custom_jvp
def _differentiable(
    search: SimplexSearch, simplex: Index, inside: Flag, x: Vector, weights: tuple[Scalar, ...]
) -> tuple[Scalar, ...]:
    """The weights the search has found; their derivative by `x` reads the simplex's row once more."""
    return weights


@_differentiable.defjvp
def _slope(primals: Any, tangents: Any) -> Any:
    search, simplex, inside, x, weights = primals

    def read(x: Vector) -> tuple[Scalar, ...]:
        raw = search.coordinates(simplex, x)[0]
        return tuple(jnp.where(inside, w, n) for w, n in zip(raw, near(raw), strict=True))

    return weights, jax.jvp(read, (x,), (tangents[3],))[1]


def _rows(
    simplices: Simplices, links: Int[np.ndarray, "simplices dim1"], dtype: np.dtype
) -> Int[np.ndarray, "simplices width"]:
    """For each simplex its inverse, its first corner and its links, padded to a multiple of four numbers."""
    count = len(simplices.corners)
    floats = np.c_[simplices.inverse.reshape(count, -1), simplices.corners[:, 0]].astype(dtype)
    whole = np.dtype(f"i{dtype.itemsize}")
    rows = np.c_[floats.view(whole), links.astype(whole)]
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))

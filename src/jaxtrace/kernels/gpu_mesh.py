"""Samples of packed simplices inside the kernel of `fused`: the walk and the search of a bin run for a block at a time.

XLA runs a walk as a loop over all particles whose end the host waits for, with every step through memory. Here a block
of particles walks until its slowest has arrived. The rules are those of `jaxtrace.fields.meshes.search`, its twin.
"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ..fields.grid_series import AbstractSeries
from ..fields.meshes.search import exit_of, lowest, near, rounding
from ..fields.meshes.shapes import sum_products
from ..fields.moments import columns
from ..fields.unstructured import UnstructuredGrid
from .base import Block


class _Tables(NamedTuple):
    rows: Any
    clear: Any
    box: Any
    """Lowest and highest corner, then origin and scale of the bins."""
    first: Any
    members: Any


class _State(NamedTuple):
    """How far the search of each particle of a block has got: its walk, or the look at its bin where that did not arrive."""

    simplex: Array
    going: Array
    """1 while on the way."""
    found: Array
    """1 in the simplex around the point."""
    weights: tuple[Array, ...]
    turn: Array
    """Steps of the walk, or the slot of the bin; slot -1 is the last simplex itself."""


@dataclasses.dataclass(frozen=True)
class MeshSampler:
    """What is constant of a mesh of simplices."""

    rolled: ClassVar[bool] = True
    """Whether the kernel runs its four samples as a loop."""
    dim: int
    width: int
    """Numbers in a row of the search's table."""
    bin_shape: tuple[int, ...]
    simplices: int
    members: int
    max_walk: int

    @classmethod
    def of(cls, field: AbstractSeries) -> "MeshSampler | None":
        """The sampler of a field, or None where it does not lie in cells that this kernel knows."""
        grid = field.grid
        if not isinstance(grid, UnstructuredGrid):
            return None
        search, dim = grid.search, grid.dim
        count, width = search.rows.shape
        if (
            grid.owner is not None
            or not grid.packable
            or search.rows.dtype != jnp.int32
            or count * max(width, 3 * columns(dim) * (dim + 1)) >= 2**31
        ):
            return None
        return cls(dim, width, search.bin_shape, count, search.bin_members.shape[0], search.max_walk)

    def tables(self, field: AbstractSeries) -> list[Array]:
        """What the kernel reads of the mesh."""
        assert isinstance(field.grid, UnstructuredGrid)
        search = field.grid.search
        return [search.rows.reshape(-1), search.clear, search.frame, search.bin_first, search.bin_members]

    def sample(
        self, block: Block, tables: list[Any], values: Any, base: Any, x: list[Array], hint: list[Array]
    ) -> tuple[list[Array], Array, list[Array]]:
        """Velocities at `x`, whether the mesh holds the points, and their simplices."""
        mesh = _Tables(*tables)
        walk = self._walk(block, mesh, x, hint[0])
        found = self._look_up(block, mesh, x, walk)
        held = found.found == 1
        weights = [1 - sum(found.weights[1:], found.weights[0]), *found.weights]
        weights = [jnp.where(held, w, c) for w, c in zip(weights, near(weights), strict=True)]
        stride = columns(self.dim)
        first = base + found.simplex * (stride * (self.dim + 1))
        velocity = []
        for axis in range(self.dim):
            parts = [
                weight * block.load(values.at[first + (corner * stride + axis)]).astype(weight.dtype)
                for corner, weight in enumerate(weights)
            ]
            velocity.append(sum(parts[1:], parts[0]))
        return velocity, held & block.here, [found.simplex]

    def _row(self, block: Block, mesh: _Tables, simplex: Array, wanted: Array) -> list[Array]:
        base = simplex * self.width
        numbers = self.dim**2 + self.dim
        found = []
        for k in range(numbers + self.dim + 1):
            bits = block.load(mesh.rows.at[base + k], mask=wanted, other=0)
            found.append(lax.bitcast_convert_type(bits, jnp.float32) if k < numbers else bits)
        return found

    def _coordinates(
        self, block: Block, mesh: _Tables, x: list[Array], simplex: Array, wanted: Array
    ) -> tuple[list[Array], Array, list[Array]]:
        """Barycentric coordinates, what rounding may change in them, and the links behind the faces opposite."""
        d, row = self.dim, self._row(block, mesh, simplex, wanted)
        inverse, corner, links = (
            [row[d * i : d * i + d] for i in range(d)],
            row[d * d : d * d + d],
            row[d * d + d :],
        )
        offset = [at - first for at, first in zip(x, corner, strict=True)]
        rest = [sum_products(one, offset) for one in inverse]
        return [1 - sum(rest[1:], rest[0]), *rest], rounding(inverse, corner), links

    def _walk(self, block: Block, mesh: _Tables, x: list[Array], hint: Array) -> _State:
        def on(walk: _State) -> _State:
            going = walk.going == 1
            weights, tolerance, links = self._coordinates(block, mesh, x, walk.simplex, going)
            behind, onward = exit_of(weights, links, walk.simplex)
            leaves = going & (behind < -tolerance)
            moves = leaves & (walk.turn < self.max_walk)
            arrived = going & ~leaves & (lowest(weights) >= -tolerance)
            kept = [jnp.where(going, new, old) for new, old in zip(weights[1:], walk.weights, strict=True)]
            return _State(
                jnp.where(moves, onward, walk.simplex),
                moves.astype(jnp.int32),
                jnp.where(arrived, 1, walk.found),
                tuple(kept),
                walk.turn + 1,
            )

        zero = jnp.zeros_like(block.lanes)
        begin = _State(
            jnp.clip(hint, 0, self.simplices - 1),
            block.here.astype(jnp.int32),
            zero,
            tuple(jnp.zeros_like(x[0]) for _ in range(self.dim)),
            jnp.int32(0),
        )
        return lax.while_loop(lambda walk: jnp.max(walk.going) > 0, on, begin)

    def _look_up(self, block: Block, mesh: _Tables, x: list[Array], walk: _State) -> _State:
        d = self.dim
        low, high = [mesh.box[k] for k in range(d)], [mesh.box[d + k] for k in range(d)]
        largest = functools.reduce(jnp.maximum, [jnp.abs(edge) for edge in (*low, *high)])
        slack = 8 * jnp.finfo(jnp.float32).eps * largest
        needy = block.here & (walk.found == 0)
        for at, bottom, top in zip(x, low, high, strict=True):
            needy = needy & (at >= bottom - slack) & (at <= top + slack)
        number = jnp.zeros_like(block.lanes)
        for axis, count in enumerate(self.bin_shape):
            place = (x[axis] - mesh.box[2 * d + axis]) * mesh.box[3 * d + axis]
            inner = jnp.clip(jnp.clip(place, 0, count - 1).astype(jnp.int32), 0, count - 1)
            number = number * count + inner
        first = block.load(mesh.first.at[number], mask=needy, other=0)
        end = block.load(mesh.first.at[number + 1], mask=needy, other=0)

        def look(state: _State) -> _State:
            wanted = state.going == 1
            place = jnp.clip(first + state.turn, 0, self.members - 1)
            member = block.load(mesh.members.at[place], mask=wanted, other=0)
            here = jnp.where(state.turn < 0, state.simplex, member)
            weights, tolerance, links = self._coordinates(block, mesh, x, here, wanted)
            least = lowest(weights)
            shut = exit_of(weights, links, here)[0] >= -tolerance
            clear = block.load(mesh.clear.at[here], mask=wanted, other=0.0)
            outside = (state.turn < 0) & shut & (least >= -clear)
            found = wanted & (state.turn >= 0) & (first + state.turn < end) & (least >= -tolerance)
            more = wanted & ~(found | outside) & (first + state.turn + 1 < end)
            kept = [jnp.where(found, new, old) for new, old in zip(weights[1:], state.weights, strict=True)]
            return _State(
                jnp.where(found, here, state.simplex),
                more.astype(jnp.int32),
                jnp.where(found, 1, state.found),
                tuple(kept),
                state.turn + 1,
            )

        begin = _State(walk.simplex, needy.astype(jnp.int32), walk.found, walk.weights, jnp.int32(-1))
        return lax.while_loop(lambda state: jnp.max(state.going) > 0, look, begin)

"""The work on grids of any size: one environment after the other, one lane for each row."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..envs.operations import Operation
from ..tasks.planes import PLANES
from .operations import (
    NOTHING,
    OFF_GRID,
    Memory,
    Sizes,
    Space,
    active_cells,
    carry_out,
    low_bits,
    read_selection,
    spread,
)
from .warp import LANES, Counts, Orders, Warp, packed_result


class RowGrids(NamedTuple):
    """A warp and the memory that it works on."""

    memory: Memory
    warp: Warp
    sizes: Sizes

    def work(self, orders: Orders) -> tuple[Counts, tuple[()]]:
        """Carry out all orders; the results are `packed_result`."""
        memory, sizes, lane = self.memory, self.sizes, self.warp.lane
        codes = jnp.where(orders.operation < 0, NOTHING, orders.operation)
        if orders.sides:
            top, left, *_ = orders.sides
            misses = (top >= orders.height) | (left >= orders.width)
            codes = jnp.where(misses & (codes <= Operation.CLEAR), OFF_GRID, codes)
        for shift, side in zip((6, 11, 16, 21), orders.sides, strict=False):
            codes = codes | ((side & 31) << shift)
        both = (orders.height - 1) | ((orders.width - 1) << 5)
        both = both | (orders.target_high << 10) | (orders.target_wide << 16)

        def grids_of(number: Any) -> tuple[Any, Any]:
            there = (lane < sizes.rows) & (number < orders.many)
            held = there & (lane < sizes.bank_rows)
            grid = memory.rows_of(memory.planes, orders.start + number, sizes.rows, lane, there)
            place = self.turn(orders.place, number)
            return grid, memory.rows_of(memory.outputs, place, sizes.bank_rows, lane, held)

        def one(number: Any, carried: Any) -> Any:
            results, grids = carried
            ahead = grids_of(number + 1)  # read while these are worked on
            code, place, packed = (self.turn(words, number) for words in (codes, orders.place, both))
            height, width = (packed & 31) + 1, ((packed >> 5) & 31) + 1
            selected = read_selection(orders.start + number, code, self.warp, memory, sizes)
            operation = code & 63
            if not orders.sides:
                picked = selected & active_cells(height, width, self.warp)
                misses = (self.warp.any_bits(selected) != 0) & (self.warp.any_bits(picked) == 0)
                operation = jnp.where(misses & (operation <= Operation.CLEAR), OFF_GRID, operation)
            space = Space(
                *(orders.start + number, place, jnp.max(operation), selected, self.warp, memory, sizes),
                planes=grids[0],
                height=height,
                width=width,
            )
            result = _environment(space, (packed >> 10) & 63, (packed >> 16) & 63, grids[1])
            return jnp.where(lane == number, result, results), ahead

        none = jnp.zeros((LANES,), jnp.int32)
        return jax.lax.fori_loop(0, orders.many, one, (none, grids_of(jnp.int32(0))))[0], ()

    def begin(
        self, orders: Orders, ends: Array, place: Counts, common: tuple[Counts, Counts]
    ) -> tuple[Counts, tuple[()]]:
        """Put the inputs of the pairs at `place` where an episode `ends`; how many cells agree with the targets."""

        def one(number: Any, carried: Counts) -> Counts:
            begins = jnp.max(self.turn(ends.astype(jnp.int32), number)) == 1
            where, high, wide = (self.turn(part, number) for part in (place, *common))
            put = lambda: self._put(orders.start + number, where, high, wide)  # noqa: E731
            found = jax.lax.cond(begins, put, lambda: carried)
            return jnp.where(self.warp.lane == number, found, carried)

        return jax.lax.fori_loop(0, orders.many, one, jnp.zeros((LANES,), jnp.int32)), ()

    def nothing(self) -> tuple[()]:
        """What `begin` gives where nothing begins: it writes at once."""
        return ()

    def finish(self, orders: Orders, held: tuple[()], ends: Array, begun: tuple[()]) -> None:
        """Nothing is left to write."""

    def turn(self, values: Counts, number: Any) -> Counts:
        """What one lane holds, for all of them."""
        return self.warp.shuffle(values.astype(jnp.uint32), spread(number)).astype(jnp.int32)

    def _put(self, at: Any, place: Counts, high: Counts, wide: Counts) -> Counts:
        memory, row, rows = self.memory, self.warp.lane, self.sizes.rows
        there = row < rows
        held = there & (row < self.sizes.bank_rows)
        source = memory.rows_of(memory.inputs, place, self.sizes.bank_rows, row, held)
        target = memory.rows_of(memory.outputs, place, self.sizes.bank_rows, row, held)
        empty = jnp.zeros((LANES,), jnp.uint32)
        for level, words in enumerate(source):
            where = at * (PLANES * rows) + level * rows + row
            memory.store(memory.new_planes.at[where], words, mask=there)
            memory.store(memory.new_clipboard.at[where], empty, mask=there)
        memory.store(memory.new_clipboard_mask.at[at * rows + row], empty, mask=there)
        return _agreement(source, target, high, wide, self.warp)


def _environment(space: Space, target_high: Counts, target_wide: Counts, target: Any) -> Counts:
    """Carry out the operation of one environment, compare its grid with the target and write what changed."""
    row, rows, memory = space.row, space.sizes.rows, space.memory
    after = carry_out(space)
    high, wide = jnp.minimum(after.height, target_high), jnp.minimum(after.width, target_wide)
    agree = _agreement(after.planes, target, high, wide, space.warp)
    changed = jnp.zeros((LANES,), jnp.uint32)
    for mine, was in zip(after.planes, space.planes, strict=True):
        changed = changed | (mine ^ was)
    for level, words in enumerate(after.planes):
        where = memory.new_planes.at[space.at * (PLANES * rows) + level * rows + row]
        memory.store(where, words, mask=(row < rows) & (changed != 0))
    valid = jnp.where(spread(space.operation) == OFF_GRID, 0, after.valid)
    return packed_result(agree, valid, after.height, after.width)


def _agreement(mine: Any, theirs: Any, high: Counts, wide: Counts, warp: Warp) -> Counts:
    """Cells of the common `high` × `wide` part in which two grids agree."""
    same = jnp.where((warp.lane < high) & (wide > 0), low_bits(jnp.maximum(wide, 1)), jnp.uint32(0))
    for one, other in zip(mine, theirs, strict=True):
        same = same & ~(one ^ other)
    return warp.total(warp.count(same))

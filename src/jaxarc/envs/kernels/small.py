"""Operations on small square canvases for kernels: one lane works on one environment, and a plane is one word.

The cells of a canvas of up to 5×5 fit 32 bits, row after row. There are no branches: every lane does the work of all
operations and keeps what its own asks for.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...tasks.planes import PLANES
from .. import operations as ops
from .operations import Memory, Sizes
from .orders import Orders, packed_result
from .warp import LANES, Counts, Warp, Words


def is_small(rows: int, columns: int) -> bool:
    """Whether a plane of the canvas fits one word, turned or not."""
    return rows == columns and rows * columns <= 32


class Square(NamedTuple):
    """What is known of a square canvas when the kernel is built."""

    side: int

    @property
    def every(self) -> int:
        """All cells."""
        return (1 << self.side**2) - 1

    @property
    def first_column(self) -> int:
        """The cells of column 0."""
        return sum(1 << (self.side * row) for row in range(self.side))

    def columns(self, count: Array) -> Words:
        """The cells of the first `count` columns."""
        return low(count) * jnp.uint32(self.first_column)

    def rows(self, count: Array) -> Words:
        """The cells of the first `count` rows."""
        return low(count * self.side)

    def row(self, words: Words, number: int) -> Words:
        """One row of each environment, as the state holds it."""
        return (words >> (self.side * number)) & jnp.uint32((1 << self.side) - 1)

    def joined(self, rows: list[Words]) -> Words:
        """Rows as one word."""
        word = rows[0]
        for number, one in enumerate(rows[1:], 1):
            word = word | (one << (self.side * number))
        return word

    def toppled(self, words: Words) -> Words:
        """Upside down."""
        return self.joined([self.row(words, self.side - 1 - number) for number in range(self.side)])

    def mirrored(self, words: Words) -> Words:
        """Left and right exchanged."""
        result = jnp.zeros_like(words)
        for number in range(self.side):
            column = (words >> number) & jnp.uint32(self.first_column)
            result = result | (column << (self.side - 1 - number))
        return result

    def transposed(self, words: Words) -> Words:
        """Rows and columns exchanged: every diagonal moves as a whole."""
        side, result = self.side, jnp.zeros_like(words)
        for off in range(1 - side, side):
            cells = sum(1 << (side * r + r + off) for r in range(side) if 0 <= r + off < side)
            by = off * (side - 1)
            part = words & jnp.uint32(cells)
            result = result | (part << by if by >= 0 else part >> -by)
        return result

    def placed(self, words: Words, top: Array, left: Array) -> Words:
        """A patch from the corner, put down at (`top`, `left`); what lies beyond the canvas is gone."""
        kept = words & self.columns(self.side - left)
        return (kept << word(self.side * top + left)) & jnp.uint32(self.every)


def word(number: Array) -> Words:
    """A number as an amount to shift by."""
    return number.astype(jnp.uint32)


def low(count: Array) -> Words:
    """Words with the `count` lowest bits set, from 0 to 31."""
    return (jnp.full((LANES,), 1, jnp.uint32) << word(count)) - jnp.uint32(1)


class SmallGrids(NamedTuple):
    """A warp and the memory that it works on, one environment in each lane."""

    memory: Memory
    warp: Warp
    sizes: Sizes

    @property
    def square(self) -> Square:
        """The canvas."""
        return Square(self.sizes.rows)

    def work(self, orders: Orders) -> Counts:
        """Carry out all orders; the results are `packed_result`."""
        square, memory, at = self.square, self.memory, orders.start + self.warp.lane
        before, after, high, wide, valid = _worked(self, orders, at)
        target = read_grids(
            memory.load, memory.outputs, orders.place, self.sizes.bank_rows, square, orders.here
        )
        common = jnp.minimum(high, orders.target_high), jnp.minimum(wide, orders.target_wide)
        agree = self._agreement(after, target, common)
        changed = jnp.zeros((LANES,), jnp.uint32)
        for mine, was in zip(after, before, strict=True):
            changed = changed | (mine ^ was)
        for level, words in enumerate(after):
            base = at * (PLANES * square.side) + level * square.side
            for row in range(square.side):
                mask = orders.here & (square.row(changed, row) != 0)
                memory.store(memory.new_planes.at[base + row], square.row(words, row), mask=mask)
        return packed_result(agree, valid.astype(jnp.int32), high, wide)

    def begin(self, orders: Orders, ends: Array, place: Counts, common: tuple[Counts, Counts]) -> Counts:
        """Put the inputs of the pairs at `place` where an episode `ends`; how many cells agree with the targets."""
        square, memory, at = self.square, self.memory, orders.start + self.warp.lane
        source, target = (
            read_grids(memory.load, table, place, self.sizes.bank_rows, square, ends)
            for table in (memory.inputs, memory.outputs)
        )
        empty = jnp.zeros((LANES,), jnp.uint32)
        for level, words in enumerate(source):
            base = at * (PLANES * square.side) + level * square.side
            write_rows(memory.store, memory.new_planes, base, words, square, ends)
            write_rows(memory.store, memory.new_clipboard, base, empty, square, ends)
        write_rows(memory.store, memory.new_clipboard_mask, at * square.side, empty, square, ends)
        return self._agreement(source, target, common)

    def _agreement(self, mine: list[Words], theirs: list[Words], common: tuple[Counts, Counts]) -> Counts:
        square = self.square
        high, wide = (jnp.minimum(part, square.side) for part in common)
        same = square.rows(high) & square.columns(wide)
        for one, other in zip(mine, theirs, strict=True):
            same = same & ~(one ^ other)
        return self.warp.count(same)


def read_grids(load: Any, array: Any, at: Array, rows: int, square: Square, mask: Array) -> list[Words]:
    """The four planes of a grid in each lane; rows that the array does not have are empty."""
    planes = []
    for level in range(PLANES):
        base = at * (PLANES * rows) + level * rows
        planes.append(square.joined(_rows(load, array, base, rows, square, mask)))
    return planes


def _rows(load: Any, array: Any, base: Array, rows: int, square: Square, mask: Array) -> list[Words]:
    return [
        load(array.at[base + row], mask=mask, other=jnp.uint32(0)) & jnp.uint32((1 << square.side) - 1)
        if row < rows
        else jnp.zeros((LANES,), jnp.uint32)
        for row in range(square.side)
    ]


def write_rows(store: Any, array: Any, base: Array, words: Words, square: Square, mask: Array) -> None:
    """One plane of each environment, row after row."""
    for row in range(square.side):
        store(array.at[base + row], square.row(words, row), mask=mask)


def _worked(grids: SmallGrids, orders: Orders, at: Counts) -> tuple[Any, ...]:
    """Planes before and after the operations, height, width, and whether they were valid."""
    memory, square, warp = grids.memory, grids.square, grids.warp
    load, side, code = memory.load, square.side, orders.operation
    grid = read_grids(load, memory.planes, at, side, square, orders.here)
    inside = square.rows(orders.height) & square.columns(orders.width)
    selected = _selected(orders, at, memory, square)
    resizes = code == ops.RESIZE
    moves = (code >= ops.MOVE_UP) & (code <= ops.MOVE_RIGHT)
    turns = (code >= ops.ROTATE_CLOCKWISE) & (code <= ops.FLIP_UP_DOWN)
    copies, pastes = (code == ops.COPY) | (code == ops.CUT), code == ops.PASTE
    clears, floods = code == ops.CLEAR, (code >= ops.FLOOD) & (code < ops.MOVE_UP)

    picked = jnp.where(resizes, selected, selected & inside)
    empty = picked == 0
    cells = jnp.where(empty & (moves | turns | clears), inside, picked)
    top, left, bottom, right = _box(cells, square)
    single = warp.count(picked) == 1
    valid = ~((floods & ~single) | (empty & (copies | resizes)))

    paints = (code >= ops.FILL) & (code < ops.FLOOD)
    floods = floods & single
    region = jnp.where(
        paints, cells, _component(jnp.where(floods, picked, jnp.uint32(0)), grid, inside, square)
    )
    colour = jnp.where(code >= ops.FLOOD, code - ops.FLOOD, code)

    corner = word(side * top + left)
    patch = [(words & cells) >> corner for words in grid] + [cells >> corner]
    held = [_clipboard(at, memory, square, level, pastes & orders.here) for level in range(PLANES + 1)]
    lifts = moves | turns | clears | (code == ops.CUT)
    cleared = jnp.where(lifts, cells, jnp.uint32(0))
    lands = moves | turns | (pastes & ~empty)
    box = (top, left, bottom, right)
    moved = [
        _moved(code, jnp.where(pastes, clip, mine), box, square)
        for clip, mine in zip(held, patch, strict=True)
    ]
    landed = jnp.where(lands, moved[PLANES] & inside, jnp.uint32(0))
    gone = ~(cleared | landed | region)
    grows = resizes & valid
    high = jnp.where(grows, bottom + 1, orders.height)
    wide = jnp.where(grows, right + 1, orders.width)
    takes_input = (code == ops.COPY_INPUT) & orders.here
    source = read_grids(load, memory.inputs, orders.place, grids.sizes.bank_rows, square, takes_input)
    sizes = [
        load(memory.input_sizes.at[orders.place * 2 + axis], mask=takes_input, other=jnp.int32(1))
        for axis in (0, 1)
    ]
    high, wide = jnp.where(takes_input, sizes[0], high), jnp.where(takes_input, sizes[1], wide)
    active = square.rows(jnp.minimum(high, side)) & square.columns(jnp.minimum(wide, side))
    after = []
    for level, words in enumerate(grid):
        bits = word(0 - ((colour >> level) & 1))
        worked = (words & gone) | (moved[level] & landed) | (bits & region)
        after.append(jnp.where(takes_input, source[level], worked) & active)

    keeps = copies & valid & orders.here
    for level, words in enumerate(patch[:PLANES]):
        base = at * (PLANES * side) + level * side
        write_rows(memory.store, memory.new_clipboard, base, words, square, keeps)
    write_rows(memory.store, memory.new_clipboard_mask, at * side, patch[PLANES], square, keeps)
    return grid, after, high, wide, valid


def _selected(orders: Orders, at: Counts, memory: Memory, square: Square) -> Words:
    side = square.side
    if memory.selections is not None:
        rows = _rows(memory.load, memory.selections, at * side, side, square, orders.here)
        return square.joined([row & jnp.uint32((1 << side) - 1) for row in rows])
    top, left, bottom, right = ((part & 31) for part in orders.sides)
    # Coordinates off the canvas belong to operations that are not carried out.
    top, left, bottom, right = (jnp.minimum(part, side - 1) for part in (top, left, bottom, right))
    rows = square.rows(bottom + 1) & ~square.rows(top)
    return rows & square.columns(right + 1) & ~square.columns(left)


def _box(cells: Words, square: Square) -> tuple[Array, Array, Array, Array]:
    """Top, left, bottom and right of cells; zeros where there are none."""
    side = square.side
    zero = jnp.zeros((LANES,), jnp.int32)
    top, left, bottom, right = zero, zero, zero, zero
    for number in range(side):
        low_row, low_column = square.row(cells, side - 1 - number), cells >> (side - 1 - number)
        top = jnp.where(low_row != 0, side - 1 - number, top)
        left = jnp.where((low_column & jnp.uint32(square.first_column)) != 0, side - 1 - number, left)
        bottom = jnp.where(square.row(cells, number) != 0, number, bottom)
        right = jnp.where(((cells >> number) & jnp.uint32(square.first_column)) != 0, number, right)
    return top, left, bottom, right


def _component(seed: Words, grid: list[Words], inside: Words, square: Square) -> Words:
    """The cells of its colour that the seed reaches; nothing without a seed."""
    region = inside
    for words in grid:
        region = region & ~(words ^ word(0 - ((words & seed) != 0).astype(jnp.int32)))
    side = square.side
    not_first = jnp.uint32(square.every & ~square.first_column)
    not_last = jnp.uint32(square.every & ~(square.first_column << (side - 1)))

    def grow(state: tuple[Words, Any]) -> tuple[Words, Any]:
        filled, _ = state
        beside = ((filled << 1) & not_first) | ((filled >> 1) & not_last)
        wider = filled | ((beside | (filled << side) | (filled >> side)) & region)
        return wider, jnp.max((wider != filled).astype(jnp.int32))

    start = (seed, jnp.max((seed != 0).astype(jnp.int32)))
    return jax.lax.while_loop(lambda state: state[1] > 0, grow, start)[0]


def _clipboard(at: Counts, memory: Memory, square: Square, level: int, mask: Array) -> Words:
    side = square.side
    if level == PLANES:
        base = at * side
        return square.joined(_rows(memory.load, memory.clipboard_mask, base, side, square, mask))
    base = at * (PLANES * side) + level * side
    return square.joined(_rows(memory.load, memory.clipboard, base, side, square, mask))


def _moved(code: Counts, patch: Words, box: tuple[Counts, ...], square: Square) -> Words:
    """A patch from the corner, turned as the operation says, and put down where it lands."""
    top, left, bottom, right = box
    side = square.side
    rotates = (code == ops.ROTATE_CLOCKWISE) | (code == ops.ROTATE_COUNTER_CLOCKWISE)
    high, wide = bottom - top + 1, right - left + 1
    high, wide = jnp.where(rotates, wide, high), jnp.where(rotates, high, wide)
    turned = jnp.where(rotates, square.transposed(patch), patch)
    mirrors = (code == ops.FLIP_LEFT_RIGHT) | (code == ops.ROTATE_CLOCKWISE)
    topples = (code == ops.FLIP_UP_DOWN) | (code == ops.ROTATE_COUNTER_CLOCKWISE)
    turned = jnp.where(mirrors, square.mirrored(turned) >> word(side - wide), turned)
    turned = jnp.where(topples, square.toppled(turned) >> word(side * (side - high)), turned)
    put = square.placed(turned, top, left)
    up, down = put >> side, (put << side) & jnp.uint32(square.every)
    not_first = jnp.uint32(square.every & ~square.first_column)
    not_last = jnp.uint32(square.every & ~(square.first_column << (side - 1)))
    put = jnp.where(code == ops.MOVE_UP, up, jnp.where(code == ops.MOVE_DOWN, down, put))
    put = jnp.where(code == ops.MOVE_LEFT, (put >> 1) & not_last, put)
    return jnp.where(code == ops.MOVE_RIGHT, (put << 1) & not_first, put)

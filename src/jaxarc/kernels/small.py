"""Operations on small square canvases for kernels: one lane works on one environment, and a plane is one word.

The cells of a canvas of up to 5×5 fit 32 bits, row after row. There are no branches: every lane does the work of all
operations and keeps what its own asks for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from ..envs import operations as ops
from ..envs.operations import Operation
from ..tasks.planes import PLANES
from .operations import Memory, Sizes, spread
from .warp import LANES, Counts, Orders, Warp, Words, packed_result


def is_small(rows: int, columns: int) -> bool:
    """Whether a plane of the canvas fits one word, turned or not."""
    return rows == columns and rows * columns <= 32


class Square(NamedTuple):
    """The square canvas, known when the kernel is built."""

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

    def join(self, rows: list[Words]) -> Words:
        """Rows as one word."""
        word = rows[0]
        for number, one in enumerate(rows[1:], 1):
            word = word | (one << (self.side * number))
        return word

    def flip_up_down(self, words: Words) -> Words:
        """Upside down."""
        return self.join([self.row(words, self.side - 1 - number) for number in range(self.side)])

    def flip_left_right(self, words: Words) -> Words:
        """Left and right exchanged."""
        result = jnp.zeros_like(words)
        for number in range(self.side):
            column = (words >> number) & jnp.uint32(self.first_column)
            result = result | (column << (self.side - 1 - number))
        return result

    def transpose(self, words: Words) -> Words:
        """Rows and columns exchanged: every diagonal moves as a whole."""
        side, result = self.side, jnp.zeros_like(words)
        for off in range(1 - side, side):
            cells = sum(1 << (side * r + r + off) for r in range(side) if 0 <= r + off < side)
            by = off * (side - 1)
            part = words & jnp.uint32(cells)
            result = result | (part << by if by >= 0 else part >> -by)
        return result

    def put(self, words: Words, top: Array, left: Array) -> Words:
        """A patch from the corner, put down at (`top`, `left`); what lies beyond the canvas is gone."""
        kept = words & self.columns(self.side - left)
        return (kept << word(self.side * top + left)) & jnp.uint32(self.every)


def word(number: Array) -> Words:
    """A number as an amount to shift by."""
    return number.astype(jnp.uint32)


def low(count: Array) -> Words:
    """Words with the `count` lowest bits set, from 0 to 31."""
    return (jnp.full((LANES,), 1, jnp.uint32) << word(count)) - jnp.uint32(1)


class Held(NamedTuple):
    """The results of the operations, not yet written."""

    planes: list[Words]
    changed: list[Words]
    """For each plane, the cells that are to be written."""
    clipboard: list[Words]
    """Four planes and the mask."""
    copied: Array


class SmallGrids(NamedTuple):
    """A warp and the memory that it works on, one environment in each lane; its bank is made by `packed_table`."""

    memory: Memory
    warp: Warp
    sizes: Sizes

    @property
    def square(self) -> Square:
        """The canvas."""
        return Square(self.sizes.rows)

    def work(self, orders: Orders) -> tuple[Counts, Held]:
        """Carry out all orders; the results are `packed_result`."""
        at = orders.start + self.warp.lane
        held, high, wide, valid = _apply_operation(self, orders, at)
        common = jnp.minimum(high, orders.target_high), jnp.minimum(wide, orders.target_wide)
        agree = self._agreement(
            held.planes, self.from_bank(self.memory.outputs, orders.place, orders.here), common
        )
        return packed_result(agree, valid.astype(jnp.int32), high, wide), held

    def begin(
        self, orders: Orders, ends: Array, place: Counts, common: tuple[Counts, Counts]
    ) -> tuple[Counts, list[Words]]:
        """How many cells of the inputs of the pairs at `place` agree with the targets, and these inputs."""
        source, target = (self.from_bank(table, place, ends) for table in self.tables)
        return self._agreement(source, target, common), source

    def nothing(self) -> list[Words]:
        """What `begin` gives where nothing begins."""
        return [jnp.zeros((LANES,), jnp.uint32)] * PLANES

    def finish(self, orders: Orders, held: Held, ends: Array, begun: list[Words]) -> None:
        """Write what changed, and where an episode `ends`, what begins, with an empty clipboard."""
        memory, side, at = self.memory, self.sizes.rows, orders.start + self.warp.lane
        every, none = jnp.uint32(self.square.every), jnp.uint32(0)
        begins = jnp.where(ends, every, none)
        keeps = jnp.where(held.copied, every, begins)
        clips = [jnp.where(ends, none, words) for words in held.clipboard]
        parts = [(memory.new_clipboard_mask, at * side, clips[PLANES], keeps)]
        for level, base in enumerate(self.planes_at(at)):
            words = jnp.where(ends, begun[level], held.planes[level])
            parts.append((memory.new_planes, base, words, held.changed[level] | begins))
            parts.append((memory.new_clipboard, base, clips[level], keeps))
        self._write(parts)

    def planes_at(self, at: Counts) -> list[Counts]:
        """Where the planes of environments begin."""
        return [at * (PLANES * self.square.side) + level * self.square.side for level in range(PLANES)]

    @property
    def tables(self) -> tuple[Any, Any]:
        """Inputs and outputs of the bank."""
        return self.memory.inputs, self.memory.outputs

    def from_bank(self, table: Any, place: Counts, mask: Array) -> list[Words]:
        return [
            self.memory.load(table.at[place * PLANES + level], mask=mask, other=jnp.uint32(0))
            for level in range(PLANES)
        ]

    def read(self, arrays: Sequence[tuple[Any, Array]], mask: Array) -> list[Words]:
        """One plane of each environment for each array and the places where its planes begin."""
        side = self.square.side

        # A loop, which the compiler unrolls late: Triton takes time that grows with the cube of what it is given.
        def add(row: Any, words: list[Words]) -> list[Words]:
            read = [
                self.memory.load(array.at[base + row], mask=mask, other=jnp.uint32(0))
                for array, base in arrays
            ]
            cut = [row_bits & jnp.uint32((1 << side) - 1) for row_bits in read]
            return [have | (one << word(spread(row * side))) for have, one in zip(words, cut, strict=True)]

        return jax.lax.fori_loop(0, side, add, [jnp.zeros((LANES,), jnp.uint32)] * len(arrays))

    def _write(self, parts: Sequence[tuple[Any, Array, Words, Words]]) -> None:
        """For each array and the places where its planes begin: a plane of each environment, the rows with these cells."""
        side, full = self.square.side, jnp.uint32((1 << self.square.side) - 1)

        def put(row: Any, nothing: Array) -> Array:
            first = word(spread(row * side))
            for array, base, words, cells in parts:
                mask = ((cells >> first) & full) != 0
                self.memory.store(array.at[base + row], (words >> first) & full, mask=mask)
            return nothing

        jax.lax.fori_loop(0, side, put, jnp.int32(0))

    def _agreement(self, mine: list[Words], theirs: list[Words], common: tuple[Counts, Counts]) -> Counts:
        square = self.square
        high, wide = (jnp.minimum(part, square.side) for part in common)
        same = square.rows(high) & square.columns(wide)
        for one, other in zip(mine, theirs, strict=True):
            same = same & ~(one ^ other)
        return self.warp.count(same)


def packed_table(grids: UInt32[Array, "pairs 4 rows"], side: int) -> UInt32[Array, " words"]:
    """The grids of a bank with a word for each plane, cut to a canvas of `side` × `side`."""
    rows = (grids[..., :side] & jnp.uint32((1 << side) - 1)).astype(jnp.uint32)
    places = jnp.uint32(1) << jnp.arange(0, side * rows.shape[-1], side, dtype=jnp.uint32)
    return (rows * places).sum(-1, dtype=jnp.uint32).reshape(-1)


def _apply_operation(grids: SmallGrids, orders: Orders, at: Counts) -> tuple[Any, ...]:
    """What is `Held` after the operations, heights, widths, and whether they were valid."""
    memory, square, warp = grids.memory, grids.square, grids.warp
    load, side = memory.load, square.side
    planes_at = grids.planes_at(at)
    grid = grids.read([(memory.planes, base) for base in planes_at], orders.here)
    inside = square.rows(orders.height) & square.columns(orders.width)
    selected = _read_selection(orders, at, grids)
    # Operations 0 to 31 act on cells of the grid. Off the grid is not the same as nothing selected, which may mean all.
    misses = (selected != 0) & ((selected & inside) == 0) & (orders.operation >= ops.FILL)
    misses = misses & (orders.operation <= Operation.CLEAR)
    code = jnp.where(misses, -1, orders.operation)
    resizes = code == Operation.RESIZE
    moves = (code >= Operation.MOVE_UP) & (code <= Operation.MOVE_RIGHT)
    turns = (code >= Operation.ROTATE_CLOCKWISE) & (code <= Operation.FLIP_UP_DOWN)
    copies, pastes = (code == Operation.COPY) | (code == Operation.CUT), code == Operation.PASTE
    clears, floods = code == Operation.CLEAR, (code >= ops.FLOOD) & (code < Operation.MOVE_UP)

    picked = jnp.where(resizes, selected, selected & inside)
    empty = picked == 0
    cells = jnp.where(empty & (moves | turns | clears), inside, picked)
    top, left, bottom, right = _box(cells, square)
    single = warp.count(picked) == 1
    valid = ~(misses | (floods & ~single) | (empty & (copies | resizes)))
    landing = (top, left)
    if grids.sizes.turns_about_center:
        rotates, high, wide = ops.is_rotation(code), bottom - top + 1, right - left + 1
        shift = jnp.where(rotates, ops.centre_shift(high - wide), 0)
        down, across = top + shift, left - shift
        fits = (down >= 0) & (across >= 0) & (down + wide <= orders.height) & (across + high <= orders.width)
        fits = fits | ~rotates
        landing = jnp.where(fits, down, 0), jnp.where(fits, across, 0)
        turns, valid = turns & fits, valid & fits

    paints = (code >= ops.FILL) & (code < ops.FLOOD)
    floods = floods & single
    region = jnp.where(
        paints, cells, _component(jnp.where(floods, picked, jnp.uint32(0)), grid, inside, square)
    )
    colour = jnp.where(code >= ops.FLOOD, code - ops.FLOOD, code)

    corner = word(side * top + left)
    patch = [(words & cells) >> corner for words in grid] + [cells >> corner]
    clipboard = [*((memory.clipboard, base) for base in planes_at), (memory.clipboard_mask, at * side)]
    clips = grids.read(clipboard, pastes & orders.here)
    lifts = moves | turns | clears | (code == Operation.CUT)
    cleared = jnp.where(lifts, cells, jnp.uint32(0))
    lands = moves | turns | (pastes & ~empty)
    box = (top, left, bottom, right)
    moved = [
        _move(code, jnp.where(pastes, clip, mine), box, landing, square)
        for clip, mine in zip(clips, patch, strict=True)
    ]
    landed = jnp.where(lands, moved[PLANES] & inside, jnp.uint32(0))
    gone = ~(cleared | landed | region)
    grows = resizes & valid
    high = jnp.where(grows, bottom + 1, orders.height)
    wide = jnp.where(grows, right + 1, orders.width)
    takes_input = (code == Operation.COPY_INPUT) & orders.here
    source = grids.from_bank(memory.inputs, orders.place, takes_input)
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

    changed = [
        jnp.where(orders.here, mine ^ was, jnp.uint32(0)) for mine, was in zip(after, grid, strict=True)
    ]
    return Held(after, changed, patch, copies & valid & orders.here), high, wide, valid


def _read_selection(orders: Orders, at: Counts, grids: SmallGrids) -> Words:
    square, side = grids.square, grids.square.side
    if grids.memory.selections is not None:
        return grids.read([(grids.memory.selections, at * side)], orders.here)[0]
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


def _move(
    code: Counts, patch: Words, box: tuple[Counts, ...], landing: tuple[Counts, Counts], square: Square
) -> Words:
    """A patch from the corner, turned as the operation says, and put down where it lands."""
    top, left, bottom, right = box
    side = square.side
    rotates = ops.is_rotation(code)
    high, wide = bottom - top + 1, right - left + 1
    high, wide = jnp.where(rotates, wide, high), jnp.where(rotates, high, wide)
    turned = jnp.where(rotates, square.transpose(patch), patch)
    mirrors = (code == Operation.FLIP_LEFT_RIGHT) | (code == Operation.ROTATE_CLOCKWISE)
    topples = (code == Operation.FLIP_UP_DOWN) | (code == Operation.ROTATE_COUNTER_CLOCKWISE)
    turned = jnp.where(mirrors, square.flip_left_right(turned) >> word(side - wide), turned)
    turned = jnp.where(topples, square.flip_up_down(turned) >> word(side * (side - high)), turned)
    put = square.put(turned, *landing)
    up, down = put >> side, (put << side) & jnp.uint32(square.every)
    not_first = jnp.uint32(square.every & ~square.first_column)
    not_last = jnp.uint32(square.every & ~(square.first_column << (side - 1)))
    put = jnp.where(code == Operation.MOVE_UP, up, jnp.where(code == Operation.MOVE_DOWN, down, put))
    put = jnp.where(code == Operation.MOVE_LEFT, (put >> 1) & not_last, put)
    return jnp.where(code == Operation.MOVE_RIGHT, (put << 1) & not_first, put)

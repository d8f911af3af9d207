"""Operations 0 to 33 for kernels: one warp works on one environment, one lane on one row.

The operation is a number that the whole warp knows, so a branch costs only where it is taken, and the grid stays in
registers. `jaxarc.envs.operations` is the twin for single environments and other devices.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..envs import operations as ops
from ..envs.operations import Operation
from ..tasks.planes import PLANES
from .warp import LANES, Counts, Warp, Words

_ALL = 0xFFFFFFFF
OFF_GRID, NOTHING = 62, 63
"""Codes of what is not carried out: because the selection misses the grid, which is invalid, or for another reason."""


class Sizes(NamedTuple):
    """What is fixed when a kernel is built."""

    rows: int
    columns: int
    bank_rows: int
    turns_about_center: bool


class Memory(NamedTuple):
    """The grids, and how they are read and written.

    `new_` are the same arrays as outputs, in the same memory: of every environment what is read must be read before it is
    written. Pallas' interpreter keeps them apart and does not show a mistake; `make oracle` on a GPU does.
    """

    load: Any
    store: Any
    planes: Any
    clipboard: Any
    clipboard_mask: Any
    inputs: Any
    outputs: Any
    input_sizes: Any
    selections: Any
    new_planes: Any
    new_clipboard: Any
    new_clipboard_mask: Any

    def rows_of(self, array: Any, at: Any, rows: int, row: Counts, there: Array) -> tuple[Words, ...]:
        """The four planes of grid `at` of an array of grids, in every lane its row; empty where it has none."""
        base = at * (PLANES * rows)
        return tuple(
            self.load(array.at[base + level * rows + row], mask=there, other=jnp.uint32(0))
            for level in range(PLANES)
        )


class After(NamedTuple):
    """The grid after an operation, in every lane its row."""

    planes: tuple[Words, ...]
    height: Array
    width: Array
    valid: Array


def spread(number: Any) -> Array:
    """The same number in every lane."""
    return jnp.broadcast_to(number, (LANES,)).astype(jnp.int32)


def low_bits(count: Array) -> Words:
    """Words with the `count` lowest bits set, from 1 to 32."""
    return jnp.full((LANES,), _ALL, jnp.uint32) >> (32 - count).astype(jnp.uint32)


def _word(number: Array) -> Array:
    return number.astype(jnp.uint32)


class _Box(NamedTuple):
    top: Array
    left: Array
    bottom: Array
    right: Array


def read_selection(at: Any, code: Counts, warp: Warp, memory: Memory, sizes: Sizes) -> Words:
    """The selected cells of the canvas of environment `at`, in every lane its row; of a box, its `code` has the sides."""
    row = warp.lane
    if memory.selections is not None:
        words = memory.load(
            memory.selections.at[at * sizes.rows + row], mask=row < sizes.rows, other=jnp.uint32(0)
        )
        return words & jnp.uint32((1 << sizes.columns) - 1)
    top, left, bottom, right = ((code >> shift) & 31 for shift in (6, 11, 16, 21))
    every = jnp.full((LANES,), _ALL, jnp.uint32)
    columns = (every << _word(spread(left))) & (every >> _word(spread(31 - right)))
    return jnp.where((row >= top) & (row <= bottom), columns, jnp.uint32(0))


def active_cells(height: Array, width: Array, warp: Warp) -> Words:
    """The cells of a grid of this size, in every lane its row."""
    return jnp.where(warp.lane < height, low_bits(width), jnp.uint32(0))


class Space(NamedTuple):
    """One environment before its operation."""

    at: Any
    place: Any
    operation: Any
    selected: Words
    """The selected cells of the canvas."""
    warp: Warp
    memory: Memory
    sizes: Sizes
    planes: tuple[Words, ...]
    height: Array
    width: Array

    @property
    def row(self) -> Array:
        return self.warp.lane

    @property
    def inside(self) -> Words:
        return active_cells(self.height, self.width, self.warp)

    def cells(self) -> Words:
        """The selected cells of the grid, or the whole grid if there are none."""
        picked = self.selected & self.inside
        return jnp.where(self.warp.any_bits(picked) != 0, picked, self.inside)

    def box(self, cells: Words) -> _Box:
        """The smallest box around cells; meaningless if there are none."""
        warp = self.warp
        rows, columns = warp.ballot(cells), warp.any_bits(cells)
        top, left = (warp.highest(words & (jnp.uint32(0) - words)) for words in (rows, columns))
        return _Box(top, left, warp.highest(rows), warp.highest(columns))

    def after(self, planes: Any, height: Any = None, width: Any = None, valid: Any = None) -> After:
        """The result of an operation; what is left out stayed, and was valid."""
        return After(
            tuple(planes),
            self.height if height is None else height,
            self.width if width is None else width,
            jnp.ones((LANES,), jnp.int32) if valid is None else valid,
        )

    def lay(self, cells: Words, patch: list[Words], valid: Any = None) -> After:
        """The grid with `cells` taken away and a patch, whose mask comes last, laid on."""
        *moved, mask = patch
        landed = mask & self.inside
        gone = ~(cells | landed)
        planes = ((old & gone) | (new & landed) for old, new in zip(self.planes, moved, strict=True))
        return self.after(planes, valid=valid)

    def lift(self, cells: Words) -> list[Words]:
        """The cells' colours and, last, the cells."""
        return [*(words & cells for words in self.planes), cells]

    def paint(self, region: Words, colour: Any) -> list[Words]:
        """The grid with a region in one colour."""
        new = []
        for level, words in enumerate(self.planes):
            bits = _word(spread(0 - ((colour >> level) & 1)))
            new.append((words & ~region) | (bits & region))
        return new


def carry_out(space: Space) -> After:
    """The operation's own branch."""
    code, cond = space.operation, jax.lax.cond
    keep = lambda: space.after(space.planes)  # noqa: E731

    def branch(condition: Any, first: Any, second: Any) -> Any:
        return lambda: cond(condition, lambda: first(space), lambda: second(space))

    late = branch(
        code < Operation.COPY_INPUT,
        _clear,
        lambda s: cond(
            code == Operation.COPY_INPUT,
            lambda: _copy_input(s),
            branch(code == Operation.RESIZE, _resize, lambda _: keep()),
        ),
    )
    clipboard = branch(code == Operation.PASTE, _paste, _copy)
    moves = branch(code < Operation.MOVE_LEFT, _move_rows, _move_columns)
    turns = branch(code < Operation.FLIP_LEFT_RIGHT, _rotate, _flip)
    middle = lambda: cond(code < Operation.ROTATE_CLOCKWISE, moves, turns)  # noqa: E731
    high = lambda: cond(code < Operation.CLEAR, clipboard, late)  # noqa: E731
    low = branch(code < ops.FLOOD, _fill, _flood)
    return cond(code < Operation.MOVE_UP, low, lambda: cond(code < Operation.COPY, middle, high))


def _fill(space: Space) -> After:
    return space.after(space.paint(space.selected & space.inside, space.operation))


def _flood(space: Space) -> After:
    warp = space.warp
    picked = space.selected & space.inside
    single = (warp.total(warp.count(picked)) == 1).astype(jnp.int32)

    def fill() -> tuple[Words, ...]:
        region = space.inside
        for words in space.planes:
            region = region & ~(words ^ _word(0 - (warp.any_bits(words & picked) != 0).astype(jnp.int32)))
        return tuple(space.paint(_component(picked, region, warp), space.operation - ops.FLOOD))

    planes = jax.lax.cond(jnp.max(single) == 1, fill, lambda: space.planes)
    return space.after(planes, valid=single)


def _component(seed: Words, region: Words, warp: Warp) -> Words:
    """All cells of `region` that the seed reaches: runs along rows and along columns in turn, until nothing changes."""
    mirrored = warp.reverse(region)
    steps = (1, 2, 4, 8, 16)
    down, up = [region], [region]
    for by in steps[:-1]:
        down.append(down[-1] & warp.from_above(down[-1], by))
        up.append(up[-1] & warp.from_below(up[-1], by))

    def along_rows(words: Words) -> Words:
        right = words | ((region ^ (region + words)) & region)
        back = warp.reverse(right)
        return warp.reverse(back | ((mirrored ^ (mirrored + back)) & mirrored))

    def along_columns(words: Words) -> Words:
        lower, upper = words, words
        for by, low, high in zip(steps, down, up, strict=True):
            lower = lower | (low & warp.from_above(lower, by))
            upper = upper | (high & warp.from_below(upper, by))
        return lower | upper

    def grow(state: tuple[Words, Any]) -> tuple[Words, Any]:
        taller = along_columns(state[0])
        wider = along_rows(taller)
        return wider, jnp.max((wider != taller).astype(jnp.int32))

    return jax.lax.while_loop(lambda state: state[1] > 0, grow, (along_rows(seed), jnp.int32(1)))[0]


def _move_rows(space: Space) -> After:
    cells = space.cells()
    source = space.row + 1 - 2 * (space.operation - Operation.MOVE_UP)
    exists = (source >= 0) & (source < 32)
    words = [space.warp.shuffle(word, source & 31) for word in space.lift(cells)]
    return space.lay(cells, [jnp.where(exists, word, jnp.uint32(0)) for word in words])


def _move_columns(space: Space) -> After:
    cells = space.cells()
    left = spread(space.operation) == Operation.MOVE_LEFT
    return space.lay(cells, [jnp.where(left, word >> 1, word << 1) for word in space.lift(cells)])


def _flip(space: Space) -> After:
    cells = space.cells()
    box, warp = space.box(cells), space.warp
    patch = space.lift(cells)

    def left_right() -> tuple[Words, ...]:
        left, rest = _word(box.left), _word(31 - (box.right - box.left))
        return tuple((warp.reverse(word >> left) >> rest) << left for word in patch)

    def up_down() -> tuple[Words, ...]:
        # Lanes outside of the box read lanes outside of the box, also where the number wraps.
        source = (box.top + box.bottom - space.row) & 31
        return tuple(warp.shuffle(word, source) for word in patch)

    return space.lay(
        cells, list(jax.lax.cond(space.operation == Operation.FLIP_LEFT_RIGHT, left_right, up_down))
    )


def _to_corner(space: Space, patch: list[Words], box: _Box) -> list[Words]:
    source = space.row + box.top
    moved = [space.warp.shuffle(word, source & 31) for word in patch]
    left = _word(box.left)
    return [jnp.where(source < 32, word, jnp.uint32(0)) >> left for word in moved]


def _rotate(space: Space) -> After:
    cells = space.cells()
    box, warp = space.box(cells), space.warp
    top, left, valid = box.top, box.left, None
    if space.sizes.turns_about_center:
        high, wide = box.bottom - top + 1, box.right - left + 1
        shift = ops.centre_shift(high - wide)
        top, left = top + shift, left - shift
        fits = (top >= 0) & (left >= 0) & (top + wide <= space.height) & (left + high <= space.width)
        cells, left = jnp.where(fits, cells, jnp.uint32(0)), jnp.where(fits, left, 0)
        valid = fits.astype(jnp.int32)
    patch = [warp.transpose(word) for word in _to_corner(space, space.lift(cells), box)]
    below = space.row - top
    # Clockwise is a transposition and a left-right flip, counter-clockwise a transposition and an up-down flip.
    clockwise = spread(space.operation) == Operation.ROTATE_CLOCKWISE
    source = jnp.where(clockwise, below, box.right - box.left - below)
    exists = (source >= 0) & (source < 32)
    rest = _word(31 - (box.bottom - box.top))
    turned = []
    for word in patch:
        mirrored = jnp.where(clockwise, warp.reverse(word) >> rest, word)
        placed = warp.shuffle(mirrored, source & 31)
        turned.append(jnp.where(exists, placed, jnp.uint32(0)) << _word(left))
    return space.lay(cells, turned, valid)


def _copy(space: Space) -> After:
    """Copy, and cut: which takes the cells away too."""
    cells = space.selected & space.inside
    box, memory, rows = space.box(cells), space.memory, space.sizes.rows
    some = (space.warp.any_bits(cells) != 0).astype(jnp.int32)
    *patch, mask = _to_corner(space, space.lift(cells), box)
    writes = (space.row < rows) & (some == 1)
    for level, words in enumerate(patch):
        at = space.at * (PLANES * rows) + level * rows + space.row
        memory.store(memory.new_clipboard.at[at], words, mask=writes)
    memory.store(memory.new_clipboard_mask.at[space.at * rows + space.row], mask, mask=writes)
    gone = jnp.where(spread(space.operation) == Operation.CUT, cells, jnp.uint32(0))
    return space.after((words & ~gone for words in space.planes), valid=some)


def _paste(space: Space) -> After:
    cells = space.selected & space.inside
    box, memory, rows = space.box(cells), space.memory, space.sizes.rows
    some = space.warp.any_bits(cells) != 0
    source = space.row - box.top
    reads = (space.row < rows) & (source >= 0) & some
    left = _word(jnp.where(some, box.left, 0))
    base = space.at * (PLANES * rows)
    patch = [
        memory.load(memory.clipboard.at[base + level * rows + source], mask=reads, other=jnp.uint32(0))
        << left
        for level in range(PLANES)
    ]
    mask = memory.load(memory.clipboard_mask.at[space.at * rows + source], mask=reads, other=jnp.uint32(0))
    return space.lay(jnp.zeros((LANES,), jnp.uint32), [*patch, mask << left])


def _clear(space: Space) -> After:
    cells = space.cells()
    return space.after(words & ~cells for words in space.planes)


def _copy_input(space: Space) -> After:
    memory, sizes = space.memory, space.sizes
    there = (space.row < sizes.rows) & (space.row < sizes.bank_rows)
    planes = memory.rows_of(memory.inputs, space.place, sizes.bank_rows, space.row, there)
    height, width = (memory.load(memory.input_sizes.at[space.place * 2 + side]) for side in (0, 1))
    return space.after(planes, spread(height), spread(width))


def _resize(space: Space) -> After:
    cells = space.selected
    box = space.box(cells)
    some = space.warp.any_bits(cells) != 0
    height = jnp.where(some, box.bottom + 1, space.height)
    width = jnp.where(some, box.right + 1, space.width)
    inside = jnp.where(space.row < height, low_bits(width), jnp.uint32(0))
    return space.after((words & inside for words in space.planes), height, width, some.astype(jnp.int32))

"""Operations 0 to 33: one pipeline for all of them, exact, on bit planes.

Under `vmap` every branch of a switch would run anyway. So each step does the same work: the selected cells are lifted
to a corner, turned, put down somewhere, and laid over the grid together with one painted region; the operation only
chooses the numbers. `docs/jaxarc/operations.md` says what each one means; `tests/support/arc_oracle.py` says it in NumPy.
"""

import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from ..tasks import planes
from ..tasks.bank import Grid


class Operation(enum.IntEnum):
    """Every built-in operation by its number: names, kinds, counts and messages follow from it.

    `docs/jaxarc/operations.md` says what each one does. The C++ kernels and the
    page that replays episodes take the numbers from here.

    >>> Operation(24).title, Operation.CUT.kind, int(Operation.SUBMIT)
    ('rotate clockwise', 'clipboard', 34)
    """

    FILL_0, FILL_1, FILL_2, FILL_3, FILL_4, FILL_5, FILL_6, FILL_7, FILL_8, FILL_9 = range(10)
    FLOOD_0, FLOOD_1, FLOOD_2, FLOOD_3, FLOOD_4 = range(10, 15)
    FLOOD_5, FLOOD_6, FLOOD_7, FLOOD_8, FLOOD_9 = range(15, 20)
    MOVE_UP, MOVE_DOWN, MOVE_LEFT, MOVE_RIGHT = range(20, 24)
    ROTATE_CLOCKWISE, ROTATE_COUNTER_CLOCKWISE, FLIP_LEFT_RIGHT, FLIP_UP_DOWN = range(24, 28)
    COPY, PASTE, CUT = range(28, 31)
    CLEAR, COPY_INPUT, RESIZE = range(31, 34)
    SUBMIT = 34
    NEXT_DEMONSTRATION, PREVIOUS_DEMONSTRATION, NEXT_TEST, PREVIOUS_TEST = range(35, 39)
    RESET_PAIR, FIRST_UNSOLVED_DEMONSTRATION, FIRST_UNSOLVED_TEST = range(39, 42)

    @property
    def title(self) -> str:
        """The name as people read it."""
        words = self.name.lower().replace("_", " ")
        for pair in ("counter clockwise", "up down", "left right"):
            words = words.replace(pair, pair.replace(" ", "-"))
        return words

    @property
    def kind(self) -> str:
        """The kind, one of `OPERATION_TYPES`."""
        first = self.name.split("_")[0].lower()
        if first in ("fill", "flood", "move", "rotate", "flip", "submit"):
            return first
        if self > Operation.SUBMIT:
            return "control"
        return "clipboard" if self <= Operation.CUT else "grid"


OPERATION_NAMES = tuple(operation.title for operation in Operation)
EXTRA = "extra"
OPERATION_TYPES = (*dict.fromkeys(operation.kind for operation in Operation), EXTRA)
"""Names of the values of `operation_type`; an operation that does not exist has type −1."""

OPERATIONS, CONTROL_OPERATIONS = Operation.SUBMIT + 1, len(Operation)
"""Number of operations without and with those that change the pair."""
CONTROL_NUMBERS = f"{OPERATIONS} to {CONTROL_OPERATIONS - 1}"
FIRST_EXTRA, LAST_EXTRA = CONTROL_OPERATIONS, 62
"""Numbers of operations of your own; the action history has six bits for an operation, and 63 means unknown."""

FILL, FLOOD = Operation.FILL_0, Operation.FLOOD_0
"""The first of ten each: `FILL + colour`."""

_KINDS = [OPERATION_TYPES.index(operation.kind) for operation in Operation]
_ALL = np.uint32(0xFFFFFFFF)
_NOTHING = -1


class Workspace(eqx.Module):
    """The data that operations change: the grid, and the clipboard's patch (at the top-left corner) with its mask."""

    grid: Grid
    clipboard: UInt32[Array, "4 rows"]
    clipboard_mask: UInt32[Array, " rows"]


class Box(eqx.Module):
    """The bounding box of a selection; meaningless where the selection is empty."""

    top: Int32[Array, ""]
    left: Int32[Array, ""]
    bottom: Int32[Array, ""]
    right: Int32[Array, ""]

    @property
    def height(self) -> Int32[Array, ""]:
        """Rows of the box."""
        return self.bottom - self.top + 1

    @property
    def width(self) -> Int32[Array, ""]:
        """Columns of the box."""
        return self.right - self.left + 1


def operation_type(operation: Int32[Array, ""]) -> Int32[Array, ""]:
    """The kind of an operation, as a place in `OPERATION_TYPES`; −1 for one that is not built in."""
    table = jnp.asarray(_KINDS, jnp.int32)
    return table.at[operation].get(mode="fill", fill_value=-1, wrap_negative_indices=False)


def bounding_box(mask: UInt32[Array, " rows"]) -> Box:
    """The smallest box around the cells of a mask."""
    rows = mask.shape[0]
    at = jnp.arange(rows, dtype=jnp.int32)
    columns = jax.lax.reduce(mask, jnp.uint32(0), jax.lax.bitwise_or, (0,))
    lowest = columns & (jnp.uint32(0) - columns)
    return Box(
        top=jnp.where(mask != 0, at, rows).min(),
        left=jax.lax.population_count(lowest - jnp.uint32(1)).astype(jnp.int32),
        bottom=jnp.where(mask != 0, at, -1).max(),
        right=31 - jax.lax.clz(columns).astype(jnp.int32),
    )


def flood(seed: UInt32[Array, " rows"], region: UInt32[Array, " rows"]) -> UInt32[Array, " rows"]:
    """All cells of `region` that the seed reaches through neighbours above, below, left and right.

    Each round fills whole runs along the rows and then, transposed, along the columns. So real grids need two rounds
    (measured on ARC: at most 10, where growing by one cell needs up to 174); the loop ends when nothing changes, whatever
    the shape.
    """
    across = planes.fit_rows(region, planes.MAX_SIDE)
    down = planes.transpose(across)

    def grow(state: tuple[Array, Array]) -> tuple[Array, Array]:
        filled, _ = state
        wider = planes.transpose(_fill_runs(planes.transpose(_fill_runs(filled, across)), down))
        return wider, jnp.any(wider != filled)

    # A batch leaves the loop together; where nobody floods, it is not entered.
    start = planes.fit_rows(seed, planes.MAX_SIDE), jnp.any(seed != 0)
    return jax.lax.while_loop(lambda state: state[1], grow, start)[0][: seed.shape[0]]


def _fill_runs(seed: Array, region: Array) -> Array:
    """Every run of a row of `region` that the seed touches."""
    # An addition carries from each seed through the ones above it and leaves zeros there.
    right = seed | ((region ^ (region + seed)) & region)
    left, way = seed, region
    for by in (1, 2, 4, 8, 16):
        left |= way & (left >> by)
        way &= way >> by
    return right | left


def misses_grid(selection: UInt32[Array, " rows"], grid: Grid) -> Bool[Array, ""]:
    """Whether cells are selected and none of them lies on the active grid. An empty selection misses nothing."""
    return jnp.any(selection != 0) & ~jnp.any((selection & grid.active) != 0)


def apply_operation(
    space: Workspace,
    operation: Int32[Array, ""],
    selection: UInt32[Array, " rows"],
    source: Grid,
    rotation: str = "corner",
) -> tuple[Workspace, Bool[Array, ""]]:
    """The workspace after an operation, and whether the operation was valid; an invalid one changes nothing.

    Numbers outside 0 to 33 change nothing and are valid here; the caller handles them. `source` is the input
    that operation 32 copies; `rotation` is that of `UnifiedActionConfig`.
    """
    grid, rows = space.grid, selection.shape[0]
    inside = grid.active
    # Operations 0 to 31 act on cells of the grid. Off the grid is not the same as nothing selected, which may mean all.
    misses = (operation >= FILL) & (operation <= Operation.CLEAR) & misses_grid(selection, grid)
    operation = jnp.where(misses, _NOTHING, operation)
    moves = (operation >= Operation.MOVE_UP) & (operation <= Operation.MOVE_RIGHT)
    turns = (operation >= Operation.ROTATE_CLOCKWISE) & (operation <= Operation.FLIP_UP_DOWN)
    copies = (operation == Operation.COPY) | (operation == Operation.CUT)
    pastes = operation == Operation.PASTE
    clears, resizes = operation == Operation.CLEAR, operation == Operation.RESIZE

    picked = jnp.where(resizes, selection, selection & inside)
    empty = ~jnp.any(picked != 0)
    cells = jnp.where(empty & (moves | turns | clears), inside, picked)
    box = bounding_box(cells)

    region = _painted_region(grid, operation, cells)
    single = planes.count(picked) == 1
    floods = (operation >= FLOOD) & (operation < Operation.MOVE_UP)
    landing, fits = _landing_corner(box, operation, rotation, grid)
    turns &= fits
    valid = ~(misses | (floods & ~single) | (empty & (copies | resizes)) | ~fits)

    patch = _lift(grid.planes, cells, box)
    held = jnp.concatenate([space.clipboard, space.clipboard_mask[None]])
    moved = _put_down(jnp.where(pastes, held, patch), operation, box, landing, rows) & inside
    lifts = moves | turns | clears | (operation == Operation.CUT)
    cleared = jnp.where(lifts, cells, jnp.uint32(0))
    landed = jnp.where((moves | turns | (pastes & ~empty)), moved[planes.PLANES], jnp.uint32(0))
    colour = jnp.where(operation >= FLOOD, operation - FLOOD, operation)
    levels = (colour >> jnp.arange(planes.PLANES, dtype=jnp.int32)) & 1
    painted = jnp.where(levels == 1, _ALL, jnp.uint32(0))[:, None] & region
    kept = grid.planes & ~(cleared | landed | region)
    worked = kept | (moved[: planes.PLANES] & landed) | painted

    copies_input = operation == Operation.COPY_INPUT
    grows = resizes & valid
    height = jnp.where(copies_input, source.height, jnp.where(grows, box.bottom + 1, grid.height))
    width = jnp.where(copies_input, source.width, jnp.where(grows, box.right + 1, grid.width))
    result = Grid(jnp.where(copies_input, source.planes, worked), height, width)
    result = Grid(result.planes & result.active, height, width)
    keeps = copies & valid
    clipboard = jnp.where(keeps, patch, held)
    return Workspace(result, clipboard[: planes.PLANES], clipboard[planes.PLANES]), valid


def apply_extra(
    grid: Grid,
    operation: Int32[Array, ""],
    selection: UInt32[Array, " rows"],
    functions: tuple[Callable[..., Any], ...],
    width: int,
) -> tuple[Grid, Bool[Array, ""]]:
    """The grid after a user's operation, number 42 and on, and whether the operation was valid.

    Any other number leaves the grid as it is; so does a selection that misses the grid, which is invalid.
    """
    cells = planes.show(grid.planes, grid.height, grid.width, width)
    chosen = planes.unpack_mask(selection & grid.active, width)

    def same(cells: Array, chosen: Array) -> Array:
        return cells

    def own(function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
        def call(cells: Array, chosen: Array) -> Array:
            made = jnp.asarray(function(cells, chosen))
            if made.shape != cells.shape or not jnp.issubdtype(made.dtype, jnp.integer):
                raise ValueError(
                    f"`extra_operations` must return a grid of whole numbers of shape {cells.shape}; "
                    f"{getattr(function, '__name__', function)!r} gave {made.dtype}{list(made.shape)}."
                )
            return jnp.clip(made, 0, 9).astype(cells.dtype)

        return call

    branches = [same, *map(own, functions)]
    which = operation - FIRST_EXTRA + 1
    which = jnp.where((which >= 1) & (which < len(branches)), which, 0)
    misses = (which > 0) & misses_grid(selection, grid)
    which = jnp.where(misses, 0, which)
    made = planes.encode(jnp.maximum(jax.lax.switch(which, branches, cells, chosen), 0))
    return Grid(made & grid.active, grid.height, grid.width), ~misses


def _painted_region(grid: Grid, operation: Array, cells: Array) -> Array:
    """The cells that fill (the selection) or flood (the component of a single cell) paints."""
    fills = (operation >= FILL) & (operation < FLOOD)
    floods = (operation >= FLOOD) & (operation < Operation.MOVE_UP) & (planes.count(cells) == 1)
    seed = jnp.where(floods, cells, jnp.uint32(0))
    same = grid.active
    for level in range(planes.PLANES):
        bit = jnp.any((grid.planes[level] & seed) != 0)
        same &= ~(grid.planes[level] ^ jnp.where(bit, _ALL, jnp.uint32(0)))
    return jnp.where(fills, cells, flood(seed, same))


def _lift(grid: Array, cells: Array, box: Box) -> Array:
    """The selected cells and their mask (fifth plane), moved to the top-left corner."""
    stack = jnp.concatenate([grid & cells, cells[None]])
    rows = jnp.arange(cells.shape[0], dtype=jnp.int32)
    return planes.shift_columns(planes.take_rows(stack, rows + box.top), -box.left)


def is_rotation(operation: Int32[Array, "*b"]) -> Bool[Array, "*b"]:
    """Whether an operation is one of the two rotations."""
    return (operation == Operation.ROTATE_CLOCKWISE) | (operation == Operation.ROTATE_COUNTER_CLOCKWISE)


def centre_shift(excess: Int32[Array, "*b"]) -> Int32[Array, "*b"]:
    """Rows by which the top of a box moves down when it is turned about its centre; its left side moves as far left.

    `excess` is the box's height minus its width. Halves are rounded towards 0, so turning back is the same shift with
    the other sign.
    """
    return jnp.where(excess < 0, -(-excess >> 1), excess >> 1)


def _landing_corner(
    box: Box, operation: Array, rotation: str, grid: Grid
) -> tuple[tuple[Array, Array], Bool[Array, ""]]:
    """Where the top-left corner of the box lands, before any move, and whether the operation may land there.

    Only a rotation about the centre may not: where it would carry cells off the grid.
    """
    if rotation == "corner":
        return (box.top, box.left), jnp.bool_(True)
    rotates = is_rotation(operation)
    shift = jnp.where(rotates, centre_shift(box.height - box.width), 0)
    top, left = box.top + shift, box.left - shift
    stays = (top >= 0) & (left >= 0) & (top + box.width <= grid.height) & (left + box.height <= grid.width)
    return (top, left), ~rotates | stays


def _put_down(patch: Array, operation: Array, box: Box, landing: tuple[Array, Array], rows: int) -> Array:
    """A patch from the top-left corner, turned as the operation says, and moved to where it lands."""
    rotates = is_rotation(operation)
    full = planes.fit_rows(patch, planes.MAX_SIDE)
    turned = jnp.where(rotates, planes.transpose(full), full)
    height = jnp.where(rotates, box.width, box.height)
    width = jnp.where(rotates, box.height, box.width)
    # Clockwise is a transposition and a left-right flip, counter-clockwise a transposition and an up-down flip.
    mirrors = (operation == Operation.FLIP_LEFT_RIGHT) | (operation == Operation.ROTATE_CLOCKWISE)
    topples = (operation == Operation.FLIP_UP_DOWN) | (operation == Operation.ROTATE_COUNTER_CLOCKWISE)
    turned = jnp.where(mirrors, planes.shift_columns(planes.reverse_bits(turned), width - 32), turned)
    top = landing[0] + (operation == Operation.MOVE_DOWN) - (operation == Operation.MOVE_UP)
    left = landing[1] + (operation == Operation.MOVE_RIGHT) - (operation == Operation.MOVE_LEFT)
    at = jnp.arange(rows, dtype=jnp.int32) - top
    return planes.shift_columns(planes.take_rows(turned, jnp.where(topples, height - 1 - at, at)), left)


def agreement(grid: Grid, target: Grid) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """Cells in which both grids agree, and cells of the union of their active parts."""
    differs = jax.lax.reduce(grid.planes ^ target.planes, jnp.uint32(0), jax.lax.bitwise_or, (0,))
    mine, theirs = grid.active, target.active
    return planes.count(mine & theirs & ~differs), planes.count(mine | theirs)

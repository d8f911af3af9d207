"""Bit planes as colours, or as one plane of booleans per colour, for a whole batch in one kernel.

XLA computes every cell on its own, with four reads; here a warp reads a grid once, and each lane takes four cells at a time.
For colours it spreads their bits over the bytes of a word with one multiplication.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int8, Int32, UInt32

from jaxworlds.kernels import in_halves, result, split_kernel

from ..tasks.planes import PLANES
from .operations import active_cells, spread
from .warp import COUNTED, LANES, GpuWarp, PlainWarp, Warp

# A number of four bits times this has bit k at place 7·k + k: one bit in each byte.
_SPREAD = 0x00204081
_ONES = 0x01010101
COLOURS = 10


def can_show(rows: int, cols: int) -> bool:
    """Whether `show` takes grids of this size: whole words, and a word's cells lie in two rows that fit 32 bits."""
    return cols > 1 and rows * cols % 4 == 0 and cols + 4 - math.gcd(4, cols) <= 32


def words_of(rows: int, cols: int) -> int:
    """Words that `show` reads or writes for one grid, whichever is more; a call counts them with 32 bits."""
    return rows * max(PLANES, cols // 4 + 1)


def show(
    planes: UInt32[Array, "b 4 rows"],
    active: UInt32[Array, "b rows"] | tuple[Int32[Array, " b"], Int32[Array, " b"]],
    cols: int,
    **options: Any,
) -> Int8[Array, "b rows {cols}"]:
    """Colours of each grid, −1 outside of its active part: a mask, or height and width of a top-left rectangle.

    `options` are `per_program`, grids that one warp shows in turn, and `interpret`.
    """

    def show_part(split: tuple[Array, Any], whole: None) -> Array:
        planes, active = split
        batch, _, rows = planes.shape
        if batch * words_of(rows, cols) >= COUNTED:
            return in_halves(show_part, split, whole)
        out = result((batch * rows * cols // 4,), jnp.int32, planes)
        words = _call(_colours, out, planes, active, cols, **options)
        return jax.lax.bitcast_convert_type(words, jnp.int8).reshape(batch, rows, cols)

    return split_kernel(show_part, (planes, active), None)


def show_one_hot(
    planes: UInt32[Array, "b 4 rows"],
    active: UInt32[Array, "b rows"] | tuple[Int32[Array, " b"], Int32[Array, " b"]],
    cols: int,
    **options: Any,
) -> Bool[Array, "b 10 rows {cols}"]:
    """Where each grid has which colour, nowhere outside of its active part, given as for `show`."""

    def show_part(split: tuple[Array, Any], whole: None) -> Array:
        planes, active = split
        batch, _, rows = planes.shape
        size = batch * COLOURS * rows * cols
        # Pallas counts bytes of this many with 32 bits that have a sign: two parts, each of them small enough.
        if batch * words_of(rows, cols) >= COUNTED or (2**31 <= size <= 2**32 and batch > 1):
            return in_halves(show_part, split, whole)
        out = result((batch, COLOURS * rows * cols), jnp.bool_, planes)
        cells = _call(_booleans, out, planes, active, cols, **options)
        return cells.reshape(batch, COLOURS, rows, cols)

    return split_kernel(show_part, (planes, active), None)


def _call(
    write: Callable[..., None],
    out: jax.ShapeDtypeStruct,
    planes: Array,
    active: Array | tuple[Array, Array],
    cols: int,
    per_program: int = 8,
    interpret: bool = False,
) -> Array:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plt

    batch, _, rows = planes.shape
    kernel = functools.partial(
        _kernel,
        pallas=(pl.program_id, plt.load, plt.store),
        warp=PlainWarp if interpret else functools.partial(GpuWarp, plt),
        shape=(batch, rows, cols),
        masked=not isinstance(active, tuple),
        per_program=per_program,
        write=write,
    )
    parts = active if isinstance(active, tuple) else (active.reshape(-1),)
    return pl.pallas_call(
        kernel,
        grid=(math.ceil(batch / per_program),),
        in_specs=[pl.no_block_spec] * (1 + len(parts)),
        out_specs=pl.no_block_spec,
        out_shape=out,
        compiler_params=plt.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="arc_show",
    )(planes.reshape(-1), *parts)


def _kernel(
    planes: Any,
    *rest: Any,
    pallas: tuple[Any, Any, Any],
    warp: Callable[[], Warp],
    shape: tuple[int, int, int],
    masked: bool,
    per_program: int,
    write: Callable[..., None],
) -> None:
    program, load, store = pallas
    *active, cells = rest
    batch, rows, cols = shape
    lanes = warp()
    row = lanes.lane
    start = program(0) * per_program
    many = jnp.minimum(per_program, batch - start)
    count = rows * cols // 4

    def read(number: Any) -> tuple[Any, ...]:
        at = start + number
        there = (row < rows) & (number < many)
        base = at * (PLANES * rows)
        words = [
            load(planes.at[base + level * rows + row], mask=there, other=jnp.uint32(0))
            for level in range(PLANES)
        ]
        if masked:
            return (*words, load(active[0].at[at * rows + row], mask=there, other=jnp.uint32(0)))
        here = spread(number) < many
        return (*words, *(load(side.at[spread(at)], mask=here, other=jnp.int32(1)) for side in active))

    def one(number: Any, held: Any) -> Any:
        ahead = read(number + 1)
        grid, where = held[:PLANES], held[PLANES:]
        # A slot without a grid may have the width 0, and a shift by 32 would mean nothing.
        inside = where[0] if masked else active_cells(where[0], jnp.maximum(where[1], 1), lanes)
        inside = inside & jnp.uint32((1 << cols) - 1)
        # The first cells of the next row follow a row's last: words begin anywhere.
        runs = [*grid, inside]
        if cols % 4:
            runs = [words | (lanes.from_below(words, 1) << jnp.uint32(cols)) for words in runs]
        for first in range(0, count, LANES):
            word = first + row
            cell = word * 4
            source = cell // cols
            column = (cell - source * cols).astype(jnp.uint32)
            fours = [(lanes.shuffle(run, source & 31) >> column) & jnp.uint32(15) for run in runs]
            write(store, cells, start + number, word, count, fours)
        return ahead

    jax.lax.fori_loop(0, many, one, read(jnp.int32(0)))


def _colours(store: Any, cells: Any, at: Any, word: Array, count: int, fours: list[Array]) -> None:
    """Four colours in a word."""
    *levels, inside = fours
    colours = ((inside ^ jnp.uint32(15)) * jnp.uint32(_SPREAD) & jnp.uint32(_ONES)) * jnp.uint32(255)
    for level, four in enumerate(levels):
        colours = colours | ((four * jnp.uint32(_SPREAD << level)) & jnp.uint32(_ONES << level))
    store(cells.at[at * count + word], colours.astype(jnp.int32), mask=word < count)


def _booleans(store: Any, cells: Any, at: Any, word: Array, count: int, fours: list[Array]) -> None:
    """Four booleans for each colour, side by side."""
    *levels, inside = fours
    places = jax.lax.iota(jnp.int32, 4)[None, :]
    mask = jnp.broadcast_to((word < count)[:, None], (LANES, 4))
    for colour in range(COLOURS):
        equal = inside
        for level, four in enumerate(levels):
            equal = equal & (four if colour >> level & 1 else ~four)
        found = ((equal[:, None] >> places.astype(jnp.uint32)) & jnp.uint32(1)) != 0
        where = (colour * count + word)[:, None] * 4 + places
        store(cells.at[jnp.broadcast_to(at, (LANES, 4)), where], found, mask=mask)

"""Bit planes as colours for a whole batch in one kernel: four cells in a word, written side by side.

XLA computes every cell on its own, with four reads; here a warp reads a grid once and spreads four bits at a time over the
bytes of a word with one multiplication.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int8, Int32, UInt32

from ...tasks.planes import PLANES
from .operations import low_bits, spread
from .warp import LANES, GpuWarp, PlainWarp, Warp

# A number of four bits times this has bit k at place 7·k + k: one bit in each byte.
_SPREAD = 0x00204081
_ONES = 0x01010101


def can_show(rows: int, cols: int) -> bool:
    """Whether `show` takes grids of this size: whole words, and a word's cells lie in two rows that fit 32 bits."""
    return cols > 1 and rows * cols % 4 == 0 and cols + 4 - math.gcd(4, cols) <= 32


def show(
    planes: UInt32[Array, "b 4 rows"],
    active: UInt32[Array, "b rows"] | tuple[Int32[Array, " b"], Int32[Array, " b"]],
    cols: int,
    *,
    per_program: int = 8,
    interpret: bool = False,
) -> Int8[Array, "b rows {cols}"]:
    """Colours of each grid, −1 outside of its active part: a mask, or height and width of a top-left rectangle."""
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
    )
    parts = active if isinstance(active, tuple) else (active.reshape(-1),)
    words = pl.pallas_call(
        kernel,
        grid=(math.ceil(batch / per_program),),
        in_specs=[pl.no_block_spec] * (1 + len(parts)),
        out_specs=pl.no_block_spec,
        out_shape=jax.ShapeDtypeStruct((batch * rows * cols // 4,), jnp.int32),
        compiler_params=plt.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="arc_show",
    )(planes.reshape(-1), *parts)
    return jax.lax.bitcast_convert_type(words, jnp.int8).reshape(batch, rows, cols)


def _kernel(
    planes: Any,
    *rest: Any,
    pallas: tuple[Any, Any, Any],
    warp: Callable[[], Warp],
    shape: tuple[int, int, int],
    masked: bool,
    per_program: int,
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
        inside = where[0] if masked else _rectangle(where[0], where[1], row)
        inside = inside & jnp.uint32((1 << cols) - 1)
        # The first cells of the next row follow a row's last: words begin anywhere.
        runs = [_joined(words, lanes, cols) for words in (*grid, inside)]
        for first in range(0, count, LANES):
            word = first + row
            cell = word * 4
            source = cell // cols
            column = (cell - source * cols).astype(jnp.uint32)
            colours = jnp.zeros((LANES,), jnp.uint32)
            for level, run in enumerate(runs):
                four = (lanes.shuffle(run, source & 31) >> column) & jnp.uint32(15)
                if level < PLANES:
                    colours = colours | ((four * jnp.uint32(_SPREAD << level)) & jnp.uint32(_ONES << level))
                else:
                    outside = ((four ^ jnp.uint32(15)) * jnp.uint32(_SPREAD)) & jnp.uint32(_ONES)
                    colours = colours | (outside * jnp.uint32(255))
            store(cells.at[(start + number) * count + word], colours.astype(jnp.int32), mask=word < count)
        return ahead

    jax.lax.fori_loop(0, many, one, read(jnp.int32(0)))


def _rectangle(height: Array, width: Array, row: Array) -> Array:
    # A slot without a grid has no rows; a shift by 32 would mean nothing.
    return jnp.where(row < height, low_bits(jnp.maximum(width, 1)), jnp.uint32(0))


def _joined(words: Array, lanes: Warp, cols: int) -> Array:
    """Each row with the beginning of the next after its last column."""
    if cols % 4 == 0:
        return words
    return words | (lanes.from_below(words, 1) << jnp.uint32(cols))

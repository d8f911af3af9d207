"""Grids as bit planes: four bits of colour, one 32-bit word per row and plane, column `c` at bit `c`.

A 30×30 grid takes 480 bytes instead of 900, whole rows move with one shift, and a row's cells are compared,
filled and counted 30 at a time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8, UInt32

PLANES = 4
"""Bits of a colour."""
MAX_SIDE = 32
"""Columns of a row that fit one word, and rows that a transposition handles."""

ROUNDS = ((16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))
"""Distances and masks of the five rounds in which a 32×32 bit matrix is transposed, and a word reversed."""


def low_bits(count: Int[Array, "*b"]) -> UInt32[Array, "*b"]:
    """Words whose `count` lowest bits are set; counts below 0 and above 32 act as 0 and 32."""
    some = jnp.clip(count, 0, 31).astype(jnp.uint32)
    word = (jnp.uint32(1) << some) - jnp.uint32(1)
    return jnp.where(count >= MAX_SIDE, jnp.uint32(0xFFFFFFFF), word)


def shift_columns(words: UInt32[Array, "*b"], by: Int[Array, ""]) -> UInt32[Array, "*b"]:
    """Rows moved `by` columns to the right (towards higher columns), or to the left if negative."""
    right = words << jnp.clip(by, 0, 31).astype(jnp.uint32)
    left = words >> jnp.clip(-by, 0, 31).astype(jnp.uint32)
    return jnp.where(jnp.abs(by) >= MAX_SIDE, jnp.uint32(0), jnp.where(by >= 0, right, left))


def take_rows(words: UInt32[Array, "*b rows"], index: Int[Array, " out"]) -> UInt32[Array, "*b out"]:
    """The rows at `index`; empty rows where the index lies outside."""
    return words.at[..., index].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def rectangle(
    rows: int, top: Int[Array, ""], left: Int[Array, ""], bottom: Int[Array, ""], right: Int[Array, ""]
) -> UInt32[Array, " {rows}"]:
    """The mask of a rectangle whose four sides are inclusive; empty when they cross."""
    at = jnp.arange(rows, dtype=jnp.int32)
    word = low_bits(right + 1) & ~low_bits(left)
    return jnp.where((at >= top) & (at <= bottom), word, jnp.uint32(0))


def active(rows: int, height: Int[Array, ""], width: Int[Array, ""]) -> UInt32[Array, " {rows}"]:
    """The mask of the top-left `height` × `width` cells."""
    at = jnp.arange(rows, dtype=jnp.int32)
    return jnp.where(at < height, low_bits(width), jnp.uint32(0))


def reverse_bits(words: UInt32[Array, "*b"]) -> UInt32[Array, "*b"]:
    """Each word with its 32 bits in reverse order."""
    for shift, mask in reversed(ROUNDS):
        word = jnp.uint32(mask)
        words = ((words >> shift) & word) | ((words & word) << shift)
    return words


def transpose(words: UInt32[Array, "*b 32"]) -> UInt32[Array, "*b 32"]:
    """The 32×32 bit matrix with rows and columns exchanged."""
    for shift, mask in ROUNDS:
        word = jnp.uint32(mask)
        halves = words.reshape(*words.shape[:-1], MAX_SIDE // (2 * shift), 2, shift)
        upper, lower = halves[..., 0, :], halves[..., 1, :]
        first = (upper & word) | ((lower & word) << shift)
        second = ((upper >> shift) & word) | (lower & ~word)
        words = jnp.stack([first, second], axis=-2).reshape(words.shape)
    return words


def fit_rows(words: UInt32[Array, "*b have"], rows: int) -> UInt32[Array, "*b {rows}"]:
    """Rows cut off or added (empty) at the bottom."""
    have = words.shape[-1]
    if have >= rows:
        return words[..., :rows]
    return jnp.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, rows - have)])


def count(mask: UInt32[Array, "*b rows"]) -> Int[Array, "*b"]:
    """Cells of a mask."""
    return jax.lax.population_count(mask).astype(jnp.int32).sum(-1, dtype=jnp.int32)


def _along(count: int, ndim: int, dtype: Any) -> Array:
    """0 to `count` − 1 along the last of `ndim` axes: no rank is promoted, so that users may forbid that."""
    return jnp.arange(count, dtype=dtype).reshape((1,) * (ndim - 1) + (count,))


def pack_mask(mask: Bool[Array, "*b rows cols"]) -> UInt32[Array, "*b rows"]:
    """A mask as one word per row."""
    bit = jnp.uint32(1) << _along(mask.shape[-1], mask.ndim, jnp.uint32)
    return jnp.where(mask, bit, jnp.uint32(0)).sum(-1, dtype=jnp.uint32)


def unpack_mask(words: UInt32[Array, "*b rows"], cols: int) -> Bool[Array, "*b rows {cols}"]:
    """One word per row as a mask of `cols` columns."""
    return ((words[..., None] >> _along(cols, words.ndim + 1, jnp.uint32)) & jnp.uint32(1)).astype(bool)


def encode(cells: Int[Array, "*b rows cols"]) -> UInt32[Array, "*b 4 rows"]:
    """Colours (0 to 15) as bit planes."""
    levels = _along(PLANES, cells.ndim - 1, cells.dtype)[..., None, None]
    return pack_mask(((cells[..., None, :, :] >> levels) & 1).astype(bool))


def decode(planes: UInt32[Array, "*b 4 rows"], cols: int) -> Int8[Array, "*b rows {cols}"]:
    """Bit planes as colours."""
    bits = (planes[..., None] >> _along(cols, planes.ndim + 1, jnp.uint32)) & jnp.uint32(1)
    colours = bits[..., 0, :, :]
    for level in range(1, PLANES):
        colours = colours | (bits[..., level, :, :] << level)
    return colours.astype(jnp.int8)


def show(
    planes: UInt32[Array, "*b 4 rows"], height: Int[Array, "*b"], width: Int[Array, "*b"], cols: int
) -> Int8[Array, "*b rows {cols}"]:
    """Bit planes as colours, with −1 outside of the top-left `height` × `width` cells."""
    rows = _along(planes.shape[-1], height.ndim + 1, jnp.int32) < height[..., None]
    columns = _along(cols, width.ndim + 1, jnp.int32) < width[..., None]
    inside = rows[..., :, None] & columns[..., None, :]
    return jnp.where(inside, decode(planes, cols), jnp.int8(-1))


def encode_host(cells: Any) -> np.ndarray:
    """`encode` for NumPy arrays, without a device: integers (…, rows, cols ≤ 32) to uint32 (…, 4, rows)."""
    cells = np.asarray(cells, np.uint8)
    padded = np.zeros((*cells.shape[:-1], MAX_SIDE), np.uint8)
    padded[..., : cells.shape[-1]] = cells
    levels = np.arange(PLANES, dtype=np.uint8)[:, None, None]
    bits = np.packbits((padded[..., None, :, :] >> levels) & 1, axis=-1, bitorder="little")
    return np.ascontiguousarray(bits).view("<u4")[..., 0].astype(np.uint32)

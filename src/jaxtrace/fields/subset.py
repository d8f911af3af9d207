"""Expensive work on a subset of a batch: gather its rows, treat them together, and put them back."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, PyTree, UInt32

from .base import Flag, Index
from .isolation import isolate
from .weights import take

Result = TypeVar("Result", bound=PyTree)
LARGE_BATCH = 4096
"""From this size on gathering a subset pays; smaller batches are treated whole."""
_BITS = 32


def apply_to_subset(
    treat: Callable[..., Result],
    needed: Bool[Array, " n"],
    operands: tuple[PyTree, ...],
    results: Result,
    always: Flag,
    chunk: int | None = None,
) -> Result:
    """`results`, with `treat(*operands)` in the rows that need it; `treat` takes one row, `chunk` of them run at a time.

    Under `vmap` a loop runs for all rows until the slowest is done, so that one row at a wall would cost as much as all.
    Here the cost follows the number of those in need. Neither a sort nor a scatter is used: both are slow on a CPU.
    """
    count = needed.shape[0]
    chunk = min(count, max(count // 32, 256) if chunk is None else chunk)
    group = 8 * chunk
    words, before = isolate(always, _count_flags, needed)
    total = before[-1]

    def collect(first: Index) -> tuple[PyTree, ...]:
        wanted = jnp.minimum(first + jnp.arange(chunk, dtype=jnp.int32), total - 1)
        rows = jnp.clip(_rows(words, before, wanted), 0, count - 1)
        return jax.tree.map(lambda leaf: take(leaf, rows), operands)

    def put(first: Index, treated: Result, results: Result) -> Result:
        place = _ranks(words, before, count) - first
        mine = needed & (place >= 0) & (place < group)
        place = jnp.clip(place, 0, group - 1)

        def one(new: Array, old: Array) -> Array:
            return jnp.where(mine.reshape(count, *[1] * (old.ndim - 1)), take(new, place), old)

        return jax.tree.map(one, treated, results)

    def some(carry: tuple[Index, Result]) -> tuple[Index, Result]:
        start, results = carry

        def more(carry: tuple[Index, Result]) -> tuple[Index, Result]:
            first, found = carry
            new = jax.vmap(treat)(*isolate(always, collect, first))
            place = first - start
            found = jax.tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, place, 0), found, new)
            return first + chunk, found

        empty = jax.tree.map(lambda leaf: jnp.zeros((group, *leaf.shape[1:]), leaf.dtype), results)
        end = jnp.minimum(start + group, total)
        _, found = lax.while_loop(lambda carry: carry[0] < end, more, (start, empty))
        return start + group, isolate(always, put, start, found, results)

    return lax.while_loop(lambda carry: carry[0] < total, some, (jnp.int32(0), results))[1]


def _count_flags(needed: Bool[Array, " n"]) -> tuple[UInt32[Array, " words"], Int32[Array, " words1"]]:
    """The flags as bits of words, and how many are set before each word; the last entry counts all."""
    padded = jnp.pad(needed, (0, -needed.shape[0] % _BITS)).reshape(-1, _BITS).astype(jnp.uint32)
    words = jnp.sum(padded << jnp.arange(_BITS, dtype=jnp.uint32), axis=1, dtype=jnp.uint32)
    return words, jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(_bits(words), dtype=jnp.int32)])


def _ranks(words: UInt32[Array, " words"], before: Int32[Array, " words1"], count: int) -> Int32[Array, " n"]:
    """How many flags are set before each row."""
    row = jnp.arange(count, dtype=jnp.int32)
    word = row // _BITS
    lower = (jnp.uint32(1) << (row % _BITS).astype(jnp.uint32)) - 1
    return take(before, word) + _bits(take(words, word) & lower)


def _rows(
    words: UInt32[Array, " words"], before: Int32[Array, " words1"], rank: Int32[Array, " m"]
) -> Int32[Array, " m"]:
    """The row of the flag with each rank: bisection among the words, then among the bits of the word."""
    last = words.shape[0]
    halvings = last.bit_length()

    def halve(number: Index, word: Int32[Array, " m"]) -> Int32[Array, " m"]:
        ahead = word + (jnp.int32(1) << (halvings - 1 - number))
        return jnp.where((ahead < last) & (take(before, jnp.minimum(ahead, last)) <= rank), ahead, word)

    word = lax.fori_loop(0, halvings, halve, jnp.zeros_like(rank))
    bits, rest = take(words, word), rank - take(before, word)
    place = jnp.zeros_like(rank)
    for half in (16, 8, 4, 2, 1):
        lower = (jnp.uint32(1) << (place + half).astype(jnp.uint32)) - 1
        place = jnp.where(_bits(bits & lower) <= rest, place + half, place)
    return word * _BITS + place


def _bits(words: UInt32[Array, "..."]) -> Int32[Array, "..."]:
    return lax.population_count(words).astype(jnp.int32)

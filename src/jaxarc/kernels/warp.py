"""What the 32 lanes of a warp do together: a lane holds one row of a grid, and rows meet by shuffles.

On a GPU each of these is one or two instructions (inline PTX, compute capability 8.0 or newer); `PlainWarp` does the same
with arrays, for Pallas' interpreter.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from ..tasks import planes

LANES = 32
Words = UInt32[Array, " 32"]
Counts = Int32[Array, " 32"]


class Warp(abc.ABC):
    """The exchanges; what all lanes share comes back in every lane."""

    lane: Counts
    """The number of each lane."""

    def __init__(self) -> None:
        self.lane = jnp.arange(LANES, dtype=jnp.int32)

    @abc.abstractmethod
    def shuffle(self, words: Words, source: Counts) -> Words:
        """Each lane takes the word of lane `source`, which must be from 0 to 31."""

    @abc.abstractmethod
    def from_above(self, words: Words, by: int) -> Words:
        """Each lane takes the word `by` lanes before it; the first lanes keep theirs."""

    @abc.abstractmethod
    def from_below(self, words: Words, by: int) -> Words:
        """Each lane takes the word `by` lanes after it; the last lanes keep theirs."""

    @abc.abstractmethod
    def any_bits(self, words: Words) -> Words:
        """The bits that are set in some lane."""

    @abc.abstractmethod
    def total(self, counts: Counts) -> Counts:
        """The sum over all lanes."""

    @abc.abstractmethod
    def ballot(self, words: Words) -> Words:
        """The lanes whose word is not 0, as bits."""

    @abc.abstractmethod
    def reverse(self, words: Words) -> Words:
        """The bits of each word in reverse order."""

    @abc.abstractmethod
    def count(self, words: Words) -> Counts:
        """The bits set in each word."""

    @abc.abstractmethod
    def highest(self, words: Words) -> Counts:
        """The place of the highest bit that is set in each word; −1 if there is none."""

    @abc.abstractmethod
    def transpose(self, words: Words) -> Words:
        """The 32×32 bit matrix with rows and columns exchanged."""


class PlainWarp(Warp):
    """A warp as an array of 32 words."""

    def shuffle(self, words: Words, source: Counts) -> Words:
        return words[source]

    def from_above(self, words: Words, by: int) -> Words:
        return jnp.concatenate([words[:by], words[:-by]])

    def from_below(self, words: Words, by: int) -> Words:
        return jnp.concatenate([words[by:], words[-by:]])

    def any_bits(self, words: Words) -> Words:
        return jnp.broadcast_to(jax.lax.reduce(words, jnp.uint32(0), jax.lax.bitwise_or, (0,)), (LANES,))

    def total(self, counts: Counts) -> Counts:
        return jnp.broadcast_to(counts.sum(dtype=jnp.int32), (LANES,))

    def ballot(self, words: Words) -> Words:
        bits = jnp.where(words != 0, jnp.uint32(1) << self.lane.astype(jnp.uint32), jnp.uint32(0))
        return self.any_bits(bits)

    def reverse(self, words: Words) -> Words:
        return planes.reverse_bits(words)

    def count(self, words: Words) -> Counts:
        return jax.lax.population_count(words).astype(jnp.int32)

    def highest(self, words: Words) -> Counts:
        return 31 - jax.lax.clz(words).astype(jnp.int32)

    def transpose(self, words: Words) -> Words:
        return planes.transpose(words)


class GpuWarp(Warp):
    """A warp of a GPU: one program of the kernel, which must be built with `num_warps=1`."""

    def __init__(self, triton: Any) -> None:
        super().__init__()
        self._asm = triton.elementwise_inline_asm

    def _call(self, code: str, *args: Array) -> Array:
        """One instruction; PTX wants signed words here."""
        given = [arg.astype(jnp.int32) for arg in args]
        shape = jax.ShapeDtypeStruct((LANES,), jnp.int32)
        constraints = ",".join(["=r"] + ["r"] * len(given))
        return self._asm(code, args=given, constraints=constraints, pack=1, result_shape_dtypes=[shape])[0]

    def _words(self, code: str, *args: Array) -> Words:
        return self._call(code, *args).astype(jnp.uint32)

    def shuffle(self, words: Words, source: Counts) -> Words:
        return self._words("shfl.sync.idx.b32 $0, $1, $2, 31, -1;", words, source)

    def from_above(self, words: Words, by: int) -> Words:
        return self._words(f"shfl.sync.up.b32 $0, $1, {by}, 0, -1;", words)

    def from_below(self, words: Words, by: int) -> Words:
        return self._words(f"shfl.sync.down.b32 $0, $1, {by}, 31, -1;", words)

    def any_bits(self, words: Words) -> Words:
        return self._words("redux.sync.or.b32 $0, $1, -1;", words)

    def total(self, counts: Counts) -> Counts:
        return self._call("redux.sync.add.s32 $0, $1, -1;", counts)

    def ballot(self, words: Words) -> Words:
        return self._words(
            "{ .reg .pred some; setp.ne.b32 some, $1, 0; vote.sync.ballot.b32 $0, some, -1; }", words
        )

    def reverse(self, words: Words) -> Words:
        return self._words("brev.b32 $0, $1;", words)

    def count(self, words: Words) -> Counts:
        return self._call("popc.b32 $0, $1;", words)

    def highest(self, words: Words) -> Counts:
        return self._call("bfind.u32 $0, $1;", words)

    def transpose(self, words: Words) -> Words:
        for by, mask in planes.ROUNDS:
            lower = (self.lane & by) != 0
            keep = jnp.where(lower, jnp.uint32(0xFFFFFFFF ^ mask), jnp.uint32(mask))
            turn = jnp.where(lower, jnp.int32(32 - by), jnp.int32(by))
            other = self._words(f"shfl.sync.bfly.b32 $0, $1, {by}, 31, -1;", words)
            turned = self._words("shf.l.wrap.b32 $0, $1, $1, $2;", other, turn)
            words = (words & keep) | (turned & ~keep)
        return words

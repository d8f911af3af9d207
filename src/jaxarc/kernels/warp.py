"""What the 32 lanes of a warp do together, the orders that they carry out, and what a GPU needs for it.

A lane holds one row of a grid, and rows meet by shuffles. On a GPU each of these is one or two instructions (inline PTX,
compute capability 8.0 or newer); `PlainWarp` does the same with arrays, for Pallas' interpreter.
"""

import abc
import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from ..tasks import planes

LANES = 32
COUNTED = 2**31
"""Kernels count the words of grids with 32 bits: a call takes fewer of them than this."""
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
        """The place of the highest set bit of each word; −1 for 0."""

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


class Orders(NamedTuple):
    """The environments `start` to `start + many`; other lanes have none."""

    start: Any
    many: Any
    here: Array
    operation: Counts
    """−1 where nothing is to be done."""
    sides: tuple[Counts, ...]
    """Top, left, bottom and right of the selected boxes; none for masks."""
    place: Counts
    """Where the pair stands in the bank."""
    height: Counts
    width: Counts
    target_high: Counts
    target_wide: Counts


def packed_result(agree: Counts, valid: Counts, height: Counts, width: Counts) -> Counts:
    """The result of an operation in one word: cells that agree with the target, validity (0 or 1), the grid's size."""
    return agree | (valid << 11) | ((height - 1) << 12) | ((width - 1) << 17)


@functools.cache
def why_no_gpu_kernels() -> str | None:
    """Why kernels cannot be built by this jax for all GPUs of all hosts; None if they can.

    jax 0.11 announces that the part that builds them may go, and older GPUs lack some instructions.
    """
    if jax.default_backend() != "gpu":
        return "there is no GPU"
    for version in {str(getattr(device, "compute_capability", "")) for device in jax.devices()}:
        if not re.fullmatch(r"\d+\.\d+", version) or float(version) < 8.0:  # AMD's have names
            return f"kernels need NVIDIA GPUs of compute capability 8.0 or newer; this one has {version or 'none'}"
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return "this version of jax has no Pallas for Triton"
    if not (hasattr(triton, "load") and hasattr(triton, "elementwise_inline_asm")):
        return "Pallas for Triton in this version of jax lacks inline assembly"
    return None

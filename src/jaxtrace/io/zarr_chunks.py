"""A chunk of a Zarr array from its bytes: the chain of what packed it, and shards, which are files of many chunks."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt64

from .zarr_codecs import UNPACKING_ERRORS, NotReadError, Step, crc32c, step_of

ABSENT = 2**64 - 1
"""Stands in the index of a shard for a chunk that is not stored."""


@dataclasses.dataclass(frozen=True)
class Chain:
    """What turns the bytes of a chunk into its values. `order` says which axis of the values each stored axis is."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def largest(self) -> int:
        """No packed chunk has more bytes."""
        size = self.nbytes
        for step in self.steps:
            size = step.largest(size)
        return size

    def unpack(self, data: bytes) -> Shaped[np.ndarray, "..."]:
        """The values of a chunk; ValueError where it does not hold exactly them."""
        sizes = [self.nbytes]
        for step in self.steps:
            sizes.append(step.largest(sizes[-1]))
        try:
            for step, most in zip(reversed(self.steps), reversed(sizes[:-1]), strict=True):
                data = step.unpack(data, most)
        except UNPACKING_ERRORS as error:
            raise ValueError(str(error)[:200] or type(error).__name__) from error
        if len(data) != self.nbytes:
            raise ValueError(f"it holds {len(data):,} bytes instead of {self.nbytes:,}")
        stored = np.frombuffer(data, self.dtype).reshape([self.shape[axis] for axis in self.order])
        values = stored.transpose(np.argsort(self.order)) if self.order else stored
        return values.astype(self.dtype.newbyteorder("="), copy=False)


@dataclasses.dataclass(frozen=True)
class Shards:
    """How chunks lie in a file: `grid` of them, and an index with the place and length of each."""

    grid: tuple[int, ...]
    at_start: bool
    big: bool
    checked: bool

    @property
    def count(self) -> int:
        """Chunks in a file."""
        return math.prod(self.grid)

    @property
    def index_bytes(self) -> int:
        """Length of the index."""
        return 16 * self.count + 4 * self.checked

    def index(self, data: bytes) -> UInt64[np.ndarray, "chunks 2"]:
        """Place and length of each chunk from the bytes of the index."""
        if len(data) != self.index_bytes:
            raise ValueError(f"it has {len(data):,} bytes of an index of {self.index_bytes:,}")
        if self.checked:
            data, told = data[:-4], data[-4:]
            if crc32c(data) != int.from_bytes(told, "little"):
                raise ValueError("its index does not match its checksum")
        return np.frombuffer(data, ">u8" if self.big else "<u8").reshape(-1, 2).astype(np.uint64)


def chain_of_2(told: Mapping[str, Any], dtype: np.dtype, shape: tuple[int, ...]) -> Chain:
    """The chain that metadata of format 2 describe: filters, and a compressor after them."""
    packed = told.get("compressor")
    filters = told.get("filters") or []
    if not isinstance(filters, list) or not all(isinstance(one, dict) for one in filters):
        raise ValueError(f"its filters must be a list of objects; they are {str(filters)[:80]!r}")
    if packed is not None and not isinstance(packed, dict):
        raise ValueError(f"its compressor must be an object or null; it is {str(packed)[:80]!r}")
    order = told.get("order", "C")
    if order not in ("C", "F"):
        raise ValueError(f"its order must be 'C' or 'F'; it is {str(order)[:40]!r}")
    axes = tuple(range(len(shape)))
    steps = tuple(step_of(str(one.get("id")), one) for one in [*filters, *([packed] if packed else [])])
    return Chain(shape, dtype, axes if order == "C" else axes[::-1], steps)


def chain_of_3(told: Any, dtype: np.dtype, shape: tuple[int, ...]) -> tuple[Chain, Shards | None]:
    """The chain that metadata of format 3 describe, of the chunks within shards where there are some."""
    codecs = [_named(one) for one in told] if isinstance(told, list) else []
    if not codecs:
        raise ValueError(f"its codecs must be a list; they are {str(told)[:80]!r}")
    if codecs[0][0] == "sharding_indexed":
        if len(codecs) > 1:
            raise NotReadError("its shards are packed as a whole, which is not read")
        return _sharded(codecs[0][1], dtype, shape)
    if any(name == "sharding_indexed" for name, _ in codecs):
        raise NotReadError("its values are changed before they are put into shards, which is not read")
    order, steps, stored = tuple(range(len(shape))), [], None
    for name, settings in codecs:
        if name == "transpose" and stored is None:
            turn = _permutation(settings.get("order"), len(shape))
            order = tuple(order[axis] for axis in turn)
        elif name == "bytes" and stored is None:
            stored = _stored(dtype, settings.get("endian"), bool(steps))
        else:
            steps.append(step_of(name, settings))
    if stored is None:
        names = ", ".join(name for name, _ in codecs)[:80]
        raise NotReadError(f"its values are made bytes by one of {names}, which is not read")
    if steps and order != tuple(range(len(shape))) and any(name.endswith("delta") for name, _ in codecs):
        raise NotReadError("it is packed with 'transpose' and 'delta' together, which is not read")
    return Chain(shape, stored, order, tuple(steps)), None


def _named(one: Any) -> tuple[str, dict[str, Any]]:
    """Name and settings of a codec, which may be written as the name alone."""
    if isinstance(one, str):
        return one, {}
    settings = one.get("configuration", {}) if isinstance(one, dict) else None
    if not isinstance(settings, dict) or not isinstance(one.get("name"), str):
        raise ValueError(f"its codecs must be objects with a name; one is {str(one)[:80]!r}")
    return one["name"], settings


def _permutation(order: Any, rank: int) -> tuple[int, ...]:
    if order in ("C", "F"):
        return tuple(range(rank)) if order == "C" else tuple(range(rank))[::-1]
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(rank))):
        raise ValueError(f"its codec 'transpose' must name {rank} axes; it has {str(order)[:80]!r}")
    return tuple(map(int, order))


def _stored(dtype: np.dtype, endian: Any, filtered: bool) -> np.dtype:
    if endian not in (None, "little", "big"):
        raise ValueError(f"its codec 'bytes' must be 'little' or 'big'; it is {str(endian)[:40]!r}")
    if endian == "big" and filtered:
        raise NotReadError("it is filtered and stored with the first byte largest, which is not read")
    return dtype.newbyteorder(">" if endian == "big" else "<")


def _sharded(settings: Mapping[str, Any], dtype: np.dtype, shape: tuple[int, ...]) -> tuple[Chain, Shards]:
    inner = whole_numbers(settings.get("chunk_shape"), len(shape), 1, "shape of the chunks in a shard")
    if any(n % m for n, m in zip(shape, inner, strict=True)):
        raise ValueError(f"its shards of shape {shape} cannot be cut into chunks of shape {inner}")
    chain, nested = chain_of_3(settings.get("codecs"), dtype, inner)
    if nested is not None:
        raise NotReadError("its shards hold shards, which is not read")
    told = settings.get("index_codecs")
    if not isinstance(told, list):
        raise ValueError(f"the index of its shards must have a list of codecs; it has {str(told)[:80]!r}")
    index = [_named(one) for one in told]
    names = [name for name, _ in index]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise NotReadError(
            f"the index of its shards is packed with {', '.join(names)[:80]}, which is not read"
        )
    place = settings.get("index_location", "end")
    if place not in ("start", "end"):
        raise ValueError(f"the index of its shards must lie at 'start' or 'end'; it is {str(place)[:40]!r}")
    grid = tuple(n // m for n, m in zip(shape, inner, strict=True))
    big = index[0][1].get("endian") == "big"
    return chain, Shards(grid, place == "start", big, len(names) > 1)


def whole_numbers(given: Any, count: int | None, least: int, what: str) -> tuple[int, ...]:
    """A list of whole numbers that are at least `least`, `count` of them."""
    fits = isinstance(given, list) and all(type(n) is int and least <= n < 2**60 for n in given)
    if not fits or len(given) > 32 or (count is not None and len(given) != count):
        many = "whole numbers" if count is None else f"{count} whole numbers"
        raise ValueError(f"its {what} must be {many} from {least}; it is {str(given)[:80]!r}")
    return tuple(given)

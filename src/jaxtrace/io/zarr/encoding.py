"""How the metadata of a Zarr array say that its values are stored, checked, and with the guard in its codecs.

zarr-python decodes a chunk by the codecs that the metadata name; `GUARD`, a codec of ours, stands in place of each compressor.
"""

import dataclasses
import math
import re
from typing import Any, Literal

import numpy as np

from .guard import GROWTH, GUARD, UNPACKERS

OBJECTS = ("pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "vlen-array", "categorize")
"""Codecs that make objects of Python. They are not run."""
NUMBERS = re.compile(r"[<>|=]?([biufc]\d{1,2}|bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128))")
"""Types of numbers as metadata spell them, such as "<f4" and "float32"."""
_WIDEST = 16  # bytes of a complex number, the widest type that a filter may store
_FILTERS = ("delta", "fixedscaleoffset", "quantize", "astype")
_SAME_SIZE = ("shuffle", "bitround")
_CHECKSUMS = ("crc32", "adler32", "crc32c")
_KNOWN = ("bytes", "transpose", "sharding_indexed", *UNPACKERS, *_FILTERS, *_SAME_SIZE, *_CHECKSUMS)
Version = Literal[2, 3]
Codecs = list[tuple[str, dict[str, Any]]]
"""Names and settings."""


class UnsupportedError(ValueError):
    """An array is packed in a way, or holds a type, that is not read. It may be sound, and others may read it."""


@dataclasses.dataclass(frozen=True)
class Shards:
    """Files of several chunks: `grid` of them in each, and an index with the place and length of each."""

    grid: tuple[int, ...]
    at_start: bool
    index_bytes: int


@dataclasses.dataclass(frozen=True)
class ArrayEncoding:
    """How the metadata of an array describe it, for zarr-python, with the guard in its codecs."""

    document: dict[str, Any]
    chunks: tuple[int, ...]
    largest: int
    """No packed chunk has more bytes."""
    shards: Shards | None = None


def array_encoding(told: dict[str, Any], shape: tuple[int, ...], version: Version) -> ArrayEncoding:
    """The encoding that `.zarray` or `zarr.json` describes."""
    if told.get("zarr_format") != version:
        raise ValueError(
            f"its format must be {version} like the store's; it is {str(told.get('zarr_format'))[:40]!r}"
        )
    return (_encoding_2 if version == 2 else _encoding_3)(told, shape)


def _encoding_2(told: dict[str, Any], shape: tuple[int, ...]) -> ArrayEncoding:
    chunks = whole_numbers(told.get("chunks"), len(shape), 1, "chunks")
    itemsize = _itemsize(told.get("dtype"), 2)
    filters, packer = told.get("filters") or [], told.get("compressor")
    if not isinstance(filters, list) or not all(isinstance(one, dict) for one in filters):
        raise ValueError(f"its filters must be a list of objects; they are {str(filters)[:80]!r}")
    if packer is not None and not isinstance(packer, dict):
        raise ValueError(f"its compressor must be an object or null; it is {str(packer)[:80]!r}")
    named = [(str(one.get("id")), one) for one in [*filters, *([packer] if packer else [])]]
    codecs, largest = _guard_codecs(named, chunks, itemsize, 2)
    packer = codecs.pop() if packer else None
    return ArrayEncoding({**told, "filters": codecs or None, "compressor": packer}, chunks, largest)


def _encoding_3(told: dict[str, Any], shape: tuple[int, ...]) -> ArrayEncoding:
    grid = told.get("chunk_grid")
    if not isinstance(grid, dict) or not isinstance(grid.get("name"), str):
        raise ValueError(f"its chunk grid must have a name; it is {str(grid)[:80]!r}")
    if grid["name"] != "regular":
        raise UnsupportedError(f"its chunks make a grid of the kind {grid['name'][:40]!r}; 'regular' is read")
    settings = grid.get("configuration")
    given = settings.get("chunk_shape") if isinstance(settings, dict) else None
    chunks = whole_numbers(given, len(shape), 1, "chunk shape")
    itemsize, named = _itemsize(told.get("data_type"), 3), _named_codecs(told.get("codecs"))
    if "sharding_indexed" in dict(named):
        return _shard_encoding(told, named, chunks, itemsize)
    codecs, largest = _guard_codecs(named, chunks, itemsize, 3)
    return ArrayEncoding({**told, "codecs": codecs}, chunks, largest)


def _itemsize(told: Any, version: Version) -> int:
    """Bytes of one value of a type as metadata name it."""
    from zarr.dtype import parse_dtype

    if not isinstance(told, str | dict | list):
        raise ValueError(f"its data type must be a name; it is {str(told)[:80]!r}")
    if told == "|O":  # refused by its codec
        return 8
    try:
        if isinstance(told, str) and NUMBERS.fullmatch(told):  # what zarr-python would find too, later
            return np.dtype(told).itemsize
        return parse_dtype(told, zarr_format=version).to_native_dtype().itemsize
    except Exception as error:  # of many kinds
        raise UnsupportedError(
            f"it holds values of the type {str(told)[:80]!r}, which are not read"
        ) from error


def _shard_encoding(
    told: dict[str, Any], named: Codecs, shape: tuple[int, ...], itemsize: int
) -> ArrayEncoding:
    """The encoding of an array in shards of this shape."""
    (_, settings), *others = named
    if others or "chunk_shape" not in settings:
        raise UnsupportedError(
            "its values are packed before or after they are put into shards, which is not read"
        )
    chunks = whole_numbers(settings["chunk_shape"], len(shape), 1, "shape of the chunks in a shard")
    if any(n % m for n, m in zip(shape, chunks, strict=True)):
        raise ValueError(f"its shards of shape {shape} cannot be cut into chunks of shape {chunks}")
    inner = _named_codecs(settings.get("codecs"))
    if "sharding_indexed" in dict(inner):
        raise UnsupportedError("its shards hold shards, which is not read")
    packers = [name for name, _ in _named_codecs(settings.get("index_codecs"))]
    if packers not in (["bytes"], ["bytes", "crc32c"]):
        raise UnsupportedError(
            f"the index of its shards is packed with {', '.join(packers)[:80]}, which is not read"
        )
    place = settings.get("index_location", "end")
    if place not in ("start", "end"):
        raise ValueError(f"the index of its shards must lie at 'start' or 'end'; it is {str(place)[:40]!r}")
    codecs, largest = _guard_codecs(inner, chunks, itemsize, 3)
    guarded = {"name": "sharding_indexed", "configuration": {**settings, "codecs": codecs}}
    grid = tuple(n // m for n, m in zip(shape, chunks, strict=True))
    length = 16 * math.prod(grid) + 4 * (len(packers) > 1)
    return ArrayEncoding(
        {**told, "codecs": [guarded]}, chunks, largest, Shards(grid, place == "start", length)
    )


def _named_codecs(told: Any) -> Codecs:
    """Name and settings of each codec of format 3, which may be written as the name alone."""
    if not isinstance(told, list) or not told:
        raise ValueError(f"its codecs must be a list; they are {str(told)[:80]!r}")
    found = []
    for one in told:
        one = {"name": one} if isinstance(one, str) else one
        settings = one.get("configuration", {}) if isinstance(one, dict) else None
        if not isinstance(settings, dict) or not isinstance(one.get("name"), str):
            raise ValueError(f"its codecs must be objects with a name; one is {str(one)[:80]!r}")
        found.append((one["name"], settings))
    return found


def _guard_codecs(
    named: Codecs, chunks: tuple[int, ...], itemsize: int, version: Version
) -> tuple[list[Any], int]:
    """Codecs as metadata list them, with the guard in place of the compressors, and the largest size of a packed chunk.

    The guard may unpack to the size that remains at its place.
    """
    count = math.prod(chunks)
    found, size = [], count * itemsize
    for name, settings in named:
        own = name.removeprefix("numcodecs.")
        if own in OBJECTS:
            raise UnsupportedError(f"it holds objects packed with {name!r}, which is never run")
        if own in UNPACKERS:
            name, settings = GUARD, {"packer": own, "limit": size}
            size += size // 8 + GROWTH
        elif own in _FILTERS:
            for word in ("dtype", "astype", "encode_dtype", "decode_dtype"):
                kind = settings.get(word)
                if kind is not None and not (isinstance(kind, str) and NUMBERS.fullmatch(kind)):
                    raise ValueError(f"it names {str(kind)[:40]!r}, which is no type of numbers")
            size = max(size, _WIDEST * count)
        elif own in _CHECKSUMS:
            size += 4
        elif own not in (*_SAME_SIZE, "bytes", "transpose"):
            raise UnsupportedError(
                f"it is packed with {name[:60]!r}, which is not read; known are {', '.join(_KNOWN)}"
            )
        found.append({**settings, "id": name} if version == 2 else {"name": name, "configuration": settings})
    return found, size


def whole_numbers(given: Any, count: int | None, least: int, what: str) -> tuple[int, ...]:
    """A list of whole numbers that are at least `least`, `count` of them."""
    fits = isinstance(given, list) and all(type(n) is int and least <= n < 2**60 for n in given)
    if not fits or len(given) > 32 or (count is not None and len(given) != count):
        many = "whole numbers" if count is None else f"{count} whole numbers"
        raise ValueError(f"its {what} must be {many} from {least}; it is {str(given)[:80]!r}")
    return tuple(given)

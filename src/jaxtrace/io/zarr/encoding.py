"""How the metadata of a Zarr array say that its values are stored, checked, and with the guard in its codecs."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from .guard import (
    NUMBERS,
    UnsupportedError,
    guarded_codecs_2,
    guarded_codecs_3,
    named_codecs,
    whole_numbers,
)


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


def encoding_2(told: dict[str, Any], shape: tuple[int, ...]) -> ArrayEncoding:
    """The encoding that `.zarray` describes."""
    if told.get("zarr_format") != 2:
        raise ValueError(
            f"its format must be 2 like the store's; it is {str(told.get('zarr_format'))[:40]!r}"
        )
    chunks = whole_numbers(told.get("chunks"), len(shape), 1, "chunks")
    count = math.prod(chunks)
    filters, packer, largest = guarded_codecs_2(told, count * _itemsize(told.get("dtype"), 2), count)
    return ArrayEncoding({**told, "filters": filters or None, "compressor": packer}, chunks, largest)


def encoding_3(told: dict[str, Any], shape: tuple[int, ...]) -> ArrayEncoding:
    """The encoding that `zarr.json` describes."""
    if told.get("zarr_format") != 3:
        raise ValueError(
            f"its format must be 3 like the store's; it is {str(told.get('zarr_format'))[:40]!r}"
        )
    grid = told.get("chunk_grid")
    if not isinstance(grid, dict) or not isinstance(grid.get("name"), str):
        raise ValueError(f"its chunk grid must have a name; it is {str(grid)[:80]!r}")
    if grid["name"] != "regular":
        raise UnsupportedError(f"its chunks make a grid of the kind {grid['name'][:40]!r}; 'regular' is read")
    settings = grid.get("configuration")
    given = settings.get("chunk_shape") if isinstance(settings, dict) else None
    chunks = whole_numbers(given, len(shape), 1, "chunk shape")
    itemsize = _itemsize(told.get("data_type"), 3)
    names = [name for name, _ in named_codecs(told.get("codecs"))]
    if "sharding_indexed" in names:
        return _shard_encoding(told, chunks, itemsize)
    count = math.prod(chunks)
    codecs, largest = guarded_codecs_3(told["codecs"], count * itemsize, count)
    return ArrayEncoding({**told, "codecs": codecs}, chunks, largest)


def _itemsize(told: Any, version: Literal[2, 3]) -> int:
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


def _shard_encoding(told: dict[str, Any], shape: tuple[int, ...], itemsize: int) -> ArrayEncoding:
    """The encoding of an array in shards of this shape."""
    (_, settings), *others = named_codecs(told["codecs"])
    if others or "chunk_shape" not in settings:
        raise UnsupportedError(
            "its values are packed before or after they are put into shards, which is not read"
        )
    chunks = whole_numbers(settings["chunk_shape"], len(shape), 1, "shape of the chunks in a shard")
    if any(n % m for n, m in zip(shape, chunks, strict=True)):
        raise ValueError(f"its shards of shape {shape} cannot be cut into chunks of shape {chunks}")
    names = [name for name, _ in named_codecs(settings.get("codecs"))]
    if "sharding_indexed" in names:
        raise UnsupportedError("its shards hold shards, which is not read")
    packers = [name for name, _ in named_codecs(settings.get("index_codecs"))]
    if packers not in (["bytes"], ["bytes", "crc32c"]):
        raise UnsupportedError(
            f"the index of its shards is packed with {', '.join(packers)[:80]}, which is not read"
        )
    place = settings.get("index_location", "end")
    if place not in ("start", "end"):
        raise ValueError(f"the index of its shards must lie at 'start' or 'end'; it is {str(place)[:40]!r}")
    count = math.prod(chunks)
    codecs, largest = guarded_codecs_3(settings["codecs"], count * itemsize, count)
    guarded = {"name": "sharding_indexed", "configuration": {**settings, "codecs": codecs}}
    grid = tuple(n // m for n, m in zip(shape, chunks, strict=True))
    length = 16 * math.prod(grid) + 4 * (len(packers) > 1)
    return ArrayEncoding(
        {**told, "codecs": [guarded]}, chunks, largest, Shards(grid, place == "start", length)
    )

"""One array of a Zarr store as its metadata of format 2 or 3 describe it."""

import dataclasses
import math
from typing import Any

import numpy as np

from .zarr_chunks import Chain, Shards, chain_of_2, chain_of_3, whole_numbers
from .zarr_codecs import NotReadError
from .zarr_types import dtype_2, dtype_3, fill_value, is_nan, missing_mark, native

SPARSE = 1 << 26
"""Bytes that an array may declare without storing them: chunks that hold only the fill value are often left out."""
RATIO = 40_000
"""Zstandard makes at most 32,768 bytes of one."""
_DIMENSIONS = "_ARRAY_DIMENSIONS"
_KEYS_3 = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value"),
    *("codecs", "attributes", "dimension_names", "storage_transformers"),
}


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array of a store. `fill` stands for chunks that are not stored, `marked` says whether it means a missing value."""

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: np.dtype
    attributes: dict[str, Any]
    fill: Any = None
    marked: bool = False
    chunks: tuple[int, ...] = ()
    chain: Chain | None = None
    shards: Shards | None = None
    prefix: str = ""
    separator: str = "."
    reason: str = ""
    """Why the array is not read; empty where it is."""

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def key(self, index: tuple[int, ...]) -> str:
        """Where the chunk, or the shard, with this number along each axis lies."""
        parts = [*([self.prefix] if self.prefix else []), *map(str, index)]
        return f"{self.name}/{self.separator.join(parts) or '0'}"


def _dimensions(told: Any, shape: tuple[int, ...], where: str) -> tuple[str, ...]:
    if told is None and not shape:
        return ()
    if told is None:
        raise NotReadError(f"it does not name its dimensions ({where})")
    if not isinstance(told, list) or len(told) != len(shape):
        raise ValueError(f"its {where} must name {len(shape)} dimensions; it is {str(told)[:80]!r}")
    if not all(isinstance(one, str) for one in told) or len(set(told)) < len(told):
        raise NotReadError(f"its dimensions {str(told)[:80]} are not all named, or not by names of their own")
    return tuple(told)


def array_of_2(
    name: str, told: dict[str, Any], shape: tuple[int, ...], attributes: dict[str, Any]
) -> StoredArray:
    """The array that `.zarray` and `.zattrs` describe; ValueError where they do not make one."""
    if told.get("zarr_format") != 2:
        raise ValueError(
            f"its format must be 2 like the store's; it is {str(told.get('zarr_format'))[:40]!r}"
        )
    dtype = dtype_2(told)
    chunks = whole_numbers(told.get("chunks"), len(shape), 1, "chunks")
    separator = told.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise ValueError(f"its dimension separator must be '.' or '/'; it is {str(separator)[:40]!r}")
    chain = chain_of_2(told, dtype, chunks)
    dims = _dimensions(attributes.pop(_DIMENSIONS, None), shape, _DIMENSIONS)
    fill = None if told.get("fill_value") is None else fill_value(told["fill_value"], dtype)
    if fill is not None and dtype.kind in "iuf":  # as xarray takes it: it marks missing values
        attributes["_FillValue"] = fill
    return StoredArray(
        name,
        shape,
        dims,
        native(dtype),
        attributes,
        fill,
        fill is not None,
        chunks,
        chain,
        None,
        "",
        separator,
    )


def array_of_3(
    name: str, told: dict[str, Any], shape: tuple[int, ...], attributes: dict[str, Any]
) -> StoredArray:
    """The array that `zarr.json` describes; ValueError where it does not make one."""
    if told.get("zarr_format") != 3:
        raise ValueError(
            f"its format must be 3 like the store's; it is {str(told.get('zarr_format'))[:40]!r}"
        )
    for key, value in told.items():
        if key not in _KEYS_3 and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise NotReadError(f"its metadata say {key[:40]!r}, which is not known")
    if told.get("storage_transformers"):
        raise NotReadError("its metadata name storage transformers, which are not known")
    dtype = dtype_3(told.get("data_type"))
    chunks = _chunk_shape(told.get("chunk_grid"), len(shape))
    prefix, separator = _key_encoding(told.get("chunk_key_encoding"))
    chain, shards = chain_of_3(told.get("codecs"), dtype, chunks)
    dims = _dimensions(told.get("dimension_names"), shape, "dimension_names")
    if told.get("fill_value") is None:
        raise ValueError("it has no fill value")
    fill = fill_value(told["fill_value"], dtype)
    marks = [missing_mark(attributes, word, dtype) for word in ("_FillValue", "missing_value")]
    marked = is_nan(fill) or any(
        mark is not None and (mark == fill or (is_nan(mark) and is_nan(fill))) for mark in marks
    )
    return StoredArray(
        name, shape, dims, native(dtype), attributes, fill, marked, chunks, chain, shards, prefix, separator
    )


def _chunk_shape(told: Any, rank: int) -> tuple[int, ...]:
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(name, str):
        raise ValueError(f"its chunk grid must have a name; it is {str(told)[:80]!r}")
    if name != "regular":
        raise NotReadError(f"its chunks make a grid of the kind {name[:40]!r}; 'regular' is read")
    settings = told.get("configuration")
    shape = settings.get("chunk_shape") if isinstance(settings, dict) else None
    return whole_numbers(shape, rank, 1, "chunk shape")


def _key_encoding(told: Any) -> tuple[str, str]:
    """What stands before the numbers of a chunk, and between them."""
    name = told if isinstance(told, str) else told.get("name") if isinstance(told, dict) else None
    settings = told.get("configuration", {}) if isinstance(told, dict) else {}
    if name not in ("default", "v2") or not isinstance(settings, dict):
        raise ValueError(f"its chunk keys must be made like 'default' or 'v2'; they are {str(told)[:80]!r}")
    separator = settings.get("separator", "/" if name == "default" else ".")
    if separator not in (".", "/"):
        raise ValueError(f"its separator must be '.' or '/'; it is {str(separator)[:40]!r}")
    return ("c" if name == "default" else ""), separator

"""What a Zarr store of format 2 or 3 says about its arrays, checked before anything is made of it."""

import base64
import dataclasses
import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .series import DatasetError
from .zarr_chunks import Chain, Shards, chain_of_2, chain_of_3, whole_numbers
from .zarr_codecs import OBJECTS, NotReadError, plain_dtype
from .zarr_stores import AbstractStore

SPARSE = 1 << 26
"""Bytes that an array may declare without storing them: chunks that hold only the fill value are often left out."""
RATIO = 40_000
"""Zstandard makes at most 32,768 bytes of one."""
_LONGEST = 1 << 24  # bytes of metadata: a tree of JSON takes up to twenty times as much memory
_DIMENSIONS = "_ARRAY_DIMENSIONS"
_OTHER_2 = re.compile(r"[<>|]([SU]\d{1,4}|[mM]8\[(s|ms|us|ns|D|h|m)\])")
_KINDS_3 = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)")
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


@dataclasses.dataclass(frozen=True)
class Contents:
    """The arrays at the top of a store and its attributes; groups below it are left alone."""

    arrays: dict[str, StoredArray]
    attributes: dict[str, Any]


def read_contents(store: AbstractStore) -> Contents:
    """All metadata of a store. What contradicts itself is refused; what is only unknown is noted, and refused when read."""
    root = _json(store, "zarr.json")
    if root is not None:
        if root.get("zarr_format") != 3 or root.get("node_type") != "group":
            raise _no_group(store, root)
        arrays = _arrays_3(store)
        listed, attributes = _listed_3(root.get("consolidated_metadata")), root.get("attributes", {})
    else:
        group = _json(store, ".zgroup")
        if group is None:
            raise _no_group(store, _json(store, ".zarray"))
        if group.get("zarr_format") != 2:
            raise _no_group(store, group)
        arrays = _arrays_2(store)
        listed, attributes = _listed_2(_json(store, ".zmetadata")), _json(store, ".zattrs") or {}
    lost = sorted(listed - set(arrays))
    if lost:
        raise DatasetError(
            f"{store.path}: the list of its arrays names {lost[0][:60]!r}, which is not there. The store is incomplete."
        )
    if not isinstance(attributes, dict):
        raise DatasetError(
            f"{store.path}: its attributes must be an object; they are {str(attributes)[:80]!r}."
        )
    _check_dimensions(store, arrays)
    return Contents(arrays, attributes)


def _no_group(store: AbstractStore, found: Mapping[str, Any] | None) -> DatasetError:
    if found is None:
        why = "it is no Zarr store: there is neither 'zarr.json' nor '.zgroup' in it"
    elif found.get("node_type") == "array" or "shape" in found:
        why = "it is a single array; a data set is a group of them, with their coordinates"
    else:
        why = f"it must be a group of Zarr format 2 or 3; its format is {str(found.get('zarr_format'))[:40]!r}"
    return DatasetError(f"{store.path}: {why}.")


def _json(store: AbstractStore, key: str) -> dict[str, Any] | None:
    """The object in a file of metadata; None where there is no such file."""
    size = store.size(key)
    if size is None:
        return None
    if size > _LONGEST:
        raise DatasetError(f"{store.path}: {key!r} has {size:,} bytes; metadata have at most {_LONGEST:,}.")
    try:
        found = json.loads(store.read(key))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(
            f"{store.path}: {key!r} is no JSON ({str(error)[:100]}). The store is damaged."
        ) from error
    if not isinstance(found, dict):
        raise DatasetError(f"{store.path}: {key!r} must hold an object. The store is damaged.")
    return found


def _listed_3(told: Any) -> set[str]:
    entries = told.get("metadata") if isinstance(told, dict) else None
    named = entries.items() if isinstance(entries, dict) else ()
    return {
        name
        for name, one in named
        if isinstance(one, dict) and one.get("node_type") == "array" and "/" not in name
    }


def _listed_2(told: Any) -> set[str]:
    entries = told.get("metadata") if isinstance(told, dict) else None
    keys = [str(key) for key in entries] if isinstance(entries, dict) else []
    return {key[: -len("/.zarray")] for key in keys if key.endswith("/.zarray") and key.count("/") == 1}


def _arrays_3(store: AbstractStore) -> dict[str, StoredArray]:
    found = {}
    for name in store.folders():
        told = _json(store, f"{name}/zarr.json")
        if told is not None and told.get("node_type") == "array":
            found[name] = _array(store, name, told, told.get("attributes", {}), _parsed_3)
    return found


def _arrays_2(store: AbstractStore) -> dict[str, StoredArray]:
    found = {}
    for name in store.folders():
        told = _json(store, f"{name}/.zarray")
        if told is not None:
            found[name] = _array(store, name, told, _json(store, f"{name}/.zattrs") or {}, _parsed_2)
    return found


def _array(store: AbstractStore, name: str, told: dict[str, Any], attributes: Any, parse: Any) -> StoredArray:
    where = f"{store.path}: variable {name[:60]!r}"
    try:
        if not isinstance(attributes, dict):
            raise ValueError(f"its attributes must be an object; they are {str(attributes)[:80]!r}")
        shape = whole_numbers(told.get("shape"), None, 0, "shape")
        blank = tuple(f"{name}_{axis}" for axis in range(len(shape)))
        try:
            found = parse(name, told, shape, dict(attributes))
        except NotReadError as error:
            return StoredArray(name, shape, blank, np.dtype("f4"), {}, reason=str(error))
        _check_size(store, found)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{where}: {error}. The store is damaged.") from error
    return found


def _check_size(store: AbstractStore, found: StoredArray) -> None:
    """Refuse an array that is larger than what is stored can make."""
    if found.nbytes > SPARSE:
        enough = -(-(found.nbytes - SPARSE) // RATIO)
        held = store.stored(found.name, enough)[1]
        if held < enough:
            raise ValueError(f"it declares {found.nbytes:,} bytes, of which the store holds {held:,}")


def _check_dimensions(store: AbstractStore, arrays: dict[str, StoredArray]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for array in arrays.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            known, first = sizes.setdefault(dim, (size, array.name))
            if known != size:
                raise DatasetError(
                    f"{store.path}: dimension {dim[:60]!r} has {known:,} values in variable {first!r} and {size:,} in "
                    f"{array.name!r}. The store is damaged."
                )


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


def _parsed_2(name: str, told: dict[str, Any], shape: tuple[int, ...], attributes: dict[str, Any]) -> Any:
    if told.get("zarr_format") != 2:
        raise ValueError(f"its format must be 2 like the store's; it is {str(told.get('zarr_format'))[:40]!r}")
    dtype = _dtype_2(told)
    chunks = whole_numbers(told.get("chunks"), len(shape), 1, "chunks")
    separator = told.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise ValueError(f"its dimension separator must be '.' or '/'; it is {str(separator)[:40]!r}")
    chain = chain_of_2(told, dtype, chunks)
    dims = _dimensions(attributes.pop(_DIMENSIONS, None), shape, _DIMENSIONS)
    fill = None if told.get("fill_value") is None else _fill(told["fill_value"], dtype)
    if fill is not None and dtype.kind in "iuf":  # as xarray takes it: it marks missing values
        attributes["_FillValue"] = fill
    return StoredArray(
        name, shape, dims, _native(dtype), attributes, fill, fill is not None, chunks, chain, None, "", separator
    )


def _parsed_3(name: str, told: dict[str, Any], shape: tuple[int, ...], attributes: dict[str, Any]) -> Any:
    if told.get("zarr_format") != 3:
        raise ValueError(f"its format must be 3 like the store's; it is {str(told.get('zarr_format'))[:40]!r}")
    for key, value in told.items():
        if key not in _KEYS_3 and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise NotReadError(f"its metadata say {key[:40]!r}, which is not known")
    if told.get("storage_transformers"):
        raise NotReadError("its metadata name storage transformers, which are not known")
    dtype = _dtype_3(told.get("data_type"))
    chunks = _chunk_shape(told.get("chunk_grid"), len(shape))
    prefix, separator = _key_encoding(told.get("chunk_key_encoding"))
    chain, shards = chain_of_3(told.get("codecs"), dtype, chunks)
    dims = _dimensions(told.get("dimension_names"), shape, "dimension_names")
    if told.get("fill_value") is None:
        raise ValueError("it has no fill value")
    fill = _fill(told["fill_value"], dtype)
    marks = [_mark(attributes, word, dtype) for word in ("_FillValue", "missing_value")]
    marked = _is_nan(fill) or any(
        mark is not None and (mark == fill or (_is_nan(mark) and _is_nan(fill))) for mark in marks
    )
    return StoredArray(
        name, shape, dims, _native(dtype), attributes, fill, marked, chunks, chain, shards, prefix, separator
    )


def _native(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("=")


def _dtype_2(told: Mapping[str, Any]) -> np.dtype:
    text = told.get("dtype")
    if isinstance(text, list):
        raise NotReadError("it holds records of several numbers, which are not read")
    if text == "|O":
        filters = told.get("filters")
        names = [str(one.get("id")) for one in filters or [] if isinstance(one, dict)]
        named = next((name for name in names if name in OBJECTS), "an unknown codec")
        raise NotReadError(f"it holds objects packed with {named!r}, which is never run")
    if isinstance(text, str) and _OTHER_2.fullmatch(text):
        return np.dtype(text)
    return plain_dtype(text)


def _dtype_3(told: Any) -> np.dtype:
    if isinstance(told, str) and _KINDS_3.fullmatch(told):
        return np.dtype(told)
    settings = told.get("configuration") if isinstance(told, dict) else None
    if isinstance(told, dict) and isinstance(settings, dict):
        length, unit, factor = settings.get("length_bytes"), settings.get("unit"), settings.get("scale_factor")
        if told.get("name") == "fixed_length_utf32" and type(length) is int and 4 <= length <= 40_000:
            return np.dtype(f"U{length // 4}")
        known = told.get("name") in ("numpy.datetime64", "numpy.timedelta64") and factor == 1
        if known and unit in ("s", "ms", "us", "ns", "D", "h", "m"):
            return np.dtype(f"{'M' if told['name'] == 'numpy.datetime64' else 'm'}8[{unit}]")
    if isinstance(told, str | dict):
        raise NotReadError(f"it holds values of the type {str(told)[:80]!r}, which are not read")
    raise ValueError(f"its data type must be a name; it is {str(told)[:80]!r}")


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


def _is_nan(value: Any) -> bool:
    return isinstance(value, np.floating | np.complexfloating) and bool(np.isnan(value))


def _mark(attributes: dict[str, Any], word: str, dtype: np.dtype) -> Any:
    """The value of an attribute that marks missing values. xarray writes that of floating-point numbers in base64."""
    value = attributes.get(word)
    if value is None or isinstance(value, list | dict):
        return None
    try:
        if isinstance(value, str) and dtype.kind == "f" and value not in _WORDS:
            value = struct.unpack("<d", base64.standard_b64decode(value))[0]
        attributes[word] = _fill(value, dtype)
    except (ValueError, struct.error) as error:
        raise ValueError(f"its attribute {word!r} is {str(value)[:60]!r}, which is no {dtype}") from error
    return attributes[word]


_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _fill(value: Any, dtype: np.dtype) -> Any:
    """A fill value as JSON spells it, as a number of the array's type."""
    kind = dtype.kind
    try:
        if kind == "f" and isinstance(value, str) and value in _WORDS:
            value = _WORDS[value]
        elif kind == "f" and isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
            raw = bytes.fromhex(value[2:].zfill(2 * dtype.itemsize))
            return np.frombuffer(raw, dtype.newbyteorder(">"))[0].astype(_native(dtype))
        elif kind == "c" and isinstance(value, list) and len(value) == 2:
            value = complex(*(_WORDS.get(part, part) if isinstance(part, str) else part for part in value))
        elif kind in "SU" and value in (0, "0", ""):
            return np.zeros((), _native(dtype))[()]
        elif kind == "S" and isinstance(value, str):
            return np.asarray(base64.standard_b64decode(value), _native(dtype))[()]
        elif kind in "mM" and (value == "NaT" or type(value) is int):
            return np.int64(-(2**63) if value == "NaT" else value).view(_native(dtype))
        elif kind in "iu" and isinstance(value, float) and value.is_integer():
            value = int(value)
        plain = {"b": bool | int, "i": int, "u": int, "f": int | float, "c": int | float | complex, "U": str}
        if not isinstance(value, plain[kind]) or (isinstance(value, bool) and kind != "b"):
            raise TypeError
        if kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise OverflowError
        with np.errstate(over="ignore"):
            return np.asarray(value, _native(dtype))[()]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its fill value {str(value)[:60]!r} is no {dtype}") from error

"""What a Zarr store of format 2 or 3 holds: its arrays and attributes, checked before anything is made of them."""

import base64
import json
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..files import DatasetError, named_errors
from .arrays import RATIO, SPARSE, Missing, StoredArray
from .encoding import UnsupportedError, Version, array_encoding, whole_numbers
from .files import StoreFiles

_LONGEST = 1 << 24  # bytes of metadata: a tree of JSON takes up to twenty times as much memory


def read_contents(
    files: StoreFiles, missing: Missing = "land"
) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    """The arrays at the top of a store and its attributes; groups below it are left alone.

    What contradicts itself is refused; what is only unknown is noted, and refused when read.
    """
    group, version = _json(files, "zarr.json"), 3
    if group is None:
        group, version = _json(files, ".zgroup"), 2
    if (
        group is None
        or group.get("zarr_format") != version
        or (version == 3 and group.get("node_type") != "group")
    ):
        raise _no_group(files, _json(files, ".zarray") if group is None else group)
    arrays = {name: _array(files, name, version, missing) for name in files.folders()}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if version == 3:
        listed, attributes = group.get("consolidated_metadata"), group.get("attributes", {})
    else:
        listed, attributes = _json(files, ".zmetadata"), _json(files, ".zattrs") or {}
    lost = sorted(_names_listed(listed, version) - set(arrays))
    if lost:
        raise DatasetError(
            f"{files.path}: the list of its arrays names {lost[0][:60]!r}, which is not there. The store is incomplete."
        )
    if not isinstance(attributes, dict):
        raise DatasetError(
            f"{files.path}: its attributes must be an object; they are {str(attributes)[:80]!r}."
        )
    _check_dimensions(files, arrays)
    return arrays, attributes


def _no_group(files: StoreFiles, found: Mapping[str, Any] | None) -> DatasetError:
    if found is None:
        why = "it is no Zarr store: there is neither 'zarr.json' nor '.zgroup' in it"
    elif found.get("node_type") == "array" or "shape" in found:
        why = "it is a single array; a data set is a group of them, with their coordinates"
    else:
        why = (
            f"it must be a group of Zarr format 2 or 3; its format is {str(found.get('zarr_format'))[:40]!r}"
        )
    return DatasetError(f"{files.path}: {why}.")


def _json(files: StoreFiles, key: str) -> dict[str, Any] | None:
    """The object in a file of metadata; None where there is no such file."""
    size = files.size(key)
    if size is None:
        return None
    if size > _LONGEST:
        raise DatasetError(f"{files.path}: {key!r} has {size:,} bytes; metadata have at most {_LONGEST:,}.")
    kinds = (ValueError, RecursionError)
    with named_errors(f"{files.path}: {key!r} is no JSON", kinds, " The store is damaged.", 100):
        found = json.loads(files.read(key))
    if not isinstance(found, dict):
        raise DatasetError(f"{files.path}: {key!r} must hold an object. The store is damaged.")
    return found


def _names_listed(told: Any, version: Version) -> set[str]:
    """The arrays at the top that consolidated metadata list."""
    entries = told.get("metadata") if isinstance(told, dict) else None
    named = entries.items() if isinstance(entries, dict) else ()
    if version == 2:
        return {key.removesuffix("/.zarray") for key, _ in named if re.fullmatch("[^/]*/[.]zarray", key)}
    return {
        name
        for name, one in named
        if isinstance(one, dict) and one.get("node_type") == "array" and "/" not in name
    }


def _array(files: StoreFiles, name: str, version: Version, missing: Missing) -> StoredArray | None:
    """An array from its metadata; None where a folder holds none."""
    told = _json(files, f"{name}/{'.zarray' if version == 2 else 'zarr.json'}")
    if told is None or (version == 3 and told.get("node_type") != "array"):
        return None
    if version == 2:
        attributes, where = _json(files, f"{name}/.zattrs") or {}, "_ARRAY_DIMENSIONS"
        names = attributes.pop(where, None)
    else:
        attributes, where = told.get("attributes", {}), "dimension_names"
        names = told.get(where)
    kinds = (ValueError, OverflowError)
    with named_errors(f"{files.path}: variable {name[:60]!r}", kinds, " The store is damaged."):
        if not isinstance(attributes, dict):
            raise ValueError(f"its attributes must be an object; they are {str(attributes)[:80]!r}")
        shape = whole_numbers(told.get("shape"), None, 0, "shape")
        blank = tuple(f"{name}_{axis}" for axis in range(len(shape)))
        found = StoredArray(files, name, shape, blank, dict(attributes), missing)
        try:
            encoding = array_encoding(told, shape, version)
            found.dims = _dimensions(names, shape, where)
            found.open(encoding)
            _mark(found, told)
            found.reason = _too_large(found)
        except UnsupportedError as error:
            found.reason = str(error)
        return found


def _mark(found: StoredArray, told: dict[str, Any]) -> None:
    """Find out whether the fill value marks missing values, and have the attributes say so as NetCDF does."""
    kind = found.dtype.kind
    if told["zarr_format"] == 2:
        found.fill = None if told.get("fill_value") is None else found.fill
        found.marked = found.fill is not None
        if found.marked and kind in "iuf":  # as xarray takes it: it marks missing values
            found.attributes["_FillValue"] = found.fill
        return
    marks = [_missing_mark(found, word) for word in ("_FillValue", "missing_value")]
    same = [mark is not None and np.array_equal(mark, found.fill, equal_nan=kind in "fc") for mark in marks]
    found.marked = any(same) or (kind in "fc" and bool(np.isnan(found.fill)))


def _missing_mark(found: StoredArray, word: str) -> Any:
    """The attribute that marks missing values as a value of the array's type, which it then is among the attributes.

    xarray writes that of floating-point numbers in format 3 as eight bytes in base64.
    """
    value, kind = found.attributes.get(word), found.dtype.kind
    if value is None or isinstance(value, list | dict):
        return None
    try:
        if kind == "f" and isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        with np.errstate(over="ignore"):
            mark = np.asarray(value).astype(found.dtype)[()]
        if kind in "biu" and mark != value:
            raise ValueError
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise UnsupportedError(
            f"its attribute {word!r} is {str(value)[:60]!r}, which is no {found.dtype}"
        ) from error
    found.attributes[word] = mark
    return mark


def _dimensions(told: Any, shape: tuple[int, ...], where: str) -> tuple[str, ...]:
    if told is None and not shape:
        return ()
    if told is None:
        raise UnsupportedError(f"it does not name its dimensions ({where})")
    if not isinstance(told, list) or len(told) != len(shape):
        raise ValueError(f"its {where} must name {len(shape)} dimensions; it is {str(told)[:80]!r}")
    if not all(isinstance(one, str) for one in told) or len(set(told)) < len(told):
        raise UnsupportedError(
            f"its dimensions {str(told)[:80]} are not all named, or not by names of their own"
        )
    return tuple(told)


def _too_large(found: StoredArray) -> str:
    """Why an array is larger than what is stored can make; empty where it is not. One that nobody asks for may be unwritten."""
    enough = -(-(found.nbytes - SPARSE) // RATIO)
    held = found.files.count_stored(found.name, enough)[1] if enough > 0 else 0
    if held >= enough:
        return ""
    return f"it declares {found.nbytes:,} bytes, of which the store holds {held:,}"


def _check_dimensions(files: StoreFiles, arrays: dict[str, StoredArray]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for array in arrays.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            known, first = sizes.setdefault(dim, (size, array.name))
            if known != size:
                raise DatasetError(
                    f"{files.path}: dimension {dim[:60]!r} has {known:,} values in variable {first!r} and {size:,} in "
                    f"{array.name!r}. The store is damaged."
                )

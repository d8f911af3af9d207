"""What a Zarr store of format 2 or 3 holds: its arrays and attributes, checked before anything is made of them."""

import base64
import dataclasses
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..files import DatasetError
from .arrays import RATIO, SPARSE, Missing, StoredArray
from .encoding import encoding_2, encoding_3
from .files import AbstractFiles
from .guard import UnsupportedError, whole_numbers

_DIMENSIONS = "_ARRAY_DIMENSIONS"
_LONGEST = 1 << 24  # bytes of metadata: a tree of JSON takes up to twenty times as much memory


@dataclasses.dataclass(frozen=True)
class Contents:
    """The arrays at the top of a store and its attributes; groups below it are left alone."""

    arrays: dict[str, StoredArray]
    attributes: dict[str, Any]


def read_contents(files: AbstractFiles, missing: Missing = "land") -> Contents:
    """All metadata of a store. What contradicts itself is refused; what is only unknown is noted, and refused when read."""
    root = _json(files, "zarr.json")
    if root is not None:
        if root.get("zarr_format") != 3 or root.get("node_type") != "group":
            raise _no_group(files, root)
        arrays = _arrays_3(files, missing)
        listed, attributes = _listed_3(root.get("consolidated_metadata")), root.get("attributes", {})
    else:
        group = _json(files, ".zgroup")
        if group is None:
            raise _no_group(files, _json(files, ".zarray"))
        if group.get("zarr_format") != 2:
            raise _no_group(files, group)
        arrays = _arrays_2(files, missing)
        listed, attributes = _listed_2(_json(files, ".zmetadata")), _json(files, ".zattrs") or {}
    lost = sorted(listed - set(arrays))
    if lost:
        raise DatasetError(
            f"{files.path}: the list of its arrays names {lost[0][:60]!r}, which is not there. The store is incomplete."
        )
    if not isinstance(attributes, dict):
        raise DatasetError(
            f"{files.path}: its attributes must be an object; they are {str(attributes)[:80]!r}."
        )
    _check_dimensions(files, arrays)
    return Contents(arrays, attributes)


def _no_group(files: AbstractFiles, found: Mapping[str, Any] | None) -> DatasetError:
    if found is None:
        why = "it is no Zarr store: there is neither 'zarr.json' nor '.zgroup' in it"
    elif found.get("node_type") == "array" or "shape" in found:
        why = "it is a single array; a data set is a group of them, with their coordinates"
    else:
        why = (
            f"it must be a group of Zarr format 2 or 3; its format is {str(found.get('zarr_format'))[:40]!r}"
        )
    return DatasetError(f"{files.path}: {why}.")


def _json(files: AbstractFiles, key: str) -> dict[str, Any] | None:
    """The object in a file of metadata; None where there is no such file."""
    size = files.size(key)
    if size is None:
        return None
    if size > _LONGEST:
        raise DatasetError(f"{files.path}: {key!r} has {size:,} bytes; metadata have at most {_LONGEST:,}.")
    try:
        found = json.loads(files.read(key))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(
            f"{files.path}: {key!r} is no JSON ({str(error)[:100]}). The store is damaged."
        ) from error
    if not isinstance(found, dict):
        raise DatasetError(f"{files.path}: {key!r} must hold an object. The store is damaged.")
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


def _arrays_3(files: AbstractFiles, missing: Missing) -> dict[str, StoredArray]:
    found = {}
    for name in files.folders():
        told = _json(files, f"{name}/zarr.json")
        if told is not None and told.get("node_type") == "array":
            dims = told.get("dimension_names"), "dimension_names"
            found[name] = _array(files, name, told, (told.get("attributes", {}), *dims), missing)
    return found


def _arrays_2(files: AbstractFiles, missing: Missing) -> dict[str, StoredArray]:
    found = {}
    for name in files.folders():
        told = _json(files, f"{name}/.zarray")
        if told is not None:
            attributes = _json(files, f"{name}/.zattrs") or {}
            dims = attributes.pop(_DIMENSIONS, None), _DIMENSIONS
            found[name] = _array(files, name, told, (attributes, *dims), missing)
    return found


def _array(
    files: AbstractFiles, name: str, told: dict[str, Any], beside: tuple[Any, Any, str], missing: Missing
) -> StoredArray:
    """An array from its metadata; beside them its attributes, the names of its dimensions, and where those stand."""
    attributes, names, where = beside
    try:
        if not isinstance(attributes, dict):
            raise ValueError(f"its attributes must be an object; they are {str(attributes)[:80]!r}")
        shape = whole_numbers(told.get("shape"), None, 0, "shape")
        blank = tuple(f"{name}_{axis}" for axis in range(len(shape)))
        found = StoredArray(files, name, shape, blank, dict(attributes), missing)
        try:
            encoding = encoding_2(told, shape) if where == _DIMENSIONS else encoding_3(told, shape)
            found.dims = _dimensions(names, shape, where)
            found.open(encoding)
            _mark(found, told)
            found.reason = _too_large(found)
        except UnsupportedError as error:
            found.reason = str(error)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{files.path}: variable {name[:60]!r}: {error}. The store is damaged.") from error
    return found


def _mark(found: StoredArray, told: dict[str, Any]) -> None:
    """Find out whether the fill value marks missing values, and have the attributes say so as NetCDF does."""
    if told["zarr_format"] == 2:
        found.fill = None if told.get("fill_value") is None else found.fill
        found.marked = found.fill is not None
        if found.marked and found.dtype.kind in "iuf":  # as xarray takes it: it marks missing values
            found.attributes["_FillValue"] = found.fill
        return
    for word in ("_FillValue", "missing_value"):
        mark = _missing_mark(found, word)
        found.marked |= mark is not None and np.array_equal(
            mark, found.fill, equal_nan=found.dtype.kind in "fc"
        )
    found.marked |= found.dtype.kind in "fc" and bool(np.isnan(found.fill))


def _missing_mark(found: StoredArray, word: str) -> Any:
    """The attribute that marks missing values as a value of the array's type, which it then is among the attributes.

    xarray writes that of floating-point numbers in format 3 as eight bytes in base64.
    """
    value = found.attributes.get(word)
    if value is None or isinstance(value, list | dict):
        return None
    try:
        if (
            isinstance(value, str)
            and found.dtype.kind == "f"
            and value not in ("NaN", "Infinity", "-Infinity")
        ):
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        with np.errstate(over="ignore"):
            mark = np.asarray(value).astype(found.dtype)[()]
        if found.dtype.kind in "biu" and mark != value:
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
    held = found.files.stored(found.name, enough)[1] if enough > 0 else 0
    if held >= enough:
        return ""
    return f"it declares {found.nbytes:,} bytes, of which the store holds {held:,}"


def _check_dimensions(files: AbstractFiles, arrays: dict[str, StoredArray]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for array in arrays.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            known, first = sizes.setdefault(dim, (size, array.name))
            if known != size:
                raise DatasetError(
                    f"{files.path}: dimension {dim[:60]!r} has {known:,} values in variable {first!r} and {size:,} in "
                    f"{array.name!r}. The store is damaged."
                )

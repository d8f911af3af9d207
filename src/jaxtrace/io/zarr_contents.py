"""What a Zarr store of format 2 or 3 holds: its arrays and attributes, checked before anything is made of them."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .series import DatasetError
from .zarr_chunks import whole_numbers
from .zarr_codecs import NotReadError
from .zarr_metadata import RATIO, SPARSE, StoredArray, array_of_2, array_of_3
from .zarr_stores import AbstractStore

_LONGEST = 1 << 24  # bytes of metadata: a tree of JSON takes up to twenty times as much memory


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
        why = (
            f"it must be a group of Zarr format 2 or 3; its format is {str(found.get('zarr_format'))[:40]!r}"
        )
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
            found[name] = _array(store, name, told, told.get("attributes", {}), array_of_3)
    return found


def _arrays_2(store: AbstractStore) -> dict[str, StoredArray]:
    found = {}
    for name in store.folders():
        told = _json(store, f"{name}/.zarray")
        if told is not None:
            found[name] = _array(store, name, told, _json(store, f"{name}/.zattrs") or {}, array_of_2)
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
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{where}: {error}. The store is damaged.") from error
    return dataclasses.replace(found, reason=_too_large(store, found))


def _too_large(store: AbstractStore, found: StoredArray) -> str:
    """Why an array is larger than what is stored can make; empty where it is not. One that nobody asks for may be unwritten."""
    enough = -(-(found.nbytes - SPARSE) // RATIO)
    held = store.stored(found.name, enough)[1] if enough > 0 else 0
    if held >= enough:
        return ""
    return f"it declares {found.nbytes:,} bytes, of which the store holds {held:,}"


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

"""Zarr stores as data sets: what is in them by the rules for NetCDF, read chunk by chunk on request."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .cf_attributes import numbers_checked
from .cf_moments import Source
from .opened import OpenedDataset, Options
from .series import DatasetError
from .xarray_reading import READING_ERRORS, open_sources
from .zarr_arrays import ArrayReader
from .zarr_contents import read_contents
from .zarr_metadata import StoredArray
from .zarr_stores import open_store


@dataclasses.dataclass(frozen=True)
class StoreData:
    """The variables of a store and its attributes, as a data set of xarray has them; values are read on request.

    `refused` holds the variables that cannot be read, each with the reason.
    """

    variables: dict[str, Any]
    attrs: dict[str, Any]
    refused: dict[str, str]


def open_zarr(paths: Sequence[Path], options: Options) -> OpenedDataset:
    """Open Zarr stores; each may hold several times, or one of the components."""
    found = [(str(path), open_data(path, options.missing)) for path in paths]
    return open_sources([Source(name, data, data.refused) for name, data in found], options)


def open_data(path: Path, missing: str = "land") -> StoreData:
    """A Zarr store with its variables decoded by the CF conventions, times left as they are.

    Chunks that are not stored hold the fill value. Where that does not mark a missing value, reading one is an error
    unless `missing` is "fill", or "zero" and the fill value 0.
    """
    try:
        from xarray import Variable
        from xarray.conventions import decode_cf_variable
        from xarray.core.indexing import LazilyIndexedArray
    except ImportError as error:
        raise ImportError('Zarr stores need the package xarray: pip install "jaxworlds[trace]".') from error
    store = open_store(path)
    contents = read_contents(store)
    variables = {}
    for name, array in contents.arrays.items():
        filled = missing == "fill" or (missing == "zero" and _is_zero(array))
        lazy = LazilyIndexedArray(_lazy_type()(ArrayReader(store, array, filled)))
        try:
            raw = Variable(array.dims, lazy, numbers_checked(array.attributes))
            variables[name] = decode_cf_variable(
                name, raw, concat_characters=False, decode_times=False, stack_char_dim=False
            )
        except READING_ERRORS as error:
            raise DatasetError(
                f"{path}: variable {name[:60]!r}: its attributes cannot be used: {str(error)[:200]}. The store is damaged."
            ) from error
    refused = {name: array.reason for name, array in contents.arrays.items() if array.reason}
    return StoreData(variables, contents.attributes, refused)


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """All values of a store as they are stored, its attributes, and those of its time. A chunk that is not there is an error."""
    store = open_store(path)
    contents = read_contents(store)
    bare = (
        (name, dataclasses.replace(array, fill=None, marked=False)) for name, array in contents.arrays.items()
    )
    clock = contents.arrays["time"].attributes if "time" in contents.arrays else {}
    return {name: ArrayReader(store, array).read() for name, array in bare}, contents.attributes, clock


def attributes_of(path: Path) -> dict[str, Any]:
    """The attributes of a store."""
    return read_contents(open_store(path)).attributes


def _is_zero(array: StoredArray) -> bool:
    """Whether the fill value means the number 0."""
    return bool(array.fill == 0) and not array.attributes.get("add_offset")


@functools.cache
def _lazy_type() -> Any:
    """What xarray asks for values; a class of its own, made when xarray is there."""
    from xarray.backends import BackendArray
    from xarray.core.indexing import IndexingSupport, explicit_indexing_adapter

    class OnStore(BackendArray):
        def __init__(self, reader: ArrayReader) -> None:
            self.reader, self.shape, self.dtype = reader, reader.shape, reader.dtype

        def __getitem__(self, key: Any) -> Any:
            return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self.reader.read)

    return OnStore

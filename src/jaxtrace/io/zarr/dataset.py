"""Zarr stores as data sets: what is in them by the rules for NetCDF, read chunk by chunk on request."""

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..cf.attributes import numbers_checked
from ..cf.dataset import READING_ERRORS, open_sources
from ..cf.times import NamedDataset
from ..files import named_errors, naming_package
from ..slices import OpenedDataset, ReadOptions
from .arrays import Missing, StoredArray
from .contents import read_contents
from .files import open_files


@dataclasses.dataclass(frozen=True)
class StoreData:
    """The variables of a store and its attributes, as a data set of xarray has them; values are read on request.

    `refused` holds the variables that cannot be read, each with the reason.
    """

    variables: dict[str, Any]
    attrs: dict[str, Any]
    refused: dict[str, str]


def open_zarr(paths: Sequence[Path], options: ReadOptions) -> OpenedDataset:
    """Open Zarr stores; each may hold several times, or one of the components."""
    found = [(str(path), open_data(path, options.missing)) for path in paths]
    return open_sources([NamedDataset(name, data, data.refused) for name, data in found], options)


def open_data(path: Path, missing: Missing = "land") -> StoreData:
    """A Zarr store with its variables decoded by the CF conventions, times left as they are.

    Chunks that are not stored hold the fill value. Where that does not mark a missing value, reading one is an error
    unless `missing` is "fill", or "zero" and the fill value 0.
    """
    arrays, attributes = _contents(path, missing)
    from xarray import Variable
    from xarray.conventions import decode_cf_variable
    from xarray.core.indexing import LazilyIndexedArray

    variables = {}
    for name, array in arrays.items():
        where = f"{path}: variable {name[:60]!r}: its attributes cannot be used"
        with named_errors(where, READING_ERRORS, " The store is damaged.", 200):
            lazy = LazilyIndexedArray(_lazy_type()(array))
            raw = Variable(array.dims, lazy, numbers_checked(array.attributes))
            variables[name] = decode_cf_variable(
                name, raw, concat_characters=False, decode_times=False, stack_char_dim=False
            )
    refused = {name: array.reason for name, array in arrays.items() if array.reason}
    return StoreData(variables, attributes, refused)


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """All values of a store as they are stored, its attributes, and those of its time. A chunk that is not there is an error."""
    arrays, attributes = _contents(path, "refuse")
    clock = arrays["time"].attributes if "time" in arrays else {}
    return {name: array.read() for name, array in arrays.items()}, attributes, clock


def attributes_of(path: Path) -> dict[str, Any]:
    """The attributes of a store."""
    return _contents(path, "refuse")[1]


def _contents(path: Path, missing: Missing) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    with naming_package("Zarr stores need zarr and xarray"):
        import numcodecs  # noqa: F401
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of types and codecs that have no specification
        return read_contents(open_files(path), missing)


@functools.cache
def _lazy_type() -> Any:
    """What xarray asks for values; a class of its own, made when xarray is there."""
    from xarray.backends import BackendArray
    from xarray.core.indexing import IndexingSupport, explicit_indexing_adapter

    class OnStore(BackendArray):
        def __init__(self, array: StoredArray) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, key: Any) -> Any:
            return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self.array.read)

    return OnStore

"""Sizes that NetCDF files declare, checked against their length before a library allocates memory for them."""

import math
import os
import re
import struct
from pathlib import Path
from typing import Any

from ..files import DatasetError

SPARSE = 1 << 26
"""Bytes that a variable may declare without holding them: it may have parts that were never written."""
RATIO = 1100
"""Deflate expands one byte to at most 1,032."""
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8}


def check_hdf5(path: Path) -> None:
    """Refuse variables of NetCDF 4 that are larger than the file can hold, or lie in other files."""
    import h5py

    size = os.path.getsize(path)
    _check_heaps(path, size)
    with h5py.File(path, "r") as file:
        for name in map(str, file):
            where = f"{path}: variable {name[:60]!r}"
            link = file.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise DatasetError(
                    f"{where} lies in another file ({link.filename[:80]!r}), which is not followed."
                )
            if isinstance(link, h5py.SoftLink) and name not in file:
                raise DatasetError(f"{where} is a link to nothing. The file is damaged.")
            if isinstance(found := file[name], h5py.Dataset):
                _check_variable(where, found, size)


def _check_heaps(path: Path, size: int) -> None:
    """Refuse broken heaps, in which HDF5 would walk from object to object for ever (h5py 3.16).

    They lie among the metadata; of a large file only the beginning and the end are looked at.
    """
    half = SPARSE // 2
    with open(path, "rb") as file:
        for start in (0, max(size - half, half) // 8 * 8) if size > half else (0,):
            file.seek(start)
            data = file.read(half)
            for found in re.finditer(re.escape(_HEAP), data):
                if not _walks(data, found.start()):
                    raise DatasetError(
                        f"{path}: the heap at byte {start + found.start()} is broken. The file is damaged."
                    )


_HEAP = b"GCOL\1\0\0\0"


def _walks(data: bytes, at: int) -> bool:
    """Whether the objects of a heap lead from its beginning to its end; true if the end is not in `data`."""
    if len(data) - at < 16:
        return True
    length = int.from_bytes(data[at + 8 : at + 16], "little")
    end, at = at + length, at + 16
    while length >= 16 and end - at >= 16:
        if at + 16 > len(data):
            return True
        number = int.from_bytes(data[at : at + 2], "little")
        own = int.from_bytes(data[at + 8 : at + 16], "little")
        step = 16 + -(-own // 8) * 8 if number else own
        if not 16 <= step <= end - at or (number == 0 and step != end - at):
            return False
        at += step
    return length >= 16


def _check_variable(where: str, found: Any, size: int) -> None:
    if found.external or found.is_virtual:
        raise DatasetError(f"{where} lies in other files, which are not followed.")
    declared = math.prod(found.shape or ()) * found.dtype.itemsize
    held = min(int(found.id.get_storage_size()), size)
    if declared > SPARSE + RATIO * held:
        raise DatasetError(
            f"{where} declares {declared:,} bytes, of which the file holds {held:,}. It is damaged."
        )
    chunk = math.prod(found.chunks or ()) * found.dtype.itemsize
    if chunk > max(declared, SPARSE + RATIO * size):
        raise DatasetError(
            f"{where} declares chunks of {chunk:,} bytes for {declared:,} in all. It is damaged."
        )


def check_netcdf3(path: Path) -> None:
    """Refuse a NetCDF 3 file whose header is cut off or declares more data than the file holds."""
    try:
        _Header(path).check()
    except struct.error:
        raise DatasetError(f"{path}: the header is cut off.") from None
    except ValueError as error:
        raise DatasetError(f"{path}: {error}. The file is damaged or cut off.") from error


class _Header:
    """The header of a NetCDF 3 file, read word by word."""

    def __init__(self, path: Path):
        self.size = os.path.getsize(path)
        with open(path, "rb") as file:
            # Headers hold names and attributes; one over 64 MB would be the first of its kind.
            self.data = file.read(min(self.size, SPARSE))
        self.at = 4
        self.wide = self.data[3] == 2
        if self.data[3] not in (1, 2):
            raise ValueError(f"it is NetCDF of version {self.data[3]}; versions 1, 2 and 4 are read")

    def check(self) -> None:
        """Read the whole header; ValueError if it contradicts itself or the length of the file."""
        records = self.number()
        dims = [(self.name(), self.number())[1] for _ in range(self.list_length(10))]
        self.attributes()
        variables = []
        for _ in range(self.list_length(11)):
            name = self.name()
            ids = [self.number() for _ in range(self.count(4))]
            if any(one >= len(dims) for one in ids):
                raise ValueError(f"variable {name!r} has a dimension that is not there")
            self.attributes()
            kind, _ = self.kind(), self.number(signed=False)
            begin = struct.unpack_from(">q" if self.wide else ">i", self.data, self.at)[0]
            self.at += 8 if self.wide else 4
            shape = [dims[one] for one in ids]
            own = math.prod(n for k, n in enumerate(shape) if n or k) * kind
            variables.append((name, shape[:1] == [0], own, begin))
        row = sum(-(-own // 4) * 4 for _, recorded, own, _ in variables if recorded)
        for name, recorded, own, begin in variables:
            length = (row * max(records - 1, 0) + own if records else 0) if recorded else own
            if begin < 0 or begin + length > self.size:
                raise ValueError(
                    f"variable {name!r} needs {length:,} bytes from {begin:,} on; the file has {self.size:,}"
                )

    def fault(self, what: str) -> ValueError:
        """What is wrong with the number just read."""
        return ValueError(f"at byte {self.at - 4} of its header {what}")

    def number(self, signed: bool = True) -> int:
        found = struct.unpack_from(">i" if signed else ">I", self.data, self.at)[0]
        self.at += 4
        if found < 0:
            raise self.fault(f"stands {found}")
        return found

    def count(self, width: int) -> int:
        """The number of things that follow, each of at least `width` bytes."""
        found = self.number()
        if found * width > len(self.data) - self.at:
            raise self.fault(f"{found} entries are declared, more than it holds")
        return found

    def skip(self, length: int) -> bytes:
        """The next bytes; they are filled up to whole words."""
        start, self.at = self.at, self.at - (-length // 4) * 4
        return self.data[start : start + length]

    def list_length(self, tag: int) -> int:
        """The length of a list with this tag; 0 if it is absent."""
        found = self.number()
        if found not in (0, tag):
            raise self.fault(f"stands {found} instead of {tag}")
        length = self.count(8)
        if not found and length:
            raise self.fault(f"an absent list has {length} entries")
        return length

    def name(self) -> str:
        try:
            return self.skip(self.count(1)).decode("utf-8")[:60]
        except UnicodeDecodeError:
            raise ValueError(f"at byte {self.at} of its header stands a name that is no text") from None

    def kind(self) -> int:
        """The bytes of one number of the type that is declared."""
        kind = self.number()
        if kind not in _SIZES:
            raise self.fault(f"stands {kind}, which is no type of numbers")
        return _SIZES[kind]

    def attributes(self) -> None:
        for _ in range(self.list_length(12)):
            self.name()
            width = self.kind()
            self.skip(self.count(width) * width)

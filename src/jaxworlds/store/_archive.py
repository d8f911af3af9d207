"""Archives of arrays (`.npz`) read without trust: no size that a file declares is allocated before the file holds it."""

import math
import os
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from ._container import DAMAGED, PathLike, StoreError
from ._mapped import read_npy_header

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ERRORS = (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError)


def read_archive(path: PathLike) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file by name; `StoreError` where one is damaged, of objects, or larger than its file.

    >>> np.savez("figures.npz", speed=np.arange(3.0))  # doctest: +SKIP
    >>> read_archive("figures.npz")["speed"]  # doctest: +SKIP
    array([0., 1., 2.])
    """
    found: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise StoreError(f"{path}: holds {name[:60]!r} twice. {DAMAGED}")
                found[name] = _read_member(path, archive, member)
    except FileNotFoundError:
        raise
    except (*_ERRORS, zipfile.BadZipFile, zlib.error, struct.error) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{path}: must be an .npz archive of arrays; {str(error)[:200]}. {DAMAGED}"
        ) from error
    return found


def _read_member(path: PathLike, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    shown = member.filename[:60]
    if member.compress_type not in _METHODS or member.flag_bits & 1:
        raise StoreError(f"{path}: {shown!r} is packed by an unknown method. {DAMAGED}")
    if member.compress_size > os.path.getsize(path):
        raise StoreError(f"{path}: {shown!r} claims more bytes than the file holds. {DAMAGED}")
    with archive.open(member) as file:
        shape, fortran, dtype = read_npy_header(f"{path}: {shown!r}", file)
        size = dtype.itemsize * math.prod(shape)
        if size > max(member.file_size - 8, 0):
            raise StoreError(
                f"{path}: {shown!r} claims {size} bytes; the file holds {member.file_size}. {DAMAGED}"
            )
        data = _exactly(file, size)
    if data is None:
        raise StoreError(f"{path}: {shown!r} must hold {size} bytes and does not. {DAMAGED}")
    if not size:
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").copy()


def _exactly(file: Any, size: int) -> bytes | None:
    """Read exactly `size` bytes, piece by piece: nothing is allocated before it is read."""
    parts, left = [], size
    while left and (part := file.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return None if left or file.read(1) else b"".join(parts)

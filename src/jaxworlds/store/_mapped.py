"""Arrays in NumPy's files: `.npy` with a checksum after the data, read through memory maps, and `.npz` read without trust."""

import ast
import hashlib
import io
import math
import os
import re
import struct
import zipfile
import zlib
from typing import Any

import jax
import numpy as np

from ._container import DAMAGED, PathLike, StoreError, atomic_write, digest16
from ._leaves import array_bytes

# NumPy ignores bytes after the data, so the file stays readable by `np.load`.
_MARK = b"JXWARRAY"
_TRAILER = len(_MARK) + 16 + 16  # mark, digest of the .npy header, digest of the data
_PLAIN = re.compile(r"[<>|=][biufcUSMm][0-9]{1,9}(\[[0-9]*[a-zA-Z]+\])?")
# What the heads of damaged files raise, and what damaged archives do.
_BAD_HEAD = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError, struct.error)
_ERRORS = (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError)


def save_array(path: PathLike, array: Any) -> None:
    """Write one array as a `.npy` file, atomically. `np.load` reads it; `open_array` maps it.

    The format knows NumPy's own types only: bfloat16, float8, int4, objects and records are a TypeError.
    """
    host = np.asarray(array)
    if host.dtype.kind not in "biufcUSMm" or host.dtype.isbuiltin == 2:
        raise TypeError(
            f"`array` must have a NumPy dtype; got {host.dtype}, which .npy cannot hold without pickle. "
            "Convert it (`array.astype('float32')`), or use `save_state`."
        )
    host = np.asarray(host, order="C")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(host))
    data = array_bytes(host)
    with atomic_write(path) as file:
        file.write(head.getvalue())
        file.write(data)
        file.write(_MARK + digest16(head.getvalue()) + digest16(data))


def open_array(path: PathLike, *, verify: bool = False) -> np.ndarray:
    """Map a `.npy` file read-only: rows come from disk when they are used.

    Length and header are always checked. `verify=True` reads the whole file once and checks the data too; a
    file that NumPy itself wrote carries no checksum and cannot be verified.

    Do not hand the map itself to JAX: on a CPU `jax.device_put` would alias the file. Use `device_rows`.
    """
    with open(path, "rb") as file:
        shape, fortran, dtype = read_npy_header(path, file)
        start = file.tell()
        size = os.fstat(file.fileno()).st_size
        end = start + dtype.itemsize * math.prod(shape)
        if size not in (end, end + _TRAILER):
            raise StoreError(f"{path}: must be {end} or {end + _TRAILER} bytes long; found {size}. {DAMAGED}")
        if size != end:
            _check_trailer(path, file, start, end, verify)
        elif verify:
            raise StoreError(
                f"{path}: carries no checksum to verify; `save_array` writes one. Pass `verify=False`."
            )
    order = "F" if fortran else "C"
    if start == end or not dtype.itemsize:  # nothing to map
        empty = np.empty(shape, dtype, order)
        empty.flags.writeable = False
        return empty
    return np.memmap(path, dtype, "r", start, shape, order)


def read_rows(path: PathLike, indices: Any) -> np.ndarray:
    """A copy of some rows of a `.npy` file; `indices` is an integer, a slice, or integers."""
    return np.array(open_array(path)[indices], subok=False)


def device_rows(mapped: np.ndarray, indices: Any) -> jax.Array:
    """Some rows of a mapped array on the default device; copied first, so the file is never aliased."""
    return jax.device_put(np.array(mapped[indices], subok=False))


def read_npy_header(path: PathLike, file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype, and the file left at the data.

    NumPy's own reader is not used: on damaged headers it also raises `tokenize.TokenError` and warns.
    """
    try:
        start = file.read(8)
        if start[:6] != b"\x93NUMPY" or start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
            raise ValueError(f"it starts with {start!r}")
        size = struct.Struct("<H" if start[6] == 1 else "<I")
        fields = ast.literal_eval(file.read(*size.unpack(file.read(size.size))).decode("utf-8"))
        match fields:
            case {"descr": str(descr), "fortran_order": bool(fortran), "shape": tuple(shape)} if (
                len(fields) == 3
            ):
                if not _PLAIN.fullmatch(descr):
                    raise ValueError(f"it holds {descr[:40]!r}, not plain numbers or text")
                whole = all(type(length) is int and length >= 0 for length in shape) and len(shape) <= 32
                if not whole or math.prod(max(length, 1) for length in shape) >= 1 << 60:
                    raise ValueError(f"its shape is {str(shape)[:80]}")
                return shape, fortran, np.dtype(descr)
        raise ValueError("its header lacks descr, fortran_order or shape")
    except _BAD_HEAD as error:
        raise StoreError(
            f"{path}: must be a .npy file; {str(error)[:200]}. Write it with `save_array`."
        ) from error


def _check_trailer(path: PathLike, file: Any, start: int, end: int, verify: bool) -> None:
    file.seek(end)
    trailer = file.read(_TRAILER)
    file.seek(0)
    if trailer[: len(_MARK) + 16] != _MARK + digest16(file.read(start)):
        raise StoreError(f"{path}: the header does not match its checksum. {DAMAGED}")
    if verify:
        state = hashlib.blake2b(digest_size=16)
        left = end - start
        while left and (part := file.read(min(left, 1 << 22))):
            state.update(part)
            left -= len(part)
        if state.digest() != trailer[-16:]:
            raise StoreError(f"{path}: the data do not match their checksum. {DAMAGED}")


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
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
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
        parts, left = [], size
        while left and (part := file.read(min(left, 1 << 20))):  # nothing is allocated before it is read
            parts.append(part)
            left -= len(part)
        if left or file.read(1):
            raise StoreError(f"{path}: {shown!r} must hold {size} bytes and does not. {DAMAGED}")
    if not size:
        return np.zeros(shape, dtype)
    return np.frombuffer(b"".join(parts), dtype).reshape(shape, order="F" if fortran else "C").copy()

"""How single chunks of a Zarr array are packed. Nothing is unpacked to more than the size that the array declares.

Lengths in the packed bytes are compared with those before a library sees them: Blosc reads beyond the end of a chunk that
is cut off, which may end the process (numcodecs 0.16.6, the newest for Python 3.11).
"""

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

OBJECTS = ("pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "vlen-array", "categorize")
"""Codecs that make objects of Python. They are not run."""
_GROWTH = 1 << 16
_LZMA_MEMORY = 1 << 28
_STREAMS = 16  # each begins with a copy of all that is left
_ZSTD_MAGIC, _ZSTD_BLOCK, _ZSTD_LEAST = b"\x28\xb5\x2f\xfd", 1 << 17, 1 << 12
_NUMBERS = re.compile(r"[<>|=]?([biufc]\d{1,2}|bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128))")


class NotReadError(ValueError):
    """An array is packed in a way, or holds a type, that is not read. It may be sound, and others may read it."""


class Step(NamedTuple):
    """One step of packing: how large the packed bytes of `n` bytes may be, and what undoes it within a limit."""

    largest: Callable[[int], int]
    unpack: Callable[[bytes, int], Any]


def step_of(name: str, settings: Mapping[str, Any]) -> Step:
    """The step with this name and these settings, from format 2 or 3."""
    own = name.removeprefix("numcodecs.")
    if own in OBJECTS:
        raise NotReadError(f"it holds objects packed with {name!r}, which is never run")
    if own in _PACKERS:
        return Step(lambda n: n + n // 8 + _GROWTH, _PACKERS[own])
    if own == "bitround":
        return Step(lambda n: n, lambda data, most: data)
    if own in ("crc32", "adler32", "crc32c"):
        at_start = settings.get("location", "end" if own == "crc32c" else "start") == "start"
        return Step(lambda n: n + 4, lambda data, most: _checked(data, own, at_start))
    if own == "shuffle":
        width = settings.get("elementsize", 4)
        if type(width) is not int or not 1 <= width <= 256:
            raise ValueError(f"its filter 'shuffle' must have an element size of 1 to 256; it has {width!r}")
        return Step(lambda n: n, lambda data, most: _unshuffled(data, width))
    if own in _FILTERS:
        return _filter(own, settings)
    known = ", ".join(
        ("bytes", "transpose", "sharding_indexed", *_PACKERS, *_FILTERS, "shuffle", "bitround", "crc32c")
    )
    raise NotReadError(f"it is packed with {name[:60]!r}, which is not read; known are {known}")


def plain_dtype(text: Any) -> np.dtype:
    """A type of numbers as metadata spell it, such as "<f4"."""
    try:
        if isinstance(text, str) and _NUMBERS.fullmatch(text):
            return np.dtype(text)
    except TypeError:
        pass
    raise ValueError(f"it names {str(text)[:40]!r}, which is no type of numbers")


def _filter(name: str, settings: Mapping[str, Any]) -> Step:
    """A filter that stores values of one type as another."""
    outside, inside = _FILTERS[name][:2]
    decoded = plain_dtype(settings.get(outside, settings.get("dtype")))
    encoded = plain_dtype(settings.get(inside) or settings.get(outside, settings.get("dtype")))
    undo = _FILTERS[name][2](settings)

    def unpack(data: bytes, most: int) -> bytes:
        with np.errstate(all="ignore"):
            return np.asarray(undo(np.frombuffer(data, encoded), decoded), decoded).tobytes()

    return Step(lambda n: n // decoded.itemsize * encoded.itemsize, unpack)


def _number(settings: Mapping[str, Any], name: str) -> float:
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"its filter must have a finite {name}; it has {str(value)[:40]!r}")
    return value


def _scaled(settings: Mapping[str, Any]) -> Callable[..., Any]:
    offset, scale = _number(settings, "offset"), _number(settings, "scale")
    return lambda values, dtype: values / scale + offset


def _summed(settings: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda values, dtype: np.cumsum(values, dtype=dtype)


def _same(settings: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda values, dtype: values.astype(dtype)


_FILTERS: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], Callable[..., Any]]]] = {
    "delta": ("dtype", "astype", _summed),
    "fixedscaleoffset": ("dtype", "astype", _scaled),
    "quantize": ("dtype", "astype", _same),
    "astype": ("decode_dtype", "encode_dtype", _same),
}


def _unshuffled(data: bytes, width: int) -> bytes:
    if len(data) % width:
        raise ValueError(f"it has {len(data):,} bytes, no multiple of {width}")
    return np.frombuffer(data, np.uint8).reshape(width, -1).T.tobytes()


def _checked(data: bytes, name: str, at_start: bool) -> bytes:
    """The bytes without their checksum, which must fit."""
    if len(data) < 4:
        raise ValueError(f"it has {len(data)} bytes and no room for its checksum")
    told, body = (data[:4], data[4:]) if at_start else (data[-4:], data[:-4])
    found = crc32c(body) if name == "crc32c" else getattr(zlib, name)(body)
    if found != int.from_bytes(told, "little"):
        raise ValueError("it does not match its checksum")
    return body


def crc32c(data: bytes) -> int:
    """The checksum of Castagnoli."""
    try:
        import google_crc32c
    except ImportError as error:
        raise _missing("google-crc32c") from error
    return google_crc32c.value(bytes(data))


def _missing(package: str) -> ImportError:
    return ImportError(f'Zarr stores need the package {package}: pip install "jaxworlds[trace]".')


def _too_long(size: int, most: int) -> ValueError:
    return ValueError(f"it unpacks to {size:,} bytes where at most {most:,} belong")


def _blosc(data: bytes, most: int) -> Any:
    try:
        import numcodecs.blosc as blosc
    except ImportError as error:
        raise _missing("numcodecs") from error
    if len(data) < 16:
        raise ValueError(f"it has {len(data)} bytes, less than the head of a chunk that Blosc packed")
    version, _, _, width, size, block, packed = struct.unpack_from("<BBBBIII", data)
    if size > most:
        raise _too_long(size, most)
    if version != 2 or not width or packed < 16 or packed > len(data) or (size and not 0 < block <= size):
        raise ValueError(f"it has {len(data):,} bytes and a head of Blosc that does not fit them")
    return blosc.decompress(data[:packed])


def _zstd(data: bytes, most: int) -> Any:
    try:
        import numcodecs.zstd as zstd
    except ImportError as error:
        raise _missing("numcodecs") from error
    slack = 16 * most + _GROWTH  # blocks may be shorter than the longest
    size, said = zstd_size(data, slack)
    if size > (most if said else slack):
        raise _too_long(size, most)
    return zstd.decompress(data)


def zstd_size(data: bytes, enough: int) -> tuple[int, bool]:
    """To how many bytes a Zstandard frame unpacks and True; or False, and what its blocks may make, counted to `enough`."""
    if data[:4] != _ZSTD_MAGIC or len(data) < 6:
        raise ValueError("it does not begin like a chunk that Zstandard packed")
    flag, single = data[4] >> 6, data[4] >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[data[4] & 3]
    width = 1 if single and not flag else (0, 2, 4, 8)[flag]
    if width:
        return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0), True
    total, last = 0, False
    while not last and total <= enough:
        if at + 3 > len(data):
            raise ValueError("it is cut off")
        head = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        total += max(size, _ZSTD_LEAST) if kind < 2 else _ZSTD_BLOCK
        at += 3 + (1 if kind == 1 else size)
    return total, False


def _lz4(data: bytes, most: int) -> Any:
    try:
        import numcodecs.lz4 as lz4
    except ImportError as error:
        raise _missing("numcodecs") from error
    if len(data) < 5:
        raise ValueError(f"it has {len(data)} bytes, too few for LZ4")
    size = int.from_bytes(data[:4], "little")
    if size > most:
        raise _too_long(size, most)
    return lz4.decompress(data)


def _unpacked(make: Callable[[], Any]) -> Callable[[bytes, int], bytes]:
    """Unpacking with a decompressor of the standard library, which stops where it is told to; streams may follow streams."""

    def unpack(data: bytes, most: int) -> bytes:
        parts: list[bytes] = []
        made = 0
        while data.strip(b"\0") or not parts:
            if len(parts) == _STREAMS:
                raise ValueError(f"it is packed in more than {_STREAMS} streams")
            worker = make()
            parts.append(worker.decompress(data, most + 1 - made))
            made += len(parts[-1])
            if made > most:
                raise _too_long(made, most)
            if not worker.eof:
                raise ValueError("it is cut off")
            data = worker.unused_data
        return b"".join(parts)

    return unpack


_inflated = _unpacked(lambda: zlib.decompressobj(47))  # 32 + 15: zlib or gzip, as the first bytes say
_PACKERS: dict[str, Callable[[bytes, int], Any]] = {
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": _lz4,
    "gzip": _inflated,
    "zlib": _inflated,
    "bz2": _unpacked(bz2.BZ2Decompressor),
    "lzma": _unpacked(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)),
}
UNPACKING_ERRORS = (ValueError, RuntimeError, TypeError, OSError, EOFError, lzma.LZMAError, zlib.error)
"""What the libraries raise on damaged chunks."""

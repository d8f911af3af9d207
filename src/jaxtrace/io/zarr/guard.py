"""The guard before zarr-python: packed bytes are checked before a library sees them, and unpack to no more than declared.

zarr-python decodes a chunk by the codecs that the metadata name. `guarded_codecs_2` and `guarded_codecs_3` put `GUARD`, a
codec of ours, in place of each compressor. It compares the lengths in the head of the packed bytes with what the array
declares: Blosc reads beyond the end of a chunk that is cut off, which may end the process (numcodecs 0.16.6, the newest
for Python 3.11).
"""

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

OBJECTS = ("pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "vlen-array", "categorize")
"""Codecs that make objects of Python. They are not run."""
GUARD = "jaxtrace_guard"
"""Name of our codec in the registries of zarr-python and numcodecs."""
_GROWTH = 1 << 16
_LZMA_MEMORY = 1 << 28
_STREAMS = 16  # each begins with a copy of all that is left
_WIDEST = 16  # bytes of a complex number, the widest type that a filter may store
_ZSTD_MAGIC, _ZSTD_BLOCK, _ZSTD_LEAST = b"\x28\xb5\x2f\xfd", 1 << 17, 1 << 12
_FILTERS = ("delta", "fixedscaleoffset", "quantize", "astype")
_SAME_SIZE = ("shuffle", "bitround")
_CHECKSUMS = ("crc32", "adler32", "crc32c")
NUMBERS = re.compile(r"[<>|=]?([biufc]\d{1,2}|bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128))")
"""Types of numbers as metadata spell them, such as "<f4" and "float32"."""


class UnsupportedError(ValueError):
    """An array is packed in a way, or holds a type, that is not read. It may be sound, and others may read it."""


class GuardedCodecs(NamedTuple):
    """Codecs as metadata list them, with the guard in place of the compressors, and the largest size of a packed chunk."""

    codecs: list[Any]
    largest: int


def guarded_codecs_2(told: Mapping[str, Any], nbytes: int, count: int) -> tuple[list[Any], Any, int]:
    """Filters and compressor of an array of format 2, guarded, and the largest size of a packed chunk.

    A chunk has `count` values of `nbytes` bytes in all.
    """
    filters, packer = told.get("filters") or [], told.get("compressor")
    if not isinstance(filters, list) or not all(isinstance(one, dict) for one in filters):
        raise ValueError(f"its filters must be a list of objects; they are {str(filters)[:80]!r}")
    if packer is not None and not isinstance(packer, dict):
        raise ValueError(f"its compressor must be an object or null; it is {str(packer)[:80]!r}")
    named = [(str(one.get("id")), one) for one in [*filters, *([packer] if packer else [])]]
    guarded, largest = _guard_codecs(named, nbytes, count, lambda limits: {"id": GUARD, **limits})
    return guarded[: len(filters)], guarded[len(filters)] if packer else None, largest


def guarded_codecs_3(told: Any, nbytes: int, count: int) -> GuardedCodecs:
    """Codecs of the chunks of an array of format 3, guarded, without those of shards."""
    named = named_codecs(told)
    return _guard_codecs(named, nbytes, count, lambda limits: {"name": GUARD, "configuration": limits})


def named_codecs(told: Any) -> list[tuple[str, dict[str, Any]]]:
    """Name and settings of each codec of format 3, which may be written as the name alone."""
    if not isinstance(told, list) or not told:
        raise ValueError(f"its codecs must be a list; they are {str(told)[:80]!r}")
    found = []
    for one in told:
        one = {"name": one} if isinstance(one, str) else one
        settings = one.get("configuration", {}) if isinstance(one, dict) else None
        if not isinstance(settings, dict) or not isinstance(one.get("name"), str):
            raise ValueError(f"its codecs must be objects with a name; one is {str(one)[:80]!r}")
        found.append((one["name"], settings))
    return found


def _guard_codecs(
    named: list[tuple[str, dict[str, Any]]], nbytes: int, count: int, guard: Callable[[dict[str, Any]], Any]
) -> GuardedCodecs:
    """The codecs with the guard in place of each compressor, which may unpack to the size that remains at its place."""
    found, size = [], nbytes
    for name, settings in named:
        own = name.removeprefix("numcodecs.")
        if own in OBJECTS:
            raise UnsupportedError(f"it holds objects packed with {name!r}, which is never run")
        if own in _UNPACKERS:
            found.append(guard({"packer": own, "limit": size}))
            size += size // 8 + _GROWTH
            continue
        if own in _FILTERS:
            _check_types(settings)
            size = max(size, _WIDEST * count)
        elif own in _CHECKSUMS:
            size += 4
        elif own not in (*_SAME_SIZE, "bytes", "transpose"):
            known = ", ".join(
                ("bytes", "transpose", "sharding_indexed", *_UNPACKERS, *_FILTERS, *_SAME_SIZE, *_CHECKSUMS)
            )
            raise UnsupportedError(f"it is packed with {name[:60]!r}, which is not read; known are {known}")
        found.append(settings if "id" in settings else {"name": name, "configuration": settings})
    return GuardedCodecs(found, size)


def _check_types(settings: Mapping[str, Any]) -> None:
    """Refuse filters between types that are no numbers."""
    for word in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        kind = settings.get(word)
        if kind is not None and not (isinstance(kind, str) and NUMBERS.fullmatch(kind)):
            raise ValueError(f"it names {str(kind)[:40]!r}, which is no type of numbers")


def unpack(packer: str, data: memoryview, limit: int) -> Any:
    """The bytes that a compressor packed, at most `limit`; an error where its head does not fit them."""
    return _UNPACKERS[packer](data, limit)


def _too_long(size: int, limit: int) -> ValueError:
    return ValueError(f"it unpacks to {size:,} bytes where at most {limit:,} belong")


def _unpack_blosc(data: memoryview, limit: int) -> Any:
    import numcodecs.blosc as blosc

    if len(data) < 16:
        raise ValueError(f"it has {len(data)} bytes, less than the head of a chunk that Blosc packed")
    version, _, _, width, size, block, packed = struct.unpack_from("<BBBBIII", data)
    if size > limit:
        raise _too_long(size, limit)
    if version != 2 or not width or packed < 16 or packed > len(data) or (size and not 0 < block <= size):
        raise ValueError(f"it has {len(data):,} bytes and a head of Blosc that does not fit them")
    return blosc.decompress(data[:packed])


def _unpack_zstd(data: memoryview, limit: int) -> Any:
    import numcodecs.zstd as zstd

    slack = 16 * limit + _GROWTH  # blocks may be shorter than the longest
    size, exact = zstd_size(data, slack)
    if size > (limit if exact else slack):
        raise _too_long(size, limit)
    return zstd.decompress(data)


def zstd_size(data: memoryview | bytes, enough: int) -> tuple[int, bool]:
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


def _unpack_lz4(data: memoryview, limit: int) -> Any:
    import numcodecs.lz4 as lz4

    if len(data) < 5:
        raise ValueError(f"it has {len(data)} bytes, too few for LZ4")
    size = int.from_bytes(data[:4], "little")
    if size > limit:
        raise _too_long(size, limit)
    return lz4.decompress(data)


def _limit(make: Callable[[], Any]) -> Callable[[memoryview, int], bytes]:
    """Unpacking with a decompressor of the standard library, which stops at the limit; streams may follow streams."""

    def unpack_streams(packed: memoryview, limit: int) -> bytes:
        data = bytes(packed)
        parts: list[bytes] = []
        size = 0
        while data.strip(b"\0") or not parts:
            if len(parts) == _STREAMS:
                raise ValueError(f"it is packed in more than {_STREAMS} streams")
            worker = make()
            parts.append(worker.decompress(data, limit + 1 - size))
            size += len(parts[-1])
            if size > limit:
                raise _too_long(size, limit)
            if not worker.eof:
                raise ValueError("it is cut off")
            data = worker.unused_data
        return b"".join(parts)

    return unpack_streams


_inflate = _limit(lambda: zlib.decompressobj(47))  # 32 + 15: zlib or gzip, as the first bytes say
_UNPACKERS: dict[str, Callable[[memoryview, int], Any]] = {
    "blosc": _unpack_blosc,
    "zstd": _unpack_zstd,
    "lz4": _unpack_lz4,
    "gzip": _inflate,
    "zlib": _inflate,
    "bz2": _limit(bz2.BZ2Decompressor),
    "lzma": _limit(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)),
}


def whole_numbers(given: Any, count: int | None, least: int, what: str) -> tuple[int, ...]:
    """A list of whole numbers that are at least `least`, `count` of them."""
    fits = isinstance(given, list) and all(type(n) is int and least <= n < 2**60 for n in given)
    if not fits or len(given) > 32 or (count is not None and len(given) != count):
        many = "whole numbers" if count is None else f"{count} whole numbers"
        raise ValueError(f"its {what} must be {many} from {least}; it is {str(given)[:80]!r}")
    return tuple(given)

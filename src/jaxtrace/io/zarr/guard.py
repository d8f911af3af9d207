"""The guard before zarr-python: packed bytes are checked before a library sees them, and unpack to no more than declared.

It compares the lengths in the head of the packed bytes with what the array declares: Blosc reads beyond the end of a chunk
that is cut off, which may end the process (numcodecs 0.16.6, the newest for Python 3.11). `ChunkDecoder` unpacks chunks by
zarr-python with the guard among its codecs, whose classes are made when they are first needed: both packages are optional.
"""

import asyncio
import bz2
import dataclasses
import functools
import lzma
import struct
import threading
import weakref
import zlib
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

import numpy as np

GUARD = "jaxtrace_guard"
"""Name of our codec in the registries of zarr-python and numcodecs."""
GROWTH = 1 << 16
"""Bytes that packing may add to any chunk, beside an eighth of it."""
BATCH = 1024
"""Chunks that are unpacked at once, at most; zarr-python sets aside room for as many."""
_READS_ONLY = "the guard only reads; zarr-python itself writes"
_LONG = 1 << 22  # packed bytes: shorter requests are done sooner in one thread
_LZMA_MEMORY = 1 << 28
_STREAMS = 16  # each begins with a copy of all that is left
_ZSTD_MAGIC, _ZSTD_BLOCK, _ZSTD_LEAST = b"\x28\xb5\x2f\xfd", 1 << 17, 1 << 12


def unpack(packer: str, data: memoryview, limit: int) -> Any:
    """The bytes that a compressor packed, at most `limit`; an error where its head does not fit them."""
    return UNPACKERS[packer](data, limit)


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

    slack = 16 * limit + GROWTH  # blocks may be shorter than the longest
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
UNPACKERS: dict[str, Callable[[memoryview, int], Any]] = {
    "blosc": _unpack_blosc,
    "zstd": _unpack_zstd,
    "lz4": _unpack_lz4,
    "gzip": _inflate,
    "zlib": _inflate,
    "bz2": _limit(bz2.BZ2Decompressor),
    "lzma": _limit(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)),
}


@functools.cache
def register_guard() -> None:
    """Make the guard known to both packages under a name of its own."""
    import numcodecs
    from numcodecs.abc import Codec
    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec

    class Guard2(Codec):
        """A compressor of format 2 behind the guard."""

        codec_id = GUARD

        def __init__(self, packer: str, limit: int) -> None:
            self.packer, self.limit = packer, limit

        def encode(self, buf: Any) -> Any:
            raise NotImplementedError(_READS_ONLY)

        def decode(self, buf: Any, out: Any = None) -> Any:
            return unpack(self.packer, np.asarray(buf).data.cast("B"), self.limit)

    @dataclasses.dataclass(frozen=True)
    class Guard3(BytesBytesCodec):
        """A compressor of format 3 behind the guard."""

        packer: str
        limit: int
        is_fixed_size = False

        @classmethod
        def from_dict(cls, data: Any) -> Any:
            return cls(**data["configuration"])

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError(_READS_ONLY)

        async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            data = chunk_data.as_numpy_array().data.cast("B")
            if getattr(asyncio.get_running_loop(), "at_once", False):
                found = unpack(self.packer, data, self.limit)
            else:
                found = await asyncio.to_thread(unpack, self.packer, data, self.limit)
            return chunk_spec.prototype.buffer.from_bytes(found)

    numcodecs.register_codec(Guard2, GUARD)
    register_codec(GUARD, Guard3)


class ChunkDecoder:
    """A chain of zarr-python's codecs that makes arrays of packed chunks; `like` is an array with the same settings."""

    def __init__(self, codecs: Iterable[Any], shape: tuple[int, ...], dtype: Any, like: Any) -> None:
        from zarr.core.array_spec import ArraySpec
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.codec_pipeline import BatchedCodecPipeline

        config, fill = like.config, like.metadata.fill_value
        if like.metadata.zarr_format == 2:
            config = dataclasses.replace(config, order=like.metadata.order)
        self._spec = ArraySpec(shape, dtype, fill, config, default_buffer_prototype())
        self._pipeline = BatchedCodecPipeline.from_codecs(codecs, batch_size=BATCH)

    def decode(self, packed: Collection[bytes]) -> list[np.ndarray]:
        """The values of some chunks, unpacked in several threads where that takes long."""
        make = self._spec.prototype.buffer.from_bytes
        coroutine = self._pipeline.decode([(make(data), self._spec) for data in packed])
        found = _wait_for(coroutine, at_once=sum(map(len, packed)) < _LONG)
        return [values.as_numpy_array() for values in found]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that runs at once, if asked to, what would go to another thread."""

    at_once = False

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        if not self.at_once:
            return super().run_in_executor(executor, func, *args)
        found = self.create_future()
        try:
            found.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (raised where the result is awaited)
            found.set_exception(error)
        return found


_THREAD = threading.local()


def _wait_for(coroutine: Coroutine[Any, Any, Any], at_once: bool) -> Any:
    """The result of a coroutine; in a thread whose event loop is at work, such as a notebook's, through that of zarr-python.

    Other threads have an event loop each: zarr-python would change threads for each request.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if not hasattr(_THREAD, "loop"):
            _THREAD.loop = _Loop()
            weakref.finalize(threading.current_thread(), _THREAD.loop.close)
        _THREAD.loop.at_once = at_once
        return _THREAD.loop.run_until_complete(coroutine)
    from zarr.core.sync import sync

    return sync(coroutine)

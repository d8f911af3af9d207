"""Chunks unpacked by zarr-python, with the guard among its codecs.

The classes are made when they are first needed, since zarr-python and numcodecs are optional.
"""

import asyncio
import dataclasses
import functools
import threading
import weakref
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

import numpy as np

from .guard import GUARD, unpack

BATCH = 1024
"""Chunks that are unpacked at once, at most; zarr-python sets aside room for as many."""
_READS_ONLY = "the guard only reads; zarr-python itself writes"
_LONG = 1 << 22  # packed bytes: shorter requests are done sooner in one thread


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

"""The guard as numcodecs (format 2) and zarr-python (format 3) take it, and the store from which zarr-python reads chunks.

The classes are made when they are first needed, since both packages are optional.
"""

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np

from .guard import GUARD, unpack

_READS_ONLY = "the guard only reads; zarr-python itself writes"
_LONG = 1 << 18  # shorter chunks are unpacked sooner than a thread starts


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

        def to_dict(self) -> dict[str, Any]:
            return {"name": GUARD, "configuration": {"packer": self.packer, "limit": self.limit}}

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError(_READS_ONLY)

        async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            data = chunk_data.as_numpy_array().data.cast("B")
            if len(data) < _LONG:
                found = unpack(self.packer, data, self.limit)
            else:
                found = await asyncio.to_thread(unpack, self.packer, data, self.limit)
            return chunk_spec.prototype.buffer.from_bytes(found)

        async def _encode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            raise NotImplementedError(_READS_ONLY)

    numcodecs.register_codec(Guard2, GUARD)
    register_codec(GUARD, Guard3)


def chunk_store(read: Callable[[str, int | None, int | None], bytes | None]) -> Any:
    """A store of zarr-python with chunks alone: `read(key, start, stop)` gives bytes, or None for the fill value."""
    return _store_type()(read)


@functools.cache
def _store_type() -> Any:
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype

    class ChunkStore(Store):
        def __init__(self, read: Callable[[str, int | None, int | None], bytes | None]) -> None:
            super().__init__(read_only=True)
            self._is_open = True
            self.read = read

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return id(self)

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            start, stop = None, None
            if isinstance(byte_range, RangeByteRequest):
                start, stop = byte_range.start, byte_range.end
            elif isinstance(byte_range, OffsetByteRequest):
                start = byte_range.offset
            elif isinstance(byte_range, SuffixByteRequest):
                start = -byte_range.suffix
            data = self.read(key, start, stop)
            if data is None:
                return None
            return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
            return [await self.get(key, prototype, wanted) for key, wanted in key_ranges]

        async def exists(self, key: str) -> bool:
            return False

        supports_writes = supports_deletes = supports_partial_writes = supports_listing = False  # pyright: ignore

        async def set(self, key: str, value: Any) -> None:
            raise NotImplementedError(_READS_ONLY)

        async def delete(self, key: str) -> None:
            raise NotImplementedError(_READS_ONLY)

        async def list(self) -> AsyncIterator[str]:
            for key in ():
                yield key

        async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
            for key in ():
                yield key

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            for key in ():
                yield key

    return ChunkStore

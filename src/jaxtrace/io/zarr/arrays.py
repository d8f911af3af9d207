"""Arrays of a Zarr store: zarr-python decodes the chunks that a request touches, behind the guard."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped, UInt64

from ..files import DatasetError
from .encoding import ArrayEncoding, Shards, UnsupportedError
from .files import StoreFiles
from .guard import BATCH, ChunkDecoder, register_guard

SPARSE = 1 << 26
"""Bytes that an array may declare without storing them: chunks that hold only the fill value are often left out."""
RATIO = 40_000
"""Zstandard makes at most 32,768 bytes of one."""
KEPT = 1 << 29
"""Bytes of unpacked chunks that are kept from one request to the next, where a request took only a part of them."""
_SMALL = 1 << 16  # bytes of coordinates, which are read several times
_MANY = 4096  # chunks of one request that are read without a look at how many files there are
_ABSENT = 2**64 - 1  # in the index of a shard, for a chunk that is not stored
Selection = tuple[int | slice, ...]
Missing = Literal["land", "zero", "fill", "refuse"]
ChunkNumber = tuple[int, ...]
"""Where a chunk lies among those of its array, along each axis."""


class ShardIndex(NamedTuple):
    """Bytes of a shard, and place and length of each of its chunks."""

    size: int
    entries: UInt64[np.ndarray, "*grid 2"]


@dataclasses.dataclass(eq=False)
class StoredArray:
    """One array of a store. Chunks that are not stored are errors, unless `missing` lets the fill value stand for them.

    Slices of a field come one after the other, and a chunk often holds several of them: chunks of which the last request
    used only a part are kept for the next.
    """

    files: StoreFiles
    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    attributes: dict[str, Any]
    missing: Missing = "land"
    fill: Any = None
    marked: bool = False
    """Whether the fill value means a missing value."""
    reason: str = ""
    """Why the array is not read."""

    def __post_init__(self) -> None:
        self.dtype = np.dtype("f4")
        self._kept: dict[ChunkNumber, np.ndarray] = {}
        self._indices: dict[ChunkNumber, ShardIndex | None] = {}

    def open(self, encoding: ArrayEncoding) -> None:
        """Have zarr-python make codecs of the metadata; `UnsupportedError` where it refuses them."""
        import zarr
        from zarr.dtype import UInt64 as Entry
        from zarr.storage import MemoryStore, StorePath

        register_guard()
        self._encoding = encoding
        try:
            document: Any = encoding.document
            like: Any = zarr.AsyncArray(document, StorePath(MemoryStore()))  # its chunks are read here
            codecs, facts = tuple(like.codec_pipeline), like.metadata
            if encoding.shards is not None:
                (sharding,) = codecs
                grid = (*encoding.shards.grid, 2)
                self._index_decoder = ChunkDecoder(sharding.index_codecs, grid, Entry(), like)
                codecs = sharding.codecs
            self._decoder = ChunkDecoder(codecs, encoding.chunks, facts.dtype, like)
            self._encode_key = facts.encode_chunk_key
            self.dtype, self.fill = like.dtype.newbyteorder("="), facts.fill_value
        except ImportError:
            raise
        except Exception as error:  # of many kinds
            raise UnsupportedError(f"zarr-python refuses its metadata: {str(error)[:200]}") from error
        if self.dtype.kind not in "biufcSUmM":
            raise UnsupportedError(
                f"it holds values of the type {str(self.dtype)[:80]!r}, which are not read"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, selection: Selection = ()) -> Shaped[np.ndarray, "..."]:
        """The values at some indices and slices, one for each axis; by default all of them."""
        if self.reason:
            raise self._error(self.reason)
        asked = [
            range(n)[one] if isinstance(one, slice) else range(n)[int(one) :][:1]
            for n, one in zip(self.shape, selection or (slice(None),) * len(self.shape), strict=True)
        ]
        box = [range(min(one[0], one[-1]), max(one[0], one[-1]) + 1) if len(one) else one for one in asked]
        found = np.empty([len(one) for one in box], self.dtype)
        if found.size:
            self._read_box(box, found)
        steps = tuple(slice(None, None, one.step) for one in asked)
        cut = tuple(0 if not isinstance(one, slice) else slice(None) for one in selection)
        return np.asarray(found[steps][cut])

    def _read_box(self, box: list[range], found: np.ndarray) -> None:
        """Fill `found` with the values in a box, and keep the chunks that it uses in part."""
        chunks = self._encoding.chunks
        numbers = [range(one[0] // n, one[-1] // n + 1) for one, n in zip(box, chunks, strict=True)]
        self._refuse_many(math.prod(map(len, numbers)))
        together = min(KEPT // 4 // max(math.prod(chunks) * self.dtype.itemsize, 1) + 1, BATCH)
        every, kept, room = itertools.product(*numbers), {}, KEPT
        while batch := list(itertools.islice(every, together)):
            decoded = self._decode(number for number in batch if number not in self._kept)
            for number in batch:
                values = self._kept.get(number, decoded.get(number))
                to, of, whole = [], [], True
                for k, n, end, wanted in zip(number, chunks, self.shape, box, strict=True):
                    first, last = k * n, min((k + 1) * n, end)
                    low, high = max(first, wanted.start), min(last, wanted.stop)
                    to.append(slice(low - wanted.start, high - wanted.start))
                    of.append(slice(low - first, high - first))
                    whole = whole and (low, high) == (first, last)
                found[tuple(to)] = self.fill if values is None else values[tuple(of)]
                if values is None or (whole and (len(box) > 1 or values.nbytes > _SMALL)):
                    continue
                if values.nbytes <= room:
                    kept[number], room = values, room - values.nbytes
        self._kept = kept

    def _decode(self, numbers: Iterable[ChunkNumber]) -> dict[ChunkNumber, np.ndarray]:
        """The values of the chunks that are stored."""
        packed = {number: self._chunk_bytes(number) for number in numbers}
        stored = {number: data for number, data in packed.items() if data is not None}
        try:
            return dict(zip(stored, self._decoder.decode(stored.values()), strict=True)) if stored else {}
        except ImportError:
            raise
        except Exception as error:  # of many kinds, and without the chunk
            raise self._error(f"{self._damage(stored, error)}. It is damaged") from error

    def _damage(self, stored: dict[ChunkNumber, bytes], error: Exception) -> str:
        """Which chunk cannot be decoded, and why."""
        for number, data in stored.items():
            try:
                self._decoder.decode([data])
            except Exception as own:  # noqa: BLE001 (the one that is looked for)
                return f"chunk {self._name_of(number)!r} cannot be unpacked: {str(own)[:200] or type(own).__name__}"
        return f"it cannot be read: {str(error)[:200] or type(error).__name__}"

    def _place(self, number: ChunkNumber) -> tuple[str, ChunkNumber, ChunkNumber]:
        """The file of a chunk, the number of that file, and the chunk's place among those of its shard."""
        shards = self._encoding.shards
        grid = (1,) * len(number) if shards is None else shards.grid
        outer = tuple(k // n for k, n in zip(number, grid, strict=True))
        inner = tuple(k % n for k, n in zip(number, grid, strict=True))
        return f"{self.name}/{self._encode_key(outer)}", outer, inner

    def _name_of(self, number: ChunkNumber) -> str:
        """The file of a chunk, and in a shard its number too."""
        key = self._place(number)[0]
        return key if self._encoding.shards is None else f"{key} ({', '.join(map(str, number))})"

    @functools.cached_property
    def _held(self) -> tuple[int, int]:
        return self.files.count_stored(self.name, 1 << 62)

    def _refuse_many(self, count: int) -> None:
        """Refuse a request for far more chunks than there are, which would not end in a reasonable time."""
        if count <= _MANY:
            return
        files, held = self._held
        # Each chunk of a shard has 16 bytes in an index.
        if count > _MANY + 1000 * files + (0 if self._encoding.shards is None else held // 16):
            raise self._error(f"it is cut into {count:,} chunks, of which {files:,} files cannot hold many")

    def _chunk_bytes(self, number: ChunkNumber) -> bytes | None:
        """The bytes of a chunk, checked against what the metadata allow; None where the fill value stands for it."""
        key, outer, inner = self._place(number)
        encoding, start = self._encoding, 0
        if encoding.shards is None:
            length = self.files.size(key)
        else:
            if outer not in self._indices:
                self._indices[outer] = self._read_index(key, encoding.shards)
            start, length = self._in_shard(key, self._indices[outer], inner)
        if length is None:
            return self._absent(self._name_of(number))
        if length > encoding.largest:
            raise self._error(
                f"chunk {self._name_of(number)!r} has {length:,} bytes where at most {encoding.largest:,} belong. It is "
                "damaged"
            )
        nbytes = math.prod(encoding.chunks) * self.dtype.itemsize
        if nbytes > SPARSE + RATIO * length:
            raise self._error(
                f"chunk {self._name_of(number)!r} has {length:,} bytes for {nbytes:,} of values. It is damaged"
            )
        return self.files.read(key, start, start + length)

    def _absent(self, name: str) -> None:
        """Refuse a chunk that is not stored, unless its fill value may stand for it."""
        zero = self.missing == "zero" and bool(self.fill == 0) and not self.attributes.get("add_offset")
        allowed = self.marked or self.missing == "fill" or zero or math.prod(self.shape) == 1
        unknown = self.fill is None or self.missing == "refuse"
        if allowed and not unknown:
            return
        means = "a value that is not said" if unknown else f"the fill value {self.fill!s}"
        remedy = "" if unknown else " Pass `missing='fill'` where nothing is lost"
        raise self._error(
            f"chunk {name!r} is not stored. The format takes it as {means}, and a chunk that was lost looks the same.{remedy}"
        )

    def _in_shard(self, key: str, index: ShardIndex | None, inner: ChunkNumber) -> tuple[int, int | None]:
        """Where a chunk begins in its shard, and how many bytes it has; None where it is not stored."""
        start, length = (_ABSENT, _ABSENT) if index is None else index.entries[inner].tolist()
        if index is None or start == length == _ABSENT:
            return 0, None
        if start + length > index.size:
            raise self._error(f"shard {key!r} has a chunk that ends behind it. It is damaged")
        return start, length

    def _read_index(self, key: str, shards: Shards) -> ShardIndex | None:
        """The index of a shard; None where the shard is not stored."""
        size, length = self.files.size(key), shards.index_bytes
        if size is None:
            return None
        if length > size:
            raise self._error(f"shard {key!r} has {size:,} bytes, less than its index. It is damaged")
        start = 0 if shards.at_start else size - length
        try:
            (entries,) = self._index_decoder.decode([self.files.read(key, start, start + length)])
        except ValueError as error:
            why = f"shard {key!r}: its index cannot be read: {str(error).rstrip('.')}. It is damaged"
            raise self._error(why) from error
        if (len(self._indices) + 1) * length > SPARSE:
            self._indices = {}
        return ShardIndex(size, entries)

    def _error(self, why: str) -> DatasetError:
        end = "" if why.endswith(".") else "."
        return DatasetError(f"{self.files.path}: variable {self.name[:60]!r}: {why}{end}")

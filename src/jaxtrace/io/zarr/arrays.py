"""Arrays of a Zarr store: zarr-python decodes the chunks that a request touches, behind the guard."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped, UInt64

from ..files import DatasetError
from .codecs import chunk_store, register_guard
from .encoding import ArrayEncoding, Shards
from .event_loop import wait_for
from .files import AbstractFiles
from .guard import UnsupportedError

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


class ShardIndex(NamedTuple):
    """Bytes of a shard, and place and length of each of its chunks."""

    size: int
    entries: UInt64[np.ndarray, "*grid 2"]


class StoredArray:
    """One array of a store. Chunks that are not stored are errors, unless `missing` lets the fill value stand for them.

    Slices of a field come one after the other, and a chunk often holds several of them: chunks of which the last request
    used only a part are kept for the next.
    """

    def __init__(
        self,
        files: AbstractFiles,
        name: str,
        shape: tuple[int, ...],
        dims: tuple[str, ...],
        attributes: dict[str, Any],
        missing: Missing = "land",
    ) -> None:
        self.files, self.name, self.shape, self.dims = files, name, shape, dims
        self.attributes, self.missing = attributes, missing
        self.fill: Any = None
        self.dtype, self.marked, self.reason = np.dtype("f4"), False, ""
        """`marked` says whether the fill value means a missing value, `reason` why the array is not read."""
        self._kept: dict[tuple[range, ...], np.ndarray] = {}
        self._indices: dict[tuple[int, ...], ShardIndex | None] = {}

    def open(self, encoding: ArrayEncoding) -> None:
        """Have zarr-python make an array of the metadata; `UnsupportedError` where it refuses them."""
        import zarr
        from zarr.storage import StorePath

        register_guard()
        self._encoding = encoding
        try:
            document: Any = encoding.document
            self._values: Any = zarr.AsyncArray(
                document, StorePath(chunk_store(self._stored_bytes), self.name)
            )
            self.dtype, self.fill = self._values.dtype.newbyteorder("="), self._values.metadata.fill_value
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
        box = tuple(
            range(min(one[0], one[-1]), max(one[0], one[-1]) + 1) if len(one) else one for one in asked
        )
        found = np.empty([len(one) for one in box], self.dtype)
        if found.size:
            self._read_box(box, found)
        steps = tuple(slice(None, None, one.step) for one in asked)
        cut = tuple(0 if not isinstance(one, slice) else slice(None) for one in selection)
        return np.asarray(found[steps][cut])

    def _read_box(self, box: tuple[range, ...], found: np.ndarray) -> None:
        """Fill `found` with the values in a box from whole chunks, and keep those that it uses in part."""
        whole = tuple(
            range(one[0] // n * n, min((one[-1] // n + 1) * n, end))
            for one, n, end in zip(box, self._encoding.chunks, self.shape, strict=True)
        )
        self._refuse_many(
            math.prod(-(-len(one) // n) for one, n in zip(whole, self._encoding.chunks, strict=True))
        )
        kept, room = {}, KEPT
        for piece in self._pieces(whole):
            values = self._kept.get(piece)
            values = self._decode_whole(piece) if values is None else values
            common = [range(max(a[0], b[0]), min(a[-1], b[-1]) + 1) for a, b in zip(piece, box, strict=True)]
            to = tuple(slice(c[0] - b[0], c[-1] + 1 - b[0]) for c, b in zip(common, box, strict=True))
            of = tuple(slice(c[0] - p[0], c[-1] + 1 - p[0]) for c, p in zip(common, piece, strict=True))
            found[to] = values[of]
            again = tuple(common) != piece or (len(box) == 1 and values.nbytes <= _SMALL)
            if again and values.nbytes <= room:
                kept[piece], room = values, room - values.nbytes
        self._kept = kept

    def _pieces(self, whole: tuple[range, ...]) -> Iterator[tuple[range, ...]]:
        """A box of whole chunks, cut between chunks where it is too large to be kept."""
        counts = [-(-len(one) // n) for one, n in zip(whole, self._encoding.chunks, strict=True)]
        size = math.prod(map(len, whole)) * self.dtype.itemsize
        if size <= KEPT // 4 or max(counts, default=1) < 2:
            yield whole
            return
        axis = int(np.argmax(counts))
        cut = whole[axis].start + counts[axis] // 2 * self._encoding.chunks[axis]
        for half in (range(whole[axis].start, cut), range(cut, whole[axis].stop)):
            yield from self._pieces((*whole[:axis], half, *whole[axis + 1 :]))

    def _decode_whole(self, box: tuple[range, ...]) -> np.ndarray:
        """The values of whole chunks, through zarr-python."""
        self._check_shards(box)
        try:
            return self._decode_box(box)
        except (DatasetError, ImportError):
            raise
        except Exception as error:  # of many kinds, and without the chunk
            raise self._error(f"{self._damage(box, error)}. It is damaged") from error

    def _decode_box(self, box: tuple[range, ...]) -> np.ndarray:
        values = wait_for(self._values.getitem(tuple(slice(one.start, one.stop) for one in box)))
        return np.asarray(values).astype(self.dtype, copy=False).reshape([len(one) for one in box])

    def _damage(self, box: tuple[range, ...], error: Exception) -> str:
        """Which chunk of a box cannot be decoded, and why."""
        for index in self._chunk_indices(box, self._encoding.chunks):
            parts = zip(index, self._encoding.chunks, self.shape, strict=True)
            try:
                self._decode_box(tuple(range(k * n, min((k + 1) * n, end)) for k, n, end in parts))
            except Exception as own:  # noqa: BLE001 (the one that is looked for)
                return f"chunk {self._key_of(index)!r} cannot be unpacked: {str(own)[:200] or type(own).__name__}"
        return f"it cannot be read: {str(error)[:200] or type(error).__name__}"

    @staticmethod
    def _chunk_indices(box: tuple[range, ...], chunks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return itertools.product(
            *(range(one[0] // n, one[-1] // n + 1) for one, n in zip(box, chunks, strict=True))
        )

    def _key(self, outer: tuple[int, ...]) -> str:
        """Where a file of chunks lies in the store."""
        return f"{self.name}/{self._values.metadata.encode_chunk_key(outer)}"

    def _key_of(self, index: tuple[int, ...]) -> str:
        """The file of a chunk, and its number in it."""
        if self._encoding.shards is None:
            return self._key(index)
        outer = tuple(k // n for k, n in zip(index, self._encoding.shards.grid, strict=True))
        return f"{self._key(outer)} ({', '.join(map(str, index))})"

    @functools.cached_property
    def _held(self) -> tuple[int, int]:
        return self.files.stored(self.name, 1 << 62)

    def _refuse_many(self, count: int) -> None:
        """Refuse a request for far more chunks than there are, which would not end in a reasonable time."""
        if count <= _MANY:
            return
        files, held = self._held
        entries = (
            0 if self._encoding.shards is None else held // 16
        )  # of the indices, 16 bytes for each chunk
        if count > _MANY + 1000 * files + entries:
            raise self._error(f"it is cut into {count:,} chunks, of which {files:,} files cannot hold many")

    def _stored_bytes(self, key: str, start: int | None, stop: int | None) -> bytes | None:
        """Bytes of a file of chunks, checked against what the metadata allow; None for a chunk that the fill value stands for."""
        encoding, size = self._encoding, self.files.size(key)
        if size is None:
            return self._absent(key)
        first = 0 if start is None else size + start if start < 0 else start
        last = size if stop is None else stop
        if first < 0 or last > size or last < first:
            raise self._error(f"shard {key!r} has {size:,} bytes, less than its index demands. It is damaged")
        if encoding.shards is None and size > encoding.largest:
            raise self._error(
                f"chunk {key!r} has {size:,} bytes where at most {encoding.largest:,} belong. It is damaged"
            )
        nbytes = math.prod(encoding.chunks) * self.dtype.itemsize
        nbytes *= 1 if encoding.shards is None else math.prod(encoding.shards.grid)
        if nbytes > SPARSE + RATIO * size:
            raise self._error(f"chunk {key!r} has {size:,} bytes for {nbytes:,} of values. It is damaged")
        return self.files.read(key, first, last)

    def _absent(self, key: str) -> None:
        """Refuse a chunk that is not stored, unless its fill value may stand for it."""
        zero = self.missing == "zero" and bool(self.fill == 0) and not self.attributes.get("add_offset")
        allowed = self.marked or self.missing == "fill" or zero or math.prod(self.shape) == 1
        if self.fill is not None and self.missing != "refuse" and allowed:
            return
        unknown = self.fill is None or self.missing == "refuse"
        means = "a value that is not said" if unknown else f"the fill value {self.fill!s}"
        remedy = "" if unknown else " Pass `missing='fill'` where nothing is lost"
        raise self._error(
            f"chunk {key!r} is not stored. The format takes it as {means}, and a chunk that was lost looks the same.{remedy}"
        )

    def _check_shards(self, box: tuple[range, ...]) -> None:
        """Look up the chunks of a box in their shards: zarr-python would silently fill in those that are not there."""
        shards = self._encoding.shards
        if shards is None:
            return
        for index in self._chunk_indices(box, self._encoding.chunks):
            outer = tuple(k // n for k, n in zip(index, shards.grid, strict=True))
            if outer not in self._indices:
                self._indices[outer] = self._read_index(self._key(outer), shards)
            found = self._indices[outer]
            if found is None:
                self._absent(self._key(outer))
                continue
            inner = tuple(k % n for k, n in zip(index, shards.grid, strict=True))
            start, length = found.entries[inner].tolist()
            if start == length == _ABSENT:
                self._absent(self._key_of(index))
            elif start + length > found.size or length > self._encoding.largest:
                raise self._error(
                    f"shard {self._key(outer)!r} has a chunk that ends behind it. It is damaged"
                )

    def _read_index(self, key: str, shards: Shards) -> ShardIndex | None:
        """The index of a shard; None where the shard is not stored."""
        size = self.files.size(key)
        if size is None:
            return None
        length = shards.index_bytes
        if length > size:
            raise self._error(f"shard {key!r} has {size:,} bytes, less than its index. It is damaged")
        start = 0 if shards.at_start else size - length
        data = self.files.read(key, start, start + length)[: length // 16 * 16]
        if (len(self._indices) + 1) * length > SPARSE:
            self._indices = {}
        return ShardIndex(size, np.frombuffer(data, ">u8" if shards.big else "<u8").reshape(*shards.grid, 2))

    def _error(self, why: str) -> DatasetError:
        end = "" if why.endswith(".") else "."
        return DatasetError(f"{self.files.path}: variable {self.name[:60]!r}: {why}{end}")

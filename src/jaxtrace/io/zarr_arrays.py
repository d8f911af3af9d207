"""Values of a Zarr array, read chunk by chunk: only the chunks that a request touches, and nothing that is not stored unasked."""

import itertools
import math
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt64

from .series import DatasetError
from .zarr_chunks import ABSENT
from .zarr_metadata import RATIO, SPARSE, StoredArray
from .zarr_stores import AbstractStore

KEPT = 1 << 29
"""Bytes of unpacked chunks that are kept from one request to the next, where a request took only a part of each."""
_MANY = 4096  # chunks of one request that are looked for, one by one, without a look at how many there are
Wanted = tuple[int | slice, ...]


class ArrayReader:
    """One array of a store. `filled` says whether chunks that are not stored count as the fill value in any case.

    Slices of a field come one after the other, and a chunk often holds several of them: what the last request unpacked
    and used in part is kept for the next.
    """

    def __init__(self, store: AbstractStore, array: StoredArray, filled: bool = False) -> None:
        self.store, self.array, self.filled = store, array, filled
        self.shape, self.dtype = array.shape, array.dtype
        self._grid = (1,) * len(array.chunks) if array.shards is None else array.shards.grid
        self._kept: dict[tuple[int, ...], np.ndarray] = {}
        self._indices: dict[tuple[int, ...], UInt64[np.ndarray, "chunks 2"]] = {}
        self._stored: tuple[int, int] | None = None

    def read(self, wanted: Wanted = ()) -> Shaped[np.ndarray, "..."]:
        """The values at some indices and slices, one for each axis; all of them where nothing is said."""
        if self.array.reason or self.array.chain is None:
            raise self._error(self.array.reason)
        asked = [
            range(n)[one] if isinstance(one, slice) else range(n)[int(one) :][:1]
            for n, one in zip(self.shape, wanted or (slice(None),) * len(self.shape), strict=True)
        ]
        boxes = [range(min(one[0], one[-1]), max(one[0], one[-1]) + 1) if len(one) else one for one in asked]
        found = self._box(boxes) if all(len(box) for box in boxes) else self._empty(boxes)
        steps = tuple(slice(None, None, one.step) for one in asked)
        cut = tuple(0 if not isinstance(one, slice) else slice(None) for one in wanted)
        return np.asarray(found[steps][cut])

    def _empty(self, boxes: list[range]) -> np.ndarray:
        return np.empty([len(box) for box in boxes], self.dtype)

    def _box(self, boxes: list[range]) -> np.ndarray:
        """The values in a box, put together from the chunks that meet it."""
        assert self.array.chain is not None
        shape = self.array.chain.shape
        numbers = [range(box[0] // n, box[-1] // n + 1) for box, n in zip(boxes, shape, strict=True)]
        self._refuse_many(math.prod(map(len, numbers)))
        found, kept, room = self._empty(boxes), {}, KEPT
        for index in itertools.product(*numbers):
            to, of, whole = [], [], True
            for number, box, n, end in zip(index, boxes, shape, self.shape, strict=True):
                first, last = number * n, min((number + 1) * n, end)
                low, high = max(first, box[0]), min(last, box[-1] + 1)
                to.append(slice(low - box[0], high - box[0]))
                of.append(slice(low - first, high - first))
                whole = whole and (low, high) == (first, last)
            values = self._kept.get(index)
            if values is None:
                values = self._chunk(index)
            if values is None:
                found[tuple(to)] = self._absent(index)
                continue
            found[tuple(to)] = values[tuple(of)]
            room -= 0 if whole else values.nbytes
            if not whole and room >= 0:
                kept[index] = values
        self._kept = kept
        return found

    def _refuse_many(self, count: int) -> None:
        """Refuse a request that would look for far more chunks than there are, which takes for ever."""
        if count <= _MANY:
            return
        if self._stored is None:
            self._stored = self.store.stored(self.array.name, 1 << 62)
        files, held = self._stored
        entries = 0 if self.array.shards is None else held // 16  # of the indices, 16 bytes for each chunk
        if count > _MANY + 1000 * files + entries:
            raise self._error(f"it is cut into {count:,} chunks, of which {files:,} files cannot hold many")

    def _absent(self, index: tuple[int, ...]) -> Any:
        """The fill value for a chunk that is not stored, where it may stand for one."""
        array = self.array
        if array.fill is not None and (array.marked or self.filled or math.prod(array.shape) == 1):
            return array.fill
        means = "a value that is not said" if array.fill is None else f"the fill value {array.fill!s}"
        remedy = "" if array.fill is None else " Pass `missing='fill'` where nothing is lost."
        raise self._error(
            f"chunk {self._key(index)!r} is not stored. The format takes it as {means}, and a chunk that was lost looks "
            f"the same.{remedy}"
        )

    def _chunk(self, index: tuple[int, ...]) -> np.ndarray | None:
        """The values of a chunk, which may be shared; None where it is not stored."""
        chain = self.array.chain
        assert chain is not None
        data = self._bytes(index, chain.largest)
        if data is None:
            return None
        if chain.nbytes > SPARSE + RATIO * len(data):
            raise self._error(
                f"chunk {self._key(index)!r} has {len(data):,} bytes for {chain.nbytes:,} of values. It is damaged."
            )
        try:
            return chain.unpack(data)
        except ValueError as error:
            raise self._error(
                f"chunk {self._key(index)!r} cannot be unpacked: {error}. It is damaged."
            ) from error

    def _bytes(self, index: tuple[int, ...], most: int) -> bytes | None:
        """The packed bytes of a chunk, of a file of its own or from a shard."""
        outer = tuple(number // n for number, n in zip(index, self._grid, strict=True))
        key = self.array.key(outer)
        size = self.store.size(key)
        if size is None:
            return None
        start, length = 0, size
        if self.array.shards is not None:
            inner = tuple(number % n for number, n in zip(index, self._grid, strict=True))
            row = int(np.ravel_multi_index(inner, self._grid)) if inner else 0
            start, length = map(int, self._index(outer, key, size)[row])
            if start == length == ABSENT:
                return None
            if start + length > size:
                raise self._error(f"shard {key!r} has a chunk that ends behind it. It is damaged.")
        if length > most:
            raise self._error(
                f"chunk {self._key(index)!r} has {length:,} bytes where at most {most:,} belong. It is damaged."
            )
        return self.store.read(key, start, start + length)

    def _index(self, outer: tuple[int, ...], key: str, size: int) -> UInt64[np.ndarray, "chunks 2"]:
        """Where the chunks of a shard lie; those of the last shards are kept."""
        known, shards = self._indices.get(outer), self.array.shards
        if known is not None:
            return known
        assert shards is not None
        length = shards.index_bytes
        if length > size:
            raise self._error(f"shard {key!r} has {size:,} bytes, less than its index. It is damaged.")
        start = 0 if shards.at_start else size - length
        try:
            found = shards.index(self.store.read(key, start, start + length))
        except ValueError as error:
            raise self._error(f"shard {key!r}: {error}. It is damaged.") from error
        if (len(self._indices) + 1) * length > SPARSE:
            self._indices = {}
        self._indices[outer] = found
        return found

    def _key(self, index: tuple[int, ...]) -> str:
        outer = tuple(number // n for number, n in zip(index, self._grid, strict=True))
        inside = "" if self.array.shards is None else f" ({', '.join(map(str, index))})"
        return self.array.key(outer) + inside

    def _error(self, why: str) -> DatasetError:
        end = "" if why.endswith(".") else "."
        return DatasetError(f"{self.store.path}: variable {self.array.name[:60]!r}: {why}{end}")

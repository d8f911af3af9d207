"""The file format for collections larger than memory: written in one pass, trusted only after its digests.

All numbers are little-endian, and every part stands at a multiple of 64 bytes:

    prefix    64 bytes: magic, version, 0, place and length of the header, digest of the header, digest of the prefix
    cells     two cells to a byte; the grids of a task, input and output in turn, padded to a whole byte
    columns   sizes, first_pair, first_byte, num_train (see `TaskTable`), ids and id_starts (UTF-8, back to back);
              hashes and rows: the ids' BLAKE2b numbers in ascending order, and whose they are; splits
    header    JSON: counts, names, canvas, and place, type, shape and digest of every part
"""

import array
import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxworlds.special_files import demand_file
from jaxworlds.store import StoreError, atomic_write

from .packed import COLUMNS, content_hash, pack_one
from .parser import PathLike, RawTask, TaskError
from .planes import MAX_SIDE
from .taskset import TaskSet

FORMAT_VERSION = 1
# As in PNG: a byte over 127, both line ends and Ctrl-Z, so that a transfer in text mode is seen at once.
MAGIC = b"\x89ARC\r\n\x1a\n"
_PREFIX = struct.Struct("<8sIIQQ16s")
_ALIGNED = 64
_KINDS = {**COLUMNS, "first_byte": "<i8", "hashes": "<u8", "rows": "<i8"}
DAMAGED = "The file is damaged: restore it from a copy, or write it again."


def write_task_file(
    tasks: Iterable[RawTask] | TaskSet,
    path: PathLike,
    *,
    name: str = "",
    version: str = "",
    source: str = "",
    splits: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write tasks to a file for `open_task_file`, and return how many there were.

    Tasks are taken one at a time, and of each only 8 bytes stay in memory. Names and splits of a `TaskSet` are
    kept; `splits` is read after the last task. `progress` is called with the count after every task.
    """
    if isinstance(tasks, TaskSet):
        name, version = name or tasks.name, version or tasks.version
        source = source or tasks.source
        splits = tasks.splits if splits is None else splits
    with atomic_write(path) as file, contextlib.ExitStack() as stack:
        file.write(bytes(_ALIGNED))
        spool = lambda: stack.enter_context(tempfile.TemporaryFile(dir=Path(path).parent))  # noqa: E731
        writer = _Writer(file, {key: spool() for key in _KINDS if key != "cells"})
        for task in tasks:
            writer.add(task)
            if progress is not None:
                progress(writer.tasks)
        names = {"name": name, "version": version, "source": source}
        writer.finish(names, {} if splits is None else splits)
        return writer.tasks


class _Writer:
    """The parts of a file in the making: cells go to it at once, all else waits in temporary files."""

    def __init__(self, file: IO[bytes], spools: dict[str, IO[bytes]]):
        self.file, self.spools = file, spools
        self.tasks = self.pairs = self.bytes = self.text = 0
        self.canvas, self.slots = np.zeros(2, int), np.zeros(2, int)
        self.hashes = array.array("Q")
        self.cells = hashlib.blake2b(digest_size=16)
        self._end_of_task()

    def add(self, task: RawTask) -> None:
        """Write one task behind the others."""
        cells, sizes = pack_one(task)
        self.file.write(cells)
        self.cells.update(cells)
        self.spools["sizes"].write(sizes.tobytes())
        text = task.id.encode()
        self.spools["ids"].write(text)
        self.hashes.append(id_hash(task.id))
        self.tasks, self.pairs = self.tasks + 1, self.pairs + len(sizes)
        self.bytes, self.text = self.bytes + len(cells), self.text + len(text)
        self._end_of_task()
        self.spools["num_train"].write(struct.pack("<i", len(task.train)))
        self.canvas = np.maximum(self.canvas, sizes.reshape(-1, 2).max(0))
        self.slots = np.maximum(self.slots, (len(task.train), len(task.test)))

    def finish(self, names: dict[str, str], splits: Mapping[str, Any]) -> None:
        """Write the tables and the header, after which the file is whole."""
        if not self.tasks:
            raise ValueError("`tasks` must hold at least one task; got none.")
        hashes = np.frombuffer(self.hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._demand_unique(hashes[order], order)
        self.spools["hashes"].write(hashes[order].astype("<u8").tobytes())
        self.spools["rows"].write(order.astype("<i8").tobytes())
        parts: dict[str, Any] = {"cells": {"start": _ALIGNED, "type": "u1", "shape": [self.bytes]}}
        parts["cells"]["digest"] = self.cells.hexdigest()
        for key, spool in self.spools.items():
            spool.seek(0)
            blocks = iter(lambda spool=spool: spool.read(1 << 20), b"")
            parts[key] = self._append(blocks, _KINDS[key], (4,) if key == "sizes" else ())
        for key, rows in splits.items():
            parts[f"split:{key}"] = self._append([np.asarray(rows, "<i8").tobytes()], "<i8", ())
        header = {
            **names,
            "tasks": self.tasks,
            "pairs": self.pairs,
            "canvas": self.canvas.tolist(),
            "slots": self.slots.tolist(),
            "content": content_hash({key: parts[key]["digest"] for key in COLUMNS}),
            "parts": parts,
        }
        text = json.dumps(header).encode()
        at = self._align()
        self.file.write(text)
        prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, 0, at, len(text), _digest16(text))
        self.file.seek(0)
        self.file.write(prefix + _digest16(prefix))

    def _append(self, blocks: Iterable[bytes], kind: str, row: tuple[int, ...]) -> dict[str, Any]:
        """Write a part behind the others; `row` is the shape of one entry."""
        start, digest, length = self._align(), hashlib.blake2b(digest_size=16), 0
        for block in blocks:
            self.file.write(block)
            digest.update(block)
            length += len(block)
        count = length // np.dtype((kind, row)).itemsize
        return {"start": start, "type": kind, "shape": [count, *row], "digest": digest.hexdigest()}

    def _align(self) -> int:
        self.file.write(bytes(-self.file.tell() % _ALIGNED))
        return self.file.tell()

    def _end_of_task(self) -> None:
        """Note where the next task begins."""
        for key, value in (("first_pair", self.pairs), ("first_byte", self.bytes), ("id_starts", self.text)):
            self.spools[key].write(struct.pack("<q", value))

    def _demand_unique(self, hashes: np.ndarray, order: np.ndarray) -> None:
        """Raise if an id comes twice; different ids may share a hash, if hardly ever."""
        starts, ids = self.spools["id_starts"], self.spools["ids"]

        def id_at(row: int) -> bytes:
            starts.seek(8 * row)
            begin, end = struct.unpack("<qq", starts.read(16))
            ids.seek(begin)
            return ids.read(end - begin)

        for start in np.flatnonzero(np.diff(hashes) == 0):
            same = [id_at(int(row)) for row in order[hashes == hashes[start]]]
            if len(set(same)) < len(same):
                twice = next(one for one in same if same.count(one) > 1).decode()
                raise TaskError(
                    f"Every task id must come once; '{twice}' comes twice. Rename or drop one of them."
                )


def read_header(path: Path) -> dict[str, Any]:
    """The header of a file whose prefix, header and length are sound."""
    size = os.path.getsize(path)
    demand_file(path)
    with open(path, "rb") as file:
        prefix = file.read(_ALIGNED)
        if prefix[: len(MAGIC)] != MAGIC:
            raise StoreError(
                f"{path}: must be a task file; it starts with {prefix[:8]!r}. "
                f"Write one with `python -m jaxarc.tasks.mapped SOURCE {path.stem}.arcbank`."
            )
        if len(prefix) < _ALIGNED:
            raise StoreError(f"{path}: must be at least {_ALIGNED} bytes long; found {size}. {DAMAGED}")
        _, version, _, at, length, digest = _PREFIX.unpack(prefix[: _PREFIX.size])
        if version != FORMAT_VERSION:
            raise StoreError(
                f"{path}: must have the format version {FORMAT_VERSION}; found {version}. Use the jaxarc that wrote it."
            )
        if _digest16(prefix[: _PREFIX.size]) != prefix[_PREFIX.size :]:
            raise StoreError(f"{path}: the first {_ALIGNED} bytes do not match their digest. {DAMAGED}")
        if size != at + length:
            raise StoreError(f"{path}: must be {at + length} bytes long; found {size}. {DAMAGED}")
        file.seek(at)
        text = file.read(length)
    if _digest16(text) != digest:
        raise StoreError(f"{path}: the header does not match its digest. {DAMAGED}")
    try:
        header = json.loads(text)
        _check_header(header, at)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: the header is malformed ({repr(error)[:200]}). {DAMAGED}") from error
    return header


def _check_header(header: dict[str, Any], end: int) -> None:
    """Refuse a header whose parts are not the ones that are written, do not fit each other, or lie behind `end`."""
    tasks, pairs = header["tasks"], header["pairs"]
    numbers = [tasks, pairs, *header["canvas"], *header["slots"]]
    if len(numbers) != 6 or not all(type(n) is int and 0 <= n < 1 << 48 for n in numbers):
        raise ValueError(f"its counts are {str(numbers)[:80]}")
    if (
        not tasks
        or not all(1 <= side <= MAX_SIDE for side in header["canvas"])
        or max(header["slots"]) > pairs
    ):
        raise ValueError(f"its canvas is {header['canvas']} and its slots are {header['slots']}")
    if not all(isinstance(header[key], str) for key in ("name", "version", "source", "content")):
        raise ValueError("its names are no texts")
    parts = header["parts"]
    for key, part in parts.items():
        kind = _KINDS.get(key, "<i8" if key.startswith("split:") else None)
        shape, start = part["shape"], part["start"]
        rows = _ROWS[key](tasks, pairs) if key in _ROWS else shape[0]
        if part["type"] != kind or not isinstance(part["digest"], str):
            raise ValueError(f"part {key[:40]!r} is of type {str(part['type'])[:40]}")
        if not all(type(n) is int and n >= 0 for n in (start, *shape)) or start % _ALIGNED:
            raise ValueError(f"part {key[:40]!r} has the shape {str(shape)[:40]} at {str(start)[:40]}")
        if shape != ([rows, 4] if key == "sizes" else [rows]):
            raise ValueError(f"part {key[:40]!r} has the shape {str(shape)[:40]} for {tasks} tasks")
        if start + np.dtype(kind).itemsize * int(np.prod(shape, dtype=object)) > end:
            raise ValueError(f"part {key[:40]!r} lies behind the end of the file")
    if missing := [key for key in _KINDS if key not in parts]:
        raise ValueError(f"part {missing[0]!r} is missing")


# Rows of each part, by the numbers of tasks and pairs; the others may have any.
_ROWS: dict[str, Callable[[int, int], int]] = {
    "sizes": lambda tasks, pairs: pairs,
    **dict.fromkeys(("num_train", "hashes", "rows"), lambda tasks, pairs: tasks),
    **dict.fromkeys(("first_pair", "first_byte", "id_starts"), lambda tasks, pairs: tasks + 1),
}


def view(data: np.ndarray, part: dict[str, Any]) -> np.ndarray:
    """One part of the bytes of a file."""
    kind, shape, start = np.dtype(part["type"]), part["shape"], part["start"]
    length = kind.itemsize * int(np.prod(shape))
    return data[start : start + length].view(kind).reshape(shape)


def id_hash(task_id: str) -> int:
    """The number under which a file finds an id."""
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "little")


def _digest16(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def digest_of(data: np.ndarray) -> str:
    """The checksum of bytes that may be mapped and larger than memory."""
    state = hashlib.blake2b(digest_size=16)
    for start in range(0, len(data), 1 << 20):
        state.update(data[start : start + (1 << 20)].tobytes())
    return state.hexdigest()

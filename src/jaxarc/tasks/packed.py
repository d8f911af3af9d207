"""Any number of tasks as a few host arrays, two cells to a byte: in memory, or mapped from a file."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import planes
from .bank import JaxArcTask, TaskBank
from .parser import COLOURS, RawTask, TaskError

# Tasks that are laid out at a time when a bank is built, so that the host needs little beyond the result.
_CHUNK = 2048


@dataclass(frozen=True, eq=False)
class TaskTable:
    """Tasks back to back. The pairs of task `i` are `first_pair[i]` to `first_pair[i + 1]`, demonstrations first.

    `sizes` holds height and width of input and output, 0×0 where an output is not known. The grids of a task, input
    and output in turn, are nibbles from byte `first_byte[i]` on (the even cell low), padded to a whole byte.
    """

    cells: np.ndarray
    sizes: np.ndarray
    first_pair: np.ndarray
    first_byte: np.ndarray
    num_train: np.ndarray

    def __len__(self) -> int:
        return len(self.num_train)

    @property
    def num_test(self) -> np.ndarray:
        """Test pairs of each task."""
        return np.diff(self.first_pair) - self.num_train

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width that every grid fits into."""
        largest = np.asarray(self.sizes).reshape(-1, 2, 2).max((0, 1))
        return int(largest[0]), int(largest[1])

    @property
    def slots(self) -> tuple[int, int]:
        """The most demonstrations and the most test pairs that a task has."""
        return int(self.num_train.max()), int(self.num_test.max())

    @property
    def largest(self) -> np.ndarray:
        """Height and width that the grids of each task fit into, one row for each task."""
        sides = np.asarray(self.sizes).reshape(-1, 2, 2).max(1)
        return np.maximum.reduceat(sides, np.asarray(self.first_pair[:-1]))

    def take(self, rows: np.ndarray) -> "TaskTable":
        """These tasks, in this order, copied."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and (np.diff(rows) == 1).all():  # a run needs no index for every byte
            part = self._part(int(rows[0]), int(rows[-1]) + 1)
            return TaskTable(
                part.cells.copy(), part.sizes.copy(), part.first_pair, part.first_byte, part.num_train.copy()
            )
        pairs, counts = self.first_pair[rows], self.first_pair[rows + 1] - self.first_pair[rows]
        start, length = self.first_byte[rows], self.first_byte[rows + 1] - self.first_byte[rows]
        return TaskTable(
            cells=self.cells[_ranges(start, length)],
            sizes=self.sizes[_ranges(pairs, counts)],
            first_pair=_starts(counts),
            first_byte=_starts(length),
            num_train=self.num_train[rows],
        )

    def raw(self, row: int, task_id: str, source: str) -> RawTask:
        """One task as small grids."""
        one, grids = self._part(row, row + 1), []
        flat, at = _unpack(one.cells), 0
        for height, width in one.sizes.reshape(-1, 2).astype(int):
            area = height * width
            grids.append(flat[at : at + area].reshape(height, width) if area else None)
            at += area
        pairs = list(zip(grids[::2], grids[1::2], strict=True))
        count = int(one.num_train[0])
        return RawTask(task_id, tuple(pairs[:count]), tuple(pairs[count:]), source)  # pyright: ignore[reportArgumentType]

    def task(self, row: int, index: int, canvas: tuple[int, int], slots: tuple[int, int]) -> JaxArcTask:
        """One task, padded to a canvas and to a number of demonstrations and test pairs."""
        one = self._part(row, row + 1)
        grids, sizes = one._laid_out(canvas), np.asarray(one.sizes).reshape(-1, 2, 2)
        height, width = (np.arange(side) for side in canvas)
        masks = (height < sizes[..., :1])[..., :, None] & (width < sizes[..., 1:])[..., None, :]
        count = int(one.num_train[0])

        (inputs, outputs), (input_masks, output_masks) = (_pad(x[:count], slots[0]) for x in (grids, masks))
        (tests, answers), (test_masks, answer_masks) = (_pad(x[count:], slots[1]) for x in (grids, masks))
        train = inputs, input_masks, outputs, output_masks, count
        test = tests, test_masks, answers, answer_masks, int(one.num_test[0])
        return JaxArcTask(*train, *test, index)

    def bank(self, canvas: tuple[int, int]) -> TaskBank:
        """All tasks on the device, in one transfer."""
        words = np.empty((2, len(self.sizes), planes.PLANES, canvas[0]), np.uint32)
        for start in range(0, len(self), _CHUNK):
            part = self._part(start, start + _CHUNK)
            at = int(self.first_pair[start])
            grids = part._laid_out(canvas)
            for side in (0, 1):
                words[side, at : at + len(grids)] = planes.encode_host(grids[:, side])
        sizes = np.asarray(self.sizes).astype(np.int32)
        host: dict[str, Any] = {
            "inputs": words[0],
            "outputs": words[1],
            "input_sizes": sizes[:, :2],
            "output_sizes": sizes[:, 2:],
            "first_pair": np.asarray(self.first_pair[:-1]).astype(np.int32),
            "num_train": np.asarray(self.num_train).astype(np.int32),
            "num_test": self.num_test.astype(np.int32),
            "cumulative": (np.arange(1, len(self) + 1) / len(self)).astype(np.float32),
            "offset": np.int32(0),
        }
        # Callers keep the bank: asked for inside a compiled function it must not hold that function's tracers.
        with jax.ensure_compile_time_eval():
            arrays = jax.tree.map(jnp.asarray, jax.device_put(host))
        return TaskBank(**arrays, width=canvas[1], max_pairs=max(self.slots))

    def _part(self, start: int, stop: int) -> "TaskTable":
        """The tasks from `start` to `stop`, without copying."""
        stop = min(stop, len(self))
        pairs, offsets = self.first_pair[start : stop + 1], self.first_byte[start : stop + 1]
        return TaskTable(
            cells=self.cells[offsets[0] : offsets[-1]],
            sizes=self.sizes[pairs[0] : pairs[-1]],
            first_pair=pairs - pairs[0],
            first_byte=offsets - offsets[0],
            num_train=self.num_train[start:stop],
        )

    def _laid_out(self, canvas: tuple[int, int]) -> np.ndarray:
        """Every grid in the top-left corner of its own canvas: int8 (pairs, input and output, rows, columns)."""
        sizes = np.asarray(self.sizes).reshape(-1, 2).astype(np.int32)
        areas = sizes[:, 0] * sizes[:, 1]
        starts = _starts(areas)
        # Grids follow each other without gaps, but for the nibble that may end a task.
        gaps = 2 * self.first_byte[:-1] - starts[2 * np.asarray(self.first_pair[:-1])]
        flat = _unpack(self.cells)[
            np.arange(starts[-1]) + np.repeat(gaps, np.diff(starts[2 * np.asarray(self.first_pair)]))
        ]
        within = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1].astype(np.int32), areas)
        rows, columns = np.divmod(within, np.repeat(sizes[:, 1], areas))
        laid = np.zeros((len(sizes), *canvas), np.int8)
        laid[np.repeat(np.arange(len(sizes), dtype=np.int32), areas), rows, columns] = flat
        return laid.reshape(-1, 2, *canvas)


def pack(tasks: Iterable[RawTask]) -> TaskTable:
    """Tasks as a table."""
    packed = [(*pack_one(task), len(task.train)) for task in tasks]
    cells, sizes, train = zip(*packed, strict=True) if packed else ((), (), ())
    return TaskTable(
        cells=np.frombuffer(b"".join(cells), np.uint8),
        sizes=np.concatenate(sizes) if sizes else np.zeros((0, 4), np.uint8),
        first_pair=_starts([len(part) for part in sizes]),
        first_byte=_starts([len(part) for part in cells]),
        num_train=np.asarray(train, np.int32),
    )


def pack_one(task: RawTask) -> tuple[bytes, np.ndarray]:
    """The cells of a task as nibbles, and the sizes of its pairs."""
    grids = [grid for pair in (*task.train, *task.test) for grid in pair]
    known = [grid for grid in grids if grid is not None]
    sound = task.train and all(grid is not None for pair in task.train for grid in pair)
    sound = sound and all(grid.ndim == 2 and min(grid.shape) >= 1 and max(grid.shape) <= 32 for grid in known)
    flat = np.concatenate([grid.ravel() for grid in known]) if sound else np.array([-1])
    if flat.min() < 0 or flat.max() >= COLOURS:
        raise TaskError(
            f"task '{task.id}': must have train pairs, and grids of at most 32×32 cells of colours 0 to 9. "
            "Make it with `parse_task`, which says what is wrong."
        )
    sizes = np.array([(0, 0) if grid is None else grid.shape for grid in grids], np.uint8)
    even = np.zeros(len(flat) + len(flat) % 2, np.uint8)
    even[: len(flat)] = flat
    return (even[::2] | even[1::2] << 4).tobytes(), sizes.reshape(-1, 4)


def _pad(pairs: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of some pairs, with empty ones up to `slots`."""
    full = np.zeros((slots, *pairs.shape[1:]), pairs.dtype)
    full[: len(pairs)] = pairs
    return full[:, 0], full[:, 1]


def _unpack(cells: np.ndarray) -> np.ndarray:
    return np.stack([cells & 15, cells >> 4], axis=-1).reshape(-1).view(np.int8)


def _starts(lengths: np.ndarray | list[int]) -> np.ndarray:
    """0 and the running sums of `lengths`."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers `start` to `start + length`, one range after the other."""
    ends = _starts(lengths)
    return np.arange(ends[-1]) + np.repeat(np.asarray(starts) - ends[:-1], lengths)


def join_tables(tables: list[TaskTable]) -> TaskTable:
    """Tables one after the other."""
    return TaskTable(
        cells=np.concatenate([table.cells for table in tables]),
        sizes=np.concatenate([table.sizes for table in tables]),
        first_pair=_starts(np.concatenate([np.diff(table.first_pair) for table in tables])),
        first_byte=_starts(np.concatenate([np.diff(table.first_byte) for table in tables])),
        num_train=np.concatenate([table.num_train for table in tables]),
    )


# The columns that say what the tasks are, with their types in files and hashes.
COLUMNS = {
    "ids": "u1",
    "id_starts": "<i8",
    "first_pair": "<i8",
    "num_train": "<i4",
    "sizes": "u1",
    "cells": "u1",
}


def columns(table: TaskTable, ids: Sequence[str]) -> dict[str, np.ndarray]:
    """Tasks and their ids as the columns of a file."""
    names = [task_id.encode() for task_id in ids]
    found = vars(table) | {
        "ids": np.frombuffer(b"".join(names), np.uint8),
        "id_starts": _starts([len(name) for name in names]),
    }
    return {name: np.ascontiguousarray(found[name], kind) for name, kind in COLUMNS.items()}


def digest(data: Any) -> str:
    """BLAKE2b of 16 bytes, as hexadecimal text."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def content_hash(digests: Mapping[str, str]) -> str:
    """The hash of a set of tasks, from those of its columns."""
    return digest("".join(digests[name] for name in COLUMNS).encode())

"""Collections larger than memory: tasks read through a memory map, and the command that writes their file.

    python -m jaxarc.tasks.mapped SOURCE OUT.arcbank

Opening verifies the header and the length of the file, each task is checked as it is read, and `verify` compares
every byte with its digest. `task_file` says how the file is laid out.
"""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.arguments import demand_whole
from jaxworlds.store import StoreError

from .bank import JaxArcTask, TaskBank
from .packed import TaskTable
from .parser import COLOURS, PathLike, RawTask, TaskError
from .task_file import DAMAGED, digest_of, id_hash, read_header, view
from .task_file import write_task_file as write_task_file
from .taskset import TaskSet


def open_task_file(path: PathLike, *, verify: bool = False) -> "MappedTasks":
    """The tasks of a file, which come from disk as they are used; `verify` reads the whole file once first."""
    tasks = MappedTasks(path)
    if verify:
        tasks.verify()
    return tasks


class MappedTasks:
    """Tasks in a file, numbered from 0. All of them have one shape, so one compiled program serves them all."""

    def __init__(self, path: PathLike):
        self.path = Path(path)
        header = read_header(self.path)
        self.name, self.version, self.source = header["name"], header["version"], header["source"]
        self.content_hash: str = header["content"]
        self.canvas: tuple[int, int] = tuple(header["canvas"])
        self.slots: tuple[int, int] = tuple(header["slots"])
        self._parts = header["parts"]
        # A plain array over the map: slices of a memmap would each drag its bookkeeping along.
        data = np.asarray(np.memmap(self.path, np.uint8, "r"))
        self._columns = {key: view(data, part) for key, part in self._parts.items()}
        self._table = TaskTable(
            **{key: self._columns[key] for key in ("cells", "sizes", "first_pair", "first_byte", "num_train")}
        )

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"MappedTasks({str(self.path)!r}: {len(self)} tasks, canvas {self.canvas[0]}×{self.canvas[1]})"

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids; this reads them all, `id_of` only one."""
        text, ends = bytes(self._columns["ids"]), self._columns["id_starts"].tolist()
        return tuple(self._text(text[max(a, 0) : b]) for a, b in itertools.pairwise(ends))

    @property
    def splits(self) -> dict[str, np.ndarray]:
        """Indices of the tasks of each split."""
        found = {key[6:]: rows for key, rows in self._columns.items() if key.startswith("split:")}
        for key, rows in found.items():
            if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
                raise StoreError(f"{self.path}: split {key[:40]!r} names tasks that are not there. {DAMAGED}")
        return found

    def id_of(self, index: Any) -> str:
        """The id of the task with this number."""
        row = self._row(index)
        start, end = self._columns["id_starts"][row : row + 2]
        return self._text(bytes(self._columns["ids"][max(int(start), 0) : max(int(end), 0)]))

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise StoreError(f"{self.path}: an id is no text ({data[:40]!r}). {DAMAGED}") from None

    def index_of(self, task_id: str) -> int:
        """The number of the task with this id, found without reading the others."""
        key = id_hash(task_id)
        at = int(np.searchsorted(self._columns["hashes"], key))
        while at < len(self) and self._columns["hashes"][at] == key:
            row = int(self._columns["rows"][at])
            if not 0 <= row < len(self):
                raise StoreError(
                    f"{self.path}: the table of ids names task {row}, which is not there. {DAMAGED}"
                )
            if self.id_of(row) == task_id:
                return row
            at += 1
        raise ValueError(f"`task_id` must be one of the {len(self)} ids in {self.path}; got {task_id!r}.")

    def get_task(self, task: Any) -> JaxArcTask:
        """The task with this number or id, padded like every task of the file."""
        rows = self._rows([task])
        return self._take(rows).task(0, int(rows[0]), self.canvas, self.slots)

    def get_batch_tasks(self, tasks: Iterable[Any]) -> list[JaxArcTask]:
        """The tasks with these numbers or ids."""
        return [self.get_task(task) for task in _each(tasks)]

    def get_task_by_id(self, task_id: str) -> JaxArcTask:
        """`get_task` under the name that a `TaskSet` has."""
        return self.get_task(str(task_id))

    def get_task_by_index(self, index: Any) -> JaxArcTask:
        """`get_task` under the name that a `TaskSet` has."""
        return self.get_task(self._row(index))

    def raw(self, task: Any) -> RawTask:
        """The task with this number or id as plain NumPy grids."""
        rows = self._rows([task])
        return self._take(rows).raw(0, self.id_of(rows[0]), self.source)

    def task_set(self, tasks: Iterable[Any] | None = None) -> TaskSet:
        """Some tasks, or all, copied into memory as a set; without a choice the splits come along."""
        names = {"name": self.name, "version": self.version, "source": self.source}
        if tasks is not None:
            rows = self._rows(tasks)
            return TaskSet(self._take(rows), [self.id_of(row) for row in rows], **names)
        try:
            return TaskSet(self._take(np.arange(len(self))), self.ids, splits=self.splits, **names)
        except TaskError as error:
            raise StoreError(f"{self.path}: {error} {DAMAGED}") from error

    def bank(self, tasks: Iterable[Any] | None = None, canvas: tuple[int, int] | None = None) -> TaskBank:
        """The tasks with these numbers or ids on the device; `task_index` counts in the order given here.

        The canvas is that of the whole file, so that all such banks fit one program.
        """
        rows = np.arange(len(self)) if tasks is None else self._rows(tasks)
        return self._take(rows).bank(self.canvas if canvas is None else canvas)

    def verify(self) -> None:
        """Read the whole file and compare every part with its digest."""
        for key, part in self._parts.items():
            if digest_of(self._columns[key]) != part["digest"]:
                raise StoreError(f"{self.path}: '{key}' does not match its digest. {DAMAGED}")

    def _row(self, index: Any) -> int:
        row = demand_whole(index, "index", "Ids go to `index_of`, several tasks to `task_set`.")
        if not 0 <= row < len(self):
            raise ValueError(
                f"The task number must be from 0 to {len(self) - 1}, the tasks in the file; got {row}."
            )
        return row

    def _rows(self, tasks: Iterable[Any]) -> np.ndarray:
        chosen = [self.index_of(one) if isinstance(one, str) else self._row(one) for one in _each(tasks)]
        if not chosen:
            raise ValueError("`tasks` must name at least one task; got none.")
        return np.array(chosen, np.int64)

    def _take(self, rows: np.ndarray) -> TaskTable:
        """Some tasks copied into memory, once their arrays agree with each other: nothing is read out of bounds."""
        table, after = self._table, rows + 1
        pairs = table.first_pair[after] - table.first_pair[rows]
        bounds = table.first_byte[after] - table.first_byte[rows]
        sound = (pairs >= 1) & (table.first_pair[rows] >= 0) & (table.first_pair[after] <= len(table.sizes))
        sound &= (bounds >= 1) & (table.first_byte[rows] >= 0) & (table.first_byte[after] <= len(table.cells))
        sound &= (table.num_train[rows] >= 1) & (table.num_train[rows] <= pairs)
        if sound.all():
            part = table.take(rows)
            sizes = part.sizes.astype(np.int64).reshape(-1, 2, 2)
            cells = np.add.reduceat(sizes.prod(-1).sum(1), part.first_pair[:-1])
            tall = np.maximum.reduceat((sizes > self.canvas).any((1, 2)), part.first_pair[:-1])
            wrong = ((part.cells & 15) >= COLOURS) | ((part.cells >> 4) >= COLOURS)
            sound = ((cells + 1) // 2 == bounds) & ~tall & ~np.maximum.reduceat(wrong, part.first_byte[:-1])
            if sound.all():
                return part
        bad = int(rows[np.flatnonzero(~sound)[0]])
        raise StoreError(f"{self.path}: the arrays of task {bad} contradict each other. {DAMAGED}")


def _each(tasks: Any) -> Iterator[Any]:
    """Numbers or ids, also from one string or a JAX array."""
    if isinstance(tasks, str):
        return iter([tasks])
    return iter(tasks if isinstance(tasks, list | tuple) else np.asarray(list(tasks)).tolist())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: `python -m jaxarc.tasks.mapped SOURCE OUT.arcbank`."""
    import argparse

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from .datasets import load, read_folder

    parser = argparse.ArgumentParser(
        prog="python -m jaxarc.tasks.mapped", description="Write ARC tasks to a file for `open_task_file`."
    )
    parser.add_argument("source", help="a folder or file of ARC JSON, or the name arc-agi-1 or arc-agi-2")
    parser.add_argument("out", help="the file to write, such as tasks.arcbank")
    parser.add_argument("--null-as", type=int, help="colour of null cells (folders only; Mini-ARC: 0)")
    parser.add_argument(
        "--flat-rows", action="store_true", help="take flat lists as grids of one row (folders only)"
    )
    parser.add_argument("--id-from", choices=("name", "path"), default="name", help="what ids are made of")
    given = parser.parse_args(arguments)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} tasks"), TimeElapsedColumn())
    try:
        splits: dict[str, list[int]] = {}
        if Path(given.source).is_dir():
            options = {"null_as": given.null_as, "flat_rows": given.flat_rows, "id_from": given.id_from}
            tasks: Any = read_folder(given.source, splits, **options)
            names: dict[str, Any] = {
                "name": Path(given.source).name,
                "source": given.source,
                "splits": splits,
            }
        else:
            tasks, names = load(given.source), {}
        with Progress(*columns, console=Console(stderr=True)) as bar:
            shown = bar.add_task("", total=None)
            progress = lambda count: bar.update(shown, completed=count)  # noqa: E731
            count = write_task_file(tasks, given.out, progress=progress, **names)
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.out}: {count:,} tasks, {os.path.getsize(given.out):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

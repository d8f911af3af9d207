"""A set of tasks on the host: ids, splits and subsets, single tasks of one shape, and the bank for the device."""

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxworlds.arguments import demand_whole, short
from jaxworlds.text import printable

from . import planes
from .bank import JaxArcTask, TaskBank
from .packed import TaskTable, columns, content_hash, digest, join_tables, pack
from .parser import RawTask, TaskError

_SAME_SPLIT = {"train": "training", "training": "train", "eval": "evaluation", "evaluation": "eval"}


class TaskSet:
    """Tasks that belong together, numbered from 0; `task_index` is that number.

    Every task of a set has the same shape (`canvas` and pair slots), so one compiled program serves all of them.
    Pass the set itself as `task_data`, or one task, or `tasks.bank`.

        tasks = load("arc-agi-1")
        small = tasks.split("training").fits(10, 10)
        task = small.get_task_by_index(0)
    """

    def __init__(
        self,
        table: TaskTable,
        ids: Sequence[str],
        *,
        splits: Mapping[str, Any] | None = None,
        name: str = "",
        version: str = "",
        source: str = "",
        canvas: tuple[int, int] | None = None,
        skipped: Mapping[str, str] | None = None,
    ):
        if not len(table) or len(table) != len(ids):
            raise ValueError(f"A set must have tasks, each with an id; got {len(table)} and {len(ids)} ids.")
        self.ids = tuple(ids)
        if len(self._places) != len(self.ids):
            twice = next(one for row, one in enumerate(self.ids) if self._places[one] != row)
            raise TaskError(
                f"Every task id must come once; '{twice}' comes twice. Rename or drop one of them."
            )
        self.splits = {key: np.asarray(rows, np.int64) for key, rows in (splits or {}).items()}
        self.name, self.version, self.source = name, version, source
        self.skipped = dict(skipped or {})
        """What was left out when the tasks were read with `skip=True`: the file, or `FILE: ID`, and what is wrong."""
        self.table = table
        """The packed arrays behind the set."""
        self._canvas = canvas
        if canvas is not None and not all(
            least <= side <= planes.MAX_SIDE for least, side in zip(self._largest, canvas, strict=True)
        ):
            least, given = ("×".join(map(str, sides)) for sides in (self._largest, canvas))
            raise ValueError(
                f"`canvas` must be at least {least}, the largest grid, and at most 32×32; got {given}. "
                "Keep smaller tasks with `.fits(height, width)`."
            )

    @classmethod
    def of(cls, tasks: Iterable[RawTask], **names: Any) -> "TaskSet":
        """The set of these tasks; `names` are the keyword arguments of the class."""
        tasks = list(tasks)
        first: dict[str, RawTask] = {}
        for task in tasks:
            other = first.setdefault(task.id, task)
            if other is not task:
                raise TaskError(
                    f"{task.source or 'tasks'}: every task id must come once; '{task.id}' is also in "
                    f"{other.source or 'an earlier task'}. For folders pass `id_from='path'`, or a `pattern` "
                    "that leaves one of the files out."
                )
        return cls(pack(tasks), [task.id for task in tasks], **names)

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width of the padded grids: the largest grid's, unless `with_canvas` chose them."""
        return self._canvas or self._largest

    @property
    def slots(self) -> tuple[int, int]:
        """Demonstrations and test pairs that every task is padded to."""
        return self.table.slots

    @functools.cached_property
    def bank(self) -> TaskBank:
        """All tasks on the device: moved there at the first access, once."""
        return self.table.bank(self.canvas)

    @functools.cached_property
    def content_hash(self) -> str:
        """BLAKE2b over ids and grids: equal for equal tasks in equal order, whatever they were read from."""
        return content_hash({name: digest(part) for name, part in columns(self.table, self.ids).items()})

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[RawTask]:
        return (self._raw(row) for row in range(len(self)))

    def __getitem__(self, which: Any) -> RawTask:
        """The task with this id or number, as it was read; `get_task_by_id` pads it for an environment."""
        return self.raw(which) if isinstance(which, str) else self._raw(self._row(which))

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._places

    def __add__(self, other: "TaskSet") -> "TaskSet":
        return concatenate(self, other) if isinstance(other, TaskSet) else NotImplemented

    def __repr__(self) -> str:
        splits = ", ".join(f"{key}: {len(rows)}" for key, rows in list(self.splits.items())[:4])
        more = f" ({splits}{', …' if len(self.splits) > 4 else ''})" if splits else ""
        name = " ".join(part for part in (self.name, self.version) if part) or "unnamed"
        left = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"TaskSet({name}: {len(self)} tasks{more}, canvas {self.canvas[0]}×{self.canvas[1]}{left})"

    def index_of(self, task_id: str) -> int:
        """The number of the task with this id."""
        if task_id not in self._places:
            near = difflib.get_close_matches(str(task_id), self.ids, n=3)
            hint = f"Did you mean {', '.join(map(repr, near))}?" if near else "See `.ids`."
            raise ValueError(
                f"`task_id` must be one of the {len(self)} ids of the set; got {task_id!r}. {hint}"
            )
        return self._places[task_id]

    def id_of(self, index: Any) -> str:
        """The id of the task with this number."""
        return self.ids[self._row(index)]

    def get_task_by_id(self, task_id: str) -> JaxArcTask:
        """The task with this id, padded like every task of the set."""
        return self.get_task_by_index(self.index_of(task_id))

    def get_task_by_index(self, index: Any) -> JaxArcTask:
        """The task with this number, padded like every task of the set."""
        row = self._row(index)
        return self.table.task(row, row, self.canvas, self.slots)

    def raw(self, task_id: str) -> RawTask:
        """The task with this id as plain NumPy grids."""
        return self._raw(self.index_of(task_id))

    def split(self, name: str) -> "TaskSet":
        """The tasks of one split; "train" and "eval" also find "training" and "evaluation"."""
        found = self.splits.get(name, self.splits.get(_SAME_SPLIT.get(name, "")))
        if found is None:
            known = ", ".join(map(repr, self.splits)) or "none at all"
            raise ValueError(f"`name` must be a split of the set; got {name!r}. It has {known}.")
        return self._take(found)

    def subset(self, chosen: Callable[[RawTask], bool] | Iterable[Any]) -> "TaskSet":
        """Some tasks, renumbered: by ids, by indices, by a mask of booleans, or by a function of the raw task."""
        if callable(chosen):
            return self._take(np.flatnonzero([chosen(task) for task in self]))
        picked = list(chosen) if not isinstance(chosen, str) else [chosen]
        if picked and all(isinstance(one, str) for one in picked):
            return self._take(np.array([self.index_of(one) for one in picked]))
        rows = np.asarray(picked)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise ValueError(
                    f"`chosen` must have one boolean for each of {len(self)} tasks; got {rows.shape}."
                )
            return self._take(np.flatnonzero(rows))
        return self._take(np.array([self._row(one) for one in picked], np.int64))

    def fits(self, height: int, width: int) -> "TaskSet":
        """The tasks whose grids all fit into `height` × `width` cells."""
        return self._take(np.flatnonzero((self.table.largest <= (height, width)).all(1)))

    def with_canvas(self, height: int, width: int) -> "TaskSet":
        """The same tasks, padded to this canvas."""
        return self._like(self.table, self.ids, self.splits, (height, width))

    def describe(self) -> None:
        """Print a table of the splits: tasks, pairs and grid sizes."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        title = " · ".join(part for part in (self.name, self.version, self.source) if part)
        shown = Table(title=escape(printable(title)), caption=f"content {self.content_hash}")
        for column in ("split", "tasks", "train pairs", "test pairs", "largest", "median cells"):
            shown.add_column(
                column, justify="left" if column == "split" else "right", no_wrap=column == "split"
            )
        for key, rows in {"all": np.arange(len(self)), **self.splits}.items():
            part = self.table.take(rows)
            areas = part.sizes.reshape(-1, 2).astype(int).prod(1)
            shown.add_row(
                escape(printable(key)),
                f"{len(part):,}",
                f"{part.num_train.sum():,}",
                f"{part.num_test.sum():,}",
                "×".join(map(str, part.canvas)) if len(part) else "-",
                f"{np.median(areas[areas > 0]):.0f}" if len(part) else "-",
            )
        Console().print(shown)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {task_id: row for row, task_id in enumerate(self.ids)}

    @functools.cached_property
    def _largest(self) -> tuple[int, int]:
        return self.table.canvas

    def _raw(self, row: int) -> RawTask:
        return self.table.raw(row, self.ids[row], self.source)

    def _row(self, index: Any) -> int:
        row = demand_whole(index, "index", "Ids go to `index_of`, several tasks to `subset`.")
        if not 0 <= row < len(self):
            raise ValueError(f"`index` must be from 0 to {len(self) - 1}, the tasks of the set; got {row}.")
        return row

    def _take(self, rows: np.ndarray) -> "TaskSet":
        if not len(rows):
            raise ValueError("A subset must keep at least one task; got none. Loosen the condition.")
        new = np.full(len(self), -1)
        new[rows] = np.arange(len(rows))
        splits = {key: new[old][new[old] >= 0] for key, old in self.splits.items()}
        kept = {key: part for key, part in splits.items() if len(part)}
        return self._like(self.table.take(rows), [self.ids[row] for row in rows], kept, self._canvas)

    def _like(self, table: TaskTable, ids: Sequence[str], splits: Any, canvas: Any) -> "TaskSet":
        facts = {name: getattr(self, name) for name in ("name", "version", "source", "skipped")}
        return TaskSet(table, ids, splits=splits, canvas=canvas, **facts)


def concatenate(*sets: Any, duplicates: str = "error") -> TaskSet:
    """Several sets as one, in order: `concatenate(a, b)`, or a list of them.

    Splits of one name are joined, and each set's name becomes a split.

    An id that comes again is an error, or with `duplicates="first"` the task is left out, or with "rename" it
    becomes `NAME/ID` after the name of its set.
    """
    if duplicates not in ("error", "first", "rename"):
        raise ValueError(f"`duplicates` must be 'error', 'first' or 'rename'; got {duplicates!r}.")
    given = sets[0] if len(sets) == 1 and isinstance(sets[0], list | tuple) else sets
    if not given:
        raise ValueError("`sets` must hold at least one set of tasks; got none.")
    for place, one in enumerate(given):
        if not isinstance(one, TaskSet):
            raise TypeError(
                f"`sets` must be sets of tasks (TaskSet); got {short(one)} at place {place}. Write "
                "`concatenate(first, second)`, or make a set of single tasks with `TaskSet.of(tasks)`."
            )
    ids: list[str] = []
    seen: set[str] = set()
    parts: list[TaskSet] = []
    for one in given:
        again = [task_id in seen for task_id in one.ids]
        own = list(one.ids)
        if any(again) and duplicates == "error":
            raise TaskError(
                f"Every task id must come once; {sum(again)} ids of '{one.name}' are in an earlier set too, such as "
                f"'{own[again.index(True)]}'. Pass `concatenate(..., duplicates='first')` or 'rename'."
            )
        if duplicates == "first":
            if all(again):
                continue
            one = one.subset(~np.array(again)) if any(again) else one
            own = list(one.ids)
        elif duplicates == "rename":
            own = [f"{one.name}/{x}" if twice else x for x, twice in zip(own, again, strict=True)]
        ids += own
        seen.update(own)
        parts.append(one)
    splits: dict[str, list[np.ndarray]] = {}
    start = 0
    for part in parts:
        whole = {part.name: np.arange(len(part))} if part.name and part.name not in part.splits else {}
        for key, rows in {**part.splits, **whole}.items():
            splits.setdefault(key, []).append(rows + start)
        start += len(part)
    names: dict[str, Any] = {
        field: " + ".join(dict.fromkeys(getattr(part, field) for part in parts if getattr(part, field)))
        for field in ("name", "version", "source")
    }
    names["skipped"] = {place: why for part in parts for place, why in part.skipped.items()}
    table = join_tables([part.table for part in parts])
    return TaskSet(table, ids, splits={key: np.concatenate(rows) for key, rows in splits.items()}, **names)

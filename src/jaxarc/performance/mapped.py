"""The guide's loader of tasks from a memory-mapped file."""

import functools
import operator
from collections.abc import Iterable
from typing import Any

from ..tasks.bank import JaxArcTask
from ..tasks.mapped import MappedTasks, open_task_file
from ..tasks.parser import PathLike


class MemoryMappedTaskLoader:
    """The first `max_tasks` tasks of a file that `jaxarc.tasks.write_task_file` wrote, read as they are asked for.

    The file is opened at the first access, and only read. `jaxarc.tasks.open_task_file` gives the same tasks with
    ids, splits and banks.

        loader = MemoryMappedTaskLoader("tasks.arcbank")
        task = loader.get_task(0)
    """

    def __init__(self, data_path: PathLike, max_tasks: int = 1000):
        if max_tasks < 1:
            raise ValueError(f"`max_tasks` must be at least 1; got {max_tasks}.")
        self.data_path = data_path
        self.max_tasks = max_tasks

    @functools.cached_property
    def _tasks(self) -> MappedTasks:
        return open_task_file(self.data_path)

    def __len__(self) -> int:
        return min(self.max_tasks, len(self._tasks))

    def get_task(self, task_id: Any) -> JaxArcTask:
        """The task with this number."""
        row = operator.index(task_id)
        if not 0 <= row < len(self):
            raise ValueError(
                f"`task_id` must be from 0 to {len(self) - 1}; got {row}. The file has {len(self._tasks)} tasks, "
                f"and `max_tasks` is {self.max_tasks}."
            )
        return self._tasks.get_task(row)

    def get_batch_tasks(self, task_ids: Iterable[Any]) -> list[JaxArcTask]:
        """The tasks with these numbers, in their order."""
        return [self.get_task(task_id) for task_id in task_ids]

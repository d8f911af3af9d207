"""The tasks that a command line names; what is wrong is said in the words that were typed."""

import contextlib
from collections.abc import Iterator

from ..tasks import datasets
from ..tasks.parser import TaskError
from ..tasks.taskset import TaskSet


@contextlib.contextmanager
def typed_remedies() -> Iterator[None]:
    """Errors of a loader, with remedies that can be typed at a command line."""
    try:
        yield
    except TaskError as error:
        said = str(error)
        for inside, typed in (
            (
                "Load the others with `skip=True`.",
                "`jaxarc data SOURCE --skip --out tasks.arcbank` keeps the others.",
            ),
            ("Pass `flat_rows=True`", "Pass `--flat-rows` to `jaxarc data`"),
            ("Pass `null_as=0`", "Pass `--null-as 0` to `jaxarc data`"),
            (
                "For folders pass `id_from='path'`, or a `pattern` that leaves one of the files out.",
                "`jaxarc data FOLDER --id-from path --out tasks.arcbank` gives each an id of its own.",
            ),
        ):
            said = said.replace(inside, typed)
        if said == str(error):
            raise
        raise TaskError(said) from error


def load_tasks(source: str, option: str, split: str | None = None, skip: bool = False) -> TaskSet:
    """The tasks of a name, a folder or a file; `option` is what the command calls it."""
    try:
        with typed_remedies():
            return datasets.load(source, split=split, skip=skip)
    except ValueError as error:
        said = (
            str(error)
            .replace("`name_or_path`", f"`{option}`")
            .replace("`name` must be a", "`--split` must be a")
        )
        if said == str(error):
            raise
        raise ValueError(said) from error


def demand_id(tasks: TaskSet, name: str, option: str) -> str:
    """`name` if a task is called so; `option` is what the command calls it."""
    try:
        tasks.index_of(name)
    except ValueError as error:
        said = str(error).replace("`task_id`", f"`{option}`").replace("See `.ids`.", _LISTED)
        raise ValueError(said) from error
    return name


_LISTED = "`jaxarc data SOURCE --ids` lists them."

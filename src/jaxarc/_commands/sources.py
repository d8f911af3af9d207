"""The tasks that a command line names; what is wrong is said in the words that were typed."""

import contextlib
from collections.abc import Iterator, Mapping

from ..tasks import datasets
from ..tasks.taskset import TaskSet

REMEDIES = {
    "Load the others with `skip=True`.": "`jaxarc data SOURCE --skip --out tasks.arcbank` keeps the others.",
    "Pass `flat_rows=True`": "Pass `--flat-rows` to `jaxarc data`",
    "Pass `null_as=0`": "Pass `--null-as 0` to `jaxarc data`",
    "For folders pass `id_from='path'`, or a `pattern` that leaves one of the files out.": (
        "`jaxarc data FOLDER --id-from path --out tasks.arcbank` gives each an id of its own."
    ),
}
"""What a loader advises in Python, and what can be typed instead."""


@contextlib.contextmanager
def reword_errors(words: Mapping[str, str]) -> Iterator[None]:
    """Errors with other words in place of these: options for arguments, and remedies that can be typed."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        for inside, typed in words.items():
            said = said.replace(inside, typed)
        if said == str(error):
            raise
        raise type(error)(said) from error


def load_tasks(source: str, option: str, split: str | None = None, skip: bool = False) -> TaskSet:
    """The tasks of a name, a folder or a file; `option` is what the command calls it."""
    names = {"`name_or_path`": f"`{option}`", "`name` must be a": "`--split` must be a"}
    with reword_errors({**REMEDIES, **names}):
        return datasets.load(source, split=split, skip=skip)


def demand_id(tasks: TaskSet, name: str, option: str) -> str:
    """`name` if a task is called so; `option` is what the command calls it."""
    with reword_errors({"`task_id`": f"`{option}`", "See `.ids`.": "`jaxarc data SOURCE --ids` lists them."}):
        tasks.index_of(name)
    return name

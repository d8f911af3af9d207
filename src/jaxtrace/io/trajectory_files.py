"""Write trajectories to files and read them: `save_trajectory` and `load_trajectory`; the suffix selects the format."""

import dataclasses
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.store import atomic_write, read_archive

from ..fields.epoch import Epoch
from ..tracking.trajectory import Trajectory
from .files import ZARR_SUFFIXES, PathLike, is_elsewhere, named_errors

# Kind of numbers and axes of each array of a trajectory that is stored: times, particles and dimensions.
_FORMS = {
    "positions": ("f", "tpd"),
    "times": ("f", "t"),
    "ids": ("iuUOT", "p"),  # numbers or names
    "alive": ("b", "tp"),
    "ages": ("f", "tp"),
    "release_times": ("f", "p"),
    "end_times": ("f", "p"),
    "outcomes": ("i", "p"),
    "patches": ("i", "p"),
    "velocities": ("f", "tpd"),
    "generation": ("iu", "tp"),
}
ARRAYS = tuple(_FORMS)
"""Fields of a trajectory that are arrays, or None."""
WIDE = ("int64", "uint32", "uint64")
"""Types of whole numbers that a file may keep in 32 bits with a sign."""
VERSION = 1


def save_trajectory(trajectory: Trajectory, path: PathLike, **options: Any) -> Path:
    """Write a trajectory to `path` and return the path. An existing file is replaced whole, never in part.

    - `.npz`: NumPy arrays, nothing lost.
    - `.nc`: NetCDF by the CF conventions for trajectories, nothing lost. Options: `units` of the positions ("m"; "degrees"
      for longitudes and latitudes), `since` (the date of time 0, for a trajectory without an `epoch`), `compress`, and
      `positive` (the direction in which the third coordinate grows: "up" or, for depths, "down").
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
    kind = target.suffix.lower()
    if kind not in (".npz", ".nc", ".zarr", ".vtp", ".pvd"):
        raise ValueError(f"`path` must end in .npz, .nc, .zarr, .vtp or .pvd; got {os.fspath(path)!r}.")
    if options and kind not in (".nc", ".zarr"):
        raise TypeError(f"options {', '.join(options)} are for .nc and .zarr; {target.suffix} takes none.")
    if kind == ".npz":
        arrays = {name: a for name in ARRAYS if (a := getattr(trajectory, name)) is not None}
        extra: dict[str, np.ndarray] = {}
        header = np.array(header_text(trajectory, extra))
        with atomic_write(target) as file:
            np.savez(file, allow_pickle=False, header=header, **arrays, **extra)
    elif kind in (".nc", ".zarr"):
        from .cf.trajectories import write_netcdf
        from .zarr.trajectories import write_zarr

        (write_netcdf if kind == ".nc" else write_zarr)(trajectory, target, **options)
    else:
        from .vtk.trajectories import write_frames, write_paths

        (write_paths if kind == ".vtp" else write_frames)(trajectory, target)
    return target


def load_trajectory(path: PathLike) -> Trajectory:
    """Read a trajectory that `save_trajectory` wrote to `.npz`, `.nc` or `.zarr` (or a `.zip` of that folder)."""
    source = Path(path).expanduser()
    kind = source.suffix.lower()
    if kind in (".vtp", ".pvd"):
        raise ValueError(
            f"{source}: .vtp and .pvd are for ParaView and do not hold all; save to .npz, .nc or .zarr to load again."
        )
    if kind not in (".npz", ".nc", *ZARR_SUFFIXES):
        raise ValueError(f"`path` must end in .npz, .nc or .zarr; got {os.fspath(path)!r}.")
    if kind in ZARR_SUFFIXES and source.exists():
        from .zarr.trajectories import read_zarr

        return read_zarr(source)
    if not source.is_file():
        raise FileNotFoundError(f"{source}: the file is missing.")
    if kind == ".nc":
        from .cf.trajectories import read_netcdf

        return read_netcdf(source)
    with _naming_damage(source):
        found = read_archive(source)
        header = str(found.pop("header"))
    return from_parts(source, {name: found.get(name) for name in ARRAYS}, header, found)


def header_text(trajectory: Trajectory, arrays: dict[str, np.ndarray]) -> str:
    """Everything but the arrays, as JSON. Arrays of the reduction are added to `arrays`."""
    info, reduced = _flatten(trajectory.info, "info", None), _flatten(trajectory.reduced, "reduced", arrays)
    stored = {**{name: getattr(trajectory, name) for name in ARRAYS}, **arrays}
    wide = {name: str(a.dtype) for name, a in stored.items() if a is not None and str(a.dtype) in WIDE}
    plain = {
        "version": VERSION,
        "patch_names": list(trajectory.patch_names),
        "patch_counts": {name: int(count) for name, count in trajectory.patch_counts.items()},
        "outcome": trajectory.outcome,
        "outcome_names": list(trajectory.outcome_names),
        "info": info,
        "reduced": reduced,
        "types": wide,
        "epoch": None if trajectory.epoch is None else dataclasses.asdict(trajectory.epoch),
    }
    return json.dumps(plain)


def from_parts(
    path: Path, arrays: dict[str, Any], header: str, extra: dict[str, np.ndarray], since: Epoch | None = None
) -> Trajectory:
    """The trajectory from its arrays and `header_text`; `since` is the date of time 0 if the header has none."""
    with _naming_damage(path):
        plain = json.loads(header)
        _check_parts(arrays, plain)
        if plain["version"] != VERSION:
            raise ValueError(f"it has version {plain['version']}; this program reads {VERSION}")
        _widen(arrays, plain.get("types"))
        _widen(extra, plain.get("types"))
        info, epoch = _restore(plain["info"], extra), plain.get("epoch")
        if not isinstance(info, dict):
            raise ValueError(f"its info must be a table; it is a {type(info).__name__}")
        if epoch is not None and (not isinstance(epoch, dict) or set(epoch) != {"date", "calendar"}):
            raise ValueError("its header has an `epoch` without date and calendar")
        return Trajectory(
            **arrays,
            patch_names=tuple(plain["patch_names"]),
            patch_counts=plain["patch_counts"],
            outcome=plain["outcome"],
            outcome_names=tuple(plain["outcome_names"]),
            info=info,
            reduced=_restore(plain["reduced"], extra),
            epoch=since if epoch is None else Epoch(str(epoch["date"]), str(epoch["calendar"])),
        )


def _widen(arrays: dict[str, Any], types: Any) -> None:
    """Give whole numbers the types back that they had before a file kept them in 32 bits."""
    for name, kind in types.items() if isinstance(types, dict) else ():
        if kind in WIDE and getattr(arrays.get(name), "dtype", None) == np.int32:
            arrays[name] = arrays[name].astype(kind)


def _check_parts(arrays: dict[str, Any], plain: Any) -> None:
    """Refuse arrays that do not fit each other, and a header with values of the wrong type."""
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
    lists = plain["patch_names"], plain["outcome_names"]
    texts = all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in lists)
    if not (texts and isinstance(plain["outcome"], str) and isinstance(plain["patch_counts"], dict)):
        raise ValueError("its header names patches or outcomes that are no texts")
    if not all(type(count) is int for count in plain["patch_counts"].values()):
        raise ValueError("its header counts patches with something else than whole numbers")
    outcomes, known = arrays["outcomes"], len(plain["outcome_names"])
    if outcomes.size and not 0 <= outcomes.min() <= outcomes.max() < known:
        raise ValueError(f"outcomes must be below {known}, the number of their names")


def _naming_damage(path: Path) -> AbstractContextManager[None]:
    kinds = (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
    remedy = " The file is damaged or another one."
    return named_errors(f"{path}: no trajectory can be read", kinds, remedy, 300)


def _flatten(value: Any, where: str, arrays: dict[str, np.ndarray] | None) -> Any:
    """A value as JSON: containers are tagged, arrays are added to `arrays`. Without `arrays` the rest becomes text."""
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

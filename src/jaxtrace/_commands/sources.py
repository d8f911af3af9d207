"""What a command line may mean by a field or by trajectories."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.arguments import suggestion

from ..fields import abc_flow, double_gyre, peninsula, solid_rotation
from ..fields.epoch import Epoch, as_epoch, epoch_of, is_date
from ..io import load_optimized_dataset, load_trajectory
from ..io.cf.dataset import NETCDF_SUFFIXES, open_file
from ..io.files import is_store
from ..io.zarr.dataset import attributes_of
from ..tracking.trajectory import Trajectory

# Flows by their name, with the box and the time that are usually looked at.
FLOWS: dict[str, tuple[Any, tuple[Sequence[float], Sequence[float]], tuple[float, float]]] = {
    "double_gyre": (double_gyre, ((0.0, 0.0), (2.0, 1.0)), (0.0, 10.0)),
    "abc_flow": (abc_flow, ((0.0,) * 3, (2 * np.pi,) * 3), (0.0, 10.0)),
    "peninsula": (peninsula, ((0.0, 0.0), (1.0, 0.5)), (0.0, 1.0)),
    "solid_rotation": (solid_rotation, ((-1.0, -1.0), (1.0, 1.0)), (0.0, 2 * np.pi)),
}


def is_trajectory(name: str) -> bool:
    """Whether a file holds trajectories that `save_trajectory` wrote; asked without reading them."""
    path = Path(os.path.expanduser(name))
    if path.suffix.lower() == ".npz":
        return True
    if path.exists() and is_store(path):
        return "jaxtrace" in attributes_of(path)
    if path.suffix.lower() not in NETCDF_SUFFIXES or not path.is_file():
        return False
    with open_file(path) as dataset:
        return "jaxtrace" in dataset.attrs


def read_trajectory(name: str, epoch: Epoch | None, positions: bool = False) -> Trajectory:
    """The trajectories in a file with the date of time 0 that the command line says; another one than theirs is refused."""
    found = load_trajectory(name)
    if positions and found.positions is None:
        raise ValueError(f"{name} must hold positions; the run kept only what `reduce` made of them.")
    if epoch is not None and found.epoch is not None and epoch != found.epoch:
        raise ValueError(f"`--since` must be {found.epoch}, the date in the file, or left out; got {epoch}.")
    return found if epoch is None else found.with_epoch(epoch)


def open_field(name: str, **options: Any) -> Any:
    """The field of a file, a pattern or a flow's name."""
    if name in FLOWS:
        if options:
            given = {"epoch": "since", "times": "slice-times", "convert_units": "keep-units"}
            word = next(iter(options))
            option = given.get(word, word).replace("_", "-")
            raise ValueError(f"`--{option}` must be left out for the flow {name}, which is a formula.")
        return FLOWS[name][0]()
    if not Path(name).suffix and not any(letter in name for letter in "*?[/\\") and not Path(name).exists():
        raise ValueError(
            f"a field must be a file, a pattern in quotes, or a flow: {', '.join(FLOWS)}; got {name!r}.{suggestion(name, FLOWS)}"
        )
    return load_optimized_dataset(name, verbose=False, **options)


def reading_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `load_optimized_dataset` from the options of a command line; options that are not given are left out."""
    given = {name: value for name, value in said.items() if value not in (None, ())}
    if given.pop("keep_units", False):
        given["convert_units"] = False
    if "velocity" in given:
        given["velocity"] = velocity_names(given["velocity"])
    if "select" in given:
        given["select"] = dict(map(_index, given["select"]))
    if "attributes" in given:
        found: dict[str, dict[str, Any]] = {}
        for variable, attribute, value in map(_attribute, given["attributes"]):
            found.setdefault(variable, {})[attribute] = value
        given["attributes"] = found
    if "slice_times" in given:
        given["times"] = list(map(_moment, given.pop("slice_times")))
    if "since" in given:
        given["epoch"] = as_epoch(given.pop("since"), "--since")
    return given


def _index(said: str) -> tuple[str, int]:
    """A dimension and a number, from `depth=0`."""
    name, _, number = said.partition("=")
    if not name or not number.lstrip("-").isdecimal():
        raise ValueError(f"`--select` must be a dimension and a number, such as depth=0; got {said!r}.")
    return name, int(number)


def _attribute(said: str) -> tuple[str, str, Any]:
    """A variable, an attribute of it and its value, from `nav_lon.units=m`."""
    word, _, value = said.partition("=")
    variable, _, attribute = word.rpartition(".")
    if not (variable and attribute and "=" in said):
        raise ValueError(
            f"`--attributes` must be a variable, its attribute and a value, such as nav_lon.units=m; got {said!r}."
        )
    number = attribute.startswith(("_", "missing", "scale", "add"))
    return variable, attribute, _moment(value) if number else value


def _moment(said: str) -> Any:
    """A number where it is one, else a date."""
    try:
        return float(said)
    except ValueError:
        return said


def velocity_names(given: str | Sequence[str]) -> Any:
    """One vector, several components, or None for the rule."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(names) == 1:
        return names[0]
    return tuple(None if name == "none" else name for name in names) or None


def moment_of(said: Any, epoch: Epoch | None, option: str) -> float:
    """A time or a date, as a command line or a TOML file says it, as a time."""
    said = _moment(said) if isinstance(said, str) else said
    if not is_date(said):
        if not np.isfinite(said):
            raise ValueError(f"`{option}` must be finite times or dates, such as 2015-11-16; got {said}.")
        return float(said)
    if epoch is None:
        raise ValueError(
            f"`{option}` must be numbers, since the date of time 0 is not known; got {said}. Say it with "
            "`--since 2015-11-16` (in a problem file: `since = 2015-11-16`)."
        )
    return epoch.seconds(said, option)


def box_of(name: str, field: Any, bounds: Sequence[float]) -> np.ndarray:
    """The corners that are given, else those of the field's grid, else those a flow is usually looked at in."""
    if len(bounds):
        if len(bounds) != 2 * field.dim:
            raise ValueError(
                f"`bounds` must be {2 * field.dim} numbers, the lower corner and then the upper; got {len(bounds)}."
            )
        box, said = np.asarray(bounds, np.float64).reshape(2, field.dim), list(map(float, bounds))
        if not np.isfinite(box).all():
            raise ValueError(f"`bounds` must be finite; got {said}.")
        if not (box[0] <= box[1]).all():
            raise ValueError(
                f"`bounds` must be the lower corner and then the upper; got {said}. The other way round: "
                f"{' '.join(f'{b:g}' for b in np.sort(box, axis=0).ravel())}."
            )
        return box
    if name in FLOWS:
        return np.asarray(FLOWS[name][1], np.float64)
    return np.asarray(field.grid.bounds, np.float64)


def span_of(name: str, field: Any, span: Sequence[Any] | None) -> tuple[float, float]:
    """The times or dates that are given, else those of the field."""
    if span is not None:
        first, last = (moment_of(one, epoch_of(field), "span") for one in span)
        return first, last
    if name in FLOWS:
        return FLOWS[name][2]
    if len(field.times) < 2:
        raise ValueError("`span`, the first and the last time, must be given for a field of one time.")
    return float(field.times[0]), float(field.times[-1])

"""Trajectories by the CF conventions (featureType trajectory): as xarray data sets, as NetCDF, and back from either."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds import __version__
from jaxworlds.store import atomic_write

from ..fields.base import check_choice
from ..fields.epoch import Epoch, as_epoch
from ..tracking.trajectory import Trajectory
from .saving import ARRAYS, from_parts, header_text
from .series import DatasetError

# Name, long name, CF standard name and axis of each coordinate.
_PLACES = {
    "m": (("x", "x", None, "X"), ("y", "y", None, "Y"), ("z", "z", None, "Z")),
    "degrees": (
        ("lon", "longitude", "longitude", "X"),
        ("lat", "latitude", "latitude", "Y"),
        ("z", "vertical coordinate", None, "Z"),
    ),
}
_TOLD: dict[str, tuple[str, str]] = {
    "alive": ("whether the particle is on its way", ""),
    "ages": ("time since release", "s"),
    "generation": ("how often the slot was filled again", "1"),
    "release_times": ("time of release", "s"),
    "end_times": ("time at which the particle ended", "s"),
    "outcomes": ("what became of the particle", ""),
    "patches": ("number of the patch the particle left through, -1 for none", ""),
}


def trajectory_dataset(
    trajectory: Trajectory, *, units: str = "m", since: Any = None, positive: str = "up"
) -> Any:
    """A trajectory as an `xarray.Dataset` with the dimensions trajectory and obs, by the CF conventions (H.4.1).

    Positions and `time` have both dimensions; `obs` holds the recorded times in seconds from time 0. `units` are those of the
    positions; "degrees" makes the first two longitude and latitude. `since` is the date of time 0 ("2015-11-16 06:00") for a
    trajectory that has none; without one `time` is in plain seconds, which CF counts as no time coordinate. `positive` is the
    direction in which the third coordinate grows, "down" for depths.
    """
    check_choice("positive", positive, ("up", "down"))
    epoch = _epoch_of(trajectory, since)
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            'NetCDF and Zarr need the package xarray: pip install "jaxworlds[trace]".'
        ) from error
    places = _PLACES.get(units, _PLACES["m"])
    both, one = ("trajectory", "obs"), ("trajectory",)
    coordinates = _moments(trajectory, epoch)
    if trajectory.positions is not None:
        for k in range(trajectory.positions.shape[-1]):
            told = _place_attributes(places[k], units, positive)
            coordinates[places[k][0]] = (both, trajectory.positions[..., k].T, told)
    data: dict[str, Any] = {}
    if trajectory.velocities is not None:
        for k in range(trajectory.velocities.shape[-1]):
            told = {"long_name": f"velocity along {places[k][0]}", "units": f"{units} s-1"}
            data["uvw"[k]] = (both, trajectory.velocities[..., k].T, told)
    for name, (long, unit) in _TOLD.items():
        values = _narrow(getattr(trajectory, name))
        if values is not None:
            told: dict[str, Any] = {"long_name": long} | ({"units": unit} if unit else {})
            data[name] = (both, values.T, told) if values.ndim > 1 else (one, values, told)
    data["outcomes"][2]["flag_values"] = np.arange(
        len(trajectory.outcome_names), dtype=data["outcomes"][1].dtype
    )
    data["outcomes"][2]["flag_meanings"] = " ".join(map(_flag, trajectory.outcome_names))
    extra: dict[str, np.ndarray] = {}
    header = header_text(trajectory.with_epoch(epoch), extra)
    for name, values in extra.items():
        dims = tuple(f"{name}_{k}" for k in range(values.ndim))
        data[name] = (dims, _narrow(values), {"long_name": f"result of reduce: {name}"})
    around = " ".join(name for name, entry in coordinates.items() if entry[0] == both)
    types = [values.dtype for _, values, *_ in (*coordinates.values(), *data.values())]
    attributes = {
        "Conventions": "CF-1.9" if any(one.kind == "u" or one == np.int64 for one in types) else "CF-1.8",
        "history": f"written by jaxtrace {__version__}",
        "featureType": "trajectory",
        "title": "particle trajectories",
        "source": "jaxtrace",
        "jaxtrace": header,
    }
    dataset = xarray.Dataset(data, coordinates, attributes)
    for variable in dataset.data_vars.values():
        # Said here, so that xarray and `write_zarr` write the same; what has other dimensions has no place.
        variable.encoding["coordinates"] = around if variable.dims == both else None
    return dataset


def _moments(trajectory: Trajectory, epoch: Epoch | None) -> dict[str, Any]:
    """Identities, recorded times in seconds, and the time of each observation, as a date where there is one."""
    # What has the standard name or the axis of time must count from a date; seconds from none are another coordinate.
    clock = {"long_name": "time since time 0, which has no date", "units": "s"}
    since = "time 0"
    if epoch is not None:
        clock = {"long_name": "time", "standard_name": "time", "axis": "T", "units": epoch.units}
        clock["calendar"] = epoch.calendar
        since = str(epoch)
    number = {"long_name": "identity of the particle", "cf_role": "trajectory_id"}
    recorded = {"long_name": f"recorded time, counted from {since}", "units": "s"}
    shape = (trajectory.particles, len(trajectory))
    ids = _narrow(trajectory.ids)
    return {
        _ids_name(ids): ("trajectory", ids, number),
        "obs": ("obs", trajectory.times, recorded),
        "time": (("trajectory", "obs"), np.broadcast_to(trajectory.times, shape), clock),
    }


def _ids_name(ids: np.ndarray) -> str:
    """The name of the identities: that of their dimension only where they rise or fall, as CF demands of it."""
    steps = np.diff(ids.astype(np.float64)) if ids.dtype.kind in "iu" else np.ones(1)
    return "trajectory" if np.all(steps > 0) or np.all(steps < 0) else "trajectory_id"


def _place_attributes(place: tuple[str, str, str | None, str], units: str, positive: str) -> dict[str, str]:
    """Attributes of one coordinate of the positions."""
    _, long, standard, axis = place
    unit = {"X": "degrees_east", "Y": "degrees_north"}.get(axis, "m") if units == "degrees" else units
    told = {"long_name": long, "units": unit} | ({"standard_name": standard} if standard else {})
    if units == "degrees" or axis == "Z":  # the checker takes other axes X and Y for longitude and latitude
        told["axis"] = axis
    if axis == "Z":
        told |= {"positive": positive} | ({"long_name": "depth"} if positive == "down" else {})
    return told


def _flag(name: str) -> str:
    """A name as one word of the letters that CF knows in the meanings of flags."""
    return re.sub(r"[^A-Za-z0-9_.+@-]+", "_", name).strip("_")


def _narrow(values: Any) -> Any:
    """Whole numbers in 32 bits with a sign where they fit: CF 1.8 has no longer ones and none without, CF 1.9 has."""
    if values is None or values.dtype.kind not in "iu" or values.dtype.itemsize < 4:
        return values
    if not values.size or (int(values.min()) >= -(2**31) and int(values.max()) < 2**31):
        return values.astype(np.int32)
    return values


def _epoch_of(trajectory: Trajectory, since: Any) -> Epoch | None:
    """The date of time 0: the trajectory's own, or the one that is given."""
    given = as_epoch(since, "since")
    own = trajectory.epoch
    if given is not None and own is not None and given != own:
        raise ValueError(
            f"`since` must be {str(own)!r}, the date of time 0 of the trajectory, or left out; got {str(given)!r}. To give it "
            f"another date write `trajectory.with_epoch({str(given)!r})`."
        )
    return own if given is None else given


def write_netcdf(
    trajectory: Trajectory,
    path: Path,
    *,
    units: str = "m",
    since: Any = None,
    positive: str = "up",
    compress: bool = False,
) -> None:
    """Write a trajectory to a NetCDF 4 file."""
    dataset = trajectory_dataset(trajectory, units=units, since=since, positive=positive)
    squeezed = {"zlib": True, "complevel": 1}
    encoding = {
        str(name): {
            **({"_FillValue": None} if variable.dtype.kind == "f" else {}),
            # The same times for each particle pack to next to nothing.
            **(squeezed if variable.ndim and (compress or name == "time") else {}),
        }
        for name, variable in dataset.variables.items()
        if variable.dtype.kind != "U"
    }
    # In memory first: on a full disk HDF5 ends the process instead of raising (h5py 3.16).
    made = io.BytesIO()
    try:
        dataset.to_netcdf(made, engine="h5netcdf", encoding=encoding)
    except ImportError as error:
        raise ImportError('NetCDF needs h5netcdf and h5py: pip install "jaxworlds[trace]".') from error
    with atomic_write(path) as file:
        file.write(made.getbuffer())


def read_netcdf(path: Path) -> Trajectory:
    """Read a trajectory that `write_netcdf` wrote."""
    from .xarray_reading import READING_ERRORS, open_file

    with open_file(path) as dataset:
        try:
            stored = {str(name): variable.values for name, variable in dataset.variables.items()}
        except READING_ERRORS as error:
            raise DatasetError(
                f"{path}: the file cannot be read: {str(error)[:300]}. It is damaged."
            ) from error
        header = dataset.attrs.get("jaxtrace")
        clock = dict(dataset.variables["time"].attrs) if "time" in dataset.variables else {}
    return from_variables(path, stored, header, clock)


def from_variables(
    path: Path, stored: dict[str, Any], header: Any, clock: Mapping[str, Any] | None = None
) -> Trajectory:
    """The trajectory from the variables of its data set, by their names, and the attribute `jaxtrace`.

    `clock` are the attributes of the time: files of older versions say the date of time 0 there alone, and have one time for
    all particles in place of `obs`.
    """
    if header is None:
        raise DatasetError(
            f"{path}: the file was not written by `save_trajectory`; it has no attribute 'jaxtrace'."
        )
    stored = {"trajectory": stored.get("trajectory_id"), **stored}  # where they are in no order
    kept = _types(header)
    stored = {
        name: values.astype(kept[name])
        if name in kept and getattr(values, "dtype", None) == np.int32
        else values
        for name, values in stored.items()
    }
    arrays: dict[str, Any] = {name: stored.get(name) for name in ARRAYS}
    arrays["ids"], arrays["times"] = stored.get("trajectory"), stored.get("obs", stored.get("time"))
    for name in ("alive", "ages", "generation"):
        arrays[name] = None if arrays[name] is None else np.ascontiguousarray(arrays[name].T)
    names = ("lon", "lat", "z") if "lon" in stored else ("x", "y", "z")
    for field, parts in (("positions", names), ("velocities", ("u", "v", "w"))):
        found = [stored[name].T for name in parts if name in stored]
        if len({part.shape for part in found}) > 1:
            raise DatasetError(f"{path}: the components of the {field} have different shapes. It is damaged.")
        arrays[field] = np.stack(found, -1) if found else None
    return from_parts(path, arrays, str(header), stored, _since(clock or {}))


def _types(header: Any) -> dict[str, np.dtype]:
    """The types that whole numbers had in memory, where a file may keep them in fewer bits."""
    try:
        found = json.loads(str(header))["types"].items()
    except (ValueError, AttributeError, RecursionError, KeyError, TypeError):
        return {}
    return {
        "trajectory" if name == "ids" else str(name): np.dtype(kind)
        for name, kind in found
        if kind in ("int64", "uint32", "uint64")
    }


def _since(clock: Mapping[str, Any]) -> Epoch | None:
    """The date of time 0 from "seconds since 2015-11-16"; None where there is none that can be read."""
    words = str(clock.get("units", "")).split("since", 1)
    if len(words) < 2 or words[0].strip() != "seconds":
        return None
    try:
        return Epoch(words[1].strip(), str(clock.get("calendar", "standard")))
    except ValueError:
        return None

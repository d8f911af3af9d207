"""Trajectories by the CF conventions (featureType trajectory): as xarray data sets, as NetCDF, and back from either."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds import __version__
from jaxworlds.store import atomic_write

from ...fields.base import check_choice
from ...fields.epoch import Epoch, as_epoch
from ...tracking.trajectory import Trajectory
from ..files import DatasetError, named_errors, naming_package
from ..trajectory_files import ARRAYS, from_parts, header_text

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
    trajectory that has none. Without a date, `time` is in plain seconds, which CF does not accept as a time coordinate.
    `positive` is the direction in which the third coordinate grows, "down" for depths.
    """
    check_choice("positive", positive, ("up", "down"))
    epoch = _epoch_of(trajectory, since)
    with naming_package("NetCDF and Zarr need the package xarray"):
        import xarray
    places = _places(units, positive)
    both = ("trajectory", "obs")
    coordinates = _moments(trajectory, epoch)
    data: dict[str, Any] = {}
    if trajectory.positions is not None:
        for (name, told), values in zip(
            places.items(), np.moveaxis(trajectory.positions, -1, 0), strict=False
        ):
            coordinates[name] = (both, values.T, told)
    if trajectory.velocities is not None:
        for letter, name, values in zip(
            "uvw", places, np.moveaxis(trajectory.velocities, -1, 0), strict=False
        ):
            data[letter] = (both, values.T, {"long_name": f"velocity along {name}", "units": f"{units} s-1"})
    for name, (long, unit) in _TOLD.items():
        values = _narrow(getattr(trajectory, name))
        if values is not None:
            told: dict[str, Any] = {"long_name": long} | ({"units": unit} if unit else {})
            data[name] = (both, values.T, told) if values.ndim > 1 else (both[:1], values, told)
    codes = np.arange(len(trajectory.outcome_names), dtype=data["outcomes"][1].dtype)
    # Each name as one word of the letters that CF knows in the meanings of flags.
    words = [re.sub(r"[^A-Za-z0-9_.+@-]+", "_", name).strip("_") for name in trajectory.outcome_names]
    data["outcomes"][2].update(flag_values=codes, flag_meanings=" ".join(words))
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
    """Identities, recorded times in seconds, and the time of each observation, as a date if there is one."""
    # What has the standard name or the axis of time must count from a date; seconds from none are another coordinate.
    clock = {"long_name": "time since time 0, which has no date", "units": "s"}
    if epoch is not None:
        clock = {"long_name": "time", "standard_name": "time", "axis": "T", "units": epoch.units}
        clock["calendar"] = epoch.calendar
    number = {"long_name": "identity of the particle", "cf_role": "trajectory_id"}
    recorded = {"long_name": f"recorded time, counted from {epoch or 'time 0'}", "units": "s"}
    shape = (trajectory.particles, len(trajectory))
    ids = _narrow(trajectory.ids)
    # CF demands of a variable with the name of its dimension that its values rise or fall.
    steps = np.diff(ids.astype(np.float64)) if ids.dtype.kind in "iu" else np.ones(1)
    ordered = np.all(steps > 0) or np.all(steps < 0)
    return {
        "trajectory" if ordered else "trajectory_id": ("trajectory", ids, number),
        "obs": ("obs", trajectory.times, recorded),
        "time": (("trajectory", "obs"), np.broadcast_to(trajectory.times, shape), clock),
    }


def _places(units: str, positive: str) -> dict[str, dict[str, str]]:
    """The coordinates of the positions with their attributes."""
    long, unit = ("vertical coordinate", "m") if units == "degrees" else ("z", units)
    long = "depth" if positive == "down" else long
    z = {"long_name": long, "units": unit, "axis": "Z", "positive": positive}
    if units != "degrees":  # no axes: the compliance checker takes X and Y for longitude and latitude
        return {**{name: {"long_name": name, "units": units} for name in "xy"}, "z": z}
    return {
        "lon": {"long_name": "longitude", "units": "degrees_east", "standard_name": "longitude", "axis": "X"},
        "lat": {"long_name": "latitude", "units": "degrees_north", "standard_name": "latitude", "axis": "Y"},
        "z": z,
    }


def _narrow(values: Any) -> Any:
    """Whole numbers as int32 if they fit: CF 1.8 has no longer and no unsigned ones, CF 1.9 has."""
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


def write_netcdf(trajectory: Trajectory, path: Path, *, compress: bool = False, **options: Any) -> None:
    """Write a trajectory to a NetCDF 4 file; `options` are those of `trajectory_dataset`."""
    dataset = trajectory_dataset(trajectory, **options)
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
    with naming_package("NetCDF needs h5netcdf and h5py"):
        dataset.to_netcdf(made, engine="h5netcdf", encoding=encoding)
    with atomic_write(path) as file:
        file.write(made.getbuffer())


def read_netcdf(path: Path) -> Trajectory:
    """Read a trajectory that `write_netcdf` wrote."""
    from .dataset import READING_ERRORS, open_file

    with open_file(path) as dataset:
        with named_errors(f"{path}: the file cannot be read", READING_ERRORS, " It is damaged.", 300):
            stored = {str(name): variable.values for name, variable in dataset.variables.items()}
        header = dataset.attrs.get("jaxtrace")
        clock = dict(dataset.variables["time"].attrs) if "time" in stored else {}
    return from_variables(path, stored, header, clock)


def from_variables(
    path: Path, stored: dict[str, Any], header: Any, clock: Mapping[str, Any] | None = None
) -> Trajectory:
    """The trajectory from the variables of its data set, by their names, and the attribute `jaxtrace`.

    `clock` holds the attributes of the time. Files of older versions have the date of time 0 only there, and one time for all
    particles in place of `obs`.
    """
    if header is None:
        raise DatasetError(
            f"{path}: the file was not written by `save_trajectory`; it has no attribute 'jaxtrace'."
        )
    stored = {"trajectory": stored.get("trajectory_id"), **stored}  # where they are in no order
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


def _since(clock: Mapping[str, Any]) -> Epoch | None:
    """The date of time 0 from "seconds since 2015-11-16"; None if no date can be read."""
    words = str(clock.get("units", "")).split("since", 1)
    if len(words) < 2 or words[0].strip() != "seconds":
        return None
    try:
        return Epoch(words[1].strip(), str(clock.get("calendar", "standard")))
    except ValueError:
        return None

"""Trajectories by the CF conventions (featureType trajectory): as xarray data sets, as NetCDF, and back from either."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.store import atomic_write

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


def trajectory_dataset(trajectory: Trajectory, *, units: str = "m", since: str | None = None) -> Any:
    """A trajectory as an `xarray.Dataset` with the dimensions trajectory and time, by the CF conventions.

    `units` are those of the positions; "degrees" makes the first two longitude and latitude. `since` is the date at time
    0 ("2015-11-16 00:00:00"); without it times are plain seconds.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            'NetCDF and Zarr need the package xarray: pip install "jaxworlds[trace]".'
        ) from error
    places = _PLACES.get(units, _PLACES["m"])
    both, one = ("trajectory", "time"), ("trajectory",)
    data: dict[str, Any] = {}
    if trajectory.positions is not None:
        for k in range(trajectory.positions.shape[-1]):
            name, long, standard, axis = places[k]
            unit = {"X": "degrees_east", "Y": "degrees_north"}.get(axis, "m") if units == "degrees" else units
            told = {"long_name": long, "units": unit, "axis": axis}
            data[name] = (
                both,
                trajectory.positions[..., k].T,
                told | ({"standard_name": standard} if standard else {}),
            )
    if trajectory.velocities is not None:
        for k in range(trajectory.velocities.shape[-1]):
            told = {"long_name": f"velocity along {places[k][0]}", "units": f"{units} s-1"}
            data["uvw"[k]] = (both, trajectory.velocities[..., k].T, told)
    for name, (long, unit) in _TOLD.items():
        values = getattr(trajectory, name)
        if values is not None:
            told: dict[str, Any] = {"long_name": long} | ({"units": unit} if unit else {})
            data[name] = (both, values.T, told) if values.ndim > 1 else (one, values, told)
    data["outcomes"][2]["flag_values"] = np.arange(
        len(trajectory.outcome_names), dtype=trajectory.outcomes.dtype
    )
    data["outcomes"][2]["flag_meanings"] = " ".join(
        name.replace(" ", "_") for name in trajectory.outcome_names
    )
    extra: dict[str, np.ndarray] = {}
    header = header_text(trajectory, extra)
    for name, values in extra.items():
        data[name] = (tuple(f"{name}_{k}" for k in range(values.ndim)), values)
    clock = {
        "long_name": "time",
        "standard_name": "time",
        "axis": "T",
        "units": f"seconds since {since}" if since else "s",
    }
    if since:
        clock["calendar"] = "standard"
    number = {"long_name": "identity of the particle", "cf_role": "trajectory_id"}
    coordinates = {
        "time": ("time", trajectory.times, clock),
        "trajectory": ("trajectory", trajectory.ids, number),
    }
    attributes = {
        "Conventions": "CF-1.11",
        "featureType": "trajectory",
        "title": "particle trajectories",
        "source": "jaxtrace",
        "jaxtrace": header,
    }
    return xarray.Dataset(data, coordinates, attributes)


def write_netcdf(
    trajectory: Trajectory, path: Path, *, units: str = "m", since: str | None = None, compress: bool = False
) -> None:
    """Write a trajectory to a NetCDF 4 file."""
    dataset = trajectory_dataset(trajectory, units=units, since=since)
    squeezed = {"zlib": True, "complevel": 1} if compress else {}
    encoding = {
        str(name): {
            **({"_FillValue": None} if variable.dtype.kind == "f" else {}),
            **(squeezed if variable.ndim else {}),
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
    return from_variables(path, stored, header)


def from_variables(path: Path, stored: dict[str, Any], header: Any) -> Trajectory:
    """The trajectory from the variables of its data set, by their names, and the attribute `jaxtrace`."""
    if header is None:
        raise DatasetError(
            f"{path}: the file was not written by `save_trajectory`; it has no attribute 'jaxtrace'."
        )
    arrays: dict[str, Any] = {name: stored.get(name) for name in ARRAYS}
    arrays["ids"], arrays["times"] = stored.get("trajectory"), stored.get("time")
    for name in ("alive", "ages", "generation"):
        arrays[name] = None if arrays[name] is None else np.ascontiguousarray(arrays[name].T)
    names = ("lon", "lat", "z") if "lon" in stored else ("x", "y", "z")
    for field, parts in (("positions", names), ("velocities", ("u", "v", "w"))):
        found = [stored[name].T for name in parts if name in stored]
        if len({part.shape for part in found}) > 1:
            raise DatasetError(f"{path}: the components of the {field} have different shapes. It is damaged.")
        arrays[field] = np.stack(found, -1) if found else None
    return from_parts(path, arrays, str(header), stored)

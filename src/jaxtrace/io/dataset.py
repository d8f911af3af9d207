"""Files to fields: `load_optimized_dataset` reads VTK series, NetCDF and Zarr as a time series on the device."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import DTypeLike

from jaxworlds.memory import device_memory_limit

from ..fields.base import Interpolation, check_choice
from ..fields.grid_series import Extrapolation
from ..fields.land import LandValues
from ..fields.sphere import EARTH_RADIUS
from ..fields.streams.streamed_field import StreamedField
from ..fields.time_series import TimeSeriesField
from .cf.dataset import NETCDF_SUFFIXES, open_netcdf, open_xarray
from .files import ZARR_SUFFIXES, DatasetError, PathLike, find_files, is_store
from .geometry import CellData
from .slices import OpenedDataset, ReadOptions, checked_dtype
from .velocity import VelocityNames
from .vtk.dataset import open_vtk
from .vtk.frames import SUFFIXES
from .zarr.dataset import open_zarr

Pattern = PathLike | Sequence[PathLike]
SHARE = 0.5
"""A series that needs more than this part of the memory is streamed: the particles need the rest."""


def load_optimized_dataset(
    pattern: Pattern | Any,
    max_time_steps: int | None = None,
    dtype: DTypeLike = "float32",
    max_memory_per_timestep_mb: float | None = None,
    time_range: Sequence[Any] | None = None,
    velocity: VelocityNames | None = None,
    *,
    times: Sequence[Any] | np.ndarray | None = None,
    dim: int | None = None,
    interpolation: Interpolation | None = None,
    time_interpolation: Interpolation | None = None,
    extrapolation: Extrapolation = "clamp",
    stream: bool | None = None,
    memory_limit_gb: float | None = None,
    verbose: bool = True,
    **options: Any,
) -> TimeSeriesField | StreamedField:
    """The velocity field in the files that `pattern` names, on the device and ready to be sampled.

    `pattern` is a path, a glob, a ParaView collection (`.pvd`), a list of paths, or an open xarray data set. VTK files
    (vti, vtr, vts, vtu, vtp, their parallel forms, legacy vtk) hold one moment each; EnSight, OpenFOAM, Exodus, CGNS and
    NetCDF files and Zarr stores hold any number. Files are put in natural order (2 before 10) and then in the order of the
    physical times they hold: those of the collection or of the time steps, field data `TimeValue` or `TIME`, the time of
    NetCDF and Zarr in seconds from the first slice.
    `times` replaces them. Where files say a date, the field keeps that of its first slice as `epoch`, and dates may be given
    wherever times are.
    What was read, and by which rule the velocity was found, is printed; `verbose=False` keeps silent.

    - `velocity` names the vector array, or one array for each component (None: zero). Left out, it is found by rule, and
      several candidates are an error that lists them.
    - `time_range`, numbers or dates, keeps the slices that cover it; `max_time_steps` then thins them evenly, with a warning.
    - `dtype` is how velocities are stored: float32, or float16/bfloat16/float64.
    - `max_memory_per_timestep_mb` refuses slices that are larger.
    - `dim=None` makes a flat grid without flow across it two-dimensional; `dim=2` drops that flow, `dim=3` keeps it.
    - `interpolation` in space, `time_interpolation` and `extrapolation` are those of `TimeSeriesField`.
    - `cell_data` says how values of cells are read: "linear", "average" or "nearest".
    - `stream=None` streams from the disk what needs more than half of the memory; True and False decide it.

    `open_dataset` lists the `options` for special cases.

        field = load_optimized_dataset("run/flow_*.vtu", max_time_steps=40, dtype="float32")
    """
    opened = open_dataset(
        pattern,
        velocity=velocity,
        times=times,
        time_range=time_range,
        max_time_steps=max_time_steps,
        dim=dim,
        interpolation=interpolation,
        dtype=dtype,
        **options,
    )
    limit = max_memory_per_timestep_mb
    if limit is not None and opened.slice_bytes > limit * 1e6:
        raise ValueError(
            f"`max_memory_per_timestep_mb` allows {limit:g} MB, but one slice takes {opened.grid.size:,} values × "
            f"{opened.grid.dim} × {opened.dtype.itemsize} bytes = {opened.slice_bytes / 1e6:.4g} MB. Raise it, or halve "
            "the slice with `dtype='float16'`."
        )
    streamed = should_stream(opened, stream, memory_limit_gb)
    if verbose:
        print(f"jaxtrace: {opened}{', streamed' if streamed else ''}.")
    kept: dict[str, Any] = {"grid": opened.grid, "epoch": opened.epoch, "extrapolation": extrapolation}
    kept["time_interpolation"] = time_interpolation
    if streamed:
        return StreamedField(opened, opened.times, memory_limit_gb=memory_limit_gb, **kept)
    data = np.empty((len(opened), opened.grid.size, opened.grid.dim), opened.dtype)
    for k in range(len(opened)):
        data[k] = opened.read(k)
    return TimeSeriesField(data, opened.times, **kept)


def open_dataset(
    pattern: Pattern | Any,
    *,
    velocity: VelocityNames | None = None,
    times: Sequence[Any] | np.ndarray | None = None,
    time_range: Sequence[Any] | None = None,
    max_time_steps: int | None = None,
    dim: int | None = None,
    interpolation: Interpolation | None = None,
    dtype: DTypeLike = "float32",
    origin: Sequence[float] | None = None,
    land_values: LandValues = "keep",
    missing: Literal["land", "zero", "fill"] = "land",
    partly_missing: Literal["land", "zero"] = "land",
    cell_data: CellData | None = None,
    select: Mapping[str, int] | None = None,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    convert_units: bool = True,
    earth_radius: float = EARTH_RADIUS,
    epoch: Any = None,
) -> OpenedDataset:
    """A data set with its grid and times; slices are read on request. `print` it to see what it holds.

    Beyond the arguments of `load_optimized_dataset`: `origin` is subtracted from all coordinates (large ones lose digits in
    float32). `cell_data` says how values of cells are read: "linear" (the default, exact for linear fields; on a mesh from node
    values by a plane through the cells around each node), "average" (node values are means of the cells around) or "nearest"
    (each cell keeps its value). Where node data have the same name, giving it takes the cell data.

    For NetCDF and Zarr: values that are missing in every slice are land, or zero velocity with `missing="zero"`. Nodes where only
    some components are missing are land too; with `partly_missing="zero"` these components are zero there.
    `attributes` gives what the files do not say of a variable, or say wrongly: `{"nav_lon": {"units": "m"}}`.
    `land_values` says how land nodes count beside wet ones; `select` takes one index along a dimension (`{"depth": 0}`);
    velocities are converted to units of the coordinates per second unless `convert_units=False`; m/s on longitudes and
    latitudes stay m/s in the data and become degrees at each particle, on a sphere of `earth_radius` metres. A chunk that a Zarr
    store does not hold stands for the fill value. Where that marks missing values it is one; else it may be lost, and is an
    error: `missing="fill"` takes it. `epoch` is the date of time 0 where the files say none (VTK), or where `times` are given as
    numbers.
    """
    check_choice("missing", missing, ("land", "zero", "fill"))
    check_choice("partly_missing", partly_missing, ("land", "zero"))
    if cell_data is not None:
        check_choice("cell_data", cell_data, ("linear", "average", "nearest"))
    if not (earth_radius > 0 and np.isfinite(earth_radius)):
        raise ValueError(f"`earth_radius` must be a positive number of metres; got {earth_radius:g}.")
    chosen = ReadOptions(
        velocity=velocity,
        times=times,
        time_range=time_range,
        max_time_steps=max_time_steps,
        dim=dim,
        interpolation=interpolation,
        dtype=checked_dtype(dtype),
        origin=origin,
        land_values=land_values,
        missing=missing,
        partly_missing=partly_missing,
        cell_data=cell_data,
        select=dict(select or {}),
        attributes={name: dict(given) for name, given in (attributes or {}).items()},
        convert_units=convert_units,
        earth_radius=earth_radius,
        epoch=epoch,
    )
    if hasattr(pattern, "data_vars"):
        return open_xarray(pattern, chosen)
    entries = find_files(pattern)
    suffix = entries[0].paths[0].suffix.lower()
    if suffix in SUFFIXES and chosen.attributes:
        raise ValueError(
            "`attributes` must be left out for VTK files, which have none; it is for NetCDF and Zarr."
        )
    if suffix in SUFFIXES:
        return open_vtk(entries, chosen)
    paths = [path for entry in entries for path in entry.paths]
    if suffix in NETCDF_SUFFIXES:
        return open_netcdf(paths, chosen)
    if is_store(paths[0]):
        return open_zarr(paths, chosen)
    known = ", ".join((*SUFFIXES, ".pvd", *NETCDF_SUFFIXES, *ZARR_SUFFIXES))
    raise DatasetError(f"{paths[0]}: files ending in {suffix!r} are not read; known are {known}.")


def should_stream(opened: OpenedDataset, stream: bool | None = None, limit_gb: float | None = None) -> bool:
    """Whether slices are read from the disk as needed: as `stream` says, else where all need more than half of the memory."""
    if stream is not None or len(opened) < 3:
        return bool(stream) and len(opened) > 1
    limit = device_memory_limit() if limit_gb is None else limit_gb * 2**30
    return len(opened) * opened.slice_bytes > SHARE * limit

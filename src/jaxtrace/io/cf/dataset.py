"""NetCDF files and xarray data sets as a velocity field on a structured grid; Zarr stores follow the same rules."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...fields.grid_series import on_sphere
from ..files import DatasetError, named_errors, naming_package
from ..geometry import FLAT, place
from ..slices import OpenedDataset, ReadOptions, selected_times
from ..velocity import component_sets, is_component, standard_sets
from .attributes import fill_marks, tidy_data
from .axes import time_dim, without_time
from .grids import GridOnFile, grid_of
from .netcdf_sizes import check_hdf5, check_netcdf3
from .staggered import REASON as STAGGERED
from .staggered import demand_common_points, point_of, staggering, tell_native_names
from .times import NamedDataset, SlicePlace, common_times, moments_of
from .units import parse_speed, parse_unit

NETCDF_SUFFIXES = (".nc", ".nc4", ".nc3", ".cdf", ".netcdf")
HUGE = 1e10
"""No velocity is this large: such a number marks missing values that the file does not declare."""
READING_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    RuntimeError,
    AttributeError,
    OverflowError,
    AssertionError,  # of scipy, on a header that contradicts itself
)
"""Errors that the libraries below raise on damaged files."""


def open_netcdf(paths: Sequence[Path], options: ReadOptions) -> OpenedDataset:
    """Open NetCDF files; each may hold several times, or one of the components."""
    return open_sources([NamedDataset(str(path), open_file(path)) for path in paths], options)


def open_xarray(dataset: Any, options: ReadOptions) -> OpenedDataset:
    """Open an xarray data set that is already there, from any file or store that xarray reads."""
    return open_sources([NamedDataset("the data set", dataset)], options)


def open_file(path: Path) -> Any:
    """A NetCDF file as an xarray data set, with times as numbers."""
    with naming_package("NetCDF files need the package xarray"):
        import xarray
    with open(path, "rb") as file:
        head = file.read(8)
    engine = "h5netcdf" if head == b"\x89HDF\r\n\x1a\n" else "scipy" if head[:3] == b"CDF" else None
    if engine is None:
        raise DatasetError(f"{path}: the file is no NetCDF (it begins with {head!r}). Is it damaged?")
    with (
        named_errors(f"{path}: the file cannot be read", READING_ERRORS, " It is damaged or cut off.", 300),
        naming_package(f"{path}: NetCDF needs h5netcdf and h5py"),
    ):
        (check_hdf5 if engine == "h5netcdf" else check_netcdf3)(path)
        return xarray.open_dataset(path, engine=engine, decode_times=False, decode_coords=False)


def open_sources(sources: list[NamedDataset], options: ReadOptions) -> OpenedDataset:
    """The velocity field in open data sets: its variables, times, grid and land."""
    if options.cell_data:
        raise ValueError(
            f"`cell_data={options.cell_data!r}` is for VTK files; NetCDF and Zarr hold values of nodes. Leave it out."
        )
    sources = _tidied_sources(sources, options)
    names, why_these = _choose(sources, options)
    for source in sources:
        for name in filter(source.refused.get, filter(None, names)):
            raise DatasetError(f"{source.name}: variable {name[:60]!r}: {source.refused[name]}.")
    said: set[str] = set()
    lists = [moments_of(sources, name, options, said) if name else None for name in names]
    found, when, since = common_times(lists, names, options)
    times, numbers, why_times, epoch = selected_times(found, when, options, since)
    homes = {
        name: moments[numbers[0]].source
        for name, moments in zip(names, lists, strict=True)
        if name and moments
    }
    source = next(iter(homes.values()))
    components = {name: home.data.variables[name] for name, home in homes.items()}
    whole = SimpleNamespace(variables={**source.data.variables, **components})
    with named_errors(source.name):
        grid = grid_of(whole, names, options, {name: home.data for name, home in homes.items()})
    tell_native_names(names, any(along.values.ndim > 1 for along in grid.places))
    for along in grid.places:
        if along.name in source.refused:
            raise DatasetError(f"{source.name}: coordinate {along.name!r}: {source.refused[along.name]}.")
    names, lists = names[: len(grid.scales)], lists[: len(grid.scales)]
    listed = ", ".join(filter(None, names))
    fitting = {(source.name, next(iter(homes)))}

    def component(k: int, name: str, moment: SlicePlace) -> np.ndarray:
        if (moment.source.name, name) not in fitting:
            for along in grid.places:  # a file without coordinates lies on the same places
                if moment.source is not source and along.name in moment.source.data.variables:
                    _demand_same(source, moment.source, along.name, parse_unit, values=True)
            if options.convert_units:
                _demand_same(homes[name], moment.source, name, parse_speed, values=False)
            fitting.add((moment.source.name, name))
        return _read(moment, name, k, grid, options)

    def slice_with_land(number: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The values, the nodes where they are missing, and the number of nodes where only some components are missing."""
        columns = [
            grid.zeros() if moments is None or name is None else component(k, name, moments[number])
            for k, (name, moments) in enumerate(zip(names, lists, strict=True))
        ]
        lost = [np.isnan(column) for column in columns]
        some = np.logical_or.reduce(lost)
        every = np.logical_and.reduce([one for one, name in zip(lost, names, strict=True) if name])
        partly = some & ~every
        if options.partly_missing == "zero":
            for column, one in zip(columns, lost, strict=True):
                column[one & partly] = 0
        missing = some if options.partly_missing == "land" else every
        return np.stack(columns, -1), missing, int(np.count_nonzero(partly))

    _, land, partly = slice_with_land(int(numbers[0]))
    lost = int(land.sum())
    if options.missing == "zero":
        land = np.zeros_like(land)
    elif land.all():
        raise DatasetError(f"{source.name}: {listed} hold no values, only missing ones.")
    geometry = grid.geometry(land if land.any() else None)
    with named_errors(source.name):
        placed = place(geometry, "node", options)
    placed = dataclasses.replace(placed, grid=on_sphere(placed.grid, grid.sphere))

    def read(number: int) -> np.ndarray:
        found, missing, _ = slice_with_land(number)
        if options.missing != "zero" and not np.array_equal(missing, land):
            entry = next(moments for moments in lists if moments)[number]
            raise DatasetError(
                f"{entry.source.name}: {listed} at index {entry.number} miss other values than the first slice "
                f"({int((missing & ~land).sum())} more, {int((~missing & land).sum())} fewer): the land "
                "changes. Pass `missing='zero'` to take missing values as zero velocity."
            )
        found[missing] = 0
        return placed(found)

    dry = f", {lost:,} of them {'still (missing)' if options.missing == 'zero' else 'land'}" if lost else ""
    if partly:
        among = "of these" if options.partly_missing == "land" else "others"
        dry += f", {partly:,} {among} miss only some components (partly_missing={options.partly_missing!r})"
    notes = (
        f"velocity {', '.join(name or 'zero' for name in names)} ({why_these})",
        f"{geometry.describe()}{dry}",
        *grid.notes,
        why_times if len(times) > 1 else "steady",
    )
    return OpenedDataset(
        placed.grid, times, len(times) == 1, numbers, read, tuple(when), options.dtype, notes, epoch
    )


def _tidied_sources(sources: list[NamedDataset], options: ReadOptions) -> list[NamedDataset]:
    """Data sets with attributes under their CF names and coordinates without the dimension of time."""
    known = {str(name) for source in sources for name in source.data.variables}
    for name in (name for name in options.attributes if name not in known):
        raise ValueError(
            f"`attributes` must name variables of {sources[0].name}: {', '.join(sorted(known))}; got {name!r}."
        )
    tidied = []
    for source in sources:
        data, refused = tidy_data(source.data, options.attributes)
        data.variables = without_time(data, options.select)
        tidied.append(source._replace(data=data, refused={**refused, **source.refused}))
    return tidied


def _choose(sources: list[NamedDataset], options: ReadOptions) -> tuple[tuple[str | None, ...], str]:
    """The variables of the components and why: as named, by their standard names, or by their names."""
    homes: dict[str, Any] = {}
    for source in sources:
        for name, variable in source.data.variables.items():
            if len(variable.dims) > 1 and np.issubdtype(variable.dtype, np.number):
                homes.setdefault(str(name), source.data)
    where, listed = sources[0].name, ", ".join(homes) or "none"
    if options.velocity is not None:
        if isinstance(options.velocity, str) or not 2 <= len(options.velocity) <= 3:
            raise ValueError(
                f"`velocity` must name two or three variables, such as `velocity=('u', 'v')`; got {options.velocity!r}. "
                f"{where} holds {listed}."
            )
        for name in options.velocity:
            if name is not None and name not in homes:
                raise DatasetError(
                    f"{where}: there is no variable {name!r} as `velocity` demands; there are {listed}."
                )
        with named_errors(where):
            demand_common_points(options.velocity, homes)
        return tuple(options.velocity), "as named"
    apart: list[str] = []
    standard = {n: str(home.variables[n].attrs.get("standard_name", "")) for n, home in homes.items()}
    for sets, why in (
        (standard_sets(standard), "by their standard names"),
        (component_sets(homes), "by their names"),
    ):
        reasons = {names: staggering(names[0], homes[names[0]], names[1], homes[names[1]]) for names in sets}
        whole = [names for names in sets if not reasons[names]]
        if len(whole) == 1:
            left = [", ".join(names) for names in sets if reasons[names]]
            return whole[0], why + (f", {'; '.join(left)} being on a staggered grid" if left else "")
        if whole:
            shown = "; ".join(", ".join(names) for names in whole)
            raise DatasetError(
                f"{where}: several sets of variables may be the velocity: {shown}. Pass `velocity={whole[0]!r}` or another."
            )
        apart += filter(None, reasons.values())
    if apart:
        raise DatasetError(f"{where}: {apart[0]}.")
    for name in filter(is_component, homes):
        if point := point_of(homes[name], name):
            raise DatasetError(
                f"{where}: {name!r} lies on {point} points: the components of the velocity are {STAGGERED}."
            )
    raise DatasetError(
        f"{where}: no two variables look like the components of a velocity; there are {listed}. Pass `velocity=('u', 'v')` "
        "with their names."
    )


def _demand_same(first: NamedDataset, other: NamedDataset, name: str, parse: Any, values: bool) -> None:
    """Refuse a file in which a variable has another unit than in the first, or (a coordinate) other values."""
    here, there = first.data.variables[name], other.data.variables[name]
    what = f"{other.name}: {'coordinate' if values else 'variable'} {name!r}"
    wanted, found = (str(one.attrs.get("units", "")) for one in (here, there))
    known = parse(wanted), parse(found)
    differ = known[0] != known[1] or (known[0] is None and wanted.lower().split() != found.lower().split())
    if differ and (found or not values):
        remedy = "." if values else ", or pass `convert_units=False` to leave both as they are."
        raise DatasetError(
            f"{what} has units {found!r}, but that of {first.name} has {wanted!r}. Bring them to one unit first{remedy}"
        )
    if not values:
        return
    with named_errors(what, READING_ERRORS, longest=300):
        if set(here.dims) != set(there.dims):
            raise ValueError(f"it lies along {', '.join(there.dims)}")
        a, b = here.values.astype(float), there.transpose(*here.dims).values.astype(float)
    slack = FLAT * np.ptp(a) + 4 * np.finfo(np.float32).eps * np.abs(a).max()
    if a.shape != b.shape or not np.all(np.abs(a - b) <= slack):
        ends = [f"{one.flat[0]:g} … {one.flat[-1]:g}" for one in (b, a)]
        raise DatasetError(
            f"{what} differs from that of {first.name} ({b.size} values, {ends[0]}, against {a.size}, {ends[1]}). A series "
            "must keep its grid; bring the files to one grid first."
        )


def _read(moment: SlicePlace, name: str, k: int, grid: GridOnFile, options: ReadOptions) -> np.ndarray:
    """One component of one slice in the order of the grid, in the units of the coordinates; NaN where it is missing."""
    index = "" if moment.number is None else f" at index {moment.number}"
    where = f"{moment.source.name}: variable {name!r}{index}"
    variable = moment.source.data.variables[name]
    taken = dict(options.select)
    dim = time_dim(moment.source.data, variable)
    if dim is not None and moment.number is not None:
        taken[dim] = moment.number
    remedy = " The file is damaged or does not fit the others."
    with named_errors(f"{where} cannot be read", READING_ERRORS, remedy, 300):
        values = variable.isel({d: i for d, i in taken.items() if d in variable.dims})
        found = np.asarray(grid.grid_values(values))
    found = found.astype(np.result_type(found.dtype, np.float32))
    for word, mark in fill_marks(variable.attrs).items():
        count = int(np.count_nonzero(found == np.asarray(mark, found.dtype)))
        if count:
            raise DatasetError(
                f"{where} holds {count:,} values equal to its attribute {word} = {mark:g}. CF calls that `_FillValue`: pass "
                f"`attributes={{{name!r}: {{'_FillValue': {mark:g}}}}}`."
            )
    largest = max((float(np.nanmax(found, initial=0.0)), float(np.nanmin(found, initial=0.0))), key=abs)
    if not abs(largest) <= HUGE:
        raise DatasetError(
            f"{where} holds values up to {largest:.3g}, which mark missing ones without saying so. Pass "
            f"`attributes={{{name!r}: {{'_FillValue': {largest:.9g}}}}}`."
        )
    return found * grid.scales[k]

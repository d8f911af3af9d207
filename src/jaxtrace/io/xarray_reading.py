"""NetCDF files and xarray data sets as a velocity field on a structured grid; Zarr stores follow the same rules."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..fields.grid_series import on_sphere
from .cf_attributes import fill_marks, tidy_data
from .cf_axes import without_time
from .cf_grids import GridOnFile, grid_of
from .cf_moments import Moment, Source, common_times, moments_of, time_dim
from .cf_staggered import REASON as STAGGERED
from .cf_staggered import demand_common_points, point_of, staggering, tell_native_names
from .cf_units import parse_speed, parse_unit
from .geometry import FLAT, place
from .naming import component_sets, is_component, standard_sets
from .netcdf_sizes import check_hdf5, check_netcdf3
from .opened import OpenedDataset, Options, selected_times
from .series import DatasetError

NETCDF_SUFFIXES = (".nc", ".nc4", ".nc3", ".cdf", ".netcdf")
HUGE = 1e10
"""No velocity is that large: such a number marks a missing value that the file does not declare."""
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
"""What the libraries below raise on damaged files."""


def open_netcdf(paths: Sequence[Path], options: Options) -> OpenedDataset:
    """Open NetCDF files; each may hold several times, or one of the components."""
    return open_sources([Source(str(path), open_file(path)) for path in paths], options)


def open_xarray(dataset: Any, options: Options) -> OpenedDataset:
    """Open an xarray data set that is already there, from any file or store that xarray reads."""
    return open_sources([Source("the data set", dataset)], options)


def open_file(path: Path) -> Any:
    """A NetCDF file as an xarray data set, times left as they are."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError('NetCDF files need the package xarray: pip install "jaxworlds[trace]".') from error
    with open(path, "rb") as file:
        head = file.read(8)
    engine = "h5netcdf" if head == b"\x89HDF\r\n\x1a\n" else "scipy" if head[:3] == b"CDF" else None
    if engine is None:
        raise DatasetError(f"{path}: the file is no NetCDF (it begins with {head!r}). Is it damaged?")
    try:
        (check_hdf5 if engine == "h5netcdf" else check_netcdf3)(path)
        return xarray.open_dataset(path, engine=engine, decode_times=False, decode_coords=False)
    except DatasetError:
        raise
    except ImportError as error:
        raise ImportError(
            f'{path}: NetCDF needs h5netcdf and h5py: pip install "jaxworlds[trace]".'
        ) from error
    except READING_ERRORS as error:
        raise DatasetError(
            f"{path}: the file cannot be read: {str(error)[:300]}. It is damaged or cut off."
        ) from error


def open_sources(sources: list[Source], options: Options) -> OpenedDataset:
    """The velocity field in data sets that are open: which variables, when, where, and which values are land."""
    _demand_known(sources, options)
    tidied = [tidy_data(source.data, options.attributes) for source in sources]
    sources = [
        source._replace(data=data, refused={**refused, **source.refused})
        for source, (data, refused) in zip(sources, tidied, strict=True)
    ]
    for source in sources:
        source.data.variables = without_time(source.data, options.select)
    if options.cell_data:
        raise ValueError(
            f"`cell_data={options.cell_data!r}` is for VTK files; NetCDF and Zarr hold values of nodes. Leave it out."
        )
    names, why_these = _choose(sources, options)
    for source in sources:
        for name, reason in source.refused.items():
            if name in names:
                raise DatasetError(f"{source.name}: variable {name[:60]!r}: {reason}.")
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
    try:
        found_in = {name: home.data for name, home in homes.items()}
        whole = SimpleNamespace(variables={**source.data.variables, **components})
        grid = grid_of(whole, names, options, found_in)
    except DatasetError:
        raise
    except ValueError as error:
        raise DatasetError(f"{source.name}: {str(error).rstrip('.')}.") from error
    tell_native_names(names, any(along.values.ndim > 1 for along in grid.places))
    for along in grid.places:
        if along.name in source.refused:
            raise DatasetError(f"{source.name}: coordinate {along.name!r}: {source.refused[along.name]}.")
    names, lists = names[: len(grid.scales)], lists[: len(grid.scales)]
    fitting = {(source.name, next(iter(homes)))}

    def component(k: int, name: str, moment: Moment) -> np.ndarray:
        if (moment.source.name, name) not in fitting:
            _demand_places(source, moment.source, grid)
            if options.convert_units:
                _demand_units(homes[name], moment.source, name)
            fitting.add((moment.source.name, name))
        return _read(moment, name, k, grid, options)

    def marked(number: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Values, which nodes are missing, and at how many only some components are."""
        columns = [
            grid.zeros() if moments is None or name is None else component(k, name, moments[number])
            for k, (name, moments) in enumerate(zip(names, lists, strict=True))
        ]
        lost = [np.isnan(column) for column in columns]
        some = np.logical_or.reduce(lost)
        every = np.logical_and.reduce([one for one, name in zip(lost, names, strict=True) if name])
        partly = int(np.count_nonzero(some & ~every))
        if options.partly_missing == "land":
            return np.stack(columns, -1), some, partly
        for column, one in zip(columns, lost, strict=True):
            column[one & ~every] = 0
        return np.stack(columns, -1), every, partly

    _, land, partly = marked(int(numbers[0]))
    lost = int(land.sum())
    if options.missing == "zero":
        land = np.zeros_like(land)
    elif land.all():
        raise DatasetError(
            f"{source.name}: {', '.join(filter(None, names))} hold no values, only missing ones."
        )
    geometry = grid.geometry(land if land.any() else None)
    try:
        placed = place(
            geometry,
            "node",
            interpolation=options.interpolation,
            dtype=options.coordinate_dtype,
            land_values=options.land_values,
        )
    except ValueError as error:
        raise DatasetError(f"{source.name}: {error}") from error
    placed = dataclasses.replace(placed, grid=on_sphere(placed.grid, grid.sphere))

    def read(number: int) -> np.ndarray:
        found, missing, _ = marked(number)
        if options.missing != "zero" and not np.array_equal(missing, land):
            entry = next(moments for moments in lists if moments)[number]
            raise DatasetError(
                f"{entry.source.name}: {', '.join(filter(None, names))} at index {entry.number} miss other values than the "
                f"first slice ({int((missing & ~land).sum())} more, {int((~missing & land).sum())} fewer): the land "
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


def _demand_known(sources: list[Source], options: Options) -> None:
    """Refuse attributes of variables that no file has."""
    known = {str(name) for source in sources for name in source.data.variables}
    for name in options.attributes:
        if name not in known:
            raise ValueError(
                f"`attributes` must name variables of {sources[0].name}: {', '.join(sorted(known))}; got {name!r}."
            )


def _choose(sources: list[Source], options: Options) -> tuple[tuple[str | None, ...], str]:
    """The variables of the components and why: as named, by their standard names, or by their names."""
    fields: dict[str, Any] = {}
    homes: dict[str, Any] = {}
    for source in sources:
        for name, variable in source.data.variables.items():
            if len(variable.dims) > 1 and np.issubdtype(variable.dtype, np.number):
                fields.setdefault(str(name), variable)
                homes.setdefault(str(name), source.data)
    where = sources[0].name
    listed = ", ".join(fields) or "none"
    if options.velocity is not None:
        if isinstance(options.velocity, str) or not 2 <= len(options.velocity) <= 3:
            raise ValueError(
                f"`velocity` must name two or three variables, such as `velocity=('u', 'v')`; got {options.velocity!r}. "
                f"{where} holds {listed}."
            )
        for name in options.velocity:
            if name is not None and name not in fields:
                raise DatasetError(
                    f"{where}: there is no variable {name!r} as `velocity` demands; there are {listed}."
                )
        try:
            demand_common_points(options.velocity, homes)
        except ValueError as error:
            raise DatasetError(f"{where}: {error}.") from error
        return tuple(options.velocity), "as named"
    apart: list[str] = []
    standard = {name: str(variable.attrs.get("standard_name", "")) for name, variable in fields.items()}
    for sets, why in (
        (standard_sets(standard), "by their standard names"),
        (component_sets({name: name for name in fields}), "by their names"),
    ):
        reasons = [staggering(names[0], homes[names[0]], names[1], homes[names[1]]) for names in sets]
        whole = [names for names, reason in zip(sets, reasons, strict=True) if not reason]
        if len(whole) == 1:
            left = [", ".join(names) for names in sets if names not in whole]
            return whole[0], why + (f", {'; '.join(left)} being on a staggered grid" if left else "")
        if whole:
            shown = "; ".join(", ".join(names) for names in whole)
            raise DatasetError(
                f"{where}: several sets of variables may be the velocity: {shown}. Pass `velocity={whole[0]!r}` or another."
            )
        apart += filter(None, reasons)
    if apart:
        raise DatasetError(f"{where}: {apart[0]}.")
    for name in fields:
        point = point_of(homes[name], name) if is_component(name) else ""
        if point:
            raise DatasetError(
                f"{where}: {name!r} lies on {point} points: the components of the velocity are {STAGGERED}."
            )
    raise DatasetError(
        f"{where}: no two variables look like the components of a velocity; there are {listed}. Pass `velocity=('u', 'v')` "
        "with their names."
    )


def _demand_places(first: Source, other: Source, grid: GridOnFile) -> None:
    """Refuse a file whose coordinates are not those of the first; one without coordinates lies on the same places."""
    for known in grid.places:
        there = other.data.variables.get(known.name)
        if there is None or other is first:
            continue
        here = first.data.variables[known.name]
        units = str(there.attrs.get("units", "")), str(here.attrs.get("units", ""))
        if units[0] and _unit_differs(*units, parse_unit):
            raise DatasetError(
                f"{other.name}: coordinate {known.name!r} has units {units[0]!r}, but that of {first.name} has {units[1]!r}. "
                "Bring the files to one unit first."
            )
        try:
            if set(here.dims) != set(there.dims):
                raise ValueError(f"it lies along {', '.join(there.dims)}")
            wanted, found = here.values.astype(float), there.transpose(*here.dims).values.astype(float)
        except READING_ERRORS as error:
            raise DatasetError(f"{other.name}: coordinate {known.name!r}: {str(error)[:300]}.") from error
        slack = FLAT * np.ptp(wanted) + 4 * np.finfo(np.float32).eps * np.abs(wanted).max()
        if found.shape != wanted.shape or not np.all(np.abs(found - wanted) <= slack):
            ends = [f"{values.flat[0]:g} … {values.flat[-1]:g}" for values in (found, wanted)]
            raise DatasetError(
                f"{other.name}: coordinate {known.name!r} differs from that of {first.name} ({found.size} values, {ends[0]}, "
                f"against {wanted.size}, {ends[1]}). A series must keep its grid; bring the files to one grid first."
            )


def _demand_units(first: Source, other: Source, name: str) -> None:
    """Refuse a file whose velocity has another unit than that of the first."""
    wanted, found = (str(source.data.variables[name].attrs.get("units", "")) for source in (first, other))
    if _unit_differs(wanted, found, parse_speed):
        raise DatasetError(
            f"{other.name}: variable {name!r} has units {str(found)!r}, but that of {first.name} has {str(wanted)!r}. Convert "
            "one of them, or pass `convert_units=False` to leave both as they are."
        )


def _unit_differs(one: str, other: str, parse: Any) -> bool:
    """Whether two units are not the same; unknown ones are compared by their text."""
    known = parse(one), parse(other)
    return known[0] != known[1] or (known[0] is None and one.lower().split() != other.lower().split())


def _read(moment: Moment, name: str, k: int, grid: GridOnFile, options: Options) -> np.ndarray:
    """One component of one slice in the order of the grid, in the units of the coordinates; NaN where it is missing."""
    where = f"{moment.source.name}: variable {name!r}" + (
        "" if moment.number is None else f" at index {moment.number}"
    )
    variable = moment.source.data.variables[name]
    taken = dict(options.select)
    dim = time_dim(moment.source.data, variable, options)
    if dim is not None and moment.number is not None:
        taken[dim] = moment.number
    try:
        values = variable.isel({d: i for d, i in taken.items() if d in variable.dims})
        found = np.asarray(grid.arranged(values))
    except DatasetError:
        raise
    except READING_ERRORS as error:
        raise DatasetError(
            f"{where} cannot be read: {str(error)[:300]}. The file is damaged or does not fit the others."
        ) from error
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

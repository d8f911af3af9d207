"""Coordinates of a NetCDF variable: which variables hold its times, heights, latitudes and longitudes (or y and x)."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..velocity import is_component
from .units import UnitSize, compass_of, parse_speed, parse_unit

Role = Literal["T", "Z", "Y", "X"]
_NAMES: dict[Role, str] = {
    "T": "time t ocean_time times time_counter valid_time",
    "Z": "depth z lev level deptht depthu depthv depthw layer height altitude zc s_rho sigma plev pressure_level",
    "Y": "lat latitude y j nj yc nav_lat rlat nlat eta_rho south_north lat_rho gphit xlat",
    "X": "lon longitude x i ni xc nav_lon rlon nlon xi_rho west_east lon_rho glamt xlong",
}
_STANDARD_NAMES: dict[Role, str] = {
    "T": "time",
    "X": "longitude grid_longitude projection_x_coordinate",
    "Y": "latitude grid_latitude projection_y_coordinate",
    "Z": "depth altitude height elevation air_pressure",
}
_ROLES: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}
_STANDARD: dict[str, Role] = {name: role for role, names in _STANDARD_NAMES.items() for name in names.split()}
_LONGITUDES = re.compile(
    r"^(nav_|grid_|r)?(lon|lat)(gitude|itude)?(_(rho|u|v|psi|t|f|c|m))?$|^xl(ong|at)(_[muv])?$|^g(lam|phi)[tuvf]$"
)

_REVERSED = re.compile(r"^deg(ree)?s?([_\s]*(w|west|south)|[_\s]+s)$", re.I)
"""Degrees that grow to the west or south; read as usual ones they would mirror the grid."""

_ROWS = ("i", "j", "ni", "nj", "nlon", "nlat", "xi_rho", "eta_rho", "west_east", "south_north")
_HEIGHTS = ("z", "zc", "height", "altitude")  # metres where nothing else is said

_FARTHEST = 1e30  # beyond it stand marks of missing values


class Coordinate(NamedTuple):
    """Values along some of the dimensions of a variable."""

    name: str
    values: Float[np.ndarray, "..."]
    dims: tuple[str, ...]
    unit: UnitSize | None
    positive: str
    """The direction in which it grows, "up" or "down"; empty if unknown."""
    told: str = ""
    """The units as the file writes them."""
    standard: str = ""
    """The CF standard name."""

    @property
    def angular(self) -> bool:
        """Whether it is in degrees."""
        return self.unit is not None and self.unit.kind == "angle"

    @property
    def without_length(self) -> bool:
        """Whether it numbers rows or layers, or has an unknown unit, so that no velocity can be expressed in it."""
        name = self.name.lower()
        if self.unit is not None or self.told:
            return self.unit is None
        upward = bool(self.positive) or role_of(name, {}) == "Z"
        height = self.standard in _STANDARD or name in _HEIGHTS or name.startswith("depth")
        return name in _ROWS or (upward and not height)


def named_degrees(name: str, standard: str = "") -> bool:
    """Whether the name or standard name of a coordinate without units is that of a longitude or latitude."""
    known = ("longitude", "latitude", "grid_longitude", "grid_latitude")
    return standard in known or bool(_LONGITUDES.match(name.lower()))


def role_of(name: str, attributes: Mapping[str, Any]) -> Role | None:
    """The role of a variable, by its attributes `axis`, `standard_name`, `units` and `positive`, or else by its name."""
    axis = str(attributes.get("axis", "")).upper()
    if axis in ("T", "Z", "Y", "X"):
        return axis
    standard = str(attributes.get("standard_name", "")).lower()
    if standard in _STANDARD:
        return _STANDARD[standard]
    units = str(attributes.get("units", "")).lower()
    if " since " in units:
        return "T"
    if toward := compass_of(units):
        return "Y" if toward == "n" else "X"
    return "Z" if "positive" in attributes else _ROLES.get(name.lower())


def dimension_roles(dataset: Any, variable: Any) -> dict[str, Role]:
    """The role of each dimension of a variable, from the coordinate along it or from its name."""
    dims = tuple(map(str, variable.dims))
    found: dict[str, Role] = {}
    for dim in dims:
        own = dataset.variables.get(dim)
        role = role_of(dim, {} if own is None else own.attrs)
        if role is not None and role not in found.values():
            found[dim] = role
    # Longitudes and latitudes of a curved grid name the other two.
    for other in dataset.variables.values():
        over = [dim for dim in other.dims if dim in dims and found.get(dim) not in ("T", "Z")]
        if len(over) == 2 and role_of("", other.attrs) in ("X", "Y") and not set(over) & set(found):
            found[over[0]], found[over[1]] = "Y", "X"
    if "T" not in found.values():  # dates along a dimension of any name make it time
        dated = [dim for dim in dims if dim not in found and clock_along(dataset, dim) is not None]
        found.update(dict.fromkeys(dated[:1], "T"))
    for other in dataset.variables.values():  # and a height over all of them names the third
        free = [dim for dim in other.dims if dim in dims and dim not in found]
        if len(free) == 1 and role_of("", other.attrs) == "Z" and "Z" not in found.values():
            found[free[0]] = "Z"
    return found


def time_dim(dataset: Any, variable: Any) -> str | None:
    """The dimension of time of a variable."""
    return next((dim for dim, role in dimension_roles(dataset, variable).items() if role == "T"), None)


def is_index(index: Any, size: int) -> bool:
    """Whether a dimension of `size` has this index, from the start or the end."""
    whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
    return whole and bool(-size <= index < size)


def without_time(dataset: Any, select: Mapping[str, int]) -> dict[str, Any]:
    """All variables. Coordinates that are stored for every time, as by WRF, are taken at one time if they never change.

    If one time is selected, that time is used. Coordinates that change with time stay as they are.
    """
    found = dict(dataset.variables)
    for name, variable in dataset.variables.items():
        attributes = {key: value for key, value in variable.attrs.items() if key != "positive"}
        place = role_of(str(name), attributes) in ("X", "Y", "Z") and len(variable.dims) > 1
        if not place or is_component(str(name)) or parse_speed(attributes.get("units")) is not None:
            continue
        dim = time_dim(dataset, variable)
        if dim is not None and is_index(select.get(dim), variable.sizes[dim]):
            found[name] = variable.isel({dim: select[dim]})
        elif dim is not None and select.get(dim) is None and _is_still(str(name), variable, dim):
            found[name] = variable.isel({dim: 0})
    return found


def _is_still(name: str, variable: Any, dim: str) -> bool:
    """Whether a variable has the same values at all times."""
    size = variable.sizes[dim]
    if size < 2:
        return size == 1
    try:
        first = values_of(name, variable.isel({dim: 0}))
        return all(np.array_equal(first, values_of(name, variable.isel({dim: k}))) for k in range(1, size))
    except ValueError:  # told where the variable is used
        return False


def clock_along(dataset: Any, dim: str) -> str | None:
    """The variable with the times along a dimension: its own, or else the only one along it that holds dates.

    If several hold dates, it is the one whose name or standard name is that of a time.
    """
    own = dataset.variables.get(dim)
    if own is not None and (role_of(dim, own.attrs) == "T" or _holds_dates(own)):
        return dim
    dated = {
        str(name): str(variable.attrs.get("standard_name", ""))
        for name, variable in dataset.variables.items()
        if tuple(variable.dims) == (dim,) and _holds_dates(variable)
    }
    named = [name for name, standard in dated.items() if role_of(name, {"standard_name": standard}) == "T"]
    found = named if len(dated) > 1 else list(dated)
    return found[0] if len(found) == 1 else None


def _holds_dates(variable: Any) -> bool:
    """Whether values are dates, or numbers that count from one."""
    return variable.dtype.kind == "M" or " since " in str(variable.attrs.get("units", "")).lower()


def spatial_coordinate(
    dataset: Any, role: Role, dims: tuple[str, ...], dim: str, variable_of: Any = None
) -> Coordinate:
    """The coordinate of a role over the spatial dimensions `dims`; `dim` is the one that has this role.

    Coordinates along the dimension with a unit come first, then those over several dimensions, then bare numbers. Among
    equals the one named in the attribute `coordinates` of the velocity `variable_of` comes first.
    """
    named = named_coordinates(variable_of)
    alike = {
        name: one
        for name, one in dataset.variables.items()
        if dim in one.dims and role_of(str(name), one.attrs) == role
    }
    ranked: list[tuple[int, bool, bool, str]] = []
    for name, variable in alike.items():
        if set(variable.dims) <= set(dims):
            # Row numbers and sigma levels have no unit: where places are known too, those count.
            told = parse_unit(variable.attrs.get("units")) is not None
            rank = 1 if len(variable.dims) > 1 else 0 if told else 2
            ranked.append((rank, name not in named, name != dim, name))
    if not ranked and alike:
        name, variable = next(iter(alike.items()))
        other = next(one for one in variable.dims if one not in dims)
        raise ValueError(
            f"coordinate {str(name)!r} changes along {other!r}, and grids that move are not read. Take one index with "
            f"`select={{{other!r}: 0}}`, or bring the velocity to places that stay"
        )
    if not ranked:
        raise ValueError(
            f"dimension {dim!r} has no coordinate: none of the variables {', '.join(map(str, dataset.variables))} gives "
            f"places along it. Take one index with `select={{{dim!r}: 0}}`, or add the coordinate"
        )
    first = min(ranked)
    name = first[-1]
    variable = dataset.variables[name]
    values = values_of(name, variable)
    for other in (one[-1] for one in ranked if one[:-1] == first[:-1] and one[-1] != name):
        if not same_places(variable, dataset.variables[other]):
            raise ValueError(
                f"both {name!r} and {other!r} may be the coordinate along {dim!r}, at different places. Components on different "
                "points of a staggered C-grid are not read yet; if all lie on the same points, name their coordinates in the "
                "attribute `coordinates` of each component, or drop the others"
            )
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"coordinate {name!r} holds {values.dtype}, not numbers")
    values = values.astype(np.result_type(values.dtype, np.float32))
    lost = ~(np.abs(values) < _FARTHEST)
    if lost.any():
        raise ValueError(f"coordinate {name!r} has {int(lost.sum())} missing values; all nodes need a place")
    told = str(variable.attrs.get("units", "")).strip()
    if told.lower().startswith("rad"):
        raise ValueError(f"coordinate {name!r} is in {told}; convert it to degrees first")
    if _REVERSED.match(told):
        east = "degrees_east" if role == "X" else "degrees_north"
        raise ValueError(f"coordinate {name!r} is in {told}; change its signs and call it {east} first")
    unit = parse_unit(told)
    standard = str(variable.attrs.get("standard_name", ""))
    if unit is None and named_degrees("" if told else name, standard):
        unit = UnitSize("angle", 1.0)
    positive = str(variable.attrs.get("positive", "")).lower()
    if not positive and (standard == "depth" or name.lower().startswith("depth")) and np.any(values > 0):
        positive = "down"  # depths below zero are heights
    return Coordinate(str(name), values, tuple(variable.dims), unit, positive, told[:60], standard[:60])


def values_of(name: Any, variable: Any) -> np.ndarray:
    """The values of a variable. An error of the libraries below, about its scale, offset or bytes, names it."""
    try:
        return np.asarray(variable.values)
    except (TypeError, OverflowError, AttributeError, RuntimeError, KeyError, IndexError, OSError) as error:
        raise ValueError(f"variable {str(name)[:60]!r} cannot be read: {str(error)[:200]}") from error


def named_coordinates(variable: Any) -> tuple[str, ...]:
    """The names in the attribute `coordinates` of a variable, which xarray moves to the encoding."""
    attributes = {**getattr(variable, "encoding", {}), **getattr(variable, "attrs", {})}
    return tuple(str(attributes.get("coordinates") or "").split())


def same_places(one: Any, other: Any) -> bool:
    """Whether two variables hold the same places, up to the rounding of single precision."""
    if set(one.dims) != set(other.dims):
        return False
    a = values_of("of places", one).astype(float)
    b = values_of("of places", other.transpose(*one.dims)).astype(float)
    if a.shape != b.shape:
        return False
    spacing = float(np.nanmax(a) - np.nanmin(a)) / max(max(a.shape) - 1, 1)  # about that of neighbours
    return np.allclose(a, b, rtol=1e-6, atol=1e-3 * spacing, equal_nan=True)


def unwrap(coordinate: Coordinate) -> Coordinate:
    """Longitudes without jumps at the date line. Two values are never a jump, however far apart they are."""
    values = coordinate.values
    if values.size == 2:
        return coordinate
    for axis in range(values.ndim):
        values = np.unwrap(values, period=360.0, axis=axis)
    return coordinate._replace(values=values.astype(coordinate.values.dtype))

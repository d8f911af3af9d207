"""Which variables of a NetCDF file are time, height, latitude and longitude (or y and x) of another one."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..velocity import is_component
from .units import UnitSize, compass_of, parse_speed, parse_unit

Role = Literal["T", "Z", "Y", "X"]
_STANDARD: dict[str, Role] = {
    "time": "T",
    "longitude": "X",
    "grid_longitude": "X",
    "projection_x_coordinate": "X",
    "latitude": "Y",
    "grid_latitude": "Y",
    "projection_y_coordinate": "Y",
    "depth": "Z",
    "altitude": "Z",
    "height": "Z",
    "elevation": "Z",
    "air_pressure": "Z",
}
_NAMES: dict[Role, str] = {
    "T": "time t ocean_time times time_counter valid_time",
    "Z": "depth z lev level deptht depthu depthv depthw layer height altitude zc s_rho sigma plev pressure_level",
    "Y": "lat latitude y j nj yc nav_lat rlat nlat eta_rho south_north lat_rho gphit xlat",
    "X": "lon longitude x i ni xc nav_lon rlon nlon xi_rho west_east lon_rho glamt xlong",
}
_ROLES: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}
_LONGITUDES = re.compile(
    r"^(nav_|grid_|r)?(lon|lat)(gitude|itude)?(_(rho|u|v|psi|t|f|c|m))?$|^xl(ong|at)(_[muv])?$|^g(lam|phi)[tuvf]$"
)

_REVERSED = re.compile(r"^deg(ree)?s?([_\s]*(w|west|south)|[_\s]+s)$", re.I)
"""Degrees that count the other way: taken for the usual ones they would be mirrored."""

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
    """Which way it counts, "up" or "down", where that is known."""
    told: str = ""
    """The units as the file writes them."""
    standard: str = ""
    """The CF standard name."""

    @property
    def counted(self) -> bool:
        """Whether it numbers rows or layers, or measures in what is not known, so that no velocity can be told along it."""
        name = self.name.lower()
        if self.unit is not None or self.told:
            return self.unit is None
        upward = bool(self.positive) or role_of(name, {}) == "Z"
        height = self.standard in _STANDARD or name in _HEIGHTS or name.startswith("depth")
        return name in _ROWS or (upward and not height)


def named_degrees(name: str, standard: str = "") -> bool:
    """Whether a coordinate without units is one of degrees by its name or its standard name, as long as its values can be."""
    known = ("longitude", "latitude", "grid_longitude", "grid_latitude")
    return standard in known or bool(_LONGITUDES.match(name.lower()))


def role_of(name: str, attributes: Mapping[str, Any]) -> Role | None:
    """What a variable measures, by its attributes `axis`, `standard_name`, `units`, `positive`, and else by its name."""
    axis = str(attributes.get("axis", "")).upper()
    if axis in ("T", "Z", "Y", "X"):
        return axis
    standard = str(attributes.get("standard_name", "")).lower()
    if standard in _STANDARD:
        return _STANDARD[standard]
    units = str(attributes.get("units", "")).lower()
    if " since " in units:
        return "T"
    toward = compass_of(units)
    if toward:
        return "Y" if toward == "n" else "X"
    if "positive" in attributes:
        return "Z"
    return _ROLES.get(name.lower())


def dimension_roles(dataset: Any, dims: tuple[str, ...]) -> dict[str, Role]:
    """The role of each dimension, from the coordinate along it or from its name."""
    found: dict[str, Role] = {}
    for dim in dims:
        own = dataset.variables.get(dim)
        role = role_of(dim, {} if own is None else own.attrs)
        if role is not None and role not in found.values():
            found[dim] = role
    for (
        variable
    ) in dataset.variables.values():  # longitudes and latitudes of a curved grid name the other two
        over = [dim for dim in variable.dims if dim in dims and found.get(dim) not in ("T", "Z")]
        if len(over) == 2 and role_of("", variable.attrs) in ("X", "Y") and not set(over) & set(found):
            found[over[0]], found[over[1]] = "Y", "X"
    if "T" not in found.values():  # dates along a dimension of any name make it time
        dated = [dim for dim in dims if dim not in found and clock_along(dataset, dim) is not None]
        found.update(dict.fromkeys(dated[:1], "T"))
    for variable in dataset.variables.values():  # and a height over all of them names the third
        free = [dim for dim in variable.dims if dim in dims and dim not in found]
        if len(free) == 1 and role_of("", variable.attrs) == "Z" and "Z" not in found.values():
            found[free[0]] = "Z"
    return found


def without_time(dataset: Any, select: Mapping[str, int]) -> dict[str, Any]:
    """All variables; places that are written for every time, as by WRF, for one time where all are alike.

    Where one time is selected that one counts. Places that move with time stay as they are.
    """
    found = dict(dataset.variables)
    for name, variable in dataset.variables.items():
        attributes = {key: value for key, value in variable.attrs.items() if key != "positive"}
        place = role_of(str(name), attributes) in ("X", "Y", "Z") and len(variable.dims) > 1
        if not place or is_component(str(name)) or parse_speed(attributes.get("units")) is not None:
            continue
        roles = dimension_roles(dataset, tuple(map(str, variable.dims)))
        dim = next((dim for dim, role in roles.items() if role == "T"), None)
        if dim is None:
            continue
        index, size = select.get(dim), variable.sizes[dim]
        if isinstance(index, int | np.integer) and -size <= index < size:
            found[name] = variable.isel({dim: index})
        elif index is None and _is_still(str(name), variable, dim):
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
    """The variable with the times along a dimension: its own, else the only one along it that holds dates.

    Of several with dates the one that is a time by its name or its standard name counts.
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
    """The coordinate of a role over the spatial dimensions `dims`, `dim` being the one that has this role.

    A coordinate along the dimension with a unit comes first, then one over several dimensions, then bare numbers; of several
    alike the one that the attribute `coordinates` of the velocity `variable_of` names.
    """
    ranked: list[tuple[int, bool, bool, str]] = []
    named = named_coordinates(variable_of)
    for name, variable in dataset.variables.items():
        over = set(variable.dims)
        if dim not in over or not over <= set(dims) or role_of(name, variable.attrs) != role:
            continue
        # Row numbers and sigma levels have no unit: where places are known too, those count.
        told = parse_unit(variable.attrs.get("units")) is not None
        ranked.append((1 if len(over) > 1 else 0 if told else 2, name not in named, name != dim, name))
    if not ranked:
        moving = [
            (str(name), next(one for one in variable.dims if one not in dims))
            for name, variable in dataset.variables.items()
            if dim in variable.dims and role_of(str(name), variable.attrs) == role
        ]
        if moving:
            name, other = moving[0]
            raise ValueError(
                f"coordinate {name!r} changes along {other!r}, and grids that move are not read. Take one index with "
                f"`select={{{other!r}: 0}}`, or bring the velocity to places that stay"
            )
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
    """The values of a variable; what the libraries below raise on its scale, offset or bytes is an error that names it."""
    try:
        return np.asarray(variable.values)
    except (TypeError, OverflowError, AttributeError, RuntimeError, KeyError, IndexError, OSError) as error:
        raise ValueError(f"variable {str(name)[:60]!r} cannot be read: {str(error)[:200]}") from error


def named_coordinates(variable: Any) -> tuple[str, ...]:
    """What the attribute `coordinates` of a variable names; xarray moves it to the encoding."""
    attributes = {**getattr(variable, "encoding", {}), **getattr(variable, "attrs", {})}
    return tuple(str(attributes.get("coordinates") or "").split())


def same_places(one: Any, other: Any) -> bool:
    """Whether two variables hold the same places, up to the rounding of single precision."""
    if set(one.dims) != set(other.dims):
        return False
    a = values_of("of places", one).astype(float)
    b = values_of("of places", other.transpose(*one.dims)).astype(float)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-3 * _spacing(a), equal_nan=True)


def _spacing(values: Float[np.ndarray, "..."]) -> float:
    """About how far neighbours are from each other."""
    return float(np.nanmax(values) - np.nanmin(values)) / max(max(values.shape) - 1, 1)


def unwrapped(coordinate: Coordinate) -> Coordinate:
    """Longitudes without jumps at the date line. Two values make no jump, however far from each other they are."""
    values = coordinate.values
    if values.size == 2:
        return coordinate
    for axis in range(values.ndim):
        values = np.unwrap(values, period=360.0, axis=axis)
    return coordinate._replace(values=values.astype(coordinate.values.dtype))

"""The structured grid under a NetCDF variable: its axes, their order in the file, and the units the velocity needs."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ...fields.sphere import Sphere
from ..geometry import Curved, Lattice
from ..slices import ReadOptions
from .axes import Coordinate, Role, dimension_roles, is_index, same_places, spatial_coordinate, unwrap
from .degrees import settle_degrees, tell_directions, units_remedy
from .staggered import REASON
from .units import METRE, UnitSize, parse_speed, speed_factor

_AS_IS = "pass `convert_units=False` to use the velocity as it is"


@dataclasses.dataclass(frozen=True)
class GridOnFile:
    """Dimensions in the order of the file, coordinates x, y (and z) over them, and a factor for each component.

    `seam` is the dimension of longitudes that go once around the globe: its first value is repeated at the end.
    """

    dims: tuple[str, ...]
    places: tuple[Coordinate, ...]
    seam: str | None
    scales: tuple[float, ...]
    notes: tuple[str, ...]
    sphere: Sphere | None = None
    """The sphere, if places are longitudes and latitudes and velocities are in m/s."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each dimension."""
        pairs = (zip(place.dims, place.values.shape, strict=True) for place in self.places)
        sizes = dict(itertools.chain.from_iterable(pairs))
        return tuple(sizes[dim] for dim in self.dims)

    def grid_values(self, variable: Any) -> np.ndarray:
        """The values of a variable, flat and in the order of the grid."""
        spare = [dim for dim in variable.dims if dim not in self.dims]
        values = variable.squeeze(spare).transpose(*self.dims).values
        if self.seam is not None:
            axis = self.dims.index(self.seam)
            values = np.concatenate([values, values.take([0], axis)], axis)
        if values.shape != self.shape:
            raise ValueError(f"it has {values.shape} values instead of {self.shape}")
        return values.reshape(-1)

    def zeros(self) -> Float[np.ndarray, " nodes"]:
        """A component that is zero."""
        return np.zeros(math.prod(self.shape), np.float32)

    def geometry(self, land: Bool[np.ndarray, " nodes"] | None) -> Lattice | Curved:
        """The places of the values; `land` marks the nodes without any."""
        if all(place.values.ndim == 1 for place in self.places):
            along = [place.dims[0] for place in self.places]
            order = tuple(along.index(dim) for dim in self.dims)
            return Lattice(tuple(place.values for place in self.places), order, land)
        return Curved(np.stack([_spread(place, self.dims, self.shape) for place in self.places], -1), land)


def grid_of(
    dataset: Any, names: tuple[str | None, ...], options: ReadOptions, homes: Mapping[str, Any]
) -> GridOnFile:
    """The grid of the velocity's components, all in one data set; `homes` has the data set that each comes from."""
    main = next(name for name in names if name)
    variable = dataset.variables[main]
    if "mesh" in variable.attrs and "location" in variable.attrs:
        raise ValueError(f"variable {main!r} lies on an unstructured mesh (UGRID), which is not read")
    for dim, index in options.select.items():
        if dim not in variable.dims:
            raise ValueError(
                f"`select` names {dim!r}, but variable {main!r} has dimensions {', '.join(variable.dims)}"
            )
        if not is_index(index, size := variable.sizes[dim]):
            raise ValueError(
                f"`select` must name an index of dimension {dim!r}, a whole number from 0 to {size - 1} (or from -{size}, "
                f"counted from the end); got {index!r}"
            )
    roles = dimension_roles(dataset, variable)
    wanted: tuple[Role, ...] = ("X", "Y", "Z")
    dims = []
    for dim, size in variable.sizes.items():
        role = roles.get(dim)
        single = size == 1 and role not in ("X", "Y") and not (role == "Z" and options.dim == 3)
        if dim in options.select or role == "T" or single:
            continue
        if role not in wanted:
            raise ValueError(
                f"dimension {dim!r} of variable {main!r} is neither time nor a place; take one of its {size} with "
                f"`select={{{dim!r}: 0}}`"
            )
        dims.append(dim)
    by_role = {roles[dim]: dim for dim in dims}
    if not {"X", "Y"} <= set(by_role):
        raise ValueError(
            f"variable {main!r} with dimensions {', '.join(variable.dims)} has no x and y (or longitude and latitude) that "
            "could be told by axis, standard_name, units or name"
        )
    width = len(by_role)
    if options.dim is not None and options.dim != width:
        raise ValueError(f"`dim={options.dim}` does not fit variable {main!r}, which has {width} dimensions")
    names = _fitting(names, width, options, by_role.get("Z", ""))
    _same_dimensions(dataset, names, tuple(dims), main)
    found: dict[tuple[Role, str], Coordinate] = {
        (role, dim): spatial_coordinate(dataset, role, tuple(dims), dim, variable)
        for role in wanted
        if (dim := by_role.get(role, ""))
    }
    for name in filter(None, names):
        if name != main:
            _same_nodes(dataset, homes[name], (main, name), found, tuple(dims))
    places = settle_degrees(list(found.values()), options.convert_units)
    shift = options.shift(np.zeros(width))
    places, seam = _around(places, by_role["X"])
    scales, sphere, notes = _scales(dataset, names, places, options)
    if options.convert_units and names[0]:
        tell_directions(dataset, names[0], places[0], by_role["X"])
    if options.origin is not None:
        places = [place._replace(values=place.values + s) for place, s in zip(places, shift, strict=True)]
    names_of = ", ".join(p.name + " (taken as degrees)" * (p.angular and not p.told) for p in places)
    return GridOnFile(tuple(dims), tuple(places), seam, scales, (f"coordinates {names_of}", *notes), sphere)


def _fitting(
    names: tuple[str | None, ...], width: int, options: ReadOptions, depth: str
) -> tuple[str | None, ...]:
    """The components, as many as there are dimensions."""
    if len(names) > width and options.velocity is None:
        return names[:width]  # a vertical velocity on a single layer
    if len(names) == width:
        return names
    remedy = (
        f"Name it with `velocity=`, take `velocity={(*names, None)!r}` for none, or one layer with `select={{{depth!r}: 0}}`"
        if width > len(names)
        else "Name two"
    )
    raise ValueError(f"the grid has {width} dimensions but the velocity has the components {names}. {remedy}")


def _same_dimensions(dataset: Any, names: tuple[str | None, ...], dims: tuple[str, ...], main: str) -> None:
    for name in filter(None, names):
        own = tuple(str(dim) for dim in dataset.variables[name].dims)
        if set(dims) <= set(own):
            continue
        lists = f"({', '.join(dataset.variables[main].dims)} and {', '.join(own)})"
        if len(names) == 3 and name == names[2]:
            raise ValueError(
                f"variable {name!r} lies on other levels than {main!r} {lists}, as the vertical velocity of a staggered grid, "
                f"which is not read yet; bring it to the levels of {main!r}, or pass "
                f"`velocity={(*names[:2], None)!r}` for no vertical velocity"
            )
        raise ValueError(
            f"variables {main!r} and {name!r} lie on different grids {lists}; bring them to common nodes first"
        )


def _same_nodes(
    dataset: Any,
    home: Any,
    pair: tuple[str, str],
    places: Mapping[tuple[Role, str], Coordinate],
    dims: tuple[str, ...],
) -> None:
    """Refuse two components with the same dimensions and coordinates at different places."""
    for (role, dim), place in places.items():
        found = None
        with suppress(ValueError):  # a file without coordinates lies on the same places
            found = spatial_coordinate(home, role, dims, dim, home.variables[pair[1]])
        if found is None or home.variables[found.name] is dataset.variables[place.name]:
            continue
        if not same_places(dataset.variables[place.name], home.variables[found.name]):
            raise ValueError(
                f"variables {pair[0]!r} and {pair[1]!r} lie at different places ({place.name} and {found.name}), {REASON}"
            )


def _spread(place: Coordinate, dims: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """A coordinate over all dimensions of the grid."""
    values = place.values.transpose(sorted(range(len(place.dims)), key=lambda k: dims.index(place.dims[k])))
    missing = tuple(axis for axis, dim in enumerate(dims) if dim not in place.dims)
    return np.broadcast_to(np.expand_dims(values, missing), shape)


def _around(places: list[Coordinate], x_dim: str) -> tuple[list[Coordinate], str | None]:
    """Longitudes without jumps. If they go once around the globe, the first one is repeated at the end."""
    if not places[0].angular:
        return places, None
    x = unwrap(places[0])
    if all(place.values.ndim == 1 for place in places) and x.values.size >= 3:
        step = (x.values[-1] - x.values[0]) / (x.values.size - 1)
        rounding = 4 * np.finfo(np.float32).eps * float(np.abs(x.values).max())
        if abs(abs(step) * x.values.size - 360.0) <= 1e-3 * abs(step) + rounding:
            end = x.values[0] + np.asarray(360.0 * np.sign(step), x.values.dtype)
            return [x._replace(values=np.append(x.values, end)), *places[1:]], x_dim
    return [x, *places[1:]], None


def _scales(
    dataset: Any, names: tuple[str | None, ...], places: list[Coordinate], options: ReadOptions
) -> tuple[tuple[float, ...], Sphere | None, tuple[str, ...]]:
    """The factor of each component, the sphere, and a note about both.

    The velocity is then in units of its coordinates per second; or, with a sphere, in m/s on longitudes and latitudes.
    """
    if not options.convert_units:
        return (1.0,) * len(names), None, ("velocities as they are in the file",)
    scales: list[float] = []
    kinds: list[str] = []
    turned = said = False
    for k, (name, place) in enumerate(zip(names, places, strict=True)):
        if name is None:
            scales.append(1.0)
            continue
        attributes = dataset.variables[name].attrs
        units, speed = str(attributes.get("units", "")), parse_speed(attributes.get("units"))
        if speed is not None and place.without_length:
            without = tuple(None if one == name else one for one in names)
            raise ValueError(
                f"variable {name!r} is in {units}, but coordinate {place.name!r} with units {place.told!r} does not say how "
                f"long it is. If it is metres, pass `attributes={{{place.name!r}: {{'units': 'm'}}}}`; or take one index with "
                f"`select=`, leave this component out with `velocity={without!r}`, or {_AS_IS}"
            )
        bare = units.strip() in ("", "1")
        if speed is None and place.angular:
            if not bare:
                raise ValueError(
                    f"variable {name!r} has units {units[:60]!r}, which are not known, on degrees. Convert it to m/s first, or "
                    "pass `convert_units=False` to use it as degrees per second"
                )
            if not turned:
                warnings.warn(
                    f"variable {name!r} has units {units!r}; it is taken as m/s and converted to degrees/s. Pass "
                    "`convert_units=False` to leave it as it is.",
                    stacklevel=2,
                )
            speed = METRE
        elif speed is None and place.unit is not None and not (bare and place.unit == METRE) and not said:
            said = True
            warnings.warn(
                f"variable {name!r} has units {units!r}, which are not known; it is used as it is, in units of {place.name!r} "
                "per second. Convert it first, or pass `convert_units=False`.",
                stacklevel=2,
            )
        try:
            factor = speed_factor(speed, place.unit)
        except ValueError as error:
            raise ValueError(
                f"variable {name!r} and coordinate {place.name!r}: {error}. Correct the wrong one with "
                f"`attributes={{{name!r}: {{'units': 'm/s'}}}}` or in the same way for the other, or {_AS_IS}"
            ) from error
        if speed is not None and place.angular:
            kinds += [speed.kind] if k < 2 else []
            turned = turned or speed.kind == "length"
        scales.append(factor * _upward(name, attributes, place, speed) if k == 2 else factor)
    if not turned:
        return tuple(scales), None, ()
    _check_sphere(names, places, set(kinds))
    equator = 0.0 if options.origin is None else float(options.origin[1])
    sphere = Sphere(options.earth_radius, equator)
    return tuple(scales), sphere, (f"m/s converted to degrees/s at each particle ({sphere})",)


def _check_sphere(names: tuple[str | None, ...], places: list[Coordinate], kinds: set[str]) -> None:
    """Refuse latitudes beyond 90 degrees, one coordinate in degrees, and velocities with only one component in m/s."""
    x, y = places[:2]
    if not (x.angular and y.angular):
        raise ValueError(
            f"coordinates {x.name!r} and {y.name!r} must both be in degrees, or none of them, for a velocity in m/s. "
            f"If they are, {units_remedy(x, y, 'degrees_east', 'degrees_north')}, or {_AS_IS}"
        )
    if len(kinds) > 1:
        raise ValueError(
            f"variables {names[0]!r} and {names[1]!r} must both be in m/s or both in degrees per second. Convert one of "
            "them, or pass `convert_units=False` to use both as they are"
        )
    highest = float(np.abs(y.values).max())
    if highest > 90 * (1 + 1e-6):
        raise ValueError(f"coordinate {y.name!r} holds latitudes up to {highest:g} degrees")


def _upward(name: str, attributes: Any, place: Coordinate, speed: UnitSize | None) -> float:
    """-1 if a positive vertical velocity makes its coordinate smaller, else 1."""
    if speed is not None and speed.kind == "pressure":
        return 1.0
    standard = str(attributes.get("standard_name", ""))
    down = place.positive == "down"
    if down and not standard.startswith(("upward", "downward")):
        warnings.warn(
            f"variable {name!r} does not say whether it points up; it is taken as upward, against {place.name!r}. "
            f"Otherwise pass `attributes={{{name!r}: {{'standard_name': 'downward_sea_water_velocity'}}}}`.",
            stacklevel=2,
        )
    return -1.0 if down != standard.startswith("downward") else 1.0

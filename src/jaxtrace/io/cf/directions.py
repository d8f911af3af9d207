"""Which way the components of a velocity point: along the rows of the grid, or east and north."""

import warnings
from typing import Any

import numpy as np

from .axes import Coordinate, named_degrees, role_of, values_of
from .degrees import may_be_degrees
from .units import parse_unit

STRAIGHT = 1.0
"""Rows that leave the direction east by less than so many degrees are taken as pointing there."""


def tell_directions(dataset: Any, name: str, x: Coordinate, x_dim: str) -> None:
    """Warn where the first component of a velocity points along turned rows and is used as east, or the other way round."""
    standard = str(dataset.variables[name].attrs.get("standard_name", ""))
    words = {*standard.split("_"), *name.lower().split("_")}
    east = "eastward" in words and not standard.startswith("grid_")
    on_globe = x.unit is not None and x.unit.kind == "angle" and x.standard != "grid_longitude"
    if on_globe and not east and x.values.ndim > 1:
        if standard.startswith("x_") or _turns(dataset, x_dim) > STRAIGHT:
            warnings.warn(
                f"variable {name!r} does not say that it points east, and the rows of the grid, along which it may point, are "
                "curved in longitude and latitude; it is used as if it pointed east. Rotate the velocity first, or say that "
                f"it does: `attributes={{{name!r}: {{'standard_name': 'eastward_sea_water_velocity'}}}}`.",
                UserWarning,
                stacklevel=2,
            )
    elif east and not on_globe and (x.standard == "grid_longitude" or _turns(dataset, x_dim) > STRAIGHT):
        warnings.warn(
            f"variable {name!r} points east, which is not the direction of coordinate {x.name!r}; it is used as if it were. "
            "Rotate the velocity first.",
            UserWarning,
            stacklevel=2,
        )


def _turns(dataset: Any, x_dim: str) -> float:
    """How many degrees the rows of a grid point away from east at most, by its longitudes and latitudes; 0 without them."""
    found: dict[str | None, Any] = {}
    for name, variable in dataset.variables.items():
        unit, role = parse_unit(variable.attrs.get("units")), role_of(str(name), variable.attrs)
        angle = named_degrees(str(name)) if unit is None else unit.kind == "angle"
        if angle and role in ("X", "Y") and len(variable.dims) == 2 and x_dim in variable.dims:
            found.setdefault(role, variable)
    if not {"X", "Y"} <= set(found) or set(found["X"].dims) != set(found["Y"].dims):
        return 0.0
    dims = sorted(found["X"].dims, key=lambda dim: dim == x_dim)
    lon, lat = (values_of(role, found[role].transpose(*dims)).astype(float) for role in ("X", "Y"))
    if not (may_be_degrees(lon[np.isfinite(lon)], "X") and may_be_degrees(lat[np.isfinite(lat)], "Y")):
        return 0.0
    east = (np.diff(lon) + 180) % 360 - 180
    east = east * np.cos(np.deg2rad((lat[:, 1:] + lat[:, :-1]) / 2))
    angles = np.rad2deg(np.arctan2(np.abs(np.diff(lat)), np.abs(east)))
    return float(np.nanmax(angles, initial=0.0))

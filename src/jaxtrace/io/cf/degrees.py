"""Degrees and directions: whether coordinates are longitudes and latitudes, and whether a velocity points east and north."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from .axes import Coordinate, named_degrees, role_of, values_of
from .units import METRE, parse_unit

_LARGEST = {"X": 720.0, "Y": 90 * (1 + 1e-6)}
"""Largest longitude and latitude; longitudes may count a second turn."""
STRAIGHT = 1.0
"""Rows that point less than this many degrees away from east count as pointing east."""


def may_be_degrees(values: Float[np.ndarray, "..."], role: str) -> bool:
    """Whether numbers can be longitudes ("X") or latitudes ("Y") in degrees."""
    return bool(np.all(np.abs(values) <= _LARGEST[role]))


def settle_degrees(places: list[Coordinate], convert_units: bool) -> list[Coordinate]:
    """The coordinates with x and y both in degrees, or neither of them.

    The units of the file decide; values that contradict them are an error. Without units, coordinates that are named like
    longitudes and latitudes are degrees if the values of both can be, and metres (with a warning) if those of neither can be.
    """
    x, y = places[:2]
    _demand_agreement(x, "X")
    _demand_agreement(y, "Y")
    fits = may_be_degrees(x.values, "X"), may_be_degrees(y.values, "Y")
    assumed = [place.angular and parse_unit(place.told) is None for place in (x, y)]
    metric = [place.unit is not None and place.unit.kind == "length" for place in (x, y)]
    if any(guess and (not fit or any(metric)) for guess, fit in zip(assumed, fits, strict=True)):
        # Metres for sure are only values that cannot be degrees, beside others of the same kind.
        kinds = zip(assumed, fits, metric, strict=True)
        if not all(not fit if guess else metre for guess, fit, metre in kinds):
            raise ValueError(
                f"coordinates {_range(x)} and {_range(y)} may be degrees or metres, and units do not say which. "
                f"For metres {units_remedy(x, y, 'm')}, or in the same way degrees_east and degrees_north"
            )
        names = " and ".join(_range(place) for place, guess in zip((x, y), assumed, strict=True) if guess)
        warnings.warn(
            f"{names}: coordinates without units that cannot be degrees; they are taken as metres. To say so without "
            f"this warning: {units_remedy(x, y, 'm')}.",
            stacklevel=2,
        )
        x, y = (
            place._replace(unit=METRE) if guess else place
            for place, guess in zip((x, y), assumed, strict=True)
        )
    if convert_units and x.angular != y.angular:
        angle, other = (x, y) if x.angular else (y, x)
        raise ValueError(
            f"coordinate {angle.name!r} is in degrees, but {other.name!r} with units {other.told!r} is not. "
            f"If both are, {units_remedy(x, y, 'degrees_east', 'degrees_north')}"
        )
    return [x, y, *places[2:]]


def units_remedy(x: Coordinate, y: Coordinate, unit: str, other: str = "") -> str:
    """The remedy of a message: how to give the units of both coordinates."""
    given = {x.name: {"units": unit}, y.name: {"units": other or unit}}
    return f"pass `attributes={given}`"


def _demand_agreement(place: Coordinate, role: str) -> None:
    """Refuse units that the values or the standard name contradict."""
    told, fits = parse_unit(place.told), may_be_degrees(place.values, role)
    if told is None:
        return
    if told.kind == "angle" and not fits:
        raise ValueError(
            f"coordinate {_range(place)} has units {place.told!r}, but these are no degrees. If they are metres, pass "
            f"`attributes={{{place.name!r}: {{'units': 'm'}}}}` for both coordinates"
        )
    if told.kind == "length" and fits and place.standard in ("longitude", "latitude"):
        raise ValueError(
            f"coordinate {_range(place)} has units {place.told!r} and the standard_name {place.standard!r}, which is in degrees. "
            "Correct one of them"
        )


def _range(place: Coordinate) -> str:
    return f"{place.name!r} ({place.values.min():g} … {place.values.max():g})"


def tell_directions(dataset: Any, name: str, x: Coordinate, x_dim: str) -> None:
    """Warn if a velocity that may point along turned rows is used as eastward, or an eastward one as pointing along the rows."""
    standard = str(dataset.variables[name].attrs.get("standard_name", ""))
    words = {*standard.split("_"), *name.lower().split("_")}
    east = "eastward" in words and not standard.startswith("grid_")
    on_globe = x.angular and x.standard != "grid_longitude"
    if on_globe and not east and x.values.ndim > 1:
        if standard.startswith("x_") or _turns(dataset, x_dim) > STRAIGHT:
            warnings.warn(
                f"variable {name!r} does not say that it points east, and the rows of the grid, along which it may point, are "
                "curved in longitude and latitude; it is used as if it pointed east. Rotate the velocity first, or say that "
                f"it does: `attributes={{{name!r}: {{'standard_name': 'eastward_sea_water_velocity'}}}}`.",
                stacklevel=2,
            )
    elif east and not on_globe and (x.standard == "grid_longitude" or _turns(dataset, x_dim) > STRAIGHT):
        warnings.warn(
            f"variable {name!r} points east, which is not the direction of coordinate {x.name!r}; it is used as if it were. "
            "Rotate the velocity first.",
            stacklevel=2,
        )


def _turns(dataset: Any, x_dim: str) -> float:
    """Largest angle between the rows of a grid and east in degrees, from its longitudes and latitudes; 0 without them."""
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

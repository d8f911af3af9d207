"""Whether coordinates are in degrees: by their units, their standard names, or what their values can be."""

import warnings

import numpy as np
from jaxtyping import Float

from .axes import Coordinate
from .units import UnitSize, parse_unit

_LARGEST = {"X": 720.0, "Y": 90 * (1 + 1e-6)}
"""No longitude or latitude is beyond these; longitudes may count on from another turn."""


def may_be_degrees(values: Float[np.ndarray, "..."], role: str) -> bool:
    """Whether numbers can be longitudes ("X") or latitudes ("Y") in degrees."""
    return bool(np.all(np.abs(values) <= _LARGEST[role]))


def settle_degrees(places: list[Coordinate], convert_units: bool) -> list[Coordinate]:
    """Coordinates of which x and y are both in degrees or both are not.

    Units that the file gives count, unless the values contradict them. Without units longitudes and latitudes by name are
    degrees where both can be, and metres (with a warning) where neither can be.
    """
    x, y = places[:2]
    _demand_agreement(x, "X")
    _demand_agreement(y, "Y")
    fits = may_be_degrees(x.values, "X"), may_be_degrees(y.values, "Y")
    assumed = [_is_angle(place) and parse_unit(place.told) is None for place in (x, y)]
    metric = [place.unit is not None and place.unit.kind == "length" for place in (x, y)]
    doubtful = [guess and (not fit or any(metric)) for guess, fit in zip(assumed, fits, strict=True)]
    if any(doubtful):
        # Metres for sure are only values that cannot be degrees, beside others of the same kind.
        if any(guess and fit for guess, fit in zip(assumed, fits, strict=True)) or not all(
            guess or metre for guess, metre in zip(assumed, metric, strict=True)
        ):
            raise ValueError(
                f"coordinates {_range(x)} and {_range(y)} may be degrees or metres, and units do not say which. "
                f"For metres {units_remedy(x, y, 'm')}, or in the same way degrees_east and degrees_north"
            )
        names = " and ".join(_range(place) for place, guess in zip((x, y), assumed, strict=True) if guess)
        warnings.warn(
            f"{names}: coordinates without units that cannot be degrees; they are taken as metres. To say so without "
            f"this warning: {units_remedy(x, y, 'm')}.",
            UserWarning,
            stacklevel=2,
        )
        x, y = (
            place._replace(unit=UnitSize("length", 1.0)) if guess else place
            for place, guess in zip((x, y), assumed, strict=True)
        )
    if convert_units and _is_angle(x) != _is_angle(y):
        angle, other = (x, y) if _is_angle(x) else (y, x)
        raise ValueError(
            f"coordinate {angle.name!r} is in degrees, but {other.name!r} with units {other.told!r} is not. "
            f"If both are, {units_remedy(x, y, 'degrees_east', 'degrees_north')}"
        )
    return [x, y, *places[2:]]


def units_remedy(x: Coordinate, y: Coordinate, unit: str, other: str = "") -> str:
    """How to say the units of both coordinates."""
    given = {x.name: {"units": unit}, y.name: {"units": other or unit}}
    return f"pass `attributes={given}`"


def assumed_degrees(places: list[Coordinate]) -> list[str]:
    """The names of coordinates that are taken as degrees though no units say so."""
    return [place.name for place in places[:2] if _is_angle(place) and not place.told]


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


def _is_angle(place: Coordinate) -> bool:
    return place.unit is not None and place.unit.kind == "angle"


def _range(place: Coordinate) -> str:
    return f"{place.name!r} ({place.values.min():g} … {place.values.max():g})"

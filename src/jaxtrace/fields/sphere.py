"""Longitudes and latitudes: the sphere they lie on, and its stereographic projection around a place.

The projection is conformal, needs no trigonometric function but the arc tangent, and is as smooth at the poles as anywhere
else. J. P. Snyder, "Map Projections: A Working Manual", USGS 1395 (1987), ch. 21.
"""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

EARTH_RADIUS = 6_371_000.0
"""Mean radius of the Earth in metres: what one degree is worth where nothing else is said (111.195 km)."""


@dataclasses.dataclass(frozen=True, init=False)
class Sphere:
    """A sphere of `radius` metres. The first two coordinates are longitude and latitude in degrees, velocities are in m/s.

    `equator` is the latitude, in degrees, at which the second coordinate is zero: not 0 where an origin was subtracted.
    Other coordinates, such as depth, are in metres, and velocities along them in m/s.
    """

    radius: float  # without defaults here, so that it is always shown where a field is printed
    equator: float

    def __init__(self, radius: float = EARTH_RADIUS, equator: float = 0.0) -> None:
        try:
            size, zero = float(radius), float(equator)
        except (TypeError, ValueError):
            size, zero = math.nan, 0.0
        if not (math.isfinite(size) and size > 0):
            raise ValueError(
                f"`radius` must be a positive number of metres; got {radius!r}. The Earth's is {EARTH_RADIUS:g}."
            )
        if not abs(zero) <= 90:
            raise ValueError(f"`equator` must be a latitude, from -90 to 90; got {equator!r}.")
        object.__setattr__(self, "radius", size)
        object.__setattr__(self, "equator", zero)

    @property
    def metres_per_degree(self) -> float:
        """Metres in one degree of latitude."""
        return self.radius * math.pi / 180

    def __str__(self) -> str:
        return f"sphere of radius {self.radius:,.10g} m"

    def rates(self, x: Float[Array, " dim"], velocity: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A velocity in m/s as degrees of longitude and of latitude per second at `x`.

        At a pole, where longitude has no rate, that of a place a metre away.
        """
        cosine = jnp.maximum(circles(x[1], self.equator).cos, 1 / self.radius)
        factor = jnp.ones_like(x).at[:2].set(1 / self.metres_per_degree)
        return velocity * factor.at[0].divide(cosine)


class Circles(NamedTuple):
    """Cosine and sine of a latitude."""

    cos: Array
    sin: Array


def circles(latitude: Array, equator: float) -> Circles:
    """Cosine and sine of a latitude in degrees. The cosine keeps its digits near the poles."""
    latitude = latitude + equator if equator else latitude
    below = jnp.abs(latitude)
    away = (90.0 - below) * (math.pi / 180)  # exact where it is small
    sine = jnp.cos(away)
    return Circles(jnp.sin(away), jnp.where(latitude < 0, -sine, sine))


class ChartPlace(NamedTuple):
    """What a place in the chart is on the sphere."""

    longitude: Array
    """Degrees east of the chart's middle, from -180 to 180."""
    latitude: Array
    """Degrees north of the chart's middle."""
    east: tuple[Array, Array]
    """What one m/s to the east there is in the chart; to the north it is the same turned by a right angle."""


def place_in_chart(middle: Circles, east: Array, north: Array, radius: float) -> ChartPlace:
    """The place `east` and `north` metres from the chart's middle, at whose latitude `middle` was computed."""
    cos, sin = middle
    a, b = east * (0.5 / radius), north * (0.5 / radius)
    square = a * a + b * b
    # Towards the middle's meridian, and from the axis, of the sphere with radius 1 + square.
    near = cos * (1 - square) - 2 * b * sin
    distance2 = near * near + 4 * a * a
    at_pole = distance2 == 0
    distance = jnp.sqrt(jnp.where(at_pole, 1.0, distance2))
    near, distance = jnp.where(at_pole, 1.0, near), jnp.where(at_pole, 0.0, distance)
    ahead = near > 0
    # distance - near without cancellation.
    gap = jnp.where(ahead, 4 * a * a / jnp.where(ahead & ~at_pole, distance + near, 1.0), distance - near)
    gap = jnp.where(at_pole, 0.0, gap)
    degrees = 180 / math.pi
    longitude = degrees * jnp.arctan2(2 * a, near)
    latitude = degrees * jnp.arctan2(2 * b - sin * gap, 1 - square + cos * gap)
    stretch = (1 + square) / jnp.where(at_pole, 1.0, distance)
    along = jnp.where(at_pole, 1.0, near + 2 * cos * a * a)
    across = 2 * a * (sin + cos * b)
    return ChartPlace(longitude, latitude, (stretch * along, stretch * across))


def nearest_turn(longitude: Array, middle: Array) -> Array:
    """The same longitude within half a turn of `middle`."""
    return longitude - 360.0 * jnp.floor((longitude - middle) / 360.0 + 0.5)


def area_weights(sphere: Sphere, latitude: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """What a square degree at each latitude is worth, 1 at the equator."""
    return np.cos(np.deg2rad(np.asarray(latitude, np.float64) + sphere.equator))

"""Boundaries by their usual names: boxes and round walls, each a pure compiled map."""

from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import AbstractBoundary, Composed, Unbounded
from .box import Bounds, Box, axis_number, box_boundary, checked_point, checked_size
from .round import Round, Side, Wall


def reflective_boundary(bounds: Bounds) -> Box:
    """Reflect particles at all faces; a step that meets several is folded as often as needed."""
    return box_boundary(bounds, "reflective")


def periodic_boundary(bounds: Bounds) -> Box:
    """Wrap positions into [low, high): a particle that leaves on one side enters on the other."""
    return box_boundary(bounds, "periodic")


def clamping_boundary(bounds: Bounds) -> Box:
    """Clamp positions to the box."""
    return box_boundary(bounds, "clamping")


def absorbing_boundary(bounds: Bounds) -> Box:
    """End particles on the face that they cross first."""
    return box_boundary(bounds, "absorbing")


def no_boundary() -> Unbounded:
    """No boundary: unlimited space."""
    return Unbounded()


def composed_boundary(*parts: AbstractBoundary) -> Composed:
    """Several boundaries in turn."""
    return Composed(tuple(one for part in parts for one in getattr(part, "parts", (part,))))


def spherical_boundary(
    center: Sequence[float] | Float[Array | np.ndarray, " dim"],
    radius: float,
    condition: str = "reflective",
    side: str = "inside",
) -> Round:
    """A sphere, in two dimensions a circle, that holds particles inside or keeps them out (`side="outside"`)."""
    centre = checked_point(center, "center")
    _check_round(radius, condition, side)
    return Round(
        jnp.asarray(centre, float),
        jnp.asarray(radius, float),
        jnp.zeros(len(centre)),
        cast(Wall, condition),
        cast(Side, side),
        "sphere" if len(centre) > 2 else "circle",
    )


def cylindrical_boundary(
    axis: str | int | Sequence[float] = "z",
    center: Sequence[float] | Float[Array | np.ndarray, " n"] = (0.0, 0.0),
    radius: float = 1.0,
    height: float | None = None,
    condition: str = "reflective",
    side: str = "inside",
) -> AbstractBoundary:
    """A cylinder along `axis` ("x", "y", "z", its number, or a direction), endless unless `height` is given.

    `center` is a point of the axis, with or without the coordinate along it (0 then). With `height` the cylinder is
    closed by two faces at `center ± height / 2` of the same condition; that needs an axis of the coordinate system
    and `side="inside"`.
    """
    direction = _direction(axis)
    centre = checked_point(center, "center")
    along = int(np.argmax(np.abs(direction)))
    if len(centre) == 2:
        if np.count_nonzero(direction) != 1:
            raise ValueError(
                f"`center` must have three coordinates when `axis` is a direction; got {centre}."
            )
        centre = np.insert(centre, along, 0.0)
    if len(centre) != 3:
        raise ValueError(f"`center` must have two or three coordinates; got {len(centre)}.")
    _check_round(radius, condition, side)
    place, size, along_it = (jnp.asarray(value, float) for value in (centre, radius, direction))
    shape = Round(place, size, along_it, cast(Wall, condition), cast(Side, side), "cylinder")
    if height is None:
        return shape
    if not 0 < height < np.inf or np.count_nonzero(direction) != 1 or side != "inside":
        raise ValueError(
            f"`height` must be positive, with `axis` one of x, y, z and `side` inside; got height={height}, "
            f"axis={axis!r}, side={side!r}. Leave it out for an endless cylinder."
        )
    low, high = np.full(3, -np.inf), np.full(3, np.inf)
    low[along], high[along] = centre[along] - height / 2, centre[along] + height / 2
    faces = tuple((condition, condition) if i == along else ("open", "open") for i in range(3))
    return Composed((shape, Box(jnp.asarray(low, float), jnp.asarray(high, float), cast(Any, faces))))


def _direction(axis: str | int | Sequence[float]) -> np.ndarray:
    """Unit vector along a cylinder."""
    if isinstance(axis, str | int):
        return np.eye(3)[axis_number(axis, 3)]
    vector = np.asarray(axis, np.float64)
    if vector.shape != (3,) or not np.linalg.norm(vector) > 0:
        raise ValueError(f"`axis` must be x, y, z or a direction of three numbers, not all 0; got {axis!r}.")
    return vector / np.linalg.norm(vector)


def _check_round(radius: float, condition: str, side: str) -> None:
    checked_size(radius)
    if condition not in ("reflective", "clamping", "absorbing"):
        raise ValueError(f"`condition` must be reflective, clamping or absorbing; got {condition!r}.")
    if side not in ("inside", "outside"):
        raise ValueError(f"`side` must be inside or outside; got {side!r}.")

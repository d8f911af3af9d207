"""Outlines of boundaries: lines for faces, bodies for round walls; and the periods of the axes."""

import dataclasses
import itertools
from typing import Literal

import numpy as np
from jaxtyping import Float

from ..boundaries.base import AbstractBoundary, Composed
from ..boundaries.box import Box
from ..boundaries.reinjection import InletBoundary
from ..boundaries.round import Round

Kind = Literal["wall", "outlet", "periodic", "body", "edge"]
STYLES: dict[Kind, tuple[str, str, float]] = {
    "wall": ("#3b3b3b", "-", 1.6),
    "outlet": ("#D55E00", "--", 1.6),
    "periodic": ("#3b3b3b", ":", 1.0),
    "body": ("#3b3b3b", "-", 1.0),
    "edge": ("#8a8a8a", "-", 0.8),
}
"""Colour, dashes and width of each kind of line."""
BODY_COLOR = "#b8b8b8"
_KINDS: dict[str, Kind] = {
    "reflective": "wall",
    "clamping": "wall",
    "absorbing": "outlet",
    "periodic": "periodic",
}


@dataclasses.dataclass(frozen=True)
class Outline:
    """A line of a boundary; a body is closed and filled."""

    points: Float[np.ndarray, "points axes"]
    kind: Kind


def parts(boundary: AbstractBoundary | None) -> list[AbstractBoundary]:
    """The boundaries that a boundary is made of."""
    if boundary is None:
        return []
    if isinstance(boundary, InletBoundary):
        return parts(boundary.walls)
    if isinstance(boundary, Composed):
        return [part for inner in boundary.parts for part in parts(inner)]
    return [boundary]


def periods_of(boundary: AbstractBoundary | None) -> Float[np.ndarray, " dim"] | None:
    """The period of each axis, infinite for axes without one; None if the boundary has no box."""
    sizes = [
        np.where(
            [pair[0] == "periodic" for pair in box.faces], np.asarray(box.high) - np.asarray(box.low), np.inf
        )
        for box in parts(boundary)
        if isinstance(box, Box)
    ]
    return np.min(sizes, axis=0).astype(np.float64) if sizes else None


def outlines(boundary: AbstractBoundary | None, dims: tuple[int, ...]) -> list[Outline]:
    """The lines of a boundary as seen along the axes `dims`: boxes, circles, and cylinders along the line of sight."""
    found = []
    for part in parts(boundary):
        if isinstance(part, Box):
            found += _edges(part, dims) if len(dims) == 3 else _faces(part, dims)
        elif isinstance(part, Round):
            found += _circle(part, dims)
    return found


def _faces(box: Box, dims: tuple[int, ...]) -> list[Outline]:
    """The four sides of a rectangle, in the style of their faces; open faces are not drawn."""
    corners = np.asarray([box.low, box.high], np.float64)[:, list(dims)]
    found = []
    for place, axis in enumerate(dims):
        for side, face in enumerate(box.faces[axis]):
            ends = corners.copy()
            ends[:, place] = corners[side, place]
            if face in _KINDS and np.isfinite(ends).all():
                found.append(Outline(ends, _KINDS[face]))
    return found


def _edges(box: Box, dims: tuple[int, ...]) -> list[Outline]:
    """The twelve edges of a box."""
    low, high = np.asarray([box.low, box.high], np.float64)[:, list(dims)]
    found = []
    for axis, number in itertools.product(range(3), range(4)):
        across = [a for a in range(3) if a != axis]
        ends = np.stack([low, high])
        ends[:, across] = np.where([number & 1, number >> 1], high[across], low[across])
        found.append(Outline(ends, "edge"))
    return found if np.isfinite([low, high]).all() else []


def _circle(wall: Round, dims: tuple[int, ...]) -> list[Outline]:
    """A circle, or a cylinder seen along its axis; filled if particles are kept outside."""
    axis = np.asarray(wall.axis, np.float64)
    hidden = [a for a in range(len(axis)) if a not in dims]
    if len(dims) != 2 or (len(axis) > 2 and axis.any() and abs(axis[hidden[0]]) <= 0.999):
        return []
    angle = np.linspace(0.0, 2 * np.pi, 97)
    ring = np.stack([np.cos(angle), np.sin(angle)], -1)
    points = np.asarray(wall.centre, np.float64)[list(dims)] + float(wall.radius) * ring
    return [Outline(points, "body" if wall.side == "outside" else "wall")]

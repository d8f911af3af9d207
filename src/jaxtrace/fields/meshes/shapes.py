"""Cell shapes: corners, faces, division into simplices and shape functions of every kind of cell a mesh may hold."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ..base import Flag, Scalar, Vector

# Powers of the reference coordinates in each term of the maps below: 1, r, s, rs and 1, r, s, t, rs, st, rt, rst.
_POWERS = {
    2: ((0, 0), (1, 0), (0, 1), (1, 1)),
    3: ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)),
}


class Shape(NamedTuple):
    """One kind of cell; corners in VTK order, faces seen from outside, `mirror` reverses the orientation.

    `terms` are the terms of `_POWERS` that the shape functions span: every kind is a special case of the brick, so one
    Newton iteration serves a mesh that mixes them.
    """

    name: str
    corners: tuple[tuple[int, ...], ...]
    faces: tuple[tuple[int, ...], ...]
    mirror: tuple[int, ...]
    terms: tuple[int, ...]

    @property
    def dim(self) -> int:
        return len(self.corners[0])

    @property
    def is_simplex(self) -> bool:
        return len(self.corners) == self.dim + 1


_SQUARE = ((0, 0), (1, 0), (1, 1), (0, 1))
_CORNER = ((0, 0), (1, 0), (0, 1))
# A simplex's face j lies opposite its corner j.
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("triangle", _CORNER, ((1, 2), (2, 0), (0, 1)), (0, 2, 1), (0, 1, 2)),
        Shape("quad", _SQUARE, ((0, 1), (1, 2), (2, 3), (3, 0)), (0, 3, 2, 1), (0, 1, 2, 3)),
        Shape(
            "tetra",
            ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)),
            ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1)),
            (0, 2, 1, 3),
            (0, 1, 2, 3),
        ),
        Shape(
            "wedge",
            tuple((*c, t) for t in (0, 1) for c in _CORNER),
            ((0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
            (3, 4, 5, 0, 1, 2),
            (0, 1, 2, 3, 5, 6),
        ),
        Shape(
            "hexahedron",
            tuple((*c, t) for t in (0, 1) for c in _SQUARE),
            ((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4), (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7)),
            (4, 5, 6, 7, 0, 1, 2, 3),
            (0, 1, 2, 3, 4, 5, 6, 7),
        ),
    )
}


def shape_matrix(shape: Shape, rows: int) -> Float[np.ndarray, "rows terms"]:
    """Matrix whose product with `terms(xi)` is the weight of each corner; zero rows pad it to `rows` corners."""
    values = np.prod(np.asarray(shape.corners, float)[:, None] ** np.asarray(_POWERS[shape.dim]), axis=-1)
    used = list(shape.terms)
    matrix = np.zeros((rows, len(_POWERS[shape.dim])))
    matrix[: len(shape.corners), used] = np.linalg.inv(values[:, used]).T
    return np.round(matrix)  # the entries are -1, 0 and 1


def corner_determinants(
    shape: Shape, corners: Float[np.ndarray, "cells corners dim"]
) -> Float[np.ndarray, "cells corners"]:
    """Determinant of the map from the reference cell at each corner: all positive in a sound cell."""
    coefficients = np.einsum("kt,ckd->ctd", shape_matrix(shape, len(shape.corners)), corners)
    powers, found = np.asarray(_POWERS[shape.dim]), []
    for at in np.asarray(shape.corners, float):
        lowered = [np.maximum(powers - np.eye(shape.dim, dtype=int)[k], 0) for k in range(shape.dim)]
        slopes = np.stack([powers[:, k] * np.prod(at ** lowered[k], -1) for k in range(shape.dim)], -1)
        found.append(np.linalg.det(np.einsum("tk,ctd->ckd", slopes, coefficients)))
    return np.stack(found, -1)


def divide(
    shape: Shape, nodes: Int[np.ndarray, "cells corners"]
) -> tuple[Int[np.ndarray, "cells pieces dim1"], Int[np.ndarray, "cells pieces dim1"]]:
    """Corners of the simplices that make up each cell, and the cell's face behind each of their faces (-1: inside).

    Each cell is a fan from its lowest-numbered node and each quadrilateral is cut through its lowest-numbered node,
    so two cells always cut the face they share alike.
    """
    lowest = np.zeros(len(nodes), int) if shape.is_simplex else nodes.argmin(1)
    pieces: int = sum(len(face) - shape.dim + 1 for face in shape.faces if 0 not in face)
    local = np.zeros((len(nodes), pieces, shape.dim + 1), int)
    for apex in range(len(shape.corners)):
        rows = np.flatnonzero(lowest == apex)
        k = 0
        for face in (face for face in shape.faces if apex not in face):
            first = (
                nodes[rows][:, list(face)].argmin(1) % 2
                if len(face) > shape.dim
                else np.zeros(len(rows), int)
            )
            for cut in range(len(face) - shape.dim + 1):
                steps = (0, 1) if shape.dim == 2 else (0, 1 + cut, 2 + cut)
                ring = np.asarray(face)
                local[rows, k, 0] = apex
                for j, step in enumerate(steps):
                    local[rows, k, 1 + j] = ring[(first + step) % len(face)]
                k += 1
    bits = (1 << local).sum(-1, keepdims=True) - (1 << local)
    behind = np.full(local.shape, -1)
    for number, face in enumerate(shape.faces):
        behind[(bits & ~sum(1 << c for c in face)) == 0] = number
    return np.take_along_axis(nodes[:, None], local, axis=-1), behind


# Below, one point at a time and in scalars: XLA turns small matrix products under `vmap` into slow batched ones.


def _terms(xi: list[Scalar]) -> list[Scalar]:
    """The terms 1, r, s, rs (or 1, r, s, t, rs, st, rt, rst) at one reference point."""
    one = jnp.ones_like(xi[0])
    if len(xi) == 2:
        r, s = xi
        return [one, r, s, r * s]
    r, s, t = xi
    return [one, r, s, t, r * s, s * t, r * t, r * s * t]


def _slopes(c: list[list[Scalar]], xi: list[Scalar]) -> list[list[Scalar]]:
    """Derivatives of the mapped point by each reference coordinate; `c[axis][term]` are the coefficients."""
    if len(xi) == 2:
        r, s = xi
        return [[a[1] + s * a[3] for a in c], [a[2] + r * a[3] for a in c]]
    r, s, t = xi
    return [
        [a[1] + s * a[4] + t * (a[6] + s * a[7]) for a in c],
        [a[2] + t * a[5] + r * (a[4] + t * a[7]) for a in c],
        [a[3] + r * a[6] + s * (a[5] + r * a[7]) for a in c],
    ]


def _cross(a: list[Scalar], b: list[Scalar]) -> list[Scalar]:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _solve(columns: list[list[Scalar]], right: list[Scalar]) -> list[Scalar]:
    """Solution of a 2 × 2 or 3 × 3 system by Cramer's rule; the entries are of order one."""
    if len(columns) == 2:
        a, b = columns
        normals = [[b[1], -b[0]], [-a[1], a[0]]]
    else:
        a, b, c = columns
        normals = [_cross(b, c), _cross(c, a), _cross(a, b)]
    determinant = sum_products(a, normals[0])
    safe = jnp.where(jnp.abs(determinant) < 1e-12, 1e-12, determinant)
    return [sum_products(normal, right) / safe for normal in normals]


def sum_products(a: Sequence[Float[Array, "*n"]], b: Sequence[Float[Array, "*n"]]) -> Float[Array, "*n"]:
    """Sum of the products of two rows of numbers."""
    total = a[0] * b[0]
    for one, other in zip(a[1:], b[1:], strict=True):
        total = total + one * other
    return total


def invert(coefficients: Float[Array, "dim terms"], target: Vector, steps: int) -> tuple[Vector, Flag]:
    """Reference point whose image is `target`: Newton from the centre, until it rests (True) or `steps` are done.

    Only one last step is differentiated: that gives the derivative of the inverse map, whatever their number.
    """

    def newton(at: Vector, c: Float[Array, "dim terms"], x: Vector) -> Vector:
        rows, xi = [list(row) for row in c], list(at)
        off = [x[axis] - sum_products(row, _terms(xi)) for axis, row in enumerate(rows)]
        return at + jnp.stack(_solve(_slopes(rows, xi), off))

    frozen = lax.stop_gradient((coefficients, target))
    enough = 1e-2  # Newton squares the error: one more step after a change this small, and the last one
    centre = jnp.full(target.shape, 0.5, target.dtype)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        at, _, count = state
        new = jnp.clip(newton(at, *frozen), -0.5, 1.5)
        return new, jnp.max(jnp.abs(new - at)), count + 1

    begin = (centre, jnp.ones((), target.dtype), jnp.int32(0))
    at, _, _ = lax.while_loop(lambda state: (state[1] > enough) & (state[2] < steps), step, begin)
    at = lax.stop_gradient(newton(at, *frozen))
    found = newton(at, coefficients, target)
    return found, jnp.max(jnp.abs(found - at)) < 1e-3


def corner_weights(matrix: Float[Array, "corners terms"], xi: Vector) -> list[Scalar]:
    """Shape functions at one reference point."""
    values = _terms(list(xi))
    return [sum_products(list(row), values) for row in matrix]

"""Recognising a lattice: nodes at the crossings of a few coordinates, listed in any order."""

import itertools
import math

import numpy as np
from jaxtyping import Float, Int

from .base import Interpolation
from .grid_rows import strides_of
from .sphere import Sphere
from .structured import RectilinearGrid, UniformGrid

TOLERANCE = 1e-6
"""Coordinates this close, in units of the axis' extent, are one: what a file with seven digits keeps."""


def find_lattice(
    points: Float[np.ndarray, "rows dim"],
    interpolation: Interpolation = "linear",
    sphere: Sphere | None = None,
) -> UniformGrid | RectilinearGrid | None:
    """The grid whose nodes are `points`, its rows in their order; None where they form no lattice."""
    rows, dim = points.shape
    exact = np.asarray(points, np.float64)
    found = [_levels(exact[:, axis]) for axis in range(dim)]
    shape = tuple(len(levels) for levels, _ in found)
    if rows == 0 or math.prod(shape) != rows:
        return None
    codes = np.stack([code for _, code in found], -1)
    flat = codes @ np.asarray(strides_of(shape))
    if np.bincount(flat, minlength=rows).max() > 1:
        return None
    order, falling, numbers = _numbering(codes, shape)
    axes = [levels[::-1] if down else levels for (levels, _), down in zip(found, falling, strict=True)]
    dtype = points.dtype
    if all(_even(levels) for levels, _ in found):
        origin = np.array([axis[0] for axis in axes], dtype)
        spacing = np.array([(a[-1] - a[0]) / (a.size - 1) if a.size > 1 else 1.0 for a in axes], dtype)
        return UniformGrid(
            origin, spacing, shape, interpolation=interpolation, order=order, rows=numbers, sphere=sphere
        )
    given = [axis.astype(dtype) for axis in axes]
    return RectilinearGrid(given, interpolation=interpolation, order=order, rows=numbers, sphere=sphere)


def _slack(values: Float[np.ndarray, " n"]) -> float:
    """How far two coordinates that are meant to be equal may lie apart."""
    return max(TOLERANCE * float(np.ptp(values)), 8 * float(np.finfo(np.float32).eps * np.abs(values).max()))


def _levels(values: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " levels"], Int[np.ndarray, " n"]]:
    """The distinct coordinates along one axis, rising, and which of them each point has."""
    by_size = np.argsort(values, kind="stable")
    ordered = values[by_size]
    new = np.diff(ordered, prepend=ordered[:1]) > _slack(values)
    code = np.empty(values.size, np.int64)
    code[by_size] = np.cumsum(new)
    return np.concatenate([ordered[:1], ordered[new]]), code


def _even(levels: Float[np.ndarray, " n"]) -> bool:
    """Whether the coordinates are evenly spaced, to the digits a file keeps."""
    even = np.linspace(levels[0], levels[-1], levels.size)
    return bool(np.all(np.abs(levels - even) <= 2 * _slack(levels)))


def _numbering(
    codes: Int[np.ndarray, "rows dim"], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[bool, ...], Int[np.ndarray, " rows"] | None]:
    """Order of the axes, which of them fall, and None; or the row of every node where no order fits."""
    rows, dim = codes.shape
    falling = tuple(bool(n > 1 and code == n - 1) for code, n in zip(codes[0], shape, strict=True))
    turned = np.where(falling, np.asarray(shape) - 1 - codes, codes)
    for order in itertools.permutations(range(dim)):
        if np.array_equal(turned @ np.asarray(strides_of(shape, order)), np.arange(rows)):
            return order, falling, None
    numbers = np.empty(rows, np.int64)
    numbers[codes @ np.asarray(strides_of(shape))] = np.arange(rows)
    return tuple(range(dim)), (False,) * dim, numbers

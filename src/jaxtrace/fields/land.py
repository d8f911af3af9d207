"""Land: cells that hold no flow, and the values that belong to them."""

import itertools
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .base import Flag, Scalar

LandValues = Literal["keep", "drop"]
"""Whether a value on land counts as it is, or is left out and the others count more."""


class Land(eqx.Module):
    """Which cells are land, and which rows of the data lie on it."""

    cells: Bool[Array, " cells"]
    rows: Bool[Array, " rows"]

    def __init__(
        self,
        mask: Bool[np.ndarray, "..."] | Bool[Array, "..."],
        shape: tuple[int, ...],
        centring: str,
        rows: Int[np.ndarray, " size"],
    ) -> None:
        """Read a `mask` of cells or of nodes; True is land. `rows` says which row of the data each value has.

        A node between cells is on land when all cells around it are; a cell is land when all its nodes are.
        """
        given = np.asarray(mask, bool)
        cell_shape = tuple(max(n - 1, 1) for n in shape)
        if given.shape == cell_shape:
            # The grid's outside counts as land.
            padded = np.pad(given, [(1, 1) if n > 1 else (0, 0) for n in shape], constant_values=True)
            cells, nodes = given, _all_corners(padded).reshape(shape)
        elif given.shape == shape and centring == "node":
            cells, nodes = _all_corners(given), given
        else:
            either = f" or of the nodes {shape}" if centring == "node" else ""
            raise ValueError(
                f"`mask` must have the shape of the cells {cell_shape}{either}; got {given.shape}."
            )
        values = nodes if centring == "node" else cells
        on_land = np.zeros(values.size, bool)
        on_land[rows] = values.reshape(-1)
        self.cells, self.rows = jnp.asarray(cells.reshape(-1)), jnp.asarray(on_land)


def cell_corners(nodes: np.ndarray, axes: int) -> list[np.ndarray]:
    """The nodes at each of the corners of every cell, first axis slowest; an axis of one node stays whole."""
    corners = []
    for corner in itertools.product((0, 1), repeat=axes):
        cut = tuple(
            slice(c, n - 1 + c) if n > 1 else slice(0, 1)
            for c, n in zip(corner, nodes.shape[:axes], strict=True)
        )
        corners.append(nodes[cut])
    return corners


def _all_corners(nodes: Bool[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Which cells have all their corners among the marked nodes."""
    return np.logical_and.reduce(cell_corners(nodes, nodes.ndim))


def drop_land(weights: list[Scalar], on_land: list[Flag]) -> list[Scalar]:
    """Weights ≥ 0 without those on land, scaled so that they sum to one again; all kept where nothing else is left."""
    wet = [jnp.where(dry, 0.0, weight) for weight, dry in zip(weights, on_land, strict=True)]
    total = sum(wet[1:], wet[0])
    # A point exactly on a land node gives weight to nothing else: the wet values around it share alike.
    shares = [jnp.where(dry, 0.0, 1.0).astype(weights[0].dtype) for dry in on_land]
    others = sum(shares[1:], shares[0])
    enough = total > jnp.finfo(total.dtype).tiny ** 0.5
    safe = jnp.where(enough, total, 1.0)
    scaled = [
        jnp.where(enough, part / safe, share / jnp.maximum(others, 1.0))
        for part, share in zip(wet, shares, strict=True)
    ]
    mixed = (others > 0) & (others < len(weights))
    return [jnp.where(mixed, new, old) for new, old in zip(scaled, weights, strict=True)]

"""Node data from cell data of a mesh, exact for linear fields."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from .mesh import Mesh

# How far from the middle of its cells a node may lie, in their standard deviations: beyond its own, and beyond the next ones
# too. Two even layers at a wall make 2, at an edge 2.8, at a corner 3.5. What is far off has cells almost in one plane, which
# give no slope across it: errors of their values would be multiplied by this number.
_FARTHEST, _FARTHEST_WIDER = 3.0, 6.0


def nodal_averages(
    mesh: Mesh,
    values: Float[np.ndarray, "*times cells channels"],
    method: Literal["linear", "average"] = "linear",
) -> Float[np.ndarray, "*times nodes channels"]:
    """Node data from cell data: the plane of least squares through the cells around each node, read at the node.

    With `method="average"` it is their mean, each cell counting alike: it never goes beyond the values of the cells, but a node
    at a wall takes the flow from half a cell away.

    Linear fields stay exact. A node whose own cells do not span a plane, such as one on a wall with a single layer of
    cells around it, takes the cells next to them too. Where these do not either (a mesh one cell thick), the field is
    taken as constant in that direction.
    """
    if values.shape[-2] != mesh.cell_count:
        raise ValueError(
            f"`values` must have {mesh.cell_count} cells in the last axis but one; got {values.shape}."
        )
    from scipy import sparse

    cell = np.concatenate(
        [np.repeat(np.flatnonzero(mesh.kinds == k), len(s.corners)) for k, s in enumerate(mesh.shapes)]
    )
    node = np.concatenate([nodes.reshape(-1) for nodes in mesh.cells.values()])
    shape = (len(mesh.points), mesh.cell_count)
    around = sparse.csr_array((np.ones(len(node)), (node, cell)), shape)
    if method == "average":
        return _weighted_values(sparse.diags_array(1 / np.maximum(around.sum(1), 1)) @ around, values)
    weights, sound = _plane_weights(around, mesh.points, mesh.cell_centres, _FARTHEST)
    far = np.flatnonzero(~sound)
    if far.size:
        wider = around[far] @ (around.T @ around)
        wider, _ = _plane_weights(wider, mesh.points[far], mesh.cell_centres, _FARTHEST_WIDER)
        # One matrix: the rows of sound nodes, and wider ones in place of the others.
        kept = sparse.diags_array(sound.astype(float))
        back = sparse.csr_array((np.ones(far.size), (far, np.arange(far.size))), (shape[0], far.size))
        weights = kept @ weights + back @ wider
    return _weighted_values(weights, values)


def _weighted_values(weights: Any, values: Float[np.ndarray, "*times cells channels"]) -> np.ndarray:
    """Sums of the cells' values with the weights of each node."""
    averaged = np.stack([weights @ one for one in values.reshape(-1, *values.shape[-2:])])
    return averaged.reshape(*values.shape[:-2], weights.shape[0], values.shape[-1]).astype(values.dtype)


def _plane_weights(
    around: Any,
    points: Float[np.ndarray, "nodes dim"],
    centres: Float[np.ndarray, "cells dim"],
    farthest: float,
) -> tuple[Any, Bool[np.ndarray, " nodes"]]:
    """What each cell counts at each node, as a sparse matrix like `around`, and which nodes are near enough to their cells.

    Directions in which a node is farther from them than `farthest` allows are left out: the plane is level there.
    """
    from scipy import sparse

    count = np.diff(around.indptr)
    node, cell = np.repeat(np.arange(len(points)), count), around.indices
    share = 1.0 / count[node]

    def mean(terms: np.ndarray) -> np.ndarray:
        return np.bincount(node, share * terms, minlength=len(points))

    middle = np.stack([mean(column) for column in centres[cell].T], -1)
    reach = centres[cell] - middle[node]
    spread = np.stack([np.stack([mean(a * b) for a in reach.T], -1) for b in reach.T], -1)
    variance, axes = np.linalg.eigh(spread)
    across = np.einsum("nda,nd->na", axes, points - middle)
    near = np.abs(across) <= farthest * np.sqrt(np.maximum(variance, 0))
    slope = np.where(near, across, 0) / np.where(near & (variance > 0), variance, 1)
    lever = np.einsum("nda,na->nd", axes, slope)
    weight = share * (1 + np.einsum("ed,ed->e", reach, lever[node]))
    return sparse.csr_array((weight, cell, around.indptr), around.shape), near.all(-1)

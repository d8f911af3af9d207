"""Node data from cell data of a mesh, exact for linear fields."""

import numpy as np
from jaxtyping import Float

from .mesh_building import Mesh


def nodal_averages(
    mesh: Mesh, values: Float[np.ndarray, "*times cells channels"]
) -> Float[np.ndarray, "*times nodes channels"]:
    """Node data from cell data: the plane of least squares through the cells around each node, read at the node.

    Linear fields stay exact; a node whose cells do not span a plane (a corner with one cell) gets their mean.
    """
    if values.shape[-2] != mesh.cell_count:
        raise ValueError(
            f"`values` must have {mesh.cell_count} cells in the last axis but one; got {values.shape}."
        )
    cell = np.concatenate(
        [np.repeat(np.flatnonzero(mesh.kinds == k), len(s.corners)) for k, s in enumerate(mesh.shapes)]
    )
    node = np.concatenate([nodes.reshape(-1) for nodes in mesh.cells.values()])
    count = np.maximum(np.bincount(node, minlength=len(mesh.points)), 1)

    def total(terms: np.ndarray) -> np.ndarray:
        out = np.zeros((len(mesh.points), *terms.shape[1:]))
        np.add.at(out, node, terms)
        return out

    reach = mesh.cell_centres[cell] - mesh.points[node]
    size = np.sqrt(total((reach**2).sum(-1)) / count)[node]
    basis = np.c_[np.ones(len(reach)), reach / size[:, None]]
    normal = total(basis[:, :, None] * basis[:, None]) / count[:, None, None]
    sound = np.linalg.eigvalsh(normal)[:, 0] > 1e-6
    normal[~sound] = np.eye(basis.shape[1])
    plane = np.linalg.solve(normal, np.eye(basis.shape[1])[:, :1])[..., 0]
    weight = np.where(sound[node], np.einsum("eb,eb->e", basis, plane[node]), 1.0) / count[node]
    flat = values.reshape(-1, *values.shape[-2:])
    averaged = np.stack([total(weight[:, None] * one[cell]) for one in flat])
    return averaged.reshape(*values.shape[:-2], len(mesh.points), values.shape[-1]).astype(values.dtype)

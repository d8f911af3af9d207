"""Cells of VTK meshes: mapped to the kinds a mesh may hold, or cut into them if the cut is exact for linear fields."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ..geometry import Cells
from .data import VtkData

# VTK's number of each cell type: the kind of cell here, and VTK's corners in its order.
_KINDS: dict[int, tuple[str, tuple[int, ...]]] = {
    5: ("triangle", (0, 1, 2)),
    8: ("quad", (0, 1, 3, 2)),  # pixel
    9: ("quad", (0, 1, 2, 3)),
    10: ("tetra", (0, 1, 2, 3)),
    11: ("hexahedron", (0, 1, 3, 2, 4, 5, 7, 6)),  # voxel
    12: ("hexahedron", (0, 1, 2, 3, 4, 5, 6, 7)),
    13: ("wedge", (0, 1, 2, 3, 4, 5)),
}
_STRIP, _POLYGON, _PYRAMID = 6, 7, 14
_KNOWN = (*_KINDS, _STRIP, _POLYGON, _PYRAMID)
_POINTS_AND_LINES = (0, 1, 2, 3, 4)
_SURFACES = (5, 6, 7, 8, 9)


def sort_cells(found: VtkData, kept: Bool[np.ndarray, " cells"] | None) -> Cells:
    """The cells of an unstructured grid or of polygons by kind; lower-dimensional ones beside volumes are left out."""
    if not len(found.points):
        raise ValueError("the file holds no points")
    if not len(found.types):
        raise ValueError("the file holds no cells")
    points = found.points.astype(float)
    types, offsets, corners = found.types, found.offsets, found.corners
    if corners.size and (corners.min() < 0 or corners.max() >= len(points)):
        raise ValueError(f"cells name nodes up to {corners.max()}, but there are {len(points)} points")
    use = ~np.isin(types, _POINTS_AND_LINES)
    if kept is not None:
        use &= kept
    if np.any(use & ~np.isin(types, _SURFACES)):
        use &= ~np.isin(types, _SURFACES)
    _refuse_unknown(types[use])
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for kind in np.unique(types[use]).tolist():
        rows = np.flatnonzero(use & (types == kind))
        sizes = offsets[rows + 1] - offsets[rows]
        for size in np.unique(sizes).tolist():
            chosen = rows[sizes == size]
            nodes = corners[offsets[chosen][:, None] + np.arange(size)]
            name, pieces = _pieces(kind, nodes, points)
            owner = np.repeat(chosen, pieces.shape[1])
            pieces = pieces.reshape(-1, pieces.shape[-1])
            if kind == _POLYGON and size > 4:  # corners on one line make triangles without area
                solid = _areas(points[pieces]) > 1e-9
                pieces, owner = pieces[solid], owner[solid]
            parts.setdefault(name, []).append((pieces, owner))
    if not parts:
        raise ValueError("the file holds no cells with area or volume")
    cells = {name: np.concatenate([nodes for nodes, _ in found]) for name, found in parts.items()}
    rows = np.concatenate([rows for found in parts.values() for _, rows in found])
    return Cells(points, cells, None, rows)


def _refuse_unknown(types: Int[np.ndarray, " n"] | np.ndarray) -> None:
    unknown, counts = np.unique(types[~np.isin(types, _KNOWN)], return_counts=True)
    if not unknown.size:
        return
    from vtkmodules import vtkCommonDataModel as model

    naming = getattr(model, "vtkCellTypeUtilities", None) or model.vtkCellTypes  # the former since VTK 9.6
    name = naming.GetClassNameFromTypeId(int(unknown[0]))
    raise ValueError(
        f"{counts[0]} cells are of type {name} ({unknown[0]}), which is not read. Known are triangle, quad, pixel, polygon, "
        "tetra, voxel, hexahedron, wedge and pyramid; convert the others, such as with ParaView's Tetrahedralize"
    )


def _pieces(
    kind: int, nodes: Int[np.ndarray, "n corners"], points: Float[np.ndarray, "points dim"]
) -> tuple[str, Int[np.ndarray, "n pieces corners2"]]:
    """The kind of cell that cells of one VTK type become, and their corners: one cell, or several pieces."""
    count = nodes.shape[1]
    if kind in _KINDS:
        name, order = _KINDS[kind]
        if count != len(order):
            raise ValueError(f"a {name} has {count} corners instead of {len(order)}")
        return name, nodes[:, None, list(order)]
    if kind == _PYRAMID:
        # Cut through the lowest-numbered corner of the base, as the neighbour behind the base is cut.
        turned = np.take_along_axis(nodes[:, :4], (nodes[:, :4].argmin(1)[:, None] + np.arange(4)) % 4, 1)
        tip = nodes[:, 4]
        return "tetra", np.stack([np.c_[turned[:, [0, 1, 2]], tip], np.c_[turned[:, [0, 2, 3]], tip]], 1)
    if kind == _STRIP:
        return "triangle", np.stack([nodes[:, k : k + 3] for k in range(count - 2)], 1)
    if count <= 4:
        return ("triangle" if count == 3 else "quad"), nodes[:, None]
    _refuse_hollow(points[nodes])
    # The fan starts at the corner that leaves the fewest flat triangles.
    fans = np.stack([_fan(np.roll(nodes, -k, 1)) for k in range(count)], 1)
    smallest = _areas(points[fans]).min(-1)
    return "triangle", fans[np.arange(len(nodes)), smallest.argmax(1)]


def _fan(nodes: Int[np.ndarray, "n corners"]) -> Int[np.ndarray, "n pieces 3"]:
    return np.stack([nodes[:, [0, k, k + 1]] for k in range(1, nodes.shape[1] - 1)], 1)


def _areas(corners: Float[np.ndarray, "*n 3 dim"]) -> Float[np.ndarray, "*n"]:
    """Areas of triangles in units of their longest edge."""
    a, b = corners[..., 1, :] - corners[..., 0, :], corners[..., 2, :] - corners[..., 0, :]
    longest = np.maximum.reduce([(edge**2).sum(-1) for edge in (a, b, b - a)])
    return np.linalg.norm(np.cross(a, b), axis=-1) / np.maximum(longest, np.finfo(float).tiny)


def _refuse_hollow(corners: Float[np.ndarray, "n corners dim"]) -> None:
    """Refuse polygons that are not convex: a fan of triangles would cover ground outside of them."""
    ahead = np.roll(corners, -1, 1) - corners
    turns = np.cross(ahead, np.roll(ahead, -1, 1))
    normal = turns.sum(1, keepdims=True)
    if np.any((turns * normal).sum(-1) < -1e-9 * (normal**2).sum(-1)):
        raise ValueError(
            f"polygons of {corners.shape[1]} corners are not convex; triangulate them first, such as with ParaView's "
            "Triangulate"
        )


def merge_points(mesh: Cells) -> Cells:
    """A mesh put together from pieces, nodes at exactly the same place made one; the first one's value counts."""
    rows = np.ascontiguousarray(mesh.points + 0.0).view([("", float)] * mesh.points.shape[1])[:, 0]
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return mesh
    # Numbered by first appearance, so that neighbours in the file stay neighbours in memory.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    number = rank[number.reshape(-1)]
    first = first[order]
    cells = {name: number[nodes] for name, nodes in mesh.cells.items()}
    return Cells(mesh.points[first], cells, first, mesh.cell_rows, number)

"""Meshes as files describe them: points, cells of several kinds and boundary patches, checked and connected on the host."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from .bins import Bins, Simplices, build_bins, link_hanging_faces
from .shapes import SHAPES, Shape, corner_determinants, divide

PatchRule = Callable[[Float[np.ndarray, "faces dim"]], np.ndarray]
"""Chooses boundary faces by their middles: `lambda middle: middle[:, 0] < 1e-6`."""


class BoundaryFaces(NamedTuple):
    """Faces with no cell behind them; `nodes` is padded with -1, `patch` counts `Mesh.patch_names`."""

    nodes: Int[np.ndarray, "faces width"]
    cell: Int[np.ndarray, " faces"]
    face: Int[np.ndarray, " faces"]
    patch: Int[np.ndarray, " faces"]


class Topology(NamedTuple):
    """The mesh cut into simplices: what lies behind each of their faces, and which cell and face they belong to."""

    nodes: Int[np.ndarray, "simplices dim1"]
    cell: Int[np.ndarray, " simplices"]
    face: Int[np.ndarray, "simplices dim1"]
    links: Int[np.ndarray, "simplices dim1"]
    simplices: Simplices
    bins: Bins


class Mesh:
    """Points and cells on the host: `cells` maps "triangle", "quad", "tetra", "hexahedron", "wedge" to node numbers.

    Cells are numbered in the order given; nodes of a cell follow VTK. Cells of reversed orientation are turned round and
    counted in `flipped`. `patches` names parts of the boundary, by node numbers of faces or by a rule for their middles;
    faces in none of them belong to the last patch, "boundary".

    >>> mesh = Mesh([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], {"triangle": [[0, 2, 1]]})
    >>> mesh.flipped, mesh.patch_names
    (1, ('boundary',))
    """

    def __init__(
        self,
        points: ArrayLike,
        cells: Mapping[str, ArrayLike],
        patches: Mapping[str, ArrayLike | PatchRule] | None = None,
    ) -> None:
        self.points = _checked_points(points)
        if not isinstance(cells, Mapping):
            like = (self.dim, (0, *getattr(cells, "shape", ()))[-1])
            name = next((s.name for s in SHAPES.values() if (s.dim, len(s.corners)) == like), "triangle")
            raise TypeError(
                f"`cells` must map types of cells to their corners; got {type(cells).__name__}. Write `{{{name!r}: corners}}`."
            )
        self.cells: dict[str, Int[np.ndarray, "n corners"]] = {}
        self.flipped = 0
        for name, given in cells.items():
            nodes = _checked_nodes(name, given, self.points)
            if len(nodes):
                self.cells[name], flipped = _orient(SHAPES[name], nodes, self.points)
                self.flipped += flipped
        if not self.cells:
            raise ValueError(f"`cells` must hold at least one cell; got {dict(cells)!r}.")
        self._given_patches = dict(patches or {})
        self.patch_names = (*self._given_patches, "boundary")
        if "boundary" in self._given_patches:
            raise ValueError(
                '`patches` must not use the name "boundary": it stands for all faces in no patch.'
            )
        _refuse_duplicates(self)

    @property
    def dim(self) -> int:
        """2 for triangles and quads, 3 for volume cells."""
        return self.points.shape[1]

    @property
    def shapes(self) -> list[Shape]:
        """Kinds of cells, in order of their numbers."""
        return [SHAPES[name] for name in self.cells]

    @property
    def cell_count(self) -> int:
        return sum(map(len, self.cells.values()))

    @cached_property
    def nodes(self) -> Int[np.ndarray, "cells corners"]:
        """Nodes of every cell, padded with the cell's first node."""
        width = max(nodes.shape[1] for nodes in self.cells.values())
        padded = [np.c_[n, np.repeat(n[:, :1], width - n.shape[1], 1)] for n in self.cells.values()]
        return np.concatenate(padded)

    @cached_property
    def kinds(self) -> Int[np.ndarray, " cells"]:
        """Index into `shapes` of every cell."""
        return np.repeat(np.arange(len(self.cells)), [len(n) for n in self.cells.values()])

    @cached_property
    def cell_centres(self) -> Float[np.ndarray, "cells dim"]:
        """Mean of the corners of every cell."""
        return np.concatenate([self.points[nodes].mean(1) for nodes in self.cells.values()])

    @cached_property
    def topology(self) -> Topology:
        """Simplices, and what lies behind each of their faces: a simplex, or -1 at the boundary."""
        parts, first = [], 0
        for name, nodes in self.cells.items():
            pieces, faces = divide(SHAPES[name], nodes)
            owner = np.repeat(first + np.arange(len(nodes)), pieces.shape[1])
            parts.append((pieces.reshape(-1, self.dim + 1), owner, faces.reshape(-1, self.dim + 1)))
            first += len(nodes)
        nodes, cell, face = (np.concatenate(column) for column in zip(*parts, strict=True))
        links = _match_faces(nodes, cell, len(self.points))
        simplices = Simplices.of(self.points[nodes])
        bins = build_bins(simplices)
        return Topology(nodes, cell, face, link_hanging_faces(simplices, bins, links), simplices, bins)

    @cached_property
    def neighbours(self) -> Int[np.ndarray, "cells faces"]:
        """What lies behind each face of each cell: a cell, -1 - patch at the boundary, the cell itself in padding."""
        top = self.topology
        width = max(len(shape.faces) for shape in self.shapes)
        behind = np.repeat(np.arange(self.cell_count)[:, None], width, 1)
        for walls in (True, False):  # a face that is part wall, part hanging counts as open
            simplex, side = np.nonzero((top.face >= 0) & ((top.links < 0) == walls))
            link = top.links[simplex, side]
            behind[top.cell[simplex], top.face[simplex, side]] = -1 if walls else top.cell[link]
        faces = self._faces(*np.nonzero(behind < 0))
        behind[faces.cell, faces.face] = -1 - faces.patch
        return behind

    @cached_property
    def simplex_links(self) -> Int[np.ndarray, "simplices dim1"]:
        """What lies behind each face of each simplex: a simplex, or -1 - patch at the boundary."""
        top, links = self.topology, self.topology.links.copy()
        simplex, side = np.nonzero(links < 0)
        patch = self.neighbours[top.cell[simplex], top.face[simplex, side]]
        links[simplex, side] = np.where(patch < 0, patch, -len(self.patch_names))
        return links

    def boundary_faces(self) -> BoundaryFaces:
        """All faces without a cell behind them, with the patch each belongs to."""
        return self._faces(*np.nonzero(self.neighbours < 0))

    def _faces(self, cell: Int[np.ndarray, " n"], face: Int[np.ndarray, " n"]) -> BoundaryFaces:
        width = max(len(f) for shape in self.shapes for f in shape.faces)
        table = np.full((len(self.shapes), max(len(s.faces) for s in self.shapes), width), -1)
        for k, shape in enumerate(self.shapes):
            for j, corners in enumerate(shape.faces):
                table[k, j, : len(corners)] = corners
        local = table[self.kinds[cell], face]
        nodes = np.where(local < 0, -1, np.take_along_axis(self.nodes[cell], np.maximum(local, 0), 1))
        return BoundaryFaces(nodes, cell, face, self._patch_numbers(nodes))

    def _patch_numbers(self, nodes: Int[np.ndarray, "faces width"]) -> Int[np.ndarray, " faces"]:
        used = (nodes >= 0)[..., None]
        middle = (self.points[nodes] * used).sum(1) / used.sum(1)
        patch = np.full(len(nodes), len(self.patch_names) - 1)
        numbers = {frozenset(row) - {-1}: k for k, row in enumerate(nodes.tolist())}
        for number, (name, given) in enumerate(self._given_patches.items()):
            if callable(given):
                chosen = np.flatnonzero(np.asarray(given(middle), bool))
            else:
                wanted = [frozenset(row) - {-1} for row in np.atleast_2d(np.asarray(given, int)).tolist()]
                if missing := [sorted(face) for face in wanted if face not in numbers]:
                    raise ValueError(
                        f"`patches[{name!r}]` must hold faces of the boundary; {missing[0]} is not one "
                        f"({len(missing)} of {len(wanted)}). Give the corner nodes of faces with no cell behind them."
                    )
                chosen = np.asarray([numbers[face] for face in wanted], int)
            patch[chosen] = number
        return patch


def _checked_points(points: ArrayLike) -> Float[np.ndarray, "points dim"]:
    found = np.asarray(points, np.float64)
    if found.ndim != 2 or found.shape[1] not in (2, 3):
        raise ValueError(f"`points` must have shape (points, 2) or (points, 3); got {found.shape}.")
    if not np.isfinite(found).all():
        bad = int(np.flatnonzero(~np.isfinite(found).all(1))[0])
        raise ValueError(
            f"`points` must be finite; point {bad} is {found[bad].tolist()}. Remove it and its cells."
        )
    return found


def _checked_nodes(
    name: str, given: ArrayLike, points: Float[np.ndarray, "points dim"]
) -> Int[np.ndarray, "n corners"]:
    if name not in SHAPES:
        remedy = "; cut each pyramid 0 1 2 3 4 into tetra 0 1 2 4 and 0 2 3 4" if name == "pyramid" else ""
        raise ValueError(f"`cells` may hold {', '.join(SHAPES)}; got {name!r}{remedy}.")
    shape, nodes = SHAPES[name], np.asarray(given)
    if nodes.size == 0:
        return np.zeros((0, len(shape.corners)), int)
    if shape.dim != points.shape[1]:
        remedy = "drop the constant coordinate of the points" if shape.dim == 2 else "give three coordinates"
        raise ValueError(
            f"`cells[{name!r}]` are cells of {shape.dim} dimensions but `points` have {points.shape[1]}: {remedy}, "
            "or leave these cells out (boundary faces go to `patches`)."
        )
    if nodes.ndim != 2 or nodes.shape[1] != len(shape.corners) or not np.issubdtype(nodes.dtype, np.integer):
        raise ValueError(
            f"`cells[{name!r}]` must be whole numbers of shape (cells, {len(shape.corners)}); "
            f"got {nodes.dtype} of shape {nodes.shape}."
        )
    outside = ((nodes < 0) | (nodes >= len(points))).any(1)
    if outside.any():
        k = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"`cells[{name!r}]` must name points 0 to {len(points) - 1}; cell {k} has {nodes[k].tolist()}. "
            "Subtract 1 if the file counts from 1."
        )
    return nodes.astype(int)


def _orient(
    shape: Shape, nodes: Int[np.ndarray, "n corners"], points: Float[np.ndarray, "points dim"]
) -> tuple[Int[np.ndarray, "n corners"], int]:
    """Cells turned to positive orientation and how many were turned; flat and tangled ones are refused by number."""
    corners = points[nodes]
    size = np.linalg.norm(corners - corners[:, :1], axis=-1).max(1)
    volume = (
        corner_determinants(shape, corners) / np.maximum(size, np.finfo(float).tiny)[:, None] ** shape.dim
    )
    mean = volume.mean(1)
    _refuse(
        shape, nodes, np.abs(volume).max(1) < 1e-13, "without volume", "Remove them or merge their nodes."
    )
    tangled = (volume.min(1) < -1e-9) & (volume.max(1) > 1e-9)
    remedy = (
        f"Number the corners as VTK's {shape.name} (not as a pixel or voxel), or cut the cell into simplices."
    )
    _refuse(shape, nodes, tangled, "twisted or not convex", remedy)
    turned = mean < 0
    return np.where(turned[:, None], nodes[:, list(shape.mirror)], nodes), int(turned.sum())


def _refuse(
    shape: Shape, nodes: Int[np.ndarray, "n corners"], bad: np.ndarray, what: str, remedy: str
) -> None:
    if bad.any():
        k = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"`cells[{shape.name!r}]` must be sound; {int(bad.sum())} are {what}, the first is cell {k} "
            f"with nodes {nodes[k].tolist()}. {remedy}"
        )


def _refuse_duplicates(mesh: Mesh) -> None:
    for name, nodes in mesh.cells.items():
        ordered = np.sort(nodes, 1)
        order = np.lexsort(ordered.T)
        same = (ordered[order][1:] == ordered[order][:-1]).all(1)
        if same.any():
            k = int(np.flatnonzero(same)[0])
            one, other = sorted((int(order[k]), int(order[k + 1])))
            raise ValueError(
                f"`cells[{name!r}]` must differ; {int(same.sum())} are duplicates, the first pair is cells {one} and "
                f"{other}. Remove one of each pair."
            )


def _match_faces(
    nodes: Int[np.ndarray, "simplices dim1"], cell: Int[np.ndarray, " simplices"], count: int
) -> Int[np.ndarray, "simplices dim1"]:
    """Simplex that shares each face, -1 where none does."""
    width = nodes.shape[1]
    faces = np.stack([np.delete(nodes, j, 1) for j in range(width)], 1).reshape(-1, width - 1)
    faces.sort(1)
    if count ** (width - 1) < 2**63:
        key = faces[:, 0]
        for column in faces.T[1:]:
            key = key * count + column
        order = np.argsort(key, kind="stable")
    else:
        order = np.lexsort(faces.T)
    same = (faces[order][1:] == faces[order][:-1]).all(1)
    if (thrice := np.flatnonzero(same[1:] & same[:-1])).size:
        k = int(thrice[0])
        raise ValueError(
            f"`cells` must not overlap; cells {sorted({int(c) for c in cell[order[k : k + 3] // width]})} share the face "
            f"with nodes {faces[order[k]].tolist()}. Remove all but two of them."
        )
    links = np.full(len(faces), -1)
    one, other = order[:-1][same], order[1:][same]
    links[one], links[other] = other // width, one // width
    return links.reshape(-1, width)

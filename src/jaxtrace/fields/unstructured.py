"""Unstructured grids: the cell around a point by a walk from its last cell, and the weights of that cell's nodes."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int32, Shaped
from numpy.typing import ArrayLike

from ..settings import DOUBLE
from .base import AbstractGrid, Flag, Index, Interpolation, Scalar, Stencil, Vector, check_choice
from .grid_rows import Centring
from .isolation import isolate
from .meshes.bins import Simplices, clear_space
from .meshes.mesh import Mesh as Mesh
from .meshes.search import SimplexSearch, near
from .meshes.shapes import corner_weights, invert, shape_matrix
from .sphere import Sphere
from .weights import take


class UnstructuredGrid(AbstractGrid):
    """Geometry of a mesh on the device; the hint is the number of the simplex that held the point last.

    Cells other than triangles and tetrahedra are cut into simplices for the search only: values are interpolated with
    the shape functions of the whole cell. `neighbours` holds what lies behind each face of each cell, `search.links` the
    same for each simplex (`cell_of` maps simplices to cells): a number, or -1 - patch at the boundary.

    >>> mesh = Mesh([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], {"quad": [[0, 1, 2, 3]]})
    >>> grid = UnstructuredGrid(mesh)
    >>> found = grid.stencil(jnp.array([0.5, 0.5]), grid.start(jnp.array([0.5, 0.5])))
    >>> found.weight.tolist(), bool(found.inside)
    ([0.25, 0.25, 0.25, 0.25], True)
    """

    search: SimplexSearch
    nodes: Int32[Array, "cells corners"]
    neighbours: Int32[Array, "cells faces"]
    owner: Int32[Array, " simplices"] | None
    maps: Float[Array, "cells coefficients"] | None
    kinds: Int32[Array, " cells"] | None
    weights: Float[Array, "kinds corners terms"]
    sites: Float[Array, "size dim"]
    patch_names: tuple[str, ...] = eqx.field(static=True)
    interpolation: Interpolation = eqx.field(static=True)
    centring: Centring = eqx.field(static=True)
    newton_steps: int = eqx.field(static=True)

    def __init__(
        self,
        mesh: Mesh,
        interpolation: Interpolation | None = None,
        centring: Centring = "node",
        *,
        dtype: DTypeLike | None = None,
        max_walk: int = 50,
        newton_steps: int = 12,
        sphere: Sphere | None = None,
    ) -> None:
        self.sphere = sphere
        check_choice("centring", centring, ("node", "cell"))
        chosen = interpolation or ("linear" if centring == "node" else "nearest")
        check_choice("interpolation", chosen, ("nearest", "linear"))
        if centring == "cell" and chosen == "linear":
            raise ValueError(
                '`interpolation` of cell data on a mesh must be "nearest"; got "linear". For linear, turn the data into '
                'node data with `nodal_averages(mesh, data)` and pass `centring="node"`.'
            )
        kind = jnp.zeros((), jnp.result_type(float) if dtype is None else dtype).dtype
        top = mesh.topology
        simplices = _rounded_simplices(mesh, kind)
        clear = clear_space(top.simplices, top.bins, top.links < 0)
        self.search = SimplexSearch(simplices, mesh.simplex_links, clear, top.bins, kind, max_walk)
        self.nodes = jnp.asarray(mesh.nodes, jnp.int32)
        self.neighbours = jnp.asarray(mesh.neighbours, jnp.int32)
        simple = all(shape.is_simplex for shape in mesh.shapes)
        self.owner = None if simple else jnp.asarray(top.cell, jnp.int32)
        self.kinds = jnp.asarray(mesh.kinds, jnp.int32) if len(mesh.shapes) > 1 else None
        matrices = np.stack([shape_matrix(shape, mesh.nodes.shape[1]) for shape in mesh.shapes])
        self.weights = jnp.asarray(matrices, kind)
        self.maps = None if simple else jnp.asarray(_maps(mesh, matrices, kind), kind)
        self.sites = jnp.asarray(mesh.points if centring == "node" else mesh.cell_centres, kind)
        self.patch_names = mesh.patch_names
        self.interpolation, self.centring = chosen, centring
        self.newton_steps = newton_steps

    @property
    def dim(self) -> int:
        return self.sites.shape[1]

    @property
    def size(self) -> int:
        return self.sites.shape[0]

    @property
    def bounds(self) -> Float[Array, "2 dim"]:
        return self.search.box

    @property
    def positions(self) -> Float[Array, "size dim"]:
        return self.sites

    def start(self, x: Vector) -> Index:
        """The simplex at the middle of the bin around the point."""
        return self.search.start(x)

    def stencil(self, x: Vector, hint: Index) -> Stencil:
        """Rows and weights for one point: the search from `hint`, then the weights in the cell found."""
        simplex, inside, weights = self.search.find(x, hint)
        cell = self.cell_of(simplex)
        if self.centring == "cell":
            return Stencil((cell,), (jnp.ones_like(weights[0]),), inside, simplex)
        # Apart: XLA would read the numbers again for each column of the values.
        nodes = isolate(self.search.always, lambda cell: take(self.nodes, cell), cell)
        if self.maps is not None:
            weights, holds = self._cell_weights(cell, x)
            inside = inside | holds  # a warped wall may bulge beyond the triangles the search knows
            weights = [jnp.where(inside, w, c) for w, c in zip(weights, near(weights), strict=True)]
        if self.interpolation == "nearest":
            best = jnp.argmax(jnp.stack(weights))
            return Stencil((nodes[best],), (jnp.ones_like(weights[0]),), inside, simplex)
        return Stencil(tuple(nodes), tuple(weights), inside, simplex, cell)

    @property
    def packable(self) -> bool:
        return self.centring == "node" and self.interpolation == "linear"

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "cells _"]:
        """For each cell the values of its corners."""
        return jnp.concatenate([take(values, corner) for corner in self.nodes.T], axis=1)

    def cell_of(self, simplex: Index) -> Index:
        """The cell a simplex was cut from; the same number where all cells are simplices."""
        return simplex if self.owner is None else take(self.owner, simplex)

    def _cell_weights(self, cell: Index, x: Vector) -> tuple[list[Scalar], Flag]:
        """Shape functions of the whole cell, and whether it holds the point."""
        assert self.maps is not None
        row, d = take(self.maps, cell), self.dim
        xi, rests = invert(row[d + 1 :].reshape(d, -1), (x - row[:d]) * row[d], self.newton_steps)
        matrix = self.weights[0] if self.kinds is None else take(self.weights, take(self.kinds, cell))
        weights = corner_weights(matrix, xi)
        rounding = 8 * jnp.finfo(row.dtype).eps * (1 + jnp.max(jnp.abs(x)) * row[d])
        return weights, rests & (jnp.min(jnp.stack(weights)) >= -rounding)


def delaunay_grid(
    positions: ArrayLike,
    interpolation: Interpolation = "linear",
    *,
    max_edge: float | None = None,
    dtype: DTypeLike | None = None,
    sphere: Sphere | None = None,
) -> UnstructuredGrid:
    """Grid of triangles or tetrahedra between scattered nodes; `max_edge` leaves out cells with longer edges.

    Without `max_edge` the grid fills the convex hull of the nodes, holes and bays included.
    """
    from scipy.spatial import Delaunay, QhullError

    points = np.asarray(positions, np.float64)
    remedy = "Drop the coordinate that does not vary, or pass a structured grid."
    if points.ndim != 2 or points.shape[1] not in (2, 3) or len(points) <= points.shape[1]:
        raise ValueError(
            f"`positions` must have shape (nodes, 2) or (nodes, 3) with more nodes than coordinates; got {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError(
            "`positions` must be finite; got NaN or infinity. Remove those nodes and their data."
        )
    centred = points - points.mean(0)
    extent = np.linalg.svd(centred, compute_uv=False)
    if extent[-1] <= 1e-7 * extent[0]:
        raise ValueError(
            f"`positions` must span {points.shape[1]} dimensions; they lie in a plane or on a line (extents "
            f"{(extent / np.sqrt(len(points))).tolist()}). {remedy}"
        )
    try:
        nodes = Delaunay(centred / np.abs(centred).max()).simplices
    except QhullError as error:
        raise ValueError(f"`positions` could not be triangulated. {remedy} Qhull says: {error}") from error
    corners = points[nodes]
    edges = np.linalg.norm(corners[:, :, None] - corners[:, None], axis=-1).max((1, 2))
    volume = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
    keep = volume > 1e-7 * edges ** points.shape[1]  # flat cells between nodes of a lattice
    if max_edge is not None:
        keep &= edges <= max_edge
        if not keep.any():
            raise ValueError(
                f"`max_edge` must leave some cells; got {max_edge}, the shortest is {edges.min():.3g}."
            )
    shape = "triangle" if points.shape[1] == 2 else "tetra"
    mesh = Mesh(points, {shape: nodes[keep].astype(int)})
    return UnstructuredGrid(mesh, interpolation, dtype=dtype, sphere=sphere)


def _rounded_simplices(mesh: Mesh, dtype: np.dtype) -> Simplices:
    """The simplices with their corners as the device stores them; refused where rounding crushes them."""
    exact = mesh.topology.simplices.corners
    corners = exact.astype(dtype).astype(np.float64)
    before, after = (np.linalg.det(c[:, 1:] - c[:, :1]) for c in (exact, corners))
    crushed = after < 0.1 * before
    if crushed.any():
        cell = int(mesh.topology.cell[np.flatnonzero(crushed)[0]])
        raise ValueError(
            f"`mesh` must be resolved by {np.dtype(dtype).name}; {int(crushed.sum())} pieces of cells collapse, the first "
            f"of cell {cell} at {exact[np.flatnonzero(crushed)[0], 0].tolist()}. Move the origin into the mesh "
            f"(`origin=` where files are read), or {DOUBLE}."
        )
    return Simplices.of(corners)


def _maps(
    mesh: Mesh, matrices: Float[np.ndarray, "kinds corners terms"], dtype: np.dtype
) -> Float[np.ndarray, "cells coefficients"]:
    """For each cell: origin, 1 / size, and the coefficients of its map from the reference cell in units of its size."""
    points = mesh.points.astype(dtype).astype(np.float64)
    origin = mesh.cell_centres.astype(dtype).astype(np.float64)
    corners = points[mesh.nodes] - origin[:, None]
    scale = 1 / np.abs(corners).max((1, 2))
    coefficients = np.einsum("ckt,ckd->cdt", matrices[mesh.kinds], corners * scale[:, None, None])
    return np.c_[origin, scale, coefficients.reshape(len(origin), -1)]

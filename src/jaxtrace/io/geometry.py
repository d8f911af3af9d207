"""What files say about places, before it becomes a grid: lattices, curved lattices and cells, in two or three dimensions."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..fields.base import AbstractGrid
from ..fields.curvilinear import CurvilinearGrid
from ..fields.lattice import find_lattice
from ..fields.meshes.averages import nodal_averages
from ..fields.meshes.mesh import Mesh
from ..fields.structured import RectilinearGrid, UniformGrid
from ..fields.unstructured import UnstructuredGrid
from ..fields.weights import ascending

if TYPE_CHECKING:
    from .slices import ReadOptions

Centring = Literal["node", "cell"]
CellData = Literal["linear", "average", "nearest"]
"""How values of cells are read between their middles."""
FLAT = 1e-6
"""Coordinates within this part of the extent are one: what a file with seven digits keeps."""


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Nodes at the crossings of `axes` (x, y, z); the file's values run over the axes from slowest to fastest in `order`.

    `hidden_nodes` and `hidden_cells` mark, in the order of the file, what holds no flow.
    """

    axes: tuple[Float[np.ndarray, " _"], ...]
    order: tuple[int, ...]
    hidden_nodes: Bool[np.ndarray, " nodes"] | None = None
    hidden_cells: Bool[np.ndarray, " cells"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def file_shape(self) -> tuple[int, ...]:
        """Nodes along each axis in the order of the file."""
        return tuple(self.shape[k] for k in self.order)

    def describe(self) -> str:
        return f"lattice of {' × '.join(map(str, self.shape))} nodes"


@dataclasses.dataclass(frozen=True)
class Curved:
    """Nodes given one by one on a curved lattice, (…, dim), their axes in the order of the file."""

    points: Float[np.ndarray, "..."]
    hidden_nodes: Bool[np.ndarray, " nodes"] | None = None
    hidden_cells: Bool[np.ndarray, " cells"] | None = None

    @property
    def file_shape(self) -> tuple[int, ...]:
        """Nodes along each axis in the order of the file."""
        return self.points.shape[:-1]

    def describe(self) -> str:
        return f"curvilinear grid of {' × '.join(map(str, self.file_shape[::-1]))} nodes"


@dataclasses.dataclass(frozen=True)
class Cells:
    """Points and cells of a mesh; `node_rows` and `cell_rows` say which value of the file belongs to each of them.

    Where nodes of several pieces were made one, `node_of` holds the node of each point of the file.
    """

    points: Float[np.ndarray, "points dim"]
    cells: dict[str, Int[np.ndarray, "n corners"]]
    node_rows: Int[np.ndarray, " points"] | None
    cell_rows: Int[np.ndarray, " cells"]
    node_of: Int[np.ndarray, " file_points"] | None = None

    def describe(self) -> str:
        kinds = ", ".join(f"{len(nodes):,} {name}" for name, nodes in self.cells.items())
        return f"mesh of {len(self.points):,} nodes ({kinds})"


Geometry = Lattice | Curved | Cells


def same(one: Geometry, other: Geometry) -> bool:
    """Whether two files describe the same places, coordinates to the digits a file keeps."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Cells) and isinstance(other, Cells) and list(one.cells) != list(other.cells):
        return False
    (ours, form), (theirs, other_form) = jax.tree.flatten(vars(one)), jax.tree.flatten(vars(other))
    return form == other_form and all(map(_close, ours, theirs))


def _close(one: Any, other: Any) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape or a.dtype.kind != "f" or b.dtype.kind != "f":
        return np.array_equal(a, b)
    return not a.size or bool(np.all(np.abs(a - b) <= FLAT * max(float(np.ptp(a)), np.finfo(float).tiny)))


def in_dimensions(geometry: Geometry, dim: int | None) -> tuple[Geometry, tuple[int, ...]]:
    """The geometry in `dim` dimensions, and the coordinates kept; None makes a flat grid two-dimensional."""
    if dim not in (None, 2, 3):
        raise ValueError(f"`dim` must be 2, 3 or None; got {dim!r}.")
    if isinstance(geometry, Lattice):
        flat = [k for k, axis in enumerate(geometry.axes) if axis.size == 1]
        width = len(geometry.axes)
        if width == 3 and dim == 3:
            return geometry, (0, 1, 2)
        if len(flat) > width - 2:
            raise ValueError(f"the grid {geometry.shape} has fewer than two dimensions; pass `dim=3`")
    else:
        if isinstance(geometry, Curved):
            lattice = tuple(n for n in geometry.points.shape[:-1] if n > 1)
            geometry = dataclasses.replace(geometry, points=geometry.points.reshape(*lattice, -1))
            spans = len(lattice)
        else:
            spans = 2 if {"triangle", "quad"} & set(geometry.cells) else 3
        width = geometry.points.shape[-1]
        flat = _flat_surface(geometry.points, spans)
    if dim == 3 and width == 2:
        raise ValueError("`dim=3` needs three coordinates; the file gives two")
    if not flat and width == 3 and dim == 2:
        raise ValueError("`dim=2` needs a grid in a plane of constant x, y or z; this one has volume")
    if flat and dim == 3:
        raise ValueError("`dim=3` needs a grid with volume, or a lattice; this one lies in a plane")
    kept = tuple(k for k in range(width) if k not in flat)
    return _without(geometry, kept) if flat else geometry, kept


def _flat_surface(points: Float[np.ndarray, "*n dim"], spans: int) -> list[int]:
    """The coordinate that a surface does not use; none for a volume or for points of two coordinates."""
    width = points.shape[-1]
    if width == spans:
        return []
    extent = np.ptp(points.reshape(-1, width), axis=0)
    flat = [k for k in range(width) if extent[k] <= FLAT * extent.max()]
    if width - len(flat) != 2:
        raise ValueError(
            "the grid is a surface that does not lie in a plane of constant x, y or z; only such planes and "
            "volumes carry a field"
        )
    return flat


def _without(geometry: Geometry, kept: tuple[int, ...]) -> Geometry:
    if isinstance(geometry, Lattice):
        axes = tuple(geometry.axes[k] for k in kept)
        order = tuple(kept.index(k) for k in geometry.order if k in kept)
        return dataclasses.replace(geometry, axes=axes, order=order)
    return dataclasses.replace(geometry, points=geometry.points[..., list(kept)])


@dataclasses.dataclass(frozen=True)
class Placed:
    """A grid, and how the values of a file become its rows."""

    grid: AbstractGrid
    rows: Int[np.ndarray, " rows"] | None = None
    node_of: Int[np.ndarray, " file_points"] | None = None
    to_nodes: Callable[[np.ndarray], np.ndarray] | None = None
    """What makes node values of cell values."""

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The rows of the grid from the values (…, dim) in the order of the file."""
        if self.node_of is not None:
            apart = np.abs(values - values[self.rows][self.node_of]).max()
            if apart > 1e-4 * np.abs(values).max():
                raise ValueError(f"pieces that meet at a node differ there by up to {apart:.3g}")
        if self.rows is not None:
            values = values[self.rows]
        return values if self.to_nodes is None else self.to_nodes(values)


def place(geometry: Geometry, centring: Centring, options: "ReadOptions") -> Placed:
    """The grid of a geometry. `cell_data` says what becomes of values of cells; `interpolation="nearest"` keeps them too."""
    chosen, dtype = options.interpolation or "linear", options.coordinate_dtype
    if centring == "cell" and options.cell_data == "nearest":
        if options.interpolation not in (None, "nearest"):
            raise ValueError(f"`cell_data='nearest'` does not go with `interpolation={chosen!r}`")
        chosen = "nearest"
    average = centring == "cell" and options.cell_data == "average"
    if isinstance(geometry, Cells):
        mesh = Mesh(geometry.points, geometry.cells)
        if centring == "node":
            return Placed(UnstructuredGrid(mesh, chosen, dtype=dtype), geometry.node_rows, geometry.node_of)
        if chosen == "nearest" and not average:
            return Placed(UnstructuredGrid(mesh, chosen, "cell", dtype=dtype), geometry.cell_rows)
        nodal = functools.partial(nodal_averages, mesh, method="average" if average else "linear")
        return Placed(UnstructuredGrid(mesh, chosen, dtype=dtype), geometry.cell_rows, to_nodes=nodal)
    to_nodes = functools.partial(lattice_averages, geometry) if average else None
    kept: dict[str, Any] = {
        "interpolation": chosen,
        "centring": "node" if average else centring,
        "land_values": options.land_values,
    }
    if isinstance(geometry, Curved):
        found = find_lattice(geometry.points.reshape(-1, geometry.points.shape[-1]))
        if found is None or found.layout.rows is not None:
            if chosen == "cubic":
                raise ValueError("`interpolation` must be 'linear' or 'nearest' on a curvilinear grid")
            grid = CurvilinearGrid(geometry.points.astype(dtype), mask=_mask(geometry), **kept)
            return Placed(grid, to_nodes=to_nodes)
        axes = tuple(np.asarray(axis, np.float64) for axis in found.axes)
        geometry = Lattice(axes, found.layout.order, geometry.hidden_nodes, geometry.hidden_cells)
    kept |= {"order": geometry.order, "mask": _mask(geometry)}
    return Placed(_box_grid(geometry.axes, dtype, kept), to_nodes=to_nodes)


def lattice_averages(
    geometry: Lattice | Curved, values: Float[np.ndarray, "cells dim"]
) -> Float[np.ndarray, "nodes dim"]:
    """Node values from cell values in the order of the file: means of the cells around each node, hidden ones left out."""
    shape = geometry.file_shape
    inner = tuple(max(n - 1, 1) for n in shape)
    hidden = geometry.hidden_cells
    seen = np.ones(inner) if hidden is None else 1.0 - hidden.reshape(inner)
    total, count = np.zeros((*shape, values.shape[-1])), np.zeros(shape)
    for corner in itertools.product(*((0, 1) if n > 1 else (0,) for n in shape)):
        cut = tuple(slice(c, c + n) for c, n in zip(corner, inner, strict=True))
        total[cut] += seen[..., None] * values.reshape(*inner, -1)
        count[cut] += seen
    made = total / np.maximum(count, 1)[..., None]
    return made.reshape(-1, values.shape[-1]).astype(values.dtype)


def _mask(geometry: Lattice | Curved) -> Bool[np.ndarray, "..."] | None:
    """Hidden cells or nodes with their axes in the order of the grid's."""
    hidden, shape = geometry.hidden_nodes, geometry.file_shape
    if geometry.hidden_cells is not None:
        hidden, shape = geometry.hidden_cells, tuple(max(n - 1, 1) for n in shape)
    if hidden is None or not hidden.any():
        return None
    order = geometry.order if isinstance(geometry, Lattice) else range(len(shape))
    return hidden.reshape(shape).transpose(np.argsort(order))


def _box_grid(
    axes: tuple[Float[np.ndarray, " _"], ...], dtype: np.dtype, options: dict[str, Any]
) -> UniformGrid | RectilinearGrid:
    """A uniform grid where the coordinates are even to the digits of the file, else a rectilinear one."""
    for k, axis in enumerate(axes):
        rising = axis if axis.size < 2 or axis[0] < axis[-1] else axis[::-1]
        ascending(f"axes[{k}]", rising, "Subtract an `origin`.")
    if all(_even(axis) for axis in axes):
        origin = np.array([axis[0] for axis in axes], dtype)
        spacing = np.array([(a[-1] - a[0]) / (a.size - 1) if a.size > 1 else 1.0 for a in axes], dtype)
        return UniformGrid(origin, spacing, [axis.size for axis in axes], **options)
    return RectilinearGrid([axis.astype(dtype) for axis in axes], **options)


def _even(axis: Float[np.ndarray, " n"]) -> bool:
    if axis.size < 3:
        return True
    step = (axis[-1] - axis[0]) / (axis.size - 1)
    slack = 1e-6 * abs(step) + 4 * np.finfo(axis.dtype).eps * float(np.abs(axis).max())
    return bool(np.all(np.abs(axis - np.linspace(axis[0], axis[-1], axis.size)) <= slack))

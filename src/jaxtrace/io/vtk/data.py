"""What one VTK file holds, as NumPy arrays, and how pieces become one: by their extents, or cells after cells."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

Arrays = dict[str, np.ndarray]
Unread = dict[tuple[Literal["node", "cell"], str], tuple[int, str]]
"""Arrays that are declared but not among the values: their number of components, and why they cannot be had, or ""."""
Kind = Literal["ImageData", "RectilinearGrid", "StructuredGrid", "UnstructuredGrid", "PolyData"]
STRUCTURED = ("ImageData", "RectilinearGrid", "StructuredGrid")
KINDS = (*STRUCTURED, "UnstructuredGrid", "PolyData")
LARGEST = 2**31 - 1
"""VTK counts along an axis with 32 bits."""
_VOXEL, _PIXEL, _HEXAHEDRON, _QUAD = 11, 8, 12, 9


@dataclasses.dataclass(frozen=True)
class VtkData:
    """One data set or a piece of one. Values lie x-fastest; arrays of points and cells have a row for each of them."""

    kind: Kind
    point_data: Arrays
    cell_data: Arrays
    field_data: Arrays
    extent: tuple[int, ...] = ()
    """First and last node along x, y and z, of structured data."""
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    direction: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    axes: tuple[np.ndarray, ...] = ()
    points: np.ndarray | None = None
    """Places (points, 3), unless axes or origin and spacing give them."""
    types: np.ndarray | None = None
    offsets: np.ndarray | None = None
    """Where the corners of each cell begin in `corners`, and where those of the last end."""
    corners: np.ndarray | None = None
    unread: Unread = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along x, y and z."""
        return tuple(self.extent[2 * k + 1] - self.extent[2 * k] + 1 for k in range(3))

    @property
    def point_count(self) -> int:
        if self.kind in STRUCTURED:
            return math.prod(self.shape)
        return 0 if self.points is None else len(self.points)

    @property
    def cell_count(self) -> int:
        if self.kind in STRUCTURED:
            return math.prod(max(n - 1, 1) for n in self.shape)
        return 0 if self.types is None else len(self.types)


def checked_extent(numbers: Sequence[int], what: str) -> tuple[int, ...]:
    """Six numbers as an extent of at least one node along each axis."""
    if len(numbers) != 6 or any(abs(n) > LARGEST for n in numbers):
        raise ValueError(f"{what} must be six whole numbers of 32 bits; got {str(list(numbers))[:80]}")
    if any(numbers[2 * k + 1] < numbers[2 * k] for k in range(3)):
        raise ValueError(f"{what} must go up along each axis; got {list(numbers)}")
    return tuple(numbers)


def checked_cells(
    offsets: np.ndarray, corners: np.ndarray, cells: int, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Ends or bounds of the cells' corners as bounds from 0 to their number; refused unless they rise."""
    offsets, corners = offsets.astype(np.int64), corners.astype(np.int64)
    if len(offsets) == cells:
        offsets = np.concatenate([np.zeros(1, np.int64), offsets])
    if (
        len(offsets) != cells + 1
        or offsets[0] != 0
        or np.any(np.diff(offsets) < 0)
        or offsets[-1] != len(corners)
    ):
        raise ValueError(
            f"the offsets of the {what} do not divide their {len(corners)} corners among {cells} cells"
        )
    return offsets, corners


def joined_cells(parts: Sequence[VtkData], names: Sequence[str]) -> VtkData:
    """Parts as one unstructured grid, the cells of one after those of the other."""
    parts = [_unstructured(part) for part in parts]
    point_data, cell_data, unread = _same_arrays(parts, names)
    points = [_require(part.points) for part in parts]
    starts = np.cumsum([0, *map(len, points)])
    corners = [_require(part.corners) + start for part, start in zip(parts, starts, strict=False)]
    ends = np.cumsum([0, *map(len, corners)])
    bounds = [_require(part.offsets)[1:] + end for part, end in zip(parts, ends, strict=False)]
    return VtkData(
        "UnstructuredGrid",
        point_data,
        cell_data,
        parts[0].field_data,
        points=np.concatenate(points),
        types=np.concatenate([_require(part.types) for part in parts]),
        offsets=np.concatenate([np.zeros(1, np.int64), *bounds]),
        corners=np.concatenate(corners),
        unread=unread,
    )


def joined_extents(parts: Sequence[VtkData], names: Sequence[str], extent: tuple[int, ...]) -> VtkData:
    """Structured parts put together by their extents, which must cover the whole."""
    first = parts[0]
    if len(parts) == 1 and first.extent == extent:
        return first
    whole = dataclasses.replace(first, extent=extent, point_data={}, cell_data={})
    shapes = {"point": whole.shape[::-1], "cell": tuple(max(n - 1, 1) for n in whole.shape[::-1])}
    for centring, shape in shapes.items():
        counts = sum((part.point_count if centring == "point" else part.cell_count) for part in parts)
        if math.prod(shape) > counts:
            raise ValueError(
                f"its pieces hold {counts} {centring}s of the {math.prod(shape)} in the whole extent {extent}"
            )
    at = {id(part): _inner(part, extent) for part in parts}
    point_data, cell_data, unread = _same_arrays(parts, names, join=False)
    for centring, data, shape in (
        ("point", point_data, shapes["point"]),
        ("cell", cell_data, shapes["cell"]),
    ):
        seen = np.zeros(shape, bool)
        for part in parts:
            seen[at[id(part)][centring]] = True
        if not seen.all():
            raise ValueError(f"its pieces do not cover the {centring}s of the whole extent {extent}")
        for name in data:
            values = [_with_flags(part)[centring == "cell"][name] for part in parts]
            made = np.empty((*shape, *values[0].shape[1:]), np.result_type(*values))
            filled = np.zeros(shape, bool)
            for part, own, where in zip(parts, values, names, strict=True):
                cut = at[id(part)][centring]
                target, both, new = made[cut], filled[cut], own.reshape(made[cut].shape)
                with np.errstate(invalid="ignore", over="ignore"):
                    if (
                        both.any()
                        and own.dtype.kind == "f"
                        and not np.allclose(target[both], new[both], 1e-4, np.abs(new).max() * 1e-4, True)
                    ):
                        key = ("node" if centring == "point" else "cell", name)
                        unread[key] = (
                            math.prod(made.shape[3:]),
                            f"has other values in {where} than in the pieces that it meets",
                        )
                target[...], filled[cut] = new, True
            data[name] = made.reshape(-1, *values[0].shape[1:])
    point_data, cell_data = (
        {name: values for name, values in data.items() if (centring, name) not in unread}
        for centring, data in (("node", point_data), ("cell", cell_data))
    )
    placed: dict[str, Any] = {}
    if first.kind == "StructuredGrid":
        places = np.empty((*shapes["point"], 3))
        for part in parts:
            target = places[at[id(part)]["point"]]
            target[...] = _require(part.points).reshape(target.shape)
        placed["points"] = places.reshape(-1, 3)
    if first.kind == "RectilinearGrid":
        axes = [np.empty(n) for n in whole.shape]
        for part in parts:
            for k in range(3):
                axes[k][at[id(part)]["point"][2 - k]] = part.axes[k]
        placed["axes"] = tuple(axes)
    return dataclasses.replace(whole, point_data=point_data, cell_data=cell_data, unread=unread, **placed)


def _inner(part: VtkData, extent: tuple[int, ...]) -> dict[str, tuple[slice, ...]]:
    """Where a part lies in the whole, along z, y and x."""
    own = part.extent
    if any(own[2 * k] < extent[2 * k] or own[2 * k + 1] > extent[2 * k + 1] for k in range(3)):
        raise ValueError(f"a piece with extent {own} lies outside of the whole extent {extent}")
    starts = [own[2 * k] - extent[2 * k] for k in (2, 1, 0)]
    sizes = part.shape[::-1]
    return {
        "point": tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True)),
        "cell": tuple(slice(a, a + max(n - 1, 1)) for a, n in zip(starts, sizes, strict=True)),
    }


def _same_arrays(
    parts: Sequence[VtkData], names: Sequence[str], join: bool = True
) -> tuple[Arrays, Arrays, Unread]:
    """Arrays of the points and of the cells that all parts have, one after the other; what some lack cannot be had."""
    unread: Unread = {}
    for part in parts:
        unread |= {key: said for key, said in part.unread.items() if said[1] or key not in unread}
    flagged = (
        ["vtkGhostType" in part.point_data for part in parts],
        ["vtkGhostType" in part.cell_data for part in parts],
    )
    found: list[Arrays] = []
    centrings: tuple[Literal["node", "cell"], ...] = ("node", "cell")
    for k, centring in enumerate(centrings):
        own = [
            _with_flags(part)[k] if any(flagged[k]) else (part.point_data, part.cell_data)[k]
            for part in parts
        ]
        widths: dict[str, tuple[int, ...]] = {}
        for arrays in own:
            widths |= {key: values.shape[1:] for key, values in arrays.items() if key not in widths}
        for key, width in widths.items():
            lacking = [
                name
                for name, arrays in zip(names, own, strict=True)
                if key not in arrays or arrays[key].shape[1:] != width
            ]
            if lacking:
                said = f"is not in {lacking[0]}, a part of the same moment, or has other components there"
                unread[centring, key] = (math.prod(width), said)
        common = [key for key in own[0] if (centring, key) not in unread]
        found.append(
            {key: np.concatenate([one[key] for one in own]) if join else own[0][key] for key in common}
        )
    return found[0], found[1], unread


def _with_flags(part: VtkData) -> tuple[Arrays, Arrays]:
    """The arrays of points and cells with `vtkGhostType` among them: a part without these flags has no ghosts."""
    return (
        {"vtkGhostType": np.zeros(part.point_count, np.uint8), **part.point_data},
        {"vtkGhostType": np.zeros(part.cell_count, np.uint8), **part.cell_data},
    )


def _unstructured(part: VtkData) -> VtkData:
    """Structured data as cells."""
    if part.kind not in STRUCTURED:
        return part
    shape = part.shape
    wide = [k for k in range(3) if shape[k] > 1]
    if len(wide) < 2:
        raise ValueError(f"a grid of {shape} nodes has no cells with area or volume")
    number = np.arange(part.point_count).reshape(shape[::-1])
    near, far = slice(None, -1), slice(1, None)
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    turns = square if len(wide) == 2 else [(*c, t) for t in (0, 1) for c in square]
    corners = []
    for turn in turns:
        cut = [slice(None)] * 3
        for k, up in zip(wide, turn, strict=True):
            cut[2 - k] = far if up else near
        corners.append(number[tuple(cut)].ravel())
    nodes = np.stack(corners, -1)
    return dataclasses.replace(
        part,
        kind="UnstructuredGrid",
        points=places_of(part),
        types=np.full(len(nodes), _QUAD if len(wide) == 2 else _HEXAHEDRON),
        offsets=np.arange(len(nodes) + 1) * nodes.shape[1],
        corners=nodes.ravel(),
    )


def places_of(part: VtkData) -> np.ndarray:
    """The place of each point, (points, 3)."""
    if part.points is not None:
        return part.points.astype(float)
    if part.kind == "RectilinearGrid":
        z, y, x = np.meshgrid(*part.axes[::-1], indexing="ij")
        return np.stack([x, y, z], -1).reshape(-1, 3).astype(float)
    turn = np.array(part.direction).reshape(3, 3)
    return steps_of(part).reshape(-1, 3) @ turn.T + np.asarray(part.origin)


def steps_of(part: VtkData) -> np.ndarray:
    """Places in an image before it is turned and moved, (z, y, x, 3)."""
    steps = [(part.extent[2 * k] + np.arange(part.shape[k])) * part.spacing[k] for k in range(3)]
    return np.stack(np.meshgrid(*steps[::-1], indexing="ij"), -1)[..., ::-1]


def _require(values: np.ndarray | None) -> np.ndarray:
    assert values is not None
    return values

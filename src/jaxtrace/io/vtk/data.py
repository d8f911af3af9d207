"""What one VTK file holds, as NumPy arrays, and how pieces become one: by their extents, or cells after cells."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from ..geometry import Centring

Key = tuple[Centring, str]
"""An array of nodes or cells."""
Unread = dict[Key, tuple[int, str]]
"""Arrays that are declared but not among the values: their number of components, and why they cannot be had, or ""."""
Kind = Literal["ImageData", "RectilinearGrid", "StructuredGrid", "UnstructuredGrid", "PolyData"]
CENTRINGS: tuple[Centring, ...] = ("node", "cell")
STRUCTURED = ("ImageData", "RectilinearGrid", "StructuredGrid")
POLYGONAL = {"Verts": 1, "Lines": 3, "Polys": 7, "Strips": 6}
"""Groups of cells in polygonal data in the order in which VTK numbers them, with their type."""
GHOSTS = "vtkGhostType"
"""Name of the array that marks copies of other pieces' cells, and what is blanked out."""
LARGEST = 2**31 - 1
"""VTK counts along an axis with 32 bits."""
_HEXAHEDRON, _QUAD = 12, 9


def _no_numbers() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class VtkData:
    """One data set or a piece of one. Values lie x-fastest; arrays have a row for each node or cell."""

    kind: Kind
    arrays: dict[Key, np.ndarray] = dataclasses.field(default_factory=dict)
    field_data: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    extent: tuple[int, ...] = ()
    """First and last node along x, y and z, of structured data."""
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    direction: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    axes: tuple[np.ndarray, ...] = ()
    points: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    """Places (points, 3), unless axes or origin and spacing give them."""
    types: np.ndarray = dataclasses.field(default_factory=_no_numbers)
    offsets: np.ndarray = dataclasses.field(default_factory=_no_numbers)
    """Where the corners of each cell begin in `corners`, and where those of the last end."""
    corners: np.ndarray = dataclasses.field(default_factory=_no_numbers)
    unread: Unread = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes of structured data along x, y and z."""
        return tuple(self.extent[2 * k + 1] - self.extent[2 * k] + 1 for k in range(3))

    def grid_shape(self, centring: Centring) -> tuple[int, ...]:
        """Nodes or cells of structured data along z, y and x, as their values lie."""
        return tuple(n if centring == "node" else max(n - 1, 1) for n in self.shape[::-1])

    def count(self, centring: Centring) -> int:
        """How many nodes or cells there are."""
        if self.kind in STRUCTURED:
            return math.prod(self.grid_shape(centring))
        return len(self.points if centring == "node" else self.types)


def checked_extent(numbers: Sequence[int], what: str) -> tuple[int, ...]:
    """Six numbers as an extent of at least one node along each axis."""
    if len(numbers) != 6 or any(abs(n) > LARGEST for n in numbers):
        raise ValueError(f"{what} must be six whole numbers of 32 bits; got {str(list(numbers))[:80]}")
    if any(numbers[2 * k + 1] < numbers[2 * k] for k in range(3)):
        raise ValueError(f"{what} must go up along each axis; got {list(numbers)}")
    return tuple(numbers)


def checked_cells(types: np.ndarray, offsets: np.ndarray, corners: np.ndarray, what: str) -> dict[str, Any]:
    """Cells whose offsets are ends or bounds of their corners, with bounds from 0 on; refused unless they rise."""
    offsets, corners = offsets.astype(np.int64), corners.astype(np.int64)
    if len(offsets) == len(types):
        offsets = np.append(0, offsets)
    ordered = len(offsets) == len(types) + 1 and offsets[0] == 0 and np.all(np.diff(offsets) >= 0)
    if not ordered or offsets[-1] != len(corners):
        raise ValueError(
            f"the offsets of the {what} do not divide their {len(corners)} corners among {len(types)} cells"
        )
    return {"types": types.astype(np.int64), "offsets": offsets, "corners": corners}


def stack_cells(groups: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Types, offsets and corners of several groups of cells, one group after the other."""
    types, offsets, corners, end = [_no_numbers()], [np.zeros(1, np.int64)], [_no_numbers()], 0
    for group in groups:
        types.append(group["types"])
        offsets.append(group["offsets"][1:] + end)
        corners.append(group["corners"])
        end += len(group["corners"])
    return {
        "types": np.concatenate(types),
        "offsets": np.concatenate(offsets),
        "corners": np.concatenate(corners),
    }


def joined_cells(parts: Sequence[VtkData], names: Sequence[str]) -> VtkData:
    """Parts as one unstructured grid, the cells of one after those of the other."""
    parts = [_unstructured(part) for part in parts]
    values, unread = _common_arrays(parts, names)
    starts = np.cumsum([0, *(len(part.points) for part in parts)])
    cells = stack_cells(
        {"types": part.types, "offsets": part.offsets, "corners": part.corners + start}
        for part, start in zip(parts, starts, strict=False)
    )
    return VtkData(
        "UnstructuredGrid",
        {key: np.concatenate(own) for key, own in values.items()},
        parts[0].field_data,
        points=np.concatenate([part.points for part in parts]),
        **cells,
        unread=unread,
    )


def joined_extents(parts: Sequence[VtkData], names: Sequence[str], extent: tuple[int, ...]) -> VtkData:
    """Structured parts put together by their extents, which must cover the whole."""
    first = parts[0]
    if len(parts) == 1 and first.extent == extent:
        return first
    whole = dataclasses.replace(first, extent=extent)
    values, unread = _common_arrays(parts, names)
    cuts: dict[Centring, list[tuple[slice, ...]]] = {}
    for centring in CENTRINGS:
        word = "points" if centring == "node" else "cells"
        count, due = sum(part.count(centring) for part in parts), whole.count(centring)
        if due > count:
            raise ValueError(f"its pieces hold {count} {word} of the {due} in the whole extent {extent}")
        cuts[centring] = [_cut(part, extent, centring) for part in parts]
        seen = np.zeros(whole.grid_shape(centring), bool)
        for cut in cuts[centring]:
            seen[cut] = True
        if not seen.all():
            raise ValueError(f"its pieces do not cover the {word} of the whole extent {extent}")
    arrays = {}
    for key, own in values.items():
        made, apart = _merge(own, cuts[key[0]], whole.grid_shape(key[0]))
        if apart is None:
            arrays[key] = made.reshape(-1, *own[0].shape[1:])
        else:
            why = f"has other values in {names[apart]} than in the pieces that it meets"
            unread[key] = (math.prod(own[0].shape[1:]), why)
    placed: dict[str, Any] = {}
    if first.kind == "StructuredGrid":
        places, _ = _merge([part.points for part in parts], cuts["node"], whole.grid_shape("node"))
        placed["points"] = places.reshape(-1, 3)
    if first.kind == "RectilinearGrid":
        placed["axes"] = axes = tuple(np.empty(n) for n in whole.shape)
        for part, cut in zip(parts, cuts["node"], strict=True):
            for k in range(3):
                axes[k][cut[2 - k]] = part.axes[k]
    return dataclasses.replace(whole, arrays=arrays, unread=unread, **placed)


def _cut(part: VtkData, extent: tuple[int, ...], centring: Centring) -> tuple[slice, ...]:
    """Where the nodes or cells of a part lie in the whole, along z, y and x."""
    own = part.extent
    if any(own[2 * k] < extent[2 * k] or own[2 * k + 1] > extent[2 * k + 1] for k in range(3)):
        raise ValueError(f"a piece with extent {own} lies outside of the whole extent {extent}")
    starts = [own[2 * k] - extent[2 * k] for k in (2, 1, 0)]
    return tuple(slice(a, a + n) for a, n in zip(starts, part.grid_shape(centring), strict=True))


def _merge(
    values: Sequence[np.ndarray], cuts: Sequence[tuple[slice, ...]], shape: tuple[int, ...]
) -> tuple[np.ndarray, int | None]:
    """The values of all parts on their grid, and the last part whose values differ where it meets the ones before."""
    made, filled = np.empty((*shape, *values[0].shape[1:]), np.result_type(*values)), np.zeros(shape, bool)
    apart = None
    for k, (own, cut) in enumerate(zip(values, cuts, strict=True)):
        target, both = made[cut], filled[cut]
        new = own.reshape(target.shape)
        if both.any() and own.dtype.kind == "f":
            with np.errstate(invalid="ignore", over="ignore"):
                if not np.allclose(target[both], new[both], 1e-4, np.abs(new).max() * 1e-4, True):
                    apart = k
        target[...], filled[cut] = new, True
    return made, apart


def _common_arrays(
    parts: Sequence[VtkData], names: Sequence[str]
) -> tuple[dict[Key, list[np.ndarray]], Unread]:
    """The values, part by part, of each array that all parts hold, and why the others are not read."""
    unread: Unread = {}
    for part in parts:
        unread |= {key: said for key, said in part.unread.items() if said[1] or key not in unread}
    # A part without flags has no ghosts.
    flagged: set[Centring] = {centring for part in parts for centring, name in part.arrays if name == GHOSTS}
    own: list[dict[Key, np.ndarray]] = []
    for part in parts:
        none: dict[Key, np.ndarray] = {(c, GHOSTS): np.zeros(part.count(c), np.uint8) for c in flagged}
        own.append(none | part.arrays)
    found: dict[Key, list[np.ndarray]] = {}
    for key in dict.fromkeys(key for arrays in own for key in arrays):
        shape = next(arrays[key].shape[1:] for arrays in own if key in arrays)
        lacking = [
            name
            for name, arrays in zip(names, own, strict=True)
            if key not in arrays or arrays[key].shape[1:] != shape
        ]
        if lacking:
            said = f"is not in {lacking[0]}, a part of the same moment, or has other components there"
            unread[key] = (math.prod(shape), said)
        elif key not in unread:
            found[key] = [arrays[key] for arrays in own]
    return found, unread


def _unstructured(part: VtkData) -> VtkData:
    """Structured data as cells."""
    if part.kind not in STRUCTURED:
        return part
    wide = [k for k in range(3) if part.shape[k] > 1]
    if len(wide) < 2:
        raise ValueError(f"a grid of {part.shape} nodes has no cells with area or volume")
    number = np.arange(part.count("node")).reshape(part.grid_shape("node"))
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    corners = []
    for turn in square if len(wide) == 2 else [(*c, t) for t in (0, 1) for c in square]:
        cut = [slice(None)] * 3
        for k, up in zip(wide, turn, strict=True):
            cut[2 - k] = slice(1, None) if up else slice(None, -1)
        corners.append(number[tuple(cut)].ravel())
    nodes = np.stack(corners, -1)
    return dataclasses.replace(
        part,
        kind="UnstructuredGrid",
        points=places_of(part).reshape(-1, 3),
        types=np.full(len(nodes), _QUAD if len(wide) == 2 else _HEXAHEDRON),
        offsets=np.arange(len(nodes) + 1) * nodes.shape[1],
        corners=nodes.ravel(),
    )


def places_of(part: VtkData) -> np.ndarray:
    """The place of each node of structured data, (z, y, x, 3)."""
    if part.kind == "StructuredGrid":
        if len(part.points) != part.count("node"):
            raise ValueError(f"it has {len(part.points)} places for {part.shape} nodes")
        return part.points.astype(float).reshape(*part.grid_shape("node"), 3)
    axes = part.axes if part.kind == "RectilinearGrid" else steps_of(part)
    places = np.stack(np.meshgrid(*axes[::-1], indexing="ij"), -1)[..., ::-1]
    if part.kind == "RectilinearGrid":
        return places.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        return places @ np.array(part.direction).reshape(3, 3).T + np.asarray(part.origin)


def steps_of(part: VtkData) -> tuple[np.ndarray, ...]:
    """Coordinates of an image along x, y and z before it is turned and moved."""
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple((part.extent[2 * k] + np.arange(n)) * part.spacing[k] for k, n in enumerate(part.shape))

"""One VTK file as NumPy arrays: what it says about places, its arrays and its time."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .geometry import Centring, Curved, Geometry, Lattice
from .series import DatasetError
from .vtk_cells import merge_points, sort_cells
from .vtk_data import VtkData, joined_cells, places_of, steps_of
from .vtk_process import FORMATS, read_with_vtk
from .vtk_xml import read_xml, read_xml_head

TIME_NAMES = ("timevalue", "time", "time_value")
"""Field data that hold the physical time, in the order they are looked for; case does not matter."""
READERS = (".vti", ".vtr", ".vts", ".vtu", ".vtp", ".pvti", ".pvtr", ".pvts", ".pvtu", ".pvtp")
"""Suffixes of XML files; those with a p name the files of their pieces."""
SUFFIXES = (*READERS, *FORMATS)
# Flags in VTK's array vtkGhostType: a copy of another piece's cell, a node or a cell that is blanked out.
_COPIED_CELL, _HIDDEN_NODE, _HIDDEN_CELL = 1, 2, 32
# A lattice is declared by a few numbers: only arrays of its nodes or cells show that it is meant.
_MOST_WITHOUT_VALUES = 10**7
# No place is that far, and sums of such numbers leave single precision.
_FARTHEST = 1e30


class Frame(NamedTuple):
    """What one moment of a VTK series holds."""

    geometry: Geometry
    arrays: dict[tuple[Centring, str], np.ndarray]
    time: float | None
    declared: dict[tuple[Centring, str], tuple[int, str]]
    """All arrays that the files name: their number of components, and why one cannot be used, or ""."""


def read_time(path: Path) -> float | None:
    """The time a file holds, found without reading its arrays where its format allows that."""
    if path.suffix.lower() not in READERS:
        return _time_of(_load(path, frozenset())[0].field_data, path, only=True)
    _demand(path)
    fields, steps = read_xml_head(path)
    if len(steps) > 1:
        raise DatasetError(
            f"{path}: the file holds {len(steps)} time steps; write one file for each of them."
        )
    if steps:
        return float(steps[0])
    if not fields and path.suffix.lower().startswith(".p"):
        fields = _load(path, frozenset())[0].field_data
    return _time_of(fields, path, only=True)


def read_frame(
    paths: tuple[Path, ...], wanted: frozenset[str] | None = None, step: int | None = None
) -> Frame:
    """All that the files of one moment hold, of the arrays only those `wanted`. Parts are joined where they meet."""
    path = paths[0]
    found = [part for one in paths for part in _load(one, wanted, step)]
    pieces = len(found) > 1 or path.suffix.lower() in (".pvtu", ".pvtp")
    try:
        whole = found[0] if len(found) == 1 else joined_cells(found, _names(found, paths))
        arrays: dict[tuple[Centring, str], np.ndarray] = {}
        kinds: tuple[tuple[Centring, dict[str, np.ndarray], int], ...] = (
            ("node", whole.point_data, whole.point_count),
            ("cell", whole.cell_data, whole.cell_count),
        )
        for centring, data, count in kinds:
            for name, values in data.items():
                if len(values) != count:
                    raise ValueError(
                        f"array {name!r} has {len(values)} values for {count} {centring}s; it is damaged"
                    )
                arrays[centring, name] = values
        geometry = _geometry(whole, arrays, pieces)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}.") from error
    read = {key: (values.shape[1] if values.ndim > 1 else 1, "") for key, values in arrays.items()}
    unread = {key: said for key, said in whole.unread.items() if key[1] != "vtkGhostType" and key not in read}
    return Frame(geometry, arrays, _time_of(whole.field_data, path), read | unread)


def _demand(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file is missing.")


def _load(path: Path, wanted: frozenset[str] | None, step: int | None = None) -> list[VtkData]:
    """The data sets of one file, with the files of its pieces."""
    _demand(path)
    if path.suffix.lower() in READERS:
        return [read_xml(path, wanted)]
    return read_with_vtk(path, wanted, step)


def _names(found: list[VtkData], paths: tuple[Path, ...]) -> list[str]:
    """How messages call the parts of a moment."""
    if len(found) == len(paths):
        return [str(path) for path in paths]
    return [f"part {number} of {paths[0]}" for number in range(1, len(found) + 1)]


def _time_of(fields: dict[str, np.ndarray], path: Path, only: bool = False) -> float | None:
    """The time in the field data; with `only` names that give different times are refused."""
    found: dict[str, float] = {}
    for wanted in TIME_NAMES:
        for name, array in fields.items():
            if name.lower() == wanted:
                values = array.reshape(-1)
                if values.size != 1 or not np.isfinite(values[0]):
                    raise DatasetError(
                        f"{path}: field data {name!r} must be one finite time; got {values[:3]}."
                    )
                found[name] = float(values[0])
    if only and len(set(found.values())) > 1:
        listed = " and ".join(f"{name} = {time:g}" for name, time in found.items())
        raise DatasetError(f"{path}: field data {listed} are different times. Pass `times=`.")
    return next(iter(found.values()), None)


def _geometry(found: VtkData, arrays: dict[tuple[Centring, str], np.ndarray], pieces: bool) -> Geometry:
    """Places from what was read; `vtkGhostType` is taken out of the arrays and becomes land or missing cells."""
    flags = [arrays.pop((centring, "vtkGhostType"), None) for centring in ("node", "cell")]
    for values in flags:
        if values is not None and (values.dtype.kind not in "iu" or values.ndim != 1):
            raise ValueError("its array 'vtkGhostType' must hold one whole number for each point or cell")
    node_flags, cell_flags = flags
    if found.kind in ("UnstructuredGrid", "PolyData"):
        kept = None if cell_flags is None else (cell_flags & (_COPIED_CELL | _HIDDEN_CELL)) == 0
        cells = sort_cells(found, kept)
        _refuse_infinite(cells.points)
        return merge_points(cells) if pieces else cells
    hidden = {
        "hidden_nodes": None if node_flags is None else (node_flags & _HIDDEN_NODE) > 0,
        "hidden_cells": None if cell_flags is None else (cell_flags & _HIDDEN_CELL) > 0,
    }
    if not arrays and found.point_count > _MOST_WITHOUT_VALUES:
        raise ValueError(f"the file declares {found.shape} nodes and holds no array of them")
    if found.kind == "ImageData":
        turn = np.array(found.direction).reshape(3, 3)
        if np.array_equal(turn, np.diag(np.diag(turn))):
            extent, shape = found.extent, found.shape
            with np.errstate(over="ignore", invalid="ignore"):
                steps = [(extent[2 * k] + np.arange(shape[k])) * found.spacing[k] for k in range(3)]
            with np.errstate(over="ignore", invalid="ignore"):
                axes = tuple(found.origin[k] + turn[k, k] * steps[k] for k in range(3))
            for axis in axes:
                _refuse_infinite(axis)
            return Lattice(axes, (2, 1, 0), **hidden)
        with np.errstate(over="ignore", invalid="ignore"):
            turned = steps_of(found) @ turn.T + np.asarray(found.origin)
        _refuse_infinite(turned)
        return Curved(turned, **hidden)
    if found.kind == "RectilinearGrid":
        if tuple(map(len, found.axes)) != found.shape:
            raise ValueError(f"it has {tuple(map(len, found.axes))} coordinates for {found.shape} nodes")
        for axis in found.axes:
            _refuse_infinite(axis)
        return Lattice(tuple(axis.astype(float) for axis in found.axes), (2, 1, 0), **hidden)
    points = places_of(found)
    if len(points) != found.point_count:
        raise ValueError(f"it has {len(points)} places for {found.shape} nodes")
    _refuse_infinite(points)
    return Curved(points.reshape(*found.shape[::-1], 3), **hidden)


def _refuse_infinite(places: np.ndarray) -> None:
    far = ~(np.abs(places) < _FARTHEST)
    if far.any():
        raise ValueError(f"{int(far.sum())} of its coordinates are not finite, or beyond {_FARTHEST:g}")

"""One VTK file as NumPy arrays: what it says about places, its arrays and its time."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..files import DatasetError, named_errors
from ..geometry import Curved, Geometry, Lattice
from .cells import merge_points, sort_cells
from .data import GHOSTS, Key, Unread, VtkData, joined_cells, places_of, steps_of
from .process import FORMATS, read_with_vtk
from .xml import read_xml, read_xml_head

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
    arrays: dict[Key, np.ndarray]
    time: float | None
    declared: Unread
    """All arrays that the files name: their number of components, and why one cannot be used, or ""."""


def read_time(path: Path) -> float | None:
    """The time a file holds, found without reading its arrays where its format allows that."""
    fields: dict[str, np.ndarray] = {}
    if path.suffix.lower() in READERS:
        _demand(path)
        fields, steps = read_xml_head(path)
        if len(steps) > 1:
            raise DatasetError(
                f"{path}: the file holds {len(steps)} time steps; write one file for each of them."
            )
        if steps:
            return float(steps[0])
    if not fields and path.suffix.lower() not in READERS[:5]:
        # Pieces may have field data that the file that lists them does not have.
        fields = _load(path, frozenset())[0].field_data
    return _time_of(fields, path, only=True)


def read_frame(
    paths: tuple[Path, ...], wanted: frozenset[str] | None = None, step: int | None = None
) -> Frame:
    """All that the files of one moment hold, of the arrays only those `wanted`. Parts are joined where they meet."""
    path = paths[0]
    found = [part for one in paths for part in _load(one, wanted, step)]
    pieces = len(found) > 1 or path.suffix.lower() in (".pvtu", ".pvtp")
    names = [str(one) for one in paths]
    if len(found) != len(paths):
        names = [f"part {number} of {path}" for number in range(1, len(found) + 1)]
    with named_errors(str(path)):
        whole = found[0] if len(found) == 1 else joined_cells(found, names)
        for (centring, name), values in whole.arrays.items():
            if len(values) != whole.count(centring):
                raise ValueError(
                    f"array {name!r} has {len(values)} values for {whole.count(centring)} {centring}s; it is damaged"
                )
        arrays = {key: values for key, values in whole.arrays.items() if key[1] != GHOSTS}
        geometry = _geometry(whole, bool(arrays), pieces)
    read = {key: (values.shape[1] if values.ndim > 1 else 1, "") for key, values in arrays.items()}
    unread = {key: said for key, said in whole.unread.items() if key[1] != GHOSTS and key not in read}
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


def _geometry(found: VtkData, valued: bool, pieces: bool) -> Geometry:
    """Places from what was read; hidden nodes and cells become land or missing cells."""
    flags = [found.arrays.get((centring, GHOSTS)) for centring in ("node", "cell")]
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
    if not valued and found.count("node") > _MOST_WITHOUT_VALUES:
        raise ValueError(f"the file declares {found.shape} nodes and holds no array of them")
    scale = np.diag(np.array(found.direction).reshape(3, 3))
    if found.kind == "RectilinearGrid":
        if tuple(map(len, found.axes)) != found.shape:
            raise ValueError(f"it has {tuple(map(len, found.axes))} coordinates for {found.shape} nodes")
        axes = tuple(axis.astype(float) for axis in found.axes)
    elif found.kind == "ImageData" and np.array_equal(np.diag(scale).ravel(), found.direction):
        with np.errstate(over="ignore", invalid="ignore"):
            axes = tuple(found.origin[k] + scale[k] * step for k, step in enumerate(steps_of(found)))
    else:
        places = places_of(found)
        _refuse_infinite(places)
        return Curved(places, **hidden)
    _refuse_infinite(*axes)
    return Lattice(axes, (2, 1, 0), **hidden)


def _refuse_infinite(*places: np.ndarray) -> None:
    far = sum(int(np.count_nonzero(~(np.abs(one) < _FARTHEST))) for one in places)
    if far:
        raise ValueError(f"{far} of its coordinates are not finite, or beyond {_FARTHEST:g}")

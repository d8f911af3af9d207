"""One VTK file as NumPy arrays: what it says about places, its arrays and its time; every complaint of VTK is raised."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .geometry import Centring, Curved, Geometry, Lattice
from .series import DatasetError
from .vtk_cells import merge_points, sort_cells
from .vtk_tools import complaints, vtk

TIME_NAMES = ("timevalue", "time", "time_value")
"""Field data that hold the physical time, in the order they are looked for; case does not matter."""
READERS = {
    ".vti": "vtkXMLImageDataReader",
    ".vtr": "vtkXMLRectilinearGridReader",
    ".vts": "vtkXMLStructuredGridReader",
    ".vtu": "vtkXMLUnstructuredGridReader",
    ".vtp": "vtkXMLPolyDataReader",
    ".pvti": "vtkXMLPImageDataReader",
    ".pvtr": "vtkXMLPRectilinearGridReader",
    ".pvts": "vtkXMLPStructuredGridReader",
    ".pvtu": "vtkXMLPUnstructuredGridReader",
    ".pvtp": "vtkXMLPPolyDataReader",
}
_LEGACY = {
    "vtkStructuredPoints": "vtkStructuredPointsReader",
    "vtkImageData": "vtkStructuredPointsReader",
    "vtkRectilinearGrid": "vtkRectilinearGridReader",
    "vtkStructuredGrid": "vtkStructuredGridReader",
    "vtkUnstructuredGrid": "vtkUnstructuredGridReader",
    "vtkPolyData": "vtkPolyDataReader",
}
SUFFIXES = (*READERS, ".vtk")
# Flags in VTK's array vtkGhostType: a copy of another piece's cell, a node or a cell that is blanked out.
_COPIED_CELL, _HIDDEN_NODE, _HIDDEN_CELL = 1, 2, 32
_END = "jaxtrace_end"


class Frame(NamedTuple):
    """What one moment of a VTK series holds."""

    geometry: Geometry
    arrays: dict[tuple[Centring, str], np.ndarray]
    time: float | None


def read_time(path: Path) -> float | None:
    """The time a file holds, found without reading its arrays where its format allows that."""
    if path.suffix.lower() in READERS:
        tools = vtk()
        reader = _xml_reader(path)
        with complaints(str(path)):
            reader.UpdateInformation()
            steps = reader.GetOutputInformation(0).Get(tools.pipeline.TIME_STEPS())
        if steps:
            if len(steps) > 1:
                raise DatasetError(
                    f"{path}: the file holds {len(steps)} time steps; write one file for each of them."
                )
            return float(steps[0])
    return _time_of(_load(path, frozenset()), path)


def read_frame(paths: tuple[Path, ...], wanted: frozenset[str] | None = None) -> Frame:
    """All that the files of one moment hold, of the arrays only those `wanted`. Parts are joined where they meet."""
    path = paths[0]
    found = [_load(one, wanted) for one in paths]
    whole = found[0] if len(found) == 1 else _joined(found, paths)
    arrays: dict[tuple[Centring, str], np.ndarray] = {}
    kinds: tuple[tuple[Centring, Any, int], ...] = (
        ("node", whole.GetPointData(), whole.GetNumberOfPoints()),
        ("cell", whole.GetCellData(), whole.GetNumberOfCells()),
    )
    for centring, data, count in kinds:
        for name, values in _arrays(data).items():
            if len(values) != count:
                raise DatasetError(
                    f"{path}: array {name!r} has {len(values)} values for {count} {centring}s. The file is damaged."
                )
            arrays[centring, name] = values
    pieces = len(paths) > 1 or path.suffix.lower() in (".pvtu", ".pvtp")
    try:
        geometry = _geometry(whole, arrays, pieces)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    return Frame(geometry, arrays, _time_of(whole, path))


def _load(path: Path, wanted: frozenset[str] | None) -> Any:
    """VTK's object for one file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file is missing.")
    if path.suffix.lower() not in READERS:
        return _load_legacy(path)
    reader = _xml_reader(path)
    with complaints(str(path)):
        reader.UpdateInformation()
        if wanted is not None:
            for chosen in (reader.GetPointDataArraySelection(), reader.GetCellDataArraySelection()):
                for k in range(chosen.GetNumberOfArrays()):
                    name = chosen.GetArrayName(k)
                    chosen.SetArraySetting(name, name in wanted or name == "vtkGhostType")
        reader.Update()
        return reader.GetOutputDataObject(0)


def _xml_reader(path: Path) -> Any:
    reader = getattr(vtk().xml, READERS[path.suffix.lower()])()
    reader.SetFileName(str(path))
    return reader


def _load_legacy(path: Path) -> Any:
    """A legacy file, read from memory with one array more at its end: cut-off text is otherwise taken as numbers."""
    tools = vtk()
    text = path.read_bytes()
    open_end = bool(text[-1:].strip())
    binary = b"BINARY" in text[:400].upper().split(b"DATASET")[0]
    text += f"\nFIELD end 1\n{_END} 1 1 int\n".encode() + (b"\0\0\0\7\n" if binary else b"7\n")
    with complaints(str(path)):
        sniffer = tools.legacy.vtkGenericDataObjectReader()
        sniffer.SetFileName(str(path))
        kind = tools.model.vtkDataObjectTypes.GetClassNameFromTypeId(sniffer.ReadOutputType())
        reader = None
        if kind in _LEGACY:
            reader = getattr(tools.legacy, _LEGACY[kind])()
            reader.ReadFromInputStringOn()
            reader.SetBinaryInputString(text, len(text))
            for what in ("Scalars", "Vectors", "Normals", "Tensors", "TCoords", "Fields"):
                getattr(reader, f"ReadAll{what}On")()
            reader.Update()
    if reader is None:
        raise DatasetError(
            f"{path}: the file is no data set on a grid or mesh that VTK knows (it is {kind})."
        )
    found = reader.GetOutput()
    ends = [data.GetArray(_END) for data in (found.GetPointData(), found.GetCellData(), found.GetFieldData())]
    if all(end is None for end in ends):
        raise DatasetError(f"{path}: the file is damaged or cut off: VTK lost its way before the end.")
    for data in (found.GetPointData(), found.GetCellData(), found.GetFieldData()):
        data.RemoveArray(_END)
    if open_end and not binary:
        warnings.warn(
            f"{path}: the text does not end with a line end; if it was cut off there, its last number is wrong.",
            UserWarning,
            stacklevel=2,
        )
    return found


def _joined(parts: list[Any], paths: tuple[Path, ...]) -> Any:
    from vtkmodules.vtkFiltersCore import vtkAppendFilter

    names = [
        {(k, n) for k, data in enumerate((p.GetPointData(), p.GetCellData())) for n in _arrays(data)}
        for p in parts
    ]
    for path, found in zip(paths, names, strict=True):
        if found != names[0]:
            raise DatasetError(f"{path}: holds other arrays than {paths[0]}, a part of the same moment.")
    join = vtkAppendFilter()
    for part in parts:
        join.AddInputData(part)
    with complaints(str(paths[0])):
        join.Update()
    return join.GetOutput()


def _arrays(data: Any) -> dict[str, np.ndarray]:
    """The numeric arrays of point, cell or field data by name."""
    to_numpy, found = vtk().numpy.vtk_to_numpy, {}
    for k in range(data.GetNumberOfArrays()):
        array = data.GetArray(k)
        if array is not None and array.GetName():
            found[array.GetName()] = np.asarray(to_numpy(array))
    return found


def _time_of(found: Any, path: Path) -> float | None:
    known = {name.lower(): values for name, values in _arrays(found.GetFieldData()).items()}
    for name in TIME_NAMES:
        if name in known:
            values = known[name].reshape(-1)
            if values.size != 1 or not np.isfinite(values[0]):
                raise DatasetError(f"{path}: field data {name!r} must be one finite time; got {values[:3]}.")
            return float(values[0])
    return None


def _geometry(found: Any, arrays: dict[tuple[Centring, str], np.ndarray], pieces: bool) -> Geometry:
    """Places from VTK's object; `vtkGhostType` is taken out of the arrays and becomes land or missing cells."""
    to_numpy = vtk().numpy.vtk_to_numpy
    node_flags, cell_flags = (arrays.pop((c, "vtkGhostType"), None) for c in ("node", "cell"))
    if found.IsA("vtkUnstructuredGrid") or found.IsA("vtkPolyData"):
        kept = None if cell_flags is None else (cell_flags & (_COPIED_CELL | _HIDDEN_CELL)) == 0
        cells = sort_cells(found, kept)
        return merge_points(cells) if pieces else cells
    hidden = {
        "hidden_nodes": None if node_flags is None else (node_flags & _HIDDEN_NODE) > 0,
        "hidden_cells": None if cell_flags is None else (cell_flags & _HIDDEN_CELL) > 0,
    }
    if found.IsA("vtkImageData"):
        matrix = found.GetDirectionMatrix()
        turn = np.array([[matrix.GetElement(i, j) for j in range(3)] for i in range(3)])
        extent, shape = found.GetExtent(), found.GetDimensions()
        steps = [(extent[2 * k] + np.arange(shape[k])) * found.GetSpacing()[k] for k in range(3)]
        if np.array_equal(turn, np.diag(np.diag(turn))):
            axes = tuple(found.GetOrigin()[k] + turn[k, k] * steps[k] for k in range(3))
            return Lattice(axes, (2, 1, 0), **hidden)
        turned = np.stack(np.meshgrid(*steps[::-1], indexing="ij"), -1)[..., ::-1] @ turn.T
        return Curved(turned + np.asarray(found.GetOrigin()), **hidden)
    if found.IsA("vtkRectilinearGrid"):
        given = (found.GetXCoordinates(), found.GetYCoordinates(), found.GetZCoordinates())
        return Lattice(tuple(np.asarray(to_numpy(axis)).astype(float) for axis in given), (2, 1, 0), **hidden)
    if found.IsA("vtkStructuredGrid"):
        points = np.asarray(to_numpy(found.GetPoints().GetData())).astype(float)
        extent = np.array(found.GetExtent()).reshape(3, 2)
        return Curved(points.reshape(*(np.ptp(extent, axis=1) + 1)[::-1], 3), **hidden)
    raise DatasetError(f"a {found.GetClassName()} cannot be read as a field")

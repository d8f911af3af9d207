"""The process that runs VTK's own readers: it reads requests, and answers each with arrays.

It runs as a script and imports nothing of jaxtrace, so that it starts fast. A request is a line of JSON with the path, the name
of the reader, the number of the time step, the names of the arrays (null for all), and the bytes and seconds that it may take.
The answer is a line of JSON, followed by the bytes of the arrays that it lists.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

READERS = {
    "legacy": ("vtkIOLegacy", "vtkDataSetReader"),
    "EnSight": ("vtkIOEnSight", "vtkGenericEnSightReader"),
    "OpenFOAM": ("vtkIOGeometry", "vtkOpenFOAMReader"),
    "Exodus": ("vtkIOExodus", "vtkExodusIIReader"),
    "CGNS": ("vtkIOCGNSReader", "vtkCGNSReader"),
}
"""Module and class of VTK by the name of the format."""
_POISON = 0xFE
"""What fresh memory holds in this process (by `MALLOC_PERTURB_`): VTK leaves values as they are where a file ends too early."""


class FileError(Exception):
    """VTK cannot use a file."""


class Complaints:
    """What VTK would print."""

    def __init__(self) -> None:
        from vtkmodules import vtkCommonCore as core

        self.window = core.vtkStringOutputWindow()
        core.vtkOutputWindow.SetInstance(self.window)
        core.vtkLogger.SetStderrVerbosity(core.vtkLogger.VERBOSITY_OFF)
        self.seen = 0

    def new(self) -> list[str]:
        """Lines since the last call."""
        output = self.window.GetOutput()  # bytes where it quotes some that are no UTF-8
        text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output
        found, self.seen = text[self.seen :], len(text)
        return [line.strip() for line in found.splitlines() if line.strip()]

    def check(self) -> None:
        """Raise for errors; some readers only warn where they lost data: "Generic Warning: … Error reading binary data!"."""
        lines = self.new()
        if any(line.startswith("ERROR") or "Error reading" in line or "EOF" in line for line in lines):
            raise FileError(_plain(lines))


def _plain(lines: list[str]) -> str:
    """What VTK says of a file, without the names of its classes, lines of its sources and addresses in memory."""
    heads = ("ERROR:", "Warning:", "Generic Warning:")
    # The first line of each message: objects of VTK follow some, attribute by attribute.
    first = [
        line
        for head, line in pairwise(["ERROR:", *lines])
        if head.startswith(heads) and not line.startswith(heads)
    ]
    told = [line.partition("): ")[2] or line for line in first]
    of_file = [line.rstrip(" !.") for line in told if not line.startswith("Algorithm ")]
    if of_file:
        return "; ".join(dict.fromkeys(of_file[:2]))
    if any("did not create output" in line for line in told):
        return "it holds no data set that VTK knows"
    return "it is cut off, or not of the format that its name says"


def make_reader(path: str, kind: str) -> Any:
    """A reader with all its arrays on and its information read."""
    import importlib

    module, name = READERS[kind]
    try:
        reader = getattr(importlib.import_module(f"vtkmodules.{module}"), name)()
    except (ImportError, AttributeError) as error:
        raise FileError(f"this build of VTK has no reader of {kind}") from error
    (reader.SetCaseFileName if kind == "EnSight" else reader.SetFileName)(path)
    if kind == "legacy":
        for what in ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars", "TCoords", "Fields"):
            getattr(reader, f"ReadAll{what}On")()
    if kind == "OpenFOAM":
        reader.CreateCellToPointOff()
        reader.SkipZeroTimeOff()
    reader.UpdateInformation()
    if kind == "OpenFOAM":
        reader.DisableAllPatchArrays()
        reader.EnableAllCellArrays()
        reader.SetPatchArrayStatus("internalMesh", 1)
    elif kind == "Exodus":
        for block in (reader.NODAL, reader.ELEM_BLOCK):
            reader.SetAllArrayStatus(block, 1)
    elif kind == "CGNS":
        reader.EnableAllPointArrays()
        reader.EnableAllCellArrays()
    return reader


def time_steps(reader: Any) -> list[float]:
    """The times that a file declares."""
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as pipeline

    facts = reader.GetOutputInformation(0)
    key = pipeline.TIME_STEPS()
    return [facts.Get(key, k) for k in range(facts.Length(key))] if facts.Has(key) else []


def parts(found: Any) -> Iterator[Any]:
    """The data sets of an output, those in blocks one after the other."""
    if found is None:
        return
    if not hasattr(found, "GetNumberOfBlocks"):
        if found.IsA("vtkDataSet"):
            yield found
        return
    for k in range(found.GetNumberOfBlocks()):
        yield from parts(found.GetBlock(k))


def arrays_of(found: Any, wanted: list[str] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One data set as plain facts and arrays."""
    from vtkmodules.util.numpy_support import vtk_to_numpy

    kind = found.GetClassName().removeprefix("vtk")
    kind = {"StructuredPoints": "ImageData", "UniformGrid": "ImageData"}.get(kind, kind)
    facts: dict[str, Any] = {"kind": kind, "unread": []}
    arrays: dict[str, np.ndarray] = {}
    if kind in ("ImageData", "RectilinearGrid", "StructuredGrid"):
        facts["extent"] = found.GetExtent()
    if kind == "ImageData":
        facts["origin"], facts["spacing"] = found.GetOrigin(), found.GetSpacing()
        matrix = found.GetDirectionMatrix()
        facts["direction"] = [matrix.GetElement(i, j) for i in range(3) for j in range(3)]
    elif kind == "RectilinearGrid":
        for name in "XYZ":
            arrays[f"axis/{name}"] = vtk_to_numpy(getattr(found, f"Get{name}Coordinates")())
    elif kind in ("StructuredGrid", "UnstructuredGrid", "PolyData"):
        points = found.GetPoints()
        arrays["points"] = np.zeros((0, 3)) if points is None else vtk_to_numpy(points.GetData())
    else:
        raise FileError(f"it holds {kind}, which is no grid or mesh")
    groups: list[tuple[int, Any]] = []
    if kind == "UnstructuredGrid" and found.GetNumberOfCells():
        arrays["types"] = np.array([found.GetCellType(k) for k in range(found.GetNumberOfCells())])
        groups = [(0, found.GetCells())]
    elif kind == "PolyData":
        named = (("Verts", 1), ("Lines", 3), ("Polys", 7), ("Strips", 6))
        groups = [(code, getattr(found, f"Get{word}")()) for word, code in named]
    for code, cells in groups:
        if cells is not None and cells.GetNumberOfCells():
            arrays[f"offsets/{code}"] = vtk_to_numpy(cells.GetOffsetsArray())
            arrays[f"corners/{code}"] = vtk_to_numpy(cells.GetConnectivityArray())
    for centring, data in (
        ("node", found.GetPointData()),
        ("cell", found.GetCellData()),
        ("field", found.GetFieldData()),
    ):
        for k in range(data.GetNumberOfArrays()):
            array, name = data.GetArray(k), data.GetArrayName(k) or f"array {k}"
            if array is None:  # texts
                continue
            if wanted is not None and centring != "field" and name not in (*wanted, "vtkGhostType"):
                facts["unread"].append([centring, name, array.GetNumberOfComponents(), ""])
            else:
                arrays[f"{centring}/{name}"] = vtk_to_numpy(array)
    for name, array in arrays.items():
        if (
            array.dtype.kind == "f"
            and np.all(np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8) == _POISON, -1).any()
        ):
            raise FileError(f"it ends before the last values of {name!r}")
    return facts, arrays


def refuse_doubles(reader: Any, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Take out arrays that a legacy file holds several times: VTK keeps the last one."""
    listed = Counter(
        getattr(reader, f"Get{what}NameInFile")(k)
        for what in ("Scalars", "Vectors", "Normals", "Tensors")
        for k in range(getattr(reader, f"GetNumberOf{what}InFile")())
    )
    for name, count in listed.items():
        found = [centring for centring in ("node", "cell") if f"{centring}/{name}" in arrays]
        if count > len(found):
            for centring in found:
                values = arrays.pop(f"{centring}/{name}")
                width = values.shape[1] if values.ndim > 1 else 1
                facts["unread"].append([centring, name, width, "is there several times; leave one of them"])


def answer(request: dict[str, Any], complaints: Complaints) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Header and arrays for one request."""
    complaints.new()
    reader = make_reader(request["path"], request["reader"])
    times = time_steps(reader)
    complaints.check()
    header: dict[str, Any] = {"times": times, "parts": []}
    if request.get("only_times"):
        return header, []
    step = request.get("step") or 0
    if times:
        reader.UpdateTimeStep(times[step])
    else:
        reader.Update()
    complaints.check()
    sent: list[np.ndarray] = []
    for part in parts(reader.GetOutputDataObject(0)):
        if not part.GetNumberOfPoints() and not header["parts"]:
            continue
        facts, arrays = arrays_of(part, request.get("wanted"))
        if request["reader"] == "legacy":
            refuse_doubles(reader, facts, arrays)
        facts["arrays"] = [[name, a.dtype.str, a.shape] for name, a in arrays.items()]
        header["parts"].append(facts)
        sent += [np.ascontiguousarray(a) for a in arrays.values()]
    return header, sent


def limit(memory: int, seconds: int) -> None:
    """Limit the memory (bytes) and processor time (seconds) that this process may still take; Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + 1 + seconds}
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + memory
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    complaints = Complaints()
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        try:
            limit(request["memory"], request["seconds"])
            header, arrays = answer(request, complaints)
        except FileError as error:
            header, arrays = {"error": str(error)[:300]}, []
        except MemoryError:
            header, arrays = {"error": "it needs more memory than such a file may take"}, []
        except Exception as error:  # noqa: BLE001 (VTK raises many kinds)
            header, arrays = {"error": f"{type(error).__name__}: {str(error)[:280]}"}, []
        answers.write(json.dumps(header).encode() + b"\n")
        for array in arrays:
            answers.write(array.data.cast("B") if array.size else b"")
        answers.flush()


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")  # VTK itself may print to the standard output
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()

"""VTK's particle tracer on the common job, on the regular grid or on tetrahedra, fed by a source written in Python.

VTK takes two Runge–Kutta steps between two time slices, whatever is asked: 40 steps for the job's 21 slices. With
`refine=5` the source offers five times as many slices, blended linearly beforehand, which for a tracer linear in time
is the same field: then VTK takes the job's 200 steps.
"""

from pathlib import Path
from typing import Any

import job
import numpy as np
import worker
from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray, vtk_to_numpy
from vtkmodules.util.vtkAlgorithm import VTKPythonAlgorithmBase
from vtkmodules.vtkCommonCore import vtkPoints, vtkSMPTools, vtkVersion
from vtkmodules.vtkCommonDataModel import (
    VTK_TETRA,
    vtkCellArray,
    vtkImageData,
    vtkPolyData,
    vtkUnstructuredGrid,
)
from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as Pipeline
from vtkmodules.vtkFiltersFlowPaths import vtkParticleTracer

RK4 = 1


class Slices(VTKPythonAlgorithmBase):
    """A source with time: the same grid with other velocities."""

    def __init__(self, grid: Any, times: np.ndarray, velocities: list[Any]) -> None:
        super().__init__(nInputPorts=0, nOutputPorts=1, outputType=grid.GetClassName())
        self.grid, self.times, self.velocities = grid, times, velocities

    def RequestInformation(self, request: Any, inputs: Any, outputs: Any) -> int:
        information = outputs.GetInformationObject(0)
        information.Set(Pipeline.TIME_STEPS(), self.times.tolist(), len(self.times))
        information.Set(Pipeline.TIME_RANGE(), [self.times[0], self.times[-1]], 2)
        if hasattr(self.grid, "GetExtent"):
            information.Set(Pipeline.WHOLE_EXTENT(), self.grid.GetExtent(), 6)
        return 1

    def RequestData(self, request: Any, inputs: Any, outputs: Any) -> int:
        information = outputs.GetInformationObject(0)
        time = information.Get(Pipeline.UPDATE_TIME_STEP())
        number = int(np.abs(self.times - time).argmin())
        output = information.Get(self.grid.DATA_OBJECT())
        output.ShallowCopy(self.grid)
        output.GetPointData().SetVectors(self.velocities[number])
        output.GetInformation().Set(self.grid.DATA_TIME_STEP(), self.times[number])
        return 1


class Vtk:
    """`mesh` names a folder with points and tets; without one the job's regular grid is used."""

    def __init__(self, folder: Path, mesh: str | None = None, refine: int = 1) -> None:
        vtkSMPTools.SetBackend("STDThread")  # the wheels' default is one thread
        velocities = np.load((folder / mesh if mesh else folder) / "velocities.npy")
        slices = len(velocities)
        if mesh is None:
            grid, counts = vtkImageData(), velocities.shape[1:4]
            grid.SetDimensions(*counts)
            grid.SetSpacing(*((job.HIGH - job.LOW) / (np.array(counts) - 1)))
            velocities = velocities.transpose(0, 3, 2, 1, 4)  # VTK numbers x fastest
        else:
            grid = _tets(np.load(folder / mesh / "points.npy"), np.load(folder / mesh / "tets.npy"))
        rows = velocities.reshape(slices, -1, 3)
        self.arrays = [
            _named(_between(rows, share)) for share in np.arange((slices - 1) * refine + 1) / refine
        ]
        self.source = Slices(grid, job.slice_times(len(self.arrays)), self.arrays)
        self.seeds = np.load(folder / "seeds.npy")
        self.steps_taken = 0

    def versions(self) -> dict[str, str]:
        threads = f"{vtkSMPTools.GetBackend()}, {vtkSMPTools.GetEstimatedNumberOfThreads()} threads"
        return {"vtk": vtkVersion.GetVTKVersion(), "threads": threads, "numpy": np.__version__}

    def run(self, n: int, steps: int) -> np.ndarray:
        start, points = vtkPolyData(), vtkPoints()
        points.SetData(numpy_to_vtk(self.seeds[:n].astype(np.float32), deep=True))
        start.SetPoints(points)
        self.source.Modified()
        tracer = vtkParticleTracer()
        tracer.SetInputConnection(0, self.source.GetOutputPort())
        tracer.SetInputData(1, start)
        tracer.SetIntegratorType(RK4)
        tracer.SetMeshOverTimeToStatic()
        tracer.SetComputeVorticity(False)
        tracer.SetTerminalSpeed(0.0)
        end = job.SPAN[0] + steps * job.DT
        tracer.UpdateTimeStep(end)
        result = tracer.GetOutput()
        data = result.GetPointData()
        ids = vtk_to_numpy(data.GetArray("InjectedPointId") or data.GetArray("ParticleId"))
        places = np.full((n, 3), np.nan, np.float32)
        if len(ids):
            places[ids] = vtk_to_numpy(result.GetPoints().GetData())
        self.steps_taken = 2 * int(np.searchsorted(self.source.times, end - 1e-9))
        return places


def _between(rows: np.ndarray, at: float) -> np.ndarray:
    """The slice at a fractional number, linear between its neighbours."""
    below = min(int(at), len(rows) - 2)
    share = np.float32(at - below)
    return (1 - share) * rows[below] + share * rows[below + 1]


def _named(rows: np.ndarray) -> Any:
    array = numpy_to_vtk(np.ascontiguousarray(rows), deep=True)
    array.SetName("velocity")
    return array


def _tets(points: np.ndarray, tets: np.ndarray) -> Any:
    grid, places, cells = vtkUnstructuredGrid(), vtkPoints(), vtkCellArray()
    places.SetData(numpy_to_vtk(points.astype(np.float32), deep=True))
    offsets = np.arange(0, 4 * len(tets) + 1, 4)
    cells.SetData(
        numpy_to_vtkIdTypeArray(offsets, deep=True),
        numpy_to_vtkIdTypeArray(tets.ravel().astype(np.int64), deep=True),
    )
    grid.SetPoints(places)
    grid.SetCells(VTK_TETRA, cells)
    return grid


if __name__ == "__main__":
    worker.serve(Vtk)

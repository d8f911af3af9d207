"""Trajectories for ParaView: path lines in one `.vtp`, and a `.pvd` with one `.vtp` of points for each recorded time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxworlds.store import atomic_write

from ...fields.epoch import Epoch
from ...tracking.trajectory import Trajectory
from .window import complaints, vtk

_NAMES = {"ages": "age", "velocities": "velocity", "generation": "generation"}


def write_paths(trajectory: Trajectory, path: Path) -> None:
    """The path of each particle as a line; a slot that is filled again begins a new one.

    A line begins where the particle was released and ends where it ended. Points carry time, age and velocity, lines the
    particle's identity, outcome, patch and time of release. Field data say the date of time 0, where it is known.
    """
    positions = _positions(trajectory)
    particle, moment, start = _segments(trajectory, positions)
    owner = particle[start[:-1]]
    along = {"time": trajectory.times[moment]}
    along |= _values_at(trajectory, ("ages", "velocities"), moment, particle)
    lines = {
        "id": trajectory.ids[owner],
        "outcome": trajectory.outcomes[owner],
        "patch": trajectory.patches[owner],
        "release_time": trajectory.release_times[owner],
        **_values_at(trajectory, ("generation",), moment[start[:-1]], owner),
    }
    _write(path, positions[moment, particle], start, along, lines, epoch=trajectory.epoch)


def write_frames(trajectory: Trajectory, path: Path) -> None:
    """A collection: the particles on their way at each recorded time as points, and all paths beside it."""
    positions = _positions(trajectory)
    folder = path.with_name(f"{path.stem}_frames")
    digits = len(str(max(len(trajectory) - 1, 1)))
    rows = []
    for k, time in enumerate(trajectory.times):
        here = np.arange(trajectory.particles)
        if trajectory.alive is not None:
            here = np.flatnonzero(trajectory.alive[k])
        values = {"id": trajectory.ids[here]}
        values |= _values_at(trajectory, ("ages", "velocities", "generation"), k, here)
        name = f"{path.stem}_{k:0{digits}d}.vtp"
        start = np.arange(len(here) + 1)
        _write(folder / name, positions[k, here], start, values, {}, float(time), trajectory.epoch)
        rows.append(
            f'    <DataSet timestep="{float(time)!r}" part="0" file={quoteattr(f"{folder.name}/{name}")}/>'
        )
    write_paths(trajectory, path.with_name(f"{path.stem}_paths.vtp"))
    head, foot = '<VTKFile type="Collection" version="1.0">', "  </Collection>\n</VTKFile>\n"
    text = "\n".join(['<?xml version="1.0"?>', head, "  <Collection>", *rows, foot])
    with atomic_write(path, "w") as file:  # last, so that it never lists a missing file
        file.write(text)


def _positions(trajectory: Trajectory) -> Float[np.ndarray, "times particles dim"]:
    if trajectory.positions is None:
        raise ValueError(
            "`trajectory` has no positions, only a reduction. Track with keep_positions=True, or save to .npz."
        )
    return trajectory.positions


def _values_at(
    trajectory: Trajectory, fields: Sequence[str], moment: Any, particle: Any
) -> dict[str, np.ndarray]:
    """Arrays of a trajectory at some moments and particles, by the names they get in files; those that it has."""
    found = {_NAMES[field]: getattr(trajectory, field) for field in fields}
    return {name: values[moment, particle] for name, values in found.items() if values is not None}


def _segments(
    trajectory: Trajectory, positions: Float[np.ndarray, "times particles dim"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " lines1"]]:
    """Particle and moment of each point of the lines, and where each line starts among them (and the last ends)."""
    particle, moment = np.nonzero(_on_path(trajectory, positions).T)
    new = np.ones(len(particle), bool)
    new[1:] = (np.diff(particle) != 0) | (np.diff(moment) != 1)
    if trajectory.generation is not None:
        new[1:] |= np.diff(trajectory.generation[moment, particle]) != 0
    length = np.diff(np.append(np.flatnonzero(new), len(particle)))
    keep = np.repeat(length > 1, length)  # a single point is no line
    return particle[keep], moment[keep], np.append(0, np.cumsum(length[length > 1]))


def _on_path(
    trajectory: Trajectory, positions: Float[np.ndarray, "times particles dim"]
) -> Bool[np.ndarray, "times n"]:
    """Which moments belong to a path: those on the way, the one where it ended, and the one before the first step."""
    alive = trajectory.alive
    if alive is None:
        return np.ones(positions.shape[:2], bool)
    shown = alive.copy()
    shown[1:] |= alive[:-1]
    same = True if trajectory.generation is None else trajectory.generation[1:] == trajectory.generation[:-1]
    shown[:-1] |= alive[1:] & same
    return shown


def _write(
    path: Path,
    points: Float[np.ndarray, "n dim"],
    start: Int[np.ndarray, " cells1"],
    on_points: dict[str, np.ndarray],
    on_cells: dict[str, np.ndarray],
    time: float | None = None,
    epoch: Epoch | None = None,
) -> None:
    """One `.vtp` whose cells are the runs of points between the numbers in `start`; dates are texts in its field data.

    Cells with values are lines, those without are single points.
    """
    tools = vtk()
    found, places, cells = tools.model.vtkPolyData(), tools.core.vtkPoints(), tools.model.vtkCellArray()
    places.SetData(_array(tools, points))
    found.SetPoints(places)
    to_ids = tools.numpy.numpy_to_vtkIdTypeArray
    cells.SetData(
        to_ids(np.ascontiguousarray(start, np.int64), deep=1),
        to_ids(np.arange(len(points), dtype=np.int64), deep=1),
    )
    (found.SetLines if on_cells else found.SetVerts)(cells)
    facts = {} if time is None else {"TimeValue": np.array([time])}
    if epoch is not None:
        facts["date_of_time_0"] = np.array([str(epoch)])
    if epoch is not None and time is not None:
        facts["date"] = np.array([epoch.text(time)])
    for data, arrays in (
        (found.GetPointData(), on_points),
        (found.GetCellData(), on_cells),
        (found.GetFieldData(), facts),
    ):
        for name, values in arrays.items():
            data.AddArray(_array(tools, values, name))
    writer = tools.xml.vtkXMLPolyDataWriter()
    writer.SetInputData(found)
    writer.SetDataModeToAppended()
    writer.EncodeAppendedDataOff()
    writer.WriteToOutputStringOn()  # a full disk is then met by our own write, which says so
    with complaints(str(path)):
        written = writer.Write()
    if written != 1:
        raise OSError(f"{path}: VTK could not write the paths.")
    made = writer.GetOutputString()  # as text VTK gives only what is UTF-8
    with atomic_write(path) as file:
        file.write(made if isinstance(made, bytes) else made.encode("utf-8"))


def _array(tools: Any, values: np.ndarray, name: str | None = None) -> Any:
    """An array of VTK; vectors get zeros for the coordinates they lack."""
    if values.dtype.kind in "iufb":
        if values.ndim == 2:
            values = np.pad(values, ((0, 0), (0, 3 - values.shape[1])))
        found = tools.numpy.numpy_to_vtk(np.ascontiguousarray(values), deep=1)
    else:  # particles may have names
        found = tools.core.vtkStringArray()
        for one in values.tolist():
            found.InsertNextValue(str(one))
    if name:
        found.SetName(name)
    return found

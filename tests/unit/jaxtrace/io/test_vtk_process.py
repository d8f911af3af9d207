"""VTK's own readers in a process of their own: other formats open, and a crash of VTK is one clear error."""

import re
from pathlib import Path

import numpy as np
import pytest

from jaxtrace.io import DatasetError, open_dataset
from jaxtrace.io.vtk import process as vtk_process

pytest.importorskip("vtkmodules.vtkCommonCore", reason="vtk is not installed")
pytestmark = pytest.mark.usefixtures("quick_compile")
DATA = Path(__file__).resolve().parents[5] / "shared/data/trace"
LEGACY = (
    "# vtk DataFile Version 3.0\nflow\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS 2 2 2\nORIGIN 0 0 0\nSPACING 1 1 1\n"
    "POINT_DATA 8\nVECTORS velocity float\n" + "1 2 3\n" * 8
)


def data(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    return path


def ensight(folder: Path) -> Path:
    """Two moments of a flow on one hexahedron."""
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    columns = "\n".join(f"{corner[axis]:12.5e}" for axis in range(3) for corner in corners)
    row = "".join(f"{k + 1:10d}" for k in range(8))
    (folder / "a.geo").write_text(
        f"a\nb\nnode id assign\nelement id assign\npart\n{1:10d}\nbox\ncoordinates\n{8:10d}\n{columns}\nhexa8\n{1:10d}\n{row}\n"
    )
    for number in range(2):
        values = "\n".join(f"{k + number:12.5e}" for k in (1, 2, 3) for _ in range(8))
        (folder / f"a.vel{number}").write_text(f"velocity\npart\n{1:10d}\ncoordinates\n{values}\n")
    (folder / "a.case").write_text(
        "FORMAT\ntype: ensight gold\nGEOMETRY\nmodel: a.geo\nVARIABLE\nvector per node: 1 velocity a.vel*\nTIME\n"
        "time set: 1\nnumber of steps: 2\nfilename start number: 0\nfilename increment: 1\ntime values: 0.5 2.0\n"
    )
    return folder / "a.case"


def test_ensight_with_time_steps(tmp_path: Path) -> None:
    opened = open_dataset(ensight(tmp_path))
    np.testing.assert_allclose(opened.times, [0.5, 2.0])
    assert opened.name(1).endswith("a.case[1]")
    for number in range(2):
        np.testing.assert_allclose(opened.read(number), [[1 + number, 2 + number, 3 + number]] * 8)


def cgns(path: Path) -> Path:
    """Two moments of a flow on 3 × 2 × 2 nodes, written as the CGNS standard maps its nodes to HDF5."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")

    def described(group, name: str, label: str, kind: str):
        for key, word, size in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
            group.attrs[key] = np.array(word, f"S{size}")
        return group

    def node(parent, name: str, label: str, value=None):
        """A node of CGNS: a group with name, label and type of data, and a data set called " data"."""
        values = np.frombuffer(value.encode(), np.int8) if isinstance(value, str) else np.asarray(value)
        kind = (
            "MT"
            if value is None
            else {"int8": "C1", "int32": "I4", "float32": "R4", "float64": "R8"}[str(values.dtype)]
        )
        made = described(parent.create_group(name, track_order=True), name, label, kind)
        made.attrs["flags"] = np.array([1], np.int32)
        if value is not None:
            made[" data"] = values
        return made

    z, y, x = np.meshgrid([0.0, 1], [0.0, 2], [0.0, 1, 3], indexing="ij")
    with h5py.File(path, "w", track_order=True) as file:
        described(file, "HDF5 MotherNode", "Root Node of HDF5 File", "MT")
        file[" format"] = np.frombuffer(b"IEEE_LITTLE_32\0", np.int8)
        file[" hdf5version"] = np.frombuffer(b"HDF5 Version 1.8.7".ljust(33, b"\0"), np.int8)
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", np.float32([3.4]))
        base = node(file, "Base", "CGNSBase_t", np.int32([3, 3]))
        zone = node(base, "Zone", "Zone_t", np.int32([[3, 2, 2], [2, 1, 1], [0, 0, 0]]))
        node(zone, "ZoneType", "ZoneType_t", "Structured")
        grid = node(zone, "GridCoordinates", "GridCoordinates_t")
        for axis, values in zip("XYZ", (x, y, z), strict=True):
            node(grid, f"Coordinate{axis}", "DataArray_t", values)
        for number in range(2):
            solution = node(zone, f"Flow{number}", "FlowSolution_t")
            node(solution, "GridLocation", "GridLocation_t", "Vertex")
            for place, axis in enumerate("XYZ"):
                node(solution, f"Velocity{axis}", "DataArray_t", x + place + number)
        times = node(base, "Times", "BaseIterativeData_t", np.int32([2]))
        node(times, "TimeValues", "DataArray_t", np.float64([0.5, 2.0]))
        pointers = np.frombuffer(b"".join(f"Flow{number}".ljust(32).encode() for number in range(2)), np.int8)
        steps = node(zone, "ZoneTimes", "ZoneIterativeData_t")
        node(steps, "FlowSolutionPointers", "DataArray_t", pointers.reshape(2, 32))
    return path


def test_cgns_with_time_steps(tmp_path: Path) -> None:
    opened = open_dataset(cgns(tmp_path / "a.cgns"))
    np.testing.assert_allclose(opened.times, [0.5, 2.0])
    assert "3 × 2 × 2 nodes" in str(opened)
    for number in range(2):
        right = [[x + number, x + number + 1, x + number + 2] for x in (0, 1, 3)]
        np.testing.assert_allclose(opened.read(number), right * 4)


def test_a_cgns_file_cut_off_is_an_error(tmp_path: Path) -> None:
    path = cgns(tmp_path / "a.cgns")
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(DatasetError, match=r"a\.cgns: "):
        open_dataset(path)


def test_openfoam_with_time_steps_and_values_of_cells() -> None:
    path = data("openfoam_cavity/cavity/case.foam")
    opened = open_dataset(path, cell_data="nearest")
    np.testing.assert_allclose(opened.times, [0, 0.5, 1, 1.5, 2, 2.5])
    text = (path.parent / "2.5/U").read_text().partition("internalField")[2].partition("boundaryField")[0]
    right = [[float(word) for word in row.split()] for row in re.findall(r"\(([-\d.e+ ]+)\)", text)]
    assert len(right) == 400
    np.testing.assert_allclose(opened.read(5), right, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vtk_cfd/cylinder_Re35.case", "mesh of 14,831 nodes"),
        ("vtk_cfd/disk_out_ref.ex2", r"mesh of 8,499 nodes \(7,472 hexahedron\)"),
        ("vtk_cfd/carotid.vtk", "lattice of 76 × 49 × 45 nodes"),
    ],
)
def test_files_of_other_programs(name: str, said: str) -> None:
    velocity = "vectors" if "carotid" in name else None
    opened = open_dataset(data(name), velocity=velocity)
    assert re.search(said, str(opened))
    assert np.isfinite(opened.read(0)).all()


def test_a_crash_is_one_clear_error_and_the_next_file_is_read(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.vtk"
    path.write_text(LEGACY)
    script = tmp_path / "crash.py"
    script.write_text("import os, sys\nprint('ready', flush=True)\nsys.stdin.readline()\nos.abort()\n")
    with monkeypatch.context() as patch:
        patch.setattr(vtk_process, "SCRIPT", script)
        patch.setattr(vtk_process, "_VTK", vtk_process.VtkProcess())
        with pytest.raises(
            DatasetError, match=r"a\.vtk: VTK crashed \(SIGABRT\)\. The file is damaged or too large"
        ):
            open_dataset(path)
        patch.setattr(vtk_process, "SECONDS", 0.5)
        script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
        with pytest.raises(DatasetError, match=r"a\.vtk: VTK did not end within 0 seconds|within 1 seconds"):
            open_dataset(path)
        patch.setattr(vtk_process, "SCRIPT", tmp_path / "gone.py")
        with pytest.raises(
            DatasetError, match=r"VTK's process ended with status 2; is the package vtk whole"
        ):
            open_dataset(path)
    np.testing.assert_allclose(open_dataset(path).read(0), [[1, 2, 3]] * 8)


def test_memory_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "a.vtk"
    path.write_text(
        LEGACY.replace("DIMENSIONS 2 2 2", "DIMENSIONS 2000 2000 2000").replace(
            "POINT_DATA 8", f"POINT_DATA {2000**3}"
        )
    )
    with pytest.raises(DatasetError, match=r"a\.vtk: "):
        open_dataset(path)
    path.write_text(LEGACY)
    np.testing.assert_allclose(open_dataset(path).read(0), [[1, 2, 3]] * 8)


def test_the_process_is_reused(tmp_path: Path) -> None:
    (tmp_path / "a.vtk").write_text(LEGACY)
    open_dataset(tmp_path / "a.vtk")
    process = vtk_process._VTK._process
    assert process is not None
    open_dataset(tmp_path / "a.vtk")
    assert vtk_process._VTK._process is process


def test_memory_is_limited_by_the_size_of_the_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.vtk"
    path.write_text(LEGACY.replace("2 2 2", "200 200 200").replace("POINT_DATA 8", "POINT_DATA 8000000"))
    monkeypatch.setattr(vtk_process, "MEMORY", 32 << 20)
    with pytest.raises(DatasetError, match=r"a\.vtk: VTK cannot use the file: Unable to allocate"):
        open_dataset(path)

"""VTK series: every format gives back the linear field that was written, and every damage is told."""

import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from jaxtrace.fields import (
    CurvilinearGrid,
    Mesh,
    RectilinearGrid,
    StreamedField,
    UniformGrid,
    UnstructuredGrid,
)
from jaxtrace.fields.streams import SliceError
from jaxtrace.io import DatasetError, load_optimized_dataset, open_dataset
from jaxtrace.io.geometry import in_dimensions
from jaxtrace.io.vtk.cells import sort_cells
from jaxtrace.io.vtk.data import VtkData
from jaxtrace.io.vtk.frames import read_frame

vtk_core = pytest.importorskip("vtkmodules.vtkCommonCore", reason="vtk is not installed")
from vtkmodules import vtkCommonDataModel as model  # noqa: E402
from vtkmodules import vtkIOLegacy, vtkIOXML  # noqa: E402
from vtkmodules.util.numpy_support import numpy_to_vtk  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compile")
DATA = Path(__file__).resolve().parents[5] / "shared/data/trace"
TIMES = (0.0, 0.5, 0.75, 2.0, 3.0)
RNG = np.random.default_rng(7)
A, B, C, D = (RNG.uniform(-1, 1, s) for s in ((3,), (3, 3), (3,), (3, 3)))
# Numbers of VTK's cell types.
TRIANGLE, STRIP, POLYGON, PIXEL, QUAD, TETRA, VOXEL, HEXAHEDRON, WEDGE, PYRAMID = (
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
)


def linear(x, t):
    """A velocity linear in space and time: every interpolation must give it back. In the plane, no flow across."""
    x = np.asarray(x, float)
    flow = A + x @ B.T + t * (C + x @ D.T)
    return flow * [1, 1, 0] if x.ndim > 1 and len(x) > 1 and np.ptp(x[..., 2]) == 0 else flow


def attach(found, t, *, centring="node", name="velocity", time="TimeValue", dtype="f8"):
    """The linear field at time `t` as point or cell data of a VTK object, and the time itself."""
    at = np.array([found.GetPoint(i) for i in range(found.GetNumberOfPoints())])
    if centring == "cell":
        at = np.array([at[cell_nodes(found, i)].mean(0) for i in range(found.GetNumberOfCells())])
    array = numpy_to_vtk(np.ascontiguousarray(linear(at, t), dtype), deep=1)
    array.SetName(name)
    (found.GetPointData() if centring == "node" else found.GetCellData()).AddArray(array)
    if time:
        clock = numpy_to_vtk(np.array([t], "f8"), deep=1)
        clock.SetName(time)
        found.GetFieldData().AddArray(clock)
    return found


def cell_nodes(found, i):
    ids = vtk_core.vtkIdList()
    found.GetCellPoints(i, ids)
    return [ids.GetId(k) for k in range(ids.GetNumberOfIds())]


def image(shape=(5, 4, 3)):
    found = model.vtkImageData()
    found.SetExtent(2, 1 + shape[0], 0, shape[1] - 1, -1, shape[2] - 2)
    found.SetOrigin(-1.0, 0.5, 2.0)
    found.SetSpacing(0.5, 0.25, 0.75)
    return found


def rectilinear(shape=(5, 4, 3)):
    found = model.vtkRectilinearGrid()
    found.SetDimensions(*shape)
    for k, name in enumerate("XYZ"):
        getattr(found, f"Set{name}Coordinates")(
            numpy_to_vtk(np.linspace(0.1, 1, shape[k]) ** (1.3 + 0.2 * k), deep=1)
        )
    return found


def points_of(points):
    found = vtk_core.vtkPoints()
    found.SetData(numpy_to_vtk(np.ascontiguousarray(points, "f8"), deep=1))
    return found


def curved(shape=(5, 4, 3), height=0.0):
    """A structured grid whose x-fastest nodes bend."""
    axes = [np.linspace(0, 1, n) if n > 1 else np.zeros(1) for n in shape[::-1]]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    bent = np.stack([x + 0.1 * np.sin(2 * y), y + 0.1 * x * x, z + 0.1 * x * (shape[2] > 1) + height], -1)
    found = model.vtkStructuredGrid()
    found.SetDimensions(*shape)
    found.SetPoints(points_of(bent.reshape(-1, 3)))
    return found


def bricks(shape, low=0.0, high=1.0):
    """Nodes x-fastest and the bricks (or, in a plane, quads) between them, numbered as VTK's hexahedra."""
    axes = [np.linspace(low, high, n) for n in shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    number = np.arange(points[..., 0].size).reshape(shape)
    cut = [slice(None, -1), slice(1, None)]
    square = [(0, 0), (1, 0), (1, 1), (0, 1)]
    corners = square if len(shape) == 2 else [(*c, t) for t in (0, 1) for c in square]
    cells = np.stack([number[tuple(cut[c] for c in corner)].ravel() for corner in corners], -1)
    points = points.reshape(-1, len(shape))
    return (np.c_[points, np.full(len(points), 0.25)] if len(shape) == 2 else points), cells


def mesh(points, groups):
    """An unstructured grid of cells given as (type, nodes)."""
    found = model.vtkUnstructuredGrid()
    found.SetPoints(points_of(points))
    cells, types = model.vtkCellArray(), []
    for kind, nodes in groups:
        for row in np.atleast_2d(nodes):
            cells.InsertNextCell(len(row), [int(i) for i in row])
            types.append(kind)
    found.SetCells(numpy_to_vtk(np.array(types, "u1"), deep=1, array_type=vtk_core.VTK_UNSIGNED_CHAR), cells)
    return found


def skewed(points):
    """Nodes moved by a linear map and a little at random, boundary and all: faces bend."""
    jitter = np.random.default_rng(3).uniform(-0.03, 0.03, points.shape)
    if np.ptp(points[:, 2]) == 0:
        jitter[:, 2] = 0
        return points @ np.array([[1, 0.2, 0], [-0.1, 1, 0], [0, 0, 1]]) + jitter
    return points @ np.array([[1, 0.2, 0.1], [-0.1, 1, 0.2], [0, 0.1, 0.9]]) + jitter


KUHN = [[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]


def mesh_of(kind):
    """A small mesh of one VTK cell type."""
    flat, quads = bricks((4, 4))
    solid, hexes = bricks((4, 4, 4))
    if kind == QUAD:
        return mesh(skewed(flat), [(kind, quads)])
    if kind == TRIANGLE:
        return mesh(skewed(flat), [(kind, quads[:, [0, 1, 2]]), (kind, quads[:, [0, 2, 3]])])
    if kind == TETRA:
        return mesh(skewed(solid), [(kind, hexes[:, tet]) for tet in KUHN])
    return mesh(skewed(solid), [(HEXAHEDRON, hexes)])


def plane_of_all():
    """A strip of squares, one for each flat cell type, one of them with two nodes on its edge."""
    flat, quads = bricks((6, 3))
    rows = quads.reshape(5, 2, 4)
    ends = rows[4, 0], rows[4, 1]
    extra = len(flat)
    points = np.r_[
        flat, [(flat[ends[0][1]] + flat[ends[0][2]]) / 2], [(flat[ends[0][0]] + flat[ends[0][1]]) / 2]
    ]
    return mesh(
        points,
        [
            (TRIANGLE, np.r_[rows[0][:, [0, 1, 2]], rows[0][:, [0, 3, 2]]]),
            (STRIP, rows[1][:, [0, 1, 3, 2]]),
            (PIXEL, rows[2][:, [0, 1, 3, 2]]),
            (QUAD, rows[3]),
            (POLYGON, [ends[0][0], extra + 1, ends[0][1], extra, ends[0][2], ends[0][3]]),
            (POLYGON, ends[1]),
            (3, [0, 1]),
        ],
    )


def block_of_all():
    """A row of slabs, one for each solid cell type."""
    solid, hexes = bricks((6, 3, 3))
    slabs = hexes.reshape(5, 4, 8)
    tips = len(solid) + np.arange(4)
    faces = [[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
    return mesh(
        np.r_[solid, solid[slabs[3]].mean(1)],
        [
            (HEXAHEDRON, slabs[0]),
            (VOXEL, slabs[1][:, [0, 1, 3, 2, 4, 5, 7, 6]]),
            (WEDGE, np.r_[slabs[2][:, [0, 1, 2, 4, 5, 6]], slabs[2][:, [0, 2, 3, 4, 6, 7]]]),
            *((PYRAMID, np.c_[slabs[3][:, face], tips]) for face in faces),
            *((TETRA, slabs[4][:, tet]) for tet in KUHN),
            (TRIANGLE, slabs[0][:, [0, 1, 2]]),
        ],
    )


WRITERS = {
    "vtkImageData": ("vti", vtkIOXML.vtkXMLImageDataWriter),
    "vtkRectilinearGrid": ("vtr", vtkIOXML.vtkXMLRectilinearGridWriter),
    "vtkStructuredGrid": ("vts", vtkIOXML.vtkXMLStructuredGridWriter),
    "vtkUnstructuredGrid": ("vtu", vtkIOXML.vtkXMLUnstructuredGridWriter),
    "vtkPolyData": ("vtp", vtkIOXML.vtkXMLPolyDataWriter),
}


def write(found, path, mode="appended"):
    """One file: XML (appended, binary or ascii by `mode`) or legacy by its suffix."""
    if path.suffix == ".vtk":
        writer = vtkIOLegacy.vtkDataSetWriter()
        writer.SetFileTypeToASCII() if mode == "ascii" else writer.SetFileTypeToBinary()
    else:
        writer = WRITERS[found.GetClassName()][1]()
        writer.SetDataMode({"ascii": 0, "binary": 1, "appended": 2}[mode])
    writer.SetFileName(str(path))
    writer.SetInputData(found)
    assert writer.Write() == 1
    return path


def series(folder, make, suffix=None, mode="appended", times=TIMES, **options):
    """Files whose names sort otherwise as text than as numbers; returns their glob."""
    for number, t in zip((1, 2, 9, 10, 100), times, strict=True):
        found = attach(make(), t, **options)
        write(found, folder / f"flow_{number}.{suffix or WRITERS[found.GetClassName()][0]}", mode)
    return folder / f"flow_*.{suffix or WRITERS[found.GetClassName()][0]}"


def load(pattern, **options):
    return load_optimized_dataset(pattern, verbose=False, **options)


def points_within(found, n=40):
    """Random points of random cells, as means of their corners."""
    rng = np.random.default_rng(5)
    at = np.array([found.GetPoint(i) for i in range(found.GetNumberOfPoints())])
    cells = [cell_nodes(found, i) for i in rng.integers(0, found.GetNumberOfCells(), n)]
    return np.array([rng.dirichlet(np.ones(len(c))) @ at[c] for c in cells])


def assert_linear(field, x, times=TIMES, tolerance=2e-5):
    """The field has the times of the files and gives back the linear flow between nodes and between slices."""
    np.testing.assert_allclose(np.asarray(field.times), times, rtol=1e-6)
    for t in (times[0], 0.5 * (times[1] + times[2]), times[-1]):
        found = np.asarray(field(x[:, : field.dim].astype("f4"), t))
        np.testing.assert_allclose(found, linear(x, t)[:, : field.dim], atol=tolerance)


def assert_rows_linear(opened, rows=slice(None)):
    """Each row holds the flow at the place the grid gives it: the order is right, whatever samples it later."""
    np.testing.assert_allclose(opened.times, TIMES)
    at = np.asarray(opened.grid.positions)
    for k in (0, 3):
        flow = linear(np.c_[at, np.full(len(at), 0.25)] if opened.grid.dim == 2 else at, TIMES[k])
        np.testing.assert_allclose(opened.read(k)[rows], flow[rows, : opened.grid.dim], atol=1e-5)


@pytest.mark.parametrize("suffix", [None, "vtk"])
@pytest.mark.parametrize(
    ("make", "grid"), [(image, UniformGrid), (rectilinear, RectilinearGrid), (curved, CurvilinearGrid)]
)
def test_structured_series(tmp_path, make, grid, suffix):
    field = load(series(tmp_path, make, suffix))
    assert isinstance(field.grid, grid)
    assert field.data.shape == (5, 60, 3)
    assert field.time_interpolation == "cubic"
    assert_linear(field, points_within(make()))


@pytest.mark.parametrize("mode", ["ascii", "binary"])
@pytest.mark.parametrize("suffix", ["vti", "vtk"])
def test_text_and_inline_files(tmp_path, suffix, mode):
    assert_linear(load(series(tmp_path, image, suffix, mode)), points_within(image()))


@pytest.mark.parametrize("make", [image, rectilinear])
def test_cell_data_of_structured_grids(tmp_path, make):
    field = load(series(tmp_path, make, centring="cell"))
    assert field.data.shape[1] == 4 * 3 * 2
    assert_linear(field, points_within(make()))


@pytest.mark.parametrize("make", [image, rectilinear])
def test_flat_grids_become_two_dimensional(tmp_path, make):
    field = load(series(tmp_path, lambda: make((5, 4, 1))))
    assert field.dim == 2
    assert_linear(field, points_within(make((5, 4, 1))))


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_flat_curved_grids(tmp_path, centring):
    opened = open_dataset(series(tmp_path, lambda: curved((5, 4, 1), 0.25), centring=centring))
    assert isinstance(opened.grid, CurvilinearGrid)
    assert opened.grid.size == (20 if centring == "node" else 12)
    assert_rows_linear(opened)


def test_a_plane_across_y_keeps_x_and_z(tmp_path):
    found = image((5, 1, 3))
    rows = np.array([found.GetPoint(i) for i in range(15)])
    array = numpy_to_vtk(np.c_[rows[:, 2], 0 * rows[:, 0], rows[:, 0]], deep=1)
    array.SetName("velocity")
    found.GetPointData().AddArray(array)
    path = write(found, tmp_path / "plane.vti")
    field = load(path)
    np.testing.assert_allclose(field(np.array([0.3, 2.0], "f4"), 0.0), [2.0, 0.3], atol=1e-6)
    whole = load(path, dim=3)
    assert whole.dim == 3
    np.testing.assert_allclose(whole(np.array([0.3, 7.0, 2.0], "f4"), 0.0), [2.0, 0, 0.3], atol=1e-6)


def test_flow_across_a_flat_grid_is_kept_or_dropped_only_on_request(tmp_path):
    found = image((5, 4, 1))
    array = numpy_to_vtk(np.tile([[1.0, 2.0, 3.0]], (20, 1)), deep=1)
    array.SetName("velocity")
    found.GetPointData().AddArray(array)
    path = write(found, tmp_path / "plane.vti")
    with pytest.raises(DatasetError, match=r"plane\.vti.*crosses it with up to 3.*dim=2"):
        load(path)
    np.testing.assert_allclose(load(path, dim=2)(np.array([0.5, 1.0], "f4"), 0.0), [1, 2])
    np.testing.assert_allclose(load(path, dim=3)(np.array([0.5, 1.0, 0.0], "f4"), 0.0), [1, 2, 3])


@pytest.mark.parametrize("suffix", ["vtu", "vtk"])
@pytest.mark.parametrize("make", [plane_of_all, block_of_all])
def test_meshes_of_all_cell_types(tmp_path, make, suffix):
    field = load(series(tmp_path, make, suffix))
    found = make()
    assert isinstance(field.grid, UnstructuredGrid)
    assert field.dim == (3 if make is block_of_all else 2)
    assert field.data.shape[1] == found.GetNumberOfPoints()
    x = points_within(found, 400)
    assert_linear(field, x, tolerance=5e-5)


def test_cell_data_of_meshes(tmp_path):
    pattern = series(tmp_path, lambda: mesh_of(QUAD), suffix="vtk", centring="cell")
    assert_rows_linear(
        open_dataset(pattern, interpolation="nearest")
    )  # one value for each cell, at its middle
    opened = open_dataset(pattern)
    assert opened.grid.size == 16
    inner = [5, 6, 9, 10]  # nodes with cells on all sides: there the node values are exact
    assert_rows_linear(opened, inner)


def test_legacy_polygons_and_their_strips(tmp_path):
    flat, quads = bricks((4, 4))

    def plane():
        found = model.vtkPolyData()
        found.SetPoints(points_of(skewed(flat)))
        polys, strips = model.vtkCellArray(), model.vtkCellArray()
        for row in quads[:5]:
            polys.InsertNextCell(4, [int(i) for i in row])
        for row in quads[5:]:
            strips.InsertNextCell(4, [int(i) for i in row[[0, 1, 3, 2]]])
        found.SetPolys(polys)
        found.SetStrips(strips)
        return found

    for suffix in ("vtk", "vtp"):
        (tmp_path / suffix).mkdir()
        opened = open_dataset(series(tmp_path / suffix, plane, suffix))
        assert "8 triangle, 5 quad" in str(opened) or "5 quad, 8 triangle" in str(opened)
        flow = linear(np.c_[opened.grid.positions, np.full(16, 0.25)], TIMES[2])[:, :2]
        np.testing.assert_allclose(opened.read(2), flow, atol=1e-5)
        assert wall_count(tmp_path / suffix / f"flow_1.{suffix}") == 12


def test_cell_data_stay_with_their_cells(tmp_path):
    """Cells are sorted by kind, pyramids cut, faces beside volumes left out: each value must follow its cell."""
    found = attach(block_of_all(), 0.0, centring="cell")
    frame = read_frame((write(found, tmp_path / "a.vtu"),))
    cells, rows = frame.geometry.cells, frame.arrays["cell", "velocity"][frame.geometry.cell_rows]
    assert {name: len(nodes) for name, nodes in cells.items()} == {
        "tetra": 24 + 48,
        "hexahedron": 8,
        "wedge": 8,
    }
    middles = np.concatenate([frame.geometry.points[nodes].mean(1) for nodes in cells.values()])
    whole = np.ones(len(rows), bool)
    whole[24:72] = False  # pyramids come after the tetrahedra they are cut into
    np.testing.assert_allclose(rows[whole], linear(middles, 0.0)[whole], atol=1e-6)
    # A pyramid's value lies at the mean of its five corners, in both of its halves.
    halves = rows[~whole]
    assert len(halves) == 48
    assert len(np.unique(halves, axis=0)) == 24


def test_pyramids_are_cut_as_their_neighbours():
    """Two pyramids on one base, listed from different corners: both are cut along the diagonal of the lowest."""
    points = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1], [0.5, 0.5, -1]]
    found = VtkData(
        "UnstructuredGrid",
        points=np.array(points, float),
        types=np.full(2, PYRAMID),
        offsets=np.array([0, 5, 10]),
        corners=np.array([1, 2, 3, 0, 4, 2, 1, 0, 3, 5]),
    )
    cells = sort_cells(found, None)
    assert sorted(map(sorted, cells.cells["tetra"].tolist())) == [
        [0, 1, 2, 4],
        [0, 1, 2, 5],
        [0, 2, 3, 4],
        [0, 2, 3, 5],
    ]


def pieces(folder, name, t, points, hexes):
    """Two halves of a brick that share nodes, the second with a copy of a cell of the first, as a .pvtu."""
    half = len(hexes) // 2
    parts = [(hexes[:half], 0), (np.r_[hexes[:1], hexes[half:]], 1)]
    for k, (cells, ghosts) in enumerate(parts):
        used, local = np.unique(cells, return_inverse=True)
        found = attach(mesh(points[used], [(HEXAHEDRON, local.reshape(cells.shape))]), t)
        flags = np.zeros(len(cells), "u1")
        flags[:ghosts] = 1
        array = numpy_to_vtk(flags, deep=1, array_type=vtk_core.VTK_UNSIGNED_CHAR)
        array.SetName("vtkGhostType")
        found.GetCellData().AddArray(array)
        write(found, folder / f"{name}_{k}.vtu")
    text = f"""<VTKFile type="PUnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt32">
    <PUnstructuredGrid GhostLevel="1"><PPointData><PDataArray type="Float64" Name="velocity" NumberOfComponents="3"/>
    </PPointData><PCellData><PDataArray type="UInt8" Name="vtkGhostType"/></PCellData>
    <PPoints><PDataArray type="Float64" NumberOfComponents="3"/></PPoints>
    <Piece Source="{name}_0.vtu"/><Piece Source="{name}_1.vtu"/></PUnstructuredGrid></VTKFile>"""
    (folder / f"{name}.pvtu").write_text(text)


def wall_count(*paths):
    """How many faces have nothing behind them: more of them where pieces do not hold together."""
    geometry, _ = in_dimensions(read_frame(paths).geometry, None)
    return len(Mesh(geometry.points, geometry.cells).boundary_faces().cell)


def test_pieces_are_joined_where_they_meet(tmp_path):
    solid, hexes = bricks((4, 4, 4))
    solid = skewed(solid)
    for k, t in enumerate(TIMES):
        pieces(tmp_path, f"step{k}", t, solid, hexes)
    opened = open_dataset(tmp_path / "*.pvtu")
    assert opened.grid.size == 64  # the 16 nodes in common were made one
    np.testing.assert_allclose(opened.times, TIMES)
    for k, t in enumerate(TIMES):
        np.testing.assert_allclose(opened.read(k), linear(opened.grid.positions, t), atol=1e-5)
    assert wall_count(tmp_path / "step0.pvtu") == 54
    collection = [
        f'<DataSet timestep="{t}" part="{p}" file="step{k}_{p}.vtu"/>'
        for k, t in enumerate(TIMES)
        for p in (0, 1)
    ]
    (tmp_path / "all.pvd").write_text(
        f'<VTKFile type="Collection"><Collection>{"".join(collection)}</Collection></VTKFile>'
    )
    joined = open_dataset(tmp_path / "all.pvd")
    np.testing.assert_array_equal(joined.read(3), opened.read(3))
    assert wall_count(tmp_path / "step0_0.vtu", tmp_path / "step0_1.vtu") == 54
    (tmp_path / "step2_1.vtu").unlink()
    with pytest.raises((DatasetError, FileNotFoundError), match=r"step2"):
        load(tmp_path / "*.pvtu")


def test_the_times_of_a_collection_rule(tmp_path):
    for k, t in enumerate(TIMES):
        write(attach(image(), t, time=None), tmp_path / f"f{k}.vti")
    rows = "".join(
        f'<DataSet timestep="{t}" group="" part="0" file="f{k}.vti"/>'
        for k, t in reversed(list(enumerate(TIMES)))
    )
    (tmp_path / "run.pvd").write_text(
        f'<?xml version="1.0"?><VTKFile type="Collection"><Collection>{rows}</Collection></VTKFile>'
    )
    assert_linear(load(tmp_path / "run.pvd"), points_within(image()))
    (tmp_path / "run.vti.series").write_text(
        '{"file-series-version": "1.0", "files": ['
        + ", ".join(f'{{"name": "f{k}.vti", "time": {t}}}' for k, t in enumerate(TIMES))
        + "]}"
    )
    assert_linear(load(tmp_path / "run.vti.series"), points_within(image()))
    (tmp_path / "f3.vti").unlink()
    with pytest.raises(FileNotFoundError, match=r"run\.pvd.*f3\.vti at time 2"):
        load(tmp_path / "run.pvd")
    (tmp_path / "run.pvd").write_text('<VTKFile type="Collection"><Collection><DataSet file="f0')
    with pytest.raises(DatasetError, match=r"run\.pvd.*cannot be read"):
        load(tmp_path / "run.pvd")


@pytest.mark.parametrize("suffix", ["vti", "vtk"])
def test_times_stand_under_several_names(tmp_path, suffix):
    field = load(series(tmp_path, image, suffix, time="TIME", times=(5.0, 4.0, 3.0, 2.0, 1.0)))
    np.testing.assert_allclose(field.times, [1, 2, 3, 4, 5])  # sorted by time, not by name
    x = points_within(image())
    np.testing.assert_allclose(field(x.astype("f4"), 1.0), linear(x, 1.0), atol=1e-5)


def test_files_without_times(tmp_path):
    pattern = series(tmp_path, image, time=None)
    with pytest.warns(UserWarning, match=r"flow_1\.vti.*slice numbers 0 … 4 stand in"):
        field = load(pattern)
    np.testing.assert_array_equal(field.times, np.arange(5))
    x = points_within(image())  # natural order: 1, 2, 9, 10, 100
    np.testing.assert_allclose(field(x.astype("f4"), 3.0), linear(x, TIMES[3]), atol=1e-5)
    assert_linear(load(pattern, times=TIMES), x)
    with pytest.raises(ValueError, match=r"`times` must hold 5 rising numbers"):
        load(pattern, times=[0, 1, 2])


def test_contradictory_times(tmp_path):
    pattern = series(tmp_path, image, times=(0.0, 1.0, 1.0, 2.0, 3.0))
    with pytest.raises(DatasetError, match=r"flow_2\.vti and .*flow_9\.vti both hold the time 1"):
        load(pattern)
    write(attach(image(), 0.0, time=None), tmp_path / "flow_9.vti")
    with pytest.raises(DatasetError, match=r"flow_9\.vti: the file holds no time, but 4 of 5 do"):
        load(pattern)


def test_slices_are_chosen_by_time_and_number(tmp_path):
    pattern = series(tmp_path, image)
    np.testing.assert_allclose(load(pattern, time_range=(0.6, 1.0)).times, [0.5, 0.75, 2.0])
    np.testing.assert_allclose(load(pattern, time_range=(0.75, 2.0)).times, [0.75, 2.0])
    with pytest.warns(UserWarning, match="keeps 3 of 5 slices"):
        field = load(pattern, max_time_steps=3)
    np.testing.assert_allclose(field.times, [0.0, 0.75, 3.0])
    with pytest.raises(ValueError, match=r"`time_range` must meet the times of the files, 0 to 3; got \(4"):
        load(pattern, time_range=(4.0, 5.0))
    # What is not chosen is not read.
    (tmp_path / "flow_100.vti").write_bytes((tmp_path / "flow_100.vti").read_bytes()[:-300])
    np.testing.assert_allclose(load(pattern, time_range=(0.0, 0.5)).times, [0.0, 0.5])
    with pytest.raises(ValueError, match=r"60 values × 3 × 4 bytes = 0\.00072 MB"):
        load(pattern, max_memory_per_timestep_mb=0.0005)


def test_a_series_too_large_for_memory_is_streamed(tmp_path, capsys):
    pattern = series(tmp_path, image)
    field = load(pattern)
    for options in (
        {"stream": True},
        {"memory_limit_gb": 5 * 720 / 2**30},
    ):  # five slices of 720 bytes, half is too few
        streamed = load_optimized_dataset(pattern, **options)
        assert isinstance(streamed, StreamedField)
        assert ", streamed." in capsys.readouterr().out
        np.testing.assert_array_equal(streamed.load().data, field.data)
    assert not isinstance(load(pattern, memory_limit_gb=1.0), StreamedField)
    (tmp_path / "flow_9.vti").write_bytes((tmp_path / "flow_9.vti").read_bytes()[:-300])
    with pytest.raises(SliceError, match=r"slice 2 \(time 0\.75, .*flow_9\.vti\) cannot be used: .*damaged"):
        streamed.read(2)


def test_half_and_double_precision(tmp_path):
    pattern = series(tmp_path, image)
    half = load(pattern, dtype="float16")
    assert half.data.dtype == "float16"
    assert half.grid.origin.dtype == "float32"
    assert_linear(half, points_within(image()), tolerance=5e-2)
    with pytest.raises(ValueError, match=r"jaxtrace\.configure\(dtype='float64'\)"):
        load(pattern, dtype="float64")


def test_nodes_at_rest_are_kept(tmp_path):
    """The original dropped them from the velocities but not from the positions."""
    found = image((6, 6, 6))
    at = np.array([found.GetPoint(i) for i in range(216)])
    still = (at == at.min(0)).any(1) | (at == at.max(0)).any(1)
    array = numpy_to_vtk(np.where(still[:, None], 0.0, linear(at, 0.0)), deep=1)
    array.SetName("velocity")
    found.GetPointData().AddArray(array)
    field = load(write(found, tmp_path / "a.vti"))
    assert field.data.shape == (1, 216, 3)
    assert field.positions.shape == (216, 3)
    assert int(np.sum(~np.any(np.asarray(field.data[0]) != 0, -1))) == still.sum() > 100
    np.testing.assert_allclose(field.positions, at, atol=1e-6)


def test_the_velocity_is_found_by_rule_and_said(tmp_path, capsys):
    found = attach(image(), 0.0, name="U")
    for name, width in (("pressure", 1), ("Normals", 3), ("gradU", 9)):
        array = numpy_to_vtk(np.ones((60, width)), deep=1)
        array.SetName(name)
        found.GetPointData().AddArray(array)
    path = write(found, tmp_path / "a.vti")
    load_optimized_dataset(path)
    assert "velocity 'U' (node data, the only vector named like a velocity)" in capsys.readouterr().out
    found.GetPointData().GetArray("U").SetName("flux")
    write(found, path)
    assert "velocity 'flux' (node data, the only vector)" in str(open_dataset(path))
    array = numpy_to_vtk(np.full((60, 3), 2.0), deep=1)
    array.SetName("slip")
    found.GetPointData().AddArray(array)
    write(found, path)
    with pytest.raises(DatasetError, match=r"a\.vti: several arrays may be the velocity: flux, slip"):
        load(path)
    np.testing.assert_allclose(load(path, velocity="slip").data, 2.0)
    with pytest.raises(DatasetError, match=r"a\.vti: there is no array 'speed'.*pressure \(1\)"):
        load(path, velocity="speed")
    with pytest.raises(DatasetError, match=r"'pressure' has 1 components; a velocity has 2 or 3"):
        load(path, velocity="pressure")
    field = load(path, velocity=("pressure", None, "pressure"))
    np.testing.assert_allclose(field.data[0, 0], [1, 0, 1])


def test_scalar_components_are_found(tmp_path):
    found = image()
    at = np.array([found.GetPoint(i) for i in range(60)])
    for k, name in enumerate(("Velocity_X", "Velocity_Y", "Velocity_Z")):
        array = numpy_to_vtk(np.ascontiguousarray(linear(at, 0.0)[:, k]), deep=1)
        array.SetName(name)
        found.GetPointData().AddArray(array)
    x = points_within(found)
    field = load(write(found, tmp_path / "a.vti"))
    np.testing.assert_allclose(field(x.astype("f4"), 0.0), linear(x, 0.0), atol=1e-5)


def test_a_grid_that_changes_is_refused(tmp_path):
    pattern = series(tmp_path, lambda: mesh_of(TETRA))
    other = mesh_of(TETRA)
    other.GetPoints().SetPoint(5, 0.1, 0.2, 0.3)
    write(attach(other, TIMES[2]), tmp_path / "flow_9.vtu")
    with pytest.raises(DatasetError, match=r"flow_9\.vtu: the grid differs from that of .*flow_1\.vtu"):
        load(pattern)
    write(attach(mesh_of(HEXAHEDRON), TIMES[2]), tmp_path / "flow_9.vtu")
    with pytest.raises(DatasetError, match=r"flow_9\.vtu: the grid differs.*27 hexahedron"):
        load(pattern)


def test_an_array_that_comes_and_goes_is_refused(tmp_path):
    pattern = series(tmp_path, image)
    write(attach(image(), TIMES[2], name="vorticity"), tmp_path / "flow_9.vti")
    with pytest.raises(DatasetError, match=r"flow_9\.vti: there is no node array 'velocity' here"):
        load(pattern)


def test_values_that_are_not_finite_are_refused(tmp_path):
    found = attach(image(), 0.0)
    found.GetPointData().GetArray("velocity").SetComponent(17, 1, np.nan)
    with pytest.raises(DatasetError, match=r"a\.vti: velocity 'velocity' must be finite; 1 of 60.*number 17"):
        load(write(found, tmp_path / "a.vti"))


@pytest.mark.parametrize(
    ("name", "mode", "make"),
    [
        ("a.vti", "ascii", image),
        ("a.vti", "binary", image),
        ("a.vti", "appended", image),
        ("a.vtu", "appended", lambda: mesh_of(TETRA)),
        ("a.vtk", "ascii", image),
        ("a.vtk", "binary", image),
        ("a.vtk", "ascii", lambda: mesh_of(QUAD)),
        ("a.vtk", "binary", lambda: mesh_of(QUAD)),
    ],
)
def test_a_file_cut_anywhere_is_refused(tmp_path, capfd, name, mode, make):
    """VTK itself fills the rest of a cut legacy file with whatever lies in memory, and says nothing."""
    whole = write(attach(make(), 0.0), tmp_path / name, mode).read_bytes()
    right = np.asarray(open_dataset(tmp_path / name).read(0))
    # The last bytes of the velocities, in front of what VTK writes after them.
    tail = whole.rfind(b"METADATA") if b"METADATA" in whole else len(whole)
    for cut in [*np.linspace(0.02, 0.98, 13) * len(whole), tail - 12, tail - 3]:
        (tmp_path / name).write_bytes(whole[: int(cut)])
        try:
            found = open_dataset(tmp_path / name).read(0)
        except (DatasetError, UserWarning) as error:
            assert name in str(error)  # noqa: PT017 - either the file is refused by name, or nothing was lost
        else:
            np.testing.assert_array_equal(found, right)
            assert cut >= tail or (cut > 0.9 * len(whole) and name != "a.vtk")  # only closing marks are gone
    assert "ERR" not in capfd.readouterr().err


def test_what_is_missing_or_foreign_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file matches `pattern`.*nothing_\*\.vtu"):
        load(tmp_path / "nothing_*.vtu")
    with pytest.raises(DatasetError, match=r"is a folder"):
        load(tmp_path)
    (tmp_path / "a.stl").write_text("solid")
    with pytest.raises(DatasetError, match=r"a\.stl: files ending in '\.stl' are not read; known are \.vti"):
        load(tmp_path / "a.stl")
    (tmp_path / "a.vtu").write_text("not XML at all")
    with pytest.raises(DatasetError, match=r"a\.vtu: the file cannot be used"):
        load(tmp_path / "a.vtu")
    (tmp_path / "a.vtk").write_text("not VTK at all")
    with pytest.raises(DatasetError, match=r"a\.vtk"):
        load(tmp_path / "a.vtk")
    with pytest.raises(DatasetError, match=r"match files of one kind.*\.stl, \.vtk, \.vtu"):
        load(tmp_path / "a.*")


def test_cells_that_no_mesh_can_hold_are_named(tmp_path):
    points = np.random.default_rng(0).uniform(0, 1, (10, 3))
    path = write(
        attach(mesh(points, [(24, np.arange(10)), (24, np.arange(10)[::-1])]), 0.0), tmp_path / "a.vtu"
    )
    with pytest.raises(DatasetError, match=r"a\.vtu: 2 cells are of type vtkQuadraticTetra \(24\)"):
        load(path)
    bent = mesh_of(TRIANGLE)
    bent.GetPoints().SetPoint(5, 0.1, 0.2, 0.9)
    with pytest.raises(DatasetError, match=r"b\.vtu: the grid is a surface that does not lie in a plane"):
        load(write(attach(bent, 0.0), tmp_path / "b.vtu"))
    hollow = mesh(
        np.c_[[[0, 0], [2, 0], [2, 2], [1, 0.5], [0, 2]], np.zeros(5)], [(POLYGON, [0, 1, 2, 3, 4])]
    )
    with pytest.raises(DatasetError, match=r"c\.vtu: polygons of 5 corners are not convex"):
        load(write(attach(hollow, 0.0), tmp_path / "c.vtu"))


def test_blanked_cells_are_land(tmp_path):
    found = attach(image(), 0.0)
    flags = np.zeros(24, "u1")
    flags[1] = 32  # hidden: the second cell along x
    array = numpy_to_vtk(flags, deep=1, array_type=vtk_core.VTK_UNSIGNED_CHAR)
    array.SetName("vtkGhostType")
    found.GetCellData().AddArray(array)
    field = load(write(found, tmp_path / "a.vti"))
    x = points_within(found, 200)
    inside = (np.floor((x - [0.0, 0.5, 1.25]) / [0.5, 0.25, 0.75]) == [1, 0, 0]).all(1)
    values = np.asarray(field(x.astype("f4"), 0.0))
    assert 2 < inside.sum() < 40
    assert np.isnan(values[inside]).all()
    np.testing.assert_allclose(values[~inside], linear(x, 0.0)[~inside], atol=1e-5)


def test_turned_images(tmp_path):
    found = image()
    found.SetDirectionMatrix(0, -1, 0, 1, 0, 0, 0, 0, 1)
    field = load(
        series(tmp_path, lambda: (f := image(), f.SetDirectionMatrix(0, -1, 0, 1, 0, 0, 0, 0, 1))[0])
    )
    assert_linear(field, points_within(found))
    found.SetDirectionMatrix(-1, 0, 0, 0, 1, 0, 0, 0, 1)
    write(attach(found, 0.0), tmp_path / "mirror.vti")
    x = points_within(found)
    np.testing.assert_allclose(load(tmp_path / "mirror.vti")(x.astype("f4"), 0.0), linear(x, 0.0), atol=1e-5)


def test_an_origin_can_be_subtracted(tmp_path):
    pattern = series(tmp_path, image)
    field = load(pattern, origin=(1.0, -2.0, 0.5))
    x = points_within(image())
    np.testing.assert_allclose(field((x - [1.0, -2.0, 0.5]).astype("f4"), 0.0), linear(x, 0.0), atol=1e-5)


# --- real files, beside VTK's own probe ---


def probed(found, x, name):
    """What VTK's probe filter says at some points."""
    from vtkmodules.vtkFiltersCore import vtkProbeFilter

    cloud = model.vtkPolyData()
    cloud.SetPoints(points_of(x))
    probe = vtkProbeFilter()
    probe.SetInputData(cloud)
    probe.SetSourceData(found)
    probe.Update()
    data = probe.GetOutput().GetPointData()
    valid = np.array([data.GetArray("vtkValidPointMask").GetValue(i) for i in range(len(x))], bool)
    return np.array([data.GetArray(name).GetTuple(i) for i in range(len(x))]), valid


@pytest.mark.parametrize(
    ("file", "reader", "name", "grid"),
    [
        ("carotid.vtk", "vtkStructuredPointsReader", "vectors", UniformGrid),
        ("kitchen.vtk", "vtkStructuredGridReader", "velocity", RectilinearGrid),
    ],
)
def test_real_grids_beside_vtk(file, reader, name, grid):
    path = DATA / "vtk_cfd" / file
    if not path.exists():
        pytest.skip(f"{path} is not here")
    field = load(path)
    assert isinstance(field.grid, grid)
    source = getattr(vtkIOLegacy, reader)()
    source.SetFileName(str(path))
    source.ReadAllVectorsOn()
    source.Update()
    low, high = np.asarray(field.grid.bounds)
    x = np.random.default_rng(1).uniform(low, high, (2000, 3))
    theirs, valid = probed(source.GetOutput(), x, name)
    ours = np.asarray(field(x.astype("f4"), 0.0))
    assert valid.mean() > 0.99
    apart = np.abs(ours - theirs)[valid].max(-1) / np.abs(theirs).max()
    assert np.quantile(apart, 0.99) < 2e-5
    assert apart.max() < 5e-3  # VTK takes a neighbour's cell for a few points close to a face


def test_real_pieces_with_cell_data(tmp_path):
    archive = DATA / "vtk_cfd/blood_vessels.zip"
    if not archive.exists():
        pytest.skip(f"{archive} is not here")
    zipfile.ZipFile(archive).extractall(tmp_path)
    frame = read_frame((tmp_path / "blood_vessels/T0000000500.pvtu",))
    assert frame.geometry.describe() == "mesh of 47,441 nodes (39,353 hexahedron)"
    assert frame.arrays["cell", "velocity"].shape == (39353, 3)
    first = frame.geometry.points[frame.geometry.cells["hexahedron"]]
    sides = np.ptp(first, axis=1)
    assert np.allclose(sides, sides[0])  # equal cubes: no cell was joined wrongly


def test_nothing_is_printed_or_warned_by_a_sound_series(tmp_path, capfd):
    pattern = series(tmp_path, image)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(pattern)
    assert capfd.readouterr() == ("", "")

"""Values of cells, and nodes that miss some components: what is done is said, counted, and the user's choice."""

import inspect

import numpy as np
import pytest

from jaxtrace.io import DatasetError, load_optimized_dataset, open_dataset

pytestmark = pytest.mark.usefixtures("quick_compile")
X, Y = np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.0, 1.0, 3.0])
MIDDLES = np.stack(
    [m.ravel() for m in np.meshgrid((X[1:] + X[:-1]) / 2, (Y[1:] + Y[:-1]) / 2, indexing="xy")], -1
)
VALUES = np.random.default_rng(2).uniform(-1, 1, (6, 2))


def text(values):
    return " ".join(f"{value:.9g}" for value in np.asarray(values, float).ravel())


def array(name, values, kind="Float64"):
    values = np.asarray(values)
    width = values.shape[1] if values.ndim > 1 else 1
    return f'<DataArray type="{kind}" Name="{name}" NumberOfComponents="{width}" format="ascii">{text(values)}</DataArray>'


def vtk(path, values, *, points=None, hidden=None):
    """A flat grid of 3 × 2 cells as .vtr, .vts or .vtu with the velocities of its cells."""
    flow = np.c_[values, np.zeros(len(values))]
    y, x = np.meshgrid(Y, X, indexing="ij")
    places = np.stack([x, y, 0 * x], -1).reshape(-1, 3)
    flags = "" if hidden is None else array("vtkGhostType", np.where(hidden, 32, 0), "UInt8")
    data = f"<CellData>{array('velocity', flow)}{flags}</CellData>"
    if points is not None:
        data += f"<PointData>{array('velocity', np.c_[points, np.zeros(12)])}</PointData>"
    if path.suffix == ".vtu":
        corners = [[k, k + 1, k + 5, k + 4] for k in (0, 1, 2, 4, 5, 6)]
        kind, extent = "UnstructuredGrid", 'NumberOfPoints="12" NumberOfCells="6"'
        whole = ""
        data += (
            f"<Points>{array('p', places)}</Points><Cells>{array('connectivity', np.ravel(corners), 'Int32')}"
            f"{array('offsets', 4 * np.arange(1, 7), 'Int32')}{array('types', np.full(6, 9), 'UInt8')}</Cells>"
        )
    else:
        kind = {".vtr": "RectilinearGrid", ".vts": "StructuredGrid"}[path.suffix]
        whole, extent = ' WholeExtent="0 3 0 2 0 0"', 'Extent="0 3 0 2 0 0"'
        axes = "".join(array(name, axis) for name, axis in (("x", X), ("y", Y), ("z", [0.0])))
        bent = places + np.c_[0.1 * places[:, 1] ** 2, 0 * places[:, :2]]
        data += (
            f"<Coordinates>{axes}</Coordinates>"
            if path.suffix == ".vtr"
            else f"<Points>{array('p', bent)}</Points>"
        )
    path.write_text(
        f'<VTKFile type="{kind}" version="1.0" byte_order="LittleEndian"><{kind}{whole}><Piece {extent}>{data}</Piece></{kind}>'
        "</VTKFile>"
    )
    return path


def means(values, hidden=None):
    """The mean of the cells around each node, x fastest, in plain loops."""
    made = np.zeros((3, 4, 2))
    for j in range(3):
        for i in range(4):
            around = [(b, a) for b in (j - 1, j) for a in (i - 1, i) if 0 <= b < 2 and 0 <= a < 3]
            around = [3 * b + a for b, a in around if hidden is None or not hidden[3 * b + a]]
            made[j, i] = np.mean([values[k] for k in around], 0) if around else 0
    return made.reshape(-1, 2)


@pytest.mark.parametrize("suffix", ["vtr", "vts", "vtu"])
def test_values_of_cells_by_each_method(tmp_path, suffix):
    path = vtk(tmp_path / f"a.{suffix}", VALUES)
    said = {
        "linear": "plane through the cells around" if suffix == "vtu" else "linear between middles",
        "average": "node values are means of the cells around",
        "nearest": "each cell keeps its value",
    }
    found = {}
    for method, how in said.items():
        opened = open_dataset(path, cell_data=method)
        assert f"cell_data={method!r}: " in str(opened)
        assert how in str(opened)
        found[method] = opened.read(0)
    np.testing.assert_allclose(found["average"], means(VALUES), atol=1e-6)
    np.testing.assert_allclose(found["nearest"], VALUES, atol=1e-6)
    assert "cell_data='linear'" in str(open_dataset(path))
    np.testing.assert_array_equal(open_dataset(path).read(0), found["linear"])
    assert "cell_data='nearest'" in str(open_dataset(path, interpolation="nearest"))
    field = load_optimized_dataset(path, cell_data="nearest", verbose=False)
    inside = (MIDDLES + np.array([0.1, -0.2])).astype("f4")
    np.testing.assert_allclose(field(inside, 0.0), VALUES, atol=1e-6)


def test_linear_values_of_cells_are_exact_by_the_default_only(tmp_path):
    flow = np.stack([1 + MIDDLES[:, 0], MIDDLES[:, 1]], -1)
    for suffix in ("vtr", "vtu"):
        path = vtk(tmp_path / f"a.{suffix}", flow)
        linear, average = (
            load_optimized_dataset(path, cell_data=method, verbose=False) for method in ("linear", "average")
        )
        at = np.array([1.4, 1.2], "f4")
        np.testing.assert_allclose(linear(at, 0.0), [2.4, 1.2], atol=1e-5)
        assert abs(float(average(at, 0.0)[1]) - 1.2) > 0.02


def test_means_leave_hidden_cells_out(tmp_path):
    hidden = np.array([False, True, False, False, False, False])
    path = vtk(tmp_path / "a.vtr", np.where(hidden[:, None], 50.0, VALUES), hidden=hidden)
    np.testing.assert_allclose(
        open_dataset(path, cell_data="average").read(0), means(VALUES, hidden), atol=1e-6
    )


def test_a_method_for_cells_takes_the_cell_data_of_a_name(tmp_path):
    path = vtk(tmp_path / "a.vtr", VALUES, points=np.full((12, 2), 3.0))
    opened = open_dataset(path)
    assert "node data" in str(opened)
    assert "cell data of that name are not used" in str(opened)
    np.testing.assert_allclose(opened.read(0), 3)
    chosen = open_dataset(path, cell_data="nearest")
    assert "node data of that name are not used" in str(chosen)
    np.testing.assert_allclose(chosen.read(0), VALUES, atol=1e-6)
    whole = path.read_text()
    path.write_text(whole[: whole.index("<CellData>")] + whole[whole.index("</CellData>") + 11 :])
    with pytest.raises(
        ValueError, match=r"`cell_data='average'` is for values of cells; 'velocity' are node"
    ):
        open_dataset(path, cell_data="average")
    with pytest.raises(DatasetError, match=r"`cell_data='nearest'` does not go with `interpolation='cubic'`"):
        open_dataset(vtk(tmp_path / "b.vtr", VALUES), cell_data="nearest", interpolation="cubic")
    with pytest.raises(ValueError, match=r"`cell_data` must be one of 'linear', 'average', 'nearest'"):
        inspect.unwrap(open_dataset)(path, cell_data="linea")  # types are checked before in tests


def ocean():
    """Six nodes of land, and three beside it of which one component is missing: u, v, u."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    shape = (2, 4, 5)
    parts = {name: np.full(shape, 1.0 + k) for k, name in enumerate("uv")}
    for part in parts.values():
        part[:, :2, :3] = np.nan
    parts["u"][:, 2, 0] = parts["v"][:, 2, 1] = parts["u"][:, 3, 4] = np.nan
    told = {"units": "m/s"}
    return xarray.Dataset(
        {name: (("time", "y", "x"), part, told) for name, part in parts.items()},
        {
            "time": (("time",), [0.0, 1.0], {"units": "hours"}),
            "x": (("x",), np.arange(5.0), {"units": "m"}),
            "y": (("y",), np.arange(4.0), {"units": "m"}),
        },
    )


def test_nodes_that_miss_one_component_are_counted_and_a_choice():
    data = ocean()
    partly = np.array([10, 11, 19])
    opened = open_dataset(data)
    assert "9 of them land, 3 of these miss only some components (partly_missing='land')" in str(opened)
    np.testing.assert_array_equal(opened.read(0)[partly], 0)
    kept = open_dataset(data, partly_missing="zero")
    assert "6 of them land, 3 others miss only some components (partly_missing='zero')" in str(kept)
    for k in range(2):
        np.testing.assert_array_equal(kept.read(k)[partly], [[0, 2], [1, 0], [0, 2]])
        np.testing.assert_array_equal(
            np.delete(kept.read(k), partly, 0), np.delete(opened.read(k), partly, 0)
        )
    still = open_dataset(data, missing="zero")
    assert "9 of them still (missing), 3 of these miss only some components" in str(still)
    data.v[1, 2, 1] = 5.0  # a component that comes back is no land that changes where it counts as zero
    np.testing.assert_array_equal(open_dataset(data, partly_missing="zero").read(1)[11], [1, 5])
    with pytest.raises(DatasetError, match="the land changes"):
        open_dataset(data).read(1)
    with pytest.raises(ValueError, match=r"`partly_missing` must be one of 'land', 'zero'"):
        inspect.unwrap(open_dataset)(data, partly_missing="keep")
    with pytest.raises(ValueError, match=r"`cell_data='average'` is for VTK files; .* Leave it out"):
        open_dataset(data, cell_data="average")


def test_a_component_that_is_zero_by_name_misses_nothing():
    data = ocean().isel(time=0, drop=True).expand_dims(z=[0.0, 1.0]).copy(deep=True)
    data.z.attrs = {"units": "m", "positive": "up"}
    opened = open_dataset(data, velocity=("u", "v", None), partly_missing="zero")
    assert "12 of them land, 6 others miss only some components" in str(opened)

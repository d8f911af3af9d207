"""Staggered grids: the real reason comes first, and what it advises works."""

import numpy as np
import pytest

from jaxtrace.io import DatasetError, open_dataset

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")

pytestmark = pytest.mark.usefixtures("quick_compile")
NY, NX, NZ = 4, 5, 3
TOLD = {"units": "m s-1"}
REASON = "on different points of a staggered C-grid, .* are not read yet: bring both to common nodes"


def nemo(point, name, *, layers=NZ, depth=None, shift=True):
    """One component as NEMO writes it: a file for each point, with coordinates of the same names in each."""
    y, x = np.meshgrid(np.arange(NY, dtype=float), np.arange(NX, dtype=float), indexing="ij")
    off = {"u": (0.5, 0.0), "v": (0.0, 0.5)}[point] if shift else (0.0, 0.0)
    depth = depth or f"depth{point}"
    flow = 1 + 0.1 * (x + off[0]) + 0.01 * (y + off[1]) if point == "u" else 2 + 0.1 * (x + off[0])
    data = xarray.Dataset(
        {name: (("time_counter", depth, "y", "x"), np.tile(flow, (1, NZ, 1, 1)), TOLD)},
        {
            "nav_lon": (("y", "x"), x + off[0], {"units": "degrees_east"}),
            "nav_lat": (("y", "x"), y + off[1], {"units": "degrees_north"}),
            depth: ((depth,), np.arange(float(NZ)), {"units": "m", "positive": "down"}),
            "time_counter": (("time_counter",), [0.0], {"units": "seconds since 1950-01-01"}),
        },
    )
    return data if layers == NZ else data.isel({depth: slice(0, layers)})


def split(dims_u, dims_v, names=("u", "v"), standard=None):
    """Two components over dimensions whose names tell their points."""
    told = [{**TOLD, **({"standard_name": standard[k]} if standard else {})} for k in range(2)]
    return xarray.Dataset(
        {
            name: (dims, np.ones([1 if d.lower().endswith("time") else 4 for d in dims]), told[k])
            for k, (name, dims) in enumerate(zip(names, (dims_u, dims_v), strict=True))
        }
    )


MODELS = {
    "ROMS": split(("ocean_time", "s_rho", "eta_u", "xi_u"), ("ocean_time", "s_rho", "eta_v", "xi_v")),
    "MITgcm": split(("time", "Z", "YC", "XG"), ("time", "Z", "YG", "XC"), ("UVEL", "VVEL")),
    "MITgcm, old": split(("T", "Z", "Y", "Xp1"), ("T", "Z", "Yp1", "X"), ("U", "V")),
    "WRF": split(
        ("Time", "bottom_top", "south_north", "west_east_stag"),
        ("Time", "bottom_top", "south_north_stag", "west_east"),
        ("U", "V"),
    ),
    "MOM6": split(("time", "zl", "yh", "xq"), ("time", "zl", "yq", "xh"), ("uo", "vo")),
    "two sets": split(
        ("ocean_time", "s_rho", "eta_u", "xi_u"),
        ("ocean_time", "s_rho", "eta_v", "xi_v"),
        standard=("sea_water_x_velocity", "sea_water_y_velocity"),
    ).assign(
        {
            name: (("ocean_time", f"eta_{point}", f"xi_{point}"), np.ones((1, 4, 4)), {**TOLD, "standard_name": standard})
            for name, point, standard in (
                ("ubar", "u", "barotropic_sea_water_x_velocity"),
                ("vbar", "v", "barotropic_sea_water_y_velocity"),
            )
        }
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("named", [True, False])
def test_the_reason_comes_first_whatever_the_model_calls_its_points(model, named):
    data = MODELS[model]
    names = tuple(data.data_vars)[:2] if named else None
    with pytest.raises(DatasetError, match=f"lie on different grids .*{REASON}") as found:
        open_dataset(data, velocity=names)
    for advice in ("select=", "velocity=", "coordinates`", "None for zero"):
        assert advice not in str(found.value)


@pytest.mark.parametrize(
    "made",
    [{}, {"layers": 1}, {"depth": "depth"}, {"depth": "depth", "layers": 1}, {"layers": 1, "shift": False}],
)
def test_components_of_nemo_in_files_of_their_own(tmp_path, made):
    paths = [tmp_path / "grid_U.nc", tmp_path / "grid_V.nc"]
    for path, point, name in zip(paths, "uv", ("vozocrtx", "vomecrty"), strict=True):
        nemo(point, name, **made).to_netcdf(path, engine="h5netcdf")
    w = {"velocity": ("vozocrtx", "vomecrty", None)} if made.get("depth") and made.get("layers") != 1 else {}
    with pytest.raises(DatasetError, match=f"lie (on different grids|at different places) .*{REASON}"):
        open_dataset(paths, **w)


def test_one_component_alone_and_files_that_name_their_points(tmp_path):
    alone = nemo("u", "vozocrtx")
    with pytest.raises(DatasetError, match=f"'vozocrtx' lies on U points: .*{REASON}"):
        open_dataset(alone)
    with pytest.raises(DatasetError, match="no two variables look like"):
        open_dataset(alone.rename(vozocrtx="salt"))
    paths = []
    for point, name in (("u", "uo"), ("v", "vo")):
        data = nemo(point, name, depth="depth", layers=1, shift=False)
        data.attrs["description"] = f"ocean {point.upper()} grid variables"
        paths.append(tmp_path / f"{point}.nc")
        data.to_netcdf(paths[-1], engine="h5netcdf")
    with pytest.raises(
        DatasetError, match=rf"'uo' and 'vo' lie on different grids \(U and V points\), {REASON}"
    ):
        open_dataset(paths)
    made = {"depth": "d", "layers": 1, "shift": False}
    native = nemo("u", "vozocrtx", **made).assign(vomecrty=nemo("v", "vomecrty", **made).vomecrty)
    with pytest.warns(
        UserWarning, match="vozocrtx and vomecrty are NEMO's names of components on the U and V"
    ):
        open_dataset(native)


def test_what_the_message_advises_works():
    """Means of neighbours bring both components to the middle of the cells: the flow there is that of the model."""
    u, v = nemo("u", "vozocrtx").isel(depthu=0), nemo("v", "vomecrty").isel(depthv=0)
    t = (slice(1, None), slice(1, None))
    dims = ("y", "x")
    east = u.vozocrtx[0].values
    north = v.vomecrty[0].values
    data = xarray.Dataset(
        {
            "u": (
                dims,
                (0.5 * (east[:, 1:] + east[:, :-1]))[1:],
                {**TOLD, "standard_name": "eastward_sea_water_velocity"},
            ),
            "v": (
                dims,
                (0.5 * (north[1:] + north[:-1]))[:, 1:],
                {**TOLD, "standard_name": "northward_sea_water_velocity"},
            ),
        },
        {
            "lon": (dims, u.nav_lon.values[t] - 0.5, {"units": "degrees_east"}),
            "lat": (dims, v.nav_lat.values[t] - 0.5, {"units": "degrees_north"}),
        },
    )
    opened = open_dataset(data, convert_units=False)
    at = np.asarray(opened.grid.positions)
    expected = np.stack([1 + 0.1 * at[:, 0] + 0.01 * at[:, 1], 2 + 0.1 * at[:, 0]], -1)
    np.testing.assert_allclose(opened.read(0), expected, atol=1e-6)


def test_a_set_at_the_middles_of_the_cells_is_taken():
    """ROMS can write velocities at rho points beside those of its own points."""
    standard = ("sea_water_x_velocity", "sea_water_y_velocity")
    data = split(("ocean_time", "eta_u", "xi_u"), ("ocean_time", "eta_v", "xi_v"), standard=standard)
    for k, (name, standard) in enumerate(
        (("ue", "eastward_sea_water_velocity"), ("vn", "northward_sea_water_velocity"))
    ):
        data[name] = (("eta_rho", "xi_rho"), np.full((3, 3), 1.0 + k), {**TOLD, "standard_name": standard})
    for name in ("lon_rho", "lat_rho"):
        grid = np.meshgrid(np.arange(3.0), np.arange(3.0), indexing="xy")
        data[name] = (("eta_rho", "xi_rho"), grid[name == "lat_rho"], {"units": "degrees"})
    opened = open_dataset(data, convert_units=False)
    assert "velocity ue, vn (by their standard names, u, v being on a staggered grid)" in str(opened)
    np.testing.assert_allclose(opened.read(0), [[1.0, 2.0]] * 9)


def test_a_vertical_velocity_on_other_levels_is_told_with_a_remedy_that_works():
    x, z = {"units": "m"}, {"units": "m", "positive": "up"}
    shape = (3, 4, 5)
    data = xarray.Dataset(
        {
            name: ((dim, "y", "x"), np.ones(shape), TOLD)
            for name, dim in (("u", "z"), ("v", "z"), ("w", "zw"))
        },
        {
            "x": (("x",), np.arange(5.0), x),
            "y": (("y",), np.arange(4.0), x),
            "z": (("z",), np.arange(3.0), z),
            "zw": (("zw",), np.arange(3.0) + 0.5, z),
        },
    )
    with pytest.raises(
        DatasetError,
        match=r"'w' lies on other levels than 'u' .* pass `velocity=\('u', 'v', None\)` for no vertical",
    ):
        open_dataset(data)
    np.testing.assert_allclose(open_dataset(data, velocity=("u", "v", None)).read(0), [[1.0, 1.0, 0.0]] * 60)

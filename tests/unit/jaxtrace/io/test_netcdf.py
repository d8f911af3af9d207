"""NetCDF and xarray: grids, times, units and land as the files say them, and every contradiction told."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from jaxtrace.fields import CurvilinearGrid, RectilinearGrid, UniformGrid
from jaxtrace.io import DatasetError, load_optimized_dataset, open_dataset
from jaxtrace.io.files import find_files

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")

pytestmark = pytest.mark.usefixtures("quick_compile")
DATA = Path(__file__).resolve().parents[5] / "shared/data/trace"
HOURS = np.array([0.0, 1.0, 3.0, 4.0])
RNG = np.random.default_rng(11)
A, B, C = RNG.uniform(-1, 1, 3), RNG.uniform(-1, 1, (3, 3)), RNG.uniform(-1, 1, 3) * 1e-4
X, Y, Z = np.linspace(0, 4, 6), np.array([0.0, 0.5, 1.5, 3.0, 3.5]), np.array([0.0, 1.0, 4.0])
METRES = {"units": "m"}


def linear(x, t):
    """A velocity linear in space and time."""
    x = np.asarray(x, float)
    d = x.shape[-1]
    return A[:d] + x @ B[:d, :d].T + t * C[:d]


def box(dims=("time", "y", "x"), hours=HOURS, x=X, y=Y, z=Z, **attributes):
    """A data set of the linear velocity over the given dimensions, z upward; `attributes` go to the velocities."""
    values = {"time": hours * 3600.0, "x": x, "y": y, "z": z}
    mesh = dict(zip(dims, np.meshgrid(*(values[dim] for dim in dims), indexing="ij"), strict=True))
    axes = [axis for axis in "xyz" if axis in dims]
    flow = linear(np.stack([mesh[axis] for axis in axes], -1), 0.0)
    if "time" in dims:
        flow = flow + mesh["time"][..., None] * C[: len(axes)]
    told = {"units": "m s-1", **attributes}
    data = {name: (dims, flow[..., k], told) for k, name in enumerate("uvw"[: len(axes)])}
    coordinates = {axis: ((axis,), values[axis], {**METRES, "axis": axis.upper()}) for axis in axes}
    if "time" in dims:
        coordinates["time"] = (("time",), hours, {"units": "hours since 2015-11-16 06:00:00"})
    return xarray.Dataset(data, coordinates)


def load(pattern, **options):
    return load_optimized_dataset(pattern, verbose=False, **options)


def inside(n=40, x=X, y=Y, z=None):
    axes = [x, y] if z is None else [x, y, z]
    return np.random.default_rng(3).uniform([a.min() for a in axes], [a.max() for a in axes], (n, len(axes)))


def assert_linear(field, x, times=HOURS * 3600.0, tolerance=3e-5):
    np.testing.assert_allclose(np.asarray(field.times), times)
    for t in (times[0], 0.4 * times[0] + 0.6 * times[-1], times[-1]):
        np.testing.assert_allclose(field(x.astype("f4"), t), linear(x, t), atol=tolerance)


@pytest.mark.parametrize(
    "dims",
    [
        ("time", "y", "x"),
        ("time", "x", "y"),
        ("x", "time", "y"),
        ("time", "z", "y", "x"),
        ("y", "time", "x", "z"),
    ],
)
def test_every_order_of_dimensions(tmp_path, dims):
    box(dims).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    field = load(tmp_path / "a.nc")
    assert field.dim == len(dims) - 1
    assert isinstance(field.grid, RectilinearGrid)
    assert_linear(field, inside(z=Z if "z" in dims else None))


def test_even_axes_make_a_uniform_grid_also_falling(tmp_path):
    y = np.linspace(3, 0, 7)
    box(y=y.astype("f4")).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    field = load(tmp_path / "a.nc")
    assert isinstance(field.grid, UniformGrid)
    assert float(field.grid.spacing[1]) == -0.5
    assert_linear(field, inside(y=y))


def test_old_netcdf_and_packed_numbers(tmp_path):
    """NetCDF 3 through SciPy; 16-bit numbers with scale and offset are unpacked."""
    data = box()
    packed = {
        name: {"dtype": "i2", "scale_factor": 5e-4, "add_offset": 0.25, "_FillValue": -32768} for name in "uv"
    }
    data.to_netcdf(tmp_path / "old.nc", engine="scipy", encoding=packed)
    assert (tmp_path / "old.nc").read_bytes()[:3] == b"CDF"
    assert_linear(load(tmp_path / "old.nc"), inside(), tolerance=1e-3)


def test_an_open_data_set_with_decoded_times():
    times = np.datetime64("2015-11-16T06") + (HOURS * 3600).astype("timedelta64[s]")
    data = box().assign_coords(time=times)
    field = load(data)
    assert_linear(field, inside())
    later = data.assign_coords(time=(HOURS * 3600 * 1e9).astype("timedelta64[ns]"))
    assert_linear(load(later), inside())


def test_files_in_time_and_components_in_files(tmp_path):
    data = box()
    for k, name in ((2, "part_10"), (0, "part_9")):  # each counts from its own day
        part = data.isel(time=slice(k, k + 2))
        day = "2015-11-16 06:00" if k == 0 else "2015-11-15T08:00:00+02:00"
        hours = part.time.values + (0 if k == 0 else 24)
        part = part.assign_coords(time=(("time",), hours, {"units": f"hours since {day}"}))
        part.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    field = load(tmp_path / "part_*.nc")
    assert_linear(field, inside())
    data[["u"]].to_netcdf(tmp_path / "zonal.nc", engine="h5netcdf")
    data[["v"]].to_netcdf(tmp_path / "meridional.nc", engine="h5netcdf")
    both = load([tmp_path / "zonal.nc", tmp_path / "meridional.nc"])
    np.testing.assert_array_equal(both.data, field.data)
    data[["v"]].isel(time=slice(0, 3)).to_netcdf(tmp_path / "meridional.nc", engine="h5netcdf")
    with pytest.raises(
        DatasetError, match=r"meridional\.nc: variable 'v' has 3 times, which are not the 4 of 'u'"
    ):
        load([tmp_path / "zonal.nc", tmp_path / "meridional.nc"])


def test_files_on_another_grid_or_in_another_unit_are_refused(tmp_path):
    def point_text(name, data):
        data.to_netcdf(tmp_path / name, engine="h5netcdf")
        return tmp_path / name

    first = point_text("a.nc", box(hours=HOURS[:2]))
    late = box(hours=HOURS[2:])
    others = {
        "'y' differs": late.isel(y=slice(None, None, -1)),
        r"'x' differs .*6 values, 1 … 5, against 6, 0 … 4": late.assign_coords(x=("x", X + 1, METRES)),
        "'v' has units 'cm/s', but that of .*a.nc has 'm s-1'": late.assign(
            v=(late.v.dims, late.v.values * 100, {"units": "cm/s"})
        ),
    }
    for k, (said, other) in enumerate(others.items()):
        with pytest.raises(DatasetError, match=rf"b{k}\.nc: (coordinate|variable) {said}"):
            load([first, point_text(f"b{k}.nc", other)])
    late = late.drop_vars("y").transpose("x", "time", "y")  # without coordinates, and turned: the same places
    assert_linear(load([first, point_text("b.nc", late)]), inside())


def test_components_in_files_with_units_of_their_own(tmp_path):
    data = box()
    data[["u"]].to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    data["v"] = (data.v.dims, data.v.values * 100, {"units": "cm/s"})
    data[["v"]].to_netcdf(tmp_path / "v.nc", engine="h5netcdf")
    assert_linear(load([tmp_path / "u.nc", tmp_path / "v.nc"]), inside())


def test_one_time_in_each_file(tmp_path):
    """As a dimension of one, or as a number beside the fields."""
    data = box()
    for k in range(4):
        one = data.isel(time=k if k % 2 else [k])
        one.to_netcdf(tmp_path / f"hour_{9 + k}.nc", engine="h5netcdf")
    opened = open_dataset(tmp_path / "hour_*.nc")
    np.testing.assert_allclose(opened.times, HOURS * 3600)
    np.testing.assert_allclose(opened.read(3), open_dataset(data).read(3))
    assert opened.name(3).endswith("hour_12.nc")


@pytest.mark.parametrize(
    ("units", "values", "seconds"),
    [
        ("days since 1948-01-01 0:0:0", [0, 0.5], [0, 43200]),
        ("minutes since 2000-1-1 00:00:00 +02:00", [10, 20], [0, 600]),
        ("second", [5, 7], [5, 7]),
        ("hours", [1, 2], [3600, 7200]),
        ("Hours Since 2000-01-01", [1, 2], [0, 3600]),
    ],
)
def test_units_of_time(units, values, seconds):
    data = box(hours=np.array([0.0, 1.0])).assign_coords(time=(("time",), values, {"units": units}))
    np.testing.assert_allclose(open_dataset(data).times, seconds)


def test_other_calendars_count_days_alike():
    data = box().assign_coords(
        time=(("time",), [58, 59, 60, 61], {"units": "days since 2000-01-01", "calendar": "noleap"})
    )
    np.testing.assert_allclose(open_dataset(data).times, np.arange(4) * 86400.0)
    months = box().assign_coords(time=(("time",), [0, 1, 2, 3], {"units": "months since 2000-01-01"}))
    with pytest.raises(
        DatasetError, match=r"variable 'time': its units 'months since 2000-01-01' are months or years, which"
    ):
        open_dataset(months)


@pytest.mark.parametrize(("calendar", "days"), [("360_day", 360), ("noleap", 365), ("all_leap", 366)])
def test_years_of_other_calendars_follow_each_other(tmp_path, calendar, days):
    for k, day in enumerate(("2001-03-01", "2002-03-01")):
        clock = {"units": f"days since {day}", "calendar": calendar}
        part = box(hours=np.arange(2.0)).assign_coords(time=(("time",), [0, 1], clock))
        part.to_netcdf(tmp_path / f"{k}.nc", engine="h5netcdf")
    opened = open_dataset(tmp_path / "*.nc")
    np.testing.assert_allclose(opened.times, np.array([0, 1, days, days + 1]) * 86400.0)
    clock["calendar"] = "standard"
    part.assign_coords(time=(("time",), [0, 1], clock)).to_netcdf(tmp_path / "2.nc", engine="h5netcdf")
    with pytest.raises(
        DatasetError, match=rf"2\.nc: .*calendar 'standard', but that of .*calendar '{calendar}'\. Bring"
    ):
        open_dataset([tmp_path / "0.nc", tmp_path / "2.nc"])
    clock |= {"units": "days since 2002-02-30", "calendar": "noleap"}
    with pytest.raises(DatasetError, match="a day of the calendar 'noleap'; 2002-02-30 is not one"):
        open_dataset(part.assign_coords(time=(("time",), [0, 1], clock)))


def test_times_that_are_not_there():
    bare = box().assign_coords(time=(("time",), HOURS))
    with pytest.warns(UserWarning, match=r"'time' has no units; its values are taken as seconds"):
        np.testing.assert_allclose(open_dataset(bare).times, HOURS)
    with pytest.warns(UserWarning, match=r"slice numbers 0 … 3 stand in"):
        np.testing.assert_allclose(open_dataset(box().drop_vars("time")).times, np.arange(4))
    np.testing.assert_allclose(open_dataset(box().drop_vars("time"), times=[0, 1, 4, 9]).times, [0, 1, 4, 9])
    with pytest.raises(DatasetError, match=r"variable 'u' has no slice; its time dimension is empty"):
        open_dataset(box().isel(time=slice(0)))
    steady = open_dataset(box(("y", "x")))
    assert len(steady) == 1
    assert "steady" in str(steady)


def test_curved_grids_and_layers_of_changing_depth():
    """Two-dimensional x and y, and a depth over all dimensions: hexahedra between bent layers."""
    s, q, p = np.meshgrid(np.linspace(0, 1, 3), np.linspace(0, 1, 4), np.linspace(0, 1, 5), indexing="ij")
    x, y = p[0] + 0.1 * q[0] ** 2, q[0] - 0.1 * p[0]
    z = s * (1 + 0.3 * p)
    flow = linear(np.stack([np.broadcast_to(x, z.shape), np.broadcast_to(y, z.shape), z], -1), 0.0)
    told = {"units": "m/s"}
    data = xarray.Dataset(
        {name: (("s", "nj", "ni"), flow[..., k], told) for k, name in enumerate("uvw")},
        {
            "xc": (("nj", "ni"), x, {**METRES, "standard_name": "projection_x_coordinate"}),
            "yc": (("nj", "ni"), y, {**METRES, "standard_name": "projection_y_coordinate"}),
            "height": (("s", "nj", "ni"), z, {**METRES, "standard_name": "height", "positive": "up"}),
            "s": (("s",), np.arange(3.0), {"positive": "up", "axis": "Z"}),
        },
    )
    layer = load(data.isel(s=0, drop=True).drop_vars("w"))
    assert isinstance(layer.grid, CurvilinearGrid)
    at = np.stack([x, y], -1)[1:3, 1:3].reshape(-1, 2).mean(0)
    expected = A[:2] + B[:2, :2] @ at
    np.testing.assert_allclose(layer(at.astype("f4"), 0.0), expected, atol=1e-5)
    whole = open_dataset(data.drop_vars("s"))
    assert isinstance(whole.grid, CurvilinearGrid)
    np.testing.assert_allclose(whole.read(0), linear(whole.grid.positions, 0.0), atol=1e-5)
    assert "coordinates xc, yc, height" in str(whole)


def globe(lon, lat, u=1.0, v=0.5, **attributes):
    told = {"units": "m s-1", **attributes}
    shape = (len(lat), len(lon))
    return xarray.Dataset(
        {
            "uo": (("lat", "lon"), np.broadcast_to(u, shape).copy(), told),
            "vo": (("lat", "lon"), np.broadcast_to(v, shape).copy(), told),
        },
        {
            "lon": (("lon",), lon, {"units": "degrees_east"}),
            "lat": (("lat",), lat, {"units": "degrees_north"}),
        },
    )


def test_metres_per_second_become_degrees_per_second():
    data = globe(np.linspace(0, 10, 11), np.linspace(0, 60, 61))
    field = load(data)
    degree = np.pi / 180 * 6_371_000.0
    np.testing.assert_allclose(
        field(np.array([5.0, 60.0], "f4"), 0.0), [1 / (degree * 0.5), 0.5 / degree], rtol=1e-5
    )
    assert "m/s converted to degrees/s" in str(open_dataset(data))
    np.testing.assert_allclose(load(data, convert_units=False)(np.array([5.0, 60.0], "f4"), 0.0), [1, 0.5])
    slow = globe(np.linspace(0, 10, 11), np.linspace(0, 60, 61), units="cm/s")
    np.testing.assert_allclose(load(slow).data, field.data / 100, rtol=1e-6)
    with pytest.warns(UserWarning, match=r"variable 'uo' has units ''; it is taken as m/s"):
        bare = load(globe(np.linspace(0, 10, 11), np.linspace(0, 60, 61), units=""))
    np.testing.assert_allclose(bare.data, field.data)
    far = box(x=X / 1000).assign_coords(x=(("x",), X / 1000, {"units": "km", "axis": "X"}))
    np.testing.assert_allclose(load(far).data[0, :, 0], load(box(x=X / 1000)).data[0, :, 0] / 1000, rtol=1e-5)


def test_longitudes_and_latitudes_without_units_are_degrees():
    data = box().rename(x="lon", y="lat")
    for name in ("lon", "lat"):
        data[name].attrs = {}
    bare = open_dataset(data)
    for name, unit in (("lon", "degrees_east"), ("lat", "degrees_north")):
        data[name].attrs = {"units": unit}
    told = open_dataset(data)
    assert "m/s converted to degrees/s" in str(bare)
    np.testing.assert_array_equal(bare.read(1), told.read(1))
    data["lat"].attrs = {"units": "radians", "standard_name": "latitude"}
    with pytest.raises(DatasetError, match=r"coordinate 'lat' is in radians; convert it to degrees"):
        open_dataset(data)


def test_what_is_no_file_and_no_data_set_is_told():
    call = inspect.unwrap(find_files)  # types are checked before in tests
    for given in (box()["u"], [box(), box()]):
        with pytest.raises(
            TypeError, match=r"must name files, or be one xarray\.Dataset; got Data.*xarray\.concat"
        ):
            call(given)


def test_longitudes_around_the_globe_and_across_the_date_line():
    lat = np.array([-89.0, 0.0, 89.0, 90.0])
    lon = np.arange(0.0, 360.0, 30.0)
    field = load(globe(lon, lat, v=np.cos(np.deg2rad(lon))))
    assert field.grid.counts == (13, 4)
    np.testing.assert_allclose(field.grid.bounds[:, 0], [0, 360])
    seam = np.asarray(
        field(np.array([345.0, 10.0], "f4"), 0.0)
    )  # between 330 and 360 degrees as between 0 and 30
    np.testing.assert_allclose(seam, field(np.array([15.0, 10.0], "f4"), 0.0), rtol=1e-5)
    at_pole = np.asarray(field.data[0]).reshape(4, 13, 2)[3]
    np.testing.assert_array_equal(at_pole[:, 0], 1)  # m/s, as in the file: steps convert them
    assert np.isfinite(np.asarray(field(np.array([10.0, 90.0], "f4"), 0.0))).all()
    across = load(globe(np.array([170.0, 175.0, -180.0, -175.0]), np.array([0.0, 5.0, 10.0])))
    np.testing.assert_allclose(across.grid.bounds[:, 0], [170, 185])
    fine = np.arange(0, 360, 0.02).astype("f4")  # whose last digits are larger than a thousandth of a step
    np.testing.assert_allclose(load(globe(fine, lat[:2])).grid.bounds[:, 0], [0, 360])


def test_depths_count_downwards():
    z = np.array([0.0, 10.0, 50.0])
    data = box(("z", "y", "x"), z=z)
    down = {"units": "m", "positive": "down", "axis": "Z"}
    deep = data.assign_coords(z=(("z",), z, down))
    deep.w.attrs["standard_name"] = "upward_sea_water_velocity"
    upward = open_dataset(deep).read(0)
    np.testing.assert_allclose(upward[:, 2], -data.w.values.reshape(-1), rtol=1e-6)
    deep.w.attrs["standard_name"] = "downward_sea_water_velocity"
    np.testing.assert_allclose(open_dataset(deep).read(0)[:, 2], data.w.values.reshape(-1), rtol=1e-6)
    del deep.w.attrs["standard_name"]
    with pytest.warns(UserWarning, match=r"'w' does not say whether it points up; it is taken as upward"):
        np.testing.assert_array_equal(open_dataset(deep).read(0), upward)
    with pytest.raises(
        DatasetError, match=r"has 3 dimensions but the velocity has the components \('u', 'v'\).*select"
    ):
        open_dataset(deep.drop_vars("w"))
    layer = open_dataset(deep, select={"z": 1}, velocity=("u", "v"))
    assert layer.grid.dim == 2
    np.testing.assert_allclose(layer.read(0)[:, 1], data.v.values[1].reshape(-1), rtol=1e-6)
    still = open_dataset(deep, velocity=("u", "v", None))
    np.testing.assert_array_equal(still.read(0)[:, 2], 0)
    pressure = deep.assign_coords(z=(("z",), z, {"units": "hPa", "positive": "down"}))
    with pytest.raises(
        DatasetError, match=r"'w' and coordinate 'z': .*length per second does not fit .* pressure"
    ):
        open_dataset(pressure)


def test_which_way_depths_count_where_it_is_not_said():
    """The standard name says it, or the name; depths below zero are heights."""
    down = np.array([0.0, 10.0, 50.0])
    for name, z, attributes, sign in (
        ("lev", down, {"standard_name": "depth"}, -1),
        ("depth", down, {}, -1),
        ("depth", -down[::-1], {}, 1),
    ):
        data = box(("z", "y", "x"), z=z).rename(z=name)
        data = data.assign_coords({name: ((name,), z, {**METRES, **attributes})})
        data.w.attrs["standard_name"] = "upward_sea_water_velocity"
        np.testing.assert_allclose(
            open_dataset(data).read(0)[:, 2], sign * data.w.values.reshape(-1), rtol=1e-6
        )


def test_numbered_layers_and_unknown_units_are_told():
    """Metres per second along sigma, level numbers or feet would be anything."""
    for name, attributes in (
        ("s_rho", {"standard_name": "ocean_s_coordinate_g2", "positive": "up"}),
        ("lev", {"units": "level"}),
        ("z", {"units": "ft"}),
    ):
        data = box(("z", "y", "x")).rename(z=name)
        data = data.assign_coords({name: ((name,), Z, attributes)})
        with pytest.raises(DatasetError, match=rf"'w' is in m s-1, but coordinate '{name}'.*`select=`"):
            open_dataset(data)
        assert open_dataset(data, velocity=("u", "v", None)).grid.dim == 3
        np.testing.assert_allclose(
            open_dataset(data, convert_units=False).read(0)[:, 2], data.w.values.reshape(-1), rtol=1e-6
        )
    rows = box().assign_coords(x=(("x",), X, {"units": "1", "axis": "X"}))
    with pytest.raises(DatasetError, match=r"'u' is in m s-1, but coordinate 'x' with units '1'"):
        open_dataset(rows)
    with pytest.warns(UserWarning, match=r"'u' has units 'ft/s', which are not known; it is used as it is"):
        open_dataset(box(units="ft/s"))
    for units, size in (("centimeters/second", 0.01), ("knots", 1852 / 3600), ("m s^{-1}", 1.0)):
        data = box(units=units)
        np.testing.assert_allclose(
            open_dataset(data).read(0)[:, 0], size * data.u.values[0].reshape(-1), rtol=1e-6
        )


def test_a_single_layer_is_flat_unless_asked():
    data = box(("time", "z", "y", "x"), z=np.array([3.0]))
    assert open_dataset(data).grid.dim == 2
    assert open_dataset(data, dim=3).grid.dim == 3
    with pytest.raises(DatasetError, match=r"`dim=3` does not fit variable 'u'"):
        open_dataset(box(), dim=3)


def test_missing_values_are_land():
    data = box()
    wet = np.ones((5, 6), bool)
    wet[:2, :2] = False
    dry = data.where(xarray.DataArray(wet, dims=("y", "x")))
    field = load(dry)
    x = np.array([[0.4, 0.25], [3.0, 3.2]], "f4")
    values = np.asarray(field(x, 0.0))
    assert np.isnan(values[0]).all()  # all four nodes of that cell are land
    np.testing.assert_allclose(values[1], linear(x[1], 0.0), atol=1e-5)
    assert "4 of them land" in str(open_dataset(dry))
    assert np.isfinite(np.asarray(load(dry, missing="zero")(x, 0.0))).all()
    tide = dry.copy(deep=True)
    tide.u[2, 4, 5] = np.nan
    opened = open_dataset(tide)
    opened.read(1)
    with pytest.raises(
        DatasetError, match=r"u, v at index 2 miss other values than the first slice \(1 more, 0 fewer\)"
    ):
        opened.read(2)
    with pytest.raises(DatasetError, match=r"u, v hold no values, only missing ones"):
        open_dataset(data.where(data.u > 1e9))


def test_undeclared_missing_values_are_refused(tmp_path):
    data = box()
    data.v[1, 2, 2] = 9.96921e36
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(
        DatasetError, match=r"a\.nc: variable 'v' at index 1 holds values up to 9\.97e\+36.*_FillValue"
    ):
        load(tmp_path / "a.nc")


def test_the_components_are_found_by_standard_name_then_by_name():
    named = box().rename(u="fred", v="wilma")
    named.fred.attrs["standard_name"] = "eastward_sea_water_velocity"
    named.wilma.attrs["standard_name"] = "northward_sea_water_velocity"
    assert "velocity fred, wilma (by their standard names)" in str(open_dataset(named))
    assert "velocity u, v (by their names)" in str(open_dataset(box()))
    windy = named.assign(uas=named.fred * 2, vas=named.fred * 2)
    windy.uas.attrs = {"standard_name": "eastward_wind", "units": "m/s"}
    windy.vas.attrs = {"standard_name": "northward_wind", "units": "m/s"}
    with pytest.raises(
        DatasetError, match=r"several sets of variables may be the velocity: fred, wilma; uas, vas"
    ):
        open_dataset(windy)
    assert "as named" in str(open_dataset(windy, velocity=("uas", "vas")))
    with pytest.raises(
        DatasetError, match=r"there is no variable 'ux' as `velocity` demands; there are u, v"
    ):
        open_dataset(box(), velocity=("ux", "v"))
    with pytest.raises(DatasetError, match=r"no two variables look like.*there are temp, v"):
        open_dataset(box().rename(u="temp"))


def test_staggered_meshes_and_stray_dimensions_are_refused():
    data = box()
    staggered = data.drop_vars("v").assign(v=(("time", "yv", "x"), data.v.values))
    with pytest.raises(DatasetError, match=r"'u' and 'v' lie on different grids.*C-grid"):
        open_dataset(staggered)
    members = data.expand_dims(member=3)
    with pytest.raises(DatasetError, match=r"dimension 'member' of variable 'u'.*select=\{'member': 0\}"):
        open_dataset(members)
    assert len(open_dataset(members, select={"member": 1})) == 4
    with pytest.raises(DatasetError, match=r"`select` names 'depth'"):
        open_dataset(data, select={"depth": 0})
    with pytest.raises(DatasetError, match=r"dimension 'x' has no coordinate"):
        open_dataset(data.drop_vars("x"))


def rows(turn=0.0, **attributes):
    """Velocities on rows of longitudes and latitudes that point `turn` degrees away from east, at three kinds of points."""
    y, x = np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij")
    cosine, sine = np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))
    told = {"units": "m/s", **attributes}
    data = xarray.Dataset({"uo": (("y", "x"), 1 + x, told), "vo": (("y", "x"), 2 + x, told)})
    for point, (i, j) in {"t": (0, 0), "u": (0.5, 0), "v": (0, 0.5)}.items():
        data[f"glam{point}"] = (("y", "x"), cosine * (x + i) - sine * (y + j), {"units": "degrees_east"})
        data[f"gphi{point}"] = (("y", "x"), sine * (x + i) + cosine * (y + j), {"units": "degrees_north"})
    return data


def test_the_coordinates_that_a_component_names(tmp_path):
    """Points of T, U and V lie along the same dimensions: the attribute `coordinates` tells them apart."""
    data = rows()
    with pytest.raises(
        DatasetError, match=r"both 'glamt' and 'glamu' may be the coordinate along 'x'.*`coordinates`"
    ):
        open_dataset(data)
    for point, west in (("t", 0.0), ("u", 0.5)):
        for name in ("uo", "vo"):
            data[name].attrs["coordinates"] = f"gphi{point} glam{point}"
        assert float(open_dataset(data).grid.bounds[0, 0]) == west
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        assert float(open_dataset(tmp_path / "a.nc").grid.bounds[0, 0]) == west
        assert float(open_dataset(xarray.open_dataset(tmp_path / "a.nc")).grid.bounds[0, 0]) == west
    data.vo.attrs["coordinates"] = "gphiv glamv"
    with pytest.raises(
        DatasetError, match=r"'uo' and 'vo' lie at different places \(glamu and glamv\), .*C-grid"
    ):
        open_dataset(data)
    data[["uo", "glamu", "gphiu"]].to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    data[["vo", "glamv", "gphiv"]].to_netcdf(tmp_path / "v.nc", engine="h5netcdf")
    with pytest.raises(DatasetError, match=r"'uo' and 'vo' lie at different places"):
        open_dataset([tmp_path / "u.nc", tmp_path / "v.nc"])


def test_velocities_along_turned_rows_are_told():
    """Along the rows or east: what is used for the other is said, unless the rows point east."""
    points = ["uo", "vo", "glamt", "gphit"]
    open_dataset(rows()[points])
    with pytest.warns(UserWarning, match=r"'uo' does not say that it points east.*Rotate"):
        open_dataset(rows(30)[points])
    east = rows(30)[points]
    for name, standard in (("uo", "eastward"), ("vo", "northward")):
        east[name].attrs["standard_name"] = f"{standard}_sea_water_velocity"
    open_dataset(east)
    flat = east.assign_coords(x=(("x",), np.arange(5.0), METRES), y=(("y",), np.arange(4.0), METRES))
    with pytest.warns(UserWarning, match=r"'uo' points east, which is not the direction of coordinate 'x'"):
        open_dataset(flat)
    pole = {"units": "degrees"}
    turned = east.assign_coords(
        x=(("x",), np.arange(5.0), {**pole, "standard_name": "grid_longitude"}),
        y=(("y",), np.arange(4.0), {**pole, "standard_name": "grid_latitude"}),
    )
    with pytest.warns(UserWarning, match=r"'uo' points east, which is not the direction of coordinate 'x'"):
        open_dataset(turned)
    turned.uo.attrs["standard_name"] = "grid_eastward_sea_water_velocity"
    open_dataset(turned)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_file_cut_anywhere_is_refused(tmp_path, engine):
    path = tmp_path / "a.nc"
    box().to_netcdf(path, engine=engine)
    whole, right = path.read_bytes(), open_dataset(path).read(3)
    for part in np.linspace(0.0, 0.98, 12):
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(DatasetError, match=r"a\.nc"):
            open_dataset(path).read(3)
    path.write_bytes(whole)
    np.testing.assert_array_equal(open_dataset(path).read(3), right)


def test_unstructured_netcdf_is_told():
    path = DATA / "uxarray_unstructured/v1.nc"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with pytest.raises(DatasetError, match=r"unstructured mesh \(UGRID\)"):
        load([path, path.with_name("v2.nc")], velocity=("v1", "v2"))


def test_real_ocean_beside_scipy():
    """NorKyst-800m: 67 hours, packed, land; beside SciPy's interpolation of what xarray decodes."""
    from scipy.interpolate import RegularGridInterpolator

    path = DATA / "norkyst/norkyst800_subset_16Nov2015.nc"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    field = load(path, time_interpolation="linear", time_range=(0.0, 4 * 3600.0))
    np.testing.assert_allclose(field.times, np.arange(5) * 3600.0)
    assert isinstance(field.grid, UniformGrid)
    assert field.grid.counts == (301, 201)
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        part = data.isel(time=slice(0, 5), depth=0)
        x, y = part.X.values, part.Y.values
        whole = np.stack([part.u.values, part.v.values], -1)
    theirs = RegularGridInterpolator((np.arange(5) * 3600.0, y, x), whole)
    points = np.random.default_rng(4).uniform([x[0], y[0]], [x[-1], y[-1]], (2000, 2)).astype("f4")
    for t in (0.0, 5000.0):
        expected = theirs(np.c_[np.full(2000, t), points[:, ::-1]])
        found = np.asarray(field(points, t))
        wet = np.isfinite(expected).all(
            -1
        )  # SciPy knows no value beside land, where ours counts land as still
        assert 0.3 < wet.mean() < 1
        np.testing.assert_allclose(found[wet], expected[wet], atol=2e-3)
        assert np.isnan(found).any(-1).sum() > 0

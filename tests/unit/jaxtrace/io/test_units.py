"""Units and degrees as files spell them: one rule by path and through xarray, and nothing taken for degrees that is none."""

import ast
import re
import warnings

import numpy as np
import pytest

from jaxtrace.cli import main
from jaxtrace.io import DatasetError, open_dataset
from jaxtrace.io.cf.attributes import cf_attributes
from jaxtrace.io.cf.units import decode_times, parse_calendar

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")

pytestmark = pytest.mark.usefixtures("quick_compile")
SINCE = "days since 1950-01-01"


def flow(time=None, speed=None, x=None, y=None, n=3, first=0.0):
    """Even velocities on metres with the given attributes of time, velocity, x and y."""
    shape = (n, 3, 4)
    told = {"units": "m s-1"} if speed is None else speed
    return xarray.Dataset(
        {name: (("time", "y", "x"), np.full(shape, 2.0), dict(told)) for name in "uv"},
        {
            "time": (("time",), first + np.arange(float(n)), {"units": SINCE} if time is None else time),
            "x": (("x",), np.arange(4.0) * 1000, {"units": "m"} if x is None else x),
            "y": (("y",), np.arange(3.0) * 1000, {"units": "m"} if y is None else y),
        },
    )


def both_ways(folder, data, **options):
    """What opening by path and opening the data set give: times and first slice, or the error, and the warnings."""
    path = folder / "made.nc"
    data.to_netcdf(path, engine="h5netcdf")
    found = []
    for given in (path, data, xarray.open_dataset(path, engine="h5netcdf", decode_times=False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                opened = open_dataset(given, **options)
                result = (opened.times.tolist(), opened.read(0).tolist())
            except DatasetError as error:
                result = str(error)
        texts = {str(one.message) for one in said if issubclass(one.category, UserWarning)}
        found.append(tuple(str(part).replace(str(path), "the data set") for part in (result, sorted(texts))))
    assert found[0] == found[1] == found[2]
    return result, texts


@pytest.mark.parametrize(
    "name", ["units", "Unit", "UNITS", "unit", "Units", "time_units", "TimeUnit", "units_of_time", "udunits"]
)
def test_units_of_time_under_any_spelling(tmp_path, name):
    (times, _), said = both_ways(tmp_path, flow({name: SINCE}))
    assert times == [0.0, 86400.0, 172800.0]
    assert not said


def with_times_in(data, dim, name):
    """The same with its times in a variable of one name along a dimension of another one."""
    return data.drop_indexes("time").reset_coords("time").rename_dims(time=dim).rename(time=name)


@pytest.mark.parametrize(
    ("dim", "name", "along"),
    [
        ("record", "time", {}),
        ("Time", "XTIME", {}),
        ("rec", "clock", {"rec": {"long_name": "record number"}}),
        ("record", "time", {"forecast_reference_time": {"units": "days since 1999-01-01"}}),
    ],
)
def test_times_along_a_dimension_of_another_name(tmp_path, dim, name, along):
    """They were slice numbers, or a dimension that is "neither time nor a place"."""
    data = with_times_in(flow({"Unit": SINCE}), dim, name)
    for other, told in along.items():
        data[other] = (dim, np.arange(3.0), told)
    (times, _), said = both_ways(tmp_path, data)
    assert times == [0.0, 86400.0, 172800.0]
    assert not said


def test_of_two_dates_along_a_dimension_none_is_guessed(tmp_path):
    data = with_times_in(flow(), "record", "begin")
    data["end"] = ("record", np.arange(1.0, 4.0), {"units": SINCE})
    found, _ = both_ways(tmp_path, data)
    assert "dimension 'record' of variable 'u' is neither time nor a place" in found


def test_dates_of_numpy_make_a_dimension_time():
    days = np.array(["2015-11-16", "2015-11-17", "2015-11-18"], "datetime64[ns]")
    data = flow().drop_vars("time").rename(time="day").assign_coords(day=days)
    opened = open_dataset(data)
    assert opened.times.tolist() == [0.0, 86400.0, 172800.0]
    assert str(opened.epoch) == "2015-11-16"


def test_a_series_of_files_with_one_time_each(tmp_path):
    """By path these were read as seconds without a warning."""
    for k in range(3):
        flow({"Unit": SINCE}, n=1, first=k).to_netcdf(tmp_path / f"day_{k}.nc", engine="h5netcdf")
        flow({"origin": "?"}, n=1, first=k).to_netcdf(tmp_path / f"bare_{k}.nc", engine="h5netcdf")
    assert open_dataset(tmp_path / "day_*.nc").times.tolist() == [0.0, 86400.0, 172800.0]
    with pytest.warns(UserWarning, match=r"bare_0\.nc: variable 'time' has no units; .* seconds"):
        open_dataset(tmp_path / "bare_*.nc")


def test_a_date_in_another_attribute_is_read_and_said(tmp_path):
    (times, _), said = both_ways(tmp_path, flow({"long_name": f"time in {SINCE}"}))
    assert times == [0.0, 86400.0, 172800.0]
    assert len(said) == 1
    assert "'time' has no units, but long_name = 'time in days since 1950-01-01': it is read as" in said.pop()
    two = {"long_name": SINCE, "comment": "hours since 1950-01-01"}
    (times, _), said = both_ways(tmp_path, flow(two))
    assert times == [0.0, 1.0, 2.0]
    assert "its values are taken as seconds" in said.pop()


def test_a_date_beside_units_without_one_is_read_and_said(tmp_path):
    """Times in "days" whose name says since when were days without a date, without a word."""
    told = {"units": "days", "long_name": "Days Since 1950-01-01 12:00"}
    data = flow(told)
    (times, _), said = both_ways(tmp_path, data)
    assert times == [0.0, 86400.0, 172800.0]
    assert (
        "units 'days' without a date, but long_name = 'Days Since 1950-01-01 12:00': its times count"
        in said.pop()
    )
    for given in (data, opened_by_xarray(tmp_path, told)):
        with pytest.warns(UserWarning, match="without a date"):
            assert str(open_dataset(given).epoch) == "1950-01-01 12:00"
    for other in ("hours since 1950-01-01", "since 1950-01-01"):  # of another unit, or of none
        assert open_dataset(flow({**told, "long_name": other})).epoch is None


@pytest.mark.parametrize("units", [{"units": "days"}, {}])
def test_an_origin_of_times_that_is_not_read_is_said(tmp_path, units):
    """NEMO's time_origin beside units without a date: the times had none, without a word."""
    told = {**units, "time_origin": "1950-JAN-01 00:00:00"}
    (times, _), said = both_ways(tmp_path, flow(told))
    assert times[1] == (86400.0 if units else 1.0)
    assert any("no date in its units, but time_origin = '1950-JAN-01 00:00:00'" in line for line in said)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if units else "ignore")
        assert str(open_dataset(flow(told), epoch="1950-01-01").epoch) == "1950-01-01"
        open_dataset(flow({"units": SINCE, "time_origin": "1950-JAN-01 00:00:00"}))


def test_one_selected_time_keeps_its_date(tmp_path):
    """It was a steady field without a date."""
    data = flow({"Unit": SINCE})
    data.to_netcdf(tmp_path / "made.nc", engine="h5netcdf")
    for given in (data, tmp_path / "made.nc", opened_by_xarray(tmp_path, {"units": SINCE})):
        for index, date in ((1, "1950-01-02"), (-1, "1950-01-03")):
            opened = open_dataset(given, select={"time": index})
            assert (opened.steady, opened.times.tolist(), str(opened.epoch)) == (True, [0.0], date)
    assert open_dataset(flow({"units": "months since 1950-01-01"}), select={"time": 1}).epoch is None


def wrf(moved=0.0):
    """Winds as WRF writes them, with longitudes and latitudes for every time."""
    lat, lon = np.meshgrid(45 + np.arange(3) * 0.1, 10 + np.arange(4) * 0.1, indexing="ij")
    dims, told = ("Time", "south_north", "west_east"), {"units": "m s-1", "coordinates": "XLONG XLAT XTIME"}
    places = {
        name: (dims, np.tile(values, (3, 1, 1)), {"units": units})
        for name, values, units in (("XLAT", lat, "degree_north"), ("XLONG", lon, "degree_east"))
    }
    places["XLONG"][1][2] += moved
    return xarray.Dataset(
        {name: (dims, np.full((3, 3, 4), 2.0), told) for name in ("U10", "V10")},
        {**places, "XTIME": ("Time", np.arange(3) * 60.0, {"units": "minutes since 2005-08-28 00:00:00"})},
    )


def test_places_written_for_every_time_are_read_where_they_stay(tmp_path):
    """They were "no coordinate", with the advice to take one index along the rows, after which nothing was left to read."""
    (times, values), said = both_ways(tmp_path, wrf())
    assert times == [0.0, 3600.0, 7200.0]
    np.testing.assert_array_equal(values, 2.0)
    assert not said
    for k in range(3):
        wrf().isel(Time=[k]).to_netcdf(tmp_path / f"wrfout_{k}.nc", engine="h5netcdf")
    assert open_dataset(tmp_path / "wrfout_?.nc").times.tolist() == [0.0, 3600.0, 7200.0]
    message, _ = both_ways(tmp_path, wrf(moved=1.0))
    assert (
        "coordinate 'XLONG' changes along 'Time', and grids that move are not read. Take one index" in message
    )
    given = ast.literal_eval(re.search(r"`select=([^`]+)`", message)[1])  # the remedy
    assert given == {"Time": 0}
    for index, west in ((0, 10.0), (2, 11.0)):
        opened = open_dataset(wrf(moved=1.0), select={"Time": index})
        np.testing.assert_allclose(np.asarray(opened.grid.bounds)[0], [west, 45.0], rtol=1e-6)
        assert str(opened.epoch) == f"2005-08-28{' 02:00' if index else ''}"


def test_times_that_single_precision_has_lost_are_told(tmp_path):
    """Hourly days since 1950 in float32 were read as steps of 3543.75 s and 3712.5 s without a word."""
    times = (25000 + np.arange(3) / 24).astype("f4")
    data = flow({"units": SINCE}).assign_coords(time=("time", times, {"units": SINCE}))
    _, said = both_ways(tmp_path, data)
    assert "variable 'time' is stored in float32, which knows its times only to 169 s" in said.pop()
    with (
        pytest.warns(UserWarning, match="only to 169 s"),
        xarray.open_dataset(tmp_path / "made.nc") as decoded,
    ):
        open_dataset(decoded.load())
    given = [f"2018-06-13 0{hour}:00" for hour in range(3)]
    assert open_dataset(data, times=given).times.tolist() == [
        0.0,
        3600.0,
        7200.0,
    ]  # the remedy, without the warning
    exact = data.assign_coords(time=("time", (25000 + np.arange(3) / 4).astype("f4"), {"units": SINCE}))
    (found, _), said = both_ways(tmp_path, exact)
    assert found == [0.0, 21600.0, 43200.0]
    assert not said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"select": {"time": 3}},
            r"`select` must name an index of dimension 'time', a whole number from 0 to 2",
        ),
        ({"select": {"x": -5}}, r"`select` must name an index of dimension 'x', .* from -4, .*; got -5"),
        ({"origin": (1.0,)}, r"`origin` must have 2 coordinates here; got \(1\.0,\)"),
    ],
)
@pytest.mark.parametrize("degrees", [False, True])
def test_an_index_or_an_origin_that_does_not_fit_is_told(tmp_path, options, said, degrees):
    """A file was called damaged, and an origin of one number on degrees ended in an IndexError."""
    data = flow(x={"units": "degrees_east"}, y={"units": "degrees_north"}) if degrees else flow()
    data = data.assign_coords(x=data.x / 1000, y=data.y / 1000) if degrees else data
    if degrees:
        data.x.attrs, data.y.attrs = {"units": "degrees_east"}, {"units": "degrees_north"}
    data.to_netcdf(tmp_path / "made.nc", engine="h5netcdf")
    for given in (data, tmp_path / "made.nc"):
        with pytest.raises(DatasetError, match=said):
            open_dataset(given, **options)


def test_units_that_contradict_each_other_are_refused(tmp_path):
    message, _ = both_ways(tmp_path, flow({"units": "s", "Unit": SINCE}))
    assert "variable 'time': its attributes" in message
    assert "units = 's'" in message
    assert f"Unit = '{SINCE}' contradict each other; say which counts: `attributes={{'time': " in message
    message, _ = both_ways(tmp_path, flow(speed={"units": "m/s", "UNITS": "cm/s"}))
    assert "variable 'u': its attributes units = 'm/s' and UNITS = 'cm/s' contradict" in message
    message, _ = both_ways(tmp_path, flow(x={"Unit": "km", "units": "m"}))
    assert "coordinate 'x': its attributes" in message
    same, said = both_ways(tmp_path, flow(speed={"units": "m/s", "Unit": "meter second-1"}))
    assert same[1][0] == [2.0, 2.0]
    assert not said
    opened = open_dataset(flow({"units": "s", "Unit": SINCE}), times=[0.0, 1.0, 2.0])
    assert opened.times.tolist() == [0.0, 1.0, 2.0]  # the remedy of the message, where the times are given


def opened_by_xarray(folder, told):
    """What xarray makes of a file with its own rules for dates, which know only `units` and `calendar`."""
    flow(told).to_netcdf(folder / "dated.nc", engine="h5netcdf")
    with xarray.open_dataset(folder / "dated.nc", engine="h5netcdf") as data:
        return data.load()


def test_what_xarray_did_not_read_of_a_time_is_not_lost(tmp_path):
    """xarray made dates of the standard calendar, or of one of two units, without a word."""
    noleap = {"units": "days since 2000-02-28", "Calendar": "NoLeap"}
    data = opened_by_xarray(tmp_path, noleap)
    with pytest.raises(DatasetError, match=r"made by the standard calendar, but it says calendar = 'NoLeap'"):
        open_dataset(data)
    with xarray.open_dataset(tmp_path / "dated.nc", engine="h5netcdf", decode_times=False) as raw:
        raw = raw.load()  # the remedy
    assert open_dataset(raw).epoch == open_dataset(tmp_path / "dated.nc").epoch
    assert open_dataset(raw).epoch.calendar == "noleap"
    data = opened_by_xarray(tmp_path, {"units": SINCE, "Unit": "hours since 1950-01-01"})
    for given in (data, tmp_path / "dated.nc"):
        with pytest.raises(
            DatasetError, match=rf"'{SINCE}' and Unit = 'hours since .* contradict each other"
        ):
            open_dataset(given)
    for same in (
        {"Calendar": "gregorian"},
        {"calendar": "gregorian", "Calendar": "Standard"},
        {"Unit": SINCE},
    ):
        data = opened_by_xarray(tmp_path, {"units": SINCE, **same})
        assert open_dataset(data).epoch == open_dataset(tmp_path / "dated.nc").epoch


@pytest.mark.parametrize(("unit", "size"), [("milliseconds", 1e-3), ("microseconds", 1e-6)])
def test_short_steps_after_a_date_are_the_same_numbers_both_ways(tmp_path, unit, size):
    """Seconds from 1970 in double precision lose them: the two ways gave 0.00100005 and 0.00099993."""
    data = opened_by_xarray(tmp_path, {"units": f"{unit} since 2000-01-01"})
    for given in (data, tmp_path / "dated.nc"):
        assert open_dataset(given).times.tolist() == [0.0, size, 2 * size]


def test_months_are_read_where_they_have_one_length(tmp_path):
    (times, _), said = both_ways(tmp_path, flow({"units": "months since 2000-01-01", "calendar": "360_day"}))
    assert times == [0.0, 30 * 86400.0, 60 * 86400.0]
    assert not said
    for units, why in (("years since 2000-01-01", "are months or years"), ("fortnights", "are not known")):
        message, _ = both_ways(tmp_path, flow({"units": units, "calendar": "360_day"}))
        assert f"its units '{units}' {why}" in message


@pytest.mark.parametrize("name", ["Units", "unit", "velocity_units", "UnitsOfVelocity"])
def test_units_of_velocities_and_places_under_any_spelling(tmp_path, name):
    (_, values), said = both_ways(tmp_path, flow(speed={name: "cm/s"}))
    np.testing.assert_allclose(values, 0.02)
    assert not said
    (_, values), said = both_ways(tmp_path, flow(x={name: "km"}))
    np.testing.assert_allclose(np.array(values)[:, 0], 2e-3)


def test_a_velocity_without_units_on_kilometres_is_told(tmp_path):
    (_, values), said = both_ways(tmp_path, flow(speed={"long_name": "u"}, x={"units": "km"}))
    np.testing.assert_allclose(values, 2.0)
    assert (
        "variable 'u' has units '', which are not known; it is used as it is, in units of 'x'" in said.pop()
    )


@pytest.mark.parametrize("units", ["degrees/s", "hPa/s"])
def test_the_remedy_of_a_velocity_that_does_not_fit_works(tmp_path, capsys, units):
    data = flow(speed={"units": units})
    with pytest.raises(DatasetError, match="does not fit a coordinate that measures length") as refused:
        open_dataset(data)
    given = ast.literal_eval(re.search(r"`attributes=([^`]+)`", str(refused.value))[1])
    assert given == {"u": {"units": "m/s"}}
    opened = open_dataset(data, attributes={**given, "v": given["u"]})
    np.testing.assert_array_equal(opened.read(0), 2.0)
    data.to_netcdf(tmp_path / "made.nc", engine="h5netcdf")
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "made.nc")])
    said = capsys.readouterr().err
    assert "`--attributes u.units=m/s`" in said
    assert "`--keep-units`" in said


def test_standard_names_and_directions_under_any_spelling(tmp_path):
    data = flow().rename(u="fred", v="wilma")
    data.fred.attrs["Standard_Name"] = "Eastward_sea_water_velocity"
    data.wilma.attrs["standardName"] = "northward_sea_water_velocity"
    assert "velocity fred, wilma (by their standard names)" in str(open_dataset(data))
    z = np.array([0.0, 10.0, 50.0])
    deep = data.isel(time=0, drop=True).expand_dims(lev=3).rename(fred="u", wilma="v")
    deep = deep.assign(w=deep.u).assign_coords(lev=(("lev",), z, {"Units": "m", "Positive": "Down"}))
    deep.w.attrs = {"units": "m/s", "standard_name": "upward_sea_water_velocity"}
    (_, values), _ = both_ways(tmp_path, deep)
    np.testing.assert_allclose(values, [[2.0, 2.0, -2.0]] * 36)
    text, reason = cf_attributes({"units": np.array([b"m s-1\0"]), "Axis": ["X"]}, 1)
    assert (text["units"], text["axis"], reason) == ("m s-1", "X", "")
    assert "units" not in cf_attributes({"time_units": "days", "community": "m"}, 3)[0]


def test_calendars_under_any_spelling():
    for text, calendar in {
        "NOLEAP": "noleap", "no_leap": "noleap", "365 days": "365_day", "360": "360_day", "360-day": "360_day",
        "Proleptic Gregorian": "proleptic_gregorian", "GREGORIAN ": "gregorian", None: "", "tai": "tai",
    }.items():  # fmt: skip
        assert parse_calendar(text) == calendar
    told, _ = cf_attributes({"Units": "days since 2001-03-01", "calendar_type": "NoLeap"}, 1)
    seconds, since, bare = decode_times(np.arange(2.0), told)
    assert since.calendar == "noleap"
    assert not bare
    # Before 1582-10-15 the standard calendar is the Julian one: 2000-01-01 is day 730,121 since 1-1-1 there.
    for calendar, days in (("standard", 730121.0), ("proleptic_gregorian", 730119.0)):
        told = {"units": "days since 1-1-1 00:00:0.0", "calendar": calendar}
        seconds, *_ = decode_times(np.array([days]), told)
        assert seconds[0] == 946684800.0
    for unit, size in (("nanoseconds", 1e-9), ("microsecond", 1e-6), ("weeks", 604800.0)):
        assert decode_times(np.array([2.0]), {"units": unit})[0][0] == 2 * size


def test_files_with_other_units_are_refused(tmp_path):
    flow(n=1, speed={"units": "furlong/s"}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    flow(n=1, first=1.0, speed={"units": "ell/s"}).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    flow(n=1, first=1.0, speed={"units": "furlong/s"}, x={"Unit": "km"}).to_netcdf(
        tmp_path / "c.nc", engine="h5netcdf"
    )
    with pytest.warns(UserWarning, match="furlong"):
        opened = open_dataset([tmp_path / "a.nc", tmp_path / "b.nc"])
    with pytest.raises(DatasetError, match=r"b\.nc: variable 'u' has units 'ell/s', but .* 'furlong/s'"):
        opened.read(1)
    with pytest.warns(UserWarning, match="furlong"):
        opened = open_dataset([tmp_path / "a.nc", tmp_path / "c.nc"])
    with pytest.raises(DatasetError, match=r"c\.nc: coordinate 'x' has units 'km', but .* 'm'"):
        opened.read(1)


def test_packed_and_marked_values_that_were_not_decoded(tmp_path):
    """A data set opened with `mask_and_scale=False` gives what its file gives; a mark under another name is refused."""
    data = flow()
    data.u[:, 0, 0] = np.nan
    packed = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -32768}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"u": packed})
    raw = xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf", mask_and_scale=False, decode_times=False)
    assert raw.u.dtype == np.int16
    np.testing.assert_array_equal(open_dataset(raw).read(1), open_dataset(tmp_path / "a.nc").read(1))
    assert "1 of them land" in str(open_dataset(raw))
    doubtful = flow()
    doubtful.u.attrs["scale_factor"] = 0.01
    with pytest.raises(DatasetError, match=r"variable 'u': it has `scale_factor` among its attributes"):
        open_dataset(doubtful)
    marked = flow(speed={"units": "m/s", "FillValue": -9999.0})
    open_dataset(marked)
    marked.v[1, 0, 0] = -9999.0
    opened = open_dataset(marked)
    with pytest.raises(DatasetError, match=r"1 values equal to its attribute FillValue = -9999\. CF calls"):
        opened.read(1)
    open_dataset(marked.where(marked != -9999.0), missing="zero").read(1)  # the remedy


def curved(lo=1000.0, hi=99000.0, x=None, y=None, names=("nav_lon", "nav_lat"), lat=None):
    """Velocities on two-dimensional coordinates from `lo` to `hi`."""
    low, high = (lo, hi) if lat is None else lat
    at_y, at_x = np.meshgrid(np.linspace(low, high, 6), np.linspace(lo, hi, 8), indexing="ij")
    told = {"units": "m/s"}
    return xarray.Dataset(
        {name: (("y", "x"), np.ones((6, 8)), told) for name in "uv"},
        {names[0]: (("y", "x"), at_x, x or {}), names[1]: (("y", "x"), at_y, y or {})},
    )


def test_metres_in_longitudes_are_not_unwrapped(tmp_path):
    for convert in (True, False):
        for told in ({"units": "m"}, {"unit": "metres"}):
            opened = open_dataset(curved(x=told, y=told), convert_units=convert)
            np.testing.assert_allclose(opened.grid.bounds, [[1000, 1000], [99000, 99000]])
            np.testing.assert_allclose(opened.read(0), 1.0)
        with pytest.warns(UserWarning, match=r"'nav_lon' \(1000 … 99000\) and 'nav_lat' .* taken as metres"):
            opened = open_dataset(curved(), convert_units=convert)
        np.testing.assert_allclose(opened.grid.bounds, [[1000, 1000], [99000, 99000]])
    flat = {"x": {"standard_name": "longitude"}, "y": {"standard_name": "latitude"}}
    with pytest.warns(UserWarning, match="taken as metres"):
        opened = open_dataset(curved(**flat))
    np.testing.assert_allclose(opened.grid.bounds[1], 99000)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"lo": 0.0, "hi": 500.0}, r"\(0 … 500\) may be degrees or metres, and units do not say which\. For metres pass `a"),
        ({"lo": 0.0, "hi": 5000.0, "lat": (0.0, 80.0)}, r"'nav_lat' \(0 … 80\) may be degrees or metres"),
        ({"lo": 0.0, "hi": 80.0, "x": {"units": "m"}}, r"may be degrees or metres"),
        ({"x": {"units": "degrees_east"}, "y": {"units": "degrees_north"}}, r"'nav_lon' .* units 'degrees_east', but these are"),
        (
            {"lo": 0.0, "hi": 80.0, "lat": (0.0, 200.0), "x": {"units": "degrees_east"}, "y": {"units": "degrees_north"}},
            r"'nav_lat' \(0 … 200\) has units 'degrees_north', but these are no degrees",
        ),
        (
            {"lo": 0.0, "hi": 80.0, "x": {"units": "m", "standard_name": "longitude"}, "y": {"units": "m"}},
            r"has units 'm' and the standard_name 'longitude', which is in degrees",
        ),
        ({"lo": 0.0, "hi": 80.0, "x": {"units": "degrees_east"}, "y": {"units": "m"}}, r"'nav_lon' is in degrees, but 'nav_lat'"),
    ],
)  # fmt: skip
def test_coordinates_that_may_be_degrees_or_metres_are_refused(made, said):
    with pytest.raises(DatasetError, match=said):
        open_dataset(curved(**made))


@pytest.mark.parametrize(
    "made",
    [
        {"lo": 0.0, "hi": 500.0},
        {"lo": 0.0, "hi": 80.0, "x": {"units": "degrees_east"}, "y": {"units": "furlong"}},
        {"x": {"units": "degrees_east"}, "y": {"units": "degrees_north"}},
        {"lo": 0.0, "hi": 80.0, "x": {"units": "grad"}, "y": {"units": "grad"}},
        {"lo": 0.0, "hi": 80.0, "x": {"units": "m", "Unit": "km"}, "y": {"units": "m"}},
        {"lo": 0.0, "hi": 80.0, "x": {"units": "m"}, "y": {"units": "m"}, "mark": -9999.0},
        {"lo": 0.0, "hi": 80.0, "x": {"units": "m"}, "y": {"units": "m"}, "mark": -1e20},
    ],
)
@pytest.mark.parametrize("line", [False, True])
def test_what_a_file_does_not_say_can_be_given(tmp_path, capsys, made, line):
    """The remedies were to change the file, for which neither Python nor the command line had a word."""
    mark = made.get("mark")
    data = curved(**{name: value for name, value in made.items() if name != "mark"})
    for name in ("u", "v") if mark else ():
        data[name][0, 0] = mark
        data[name].attrs |= {"FillValue": mark} if mark == -9999.0 else {}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={n: {"_FillValue": None} for n in "uv"})
    given: dict = {}
    typed: list = []
    for _ in range(3):
        if line:
            with pytest.raises(SystemExit) as ended:
                main(["info", str(tmp_path / "a.nc"), *(["--attributes", *typed] if typed else [])])
            message = capsys.readouterr().err if ended.value.code else ""
            typed += re.findall(r"`--attributes ([^`]+)`", message)[0].split() if message else []
        else:
            message = ""
            try:
                opened = open_dataset(tmp_path / "a.nc", attributes=given)
            except DatasetError as error:
                message = str(error)
                for name, said in ast.literal_eval(re.findall(r"`attributes=([^`]+)`", message)[0]).items():
                    given.setdefault(name, {}).update(said)
        if not message:
            break
    assert not message
    assert typed or given
    if mark and not line:
        assert "1 of them land" in str(opened)


def test_attributes_that_cannot_be_given_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"`attributes` must name variables of .*: time, u, v, x, y; got 'lon'"
    ):
        open_dataset(flow(), attributes={"lon": {"units": "m"}})
    with pytest.raises(DatasetError, match=r"'time': its dates are made already, so that its units can no"):
        open_dataset(opened_by_xarray(tmp_path, {"units": SINCE}), attributes={"time": {"units": "s"}})
    opened = open_dataset(tmp_path / "dated.nc", attributes={"time": {"units": "hours since 2000-01-01"}})
    assert (str(opened.epoch), opened.times[1]) == ("2000-01-01", 3600.0)
    (tmp_path / "a.vtk").write_text("# vtk DataFile Version 3.0")
    with pytest.raises(ValueError, match="`attributes` must be left out for VTK files"):
        open_dataset(tmp_path / "a.vtk", attributes={"u": {"units": "m/s"}})


def test_the_remedies_of_such_coordinates_work():
    for unit in ({"units": "m"}, {"units": "degrees"}):
        hi = 500.0 if unit["units"] == "m" else 80.0
        opened = open_dataset(curved(lo=0.0, hi=hi, x=unit, y=unit))
        np.testing.assert_allclose(opened.grid.bounds[1], hi)
        assert ("degrees/s" in str(opened)) == (unit["units"] == "degrees")


@pytest.mark.parametrize(
    "names", [("nav_lon", "nav_lat"), ("lon_rho", "lat_rho"), ("XLONG", "XLAT"), ("rlon", "rlat")]
)
def test_longitudes_without_units_are_degrees_where_they_can_be(names):
    """m/s on `lon_rho` without units were used as degrees per second."""
    opened = open_dataset(curved(lo=0.0, hi=80.0, names=names))
    assert "m/s converted to degrees/s" in str(opened)
    assert f"coordinates {names[0]} (taken as degrees), {names[1]} (taken as degrees)" in str(opened)


def test_velocities_in_unknown_units_on_degrees_are_refused():
    """They were taken as m/s, with a warning that said so."""
    data = curved(lo=0.0, hi=80.0)
    for units in ("ft/s", "rad/s", "furlongs per fortnight"):
        for name in "uv":
            data[name].attrs = {"units": units}
        with pytest.raises(DatasetError, match=rf"'u' has units '{units}', which are not known, on degrees"):
            open_dataset(data)
        np.testing.assert_allclose(open_dataset(data, convert_units=False).read(0), 1.0)
    for units in ("(m/s)", "m s⁻¹", "m·s-1", "[m s^-1]", "Meters per Second"):
        data.u.attrs = data.v.attrs = {"units": units}
        assert "m/s converted" in str(open_dataset(data))


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (
            "degrees_west",
            "degrees_north",
            "'x' is in degrees_west; change its signs and call it degrees_east",
        ),
        ("degW", "degN", "'x' is in degW; change its signs"),
        (
            "degree_east",
            "Degrees South",
            "'y' is in Degrees South; change its signs and call it degrees_north",
        ),
    ],
)
def test_degrees_that_count_the_other_way_are_refused(tmp_path, x, y, told):
    """The advice was to call them degrees_east, which mirrors the map."""
    found, _ = both_ways(tmp_path, flow(x={"units": x}, y={"units": y}))
    assert told in found


def test_two_longitudes_far_apart_make_no_jump():
    told = {"units": "m/s"}
    data = xarray.Dataset(
        {name: (("lat", "lon"), np.ones((3, 2)), told) for name in "uv"},
        {"lon": [0.0, 200.0], "lat": [0.0, 1.0, 2.0]},
    )
    np.testing.assert_allclose(open_dataset(data).grid.bounds[:, 0], [0, 200])
    sorted_wrongly = xarray.Dataset(
        {name: (("lat", "lon"), np.ones((3, 4)), told) for name in "uv"},
        {"lon": [-175.0, -170.0, 170.0, 175.0], "lat": [0.0, 1.0, 2.0]},
    )
    with pytest.raises(DatasetError):
        open_dataset(sorted_wrongly)

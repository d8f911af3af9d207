"""Dates from end to end: read from files, given as spans, kept by trajectories, written to files, shown in pictures."""

import datetime
import json
import types

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace import Epoch, TimeSeriesField, create_tracker, load_optimized_dataset
from jaxtrace.cli import main
from jaxtrace.fields import StreamedField, UniformGrid
from jaxtrace.fields.epoch import CALENDARS
from jaxtrace.io import DatasetError, load_trajectory, open_dataset
from jaxtrace.io.cf.units import decode_times
from jaxtrace.visualization import animate, player_html, plot_paths, plot_positions, plot_speed
from jaxworlds.compiling import CompileWatch

DAY = 86_400.0
GRID = UniformGrid((0.0, 0.0), (0.5, 0.5), (3, 3))
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(3, 9, 2)).astype("f4") * 1e-7
DATES = np.datetime64("2015-11-16T06") + np.arange(3) * np.timedelta64(1, "D")


def field(epoch="2015-11-16 06:00"):
    return TimeSeriesField(DATA, np.arange(3) * DAY, grid=GRID, epoch=epoch)


def dataset(units="days since 2015-11-16", calendar="standard", days=(0.0, 1.0, 2.0), **attributes):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    velocity = (("time", "y", "x"), DATA.reshape(3, 3, 3, 2)[..., 0], {"units": "m/s"})
    time = ("time", np.asarray(days), {"units": units, "calendar": calendar} | attributes)
    places = {"x": ("x", np.arange(3.0), {"units": "m"}), "y": ("y", np.arange(3.0), {"units": "m"})}
    return xarray.Dataset({"u": velocity, "v": velocity}, {"time": time} | places)


SEEDS = np.array([[0.4, 0.5], [0.6, 0.5]], np.float32)


@pytest.fixture(scope="module")
def run():
    return create_tracker("rk4", field()).track_particles(SEEDS, ("2015-11-16 06:00", "2015-11-18 06:00"), 5)


def test_calendars_agree_with_what_python_knows_and_with_their_own_lengths():
    for day in RNG.integers(-140_000, 400_000, 200).tolist():
        date = datetime.date(1970, 1, 1) + datetime.timedelta(day)
        assert Epoch("1970-01-01").text(day * DAY) == date.isoformat()
        assert Epoch("1970-01-01").seconds(date) == day * DAY
    years = {"360_day": 360, "noleap": 365, "all_leap": 366, "julian": 365.25, "standard": 365.2425}
    for calendar in CALENDARS:
        epoch = Epoch("1999-03-01", calendar)
        length = epoch.seconds("2399-03-01") / DAY / 400
        assert length == years.get(calendar, 365.2425)
        for seconds in RNG.integers(-(10**9), 10**11, 50).tolist():
            assert epoch.seconds(epoch.text(seconds)) == seconds
    # The day after 1582-10-04 was 1582-10-15: what "days since 0001-01-01" of old files rests on.
    assert Epoch("1582-10-04").text(DAY) == "1582-10-15"
    assert Epoch("0001-01-01").seconds("1970-01-01") == 719_164 * DAY
    assert Epoch("0001-01-01", "proleptic_gregorian").seconds("1970-01-01") == 719_162 * DAY


@pytest.mark.parametrize(
    ("said", "calendar"),
    [
        ("2015-02-29", "standard"),
        ("2015-02-31", "360_day"),
        ("2016-02-29", "noleap"),
        ("1582-10-10", "standard"),
    ],
)
def test_days_that_a_calendar_does_not_have_are_refused(said, calendar):
    with pytest.raises(
        ValueError, match=rf"`date` must be a day of the calendar '{calendar}'; {said} is not one"
    ):
        Epoch(said, calendar)


def test_dates_are_taken_in_every_form_and_in_utc():
    epoch = Epoch("2015-11-16T08:00+02:00")
    assert epoch == Epoch(np.datetime64("2015-11-16T06")) == Epoch(datetime.datetime(2015, 11, 16, 6))
    assert str(epoch) == "2015-11-16 06:00"
    assert epoch.units == "seconds since 2015-11-16 06:00:00"
    zone = datetime.timezone(datetime.timedelta(hours=2))
    for one in (
        "2015-11-16T09:00:00Z",
        np.datetime64("2015-11-16T09"),
        datetime.datetime(2015, 11, 16, 11, tzinfo=zone),
        "2015-11-16 09:00:00.000",
    ):
        assert epoch.seconds(one) == 3 * 3600
    assert epoch.seconds(datetime.date(2015, 11, 17)) == 18 * 3600
    for wrong, words in (("yesterday", "must be a date such as"), (np.datetime64("NaT"), "NaT")):
        with pytest.raises(ValueError, match=words):
            epoch.seconds(wrong)
    with pytest.raises(ValueError, match=r"`calendar` must be one of standard, .*; got 'mayan'"):
        Epoch("2015-11-16", "mayan")


def test_files_keep_the_date_of_their_first_slice(tmp_path):
    # 2015-11-16 is day 735919 in the calendar that most files mean, and 735917 in the one without the Julian years.
    for units, calendar, days in (
        ("days since 2015-11-16", "gregorian", 0),
        ("hours since 2015-11-15T12:00:00+00:00", "", 0.5),
        ("days since 0001-01-01 00:00:00", "standard", 735_919),
        ("days since 0001-01-01", "proleptic_gregorian", 735_917 + 1),
    ):
        scale = 24 if units.startswith("hours") else 1
        data = dataset(units, calendar, (np.arange(3) + days) * scale)
        opened = open_dataset(data)
        shift = "2015-11-17" if calendar == "proleptic_gregorian" else "2015-11-16"
        assert opened.epoch == Epoch(shift), units
        np.testing.assert_allclose(opened.times, np.arange(3) * DAY)
        assert f"{shift} …" in str(opened)
    path = tmp_path / "flow.nc"
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    dataset().to_netcdf(path, engine="h5netcdf")
    for stream in (False, True):
        found = load_optimized_dataset(path, stream=stream, verbose=False)
        assert found.epoch == Epoch("2015-11-16")
        later = load_optimized_dataset(
            path, stream=stream, verbose=False, time_range=("2015-11-17", datetime.date(2015, 11, 18))
        )
        assert later.epoch == found.epoch  # time 0 stays where it was
        assert later.time_range == (DAY, 2 * DAY)
    decoded = dataset().assign_coords(time=DATES.astype("datetime64[ns]"))
    assert open_dataset(decoded).epoch == Epoch("2015-11-16 06:00")
    far = dataset("days since 0850-01-01", "proleptic_gregorian")
    assert open_dataset(far).epoch == Epoch("0850-01-01", "proleptic_gregorian")
    plain = dataset("s", "")
    assert open_dataset(plain).epoch is None
    assert open_dataset(plain, epoch="2015-11-16").epoch == Epoch("2015-11-16")
    with pytest.raises(ValueError, match=r"`epoch` must be '2015-11-16', the date of the first slice"):
        open_dataset(dataset(), epoch="2015-11-17")
    with pytest.raises(
        TypeError, match="`time_range` must be numbers, since the date of time 0 is not known"
    ):
        open_dataset(plain, time_range=("2015-11-16", "2015-11-17"))
    # Times of the caller replace those of the file, dates and all.
    assert open_dataset(dataset(), times=[0.0, 1.0, 2.0]).epoch is None
    assert open_dataset(plain, times=list(DATES)).epoch == Epoch(DATES[0])


@pytest.mark.parametrize(("calendar", "after"), [("360_day", "2015-02-30"), ("noleap", "2015-03-01")])
def test_dates_of_other_calendars_are_their_own(calendar, after):
    opened = open_dataset(dataset("days since 2015-02-28", calendar, (0, 2, 4)))
    assert opened.epoch == Epoch("2015-02-28", calendar)
    assert opened.epoch.text(2 * DAY) == (after if calendar == "360_day" else "2015-03-02")
    assert opened.epoch.seconds(after) == (2 * DAY if calendar == "360_day" else DAY)
    assert opened.epoch.dates([0.0])[0] == "2015-02-28"  # as text: NumPy has no such calendar
    assert str(opened.epoch) == f"2015-02-28 ({calendar})"


def test_dates_of_cftime_keep_their_calendar():
    def date(day, calendar="noleap"):
        parts = {"year": 2015, "month": 3, "day": day, "hour": 12, "minute": 0, "second": 0, "microsecond": 0}
        return types.SimpleNamespace(**parts, calendar=calendar, dayofwk=1)

    seconds, zero, bare = decode_times(np.array([date(1), date(3)], object), {})
    assert not bare
    assert np.diff(seconds) == 2 * DAY
    assert zero.later_by(seconds[0]) == Epoch("2015-03-01 12:00", "noleap")
    with pytest.raises(ValueError, match="several calendars: noleap, standard"):
        decode_times(np.array([date(1), date(3, "standard")], object), {})
    with pytest.raises(ValueError, match=r"in the calendar 'standard' of the field; .* is in 'noleap'"):
        Epoch("2015-01-01").seconds(date(1))


def test_an_unknown_calendar_gives_no_dates_and_says_so():
    with pytest.warns(UserWarning, match=r"2015-11-16 \(mayan\), a calendar that is not known"):
        opened = open_dataset(dataset(calendar="mayan"))
    assert opened.epoch is None
    np.testing.assert_allclose(opened.times, np.arange(3) * DAY)
    assert open_dataset(dataset(calendar="none")).epoch is None  # CF: on purpose without dates


def test_components_of_other_years_are_not_put_together(tmp_path):
    """Both were counted from their own first slice, and so they fitted."""
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    dataset()[["u"]].to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    dataset("days since 2016-11-16")[["v"]].to_netcdf(tmp_path / "v.nc", engine="h5netcdf")
    with pytest.raises(
        DatasetError, match=r"v\.nc: variable 'v' begins on 2016-11-16, but 'u' in .* on 2015-11-16"
    ):
        open_dataset([tmp_path / "u.nc", tmp_path / "v.nc"])


def test_fields_take_dates_as_times():
    made = TimeSeriesField(DATA, DATES, grid=GRID)
    assert made.epoch == Epoch(DATES[0])
    np.testing.assert_array_equal(made.times, np.arange(3) * DAY)
    counted = TimeSeriesField(DATA, DATES.astype(datetime.datetime).tolist(), grid=GRID, epoch="2015-11-16")
    np.testing.assert_array_equal(counted.times, np.arange(3) * DAY + 6 * 3600)
    assert StreamedField(DATA, DATES, GRID).epoch == made.epoch
    assert StreamedField(DATA, DATES, GRID).load().epoch == made.epoch
    assert made.replace(data=DATA * 2).epoch == made.replace(layout="rows").epoch == made.epoch
    assert made.with_layout("rows").epoch == made.epoch
    assert made.replace(epoch=None).epoch is None
    np.testing.assert_array_equal(made(SEEDS, "2015-11-17T06:00"), made(SEEDS, DAY))
    with pytest.raises(
        TypeError, match=r"`t` must be numbers, since the date of time 0 is not known.*with_epoch"
    ):
        made.with_epoch(None)(SEEDS, "2015-11-17")


def test_spans_and_releases_may_be_dates(run):
    tracker = create_tracker("rk4", field())
    span = (0.0, 2 * DAY)
    for dates in (
        ("2015-11-16T06:00Z", "2015-11-18 06:00"),
        (DATES[0], DATES[2]),
        DATES[[0, 2]],
        (datetime.datetime(2015, 11, 16, 6), 2 * DAY),
    ):
        plan = tracker.plan(dates, 5)
        assert plan.span == span
    plan = tracker.plan(
        span, 5, datetime.timedelta(hours=1), 2, release_times=["2015-11-16 06:00", "2015-11-17"]
    )
    assert plan.dt == 3600
    np.testing.assert_array_equal(plan.release_times, [0.0, 18 * 3600])
    np.testing.assert_array_equal(run.positions, tracker.track_particles(SEEDS, span, 5).positions)
    with pytest.warns(
        UserWarning, match="to 2015-11-19 00:00 reaches beyond the times of the field, 2015-11-16 06:00"
    ):
        tracker.plan((DATES[0], "2015-11-19"), 5)
    undated = create_tracker("rk4", field(None))
    with pytest.raises(TypeError, match=r"`time_span` must be numbers.*field\.with_epoch\('2015-11-16'\)"):
        undated.plan(("2015-11-16", "2015-11-18"), 5)


def test_fields_of_other_dates_share_one_program(run):
    """The date is no part of the compiled step."""
    tracker = create_tracker("rk4", field("1999-01-01"))
    points = jnp.asarray(SEEDS)  # JAX may compile a program for the transfer, the first time in a process
    with CompileWatch() as watch:
        other = tracker.track_particles(SEEDS, (0.0, 2 * DAY), 5)
        field("1980-01-01")(points, 0.0)
        first = watch.compiles
        field("1981-01-01")(points, 0.0)
    assert watch.compiles == first <= 1
    np.testing.assert_array_equal(other.positions, run.positions)
    assert other.epoch == Epoch("1999-01-01")


def test_a_trajectory_knows_its_dates(run):
    assert run.epoch == Epoch("2015-11-16 06:00")
    np.testing.assert_array_equal(run.dates, DATES[0] + np.arange(5) * np.timedelta64(12, "h"))
    assert "from 2015-11-16 06:00 to 2015-11-18 06:00" in run.summary()
    assert run.row_of("2015-11-17") == 1
    bare = run.with_epoch(None)
    assert "from 0 to 172800" in bare.summary()
    with pytest.raises(ValueError, match=r"trajectory\.with_epoch\('2015-11-16'\)"):
        _ = bare.dates


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
def test_files_of_trajectories_keep_the_date(run, tmp_path, suffix):
    if suffix != "npz":
        xarray = pytest.importorskip("xarray", reason="xarray is not installed")
        pytest.importorskip("h5netcdf" if suffix == "nc" else "numcodecs", reason="not installed")
    for epoch in (run.epoch, Epoch("2015-02-30", "360_day"), None):
        path = run.with_epoch(epoch).save(tmp_path / f"run.{suffix}")
        assert load_trajectory(path).epoch == epoch
    if suffix == "nc":
        path = run.save(tmp_path / "run.nc")
        with xarray.open_dataset(path, engine="h5netcdf") as data:  # any reader of CF sees the dates
            np.testing.assert_array_equal(data.time.values, np.stack([run.dates] * run.particles))
        with xarray.open_dataset(path, engine="h5netcdf", decode_times=False) as data:
            assert data.time.attrs["units"] == "seconds since 2015-11-16 06:00:00"
            assert data.time.attrs["calendar"] == "standard"
    if suffix != "npz":
        path = run.with_epoch(None).save(tmp_path / f"run.{suffix}", since="2015-11-16")
        assert load_trajectory(path).epoch == Epoch("2015-11-16")
        with pytest.raises(
            ValueError, match=r"`since` must be '2015-11-16 06:00'.*trajectory\.with_epoch\('2015-11-17'\)"
        ):
            run.save(path, since="2015-11-17")
        assert load_trajectory(run.save(path, since=DATES[0])).epoch == run.epoch


@pytest.mark.parametrize("suffix", ["vtp", "pvd"])
def test_files_for_paraview_say_their_dates(run, tmp_path, suffix):
    vtk = pytest.importorskip("vtk", reason="vtk is not installed")

    def texts(path):
        reader = vtk.vtkXMLPolyDataReader()
        reader.SetFileName(str(path))
        reader.Update()
        held = reader.GetOutput().GetFieldData()
        names = ("date_of_time_0", "date")
        return [
            None if held.HasArray(name) == 0 else held.GetAbstractArray(name).GetValue(0) for name in names
        ]

    path = run.save(tmp_path / f"run.{suffix}")
    if suffix == "vtp":
        assert texts(path) == ["2015-11-16 06:00", None]
        assert texts(run.with_epoch(None).save(path)) == [None, None]
        return
    frames = sorted((tmp_path / "run_frames").glob("*.vtp"))
    assert texts(frames[-1]) == ["2015-11-16 06:00", "2015-11-18 06:00"]
    assert texts(tmp_path / "run_paths.vtp")[0] == "2015-11-16 06:00"


def test_files_of_older_versions_keep_the_date_in_their_unit(run, tmp_path, monkeypatch):
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    from jaxtrace.io import trajectory_files
    from jaxtrace.io.cf import trajectories as cf_trajectories

    def older(trajectory, extra):
        header = json.loads(trajectory_files.header_text(trajectory, extra))
        del header["epoch"]
        return json.dumps(header)

    monkeypatch.setattr(cf_trajectories, "header_text", older)
    assert load_trajectory(run.save(tmp_path / "a.nc")).epoch == run.epoch
    assert load_trajectory(run.save(tmp_path / "a.zarr")).epoch == run.epoch  # was lost
    assert load_trajectory(run.with_epoch(None).save(tmp_path / "b.nc")).epoch is None


@pytest.mark.filterwarnings("default")
def test_a_time_beyond_the_recorded_ones_is_told(run, tmp_path, capsys):
    with pytest.warns(
        UserWarning,
        match="`at` must lie within the recorded times.*got 1999-01-01.*2015-11-16 06:00 is taken",
    ):
        assert run.row_of("1999-01-01") == 0
    assert run.row_of(2 * DAY) == run.row_of("2015-11-18T06:00") == 4
    with pytest.warns(UserWarning, match="got 259200. The time 172800 is taken"):
        assert run.with_epoch(None).row_of(3 * DAY) == 4
    from jaxtrace.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["plot", str(run.save(tmp_path / "run.npz")), "--at", "2021-01-01"])
    assert ended.value.code in (0, None)
    assert capsys.readouterr().err.count("`--at` must lie within the recorded times") == 1


def test_pictures_show_dates(run, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")

    def words(figure):
        figure.canvas.draw()
        texts = [text.get_text() for ax in figure.axes for text in ax.texts]
        for ax in figure.axes:
            texts += [ax.get_title(loc="left"), ax.get_ylabel()]
            texts += [label.get_text() for label in ax.get_yticklabels()]
            texts += [inner.get_ylabel() for inner in ax.child_axes]
            texts += [label.get_text() for inner in ax.child_axes for label in inner.get_yticklabels()]
        return texts

    said = words(plot_paths(run, color="time"))
    assert "2 particles, 2015-11-16 06:00 to 2015-11-18 06:00" in said
    assert {"date", "2015-11-17 00:00", "2015-11-18 00:00"} <= set(said)
    aged = words(plot_paths(run, color="age"))
    assert {"age (days)", "1", "2"} <= set(aged)
    assert "2 particles, 2015-11-17 06:00" in words(plot_positions(run, "2015-11-17T06:00"))
    assert "2015-11-17 06:00" in words(plot_speed(field(), time=DATES[1]))
    assert "2 particles, t = 0 to 1.728e+05" in words(plot_paths(run.with_epoch(None)))
    page = player_html(run, color="time")
    facts = json.loads(
        page[(start := page.index("{", page.index('"note"') - 2)) : page.index("</script>", start)]
    )
    assert facts["dates"] == run.epoch.texts(run.times)
    assert facts["label"] == "date"
    assert facts["marks"][0][1] == "2015-11-16 12:00"
    assert animate(run, tmp_path / "run.gif", frames=2).stat().st_size > 0


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    return ended.value.code or 0, *capsys.readouterr()


def test_the_command_line_speaks_in_dates(tmp_path, capsys):
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    flow, out = tmp_path / "flow.nc", tmp_path / "run.nc"
    dataset().to_netcdf(flow, engine="h5netcdf")
    code, said, _ = command(capsys, "info", flow, "--json")
    facts = json.loads(said)
    assert code == 0
    assert (facts["first date"], facts["last date"]) == ("2015-11-16", "2015-11-18")
    line = ["run", flow, "--particles", 3, "--times", 3, "--out", out]
    code, said, errors = command(capsys, *line, "--span", "2015-11-18", "2015-11-16T12:00")
    assert code == 0, errors
    assert "from 2015-11-18 00:00 to 2015-11-16 12:00" in said
    assert load_trajectory(out).epoch == Epoch("2015-11-16")
    assert load_trajectory(out).times.tolist() == [2 * DAY, 1.25 * DAY, 0.5 * DAY]
    code, said, _ = command(capsys, "plot", out, "--at", "2015-11-17T06:00")
    assert code == 0
    assert said.splitlines()[-4].endswith("2015-11-17 06:00") or "2015-11-17 06:00" in said
    code, _, errors = command(capsys, *line, "--since", "2014-01-01")
    assert code == 2
    assert "2015-11-16" in errors
    flow = tmp_path / "plain.nc"
    dataset("s", "", np.arange(3) * DAY).to_netcdf(flow, engine="h5netcdf")
    line[1] = flow
    code, _, errors = command(capsys, *line, "--span", "2015-11-16", "2015-11-18")
    assert code == 2
    assert "`--since 2015-11-16`" in errors
    code, said, _ = command(capsys, *line, "--span", "2015-11-16", "2015-11-18", "--since", "2015-11-16")
    assert code == 0
    assert "2015-11-18" in said
    problem = tmp_path / "problem.toml"
    problem.write_text(
        'field = "plain.nc"\nsince = 2015-11-16\nspan = [2015-11-16, 2015-11-17T12:00:00Z]\ntimes = 2\n'
        '[seeds]\nkind = "even"\nn = 3\n'
    )
    code, said, errors = command(capsys, "run", problem)
    assert code == 0, errors
    assert "from 2015-11-16 00:00 to 2015-11-17 12:00" in said

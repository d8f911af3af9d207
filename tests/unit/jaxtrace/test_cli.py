"""The command `jaxtrace` as a person uses it: files looked into, runs from options and from TOML, pictures, errors."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vtk_series import write_series

from jaxtrace._commands import run as run_module
from jaxtrace.cli import main
from jaxtrace.io import load_trajectory

pytestmark = pytest.mark.usefixtures("quick_compile")

SMALL = ("--times", "3", "--dt", "0.5", "--lattice", "2", "2")


def run_cli(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trajectories of four particles in the double gyre."""
    file = tmp_path_factory.mktemp("paths") / "paths.npz"
    assert run_cli("run", "double_gyre", *SMALL, "--boundary", "reflective", "--out", file, "--json") == 0
    return file


def test_help_has_an_example_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for command in ("info", "run", "plot", "bench"):
        assert f"Example: jaxtrace {command}" in shown


def test_files_are_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = write_series(tmp_path, [0.0, 2.0])
    assert run_cli("info", pattern, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["grid"], found["slices"], found["last time"]) == ("UniformGrid", 2, 2.0)
    np.testing.assert_allclose(found["upper corner"], [1.0, 0.4, 0.2], rtol=1e-6)
    assert found["bytes in all"] == 2 * 6 * 5 * 3 * 3 * 4
    assert found["variables"]["Velocity (node data)"] == [90, 3]
    assert run_cli("info", pattern) == 0
    assert "lattice of 6 × 5 × 3 nodes" in capsys.readouterr().out


def test_netcdf_is_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import xarray

    axes = {"time": [0.0, 1.0], "y": [0.0, 1.0], "x": [0.0, 1.0, 2.0]}
    speed = (tuple(axes), np.ones((2, 2, 3), np.float32))
    file = tmp_path / "flow.nc"
    data = xarray.Dataset({"u": speed, "v": speed}, axes)
    data["time"].attrs["units"] = "s"
    data.to_netcdf(file, engine="h5netcdf")
    assert run_cli("info", file, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "field"
    assert found["variables"]["u"] == {"time": 2, "y": 2, "x": 3}


def test_a_run_is_written_looked_at_and_drawn(
    paths: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_trajectory(paths)
    assert found.positions is not None
    assert found.positions.shape == (3, 4, 2)
    np.testing.assert_allclose(found.positions[0, 0], [0.5, 0.25])
    assert found.times.tolist() == [0.0, 5.0, 10.0]
    assert run_cli("info", paths) == 0
    assert "4 particles, 3 recorded times from 0 to 10: finished" in capsys.readouterr().out
    assert run_cli("info", paths, "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "trajectories"
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((30, 24)))
    assert run_cli("plot", paths) == 0
    lines = capsys.readouterr().out.splitlines()
    dots = [line for line in lines if "⠀" <= max(line) <= "⣿"]
    assert max("".join(dots)) > "⠀"
    assert {len(line) for line in dots} == {30}, "as wide as the terminal"
    span = lines[len(dots)]
    assert span.startswith("x ")
    assert span.endswith("t = 10")
    starts = {"paths.png": b"\x89PNG", "paths.svg": b"<?xml", "paths.html": b"<!doctype html>"}
    for name, start in starts.items():
        assert run_cli("plot", paths, "--out", name, "--color", "age", "--field", "double_gyre") == 0
        assert (tmp_path / name).read_bytes().lower().startswith(start.lower())
    assert run_cli("plot", paths, "--out", "now.png", "--at", "5", "--time-unit", "s") == 0
    assert (tmp_path / "now.png").exists()


def test_fields_are_drawn(tmp_path: Path) -> None:
    assert run_cli("plot", "double_gyre", "--out", "gyre.png") == 0
    assert (tmp_path / "gyre.png").read_bytes().startswith(b"\x89PNG")
    assert (
        run_cli("plot", "double_gyre", "--out", "gyre.html", "--bounds", "0", "0", "1", "1", "--at", "2") == 0
    )
    assert "<svg" in (tmp_path / "gyre.html").read_text()


@pytest.mark.filterwarnings("default:`initial_positions` must lie within")
def test_a_problem_file_says_all_of_it_and_options_replace_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "seeds.csv").write_text("x,y\n0.4,0.5\n1.6,0.5\n")
    (tmp_path / "problem.toml").write_text("""
        field = "solid_rotation"
        times = 3
        dt = 0.5
        span = [0, 1]
        out = "turned.nc"
        [seeds]
        kind = "table"
        table = "seeds.csv"
        [[boundary]]
        kind = "absorbing"
        bounds = [-1, -1, 1, 1]
        [[boundary]]
        kind = "sphere"
        center = [5, 5]
        radius = 1.0
        side = "outside"
    """)
    assert run_cli("run", "problem.toml", "--json") == 0
    said = capsys.readouterr()
    assert "1 of 2 does not, the first is number 1 at (1.6, 0.5)" in said.err
    found = json.loads(said.out)
    assert found["particles"] == 2
    assert found["outcomes"]["began outside the field or its boundary, or on land"] == 1
    assert (tmp_path / "turned.nc").exists()
    assert load_trajectory(tmp_path / "turned.nc").alive[-1].tolist() == [True, False]  # type: ignore[index]
    assert (
        run_cli("run", "problem.toml", "--plan", "--particles", "5", "--times", "7", "--boundary", "none")
        == 0
    )
    shown = capsys.readouterr().out
    assert "5 in 1 batch" in shown
    assert "7 recorded" in shown
    assert "Unbounded" in shown


def test_ctrl_c_keeps_what_was_computed_and_resume_goes_on(
    paths: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create, interrupt = run_module.create_tracker, [True]

    def press(done: int, total: int) -> None:
        if interrupt.pop() if interrupt else False:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(
        run_module, "create_tracker", lambda *given, **more: create(*given, progress_callback=press, **more)
    )
    given = [
        "run",
        "double_gyre",
        *SMALL,
        "--times",
        "5001",
        "--boundary",
        "reflective",
        "--checkpoint",
        "saved",
    ]
    assert run_cli(*given, "--out", "part.npz") == 130
    assert "with --resume goes on" in capsys.readouterr().out
    part = load_trajectory(tmp_path / "part.npz")
    assert 0 < len(part) < 5001
    assert run_cli(*given, "--resume", "--out", "whole.npz") == 0
    whole = load_trajectory(tmp_path / "whole.npz")
    assert len(whole) == 5001
    assert np.array_equal(whole.positions[: len(part)], part.positions)  # type: ignore[index, arg-type]


def test_tracking_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--particles", "4", "--steps", "20", "--rounds", "1", "--integrators", "euler"]
    assert run_cli("bench", *given, "--json") == 0
    row = json.loads(capsys.readouterr().out)["integrators"]["euler"]
    assert row["particle_steps_per_second"] > 0
    assert row["steps"] == 20


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["info", "none.nc"], "no file matches"),
        (["info", "double_gyre"], "is a formula"),
        (["info", "bad.npz"], "no trajectory can be read"),
        (["run", "none.toml"], "is not there"),
        (["run", "bad.toml"], "must be TOML"),
        (["run", "words.toml"], "Did you mean 'times'?"),
        (["run", "kind.toml"], "Did you mean 'circle'?"),
        (["run", "missing.toml"], "must say center, radius"),
        (["run", "option.toml"], "`options` must be those of rk4"),
        (["run", "none_*.vtu"], "no file matches"),
        (["run", "doublegyre"], "Did you mean 'double_gyre'?"),
        (["run", "double_gyre", "--out", "a.csv"], "must end in .nc"),
        (["run", "double_gyre", "--resume"], "needs `--checkpoint`"),
        (["run", "double_gyre", "--bounds", "0", "1"], "must be 4 numbers"),
        (["run", "double_gyre", "--velocity", "u"], "must be left out"),
        (["run", "double_gyre", "--earth-radius", "5"], "`--earth-radius` must be left out"),
        (
            ["run", "double_gyre", "--integrator", "milstein", "--option", "diffusivity=a"],
            "`options` must be those of milstein; could not convert string to float: 'a'",
        ),
        (["run", "double_gyre", "--integrator", "rk5"], "must be one of"),
        (["run", "double_gyre", "--particles", "0"], "`--particles` must be at least 1"),
        (["run", "double_gyre", "--particles", "4", "--lattice", "2", "2"], "give one of them"),
        (["run", "double_gyre", "--seeds", "none.csv"], "does not exist"),
        (
            ["run", "double_gyre", "--seeds", "places.csv"],
            "Write x,y for them in the first line of places.csv",
        ),
        (["run", "double_gyre", "--seeds", "bare.csv"], "The first line of bare.csv must name the columns"),
        (["run", "double_gyre", "--seeds", "space.csv"], "got 3. Leave out the column z."),
        (["run", "double_gyre", "--bounds", "nan", "0", "1", "1"], "`--bounds` must be finite; got [nan"),
        (["run", "double_gyre", "--bounds", "2", "1", "0", "0"], "The other way round: 0 0 2 1."),
        (["run", "double_gyre", "--span", "0", "nan"], "`--span` must be finite"),
        (["plot", "double_gyre", "--at", "nan", "--out", "a.png"], "`--at` must be finite"),
        (["plot", "double_gyre"], "`--out` must name a picture"),
        (["plot", "double_gyre", "--out", "a.txt"], "must end in .png"),
        (["bench", "--particles", "0"], "must be at least 1"),
    ],
)
def test_wrong_input_ends_with_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files: dict[str, Any] = {
        "bad.npz": "no zip",
        "bad.toml": "field = ",
        "words.toml": 'field = "double_gyre"\ntims = 3',
        "kind.toml": 'field = "double_gyre"\nseeds = {kind = "circel"}',
        "missing.toml": 'field = "double_gyre"\nseeds = {kind = "circle", n = 3}',
        "places.csv": "lon,lat\n1,2\n",
        "bare.csv": "1.0,2.0\n0.5,0.5\n",
        "space.csv": "x,y,z\n1,0.5,0\n",
        "option.toml": 'field = "double_gyre"\noptions = {rtol = 1e-3}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert run_cli(*arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("jaxtrace: ")
    assert len(error.splitlines()) == 1


def test_zarr_is_read_and_written_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    metres, axes = {"units": "m"}, (np.linspace(0, 1, 6), np.linspace(0, 2, 9))
    moving = np.full((3, 6, 9), 0.04, "f4")
    flow = {
        "u": (("time", "y", "x"), moving, {"units": "m s-1"}),
        "v": (("time", "y", "x"), 0 * moving, {"units": "m s-1"}),
    }
    places = {
        "y": ("y", axes[0], metres),
        "x": ("x", axes[1], metres),
        "time": ("time", [0, 5, 10], {"units": "s"}),
    }
    data = xarray.Dataset(flow, places)
    data.to_zarr("ocean.zarr", zarr_format=3, consolidated=False, encoding={"v": {"fill_value": 0.0}})
    assert run_cli("info", "ocean.zarr") == 2
    assert "`--missing fill`" in capsys.readouterr().err
    assert run_cli("info", "ocean.zarr", "--missing", "fill", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["slices"], found["last time"], found["variables"]["u"]) == (
        3,
        10.0,
        {"time": 3, "y": 6, "x": 9},
    )
    Path("run.toml").write_text(
        'field = "ocean.zarr"\nout = "paths.zarr"\ntimes = 3\n[reading]\nmissing = "fill"\n'
    )
    assert run_cli("run", "run.toml", "--lattice", "2", "2") == 0
    assert run_cli("run", "ocean.zarr", "--missing", "zero", *SMALL, "--out", "again.zarr", "--json") == 0
    capsys.readouterr()
    one, other = load_trajectory("paths.zarr"), load_trajectory("again.zarr")
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_allclose(one.positions[-1, :, 0] - one.positions[0, :, 0], 0.4, rtol=1e-5)
    assert run_cli("info", "paths.zarr", "--json") == 0
    assert json.loads(capsys.readouterr().out)["particles"] == 4
    assert (
        run_cli("plot", "paths.zarr", "--field", "ocean.zarr", "--missing", "fill", "--out", "paths.png") == 0
    )
    assert run_cli("plot", "ocean.zarr", "--missing", "fill", "--out", "ocean.svg") == 0
    assert Path("paths.png").stat().st_size > 1000
    assert "<svg" in Path("ocean.svg").read_text()
    for command in (("info", "s3://bucket/ocean.zarr"), ("run", "s3://bucket/ocean.zarr")):
        capsys.readouterr()
        assert run_cli(*command) == 2
        assert "Open it with xarray" in " ".join(capsys.readouterr().err.split())
    Path("far.toml").write_text('field = "s3://bucket/ocean.zarr"\n')
    assert run_cli("run", "far.toml") == 2
    assert "is an address" in " ".join(capsys.readouterr().err.split())


def test_seeds_in_water_and_a_coast_by_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To the west land, to the east the open edge; seeds are drawn between."""
    import xarray

    x, y = np.linspace(0.0, 4.0, 41), np.linspace(0.0, 1.0, 11)
    u = np.where((x < 1.0) & (y[:, None] < 2.0), np.nan, np.where(y[:, None] < 0.5, -0.5, 0.5))[None]
    data = {name: (("time", "y", "x"), values) for name, values in (("u", u), ("v", 0 * u))}
    told = {
        "time": ("time", [0.0], {"units": "s"}),
        "x": ("x", x, {"units": "m"}),
        "y": ("y", y, {"units": "m"}),
    }
    dataset = xarray.Dataset(data, told)
    for name in ("u", "v"):
        dataset[name].attrs["units"] = "m s-1"
    dataset.to_netcdf(tmp_path / "sea.nc", engine="h5netcdf")
    (tmp_path / "problem.toml").write_text("""
        field = "sea.nc"
        span = [0, 9]
        times = 3
        dt = 0.1
        seeds = {kind = "even", n = 60, inside = "field"}
        boundary = {kind = "coast", behaviour = "absorb"}
    """)
    assert run_cli("run", "problem.toml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # Half of them drift to the coast, where the flow fades, the others over the edge; none began on land.
    assert set(found["outcomes"]) == {"still moving at the last time", "left over the open edge of the grid"}
    assert (
        25 <= found["patches"]["open_edge"] == found["outcomes"]["left over the open edge of the grid"] <= 35
    )
    assert found["particles"] == 60
    (tmp_path / "wrong.toml").write_text('field = "sea.nc"\nseeds = {kind = "even", n = 6, inside = "water"}')
    assert run_cli("run", "wrong.toml") == 2
    assert "`inside` of `seeds` must be 'field'" in capsys.readouterr().err
    (tmp_path / "flow.toml").write_text('field = "double_gyre"\nboundary = {kind = "coast"}')
    assert run_cli("run", "flow.toml") == 2
    assert "needs a field on a structured grid" in capsys.readouterr().err

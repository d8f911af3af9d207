"""Trajectories in NetCDF keep to CF 1.8: what the IOOS compliance checker demands, and the checker where it is there."""

import dataclasses
import json
import re
import shutil
import subprocess

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace import Epoch
from jaxtrace._commands import sources
from jaxtrace.cli import main
from jaxtrace.fields import AnalyticField, Sphere
from jaxtrace.io import load_trajectory, save_trajectory
from jaxtrace.tracking.particles import Outcome
from jaxtrace.tracking.trajectory import Trajectory

CHECKER = shutil.which("compliance-checker")
xarray = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")


def run(dim):
    rng = np.random.default_rng(dim)
    return Trajectory(
        positions=rng.uniform(1, 2, (3, 4, dim)),
        times=np.arange(3) * 3600.0,
        ids=np.arange(4),
        alive=np.ones((3, 4), bool),
        ages=np.zeros((3, 4)),
        release_times=np.zeros(4),
        outcomes=np.zeros(4, np.int8),
        patches=np.full(4, -1, np.int32),
        velocities=rng.normal(size=(3, 4, dim)),
    ).with_epoch("2015-11-16 06:00")


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("units", ["m", "degrees"])
def test_attributes_are_those_that_the_checker_demands(tmp_path, dim, units):
    path = save_trajectory(run(dim), tmp_path / "run.nc", units=units)
    names = [*(("lon", "lat") if units == "degrees" else ("x", "y")), "z"][:dim]
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False, decode_coords=False) as data:
        assert data.trajectory.dtype == np.int32  # CF 1.8 has no longer ones
        assert data.time.attrs["units"] == "seconds since 2015-11-16 06:00:00"
        for name in ("u", "alive", "ages"):
            assert data[name].attrs["coordinates"] == " ".join(["time", *names])
        assert all("units" in data[name].attrs for name in names)
        if dim == 3:
            assert data.z.attrs["positive"] == "up"
    assert load_trajectory(path).ids.dtype == np.int64  # as they were in memory


KINDS = {
    "flat": (2, {"units": "m"}, {}),
    "kilometres": (3, {"units": "km", "compress": True}, {}),
    "globe": (2, {"units": "degrees"}, {}),
    "depths": (3, {"units": "degrees", "positive": "down"}, {}),
    "noleap": (2, {"units": "degrees"}, {"epoch": Epoch("2015-02-28", "noleap")}),
    "undated": (3, {"units": "m"}, {"epoch": None}),
    "whole numbers of 64 bits": (
        2,
        {"units": "degrees"},
        {
            "generation": np.zeros((3, 4), np.int64),
            "patches": np.full(4, -1, np.int64),
            "end_times": np.array([np.nan, 1.0, 2.0, 3.0]),
            "reduced": {"mean": np.ones((3, 2)), "count": np.arange(3)},
        },
    ),
    "identities in no order": (2, {"units": "degrees"}, {"ids": np.array([3, 1, 2, 1])}),
    "a reduction alone": (
        2,
        {"units": "degrees"},
        {"positions": None, "velocities": None, "alive": None, "ages": None, "reduced": np.ones((3, 2))},
    ),
}


def save_kind(kind, path):
    dim, options, changes = KINDS[kind]
    one = dataclasses.replace(run(dim), **changes)
    return one, save_trajectory(one, path, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_the_layout_of_cf_for_trajectories(tmp_path, kind):
    """H.4.1: time and places over (trajectory, obs), told by `coordinates`; each variable named, no 64-bit numbers."""
    one, path = save_kind(kind, tmp_path / "run.nc")
    dim, options, _ = KINDS[kind]
    both = ("trajectory", "obs")
    names = [*(("lon", "lat") if options["units"] == "degrees" else ("x", "y")), "z"][:dim]
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False, decode_coords=False) as data:
        assert (data.attrs["Conventions"], data.attrs["featureType"]) == ("CF-1.8", "trajectory")
        assert [name for name in data.variables if data[name].attrs.get("cf_role")] == [
            "trajectory_id" if kind == "identities in no order" else "trajectory"
        ]
        for name, variable in data.variables.items():
            assert variable.attrs["long_name"], name
            assert variable.dtype not in (np.int64, np.uint32, np.uint64), name
            near = variable.attrs.get("coordinates", "").split()
            if name not in ("time", *names):
                assert near == (["time", *names] if variable.dims == both else [])
        assert data.time.dims == both
        np.testing.assert_array_equal(data.time, np.stack([one.times] * one.particles))
        np.testing.assert_array_equal(data.obs, one.times)
        if one.positions is not None:
            assert [data[name].dims for name in names] == [both] * dim
        if options["units"] == "degrees":
            assert [data[name].attrs["axis"] for name in names if name in data] == ["X", "Y", "Z"][
                : dim if one.positions is not None else 0
            ]
        if one.epoch is not None:
            assert data.time.attrs["axis"] == "T"
    again = load_trajectory(path)
    for name in ("ids", "generation", "patches", "times"):
        value = getattr(one, name)
        if value is not None:
            assert getattr(again, name).dtype == value.dtype
            np.testing.assert_array_equal(getattr(again, name), value)


@pytest.mark.skipif(CHECKER is None, reason="not installed: pip install compliance-checker")
@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_of_ioos_has_nothing_to_say(tmp_path, kind):
    _, path = save_kind(kind, tmp_path / "run.nc")
    line = [str(CHECKER), "-t", "cf:1.8", "-c", "strict", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert "All tests passed" in done.stdout, done.stdout


def test_files_of_older_versions_with_one_time_for_all_are_read(tmp_path):
    one, path = save_kind("globe", tmp_path / "run.nc")
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False, decode_coords=False) as data:
        older = data.load().drop_vars("time").rename_vars(obs="time").swap_dims(obs="time")
    older = older.assign_coords(time=("time", one.times, {"units": "seconds since 2015-11-16 06:00:00"}))
    older.to_netcdf(tmp_path / "older.nc", engine="h5netcdf")
    again = load_trajectory(tmp_path / "older.nc")
    np.testing.assert_array_equal(again.times, one.times)
    np.testing.assert_array_equal(again.positions, one.positions)


def attributes(path, name):
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False, decode_coords=False) as data:
        return dict(data[name].attrs)


def test_seconds_without_a_date_do_not_pass_for_a_time_coordinate(tmp_path):
    one = dataclasses.replace(run(2), epoch=None)
    clock = attributes(save_trajectory(one, tmp_path / "run.nc"), "time")
    assert clock["units"] == "s"
    assert not {"standard_name", "axis", "calendar"} & set(clock)  # with these CF demands "seconds since ..."
    assert load_trajectory(tmp_path / "run.nc").epoch is None
    dated = attributes(save_trajectory(one, tmp_path / "dated.nc", since="2015-11-16"), "time")
    assert (dated["standard_name"], dated["axis"]) == ("time", "T")


def test_outcomes_of_a_real_run_are_flags_that_cf_knows(tmp_path):
    known = tuple(outcome.sentence for outcome in Outcome)
    one = dataclasses.replace(run(2), outcome_names=known)
    meanings = attributes(save_trajectory(one, tmp_path / "run.nc"), "outcomes")["flag_meanings"].split()
    assert len(set(meanings)) == len(known)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+@-]+", word) for word in meanings)
    assert load_trajectory(tmp_path / "run.nc").outcome_names == known


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_depths_grow_downwards(tmp_path, suffix):
    path = save_trajectory(run(3), tmp_path / f"run{suffix}", units="degrees", positive="down")
    found = attributes(path, "z") if suffix == ".nc" else json.loads((path / "z" / ".zattrs").read_text())
    assert (found["positive"], found["long_name"], found["units"]) == ("down", "depth", "m")
    with pytest.raises(ValueError, match="`positive` must be one of 'up', 'down'; got 'below'"):
        save_trajectory(run(3), path, positive="below")


def test_long_ids_need_a_later_convention(tmp_path):
    one = dataclasses.replace(run(2), ids=np.arange(4) + 2**40)
    path = save_trajectory(one, tmp_path / "run.nc")
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data.attrs["Conventions"] == "CF-1.9"
    np.testing.assert_array_equal(load_trajectory(path).ids, one.ids)


@pytest.mark.parametrize(("sphere", "named"), [(Sphere(), "lon"), (None, "x")])
def test_the_command_line_says_degrees_where_the_field_has_them(tmp_path, monkeypatch, sphere, named):
    field = AnalyticField(lambda x, t: jnp.array([1.0, 0.5]), 2, sphere=sphere)
    monkeypatch.setitem(sources.FLOWS, "double_gyre", (lambda: field, ((0.0, 0.0), (2.0, 1.0)), (0.0, 1.0)))
    path = tmp_path / "run.nc"
    with pytest.raises(SystemExit) as ended:
        main(["run", "double_gyre", "--particles", "2", "--times", "3", "--out", str(path), "--json"])
    assert ended.value.code == 0
    found = attributes(path, named)
    assert found["units"] == ("m" if sphere is None else "degrees_east")

"""Trajectories in NetCDF keep to CF 1.8: what the IOOS compliance checker demands, and the checker where it is there."""

import shutil
import subprocess

import numpy as np
import pytest

from jaxtrace.io import load_trajectory, save_trajectory
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
    ).dated("2015-11-16 06:00")


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


@pytest.mark.skipif(CHECKER is None, reason="not installed: pip install compliance-checker")
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("units", ["m", "degrees"])
def test_the_checker_of_ioos_finds_no_error(tmp_path, dim, units):
    path = save_trajectory(run(dim), tmp_path / "run.nc", units=units)
    # Lenient: errors alone. One time for all particles makes it warn (9.1) of a "mapped-grid" instead of a trajectory.
    line = [str(CHECKER), "-t", "cf:1.8", "-c", "lenient", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert "All tests passed" in done.stdout, done.stdout

"""Trajectories to files and back: nothing lost, nothing half written, and ParaView's files hold what they should."""

import dataclasses
import sys
import xml.etree.ElementTree as ElementTree

import fuzz_trace
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.io import (
    DatasetError,
    load_optimized_dataset,
    load_trajectory,
    save_trajectory,
    trajectory_dataset,
)
from jaxtrace.io.files import find_files
from jaxtrace.tracking.trajectory import Trajectory

RNG = np.random.default_rng(0)
TIMES = np.array([0.0, 0.1, 0.30000000000000004, 1.0])


def trajectory(dim=3, n=5, dtype="f4", **changes):
    """A run of four times: particle 1 ends after the second, 2 begins at the third, slot 3 is filled again there."""
    alive = np.ones((4, n), bool)
    alive[2:, 1] = False
    alive[:2, 2] = False
    generation = np.zeros((4, n), np.int32)
    generation[2:, 3] = 1
    whole = Trajectory(
        positions=RNG.normal(size=(4, n, dim)).astype(dtype),
        times=TIMES,
        ids=np.arange(10, 10 + n),
        alive=alive,
        ages=RNG.uniform(size=(4, n)).astype(dtype),
        release_times=np.zeros(n),
        outcomes=np.array([0, 1, 0, 0, 3][:n], np.int8),
        patches=np.array([-1, 1, -1, -1, -1][:n], np.int32),
        patch_names=("wall", "outlet & inlet"),
        patch_counts={"wall": 3, "outlet & inlet": 1},
        velocities=RNG.normal(size=(4, n, dim)).astype(dtype),
        generation=generation,
        reduced={
            "mean": RNG.normal(size=(4, dim)),
            "parts": (np.arange(4), [np.float32(RNG.normal(size=(4, 2)))]),
        },
        info={
            "device": "cpu",
            "steps": 7,
            "seconds": 0.25,
            "shape": (4, n),
            "nothing": None,
            "dtype": np.dtype("f4"),
        },
    )
    return dataclasses.replace(whole, **changes)


def assert_same(one, other):
    """Every field equal to the bit, types and structure included."""
    for field in dataclasses.fields(Trajectory):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        elif field.name not in ("reduced", "info"):
            assert a == b, field.name
    assert other.info == {**one.info, **({"dtype": "float32"} if "dtype" in one.info else {})}
    if one.reduced is not None:
        assert isinstance(other.reduced["parts"], tuple)
        np.testing.assert_array_equal(one.reduced["mean"], other.reduced["mean"])
        np.testing.assert_array_equal(one.reduced["parts"][0], other.reduced["parts"][0])
        np.testing.assert_array_equal(one.reduced["parts"][1][0], other.reduced["parts"][1][0])


CASES = {
    "all": {},
    "flat": {"dim": 2, "dtype": "f8"},
    "bare": {
        "velocities": None,
        "generation": None,
        "reduced": None,
        "info": {},
        "alive": None,
        "ages": None,
    },
    "reduced": {"positions": None, "velocities": None, "alive": None, "ages": None, "generation": None},
    "named": {"ids": np.array(["a", "bb", "c", "d", "e"])},
}


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
@pytest.mark.parametrize("case", CASES)
def test_round_trip(tmp_path, suffix, case):
    if suffix != "npz":
        pytest.importorskip("xarray", reason="xarray is not installed")
        needed = "h5netcdf" if suffix == "nc" else "numcodecs"
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    one = trajectory(**CASES[case])
    path = save_trajectory(one, tmp_path / f"new/run.{suffix}")
    assert path == tmp_path / f"new/run.{suffix}"
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no temporary is left
    assert_same(one, load_trajectory(path))
    assert_same(one, Trajectory.load(one.save(path)))  # and over the old file
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_netcdf_speaks_cf(tmp_path):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    one = trajectory(dim=2)
    save_trajectory(one, tmp_path / "a.nc", units="degrees", since="2015-11-16 06:00:00", compress=True)
    with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as data:
        assert data.attrs["featureType"] == "trajectory"
        assert data.attrs["Conventions"].startswith("CF-1.")
        assert data.trajectory.attrs["cf_role"] == "trajectory_id"
        assert data.lon.dims == data.time.dims == ("trajectory", "obs")
        assert data.lon.attrs["standard_name"] == "longitude"
        assert data.lat.attrs["units"] == "degrees_north"
        assert data.outcomes.attrs["flag_meanings"].split()[0] == "still_moving_at_the_last_time"
        assert data.time.values[3, 1] == np.datetime64("2015-11-16T06:00:00.1")
        np.testing.assert_array_equal(data.lon.sel(trajectory=12), one.positions[:, 2, 0])
    assert_same(one.with_epoch("2015-11-16 06:00"), load_trajectory(tmp_path / "a.nc"))
    plain = trajectory_dataset(one)
    assert plain.time.attrs["units"] == "s"
    assert plain.x.attrs["units"] == "m"
    np.testing.assert_array_equal(one.to_dataset().y, one.positions[..., 1].T)


@pytest.mark.parametrize("case", CASES)
def test_zarr_is_what_xarray_expects(tmp_path, case):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    one = trajectory(**CASES[case])
    for options in ({}, {"units": "degrees", "since": "2015-11-16 06:00:00", "compress": False}):
        path = save_trajectory(one, tmp_path / "a.zarr", **options)
        right = trajectory_dataset(one, **{k: v for k, v in options.items() if k != "compress"})
        found = xarray.open_zarr(path, decode_times=False)
        assert dict(found.attrs) == right.attrs
        assert set(found.variables) == set(right.variables)
        for name, variable in right.variables.items():
            assert found[name].dims == variable.dims
            assert found[name].dtype == variable.dtype, name
            np.testing.assert_array_equal(found[name].values, variable.values, err_msg=str(name))
            assert {k: np.ravel(v).tolist() for k, v in found[name].attrs.items()} == {
                k: np.ravel(v).tolist() for k, v in variable.attrs.items()
            }
        with xarray.open_zarr(path) as data:  # and with its times as dates
            assert data.sizes["trajectory"] == 5
        assert_same(one.with_epoch(options.get("since")), load_trajectory(path))


def test_zarr_chunks_are_cut_along_particles_and_times():
    from jaxtrace.io.zarr.trajectories import CHUNK, chunk_shape

    assert chunk_shape((1000, 101), 4) == (1000, 101)
    assert chunk_shape((1_000_000, 101), 4) == (62_500, 13)
    assert chunk_shape((10, 10_000_000), 8) == (1, 312_500)
    assert chunk_shape((), 8) == ()
    assert chunk_shape((0, 5), 4) == (1, 5)
    for shape in ((123_457, 1009), (7, 3, 5_000_011)):
        assert CHUNK / 8 < np.prod(chunk_shape(shape, 4)) * 4 <= CHUNK


def test_a_large_zarr_store_is_written_in_several_chunks(tmp_path):
    pytest.importorskip("numcodecs", reason="numcodecs is not installed")
    n, times = 3001, 501
    one = trajectory(
        n=5,
        times=np.arange(float(times)),
        ids=np.arange(n),
        positions=RNG.normal(size=(times, n, 2)).astype("f4"),
        **dict.fromkeys(("velocities", "alive", "ages", "generation", "reduced")),
        release_times=np.zeros(n),
        outcomes=np.zeros(n, np.int8),
        patches=np.zeros(n, np.int32),
    )
    path = save_trajectory(one, tmp_path / "a.zarr")
    assert sorted(p.name for p in (path / "x").glob("[0-9]*")) == ["0.0", "1.0"]
    np.testing.assert_array_equal(load_trajectory(path).positions, one.positions)


def test_a_zarr_store_replaces_only_a_store(tmp_path):
    pytest.importorskip("numcodecs", reason="numcodecs is not installed")
    one = trajectory()
    (tmp_path / "a.zarr").mkdir()
    save_trajectory(one, tmp_path / "a.zarr")  # an empty folder holds nothing to lose
    (tmp_path / "thesis.zarr").mkdir()
    (tmp_path / "thesis.zarr/chapter.txt").write_text("years of work")
    (tmp_path / "file.zarr").write_text("a file")
    for name in ("thesis.zarr", "file.zarr"):
        with pytest.raises(
            FileExistsError, match=rf"{name}: only a Zarr store or an empty folder is replaced"
        ):
            save_trajectory(one, tmp_path / name)
    assert (tmp_path / "thesis.zarr/chapter.txt").read_text() == "years of work"
    (tmp_path / "link.zarr").symlink_to(tmp_path / "a.zarr")
    other = dataclasses.replace(one, times=TIMES + 1)
    save_trajectory(other, tmp_path / "link.zarr")
    assert (tmp_path / "link.zarr").is_symlink()
    assert_same(other, load_trajectory(tmp_path / "a.zarr"))
    assert not list(tmp_path.glob(".*"))


def test_a_zarr_store_that_lost_a_chunk_is_refused(tmp_path):
    pytest.importorskip("numcodecs", reason="numcodecs is not installed")
    path = save_trajectory(trajectory(), tmp_path / "a.zarr")
    (path / "alive/0.0").unlink()
    with pytest.raises(DatasetError, match=r"a\.zarr: variable 'alive': chunk 'alive/0\.0' is not stored"):
        load_trajectory(path)
    with pytest.raises(ValueError, match=r"`path` must be one of this machine; s3://b/a\.zarr is an address"):
        save_trajectory(trajectory(), "s3://b/a.zarr")


def test_what_cannot_be_saved_or_loaded_is_told(tmp_path):
    one = trajectory()
    with pytest.raises(
        ValueError, match=r"`path` must end in \.npz, \.nc, \.zarr, \.vtp or \.pvd; got .*a\.csv"
    ):
        save_trajectory(one, tmp_path / "a.csv")
    with pytest.raises(TypeError, match=r"options units are for \.nc and \.zarr"):
        save_trajectory(one, tmp_path / "a.npz", units="m")
    with pytest.raises(TypeError, match=r"`reduced_spread` of the trajectory is a set"):
        save_trajectory(dataclasses.replace(one, reduced={"spread": {1}}), tmp_path / "a.npz")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match=r"a\.npz: the file is missing"):
        load_trajectory(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a\.vtp: .*save to \.npz, \.nc or \.zarr"):
        load_trajectory(tmp_path / "a.vtp")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(DatasetError, match=r"a\.npz: no trajectory can be read"):
        load_trajectory(tmp_path / "a.npz")
    devices = dataclasses.replace(one, reduced={"mean": jnp.ones(4), "parts": (jnp.ones(4), [jnp.ones(4)])})
    assert isinstance(
        load_trajectory(save_trajectory(devices, tmp_path / "b.npz")).reduced["mean"], np.ndarray
    )


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("vtkmodules", lambda folder: save_trajectory(trajectory(), folder / "a.vtp")),
        ("vtkmodules", lambda folder: load_optimized_dataset(folder / "a.vti")),  # arrays packed with LZ4
        ("xarray", lambda folder: save_trajectory(trajectory(), folder / "a.nc")),
        ("xarray", lambda folder: load_optimized_dataset(folder / "a.nc")),
        ("xarray", lambda folder: save_trajectory(trajectory(), folder / "a.zarr")),
        ("xarray", lambda folder: load_optimized_dataset(folder / "b.zarr")),
        ("numcodecs", lambda folder: save_trajectory(trajectory(), folder / "a.zarr")),
        ("numcodecs", lambda folder: load_trajectory(folder / "b.zarr")),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, call):
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    (tmp_path / "a.vti").write_bytes(fuzz_trace._xml(fuzz_trace._image(), "lz4", tmp_path))
    (tmp_path / "a.nc").write_text("")
    save_trajectory(trajectory(), tmp_path / "b.zarr")
    for name in [package, *(one for one in sys.modules if one.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "jaxworlds\[trace\]"'):
        call(tmp_path)


@pytest.mark.parametrize("suffix", ["npz", "nc"])
def test_a_file_cut_anywhere_is_refused(tmp_path, suffix):
    if suffix == "nc":
        pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    path = save_trajectory(trajectory(), tmp_path / f"a.{suffix}")
    whole = path.read_bytes()
    for part in np.linspace(0, 0.99, 12):
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(DatasetError, match=rf"a\.{suffix}"):
            load_trajectory(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    from jaxtrace.io.vtk import trajectories as vtk_writing

    path = save_trajectory(trajectory(), tmp_path / "a.vtp")
    before = path.read_bytes()

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(vtk_writing, "_array", fail)
    with pytest.raises(KeyboardInterrupt):
        save_trajectory(trajectory(), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.vtp"]


def read_vtp(path):
    """Points, offsets and arrays of a .vtp."""
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOXML import vtkXMLPolyDataReader

    reader = vtkXMLPolyDataReader()
    reader.SetFileName(str(path))
    reader.Update()
    found = reader.GetOutput()
    arrays = {}
    for data in (found.GetPointData(), found.GetCellData(), found.GetFieldData()):
        for k in range(data.GetNumberOfArrays()):
            values = data.GetAbstractArray(k)
            words = values.IsA("vtkStringArray")
            arrays[data.GetArrayName(k)] = np.array(
                [values.GetValue(n) for n in range(values.GetNumberOfValues())]
                if words
                else vtk_to_numpy(values)
            )
    cells = found.GetLines() if found.GetNumberOfLines() else found.GetVerts()
    points = (
        np.array(vtk_to_numpy(found.GetPoints().GetData())) if found.GetNumberOfPoints() else np.zeros((0, 3))
    )
    return points, np.array(vtk_to_numpy(cells.GetOffsetsArray())), arrays


def test_particles_with_names_for_paraview(tmp_path):
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    one = dataclasses.replace(trajectory(), ids=np.array(["a", "bé", "c", "d", "e"]))
    _, _, arrays = read_vtp(save_trajectory(one, tmp_path / "a.vtp"))
    assert arrays["id"].tolist() == ["a", "bé", "c", "d", "d", "e"]
    save_trajectory(one, tmp_path / "a.pvd")
    assert "bé" in read_vtp(tmp_path / "a_frames/a_0.vtp")[2]["id"]


@pytest.mark.parametrize("dim", [2, 3])
def test_path_lines(tmp_path, dim):
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    one = trajectory(dim)
    points, offsets, arrays = read_vtp(save_trajectory(one, tmp_path / "a.vtp"))
    # 0 and 4 whole; 1 up to where it ended; 2 from where it rested before; 3 in two lives of two moments each.
    assert arrays["id"].tolist() == [10, 11, 12, 13, 13, 14]
    assert np.diff(offsets).tolist() == [4, 3, 3, 2, 2, 4]
    assert arrays["generation"].tolist() == [0, 0, 0, 0, 1, 0]
    assert arrays["outcome"].tolist() == [0, 1, 0, 0, 0, 3]
    np.testing.assert_array_equal(points[:4, :dim], one.positions[:, 0])
    np.testing.assert_array_equal(points[4:7, :dim], one.positions[:3, 1])
    np.testing.assert_array_equal(points[7:10, :dim], one.positions[1:, 2])
    np.testing.assert_array_equal(arrays["time"][10:14], TIMES)
    np.testing.assert_array_equal(arrays["velocity"][14:, :dim], one.velocities[:, 4])
    np.testing.assert_array_equal(points[:, dim:], 0)
    assert points.dtype == np.float32
    with pytest.raises(ValueError, match=r"no positions, only a reduction"):
        save_trajectory(dataclasses.replace(one, positions=None), tmp_path / "b.vtp")


def test_frames_for_an_animation(tmp_path):
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    one = trajectory()
    save_trajectory(one, tmp_path / "run & co.pvd")
    rows = list(ElementTree.parse(tmp_path / "run & co.pvd").getroot().iter("DataSet"))
    assert [float(row.get("timestep")) for row in rows] == TIMES.tolist()
    assert (tmp_path / "run & co_paths.vtp").exists()
    for k, entry in enumerate(find_files(tmp_path / "run & co.pvd")):
        points, _, arrays = read_vtp(entry.paths[0])
        there = one.alive[k]
        assert arrays["id"].tolist() == one.ids[there].tolist()
        np.testing.assert_array_equal(points, one.positions[k, there])
        np.testing.assert_array_equal(arrays["velocity"], one.velocities[k, there])
        assert arrays["TimeValue"].tolist() == [TIMES[k]]
    nobody = dataclasses.replace(one, alive=np.zeros((4, 5), bool))
    save_trajectory(nobody, tmp_path / "empty.pvd")
    assert len(read_vtp(tmp_path / "empty_frames/empty_0.vtp")[0]) == 0

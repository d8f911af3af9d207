"""Zarr stores as fields: what zarr-python wrote comes back to the bit, by the rules for NetCDF, and every fault is told."""

import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import fuzz_zarr
import numpy as np
import pytest

from jaxtrace import create_tracker
from jaxtrace.io import DatasetError, load_optimized_dataset, open_dataset
from jaxtrace.io.zarr import guard
from jaxtrace.io.zarr.contents import read_contents
from jaxtrace.io.zarr.dataset import open_data
from jaxtrace.io.zarr.files import open_files

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
zarr = pytest.importorskip("zarr", reason="zarr is not installed")
numcodecs = pytest.importorskip("numcodecs", reason="numcodecs is not installed")

pytestmark = pytest.mark.usefixtures("quick_compile")
TIMES, Y, X = np.arange(5) * 600.0, np.linspace(0, 1, 6), np.linspace(0, 3, 9)
METRES, SPEED = {"units": "m"}, {"units": "m s-1"}


def flow(land: bool = True) -> Any:
    """A data set of five moments, with land in a corner."""
    rng = np.random.default_rng(4)
    data = {}
    for name in "uv":
        values = rng.normal(size=(5, 6, 9)).astype("f4")
        if land:
            values[:, :2, :3] = np.nan
        data[name] = (("time", "y", "x"), values, SPEED)
    clock = {"units": "seconds since 2024-03-01"}
    return xarray.Dataset(
        data, {"time": ("time", TIMES, clock), "y": ("y", Y, METRES), "x": ("x", X, METRES)}
    )


def write(
    path: Path, dataset: Any = None, version: int = 3, consolidated: bool = False, **encoding: Any
) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # format 3 has no words yet for a list of arrays, nor for texts
        (flow() if dataset is None else dataset).to_zarr(
            path,
            mode="w",
            zarr_format=version,
            consolidated=consolidated,
            encoding={name: dict(encoding) for name in "uv"} if encoding else {},
        )
    return path


def slices(opened: Any) -> np.ndarray:
    return np.stack([opened.read(k) for k in range(len(opened))])


@pytest.fixture(scope="module")
def netcdf(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same data in NetCDF, opened."""
    path = tmp_path_factory.mktemp("netcdf") / "a.nc"
    flow().to_netcdf(path, engine="h5netcdf")
    return open_dataset(path)


@pytest.mark.parametrize(
    ("version", "consolidated", "encoding"),
    [
        (2, True, {}),
        (2, False, {"chunks": (2, 4, 5)}),
        (3, True, {"chunks": (1, 6, 9)}),
        (3, False, {"chunks": (2, 4, 5)}),
        (3, False, {"chunks": (1, 2, 3), "shards": (2, 6, 9)}),
    ],
)
def test_a_store_reads_like_the_same_netcdf(
    tmp_path: Path, netcdf: Any, version: int, consolidated: bool, encoding: dict[str, Any]
) -> None:
    opened = open_dataset(write(tmp_path / "a.zarr", None, version, consolidated, **encoding))
    assert opened.notes == netcdf.notes
    assert "6 of them land" in str(opened)
    np.testing.assert_array_equal(opened.times, netcdf.times)
    np.testing.assert_array_equal(slices(opened), slices(netcdf))


def test_packed_numbers_and_units_follow_the_rules_of_netcdf(tmp_path: Path) -> None:
    data = flow().rename(x="lon", y="lat", u="uo", v="vo")
    data["lon"].attrs, data["lat"].attrs = {"units": "degrees_east"}, {"units": "degrees_north"}
    packed = {"dtype": "i2", "scale_factor": 1e-3, "add_offset": 0.5, "_FillValue": -32768}
    encoding = dict.fromkeys(("uo", "vo"), packed)
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    right = open_dataset(tmp_path / "a.nc")
    for version in (2, 3):
        data.to_zarr(
            tmp_path / "a.zarr", mode="w", zarr_format=version, encoding=encoding, consolidated=False
        )
        opened = open_dataset(tmp_path / "a.zarr")
        assert opened.notes == right.notes
        assert "m/s converted to degrees/s" in str(opened)
        np.testing.assert_array_equal(slices(opened), slices(right))


CODECS_2: list[dict[str, Any]] = [
    {"compressors": None},
    *({"compressors": numcodecs.Blosc(cname=name, shuffle=k % 3)} for k, name in enumerate(("lz4", "zstd", "blosclz", "zlib"))),
    *({"compressors": codec} for codec in (numcodecs.Zstd(), numcodecs.LZ4(), numcodecs.GZip(), numcodecs.Zlib())),
    *({"compressors": codec} for codec in (numcodecs.BZ2(), numcodecs.LZMA())),
    {"filters": [numcodecs.Delta("<f4")], "compressors": numcodecs.Zlib()},
    {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib()},
    {"filters": [numcodecs.FixedScaleOffset(0.25, 1000.0, "<f4", "<i2")]},
    {"filters": [numcodecs.Quantize(3, "<f4")]},
    {"filters": [numcodecs.AsType("<f8", "<f4")]},
    {"filters": [numcodecs.BitRound(9)], "compressors": numcodecs.Zstd()},
    {"filters": [numcodecs.CRC32()]},
    {"filters": [numcodecs.Adler32(), numcodecs.checksum32.CRC32C()], "compressors": numcodecs.Zstd()},
    {"order": "F"},
    {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
]  # fmt: skip
BLOSC = {"typesize": 4, "cname": "zstd"}
CODECS_3: list[dict[str, Any]] = [
    {"compressors": None},
    {"compressors": [zarr.codecs.BloscCodec(**BLOSC), zarr.codecs.Crc32cCodec()]},
    {"compressors": zarr.codecs.GzipCodec()},
    {"compressors": zarr.codecs.ZstdCodec(checksum=True)},
    {"serializer": zarr.codecs.BytesCodec(endian="big")},
    {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1)), zarr.codecs.TransposeCodec(order=(1, 0, 2))]},
    {"shards": (4, 6, 10)},
    {
        "shards": {"shape": (4, 6, 10), "index_location": "start"},
        "compressors": zarr.codecs.BloscCodec(**BLOSC),
    },
    {"chunk_key_encoding": {"name": "default", "separator": "."}},
    {"chunk_key_encoding": {"name": "v2", "separator": "."}},
]


@pytest.mark.parametrize("version", [2, 3])
def test_every_way_to_pack_gives_what_zarr_python_reads(tmp_path: Path, version: int) -> None:
    values = np.random.default_rng(version).normal(size=(5, 7, 11)).astype("f4")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    names = ("a", "b", "c")
    told = {"dimension_names": names} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": list(names)}}
    codecs = CODECS_2 if version == 2 else CODECS_3
    for number, codec in enumerate(codecs):
        options = {"shape": values.shape, "chunks": (2, 3, 5), "dtype": "f4", **told, **codec}
        group.create_array(f"u{number}", **options)[...] = values
    arrays, _ = read_contents(open_files(tmp_path / "a.zarr"))
    assert len(arrays) == len(codecs)
    for number, codec in enumerate(codecs):
        right, reader = group[f"u{number}"][...], arrays[f"u{number}"]
        np.testing.assert_array_equal(reader.read(), right, err_msg=str(codec))
        for wanted in ((3, slice(1, 6), slice(None)), (slice(None, None, -2), 4, slice(2, 9, 3)), (1, 1, 1)):
            np.testing.assert_array_equal(reader.read(wanted), right[wanted], err_msg=str(codec))


def test_every_type_of_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    plain = ("bool", "i1", "u2", ">i4", "i8", "u8", "f2", ">f4", "f8", "c8", "U5", "S3", "M8[ns]", "m8[s]")
    for version in (2, 3):
        group = zarr.open_group(tmp_path / f"{version}.zarr", mode="w", zarr_format=version)
        right = {}
        for kind in plain:
            if version == 3 and kind in ("S3",):
                continue
            values = rng.integers(0, 2, (3, 4)).astype(np.dtype(kind))
            name = np.dtype(kind).str[1:].replace("[", "_").replace("]", "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # texts and dates have no specification in format 3
                more = {"dimension_names": ("a", "b")} if version == 3 else {}
                config = {"write_empty_chunks": True}
                group.create_array(name, data=values, chunks=(2, 3), config=config, **more)
                if version == 2:
                    group[name].attrs["_ARRAY_DIMENSIONS"] = ["a", "b"]
            right[name] = values
        arrays, _ = read_contents(open_files(tmp_path / f"{version}.zarr"))
        assert set(arrays) == set(right)
        for name, values in right.items():
            found = arrays[name].read()
            np.testing.assert_array_equal(found, values, err_msg=name)
            assert found.dtype == values.dtype.newbyteorder("=")


def test_fill_values_in_every_spelling(tmp_path: Path) -> None:
    for told, dtype, means in (
        ("NaN", "float32", np.nan),
        ("-Infinity", "float64", -np.inf),
        ("0x7fc00000", "float32", np.nan),
        (3, "int16", 3),
        (3.0, "int16", 3),
        (True, "bool", True),
        ([1, "NaN"], "complex64", complex(1, np.nan)),
    ):
        array = zarr_json(tmp_path / "a.zarr", shape=[2], chunk=[2], data_type=dtype, fill_value=told)
        np.testing.assert_array_equal(array.fill, means)
        assert array.fill.dtype == np.dtype(dtype)


def zarr_json(path: Path, shape: Any = (2,), chunk: Any = (2,), **told: Any) -> Any:
    """The array `u` of a store with these metadata, and nothing else in it."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "u").mkdir(parents=True)
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    whole = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "dimension_names": [f"d{k}" for k in range(len(shape))] if isinstance(shape, list | tuple) else None,
        **told,
    }
    (path / "u" / "zarr.json").write_text(
        json.dumps({key: value for key, value in whole.items() if value != "-"})
    )
    return read_contents(open_files(path))[0]["u"]


def test_stores_in_time_and_components_in_stores(tmp_path: Path, netcdf: Any) -> None:
    data = flow()
    for number, part in ((9, slice(0, 2)), (10, slice(2, 5))):
        write(tmp_path / f"part_{number}.zarr", data.isel(time=part), 3 if number == 9 else 2)
    opened = open_dataset(tmp_path / "part_*.zarr")
    np.testing.assert_array_equal(opened.times, netcdf.times)
    np.testing.assert_array_equal(slices(opened), slices(netcdf))
    assert opened.name(1).endswith("part_9.zarr[1]")
    listed = open_dataset([tmp_path / "part_10.zarr", f"{tmp_path}/part_9.zarr/"])
    np.testing.assert_array_equal(slices(listed), slices(netcdf))
    write(tmp_path / "zonal.zarr", data[["u"]])
    write(tmp_path / "meridional.zarr", data[["v"]])
    both = open_dataset([tmp_path / "zonal.zarr", tmp_path / "meridional.zarr"])
    np.testing.assert_array_equal(slices(both), slices(netcdf))


def test_one_moment_in_each_store_at_its_own_zero(tmp_path: Path, netcdf: Any) -> None:
    """xarray counts each from its own date, and zarr-python leaves out the chunk of that one zero."""
    data = xarray.decode_cf(flow())
    for k in range(5):
        write(tmp_path / f"hour_{9 + k}.zarr", data.isel(time=[k]).assign_coords(time=data.time[[k]].values))
    assert not list((tmp_path / "hour_9.zarr/time").glob("c/*"))
    opened = open_dataset(tmp_path / "hour_*.zarr")
    np.testing.assert_array_equal(opened.times, netcdf.times)
    np.testing.assert_array_equal(slices(opened), slices(netcdf))


def test_archives_and_folders_of_any_name(tmp_path: Path, netcdf: Any) -> None:
    write(tmp_path / "a.zarr", version=2)
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "ocean")
    (tmp_path / "a.zarr.zip").write_bytes(fuzz_zarr.packed_folder(tmp_path / "a.zarr"))
    with zipfile.ZipFile(tmp_path / "folder.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (tmp_path / "a.zarr").rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
    for name in ("ocean", "a.zarr.zip", "folder.zip"):
        np.testing.assert_array_equal(slices(open_dataset(tmp_path / name)), slices(netcdf), err_msg=name)
    (tmp_path / "linked.zarr").symlink_to(tmp_path / "a.zarr")
    np.testing.assert_array_equal(slices(open_dataset(tmp_path / "linked.zarr")), slices(netcdf))


def test_streamed_from_chunks_of_several_moments_to_the_bit(tmp_path: Path, monkeypatch: Any) -> None:
    unpacked, plainly = [], guard.unpack

    def unpack(packer: str, data: memoryview, limit: int) -> Any:
        unpacked.append(len(data))
        return plainly(packer, data, limit)

    slow = flow(land=False)  # so that particles stay in the grid
    for name in ("u", "v"):
        slow[name].values[:] *= 1e-5
    path = write(tmp_path / "a.zarr", slow, chunks=(3, 4, 5), shards=(3, 8, 10))
    whole = load_optimized_dataset(path, verbose=False, stream=False)
    monkeypatch.setattr(guard, "unpack", unpack)
    streamed = load_optimized_dataset(path, verbose=False, stream=True)
    seeds = np.random.default_rng(0).uniform([0.2, 0.2], [2.5, 0.8], (20, 2))
    runs = [
        create_tracker("rk4", field).track_particles(seeds, (0.0, 2400.0), 5, dt=60.0, progress=False)
        for field in (whole, streamed)
    ]
    np.testing.assert_array_equal(runs[0].positions, runs[1].positions)
    # Two variables in two rows of 2 × 2 chunks, the first row once more at opening; time, y and x once each or twice.
    assert len(unpacked) <= 2 * 4 * 3 + 2 * 3


def test_only_what_a_request_touches_is_read(tmp_path: Path, netcdf: Any) -> None:
    path = write(tmp_path / "a.zarr", chunks=(2, 4, 5), fill_value=0.0)
    (path / "u/c/1/0/0").write_bytes(b"\0" * 30)
    (path / "u/c/2/1/1").unlink()
    (path / "v/c/2/0/0").unlink()
    opened = open_dataset(path)
    np.testing.assert_array_equal(opened.read(1), netcdf.read(1))
    with pytest.raises(
        DatasetError, match=r"a\.zarr: variable 'u': chunk 'u/c/1/0/0' cannot be unpacked: .*Zstandard"
    ):
        opened.read(2)
    with pytest.raises(DatasetError, match=r"variable 'u': chunk 'u/c/2/1/1' is not stored"):
        opened.read(4)


def test_a_chunk_that_is_not_stored_is_missing_or_an_error(tmp_path: Path) -> None:
    """By the format it holds the fill value; where that is an ordinary number nothing tells it from a loss."""
    data = flow(land=False)
    data["v"].values[1] = 0.0
    path = write(tmp_path / "a.zarr", data, chunks=(1, 6, 9), fill_value=0.0)
    assert not (path / "v/c/1").exists(), "zarr-python leaves out a chunk of zeros"
    opened = open_dataset(path)
    with pytest.raises(
        DatasetError, match=r"'v/c/1/0/0' is not stored\. .*fill value 0\.0, .*Pass `missing='fill'`"
    ):
        opened.read(1)
    for missing in ("fill", "zero"):
        np.testing.assert_array_equal(open_dataset(path, missing=missing).read(1)[:, 1], 0)
    with pytest.raises((ValueError, TypeError), match="missing"):
        open_dataset(path, missing="x")
    # Format 2, and a fill value that marks missing values: land, which must not change.
    for version, more in ((2, {}), (3, {"fill_value": np.nan})):
        path = write(tmp_path / "b.zarr", flow(), version, chunks=(1, 2, 3), **more)
        lost = "u/0.0.0" if version == 2 else "u/c/0/0/0"
        assert not (path / lost).exists(), "a chunk of land"
        land = open_dataset(path)
        assert "6 of them land" in str(land)
        (path / lost.replace("0.0.0", "2.1.1").replace("0/0/0", "2/1/1")).unlink()
        land.read(1)
        with pytest.raises(DatasetError, match=r"miss other values than the first slice \(6 more, 0 fewer\)"):
            open_dataset(path).read(2)
    told = json.loads((path / "u/zarr.json").read_text())
    (path / "u/zarr.json").write_text(json.dumps({**told, "fill_value": 7.5}))
    with pytest.raises(DatasetError, match=r"takes it as the fill value 7\.5"):
        open_dataset(path)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"shape": [-1]}, r"its shape must be whole numbers from 0; it is '\[-1\]'"),
        ({"shape": [True]}, r"its shape must be whole numbers"),
        ({"chunk": [0]}, r"its chunk shape must be 1 whole numbers from 1; it is '\[0\]'"),
        ({"chunk": [2, 2]}, r"its chunk shape must be 1 whole numbers"),
        ({"data_type": 7}, r"its data type must be a name; it is '7'"),
        ({"codecs": []}, r"its codecs must be a list"),
        ({"codecs": [3]}, r"its codecs must be objects with a name; one is '3'"),
        ({"dimension_names": ["a", "b"]}, r"its dimension_names must name 1 dimensions"),
        ({"attributes": [1]}, r"its attributes must be an object"),
        ({"chunk_grid": None}, r"its chunk grid must have a name"),
    ],
)
def test_metadata_that_contradict_themselves(tmp_path: Path, told: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=rf"a\.zarr: variable 'u': {message}"):
        zarr_json(tmp_path / "a.zarr", **told)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"data_type": "string", "codecs": ["vlen-utf8"]}, r"it holds objects packed with 'vlen-utf8', which is never run"),
        ({"data_type": "r24"}, r"it holds values of the type '.*', which are not read"),
        ({"fill_value": "abc"}, r"zarr-python refuses its metadata: .*abc"),
        ({"fill_value": [1]}, r"zarr-python refuses its metadata: .*\[1\]"),
        ({"fill_value": "-"}, r"zarr-python refuses its metadata: .*fill_value"),
        ({"chunk_key_encoding": {"name": "../x"}}, r"zarr-python refuses its metadata: .*\.\./x"),
        ({"codecs": ["bytes", {"name": "numcodecs.pickle"}]}, r"it holds objects packed with '.*pickle', which is never run"),
        ({"codecs": ["bytes", "wild"]}, r"it is packed with 'wild', which is not read; known are bytes"),
        ({"attributes": {"_FillValue": "no"}}, r"its attribute '_FillValue' is 'no', which is no float32"),
        ({"shape": [10**15, 1]}, r"it declares 4,000,000,000,000,000 bytes, of which the store holds"),
        ({"shape": [2**31, 2**31]}, r"it declares 18,446,744,073,709,551,616 bytes, of which"),
        ({"dimension_names": None}, r"it does not name its dimensions"),
        ({"chunk_grid": {"name": "odd"}}, r"its chunks make a grid of the kind 'odd'"),
        ({"new": {"must_understand": True}}, r"zarr-python refuses its metadata: .*'new'"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_in_words_when_it_is_asked_for(
    tmp_path: Path, told: dict[str, Any], reason: str
) -> None:
    array = zarr_json(tmp_path / "a.zarr", **{"shape": [2, 2], "chunk": [2, 2], **told})
    with pytest.raises(DatasetError, match=rf"a\.zarr: variable 'u': {reason}"):
        array.read()


def test_objects_are_never_unpacked_and_do_not_spoil_the_rest(tmp_path: Path, netcdf: Any) -> None:
    path = write(tmp_path / "a.zarr", version=2)
    facts = json.loads((path / "u/.zarray").read_text())
    spoiled = {**facts, "dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}]}
    shutil.copytree(path / "u", path / "labels")
    (path / "labels/.zarray").write_text(json.dumps(spoiled))
    np.testing.assert_array_equal(slices(open_dataset(path)), slices(netcdf))
    (path / "u/.zarray").write_text(json.dumps(spoiled))
    with pytest.raises(
        DatasetError,
        match=r"a\.zarr: variable 'u': it holds objects packed with 'pickle', which is never run",
    ):
        open_dataset(path)
    (path / "u/.zarray").write_text(json.dumps({**facts, "filters": [{"id": "json2"}]}))
    with pytest.raises(DatasetError, match=r"'u': it holds objects packed with 'json2', which is never run"):
        open_dataset(path, velocity=("u", "v"))


@pytest.mark.parametrize("value", ["x", 10**400, [1, 2], {}, True])
def test_scales_and_offsets_are_numbers(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path / "a.zarr")
    told = json.loads((path / "u/zarr.json").read_text())
    told["attributes"]["add_offset"] = value
    (path / "u/zarr.json").write_text(json.dumps(told))
    with pytest.raises(
        DatasetError, match=r"a\.zarr: variable 'u': its attributes cannot be used: 'add_offset'"
    ):
        open_dataset(path)


def test_links_and_pipes_lead_nowhere(tmp_path: Path, netcdf: Any) -> None:
    path = write(tmp_path / "a.zarr", chunks=(1, 6, 9))
    chunk = path / "u/c/2/0/0"
    outside = tmp_path / "outside"
    chunk.rename(outside)
    chunk.symlink_to(outside)
    opened = open_dataset(path)
    with pytest.raises(DatasetError, match=r"a\.zarr: 'u/c/2/0/0' is a link that leads out of the store"):
        opened.read(2)
    chunk.unlink()
    outside.rename(path / "u/c/kept")
    chunk.symlink_to(path / "u/c/kept")
    np.testing.assert_array_equal(opened.read(2), netcdf.read(2))
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(DatasetError, match=r"'u/c/2/0/0' must be a file; it is a folder, a pipe or a device"):
        opened.read(2)
    shutil.move(path / "v", tmp_path / "v")
    (path / "v").symlink_to(tmp_path / "v")
    with pytest.raises(DatasetError, match=r"a\.zarr: 'v/zarr\.json' is a link that leads out of the store"):
        open_dataset(path)


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(
        DatasetError, match=r"empty\.zarr: it is no Zarr store: there is neither 'zarr\.json' nor"
    ):
        open_dataset(tmp_path / "empty.zarr")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(DatasetError, match=r"text\.zip: the archive cannot be read: .*no Zarr store"):
        open_dataset(tmp_path / "text.zip")
    zarr_json(tmp_path / "a.zarr")
    shutil.copy(tmp_path / "a.zarr/u/zarr.json", tmp_path / "a.zarr/zarr.json")
    with pytest.raises(DatasetError, match=r"a\.zarr: it is a single array; a data set is a group"):
        open_dataset(tmp_path / "a.zarr")
    path = write(tmp_path / "b.zarr", version=2, consolidated=True)
    shutil.rmtree(path / "v")
    with pytest.raises(DatasetError, match=r"b\.zarr: the list of its arrays names 'v', which is not there"):
        open_dataset(path)
    path = write(tmp_path / "c.zarr", flow().rename(x="xx"))
    told = json.loads((path / "v/zarr.json").read_text())
    (path / "v/zarr.json").write_text(json.dumps({**told, "shape": [5, 6, 8]}))
    with pytest.raises(DatasetError, match=r"dimension 'xx' has 9 values in variable 'u' and 8 in 'v'"):
        open_dataset(path)
    (path / "zarr.json").write_text("[" * 100_000)
    with pytest.raises(DatasetError, match=r"c\.zarr: 'zarr\.json' is no JSON"):
        open_dataset(path)
    with pytest.raises(FileNotFoundError, match=r"no file matches `pattern` .*gone\.zarr"):
        open_dataset(tmp_path / "gone.zarr")
    for address in (
        "s3://bucket/ocean.zarr",
        "https://example.org/ocean.zarr",
        Path("gs://bucket/ocean.zarr"),
    ):
        with pytest.raises(
            DatasetError, match=r"`pattern` must name files of this machine; .* Open it with xarray"
        ):
            open_dataset(address)


def test_nested_groups_are_left_alone_and_can_be_named(tmp_path: Path, netcdf: Any) -> None:
    write(tmp_path / "a.zarr", flow(land=False))
    write(tmp_path / "a.zarr/deep")
    assert "deep" not in open_data(tmp_path / "a.zarr").variables
    np.testing.assert_array_equal(slices(open_dataset(tmp_path / "a.zarr/deep")), slices(netcdf))


def test_chunks_that_unpack_to_more_than_they_should(tmp_path: Path) -> None:
    import gzip
    import zlib

    zeros = bytes(50_000_000)
    rle = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    cases = {
        "gzip": (gzip.compress(zeros), r"unpacks to 129 bytes where at most 128 belong"),
        "numcodecs.zlib": (zlib.compress(zeros), r"unpacks to 129 bytes"),
        "numcodecs.gzip": (gzip.compress(b"") * 99, r"is packed in more than 16 streams"),
        "zstd": (b"\x28\xb5\x2f\xfd\x00\x58" + rle * 4000 + b"\x01\0\0", r"unpacks to [0-9,]+ bytes where at most 128 belong"),
        "blosc": (bytes.fromhex("02019404") + (2**31 - 1).to_bytes(4, "little") * 2 + bytes([24, 0, 0, 0]) + bytes(8),
                  r"unpacks to 2,147,483,647 bytes"),
        "numcodecs.lz4": ((2**31 - 1).to_bytes(4, "little") + bytes(9), r"unpacks to 2,147,483,647 bytes"),
    }  # fmt: skip
    for name, (data, message) in cases.items():
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        array = zarr_json(tmp_path / "a.zarr", [32], [32], codecs=[little, name])
        (tmp_path / "a.zarr/u/c").mkdir()
        (tmp_path / "a.zarr/u/c/0").write_bytes(data)
        with pytest.raises(DatasetError, match=rf"chunk 'u/c/0' cannot be unpacked: it {message}"):
            array.read()
    array = zarr_json(tmp_path / "a.zarr", [10**6], [1], fill_value="NaN")
    with pytest.raises(DatasetError, match=r"it is cut into 1,000,000 chunks, of which 1 files cannot"):
        array.read()


def test_a_cut_chunk_of_blosc_never_reaches_the_library(tmp_path: Path) -> None:
    """numcodecs 0.16 reads beyond its end."""
    path = write(tmp_path / "a.zarr", flow(land=False), 2, compressors=numcodecs.Blosc(), chunks=(5, 6, 9))
    whole = (path / "u/0.0.0").read_bytes()
    for length in (0, 1, 12, 15, 16, len(whole) // 2, len(whole) - 1):
        (path / "u/0.0.0").write_bytes(whole[:length])
        with pytest.raises(DatasetError, match=r"'u/0\.0\.0' cannot be unpacked: it has .* Blosc"):
            open_dataset(path)

"""Zarr stores for the fuzzer: a store is a zip archive of its files, read as such or unpacked to a folder, by turns."""

import gzip
import io
import json
import os
import random
import shutil
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import Loader
from fuzz_mutants import MUTANTS, ODD, WHOLE, spoil_bytes, spoil_json, spoil_text
from fuzz_trace import _trajectory, read_field, read_trajectory

Files = dict[str, tuple[bytes, int]]
"""Content and kind (a file, a link, a pipe) by name."""
FILE = stat.S_IFREG | 0o644


def packed(files: Files) -> bytes:
    """The archive of some files, the same bytes whenever it is made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that comes twice
        for name, (content, kind) in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = kind << 16
            out.writestr(info, content)
    return made.getvalue()


def packed_folder(folder: Path) -> bytes:
    """The archive of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return packed({str(path.relative_to(folder)): (path.read_bytes(), FILE) for path in found})


def files_of(data: bytes) -> Files:
    """The files of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        return {info.filename: (stored.read(info), info.external_attr >> 16) for info in stored.infolist()}


def unpack(data: bytes, folder: Path) -> bool:
    """Write the files of an archive to a folder, links and pipes too; False where it is damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        files = files_of(data)
    except Exception:  # noqa: BLE001 (whatever a damaged archive raises)
        return False
    folder.mkdir()
    for name, (content, kind) in files.items():
        path = Path(os.path.normpath(folder / name))
        if folder not in path.parents or "\0" in name:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(kind):
                path.symlink_to(content.decode())
            elif stat.S_ISFIFO(kind):
                os.mkfifo(path)
            elif not path.is_symlink():
                path.write_bytes(content)
        except (OSError, ValueError):
            continue  # a file where a folder should be, or a name that no disk takes
    return True


def by_turns(read: Callable[[Path], None]) -> Callable[[Path], None]:
    """Read an archive as it is or as a folder, as its bytes decide."""

    def load(path: Path) -> None:
        data = path.read_bytes()
        folder = path.with_name(path.stem)
        if zlib.crc32(data) % 3 and unpack(data, folder):
            read(folder)
        else:
            read(path)

    return load


_SHAPES: tuple[Any, ...] = (
    [], [0], [-1], [1], [3], [10**5] * 3, [2**31] * 3, [10**15], [2**62, 4], [10**5, 10**5], [1.5], [True], ["2"], None, "x",
    [2, 4, 5], [5, 4, 2], [1, 1, 1], [0, 0, 0], [10**6, 4, 5], [2, 10**6, 10**6], [1] * 40, {}, [2**64, 1, 1],
)  # fmt: skip
_TYPES: tuple[Any, ...] = (
    "|O", "<f8", "<f2", ">f4", "<i2", "|b1", "<U4", "|S3", "<M8[ns]", "<c8", "<V8", "x", "", None, [["a", "<f4"]], "<f3",
    "float64", "float32", "int8", "bool", "string", "r16", "complex64", "bytes", {"name": "fixed_length_utf32"},
    {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}, "<U99999999", "f4,f4", "O8",
)  # fmt: skip
_FILLS: tuple[Any, ...] = (
    None, 0, 0.0, 1, -32768, 1e300, "NaN", "Infinity", "0x7fc00000", "0x", "x", "AAAAAAAA+H8=", True, [], [1, 2], {}, 10**40,
    "é", float("nan"), "NaT",
)  # fmt: skip
_CODECS_2: tuple[Any, ...] = (
    None, "blosc", {}, {"id": "pickle"}, {"id": "json2"}, {"id": "vlen-utf8"}, {"id": "zlib", "level": 1}, {"id": "gzip"},
    {"id": "lz4"}, {"id": "zstd"}, {"id": "bz2"}, {"id": "lzma"}, {"id": "blosc"}, {"id": "nothing"}, {"id": None}, 7,
    {"id": "shuffle", "elementsize": 0}, {"id": "shuffle", "elementsize": 10**9}, {"id": "delta", "dtype": "|O"},
    {"id": "delta", "dtype": "<f4"}, {"id": "fixedscaleoffset", "offset": 0, "scale": 0, "dtype": "<f4", "astype": "<i2"},
    {"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f4"}, {"id": "crc32"}, {"id": "bitround"},
    {"id": "quantize", "digits": 2, "dtype": "<f4"}, {"id": "fixedscaleoffset", "offset": "x", "scale": 1, "dtype": "<f4"},
)  # fmt: skip
_AFTER = (
    [],
    [{"name": "gzip"}],
    [{"name": "zstd"}],
    [{"name": "blosc"}],
    [{"name": "crc32c"}],
    [{"name": "numcodecs.lz4"}],
)
_CODECS_3: tuple[Any, ...] = (
    *([{"name": "bytes", "configuration": {"endian": "little"}}, *more] for more in _AFTER),
    [], None, "bytes", ["bytes"], [{"name": "vlen-utf8"}], [{"name": "bytes", "configuration": {"endian": "x"}}], [7], [{}],
    [{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, "bytes"], [{"name": "numcodecs.pickle"}],
    [{"name": "transpose", "configuration": {"order": [0, 0, 0]}}, "bytes"],
    [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1], "codecs": ["bytes"], "index_codecs": ["bytes"]}}],
    [{"name": "sharding_indexed", "configuration": {"chunk_shape": [0], "codecs": [], "index_codecs": 3}}],
)  # fmt: skip
_LINKS = (
    "/etc/passwd",
    "..",
    "/dev/zero",
    ".",
    "x",
    "../..",
    "/",
    "/proc/self/mem",
    "u",
    "../flow.zarr",
    "0.0.0",
)


def _spoil_metadata(rng: random.Random, data: bytes) -> bytes:
    """Metadata that say something else about shape, chunks, type, fill value, codecs or dimensions."""
    tree = json.loads(data)
    words = [key for key in tree if key not in ("zarr_format", "node_type")]
    word = rng.choice(words) if words else "shape"
    if word == "chunk_grid" and rng.random() < 0.8:
        tree[word] = {"name": "regular", "configuration": {"chunk_shape": rng.choice(_SHAPES)}}
    elif word == "attributes" and rng.random() < 0.8 and isinstance(tree[word], dict):
        keys = [*tree[word], "_FillValue", "scale_factor", "add_offset", "units", "axis", "missing_value"]
        tree[word][rng.choice(keys)] = rng.choice((*ODD, *_FILLS))
    elif word == "filters":
        tree[word] = [rng.choice(_CODECS_2) for _ in range(rng.choice((1, 1, 2)))]
    else:
        odd = {
            "shape": _SHAPES,
            "chunks": _SHAPES,
            "dtype": _TYPES,
            "data_type": _TYPES,
            "fill_value": _FILLS,
            "compressor": _CODECS_2,
            "codecs": _CODECS_3,
            "dimension_names": (None, [], ["x", "x", "x"], ["a", "b", "c"], [None] * 3, ["time", "y"], 3),
            "order": ("F", "C", "X", None),
            "dimension_separator": ("/", ".", "", "..", None),
        }.get(word, ODD)
        tree[word] = rng.choice(odd)
    if rng.random() < 0.1:
        tree[rng.choice(("zarr_format", "node_type", "must", "shape"))] = rng.choice(ODD)
    return json.dumps(tree).encode()


def _spoil_chunk(rng: random.Random, data: bytes) -> bytes:
    """A chunk that is cut, filled up, of another length in its head, or one that unpacks to far more."""
    match rng.randrange(8):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            return data + rng.randbytes(rng.choice((1, 16, 70_000)))
        case 2 | 3 if (
            len(data) > 16
        ):  # lengths in the head of Blosc (at 4, 8, 12), Zstandard (at 5) and LZ4 (at 0)
            found = bytearray(data)
            struct.pack_into("<I", found, rng.choice((0, 4, 5, 8, 12)), rng.choice(WHOLE) & 0xFFFFFFFF)
            return bytes(found)
        case 4:
            bomb = bytes(rng.choice((10**5, 3 * 10**7)))
            return rng.choice((gzip.compress(bomb, mtime=0), zlib.compress(bomb)))
        case 5:
            blocks = rng.choice((1, 1000, 20_000))
            rle = (_ZSTD_RLE << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
            return b"\x28\xb5\x2f\xfd\x00\x58" + rle * blocks + rng.choice((b"", b"\x01\x00\x00"))
        case 6:
            return rng.randbytes(rng.choice((0, 3, 15, 16, 80, 200)))
    return spoil_bytes(rng, data)


_ZSTD_RLE = 1 << 17


def _resize(rng: random.Random, files: Files) -> None:
    """Let all arrays say the same other length of one of their dimensions: nothing contradicts it but what is stored."""
    arrays = {}
    for name, (content, _) in files.items():
        if name.endswith(("/zarr.json", "/.zarray")):
            tree = json.loads(content)
            beside = files.get(name.replace(".zarray", ".zattrs"), (b"{}", 0))[0]
            dims = tree.get("dimension_names") or json.loads(beside).get("_ARRAY_DIMENSIONS") or []
            if len(dims) == len(tree.get("shape", ())):
                arrays[name] = (tree, dims)
    known = sorted({str(dim) for _, dims in arrays.values() for dim in dims})
    dim, size = rng.choice(known), rng.choice((0, 1, 2, 3, 6, 100, 10**5, 10**7, 2**40, 2**62))
    for name, (tree, dims) in arrays.items():
        tree["shape"] = [size if one == dim else n for n, one in zip(tree["shape"], dims, strict=True)]
        files[name] = (json.dumps(tree).encode(), FILE)


def spoil_zarr(rng: random.Random, data: bytes) -> bytes:
    """A store with metadata and chunks spoiled, lost, moved or replaced by links, pipes and folders."""
    files = files_of(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        told = [
            name for name in files if name.endswith((".json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"))
        ]
        chunks = [name for name in files if name not in told]
        arrays = [name for name in told if "/" in name and not name.endswith(".zattrs")]
        name = rng.choice(list(files)) if files else "x"
        match rng.randrange(14):
            case 0 | 1 | 2 | 3 if arrays:
                name = rng.choice(arrays)
                files[name] = (_spoil_metadata(rng, files[name][0]), FILE)
            case 4 if told:
                name = rng.choice(told)
                files[name] = (rng.choice((spoil_json, spoil_json, spoil_text))(rng, files[name][0]), FILE)
            case 5 | 6 | 7 if chunks:
                name = rng.choice(chunks)
                files[name] = (_spoil_chunk(rng, files[name][0]), FILE)
            case 8:
                files.pop(name, None)
            case 9:
                odd = (
                    f"group/{name}",
                    f"../{name}",
                    "/etc/passwd",
                    "u",
                    f"{name}/x",
                    "zarr.json",
                    "u/c",
                    "é/zarr.json",
                    "",
                )
                files[rng.choice(odd)] = files.pop(name, (b"", FILE))
            case 10:
                names = [*arrays, *chunks, *(f"{one.partition('/')[0]}" for one in arrays)] or ["u"]
                name = rng.choice(names)
                for one in [one for one in files if one == name or one.startswith(f"{name}/")]:
                    del files[one]
                kind = stat.S_IFIFO | 0o600 if rng.random() < 0.2 else stat.S_IFLNK | 0o777
                files[name] = (rng.choice(_LINKS).encode(), kind)
            case 11 if chunks:
                other = rng.choice(list(files))
                files[name], files[other] = files[other], files[name]
            case 13:
                _resize(rng, files)
            case 12 if chunks:
                for one in [one for one in chunks if one.startswith(name.partition("/")[0])]:
                    del files[one]
    return packed(files)


MUTANTS["zarr"] = spoil_zarr


def _fields(folder: Path) -> list[bytes]:
    """Stores of both formats: plain, packed in several ways, with numbers as integers, bent, in shards."""
    import xarray
    import zarr.codecs
    from numcodecs import LZ4, Blosc, Delta, Shuffle, Zlib

    rng = np.random.default_rng(0)
    flow = {
        name: (("time", "y", "x"), rng.uniform(-1, 1, (2, 4, 5)).astype("f4"), {"units": "m s-1"})
        for name in "uv"
    }
    told: dict[str, Any] = {
        "time": ("time", np.arange(2.0), {"units": "seconds since 2000-01-01", "axis": "T"}),
        "y": ("y", np.linspace(0, 1, 4), {"units": "m", "axis": "Y"}),
        "x": ("x", np.linspace(0, 2, 5), {"units": "m", "axis": "X"}),
    }
    flat = xarray.Dataset(flow, told)
    lon, lat = np.meshgrid(np.linspace(10, 12, 5), np.linspace(50, 51, 4))
    places = {
        "lat": (("y", "x"), lat, {"units": "degrees_north", "standard_name": "latitude"}),
        "lon": (("y", "x"), lon + 0.1 * lat, {"units": "degrees_east", "standard_name": "longitude"}),
    }
    bent = xarray.Dataset(flow, {"time": told["time"], **places})
    integers = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -32768}
    cut = {"chunks": (1, 2, 5)}
    codecs = zarr.codecs
    made = []
    for dataset, version, encoding in (
        (flat, 2, {"compressors": Blosc(cname="lz4")}),
        (bent, 2, {**cut, "compressors": Zlib(1), "filters": [Shuffle(4)]}),
        (flat, 2, {**cut, **integers, "compressors": LZ4(), "filters": [Delta("<i2")]}),
        (flat, 3, {"compressors": codecs.BloscCodec(cname="zstd", typesize=4)}),
        (bent, 3, {**cut, **integers, "compressors": codecs.ZstdCodec()}),
        (flat, 3, {"chunks": (1, 2, 5), "shards": (2, 4, 5), "compressors": codecs.GzipCodec()}),
        (flat, 3, {"compressors": None}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # format 3 has no words for lists of arrays yet
            dataset.to_zarr(
                folder / "made.zarr",
                mode="w",
                zarr_format=version,
                encoding={name: dict(encoding) for name in "uv"},
                consolidated=dataset is bent,
            )
        made.append(packed_folder(folder / "made.zarr"))
    shutil.rmtree(folder / "made.zarr")
    return made


def _saved(folder: Path) -> list[bytes]:
    from jaxtrace.io import save_trajectory

    made = []
    for options in ({}, {"compress": False, "units": "degrees"}):
        save_trajectory(_trajectory(), folder / "made.zarr", **options)
        made.append(packed_folder(folder / "made.zarr"))
    shutil.rmtree(folder / "made.zarr")
    return made


LOADERS = [
    Loader(
        "trace/zarr",
        "flow.zarr.zip",
        _fields,
        by_turns(read_field),
        ("bytes", "zarr", "zarr", "zarr", "zarr"),
        weight=3,
    ),
    Loader(
        "trace/trajectory.zarr",
        "paths.zarr.zip",
        _saved,
        by_turns(read_trajectory),
        ("bytes", "zarr", "zarr", "zarr", "zarr"),
        weight=3,
    ),
]

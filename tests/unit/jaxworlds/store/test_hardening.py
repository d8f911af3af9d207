"""Malformed input: every loader refuses it in words or loads something well-formed. `make fuzz` is the long form of this."""

import base64
import io
import json
import random
import resource
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import fuzz
import fuzz_arc
import fuzz_core
import fuzz_trace
import numpy as np
import pytest
from fuzz_cases import Garbage, Loader, make_input, try_one, unclear
from fuzz_mutants import spoil_container

from acbo.scms import from_edge_frame, parse_graph, parse_model
from acbo.surrogate.weights import load_weights
from jaxarc.envs.adapter import config_from_yaml
from jaxarc.tasks import load
from jaxarc.tasks.mapped import open_task_file
from jaxtrace.io import DatasetError, load_trajectory, open_dataset, save_trajectory
from jaxtrace.io.cf.netcdf_sizes import check_hdf5
from jaxtrace.tracking.seeding import table_seeds
from jaxworlds.measuring import Baseline, BaselineError
from jaxworlds.store import (
    CompressedStorage,
    StoreError,
    load_state,
    open_array,
    read_archive,
    read_header,
    save_state,
)

pytestmark = pytest.mark.usefixtures("quick_compile")
LOADERS = fuzz.loaders()
SECONDS = 0.25
"""Of processor time for the inputs of one loader; dear loaders get fewer inputs in it, but never fewer than `LEAST`."""
LEAST, MOST = 30, 300


@pytest.mark.parametrize("name", LOADERS)
def test_every_loader_refuses_or_loads(tmp_path: Path, name: str) -> None:
    loader = LOADERS[name]
    seeds = loader.seeds(tmp_path)
    path = tmp_path / loader.target
    for valid in seeds[:2]:
        path.write_bytes(valid)
        assert try_one(loader, path).kind == "loaded"
    before, bad = time.process_time(), []
    for index in range(MOST):
        path.write_bytes(make_input(loader, seeds, 11, index))
        outcome = try_one(loader, path)
        if not outcome.fine:
            bad.append((index, outcome.kind, outcome.detail))
        if index >= LEAST and time.process_time() - before > SECONDS:
            break
    assert not bad, f"{len(bad)} findings, the first is input {bad[0][0]}: {bad[0][1]}\n{bad[0][2]}"


def test_the_judge_tells_clear_errors_from_others() -> None:
    loader = LOADERS["core/state"]
    path = Path("folder/state.jxw")
    assert unclear(StoreError(f"{path}: must be something else; it is not."), path, loader) is None
    for error in (
        KeyError("state.jxw"),
        IndexError("state.jxw is too short for this"),
        TypeError("state.jxw must be something else"),
        MemoryError("state.jxw"),
        RecursionError("state.jxw is nested too deeply"),
        struct.error("state.jxw: unpack requires a buffer of 4 bytes"),
        zipfile.BadZipFile("state.jxw is not a zip file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "state.jxw: invalid"),
        ValueError("could not convert string to float"),
        ValueError("state.jxw"),
        ValueError("state.jxw " + "x" * 10_000),
    ):
        assert unclear(error, path, loader) is not None, error


def test_a_loader_that_returns_garbage_crashes_or_hangs_is_found(tmp_path: Path) -> None:
    """The harness itself: each kind of failure of a loader is a finding, attributed to its input."""

    def bad(path: Path) -> None:
        raise Garbage("shapes do not fit")

    loader = Loader("x", "x.bin", lambda folder: [b"12345678"], bad, ("bytes",))
    assert try_one(loader, tmp_path / "x.bin").kind == "garbage"
    script = tmp_path / "broken.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(fuzz.__file__).parent)!r})\n"
        "import os, time, fuzz\nfrom fuzz_cases import Loader\n"
        "def load(path):\n"
        "    data = path.read_bytes()\n"
        "    if data == b'12345678': return\n"
        "    if len(data) % 3 == 0: os.abort()\n"
        "    if len(data) % 3 == 1: time.sleep(60)\n"
        "    bytearray(1 << 40)\n"
        "fuzz.loaders = lambda: {'x': Loader('x', 'x.bin', lambda folder: [b'12345678'], load, ('bytes',))}\n"
        "fuzz.SECONDS = 1.0\n"
        "fuzz.__file__ = __file__\n"
        "sys.exit(fuzz.main())\n"
    )
    command = [
        sys.executable,
        str(script),
        "--inputs",
        "8",
        "--least",
        "8",
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "f.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    found = json.loads((tmp_path / "f.json").read_text())["loaders"]["x"]
    assert found["inputs"] == 8
    assert {"crash", "hang", "unclear MemoryError"} <= set(found["findings"])
    assert list((tmp_path / "f_findings" / "x").glob("crash_*.bin")), "the input is kept"
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1, "findings stay findings, and nothing is run twice"
    assert json.loads((tmp_path / "f.json").read_text())["loaders"]["x"] == found


# What was found, one by one.


def _written(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def _image(folder: Path, mode: str) -> bytes:
    return fuzz_trace._xml(fuzz_trace._image(), mode, folder)


@pytest.mark.parametrize(
    ("mode", "old", "new", "told"),
    [
        ("raw", b'Extent="0 3 0 2 0 2"', b'Extent="0 2147483647 0 2 0 2"', r"whole extent|must take"),
        ("ascii", b'NumberOfComponents="3"', b'NumberOfComponents="99999999999"', "it must hold"),
        ("zlib", b'NumberOfComponents="3"', b'NumberOfComponents="-1"', "whole number from 0"),
        ("raw", b'offset="', b'offset="99999999', "lies behind"),
        ("zlib", b"vtkZLibDataCompressor", b"vtkUnknownDataCompressor", "packed with"),
        ("ascii", b"<ImageData", b"<!DOCTYPE x><ImageData", "cannot be used"),
        ("ascii", b"<PointData", b"<x>" * 50_000 + b"<PointData", "nested over"),
        ("ascii", b'type="ImageData"', b'type="PolyData"', "it must hold <VTKFile type='ImageData'>"),
    ],
)
def test_vtk_images_with_sizes_they_do_not_hold(
    tmp_path: Path, mode: str, old: bytes, new: bytes, told: str
) -> None:
    data = _image(tmp_path, mode)
    assert old in data
    with pytest.raises(DatasetError, match=rf"(?s)a\.vti: .*({told})"):
        open_dataset(_written(tmp_path, "a.vti", data.replace(old, new)))


def test_a_document_type_never_expands(tmp_path: Path) -> None:
    bomb = b'<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    data = _image(tmp_path, "ascii").replace(b"<VTKFile", bomb + b"<VTKFile", 1)
    with pytest.raises(DatasetError, match=r"a\.vti: .*declares a document type"):
        open_dataset(_written(tmp_path, "a.vti", data))


@pytest.mark.parametrize("mode", ["zlib", "lz4", "lzma", "wide"])
def test_compressed_blocks_that_lie_about_their_size(tmp_path: Path, mode: str) -> None:
    """VTK's own readers end the process on some of these."""
    data = bytearray(_image(tmp_path, mode))
    at = data.index(b"_", data.index(b"<AppendedData")) + 1
    if mode in ("zlib", "wide"):  # in base64: the number of blocks becomes huge
        word = struct.pack("<I", 2**31) if mode == "zlib" else struct.pack(">Q", 2**62)
        whole = bytearray(base64.b64decode(bytes(data[at : at + 32])))
        whole[: len(word)] = word
        data[at : at + 32] = base64.b64encode(bytes(whole))[:32]
    else:
        data[at : at + 4] = struct.pack("<I", 2**31)
    with pytest.raises(DatasetError, match=r"a\.vti: .*array '\w+': it"):
        open_dataset(_written(tmp_path, "a.vti", bytes(data)))


def test_all_ways_to_pack_arrays_give_what_vtk_wrote(tmp_path: Path) -> None:
    from vtkmodules.util.numpy_support import vtk_to_numpy

    from jaxtrace.io.vtk.frames import read_frame

    for suffix, make in (("vti", fuzz_trace._image), ("vtr", fuzz_trace._rectilinear), ("vts", fuzz_trace._curved),
                         ("vtu", fuzz_trace._mesh), ("vtp", fuzz_trace._polygons)):  # fmt: skip
        made = make()
        right = vtk_to_numpy(made.GetPointData().GetArray("velocity"))
        for mode in fuzz_trace.MODES:
            path = _written(tmp_path, f"a.{suffix}", fuzz_trace._xml(made, mode, tmp_path))
            found = read_frame((path,))
            np.testing.assert_array_equal(found.arrays["node", "velocity"], right)
            assert (found.time, found.arrays["node", "velocity"].dtype) == (1.5, right.dtype)
        for binary in (False, True):
            for old in (False, True):
                path = _written(tmp_path, "a.vtk", fuzz_trace._legacy(made, binary, old, tmp_path))
                np.testing.assert_allclose(read_frame((path,)).arrays["node", "velocity"], right, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"DIMENSIONS 4 3 3", b"DIMENSIONS 4 3 -3", "Number of points don't match data values"),
        (b"DIMENSIONS 4 3 3", b"DIMENSIONS 4 3 300", "Number of points don't match data values"),
        (b"POINT_DATA 36", b"POINT_DATA 99999999999", "Number of points don't match data values"),
        (b"FIELD FieldData 2", b"FIELD FieldData 2000000000", "cut off, or not of the format"),
        (b"DATASET STRUCTURED_POINTS", b"DATASET TABLE", "it holds no data set"),
        (b"velocity 3 36 float", b"velocity 3 36 quad", "Unsupported data type: quad"),
        (b"SPACING", b"NONSENSE", "Not all meta data was read"),
    ],
)
def test_legacy_files_that_ended_the_process(tmp_path: Path, old: bytes, new: bytes, told: str) -> None:
    data = fuzz_trace._legacy(fuzz_trace._image(), False, False, tmp_path)
    assert old in data, data[:600]
    with pytest.raises(DatasetError, match=rf"(?s)a\.vtk: .*({told})"):
        open_dataset(_written(tmp_path, "a.vtk", data.replace(old, new)))


@pytest.mark.parametrize("name", ["../secret.vti", "/etc/passwd", "a/../../secret.vti", "a\0b.vti", ""])
def test_collections_and_pieces_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secret.vti").write_bytes(_image(tmp_path, "raw"))
    listed = json.dumps({"files": [{"name": name, "time": 0}]})
    with pytest.raises(DatasetError, match=r"a\.vti\.series: .*(outside of its folder|must name a file)"):
        open_dataset(_written(folder, "a.vti.series", listed.encode()))
    if "\0" in name:
        return
    piece = fuzz_trace._pieces(folder, "pvti")[0].replace(b"part_0.vti", name.encode())
    with pytest.raises(DatasetError, match=r"a\.pvti: .*(outside of its folder|must name a file)"):
        open_dataset(_written(folder, "a.pvti", piece))


def test_netcdf_that_declares_more_than_it_holds(tmp_path: Path) -> None:
    import h5py

    seeds = fuzz_trace._netcdf(tmp_path)
    path = _written(tmp_path, "a.nc", seeds[0])
    with h5py.File(path, "r+") as file:
        del file["u"]
        file.create_dataset("u", (2**31, 4, 5), "f4", chunks=(100, 4, 5), compression="gzip")
    with pytest.raises(
        DatasetError, match=r"a\.nc: variable 'u' declares 171,798,691,840 bytes, of which the file holds 0"
    ):
        open_dataset(path)
    path = _written(tmp_path, "b.nc", seeds[0])
    with h5py.File(path, "r+") as file:
        del file["u"]
        file["u"] = h5py.ExternalLink("/etc/passwd", "/x")
    with pytest.raises(DatasetError, match=r"b\.nc: variable 'u' lies in another file"):
        open_dataset(path)
    heap = bytearray(seeds[0])  # an object of no length: HDF5 would never come to the next
    at = heap.index(b"GCOL\1\0\0\0") + 16
    for shift in (b"", b"\0" * 3):
        heap[at : at + 16] = bytes(16)
        with pytest.raises(DatasetError, match=rf"d\.nc: the heap at byte {at - 16 + len(shift)} is broken"):
            check_hdf5(_written(tmp_path, "d.nc", shift + bytes(heap)))
    old = bytearray(seeds[3])  # NetCDF 3: magic, records, the tag and the length of the list of dimensions
    old[12:16] = struct.pack(">I", 2**30)
    with pytest.raises(DatasetError, match=r"c\.nc: .*1073741824 entries are declared"):
        open_dataset(_written(tmp_path, "c.nc", bytes(old)))


def test_archives_of_arrays_that_lie(tmp_path: Path) -> None:
    def archive(header: str, data: bytes = b"", name: str = "x.npy", **options: Any) -> Path:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", **options) as out:
            text = header.encode()
            out.writestr(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
        return _written(tmp_path, "a.npz", made.getvalue())

    def header(shape: str, kind: str = "<f8") -> str:
        return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n"

    assert read_archive(archive(header("(2,)"), bytes(16)))["x"].tolist() == [0, 0]
    for text, told in (
        (header("(99999999999,)"), "claims 799999999992 bytes"),
        (header("(2,)", "|O"), "not plain numbers"),
        (header("(-1,)"), "its shape is"),
        ("(" * 3000, "must be a .npy file"),
    ):
        with pytest.raises(StoreError, match=rf"a\.npz: 'x\.npy'.*{told}"):
            read_archive(archive(text, bytes(16)))
    with pytest.raises(StoreError, match=r"a\.npz: 'x\.npy' is packed by an unknown method"):
        read_archive(archive(header("(2,)"), bytes(16), compression=zipfile.ZIP_BZIP2))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert soft == hard or soft > 0  # the name of a member leads nowhere: nothing is ever unpacked to a disk
    assert list(read_archive(archive(header("(2,)"), bytes(16), "../../x.npy"))) == ["../../x"]


def test_trajectories_whose_arrays_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_trajectory(fuzz_trace._trajectory(), path)
    whole = read_archive(path)
    for name, values, told in (
        ("ages", whole["ages"][:2], "ages have the shape"),
        ("outcomes", whole["outcomes"] + np.int8(100), "outcomes must be below"),
        ("alive", whole["alive"].astype("f4"), "alive must have 2 axes of kind b"),
        ("header", np.array("[" * 5000), "no trajectory can be read"),
        ("header", np.array("null"), "its header is no object"),
    ):
        np.savez(path, **{**whole, name: values}, allow_pickle=False)
        with pytest.raises(DatasetError, match=rf"a\.npz: .*{told}"):
            load_trajectory(path)


def test_velocities_and_seeds_beyond_single_precision(tmp_path: Path) -> None:
    data = _image(tmp_path, "ascii").replace(
        b'type="Float32" Name="velocity"', b'type="Float64" Name="velocity"'
    )
    first = data.index(b">", data.index(b'Name="velocity"')) + 1
    data = data[:first] + b" 1e300 " + data[first:].lstrip().partition(b" ")[2]
    with pytest.raises(DatasetError, match=r"a\.vti: velocities up to 1e\+300 do not fit float32"):
        open_dataset(_written(tmp_path, "a.vti", data)).read(0)
    with pytest.raises(ValueError, match=r"`table` must be finite in float32; row 0"):
        table_seeds(_written(tmp_path, "a.csv", b"x,y\n1e300,1\n"))
    with pytest.raises(ValueError, match=r"a\.csv must be a table of text in UTF-8"):
        table_seeds(_written(tmp_path, "a.csv", b"x,y\n\xff,1\n"))
    assert table_seeds(_written(tmp_path, "a.csv", b"\xef\xbb\xbfx,y\n1,2\n")).shape == (
        1,
        2,
    )  # as some tables begin


def test_headers_of_the_store_with_sizes_of_any_kind(tmp_path: Path) -> None:
    """All checksums fit: only the numbers in the header are wrong."""
    rng = random.Random(3)
    for data in fuzz_core._states(tmp_path):
        for _ in range(60):
            path = _written(tmp_path, "state.jxw", spoil_container(rng, data))
            for read in (read_header, lambda path: load_state(path, fuzz_core._tree())):
                try:
                    read(path)
                except StoreError as error:
                    assert "state.jxw" in str(error)  # noqa: PT017 (both outcomes are right)
    storage = CompressedStorage(tmp_path)
    storage.save({"x": 1}, "a")
    _written(tmp_path, "a.jxw", (tmp_path / "a.jxw").read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"a\.jxw"):
        storage.load("a")
    with pytest.raises(StoreError, match=r"a\.npy: must be a \.npy file; its shape is"):
        open_array(_written(tmp_path, "a.npy", _npy("(0, 9223372036854775807, 9)")))


def _npy(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_deep_nesting_and_long_numbers_in_text(tmp_path: Path) -> None:
    deep = b"[" * 100_000
    with pytest.raises(ValueError, match=r"a\.json"):
        load(_written(tmp_path, "a.json", deep))
    with pytest.raises(ValueError, match=r"a\.json: must be JSON; Exceeds the limit"):
        load(_written(tmp_path, "a.json", b'{"train": ' + b"9" * 5000 + b"}"))
    with pytest.raises(BaselineError, match=r"a\.json"):
        Baseline.load(_written(tmp_path, "a.json", deep))
    with pytest.raises(DatasetError, match=r"a\.series"):
        open_dataset(_written(tmp_path, "a.series", deep))
    late = b'{"files": [{"name": "a.vti", "time": ' + b"9" * 400 + b"}]}"
    with pytest.raises(DatasetError, match=r"a\.series: the collection cannot be read \(int too large"):
        open_dataset(_written(tmp_path, "a.series", late))
    from acbo._commands.problem_file import read_problem as acbo_problem
    from jaxtrace._commands.problem import read_problem as trace_problem

    toml = _written(tmp_path, "a.toml", b"x = " + deep[:5000])
    for read in (acbo_problem, trace_problem):
        with pytest.raises(ValueError, match=r"a\.toml must be TOML"):
            read(toml)


def test_task_files_with_headers_of_another_kind(tmp_path: Path) -> None:
    data = fuzz_arc._bank(tmp_path)[0]
    rng = random.Random(1)
    refused = 0
    for _ in range(150):
        path = _written(tmp_path, "a.arcbank", fuzz_arc.spoil_bank(rng, data))
        try:
            open_task_file(path, verify=True).task_set()
        except StoreError as error:
            assert "a.arcbank" in str(error)  # noqa: PT017 (both outcomes are right)
            refused += 1
    assert refused > 100


def test_yaml_that_grows_or_constructs(tmp_path: Path) -> None:
    rows = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    rows += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefg", "bcdefgh", strict=True)
    ]
    with pytest.raises(
        ValueError, match=r"a\.yaml: must be YAML in UTF-8; it holds more than 100,000 values"
    ):
        config_from_yaml(_written(tmp_path, "a.yaml", "\n".join(rows).encode()))
    with pytest.raises(ValueError, match=r"a\.yaml: must be YAML.*could not determine a constructor"):
        config_from_yaml(_written(tmp_path, "a.yaml", b"reward: !!python/object/apply:os.system ['true']\n"))
    with pytest.raises(ValueError, match=r"a\.yaml: must be YAML.*more than"):
        config_from_yaml(_written(tmp_path, "a.yaml", b"reward: &a [*a]\n"))


def test_numbers_and_names_of_graphs_from_elsewhere() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for weight in ("a", None, [1], 10**400, float("inf"), 1e300):
        with pytest.raises(ValueError, match=r"`(frame: )?weight` must be (a )?finite"):
            from_edge_frame(pandas.DataFrame({"source": ["X"], "target": ["Y"], "weight": [weight]}))
    for text in ("(" * 100_000, "X = " + "(" * 5000, "X = N(0, 1); X in [1e, 2]", "X -> " + "Y" * 9000 + "("):
        for parse in (parse_model, parse_graph):
            with pytest.raises(ValueError, match="`text`") as caught:
                parse(text)
            assert len(str(caught.value)) < 500


@pytest.mark.parametrize("length", [1 << 33, 1 << 42, 1 << 62, (1 << 63) + 5])
def test_sizes_that_a_state_declares_and_cannot_hold_are_not_allocated(tmp_path: Path, length: int) -> None:
    """Digests are no seal: whoever writes a file writes fitting ones. Each of these took all memory, or tried to."""
    import zstandard

    from jaxworlds.store import _container as c

    def sealed(text: bytes, claimed: int, blob: bytes = b"", digests: bytes = b"") -> bytes:
        total = c._PREFIX.size + len(text) + len(blob)
        fields = (c.MAGIC, 1, claimed, total, c.digest16(text), c.digest16(digests))
        return c._PREFIX.pack(*fields, c.digest16(c._PREFIX.pack(*fields, bytes(16)))) + text + blob

    path = _written(tmp_path, "a.jxw", sealed(b"{}", length))
    with pytest.raises(StoreError, match=rf"a\.jxw: the header claims {length} bytes; 2 follow"):
        read_header(path)

    frame = zstandard.ZstdCompressor().compress(b"")[:4] + b"\xe0" + struct.pack("<Q", length) + b"\x01\0\0"
    header = {"kind": "objects", "byteorder": "little", "leaves": [], "codec": "zstd"}
    text = json.dumps(header).encode()
    digest = c._frame_digest(c.digest16(text), 0, 2, frame)
    blob = c._FRAME.pack(2, len(frame), digest) + frame
    path = _written(tmp_path, "b.jxw", sealed(text, len(text), blob, digest))
    with (
        c.open_container(path) as reader,
        pytest.raises(StoreError, match=rf"blob 0 must unpack to {length} bytes and does not"),
    ):
        reader.next_blob(length)


def test_zstd_still_unpacks_what_packs_best(tmp_path: Path) -> None:
    """The bound on what a file can hold is beyond what zstd reaches."""
    zeros = np.zeros(1 << 26, np.uint8)
    save_state(tmp_path / "a.jxw", {"a": zeros}, codec="zstd")
    assert (tmp_path / "a.jxw").stat().st_size < 10_000
    assert not load_state(tmp_path / "a.jxw", {"a": zeros})["a"].any()


def test_a_few_bytes_of_weights_that_declare_terabytes_are_not_shown(tmp_path: Path) -> None:
    from acbo._commands.terminal import weights_facts

    def made(**row: Any) -> Path:
        text = json.dumps(
            {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]} | row}
        ).encode()
        return _written(tmp_path, "a.safetensors", len(text).to_bytes(8, "little") + text + bytes(8))

    with pytest.raises(
        ValueError, match=r"a\.safetensors .* claim 4,398,046,511,104 bytes and the file holds 8"
    ):
        weights_facts(made())
    with pytest.raises(ValueError, match="'a' claims another size than its type and shape take"):
        weights_facts(made(data_offsets=[0, 8]))
    with pytest.raises(ValueError, match="does not lie behind the one before it"):
        weights_facts(made(shape=[1], data_offsets=[4, 8]))
    with pytest.raises(ValueError, match="its header claims 1,125,899,906,842,624 bytes and 2 follow"):
        weights_facts(_written(tmp_path, "b.safetensors", (1 << 50).to_bytes(8, "little") + b"{}"))
    assert weights_facts(made(shape=[2], data_offsets=[0, 8]))["numbers"] == 2
    assert weights_facts(made(shape=[8], dtype="F8_E4M3", data_offsets=[0, 8]))["numbers"] == 8
    assert weights_facts(made(shape=[8], dtype="BOOL", data_offsets=[0, 8]))["numbers"] == 8


def test_weights_with_settings_that_would_take_for_ever(tmp_path: Path) -> None:
    import fuzz_acbo

    data = fuzz_acbo._surrogates(tmp_path)[0]
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    for change, told in (
        ({"layers": 10**9}, "they are|arrays"),
        ({"layers": 5000}, "arrays"),
        ({"width": "8"}, "`width` is 8"),
    ):
        told_config = json.loads(header["__metadata__"]["config"]) | change
        text = json.dumps(
            header | {"__metadata__": header["__metadata__"] | {"config": json.dumps(told_config)}}
        ).encode()
        path = _written(tmp_path, "a.safetensors", len(text).to_bytes(8, "little") + text + data[8 + size :])
        with pytest.raises(
            ValueError, match=rf"a\.safetensors must hold the settings of its network; .*({told})"
        ):
            load_weights(path)
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        load_weights(_written(tmp_path, "a.safetensors", data[:-5]))

"""The store: what is saved comes back exactly, and what is damaged, foreign or other is refused."""

import json
import os
import re
import subprocess
import sys
import tracemalloc
import types
from collections import deque
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxworlds.store import (
    CompressedStorage,
    StoreError,
    _container,
    _folders,
    atomic_folder,
    atomic_write,
    content_hash,
    device_rows,
    load_state,
    open_array,
    read_header,
    read_rows,
    save_array,
    save_state,
)

CODECS = ["zstd", "zlib", "raw"]


class Bank(eqx.Module):
    grids: jax.Array
    names: tuple[str, ...] = eqx.field(static=True, default=("a", "b"))


class State(eqx.Module):
    position: jax.Array
    velocity: jax.Array
    key: jax.Array
    task_data: Bank
    label: str


def make_state(seed: int = 0, bank_rows: int = 64) -> State:
    grids = np.random.default_rng(7).integers(0, 10, (bank_rows, 30, 30), dtype=np.int8)
    return State(
        jnp.arange(6, dtype=jnp.float32).reshape(2, 3) + seed,
        -jnp.ones((2, 3), jnp.float32),
        jr.key(seed),
        Bank(jnp.asarray(grids)),
        "run",
    )


def bits(leaf: Any) -> Any:
    """A leaf in a form where == means bit-identical, of the same type, dtype and shape."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return ("key", str(jr.key_impl(leaf)), bits(jr.key_data(leaf)))
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        family = "jax" if isinstance(leaf, jax.Array) else type(leaf).__name__
        return (family, str(leaf.dtype), tuple(leaf.shape), np.asarray(leaf).tobytes())
    return (type(leaf).__name__, hex(leaf) if isinstance(leaf, int) else repr(leaf))


def assert_same(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    assert list(map(bits, jax.tree.leaves(found))) == list(map(bits, jax.tree.leaves(wanted)))


# --- atomic writes ---------------------------------------------------------------------------------------------------


def test_atomic_write_makes_the_folder_and_replaces_the_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    for text in ("first", "grüße"):
        with atomic_write(path, "w") as file:
            file.write(text)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(path.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_write_leaves_the_old_file_and_no_temporary(tmp_path, error):
    path = tmp_path / "state.jxw"
    save_state(path, {"x": jnp.arange(3)})
    old = path.read_bytes()

    def fail_halfway() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail_halfway()
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["state.jxw"]


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
    said = f"`path` must be a file; {tmp_path} is a folder. Name a file in it: {tmp_path / 'NAME'}."
    for call in (save_state, load_state):
        with pytest.raises(IsADirectoryError, match=re.escape(said)):
            call(tmp_path, jnp.zeros(3))
    assert not os.listdir(tmp_path)


def test_readers_see_the_old_file_until_the_end(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def filled(path, text):
    with atomic_folder(path) as folder:
        (folder / "part").mkdir()
        (folder / "part/a").write_text(text)


def texts(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("at_once", [True, False])
def test_atomic_folder_replaces_a_folder_whole(tmp_path, monkeypatch, at_once):
    """In one step where the system has one, and in two where it has not."""
    if not at_once:
        monkeypatch.setattr(
            _folders.ctypes, "CDLL", lambda *_, **__: None
        )  # a C library without the exchange
    path = tmp_path / "deep/run.zarr"
    for text in ("one", "two"):
        filled(path, text)
        assert texts(tmp_path) == {"deep/run.zarr/part/a": text}
    (path / "old").write_text("gone with the folder")
    filled(path, "three")
    assert texts(tmp_path) == {"deep/run.zarr/part/a": "three"}
    assert [p.name for p in path.parent.iterdir()] == ["run.zarr"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_atomic_folder_leaves_the_old_one_when_writing_fails(tmp_path, error):
    path = tmp_path / "run"
    filled(path, "one")

    def fail_halfway() -> None:
        with atomic_folder(path) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fail_halfway()
    assert texts(tmp_path) == {"run/part/a": "one"}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_atomic_folder_when_the_last_step_fails(tmp_path, monkeypatch):
    path = tmp_path / "run"
    filled(path, "one")
    monkeypatch.setattr(_folders.ctypes, "CDLL", lambda *_, **__: None)  # a C library without the exchange
    replace, calls = os.replace, []

    def second_fails(one, other):
        calls.append(other)
        if len(calls) == 2:
            raise OSError(5, "no such luck")
        replace(one, other)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="no such luck"):
        filled(path, "two")
    assert texts(tmp_path) == {"run/part/a": "one"}
    monkeypatch.undo()
    failing = types.SimpleNamespace(renameat2=lambda *_: -1, renamex_np=lambda *_: -1)
    monkeypatch.setattr(_folders.ctypes, "CDLL", lambda *_, **__: failing)
    monkeypatch.setattr(_folders.ctypes, "get_errno", lambda: 13)
    with pytest.raises(PermissionError, match="run"):
        filled(path, "two")
    assert texts(tmp_path) == {"run/part/a": "one"}
    monkeypatch.setattr(_folders.ctypes, "get_errno", lambda: 22)  # a file system that knows no exchange
    filled(path, "two")
    assert texts(tmp_path) == {"run/part/a": "two"}


def test_atomic_write_refuses_to_append(tmp_path):
    with (
        pytest.raises(ValueError, match="`mode` must be 'wb' or 'w'; got 'ab'"),
        atomic_write(tmp_path / "a", "ab"),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_the_data_is_synced_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), real_sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), real_replace(a, b))[1])
    with atomic_write(tmp_path / "a") as file:
        file.write(b"x")
    assert calls == ["sync", "rename", "sync"]


@pytest.mark.own_process
@pytest.mark.parametrize("moment", ["before the rename", "amid the write"])
def test_death_during_a_write_keeps_the_old_state(tmp_path, moment):
    path = tmp_path / "state.jxw"
    save_state(path, {"x": np.arange(1000)}, meta={"step": 1})
    code = f"""
import os, sys
import numpy as np
from jaxworlds import store
from jaxworlds.store import _container
if {moment!r} == "before the rename":
    os.replace = lambda *names: os._exit(9)
else:
    _container._pack = lambda *arguments: os._exit(9)
store.save_state({str(path)!r}, {{"x": np.zeros(1000, int)}}, meta={{"step": 2}})
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert ended.returncode == 9, ended.stderr.decode()
    assert len(list(tmp_path.glob(".state.jxw.*.tmp"))) == 1  # it did die in the middle
    assert read_header(path).meta == {"step": 1}
    np.testing.assert_array_equal(load_state(path, {"x": np.zeros(1000, int)})["x"], np.arange(1000))


# --- state: round trips ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_state_returns_bit_identical(tmp_path, codec):
    state = make_state()
    save_state(tmp_path / "s", state, codec=codec)
    assert_same(load_state(tmp_path / "s", like=make_state(seed=5)), state)
    assert read_header(tmp_path / "s").codec == codec


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "uint32", "float16", "float32", "complex64", "bfloat16", "int4", "uint4", "int2"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float4_e2m1fn"),
    ],
)
def test_every_jax_dtype_returns_with_its_bytes(tmp_path, dtype, abstract):
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    value = jnp.asarray(np.array([0, 1, 1, 0, 1]).astype(numpy_dtype).reshape(5, 1))
    assert value.dtype == numpy_dtype
    save_state(tmp_path / "s", [value])
    like = [jax.ShapeDtypeStruct((5, 1), numpy_dtype) if abstract else jnp.zeros((5, 1), numpy_dtype)]
    (found,) = load_state(tmp_path / "s", like)
    assert bits(found) == bits(value)
    assert read_header(tmp_path / "s").leaves[0].dtype == dtype


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12)[::-2],
        np.zeros((0, 3), np.float32),
        np.array(3.5),
        np.array(["ab", "cde"]),
        np.array([b"x", b"yz"]),
        np.array(["2024-01-01", "NaT"], "datetime64[D]"),
        np.array([np.nan, -0.0, np.inf]),
        np.array([1, 2], ml_dtypes.bfloat16),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_numpy_leaves_return_as_writable_numpy(tmp_path, array):
    save_state(tmp_path / "s", {"a": array})
    found = load_state(tmp_path / "s", {"a": np.empty(array.shape, array.dtype)})["a"]
    assert bits(found) == bits(array)
    assert found.flags.writeable


class Pair(NamedTuple):
    left: Any
    right: Any


def test_python_and_numpy_scalars_return_with_their_types(tmp_path):
    tree = {
        "int": 3,
        "big": 7**2000,
        "float": 0.1,
        "nan": float("nan"),
        "minus": -0.0,
        "bool": True,
        "text": "ü\ud800\0",
        "none": None,
        "bytes": bytes(range(256)) * 3,
        "numpy": np.float32(0.1),
        "numpy_bool": np.bool_(True),
        "pair": Pair(np.int8(1), (2, [3.5])),
    }
    like = jax.tree.map(lambda leaf: type(leaf)(1), tree)
    save_state(tmp_path / "s", tree)
    found = load_state(tmp_path / "s", like)
    assert_same(found, tree)
    assert found["none"] is None


def test_a_bare_array_is_a_tree(tmp_path):
    save_state(tmp_path / "s", jnp.arange(3))
    assert load_state(tmp_path / "s", jnp.zeros(3, int)).tolist() == [0, 1, 2]
    with pytest.raises(
        StoreError, match=re.escape("the root: `like` demands int32[4]; the file holds int32[3]")
    ):
        load_state(tmp_path / "s", jnp.zeros(4, int))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (3,), (0,)])
def test_typed_keys_return_and_draw_the_same(tmp_path, impl, shape):
    keys = jr.split(jr.key(3, impl=impl), shape) if shape else jr.key(3, impl=impl)
    save_state(tmp_path / "s", {"key": keys})
    for like in (keys, jax.ShapeDtypeStruct(keys.shape, keys.dtype)):
        found = load_state(tmp_path / "s", {"key": like})["key"]
        assert bits(found) == bits(keys)
        assert found.dtype == keys.dtype
    if not shape:
        assert jr.normal(found) == jr.normal(keys)


def test_weak_types_come_back_strong(tmp_path):
    weak = jnp.asarray(2.0)
    assert weak.weak_type
    save_state(tmp_path / "s", weak)
    found = load_state(tmp_path / "s", weak)
    assert not found.weak_type
    assert found == weak


def test_an_uncommitted_like_gives_an_uncommitted_result(tmp_path, devices):
    free, bound = jnp.arange(3), jax.device_put(jnp.arange(3), devices[-1])
    save_state(tmp_path / "s", [free, bound])
    found = load_state(tmp_path / "s", [free, bound])
    assert [leaf.committed for leaf in found] == [False, True]
    assert found[1].devices() == {devices[-1]}


@pytest.mark.parametrize("bound", [False, True])
def test_loading_causes_no_second_compilation(tmp_path, devices, bound):
    traces = []

    @jax.jit
    def step(state):
        traces.append(1)
        return jax.tree.map(lambda x: x + 1, state)

    sharding = NamedSharding(Mesh(np.array(devices), ("worlds",)), PartitionSpec("worlds"))
    state = {"x": jax.device_put(jnp.arange(8), sharding) if bound else jnp.arange(8)}
    state = step(step(state))
    before = len(traces), step._cache_size()
    save_state(tmp_path / "s", state)
    again = step(load_state(tmp_path / "s", state))
    assert again["x"].tolist() == list(range(3, 11))
    assert (len(traces), step._cache_size()) == before == (1, 1)


def test_loaded_arrays_can_be_donated_and_loaded_again(tmp_path):
    step = jax.jit(lambda x: x * 2, donate_argnums=0)
    save_state(tmp_path / "s", jnp.arange(1024.0))
    like = jnp.zeros(1024)
    for _ in range(2):
        assert step(load_state(tmp_path / "s", like))[3] == 6
    donated = load_state(tmp_path / "s", like)
    step(donated)
    assert donated.is_deleted()
    assert load_state(tmp_path / "s", donated)[3] == 3  # a donated `like` still tells shape and place


def test_sharded_arrays_and_keys_return_on_their_shards(tmp_path, devices):
    mesh = Mesh(np.array(devices), ("worlds",))
    split, whole = NamedSharding(mesh, PartitionSpec("worlds")), NamedSharding(mesh, PartitionSpec())
    tree = {
        "worlds": jax.device_put(jnp.arange(32.0).reshape(16, 2), split),
        "keys": jax.device_put(jr.split(jr.key(0), 16), split),
        "shared": jax.device_put(jnp.arange(5), whole),
    }
    save_state(tmp_path / "s", tree)
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in tree.items()}
    for like in (tree, shapes):
        found = load_state(tmp_path / "s", like)
        assert_same(found, tree)
        assert all(found[name].sharding == tree[name].sharding for name in tree)
    assert len(found["worlds"].addressable_shards) == len(devices)
    on_one = load_state(tmp_path / "s", {**tree, "worlds": jnp.zeros((16, 2))})[
        "worlds"
    ]  # saved split, loaded whole
    assert len(on_one.devices()) == 1
    assert bits(on_one) == bits(tree["worlds"])


# --- state: what is refused ------------------------------------------------------------------------------------------


class Before(eqx.Module):
    a: jax.Array
    b: jax.Array


class After(eqx.Module):
    b: jax.Array
    a: jax.Array


class Renamed(eqx.Module):
    a: jax.Array
    c: jax.Array


def test_swapped_fields_load_by_name(tmp_path):
    save_state(tmp_path / "s", Before(a=jnp.zeros(3), b=jnp.ones(3)))
    found = load_state(tmp_path / "s", After(a=jnp.empty(3), b=jnp.empty(3)))
    assert (found.a.tolist(), found.b.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_renamed_fields_are_refused_with_both_names(tmp_path):
    save_state(tmp_path / "s", Before(a=jnp.zeros(3), b=jnp.ones(3)))
    with pytest.raises(StoreError) as caught:
        load_state(tmp_path / "s", Renamed(a=jnp.empty(3), c=jnp.empty(3)))
    message = str(caught.value)
    assert str(tmp_path / "s") in message
    assert "`.c`: `like` demands float32[3]; the file has no such leaf" in message
    assert "`.b`: the file holds float32[3]; `like` has no such leaf" in message
    assert "Build `like`" in message


@pytest.mark.parametrize(
    ("like", "complaint"),
    [
        (np.zeros(4, np.float32), "demands float32[4]; the file holds float32[3]"),
        (np.zeros((3, 1), np.float32), "demands float32[3,1]; the file holds float32[3]"),
        (np.zeros(3, np.int32), "demands int32[3]; the file holds float32[3]"),
        (np.zeros(3, ">f4"), "demands >f4[3]; the file holds float32[3]"),
        (1.0, "demands Python float; the file holds float32[3]"),
        (None, "demands Python NoneType; the file holds float32[3]"),
        (jr.split(jr.key(0), 3), "demands key<fry>[3]; the file holds float32[3]"),
        ({"y": 1}, "`['x']['y']`: `like` demands Python int; the file has no such leaf"),
    ],
)
def test_other_types_and_shapes_are_refused(tmp_path, like, complaint):
    save_state(tmp_path / "s", {"x": jnp.zeros(3)})
    with pytest.raises(StoreError, match=re.escape(complaint)):
        load_state(tmp_path / "s", {"x": like})


@pytest.mark.parametrize(
    ("saved", "like"), [(1, True), (True, 1), (1, 1.0), (None, 0), ("1", b"1"), (1, np.int64(1))]
)
def test_python_values_do_not_change_type(tmp_path, saved, like):
    save_state(tmp_path / "s", [saved])
    with pytest.raises(StoreError, match=r"`\[0\]`: `like` demands"):
        load_state(tmp_path / "s", [like])


def test_keys_of_another_generator_are_refused(tmp_path):
    save_state(tmp_path / "s", {"key": jr.key(0, impl="rbg")})
    with pytest.raises(StoreError, match=re.escape("demands key<fry>[]; the file holds key<rbg>[]")):
        load_state(tmp_path / "s", {"key": jr.key(0)})
    save_state(tmp_path / "s", {"key": jr.key_data(jr.key(0))})
    with pytest.raises(StoreError, match=re.escape("demands key<fry>[]; the file holds uint32[2]")):
        load_state(tmp_path / "s", {"key": jr.key(0)})


def test_many_differences_are_counted(tmp_path):
    save_state(tmp_path / "s", {})
    with pytest.raises(StoreError, match=r"\.\.\. and 4 more"):
        load_state(tmp_path / "s", list(range(12)))


def test_64_bits_are_never_cut_silently(tmp_path):
    assert not jax.config.jax_enable_x64
    save_state(tmp_path / "s", [np.array([2**40])])
    with pytest.raises(StoreError, match="`jax_enable_x64`"):
        load_state(tmp_path / "s", [jax.ShapeDtypeStruct((1,), np.int64)])
    with jax.enable_x64(True):
        (found,) = load_state(tmp_path / "s", [jax.ShapeDtypeStruct((1,), np.int64)])
    assert (str(found.dtype), found.tolist()) == ("int64", [2**40])


@pytest.mark.parametrize(
    ("leaf", "complaint"),
    [
        (jax.nn.relu, "is of type"),
        (lambda x: x, "is a function"),
        (np.array([object()]), "has dtype object"),
        (np.zeros(2, "f4,i4"), "has no safe form"),
        (np.zeros(2, np.longdouble), "has no safe form"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (deque([1]), "is of type collections.deque"),
        (jax.ShapeDtypeStruct((2,), np.float32), "has no content"),
    ],
)
def test_what_has_no_bytes_is_refused_at_saving(tmp_path, leaf, complaint):
    with pytest.raises(TypeError, match=complaint) as caught:
        save_state(tmp_path / "s", {"a": {"f": leaf}})
    assert "['a']['f']" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_two_leaves_of_one_path_are_refused(tmp_path):
    class Key(str):
        def __repr__(self) -> str:
            return "same"

    with pytest.raises(ValueError, match="share the path"):
        save_state(tmp_path / "s", {Key("a"): 1, Key("b"): 2})


# --- state: what is left out -----------------------------------------------------------------------------------------


def test_the_file_without_the_bank_is_small(tmp_path):
    """Guide 001 as written saved 76,120 B of a 75,608 B state; leaving the field out must really leave it out."""
    state = make_state(bank_rows=84)
    assert state.task_data.grids.nbytes == 75_600
    save_state(tmp_path / "whole", state, codec="raw")
    save_state(tmp_path / "small", state, exclude=[".task_data"], codec="raw")
    assert (tmp_path / "whole").stat().st_size > 75_600
    assert (tmp_path / "small").stat().st_size < 2_000


def masks(state: State) -> list[Any]:
    everything = jax.tree.map(lambda _: False, state)
    full = eqx.tree_at(lambda s: s.task_data.grids, everything, True)
    prefix = State(False, False, False, True, False)  # type: ignore
    return [".task_data", [".task_data"], (".task_data.grids",), lambda path: "task" in path, full, prefix]


@pytest.mark.parametrize("form", range(6))
def test_every_form_of_exclude_leaves_the_same_out(tmp_path, form):
    state = make_state()
    save_state(tmp_path / "s", state, exclude=masks(state)[form])
    left_out = {row.path for row in read_header(tmp_path / "s").leaves if row.left_out}
    assert left_out == {".task_data.grids"}
    assert_same(load_state(tmp_path / "s", state), state)


def test_left_out_data_come_from_like_or_excluded(tmp_path):
    state = make_state()
    save_state(tmp_path / "s", state, exclude=[".task_data"])
    found = load_state(tmp_path / "s", eqx.tree_at(lambda s: s.position, state, jnp.zeros((2, 3))))
    assert found.task_data.grids is state.task_data.grids  # taken over, not copied
    assert_same(found, state)
    shapes = eqx.filter_eval_shape(lambda: state)
    shapes = eqx.tree_at(lambda s: s.label, shapes, "")
    with pytest.raises(
        StoreError, match=r"`.task_data.grids` was left out at saving.*excluded=\{'.task_data.grids'"
    ):
        load_state(tmp_path / "s", shapes)
    for excluded in ({".task_data": state.task_data}, {".task_data.grids": state.task_data.grids}, state):
        assert_same(load_state(tmp_path / "s", shapes, excluded=excluded), state)


def test_other_left_out_data_are_refused(tmp_path):
    state = make_state()
    save_state(tmp_path / "s", state, exclude=[".task_data"])
    other = eqx.tree_at(lambda s: s.task_data.grids, state, state.task_data.grids.at[3, 2, 1].add(1))
    with pytest.raises(StoreError, match=re.escape("saved with other data at `.task_data.grids`")):
        load_state(tmp_path / "s", other)
    with pytest.raises(StoreError, match=re.escape("saved with other data at `.task_data.grids`")):
        load_state(tmp_path / "s", state, excluded=other)
    with pytest.raises(
        StoreError, match=re.escape("`like` demands int8[63,30,30]; the file holds int8[64,30,30]")
    ):
        load_state(tmp_path / "s", eqx.tree_at(lambda s: s.task_data.grids, state, state.task_data.grids[1:]))


@pytest.mark.parametrize("exclude", [["task_data"], [".task"], [".task_data", ".bank"], {"task_data": True}])
def test_an_exclude_that_names_nothing_is_refused(tmp_path, exclude):
    with pytest.raises(ValueError, match="`exclude` must name leaves of the tree"):
        save_state(tmp_path / "s", make_state(), exclude=exclude)


def test_an_exclude_of_another_kind_is_refused(tmp_path):
    with pytest.raises(TypeError, match="`exclude` must be path prefixes"):
        save_state(tmp_path / "s", make_state(), exclude=[1, 2])


# --- headers and hashes ----------------------------------------------------------------------------------------------


def test_the_header_tells_what_the_file_holds(tmp_path):
    meta = {"step": np.int64(1000), "tags": ("a", [1, None]), "loss": float("inf"), 3: b"raw"}
    save_state(tmp_path / "s", make_state(), exclude=[".task_data"], meta=meta, codec="zlib")
    header = read_header(tmp_path / "s")
    assert header.meta == meta
    assert type(header.meta["step"]) is np.int64
    assert (header.version, header.kind, header.codec) == (1, "state", "zlib")
    rows = {row.path: row for row in header.leaves}
    assert list(rows) == [".position", ".velocity", ".key", ".task_data.grids", ".label"]
    assert (rows[".position"].dtype, rows[".position"].shape, rows[".position"].nbytes) == (
        "float32",
        (2, 3),
        24,
    )
    assert rows[".key"].impl == "threefry2x32"
    assert len(rows[".task_data.grids"].left_out) == 64
    text = str(header)
    assert "`.position`: float32[2,3]" in text
    assert "meta step: np.int64(1000)" in text
    assert "`.task_data.grids`: int8[64,30,30]  left out, hash" in text


def test_meta_takes_plain_values_only(tmp_path):
    with pytest.raises(TypeError, match=r"meta\['loss'\] is of type"):
        save_state(tmp_path / "s", {}, meta={"loss": jnp.zeros(2)})


def test_content_hash_sees_values_not_containers():
    tree = {"a": jnp.arange(3, dtype=jnp.int32), "b": jr.key(0), "c": "x"}
    same = {"c": "x", "b": jr.key(0), "a": np.arange(3, dtype=np.int32)}
    assert content_hash(tree) == content_hash(same)
    assert content_hash(Before(jnp.zeros(1), jnp.ones(1))) == content_hash(
        After(a=jnp.zeros(1), b=jnp.ones(1))
    )
    others = [
        {**tree, "a": jnp.arange(3, dtype=jnp.uint32)},
        {**tree, "a": jnp.arange(3, dtype=jnp.int32)[:, None]},
        {**tree, "a": jnp.array([0, 1, 3], jnp.int32)},
        {**tree, "b": jr.key(1)},
        {**tree, "b": jr.key_data(jr.key(0))},
        {**tree, "c": b"x"},
        {**tree, "c": None},
        {"a": tree["a"], "b": tree["b"], "d": "x"},
        {"a": tree["a"], "b": tree["b"]},
    ]
    assert len({content_hash(other) for other in [tree, *others]}) == len(others) + 1


def test_content_hash_stays_the_same_over_versions():
    """Golden value, written by this function on jax 0.10.2, Python 3.11: files of users hold such hashes."""
    tree = {
        "a": np.arange(3, dtype=np.int32),
        "b": (1, 0.5, None, "ü", b"\0"),
        "c": np.array([1.5], ml_dtypes.bfloat16),
    }
    assert content_hash(tree) == "d4484063953996977fe91086baf92682c966052dcef6ad18447ae339408047ae"


# --- compressed storage ----------------------------------------------------------------------------------------------


def same_object(a: Any, b: Any) -> bool:
    if isinstance(b, jax.Array):
        b = np.asarray(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return (
            list(a) == list(b)
            and [*map(type, a)] == [*map(type, b)]
            and all(same_object(a[k], b[k]) for k in a)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_object, a, b))
    return bits(a) == bits(b)


@pytest.mark.parametrize("codec", CODECS)
def test_the_guides_episode_round_trips(tmp_path, codec):
    rng = np.random.default_rng(0)
    data = {
        "episode_grids": [rng.integers(0, 10, (30, 30)) for _ in range(100)],
        "metadata": {"episode_id": "test_001", "total_steps": 100},
    }
    storage = CompressedStorage(tmp_path / "visualization_cache", codec=codec)
    storage.save(data, "episode_001")
    loaded = storage.load("episode_001")
    assert same_object(loaded, data)
    size = (tmp_path / "visualization_cache" / "episode_001.jxw").stat().st_size
    assert size > 720_000 if codec == "raw" else size < 200_000  # 100 grids of 7,200 bytes
    assert all(grid.flags.writeable for grid in loaded["episode_grids"])


def test_plain_values_round_trip_exactly(tmp_path):
    data = {
        "nested": [(), [], {}, ([1], (2,)), {"": {"x": None}}],
        1: "int key",
        "1": "text key",
        -(2**70): 2**70,
        "huge": -(10**5000),
        "floats": [0.1, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")],
        "bools": [True, False, 1, 0],
        "text": ["", "ü", "\U0001f600", "\ud800", "\0", "line\nend"],
        "bytes": [b"", bytes(range(256))],
        "tags": {"blob": 0, "tuple": [1], "numpy": ["int8", "00"]},
        "numpy": [np.float32(0.1), np.int8(-1), np.bool_(True), np.str_("é"), np.datetime64("2024-01-01")],
        "arrays": [
            np.zeros((0, 2)),
            np.array(1),
            jnp.arange(3),
            jnp.zeros(2, jnp.bfloat16),
            np.array(["a", "bc"]),
        ],
    }
    for codec in CODECS:
        storage = CompressedStorage(tmp_path, codec)
        storage.save(data, "plain")
        assert same_object(storage.load("plain"), data)


class Colour(NamedTuple):
    red: int


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (lambda: 1, "obj['metadata']['f'] is a function"),
        (len, "obj['metadata']['f'] is a function"),
        ({1, 2}, "obj['metadata']['f'] is of type builtins.set"),
        ([0, deque()], "obj['metadata']['f'][1] is of type collections.deque"),
        (Colour(1), "obj['metadata']['f'] is of type"),
        ({2.5: 1}, "obj['metadata']['f'] has the key 2.5"),
        ({True: 1}, "obj['metadata']['f'] has the key True"),
        (np.array([None]), "`obj['metadata']['f']` has dtype object"),
        (1j, "obj['metadata']['f'] is of type builtins.complex"),
        (Path("x"), "obj['metadata']['f'] is of type pathlib"),
    ],
)
def test_other_objects_are_a_type_error_with_their_place(tmp_path, value, complaint):
    storage = CompressedStorage(tmp_path)
    with pytest.raises(TypeError, match=re.escape(complaint)):
        storage.save({"metadata": {"f": value}}, "k")
    assert "k" not in storage
    assert os.listdir(tmp_path) == []


def test_typed_keys_and_cycles_are_refused_in_storage(tmp_path):
    storage = CompressedStorage(tmp_path)
    with pytest.raises(TypeError, match=r"obj\[0\] is a typed PRNG key"):
        storage.save([jr.key(0)], "k")
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="contain itself"):
        storage.save(cycle, "k")


def test_storage_lists_contains_and_deletes(tmp_path):
    storage = CompressedStorage(tmp_path / "none yet")
    assert (storage.keys(), len(storage), "a" in storage, bool(storage)) == ([], 0, False, True)
    for key in ("b", "a", "episode 1.5", "größe", "日本"):
        storage.save(key, key)
    (tmp_path / "none yet" / "other.txt").write_text("not ours")
    assert storage.keys() == list(storage) == sorted(["b", "a", "episode 1.5", "größe", "日本"])
    assert len(storage) == 5
    assert "größe" in storage
    assert 3 not in storage
    assert storage.load("日本") == "日本"
    storage.save("new", "b")
    assert storage.load("b") == "new"
    storage.delete("b")
    assert "b" not in storage
    for call in (storage.load, storage.delete):
        with pytest.raises(KeyError, match=r"no object 'b'.*holds 4: a, episode 1\.5"):
            call("b")


BAD_KEYS = [
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..\\x",
    "C:\\x",
    "C:x",
    "\\\\host\\share",
    "a\0b",
]
BAD_KEYS += [
    "a\nb",
    ".hidden",
    "end.",
    "end ",
    " start",
    "con",
    "NUL",
    "Com1.txt",
    "lpt9",
    "aux .x",
    "a*",
    "a?",
    "a|b",
]
BAD_KEYS += ['a"b', "<a>", "x" * 201, "é" * 101, "e\u0301", "\ud800", "file:" + "///x", "a\x7f", "a\x85"]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_keys_never_escape_the_folder(tmp_path, key):
    folder = tmp_path / "inner"
    storage = CompressedStorage(folder)
    for call in (lambda: storage.save(1, key), lambda: storage.load(key), lambda: storage.delete(key)):
        with pytest.raises(ValueError, match="`key` must be a plain file name"):
            call()
    assert key not in storage
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "key", ["x" * 200, "é" * 100, "a.b", "a..b", "console", "com", "com10", "-rf", "~", "%2e%2e", "a=1,b"]
)
def test_unusual_but_safe_keys_work(tmp_path, key):
    storage = CompressedStorage(tmp_path)
    storage.save([key], key)
    assert storage.keys() == [key]
    assert storage.load(key) == [key]
    assert len(os.listdir(tmp_path)) == 1


def test_a_renamed_file_is_refused(tmp_path):
    storage = CompressedStorage(tmp_path)
    storage.save(1, "a")
    os.rename(tmp_path / "a.jxw", tmp_path / "b.jxw")
    with pytest.raises(StoreError, match="must hold the key 'b'; found 'a'"):
        storage.load("b")


def test_state_and_object_files_are_not_mixed_up(tmp_path):
    storage = CompressedStorage(tmp_path)
    storage.save({"x": 1}, "object")
    save_state(tmp_path / "state.jxw", {"x": 1})
    with pytest.raises(StoreError, match="must hold a saved state; found a saved object"):
        load_state(tmp_path / "object.jxw", {"x": 1})
    with pytest.raises(StoreError, match="must hold a saved object; found a saved state"):
        storage.load("state")


# --- codecs ----------------------------------------------------------------------------------------------------------


def test_the_best_codec_is_the_default(tmp_path, monkeypatch):
    assert CompressedStorage(tmp_path).codec == "zstd"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert CompressedStorage(tmp_path).codec == "zlib"
    with pytest.raises(ImportError, match=re.escape("install `jaxworlds[fast]`")):
        CompressedStorage(tmp_path, "zstd")
    with pytest.raises(ValueError, match="`codec` must be one of raw, zlib, zstd"):
        CompressedStorage(tmp_path, "lzma")


def test_a_zstd_file_without_zstandard_says_what_to_install(tmp_path, monkeypatch):
    like = {"x": np.zeros(1000)}
    save_state(tmp_path / "s", like, codec="zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(StoreError, match=re.escape("install `jaxworlds[fast]`")):
        load_state(tmp_path / "s", like)
    save_state(tmp_path / "s", like)  # the fallback still works
    assert_same(load_state(tmp_path / "s", like), like)


@pytest.mark.parametrize("codec", ["zstd", "zlib"])
def test_noise_is_stored_raw_and_regular_data_shrink(tmp_path, codec):
    noise = np.random.default_rng(0).bytes(3 << 20)
    save_state(tmp_path / "noise", [noise], codec=codec)
    assert 0 < (tmp_path / "noise").stat().st_size - len(noise) < 500
    assert load_state(tmp_path / "noise", [b""]) == [noise]
    save_state(tmp_path / "zeros", [np.zeros(1 << 20)], codec=codec)
    assert (tmp_path / "zeros").stat().st_size < 50_000
    assert not load_state(tmp_path / "zeros", [np.ones(1 << 20)])[0].any()


# --- damage ----------------------------------------------------------------------------------------------------------


def corruptions(data: bytes, other: bytes, rng: np.random.Generator):
    """Endless damaged copies of `data`, one kind after the other; `other` is a second valid file."""
    n = len(data)
    while True:
        i, j = sorted(int(x) for x in rng.integers(0, n, 2))
        length = int(rng.integers(1, 64))
        noise = rng.bytes(length)
        k = int(rng.integers(0, max(1, n - 2 * length)))
        yield "flip", data[:i] + bytes([data[i] ^ (1 << int(rng.integers(8)))]) + data[i + 1 :]
        yield "overwrite", data[:i] + noise[: n - i] + data[i + len(noise) :]
        yield "truncate", data[:i]
        yield "insert", data[:i] + noise + data[i:]
        yield "remove", data[:i] + data[j:]
        yield (
            "swap",
            data[:k] + data[k + length : k + 2 * length] + data[k : k + length] + data[k + 2 * length :],
        )
        yield "zero", data[:i] + bytes(j - i) + data[j:]
        yield "append", data + noise
        yield "graft", data[:i] + other[i:j] + data[j:]
        yield "head of other", other[:i] + data[i:]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["state", "object"])
def test_random_corruptions_give_an_error_or_the_right_value(tmp_path, codec, kind):
    """350 for each of three codecs: over 1,000 of state files and over 1,000 of stored objects."""
    rng = np.random.default_rng([CODECS.index(codec), kind == "state"])

    def tree(offset: int) -> dict[str, Any]:
        walk = np.arange(200, dtype=np.int32).reshape(20, 10) // 7 + offset
        return {
            "walk": walk,
            "half": walk[0].astype(ml_dtypes.bfloat16),
            "step": 3 + offset,
            "raw": b"abc" * 50,
        }

    storage = CompressedStorage(tmp_path, codec)
    path = tmp_path / "victim.jxw"

    def save(offset: int) -> bytes:
        if kind == "state":
            save_state(path, tree(offset), meta={"step": offset}, codec=codec)
        else:
            storage.save(tree(offset), "victim")
        return path.read_bytes()

    def load() -> Any:
        return load_state(path, tree(9)) if kind == "state" else storage.load("victim")

    good, other = save(0), save(1)
    wanted = [bits(leaf) for leaf in jax.tree.leaves(tree(0))]
    of_other = [bits(leaf) for leaf in jax.tree.leaves(tree(1))]
    outcomes = {"refused": 0, "right": 0, "unclear": 0}
    damaged_copies = corruptions(good, other, rng)
    for _ in range(350):
        name, damaged = next(damaged_copies)
        path.write_bytes(damaged)
        try:
            found = [bits(leaf) for leaf in jax.tree.leaves(load())]
        except StoreError as error:
            outcomes["refused" if str(path) in str(error) else "unclear"] += 1
        else:
            # A graft may rebuild one of the two files whole; nothing else may load.
            assert damaged in (good, other), name
            assert found == (wanted if damaged == good else of_other), name
            outcomes["right"] += 1
    assert sum(outcomes.values()) == 350
    assert outcomes["unclear"] == 0  # every message names the file
    assert outcomes["refused"] > 300


def test_every_byte_of_a_file_is_guarded(tmp_path):
    path = tmp_path / "s"
    tree = {"x": np.arange(40, dtype=np.int16), "y": 1}
    save_state(path, tree, codec="zlib")
    good = path.read_bytes()
    header_end = good.index(b"}", good.rindex(b'"codec"')) + 1
    for position in range(len(good)):
        path.write_bytes(
            good[:position] + bytes([good[position] ^ (1 << position % 8)]) + good[position + 1 :]
        )
        with pytest.raises(StoreError):
            load_state(path, tree)
        if position < header_end:  # refused before any array is read
            with pytest.raises(StoreError):
                read_header(path)


def test_every_truncation_is_refused_by_the_header_alone(tmp_path):
    path = tmp_path / "s"
    save_state(path, {"x": np.arange(40)})
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(StoreError):
            read_header(path)
    path.write_bytes(good[:-1])
    with pytest.raises(
        StoreError, match=f"must be {len(good)} bytes long; found {len(good) - 1}.*The file is damaged"
    ):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "this is a PNG picture"),
        (b"PK\x03\x04" + bytes(100), "zip or .npz"),
        (b"\x93NUMPY\x01\x00" + bytes(100), "`open_array`"),
        (b"\x80\x04\x95" + bytes(100), "a pickle, which jaxworlds never reads"),
        (b"hello", "the file starts with b'hello'"),
        (_container.MAGIC, "cut off after 8 bytes"),
        (bytes(1000), "must be a file that jaxworlds saved"),
    ],
)
def test_foreign_files_are_named(tmp_path, content, complaint):
    path = tmp_path / "victim.jxw"
    path.write_bytes(content)
    for call in (
        lambda: read_header(path),
        lambda: load_state(path, {}),
        lambda: CompressedStorage(tmp_path).load("victim"),
    ):
        with pytest.raises(StoreError, match=re.escape(complaint)) as caught:
            call()
        assert str(path) in str(caught.value)


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "nothing", {})


def test_another_version_says_so(tmp_path, monkeypatch):
    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(_container, "FORMAT_VERSION", 2)
        save_state(path, {"x": 1})
    with pytest.raises(StoreError, match=r"must have format version 1; found 2\. Update jaxworlds"):
        load_state(path, {"x": 1})


def test_a_blob_of_the_same_size_from_another_place_is_refused(tmp_path):
    path = tmp_path / "s"
    tree = {"a": np.zeros(8), "b": np.ones(8)}
    save_state(path, tree, codec="raw")
    data = path.read_bytes()
    frame = _container._FRAME.size + 64
    swapped = data[: -2 * frame] + data[-frame:] + data[-2 * frame : -frame]
    assert len(swapped) == len(data)
    path.write_bytes(swapped)
    with pytest.raises(StoreError, match="blob 0 does not match its checksum"):
        load_state(path, tree)


def test_blobs_of_two_versions_of_one_file_are_not_mixed(tmp_path):
    """The headers are equal and each blob stands in its place; only the set as a whole is wrong."""
    storage = CompressedStorage(tmp_path, "raw")
    path = tmp_path / "k.jxw"
    versions = []
    for value in (0, 1):
        storage.save([np.full(8, value), np.full(8, value)], "k")
        versions.append(path.read_bytes())
    frame = _container._FRAME.size + 64
    path.write_bytes(versions[0][:-frame] + versions[1][-frame:])
    with pytest.raises(StoreError, match="not the ones the file was saved with"):
        storage.load("k")


def test_bytes_that_no_leaf_owns_are_refused_even_when_the_length_agrees(tmp_path):
    path = tmp_path / "s"
    save_state(path, {"x": np.arange(3)})
    data = path.read_bytes() + b"more"
    prefix = _container._PREFIX
    fields = list(prefix.unpack(data[: prefix.size]))
    fields[3], fields[6] = len(data), bytes(16)
    fields[6] = _container.digest16(prefix.pack(*fields))
    path.write_bytes(prefix.pack(*fields) + data[prefix.size :])
    assert len(read_header(path).leaves) == 1  # so far a sound file
    with pytest.raises(StoreError, match="not the ones the file was saved with"):
        load_state(path, {"x": np.arange(3)})


def test_equal_contents_make_equal_files(tmp_path):
    for name in ("a", "b"):
        save_state(tmp_path / name, make_state(), exclude=[".task_data"], meta={"step": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def forge(path: Path, change) -> None:
    """Rewrite the header of a file with valid checksums, as a careless tool or a later version might."""
    with _container.open_container(path) as reader:
        header = json.loads(json.dumps(reader.header))
        blobs = [reader.next_blob(row["nbytes"]) for row in header["leaves"] if row["kind"] == "array"]
    change(header)
    codec = header.pop("codec", None)
    _container.write_container(path, header, blobs, codec)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("leaves"),
        lambda header: header.pop("kind"),
        lambda header: header.update(leaves=[1]),
        lambda header: header.update(meta={"unknown": 1}),
        lambda header: header.update(byteorder="big"),
        lambda header: header["leaves"].reverse(),
        lambda header: header["leaves"].append(header["leaves"][0]),
        lambda header: header["leaves"].append(
            {"path": "['c']", "kind": "python", "dtype": "int", "value": 4}
        ),
        lambda header: header["leaves"].pop(),
        lambda header: header["leaves"][0].update(dtype="object"),
        lambda header: header["leaves"][0].update(nbytes=1 << 50),
        lambda header: header["leaves"][0].update(shape=[1 << 40]),
        lambda header: header["leaves"][0].update(kind="secret"),
        lambda header: header["leaves"][0].update(surprise=1),
    ],
)
def test_well_formed_but_senseless_headers_are_refused(tmp_path, change):
    path = tmp_path / "s"
    tree = {"a": np.zeros(8, np.float32), "b": np.ones(30, np.float32), "c": 3}
    save_state(path, tree)
    forge(path, lambda header: None)
    assert_same(load_state(path, tree), tree)  # the forging itself is sound
    forge(path, change)
    with pytest.raises(StoreError):
        load_state(path, tree)


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_a_blob_never_unpacks_to_more_than_the_header_says(codec):
    number = _container._CODECS.index(codec)
    bomb = _container._compressor(codec)(bytes(50_000_000))
    for length in (0, 10, 49_999_999, 50_000_001):
        tracemalloc.start()
        with pytest.raises(StoreError, match="must unpack to"):
            _container._unpack("blob 0", number, bomb, length)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * length + 1_000_000
    with pytest.raises(StoreError, match=r"cannot be decompressed|must unpack to"):
        _container._unpack("blob 0", number, b"not compressed", 10)
    with pytest.raises(StoreError, match="unknown codec 77"):
        _container._unpack("blob 0", 77, b"", 0)


# --- memory-mapped arrays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int32).reshape(4, 3),
        np.asfortranarray(np.arange(12.0).reshape(4, 3)),
        np.zeros((0, 3)),
        np.array(2.5),
        np.array(["a", "bc"]),
        np.arange(3, dtype=">u2"),
        np.array([True, False]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_map_back_and_numpy_reads_them(tmp_path, array):
    path = tmp_path / "a.npy"
    save_array(path, array)
    mapped = open_array(path, verify=True)
    assert bits(np.asarray(mapped)) == bits(array)
    assert not mapped.flags.writeable
    np.testing.assert_array_equal(np.load(path), array)
    if array.size:
        assert isinstance(mapped, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            mapped[...] = mapped


def test_jax_arrays_and_files_of_numpy_are_taken(tmp_path):
    save_array(tmp_path / "j.npy", jnp.arange(3))
    assert open_array(tmp_path / "j.npy").tolist() == [0, 1, 2]
    for order in "CF":
        array = np.array(np.arange(6).reshape(2, 3), order=order)
        np.save(tmp_path / "n.npy", array)
        np.testing.assert_array_equal(open_array(tmp_path / "n.npy"), array)
    with pytest.raises(StoreError, match="carries no checksum"):
        open_array(tmp_path / "n.npy", verify=True)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4, object, "f4,i4"]
)
def test_types_that_npy_cannot_hold_are_refused(tmp_path, dtype):
    with pytest.raises(TypeError, match=r"`array` must have a NumPy dtype; got .*save_state"):
        save_array(tmp_path / "a.npy", np.zeros(3, dtype))
    assert os.listdir(tmp_path) == []


def test_rows_are_copies_and_never_alias_the_file(tmp_path):
    path = tmp_path / "a.npy"
    array = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    save_array(path, array)
    rows = read_rows(path, [5, -1, 5])
    np.testing.assert_array_equal(rows, array[[5, -1, 5]])
    assert type(rows) is np.ndarray
    assert rows.flags.writeable
    assert read_rows(path, 3).tolist() == array[3].tolist()
    with pytest.raises(IndexError):
        read_rows(path, [1000])
    on_device = device_rows(open_array(path), slice(0, 512))
    with open(path, "r+b") as file:  # overwritten in place, as a careless program would
        file.seek(128)
        file.write(bytes(4000 * 4))
    np.testing.assert_array_equal(on_device, array[:512])
    assert not read_rows(path, slice(0, 512)).any()


def test_damaged_and_foreign_arrays_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    np.save(tmp_path / "object.npy", np.array([None]), allow_pickle=True)
    np.save(tmp_path / "record.npy", np.zeros(2, "f4,i4"))
    foreign = [b"", b"\x89PNG\r\n\x1a\n" + bytes(50), b"\x93NUMPY\x09\x00" + bytes(50)]
    foreign += [(tmp_path / name).read_bytes() for name in ("a.npz", "object.npy", "record.npy")]
    save_state(tmp_path / "s", {})
    for content in [*foreign, (tmp_path / "s").read_bytes()]:
        path.write_bytes(content)
        with pytest.raises(StoreError, match=re.escape(str(path))):
            open_array(path)


def test_a_thousand_corruptions_of_an_array_are_refused_when_verified(tmp_path):
    rng = np.random.default_rng(2)
    path = tmp_path / "a.npy"
    array = np.arange(60, dtype=np.float32).reshape(4, 15)
    save_array(path, array + 1)
    other = path.read_bytes()
    save_array(path, array)
    good = path.read_bytes()
    refused = 0
    damaged_copies = corruptions(good, other, rng)
    for _ in range(1000):
        name, damaged = next(damaged_copies)
        path.write_bytes(damaged)
        try:
            found = bits(np.array(open_array(path, verify=True)))
        except StoreError:
            refused += 1
        else:
            assert damaged in (good, other), name
            assert found == bits(array if damaged == good else array + 1)
    assert refused > 850


def test_a_changed_header_of_equal_size_is_always_refused(tmp_path):
    path = tmp_path / "a.npy"
    save_array(path, np.zeros((4, 15), np.float32))
    good = path.read_bytes()
    for old, new in [(b"<f4", b"<i4"), (b"<f4", b">f4"), (b"(4, 15)", b"(15, 4)"), (b"False", b"True ")]:
        assert old in good
        path.write_bytes(good.replace(old, new))
        with pytest.raises(StoreError, match="the header does not match its checksum"):
            open_array(path)


# --- files of earlier versions of a class ---


class EarlierVersion(eqx.Module):
    place: jax.Array
    gone: jax.Array | None
    held: jax.Array


class LaterVersion(eqx.Module):
    """`EarlierVersion` with a field renamed, one that was None gone, an optional one and a demanded one new."""

    SAVED_NAMES: ClassVar[dict[str, str]] = {"position": "place"}

    position: jax.Array
    held: jax.Array
    label: jax.Array | None
    share: jax.Array


def test_a_file_of_an_earlier_version_of_a_class_loads(tmp_path: Path) -> None:
    path = tmp_path / "state.jxw"
    save_state(path, [EarlierVersion(jnp.arange(3), None, jnp.ones(2))])
    like = [LaterVersion(jnp.zeros(3, jnp.int32), jnp.zeros(2), None, jnp.zeros(1))]
    with pytest.raises(
        StoreError, match=r"`\[0\].share`: `like` demands float32\[1\]; the file has no such leaf"
    ):
        load_state(path, like)
    (now,) = load_state(path, like, added={"[0].share": jnp.full(1, 7.0), "[0].label": jnp.ones(1)})
    assert now.position.tolist() == [0, 1, 2]
    assert (now.share.tolist(), now.label) == ([7.0], None)
    save_state(path, [now])
    assert ".place" in str(read_header(path))
    (again,) = load_state(path, like, added={"[0].share": jnp.zeros(1)})
    assert again.share.tolist() == [7.0]  # what the file holds comes first
    assert content_hash([EarlierVersion(jnp.arange(3), None, jnp.ones(2)).place]) == content_hash(
        [now.position]
    )

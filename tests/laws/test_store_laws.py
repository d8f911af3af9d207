"""Laws of the store: loading undoes saving, and the content hash changes with every part of the content."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxworlds.store import (
    CompressedStorage,
    StoreError,
    content_hash,
    load_state,
    open_array,
    save_array,
    save_state,
)

EXTENDED = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]
PLAIN = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    ">i4",
    "<U3",
    "<M8[s]",
]
CODEC = st.sampled_from(["zstd", "zlib", "raw"])
FAST = settings(max_examples=40, deadline=None)


def from_bits(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """An array of random bits where every pattern is a value, and of random values elsewhere."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if kind.name in ("bool", "int4", "uint4") or kind.kind == "U":
        return rng.integers(0, 2, size).astype(kind).reshape(shape)
    return np.frombuffer(rng.bytes(size * kind.itemsize), kind).reshape(shape).copy()


SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)
NUMPY = st.builds(from_bits, st.sampled_from(PLAIN + EXTENDED), SHAPES, SEEDS)
JAX = st.builds(from_bits, st.sampled_from(["bool", "int32", "float32", *EXTENDED]), SHAPES, SEEDS).map(
    jnp.asarray
)
KEYS = st.builds(
    lambda seed, impl: jax.random.key(seed, impl=impl), SEEDS, st.sampled_from(["threefry2x32", "rbg"])
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=80)
)
NAMES = st.text(max_size=4)


def nest(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3) | st.tuples(inner, inner)
        ),
        max_leaves=6,
    )


TREES = nest(NUMPY | JAX | KEYS | SCALARS)
OBJECTS = nest(NUMPY | SCALARS | st.dictionaries(st.integers() | NAMES, SCALARS, max_size=3))


def bits(leaf: Any) -> Any:
    """A leaf in a form where == means bit-identical, of the same type, dtype and shape."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return ("key", str(jax.random.key_impl(leaf)), bits(jax.random.key_data(leaf)))
    if isinstance(leaf, jax.Array | np.ndarray):
        return (isinstance(leaf, jax.Array), str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes())
    if isinstance(leaf, float):
        return ("float", np.float64(leaf).tobytes())
    return (type(leaf).__name__, leaf)


def exact(value: Any) -> Any:
    """A nested object in a form where == means the same types, orders and bits throughout."""
    if isinstance(value, dict):
        return ("dict", [(type(key), key, exact(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [exact(item) for item in value])
    return bits(value)


def blank(leaf: Any) -> Any:
    """Another leaf of the same type and shape."""
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return np.zeros_like(leaf) if isinstance(leaf, np.ndarray) else type(leaf)()


def in_folder(use: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return use(Path(folder))


@FAST
@given(tree=TREES, codec=CODEC)
def test_loading_undoes_saving(tree, codec):
    def round_trip(folder: Path) -> Any:
        save_state(folder / "s", tree, codec=codec)
        return load_state(folder / "s", jax.tree.map(blank, tree))

    found = in_folder(round_trip)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert [*map(bits, jax.tree.leaves(found))] == [*map(bits, jax.tree.leaves(tree))]
    assert content_hash(found) == content_hash(tree)


@FAST
@given(obj=OBJECTS, codec=CODEC)
def test_storage_returns_what_it_was_given(obj, codec):
    def round_trip(folder: Path) -> Any:
        storage = CompressedStorage(folder, codec)
        storage.save(obj, "k")
        return storage.load("k")

    assert exact(in_folder(round_trip)) == exact(obj)


@FAST
@given(array=st.builds(from_bits, st.sampled_from(PLAIN), SHAPES, SEEDS))
def test_a_mapped_array_is_the_saved_one(array):
    def round_trip(folder: Path) -> Any:
        save_array(folder / "a.npy", array)
        return bits(np.array(open_array(folder / "a.npy", verify=True)))

    assert in_folder(round_trip) == bits(array)


@FAST
@given(one=TREES, other=TREES)
def test_a_file_loads_into_its_own_paths_only(one, other):
    def paths(tree: Any) -> set[str]:
        pairs = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is None)[0]
        return {jax.tree_util.keystr(path) for path, _ in pairs}

    def attempt(folder: Path) -> bool:
        save_state(folder / "s", one)
        try:
            found = load_state(folder / "s", jax.tree.map(blank, other))
        except StoreError:
            return False
        assert content_hash(found) == content_hash(one)
        return True

    if in_folder(attempt):
        assert paths(one) == paths(other)


@FAST
@given(data=st.data(), array=NUMPY.filter(lambda array: array.nbytes > 0), path=NAMES)
def test_the_hash_changes_with_any_byte_dtype_shape_or_path(data, array, path):
    if array.dtype.kind == "U" or array.dtype.name in ("bool", "int4", "uint4"):
        array = array.reshape(-1).view(np.uint8)  # not every bit pattern is a value there
    whole = content_hash({path: array})
    place = data.draw(st.integers(0, array.nbytes - 1))
    changed = array.copy()
    changed.reshape(-1).view(np.uint8)[place] ^= np.uint8(1 << data.draw(st.integers(0, 7)))
    others = [
        {path: changed},
        {path + "'": array},
        {path: array[None]},
        {path: {path: array}},
        {path: [array]},
        {path: array.tobytes()},
        {path: array, path + "2": None},
        {path: np.frombuffer(array.tobytes(), np.uint8)}
        if array.dtype != np.uint8
        else {path: array.view(np.int8)},
    ]
    assert len({whole, *map(content_hash, others)}) == len(others) + 1
    assert content_hash({path: array.copy(order="F")}) == whole


@FAST
@given(data=st.data(), codec=CODEC)
def test_any_changed_byte_is_refused(data, codec):
    tree = {"x": np.arange(50), "text": "abc", "raw": bytes(100)}

    def damage(folder: Path) -> None:
        save_state(folder / "s", tree, codec=codec)
        content = bytearray((folder / "s").read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        (folder / "s").write_bytes(content)
        with pytest.raises(StoreError):
            load_state(folder / "s", tree)

    in_folder(damage)

"""Meshes, buckets and the chunked map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxworlds.batching import (
    BucketedBatches,
    assert_on_device,
    chunked_map,
    on_each_device,
    plan_batch_size,
    shard_worlds,
    spread_over,
    spreading_mesh,
    world_mesh,
    world_shardings,
)
from jaxworlds.compile_events import CompileEvents

pytestmark = pytest.mark.devices

# --- meshes ---


def test_a_mesh_over_all_some_or_given_devices(devices):
    assert world_mesh().devices.tolist() == devices
    assert world_mesh(axis="envs").axis_names == ("envs",)
    assert world_mesh(1).devices.tolist() == devices[:1]
    assert world_mesh(devices[::-1]).devices.tolist() == devices[::-1]
    assert world_mesh().axis_types == (jax.sharding.AxisType.Auto,)


@pytest.mark.parametrize("count", [0, 99, []])
def test_a_mesh_needs_devices_that_exist(count):
    with pytest.raises(ValueError, match="`devices` must"):
        world_mesh(count)


def test_worlds_are_split_and_shared_parts_whole(devices):
    tree = {
        "keys": jax.random.split(jax.random.key(0), 16),
        "host": np.arange(32.0, dtype=np.float32).reshape(16, 2),
        "shared": {"bank": jnp.arange(7), "name": "bank", "fn": jnp.sin},
        "nothing": None,
    }
    axes = {"keys": 0, "host": 0, "shared": None, "nothing": 0}
    mesh = world_mesh()
    placed = shard_worlds(tree, mesh, axes)
    split = NamedSharding(mesh, PartitionSpec("worlds"))
    assert placed["host"].sharding.is_equivalent_to(split, 2)
    assert placed["keys"].sharding.is_equivalent_to(split, 1)
    assert len(placed["host"].addressable_shards) == len(devices)
    assert placed["host"].addressable_shards[0].data.shape == (16 // len(devices), 2)
    assert placed["shared"]["bank"].sharding.is_fully_replicated
    assert placed["shared"]["name"] == "bank"
    assert placed["shared"]["fn"] is jnp.sin
    np.testing.assert_array_equal(placed["host"], tree["host"])
    np.testing.assert_array_equal(jax.random.key_data(placed["keys"]), jax.random.key_data(tree["keys"]))
    shardings = world_shardings(tree, mesh, axes)
    assert jax.tree.structure(shardings) == jax.tree.structure(tree)
    assert world_shardings(jax.ShapeDtypeStruct((8,), jnp.int8), mesh).spec == PartitionSpec(("worlds",))


def test_numpy_arrays_are_copied_onto_the_mesh():
    # 64-byte aligned memory is what jax would share instead of copying.
    raw = np.zeros(4096 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    host = raw[start : start + 4096].view(np.float32)
    placed = shard_worlds(host, world_mesh(1))
    host[:] = 9
    assert float(placed.sum()) == 0.0


def test_a_batch_that_does_not_divide_names_the_leaf_and_the_remedy(devices):
    mesh = world_mesh()
    if len(devices) == 1:
        assert shard_worlds(jnp.zeros(13), mesh).shape == (13,)
        return
    with pytest.raises(
        ValueError, match=r"`tree\['x'\]\[1\]` holds 12 worlds, which 8 devices .* to 16, or .*\(6\)"
    ):
        shard_worlds({"x": [jnp.zeros(16), jnp.zeros(12)]}, mesh)


def test_a_leaf_without_a_leading_axis_names_itself():
    with pytest.raises(ValueError, match=r"`tree\['rate'\]` has no leading axis"):
        shard_worlds({"rate": 0.5}, world_mesh())
    assert shard_worlds({"rate": 0.5}, world_mesh(), {"rate": None}) == {"rate": 0.5}


def test_each_device_works_with_its_own_worlds(devices):
    worlds, settings = jnp.arange(16)[::-1], {"offset": jnp.int32(100), "name": "static"}

    def sort(worlds, settings):
        assert settings["name"] == "static"
        found = {"sorted": jnp.sort(worlds) + settings["offset"], "own": jnp.full(1, worlds.shape[0])}
        mesh = spreading_mesh()
        return found, worlds.sum() if mesh is None else jax.lax.psum(worlds.sum(), mesh.axis_names)

    @jax.jit
    def call(worlds):
        return on_each_device(sort, (0, None), (0, None))(worlds, settings)

    assert on_each_device(sort, 0, 0) is sort
    whole, total = call(worlds)
    assert whole["own"].tolist() == [16]
    assert whole["sorted"].tolist() == list(range(100, 116))
    with spread_over(world_mesh()):
        parts, sum_of_parts = call(worlds)
    each = 16 // len(devices)
    assert parts["own"].tolist() == [each] * len(devices)
    assert parts["sorted"].tolist() == [
        100 + each * k + place for k in reversed(range(len(devices))) for place in range(each)
    ]
    assert int(sum_of_parts) == int(total) == 120
    assert spreading_mesh() is None


def test_axes_are_zero_or_none():
    with pytest.raises(ValueError, match=r"`axes` must hold 0 .split. or None .shared.; got 1"):
        shard_worlds(jnp.zeros((8, 8)), world_mesh(), 1)


# --- buckets ---


def rows(n, width=3):
    return np.arange(n * width, dtype=np.float32).reshape(n, width)


def test_buckets_give_the_direct_result_for_every_size_with_few_programs():
    direct = jax.vmap(lambda x, k: {"y": jnp.sqrt(x) * k, "n": x.astype(int).sum()}, in_axes=(0, None))
    buckets = BucketedBatches(direct, sizes=(16, 4), axes=(0, None))
    with CompileEvents() as events:
        results = {n: buckets(rows(n), np.float32(2)) for n in (1, 3, 4, 5, 15, 16, 17, 33, 40)}
    assert buckets.traces == events.compiles == 2
    for n, result in results.items():
        expected = direct(rows(n), np.float32(2))
        np.testing.assert_array_equal(result["y"], expected["y"])
        np.testing.assert_array_equal(result["n"], expected["n"])
        assert isinstance(result["y"], np.ndarray)


def test_padding_repeats_valid_rows():
    seen = []

    def fn(x):
        jax.debug.callback(lambda value: seen.append(np.asarray(value)), x)
        return x

    BucketedBatches(fn, sizes=(4,))(rows(2))
    jax.effects_barrier()
    np.testing.assert_array_equal(seen[0], rows(2)[[0, 1, 1, 1]])


def test_an_empty_batch_gives_empty_results():
    result = BucketedBatches(lambda x: {"sum": x.sum(1), "x": x}, sizes=(4,))(rows(0))
    assert result["sum"].shape == (0,)
    assert result["x"].shape == (0, 3)


def test_keys_and_jax_arrays_go_through_buckets():
    keys = jax.random.split(jax.random.key(3), 5)
    buckets = BucketedBatches(jax.vmap(lambda key, x: (jax.random.fold_in(key, 1), x + 1)), sizes=(2,))
    new_keys, x = buckets(keys, jnp.arange(5))
    expected = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    np.testing.assert_array_equal(jax.random.key_data(new_keys), jax.random.key_data(expected))
    np.testing.assert_array_equal(x, np.arange(5) + 1)
    assert buckets.traces == 1


def test_buckets_spread_over_a_mesh(devices):
    mesh = world_mesh()
    seen = []

    def fn(x, bank):
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        return x + bank.sum()

    buckets = BucketedBatches(fn, sizes=(8, 16), axes=(0, None), mesh=mesh)
    np.testing.assert_array_equal(buckets(rows(11), np.ones(3, np.float32)), rows(11) + 3)
    assert [len(sharding.device_set) for sharding in seen] == [len(devices)]
    if len(devices) > 1:
        with pytest.raises(ValueError, match="`sizes` must be multiples of the 8 devices"):
            BucketedBatches(fn, sizes=(12,), mesh=mesh)


def test_wrong_use_of_buckets_is_named():
    buckets = BucketedBatches(lambda x, y: x.mean(0) + y.mean(0), sizes=(4,))
    with pytest.raises(ValueError, match=r"one row per row of its batch \(4\); got the shape \(3,\)"):
        buckets(rows(2), rows(2))
    with pytest.raises(ValueError, match=r"all equally many; `tree\[0\]` has 2, `tree\[1\]` has 3"):
        buckets(rows(2), rows(3))
    with pytest.raises(ValueError, match=r"`tree\[1\]` has no rows"):
        buckets(rows(2), 1.0)
    with pytest.raises(ValueError, match="`sizes` must hold sizes of at least 1"):
        BucketedBatches(lambda x: x, sizes=())


def test_buckets_from_a_plan_stay_within_it():
    plan = plan_batch_size(
        lambda x: x * 2,
        lambda n: (jax.ShapeDtypeStruct((n, 1000), jnp.float32),),
        limit=2 * 10**8,
        measure=False,
    )
    buckets = BucketedBatches.from_plan(lambda x: x * 2, plan)
    assert buckets.sizes == (plan.batch_size // 16, plan.batch_size // 4, plan.batch_size)


# --- chunked map ---


def one(x):
    return {"y": jnp.cos(x["a"]).sum(), "b": x["b"] * 2}


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["host", "device"])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 21])
def test_chunked_map_is_vmap(convert, n):
    xs = {"a": convert(rows(n)), "b": convert(np.arange(n, dtype=np.int32))}
    result = chunked_map(one, xs, batch_size=8)
    expected = jax.vmap(one)(xs) if n else {"y": np.zeros(0), "b": np.zeros(0, np.int32)}
    np.testing.assert_allclose(result["y"], expected["y"], rtol=1e-6)
    np.testing.assert_array_equal(result["b"], expected["b"])
    assert isinstance(result["y"], np.ndarray if convert is np.asarray else jax.Array)
    assert result["b"].dtype == np.int32


def test_chunked_map_inside_jit():
    result = jax.jit(lambda x: chunked_map(lambda v: v**2, x, batch_size=4))(jnp.arange(10.0))
    np.testing.assert_array_equal(result, np.arange(10.0) ** 2)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["host", "device"])
def test_chunked_map_compiles_once(convert):
    traces = []

    def counted(x):
        traces.append(1)
        return x + 1

    xs = convert(rows(21))
    chunked_map(counted, xs, batch_size=8)
    first = len(traces)
    with CompileEvents() as events:
        chunked_map(counted, xs, batch_size=8)
        if convert is np.asarray:  # any length goes through the same program
            chunked_map(counted, rows(5), batch_size=8)
            chunked_map(counted, rows(50), batch_size=8)
    assert len(traces) == first
    assert events.compiles == 0
    assert first == 1 or convert is jnp.asarray


def test_chunked_map_of_a_memory_mapped_file_holds_only_pieces(tmp_path):
    np.save(tmp_path / "x.npy", rows(4096, 256))
    xs = np.load(tmp_path / "x.npy", mmap_mode="r")
    most = []

    @jax.custom_batching.custom_vmap
    def watched(x):
        return x.sum()

    @watched.def_vmap
    def watch_batch(size, _batched, x):
        jax.debug.callback(lambda _: most.append(sum(a.nbytes for a in jax.live_arrays())), x[0, 0])
        return x.sum(1), True

    before = sum(a.nbytes for a in jax.live_arrays())
    result = chunked_map(watched, xs, batch_size=1024)
    jax.effects_barrier()
    np.testing.assert_allclose(result, rows(4096, 256).sum(1), rtol=1e-5)
    assert len(most) == 4
    assert max(most) - before < 2.5 * 1024 * 256 * 4  # of 4 pieces


def test_chunked_map_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="`batch_size` must be at least 1; got 0"):
        chunked_map(one, rows(3), batch_size=0)
    with pytest.raises(ValueError, match="one common leading length"):
        chunked_map(one, {"a": rows(3), "b": rows(4)}, batch_size=2)
    with pytest.raises(TypeError, match="key_data"):
        chunked_map(lambda x: jax.random.key(0), rows(3), batch_size=2)


def test_assert_on_device_names_what_is_elsewhere():
    assert_on_device({"a": jnp.ones(3), "name": "text"}, "cpu")
    with pytest.raises(ValueError, match=r"'b'.*NumPy array.*device_put"):
        assert_on_device({"a": jnp.ones(3), "b": np.ones(3)})
    with pytest.raises(ValueError, match=r"'a'.*must be on 'gpu'; it is on \['cpu'\]"):
        assert_on_device({"a": jnp.ones(3)}, "gpu")

"""Prediction, limits, live report and narrowing."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxworlds import runtime
from jaxworlds.memory import (
    MemoryUnknownError,
    device_memory_limit,
    host_memory_free,
    live_bytes,
    live_report,
    optimize_array_memory,
    predict_memory,
    process_memory,
    tree_bytes,
)
from jaxworlds.runtime import _settings

GRIDS = jax.ShapeDtypeStruct((64, 30, 30), jnp.int32)
GRID_BYTES = 64 * 30 * 30 * 4


def add_one(x):
    return x + 1


# --- tree_bytes ---


def test_tree_bytes_counts_arrays_exactly_and_shared_ones_once():
    array = np.zeros((10, 10))
    assert tree_bytes({"a": array, "b": [array, jnp.zeros(8, jnp.int8)]}) == 800 + 8


def test_tree_bytes_sees_arrays_hidden_in_plain_objects_and_unsortable_dicts():
    assert tree_bytes(SimpleNamespace(hidden=np.zeros(1000, np.int8))) == 1000
    assert tree_bytes({1: np.zeros(5, np.int8), "a": np.zeros(6, np.int8)}) == 11


def test_tree_bytes_of_modules_keys_shapes_and_text():
    linear = eqx.nn.Linear(3, 4, key=jax.random.key(0))
    assert tree_bytes(linear.weight) == 48
    assert tree_bytes(eqx.filter(linear, eqx.is_array)) == 48 + 16
    assert tree_bytes(jax.random.split(jax.random.key(0), 4)) == 4 * 8
    assert tree_bytes(GRIDS) == GRID_BYTES
    assert tree_bytes("x" * 10_000) >= 10_000
    cycle: list = [np.zeros(7, np.int8)]
    cycle.append(cycle)
    assert tree_bytes(cycle) == 7


# --- prediction ---


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, eqx.filter_jit], ids=["plain", "jit", "filter_jit"])
@pytest.mark.parametrize("argument", [GRIDS, np.zeros(GRIDS.shape, np.int32)], ids=["shape", "array"])
def test_prediction_of_every_kind_of_function(wrap, argument):
    found = predict_memory(wrap(add_one), argument)
    assert found.arguments == GRID_BYTES
    assert found.outputs in (GRID_BYTES, GRID_BYTES + 4)  # filter_jit may add a 4-byte marker
    assert found.peak == found.arguments + found.outputs + found.temporaries - found.aliased


def test_prediction_of_compiled_programs():
    array = jnp.zeros(GRIDS.shape, jnp.int32)
    plain = jax.jit(add_one).lower(array).compile()
    hidden = eqx.filter_jit(add_one).lower(array).compile()
    assert predict_memory(plain).peak == 2 * GRID_BYTES
    assert str(predict_memory(add_one, jnp.ones(3))).startswith(
        "peak 24 B per device (arguments 12 B + outputs 12 B"
    )
    assert predict_memory(hidden).arguments == GRID_BYTES


@pytest.mark.parametrize(
    "wrap", [lambda f: jax.jit(f, donate_argnums=0), eqx.filter_jit(donate="all")], ids=["jit", "filter_jit"]
)
def test_donation_is_seen_as_aliased(wrap):
    found = predict_memory(wrap(add_one), GRIDS)
    assert found.aliased == GRID_BYTES
    assert found.peak <= GRID_BYTES + 64


def test_prediction_counts_temporaries_and_the_weights_of_a_module():
    found = predict_memory(
        jax.jit(lambda x: jnp.sort(x) @ jnp.sort(x).T), jax.ShapeDtypeStruct((256, 256), jnp.float32)
    )
    assert found.temporaries >= 256 * 256 * 4
    assert found.peak == 2 * 256 * 256 * 4 + found.temporaries + found.scratch
    linear = eqx.nn.Linear(100, 100, use_bias=False, key=jax.random.key(0))
    assert predict_memory(linear, jax.ShapeDtypeStruct((100,), jnp.float32)).arguments == 100 * 100 * 4 + 400


def test_prediction_of_static_keyword_and_method_arguments():
    class World:
        @eqx.filter_jit
        def grow(self, x, times):
            return jnp.tile(x, times)

    static = jax.jit(lambda x, n: jnp.tile(x, n), static_argnames="n")
    shape = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert predict_memory(static, shape, n=3).outputs == 12_000
    assert predict_memory(lambda x, n: jnp.tile(x, n), shape, n=3).outputs == 12_000
    assert predict_memory(World().grow, shape, 3).outputs in (12_000, 12_004)


def test_prediction_from_shapes_allocates_nothing():
    before = live_report().nbytes
    huge = jax.ShapeDtypeStruct((10**6, 1000, 1000), jnp.float32)
    assert predict_memory(add_one, huge).peak == 2 * 4 * 10**12
    assert live_report().nbytes == before


def test_prediction_is_per_device(devices):
    sharding = NamedSharding(Mesh(np.array(devices), ("worlds",)), PartitionSpec("worlds"))
    shape = jax.ShapeDtypeStruct(GRIDS.shape, GRIDS.dtype, sharding=sharding)
    assert predict_memory(jax.jit(add_one), shape).peak == 2 * GRID_BYTES // len(devices)
    assert predict_memory(add_one, shape).peak == 2 * GRID_BYTES // len(devices)


def test_an_all_zero_analysis_is_unknown_not_zero():
    class OldBackend:
        in_avals = (jax.ShapeDtypeStruct((3,), jnp.float32),)
        out_info = jax.ShapeDtypeStruct((3,), jnp.float32)

        def memory_analysis(self):
            return SimpleNamespace(argument_size_in_bytes=0, temp_size_in_bytes=0)

    with pytest.raises(MemoryUnknownError, match="no memory analysis"):
        predict_memory(OldBackend())
    assert predict_memory(lambda: jnp.zeros((0,))).peak == 0  # truly nothing


def test_prediction_of_something_else_is_refused():
    with pytest.raises(TypeError, match="`fn` must be a function or a compiled program; got int"):
        predict_memory(3)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="scratch that only XLA's CPU runtime hides")
@pytest.mark.parametrize(
    ("fn", "argument", "scratch"),
    [  # bytes as measured with jax 0.10.2 in a process of their own
        (jnp.sort, jax.ShapeDtypeStruct((12_500_000,), jnp.float32), 200e6),
        (jnp.argsort, jax.ShapeDtypeStruct((12_500_000,), jnp.float32), 400e6),
        (jnp.sort, jax.ShapeDtypeStruct((12_500_000,), jnp.int32), 25e6),
        (lambda x: jax.lax.top_k(x + 1, 10), jax.ShapeDtypeStruct((25_000_000,), jnp.float32), 99.7e6),
        (lambda x: jax.lax.top_k(x, 10), jax.ShapeDtypeStruct((8, 3_000_000), jnp.float32), 11.8e6),
    ],
)
def test_scratch_that_the_analysis_leaves_out(fn, argument, scratch):
    assert predict_memory(fn, argument).scratch == pytest.approx(scratch, rel=0.03)


def test_a_program_without_such_operations_has_no_scratch():
    assert (
        predict_memory(lambda x: jnp.cumsum(x @ x.T), jax.ShapeDtypeStruct((64, 64), jnp.float32)).scratch
        == 0
    )


MEASURE = """
    import jax, jax.numpy as jnp
    jax.config.update("jax_platforms", "cpu")
    from jaxworlds.memory import predict_memory, process_memory

    def step(grid, _):
        grid = (grid * 3 + jnp.roll(grid, 1, axis=-1)) % 10
        return grid, grid

    programs = {
        "stack": (lambda g: jax.lax.scan(step, g, None, length=64), ((1000, 30, 30), jnp.int32)),
        "grad": (
            jax.grad(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, length=30)[0].sum()),
            ((800_000,), jnp.float32),
        ),
    }
    fn, (shape, dtype) = programs[PROGRAM]
    compiled = jax.jit(fn).lower(jax.ShapeDtypeStruct(shape, dtype)).compile()
    predicted = predict_memory(compiled)
    warm = jax.jit(lambda x: x + 1)(jnp.zeros(3)).block_until_ready()
    base = process_memory()[0]
    x = jnp.full(shape, 1, dtype).block_until_ready()
    jax.block_until_ready(compiled(x))
    print(predicted.peak, process_memory()[1] - base)
"""


@pytest.mark.own_process
@pytest.mark.parametrize("program", ["stack", "grad"])
def test_prediction_is_what_the_process_really_takes(program):
    code = textwrap.dedent(MEASURE).replace("PROGRAM", repr(program))
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    predicted, measured = map(int, out.split())
    assert predicted > 150e6
    assert abs(predicted - measured) / measured < 0.05, (predicted, measured)


# --- limits ---


def test_device_limit_is_what_the_host_has_shared_by_its_devices(devices):
    limit = device_memory_limit()
    assert 0.5 * host_memory_free() < limit * len(devices) < 2 * host_memory_free() + 2e9
    assert device_memory_limit(devices[-1]) == pytest.approx(limit, rel=0.2)


def test_device_limit_honours_the_configured_one(monkeypatch):
    monkeypatch.setattr(_settings, "_settings", runtime.Settings(memory_limit_gb=0.001))
    assert device_memory_limit() == 2**30 // 1000


def host(folder, groups, **files):
    """A fake /proc and /sys/fs/cgroup with 16 GB available."""
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal: 32000000 kB\nMemAvailable: 16000000 kB\n")
    (folder / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = folder / "groups" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host_memory_free(folder, folder / "groups")


def test_host_memory_is_what_is_available_without_groups(tmp_path):
    assert host(tmp_path, "0::/\n") == 16_000_000 * 1024


def test_host_memory_of_control_group_v2_takes_the_tightest_parent(tmp_path):
    found = host(
        tmp_path,
        "0::/a/b\n",
        a__memory_dot_max="3000000000\n",
        a__memory_dot_current="1000000000\n",
        a__memory_dot_stat="anon 5\ninactive_file 400000000\n",
        a__b__memory_dot_max="max\n",
    )
    assert found == 3_000_000_000 - (1_000_000_000 - 400_000_000)


def test_host_memory_of_control_group_v1_inside_a_container(tmp_path):
    found = host(
        tmp_path,
        "4:cpu,memory:/docker/123\n2:pids:/\n",
        memory__memory_dot_limit_in_bytes="2000000000\n",
        memory__memory_dot_usage_in_bytes="500000000\n",
    )
    assert found == 1_500_000_000
    unlimited = tmp_path / "more"
    assert (
        host(unlimited, "4:memory:/\n", memory__memory_dot_limit_in_bytes="9223372036854771712")
        == 16_384_000_000
    )


# --- live report ---


def test_live_report_counts_exactly_what_was_made(devices):
    before = live_report()
    kept = [jnp.zeros((123, 7), jnp.int16) for _ in range(3)]
    sharding = NamedSharding(Mesh(np.array(devices), ("worlds",)), PartitionSpec("worlds"))
    kept.append(jax.device_put(jnp.zeros((16, 5), jnp.float32), sharding))
    after = live_report(top=10**6)
    assert after.count - before.count == 4
    assert after.nbytes - before.nbytes == 3 * 123 * 7 * 2 + 16 * 5 * 4
    assert sum(after.by_device.values()) == after.nbytes == sum(live_bytes().values())
    assert ((123, 7), "int16", 3, 3 * 123 * 7 * 2) in after.largest
    assert set(after.device_stats) == {str(device) for device in devices}
    assert "live arrays" in str(after)
    assert "resident" in str(after)
    del kept
    assert live_report().nbytes == before.nbytes


def test_live_report_counts_a_replicated_array_on_every_device(devices):
    before = live_report()
    everywhere = NamedSharding(Mesh(np.array(devices), ("worlds",)), PartitionSpec())
    kept = jax.device_put(np.zeros(1000, np.float32), everywhere)
    after = live_report()
    assert after.nbytes - before.nbytes == 4000 * len(devices)
    assert {after.by_device[str(d)] - before.by_device.get(str(d), 0) for d in devices} == {4000}
    assert not kept.is_deleted()


def test_live_report_counts_a_shared_buffer_once():
    first = jnp.arange(1000)
    before = live_report()
    second = jax.device_put(first, jax.devices()[0])
    assert second is not first
    assert live_report().nbytes == before.nbytes


def test_process_memory_grows_with_the_process():
    now, peak = process_memory()
    assert 10e6 < now <= peak
    # Larger than anything that the allocator keeps for itself, so that its pages are new.
    block = np.ones(200_000_000, np.uint8)
    assert process_memory()[0] > now + 100e6
    assert block[0] == 1


# --- narrowing ---


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2, 3, 4, 5], np.int64, np.int8),
        ([1000, 2000, 3000], np.int64, np.int16),
        ([-129], np.int32, np.int16),
        ([-128, 127], np.int64, np.int8),
        ([2**31 - 1], np.int64, np.int32),
        ([2**31], np.int64, np.int64),
        ([200], np.int64, np.int16),
        ([200], np.uint64, np.uint8),
        ([256], np.uint16, np.uint16),
        ([2**64 - 1], np.uint64, np.uint64),
        ([1.1, 2.2, 3.3], np.float64, np.float32),
        ([1.0, np.inf, -np.inf, 0.0, -0.0], np.float64, np.float32),
        ([1e39], np.float64, np.float64),
        ([1.0, 1e-300], np.float64, np.float64),
        ([1.1 + 2j], np.complex128, np.complex64),
        ([1j * 1e300], np.complex128, np.complex128),
        ([True], np.bool_, np.bool_),
        ([1.5], np.float16, np.float16),
        ([], np.int64, np.int64),
        ([], np.float64, np.float64),
    ],
)
def test_narrowing(values, dtype, expected):
    array = np.array(values, dtype)
    narrow = optimize_array_memory(array)
    assert isinstance(narrow, np.ndarray)
    assert narrow.dtype == expected
    np.testing.assert_allclose(narrow, array, rtol=1e-6)


def test_lossless_narrowing_only_where_every_value_survives():
    assert optimize_array_memory(np.array([1.1]), lossless=True).dtype == np.float64
    exact = np.array([0.5, -3.0, np.nan, np.inf])
    narrow = optimize_array_memory(exact, lossless=True)
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, exact)
    assert optimize_array_memory(np.array([3]), lossless=True).dtype == np.int8


def test_jax_arrays_stay_jax_arrays_where_they_are(devices):
    sharding = NamedSharding(Mesh(np.array(devices), ("worlds",)), PartitionSpec("worlds"))
    array = jax.device_put(jnp.arange(16, dtype=jnp.int32), sharding)
    narrow = optimize_array_memory(array)
    assert isinstance(narrow, jax.Array)
    assert narrow.dtype == jnp.int8
    assert narrow.sharding.is_equivalent_to(sharding, 1)
    np.testing.assert_array_equal(narrow, np.arange(16))
    keys = jax.random.split(jax.random.key(0), 2)
    assert optimize_array_memory(keys) is keys


def test_narrowing_needs_values():
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(optimize_array_memory)(jnp.arange(3))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the scratch is that of the CPU's sort")
@pytest.mark.parametrize(
    ("program", "dtype", "scratch"),
    [
        (jnp.sort, jnp.float32, 16 * 5000),
        (jnp.argsort, jnp.float32, 2 * 16 * 5000),
        (jnp.sort, jnp.int32, 2 * 5000),
        (lambda x: jax.lax.sort((x, x + 1, x * 2), num_keys=1), jnp.float32, 3 * 16 * 5000),
        (lambda x: x + 1, jnp.float32, 0),
    ],
)
def test_sorting_takes_scratch_that_the_analysis_leaves_out(program, dtype, scratch):
    """The measured rule: 16 bytes per element and operand of the sorted row, half a row for plain integers."""
    assert predict_memory(program, jax.ShapeDtypeStruct((5000,), dtype)).scratch == scratch
    rows = predict_memory(lambda x: jnp.sort(x, axis=1), jax.ShapeDtypeStruct((8, 500), jnp.float32))
    assert rows.scratch == 16 * 500
    assert rows.peak == rows.arguments + rows.outputs + rows.temporaries - rows.aliased + rows.scratch

"""`measure`, `compare`, `break_even`, `environment`, and the benchmarks' harness."""

import functools
import gc
import importlib.util
import json
import math
import re
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds.compile_events import CompileEvents
from jaxworlds.compiling import no_recompile
from jaxworlds.measuring import (
    Comparison,
    Measurement,
    _environment,
    break_even,
    compare,
    copy_arrays,
    environment,
    format_bytes,
    format_seconds,
    measure,
)
from jaxworlds.measuring._timing import Sampler

quick = functools.partial(measure, repeats=4, min_seconds=0)


def sleeps(seconds):
    """A traceable function whose host callback sleeps."""

    def fn(x):
        jax.debug.callback(lambda _: time.sleep(seconds), x)
        return x + 1

    return fn


@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit, eqx.filter_jit], ids=["plain", "jit", "filter_jit"])
def test_stages_are_apart_and_the_function_is_traced_once(wrap):
    traces = []

    def fn(x):
        traces.append(1)
        time.sleep(0.03)  # in the trace, and nowhere else
        return jnp.sin(x) @ x

    result = quick(wrap(fn), jnp.ones((8, 8)))
    assert len(traces) == 1
    assert result.trace_s >= 0.03
    assert result.lower_s > 0
    assert result.compile_s > 0
    assert result.best_s < 0.03
    assert (result.compiles, result.steady_compiles) == (1, 0)
    assert result.name == "fn"
    assert len(result.times) == len(result.cpu_times) == 4


class Pending:
    """A result that takes a while to be ready, as an array of an asynchronous device does."""

    def block_until_ready(self):
        time.sleep(0.03)
        return self


def test_it_waits_for_the_result():
    assert quick(Pending, compiled=False).best_s >= 0.03
    assert quick(lambda: {"a": [Pending(), 1, None]}, compiled=False).best_s >= 0.03
    assert min(compare({"pending": Pending}, rounds=2)["pending"].times) >= 0.03


def test_callbacks_belong_to_the_call():
    result = quick(sleeps(0.05), jnp.ones(3))
    assert result.best_s >= 0.05
    assert result.calls_per_sample == 1


def test_median_spread_best_and_rate():
    result = Measurement("f", (4.0, 1.0, 2.0, 3.0, 10.0), (1.0, 1.0, 5.0), 1, 0, 0, items=6)
    assert (result.median_s, result.iqr_s, result.best_s, result.cpu_s) == (3.0, 2.0, 1.0, 1.0)
    assert result.rate == 2.0
    assert Measurement("f", (1.0,), (1.0,), 1, 0, 0).rate is None


def test_peak_is_argument_output_temporary_less_alias():
    x = jnp.ones(1000)
    assert quick(lambda x: x + 1, x).peak_bytes == 8000
    assert quick(jax.jit(lambda x: x + 1, donate_argnums=0), x).peak_bytes == 4000


def test_program_bytes_do_not_depend_on_where_the_source_lies():
    source = "def fn(x):\n    return x * 2 + 1\n"
    sizes = set()
    for file in ("/a.py", "/a/much/longer/path/to/the/same.py"):
        space = {}
        exec(compile(source, file, "exec"), space)
        sizes.add(quick(space["fn"], jnp.ones(3)).program_bytes)
    assert len(sizes) == 1
    unrolled = quick(lambda x: functools.reduce(lambda y, _: jnp.sin(y), range(50), x), jnp.ones(3))
    assert unrolled.program_bytes > 3 * sizes.pop()


def test_a_plain_function_is_fresh_each_time_and_a_jitted_one_says_that_it_was_compiled():
    def fn(x):
        return x + 1

    for _ in range(2):
        assert quick(fn, jnp.ones(5)).compile_origin in ("fresh", "disk")
    jitted = jax.jit(fn)
    quick(jitted, jnp.ones(5))
    again = quick(jitted, jnp.ones(5))
    assert again.compile_origin == "memory"
    assert again.compiles == 0
    assert "already compiled" in str(again)


def test_the_disk_cache_is_named(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    try:
        origins = [quick(lambda x: jnp.cos(x) * 3, jnp.ones(7)).compile_origin for _ in range(2)]
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()
    assert origins == ["fresh", "disk"]


@pytest.mark.parametrize("copies", [jax.jit(lambda c, x: (c + x, x), donate_argnums=0)], ids=["jit"])
def test_donated_arguments_stay_valid(copies):
    carry, x = jnp.zeros(4), jnp.ones(4)
    result = quick(copies, carry, x)
    assert result.calls_per_sample == 1  # one copy per call, outside the timed stretch
    np.testing.assert_array_equal(carry, np.zeros(4))
    np.testing.assert_array_equal(x, np.ones(4))


def test_donation_inside_equinox_and_inside_plain_callables():
    x, key = jnp.ones(4), jax.random.key(0)
    quick(eqx.filter_jit(lambda c: c * 2, donate="all"), x)
    inner = jax.jit(lambda c, key: (c * 2, jax.random.split(key, ())), donate_argnums=(0, 1))
    quick(lambda c, key: inner(c, key), x, key, compiled=False)
    assert not x.is_deleted()
    assert not key.is_deleted()


def test_only_what_was_donated_is_copied_again():
    seen = []
    inner = jax.jit(lambda c, bank: c + bank.sum(), donate_argnums=0)

    def fn(c, bank):
        seen.append((c, bank))
        return inner(c, bank)

    c, bank = jnp.ones(4), jnp.ones(100)
    sampler = Sampler(fn, (c, bank))
    seen.clear()
    sampler()
    assert sampler.donated == (0,)
    assert seen[0][0] is not c
    assert seen[0][1] is bank


def test_static_arguments_and_python_numbers():
    result = quick(lambda x, mode, scale: x * scale if mode == "up" else x, jnp.ones(3), "up", 2.0)
    assert result.compile_origin != "none"


def test_uncompiled_callables_have_times_only():
    result = quick(lambda: time.sleep(0.002), compiled=False)
    assert result.best_s >= 0.002
    assert (result.trace_s, result.compile_s, result.peak_bytes) == (None, None, None)
    assert "once" not in str(result)
    assert "peak_bytes" not in result.figures()


def test_fast_functions_get_many_calls_per_sample():
    calls = []
    result = measure(lambda: calls.append(1), compiled=False, repeats=2, min_seconds=0)
    assert result.calls_per_sample > 20
    assert len(calls) >= 2 * result.calls_per_sample
    assert result.best_s < 1e-3


def test_sampling_limits():
    assert len(measure(lambda: time.sleep(0.002), compiled=False, repeats=1, min_seconds=0.05).times) > 1
    capped = measure(lambda: time.sleep(0.02), compiled=False, repeats=1000, min_seconds=0, max_seconds=0)
    assert len(capped.times) == 3
    with pytest.raises(ValueError, match="`repeats` must be at least 1; got 0"):
        measure(lambda: None, repeats=0)


def test_recompiling_in_the_steady_state_is_seen():
    def fn(x):
        return jax.jit(lambda x: x + 1)(x)  # a new function, so a new program, every call

    result = quick(fn, jnp.ones(3), compiled=False)
    assert result.steady_compiles >= 4
    assert "WARNING" in str(result)


def test_garbage_collection_is_off_while_timing_and_back_on_after():
    states = []
    quick(lambda: states.append(gc.isenabled()), compiled=False)
    assert set(states) == {False}
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        quick(lambda: 1 / 0, compiled=False)
    assert gc.isenabled()


def test_sharded_arguments(devices):
    mesh = jax.make_mesh((len(devices),), ("worlds",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("worlds"))
    x = jax.device_put(jnp.ones((8, 100)), sharding)
    result = quick(jax.jit(lambda x: x + 1, donate_argnums=0), x)
    assert result.peak_bytes == 8 * 100 * 4 // len(devices)  # of one device
    assert (result.compiles, result.steady_compiles) == (1, 0)
    assert x.sharding == sharding
    assert not x.is_deleted()


def test_text_of_a_measurement():
    text = str(quick(jax.jit(lambda x: x + 1), jnp.ones(1000), items=1000))
    for part in ("trace", "lower", "compile", "median", "IQR", "peak 8.00 kB", "items/s"):
        assert part in text


def test_compile_events_belong_to_their_block():
    with CompileEvents() as events:
        jax.jit(lambda x: x * 3 - 1)(np.ones(3, np.float32))
    assert events.compiles == 1
    assert min(events.trace_s, events.lower_s, events.compile_s) > 0
    assert events.seconds == events.trace_s + events.lower_s + events.compile_s
    jax.jit(lambda x: x * 3 - 2)(np.ones(3, np.float32))
    assert events.compiles == 1


def test_compile_events_of_other_threads_count_only_on_request():
    def compile_elsewhere():
        thread = threading.Thread(target=lambda: jax.jit(lambda x: x * 3 - 3)(np.ones(3, np.float32)))
        thread.start()
        thread.join()

    with CompileEvents() as own, CompileEvents(every_thread=True) as every:
        compile_elsewhere()
    assert (own.compiles, own.seconds) == (0, 0.0)
    assert every.compiles == 1
    assert every.seconds > 0


def test_compare_interleaves_in_a_fixed_shuffled_order():
    ran = []
    names = ["a", "b", "c"]
    thunks = {name: functools.partial(_slow, ran, name) for name in names}
    result = compare(thunks, rounds=8, seed=3)
    timed = ran[-8 * 3 :]  # before that: warm-up
    rounds = [tuple(timed[i : i + 3]) for i in range(0, 24, 3)]
    assert rounds == list(result.order)
    assert all(sorted(turn) == names for turn in rounds)
    assert len(set(rounds)) > 1
    assert compare(thunks, rounds=8, seed=3).order == result.order
    assert compare(thunks, rounds=8, seed=4).order != result.order


def _slow(ran, name):
    ran.append(name)
    time.sleep(0.0011)


def test_compare_ratio_interval_and_table():
    result = compare({"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}, rounds=5)
    assert isinstance(result, Comparison)
    short, long = result["short"], result["long"]
    assert (short.ratio, short.ratio_low, short.ratio_high) == (1.0, 1.0, 1.0)
    assert not short.differs
    assert long.ratio_low <= long.ratio <= long.ratio_high
    assert np.isclose(long.ratio, np.median(np.array(long.times) / np.array(short.times)))
    assert long.median_s >= 0.02
    assert long.cpu_s < long.median_s  # sleeping is no CPU time
    for part in ("short", "long", "time ÷ short", "5 interleaved rounds"):
        assert part in str(result)
    assert set(result.figures()) == {"short", "long"}
    json.dumps(result.figures())
    with pytest.raises(KeyError, match="no alternative 'middle'"):
        result["middle"]


def test_compare_shares_arguments_and_keeps_donated_ones():
    x = jnp.ones(4)
    result = compare(
        {"donating": jax.jit(lambda c: c + 1, donate_argnums=0), "eager": lambda c: c + 1}, x, rounds=3
    )
    assert result["donating"].calls_per_sample == 1
    np.testing.assert_array_equal(x, np.ones(4))


def test_compare_waits_for_results():
    result = compare(
        {"sleeps": jax.jit(sleeps(0.03)), "does not": jax.jit(lambda x: x + 1)}, jnp.ones(3), rounds=3
    )
    assert min(result["sleeps"].times) >= 0.03


def test_compare_refuses_nothing():
    with pytest.raises(ValueError, match="`alternatives` must name at least one"):
        compare({})
    with pytest.raises(ValueError, match="`rounds` must be at least 1; got 0"):
        compare({"a": lambda: None}, rounds=0)


def test_break_even():
    assert break_even(52.6, 4.99, 2.22) == 19  # ledger acbo §0.5
    assert break_even(1.0, 0.5, 0.25) == 4
    assert break_even(1.0, 0.5, 0.5) == math.inf
    assert break_even(1.0, 0.5, 0.6) == math.inf
    assert break_even(0.0, 0.5, 0.1) == 0


def test_environment(devices):
    found = environment()
    assert found["backend"] == "cpu"
    assert found["device_count"] == len(devices)
    assert found["jax"] == jax.__version__
    assert found["cores"] >= 1
    assert re.fullmatch(r"[0-9a-f]{12}", found["host"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["date"])
    assert found["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found["commit"])
    json.dumps(found, allow_nan=False)


def test_commit_is_that_of_our_checkout_only(monkeypatch, tmp_path):
    # A package inside a repository that is not its own checkout: here this test's folder, in ours.
    monkeypatch.setattr(_environment, "__file__", __file__)
    assert _environment.commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert _environment._git(Path.cwd(), "rev-parse", "HEAD") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1234.0, "1234 s"),
        (1.5, "1.50 s"),
        (0.99996, "1000 ms"),
        (1.2e-5, "12.0 µs"),
        (3e-9, "3 ns"),
        (None, "-"),
    ],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 B"), (2_400_000, "2.40 MB"), (3e9, "3.00 GB"), (None, "-")]
)
def test_format_bytes(size, text):
    assert format_bytes(size) == text


@pytest.fixture
def harness() -> ModuleType:
    path = Path(__file__).resolve().parents[4] / "benchmarks" / "harness.py"
    spec = importlib.util.spec_from_file_location("harness", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module
    spec.loader.exec_module(module)
    return module


def test_harness_writes_one_file_per_device_and_benchmark(harness, tmp_path, capsys):
    options = harness.parse("A test.", ["--out", str(tmp_path)])
    report = harness.Report("core", options)
    report.add(
        "rollout", {"scan": {"median_s": 0.001, "steps": 10}, "driver": {"median_s": np.float32(0.002)}}
    )
    report.add("compile", {"compiles": 1}, note="one program")
    path = report.finish()
    assert path == tmp_path / "cpu" / "core.json"
    written = json.loads(path.read_text())
    assert written["results"]["rollout"]["figures"]["scan"] == {"median_s": 0.001, "steps": 10}
    assert written["results"]["compile"] == {"figures": {"compiles": 1}, "note": "one program"}
    assert written["environment"]["jax"] == jax.__version__
    printed = capsys.readouterr().out
    assert "1.00 ms" in printed
    assert "one program" in printed
    with pytest.raises(ValueError, match="'rollout' was added before"):
        report.add("rollout", {})
    with pytest.raises(ValueError, match="`name` must be a plain file name"):
        harness.Report("../core", options)


def test_harness_keeps_partial_results_away_from_full_ones(harness, tmp_path):
    options = harness.parse("A test.", ["--quick", "--only", "Taps on", "--out", str(tmp_path)])
    assert options.wants("the taps on every step")
    assert not options.wants("rollout")
    assert harness.Report("core", options).path.name == "core-only-taps-on-quick.json"
    assert harness.device_folder("NVIDIA H200") == "nvidia-h200"


def test_copies_need_no_other_program() -> None:
    step = jax.jit(lambda state, key: (state * 2, key))
    free, bound = jnp.arange(3.0), jax.device_put(jnp.arange(3.0), jax.devices()[0])
    key = jax.random.key(0)
    step(free, key), step(bound, key)
    for state in (free, bound):
        again, same_key = copy_arrays((state, key))
        with no_recompile():
            result, _ = step(again, same_key)
        np.testing.assert_array_equal(result, [0.0, 2.0, 4.0])
        assert again.unsafe_buffer_pointer() != state.unsafe_buffer_pointer()

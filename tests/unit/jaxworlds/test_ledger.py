"""The core's ledger, row by row: each promise of the guides, its structure and at least one value.

`CORE` and `JAXARC` name the test of every row of `ledger/core.md` section 1 and `ledger/jaxarc.md` section 1a, in the
order of the ledger; a phrase identifies the row. A row that needs a system names the issue that brings it; what jaxarc's
environment adds to a row is in `jaxarc/test_ledger.py`.
"""

import gc
import importlib.util
import json
import re
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import acbo
import jaxarc.performance
import jaxtrace
import jaxtrace.utils
import jaxworlds
from jaxarc.envs.adapter import config_from_yaml, config_to_dict
from jaxarc.utils.visualization import (
    CompressedStorage,
    GarbageCollectionOptimizer,
    LazyLoader,
    MemoryManager,
    VisualizationCache,
    adaptive_visualization_callback,
    create_lazy_visualization_loader,
    get_callback_performance_stats,
    get_memory_manager,
    jax_log_episode_summary,
    jax_log_grid,
    log_grid_to_console,
    optimize_array_memory,
    print_callback_performance_report,
    reset_callback_performance_stats,
)
from jaxworlds.batching import BucketedBatches, chunked_map, plan_batch_size, shard_worlds, world_mesh
from jaxworlds.checking import CheckError, check, checking_on, clear_errors
from jaxworlds.compiling import (
    CompileWatch,
    FallbackError,
    FallbackWarning,
    RecompileError,
    compile_ahead,
    fallback,
    fallback_counts,
    no_recompile,
    reset_fallback_counts,
    warm_up,
)
from jaxworlds.measuring import Baseline, PerformanceMonitor, break_even, measure, profile
from jaxworlds.memory import find_leaks, live_report, predict_memory, track_operation_memory
from jaxworlds.rollout import run
from jaxworlds.runtime import RuntimeConflictError
from jaxworlds.static import aval_differences, config, freeze, strong, thaw
from jaxworlds.store import device_rows, load_state, open_array, save_array, save_state
from jaxworlds.taps import flush_taps, register_sink, tap, tap_stats, taps_off, unregister_sink

LEDGER = Path(__file__).resolve().parents[4] / "shared" / "ledger"
GRID = np.array([[1, 2], [3, 4]], np.int32)

# (section, phrase in the row, test, or the issue that brings the row)
CORE: list[tuple[str, str, str]] = [
    ("1a", "jax_log_grid", "test_grids_and_episodes_are_logged_from_compiled_code"),
    ("1a", "Safe Error Handling", "test_a_failing_callback_does_not_break_the_run"),
    ("1a", "get_callback_performance_stats", "test_callback_statistics"),
    ("1a", "adaptive_visualization_callback", "test_adaptive_callbacks_throttle_themselves"),
    ("1a", "Array serialization", "test_callbacks_receive_plain_arrays"),
    ("1a", "async_logging", "test_a_queue_keeps_a_slow_sink_from_stalling_the_program"),
    ("1a", "JAXErrorHandler.validate_action", "test_checks_in_compiled_code"),  # and `jaxarc/test_ledger.py`
    ("1a", "same", "test_checkify_changes_the_result_and_check_does_not"),
    ("1a", "JAX_DEBUG_NANS", "test_jaxs_own_debugging_flags"),
    ("1b", "equinox.filter_jit", "test_python_numbers_retrace_filter_jit_and_not_the_driver"),
    ("1b", "prepare_static_args", "test_static_arguments"),  # debug_jit_compilation: `jaxarc/test_ledger.py`
    ("1b", "create_adaptive_train_step", "test_the_fallback_is_loud"),  # the train steps themselves: issue 5
    ("1b", "tracker._compiled_step", "test_compiling_ahead_is_the_proof"),
    ("1b", "profile_jit_compilation", "test_compile_and_run_are_measured_apart"),
    ("1b", "warm_up_functions", "test_warm_up_needs_no_data"),
    ("1b", "recompile detection", "test_a_retrace_is_explained"),
    ("1b", "test_performance_regression", "test_regressions_are_judged_on_deterministic_figures"),
    ("1b", "profile_with_jax_profiler", "test_profiling_and_monitoring"),
    ("1c", "MemoryManager", "test_the_memory_manager"),
    ("1c", "LazyLoader", "test_lazy_loading"),
    ("1c", "Visualization Cache", "test_the_visualization_cache"),
    ("1c", "CompressedStorage", "test_compressed_storage"),
    ("1c", "optimize_array_memory", "test_smaller_arrays"),
    ("1c", "GC optimisation", "test_garbage_collection"),
    ("1c", "monitor_memory_usage", "test_memory_tools_see_device_arrays"),  # and `jaxarc/test_ledger.py`
    ("1c", "detect_memory_leaks", "test_leaks_are_found"),
    ("1c", "find_optimal_batch_size", "test_the_batch_size_is_planned"),
    ("1c", "DynamicBatchProcessor", "test_batches_of_any_size_compile_rarely"),
    ("1c", "hierarchical_batch_processing", "test_batches_of_batches"),
    ("1c", "StateMemoryPool", "test_donation_instead_of_a_pool"),
    ("1c", "MemoryMappedTaskLoader", "test_memory_mapped_data"),  # and `jaxarc/test_ledger.py`
    ("1c", "zarr", "test_data_larger_than_a_batch_needs_no_extra_package"),
    ("1c", "save_state_efficiently", "test_states_without_their_task"),
    ("1c", "jt.configure", "test_configure"),
    ("1c", "device checks", "test_placed_data_stays_where_it_is"),
    ("1c", "metrics conversion", "test_metrics_come_to_the_host_in_one_transfer"),
    ("1c", "TrainingBatchJAX", "test_batches_are_pytrees"),  # the class itself: issue 5
    ("1c", "jax.pmap", "test_sharding_instead_of_pmap"),
    ("1c", "jax.experimental.mixed_precision", "test_precision_is_explicit"),
    ("1c", "Hydra YAML", "test_the_guides_yaml_file_changes_the_configuration"),
    ("1c", "progress", "test_progress_is_reported_between_chunks"),
]
JAXARC: list[tuple[str, str]] = [
    ("jax_log_grid(", "test_grids_and_episodes_are_logged_from_compiled_code"),
    ("jax_log_episode_summary(", "test_grids_and_episodes_are_logged_from_compiled_code"),
    ("adaptive_visualization_callback(", "test_adaptive_callbacks_throttle_themselves"),
    ("get_callback_performance_stats(", "test_callback_statistics"),
    ("print_callback_performance_report(", "test_callback_statistics"),
    ("reset_callback_performance_stats(", "test_callback_statistics"),
    ("log_grid_to_console(", "test_the_console_twin_prints_the_same"),
    ("MemoryManager(", "test_the_memory_manager"),
    (".register_lazy_loader(", "test_the_memory_manager"),
    (".get_memory_report(", "test_the_memory_manager"),
    (".cleanup_memory(", "test_the_memory_manager"),
    ("get_memory_manager(", "test_the_manager_of_the_process"),
    ("LazyLoader(", "test_lazy_loading"),
    ("create_lazy_visualization_loader(", "test_lazy_files_are_dropped_when_idle"),
    ("CompressedStorage(", "test_compressed_storage"),
    ("optimize_array_memory(", "test_smaller_arrays"),
    ("Visualization cache", "test_the_visualization_cache"),
    ("GC tuning", "test_garbage_collection"),
    ("jax.debug.callback", "test_every_callback_is_isolated_converted_and_counted"),
    ("troubleshooting", "test_troubleshooting_is_answered"),
    ("Hydra file", "test_the_guides_yaml_file_changes_the_configuration"),
]


def test_every_row_has_a_test_that_exists() -> None:
    named = [test for _, _, test in CORE] + [test for _, test in JAXARC]
    for test in named:
        assert re.fullmatch(r"issue \d", test) or callable(globals().get(test)), test
    here = {name for name in globals() if name.startswith("test_")}
    assert here - set(named) == {
        "test_every_row_has_a_test_that_exists",
        "test_the_tables_name_every_row_of_the_ledger",
    }


@pytest.mark.skipif(not LEDGER.is_dir(), reason="the ledger is not here (../shared/ledger)")
def test_the_tables_name_every_row_of_the_ledger() -> None:
    core = (LEDGER / "core.md").read_text(encoding="utf-8")
    rows = []
    for section in ("1a", "1b", "1c"):
        part = core.split(f"### {section}.")[1].split("\n\n")[0]
        cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| ")]
        rows += [(section, cell) for cell in cells[1:]]  # without the heading
    assert len(rows) == len(CORE)
    for (section, cell), (expected, phrase, _) in zip(rows, CORE, strict=True):
        assert (section, phrase in cell) == (expected, True), f"{phrase!r} is not in {cell!r}"

    listed = (LEDGER / "jaxarc.md").read_text(encoding="utf-8").split("### 1a.")[1].split("### 1b.")[0]
    items = [line for line in listed.splitlines() if line.startswith("- [ ]")]
    assert len(items) == len(JAXARC)
    for item, (phrase, _) in zip(items, JAXARC, strict=True):
        assert phrase in item


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    reset_callback_performance_stats()
    yield
    flush_taps(5.0)
    reset_callback_performance_stats()


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    flush_taps(5.0)
    return capsys.readouterr().out.splitlines()


# --- 1a: callbacks, logging, error checks ---


def test_grids_and_episodes_are_logged_from_compiled_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert jax_log_grid(GRID) is None
    assert printed(capsys) == ["Grid 2×2", " 1 2", " 3 4"]  # no mask means all cells, not "no valid data"

    @jax.jit
    def log(grid: Any, episode: Any) -> Any:
        jax_log_grid(grid, grid > 1, "Positional")
        jax_log_episode_summary(episode, 10, 2.5, 0.75, True)
        return grid

    np.testing.assert_array_equal(log(GRID, 4), GRID)
    lines = printed(capsys)  # two callbacks of one program may come in either order
    episode = lines.index("Episode 4: 10 steps, reward 2.500, similarity 0.750, success")
    assert lines[:episode] + lines[episode + 1 :] == ["Positional 2×2", " . 2", " 3 4"]

    jax.vmap(log)(jnp.stack([GRID] * 64), jnp.arange(64))
    flush_taps(5.0)
    stats = tap_stats()
    assert (stats["jax_log_grid"].calls, stats["jax_log_grid"].items) == (3, 66)  # 64 grids: one call more
    assert (stats["jax_log_episode_summary"].calls, stats["jax_log_episode_summary"].items) == (2, 65)


def test_the_console_twin_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert log_grid_to_console(GRID, title="Twin") is None
    outside = printed(capsys)
    jax.jit(lambda grid: jax_log_grid(grid, title="Twin"))(GRID)
    assert printed(capsys) == outside == ["Twin 2×2", " 1 2", " 3 4"]


def test_a_failing_callback_does_not_break_the_run() -> None:
    def broken(value: Any) -> None:
        raise RuntimeError("no display")

    def ten_steps(x: Any) -> Any:
        def body(x: Any, t: Any) -> tuple[Any, None]:
            tap("broken", x, broken, step=t)
            return x + 1, None

        return jax.lax.scan(body, x, jnp.arange(10))[0]

    assert int(jax.jit(ten_steps)(jnp.int32(0))) == 10
    flush_taps(5.0)
    stats = tap_stats()["broken"]
    assert (stats.calls, stats.errors, stats.skipped, stats.cut_off) == (10, 3, 7, True)
    assert stats.last_error == "RuntimeError: no display"


def test_callback_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    jax.jit(lambda grid: jax_log_grid(grid))(GRID)
    flush_taps(5.0)
    stats = get_callback_performance_stats()["jax_log_grid"]
    assert set(stats) >= {
        "total_calls",
        "error_count",
        "avg_time_ms",
        "max_time_ms",
        "min_time_ms",
        "total_time_ms",
    }
    assert (stats["total_calls"], stats["error_count"]) == (1, 0)
    assert 0 < stats["min_time_ms"] <= stats["avg_time_ms"] <= stats["max_time_ms"] <= stats["total_time_ms"]
    assert stats["stall_ms_per_call"] > 0  # what a call costs the program even when the sink takes no time
    capsys.readouterr()
    print_callback_performance_report()
    assert "jax_log_grid" in capsys.readouterr().out
    reset_callback_performance_stats()
    assert get_callback_performance_stats() == {}


def test_adaptive_callbacks_throttle_themselves() -> None:
    runs = []

    def slow(value: Any) -> None:
        runs.append(int(value))
        time.sleep(0.02)

    @jax.jit
    def step(x: Any) -> Any:
        adaptive_visualization_callback(slow, x, callback_name="ledger_slow", max_avg_time_ms=5.0)
        return x + 1

    x = jnp.int32(0)
    for _ in range(20):
        x = step(x)
    flush_taps(5.0)
    stats = get_callback_performance_stats()["ledger_slow"]
    assert (int(x), stats["total_calls"], stats["skipped"]) == (20, 20, 20 - len(runs))
    assert runs[0] == 0
    assert (
        len(runs) <= 5
    )  # 20 ms against 5 ms; deciding at trace time, as the guide's code did, gives 20 or 0


def test_callbacks_receive_plain_arrays() -> None:
    seen: list[Any] = []
    jax.jit(lambda x: tap("plain", {"x": x, "label": "a"}, seen.append))(jnp.arange(3))
    flush_taps(5.0)
    (value,) = seen
    assert type(value["x"]) is np.ndarray
    assert (value["x"].tolist(), value["label"]) == ([0, 1, 2], "a")


def test_a_queue_keeps_a_slow_sink_from_stalling_the_program() -> None:
    seen: list[int] = []

    def slow(value: Any) -> None:
        time.sleep(0.05)
        seen.append(int(value))

    register_sink("ledger_queue", slow, queue=2)
    try:
        program = jax.jit(
            lambda: jax.lax.scan(lambda c, t: (c, tap("ledger_queue", t)), 0, jnp.arange(20))[0]
        )
        jax.block_until_ready(program())
        flush_taps(30.0)
        stats = tap_stats()["ledger_queue"]
    finally:
        unregister_sink("ledger_queue")
    assert stats.calls == 20 == len(seen) + stats.dropped
    assert stats.dropped > 0
    assert stats.blocking_ms < stats.total_ms  # the program waited for the hand-over, not for the sink


def test_checks_in_compiled_code() -> None:
    def root(x: Any, on_error: str | None = None) -> Any:
        return jnp.sqrt(check(x, x < 0, "`x` must not be negative.", on_error=on_error))

    with checking_on():
        with pytest.raises(CheckError, match="`x` must not be negative"):
            clear_errors(jax.jit(lambda x: root(x)))(jnp.float32(-1.0))
        lanes = jax.jit(jax.vmap(lambda x: root(x, "nan")))(jnp.array([4.0, -1.0, 9.0, 1.0]))
        np.testing.assert_array_equal(lanes, [2.0, np.nan, 3.0, 1.0])  # equinox alone poisons all four
    assert np.isnan(jax.jit(lambda x: root(x))(jnp.float32(-1.0)))  # off: only what sqrt itself says
    with_check, without = jax.jit(lambda x: root(x)), jax.jit(lambda x: jnp.sqrt(x))
    texts = [re.sub(r"jit__lambda_?\w*", "jit", f.lower(1.0).as_text()) for f in (with_check, without)]
    assert texts[0] == texts[1]


def test_checkify_changes_the_result_and_check_does_not() -> None:
    def checked(x: Any) -> Any:
        checkify.check(x > 0, "not positive")
        return x * 2

    error, value = jax.jit(checkify.checkify(checked))(jnp.float32(-1.0))
    assert (error.get() is not None, float(value)) == (True, -2.0)
    with checking_on():
        assert float(jax.jit(lambda x: check(x * 2, x <= 0, "not positive"))(jnp.float32(1.0))) == 2.0
    assert importlib.util.find_spec("jax.experimental.error_check") is None


def test_jaxs_own_debugging_flags() -> None:
    divide = jax.jit(lambda x: x / x)
    assert np.isnan(divide(jnp.float32(0.0)))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        divide(jnp.float32(0.0))

    def broken(x: Any) -> Any:
        raise ArithmeticError("broken")

    def frames_inside_jax() -> int:
        with pytest.raises(ArithmeticError) as caught:
            jax.jit(broken)(jnp.float32(0.0))
        return sum("_src" in Path(entry.path).parts for entry in caught.traceback)

    usual = jax.config.jax_traceback_filtering
    try:
        jax.config.update("jax_traceback_filtering", "remove_frames")
        assert frames_inside_jax() == 0
        jax.config.update("jax_traceback_filtering", "off")  # as JAX_TRACEBACK_FILTERING=off
        assert frames_inside_jax() > 2
    finally:
        jax.config.update("jax_traceback_filtering", usual)


# --- 1b: compile, timing, regression ---


def test_python_numbers_retrace_filter_jit_and_not_the_driver() -> None:
    def decay(x: Any, rate: Any) -> Any:
        return x * rate

    with CompileWatch() as watch:
        for jit in (eqx.filter_jit, jax.jit):
            step = jit(decay)
            for rate in (0.1, 0.2, 0.3):
                step(jnp.ones(2), rate)
    assert (
        watch["decay"].traces == 4
    )  # three for filter_jit, which takes Python floats for static; one for jit

    def add(x: Any, t: Any) -> tuple[Any, None]:
        return x + t, None

    with CompileWatch() as watch:
        result = run(add, jnp.zeros(4, jnp.int32), 40, chunk=10)
    assert (watch["advance"].compiles, result.carry.tolist()) == (1, [780] * 4)


def test_static_arguments() -> None:
    given = ([[frozenset({"B", "A"}), frozenset()]], [["A", "B", "Y"]], ["Y"])
    static = acbo.prepare_static_args(*given)
    assert static == ((((("A", "B")), ()),), (("A", "B", "Y"),), ("Y",))
    assert acbo.restore_static_args(static) == given

    table = {"sizes": [3, 4], "weights": np.eye(2)}
    frozen = freeze(table)
    assert hash(frozen) == hash(freeze({"sizes": [3, 4], "weights": np.eye(2)}))
    assert thaw(frozen)["sizes"] == [3, 4]
    with pytest.raises(TypeError, match=r"`value\['f'\]\[1\]` must be hashable"):
        freeze({"f": (1, jnp.ones(2))})

    @config
    class Limits:
        steps: int = 100

    assert jaxarc.performance.verify_config_hashability(Limits()) is True
    assert jaxarc.performance.verify_config_hashability((Limits(), [1])) is False

    @jax.jit(static_argnames=["limits"])  # fails according to one guide, and frozensets according to another
    def scaled(x: Any, limits: Limits) -> Any:
        return x * limits.steps

    assert int(scaled(2, limits=Limits(steps=3))) == 6
    assert (
        int(jax.jit(lambda x, names: x + len(names), static_argnames="names")(1, names=frozenset("ab"))) == 3
    )


def test_the_fallback_is_loud() -> None:
    def sign(x: Any) -> Any:
        return x if x > 0 else -x  # cannot be traced

    reset_fallback_counts()
    step = fallback(sign, name="ledger_sign")
    with pytest.warns(FallbackWarning, match="`ledger_sign` could not be compiled"):
        assert float(step(jnp.float32(-2.0))) == 2.0
    assert float(step(jnp.float32(3.0))) == 3.0
    assert fallback_counts() == {"ledger_sign": 2}
    with pytest.raises(FallbackError, match="strict mode refuses"):
        fallback(sign, strict=True)(jnp.float32(1.0))
    with pytest.raises(ZeroDivisionError):  # the guide's own fallback swallows what it does not understand
        fallback(lambda x: x / (1 // 0))(jnp.float32(1.0))


def test_compiling_ahead_is_the_proof() -> None:
    impossible = jax.jit(lambda x: x if x > 0 else -x)
    assert impossible is not None  # all that the guide's check says
    with pytest.raises(jax.errors.TracerBoolConversionError):
        compile_ahead(impossible, jax.ShapeDtypeStruct((), jnp.float32))
    step = jax.jit(lambda x: x + 1)
    program = compile_ahead(step, jax.ShapeDtypeStruct((1000,), jnp.float32))
    assert (program.memory.arguments, program.memory.outputs) == (4000, 4000)
    x = jax.device_put(np.ones(1000, np.float32))
    with no_recompile() as watch:  # the other half of the proof: nothing compiles in the steady state
        for _ in range(3):
            x = step(x)
    assert (watch.compiles, float(x[0])) == (0, 4.0)


def test_compile_and_run_are_measured_apart() -> None:
    def slow_to_trace(x: Any) -> Any:
        time.sleep(0.1)  # runs while tracing only
        return jnp.tanh(x @ x).sum()

    started = time.perf_counter()
    result = measure(slow_to_trace, jnp.ones((32, 32)), repeats=5, min_seconds=0.01, items=32)
    elapsed = time.perf_counter() - started
    assert (result.compiles, result.steady_compiles) == (1, 0)
    phases = (result.trace_s, result.lower_s, result.compile_s)
    trace_s, lower_s, compile_s = (seconds for seconds in phases if seconds is not None)
    assert trace_s >= 0.1 > result.median_s  # the sleep is in the phase it belongs to, and in no run
    assert min(lower_s, compile_s, result.median_s) > 0
    assert trace_s + lower_s + compile_s + sum(result.times) < elapsed
    assert result.peak_bytes is not None
    assert result.peak_bytes >= 32 * 32 * 4
    assert break_even(52.6, 4.99, 2.22) == 19

    step = jax.jit(lambda x: slow_to_trace(jnp.outer(x, x)))
    measured = acbo.measure_compilation_speedup(step, jnp.ones(3))
    ratio, first, second = measured
    assert ratio == measured.first_call_s / measured.second_call_s
    assert measured.first_call_s >= 0.1 > measured.second_call_s  # only the first call traced
    assert float(first) == float(second) == pytest.approx(9 * np.tanh(3.0), rel=1e-5)

    quick = jax.jit(lambda x: x + 1)

    def sleeping(x: Any) -> Any:
        time.sleep(0.02)
        return quick(x)

    assert acbo.benchmark_sustained_performance(quick, sleeping, (jnp.ones(3),), n_runs=3) > 1
    assert acbo.benchmark_sustained_performance(sleeping, quick, (jnp.ones(3),), n_runs=3) < 1


def test_warm_up_needs_no_data() -> None:
    reset = jax.jit(lambda key: jax.random.uniform(key, (3,)))
    step = jax.jit(lambda x: x * 2)
    key = jax.random.key(0)
    done = warm_up({"reset": (reset, key), "step": (step, jax.ShapeDtypeStruct((3,), jnp.float32))})
    assert set(done.programs) == {"reset", "step"}
    assert done.seconds > 0
    with no_recompile():
        assert step(reset(key)).shape == (3,)


def test_a_retrace_is_explained() -> None:
    @jax.jit
    def step(state: Any) -> Any:
        return jax.tree.map(lambda x: x + 1, state)

    with CompileWatch() as watch:
        step({"grid": jnp.zeros((16, 30), jnp.int32)})
        step({"grid": jnp.zeros((32, 30), jnp.int32)})
    assert (watch["step"].traces, watch["step"].compiles) == (2, 2)
    assert watch["step"].reasons == ["argument `state['grid']` changed from int32[16,30] to int32[32,30]"]
    wider = jnp.zeros((64, 30), jnp.int32)
    with pytest.raises(RecompileError, match=r"`step` was compiled inside `no_recompile`"), no_recompile():
        step({"grid": wider})
    weak, strongly = jnp.asarray(0), strong(0)
    assert len(aval_differences(weak, strongly)) == 1  # the second-step retrace of the ledger
    assert aval_differences(strongly, strongly + 1) == []


def test_regressions_are_judged_on_deterministic_figures(tmp_path: Path) -> None:
    baseline = Baseline.load(tmp_path / "baseline.json")
    assert baseline.judge("step", {"steady_compiles": 0, "median_s": 0.5}).status == "new"
    baseline.record("step", {"steady_compiles": 0, "program_bytes": 1000, "median_s": 0.5})
    again = Baseline.load(tmp_path / "baseline.json")
    assert again.judge("step", {"steady_compiles": 0, "program_bytes": 1000, "median_s": 50.0}).status == "ok"
    verdict = again.judge("step", {"steady_compiles": 1, "program_bytes": 1000, "median_s": 0.5})
    assert verdict.regressed
    assert "steady_compiles: 0 → 1" in verdict.text
    with pytest.raises(TypeError, match="3-tuple"):  # what the guide's own gate does
        assert acbo.measure_compilation_speedup(jax.jit(lambda x: x), jnp.ones(2)) > 100


def test_profiling_and_monitoring(capsys: pytest.CaptureFixture[str]) -> None:
    found = profile(jax.jit(lambda x: jnp.sin(x @ x).sum()), jnp.ones((64, 64)), calls=2)
    assert found.calls == 2
    assert found.operations
    assert sum(op.share for op in found.operations) == pytest.approx(1.0)

    step = jax.jit(lambda x: x + 1)
    core = PerformanceMonitor()
    ours = jaxarc.performance.PerformanceMonitor()
    x = jnp.zeros(4)
    for _ in range(3):
        x = core.monitor("step_time", step, x, items=4)
        x = ours.monitor("step_times", step, x, items=4)
    assert x.tolist() == [6.0] * 4
    assert len(core.compiling["step_time"]) == 1  # the first call compiled and counts apart
    assert len(ours.metrics["step_times"]) == len(ours.metrics["memory_usage"]) == 3
    result, seconds = ours.time_function(step, x)
    assert (result.tolist(), seconds > 0) == ([7.0] * 4, True)
    stats = ours.get_statistics()
    names = [f"step_time_{figure}" for figure in ("mean", "std", "min", "max")]
    assert sorted(stats) == sorted([*names, "throughput_mean", "throughput_max"])
    assert 0 < stats["step_time_min"] <= stats["step_time_mean"] <= stats["step_time_max"]
    assert set(stats) <= set(core.get_statistics())
    ours.print_report()
    assert "step_time_mean" in capsys.readouterr().out


# --- 1c: memory, batching, data, state ---


def test_the_memory_manager() -> None:
    first, second = (LazyLoader(lambda n=n: np.full(1000, n)) for n in (1, 2))
    with MemoryManager(max_total_memory_mb=0.01) as manager:  # room for one of 8 kB, not for two
        assert manager.register_lazy_loader(first) is first
        manager.register_lazy_loader(second)
        assert first.get()[0] == 1
        report = manager.get_memory_report()
        current = report["monitor_stats"]["current_mb"]
        assert isinstance(current, float)
        assert current > 10
        assert report["owned"]["bytes"] == 8000
        assert second.get()[0] == 2
        assert (first.loaded, second.loaded) == (False, True)  # the budget really evicts
        stats = manager.cleanup_memory()
        assert (stats["freed_bytes"], stats["released"], stats["owned_bytes"]) == (8000, 1, 0)
        second.get()
    assert not second.loaded


def test_the_manager_of_the_process() -> None:
    manager = get_memory_manager()
    assert manager is get_memory_manager()
    assert isinstance(manager, MemoryManager)
    assert manager.max_bytes == 500_000_000


def test_lazy_loading() -> None:
    loads, now = [], [0.0]
    loader = LazyLoader(lambda: loads.append(1) or np.arange(4), 300.0, clock=lambda: now[0])
    assert loads == []
    assert loader.get() is loader.get()
    assert (loader.get().tolist(), len(loads)) == ([0, 1, 2, 3], 1)
    now[0] = 301.0
    assert not loader.loaded  # idle for more than five minutes
    loader.get()
    assert len(loads) == 2

    class Parser:
        def get_task_by_index(self, index: int) -> dict[str, int]:
            return {"index": index}

    task = jaxarc.performance.LazyTaskLoader(7, Parser())
    before = task.task_data
    assert before == {"index": 7}
    task.clear_cache()
    assert task.task_data is not before


def test_lazy_files_are_dropped_when_idle(tmp_path: Path) -> None:
    path = tmp_path / "field.npy"
    loader = create_lazy_visualization_loader(path, np.load, max_idle_time=0.01)
    np.save(path, np.arange(5))  # after the loader was made: nothing was read yet
    assert loader.get().tolist() == [0, 1, 2, 3, 4]
    time.sleep(0.02)
    assert not loader.loaded


def test_the_visualization_cache() -> None:
    cache = VisualizationCache(max_memory_mb=0.02, max_items=1000)
    for name in "abc":
        cache.put(name, np.zeros(1000))  # 8 kB each; two fit
        cache.get("a")
    assert cache.keys() == ["c", "a"]  # "b" was used least recently
    assert (cache.nbytes, cache.evictions, cache.get("b")) == (16_000, 1, None)
    assert cache.put("large", np.zeros(10_000)) is False


def test_compressed_storage(tmp_path: Path) -> None:
    grids = [np.random.default_rng(i).integers(0, 10, (30, 30)).astype(np.int8) for i in range(100)]
    episode = {
        "episode_grids": grids,
        "metadata": {"episode_id": "test_001", "total_steps": 100, "ratio": 0.5},
    }
    storage = CompressedStorage(tmp_path / "cache")
    assert storage.save(episode, "episode_001") is None
    loaded = storage.load("episode_001")
    assert loaded["metadata"] == episode["metadata"]
    for before, after in zip(grids, loaded["episode_grids"], strict=True):
        np.testing.assert_array_equal(before, after)
        assert after.dtype == np.int8
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_size < 0.8 * sum(
        grid.nbytes for grid in grids
    )  # ten colours in a byte: 3.3 of 8 bits
    with pytest.raises(ValueError, match="`key` must be a plain file name"):
        storage.save(episode, "../escape")
    with pytest.raises(TypeError):  # nothing is ever pickled
        storage.save({"f": test_compressed_storage}, "code")


def test_smaller_arrays() -> None:
    small = optimize_array_memory(np.array([1, 2, 3, 4, 5], np.int64))
    assert (small.dtype, small.nbytes, small.tolist()) == (np.int8, 5, [1, 2, 3, 4, 5])
    assert optimize_array_memory(np.array([1000, 2000, 3000], np.int64)).dtype == np.int16
    floats = np.array([1.1, 2.2, 3.3])
    assert optimize_array_memory(floats).dtype == np.float32
    assert optimize_array_memory(floats, lossless=True) is floats
    assert optimize_array_memory(np.array([2**40, -1])).tolist() == [2**40, -1]


def test_garbage_collection() -> None:
    before = gc.get_threshold()
    with GarbageCollectionOptimizer() as frozen:
        assert frozen > 1000
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before  # no tuned thresholds: nothing shows that they help


def test_memory_tools_see_device_arrays() -> None:
    import tracemalloc

    make = jax.jit(lambda: jnp.ones((1000, 1000), jnp.float32))
    jax.block_until_ready(make())
    tracemalloc.start()
    kept = jax.block_until_ready(make())
    seen = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (kept.nbytes, seen < 400_000) == (4_000_000, True)  # the guide's tool misses it

    result, increase, peak = acbo.monitor_memory_usage(make)
    assert (result.nbytes, increase) == (4_000_000, 4_000_000)
    assert peak >= 8_000_000  # with `kept`
    with jaxtrace.utils.track_operation_memory("more") as use:
        more = make()
    assert (use.live_change, more.nbytes) == (4_000_000, 4_000_000)
    loading = jaxtrace.utils.track_memory(make)
    loading()
    assert loading.memory_use.live_change == 4_000_000
    assert track_operation_memory is jaxtrace.utils.track_operation_memory
    assert predict_memory(lambda x: x + 1, jax.ShapeDtypeStruct((1000, 1000), jnp.float32)).peak == 8_000_000
    assert ((1000, 1000), "float32") in [(shape, dtype) for shape, dtype, *_ in live_report().largest]


def test_leaks_are_found() -> None:
    kept: list[Any] = []
    make = jax.jit(lambda: jnp.ones(1000, jnp.float32))
    report = find_leaks(lambda: kept.append(make()), iterations=10, warmup=1)
    assert report.leaking
    assert report.live_bytes[-1] - report.live_bytes[0] == 9 * 4000
    assert not find_leaks(make, iterations=8, warmup=1).leaking
    recompiling = find_leaks(lambda: jax.jit(lambda x: x * 2)(np.float32(1)), iterations=8, warmup=1)
    assert recompiling.leaking
    assert recompiling.recompiling  # programs pile up, which no look at resident memory tells apart


def test_the_batch_size_is_planned() -> None:
    step = jax.jit(lambda x: x + 1)

    def arguments(batch: int) -> tuple[Any, ...]:
        return (jax.ShapeDtypeStruct((batch, 1000), jnp.float32),)

    held = sum(live_report(top=0).by_device.values())
    plan = plan_batch_size(step, arguments, limit=200_000_000 + 2 * held, measure=False)
    assert plan.bytes_per_item == pytest.approx(8000)  # 4 kB in, 4 kB out
    assert 10_000 < plan.batch_size == plan.max_batch_size < 25_000
    assert plan.predicted_bytes == pytest.approx(8000 * plan.batch_size, rel=0.01)
    assert plan.predicted_bytes <= plan.budget_bytes
    assert sum(live_report(top=0).by_device.values()) == held  # nothing was tried
    small = plan_batch_size(
        step, lambda n: (jnp.ones((n, 10)),), maximum=64, sizes=(8, 32), repeats=1, limit=plan.limit_bytes
    )
    assert small.batch_size <= small.max_batch_size == 64
    assert all(trial.per_second for trial in small.trials)


def test_batches_of_any_size_compile_rarely() -> None:
    double = BucketedBatches(jax.vmap(lambda x: x * 2), sizes=(8, 32))
    for rows in (1, 3, 8, 20, 31, 70):
        np.testing.assert_array_equal(double(np.arange(rows)), 2 * np.arange(rows))
    assert double.traces == 2  # the guide's processor compiles once for each size it comes to


def test_batches_of_batches() -> None:
    def step(x: Any, t: Any) -> tuple[Any, None]:
        return jnp.sin(x) + t, None

    worlds = jnp.linspace(0.0, 1.0, 64)
    plain = run(step, worlds, 20).carry
    spread = run(step, worlds, 20, mesh=world_mesh()).carry
    np.testing.assert_array_equal(plain, spread)
    assert len(spread.sharding.device_set) == jax.device_count()
    squares = chunked_map(lambda x: x**2, jnp.arange(10.0), batch_size=4)
    np.testing.assert_array_equal(squares, jnp.arange(10.0) ** 2)


def test_donation_instead_of_a_pool() -> None:
    step = lambda x: x + 1  # noqa: E731
    shape = jax.ShapeDtypeStruct((1000, 1000), jnp.float32)
    assert predict_memory(jax.jit(step), shape).peak == 8_000_000
    assert predict_memory(jax.jit(step, donate_argnums=0), shape).peak == 4_000_000
    given = jnp.zeros(8)
    result = run(lambda x, t: (x + 1, None), given, 4, donate_carry=True)
    assert given.is_deleted()
    assert result.carry.tolist() == [4.0] * 8


def test_memory_mapped_data(tmp_path: Path) -> None:
    path = tmp_path / "tasks.npy"
    save_array(path, np.arange(24, dtype=np.int8).reshape(6, 4))
    before = path.read_bytes()
    tasks = open_array(path, verify=True)
    rows = device_rows(tasks, [1, 3])
    assert rows.tolist() == [[4, 5, 6, 7], [12, 13, 14, 15]]
    with pytest.raises(ValueError, match="read-only"):
        tasks[0] = 0
    with pytest.raises(IndexError):
        device_rows(tasks, 6)
    assert path.read_bytes() == before  # the guide opens with "w+" and overwrites the data


def test_data_larger_than_a_batch_needs_no_extra_package(tmp_path: Path) -> None:
    save_array(tmp_path / "large.npy", np.arange(1000, dtype=np.float32))
    mapped = open_array(tmp_path / "large.npy")
    doubled = chunked_map(lambda x: 2 * x, mapped, batch_size=64)
    assert isinstance(doubled, np.ndarray)
    np.testing.assert_array_equal(doubled, 2 * np.arange(1000, dtype=np.float32))


class State(eqx.Module):
    grid: jax.Array
    key: jax.Array
    task_data: dict[str, jax.Array]


def test_states_without_their_task(tmp_path: Path) -> None:
    task = {"inputs": jax.random.bits(jax.random.key(1), (10, 30, 30)), "index": jnp.int32(5)}
    state = State(jnp.arange(900, dtype=jnp.int8).reshape(30, 30), jax.random.key(2), task)
    save_state(tmp_path / "all", state)
    save_state(tmp_path / "small", state, exclude=[".task_data"])
    assert (tmp_path / "small").stat().st_size < (tmp_path / "all").stat().st_size / 10
    loaded = load_state(tmp_path / "small", jax.eval_shape(lambda: state), excluded={".task_data": task})
    np.testing.assert_array_equal(loaded.grid, state.grid)
    assert (jax.random.key_data(loaded.key) == jax.random.key_data(state.key)).all()
    assert int(loaded.task_data["index"]) == 5
    swapped = {"b": jnp.float32(1), "a": jnp.float32(2)}
    save_state(tmp_path / "named", swapped)
    again = load_state(tmp_path / "named", {"a": jnp.float32(0), "b": jnp.float32(0)})
    assert (float(again["a"]), float(again["b"])) == (2.0, 1.0)  # by path, not by order


def test_configure() -> None:
    from jaxworlds import runtime

    assert jaxtrace.configure is runtime.configure
    chosen = jaxtrace.configure(dtype="float32", device="cpu", cache_dir=None)
    assert (chosen.dtype, chosen.device) == ("float32", "cpu")
    assert runtime.settings() == chosen
    if not any(device.platform == "gpu" for device in jax.devices()):
        with pytest.raises(RuntimeConflictError, match=r"`device='gpu'` is not there"):
            jaxtrace.configure(device="gpu", cache_dir=None)
    assert runtime.settings() == chosen


def test_placed_data_stays_where_it_is() -> None:
    mesh = world_mesh()
    field = shard_worlds({"data": np.ones((8, 3), np.float32)}, mesh)
    assert field["data"].devices() == set(mesh.devices.flat)
    double = jax.jit(lambda tree: jax.tree.map(lambda x: 2 * x, tree))
    double(field)
    host = np.ones((8, 3), np.float32)
    with jax.transfer_guard(
        "disallow"
    ):  # no hidden copy of what is placed, and a clear error for what is not
        result = double(field)
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
            double({"data": host})
    assert result["data"].devices() == field["data"].devices()
    assert float(result["data"].sum()) == 48.0


def test_metrics_come_to_the_host_in_one_transfer() -> None:
    seen = []
    run(
        lambda x, t: (x + 1, None),
        jnp.zeros(4),
        20,
        chunk=10,
        observe=lambda x: {"mean": x.mean(), "max": x.max()},
        on_chunk=lambda chunk: seen.append(jax.device_get(chunk.observed)),
    )
    assert [{name: float(value) for name, value in metrics.items()} for metrics in seen] == [
        {"mean": 10.0, "max": 10.0},
        {"mean": 20.0, "max": 20.0},
    ]
    assert all(isinstance(value, np.ndarray | np.generic) for metrics in seen for value in metrics.values())


def test_batches_are_pytrees() -> None:
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Batch:
        data: jax.Array
        targets: jax.Array

    jax.tree_util.register_dataclass(Batch)
    batch = Batch(jnp.ones((4, 3)), jnp.arange(4))
    result = run(lambda b, t: (Batch(b.data + 1, b.targets), None), batch, 3).carry
    assert isinstance(result, Batch)
    assert result.data.tolist() == [[4.0] * 3] * 4
    assert aval_differences(batch, result) == []


def test_sharding_instead_of_pmap() -> None:
    count = jax.device_count()
    rows = np.arange(4.0 * count, dtype=np.float32).reshape(count, 4)
    by_pmap = jax.pmap(lambda x: x.sum())(rows)
    sharded = jax.jit(jax.vmap(lambda x: x.sum()))(shard_worlds(rows, world_mesh()))
    np.testing.assert_array_equal(by_pmap, sharded)
    assert sharded.sharding.device_set == set(jax.devices())


def test_precision_is_explicit(tmp_path: Path) -> None:
    assert importlib.util.find_spec("jax.experimental.mixed_precision") is None
    params = {"w": jnp.array([1.0, 1.0009765625], jnp.float32)}
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    save_state(tmp_path / "half", half)
    loaded = load_state(tmp_path / "half", half)
    assert loaded["w"].dtype == jnp.bfloat16  # npz turns it into void
    np.testing.assert_array_equal(loaded["w"].astype(jnp.float32), [1.0, 1.0])


def test_the_guides_yaml_file_changes_the_configuration(tmp_path: Path) -> None:
    """Every key of the file, and what Hydra makes of it; each key's own test is in `jaxarc/envs/test_adapter.py`."""
    keys = {
        "level": "research",
        "async_logging": False,
        "performance_monitoring": False,
        "memory_management": {
            "max_cache_mb": 7.0,
            "max_total_mb": 70.0,
            "lazy_loading": False,
            "compression": False,
        },
    }
    file = tmp_path / "conf" / "visualization" / "debug_standard.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"debug": keys}), encoding="utf-8")  # JSON is YAML
    assert config_to_dict(config_from_yaml(file))["visualization"] == {"enabled": True, "debug": keys}
    shown = config_from_yaml(overrides=["visualization=debug_standard"]).visualization
    assert (shown.enabled, shown.debug.level) == (True, "standard")
    assert (shown.debug.async_logging, shown.debug.performance_monitoring) == (True, True)
    memory = shown.debug.memory_management
    assert (memory.max_cache_mb, memory.max_total_mb) == (100.0, 500.0)
    assert (memory.lazy_loading, memory.compression) == (True, True)


def test_progress_is_reported_between_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    steps = []
    result = run(
        lambda x, t: (x + 1, None),
        jnp.zeros(4),
        30,
        chunk=10,
        progress=True,
        on_chunk=lambda c: steps.append(c.step),
    )
    assert steps == [10, 20, 30]
    assert result.finished
    assert "30/30" in capsys.readouterr().err


# --- jaxarc 1a: the two rows about behaviour and advice ---


def test_every_callback_is_isolated_converted_and_counted() -> None:
    seen = []

    def broken(value: Any) -> None:
        seen.append(type(value))
        raise ValueError("bad sink")

    step = jax.jit(
        lambda x: (adaptive_visualization_callback(broken, x, callback_name="ledger_bad"), x + 1)[1]
    )
    assert int(step(1)) == 2
    flush_taps(5.0)
    assert seen == [np.ndarray]
    assert get_callback_performance_stats()["ledger_bad"]["error_count"] == 1
    programs = [
        lambda: jax_log_grid(GRID),
        lambda: jax_log_episode_summary(1, 2, 3.0, 0.5, True),
        lambda: adaptive_visualization_callback(print, 1),
    ]
    for program in programs:
        assert "callback" in jax.jit(lambda program=program: program()).lower().as_text()
        with taps_off():
            assert "callback" not in jax.jit(lambda program=program: program()).lower().as_text()


def test_troubleshooting_is_answered() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "migration.md").read_text(encoding="utf-8")
    answers = page.split("## Troubleshooting")[1]
    for problem, remedy in {
        "High callback overhead": "period",
        "Memory grows": "MemoryManager",
        "Traced values": "tap",
        "Storage": "CompressedStorage",
    }.items():
        (row,) = [line for line in answers.splitlines() if line.startswith(f"| {problem}")]
        assert remedy in row, problem
    advice = page.split("best practices")[1].split("\n## ")[0]
    for practice, tools in {
        "Monitor callbacks": ("print_tap_report", "tap_stats"),
        "Load lazily": ("LazyLoader", "lazy_file"),
        "Optimize arrays": ("optimize_array_memory",),
        "Manage memory": ("MemoryManager",),
        "Handle errors": ("tap",),
    }.items():
        (row,) = [line for line in advice.splitlines() if line.startswith(f"| {practice}")]
        for tool in tools:
            assert f"`{tool}" in row or f" {tool}(" in row, (practice, tool)
            assert callable(getattr(jaxworlds, tool)), tool  # what the page recommends exists

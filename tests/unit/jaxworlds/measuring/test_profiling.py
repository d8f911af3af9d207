"""The profiler's table of operations, and the monitor."""

import re
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds.measuring import Operation, PerformanceMonitor, Profile, profile
from jaxworlds.measuring.profiles import _primitives, _self_times


@jax.jit
def work(x):
    y, _ = jax.lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, None, length=5)
    return jnp.sort(y, axis=0).sum()


def test_the_table_names_the_operations_of_the_program():
    found = profile(work, jnp.ones((100, 100)), calls=2)
    dots = [op for op in found.operations if "dot" in op.name or "dot" in op.contains]
    assert sum(op.calls for op in dots) >= 10  # 5 steps × 2 calls; more where threads share one
    assert all(op.self_s > 0 for op in dots)
    assert any("sort" in op.name or "sort" in op.contains for op in found.operations)
    assert sum(op.share for op in found.operations) == pytest.approx(1.0)
    assert found.busy_s == pytest.approx(sum(op.self_s for op in found.operations))
    own = [op.self_s for op in found.operations]
    assert own == sorted(own, reverse=True)
    loops = [op for op in found.operations if op.name.startswith("while")]
    assert all(op.self_s < op.total_s for op in loops)  # the body is not the loop's own


def test_the_text_has_a_row_per_operation_up_to_top():
    found = profile(work, jnp.ones((100, 100)), calls=1, top=1)
    text = str(found)
    assert found.operations[0].name in text
    assert f"{len(found.operations) - 1} more operations take" in text
    assert "self ms" in text
    assert "logdir" not in text  # nothing was kept


def test_the_capture_is_kept_where_asked_and_the_hint_has_the_path(tmp_path):
    found = profile(work, jnp.ones((10, 10)), calls=1, folder=tmp_path / "capture")
    assert found.folder == tmp_path / "capture"
    assert list(found.folder.glob("plugins/profile/*/*.xplane.pb"))
    assert f"xprof --logdir {tmp_path / 'capture'}" in str(found)


def test_each_capture_in_a_folder_reads_its_own(tmp_path):
    profile(work, jnp.ones((10, 10)), calls=1, folder=tmp_path)
    session = next((tmp_path / "plugins" / "profile").iterdir())
    session.rename(
        session.with_name("earlier")
    )  # sessions are named by the second, and these two may share it
    second = profile(jax.jit(lambda x: jnp.sort(x)), jnp.ones(1000), calls=1, folder=tmp_path)
    assert second.operations
    assert not any("while" in op.name for op in second.operations)


def test_compilation_is_not_captured_and_arguments_survive():
    traces = []

    @jax.jit
    def fn(x):
        traces.append(1)
        return x @ x

    x = jnp.ones((50, 50))
    profile(fn, x, calls=2)
    assert len(traces) == 1
    profile(jax.jit(lambda c: c + 1, donate_argnums=0), x, calls=2)
    np.testing.assert_array_equal(x, np.ones((50, 50)))


def test_plain_functions_are_called_as_they_are():
    found = profile(lambda x: jnp.sort(x), jnp.ones(1000), calls=2)
    assert any("sort" in op.name for op in found.operations)


def test_no_operations_say_so_and_calls_are_checked():
    assert "no device operations" in str(profile(lambda: time.sleep(0.001), calls=1))
    with pytest.raises(ValueError, match="`calls` must be at least 1; got 0"):
        profile(work, jnp.ones((10, 10)), calls=0)


def test_missing_reader_is_explained(monkeypatch):
    monkeypatch.delattr(jax.profiler, "ProfileData")
    with pytest.raises(RuntimeError, match=r"has no `jax\.profiler\.ProfileData`"):
        profile(work, jnp.ones((10, 10)))


def test_profiling_changes_no_warning_filters():
    before = list(warnings.filters)
    profile(work, jnp.ones((10, 10)), calls=1)
    assert list(warnings.filters) == before


def test_self_time_of_nested_events():
    events = [
        ("while", 0.0, 100.0),
        ("dot", 10.0, 40.0),
        ("inner", 20.0, 30.0),
        ("add", 50.0, 60.0),
        ("sort", 100.0, 130.0),
    ]
    found = {name: own for name, _, own in _self_times(events)}
    assert found == {"while": 60.0, "dot": 20.0, "inner": 10.0, "add": 10.0, "sort": 30.0}
    assert sum(found.values()) == 130.0


def test_events_that_only_overlap_are_not_nested():
    # Two kernels of one GPU stream, the second launched before the first ended (seen on an H200, jax 0.11.2).
    found = [(name, own) for name, _, own in _self_times([("a", 0.0, 10.0), ("b", 9.0, 20.0)])]
    assert found == [("a", 10.0), ("b", 11.0)]


def test_primitives_of_a_fusion_are_those_it_calls():
    text = """
%fused (p: f32[3]) -> f32[3] {
  %p = f32[3] parameter(0), metadata={op_name="x"}
  %s = f32[3] sine(%p), metadata={op_name="jit(f)/sin"}
  ROOT %m = f32[3] multiply(%s, %s), metadata={op_name="jit(f)/mul"}
}

ENTRY %main (x: f32[3]) -> f32[3] {
  %x = f32[3] parameter(0), metadata={op_name="x"}
  %sort.1 = f32[3] sort(%x), metadata={op_name="jit(f)/sort"}
  ROOT %loop_fusion = f32[3] fusion(%sort.1), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/mul"}
}
"""
    found = _primitives(text)
    assert found["loop_fusion"] == "sin, mul"
    assert found["sort.1"] == "sort"


def test_a_profile_is_plain_data():
    op = Operation("dot.1", "dot_general", 4, 0.002, 0.002, 1.0)
    text = str(Profile((op,), 2, 0.004, 0.002, 15, None))
    assert re.search(r"dot\.1 .*dot_general .*4 .*2\.000 .*2\.000 .*100\.0%", text)
    assert "2 calls, 4.00 ms wall, 2.00 ms busy" in text


def test_time_function_waits_and_records_nothing():
    monitor = PerformanceMonitor()

    @jax.jit
    def fn(x, *, scale):
        jax.debug.callback(lambda _: time.sleep(0.03), x)
        return x * scale

    class Pending:
        def block_until_ready(self):
            time.sleep(0.03)

    assert monitor.time_function(Pending)[1] >= 0.03
    result, seconds = monitor.time_function(fn, jnp.ones(2), scale=3.0)
    np.testing.assert_array_equal(result, [3.0, 3.0])
    assert seconds >= 0.03
    assert monitor.metrics == {}


def test_compiling_calls_are_kept_apart():
    monitor = PerformanceMonitor()
    step = jax.jit(lambda x: jnp.sin(x) * 2)
    x = jnp.ones(3)
    for _ in range(4):
        result = monitor.monitor("step_time", step, x, items=3)
    np.testing.assert_allclose(result, 2 * np.sin(np.ones(3)), rtol=1e-6)
    assert len(monitor.compiling["step_time"]) == 1
    assert len(monitor.metrics["step_time"]) == 3
    assert len(monitor.throughput["step_time"]) == 3
    monitor.monitor("step_time", step, jnp.ones(4))  # another shape: compiles again
    assert len(monitor.compiling["step_time"]) == 2
    monitor.monitor("warm", step, x)  # compiled before: a steady call from the first
    assert "warm" not in monitor.compiling
    assert monitor.get_statistics()["warm_mean"] > 0


def test_statistics_are_floats_with_the_guides_names():
    monitor = PerformanceMonitor()
    for seconds in (1.0, 2.0, 3.0):
        monitor.record("step_time", seconds)
    monitor.record("batch", 0.5, items=100)
    monitor.record("batch", 1, items=100)
    monitor.record("batch", 7.0, items=100, compiled=True)
    stats = monitor.get_statistics()
    assert stats == {
        "step_time_mean": 2.0,
        "step_time_std": pytest.approx(np.std([1, 2, 3])),
        "step_time_min": 1.0,
        "step_time_max": 3.0,
        "batch_mean": 0.75,
        "batch_std": 0.25,
        "batch_min": 0.5,
        "batch_max": 1.0,
        "batch_compiling_total": 7.0,
        "batch_throughput_mean": 150.0,
        "batch_throughput_max": 200.0,
        "throughput_mean": 150.0,
        "throughput_max": 200.0,
    }
    assert all(type(value) is float for value in stats.values())


def test_report_and_reset(capsys):
    monitor = PerformanceMonitor()
    assert monitor.get_statistics() == {}
    monitor.print_report()
    monitor.record("step_time", 0.002, items=4)
    monitor.record("reset_time", 1.5, compiled=True)
    monitor.record("tick", 0.0, items=1)  # faster than the clock: no division by zero
    monitor.print_report()
    printed = capsys.readouterr().out
    for part in ("step_time", "2.00 ms", "2,000", "reset_time", "1.50 s (1)"):
        assert part in printed
    monitor.reset()
    assert (monitor.metrics, monitor.compiling, monitor.throughput) == ({}, {}, {})

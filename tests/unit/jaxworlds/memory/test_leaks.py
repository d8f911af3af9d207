"""Tracked operations, monitored calls and the leak check."""

import gc
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace import utils as jaxtrace_utils
from jaxworlds.compile_events import CompileEvents
from jaxworlds.memory import (
    find_leaks,
    live_bytes,
    monitor_memory_usage,
    set_memory_tracking,
    track_memory,
    track_operation_memory,
)

STEP = jax.jit(lambda x: jnp.sin(x) + 1)


@pytest.fixture
def tracking_off():
    set_memory_tracking(False)
    yield
    set_memory_tracking(True)


# --- tracking ---


def test_the_guide_names_are_the_core_functions():
    assert jaxtrace_utils.track_memory is track_memory
    assert jaxtrace_utils.track_operation_memory is track_operation_memory


def test_an_operation_reports_the_arrays_it_left(capsys):
    with track_operation_memory("load") as use:
        kept = jnp.zeros((1000, 250), jnp.float32)
    assert use.measured
    assert use.live_change == kept.nbytes == 1_000_000
    assert use.process_after > 0
    assert str(use).startswith("load: live arrays +1.00 MB")
    assert capsys.readouterr().out == ""


def test_an_operation_prints_one_line_only_when_verbose(capsys):
    with track_operation_memory("quiet", enabled=False, verbose=True) as use:
        pass
    assert not use.measured
    assert str(use) == "quiet: memory not tracked"
    assert capsys.readouterr().out == ""
    with track_operation_memory("loud", verbose=True):
        pass
    assert capsys.readouterr().out.count("\n") == 1


def test_an_operation_that_fails_is_measured_and_fails():
    with pytest.raises(ZeroDivisionError), track_operation_memory("fails") as use:
        1 / 0  # noqa: B018
    assert use.measured


PEAK = """
import numpy as np
from jaxworlds.memory import track_operation_memory
from jaxworlds.memory import process_memory

now, peak = process_memory()
with track_operation_memory("large") as use:
    np.ones(peak - now + 50_000_000, np.uint8)
assert use.process_peak is not None
assert use.process_peak > peak + 40e6
with track_operation_memory("small") as use:
    pass
assert use.process_peak is None
"""


@pytest.mark.own_process
def test_an_operation_that_sets_a_new_peak_says_so():
    """In a process of its own: what other tests freed would be used again and no page would be new."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_tracked_function_keeps_its_latest_use():
    @track_memory(name="make")
    def make(n):
        return jnp.zeros(n, jnp.int8)

    assert not make.memory_use.measured
    kept = make(5000)
    assert make.memory_use.live_change == kept.nbytes == 5000
    assert make.memory_use.name == "make"
    assert make.__name__ == "make"


def test_tracking_off_returns_the_function_itself():
    def plain():
        return 1

    assert track_memory(plain, enabled=False) is plain


@pytest.mark.usefixtures("tracking_off")
def test_the_switch_turns_tracking_off():
    @track_memory
    def plain():
        return 1

    assert plain() == 1
    assert not plain.memory_use.measured
    with track_operation_memory("any") as use:
        pass
    assert not use.measured
    with track_operation_memory("forced", enabled=True) as use:
        pass
    assert use.measured


# --- monitoring ---


def test_monitoring_a_jitted_call_gives_true_numbers():
    gc.collect()
    x = jnp.ones((1000, 250), jnp.float32)
    live = sum(live_bytes().values())  # other tests may leave arrays that share one buffer
    result, increase, peak = monitor_memory_usage(STEP, x)
    np.testing.assert_allclose(result, np.sin(1) + 1, rtol=1e-6)
    assert increase == 1_000_000
    assert abs(peak - live - 1_000_000) <= 100_000  # other tests' arrays may go in between


def test_monitoring_sees_temporaries_that_the_result_does_not_show():
    wide = jax.jit(lambda x: jnp.sort(x[:, None] * x[None, :], axis=1).sum())
    _, increase, peak = monitor_memory_usage(wide, jnp.arange(1000.0))
    assert increase == 4
    assert peak >= 1000 * 1000 * 4


def test_monitoring_a_plain_function_prints_when_asked(capsys):
    result, increase, peak = monitor_memory_usage(lambda: jnp.zeros(1000, jnp.float32), verbose=True)
    assert increase == 4000 == result.nbytes
    assert peak >= increase
    assert capsys.readouterr().out.startswith("memory increase: 0.0 MB, peak: ")


# --- leaks ---


def test_a_list_that_keeps_arrays_is_found():
    kept = []
    report = find_leaks(lambda: kept.append(STEP(jnp.ones(1000))), iterations=8)
    assert report.leaking
    assert "live arrays grew" in report.reason
    assert np.diff(report.live_bytes).tolist() == [4000] * 7
    assert np.diff(report.live_counts).tolist() == [1] * 7
    assert sum(report.compiles) == 0
    assert str(report).startswith("LEAKING: ")


def test_an_array_that_grows_in_place_is_found():
    state = {"x": np.zeros(0, np.float32)}

    def grow():
        state["x"] = jax.device_put(np.zeros(len(state["x"]) + 100, np.float32))

    report = find_leaks(grow, iterations=8)
    assert report.leaking
    assert len(set(report.live_counts)) == 1


def test_a_clean_function_is_not_blamed():
    report = find_leaks(lambda: STEP(jnp.ones(1000)), iterations=8)
    assert not report.leaking
    assert not report.recompiling
    assert report.reason == "live arrays and compiled programs do not grow"
    assert len(set(report.live_bytes)) == 1
    assert str(report).startswith("no leak found")


def test_a_reference_cycle_is_not_a_leak():
    def cycle():
        node = {"x": STEP(jnp.ones(10))}
        node["self"] = node

    assert not find_leaks(cycle, iterations=8).leaking


def test_a_cache_that_fills_and_stops_is_not_a_leak():
    kept = []

    def fill():
        if len(kept) < 9:
            kept.append(STEP(jnp.ones(10)))

    report = find_leaks(fill, iterations=12)
    assert not report.leaking
    assert report.live_counts[-1] > report.live_counts[0]


def test_a_function_that_compiles_every_time_is_reported():
    report = find_leaks(lambda: jax.jit(lambda x: x * 2)(np.ones(3, np.float32)), iterations=8)
    assert report.recompiling
    assert report.leaking
    assert "compiled anew in 8 of 8 iterations" in report.reason


def test_compiles_of_other_threads_count_as_well():
    def elsewhere():
        thread = threading.Thread(target=lambda: jax.jit(lambda x: x * 5)(np.ones(3, np.float32)))
        thread.start()
        thread.join()

    assert find_leaks(elsewhere, iterations=8, warmup=0).compiles == (1,) * 8


def test_ctrl_c_returns_what_was_seen():
    calls = []

    def interrupted():
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt

    report = find_leaks(interrupted, iterations=20, warmup=1)
    assert report.interrupted
    assert len(report.live_counts) == 4
    assert not report.leaking
    assert "too few to judge" in report.reason


def test_the_compile_listener_goes_away_also_after_an_interrupt():
    def compile_and_interrupt():
        jax.jit(lambda x: x * 3)(np.ones(2, np.float32))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), CompileEvents() as events:
        compile_and_interrupt()
    assert events.compiles == 1
    jax.jit(lambda x: x * 4)(np.ones(2, np.float32))
    assert events.compiles == 1


def test_too_few_iterations_are_refused():
    with pytest.raises(ValueError, match="`iterations` must be at least 8"):
        find_leaks(lambda: None, iterations=3)

"""The guides' callback names: they print, count, throttle, and never break the program."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from jaxarc.utils.visualization import callbacks
from jaxarc.utils.visualization.callbacks import (
    adaptive_visualization_callback,
    get_callback_performance_stats,
    jax_log_episode_summary,
    jax_log_grid,
    log_grid_to_console,
    print_callback_performance_report,
    reset_callback_performance_stats,
)
from jaxworlds.taps import flush_taps, taps_off

GRID = np.array([[1, 2, 0], [3, 4, 1], [0, 2, 3]])
MASK = np.array([[True, True, False], [True, True, True], [False, True, True]])


@pytest.fixture(autouse=True)
def _fresh():
    reset_callback_performance_stats()
    yield
    flush_taps(5.0)
    callbacks._throttles.clear()
    reset_callback_performance_stats()


def printed(capsys):
    flush_taps(5.0)
    return capsys.readouterr().out.splitlines()


def test_the_guides_example_prints_both_grids_and_returns_the_result(capsys):
    @jax.jit
    def process_grid(grid_data, mask_data):
        jax_log_grid(grid_data, mask_data, "Input Grid")
        processed = jnp.where(mask_data, grid_data + 1, 0)
        jax_log_grid(processed, mask_data, "Processed Grid")
        return processed

    result = process_grid(jnp.array(GRID), jnp.array(MASK))
    np.testing.assert_array_equal(result, np.where(MASK, GRID + 1, 0))
    first = ["Input Grid 3×3", " 1 2 .", " 3 4 1", " . 2 3"]
    second = ["Processed Grid 3×3", " 2 3 .", " 4 5 2", " . 3 4"]
    # JAX promises no order for two callbacks that do not depend on each other.
    assert printed(capsys) in (first + second, second + first)


@pytest.mark.parametrize("log", [jax_log_grid, log_grid_to_console, jax.jit(lambda g: jax_log_grid(g))])
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_without_mask_the_whole_grid_prints_in_and_outside_of_jax(log, array, capsys):
    log(array(GRID))
    assert printed(capsys) == ["Grid 3×3", " 1 2 0", " 3 4 1", " 0 2 3"]


def test_a_batch_is_one_call_that_prints_the_first_grids(capsys):
    grids = jnp.stack([jnp.full((2, 2), i) for i in range(10)])
    mask = jnp.array([[True, True], [True, False]])
    jax.jit(jax.vmap(lambda g: jax_log_grid(g, mask, title="G")))(grids)
    lines = printed(capsys)
    assert lines[::3] == ["G [0] 2×2", "G [1] 2×2", "G [2] 2×2 (+7 more)"]
    assert lines[-2:] == [" 2 2", " 2 ."]
    assert get_callback_performance_stats()["jax_log_grid"]["total_calls"] == 1


def test_a_wide_grid_is_not_folded_and_wide_values_stay_aligned(capsys):
    log_grid_to_console(np.full((2, 60), 7))
    assert printed(capsys)[1:] == [" 7" * 60] * 2
    log_grid_to_console(np.array([[-1, 5], [12, 0]]))
    assert printed(capsys)[1:] == [" -1  5", " 12  0"]


def test_a_terminal_shows_the_colours_of_arc(capsys, monkeypatch):
    def terminal(file):
        return Console(file=file, force_terminal=True, color_system="truecolor")

    monkeypatch.setattr("rich.console.Console", terminal)
    log_grid_to_console(np.array([[1, 4]]), np.array([[True, False]]))
    out = capsys.readouterr().out
    assert "48;2;0;116;217" in out  # #0074D9, the blue behind 1
    assert "48;2;255;220;0" not in out  # #FFDC00: the 4 is masked
    assert "4" not in out.splitlines()[1].replace("48;2;0;116;217", "")


@pytest.mark.parametrize("log", [jax_log_grid, log_grid_to_console])
def test_wrong_shapes_raise_at_once(log):
    with pytest.raises(ValueError, match="`grid` must have rows and columns"):
        log(np.ones(3))
    with pytest.raises(ValueError, match="`mask` must have the shape"):
        log(GRID, MASK[:2])


def test_episode_summaries_of_one_and_of_many(capsys):
    @jax.jit
    def simulate_episode(episode_num, steps, base_reward):
        total_reward = base_reward * steps
        final_similarity = jnp.tanh(total_reward / 10.0)
        success = final_similarity > 0.8
        jax_log_episode_summary(episode_num, steps, total_reward, final_similarity, success)
        return total_reward, final_similarity, success

    simulate_episode(7, 50, 0.5)
    assert printed(capsys) == ["Episode 7: 50 steps, reward 25.000, similarity 0.987, success"]
    jax.vmap(simulate_episode, in_axes=(0, None, 0))(jnp.arange(5), 10, jnp.linspace(0.0, 2.0, 5))
    lines = printed(capsys)
    assert lines[0] == "Episode 0: 10 steps, reward 0.000, similarity 0.000, failure"
    assert lines[3:] == ["(+2 more; 2 of 5 succeeded)"]


def test_a_slow_visualization_is_skipped_until_its_mean_cost_is_under_the_limit():
    runs = []

    def expensive_visualization(data):
        runs.append(int(data))
        time.sleep(0.01)

    @jax.jit
    def training_step(state):
        adaptive_visualization_callback(
            expensive_visualization, state, callback_name="expensive_viz", max_avg_time_ms=1.0
        )
        return state + 1

    state = jnp.int32(0)
    for _ in range(200):
        state = training_step(state)
    flush_taps(5.0)
    stats = get_callback_performance_stats()["expensive_viz"]
    assert int(state) == 200
    assert runs[0] == 0
    assert 2 <= len(runs) <= 20  # 10 ms against 1 ms: one call in ten, or fewer where sleep is late
    assert (stats["total_calls"], stats["skipped"]) == (200, 200 - len(runs))
    assert stats["max_time_ms"] >= 10.0


def test_a_fast_visualization_always_runs_with_its_arguments_as_numpy():
    seen = []
    f = jax.jit(lambda x: adaptive_visualization_callback(lambda a, b: seen.append((a, b)), x, {"k": 2 * x}))
    for i in range(5):
        f(jnp.full(3, i))
    flush_taps(5.0)
    assert [int(a[0]) for a, _ in seen] == list(range(5))
    assert isinstance(seen[0][1]["k"], np.ndarray)
    assert list(get_callback_performance_stats()) == ["<lambda>"]
    with pytest.raises(ValueError, match="`max_avg_time_ms` must be positive"):
        adaptive_visualization_callback(print, 1, max_avg_time_ms=0.0)


def test_an_error_in_the_users_function_is_counted_and_cut_off():
    def broken(data):
        raise RuntimeError("no display")

    f = jax.jit(lambda x: (adaptive_visualization_callback(broken, x), x + 1)[1])
    assert [int(f(i)) for i in range(6)] == [1, 2, 3, 4, 5, 6]
    flush_taps(5.0)
    stats = get_callback_performance_stats()["broken"]
    assert (stats["error_count"], stats["skipped"]) == (3, 3)


def test_reset_lets_a_throttled_callback_run_at_once():
    ran = []

    def slow(x):
        ran.append(int(x))
        time.sleep(0.02)

    for i in range(3):
        adaptive_visualization_callback(slow, i, callback_name="slow", max_avg_time_ms=1.0)
    flush_taps(5.0)
    assert ran == [0]  # the first call spent what the next twenty earn
    reset_callback_performance_stats()
    assert callbacks._throttles["slow"].skipped == 0
    adaptive_visualization_callback(slow, 9, callback_name="slow", max_avg_time_ms=1.0)
    flush_taps(5.0)
    assert ran == [0, 9]


def test_statistics_have_the_guides_keys_and_reset(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    jax_log_grid(GRID)
    stats = get_callback_performance_stats()["jax_log_grid"]
    assert stats["total_calls"] == 1
    assert stats["avg_time_ms"] == stats["min_time_ms"] == stats["max_time_ms"] == stats["total_time_ms"] > 0
    assert stats["error_count"] == stats["dropped"] == stats["skipped"] == 0
    assert stats["stall_ms_per_call"] > 0
    print_callback_performance_report()
    assert "jax_log_grid" in capsys.readouterr().out
    reset_callback_performance_stats()
    assert get_callback_performance_stats() == {}


def test_off_means_absent_here_too():
    with taps_off():
        assert "callback" not in jax.jit(lambda g: jax_log_grid(g)).lower(jnp.array(GRID)).as_text()

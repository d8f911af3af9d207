"""The performance guide's tools: what they return, and that the figures mean what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import jaxarc.performance as tools
from jaxarc.envs import MaskAction, PointAction, arc_reset, arc_step, batch_reset
from jaxarc.envs.history import replayed_actions
from jaxarc.envs.state import state_bytes
from jaxarc.performance.batching import _ladder
from jaxarc.performance.runners import _key_shape, scripted_action
from jaxarc.tasks import TaskSet, create_jax_task_from_data, parse_task, write_task_file
from jaxarc.testing import create_mock_task, create_test_config
from jaxworlds.compiling import Compiled, CompileWatch
from jaxworlds.memory import MB, MemoryPrediction
from jaxworlds.static import replace

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = create_test_config(max_episode_steps=12, grid_size=6)
TASK = create_mock_task(6, canvas=6)


def fill_then_submit(params: Any, obs: Any, key: Any) -> PointAction:
    """Paints cells at random until step `params`, then submits a wrong answer, which ends the episode."""
    row, col = jr.randint(key, (2,), 0, 6)
    return PointAction(jnp.where(obs.step_count < params, 3, 34), row, col)


# --- compiling ---


def test_the_compiled_functions_do_what_the_environment_does() -> None:
    state, obs = tools.optimized_reset(jr.key(0), CONFIG, TASK)
    expected, _ = arc_reset(jr.key(0), CONFIG, TASK)
    np.testing.assert_array_equal(state.working_grid, expected.working_grid)
    assert eqx.tree_equal(state.task_data, TASK)
    point = tools.optimized_step(state, PointAction(4, 2, 3), CONFIG)
    mask = np.zeros((6, 6), bool)
    mask[2, 3] = True
    for action in (PointAction(4, 2, 3), MaskAction(4, mask)):
        new, _, reward, done, info = tools.process_action(state, action, CONFIG)
        assert int(new.working_grid[2, 3]) == 4
        assert float(reward) == float(point[2])
        assert (bool(done), bool(info["valid_action"])) == (False, True)
    assert obs.grid.shape == (6, 6)


def test_after_the_warm_up_nothing_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    tools.warm_up_functions(CONFIG, TASK)
    assert "Functions warmed up" in capsys.readouterr().out
    with CompileWatch() as watch:
        arc_reset(jax.random.PRNGKey(1), CONFIG, TASK)
        state, _ = arc_reset(jr.key(1), CONFIG, TASK)
        arc_step(state, PointAction(0, 1, 1), CONFIG)
    assert watch.compiles == 0


def test_the_profile_of_compiling_has_the_guides_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = tools.profile_jit_compilation(CONFIG, TASK, num_runs=5)
    assert set(found) == {"compilation_time", "execution_time", "speedup"}
    assert found["compilation_time"] > found["execution_time"] > 0
    assert found["speedup"] == found["compilation_time"] / found["execution_time"]
    assert "(compile over run, not a speed-up of the program)" in capsys.readouterr().out


def test_the_diagnosis_sees_unhashable_configs_errors_and_recompilation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tools.debug_jit_compilation(CONFIG, TASK) is True
    assert "A second round compiled nothing" in capsys.readouterr().out
    assert tools.debug_jit_compilation(("a", [1]), TASK) is False
    assert "`config[1]` has no hash" in capsys.readouterr().out
    with pytest.raises(ValueError, match="6×6 cells, and the canvas has 4×4"):
        tools.debug_jit_compilation(create_test_config(grid_size=4), TASK)
    assert "JIT compilation failed: ValueError" in capsys.readouterr().out

    def compiles_anew(state: Any, action: Any, config: Any) -> Any:
        return jax.jit(lambda s: (s, 0))(state)

    monkeypatch.setattr("jaxarc.performance.compiling.arc_step", compiles_anew)
    assert tools.debug_jit_compilation(CONFIG, TASK) is False
    assert "A second round compiled again" in capsys.readouterr().out


def test_the_profiler_names_the_folder_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tools.profile_with_jax_profiler(CONFIG, TASK, tmp_path / "profile")
    assert f"tensorboard --logdir={tmp_path / 'profile'}\n" in capsys.readouterr().out
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
    assert found.operations
    assert found.calls == 1


# --- memory ---


def test_memory_by_format_is_the_true_size(capsys: pytest.CaptureFixture[str]) -> None:
    found = tools.analyze_memory_usage_by_format()
    assert {name: row["action_history_mb"] for name, row in found.items()} == {
        "point": 4_000 / MB,
        "bbox": 8_000 / MB,
        "mask": 124_000 / MB,
    }
    assert [row["fields_per_action"] for row in found.values()] == [6, 8, 904]
    printed = capsys.readouterr().out
    assert "Point vs Mask: 96.8% reduction" in printed
    assert "Bbox vs Mask: 93.5% reduction" in printed


def test_the_small_config_is_the_guides() -> None:
    config = tools.create_memory_optimized_config()
    assert config.environment.max_episode_steps == 50
    assert config.canvas == (15, 15)
    assert config.action.selection_format == "point"
    assert (config.visualization.enabled, config.environment.debug_level) == (False, 0)
    assert tools.create_memory_optimized_config(9, 7, "mask").canvas == (7, 7)


def test_memory_of_a_batch_is_exact() -> None:
    found = tools.profile_memory_usage(CONFIG, TASK, batch_sizes=[2])
    assert list(found) == [2]
    state, obs = arc_reset(jr.key(0), CONFIG, TASK)
    one = state_bytes(state) + sum(leaf.nbytes for leaf in jax.tree.leaves(obs))
    for size, row in found.items():
        assert set(row) == {"total_memory_mb", "per_env_memory_mb", "memory_before", "memory_after"}
        assert row["total_memory_mb"] == pytest.approx(size * one / MB)
        assert row["per_env_memory_mb"] == pytest.approx(one / MB)
        assert row["memory_after"] - row["memory_before"] == row["total_memory_mb"]


def test_the_pool_lends_takes_back_and_lends_again() -> None:
    pool = tools.StateMemoryPool(pool_size=2, config=CONFIG, task=TASK)
    first, second, third = (pool.get_state() for _ in range(3))
    assert len({tuple(state.key.tolist()) for state in (first, second, third)}) == 3
    assert (len(pool.in_use_states), pool.available_states) == (2, [])
    pool.return_state(first)
    assert pool.available_states == [first]
    assert pool.get_state() is first
    stepped = arc_step(second, PointAction(1, 0, 0), CONFIG)[0]
    pool.return_state(stepped)  # what steps made of it: the beginning comes back
    assert int(pool.get_state().step_count) == 0
    for _ in range(3):
        pool.return_state(third)
    assert len(pool.available_states) == 2
    with pytest.raises(ValueError, match="nothing is lent now"):
        pool.return_state(first)


def test_leaks_are_seen_and_sound_code_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    samples = tools.detect_memory_leaks(CONFIG, TASK, num_iterations=201)
    assert [i for i, _ in samples] == [0, 100, 200, 201]
    assert samples[0][1] == pytest.approx(samples[2][1], abs=0.1)
    assert "No significant memory leak" in capsys.readouterr().out
    kept = []

    def leaking(state: Any, action: Any, config: Any) -> Any:
        kept.append(jnp.asarray(np.zeros(150_000)))
        return arc_step(state, action, config)

    with pytest.warns(RuntimeWarning, match="Potential memory leak: live arrays \\+1"):
        samples = tools.detect_memory_leaks(CONFIG, TASK, num_iterations=201, step=leaking)
    assert samples[2][1] - samples[0][1] == pytest.approx(200 * 150_000 * 4 / MB, abs=0.1)
    samples = tools.detect_memory_leaks(
        CONFIG, TASK, num_iterations=20, step=leaking
    )  # few are watched to the end
    assert samples[-1][0] == 20
    assert samples[-1][1] - samples[0][1] == pytest.approx(20 * 150_000 * 4 / MB, abs=0.1)


# --- batches and episodes ---


def test_the_best_batch_size_comes_with_figures_that_fit_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    state, obs = arc_reset(jr.key(0), CONFIG, TASK)
    seen = sum(leaf.nbytes for leaf in jax.tree.leaves(obs))
    best, found = tools.find_optimal_batch_size(CONFIG, TASK, max_batch_size=3)
    assert list(found) == [1, 2]
    assert best in found
    for size, row in found.items():
        assert set(row) == {"throughput", "per_env_time", "memory_used_gb", "efficiency"}
        assert row["throughput"] * row["per_env_time"] == pytest.approx(1)
        assert row["efficiency"] == row["throughput"] / found[best]["throughput"] <= 1
        # States go in and come out, observations come out twice (`final_observation`).
        assert row["memory_used_gb"] * 2**30 > 2 * size * (state_bytes(state) + seen)
    assert found[best]["efficiency"] == 1.0
    assert tools.find_optimal_batch_size(CONFIG, TASK, 1, target_memory_gb=1e-9) == (None, {})
    assert "over the limit" in capsys.readouterr().out


@pytest.fixture(scope="module")
def run_episode() -> Callable[..., dict[str, Any]]:
    return tools.create_optimized_episode_runner(CONFIG, TASK, max_steps=5, policy=fill_then_submit)


def test_the_runner_plays_the_users_policy_until_the_end(run_episode: Callable[..., dict[str, Any]]) -> None:
    result = run_episode(jr.key(3), jnp.int32(2))
    assert set(result) == {"final_state", "episode_reward", "episode_length"}
    assert int(result["episode_length"]) == 3  # two fills and the submission that ends it
    final = result["final_state"]
    assert bool(final.terminated)
    assert eqx.tree_equal(final.task_data, TASK)

    state, _ = arc_reset(jr.split(jr.key(3))[0], CONFIG, TASK)
    actions = replayed_actions(final.action_history, 6)
    assert [int(action.operation) for action in actions] == [3, 3, 34]
    total = 0.0
    for action in actions:
        state, _, reward, _, _ = arc_step(state, action, CONFIG)
        total += float(reward)
    assert float(result["episode_reward"]) == pytest.approx(total)
    np.testing.assert_array_equal(final.working_grid, state.working_grid)

    longer = run_episode(jr.key(3), jnp.int32(99))
    assert int(longer["episode_length"]) == 5  # `max_steps` ends it
    assert not bool(longer["final_state"].done)


def test_the_runner_plays_as_many_episodes_as_there_are_keys(
    run_episode: Callable[..., dict[str, Any]],
) -> None:
    keys = jr.split(jr.key(3), 2)
    many = run_episode(keys, jnp.int32(2))
    assert many["episode_length"].tolist() == [3, 3]
    assert eqx.tree_equal(many["final_state"].task_data, TASK)
    singles = [run_episode(key, jnp.int32(2)) for key in keys]
    assert many["episode_reward"].tolist() == [float(one["episode_reward"]) for one in singles]
    assert _key_shape(jr.key(0)) == ()
    assert _key_shape(jax.random.PRNGKey(0)) == _key_shape(jax.random.split(jax.random.PRNGKey(0), 3)) == (2,)


def test_the_default_policy_takes_the_guides_steps_whatever_the_format() -> None:
    steps = np.array([0, 13])
    configs = {
        form: create_test_config(grid_size=15, selection_format=form) for form in ("point", "bbox", "mask")
    }
    point, box, mask = (scripted_action(config, steps) for config in configs.values())
    assert (point.row.tolist(), point.col.tolist()) == ([5, 8], [5, 5])
    assert [getattr(box, name).tolist() for name in ("r1", "c1", "r2", "c2")] == [[5, 8], [5, 5]] * 2
    assert np.argwhere(mask.selection).tolist() == [[0, 5, 5], [1, 8, 5]]
    one = scripted_action(configs["mask"], np.array(13))
    assert np.argwhere(one.selection).tolist() == [[8, 5]]
    action = tools.scripted_policy(CONFIG)(None, arc_reset(jr.key(0), CONFIG, TASK)[1], jr.key(0))
    assert isinstance(action, PointAction)
    assert (int(action.operation), int(action.row), int(action.col)) == (0, 5, 5)


def test_the_random_policy_stays_within_what_is_allowed() -> None:
    _, obs = arc_reset(jr.key(0), CONFIG, TASK)
    allowed = replace(CONFIG.action, allowed_operations=(2, 7))
    drawn = {}
    for form in ("point", "bbox", "mask"):
        config = replace(CONFIG, action=replace(allowed, selection_format=form))
        draw = jax.jit(jax.vmap(lambda key, c=config: tools.random_policy(c)(None, obs, key)))
        drawn[form] = draw(jr.split(jr.key(1), 64))
        assert set(np.unique(drawn[form].operation).tolist()) == {2, 7}
    assert set(np.unique(drawn["point"].row).tolist()) == set(range(6))
    assert set(np.unique(drawn["bbox"].c2).tolist()) == set(range(6))
    assert 0.45 < drawn["mask"].to_selection_mask(CONFIG.canvas).mean() < 0.55


def test_the_runner_refuses_what_cannot_work() -> None:
    with pytest.raises(ValueError, match="`max_steps` must be at least 1"):
        tools.create_optimized_episode_runner(CONFIG, TASK, max_steps=0)
    with pytest.raises(ValueError, match="the canvas has 4×4"):
        tools.create_optimized_episode_runner(create_test_config(grid_size=4), TASK)
    no_tests = create_mock_task(6, canvas=6, test_pairs=0)
    testing = replace(CONFIG, environment=replace(CONFIG.environment, episode_mode="test"))
    with pytest.raises(ValueError, match="needs test pairs"):
        tools.create_optimized_episode_runner(testing, no_tests)


def test_workers_use_new_keys_and_count_the_steps_that_were_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = tools.hierarchical_batch_processing(
        2, 2, 3, CONFIG, TASK, policy=fill_then_submit, policy_params=jnp.int32(2), max_steps=5
    )
    assert [reward.shape for reward in found] == [(2,)] * 6
    assert len({tuple(rewards.tolist()) for rewards in found}) > 3  # not one batch six times
    printed = capsys.readouterr().out
    assert "Total episodes: 12" in printed
    assert "Total environment steps: 36" in printed  # each ends after three, not after five
    with pytest.raises(ValueError, match="`task` must be"):
        tools.hierarchical_batch_processing(config=CONFIG)


def test_a_dynamic_batch_reports_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tools.DynamicBatchProcessor.steps_per_episode == 20
    monkeypatch.setattr(tools.DynamicBatchProcessor, "steps_per_episode", 5)
    monkeypatch.setattr(tools.DynamicBatchProcessor, "max_batch_size", 2)
    processor = tools.DynamicBatchProcessor(
        CONFIG, TASK, 2, policy=fill_then_submit, policy_params=jnp.int32(2)
    )
    rewards = [*processor.process_batch(num_episodes=1), *processor.process_batch(num_episodes=2)]
    assert [reward.shape for reward in rewards] == [(2,)] * 3
    assert len({tuple(reward.tolist()) for reward in rewards}) > 1  # new keys
    rows = processor.performance_history
    assert all(set(row) == {"episode", "batch_size", "throughput", "memory_gb"} for row in rows)
    assert [(row["episode"], row["batch_size"]) for row in rows] == [(0, 2), (1, 2), (2, 2)]
    assert all(row["throughput"] > 0 for row in rows)
    state, _ = arc_reset(jr.key(0), CONFIG, TASK)
    assert 2 * state_bytes(state) < rows[0]["memory_gb"] * 2**30 < 2**30
    with pytest.raises(ValueError, match="from 1 to 2; got 513"):
        tools.DynamicBatchProcessor(CONFIG, TASK, initial_batch_size=513)


def test_the_batch_size_follows_memory_and_each_size_compiles_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    class Program(Compiled):
        # 20 MB for each environment, so that 8 of them would take 160 MB of a limit of 200.
        memory = property(lambda self: MemoryPrediction(0, 20 * vars(self)["size"] * MB, 0, 0))

        def __init__(self, run: Any, keys: Any, *_: Any) -> None:
            compiled.append(len(keys))
            vars(self)["size"] = len(keys)

        def __call__(self, keys: Any, *_: Any) -> Any:
            return None, jnp.zeros(len(keys)), jnp.ones(len(keys), jnp.int32)

    monkeypatch.setattr("jaxarc.performance.batching.compile_ahead", Program)
    held = {"cpu": 0}
    monkeypatch.setattr("jaxarc.performance.batching.live_bytes", lambda: held)
    limit = 200 * MB / 2**30
    processor = tools.DynamicBatchProcessor(CONFIG, TASK, initial_batch_size=1, memory_limit_gb=limit)
    sizes = [len(reward) for reward in processor.process_batch(num_episodes=4)]
    assert sizes == [2, 4, 4, 4]  # 40 MB doubles, 80 is not below 40 %
    held["cpu"] = 140 * MB
    assert [len(reward) for reward in processor.process_batch(3)] == [2, 1, 1]  # 220, 180, 160 MB
    held["cpu"] = 0
    assert [len(reward) for reward in processor.process_batch(1)] == [2]
    assert sorted(compiled) == [1, 2, 4]
    assert processor.performance_history[1]["memory_gb"] == pytest.approx(80 * MB / 2**30)
    printed = capsys.readouterr().out
    assert "Increasing batch size: 1 → 2" in printed
    assert "Reducing batch size: 4 → 2" in printed


def test_the_ladder_of_sizes_ends_at_one_and_at_the_most() -> None:
    assert _ladder(64, 512) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert _ladder(100, 512) == [1, 3, 6, 12, 25, 50, 100, 200, 400, 512]


# --- monitor ---


def test_the_monitor_keeps_the_guides_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = tools.PerformanceMonitor()
    assert set(monitor.metrics) == {
        "step_times",
        "reset_times",
        "memory_usage",
        "throughput",
        "jit_compilation_times",
    }
    tools.warm_up_functions(CONFIG, TASK)
    state, _ = monitor.monitor_reset(jr.key(0), CONFIG, TASK)
    for step in range(3):
        state, _, _, done, _ = monitor.monitor_step(state, PointAction(0, step, 1), CONFIG)
    assert (int(state.step_count), bool(done)) == (3, False)
    states, _ = batch_reset(jr.split(jr.key(0), 2), CONFIG, TASK)
    for _ in range(2):
        states, *_ = monitor.monitor_batch_step(states, scripted_action(CONFIG, np.zeros(2, int)), CONFIG)
    assert states.step_count.tolist() == [2, 2]
    assert (len(monitor.metrics["step_times"]), len(monitor.metrics["reset_times"])) == (3, 1)
    compiled = len(monitor.metrics["jit_compilation_times"].get("batch_step", []))
    assert len(monitor.metrics["throughput"]) == 2 - compiled
    assert len(monitor.metrics["memory_usage"]) == 6
    stats = monitor.get_statistics()
    assert set(stats) == {
        *(f"step_time_{figure}" for figure in ("mean", "std", "min", "max")),
        *("reset_time_mean", "reset_time_std", "throughput_mean", "throughput_max"),
    }
    assert stats["step_time_min"] <= stats["step_time_mean"] <= stats["step_time_max"]
    monitor.print_report()
    assert "throughput_max" in capsys.readouterr().out


# --- tasks ---


def test_the_mapped_loader_reads_tasks_and_ends_where_it_should(tmp_path: Path) -> None:
    def data(i: int) -> dict[str, Any]:
        return {"train": [{"input": [[i]], "output": [[i, i]]}], "test": [{"input": [[1]], "output": [[2]]}]}

    tasks = TaskSet.of(parse_task(data(i), task_id=f"t{i}") for i in range(4))
    write_task_file(tasks, tmp_path / "tasks.arcbank")
    loader = tools.MemoryMappedTaskLoader(tmp_path / "tasks.arcbank")
    assert len(loader) == 4
    task = loader.get_task(2)
    assert int(task.task_index) == 2
    assert task.output_grids_examples[0, 0].tolist() == [2, 2]
    batch = loader.get_batch_tasks([3, 1])
    assert [int(one.input_grids_examples[0, 0, 0]) for one in batch] == [3, 1]
    with pytest.raises(ValueError, match="`task_id` must be from 0 to 3; got 4"):
        loader.get_task(4)
    with pytest.raises(ValueError, match="got -1"):
        loader.get_task(-1)
    few = tools.MemoryMappedTaskLoader(tmp_path / "tasks.arcbank", max_tasks=2)
    with pytest.raises(ValueError, match="`max_tasks` is 2"):
        few.get_batch_tasks([0, 2])
    made = tools.create_jax_task_from_data(data(2), 2)
    assert tools.create_jax_task_from_data is create_jax_task_from_data
    np.testing.assert_array_equal(made.output_grids_examples, task.output_grids_examples)

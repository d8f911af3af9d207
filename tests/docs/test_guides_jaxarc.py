"""The guides' blocks that belong to jaxarc, one by one, each after its stated preamble.

The preamble imports what a block uses without importing it, and makes `config`, `task`, `state` and actions where the
guide has them from elsewhere. The mock task mirrors its input, 15×15 cells on a canvas of 30×30; the guides paint cells
of column 5 with colour 0, so the grid that must come out, and its reward, are worked out here with NumPy.
"""

import contextlib
import gzip
import inspect
import io
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guide_blocks import (
    Allowed,
    Case,
    Key,
    Namespace,
    allowed_lines,
    blocks,
    name_of,
    needs_guides,
    owned_by,
    play,
)

from jaxarc import performance, tasks
from jaxarc.envs import functional
from jaxarc.envs.history import empty_history
from jaxarc.envs.state import state_bytes
from jaxarc.envs.structured_actions import demand_action
from jaxarc.tasks import JaxArcTask, TaskSet, extract_task_id_from_index
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(autouse=True)
def _as_a_user_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder, and no setting of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQX_ON_ERROR", raising=False)


# --- preambles ---

IMPORTS = """
    import time
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from jaxarc.envs import (
        EnvironmentConfig,
        JaxArcConfig,
        UnifiedActionConfig,
        UnifiedDatasetConfig,
        VisualizationConfig,
    )
    from jaxarc.envs.functional import arc_reset, arc_step, batch_reset, batch_step
    from jaxarc.envs.structured_actions import BboxAction, MaskAction, PointAction
    from jaxarc.tasks import JaxArcTask
    from jaxarc.testing import create_mock_task, create_test_config
"""
# 30×30, 100 steps, points: equal to the config of the guide's quick start, so they share compiled programs.
TASK = """
    config = create_test_config()
    task = create_mock_task()
"""
STATE = """
    state, obs = arc_reset(jax.random.PRNGKey(42), config, task)
    action = PointAction(operation=jnp.array(0), row=jnp.array(5), col=jnp.array(5))
"""
GRID = "    grid_shape = (30, 30)\n    batch_size = 16\n"
# What block 7 of guide 002 makes: 15×15, 50 steps, points.
SMALL = """
    from jaxarc.performance import create_memory_optimized_config
    optimized_config = create_memory_optimized_config()
    task = create_mock_task()
"""

INFO = {
    *("terminated", "truncated", "final_observation", "success", "similarity", "step_count", "valid_action"),
    *("similarity_improvement", "is_control_operation", "operation_type", "episode_mode"),
    *("current_pair_index", "available_demo_pairs", "available_test_pairs", "action_history_length"),
}
SIDE, STEP_PENALTY = 15, 0.01


def painted(task: JaxArcTask, pair: Any, rows: Any) -> tuple[np.ndarray, float]:
    """The input of a pair with cells (rows, 5) painted 0, and how much nearer to the output that is."""
    grid = np.array(task.input_grids_examples[int(pair)][:SIDE, :SIDE])
    target = np.asarray(task.output_grids_examples[int(pair)][:SIDE, :SIDE])
    before = np.mean(grid == target)
    grid[rows, 5] = 0
    return grid, float(np.mean(grid == target) - before)


def is_one_step(stepped: Any, task: JaxArcTask, row: int = 5) -> None:
    """Five values of `arc_step` after painting (row, 5) of a fresh episode."""
    state, obs, reward, done, info = stepped
    grid, gain = painted(task, state.pair_index, row)
    np.testing.assert_array_equal(np.asarray(state.working_grid)[:SIDE, :SIDE], grid)
    np.testing.assert_array_equal(np.asarray(obs.grid)[:SIDE, :SIDE], grid)
    assert float(reward) == pytest.approx(gain - STEP_PENALTY, abs=1e-6)
    assert not bool(done)
    assert set(info) >= INFO
    assert (int(info["step_count"]), bool(info["valid_action"]), bool(info["success"])) == (1, True, False)


def is_one_batch_step(stepped: Any, task: JaxArcTask, rows: np.ndarray) -> None:
    """Five batched values of `batch_step` after painting (row, 5) of fresh episodes."""
    states, obs, rewards, dones, infos = stepped
    count = len(rows)
    assert states.working_grid.shape[0] == obs.grid.shape[0] == count
    assert (rewards.shape, dones.shape, infos["similarity"].shape) == ((count,), (count,), (count,))
    assert not np.any(dones)
    for i, row in enumerate(rows):
        grid, gain = painted(task, states.pair_index[i], row)
        np.testing.assert_array_equal(np.asarray(states.working_grid[i])[:SIDE, :SIDE], grid)
        assert float(rewards[i]) == pytest.approx(gain - STEP_PENALTY, abs=1e-6)


# --- guide 001 ---


def both_ways_to_run_give_the_right_grid(found: Namespace, _: str) -> None:
    one = [found[name] for name in ("state", "obs", "reward", "done", "info")]
    is_one_step(one, found["task"])
    many = [found[name] for name in ("batch_states", "batch_obs", "rewards", "dones", "infos")]
    is_one_batch_step(many, found["task"], np.full(16, 5))
    assert len(set(np.asarray(found["batch_states"].pair_index).tolist())) > 1  # keys differ, so do pairs


def the_real_functions_have_that_signature_and_are_compiled(found: Namespace, _: str) -> None:
    for name, given in (("arc_reset", 3), ("arc_step", 3)):
        said = inspect.signature(found[name]).parameters  # the guide's own, which only say `...`
        ours = inspect.signature(getattr(functional, name)).parameters
        assert list(said)[:given] == list(ours)[:given]
    config, task, key = found["config"], found["task"], jax.random.PRNGKey(0)
    state, _ = functional.arc_reset(key, config, task)
    functional.arc_step(state, found["action"], config)
    with CompileWatch() as watch:
        state, _ = functional.arc_reset(key, config, task)
        state = functional.arc_step(state, found["action"], config)[0]
        functional.arc_step(state, found["action"], config)
    assert (watch.traces, watch.compiles) == (0, 0)  # the older step compiled again at its second call


def the_wrapper_steps_and_so_does_plain_jit(found: Namespace, _: str) -> None:
    state, action, config = found["state"], found["action"], found["config"]
    is_one_step(found["my_function"](state, action, config), found["task"])
    plain = jax.jit(static_argnames=["config"])(
        lambda state, config: functional.arc_reset(state, config, found["task"])
    )
    again, _ = plain(jax.random.PRNGKey(42), config=config)  # "would fail" in the guide's world
    np.testing.assert_array_equal(again.working_grid, state.working_grid)


def every_row_of_the_batch_is_painted(found: Namespace, _: str) -> None:
    many = [found[name] for name in ("batch_states", "batch_obs", "rewards", "dones", "infos")]
    is_one_batch_step(many, found["task"], np.arange(32) % 10 + 5)
    assert eqx.tree_equal(found["batch_states"].task_data, found["task"])  # shared: once for the batch


def histories_have_the_size_of_their_format(found: Namespace, _: str) -> None:
    configs = [found[f"{name}_config"] for name in ("point", "bbox", "mask")]
    assert len({hash(config) for config in configs}) == 3
    sizes = [empty_history(config).nbytes for config in configs]
    assert sizes == [400, 800, 12_400]  # 100 steps of 4, 8 and 124 bytes


def one_cell(found: Namespace, _: str) -> None:
    assert found["selection_mask"].shape == (30, 30)
    assert np.argwhere(found["selection_mask"]).tolist() == [[5, 5]]


def a_rectangle(found: Namespace, _: str) -> None:
    mask = np.zeros((30, 30), bool)
    mask[3:8, 3:8] = True
    np.testing.assert_array_equal(found["selection_mask"], mask)
    assert int(np.sum(found["selection_mask"])) == 25


def the_mask_itself(found: Namespace, _: str) -> None:
    np.testing.assert_array_equal(found["selection_mask"], found["mask"])
    assert found["selection_mask"].dtype == bool
    assert int(np.sum(found["selection_mask"])) == 25


def masks_come_compiled_and_batched(found: Namespace, _: str) -> None:
    masks = np.zeros((16, 30, 30), bool)
    masks[np.arange(16), np.arange(16), 5] = True
    np.testing.assert_array_equal(found["batch_masks"], masks)
    first = jax.tree.map(lambda leaf: leaf[0], found["batch_actions"])
    np.testing.assert_array_equal(found["process_action"](first, (30, 30)), masks[0])


def dictionaries_are_refused_with_the_way_to_go(found: Namespace, _: str) -> None:
    with pytest.raises(TypeError):  # from the type check that tests run under, before ours
        functional.arc_step(found["state"], found["action"], found["config"])
    with pytest.raises(TypeError, match=r"got dict\. Write PointAction\(operation=0, row=5, col=5\)"):
        demand_action(found["action"])


def the_structured_action_steps(found: Namespace, _: str) -> None:
    is_one_step(functional.arc_step(found["state"], found["action"], found["config"]), found["task"])


def good_actions_pass_and_bad_ones_raise(found: Namespace, _: str) -> None:
    state, action, config = found["state"], found["action"], found["config"]
    is_one_step(found["validate_and_step"](state, action, config), found["task"])
    off_canvas = eqx.tree_at(lambda a: a.row, action, jnp.int32(30))
    with pytest.raises(eqx.EquinoxRuntimeError, match="must select cells of the canvas"):
        found["validate_and_step"](state, off_canvas, config)
    unknown = eqx.tree_at(lambda a: a.operation, action, jnp.int32(35))
    with pytest.raises(eqx.EquinoxRuntimeError, match="must be an operation that exists"):
        found["validate_and_step"](state, unknown, config)


def the_benchmark_prints_two_figures(found: Namespace, _: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found["benchmark_performance"]()
    figures = re.fullmatch(
        r"Average step time: ([\d.]+)ms\nThroughput: (\d+) steps/sec\n", printed.getvalue()
    )
    assert figures is not None
    milliseconds, rate = map(float, figures.groups())
    assert milliseconds * rate == pytest.approx(1000, rel=0.05)


def the_config_hashes(found: Namespace, _: str) -> None:
    assert hash(found["config"]) == hash(found["JaxArcConfig"]())  # point is the default
    assert found["config"].action.selection_format == "point"


def the_history_is_shorter(found: Namespace, _: str) -> None:
    assert empty_history(found["config"]).nbytes == 50 * 4
    assert hash(found["config"]) is not None


def the_second_call_is_no_compilation(found: Namespace, _: str) -> None:
    is_one_step(found["result"], found["task"])
    assert 0 < found["elapsed"] < 0.5  # compiling takes seconds


@needs_guides
def test_the_guides_saving_gives_a_state_back(tmp_path: Path) -> None:
    """Block 14 of guide 001 on a real state: the round trip works, though its file holds the task; ours does not."""
    from jaxarc.envs import load_state_efficiently, save_state_efficiently
    from jaxarc.testing import create_mock_task, create_test_config

    mock = create_mock_task(task_index=0)
    raw = tasks.parse_task(
        {
            "train": [
                {"input": np.asarray(a[:15, :15]).tolist(), "output": np.asarray(b[:15, :15]).tolist()}
                for a, b in zip(mock.input_grids_examples, mock.output_grids_examples, strict=True)
            ],
            "test": [{"input": [[1]], "output": [[2]]}],
        },
        task_id="mirror",
    )
    parser = tasks.set_default_tasks(TaskSet.of([raw], canvas=(30, 30)))
    guide: Namespace = {"extract_task_id_from_index": extract_task_id_from_index}
    exec(blocks("001")[14], guide)
    config, task = create_test_config(), parser.get_task_by_id("mirror")
    state, _ = functional.arc_reset(jax.random.PRNGKey(42), config, task)
    dummy, _ = functional.arc_reset(jax.random.PRNGKey(1), config, task)
    theirs, ours = tmp_path / "guide.eqx", tmp_path / "ours.jxw"
    guide["save_state_efficiently"](state, theirs)
    save_state_efficiently(state, ours)
    for again in (
        guide["load_state_efficiently"](theirs, parser, dummy),
        load_state_efficiently(ours, parser, dummy),
    ):
        assert jax.tree.all(jax.tree.map(np.array_equal, again, state))
    task_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(task))
    assert theirs.stat().st_size > task_bytes
    assert ours.stat().st_size < state_bytes(state) + 6_000 < task_bytes


# --- guide 002 ---


def reset_and_step_are_the_environments(found: Namespace, _: str) -> None:
    config, task = found["config"], found["task"]
    state, obs = found["optimized_reset"](jax.random.PRNGKey(42), config, task)
    np.testing.assert_array_equal(obs.grid, found["obs"].grid)
    is_one_step(found["optimized_step"](state, found["action"], config), task)


def warm_means_that_nothing_compiles(found: Namespace, printed: str) -> None:
    assert "Functions warmed up" in printed
    with CompileWatch() as watch:
        found["warm_up_functions"](found["config"], found["task"])
    assert (watch.traces, watch.compiles) == (0, 0)


def each_action_type_gives_its_own_grid(found: Namespace, _: str) -> None:
    is_one_step(found["point_result"], found["task"])
    for name, columns in (("bbox_result", slice(5, 8)), ("mask_result", slice(0, 30, 2))):
        state = found[name][0]
        expected = np.array(found["task"].input_grids_examples[int(state.pair_index)])
        expected[5, columns] = 0
        np.testing.assert_array_equal(state.working_grid, expected)
        assert bool(found[name][4]["valid_action"])


def compiling_takes_longer_than_running(found: Namespace, printed: str) -> None:
    profile = found["jit_profile"]
    assert set(profile) == {"compilation_time", "execution_time", "speedup"}
    assert profile["speedup"] == pytest.approx(profile["compilation_time"] / profile["execution_time"])
    assert profile["speedup"] > 1
    assert "Speedup after compilation:" in printed


def history_memory_is_packed(found: Namespace, printed: str) -> None:
    """1,000 steps of 4, 8 and 124 bytes, where the guide's records had 24, 32 and 3,616."""
    usage = found["memory_analysis"]
    bytes_used = {name: round(row["action_history_mb"] * 2**20) for name, row in usage.items()}
    assert bytes_used == {"point": 4_000, "bbox": 8_000, "mask": 124_000}
    assert [row["fields_per_action"] for row in usage.values()] == [6, 8, 904]
    assert "Point vs Mask: 96.8% reduction" in printed
    assert "Bbox vs Mask: 93.5% reduction" in printed
    ours = performance.analyze_memory_usage_by_format()  # in decimal megabytes
    assert [row["action_history_mb"] for row in ours.values()] == pytest.approx([0.004, 0.008, 0.124])


def the_small_config_is_ours(found: Namespace, _: str) -> None:
    config = found["optimized_config"]
    assert config == performance.create_memory_optimized_config()
    assert (config.canvas, config.environment.max_episode_steps, config.visualization.enabled) == (
        (15, 15),
        50,
        False,
    )


def resident_memory_is_reported_for_each_batch(found: Namespace, printed: str) -> None:
    profile = found["memory_profile"]
    assert list(profile) == [1, 32]
    for size, row in profile.items():
        assert row["total_memory_mb"] == pytest.approx(row["memory_after"] - row["memory_before"])
        assert row["per_env_memory_mb"] == pytest.approx(row["total_memory_mb"] / size)
        assert row["memory_before"] > 10  # the process; arrays of a batch of 32 are a few kB of it
    assert "Batch  32:" in printed


def a_state_comes_and_the_pool_stays_empty(found: Namespace, _: str) -> None:
    state, pool = found["state"], found["pool"]
    np.testing.assert_array_equal(
        np.asarray(state.working_grid),
        np.asarray(found["task"].input_grids_examples[int(state.pair_index)])[:15, :15],
    )
    assert (len(pool.available_states), len(pool.in_use_states)) == (
        0,
        0,
    )  # the guide never registers a new state


def the_fastest_of_the_sizes_is_chosen(found: Namespace, printed: str) -> None:
    results, best = found["batch_results"], found["optimal_batch_size"]
    assert list(results) == [1, 2]
    assert best == max(results, key=lambda size: results[size]["throughput"])
    for size, row in results.items():
        assert set(row) == {"throughput", "per_env_time", "memory_used_gb", "efficiency"}
        assert row["throughput"] * row["per_env_time"] == pytest.approx(1)
        # The guide's efficiency is 1 / elapsed; ours is the share of the best throughput.
        assert row["efficiency"] == pytest.approx(row["throughput"] / size)
    assert f"Optimal batch size: {best}" in printed


def episodes_give_the_rewards_that_numpy_gives(found: Namespace, printed: str) -> None:
    results, task = found["hierarchical_results"], found["task"]
    assert (len(results), results[0].shape) == (10, (32,))
    # 50 steps paint rows 5 to 14 of column 5; the reward depends on the pair alone.
    known = [painted(task, pair, range(5, 15))[1] - 50 * STEP_PENALTY for pair in range(3)]
    rewards = np.stack(results)
    assert np.min(np.abs(rewards[..., None] - np.array(known)), axis=-1).max() < 1e-5
    np.testing.assert_array_equal(results[0], results[4])  # the guide reuses a worker's keys in every episode
    assert "Total environment steps: 320" in printed  # and forgets the 50 steps of each


def the_size_follows_the_memory(found: Namespace, printed: str) -> None:
    processor, results = found["processor"], found["dynamic_results"]
    (row,) = processor.performance_history
    grows, shrinks = row["memory_gb"] < 0.4 * 4, row["memory_gb"] > 0.8 * 4
    assert row["batch_size"] == {(True, False): 32, (False, True): 8}.get((grows, shrinks), 16)
    assert (row["episode"], row["throughput"] > 0) == (0, True)
    assert results[0].shape == (row["batch_size"],)
    known = [painted(found["task"], pair, 5)[1] - 20 * STEP_PENALTY for pair in range(3)]
    assert np.min(np.abs(np.asarray(results[0])[:, None] - np.array(known)), axis=-1).max() < 1e-5
    assert "Episode 0: batch_size=" in printed


def a_profile_is_written(found: Namespace, _: str) -> None:
    found["profile_with_jax_profiler"](found["optimized_config"], found["task"], output_dir="profile")
    (trace,) = Path("profile").rglob("*.trace.json.gz")
    assert len(gzip.decompress(trace.read_bytes())) > 10_000


def the_monitor_has_every_figure(found: Namespace, printed: str) -> None:
    monitor, state = found["monitor"], found["state"]
    assert (len(monitor.metrics["step_times"]), len(monitor.metrics["reset_times"])) == (50, 1)
    stats = monitor.get_statistics()
    assert set(stats) == {
        *("step_time_mean", "step_time_std", "step_time_min", "step_time_max"),
        *("reset_time_mean", "reset_time_std"),
    }
    assert stats["step_time_min"] <= stats["step_time_mean"] <= stats["step_time_max"]
    grid, _ = painted(found["task"], state.pair_index, range(5, 15))
    np.testing.assert_array_equal(state.working_grid, grid)
    assert (int(state.step_count), bool(found["done"])) == (50, True)  # 50 is the limit of the config
    assert "Step Time:" in printed


def compiling_is_said_to_work(_: Namespace, printed: str) -> None:
    assert "Configuration is hashable" in printed
    assert "JIT compilation successful" in printed


def no_leak_is_found(found: Namespace, printed: str) -> None:
    assert [i for i, _ in found["memory_samples"]] == [0, 100, 200, 300, 400]
    assert all(used > 10 for _, used in found["memory_samples"])
    assert "No significant memory leak detected" in printed


def episodes_run_to_their_end(found: Namespace, printed: str) -> None:
    results, task = found["results"], found["task"]
    assert len(results) == 10
    for result in results:
        state = result["final_state"]
        grid, gain = painted(task, state.pair_index, range(5, 15))
        np.testing.assert_array_equal(state.working_grid, grid)
        # The guide drops the step that ends the episode, so 49 of 50 count.
        assert int(result["episode_length"]) == int(state.step_count) == 49
        assert float(result["episode_reward"]) == pytest.approx(gain - 49 * STEP_PENALTY, abs=1e-5)
    mean = np.mean([float(result["episode_reward"]) for result in results])
    assert f"Average episode reward: {mean:.3f}" in printed


def tasks_come_from_the_file_that_was_named(found: Namespace, _: str) -> None:
    cells = np.random.default_rng(0).integers(0, 10, (4, 30, 30), np.int8)
    task = found["create_jax_task_from_data"](jnp.asarray(cells), 7)
    assert (int(task.task_index), int(task.num_train_pairs), int(task.num_test_pairs)) == (7, 3, 1)
    np.testing.assert_array_equal(task.test_input_grids[0], cells[3])

    # The guide's loader makes up random numbers in a file of its own, and takes rows of cells for pairs.
    with pytest.raises(TypeError, match="`input_grids_examples` must hold integers; got float32"):
        found["MemoryMappedTaskLoader"]("large_dataset.dat", max_tasks=2).get_task(0)
    assert Path("task_data.dat").exists()
    with pytest.raises(ValueError, match="Task ID 2 exceeds maximum 2"):
        found["MemoryMappedTaskLoader"]("large_dataset.dat", max_tasks=2).get_task(2)

    raw = {"train": [{"input": [[1, 2]], "output": [[2, 1]]}], "test": [{"input": [[3]], "output": [[4]]}]}
    tasks.write_task_file([tasks.parse_task(raw, task_id="a")], "large_dataset.dat")
    loader = performance.MemoryMappedTaskLoader("large_dataset.dat")
    assert np.asarray(loader.get_task(0).input_grids_examples[0]).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="`task_id` must be from 0 to 0; got 1"):
        loader.get_task(1)


CASES: dict[Key, Case] = {
    ("001", 0): Case(both_ways_to_run_give_the_right_grid, "from jaxarc.testing import create_mock_task"),
    ("001", 1): Case(the_real_functions_have_that_signature_and_are_compiled, IMPORTS + TASK + STATE),
    ("001", 2): Case(the_wrapper_steps_and_so_does_plain_jit, IMPORTS + TASK + STATE),
    ("001", 3): Case(every_row_of_the_batch_is_painted, IMPORTS + TASK),
    ("001", 5): Case(histories_have_the_size_of_their_format, IMPORTS),
    ("001", 6): Case(one_cell, "import jax.numpy as jnp"),
    ("001", 7): Case(a_rectangle, IMPORTS + GRID),
    ("001", 8): Case(the_mask_itself, IMPORTS + GRID),
    ("001", 9): Case(masks_come_compiled_and_batched, IMPORTS + GRID),
    ("001", 10): Case(dictionaries_are_refused_with_the_way_to_go, IMPORTS + TASK + STATE),
    ("001", 11): Case(the_structured_action_steps, IMPORTS + TASK + STATE),
    ("001", 12): Case(good_actions_pass_and_bad_ones_raise, IMPORTS + TASK + STATE),
    ("001", 15): Case(the_benchmark_prints_two_figures, IMPORTS),
    ("001", 16): Case(the_config_hashes, IMPORTS),
    ("001", 17): Case(the_history_is_shorter, IMPORTS),
    ("001", 18): Case(the_second_call_is_no_compilation, IMPORTS + TASK + STATE),
    ("002", 1): Case(reset_and_step_are_the_environments, IMPORTS + TASK + STATE),
    ("002", 2): Case(warm_means_that_nothing_compiles, IMPORTS + TASK),
    ("002", 3): Case(
        each_action_type_gives_its_own_grid,
        IMPORTS
        + TASK
        + STATE
        + """
    point_action = action
    bbox_action = BboxAction(0, 5, 5, 5, 7)
    mask_action = MaskAction(0, jnp.zeros((30, 30), bool).at[5, ::2].set(True))
    """,
    ),
    ("002", 5): Case(compiling_takes_longer_than_running, IMPORTS + TASK),
    ("002", 6): Case(history_memory_is_packed, IMPORTS),
    ("002", 7): Case(the_small_config_is_ours, IMPORTS),
    ("002", 8): Case(
        resident_memory_is_reported_for_each_batch,
        IMPORTS + SMALL,
        smaller=(
            (
                "memory_profile = profile_memory_usage(optimized_config, task)",
                "memory_profile = profile_memory_usage(optimized_config, task, batch_sizes=[1, 32])",
            ),
        ),
    ),
    ("002", 10): Case(a_state_comes_and_the_pool_stays_empty, IMPORTS + SMALL),
    ("002", 11): Case(
        the_fastest_of_the_sizes_is_chosen,
        IMPORTS + SMALL,
        smaller=(
            (
                "optimal_batch_size, batch_results = find_optimal_batch_size(optimized_config, task)",
                "optimal_batch_size, batch_results = find_optimal_batch_size(optimized_config, task, max_batch_size=2)",
            ),
        ),
    ),
    ("002", 12): Case(episodes_give_the_rewards_that_numpy_gives, IMPORTS + SMALL),
    ("002", 13): Case(
        the_size_follows_the_memory,
        IMPORTS + SMALL,
        smaller=(
            (
                "processor = DynamicBatchProcessor(optimized_config, task)",
                "processor = DynamicBatchProcessor(optimized_config, task, initial_batch_size=16)",
            ),
            (
                "dynamic_results = processor.process_batch(num_episodes=20)",
                "dynamic_results = processor.process_batch(num_episodes=1)",
            ),
        ),
    ),
    ("002", 14): Case(a_profile_is_written, IMPORTS + SMALL),
    ("002", 15): Case(the_monitor_has_every_figure, IMPORTS + SMALL),
    ("002", 16): Case(compiling_is_said_to_work, IMPORTS + SMALL),
    ("002", 17): Case(no_leak_is_found, IMPORTS + SMALL),
    ("002", 18): Case(
        episodes_run_to_their_end,
        IMPORTS + SMALL,
        allowed=(
            Allowed(
                "jnp.where(should_continue, new_state, state),",
                TypeError,
                "`jnp.where` takes arrays; a state is a tree of them, and no JAX ever chose between trees",
                "jax.tree.map(lambda new, old: jnp.where(should_continue, new, old), new_state, state),",
            ),
            Allowed(
                "print(f\"Average episode reward: {jnp.mean([r['episode_reward'] for r in results]):.3f}\")",
                TypeError,
                "`jnp.mean` takes an array; it never took a list",
                "print(f\"Average episode reward: {jnp.mean(jnp.array([r['episode_reward'] for r in results])):.3f}\")",
            ),
        ),
    ),
    ("002", 19): Case(tasks_come_from_the_file_that_was_named, IMPORTS),
}


def test_every_block_of_jaxarc_is_run() -> None:
    assert owned_by("jaxarc") == set(CASES)


@needs_guides
@pytest.mark.parametrize("key", CASES, ids=name_of)
def test_a_block_of_jaxarc_runs(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    play(CASES[key], key, capsys)


@needs_guides
@pytest.mark.parametrize(("key", "bad"), allowed_lines(CASES), ids=name_of)
def test_a_line_that_is_allowed_to_fail_does_fail(
    key: Key, bad: Allowed, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(bad.error):
        play(CASES[key], key, capsys, keep=bad.line)

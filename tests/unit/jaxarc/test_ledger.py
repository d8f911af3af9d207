"""jaxarc's ledger, row by row: each promise of the guides, its structure and at least one value.

`ROWS` names the tests of every row of `ledger/jaxarc.md`, sections 1a to 1c, in the order of the ledger; a phrase
identifies the row. A test of another file is named with its file; the rest is here, on one config and one task.
"""

import ast
import functools
import inspect
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarc.envs
import jaxarc.performance as tools
from jaxarc.envs import (
    ArcEnvState,
    ArcObservation,
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    VisualizationConfig,
    state_bytes,
)
from jaxarc.envs.functional import arc_reset, arc_step, batch_reset, batch_step
from jaxarc.envs.history import empty_history, records, remember
from jaxarc.tasks import JaxArcTask
from jaxarc.testing import create_mock_task, create_test_config
from jaxarc.utils.error_handling import JAXErrorHandler
from jaxworlds.memory import process_memory

pytestmark = pytest.mark.usefixtures("quick_compile")

ROOT = Path(__file__).resolve().parents[3]
LEDGER = ROOT.parent / "shared" / "ledger" / "jaxarc.md"

CORE = "unit/jaxworlds/test_ledger.py::"
TOOLS = "unit/jaxarc/performance/test_performance.py::"
ENV = "unit/jaxarc/envs/test_env.py::"
TASKS = "unit/jaxarc/tasks/test_tasks.py::"
SAVING = "unit/jaxarc/envs/test_state_files.py::"
LAWS = "laws/test_arc_env_laws.py::"

# (section, phrase in the row, tests)
ROWS: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "1a",
        "jax_log_grid(",
        (
            CORE + "test_grids_and_episodes_are_logged_from_compiled_code",
            "unit/jaxarc/utils/visualization/test_visualization.py::test_a_padded_grid_logged_from_compiled_code_fits_80_columns",
        ),
    ),
    (
        "1a",
        "jax_log_episode_summary(",
        (
            CORE + "test_grids_and_episodes_are_logged_from_compiled_code",
            "unit/jaxarc/utils/visualization/test_visualization.py::test_episode_summaries_are_coloured_on_a_terminal",
        ),
    ),
    ("1a", "adaptive_visualization_callback(", (CORE + "test_adaptive_callbacks_throttle_themselves",)),
    ("1a", "get_callback_performance_stats(", (CORE + "test_callback_statistics",)),
    ("1a", "print_callback_performance_report(", (CORE + "test_callback_statistics",)),
    ("1a", "reset_callback_performance_stats(", (CORE + "test_callback_statistics",)),
    ("1a", "log_grid_to_console(", (CORE + "test_the_console_twin_prints_the_same",)),
    ("1a", "MemoryManager(", (CORE + "test_the_memory_manager",)),
    ("1a", ".register_lazy_loader(", (CORE + "test_the_memory_manager",)),
    ("1a", ".get_memory_report(", (CORE + "test_the_memory_manager",)),
    ("1a", ".cleanup_memory(", (CORE + "test_the_memory_manager",)),
    ("1a", "get_memory_manager(", (CORE + "test_the_manager_of_the_process",)),
    ("1a", "LazyLoader(", (CORE + "test_lazy_loading",)),
    ("1a", "create_lazy_visualization_loader(", (CORE + "test_lazy_files_are_dropped_when_idle",)),
    ("1a", "CompressedStorage(", (CORE + "test_compressed_storage",)),
    ("1a", "optimize_array_memory(", (CORE + "test_smaller_arrays",)),
    ("1a", "Visualization cache", (CORE + "test_the_visualization_cache",)),
    ("1a", "GC tuning", (CORE + "test_garbage_collection",)),
    ("1a", "jax.debug.callback", (CORE + "test_every_callback_is_isolated_converted_and_counted",)),
    ("1a", "troubleshooting", (CORE + "test_troubleshooting_is_answered",)),
    (
        "1a",
        "Hydra file",
        (
            CORE + "test_the_guides_yaml_file_changes_the_configuration",
            "unit/jaxarc/envs/test_adapter.py::test_the_guides_file_is_the_visualization_group",
        ),
    ),
    ("1b", "from jaxarc.envs import JaxArcConfig", ("test_names_are_where_the_guides_import_them",)),
    ("1b", "JaxArcConfig(environment=", ("test_a_config_hashes_and_is_static",)),
    ("1b", "EnvironmentConfig(max_episode_steps=", ("test_parts_of_a_config_are_checked",)),
    ("1b", "UnifiedDatasetConfig(max_grid_height=", ("test_parts_of_a_config_are_checked",)),
    ("1b", "UnifiedActionConfig(selection_format=", ("test_parts_of_a_config_are_checked",)),
    ("1b", "VisualizationConfig(enabled=", ("test_parts_of_a_config_are_checked",)),
    ("1b", "from jaxarc.envs.functional import", ("test_names_are_where_the_guides_import_them",)),
    ("1b", "arc_reset(key, config, task_data)", ("test_a_reset_gives_state_and_observation",)),
    ("1b", "arc_step(state, action, config)", ("test_a_step_gives_five_values",)),
    ("1b", "batch_reset(keys", ("test_a_batch_shares_one_task",)),
    ("1b", "batch_step(states", ("test_a_batch_shares_one_task",)),
    (
        "1b",
        "both usable again",
        ("test_plain_jit_takes_the_config", LAWS + "test_inside_a_program_of_the_users"),
    ),
    ("1b", "from jaxarc.envs.structured_actions", ("test_names_are_where_the_guides_import_them",)),
    ("1b", "PointAction(operation,row,col)", ("test_actions_are_pytrees_and_give_masks",)),
    ("1b", ".to_selection_mask", ("test_actions_are_pytrees_and_give_masks",)),
    ("1b", "operation 0 = fill", ("test_a_step_gives_five_values",)),
    ("1b", "dictionary actions", ("test_dictionary_actions_are_refused",)),
    ("1b", "JAXErrorHandler.validate_action", ("test_actions_are_validated_in_compiled_code",)),
    ("1b", ".validate_state_consistency", ("test_states_are_validated_in_compiled_code",)),
    (
        "1b",
        "env vars",
        (ENV + "test_invalid_actions_raise_with_checks_on", CORE + "test_checks_in_compiled_code"),
    ),
    (
        "1b",
        "keys:",
        ("test_a_batch_shares_one_task", LAWS + "test_one_key_one_story_and_another_key_another"),
    ),
    ("1b", "psutil only", ("test_psutil_is_optional",)),
    ("1b", "state fields used", ("test_a_reset_gives_state_and_observation",)),
    ("1b", "history record fields", ("test_records_have_the_guides_fields",)),
    (
        "1b",
        "JaxArcTask(",
        (
            TASKS + "test_a_task_holds_its_grids_and_masks",
            TASKS + "test_a_task_refuses_what_does_not_fit",
            "test_the_mock_task_and_config",
        ),
    ),
    ("1b", "create_mock_task()", ("test_the_mock_task_and_config",)),
    ("1b", "parser.get_task_by_id", (TASKS + "test_lookup_by_id_and_index",)),
    ("1b", "parser.get_task_by_index", (TASKS + "test_lookup_by_id_and_index",)),
    ("1b", "extract_task_id_from_index", (TASKS + "test_ids_from_indices_need_a_set",)),
    (
        "1b",
        "save_state_efficiently",
        (
            SAVING + "test_a_state_of_one_task_comes_back",
            SAVING + "test_the_file_holds_no_task_and_is_that_much_smaller",
            SAVING + "test_the_tasks_of_a_state_can_be_exchanged_by_hand",
        ),
    ),
    ("1c", "constants TARGET_STEP_TIME", ("test_targets_and_small_helpers",)),
    (
        "1c",
        "optimized_reset/optimized_step",
        (TOOLS + "test_the_compiled_functions_do_what_the_environment_does",),
    ),
    ("1c", "warm_up_functions", (TOOLS + "test_after_the_warm_up_nothing_compiles",)),
    ("1c", "process_action", (TOOLS + "test_the_compiled_functions_do_what_the_environment_does",)),
    ("1c", "verify_config_hashability", ("test_targets_and_small_helpers",)),
    ("1c", "profile_jit_compilation", (TOOLS + "test_the_profile_of_compiling_has_the_guides_figures",)),
    ("1c", "analyze_memory_usage_by_format", (TOOLS + "test_memory_by_format_is_the_true_size",)),
    ("1c", "get_fields_per_action", ("test_targets_and_small_helpers",)),
    ("1c", "create_memory_optimized_config", (TOOLS + "test_the_small_config_is_the_guides",)),
    ("1c", "profile_memory_usage", (TOOLS + "test_memory_of_a_batch_is_exact",)),
    ("1c", "LazyTaskLoader", ("test_a_task_is_loaded_when_asked_for", CORE + "test_lazy_loading")),
    ("1c", "StateMemoryPool", (TOOLS + "test_the_pool_lends_takes_back_and_lends_again",)),
    (
        "1c",
        "find_optimal_batch_size",
        (TOOLS + "test_the_best_batch_size_comes_with_figures_that_fit_each_other",),
    ),
    (
        "1c",
        "hierarchical_batch_processing",
        (TOOLS + "test_workers_use_new_keys_and_count_the_steps_that_were_taken",),
    ),
    (
        "1c",
        "DynamicBatchProcessor",
        (
            TOOLS + "test_a_dynamic_batch_reports_what_it_did",
            TOOLS + "test_the_batch_size_follows_memory_and_each_size_compiles_once",
            TOOLS + "test_the_ladder_of_sizes_ends_at_one_and_at_the_most",
        ),
    ),
    ("1c", "profile_with_jax_profiler", (TOOLS + "test_the_profiler_names_the_folder_it_wrote",)),
    ("1c", "PerformanceMonitor()", (TOOLS + "test_the_monitor_keeps_the_guides_metrics",)),
    (
        "1c",
        "debug_jit_compilation",
        (TOOLS + "test_the_diagnosis_sees_unhashable_configs_errors_and_recompilation",),
    ),
    ("1c", "detect_memory_leaks", (TOOLS + "test_leaks_are_seen_and_sound_code_has_none",)),
    (
        "1c",
        "create_optimized_episode_runner",
        (
            TOOLS + "test_the_runner_plays_the_users_policy_until_the_end",
            TOOLS + "test_the_default_policy_takes_the_guides_steps_whatever_the_format",
        ),
    ),
    (
        "1c",
        "MemoryMappedTaskLoader",
        (TOOLS + "test_the_mapped_loader_reads_tasks_and_ends_where_it_should",),
    ),
    ("1c", "create_jax_task_from_data", (TASKS + "test_a_task_from_data",)),
    (
        "1c",
        "checklist promises",
        (
            TOOLS + "test_the_diagnosis_sees_unhashable_configs_errors_and_recompilation",
            TOOLS + "test_leaks_are_seen_and_sound_code_has_none",
            CORE + "test_regressions_are_judged_on_deterministic_figures",
            CORE + "test_troubleshooting_is_answered",
        ),
    ),
    ("1c", "example files", ("test_the_examples_are_there", "docs/test_documents.py::test_examples_run")),
]


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_has_tests_that_exist() -> None:
    named = [test for _, _, tests in ROWS for test in tests]
    for test in named:
        file, _, name = test.rpartition("::")
        assert name in named_in(file or __file__), test
    here = {name for name in globals() if name.startswith("test_")}
    assert here - set(named) == {
        "test_every_row_has_tests_that_exist",
        "test_the_table_names_every_row_of_the_ledger",
    }


@pytest.mark.skipif(not LEDGER.is_file(), reason="the ledger is not here (../shared/ledger)")
def test_the_table_names_every_row_of_the_ledger() -> None:
    text = LEDGER.read_text(encoding="utf-8")
    rows = []
    for section, following in (("1a", "1b"), ("1b", "1c"), ("1c", "1d")):
        part = text.split(f"### {section}.")[1].split(f"### {following}.")[0]
        rows += [(section, line) for line in part.splitlines() if line.startswith("- [")]
    assert len(rows) == len(ROWS)
    for (section, line), (expected, phrase, _) in zip(rows, ROWS, strict=True):
        assert (section, phrase in line) == (expected, True), f"{phrase!r} is not in {line!r}"


CONFIG = create_test_config()  # 30×30, 100 steps, points, as in the guide's quick start
KEY = jax.random.PRNGKey(42)


@functools.cache
def task() -> JaxArcTask:
    return create_mock_task()


@functools.cache
def started() -> tuple[ArcEnvState, ArcObservation]:
    return arc_reset(KEY, CONFIG, task())


def cells_of(pair: Any) -> np.ndarray:
    """The input of a demonstration pair on its canvas, 0 outside."""
    return np.array(task().input_grids_examples[int(pair)])


# --- 1b: configs ---


def test_names_are_where_the_guides_import_them() -> None:
    import jaxarc.envs.functional
    import jaxarc.envs.structured_actions

    homes = {
        jaxarc.envs: (
            *("JaxArcConfig", "EnvironmentConfig", "UnifiedDatasetConfig", "UnifiedActionConfig"),
            *("VisualizationConfig", "arc_reset", "arc_step", "batch_reset", "batch_step"),
        ),
        jaxarc.envs.functional: ("arc_reset", "arc_step", "batch_reset", "batch_step"),
        jaxarc.envs.structured_actions: ("PointAction", "BboxAction", "MaskAction"),
    }
    for module, names in homes.items():
        for name in names:
            assert callable(getattr(module, name)), name
    assert list(inspect.signature(arc_reset).parameters)[:3] == ["key", "config", "task_data"]
    assert list(inspect.signature(arc_step).parameters) == ["state", "action", "config"]
    assert list(inspect.signature(PointAction).parameters) == ["operation", "row", "col"]


def test_a_config_hashes_and_is_static() -> None:
    parts = {
        "environment": EnvironmentConfig(max_episode_steps=7),
        "dataset": UnifiedDatasetConfig(max_grid_height=5, max_grid_width=6),
        "action": UnifiedActionConfig(selection_format="bbox"),
        "visualization": VisualizationConfig(enabled=True),
    }
    for name, part in parts.items():  # every argument optional
        assert getattr(JaxArcConfig(**{name: part}), name) == part
    whole, twin = JaxArcConfig(**parts), JaxArcConfig(**parts)
    assert (hash(whole), whole, whole.canvas) == (hash(twin), twin, (5, 6))
    assert whole != JaxArcConfig()
    traces = []

    @functools.partial(jax.jit, static_argnames="config")
    def area(x: Any, config: JaxArcConfig) -> Any:
        traces.append(config)
        return x * config.canvas[0] * config.canvas[1]

    assert [int(area(2, config=each)) for each in (whole, twin)] == [60, 60]
    assert len(traces) == 1


def test_parts_of_a_config_are_checked() -> None:
    assert EnvironmentConfig(max_episode_steps=50, debug_level=0) == EnvironmentConfig(max_episode_steps=50)
    assert EnvironmentConfig(debug_level="standard").debug_level == "standard"  # the YAML's way to say 2
    assert VisualizationConfig(enabled=False) == VisualizationConfig()
    assert UnifiedActionConfig(selection_format="mask").num_operations == 35
    for make, message in (
        (
            lambda: EnvironmentConfig(max_episode_steps=0),
            "`max_episode_steps` must be an integer of at least 1",
        ),
        (lambda: EnvironmentConfig(debug_level=9), "`debug_level` must be one of 'off', 'minimal'"),
        (lambda: UnifiedDatasetConfig(max_grid_height=33), "`max_grid_height` must be at most 32; got 33"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


# --- 1b: reset and step ---


def test_a_reset_gives_state_and_observation() -> None:
    state, obs = started()
    assert (type(state), type(obs)) == (ArcEnvState, ArcObservation)
    np.testing.assert_array_equal(state.working_grid, cells_of(state.pair_index))
    assert (state.working_grid.shape, obs.grid.shape) == ((30, 30), (30, 30))
    assert obs.size.tolist() == [15, 15]
    assert int(np.sum(obs.grid >= 0)) == 225  # −1 outside of the active part
    assert int(state.task_index) == int(task().task_index) == 0
    assert eqx.tree_equal(state.task_data, task())
    # Packed: 4 bytes a step, where the guide's float32 records had 24; and the state is not 0.52 MB.
    assert (state.action_history.nbytes, state_bytes(state)) == (400, 1535)  # the migration page says so
    chosen, _ = arc_reset(KEY, CONFIG, task(), episode_mode=1, initial_pair_idx=0)
    np.testing.assert_array_equal(chosen.working_grid, task().test_input_grids[0])


def test_a_step_gives_five_values() -> None:
    """Operation 0 fills with colour 0; the reward is the gain in similarity less the step's price."""
    state, _ = started()
    row, col = np.argwhere(cells_of(state.pair_index))[0]
    stepped = arc_step(state, PointAction(jnp.array(0), jnp.array(row), jnp.array(col)), CONFIG)
    assert isinstance(stepped, tuple)
    new, obs, reward, done, info = stepped
    expected = cells_of(state.pair_index)
    expected[row, col] = 0
    np.testing.assert_array_equal(new.working_grid, expected)
    np.testing.assert_array_equal(np.maximum(obs.grid, 0), expected)
    target = np.asarray(task().output_grids_examples[int(state.pair_index)])[:15, :15]
    gain = (expected[:15, :15] == target).mean() - (cells_of(state.pair_index)[:15, :15] == target).mean()
    assert float(reward) == pytest.approx(gain - 0.01, abs=1e-6)
    assert (reward.dtype, done.dtype, bool(done)) == (jnp.float32, bool, False)
    assert set(info) >= {
        *("success", "similarity", "step_count", "similarity_improvement", "is_control_operation"),
        *("operation_type", "episode_mode", "current_pair_index", "available_demo_pairs"),
        *("available_test_pairs", "action_history_length"),
        *("terminated", "truncated", "final_observation", "valid_action"),
    }
    counts = [
        int(info[name]) for name in ("available_demo_pairs", "available_test_pairs", "action_history_length")
    ]
    assert counts == [3, 1, 1]
    assert float(info["similarity_improvement"]) == pytest.approx(gain, abs=1e-6)
    np.testing.assert_array_equal(info["final_observation"].grid, obs.grid)


def test_a_batch_shares_one_task() -> None:
    """Sixteen keys are sixteen episodes, the same again with the same keys; row 0 is what key 0 gives alone."""
    keys = jax.random.split(KEY, 16)
    states, obs = batch_reset(keys, CONFIG, task())
    assert (states.working_grid.shape, obs.grid.shape) == ((16, 30, 30), (16, 30, 30))
    assert eqx.tree_equal(states.task_data, task())
    assert len(np.unique(np.asarray(states.key), axis=0)) == 16
    again, _ = batch_reset(keys, CONFIG, task())
    assert eqx.tree_equal(states, again)
    actions = PointAction(jnp.zeros(16, jnp.int32), jnp.arange(16) % 15, jnp.full(16, 5))
    states, obs, rewards, dones, infos = batch_step(states, actions, CONFIG)
    assert states.working_grid.shape[0] == 16
    assert (jnp.zeros(16) + rewards).shape == dones.shape == infos["similarity"].shape == (16,)
    alone, _ = arc_reset(keys[0], CONFIG, task())
    alone, _, reward, _, _ = arc_step(alone, PointAction(0, 0, 5), CONFIG)
    np.testing.assert_array_equal(states.working_grid[0], alone.working_grid)
    assert float(rewards[0]) == float(reward)


def test_plain_jit_takes_the_config() -> None:
    reset = jax.jit(static_argnames=["config"])(lambda key, config: arc_reset(key, config, task()))
    state, _ = reset(KEY, config=CONFIG)
    assert eqx.tree_equal(state.working_grid, started()[0].working_grid)
    assert hash(CONFIG) == hash(create_test_config())


# --- 1b: actions ---


def test_actions_are_pytrees_and_give_masks() -> None:
    mask = np.zeros((30, 30), bool)
    mask[3:8, 3:8] = True
    box, cells = BboxAction(0, 3, 3, 7, 7), MaskAction(0, jnp.asarray(mask))
    for action in (box, BboxAction(0, 7, 3, 3, 7), cells):  # corners in any order
        np.testing.assert_array_equal(action.to_selection_mask((30, 30)), mask)
    assert int(box.to_selection_mask((30, 30)).sum()) == 25
    assert [len(jax.tree.leaves(action)) for action in (PointAction(0, 5, 5), box, cells)] == [3, 5, 2]
    points = PointAction(jnp.zeros(4, jnp.int32), jnp.arange(4), jnp.full(4, 5))
    assert points.row.shape == (4,)
    expected = np.zeros((4, 30, 30), bool)
    expected[np.arange(4), np.arange(4), 5] = True
    batched = jax.jit(jax.vmap(lambda action: action.to_selection_mask((30, 30))))(points)
    np.testing.assert_array_equal(batched, expected)
    assert batched.dtype == bool


def test_dictionary_actions_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got dict\. Write PointAction\(operation=0, row=5, col=5\)"):
        jaxarc.envs.structured_actions.demand_action({"operation": 0, "selection": [5, 5]})
    with pytest.raises(TypeError):
        arc_step(started()[0], {"operation": 0, "selection": jnp.array([5, 5])}, CONFIG)  # pyright: ignore


# --- 1b: checks ---


@pytest.fixture
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EQX_ON_ERROR", raising=False)


@pytest.mark.usefixtures("no_variable")
def test_actions_are_validated_in_compiled_code() -> None:
    validate = eqx.filter_jit(JAXErrorHandler.validate_action)
    good = PointAction(34, 29, 0)
    assert eqx.tree_equal(validate(good, CONFIG), good)
    for bad, message in (
        (PointAction(35, 0, 0), "must be an operation that exists and is allowed"),
        (PointAction(-1, 0, 0), "must be an operation that exists and is allowed"),
        (PointAction(0, 30, 0), "must select cells of the canvas"),
    ):
        with pytest.raises(eqx.EquinoxRuntimeError, match=message):
            validate(bad, CONFIG)


@pytest.mark.usefixtures("no_variable")
def test_states_are_validated_in_compiled_code() -> None:
    validate = eqx.filter_jit(JAXErrorHandler.validate_state_consistency)
    state, _ = started()
    assert eqx.tree_equal(validate(state).working_grid, state.working_grid)
    for name, value in (("height", 31), ("pair_index", 3), ("width", 3)):  # 3: cells outside of the grid
        broken = eqx.tree_at(lambda s, name=name: getattr(s, name), state, jnp.int32(value))
        with pytest.raises(eqx.EquinoxRuntimeError, match="must be one that reset and step can make"):
            validate(broken)


def test_psutil_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)  # importing it raises
    resident = process_memory()[0]
    assert resident > 10_000_000
    usage = tools.analyze_memory_usage_by_format()
    assert usage["point"]["fields_per_action"] == 6


# --- 1b: history, tasks ---


def test_records_have_the_guides_fields() -> None:
    """Point, box and mask in 4, 8 and 124 bytes, unpacked into the guide's columns."""
    mask = np.zeros((30, 30), bool)
    mask[2, 3], mask[29, 29] = True, True
    point, box, cells = PointAction(7, 4, 29), BboxAction(33, 1, 2, 20, 21), MaskAction(28, mask)
    cases: list[tuple[Any, int, dict[str, Any]]] = [
        (point, 4, {"row": 4, "col": 29}),
        (box, 8, {"r1": 1, "c1": 2, "r2": 20, "c2": 21}),
        (cells, 124, {"selection": mask}),
    ]
    for (action, size, selection), form in zip(cases, ("point", "bbox", "mask"), strict=True):
        config = create_test_config(selection_format=form)
        history = empty_history(config)
        assert (history.nbytes, history.capacity) == (100 * size, 100)
        at = jnp.int32(1)
        for valid in (True, False):
            history = remember(
                history,
                action,
                action.selection_rows(30, 30),
                jnp.bool_(valid),
                jnp.bool_(True),
                at - 1,
                at + 1,
                jnp.bool_(True),
            )
        found = records(history, 30)
        columns = {"operation", *selection, "timestamp", "pair_index", "valid"}
        assert set(found) == columns | {"exact", "episode_mode"}
        assert found["operation"].tolist() == [int(action.operation)] * 2
        for name, value in selection.items():
            np.testing.assert_array_equal(found[name], [value, value])
        assert found["timestamp"].tolist() == [0, 1]
        assert found["pair_index"].tolist() == [2, 2]
        assert found["valid"].tolist() == [True, False]


def test_the_mock_task_and_config() -> None:
    one = create_mock_task()
    assert (int(one.num_train_pairs), int(one.num_test_pairs), int(one.task_index)) == (3, 1, 0)
    assert one.num_train_pairs.dtype == jnp.int32
    assert (one.input_grids_examples.shape, one.input_grids_examples.dtype) == ((3, 30, 30), jnp.int8)
    assert int(one.input_masks_examples[0].sum()) == 15 * 15  # so it fits every config of the guides
    np.testing.assert_array_equal(
        one.output_grids_examples[:, :15, :15], np.asarray(one.input_grids_examples)[:, :15, 14::-1]
    )
    assert (CONFIG.canvas, CONFIG.environment.max_episode_steps) == ((30, 30), 100)
    with pytest.raises(ValueError, match="`size` must be from 1 to `canvas`"):
        create_mock_task(31)
    with pytest.raises(ValueError, match="15×15 cells, and the canvas has 10×10"):
        arc_reset(KEY, create_test_config(grid_size=10), one)


# --- 1c ---


def test_targets_and_small_helpers(capsys: pytest.CaptureFixture[str]) -> None:
    assert (tools.TARGET_STEP_TIME, tools.TARGET_THROUGHPUT) == (1.0, 10000)
    assert (tools.TARGET_MEMORY_REDUCTION, tools.TARGET_BATCH_EFFICIENCY) == (0.9, 0.8)
    assert [tools.get_fields_per_action(name) for name in ("point", "bbox", "mask")] == [6, 8, 904]
    with pytest.raises(ValueError, match="must be one of 'point', 'bbox', 'mask'; got 'line'"):
        tools.get_fields_per_action("line")
    assert tools.verify_config_hashability(CONFIG) is True
    assert tools.verify_config_hashability((CONFIG, [1])) is False
    assert "`config[1]` has no hash" in capsys.readouterr().out


def test_a_task_is_loaded_when_asked_for() -> None:
    reads = []

    class Parser:
        def get_task_by_index(self, index: int) -> JaxArcTask:
            reads.append(index)
            return create_mock_task(task_index=index)

    loader = tools.LazyTaskLoader(3, Parser())
    assert reads == []
    assert (int(loader.task_data.task_index), int(loader.task_data.num_train_pairs), reads) == (3, 3, [3])
    loader.clear_cache()
    assert (int(loader.task_data.task_index), reads) == (3, [3, 3])


def test_the_examples_are_there() -> None:
    folder = ROOT / "examples" / "advanced"
    assert {file.stem for file in folder.glob("*.py")} >= {
        *(
            "jax_optimization_demo",
            "batch_processing_demo",
            "memory_efficiency_demo",
            "jax_best_practices_demo",
        ),
    }
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), file.name
        # Each program checks what it says.
        assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), file.name

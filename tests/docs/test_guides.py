"""The guides as people read them: every Python block has an owner, and the core's blocks run, one by one.

`guide_blocks.OWNERS` assigns each block to the part of the project that serves it. The blocks of "core" run here, each
after its stated preamble (imports and small real objects that the guide uses without making them). A line that cannot
work is listed in `CASES` with its reason and what stands in its place: the test first proves that the guide's own line
fails. Those of "jaxarc", "jaxtrace" and "acbo" run in the files `test_guides_<owner>.py`.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guide_blocks import (
    GUIDES,
    OWNERS,
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
    with_lines,
)

import acbo
import jaxarc.performance
import jaxarc.utils.visualization as visualization
import jaxtrace.utils
from jaxworlds import checking, compiling, runtime, static, store, taps
from jaxworlds.batching import shard_worlds, world_mesh

pytestmark = pytest.mark.usefixtures("quick_compile")


@needs_guides
def test_every_block_of_every_guide_has_exactly_one_owner() -> None:
    assert sorted(file.name[:3] for file in GUIDES.glob("*.txt")) == sorted(OWNERS)
    for guide, owners in OWNERS.items():
        assigned = sorted(index for indices in owners.values() for index in indices)
        assert assigned == list(range(len(blocks(guide)))), guide
        assert set(owners) <= {"core", "jaxarc", "jaxtrace", "acbo"}


def test_every_block_of_the_core_is_run() -> None:
    assert owned_by("core") == set(CASES) | OWN_PROCESS


@pytest.fixture(autouse=True)
def _as_a_user_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A temporary folder, a wide terminal and fresh statistics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("EQX_ON_ERROR", "off")  # so that what a block sets shows, and is undone
    visualization.reset_callback_performance_stats()
    yield
    taps.flush_taps(5.0)
    visualization.reset_callback_performance_stats()


# --- guide 000: callbacks and memory ---

BASICS = """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from pathlib import Path
"""


def grids_are_printed_and_the_result_is_numpys(found: Namespace, printed: str) -> None:
    grid, mask = np.asarray(found["grid"]), np.asarray(found["mask"])
    np.testing.assert_array_equal(found["result"], np.where(mask, grid + 1, 0))
    lines = printed.splitlines()
    prints = [tuple(lines[:4]), tuple(lines[4:])]  # JAX promises no order for two callbacks of one program
    assert sorted(prints) == [
        ("Input Grid 3×3", " 1 2 .", " 3 4 1", " . 2 3"),
        ("Processed Grid 3×3", " 2 3 .", " 4 5 2", " . 3 4"),
    ]


def the_episode_is_summed_up(found: Namespace, _: str) -> None:
    reward, similarity, success = found["simulate_episode"](3, 50, 0.5)
    assert (float(reward), bool(success)) == (25.0, True)
    assert float(similarity) == pytest.approx(np.tanh(2.5))
    taps.flush_taps(5.0)
    stats = visualization.get_callback_performance_stats()["jax_log_episode_summary"]
    assert (stats["total_calls"], stats["error_count"]) == (1, 0)


def statistics_name_the_callback(found: Namespace, printed: str) -> None:
    assert set(found["stats"]) == {"jax_log_grid"}  # what ran before the reset is forgotten
    assert found["stats"]["jax_log_grid"]["total_calls"] == 2
    average = found["stats"]["jax_log_grid"]["avg_time_ms"]
    assert average > 0
    assert f"jax_log_grid: {average:.2f}ms average" in printed.splitlines()


def the_manager_reports_and_cleans_up(found: Namespace, printed: str) -> None:
    np.testing.assert_array_equal(found["optimized_data"], np.asarray(found["data"]["data"]))
    assert found["optimized_data"].dtype == np.float32
    current = found["report"]["monitor_stats"]["current_mb"]
    assert isinstance(current, float)
    assert current > 10.0  # a process with jax in it; the guide's own code reported 0.0
    assert f"Memory usage: {current:.2f} MB" in printed
    assert found["report"]["owned"]["bytes"] == 4_000_000
    assert not found["lazy_loader"].loaded  # released at the end of the block


def what_was_stored_comes_back(found: Namespace, _: str) -> None:
    saved, loaded = found["numpy_data"], found["loaded_data"]
    assert loaded["metadata"] == {"episode_id": "test_001", "total_steps": 100}
    assert len(found["jax_data"]["episode_grids"]) == 100
    for before, after in zip(saved["episode_grids"], loaded["episode_grids"], strict=True):
        np.testing.assert_array_equal(before, after)
        assert before.dtype == after.dtype
    (file,) = Path("visualization_cache").iterdir()
    assert file.stat().st_size < sum(grid.nbytes for grid in saved["episode_grids"]) / 4


def a_slow_callback_runs_less_often(found: Namespace, _: str) -> None:
    runs = []

    def slow(data: Any) -> None:
        runs.append(data)
        time.sleep(0.02)

    found["expensive_visualization"] = (
        slow  # the guide's own body does nothing; the step finds it when traced
    )
    state = jnp.int32(0)
    for _step in range(20):
        state = found["training_step"](state)
    taps.flush_taps(5.0)
    stats = visualization.get_callback_performance_stats()["expensive_viz"]
    assert int(state) == stats["total_calls"] == 20
    assert (
        1 <= len(runs) <= 6
    )  # 20 ms against a limit of 5 ms: one call in four, or fewer where sleep is late
    assert stats["skipped"] == 20 - len(runs)
    assert isinstance(runs[0], np.ndarray)


def the_file_is_read_on_demand(found: Namespace, _: str) -> None:
    np.testing.assert_array_equal(found["data"], np.arange(12.0).reshape(3, 4))
    assert found["lazy_loader"].nbytes == 96
    missing = visualization.create_lazy_visualization_loader(Path("none.npy"), np.load, max_idle_time=300.0)
    with pytest.raises(FileNotFoundError):  # only now is the file looked for
        missing.get()


def arrays_shrink_as_the_comments_say(found: Namespace, printed: str) -> None:
    assert found["total_savings"] == 65
    assert printed.splitlines() == [
        "Array 0: int64 -> int8, saved 35 bytes",
        "Array 1: int64 -> int16, saved 18 bytes",
        "Array 2: float64 -> float32, saved 12 bytes",
        "Total memory savings: 65 bytes",
    ]


def reports_and_cleanup_have_content(found: Namespace, printed: str) -> None:
    assert "Taps" in printed
    assert found["report"]["monitor_stats"]["current_mb"] > 10.0
    assert found["manager"] is visualization.get_memory_manager()
    assert found["cleanup_stats"]["owned_bytes"] == 0
    assert f"Cleanup freed: {found['cleanup_stats']}" in printed


def both_grid_printers_work(found: Namespace, printed: str) -> None:
    assert printed.splitlines() == ["Debug Grid 2×2", " 1 2", " 3 4"]
    np.testing.assert_array_equal(found["my_function"](found["grid_data"]), [[2, 4], [6, 8]])
    assert visualization.get_callback_performance_stats()["jax_log_grid"]["total_calls"] == 1


# --- guide 001: keys, checks, saving ---


def keys_are_distinct_and_repeatable(found: Namespace, _: str) -> None:
    keys = np.asarray(found["batch_keys"])
    assert len(np.unique(keys, axis=0)) == len(keys) == 8
    np.testing.assert_array_equal(keys, jax.random.split(jax.random.PRNGKey(42), 8))


def checks_obey_the_variable(found: Namespace, _: str) -> None:
    """Equinox reads the variable when it is imported, so the guide's line comes too late there; ours does not."""
    assert os.environ["EQX_ON_ERROR"] == "raise"

    def root(x: Any) -> Any:
        return jnp.sqrt(checking.check(x, x < 0, "`x` must not be negative; got less than 0."))

    with checking.checking_on():
        with pytest.raises(checking.CheckError, match="`x` must not be negative"):
            checking.clear_errors(jax.jit(root))(jnp.float32(-1.0))
        os.environ["EQX_ON_ERROR"] = "nan"  # the guide's second line, which is commented out
        assert np.isnan(jax.jit(lambda x: root(x))(jnp.float32(-1.0)))


def the_task_is_really_left_out(found: Namespace, _: str) -> None:
    class State(eqx.Module):
        working_grid: jax.Array
        step_count: jax.Array
        task_data: jax.Array

    task = jax.random.bits(jax.random.key(0), (4, 30, 30))
    state = State(jnp.arange(900).reshape(30, 30) % 10, jnp.int32(3), task)
    found["save_state_efficiently"](state, "guide.eqx")
    assert Path("guide.eqx").stat().st_size > task.nbytes  # the guide's filter keeps everything

    store.save_state("ours.jxw", state, exclude=[".task_data"])
    assert Path("ours.jxw").stat().st_size < task.nbytes / 4
    like = jax.eval_shape(lambda: state)
    loaded = store.load_state("ours.jxw", like, excluded={".task_data": task})
    np.testing.assert_array_equal(loaded.working_grid, state.working_grid)
    assert int(loaded.step_count) == 3
    with pytest.raises(store.StoreError, match=r"saved with other data at `\.task_data`"):
        store.load_state("ours.jxw", like, excluded={".task_data": task + 1})


# --- guide 002: targets, hashable configs, lazy tasks ---


def targets_are_ours(found: Namespace, _: str) -> None:
    names = [name for name in found if name.startswith("TARGET_")]
    assert len(names) == 4
    for name in names:
        assert getattr(jaxarc.performance, name) == found[name], name


def configs_are_hashable(found: Namespace, printed: str) -> None:
    assert "Configuration is hashable" in printed
    assert jaxarc.performance.verify_config_hashability(found["config"]) is True
    broken = ("point", {"allowed": [1, 2]})
    assert found["verify_config_hashability"](broken) is False
    assert jaxarc.performance.verify_config_hashability(broken) is False


def tasks_load_once(found: Namespace, _: str) -> None:
    parser = found["parser"]
    assert (found["task_data"], parser.reads) == ("task 0", [0])
    ours = jaxarc.performance.LazyTaskLoader(0, parser)
    assert (ours.task_data, ours.task_data, parser.reads) == ("task 0", "task 0", [0, 0])
    ours.clear_cache()
    assert (ours.task_data, parser.reads) == ("task 0", [0, 0, 0])


# --- guide 003: static arguments, metrics, measuring ---

PARENTS = """
    parent_sets = [[frozenset(), frozenset({"B", "A"})], [frozenset({"A"})]]
    variable_orders = [["A", "B", "Y"], ["A", "Y"]]
    target_variables = ["Y", "Y"]
"""


def tuples_hash_and_so_do_frozensets(found: Namespace, _: str) -> None:
    assert found["parent_sets_tuple"] == (((), ("A", "B")), (("A",),))
    count = jax.jit(lambda x, sets: x + len(sets), static_argnames="sets")
    assert int(count(1, sets=found["parent_sets_tuple"])) == 3
    assert int(count(1, sets=frozenset({"A", "B"}))) == 3  # the guide says frozensets cannot be static
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        count(1, sets=found["static_args"])
    assert int(count(1, sets=static.freeze([1, 2]).items)) == 3


def static_arguments_survive_both_ways(found: Namespace, _: str) -> None:
    given = (found["parent_sets"], found["variable_orders"], found["target_variables"])
    frozen = found["prepare_static_args"](*given)
    assert frozen == acbo.prepare_static_args(*given)
    assert found["restore_static_args"](frozen) == acbo.restore_static_args(frozen) == given
    assert hash(frozen) == hash(acbo.prepare_static_args(*given))


def both_branches_run(found: Namespace, _: str) -> None:
    """`jnp.where` is no `if`: it takes two values, and both were computed."""
    assert found["ran"] == ["true", "true", "false"]
    assert float(found["result"]) == 1.0
    slope = jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0))(0.0)
    assert np.isnan(slope)  # the branch that was not chosen leaks into the gradient
    safe = jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0))(0.0)
    assert float(safe) == 0.0


def division_is_safe_for_positive_divisors_only(found: Namespace, _: str) -> None:
    np.testing.assert_allclose(found["result"], [0.5, 1e8, 1e8])  # 1 / -2 became 1e8
    assert found["loss_value"] is found["jax_loss"]


def metrics_become_floats_outside(found: Namespace, _: str) -> None:
    params, opt_state, metrics = found["wrapper_function"](1.0, 2.0, jnp.arange(3.0))
    assert (float(params), float(opt_state)) == (1.0, 2.0)
    assert metrics == pytest.approx({"total_loss": 3.0, "gradient_norm": 0.5, "learning_rate": 1e-3})
    assert all(type(value) is float for value in metrics.values())
    raw = found["compiled_training_step"](1.0, 2.0, jnp.arange(3.0))[2]
    assert isinstance(raw["learning_rate"], jax.Array)  # not "static": jit returns arrays
    assert jax.device_get(raw) == pytest.approx(metrics)  # one transfer for the whole dict


def first_over_second_call_is_no_speed_up(found: Namespace, _: str) -> None:
    for measure in (found["measure_compilation_speedup"], acbo.measure_compilation_speedup):
        step = jax.jit(lambda x: jnp.tanh(x @ x).sum())
        ratio, first, second = measure(step, jnp.ones((8, 8)))
        assert float(first) == float(second) == pytest.approx(64 * np.tanh(8.0), rel=1e-5)
        assert ratio > 1  # compile over run, for a function that has no slower twin at all


def sustained_ratio_compares_two_functions(found: Namespace, printed: str) -> None:
    def slow(x: Any) -> Any:
        time.sleep(0.02)
        return x

    def fast(x: Any) -> Any:
        time.sleep(0.001)
        return x

    for benchmark in (found["benchmark_sustained_performance"], acbo.benchmark_sustained_performance):
        ratio = benchmark(fast, slow, (jnp.ones(3),), n_runs=5)
        assert isinstance(ratio, float)
        assert ratio > 1


def the_guide_does_not_see_arrays_and_we_do(found: Namespace, _: str) -> None:
    make = jax.jit(lambda x: jnp.tile(x, 2000))
    x = jax.block_until_ready(make(jnp.ones(1000)))[:1000]  # compiled before, so that only the array is new
    _, guide_increase, _ = found["monitor_memory_usage"](make, x)
    result, increase, peak = acbo.monitor_memory_usage(make, x)
    assert result.nbytes == 8_000_000
    assert guide_increase < 1_000_000
    assert peak >= increase >= 8_000_000


def sharding_gives_what_pmap_gives(found: Namespace, _: str) -> None:
    count = found["count"]
    assert found["multi_device_results"].shape == (count, 4)
    mesh = world_mesh()
    params, batches = shard_worlds((found["device_params"], found["device_batches"]), mesh)
    result = jax.jit(jax.vmap(found["jax_train_step"]))(params, batches)
    np.testing.assert_array_equal(result, found["multi_device_results"])
    assert len(result.sharding.device_set) == count


def precision_is_a_dtype(found: Namespace, _: str) -> None:
    params, compute = found["params"], found["compute"]
    assert compute(params).dtype == jnp.bfloat16
    assert params["weights"].dtype == jnp.float32


# --- guide 004: checks before tracking ---

# The guide's `tracker` arrives with jaxtrace. What it checks is any jitted function; this one cannot be compiled.
TRACKER = """
    from types import SimpleNamespace
    import jax
    import jax.numpy as jnp
    field = SimpleNamespace(data=jnp.zeros((2, 8, 3)))
    never_compiles = jax.jit(lambda x: x if x > 0 else -x)
    tracker = SimpleNamespace(_compiled_step=never_compiles, _compiled_simulate=never_compiles)
"""


def not_none_proves_nothing(found: Namespace, printed: str) -> None:
    lines = printed.splitlines()
    assert [line.split(":")[1].strip() for line in lines if line.startswith("JIT")] == ["True", "True"]
    assert f"Field devices: {found['field'].data.devices()}" in lines
    with pytest.raises(jax.errors.TracerBoolConversionError):  # the proof that the guide wants
        compiling.compile_ahead(found["never_compiles"], jax.ShapeDtypeStruct((), jnp.float32))
    negate = compiling.compile_ahead(lambda x: -x, jax.ShapeDtypeStruct((), jnp.float32))
    assert float(negate(np.float32(2.0))) == -2.0


def tracking_memory_is_there_and_may_stay(found: Namespace, _: str) -> None:
    assert found["progress_callback"] is None
    with jaxtrace.utils.track_operation_memory("zeros") as use:
        kept = jnp.zeros(1000, jnp.float32)
    assert (use.live_change, kept.nbytes) == (4000, 4000)

    def plain() -> int:
        return 1

    assert jaxtrace.utils.track_memory(plain, enabled=False) is plain  # off costs nothing


CASES: dict[tuple[str, int], Case] = {
    ("000", 0): Case(grids_are_printed_and_the_result_is_numpys),
    ("000", 1): Case(
        the_episode_is_summed_up,
        BASICS + "    from jaxarc.utils.visualization import jax_log_episode_summary\n",
    ),
    ("000", 2): Case(
        statistics_name_the_callback,
        BASICS
        + """
    from jaxarc.utils.visualization import jax_log_episode_summary, jax_log_grid
    jax_log_episode_summary(0, 1, 0.0, 0.0, False)
    log = jax.jit(jax_log_grid)
    grid = jnp.zeros((2, 2), jnp.int32)
    """,
        fill=(("# ...", "log(grid); log(grid); jax.effects_barrier()"),),
    ),
    ("000", 3): Case(
        the_manager_reports_and_cleans_up,
        BASICS,
        allowed=(
            Allowed(
                'return {"data": jnp.random.rand(1000, 1000)}',
                AttributeError,
                "jax.numpy has no `random`; JAX draws from keys",
                'return {"data": jax.random.uniform(jax.random.key(0), (1000, 1000))}',
            ),
        ),
    ),
    ("000", 4): Case(
        what_was_stored_comes_back,
        BASICS,
        allowed=(
            Allowed(
                '"episode_grids": [jnp.random.randint(0, 10, (30, 30)) for _ in range(100)],',
                AttributeError,
                "jax.numpy has no `random`; JAX draws from keys",
                '"episode_grids": list(jax.random.randint(jax.random.key(0), (100, 30, 30), 0, 10)),',
            ),
        ),
    ),
    ("000", 5): Case(a_slow_callback_runs_less_often, BASICS),
    ("000", 6): Case(
        the_file_is_read_on_demand,
        BASICS
        + """
    Path("data").mkdir()
    with open("data/large_dataset.pkl", "wb") as file:  # the guide's name; it holds a NumPy array
        np.save(file, np.arange(12.0).reshape(3, 4))
    """,
        allowed=(
            Allowed(
                "return processed_data",
                NameError,
                "the guide never says what `processed_data` is",
                "return np.load(path)",
            ),
        ),
    ),
    ("000", 7): Case(arrays_shrink_as_the_comments_say, BASICS),
    ("000", 8): Case(reports_and_cleanup_have_content),
    ("000", 9): Case(both_grid_printers_work, BASICS + "    grid_data = jnp.array([[1, 2], [3, 4]])\n"),
    ("001", 4): Case(keys_are_distinct_and_repeatable, BASICS + "    batch_size = 8\n"),
    ("001", 13): Case(checks_obey_the_variable),
    ("001", 14): Case(the_task_is_really_left_out),
    ("002", 0): Case(targets_are_ours),
    ("002", 4): Case(
        configs_are_hashable,
        "from jaxarc.envs import EnvironmentConfig, JaxArcConfig, UnifiedActionConfig",
    ),
    ("002", 9): Case(
        tasks_load_once,
        """
    class Parser:
        def __init__(self):
            self.reads = []

        def get_task_by_index(self, index):
            self.reads.append(index)
            return f"task {index}"

    parser = Parser()
    """,
    ),
    ("003", 0): Case(tuples_hash_and_so_do_frozensets, PARENTS),
    ("003", 1): Case(static_arguments_survive_both_ways, PARENTS),
    ("003", 2): Case(
        both_branches_run,
        BASICS
        + """
    ran = []
    condition = jnp.array(True)  # outside jit, where the guide's `if` works too
    true_branch = lambda: ran.append("true") or jnp.float32(1.0)
    false_branch = lambda: ran.append("false") or jnp.float32(0.0)
    """,
    ),
    ("003", 3): Case(
        division_is_safe_for_positive_divisors_only,
        BASICS
        + """
    x, y = jnp.ones(3), jnp.array([2.0, 0.0, -2.0])
    jax_loss = jnp.float32(0.25)
    """,
    ),
    ("003", 4): Case(
        metrics_become_floats_outside,
        BASICS
        + """
    new_params, new_opt_state, loss, grad_norm, lr = 1.0, 2.0, 3.0, 0.5, 1e-3
    """,
        allowed=(
            Allowed(
                "def compiled_training_step(...):",
                SyntaxError,
                "`...` is no parameter list",
                """\
                def compiled_training_step(new_params, new_opt_state, batch):
                    loss = batch.sum()""",
            ),
            Allowed(
                "def wrapper_function(...):",
                SyntaxError,
                "`...` is no parameter list",
                "def wrapper_function(*args):",
            ),
            Allowed(
                "new_params, new_opt_state, jax_metrics = compiled_training_step(...)",
                TypeError,
                "`...` is passed as one argument",
                "new_params, new_opt_state, jax_metrics = compiled_training_step(*args)",
            ),
        ),
    ),
    ("003", 5): Case(first_over_second_call_is_no_speed_up),
    ("003", 6): Case(sustained_ratio_compares_two_functions, "import time"),
    ("003", 8): Case(the_guide_does_not_see_arrays_and_we_do),
    ("003", 14): Case(
        sharding_gives_what_pmap_gives,
        BASICS
        + """
    def jax_train_step(params, batch):
        return params + batch

    count = jax.local_device_count()
    device_params = jnp.ones((count, 4))
    device_batches = jnp.arange(4.0 * count).reshape(count, 4)
    """,
    ),
    ("003", 15): Case(
        precision_is_a_dtype,
        BASICS + '    params = {"weights": jnp.ones((3, 3), jnp.float32)}\n',
        allowed=(
            Allowed(
                "from jax.experimental import mixed_precision",
                ImportError,
                "JAX never had this module",
                "cast = lambda tree, dtype: jax.tree.map(lambda x: x.astype(dtype), tree)",
            ),
            Allowed(
                "policy = mixed_precision.create_policy(compute_dtype=jnp.float16)",
                NameError,
                "JAX never had this module",
                "compute = lambda params: cast(params, jnp.bfloat16)['weights'].sum(axis=0)",
            ),
        ),
    ),
    ("004", 7): Case(not_none_proves_nothing, TRACKER),
    ("004", 12): Case(tracking_memory_is_there_and_may_stay),
    ("004", 13): Case(not_none_proves_nothing, TRACKER),
}


@needs_guides
@pytest.mark.parametrize("key", CASES, ids=name_of)
def test_a_block_of_the_core_runs(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    play(CASES[key], key, capsys)


@needs_guides
@pytest.mark.parametrize(("key", "bad"), allowed_lines(CASES), ids=name_of)
def test_a_line_that_is_allowed_to_fail_does_fail(
    key: Key, bad: Allowed, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(bad.error):
        play(CASES[key], key, capsys, keep=bad.line)


# --- blocks that need a process of their own: they act before JAX starts, or open a debugger ---

OWN_PROCESS = {("001", 19), ("004", 0), ("004", 1)}


def run_alone(code: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter without JAX settings of ours, with `typed` at its prompt."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA", "EQX"))}
    return subprocess.run(
        [sys.executable, "-c", code],
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "JAX_PLATFORMS": "cpu", "JAXWORLDS_CACHE_DIR": str(Path.cwd() / "cache")},
    )


@needs_guides
@pytest.mark.own_process
def test_debug_mode_opens_a_debugger_with_the_frames_asked_for() -> None:
    done = run_alone(
        blocks("001")[19]
        + textwrap.dedent("""
            import jax.numpy as jnp
            from jaxworlds import check, checking_on
            with checking_on():
                result = check(jnp.float32(-1.0), jnp.array(True), "`x` must not be negative.")
            print("went on")
        """),
        typed="continue\n",
    )
    assert done.returncode == 0, done.stderr
    assert "Opening a breakpoint with 3 frames" in done.stdout + done.stderr
    assert "`x` must not be negative." in done.stdout + done.stderr
    assert done.stdout.endswith("went on\n")


@needs_guides
@pytest.mark.own_process
def test_the_variables_and_configure_of_the_tracking_guide() -> None:
    """Without a GPU the guide's `device="gpu"` raises a clear error; with "cpu" the rest of both blocks works."""
    variables, configure = blocks("004")[:2]
    line = 'device="gpu",         # Use GPU'
    done = run_alone(variables + configure)
    assert done.returncode == 1
    assert "RuntimeConflictError: `device='gpu'` is not there: JAX found only 'cpu'" in done.stderr

    done = run_alone(
        variables
        + with_lines(configure, {line: 'device="cpu",'})
        + textwrap.dedent("""
            import os
            import jax.numpy as jnp
            from jaxworlds import device_memory_limit, runtime_report, settings
            seen = runtime_report().environment
            assert seen["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
            assert seen["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.75"
            assert "XLA_CLIENT_MEM_FRACTION" not in seen, "the user's own fraction rules"
            assert (settings().dtype, settings().device, settings().memory_limit_gb) == ("float32", "cpu", 3.0)
            assert device_memory_limit() <= 3 * 2**30
            assert jnp.zeros(3).dtype == "float32"
        """)
    )
    assert done.returncode == 0, done.stderr


def test_the_names_people_import_are_those_of_their_homes() -> None:
    import jaxtrace
    from jaxworlds import memory
    from jaxworlds.memory import budget, caches, leaks

    homes = {
        visualization.CompressedStorage: store.CompressedStorage,
        visualization.LazyLoader: caches.LazyLoader,
        visualization.MemoryManager: budget.MemoryManager,
        visualization.get_memory_manager: budget.get_memory_manager,
        visualization.create_lazy_visualization_loader: caches.lazy_file,
        visualization.optimize_array_memory: memory.optimize_array_memory,
        jaxtrace.configure: runtime.configure,
        jaxtrace.utils.track_memory: leaks.track_memory,
        jaxtrace.utils.track_operation_memory: leaks.track_operation_memory,
    }
    for name, home in homes.items():
        assert name is home


# --- the page that tells people where everything went ---

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"

# What the guides define only to show something; no name to look for.
ILLUSTRATIONS = {
    *("process_grid", "simulate_episode", "expensive_visualization", "training_step", "custom_loader"),
    *("my_function", "validate_and_step", "compiled_training_step", "wrapper_function"),
}


def names_of_the_guides() -> set[str]:
    """Every function and class that a guide defines at the top of a block, and all it imports from our packages."""
    found: set[str] = set()
    for guide in OWNERS:
        for code in blocks(guide):
            found |= set(re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE))
            for imported in re.findall(
                r"^from (?:jaxarc|jaxtrace)[\w.]* import ([^(\n]+|\([^)]*\))", code, re.MULTILINE
            ):
                found |= set(re.findall(r"\w+", imported))
    return found - ILLUSTRATIONS


@needs_guides
def test_the_migration_page_lists_every_name_of_the_guides() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = names_of_the_guides()
    assert len(names) > 60
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", text)) == []


def test_the_homes_on_the_migration_page_exist() -> None:
    """Whatever a table names as a home without "arrives" can be imported."""
    rows = [
        line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    homes = {
        home
        for row in rows
        for part in row[2].split(";")
        if "arrive" not in part
        for home in re.findall(r"`((?:jaxworlds|jaxarc|acbo|jaxtrace)(?:\.\w+)+)`", part)
    }
    assert len(homes) > 40
    for home in sorted(homes):
        module, _, name = home.rpartition(".")
        assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(home), home

"""Recording episodes of the real environment, and what each key of the visualization's configuration changes."""

import io
import json
import threading
import time
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest
from rich.console import Console

import jaxarc.utils.visualization.session as session_module
from jaxarc.envs.config import (
    DebugConfig,
    EnvironmentConfig,
    JaxArcConfig,
    MemoryManagementConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    VisualizationConfig,
)
from jaxarc.envs.functional import arc_reset, arc_step
from jaxarc.envs.structured_actions import MaskAction, PointAction
from jaxarc.testing import create_mock_task
from jaxarc.utils.visualization import (
    EpisodeRecord,
    LazyLoader,
    PairRecord,
    StepRecord,
    VisualizationSession,
    record_episode,
    task_svg,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

RNG = np.random.default_rng(1)
TASK = create_mock_task(size=4, canvas=6)


def settings(autoreset=None, control=False):
    """One config for most tests, and two formats of actions, so that little is compiled."""
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=4, autoreset=autoreset),
        dataset=UnifiedDatasetConfig(max_grid_height=6, max_grid_width=6),
        action=UnifiedActionConfig(control_operations=control),
    )


# --- recording ---

SOLUTION = (
    PointAction(3, 1, 1),
    PointAction(32, 0, 0),
    MaskAction(26, np.zeros((6, 6), bool)),
    PointAction(34, 0, 0),
)


@pytest.mark.parametrize("autoreset", [None, "task"])
def test_a_scripted_episode_is_recorded_as_the_environment_played_it(autoreset):
    config = settings(autoreset)
    start = arc_reset(jax.random.key(0), config, TASK, initial_pair_idx=1)
    episode = record_episode(start, [*SOLUTION, PointAction(0, 0, 0)], config, task_id="mock")
    assert (episode.task_id, episode.mode, episode.length) == (
        "mock",
        "train",
        4,
    )  # done: the fifth is not played
    np.testing.assert_array_equal(episode.input, TASK.input_grids_examples[1, :4, :4])
    np.testing.assert_array_equal(episode.target, episode.input[:, ::-1])
    first, _, mirror, submit = episode.steps
    painted = episode.input.copy()
    painted[1, 1] = 3
    np.testing.assert_array_equal(first.before, episode.input)
    np.testing.assert_array_equal(first.after, painted)
    assert first.selection.shape == (6, 6)
    assert np.argwhere(first.selection).tolist() == [[1, 1]]
    np.testing.assert_array_equal(mirror.after, episode.target)
    np.testing.assert_array_equal(submit.after, episode.target)  # of the finished episode, autoreset or not
    assert (mirror.operation, mirror.similarity, mirror.terminated) == (26, 1.0, False)
    assert submit.success
    assert submit.terminated
    assert (episode.outcome, submit.pair_index, submit.pair) == ("solved", 1, None)
    assert submit.reward == pytest.approx(9.99, abs=1e-5)
    assert episode.total_reward == pytest.approx(
        10.0 + 1.0 - _similarity(episode.input, episode.target) - 0.04, abs=1e-4
    )


def _similarity(one, other):
    return float(np.mean(one == other))


def test_a_policy_sees_observations_and_invalid_and_resizing_steps_are_recorded():
    config = settings()
    seen = []

    def policy(obs, t):
        seen.append(jax.tree.leaves(obs)[0])
        return (
            PointAction(10, 9, 9),
            PointAction(33, 5, 4),
            MaskAction(1, np.zeros((6, 6), bool)),
            *SOLUTION,
        )[t]

    state, obs = arc_reset(jax.random.key(0), config, TASK)
    for start in ((state, obs), state):
        seen.clear()
        episode = record_episode(start, policy, config)
        assert len(seen) == episode.length == 4
        assert [step.valid for step in episode.steps] == [False, True, True, True]
        assert not episode.steps[0].selection.any()
        assert episode.steps[1].after.shape == (6, 5)
        assert (episode.outcome, episode.task_id) == ("out of steps", "task 0")
    assert record_episode((state, obs), policy, config, max_steps=2).length == 2
    assert record_episode(state, [], config).length == 0


def test_no_target_is_recorded_in_test_mode_and_other_pairs_are():
    config = settings(control=True)
    start = arc_reset(jax.random.key(0), config, TASK, episode_mode=1, initial_pair_idx=0)
    episode = record_episode(
        start, [PointAction(1, 0, 0), PointAction(35, 0, 0), PointAction(37, 0, 0)], config
    )
    assert (episode.mode, episode.target) == ("test", None)
    here, there, back = (step.pair for step in episode.steps)
    assert here is back is None
    assert (there.mode, there.index) == ("train", 0)
    np.testing.assert_array_equal(there.input, TASK.input_grids_examples[0, :4, :4])
    np.testing.assert_array_equal(there.target, there.input[:, ::-1])
    np.testing.assert_array_equal(episode.steps[1].after, there.input)


def test_a_step_of_your_own_is_used_and_called_once_per_action():
    config = settings()
    calls = []

    def my_step(state, action, config):
        calls.append(int(action.operation))
        return arc_step(state, action, config)

    start = arc_reset(jax.random.key(0), config, TASK)
    record_episode(start, [PointAction(1, 0, 0), PointAction(2, 0, 0)], config, step=my_step)
    assert calls == [1, 2]


def test_the_environments_task_can_be_drawn():
    cells = [p for p in ET.fromstring(task_svg(TASK)).iter() if p.get("class") == "cells"]
    assert len(cells) > 7


# --- the session ---


def make_episode(steps=3, side=5, name="t1", pair=None):
    grids = RNG.integers(0, 10, (steps + 1, side, side)).astype(np.int8)
    made = tuple(
        StepRecord(
            3,
            RNG.random((8, 8)) < 0.3,
            grids[i],
            grids[i + 1],
            0.5,
            0.25,
            i > 0,
            i == steps - 1,
            False,
            False,
            0,
            pair,
        )
        for i in range(steps)
    )
    return EpisodeRecord(name, "train", grids[0], grids[-1], made)


def config(level="research", enabled=True, run_async=False, monitor=True, **memory):
    debug = DebugConfig(level, run_async, monitor, MemoryManagementConfig(**memory))
    return VisualizationConfig(enabled, debug)


def open_session(folder, *args, **kwargs):
    console = Console(file=io.StringIO(), width=80)
    return VisualizationSession(config(*args, **kwargs), folder, console=console), console.file


def test_all_settings_may_stand_for_those_of_looking(tmp_path):
    with VisualizationSession(JaxArcConfig(visualization=config("verbose")), tmp_path) as session:
        assert session.level == 3


def run(folder, *args, **kwargs):
    """Log an episode and its steps; returns what was printed, the names of the files, and the session."""
    session, out = open_session(folder, *args, **kwargs)
    episode = make_episode()
    with session:
        for number, step in enumerate(episode.steps, start=1):
            session.log_step(step, number=number)
        session.log_episode(episode)
    files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    assert session.errors == 0, session.last_error
    return out.getvalue(), files, session


LINE = "t1 (train): failed · 3 steps · reward +1.500 · similarity 0.250"
STANDARD = {"episode_00001.svg", "episodes.jsonl", "performance.json"}
RESEARCH = STANDARD | {"episode_00001.html", "episodes/episode_00001.jxw", "steps.jsonl"}


@pytest.mark.parametrize(
    ("level", "files", "steps"),
    [
        ("off", set(), 0),
        ("minimal", set(), 0),
        ("standard", STANDARD, 0),
        ("verbose", STANDARD, 3),
        ("research", RESEARCH, 3),
        (2, STANDARD, 0),
    ],
)
@pytest.mark.parametrize("run_async", [False, True])
def test_each_level_shows_and_keeps_more(level, files, steps, run_async, tmp_path):
    printed, found, _ = run(tmp_path, level, run_async=run_async)
    assert found == files
    assert printed.count("before 5×5") == steps
    assert printed.splitlines()[-1:] == ([] if level == "off" else [LINE])
    if steps:
        assert printed.startswith("step 1: fill 3 on ")


def test_what_is_not_enabled_does_nothing(tmp_path):
    printed, files, session = run(tmp_path / "none", enabled=False)
    assert (printed, files, session.level) == ("", set(), 0)
    assert not (tmp_path / "none").exists()


def test_the_files_say_what_happened(tmp_path):
    run(tmp_path)
    (row,) = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert row["key"] == "episode_00001"
    assert (row["outcome"], row["length"], row["total_reward"]) == ("failed", 3, 1.5)
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [step["number"] for step in steps] == [1, 2, 3]
    assert [step["valid"] for step in steps] == [False, True, True]
    assert steps[0]["name"] == "fill 3"
    assert ET.fromstring((tmp_path / "episode_00001.svg").read_text()) is not None
    assert "t1 (train)" in (tmp_path / "episode_00001.html").read_text()


def test_async_logging_returns_at_once_and_closing_waits(tmp_path, monkeypatch):
    release, threads = threading.Event(), []

    def slow(episode, console=None):
        threads.append(threading.current_thread().name)
        release.wait(10)

    monkeypatch.setattr(session_module, "print_episode", slow)
    session, _ = open_session(tmp_path, "minimal", run_async=True)
    start = time.perf_counter()
    session.log_episode(make_episode())
    assert time.perf_counter() - start < 5.0  # the printer waits for ten
    release.set()
    session.flush()
    assert threads == ["visualization"]
    session.close()
    assert "visualization" not in {t.name for t in threading.enumerate()}

    session, _ = open_session(tmp_path, "minimal", run_async=False)
    with session:
        session.log_episode(make_episode())
    assert threads[1] == threading.current_thread().name


def test_a_full_queue_drops_steps_and_keeps_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_QUEUE", 2)
    release, shown, kept = threading.Event(), [], []
    monkeypatch.setattr(
        session_module, "print_step", lambda step, **_: (release.wait(10), shown.append(step))
    )
    monkeypatch.setattr(session_module, "print_episode", lambda episode, **_: kept.append(episode))
    session, _ = open_session(tmp_path, "verbose", run_async=True)
    step, episode = make_episode().steps[0], make_episode()
    for _ in range(10):
        session.log_step(step)
    assert session.dropped >= 7
    threading.Timer(0.05, release.set).start()
    for _ in range(4):
        session.log_episode(episode)
    session.close()
    assert len(kept) == 4
    assert len(shown) + session.dropped == 10


@pytest.mark.parametrize("run_async", [False, True])
def test_failures_are_counted_and_never_reach_the_caller(run_async, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    session, out = open_session(blocked, run_async=run_async)
    with session:
        session.log_episode(make_episode())
        session.log_episode(make_episode())
    assert session.errors == 9  # picture, summary, page and arrays of both, and the times
    assert isinstance(session.last_error, OSError)
    assert out.getvalue().count("failed · 3 steps") == 2


def test_performance_monitoring_keeps_and_writes_the_times(tmp_path):
    _, _, session = run(tmp_path / "on")
    told = session.performance()
    assert told["log_step"]["calls"] == told["show_step"]["calls"] == 3
    assert told["svg"]["calls"] == 1
    assert told["log_episode"]["total_ms"] >= told["html"]["total_ms"] > 0
    assert told["log_step"]["max_ms"] >= told["log_step"]["avg_ms"]
    assert json.loads((tmp_path / "on" / "performance.json").read_text())["log_step"]["calls"] == 3
    _, files, session = run(tmp_path / "off", monitor=False)
    assert session.performance() == {}
    assert "performance.json" not in files


def assert_equal(one, other):
    for name in ("task_id", "mode", "length", "outcome"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.input, other.input)
    for mine, theirs in zip(one.steps, other.steps, strict=True):
        for name in ("operation", "reward", "similarity", "valid", "terminated", "pair_index"):
            assert getattr(mine, name) == getattr(theirs, name)
            assert type(getattr(mine, name)) is type(getattr(theirs, name))
        for name in ("selection", "before", "after"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            assert getattr(mine, name).dtype == getattr(theirs, name).dtype
        assert (mine.pair is None) == (theirs.pair is None)
        if mine.pair is not None:
            assert (mine.pair.mode, mine.pair.index) == (theirs.pair.mode, theirs.pair.index)
            np.testing.assert_array_equal(mine.pair.input, theirs.pair.input)
            assert theirs.pair.target is None


@pytest.fixture
def no_pictures(monkeypatch):
    """Leaves the pictures out where they are not the point: run-time type checks make them slow."""
    monkeypatch.setattr(session_module, "episode_svg", lambda episode: "")
    monkeypatch.setattr(session_module, "episode_html", lambda episode, path: "")


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("compression", [True, False])
def test_saved_episodes_come_back_compressed_or_not(compression, tmp_path):
    pair = PairRecord("test", 1, np.ones((2, 2), np.int8), None)
    episodes = [make_episode(), make_episode(0), make_episode(2, pair=pair)]
    session, _ = open_session(tmp_path, compression=compression, lazy_loading=False)
    with session:
        keys = [session.log_episode(episode) for episode in episodes]
        assert keys[2] == "episode_00003"
        session.cache.clear()
        for key, episode in zip(keys, episodes, strict=True):
            assert_equal(episode, session.load(key))
    names = sorted(f.name for f in (tmp_path / "episodes").iterdir())
    assert names[0] == ("episode_00001.jxw" if compression else "episode_00001.npz")
    if not compression:
        with np.load(tmp_path / "episodes" / names[0], allow_pickle=False) as file:
            np.testing.assert_array_equal(file["after_0"], episodes[0].steps[0].after)


@pytest.mark.usefixtures("no_pictures")
def test_compression_makes_smaller_files(tmp_path):
    grid = np.zeros((30, 30), np.int8)
    step = StepRecord(0, np.zeros((30, 30), bool), grid, grid, 0.0, 1.0, True, False, False, False, 0)
    sizes = []
    for compression in (True, False):
        folder = tmp_path / str(compression)
        session, _ = open_session(folder, compression=compression)
        with session:
            session.log_episode(EpisodeRecord("x", "train", grid, grid, (step,) * 30))
        sizes.append(sum(f.stat().st_size for f in (folder / "episodes").iterdir()))
    assert sizes[0] < 0.5 * sizes[1]


@pytest.mark.usefixtures("no_pictures")
def test_lazy_loading_reads_the_file_only_when_asked(tmp_path):
    episode = make_episode()
    session, _ = open_session(tmp_path, lazy_loading=True)
    with session:
        key = session.log_episode(episode)
        session.cache.clear()
        loader = session.load(key)
        assert isinstance(loader, LazyLoader)
        assert not loader.loaded
        assert_equal(episode, loader.get())
        assert session.manager.get_memory_report()["owned"]["loaded"] == 1
    session, _ = open_session(tmp_path / "b", lazy_loading=False)
    with session:
        assert isinstance(session.load(session.log_episode(episode)), EpisodeRecord)


def test_the_cache_holds_at_most_its_megabytes(tmp_path):
    episode = make_episode(20, 20)
    kept = {}
    for megabytes in (0.05, 10.0):
        session, _ = open_session(
            tmp_path / str(megabytes), "minimal", max_cache_mb=megabytes, lazy_loading=False
        )
        with session:
            keys = [session.log_episode(episode) for _ in range(10)]
            assert session.cache.nbytes <= megabytes * 1e6
            kept[megabytes] = len(session.cache)
            assert session.load(keys[-1]) is episode  # the cache has it, though nothing was saved
            if megabytes == 0.05:
                with pytest.raises(KeyError, match="level 'research' saves all"):
                    session.load(keys[0])
    assert 1 <= kept[0.05] < 5
    assert kept[10.0] == 10


@pytest.mark.usefixtures("no_pictures")
def test_the_total_is_a_budget_over_cache_and_loaded_episodes(tmp_path):
    episode = make_episode(8, 30)
    held = {}
    for megabytes in (0.06, 10.0):
        session, _ = open_session(tmp_path / str(megabytes), max_cache_mb=10.0, max_total_mb=megabytes)
        with session:
            keys = [session.log_episode(episode) for _ in range(6)]
            loaders = [session.load(key) for key in keys]
            for loader in loaders:
                loader.get()
            held[megabytes] = session.manager.nbytes
            assert held[megabytes] <= megabytes * 1e6
        assert session.manager.nbytes == 0  # let go of at the end
    assert held[10.0] > 2 * held[0.06] > 0


def test_an_unknown_episode_is_refused(tmp_path):
    session, _ = open_session(tmp_path)
    with session, pytest.raises(KeyError, match="no episode 'x'"):
        session.load("x")

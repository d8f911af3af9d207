"""The environment's own promises: settings, choices at reset, autoreset, history, observations, checks, scores."""

import dataclasses
import html
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarc.tasks
from jaxarc.envs import (
    BboxAction,
    DebugConfig,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    ObservationConfig,
    PointAction,
    RewardConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    VisualizationConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
    official,
    state_bytes,
)
from jaxarc.envs._arguments import reset_arguments
from jaxarc.envs.config import _one_of
from jaxarc.envs.episodes import evaluate, random_actions, random_policy, rollout, score_submissions
from jaxarc.envs.history import records, replayed_actions
from jaxarc.envs.structured_actions import demand_action
from jaxarc.tasks import JaxArcTask, RawTask, TaskSet
from jaxarc.testing import create_mock_task, create_test_config
from jaxarc.utils.error_handling import JAXErrorHandler
from jaxarc.utils.visualization import VisualizationSession, record_episode
from jaxworlds import CheckError, checking_on, clear_errors

pytestmark = pytest.mark.usefixtures("quick_compile")

# One canvas for most tests, so that they share programs.
SMALL = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=6, max_attempts=2), dataset=UnifiedDatasetConfig(5, 5)
)


def raw(name: str, *pairs: tuple[Any, Any], tests: int = 1) -> RawTask:
    grids = tuple((np.array(a, np.int8), np.array(b, np.int8)) for a, b in pairs)
    return RawTask(name, grids[: len(grids) - tests], grids[len(grids) - tests :], "here")


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    """Three tasks with 2, 1 and 3 demonstration pairs whose inputs tell which pair they are."""
    return TaskSet.of(
        [
            raw("a", ([[1]], [[2]]), ([[1, 1]], [[2, 2]]), ([[1], [1]], [[2], [2]])),
            raw("b", ([[3, 3], [3, 3]], [[3]]), ([[3, 0]], [[0, 3]])),
            raw("c", ([[4]], [[5]]), ([[4, 4]], [[5]]), ([[4, 4, 4]], [[5]]), ([[6]], [[7]]), tests=1),
        ]
    )


def point(operation: int, row: int = 0, col: int = 0) -> PointAction:
    return PointAction(operation, row, col)


# --- settings ---


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: EnvironmentConfig(max_episode_steps=0),
            "`max_episode_steps` must be an integer of at least 1",
        ),
        (lambda: EnvironmentConfig(debug_level="loud"), "`debug_level` must be one of 'off'"),
        (lambda: EnvironmentConfig(autoreset="never"), "`autoreset` must be one of None"),  # type: ignore
        (lambda: EnvironmentConfig(max_attempts=256), "`max_attempts` must be at most 255"),
        (lambda: UnifiedDatasetConfig(max_grid_width=33), "`max_grid_width` must be at most 32; got 33"),
        (lambda: UnifiedActionConfig(selection_format="lasso"), "`selection_format` must be one of"),  # type: ignore
        (lambda: UnifiedActionConfig(allowed_operations=(35,)), "35 to 41 need `control_operations=True`"),
        (lambda: UnifiedActionConfig(allowed_operations=()), "`allowed_operations` must name at least one"),
        (lambda: RewardConfig(success=float("nan")), "`success` must be a finite number"),
        (lambda: ObservationConfig(format="png"), "`format` must be one of"),  # type: ignore
        (lambda: JaxArcConfig(environment=EnvironmentConfig(solve="all")), "`solve='all'` needs operations"),
    ],
)
def test_a_wrong_setting_is_refused_in_words(make: Any, words: str) -> None:
    # The annotations already refuse some of them in tests; users run without that.
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    if "Type-check" not in str(caught.value):
        assert words in str(caught.value)


def test_a_word_that_is_none_of_the_choices_is_refused() -> None:
    with pytest.raises(ValueError, match="`autoreset` must be one of None, 'task'; got 'never'"):
        _one_of("autoreset", "never", (None, "task"))


def test_flags_and_weights_are_what_they_should_be() -> None:
    for make in (
        lambda: UnifiedActionConfig(history="no"),  # type: ignore
        lambda: UnifiedActionConfig(allowed_operations=(True,)),
        lambda: RewardConfig(success=float("inf")),
        lambda: RewardConfig(extra=((len, float("nan")),)),
    ):
        with pytest.raises((ValueError, TypeError)):
            make()


def test_configs_are_hashable_and_equal_by_value() -> None:
    assert hash(JaxArcConfig()) == hash(JaxArcConfig())
    assert JaxArcConfig() != JaxArcConfig(environment=EnvironmentConfig(max_episode_steps=7))
    assert create_test_config(50, 15, "bbox").canvas == (15, 15)
    rules = official(SMALL)
    assert (rules.environment.max_attempts, rules.environment.episode_mode) == (2, "test")
    assert rules.reward == RewardConfig(similarity=0, success=1, step_penalty=0, submission_penalty=0)
    assert rules.environment.max_episode_steps == 6


def test_numbers_of_numpy_make_the_same_settings() -> None:
    def settings(whole: Any, number: Any, flag: Any) -> JaxArcConfig:
        return JaxArcConfig(
            environment=EnvironmentConfig(max_episode_steps=whole(7), max_attempts=whole(2)),
            dataset=UnifiedDatasetConfig(whole(5), whole(6)),
            action=UnifiedActionConfig(allowed_operations=(whole(34), whole(3)), history=flag(False)),
            reward=RewardConfig(success=number(0.5), extra=((len, number(2)),)),
        )

    ours, theirs = settings(int, float, bool), settings(np.int64, np.float32, np.bool_)
    assert (theirs, hash(theirs), repr(theirs)) == (ours, hash(ours), repr(ours))


# --- reset ---


def test_tasks_that_were_donated_by_hand_are_named(tasks: TaskSet) -> None:
    """Donated states of a reset leave the tasks alone; those into which a user put them do not."""
    own = tasks.with_canvas(*tasks.canvas)  # a bank that no other test needs
    donated = jax.jit(lambda states: states, donate_argnums=0)
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 2), SMALL, own)
    jax.block_until_ready(donated(states))
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 2), SMALL, own)
    jax.block_until_ready(donated(eqx.tree_at(lambda s: s.task_data, states, own.bank)))
    with pytest.raises(ValueError, match=r"`task_data` was donated, .*`replace_tasks"):
        batch_reset(jax.random.split(jax.random.key(0), 2), SMALL, own)


def test_reset_takes_the_input_of_the_pair_it_scores(tasks: TaskSet) -> None:
    keys = jax.random.split(jax.random.key(0), 200)
    states, seen = batch_reset(keys, SMALL, tasks)
    places = set()
    targets, grids = np.asarray(states.target_grid), np.asarray(seen.grid)
    for i in range(200):
        task, pair = int(states.task_index[i]), int(states.pair_index[i])
        source, target = list(tasks)[task].train[pair]
        h, w = source.shape
        np.testing.assert_array_equal(grids[i, :h, :w], source)
        assert (grids[i] >= 0).sum() == source.size
        shown = targets[i]
        np.testing.assert_array_equal(shown[: target.shape[0], : target.shape[1]], target)
        places.add((task, pair))
    assert places == {(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)}


def test_reset_to_a_chosen_task_pair_and_mode(tasks: TaskSet) -> None:
    state, seen = arc_reset(jax.random.key(1), SMALL, tasks, task_index=2, initial_pair_idx=1, episode_mode=0)
    assert (int(state.task_index), int(state.pair_index), int(state.episode_mode)) == (2, 1, 0)
    assert tuple(seen.size) == (1, 2)
    state, seen = arc_reset(jax.random.key(1), SMALL, tasks, episode_mode=1, task_index=2)
    assert int(seen.grid[0, 0]) == 6
    states, _ = batch_reset(
        jax.random.split(jax.random.key(0), 3), SMALL, tasks, task_index=jnp.arange(3), initial_pair_idx=0
    )
    assert states.task_index.tolist() == [0, 1, 2]
    # Task b has one demonstration, so without a task only pair 0 is sure to exist.
    with pytest.raises(IndexError, match=r"from 0 to 0; got 1\. That is what every task has"):
        arc_reset(jax.random.key(1), SMALL, tasks, initial_pair_idx=1)
    beyond = jax.jit(lambda pair: arc_reset(jax.random.key(1), SMALL, tasks.bank, None, pair, 1)[0])(5)
    assert (int(beyond.pair_index), int(beyond.working_grid[0, 0])) == (0, 3)
    for wrong, words in (
        ({"task_index": 3}, "`task_index` must be from 0 to 2; got 3"),
        ({"task_index": 1, "initial_pair_idx": 1}, "`initial_pair_idx` must be from 0 to 0; got 1"),
    ):
        with pytest.raises(IndexError, match=words):
            arc_reset(jax.random.key(0), SMALL, tasks, **wrong)
    with pytest.raises(ValueError, match="`episode_mode` must be 0"):
        arc_reset(jax.random.key(0), SMALL, tasks, episode_mode=2)
    untested = TaskSet.of([raw("d", ([[1]], [[2]]), tests=0), raw("e", ([[1]], [[2]]), ([[3]], [[4]]))])
    for mode in (1, jnp.array([0, 1])):
        with pytest.raises(ValueError, match="needs test pairs, and a task that may be drawn has none"):
            batch_reset(jax.random.split(jax.random.key(0), 2), SMALL, untested, episode_mode=mode)
    states, _ = batch_reset(
        jax.random.split(jax.random.key(0), 2),
        SMALL,
        untested,
        episode_mode=jnp.array([0, 1]),
        task_index=[0, 1],
    )
    assert np.asarray(states.working_grid)[:, 0, 0].tolist() == [1, 3]


def test_what_does_not_belong_together_is_refused(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks)
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 2), SMALL, tasks)
    with pytest.raises(ValueError, match="Use `batch_step` or `batch_observe` for these"):
        arc_step(states, point(0), SMALL)
    with pytest.raises(ValueError, match="Use `arc_step` for these"):
        batch_step(state, point(0), SMALL)
    with pytest.raises(ValueError, match="the canvas of the state, 5×5; got 30×30"):
        arc_step(state, point(0), JaxArcConfig())
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        with pytest.raises(ValueError, match="`keys` must hold one key for each environment"):
            batch_reset(key, SMALL, tasks)


def test_a_traced_task_that_is_too_large_fails_with_checks_on() -> None:
    config = create_test_config(grid_size=10)
    start = jax.jit(lambda task: arc_reset(jax.random.key(0), config, task)[0].height)
    with pytest.raises(CheckError, match="`task_data` must fit the canvas"), checking_on():
        clear_errors(start)(create_mock_task())


def test_tasks_that_do_not_fit_or_are_none_are_refused() -> None:
    config = create_test_config(grid_size=10)
    with pytest.raises(ValueError, match="holds a grid of 15×15 cells, and the canvas has 10×10"):
        arc_reset(jax.random.key(0), config, create_mock_task())
    with pytest.raises(ValueError, match="`size` must be from 1 to `canvas`"):
        create_mock_task(31)
    with pytest.raises(TypeError, match="`task_data` must be a JaxArcTask"):
        arc_reset(jax.random.key(0), config, {"train": []})
    # The annotation of `arc_reset` refuses it first, in tests only.
    with pytest.raises(TypeError, match=r"The order is arc_reset\(key, config, task_data\)"):
        reset_arguments(create_mock_task(), config, None, None, None)


def test_a_task_on_a_larger_canvas_gives_the_same_episode() -> None:
    """The mock task is 15×15 on 30×30 and fits a canvas of 15×15 of the guide."""
    large, small = create_mock_task(), create_mock_task(canvas=15)
    config = create_test_config(grid_size=15)
    key = jax.random.key(5)
    first, second = (arc_reset(key, config, task)[0] for task in (large, small))
    np.testing.assert_array_equal(first.working_grid, second.working_grid)
    np.testing.assert_array_equal(first.target_grid, second.target_grid)
    assert first.working_grid.shape == (15, 15)


def test_weights_decide_which_tasks_are_drawn(tasks: TaskSet) -> None:
    keys = jax.random.split(jax.random.key(2), 3000)
    bank = tasks.bank.with_weights(jnp.array([1.0, 0.0, 3.0]))
    states, _ = batch_reset(keys, SMALL, bank)
    share = np.bincount(states.task_index, minlength=3) / 3000
    np.testing.assert_allclose(share, [0.25, 0.0, 0.75], atol=0.03)
    pairs = np.bincount(np.asarray(states.pair_index)[np.asarray(states.task_index) == 2]) / 2250
    np.testing.assert_allclose(pairs, [1 / 3] * 3, atol=0.05)
    for bad in ([1.0, 2.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [np.nan, 1, 1]):
        with pytest.raises(ValueError, match="`weights` must"):
            tasks.bank.with_weights(jnp.array(bad))


# --- episodes ---


def test_attempts_success_and_the_end(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=0, initial_pair_idx=0)
    state, obs, reward, done, info = arc_step(state, point(34), SMALL)
    assert (bool(done), int(info["attempts_used"]), int(obs.attempts_left)) == (False, 1, 1)
    assert float(reward) == pytest.approx(-1.01)
    state, _, reward, done, info = arc_step(state, point(2), SMALL)
    assert (float(info["similarity"]), bool(info["success"]), bool(done)) == (1.0, False, False)
    assert float(reward) == pytest.approx(0.99)
    state, _, reward, done, info = arc_step(state, point(34), SMALL)
    assert (bool(done), bool(info["terminated"]), bool(info["truncated"])) == (True, True, False)
    assert bool(info["success"])
    assert float(reward) == pytest.approx(9.99)
    again, _, reward, done, info = arc_step(state, point(5), SMALL)
    assert (bool(done), float(reward), int(info["step_count"])) == (True, 0.0, 3)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(before, after)


def test_attempts_used_up_end_the_episode_and_the_step_limit_truncates(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=1)
    for expected in (False, True):
        state, _, _, done, info = arc_step(state, point(34), SMALL)
        assert bool(done) is expected
    assert (bool(info["terminated"]), bool(info["success"])) == (True, False)
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=1)
    for step in range(6):
        state, _, _, done, info = arc_step(state, point(99), SMALL)
        assert bool(done) is (step == 5)
        assert not bool(info["valid_action"])
    assert (bool(info["terminated"]), bool(info["truncated"])) == (False, True)


def test_an_oversized_answer_is_not_solved(tasks: TaskSet) -> None:
    """Task b asks for [[3]]; its input is 2×2 threes."""
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=1)
    assert float(state.similarity) == 0.25
    *_, info = arc_step(state, point(34), SMALL)
    assert not bool(info["success"])
    state, _, _, _, _ = arc_step(state, point(33, 0, 0), SMALL)
    *_, info = arc_step(state, point(34), SMALL)
    assert bool(info["success"])


@pytest.mark.parametrize("how", ["same", "pair", "task"])
def test_autoreset_starts_a_new_episode_and_tells_of_the_old(tasks: TaskSet, how: Any) -> None:
    config = dataclasses.replace(SMALL, environment=EnvironmentConfig(max_episode_steps=2, autoreset=how))
    batch = 64
    states, _ = batch_reset(jax.random.split(jax.random.key(3), batch), config, tasks, task_index=2)
    first = np.asarray(states.pair_index)
    seen_tasks, seen_pairs = set(), set()
    for step in range(8):
        actions = PointAction(jnp.full(batch, 7), 0, 0)
        states, obs, _, done, info = batch_step(states, actions, config)
        assert bool(done.all()) is (step % 2 == 1)
        assert (np.asarray(info["final_observation"].grid)[:, 0, 0] == 7).all()
        assert info["step_count"].tolist() == [step % 2 + 1] * batch
        if step % 2:
            assert states.step_count.tolist() == [0] * batch
            assert not states.done.any()
            assert (np.asarray(obs.grid)[:, 0, 0] != 7).all()
            assert int(states.action_history.length.max()) == 0
        seen_tasks |= set(states.task_index.tolist())
        seen_pairs |= set(states.pair_index.tolist())
    if how == "same":
        np.testing.assert_array_equal(states.pair_index, first)
    else:
        assert seen_pairs == {0, 1, 2}
    assert seen_tasks == ({0, 1, 2} if how == "task" else {2})


def test_control_operations_return_to_the_start_of_the_episode(tasks: TaskSet) -> None:
    config = JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=2, autoreset="same"),
        dataset=UnifiedDatasetConfig(5, 5),
        action=UnifiedActionConfig(control_operations=True),
    )
    state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=2, initial_pair_idx=1)
    state, obs, _, _, info = arc_step(state, point(37), config)
    assert (int(info["episode_mode"]), int(obs.grid[0, 0])) == (1, 6)
    assert bool(info["is_control_operation"])
    state, obs, _, done, _ = arc_step(state, point(0), config)
    assert bool(done)
    assert (int(state.episode_mode), int(obs.episode_mode), int(state.pair_index)) == (0, 0, 1)


def test_allowed_operations_are_enforced(tasks: TaskSet) -> None:
    config = dataclasses.replace(SMALL, action=UnifiedActionConfig(allowed_operations=(3, 34)))
    state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=0)
    after, _, _, _, info = arc_step(state, point(2), config)
    assert not bool(info["valid_action"])
    np.testing.assert_array_equal(after.working_grid, state.working_grid)
    after, _, _, _, info = arc_step(state, point(3), config)
    assert int(after.working_grid[0, 0]) == 3


def test_dictionary_actions_and_wrong_batches_are_refused(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks)
    with pytest.raises(TypeError, match=r"Write PointAction\(operation=0, row=5, col=5\)"):
        demand_action({"operation": 0, "selection": jnp.array([5, 5])})
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 4), SMALL, tasks)
    with pytest.raises(ValueError, match="`actions` must hold one action for each"):
        batch_step(states, point(0), SMALL)
    with pytest.raises(TypeError, match=r"`row` must hold integers; got 1\.5"):
        PointAction(0, 1.5, 0)
    with pytest.raises(ValueError, match="`selection` must have the shape of the canvas, 5×5"):
        arc_step(state, MaskAction(0, jnp.zeros((4, 5), bool)), SMALL)


# --- actions ---


def test_selection_masks() -> None:
    grid_shape = (30, 30)
    mask = point(0, 5, 6).to_selection_mask(grid_shape)
    assert (mask.dtype, mask.shape, np.argwhere(mask).tolist()) == (bool, grid_shape, [[5, 6]])
    box = BboxAction(0, 7, 3, 3, 7).to_selection_mask(grid_shape)
    expected = np.zeros(grid_shape, bool)
    expected[3:8, 3:8] = True
    np.testing.assert_array_equal(box, expected)
    words = MaskAction(0, expected).selection_rows(30, 30)
    for action in (MaskAction(0, expected), MaskAction(0, words)):
        np.testing.assert_array_equal(action.to_selection_mask(grid_shape), expected)
    batch = PointAction(jnp.zeros(3, jnp.int32), jnp.arange(3), 5)
    assert np.argwhere(batch.to_selection_mask(grid_shape)).tolist() == [[0, 0, 5], [1, 1, 5], [2, 2, 5]]
    assert not point(0, -1, 40).to_selection_mask(grid_shape).any()


# --- history ---


@pytest.mark.parametrize(
    ("form", "action", "expected", "size"),
    [
        ("point", PointAction(3, 4, 2), {"row": 4, "col": 2}, 24),
        ("bbox", BboxAction(13, 1, 2, 4, 3), {"r1": 1, "c1": 2, "r2": 4, "c2": 3}, 48),
    ],
)
def test_the_history_keeps_every_field(
    tasks: TaskSet, form: Any, action: Any, expected: dict, size: int
) -> None:
    config = dataclasses.replace(SMALL, action=UnifiedActionConfig(selection_format=form))
    state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=2, initial_pair_idx=2)
    assert state.action_history.nbytes == size
    state, *_ = arc_step(state, point(77, 0, 0), config)
    state, *_ = arc_step(state, action, config)
    kept = records(state.action_history, 5)
    found = {name: int(column[1]) for name, column in kept.items()}
    assert found["operation"] == int(action.operation)
    assert expected.items() <= found.items()
    assert (found["timestamp"], found["pair_index"], found["exact"]) == (1, 2, 1)
    # The point lies off the active grid of 1×3, and no flood starts from a box.
    assert kept["valid"].tolist() == [False, False]
    assert kept["operation"][0] == 63
    on_grid = PointAction(3, 0, 2) if form == "point" else BboxAction(3, 0, 1, 0, 2)
    state, *_ = arc_step(state, on_grid, config)
    assert records(state.action_history, 5)["valid"].tolist() == [False, False, True]


def test_a_mask_history_is_one_word_per_row_and_replays(tasks: TaskSet) -> None:
    config = dataclasses.replace(SMALL, action=UnifiedActionConfig(selection_format="mask"))
    state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=1)
    assert state.action_history.nbytes == 6 * 6 * 4
    start = state
    corners = np.zeros((5, 5), bool)
    corners[0, 0] = corners[1, 1] = True
    state, *_ = arc_step(state, MaskAction(8, corners), config)
    state, *_ = arc_step(state, point(9, 0, 1), config)
    again = start
    for action in replayed_actions(state.action_history, 5):
        assert isinstance(action, MaskAction)
        again, *_ = arc_step(again, action, config)
    np.testing.assert_array_equal(again.working_grid, state.working_grid)
    assert np.asarray(state.working_grid)[:2, :2].tolist() == [[8, 9], [3, 8]]


def test_an_action_of_another_format_is_kept_by_its_box(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=1)
    state, *_ = arc_step(state, BboxAction(8, 0, 1, 1, 1), SMALL)
    assert np.asarray(state.working_grid)[:2, :2].tolist() == [[3, 8], [3, 8]]
    kept = records(state.action_history, 5)
    assert (int(kept["row"][0]), int(kept["col"][0]), bool(kept["exact"][0])) == (0, 1, False)
    with pytest.raises(ValueError, match="step 0 of the history was an action of another format"):
        replayed_actions(state.action_history, 5)


def test_sizes_of_the_state() -> None:
    """The bars: 2.5 kB without a history, 3 kB with a point history of 100 steps, at 30×30."""
    task = create_mock_task()
    off = JaxArcConfig(action=UnifiedActionConfig(history=False))
    state, _ = arc_reset(jax.random.key(0), off, task)
    assert state.action_history.nbytes == 0
    assert state_bytes(state) <= 2500
    state, _ = arc_reset(jax.random.key(0), create_test_config(), task)
    assert state.action_history.nbytes == 400
    assert state_bytes(state) <= 3000
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 8), create_test_config(), task)
    assert state_bytes(states) == state_bytes(state)


def test_a_step_copies_no_tasks() -> None:
    task, config = create_mock_task(), create_test_config()
    state, _ = arc_reset(jax.random.key(0), config, task)
    after, *_ = arc_step(state, point(0), config)
    assert after.task_data is state.task_data


# --- observations ---


@pytest.mark.parametrize("form", ["grid", "packed", "onehot"])
def test_the_formats_of_an_observation_hold_the_same_grid(tasks: TaskSet, form: Any) -> None:
    config = dataclasses.replace(SMALL, observation=ObservationConfig(format=form, demonstrations=True))
    state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=2, initial_pair_idx=1)
    _, obs, *_ = arc_step(state, BboxAction(28, 0, 0, 0, 1), config)
    shown = obs.demonstrations
    assert shown is not None
    if form == "grid":
        assert np.asarray(obs.grid)[0].tolist() == [4, 4, -1, -1, -1]
        assert np.asarray(obs.clipboard)[0].tolist() == [4, 4, -1, -1, -1]
        assert np.asarray(shown.inputs)[2, 0].tolist() == [4, 4, 4, -1, -1]
        assert int(shown.outputs[0, 0, 0]) == 5
        assert (np.asarray(shown.outputs)[1] == -1).all()  # the answer of the pair that is being worked on
    elif form == "packed":
        assert np.asarray(obs.grid)[:, 0].tolist() == [0, 0, 3, 0]
        assert np.asarray(obs.clipboard)[:, 0].tolist() == [0, 0, 3, 0, 3]
    else:
        assert obs.grid.shape == (10, 5, 5)
        assert np.argwhere(obs.grid).tolist() == [[4, 0, 0], [4, 0, 1]]
    assert shown.input_sizes.tolist() == [[1, 1], [1, 2], [1, 3]]
    assert shown.output_sizes.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_what_is_left_out_is_not_there(tasks: TaskSet) -> None:
    config = dataclasses.replace(SMALL, observation=ObservationConfig(input=False, clipboard=False))
    _, obs = arc_reset(jax.random.key(0), config, tasks)
    assert obs.input is None
    assert obs.clipboard is None
    assert obs.demonstrations is None


# --- checks ---


def test_invalid_actions_raise_with_checks_on(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=0)
    monkeypatch.setenv("EQX_ON_ERROR", "raise")
    for action, words in (
        (point(0, 5, 0), "`action` must select cells of the canvas"),
        (point(35), "`action.operation` must be an operation that exists"),
        (point(28, 4, 4), "exactly one to flood, at least one to copy or cut"),
    ):
        with pytest.raises(CheckError, match=words), checking_on():
            arc_step(state, action, SMALL)
    loud = dataclasses.replace(
        SMALL, environment=EnvironmentConfig(max_episode_steps=6, max_attempts=2, debug_level="minimal")
    )
    with pytest.raises(CheckError, match="must select cells of the canvas"):
        arc_step(state, point(0, 5, 0), loud)
    # The variable counts although it is set long after import, and after the first program was made.
    monkeypatch.setenv("EQX_ON_ERROR", "nan")
    _, _, reward, _, _ = arc_step(state, point(0, 5, 0), loud)
    assert np.isnan(reward)
    monkeypatch.setenv("EQX_ON_ERROR", "raise")
    with pytest.raises(CheckError):
        arc_step(state, point(0, 5, 0), loud)
    _, _, reward, _, _ = arc_step(state, point(0, 0, 0), loud)
    assert np.isfinite(reward)


def test_the_error_handler(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQX_ON_ERROR", "raise")
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=0)

    @eqx.filter_jit
    def careful(state, action, config):
        action = JAXErrorHandler.validate_action(action, config)
        return arc_step(JAXErrorHandler.validate_state_consistency(state), action, config)

    after, *_ = careful(state, point(9), SMALL)
    assert int(after.working_grid[0, 0]) == 9
    with pytest.raises(Exception, match="must select cells of the canvas"):
        jax.block_until_ready(careful(state, point(9, 7, 7), SMALL))
    broken = eqx.tree_at(lambda s: s.height, state, jnp.int32(9))
    with pytest.raises(Exception, match="`state` must be one that reset and step can make"):
        jax.block_until_ready(careful(broken, point(9), SMALL))
    batch = PointAction(jnp.array([0, 50]), 0, 0)
    with pytest.raises(Exception, match="must be an operation that exists"):
        jax.block_until_ready(JAXErrorHandler.validate_action(batch, SMALL))


# --- rewards, playing, scores ---


def twice_the_step(transition: Any) -> Any:
    return 2.0 * transition.step_count


def test_a_term_of_your_own_joins_the_reward(tasks: TaskSet) -> None:
    config = dataclasses.replace(
        SMALL, reward=RewardConfig(similarity=0, step_penalty=0.5, extra=((twice_the_step, 0.25),))
    )
    state, _ = arc_reset(jax.random.key(0), config, tasks)
    for step in (1, 2):
        state, _, reward, *_ = arc_step(state, point(0), config)
        assert float(reward) == pytest.approx(0.25 * 2 * step - 0.5)


def test_a_test_pair_gives_no_similarity_reward(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks, task_index=2, episode_mode=1)
    state, _, reward, _, info = arc_step(state, point(7), SMALL)
    assert float(info["similarity"]) == 1.0
    assert float(reward) == pytest.approx(-0.01)
    *_, reward, _, info = arc_step(state, point(34), SMALL)
    assert bool(info["success"])
    assert float(reward) == pytest.approx(9.99)


def test_random_actions_cover_everything() -> None:
    for form, kind in (("point", PointAction), ("bbox", BboxAction), ("mask", MaskAction)):
        actions = random_actions(jax.random.key(0), SMALL, 4000, form)
        assert isinstance(actions, kind)
        counts = np.bincount(actions.operation, minlength=35)
        assert counts.min() > 60
        assert counts.sum() == 4000
        assert len(counts) == 35
    assert set(np.asarray(random_actions(jax.random.key(0), SMALL, 500).row).tolist()) == set(range(5))
    few = dataclasses.replace(SMALL, action=UnifiedActionConfig(allowed_operations=(3, 34)))
    assert set(np.asarray(random_actions(jax.random.key(0), few, 100).operation).tolist()) == {3, 34}


def submits_first(params: Any, seen: Any, key: Any) -> PointAction:
    """Paints the cell that `params` names and then submits."""
    operation = jnp.where(seen.step_count == 0, params, 34)
    return PointAction(operation, 0, 0)


def test_rollout_counts_steps_rewards_and_ends(tasks: TaskSet) -> None:
    states, seen = batch_reset(
        jax.random.split(jax.random.key(0), 2), SMALL, tasks, task_index=jnp.array([0, 2]), initial_pair_idx=0
    )
    played = rollout(submits_first, jnp.int32(2), states, seen, jax.random.key(0), SMALL, 5)
    assert played.successes.tolist() == [1, 0]
    assert played.episodes.tolist() == [1, 1]
    assert played.steps.tolist() == [2, 3]  # solved at once; two wrong submissions
    np.testing.assert_allclose(played.reward, [1 - 0.02 + 10, -0.03 - 2], rtol=1e-5)
    assert played.states.task_data is not None


def test_the_official_score_takes_two_attempts_on_test_pairs(tasks: TaskSet) -> None:
    score = evaluate(submits_first, jnp.int32(7), tasks, SMALL, jax.random.key(0))
    assert score.solved == {"a": (False,), "b": (False,), "c": (True,)}
    assert (score.outputs_solved, score.outputs, score.tasks_solved) == (1, 3, 1)
    assert str(score) == "1 of 3 test outputs (33.3 %), 1 of 3 tasks"


def test_submissions_made_elsewhere_are_scored(tasks: TaskSet) -> None:
    answers = {"a": [[[[0]], [[2], [2]]]], "c": [[[[6]]]]}
    score = score_submissions(tasks, answers)
    assert score.solved == {"a": (True,), "b": (False,), "c": (False,)}
    with pytest.raises(ValueError, match="at most 2 attempts; got 3"):
        score_submissions(tasks, {"a": [[[[0]], [[0]], [[2], [2]]]]})
    with pytest.raises(KeyError, match="has no 'zz'"):
        score_submissions(tasks, {"zz": []})


def test_keys_decide(tasks: TaskSet) -> None:
    one, two = (arc_reset(jax.random.PRNGKey(42), SMALL, tasks)[0] for _ in range(2))
    for before, after in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(before, after)
    typed, _ = arc_reset(jax.random.key(42), SMALL, tasks)
    np.testing.assert_array_equal(typed.key, one.key)
    states, _ = batch_reset(jax.random.split(jax.random.PRNGKey(42), 64), SMALL, tasks)
    assert len({tuple(row) for row in np.asarray(states.key).tolist()}) == 64


def test_the_mock_task_is_solvable_and_its_padding_closes_up() -> None:
    task = create_mock_task(3, canvas=5, train_pairs=2, test_pairs=2)
    np.testing.assert_array_equal(
        task.output_grids_examples[:, :3, :3], np.asarray(task.input_grids_examples)[:, :3, 2::-1]
    )
    # A task with unused slots keeps its test pairs apart from them.
    fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(JaxArcTask)}
    sparse = JaxArcTask(**(fields | {"num_train_pairs": 1}))
    state, _ = arc_reset(jax.random.key(0), SMALL, sparse, episode_mode=1, initial_pair_idx=1)
    np.testing.assert_array_equal(state.working_grid[:3, :3], task.test_input_grids[1, :3, :3])


def test_the_demo_shows_a_solved_episode(tmp_path: Any) -> None:
    from rich.console import Console

    from jaxarc.demo import demo

    section = demo(tmp_path, Console(), batch=8, steps=4)
    assert not list(tmp_path.iterdir()), "all of it is in the section"
    replay = html.unescape(section.body.split('srcdoc="')[1].split('"')[0])
    assert '"outcome":"solved"' in replay
    assert "solved in 6 actions" in section.body
    assert "<svg" in section.body
    (speed,) = section.speeds
    assert speed.unit == "steps/s"
    assert speed.value > 0
    assert speed.compile_seconds > 0


def test_a_policy_of_chance_plays_real_tasks() -> None:
    real = jaxarc.tasks.load("arc-agi-1", split="training")
    config = JaxArcConfig(
        environment=EnvironmentConfig(autoreset="task", max_episode_steps=5),
        observation=ObservationConfig(format="packed", input=False, clipboard=False),
    )
    states, seen = batch_reset(jax.random.split(jax.random.key(0), 32), config, real)
    played = rollout(random_policy(config), None, states, seen, jax.random.key(1), config, 20)
    assert played.steps.tolist() == [20] * 32
    assert int(played.episodes.min()) >= 4
    assert len(set(played.states.task_index.tolist())) > 20


# --- found by a reviewer ---


def test_the_score_counts_test_pairs_only(tasks: TaskSet) -> None:
    """A policy that goes to a demonstration, solves it and submits has solved no test output."""
    config = dataclasses.replace(SMALL, action=UnifiedActionConfig(control_operations=True))

    def cheat(params: Any, seen: Any, key: Any) -> PointAction:
        operation = jnp.select([seen.step_count == 0, seen.step_count == 1], [35, 2], 34)
        return PointAction(operation, 0, 0)

    assert evaluate(cheat, None, tasks.subset([0]), config, jax.random.key(0)).outputs_solved == 0


def test_kaggles_submissions_are_understood_and_what_is_no_grid_is_refused(tasks: TaskSet) -> None:
    right = [[2], [2]]
    kaggle = {"a": [{"attempt_1": [[0]], "attempt_2": right}]}
    assert score_submissions(tasks, kaggle).solved["a"] == (True,)
    for bad in ([right], [[[[1], [1, 2]]]], [["ab"]]):
        with pytest.raises(ValueError, match=r"attempt 0, must be a grid"):
            score_submissions(tasks, {"a": bad})
    one = np.ones((1, 1), np.int8)
    unknown = TaskSet.of([RawTask("k", ((one, one),), ((one, None),), "")])
    for score in (
        lambda: score_submissions(unknown, {}),
        lambda: evaluate(random_policy(SMALL), None, unknown, SMALL, jax.random.key(0)),
    ):
        with pytest.raises(ValueError, match="1 of 1 test outputs are missing"):
            score()


def test_an_action_off_the_canvas_is_never_replayed_as_another(tasks: TaskSet) -> None:
    for form, action in (("mask", point(20, 7, 7)), ("point", BboxAction(6, 4, 4, 9, 9))):
        config = dataclasses.replace(SMALL, action=UnifiedActionConfig(selection_format=form))  # type: ignore
        state, _ = arc_reset(jax.random.key(0), config, tasks, task_index=1)
        state, *_ = arc_step(state, action, config)
        kept = records(state.action_history, 5)
        assert (bool(kept["valid"][0]), bool(kept["exact"][0])) == (False, False)
        with pytest.raises(ValueError, match="step 0 of the history"):
            replayed_actions(state.action_history, 5)


def test_autoreset_never_draws_a_pair_that_is_not_there() -> None:
    pairs = (([[1]], [[2]]), ([[1, 1]], [[2, 2]]))
    mixed = TaskSet.of([raw("a", *pairs, tests=0), raw("b", *pairs, tests=1)])
    config = dataclasses.replace(
        SMALL, environment=EnvironmentConfig(max_episode_steps=1, autoreset="task", episode_mode="test")
    )
    with pytest.raises(ValueError, match="a task that may be drawn has none"):
        arc_reset(jax.random.key(0), config, mixed, task_index=1)
    drawable = mixed.bank.with_weights([0.0, 1.0])
    assert int(arc_reset(jax.random.key(0), config, drawable)[0].task_index) == 1
    # Traced, it cannot be refused: the episode stays inside its task and says what it works on.
    start = jax.jit(lambda mode, task: arc_reset(jax.random.key(0), SMALL, mixed.bank, mode, None, task)[0])
    state = start(1, 0)
    assert (int(state.task_index), int(state.episode_mode)) == (0, 0)
    assert int(start(0, 99).task_index) == 1


def test_weight_zero_is_never_drawn() -> None:
    """At this word a plain float32 running sum gave task 320 of 400, whose weight is 0."""
    draw = np.random.default_rng(1)
    weights = draw.random(400).astype(np.float32)
    weights[draw.random(400) < 0.5] = 0
    bank = jaxarc.tasks.load("arc-agi-1", split="training").bank
    for weighted in (bank.with_weights(weights), jax.jit(lambda w: bank.with_weights(w))(weights)):
        steps = np.diff(np.asarray(weighted.cumulative), prepend=0)
        assert (steps >= 0).all()
        assert (steps[weights == 0] == 0).all()
        assert float(weighted.cumulative[-1]) == 1.0
        assert weights[int(weighted.draw_task(jnp.uint32(3410163968)))] > 0
    large = TaskSet.of([raw("a", ([[1]], [[2]]), tests=0), raw("b", ([[1]], [[2]]), tests=0)]).bank
    assert np.asarray(large.with_weights([3e38, 3e38]).cumulative).tolist() == [0.5, 1.0]


def test_keys_of_every_kind_mean_the_same_in_a_batch(tasks: TaskSet) -> None:
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 6)
    states, _ = batch_reset(keys, SMALL, tasks)
    for i in (0, 3):
        single, _ = arc_reset(keys[i], SMALL, tasks)
        np.testing.assert_array_equal(single.key, states.key[i])
    assert len({tuple(row) for row in np.asarray(states.key).tolist()}) == 6
    words = jax.random.key_data(keys[3])
    np.testing.assert_array_equal(arc_reset(words, SMALL, tasks)[0].key, states.key[3])


def test_messages_for_values_that_cannot_be(tasks: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), SMALL, tasks)
    assert PointAction([0, 1], [1, 2], [3, 4]).row.tolist() == [1, 2]
    with pytest.raises(ValueError, match="`row` must fit 32 bits"):
        PointAction(0, np.int64(2**32), 0)
    with pytest.raises(ValueError, match="`action` must be one action"):
        arc_step(state, PointAction([0, 1], 0, 0), SMALL)
    with pytest.raises(TypeError, match="`initial_pair_idx` must be an integer"):
        arc_reset(jax.random.key(0), SMALL, tasks, initial_pair_idx=1.7)
    control = dataclasses.replace(SMALL, action=UnifiedActionConfig(control_operations=True))
    with pytest.raises(ValueError, match="has control operations, and the state was reset without"):
        arc_step(state, point(0), control)
    with pytest.raises(ValueError, match="`history` is off"):
        records(dataclasses.replace(state.action_history, words=None), 5)


def test_a_session_keeps_what_an_earlier_one_wrote(tmp_path: Any, tasks: TaskSet) -> None:
    start = arc_reset(jax.random.key(0), SMALL, tasks, task_index=0, initial_pair_idx=0)
    episode = record_episode(start, [point(2), point(34)], SMALL)
    config = VisualizationConfig(enabled=True, debug=DebugConfig("research", async_logging=False))
    names = []
    for _ in range(2):
        with VisualizationSession(config, tmp_path) as session:
            names.append(session.log_episode(episode))
            with pytest.raises(ValueError, match="`key` must be a file name without folders"):
                session.log_episode(episode, key="../x")
    assert names == ["episode_00001", "episode_00002"]
    assert len(list(tmp_path.glob("episode_*.svg"))) == 2

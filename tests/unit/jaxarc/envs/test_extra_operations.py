"""Operations of one's own: numbered from 42, stepped with the others, and named in settings."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.envs import (
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
    config_from_dict,
    config_to_dict,
)
from jaxarc.envs.episodes import evaluate, random_actions, random_policy
from jaxarc.envs.history import records
from jaxarc.envs.operations import OPERATION_TYPES
from jaxarc.kernels.batch_step import why_no_batch_kernel
from jaxarc.tasks import create_jax_task_from_data, load
from jaxarc.utils.visualization.records import operation_name
from jaxworlds import CheckError, checking_on, no_recompile, replace

pytestmark = pytest.mark.usefixtures("quick_compile")

GRID = [[1, 2, 0], [3, 4, 5]]


def invert(grid, selection):
    """Colour c becomes 9 - c where selected."""
    return jnp.where(selection, 9 - grid, grid)


def overflow(grid, selection):
    """Colours that do not exist, also outside of the grid."""
    return jnp.where(selection | (grid < 0), 25, -3)


def config(*functions, **settings):
    action = UnifiedActionConfig(extra_operations=functions, **settings)
    return JaxArcConfig(dataset=UnifiedDatasetConfig(4, 4), action=action)


def task():
    pair = {"input": GRID, "output": GRID}
    return create_jax_task_from_data({"train": [pair], "test": [pair]}, 0)


def test_an_operation_acts_on_the_selection_within_the_grid():
    settings = config(invert, overflow)
    state, _ = arc_reset(jax.random.key(0), settings, task())
    after, seen, _, _, info = arc_step(state, BboxAction(42, 0, 0, 3, 1), settings)
    np.testing.assert_array_equal(seen.grid[:2, :3], [[8, 7, 0], [6, 5, 5]])
    assert bool(info["valid_action"])
    assert OPERATION_TYPES[int(info["operation_type"])] == "extra"
    assert int(jnp.sum(after.working_grid[2:])) == 0
    assert tuple(seen.size) == (2, 3)
    # What a function says beyond its rights is cut: colours to 0 to 9, cells to the active part.
    after, seen, *_ = arc_step(after, PointAction(43, 0, 0), settings)
    assert int(jnp.sum(after.working_grid)) == 9
    np.testing.assert_array_equal(seen.grid[:2, :3], [[9, 0, 0], [0, 0, 0]])


def test_built_in_operations_are_the_same_beside_extra_ones():
    plain, with_extra = config(), config(invert)
    keys = jax.random.split(jax.random.key(1), 35)
    states = [batch_reset(keys, one, task())[0] for one in (plain, with_extra)]
    actions = BboxAction(np.arange(35), *(np.full(35, side) for side in (0, 0, 1, 2)))
    after = [batch_step(state, actions, one) for state, one in zip(states, (plain, with_extra), strict=True)]
    for a, b in zip(*(jax.tree.leaves(one) for one in after), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_batch_compiles_once_and_the_history_remembers():
    settings = config(invert)
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 3), settings, task())
    step = lambda states, operation: batch_step(  # noqa: E731
        states, PointAction(np.full(3, operation), np.array([0, 0, 1]), np.array([0, 1, 2])), settings
    )
    states, *_ = step(states, 42)
    with no_recompile():
        states, *_, info = step(states, 5)
        states, *_, info = step(states, 43)
    assert not info["valid_action"].any()
    np.testing.assert_array_equal(info["operation_type"], -1)
    kept = records(jax.tree.map(lambda x: x[0], states.action_history), width=4)
    assert kept["operation"].tolist() == [42, 5, 43]
    assert kept["valid"].tolist() == [True, True, False]
    actions = PointAction([0] * 3, [0] * 3, [0] * 3)
    assert why_no_batch_kernel(states, actions, config()) is None
    assert "extra_operations" in str(why_no_batch_kernel(states, actions, settings))  # as on a GPU


def test_numbers_and_settings():
    settings = config(invert, control_operations=True)
    assert settings.action.existing_operations == (*range(42), 42)
    assert config(invert).action.existing_operations == (*range(35), 42)
    drawn = random_actions(jax.random.key(0), config(invert, allowed_operations=(34, 42)), 200)
    assert set(np.unique(drawn.operation).tolist()) == {34, 42}
    assert (operation_name(42), operation_name(63)) == ("extra operation 42", "unknown operation 63")
    written = config_to_dict(settings)
    assert written["action"]["extra_operations"] == [f"{__name__}.invert"]
    assert config_from_dict(written) == settings
    wrong: dict[str, Any]
    for wrong, message in (
        ({"extra_operations": (invert,) * 22}, "at most 21 functions"),
        ({"extra_operations": (invert,), "allowed_operations": (43,)}, "or from 42 to 42; got 43"),
        ({"allowed_operations": (42,)}, "from 0 to 34; got 42"),
    ):
        with pytest.raises(ValueError, match=message):
            UnifiedActionConfig(**wrong)
    with pytest.raises(TypeError, match="list of functions' names"):
        config_from_dict({"action": {"extra_operations": "invert"}})


def test_misuse_is_named():
    def shrunk(grid, selection):
        return grid[:2]

    state, _ = arc_reset(jax.random.key(0), config(shrunk), task())
    with pytest.raises(ValueError, match=r"shape \(4, 4\); 'shrunk' gave int8\[2, 4\]"):
        arc_step(state, PointAction(42, 0, 0), config(shrunk))
    with checking_on(), pytest.raises(CheckError, match="extra_operations"):
        arc_step(state, PointAction(43, 0, 0), config(invert))


def test_evaluation_and_masks_know_them():
    settings = replace(
        config(invert, allowed_operations=(42, 34), selection_format="mask"),
        dataset=UnifiedDatasetConfig(30, 30),
        environment=EnvironmentConfig(max_episode_steps=3),
    )
    score = evaluate(
        random_policy(settings), None, load("arc-agi-1").subset(range(2)), settings, jax.random.key(0)
    )
    assert len(score.solved) == 2
    small = config(invert, selection_format="mask")
    state, _ = arc_reset(jax.random.key(0), small, task())
    mask = np.zeros((4, 4), bool)
    mask[[0, 1, 3], [0, 2, 3]] = True
    _, seen, *_ = arc_step(state, MaskAction(42, mask), small)
    np.testing.assert_array_equal(seen.grid[:2, :3], [[8, 2, 0], [3, 4, 4]])

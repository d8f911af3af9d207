"""Tasks that are not those of the states, and tasks that a `jax.vmap` would copy or map: an error, an outcome or a warning."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_observe,
    batch_reset,
    batch_step,
    state_axes,
)
from jaxarc.envs.episodes import random_actions, random_policy, rollout
from jaxarc.envs.state import join_tasks, replace_tasks
from jaxarc.tasks import RawTask, TaskSet
from jaxarc.testing import create_mock_task, create_test_config

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=6, max_attempts=2), dataset=UnifiedDatasetConfig(5, 5)
)
BATCH = 4


def made(name: str, *sides: int, seed: int = 0) -> RawTask:
    """A task with a demonstration pair for each side but the last, which is a test pair."""
    draw = np.random.default_rng(seed)
    pairs = tuple(tuple(draw.integers(1, 10, (side, side), np.int8) for _ in range(2)) for side in sides)
    return RawTask(name, pairs[:-1], pairs[-1:], "here")


@pytest.fixture(scope="module")
def small() -> TaskSet:
    return TaskSet.of([made("a", 2, 3), made("b", 3, 2, seed=1), made("c", 3, 3, 5, seed=2)])


@pytest.fixture(scope="module")
def large() -> TaskSet:
    return TaskSet.of([made("x", 9, 3), made("y", 3, 2, seed=1), made("z", 7, 7, seed=2)])


def keys(count: int = BATCH) -> Any:
    return jax.random.split(jax.random.key(0), count)


def inputs_copied() -> PointAction:
    return PointAction(jnp.full(BATCH, 32), jnp.zeros(BATCH, jnp.int32), jnp.zeros(BATCH, jnp.int32))


def swapped(states: Any, bank: Any) -> Any:
    """The states with other tasks, as the guides write it: nothing is looked at."""
    return eqx.tree_at(lambda s: s.task_data, states, bank)


step_with = jax.jit(lambda states, bank: batch_step(swapped(states, bank), inputs_copied(), CONFIG))


def test_tasks_of_a_larger_canvas_are_refused_where_sizes_are_known(small: TaskSet, large: TaskSet) -> None:
    states, seen = batch_reset(keys(), CONFIG, small)
    demand = r"holds a grid of 9×9 cells, and the canvas has 5×5"
    with pytest.raises(ValueError, match=demand):
        replace_tasks(states, large)
    for use in (
        lambda states: batch_step(states, inputs_copied(), CONFIG),
        lambda states: batch_observe(states, CONFIG),
        lambda states: rollout(random_policy(CONFIG), None, states, seen, jax.random.key(0), CONFIG, 2),
    ):
        with pytest.raises(ValueError, match=demand):
            use(swapped(states, large.bank))
    # A canvas that is larger than its grids is none of this: what fits goes on, and is looked at once.
    roomy = small.with_canvas(30, 30)
    assert int(batch_step(replace_tasks(states, roomy), inputs_copied(), CONFIG)[0].height.max()) <= 5


def test_a_bank_without_the_task_of_a_state_is_refused(small: TaskSet) -> None:
    states, _ = batch_reset(keys(), CONFIG, small, task_index=np.array([0, 1, 2, 0]))
    with pytest.raises(IndexError, match=r"it has 0 to 0, and the states are at 0 to 2\. Pass the tasks"):
        replace_tasks(states, small.subset(["a"]))
    with pytest.raises(ValueError, match=r"`state` holds no tasks.*replace_tasks\(state, task_data\)"):
        batch_step(join_tasks(states, None), inputs_copied(), CONFIG)
    kept = replace_tasks(states, small)
    assert jax.tree.structure(kept) == jax.tree.structure(states)
    np.testing.assert_array_equal(kept.task_data.inputs, small.bank.inputs)


def test_marks_of_pairs_need_room() -> None:
    config = JaxArcConfig(
        dataset=UnifiedDatasetConfig(5, 5), action=UnifiedActionConfig(control_operations=True)
    )
    few, many = TaskSet.of([made("a", 2, 2)]), TaskSet.of([made("b", 2, 2, 2, 2)])
    states, _ = batch_reset(keys(), config, few)
    with pytest.raises(
        ValueError, match=r"tasks of up to 3 pairs, and the states were reset with .* up to 1"
    ):
        replace_tasks(states, many)


def flagged(made: Any) -> list[bool]:
    """Which environments a step could not judge; all of them over, none with a number."""
    states, _, reward, done, info = made
    missing = np.asarray(info["task_missing"])
    for number in (reward, info["similarity"], info["similarity_improvement"], states.similarity):
        np.testing.assert_array_equal(np.isnan(number), missing)
    for flag in (done, info["truncated"], states.truncated):
        assert np.asarray(flag)[missing].all()
    for flag in (info["success"], info["valid_action"], states.success, states.terminated):
        assert not np.asarray(flag)[missing].any()
    return missing.tolist()


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_inside_a_program_what_is_missing_is_an_outcome(
    small: TaskSet, large: TaskSet, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXARC_KERNELS", kernels)
    step_with.clear_cache()
    states, _ = batch_reset(keys(), CONFIG, small, task_index=np.array([0, 1, 2, 2]), initial_pair_idx=0)
    assert flagged(step_with(states, small.bank)) == [False] * 4
    # Too large: the first pairs of "x" and "z".
    after = step_with(states, large.bank)
    assert flagged(after) == [True, False, True, True]
    assert np.asarray(after[1].input_size).tolist()[0] == [0, 0]  # another pair's input is not shown
    assert (np.asarray(after[1].input)[0] == -1).all()
    # Not there: only tasks 0 and 1.
    after = step_with(states, small.subset(["a", "b"]).bank)
    assert flagged(after) == [False, False, True, True]
    # Fewer pairs than the state's task had.
    third, _ = batch_reset(keys(), CONFIG, small, task_index=2, initial_pair_idx=1)
    assert flagged(step_with(third, TaskSet.of([made(n, 2, 2) for n in "abc"]).bank)) == [True] * 4
    # What was lost stays lost, whatever tasks come next.
    assert flagged(step_with(after[0], small.bank)) == [False, False, True, True]


def test_a_pair_that_does_not_fit_is_missing_as_soon_as_it_comes() -> None:
    """Gone to by a control operation, or drawn for the next episode, from tasks that only a program knows."""
    action = UnifiedActionConfig(control_operations=True)
    config = JaxArcConfig(dataset=UnifiedDatasetConfig(5, 5), action=action)
    fits, not_all = (TaskSet.of([made("a", 2, side, 2)]) for side in (3, 9))
    states, _ = batch_reset(keys(), config, fits, initial_pair_idx=0)
    go = PointAction(jnp.array([35, 36, 32, 39]), *jnp.zeros((2, BATCH), jnp.int32))
    step = jax.jit(lambda states, bank: batch_step(swapped(states, bank), go, config))
    assert flagged(step(states, fits.bank)) == [False] * 4
    assert flagged(step(states, not_all.bank)) == [True, True, False, False]
    # Of a state whose task is gone, operations that exist and those that do not.
    beyond, _ = batch_reset(keys(), config, TaskSet.of([made(n, 2, 3, 2) for n in "abc"]), task_index=2)
    assert flagged(step(beyond, fits.bank)) == [True] * 4

    again = JaxArcConfig(
        environment=EnvironmentConfig(autoreset="task", max_episode_steps=1),
        dataset=UnifiedDatasetConfig(5, 5),
    )
    small, both = (TaskSet.of([made("a", 2, 2), made("b", side, 2)]).bank for side in (3, 9))
    states, _ = batch_reset(keys(), again, small, task_index=0)
    ends = jax.jit(lambda states, bank: batch_step(swapped(states, bank), inputs_copied(), again))
    after, _, reward, done, info = ends(states, both.with_weights([0.0, 1.0]))
    assert done.all()
    assert not info["task_missing"].any()
    assert np.isfinite(reward).all()
    assert np.isnan(after.similarity).all()
    assert after.truncated.all()


def test_a_rollout_counts_no_number_of_what_is_missing(small: TaskSet) -> None:
    states, seen = batch_reset(keys(), CONFIG, small, task_index=np.array([0, 1, 2, 0]))
    few = small.subset(["a", "b"]).bank
    policy = random_policy(CONFIG)
    played = rollout(policy, None, swapped(states, few), seen, jax.random.key(0), CONFIG, 5)
    assert np.isnan(played.reward).tolist() == [False, False, True, False]
    assert not played.successes[2]
    assert np.isnan(played.states.similarity[2])


def test_a_choice_that_does_not_exist_is_an_outcome_inside_a_program(small: TaskSet) -> None:
    reset = jax.jit(lambda task, pair: arc_reset(jax.random.key(0), CONFIG, small, 0, pair, task))
    state, _ = reset(2, 1)
    assert not state.done
    assert float(state.similarity) > -1
    for task, pair in ((3, 0), (-1, 0), (2, 2), (0, -1)):
        state, _ = reset(task, pair)
        assert bool(state.truncated)
        assert np.isnan(state.similarity)
        *_, reward, done, info = arc_step(state, PointAction(1, 0, 0), CONFIG)
        assert np.isnan(reward)
        assert bool(done)
        assert bool(info["task_missing"])


def test_grids_of_a_state_without_its_task_are_blank(small: TaskSet) -> None:
    state, _ = arc_reset(jax.random.key(0), CONFIG, small, task_index=2)
    assert (np.asarray(state.target_grid) >= 0).any()
    lost = swapped(state, small.subset(["a", "b"]).bank)
    assert (np.asarray(lost.target_grid) == -1).all()
    assert (np.asarray(lost.input_grid) == -1).all()


class Carry(eqx.Module):
    """A user's own record that holds a state."""

    env: Any
    key: Any


def test_a_mapped_reset_warns_that_it_copies_the_tasks(small: TaskSet) -> None:
    reset = lambda key: arc_reset(key, CONFIG, small)  # noqa: E731
    for mapped in (jax.vmap(reset), jax.jit(jax.vmap(reset))):
        with pytest.warns(UserWarning, match=r"its own copy of the tasks \(4 × .* MB\).*batch_reset") as told:
            mapped(keys())
        assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=r"its own copy of the tasks \(4 × .* MB\)"):
        jax.vmap(lambda key: Carry(reset(key)[0], key))(keys())
    axes = state_axes(arc_reset(jax.random.key(0), CONFIG, small)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        states, _ = jax.vmap(reset, out_axes=(axes, 0))(keys())
        assert states.task_data.inputs.shape == small.bank.inputs.shape
        jax.vmap(lambda key: join_tasks(reset(key)[0], None))(keys())
        own = jax.tree.map(lambda *x: jnp.stack(x), *(create_mock_task(5, canvas=5) for _ in range(BATCH)))
        jax.vmap(arc_reset, in_axes=(0, None, 0))(keys(), create_test_config(6, 5), own)


def test_a_batch_of_copies_warns_when_it_is_stepped(small: TaskSet) -> None:
    """However the copies came about: in a loop over keys, or by stacking states."""
    looped, _ = jax.lax.map(lambda key: arc_reset(key, CONFIG, small), keys())
    alone = [arc_reset(key, CONFIG, small)[0] for key in keys()]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    want = batch_step(batch_reset(keys(), CONFIG, small)[0], inputs_copied(), CONFIG)[0].planes
    for states in (looped, stacked):
        with pytest.warns(UserWarning, match=r"copy of the tasks for each .* \(4 × .* MB\).*batch_reset"):
            after, *_ = batch_step(states, inputs_copied(), CONFIG)
        np.testing.assert_array_equal(after.planes, want)


def test_a_mapped_step_names_the_batched_one(small: TaskSet) -> None:
    states, _ = batch_reset(keys(), CONFIG, small)
    actions = random_actions(jax.random.key(1), CONFIG, BATCH)
    remedy = r"all 4 environments\. Use `batch_step.*state_axes\(states\)"
    with pytest.raises(ValueError, match=remedy):
        jax.vmap(arc_step, in_axes=(0, 0, None))(states, actions, CONFIG)
    with pytest.raises(ValueError, match=remedy):
        jax.vmap(lambda state, action: arc_step(state, action, CONFIG))(states, actions)
    with pytest.raises(ValueError, match=remedy):
        jax.vmap(lambda both: arc_step(*both, CONFIG))((states, actions))
    with pytest.raises(ValueError, match=remedy):
        jax.vmap(lambda **given: arc_step(given["state"], given["action"], CONFIG))(
            state=states, action=actions
        )
    with pytest.raises(ValueError, match=remedy):
        jax.vmap(lambda carry, action: arc_step(carry.env, action, CONFIG))(Carry(states, keys()), actions)
    for mapped in (eqx.filter_vmap(arc_step), eqx.filter_vmap(arc_step, in_axes=(0, 0, None))):
        with pytest.raises(ValueError, match=remedy):
            mapped(states, actions, CONFIG)
    axes = state_axes(states)
    step = jax.vmap(arc_step, in_axes=(axes, 0, None), out_axes=(axes, 0, 0, 0, 0))
    after, *_ = step(states, actions, CONFIG)
    np.testing.assert_array_equal(after.planes, batch_step(states, actions, CONFIG)[0].planes)


def test_a_state_is_still_a_plain_pytree(small: TaskSet) -> None:
    states, _ = batch_reset(keys(), CONFIG, small)
    again = jax.tree.unflatten(jax.tree.structure(states), jax.tree.leaves(states))
    assert jax.tree.structure(again) == jax.tree.structure(states)
    assert hash(jax.tree.structure(states)) == hash(jax.tree.structure(again))
    mask = MaskAction(jnp.zeros(BATCH, jnp.int32), jnp.ones((BATCH, 5, 5), bool))
    assert batch_step(again, mask, CONFIG)[2].shape == (BATCH,)

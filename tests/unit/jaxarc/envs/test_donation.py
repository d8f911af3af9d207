"""States in a user's own `jit`, `scan` and `run`, donated or not: the user's tasks stay, and nothing has to be passed beside."""

import functools
import gc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
    load_state_efficiently,
    save_state_efficiently,
    state_axes,
)
from jaxarc.envs.episodes import random_actions, random_policy, rollout
from jaxarc.envs.state import replace_tasks
from jaxarc.performance import create_optimized_episode_runner
from jaxarc.tasks import RawTask, TaskSet
from jaxarc.testing import create_mock_task
from jaxworlds import no_recompile, run

pytestmark = pytest.mark.usefixtures("quick_compile")

BATCH = 3
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=4, autoreset="task"), dataset=UnifiedDatasetConfig(6, 6)
)


def made() -> TaskSet:
    draw = np.random.default_rng(5)
    pair = lambda: tuple(draw.integers(0, 10, (4, 4), np.int8) for _ in range(2))  # noqa: E731
    return TaskSet.of([RawTask(name, (pair(), pair()), (pair(),), "here") for name in "abc"])


@functools.partial(jax.jit, donate_argnums=0)
def donated_step(states: Any, key: Any) -> Any:
    """One step as a user writes it."""
    states, _, reward, *_ = batch_step(states, random_actions(key, CONFIG, BATCH), CONFIG)
    return states, reward


@functools.partial(jax.jit, donate_argnums=0)
def donated_scan(states: Any, key: Any) -> Any:
    """Many steps as a user writes them: the states, tasks and all, are the carry."""

    def step(states: Any, key: Any) -> Any:
        states, _, reward, *_ = batch_step(states, random_actions(key, CONFIG, BATCH), CONFIG)
        return states, reward

    return jax.lax.scan(step, states, jr.split(key, 9))


def plain_steps(tasks: Any, keys: Any) -> Any:
    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
    rewards = []
    for key in keys:
        states, _, reward, *_ = batch_step(states, random_actions(key, CONFIG, BATCH), CONFIG)
        rewards.append(reward)
    return states, jnp.stack(rewards)


def assert_equal(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "tasks", [made(), made().bank, create_mock_task(4, canvas=6)], ids=["set", "bank", "task"]
)
def test_states_may_be_donated_and_the_tasks_stay(tasks: Any) -> None:
    want = plain_steps(tasks, jr.split(jr.key(1), 9))
    for _ in range(2):  # twice from the same tasks
        states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
        given = states
        rewards = []
        for key in jr.split(jr.key(1), 9):
            states, reward = donated_step(states, key)
            rewards.append(reward)
        assert given.planes.is_deleted()
        assert_equal((states, jnp.stack(rewards)), want)
        states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
        assert_equal(donated_scan(states, jr.key(1)), want)
    state, _ = arc_reset(jr.key(0), CONFIG, tasks)
    one = jax.jit(
        lambda state, key: arc_step(state, random_actions(key, CONFIG), CONFIG)[0], donate_argnums=0
    )
    one(one(state, jr.key(1)), jr.key(2))
    arc_reset(jr.key(0), CONFIG, tasks)


def test_a_donated_batch_hands_its_tasks_on_without_a_copy() -> None:
    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, made())
    states, _ = donated_step(states, jr.key(0))
    place = states.task_data.inputs.unsafe_buffer_pointer()
    keys = list(jr.split(jr.key(1), 3))
    with no_recompile():
        for key in keys:
            states, _ = donated_step(states, key)
    assert states.task_data.inputs.unsafe_buffer_pointer() == place


def test_states_outlive_the_tasks_of_their_reset() -> None:
    tasks = made()
    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
    for leaf in jax.tree.leaves(tasks.bank):
        leaf.delete()
    del tasks
    gc.collect()
    assert_equal(donated_scan(states, jr.key(1)), plain_steps(made(), jr.split(jr.key(1), 9)))


def test_a_reset_inside_a_program_gives_states_of_their_own() -> None:
    tasks = made()
    begin = jax.jit(lambda keys, bank: batch_reset(keys, CONFIG, bank)[0])
    states = begin(jr.split(jr.key(0), BATCH), tasks.bank)
    donated_scan(states, jr.key(1))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(tasks.bank))
    axes = state_axes(states := begin(jr.split(jr.key(0), BATCH), tasks.bank))
    step = jax.vmap(arc_step, in_axes=(axes, 0, None), out_axes=(axes, 0, 0, 0, 0))
    actions = random_actions(jr.key(1), CONFIG, BATCH)
    assert_equal(step(states, actions, CONFIG), batch_step(states, actions, CONFIG))


def test_states_with_their_tasks_go_through_the_driver() -> None:
    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, made())

    def step(carry: Any, t: Any) -> Any:
        states, keys = carry
        states, _, reward, *_ = batch_step(states, random_actions(keys[t], CONFIG, BATCH), CONFIG)
        return (states, keys), reward

    carry = states, jr.split(jr.key(1), 9)
    done = run(step, carry, 9, axes=(state_axes(states), None), record_every=1, chunk=3, progress=False)
    assert_equal((done.carry[0], done.records), plain_steps(made(), jr.split(jr.key(1), 9)))


def test_what_else_gives_states_gives_them_tasks_of_their_own(tmp_path: Any) -> None:
    tasks = made()
    states, seen = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
    played = rollout(random_policy(CONFIG), None, states, seen, jr.key(1), CONFIG, 2)
    donated_step(played.states, jr.key(2))
    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
    donated_step(replace_tasks(states, tasks.bank.with_weights([1, 2, 3])), jr.key(2))
    donated_step(replace_tasks(batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)[0], tasks), jr.key(2))
    save_state_efficiently(batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)[0], tmp_path / "a.jxw")
    dummy, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, tasks)
    donated_step(load_state_efficiently(tmp_path / "a.jxw", tasks, dummy), jr.key(2))
    episode = create_optimized_episode_runner(CONFIG, tasks, max_steps=2)
    for keys in (jr.key(0), jr.split(jr.key(0), BATCH)):
        for _ in range(2):
            for leaf in jax.tree.leaves(episode(keys, None)["final_state"]):
                leaf.delete()
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(tasks.bank))


def test_a_state_whose_tasks_were_donated_says_so() -> None:
    first, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, made())
    actions = random_actions(jr.key(1), CONFIG, BATCH)
    second, *_ = batch_step(first, actions, CONFIG)
    donated_step(second, jr.key(2))
    with pytest.raises(ValueError, match="was donated with a state that came from this one"):
        batch_step(first, actions, CONFIG)
    batch_step(replace_tasks(first, made()), actions, CONFIG)

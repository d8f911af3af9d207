"""Laws of the reward: what leads back to the same state earns nothing but its costs, whatever was done on the way."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
    batch_step,
)
from jaxarc.envs.state import join_tasks
from jaxarc.tasks import RawTask, TaskSet
from jaxworlds import replace

pytestmark = pytest.mark.usefixtures("quick_compile")

# So small that random play comes back to the same state again and again.
SIDE, BATCH, STEPS = 2, 32, 40
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=STEPS + 1, max_attempts=255),
    dataset=UnifiedDatasetConfig(SIDE, SIDE),
    action=UnifiedActionConfig(control_operations=True, history=False),
)
EVERY = replace(CONFIG, environment=replace(CONFIG.environment, solve="all"))


def tasks_of(draw: np.random.Generator) -> TaskSet:
    """One task with two or three demonstrations and as many test pairs, in two colours."""

    def pairs() -> tuple[Any, ...]:
        grid = lambda: draw.integers(0, 2, draw.integers(1, SIDE + 1, 2)).astype(np.int8)  # noqa: E731
        return tuple((grid(), grid()) for _ in range(3))

    return TaskSet.of([RawTask("small", pairs(), pairs(), "made up")], canvas=(SIDE, SIDE))


@jax.jit
def play(states: Any, tasks: Any, actions: Any, config: JaxArcConfig) -> Any:
    """All states, rewards and whether episodes went on, step by step."""

    def step(states: Any, action: Any) -> Any:
        new, _, reward, done, info = batch_step(join_tasks(states, tasks), action, config)
        new = join_tasks(new, None)
        return new, (new, reward, ~done, jnp.sum(new.wrong, (1, 2), jnp.int32), info["valid_action"])

    return jax.lax.scan(step, states, actions)[1]


def marks_of(states: Any, row: int) -> bytes:
    """What an environment's future depends on, without its counts."""
    parts = (
        *(states.planes, states.height, states.width, states.clipboard, states.clipboard_mask),
        *(states.episode_mode, states.pair_index, states.solved),
    )
    return b"".join(np.asarray(part[row]).tobytes() for part in parts)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([CONFIG, EVERY]), st.integers(0, 1))
def test_what_leads_back_to_the_same_state_earns_nothing(seed: int, config: JaxArcConfig, mode: int) -> None:
    draw = np.random.default_rng(seed)
    tasks = tasks_of(draw)
    states, _ = batch_reset(jax.random.split(jax.random.key(seed), BATCH), config, tasks, episode_mode=mode)
    # Painting, clearing, submitting and changing pairs most often; the rest now and then.
    likely = [0, 1, 0, 1, 31, 32, 33, 34, *range(35, 42)]
    operations = np.where(
        draw.random((STEPS, BATCH)) < 0.8,
        draw.choice(likely, (STEPS, BATCH)),
        draw.integers(0, 42, (STEPS, BATCH)),
    )
    actions = PointAction(operations, *draw.integers(0, SIDE, (2, STEPS, BATCH)))
    played, rewards, going, wrong, _ = jax.device_get(
        play(join_tasks(states, None), states.task_data, actions, config)
    )
    begun = jax.device_get(join_tasks(states, None))
    loops = 0
    for row in range(BATCH):
        # Reward without its costs, summed from the beginning, at every state that was seen.
        seen, total, submitted = {marks_of(begun, row): 0.0}, 0.0, 0
        for step in range(STEPS):
            total += float(rewards[step, row]) + 0.01 + float(wrong[step, row] - submitted)
            submitted = int(wrong[step, row])
            if not going[step, row]:
                break
            mark = marks_of(jax.tree.map(lambda leaf, at=step: leaf[at], played), row)
            if mark in seen:
                loops += 1
                assert abs(total - seen[mark]) < 1e-5, (row, step)
            seen.setdefault(mark, total)
    assert loops > BATCH  # the law was put to the test

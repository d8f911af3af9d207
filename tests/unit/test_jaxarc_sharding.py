"""A batch of ARC environments spread over devices: the same steps, and one program."""

import jax
import numpy as np
import pytest

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
    batch_step,
    state_axes,
)
from jaxarc.envs.episodes import random_actions
from jaxarc.testing import create_mock_task
from jaxworlds import no_recompile, shard_worlds, world_mesh

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_a_sharded_batch_compiles_once_and_steps_alike(devices: list[jax.Device]) -> None:
    config = JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=3, autoreset="pair"),
        dataset=UnifiedDatasetConfig(6, 6),
        action=UnifiedActionConfig(history=False),
    )
    tasks = create_mock_task(6, canvas=6)
    batch = 2 * len(devices)
    states, _ = batch_reset(jax.random.split(jax.random.key(0), batch), config, tasks)
    actions = random_actions(jax.random.key(1), config, batch)
    alone = batch_step(batch_step(states, actions, config)[0], actions, config)[0]
    spread = shard_worlds(states, world_mesh(), state_axes(states))
    once, *_ = batch_step(spread, actions, config)
    with no_recompile():
        twice, *_ = batch_step(once, actions, config)
    np.testing.assert_array_equal(twice.planes, alone.planes)

"""One of several processes that run all three systems together: `scaling_child.py FOLDER DEVICES HOSTS HOST PORT TRAINING`.

Host 0 writes what came out to FOLDER/found.npz.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from acbo.experiments import cells, compare
from acbo.policy import PolicyConfig, PolicyLearning, train_policy
from acbo.policy.episodes import Curriculum
from acbo.policy.grpo_config import GRPOTrainingConfig
from acbo.strategies import strategy_named
from jaxarc.agents.rollout import play
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
)
from jaxarc.envs.episodes import random_policy
from jaxarc.envs.state import join_tasks, state_axes
from jaxarc.testing import create_mock_task
from jaxtrace.fields import TimeSeriesField, UniformGrid, double_gyre
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import absorbing_boundary, reflective_boundary
from jaxtrace.tracking.seeding import uniform_grid_seeds
from jaxworlds import shard_worlds
from jaxworlds.commands import DistributedCommand
from jaxworlds.rollout import resume, run, to_host

MODELS, WORLDS = 8, 16


def walk(worlds: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    worlds = 3.9 * worlds * (1 - worlds)
    return worlds, worlds


def arc(mesh: Any) -> dict[str, Any]:
    config = JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=5, autoreset="pair"),
        dataset=UnifiedDatasetConfig(6, 6),
        action=UnifiedActionConfig(history=False),
    )
    states, _ = batch_reset(jr.split(jr.key(0), WORLDS), config, create_mock_task(6, canvas=6))
    if mesh is not None:
        states = shard_worlds(states, mesh, state_axes(states))
    played = play(
        random_policy(config), None, join_tasks(states, None), states.task_data, jr.key(1), config, 12
    )
    names = ("planes", "clipboard", "height", "width", "pair_index", "step_count")
    found = {f"arc {name}": getattr(played.states, name) for name in names}
    return {**found, "arc episodes": played.episodes, "arc reward": played.reward}


def trace(mesh: Any) -> dict[str, Any]:
    bounds = [[0, 0], [2, 1]]
    tracker = create_tracker("rk4", double_gyre(), reflective_boundary(bounds), mesh=mesh, fused=False)
    found = tracker.track_particles(uniform_grid_seeds((8, 4), bounds), (0.0, 2.0), 5, 0.1, progress=False)
    kernel = create_tracker("rk4", gyre_on_nodes(), absorbing_boundary(bounds), mesh=mesh, sort_every=4)
    sorted_in_space = kernel.track_particles(
        uniform_grid_seeds((8, 4), [[0, 0], [1.9, 0.9]]), (0.0, 2.0), 3, 0.1, progress=False
    )
    return {
        "trace positions": found.positions,
        "trace hits": found.alive,
        "trace kernel positions": sorted_in_space.positions,
        "trace kernel ends": sorted_in_space.alive,
    }


def gyre_on_nodes() -> TimeSeriesField:
    """The double gyre as numbers on a grid, which kernels know."""
    grid, times = UniformGrid([0.0, 0.0], [0.25, 0.25], (9, 5)), np.linspace(0, 2, 5)
    slices = [np.asarray(double_gyre()(grid.positions, float(t))) for t in times]
    return TimeSeriesField(np.stack(slices), times, grid=grid, layout="direct")


def causal(mesh: Any) -> dict[str, Any]:
    strategies = {"random": strategy_named("random")}
    found = compare(strategies, cells((3,), ("chain",)), models=MODELS, size=3, trials=2, mesh=mesh)
    return {"causal regret": found.regrets("random")}


def training(mesh: Any) -> dict[str, Any]:
    """Dear: the program of an update takes most of a minute to compile."""
    learning = PolicyLearning(
        updates=2, models=MODELS, grpo=GRPOTrainingConfig(group_size=8, num_iterations=1)
    )
    config = PolicyConfig(width=8, layers=1, surrogate_layers=1)
    trained = train_policy(Curriculum(3), config, learning, key=jr.key(0), mesh=mesh, progress=False)
    leaves = jax.tree.leaves(
        jax.tree.map(lambda leaf: leaf if hasattr(leaf, "shape") else None, trained.network)
    )
    return {f"causal weights {number}": leaf for number, leaf in enumerate(leaves)}


def core(mesh: Any, folder: Path) -> dict[str, Any]:
    """Saved by all processes together, once; and gone on with."""
    start = np.linspace(0.1, 0.9, WORLDS).astype(np.float32)
    run(walk, start, 4, chunk=2, record_every=1, mesh=mesh, checkpoint=folder / "run", progress=False)
    return {"core carry": resume(walk, start, folder / "run", mesh=mesh, progress=False).carry}


class Child(DistributedCommand):
    """All of it."""

    folder = Path()
    trains = False

    def compute(self) -> int:
        mesh = self.mesh
        taught = training(mesh) if self.trains else {}
        found = to_host({**arc(mesh), **trace(mesh), **causal(mesh), **core(mesh, self.folder), **taught})
        if jax.process_index() == 0:
            np.savez(self.folder / "found.npz", **found)
        return 0


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)
    place, devices, hosts, host, port, trains = sys.argv[1:]
    Child.folder, Child.trains = Path(place), bool(int(trains))
    several = int(hosts) > 1
    child = Child(
        devices=int(devices) or None,
        hosts=int(hosts),
        host=int(host) if several else None,
        coordinator=f"localhost:{port}" if several else None,
    )
    sys.exit(child.run())

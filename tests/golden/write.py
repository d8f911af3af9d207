"""Write small files of every result format, for `tests/architecture/test_old_files.py` to load with later code.

It was run once, with the sources of the commit in `provenance.json`, before the redesign: `python write.py FOLDER`.
Never run it with later code into this folder: the point of these files is that they are old.
"""

import datetime
import json
import shutil
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import acbo
import jaxworlds
from acbo import GRPOTrainingConfig
from acbo.data import Dataset
from acbo.optimizer import Optimizer
from acbo.policy import EpisodeConfig, PolicyConfig, PolicyLearning, PolicyNetwork, save_policy, train_policy
from acbo.scms.scm import linear_scm
from acbo.surrogate import LearningConfig, Network, NetworkConfig, save_weights, train
from jaxarc.envs import PointAction, arc_reset, arc_step, save_state_efficiently
from jaxarc.tasks import TaskSet, parse_task, write_task_file
from jaxarc.testing import create_test_config
from jaxarc.utils.visualization import VisualizationSession, record_episode
from jaxtrace.fields import TimeSeriesField, UniformGrid, double_gyre
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import reflective_boundary
from jaxworlds.measuring import Baseline

EXPECTED: dict[str, np.ndarray] = {}


def keep(name, tree):
    """Remember what was saved, or what a run ends with, by plain names."""
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        leaf = jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        EXPECTED[f"{name}/{number}"] = np.asarray(leaf)


def stop_after(chunks):
    seen = []

    def stop(*_):
        seen.append(0)
        return len(seen) == chunks

    return stop


# --- jaxworlds ---


def walk(carry, t, shared):
    """Random walks that count their turns; `shared` holds the lengths of steps."""
    keys = jax.vmap(jr.fold_in, (0, None))(carry["key"], t)
    turn = jax.vmap(lambda key: jr.randint(key, (2,), -1, 2))(keys)
    place = carry["place"] + turn * shared["scale"]
    return {"place": place, "key": carry["key"], "turns": carry["turns"] + 1}, place[:, 0]


def write_core(folder):
    carry = {
        "place": jnp.zeros((3, 2), jnp.int32),
        "key": jr.split(jr.key(7), 3),
        "turns": jnp.zeros(3, jnp.int32),
    }
    shared = {"scale": jnp.array([1, 5], jnp.int32)}
    options = {"shared": shared, "chunk": 4, "record_every": 2, "progress": False}
    whole = jaxworlds.run(walk, carry, 20, **options)
    keep("run", (whole.carry, whole.records))
    saved = jaxworlds.Checkpoint(folder / "run", every_seconds=0)
    jaxworlds.run(walk, carry, 20, checkpoint=saved, on_chunk=stop_after(2), **options)

    state = {
        "grid": jnp.arange(12, dtype=jnp.int8).reshape(3, 4),
        "half": jnp.array([0.5, -2.0], jnp.bfloat16),
        "key": jr.split(jr.key(3), 2),
        "steps": 17,
        "name": "golden",
        "bank": jnp.arange(1000.0),
    }
    jaxworlds.save_state(folder / "state.jxw", state, exclude=["['bank']"], meta={"step": 17})
    storage = jaxworlds.CompressedStorage(folder / "store")
    grids = [np.full((3, 3), number, np.int8) for number in range(3)]
    storage.save({"grids": grids, "metadata": {"id": "a", "share": 0.25, "none": None}}, "episode_1")
    jaxworlds.save_array(folder / "rows.npy", np.arange(60, dtype=np.int32).reshape(-1, 3))
    Baseline.load(folder / "baselines.json", "golden").record("step", {"compiles": 1, "median_s": 0.25})


# --- acbo ---


class Draw(eqx.Module):
    """Three variables in a chain, with data of fixed sizes."""

    strength: jax.Array

    def __call__(self, key):
        weights = jnp.zeros((3, 3)).at[0, 1].set(self.strength).at[1, 2].set(-self.strength)
        noise = jr.normal(key, (12, 3))
        values = noise @ jnp.linalg.inv(jnp.eye(3) - weights)
        none = jnp.zeros((12, 3), bool)
        return Dataset(values, none, jnp.ones(12, bool), jnp.ones(3, bool), jnp.int32(2)), weights != 0


class DrawSCM(eqx.Module):
    """Two variables, the second of which follows the first, up or down."""

    noise: jax.Array

    def __call__(self, key, step):
        weight = jnp.zeros((2, 2)).at[0, 1].set(jr.rademacher(key, (), jnp.float32))
        return linear_scm(weight, jnp.stack([jnp.float32(1), self.noise]))


def simulate(do):
    dose, coat = do.get("dose", 5.0), do.get("coat", 1.0)
    return {"dose": dose, "coat": coat, "age": 40.0 + coat, "pain": 8 - 0.5 * dose + coat}


def write_acbo(folder):
    variables = {"dose": (0, 10), "coat": [0, 1, 4], "age": None, "pain": {"low": -9, "high": 9}}
    for strategy in ("random", "thompson"):
        optimizer = Optimizer(
            variables,
            target="pain",
            strategy=strategy,
            graph={"forbidden": [("pain", "dose")]},
            seed=5,
            simulator=simulate,
        )
        optimizer.run(3, progress=False)
        optimizer.ask()
        optimizer.save(folder / f"optimization-{strategy}.json")
        numbers = optimizer.history()[list(variables)].to_numpy()
        following = optimizer.ask()[["dose", "coat", "cost"]].to_numpy()
        keep(f"optimization {strategy}", (numbers, following))

    tiny = NetworkConfig("statistics", pair_width=4, layers=1, rank=2)
    data, _ = Draw(jnp.float32(1.5))(jr.key(4))
    network = Network(tiny, key=jr.key(1))
    save_weights(folder / "surrogate.safetensors", network, {"note": "golden", "updates": 0})
    keep("surrogate", network(data).edges)
    policy = PolicyNetwork(PolicyConfig(width=4, layers=1, surrogate_layers=1, places=3), key=jr.key(2))
    save_policy(folder / "policy.safetensors", policy, {"note": "golden"})
    keep("policy", eqx.filter(policy, eqx.is_array))

    learning = LearningConfig(updates=10, batch=4, learning_rate=3e-3, set_weight=0.0)
    draw = Draw(jnp.float32(1.5))
    whole = train(draw, tiny, learning, chunk=2, progress=False)
    keep("surrogate training", (eqx.filter(whole.network, eqx.is_array), whole.history))
    saved = jaxworlds.Checkpoint(folder / "surrogate-training", every_seconds=0, keep=1)
    train(draw, tiny, learning, chunk=2, checkpoint=saved, on_chunk=stop_after(2), progress=False)

    draw = DrawSCM(jnp.float32(0.1))
    learning = PolicyLearning(
        updates=16,
        models=2,
        imitate=0.25,
        episode=EpisodeConfig(observations=0, least=0, trials=2, known=0.0),
        grpo=GRPOTrainingConfig(group_size=8, num_iterations=1, learning_rate=0.01),
    )
    whole = train_policy(draw, policy, learning, chunk=2, progress=False)
    keep("policy training", (eqx.filter(whole.network, eqx.is_array), whole.history))
    saved = jaxworlds.Checkpoint(folder / "policy-training", every_seconds=0, keep=1)
    train_policy(draw, policy, learning, chunk=2, checkpoint=saved, on_chunk=stop_after(4), progress=False)


# --- jaxarc ---


def tasks_of(seed=0, count=3):
    draw = np.random.default_rng(seed)

    def pair():
        return {side: draw.integers(0, 10, (5, 6)).tolist() for side in ("input", "output")}

    return TaskSet.of(
        parse_task({"train": [pair(), pair()], "test": [pair()]}, task_id=f"t{number}")
        for number in range(count)
    )


def write_arc(folder):
    tasks, config = tasks_of(), create_test_config(max_episode_steps=20, grid_size=8)
    write_task_file(tasks, folder / "tasks.arcbank", name="golden", version="1", source="made up")
    for name, given in (("task", tasks.get_task_by_index(1)), ("bank", tasks)):
        state, _ = arc_reset(jr.key(0), config, given)
        for step in range(3):
            state, *_ = arc_step(state, PointAction(step + 1, step, 2), config)
        save_state_efficiently(state, folder / f"{name}.jxw")
        keep(f"state of a {name}", (state.working_grid, state.step_count, state.similarity))
        state, *_ = arc_step(state, PointAction(7, 4, 4), config)
        keep(f"state of a {name} after a step", (state.working_grid, state.step_count, state.similarity))

    task = tasks.get_task_by_index(0)
    start = arc_reset(jr.key(0), config, task, initial_pair_idx=1)
    actions = [PointAction(3, 1, 1), PointAction(24, 0, 0), PointAction(34, 0, 0)]
    episode = record_episode(start, actions, config, task_id="t0")
    for name, compression in (("packed", True), ("plain", False)):
        options = {"debug": {"level": "research", "memory_management": {"compression": compression}}}
        session = VisualizationSession(visualization(options), folder / f"session-{name}", console=silent())
        with session:
            session.log_episode(episode)
        for file in (folder / f"session-{name}").glob("*.*"):
            file.unlink()  # pictures and tables for people; the arrays lie in `episodes`
    keep(
        "episode",
        [np.stack([step.after for step in episode.steps]), np.array([s.reward for s in episode.steps])],
    )

    command = [sys.executable, "-m", "jaxarc.cli", "rollout", "--dataset", str(folder / "tasks.arcbank")]
    command += ["--environments", "3", "--steps", "50", "--checkpoint", str(folder / "rollout"), "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    EXPECTED["rollout/reward"] = np.array(told["reward"])
    EXPECTED["rollout/episodes"] = np.array(told["episodes"])
    (folder / "rollout" / "step-000000000050.jwstate").unlink()  # so that a resumed run takes its steps


def visualization(options):
    from jaxarc.envs.adapter import config_from_dict

    return config_from_dict({"visualization": options})


def silent():
    import io

    from rich.console import Console

    return Console(file=io.StringIO())


# --- jaxtrace ---


def series():
    draw = np.random.default_rng(0)
    grid = UniformGrid([0.0, 0.0], [1 / 4, 1 / 4], (5, 5))
    data = 0.2 * draw.standard_normal((3, 25, 2))
    return TimeSeriesField(data.astype(np.float32), np.array([0.0, 1.0, 2.0]), grid=grid)


def seeds(count):
    return np.random.default_rng(1).uniform(0.31, 0.89, (count, 2)).astype(np.float32)


def trackers():
    """A function with walls, random walks in a series on a grid, and adaptive steps to the end of a field."""
    walls = reflective_boundary([[0.3, 0.1], [1.7, 0.9]])
    return {
        "walls": {"field": double_gyre(1.0), "boundary_condition": walls},
        "series": {
            "field": series(),
            "boundary_condition": reflective_boundary([[0.0, 0.0], [1.0, 1.0]]),
            "integrator_name": "milstein",
            "diffusivity": 0.001,
        },
        "open": {"field": series(), "integrator_name": "dopri5"},
    }


def write_trace(folder):
    for name, options in trackers().items():
        # 33 records of 2,000 steps and 40 particles: chunks of 16 records on a CPU
        job = (seeds(40), (0.0, 2.0), 33, 2.0 / 32 / 2000)
        whole = create_tracker(**options).track_particles(*job, progress=False)
        keep(f"tracker {name}", (whole.positions, whole.outcomes))
        saved = jaxworlds.Checkpoint(folder / f"tracker-{name}", every_seconds=0, keep=1)
        stopping = create_tracker(**options, progress_callback=stop_after(1))
        part = stopping.track_particles(*job, checkpoint=saved, progress=False)
        assert part.outcome == "stopped", part.outcome
    small = create_tracker(**trackers()["walls"]).track_particles(
        seeds(4),
        (0.0, 2.0),
        5,
        0.05,
        release_times=[0.0, 0.0, 0.5, 1.0],
        ids=["a", "b", "c", "d"],
        progress=False,
    )
    for suffix in ("npz", "nc", "zarr"):
        small.save(folder / f"paths.{suffix}")
    shutil.make_archive(str(folder / "paths.zarr"), "zip", folder / "paths.zarr")
    keep("paths", [small.positions, small.times, small.alive, small.outcomes])


def main():
    folder = Path(sys.argv[1])
    for name, write in {
        "core": write_core,
        "acbo": write_acbo,
        "arc": write_arc,
        "trace": write_trace,
    }.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        write(folder / name)
    np.savez_compressed(folder / "expected.npz", **EXPECTED)
    sources = Path(jaxworlds.__file__).parents[2]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=sources, capture_output=True, text=True
    ).stdout.strip()
    from importlib.metadata import version

    tools = ("jax", "jaxlib", "numpy", "equinox", "optax", "safetensors", "h5netcdf", "zarr", "xarray")
    story = {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "python": sys.version.split()[0],
        "platform": jax.default_backend(),
        "versions": {name: version(name) for name in tools},
        "script": "tests/golden/write.py",
    }
    (folder / "provenance.json").write_text(json.dumps(story, indent=1) + "\n")


if __name__ == "__main__":
    assert acbo.__version__
    main()

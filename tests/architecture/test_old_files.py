"""Files that earlier versions wrote still load: one of every format, from `tests/golden`, with the values of then.

`tests/golden/provenance.json` names the commit and the versions that wrote them, and `write.py` beside it is how. Fields
of saved states may be renamed only together with a way to read their old names.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import jaxworlds
from acbo import GRPOTrainingConfig, load_policy
from acbo.data import Dataset
from acbo.optimizer import Optimizer
from acbo.policy import EpisodeConfig, PolicyLearning, policy_metadata, train_policy
from acbo.scms.scm import linear_scm
from acbo.surrogate import LearningConfig, NetworkConfig, load_weights, train
from jaxarc.envs import PointAction, arc_reset, arc_step, load_state_efficiently
from jaxarc.envs.adapter import config_from_dict
from jaxarc.tasks import TaskSet, load, open_task_file, parse_task
from jaxarc.testing import create_test_config
from jaxarc.utils.visualization import VisualizationSession
from jaxtrace.fields import TimeSeriesField, UniformGrid, double_gyre
from jaxtrace.io import load_trajectory
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import reflective_boundary
from jaxworlds.measuring import Baseline

pytestmark = [
    pytest.mark.usefixtures("quick_compile"),
    # The program of a step is another one since; that is what a resumed run says, and all it may say.
    pytest.mark.filterwarnings("ignore:the program of this run differs:jaxworlds.rollout.ResumeWarning"),
]

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
EXPECTED = dict(np.load(GOLDEN / "expected.npz"))


def assert_as_then(name: str, tree: Any, **tolerance: float) -> None:
    """The leaves of `tree` have the types and values that the old version had; to the bit unless told otherwise."""
    leaves = jax.tree.leaves(tree)
    assert len(leaves) == sum(key.startswith(f"{name}/") for key in EXPECTED), name
    for number, leaf in enumerate(leaves):
        leaf = jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        old = EXPECTED[f"{name}/{number}"]
        assert np.asarray(leaf).dtype == old.dtype
        np.testing.assert_allclose(
            leaf, old, **({"rtol": 0, "atol": 0} | tolerance), err_msg=f"{name} {number}"
        )


def copied(name: str, folder: Path) -> Path:
    """A copy of golden files, which a resumed run writes to."""
    return Path(shutil.copytree(GOLDEN / name, folder / name))


def test_their_origin_is_told() -> None:
    story = json.loads((GOLDEN / "provenance.json").read_text())
    assert len(story["commit"]) == 40
    assert set(story) == {"commit", "date", "platform", "python", "script", "versions"}
    files = [file for file in GOLDEN.rglob("*") if file.is_file() and file.suffix != ".py"]
    assert sum(file.stat().st_size for file in files) < 300_000


# --- jaxworlds ---


def walk(carry: Any, t: Any, shared: Any) -> Any:
    """Random walks that count their turns, as they were run then."""
    keys = jax.vmap(jr.fold_in, (0, None))(carry["key"], t)
    turn = jax.vmap(lambda key: jr.randint(key, (2,), -1, 2))(keys)
    place = carry["place"] + turn * shared["scale"]
    return {"place": place, "key": carry["key"], "turns": carry["turns"] + 1}, place[:, 0]


def test_a_run_goes_on(tmp_path: Path) -> None:
    like = {
        "place": jnp.zeros((3, 2), jnp.int32),
        "key": jr.split(jr.key(7), 3),
        "turns": jnp.zeros(3, jnp.int32),
    }
    shared = {"scale": jnp.array([1, 5], jnp.int32)}
    found = jaxworlds.resume(walk, like, copied("core/run", tmp_path), shared=shared, progress=False)
    assert (found.outcome, found.step, found.first_step) == ("finished", 20, 12)
    assert_as_then("run", (found.carry, found.records))


def test_a_state_a_store_an_array_and_a_baseline_load() -> None:
    like = {
        "grid": jnp.zeros((3, 4), jnp.int8),
        "half": jnp.zeros(2, jnp.bfloat16),
        "key": jr.split(jr.key(0), 2),
        "steps": 0,
        "name": "",
        "bank": jnp.arange(1000.0),
    }
    state = jaxworlds.load_state(GOLDEN / "core" / "state.jxw", like)
    np.testing.assert_array_equal(state["grid"], np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(state["half"].astype(jnp.float32), [0.5, -2.0])
    assert (jr.key_data(state["key"]) == jr.key_data(jr.split(jr.key(3), 2))).all()
    assert (state["steps"], state["name"]) == (17, "golden")
    assert jaxworlds.read_header(GOLDEN / "core" / "state.jxw").meta == {"step": 17}
    with pytest.raises(jaxworlds.StoreError):  # the content of what was left out is known
        jaxworlds.load_state(GOLDEN / "core" / "state.jxw", like | {"bank": jnp.ones(1000)})

    stored = jaxworlds.CompressedStorage(GOLDEN / "core" / "store").load("episode_1")
    assert stored["metadata"] == {"id": "a", "share": 0.25, "none": None}
    np.testing.assert_array_equal(stored["grids"], np.arange(3)[:, None, None] * np.ones((3, 3), np.int8))
    rows = jaxworlds.open_array(GOLDEN / "core" / "rows.npy", verify=True)
    np.testing.assert_array_equal(rows, np.arange(60, dtype=np.int32).reshape(-1, 3))
    figures = Baseline.load(GOLDEN / "core" / "baselines.json", "golden").figures("step")
    assert figures == {"compiles": 1, "median_s": 0.25}


# --- acbo ---


class Draw(eqx.Module):
    """Three variables in a chain, with data of fixed sizes."""

    strength: jax.Array

    def __call__(self, key: Any) -> Any:
        weights = jnp.zeros((3, 3)).at[0, 1].set(self.strength).at[1, 2].set(-self.strength)
        noise = jr.normal(key, (12, 3))
        values = noise @ jnp.linalg.inv(jnp.eye(3) - weights)
        none = jnp.zeros((12, 3), bool)
        return Dataset(values, none, jnp.ones(12, bool), jnp.ones(3, bool), jnp.int32(2)), weights != 0


class DrawSCM(eqx.Module):
    """Two variables, the second of which follows the first, up or down."""

    noise: jax.Array

    def __call__(self, key: Any, step: Any) -> Any:
        weight = jnp.zeros((2, 2)).at[0, 1].set(jr.rademacher(key, (), jnp.float32))
        return linear_scm(weight, jnp.stack([jnp.float32(1), self.noise]))


DRAW, TINY = Draw(jnp.float32(1.5)), NetworkConfig("statistics", pair_width=4, layers=1, rank=2)


@pytest.mark.parametrize("strategy", ["random", "thompson"])
def test_an_optimization_goes_on(strategy: str) -> None:
    optimizer = Optimizer.load(GOLDEN / "acbo" / f"optimization-{strategy}.json", keep=False)
    assert len(optimizer.pending()) == 1
    numbers = optimizer.history()[["dose", "coat", "age", "pain"]].to_numpy()
    following = optimizer.ask()[["dose", "coat", "cost"]].to_numpy()
    if strategy == "thompson":  # believes otherwise since, and asks for something else
        following = EXPECTED["optimization thompson/1"]
    assert_as_then(f"optimization {strategy}", (numbers, following), rtol=1e-5)


def test_the_weights_of_a_surrogate_and_a_policy_load() -> None:
    data, _ = DRAW(jr.key(4))
    surrogate = load_weights(GOLDEN / "acbo" / "surrogate.safetensors")
    assert surrogate.network.config == TINY
    assert_as_then("surrogate", surrogate.network(data).edges, rtol=1e-5, atol=1e-6)
    path = GOLDEN / "acbo" / "policy.safetensors"
    assert policy_metadata(path)["metadata"] == {"note": "golden"}
    assert_as_then("policy", eqx.filter(load_policy(path).network, eqx.is_array))


def test_the_training_of_a_surrogate_goes_on(tmp_path: Path) -> None:
    found = train(
        DRAW,
        TINY,
        LearningConfig(updates=10, batch=4, learning_rate=3e-3, set_weight=0.0),
        checkpoint=copied("acbo/surrogate-training", tmp_path),
        resuming=True,
        progress=False,
    )
    assert (found.rollout.first_step, found.rollout.step) == (6, 10)
    trained = (eqx.filter(found.network, eqx.is_array), found.history)
    assert_as_then("surrogate training", trained, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("part", ["imitation", "grpo"])
def test_the_training_of_a_policy_goes_on(part: str, tmp_path: Path) -> None:
    folder = copied("acbo/policy-training", tmp_path)
    if part == "imitation":
        shutil.rmtree(folder / "grpo")
    learning = PolicyLearning(
        updates=16,
        models=2,
        imitate=0.25,
        episode=EpisodeConfig(observations=0, least=0, trials=2, known=0.0),
        grpo=GRPOTrainingConfig(group_size=8, num_iterations=1, learning_rate=0.01),
    )
    network = load_policy(GOLDEN / "acbo" / "policy.safetensors").network
    found = train_policy(
        DrawSCM(jnp.float32(0.1)),
        network,
        learning,
        chunk=2,
        checkpoint=folder,
        resuming=True,
        progress=False,
    )
    assert found.rollout.finished
    assert found.rollout.first_step == (6 if part == "grpo" else 0)
    trained = (eqx.filter(found.network, eqx.is_array), found.history)
    assert_as_then("policy training", trained, rtol=1e-3, atol=1e-4)


# --- jaxarc ---


def tasks_of(seed: int = 0, count: int = 3) -> TaskSet:
    draw = np.random.default_rng(seed)

    def pair() -> dict[str, Any]:
        return {side: draw.integers(0, 10, (5, 6)).tolist() for side in ("input", "output")}

    return TaskSet.of(
        parse_task({"train": [pair(), pair()], "test": [pair()]}, task_id=f"t{number}")
        for number in range(count)
    )


TASKS, ARC = GOLDEN / "arc" / "tasks.arcbank", create_test_config(max_episode_steps=20, grid_size=8)


def test_a_file_of_tasks_opens() -> None:
    stored = open_task_file(TASKS, verify=True)
    assert (stored.name, stored.version, stored.source) == ("golden", "1", "made up")
    wanted = tasks_of()
    assert (stored.ids, stored.content_hash) == (wanted.ids, wanted.content_hash)
    assert eqx.tree_equal(stored.bank(), wanted.bank)
    assert load(TASKS).content_hash == wanted.content_hash


@pytest.mark.parametrize("kind", ["task", "bank"])
def test_a_saved_environment_plays_on(kind: str) -> None:
    tasks = load(TASKS)
    given = tasks if kind == "bank" else tasks.get_task_by_index(1)
    like, _ = arc_reset(jr.key(9), ARC, given)
    state = load_state_efficiently(GOLDEN / "arc" / f"{kind}.jxw", tasks, like)
    assert_as_then(f"state of a {kind}", (state.working_grid, state.step_count, state.similarity))
    state, *_ = arc_step(state, PointAction(7, 4, 4), ARC)
    assert_as_then(
        f"state of a {kind} after a step", (state.working_grid, state.step_count, state.similarity)
    )


@pytest.mark.parametrize(("name", "compression"), [("packed", True), ("plain", False)])
def test_an_archived_episode_loads(name: str, compression: bool, tmp_path: Path) -> None:
    options = {"debug": {"level": "research", "memory_management": {"compression": compression}}}
    with VisualizationSession(
        config_from_dict({"visualization": options}), copied(f"arc/session-{name}", tmp_path)
    ) as session:
        found = session.load("episode_00001")
        episode = found.get() if hasattr(found, "get") else found
        steps = episode.steps
    assert (episode.task_id, episode.mode, [step.operation for step in steps]) == ("t0", "train", [3, 24, 34])
    assert_as_then(
        "episode", [np.stack([step.after for step in steps]), np.array([step.reward for step in steps])]
    )


@pytest.mark.own_process
def test_random_play_of_the_command_goes_on(tmp_path: Path) -> None:
    folder = copied("arc/rollout", tmp_path)
    command = [sys.executable, "-W", "ignore", "-m", "jaxarc.cli", "rollout", "--dataset", str(TASKS)]
    command += ["--environments", "3", "--steps", "50", "--checkpoint", str(folder), "--resume", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["episodes"] == EXPECTED["rollout/episodes"]
    np.testing.assert_allclose(told["reward"], EXPECTED["rollout/reward"], rtol=1e-5)


# --- jaxtrace ---


def series() -> TimeSeriesField:
    draw = np.random.default_rng(0)
    grid = UniformGrid([0.0, 0.0], [1 / 4, 1 / 4], (5, 5))
    data = 0.2 * draw.standard_normal((3, 25, 2))
    return TimeSeriesField(data.astype(np.float32), np.array([0.0, 1.0, 2.0]), grid=grid)


TRACKERS: dict[str, Any] = {
    "walls": lambda: {
        "field": double_gyre(1.0),
        "boundary_condition": reflective_boundary([[0.3, 0.1], [1.7, 0.9]]),
    },
    "series": lambda: {
        "field": series(),
        "boundary_condition": reflective_boundary([[0.0, 0.0], [1.0, 1.0]]),
        "integrator_name": "milstein",
        "diffusivity": 0.001,
    },
    "open": lambda: {"field": series(), "integrator_name": "dopri5"},
}


@pytest.mark.parametrize("name", list(TRACKERS))
def test_a_tracker_goes_on(name: str, tmp_path: Path) -> None:
    seeds = np.random.default_rng(1).uniform(0.31, 0.89, (40, 2)).astype(np.float32)
    folder = copied(f"trace/tracker-{name}", tmp_path)
    found = create_tracker(**TRACKERS[name]()).track_particles(
        seeds, (0.0, 2.0), 33, 2.0 / 32 / 2000, checkpoint=folder, resume=True, progress=False
    )
    assert found.outcome == "finished"
    assert_as_then(f"tracker {name}", (found.positions, found.outcomes), atol=1e-3)


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr", "zarr.zip"])
def test_paths_load(suffix: str) -> None:
    found = load_trajectory(GOLDEN / "trace" / f"paths.{suffix}")
    assert_as_then("paths", [found.positions, found.times, found.alive, found.outcomes])
    assert found.ids.tolist() == ["a", "b", "c", "d"]
    assert found.release_times.tolist() == [0.0, 0.0, 0.5, 1.0]
    assert found.outcome_names[0]
    assert found.info["particles" if "particles" in found.info else "steps"]

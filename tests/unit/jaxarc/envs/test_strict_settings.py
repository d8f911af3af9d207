"""Settings of jax that are stricter than usual, `jax.export`, and the kernels' switch after a first step."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxarc.dispatch import _batch_step
from jaxarc.envs import (
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    ObservationConfig,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_observe,
    batch_reset,
    batch_step,
)
from jaxarc.envs._export import CLASSES
from jaxarc.envs.episodes import Played, random_actions, random_policy, rollout
from jaxarc.performance import create_optimized_episode_runner
from jaxarc.tasks import augment_bank, augment_task, inverse, random_augmentation, random_augmentations
from jaxarc.testing import create_mock_task

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(autoreset="task", solve="all", max_episode_steps=4),
    dataset=UnifiedDatasetConfig(5, 5),
    action=UnifiedActionConfig(selection_format="bbox", control_operations=True),
    observation=ObservationConfig(demonstrations=True),
)
STRICT: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
}


@pytest.fixture(params=STRICT)
def strict(request: pytest.FixtureRequest) -> Iterator[None]:
    with STRICT[request.param]():
        yield


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.usefixtures("strict")
def test_a_batch_plays_under_strict_promotion(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXARC_KERNELS", kernels)
    task = create_mock_task(4, canvas=5)
    states, seen = batch_reset(jax.random.split(jax.random.key(0), 3), CONFIG, task.bank)
    states, *_ = batch_step(states, random_actions(jax.random.key(1), CONFIG, 3), CONFIG)
    batch_observe(states, CONFIG)
    played = rollout(random_policy(CONFIG), None, states, seen, jax.random.key(2), CONFIG, 3)
    assert played.steps.tolist() == [3, 3, 3]
    for shown in (states.working_grid, states.working_grid_mask, states.target_grid, states.input_grid):
        assert shown.shape == (3, 5, 5)


@pytest.mark.usefixtures("strict")
def test_one_environment_under_strict_promotion() -> None:
    state, _ = arc_reset(jax.random.key(0), CONFIG, create_mock_task(4, canvas=5))
    for action in (PointAction(1, 2, 3), BboxAction(1, 0, 0, 1, 1), MaskAction(1, np.ones((5, 5), bool))):
        assert action.to_selection_mask((5, 5)).shape == (5, 5)
    state, *_ = arc_step(state, BboxAction(1, 0, 0, 1, 1), CONFIG)
    assert state.working_grid[0, 0] == 1


@pytest.mark.usefixtures("strict")
def test_tasks_are_changed_and_episodes_run_under_strict_promotion() -> None:
    task = create_mock_task(4, canvas=5)
    change = random_augmentation(jax.random.key(0))
    back = augment_task(augment_task(task, change), inverse(change))
    np.testing.assert_array_equal(back.input_grids_examples, task.input_grids_examples)
    many = random_augmentations(jax.random.key(1), task.bank)
    assert len(augment_bank(task.bank, many)) == 1
    assert len(task.bank.with_weights([2.0])) == 1
    run = create_optimized_episode_runner(CONFIG, task, max_steps=2)
    assert int(run(jax.random.key(0), None)["episode_length"]) == 2


def test_what_a_user_writes_stays_under_the_users_rules() -> None:
    """Our arithmetic is excused; a policy of the user's is not."""
    states, seen = batch_reset(
        jax.random.split(jax.random.key(0), 3), CONFIG, create_mock_task(4, canvas=5).bank
    )

    def careless(params: Any, seen: Any, key: Any) -> PointAction:
        rows = jnp.zeros((3, 3), jnp.int32) + seen.step_count
        return PointAction(rows[0], rows[0], rows[0])

    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="jax_numpy_rank_promotion"):
        rollout(careless, None, states, seen, jax.random.key(2), CONFIG, 2)


def test_the_switch_counts_after_a_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    states, _ = batch_reset(
        jax.random.split(jax.random.key(0), 6), CONFIG, create_mock_task(4, canvas=5).bank
    )
    actions = random_actions(jax.random.key(1), CONFIG, 6)
    outs, programs = [], []
    for kernels in ("auto", "off", "auto"):
        monkeypatch.setenv("JAXARC_KERNELS", kernels)
        outs.append(batch_step(states, actions, CONFIG)[0].planes)
        programs.append(_batch_step._cache_size())
    assert programs[1] == programs[0] + 1  # one program for each setting
    assert programs[2] == programs[1]
    np.testing.assert_array_equal(outs[0], outs[1])


def test_every_class_of_a_step_is_known_to_export() -> None:
    with pytest.raises(ValueError, match=r"[Dd]uplicate"):
        export.register_pytree_node_serialization(
            CLASSES[0], serialized_name="x", serialize_auxdata=str, deserialize_auxdata=str
        )


@pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None, reason="jax writes programs with flatbuffers"
)
def test_a_step_is_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    states, _ = batch_reset(
        jax.random.split(jax.random.key(0), 3), CONFIG, create_mock_task(4, canvas=5).bank
    )
    actions = random_actions(jax.random.key(1), CONFIG, 3)
    program = jax.jit(batch_step)
    read = export.deserialize(export.export(program)(states, actions, CONFIG).serialize())
    again, expected = read.call(states, actions, CONFIG), program(states, actions, CONFIG)
    assert jax.tree.structure(again) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, again, expected)


@pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None, reason="jax writes programs with flatbuffers"
)
def test_a_rollout_is_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    states, seen = batch_reset(
        jax.random.split(jax.random.key(0), 3), CONFIG, create_mock_task(4, canvas=5).bank
    )
    play = jax.jit(lambda *given: rollout(random_policy(CONFIG), None, *given, CONFIG, 3))
    key = jax.random.PRNGKey(2)
    read = export.deserialize(export.export(play)(states, seen, key).serialize())
    again = read.call(states, seen, key)
    assert isinstance(again, Played)
    jax.tree.map(np.testing.assert_array_equal, again, play(states, seen, key))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_stands_beside_the_arrays_survives_export(kind: type) -> None:
    """What `jax.export` keeps of a class, without its file format."""
    from jaxarc.envs._export import _facts_of

    states, seen = batch_reset(
        jax.random.split(jax.random.key(0), 3), CONFIG, create_mock_task(4, canvas=5).bank
    )
    task = create_mock_task(4, canvas=5)
    zero, none = jnp.zeros(3), jnp.zeros(3, jnp.int32)
    made: tuple[Any, ...] = (Played(states, seen, zero, none, none, none),) if kind is Played else ()
    made += (states, states.action_history, seen, seen.demonstrations, states.task_data, task)
    made += (PointAction(1, 2, 3), BboxAction(1, 0, 0, 1, 1), MaskAction(1, np.ones((5, 5), bool)))
    one = next((value for value in made if isinstance(value, kind)), None)
    if one is None:  # a grid
        one = task.bank.input_at(jnp.int32(0), 5)
    aux = jax.tree.structure(one).node_data()[1]
    write, read = _facts_of(kind)
    assert read(bytearray(write(aux))) == aux

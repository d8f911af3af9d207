"""The ARC environment compiles once: reset and step, for each action format, over an episode and over all tasks."""

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
    ObservationConfig,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
)
from jaxarc.tasks import RawTask, TaskSet
from jaxarc.testing import create_mock_task
from jaxworlds.compiling import CompileWatch, no_recompile
from jaxworlds.static import aval_differences

pytestmark = pytest.mark.usefixtures("quick_compile")

SIDE, TASKS, BATCH = 7, 9, 5
# Names of the compiled functions behind the four public ones.
RESET, STEP, BATCH_RESET, BATCH_STEP = "_reset", "_step", "_batch_reset", "_batch_step"


def config_of(form: Any, **rules: Any) -> JaxArcConfig:
    """Settings no other test uses, so that nothing is compiled before."""
    return JaxArcConfig(
        environment=EnvironmentConfig(**{"max_episode_steps": 17, **rules}),
        dataset=UnifiedDatasetConfig(max_grid_height=SIDE, max_grid_width=SIDE),
        action=UnifiedActionConfig(selection_format=form),
    )


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    """Tasks of many sizes, with one to three demonstrations and no, one or two test pairs."""
    draw = np.random.default_rng(11)

    def pairs(count: int) -> tuple[Any, ...]:
        shapes = draw.integers(1, SIDE + 1, (count, 2, 2))
        return tuple(tuple(draw.integers(0, 10, shape).astype(np.int8) for shape in pair) for pair in shapes)

    raw = [RawTask(f"task{i}", pairs(1 + i % 3), pairs(1 + i % 2), "made up") for i in range(TASKS)]
    return TaskSet.of(raw, canvas=(SIDE, SIDE))


def action_of(form: str, draw: np.random.Generator, *shape: int) -> Any:
    """Random actions; a single operation comes as a number of Python, NumPy or JAX."""
    operation: Any = draw.integers(-2, 40, shape)
    cells = [draw.integers(-1, SIDE + 1, shape) for _ in range(4)]
    if not shape:
        kinds = (int, np.int64, jnp.int32)
        operation = kinds[draw.integers(3)](int(operation))
    if form == "point":
        return PointAction(operation, *cells[:2])
    if form == "bbox":
        return BboxAction(operation, *cells)
    return MaskAction(operation, draw.random((*shape, SIDE, SIDE)) < 0.2)


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_one_environment_compiles_once_over_an_episode_and_all_tasks(form: str, tasks: TaskSet) -> None:
    config, draw = config_of(form, max_attempts=200), np.random.default_rng(1)
    with CompileWatch() as watch:
        state, _ = arc_reset(jax.random.key(0), config, tasks, 0, 0, 0)
        first = state
        state, *_ = arc_step(state, action_of(form, draw), config)
    assert (watch[RESET].compiles, watch[STEP].compiles) == (1, 1)
    assert aval_differences(first, state) == []
    sizes = set()
    with no_recompile(allow_eager=True) as watch:
        for task in range(TASKS):
            for mode in (0, 1):
                state, _ = arc_reset(jax.random.key(task), config, tasks, mode, 0, np.int64(task))
                sizes.add((int(state.height), int(state.width)))
        ends = []
        while not ends or not ends[-1]:  # a whole episode, to its last step and beyond
            state, _, _, done, _ = arc_step(state, action_of(form, draw), config)
            ends.append(bool(done))
        arc_step(state, action_of(form, draw), config)
    assert len(sizes) > 5
    assert len(ends) == 17
    assert (watch[RESET].traces, watch[STEP].traces) == (0, 0)


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_a_batch_with_autoreset_compiles_once(form: str, tasks: TaskSet) -> None:
    config, draw = config_of(form, max_episode_steps=5, autoreset="task"), np.random.default_rng(2)
    with CompileWatch() as watch:
        states, _ = batch_reset(jax.random.split(jax.random.key(0), BATCH), config, tasks)
        states, *_ = batch_step(states, action_of(form, draw, BATCH), config)
    assert (watch[BATCH_RESET].compiles, watch[BATCH_STEP].compiles) == (1, 1)
    seen, episodes = set(), 0
    with no_recompile(allow_eager=True) as watch:
        batch_reset(jax.random.split(jax.random.key(1), BATCH), config, tasks)
        for _ in range(40):
            states, _, _, done, _ = batch_step(states, action_of(form, draw, BATCH), config)
            seen |= set(np.asarray(states.task_index).tolist())
            episodes += int(done.sum())
        reweighted = tasks.bank.with_weights(np.eye(TASKS)[3])
        states, _ = batch_reset(jax.random.split(jax.random.key(2), BATCH), config, reweighted)
        batch_step(states, action_of(form, draw, BATCH), config)
    assert seen == set(range(TASKS))
    assert episodes > TASKS
    np.testing.assert_array_equal(states.task_index, 3)
    assert (watch[BATCH_RESET].traces, watch[BATCH_STEP].traces) == (0, 0)


def test_single_tasks_of_a_set_share_one_program(tasks: TaskSet) -> None:
    config, draw = config_of("point", max_episode_steps=18), np.random.default_rng(3)
    with CompileWatch() as watch:
        for row in range(TASKS):
            state, _ = arc_reset(jax.random.key(row), config, tasks.get_task_by_index(row))
            arc_step(state, action_of("point", draw), config)
    assert (watch[RESET].compiles, watch[STEP].compiles) == (1, 1)


def test_an_action_of_another_format_compiles_once_for_its_type(tasks: TaskSet) -> None:
    config, draw = config_of("point", max_episode_steps=19), np.random.default_rng(4)
    state, _ = arc_reset(jax.random.key(0), config, tasks)
    with CompileWatch() as watch:
        for _ in range(4):
            state, *_ = arc_step(state, action_of("mask", draw), config)
    assert (watch[STEP].traces, watch[STEP].compiles) == (1, 1)


def test_equal_settings_share_the_program(tasks: TaskSet) -> None:
    arc_reset(jax.random.key(0), config_of("point"), tasks)
    with no_recompile(allow_eager=True):
        arc_reset(jax.random.key(1), config_of("point"), tasks)


def test_the_count_sees_another_shape(tasks: TaskSet) -> None:
    config = config_of("point", max_episode_steps=5, autoreset="task")
    with CompileWatch() as watch:
        for batch in (2, 3):
            batch_reset(jax.random.split(jax.random.key(0), batch), config, tasks)
    assert watch[BATCH_RESET].compiles == 2


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_the_program_of_a_step_stays_lean(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slower step would show first: a host call, a loop besides the flood's, or large temporaries."""
    monkeypatch.setenv("JAXARC_KERNELS", kernels)
    jax.clear_caches()  # the variable is read when a step is traced
    config = JaxArcConfig(
        action=UnifiedActionConfig(selection_format="bbox", history=False),
        observation=ObservationConfig(format="packed", input=False, clipboard=False),
    )
    batch = 256
    states, _ = batch_reset(jax.random.split(jax.random.key(0), batch), config, create_mock_task().bank)
    actions = BboxAction(jnp.zeros(batch, jnp.int32), 0, 0, 3, 3)
    program = jax.jit(lambda s, a: batch_step(s, a, config)[:4]).lower(states, actions).compile()
    text = program.as_text()
    assert "callback" not in text
    calls = text.count(" custom-call(")
    assert (calls, text.count(" while(")) == ((2, 0) if calls else (0, 1))
    assert kernels == "auto" or not calls
    analysis = program.memory_analysis()
    assert analysis.temp_size_in_bytes / batch < 8000

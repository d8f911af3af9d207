"""Laws of the ARC environment: what undoes itself, what agrees with what, and what nobody may see."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    arc_step,
    batch_reset,
    batch_step,
    state_axes,
)
from jaxarc.envs.observations import observe
from jaxarc.tasks import JaxArcTask, RawTask, TaskSet
from jaxworlds.static import replace

pytestmark = pytest.mark.usefixtures("quick_compile")

SIDE, BATCH, STEPS = 8, 6, 12
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=20, max_attempts=2),
    dataset=UnifiedDatasetConfig(max_grid_height=SIDE, max_grid_width=SIDE),
    action=UnifiedActionConfig(selection_format="mask"),
    observation=ObservationConfig(demonstrations=True),
)
# Episodes short enough to start again several times within the steps taken here.
AUTO = replace(CONFIG, environment=EnvironmentConfig(max_episode_steps=4, autoreset="task"))
KEY = jax.random.key(0)
SUBMIT = 34

sizes = st.integers(1, SIDE)
seeds = st.integers(0, 2**31)
colours = st.integers(0, 9)
grids = hnp.arrays(np.int8, st.tuples(sizes, sizes), elements=colours)
masks = hnp.arrays(np.bool_, (SIDE, SIDE))
quick = functools.partial(settings, deadline=None)


def padded(*cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Grids on the canvas, with the masks of their active parts."""
    out, mask = np.zeros((len(cells), SIDE, SIDE), np.int8), np.zeros((len(cells), SIDE, SIDE), bool)
    for row, grid in enumerate(cells):
        out[row, : grid.shape[0], : grid.shape[1]] = grid
        mask[row, : grid.shape[0], : grid.shape[1]] = True
    return out, mask


def task_of(
    train: list[tuple[np.ndarray, np.ndarray]], test: list[tuple[np.ndarray, np.ndarray]]
) -> JaxArcTask:
    parts = [padded(*(pair[side] for pair in pairs)) for pairs in (train, test) for side in (0, 1)]
    (a, am), (b, bm), (c, cm), (d, dm) = parts
    return JaxArcTask(a, am, b, bm, len(train), c, cm, d, dm, len(test), 0)


def start(grid: np.ndarray) -> Any:
    """A state whose working grid is `grid`."""
    task = task_of([(grid, grid)], [(grid, grid)])
    return arc_reset(KEY, CONFIG, task, initial_pair_idx=0)[0]


def after(state: Any, *steps: tuple[int, np.ndarray]) -> Any:
    for operation, selection in steps:
        state, _, _, _, info = arc_step(state, MaskAction(operation, selection), CONFIG)
        assert bool(info["valid_action"])
    return state


def grid_of(state: Any) -> np.ndarray:
    return np.asarray(state.working_grid)[: int(state.height), : int(state.width)]


def box(top: int, left: int, height: int, width: int) -> np.ndarray:
    mask = np.zeros((SIDE, SIDE), bool)
    mask[top : top + height, left : left + width] = True
    return mask


def random_actions(seed: int, *shape: int) -> MaskAction:
    """Random operations, a fifth of them submissions, on sparse, full and empty masks."""
    draw = np.random.default_rng(seed)
    operations = np.where(draw.random(shape) < 0.2, SUBMIT, draw.integers(-1, 36, shape))
    density = draw.choice([0.0, 0.02, 0.3, 1.0], (*shape, 1, 1))
    return MaskAction(operations, draw.random((*shape, SIDE, SIDE)) < density)


def at(tree: Any, *index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def assert_equal(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def differ(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return not all(np.array_equal(x, y) for x, y in pairs)


@functools.cache
def bank() -> Any:
    draw = np.random.default_rng(5)
    sides = iter([*draw.integers(1, SIDE + 1, (200, 2))])
    grid = lambda: draw.integers(0, 10, next(sides)).astype(np.int8)  # noqa: E731
    pairs = lambda count: tuple((grid(), grid()) for _ in range(count))  # noqa: E731
    tasks = [RawTask(f"t{i}", pairs(1 + i % 3), pairs(1 + i % 2), "made up") for i in range(7)]
    return TaskSet.of(tasks, canvas=(SIDE, SIDE)).bank


# --- operations that undo themselves ---


@quick(max_examples=25)
@given(st.data(), grids, st.sampled_from([24, 25]))
def test_four_rotations_of_a_square_are_the_identity(
    data: st.DataObject, grid: np.ndarray, turn: int
) -> None:
    side = data.draw(st.integers(1, min(grid.shape)))
    top = data.draw(st.integers(0, grid.shape[0] - side))
    left = data.draw(st.integers(0, grid.shape[1] - side))
    selection = box(top, left, side, side)
    state = start(grid)
    once = grid_of(after(state, (turn, selection)))
    patch = grid[top : top + side, left : left + side]
    expected = np.rot90(patch, -1 if turn == 24 else 1)
    np.testing.assert_array_equal(once[top : top + side, left : left + side], expected)
    np.testing.assert_array_equal(grid_of(after(state, *[(turn, selection)] * 4)), grid)


@quick(max_examples=25)
@given(st.data(), grids, st.sampled_from([26, 27]))
def test_two_flips_of_a_rectangle_are_the_identity(data: st.DataObject, grid: np.ndarray, flip: int) -> None:
    height, width = (data.draw(st.integers(1, side)) for side in grid.shape)
    top = data.draw(st.integers(0, grid.shape[0] - height))
    left = data.draw(st.integers(0, grid.shape[1] - width))
    selection = box(top, left, height, width)
    state = start(grid)
    once = grid_of(after(state, (flip, selection)))
    patch = grid[top : top + height, left : left + width]
    expected = patch[:, ::-1] if flip == 26 else patch[::-1]
    np.testing.assert_array_equal(once[top : top + height, left : left + width], expected)
    np.testing.assert_array_equal(grid_of(after(state, (flip, selection), (flip, selection))), grid)


@quick(max_examples=25)
@given(grids, masks)
def test_cut_then_paste_is_the_identity(grid: np.ndarray, selection: np.ndarray) -> None:
    inside = selection[: grid.shape[0], : grid.shape[1]]
    assume(inside.any())
    cut = after(start(grid), (30, selection))
    np.testing.assert_array_equal(grid_of(cut), np.where(inside, 0, grid))
    np.testing.assert_array_equal(grid_of(after(cut, (29, selection))), grid)


@quick(max_examples=40)
@given(st.data(), st.integers(0, 3), colours)
def test_flood_agrees_with_scipy(data: st.DataObject, most: int, colour: int) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    few = st.integers(0, most)  # few colours make large components
    grid = data.draw(hnp.arrays(np.int8, st.tuples(sizes, sizes), elements=few))
    row, col = (data.draw(st.integers(0, side - 1)) for side in grid.shape)
    labels, _ = ndimage.label(grid == grid[row, col])
    expected = np.where(labels == labels[row, col], colour, grid)
    flooded = after(start(grid), (10 + colour, box(row, col, 1, 1)))
    np.testing.assert_array_equal(grid_of(flooded), expected)


# --- one program or another: the same numbers ---


def played_in_batch(seed: int) -> tuple[Any, list[Any], MaskAction]:
    keys = jax.random.split(jax.random.key(seed), BATCH)
    states, seen = batch_reset(keys, AUTO, bank())
    actions = random_actions(seed, STEPS, BATCH)
    outs = [(states, seen)]
    for step in range(STEPS):
        states, *rest = batch_step(states, at(actions, step), AUTO)
        outs.append((states, *rest))
    return keys, outs, actions


def own(state: Any) -> Any:
    """A state without the tasks, which a batch has once."""
    return eqx.tree_at(lambda s: s.task_data, state, None)


@quick(max_examples=2)
@given(seeds)
def test_batched_equals_single(seed: int) -> None:
    keys, outs, actions = played_in_batch(seed)
    batched = [jax.device_get((own(states), *rest)) for states, *rest in outs]
    restarted = False
    for row in range(BATCH):
        state, seen = arc_reset(keys[row], AUTO, bank())
        assert_equal((own(state), seen), at(batched[0], row))
        for step in range(STEPS):
            state, *rest = arc_step(state, at(actions, step, row), AUTO)
            assert_equal((own(state), *rest), at(batched[step + 1], row))
            restarted |= bool(rest[2])
    assert restarted


def test_inside_a_program_of_the_users() -> None:
    """The user's own `vmap` with `state_axes`, in a `scan`, in a `jit` with the config static, from reset to end."""
    keys, outs, actions = played_in_batch(3)

    @functools.partial(jax.jit, static_argnames=["config"])
    def rollout(keys: Any, actions: Any, tasks: Any, config: JaxArcConfig) -> Any:
        reset = lambda key: own(arc_reset(key, config, tasks)[0])  # noqa: E731
        states = eqx.tree_at(lambda s: s.task_data, jax.vmap(reset)(keys), tasks, is_leaf=lambda x: x is None)
        axes = state_axes(states)
        step = jax.vmap(arc_step, in_axes=(axes, 0, None), out_axes=(axes, 0, 0, 0, 0))

        def body(states: Any, action: Any) -> Any:
            states, *rest = step(states, action, config)
            return states, rest

        return jax.lax.scan(body, states, actions)

    final, collected = rollout(keys, actions, bank(), config=AUTO)
    assert_equal(final, outs[-1][0])
    assert_equal(collected, jax.tree.map(lambda *x: jnp.stack(x), *(list(out[1:]) for out in outs[1:])))


@quick(max_examples=2)
@given(seeds)
def test_jitted_equals_eager(seed: int) -> None:
    actions = random_actions(seed, 3)
    key = jax.random.key(seed)

    def play() -> list[Any]:
        state, seen = arc_reset(key, AUTO, bank())
        outs: list[Any] = [(state, seen)]
        for step in range(3):
            outs.append(arc_step(outs[-1][0], at(actions, step), AUTO))
        return outs

    jitted = play()
    with jax.disable_jit():
        eager = play()
    assert_equal(jitted, eager)


@quick(max_examples=5)
@given(seeds)
def test_one_key_one_story_and_another_key_another(seed: int) -> None:
    _, first, _ = played_in_batch(seed)
    _, second, _ = played_in_batch(seed)
    assert_equal(first, second)
    states = first[0][0]
    _, other = batch_reset(jax.random.split(jax.random.key(seed + 1), BATCH), AUTO, bank())
    assert differ(first[0][1], other)
    assert len(set(zip(np.asarray(states.task_index), np.asarray(states.pair_index), strict=True))) > 1


# --- the end of an episode ---


@quick(max_examples=15)
@given(grids, seeds, st.booleans())
def test_nothing_changes_after_the_end(grid: np.ndarray, seed: int, right: bool) -> None:
    state = start(grid)
    nothing = np.zeros((SIDE, SIDE), bool)
    if not right:  # paint over one cell, and submit as often as it may be
        state = after(state, ((int(grid[0, 0]) + 1) % 10, box(0, 0, 1, 1)))
    for _ in range(1 if right else 2):
        state, _, _, done, info = arc_step(state, MaskAction(SUBMIT, nothing), CONFIG)
    assert (bool(done), bool(info["success"])) == (True, right)
    actions = random_actions(seed, 3)
    for step in range(3):
        new, seen, reward, done, info = arc_step(state, at(actions, step), CONFIG)
        assert_equal(new, state)
        assert (float(reward), bool(done), bool(info["success"])) == (0.0, True, right)
        assert int(seen.step_count) == int(state.step_count)


# --- what an observation may not hold ---


@quick(max_examples=12)
@given(st.integers(0, 1), st.integers(0, 1), seeds, grids, grids)
def test_no_observation_tells_the_answer(
    mode: int, pair: int, seed: int, answer: np.ndarray, other: np.ndarray
) -> None:
    assume(answer.shape != other.shape or not np.array_equal(answer, other))
    draw = np.random.default_rng(seed)
    shown = [draw.integers(0, 10, (4, 5)).astype(np.int8) for _ in range(5)]

    def task(hidden: np.ndarray) -> JaxArcTask:
        """Two demonstrations and two test pairs; `hidden` is every answer that must not be seen."""
        answers = [hidden if (mode, row) == (0, pair) else shown[4] for row in (0, 1)]
        train = [(shown[row], answers[row]) for row in (0, 1)]
        return task_of(train, [(shown[2], hidden), (shown[3], hidden)])

    actions = random_actions(seed, 5)
    operations = np.where(np.asarray(actions.operation) == SUBMIT, 20, np.asarray(actions.operation))
    states = []
    for step in range(-1, 5):
        if step < 0:
            results = [arc_reset(KEY, CONFIG, task(hidden), mode, pair) for hidden in (answer, other)]
            seen = [result[1] for result in results]
        else:
            action = MaskAction(operations[step], np.asarray(actions.selection)[step])
            results = [arc_step(state, action, CONFIG) for state in states]
            seen = [(result[1], result[4]["final_observation"]) for result in results]
            if mode == 1:  # on a test pair the reward of painting tells nothing either
                assert float(results[0][2]) == float(results[1][2])
        assert_equal(*seen)
        states = [result[0] for result in results]
    for form in ("packed", "onehot"):
        config = replace(CONFIG, observation=ObservationConfig(format=form, demonstrations=True))
        assert_equal(*(looked(state, config) for state in states))
    visible = seen[0][0].demonstrations
    if mode == 0:
        np.testing.assert_array_equal(visible.outputs[pair], -1)
        np.testing.assert_array_equal(visible.output_sizes[pair], 0)
    for row in (0, 1) if mode == 1 else (1 - pair,):  # what may be seen is
        np.testing.assert_array_equal(np.asarray(visible.outputs)[row, :4, :5], shown[4])


@functools.partial(jax.jit, static_argnames="config")
def looked(state: Any, config: JaxArcConfig) -> Any:
    return observe(state, state.task_data.bank, config)


def test_the_comparison_would_see_a_leak() -> None:
    """Demonstrations do show the outputs of the other pairs: changing one of those changes the observation."""
    grid, other = np.ones((2, 3), np.int8), np.full((2, 3), 4, np.int8)
    tasks = [
        task_of([(grid, grid), (grid, output)], [(grid, grid), (grid, grid)]) for output in (grid, other)
    ]
    first, second = (arc_reset(KEY, CONFIG, task, 0, 0)[1] for task in tasks)
    assert differ(first, second)
    for form in ("packed", "onehot"):
        config = replace(CONFIG, observation=ObservationConfig(format=form, demonstrations=True))
        seen = [looked(arc_reset(KEY, CONFIG, task, 0, 0)[0], config) for task in tasks]
        assert differ(*seen)

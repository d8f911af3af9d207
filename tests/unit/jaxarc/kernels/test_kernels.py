"""The GPU's kernels in Pallas' interpreter, beside the plain functions: the same bits. On a GPU `make oracle` tests them."""

from typing import Any

import arc_compare
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_observe,
    batch_reset,
    batch_step,
)
from jaxarc.envs.environment import flag_missing, is_there, step_environment
from jaxarc.envs.episodes import random_actions
from jaxarc.envs.observations import observe
from jaxarc.envs.starts import threefry, threefry_once
from jaxarc.envs.state import join_tasks, replace_tasks
from jaxarc.kernels import batch_step as batch_kernel
from jaxarc.kernels.batch_observe import observe_batch
from jaxarc.kernels.batch_step import step_batch, unless_mapped, why_no_batch_kernel
from jaxarc.kernels.show import can_show, show, show_one_hot
from jaxarc.kernels.step import _Bank
from jaxarc.tasks import planes
from jaxworlds import replace

BATCH = 18  # not a multiple of the environments of a program


def config_of(
    form: str, canvas: tuple[int, int], how: str | None, rotation: str = "corner", **observation: Any
) -> JaxArcConfig:
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=9, autoreset=how, max_attempts=2),  # pyright: ignore[reportArgumentType]
        dataset=UnifiedDatasetConfig(*canvas),
        action=UnifiedActionConfig(selection_format=form, history=how != "task", rotation=rotation),  # pyright: ignore[reportArgumentType]
        observation=ObservationConfig(**observation),
    )


def started(config: JaxArcConfig) -> tuple[Any, Any]:
    """States of a batch, and tasks of which some are never drawn."""
    tasks = arc_compare.tiny_tasks(config.canvas)
    bank = tasks.bank.with_weights(np.arange(len(tasks)) % 4)
    states, _ = batch_reset(jr.split(jr.key(2), BATCH), config, bank)
    return join_tasks(states, None), bank


def interpreted(states: Any, bank: Any, actions: Any, config: JaxArcConfig) -> Any:
    """The kernel's step as `batch_step` takes it, by Pallas' interpreter."""
    there = jax.vmap(is_there, in_axes=(0, None))(states, bank)
    return flag_missing(there, step_batch(states, bank, actions, config, interpret=True))


def with_odd_masks(actions: Any, states: Any, key: Any) -> Any:
    """Masks of which some select nothing, others only cells beside the grid or a few; points and boxes as they are."""
    if not isinstance(actions, MaskAction):
        return actions
    words, (of_kind, of_cells) = actions.selection, jr.split(key)
    kind = jr.randint(of_kind, (BATCH, 1), 0, 6)
    few = planes.pack_mask(jr.uniform(of_cells, states.working_grid.shape) < 0.06)
    beside = words & ~planes.pack_mask(states.working_grid_mask)
    beyond = words | jnp.uint32(1 << 31)  # no canvas here has so many columns
    kinds = [kind == 0, kind == 1, kind == 2, kind == 3]
    chosen = jnp.select(kinds, [beside, jnp.zeros_like(words), few, beyond], words)
    return MaskAction(actions.operation, chosen)


def assert_equal(got: Any, want: Any) -> None:
    mine, theirs = (jax.tree_util.tree_leaves_with_path(tree) for tree in (got, want))
    for (path, a), (_, b) in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=jax.tree_util.keystr(path))
        assert (a.dtype, a.shape) == (b.dtype, b.shape), jax.tree_util.keystr(path)


@pytest.mark.parametrize(
    ("config", "per_program"),
    [
        (config_of("bbox", (30, 30), "task", format="packed"), 4),
        (config_of("mask", (6, 7), "same", "center", format="packed"), 1),
        (config_of("point", (8, 7), None, format="packed"), 4),
        (config_of("bbox", (5, 5), "task", format="packed"), 32),
        (config_of("mask", (4, 4), None, "center", format="packed"), 32),
    ],
    ids=[
        *("bbox 30x30, tasks", "mask 6x7, same pair", "point 8x7, no autoreset"),
        *("a lane for each: bbox 5x5, tasks", "a lane for each: mask 4x4, no autoreset"),
    ],
)
def test_the_kernel_gives_the_same_bits(
    config: JaxArcConfig, per_program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_kernel, "_per_program", lambda canvas, batch: per_program)
    states, bank = started(config)
    plain = jax.jit(jax.vmap(lambda s, b, a: step_environment(s, b, a, config, None), in_axes=(0, None, 0)))
    fused = jax.jit(lambda states, bank, actions: interpreted(states, bank, actions, config))
    ended = 0
    for key in jr.split(jr.key(3), 24):
        actions = random_actions(key, config, BATCH)
        # Some operations that do not exist.
        odd = jnp.where(jr.uniform(key, (BATCH,)) < 0.1, 77, actions.operation)
        actions = with_odd_masks(eqx.tree_at(lambda a: a.operation, actions, odd), states, key)
        want = plain(states, bank, actions)
        assert_equal(fused(states, bank, actions), want)
        states, ended = want[0], ended + int(want[3].sum())
    assert ended > BATCH


@pytest.mark.parametrize("canvas", [(6, 7), (5, 5)])
def test_tests_do_not_begin_again_on_demonstrations(canvas: tuple[int, int]) -> None:
    """Tasks of which some have no test pairs, drawn where an episode for testing ends."""
    config = config_of("bbox", canvas, "task", format="packed")
    config = replace(config, environment=replace(config.environment, max_episode_steps=1))
    tasks = arc_compare.tiny_tasks(canvas, least_tests=0)
    bare = np.array([not raw.test for raw in tasks])
    assert bare.any()
    states, _ = batch_reset(
        jr.split(jr.key(2), BATCH), config, tasks.bank.with_weights(~bare * 1.0), episode_mode=1
    )
    states, bank = join_tasks(states, None), tasks.bank.with_weights(bare + 0.5)
    actions = random_actions(jr.key(3), config, BATCH)
    plain = jax.jit(jax.vmap(lambda s, b, a: step_environment(s, b, a, config, None), in_axes=(0, None, 0)))
    want = plain(states, bank, actions)
    assert_equal(interpreted(states, bank, actions, config), want)
    lost = np.isnan(want[0].similarity)
    np.testing.assert_array_equal(lost, bare[want[0].task_index])
    assert 0 < lost.sum() < BATCH


def test_another_vmap_takes_the_plain_path() -> None:
    """Populations of batches: the kernel does not know a second axis."""
    config = config_of("bbox", (8, 7), "pair", format="packed")
    states, bank = started(config)
    actions = random_actions(jr.key(0), config, BATCH)
    plain = jax.vmap(lambda s, b, a: step_environment(s, b, a, config, None), in_axes=(0, None, 0))
    fused = unless_mapped(lambda *given: interpreted(*given, config), plain)
    two = lambda tree: jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tree)  # noqa: E731
    many = jax.jit(jax.vmap(fused, in_axes=(0, None, 0)))(two(states), bank, two(actions))
    assert_equal(many, two(jax.jit(plain)(states, bank, actions)))


def test_tasks_that_are_gone_become_the_nearest() -> None:
    """A state with a smaller bank: as XLA reads, and not beyond the bank's memory."""
    config = config_of("bbox", (6, 7), None, format="packed")
    states, _ = started(config)
    small = arc_compare.tiny_tasks((6, 7)).bank
    small = eqx.tree_at(
        lambda b: (b.first_pair, b.num_train, b.num_test, b.cumulative),
        small,
        tuple(part[:2] for part in (small.first_pair, small.num_train, small.num_test, jnp.ones(2))),
    )
    actions = random_actions(jr.key(0), config, BATCH)
    want = jax.vmap(lambda s, a: step_environment(s, small, a, config, None))(states, actions)
    got = interpreted(states, small, actions, config)
    assert_equal(got[:4], want[:4])


def test_actions_off_the_canvas_do_nothing() -> None:
    config = config_of("bbox", (8, 7), None, format="packed")
    states, bank = started(config)
    actions = random_actions(jr.key(0), config, BATCH)
    away = eqx.tree_at(lambda a: (a.r1, a.c2), actions, (actions.r1 - 8, actions.c2 + 40))
    new, *_, info = step_batch(states, bank, away, config, interpret=True)
    assert not info["valid_action"].any()
    np.testing.assert_array_equal(new.planes, states.planes)
    np.testing.assert_array_equal(new.step_count, states.step_count + 1)


@pytest.mark.parametrize("canvas", [(30, 30), (8, 2), (12, 29), (32, 32)])
def test_grids_are_shown_as_they_are(canvas: tuple[int, int]) -> None:
    rng, (rows, cols) = np.random.default_rng(1), canvas
    height, width = (jnp.asarray(rng.integers(1, side + 1, 11), jnp.int32) for side in canvas)
    cells = rng.integers(0, 10, (11, rows, cols))
    inside = (np.arange(rows)[:, None] < height[:, None, None]) & (np.arange(cols) < width[:, None, None])
    packed = planes.encode(jnp.where(inside, cells, 0))
    want = planes.show(packed, height, width, cols)
    np.testing.assert_array_equal(show(packed, (height, width), cols, interpret=True), want)
    hot = show_one_hot(packed, (height, width), cols, interpret=True)
    np.testing.assert_array_equal(hot, np.asarray(want)[:, None] == np.arange(10)[:, None, None])
    mask = rng.random(cells.shape) < 0.5
    holes = show(
        planes.encode(jnp.where(mask, cells, 0)), planes.pack_mask(jnp.asarray(mask)), cols, interpret=True
    )
    np.testing.assert_array_equal(holes, np.where(mask, cells, -1))


def test_what_the_kernel_cannot_show_is_known() -> None:
    assert can_show(30, 30)
    assert not can_show(5, 5)  # 25 cells are no whole words
    assert not can_show(4, 31)  # a word's cells would reach beyond 32 bits
    assert not can_show(8, 1)  # or lie in four rows


@pytest.mark.parametrize("form", ["grid", "onehot"])
def test_observations_are_those_of_one_environment(form: str) -> None:
    config = config_of("mask", (8, 8), None, format=form, demonstrations=True)
    states, bank = started(config)
    want = jax.vmap(lambda state: observe(state, bank, config))(states)
    assert_equal(observe_batch(states, bank, config, interpret=True), want)


def test_states_tell_what_was_seen() -> None:
    config = config_of("bbox", (5, 5), "task", format="grid")
    states, bank = started(config)
    states, seen, *_ = batch_step(
        replace_tasks(states, bank), random_actions(jr.key(5), config, BATCH), config
    )
    assert_equal(batch_observe(states, config), seen)
    with pytest.raises(ValueError, match="canvas"):
        batch_observe(states, config_of("bbox", (6, 5), "task"))


def test_tasks_are_drawn_by_the_same_sums() -> None:
    """Also at the very edge between two of them, and past those that are never drawn."""
    bank = arc_compare.tiny_tasks((5, 5)).bank.with_weights([0, 1, 0, 2, 1] + [0] * 19)
    edges = [0, 1 << 8, (1 << 30) - 256, 1 << 30, (3 << 30) - 256, 3 << 30, (1 << 32) - 1]
    bits = jnp.asarray(np.resize(np.array(edges, np.uint32), 32))
    reads = _Bank(
        *(lambda array, index: array[index], bank.first_pair, bank.num_train, bank.num_test),
        *(bank.cumulative, bank.offset, len(bank), bank.inputs.shape[0]),
    )
    drawn = reads.draw_task(bits)
    np.testing.assert_array_equal(drawn, jax.vmap(bank.draw_task)(bits))
    assert drawn[:7].tolist() == [1, 1, 1, 3, 3, 4, 4]


def test_random_words_are_those_of_threefry() -> None:
    key, counter = np.array([123456789, 42], np.uint32), np.array([7, 4294967290], np.uint32)
    want = threefry_2x32(jnp.asarray(key), jnp.asarray(counter))
    for draw in (threefry, threefry_once):
        got = draw(
            (jnp.asarray(key[0]), jnp.asarray(key[1])), (jnp.asarray(counter[0]), jnp.asarray(counter[1]))
        )
        np.testing.assert_array_equal(jnp.stack(got), want)


def test_what_the_kernel_knows() -> None:
    config = config_of("bbox", (5, 5), "task")
    states, _ = started(config)
    actions = random_actions(jr.key(0), config, BATCH)
    assert why_no_batch_kernel(states, actions, config) is None
    control = JaxArcConfig(action=UnifiedActionConfig(control_operations=True))
    assert "control_operations" in str(why_no_batch_kernel(states, actions, control))
    marked = eqx.tree_at(
        lambda s: s.wrong, states, jnp.zeros((BATCH, 2, 4), jnp.uint8), is_leaf=lambda x: x is None
    )
    assert "control_operations" in str(why_no_batch_kernel(marked, actions, config))  # of a reset with them


@pytest.mark.parametrize("form", ["point", "bbox", "mask"])
def test_the_kernel_can_be_built_for_a_gpu(form: str) -> None:
    """As far as this machine can tell: to the code that a GPU's compiler takes."""
    if jax.version.__version_info__ >= (0, 11):
        pytest.skip("jax 0.11 lowers Triton kernels only where there is a GPU")
    config = config_of(form, (30, 30), "task", format="grid")
    states, bank = started(config)
    actions = random_actions(jr.key(0), config, BATCH)
    step = jax.jit(lambda states, bank, actions: step_batch(states, bank, actions, config))
    text = step.trace(states, bank, actions).lower(lowering_platforms=("cuda",)).as_text()
    assert "arc_step" in text
    assert "arc_show" in text
    assert "shfl.sync" in text

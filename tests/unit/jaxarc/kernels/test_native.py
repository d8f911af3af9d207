"""The CPU kernels beside XLA's code: the same bits; and where there is no compiler, XLA's code alone."""

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

import arc_compare
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxarc import dispatch
from jaxarc.dispatch import kernels_on, parts_here
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    ObservationConfig,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
)
from jaxarc.envs.episodes import random_actions
from jaxarc.envs.operations import OPERATION_TYPES, Operation, operation_type
from jaxarc.envs.parts import DEFINITION
from jaxarc.envs.state import join_tasks, replace_tasks
from jaxarc.kernels import native
from jaxarc.tasks import planes
from jaxworlds.kernels import native as core

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"
)


def config_of(
    form: str = "bbox",
    canvas: tuple[int, int] = (5, 7),
    how: str | None = "task",
    rotation: str = "corner",
) -> JaxArcConfig:
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=9, autoreset=how),  # pyright: ignore[reportArgumentType]
        dataset=UnifiedDatasetConfig(*canvas),
        action=UnifiedActionConfig(selection_format=form, history=False, rotation=rotation),  # pyright: ignore[reportArgumentType]
        observation=ObservationConfig(format="packed"),
    )


def played(config: JaxArcConfig, batch: int = 96, steps: int = 24) -> tuple[Any, str]:
    """What random play comes to, every result of every step, and the program; traced anew at each call."""
    tasks = arc_compare.tiny_tasks(config.canvas)
    states, _ = batch_reset(jr.split(jr.key(3), batch), config, tasks)
    bank = states.task_data

    def step(states: Any, key: Any) -> tuple[Any, Any]:
        actions = random_actions(key, config, batch)
        if isinstance(actions, MaskAction):  # some masks lie beside the grid, some hold nothing
            beside, none = jr.uniform(key, (2, batch, 1)) < jnp.array([0.4, 0.1])[:, None, None]
            words = actions.selection & ~jnp.where(beside, planes.pack_mask(states.working_grid_mask), 0)
            actions = MaskAction(actions.operation, jnp.where(none, jnp.uint32(0), words))
        new, *rest = inspect.unwrap(dispatch._batch_step)(states, bank, actions, config, None, kernels_on())
        return new, (new, *rest)

    run = jax.jit(lambda states: jax.lax.scan(step, states, jr.split(jr.key(4), steps))[1])
    lowered = run.lower(join_tasks(states, None))
    return jax.device_get(lowered.compile()(join_tasks(states, None))), lowered.as_text()


def assert_equal(got: Any, want: Any) -> None:
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@needs_compiler
@pytest.mark.parametrize(
    "config",
    [config_of("mask", (30, 30), "pair"), config_of("bbox", (5, 7), "task", "center")],
    ids=["30x30", "5x7"],
)
def test_kernels_and_xla_give_the_same_bits(config: JaxArcConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    got, program = played(config)
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    want, twin = played(config)
    assert "jaxarc_work" in program
    assert "jaxarc_work" not in twin
    assert_equal(got, want)
    assert got[3].any()  # episodes ended, so that some began again


@needs_compiler
def test_a_large_batch_is_shared_among_threads() -> None:
    """Environments must not depend on how many there are: each of 1,500 copies of 4 does the same."""
    config, tasks = config_of(), arc_compare.tiny_tasks((5, 7))
    few, _ = batch_reset(jr.split(jr.key(0), 4), config, tasks)
    bank, few = few.task_data, join_tasks(few, None)
    many = jax.tree.map(lambda leaf: jnp.tile(leaf, (1500,) + (1,) * (leaf.ndim - 1)), few)
    step = jax.jit(
        lambda states, actions: dispatch._batch_step(states, bank, actions, config, None, kernels_on())[0]
    )
    for key in jr.split(jr.key(1), 12):
        actions = random_actions(key, config, 4)
        few, many = step(few, actions), step(many, jax.tree.map(lambda leaf: jnp.tile(leaf, 1500), actions))
        assert_equal(many, jax.tree.map(lambda leaf: jnp.tile(leaf, (1500,) + (1,) * (leaf.ndim - 1)), few))


@needs_compiler
@pytest.mark.parametrize("own", [False, True], ids=["shared tasks", "tasks of their own"])
def test_vmap_over_batches(own: bool) -> None:
    """Two batches of four under one more `vmap`, with one bank for all or one for each, are two batches of four."""
    config, bank = config_of(), arc_compare.tiny_tasks((5, 7)).bank
    banks = [bank, bank.with_weights(np.arange(len(bank))) if own else bank]
    groups = [join_tasks(batch_reset(jr.split(jr.key(i), 4), config, bank)[0], None) for i in range(2)]
    step = jax.jit(
        lambda states, bank, actions: dispatch._batch_step(states, bank, actions, config, None, kernels_on())[
            0
        ]
    )
    both = jax.jit(jax.vmap(step, in_axes=(0, 0 if own else None, 0)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *banks) if own else bank
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups)
    for key in jr.split(jr.key(9), 12):
        actions = [random_actions(each, config, 4) for each in jr.split(key)]
        groups = [step(*given) for given in zip(groups, banks, actions, strict=True)]
        together = both(together, stacked, jax.tree.map(lambda *leaves: jnp.stack(leaves), *actions))
        assert_equal(together, jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups))


@needs_compiler
def test_a_step_has_no_derivatives() -> None:
    """Weights of tasks may be learned by a loss that holds steps: what the steps do does not change with them."""
    config, bank = config_of(), arc_compare.tiny_tasks((5, 7)).bank
    states, _ = batch_reset(jr.split(jr.key(0), 4), config, bank)
    actions = random_actions(jr.key(1), config, 4)

    def loss(weights: Any) -> Any:
        drawn = replace_tasks(states, bank.with_weights(weights))
        _, _, reward, *_ = dispatch.batch_step(drawn, actions, config)
        return (reward + 1).sum() * weights.sum()

    weights = jnp.ones(len(bank))
    assert_equal(jax.grad(loss)(weights), jnp.full(len(bank), loss(weights) / len(bank)))


@needs_compiler
def test_no_environment_is_no_trouble() -> None:
    config, bank = config_of(), arc_compare.tiny_tasks((5, 7)).bank
    states, _ = batch_reset(jr.split(jr.key(0), 0), config, bank)
    new, _, reward, *_ = dispatch.batch_step(states, random_actions(jr.key(1), config, 0), config)
    assert reward.shape == (0,)
    assert new.planes.shape == (0, 4, 5)


@needs_compiler
@pytest.mark.parametrize("how", ["same", None])
def test_one_environment_alone(how: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    config, bank = config_of("point", (6, 5), how), arc_compare.tiny_tasks((6, 5)).bank
    state, _ = dispatch.arc_reset(jr.key(2), config, bank)
    state = join_tasks(state, None)
    steps = []
    for switch in ("auto", "off"):
        monkeypatch.setenv("JAXARC_KERNELS", switch)
        steps.append(
            jax.jit(lambda *given: inspect.unwrap(dispatch._step)(*given, config, None, kernels_on()))
        )
    for key in jr.split(jr.key(3), 24):
        action = random_actions(key, config)
        monkeypatch.setenv("JAXARC_KERNELS", "auto")
        got = steps[0](state, bank, action)
        monkeypatch.setenv("JAXARC_KERNELS", "off")
        want = steps[1](state, bank, action)
        assert_equal(got, want)
        state = want[0]


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false"], ids=["missing", "failing"])
def test_without_a_compiler_xla_does_it(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAXWORLDS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(core, "_missing", {})  # or later tests would be warned of kernels that are there
    core._register.cache_clear()
    try:
        assert native.names() is None
        states, _ = batch_reset(jr.split(jr.key(0), 2), config_of(), arc_compare.tiny_tasks((5, 7)))
        step = jax.jit(
            lambda *given: inspect.unwrap(dispatch._batch_step)(*given, config_of(), None, kernels_on())
        )
        actions = random_actions(jr.key(1), config_of(), 2)
        program = step.lower(join_tasks(states, None), states.task_data, actions).as_text()
    finally:
        core._register.cache_clear()
    assert "jaxarc_work" not in program
    assert "while" in program  # XLA's flood
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "jaxarc" in path.name]


@needs_compiler
def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is found again without a compiler, and made again where it was damaged."""
    monkeypatch.setenv("JAXWORLDS_CACHE_DIR", str(tmp_path))
    core.load(native.SOURCE, "jaxarc", "key", native.MACROS)
    (path,) = tmp_path.rglob("*.so")
    good = path.read_bytes()
    with monkeypatch.context() as without:
        without.setenv("CXX", "/nowhere/c++")
        core.load(native.SOURCE, "jaxarc", "key", native.MACROS)
    damaged = path.with_name("jaxarc-other.so")  # under the same name the loaded one would be found again
    damaged.write_bytes(good[:1000])
    core.load(native.SOURCE, "jaxarc", "other", native.MACROS)
    assert damaged.stat().st_size == len(good)
    assert {found.name for found in path.parent.iterdir()} == {path.name, damaged.name}


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    assert not kernels_on()
    assert parts_here() is DEFINITION
    monkeypatch.setenv("JAXARC_KERNELS", "yes")
    with pytest.raises(ValueError, match="'auto' or 'off'; got 'yes'"):
        kernels_on()


def test_the_compiler_is_told_the_numbers_of_the_operations() -> None:
    used = set(re.findall(r"\bOP_(\w+)", native.SOURCE.read_text()))
    assert {"FLOOD_0", "ROTATE_CLOCKWISE", "PASTE", "RESIZE"} <= used <= set(Operation.__members__)
    assert {f"OP_{name}={Operation[name].value}" for name in used} <= set(native.MACROS)
    others = ("OP_PASTE=30", *native.MACROS)
    assert core.library_key(native.SOURCE, others) != core.library_key(native.SOURCE, native.MACROS)


def test_operations_have_names_and_kinds() -> None:
    assert [operation.title for operation in Operation][24:28] == [
        *("rotate clockwise", "rotate counter-clockwise", "flip left-right", "flip up-down")
    ]
    assert (
        *("fill", "flood", "move", "rotate", "flip", "clipboard", "grid", "submit", "control", "extra"),
    ) == OPERATION_TYPES
    assert [int(operation_type(jnp.int32(n))) for n in (-1, 0, 19, 23, 25, 27, 30, 33, 34, 41, 42)] == [
        *(-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, -1)
    ]
    assert PointAction(Operation.SUBMIT, 0, 0).operation == 34

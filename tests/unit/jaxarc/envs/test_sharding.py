"""A batch of ARC environments spread over devices: the same steps, one program, and kernels on each device's own part."""

import inspect
import re
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxarc import dispatch
from jaxarc.dispatch import kernels_on
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
    batch_step,
    state_axes,
)
from jaxarc.envs.episodes import random_actions
from jaxarc.envs.state import join_tasks
from jaxarc.kernels.batch_observe import observe_batch
from jaxarc.kernels.batch_step import step_batch, why_no_batch_kernel
from jaxarc.tasks.bank import as_bank
from jaxarc.testing import create_mock_task
from jaxworlds import no_recompile, run, shard_worlds, spread_over, world_mesh

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("quick_compile")]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"
)
COLLECTIVE = re.compile(r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(-start)?\(")
several = pytest.mark.skipif(jax.device_count() == 1, reason="one device takes the call as it is")
EACH = 2  # environments of a device


def config_of(
    form: str = "bbox", how: str | None = "pair", seen: str = "packed", side: int = 6
) -> JaxArcConfig:
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=3, autoreset=how),  # pyright: ignore[reportArgumentType]
        dataset=UnifiedDatasetConfig(side, side),
        action=UnifiedActionConfig(selection_format=form, history=False),  # pyright: ignore[reportArgumentType]
        observation=ObservationConfig(format=seen),  # pyright: ignore[reportArgumentType]
    )


def started(config: JaxArcConfig) -> tuple[Any, Any, Any]:
    """States, tasks and actions of a batch, on one device."""
    batch, side = EACH * jax.device_count(), config.canvas[0]
    states, _ = batch_reset(jr.split(jr.key(0), batch), config, create_mock_task(side, canvas=side))
    return join_tasks(states, None), as_bank(states.task_data), random_actions(jr.key(1), config, batch)


def steps(config: JaxArcConfig, count: int = 5) -> Any:
    """So many steps with the same actions, all that comes out of each; traced anew at each call."""

    def step(states: Any, bank: Any, actions: Any) -> Any:
        return inspect.unwrap(dispatch._batch_step)(states, bank, actions, config, None, kernels_on())

    def many(states: Any, bank: Any, actions: Any) -> Any:
        def body(states: Any, _: Any) -> Any:
            new, *rest = step(states, bank, actions)
            return new, (new, *rest)

        return jax.lax.scan(body, states, None, length=count)[1]

    return jax.jit(many)


def assert_equal(got: Any, want: Any) -> None:
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_sharded_batch_compiles_once_and_steps_alike(devices: list[jax.Device]) -> None:
    config = config_of()
    bare, bank, actions = started(config)
    states = join_tasks(bare, bank)
    alone = batch_step(batch_step(states, actions, config)[0], actions, config)[0]
    spread = shard_worlds(states, world_mesh(), state_axes(states))
    once, *_ = batch_step(spread, actions, config)
    with no_recompile():
        twice, *_ = batch_step(once, actions, config)
    np.testing.assert_array_equal(twice.planes, alone.planes)


@needs_compiler
@several
@pytest.mark.parametrize(
    ("form", "how", "known"), [("bbox", "task", False), ("mask", None, True)], ids=["XLA asks", "known mesh"]
)
def test_kernels_work_on_each_devices_part(form: str, how: str | None, known: bool) -> None:
    """As on one device; and no device asks another for anything."""
    config, mesh = config_of(form, how), world_mesh()
    given = started(config)
    spread = shard_worlds(given, mesh, (0, None, 0))
    with spread_over(mesh if known else None):
        program = steps(config).lower(*spread).compile()
    text = program.as_text()
    calls = [line for line in text.splitlines() if "custom-call" in line and "jaxarc_" in line]
    names = {name for line in calls for name in re.findall(r"jaxarc_[a-z]+", line)}
    assert names == {"jaxarc_work", "jaxarc_compare"} | ({"jaxarc_restart"} if how else set())
    assert all(f"s32[{EACH}]" in line for line in calls)
    assert not COLLECTIVE.search(text)
    got, want = program(*spread), steps(config)(*given)
    assert_equal(got, want)
    assert want[3].any()  # episodes ended


@needs_compiler
@several
@pytest.mark.parametrize(
    ("form", "how", "seen", "known"),
    [
        (form, how, ("packed", "grid", "onehot")[(i + j) % 3], (i + j) % 2 == 0)
        for i, form in enumerate(("point", "bbox", "mask"))
        for j, how in enumerate(("task", "pair", "same", None))
    ],
)
def test_spread_kernels_give_the_bits_of_xla_on_one_device(
    form: str, how: str | None, seen: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, mesh = config_of(form, how, seen), world_mesh()
    given = started(config)
    with spread_over(mesh if known else None):
        got = steps(config)(*shard_worlds(given, mesh, (0, None, 0)))
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    assert_equal(got, steps(config)(*given))


@needs_compiler
@several
def test_states_on_one_device_of_several_and_whole_on_all(devices: list[jax.Device]) -> None:
    config = config_of()
    given = started(config)
    everywhere = NamedSharding(world_mesh(), PartitionSpec())
    first, *others = (
        steps(config)(*jax.device_put(given, at)) for at in (devices[0], devices[-1], everywhere)
    )
    for other in others:
        assert_equal(other, first)


@needs_compiler
@several
def test_a_run_over_a_mesh_is_that_of_one_device() -> None:
    config = config_of("point", "task")
    states, bank, actions = started(config)

    def step(states: Any, t: Any, shared: Any) -> Any:
        new, *_ = batch_step(join_tasks(states, shared[0]), shared[1], config)
        return join_tasks(new, None), None

    alone, spread = (
        run(step, states, 7, shared=(bank, actions), mesh=mesh, progress=False).carry
        for mesh in (None, world_mesh())
    )
    assert_equal(spread, alone)


@needs_compiler
@several
def test_groups_of_batches_split_along_their_second_axis() -> None:
    config, mesh = config_of("point", "task"), world_mesh()
    states, bank, actions = started(config)
    one = lambda *given: inspect.unwrap(dispatch._batch_step)(*given, config, None)[0]  # noqa: E731
    both = jax.jit(jax.vmap(one, in_axes=(0, None, 0)))
    groups = jax.tree.map(lambda leaf: jnp.stack([leaf, jnp.roll(leaf, 1, 0)]), (states, actions))
    want = both(groups[0], bank, groups[1])
    groups = jax.device_put(groups, NamedSharding(mesh, PartitionSpec(None, "worlds")))
    spread = groups[0], shard_worlds(bank, mesh, None), groups[1]
    program = both.lower(*spread).compile()
    assert not COLLECTIVE.search(program.as_text())
    assert_equal(program(*spread), want)


@needs_compiler
@several
def test_inside_a_shard_map_states_are_carried_through_a_loop() -> None:
    config, each = config_of("point", "task"), PartitionSpec("worlds")
    given = started(config)
    part = jax.shard_map(
        lambda *given: jax.tree.map(lambda leaf: leaf[-1], steps(config)(*given)[0]),
        mesh=world_mesh(),
        in_specs=(each, PartitionSpec(), each),
        out_specs=each,
    )
    want = jax.tree.map(lambda leaf: leaf[-1], steps(config)(*given)[0])
    assert_equal(jax.jit(part)(*given), want)


@several
@pytest.mark.parametrize("known", [True, False], ids=["known mesh", "XLA asks"])
def test_the_gpus_kernel_works_on_each_devices_part(known: bool) -> None:
    """In Pallas' interpreter, which leaves no call in the program: what comes out, and that nothing travels."""
    config, mesh = config_of("bbox", "task", side=5), world_mesh()
    given = started(config)
    spread = shard_worlds(given, mesh, (0, None, 0))
    step = jax.jit(lambda *given: step_batch(*given, config, interpret=True))
    with spread_over(mesh if known else None):
        program = step.lower(*spread).compile()
    assert not COLLECTIVE.search(program.as_text())
    assert_equal(program(*spread), dispatch._batch_step(*given, config, on_error=None))


@several
@pytest.mark.parametrize("seen", ["grid", "onehot"])
def test_grids_are_shown_where_they_are(seen: str) -> None:
    config, mesh = config_of(seen=seen), world_mesh()
    states, bank, _ = started(config)
    spread = shard_worlds((states, bank), mesh, (0, None))
    look = jax.jit(lambda states, bank: observe_batch(states, bank, config, interpret=True))
    program = look.lower(*spread).compile()
    assert not COLLECTIVE.search(program.as_text())
    assert_equal(program(*spread), dispatch.batch_observe(join_tasks(states, bank), config))


@several
def test_a_gpus_program_holds_calls_for_one_devices_part() -> None:
    """As far as this machine can tell: to the code that a GPU's compiler takes."""
    if jax.version.__version_info__ >= (0, 11):
        pytest.skip("jax 0.11 lowers Triton kernels only where there is a GPU")
    config, mesh = config_of("bbox", "task", "grid"), world_mesh()
    spread = shard_worlds(started(config), mesh, (0, None, 0))
    with spread_over(mesh):
        traced = jax.jit(lambda *given: step_batch(*given, config)).trace(*spread)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in text.splitlines() if "gpu.triton" in line]
    assert {name for line in calls for name in re.findall(r"arc_(?:step|show)", line)} == {
        "arc_step",
        "arc_show",
    }
    assert all(f"(tensor<{EACH * 4 * 6}xui32>" in line for line in calls)  # the planes, which come first


def test_more_than_a_kernel_counts_goes_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is too large for one call, but not for all devices, where one device has all of it."""
    config = config_of(how=None, seen="grid")
    given = started(config)
    counts = []
    for limit in (2**31, given[0].planes.size):
        for module in ("step", "show", "batch_step"):
            monkeypatch.setattr(f"jaxarc.kernels.{module}.COUNTED", limit)
        traced = jax.make_jaxpr(lambda *given: step_batch(*given, config, interpret=True)[:2])(*given)
        text = str(traced)
        counts.append([text.count(f"name={name}") for name in ("arc_step", "arc_show")])
    assert counts == [[1, 3], [2, 6]]  # grid, input and clipboard are shown
    assert (why_no_batch_kernel(given[0], given[2], config) is None) == (jax.device_count() > 1)

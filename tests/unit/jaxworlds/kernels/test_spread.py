"""Kernels on several devices: each has its own part of a batch, and nothing travels between them."""

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxworlds import shard_worlds, spread_over, world_mesh
from jaxworlds.batching import spreading_mesh
from jaxworlds.kernels import in_halves, result, split_kernel

pytestmark = pytest.mark.devices

COLLECTIVE = re.compile(r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(-start)?\(")
TABLE = np.arange(5, dtype=np.float32)


def numbered(items: Any, table: Any) -> dict[str, Any]:
    """What a kernel sees: its items, their places among those it was given, and all of the table."""
    count = items["x"].shape[0]
    place = jnp.arange(items["x"].size, dtype=jnp.int32).reshape(items["x"].shape)
    return {
        "place": place,
        "count": jnp.full_like(place, count),
        "y": items["x"] + items["z"][..., 0] + table.sum(),
    }


def items_of(*shape: int) -> dict[str, Any]:
    x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
    return {"x": x, "z": jnp.stack([x, -x], -1)}


def compiled(*given: Any, axes: int = 1) -> Any:
    """`split_kernel` as a program of its own, traced anew."""
    return jax.jit(lambda items, table: split_kernel(numbered, items, table, axes)).lower(*given).compile()


@pytest.fixture(params=[True, False], ids=["known mesh", "XLA asks"])
def mesh(request: pytest.FixtureRequest, devices: list[jax.Device]) -> Iterator[Any]:
    """All devices, which kernels are told of or not."""
    mesh = world_mesh()
    with spread_over(mesh if request.param else None):
        yield mesh


def test_each_device_takes_its_part(mesh: Any) -> None:
    batch = 3 * mesh.size
    given = shard_worlds((items_of(batch), TABLE), mesh, (0, None))
    program = compiled(*given)
    made = program(*given)
    assert not COLLECTIVE.search(program.as_text())
    np.testing.assert_array_equal(made["y"], 2 * np.arange(batch) + 10)
    np.testing.assert_array_equal(made["place"], np.tile(np.arange(3), mesh.size))
    assert all(leaf.sharding.is_equivalent_to(given[0]["x"].sharding, 1) for leaf in made.values())


def test_what_is_whole_or_on_one_device_stays_there(devices: list[jax.Device]) -> None:
    everywhere = NamedSharding(world_mesh(), PartitionSpec())
    for where in (everywhere, devices[-1], None):
        given = (items_of(7), TABLE) if where is None else jax.device_put((items_of(7), TABLE), where)
        program = compiled(*given)
        assert not COLLECTIVE.search(program.as_text())
        np.testing.assert_array_equal(program(*given)["place"], np.arange(7))


def test_a_batch_that_the_mesh_cannot_share_is_whole() -> None:
    with spread_over(world_mesh()):
        made = compiled(items_of(13), TABLE)(items_of(13), TABLE)
    np.testing.assert_array_equal(made["place"], np.arange(13))


@pytest.mark.parametrize("split", [0, 1])
def test_any_axis_of_the_batch_may_be_split(split: int, devices: list[jax.Device]) -> None:
    shape = [2, 2]
    shape[split] *= len(devices)
    mesh = world_mesh()
    place = NamedSharding(mesh, PartitionSpec(*[None] * split, "worlds"))
    given = jax.device_put(items_of(*shape), place), shard_worlds(TABLE, mesh, None)
    program = compiled(*given, axes=2)
    assert not COLLECTIVE.search(program.as_text())
    made = program(*given)
    np.testing.assert_array_equal(made["y"], 2 * np.arange(np.prod(shape)).reshape(shape) + 10)
    assert set(np.unique(made["count"])) == {2}
    assert set(np.unique(made["place"])) == set(range(4))


def test_one_array_that_is_split_is_enough(devices: list[jax.Device]) -> None:
    mesh = world_mesh()
    items = items_of(2 * len(devices))
    items = {**items, "z": shard_worlds(items["z"], mesh)}
    program = compiled(items, TABLE)
    assert not COLLECTIVE.search(program.as_text())
    np.testing.assert_array_equal(program(items, TABLE)["place"], np.tile(np.arange(2), len(devices)))


def test_the_older_partitioner_knows_the_rule_too(devices: list[jax.Device]) -> None:
    given = shard_worlds((items_of(2 * len(devices)), TABLE), world_mesh(), (0, None))
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        made = compiled(*given)(*given)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    np.testing.assert_array_equal(made["place"], np.tile(np.arange(2), len(devices)))


def test_with_a_known_mesh_the_program_names_no_address(mesh: Any) -> None:
    """What it says is the same in every process, so that the cache on disk finds it."""
    given = shard_worlds((items_of(2 * mesh.size), TABLE), mesh, (0, None))
    texts = {
        jax.jit(lambda items, table: split_kernel(numbered, items, table)).lower(*given).as_text()
        for _ in range(2)
    }
    asks = ["CustomSPMDPartitioning" in text for text in texts]
    assert any(asks) == (spreading_mesh() is None and mesh.size > 1)
    assert len(texts) == 1 + any(asks)


def test_the_context_is_part_of_the_trace_key(devices: list[jax.Device]) -> None:
    traced = []

    @jax.jit
    def step(x: Any) -> Any:
        traced.append(spreading_mesh())
        return x + 1

    for mesh in (None, world_mesh(), world_mesh(), None):
        with spread_over(mesh):
            step(jnp.zeros(3))
    assert traced == [None, world_mesh()]


def test_inside_a_shard_map_the_batch_is_split_already(devices: list[jax.Device]) -> None:
    """Results differ between devices where arguments do: a loop may carry them."""
    mesh, each = world_mesh(), PartitionSpec("worlds")

    def kernel(x: Any, table: Any) -> Any:
        assert result((3,), jnp.int8, x).manual_axis_type == jax.typeof(x).manual_axis_type
        return jax.typeof(table).manual_axis_type.varying, x + table.sum()

    def part(x: Any, table: Any) -> Any:
        (varying, y) = split_kernel(kernel, x, table)
        assert varying == frozenset({"worlds"})
        return jax.lax.scan(lambda x, _: (split_kernel(kernel, x, table)[1], None), y, None, length=2)[0]

    whole = jax.shard_map(part, mesh=mesh, in_specs=(each, PartitionSpec()), out_specs=each)
    x = jnp.arange(2.0 * len(devices))
    np.testing.assert_array_equal(jax.jit(whole)(x, TABLE), x + 30)


def test_halves_are_put_together_again() -> None:
    made = in_halves(numbered, items_of(5), TABLE)
    np.testing.assert_array_equal(made["place"], [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(made["y"], 2 * np.arange(5) + 10)

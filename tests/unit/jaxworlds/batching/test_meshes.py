"""What every device does with its own part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxworlds.batching import per_device, shard_worlds, world_mesh

pytestmark = pytest.mark.devices


def test_every_device_takes_its_part_and_empty_arrays_are_made_there(devices: list[jax.Device]) -> None:
    """Arrays without elements must not go into a `shard_map`: XLA of jax 0.11 ends the process."""
    mesh, count = world_mesh(), 2 * len(devices)
    seen = []

    def double(given: dict[str, jax.Array], factor: jax.Array, names: tuple[jax.Array, ...]) -> jax.Array:
        seen.append({name: leaf.shape for name, leaf in given.items()} | {"shared": names[0].shape})
        rest = given["none"].sum() + names[0].sum()
        return given["some"] * factor + rest + jax.lax.axis_index(mesh.axis_names)

    worlds = shard_worlds(
        {"some": jnp.arange(3.0 * count).reshape(count, 3), "none": jnp.zeros((count, 0))}, mesh
    )
    split = P(mesh.axis_names)
    spread = jax.jit(per_device(double, mesh, (split, P(), P()), split))
    made = spread(worlds, jnp.float32(2), (jnp.zeros((5, 0)),))
    assert seen[0] == {"some": (2, 3), "none": (2, 0), "shared": (5, 0)}
    each = np.repeat(np.arange(len(devices)), 2)[:, None]
    np.testing.assert_array_equal(made, 2 * np.arange(3.0 * count).reshape(count, 3) + each)
    assert len(made.sharding.device_set) == len(devices)

"""Kernels on several devices: each device works on its part of a batch; shared arrays are replicated.

XLA splits its own programs over devices, but not a kernel that it only calls: it would bring all arguments to every device.
`split_kernel` tells it what may be split.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ..batching import per_device, spreading_mesh

Kernel = Callable[[Any, Any], Any]
"""`kernel(split, whole)`: arrays that count the batch along their first axes, and what the batch shares."""


def split_kernel(kernel: Kernel, split: PyTree, whole: PyTree, axes: int = 1) -> Any:
    """Call `kernel(split, whole)` with each device working on its own part of the batch.

    All arrays of `split` and all results count the batch along their first `axes` axes; `whole` is what the batch shares. The
    kernel must take any number of items and work on each alone, and hold no arrays beside its arguments. With one device
    this is the call and nothing else.
    """
    if AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types:  # inside somebody's `shard_map`
        return kernel(*_alike((split, whole)))
    if jax.device_count() == 1:
        return kernel(split, whole)
    mesh = spreading_mesh()
    if mesh is not None and jax.tree.leaves(split)[0].shape[0] % mesh.size == 0:
        part, every = PartitionSpec(mesh.axis_names), PartitionSpec()
        return per_device(kernel, mesh, (part, every), part)(split, whole)
    return _partition(kernel, split, whole, axes)


def result(shape: tuple[int, ...], dtype: Any, like: Any) -> jax.ShapeDtypeStruct:
    """A kernel's result as its call describes it; inside a `shard_map` it differs between devices as `like` does."""
    kind = jax.typeof(like)
    differs = kind.manual_axis_type
    where = NamedSharding(kind.sharding.mesh, PartitionSpec()) if differs.varying else None
    return jax.ShapeDtypeStruct(shape, dtype, sharding=where, manual_axis_type=differs)


def in_halves(kernel: Kernel, split: PyTree, whole: PyTree) -> Any:
    """`kernel(split, whole)` as two calls, each for half of the batch, if the batch is too large for one."""
    half = jax.tree.leaves(split)[0].shape[0] // 2
    parts = [
        kernel(jax.tree.map(operator.itemgetter(at), split), whole) for at in (slice(half), slice(half, None))
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _alike(tree: PyTree) -> PyTree:
    """Mark all arrays as varying between the devices of a `shard_map` if any of them does, as calls require."""
    varies = lambda leaf: jax.typeof(leaf).manual_axis_type.varying  # noqa: E731
    axes = frozenset().union(*map(varies, jax.tree.leaves(tree)))

    def cast(leaf: Any) -> Any:
        missing = tuple(sorted(axes - varies(leaf)))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(cast, tree)


def _partition(kernel: Kernel, split: PyTree, whole: PyTree, axes: int) -> Any:
    """The call as a custom partitioning, which XLA asks once it knows where the arrays are."""
    from jax.experimental.custom_partitioning import custom_partitioning

    parts, tree = jax.tree.flatten((split, whole))
    count = len(jax.tree.leaves(split))

    def flat(*leaves: Any) -> Any:
        return kernel(*tree.unflatten(leaves))

    def results(mesh: Mesh, given: tuple[Any, ...], made: Any) -> Any:
        # XLA splits the batch as it splits the first array that it splits at all.
        specs = [at.sharding.spec[:axes] for at in given[:count] if isinstance(at.sharding, NamedSharding)]
        place = NamedSharding(mesh, PartitionSpec(*next(filter(any, specs), ())))
        return jax.tree.map(lambda _: place, made)

    def partition(mesh: Mesh, given: tuple[Any, ...], made: Any) -> Any:
        found = results(mesh, given, made)
        place, everywhere = jax.tree.leaves(found)[0], NamedSharding(mesh, PartitionSpec())
        return mesh, flat, found, tuple(place if at < count else everywhere for at in range(len(given)))

    def rule(mesh: Mesh, given: list[Any], made: list[Any]) -> Any:
        return _rule([len(kind.shape) for kind in given], [len(kind.shape) for kind in made], count, axes)

    call = custom_partitioning(flat)
    # The last two say the same: to the partitioner that JAX had before, and to Shardy.
    call.def_partition(partition, infer_sharding_from_operands=results, sharding_rule=rule)
    return call(*parts)


def _rule(given: list[int], made: list[int], count: int, axes: int) -> tuple[str, dict[str, Any]]:
    """Sharding rule for Shardy: batch axes may be split, and no others."""
    batch = [f"batch{axis}" for axis in range(axes)]
    fixed: list[str] = []

    def axis_name(number: int, ndim: int) -> str:
        ahead = [] if count <= number < len(given) else batch
        own = [f"x{number}_{axis}" for axis in range(len(ahead), ndim)]
        fixed.extend(own)
        return " ".join([*ahead, *own])

    words = [axis_name(number, ndim) for number, ndim in enumerate([*given, *made])]
    text = f"{', '.join(words[: len(given)])} -> {', '.join(words[len(given) :])}"
    return text, {"need_replication_factors": tuple(fixed)}

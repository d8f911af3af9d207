"""Kernels on several devices: each device works on its own part of a batch, and holds whole what the batch shares.

XLA splits its own programs over devices, but not a kernel that it only calls. `on_each_device` tells it how.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

# Part of JAX's trace key. Made at import, because making it later would retrace everything compiled by then.
_known_mesh = jax.make_user_context(default_value=None)


def worlds_over(mesh: Mesh | None) -> Any:
    """Context for tracing what is split over all devices of `mesh`; None stands for not known.

    Where the mesh is known a kernel's program is the same in every process, so that the cache on disk finds it again.
    """
    return _known_mesh(mesh)


def on_each_device(kernel: Callable[[Any, Any], Any], split: PyTree, whole: PyTree) -> Any:
    """`kernel(split, whole)`, where each device works on its own part of the batch.

    All arrays of `split` and all results count the batch along their first axis; `whole` is what the batch shares. The kernel
    must work for any number of items, each on its own, and hold no arrays beside its arguments. With one device this is the
    call and nothing else.
    """
    if jax.device_count() == 1:
        return kernel(split, whole)
    if (
        AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types
    ):  # somebody's `shard_map` has split it already
        return kernel(split, whole)
    mesh = _known_mesh.value
    if mesh is not None and jax.tree.leaves(split)[0].shape[0] % mesh.size == 0:
        part = PartitionSpec(mesh.axis_names)
        each = jax.shard_map(
            kernel, mesh=mesh, in_specs=(part, PartitionSpec()), out_specs=part, check_vma=False
        )
        return each(split, whole)
    return _partitioned(kernel, split, whole)


def in_halves(kernel: Callable[[Any, Any], Any], split: PyTree, whole: PyTree) -> Any:
    """`kernel(split, whole)` as two calls, each for half of the batch: for more than a kernel can count."""
    half = jax.tree.leaves(split)[0].shape[0] // 2
    parts = [
        kernel(jax.tree.map(operator.itemgetter(at), split), whole) for at in (slice(half), slice(half, None))
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _partitioned(kernel: Callable[[Any, Any], Any], split: PyTree, whole: PyTree) -> Any:
    """The call as something that XLA asks about when it knows where the arrays are."""
    from jax.experimental.custom_partitioning import custom_partitioning

    parts, tree = jax.tree.flatten((split, whole))
    count = len(jax.tree.leaves(split))

    def flat(*leaves: Any) -> Any:
        return kernel(*tree.unflatten(leaves))

    def partition(mesh: Mesh, given: tuple[Any, ...], made: Any) -> Any:
        place = NamedSharding(mesh, PartitionSpec(_batch_axes(given[:count])))
        everywhere = NamedSharding(mesh, PartitionSpec())
        taken = tuple(place if at < count else everywhere for at in range(len(given)))
        return mesh, flat, jax.tree.map(lambda _: place, made), taken

    def rule(mesh: Mesh, given: list[Any], made: list[Any]) -> Any:
        return _rule([len(kind.shape) for kind in given], [len(kind.shape) for kind in made], count)

    call = custom_partitioning(flat)
    call.def_partition(partition, sharding_rule=rule)
    return call(*parts)


def _batch_axes(given: tuple[Any, ...]) -> Any:
    """The axes of the mesh over which XLA would split the batch; None where every device has all of it."""
    specs = [leaf.sharding.spec for leaf in given if isinstance(leaf.sharding, NamedSharding)]
    return next((spec[0] for spec in specs if len(spec) and spec[0] is not None), None)


def _rule(given: list[int], made: list[int], count: int) -> tuple[str, dict[str, Any]]:
    """What Shardy has to know, for arrays of so many axes: the batch may be split, and nothing else."""
    names: list[str] = []

    def axes(number: int, ndim: int) -> str:
        own = [f"x{number}_{axis}" for axis in range(ndim)]
        if not count <= number < len(given):
            own[0] = "batch"
        names.extend(own)
        return " ".join(own)

    words = [axes(number, ndim) for number, ndim in enumerate([*given, *made])]
    text = f"{', '.join(words[: len(given)])} -> {', '.join(words[len(given) :])}"
    return text, {"need_replication_factors": tuple(name for name in names if name != "batch")}

"""Meshes of devices, and worlds spread over them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._trees import is_key, on_key_data

# Part of JAX's trace key, and made at import, as those of `checking` and `taps` are.
_spread = jax.make_user_context(default_value=None)


def world_mesh(devices: int | Sequence[Any] | None = None, axis: str = "worlds") -> Mesh:
    """A one-dimensional mesh over `devices`: all of them, the first `devices`, or a list."""
    if devices is None or isinstance(devices, int):
        found = jax.devices()
        count = len(found) if devices is None else devices
        if not 1 <= count <= len(found):
            raise ValueError(f"`devices` must be between 1 and the {len(found)} present; got {count}.")
        devices = found[:count]
    if not devices:
        raise ValueError("`devices` must name at least one device; got none. Pass None for all of them.")
    return Mesh(np.asarray(devices), (axis,), axis_types=(AxisType.Auto,))


def world_shardings(tree: PyTree, mesh: Mesh, axes: PyTree = 0) -> PyTree:
    """A sharding for each leaf of `tree` (arrays or `jax.ShapeDtypeStruct`), see `shard_worlds`."""
    split, whole = NamedSharding(mesh, PartitionSpec(mesh.axis_names)), NamedSharding(mesh, PartitionSpec())

    def choose(path: Any, axis: int | None, leaf: Any) -> NamedSharding:
        if axis is None:
            return whole
        shape = np.shape(leaf)
        if not shape:
            raise ValueError(
                f"{leaf_name(path)} has no leading axis to split over devices; its value is {leaf!r}. "
                "Give it the axis None in `axes` if all worlds share it."
            )
        if shape[0] % mesh.size:
            below = max(size for size in range(1, mesh.size + 1) if shape[0] % size == 0)
            padded = -(-shape[0] // mesh.size) * mesh.size
            raise ValueError(
                f"{leaf_name(path)} holds {shape[0]} worlds, which {mesh.size} devices cannot share evenly. "
                f"Pad the batch to {padded}, or use `world_mesh({below})`."
            )
        return split

    return map_with_axes(choose, axes, tree)


def shard_worlds(tree: PyTree, mesh: Mesh, axes: PyTree = 0) -> PyTree:
    """Place `tree` on the devices of `mesh`: worlds split evenly, shared parts whole on every device.

    `axes` is a prefix of `tree`, as in `jax.vmap`: 0 where the leading axis counts worlds, None where the
    worlds share it. Leaves that are not arrays stay as they are. NumPy arrays are copied, so that writing to
    them later changes nothing here.

    ```python
    mesh = world_mesh()
    keys = jax.random.split(jax.random.key(0), 1024)
    keys, params = shard_worlds((keys, params), mesh, axes=(0, None))
    ```
    """

    def place(leaf: Any, sharding: NamedSharding) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            return leaf
        if isinstance(leaf, jax.Array) and is_key(leaf) and not sharding.is_fully_addressable:
            # JAX 0.10 places typed keys on the devices of this process only.
            return on_key_data(lambda data: place(data, sharding), leaf)
        # On a CPU `device_put` shares a NumPy array's memory, even with `may_alias=False` (jax 0.10, 0.12).
        return jax.device_put(leaf if isinstance(leaf, jax.Array) else np.array(leaf), sharding)

    return jax.tree.map(place, tree, world_shardings(tree, mesh, axes))


def per_device(fn: Callable[..., Any], mesh: Mesh, in_specs: PyTree, out_specs: PyTree) -> Callable[..., Any]:
    """`jax.shard_map` for worlds: `fn` runs on every device with its part, and loops may begin with constants.

    `in_specs` is a prefix of the tuple of arguments. Arrays without elements do not travel but are made inside: XLA of jax
    0.11 ends the process when one goes into a `shard_map` (Shardy, `ManualComputationUnusedInputsPattern`).
    """

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        is_spec = lambda node: isinstance(node, PartitionSpec)  # noqa: E731
        specs = jax.tree.leaves(jax.tree.broadcast(in_specs, arguments, is_leaf=is_spec), is_leaf=is_spec)
        travels = [np.size(leaf) > 0 for leaf in leaves]

        def inside(given: list[Any]) -> Any:
            left = iter(given)
            parts = [
                next(left)
                if goes
                else jnp.zeros(NamedSharding(mesh, spec).shard_shape(leaf.shape), leaf.dtype)
                for leaf, spec, goes in zip(leaves, specs, travels, strict=True)
            ]
            return fn(*tree.unflatten(parts))

        kept, where = (list(itertools.compress(all_, travels)) for all_ in (leaves, specs))
        return jax.shard_map(inside, mesh=mesh, in_specs=(where,), out_specs=out_specs, check_vma=False)(kept)

    return call


@contextlib.contextmanager
def spread_over(mesh: Mesh | None) -> Iterator[None]:
    """Within this block, traced code knows the mesh that its worlds are spread over; `run` does this for its step.

    Kernels work over several devices without it too: then XLA asks back when it splits a program. But JAX's key for
    the cache on disk holds the address of what answers, so that every process compiles the program again, and all arrays
    of a program must then be placed with one and the same mesh.

    ```python
    with spread_over(mesh):
        states = many_steps(states)  # compiled once for all processes
    ```
    """
    with contextlib.nullcontext() if mesh is None else _spread(mesh):
        yield


def spreading_mesh() -> Mesh | None:
    """The mesh of the innermost `spread_over` block; None outside of one."""
    return _spread.value


def on_each_device(fn: Callable[..., Any], axes: PyTree, out_axes: PyTree) -> Callable[..., Any]:
    """`fn` applied on each device of `spreading_mesh()` to its own worlds; `fn` itself without a mesh.

    For kernels, which XLA cannot cut by itself, and for what XLA would do with the worlds of all devices at once, such as
    sorting. `axes` is a prefix of the tuple of arguments and `out_axes` one of the result: 0 where the leading axis counts
    worlds, None where all devices have the same value. Inside, collectives go over `spreading_mesh().axis_names`.
    """
    mesh = spreading_mesh()
    if mesh is None:
        return fn

    def spec(axis: int | None) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(mesh.axis_names)

    def call(*arguments: Any) -> Any:
        arrays, others = eqx.partition(arguments, eqx.is_array)
        spread = per_device(
            lambda arrays: fn(*eqx.combine(arrays, others)),
            mesh,
            (map_with_axes(lambda _, axis, leaf: spec(axis), axes, arrays),),
            jax.tree.map(spec, out_axes, is_leaf=lambda axis: axis is None),
        )
        return spread(arrays)

    return call


def map_with_axes(fn: Callable[[Any, int | None, Any], Any], axes: PyTree, tree: PyTree) -> PyTree:
    """`fn(path, axis, leaf)` for each leaf of `tree`, with `axes` (0 or None) as a prefix of it."""

    def below(start: Any, axis: int | None, subtree: Any) -> Any:
        if axis is not None and (isinstance(axis, bool) or axis != 0):
            raise ValueError(
                f"`axes` must hold 0 (split) or None (shared); got {axis!r} at {leaf_name(start)}."
            )

        def call(path: Any, leaf: Any) -> Any:
            # A function or a setting inside a module is no world's data, whatever the prefix says.
            has_worlds = hasattr(leaf, "shape") or isinstance(leaf, bool | int | float | complex)
            return fn((*start, *path), axis if has_worlds else None, leaf)

        return jax.tree_util.tree_map_with_path(call, subtree)

    return jax.tree_util.tree_map_with_path(below, axes, tree, is_leaf=lambda node: node is None)


def leaf_name(path: Any) -> str:
    """A leaf's key path as messages show it: "`tree.grid[0]`", in backquotes."""
    return f"`tree{jax.tree_util.keystr(path)}`"


def assert_on_device(tree: PyTree, platform: str | None = None) -> None:
    """Raise unless every array of `tree` lives on a device of `platform` (None: of the default backend).

    A NumPy array is nowhere: each call of a compiled function would transfer it again. Together with
    `jax.transfer_guard("disallow")` this proves that a hot loop moves nothing.
    """
    platform = platform or jax.default_backend()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        must = f"{leaf_name(path)} must be on {platform!r}"
        if isinstance(leaf, np.ndarray | np.generic):
            raise ValueError(f"{must}; it is a NumPy array. Use `jax.device_put` once.")
        if isinstance(leaf, jax.Array):
            found = {device.platform for device in leaf.devices()}
            if found != {platform}:
                raise ValueError(f"{must}; it is on {sorted(found)}. Use `jax.device_put`.")

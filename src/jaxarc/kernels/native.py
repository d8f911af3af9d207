"""The expensive parts of one environment's step as C++ kernels for the CPU: twins of the definitions, with the same bits.

Each kernel takes a batch; `jax.vmap` over one environment makes the batch larger. Where a kernel cannot serve (every
environment has tasks of its own), the definition does it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from jaxworlds.kernels import kernel_targets, result, split_kernel

from ..envs import operations as ops
from ..envs import parts
from ..envs.starts import Origin, Restart
from ..envs.starts import restart as restart_by_definition
from ..tasks.bank import Grid, TaskBank

FUNCTIONS = ("jaxarc_work", "jaxarc_compare", "jaxarc_restart")
SOURCE = Path(__file__).with_name("native.cc")
MACROS = tuple(f"OP_{operation.name}={operation:d}" for operation in ops.Operation)
"""The numbers of the operations, as the C++ compiler is told them."""


def names() -> dict[str, str] | None:
    """The names under which XLA knows the kernels, or None where they cannot be compiled; tried once per process."""
    return kernel_targets(SOURCE, FUNCTIONS, "jaxarc", MACROS)


def apply_operation(
    space: ops.Workspace,
    operation: Int32[Array, ""],
    selection: UInt32[Array, " rows"],
    bank: TaskBank,
    place: Int32[Array, ""],
    rotation: str,
) -> tuple[ops.Workspace, Bool[Array, ""]]:
    """Twin of `parts.apply_operation`."""

    def definition(bank: TaskBank, *given: Array) -> tuple[ops.Workspace, Array]:
        *fields, operation, selection, place = given
        return parts.apply_operation(_workspace(*fields), operation, selection, bank, place, rotation)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        shapes = [*map(_shape, given[:5]), result(given[1].shape, jnp.bool_, given[1])]
        centred = np.int32(rotation == "center")
        return _call("jaxarc_work", shapes, 5, *given, *_arrays(bank), turns_about_center=centred)

    given = (*_fields(space), operation, selection, place)
    *fields, valid = _one_of_many(kernel, definition, bank, *given)
    return _workspace(*fields), valid


def agreement(
    grid: Grid, bank: TaskBank, place: Int32[Array, ""]
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """Twin of `parts.agreement`."""

    def definition(
        bank: TaskBank, planes: Array, height: Array, width: Array, place: Array
    ) -> tuple[Array, Array]:
        return parts.agreement(Grid(planes, height, width), bank, place)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        return _call("jaxarc_compare", [_shape(given[3])] * 2, 0, *given, *_arrays(bank))

    agree, union = _one_of_many(kernel, definition, bank, grid.planes, grid.height, grid.width, place)
    return agree, union


def restart(
    done: Bool[Array, ""],
    space: ops.Workspace,
    key: UInt32[Array, "2"],
    origin: Origin,
    bank: TaskBank,
    how: str,
) -> Restart:
    """Twin of `starts.restart`."""

    def definition(bank: TaskBank, *given: Array) -> Restart:
        *fields, key, task, mode, pair, done = given
        return restart_by_definition(done, _workspace(*fields), key, (task, mode, pair), bank, how)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        flags = {"draws_task": how == "task", "draws_pair": how != "same"}
        shapes = [_shape(leaf) for leaf in (*given[:9], *given[7:9])]
        attributes = {name: np.int32(on) for name, on in flags.items()}
        return _call("jaxarc_restart", shapes, 9, *given, *_arrays(bank), **attributes)

    made = _one_of_many(kernel, definition, bank, *_fields(space), key, *origin, done)
    return Restart(_workspace(*made[:5]), *made[5:])


PARTS = parts.Parts(apply_operation, agreement, restart)
"""The expensive parts of a step, done by the kernels."""


def _one_of_many(
    kernel: Callable[..., Any], definition: Callable[..., Any], bank: TaskBank, *given: Array
) -> Any:
    """Pass one environment through a kernel that takes a batch with its axis in front."""
    # Weights of tasks may be learned elsewhere: a step has no derivatives.
    bank, alone = jax.lax.stop_gradient(bank), tuple(_narrow(leaf)[None] for leaf in given)
    return [leaf[0] for leaf in _kernel_for_axes(kernel, definition, 1)(bank, alone)]


def _kernel_for_axes(
    kernel: Callable[..., Any], definition: Callable[..., Any], axes: int
) -> Callable[..., list[Array]]:
    """The kernel for batches of this many axes; each `vmap` adds one.

    The axes become one only on the device: seen from outside any of them may be split.
    """

    def flat(given: tuple[Array, ...], bank: TaskBank) -> list[Array]:
        ahead = given[0].shape[:axes]
        made = kernel(bank, *(leaf.reshape(-1, *leaf.shape[axes:]) for leaf in given))
        return [leaf.reshape(*ahead, *leaf.shape[1:]) for leaf in made]

    @jax.custom_batching.custom_vmap
    def many(bank: TaskBank, given: tuple[Array, ...]) -> list[Array]:
        return split_kernel(flat, given, bank, axes)

    @many.def_vmap
    def _(
        size: int, batched: Any, bank: TaskBank, given: tuple[Array, ...]
    ) -> tuple[list[Array], list[bool]]:
        if any(jax.tree.leaves(batched[0])):  # every environment has tasks of its own
            places = jax.tree.map(lambda has: 0 if has else None, tuple(batched))
            each = lambda bank, given: jax.tree.leaves(definition(bank, *given))  # noqa: E731
            for _ in range(axes):
                each = jax.vmap(each, in_axes=(None, 0))
            made = jax.vmap(each, in_axes=places, axis_size=size)(bank, given)
        else:
            whole = [
                leaf if has else jnp.broadcast_to(leaf, (size, *leaf.shape))
                for leaf, has in zip(given, batched[1], strict=True)
            ]
            made = _kernel_for_axes(kernel, definition, axes + 1)(bank, tuple(whole))
        return made, [True] * len(made)

    return many


def _call(function: str, shapes: list[Any], aliased: int, *args: Array, **attributes: Any) -> Any:
    """Call a kernel whose first `aliased` results take the place of its first arguments."""
    known = names()
    assert known is not None, "only a dispatcher that found the kernels gets here"
    places = {at: at for at in range(aliased)}
    return jax.ffi.ffi_call(known[function], shapes, input_output_aliases=places)(*args, **attributes)


def _fields(space: ops.Workspace) -> tuple[Array, ...]:
    grid = space.grid
    return grid.planes, grid.height, grid.width, space.clipboard, space.clipboard_mask


def _workspace(planes: Array, height: Array, width: Array, clipboard: Array, mask: Array) -> ops.Workspace:
    return ops.Workspace(Grid(planes, height, width), clipboard, mask)


def _arrays(bank: TaskBank) -> list[Array]:
    """The bank as the kernels read it."""
    grids = [bank.inputs, bank.outputs, bank.input_sizes, bank.output_sizes]
    tasks = [bank.first_pair, bank.num_train, bank.num_test, bank.cumulative, bank.offset]
    return [_narrow(leaf) for leaf in (*grids, *tasks)]


def _narrow(leaf: Array) -> Array:
    """Integers and floats in 32 bits, as the kernels read them, also where people use 64 bits."""
    if leaf.dtype == bool or leaf.dtype == jnp.uint32:
        return leaf
    return leaf.astype(jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.int32)


def _shape(leaf: Array) -> jax.ShapeDtypeStruct:
    return result(leaf.shape, leaf.dtype, leaf)

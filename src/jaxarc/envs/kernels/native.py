"""The costly parts of a step: as kernels on a CPU where there is a compiler, else as XLA compiles them. Same bits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from jaxworlds.kernels import result, split_kernel

from ...tasks.bank import Grid, TaskBank
from .. import operations as ops
from . import native_build


def kernels() -> dict[str, str] | None:
    """The kernels' names, or None if XLA's own code is to be used; asked whenever a step is traced."""
    return native_build.names() if native_build.wanted() else None


def apply_operation(
    space: ops.Workspace,
    operation: Int32[Array, ""],
    selection: UInt32[Array, " rows"],
    bank: TaskBank,
    place: Int32[Array, ""],
    rotation: str = "corner",
) -> tuple[ops.Workspace, Bool[Array, ""]]:
    """`operations.apply_operation`, where operation 32 copies the input of the pair at `place`."""

    def plain(bank: TaskBank, *given: Array) -> tuple[ops.Workspace, Array]:
        *parts, operation, selection, place = given
        source = bank.input_at(place, selection.shape[0])
        return ops.apply_operation(_workspace(*parts), operation, selection, source, rotation)

    given = (*_parts(space), operation, selection, place)
    known = kernels()
    if known is None:
        return plain(bank, *given)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        shapes = [*map(_shape, given[:5]), result(given[1].shape, jnp.bool_, given[1])]
        centred = np.int32(rotation == "center")
        return _call(known["jaxarc_work"], shapes, 5, *given, *_arrays(bank), turns_about_center=centred)

    *parts, valid = _one_of_many(kernel, plain, bank, *given)
    return _workspace(*parts), valid


def agreement(
    grid: Grid, bank: TaskBank, place: Int32[Array, ""]
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """`operations.agreement` with the output of the pair at `place`."""

    def plain(
        bank: TaskBank, planes: Array, height: Array, width: Array, place: Array
    ) -> tuple[Array, Array]:
        return ops.agreement(Grid(planes, height, width), bank.output_at(place, planes.shape[-1]))

    given = (grid.planes, grid.height, grid.width, place)
    known = kernels()
    if known is None:
        return plain(bank, *given)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        return _call(known["jaxarc_compare"], [_shape(given[3])] * 2, 0, *given, *_arrays(bank))

    agree, union = _one_of_many(kernel, plain, bank, *given)
    return agree, union


class Begun(NamedTuple):
    """Where an episode began: what it works on, its next key, which pair it is at, and its agreement with the answer.

    Of an episode that goes on, the workspace is the old one, and the rest means nothing.
    """

    space: ops.Workspace
    key: Array
    task: Array
    mode: Array
    pair: Array
    agree: Array
    union: Array


def begin_again(
    done: Bool[Array, ""],
    space: ops.Workspace,
    key: UInt32[Array, "2"],
    place: tuple[Array, Array, Array],
    bank: TaskBank,
    how: str,
    begin: Callable[..., Begun],
) -> Begun:
    """A new episode if the old one is `done`, as `begin(bank, done, space, key, *place)` makes it.

    `place` is the task, mode and pair that the old one began with; `how` says which of them are drawn anew.
    """

    def plain(bank: TaskBank, *given: Array) -> Begun:
        *parts, key, task, mode, pair, done = given
        return begin(bank, done, _workspace(*parts), key, task, mode, pair)

    given = (*_parts(space), key, *place, done)
    known = kernels()
    if known is None:
        return plain(bank, *given)

    def kernel(bank: TaskBank, *given: Array) -> list[Array]:
        flags = {
            "draws_task": how == "task",
            "draws_pair": how != "same",
        }
        shapes = [_shape(leaf) for leaf in (*given[:9], *given[7:9])]
        attributes = {name: np.int32(on) for name, on in flags.items()}
        return _call(known["jaxarc_restart"], shapes, 9, *given, *_arrays(bank), **attributes)

    made = _one_of_many(kernel, plain, bank, *given)
    return Begun(_workspace(*made[:5]), *made[5:])


def _one_of_many(kernel: Callable[..., Any], plain: Callable[..., Any], bank: TaskBank, *given: Array) -> Any:
    """One environment through a kernel that takes a batch with its axis in front; `vmap` makes the batch larger."""
    # Weights of tasks may be learned elsewhere: a step has no derivatives.
    bank, alone = jax.lax.stop_gradient(bank), tuple(_narrow(leaf)[None] for leaf in given)
    return [leaf[0] for leaf in _mapped(kernel, plain, 1)(bank, alone)]


def _mapped(kernel: Callable[..., Any], plain: Callable[..., Any], axes: int) -> Callable[..., list[Array]]:
    """The kernel for batches that are counted along so many axes; each `vmap` adds one.

    They become one only on the device: seen from outside any of them may be split.
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
            each = lambda bank, given: jax.tree.leaves(plain(bank, *given))  # noqa: E731
            for _ in range(axes):
                each = jax.vmap(each, in_axes=(None, 0))
            made = jax.vmap(each, in_axes=places, axis_size=size)(bank, given)
        else:
            whole = [
                leaf if has else jnp.broadcast_to(leaf, (size, *leaf.shape))
                for leaf, has in zip(given, batched[1], strict=True)
            ]
            made = _mapped(kernel, plain, axes + 1)(bank, tuple(whole))
        return made, [True] * len(made)

    return many


def _call(target: str, shapes: list[Any], aliased: int, *args: Array, **attributes: Any) -> Any:
    """Call a kernel whose first `aliased` results take the place of its first arguments."""
    places = {at: at for at in range(aliased)}
    return jax.ffi.ffi_call(target, shapes, input_output_aliases=places)(*args, **attributes)


def _parts(space: ops.Workspace) -> tuple[Array, ...]:
    grid = space.grid
    return grid.planes, grid.height, grid.width, space.clipboard, space.clipboard_mask


def _workspace(planes: Array, height: Array, width: Array, clipboard: Array, mask: Array) -> ops.Workspace:
    return ops.Workspace(Grid(planes, height, width), clipboard, mask)


def _arrays(bank: TaskBank) -> list[Array]:
    """The bank as the kernels read it."""
    grids = [bank.inputs, bank.outputs, bank.input_sizes, bank.output_sizes]
    tasks = [bank.first_pair, bank.num_train, bank.num_test, bank.cumulative, bank.offset]
    return [_narrow(part) for part in (*grids, *tasks)]


def _narrow(leaf: Array) -> Array:
    """Whole numbers as the kernels read them, also where people use 64 bits."""
    if leaf.dtype == bool or leaf.dtype == jnp.uint32:
        return leaf
    return leaf.astype(jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.int32)


def _shape(leaf: Array) -> jax.ShapeDtypeStruct:
    return result(leaf.shape, leaf.dtype, leaf)

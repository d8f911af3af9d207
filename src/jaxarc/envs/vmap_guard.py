"""A guard at the edge of the user's own `jax.vmap`, where tasks that a whole batch shares would be mapped or copied."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import jax
from jax.core import Tracer

_NEAR = 4
"""Frames between `jax.vmap` and a node that it flattens: those of jax's tree functions."""


@jax.tree_util.register_pytree_node_class
class VmapGuard:
    """A node without leaves that every state holds; it notices when `jax.vmap` takes the state apart.

    `jax.vmap` maps the leaves of a state before it calls anything of ours, and says of a batch that shares its tasks only
    that some argument has rank 0. Of a state that it returns, it copies the tasks once for each environment and says
    nothing. Both happen while jax flattens the state, which calls this node. It reads the names of jax's local variables:
    where a version of jax has other names, nothing is noticed, and jax's own message is what people get.
    """

    is_shared: Callable[[Any], bool]
    """Whether a state's tasks stand once for the whole batch; set by `jaxarc.envs.state`, which imports this module."""
    state_class: type

    def tree_flatten(self) -> tuple[tuple[()], None]:
        """Check whether `jax.vmap` flattens the state; the node has no leaves."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_NEAR):
            if frame is None:
                break
            name = frame.f_code.co_name
            if name == "vmap_f":
                _demand_unmapped_tasks(frame.f_locals)
                break
            if name == "flatten_fun_for_vmap":
                _warn_of_copies(frame)
                break
            frame = frame.f_back
        return (), None

    @classmethod
    def tree_unflatten(cls, _: None, __: Sequence[Any]) -> "VmapGuard":
        """Another guard."""
        return cls()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VmapGuard)

    def __hash__(self) -> int:
        return hash(VmapGuard)


def _demand_unmapped_tasks(local: dict[str, Any]) -> None:
    """Raise if `jax.vmap` is about to map the shared tasks of a batch."""
    by_name = _mapped_states(local.get("kwargs", {}), 0)  # jax always maps what is passed by name
    for state in (*_mapped_states(local.get("args", ()), local.get("in_axes")), *by_name):
        has_tasks = bool(jax.tree.leaves(state.task_data))
        if has_tasks and getattr(state.height, "ndim", 0) and VmapGuard.is_shared(state.task_data):
            raise ValueError(
                "`jax.vmap` cannot map the tasks of these states, which stand once for all "
                f"{state.height.shape[0]} environments. Use `batch_step(states, actions, config)`, or name the axes: "
                "`axes = state_axes(states)`, then `jax.vmap(arc_step, in_axes=(axes, 0, None), "
                "out_axes=(axes, 0, 0, 0, 0))`."
            )


def _warn_of_copies(frame: FrameType) -> None:
    """Warn if `jax.vmap` is about to copy the tasks of the states that it returns."""
    answer, around = frame.f_locals.get("ans"), frame.f_back
    while around is not None and around.f_code.co_name != "vmap_f":
        around = around.f_back
    if around is None:
        return
    for state in _mapped_states(answer, around.f_locals.get("out_axes", None)):
        leaves = jax.tree.leaves(state.task_data)
        # What is mapped already, such as a task for each environment, is not copied.
        if not leaves or any(hasattr(leaf, "batch_dim") for leaf in leaves if isinstance(leaf, Tracer)):
            continue
        count = around.f_locals.get("axis_size_")
        each = sum(leaf.nbytes for leaf in leaves)
        copies = f" ({count} × {each / 1e6:.2f} MB)" if isinstance(count, int) else ""
        warnings.warn(
            f"`jax.vmap` gives every environment its own copy of the tasks{copies}, and such a batch is stepped without "
            "kernels. Use `batch_reset(keys, config, task_data)` and `batch_step`; in a `jax.vmap` of your own leave "
            "`task_data` unmapped with `out_axes=state_axes(states)`.",
            stacklevel=_depth_of_user(sys._getframe(), around),
        )


def _depth_of_user(here: FrameType, around: FrameType) -> int:
    """`stacklevel`, counted from `here`, of the first frame outside of jax beyond `around`."""
    depth, frame, beyond = 1, here, False
    while frame.f_back is not None:
        beyond = beyond or frame is around
        if beyond and "/jax/" not in frame.f_code.co_filename.replace("\\", "/"):
            break
        frame, depth = frame.f_back, depth + 1
    return depth


def _mapped_states(node: Any, axes: Any) -> Iterator[Any]:
    """The states within arguments or results whose tasks are mapped: all of the state along one axis, or leaf by leaf."""
    if axes is None:
        return
    if isinstance(node, VmapGuard.state_class):
        # `eqx.filter_vmap` names an axis for each leaf, and so does `state_axes`.
        each = jax.tree.leaves(axes.task_data) if isinstance(axes, VmapGuard.state_class) else [axes]
        if any(isinstance(axis, int) for axis in each):
            yield node
        return
    if isinstance(axes, int):  # one axis for all that is in there, whatever the class of a container
        inside = jax.tree.leaves(node, is_leaf=lambda child: isinstance(child, VmapGuard.state_class))
        for child in inside:
            if isinstance(child, VmapGuard.state_class):
                yield from _mapped_states(child, axes)
    elif isinstance(node, dict) and isinstance(axes, dict):
        for key in node:
            yield from _mapped_states(node[key], axes.get(key))
    elif isinstance(node, list | tuple) and isinstance(axes, list | tuple):
        for child, own in zip(node, axes, strict=False):
            yield from _mapped_states(child, own)

"""The compiled part of a run: one chunk of steps as one program, recorded with a stride, sharded over a mesh."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, PyTree

from .._trees import differences, entries
from ..batching import spread_over
from ..static import exact_key
from ..taps import ambient


@dataclasses.dataclass(frozen=True)
class Static:
    """The static part of a pytree: functions, settings. Equal only if exactly equal: 0.0 is not -0.0."""

    fixed: tuple[Any, ...] = dataclasses.field(compare=False)
    exact: Any
    tree: Any


def split(value: Any, name: str) -> tuple[Static, list[Any]]:
    """Arrays apart from the rest, which must be hashable; `name` is what the caller knows it as."""
    leaves, tree = jax.tree.flatten(value)
    fixed = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
    try:
        static = Static(fixed, exact_key(fixed), tree)
        hash(static)
    except TypeError as error:
        raise TypeError(
            f"`{name}` must be hashable apart from its arrays ({error}). Use JAX arrays, functions or an eqx.Module."
        ) from error
    return static, [leaf if eqx.is_array(leaf) else None for leaf in leaves]


def merge(static: Static, arrays: list[Any]) -> Any:
    """The inverse of `split`."""
    pairs = zip(static.fixed, arrays, strict=True)
    return jax.tree.unflatten(static.tree, [array if fixed is None else fixed for fixed, array in pairs])


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything a chunk's program depends on besides its arrays; equal programs share one compilation."""

    step: Static
    shared: Static
    observe: Any
    steps: int
    record_every: int | None
    shardings: Any = None

    @property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices over which the worlds are spread."""
        return self.shardings[0].mesh if self.shardings else None


@functools.partial(jax.jit, static_argnames=("program",), donate_argnames=("carry",))
def advance(
    carry: PyTree,
    step_arrays: PyTree,
    shared_arrays: PyTree,
    clock: Int32[Array | np.ndarray, "2"],
    inputs: PyTree,
    *,
    program: Program,
) -> tuple[Any, Any, Any, Any]:
    """One chunk: returns the carry, the records, the observation, and the next step as a sign of completion.

    `clock` is the number of the first step and the period of the taps: two numbers, one transfer.
    """
    start, period = clock
    step = merge(program.step, step_arrays)
    shared = merge(program.shared, shared_arrays)

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        t, given = x
        arguments = (carry, t if inputs is None else given, *(() if shared is None else (shared,)))
        with ambient(step=t, period=period), spread_over(program.mesh):
            result = call_step(step, arguments)
        if not (isinstance(result, tuple) and len(result) == 2):
            given = "an array" if isinstance(result, jax.Array) else type(result).__name__
            raise TypeError(
                f"`step` must return (carry, out); got {given}. Return (carry, None) to record nothing."
            )
        _demand_like(carry, result[0])
        carry, out = result
        if program.shardings is not None:
            leaves, tree = jax.tree.flatten(carry)
            constrain = jax.lax.with_sharding_constraint
            carry = tree.unflatten(
                [constrain(leaf, s) for leaf, s in zip(leaves, program.shardings, strict=True)]
            )
        return carry, out

    steps, stride = program.steps, program.record_every
    xs = (start + jnp.arange(steps, dtype=jnp.int32), inputs)
    records = None
    if stride is None:
        carry, _ = jax.lax.scan(lambda c, x: (body(c, x)[0], None), carry, xs)
    elif stride == 1:
        carry, records = jax.lax.scan(body, carry, xs)
    else:
        carry, records = _scan_with_stride(body, carry, xs, steps, stride)
    observed = None if program.observe is None else program.observe(carry)
    return carry, records, observed, start + steps


def _demand_like(before: Any, after: Any) -> None:
    """Raise if a step returns a carry that the next step cannot take; types may be weak."""

    def kinds(tree: Any) -> list[Any]:
        return [(aval.shape, aval.dtype) for aval in map(jax.typeof, jax.tree.leaves(tree))]

    if jax.tree.structure(before) == jax.tree.structure(after) and kinds(before) == kinds(after):
        return
    found = differences(entries(before, "carry"), entries(after, "carry"), noun="leaf", placements=False)
    for change in [text for text in found if "(weak_type only" not in text][:1]:
        raise TypeError(
            f"`step` must return the carry with the shapes and types that it got; {change}. Keep the shape, and the type by "
            "`new.astype(old.dtype)`."
        )


_BYTES: dict[Any, int] = {}
"""What `bytes_beyond` found, for the latest programs."""


def bytes_beyond(arguments: tuple[Any, ...], program: Program) -> int:
    """Bytes per device that a chunk needs beyond its arguments, by its compiled program; 0 if unknown.

    The call of `advance` that follows finds the program compiled.
    """
    leaves, tree = jax.tree.flatten(arguments)
    key = (program, tree, tuple((np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in leaves))
    if key not in _BYTES:
        while len(_BYTES) >= 64:
            _BYTES.pop(next(iter(_BYTES)), None)
        stats = advance.lower(*arguments, program=program).compile().memory_analysis()
        stats = stats[0] if isinstance(stats, list | tuple) else stats
        found = [int(getattr(stats, f"{name}_size_in_bytes", 0)) for name in ("output", "temp", "alias")]
        _BYTES[key] = found[0] + found[1] - found[2]
    return _BYTES[key]


def call_step(step: Any, arguments: tuple[Any, ...]) -> Any:
    """Call the step; raise a clear error if it takes other arguments."""
    try:
        inspect.signature(step).bind(*arguments)
    except TypeError as error:
        given = ", ".join(("carry", "t", "shared")[: len(arguments)])
        raise TypeError(f"`step` must be callable as step({given}); {error}.") from error
    except ValueError:  # something built in, which tells nothing of itself
        pass
    return step(*arguments)


def _scan_with_stride(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, steps: int, stride: int
) -> tuple[Any, Any]:
    """Record the last of every `stride` steps. The silent steps have a scan of their own, so `out` costs them nothing."""

    def silent(carry: Any, x: Any) -> tuple[Any, None]:
        return body(carry, x)[0], None

    def block(carry: Any, block_xs: Any) -> tuple[Any, Any]:
        carry, _ = jax.lax.scan(silent, carry, jax.tree.map(lambda a: a[:-1], block_xs))
        return body(carry, jax.tree.map(lambda a: a[-1], block_xs))

    blocks = steps // stride
    whole = jax.tree.map(lambda a: a[: blocks * stride].reshape(blocks, stride, *a.shape[1:]), xs)
    carry, records = jax.lax.scan(block, carry, whole)
    if steps % stride:
        carry, _ = jax.lax.scan(silent, carry, jax.tree.map(lambda a: a[blocks * stride :], xs))
    return carry, records

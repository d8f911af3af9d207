"""Isolate a computation from its consumers, so that XLA does not repeat it in each of them."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from .base import Flag

Result = TypeVar("Result")


def isolate(always: Flag, function: Callable[..., Result], *operands: object) -> Result:
    """`function(*operands)`, compiled as a unit of its own. `always` must be true, traced, and the same for a whole batch.

    XLA fuses a Runge–Kutta step into one loop over particles and repeats the gathers of a sample in every later stage:
    10 to 30 times slower on a CPU. `optimization_barrier` prevents that on a GPU; on a CPU (jaxlib 0.10) fusion looks
    through it, but not through a branch whose condition is only known at run time.
    """
    if jax.default_backend() != "cpu":
        return lax.optimization_barrier(function(*lax.optimization_barrier(operands)))
    shapes = jax.eval_shape(function, *operands)

    def never(*_: object) -> Result:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return lax.cond(always, function, never, *operands)

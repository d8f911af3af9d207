"""The optimizer of surrogate training: gradients clipped, AdamW, a learning rate that rises and falls."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

FLOOR = 0.01
"""The learning rate begins and ends at this share of its peak."""


def require_optax() -> Any:
    """The package `optax`, or an error that says how to get it."""
    try:
        import optax
    except ImportError as error:
        raise ImportError("Training needs optax: pip install 'jaxworlds[causal]'.") from error
    return optax


def learning_rate_at(
    step: Int[Array, ""] | int, total: Int[Array, ""] | int, peak: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Linear warm-up over min(1000, 10 %) of the steps from 1 % of `peak`, then half a cosine down to 1 %.

    `total` may be traced, so a run of another length is the same program.
    """
    warmup = jnp.maximum(1, jnp.minimum(1000, jnp.asarray(total) // 10))
    rising = jnp.clip(step / warmup, 0.0, 1.0)
    done = jnp.clip((step - warmup) / jnp.maximum(1, total - warmup), 0.0, 1.0)
    falling = 0.5 * (1 + jnp.cos(jnp.pi * done))
    return peak * (FLOOR + (1 - FLOOR) * jnp.where(step < warmup, rising, falling))


@functools.cache
def descent(weight_decay: float = 1e-4, max_norm: float = 1.0) -> Any:
    """Clipping and AdamW without a learning rate: multiply its updates by `-learning_rate_at(...)`."""
    optax = require_optax()
    return optax.chain(
        optax.clip_by_global_norm(max_norm), optax.scale_by_adam(), optax.add_decayed_weights(weight_decay)
    )


@functools.cache
def make_optimizer(
    learning_rate: float = 1e-3, total_steps: int = 1000, weight_decay: float = 1e-4, max_norm: float = 1.0
) -> Any:
    """The same as one optax optimizer, whose learning rate follows `total_steps` updates.

    Equal arguments give the same object, so steps made with it share their compiled programs.
    """
    optax = require_optax()
    return optax.chain(
        descent(weight_decay, max_norm),
        optax.scale_by_learning_rate(lambda count: learning_rate_at(count, total_steps, learning_rate)),
    )


def norm_of(gradient: PyTree) -> Float[Array, ""]:
    """The length of a gradient over all parameters."""
    return jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradient)))

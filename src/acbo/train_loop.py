"""The training loop of surrogate and policy: optimizer, devices, chunks and checkpoints.

Either gives an update, a pure function of its state; the core's driver runs many of them in one compiled call.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from acbo.data import Key
from acbo.optional import optional_package
from jaxworlds.batching import per_device
from jaxworlds.rollout import Checkpoint, Chunk, Rollout, resume, run

T = TypeVar("T")

FLOOR = 0.01
"""The learning rate begins and ends at this share of its peak."""


def require_optax() -> Any:
    """The package `optax`, or an error that says how to get it."""
    return optional_package("optax", "Training")


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


def descend(
    network: T, moments: PyTree, gradient: T, rate: Float[Array, ""], weight_decay: float, max_norm: float
) -> tuple[T, PyTree]:
    """One step of `descent`: the network and the optimizer's moments after it."""
    change, moments = descent(weight_decay, max_norm).update(gradient, moments, network)
    scaled = jax.tree.map(lambda u: -rate * u, change)
    return require_optax().apply_updates(network, scaled), moments


def over_devices(mesh: Mesh | None, fn: Callable[[Any, Key, Any], Any], shared: Any, keys: Key) -> Any:
    """`fn(shared, keys, axes)` with the keys spread over the devices of a mesh; `axes` is None without a mesh.

    `fn` must return the same on every device: see `device_mean`.
    """
    if mesh is None:
        return fn(shared, keys, None)
    axes = mesh.axis_names
    specs = (PartitionSpec(), PartitionSpec(axes))
    spread = per_device(lambda shared, keys: fn(shared, keys, axes), mesh, specs, PartitionSpec())
    return spread(shared, keys)


def device_mean(tree: T, axes: Any) -> T:
    """The mean over the devices of a mesh, the same on each; the tree itself without a mesh."""
    return tree if axes is None else jax.lax.pmean(tree, axes)


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """Options of a training run; `acbo.train` describes them."""

    mesh: Mesh | None = None
    chunk: int | None = None
    record_every: int | None = 1
    on_chunk: Callable[[Chunk], Any] | None = None
    observe: Callable[[Any], Any] | None = None
    checkpoint: Checkpoint | str | Path | None = None
    resuming: bool = False
    progress: bool | None = None
    check_memory: bool = True

    def __post_init__(self) -> None:
        if self.resuming and self.checkpoint is None:
            raise ValueError("`resuming` needs `checkpoint`, the folder of the run to go on with; got None.")

    def chunk_of(self, updates: int) -> int:
        """Updates in one compiled call, a multiple of `record_every`."""
        # On a CPU an update takes a good part of a second, and a call 35 µs.
        usual = 1 if jax.default_backend() == "cpu" else 100
        size = min(usual if self.chunk is None else self.chunk, updates)
        every = self.record_every
        return size if every is None else max(every, size // every * every)


def run_updates(
    update: Any, state: Any, updates: int, options: LoopOptions, *, donate_carry: bool = False
) -> Rollout:
    """Make the updates, or the rest of those that the checkpoint holds where `options.resuming`."""
    names = ("mesh", "observe", "on_chunk", "progress", "check_memory")
    shared: dict[str, Any] = {"axes": None, **{name: getattr(options, name) for name in names}}
    if options.resuming:
        assert options.checkpoint is not None
        return resume(update, state, options.checkpoint, **shared)
    return run(
        update,
        state,
        updates,
        chunk=options.chunk_of(updates),
        record_every=options.record_every,
        checkpoint=options.checkpoint,
        donate_carry=donate_carry,
        **shared,
    )

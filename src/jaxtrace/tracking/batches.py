"""Batches of particles that fit into memory."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxworlds.batching import plan_batch_size, spread_over
from jaxworlds.memory import device_memory_limit, live_bytes

from ..motion import Motion
from .chunks import CHUNK_BYTES, plan_chunks
from .particles import Particles, axes_of, begin
from .schedule import Schedule
from .segment import Segment, Shared, device_tables

# Arrays of a particle's size that a step holds at once besides its state: samples, stencils, what a wall made of it.
# Counted in programs of all integrators (RK4 with cubic walls: 22); a bound, not a prediction.
_TEMPORARIES = 32
# The share of the device's memory that a run may take, as in the core's planning.
_SHARE = 0.85


@dataclasses.dataclass(frozen=True)
class Batching:
    """How many particles move at the same time, and the reason."""

    size: int
    reason: str
    predicted_bytes: int
    """What a batch takes on a device at the most, the field not counted."""
    limit_bytes: int


def plan_batches(
    motion: Motion,
    segment: Segment,
    reduction: Any,
    schedule: Schedule,
    particles: int,
    batch_size: int | None,
    limit_gb: float | None,
    mesh: Any,
) -> Batching:
    """All particles where memory allows, else as many as the compiled program's own figures allow."""
    devices = 1 if mesh is None else mesh.size
    limit = device_memory_limit() if limit_gb is None else int(limit_gb * 2**30)
    each = bytes_each(motion)
    if batch_size is not None:
        size = _multiple(min(batch_size, particles), devices)
        return Batching(size, "as given", _bound(size, each, devices), limit)
    size = _multiple(particles, devices)
    held = max(live_bytes().values(), default=0)
    if _bound(size, each, devices) <= _SHARE * limit - held:
        return Batching(size, "all at once; they surely fit", _bound(size, each, devices), limit)
    # What the field takes is live already; the core would count it a second time as an argument.
    field_bytes = array_bytes(motion.field)
    shared = Shared(motion, device_tables(schedule, plan_chunks(schedule, 1, 1)), reduction)

    def program(particles: Particles, shared: Shared) -> Any:
        with spread_over(mesh):
            return segment(particles, jnp.int32(1), shared)

    found = plan_batch_size(
        program,
        lambda count: (eqx.filter_eval_shape(_some, motion, count), shared),
        limit=int(limit - 2 * CHUNK_BYTES + field_bytes / _SHARE),
        fraction=_SHARE,
        maximum=size,
        mesh=mesh,
        axes=(axes_of(eqx.filter_eval_shape(_some, motion, devices)), None),
        measure=False,
    )
    even = _multiple(-(-particles // -(-particles // found.batch_size)), devices)
    reason = f"the most that fit into {limit / 2**30:.2f} GB are {found.batch_size:,}"
    return Batching(min(even, found.batch_size), reason, found.predicted_bytes - field_bytes, limit)


def bytes_each(motion: Motion) -> int:
    """A bound on the bytes that one particle takes while it moves."""
    state = array_bytes(eqx.filter_eval_shape(_some, motion, 8)) / 8
    real = jnp.dtype(jnp.result_type(float)).itemsize
    return int(2 * state + _TEMPORARIES * motion.field.dim * real)


def record_bytes(motion: Motion, segment: Segment, particles: int) -> int:
    """Bytes of one recorded time."""
    real = jnp.dtype(jnp.result_type(float)).itemsize
    vectors = int(segment.positions) + int(segment.positions and segment.velocities)
    return particles * (vectors * motion.field.dim * real + (16 if segment.births else 0))


def array_bytes(tree: Any) -> int:
    """Bytes of all arrays of a pytree, or of those it describes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def _bound(size: int, each: int, devices: int) -> int:
    return size // devices * each + 2 * CHUNK_BYTES


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of


def _some(motion: Motion, count: int) -> Particles:
    none = jnp.zeros(count, jnp.int32)
    return begin(motion, jnp.zeros((count, motion.field.dim)), none, none, jnp.zeros(count))

"""What a run needs and gets before it begins: the layout of the field, and batches that fit into memory."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxworlds.batching import plan_batch_size, spread_over
from jaxworlds.memory import device_memory_limit, live_bytes

from ..integrators.base import AbstractIntegrator
from ..motion import Motion
from .checks import is_streamed
from .cutting import CHUNK_BYTES, cut
from .particles import Particles, axes_of, begin
from .schedule import Schedule
from .tuning import Tuning, ruled_layout
from .units import Shared, Unit, tables_of

# Arrays of a particle's size that a step holds at once besides its state: samples, stencils, what a wall made of it.
# Counted in programs of all integrators (RK4 with cubic walls: 22); a bound, not a prediction.
_TEMPORARIES = 32
# The share of the device's memory that a run may take, as in the core's planning.
_SHARE = 0.85


@dataclasses.dataclass(frozen=True)
class Batching:
    """How many particles move at the same time, and why so many."""

    size: int
    reason: str
    predicted_bytes: int
    """What a batch takes on a device at the most, the field not counted."""
    limit_bytes: int


def arranged(
    field: Any, integrator: AbstractIntegrator, layout: str, particles: int, tune: Callable[[], Tuning]
) -> tuple[Any, str]:
    """The field laid out for so many particles, and why in this way; fields without slices stay as they are."""
    if not hasattr(field, "arranged"):
        if layout not in ("auto", "tune"):
            raise ValueError(
                f"`layout` must be 'auto' for a {type(field).__name__}, which holds no slices; got {layout!r}."
            )
        return field, "it holds no slices"
    if layout == "auto":
        resident = described_ring(field) if is_streamed(field) else field
        found = ruled_layout(resident, integrator, particles)
    elif layout == "tune":
        found = tune()
    else:
        return field.arranged(layout), "as given"
    return field.arranged(found.layout), found.reason


def _slices_read(field: Any) -> int:
    """How many slices one sample reads."""
    return min(len(field.times), {"nearest": 1, "linear": 2, "cubic": 4}[field.time_interpolation])


def described_ring(stream: Any) -> Any:
    """The shapes of what a streamed field keeps on the device, the smallest ring: what programs are planned with."""
    from ..fields.ring import RingField

    def smallest() -> RingField:
        return RingField(
            data=jnp.zeros((_slices_read(stream), stream.grid.size, stream.dim), stream.dtype),
            clock=stream.clock,
            grid=stream.grid,
            within=jnp.zeros(2, jnp.int32),
            scale=jnp.ones((), jnp.result_type(float)),
            dim=stream.dim,
            time_interpolation=stream.time_interpolation,
            extrapolation=stream.extrapolation,
            layout=stream.layout,
        )

    return eqx.filter_eval_shape(smallest)


def plan_batches(
    motion: Motion,
    unit: Unit,
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
    shared = Shared(motion, tables_of(schedule, cut(schedule, 1, 1)), reduction)

    def program(particles: Particles, shared: Shared) -> Any:
        with spread_over(mesh):
            return unit(particles, jnp.int32(1), shared)

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


def record_bytes(motion: Motion, unit: Unit, particles: int) -> int:
    """Bytes of one recorded time."""
    real = jnp.dtype(jnp.result_type(float)).itemsize
    vectors = int(unit.positions) + int(unit.positions and unit.velocities)
    return particles * (vectors * motion.field.dim * real + (16 if unit.births else 0))


def array_bytes(tree: Any) -> int:
    """Bytes of all arrays of a pytree, or of those it describes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def _bound(size: int, each: int, devices: int) -> int:
    return size // devices * each + 2 * CHUNK_BYTES


def _multiple(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _some(motion: Motion, count: int) -> Particles:
    none = jnp.zeros(count, jnp.int32)
    return begin(motion, jnp.zeros((count, motion.field.dim)), none, none, jnp.zeros(count))

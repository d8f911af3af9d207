"""The plan of a run: layout, kernel, batches and chunks, and a report that explains them."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxworlds.batching import plan_batch_size, spread_over
from jaxworlds.memory import device_memory_limit, live_bytes
from jaxworlds.rollout import Checkpoint
from jaxworlds.runtime import device_words

from ..boundaries.base import AbstractBoundary
from ..boundaries.reinjection import InletBoundary
from ..fields.epoch import Epoch
from ..integrators.base import AbstractIntegrator, AnyKey
from ..kernels import KERNELS, default_kernel, on_default_backend
from ..motion import Motion
from .checks import is_streamed
from .chunks import CHUNK_BYTES, plan_chunks, plan_ring_chunks, segment_times
from .driver import Job
from .layout import Tuning, choose_layout, ring_shapes, tuned_layout
from .particles import Particles, axes_of, begin
from .reductions import AbstractReduction
from .report import Report
from .schedule import Schedule
from .segment import Segment, Shared, device_tables
from .space_order import fills_in_place, sort_period

# The most particles that a layout is tuned with.
_TUNED = 200_000
# Arrays of a particle's size that a step holds at once besides its state: samples, stencils, what a wall made of it.
# Counted in programs of all integrators (RK4 with cubic walls: 22); a bound, not a prediction.
_TEMPORARIES = 32
# The share of the device's memory that a run may take, as in the core's planning.
_SHARE = 0.85


@dataclasses.dataclass(frozen=True)
class TrackerOptions:
    """The arguments of `create_tracker`."""

    field: Any
    integrator: AbstractIntegrator
    boundary: AbstractBoundary
    key: AnyKey
    batch_size: int | None = None
    record_velocities: bool = False
    progress_callback: Callable[[int, int], Any] | None = None
    mesh: Any = None
    memory_limit_gb: float | None = None
    layout: str = "auto"
    checkpoint: Checkpoint | str | Path | None = None
    reduce: Callable[..., Any] | None = None
    keep_positions: bool = True
    stop_outside: bool = True
    land_on_slices: bool = True
    sort_every: int | None = None
    fused: bool | None = None
    epoch: Epoch | None = None
    """The date of time 0; `field` is without it."""


@dataclasses.dataclass(frozen=True)
class Batching:
    """How many particles move at the same time, and the reason."""

    size: int
    reason: str
    predicted_bytes: int
    """What a batch takes on a device at the most, the field not counted."""
    limit_bytes: int


def plan_run(
    options: TrackerOptions, seeds: Float[np.ndarray, "particles dim"], schedule: Schedule
) -> tuple[Job, Report]:
    """Plan a run: the job, and a report that explains the choices."""
    if isinstance(options.reduce, AbstractReduction):
        options = dataclasses.replace(options, reduce=options.reduce._for_seeds(seeds))
    devices = 1 if options.mesh is None else options.mesh.size
    count = -(-min(options.batch_size or len(seeds), len(seeds)) // devices)  # of each device

    def tune() -> Tuning:
        some = seeds[: min(count, _TUNED)]
        return tuned_layout(options.field, options.integrator, some, schedule.span[0], schedule.dt)

    motion, stream, reasons = _plan_motion(options, count, tune)
    segment = _segment(options, motion, schedule, count)
    batching = plan_batches(options, motion, segment, schedule, len(seeds))
    chunks = plan_chunks(schedule, batching.size, record_bytes(motion, segment, batching.size))
    ring_limit = None
    if stream is not None:
        if stream.limit_bytes is None and options.memory_limit_gb is not None:
            # A ring without a limit of its own has the memory that particles leave.
            ring_limit = max(int(options.memory_limit_gb * 2**30) - batching.predicted_bytes, 1)
        chunks = plan_ring_chunks(schedule, stream, ring_limit, chunks)
    job = Job(
        motion=motion,
        schedule=schedule,
        seeds=seeds,
        segment=segment,
        reduction=options.reduce,
        batch=batching.size,
        chunks=chunks,
        stream=stream,
        stream_limit=ring_limit,
        mesh=options.mesh,
    )
    if job.batches > 1 and options.reduce is not None and not isinstance(options.reduce, AbstractReduction):
        raise ValueError(
            f"`reduce` must be an AbstractReduction, whose parts add up, for {job.batches} batches; got a plain "
            "function. Subclass it, or give `batch_size` and memory for one batch."
        )
    ring = None
    if stream is not None:
        times = segment_times(schedule, chunks.parts, chunks.segments)
        ring = stream.plan(times, ring_limit, longest=chunks.chunk)
    return job, _report(options, job, batching, reasons, ring)


def _plan_motion(
    options: TrackerOptions, count: int, tune: Callable[[], Tuning]
) -> tuple[Motion, Any, tuple[str, str]]:
    """The field laid out for `count` particles of each device; why so, and which kernel takes the steps or why XLA does.

    A field that is read while the run goes on stands beside the motion, which has its shapes; else it is None.
    """
    streamed = is_streamed(options.field)
    resident = ring_shapes(options.field) if streamed else options.field
    motion = Motion(resident, options.integrator, options.boundary, options.key, options.stop_outside)
    by_kernel = options.fused is not False and on_default_backend(options.mesh)
    kernel = default_kernel() if by_kernel else None
    found = choose_layout(motion, options.layout, count, tune, kernel)
    field = options.field if found is None else options.field.with_layout(found.layout)
    motion = dataclasses.replace(motion, field=ring_shapes(field) if streamed else field)
    why_xla = _why_xla(options, motion)
    motion = dataclasses.replace(motion, fused=why_xla is None)
    reason = "it holds no slices" if found is None else found.reason
    by_whom = why_xla or (kernel.words(motion.field) if kernel is not None else "")
    return motion, field if streamed else None, (reason, by_whom)


def _why_xla(options: TrackerOptions, motion: Motion) -> str | None:
    """Why XLA takes the steps; None where a kernel does."""
    here = on_default_backend(options.mesh)
    if options.fused is None:
        kernel = default_kernel()
        if not here:
            return "the mesh lies on devices of another backend"
        if kernel is None:
            return f"there is no kernel for {jax.default_backend()}"
        why_not = kernel.why_not(motion)
        return None if why_not is None else f"the {kernel.name}: {why_not}"
    if not options.fused:
        return "`fused=False`"
    if not here:
        raise ValueError(
            f"`fused` must be False or None with this `mesh`: kernels are made for {jax.default_backend()!r}, the default "
            f"backend; got devices of {options.mesh.devices.flat[0].platform!r}."
        )
    refusals = [f"the {kernel.name}: {why}" for kernel in KERNELS if (why := kernel.why_not(motion))]
    if len(refusals) == len(KERNELS):
        raise ValueError(
            f"`fused` must be False or None here: no kernel takes these steps ({'; '.join(refusals)})."
        )
    return None


def _segment(options: TrackerOptions, motion: Motion, schedule: Schedule, count: int) -> Segment:
    """The compiled part of the run: its records, and how often particles are sorted."""
    if options.reduce is not None and not callable(options.reduce):
        raise TypeError(f"`reduce` must be a function of a Snapshot; got {type(options.reduce).__name__}.")
    sort = sort_period(motion, count, schedule.steps_per_record[1])
    if options.sort_every and options.mesh is not None and fills_in_place(motion):
        raise ValueError(
            "`sort_every` must be 0 or None with `mesh` and an inlet with a rate whose steps no kernel takes: slots are then "
            f"filled in the order in which they lie; got {options.sort_every}."
        )
    return Segment(
        positions=options.keep_positions,
        velocities=options.record_velocities,
        births=isinstance(options.boundary, InletBoundary),
        reduced=options.reduce is not None,
        sort=sort if options.sort_every is None else options.sort_every,
    )


def plan_batches(
    options: TrackerOptions, motion: Motion, segment: Segment, schedule: Schedule, particles: int
) -> Batching:
    """All particles where memory allows, else as many as the compiled program's own figures allow."""
    mesh, limit_gb = options.mesh, options.memory_limit_gb
    devices = 1 if mesh is None else mesh.size
    limit = device_memory_limit() if limit_gb is None else int(limit_gb * 2**30)
    # A bound on the bytes that one particle takes while it moves.
    state = array_bytes(eqx.filter_eval_shape(_some, motion, 8)) / 8
    each = int(2 * state + _TEMPORARIES * motion.field.dim * jnp.result_type(float).itemsize)
    size = _multiple(min(options.batch_size or particles, particles), devices)
    bound = size // devices * each + 2 * CHUNK_BYTES
    if options.batch_size is not None:
        return Batching(size, "as given", bound, limit)
    if bound <= _SHARE * limit - max(live_bytes().values(), default=0):
        return Batching(size, "all at once; they surely fit", bound, limit)
    # What the field takes is live already; the core would count it a second time as an argument.
    field_bytes = array_bytes(motion.field)
    shared = Shared(motion, device_tables(schedule, plan_chunks(schedule, 1, 1)), options.reduce)

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


def record_bytes(motion: Motion, segment: Segment, particles: int) -> int:
    """Bytes of one recorded time."""
    real = jnp.result_type(float).itemsize
    vectors = int(segment.positions) + int(segment.positions and segment.velocities)
    return particles * (vectors * motion.field.dim * real + (16 if segment.births else 0))


def array_bytes(tree: Any) -> int:
    """Bytes of all arrays of a pytree, or of those it describes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of


def _some(motion: Motion, count: int) -> Particles:
    none = jnp.zeros(count, jnp.int32)
    return begin(motion, jnp.zeros((count, motion.field.dim)), none, none, jnp.zeros(count))


def _report(
    options: TrackerOptions, job: Job, batching: Batching, reasons: tuple[str, str], ring: Any
) -> Report:
    schedule, chunks, mesh = job.schedule, job.chunks, options.mesh
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    return Report(
        integrator=type(options.integrator).__name__,
        field=type(options.field).__name__,
        boundary=type(options.boundary).__name__,
        device=device_words(device.device_kind, device.platform)
        + ("" if mesh is None else f" x {mesh.size}"),
        dtype=str(job.seeds.dtype),
        layout=getattr(job.motion.field, "layout", "none"),
        layout_reason=reasons[0],
        fused=job.motion.fused,
        step_reason=reasons[1],
        sort_every=job.segment.sort,
        particles=len(job.seeds),
        batches=job.batches,
        batch_size=batching.size,
        batch_reason=batching.reason,
        recorded_times=len(schedule.times),
        steps=schedule.steps,
        steps_per_record=schedule.steps_per_record,
        dt=schedule.dt,
        dt_reason=schedule.reason,
        slices_met=schedule.slices_met,
        chunk=max(chunks.chunk // chunks.parts, 1),
        field_bytes=array_bytes(job.motion.field) if ring is None else ring.nbytes,
        ring=None if ring is None else str(ring),
        particle_bytes=batching.predicted_bytes,
        record_bytes=len(schedule.times) * record_bytes(job.motion, job.segment, len(job.seeds)),
        limit_bytes=batching.limit_bytes,
        compiled=False,
        compile_seconds=None,
    )

"""From what was asked for to a run as it will be done: layout, kernel, batches and chunks, and a report of all that."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jaxworlds.rollout import Checkpoint
from jaxworlds.runtime import device_words

from ..boundaries.base import AbstractBoundary
from ..boundaries.reinjection import InletBoundary
from ..fields.epoch import Epoch
from ..integrators.base import AbstractIntegrator, AnyKey
from ..kernels import CPU, KERNELS, default_kernel, on_default_backend
from ..kernels.cpu import ruled_layout
from ..motion import Motion
from .accelerating import fills_in_place, sort_period
from .arranging import Batching, arranged, array_bytes, described_ring, plan_batches, record_bytes
from .checks import is_streamed
from .cutting import cut, cut_for_ring, unit_times
from .driving import Job
from .explaining import Report
from .reductions import AbstractReduction
from .schedule import Schedule
from .tuning import Tuning, tuned_layout
from .units import Unit

# The most particles that a layout is tuned with.
_TUNED = 200_000


@dataclasses.dataclass(frozen=True)
class Options:
    """What a tracker was made with; see `create_tracker`."""

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


def prepare(
    options: Options, seeds: Float[np.ndarray, "particles dim"], schedule: Schedule
) -> tuple[Job, Report]:
    """The run as it will be done, and what there is to say about it."""
    if isinstance(options.reduce, AbstractReduction):
        options = dataclasses.replace(options, reduce=options.reduce._begun(seeds))
    devices = 1 if options.mesh is None else options.mesh.size
    count = -(-min(options.batch_size or len(seeds), len(seeds)) // devices)  # of each device

    def tune() -> Tuning:
        some = seeds[: min(count, _TUNED)]
        return tuned_layout(options.field, options.integrator, some, schedule.span[0], schedule.dt)

    field, why = _arranged(options, count, tune)
    stream = field if is_streamed(field) else None
    motion, why_xla = _motion(options, field if stream is None else described_ring(stream))
    unit = _unit(options, motion, schedule, count)
    batching = plan_batches(
        motion,
        unit,
        options.reduce,
        schedule,
        len(seeds),
        options.batch_size,
        options.memory_limit_gb,
        options.mesh,
    )
    cutting = cut(schedule, batching.size, record_bytes(motion, unit, batching.size))
    ring_limit = _ring_limit(options, stream, batching)
    if stream is not None:
        cutting = cut_for_ring(schedule, stream, ring_limit, cutting)
    job = Job(
        motion=motion,
        schedule=schedule,
        seeds=seeds,
        barred=None,
        unit=unit,
        reduction=options.reduce,
        batch=batching.size,
        cutting=cutting,
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
        times = unit_times(schedule, cutting.parts, cutting.units)
        ring = stream.plan(times, ring_limit, longest=cutting.chunk)
    return job, _report(options, job, batching, (why, why_xla), ring)


def _arranged(options: Options, count: int, tune: Callable[[], Tuning]) -> tuple[Any, str]:
    """The field laid out for the kernel that will take its steps, or for XLA; and why in this way."""
    given = options.field
    resident = described_ring(given) if is_streamed(given) else given
    free = options.fused is not False and options.layout == "auto" and on_default_backend(options.mesh)
    if free and CPU.refusal(options.integrator, resident, options.boundary) is None:
        found = ruled_layout(resident, count)
        if found is not None:
            return given.arranged(found[0]), found[1]
    return arranged(given, options.integrator, options.layout, count, tune)


def _motion(options: Options, resident: Any) -> tuple[Motion, str | None]:
    """What moves the particles, by a kernel where one takes the steps; and why not where none does."""
    motion = Motion(resident, options.integrator, options.boundary, options.key, options.stop_outside)
    here = on_default_backend(options.mesh)
    if options.fused and not here:
        raise ValueError(
            f"`fused` must be False or None with this `mesh`: kernels are made for {jax.default_backend()!r}, the default "
            f"backend; got devices of {options.mesh.devices.flat[0].platform!r}."
        )
    if options.fused and all(kernel.why_not(motion) for kernel in KERNELS):
        reasons = "; ".join(f"the {kernel.name}: {kernel.why_not(motion)}" for kernel in KERNELS)
        raise ValueError(f"`fused` must be False or None here, where no kernel takes the steps ({reasons}).")
    why_not = _why_not(motion, here) if options.fused is None else None if options.fused else "`fused=False`"
    return dataclasses.replace(motion, fused=why_not is None), why_not


def _why_not(motion: Motion, here: bool) -> str | None:
    """Why no kernel of this backend takes the steps; None where one does."""
    kernel = default_kernel()
    if not here:
        return "the mesh lies on devices of another backend"
    if kernel is None:
        return f"there is no kernel for {jax.default_backend()}"
    why_not = kernel.why_not(motion)
    return None if why_not is None else f"the {kernel.name}: {why_not}"


def _unit(options: Options, motion: Motion, schedule: Schedule, count: int) -> Unit:
    """What is recorded, and how often particles are sorted."""
    if options.reduce is not None and not callable(options.reduce):
        raise TypeError(f"`reduce` must be a function of a Snapshot; got {type(options.reduce).__name__}.")
    sort = sort_period(motion, count, schedule.steps_per_record[1])
    if options.sort_every and options.mesh is not None and fills_in_place(motion):
        raise ValueError(
            "`sort_every` must be 0 or None with `mesh` and an inlet with a rate whose steps no kernel takes: slots are then "
            f"filled in the order in which they lie; got {options.sort_every}."
        )
    return Unit(
        positions=options.keep_positions,
        velocities=options.record_velocities,
        births=isinstance(options.boundary, InletBoundary),
        reduced=options.reduce is not None,
        sort=sort if options.sort_every is None else options.sort_every,
    )


def _ring_limit(options: Options, stream: Any, batching: Batching) -> int | None:
    """Bytes that a ring may take where it has no limit of its own: what the particles leave."""
    if stream is None or stream.limit_bytes is not None or options.memory_limit_gb is None:
        return None
    return max(int(options.memory_limit_gb * 2**30) - batching.predicted_bytes, 1)


def _report(
    options: Options, job: Job, batching: Batching, reasons: tuple[str, str | None], ring: Any
) -> Report:
    schedule, cutting, mesh = job.schedule, job.cutting, options.mesh
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
        sort_every=job.unit.sort,
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
        chunk=max(cutting.chunk // cutting.parts, 1),
        field_bytes=array_bytes(job.motion.field) if ring is None else ring.nbytes,
        ring=None if ring is None else str(ring),
        particle_bytes=batching.predicted_bytes,
        record_bytes=len(schedule.times) * record_bytes(job.motion, job.unit, len(job.seeds)),
        limit_bytes=batching.limit_bytes,
        compiled=False,
        compile_seconds=None,
    )

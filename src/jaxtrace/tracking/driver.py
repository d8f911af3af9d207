"""The driver of a run: batches of particles one after the other, each in chunks of one compiled program."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxworlds.compiling import Compiled, compile_ahead
from jaxworlds.kernels import warn_of_missing_kernels
from jaxworlds.rollout import Checkpoint, Chunk, Rollout, resume, run
from jaxworlds.store import MisfitError

from ..boundaries.reinjection import InletBoundary
from ..motion import Motion
from .chunks import ChunkPlan, Records, segment_edges, segment_times
from .particles import NEVER, NOTHING, OUTSIDE, Particles, axes_of, begin, map_particles, step_particles
from .schedule import Schedule
from .segment import Segment, Shared, device_tables


@dataclasses.dataclass(frozen=True)
class Job:
    """A planned run."""

    motion: Motion
    """With the grid's field in place of a streamed one, which `stream` holds."""
    schedule: Schedule
    seeds: Float[np.ndarray, "particles dim"]
    segment: Segment
    reduction: Any
    batch: int
    """Particles of a batch, a multiple of the devices."""
    chunks: ChunkPlan
    barred: Bool[np.ndarray, " particles"] | None = None
    """Which particles begin where the boundary would not let them: they end at once, where they are."""
    stream: Any = None
    stream_limit: int | None = None
    mesh: Any = None
    checkpoint: Checkpoint | None = None
    resume: bool = False
    progress: bool | None = False
    callback: Callable[[int, int], Any] | None = None

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return -(-len(self.seeds) // self.batch)

    def records_of(self, batch: Rollout) -> int:
        """How many recorded times a batch reached."""
        return min(batch.step // self.chunks.parts, len(self.schedule.times))

    def rows_of(self, number: int) -> tuple[int, int]:
        """The first particle of a batch, and the first of the next."""
        return number * self.batch, min(len(self.seeds), (number + 1) * self.batch)


def run_job(job: Job) -> tuple[Records, list[Rollout]]:
    """All batches in turn, until one is stopped."""
    warn_of_missing_kernels(len(job.seeds) * job.schedule.steps)
    records = Records(len(job.schedule.times), len(job.seeds))
    done: list[Rollout] = []
    for number in range(job.batches):
        done.append(_run_batch(job, number, records))
        if done[-1].outcome != "finished":
            break
    return records, done


def warm_up(job: Job) -> Rollout:
    """The program of a run compiled and run without a step."""
    with _open_batch(job, 0) as (particles, options):
        if "shared" in options:
            none = jnp.zeros_like(options["shared"].tables.last)
            options["shared"] = eqx.tree_at(
                lambda s: (s.tables.first, s.tables.last), options["shared"], (none, none)
            )
        return run(
            job.segment,
            particles,
            job.chunks.chunk,
            chunk=job.chunks.chunk,
            record_every=job.chunks.every,
            keep_records=False,
            progress=False,
            donate_carry=True,
            **options,
        )


def shapes_of(job: Job) -> Particles:
    """The shapes of a batch's particles."""
    return start(job, job.motion, *job.rows_of(0), only_shapes=True)


def _run_batch(job: Job, number: int, records: Records) -> Rollout:
    first, last = job.rows_of(number)
    chunks = job.chunks
    saved = job.checkpoint
    if saved is not None:
        saved = dataclasses.replace(saved, folder=Path(saved.folder) / f"batch-{number:05d}")
    edges = segment_edges(job.schedule, chunks.parts, chunks.segments)

    def on_chunk(chunk: Chunk) -> Any:
        if chunk.records is not None and saved is None:
            count = len(chunk.records["missed"])
            records.take(chunk.records, chunks, chunk.step - count * chunks.every, first, last)
        if job.callback is None:
            return None
        steps = job.schedule.steps
        done = int(edges[min(chunk.step, chunks.segments) - 1])
        return job.callback(number * steps + done, job.batches * steps)

    goes_on = job.resume and saved is not None and any(Path(saved.folder).glob("step-*.jwstate"))
    with _open_batch(job, number, only_shapes=goes_on) as (particles, options):
        options |= {"on_chunk": on_chunk, "progress": job.progress, "keep_records": saved is not None}
        if goes_on:
            assert saved is not None
            devices = 1 if job.mesh is None else job.mesh.size

            def reorder(particles: Particles) -> Particles:
                return sort_by_number(particles, devices, sorts=job.segment.sort > 0)

            # What older checkpoints lack: there, particles ended with the step, and no field was broken.
            ones = np.ones(particles.identity.shape, particles.position.dtype)
            added = dict.fromkeys([".share", "['share']", ".memory.reached"], ones)
            added[".memory.broken"] = np.zeros(ones.shape, bool)
            try:
                rollout = resume(job.segment, particles, saved, restored=reorder, added=added, **options)
            except MisfitError as error:
                raise MisfitError(
                    f"`checkpoint` {saved.folder} belongs to another run: other seeds, times, field, integrator or boundary. "
                    "Give `resume` what that run was given, or take another folder."
                ) from error
        else:
            rollout = run(
                job.segment,
                particles,
                chunks.segments,
                chunk=chunks.chunk,
                record_every=chunks.every,
                checkpoint=saved,
                donate_carry=True,
                **options,
            )
    if rollout.records is not None:
        records.take(rollout.records, chunks, 0, first, last)
    return rollout


@contextlib.contextmanager
def _open_batch(
    job: Job, number: int, only_shapes: bool = False
) -> Iterator[tuple[Particles, dict[str, Any]]]:
    """The particles of a batch, and the options of `run` that hold what all its segments share."""
    first, last = job.rows_of(number)
    chunks = job.chunks
    motion, boundary, share = job.motion, job.motion.boundary, (last - first) / len(job.seeds)
    # An inlet's rate counts for all particles: each batch gives its share of them.
    if isinstance(boundary, InletBoundary) and boundary.rate is not None and share != 1:
        motion = eqx.tree_at(lambda m: m.boundary.rate, motion, boundary.rate * share)
    tables = device_tables(job.schedule, chunks)
    origin = None if job.checkpoint is None else _fingerprint(job, first, last)

    def into(ring: Any) -> Shared:
        return Shared(dataclasses.replace(motion, field=ring), tables, job.reduction, origin)

    with contextlib.ExitStack() as stack:
        field, shared = motion.field, {}
        if job.stream is None:
            shared["shared"] = into(field)
        else:
            where = None
            if job.mesh is not None:
                where = jax.sharding.NamedSharding(job.mesh, jax.sharding.PartitionSpec())
            times = segment_times(job.schedule, chunks.parts, chunks.segments)
            options = {"longest": chunks.chunk, "sharding": where, "into": into}
            keeper = stack.enter_context(job.stream.open(times, job.stream_limit, **options))
            field = keeper.field_at(0, chunks.chunk)
            shared["shared_at"] = keeper.shared_at
        begins = dataclasses.replace(motion, field=field)
        particles = start(job, begins, first, last, only_shapes)
        yield particles, {**shared, "axes": axes_of(particles), "mesh": job.mesh}


def start(job: Job, motion: Motion, first: int, last: int, only_shapes: bool = False) -> Particles:
    """The particles of a batch, filled up with ones that are never released."""
    missing = job.batch - (last - first)
    seeds = np.concatenate([job.seeds[first:last], np.repeat(job.seeds[last - 1 : last], missing, 0)])
    begun = np.concatenate([job.schedule.releases[first:last], np.full(missing, NEVER)])
    times = np.concatenate([job.schedule.release_times[first:last], np.full(missing, job.schedule.edges[0])])
    if job.stream is not None:
        times = np.full_like(times, job.schedule.edges[0])  # the only slices that are there
    arguments = (
        motion,
        jnp.asarray(seeds, float),
        jnp.arange(first, first + job.batch, dtype=jnp.int32),
        jnp.asarray(begun, jnp.int32),
        jnp.asarray(times, float),
    )
    if only_shapes:
        return eqx.filter_eval_shape(begin, *arguments)
    particles = _begin(*arguments)
    if job.barred is None or not job.barred[first:last].any():
        return particles
    barred = np.append(job.barred[first:last], np.zeros(missing, bool))
    ends = np.where(barred, begun, NEVER), np.where(barred, OUTSIDE, NOTHING)
    ended, cause = (jnp.asarray(values, jnp.int32) for values in ends)
    return dataclasses.replace(particles, ended=ended, cause=cause)


def sort_by_number(particles: Particles, devices: int, sorts: bool) -> Particles:
    """Particles of a checkpoint as a segment wants them: on each device those that follow one another, sorted or by number.

    The run may have sorted them on fewer devices, or where this one does not.
    """
    numbers = np.asarray(particles.identity)
    held = np.sort(numbers.reshape(devices, -1), 1) if sorts else numbers
    if (np.diff(held.reshape(-1)) == 1).all():
        return particles
    order = np.argsort(numbers)
    return map_particles(lambda leaf: leaf[order], particles)


@eqx.filter_jit
def _begin(motion: Motion, *arguments: Any) -> Particles:
    """A program with a name of its own, which compile counts watch."""
    return begin(motion, *arguments)


def _fingerprint(job: Job, first: int, last: int) -> Any:
    """Digest of seeds, releases and batch: a checkpoint of another run is refused."""
    digest = hashlib.blake2b(digest_size=16)
    for values in (job.seeds[first:last], job.schedule.releases[first:last], np.asarray([first, last])):
        digest.update(np.ascontiguousarray(values).tobytes())
    return jnp.asarray(np.frombuffer(digest.digest(), np.uint32))


def compiled_step(job: Job) -> Compiled:
    """One step of a batch: `(motion, particles, row, t, dt) -> (particles, hits)`."""
    real = jax.ShapeDtypeStruct((), jnp.result_type(float))
    row = jax.ShapeDtypeStruct((), jnp.int32)
    return compile_ahead(_step, job.motion, shapes_of(job), row, real, real)


def compiled_simulate(job: Job) -> Compiled:
    """The steps up to a recorded time: `(particles, number of the time, shared) -> (particles, record)`."""
    shared = Shared(job.motion, device_tables(job.schedule, job.chunks), job.reduction)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return compile_ahead(_run_segment, job.segment, shapes_of(job), number, shared)


_step = eqx.filter_jit(step_particles)
_run_segment = eqx.filter_jit(Segment.__call__)

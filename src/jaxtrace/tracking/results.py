"""The trajectory from the records of all batches."""

import platform
import time
from typing import Any

import jax
import numpy as np

from jaxworlds.rollout import Rollout, to_host
from jaxworlds.runtime import device_words

from ..boundaries.base import Unbounded, lie_inside
from ..fields.epoch import Epoch
from ..fields.grid_series import AbstractSeries
from ..fields.unstructured import UnstructuredGrid
from .chunks import Records, segment_edges
from .driver import Job
from .particles import EXHAUSTED, NEVER, NOT_FINITE, NOTHING, OUTSIDE, Outcome, Particles
from .reductions import AbstractReduction
from .trajectory import Trajectory


def collect(
    job: Job,
    records: Records,
    batches: list[Rollout],
    ids: np.ndarray,
    began: float,
    epoch: Epoch | None = None,
) -> Trajectory:
    """Cut the records to the times reached, and find the outcome of every particle. The call began at `began`."""
    schedule = job.schedule
    reached_by = [*map(job.records_of, batches), *[0] * (job.batches - len(batches))]
    reached = max(reached_by)
    times = schedule.times[:reached]
    ends = _ends(job, batches)
    ended = ends["ended"]
    alive = ages = None
    kept = {name: values[:reached] for name, values in records.arrays.items()}
    if job.segment.positions and not kept:
        kept = {"positions": np.zeros((0, *job.seeds.shape), job.seeds.dtype)}
    if job.segment.births and "begun" in kept:
        share = kept.get("share", np.ones((1, 1)))
        alive, ages = _lives(job, reached, kept["begun"], kept["ended"], share)
    elif job.segment.positions:
        alive, ages = _plain_lives(job, reached, ends)
    if alive is not None and len(set(reached_by)) > 1:
        sizes = [b - a for a, b in map(job.rows_of, range(job.batches))]
        alive = alive & (np.arange(reached)[:, None] < np.repeat(reached_by, sizes))
    outcomes = _outcomes(job, batches, ends)
    hits = records.sums.get("hits")
    names = job.motion.boundary.patches
    counts = dict.fromkeys(names, 0)
    if hits is not None:
        for name, count in zip(names, hits[:reached].sum(0).tolist(), strict=True):
            counts[name] += count
    reduced = jax.tree.map(lambda leaf: leaf[:reached], records.sums.get("reduced"))
    if isinstance(job.reduction, AbstractReduction) and reduced is not None:
        reduced = job.reduction.finish(reduced)
    return Trajectory(
        positions=kept.get("positions"),
        times=times,
        ids=ids,
        alive=alive,
        ages=ages,
        release_times=schedule.release_times,
        end_times=np.where(ended != NEVER, _times_within(job, ended, ends["share"]), np.nan),
        outcomes=outcomes,
        patches=np.where(ends["cause"] >= 0, ends["cause"], -1).astype(np.int32),
        patch_names=names,
        patch_counts=counts,
        velocities=kept.get("velocities"),
        generation=kept.get("generation"),
        reduced=reduced,
        outcome=batches[-1].outcome if batches else "interrupted",
        epoch=epoch,
        # The last, so that it counts all this.
        info=_info(job, batches, records, reached, time.perf_counter() - began),
    )


def _ends(job: Job, batches: list[Rollout]) -> dict[str, np.ndarray]:
    """When and why each particle ended, as the last step left it."""
    count = len(job.seeds)
    found = {"ended": np.full(count, NEVER), "cause": np.full(count, NOTHING), "share": np.ones(count)}
    for number, batch in enumerate(batches):
        first, last = job.rows_of(number)
        carry = batch.carry
        # Particles may have been sorted in space; batches are padded at their end.
        order = np.argsort(to_host(carry.identity)) if job.segment.sort else slice(None)
        for name, values in found.items():
            if (leaf := getattr(carry, name)) is not None:
                values[first:last] = to_host(leaf)[order][: last - first]
        if job.records_of(batch) == len(job.schedule.times) and not job.segment.births:
            rows = np.arange(first, last)
            moving = (found["ended"][rows] == NEVER) & (job.schedule.releases[rows] <= job.schedule.steps)
            rows = rows[moving & _ends_outside(job, carry)[order][: last - first]]
            found["ended"][rows], found["cause"][rows] = job.schedule.steps, OUTSIDE
    return found


def _ends_outside(job: Job, carry: Particles) -> np.ndarray:
    """Which particles the last step led out of the field: steps find that at their beginning, and there is no other one."""
    motion, stream = job.motion, job.stream
    if not motion.stop_outside or not isinstance(motion.field, AbstractSeries):
        return np.zeros(len(carry.ended), bool)
    grid = motion.field.grid if stream is None else stream.grid  # of a stream the motion has the shapes only
    if isinstance(grid, UnstructuredGrid) and not isinstance(motion.boundary, Unbounded):
        # Walls hold them, and a search through a mesh takes seconds to compile.
        return np.zeros(len(carry.ended), bool)
    return ~lie_inside(grid, *to_host((carry.position, carry.hint)))


def _times_within(job: Job, ended: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The times at which particles ended: edges of the schedule, or within the step before the edge."""
    edges = job.schedule.edges
    stop = np.minimum(ended, len(edges) - 1)
    step = edges[stop] - edges[np.maximum(stop - 1, 0)]
    return np.where(share < 1, edges[stop] - (1 - share.astype(np.float64)) * step, edges[stop])


def _lives(
    job: Job, reached: int, begun: np.ndarray, ended: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which particles are on their way at each recorded time, and for how long they are or were."""
    edges, marks = job.schedule.edges, job.schedule.marks[:reached, None]
    last = len(edges) - 1
    stop = np.minimum(np.minimum(ended, marks), last)
    until = np.where(ended <= marks, _times_within(job, ended, share), edges[stop])
    since = np.abs(until - edges[np.minimum(begun, last)])
    ages = np.where(stop > begun, since, 0.0).astype(job.seeds.dtype)
    return (begun <= marks) & (marks < ended), ages


def _plain_lives(job: Job, reached: int, ends: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The same without births: most particles live from the first time to the last, and share one column."""
    begun, ended, share = job.schedule.releases, ends["ended"], ends["share"]
    special = np.flatnonzero((begun > 0) | (ended != NEVER))
    shape = (reached, len(begun))
    alive, ages = _lives(job, reached, np.zeros(1, np.int64), np.full(1, NEVER), np.ones(1))
    alive, ages = np.broadcast_to(alive, shape), np.broadcast_to(ages, shape)
    if special.size:
        alive, ages = alive.copy(), ages.copy()
        alive[:, special], ages[:, special] = _lives(
            job, reached, begun[special], ended[special], share[special]
        )
    return alive, ages


def _outcomes(job: Job, batches: list[Rollout], ends: dict[str, np.ndarray]) -> np.ndarray:
    cause = ends["cause"]
    outcomes = np.full(len(cause), int(Outcome.MOVING), np.int8)
    endings = np.array([Outcome[name] for name in job.motion.boundary.endings] or [Outcome.LEFT], np.int8)
    outcomes[cause >= 0] = endings[cause[cause >= 0]]
    outcomes[cause == OUTSIDE] = Outcome.OUTSIDE
    outcomes[(cause == OUTSIDE) & (ends["ended"] <= job.schedule.releases)] = Outcome.BEGAN_OUTSIDE
    outcomes[cause == EXHAUSTED] = Outcome.STEP_LIMIT
    outcomes[cause == NOT_FINITE] = Outcome.NOT_FINITE
    for number in range(job.batches):
        first, last = job.rows_of(number)
        if number >= len(batches) or job.records_of(batches[number]) == 0:
            outcomes[first:last] = Outcome.NOT_COMPUTED
            continue
        edge = job.schedule.marks[job.records_of(batches[number]) - 1]
        outcomes[first:last][job.schedule.releases[first:last] > edge] = Outcome.UNRELEASED
    return outcomes


def _info(job: Job, batches: list[Rollout], records: Records, reached: int, seconds: float) -> dict[str, Any]:
    """Device, steps and speed of the run: of the whole call and of the compiled loop alone, both without compiling."""
    compiling = sum(batch.compile_seconds for batch in batches)
    running = sum(batch.seconds for batch in batches)
    edges = np.concatenate([[0], segment_edges(job.schedule, job.chunks.parts, job.chunks.table)])
    work = 0
    for number, batch in enumerate(batches):
        first, last = job.rows_of(number)
        begin, end = np.minimum([batch.first_step, batch.step], len(edges) - 1)
        work += int(edges[end] - edges[begin]) * (last - first)
    missed = records.sums.get("missed")
    device = jax.devices()[0] if job.mesh is None else job.mesh.devices.flat[0]
    return {
        "integrator": type(job.motion.integrator).__name__,
        "device": device_words(device.device_kind, device.platform),
        "devices": 1 if job.mesh is None else job.mesh.size,
        "dtype": str(job.seeds.dtype),
        "layout": getattr(job.motion.field, "layout", None),
        "earth_radius": None if job.motion.field.sphere is None else job.motion.field.sphere.radius,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "steps": job.schedule.steps,
        "dt": job.schedule.dt,
        "batches": job.batches,
        "batch_size": job.batch,
        "seconds": seconds,
        "compile_seconds": compiling,
        "particle_steps": work,
        "particle_steps_per_second": work / max(seconds - compiling, 1e-9),
        "loop_seconds": running - compiling,
        "loop_particle_steps_per_second": work / max(running - compiling, 1e-9),
        "inlet_missed": int(missed[reached - 1]) if missed is not None and reached else 0,
    }

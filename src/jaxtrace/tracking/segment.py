"""The compiled part of a tracker: the steps from one recorded time to the next, and what is recorded there."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from jaxworlds.batching import on_each_device, spreading_mesh

from ..fields.base import Index, Scalar
from ..fields.grid_series import AbstractSeries
from ..motion import Motion
from .chunks import ChunkPlan, segment_edges
from .particles import Particles, axes_of, map_particles, moving_mask, step_particles
from .schedule import Schedule
from .space_order import curve_order, put_in_slots


class Tables(eqx.Module):
    """A schedule on the device. Segment i takes the steps `first[i]` to `last[i]` (not included)."""

    t: Float[Array, " rows"]
    dt: Float[Array, " rows"]
    first: Int32[Array, " segments"]
    last: Int32[Array, " segments"]
    parts: Index
    """How many segments lie between two recorded times."""


class Snapshot(eqx.Module):
    """All particles of a batch at one recorded time, as a reduction sees them."""

    position: Float[Array, "n dim"]
    velocity: Float[Array, "n dim"] | None
    """The field's velocity, or the particles' own if they have inertia; None unless velocities are recorded."""
    moving: Bool[Array, " n"]
    """Which ones are released and have not ended."""
    identity: Int32[Array, " n"]
    t: Scalar


class Shared(eqx.Module):
    """What all segments read: arguments of the program that stay as they are."""

    motion: Motion
    tables: Tables
    reduction: PyTree
    origin: PyTree = None
    """A fingerprint of what the run began with, so that a checkpoint of another one is refused."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """The core's step: a stretch of the schedule without records inside, then the record at its end.

    Over a mesh every device steps and sorts the particles it holds, whose numbers follow one another.
    """

    positions: bool = True
    velocities: bool = False
    births: bool = False
    reduced: bool = False
    sort: int = 0
    """Steps from one sorting of the particles in space to the next; 0 leaves them in order."""

    def __call__(
        self, particles: Particles, number: Index, shared: Shared
    ) -> tuple[Particles, dict[str, Any]]:
        """Take the segment's steps and say what is recorded at its end."""
        motion, tables = shared.motion, shared.tables
        first, last = tables.first[number], tables.last[number]
        axes = axes_of(particles)
        steps = on_each_device(self.steps, (None, None, axes, None, None), (axes, 0))
        particles, hits = steps(motion, tables, particles, first, last)
        begins = number % tables.parts == 0
        total = jnp.where(begins, 0, particles.hits) + hits.sum(0, dtype=jnp.int32)
        particles = dataclasses.replace(particles, hits=total)
        return particles, self.record(motion, shared.reduction, particles, last, tables.t[last])

    def steps(
        self, motion: Motion, tables: Tables, particles: Particles, first: Index, last: Index
    ) -> tuple[Particles, Int32[Array, "1 patches"]]:
        """The steps of a segment by one device, sorted in space every so often, and how often each patch was met."""
        none = jnp.zeros((1, particles.hits.shape[0]), jnp.int32)
        mesh = spreading_mesh()
        devices = () if mesh is None else mesh.axis_names

        def step(row: Index, carry: Any) -> Any:
            particles, hits = carry
            particles, more = step_particles(motion, particles, row, tables.t[row], tables.dt[row], devices)
            return particles, hits + more

        def stretch(number: Index, carry: Any) -> Any:
            particles, hits = carry
            begin = first + number * self.sort
            end = jnp.minimum(begin + self.sort, last)
            return jax.lax.fori_loop(begin, end, step, (sort_in_space(motion, particles), hits))

        if self.sort:
            stretches = (last - first + self.sort - 1) // self.sort
            return jax.lax.fori_loop(0, stretches, stretch, (particles, none))
        return jax.lax.fori_loop(first, last, step, (particles, none))

    def record(
        self, motion: Motion, reduction: Any, particles: Particles, edge: Index, t: Scalar
    ) -> dict[str, Any]:
        """The record of one recorded time."""
        out: dict[str, Any] = {"hits": particles.hits, "missed": particles.missed}
        velocity = None
        if self.velocities:
            sampled = on_each_device(velocities, (None, axes_of(particles), None), 0)
            velocity = sampled(motion, particles, t)
        if self.positions:
            out["positions"] = particles.position
            if self.velocities:
                out["velocities"] = velocity
            if self.births:
                out |= {name: getattr(particles, name) for name in ("begun", "ended", "generation")}
                out |= {} if particles.share is None else {"share": particles.share}
        if self.sort:
            each = {name: values for name, values in out.items() if name not in ("hits", "missed")}
            out |= on_each_device(put_in_slots, 0, 0)(each, particles.identity)
        if self.reduced:
            moving = moving_mask(particles, edge)
            out["reduced"] = reduction(Snapshot(particles.position, velocity, moving, particles.identity, t))
        return out


def sort_in_space(motion: Motion, particles: Particles) -> Particles:
    """Particles that are near in space near in memory, of those that this device holds."""
    assert isinstance(motion.field, AbstractSeries)
    order = curve_order(particles.position, *motion.field.grid.bounds)
    return map_particles(lambda leaf: leaf[order], particles)


def velocities(motion: Motion, particles: Particles, t: Scalar) -> Float[Array, "n dim"]:
    """The field's velocities where the particles are, or their own."""
    if particles.velocity is not None:
        sphere = motion.field.sphere if motion.integrator.steps_in_metres else None
        if sphere is None:
            return particles.velocity
        return jax.vmap(sphere.rates)(particles.position, particles.velocity)
    moment = motion.field.at(t)
    return jax.vmap(lambda x, hint: moment.sample(x, hint).velocity)(particles.position, particles.hint)


def device_tables(schedule: Schedule, chunks: ChunkPlan) -> Tables:
    """The schedule as arrays of the planned sizes; rows and segments behind the last are empty."""
    real = jnp.result_type(float)
    last = segment_edges(schedule, chunks.parts, chunks.table)
    t = np.concatenate([schedule.edges, np.full(chunks.rows - len(schedule.edges), schedule.edges[-1])])
    return Tables(
        t=jnp.asarray(t, real),
        dt=jnp.asarray(np.diff(t, append=t[-1]), real),
        first=jnp.asarray(np.concatenate([[0], last[:-1]]), jnp.int32),
        last=jnp.asarray(last, jnp.int32),
        parts=jnp.asarray(chunks.parts, jnp.int32),
    )

"""The particles of a batch between two steps, and one step of all of them."""

import dataclasses
import enum
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from ..boundaries.reinjection import InletBoundary, ranks_in_place
from ..fields.base import Index, Scalar
from ..fields.grid_series import AbstractSeries
from ..integrators.base import particle_key
from ..kernels import AbstractKernel, Causes, KernelState, kernel_for_layout
from ..motion import Motion, move

NEVER = np.iinfo(np.int32).max
"""The edge at which a living particle ends, and at which padding is released."""

# Why a particle ended: the number of the patch, or one of these.
NOTHING, OUTSIDE, EXHAUSTED, NOT_FINITE = -1, -2, -3, -4


class Outcome(enum.IntEnum):
    """The fate of a particle: a number with a sentence."""

    sentence: str
    """The outcome as a phrase."""

    def __new__(cls, number: int, sentence: str) -> "Outcome":
        made = int.__new__(cls, number)
        made._value_, made.sentence = number, sentence
        return made

    MOVING = 0, "still moving at the last time"
    LEFT = 1, "left through a patch of the boundary"
    OUTSIDE = 2, "left the field"
    UNRELEASED = 3, "not released yet"
    STEP_LIMIT = 4, "stopped where the adaptive integrator ran out of steps"
    NOT_COMPUTED = 5, "not computed before the run was interrupted"
    NOT_FINITE = 6, "stopped where the field gives no finite velocity (NaN or infinity)"
    BEGAN_OUTSIDE = 7, "began outside the field or its boundary, or on land"
    STRANDED = 8, "stranded on the coast"
    LEFT_EDGE = 9, "left over the open edge of the grid"


class Particles(eqx.Module):
    """A batch of particles; those not yet released and those that ended rest where they are.

    Times are edges of the schedule: particle i moves in step k when `begun[i] <= k < ended[i]`.
    """

    position: Float[Array, "n dim"]
    rest: Float[Array, "n dim"]
    """The rounding residual of the position. Names of fields are those in checkpoint files: do not rename them."""
    velocity: Float[Array, "n dim"] | None
    """Of particles with inertia; the others have the field's."""
    hint: PyTree
    memory: PyTree
    identity: Int32[Array, " n"]
    begun: Int32[Array, " n"]
    ended: Int32[Array, " n"]
    cause: Int32[Array, " n"]
    """The patch that ended the particle; -1 nothing, -2 outside the field, -3 out of steps, -4 no finite velocity."""
    share: Float[Array, " n"] | None
    """The part of the last step's time before the particle ended; None where none ends within a step."""
    generation: Int32[Array, " n"] | None
    """How often an inlet has refilled the slot; None without an inlet."""
    hits: Int32[Array, " patches"]
    """How often each patch was met since the last recorded time."""
    owed: Scalar
    """The fraction of a particle that the inlet still owes."""
    missed: Index
    """How many births found no free slot."""


def begin(
    motion: Motion,
    position: Float[Array, "n dim"],
    identity: Int32[Array, " n"],
    begun: Int32[Array, " n"],
    t: Float[Array, " n"],
) -> Particles:
    """Particles before the first step; those with inertia start with the field's velocity at their own time."""
    integrator, field = motion.integrator, motion.field
    if integrator.steps_in_metres:
        field = field.in_metres
    count = position.shape[0]
    velocity = None
    if integrator.inertia:
        state = jax.vmap(lambda x, t: integrator.start(field, x, t))(position, t)
        velocity, hint, memory = state.velocity, state.hint, state.memory
    else:
        hint = jax.vmap(field.start)(position)
        memory = jax.vmap(integrator.remember)(position)
    # A particle may end within a step at a wall, or where an adaptive integrator gives up.
    progress = jax.eval_shape(lambda x: integrator.progress(integrator.remember(x)), position[0])
    within = motion.boundary._ends_some or progress is not None
    return Particles(
        position=position,
        rest=jnp.zeros_like(position),
        velocity=velocity,
        hint=hint,
        memory=memory,
        identity=identity,
        begun=begun,
        ended=jnp.full(count, NEVER, jnp.int32),
        cause=jnp.full(count, NOTHING, jnp.int32),
        share=jnp.ones(count, position.dtype) if within else None,
        generation=jnp.zeros(count, jnp.int32) if isinstance(motion.boundary, InletBoundary) else None,
        hits=jnp.zeros(len(motion.boundary.patches), jnp.int32),
        owed=jnp.zeros((), position.dtype),
        missed=jnp.zeros((), jnp.int32),
    )


def axes_of(particles: Particles) -> Particles:
    """Which leaves have an axis of particles (0) and which serve all (None), as the core's `axes` wants it."""
    axes = jax.tree.map(lambda _: 0, particles)
    return eqx.tree_at(lambda p: (p.hits, p.owed, p.missed), axes, (None, None, None))


def map_particles(function: Callable[..., Array], particles: Particles, *others: Particles) -> Particles:
    """The function of every array that has an axis of particles; what serves all of them stays as it is."""
    return jax.tree.map(
        lambda axis, leaf, *more: leaf if axis is None else function(leaf, *more),
        axes_of(particles),
        particles,
        *others,
        is_leaf=lambda axis: axis is None,
    )


def moving_mask(particles: Particles, edge: Index) -> Bool[Array, " n"]:
    """Which particles are on their way at an edge."""
    return (particles.begun <= edge) & (edge < particles.ended)


def step_particles(
    motion: Motion, particles: Particles, row: Index, t: Scalar, dt: Scalar, devices: tuple[str, ...] = ()
) -> tuple[Particles, Int32[Array, "1 patches"]]:
    """Step `row` for all particles, and how often each patch was met.

    `devices` names the axes of the mesh where this is done on each of its devices with the particles it holds.
    """
    take = _step_by_kernel if motion.fused else _step_by_xla
    after, hits = take(motion, particles, row, t, dt)
    if isinstance(motion.boundary, InletBoundary):
        after = refill(motion, motion.boundary, after, row, t + dt, dt, devices)
    return after, hits


def _step_by_xla(
    motion: Motion, p: Particles, row: Index, t: Scalar, dt: Scalar
) -> tuple[Particles, Int32[Array, "1 patches"]]:
    """The step of `jaxtrace.motion` for each particle."""
    batched = (p.position, p.rest, p.velocity, p.hint, p.memory, p.identity)
    moved = jax.vmap(lambda *each: move(motion, *each, row=row, t=t, dt=dt))(*batched)
    moving = moving_mask(p, row)
    lost, broken = moving & ~moved.inside, moving & moved.inside & ~moved.finite
    goes = moving & moved.inside & moved.finite
    stops = goes & (~moved.bounced.alive | moved.exhausted)
    early = jnp.where(moved.broken, NOT_FINITE, EXHAUSTED)
    cause = jnp.where(moved.bounced.alive, early, moved.bounced.patch)
    left = jnp.where(lost, OUTSIDE, NOT_FINITE)
    after = dataclasses.replace(
        p,
        position=where(goes, moved.bounced.position, p.position),
        rest=where(goes, moved.rest, p.rest),
        velocity=None if p.velocity is None else where(goes, moved.bounced.velocity, p.velocity),
        hint=where(goes, moved.hint, p.hint),
        memory=where(goes, moved.memory, p.memory),
        ended=jnp.where(stops, row + 1, jnp.where(lost | broken, row, p.ended)),
        cause=jnp.where(stops, cause, jnp.where(lost | broken, left, p.cause)),
        share=None if p.share is None else jnp.where(stops, moved.share, p.share),
    )
    hits = where(goes, moved.bounced.hits, jnp.zeros_like(moved.bounced.hits))
    return after, hits.reshape(1, *hits.shape).sum(1, dtype=jnp.int32)


def _step_by_kernel(
    motion: Motion, p: Particles, row: Index, t: Scalar, dt: Scalar
) -> tuple[Particles, Int32[Array, "1 patches"]]:
    """The same step by a kernel, for particles without inertia."""
    before = KernelState(p.position, p.rest, p.hint, p.begun, p.ended, p.cause, p.share)
    after, hits = _kernel_of(motion).step(motion, before, row, t, dt, Causes(OUTSIDE, NOT_FINITE))
    changed = after._asdict()
    return dataclasses.replace(p, rest=changed.pop("residual"), **changed), hits[None]


def _kernel_of(motion: Motion) -> AbstractKernel:
    assert isinstance(motion.field, AbstractSeries)
    return kernel_for_layout(motion.field.layout)


def refill(
    motion: Motion,
    boundary: InletBoundary,
    particles: Particles,
    row: Index,
    t: Scalar,
    dt: Scalar,
    devices: tuple[str, ...] = (),
) -> Particles:
    """Particles born at the inlet in the slots of those that have ended; they move from the next step on."""
    p = particles
    # No particle has the number NEVER, so the inlet's random numbers are nobody else's.
    key = particle_key(motion.key, NEVER, row)
    ranks = _kernel_of(motion).ranks() if motion.fused else ranks_in_place
    alive = p.ended == NEVER
    reborn = boundary.reinject(p.position, alive, dt, key, p.owed, p.identity, ranks, devices)

    def renew(p: Particles) -> Particles:
        begun = jnp.full_like(p.begun, row + 1)
        fresh = begin(motion, reborn.position, p.identity, begun, jnp.broadcast_to(t, begun.shape))
        assert p.generation is not None
        fresh = dataclasses.replace(fresh, generation=p.generation + 1)
        return map_particles(lambda old, new: where(reborn.born, new, old), p, fresh)

    p = dataclasses.replace(p, owed=reborn.carry, missed=p.missed + reborn.missed)
    return jax.lax.cond(reborn.born.any(), renew, lambda p: p, p)


def where(condition: Bool[Array, " n"], yes: PyTree, no: PyTree) -> PyTree:
    """One or the other for each particle, leaf by leaf."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)

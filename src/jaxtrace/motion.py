"""One step of one particle: integrator, boundary, and compensation for rounding."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .boundaries.base import AbstractBoundary, Bounced
from .boundaries.round import dot
from .fields.base import AbstractField, AbstractMoment, Flag, Index, Sample, Scalar, Vector
from .fields.chart import Chart, InChart
from .fields.grid_series import AbstractSeries
from .fields.isolation import isolate
from .fields.sphere import Sphere
from .integrators.base import AbstractIntegrator, AnyKey, ParticleState, particle_key


class Motion(eqx.Module):
    """Field, integrator, boundary and key: arguments of the compiled program, so that other values need no other program."""

    field: AbstractField
    integrator: AbstractIntegrator
    boundary: AbstractBoundary
    key: AnyKey
    stop_outside: bool = eqx.field(static=True, default=True)
    """Whether a particle ends where the field does."""
    fused: bool = eqx.field(static=True, default=False)
    """Whether a kernel of `jaxtrace.kernels` takes the steps, the one that reads the field's layout."""


class Moved(eqx.Module):
    """One particle after one step."""

    bounced: Bounced
    rest: Vector
    hint: PyTree
    memory: PyTree
    inside: Flag
    """Whether the field held the particle before the step."""
    exhausted: Flag
    """Whether the integrator gave up before the step's end."""
    broken: Flag
    """Whether it gave up because the field has no finite velocity further on."""
    finite: Flag
    """Whether the step ends at a finite place, so that it counts."""
    share: Scalar
    """The part of the step's time before the particle ended; 1 for one that goes on."""


def move(
    motion: Motion,
    position: Vector,
    rest: Vector,
    velocity: Vector | None,
    hint: PyTree,
    memory: PyTree,
    identity: Index,
    row: Index,
    t: Scalar,
    dt: Scalar,
) -> Moved:
    """Take step `row`, from `t` to `t + dt`, and bring it back into the domain."""
    integrator = motion.integrator
    key = particle_key(motion.key, identity, row) if integrator.stochastic else None
    own = jnp.zeros_like(position) if velocity is None else velocity
    yes = jnp.ones((), bool)
    sphere = motion.field.sphere if integrator.steps_in_metres else None
    differs = sphere is not None or integrator.adds_increments

    def step(position: Vector, state: ParticleState) -> ParticleState:
        field = motion.field
        if sphere is not None:
            return _step_on_sphere(integrator, field, sphere, position, state, t, dt, key)
        if differs:
            field = Around(field=field, origin=position, dim=field.dim)
        return integrator.step(field, state, t, dt, key)

    before = ParticleState(rest if differs else position, own, hint, yes, memory)
    if isinstance(motion.field, AbstractSeries):
        state = step(position, before)
    else:  # a series keeps its samples apart; a function would be computed again for all that follows from the step
        state = isolate(row >= 0, step, position, before)
    new = state.position
    finite = all_finite(new) if velocity is None else all_finite(new) & all_finite(state.velocity)
    if differs:
        new = position + state.position
        finite = finite & all_finite(new)
        rest = jax.lax.stop_gradient(state.position - (new - position))
    # Walls that follow a mesh begin at the old place, so they need the hint from before the step.
    bounced = motion.boundary(position, new, state.velocity if velocity is not None else None, hint)
    # The rounding residual belongs to this place: it is dropped where a wall moved the particle.
    rest = jnp.where(bounced.position == new, rest, 0.0).astype(rest.dtype)
    inside = state.inside if motion.stop_outside else yes
    slope = None if integrator.stochastic else own if velocity is not None else state.velocity
    if slope is not None and sphere is not None:
        slope = sphere.rates(position, slope)  # the way is in degrees
    share = share_of_time(bounced, position, new, None if slope is None else slope * dt)
    early = broken = jnp.zeros((), bool)
    progress = integrator.progress(state.memory)
    if progress is not None:
        early, broken, share = progress.exhausted, progress.broken, share * progress.reached
    return Moved(bounced, rest, state.hint, state.memory, inside, early, broken, finite, share)


def _step_on_sphere(
    integrator: AbstractIntegrator,
    field: AbstractField,
    sphere: Sphere,
    origin: Vector,
    state: ParticleState,
    t: Scalar,
    dt: Scalar,
    key: AnyKey | None,
) -> ParticleState:
    """A step whose positions are differences to `origin` in degrees; what the integrator sees and adds is in metres.

    A particle's own velocity is in m/s east and north, before and after.
    """
    chart = Chart.around(sphere, origin)
    view = InChart(field=field.in_metres, chart=chart, middle=field.middle_longitude, dim=field.dim)
    inside = eqx.tree_at(lambda s: s.position, state, chart.inward(state.position))
    done = integrator.in_chart(view).step(view, inside, t, dt, key)
    velocity = done.velocity
    if integrator.inertia:
        velocity = chart.on_sphere(done.position, velocity)
    moved, _ = chart.place(done.position)
    return eqx.tree_at(lambda s: (s.position, s.velocity), done, (moved, velocity))


def all_finite(x: Vector) -> Flag:
    """Whether all components are finite, written out: a reduction would break the loop over particles on a CPU."""
    return functools.reduce(jnp.logical_and, [jnp.isfinite(x[k]) for k in range(x.shape[0])])


def share_of_time(bounced: Bounced, old: Vector, new: Vector, first: Vector | None) -> Scalar:
    """The part of the step's time before the particle ended at a wall.

    The path is the parabola from `old` to `new` that begins with the slope `first` (velocity times step). Beside a straight
    wall it crosses where `(s - r) + s (1 - s) q = 0`: r is the share of the chord, and q how far the parabola leaves the
    chord, both across the wall. Random walks and walls without a normal take the chord.
    """
    chord = bounced.share
    if first is None or bounced.normal is None:
        return jnp.where(bounced.alive, 1.0, chord)
    normal, way = bounced.normal, new - old
    across = dot(normal, way)
    q = dot(normal, first - way) / jnp.where(across == 0, 1.0, across)
    # One root lies in [0, 1], since the ends have different signs; this form of it loses no digits for small q.
    root = jnp.sqrt(jnp.maximum((1 + q) ** 2 - 4 * q * chord, 0.0))
    share = 2 * chord / jnp.where(1 + q + root > 0, 1 + q + root, 1.0)
    good = (across != 0) & (share >= 0) & (share <= 1)  # False for NaN
    return jnp.where(bounced.alive, 1.0, jnp.where(good, share, chord))


class Around(AbstractField):
    """A field seen from `origin`: positions are differences to it.

    Integrators that only add to a position then work on a small number, and what the sum with the large one loses can
    be kept for the next step: 1,500 steps would otherwise lose 1,500 times half a unit in the last place, in the
    same direction wherever the flow is steady.
    """

    field: AbstractField
    origin: Vector
    dim: int = eqx.field(static=True)

    def start(self, x: Vector) -> PyTree:
        return self.field.start(self.origin + x)

    def sample(self, x: Vector, t: Scalar, hint: PyTree) -> Sample:
        return self.field.sample(self.origin + x, t, hint)

    def at(self, t: Scalar) -> AbstractMoment:
        return MomentAround(self.field.at(t), self.origin)


class MomentAround(AbstractMoment):
    """A field at one time, seen from `origin`."""

    moment: AbstractMoment
    origin: Vector

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        return self.moment.sample(self.origin + x, hint)

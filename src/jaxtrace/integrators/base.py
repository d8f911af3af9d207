"""What every integrator shares: the state of one particle, the signature of one step, and the traits it declares."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Integer, Key, PyTree, UInt32

from ..fields.base import AbstractField, Flag, Scalar, Vector
from ..fields.chart import InChart

AnyKey = Key[Array, ""] | UInt32[Array, " 2"]


class ParticleState(eqx.Module):
    """One particle between two steps."""

    position: Vector
    # The particle's own velocity where it has inertia, else the one the field had at the beginning of the last step.
    velocity: Vector
    # Where the field starts looking next time.
    hint: PyTree
    # Whether the field held the particle at the beginning of the last step. Later stages of the step may reach
    # past the edge (a periodic box is left and entered again), so they do not count.
    inside: Flag
    # What the integrator remembers from interval to interval; empty for all but the adaptive ones.
    memory: PyTree = ()


class Progress(NamedTuple):
    """How far an adaptive integrator came within the last interval."""

    exhausted: Flag
    """Whether it ever ran out of attempts: the particle then ends with the outcome `STEP_LIMIT`."""
    broken: Flag
    """Whether it gave up because the field has no finite velocity further on; the outcome is then `NOT_FINITE`."""
    reached: Scalar
    """The share of the interval that it took; 1 for all of it."""


class AbstractIntegrator(eqx.Module):
    """Advances one particle by one interval: `x(t + dt)` from `x(t)` where `dx/dt` is the field's velocity.

    `dt` may be negative: the particle then goes back in time. What a method is, it declares in the traits below: nothing asks
    for its type, so a method of your own is treated as the built-in ones are.
    """

    order: ClassVar[int]
    """The order of convergence."""
    stochastic: ClassVar[bool] = False
    """Whether `step` draws random numbers: it is then given a `key`."""
    reversible: ClassVar[bool] = True
    """Whether a negative `dt` makes sense."""
    adds_increments: ClassVar[bool] = False
    """Whether a step uses the position only to sample the field and to add to it, so that it may be given differences to a
    place near the particle. What rounding loses of each sum is then carried to the next step."""
    adaptive: ClassVar[bool] = False
    """Whether `step` divides its interval by itself. Without `dt` and without walls it is then given whole recorded intervals."""
    inertia: ClassVar[bool] = False
    """Whether `state.velocity` is the particle's own and lasts from step to step."""
    steps_in_metres: ClassVar[bool] = False
    """Whether it may step on a sphere in metres: positions and velocities are then those of a flat chart around the particle."""

    def start(
        self, field: AbstractField, position: Vector, t: Scalar, velocity: Vector | None = None
    ) -> ParticleState:
        """The state of a particle seen for the first time; its velocity defaults to the field's."""
        sample = field.sample(position, t, field.start(position))
        own = sample.velocity if velocity is None else velocity
        return ParticleState(
            position=position,
            velocity=jnp.asarray(own, position.dtype),
            hint=sample.hint,
            inside=sample.inside,
            memory=self.remember(position),
        )

    def remember(self, position: Vector) -> PyTree:
        """What `memory` holds before the first step."""
        return ()

    def progress(self, memory: PyTree) -> Progress | None:
        """How far the last interval was taken, read from `memory`; None for a method that always reaches its end."""
        return None

    def in_chart(self, view: InChart) -> "AbstractIntegrator":
        """The same method for a step in metres, where some of its parameters are given in degrees."""
        return self

    @abc.abstractmethod
    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """The state at `t + dt`."""


def particle_key(key: AnyKey, identity: Integer[Array, ""] | int, step: Integer[Array, ""] | int) -> AnyKey:
    """The key of one particle at one step: the same wherever the particle is stored and however steps are cut."""
    return jr.fold_in(jr.fold_in(key, identity), step)

"""What every integrator shares: the state of one particle and the signature of one step."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Integer, Key, PyTree, UInt32

from ..fields.base import AbstractField

AnyKey = Key[Array, ""] | UInt32[Array, " 2"]


class ParticleState(eqx.Module):
    """One particle between two steps."""

    position: Float[Array, " dim"]
    # The particle's own velocity where it has inertia, else the one the field had at the beginning of the last step.
    velocity: Float[Array, " dim"]
    # Where the field starts looking next time.
    hint: PyTree
    # Whether the field held the particle at the beginning of the last step. Later stages of the step may reach
    # past the edge (a periodic box is left and entered again), so they do not count.
    inside: Bool[Array, ""]
    # What the integrator remembers from interval to interval; empty for all but the adaptive ones.
    memory: PyTree = ()


class AbstractIntegrator(eqx.Module):
    """Advances one particle by one interval: `x(t + dt)` from `x(t)` where `dx/dt` is the field's velocity.

    `dt` may be negative: the particle then goes back in time.
    """

    order: ClassVar[int]
    # Whether `step` needs a key.
    stochastic: ClassVar[bool]
    # Whether a negative `dt` makes sense.
    reversible: ClassVar[bool]

    def start(
        self,
        field: AbstractField,
        position: Float[Array, " dim"],
        t: Float[Array, ""],
        velocity: Float[Array, " dim"] | None = None,
    ) -> ParticleState:
        """The state of a particle seen for the first time; its velocity is the field's unless given."""
        sample = field.sample(position, t, field.start(position))
        own = sample.velocity if velocity is None else velocity
        return ParticleState(
            position=position,
            velocity=jnp.asarray(own, position.dtype),
            hint=sample.hint,
            inside=sample.inside,
            memory=self.remember(position),
        )

    def remember(self, position: Float[Array, " dim"]) -> PyTree:
        """What `memory` holds before the first step."""
        return ()

    @abc.abstractmethod
    def step(
        self,
        field: AbstractField,
        state: ParticleState,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        key: AnyKey | None = None,
    ) -> ParticleState:
        """The state at `t + dt`."""


def particle_key(key: AnyKey, identity: Integer[Array, ""] | int, step: Integer[Array, ""] | int) -> AnyKey:
    """The key of one particle at one step: the same wherever the particle is stored and however steps are cut."""
    return jr.fold_in(jr.fold_in(key, identity), step)


def required_key(key: AnyKey | None, name: str) -> AnyKey:
    """`key`, or an error that says where it comes from."""
    if key is None:
        raise ValueError(
            f"`key` must be given to the step of {name}, which draws noise; got None. Pass particle_key(...)."
        )
    return key

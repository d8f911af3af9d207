"""Euler: the velocity at the beginning holds for the whole step; order 1."""

from typing import ClassVar

from ..fields.base import AbstractField, Scalar
from .base import AbstractIntegrator, AnyKey, ParticleState


class Euler(AbstractIntegrator):
    """`x' = x + dt u(x, t)`."""

    order: ClassVar[int] = 1
    adds_increments: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """One sample of the field."""
        first = field.at(t).sample(state.position, state.hint)
        position = state.position + dt * first.velocity
        return ParticleState(position, first.velocity, first.hint, first.inside, state.memory)

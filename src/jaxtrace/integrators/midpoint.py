"""Midpoint: the velocity half a step ahead holds for the whole step; order 2."""

from typing import ClassVar

import jax.numpy as jnp

from ..fields.base import AbstractField, Scalar
from .base import AbstractIntegrator, AnyKey, ParticleState


class Midpoint(AbstractIntegrator):
    """`x' = x + dt u(x + dt/2 u(x, t), t + dt/2)`, the Runge–Kutta method also called RK2."""

    order: ClassVar[int] = 2
    adds_increments: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """Two samples of the field."""
        x = state.position
        first = field.at(t).sample(x, state.hint)
        middle = field.at(t + 0.5 * dt).sample(x + (0.5 * dt) * first.velocity, first.hint)
        # The first sample only leads to the second; without a finite velocity there the second means nothing.
        position = jnp.where(jnp.isfinite(first.velocity), x + dt * middle.velocity, jnp.nan)
        return ParticleState(position, first.velocity, middle.hint, first.inside, state.memory)

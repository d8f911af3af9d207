"""Euler, midpoint and RK4: Runge–Kutta methods of order 1, 2 and 4, one step in each interval."""

from typing import ClassVar

import jax.numpy as jnp

from ..fields.base import AbstractField, Scalar
from .base import AbstractIntegrator, AnyKey, ParticleState


class Euler(AbstractIntegrator):
    """`x' = x + dt u(x, t)`: the velocity at the beginning holds for the whole step; order 1."""

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


class RK4(AbstractIntegrator):
    """`x' = x + dt/6 (k1 + 2 k2 + 2 k3 + k4)` with samples at the beginning, twice in the middle, and at the end."""

    order: ClassVar[int] = 4
    adds_increments: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """Four samples of the field."""
        x, half = state.position, 0.5 * dt
        middle = field.at(t + half)
        k1 = field.at(t).sample(x, state.hint)
        k2 = middle.sample(x + half * k1.velocity, k1.hint)
        k3 = middle.sample(x + half * k2.velocity, k2.hint)
        k4 = field.at(t + dt).sample(x + dt * k3.velocity, k3.hint)
        slope = k1.velocity + 2 * (k2.velocity + k3.velocity) + k4.velocity
        return ParticleState(x + (dt / 6) * slope, k1.velocity, k4.hint, k1.inside, state.memory)

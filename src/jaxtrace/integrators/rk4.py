"""RK4: the classical Runge–Kutta method; order 4."""

from typing import ClassVar

from ..fields.base import AbstractField, Scalar
from .base import AbstractIntegrator, AnyKey, ParticleState


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

"""Inertial particles: Stokes drag towards the fluid and gravity with buoyancy, stable for any relaxation time."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields.base import AbstractField, Scalar, Vector
from .base import AbstractIntegrator, AnyKey, ParticleState


class Inertial(AbstractIntegrator):
    """`dv/dt = (u - v) / tau + (1 - ratio) g`, `dx/dt = v`; order 2.

    Drag is solved exactly over a step with the fluid velocity of the step's middle (exponential midpoint), so a
    relaxation time far below the step is as stable as a tracer, and is one in the limit. Settled in still fluid the
    particle sinks with `tau (1 - ratio) g`. `density_ratio` is fluid over particle: 0 for stones in air, 1 for
    neutral ones, above 1 for bubbles. Back in time drag pushes away from the fluid: that is refused by the tracker.
    """

    relaxation_time: Scalar = eqx.field(converter=lambda given: _non_negative(given, "relaxation_time"))
    gravity: Float[Array, "*axes"] = eqx.field(converter=lambda given: jnp.asarray(given, float), default=0.0)
    density_ratio: Scalar = eqx.field(
        converter=lambda given: _non_negative(given, "density_ratio"), default=0.0
    )

    order: ClassVar[int] = 2
    reversible: ClassVar[bool] = False
    adds_increments: ClassVar[bool] = True
    inertia: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """Two samples of the field."""
        x, v = state.position, state.velocity
        half = 0.5 * dt
        first = field.at(t).sample(x, state.hint)
        near, _ = self._relax(x, v, first.velocity, half)
        middle = field.at(t + half).sample(near, first.hint)
        position, velocity = self._relax(x, v, middle.velocity, dt)
        # The first sample only leads to the second; without a finite velocity there the second means nothing.
        position = jnp.where(jnp.isfinite(first.velocity), position, jnp.nan)
        return ParticleState(position, velocity, middle.hint, first.inside, state.memory)

    def settling(self, x: Vector) -> Vector:
        """Velocity relative to the fluid once drag and weight balance."""
        pull = jnp.broadcast_to(self.gravity, x.shape) * (1 - self.density_ratio)
        return (self.relaxation_time * pull).astype(x.dtype)

    def _relax(self, x: Vector, v: Vector, u: Vector, h: Scalar) -> tuple[Vector, Vector]:
        """Position and velocity after `h` in fluid that moves with `u` throughout."""
        # A millionth of the step is as good as 0, and keeps the quotient and its derivative finite.
        floor = jnp.maximum(1e-6 * jnp.abs(h), jnp.finfo(x.dtype).tiny)
        tau = jnp.maximum(self.relaxation_time.astype(x.dtype), floor)
        target = u + self.settling(x)
        faded = -jnp.expm1(-h / tau)
        return x + h * target + tau * faded * (v - target), v + faded * (target - v)


def stokes_relaxation_time(
    diameter: float, density: float, viscosity: float, fluid_density: float = 0.0, added_mass: float = 0.0
) -> float:
    """`(density + added_mass fluid_density) d² / (18 mu)` of a small sphere; `viscosity` is the dynamic one.

    ```python
    stokes_relaxation_time(diameter=50e-6, density=2650.0, viscosity=1e-3)  # sand in water: 0.37 ms
    ```
    """
    for name, value in (("diameter", diameter), ("density", density), ("viscosity", viscosity)):
        if not value > 0:
            raise ValueError(f"`{name}` must be positive; got {value}.")
    return (density + added_mass * fluid_density) * diameter**2 / (18.0 * viscosity)


def _non_negative(given: Any, name: str) -> Scalar:
    """A non-negative number as an array; values that are being traced or differentiated pass."""
    if isinstance(given, int | float) and not given >= 0:
        raise ValueError(f"`{name}` must be at least 0; got {given}.")
    return jnp.asarray(given, float)

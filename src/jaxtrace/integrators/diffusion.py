"""Random walks: advection by any integrator plus turbulent diffusion that keeps a well-mixed cloud well mixed."""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..fields.base import AbstractField, Scalar, Vector
from ..fields.chart import InChart
from .base import AbstractIntegrator, AnyKey, ParticleState, Progress
from .euler import Euler

# Diffusivity at one point and time: one value for all directions or one per axis.
Diffusivity = Callable[[Vector, Scalar], Float[Array, "*axes"]]


class AbstractRandomWalk(AbstractIntegrator):
    """Shared by both schemes: advection first, then a kick drawn from the diffusivity at the old position.

    `diffusivity` is in the square of the coordinates' units per time, on longitudes and latitudes (a field with a sphere) in
    m²/s. Going back in time reverses the advection and not the spreading: the noise and the drift use `|dt|`.
    """

    diffusivity: Float[Array, "*axes"] | Diffusivity = eqx.field(converter=lambda given: _diffusivity(given))
    advection: AbstractIntegrator = eqx.field(default_factory=Euler)
    drift_correction: bool = eqx.field(static=True, default=True)

    order: ClassVar[int] = 1
    stochastic: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True
    varying_noise: ClassVar[bool] = False
    """Whether a kick sees how the noise varies along itself: the term `K' (dW² - |dt|)/2` of Milstein."""

    @property
    def inertia(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the advection."""
        return self.advection.inertia

    @property
    def reversible(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the advection."""
        return self.advection.reversible

    def remember(self, position: Vector) -> Any:
        """What the advection remembers."""
        return self.advection.remember(position)

    def progress(self, memory: Any) -> Progress | None:
        """That of the advection."""
        return self.advection.progress(memory)

    def in_chart(self, view: InChart) -> AbstractIntegrator:
        """A function of longitude and latitude is asked at the place in the chart."""
        if not self.advection.steps_in_metres:
            raise ValueError(
                f"`advection` of a random walk on longitudes and latitudes must declare `steps_in_metres = True`; "
                f"{type(self.advection).__name__} does not. Use RK4, or declare it if your method steps right in metres."
            )
        walk = eqx.tree_at(lambda i: i.advection, self, self.advection.in_chart(view))
        if not callable(self.diffusivity):
            return walk
        seen = DiffusivityInChart(cast(Diffusivity, self.diffusivity), view)
        return eqx.tree_at(lambda i: i.diffusivity, walk, seen, is_leaf=callable)

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """One advected step and one kick."""
        x = state.position
        if key is None:
            raise ValueError(
                f"`key` must be given to the step of {type(self).__name__}, which draws noise; got None. Pass particle_key(...)."
            )
        noise = jnp.sqrt(jnp.abs(dt)).astype(x.dtype) * jr.normal(key, x.shape, x.dtype)
        moved = self.advection.step(field, state, t, dt)
        return eqx.tree_at(lambda s: s.position, moved, moved.position + self.kick(x, t, dt, noise))

    def kick(self, x: Vector, t: Scalar, dt: Scalar, noise: Vector) -> Vector:
        """Displacement by diffusion where `noise` is the Wiener increment, of variance `|dt|`."""
        amount, slope = self.spread(x, t)
        span = jnp.abs(dt)
        drift = slope * span if self.drift_correction else 0.0
        if self.varying_noise:
            drift = drift + 0.5 * slope * (noise**2 - span)
        return drift + _root(2 * amount) * noise

    def spread(self, x: Vector, t: Scalar) -> tuple[Vector, Vector]:
        """Diffusivity along each axis and its derivative along that same axis."""
        if not callable(self.diffusivity):
            constant = jnp.asarray(self.diffusivity, x.dtype)
            return jnp.broadcast_to(constant, x.shape), jnp.zeros_like(x)
        given = cast(Diffusivity, self.diffusivity)

        def along(x: Vector) -> Vector:
            if isinstance(given, AbstractField):  # a sample stays finite past the edge
                found = given.sample(x, t, given.start(x)).velocity
            else:
                found = given(x, t)
            return jnp.broadcast_to(jnp.asarray(found, x.dtype), x.shape)

        return along(x), jnp.diagonal(jax.jacfwd(along)(x))


class DiffusivityInChart(eqx.Module):
    """A diffusivity in m²/s given over longitude and latitude, at positions in a chart."""

    diffusivity: Diffusivity
    view: InChart

    def __call__(self, x: Vector, t: Scalar) -> Float[Array, "*axes"]:
        place, _ = self.view.where(x)
        if isinstance(self.diffusivity, AbstractField):
            field = self.diffusivity.in_metres
            return field.sample(place, t, field.start(place)).velocity
        return self.diffusivity(place, t)


class EulerMaruyama(AbstractRandomWalk):
    """`dx = u dt + K' dt + sqrt(2 K) dW`; weak order 1, strong order 1/2 where `K` varies, else 1.

    `diffusivity` is a number, one number per axis, or a function of position and time (any callable pytree, a field
    included) with either result. `K'`, its derivative along each axis, keeps particles from piling up where mixing
    is weak; `drift_correction=False` leaves it out.
    """


class Milstein(AbstractRandomWalk):
    """`dx = u dt + K' (dW² + dt)/2 + sqrt(2 K) dW`; strong order 1 where each axis' `K` varies along that axis only.

    In several dimensions the areas between two axes' noises are left out, as is usual: weak order 1 remains.
    """

    varying_noise: ClassVar[bool] = True


def _diffusivity(given: Any) -> Float[Array, "*axes"] | Diffusivity:
    """A callable as it is, anything else as an array of non-negative numbers."""
    if callable(given):
        return cast(Diffusivity, given)
    values = jnp.asarray(given, float)
    if not isinstance(given, jax.Array) and not (np.asarray(given) >= 0).all():
        raise ValueError(f"`diffusivity` must be at least 0; got {given}.")
    if values.ndim > 1:
        raise ValueError(
            f"`diffusivity` must be one number or one per axis; got shape {values.shape}. Pass a function."
        )
    return values


def _root(value: Vector) -> Vector:
    """Square root with slope 0 where there is nothing to take the root of."""
    positive = value > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, value, 1.0)), 0.0)

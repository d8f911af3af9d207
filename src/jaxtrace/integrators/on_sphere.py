"""One step on a sphere: taken flat, in metres around where it begins, and laid back as longitude and latitude."""

from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields.base import AbstractField
from ..fields.chart import Chart, InChart
from ..fields.sphere import Sphere
from .base import AbstractIntegrator, AnyKey, ParticleState
from .diffusion import AbstractRandomWalk, Diffusivity, EulerMaruyama, Milstein
from .dopri5 import Dopri5
from .euler import Euler
from .inertial import Inertial
from .midpoint import Midpoint
from .rk4 import RK4


def steps_in_metres(integrator: AbstractIntegrator) -> bool:
    """Whether an integrator takes its steps in a chart. Others see longitude and latitude, and degrees per second."""
    return type(integrator) in (Euler, Midpoint, RK4, Inertial, Dopri5, EulerMaruyama, Milstein)


def step_on_sphere(
    integrator: AbstractIntegrator,
    field: AbstractField,
    sphere: Sphere,
    origin: Float[Array, " dim"],
    state: ParticleState,
    t: Float[Array, ""],
    dt: Float[Array, ""],
    key: AnyKey | None,
) -> ParticleState:
    """A step whose positions are differences to `origin` in degrees; what the integrator sees and adds is in metres.

    A particle's own velocity is in m/s east and north, before and after.
    """
    chart = Chart.around(sphere, origin)
    view = InChart(field=field.in_metres, chart=chart, middle=field.middle_longitude, dim=field.dim)
    inside = eqx.tree_at(lambda s: s.position, state, chart.inward(state.position))
    done = _in_metres(integrator, view).step(view, inside, t, dt, key)
    velocity = done.velocity
    if isinstance(integrator, Inertial):
        velocity = chart.on_sphere(done.position, velocity)
    moved, _ = chart.place(done.position)
    return eqx.tree_at(lambda s: (s.position, s.velocity), done, (moved, velocity))


def _in_metres(integrator: AbstractIntegrator, view: InChart) -> AbstractIntegrator:
    """The integrator in the chart: its tolerances are given for degrees, its diffusivity over longitude and latitude."""
    if isinstance(integrator, Dopri5):
        # Of a step's way: 0° is no nearer to zero than 180°. Other coordinates keep the tolerance that they have elsewhere.
        atol = integrator.atol + integrator.rtol * jnp.abs(view.chart.origin)
        atol = atol.at[:2].set(integrator.atol * view.chart.sphere.metres_per_degree)
        return eqx.tree_at(lambda i: i.atol, integrator, atol)
    if isinstance(integrator, AbstractRandomWalk):
        advection = integrator.advection
        if not steps_in_metres(advection):
            raise ValueError(
                f"`advection` of a random walk on longitudes and latitudes must be an integrator of jaxtrace; got "
                f"{type(advection).__name__}, which does not say that it may step in metres."
            )
        amount: Any = integrator.diffusivity
        if callable(amount):
            seen = DiffusivityInChart(cast(Diffusivity, amount), view)
            integrator = eqx.tree_at(lambda i: i.diffusivity, integrator, seen, is_leaf=callable)
        return eqx.tree_at(lambda i: i.advection, integrator, _in_metres(advection, view))
    return integrator


class DiffusivityInChart(eqx.Module):
    """A diffusivity in m²/s given over longitude and latitude, at positions in a chart."""

    diffusivity: Diffusivity
    view: InChart

    def __call__(self, x: Float[Array, " dim"], t: Float[Array, ""]) -> Float[Array, "*axes"]:
        place, _ = self.view.where(x)
        if isinstance(self.diffusivity, AbstractField):
            field = self.diffusivity.in_metres
            return field.sample(place, t, field.start(place)).velocity
        return self.diffusivity(place, t)

"""One step on a sphere: taken flat, in metres around where it begins, and laid back as longitude and latitude."""

import equinox as eqx

from ..fields.base import AbstractField, Scalar, Vector
from ..fields.chart import Chart, InChart
from ..fields.sphere import Sphere
from .base import AbstractIntegrator, AnyKey, ParticleState


def step_on_sphere(
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

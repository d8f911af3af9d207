"""A field on a sphere as a step sees it: flat, in metres east and north of where the step begins."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .base import AbstractField, AbstractGrid, AbstractMoment, Sample, Scalar, Vector
from .sphere import Circles, Sphere, circles, nearest_turn, place_in_chart


class Chart(eqx.Module):
    """The sphere laid flat around one place: positions in metres east and north of it."""

    sphere: Sphere = eqx.field(static=True)
    origin: Vector
    circles: Circles

    @classmethod
    def around(cls, sphere: Sphere, origin: Vector) -> "Chart":
        """The chart whose zero is `origin`."""
        return cls(sphere, origin, circles(origin[1], sphere.equator))

    def inward(self, difference: Vector) -> Vector:
        """A small difference to the origin, in degrees, as a position in the chart."""
        metres = jnp.ones_like(difference).at[:2].set(self.sphere.metres_per_degree)
        return difference * metres.at[0].multiply(self.circles.cos)

    def place(self, x: Vector) -> tuple[Vector, tuple[Array, Array]]:
        """The difference of a position in the chart to the origin, in degrees, and `ChartPlace.east` there."""
        found = place_in_chart(self.circles, x[0], x[1], self.sphere.radius)
        return x.at[0].set(found.longitude).at[1].set(found.latitude), found.east

    def on_sphere(self, x: Vector, velocity: Vector) -> Vector:
        """A velocity in the chart at `x` in m/s east and north."""
        along, across = self.place(x)[1]
        size = along * along + across * across
        u, v = velocity[0] / size, velocity[1] / size
        return velocity.at[0].set(along * u + across * v).at[1].set(along * v - across * u)


class InChart(AbstractField):
    """A field in m/s seen from a chart: positions and velocities are the chart's."""

    field: AbstractField
    chart: Chart
    middle: Scalar | None
    """The longitude around which the field lies."""
    dim: int = eqx.field(static=True)

    def start(self, x: Vector) -> PyTree:
        return self.field.start(self.where(x)[0])

    def where(self, x: Vector) -> tuple[Vector, tuple[Array, Array]]:
        """Longitude and latitude of a position in the chart, and `ChartPlace.east` there."""
        difference, east = self.chart.place(x)
        return on_this_turn(self.chart.origin + difference, self.middle), east

    def sample(self, x: Vector, t: Scalar, hint: PyTree) -> Sample:
        return self.at(t).sample(x, hint)

    def at(self, t: Scalar) -> AbstractMoment:
        return MomentInChart(self.field.at(t), self)


class MomentInChart(AbstractMoment):
    """A field at one time, seen from a chart."""

    moment: AbstractMoment
    view: InChart

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        place, (along, across) = self.view.where(x)
        found = self.moment.sample(place, hint)
        u, v = found.velocity[0], found.velocity[1]
        velocity = found.velocity.at[0].set(along * u - across * v).at[1].set(across * u + along * v)
        return Sample(velocity, found.inside, found.hint)


class MomentOfRates(AbstractMoment):
    """A field in m/s at one time, whose samples are degrees per second."""

    moment: AbstractMoment
    middle: Scalar | None
    sphere: Sphere = eqx.field(static=True)

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        found = self.moment.sample(on_this_turn(x, self.middle), hint)
        return Sample(self.sphere.rates(x, found.velocity), found.inside, found.hint)


def on_this_turn(x: Vector, middle: Scalar | None) -> Vector:
    """The same place with its longitude within half a turn of `middle`."""
    return x if middle is None else x.at[0].set(nearest_turn(x[0], middle.astype(x.dtype)))


def on_turn_of(grid: AbstractGrid, x: Vector) -> Vector:
    """The same place with its longitude on the turn on which a grid has its own; as it is where nothing is on a sphere."""
    return x if grid.sphere is None else on_this_turn(x, grid.middle[0])

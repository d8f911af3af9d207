"""A field on a sphere as a step sees it: flat, in metres east and north of where the step begins."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .base import AbstractField, AbstractGrid, AbstractMoment, Sample
from .sphere import Circles, Sphere, circles, nearest_turn, place_in_chart


class Chart(eqx.Module):
    """The sphere laid flat around one place: positions in metres east and north of it."""

    sphere: Sphere = eqx.field(static=True)
    origin: Float[Array, " dim"]
    circles: Circles

    @classmethod
    def around(cls, sphere: Sphere, origin: Float[Array, " dim"]) -> "Chart":
        """The chart whose zero is `origin`."""
        return cls(sphere, origin, circles(origin[1], sphere.equator))

    def inward(self, difference: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A small difference to the origin, in degrees, as a position in the chart."""
        return difference * _metres(self.sphere, difference).at[0].multiply(self.circles.cos)

    def place(self, x: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], tuple[Array, Array]]:
        """The difference of a position in the chart to the origin, in degrees, and `ChartPlace.east` there."""
        found = place_in_chart(self.circles, x[0], x[1], self.sphere.radius)
        return x.at[0].set(found.longitude).at[1].set(found.latitude), found.east

    def on_sphere(self, x: Float[Array, " dim"], velocity: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A velocity in the chart at `x` in m/s east and north."""
        along, across = self.place(x)[1]
        size = along * along + across * across
        u, v = velocity[0] / size, velocity[1] / size
        return velocity.at[0].set(along * u + across * v).at[1].set(along * v - across * u)


def chart_velocity(velocity: Float[Array, " dim"], east: tuple[Array, Array]) -> Float[Array, " dim"]:
    """A velocity in m/s east and north as the chart's."""
    along, across = east
    u, v = velocity[0], velocity[1]
    return velocity.at[0].set(along * u - across * v).at[1].set(across * u + along * v)


def _metres(sphere: Sphere, like: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """Metres in one unit of each coordinate, of longitude at the equator."""
    return jnp.ones_like(like).at[:2].set(sphere.metres_per_degree)


class InChart(AbstractField):
    """A field in m/s seen from a chart: positions and velocities are the chart's."""

    field: AbstractField
    chart: Chart
    middle: Float[Array, ""] | None
    """The longitude around which the field lies."""
    dim: int = eqx.field(static=True)

    def start(self, x: Float[Array, " dim"]) -> PyTree:
        return self.field.start(self.where(x)[0])

    def where(self, x: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], tuple[Array, Array]]:
        """Longitude and latitude of a position in the chart, and `ChartPlace.east` there."""
        difference, east = self.chart.place(x)
        return on_this_turn(self.chart.origin + difference, self.middle), east

    def sample(self, x: Float[Array, " dim"], t: Float[Array, ""], hint: PyTree) -> Sample:
        return _sample_in_chart(self, self.field.at(t), x, hint)

    def at(self, t: Float[Array, ""]) -> AbstractMoment:
        return MomentInChart(self.field.at(t), self)


class MomentInChart(AbstractMoment):
    """A field at one time, seen from a chart."""

    moment: AbstractMoment
    view: InChart

    def sample(self, x: Float[Array, " dim"], hint: PyTree) -> Sample:
        return _sample_in_chart(self.view, self.moment, x, hint)


def _sample_in_chart(view: InChart, moment: AbstractMoment, x: Float[Array, " dim"], hint: PyTree) -> Sample:
    place, east = view.where(x)
    found = moment.sample(place, hint)
    return Sample(chart_velocity(found.velocity, east), found.inside, found.hint)


class MomentOfRates(AbstractMoment):
    """A field in m/s at one time, whose samples are degrees per second."""

    moment: AbstractMoment
    middle: Float[Array, ""] | None
    sphere: Sphere = eqx.field(static=True)

    def sample(self, x: Float[Array, " dim"], hint: PyTree) -> Sample:
        found = self.moment.sample(on_this_turn(x, self.middle), hint)
        return Sample(self.sphere.rates(x, found.velocity), found.inside, found.hint)


def on_this_turn(x: Float[Array, " dim"], middle: Float[Array, ""] | None) -> Float[Array, " dim"]:
    """The same place with its longitude within half a turn of `middle`."""
    return x if middle is None else x.at[0].set(nearest_turn(x[0], middle.astype(x.dtype)))


def on_turn_of(grid: AbstractGrid, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The same place with its longitude on the turn on which a grid has its own; as it is where nothing is on a sphere."""
    return x if grid.sphere is None else on_this_turn(x, grid.middle[0])

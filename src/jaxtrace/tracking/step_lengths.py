"""A warning before a run whose steps are far too long for its field, at no cost to the steps."""

import math
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields.analytic import AnalyticField
from ..fields.base import Scalar, Vector
from ..fields.time_series import TimeSeriesField
from ..integrators.base import AbstractIntegrator
from .schedule import Schedule

# A formula is checked at this number of seeds, always the same: compiled once.
_LOOKED_AT = 64
# Along a step the velocity may change by this multiple of itself, and a step may cross this share of a grid.
_MOST_CHANGE, _MOST_CROSSED = 3.0, 0.5
# What the advised step leaves of either.
_GOOD_CHANGE, _GOOD_CROSSED = 0.3, 0.02
# Parts of a step after which a formula is looked at: its rate of change may vanish just where particles begin.
_AHEAD = (0.0, 0.0271, 0.0913, 0.2939)


def tell_long_steps(
    field: Any, integrator: AbstractIntegrator, seeds: Float[np.ndarray, "particles dim"], schedule: Schedule
) -> None:
    """Warn where steps are clearly too long, which ends anywhere without an error. Adaptive ones are exempt."""
    advection = getattr(integrator, "advection", integrator)
    if advection.adaptive or advection.inertia:
        return
    longest = float(np.abs(np.diff(schedule.edges)).max())
    if isinstance(field, AnalyticField):
        told = _told_of_formula(field, seeds, schedule.span, longest)
    elif isinstance(field, TimeSeriesField):
        told = _told_of_grid(field, longest)
    else:
        return
    if told is None:
        return
    why, good = told
    # With one digit, rounded down; what rounding alone parts from a digit counts as that digit.
    power = 10.0 ** math.floor(math.log10(good * (1 + 1e-4)))
    good = math.floor(good / power * (1 + 1e-4)) * power
    warnings.warn(
        f"`dt` must be much shorter for this field; got steps of {longest:g} ({schedule.reason}), in one of which {why}: where "
        f"particles end then means nothing. Take `dt={good:g}` or less, or the integrator 'dopri5', which chooses "
        "its steps.",
        stacklevel=3,
    )


def _told_of_grid(field: TimeSeriesField, dt: float) -> tuple[str, float] | None:
    """What is wrong with a step through a grid, and one that would do."""
    low, high = np.asarray(field.grid.bounds, np.float64)
    size = float((high - low).max())
    if field.sphere is not None:
        size = float((high - low)[:2].max()) * field.sphere.metres_per_degree
    if not (size > 0 and float(field.scale) * dt > _MOST_CROSSED * size):
        return None  # `scale` may be twice the greatest velocity, which is looked for only now
    way = float(jnp.max(jnp.abs(field.data))) * dt
    if not way > _MOST_CROSSED * size:
        return None
    return (
        f"the greatest velocity crosses {way / size:.2g} times the grid's extent",
        dt * _GOOD_CROSSED * size / way,
    )


def _told_of_formula(
    field: AnalyticField, seeds: Float[np.ndarray, "particles dim"], span: tuple[float, float], dt: float
) -> tuple[str, float] | None:
    """The same for a formula, by how the velocity changes along the way of particles where they begin, at times of the span."""
    some = np.arange(_LOOKED_AT) * max(len(seeds), _LOOKED_AT) // _LOOKED_AT % len(seeds)
    # One time for each, in another order than the seeds': a velocity may vanish at one time for all of them.
    share = (np.arange(_LOOKED_AT) * 27 % _LOOKED_AT + 0.5) / _LOOKED_AT
    times = (span[0] + share * (span[1] - span[0])).astype(seeds.dtype)
    ahead = (np.copysign(dt, span[1] - span[0]) * np.array(_AHEAD)).astype(seeds.dtype)
    try:
        found = np.asarray(
            _rates_of_change(field, jnp.asarray(seeds[some]), jnp.asarray(times), jnp.asarray(ahead))
        )
    except (TypeError, ValueError, NotImplementedError):
        return None  # a formula without a derivative; a fault of its own is told by the run
    known = np.where(np.isfinite(found), found, -1.0).astype(np.float64)
    greatest = known.max(axis=1)
    greatest = greatest[greatest >= 0]
    if greatest.size == 0 or float(np.median(greatest)) * dt <= _MOST_CHANGE:
        return None
    change = float(np.median(greatest)) * dt
    rates = known[known > 0]
    fast = float(np.quantile(rates, 0.9))  # the fastest may belong to a place or a moment where nothing flows
    return f"the velocity changes by about {change:.2g} times itself", _GOOD_CHANGE / fast


@eqx.filter_jit
def _rates_of_change(
    field: AnalyticField, seeds: Float[Array, "n dim"], times: Float[Array, " n"], ahead: Float[Array, " m"]
) -> Float[Array, "n m"]:
    """By how much of itself the velocity changes for who goes with it, in a unit of time; NaN where nothing flows.

    For each where it is some times `ahead`.
    Along the way alone: a shear however strong is stepped through rightly. On a sphere velocities are compared in metres.
    """
    own = field.in_metres

    def one(x: Vector, t: Scalar) -> Scalar:
        def velocity(x: Vector, t: Scalar) -> Vector:
            return own.sample(x, t).velocity

        way = field.sample(x, t).velocity, jnp.ones_like(t)
        value, change = jax.jvp(velocity, (x, t), way)
        return jnp.linalg.norm(change) / jnp.linalg.norm(value)

    def further(x: Vector, t: Scalar, later: Scalar) -> Scalar:
        return one(x + later * field.sample(x, t).velocity, t + later)

    return jax.vmap(lambda x, t: jax.vmap(lambda later: further(x, t, later))(ahead))(seeds, times)

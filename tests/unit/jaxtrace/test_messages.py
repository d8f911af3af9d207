"""Messages that say what to write instead."""

import math
import re

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace import AnalyticField, create_tracker
from jaxtrace.fields import RectilinearGrid, Sphere, TimeSeriesField, double_gyre
from jaxtrace.tracking.boundary import reflective_boundary


def test_no_seeds_are_told():
    with pytest.raises(
        ValueError, match=r"`initial_positions` must .*one particle at least; got shape \(0, 2\)"
    ):
        create_tracker("rk4", double_gyre()).track_particles(np.zeros((0, 2)), (0.0, 1.0), 2)


def test_numpy_inside_a_formula_is_told():
    with pytest.raises(TypeError, match=r"must compute with jax\.numpy.*`jnp\.sin"):
        AnalyticField(lambda x, t: np.sin(np.asarray(x)), 2)


def test_math_and_branches_inside_a_formula_are_told():
    with pytest.raises(TypeError, match=r"`function` must compute with jax\.numpy.*`math\.sin"):
        AnalyticField(lambda x, t: math.sin(x[0]) * x, 2)
    with pytest.raises(TypeError, match=r"`function` must not branch on numbers by `if`.*`jnp\.where"):
        AnalyticField(lambda x, t: x if x[0] > 0 else -x, 2)
    for wrong, told in (
        (lambda x, t: np.sin(x[0]), "jnp.sin"),
        (lambda x, t: 1.0 if t > 0 else 2.0, "jnp.where"),
    ):
        with pytest.raises(TypeError, match=rf"`diffusivity` must .*`{told}"):
            create_tracker("euler_maruyama", double_gyre(), diffusivity=wrong)
    create_tracker("euler_maruyama", double_gyre(), diffusivity=lambda x, t: 1e-3 * (1 + jnp.sin(x[0])))


def test_what_a_formula_returns_or_lacks_is_told_by_name():
    with pytest.raises(ValueError, match=r"`function` must return shape \(2,\) for one point; got None"):
        AnalyticField(lambda x, t: None, 2)
    with pytest.raises(
        AttributeError, match=r"`function` must be callable as function\(x, t\).*no attribute numpy"
    ):
        AnalyticField(lambda x, t: x.numpy(), 2)


@pytest.mark.filterwarnings("error")
def test_random_numbers_of_numpy_in_a_formula_are_told():
    """They were drawn once, while it was compiled: a walk by hand became a constant drift, the same for all."""
    source = np.random.default_rng(0)
    for walk in (lambda x, t: x + source.normal(size=2), lambda x, t: x * source.random()):
        with pytest.warns(UserWarning, match=r"`function` gives other numbers each time .*'euler_maruyama'"):
            AnalyticField(walk, 2)
    constant = np.array([1.0, np.nan])
    AnalyticField(lambda x, t: jnp.where(t > 5, x * constant, jnp.sin(x)), 2)  # the same numbers each time


def _run(field, dt, boundary=None, integrator="rk4", **options):
    seeds = np.array([[0.3, 0.2], [1.1, 0.7], [1.6, 0.4]])
    tracker = create_tracker(integrator, field, boundary, **options)
    return tracker.track_particles(seeds, (0.0, 4 * dt), dt=dt)


def _advised(message):
    return float(re.search(r"Take `dt=(\S+)` or less", message)[1])


BOX = reflective_boundary([[0, 0], [2, 1]])


@pytest.mark.parametrize(
    ("integrator", "boundary", "options"),
    [
        ("rk4", None, {}),
        ("rk4", BOX, {}),
        ("euler", None, {}),
        ("euler_maruyama", BOX, {"diffusivity": 1e-6}),
    ],
)
def test_steps_far_too_long_for_a_formula_are_told(integrator, boundary, options):
    with pytest.warns(
        UserWarning, match=r"`dt` must be much shorter .* got steps of 100 .*means nothing"
    ) as told:
        _run(double_gyre(), 100.0, boundary, integrator, **options)
    good = _advised(str(told[0].message))
    assert 0.01 < good < 1
    if integrator == "rk4":  # what is advised is not told, and does: shorter steps end at the same place
        seeds, span = np.array([[0.3, 0.2], [1.1, 0.7], [1.6, 0.4]]), (0.0, 10 * good)
        tracker = create_tracker("rk4", double_gyre(), boundary)
        ends = [tracker.track_particles(seeds, span, 2, dt=dt).positions[-1] for dt in (good, good / 8)]
        np.testing.assert_allclose(*ends, atol=1e-4)


def test_steps_from_record_to_record_are_told_too():
    with pytest.warns(UserWarning, match=r"got steps of 100 \(the recorded spacing\)"):
        create_tracker("rk4", double_gyre()).track_particles([[0.3, 0.2]], (0.0, 1000.0), 11)


@pytest.mark.parametrize(
    "seeds", [[[0.5, 0.5]], [[0.5, 0.5], [0.3, 0.2]], [[9.0, 0.5], [0.3, 0.2], [0.2, 0.7]]]
)
@pytest.mark.parametrize("span", [(0.0, 100.0), (100.0, 0.0)])
@pytest.mark.parametrize("dt", [5.0, 100.0])
def test_long_steps_are_told_wherever_particles_begin(seeds, span, dt):
    """Of two particles the first counted 63 times of 64; where the velocity does not change at first, nothing was said."""

    def saddle(x, t):
        turning = jnp.stack([jnp.sin(jnp.pi * x[0]), -jnp.sin(jnp.pi * x[1])])
        return jnp.where(x[0] > 5, jnp.array([1.0, 0.0]), turning)

    with pytest.warns(UserWarning, match=rf"got steps of {dt:g} .*means nothing") as told:
        create_tracker("rk4", AnalyticField(saddle, 2)).track_particles(seeds, span, 2, dt=dt)
    assert 0.005 < _advised(str(told[0].message)) < 1


def test_long_steps_that_are_right_are_not_told():
    # A uniform flow folded many times, a shear however strong, integrators that choose their steps, shorter true steps.
    _run(AnalyticField(lambda x, t: jnp.array([3.0, 2.0]), 2), 100.0, BOX)
    _run(AnalyticField(lambda x, t: jnp.array([50.0 * x[1], 0.0]), 2), 100.0)
    create_tracker("dopri5", double_gyre()).track_particles([[0.3, 0.2]], (0.0, 200.0), 3, dt=100.0)
    create_tracker("rk4", double_gyre()).track_particles([[0.3, 0.2]], (0.0, 100.0), 1001, dt=100.0)


def test_steps_too_long_for_how_fast_a_formula_changes_in_time_are_told():
    # A turning and an ebbing current, also where it is slack when the run begins; half a period is too long, a tenth is not.
    turning = AnalyticField(lambda x, t: jnp.stack([jnp.cos(5 * t), jnp.sin(5 * t)]), 2)
    tide = AnalyticField(lambda x, t: jnp.stack([jnp.sin(5 * t), 0.2 + 0 * t]), 2)
    for field in (turning, tide):
        with pytest.warns(UserWarning, match=r"got steps of 1 .* the velocity changes by about") as told:
            _run(field, 1.0)
        assert 0.005 < _advised(str(told[0].message)) < 0.2
        _run(field, 0.1)
    # A wave that goes with the flow is the same for who goes with both.
    _run(AnalyticField(lambda x, t: jnp.stack([1 + 0 * t, jnp.sin(5 * (x[0] - t))]), 2), 1.0)


def test_steps_on_a_sphere_are_compared_in_metres():
    # A zonal wind of 10 m/s goes right however near the pole; an eddy 2 km wide does not in steps of a day.
    wind = AnalyticField(lambda x, t: jnp.array([10.0, 0.0]), 2, sphere=Sphere())
    create_tracker("rk4", wind).track_particles([[0.0, 80.0]], (0.0, 864000.0), 11)
    eddy = AnalyticField(lambda x, t: jnp.array([-x[1], x[0]]) * 55.0, 2, sphere=Sphere())
    with pytest.warns(UserWarning, match=r"changes by about 4[0-9] times itself"):
        create_tracker("rk4", eddy).track_particles([[0.01, 0.0]], (0.0, 864000.0), 11)


@pytest.mark.parametrize("sphere", [None, Sphere()])
def test_steps_across_a_grid_are_told(sphere):
    grid = RectilinearGrid([np.linspace(0, 2, 9), np.linspace(0, 1, 5)], sphere=sphere)
    x, y = np.asarray(grid.positions).T
    values = np.stack([-np.sin(np.pi * x) * np.cos(np.pi * y), np.cos(np.pi * x) * np.sin(np.pi * y)], -1)
    unit = 1.0 if sphere is None else sphere.metres_per_degree / 1000
    field = TimeSeriesField(values[None] * unit, [0.0], grid=grid)
    scale = 1.0 if sphere is None else 1000.0
    with pytest.warns(UserWarning, match=r"got steps of .* crosses .* times the grid's extent") as told:
        _run(field, 100.0 * scale)
    assert _advised(str(told[0].message)) == pytest.approx(0.04 * scale, rel=0.3)
    _run(field, 0.5 * scale)

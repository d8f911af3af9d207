"""Integrators that a user writes get what the built-in ones get, by the traits they declare."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace import AnalyticField, Dopri5, Outcome, create_tracker
from jaxtrace.fields import Sphere, constant_flow, solid_rotation
from jaxtrace.integrators import RK4, AbstractIntegrator, EulerMaruyama, Inertial, ParticleState, Progress

pytestmark = pytest.mark.usefixtures("quick_compile")


class Heun(AbstractIntegrator):
    order = 2
    adds_increments = True
    steps_in_metres = True

    def step(self, field, state, t, dt, key=None):
        first = field.at(t).sample(state.position, state.hint)
        last = field.at(t + dt).sample(state.position + dt * first.velocity, first.hint)
        position = state.position + 0.5 * dt * (first.velocity + last.velocity)
        return ParticleState(position, first.velocity, last.hint, first.inside, state.memory)


class Undeclared(Heun):
    adds_increments = False
    steps_in_metres = False


class Bisected(AbstractIntegrator):
    """Two steps of Heun in every interval; stops after half of it where `stops`."""

    stops: bool = False
    order = 2
    adaptive = True

    def remember(self, position):
        return jnp.ones((), position.dtype)

    def progress(self, memory):
        return Progress(memory < 1, jnp.zeros((), bool), memory)

    def step(self, field, state, t, dt, key=None):
        half = Heun().step(field, state, t, 0.5 * dt)
        if self.stops:
            return ParticleState(half.position, half.velocity, half.hint, half.inside, 0.5 * state.memory)
        whole = Heun().step(field, half, t + 0.5 * dt, 0.5 * dt)
        return ParticleState(whole.position, half.velocity, whole.hint, half.inside, state.memory)


def test_rounding_is_carried_where_a_method_says_that_it_only_adds() -> None:
    def error(method: AbstractIntegrator) -> float:
        tracker = create_tracker(method, constant_flow([0.001, 0.0]))
        run = tracker.track_particles(np.array([[7.0, 0.0]]), (0.0, 10.0), n_timesteps=2, dt=0.001)
        return float(abs(run.final[0, 0] - 7.01))

    assert error(Heun()) < 1e-6
    assert error(RK4()) < 1e-6
    assert error(Undeclared()) > 1e-4


@pytest.mark.parametrize("method", [Bisected(), Dopri5()])
def test_an_adaptive_method_is_given_whole_recorded_intervals(method: AbstractIntegrator) -> None:
    tracker = create_tracker(method, solid_rotation(rate=1.0))
    run = tracker.track_particles(np.array([[1.0, 0.0]]), (0.0, 0.4), n_timesteps=5)
    assert tracker.explain().steps == 4
    assert "divides" in tracker.explain().dt_reason
    np.testing.assert_allclose(run.final, [[np.cos(0.4), np.sin(0.4)]], atol=2e-4)
    np.testing.assert_array_equal(run.times, np.linspace(0, 0.4, 5))


def test_an_adaptive_method_that_gives_up_ends_its_particle_at_that_time() -> None:
    run = create_tracker(Bisected(stops=True), constant_flow([1.0, 0.0])).track_particles(
        np.zeros((2, 2)), (0.0, 1.0), n_timesteps=2
    )
    assert run.outcomes.tolist() == [Outcome.STEP_LIMIT] * 2
    np.testing.assert_allclose(run.final[:, 0], 0.5)
    assert run.end_times is not None
    np.testing.assert_allclose(run.end_times, 0.5)


def test_a_random_walk_has_the_traits_of_its_advection() -> None:
    walk = EulerMaruyama(0.0, advection=Inertial(0.1))
    assert walk.inertia
    assert not EulerMaruyama(0.0).inertia
    assert EulerMaruyama(0.0, advection=Dopri5()).progress(Dopri5().remember(jnp.zeros(2))) is not None
    assert not walk.adaptive


def test_explain_names_the_path_taken() -> None:
    report = create_tracker(Heun(), solid_rotation()).explain(10, 3, time_span=(0.0, 1.0), dt=0.1)
    assert "of RK4, not of Heun" in str(report) or jax.default_backend() not in ("cpu", "gpu")
    assert not report.fused


def test_only_a_method_that_says_so_steps_in_metres() -> None:
    field = AnalyticField(lambda x, t: jnp.array([0.0, 100.0]), 2, sphere=Sphere())
    over_the_pole = np.array([[0.0, 89.9]])
    span = {"time_span": (0.0, 400.0), "n_timesteps": 2, "dt": 100.0}
    run = create_tracker(Heun(), field).track_particles(over_the_pole, **span)
    rk4 = create_tracker("rk4", field).track_particles(over_the_pole, **span)
    np.testing.assert_allclose(run.final, rk4.final, atol=1e-3)
    with pytest.warns(UserWarning, match="does not declare `steps_in_metres = True`"):
        create_tracker(Undeclared(), field)
    with pytest.raises(ValueError, match=r"`advection` of a random walk on longitudes.*Undeclared does not"):
        create_tracker(EulerMaruyama(1.0, advection=Undeclared()), field).track_particles(
            over_the_pole, **span
        )


def test_a_random_walk_goes_back_in_time_only_where_its_advection_does() -> None:
    flow = constant_flow([1.0, 0.0])
    track = create_tracker(EulerMaruyama(0.1, advection=Inertial(0.5)), flow)
    with pytest.raises(
        ValueError, match=r"`time_span` must rise for EulerMaruyama, which cannot go back in time"
    ):
        track.track_particles(jnp.zeros((3, 2)), (1.0, 0.0), dt=0.1)
    back = create_tracker(EulerMaruyama(0.0), flow)
    final = back.track_particles(jnp.zeros((3, 2)), (1.0, 0.0), dt=0.1).final
    np.testing.assert_allclose(final[:, 0], -1.0, atol=1e-6)

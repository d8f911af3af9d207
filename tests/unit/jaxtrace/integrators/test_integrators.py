"""Integrators: measured order, error control, the moments of random walks, and the speed particles settle at."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, PyTree

from jaxtrace.fields.base import AbstractField, Sample
from jaxtrace.integrators import (
    RK4,
    AbstractIntegrator,
    Dopri5,
    Euler,
    EulerMaruyama,
    Inertial,
    Midpoint,
    Milstein,
    ParticleState,
    integrator_named,
    particle_key,
    stokes_relaxation_time,
)

pytestmark = pytest.mark.usefixtures("quick_compile")


class Flow(AbstractField):
    """Any function of position and time; particles further than `edge` from the origin are outside."""

    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    dim: int = eqx.field(static=True, default=2)
    edge: float = 1e9

    def start(self, x: Float[Array, " dim"]) -> PyTree:
        return jnp.zeros((), jnp.int32)

    def sample(self, x: Float[Array, " dim"], t: Float[Array, ""], hint: PyTree) -> Sample:
        inside: Bool[Array, ""] = jnp.abs(x).max() <= self.edge
        return Sample(self.function(x, t), inside, hint + 1)


def spiral(x: Array, t: Array) -> Array:
    """Unsteady and not linear, with a known path: `r' = r cos t`, `theta' = r`."""
    r = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
    return jnp.cos(t) * x + r * jnp.stack([-x[1], x[0]])


def spiral_end(t: float) -> np.ndarray:
    """Where the spiral brings (1, 0): `r = exp(sin t)`, `theta` its integral."""
    s = np.linspace(0.0, t, 20001)
    r = np.exp(np.sin(s))
    theta = np.trapezoid(r, s)
    # The trapezoid's error of order h² is removed by one Richardson step.
    theta += (theta - np.trapezoid(r[::2], s[::2])) / 3
    return r[-1] * np.array([np.cos(theta), np.sin(theta)])


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def run(
    integrator: AbstractIntegrator, field: AbstractField, x: Any, span: tuple[float, float], steps: int
) -> ParticleState:
    """One particle through equal intervals, with a key that only random walks use."""
    start = jnp.asarray(x, float)
    t0 = jnp.asarray(span[0], start.dtype)
    dt = jnp.asarray((span[1] - span[0]) / steps, start.dtype)
    return _run(integrator, field, start, t0, dt, jnp.asarray(steps))


@eqx.filter_jit
def _run(
    integrator: AbstractIntegrator, field: AbstractField, start: Array, t0: Array, dt: Array, steps: Array
) -> ParticleState:
    def body(i: Array, state: ParticleState) -> ParticleState:
        return integrator.step(field, state, t0 + i * dt, dt)

    return jax.lax.fori_loop(0, steps, body, integrator.start(field, start, t0))


@pytest.mark.parametrize(
    ("integrator", "steps"),
    [
        (Euler(), (200, 400)),
        (Midpoint(), (100, 200)),
        (RK4(), (160, 320)),
        # Tolerances so wide that no step is refused or cut: the fifth-order formula with constant steps.
        (Dopri5(rtol=1e6, atol=1e6), (80, 160)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AbstractIntegrator) else "",
)
@pytest.mark.parametrize("end", [1.0, -1.0])
def test_the_measured_order_is_the_stated_one(
    double: None, integrator: AbstractIntegrator, steps: tuple[int, int], end: float
) -> None:
    field = Flow(spiral)
    errors = [
        np.abs(
            np.asarray(run(_constant(integrator), field, [1.0, 0.0], (0.0, end), n).position)
            - spiral_end(end)
        ).max()
        for n in steps
    ]
    measured = np.log2(errors[0] / errors[1])
    assert abs(measured - integrator.order) < 0.2, (measured, errors)


def _constant(integrator: AbstractIntegrator) -> AbstractIntegrator:
    """Dopri5 whose first guess is already the whole interval."""
    if isinstance(integrator, Dopri5):
        return Dopri5(rtol=1e6, atol=1e6, min_step=1e3, max_step=1e4)
    return integrator


def test_back_in_time_returns_to_the_start(double: None) -> None:
    field = Flow(spiral)
    for integrator in (RK4(), Dopri5(rtol=1e-10, atol=1e-12)):
        there = run(integrator, field, [1.0, 0.5], (0.0, 1.0), 50).position
        back = run(integrator, field, there, (1.0, 0.0), 50).position
        np.testing.assert_allclose(back, [1.0, 0.5], atol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8])
def test_dopri5_keeps_its_tolerance(double: None, tolerance: float) -> None:
    state = run(Dopri5(rtol=tolerance, atol=tolerance), Flow(spiral), [1.0, 0.0], (0.0, 3.0), 3)
    error = np.abs(np.asarray(state.position) - spiral_end(3.0)).max()
    assert error < 40 * tolerance
    # A controller that always steps as short as it can would also be exact; this one does what the tolerance needs.
    assert error > tolerance / 1000
    assert not bool(state.memory.exhausted)


def test_dopri5_lands_exactly_and_needs_few_steps(double: None) -> None:
    constant = Flow(lambda x, t: jnp.stack([jnp.ones_like(t), t]))
    state = run(Dopri5(), constant, [0.0, 0.0], (0.0, 0.7), 1)
    np.testing.assert_allclose(state.position, [0.7, 0.245], rtol=1e-13)
    assert int(state.memory.accepted) < 12
    assert int(state.memory.rejected) == 0


@pytest.mark.parametrize("precision", ["double", "single"])
def test_dopri5_remembers_its_step_between_intervals(precision: str, request: pytest.FixtureRequest) -> None:
    if precision == "double":
        request.getfixturevalue("double")
    field, method = Flow(spiral), Dopri5(rtol=1e-5)
    once = run(method, field, [1.0, 0.0], (0.0, 2.0), 1)
    cut = run(method, field, [1.0, 0.0], (0.0, 2.0), 4)
    afresh, position = 0, jnp.array([1.0, 0.0])
    for start in (0.0, 0.5, 1.0, 1.5):
        part = run(method, field, position, (start, start + 0.5), 1)
        afresh, position = afresh + int(part.memory.accepted), part.position
    # Each end of an interval costs a step that it shortens; in single precision rounding is in the error estimate, and
    # how many steps it adds depends on the code generator.
    more = int(cut.memory.accepted) - int(once.memory.accepted)
    assert more < (afresh - int(once.memory.accepted)) / 2
    assert more <= 5 or precision == "single"
    np.testing.assert_allclose(cut.position, once.position, atol=1e-3)


def test_dopri5_rejects_where_the_flow_turns_suddenly() -> None:
    def burst(x: Array, t: Array) -> Array:
        return jnp.stack([jnp.exp(-(((t - 5) / 0.2) ** 2)), jnp.zeros_like(t)])

    state = run(Dopri5(rtol=1e-5, atol=1e-5), Flow(burst), [0.0, 0.0], (4.0, 6.0), 1)
    assert int(state.memory.rejected) > 0
    np.testing.assert_allclose(state.position[0], 0.2 * np.sqrt(np.pi), rtol=1e-3)


def test_dopri5_says_when_it_stops_early_or_is_forced() -> None:
    stopped = run(Dopri5(rtol=1e-6, atol=1e-6, max_steps=3), Flow(spiral), [1.0, 0.0], (0.0, 3.0), 1)
    assert bool(stopped.memory.exhausted)
    forced = run(Dopri5(rtol=1e-6, atol=1e-6, min_step=0.5), Flow(spiral), [1.0, 0.0], (0.0, 3.0), 1)
    assert int(forced.memory.forced) > 0
    assert not bool(forced.memory.exhausted)
    lost = run(Dopri5(max_steps=50), Flow(lambda x, t: x * jnp.nan), [1.0, 0.0], (0.0, 1.0), 1)
    assert bool(lost.memory.exhausted)
    np.testing.assert_array_equal(lost.position, [1.0, 0.0])


def test_dopri5_chooses_steps_for_each_particle_alone() -> None:
    integrator, field = Dopri5(rtol=1e-5, atol=1e-7), Flow(spiral)
    seeds = jnp.asarray([[0.1, 0.0], [1.0, 0.0], [3.0, 1.0]])
    zero, dt = jnp.zeros(()), jnp.asarray(1.0)

    def one(x: Array) -> ParticleState:
        return integrator.step(field, integrator.start(field, x, zero), zero, dt)

    many = jax.vmap(one)(seeds)
    for i, seed in enumerate(seeds):
        alone = one(seed)
        np.testing.assert_allclose(many.position[i], alone.position, rtol=1e-5)
        # Two programs round differently, so that a step on the brink is taken by one and not by the other.
        assert abs(int(many.memory.accepted[i]) - int(alone.memory.accepted)) <= 1
    assert int(many.memory.accepted[2]) > int(many.memory.accepted[0])


def test_gradients_of_the_seeds_forward_and_reverse(double: None) -> None:
    """A linear flow: the derivative of the end with respect to the seed is the matrix exponential."""
    matrix = np.array([[0.3, -1.0], [0.5, 0.2]])
    field = Flow(lambda x, t: jnp.asarray(matrix) @ x)
    values, vectors = np.linalg.eig(matrix)
    exact = np.real(vectors @ np.diag(np.exp(values)) @ np.linalg.inv(vectors))
    zero, dt = jnp.zeros(()), jnp.asarray(1.0)

    def end(integrator: AbstractIntegrator) -> Callable[[Array], Array]:
        return lambda x: integrator.step(field, integrator.start(field, x, zero), zero, dt).position

    seeds = jnp.asarray([[1.0, 2.0], [-3.0, 0.5]])
    adaptive = {"rtol": 1e-9, "atol": 1e-11}
    forward = jax.vmap(jax.jacfwd(end(Dopri5(**adaptive))))(seeds)
    reverse = jax.vmap(jax.jacrev(end(Dopri5(**adaptive, differentiable=True, max_steps=200))))(seeds)
    for i in range(2):
        np.testing.assert_allclose(forward[i], exact, atol=1e-7)
        np.testing.assert_allclose(reverse[i], exact, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(end(RK4()))(seeds[0]), exact, atol=2e-2)


def test_the_state_tells_where_the_particle_began() -> None:
    field = Flow(lambda x, t: jnp.ones_like(x), edge=1.0)
    inside = run(RK4(), field, [0.9, 0.0], (0.0, 1.0), 1)
    assert bool(inside.inside)
    outside = run(RK4(), field, [0.9, 0.0], (0.0, 2.0), 2)
    assert not bool(outside.inside)
    # start and four stages, each beginning where the one before ended
    assert int(inside.hint) == 5


@pytest.mark.parametrize("name", ["euler", "rk2", "rk4", "dopri5", "midpoint"])
def test_names_build_integrators(name: str) -> None:
    assert isinstance(integrator_named(name), AbstractIntegrator)
    assert integrator_named("dopri5", rtol=1e-7).rtol == 1e-7  # type: ignore[attr-defined]


def test_wrong_use_is_named() -> None:
    with pytest.raises(ValueError, match="`integrator_name` must be one of euler"):
        integrator_named("rk5")
    with pytest.raises(ValueError, match="finished integrator"):
        integrator_named(RK4(), rtol=1.0)
    with pytest.raises(ValueError, match="`rtol` must be at least 0"):
        Dopri5(rtol=-1.0)
    with pytest.raises(ValueError, match="`max_step` must exceed"):
        Dopri5(min_step=1.0, max_step=0.5)
    with pytest.raises(ValueError, match="`diffusivity` must be at least 0"):
        EulerMaruyama(diffusivity=-1.0)
    with pytest.raises(ValueError, match="`key` must be given"):
        run(EulerMaruyama(diffusivity=1.0), Flow(spiral), [0.0, 1.0], (0.0, 1.0), 1)
    with pytest.raises(ValueError, match="`relaxation_time` must be at least 0"):
        Inertial(relaxation_time=-1.0)


STILL = Flow(lambda x, t: jnp.zeros_like(x))


def cloud(
    integrator: AbstractIntegrator,
    field: AbstractField,
    x: Array,
    steps: int,
    dt: float,
    seed: int = 0,
    wrap: bool = False,
) -> Array:
    """Many particles through many steps; `wrap` keeps them in the unit torus."""

    @eqx.filter_jit
    def go(integrator: AbstractIntegrator, x: Array) -> Array:
        start = jax.vmap(lambda x: integrator.start(field, x, jnp.zeros(())))(x)
        ids = jnp.arange(len(x))

        def body(i: Array, states: ParticleState) -> ParticleState:
            keys = jax.vmap(lambda n: particle_key(jr.key(seed), n, i))(ids)
            moved = jax.vmap(lambda s, k: integrator.step(field, s, i * dt, jnp.asarray(dt), k))(states, keys)
            return eqx.tree_at(lambda s: s.position, moved, moved.position % 1.0) if wrap else moved

        return jax.lax.fori_loop(0, steps, body, start).position

    return go(integrator, x)


@pytest.mark.parametrize("kind", [EulerMaruyama, Milstein])
@pytest.mark.parametrize("dim", [2, 3])
def test_mean_square_displacement_is_2_d_k_t(kind: type, dim: int) -> None:
    n, steps, dt, diffusivity = 4000, 20, 0.1, 0.3
    for sign in (1.0, -1.0):
        field = Flow(lambda x, t: jnp.zeros_like(x), dim=dim)
        end = np.asarray(cloud(kind(diffusivity=diffusivity), field, jnp.zeros((n, dim)), steps, sign * dt))
        expected = 2 * dim * diffusivity * steps * dt
        # The mean of n squares scatters by sqrt(2 / (n dim)); four of those.
        assert abs((end**2).sum(1).mean() / expected - 1) < 4 * np.sqrt(2 / (n * dim))
        assert np.abs(end.mean(0)).max() < 4 * np.sqrt(2 * diffusivity * steps * dt / n)


def test_diffusivity_per_axis_and_advection_beside_it() -> None:
    field = Flow(lambda x, t: jnp.asarray([1.0, -2.0]))
    walk = EulerMaruyama(diffusivity=[0.4, 0.0], advection=RK4())
    end = np.asarray(cloud(walk, field, jnp.zeros((3000, 2)), 10, 0.1))
    np.testing.assert_allclose(end[:, 1], -2.0, rtol=1e-5)
    assert abs(end[:, 0].var() / 0.8 - 1) < 0.12
    assert abs(end[:, 0].mean() - 1.0) < 0.07


class Sine(eqx.Module):
    """A diffusivity that is twenty times stronger in one half of the unit interval than in the other."""

    mean: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.05)

    def __call__(self, x: Array, t: Array) -> Array:
        return self.mean * (1 + 0.9 * jnp.sin(2 * jnp.pi * x[0]))


@pytest.mark.parametrize("kind", [EulerMaruyama, Milstein])
def test_a_well_mixed_cloud_stays_well_mixed(kind: type) -> None:
    n, bins = 20_000, 10
    field = Flow(lambda x, t: jnp.zeros_like(x), dim=1)
    seeds = jnp.asarray((np.arange(n) + 0.5) / n, jnp.float32)[:, None]

    def density(correct: bool) -> np.ndarray:
        walk = kind(diffusivity=Sine(), drift_correction=correct)
        end = np.asarray(cloud(walk, field, seeds, 200, 0.02, wrap=True))[:, 0]
        return np.histogram(end, bins=bins, range=(0, 1))[0] / (n / bins)

    right, wrong = density(True), density(False)
    # A bin holds 2000, so it scatters by 2.2 %; the largest of ten by about 4 %.
    assert np.abs(right - 1).max() < 0.09
    # Without the drift particles gather where K is small: density 1/K, which is above 2 there.
    assert wrong.max() > 1.8
    assert wrong.argmax() in (7, 8)


@pytest.mark.parametrize(("kind", "order"), [(EulerMaruyama, 0.5), (Milstein, 1.0)])
def test_strong_order_on_a_path_known_exactly(double: None, kind: type, order: float) -> None:
    """`K = b² x²/2` and `u = (a - b²) x` make geometric Brownian motion, `x0 exp((a - b²/2) t + b W)`."""
    a, b, n, fine = 0.5, 0.6, 4000, 256
    walk = kind(diffusivity=lambda x, t: 0.5 * b**2 * x**2)
    noise = jr.normal(jr.key(3), (n, fine)) * np.sqrt(1 / fine)
    exact = np.exp((a - b**2 / 2) + b * np.asarray(noise.sum(1)))

    @jax.jit
    def end(increments: Array) -> Array:
        dt = jnp.asarray(1.0 / increments.shape[0])

        def body(x: Array, dw: Array) -> tuple[Array, None]:
            return x + dt * (a - b**2) * x + walk.kick(x, jnp.zeros(()), dt, dw[None]), None

        return jax.lax.scan(body, jnp.ones(1), increments)[0][0]

    errors = []
    for steps in (16, 64, 256):
        coarse = noise.reshape(n, steps, fine // steps).sum(2)
        errors.append(np.abs(np.asarray(jax.vmap(end)(coarse)) - exact).mean())
    measured = np.log2(errors[0] / errors[-1]) / 4
    assert abs(measured - order) < 0.2, (measured, errors)


def test_noise_belongs_to_the_particle_and_the_step() -> None:
    walk = EulerMaruyama(diffusivity=1.0)
    start = jnp.zeros((6, 2))
    whole = cloud(walk, STILL, start, 3, 0.1)
    np.testing.assert_array_equal(whole[:3], cloud(walk, STILL, start[:3], 3, 0.1))
    assert len(np.unique(np.asarray(whole), axis=0)) == 6
    assert not np.array_equal(whole, cloud(walk, STILL, start, 3, 0.1, seed=1))


def test_gradient_of_the_spread_with_respect_to_the_diffusivity() -> None:
    def spread(diffusivity: Array) -> Array:
        return (
            cloud(EulerMaruyama(diffusivity=diffusivity), STILL, jnp.zeros((500, 2)), 4, 0.25) ** 2
        ).mean()

    value, slope = jax.value_and_grad(spread)(jnp.asarray(0.3))
    # The displacement is sqrt(2 K) times noise, so its square is linear in K.
    np.testing.assert_allclose(slope, value / 0.3, rtol=1e-4)
    still = jax.grad(lambda k: cloud(EulerMaruyama(diffusivity=k), STILL, jnp.zeros((2, 2)), 1, 1.0).sum())(
        jnp.asarray(0.0)
    )
    assert np.isfinite(still)


@pytest.mark.parametrize("tau", [1e-6, 0.01, 0.3, 5.0])
def test_terminal_velocity(tau: float) -> None:
    field = Flow(lambda x, t: jnp.asarray([0.2, 0.0]))
    particle = Inertial(relaxation_time=tau, gravity=[0.0, -9.81], density_ratio=0.25)
    state = run(particle, field, [0.0, 0.0], (0.0, 60.0), 200)
    np.testing.assert_allclose(state.velocity, [0.2, -9.81 * 0.75 * tau], rtol=2e-4)


def test_bubbles_rise_and_neutral_particles_stay() -> None:
    gravity = [0.0, -9.81]
    for ratio, sign in ((0.0, -1), (1.0, 0), (3.0, 1)):
        state = run(
            Inertial(relaxation_time=0.1, gravity=gravity, density_ratio=ratio),
            STILL,
            [0.0, 0.0],
            (0.0, 1.0),
            20,
        )
        assert np.sign(state.position[1]) == sign


@pytest.mark.parametrize("tau", [0.5, 1e-3])
def test_inertial_order(double: None, tau: float) -> None:
    """Against RK4 of the full equations with far shorter steps; also where drag is much faster than the step."""
    field = Flow(spiral)

    class Full(AbstractField):
        dim: int = eqx.field(static=True, default=4)

        def start(self, x: Float[Array, " dim"]) -> PyTree:
            return ()

        def sample(self, x: Float[Array, " dim"], t: Float[Array, ""], hint: PyTree) -> Sample:
            fluid = spiral(x[:2], t)
            return Sample(
                jnp.concatenate([x[2:], (fluid - x[2:]) / tau + jnp.asarray([0.0, -1.0])]),
                jnp.asarray(True),
                (),
            )

    exact = np.asarray(run(RK4(), Full(), [1.0, 0.0, 1.0, 1.0], (0.0, 1.0), 20_000).position)[:2]
    errors = [
        np.abs(
            np.asarray(run(Inertial(tau, [0.0, -1.0]), field, [1.0, 0.0], (0.0, 1.0), n).position) - exact
        ).max()
        for n in (40, 80)
    ]
    if tau > 0.1:
        assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.2, errors
    else:
        # Between drag and step lies the range where every method for stiff systems loses order; it stays small.
        assert errors[1] < errors[0] < 5e-3


def test_a_particle_without_inertia_is_a_tracer(double: None) -> None:
    field = Flow(spiral)
    light = run(Inertial(relaxation_time=0.0), field, [1.0, 0.0], (0.0, 1.0), 50).position
    tracer = run(Midpoint(), field, [1.0, 0.0], (0.0, 1.0), 50).position
    np.testing.assert_allclose(light, tracer, atol=1e-5)


def test_gradient_of_settling_is_finite_and_right() -> None:
    def depth(tau: Array) -> Array:
        particle = Inertial(relaxation_time=tau, gravity=[0.0, -1.0])
        state = particle.start(STILL, jnp.zeros(2), jnp.zeros(()))
        return particle.step(STILL, state, jnp.zeros(()), jnp.asarray(2.0)).position[1]

    # y = -tau t + tau² (1 - exp(-t / tau))
    tau, t = 0.5, 2.0
    slope = -t + 2 * tau * (1 - np.exp(-t / tau)) - t * np.exp(-t / tau)
    np.testing.assert_allclose(jax.grad(depth)(jnp.asarray(tau)), slope, rtol=1e-4)
    assert np.isfinite(jax.grad(depth)(jnp.asarray(0.0)))


def test_stokes_relaxation_time() -> None:
    assert stokes_relaxation_time(diameter=50e-6, density=2650.0, viscosity=1e-3) == pytest.approx(
        3.68e-4, rel=1e-3
    )
    with pytest.raises(ValueError, match="`diameter` must be positive"):
        stokes_relaxation_time(0.0, 1.0, 1.0)


def test_float32_stays_float32_beside_float64(double: None) -> None:
    field = Flow(lambda x, t: x * t)
    x = jnp.ones(2, jnp.float32)
    t, dt = jnp.ones((), jnp.float32), jnp.full((), 0.1, jnp.float32)
    for integrator in (
        Euler(),
        RK4(),
        Dopri5(),
        Inertial(0.1, -1.0, 0.5),
        EulerMaruyama(0.1),
        Milstein(Sine()),
    ):
        before = integrator.start(field, x, t)
        after = integrator.step(field, before, t, dt, jr.key(0))
        assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, before)
        assert after.position.dtype == jnp.float32

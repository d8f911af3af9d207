"""True effects and true optima, beside matrix solutions, brute force and grids."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scm_oracle

from acbo.scms import (
    SCM,
    Intervention,
    best_intervention,
    common_noise,
    hard,
    linear_gaussian_prior,
    linear_model,
    parse_model,
    propagate,
    regret,
    sample_scm,
    scm_prior,
    true_effect,
)
from acbo.scms.mechanisms import standard_noise

pytestmark = pytest.mark.usefixtures("quick_compile")


def linear(seed: int, size: int = 8, units: int = 0, **choices):
    choices = {"variables": (4, 6), "bias": (-1.0, 1.0), **choices}
    return sample_scm(jr.key(seed), scm_prior(mechanisms="linear", **choices), size, units)


@pytest.mark.parametrize("units", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_effects_of_linear_models_solve_the_linear_system(seed: int, units: int) -> None:
    scm = linear(seed, units=units)
    key_mask, key_value, key_strength = jr.split(jr.key(seed + 10), 3)
    mask = jr.bernoulli(key_mask, 0.4, (8,)) & scm.live
    value, strength = jr.normal(key_value, (8,)), jr.uniform(key_strength, (8,))
    done = Intervention(mask, value, strength, 2 * value)
    host = [np.asarray(a, float) for a in (mask, value, strength)]
    keep = np.where(host[0], 1 - host[2], 1)
    add = np.where(host[0], host[2] * host[1] + 2 * host[1], 0)
    weight, bias = np.asarray(scm.mechanism.weight, float), np.asarray(scm.mechanism.bias, float)
    expected = scm_oracle.linear_mean(weight, bias, int(scm.target), keep, add)
    assert float(true_effect(scm, done)) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    nothing_done = scm_oracle.linear_mean(weight, bias, int(scm.target), np.ones(8), np.zeros(8))
    assert float(true_effect(scm)) == pytest.approx(nothing_done, rel=1e-4, abs=1e-5)


def test_effects_of_nonlinear_models_are_means_over_many_rows() -> None:
    scm = sample_scm(jr.key(3), scm_prior("chain", variables=(5, 5)), 8, 4)
    assert not bool(scm.is_linear)
    done = hard(jnp.arange(8) == scm.order[0], jnp.full(8, 1.2))
    draws = np.random.default_rng(0).uniform(-1, 1, (2000, 8))
    noise = np.asarray(standard_noise(scm.noise.kind[:, None], jnp.asarray(draws.T, jnp.float32)), float).T
    full = [np.broadcast_to(a, noise.shape) for a in (np.asarray(done.mask), np.full(8, 1.2))]
    y = scm_oracle.propagate(jax.device_get(scm), noise, *full)[:, int(scm.target)]
    error = y.std() / np.sqrt(2000)
    assert float(true_effect(scm, done, samples=4000)) == pytest.approx(y.mean(), abs=4 * error)
    # The same draws on every call, and others with another key.
    assert float(true_effect(scm, done)) == float(true_effect(scm, done))
    assert float(true_effect(scm, done)) != float(true_effect(scm, done, jr.key(5)))


def test_common_noise_is_mirrored() -> None:
    scm = sample_scm(jr.key(3), scm_prior(variables=(5, 5)), 8, 4)
    noise = np.asarray(common_noise(scm, samples=10))
    np.testing.assert_allclose(noise[:5], -noise[5:], atol=1e-6)


@pytest.mark.parametrize(("most", "minimize", "units"), [(1, True, 0), (2, False, 0), (2, True, 2)])
def test_the_best_intervention_of_linear_models_is_that_of_all_corners(
    most: int, minimize: bool, units: int
) -> None:
    for seed in range(3):
        scm = linear(seed, size=6, units=units, manipulable=0.8)
        found = best_intervention(scm, most, minimize)
        sign = 1.0 if minimize else -1.0
        value, members = scm_oracle.best_linear(jax.device_get(scm), most, sign)
        assert float(found.value) == pytest.approx(sign * value, rel=1e-4, abs=1e-5)
        assert float(true_effect(scm, found.intervention)) == pytest.approx(float(found.value), rel=1e-5)
        assert np.asarray(found.intervention.mask).sum() <= len(members)
        assert float(regret(scm, found.intervention, found.value, minimize)) == pytest.approx(0, abs=1e-5)


def test_the_best_intervention_of_nonlinear_models_is_that_of_a_fine_grid() -> None:
    prior = scm_prior("erdos_renyi", ("fourier", "tanh", "polynomial"), variables=(4, 4))

    @jax.jit
    def on_grid(scm: SCM, noise: jax.Array, mask: jax.Array, levels: jax.Array) -> jax.Array:
        rows = jax.vmap(lambda level: propagate(scm, noise, hard(mask, jnp.full(4, level))))(levels)
        return rows[..., scm.target].mean(1)

    solve = jax.jit(lambda s: best_intervention(s, 1, True, samples=200))
    for seed in range(4):
        scm = sample_scm(jr.key(seed), prior, 4, 6)
        noise = common_noise(scm, samples=200)
        found = solve(scm)
        best = float(true_effect(scm, samples=200))
        for v in np.flatnonzero(np.asarray(scm.manipulable)):
            levels = jnp.linspace(float(scm.low[v]), float(scm.high[v]), 801)
            best = min(best, float(on_grid(scm, noise, jnp.arange(4) == v, levels).min()))
        assert float(found.value) == pytest.approx(best, abs=2e-3)
        assert float(found.value) <= best + 1e-3


def test_two_variables_at_once_find_an_optimum_inside_their_ranges() -> None:
    # The least of (A - 0.7)² + (B + 1.1)² - A·B/2 lies where both derivatives vanish.
    model = parse_model(
        """A = N(0, 1); B = N(0, 1); C = A + B
        Y = (A - 0.7)**2 + (B + 1.1)**2 - 0.5*A*B + N(0, 1)
        A in [-2, 2]; B in [-2, 2]; target Y""",
        size=4,
        units=4,
    )
    expected = np.linalg.solve([[2, -0.5], [-0.5, 2]], [1.4, -2.2])
    levels, value = model.best(2, samples=32)
    a, b = expected
    assert value == pytest.approx((a - 0.7) ** 2 + (b + 1.1) ** 2 - 0.5 * a * b, abs=1e-3)
    np.testing.assert_allclose([levels["A"], levels["B"]], expected, atol=0.02)
    alone, _ = model.best(1, samples=32)
    assert len(alone) == 1
    assert model.best(2, minimize=False, samples=32)[1] > 10


def test_doing_nothing_wins_where_ranges_only_harm() -> None:
    model = parse_model("X = 1 + N(0, 1); Y = -X + N(0, 1); X in [-3, 0]")
    levels, value = model.best()
    assert levels == {}
    assert value == pytest.approx(-1)
    assert model.best(minimize=False) == ({"X": -3.0}, pytest.approx(3.0))


def test_of_equally_good_sets_the_smallest_wins_and_others_are_told() -> None:
    model = parse_model("X = N(0, 1); W = N(0, 1); Z = 2*X + N(0, 1); Y = Z + N(0, 1); A = Y", target="Y")
    found = best_intervention(model.scm, 2)
    assert float(found.value) == -4.0  # do(X = -2); do(Z) reaches -2 only
    assert np.flatnonzero(np.asarray(found.intervention.mask)).tolist() == [model.index("X")]
    sets = {
        tuple(np.flatnonzero(row)): value for row, value in zip(found.sets, found.set_values, strict=True)
    }
    assert float(sets[()]) == 0
    assert float(sets[(2,)]) == -2
    assert np.isnan(sets[(1,)])  # W moves nothing
    assert np.isnan(sets[(model.index("A"),)])
    assert len(sets) == 1 + 8 + 28
    none = best_intervention(model.scm, 0)
    assert (float(none.value), none.sets.shape) == (0, (1, 8))
    with pytest.raises(ValueError, match="at least 0; got -1"):
        best_intervention(model.scm, -1)


def test_batches_of_models_are_solved_as_one() -> None:
    scms = jax.vmap(lambda k: sample_scm(k, linear_gaussian_prior((3, 5)), 8, 0))(jr.split(jr.key(0), 5))
    together = jax.vmap(lambda s: best_intervention(s, 2).value)(scms)
    apart = [float(best_intervention(jax.tree.map(lambda a, n=n: a[n], scms), 2).value) for n in range(5)]
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_effects_are_differentiable_in_the_values_set() -> None:
    scm = sample_scm(jr.key(7), scm_prior("chain", variables=(5, 5)), 8, 4)
    parent = jnp.asarray(scm.parents)

    def value(level: jax.Array) -> jax.Array:
        return true_effect(scm, hard(parent, jnp.full(8, level)))

    slope = float(jax.grad(value)(jnp.float32(0.4)))
    rise = float(value(jnp.float32(0.45)) - value(jnp.float32(0.35)))
    assert slope == pytest.approx(rise / 0.1, rel=0.05, abs=5e-3)


def test_set_values_cover_all_sets_once() -> None:
    scm = linear(0, size=5, variables=(5, 5))
    sets = np.asarray(best_intervention(scm, 3).sets)
    expected = {s for k in range(4) for s in itertools.combinations(range(5), k)}
    assert {tuple(np.flatnonzero(row)) for row in sets} == expected
    assert len(sets) == len(expected)


@pytest.mark.parametrize(("unit", "offset"), [(1e-6, 0.0), (1e-9, 0.0), (1.0, 1e6), (1e9, 1e12)])
def test_optima_do_not_mind_units_nor_where_zero_is(unit: float, offset: float) -> None:
    weights = unit * np.array([[0, 0, 2.0], [0, 0, 3.0], [0, 0, 0]])
    model = linear_model(["a", "b", "y"], weights, scale=unit, bias=np.array([0, 0, offset]), target="y")
    done, value = model.best()
    assert done == {"b": -2.0}
    assert value == pytest.approx(offset - 6 * unit, rel=1e-5)
    assert model.best(minimize=False)[0] == {"b": 2.0}


def test_values_beyond_what_programs_hold_are_refused() -> None:
    text = "X = N(0, 1); Y = X**3 + N(0, 1)"
    for wrong in ({"X": 2e11}, {"X": np.array([0.0, 2e11])}):
        with pytest.raises(ValueError, match=r"must lie within ±1e\+10.*got 2e\+11. Use other units"):
            parse_model(text).effect(wrong)
    with pytest.raises(ValueError, match=r"`high` must lie within ±1e\+10.*got 2e\+11"):
        parse_model(text, ranges={"X": (0.0, 2e11)})
    steel = parse_model("E = 2e11 + 1e10*N(0, 1); Y = 1e-11*E", ranges={"E": (1e11, 3e11)})
    assert steel.effect() == pytest.approx(2.0, rel=1e-5)
    assert steel.effect({"E": 3e11}) == pytest.approx(3.0, rel=1e-5)

"""Beliefs: draws with the moments of the conjugate posterior, and effects and likelihoods as NumPy computes them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from acbo.beliefs import BeliefSettings, draw_models, effect_grid, effects_of, models_of
from acbo.beliefs.model_effects import log_likelihood
from acbo.beliefs.posterior_models import PSEUDO_ROWS, RATE
from acbo.data import Dataset, dataset
from acbo.experiments import Problem, known_graph, problem_of
from acbo.linear_algebra import solve_positive, whiten
from acbo.scms.interventions import hard
from acbo.scms.scm import SCM, linear_scm
from acbo.scms.true_effects import true_effect

pytestmark = pytest.mark.usefixtures("quick_compile")

MODELS = 4000
WEIGHT = np.array([[0, 0.5, 0.8], [0, 0, -0.6], [0, 0, 0]], np.float32)
GRAPH = jnp.asarray(WEIGHT != 0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(linear_scm(jnp.asarray(WEIGHT)), knowledge=known_graph(GRAPH))


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Twelve rows of 0 → 1 → 2 ← 0; in three of them variable 2 was set to what its causes would never give."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    x[:, 1] += 0.5 * x[:, 0]
    x[:, 2] = 0.4 + 0.8 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * x[:, 2]
    intervened = np.zeros((12, 3), bool)
    intervened[9:, 2], x[9:, 2] = True, 9.0
    return dataset(jnp.asarray(x), jnp.asarray(intervened), target=2)


@pytest.fixture(scope="module")
def current_belief(problem: Problem, data: Dataset) -> SCM:
    graphs = jnp.broadcast_to(GRAPH, (MODELS, 3, 3))
    return models_of(problem, data, graphs, jr.key(0), BeliefSettings(models=MODELS, slack=0.1))


def test_coefficients_have_the_moments_of_a_posterior_with_a_variance_for_each_row(
    data: Dataset, current_belief: SCM
) -> None:
    """Mean and variance of the noise are those of normal and inverse gamma; the covariance is the sandwich of HC3."""
    x = np.asarray(data.values, float)[:9]
    columns, y = np.stack([np.ones(9), x[:, 0], x[:, 1]], 1), x[:, 2]
    precision = columns.T @ columns + np.diag([1 / 100, 1 / 0.1, 1 / 0.1])
    mean = np.linalg.solve(precision, columns.T @ y)
    rate = RATE + 0.5 * (y @ y - mean @ precision @ mean)
    variance = rate / ((PSEUDO_ROWS + 9) / 2 - 1)
    inverse = np.linalg.inv(precision)
    leverage = np.einsum("ni,ij,nj->n", columns, inverse, columns)
    residual, known = (y - columns @ mean) / (1 - leverage), 1 - leverage.sum() / 9
    own = known * residual**2 / (rate / ((PSEUDO_ROWS + 9) / 2)) + 1 - known
    middle = columns.T @ (own[:, None] * columns) + np.diag([1 / 100, 1 / 0.1, 1 / 0.1])
    covariance = variance * inverse @ middle @ inverse
    m = current_belief.mechanism
    drawn = np.stack([m.bias[:, 2], m.weight[:, 0, 2], m.weight[:, 1, 2]], 1)
    error = np.sqrt(np.diag(covariance) / MODELS)
    assert (np.abs(drawn.mean(0) - mean) < 4.5 * error).all()
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(np.cov(drawn.T) / scale, covariance / scale, atol=0.12)
    squares = np.asarray(current_belief.noise.scale)[:, 2] ** 2
    np.testing.assert_allclose(squares.mean(), variance, rtol=0.05)
    # The precision is a gamma number: its mean is the shape over the rate, and its deviation that by root shape.
    shape = (PSEUDO_ROWS + 9) / 2
    np.testing.assert_allclose((1 / squares).mean(), shape / rate, rtol=0.04)
    np.testing.assert_allclose((1 / squares).std(), np.sqrt(shape) / rate, rtol=0.08)


def test_what_is_not_an_edge_has_no_weight(current_belief: SCM) -> None:
    weight = np.asarray(current_belief.mechanism.weight)
    assert (weight[:, ~np.asarray(GRAPH)] == 0).all()
    assert (weight[:, np.asarray(GRAPH)] != 0).all()


def test_a_known_graph_is_kept_even_with_more_parents_than_sets_have(problem: Problem, data: Dataset) -> None:
    settings = BeliefSettings(models=8, max_parents=1)
    drawn = eqx.filter_jit(draw_models)(problem, data, jr.key(0), settings)
    np.testing.assert_array_equal(drawn.adjacency, np.broadcast_to(GRAPH, (8, 3, 3)))


def test_effects_of_linear_models_are_exact(current_belief: SCM) -> None:
    few = jax.tree.map(lambda leaf: leaf[:3], current_belief)
    mask = jnp.asarray([[False, False, False], [True, False, False], [True, True, False]])
    value = jnp.asarray([[0, 0, 0], [1.5, 0, 0], [-2, 0.5, 0]], jnp.float32)
    found = effects_of(few, mask, value)
    expected = jax.vmap(lambda scm: jax.vmap(lambda m, v: true_effect(scm, hard(m, v)))(mask, value))(few)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    m = few.mechanism
    by_hand = m.bias[:, 2] + m.weight[:, 0, 2] * -2 + m.weight[:, 1, 2] * 0.5
    np.testing.assert_allclose(found[:, 2], by_hand, rtol=1e-5)


@pytest.fixture(scope="module")
def bent() -> tuple[Problem, Dataset]:
    """y = sin 2x and a little noise: nothing that a line could follow."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=40)
    both = np.stack([x, np.sin(2 * x) + 0.1 * rng.normal(size=40)], 1).astype(np.float32)
    line = linear_scm(jnp.asarray([[0.0, 1.0], [0.0, 0.0]]), low=-1.5, high=1.5)
    return problem_of(line, knowledge=known_graph(line.adjacency)), dataset(jnp.asarray(both), target=1)


def smooth_models(problem: Problem, data: Dataset, mechanism: str) -> SCM:
    settings = BeliefSettings(models=16, mechanism=mechanism, units=16)  # pyright: ignore[reportArgumentType]
    graphs = jnp.broadcast_to(problem.knowledge.required, (16, 2, 2))
    return models_of(problem, data, graphs, jr.key(0), settings)


def test_smooth_models_follow_what_linear_ones_cannot(bent: tuple[Problem, Dataset]) -> None:
    truth = np.sin(2 * np.linspace(-1.5, 1.5, 9))
    error = {}
    for mechanism in ("linear", "smooth"):
        curve = effect_grid(smooth_models(*bent, mechanism), bent[0], 9)[:, 0].mean(0)
        error[mechanism] = np.sqrt(np.mean((np.asarray(curve) - truth) ** 2))
    assert error["smooth"] < 0.15
    assert error["linear"] > 0.3


@pytest.mark.parametrize("mechanism", ["linear", "smooth"])
def test_log_likelihood_is_that_of_normal_residuals(bent: tuple[Problem, Dataset], mechanism: str) -> None:
    models = smooth_models(*bent, mechanism)
    rows = np.asarray(bent[1].values, np.float32)[:4]
    mask = np.zeros((4, 2), bool)
    mask[1, 0] = mask[2, 1] = True
    model = jax.tree.map(lambda leaf: leaf[5], models)
    found = log_likelihood(model, jnp.asarray(rows), jnp.asarray(mask))
    m, scale = model.mechanism, np.asarray(model.noise.scale)
    for n in range(4):
        total = 0.0
        for j in range(2):
            waves = np.cos(rows[n] @ np.asarray(m.inner)[:, j] + np.asarray(m.phase)[j])
            mean = m.bias[j] + rows[n] @ np.asarray(m.weight)[:, j] + waves @ np.asarray(m.outer)[j]
            score = -0.5 * ((rows[n, j] - mean) / scale[j]) ** 2 - np.log(scale[j] * np.sqrt(2 * np.pi))
            total += 0.0 if mask[n, j] else float(score)
        np.testing.assert_allclose(found[n], total, rtol=1e-4, atol=1e-4)


def test_systems_are_solved_as_numpy_solves_them() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, right = root @ root.T + 0.5 * np.eye(6), rng.normal(size=(6, 2))
    solved, log_det = solve_positive(jnp.asarray(matrix, jnp.float32), jnp.asarray(right, jnp.float32))
    np.testing.assert_allclose(solved, np.linalg.solve(matrix, right), rtol=2e-4, atol=1e-4)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(matrix)[1], rtol=1e-5)


def test_whitening_gives_products_with_the_inverse_even_of_nearly_equal_rows() -> None:
    place = np.array([0.0, 0.3, 0.3001, 0.9, 0.9002, 1.7])
    matrix = 9 * np.exp(-0.5 * (place[:, None] - place) ** 2) + 1e-4 * np.eye(6)
    right = np.random.default_rng(0).normal(size=(6, 3)) @ np.diag([1, 2, 0.5])
    white, log_det = whiten(jnp.asarray(matrix, jnp.float32), jnp.asarray(matrix @ right, jnp.float32))
    np.testing.assert_allclose(white.T @ white, right.T @ matrix @ right, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(matrix)[1], atol=0.2)

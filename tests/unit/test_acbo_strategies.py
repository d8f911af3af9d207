"""Strategies on models small enough to know the answer: what they try, what they recommend, and what they never do."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from acbo.beliefs import BeliefSettings
from acbo.data import Dataset
from acbo.experiments import Choice, Problem, Recommendation, known_graph, problem_of
from acbo.experiments.episode import add_row, start_data
from acbo.scms.sampling import draw_noise
from acbo.scms.scm import SCM, linear_scm
from acbo.strategies import (
    CausalBO,
    ExpectedImprovement,
    GaussianProcessEI,
    InformationGain,
    KnowledgeGradient,
    LatinHypercube,
    Random,
    Thompson,
)
from acbo.strategies.actions import candidate_actions
from acbo.strategies.gp import gp_posterior

pytestmark = pytest.mark.usefixtures("quick_compile")

FEW = BeliefSettings(models=32)
LEFT = jnp.float32(3)
SIZE, ROWS = 4, 16


def model(a: float, b: float, live: int = 3, low: float = -2.0, high: float = 3.0) -> SCM:
    """Causes 0 and 1 of the target 2, which stand alone; the rest is padding."""
    weight = np.zeros((SIZE, SIZE), np.float32)
    weight[:2, 2] = a, b
    return linear_scm(jnp.asarray(weight), 1.0, target=2, live=jnp.arange(SIZE) < live, low=low, high=high)


def situation(scm: SCM, observations: int, **options: Any) -> tuple[Problem, Dataset]:
    problem = problem_of(scm, knowledge=known_graph(scm.adjacency), **options)
    noise = draw_noise(scm, jr.key(7), ROWS)
    return problem, start_data(scm, noise, observations)


@eqx.filter_jit
def chosen(strategy: Any, problem: Problem, data: Dataset, key: jax.Array) -> Choice:
    return strategy.choose(problem, data, LEFT, key)


@eqx.filter_jit
def chosen_many(strategy: Any, problem: Problem, data: Dataset, keys: jax.Array) -> Choice:
    return jax.vmap(lambda key: strategy.choose(problem, data, LEFT, key))(keys)


@eqx.filter_jit
def recommended(strategy: Any, problem: Problem, data: Dataset, key: jax.Array) -> Recommendation:
    return strategy.recommend(problem, data, key)


def change(problem: Problem, **fields: Any) -> Problem:
    for name, value in fields.items():
        new = jnp.asarray(value, getattr(problem, name).dtype)
        problem = eqx.tree_at(lambda p, name=name: getattr(p, name), problem, new)
    return problem


def test_random_stays_within_ranges_and_levels_and_covers_both() -> None:
    problem, data = situation(model(1, 0), 4)
    levels = jnp.full((SIZE, 3), jnp.nan).at[1].set(jnp.asarray([-1.0, 0.0, 2.0]))
    problem = eqx.tree_at(lambda p: p.levels, problem, levels)
    made = chosen_many(Random(), problem, data, jr.split(jr.key(0), 600))
    mask, value = np.asarray(made.mask), np.asarray(made.value)
    assert (mask.sum(1) == 1).all()
    assert not mask[:, 2:].any()
    np.testing.assert_allclose(mask[:, 0].mean(), 0.5, atol=0.1)
    assert (value[~mask] == 0).all()
    assert set(value[mask[:, 1], 1]) == {-1.0, 0.0, 2.0}
    free = (value[mask[:, 0], 0] + 2) / 5
    # Uniform whichever variable was picked: both must not hang on the same random numbers.
    assert 0 <= free.min() < 0.1
    assert 0.9 < free.max() <= 1
    np.testing.assert_allclose(free.mean(), 0.5, atol=0.07)


def test_the_latin_hypercube_meets_every_slice_once() -> None:
    scm = model(1, 0, low=0.0, high=1.0)
    problem, data = situation(scm, 4)
    problem = change(problem, manipulable=[True, False, False, False])
    strategy, values = LatinHypercube(trials=6, seed=3), []
    for key in jr.split(jr.key(1), 6):
        choice = chosen(strategy, problem, data, key)
        values.append(float(choice.value[0]))
        data = add_row(data, jnp.where(choice.mask, choice.value, 0), choice.mask)
    assert sorted(int(6 * value) for value in values) == list(range(6))


def test_the_process_is_that_of_plain_numpy() -> None:
    problem, data = situation(model(1, 1), 4)
    place = np.array([-1.5, 0.0, 2.5], np.float32)
    for x in place:
        row = jnp.zeros(SIZE).at[0].set(x)
        data = add_row(data, row, jnp.arange(SIZE) == 0)
    tried = data.intervened.any(1)
    y = np.array([0.3, -0.4, 1.1])
    residual = jnp.zeros(ROWS).at[4:7].set(jnp.asarray(y, jnp.float32))
    asked = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], np.float32)
    mean, deviation = gp_posterior(
        problem,
        (data.intervened, data.values, tried),
        residual,
        (jnp.asarray(asked != 0), jnp.asarray(asked)),
        0.2,
        jnp.asarray([0.4]),
        jnp.asarray([1.5]),
    )
    x = (place + 2) / 5

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return 1.5**2 * np.exp(-0.5 * (a[:, None] - b) ** 2 / 0.4**2)

    matrix = kernel(x, x) + (0.2**2 + 1e-6) * np.eye(3)
    cross = kernel(np.array([0.6]), x)[0]
    np.testing.assert_allclose(mean[0], cross @ np.linalg.solve(matrix, y), rtol=1e-4)
    left = 1.5**2 - cross @ np.linalg.solve(matrix, cross)
    np.testing.assert_allclose(deviation[0], np.sqrt(left), rtol=1e-3)
    # Experiments on another variable say nothing.
    np.testing.assert_allclose([mean[1], deviation[1]], [0, 1.5], atol=1e-4)


@pytest.mark.parametrize("kind", [CausalBO, ExpectedImprovement])
def test_the_best_arm_is_found_and_the_mirror_of_it(kind: Callable[..., Any]) -> None:
    strategy = kind(settings=FEW)
    problem, data = situation(model(-1.5, 0.3), ROWS)
    least = recommended(strategy, problem, data, jr.key(0))
    np.testing.assert_array_equal(least.mask, [True, False, False, False])
    assert float(least.value[0]) == 3.0
    assert abs(float(least.mean) + 4.5) < 3 * float(least.spread)
    first = chosen(strategy, problem, data, jr.key(0))
    np.testing.assert_array_equal(first.mask, [True, False, False, False])
    assert float(first.value[0]) == 3.0
    most = recommended(strategy, change(problem, sign=-1.0), data, jr.key(0))
    np.testing.assert_array_equal(most.mask, [True, False, False, False])
    assert float(most.value[0]) == -2.0


def test_maximisation_is_minimisation_of_the_mirrored_target() -> None:
    problem, data = situation(model(-1.5, 0.8), ROWS - 3)
    for variable, value, outcome in ((0, 1.0, -1.0), (1, -2.0, -2.5)):
        row = jnp.zeros(SIZE).at[variable].set(value).at[2].set(outcome)
        data = add_row(data, row, jnp.arange(SIZE) == variable)
    turned = eqx.tree_at(lambda d: d.values, data, data.values.at[:, 2].multiply(-1))
    strategy = GaussianProcessEI(places=5)
    mirrored = change(problem, sign=-1.0)
    one, other = (chosen(strategy, *pair, jr.key(2)) for pair in ((problem, data), (mirrored, turned)))
    np.testing.assert_array_equal(one.mask, other.mask)
    np.testing.assert_allclose(one.value, other.value)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-5)
    one, other = (recommended(strategy, *pair, jr.key(2)) for pair in ((problem, data), (mirrored, turned)))
    np.testing.assert_array_equal(one.mask, other.mask)
    np.testing.assert_allclose(one.mean, -other.mean, rtol=1e-4)
    assert float(one.mean) < float(data.values[: ROWS - 3, 2].mean())


@pytest.mark.parametrize("kind", [KnowledgeGradient, InformationGain])
def test_what_can_teach_is_preferred_to_what_cannot(kind: Callable[..., Any]) -> None:
    """Variable 0 causes the target with unknown strength; variable 1, just as free, causes nothing."""
    problem, data = situation(model(1.0, 0), 5)
    choice = chosen(kind(settings=FEW, graph_known=True), problem, data, jr.key(3))
    np.testing.assert_array_equal(choice.mask, [True, False, False, False])
    assert abs(float(choice.value[0])) >= 2
    # No experiment tells more than which of the models is true.
    assert 0 < float(choice.score) < np.log(FEW.models)


def test_thompson_varies_with_the_key_and_only_between_what_may_be_best() -> None:
    problem, data = situation(model(-1.0, 0.9), 6)
    strategy = Thompson(settings=FEW, graph_known=True)
    made = chosen_many(strategy, problem, data, jr.split(jr.key(0), 16))
    value = np.asarray(made.value)
    assert len(np.unique(value, axis=0)) > 1
    # A line is best at an end.
    assert set(value[np.asarray(made.mask)]) <= {-2.0, 3.0}
    # Of two models that contradict each other, now one is believed and now the other, never their mean.
    scm, actions = model(-1.0, 0.9), candidate_actions(problem, jr.key(0), 2)
    losses = jnp.zeros((2, actions.mask.shape[0])).at[:, 1].set(jnp.asarray([-3.0, 4.0]))
    worth = {float(strategy.worth(problem, scm, actions, losses, key)[1]) for key in jr.split(jr.key(0), 9)}
    assert worth == {3.0, -4.0}


def test_costs_and_what_cannot_be_set_are_heeded() -> None:
    problem, data = situation(model(-1.0, -0.9), 8)
    strategy = ExpectedImprovement(settings=FEW, graph_known=True)
    for cheap in (0, 1):
        price = np.full(SIZE, 100.0)
        price[cheap] = 1.0
        choice = chosen(strategy, change(problem, cost_fixed=price), data, jr.key(0))
        assert list(np.flatnonzero(choice.mask)) == [cheap]
        able = np.arange(SIZE) == cheap
        choice = chosen(strategy, change(problem, manipulable=able), data, jr.key(0))
        assert list(np.flatnonzero(choice.mask)) == [cheap]
        assert not bool(choice.stop)
        best = recommended(strategy, change(problem, manipulable=able), data, jr.key(0))
        assert list(np.flatnonzero(best.mask)) == [cheap]
    none = chosen(strategy, change(problem, manipulable=np.zeros(SIZE, bool)), data, jr.key(0))
    assert bool(none.stop)
    assert not none.mask.any()


def test_models_of_other_sizes_are_the_same_program() -> None:
    traces = []

    @eqx.filter_jit
    def choose(problem: Problem, data: Dataset) -> Choice:
        traces.append(1)
        return Random().choose(problem, data, LEFT, jr.key(0))

    @eqx.filter_jit
    def believe(problem: Problem, data: Dataset) -> Choice:
        traces.append(1)
        return ExpectedImprovement(settings=FEW, graph_known=True).choose(problem, data, LEFT, jr.key(0))

    for scm, rows in ((model(1, 0), 6), (model(-1, 2), 9), (model(0, 0, live=4), 3)):
        for program in (choose, believe):
            found = program(*situation(scm, rows))
            assert np.isfinite(np.asarray(found.value)).all()
    assert len(traces) == 2

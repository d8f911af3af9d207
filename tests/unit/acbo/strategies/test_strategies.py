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
from acbo.scms.samples import draw_noise
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
from acbo.strategies.actions import candidate_actions, without_idle
from acbo.strategies.gp_ei import expected_gain, gp_posterior
from acbo.strategies.model_based import Prospect

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
    mean, deviation, evidence = gp_posterior(
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
    fit = y @ np.linalg.solve(matrix, y) + np.linalg.slogdet(matrix)[1]
    np.testing.assert_allclose(evidence, -0.5 * fit, rtol=1e-4)


def test_sets_share_what_single_variables_do_as_plain_numpy_says() -> None:
    """Experiments on 0, on 1 and on both; three rows of padding."""
    problem, _ = situation(model(1, 1), 4, max_simultaneous=2)
    rng = np.random.default_rng(1)
    mask = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]] * 4, bool)
    value = np.where(mask, rng.uniform(-2, 3, mask.shape), 0).astype(np.float32)
    y, tried = rng.normal(size=9), np.arange(12) < 9
    lengths, signals, shares = (0.1, 0.2, 0.4, 0.8), (0.3, 1.0, 3.0), (0.0, 0.5, 0.9)
    residual = np.where(tried, np.append(y, np.zeros(3)), 0).astype(np.float32)

    @eqx.filter_jit
    def process(problem: Problem, value: jax.Array, residual: jax.Array) -> tuple[jax.Array, ...]:
        rows = (jnp.asarray(mask), value, jnp.asarray(tried))
        grid = jnp.asarray(lengths), jnp.asarray(signals)
        return gp_posterior(problem, rows, residual, rows[:2], 0.1, *grid, shares=shares)

    mean, deviation, evidence = process(problem, jnp.asarray(value), jnp.asarray(residual))
    part = np.where(mask, (value + 2) / 5, 0).astype(float)
    same = (mask[:, None] == mask).all(-1)
    sizes = np.sqrt(np.outer(mask.sum(1), mask.sum(1)))
    found = []
    for length in lengths:
        near = np.exp(-0.5 * (part[:, None] - part) ** 2 / length**2)
        joint, single = same * near.prod(-1), (near * (mask[:, None] & mask)).sum(-1) / sizes
        for signal in signals:
            for share in shares:
                kernel = signal**2 * ((1 - share) * joint + share * single)
                matrix = kernel[:9, :9] + (0.1**2 + 1e-6) * np.eye(9)
                solved = np.linalg.solve(matrix, np.column_stack([y, kernel[:9]]))
                log = -0.5 * (y @ solved[:, 0] + np.linalg.slogdet(matrix)[1])
                left = np.diag(kernel) - np.sum(kernel[:9] * solved[:, 1:], 0)
                found.append((log, kernel[:9].T @ solved[:, 0], left))
    logs, means, lefts = (np.array(part) for part in zip(*found, strict=True))
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    expected = weight @ means
    np.testing.assert_allclose(mean, expected, atol=2e-3)
    spread = np.sqrt(weight @ (lefts + (means - expected) ** 2))
    np.testing.assert_allclose(deviation, spread, atol=2e-3)
    np.testing.assert_allclose(evidence, np.log(np.exp(logs).mean()), atol=1e-2)


def test_expected_gain_is_that_of_draws_and_rises_with_doubt() -> None:
    problem, _ = situation(model(1, 1), 4)
    mean, deviation = jnp.asarray([-1.0, 0.0, 0.0, 2.0]), jnp.asarray([1e-3, 1.0, 2.0, 1.0])
    draws = np.asarray(mean) + np.asarray(deviation) * np.random.default_rng(0).normal(size=(200_000, 4))
    for sign in (1.0, -1.0):
        gain = expected_gain(change(problem, sign=sign), mean, deviation, jnp.float32(sign * 0.5))
        by_hand = np.maximum(sign * 0.5 - sign * draws, 0).mean(0)
        np.testing.assert_allclose(gain, by_hand, atol=0.02)


def test_without_a_graph_the_better_end_is_searched_further() -> None:
    """Variable 0 was good at its least value and bad at the other end; nothing else can be set."""
    problem, data = situation(model(1, 1), ROWS - 3)
    problem = change(problem, manipulable=[True, False, False, False])
    for value, outcome in ((-1.5, -4.0), (0.5, 1.0), (2.8, 6.0)):
        row = jnp.zeros(SIZE).at[0].set(value).at[2].set(outcome)
        data = add_row(data, row, jnp.arange(SIZE) == 0)
    strategy = GaussianProcessEI(places=9, noise=0.05)
    assert float(chosen(strategy, problem, data, jr.key(0)).value[0]) < -0.5
    assert float(chosen(strategy, change(problem, sign=-1.0), data, jr.key(0)).value[0]) > 1.5


def test_variables_whose_effect_others_of_the_set_cut_off_are_idle() -> None:
    """0 → 1 → 3 ← 2, and 4 is caused by the target 3."""
    graph = np.zeros((5, 5), bool)
    graph[[0, 1, 2, 3], [1, 3, 3, 4]] = True
    sets = [[0], [0, 1], [0, 2], [0, 1, 2], [4], [1, 4], []]
    kept = [[0], [1], [0, 2], [1, 2], [], [1], []]
    mask = np.array([np.isin(np.arange(5), one) for one in sets])
    found = without_idle(jnp.asarray(graph), jnp.int32(3), jnp.asarray(mask))
    assert [list(np.flatnonzero(row)) for row in np.asarray(found)] == kept


def test_causal_optimization_of_sets_leaves_idle_variables_alone_and_meets_the_optimum() -> None:
    """0 → 1 → 2 with a parabola's bottom inside the range: what experiments report are means."""
    weight = np.zeros((SIZE, SIZE), np.float32)
    weight[0, 1] = weight[1, 2] = 1.0
    scm = linear_scm(jnp.asarray(weight), 1.0, target=2, live=jnp.arange(SIZE) < 3, low=-2.0, high=3.0)
    problem, data = situation(scm, 6, max_simultaneous=2)
    settings = BeliefSettings(models=4, mechanism="smooth", units=4)
    strategy = CausalBO(settings=settings, sets=32, noise=0.02, memory=16, from_observations=True)
    for key in jr.split(jr.key(0), 8):
        choice = chosen(strategy, problem, data, key)
        assert list(np.flatnonzero(choice.mask)) in ([0], [1])
        middle = jnp.sum(jnp.where(choice.mask, choice.value, 0))
        row = jnp.zeros(SIZE).at[:2].set(middle).at[2].set((middle - 0.7) ** 2 - 3)
        data = add_row(data, row, choice.mask)
    advice = recommended(strategy, problem, data, jr.key(1))
    assert list(np.flatnonzero(advice.mask)) in ([0], [1])
    np.testing.assert_allclose(jnp.sum(advice.value), 0.7, atol=0.25)


def test_mechanisms_from_observations_mind_no_experiment() -> None:
    problem, few = situation(model(-1.5, 0.8), ROWS - 2)
    more = few
    for outcome in (50.0, -80.0):
        row = jnp.zeros(SIZE).at[0].set(1.0).at[2].set(outcome)
        more = add_row(more, row, jnp.arange(SIZE) == 0)
    for alone in (True, False):
        strategy = CausalBO(settings=BeliefSettings(models=2), from_observations=alone)
        one, other = (strategy.models(problem, data, jr.key(0)).mechanism.weight for data in (few, more))
        assert bool(jnp.all(one == other)) is alone


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
    made = chosen_many(kind(settings=FEW), problem, data, jr.split(jr.key(3), 8))
    np.testing.assert_array_equal(made.mask, [[True, False, False, False]] * 8)
    # 32 models leave some chance: most choices are at an end.
    assert (np.abs(np.asarray(made.value)[:, 0]) >= 2).sum() >= 6
    # No experiment tells more than which of the models is true.
    score = np.asarray(made.score)
    assert (score >= 0).all()
    assert (score > 0).sum() >= 2  # where the advice is settled, nothing is gained
    assert (score < np.log(FEW.models)).all()


def test_thompson_varies_with_the_key_and_only_between_what_may_be_best() -> None:
    problem, data = situation(model(-1.0, 0.9), 6)
    strategy = Thompson(settings=FEW)
    made = chosen_many(strategy, problem, data, jr.split(jr.key(0), 16))
    value = np.asarray(made.value)
    assert len(np.unique(value, axis=0)) > 1
    # A line is best at an end.
    assert set(value[np.asarray(made.mask)]) <= {-2.0, 3.0}
    # Of two models that contradict each other, now one is believed and now the other, never their mean.
    scm, actions = model(-1.0, 0.9), candidate_actions(problem, jr.key(0), 2)
    losses = jnp.zeros((2, actions.mask.shape[0])).at[:, 1].set(jnp.asarray([-3.0, 4.0]))
    prospects = [Prospect(problem, scm, actions, losses, key) for key in jr.split(jr.key(0), 9)]
    worth = {float(strategy.worth(prospect)[1]) for prospect in prospects}
    assert worth == {3.0, -4.0}


def test_costs_and_what_cannot_be_set_are_heeded() -> None:
    problem, data = situation(model(-1.0, -0.9), 8)
    strategy = ExpectedImprovement(settings=FEW)
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
        return ExpectedImprovement(settings=FEW).choose(problem, data, LEFT, jr.key(0))

    for scm, rows in ((model(1, 0), 6), (model(-1, 2), 9), (model(0, 0, live=4), 3)):
        for program in (choose, believe):
            found = program(*situation(scm, rows))
            assert np.isfinite(np.asarray(found.value)).all()
    assert len(traces) == 2

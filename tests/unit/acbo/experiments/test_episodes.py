"""Episodes: the same luck for every strategy, rows in the order they came, and regret from 0 to 1."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from acbo.data import Dataset
from acbo.experiments import Cell, Choice, Problem, Recommendation, compare, known_graph, problem_of
from acbo.experiments.comparison import Comparison, Judged
from acbo.experiments.episode import Episode, normalised_regret, run_episode
from acbo.scms.builders import linear_model
from acbo.scms.interventions import nothing
from acbo.scms.scm import SCM, linear_scm
from acbo.scms.true_effects import best_intervention, true_effect
from acbo.strategies import Oracle, Random
from acbo.strategies.base import AbstractStrategy

pytestmark = pytest.mark.usefixtures("quick_compile")

OBSERVED, TRIALS = 5, 4
ODD = jnp.asarray([[0, 0.8, 1.2], [0, 0, -0.5], [0, 0, 0]], jnp.float32)


class Idle(AbstractStrategy):
    """Watches, and recommends to do nothing; with `stop` it ends after so many rows."""

    most: int = 1000

    def choose(self, problem: Problem, data: Dataset, remaining: jax.Array, key: jax.Array) -> Choice:
        none = jnp.zeros(problem.size)
        return Choice(none > 0, none, data.rows.sum() >= self.most, jnp.float32(0))

    def recommend(self, problem: Problem, data: Dataset, key: jax.Array) -> Recommendation:
        none = jnp.zeros(problem.size)
        return Recommendation(none > 0, none, jnp.float32(0), jnp.float32(0))


@pytest.fixture(scope="module")
def scm() -> SCM:
    return linear_scm(ODD, 0.5, bias=0.3, low=-1.0, high=2.0)


def play(strategy: Any, scm: SCM, *, minimize: bool = True, **options: Any) -> Episode:
    problem = problem_of(scm, minimize=minimize)
    best = best_intervention(scm, minimize=minimize).value
    return run_episode(strategy, scm, problem, best, jr.key(4), OBSERVED, TRIALS, **options)


@pytest.fixture(scope="module")
def episodes(scm: SCM) -> dict[str, Episode]:
    return {"oracle": play(Oracle(scm), scm), "random": play(Random(), scm), "idle": play(Idle(), scm)}


def test_regret_is_0_for_the_oracle_and_1_for_doing_nothing(episodes: dict[str, Episode], scm: SCM) -> None:
    np.testing.assert_allclose(episodes["oracle"].regret, 0, atol=1e-5)
    np.testing.assert_allclose(episodes["idle"].regret, 1, atol=1e-5)
    most = play(Oracle(scm), scm, minimize=False)
    np.testing.assert_allclose(most.regret, 0, atol=1e-5)
    assert (
        float(most.expected[0]) > float(episodes["idle"].expected[0]) > float(episodes["oracle"].expected[0])
    )
    # By hand: variable 0 at -1 gives 0.3 + 1.2 · (-1) - 0.5 · (0.3 - 0.8).
    np.testing.assert_allclose(episodes["oracle"].expected, 0.3 - 1.2 - 0.5 * (0.3 - 0.8), rtol=1e-5)


def test_rows_are_added_in_order_with_what_was_done(episodes: dict[str, Episode]) -> None:
    for name, episode in episodes.items():
        data = episode.data
        assert data.rows.all(), name
        np.testing.assert_array_equal(data.intervened[:OBSERVED], False)
        np.testing.assert_array_equal(data.intervened[OBSERVED:], episode.mask)
        np.testing.assert_array_equal(data.values[OBSERVED:, 2], episode.outcome)
        mask = np.asarray(episode.mask)
        np.testing.assert_array_equal(
            np.asarray(data.values[OBSERVED:])[mask], np.asarray(episode.value)[mask]
        )
        np.testing.assert_allclose(episode.cost, np.cumsum(mask.sum(1)))
    assert np.asarray(episodes["random"].mask).any(1).all()


def test_all_strategies_have_the_same_luck(episodes: dict[str, Episode]) -> None:
    """What is left of each variable when its causes are taken away is its noise: the same in every episode."""

    def noise(episode: Episode) -> np.ndarray:
        x = np.asarray(episode.data.values)
        return np.where(episode.data.intervened, np.nan, x - 0.3 - x @ np.asarray(ODD))

    one, two, three = (noise(episodes[name]) for name in ("oracle", "random", "idle"))
    assert np.isfinite(three).all()
    for other in (one, two):
        same = np.isfinite(other)
        assert same.sum() >= OBSERVED * 3 + TRIALS * 2
        np.testing.assert_allclose(other[same], three[same], atol=1e-5)
    assert three.std() > 0.2
    assert len(np.unique(np.round(three, 4))) == three.size, "no row repeats the luck of another"


def test_each_judges_after_every_experiment_and_stopping_ends_the_rows(scm: SCM) -> None:
    every = play(Random(), scm, each=True)
    assert every.regret.shape == (TRIALS + 1,)
    assert len(np.unique(np.asarray(every.regret))) > 1
    stopped = play(Idle(most=OBSERVED + 2), scm)
    assert int(stopped.data.rows.sum()) == OBSERVED + 2
    np.testing.assert_allclose(stopped.cost, 0)


def test_a_comparison_plays_the_cells_it_names() -> None:
    strategies, small = {"random": Random()}, Cell(3, "chain")
    with pytest.raises(ValueError, match="`size` must be at least 15, the variables of a cell; got 10"):
        compare(strategies, [small, Cell(15, "chain")])
    with pytest.raises(ValueError, match="`units` must be at least 1 for 'smooth' cells; got 0"):
        compare(strategies, [Cell(3, "chain", "smooth")], units=0)
    with pytest.raises(ValueError, match="`known` must name strategies, random; got 'cbo'"):
        compare(strategies, [small], known=("cbo",))
    # A model that counted twice would make intervals too narrow.
    found = compare(strategies, [small, small], models=2, observations=4, trials=1, size=3)
    assert found.cells == (small,)
    assert len(found.regrets("random")) == 2


@pytest.mark.parametrize("models", [2, 5, 400])
def test_intervals_hold_for_few_models_too(models: int) -> None:
    from scipy import stats

    cell, dice = Cell(3, "chain"), np.random.default_rng(models)
    regrets = {name: dice.normal(size=(models, 1)).astype(np.float32) for name in "ab"}
    judged = {(name, cell): Judged(found, found[:, 0], 1.0) for name, found in regrets.items()}
    found = Comparison(judged, ("a", "b"), (cell,))
    apart = stats.ttest_rel(regrets["a"][:, 0], regrets["b"][:, 0]).confidence_interval(0.95)
    gap, half = found.difference("a", "b")
    np.testing.assert_allclose([gap - half, gap + half], [apart.low, apart.high], rtol=1e-4, atol=1e-5)
    alone = stats.ttest_1samp(regrets["a"][:, 0], 0).confidence_interval(0.95)
    mean, half = found.mean("a", cell)
    np.testing.assert_allclose([mean - half, mean + half], [alone.low, alone.high], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_regret_does_not_mind_units(scm: SCM, unit: float) -> None:
    into = jnp.where(jnp.arange(scm.size) == scm.target, unit, 1.0)
    small = eqx.tree_at(
        lambda s: (s.mechanism.weight, s.mechanism.bias),
        scm,
        (scm.mechanism.weight * into, scm.mechanism.bias * into),
    )
    problem, idle = problem_of(small), true_effect(small)
    best = best_intervention(small)
    for done, regret in ((nothing(scm.size), 1.0), (best.intervention, 0.0)):
        found = normalised_regret(small, problem, done, best.value, idle)[1]
        assert float(found) == pytest.approx(regret, abs=1e-5)


def test_what_acts_through_hidden_variables_acts_directly_on_what_is_seen() -> None:
    # x → h → k → y and z → y, where h and k are hidden.
    names = ["x", "h", "k", "y", "z"]
    weights = np.zeros((5, 5))
    for cause, effect in ((0, 1), (1, 2), (2, 3), (4, 3)):
        weights[cause, effect] = 1.5
    scm = linear_model(names, weights, target="y", hidden=["h", "k"], size=6).scm
    known = problem_of(scm, knowledge=known_graph(scm.adjacency)).knowledge
    assert np.argwhere(known.required).tolist() == [[0, 3], [4, 3]]
    assert not np.any(known.required & known.forbidden)
    assert bool(known.forbidden[0, 4] & known.forbidden[3, 0])
    plain = eqx.tree_at(lambda s: s.observed, scm, scm.live)
    whole = problem_of(plain, knowledge=known_graph(scm.adjacency)).knowledge
    np.testing.assert_array_equal(whole.required, scm.adjacency)
    np.testing.assert_array_equal(whole.forbidden, ~scm.adjacency)

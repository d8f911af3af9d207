"""One belief: chosen by, recommended from and explained by the same models, which experiments correct and outweigh."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from acbo.beliefs import BeliefSettings, Effects, corrected_belief, draw_models
from acbo.data import Dataset, dataset
from acbo.experiments import Choice, Problem, Recommendation, problem_of
from acbo.inference import edge_posterior
from acbo.optimizer import Optimizer
from acbo.scms.scm import linear_scm
from acbo.strategies import AbstractStrategy, ExpectedImprovement, Random
from acbo.strategies.actions import is_refuted, is_refuted_alone

pytestmark = pytest.mark.usefixtures("quick_compile")


def small_problem() -> Problem:
    """Three variables, of which the last is the target; the others can be set from -2 to 2."""
    weight = jnp.zeros((3, 3)).at[0, 2].set(1.0)
    return problem_of(linear_scm(weight, target=2))


def rows(rng: np.random.Generator, effect: Any, seen: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Observations of x → y, an idle z, and experiments that set x or z."""
    doses = np.concatenate([rng.normal(size=seen), np.repeat([-2.0, 2.0, 0.5], 2), np.zeros(2)])
    z = rng.normal(size=len(doses))
    y = effect(doses) + 0.3 * rng.normal(size=len(doses))
    marks = np.zeros((len(doses), 3), bool)
    marks[seen : seen + 6, 0] = marks[seen + 6 :, 1] = True
    return np.stack([doses, z, y], 1).astype(np.float32), marks


def test_smooth_strategies_draw_the_graphs_that_are_explained() -> None:
    """A hump that no line can see: the linear score, by which strategies drew their graphs, finds no edge there."""
    values, marks = rows(np.random.default_rng(0), lambda x: 0.8 * x**2 - 0.8)
    values[:, 2] /= values[:24, 2].std()
    data = dataset(jnp.asarray(values), jnp.asarray(marks), target=2)
    bent = BeliefSettings(models=200, mechanism="smooth")
    strategy = ExpectedImprovement(settings=bent)
    models = eqx.filter_jit(strategy.models)(small_problem(), data, jr.key(0))
    share = float(models.adjacency[:, 0, 2].mean())
    assert share > 0.95
    with pytest.warns(UserWarning, match="straight effects"):
        straight = edge_posterior(data, "bge").edges
    assert float(straight[0, 2]) < 0.5, "the example must be one that the linear score gets wrong"
    optimizer = Optimizer(
        {"x": (-2.0, 2.0), "z": (-2.0, 2.0), "y": None},
        target="y",
        data=pd.DataFrame(values.astype(float), columns=["x", "z", "y"]),
        intervened=marks,
        strategy="expected_improvement",
        mechanism="smooth",
    )
    assert optimizer.posterior().edges.loc["x", "y"] == pytest.approx(share, abs=0.1)


def test_quantiles_are_those_of_the_mixture() -> None:
    rng = np.random.default_rng(1)
    mean, deviation = rng.normal(size=(7, 3)), rng.uniform(0.1, 2.0, size=(7, 3))
    deviation[:, 2] = 0  # nothing but the draws themselves
    effects = Effects(jnp.asarray(mean), jnp.asarray(deviation))
    for part in (0.05, 0.5, 0.95):
        found = np.asarray(effects.quantile(part))
        below = norm.cdf(found[:2], mean[:, :2], deviation[:, :2]).mean(0)
        np.testing.assert_allclose(below, part, atol=1e-4)
        assert np.isclose(found[2], np.quantile(mean[:, 2], part, method="inverted_cdf"), atol=1e-3)
    np.testing.assert_allclose(effects.expected, mean.mean(0), rtol=1e-5)
    spread = np.sqrt((deviation**2).mean(0) + mean.var(0))
    np.testing.assert_allclose(effects.spread, spread, rtol=1e-5)


@eqx.filter_jit
def current_belief(
    problem: Problem, data: Dataset, mask: jax.Array, value: jax.Array
) -> tuple[jax.Array, ...]:
    models = draw_models(problem, data, jr.key(0), BeliefSettings())
    found = corrected_belief(problem, data, models, jr.key(1)).effects(mask, value)
    return found.expected, found.quantile(0.05), found.quantile(0.95)


def test_experiments_correct_straight_models_where_effects_bend_and_leave_them_alone_elsewhere() -> None:
    """Where nothing bends the band is as narrow as the models'; a hump is believed at what was tried."""
    problem = small_problem()
    ends = jnp.asarray([[-2.0, 0, 0], [2.0, 0, 0], [0.5, 0, 0], [0.0, 0, 0]])
    mask = jnp.asarray([[True, False, False]] * 3 + [[False] * 3])
    widths = {}
    for name, effect in {"line": lambda x: x, "hump": lambda x: 1.5 - x**2}.items():
        values, marks = rows(np.random.default_rng(2), effect)
        data = dataset(jnp.asarray(values), jnp.asarray(marks), target=2)
        expected, low, high = (np.asarray(part) for part in current_belief(problem, data, mask, ends))
        true = np.array([effect(-2.0), effect(2.0), effect(0.5), effect(values[:24, 0]).mean()])
        widths[name] = high - low
        # Straight models see nothing at the ends of the hump, where two experiments each were made.
        assert (expected[:2] < -0.9).all() if name == "hump" else (np.abs(expected - true) < 0.6).all()
        assert ((low < true) & (true < high)).sum() >= 3
    assert (widths["line"][:2] < widths["hump"][:2]).all()


def test_what_experiments_refute_is_told_from_what_they_leave_open() -> None:
    values = np.array([[0, 0, y] for y in (-1.0, 0.0, 1.0, 0.0)] + [[2, 0, 3.0], [2, 0, 3.0], [-2, 0, -3.0]])
    marks = np.zeros((7, 3), bool)
    marks[4:, 0] = True
    data = dataset(jnp.asarray(values, jnp.float32), jnp.asarray(marks), target=2)
    mask = jnp.asarray([[True, False, False]] * 4 + [[False, True, False], [False] * 3])
    value = jnp.asarray([[2.0, 0, 0], [1.9, 0, 0], [1.0, 0, 0], [-2.0, 0, 0], [0, 2.0, 0], [0, 0, 0]])
    problem = small_problem()
    np.testing.assert_array_equal(
        is_refuted(problem, data, mask, value), [True, True, False, False, False, False]
    )
    np.testing.assert_array_equal(is_refuted(problem, data, mask, value, least=3), [False] * 6)
    other = eqx.tree_at(lambda p: p.sign, problem, jnp.float32(-1))
    np.testing.assert_array_equal(
        is_refuted(other, data, mask, value), [False, False, False, True, False, False]
    )
    levels = jnp.full((3, 3), jnp.nan).at[0].set(jnp.asarray([-2.0, 1.9, 2.0]))
    leveled = eqx.tree_at(lambda p: p.levels, problem, levels)
    assert not is_refuted(leveled, data, mask, value)[1], "one level is not another"


@pytest.mark.parametrize("levels", [False, True])
def test_single_variables_are_refuted_as_all_actions_are(levels: bool) -> None:
    draws = np.random.default_rng(5)
    marks = draws.random((60, 3)) < (0.4, 0.3, 0)
    data = dataset(jnp.asarray(draws.uniform(-2, 2, (60, 3)), jnp.float32), jnp.asarray(marks), target=2)
    problem = small_problem()
    if levels:
        some = jnp.full((3, 3), jnp.nan).at[0].set(data.values[jnp.asarray(marks[:, 0]), 0][:3])
        problem = eqx.tree_at(lambda p: p.levels, problem, some)
    value = jnp.sort(data.values[:20], 0).T
    mask = jnp.repeat(jnp.eye(3, dtype=bool), 20, axis=0)
    for least in (1, 2):
        found = is_refuted_alone(problem, data, value, least)
        every = is_refuted(problem, data, mask, jnp.where(mask, value.reshape(-1, 1), 0), least)
        np.testing.assert_array_equal(found.ravel(), every)
        assert found.any() or levels


def trial(kind: str, rng: np.random.Generator, do: dict[str, float]) -> dict[str, float]:
    """A patient: the outcome is to be large. The dose helps up to 5 (hump), or a hidden cause feigns that it helps."""
    hidden = rng.normal()
    if kind == "hump":
        dose = do.get("dose", float(np.clip(6 + rng.normal(), 0, 10)))
        outcome = 12.4 - 0.26 * (dose - 5) ** 2
    else:
        dose = do.get("dose", float(np.clip(5 + 1.5 * hidden + 0.7 * rng.normal(), 0, 10)))
        outcome = 10 + 3 * hidden - (dose - 5)
    diet = do.get("diet", rng.normal())
    return {"dose": dose, "diet": diet, "outcome": outcome + 0.3 * diet + 0.5 * rng.normal()}


def trial_optimizer(kind: str, experiments: dict[float, int], **options: Any) -> Optimizer:
    """The default optimizer after observations and experiments on the dose."""
    rng = np.random.default_rng(3)
    optimizer = Optimizer(
        {"dose": (0.0, 10.0), "diet": (-2.0, 2.0), "outcome": None},
        target="outcome",
        objective="max",
        data=pd.DataFrame([trial(kind, rng, {}) for _ in range(20)]),
        **options,
    )
    for dose, times in experiments.items():
        for _ in range(times):
            optimizer.tell({**trial(kind, rng, {"dose": dose}), "do": {"dose": dose}})
    return optimizer


@pytest.mark.parametrize(("kind", "seen_best", "truly_best"), [("hump", 0.0, 5.0), ("confounded", 10.0, 0.0)])
def test_the_default_does_not_advise_against_its_own_experiments(
    kind: str, seen_best: float, truly_best: float
) -> None:
    """The observations' slope leads to one end; nine experiments there came out far worse than doing nothing."""
    optimizer = trial_optimizer(kind, {seen_best: 9})
    nothing = optimizer.history().query("set == ''")["outcome"].mean()
    there = optimizer.history().query("set == 'dose'")["outcome"].mean()
    assert there < nothing - 2, "the example must be one in which the experiments fail"
    advice = optimizer.recommend()
    assert abs(advice.do.get("dose", truly_best) - seen_best) > 1
    said = " ".join(advice.notes)
    assert "Experiments contradict the observations: set dose" in said
    assert "9 experiments" in said
    assert "hidden cause of dose and outcome" in said

    why = optimizer.explain({"dose": seen_best})
    assert why.low < there < why.high, "what was measured nine times is believed"
    assert why.chance_best < 0.05
    again = optimizer.ask(3)
    assert (again["dose"] != seen_best).all(), "what failed nine times is not tried again"
    curve = next(curve for curve in optimizer.current_belief.curves if curve.name == "dose")
    at = int(np.argmin(np.abs(curve.x - seen_best)))
    drawn = (curve.mean[at], curve.low[at], curve.high[at])
    assert drawn == pytest.approx((why.expected, why.low, why.high), rel=1e-5)


def test_advice_explanation_report_and_terminal_tell_the_same(tmp_path: Any) -> None:
    from acbo._commands.terminal import advice as advice_line

    optimizer = trial_optimizer("confounded", {10.0: 3, 0.0: 3})
    advice = optimizer.recommend()
    assert advice.do == {"dose": 0.0}
    why = optimizer.explain()
    assert (why.do, why.expected, why.low, why.high) == (advice.do, advice.expected, advice.low, advice.high)
    assert advice.low < 15.0 < advice.high
    assert advice.notes
    page = optimizer.report(tmp_path / "page.html").read_text()
    assert f"{advice.expected:.4g}" in page
    for note in advice.notes:
        assert note in repr(advice)
        assert note in advice_line(optimizer)
        assert note.split(":")[0] in page


class Stubborn(AbstractStrategy):
    """Recommends the highest dose whatever happens, and has no belief of its own."""

    def choose(self, problem: Problem, data: Dataset, remaining: jax.Array, key: jax.Array) -> Choice:
        return Random().choose(problem, data, remaining, key)

    def recommend(self, problem: Problem, data: Dataset, key: jax.Array) -> Recommendation:
        mask = jnp.arange(problem.size) == 0
        return Recommendation(mask, jnp.where(mask, problem.high, 0), jnp.float32(50), jnp.float32(0))


def test_advice_of_any_strategy_falls_back_to_what_was_measured() -> None:
    optimizer = trial_optimizer("confounded", {10.0: 3, 0.0: 3}, strategy=Stubborn())
    advice = optimizer.recommend()
    assert advice.do == {"dose": 0.0}
    assert advice.notes[0].startswith("Advice rests on what was measured: ")
    assert "set dose = 10" in advice.notes[0]
    assert "if nothing is set" in advice.notes[0]
    assert advice.low < 15 < advice.high, "not what the strategy promised"


def test_a_recommendation_between_the_places_of_a_curve_competes_as_the_best_of_its_variable() -> None:
    """Beside a value of the curve that is as good, hardly any draw would call the advice the best."""
    optimizer = trial_optimizer(
        "hump", {0.0: 1, 3.0: 1, 5.0: 1, 10.0: 1}, strategy="expected_improvement", mechanism="smooth"
    )
    curve = next(curve for curve in optimizer.current_belief.curves if curve.name == "dose")
    at = int(np.argmax(curve.mean))
    near = {"dose": float(curve.x[at]) + 1e-3 * np.sign(np.gradient(curve.mean)[at])}
    there, beside = optimizer.explain({"dose": float(curve.x[at])}), optimizer.explain(near)
    assert there.chance_best > 0.2
    assert beside.chance_best == pytest.approx(there.chance_best, abs=0.05)
    assert beside.alternatives.loc["dose", "value"] == near["dose"]
    assert optimizer.explain({"dose": 9.0}).alternatives.loc["dose", "value"] == curve.x[at]


@pytest.mark.parametrize("jitter", [1e-3, 0.1])
def test_experiments_far_beyond_the_observations_are_believed_where_they_were_repeated(jitter: float) -> None:
    rng = np.random.default_rng(7)

    def rows(dose: Any) -> pd.DataFrame:
        noise = rng.normal(size=(2, len(dose)))
        return pd.DataFrame({"dose": dose, "age": noise[0], "pain": (dose - 8) ** 2 + 0.3 * noise[1]})

    held = rows(5 + jitter * rng.normal(size=30)).assign(do="")
    tried = rows(np.array([0.0, 0, 10, 10, 10, 10])).assign(do="dose")
    opt = Optimizer(
        {"dose": (0, 10), "age": None, "pain": None},
        target="pain",
        data=pd.concat([held, tried], ignore_index=True),
    )
    found = opt.explain({"dose": 10})
    assert found.low < tried["pain"][2:].mean() < found.high  # before: -8 to 0, where four experiments gave 4
    assert abs(found.expected - 4) < 1.5
    # The observations are no contradiction: they say nothing of doses beyond their own.
    assert len(found.notes) == (jitter == 0.1)
    assert all("Observations have dose from 4.7" in note for note in found.notes)
    assert "hidden cause" not in "".join(found.notes)

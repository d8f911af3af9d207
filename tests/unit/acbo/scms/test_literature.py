"""Benchmarks of the literature: their optima recomputed from the equations, and the same models as arrays."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acbo.scms import (
    Benchmark,
    benchmarks,
    best_intervention,
    fit_coral_graph,
    function_networks,
)
from acbo.scms.literature import complete_graph, coral_graph, health_graph, toy_graph

STRUCTURAL = (toy_graph(), complete_graph(), health_graph())
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

pytestmark = pytest.mark.usefixtures("quick_compile")


def gaussian_mean(function, *centres_and_scales: tuple[float, float]) -> float:
    """E[function(x, ...)] for independent Gaussian variables, by quadrature."""
    total = 0.0
    grids = [[(c + s * x, w) for x, w in zip(NODES, WEIGHTS, strict=True)] for c, s in centres_and_scales]
    for points in itertools.product(*grids):
        total += math.prod(w for _, w in points) * function(*(x for x, _ in points))
    return total


def test_the_optima_of_the_toy_graph_by_quadrature() -> None:
    toy = toy_graph()

    def y(z: float) -> float:
        return math.cos(z) - math.exp(-z / 20)

    z = np.linspace(-5, 20, 200_001)
    best = (np.cos(z) - np.exp(-z / 20)).min()
    assert toy.optima["Z",][0] == pytest.approx(best, abs=1e-4)
    assert y(toy.optima["Z",][1]["Z"]) == pytest.approx(best, abs=1e-4)
    by_x = {x: gaussian_mean(y, (math.exp(-x), 1.0)) for x in np.linspace(-5, 5, 1001)}
    assert toy.optima["X",][0] == pytest.approx(min(by_x.values()), abs=1e-3)
    assert toy.optima["X",][1]["X"] == pytest.approx(min(by_x, key=lambda x: by_x[x]), abs=0.015)
    mean = gaussian_mean(lambda x, e: y(math.exp(-x) + e), (0, 1), (0, 1))
    assert toy.observational_mean == pytest.approx(mean, abs=2e-3)


LINE = np.linspace(-9, 9, 1501)
DENSITY = np.exp(-(LINE**2) / 2) / np.exp(-(LINE**2) / 2).sum()


def complete_mean(do: dict[str, float]) -> float:
    """E[Y | do] of CompleteGraph: its terms add up, and sums inside sin and cos factor into characteristic functions."""
    line, density = LINE[::3], DENSITY[::3] / DENSITY[::3].sum()
    a = line[:, None] ** 2 + math.sqrt(2) * line[None]
    weight_a = density[:, None] * density[None]
    b, weight_b = (np.array([do["B"]]), np.ones(1)) if "B" in do else (math.sqrt(2) * line, density)
    c = np.exp(-b)  # and unit noise
    if "D" in do:
        d_part = math.cos(do["D"]) - do["D"] / 5
    else:
        d, weight = np.exp(-(c[:, None] + line[None])) / 10, weight_b[:, None] * density[None]
        d_part = math.exp(-0.5) * (weight * np.cos(d)).sum() - (weight * d).sum() / 5
    if "E" in do:
        e_part = math.sin(do["E"]) - do["E"] / 4
    else:
        turn = (weight_a * np.exp(1j * np.cos(a))).sum() * (weight_b * np.exp(1j * c / 10)).sum()
        mean = (weight_a * np.cos(a)).sum() + (weight_b * c).sum() / 10
        e_part = math.exp(-0.5 * 1.01) * turn.imag - mean / 4
    return d_part + e_part + math.exp(0.5)


def test_the_optima_of_the_complete_graph_by_quadrature() -> None:
    complete = complete_graph()
    assert complete.observational_mean == pytest.approx(complete_mean({}), abs=2e-3)
    # D and E act on Y by terms of their own.
    d, e = np.linspace(-5, 5, 10_001), np.linspace(-6, 3, 10_001)
    best_d, best_e = float(d[np.argmin(np.cos(d) - d / 5)]), float(e[np.argmin(np.sin(e) - e / 4)])
    assert len(complete.optima) == 6
    for members, (value, levels) in complete.optima.items():
        fixed = {n: v for n, v in {"D": best_d, "E": best_e}.items() if n in members}
        tries = [{**fixed, "B": b} for b in np.linspace(-5, 4, 46)] if "B" in members else [fixed]
        means = [complete_mean(levels_tried) for levels_tried in tries]
        assert value == pytest.approx(min(means), abs=2e-3)
        assert levels == pytest.approx(tries[int(np.argmin(means))], abs=2e-3)
    assert complete.best == {"B": -5.0, "D": 3.343}


def test_the_optima_of_the_health_graph_by_quadrature() -> None:
    health = health_graph()
    age_nodes, age_weights = np.polynomial.legendre.leggauss(40)

    def psa(do: dict[str, float]) -> float:
        total = 0.0
        for x, w in zip(age_nodes, age_weights / 2, strict=True):
            age = 65 + 10 * x
            for e, v in zip(NODES, WEIGHTS, strict=True):
                bmi = 27 - 0.01 * age + 0.7 * e
                aspirin = do.get("aspirin", 1 / (1 + math.exp(8 - 0.1 * age - 0.03 * bmi)))
                statin = do.get("statin", 1 / (1 + math.exp(13 - 0.1 * age - 0.2 * bmi)))
                cancer = 1 / (1 + math.exp(-(2.2 - 0.05 * age + 0.01 * bmi - 0.04 * statin + 0.02 * aspirin)))
                total += w * v * (6.8 + 0.04 * age - 0.15 * bmi - 0.6 * statin + 0.55 * aspirin + cancer)
        return total

    assert health.observational_mean == pytest.approx(psa({}), abs=1e-3)
    for members, (value, levels) in health.optima.items():
        assert value == pytest.approx(psa(levels), abs=1e-3)
        others = [
            psa(dict(zip(members, point, strict=True)))
            for point in itertools.product((0, 0.5, 1), repeat=len(members))
        ]
        assert min(others) == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("benchmark", STRUCTURAL, ids=lambda b: b.name)
def test_arrays_and_equations_say_the_same(benchmark: Benchmark) -> None:
    model = benchmark.model
    assert model.target == list(benchmark.simulate(0, 1))[-1]
    rows = 50_000
    for do in ({}, *(levels for _, levels in benchmark.optima.values())):
        x = np.asarray(benchmark.simulate(1, rows, do)[model.target])
        error = 4 * float(x.std()) / math.sqrt(10_000)
        assert model.effect(do, samples=10_000) == pytest.approx(x.mean(), abs=error)
    assert model.effect(samples=10_000) == pytest.approx(benchmark.observational_mean, abs=0.08)


@pytest.mark.parametrize("benchmark", STRUCTURAL, ids=lambda b: b.name)
def test_the_solver_finds_the_published_optimum(benchmark: Benchmark) -> None:
    found = best_intervention(benchmark.model.scm, 2, benchmark.minimize, samples=256)
    levels = {n: float(found.intervention.value[benchmark.model.index(n)]) for n in benchmark.best}
    value = benchmark.model.effect(levels, samples=10_000)
    members = {n for n, m in zip(benchmark.names, np.asarray(found.intervention.mask), strict=False) if m}
    assert members == set(benchmark.best)
    assert value == pytest.approx(benchmark.optimum, abs=0.1)
    if benchmark.name == "CompleteGraph":
        sets = np.asarray(found.sets)
        for names, (expected, _) in benchmark.optima.items():
            index = [benchmark.model.index(n) for n in names]
            row = (sets == np.isin(np.arange(sets.shape[1]), index)).all(1)
            assert float(np.asarray(found.set_values)[row][0]) == pytest.approx(expected, abs=0.25)


def test_hidden_confounders_are_declared() -> None:
    complete = complete_graph()
    assert complete.model.hidden == ("U1", "U2")
    assert complete.confounded == (("A", "Y"), ("B", "Y"))
    for a, b in complete.confounded:
        parents = {v: {i for i, j in complete.edges if j == v} for v in (a, b)}
        assert parents[a] & parents[b] & set(complete.model.hidden)
    data = complete.model.sample(10)
    assert not np.asarray(data.live)[[complete.model.index("U1"), complete.model.index("U2")]].any()
    assert set(complete.model.ranges) == {"B", "D", "E"}


def test_the_coral_graph_is_a_structure_until_it_gets_rows() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    coral = coral_graph()
    assert (len(coral.names), len(coral.edges)) == (11, 26)
    with pytest.raises(ValueError, match="fit_coral_graph"):
        _ = coral.model
    with pytest.raises(ValueError, match="D = 2100"):
        _ = coral.optimum
    with pytest.raises(ValueError, match="no published equations"):
        coral.simulate(0, 3)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({name: rng.standard_normal(46) for name in coral.names})
    rows["TE"] = 2 * rows["L"] + 0.01 * rng.standard_normal(46)
    model = fit_coral_graph(rows)
    assert set(model.edges) == set(coral.edges)
    weight = float(model.scm.mechanism.weight[model.index("L"), model.index("TE")])
    assert weight == pytest.approx(2, abs=0.01)
    assert model.ranges["D"] == (1950, 1965)
    assert len(benchmarks()) == 4
    with pytest.raises(ValueError, match=r"must be one of .*; got 'CO'"):
        fit_coral_graph(rows.drop(columns="CO"))


@pytest.mark.parametrize("network", function_networks(), ids=lambda n: n.name)
def test_function_networks_reach_their_optimum_and_no_more(network) -> None:
    values = network.evaluate(jnp.asarray(network.best))
    assert values.shape == (network.nodes,)
    scale = max(1.0, abs(network.optimum))
    assert float(values[-1]) == pytest.approx(network.optimum, abs=1e-5 * scale)
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(4000, network.actions))
    near = np.clip(np.asarray(network.best) + 0.02 * rng.standard_normal((4000, network.actions)), 0, 1)
    every = jnp.asarray(np.concatenate([points, near]), jnp.float32)
    reached = jax.vmap(lambda a: network.evaluate(a)[-1])(every)
    assert float(reached.max()) <= network.optimum + 1e-5 * scale
    slope = jax.grad(lambda a: network.evaluate(a)[-1])(jnp.asarray(network.best) + 0.01)
    assert bool(jnp.isfinite(slope).all())
    assert len(network.inputs) == network.nodes


def test_function_networks_compute_their_formulas() -> None:
    drop, alpine, ackley, rosen = function_networks()
    a = np.array([0.1, 0.7, 0.3, 0.9, 0.2, 0.6])
    x = 10.24 * a[:2] - 5.12
    r = math.hypot(*x)
    noise = np.array([0.1, -0.2])
    ripple = (1 + math.cos(12 * (r + 0.1))) / (2 + 0.5 * (r + 0.1) ** 2) - 0.2
    np.testing.assert_allclose(
        drop.evaluate(jnp.asarray(a[:2]), jnp.asarray(noise)), [r + 0.1, ripple], rtol=1e-4
    )
    x = 10 * a
    np.testing.assert_allclose(alpine.evaluate(jnp.asarray(a)), np.cumprod(np.sqrt(x) * np.sin(x)), rtol=1e-4)
    x = 4 * a - 2
    square, wave = (x**2).mean(), np.cos(2 * np.pi * x).mean()
    value = 20 * math.exp(-0.2 * math.sqrt(square)) + math.exp(wave) - 20 - math.e
    np.testing.assert_allclose(ackley.evaluate(jnp.asarray(a)), [square, wave, value], rtol=1e-4)
    x = 4 * a[:5] - 2
    terms = [100 * (x[k + 1] - x[k] ** 2) ** 2 + (1 - x[k]) ** 2 for k in range(4)]
    np.testing.assert_allclose(rosen.evaluate(jnp.asarray(a[:5])), -np.cumsum(terms), rtol=1e-4)
    assert alpine.optimum == pytest.approx(490.35, abs=0.01)
    with pytest.raises(ValueError, match="got 'Q'"):
        toy_graph().simulate(0, 2, {"Q": 1.0})
    with pytest.raises(ValueError, match="`do: X` must be a finite number; got nan"):
        toy_graph().simulate(0, 2, {"X": np.nan})

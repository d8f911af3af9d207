"""The exact teacher beside sums over all graphs and scores row by row; padding, precision, refusals."""

import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acbo_oracle import bge_scores, enumerate_posterior, linear_data, masks_of, size_prior

from acbo.data import Dataset, dataset
from acbo.inference import BGe, Posterior, edge_posterior
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")


UNIT = BGe(scale="unit")
"""The prior that the oracle has."""


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def data(seed: int, d: int = 5, observed: int = 20, intervened: int = 15) -> tuple[np.ndarray, np.ndarray]:
    _, values, mask = linear_data(np.random.default_rng(seed), d, observed, intervened)
    return values, mask


@functools.cache
def scored(seed: int, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data and its scores row by row, which take a second."""
    values, mask = data(seed, d)
    return values, mask, bge_scores(values, mask)


def as_dataset(values: np.ndarray, mask: np.ndarray, target: int = 0) -> Dataset:
    return dataset(jnp.asarray(values), jnp.asarray(mask), target=target)


def padded(plain: Dataset, size: int, places: list[int], extra_rows: int = 3) -> Dataset:
    """The same data with its variables at other places of a larger, padded array, and padded rows."""
    n = plain.values.shape[0]
    values = np.zeros((n + extra_rows, size), plain.values.dtype)
    intervened = np.zeros(values.shape, bool)
    values[:n, places], intervened[:n, places] = plain.values, plain.intervened
    live = np.zeros(size, bool)
    live[places] = True
    return Dataset(
        jnp.asarray(values),
        jnp.asarray(intervened),
        jnp.arange(n + extra_rows) < n,
        jnp.asarray(live),
        jnp.asarray(places[int(plain.target)], jnp.int32),
    )


def set_probabilities(posterior: Posterior, variable: int) -> np.ndarray:
    """[mask] from the posterior of one node's parent sets."""
    sets = posterior.parent_sets(variable)
    found = np.zeros(1 << sets.members.shape[1])
    np.add.at(found, masks_of(np.asarray(sets.members)), np.asarray(sets.probabilities))
    return found


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("structure", "parents", "max_parents"),
    [("order", "flat", 4), ("order", "size", 2), ("uniform", "flat", 4)],
)
def test_equals_the_sum_over_all_29281_graphs_of_five_variables(
    structure: str, parents: str, max_parents: int
) -> None:
    values, mask, scores = scored(1)
    prior = np.broadcast_to(size_prior(5, max_parents, parents), (5, 32))
    truth = enumerate_posterior(scores, prior, by_orders=structure == "order")
    found = edge_posterior(
        as_dataset(values, mask),
        UNIT,
        max_parents=max_parents,
        structure_prior=structure,
        parent_prior=parents,
    )
    assert found.method == "exact"
    assert found.edges.dtype == jnp.float64
    np.testing.assert_allclose(found.edges, truth["edges"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.log_evidence, truth["log_evidence"], rtol=0, atol=1e-8)
    for v in range(5):
        np.testing.assert_allclose(set_probabilities(found, v), truth["sets"][v], rtol=0, atol=1e-8)
    np.testing.assert_array_equal(found.target_parents().probabilities, found.parent_sets(0).probabilities)


@pytest.mark.usefixtures("x64")
def test_two_variables_in_closed_form() -> None:
    """Observed only, both arrows weigh the same: P = B / (2 + 2 B) under the order prior, B / (1 + 2 B) under the other.

    B = p(x, y) / (p(x) p(y)) depends on the matrix R alone: one determinant against two of its entries.
    """
    rng = np.random.default_rng(3)
    x = rng.standard_normal(30)
    values = np.stack([x, 0.4 * x + rng.standard_normal(30)], 1)
    n, t = 30, 0.5
    mean = values.mean(0)
    r = t * np.eye(2) + (values - mean).T @ (values - mean) + n / (n + 1) * np.outer(mean, mean)
    # Γ₂(a) = √π Γ(a) Γ(a − ½); degrees of freedom 4 for the pair, 3 for each alone.
    log_b = (
        math.lgamma((n + 3) / 2)
        + math.lgamma((n + 4) / 2)
        - math.lgamma(3 / 2)
        - math.lgamma(4 / 2)
        - 2 * (math.lgamma((n + 3) / 2) - math.lgamma(3 / 2))
        + (4 - 3) * math.log(t)
        - (n + 4) / 2 * np.log(np.linalg.det(r))
        + (n + 3) / 2 * (np.log(r[0, 0]) + np.log(r[1, 1]))
    )
    b = np.exp(log_b)
    observed = as_dataset(values, np.zeros((n, 2), bool))
    by_order = edge_posterior(observed, UNIT, parent_prior="flat").edges
    np.testing.assert_allclose(by_order, [[0, b / (2 + 2 * b)], [b / (2 + 2 * b), 0]], atol=1e-10)
    by_graph = edge_posterior(observed, UNIT, parent_prior="flat", structure_prior="uniform").edges
    np.testing.assert_allclose(by_graph, [[0, b / (1 + 2 * b)], [b / (1 + 2 * b), 0]], atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_an_intervention_decides_what_observations_leave_open() -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((60, 2), bool)
    mask[30:45, 0] = mask[45:, 1] = True
    x = np.where(mask[:, 0], 2 * rng.standard_normal(60), rng.standard_normal(60))
    y = np.where(mask[:, 1], 2 * rng.standard_normal(60), x + rng.standard_normal(60))
    values = np.stack([x, y], 1)
    open_ = edge_posterior(as_dataset(values[:30], mask[:30])).edges
    np.testing.assert_allclose(open_[0, 1], open_[1, 0], rtol=1e-9)
    decided = edge_posterior(as_dataset(values, mask)).edges
    assert decided[0, 1] > 0.999
    assert decided[1, 0] < 1e-3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "score", [BGe(scale="unit"), BGe(mean_weight=0.3, extra_degrees=5.0, scale="unit"), BGe()]
)
def test_equivalent_graphs_score_the_same(score: BGe) -> None:
    """Chain, reversed chain and fork imply the same independence; the collider does not."""
    from acbo.inference.parent_sets import all_others, set_table

    values, mask = data(5, d=3, observed=40, intervened=0)
    plain = as_dataset(3 + 2 * values, mask)
    table = set_table(2, 2)
    candidates = all_others(plain.live)
    scores = np.asarray(score.log_scores(plain, candidates, table))

    def log_p(parents: list[set[int]]) -> float:
        total = 0.0
        for v, wanted in enumerate(parents):
            others = [u for u in range(3) if u != v]
            row = [set(np.array(others)[m]) == wanted for m in table.members].index(True)
            total += scores[v, row]
        return total

    chain, back, fork = log_p([set(), {0}, {1}]), log_p([{1}, {2}, set()]), log_p([{1}, set(), {1}])
    np.testing.assert_allclose([back, fork], chain, rtol=1e-11)
    assert abs(log_p([set(), {0, 2}, set()]) - chain) > 1e-3
    full = [log_p([set(), {0}, {0, 1}]), log_p([{1, 2}, {2}, set()]), log_p([{2}, {0, 2}, set()])]
    np.testing.assert_allclose(full, full[0], rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_the_score_is_the_product_of_predictions_with_other_hyperparameters() -> None:
    values, mask = data(2, d=3)
    prior = np.broadcast_to(size_prior(3, 2, "flat"), (3, 8))
    truth = enumerate_posterior(bge_scores(values, mask, mean_weight=0.4, extra=3.5), prior, by_orders=True)
    score = BGe(mean_weight=0.4, extra_degrees=3.5, scale="unit")
    found = edge_posterior(as_dataset(values, mask), score, parent_prior="flat")
    np.testing.assert_allclose(found.edges, truth["edges"], atol=1e-9)
    np.testing.assert_allclose(found.log_evidence, truth["log_evidence"], atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_scale_from_data_ignores_units() -> None:
    values, mask = data(6, d=4)
    units = np.array([1.0, 1e3, 1e-4, 7.0])
    here = edge_posterior(as_dataset(values, mask)).edges
    there = edge_posterior(as_dataset(values * units + 5 * units, mask)).edges
    np.testing.assert_allclose(here, there, atol=1e-8)
    # It is the prior of the oracle, for standardized data.
    standard = edge_posterior(as_dataset((values - values.mean(0)) / values.std(0), mask), UNIT).edges
    np.testing.assert_allclose(here, standard, atol=1e-8)


def test_single_precision_is_near_double_even_far_from_zero_and_with_many_rows() -> None:
    values, mask = data(7, d=6, observed=400, intervened=80)
    with jax.enable_x64(True):
        exact = edge_posterior(as_dataset(values, mask), BGe(scale="data"))
        edges, evidence = np.asarray(exact.edges), float(exact.log_evidence)
    single = edge_posterior(as_dataset(values.astype(np.float32), mask), BGe(scale="data"))
    assert single.edges.dtype == jnp.float32
    np.testing.assert_allclose(single.edges, edges, atol=2e-3)
    np.testing.assert_allclose(single.log_evidence, evidence, rtol=1e-5)
    assert float(single.edges.max()) <= 1
    far = edge_posterior(as_dataset((values + 1000).astype(np.float32), mask), BGe(scale="data"))
    np.testing.assert_allclose(far.edges, edges, atol=2e-2)
    # Each node's parent sets sum to one: no digits are lost in the sums themselves.
    np.testing.assert_allclose(single.set_probabilities.sum(1), 1, atol=1e-5)


def test_a_constant_and_a_copied_column_stay_finite() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(50).astype(np.float32)
    values = np.stack([x, x, np.full(50, 3.0, np.float32), -2 * x], 1)
    found = edge_posterior(as_dataset(values, np.zeros((50, 4), bool)), BGe(scale="data"))
    assert np.isfinite(found.edges).all()
    assert np.isfinite(found.log_evidence)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("structure", "size", "limit"), [("order", 6, None), ("order", 16, 5), ("uniform", 6, 5)]
)
def test_dead_variables_and_rows_change_nothing(structure: str, size: int, limit: int | None) -> None:
    values, mask = data(8, d=4)
    plain = as_dataset(values, mask, target=3)
    places = [5, 1, 3, 0] if size == 6 else [15, 2, 9, 4]
    here = edge_posterior(plain, structure_prior=structure)
    there = edge_posterior(padded(plain, size, places), structure_prior=structure, limit=limit)
    np.testing.assert_allclose(there.edges[np.ix_(places, places)], here.edges, atol=1e-10)
    dead = np.ones((size, size), bool)
    dead[np.ix_(places, places)] = False
    assert np.abs(np.asarray(there.edges))[dead].max() == 0
    np.testing.assert_allclose(there.log_evidence, here.log_evidence, atol=1e-8)
    moved = there.target_parents()
    keep = np.asarray(moved.probabilities) > 0
    masks = masks_of(np.asarray(moved.members)[:, places])
    found = np.zeros(16)
    np.add.at(found, masks[keep], np.asarray(moved.probabilities)[keep])
    np.testing.assert_allclose(found, set_probabilities(here, 3), atol=1e-10)
    nothing = there.parent_sets(next(v for v in range(size) if v not in places))
    np.testing.assert_allclose(nothing.probabilities[~nothing.members.any(1)].sum(), 1, atol=1e-12)


def test_too_many_live_variables_are_refused_or_seen_as_nan() -> None:
    values, mask = data(8, d=4)
    plain = as_dataset(values.astype(np.float32), mask)
    with pytest.raises(ValueError, match="`limit` must be at least the number of live variables, 4; got 3"):
        edge_posterior(plain, limit=3)
    traced = jax.jit(lambda data: edge_posterior(data, limit=3))(plain)
    assert np.isnan(traced.edges).all()
    assert np.isnan(traced.log_evidence)


def test_one_program_serves_a_bucket_and_maps_over_models() -> None:
    made = []
    for seed, d in enumerate((3, 5, 6, 4)):
        values, mask = data(seed, d=d)
        made.append(padded(as_dataset(values.astype(np.float32), mask), 6, list(range(d)), extra_rows=5))
    jax.clear_caches()
    with CompileWatch() as watch:
        single = [edge_posterior(one).edges for one in made]
    assert watch["_posterior"].compiles == 1
    many = jax.tree.map(lambda *parts: jnp.stack(parts), *made)
    mapped = jax.jit(jax.vmap(edge_posterior))(many)
    np.testing.assert_allclose(mapped.edges, np.stack(single), atol=1e-5)
    sets = jax.vmap(Posterior.target_parents)(mapped)
    np.testing.assert_allclose(sets.probabilities.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"method": "magic"}, "`method` must be"),
        ({"score": "bic"}, "`score` must be 'bge', 'gp'"),
        ({"structure_prior": "flat"}, "`structure_prior` must be 'order' or 'uniform'"),
        ({"parent_prior": "none"}, "`parent_prior` must be 'size' or 'flat'"),
        ({"structure_prior": "uniform", "method": "order_mcmc"}, "needs `method='exact'`"),
        ({"max_parents": -1}, "`max_parents` must be at least 0"),
        ({"limit": 0}, "`limit` must be at least 1"),
        ({"dtype": "float16"}, "must be float32 or float64; got float16"),
        ({"dtype": "float64"}, "needs 64-bit numbers"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: dict, answer: str) -> None:
    values, mask = data(1)
    with pytest.raises(ValueError, match=answer):
        edge_posterior(as_dataset(values.astype(np.float32), mask), **arguments)


@pytest.mark.parametrize("wrong", [{"mean_weight": 0.0}, {"extra_degrees": 1.0}, {"scale": "none"}])
def test_hyperparameters_are_checked(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BGe(**wrong)


@pytest.mark.parametrize(("shift", "scale"), [(100.0, 1.0), (0.0, 0.01), (0.0, 1000.0)])
def test_the_usual_score_keeps_edges_in_any_units(shift: float, scale: float) -> None:
    _, values, mask = linear_data(np.random.default_rng(0), 3)
    here = edge_posterior(as_dataset(values, mask)).edges
    moved = as_dataset((values * [1, scale, 1] + [0, shift, 0]).astype(np.float32), mask)
    np.testing.assert_allclose(edge_posterior(moved).edges, here, atol=1e-3)
    # Inside a program, where no warning could be raised, too.
    np.testing.assert_allclose(jax.jit(lambda d: edge_posterior(d).edges)(moved), here, atol=1e-3)


def test_arrays_are_checked_as_tables_are() -> None:
    _, values, mask = linear_data(np.random.default_rng(0), 3)
    made = dataset(values, mask, target=2)
    assert made.values.dtype == jnp.result_type(float)
    for target in (3, -1):
        with pytest.raises(ValueError, match=f"`target` must be a column, from 0 to 2; got {target}."):
            dataset(made.values, made.intervened, target=target)
    with pytest.raises(ValueError, match="`values` must keep its digits in float32; 1 has a deviation"):
        dataset(values + np.array([0, 1e9, 0]))

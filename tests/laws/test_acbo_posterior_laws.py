"""Laws of the exact posterior: it is a distribution, follows its variables, and weighs orders and graphs as counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acbo_oracle import (
    all_dags,
    all_sets,
    enumerate_posterior,
    linear_data,
    linear_extensions,
    masks_of,
    size_prior,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from acbo.data import dataset
from acbo.inference import edge_posterior, wide
from acbo.inference.parent_sets import SetTable, count_sets, log_total, parent_set_posterior, set_table

pytestmark = pytest.mark.usefixtures("quick_compile")

# Compiled once per number of variables and prior: most of the time of these laws would go into single operations.
posterior_of = jax.jit(
    lambda scores, kind: parent_set_posterior(scores, _table(scores), kind), static_argnames="kind"
)
total_of = jax.jit(lambda scores, kind: log_total(scores, _table(scores), kind), static_argnames="kind")


def _table(scores: jax.Array) -> SetTable:
    return set_table(scores.shape[0] - 1, scores.shape[0] - 1)


few = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**31 - 1)


def random_scores(seed: int, d: int, spread: float) -> np.ndarray:
    """[v, set of others] log scores of any magnitude, some sets excluded."""
    rng = np.random.default_rng(seed)
    scores = spread * rng.standard_normal((d, 1 << (d - 1)))
    scores[:, 1:][rng.random((d, (1 << (d - 1)) - 1)) < 0.1] = -np.inf
    return scores


def by_mask(scores: np.ndarray, d: int) -> np.ndarray:
    """The same as [v, mask over all d], from rows in the order of the table."""
    table = set_table(d - 1, d - 1)
    full = np.full((d, 1 << d), -np.inf)
    for v in range(d):
        others = [u for u in range(d) if u != v]
        for row, members in enumerate(table.members):
            full[v, sum(1 << u for u, m in zip(others, members, strict=True) if m)] = scores[v, row]
    return full


@few
@given(seed=seeds, spread=st.sampled_from([0.1, 5.0, 300.0, 5000.0]), by_orders=st.booleans())
def test_sums_equal_enumeration_for_scores_of_any_magnitude(
    seed: int, spread: float, by_orders: bool
) -> None:
    d = 4
    scores = random_scores(seed, d, spread)
    with jax.enable_x64(True):
        kind = "order" if by_orders else "uniform"
        sets, total = (np.asarray(part) for part in posterior_of(jnp.asarray(scores), kind=kind))
        alone = float(total_of(jnp.asarray(scores), kind=kind))
    full = by_mask(scores, d)
    truth = enumerate_posterior(
        np.where(np.isinf(full), 0, full), np.where(np.isinf(full), full, 0), by_orders=by_orders
    )
    table = set_table(d - 1, d - 1)
    for v in range(d):
        others = [u for u in range(d) if u != v]
        masks = masks_of(np.stack([np.isin(np.arange(d), np.array(others)[m]) for m in table.members]))
        np.testing.assert_allclose(sets[v], truth["sets"][v][masks], atol=1e-9)
    np.testing.assert_allclose(alone, total, rtol=1e-12)
    np.testing.assert_allclose(sets.sum(1), 1, atol=1e-9)


@few
@given(seed=seeds)
def test_single_precision_sums_lose_no_digits_to_magnitude(seed: int) -> None:
    scores = np.round(random_scores(seed, 5, 200.0))  # whole numbers, so both precisions start from the same
    with jax.enable_x64(True):
        double = np.asarray(posterior_of(jnp.asarray(scores), kind="order")[0])
    single = posterior_of(jnp.asarray(scores, jnp.float32), kind="order")[0]
    np.testing.assert_allclose(single, double, atol=2e-4)


@few
@given(seed=seeds, d=st.sampled_from([2, 5]))
def test_parent_sets_are_distributions_and_edges_acyclic_in_mean(seed: int, d: int) -> None:
    _, values, mask = linear_data(np.random.default_rng(seed), d, 10, 5)
    found = edge_posterior(dataset(jnp.asarray(values, jnp.float32), jnp.asarray(mask)))
    np.testing.assert_allclose(found.set_probabilities.sum(1), 1, atol=1e-5)
    assert float(found.edges.min()) >= 0
    # No graph has both i → j and j → i.
    assert float((found.edges + found.edges.T).max()) <= 1 + 1e-5


@few
@given(seed=seeds)
def test_the_posterior_follows_its_variables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, values, mask = linear_data(rng, 5, 12, 8)
    order = rng.permutation(5)
    rows = rng.permutation(len(values))
    with jax.enable_x64(True):
        here = edge_posterior(dataset(jnp.asarray(values), jnp.asarray(mask)))
        moved = dataset(jnp.asarray(values[rows][:, order]), jnp.asarray(mask[rows][:, order]))
        there = edge_posterior(moved)
        np.testing.assert_allclose(there.edges, here.edges[np.ix_(order, order)], atol=1e-10)
        np.testing.assert_allclose(there.log_evidence, here.log_evidence, atol=1e-9)


def test_equal_scores_give_the_counts_of_graphs() -> None:
    """Without data every graph weighs its orders: 29,281 graphs, known since Robinson (1973)."""
    assert [len(all_dags(d)) for d in (1, 2, 3, 4, 5)] == [1, 3, 25, 543, 29281]
    with jax.enable_x64(True):
        for d in (2, 3, 4, 5):
            table = set_table(d - 1, d - 1)
            nothing = jnp.zeros((d, len(table.sizes)))
            dags = all_dags(d)
            np.testing.assert_allclose(np.exp(total_of(nothing, kind="uniform")), len(dags), rtol=1e-12)
            orders = linear_extensions(dags).sum() / np.prod(np.arange(1, d + 1))
            np.testing.assert_allclose(np.exp(total_of(nothing, kind="order")), orders, rtol=1e-12)


@few
@given(
    logs=st.lists(st.floats(-1e4, 1e4), min_size=8, max_size=8),
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=8, max_size=8),
)
def test_wide_numbers_add_and_multiply_as_logarithms_do(logs: list[float], signs: list[float]) -> None:
    x, sign = np.array(logs), np.array(signs)
    top = x.max()
    with jax.enable_x64(True):
        back, summed, product, signed = (jax.tree.map(np.asarray, part) for part in arithmetic(x, sign))
    np.testing.assert_allclose(back, x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(summed, top + np.log(np.exp(x - top).sum()), rtol=1e-12, atol=1e-12)
    log_product = np.log(product.mantissa) + product.exponent * np.log(2.0)
    np.testing.assert_allclose(log_product, 2 * x, rtol=1e-12, atol=1e-12)
    assert product.mantissa.min() >= 1
    assert product.mantissa.max() < 2
    np.testing.assert_allclose(signed, (sign * np.exp(x - top)).sum(), atol=1e-12)


@jax.jit
def arithmetic(logs: jax.Array, sign: jax.Array) -> tuple:
    """Back to logarithms, log of the sum, the squares, and the signed sum over the largest number."""
    numbers = wide.from_log(logs)
    signed = wide.total(wide.Wide(numbers.mantissa * sign, numbers.exponent), 0)
    largest = jax.tree.map(lambda part: part[jnp.argmax(logs)], numbers)
    return (
        wide.to_log(numbers),
        wide.to_log(wide.total(numbers, 0)),
        wide.normalize(wide.multiply(numbers, numbers)),
        wide.ratio(signed, largest),
    )


@given(candidates=st.integers(0, 7), largest=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_the_table_holds_every_set_once(candidates: int, largest: int) -> None:
    table = set_table(candidates, largest)
    expected = all_sets(list(range(candidates)), min(largest, candidates))
    found = [tuple(np.flatnonzero(row).tolist()) for row in table.members]
    assert sorted(found) == sorted(expected)
    assert count_sets(candidates, largest) == len(expected)
    assert [sum(1 << place for place in chosen) for chosen in found] == table.masks.tolist()
    assert [len(chosen) for chosen in found] == table.sizes.tolist()
    assert (np.diff(table.masks) > 0).all()


def test_size_prior_of_the_oracle_is_even_over_sizes() -> None:
    prior = np.exp(size_prior(5, 4, "size"))
    sizes = [bin(mask).count("1") for mask in range(32)]
    mass = [sum(prior[m] for m in range(32) if not m & 1 and sizes[m] == k) for k in range(5)]
    np.testing.assert_allclose(mass, 1)

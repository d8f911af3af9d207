"""Graphs drawn from their posterior: as often as the exact sums say, within what is known, and without cycles."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from acbo.data import Dataset
from acbo.inference import BGe, edge_posterior, prior_knowledge
from acbo.inference.graph_draws import draw_graphs
from acbo.inference.knowledge import Knowledge, no_knowledge
from acbo.inference.order_mcmc import OrderSampling
from acbo.scms.graphs import is_acyclic

pytestmark = pytest.mark.usefixtures("quick_compile")

COUNT = 4000
LIVE = np.array([True, True, False, True, True])


@pytest.fixture(scope="module")
def data() -> Dataset:
    """A chain 0 → 1 → 3 with 4 alone, weak enough to leave doubt; 2 is padding, and 1 is set in some rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(18, 5)).astype(np.float32)
    x[:, 1] += 1.0 * x[:, 0]
    intervened = np.zeros((18, 5), bool)
    intervened[12:16, 1] = True
    x[12:16, 1] = 1.5
    x[:, 3] += 0.8 * x[:, 1]
    rows = np.arange(18) < 17
    held = np.where(rows[:, None] & LIVE, x, 0)
    return Dataset(
        jnp.asarray(held), jnp.asarray(intervened), jnp.asarray(rows), jnp.asarray(LIVE), jnp.int32(3)
    )


@pytest.mark.parametrize(
    "knowledge",
    [no_knowledge(5), prior_knowledge(5, required=[(4, 0)], forbidden=[(0, 1)], probabilities={(1, 3): 0.9})],
    ids=["free", "known"],
)
def test_draws_are_as_frequent_as_the_exact_posterior_says(data: Dataset, knowledge: Knowledge) -> None:
    unit = BGe(scale="unit")  # which leaves more open here
    drawn = draw_graphs(data, jr.key(1), COUNT, unit, knowledge=knowledge)
    exact = np.asarray(edge_posterior(data, unit, knowledge=knowledge).edges)
    graphs = np.asarray(drawn)
    # Four standard errors of a share of one half.
    np.testing.assert_allclose(graphs.mean(0), exact, atol=4 * 0.5 / np.sqrt(COUNT))
    assert ((exact > 0.1) & (exact < 0.9)).sum() >= 3, "the comparison needs doubt"
    assert bool(jax.vmap(is_acyclic)(drawn).all())
    assert graphs[:, np.asarray(knowledge.required)].all()
    assert not graphs[:, np.asarray(knowledge.forbidden)].any()
    assert not graphs[:, ~LIVE].any()
    assert not graphs[:, :, ~LIVE].any()
    assert len(np.unique(graphs.reshape(COUNT, -1), axis=0)) > 20


def test_pairs_of_edges_come_together_as_often_as_parent_sets_say(data: Dataset) -> None:
    knowledge = no_knowledge(5)
    graphs = np.asarray(draw_graphs(data, jr.key(1), COUNT, knowledge=knowledge))
    found = edge_posterior(data, knowledge=knowledge).parent_sets(3)
    members, probabilities = np.asarray(found.members), np.asarray(found.probabilities)
    shares = (graphs[:, None, :, 3] == members).all(2).mean(0)
    possible = ~members[:, ~LIVE].any(1)
    np.testing.assert_allclose(shares[possible], probabilities[possible], atol=4 * 0.5 / np.sqrt(COUNT))
    assert (probabilities > 0.05).sum() >= 3


def test_draws_among_few_candidates_are_as_frequent_as_the_sampled_posterior_says(data: Dataset) -> None:
    """One draw from the last order of each of many short chains."""
    sampling = OrderSampling(candidates=2, rounds=1, chains=500, sweeps=8, burn_in=4)
    drawn = draw_graphs(data, jr.key(1), 500, method="restricted", sampling=sampling)
    graphs = np.asarray(drawn)
    assert bool(jax.vmap(is_acyclic)(drawn).all())
    assert graphs.sum(1).max() <= 2
    assert (graphs.sum((0, 1)) > 0).sum() >= 3
    assert ((graphs.any(0)).sum(0) <= 2).all(), "a variable has no more causes than candidates"
    assert not graphs[:, ~LIVE].any()
    said = np.asarray(edge_posterior(data, method="restricted", sampling=sampling, key=jr.key(1)).edges)
    np.testing.assert_allclose(graphs.mean(0), said, atol=4 * 0.5 / np.sqrt(500))

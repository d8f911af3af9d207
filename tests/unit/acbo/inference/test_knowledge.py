"""What is known beforehand weighs every graph as it says; what contradicts itself is refused by name."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acbo_oracle import bge_scores, enumerate_posterior, linear_data, size_prior

from acbo.data import Dataset, dataset
from acbo.inference import BGe, Knowledge, edge_posterior, no_knowledge, prior_knowledge

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def data(seed: int, d: int = 5, observed: int = 20, intervened: int = 15) -> tuple[np.ndarray, np.ndarray]:
    _, values, mask = linear_data(np.random.default_rng(seed), d, observed, intervened)
    return values, mask


def as_dataset(values: np.ndarray, mask: np.ndarray) -> Dataset:
    return dataset(jnp.asarray(values), jnp.asarray(mask))


def known_prior(d: int, known: Knowledge, base: np.ndarray) -> np.ndarray:
    """[v, mask]: the prior with knowledge, set by set."""
    prior = np.tile(base, (d, 1))
    required, forbidden, odds = (
        np.asarray(part) for part in (known.required, known.forbidden, known.log_odds)
    )
    for v in range(d):
        for mask in range(1 << d):
            for u in range(d):
                held = mask >> u & 1
                if (held and forbidden[u, v]) or (not held and required[u, v]):
                    prior[v, mask] = -np.inf
                elif held:
                    prior[v, mask] += odds[u, v]
    return prior


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("structure", ["order", "uniform"])
def test_knowledge_weighs_every_graph_as_it_says(structure: str) -> None:
    values, mask = data(9, d=4, observed=10, intervened=5)
    known = prior_knowledge(
        ["a", "b", "c", "d"],
        required=[("a", "b")],
        forbidden=[("d", "c")],
        tiers=[["a"], ["b", "d"]],
        probabilities={("c", "d"): 0.8, ("b", "c"): 0.1, ("c", "a"): 0.0},
    )
    assert bool(known.forbidden[1, 0])
    assert bool(known.forbidden[3, 0])
    assert not bool(known.forbidden[2, 1])
    prior = known_prior(4, known, size_prior(4, 2, "size"))
    truth = enumerate_posterior(bge_scores(values, mask), prior, by_orders=structure == "order")
    found = edge_posterior(
        as_dataset(values, mask),
        BGe(scale="unit"),
        knowledge=known,
        max_parents=2,
        structure_prior=structure,
    )
    np.testing.assert_allclose(found.edges, truth["edges"], atol=1e-7)
    np.testing.assert_allclose(found.log_evidence, truth["log_evidence"], atol=1e-7)
    np.testing.assert_allclose(found.edges[0, 1], 1, atol=1e-9)
    assert found.edges[3, 2] == found.edges[1, 0] == found.edges[2, 0] == 0


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "a → b is required and forbidden"),
        ({"required": [("c", "a")], "tiers": [["a"], ["c"]]}, "c → a is required and against the tiers"),
        ({"required": [("a", "b"), ("b", "c"), ("c", "a")]}, "a → b → c → a"),
        ({"probabilities": {("a", "b"): 1.0}, "forbidden": [("a", "b")]}, "a → b is required and forbidden"),
        ({"probabilities": {("a", "b"): 0.0}, "required": [("a", "b")]}, "required and given probability 0"),
        ({"probabilities": {("a", "b"): 1.5}}, r"must lie in \[0, 1\]; got 1.5 for a → b"),
        ({"required": [("a", "z")]}, "`required` must name variables; got 'z'. They are a, b, c"),
        ({"tiers": [["a"], ["z"]]}, "`tiers` must name variables; got 'z'"),
        ({"tiers": [["a"], ["a"]]}, "`tiers` must hold a variable once; got a twice"),
        ({"forbidden": [("a", "a")]}, "must join two variables; got a → a"),
        ({"size": 2}, "`size` must be at least the number of names, 3; got 2"),
    ],
)
def test_contradictions_are_refused_by_name(said: dict, answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        prior_knowledge(["a", "b", "c"], **said)


def test_knowledge_that_does_not_fit_the_data_is_refused() -> None:
    values, mask = data(1)
    plain = as_dataset(values.astype(np.float32), mask)
    with pytest.raises(
        ValueError, match="must be about the 5 variables of the data, padding included; got 3"
    ):
        edge_posterior(plain, knowledge=prior_knowledge(3))
    known = prior_knowledge(5, required=[(0, 4), (1, 4), (2, 4)])
    with pytest.raises(ValueError, match=r"variable 4 has 3\. Pass `max_parents=3`"):
        edge_posterior(plain, knowledge=known, max_parents=2)
    with pytest.raises(ValueError, match="`names` must differ; got a more than once"):
        prior_knowledge(["a", "a"])


@pytest.mark.usefixtures("x64")
def test_knowing_nothing_changes_nothing() -> None:
    values, mask = data(3, d=4)
    plain = as_dataset(values, mask)
    here, there = edge_posterior(plain), edge_posterior(plain, knowledge=no_knowledge(4))
    np.testing.assert_allclose(there.edges, here.edges, atol=1e-12)
    # One evidence is normalized in closed form, the other by a sum over all orders.
    np.testing.assert_allclose(there.log_evidence, here.log_evidence, atol=1e-9)

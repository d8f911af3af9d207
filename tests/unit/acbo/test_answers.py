"""Answers in names: edges, parents, graphs without cycles; and tables of data that say what was set."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from acbo.answers import edge_frame, likely_edges, likely_graph, likely_parents, probabilities_of
from acbo.inference import Posterior
from acbo.scms import from_frame, to_frame
from acbo.surrogate.network import Prediction

NAMES = ("feed", "heat", "yield")
EDGES = np.zeros((4, 4))
EDGES[0, 1], EDGES[1, 0], EDGES[1, 2], EDGES[2, 0], EDGES[0, 2] = 0.9, 0.1, 0.8, 0.6, 0.3


def posterior() -> Posterior:
    """Sets of at most one parent: none, or the first, second or third of the other variables."""
    candidates = jnp.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], jnp.int32)
    sets = jnp.array([[0.3, 0.1, 0.6, 0.0], [0.1, 0.9, 0.0, 0.0], [0.1, 0.1, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0]])
    zero = jnp.float32(0)
    nodes = jnp.arange(4, dtype=jnp.int32)
    return Posterior(
        jnp.asarray(EDGES, jnp.float32), zero, sets, candidates, nodes, jnp.int32(2), zero, "exact", 1
    )


def test_edges_have_names_and_padding_is_gone() -> None:
    answer = posterior()
    assert [(a, b, round(p, 6)) for a, b, p in likely_edges(answer, NAMES)] == [
        ("feed", "heat", 0.9),
        ("heat", "yield", 0.8),
        ("yield", "feed", 0.6),
    ]
    assert len(likely_edges(answer, NAMES, 0.2)) == 4
    frame = edge_frame(answer, NAMES)
    assert frame.loc["heat", "yield"] == pytest.approx(0.8)
    assert frame.shape == (3, 3)
    np.testing.assert_array_equal(probabilities_of(EDGES, NAMES), EDGES[:3, :3])


def test_a_likely_graph_leaves_out_the_least_likely_edge_of_a_cycle() -> None:
    graph = likely_graph(EDGES, NAMES)
    assert np.argwhere(graph).tolist() == [[0, 1], [1, 2]]
    # Once yield -> feed is refused, feed -> yield may enter.
    assert np.argwhere(likely_graph(EDGES, NAMES, 0.05)).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_parents_come_with_their_probability() -> None:
    assert [(s, round(p, 5)) for s, p in likely_parents(posterior(), NAMES, most=2)] == [
        (("heat",), 0.8),
        ((), 0.1),
    ]
    assert likely_parents(posterior(), NAMES, "heat", most=1)[0][0] == ("feed",)
    single = jnp.full((3, 3), -30.0).at[1, 2].set(2.0).at[0, 2].set(-1.0)
    said = Prediction(single, single, jnp.zeros((3, 3, 2)), jnp.ones(3, bool), jnp.int32(2))
    sets = dict(likely_parents(said, NAMES))
    # Independent parents: the product of their probabilities.
    first, second = 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(1.0))
    assert sets["heat",] == pytest.approx(first * (1 - second), rel=1e-4)
    assert sets["feed", "heat"] == pytest.approx(first * second, rel=1e-4)


def test_wrong_use_is_said() -> None:
    batched = jax.tree.map(lambda leaf: leaf[None], posterior())
    with pytest.raises(ValueError, match="one dataset"):
        likely_edges(batched, NAMES)
    with pytest.raises(ValueError, match="at most 4"):
        likely_edges(EDGES, [*NAMES, "a", "b"])
    with pytest.raises(ValueError, match="Did you mean 'heat'"):
        likely_parents(posterior(), NAMES, "haet")


def test_a_column_says_what_was_set() -> None:
    frame = pd.DataFrame({"dose": [0.0, 1.0, 2.0], "note": ["", "dose", None], "pain": [3.0, 2.0, 1.0]})
    data, names = from_frame(frame, target="pain", intervened="note")
    assert names == ("dose", "pain")
    assert np.asarray(data.intervened)[:, :2].tolist() == [[False, False], [True, False], [False, False]]
    both, _ = from_frame(frame.assign(note="dose, pain"), target="pain", intervened="note")
    assert np.asarray(both.intervened)[:, :2].all()
    with pytest.raises(ValueError, match=r"frame: note.*Did you mean 'dose'"):
        from_frame(frame.assign(note="dosis"), target="pain", intervened="note")
    with pytest.raises(ValueError, match="must hold numbers; column 'note' has"):
        from_frame(frame, target="pain")


def test_what_was_set_follows_rows_and_columns() -> None:
    from acbo.data import dataset

    marks = jnp.array([[True, False], [False, False], [False, True]])
    frame = to_frame(dataset(jnp.arange(6.0).reshape(3, 2), marks), ("a", "b"))
    moved, names = from_frame(frame.iloc[[2, 0]][["b", "a"]], target="a", size=2)
    assert names == ("b", "a")
    assert np.asarray(moved.intervened).tolist() == [[True, False], [False, True]]
    assert np.asarray(moved.values).tolist() == [[5.0, 4.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match="Pass `intervened`"):
        from_frame(frame.set_axis([7, 8, 9]), target="a")

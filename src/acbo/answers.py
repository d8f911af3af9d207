"""Answers of teacher and surrogate with the names of variables: edges, parents, and a graph."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .inference import Posterior
from .names import place, require_distinct
from .optional import optional_package
from .surrogate.heads import candidate_sets
from .surrogate.network import Prediction

if TYPE_CHECKING:
    import pandas as pd

Answer = Posterior | Prediction | Float[Array | np.ndarray, "size size"]
"""Result of `edge_posterior` or of a surrogate, or edge probabilities `[i, j]` alone; padding comes last."""


def probabilities_of(answer: Answer, names: Sequence[str]) -> Float[np.ndarray, "d d"]:
    """Probability of each edge between the named variables, `[i, j]` for i → j."""
    require_distinct(names, "names")
    edges = np.asarray(getattr(answer, "edges", answer), float)
    if edges.ndim != 2 or edges.shape[0] != edges.shape[1]:
        raise ValueError(
            f"`answer` must be about one dataset; got edges of shape {edges.shape}. Take one: "
            "`jax.tree.map(lambda a: a[0], answer)`."
        )
    if len(names) > len(edges):
        raise ValueError(
            f"`names` must name the variables of the data, at most {len(edges)}; got {len(names)}."
        )
    d = len(names)
    if max(edges[d:].max(initial=0.0), edges[:, d:].max(initial=0.0)) > 0:
        raise ValueError(
            f"`names` must name all variables of the data, which has more than {d}; got {tuple(names)}."
        )
    return edges[:d, :d]


def edge_frame(answer: Answer, names: Sequence[str]) -> "pd.DataFrame":
    """A square table of edge probabilities: the row causes the column."""
    frame = optional_package("pandas", "`edge_frame`").DataFrame
    return frame(probabilities_of(answer, names), index=list(names), columns=list(names))


def likely_edges(
    answer: Answer, names: Sequence[str], threshold: float = 0.5
) -> list[tuple[str, str, float]]:
    """(cause, effect, probability) of every edge above the threshold, the likeliest first.

    >>> likely_edges(np.array([[0.0, 0.9], [0.1, 0.0]]), ("dose", "pain"))
    [('dose', 'pain', 0.9)]
    """
    edges = probabilities_of(answer, names)
    found = [(names[i], names[j], float(edges[i, j])) for i, j in np.argwhere(edges > threshold).tolist()]
    return sorted(found, key=lambda edge: -edge[2])


def likely_graph(answer: Answer, names: Sequence[str], threshold: float = 0.5) -> Bool[np.ndarray, "d d"]:
    """Edges above the threshold as one graph without cycles, for `fit_linear_model`.

    Edges enter from the likeliest down; one that would close a cycle is left out. It is no more than a summary: what
    the data leave open is in the probabilities.
    """
    edges = probabilities_of(answer, names)
    d = len(names)
    graph, reaches = np.zeros((d, d), bool), np.eye(d, dtype=bool)
    for flat in np.argsort(-edges, axis=None, kind="stable"):
        i, j = divmod(int(flat), d)
        if edges[i, j] <= threshold:
            break
        if not reaches[j, i]:
            graph[i, j] = True
            reaches |= reaches[:, [i]] & reaches[[j]]
    return graph


def likely_parents(
    answer: Posterior | Prediction, names: Sequence[str], variable: str | None = None, most: int = 5
) -> list[tuple[tuple[str, ...], float]]:
    """The likeliest sets of direct causes of a variable, by default the target, with their probabilities."""
    v = int(answer.target) if variable is None else place(variable, names, "variable")
    members, chances = _parent_sets(answer, v)
    # Sets with padding have no probability.
    best = np.argsort(-chances, kind="stable")[:most]
    rows = [(np.flatnonzero(members[s]).tolist(), float(chances[s])) for s in best]
    return [(tuple(names[i] for i in row), p) for row, p in rows if max(row, default=0) < len(names)]


def _parent_sets(answer: Any, variable: int) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(answer, Posterior):
        return jax.device_get(answer.parent_sets(variable))
    if not isinstance(answer, Prediction):
        raise TypeError(
            f"`answer` must be what `edge_posterior` or a surrogate returned; got {type(answer).__name__}. Edge "
            "probabilities alone say nothing of sets."
        )
    sets = candidate_sets(answer.live.shape[0], 3, jnp.int32(variable))
    chances = jax.nn.softmax(answer.parent_set_logits(sets, target=variable))
    return np.asarray(sets), np.asarray(chances)

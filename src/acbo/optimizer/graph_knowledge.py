"""Knowledge about the graph in any form a user gives it, as plain values that a file can hold."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from acbo.inference.knowledge import Knowledge, prior_knowledge
from acbo.names import number, place, short
from acbo.scms.dsl import parse_graph
from acbo.scms.graphs import require_acyclic

WORDS = ("required", "forbidden", "tiers", "probabilities")
Graph = Any
"""Text, edges, a networkx graph, a mapping of parts of the knowledge, or None."""


@dataclasses.dataclass(frozen=True)
class GraphKnowledge:
    """Required and forbidden edges, tiers and probabilities; `known` means that the required edges are the whole graph."""

    known: bool = False
    required: tuple[tuple[str, str], ...] = ()
    forbidden: tuple[tuple[str, str], ...] = ()
    tiers: tuple[tuple[str, ...], ...] | None = None
    probabilities: tuple[tuple[str, str, float], ...] = ()

    def arrays(self, names: Sequence[str], size: int) -> Knowledge:
        """The knowledge over padded variables."""
        found = prior_knowledge(
            names,
            required=self.required,
            forbidden=self.forbidden,
            tiers=self.tiers,
            probabilities={(a, b): p for a, b, p in self.probabilities},
            size=size,
        )
        if self.known:
            return Knowledge(found.required, ~found.required, found.log_odds, complete=True)
        return found

    def matrix(self, names: Sequence[str]) -> np.ndarray:
        """The required edges, `[i, j]` for i → j."""
        found = np.zeros((len(names),) * 2, bool)
        for cause, effect in self.required:
            found[names.index(cause), names.index(effect)] = True
        return found

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "GraphKnowledge":
        pairs = {word: tuple(tuple(edge) for edge in facts[word]) for word in ("required", "forbidden")}
        tiers = None if facts["tiers"] is None else tuple(tuple(tier) for tier in facts["tiers"])
        beliefs = tuple((str(a), str(b), float(p)) for a, b, p in facts["probabilities"])
        return cls(bool(facts["known"]), tiers=tiers, probabilities=beliefs, **pairs)


def graph_of(given: Graph, names: Sequence[str]) -> GraphKnowledge:
    """Knowledge from a user's description; names and contradictions are checked.

    >>> graph_of("X -> Z -> Y", ("X", "Y", "Z")).required
    (('X', 'Z'), ('Z', 'Y'))
    """
    if given is None:
        return GraphKnowledge()
    if isinstance(given, GraphKnowledge):
        found = given
    elif isinstance(given, Mapping):
        found = _parts(given)
    else:
        # `A <-> B` adds a hidden variable U_A_B; beliefs are about measured variables only.
        hidden = {f"U_{a}_{b}" for a in names for b in names} - set(names)
        if isinstance(given, str):  # a name without an edge is one of the variables too
            for name in parse_graph(given)[0]:
                if name not in hidden:
                    place(name, names, "graph")
        found = GraphKnowledge(known=True, required=tuple(e for e in _edges(given) if e[0] not in hidden))
    for cause, effect in found.required:
        place(cause, names, "graph")
        place(effect, names, "graph")
    require_acyclic(found.matrix(names), names, "graph" if found.known else "graph: required")
    found.arrays(names, len(names))
    return found


def _edges(given: Any) -> list[tuple[str, str]]:
    if isinstance(given, str):
        names, adjacency = parse_graph(given)
        return [(names[i], names[j]) for i, j in np.argwhere(adjacency)]
    if hasattr(given, "is_directed"):
        if not given.is_directed():
            raise ValueError(
                f"`graph` must be directed; got {type(given).__name__}. Use a networkx DiGraph, or `forbidden` edges."
            )
        return [(str(a), str(b)) for a, b in given.edges()]
    if not isinstance(given, Iterable):
        raise ValueError(f"`graph` must be text, edges or a table; got {short(given)}.")
    return [_pair(edge) for edge in given]


def _parts(given: Mapping[str, Any]) -> GraphKnowledge:
    for word in given:
        place(word, WORDS, "graph")
    beliefs = given.get("probabilities") or {}
    if isinstance(beliefs, Mapping):
        beliefs = [(*_pair(edge), p) for edge, p in beliefs.items()]
    listed = list(beliefs) if isinstance(beliefs, list | tuple) else [beliefs]
    tiers = given.get("tiers")
    for word in ("required", "forbidden", "tiers"):
        if not isinstance(given.get(word) or [], list | tuple | set | frozenset):
            raise ValueError(f"`graph: {word}` must be a list; got {short(given[word])}.")
    if not all(isinstance(tier, list | tuple | set | frozenset) for tier in tiers or ()):
        raise ValueError(f"`graph: tiers` must be lists of names; got {short(tiers)}.")
    if not all(isinstance(belief, list | tuple) and len(belief) == 3 for belief in listed):
        raise ValueError(f"`graph: probabilities` must be (cause, effect, probability); got {short(listed)}.")
    return GraphKnowledge(
        required=tuple(_pair(edge) for edge in given.get("required") or ()),
        forbidden=tuple(_pair(edge) for edge in given.get("forbidden") or ()),
        tiers=None if tiers is None else tuple(tuple(str(name) for name in tier) for tier in tiers),
        probabilities=tuple((str(a), str(b), number(p, "graph: probabilities")) for a, b, p in listed),
    )


def _pair(edge: Any) -> tuple[str, str]:
    if isinstance(edge, str) or not hasattr(edge, "__len__") or len(edge) != 2:
        raise ValueError(f"`graph` must hold edges (cause, effect); got {short(edge)}.")
    return str(edge[0]), str(edge[1])

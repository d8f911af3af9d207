"""Prior knowledge: required, forbidden and likely edges, and tiers of variables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..scms.graphs import find_cycle

Name = str | int
Edge = tuple[Name, Name]


class Knowledge(eqx.Module):
    """Constraints on edges `[i, j]`, i → j, as arrays: other knowledge of one size compiles nothing."""

    required: Bool[Array, "d d"]
    forbidden: Bool[Array, "d d"]
    log_odds: Float[Array, "d d"]
    """Added to the log prior of every parent set of j that holds i; 0 says nothing."""
    complete: bool = eqx.field(static=True, default=False)
    """True where `required` is the whole graph: then models have it, and no graph is drawn."""

    @property
    def size(self) -> int:
        """Number of variables, the padded ones included."""
        return self.required.shape[-1]


def no_knowledge(size: int) -> Knowledge:
    """Empty knowledge about `size` variables."""
    none = jnp.zeros((size, size), bool)
    return Knowledge(none, none, jnp.zeros((size, size), jnp.float32))


def prior_knowledge(
    names: Sequence[str] | int,
    *,
    required: Iterable[Edge] = (),
    forbidden: Iterable[Edge] = (),
    tiers: Sequence[Iterable[Name]] | None = None,
    probabilities: Mapping[Edge, float] | None = None,
    size: int | None = None,
) -> Knowledge:
    """Knowledge from named edges and tiers; contradictions raise and are named.

    - `names`: the variables in the order of the data, or how many there are (their names are then 0, 1, …).
    - `required`, `forbidden`: edges (cause, effect).
    - `tiers`: groups of variables, earliest first: nothing later causes anything earlier. Variables in no
      tier are free.
    - `probabilities`: beliefs in single edges. p multiplies the prior odds of the edge by p / (1 − p): 0.5
      says nothing, 0 forbids, 1 requires.
    - `size`: the padded number of variables.

        prior_knowledge(["age", "dose", "pain"], tiers=[["age"], ["dose", "pain"]], forbidden=[("pain", "dose")])
    """
    named = tuple(range(names)) if isinstance(names, int) else tuple(names)
    if len(set(named)) < len(named):
        twice = sorted({str(name) for name in named if named.count(name) > 1})
        raise ValueError(f"`names` must differ; got {', '.join(twice)} more than once.")
    size = len(named) if size is None else size
    if size < len(named):
        raise ValueError(f"`size` must be at least the number of names, {len(named)}; got {size}.")
    place = {name: index for index, name in enumerate(named)}
    must = _edges("required", required, place)
    cannot = dict.fromkeys(_edges("forbidden", forbidden, place), "forbidden")
    for cause, effect in _against_tiers(tiers, place):
        cannot.setdefault((cause, effect), "against the tiers")
    log_odds = np.zeros((size, size), np.float32)
    for edge, p in (probabilities or {}).items():
        ((i, j),) = _edges("probabilities", [edge], place)
        if not 0 <= p <= 1:
            raise ValueError(f"`probabilities` must lie in [0, 1]; got {p} for {_arrow(named, (i, j))}.")
        if p == 0:
            cannot.setdefault((i, j), "given probability 0")
        elif p == 1:
            must.add((i, j))
        else:
            log_odds[i, j] = np.log(p) - np.log1p(-p)
    for edge in sorted(must):
        if edge in cannot:
            raise ValueError(
                f"`required` must not contradict the rest; {_arrow(named, edge)} is required and {cannot[edge]}. "
                "Drop one of the two."
            )
    required_matrix, forbidden_matrix = _matrix(must, size), _matrix(cannot, size)
    cycle = find_cycle(required_matrix, list(map(str, named)))
    if cycle:
        raise ValueError(
            f"`required` must have no directed cycle; got {' → '.join(cycle)}. Drop one of these edges."
        )
    return Knowledge(jnp.asarray(required_matrix), jnp.asarray(forbidden_matrix), jnp.asarray(log_odds))


def check_parent_counts(known: Knowledge, max_parents: int, candidates: int | None = None) -> None:
    """Raise if a node has more required parents than its sets may hold; needs concrete arrays."""
    counts = np.asarray(known.required).sum(0)
    most, node = (int(counts.max()), int(counts.argmax())) if counts.size else (0, 0)
    for name, bound in (("max_parents", max_parents), ("candidates", candidates)):
        if bound is not None and most > bound:
            raise ValueError(
                f"`{name}` must be at least the number of required parents; got {bound}, and variable {node} "
                f"has {most}. Pass `{name}={most}`."
            )


def _place(argument: str, name: Name, place: Mapping[Any, int]) -> int:
    if name not in place:
        raise ValueError(
            f"`{argument}` must name variables; got {name!r}. They are {', '.join(map(str, place))}."
        )
    return place[name]


def _edges(argument: str, edges: Iterable[Edge], place: Mapping[Any, int]) -> set[tuple[int, int]]:
    found = set()
    for cause, effect in edges:
        found.add((_place(argument, cause, place), _place(argument, effect, place)))
        if cause == effect:
            raise ValueError(f"`{argument}` must join two variables; got {cause} → {effect}.")
    return found


def _against_tiers(
    tiers: Sequence[Iterable[Name]] | None, place: Mapping[Any, int]
) -> Iterable[tuple[int, int]]:
    """Edges from a later tier to an earlier one."""
    tier_of: dict[int, int] = {}
    for number, tier in enumerate(tiers or ()):
        for name in tier:
            variable = _place("tiers", name, place)
            if variable in tier_of:
                raise ValueError(f"`tiers` must hold a variable once; got {name} twice.")
            tier_of[variable] = number
    return [(i, j) for i, late in tier_of.items() for j, early in tier_of.items() if late > early]


def _matrix(edges: Iterable[tuple[int, int]], size: int) -> Bool[np.ndarray, "d d"]:
    matrix = np.zeros((size, size), bool)
    for edge in edges:
        matrix[edge] = True
    return matrix


def _arrow(names: Sequence[Any], edge: tuple[int, int]) -> str:
    return f"{names[edge[0]]} → {names[edge[1]]}"

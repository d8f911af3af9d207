"""Parent sets as rows of a table: all subsets of a node's candidates up to a size, their prior before acyclicity, and
their posterior by sums over all orders, or over all graphs, of products of scores. A screen picks candidates where all
parent sets are too many to sum for."""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Int32, Shaped

from .._limits import require_at_least, require_one_of
from . import wide
from .knowledge import Knowledge
from .order_dp import order_total, order_weights, subset_sums, superset_sums
from .structure_prior import graph_total, graph_weights
from .wide import Wide

FAR = 1e6
"""More than any log odds differ."""


class SetTable(NamedTuple):
    """Subsets of `candidates` places up to `max_parents` large, ascending by their numbers: the empty set is row 0.

    Host arrays: they are constants of a compiled program.
    """

    members: Bool[np.ndarray, "sets candidates"]
    sizes: Int32[np.ndarray, " sets"]

    @property
    def masks(self) -> Int32[np.ndarray, " sets"]:
        """The sets as numbers: bit i for candidate i, of which there are at most 31."""
        return self.members @ (1 << np.arange(self.candidates, dtype=np.int32))

    @property
    def candidates(self) -> int:
        """Number of candidates."""
        return self.members.shape[1]

    @property
    def complete(self) -> bool:
        """True if no set is left out: the number of a set is its row then."""
        return len(self.members) == 1 << self.candidates


class Candidates(NamedTuple):
    """The candidate parents of each node, to which a `SetTable` refers."""

    index: Int[Array, "nodes candidates"]  # pyright: ignore[reportIncompatibleMethodOverride]
    """The candidate parents of each node, as places of the data that is scored."""
    valid: Bool[Array, "nodes candidates"]
    """False for dead candidates, and everywhere for a dead node."""


@functools.lru_cache(maxsize=64)
def set_table(candidates: int, max_parents: int) -> SetTable:
    """The table of all sets of at most `max_parents` candidates.

    >>> set_table(3, 2).members.astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]
    """
    require_at_least("max_parents", max_parents, 0)
    sizes = range(min(max_parents, candidates) + 1)
    chosen = (places for size in sizes for places in itertools.combinations(range(candidates), size))
    # Sets differ first by their largest member: the order of their numbers, which no integer of the machine need hold.
    ordered = sorted(chosen, key=lambda places: places[::-1])
    members = np.zeros((len(ordered), candidates), bool)
    sizes = np.array([len(places) for places in ordered], np.int32)
    members[np.repeat(np.arange(len(ordered)), sizes), np.fromiter(itertools.chain(*ordered), int)] = True
    return SetTable(members, sizes)


def count_sets(candidates: int, max_parents: int) -> int:
    """Number of rows of `set_table`.

    >>> count_sets(9, 3)
    130
    """
    return sum(math.comb(candidates, size) for size in range(min(max_parents, candidates) + 1))


def all_others(live: Bool[Array, " nodes"]) -> Candidates:
    """Every other variable is a candidate, in ascending order."""
    nodes = live.shape[0]
    index = np.array([[u for u in range(nodes) if u != v] for v in range(nodes)], np.int32)
    index = jnp.asarray(index.reshape(nodes, max(nodes - 1, 0)))
    return Candidates(index, live[index] & live[:, None])


def edges_from_sets(
    probabilities: Float[Array, "nodes sets"], candidates: Candidates, table: SetTable
) -> Float[Array, "nodes nodes"]:
    """`[u, v]`: the probability that u is a parent of v, from the probabilities of v's parent sets."""
    nodes = probabilities.shape[0]
    members = jnp.asarray(table.members, probabilities.dtype)
    per_candidate = jnp.where(candidates.valid, jnp.matmul(probabilities, members, precision="highest"), 0.0)
    child = jnp.broadcast_to(jnp.arange(nodes)[:, None], candidates.index.shape)
    edges = jnp.zeros((nodes, nodes), probabilities.dtype)
    return edges.at[candidates.index, child].add(per_candidate)


def all_sets(log_scores: Float[Array, "nodes sets"], table: SetTable) -> Float[Array, "nodes masks"]:
    """A column for every set of candidates, by its number; -inf for those that the table leaves out."""
    if table.complete:
        return log_scores
    column = np.full(1 << table.candidates, len(table.sizes), np.int32)
    column[table.masks] = np.arange(len(table.sizes))
    return jnp.pad(log_scores, ((0, 0), (0, 1)), constant_values=-jnp.inf)[:, column]


def pick(matrix: Shaped[Array, "nodes nodes"], candidates: Candidates) -> Shaped[Array, "nodes candidates"]:
    """`matrix[u, v]` for each node v and each of its candidates u."""
    return jnp.take_along_axis(matrix.T, candidates.index, axis=1)


def log_parent_prior(
    candidates: Candidates,
    table: SetTable,
    live: Bool[Array, " nodes"],
    kind: str,
    dtype: jnp.dtype,
    known: Knowledge | None = None,
) -> Float[Array, "nodes sets"]:
    """log q(parent set) of each node, -inf where a set is impossible; a dead node has the empty set only.

    - `"size"`: 1 / C(others, size), so that every number of parents is equally likely (Friedman and Koller).
    - `"flat"`: every set alike; together with a uniform structure prior, every graph alike.
    """
    members = jnp.asarray(table.members, dtype)
    log_prior = jnp.broadcast_to(_by_size(table.sizes, live, kind, dtype), (live.shape[0], members.shape[0]))
    allowed = candidates.valid
    if known is not None:
        allowed = allowed & ~pick(known.forbidden, candidates)
        held = jnp.where(candidates.valid, pick(known.log_odds, candidates), 0.0).astype(dtype)
        log_prior = log_prior + jnp.matmul(held, members.T, precision="highest")
        needed = (pick(known.required, candidates) & candidates.valid).astype(dtype)
        missing = jnp.matmul(needed, 1 - members.T)
        log_prior = jnp.where(missing > 0.5, -jnp.inf, log_prior)
    broken = jnp.matmul((~allowed).astype(dtype), members.T)
    return jnp.where(broken > 0.5, -jnp.inf, log_prior)


def log_order_mass(
    max_parents: int, live: Bool[Array, " nodes"], kind: str, dtype: jnp.dtype
) -> Float[Array, ""]:
    """Log of what the order prior sums to when nothing is known: Σ over orders of Π q, over the number of orders.

    A node with i predecessors finds Σ_s C(i, s) q(s) among them, and every order has one node for each i.
    """
    nodes = live.shape[0]
    sizes = np.arange(min(max_parents, nodes - 1) + 1)
    ways = jnp.asarray([[math.comb(before, size) for size in sizes] for before in range(nodes)], dtype)
    q = jnp.exp(_by_size(sizes, live, kind, dtype))
    log_mass = jnp.log(jnp.matmul(ways, q, precision="highest"))
    return jnp.sum(jnp.where(jnp.arange(nodes) < jnp.sum(live), log_mass, 0.0))


def _by_size(
    sizes: Int[np.ndarray, " sets"], live: Bool[Array, " nodes"], kind: str, dtype: jnp.dtype
) -> Float[Array, " sets"]:
    """log q of a set of each size, not normalized."""
    require_one_of("parent_prior", kind, "size", "flat")
    size = jnp.asarray(sizes, dtype)
    if kind == "flat":
        return jnp.zeros_like(size)
    others = jnp.maximum(jnp.sum(live) - 1, 0).astype(dtype)
    rest = jnp.maximum(others - size, 0.0)  # larger sets are impossible anyway
    return gammaln(size + 1) + gammaln(rest + 1) - gammaln(others + 1)


def parent_set_posterior(
    log_scores: Float[Array, "nodes sets"], table: SetTable, structure_prior: str = "order"
) -> tuple[Float[Array, "nodes sets"], Float[Array, ""]]:
    """Probability of every parent set of every node, and the log of the sum of all weights.

    Each node's sets are those of all the other nodes, in ascending order; -inf excludes one. A graph weighs
    the product of its nodes' scores; under the order prior, times the share of all orders that it fits.
    """
    scores, scale = _scale_scores(log_scores, table)
    sums = subset_sums(scores)
    weights, every = order_weights(sums) if structure_prior == "order" else graph_weights(sums)
    found = wide.multiply(scores, superset_sums(weights))
    # Rounding may leave a hair below 0 or above 1.
    share = jnp.clip(wide.ratio(found, every), 0.0, 1.0)
    total = wide.to_log(every) + scale - _log_orders(log_scores, structure_prior)
    return (share if table.complete else share[:, table.masks]), total


def log_total(
    log_scores: Float[Array, "nodes sets"], table: SetTable, structure_prior: str = "order"
) -> Float[Array, ""]:
    """The log of the sum of all weights alone."""
    scores, scale = _scale_scores(log_scores, table)
    sums = subset_sums(scores)
    every = order_total(sums) if structure_prior == "order" else graph_total(sums)
    return wide.to_log(every) + scale - _log_orders(log_scores, structure_prior)


def _scale_scores(log_scores: Float[Array, "nodes sets"], table: SetTable) -> tuple[Wide, Float[Array, ""]]:
    """Scores of all sets relative to the best of each node, where floats have their digits, and the log of the rest."""
    best = jnp.max(log_scores, axis=1, keepdims=True)
    best = jnp.where(best > -jnp.inf, best, 0.0)
    return wide.from_log(all_sets(log_scores - best, table)), jnp.sum(best)


def _log_orders(log_scores: Float[Array, "nodes sets"], structure_prior: str) -> Float[Array, ""]:
    """Log of the number of orders, each of which has the same share; dead nodes multiply sum and number alike."""
    nodes = log_scores.shape[0] if structure_prior == "order" else 0
    return gammaln(jnp.asarray(nodes + 1.0, log_scores.dtype))


def screening_size(others: int, most_sets: int) -> int:
    """The largest parent sets a screen can score, up to 5: so that there are at most `most_sets` of them.

    >>> screening_size(19, 50_000), screening_size(31, 50_000), screening_size(63, 50_000)
    (5, 4, 3)
    """
    fitting = [size for size in range(1, 6) if count_sets(others, size) <= most_sets]
    return max(fitting, default=1)


def screen(
    log_scores: Float[Array, "nodes sets"],
    table: SetTable,
    live: Bool[Array, " nodes"],
    candidates: int,
    required: Bool[Array, "nodes nodes"] | None = None,
    ranks: Int[Array, "orders nodes"] | None = None,
) -> Candidates:
    """The `candidates` most promising parents of every node, in ascending order.

    `log_scores` are prior and score of the parent sets of `table`, among all others. A variable is ranked
    by the odds that it is a parent when every node chooses independently, without acyclicity. Children then compete
    with parents; given orders of the variables, only predecessors compete, and the best odds over all orders count.
    Required parents come first. Other variables have probability 0 in the posterior.
    """
    nodes = live.shape[0]
    if not 1 <= candidates <= nodes - 1:
        raise ValueError(
            f"`candidates` must be 1 to {nodes - 1}, the number of other variables; got {candidates}."
        )
    everyone = all_others(live)
    odds = _log_odds(log_scores, table)
    if ranks is not None:

        def ordered_odds(rank: Int[Array, " nodes"]) -> Float[Array, "nodes others"]:
            later = (rank[everyone.index] > rank[:, None]).astype(log_scores.dtype)
            broken = jnp.matmul(later, jnp.asarray(table.members.T, log_scores.dtype)) > 0.5
            return _log_odds(jnp.where(broken, -jnp.inf, log_scores), table)

        ordered = jnp.max(jax.lax.map(ordered_odds, ranks), 0)
        # Variables that precede the node in no order rank last.
        odds = jnp.where(ordered > -jnp.inf, ordered, odds - FAR)
    if required is not None:
        odds = jnp.where(pick(required, everyone) & everyone.valid, jnp.inf, odds)
    chosen = jnp.sort(jnp.argsort(-odds, axis=1)[:, :candidates], axis=1)
    index = jnp.take_along_axis(everyone.index, chosen, axis=1)
    possible = everyone.valid & (odds > -jnp.inf)
    return Candidates(index, jnp.take_along_axis(possible, chosen, axis=1))


def _log_odds(log_scores: Float[Array, "nodes sets"], table: SetTable) -> Float[Array, "nodes others"]:
    """Log odds that a node's set holds each of the others; -inf where it cannot."""

    def of(held: Bool[Array, " sets"]) -> Float[Array, " nodes"]:
        inside = jax.nn.logsumexp(jnp.where(held, log_scores, -jnp.inf), axis=1)
        outside = jax.nn.logsumexp(jnp.where(held, -jnp.inf, log_scores), axis=1)
        return jnp.where(inside > -jnp.inf, inside - outside, -jnp.inf)

    return jax.lax.map(of, jnp.asarray(table.members.T)).T

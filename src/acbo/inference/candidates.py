"""Candidate parents by a screen, for more variables than all parent sets can be summed for."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .parent_sets import Candidates, SetTable, all_others, count_sets, pick

FAR = 1e6
"""More than any log odds differ."""


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

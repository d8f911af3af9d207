"""Sampling orders of the variables, for more of them than can be summed (Friedman and Koller 2003).

Given an order, the posterior of every node's parent set is exact and cheap; so the chain walks over orders and
averages those. A step takes one variable out and puts it back where the exact conditional distribution of
its place says (Kuipers and Moffa 2017), then proposes to swap two variables. The first sweeps are annealed:
differences between orders count little at first and in full from the middle of the burn-in on, so that a
walk settles where much weight is rather than on the first hill.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxworlds.static import config

from .._limits import require_all_at_least, require_at_least
from ..data import Key
from . import wide
from .order_dp import subset_sums
from .parent_sets import Candidates, SetTable, all_sets

IMPOSSIBLE = -1e9
"""The log score of an impossible parent set, below all possible ones."""

_MOST_CANDIDATES = 20
"""A walk looks up 2^candidates numbers for each node."""


@config
class OrderSampling:
    """Settings of order sampling, for more variables than can be summed."""

    candidates: int = 10
    """Candidate parents of each node, where they are restricted."""
    rounds: int = 2
    """How often the candidates are chosen again, given orders sampled with the previous ones."""
    chains: int = 8
    """Independent walks, each from a random order."""
    sweeps: int = 150
    """Rounds of one step per variable."""
    burn_in: int = 50
    """Number of first sweeps that are left out of the average."""

    def __post_init__(self) -> None:
        require_all_at_least(self, 1, "candidates", "chains")
        require_all_at_least(self, 0, "rounds", "burn_in")
        require_at_least("sweeps", self.sweeps, self.burn_in + 1)
        if self.candidates > _MOST_CANDIDATES:
            raise ValueError(
                f"`candidates` must be at most {_MOST_CANDIDATES}; got {self.candidates}. Each one doubles the memory."
            )


class OrderSample(NamedTuple):
    """Averages over sampled orders."""

    sets: Float[Array, "nodes sets"]
    """Probability of each parent set of each node."""
    chains: Float[Array, "chains nodes sets"]
    """The same of every chain alone: how far they differ says whether they mixed."""
    ranks: Int[Array, "chains nodes"]
    """The place of each node in the last order of every chain."""


Ranks = Int[Array, " nodes"]
"""The place of each node in an order."""


class _Walk(NamedTuple):
    """Tables used by a chain."""

    sums: Float[Array, "nodes masks"]
    """Log of the sum of a node's scores over the sets within each set of its candidates."""
    index: Int[Array, "nodes candidates"]  # pyright: ignore[reportIncompatibleMethodOverride]

    def preceding(self, rank: Ranks) -> Int[Array, " nodes"]:
        """The candidates that precede each node, as a bit mask."""
        return _as_mask(rank[self.index] < rank[:, None])

    def look_up(self, mask: Int[Array, " nodes"]) -> Float[Array, " nodes"]:
        """The sums of each node, given the candidates that precede it."""
        return jnp.take_along_axis(self.sums, mask[:, None], axis=1)[:, 0]


def sample_orders(
    log_scores: Float[Array, "nodes sets"],
    candidates: Candidates,
    table: SetTable,
    key: Key,
    settings: OrderSampling,
) -> OrderSample:
    """Parent-set posteriors averaged over orders drawn from their posterior.

    `log_scores` are prior and score of each set together; -inf forbids it.
    """
    # Only differences within a node matter; near 0 they keep their digits. What is impossible stays comparable,
    # so that a walk which starts at an order that breaks several demands can mend one after the other.
    log_scores = jnp.maximum(log_scores - jnp.max(log_scores, axis=1, keepdims=True), IMPOSSIBLE)
    # The weight of an order is a product of sums that are looked up by which candidates precede a node.
    sums = wide.to_log(subset_sums(wide.from_log(all_sets(log_scores, table))))
    walk = _Walk(sums, candidates.index)

    def chain(key: Key) -> tuple[Float[Array, "nodes sets"], Ranks]:
        key_start, key_walk = jr.split(key)
        rank = jr.permutation(key_start, log_scores.shape[0])

        def sweep(
            carry: tuple[Ranks, Float[Array, "nodes sets"]], turn: tuple[Int[Array, ""], Key]
        ) -> tuple[tuple[Ranks, Float[Array, "nodes sets"]], None]:
            rank, summed = carry
            number, key = turn
            beta = jnp.minimum(1.0, (number + 1) / max(settings.burn_in / 2, 1)).astype(log_scores.dtype)
            rank = _sweep(key, rank, beta, walk)
            # For this order, the probability of each parent set of each node.
            mask = walk.preceding(rank)
            broken = (table.masks[None, :] & ~mask[:, None]) != 0
            found = jnp.where(broken, 0.0, jnp.exp(log_scores - walk.look_up(mask)[:, None]))
            return (rank, summed + jnp.where(number >= settings.burn_in, found, 0.0)), None

        turns = (jnp.arange(settings.sweeps), jr.split(key_walk, settings.sweeps))
        (rank, summed), _ = jax.lax.scan(sweep, (rank, jnp.zeros_like(log_scores)), turns)
        return summed / (settings.sweeps - settings.burn_in), rank

    found, ranks = jax.vmap(chain)(jr.split(key, settings.chains))
    return OrderSample(jnp.mean(found, 0), found, ranks)


def _sweep(key: Key, rank: Ranks, beta: Float[Array, ""], walk: _Walk) -> Ranks:
    """One step per variable, in random succession, for weights to the power of `beta`."""
    nodes = rank.shape[0]
    key_turns, key_steps = jr.split(key)

    def step(rank: Ranks, turn: tuple[Int[Array, ""], Key]) -> tuple[Ranks, None]:
        node, key = turn
        key_place, key_swap, key_accept = jr.split(key, 3)
        rank = _relocate(key_place, rank, node, beta, walk)
        first, other = jr.randint(key_swap, (2,), 0, jnp.array([nodes, nodes - 1]))
        second = (first + 1 + other) % nodes
        proposed = rank.at[first].set(rank[second]).at[second].set(rank[first])
        old, new = (jnp.sum(walk.look_up(walk.preceding(r))) for r in (rank, proposed))
        accepted = jnp.log(jr.uniform(key_accept, dtype=old.dtype)) < beta * (new - old)
        return jnp.where(accepted, proposed, rank), None

    turns = (jr.permutation(key_turns, nodes), jr.split(key_steps, nodes))
    return jax.lax.scan(step, rank, turns)[0]


def _relocate(key: Key, rank: Ranks, node: Int[Array, ""], beta: Float[Array, ""], walk: _Walk) -> Ranks:
    """The order after one variable has been put at a place drawn from its exact conditional distribution."""
    nodes = rank.shape[0]
    places = jnp.arange(nodes)
    others = jnp.where(rank > rank[node], rank - 1, rank)  # the order without the node
    # Put first, the node precedes everyone; put last, no one. The rest of the order stays as it is.
    ends = (walk.preceding(jnp.where(places == node, end, others)) for end in (-1, nodes))
    first, last = (jnp.where(places == node, 0.0, walk.look_up(mask)) for mask in ends)
    before = others[walk.index[node]][None, :] < places[:, None]
    own = walk.sums[node, _as_mask(before)]
    ahead = others[None, :] < places[:, None]
    log = own + jnp.sum(jnp.where(ahead, last, first), 1)
    place = jr.categorical(key, beta * log)
    return jnp.where(others >= place, others + 1, others).at[node].set(place)


def _as_mask(bits: Bool[Array, "rows candidates"]) -> Int[Array, " rows"]:
    return jnp.sum(jnp.where(bits, 1 << np.arange(bits.shape[1], dtype=np.int32), 0), axis=1, dtype=jnp.int32)

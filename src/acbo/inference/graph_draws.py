"""Whole graphs drawn from their posterior: an order from the sums over all orders, then parents given the order."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..data import Dataset, Key
from . import wide
from .bge import AbstractScore
from .knowledge import Knowledge
from .order_dp import subset_sums, subset_weights
from .order_mcmc import OrderSampling, sample_orders
from .parent_sets import Candidates, SetTable, all_sets
from .posterior import Plan, candidate_parents, compact, plan_for, set_scores


def draw_graphs(
    dataset: Dataset,
    key: Key,
    count: int,
    score: str | AbstractScore = "bge",
    knowledge: Knowledge | None = None,
    max_parents: int | None = None,
    *,
    method: str = "auto",
    limit: int | None = None,
    sampling: OrderSampling | None = None,
) -> Bool[Array, "count d d"]:
    """Graphs `[i, j]`, i → j, drawn from the posterior under the order prior; the arguments are `edge_posterior`'s.

    With exact sums the draws are independent. Beyond 16 variables they follow the last orders of the chains, and draws
    of one chain share its order.
    """
    plan = plan_for(dataset, score, knowledge, max_parents, method=method, limit=limit, sampling=sampling)
    return _draw(dataset, knowledge, key, count, plan)


@eqx.filter_jit
def _draw(
    dataset: Dataset, knowledge: Knowledge | None, key: Key, count: int, plan: Plan
) -> Bool[Array, "count d d"]:
    data, known, nodes = compact(dataset, knowledge, plan)
    key_screen, key_orders, key_sets = jr.split(key, 3)
    candidates = candidate_parents(data, known, key_screen, plan)
    _, scores, table = set_scores(data, known, candidates, plan.max_parents, plan)
    if plan.method == "exact":
        ranks = _draw_orders(scores, table, key_orders, count)
    else:
        found = sample_orders(scores, candidates, table, key_orders, plan.sampling).ranks
        ranks = found[jnp.arange(count) % found.shape[0]]
    members = _draw_sets(scores, candidates, table, ranks, key_sets)
    child = jnp.broadcast_to(jnp.arange(plan.places)[:, None], candidates.index.shape)
    small = jnp.zeros((count, plan.places, plan.places), bool)
    small = small.at[:, candidates.index, child].set(members & candidates.valid)
    full = jnp.zeros((count, dataset.size, dataset.size), bool)
    return full.at[:, nodes[:, None], nodes[None, :]].set(small)


def _draw_orders(
    scores: Float[Array, "nodes sets"], table: SetTable, key: Key, count: int
) -> Int[Array, "count nodes"]:
    """The place of each node in orders drawn from their posterior: the last node first, then the last of the rest."""
    p = scores.shape[0]
    best = jnp.max(scores, axis=1, keepdims=True)
    scaled = wide.from_log(all_sets(scores - jnp.where(best > -jnp.inf, best, 0.0), table))
    sums = subset_sums(scaled)
    reached = wide.to_log(subset_weights(sums))
    own = wide.to_log(sums)
    bit = jnp.asarray(1 << np.arange(p), jnp.int32)
    node = jnp.arange(p)

    def last(k: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, ranks, key = carry
        key, draw = jr.split(key)
        rest = left[:, None] & ~bit
        low = rest & (bit - 1)
        log = reached[rest] + own[node, ((rest - low) >> 1) + low]
        log = jnp.where((left[:, None] & bit) != 0, log, -jnp.inf)
        chosen = jr.categorical(draw, log)
        ranks = jnp.where(node == chosen[:, None], p - 1 - k, ranks)
        return left & ~bit[chosen], ranks, key

    everyone = jnp.full(count, (1 << p) - 1, jnp.int32)
    start = (everyone, jnp.zeros((count, p), jnp.int32), key)
    return jax.lax.fori_loop(0, p, last, start)[1]


def _draw_sets(
    scores: Float[Array, "nodes sets"],
    candidates: Candidates,
    table: SetTable,
    ranks: Int[Array, "count nodes"],
    key: Key,
) -> Bool[Array, "count nodes candidates"]:
    """Parents of every node, drawn given the order: only what precedes a node can cause it."""
    bits = jnp.asarray(1 << np.arange(table.candidates), jnp.int32)
    masks, members = jnp.asarray(table.masks), jnp.asarray(table.members)
    log = jnp.where(jnp.isneginf(scores), -jnp.inf, scores - jnp.max(scores, axis=1, keepdims=True))

    def one(rank: Int[Array, " nodes"], uniform: Float[Array, " nodes"]) -> Bool[Array, "nodes candidates"]:
        before = jnp.sum(jnp.where(rank[candidates.index] < rank[:, None], bits, 0), axis=1, dtype=jnp.int32)
        fits = (masks[None, :] & ~before[:, None]) == 0
        usable = jnp.where(fits, log, -jnp.inf)
        weight = jnp.exp(usable - jnp.max(usable, axis=1, keepdims=True))
        # One uniform number for each node, along the sum of the weights, instead of one for each set.
        along = jnp.cumsum(weight, axis=1)
        row = jnp.sum(along < uniform[:, None] * along[:, -1:], axis=1)
        return members[jnp.minimum(row, len(table.sizes) - 1)]

    # Above 0, so that no set of weight 0 is met; 1 meets the last that has any.
    uniform = 1 - jr.uniform(key, ranks.shape, scores.dtype)
    return jax.lax.map(lambda pair: one(*pair), (ranks, uniform), batch_size=16)

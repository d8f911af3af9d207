"""From scores of parent sets to their posterior: sums over all orders, or over all graphs, of products of scores."""

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from . import wide
from .order_dp import order_total, order_weights, subset_sums, superset_sums
from .parent_sets import SetTable, all_sets
from .structure_prior import graph_total, graph_weights
from .wide import Wide


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

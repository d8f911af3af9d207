"""Inputs of the policy network: the history as statistics, effects along the surrogate's posterior, and the budget.

Everything is in units of the observations' standard deviations, and the target is turned so that small is good: the
network sees neither units of measurement nor the direction of the objective.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from acbo.data import Dataset
from acbo.linear_algebra import solve_positive
from acbo.problem import Problem
from acbo.surrogate.statistics import FEATURES, pair_statistics, standardise

PAIR_FEATURES = 2 * FEATURES
NODE_FEATURES = 15
EDGE_FEATURES = 4

_EXACT = jax.lax.Precision.HIGHEST
# How strongly an unlikely edge is held at zero; chosen among 1, 5 and 25 by the error of the effects.
_DOUBT = 5.0
_STEPS = 6
"""Longest path along which effects are followed."""


class PolicyInput(NamedTuple):
    """Inputs that do not depend on the surrogate."""

    pairs: Float[Array, "d d pair_features"]
    """The statistics that the surrogate reads too."""
    nodes: Float[Array, "d node_features"]
    moments: Float[Array, "d d d"]
    """`[j]`: second moments over the rows in which j was left alone."""
    count: Float[Array, " d"]  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of those rows."""
    low: Float[Array, " d"]
    high: Float[Array, " d"]
    """The ranges, standardised."""


class Scale(NamedTuple):
    """Mean and deviation of each variable, by which everything is standardised."""

    centre: Float[Array, " d"]
    spread: Float[Array, " d"]


def orient_target(problem: Problem, data: Dataset) -> Dataset:
    """The data with the target turned so that small is good."""
    at_target = jnp.arange(data.size) == data.target
    turned = jnp.where(at_target, data.values * problem.sign, data.values)
    return eqx.tree_at(lambda data: data.values, data, turned)


def scale_of(problem: Problem, data: Dataset) -> Scale:
    """The scale of oriented data; where fewer than two rows tell it, that of the range."""
    known = data.rows[:, None] & data.live
    free = known & ~data.intervened
    used = jnp.where(free.sum(0) > 1, free, known)
    count = used.sum(0)
    weight = used / jnp.maximum(count, 1)
    mean = (weight * data.values).sum(0)
    variance = (weight * jnp.where(used, data.values - mean, 0) ** 2).sum(0)
    varies = (count > 1) & (variance > 1e-10 * mean**2 + 1e-30)
    middle, quarter = (problem.low + problem.high) / 2, (problem.high - problem.low) / 4
    usual = jnp.where(problem.manipulable & (quarter > 0), quarter, 1)
    spread = jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1)), usual)
    return Scale(jnp.where(varies, mean, jnp.where(problem.manipulable, middle, mean)), spread)


def policy_input(problem: Problem, data: Dataset, remaining: Float[Array, ""]) -> tuple[PolicyInput, Scale]:
    """The inputs for a problem and its data, after `orient_target`."""
    scale = scale_of(problem, data)
    x = standardise(data)
    pairs = pair_statistics(data, x)
    rows = data.rows.astype(x.dtype)
    set_ = (data.intervened & data.rows[:, None]).astype(x.dtype)
    free = rows[:, None] * (1 - set_)
    count = free.sum(0)
    moments = jnp.einsum("nj,na,nb->jab", free, x, x, precision=_EXACT) / jnp.maximum(count, 1)[:, None, None]
    low, high = ((end - scale.centre) / scale.spread for end in (problem.low, problem.high))
    can = problem.manipulable
    low, high = jnp.where(can, low, 0), jnp.where(can, high, 0)
    y = jnp.einsum("nd,d->n", x, (jnp.arange(data.size) == data.target).astype(x.dtype))
    times = set_.sum(0)
    found = jnp.einsum("nd,n->d", set_, y) / jnp.maximum(times, 1)
    best = jnp.min(jnp.where(set_ > 0, y[:, None], 0), axis=0)
    tried = set_.max(1)
    price = problem.cost_fixed + problem.cost_unit * jnp.maximum(jnp.abs(problem.low), jnp.abs(problem.high))
    top_price = jnp.maximum(jnp.max(jnp.where(can, price, 0)), 1e-6)
    size = jnp.ones(data.size, x.dtype)
    nodes = jnp.stack(
        [
            jnp.clip(low, -6, 6) / 3,
            jnp.clip(high, -6, 6) / 3,
            can.astype(x.dtype),
            (jnp.arange(data.size) == data.target).astype(x.dtype),
            jnp.log1p(times),
            jnp.clip(found, -6, 6) / 3,
            jnp.clip(best, -6, 6) / 3,
            size * jnp.clip(jnp.min(jnp.where(tried > 0, y, 0)), -6, 6) / 3,
            size * jnp.log1p(tried.sum()),
            size * jnp.log1p((rows * (1 - tried)).sum()) / 5,
            size * jnp.log1p(jnp.maximum(remaining, 0)),
            size * (remaining <= 1),
            jnp.where(can, price / top_price, 0),
            size * problem.max_simultaneous / 3,
            size * jnp.log1p(data.live.sum()) / 3,
        ],
        axis=-1,
    ).astype(jnp.float32)
    return PolicyInput(pairs, jnp.where(data.live[:, None], nodes, 0), moments, count, low, high), scale


def known_edges(problem: Problem, logits: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Probabilities of edges from their log odds and prior knowledge, without gradient."""
    known = problem.knowledge
    p = jax.nn.sigmoid(jax.lax.stop_gradient(logits) + known.log_odds)
    return jnp.where(known.required, 1.0, jnp.where(known.forbidden, 0.0, p))


def path_effects(inputs: PolicyInput, edges: Float[Array, "d d"], target: Array) -> tuple[Array, Array]:
    """Coefficients of every edge given how likely it is, and the total effect of every variable on the target.

    Each variable is regressed on all others, an edge being held at zero the more the less likely it is; effects then
    follow the coefficients along all paths of up to `_STEPS` edges.
    """
    d = edges.shape[0]
    held = (_DOUBT * (1 - edges) / jnp.maximum(edges, 1e-3) + 0.5) / jnp.maximum(inputs.count, 1)

    def regress(j: Array, moments: Float[Array, "d d"], held: Float[Array, " d"]) -> Float[Array, " d"]:
        others = jnp.arange(d) != j
        matrix = jnp.where(others[:, None] & others, moments, 0) + jnp.diag(jnp.where(others, held + 1e-3, 1))
        return solve_positive(matrix, jnp.where(others, moments[:, j], 0)[:, None])[0][:, 0]

    weights = jax.vmap(regress)(jnp.arange(d), inputs.moments, held.T).T
    goal = (jnp.arange(d) == target).astype(weights.dtype)
    # What leaves the target leads nowhere that counts.
    onward = jnp.where(goal[:, None] > 0, 0, weights)

    def longer(_: Array, total: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.clip(goal + onward @ total, -5, 5)

    total = jax.lax.fori_loop(0, _STEPS, longer, goal)
    return weights, jnp.where(goal > 0, 0, total)

"""The prior of each node's parent set, before acyclicity: by its size and by prior knowledge."""

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from .knowledge import Knowledge
from .parent_sets import Candidates, SetTable, pick


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
    if kind not in ("size", "flat"):
        raise ValueError(f"`parent_prior` must be 'size' or 'flat'; got {kind!r}.")
    size = jnp.asarray(sizes, dtype)
    if kind == "flat":
        return jnp.zeros_like(size)
    others = jnp.maximum(jnp.sum(live) - 1, 0).astype(dtype)
    rest = jnp.maximum(others - size, 0.0)  # larger sets are impossible anyway
    return gammaln(size + 1) + gammaln(rest + 1) - gammaln(others + 1)

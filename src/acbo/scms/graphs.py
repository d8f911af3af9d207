"""Directed graphs as boolean matrices: `adjacency[i, j]` says that i causes j."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int32, Num


def ranks(scores: Num[Array, " d"]) -> Int32[Array, " d"]:
    """Place of each entry when sorted upwards, equal ones by index; comparisons, since XLA sorts slowly on CPU."""
    index = jnp.arange(scores.shape[0])
    before = (scores[None] < scores[:, None]) | (
        (scores[None] == scores[:, None]) & (index[None] < index[:, None])
    )
    return before.sum(1, dtype=jnp.int32)


def inverse(permutation: Int32[Array, " d"]) -> Int32[Array, " d"]:
    """The permutation that undoes this one."""
    index = jnp.arange(permutation.shape[0], dtype=jnp.int32)
    return jnp.sum((permutation[None] == index[:, None]) * index[None], axis=1, dtype=jnp.int32)


@jax.jit
def depths(adjacency: Bool[Array, "d d"]) -> Int32[Array, " d"]:
    """Length of the longest directed path that ends in each variable; d or more where a cycle feeds it."""
    d = adjacency.shape[0]

    def longer(_: Int[Array, ""], depth: Int32[Array, " d"]) -> Int32[Array, " d"]:
        return jnp.max(jnp.where(adjacency, depth[:, None] + 1, 0), axis=0)

    return jax.lax.fori_loop(0, d, longer, jnp.zeros(d, jnp.int32))


@jax.jit
def topological_order(
    adjacency: Bool[Array, "d d"], live: Bool[Array, " d"] | None = None
) -> Int32[Array, " d"]:
    """Variables so that causes come before effects, padded variables last."""
    depth = depths(adjacency)
    if live is not None:
        depth = jnp.where(live, depth, adjacency.shape[0])
    return inverse(ranks(depth))


@jax.jit
def is_acyclic(adjacency: Bool[Array, "d d"]) -> Bool[Array, ""]:
    """True if no variable causes itself, however indirectly."""
    return jnp.all(depths(adjacency) < adjacency.shape[0])


@jax.jit
def ancestors(adjacency: Bool[Array, "d d"]) -> Bool[Array, "d d"]:
    """`[i, j]`: whether a directed path leads from i to j."""
    d = adjacency.shape[0]
    reach = adjacency
    for _ in range(max(d - 1, 1).bit_length()):
        step = reach.astype(jnp.float32)
        reach = reach | (step @ step > 0)
    return reach


def find_cycle(adjacency: Bool[np.ndarray, "d d"], names: Sequence[str]) -> list[str] | None:
    """The names along one directed cycle, the first repeated at the end; None without a cycle."""
    left = np.asarray(adjacency).copy()
    while True:
        # Variables that cause or are caused by nothing lie on no cycle.
        on = np.asarray(left.any(0) & left.any(1))
        if not on.any():
            return None
        kept = left & on[:, None] & on[None]
        if (kept == left).all():
            break
        left = kept
    path = [int(np.flatnonzero(left.any(1))[0])]
    while path[-1] not in path[:-1]:
        path.append(int(np.flatnonzero(left[path[-1]])[0]))
    return [names[v] for v in path[path.index(path[-1]) :]]


def require_acyclic(adjacency: Bool[np.ndarray, "d d"], names: Sequence[str], argument: str) -> None:
    """Raise for a graph with a cycle, and name the cycle."""
    cycle = find_cycle(adjacency, names)
    if cycle is not None:
        raise ValueError(
            f"`{argument}` must have no directed cycle; got {' -> '.join(cycle)}. Remove or turn one of these edges."
        )

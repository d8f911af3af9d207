"""Families of random graphs: the family is a number inside the program, so that mixed families compile once."""

from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int32

from acbo.data import Key
from acbo.names import place

from .draws import Draws, below, choose
from .graphs import inverse, ranks

Family = Literal["erdos_renyi", "scale_free", "chain", "fork", "collider", "star", "two_layer", "mixed"]
FAMILIES: tuple[Family, ...] = get_args(Family)
ERDOS_RENYI, SCALE_FREE, CHAIN, FORK, COLLIDER, STAR, TWO_LAYER, MIXED = range(len(FAMILIES))


@partial(jax.jit, static_argnames=("family", "variables", "size"))
def random_graph(
    key: Key, family: str, variables: int, edges_per_variable: float = 1.5, size: int | None = None
) -> Bool[Array, "d d"]:
    """One graph of a family by name, padded to `size`.

    >>> random_graph(jax.random.key(0), "chain", 4).sum().item()
    3
    """
    place(family, FAMILIES, "family")
    live = jnp.arange(variables if size is None else size) < variables
    number = jnp.int32(FAMILIES.index(family))  # pyright: ignore[reportArgumentType]
    draws = Draws(key, graph_draws(live.shape[0]))
    return draw_graph(draws, number, live, jnp.asarray(edges_per_variable, draws.numbers.dtype))[0]


def graph_draws(size: int) -> int:
    """Number of uniform draws that a graph needs."""
    return size * (size + 3)


def draw_graph(
    draws: Draws, family: Int32[Array, ""], live: Bool[Array, " d"], edges_per_variable: Float[Array, ""]
) -> tuple[Bool[Array, "d d"], Int32[Array, " d"]]:
    """A graph of the family over the live variables in random order, and that order, padding last.

    - `erdos_renyi`: each pair has an edge with the probability that gives `edges_per_variable` edges per variable.
    - `scale_free`: each variable takes about `edges_per_variable` causes among the earlier ones, in proportion to
      one more than the edges these have: few variables cause most (Barabási and Albert 1999, edges pointing forward).
    - `chain`: each variable causes the next. `fork`: the first causes all others. `collider`: all others cause
      the last. `star`: the earlier half causes one variable, which causes the later half.
    - `two_layer`: each variable of the later half has causes in the earlier half only, and at least one.
    - `mixed`: each variable has the causes that a family drawn for it would give.
    """
    size = live.shape[0]
    count = jnp.sum(live)
    rank = ranks(jnp.where(live, draws.take(size), 2))
    chance, own, some = draws.share(size, size), draws.share(size), draws.share(size)
    cause, effect = rank[:, None], rank[None]
    half = count // 2
    density = jnp.clip(2 * edges_per_variable / jnp.maximum(count - 1, 1), 0, 1)
    sure = cause == below(some, jnp.maximum(half, 1))[None]
    masks = {
        ERDOS_RENYI: chance < density,
        SCALE_FREE: _preferential(chance, edges_per_variable)[rank][:, rank],
        CHAIN: effect == cause + 1,
        FORK: cause == 0,
        COLLIDER: effect == count - 1,
        STAR: (effect == half) | (cause == half),
        TWO_LAYER: (cause < half) & (effect >= half) & ((chance < density) | sure),
    }
    chosen = jnp.where(family == MIXED, below(own, jnp.int32(len(masks))), family)
    edges = jnp.zeros((size, size), bool)
    for index, mask in masks.items():
        edges = edges | (mask & (chosen == index)[None])
    return edges & (cause < effect) & live[:, None] & live[None], inverse(rank)


def _preferential(chance: Float[Array, "d d"], edges_per_variable: Float[Array, ""]) -> Bool[Array, "d d"]:
    """Preferential attachment by place in the order: `[p, q]` for p < q."""
    size = chance.shape[0]
    position = jnp.arange(size)

    def attach(
        q: Int[Array, ""], carry: tuple[Bool[Array, "d d"], Float[Array, " d"]]
    ) -> tuple[Bool[Array, "d d"], Float[Array, " d"]]:
        causes, degree = carry
        weight = jnp.where(position < q, degree + 1, 0)
        # Independent coins whose expected number of heads is `edges_per_variable`, as far as there are causes.
        mine = chance[q] < edges_per_variable * weight / jnp.maximum(weight.sum(), 1)
        # Everyone but the first has a cause: the one that comes closest.
        nearest = jnp.argmin(jnp.where(weight > 0, chance[q] / jnp.maximum(weight, 1), jnp.inf))
        mine = jnp.where(mine.any(), mine, position == nearest) & (position < q)
        degree = degree + mine + jnp.where(position == q, mine.sum(), 0)
        return causes.at[q].set(mine), degree

    start = (jnp.zeros((size, size), bool), jnp.zeros(size, chance.dtype))
    return jax.lax.fori_loop(0, size, attach, start)[0].T


def ensure_cause(
    adjacency: Bool[Array, "d d"], order: Int32[Array, " d"], live: Bool[Array, " d"]
) -> Bool[Array, "d d"]:
    """The graph, with an edge to the last variable from the one before it where the graph has none at all."""
    last = jnp.maximum(jnp.sum(live) - 1, 1)
    index = jnp.arange(live.shape[0])
    edge = (index == order[last - 1])[:, None] & (index == order[last])[None] & live[:, None] & live[None]
    return adjacency | (edge & ~adjacency.any())


def draw_target(
    share: Float[Array, ""], adjacency: Bool[Array, "d d"], order: Int32[Array, " d"], live: Bool[Array, " d"]
) -> Int32[Array, ""]:
    """A random variable that has causes, the later in the order the likelier."""
    position = inverse(order)
    weight = jnp.where(adjacency.any(0), position, 0)
    # A model of one variable has no cause at all; it is its own target.
    weight = jnp.where(adjacency.any(), weight, live & (position == 0))
    return choose(share, weight.astype(share.dtype))

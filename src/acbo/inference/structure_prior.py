"""Sums over all acyclic graphs, each counted once, by inclusion and exclusion of sinks (Tian and He 2009).

Sums over orders count a graph once for every order it fits: 1 for a chain of five, 120 for no edges at all.
Here each counts once. RR(S), the weight of all graphs on S, sums over the sets T of sinks

    RR(S) = Σ (−1)^(|T|+1) RR(S − T) Π_{j∈T} A[j, S − T]      (T in S, not empty)

and so does the weight of all that may come after a set. Every term is the weight of a set of graphs, so it
is no larger than the sum: in float64 what cancels costs some 2^p roundings, not the result.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from . import wide
from .wide import Wide

LARGEST = 10
"""Most variables: 3^10 pairs of sets, 59,049."""


class _Level(NamedTuple):
    """Tables for the sets U of one size: each with all subsets T of the rest, numbered by the rest's bits."""

    sets: Int32[np.ndarray, " sets"]
    """U as a number."""
    column: Int32[np.ndarray, "sets rest"]
    """Index of A[v, U] in the flat array, for the variables v outside U."""
    held: Bool[np.ndarray, "rest subsets"]
    """Members of each T among the rest."""
    union: Int32[np.ndarray, "sets subsets"]
    """U + T as a number."""
    below: Int32[np.ndarray, "sets smaller"]
    """The subsets of U, but for U itself, as numbers."""
    pair: Int32[np.ndarray, "sets smaller"]
    """Index of the pair (subset, U − subset) among all pairs (U, T)."""


def graph_weights(sums: Wide) -> tuple[Wide, Wide]:
    """For each node v and set U of others, the factor of A[v, U] in the weight of all graphs; and that weight.

    The same use as `order_weights`: times the score of one parent set and summed over the sets U that hold
    it, this gives the weight of the graphs with these parents.
    """
    p = sums.mantissa.shape[0]
    levels = _levels(p)
    first, products = _all_products(levels, sums)
    after = _after(levels, products)
    within = _within(levels, products)
    factors = []
    for level, own, product in zip(levels[:-1], first[:-1], products[:-1], strict=True):
        terms = wide.multiply(product, _take(after, level.union))
        # The terms in which v is a sink next to U have A[v, U] as a factor, with the opposite sign.
        sinks = Wide(
            jnp.where(level.held, -terms.mantissa[:, None], 0.0),
            jnp.where(level.held, terms.exponent[:, None], wide.ZERO_EXPONENT),
        )
        inside = Wide(*(part[:, None] for part in _take(within, level.sets)))
        factors.append(_divide(wide.multiply(wide.total(sinks, axis=2), inside), own))
    order = np.argsort(np.concatenate([level.column.reshape(-1) for level in levels])).astype(np.int32)
    flat = (jnp.concatenate([part.reshape(-1) for part in parts]) for parts in zip(*factors, strict=True))
    weights = Wide(*(part[order].reshape(p, -1) for part in flat))
    return wide.normalize(weights), Wide(after.mantissa[0], after.exponent[0])


def graph_total(sums: Wide) -> Wide:
    """The weight of all graphs."""
    levels = _levels(sums.mantissa.shape[0])
    after = _after(levels, _all_products(levels, sums)[1])
    return Wide(after.mantissa[0], after.exponent[0])


def _all_products(levels: list[_Level], sums: Wide) -> tuple[list[Wide], list[Wide]]:
    """For each size of U: A[v, U] of the rest, and `[U, T]` = (−1)^|T| Π_{j∈T} A[j, U]."""
    flat = wide.normalize(Wide(sums.mantissa.reshape(-1), sums.exponent.reshape(-1)))
    first = [_take(flat, level.column) for level in levels]
    products = []
    for level, own in zip(levels, first, strict=True):
        held = level.held.T
        mantissa = jnp.prod(jnp.where(held, -own.mantissa[:, None, :], 1.0), axis=2)
        exponent = jnp.sum(jnp.where(held, own.exponent[:, None, :], 0), axis=2, dtype=jnp.int32)
        # Several zeros at once would leave 32 bits.
        exponent = jnp.where(mantissa == 0, wide.ZERO_EXPONENT, exponent)
        products.append(Wide(mantissa, exponent))
    return first, products


def _after(levels: list[_Level], products: list[Wide]) -> Wide:
    """`[U]`: the weight of all graphs on the variables outside U, which may have parents in U."""
    after = wide.one_at(-1, 1 << (len(levels) - 1), products[0].mantissa.dtype)
    for level, product in zip(levels[-2::-1], products[-2::-1], strict=True):
        terms = wide.multiply(product, _take(after, level.union))
        # T is not empty, and the sign of the formula is opposite to that of the products.
        found = wide.total(Wide(-terms.mantissa[:, 1:], terms.exponent[:, 1:]), axis=1)
        after = Wide(*(a.at[level.sets].set(f) for a, f in zip(after, found, strict=True)))
    return after


def _within(levels: list[_Level], products: list[Wide]) -> Wide:
    """RR: `[S]` is the weight of all graphs on S alone."""
    flat = Wide(
        *(jnp.concatenate([part.reshape(-1) for part in parts]) for parts in zip(*products, strict=True))
    )
    within = wide.one_at(0, 1 << (len(levels) - 1), flat.mantissa.dtype)
    for level in levels[1:]:
        terms = wide.multiply(_take(flat, level.pair), _take(within, level.below))
        found = wide.total(Wide(-terms.mantissa, terms.exponent), axis=1)
        within = Wide(*(a.at[level.sets].set(f) for a, f in zip(within, found, strict=True)))
    return within


def _divide(x: Wide, y: Wide) -> Wide:
    """x / y, and 0 where y is 0: a factor that no graph uses."""
    some = y.mantissa != 0
    return Wide(
        jnp.where(some, x.mantissa / jnp.where(some, y.mantissa, 1.0), 0.0),
        jnp.where(some, x.exponent - y.exponent, wide.ZERO_EXPONENT),
    )


def _take(x: Wide, index: Int32[np.ndarray, "*shape"]) -> Wide:
    return Wide(x.mantissa[index], x.exponent[index])


@functools.lru_cache(maxsize=16)
def _levels(p: int) -> list[_Level]:
    """The tables for p variables, by the size of U."""
    if p > LARGEST:
        raise ValueError(
            f"A uniform structure prior takes at most {LARGEST} variables; got {p}. Use `structure_prior='order'`."
        )
    chosen = [list(itertools.combinations(range(p), size)) for size in range(p + 1)]
    rests = {_mask(u): [v for v in range(p) if v not in u] for sets in chosen for u in sets}
    start, filled = {}, 0
    for u, rest in rests.items():
        start[u] = filled
        filled += 1 << len(rest)
    levels = []
    for size, sets in enumerate(chosen):
        numbers = [_mask(u) for u in sets]
        column = [[(v << (p - 1)) + _squeeze(u, v) for v in rests[u]] for u in numbers]
        below = [_subsets(members)[:-1].tolist() for members in sets]
        pair = [
            [start[b] + _rank(u ^ b, rests[b]) for b in row] for u, row in zip(numbers, below, strict=True)
        ]
        held = (np.arange(1 << (p - size)) >> np.arange(p - size)[:, None]) & 1 == 1
        levels.append(
            _Level(
                np.array(numbers, np.int32),
                np.array(column, np.int32).reshape(len(sets), p - size),
                held,
                np.stack([u + _subsets(rests[u]) for u in numbers]).astype(np.int32),
                np.array(below, np.int32).reshape(len(sets), -1),
                np.array(pair, np.int32).reshape(len(sets), -1),
            )
        )
    return levels


def _mask(places: tuple[int, ...]) -> int:
    return sum(1 << place for place in places)


def _subsets(places: Sequence[int]) -> Int[np.ndarray, " subsets"]:
    """All subsets of some places as numbers, in the order of their own bits."""
    found = np.zeros(1, int)
    for place in places:
        found = np.concatenate([found, found + (1 << place)])
    return found


def _squeeze(mask: int, place: int) -> int:
    """The number with one bit taken out and those above it moved down."""
    return (mask >> (place + 1) << place) | (mask & ((1 << place) - 1))


def _rank(mask: int, places: list[int]) -> int:
    """The number of a set among the subsets of some places."""
    return sum((mask >> place & 1) << bit for bit, place in enumerate(places))

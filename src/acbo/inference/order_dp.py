"""Sums over all orders of the variables, by dynamic programming over subsets (Koivisto and Sood 2004).

A subset is a number: bit i for variable i. What belongs to a node v and a set of *other* variables is kept
in arrays `[v, set]` of 2^(p−1) columns: bits of the others only, in ascending order, so nothing is stored
for sets that hold v. Cost: some 2 p² 2^(p−1) sums of two numbers, and p 2^p products.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, Shaped

from . import wide
from .wide import Wide


def subset_sums(scores: Wide) -> Wide:
    """A[v, U] = Σ scores[v, S] over the sets S within U, for every set U of others."""
    return _zeta(scores, supersets=False)


def superset_sums(weights: Wide) -> Wide:
    """Σ weights[v, U] over the sets U that hold S, for every set S of others."""
    return _zeta(weights, supersets=True)


def order_weights(sums: Wide) -> tuple[Wide, Wide]:
    """For each node v and set U of others: the weight of all orders in which exactly U precedes v; and of all.

    An order weighs the product of `sums[v, predecessors of v]`, here without the factor of v itself.
    """
    # The suffix of an order is the prefix of its reversal, where v is preceded by what followed it.
    reached = _reach(Wide(*(jnp.stack([part, part[:, ::-1]]) for part in sums)))
    p = sums.mantissa.shape[0]
    order = np.argsort(np.concatenate([level.sets for level in _levels(p)])).astype(np.int32)
    natural = Wide(*(jnp.concatenate(parts, 1)[:, order] for parts in zip(*reached, strict=True)))
    split = Wide(*(_without(part, p) for part in natural))
    before, after = (Wide(split.mantissa[k], split.exponent[k]) for k in (0, 1))
    weights = wide.multiply(before, Wide(*(part[:, ::-1] for part in after)))
    return wide.normalize(weights), Wide(*(part[0, 0] for part in reached[-1]))


def order_total(sums: Wide) -> Wide:
    """The weight of all orders."""
    reached = _reach(Wide(*(part[None] for part in sums)))
    return Wide(*(part[0, 0] for part in reached[-1]))


def subset_weights(sums: Wide) -> Wide:
    """For every set U, by its number: the weight of all orders of U alone."""
    reached = _reach(Wide(*(part[None] for part in sums)))
    levels = _levels(sums.mantissa.shape[0])
    order = np.argsort(np.concatenate([level.sets for level in levels])).astype(np.int32)
    return Wide(*(jnp.concatenate(parts, 1)[0, order] for parts in zip(*reached, strict=True)))


def _reach(sums: Wide) -> list[Wide]:
    """For each size k, `[..., U]`: the weight of all orders of U alone, for the sets U of k variables."""
    lead, p, columns = sums.mantissa.shape
    flat = Wide(*(part.reshape(lead, p * columns) for part in sums))
    dtype = sums.mantissa.dtype
    reached = [Wide(jnp.ones((lead, 1), dtype), jnp.zeros((lead, 1), jnp.int32))]
    for level in _levels(p)[1:]:
        shorter = Wide(*(part[:, level.without] for part in reached[-1]))
        last = Wide(*(part[:, level.column] for part in flat))
        reached.append(wide.total(wide.multiply(shorter, last), axis=-1))
    return reached


class _Level(NamedTuple):
    """The sets U of one size k: for each of their members v, where U − v and A[v, U − v] are to be found."""

    sets: Int32[np.ndarray, " sets"]
    without: Int32[np.ndarray, "sets k"]
    column: Int32[np.ndarray, "sets k"]


@functools.lru_cache(maxsize=16)
def _levels(p: int) -> list[_Level]:
    numbers = np.arange(1 << p, dtype=np.int32)
    sizes = sum(numbers >> v & 1 for v in range(p))
    place = np.zeros(1 << p, np.int32)
    levels = []
    for size in range(p + 1):
        sets = numbers[sizes == size]
        place[sets] = np.arange(len(sets))
        held = (sets[:, None] >> np.arange(p) & 1).astype(bool)
        members = np.nonzero(held)[1].reshape(len(sets), size).astype(np.int32)
        without = sets[:, None] ^ (1 << members)
        low = without & ((1 << members) - 1)
        column = (members << (p - 1)) + (without - low >> 1) + low
        levels.append(_Level(sets, place[without], column.astype(np.int32)))
    return levels


def _zeta(x: Wide, *, supersets: bool) -> Wide:
    """Sums over subsets (or supersets) of every set, one bit after another.

    Every round takes the lowest bit and leaves it as the highest, so all rounds are one program and the last
    one restores the order.
    """
    rows, columns = x.mantissa.shape

    def one_bit(_, x: Wide) -> Wide:
        parts = [part.reshape(rows, -1, 2) for part in x]
        without, holding = (Wide(*(part[:, :, k] for part in parts)) for k in (0, 1))
        summed = wide.add(without, holding)
        pair = (summed, holding) if supersets else (without, summed)
        return Wide(*(jnp.concatenate(two, 1) for two in zip(*pair, strict=True)))

    return lax.fori_loop(0, columns.bit_length() - 1, one_bit, x)


def _without(x: Shaped[Array, "lead sets"], p: int) -> Shaped[Array, "lead p others"]:
    """`[..., v, U]` = x[..., U] for every node v and set U of others."""
    lead = x.shape[0]
    return jnp.stack([x.reshape(lead, -1, 2, 1 << v)[:, :, 0].reshape(lead, -1) for v in range(p)], 1)

"""Parent sets as rows of a table: all subsets of a node's candidates up to a size, the same for every node."""

import functools
import itertools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Shaped


class SetTable(NamedTuple):
    """Subsets of `candidates` places up to `max_parents` large, ascending by their numbers: the empty set is row 0.

    Host arrays: they are constants of a compiled program.
    """

    members: Bool[np.ndarray, "sets candidates"]
    sizes: Int32[np.ndarray, " sets"]

    @property
    def masks(self) -> Int32[np.ndarray, " sets"]:
        """The sets as numbers: bit i for candidate i, of which there are at most 31."""
        return self.members @ (1 << np.arange(self.candidates, dtype=np.int32))

    @property
    def candidates(self) -> int:
        """Number of candidates."""
        return self.members.shape[1]

    @property
    def complete(self) -> bool:
        """True if no set is left out: the number of a set is its row then."""
        return len(self.members) == 1 << self.candidates


class Candidates(NamedTuple):
    """The candidate parents of each node, to which a `SetTable` refers."""

    index: Int[Array, "nodes candidates"]  # pyright: ignore[reportIncompatibleMethodOverride]
    """The candidate parents of each node, as places of the data that is scored."""
    valid: Bool[Array, "nodes candidates"]
    """False for dead candidates, and everywhere for a dead node."""


@functools.lru_cache(maxsize=64)
def set_table(candidates: int, max_parents: int) -> SetTable:
    """The table of all sets of at most `max_parents` candidates.

    >>> set_table(3, 2).members.astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]
    """
    if max_parents < 0:
        raise ValueError(f"`max_parents` must be at least 0; got {max_parents}.")
    sizes = range(min(max_parents, candidates) + 1)
    chosen = (places for size in sizes for places in itertools.combinations(range(candidates), size))
    # Sets differ first by their largest member: the order of their numbers, which no integer of the machine need hold.
    ordered = sorted(chosen, key=lambda places: places[::-1])
    members = np.zeros((len(ordered), candidates), bool)
    sizes = np.array([len(places) for places in ordered], np.int32)
    members[np.repeat(np.arange(len(ordered)), sizes), np.fromiter(itertools.chain(*ordered), int)] = True
    return SetTable(members, sizes)


def count_sets(candidates: int, max_parents: int) -> int:
    """Number of rows of `set_table`.

    >>> count_sets(9, 3)
    130
    """
    return sum(math.comb(candidates, size) for size in range(min(max_parents, candidates) + 1))


def all_others(live: Bool[Array, " nodes"]) -> Candidates:
    """Every other variable is a candidate, in ascending order."""
    nodes = live.shape[0]
    index = np.array([[u for u in range(nodes) if u != v] for v in range(nodes)], np.int32)
    index = jnp.asarray(index.reshape(nodes, max(nodes - 1, 0)))
    return Candidates(index, live[index] & live[:, None])


def edges_from_sets(
    probabilities: Float[Array, "nodes sets"], candidates: Candidates, table: SetTable
) -> Float[Array, "nodes nodes"]:
    """`[u, v]`: the probability that u is a parent of v, from the probabilities of v's parent sets."""
    nodes = probabilities.shape[0]
    members = jnp.asarray(table.members, probabilities.dtype)
    per_candidate = jnp.where(candidates.valid, jnp.matmul(probabilities, members, precision="highest"), 0.0)
    child = jnp.broadcast_to(jnp.arange(nodes)[:, None], candidates.index.shape)
    edges = jnp.zeros((nodes, nodes), probabilities.dtype)
    return edges.at[candidates.index, child].add(per_candidate)


def all_sets(log_scores: Float[Array, "nodes sets"], table: SetTable) -> Float[Array, "nodes masks"]:
    """A column for every set of candidates, by its number; -inf for those that the table leaves out."""
    if table.complete:
        return log_scores
    column = np.full(1 << table.candidates, len(table.sizes), np.int32)
    column[table.masks] = np.arange(len(table.sizes))
    return jnp.pad(log_scores, ((0, 0), (0, 1)), constant_values=-jnp.inf)[:, column]


def pick(matrix: Shaped[Array, "nodes nodes"], candidates: Candidates) -> Shaped[Array, "nodes candidates"]:
    """`matrix[u, v]` for each node v and each of its candidates u."""
    return jnp.take_along_axis(matrix.T, candidates.index, axis=1)

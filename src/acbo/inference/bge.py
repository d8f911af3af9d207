"""The interface of parent-set scores, and the BGe score.

BGe is the exact marginal likelihood of a linear-Gaussian node under a normal-Wishart prior.
"""

import abc
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from acbo._limits import require_above, require_one_of
from jaxworlds.static import config

from ..data import Dataset
from .parent_sets import Candidates, SetTable


class AbstractScore(abc.ABC):
    """A score of parent sets for each node. Subclasses are `@config` classes: plain, static values."""

    usual_parents: ClassVar[int] = 5
    """Largest parent set that is tried unless the user says so."""
    screening_sets: ClassVar[int] = 50_000
    """Most parent sets of a node that are scored to find its candidate parents."""

    @abc.abstractmethod
    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        """log p(values of the node | values of its parents), for every node and every set of its candidates.

        Rows in which the node itself is intervened say nothing about its mechanism and are left out. Entries
        with invalid candidates may be anything finite.
        """


@config
class BGe(AbstractScore):
    """log p(node | parents) with means, coefficients and noise integrated out.

    The precision of all variables is Wishart with `live + extra_degrees` degrees of freedom and scale matrix
    T⁻¹, their mean normal about ν with `mean_weight` times that precision. With `scale="data"`, the default, ν and T
    follow the mean and variance of each variable over all rows, so units of measurement do not matter. With
    `scale="unit"`, ν is 0 and T is t × the identity, t = mean_weight × (extra_degrees − 1) / (mean_weight + 1): the
    prior expects means near 0 and variances near 1, and loses edges of data in other units.

        R = T + Σ (x − x̄)(x − x̄)ᵀ + n mean_weight / (n + mean_weight) (x̄ − ν)(x̄ − ν)ᵀ     (rows kept for the node)

    Graphs that imply the same independences score the same on observations. Geiger and Heckerman (2002), as
    corrected by Kuipers, Moffa and Heckerman (2014).
    """

    mean_weight: float = 1.0
    extra_degrees: float = 2.0
    scale: str = "data"

    def __post_init__(self) -> None:
        require_above("mean_weight", self.mean_weight, 0)
        require_above("extra_degrees", self.extra_degrees, 1, "The least informative usual value is 2.")
        require_one_of("scale", self.scale, "unit", "data")

    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        t = self.mean_weight * (self.extra_degrees - 1) / (self.mean_weight + 1)
        mean, variance = moments(data.values, data.rows)
        if self.scale == "unit":
            mean, variance = jnp.zeros_like(mean), jnp.ones_like(variance)
        prior = t * variance
        kept, matrices = node_matrices(data, mean, prior, self.mean_weight)

        def one(
            node: Int[Array, ""],
            matrix: Float[Array, "d d"],
            count: Float[Array, ""],
            index: Int[Array, " candidates"],
        ) -> Float[Array, " sets"]:
            # The node comes last, so that all nodes share one table of sets.
            places = jnp.append(index, node)
            return self._node(matrix[places[:, None], places[None, :]], count, prior[places], table)

        return jax.vmap(one)(jnp.arange(data.size), matrices, kept, candidates.index)

    def _node(
        self, matrix: Float[Array, "m m"], count: Float[Array, ""], prior: Float[Array, " m"], table: SetTable
    ) -> Float[Array, " sets"]:
        """Scores of the last place's parent sets, from R and the diagonal of T in the order of the candidates."""
        log_det, variance = _eliminate(matrix, prior, table)
        log_prior = jnp.log(prior)
        # What depends on the size of the set alone is computed once per size: log-gammas are expensive.
        size = jnp.arange(int(table.sizes.max()) + 1, dtype=matrix.dtype)
        before = (self.extra_degrees + size + 1) / 2
        after = before + count / 2
        by_size = jax.lax.lgamma(after) - jax.lax.lgamma(before) + before * log_prior[-1]
        constant = 0.5 * jnp.log(self.mean_weight / (self.mean_weight + count)) - 0.5 * count * math.log(
            math.pi
        )
        members = jnp.asarray(table.members, matrix.dtype)
        held = jnp.matmul(members, log_prior[:-1], precision="highest")
        spread = after[table.sizes] * jnp.log(variance)
        return (constant + by_size)[table.sizes] + 0.5 * (held - log_det) - spread


def node_matrices(
    data: Dataset, about: Float[Array, " d"], prior: Float[Array, " d"], mean_weight: float
) -> tuple[Float[Array, " d"], Float[Array, "d d d"]]:
    """For each node, how many rows are kept for it, and the matrix R of those rows."""
    # Centring all rows first loses no digits to a far mean; the mean of a node's own rows is near 0 then.
    middle, _ = moments(data.values, data.rows)
    centred = jnp.where(data.rows[:, None], data.values - middle, 0.0)
    keep = (data.rows[:, None] & ~data.intervened).astype(centred.dtype)
    kept = jnp.sum(keep, 0)
    shift = jnp.matmul(keep.T, centred, precision="highest") / jnp.maximum(kept, 1.0)[:, None]
    squares = jnp.einsum("nv,ni,nj->vij", keep, centred, centred, precision="highest")
    scatter = squares - kept[:, None, None] * shift[:, :, None] * shift[:, None, :]
    away = shift + (middle - about)
    pull = (kept * mean_weight / (kept + mean_weight))[:, None, None]
    return kept, jnp.diag(prior) + scatter + pull * away[:, :, None] * away[:, None, :]


def _eliminate(
    matrix: Float[Array, "m m"], least: Float[Array, " m"], table: SetTable
) -> tuple[Float[Array, " sets"], Float[Array, " sets"]]:
    """For each set of the first places: log det of its block, and the last place's variance given the set.

    Place after place is either left out of all sets found so far or eliminated from them, by one step of Gauss:
    what remains shrinks as the sets double. No variance can fall below the prior's share `least`, whatever
    rounding does.
    """
    blocks = matrix[:, :, None]
    log_det = jnp.zeros(1, matrix.dtype)
    sizes = np.zeros(1, int)
    for place in range(table.candidates):
        room = np.flatnonzero(sizes < table.sizes.max())
        chosen = blocks if len(room) == len(sizes) else blocks[:, :, room]
        pivot = jnp.maximum(chosen[0, 0], least[place])
        along = chosen[0, 1:]
        eliminated = chosen[1:, 1:] - along[:, None] * (along / pivot)[None, :]
        blocks = jnp.concatenate([blocks[1:, 1:], eliminated], 2)
        log_det = jnp.concatenate([log_det, log_det[room] + jnp.log(pivot)])
        sizes = np.concatenate([sizes, sizes[room] + 1])
    return log_det, jnp.maximum(blocks[0, 0], least[-1])


def moments(
    values: Float[Array, "n d"], rows: Bool[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and variance of each variable over the real rows; variance 1 where nothing varies."""
    count = jnp.maximum(jnp.sum(rows), 1).astype(values.dtype)
    mean = jnp.sum(jnp.where(rows[:, None], values, 0.0), 0) / count
    variance = jnp.sum(jnp.where(rows[:, None], (values - mean) ** 2, 0.0), 0) / count
    return mean, jnp.where(variance > 0, variance, 1.0)

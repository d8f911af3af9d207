"""Scores of smooth mechanisms: the marginal likelihood of a Gaussian process, and its mixture with the linear score."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from acbo._limits import require_above, require_at_least, require_one_of
from jaxworlds.static import config

from ..data import Dataset
from .bge import AbstractScore, BGe, moments
from .parent_sets import Candidates, SetTable


@config
class GaussianProcess(AbstractScore):
    """log p(node | parents) with the function and the noise variance integrated out.

    Every variable is standardized. Given noise variance σ², the node's values have covariance σ² K,

        K = I + 1 + s (x·x' / m + exp(−|x − x'|² / (2 m ℓ²)))        (x, x': the m parents in two rows)

    that is noise, a constant, and a linear plus a smooth function of signal-to-noise ratio s and length ℓ; σ²
    is inverse-gamma(`shape`, `rate`), which leaves a closed form. What remains is a small grid of (ℓ, s): its
    mean (`combine="mean"`, equal weights) or its best (`"max"`, as in empirical Bayes).

    Cost: one n × n Cholesky factor per node, parent set and grid point, 130 × 10 × 6 of them at 10 variables
    and 3 parents. With `features=f` the smooth part is f random cosines instead, which pays where n is well
    above f: a factor of f × f, and n f² for its entries.
    """

    usual_parents: ClassVar[int] = 3
    screening_sets: ClassVar[int] = 300
    lengths: tuple[float, ...] = (0.7, 2.0)
    signals: tuple[float, ...] = (1.0, 10.0, 100.0)
    combine: str = "mean"
    shape: float = 1.0
    rate: float = 0.2
    features: int | None = None
    chunk: int = 64
    """Parent sets that are factorized at once: memory for speed."""

    def __post_init__(self) -> None:
        for name in ("lengths", "signals"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                raise ValueError(f"`{name}` must be numbers above 0, at least one; got {values}.")
        require_one_of("combine", self.combine, "mean", "max")
        if self.features is not None:
            require_at_least("features", self.features, 1, "Pass None for the exact kernel.")
        require_above("shape", self.shape, 0)
        require_above("rate", self.rate, 0)

    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        mean, variance = moments(data.values, data.rows)
        values = jnp.where(data.rows[:, None], (data.values - mean) / jnp.sqrt(variance), 0.0)
        keep = data.rows[:, None] & ~data.intervened
        nodes, sets = candidates.index.shape[0], len(table.sizes)
        members = jnp.asarray(table.members)

        def one(pair: Int[Array, ""]) -> Float[Array, ""]:
            node, row = pair // sets, pair % sets
            inputs = jnp.where(members[row], values[:, candidates.index[node]], 0.0)
            return self.log_marginal(inputs, members[row], values[:, node], keep[:, node])

        return jax.lax.map(one, jnp.arange(nodes * sets), batch_size=self.chunk).reshape(nodes, sets)

    def log_marginal(
        self,
        inputs: Float[Array, "n c"],
        members: Bool[Array, " c"],
        output: Float[Array, " n"],
        keep: Bool[Array, " n"],
    ) -> Float[Array, ""]:
        """log p(output of the kept rows | inputs) of standardized variables; columns of no members hold 0."""
        rows = keep.astype(inputs.dtype)
        count = jnp.sum(rows)
        parents = jnp.sum(members).astype(inputs.dtype)
        scaled = inputs / jnp.sqrt(jnp.maximum(parents, 1.0))
        some = (parents > 0).astype(inputs.dtype)
        terms = self._kernels if self.features is None else self._features
        log_det, square = terms(scaled, rows, output * rows, some)
        shape = self.shape + count / 2
        log = (
            jax.lax.lgamma(shape)
            - math.lgamma(self.shape)
            + self.shape * math.log(self.rate)
            - 0.5 * count * math.log(2 * math.pi)
            - 0.5 * log_det
            - shape * jnp.log(self.rate + 0.5 * square)
        )
        if self.combine == "max":
            return jnp.max(log)
        return jax.nn.logsumexp(log) - math.log(log.size)

    def _kernels(
        self, x: Float[Array, "n c"], rows: Float[Array, " n"], y: Float[Array, " n"], some: Float[Array, ""]
    ) -> tuple[Float[Array, " grid"], Float[Array, " grid"]]:
        """log det K and yᵀ K⁻¹ y at every grid point, by Cholesky factors of K."""
        inner = jnp.matmul(x, x.T, precision="highest")
        norm = jnp.diagonal(inner)
        distance = jnp.maximum(norm[:, None] + norm[None, :] - 2 * inner, 0.0)
        smooth = jnp.exp(-distance / (2 * jnp.asarray(self.lengths, x.dtype)[:, None, None] ** 2))
        signals = jnp.asarray(self.signals, x.dtype)[None, :, None, None]
        kernel = 1 + some * signals * (inner + smooth)[:, None]
        # A dropped row becomes pure unit noise with value 0, which adds nothing to either result.
        kernel = kernel * (rows[:, None] * rows[None, :]) + jnp.eye(len(rows), dtype=x.dtype)
        return _quadratic(kernel.reshape(-1, *kernel.shape[-2:]), y)

    def _features(
        self, x: Float[Array, "n c"], rows: Float[Array, " n"], y: Float[Array, " n"], some: Float[Array, ""]
    ) -> tuple[Float[Array, " grid"], Float[Array, " grid"]]:
        """The same from K = I + Φ Φᵀ, by Cholesky factors of I + Φᵀ Φ."""
        assert self.features is not None
        waves, phases = _waves(x.shape[1], self.features)
        angles = jnp.matmul(x, jnp.asarray(waves, x.dtype), precision="highest")
        angles = angles / jnp.asarray(self.lengths, x.dtype)[:, None, None] + jnp.asarray(phases, x.dtype)
        smooth = math.sqrt(2 / self.features) * jnp.cos(angles)
        lengths = len(self.lengths)
        constant = jnp.ones((lengths, len(rows), 1), x.dtype)
        linear = jnp.broadcast_to(x, (lengths, *x.shape))
        columns = jnp.concatenate([constant, linear, smooth], -1) * rows[:, None]
        gram = jnp.einsum("lni,lnj->lij", columns, columns, precision="highest")
        against = jnp.einsum("lni,n->li", columns, y, precision="highest")
        signal = jnp.sqrt(some * jnp.asarray(self.signals, x.dtype))[:, None]
        weight = jnp.concatenate([jnp.ones_like(signal), jnp.repeat(signal, gram.shape[-1] - 1, 1)], 1)
        gram = gram[:, None] * weight[:, :, None] * weight[:, None, :]
        against = (against[:, None] * weight).reshape(-1, gram.shape[-1])
        gram = gram.reshape(-1, *gram.shape[-2:]) + jnp.eye(gram.shape[-1], dtype=x.dtype)
        log_det, explained = _quadratic(gram, against)
        return log_det, jnp.maximum(jnp.sum(y**2) - explained, 0.0)


def _quadratic(
    matrices: Float[Array, "grid m m"], vectors: Float[Array, "*grid m"]
) -> tuple[Float[Array, " grid"], Float[Array, " grid"]]:
    """log det and vᵀ M⁻¹ v of symmetric positive matrices."""
    factors = jnp.linalg.cholesky(matrices)
    vectors = jnp.broadcast_to(vectors, matrices.shape[:-1])
    solved = jax.lax.linalg.triangular_solve(factors, vectors[..., None], left_side=True, lower=True)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)), -1)
    return log_det, jnp.sum(solved[..., 0] ** 2, -1)


@functools.lru_cache(maxsize=16)
def _waves(inputs: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies and phases of the random cosines: always the same, so scores are comparable."""
    generator = np.random.default_rng(0)
    return generator.standard_normal((inputs, features)), generator.uniform(0, 2 * np.pi, features)


@config
class LinearOrSmooth(AbstractScore):
    """log p(node | parents), where the mechanism is linear or smooth with equal probability beforehand.

        p(node | parents) = ½ p(node | parents, linear) + ½ p(node | parents, smooth)

    Both are densities of the values in the data's units, so that they can be added: `BGe(scale="data")` is one already,
    `GaussianProcess` is about standardized variables and is divided by the deviation once for each row. A straight node
    is judged about as well as by the linear score, a bent one as well as by the smooth one.
    """

    usual_parents: ClassVar[int] = 3
    screening_sets: ClassVar[int] = 300
    linear: BGe = dataclasses.field(default_factory=lambda: BGe(scale="data"))
    smooth: GaussianProcess = dataclasses.field(default_factory=GaussianProcess)

    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        _, variance = moments(data.values, data.rows)
        kept = jnp.sum(data.rows[:, None] & ~data.intervened, 0)
        units = 0.5 * kept * jnp.log(variance)
        straight = self.linear.log_scores(data, candidates, table)
        bent = self.smooth.log_scores(data, candidates, table) - units[:, None]
        return jnp.logaddexp(straight, bent) - math.log(2)


def score_named(score: str | AbstractScore) -> AbstractScore:
    """A score from its name, `"bge"` or `"gp"`, or itself."""
    if isinstance(score, AbstractScore):
        return score
    named = {"bge": BGe, "gp": GaussianProcess}
    if score not in named:
        raise ValueError(
            f"`score` must be 'bge', 'gp' or an AbstractScore; got {score!r}. Use 'bge' for linear models."
        )
    return named[score]()

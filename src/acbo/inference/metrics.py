"""Quality of predicted edges: ranking, decisions, distance, calibration; masked, for padded models.

Every function takes arrays of one shape, `[d, d]` for edges, and a mask of the entries that count.
`edge_mask(live)` gives the mask of a model: all pairs of different live variables. `vmap` for many models.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._limits import require_at_least

Mask = Bool[Array, "*shape"]
_Scores = Float[Array, "*shape"] | Bool[Array, "*shape"]
"""Probabilities or other scores; decisions are 0 and 1."""


def edge_mask(live: Bool[Array, " d"]) -> Bool[Array, "d d"]:
    """Pairs of two different live variables."""
    return live[:, None] & live[None, :] & ~jnp.eye(live.shape[0], dtype=bool)


def auroc(scores: _Scores, truth: Bool[Array, "*shape"], mask: Mask | None = None) -> Float[Array, ""]:
    """Probability that a true entry scores above a false one, a tie counting half; NaN without one of both."""
    scores, truth, mask = _flat(scores, truth, mask)
    positive, negative = truth & mask, ~truth & mask
    # Ranks among the negatives: those left out are sorted to the end, where no score reaches.
    ordered = jnp.sort(jnp.where(negative, scores, jnp.inf))
    count = jnp.sum(negative)
    below = jnp.searchsorted(ordered, scores, side="left")
    upto = jnp.minimum(jnp.searchsorted(ordered, scores, side="right"), count)
    wins = jnp.sum(jnp.where(positive, (below + upto).astype(scores.dtype) / 2, 0.0))
    return wins / (jnp.sum(positive) * count).astype(scores.dtype)


def f1(
    scores: _Scores,
    truth: Bool[Array, "*shape"],
    mask: Mask | None = None,
    *,
    threshold: float = 0.5,
) -> Float[Array, ""]:
    """Harmonic mean of precision and recall of the entries above `threshold`; 1 when there is nothing to find or found."""
    scores, truth, mask = _flat(scores, truth, mask)
    said = (scores > threshold) & mask
    truth = truth & mask
    hits = jnp.sum(said & truth).astype(scores.dtype)
    both = (jnp.sum(said) + jnp.sum(truth)).astype(scores.dtype)
    return jnp.where(both > 0, 2 * hits / jnp.maximum(both, 1.0), 1.0)


def structural_hamming_distance(
    predicted: Shaped[Array, "d d"], truth: Shaped[Array, "d d"], mask: Bool[Array, "d d"] | None = None
) -> Int[Array, ""]:
    """Structural Hamming distance: each extra, missing or reversed edge counts 1.

    Edges are booleans; probabilities are refused.
    """
    for argument, edges in (("predicted", predicted), ("truth", truth)):
        if jnp.issubdtype(edges.dtype, jnp.floating):
            raise TypeError(
                f"`{argument}` must be edges as booleans; got {edges.dtype}. Write `probabilities > 0.5`, or `weights != 0`."
            )
    differ = predicted != truth
    if mask is not None:
        differ = differ & mask
    return jnp.sum(jnp.triu(differ | differ.T, 1))


def expected_calibration_error(
    probabilities: _Scores,
    truth: Bool[Array, "*shape"] | Float[Array, "*shape"],
    mask: Mask | None = None,
    *,
    bins: int = 10,
) -> Float[Array, ""]:
    """Expected calibration error, over bins of equal width weighted by their entries.

    The truth may also be given as probabilities, such as those of an exact posterior.
    """
    require_at_least("bins", bins, 1)
    said, truth, mask = _flat(probabilities, truth, mask)
    bin_of = jnp.clip(jnp.floor(said * bins).astype(jnp.int32), 0, bins - 1)
    within = (bin_of[None, :] == jnp.arange(bins)[:, None]) & mask
    gap = jnp.where(within, said - truth.astype(said.dtype), 0.0)
    return jnp.sum(jnp.abs(jnp.sum(gap, 1))) / jnp.maximum(jnp.sum(mask), 1).astype(said.dtype)


def brier(probabilities: _Scores, truth: Bool[Array, "*shape"], mask: Mask | None = None) -> Float[Array, ""]:
    """Mean squared distance between probabilities and truth."""
    said, truth, mask = _flat(probabilities, truth, mask)
    squares = jnp.where(mask, (said - truth.astype(said.dtype)) ** 2, 0.0)
    return jnp.sum(squares) / jnp.maximum(jnp.sum(mask), 1).astype(said.dtype)


def total_variation(
    p: Float[Array, "*shape"], q: Float[Array, "*shape"], mask: Mask | None = None
) -> Float[Array, ""]:
    """Half the sum of absolute differences: 0 for equal distributions, 1 for those that share nothing."""
    gap = jnp.abs(p - q)
    return 0.5 * jnp.sum(gap if mask is None else jnp.where(mask, gap, 0.0))


def _flat(
    scores: _Scores,
    truth: Bool[Array, "*shape"] | Float[Array, "*shape"],
    mask: Mask | None,
) -> tuple[Float[Array, " n"], Bool[Array, " n"] | Float[Array, " n"], Bool[Array, " n"]]:
    everywhere = jnp.ones(scores.shape, bool) if mask is None else mask
    said = scores if jnp.issubdtype(scores.dtype, jnp.floating) else scores.astype(jnp.result_type(float))
    return said.reshape(-1), truth.reshape(-1), everywhere.reshape(-1)

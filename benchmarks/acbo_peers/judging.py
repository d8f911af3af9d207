"""Figures of edge probabilities and of graphs against the truth, for many models at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from acbo.inference.metrics import auroc, expected_calibration_error, f1, structural_hamming_distance


def judge(
    edges: Float[Array, "models d d"], truth: Bool[Array, "models d d"], possible: Bool[Array, "models d d"]
) -> dict[str, float]:
    """Ranking over all pairs together and per model; decisions at a half; calibration."""
    found, each = _judge(jnp.asarray(edges, jnp.float32), jnp.asarray(truth), jnp.asarray(possible))
    ranked = np.asarray(each)[np.isfinite(each)]  # a model without edges ranks none
    spread = float(ranked.std(ddof=1) / np.sqrt(len(ranked))) if len(ranked) > 1 else 0.0
    return {
        "AUROC": float(found["auroc"]),
        "AUROC per model": float(ranked.mean()),
        "s.e.": spread,
        **{name: float(found[name]) for name in ("F1", "skeleton F1", "SHD", "ECE")},
    }


@jax.jit
def _judge(edges: Any, truth: Any, possible: Any) -> tuple[dict[str, Any], Any]:
    joined, really = edges + edges.mT, truth | truth.mT
    return {
        "auroc": auroc(edges, truth, possible),
        "F1": jax.vmap(f1)(edges, truth, possible).mean(),
        "skeleton F1": jax.vmap(f1)(joined, really, possible).mean(),
        "SHD": jax.vmap(structural_hamming_distance)(edges > 0.5, truth, possible).mean(),
        "ECE": expected_calibration_error(edges, truth, possible),
    }, jax.vmap(auroc)(edges, truth, possible)


def judge_classes(edges: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Of equivalence classes, whose edges without direction are a half both ways: half a hit in F1, an error in SHD."""
    truth = np.asarray(truth, float)
    joined, really = edges + edges.mT > 0, truth + truth.mT > 0
    wrong = (edges != truth) | (edges != truth).mT
    return {
        "F1": float(np.mean(2 * (edges * truth).sum((1, 2)) / (edges.sum((1, 2)) + truth.sum((1, 2))))),
        "skeleton F1": float(
            np.mean(
                2 * (joined & really).sum((1, 2)) / np.maximum(joined.sum((1, 2)) + really.sum((1, 2)), 1)
            )
        ),
        "SHD": float(wrong.sum((1, 2)).mean() / 2),
    }


def each_auroc(edges: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The AUROC of every model, over pairs of different variables."""
    possible = np.broadcast_to(~np.eye(truth.shape[-1], dtype=bool), truth.shape)
    return np.asarray(
        jax.vmap(auroc)(jnp.asarray(edges, jnp.float32), jnp.asarray(truth), jnp.asarray(possible))
    )

"""Distance of a network from its expert on a batch of examples."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from acbo.inference.metrics import expected_calibration_error
from acbo.surrogate.network import Network
from jaxworlds.measuring import time_call

from .batches import TrainingBatchJAX, convert_to_jax_batch
from .examples import DIFFICULTIES, TrainingBatch, ValidationResults
from .losses import EPSILON, entropy, kl_divergence_loss_jax
from .train_steps import predicted_set_logits


def validate_surrogate(
    params: Network,
    batch: TrainingBatch | TrainingBatchJAX,
    difficulties: Sequence[str] | None = None,
    *,
    expert_seconds: float | None = None,
) -> ValidationResults:
    """Compare the network's parent-set posteriors with the expert's, over all examples of a batch.

    - `difficulties`: of each example; by default what the examples of a `TrainingBatch` say.
    - `expert_seconds`: how long the expert took for the whole batch, for `inference_speedup`.
    """
    if difficulties is None and isinstance(batch, TrainingBatch):
        difficulties = [example.problem_difficulty for example in batch.examples]
    arrays = convert_to_jax_batch(batch)
    _compare(params, arrays)  # compiled here, so that the call below is timed without it
    found, seconds = time_call(_compare, params, arrays)
    fetched = {name: np.asarray(value) for name, value in found.items()}
    same = fetched.pop("same")
    kinds = np.array(difficulties if difficulties is not None else ["medium"] * len(same))
    by_kind = {
        kind: float(same[kinds == kind].mean()) if (kinds == kind).any() else np.nan for kind in DIFFICULTIES
    }
    return ValidationResults(
        posterior_kl=float(fetched["posterior_kl"].mean()),
        reverse_kl=float(fetched["reverse_kl"].mean()),
        total_variation=float(fetched["total_variation"].mean()),
        calibration_error=float(
            expected_calibration_error(found["predicted"], found["believed"], found["possible"])
        ),
        uncertainty_correlation=_correlation(fetched["predicted_entropy"], fetched["expert_entropy"]),
        accuracy_drop=float(1 - same.mean()),
        inference_speedup=np.nan if expert_seconds is None else expert_seconds / seconds,
        easy_accuracy=by_kind["easy"],
        medium_accuracy=by_kind["medium"],
        hard_accuracy=by_kind["hard"],
    )


@jax.jit
def _compare(params: Network, batch: TrainingBatchJAX) -> dict[str, Any]:
    """Figures of each example."""
    logits = predicted_set_logits(params, batch)
    predicted, expert = jax.nn.softmax(logits), batch.expert_probs

    def reverse(logits: Float[Array, " k"], expert: Float[Array, " k"]) -> Float[Array, ""]:
        log_predicted = jax.nn.log_softmax(logits)
        gap = log_predicted - jnp.log(jnp.maximum(expert, EPSILON))
        return jnp.where(expert > EPSILON, jnp.exp(log_predicted) * gap, 0.0).sum()

    members = batch.parent_mask.astype(jnp.float32)
    others = jnp.arange(batch.var_mask.shape[1]) != batch.target_idx[:, None]
    return {
        "posterior_kl": jax.vmap(kl_divergence_loss_jax)(logits, expert),
        "reverse_kl": jax.vmap(reverse)(logits, expert),
        "total_variation": 0.5 * jnp.abs(predicted - expert).sum(-1),
        "predicted": jnp.einsum("bk,bkd->bd", predicted, members),
        "believed": batch.marginals,
        "possible": batch.var_mask & others,
        "predicted_entropy": jax.vmap(entropy)(predicted),
        "expert_entropy": jax.vmap(entropy)(expert),
        "same": predicted.argmax(-1) == expert.argmax(-1),
    }


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation; NaN where one does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])

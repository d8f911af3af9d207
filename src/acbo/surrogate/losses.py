"""The losses of surrogate training: cross entropy of edges, and the probability of the true parent sets."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from acbo.inference.metrics import edge_mask

from .network import Prediction


def edge_loss(
    edge_logits: Float[Array, "d d"],
    labels: Float[Array, "d d"] | Bool[Array, "d d"],
    live: Bool[Array, " d"],
) -> Float[Array, ""]:
    """Mean cross entropy of the edges among live variables to `labels`: a teacher's probabilities, or the truth.

    Minimised over many models, the sigmoid of the logits is the posterior probability of each edge.
    """
    possible = edge_mask(live)
    logits = jnp.where(possible, edge_logits, 0.0)
    each = jax.nn.softplus(logits) - labels.astype(logits.dtype) * logits
    return jnp.where(possible, each, 0.0).sum() / jnp.maximum(possible.sum(), 1)


def parent_set_loss(
    prediction: Prediction, adjacency: Bool[Array, "d d"], max_size: int = 3
) -> Float[Array, ""]:
    """Mean over live variables of −log P(true parents), per possible parent, among sets of at most `max_size` members.

    Variables with more parents than that are left out.
    """
    d = adjacency.shape[0]
    live = prediction.live

    def of_target(target: Int[Array, ""]) -> Float[Array, ""]:
        logits = prediction.parent_set_logits(max_size=max_size, target=target)
        truth = prediction.parent_set_logits(adjacency[:, target][None], target=target)
        return jax.nn.logsumexp(logits) - truth[0]

    each = jax.vmap(of_target)(jnp.arange(d))
    counted = live & (adjacency.sum(0) <= max_size)
    mean = jnp.where(counted, each, 0.0).sum() / jnp.maximum(counted.sum(), 1)
    return mean / jnp.maximum(live.sum() - 1, 1)

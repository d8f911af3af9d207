"""The losses of surrogate training: of parent sets as the guide names them, and of edges."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

EPSILON = 1e-12
"""Probabilities of the teacher up to this count as zero."""


def kl_divergence_loss_jax(
    predicted_logits: Float[Array, " k"],
    expert_probs: Float[Array, " k"],
    parent_sets: Any = None,
    temperature: Any = 1.0,
) -> Float[Array, ""]:
    """KL(expert ‖ softmax(logits / temperature)) over the listed parent sets, in nats.

    Sets to which the expert gives nothing count nothing, so the loss is finite for certainties too. `parent_sets`
    says which sets the entries stand for and changes no number. Batch it with
    `jax.vmap(kl_divergence_loss_jax, in_axes=(0, 0, None))`.
    """
    believed = expert_probs > EPSILON
    # The inner `where` keeps the logarithm of zero out of the gradient.
    log_expert = jnp.log(jnp.where(believed, expert_probs, 1.0))
    log_predicted = jax.nn.log_softmax(predicted_logits / temperature)
    return jnp.where(believed, expert_probs * (log_expert - log_predicted), 0.0).sum()


def uncertainty_weighted_loss_jax(
    predicted_logits: Float[Array, " k"],
    expert_probs: Float[Array, " k"],
    parent_sets: Any = None,
    temperature: Any = 1.0,
    weight_scale: Any = 1.0,
) -> Float[Array, ""]:
    """The KL times exp(−H(expert) · weight_scale): an expert in doubt counts less."""
    weight = jnp.exp(-entropy(expert_probs) * weight_scale)
    return weight * kl_divergence_loss_jax(predicted_logits, expert_probs, parent_sets, temperature)


def entropy(probabilities: Float[Array, " k"]) -> Float[Array, ""]:
    """Entropy in nats; zeros count nothing."""
    real = probabilities > EPSILON
    return -jnp.where(real, probabilities * jnp.log(jnp.where(real, probabilities, 1.0)), 0.0).sum()


def expert_probabilities(expert: Any, parent_sets: Iterable[Iterable[Any]] | None) -> Float[Array, " k"]:
    """The expert's probabilities of the listed sets: an array as it is, or a posterior as `{frozenset: probability}`.

    An object with such a mapping in `parent_set_probs` serves too. A mapping is conditioned on the listed sets: their
    probabilities are made to sum to one, since a posterior is often cut to its likeliest sets.
    """
    if isinstance(expert, jax.Array | np.ndarray):
        return jnp.asarray(expert)
    table = getattr(expert, "parent_set_probs", expert)
    if not isinstance(table, Mapping) or parent_sets is None:
        raise TypeError(
            "`expert_posterior` must be an array of probabilities, or a mapping from frozensets to probabilities "
            f"together with `parent_sets`; got {type(expert).__name__}."
        )
    found = {frozenset(members): float(probability) for members, probability in table.items()}
    listed = np.array([found.get(frozenset(members), 0.0) for members in parent_sets], np.float32)
    if not listed.sum() > 0:
        raise ValueError(
            "`expert_posterior` gives no probability to any of `parent_sets`. Check that both use the same names."
        )
    return jnp.asarray(listed / listed.sum())


def kl_divergence_loss(
    predicted_logits: Float[Array, " k"],
    expert_posterior: Any,
    parent_sets: Any = None,
    temperature: Any = 1.0,
) -> Float[Array, ""]:
    """`kl_divergence_loss_jax` for an expert given as an object, see `expert_probabilities`; arrays serve too."""
    probabilities = expert_probabilities(expert_posterior, parent_sets)
    return kl_divergence_loss_jax(predicted_logits, probabilities, parent_sets, temperature)


def uncertainty_weighted_loss(
    predicted_logits: Float[Array, " k"],
    expert_posterior: Any,
    parent_sets: Any = None,
    temperature: Any = 1.0,
    weight_scale: Any = 1.0,
) -> Float[Array, ""]:
    """`uncertainty_weighted_loss_jax` for an expert given as an object, see `expert_probabilities`; arrays serve too."""
    probabilities = expert_probabilities(expert_posterior, parent_sets)
    return uncertainty_weighted_loss_jax(
        predicted_logits, probabilities, parent_sets, temperature, weight_scale
    )


def calibrated_loss(
    predicted_logits: Float[Array, " k"],
    expert_posterior: Any,
    parent_sets: Any = None,
    temperature: Any = 1.0,
    calibration_weight: Any = 0.1,
) -> Float[Array, ""]:
    """KL + calibration_weight · (H − error)²: the network should be as unsure as it is wrong.

    H is the entropy of the prediction in nats, the error its total variation distance from the expert.
    """
    probabilities = expert_probabilities(expert_posterior, parent_sets)
    divergence = kl_divergence_loss_jax(predicted_logits, probabilities, parent_sets, temperature)
    predicted = jax.nn.softmax(predicted_logits / temperature)
    # |0| has no slope; where both agree the error needs none.
    error = 0.5 * jnp.abs(predicted - probabilities).sum()
    return divergence + calibration_weight * jnp.square(entropy(predicted) - error)


def multi_target_loss(
    predicted_logits: Mapping[Any, Any] | Sequence[Any],
    expert_posteriors: Mapping[Any, Any] | Sequence[Any],
    parent_sets: Mapping[Any, Any] | Sequence[Any],
    target_weights: Mapping[Any, Any] | Sequence[Any] | None = None,
    temperature: Any = 1.0,
) -> Float[Array, ""]:
    """Weighted mean of the KL over several targets, given as mappings by target or as sequences in one order."""
    given = (predicted_logits, expert_posteriors, parent_sets)
    if isinstance(predicted_logits, Mapping):
        targets = list(predicted_logits)
        picked = [[part[target] for target in targets] for part in given]
        weights: Any = None if target_weights is None else [target_weights[target] for target in targets]
    else:
        picked, weights = [list(part) for part in given], target_weights
    sizes = {len(part) for part in picked}
    if sizes in (set(), {0}) or len(sizes) > 1:
        raise ValueError(
            "`predicted_logits`, `expert_posteriors` and `parent_sets` must have one entry per target, at least one; "
            f"got {[len(part) for part in picked]}."
        )
    each = jnp.stack([kl_divergence_loss(*one, temperature=temperature) for one in zip(*picked, strict=True)])
    share = jnp.ones(len(each)) if weights is None else jnp.asarray(weights, jnp.float32)
    return (share * each).sum() / share.sum()

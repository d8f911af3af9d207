"""Rewards: pure functions of a transition, and their weighted sum."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from .config import RewardConfig


class Transition(eqx.Module):
    """One step of one environment, as rewards see it.

    Both similarities are those of the pair that the step began at. A control operation gives up what was gained there:
    after it, `similarity_after` is that of the pair's input. Both are 0 on test pairs, where they would tell the answer,
    on pairs of another mode than the episode's, and on pairs that are solved already.

    `submitted` marks a valid submission, `success` one that ended the episode with success. `solved` says that the grid
    is the answer; where the similarities are 0, only of a submission.
    """

    operation: Int32[Array, ""]
    valid: Bool[Array, ""]
    similarity_before: Float32[Array, ""]
    similarity_after: Float32[Array, ""]
    submitted: Bool[Array, ""]
    solved: Bool[Array, ""]
    success: Bool[Array, ""]
    truncated: Bool[Array, ""]
    episode_mode: Int32[Array, ""]
    step_count: Int32[Array, ""]


Term = Callable[[Transition], Float32[Array, ""]]


def similarity_gain(transition: Transition) -> Float32[Array, ""]:
    """How much nearer to the target the step came: similarity after − before, in [−1, 1].

    It is the change of a number that the state alone decides: what was gained on the current pair since its input, and
    on the pairs that are solved. So actions that lead back to the same state earn 0 in sum. On demonstration pairs only:
    on a test pair it would tell the agent about the answer, so there it is 0.
    """
    return transition.similarity_after - transition.similarity_before


def sparse_success(transition: Transition) -> Float32[Array, ""]:
    """1 for the submission that solves the episode, else 0."""
    return transition.success.astype(jnp.float32)


def step_cost(transition: Transition) -> Float32[Array, ""]:
    """1 for every step."""
    return jnp.ones_like(transition.similarity_after)


def wrong_submission(transition: Transition) -> Float32[Array, ""]:
    """1 for a submission that is not the answer, else 0."""
    return (transition.submitted & ~transition.solved).astype(jnp.float32)


def weighted_sum(*terms: tuple[Term, float]) -> Term:
    """The sum of terms, each times its weight: `weighted_sum((sparse_success, 1.0), (step_cost, -0.01))`."""

    def total(transition: Transition) -> Float32[Array, ""]:
        parts = [jnp.float32(weight) * _number(term, term(transition)) for term, weight in terms]
        return jnp.stack([jnp.zeros_like(transition.similarity_after), *parts]).sum()

    return total


def _number(term: Term, value: Any) -> Float32[Array, ""]:
    """The value of a term, which must be one number."""
    if value is None or jnp.ndim(value):
        got = "None" if value is None else f"an array of shape {jnp.shape(value)}"
        raise ValueError(
            f"A reward term must give one number; {getattr(term, '__name__', term)!r} gave {got}. "
            "It sees the transition of one environment."
        )
    return jnp.asarray(value, jnp.float32)


def reward_of(config: RewardConfig) -> Term:
    """The reward that a config describes; a term with weight 0 is left out."""
    named = (
        (similarity_gain, config.similarity),
        (sparse_success, config.success),
        (step_cost, -config.step_penalty),
        (wrong_submission, -config.submission_penalty),
    )
    return weighted_sum(*((term, weight) for term, weight in (*named, *config.extra) if weight))

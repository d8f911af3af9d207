"""Bayesian optimization without a graph: for every set of variables a Gaussian process of the target over its values."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import AbstractBelief, ActionPairs, Effects, outcomes_of, pair_actions, recent
from acbo.data import Dataset, Key
from acbo.linear_algebra import whiten
from acbo.problem import Choice, Problem, Recommendation

from .actions import Actions, best_of, candidate_actions, with_tried
from .base import AbstractStrategy
from .model_based import price


class GaussianProcessEI(AbstractStrategy):
    """Expected improvement under a Gaussian process that knows no graph.

    Two experiments are alike if they set the same variables to near values: the kernel is squared exponential in the
    values, as parts of their ranges. The mean is that of the observations. Lengths and signals are weighed by the
    likelihood, from small grids.
    """

    places: int = eqx.field(static=True, default=9)
    sets: int = eqx.field(static=True, default=256)
    lengths: tuple[float, ...] = eqx.field(static=True, default=(0.2, 0.4, 0.8, 1.6))
    signals: tuple[float, ...] = eqx.field(static=True, default=(0.3, 1.0, 3.0))
    noise: float | None = eqx.field(static=True, default=None)
    """Standard deviation of the target under one experiment; that of the observations if not given."""
    memory: int = eqx.field(static=True, default=64)
    """Number of most recent experiments it uses; the cost grows with the square."""

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_actions, key_ties = jr.split(key)
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        mean, deviation = self.belief(problem, data, key).posterior(actions.mask, actions.value)
        _, best = best_of(problem.sign * mean, actions.allowed)
        gain = expected_gain(problem, mean, deviation, best) / price(problem, actions)
        return most_gaining(actions, gain, key_ties)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        actions = candidate_actions(problem, key, 2 * self.places - 1, self.sets)
        actions = with_tried(problem, data, actions, self.memory)
        mean, deviation = self.belief(problem, data, key).posterior(actions.mask, actions.value)
        best, _ = best_of(problem.sign * mean, actions.allowed)
        return Recommendation(actions.mask[best], actions.value[best], mean[best], deviation[best])

    def belief(self, problem: Problem, data: Dataset, key: Key) -> "ProcessBelief":
        """The belief about the target: the process itself."""
        return ProcessBelief(self, problem, data)


class ProcessBelief(AbstractBelief):
    """The belief of a strategy without causal models: one normal distribution for each action."""

    strategy: GaussianProcessEI
    problem: Problem
    data: Dataset

    def effects(self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]) -> Effects:
        mean, deviation = self.posterior(mask, value)
        return Effects(mean[None], deviation[None])

    def posterior(
        self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]
    ) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
        """Mean and standard deviation of the expected target under each action."""
        strategy, data = self.strategy, self.data
        y, tried, count, centre, scale = outcomes_of(data)
        noise = 1.0 if strategy.noise is None else strategy.noise / scale
        residual = jnp.where(tried, (y - centre) / scale, 0)
        mean, deviation, _ = gp_posterior(
            self.problem,
            (data.intervened, data.values, tried),
            residual,
            (mask, value),
            noise,
            jnp.asarray(strategy.lengths, y.dtype),
            jnp.asarray(strategy.signals, y.dtype),
            memory=strategy.memory,
        )
        nothing = ~mask.any(-1)
        certain = jnp.sqrt(1 / count)
        return (
            centre + scale * jnp.where(nothing, 0, mean),
            scale * jnp.where(nothing, certain, jnp.maximum(deviation, 1e-4)),
        )


def expected_gain(
    problem: Problem,
    mean: Float[Array, " actions"],
    deviation: Float[Array, " actions"],
    best: Float[Array, ""],
) -> Float[Array, " actions"]:
    """Expected improvement on the loss `best`, for normal beliefs about every action."""
    z = (best - problem.sign * mean) / deviation
    return deviation * (z * norm.cdf(z) + norm.pdf(z))


def most_gaining(actions: Actions, gain: Float[Array, " actions"], key: Key) -> Choice:
    """The experiment with the most gain; of equally promising ones a random one: at first all are."""
    gain = gain * (1 + 1e-4 * jr.uniform(key, gain.shape))
    chosen, least = best_of(-gain, actions.allowed & actions.mask.any(-1))
    return Choice(actions.mask[chosen], actions.value[chosen], ~jnp.isfinite(least), -least)


def gp_posterior(
    problem: Problem,
    tried: tuple[Bool[Array, "n d"], Float[Array, "n d"], Bool[Array, " n"]],
    residual: Float[Array, " n"],
    asked: tuple[Bool[Array, "m d"], Float[Array, "m d"]],
    noise: Float[Array, "..."] | float,
    lengths: Float[Array, " lengths"],
    signals: Float[Array, " signals"],
    shares: Sequence[float] = (0.0,),
    memory: int = 64,
    doubts: tuple[Float[Array, " n"], Float[Array, " m"]] | None = None,
) -> tuple[Float[Array, " m"], Float[Array, " m"], Float[Array, ""]]:
    """Mean, deviation and log evidence of a function of experiments with mean 0, from noisy values at those tried.

    A share of its variance is a sum of functions of single variables, the same in every set that holds them; the rest
    is each set's own. All is averaged over a grid of lengths, signal deviations and shares, weighed by the likelihood.
    `doubts` are further deviations at the tried and the asked actions; experiments reduce them like the rest.
    """
    before = jnp.zeros_like(residual) if doubts is None else doubts[0]
    (_, _, _), before = recent(tried, before, memory)
    after = jnp.zeros(asked[0].shape[0], residual.dtype) if doubts is None else doubts[1]
    (mask, value, used), residual = recent(tried, residual, memory)
    rows = used.astype(value.dtype)
    within, across = (pair_actions(problem, (mask, value), other) for other in ((mask, value), asked))
    variance = jnp.broadcast_to(jnp.asarray(noise, value.dtype) ** 2, rows.shape) + 1e-6
    signal_grid, share_grid = jnp.meshgrid(signals, jnp.asarray(shares, residual.dtype), indexing="ij")
    additive = any(share > 0 for share in shares)

    def along(length: Float[Array, ""]) -> tuple[Array, Array, Array]:
        def kernels(pair: ActionPairs) -> tuple[Array, Array]:
            each = -0.5 * pair.distance / length**2
            joint = pair.same * jnp.exp(each.sum(-1))
            if not additive or pair.both is None:
                return joint, joint
            return joint, jnp.sum(pair.both * jnp.exp(each), -1)

        near, far = kernels(within), kernels(across)

        def one(signal: Float[Array, ""], share: Float[Array, ""]) -> tuple[Array, Array, Array]:
            own, other = jnp.sqrt(signal**2 + before**2), jnp.sqrt(signal**2 + after**2)

            def kernel(parts: tuple[Array, Array], right: Array) -> Array:
                return own[:, None] * right * ((1 - share) * parts[0] + share * parts[1])

            # A row that was not tried is pure noise with value 0.
            matrix = kernel(near, own) * (rows[:, None] * rows) + jnp.diag(jnp.where(used, variance, 1))
            cross = kernel(far, other) * rows[:, None]
            white, log_det = whiten(matrix, jnp.concatenate([residual[:, None], cross], 1))
            likelihood = -0.5 * (jnp.sum(white[:, 0] ** 2) + log_det)
            mean = jnp.sum(white[:, 1:] * white[:, :1], 0)
            left = jnp.maximum(other**2 - jnp.sum(white[:, 1:] ** 2, 0), 0)
            return likelihood, mean, left

        return jax.vmap(one)(signal_grid.ravel(), share_grid.ravel())

    # One length after another: with all at once the compiled means of additive kernels were wrong (jaxlib 0.10.2, CPU).
    found = jax.lax.map(along, lengths)
    likelihood, means, lefts = (part.reshape(-1, *part.shape[2:]) for part in found)
    share = jax.nn.softmax(likelihood)
    mean = share @ means
    evidence = jax.nn.logsumexp(likelihood) - math.log(likelihood.shape[0])
    return mean, jnp.sqrt(share @ (lefts + (means - mean) ** 2) + 1e-12), evidence

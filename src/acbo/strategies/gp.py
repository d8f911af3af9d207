"""Bayesian optimization without a graph: for every set of variables a Gaussian process of the target over its values."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from acbo.data import Dataset, Key
from acbo.experiments.problem import Choice, Problem, Recommendation
from acbo.linear_algebra import solve_positive

from .actions import Actions, best_of, candidate_actions
from .believing import price
from .strategy import AbstractStrategy


class GaussianProcessEI(AbstractStrategy):
    """Expected improvement under a Gaussian process that knows no graph.

    Two experiments are alike if they set the same variables to near values: the kernel is squared exponential in the
    values, as parts of their ranges, times `shared` for each variable that only one of them sets. The mean is that of
    the observations. Lengths and signals are weighed by the likelihood, from small grids.
    """

    places: int = eqx.field(static=True, default=9)
    sets: int = eqx.field(static=True, default=256)
    shared: float = 0.0
    lengths: tuple[float, ...] = eqx.field(static=True, default=(0.2, 0.4, 0.8, 1.6))
    signals: tuple[float, ...] = eqx.field(static=True, default=(0.3, 1.0, 3.0))
    noise: float | None = eqx.field(static=True, default=None)
    """Standard deviation of the target under one experiment; that of the observations if not given."""
    memory: int = eqx.field(static=True, default=64)
    """How many experiments it looks back on, the last ones; the cost grows with the square."""

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        key_actions, key_ties = jr.split(key)
        actions = candidate_actions(problem, key_actions, self.places, self.sets)
        mean, deviation = self.posterior(problem, data, actions.mask, actions.value)
        return most_improving(problem, actions, mean, deviation, key_ties)

    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        actions = candidate_actions(problem, key, 2 * self.places - 1, self.sets)
        actions = with_tried(problem, data, actions, self.memory)
        mean, deviation = self.posterior(problem, data, actions.mask, actions.value)
        best, _ = best_of(problem.sign * mean, actions.allowed)
        return Recommendation(actions.mask[best], actions.value[best], mean[best], deviation[best])

    def posterior(
        self,
        problem: Problem,
        data: Dataset,
        mask: Bool[Array, "actions d"],
        value: Float[Array, "actions d"],
    ) -> tuple[Float[Array, " actions"], Float[Array, " actions"]]:
        """Mean and standard deviation of the expected target under each action."""
        y, tried, count, centre, scale = outcomes_of(data)
        noise = 1.0 if self.noise is None else self.noise / scale
        residual = jnp.where(tried, (y - centre) / scale, 0)
        mean, deviation = gp_posterior(
            problem,
            (data.intervened, data.values, tried),
            residual,
            (mask, value),
            noise,
            jnp.asarray(self.lengths, y.dtype),
            jnp.asarray(self.signals, y.dtype),
            self.shared,
            self.memory,
        )
        nothing = ~mask.any(-1)
        certain = jnp.sqrt(1 / count)
        return (
            centre + scale * jnp.where(nothing, 0, mean),
            scale * jnp.where(nothing, certain, jnp.maximum(deviation, 1e-4)),
        )


class Outcomes(NamedTuple):
    """The target in all rows, and what the observations among them say of it."""

    target: Float[Array, " n"]
    tried: Bool[Array, " n"]
    """Which rows are experiments."""
    observed: Float[Array, ""] | Int[Array, ""]
    """How many are observations, 1 at least."""
    centre: Float[Array, ""]
    scale: Float[Array, ""]
    """Mean and standard deviation of the observations; 0 and 1 where there are none."""


def outcomes_of(data: Dataset) -> Outcomes:
    """The target of a dataset, and the scale on which it is measured."""
    y = data.values[:, data.target]
    tried = data.intervened.any(1) & data.rows
    seen = data.rows & ~tried
    count = jnp.maximum(seen.sum(), 1)
    centre = jnp.where(seen, y, 0).sum() / count
    variance = jnp.where(seen.sum() > 1, jnp.where(seen, (y - centre) ** 2, 0).sum() / count, 1.0)
    return Outcomes(y, tried, count, centre, jnp.sqrt(jnp.maximum(variance, 1e-6)))


def most_improving(
    problem: Problem,
    actions: Actions,
    mean: Float[Array, " actions"],
    deviation: Float[Array, " actions"],
    key: Key,
) -> Choice:
    """The experiment with the most expected improvement per unit of cost, for normal beliefs about every action."""
    loss = problem.sign * mean
    _, best = best_of(loss, actions.allowed)
    z = (best - loss) / deviation
    gain = deviation * (z * norm.cdf(z) + norm.pdf(z)) / price(problem, actions)
    # Of equally promising experiments a random one: at first all are.
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
    shared: float = 0.0,
    memory: int = 64,
    doubts: tuple[Float[Array, " n"], Float[Array, " m"]] | None = None,
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Mean and deviation of a function of experiments with mean 0, from its noisy values at those that were tried.

    They are averages over a grid of lengths and signal deviations, weighed by the likelihood. `doubts` are further
    deviations, at what was tried and at what is asked: experiments settle them as they settle the rest.
    """
    before = jnp.zeros_like(residual) if doubts is None else doubts[0]
    (_, _, _), before = recent(tried, before, memory)
    after = jnp.zeros(asked[0].shape[0], residual.dtype) if doubts is None else doubts[1]
    (mask, value, used), residual = recent(tried, residual, memory)
    width = jnp.where(problem.high > problem.low, problem.high - problem.low, 1)
    rows = used.astype(value.dtype)

    def place(mask: Bool[Array, "k d"], value: Float[Array, "k d"]) -> Float[Array, "k d"]:
        return jnp.where(mask, (value - problem.low) / width, 0)

    first, second = place(mask, value), place(*asked)

    def alike(a: Array, ma: Array, b: Array, mb: Array) -> tuple[Array, Array]:
        distance = jnp.sum((a[:, None] - b[None]) ** 2, -1)
        differing = jnp.sum(ma[:, None] != mb[None], -1)
        return distance, jnp.where(differing == 0, 1.0, jnp.asarray(shared, a.dtype) ** differing)

    within, across = alike(first, mask, first, mask), alike(first, mask, *(second, asked[0]))
    variance = jnp.broadcast_to(jnp.asarray(noise, value.dtype) ** 2, rows.shape) + 1e-6

    def one(length: Float[Array, ""], signal: Float[Array, ""]) -> tuple[Array, Array, Array]:
        own, other = jnp.sqrt(signal**2 + before**2), jnp.sqrt(signal**2 + after**2)

        def kernel(pair: tuple[Array, Array], right: Array) -> Array:
            return own[:, None] * right * pair[1] * jnp.exp(-0.5 * pair[0] / length**2)

        # A row that was not tried is pure noise with value 0.
        matrix = kernel(within, own) * (rows[:, None] * rows) + jnp.diag(jnp.where(used, variance, 1))
        cross = kernel(across, other) * rows[:, None]
        solved, log_det = solve_positive(matrix, jnp.concatenate([residual[:, None], cross], 1))
        likelihood = -0.5 * (residual @ solved[:, 0] + log_det)
        mean = cross.T @ solved[:, 0]
        left = jnp.maximum(other**2 - jnp.sum(cross * solved[:, 1:], 0), 0)
        return likelihood, mean, left

    grid = jnp.meshgrid(lengths, signals, indexing="ij")
    likelihood, means, lefts = jax.vmap(one)(grid[0].ravel(), grid[1].ravel())
    share = jax.nn.softmax(likelihood)
    mean = share @ means
    return mean, jnp.sqrt(share @ (lefts + (means - mean) ** 2) + 1e-12)


def recent(
    tried: tuple[Bool[Array, "n d"], Float[Array, "n d"], Bool[Array, " n"]],
    residual: Float[Array, " n"],
    memory: int,
) -> tuple[tuple[Bool[Array, "k d"], Float[Array, "k d"], Bool[Array, " k"]], Float[Array, " k"]]:
    """The last `memory` experiments alone: observations and padding would only cost time."""
    used = tried[2]
    n = used.shape[0]
    if n <= memory:
        return tried, residual
    _, rows = jax.lax.top_k(jnp.where(used, jnp.arange(n), -1), memory)
    return (tried[0][rows], tried[1][rows], used[rows]), residual[rows]


def with_tried(problem: Problem, data: Dataset, actions: Actions, memory: int) -> Actions:
    """The candidates, and what was tried of late."""
    tried = data.intervened.any(1) & data.rows
    (mask, value, used), _ = recent((data.intervened, data.values, tried), data.values[:, 0], memory)
    mask = mask & used[:, None]
    return Actions(
        jnp.concatenate([actions.mask, mask]),
        jnp.concatenate([actions.value, jnp.where(mask, value, 0)]),
        jnp.concatenate([actions.allowed, used & jnp.all(problem.manipulable | ~mask, -1)]),
    )

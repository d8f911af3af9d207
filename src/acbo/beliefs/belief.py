"""The belief behind choices, recommendations and explanations: causal models, corrected by experiments."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float, Int, Int32

from acbo.data import Dataset, Key
from acbo.linear_algebra import solve_positive
from acbo.problem import Problem
from acbo.scms.scm import SCM

from .model_effects import effects_of, target_variance

WIDEST = 4.0
"""Deviations of the target, from its mean, within which smooth models are believed where no row lies."""
MEMORY = 64
"""Number of most recent experiments that correct the models; the cost grows with the cube."""
TEMPER = 0.4
"""Power of the likelihood by which forms of correction are weighed: below 1, because no form is quite right."""
BEYOND = 10.0
"""Deviations of the target; where an experiment gave more than these, corrections are expected to be larger in proportion."""
SHARE = 0.5
"""Share of a correction that is a sum over variables, and so the same in all sets, where several may be set."""


class Outcomes(NamedTuple):
    """The target in all rows, with its mean and scale in the observations."""

    target: Float[Array, " n"]
    tried: Bool[Array, " n"]
    """Which rows are experiments."""
    observed: Float[Array, ""] | Int[Array, ""]
    """Number of observations, at least 1."""
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


class Effects(NamedTuple):
    """E[target | do] of every action: a normal distribution for each of equally likely draws."""

    mean: Float[Array, "draws actions"]
    deviation: Float[Array, "draws actions"]

    @property
    def expected(self) -> Float[Array, " actions"]:
        """The mean over all draws."""
        return self.mean.mean(0)

    @property
    def spread(self) -> Float[Array, " actions"]:
        """The standard deviation over all draws."""
        return jnp.sqrt(self.mean.var(0) + (self.deviation**2).mean(0))

    def quantile(self, part: float) -> Float[Array, " actions"]:
        """Quantile of the belief."""
        wide = 8 * self.deviation
        low, high = (self.mean - wide).min(0), (self.mean + wide).max(0)
        deviation = jnp.maximum(self.deviation, 1e-6 * jnp.maximum(high - low, 1e-20))

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            below = ndtr((middle - self.mean) / deviation).mean(0) < part
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, 40, halve, (low, high))
        return (low + high) / 2


class AbstractBelief(eqx.Module):
    """Distribution of the expected target under every action."""

    @abc.abstractmethod
    def effects(self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]) -> Effects:
        """E[target | do] of every action; an empty mask is to do nothing."""


class _Form(NamedTuple):
    """One way in which experiments may differ from what the models say; all in units of the target's deviation."""

    prior: float
    trust: float
    """1 where the models are believed but for a correction, 0 where experiments alone count."""
    signal: float
    length: float
    """Of the correction, as a part of the range."""
    noise: float
    """Variance of a measurement: a multiple of what the models say, or, without trust, of the target's variance."""


def _forms() -> dict[str, np.ndarray]:
    """All forms, field by field. Priors were chosen by coverage and regret on random models: see the page on accuracy."""
    lengths = (0.15, 0.5)
    exact = [_Form(0.35, 1.0, 0.0, 0.5, 1.0), _Form(0.05, 1.0, 0.0, 0.5, 3.0)]
    corrected = [
        _Form(prior, 1.0, signal, length, noise)
        for signal, prior in ((0.25, 0.04), (0.7, 0.06), (2.0, 0.03))
        for length in lengths
        for noise in (1.0, 5.0)
    ]
    free = [
        _Form(0.02, 0.0, signal, length, noise)
        for signal in (0.7, 2.5)
        for length in lengths
        for noise in (0.1, 0.3, 1.0, 4.0, 12.0)
    ]
    fields = map(np.array, zip(*exact, *corrected, *free, strict=True))
    return dict(zip(_Form._fields, fields, strict=True))


class Belief(AbstractBelief):
    """Draws of causal models, each with one form of correction by the experiments, drawn by how well it explains them.

    Under a draw with trust the expected target of an action is the model's plus a Gaussian process over the values that
    are set, given what the experiments gave beyond the model. Without trust it is the mean of the observations plus such
    a process: then experiments alone count. Doing nothing is one of the experiments, repeated in every observation. So
    experiments outweigh observations where the two contradict each other, and models are believed where they do not.
    """

    models: SCM
    problem: Problem
    tried: tuple[Bool[Array, "n d"], Float[Array, "n d"], Bool[Array, " n"]]
    """Masks, values and validity of the experiments; the first is to do nothing."""
    inverse: Float[Array, "forms n n"]
    """Of the covariance of all tried, for each form."""
    weight: Float[Array, "draws n"]
    """Weight of each experiment in the correction of each draw."""
    form: Int32[Array, " draws"]
    outcomes: Outcomes
    reach: Float[Array, ""]
    """By how much corrections are larger than the forms say: 1 unless an experiment lies far beyond the observations."""

    def effects(self, mask: Bool[Array, "actions d"], value: Float[Array, "actions d"]) -> Effects:
        forms = _forms()
        dtype = self.weight.dtype
        pairs = pair_actions(self.problem, (mask, value), self.tried[:2])
        signal = jnp.asarray(forms["signal"], dtype) * self.reach
        cross = pairs.kernels(forms["length"]) * self.tried[2] * (signal**2)[:, None, None]
        left = signal[:, None] ** 2 - jnp.einsum(
            "fan,fnm,fam->fa", cross, self.inverse, cross, precision="highest"
        )
        shift = jnp.einsum("fan,dn->fda", cross, self.weight, precision="highest")
        shift = shift[self.form, jnp.arange(self.form.shape[0])]
        deviation = jnp.sqrt(jnp.maximum(left, 0))[self.form]
        base = _prior_mean(
            self.models, self.outcomes, mask, value, jnp.asarray(forms["trust"], dtype)[self.form]
        )
        return Effects(base + self.outcomes.scale * shift, self.outcomes.scale * deviation)


def _prior_mean(
    models: SCM,
    outcomes: Outcomes,
    mask: Bool[Array, "actions d"],
    value: Float[Array, "actions d"],
    trust: Float[Array, " draws"],
) -> Float[Array, "draws actions"]:
    found = effects_of(models, mask, value)
    if models.mechanism.units:
        far = WIDEST * outcomes.scale
        found = jnp.clip(found, outcomes.centre - far, outcomes.centre + far)
    return jnp.where(trust[:, None] > 0, found, outcomes.centre)


@eqx.filter_jit
def corrected_belief(problem: Problem, data: Dataset, models: SCM, key: Key) -> Belief:
    """The belief that follows from models, drawn given all rows, and the experiments among the rows."""
    forms, dtype = _forms(), data.values.dtype
    outcomes = outcomes_of(data)
    (made, levels, used), y = recent((data.intervened, data.values, outcomes.tried), outcomes.target, MEMORY)
    made = made & used[:, None]
    d = data.size
    # To do nothing was tried in every observation.
    mask = jnp.concatenate([jnp.zeros((1, d), bool), made])
    value = jnp.concatenate([jnp.zeros((1, d), dtype), jnp.where(made, levels, 0)])
    some = jnp.any(data.rows & ~outcomes.tried)
    real = jnp.concatenate([some[None], used])
    centre, scale = outcomes.centre, outcomes.scale
    y = jnp.concatenate([centre[None], y])
    repeats = jnp.ones(real.shape[0], dtype).at[0].set(jnp.asarray(outcomes.observed, dtype))
    noise = jnp.clip(target_variance(models, mask, value) / scale**2, 0.02, 4.0)
    trust = jnp.asarray(forms["trust"], dtype)
    each = jnp.asarray(forms["noise"], dtype)[:, None] * jnp.where(trust[:, None] > 0, noise, 1) / repeats
    believed = _prior_mean(models, outcomes, mask, value, jnp.ones(models.target.shape[0], dtype))
    expected = jnp.stack([jnp.full_like(believed, centre), believed])  # without trust, and with
    residual = jnp.where(real, (y - expected) / scale, 0)
    # Observations of a process that is held still say little of how far experiments may take it.
    farthest = jnp.max(jnp.where(real, jnp.abs(y - centre) / scale, 0))
    reach = jnp.maximum(farthest / BEYOND, 1)
    pairs = pair_actions(problem, (mask, value), (mask, value))
    both = real[:, None] & real

    def condition(signal: Array, kernel: Array, each: Array, trust: Array) -> tuple[Array, Array, Array]:
        matrix = jnp.where(both, signal**2 * kernel, 0) + jnp.diag(jnp.where(real, each + 1e-4, 1))
        inverse, log_det = solve_positive(matrix, jnp.eye(real.shape[0], dtype=dtype))
        rest = jnp.where(trust > 0, residual[1], residual[0])
        weight = jnp.matmul(rest, inverse, precision="highest")
        return inverse, weight, -0.5 * (jnp.sum(rest * weight, -1) + log_det)

    signal = jnp.asarray(forms["signal"], dtype) * reach
    inverse, weight, evidence = jax.vmap(condition)(signal, pairs.kernels(forms["length"]), each, trust)
    log = TEMPER * evidence + jnp.log(jnp.asarray(forms["prior"], dtype))[:, None]
    along = jnp.cumsum(jax.nn.softmax(log, axis=0), axis=0)
    draws = log.shape[1]
    # Stratified: of all draws, forms get their shares almost exactly.
    uniform = (jr.permutation(key, draws) + 0.5).astype(dtype) / draws
    form = jnp.minimum(jnp.sum(along < uniform, axis=0), len(forms["prior"]) - 1).astype(jnp.int32)
    return Belief(
        models, problem, (mask, value, real), inverse, weight[form, jnp.arange(draws)], form, outcomes, reach
    )


class ActionPairs(NamedTuple):
    """Comparison of the actions of two lists, pair by pair."""

    distance: Float[Array, "a b d"]
    """Squared, along each variable, as parts of ranges."""
    same: Float[Array, "a b"]
    """1 where they set the same variables."""
    both: Float[Array, "a b d"] | None
    """For variables that both set, one over the geometric mean of how many they set; None where only one may be set."""

    def kernel(self, length: float) -> Float[Array, "a b"]:
        """1 for equal actions, less the farther they are, 0 where they have nothing in common."""
        each = -0.5 * self.distance / length**2
        joint = self.same * jnp.exp(each.sum(-1))
        if self.both is None:
            return joint
        shared = jnp.sum(self.both * jnp.exp(each), -1) + self.same * (self.both.sum(-1) == 0)
        return (1 - SHARE) * joint + SHARE * shared

    def kernels(self, lengths: Float[np.ndarray, " n"]) -> Float[Array, "n a b"]:
        """The kernel of each length."""
        different, place = np.unique(lengths, return_inverse=True)
        return jnp.stack([self.kernel(float(length)) for length in different])[place]


def pair_actions(
    problem: Problem,
    first: tuple[Bool[Array, "a d"], Float[Array, "a d"]],
    second: tuple[Bool[Array, "b d"], Float[Array, "b d"]],
) -> ActionPairs:
    """Compare actions, given as masks and values."""
    width = jnp.where(problem.high > problem.low, problem.high - problem.low, 1)
    (mask, place), (other, there) = (
        (m, jnp.where(m, (v - problem.low) / width, 0)) for m, v in (first, second)
    )
    distance = (place[:, None] - there) ** 2
    same = jnp.all(mask[:, None] == other, -1).astype(place.dtype)
    if problem.max_simultaneous == 1:
        return ActionPairs(distance, same, None)
    left, right = (jnp.maximum(m.sum(-1), 1).astype(place.dtype) for m in (mask, other))
    sizes = jnp.sqrt(left[:, None] * right)
    return ActionPairs(distance, same, (mask[:, None] & other) / sizes[..., None])

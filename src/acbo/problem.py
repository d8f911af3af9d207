"""Problems, choices and recommendations as arrays, so that one program serves all problems of a size."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from .inference.knowledge import Knowledge, no_knowledge
from .scms.interventions import Intervention, hard
from .scms.scm import SCM


class Problem(eqx.Module):
    """A causal optimization problem: ranges and costs of variables, target, and knowledge about the graph."""

    live: Bool[Array, " d"]
    manipulable: Bool[Array, " d"]
    low: Float[Array, " d"]
    high: Float[Array, " d"]
    cost_fixed: Float[Array, " d"]
    """Price of setting a variable at all."""
    cost_unit: Float[Array, " d"]
    """Price per unit of the value that is set."""
    levels: Float[Array, "d levels"]
    """The values that a discrete variable may take, NaN for padding; all NaN for a continuous one."""
    target: Int32[Array, ""]
    sign: Float[Array, ""]
    """1 where a small target is wanted, -1 where a large one is."""
    knowledge: Knowledge
    max_simultaneous: int = eqx.field(static=True, default=1)
    """Most variables that one experiment sets."""

    @property
    def size(self) -> int:
        """Number of variables, the padded ones included."""
        return self.live.shape[-1]

    def snap(self, value: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        """The nearest values that may be set: within the range, and one of the levels where there are any."""
        held = jnp.clip(value, self.low, self.high)
        if not self.levels.shape[-1]:
            return held
        distance = jnp.abs(held[..., None] - self.levels)
        nearest = jnp.argmin(jnp.where(jnp.isnan(distance), jnp.inf, distance), axis=-1)
        level = jnp.take_along_axis(
            jnp.broadcast_to(self.levels, distance.shape), nearest[..., None], axis=-1
        )[..., 0]
        return jnp.where(jnp.isnan(self.levels).all(-1), held, level)

    def cost(self, mask: Bool[Array, "*rows d"], value: Float[Array, "*rows d"]) -> Float[Array, "*rows"]:
        """Price of setting the masked variables to these values."""
        return jnp.sum(jnp.where(mask, self.cost_fixed + self.cost_unit * jnp.abs(value), 0), axis=-1)


class Choice(eqx.Module):
    """An experiment: the masked variables are set to `value`. An empty mask is an observation."""

    mask: Bool[Array, " d"]
    value: Float[Array, " d"]
    stop: Bool[Array, ""]
    """True if stopping is better than any experiment."""
    score: Float[Array, ""]
    """Score of the experiment, in the strategy's own units."""

    @property
    def intervention(self) -> Intervention:
        """The experiment as a hard intervention."""
        return hard(self.mask, jnp.where(self.mask, self.value, 0))


class Recommendation(eqx.Module):
    """A recommended action and its expected target."""

    mask: Bool[Array, " d"]
    value: Float[Array, " d"]
    mean: Float[Array, ""]
    """Expected target."""
    spread: Float[Array, ""]
    """Standard deviation of that expectation, without measurement noise."""

    @property
    def intervention(self) -> Intervention:
        """The recommendation as a hard intervention."""
        return hard(self.mask, jnp.where(self.mask, self.value, 0))


def problem_of(
    scm: SCM, *, minimize: bool = True, knowledge: Knowledge | None = None, max_simultaneous: int = 1
) -> Problem:
    """The problem posed by a model: everything but its graph and mechanisms."""
    d, dtype = scm.size, scm.low.dtype
    seen = scm.live & scm.observed
    return Problem(
        live=seen,
        manipulable=scm.manipulable & seen,
        low=scm.low,
        high=scm.high,
        cost_fixed=scm.cost_fixed,
        cost_unit=scm.cost_unit,
        levels=jnp.zeros((d, 0), dtype),
        target=scm.target,
        sign=jnp.asarray(1.0 if minimize else -1.0, dtype),
        knowledge=no_knowledge(d) if knowledge is None else _among(seen, scm.live & ~scm.observed, knowledge),
        max_simultaneous=max_simultaneous,
    )


def _among(seen: Bool[Array, " d"], hidden: Bool[Array, " d"], known: Knowledge) -> Knowledge:
    """The knowledge restricted to observed variables; paths through hidden variables become direct edges."""
    edges = known.required
    for _ in range(known.size.bit_length()):  # each round doubles the length of the paths
        through = (edges & hidden).astype(jnp.int32)
        edges = edges | (through @ edges.astype(jnp.int32) > 0)
    required = edges & seen[:, None] & seen
    return Knowledge(required, known.forbidden & ~required, known.log_odds, known.complete)


def known_graph(adjacency: Bool[Array, "d d"]) -> Knowledge:
    """Knowledge of the whole graph."""
    return Knowledge(adjacency, ~adjacency, jnp.zeros(adjacency.shape, jnp.float32), complete=True)

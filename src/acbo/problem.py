"""What an experimenter knows before any experiment, and what they decide: arrays, so that one program serves all."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from .inference.knowledge import Knowledge, no_knowledge
from .scms.interventions import Intervention, hard
from .scms.scm import SCM


class Problem(eqx.Module):
    """Which variables can be set to what at which price, what is known of the graph, and what is wanted."""

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
    """Whether it is better to end than to make any experiment."""
    score: Float[Array, ""]
    """How much the strategy expects of it, in the strategy's own measure."""

    @property
    def intervention(self) -> Intervention:
        """The experiment as a hard intervention."""
        return hard(self.mask, jnp.where(self.mask, self.value, 0))


class Recommendation(eqx.Module):
    """What to do in the end, and what it is expected to give."""

    mask: Bool[Array, " d"]
    value: Float[Array, " d"]
    mean: Float[Array, ""]
    """Expected target."""
    spread: Float[Array, ""]
    """Standard deviation of that expectation: what is not known, not the noise."""

    @property
    def intervention(self) -> Intervention:
        """What is recommended, as a hard intervention."""
        return hard(self.mask, jnp.where(self.mask, self.value, 0))


def problem_of(
    scm: SCM, *, minimize: bool = True, knowledge: Knowledge | None = None, max_simultaneous: int = 1
) -> Problem:
    """What an experimenter with this model before them is told: everything but graph and mechanisms."""
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
    """What is known, of what is seen: what acts through hidden variables alone acts directly there."""
    edges = known.required
    for _ in range(known.size.bit_length()):  # each round doubles the length of the paths
        through = (edges & hidden).astype(jnp.int32)
        edges = edges | (through @ edges.astype(jnp.int32) > 0)
    required = edges & seen[:, None] & seen
    return Knowledge(required, known.forbidden & ~required, known.log_odds, known.complete)


def known_graph(adjacency: Bool[Array, "d d"]) -> Knowledge:
    """Knowledge of the whole graph."""
    return Knowledge(adjacency, ~adjacency, jnp.zeros(adjacency.shape, jnp.float32), complete=True)

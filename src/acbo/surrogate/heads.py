"""The heads of a network: predictions of edges and of whole parent sets, and the losses they are trained with.

Logits of parent sets follow from those of single parents, exactly normalised over the sets that are listed.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from acbo.inference.metrics import edge_mask
from acbo.inference.parent_sets import set_table

from .layers import MASKED


def candidate_sets(variables: int, max_size: int, target: Int[Array, ""]) -> Bool[Array, "sets variables"]:
    """Every parent set of at most `max_size` members for `target`, smaller ones first.

    The target may be traced: the same program serves all. The order is that of the teacher's `set_table`.
    """
    others = jnp.asarray(set_table(variables - 1, max_size).members)
    index = jnp.arange(variables)
    column = jnp.clip(index - (index > target), 0, max(variables - 2, 0))
    spread = others[:, column] if variables > 1 else jnp.zeros((len(others), 1), bool)
    return spread & (index != target)


def set_logits(
    single: Float[Array, " d"],
    factors: Float[Array, "d rank"],
    sets: Bool[Array, "sets d"],
    allowed: Bool[Array, " d"],
) -> Float[Array, " sets"]:
    """Logits of parent sets: independent parents, and a correction for each two of them.

    logit(S) = Σ_{i∈S} single_i + Σ_{i<j∈S} ⟨factors_i, factors_j⟩±, where the first half of the channels counts
    positive and the second negative. Without factors the softmax over all sets is the product of Bernoullis with
    logits `single`. A set with a member that is not allowed gets `MASKED`, so its probability is 0.
    """
    member = sets.astype(single.dtype)
    rank = factors.shape[-1]
    sign = jnp.where(jnp.arange(rank) < rank // 2, 0.5, -0.5).astype(single.dtype)
    # In full precision: an accelerator would round the sums to 10 bits, and logits of sets to those of others.
    add = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    together = jnp.square(add(member, factors)) - add(member, jnp.square(factors))
    logits = add(member, single) + add(together, sign)
    return jnp.where((sets & ~allowed).any(-1), MASKED, logits)


class Prediction(eqx.Module):
    """Prediction for one dataset; `[i, j]` is about i → j."""

    edge_logits: Float[Array, "d d"]
    """Log odds of each edge; `MASKED` where none can be."""
    single_logits: Float[Array, "d d"]
    """The part of parent-set logits that single parents bring; column j is for target j."""
    factors: Float[Array, "d d rank"]
    """The part that each two of them bring."""
    live: Bool[Array, " d"]
    target: Int[Array, ""]

    @property
    def edges(self) -> Float[Array, "d d"]:
        """Probability of each edge."""
        return jax.nn.sigmoid(self.edge_logits)

    def parent_logits(self, target: Int[Array, ""] | int | None = None) -> Float[Array, " d"]:
        """Log odds that each variable is a parent of the target: of the dataset's own, or of another."""
        return self.edge_logits[:, self.target if target is None else target]

    def parent_set_logits(
        self,
        sets: Bool[Array, "sets d"] | None = None,
        *,
        max_size: int = 3,
        target: Int[Array, ""] | int | None = None,
    ) -> Float[Array, " sets"]:
        """Logits of parent sets of the target; by default of all with at most `max_size` members."""
        chosen = jnp.asarray(self.target if target is None else target, jnp.int32)
        if sets is None:
            sets = candidate_sets(self.live.shape[0], max_size, chosen)
        allowed = self.live & (jnp.arange(self.live.shape[0]) != chosen)
        return set_logits(self.single_logits[:, chosen], self.factors[:, chosen], sets, allowed)


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

"""From logits of single parents to logits of whole parent sets, exactly normalised over the sets that are listed."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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


def allowed_parents(live: Bool[Array, " d"], target: Int[Array, ""]) -> Bool[Array, " d"]:
    """Real variables other than the target."""
    return live & (jnp.arange(live.shape[0]) != target)


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

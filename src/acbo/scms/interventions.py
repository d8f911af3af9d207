"""Interventions on any number of variables at once: hard, soft, shift, and mixtures of them, per row."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from acbo.data import Key

from .graphs import ranks
from .scm import SCM


class Intervention(eqx.Module):
    """An intervention; where `mask` is True, the variable becomes

        (1 - strength) · (mechanism + noise) + strength · value + shift.

    Strength 1 is a hard intervention, strength 0 with a shift a shift intervention, anything between a soft one.
    Arrays of shape `[d]` hold for all rows, of shape `[rows, d]` for each row.
    """

    mask: Bool[Array, "*rows d"]
    value: Float[Array, "*rows d"]
    strength: Float[Array, "*rows d"]
    shift: Float[Array, "*rows d"]

    @property
    def keep(self) -> Float[Array, "*rows d"]:
        """Factor of mechanism and noise."""
        return jnp.where(self.mask, 1 - self.strength, 1)

    @property
    def add(self) -> Float[Array, "*rows d"]:
        """Term added to the rest."""
        # Without a blend nothing of the value is left, even where it is not finite.
        blended = jnp.where(self.strength == 0, 0, self.strength * self.value)
        return jnp.where(self.mask, blended + self.shift, 0)


def hard(mask: Bool[Array, "*rows d"], value: Float[Array, "*rows d"]) -> Intervention:
    """Set the masked variables to `value`, whatever their parents do."""
    return soft(mask, value, 1)


def soft(
    mask: Bool[Array, "*rows d"], value: Float[Array, "*rows d"], strength: float | Float[Array, "..."]
) -> Intervention:
    """Draw the masked variables towards `value`: strength 0 leaves them, strength 1 sets them."""
    value = jnp.asarray(value, value.dtype)  # a strong type, or programs compile twice
    zero = jnp.zeros_like(value)
    return Intervention(mask, value, zero + jnp.asarray(strength, value.dtype), zero)


def shift(mask: Bool[Array, "*rows d"], amount: Float[Array, "*rows d"]) -> Intervention:
    """Add `amount` to the masked variables, which still follow their mechanisms."""
    amount = jnp.asarray(amount, amount.dtype)
    zero = jnp.zeros_like(amount)
    return Intervention(mask, zero, zero, amount)


def nothing(size: int) -> Intervention:
    """No intervention: an observation."""
    zero = jnp.zeros(size, jnp.result_type(float))
    return Intervention(jnp.zeros(size, bool), zero, zero, zero)


def combine(first: Intervention, second: Intervention) -> Intervention:
    """Both at once; where both touch a variable, the second holds."""
    return jax.tree.map(lambda a, b: jnp.where(second.mask, b, a), first, second)


def cost(scm: SCM, intervention: Intervention) -> Float[Array, "*rows"]:
    """Price of each row: a fixed part per touched variable, and a part per unit of set value or shift."""
    amount = jnp.abs(jnp.where(intervention.strength == 0, intervention.shift, intervention.value))
    price = scm.cost_fixed + scm.cost_unit * amount
    return jnp.sum(jnp.where(intervention.mask, price, 0), axis=-1)


def allowed(scm: SCM, intervention: Intervention) -> Bool[Array, "*rows"]:
    """True if only manipulable variables are touched, with set values within their ranges."""
    inside = (intervention.value >= scm.low) & (intervention.value <= scm.high)
    fits = scm.manipulable & (inside | (intervention.strength == 0))
    return jnp.all(fits | ~intervention.mask, axis=-1)


@partial(jax.jit, static_argnames=("rows", "at_once"))
def random_interventions(
    key: Key, scm: SCM, rows: int, *, observational: int | Int[Array, ""] = 0, at_once: int = 1
) -> Intervention:
    """Rows of hard interventions on random manipulable variables, at values uniform in their ranges.

    The first `observational` rows are left alone. Each other row touches `at_once` variables, or all that are
    manipulable if they are fewer.
    """
    key_which, key_value = jr.split(key)
    dtype, can = scm.low.dtype, scm.manipulable
    if at_once == 1:
        # One number per row picks the variable: random numbers are what data cost most.
        pick = jnp.floor(jr.uniform(key_which, (rows, 1), dtype) * jnp.sum(can))
        chosen = can & (jnp.cumsum(can) - 1 == pick)
        place = jr.uniform(key_value, (rows, 1), dtype)
    else:
        scores = jnp.where(can, jr.uniform(key_which, (rows, scm.size), dtype), 2)
        chosen = can & (jax.vmap(ranks)(scores) < at_once)
        place = jr.uniform(key_value, (rows, scm.size), dtype)
    mask = chosen & (jnp.arange(rows) >= observational)[:, None]
    return hard(mask, jnp.where(mask, scm.low + (scm.high - scm.low) * place, 0))

"""Ancestral sampling: variables are computed in topological order, all rows of a model at once."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from acbo.data import Dataset, Key
from jaxworlds.arguments import demand_key, short

from .draws import draw_uniform
from .interventions import Intervention, nothing, random_interventions
from .mechanisms import activate, standard_noise
from .scm import SCM

# Values are held within this: an infinite one would make NaN of every other in a matrix product. Units may cube them.
LARGEST = 1e10
_LARGEST_LINEAR = 1e25


@jax.jit
def propagate(
    scm: SCM, noise: Float[Array, "n d"], intervention: Intervention | None = None
) -> Float[Array, "n d"]:
    """Values of all variables, hidden ones included, for given standard noise.

    With noise zero and a linear model this is the mean; it is differentiable in everything but graph and masks.
    """
    rows, size = noise.shape
    done = nothing(size) if intervention is None else intervention
    keep, add = (jnp.broadcast_to(a, noise.shape).T for a in (done.keep, done.add))
    noise = noise.T
    m = scm.mechanism
    most = largest_value(m.units)
    # All linear forms of a variable's parents are one matrix product: its weights, its spread, its units. With the
    # child first, each step reads one block; that alone is 3 times faster on CPU.
    forms = jnp.concatenate([m.weight[..., None], scm.noise.spread[..., None], m.inner], axis=-1)
    forms = jnp.transpose(forms, (1, 2, 0))

    def compute(place: Int[Array, ""], x: Float[Array, "d n"]) -> Float[Array, "d n"]:
        v = scm.order[place]
        form = forms[v] @ x
        mean = m.bias[v] + form[0]
        if m.units:
            z = m.phase[v][:, None] + form[2:]
            mean = mean + m.outer[v] @ activate(m.activation[v], m.reach[v], z, m.functions)
        scale = scm.noise.scale[v] * jnp.sqrt(1 + form[1] ** 2)
        # What an intervention cuts must not reach through, even where it has grown beyond all numbers.
        own = jnp.where(keep[v] == 0, 0, mean + scale * noise[v])
        row = jnp.clip(keep[v] * own + add[v], -most, most)
        # A comparison writes one row of a whole batch of models faster than a scatter does.
        return jnp.where((jnp.arange(size) == v)[:, None], row, x)

    x = jax.lax.fori_loop(0, size, compute, jnp.zeros((size, rows), noise.dtype))
    return jnp.where(scm.live, x.T, 0)


def largest_value(units: int) -> float:
    """Bound on the values of a model with this many units."""
    return LARGEST if units else _LARGEST_LINEAR


@partial(jax.jit, static_argnames=("rows",))
def draw_noise(scm: SCM, key: Key, rows: int) -> Float[Array, "n d"]:
    """Standard noise of each variable's kind."""
    # Rows last while the numbers are made: they fill vector registers, which ten variables do not.
    return standard_noise(scm.noise.kind[:, None], draw_uniform(key, (scm.size, rows))).T


@partial(jax.jit, static_argnames=("rows",))
def sample(
    scm: SCM,
    intervention: Intervention | None,
    key: Key,
    rows: int,
    real: Bool[Array, " rows"] | None = None,
) -> Dataset:
    """Rows drawn from the model under an intervention (None observes), one for all rows or one per row.

    `real` marks the rows that count; the others are padding and read 0. Hidden variables read 0 and are not live.
    """
    if intervention is not None and intervention.mask.shape not in ((scm.size,), (rows, scm.size)):
        raise ValueError(
            f"`intervention` must have shape {(scm.size,)}, or {(rows, scm.size)} for one per row; got "
            f"{intervention.mask.shape}."
        )
    values = propagate(scm, draw_noise(scm, key, rows), intervention)
    mask = jnp.zeros(scm.size, bool) if intervention is None else intervention.mask
    counted = jnp.ones(rows, bool) if real is None else real
    shown = (scm.live & scm.observed) & counted[:, None]
    return Dataset(
        values=jnp.where(shown, values, 0),
        intervened=jnp.broadcast_to(mask, values.shape) & shown,
        rows=counted,
        live=scm.live & scm.observed,
        target=scm.target,
    )


def sample_mixed(
    scm: SCM, key: Key | int, rows: int, observational: int | Int[Array, ""], at_once: int = 1
) -> Dataset:
    """`observational` rows without intervention, then rows with `at_once` random variables set to random values.

    An integer key is a seed.
    """
    if not isinstance(scm, SCM):
        remedy = " Pass `model.scm`." if hasattr(scm, "scm") else ""
        raise TypeError(f"`scm` must be the arrays of a model; got {type(scm).__name__}.{remedy}")
    demand_rows(rows)
    if isinstance(observational, int) and not 0 <= observational <= rows:
        raise ValueError(f"`observational` must be from 0 to the {rows} rows; got {observational}.")
    return _sample_mixed(scm, key_of(key), rows, observational, at_once)


def demand_rows(rows: Any) -> None:
    """Raise unless `rows` is a number of rows."""
    if not isinstance(rows, int | np.integer) or isinstance(rows, bool) or rows < 0:
        raise TypeError(f"`rows` must be a whole number, how many to draw; got {short(rows)}.")


def key_of(key: Any) -> Key:
    """A key, or the key of a seed."""
    return jr.key(key) if isinstance(key, int) else demand_key(key)


@partial(jax.jit, static_argnames=("rows", "at_once"))
def _sample_mixed(
    scm: SCM, key: Key, rows: int, observational: int | Int[Array, ""], at_once: int
) -> Dataset:
    key_do, key_rows = jr.split(key)
    done = random_interventions(key_do, scm, rows, observational=observational, at_once=at_once)
    return sample(scm, done, key_rows, rows)

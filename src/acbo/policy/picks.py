"""From the network's output to an experiment: variables are picked one after another, each with its value."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int32

from acbo.data import Key
from acbo.problem import Choice, Problem

from .policy_network import Outlook, masked_logits, place_of

Picks = Int32[Array, " most"]
"""Cells `variable × places + place` in the order they were picked; `variables × places` ends the set, or the episode."""


class PickNoise(NamedTuple):
    """The random numbers of one experiment, so that those of many are drawn at once."""

    gumbel: Float[Array, "*more most all"]
    uniform: Float[Array, "*more most"]


def draw_pick_noise(key: Key, problem: Problem, places: int, *lead: int) -> PickNoise:
    """Random numbers for experiments on this problem."""
    most, cells = problem.max_simultaneous, problem.size * places + 1
    numbers = jr.uniform(key, (*lead, most, cells + 1), minval=1e-7, maxval=1.0)
    return PickNoise(-jnp.log(-jnp.log(numbers[..., :cells])), numbers[..., cells])


def pick(
    outlook: Outlook, problem: Problem, noise: PickNoise, temperature: float | Float[Array, ""] = 1.0
) -> tuple[Picks, Float[Array, ""]]:
    """Picks drawn from the policy, and their log probability under it; temperature 0 takes the likeliest."""
    gumbel = noise.gumbel * temperature

    def choose(logits: Float[Array, " all"], step: int) -> Int32[Array, ""]:
        return jnp.argmax(logits + gumbel[step]).astype(jnp.int32)

    return _walk(outlook, problem, choose)


def log_probability(outlook: Outlook, problem: Problem, picks: Picks) -> Float[Array, ""]:
    """Log probability of given picks."""
    return _walk(outlook, problem, lambda _, step: picks[step])[1]


def _walk(
    outlook: Outlook, problem: Problem, choose: Callable[[Array, int], Array]
) -> tuple[Picks, Float[Array, ""]]:
    """Pick after pick, each by `choose(logits, step)`; after the end nothing more is picked, nor counted."""
    d, places = outlook.logits.shape
    end = d * places
    taken, done = jnp.zeros(d, bool), jnp.asarray(False)
    total, picks = jnp.zeros((), outlook.logits.dtype), []
    for step in range(problem.max_simultaneous):
        logits = masked_logits(outlook, taken, jnp.asarray(step))
        found = jnp.where(done, end, choose(logits, step)).astype(jnp.int32)
        log = jax.nn.log_softmax(logits)[found]
        total = total + jnp.where(done, 0, log)
        done = done | (found == end)
        taken = taken | (~done & (jnp.arange(d) == found // places))
        picks.append(found)
    return jnp.stack(picks), total


def entropy(outlook: Outlook) -> Float[Array, ""]:
    """Entropy of the first pick, in nats."""
    log = jax.nn.log_softmax(masked_logits(outlook, jnp.zeros(outlook.logits.shape[0], bool), jnp.asarray(0)))
    return -jnp.sum(jnp.exp(log) * jnp.where(log > -50, log, 0))


def choice_of(
    outlook: Outlook, problem: Problem, picks: Picks, log: Float[Array, ""], noise: PickNoise
) -> Choice:
    """The experiment for these picks; `noise` places values within their cells."""
    d, places = outlook.logits.shape
    made = picks < d * places
    chosen = made[:, None] & (jnp.arange(d) == (picks // places)[:, None])
    part = place_of(picks % places, noise.uniform, places)
    mask = chosen.any(0)
    where = jnp.sum(jnp.where(chosen, part[:, None], 0), axis=0)
    # In this form the ends are met exactly.
    value = problem.snap(problem.low * (1 - where) + problem.high * where)
    return Choice(mask, jnp.where(mask, value, 0), ~made[0], jnp.exp(log))

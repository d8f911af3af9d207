"""An episode: observations, then experiments chosen one after another, each followed by a recommendation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem
from acbo.scms.interventions import Intervention
from acbo.scms.samples import draw_noise, propagate
from acbo.scms.scm import SCM
from acbo.scms.true_effects import true_effect


class Episode(eqx.Module):
    """Record of one episode, experiment by experiment."""

    data: Dataset
    """All rows in the end."""
    mask: Bool[Array, "trials d"]
    value: Float[Array, "trials d"]
    outcome: Float[Array, " trials"]
    """The target in the row of each experiment."""
    cost: Float[Array, " trials"]
    """Money spent so far."""
    expected: Float[Array, "more"]
    """True expected target of the recommendation before the first experiment and after each one."""
    regret: Float[Array, "more"]
    """Its distance from the optimum relative to that of doing nothing; 0 is best."""


def start_data(scm: SCM, noise: Float[Array, "rows d"], observations: int | Array) -> Dataset:
    """Observations, and rows of padding for the experiments to come."""
    values = propagate(scm, noise, None)
    rows = jnp.arange(noise.shape[0]) < observations
    live = scm.live & scm.observed
    return Dataset(
        values=jnp.where(rows[:, None] & live, values, 0),
        intervened=jnp.zeros(values.shape, bool),
        rows=rows,
        live=live,
        target=scm.target,
    )


def add_row(data: Dataset, row: Float[Array, " d"], mask: Bool[Array, " d"]) -> Dataset:
    """The data with one more row, in the first place that is free; without any, the same data."""
    free = ~data.rows & (jnp.cumsum(~data.rows) == 1)
    put = free[:, None]
    return Dataset(
        values=jnp.where(put, jnp.where(data.live, row, 0), data.values),
        intervened=jnp.where(put, mask, data.intervened),
        rows=data.rows | free,
        live=data.live,
        target=data.target,
    )


def perform(scm: SCM, choice: Choice, noise: Float[Array, " d"]) -> Float[Array, " d"]:
    """One row under the chosen experiment, for given standard noise."""
    return propagate(scm, noise[None], choice.intervention)[0]


def normalised_regret(
    scm: SCM, problem: Problem, intervention: Intervention, best: Float[Array, ""], idle: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """True expected target of an intervention, and its regret: 0 for the optimum `best`, 1 for doing nothing."""
    found = true_effect(scm, intervention)
    left = problem.sign * (idle - best)
    # Less than rounding leaves nothing to be won, in whatever units.
    least = 8 * jnp.finfo(left.dtype).eps * jnp.maximum(jnp.abs(idle), jnp.abs(best))
    return found, problem.sign * (found - best) / jnp.maximum(left, jnp.where(least > 0, least, 1))


@eqx.filter_jit
def run_episode(
    strategy: Any,
    scm: SCM,
    problem: Problem,
    best: Float[Array, ""],
    key: Key,
    observations: int = 50,
    trials: int = 10,
    each: bool = False,
) -> Episode:
    """Observations, then `trials` experiments. `best` is the true optimum. For many models, `vmap`.

    The noise of every row follows from the key alone: strategies are compared on the same luck. The recommendation is
    asked for at the start and the end, and with `each` after every experiment (others repeat the one before). A
    strategy that stops gets no further rows.
    """
    key_noise, key_strategy = jr.split(key)
    noise = draw_noise(scm, key_noise, observations + trials)
    data = start_data(scm, noise, observations)
    idle = true_effect(scm)

    def judge(data: Dataset, key: Key) -> tuple[Float[Array, ""], Float[Array, ""]]:
        advice = strategy.recommend(problem, data, key)
        return normalised_regret(scm, problem, advice.intervention, best, idle)

    def experiment(
        carry: tuple[Dataset, Array], turn: tuple[Array, Array, Key]
    ) -> tuple[tuple[Dataset, Array], Any]:
        data, going = carry
        step, noise, key = turn
        key_choose, key_judge = jr.split(key)
        remaining = (trials - step).astype(noise.dtype)
        choice = strategy.choose(problem, data, remaining, key_choose)
        going = going & ~choice.stop
        choice = eqx.tree_at(lambda choice: choice.mask, choice, choice.mask & going)
        row = perform(scm, choice, noise)
        grown = add_row(data, row, choice.mask)
        data = jax.tree.map(lambda new, old: jnp.where(going, new, old), grown, data)
        judged = judge(data, key_judge) if each else None
        price = problem.cost(choice.mask, choice.value)
        return (data, going), (choice.mask, choice.value, row[scm.target], price, judged)

    keys = jr.split(key_strategy, trials + 2)
    first = judge(data, keys[-1])
    turns = (jnp.arange(trials), noise[observations:], keys[:trials])
    start = (data, jnp.asarray(True))
    (data, _), (mask, value, outcome, price, judged) = jax.lax.scan(experiment, start, turns)
    if judged is None:
        last = judge(data, keys[-2])
        judged = jax.tree.map(lambda a, b: jnp.append(jnp.repeat(a, trials - 1), b), first, last)
    expected, regret = jax.tree.map(lambda a, b: jnp.append(a, b), first, judged)
    return Episode(data, mask, value, outcome, jnp.cumsum(price), expected, regret)

"""The true effect of an intervention, E[target | do(.)], and the best intervention over all sets of variables up to a size.

Both are exact for linear models and by simulation otherwise.
"""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32

from acbo.data import Key

from .draws import draw_uniform
from .graphs import ancestors
from .interventions import Intervention, hard
from .mechanisms import standard_noise
from .samples import propagate
from .scm import SCM

SAMPLES = 1024


@partial(jax.jit, static_argnames=("samples",))
def common_noise(scm: SCM, key: Key | None = None, samples: int = SAMPLES) -> Float[Array, "samples d"]:
    """Standard noise for comparing interventions on the same draws: each draw comes with its mirror image.

    Without a key it is the same on every call, so that differences of effects, and regrets, have little noise.
    """
    half = draw_uniform(jr.key(0) if key is None else key, (scm.size, (samples + 1) // 2))
    return standard_noise(scm.noise.kind[:, None], jnp.concatenate([half, -half], axis=1)).T


def simulated_effect(
    scm: SCM, noise: Float[Array, "samples d"], intervention: Intervention | None
) -> Float[Array, ""]:
    """Mean of the target over given noise."""
    return jnp.mean(propagate(scm, noise, intervention)[:, scm.target])


def linear_effect(scm: SCM, intervention: Intervention | None) -> Float[Array, ""]:
    """The mean of the target as if all mechanisms were linear: their noise has mean zero and drops out."""
    return propagate(scm, jnp.zeros((1, scm.size), scm.low.dtype), intervention)[0, scm.target]


@partial(jax.jit, static_argnames=("samples",))
def true_effect(
    scm: SCM, intervention: Intervention | None = None, key: Key | None = None, samples: int = SAMPLES
) -> Float[Array, ""]:
    """E[target | do(intervention)]; None is the observational mean. For many interventions, `vmap`.

    Linear models are exact, soft and shift interventions included. Others are averaged over `samples` draws, the same
    ones on every call unless `key` is given; the error is about the target's standard deviation / √samples.
    """
    exact = linear_effect(scm, intervention)
    if not scm.mechanism.units:
        return exact
    simulated = simulated_effect(scm, common_noise(scm, key, samples), intervention)
    return jnp.where(scm.is_linear, exact, simulated)


@partial(jax.jit, static_argnames=("minimize", "samples"))
def regret(
    scm: SCM,
    intervention: Intervention,
    best: Float[Array, ""],
    minimize: bool = True,
    key: Key | None = None,
    samples: int = SAMPLES,
) -> Float[Array, ""]:
    """Regret: the expected loss of the intervention beyond the best value of `best_intervention`."""
    loss = true_effect(scm, intervention, key, samples) - best
    return loss if minimize else -loss


# Points of the first grid, by the most variables set at once: 33, 11 x 11 and 5 x 5 x 5; else 3 along each axis.
POINTS = {0: 1, 1: 33, 2: 121, 3: 125}
ROUNDS, STARTS = 8, 3
# Draws for the first evaluation of the grid; the refinement uses all.
FIRST_LOOK = 256


class BestIntervention(eqx.Module):
    """The best hard intervention and what each set of variables can reach."""

    intervention: Intervention
    value: Float[Array, ""]
    """Expected target under it."""
    sets: Bool[Array, "sets d"]
    """All sets up to the given size, small ones first; the first is empty."""
    set_values: Float[Array, " sets"]
    """Best expected target of each set; NaN where it holds variables that cannot be manipulated or do not matter."""
    set_levels: Float[Array, "sets d"]
    """The values that reach it."""


@partial(jax.jit, static_argnames=("max_simultaneous", "minimize", "samples"))
def best_intervention(
    scm: SCM,
    max_simultaneous: int = 1,
    minimize: bool = True,
    key: Key | None = None,
    samples: int = SAMPLES,
) -> BestIntervention:
    """The hard intervention on at most `max_simultaneous` manipulable variables with the best expected target.

    The expected target of a linear model is linear in the values set, so that the best lies at ends of the ranges,
    and is exact. Otherwise a grid that holds the ends is searched and the best points are refined, with the same
    draws as `true_effect`. Of equally good sets the smallest wins; doing nothing is one of them.
    """
    if max_simultaneous < 0:
        raise ValueError(f"`max_simultaneous` must be at least 0; got {max_simultaneous}.")
    sign = 1.0 if minimize else -1.0
    useful = scm.manipulable & ancestors(scm.adjacency)[:, scm.target]
    noise = common_noise(scm, key, samples) if scm.mechanism.units else None
    sets, losses, levels = _solve(scm, useful, min(max_simultaneous, scm.size), sign, noise)
    least = jnp.min(losses)
    # Rounding must not make a larger set look better than the smaller one inside it; what counts as equal follows what
    # can be won, not the units.
    largest = jnp.max(jnp.where(jnp.isinf(losses), 0, jnp.abs(losses)))
    alike = 2e-5 * (losses[0] - least) + 8 * jnp.finfo(losses.dtype).eps * largest
    first = jnp.argmax(losses <= least + alike)
    return BestIntervention(
        intervention=hard(sets[first], levels[first]),
        value=sign * losses[first],
        sets=sets,
        set_values=jnp.where(jnp.isinf(losses), jnp.nan, sign * losses),
        set_levels=levels,
    )


Place = Float[Array, " most"]
"""Positions of the members of a set in their ranges, from 0 to 1."""
Best = tuple[Float[Array, " starts"], Float[Array, "starts most"]]
"""The least loss found from each start, and where."""


def _solve(
    scm: SCM, useful: Bool[Array, " d"], most: int, sign: float, noise: Float[Array, "n d"] | None
) -> tuple[Bool[Array, "sets d"], Float[Array, " sets"], Float[Array, "sets d"]]:
    """Each set of at most `most` variables, its least loss, and the values that reach it: one program for all sizes."""
    size, dtype = scm.size, scm.low.dtype
    members = [
        s + (-1,) * (most - len(s)) for k in range(most + 1) for s in itertools.combinations(range(size), k)
    ]
    count = POINTS[most] if most in POINTS else 3**most
    ends = jnp.stack([_grid(2**most, most, k) for k in range(most + 1)])
    grid = jnp.stack([_grid(count, most, k) for k in range(most + 1)])
    spacing = jnp.asarray([1 / max(_along(count, k) - 1, 1) for k in range(most + 1)], dtype)
    near = _grid(3**most, most, most) * 2 - 1

    def put(one_hot: Float[Array, "most d"], place: Place) -> Intervention:
        mask = jnp.any(one_hot > 0, axis=0)
        part = place @ one_hot
        # In this form the ends are met exactly.
        return hard(mask, jnp.where(mask, scm.low * (1 - part) + scm.high * part, 0))

    def exact(one_hot: Float[Array, "most d"], taken: Int[Array, ""]) -> tuple[Float[Array, ""], Place]:
        losses = sign * jax.vmap(lambda place: linear_effect(scm, put(one_hot, place)))(ends[taken])
        return jnp.min(losses), ends[taken][jnp.argmin(losses)]

    def search(one_hot: Float[Array, "most d"], taken: Int[Array, ""]) -> tuple[Float[Array, ""], Place]:
        assert noise is not None
        whole = noise

        def losses(places: Float[Array, "n most"], draws: Float[Array, "m d"]) -> Float[Array, " n"]:
            return sign * jax.vmap(lambda place: simulated_effect(scm, draws, put(one_hot, place)))(places)

        # The first draws and their mirror images.
        half, few = whole.shape[0] // 2, min(FIRST_LOOK, whole.shape[0]) // 2
        coarse = losses(grid[taken], jnp.concatenate([whole[:few], whole[half : half + few]]))
        starts = grid[taken][jax.lax.top_k(-coarse, min(STARTS, count))[1]]

        def closer(i: Int[Array, ""], best: Best) -> Best:
            tries = jnp.clip(best[1][:, None] + spacing[taken] * 0.5**i * near, 0, 1)
            found = losses(tries.reshape(-1, most), whole).reshape(tries.shape[:2])
            which = jnp.argmin(found, axis=1)
            least = jnp.take_along_axis(found, which[:, None], axis=1)[:, 0]
            moved = jnp.take_along_axis(tries, which[:, None, None], axis=1)[:, 0]
            better = least < best[0]
            return jnp.where(better, least, best[0]), jnp.where(better[:, None], moved, best[1])

        unknown = jnp.full(starts.shape[0], jnp.inf, dtype)
        values, places = jax.lax.fori_loop(0, ROUNDS, closer, (unknown, starts))
        return jnp.min(values), places[jnp.argmin(values)]

    def one(member: Int32[Array, " most"]) -> tuple[Bool[Array, " d"], Float[Array, ""], Float[Array, " d"]]:
        one_hot = (member[:, None] == jnp.arange(size)).astype(dtype)
        mask, taken = jnp.any(one_hot > 0, axis=0), jnp.sum(member >= 0)

        def solve() -> tuple[Float[Array, ""], Place]:
            if noise is None:
                return exact(one_hot, taken)
            return jax.lax.cond(scm.is_linear, exact, search, one_hot, taken)

        # Sets that cannot matter are skipped where one model is solved; in a batch of models they cost as much.
        none = (jnp.asarray(jnp.inf, dtype), jnp.zeros(most, dtype))
        loss, place = jax.lax.cond(jnp.all(useful | ~mask), solve, lambda: none)
        return mask, loss, put(one_hot, place).value

    return jax.lax.map(one, jnp.asarray(np.asarray(members, np.int32).reshape(len(members), most)))


def _along(count: int, axes: int) -> int:
    """Points along each axis of a grid of at most `count` points."""
    return max(p for p in range(1, count + 1) if p**axes <= count) if axes else 1


def _grid(count: int, most: int, axes: int) -> Float[Array, "count most"]:
    """Combinations of evenly spaced numbers from 0 to 1 along the first `axes` axes, repeated to `count` points."""
    line = np.linspace(0, 1, _along(count, axes))
    cells = [(*cell, *[0.0] * (most - axes)) for cell in itertools.product(line, repeat=axes)]
    cells = (cells * count)[:count]
    return jnp.asarray(np.asarray(cells, float).reshape(count, most), jnp.result_type(float))

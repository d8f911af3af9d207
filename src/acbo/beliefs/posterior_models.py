"""Causal models drawn from their posterior given the data: graphs, then mechanisms by Bayesian regression on parents."""

import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo._limits import require_above, require_at_least, require_one_of
from acbo.data import Dataset, Key
from acbo.inference.bge import AbstractScore
from acbo.inference.gp_score import GaussianProcess, LinearOrSmooth
from acbo.inference.graph_draws import draw_graphs
from acbo.linear_algebra import solve_positive
from acbo.problem import Problem
from acbo.scms.graphs import topological_order
from acbo.scms.mechanisms import COS, GAUSSIAN, Mechanism, Noise
from acbo.scms.scm import SCM
from jaxworlds.static import config

MANY = 64
"""Number of rows above which the smooth part of a score is approximated, and number of cosines that do it."""
# The noise's variance is inverse gamma: as many rows as these, with a tenth of a usual variable's variance.
PSEUDO_ROWS, RATE = 2, 0.1


@config
class BeliefSettings:
    """Settings of `draw_models`.

    - `models`: number of models drawn.
    - `mechanism`: `"linear"`, or `"smooth"` for a linear part and random cosines of the parents.
    - `units`: cosines for each variable, where mechanisms are smooth.
    - `lengths`: length scales of smooth mechanisms, in standard deviations; each model draws one for each variable, by
      how well it explains the data.
    - `slack`: prior variance of a coefficient, in units of the noise's.
    - `max_parents`: largest parent set; by default that of the score.
    """

    models: int = 64
    mechanism: Literal["linear", "smooth"] = "linear"
    units: int = 24
    lengths: tuple[float, ...] = (0.7, 1.5, 3.0)
    slack: float = 10.0
    max_parents: int | None = None

    def __post_init__(self) -> None:
        require_one_of("mechanism", self.mechanism, "linear", "smooth")
        require_at_least("models", self.models, 1)
        if self.mechanism == "smooth" and self.units < 1:
            raise ValueError(f"`units` must be at least 1 for smooth mechanisms; got {self.units}.")
        if not self.lengths or min(self.lengths) <= 0:
            raise ValueError(f"`lengths` must be numbers above 0, at least one; got {self.lengths}.")
        require_above("slack", self.slack, 0)


def score_for(settings: BeliefSettings, rows: int) -> str | AbstractScore:
    """The parent-set score that fits the kind of mechanism in the settings."""
    if settings.mechanism == "linear":
        return "bge"
    return LinearOrSmooth(smooth=GaussianProcess(features=MANY if rows > MANY else None))


def draw_models(
    problem: Problem,
    data: Dataset,
    key: Key,
    settings: BeliefSettings | None = None,
    score: str | AbstractScore | None = None,
) -> SCM:
    """A batch of models drawn from the posterior: first graphs (exact up to 16 variables), then mechanisms.

    Graphs are weighed by `score`; by default the one that fits the mechanisms, `score_for(settings, rows)`. Variables
    should have about unit variance. Where `problem.knowledge` fixes the whole graph, all models have it, of any size.
    May be jitted and vmapped.
    """
    settings = BeliefSettings() if settings is None else settings
    known = problem.knowledge
    if known.complete:
        graphs = jnp.broadcast_to(known.required, (settings.models, data.size, data.size))
        return models_of(problem, data, graphs, key, settings)
    key_graph, key_models = jr.split(key)
    score = score_for(settings, data.rows.shape[0]) if score is None else score
    graphs = draw_graphs(data, key_graph, settings.models, score, known, max_parents=settings.max_parents)
    # Constraints that leave one graph may give it more parents than the largest set that is scored.
    live = data.live[:, None] & data.live & ~jnp.eye(data.size, dtype=bool)
    whole = jnp.all(known.required | known.forbidden | ~live)
    graphs = jnp.where(whole, known.required & live, graphs)
    return models_of(problem, data, graphs, key_models, settings)


@eqx.filter_jit
def models_of(
    problem: Problem,
    data: Dataset,
    graphs: Bool[Array, "models d d"],
    key: Key,
    settings: BeliefSettings,
) -> SCM:
    """Models with these graphs, whose mechanisms and noise are drawn given the data."""
    d, units = data.size, _units(settings)
    # All random numbers at once: many small draws take long to compile.
    key_normal, key_uniform = jr.split(key)
    each = numbers_needed(data.rows.shape[0], d, units) + units * d
    normals = jr.normal(key_normal, (graphs.shape[0], d, each), data.values.dtype)
    uniforms = jr.uniform(key_uniform, (graphs.shape[0], d, 1 + units), data.values.dtype)
    return jax.vmap(lambda *one: _model(problem, data, settings, *one))(graphs, normals, uniforms)


def _units(settings: BeliefSettings) -> int:
    return settings.units if settings.mechanism == "smooth" else 0


def _model(
    problem: Problem,
    data: Dataset,
    settings: BeliefSettings,
    graph: Bool[Array, "d d"],
    normals: Float[Array, "d numbers"],
    uniforms: Float[Array, "d more"],
) -> SCM:
    mechanism, scale = _mechanism(data, settings, graph, normals, uniforms)
    return SCM(
        adjacency=graph,
        order=topological_order(graph, data.live),
        live=data.live,
        observed=data.live,
        target=data.target,
        mechanism=mechanism,
        noise=Noise(jnp.full(data.size, GAUSSIAN, jnp.int32), scale, jnp.zeros_like(mechanism.weight)),
        low=problem.low,
        high=problem.high,
        cost_fixed=problem.cost_fixed,
        cost_unit=problem.cost_unit,
        manipulable=problem.manipulable,
    )


def _mechanism(
    data: Dataset,
    settings: BeliefSettings,
    graph: Bool[Array, "d d"],
    normals: Float[Array, "d numbers"],
    uniforms: Float[Array, "d more"],
) -> tuple[Mechanism, Float[Array, " d"]]:
    """Mechanism and noise of every variable given its parents, from the rows in which it was left alone."""
    d, dtype, units = data.size, data.values.dtype, _units(settings)
    # New waves for each model: what they cannot express differs from model to model and shows as uncertainty.
    waves = normals[:, : units * d].reshape(d, units, d)
    lengths = jnp.asarray(settings.lengths if units else (1.0,), dtype)
    keep = data.rows[:, None] & ~data.intervened

    def fit(v: Array, *own: Array) -> Coefficients:
        return draw_coefficients(data.values, data.values[:, v], lengths, settings.slack, *own)

    phases, rest = 2 * math.pi * uniforms[:, 1:], normals[:, units * d :]
    found = jax.vmap(fit)(jnp.arange(d), graph.T, keep.T, waves, phases, rest, uniforms[:, 0])

    def alive(x: Float[Array, " d *more"]) -> Float[Array, " d *more"]:
        return jnp.where(data.live.reshape(d, *[1] * (x.ndim - 1)), x, 0)

    mechanism = Mechanism(
        bias=alive(found.bias),
        weight=jnp.where(graph, alive(found.weight).T, 0),
        inner=jnp.moveaxis(alive(found.inner), -1, 0),
        phase=found.phase,
        outer=alive(found.outer),
        activation=jnp.full((d, units), COS, jnp.int32),
        reach=jnp.full((d, units), jnp.inf, dtype),
    )
    return mechanism, alive(found.scale)


def numbers_needed(rows: int, variables: int, units: int) -> int:
    """Number of standard normal numbers that `draw_coefficients` needs."""
    return 2 * rows + PSEUDO_ROWS + 1 + variables + units


class Coefficients(NamedTuple):
    """One draw of all that a mechanism needs; with a leading axis, of all variables."""

    bias: Float[Array, "*d"]
    weight: Float[Array, "..."]
    inner: Float[Array, "..."]
    phase: Float[Array, "..."]
    outer: Float[Array, "..."]
    scale: Float[Array, "*d"]


def draw_coefficients(
    values: Float[Array, "n d"],
    output: Float[Array, " n"],
    lengths: Float[Array, " lengths"],
    slack: float,
    parents: Bool[Array, " d"],
    keep: Bool[Array, " n"],
    waves: Float[Array, "units d"],
    phases: Float[Array, " units"],
    numbers: Float[Array, " numbers"],
    uniform: Float[Array, ""],
) -> Coefficients:
    """Coefficients of `output = bias + weight · x + outer · cos(inner · x + phase) + noise` drawn from their posterior.

    `numbers` are standard normal, `uniform` is one number from 0 to 1. The prior of coefficients is normal with `slack`
    times the noise's variance (the constant's is wide); the smooth part then is a Gaussian process of squared
    exponential kernel, in as many waves. Its length is drawn too. Without a smooth part each row has a variance of its own.
    """
    rows = keep.astype(values.dtype)
    given = parents.astype(values.dtype)
    count = jnp.maximum(given.sum(), 1)
    units = phases.shape[0]
    n = rows.shape[0]
    some = math.sqrt(2 / max(units, 1)) * jnp.minimum(given.sum(), 1)

    def posterior(
        length: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Float[Array, " m"], Float[Array, " m"], Float[Array, ""]]:
        inner = waves * given / (length * jnp.sqrt(count))
        cosines = jnp.cos(values @ inner.T + phases) * some
        columns = jnp.concatenate([jnp.ones_like(values[:, :1]), values * given, cosines], 1) * rows[:, None]
        prior = jnp.concatenate([jnp.full(1, 100.0), jnp.full(given.shape[0] + units, slack)]).astype(
            values.dtype
        )
        precision = jnp.matmul(columns.T, columns, precision="highest") + jnp.diag(1 / prior)
        target = output * rows
        against = jnp.matmul(columns.T, target, precision="highest")
        # The solution for data and prior with noise of their own is a draw from the posterior: no root is needed.
        noise, shaken = rows * numbers[:n], numbers[n : n + prior.shape[0]] / jnp.sqrt(prior)
        if units:
            right = jnp.stack([against, jnp.matmul(columns.T, noise, precision="highest") + shaken], 1)
        else:
            right = jnp.eye(prior.shape[0], dtype=values.dtype)
        solved, log_det = solve_positive(precision, right)
        mean = solved[:, 0] if units else jnp.matmul(solved, against, precision="highest")
        rate = RATE + 0.5 * jnp.maximum(jnp.sum(target**2) - against @ mean, 0)
        shape = (PSEUDO_ROWS + rows.sum()) / 2
        if units:
            shake = solved[:, 1]
        else:
            noise = noise * _own_noise(columns, solved, target - columns @ mean, rate / shape)
            shaken = jnp.matmul(columns.T, noise, precision="highest") + shaken
            shake = jnp.matmul(solved, shaken, precision="highest")
        evidence = -0.5 * (log_det + jnp.sum(jnp.log(prior))) - shape * jnp.log(rate)
        return evidence, mean, shake, rate

    evidence, means, shakes, rates = jax.vmap(posterior)(lengths)
    along = jnp.cumsum(jax.nn.softmax(evidence))
    chosen = jnp.minimum(jnp.sum(along < uniform), lengths.shape[0] - 1)
    # A gamma number of half-integer shape is half a sum of squares of normals, which compiles far faster than jr.gamma.
    fresh = numbers[n + means.shape[1] :]
    squares = jnp.sum(rows * fresh[:n] ** 2) + jnp.sum(fresh[n:] ** 2)
    scale = jnp.sqrt(2 * rates[chosen] / squares)
    drawn = means[chosen] + scale * shakes[chosen]
    d = given.shape[0]
    return Coefficients(
        bias=drawn[0],
        weight=drawn[1 : d + 1] * given,
        inner=(waves * given / (lengths[chosen] * jnp.sqrt(count))),
        phase=phases,
        outer=drawn[d + 1 :] * some,
        scale=scale,
    )


def _own_noise(
    columns: Float[Array, "n m"],
    inverse: Float[Array, "m m"],
    residual: Float[Array, " n"],
    variance: Float[Array, ""],
) -> Float[Array, " n"]:
    """Each row's deviation over the common one, by its residual as if the row had been left out of the fit (HC3).

    A line through what bends or interacts misses some rows by more than others. With one deviation for all rows bands
    would be too narrow there: 90 % ones held 82 % where causes interact, on 1,000 models. Residuals count as far as there
    are more rows than coefficients.
    """
    leverage = jnp.clip(jnp.sum(jnp.matmul(columns, inverse, precision="highest") * columns, -1), 0, 0.9)
    known = 1 - jnp.minimum(leverage.sum() / jnp.maximum(jnp.sum(columns[:, 0]), 1), 1)
    return jnp.sqrt(known * (residual / (1 - leverage)) ** 2 / variance + 1 - known)

"""Causal models drawn from their posterior given the data."""

import math
from typing import Literal

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
from acbo.problem import Problem
from acbo.scms.graphs import topological_order
from acbo.scms.mechanisms import COS, GAUSSIAN, Mechanism, Noise
from acbo.scms.scm import SCM
from jaxworlds.static import config

from .regression import Coefficients, draw_coefficients, numbers_needed

MANY = 64
"""Number of rows above which the smooth part of a score is approximated, and number of cosines that do it."""


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
    graphs = draw_graphs(
        data, key_graph, settings.models, score, problem.knowledge, max_parents=settings.max_parents
    )
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

"""The teacher where sums over all orders are too many, and where models are not linear."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from judging import judge

from acbo.inference import BGe, GaussianProcess, edge_posterior
from acbo.scms import scm_prior
from acbo.surrogate import ModelDraws, benchmark_draws, held_out
from jaxworlds.measuring import measure

Rows = dict[str, dict[str, Any]]
EXACT = 12
"""Variables up to which all orders are summed here."""
NONLINEAR = ("polynomial", "fourier", "tanh")


@eqx.filter_jit
def _edges(data: Any, score: Any, method: str) -> Any:
    """One after the other: the larger ones need much memory."""
    return jax.lax.map(lambda one: edge_posterior(one, score, method=method).edges, data)


def _row(cases: Any, score: Any, method: str) -> tuple[dict[str, Any], Any]:
    count = cases.adjacency.shape[0]
    edges = _edges(cases.data, score, method)
    cost = measure(_edges, cases.data, score, method, repeats=1, min_seconds=0)
    figures = judge(edges, cases.adjacency, cases.possible)
    return {"models": count, **figures, "wall_s": cost.median_s / count, "cpu_s": cost.cpu_s / count}, edges


def at(variables: int, models: int, method: str) -> Rows:
    """The linear score with one method: exact sums, or sampled orders with all candidate parents or with few."""
    cases = held_out(benchmark_draws(variables, 100, 60), models=models)
    row, edges = _row(cases, BGe(scale="data"), method)
    if method != "exact" and variables <= EXACT:
        gap = jnp.abs(edges - _edges(cases.data, BGe(scale="data"), "exact"))
        row |= {"mean gap": float(gap.mean()), "largest gap": float(gap.max())}
    return {f"{method}, {variables} variables": row}


def nonlinear(variables: int, models: int, kind: str, score: str) -> Rows:
    """The linear or the Gaussian-process score, where mechanisms are linear or not."""
    mechanisms = NONLINEAR if kind == "nonlinear" else ("linear",)
    prior = scm_prior("erdos_renyi", mechanisms, "gaussian", variables=(variables, variables))
    cases = held_out(ModelDraws(prior, size=variables, rows=100, observed=60), models=models)
    chosen = BGe(scale="data") if score == "BGe" else GaussianProcess()
    return {f"{score} on {kind} models": _row(cases, chosen, "exact")[0]}

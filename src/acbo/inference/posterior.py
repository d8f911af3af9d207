"""The teacher: posterior of every edge and of every node's parents, exact up to 16 variables."""

import dataclasses
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Int32

from .._limits import require_at_least, require_one_of
from ..data import Dataset, Key, demand_dataset
from .bge import AbstractScore, BGe
from .gp_score import score_named
from .knowledge import Knowledge, check_parent_counts
from .nonlinearity import nonlinearity
from .order_mcmc import OrderSampling, sample_orders
from .parent_sets import (
    Candidates,
    SetTable,
    all_others,
    edges_from_sets,
    log_order_mass,
    log_parent_prior,
    log_total,
    parent_set_posterior,
    screen,
    screening_size,
    set_table,
)

METHODS = ("auto", "exact", "restricted", "order_mcmc")
EXACT_LIMIT = 16
"""Most variables that `method="auto"` sums over exactly: 16 × 2^15 numbers."""
EXACT_LARGEST = 20
"""Most variables that `method="exact"` takes at all."""
_LARGEST = {"exact": EXACT_LARGEST, "order_mcmc": 24}
"""Most variables that a method takes; 24 × 2^23 numbers are the tables of sampled orders."""


class ParentSets(NamedTuple):
    """The posterior of one node's parents."""

    members: Bool[Array, "sets d"]
    probabilities: Float[Array, " sets"]


class Posterior(eqx.Module):
    """Probabilities of edges and of parent sets, and how they were found.

    NaN everywhere says that more variables were live than `limit` has places for.
    """

    edges: Float[Array, "d d"]
    """`[i, j]`: the probability of i → j."""
    log_evidence: Float[Array, ""]
    """log p(data), graphs and parameters integrated out; NaN where orders were sampled."""
    set_probabilities: Float[Array, "nodes sets"]
    """One row per place, in the order of `set_table(candidates, max_parents)`; see `parent_sets`."""
    candidates: Int32[Array, "nodes candidates"]
    """The variables that each place's sets are about."""
    nodes: Int32[Array, " nodes"]
    """The variable at each place."""
    target: Int32[Array, ""]
    spread: Float[Array, ""]
    """Largest distance of one chain's edge probability from the mean of all; 0 for exact sums."""
    method: str = eqx.field(static=True)
    max_parents: int = eqx.field(static=True)

    def parent_sets(self, variable: int | Int[Array, ""]) -> ParentSets:
        """All parent sets of a variable, as rows of members, with their probabilities."""
        table = set_table(self.candidates.shape[-1], self.max_parents)
        here = self.nodes == variable
        place = jnp.argmax(here)
        columns = jax.nn.one_hot(self.candidates[place], self.edges.shape[-1], dtype=jnp.int32)
        members = jnp.matmul(jnp.asarray(table.members, jnp.int32), columns) > 0
        none = jnp.zeros_like(self.set_probabilities[0]).at[0].set(1.0)
        return ParentSets(members, jnp.where(jnp.any(here), self.set_probabilities[place], none))

    def target_parents(self) -> ParentSets:
        """The parent sets of the target."""
        return self.parent_sets(self.target)


class Plan(NamedTuple):
    """All that decides which program runs."""

    method: str
    places: int
    max_parents: int
    score: AbstractScore
    structure_prior: str
    parent_prior: str
    sampling: OrderSampling
    dtype: Any


def edge_posterior(
    dataset: Dataset,
    score: str | AbstractScore = "bge",
    knowledge: Knowledge | None = None,
    max_parents: int | None = None,
    *,
    method: str = "auto",
    limit: int | None = None,
    structure_prior: str = "order",
    parent_prior: str = "size",
    sampling: OrderSampling | None = None,
    key: Key | None = None,
    dtype: Any = None,
) -> Posterior:
    """Posterior of edges and parent sets from observations and interventions.

    - `score`: `"bge"` for linear, `"gp"` for smooth nonlinear models, or `BGe(...)`, `GaussianProcess(...)`. Units of
      measurement do not matter to either. Where a linear score meets effects that bend, a plain call warns and names
      `"gp"`; inside `jit` or `vmap` no warning is possible: ask `acbo.nonlinearity` first.
    - `max_parents`: largest parent set; 5, or 3 with `"gp"`, if not given. A true set that is larger than that
      biases the posterior of its node: allow too many rather than too few.
    - `method`: `"exact"` sums over all orders; `"order_mcmc"` samples them; `"restricted"` samples them with a
      few candidate parents per node. `"auto"` is exact up to 16 variables, else restricted; the result says
      which in `.method`.
    - `limit`: places for live variables, when fewer are live than the data is padded to: cost goes with 2^limit.
    - `structure_prior`: `"order"`, under which a graph weighs as many times as it has orders, or `"uniform"`,
      every graph once (at most 10 places). `parent_prior`: see `log_parent_prior`.
    - `key`: for sampled orders; `jax.random.key(0)` if not given.
    - `dtype`: of the computation, that of the data if not given.

    Dead variables have no parents, no children, and change nothing. May be jitted and vmapped; a plain call is
    compiled once per shape.

        posterior = edge_posterior(data)
        posterior.edges[0, 1], posterior.target_parents()
    """
    plan = plan_for(
        dataset, score, knowledge, max_parents, method, limit, structure_prior, parent_prior, sampling, dtype
    )
    found = posterior_by(plan, dataset, knowledge, key)
    if isinstance(plan.score, BGe):
        _warn_of_bends(dataset, found)
    return found


def posterior_by(
    plan: Plan, dataset: Dataset, knowledge: Knowledge | None = None, key: Key | None = None
) -> Posterior:
    """The posterior of a plan, without a look at whether its score suits the data."""
    return _posterior(dataset, knowledge, jr.key(0) if key is None else key, plan)


def _warn_of_bends(dataset: Dataset, found: Posterior) -> None:
    """Warn where a curve explains what the linear score takes for noise; needs values at hand."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((dataset, found))) or found.edges.ndim != 2:
        return
    share = nonlinearity(dataset, found.edges)
    if not share.any():
        return
    cause, effect = np.unravel_index(np.argmax(share), share.shape)
    count = int((share > 0).sum())
    others = f", and {count - 1} more pairs bend" if count > 1 else ""
    warnings.warn(
        f"`score='bge'` expects straight effects; a curve in variable {cause} explains {share[cause, effect]:.0%} of what a "
        f"line leaves of variable {effect}{others}. Its edges may be missed or reversed: pass `score='gp'`.",
        stacklevel=3,
    )


def plan_for(
    dataset: Dataset,
    score: str | AbstractScore,
    knowledge: Knowledge | None,
    max_parents: int | None,
    method: str,
    limit: int | None,
    structure_prior: str = "order",
    parent_prior: str = "size",
    sampling: OrderSampling | None = None,
    dtype: Any = None,
) -> Plan:
    """The program that these arguments ask for; what they cannot mean is refused."""
    demand_dataset(dataset)
    size = dataset.size
    chosen_score = score_named(score)
    if max_parents is None:
        max_parents = chosen_score.usual_parents
    if knowledge is not None and knowledge.size != size:
        raise ValueError(
            f"`knowledge` must be about the {size} variables of the data, padding included; got "
            f"{knowledge.size}. Pass `size={size}` when making it."
        )
    dtype = _dtype(dataset, dtype)
    chosen, places = _choose(dataset, method, limit)
    sampling = OrderSampling() if sampling is None else sampling
    plan = Plan(chosen, places, max_parents, chosen_score, structure_prior, parent_prior, sampling, dtype)
    _check(plan)
    if knowledge is not None and not isinstance(knowledge.required, Tracer):
        check_parent_counts(knowledge, max_parents, sampling.candidates if chosen == "restricted" else None)
    return plan


def _choose(dataset: Dataset, method: str, limit: int | None) -> tuple[str, int]:
    """The method and the number of places, from shapes, and from the number of live variables where it is known."""
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")
    size = dataset.size
    live = None if isinstance(dataset.live, Tracer) else int(np.sum(np.asarray(dataset.live)))
    if limit is not None:
        require_at_least("limit", limit, 1)
        if live is not None and live > limit:
            raise ValueError(f"`limit` must be at least the number of live variables, {live}; got {limit}.")
    places = size if limit is None else min(limit, size)
    if limit is None and places > EXACT_LIMIT and live is not None and live <= EXACT_LIMIT:
        places = EXACT_LIMIT
    if method == "auto":
        method = "exact" if places <= EXACT_LIMIT else "restricted"
    return method, places


def _check(plan: Plan) -> None:
    require_at_least("max_parents", plan.max_parents, 0)
    most = _LARGEST.get(plan.method, plan.places)
    if plan.places > most:
        raise ValueError(
            f"`method={plan.method!r}` takes at most {most} variables; got {plan.places}. Pass `limit` if fewer are "
            "live, or use `method='restricted'`."
        )
    if plan.method != "exact" and plan.places < 2:
        raise ValueError(
            f"`method={plan.method!r}` needs at least 2 variables; got {plan.places}. Use 'exact'."
        )
    require_one_of("structure_prior", plan.structure_prior, "order", "uniform")
    if plan.structure_prior == "uniform" and plan.method != "exact":
        raise ValueError(
            f"`structure_prior='uniform'` needs `method='exact'`; got {plan.method!r}. Use the order prior."
        )


def _dtype(dataset: Dataset, dtype: Any) -> Any:
    wanted = jnp.dtype(dataset.values.dtype if dtype is None else dtype)
    if wanted not in (jnp.dtype("float32"), jnp.dtype("float64")):
        raise ValueError(
            f"`dtype` must be float32 or float64; got {wanted}. Half precision is not safe here."
        )
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(
            f"`dtype={wanted}` needs 64-bit numbers; call `jax.config.update('jax_enable_x64', True)`."
        )
    return wanted


@eqx.filter_jit
def _posterior(dataset: Dataset, knowledge: Knowledge | None, key: Key, plan: Plan) -> Posterior:
    data, known, nodes = compact(dataset, knowledge, plan)
    key_screen, key_orders = jr.split(key)
    candidates = candidate_parents(data, known, key_screen, plan)
    prior, scores, table = set_scores(data, known, candidates, plan.max_parents, plan)
    spread = jnp.zeros((), plan.dtype)
    if plan.method == "exact":
        sets, total = parent_set_posterior(scores, table, plan.structure_prior)
        if known is None and plan.structure_prior == "order":
            evidence = total - log_order_mass(plan.max_parents, data.live, plan.parent_prior, plan.dtype)
        else:
            evidence = total - log_total(prior, table, plan.structure_prior)
    else:
        sample = sample_orders(scores, candidates, table, key_orders, plan.sampling)
        sets, evidence = sample.sets, jnp.full((), jnp.nan, plan.dtype)
        each = jax.vmap(lambda one: edges_from_sets(one, candidates, table))(sample.chains)
        spread = jnp.max(jnp.abs(each - jnp.mean(each, 0)))
    edges = jnp.minimum(edges_from_sets(sets, candidates, table), 1.0)  # rounding of the sums
    full = jnp.zeros((dataset.size, dataset.size), plan.dtype).at[nodes[:, None], nodes[None, :]].set(edges)
    lost = jnp.sum(dataset.live) > plan.places

    def visible(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.where(lost, jnp.nan, x)

    return Posterior(
        edges=visible(full),
        log_evidence=visible(evidence),
        set_probabilities=visible(sets),
        candidates=nodes[candidates.index],
        nodes=nodes,
        target=dataset.target,
        spread=visible(spread),
        method=plan.method,
        max_parents=plan.max_parents,
    )


def set_scores(
    data: Dataset, known: Knowledge | None, candidates: Candidates, max_parents: int, plan: Plan
) -> tuple[Float[Array, "nodes sets"], Float[Array, "nodes sets"], SetTable]:
    """Log prior, log prior plus score, and the sets they are of."""
    table = set_table(candidates.index.shape[1], max_parents)
    prior = log_parent_prior(candidates, table, data.live, plan.parent_prior, plan.dtype, known)
    # A dead node explains nothing and is explained by nothing.
    scores = jnp.where(data.live[:, None], plan.score.log_scores(data, candidates, table), 0.0)
    return prior, prior + scores, table


def candidate_parents(data: Dataset, known: Knowledge | None, key: Key, plan: Plan) -> Candidates:
    """Candidate parents: all others, or by what each node would choose alone, and again given sampled orders."""
    if plan.method != "restricted":
        return all_others(data.live)
    count = min(plan.sampling.candidates, plan.places - 1)
    size = min(plan.max_parents, screening_size(plan.places - 1, plan.score.screening_sets))
    # A node may have more required parents than a screened set can hold: they are candidates at once.
    required = None if known is None else known.required
    free = known and eqx.tree_at(lambda k: k.required, known, jnp.zeros_like(known.required))
    _, every, table = set_scores(data, free, all_others(data.live), size, plan)
    found = screen(every, table, data.live, count, required)
    walk = dataclasses.replace(plan.sampling, sweeps=plan.sampling.burn_in + 1)
    for key_round in jr.split(key, plan.sampling.rounds):
        _, scores, few = set_scores(data, known, found, plan.max_parents, plan)
        ranks = sample_orders(scores, found, few, key_round, walk).ranks
        found = screen(every, table, data.live, count, required, ranks)
    return found


def compact(
    dataset: Dataset, known: Knowledge | None, plan: Plan
) -> tuple[Dataset, Knowledge | None, Int32[Array, " nodes"]]:
    """The data with its live variables in the first places, and the variable at each place."""
    values = dataset.values.astype(plan.dtype)
    if plan.places == dataset.size:
        nodes = jnp.arange(dataset.size, dtype=jnp.int32)
        return eqx.tree_at(lambda data: data.values, dataset, values), known, nodes
    nodes = jnp.argsort(~dataset.live, stable=True)[: plan.places].astype(jnp.int32)
    data = Dataset(
        values[:, nodes], dataset.intervened[:, nodes], dataset.rows, dataset.live[nodes], dataset.target
    )
    if known is not None:
        known = jax.tree.map(lambda matrix: matrix[nodes[:, None], nodes[None, :]], known)
    return data, known, nodes

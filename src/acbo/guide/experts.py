"""Examples with an expert's posterior of the target's parents, by default the exact one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from acbo.data import Dataset, bucket
from acbo.inference import ParentSets
from acbo.inference.posterior import plan_for, posterior_by

from .examples import Difficulty, ParentSetPosterior, TrainingBatch, TrainingExample

Expert = Callable[[Dataset, int], Any]
"""`expert(dataset, max_parents)`: members `[sets, d]` of the target's parent sets and their probabilities `[sets]`, or a
mapping from frozensets of names."""


def exact_expert(data: Dataset, max_parents: int = 3) -> ParentSets:
    """The exact Bayesian posterior of the target's parents, whatever the units; above 16 variables orders are sampled."""
    limit = bucket(max(int(np.asarray(data.live).sum()), 1))
    # The labels of a linear teacher, on bent models too: training asks for thousands and wants no warning from each.
    plan = plan_for(data, "bge", None, max_parents, method="auto", limit=limit)
    return posterior_by(plan, data).target_parents()


def create_training_batch(
    samples: Dataset | Sequence[Dataset],
    *,
    variable_order: Sequence[str] | None = None,
    true_parents: Sequence[str] | None = None,
    problem_difficulty: Difficulty = "medium",
    max_parent_size: int = 3,
    expert: Expert = exact_expert,
) -> TrainingBatch:
    """Examples from datasets, each with the expert's posterior of its target's parents.

    - `samples`: a dataset, for example of `collect_observational_data`, or several.
    - `variable_order`: names of the live variables; by default X0, X1, …
    - `true_parents`: where they are known, the expert's accuracy is the probability that it gives them; otherwise it is
      that of its likeliest set.
    """
    given = [samples] if isinstance(samples, Dataset) else list(samples)
    if not given:
        raise ValueError("`samples` must hold at least one dataset; got none.")
    return TrainingBatch(
        tuple(
            _example(data, variable_order, true_parents, problem_difficulty, max_parent_size, expert)
            for data in given
        )
    )


def _example(
    data: Dataset,
    order: Sequence[str] | None,
    parents: Sequence[str] | None,
    difficulty: Difficulty,
    max_size: int,
    expert: Expert,
) -> TrainingExample:
    live, rows = np.flatnonzero(data.live), np.flatnonzero(data.rows)
    names = [f"X{v}" for v in range(len(live))] if order is None else list(order)
    if len(names) != len(live):
        raise ValueError(
            f"`variable_order` must name the {len(live)} live variables; got {len(names)} names."
        )
    target = int(np.flatnonzero(live == int(data.target))[0])
    posterior = _by_name(data, expert(data, max_size), live, names)
    truth = None if parents is None else frozenset(parents)
    likeliest = posterior.top_k_sets[0][1]
    values, was_set = (np.asarray(part)[np.ix_(rows, live)] for part in (data.values, data.intervened))
    marks = np.broadcast_to(np.arange(len(live)) == target, values.shape)
    return TrainingExample(
        np.stack([values, was_set, marks], axis=-1).astype(np.float32),
        names[target],
        names,
        posterior,
        likeliest if truth is None else float(posterior.parent_set_probs.get(truth, 0.0)),
        {} if truth is None else {"parents": sorted(truth)},
        difficulty,
    )


def _by_name(
    data: Dataset, opinion: Any, live: Int[np.ndarray, " live"], names: Sequence[str]
) -> ParentSetPosterior:
    """An expert's sets by name."""
    place = {int(v): name for v, name in zip(live, names, strict=True)}
    target = place[int(data.target)]
    if isinstance(opinion, ParentSetPosterior):
        return opinion
    if isinstance(opinion, Mapping):
        return ParentSetPosterior(target, opinion)
    members, probabilities = (np.asarray(part) for part in opinion)
    # Sets with padding among their members, or met before, have no probability of their own.
    table: dict[frozenset[str], float] = {}
    for row, probability in zip(members, probabilities.astype(float), strict=True):
        chosen = np.flatnonzero(row).tolist()
        if set(chosen) <= set(place):
            named = frozenset(place[v] for v in chosen)
            table[named] = table.get(named, 0.0) + probability
    total = sum(table.values())
    return ParentSetPosterior(target, {named: probability / total for named, probability in table.items()})

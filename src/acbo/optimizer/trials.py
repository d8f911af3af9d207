"""Results of experiments without any model: groups of similar ones, and contradictions with the observations."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .state import Levels, State

NEAR = 0.06
"""Experiments are alike if they set the same variables, each within this part of its range."""
RARE = 0.01
"""Probability below which an outcome contradicts a prediction; shared by all groups of experiments."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """Similar experiments: their values, their number, and mean and deviation of the target."""

    do: Levels
    count: int
    mean: float
    deviation: float
    """Of single measurements; 0 for a single one."""

    @classmethod
    def of(cls, do: Levels, values: Float[np.ndarray, " n"]) -> "Tried":
        deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return cls(do, len(values), float(values.mean()), deviation)


def tried_groups(state: State) -> list[Tried]:
    """Groups of alike experiments, in the order of their first one, after which each is named."""
    found: list[list[tuple[Levels, float]]] = []
    for row in state.rows:
        if row.do:
            do = state.levels(row)
            near = next((group for group in found if alike(state, group[0][0], do)), None)
            if near is None:
                found.append(near := [])
            near.append((do, row.values[state.settings.goal]))
    return [Tried.of(group[0][0], np.array([value for _, value in group])) for group in found]


def alike(state: State, first: Levels, second: Levels) -> bool:
    """True if two experiments set the same variables to nearly the same values."""

    def near(name: str) -> bool:
        variable = state.settings.variable(name, "do")
        reach = 0.0 if variable.levels is not None else NEAR * variable.span
        apart = abs(first[name] - second[name])
        return bool(apart <= reach + 1e-9 * (variable.span or abs(first[name])))

    return set(first) == set(second) and all(map(near, first))


@dataclasses.dataclass(frozen=True)
class Contradiction:
    """Experiments whose mean contradicts models of the observations alone."""

    tried: Tried
    low: float
    high: float
    """Upper end of the 90 % range that models of the observations expect."""


def contradiction(
    tried: Tried, effects: Float[np.ndarray, " models"], variance: float, groups: int
) -> Contradiction | None:
    """Compare the mean of alike experiments with the expectations of models of the observations."""
    error = np.sqrt(max(variance, tried.deviation**2, 1e-30) / tried.count)
    scores = ((tried.mean - effects) / error).tolist()
    below = sum(0.5 * math.erfc(-score / math.sqrt(2)) for score in scores) / len(scores)
    if 2 * min(below, 1 - below) >= RARE / groups:
        return None
    low, high = np.quantile(effects, [0.05, 0.95]).tolist()
    return Contradiction(tried, low, high)

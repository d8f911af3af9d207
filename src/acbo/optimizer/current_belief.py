"""The current belief of an optimization in the user's units: edges, effects with bands, progress, contradictions."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from acbo.beliefs import AbstractBelief, BeliefSettings, Effects, score_for
from acbo.data import Dataset, Key
from acbo.inference import AbstractScore
from acbo.inference.gp_score import score_named
from acbo.problem import Problem
from acbo.scms.scm import SCM
from acbo.strategies import AbstractStrategy

from .arrays import LEAST, Scaling, action_arrays, data_of, scaled_problem, scaling_of
from .programs import (
    TargetForecast,
    edge_probabilities,
    effect_bands,
    model_means,
    outcome_predictions,
    strategy_belief,
    strategy_models,
)
from .state import Levels, Row, Settings, State
from .variables import Variable

BAND = 0.9
"""Probability with which the expected target is believed to lie within a band."""
PLACES = 25
"""Values of a range at which effects are shown."""
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


@dataclasses.dataclass(frozen=True)
class Curve:
    """E[target | do(variable = x)] for values of one variable, and what its experiments gave."""

    name: str
    x: Float[np.ndarray, " x"]
    mean: Float[np.ndarray, " x"]
    low: Float[np.ndarray, " x"]
    high: Float[np.ndarray, " x"]
    tried: Float[np.ndarray, "experiments 2"]
    """Value and measured target of each experiment that set this variable alone."""
    discrete: bool


@dataclasses.dataclass(frozen=True)
class Progress:
    """The best action so far, as currently expected, against the cost; the first entry is doing nothing."""

    cost: Float[np.ndarray, " n"]
    best: Float[np.ndarray, " n"]
    measured: Float[np.ndarray, " n"]
    """The target in each row; the mean of the observations for the first."""


class CurrentBelief:
    """The belief given one state; each part is computed on first use."""

    def __init__(self, state: State, strategy: AbstractStrategy) -> None:
        self.state = state
        self.strategy = strategy

    @property
    def settings(self) -> Settings:
        return self.state.settings

    @functools.cached_property
    def scaling(self) -> Scaling:
        return scaling_of(self.state)

    @functools.cached_property
    def data(self) -> Dataset:
        return data_of(self.state, self.scaling)

    @functools.cached_property
    def problem(self) -> Problem:
        return scaled_problem(self.state, self.scaling)

    @property
    def score(self) -> AbstractScore:
        """The parent-set score with which strategies draw graphs."""
        return score_named(score_for(belief_settings(self.settings, self.strategy), len(self.data.rows)))

    @functools.cached_property
    def belief(self) -> AbstractBelief:
        """The one belief about the target, behind recommendations, explanations, pictures and the report."""
        return strategy_belief(self.strategy, self.problem, self.data, *self._key_and_settings)

    @functools.cached_property
    def models(self) -> SCM:
        """Causal models as they are believed: those behind the belief, where it has any."""
        found = getattr(self.belief, "models", None)
        return self._models_given(self.data) if found is None else found

    def _models_given(self, data: Dataset) -> SCM:
        return strategy_models(self.strategy, self.problem, data, *self._key_and_settings)

    @property
    def _key_and_settings(self) -> tuple[Key, BeliefSettings]:
        return key_for(self.settings, "beliefs"), belief_settings(self.settings, self.strategy)

    @functools.cached_property
    def edges(self) -> Float[np.ndarray, "d d"]:
        """Probability of each edge between the variables, `[i, j]` for i → j."""
        d = len(self.settings.variables)
        if self.settings.graph.known:
            return self.settings.graph.matrix(self.settings.names).astype(float)
        found = edge_probabilities(self.data, self.problem, self.score)
        return np.clip(np.asarray(found, float)[:d, :d], 0.0, 1.0)

    def rows(self, actions: Sequence[Mapping[str, float]]) -> Float[np.ndarray, "models actions d"]:
        """The mean of every variable under each action, in each causal model, in the user's units."""
        found = model_means(self.models, *action_arrays(self.settings, self.scaling, actions))
        d = len(self.settings.variables)
        return self.scaling.outside(np.asarray(jax.device_get(found), float)[:, : len(actions), :d])

    def forecast(self, actions: Sequence[Mapping[str, float]]) -> TargetForecast:
        """E[target | do] of each action in the user's units, with the bounds of its band."""
        mask, value = action_arrays(self.settings, self.scaling, actions)
        found = jax.device_get(effect_bands(self.belief, mask, value, BAND))
        count, spread = len(actions), self.scaling.spread[self.settings.goal]

        def outside(values: Float[np.ndarray, "*any"]) -> Any:  # of NumPy: double precision on the host
            return self.scaling.target(self.settings, values[..., :count])

        effects = Effects(outside(found.effects.mean), spread * found.effects.deviation[..., :count])
        return TargetForecast(effects, *(outside(part) for part in found[1:]))

    def fantasies(self) -> tuple[Row, ...]:
        """Rows that the pending experiments are expected to give."""
        actions = [pending.do for pending in self.state.pending]
        if not actions:
            return ()
        names = self.settings.names
        means = self.rows(actions).mean(0)
        means[:, self.settings.goal] = self.forecast(actions).expected
        return tuple(
            Row(tuple(do.get(name, float(x)) for name, x in zip(names, row, strict=True)), tuple(do))
            for do, row in zip(actions, means, strict=True)
        )

    @functools.cached_property
    def groups(self) -> list[Tried]:
        """Experiments that set the same variables to nearly the same values, with the mean of what they gave."""
        return tried_groups(self.state)

    @functools.cached_property
    def idle_outcome(self) -> Tried | None:
        """The target in rows where nothing was set; None without such a row."""
        values = np.array([row.values[self.settings.goal] for row in self.state.observations], float)
        return Tried.of({}, values) if len(values) else None

    @functools.cached_property
    def contradictions(self) -> list[Contradiction]:
        """Experiments that contradict models of the observations alone."""
        if not self.groups or len(self.state.observations) < LEAST:
            return []
        free = self.data.rows & ~self.data.intervened.any(1)
        models = self._models_given(eqx.tree_at(lambda d: d.rows, self.data, free))
        actions = action_arrays(self.settings, self.scaling, [group.do for group in self.groups])
        effects, variance = jax.device_get(outcome_predictions(models, *actions))
        spread = self.scaling.spread[self.settings.goal]
        effects = self.scaling.target(self.settings, effects)
        return [
            found
            for at, group in enumerate(self.groups)
            if (found := contradiction(group, effects[:, at], spread**2 * variance[at], len(self.groups)))
        ]

    @functools.cached_property
    def curves(self) -> list[Curve]:
        """The effect of every variable that can be set, over its range or levels."""
        settable = self.settings.settable
        grids = [np.array(grid_of(v)) for v in settable]
        actions = [{v.name: float(x)} for v, grid in zip(settable, grids, strict=True) for x in grid]
        found = self.forecast(actions)
        cuts = np.cumsum([len(grid) for grid in grids])[:-1]
        lines = np.split(np.stack([found.expected, found.low, found.high]), cuts, axis=1)
        return [self._curve(v, grid, line) for v, grid, line in zip(settable, grids, lines, strict=True)]

    def _curve(self, v: Variable, grid: Float[np.ndarray, " x"], lines: Float[np.ndarray, "3 x"]) -> Curve:
        at, goal = self.settings.names.index(v.name), self.settings.goal
        tried = [(row.values[at], row.values[goal]) for row in self.state.rows if row.do == (v.name,)]
        points, (mean, low, high) = np.array(tried, float).reshape(-1, 2), lines
        return Curve(v.name, grid, mean, low, high, points, v.levels is not None)

    @functools.cached_property
    def progress(self) -> Progress:
        """Best expected target so far against the cost of the experiments made."""
        state, goal = self.state, self.settings.goal
        actions: list[Levels] = [{}, *(state.levels(row) for row in state.made)]
        means = np.asarray(self.forecast(actions).expected)
        best = (np.minimum if self.settings.objective == "min" else np.maximum).accumulate(means)
        cost = np.cumsum([self.settings.price(do) for do in actions])
        measured = np.array([means[0], *(row.values[goal] for row in state.made)])
        return Progress(cost.astype(float), best, measured)


def grid_of(variable: Variable) -> list[float]:
    """The levels of a variable, or evenly spaced values from end to end."""
    if variable.levels is not None:
        return list(variable.levels)
    assert variable.low is not None
    assert variable.high is not None
    return [*np.linspace(variable.low, variable.high, PLACES)[:-1].tolist(), variable.high]


def belief_settings(settings: Settings, strategy: AbstractStrategy | None = None) -> BeliefSettings:
    """Settings of the belief: the strategy's own, else linear or smooth as the user says."""
    own = getattr(strategy, "settings", None)
    if isinstance(own, BeliefSettings):
        return own
    return BeliefSettings(mechanism="smooth" if settings.mechanism == "smooth" else "linear")


def key_for(settings: Settings, use: str, number: int = 0) -> Key:
    """The random key of one use; it depends on the seed, the use and the number only."""
    uses = ("choose", "recommend", "beliefs")
    return jr.fold_in(jr.fold_in(jr.key(settings.seed), uses.index(use)), number)

"""Answers with names: the recommendation, the reason for an experiment, and the belief about the graph."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from acbo.answers import likely_edges
from acbo.optional import optional_package

from .current_belief import CurrentBelief, Tried, alike
from .programs import TargetForecast
from .state import Levels, Settings

if TYPE_CHECKING:
    import pandas as pd

OPEN = 0.05
"""Edges with a probability from here to one minus this are open."""
TELLING = 0.02
"""Least share of a prediction's variance that counts as telling about an edge."""
TIED = 0.02
"""Part of an effect's standard deviation by which it may fall short of a curve's best value and be no worse."""


@dataclasses.dataclass(frozen=True, repr=False)
class Advice:
    """A recommended action and its expected target, with bounds that hold it with probability 0.9."""

    do: Levels
    """Values by name; empty where it is best to leave everything alone."""
    expected: float
    low: float
    high: float
    target: str
    notes: tuple[str, ...] = ()
    """Sentences about experiments that contradict the strategy or the observations; usually none."""

    def as_series(self) -> "pd.Series":
        """The values and the expectation as one row of a table."""
        facts = {**self.do, f"expected {self.target}": self.expected, "low": self.low, "high": self.high}
        return optional_package("pandas", "`as_series`").Series(facts, name="advice", dtype=float)

    def __repr__(self) -> str:
        said = (
            f"{action_text(self.do)}: {self.target} {self.expected:.4g} ({self.low:.4g} to {self.high:.4g})"
        )
        return "\n".join([said, *self.notes])


@dataclasses.dataclass(frozen=True, repr=False)
class GraphBelief:
    """Belief about the graph: `edges` is a square table, row causes column; `parents` are direct causes of the target."""

    edges: "pd.DataFrame"
    target: str

    @property
    def parents(self) -> "pd.Series":
        """Probability of each variable to be a direct cause of the target, the likeliest first."""
        column: Any = self.edges[self.target].drop(self.target)
        return column.sort_values(ascending=False, kind="stable").rename(f"causes {self.target}")

    def likely(self, threshold: float = 0.5) -> list[tuple[str, str, float]]:
        """(cause, effect, probability) of every edge above the threshold, the likeliest first."""
        return likely_edges(self.edges.to_numpy(), list(self.edges.columns), threshold)

    def __repr__(self) -> str:
        lines = [f"{a} → {b}  {p:.2f}" for a, b, p in self.likely(OPEN)]
        return "\n".join(lines) or "no edge is likely"


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """Why an experiment is worth making; `print` shows sentences."""

    experiment: int | None
    do: Levels
    cost: float
    target: str
    expected: float
    low: float
    high: float
    nothing: float
    """Expected target if nothing is set."""
    chance_best: float
    """Probability that it is the best of itself, every variable's best value alone, and doing nothing."""
    spread: float
    """Standard deviation of its expected target, as it is believed: what it can tell."""
    decides: "pd.DataFrame"
    """Open edges that it would test best: current probability, and share of the outcome's variance."""
    alternatives: "pd.DataFrame"
    """The best value of each variable alone, with expected target, band, chance to be best, and cost."""
    notes: tuple[str, ...] = ()
    """Sentences about experiments that contradict the observations; usually none."""

    def __repr__(self) -> str:
        heading = "Experiment" if self.experiment is None else f"Experiment {self.experiment}"
        lines = [
            f"{heading}: {action_text(self.do)} (cost {self.cost:g}).",
            f"Expected {self.target} {self.expected:.4g}, between {self.low:.4g} and {self.high:.4g} with probability 0.9; "
            f"{self.nothing:.4g} if nothing is set.",
            f"With probability {self.chance_best:.2f} it is the best that is known.",
        ]
        if len(self.decides):
            edges = ", ".join(f"{edge} (now {p:.2f})" for edge, p in self.decides["probability"].items())
            lines.append(f"Its outcome would tell about {edges}.")
        else:
            lines.append("No open edge hangs on its outcome.")
        values = zip(
            self.alternatives.index, self.alternatives["value"], self.alternatives["expected"], strict=True
        )
        other = [(name, value, expected) for name, value, expected in values if {name: value} != self.do]
        if other:
            name, value, expected = other[0]
            said = action_text({}) if name == NOTHING else action_text({str(name): float(value)})
            lines.append(f"Best of the others: {said}, {self.target} {expected:.4g}.")
        lines.extend(self.notes)
        return "\n".join(lines)


NOTHING = "(nothing)"


def action_text(do: Mapping[str, float]) -> str:
    """An action as text.

    >>> action_text({"dose": 3.0})
    'set dose = 3'
    """
    return "set " + ", ".join(f"{name} = {value:.6g}" for name, value in do.items()) if do else "set nothing"


def graph_belief(current_belief: CurrentBelief) -> GraphBelief:
    """Edge probabilities as a table with names."""
    names, pandas = list(current_belief.settings.names), optional_package("pandas", "`posterior`")
    frame = pandas.DataFrame(current_belief.edges, index=names, columns=names)
    return GraphBelief(frame, current_belief.settings.target)


def explain(
    current_belief: CurrentBelief, do: Mapping[str, float], experiment: int | None = None
) -> Explanation:
    """Expected outcome of an experiment, the edges it would test, and its alternatives."""
    settings, pandas = current_belief.settings, optional_package("pandas", "`explain`")
    sign, do = settings.sign, dict(do)
    best_of_each = _best_of_each(current_belief, do)
    actions: list[Levels] = [{}, *best_of_each]
    listed = len(actions)
    if do not in actions:
        actions.append(do)
    mine = actions.index(do)
    forecast = current_belief.forecast(actions)
    mean, low, high = (np.asarray(part, float) for part in forecast[1:])
    winner = np.argmin(sign * _draws(forecast, actions), axis=1)
    chance = [float((winner == at).mean()) for at in range(len(actions))]
    effects = forecast.effects
    spread = np.sqrt(effects.mean[:, mine].var() + (effects.deviation[:, mine] ** 2).mean())
    table = pandas.DataFrame(
        {
            "value": [float("nan"), *(next(iter(action.values())) for action in best_of_each)],
            "expected": mean[:listed],
            "low": low[:listed],
            "high": high[:listed],
            "chance_best": chance[:listed],
            "cost": [settings.price(action) for action in actions[:listed]],
        },
        index=pandas.Index([NOTHING, *(curve.name for curve in current_belief.curves)], name="variable"),
    )
    ranked = table.iloc[np.argsort(sign * table["expected"].to_numpy(), kind="stable")]
    return Explanation(
        experiment=experiment,
        do=do,
        cost=settings.price(do),
        target=settings.target,
        expected=float(mean[mine]),
        low=float(low[mine]),
        high=float(high[mine]),
        nothing=float(mean[0]),
        chance_best=chance[mine],
        spread=float(spread),
        decides=_decides(current_belief, current_belief.rows([do])[:, 0], do, pandas),
        alternatives=ranked,
        notes=contradiction_notes(current_belief),
    )


def _best_of_each(current_belief: CurrentBelief, do: Levels) -> list[Levels]:
    """The best value of every variable alone: of its curve, or that of `do`, which may lie between the curve's values."""
    sign, curves = current_belief.settings.sign, current_belief.curves
    best: list[Levels] = [{curve.name: float(curve.x[np.argmin(sign * curve.mean)])} for curve in curves]
    for at, one in enumerate(best):
        if one.keys() == do.keys() and one != do:
            found = current_belief.forecast([one, do])
            allowed = TIED * float(np.asarray(found.effects.spread)[1])
            if sign * float(found.expected[1] - found.expected[0]) <= allowed:
                best[at] = do
    return best


def bounds(current_belief: CurrentBelief, do: Levels) -> tuple[Float[np.ndarray, " 1"], ...]:
    """Lower bound, expectation and upper bound of the target under an action."""
    found = current_belief.forecast([do])
    return np.asarray(found.low), np.asarray(found.expected), np.asarray(found.high)


REPEATS = 16
"""Joint draws of the remaining uncertainty, for each draw of the belief."""


def _draws(forecast: TargetForecast, actions: list[Levels]) -> Float[np.ndarray, "draws actions"]:
    """Draws of the expected target, actions beside each other: what is open about one is so for all that set the same."""
    effects = forecast.effects
    sets = [frozenset(action) for action in actions]
    column = [sets.index(one) for one in sets]
    normals = np.random.default_rng(0).standard_normal((REPEATS, len(effects.mean), len(actions)))
    return np.concatenate(effects.mean + effects.deviation * normals[..., column])


def contradiction_notes(current_belief: CurrentBelief) -> tuple[str, ...]:
    """A sentence for every group of experiments that came out as no model of the observations alone expects."""
    settings = current_belief.settings
    target, bent = settings.target, ""
    if settings.mechanism == "linear":
        bent = " or an effect that bends (`mechanism='smooth'`)"
    said = []
    for one in current_belief.contradictions:
        beyond = _observed_range(current_belief, one.tried.do)
        why = (
            f"Observations have {beyond}, so their models only extrapolate."
            if beyond
            else f"A hidden cause of {' and '.join([*one.tried.do, target])}{bent} would explain it."
        )
        said.append(
            f"Experiments contradict the observations: {action_text(one.tried.do)} gave {target} {one.tried.mean:.4g} "
            f"({_times(one.tried.count)}); models of the observations alone expect {one.low:.4g} to {one.high:.4g}. {why} The "
            "experiments count."
        )
    return tuple(said)


def _observed_range(current_belief: CurrentBelief, do: Levels) -> str:
    """Ranges of the observations for variables set far outside them, as text; empty if there are none."""
    observed = np.array([row.values for row in current_belief.state.observations], float)
    found = []
    for name, level in do.items():
        values = observed[:, current_belief.settings.names.index(name)]
        low, high = float(values.min()), float(values.max())
        if max(low - level, level - high) > high - low:
            found.append(
                f"{name} {low:.4g} alone" if low == high else f"{name} from {low:.4g} to {high:.4g} alone"
            )
    return " and ".join(found)


def _times(count: int) -> str:
    return "1 experiment" if count == 1 else f"mean of {count} experiments"


def refuting_experiments(current_belief: CurrentBelief, do: Levels) -> Tried | None:
    """Experiments like this action that came out worse than doing nothing, by a standard error or more."""
    nothing = current_belief.idle_outcome
    near = [group for group in current_belief.groups if alike(current_belief.state, group.do, do)]
    if nothing is None or not near:
        return None
    count = sum(group.count for group in near)
    mean = sum(group.count * group.mean for group in near) / count
    error = nothing.deviation * np.sqrt(1 / count + 1 / nothing.count)
    worse = current_belief.settings.sign * (mean - nothing.mean) > error
    return Tried(do, count, mean, max(group.deviation for group in near)) if worse else None


def check_advice(
    current_belief: CurrentBelief, do: Levels, proposed: Levels | None
) -> tuple[Levels, tuple[str, ...]]:
    """Replace an action that the experiments or the belief contradict; returns the action and notes that say why.

    `proposed` is the recommendation of a trained network alone.
    """
    settings = current_belief.settings
    target, sign = settings.target, settings.sign
    notes: list[str] = []
    against = refuting_experiments(current_belief, do)
    tried = [group.do for group in current_belief.groups if can_be_set(settings, group.do)]
    tried = [other for other in tried if refuting_experiments(current_belief, other) is None]
    actions: list[Levels] = [do, {}, *tried]
    expected = sign * np.asarray(current_belief.forecast(actions).expected)
    if against is not None or expected[0] > expected[1] + 1e-9 * (1 + abs(expected[1])):
        best = 1 + int(np.argmin(expected[1:]))
        why = (
            _refusal(current_belief, against)
            if against is not None
            else f"the strategy proposed to {action_text(do)}, of which {target} {sign * expected[0]:.4g} is expected and "
            f"{sign * expected[1]:.4g} if nothing is set"
        )
        do = actions[best]
        notes.append(f"Advice rests on what was measured: {why}.")
    elif proposed is not None and not same(current_belief, proposed, do):
        found = refuting_experiments(current_belief, proposed)
        if found is not None:
            notes.append(f"Advice rests on what was measured: {_refusal(current_belief, found)}.")
    return do, (*notes, *contradiction_notes(current_belief))


def _refusal(current_belief: CurrentBelief, against: Tried) -> str:
    nothing, target = current_belief.idle_outcome, current_belief.settings.target
    assert nothing is not None
    return (
        f"the strategy's model alone says to {action_text(against.do)}, but that gave {target} {against.mean:.4g} "
        f"({_times(against.count)}), worse than the {nothing.mean:.4g} of rows in which nothing was set"
    )


def same(current_belief: CurrentBelief, first: Levels, second: Levels) -> bool:
    """True for two actions that are nearly the same."""
    return alike(current_belief.state, first, second)


def can_be_set(settings: Settings, do: Levels) -> bool:
    """True if all of this may be set at once: rows may hold experiments that were made elsewhere."""
    settable = {v.name: v for v in settings.settable}
    return len(do) <= settings.max_simultaneous and all(
        name in settable and settable[name].low - 1e-9 <= level <= settable[name].high + 1e-9  # pyright: ignore[reportOptionalOperand]
        for name, level in do.items()
    )


def _decides(
    current_belief: CurrentBelief, rows: Float[np.ndarray, "models d"], do: Mapping[str, float], pandas: Any
) -> "pd.DataFrame":
    """Open edges on which the expected outcome hangs most."""
    names = current_belief.settings.names
    d = len(names)
    graphs = np.asarray(current_belief.models.adjacency)[:, :d, :d]
    free = np.array([name not in do for name in names])
    noise = (np.asarray(current_belief.models.noise.scale)[:, :d] * current_belief.scaling.spread) ** 2
    variance = rows.var(0) + noise.mean(0)
    found = []
    for i, j in np.argwhere((graphs.mean(0) > OPEN) & (graphs.mean(0) < 1 - OPEN)).tolist():
        there = graphs[:, i, j]
        p = there.mean()
        # The variance between the means of models with the edge and of models without it.
        between = p * (1 - p) * (rows[there].mean(0) - rows[~there].mean(0)) ** 2
        share = float(np.max(between[free] / variance[free], initial=0.0))
        if share > TELLING:
            found.append((f"{names[i]} → {names[j]}", float(p), share))
    found.sort(key=lambda edge: -edge[2])
    index = pandas.Index([edge for edge, *_ in found[:5]], name="edge")
    numbers = np.array([rest for _, *rest in found[:5]], float).reshape(-1, 2)
    return pandas.DataFrame(numbers, index=index, columns=["probability", "share"])

"""Answers for people: what to do, why this experiment, and what is believed of the graph."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from acbo.answers import likely_edges
from acbo.scms.interop import friend

from .believed import BAND, Believed
from .state import Levels

if TYPE_CHECKING:
    import pandas as pd

OPEN = 0.05
"""Edges with a probability from here to one minus this are open."""
TELLING = 0.02
"""Least share of a prediction's variance that counts as telling about an edge."""


@dataclasses.dataclass(frozen=True, repr=False)
class Advice:
    """What to set, and what target to expect: its mean, and bounds that hold it with a probability of 0.9."""

    do: Levels
    """Values by name; empty where it is best to leave everything alone."""
    expected: float
    low: float
    high: float
    target: str

    def as_series(self) -> "pd.Series":
        """The values and the expectation as one row of a table."""
        facts = {**self.do, f"expected {self.target}": self.expected, "low": self.low, "high": self.high}
        return friend("pandas", "`as_series`").Series(facts, name="advice", dtype=float)

    def __repr__(self) -> str:
        return f"{written(self.do)}: {self.target} {self.expected:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclasses.dataclass(frozen=True, repr=False)
class GraphBelief:
    """Who causes what: `edges` is a square table, row causes column; `parents` are direct causes of the target."""

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
    """Why an experiment is worth making; `print` says it in words."""

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
    """Standard deviation of its expected target over the models that are believed: what it can tell."""
    decides: "pd.DataFrame"
    """Open edges about which it tells most: probability now, and the share of the outcome's variance they make."""
    alternatives: "pd.DataFrame"
    """The best value of each variable alone, with expected target, band, chance to be best, and cost."""

    def __repr__(self) -> str:
        heading = "Experiment" if self.experiment is None else f"Experiment {self.experiment}"
        lines = [
            f"{heading}: {written(self.do)} (cost {self.cost:g}).",
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
            said = written({}) if name == NOTHING else written({str(name): float(value)})
            lines.append(f"Best of the others: {said}, {self.target} {expected:.4g}.")
        return "\n".join(lines)


NOTHING = "(nothing)"


def written(do: Mapping[str, float]) -> str:
    """What is set, in words.

    >>> written({"dose": 3.0})
    'set dose = 3'
    """
    return "set " + ", ".join(f"{name} = {value:.6g}" for name, value in do.items()) if do else "set nothing"


def graph_belief(believed: Believed) -> GraphBelief:
    """What is believed of the graph, as a table of edges with their names."""
    names = list(believed.settings.names)
    frame = friend("pandas", "`posterior`").DataFrame(believed.edges, index=names, columns=names)
    return GraphBelief(frame, believed.settings.target)


def explain(believed: Believed, do: Mapping[str, float], experiment: int | None = None) -> Explanation:
    """What is expected of an experiment, what it would tell, and what else could be done."""
    settings, pandas = believed.settings, friend("pandas", "`explain`")
    sign = 1.0 if settings.objective == "min" else -1.0
    best_of_each: list[Levels] = [
        {curve.name: float(curve.x[np.argmin(sign * curve.mean)])} for curve in believed.curves
    ]
    actions: list[Levels] = [{}, *best_of_each]
    mine = actions.index(dict(do)) if dict(do) in actions else len(actions)
    if mine == len(actions):
        actions.append(dict(do))
    rows = believed.rows(actions)
    effects = rows[..., settings.names.index(settings.target)]
    winner = np.argmin(sign * effects, axis=1)
    chance = [float((winner == at).mean()) for at in range(len(actions))]
    low, high = np.quantile(effects, BAND, axis=0)
    mean = effects.mean(0)
    table = pandas.DataFrame(
        {
            "value": [float("nan"), *(next(iter(action.values())) for action in best_of_each)],
            "expected": mean[: len(best_of_each) + 1],
            "low": low[: len(best_of_each) + 1],
            "high": high[: len(best_of_each) + 1],
            "chance_best": chance[: len(best_of_each) + 1],
            "cost": [settings.price(action) for action in actions[: len(best_of_each) + 1]],
        },
        index=pandas.Index([NOTHING, *(curve.name for curve in believed.curves)], name="variable"),
    )
    ranked = table.iloc[np.argsort(sign * table["expected"].to_numpy(), kind="stable")]
    return Explanation(
        experiment=experiment,
        do=dict(do),
        cost=settings.price(do),
        target=settings.target,
        expected=float(mean[mine]),
        low=float(low[mine]),
        high=float(high[mine]),
        nothing=float(mean[0]),
        chance_best=chance[mine],
        spread=float(effects[:, mine].std()),
        decides=_decides(believed, rows[:, mine], do, pandas),
        alternatives=ranked,
    )


def _decides(
    believed: Believed, rows: Float[np.ndarray, "models d"], do: Mapping[str, float], pandas: Any
) -> "pd.DataFrame":
    """Open edges on which the expected outcome hangs most."""
    names = believed.settings.names
    d = len(names)
    graphs = np.asarray(believed.models.adjacency)[:, :d, :d]
    free = np.array([name not in do for name in names])
    noise = (np.asarray(believed.models.noise.scale)[:, :d] * believed.scaling.spread) ** 2
    variance = rows.var(0) + noise.mean(0)
    found = []
    for i, j in np.argwhere((graphs.mean(0) > OPEN) & (graphs.mean(0) < 1 - OPEN)).tolist():
        share = float(np.max(_between(rows, graphs[:, i, j])[free] / variance[free], initial=0.0))
        if share > TELLING:
            found.append((f"{names[i]} → {names[j]}", float(graphs[:, i, j].mean()), share))
    found.sort(key=lambda edge: -edge[2])
    index = pandas.Index([edge for edge, *_ in found[:5]], name="edge")
    numbers = np.array([rest for _, *rest in found[:5]], float).reshape(-1, 2)
    return pandas.DataFrame(numbers, index=index, columns=["probability", "share"])


def _between(
    rows: Float[np.ndarray, "models d"], there: Bool[np.ndarray, " models"]
) -> Float[np.ndarray, " d"]:
    """Variance between the means of models with an edge and of models without it."""
    p = there.mean()
    return p * (1 - p) * (rows[there].mean(0) - rows[~there].mean(0)) ** 2

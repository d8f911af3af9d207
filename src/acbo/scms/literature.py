"""Benchmarks of the literature on causal Bayesian optimization: equations, ranges, and optima computed from them.

Aglietti, Lu, Paleyes, González, "Causal Bayesian optimization" (AISTATS 2020). Written from the published equations.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from acbo.data import Key
from acbo.names import number, place

from .builders import fit_linear_model
from .causal_model import CausalModel
from .dsl import parse_graph, parse_model

if TYPE_CHECKING:
    import pandas as pd

Rows = Float[Array, " rows"]
Values = dict[str, Rows]
Optimum = tuple[float, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A causal optimization problem with a known answer."""

    name: str
    text: str
    """The same problem in the text language: graph, equations, ranges, hidden variables, target."""
    equations: Callable[[Key, int, Callable[[str, Rows], Rows]], Values] | None
    """Rows of all variables; the last argument puts an intervention in the place of a variable's own value."""
    minimize: bool
    observational_mean: float | None
    optima: Mapping[tuple[str, ...], Optimum]
    """Best expected target and the values that reach it, by the set of variables that are set."""
    confounded: tuple[tuple[str, str], ...] = ()
    """Pairs of observed variables with a hidden common cause."""
    note: str = ""

    @property
    def optimum(self) -> float:
        """The best expected target of all sets."""
        values = [value for value, _ in self.optima.values()]
        if not values:
            raise ValueError(f"{self.name} has no known optimum. {self.note}")
        return min(values) if self.minimize else max(values)

    @property
    def best(self) -> dict[str, float]:
        """The values that reach it."""
        return next(levels for value, levels in self.optima.values() if value == self.optimum)

    @functools.cached_property
    def model(self) -> CausalModel:
        """The problem as arrays: one program serves it, random models, and every other benchmark of its size."""
        if self.equations is None:
            raise ValueError(f"{self.name} has no published equations. {self.note}")
        return parse_model(self.text)

    def simulate(self, key: Key | int, rows: int, do: Mapping[str, float] | None = None) -> Values:
        """Rows of all variables, hidden ones included, under a hard intervention."""
        if self.equations is None:
            raise ValueError(f"{self.name} has no published equations. {self.note}")
        for name, value in (do or {}).items():
            place(name, self.names, "do")
            number(value, f"do: {name}")

        def put(name: str, value: Rows) -> Rows:
            return jnp.full_like(value, (do or {})[name]) if name in (do or {}) else value

        return self.equations(jr.key(key) if isinstance(key, int) else key, rows, put)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return parse_graph(self.text)[0]

    @property
    def edges(self) -> list[tuple[str, str]]:
        names, adjacency = parse_graph(self.text)
        return [(names[i], names[j]) for i, j in np.argwhere(adjacency)]


def _normals(key: Key, rows: int, names: str) -> dict[str, Rows]:
    draws = jr.normal(key, (len(names.split()), rows))
    return dict(zip(names.split(), draws, strict=True))


def toy_graph() -> Benchmark:
    """X → Z → Y; only Z is worth setting."""

    def equations(key: Key, rows: int, put: Callable[[str, Rows], Rows]) -> Values:
        e = _normals(key, rows, "X Z Y")
        x = put("X", e["X"])
        z = put("Z", jnp.exp(-x) + e["Z"])
        return {"X": x, "Z": z, "Y": jnp.cos(z) - jnp.exp(-z / 20) + e["Y"]}

    text = """
        X = N(0, 1)
        Z = exp(-X) + N(0, 1)
        Y = cos(Z) - exp(-Z/20) + N(0, 1)
        X in [-5, 5]; Z in [-5, 20]; target Y
    """
    optima: dict[tuple[str, ...], Optimum] = {
        ("X",): (-1.463, {"X": -1.12}),
        ("Z",): (-2.1718, {"Z": -3.20}),
    }
    return Benchmark("ToyGraph", text, equations, True, -0.721, optima)


def complete_graph() -> Benchmark:
    """Seven observed variables and two hidden common causes, of A and Y and of B and Y."""

    def equations(key: Key, rows: int, put: Callable[[str, Rows], Rows]) -> Values:
        e = _normals(key, rows, "U1 U2 F A B C D E Y")
        u1, u2, f = put("U1", e["U1"]), put("U2", e["U2"]), put("F", e["F"])
        a = put("A", f**2 + u1 + e["A"])
        b = put("B", u2 + e["B"])
        c = put("C", jnp.exp(-b) + e["C"])
        d = put("D", jnp.exp(-c) / 10 + e["D"])
        g = put("E", jnp.cos(a) + c / 10 + e["E"])
        y = jnp.cos(d) - d / 5 + jnp.sin(g) - g / 4 + u1 + jnp.exp(-u2) + e["Y"]
        return {"U1": u1, "U2": u2, "F": f, "A": a, "B": b, "C": c, "D": d, "E": g, "Y": y}

    text = """
        U1 = N(0, 1); U2 = N(0, 1); F = N(0, 1)
        A = F**2 + U1 + N(0, 1)
        B = U2 + N(0, 1)
        C = exp(-B) + N(0, 1)
        D = exp(-C)/10 + N(0, 1)
        E = cos(A) + C/10 + N(0, 1)
        Y = cos(D) - D/5 + sin(E) - E/4 + U1 + exp(-U2) + N(0, 1)
        B in [-5, 4]; D in [-5, 5]; E in [-6, 3]; target Y; hidden U1, U2
    """
    optima: dict[tuple[str, ...], Optimum] = {
        ("B",): (-1.228, {"B": -5.0}),
        ("D",): (0.069, {"D": 3.343}),
        ("E",): (1.598, {"E": -1.318}),
        ("B", "D"): (-3.483, {"B": -5.0, "D": 3.343}),
        ("B", "E"): (1.566, {"B": 4.0, "E": -1.318}),
        ("D", "E"): (-0.638, {"D": 3.343, "E": -1.318}),
    }
    return Benchmark("CompleteGraph", text, equations, True, 2.306, optima, (("A", "Y"), ("B", "Y")))


def health_graph() -> Benchmark:
    """Prostate-specific antigen of men of 55 to 75 years, to be lowered by aspirin and statin (doses 0 to 1)."""

    def equations(key: Key, rows: int, put: Callable[[str, Rows], Rows]) -> Values:
        key_age, key_rest = jr.split(key)
        e = _normals(key_rest, rows, "bmi psa")
        age = put("age", jr.uniform(key_age, (rows,), minval=55.0, maxval=75.0))
        bmi = put("bmi", 27 - 0.01 * age + 0.7 * e["bmi"])
        aspirin = put("aspirin", jax.nn.sigmoid(-8 + 0.1 * age + 0.03 * bmi))
        statin = put("statin", jax.nn.sigmoid(-13 + 0.1 * age + 0.2 * bmi))
        cancer = put("cancer", jax.nn.sigmoid(2.2 - 0.05 * age + 0.01 * bmi - 0.04 * statin + 0.02 * aspirin))
        psa = 6.8 + 0.04 * age - 0.15 * bmi - 0.6 * statin + 0.55 * aspirin + cancer + 0.4 * e["psa"]
        return {"age": age, "bmi": bmi, "aspirin": aspirin, "statin": statin, "cancer": cancer, "psa": psa}

    text = """
        age = U(55, 75)
        bmi = 27 - 0.01*age + N(0, 0.7)
        aspirin = sigmoid(-8 + 0.1*age + 0.03*bmi)
        statin = sigmoid(-13 + 0.1*age + 0.2*bmi)
        cancer = sigmoid(2.2 - 0.05*age + 0.01*bmi - 0.04*statin + 0.02*aspirin)
        psa = 6.8 + 0.04*age - 0.15*bmi - 0.6*statin + 0.55*aspirin + cancer + N(0, 0.4)
        aspirin in [0, 1]; statin in [0, 1]; target psa
    """
    optima: dict[tuple[str, ...], Optimum] = {
        ("aspirin",): (5.617, {"aspirin": 0.0}),
        ("statin",): (5.344, {"statin": 1.0}),
        ("aspirin", "statin"): (5.155, {"aspirin": 0.0, "statin": 1.0}),
    }
    return Benchmark("Health", text, equations, True, 5.806, optima)


CORAL = """
    N; L
    L -> TE -> S
    N, L, TE -> C
    S -> T; S -> D
    S, T, D, TE -> P
    S, T, D, TE -> O
    S, T, D, TE -> CO
    L, N, P, O, C, CO, TE -> Y
    N in [-2, 5]; O in [2, 4]; C in [0, 1]; T in [2450, 2500]; D in [1950, 1965]; target Y
"""


def coral_graph() -> Benchmark:
    """Net coral calcification Y and what acts on it: nutrients, light, temperature, salinity, alkalinity, carbon.

    The published model is fitted to 46 measured rows, which are not ours to give: `fit_coral_graph` takes them.
    """
    note = (
        "Its linear equations are fitted to 46 measured rows; give them to `fit_coral_graph`. The optima that circulate "
        "hold D = 2100, outside the range [1950, 1965] of the published code."
    )
    return Benchmark("CoralGraph", CORAL, None, True, None, {}, note=note)


def fit_coral_graph(rows: "pd.DataFrame") -> CausalModel:
    """The coral model of a table with the columns N, L, TE, C, S, T, D, P, O, CO and Y."""
    from .interop import from_frame

    names, adjacency = parse_graph(CORAL)
    for name in names:
        place(name, [str(column) for column in rows.columns], "rows: columns")
    data, _ = from_frame(rows.loc[:, list(names)], target="Y")
    ranges = {"N": (-2, 5), "O": (2, 4), "C": (0, 1), "T": (2450, 2500), "D": (1950, 1965)}
    return fit_linear_model(names, adjacency, data, ranges=ranges)


def benchmarks() -> tuple[Benchmark, ...]:
    """All problems of this module."""
    return toy_graph(), complete_graph(), health_graph(), coral_graph()

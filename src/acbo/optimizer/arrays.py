"""From the state to padded arrays for strategies and beliefs, and from their choices back to values by name.

Strategies see every variable with about unit spread, users see their own units.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from acbo.data import Dataset, bucket
from acbo.problem import Problem

from .state import Levels, Row, Settings, State
from .variables import Variable

LEAST = 5
"""Observations needed to estimate a spread."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """`inside = (outside - offset) / spread`, for each variable."""

    offset: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]

    def inside(self, outside: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
        return (outside - self.offset) / self.spread

    def outside(self, inside: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
        return inside * self.spread + self.offset

    def target(self, settings: Settings, inside: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """Values of the target in its own units."""
        return np.asarray(inside, float) * self.spread[settings.goal] + self.offset[settings.goal]


def scaling_of(state: State) -> Scaling:
    """Scale of each variable: that of the observations; if they are few, of its range; else of all measured values."""
    settings = state.settings
    shape = (len(state.rows), len(settings.variables))
    values = np.array([row.values for row in state.rows], float).reshape(shape)
    left_alone = [[name not in row.do for name in settings.names] for row in state.rows]
    left_alone = np.array(left_alone, bool).reshape(shape)
    observed = np.asarray(left_alone.all(1))
    parts = [
        _scale_of_one(variable, values[observed, v], values[left_alone[:, v], v])
        for v, variable in enumerate(settings.variables)
    ]
    return Scaling(*np.array(parts, float).T)


def _scale_of_one(
    variable: Variable, observed: Float[np.ndarray, " n"], measured: Float[np.ndarray, " m"]
) -> tuple[float, float]:
    """Offset and spread from the observations of a variable, its range, and all values measured and not set."""
    if len(observed) >= LEAST and _varies(observed):
        return float(observed.mean()), float(observed.std())
    if variable.low is not None and variable.high is not None:
        # The ends of the range then are two deviations away.
        return (variable.low + variable.high) / 2, (variable.high - variable.low) / 4
    if len(measured) > 1 and _varies(measured):
        return float(measured.mean()), float(measured.std())
    return (float(measured[0]), abs(float(measured[0])) or 1.0) if len(measured) else (0.0, 1.0)


def _varies(values: Float[np.ndarray, " n"]) -> bool:
    """True if the spread is more than what rounding leaves of a constant, in whatever units."""
    return float(values.std()) > 1e-9 * float(np.abs(values).max())


ROWS, LEVELS = 32, 8
"""Smallest padded number of rows and of levels; doubled when full, so that few programs are compiled."""


def places(count: int, least: int) -> int:
    """The smallest of least, 2 least, 4 least, … that is at least `count`.

    >>> places(0, 32), places(33, 32)
    (32, 64)
    """
    held = least
    while held < count:
        held *= 2
    return held


def scaled_problem(state: State, scaling: Scaling, money: float = float("inf")) -> Problem:
    """The problem in inside units; what costs more than `money` cannot be set."""
    settings = state.settings
    d, size = len(settings.variables), bucket(len(settings.variables))
    facts = {field: np.zeros(size) for field in ("low", "high", "cost_fixed", "cost_unit")}
    manipulable = np.zeros(size, bool)
    most = max((len(v.levels) for v in settings.settable if v.levels is not None), default=0)
    levels = np.full((size, places(most, LEVELS)), np.nan)
    for v in settings.settable:
        at = settings.names.index(v.name)
        offset, spread = scaling.offset[at], scaling.spread[at]
        facts["cost_fixed"][at], facts["cost_unit"][at] = v.cost, v.cost_per_unit * spread
        allowed = affordable(settings, v.name, money)
        if len(allowed):
            manipulable[at] = True
            facts["low"][at], facts["high"][at] = (np.array([allowed[0], allowed[-1]]) - offset) / spread
            if v.levels is not None:
                levels[at, : len(allowed)] = (np.array(allowed) - offset) / spread
    dtype = jnp.result_type(float)
    return Problem(
        live=jnp.asarray(np.arange(size) < d),
        manipulable=jnp.asarray(manipulable),
        levels=jnp.asarray(levels, dtype),
        target=jnp.asarray(settings.goal, jnp.int32),
        sign=jnp.asarray(settings.sign, dtype),
        knowledge=settings.graph.arrays(settings.names, size),
        max_simultaneous=settings.max_simultaneous,
        **{field: jnp.asarray(values, dtype) for field, values in facts.items()},
    )


def affordable(settings: Settings, name: str, money: float) -> list[float]:
    """The levels of a variable that `money` can pay for, or the ends of the affordable part of its range; may be empty."""
    v = settings.variable(name, "name")
    if v.low is None or v.high is None or v.cost > money:
        return []
    if v.levels is not None:
        return [level for level in v.levels if v.price(level) <= money]
    reach = float("inf") if not v.cost_per_unit else (money - v.cost) / v.cost_per_unit
    low, high = max(v.low, -reach), min(v.high, reach)
    return [low, high] if low <= high else []


def data_of(state: State, scaling: Scaling, extra: Sequence[Row] = ()) -> Dataset:
    """All rows, and extra ones after them, in inside units; padded in both directions."""
    settings, rows = state.settings, (*state.rows, *extra)
    d, size = len(settings.variables), bucket(len(settings.variables))
    n = places(len(rows), ROWS)
    values, touched = np.zeros((n, size)), np.zeros((n, size), bool)
    for at, row in enumerate(rows):
        values[at, :d] = scaling.inside(np.array(row.values))
        touched[at, :d] = [name in row.do for name in settings.names]
    return Dataset(
        values=jnp.asarray(values, jnp.result_type(float)),
        intervened=jnp.asarray(touched),
        rows=jnp.asarray(np.arange(n) < len(rows)),
        live=jnp.asarray(np.arange(size) < d),
        target=jnp.asarray(settings.goal, jnp.int32),
    )


def action_arrays(
    settings: Settings, scaling: Scaling, actions: Sequence[Mapping[str, float]]
) -> tuple[Bool[Array, "actions size"], Float[Array, "actions size"]]:
    """Masks and inside values of settings by name, padded in number so that few programs are compiled."""
    shape = (places(len(actions), 8), bucket(len(settings.variables)))
    mask, value = np.zeros(shape, bool), np.zeros(shape)
    for at, do in enumerate(actions):
        for name, level in do.items():
            v = settings.names.index(name)
            mask[at, v], value[at, v] = True, (level - scaling.offset[v]) / scaling.spread[v]
    return jnp.asarray(mask), jnp.asarray(value, jnp.result_type(float))


def levels_of(
    state: State,
    scaling: Scaling,
    mask: Bool[np.ndarray, " size"],
    value: Float[np.ndarray, " size"],
    money: float = float("inf"),
) -> Levels:
    """The values of a choice in the user's units: exact at levels and ends of ranges, and within the budget.

    Where several variables together cost too much, the most expensive are left alone.
    """
    settings = state.settings
    found: Levels = {}
    for v in settings.settable:
        at = settings.names.index(v.name)
        allowed = affordable(settings, v.name, money)
        if mask[at] and allowed:
            level = float(value[at]) * scaling.spread[at] + scaling.offset[at]
            near = min(allowed, key=lambda end: abs(end - level))
            # Inside numbers have about seven digits.
            exact = v.levels is not None or abs(near - level) < 1e-5 * v.span
            found[v.name] = float(near if exact else min(max(v.nearest(level), allowed[0]), allowed[-1]))
    while settings.price(found) > money:
        found.pop(max(found, key=lambda name: settings.variable(name, "do").price(found[name])))
    return found

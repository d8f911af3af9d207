"""Units of measurement: strategies see every variable with about unit spread, users see their own units."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from .state import Settings, State

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
        goal = settings.names.index(settings.target)
        return np.asarray(inside, float) * self.spread[goal] + self.offset[goal]


def scaling_of(state: State) -> Scaling:
    """Scale of each variable: that of the observations; if they are few, of its range; else of all measured values."""
    settings = state.settings
    d = len(settings.variables)
    values = np.array([row.values for row in state.rows], float).reshape(-1, d)
    left_alone = np.array([[name not in row.do for name in settings.names] for row in state.rows], bool)
    left_alone = left_alone.reshape(-1, d)
    observed = np.asarray(left_alone.all(1))
    parts = [
        _of_one(values[:, v], observed, left_alone[:, v], variable.low, variable.high)
        for v, variable in enumerate(settings.variables)
    ]
    offset, spread = np.array(parts, float).reshape(d, 2).T
    return Scaling(offset, spread)


def _of_one(
    values: Float[np.ndarray, " n"],
    observed: Bool[np.ndarray, " n"],
    left_alone: Bool[np.ndarray, " n"],
    low: float | None,
    high: float | None,
) -> tuple[float, float]:
    if observed.sum() >= LEAST and _varies(values[observed]):
        return float(values[observed].mean()), float(values[observed].std())
    if low is not None and high is not None:
        # The ends of the range then are two deviations away.
        return (low + high) / 2, (high - low) / 4
    measured = values[left_alone]
    if len(measured) > 1 and _varies(measured):
        return float(measured.mean()), float(measured.std())
    return (float(measured[0]), abs(float(measured[0])) or 1.0) if len(measured) else (0.0, 1.0)


def _varies(values: Float[np.ndarray, " n"]) -> bool:
    """True if the spread is more than what rounding leaves of a constant, in whatever units."""
    return float(values.std()) > 1e-9 * float(np.abs(values).max())

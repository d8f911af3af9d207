"""Weights in one dimension: which of the ordered knots count at a point, and how much.

Cubic is the Catmull–Rom spline on knots of any spacing: between two knots the cubic whose slopes at both are those
of the parabola through the three nearest knots, one-sided at the ends. It is exact for parabolas and of third order.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Shaped

from .base import Flag, Interpolation, Scalar

BINS_PER_KNOT = 128
"""The most bins per knot in a lookup table; axes stretched more than that are searched by bisection."""


def take(values: Shaped[Array, "n ..."], number: Int[Array, "..."]) -> Shaped[Array, "..."]:
    """Rows whose numbers are known to exist, without the checks that indexing would add.

    Numbers without a sign need no test for negative ones: a tenth of the time of a sample on a CPU.
    """
    unsigned = number.astype(f"uint{8 * number.dtype.itemsize}")
    return values.at[unsigned].get(mode="promise_in_bounds")


class Place(NamedTuple):
    """A point between two ordered knots."""

    interval: Int[Array, ""]
    """Number of the lower knot."""
    fraction: Scalar
    """0 at the lower knot, 1 at the upper; beyond both where a point lies outside the knots."""
    left: Scalar | float = 1.0
    """Length of the interval below, in units of this one."""
    right: Scalar | float = 1.0
    """Length of the interval above, in units of this one."""


class Knots(eqx.Module):
    """Ascending coordinates of any spacing, found by a table of bins half as wide as the smallest interval."""

    coordinates: Float[Array, " n"]
    first: Int32[Array, " bins"]
    """The interval in which each bin begins; empty where bisection takes over."""
    per_unit: Scalar
    """Bins in one unit of length."""

    def __init__(self, coordinates: Float[Array, " n"] | Float[np.ndarray, " n"]) -> None:
        values = np.asarray(coordinates)
        self.coordinates = jnp.asarray(coordinates)
        self.first, per_unit = _bin_table(np.asarray(values, np.float64))
        self.per_unit = jnp.asarray(per_unit, self.coordinates.dtype)

    @property
    def count(self) -> int:
        """How many knots there are."""
        return self.coordinates.shape[0]

    def locate(self, x: Scalar) -> Int[Array, ""]:
        """The interval that holds `x`; the first or the last one for points beyond."""
        last = self.count - 2
        if self.first.shape[0] == 0:
            return jnp.clip(jnp.searchsorted(self.coordinates, x, side="right") - 1, 0, last)
        bin_number = ((x - self.coordinates[0]) * self.per_unit).astype(jnp.int32)
        guess = take(self.first, jnp.clip(bin_number, 0, self.first.shape[0] - 1))
        # Bins are narrow enough that the true interval is the guess or a neighbour, whatever the rounding.
        guess = guess - (x < take(self.coordinates, guess))
        guess = jnp.clip(guess, 0, last)
        return jnp.clip(guess + (x >= take(self.coordinates, guess + 1)), 0, last)

    def place(self, x: Scalar, interval: Int[Array, ""]) -> Place:
        """Where `x` lies with respect to the knots of one interval."""
        at = self.coordinates
        low, high = take(at, interval), take(at, interval + 1)
        length = high - low
        below = low - take(at, jnp.maximum(interval - 1, 0))
        above = take(at, jnp.minimum(interval + 2, self.count - 1)) - high
        # At the two ends there is no such interval; the weights there do not read it, but must stay finite.
        left = jnp.where(interval > 0, below / length, 1.0)
        right = jnp.where(interval < self.count - 2, above / length, 1.0)
        return Place(interval, (x - low) / length, left, right)


def _bin_table(values: Float[np.ndarray, " n"]) -> tuple[Int32[Array, " bins"], float]:
    """The interval in which each of the equal bins over the range begins, and the bins in one unit."""
    none = jnp.zeros((0,), jnp.int32)
    if values.size < 2:
        return none, 0.0
    extent = float(values[-1] - values[0])
    # A power of two, so that other coordinates of the same number mostly fit the same compiled program.
    bins = 2 ** math.ceil(math.log2(2 * extent / float(np.diff(values).min()) * (1 + 1e-6)))
    if bins > BINS_PER_KNOT * values.size:
        return none, 0.0
    edges = values[0] + np.arange(bins) * (extent / bins)
    found = np.searchsorted(values, edges, side="right") - 1
    return jnp.asarray(np.clip(found, 0, values.size - 2), jnp.int32), bins / extent


def ascending(name: str, values: Float[np.ndarray, " n"], remedy: str) -> Float[np.ndarray, " n"]:
    """The `values` in the precision of the device, refused unless they still rise strictly there."""
    exact = np.asarray(values, np.float64)
    rounded = np.asarray(jnp.asarray(np.asarray(values, np.result_type(values, np.float32))))
    steps = np.diff(exact)
    if not np.all(np.isfinite(exact)) or np.any(steps <= 0):
        worst = int(np.argmin(steps)) if steps.size else 0
        raise ValueError(
            f"`{name}` must be finite and rise strictly; got {exact[worst : worst + 2]} at {worst}."
        )
    if np.any(np.abs(np.diff(rounded.astype(np.float64)) - steps) > 0.01 * steps):
        raise ValueError(
            f"`{name}` must keep its steps in {rounded.dtype}; its smallest step {steps.min():.3g} is lost beside "
            f"values of {np.abs(exact).max():.6g}. {remedy}"
        )
    return rounded


def row_weights(
    place: Place, count: int, interpolation: Interpolation
) -> tuple[list[Int[Array, ""]], list[Scalar]]:
    """Numbers and weights of the knots that count at a place among `count` ≥ 2 knots; the weights sum to one."""
    i, s = place.interval, place.fraction
    if interpolation == "nearest":
        return [i + (s >= 0.5)], [jnp.ones_like(s)]
    if interpolation == "linear":
        return [i, i + 1], [1 - s, s]
    numbers = [jnp.maximum(i - 1, 0), i, i + 1, jnp.minimum(i + 2, count - 1)]
    return numbers, cubic_weights(place, i == 0, i == count - 2)


def cubic_weights(place: Place, first: Flag, last: Flag) -> list[Scalar]:
    """Catmull–Rom weights of the four knots around an interval; `first` and `last` mark those at the ends."""
    s, a, b = place.fraction, place.left, place.right
    one, zero = jnp.ones_like(s), jnp.zeros_like(s)
    # Slopes at the two knots times the length of the interval, as weights of the four values.
    low = [-one / (a * (1 + a)), one / a - one, one * a / (1 + a), zero]
    high = [zero, -one * b / (1 + b), one - one / b, one / (b * (1 + b))]
    chord = [zero, -one, one, zero]
    # A parabola's mean slope over an interval is its chord: that gives the slope at an end without a neighbour.
    ends = zip(low, high, chord, strict=True)
    pairs = [
        (
            jnp.where(first, jnp.where(last, c, 2 * c - hi), lo),
            jnp.where(last, jnp.where(first, c, 2 * c - lo), hi),
        )
        for lo, hi, c in ends
    ]
    value_low = (1 + 2 * s) * (1 - s) ** 2
    value_high = s * s * (3 - 2 * s)
    slope_low = s * (1 - s) ** 2
    slope_high = s * s * (s - 1)
    values = [zero, value_low, value_high, zero]
    return [v + slope_low * lo + slope_high * hi for v, (lo, hi) in zip(values, pairs, strict=True)]

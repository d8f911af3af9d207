"""Colours that people with any colour vision can tell apart, a scale for numbers and a palette for kinds; and their labels."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from jaxworlds.pictures import palette

from ..fields.epoch import Epoch

OUTCOME_COLORS = ("#0072B2", "#D55E00", "#000000", "#999999", "#CC79A7", "#009E73", "#E69F00", "#56B4E9")
"""By the number of the outcome: the palette of Okabe and Ito (2008), the most frequent outcomes the furthest apart."""
SCALE_LABELS = {"speed": "speed", "age": "age", "time": "time", "id": "particle"}
KINDS = ("outcome", "patch")
NONE = "#BBBBBB"
"""The colour of no kind at all."""
KIND_COLORS = (*OUTCOME_COLORS, NONE)
ENDED = "#D55E00"
"""The cross on a particle that has ended, if the colour does not show the outcome."""


def scale_colors(dark: bool = False) -> UInt8[np.ndarray, "colors 3"]:
    """The scale for numbers: viridis without the end that would be invisible on a white (or `dark`) ground."""
    return palette()[56:] if dark else palette()[:240]


def kind_numbers(kinds: Any) -> Any:
    """The place of outcomes or patches among `KIND_COLORS`; the last for those below 0."""
    return np.where(kinds < 0, len(OUTCOME_COLORS), kinds % len(OUTCOME_COLORS))


def scale_numbers(
    values: Float[np.ndarray, "*n"], ends: tuple[float, float], count: int
) -> Int[np.ndarray, "*n"]:
    """The place of values among the `count` colours of a scale with these ends."""
    low, high = ends
    share = np.nan_to_num((values - low) / (high - low)).clip(0, 1)
    return np.rint(share * (count - 1)).astype(int)


_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "min"), (1.0, "s"))


def with_unit(name: str, unit: str) -> str:
    """`name (unit)`, or the bare name."""
    return f"{name} ({unit})" if unit else name


def limits(color: str, values: Shaped[np.ndarray, "..."]) -> tuple[float, float]:
    """The ends of the scale. The fastest half per cent share a colour, so that an outlier does not darken the rest."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low = 0.0 if color in ("speed", "age") else float(finite.min())
    high = float(np.quantile(finite, 0.995)) if color == "speed" else float(finite.max())
    return low, high if high > low else low + 1.0


@dataclasses.dataclass(frozen=True)
class Look:
    """How a picture is labelled."""

    color: str
    length_unit: str = ""
    time_unit: str = ""
    title: str = ""
    epoch: Epoch | None = None
    """The date of time 0: times are then shown as dates."""

    def time(self, *times: float) -> str:
        """A time, or a span: as dates, or with its unit."""
        if self.epoch is not None:
            span = max(times) - min(times) or max(times)
            return " to ".join(self.epoch.texts(times, span))
        return f"t = {' to '.join(f'{time:.4g}' for time in times)} {self.time_unit}".rstrip()

    def scale(self, low: float, high: float) -> tuple[str, list[tuple[float, str]] | None]:
        """The label of the colour scale, and its marks if they are not plain numbers.

        With a date of time 0, times become dates. Ages are then in seconds, and are shown in a unit that suits them unless
        one is given.
        """
        if self.epoch is not None and self.color == "time":
            marks = self.epoch.ticks(low, high)
            return "date", list(zip(marks, self.epoch.texts(marks), strict=True))
        if self.epoch is None or self.color != "age" or self.time_unit:
            # Times are in seconds where there are dates.
            time_unit = self.time_unit or ("" if self.epoch is None else "s")
            speed_unit = f"{self.length_unit}/{time_unit}" if self.length_unit and time_unit else ""
            units = {"speed": speed_unit, "age": time_unit, "time": time_unit, "id": ""}
            return with_unit(SCALE_LABELS[self.color], units[self.color]), None
        size, unit = next(((s, u) for s, u in _UNITS if high - low >= 2 * s), _UNITS[-1])
        # A round step that cuts the scale into some five parts.
        fifth = (high - low) / size / 5
        power = 10.0 ** np.floor(np.log10(max(fifth, 2e-31)))
        step = float(power * min((1, 2, 5, 10), key=lambda factor: abs(np.log(fifth / power / factor))))
        first, last = int(np.ceil(low / size / step - 1e-9)), int(np.floor(high / size / step + 1e-9))
        marks = [(number * step * size, f"{number * step:.4g}") for number in range(first, last + 1)]
        return with_unit(SCALE_LABELS["age"], unit), marks

    def frames(self, times: Float[np.ndarray, " times"]) -> list[str]:
        """The time on each picture of an animation, all in the same format."""
        if self.epoch is None:
            return [self.time(float(time)) for time in times]
        return self.epoch.texts(times.tolist(), float(times[-1] - times[0]))

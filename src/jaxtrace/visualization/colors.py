"""Colours that read with any colour vision: a scale for numbers, and a few distinct ones for kinds."""

import numpy as np
from jaxtyping import Shaped, UInt8

from jaxworlds.pictures import palette

from ..fields.epoch import Epoch

OUTCOME_COLORS = ("#0072B2", "#D55E00", "#000000", "#999999", "#CC79A7", "#009E73", "#E69F00", "#56B4E9")
"""By the number of the outcome: the palette of Okabe and Ito (2008), the most frequent outcomes the furthest apart."""
SCALE_LABELS = {"speed": "speed", "age": "age", "time": "time", "id": "particle"}
KINDS = ("outcome", "patch")
NONE = "#BBBBBB"
"""No kind at all."""
ENDED = "#D55E00"
"""The cross on a particle that has ended, where colour says something else than how."""


def scale_colors(dark: bool = False) -> UInt8[np.ndarray, "colors 3"]:
    """The scale for numbers: viridis, without its end that would drown in a white (or `dark`) ground."""
    return palette()[56:] if dark else palette()[:240]


def check_color(color: str) -> None:
    """Refuse a word for `color` that names nothing."""
    if color not in SCALE_LABELS and color not in KINDS:
        known = ", ".join([*SCALE_LABELS, *KINDS])
        raise ValueError(f"`color` must be one of {known}; got {color!r}.")


def scale_label(color: str, length_unit: str, time_unit: str) -> str:
    """What stands beside the scale: the quantity and its unit, where one is known."""
    units = {"age": time_unit, "time": time_unit, "id": ""}
    unit = units.get(color, f"{length_unit}/{time_unit}" if length_unit and time_unit else "")
    return with_unit(SCALE_LABELS[color], unit)


def scale_ticks(
    color: str, low: float, high: float, epoch: Epoch | None, time_unit: str
) -> tuple[str, list[tuple[float, str]]] | None:
    """What stands beside a scale of times where the date of time 0 is known, and its marks; None for numbers.

    Times become dates. Ages, which are then in seconds, are written in the unit that suits them, unless one is given.
    """
    if epoch is None or color not in ("time", "age") or (color == "age" and time_unit):
        return None
    if color == "time":
        marks = epoch.ticks(low, high)
        return "date", list(zip(marks, epoch.texts(marks), strict=True))
    size, unit = next(((s, u) for s, u in _UNITS if high - low >= 2 * s), _UNITS[-1])
    step = nice_step((high - low) / size)
    first, last = int(np.ceil(low / size / step - 1e-9)), int(np.floor(high / size / step + 1e-9))
    marks = [(number * step * size, f"{number * step:.4g}") for number in range(first, last + 1)]
    return with_unit(SCALE_LABELS["age"], unit), marks


_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "min"), (1.0, "s"))


def nice_step(length: float) -> float:
    """A round step that cuts a length into some five parts."""
    power = 10.0 ** np.floor(np.log10(max(length, 1e-30) / 5))
    return float(power * min((1, 2, 5, 10), key=lambda factor: abs(np.log(length / 5 / power / factor))))


def with_unit(name: str, unit: str) -> str:
    """`name (unit)`, or the bare name."""
    return f"{name} ({unit})" if unit else name


def limits(color: str, values: Shaped[np.ndarray, "..."]) -> tuple[float, float]:
    """The ends of the scale. The fastest half per cent share a colour, so that one stray does not darken the rest."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low = 0.0 if color in ("speed", "age") else float(finite.min())
    high = float(np.quantile(finite, 0.995)) if color == "speed" else float(finite.max())
    return low, high if high > low else low + 1.0

"""Colours that read with any colour vision: a scale for numbers, and a few distinct ones for kinds."""

import numpy as np
from jaxtyping import Shaped, UInt8

from jaxworlds.pictures import palette

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

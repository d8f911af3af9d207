"""Small line charts as SVG, without a plotting library: a line, a band around it, points, and axes."""

import html
import math

import numpy as np
from jaxtyping import Float

from acbo.pictures import FONT, LETTER, MEASURED, PLAIN

Line = Float[np.ndarray, " n"]
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 30, 42
"""Margins in pixels; those at the sides grow with the numbers that stand there."""


def chart_svg(
    x: Line,
    y: Line,
    *,
    band: tuple[Line, Line] | None = None,
    points: Float[np.ndarray, "points 2"] | None = None,
    level: float | None = None,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    discrete: bool = False,
    steps: bool = False,
    width: int = 380,
    height: int = 240,
) -> str:
    """A chart of `y` over `x`; `level` is a dashed line across, `discrete` shows bars of the band at each x."""
    marks = np.zeros((0, 2)) if points is None else np.asarray(points, float)
    low, high = (y, y) if band is None else band
    reach_x = _reach(np.concatenate([x, marks[:, 0]]), 0.06 if discrete else 0.0)
    reach_y = _reach(np.concatenate([low, high, marks[:, 1], [] if level is None else [level]]), 0.06)
    beside = ticks(*reach_y)
    left = max(LEFT, round(28 + _wide(beside)))
    below = x.tolist() if discrete and len(x) < 9 else ticks(*reach_x)
    if not discrete and len(below) * (_wide(below) + 6) > width - left:
        below = ticks(*reach_x, most=4)  # long numbers would run into one another
    right = max(RIGHT, round(_wide(below[-1:]) / 2))

    def across(value: float) -> float:
        return left + (value - reach_x[0]) / (reach_x[1] - reach_x[0]) * (width - left - right)

    def up(value: float) -> float:
        return height - BOTTOM - (value - reach_y[0]) / (reach_y[1] - reach_y[0]) * (height - TOP - BOTTOM)

    def path(xs: Line, ys: Line) -> str:
        return " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in zip(xs, ys, strict=True))

    parts = [_text(width / 2, 18, title, "middle", "bold")]
    for tick in below:
        parts.append(
            f'<line x1="{across(tick):.1f}" y1="{height - BOTTOM}" x2="{across(tick):.1f}" y2="{TOP}" {_GRID}/>'
        )
        parts.append(_text(across(tick), height - BOTTOM + 16, f"{tick:g}", "middle"))
    for tick in beside:
        parts.append(
            f'<line x1="{left}" y1="{up(tick):.1f}" x2="{width - right}" y2="{up(tick):.1f}" {_GRID}/>'
        )
        parts.append(_text(left - 6, up(tick) + 4, f"{tick:g}", "end"))
    parts.append(_text((left + width - right) / 2, height - 8, x_label, "middle"))
    middle = (TOP + height - BOTTOM) / 2
    parts.append(f'<g transform="rotate(-90 14 {middle:.1f})">{_text(14, middle, y_label, "middle")}</g>')
    if level is not None:
        parts.append(
            f'<line x1="{left}" y1="{up(level):.1f}" x2="{width - right}" y2="{up(level):.1f}" stroke="#9aa0a6" '
            'stroke-dasharray="5 4"/>'
        )
    if discrete:
        parts += [
            f'<line x1="{across(a):.1f}" y1="{up(b):.1f}" x2="{across(a):.1f}" y2="{up(c):.1f}" stroke="{PLAIN}" '
            'stroke-opacity="0.35" stroke-width="9"/>'
            for a, b, c in zip(x, low, high, strict=True)
        ]
        parts += [_dot(across(a), up(b), PLAIN, 5) for a, b in zip(x, y, strict=True)]
    else:
        if band is not None:
            around = path(np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]]))
            parts.append(f'<polygon points="{around}" fill="{PLAIN}" fill-opacity="0.2"/>')
        xs, ys = (np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]) if steps else (x, y)
        parts.append(f'<polyline points="{path(xs, ys)}" fill="none" stroke="{PLAIN}" stroke-width="2"/>')
    parts += [_dot(across(a), up(b), MEASURED, 3.5) for a, b in marks]
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{html.escape(title or y_label)}" style="max-width:100%;height:auto">\n{inside}\n</svg>'
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers within a range, at most so many.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * k for k in (1, 2, 5, 10, 20) if (high - low) / (size * k) <= most - 1 + 1e-9)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def _wide(numbers: list[float]) -> float:
    """Pixels that the longest of these numbers takes."""
    return LETTER * max(len(f"{number:g}") for number in numbers)


_GRID = 'stroke="currentColor" stroke-opacity="0.15" stroke-width="1"'


def _reach(values: Line, margin: float = 0.0) -> tuple[float, float]:
    """From the least to the greatest, widened; never empty."""
    low, high = float(np.min(values, initial=np.inf)), float(np.max(values, initial=-np.inf))
    if not low < high:
        middle = low if math.isfinite(low) else 0.0
        low, high = middle - max(1.0, abs(middle)) / 2, middle + max(1.0, abs(middle)) / 2
    extra = margin * (high - low)
    return low - extra, high + extra


def _text(x: float, y: float, said: str, anchor: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {FONT} font-weight="{weight}" '
        f'fill="currentColor">{html.escape(said)}</text>'
    )


def _dot(x: float, y: float, colour: str, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}" fill-opacity="0.8"/>'

"""Figures by matplotlib, made without its global state: they can be shown, saved, or put into a notebook."""

from typing import TYPE_CHECKING, Any

import numpy as np

from acbo.pictures import MEASURED, PLAIN, layered_places

from .current_belief import Believed, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_regret(believed: Believed, optimum: float | None = None) -> "Figure":
    """The best expected target so far against the cost, or its distance from the optimum."""
    found, target = believed.progress, believed.settings.target
    figure = _figure((6, 4))
    axes = figure.add_subplot()
    best, measured = found.best, found.measured
    if optimum is not None:
        sign = 1.0 if believed.settings.objective == "min" else -1.0
        best, measured = sign * (best - optimum), sign * (measured - optimum)
        axes.axhline(0.0, color="#9aa0a6", linestyle="--")
    axes.step(found.cost, best, where="post", color=PLAIN, label="best so far, expected")
    axes.plot(found.cost[1:], measured[1:], "o", color=MEASURED, markersize=4, label="measured")
    axes.set_xlabel("cost of the experiments")
    axes.set_ylabel(target if optimum is None else f"regret of {target}")
    axes.legend()
    return figure


def plot_effects(believed: Believed) -> "Figure":
    """The expected target over each variable's values, with bands and experiments."""
    curves = believed.curves
    columns = min(3, len(curves))
    lines = -(-len(curves) // columns)
    figure = _figure((4 * columns, 3 * lines))
    for number, curve in enumerate(curves):
        axes = figure.add_subplot(lines, columns, number + 1)
        _effect(axes, curve)
        axes.set_xlabel(curve.name)
        if number % columns == 0:
            axes.set_ylabel(f"expected {believed.settings.target}")
    return figure


def _effect(axes: Any, curve: Curve) -> None:
    if curve.discrete:
        spread = np.stack([curve.mean - curve.low, curve.high - curve.mean])
        axes.errorbar(curve.x, curve.mean, np.maximum(spread, 0.0), fmt="o", color=PLAIN, capsize=4)
    else:
        axes.fill_between(curve.x, curve.low, curve.high, color=PLAIN, alpha=0.2, linewidth=0)
        axes.plot(curve.x, curve.mean, color=PLAIN)
    axes.plot(curve.tried[:, 0], curve.tried[:, 1], "o", color=MEASURED, markersize=4)


def plot_graph(believed: Believed, least: float = 0.1) -> "Figure":
    """Nodes with names and arrows as strong as their probability; those below `least` are left out."""
    names, edges = believed.settings.names, believed.edges
    layers = layered_places(edges)
    at = layers * (2.2, -1.1)  # inches
    corners = [*at]
    arrows = []
    for i, j in np.argwhere(edges >= least).tolist():
        rad = 0.15 if edges[j, i] >= least or abs(layers[i, 0] - layers[j, 0]) != 1 else 0.0
        along = at[j] - at[i]
        # The middle of matplotlib's arc3: a long arrow bends far out.
        corners.append((at[i] + at[j] + rad * np.array([along[1], -along[0]])) / 2)
        arrows.append((i, j, rad))
    margin = np.array([1.0, 0.8])
    low, high = np.min(corners, axis=0) - margin, np.max(corners, axis=0) + margin
    figure = _figure(tuple((high - low).tolist()))
    axes = figure.add_subplot()
    for i, j, rad in arrows:
        arrow = {
            "arrowstyle": "-|>",
            "color": PLAIN,
            "alpha": float(max(edges[i, j], 0.15)),
            "shrinkA": 22,
            "shrinkB": 22,
            "connectionstyle": f"arc3,rad={rad}",
            "linewidth": 1 + 1.5 * float(edges[i, j]),
        }
        axes.annotate("", xy=tuple(at[j]), xytext=tuple(at[i]), arrowprops=arrow)
    for v, name in enumerate(names):
        colour = "#fde9c8" if name == believed.settings.target else "#eef1f6"
        box = {"boxstyle": "round", "facecolor": colour, "edgecolor": "#5f6368"}
        axes.text(at[v, 0], at[v, 1], name, ha="center", va="center", bbox=box)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_axis_off()
    return figure


def _figure(size: tuple[float, float]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'jaxworlds[causal]'.") from error
    return Figure(figsize=size, layout="constrained")

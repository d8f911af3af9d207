"""Figures of an optimization by matplotlib, made without its global state: they can be shown, saved or put into a page."""

from typing import TYPE_CHECKING, Any

import numpy as np

from acbo.pictures import MEASURED, PLAIN, graph_figure, new_figure, picture_style

from .current_belief import CurrentBelief, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_regret(
    current_belief: CurrentBelief, optimum: float | None = None, size: tuple[int, int] = (432, 288)
) -> "Figure":
    """The best expected target so far against the cost, or its distance from the optimum; `size` is in points."""
    found, target = current_belief.progress, current_belief.settings.target
    best, measured = found.best, found.measured
    with picture_style():
        figure = new_figure(*size, layout="constrained")
        axes = figure.add_subplot()
        if optimum is not None:
            sign = 1.0 if current_belief.settings.objective == "min" else -1.0
            best, measured = sign * (best - optimum), sign * (measured - optimum)
            axes.axhline(0.0, color="#9aa0a6", linestyle="--")
        axes.step(found.cost, best, where="post", color=PLAIN, linewidth=2, label="best so far, expected")
        axes.plot(
            found.cost[1:], measured[1:], "o", color=MEASURED, markersize=6, alpha=0.9, label="measured"
        )
        axes.set_xlabel("cost of the experiments")
        axes.set_ylabel(target if optimum is None else f"regret of {target}")
        axes.legend()
    return figure


def plot_effects(current_belief: CurrentBelief) -> "Figure":
    """The expected target over each variable's values, with bands and experiments."""
    curves = current_belief.curves
    columns = min(3, len(curves))
    lines = -(-len(curves) // columns)
    with picture_style():
        figure = new_figure(288 * columns, 216 * lines, layout="constrained")
        for number, curve in enumerate(curves):
            axes = figure.add_subplot(lines, columns, number + 1)
            _draw_effect(axes, curve)
            if number % columns == 0:
                axes.set_ylabel(f"expected {current_belief.settings.target}")
    return figure


def plot_effect(curve: Curve, target: str) -> "Figure":
    """The expected target over one variable's values, small enough for a phone."""
    with picture_style():
        figure = new_figure(300, 210, layout="constrained")
        axes = figure.add_subplot(title=curve.name)
        _draw_effect(axes, curve)
        axes.set_ylabel(target)
    return figure


def _draw_effect(axes: Any, curve: Curve) -> None:
    if curve.discrete:
        spread = np.stack([curve.mean - curve.low, curve.high - curve.mean])
        axes.errorbar(
            curve.x, curve.mean, np.maximum(spread, 0.0), fmt="o", color=PLAIN, capsize=4, capthick=1.5
        )
        if len(curve.x) < 9:
            axes.set_xticks(curve.x)
    else:
        axes.fill_between(curve.x, curve.low, curve.high, color=PLAIN, alpha=0.2, linewidth=0)
        axes.plot(curve.x, curve.mean, color=PLAIN, linewidth=2)
    axes.plot(curve.tried[:, 0], curve.tried[:, 1], "o", color=MEASURED, markersize=6, alpha=0.9)
    axes.set_xlabel(curve.name)


def plot_graph(current_belief: CurrentBelief, least: float = 0.1) -> "Figure":
    """Nodes with names and arrows as strong as their probability; those below `least` are left out."""
    settings = current_belief.settings
    return graph_figure(current_belief.edges, settings.names, target=settings.target, least=least)

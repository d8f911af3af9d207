"""Figures of an optimization, and its report as one HTML page.

Figures by matplotlib are made without its global state: they can be shown, saved or put into a page.
"""

import html
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acbo.pictures import (
    MEASURED,
    PLAIN,
    edge_matrix_svg,
    graph_figure,
    graph_svg,
    new_figure,
    picture_style,
    svg_text,
)
from jaxworlds.store import atomic_write

from .advice import action_text
from .current_belief import CurrentBelief, Curve
from .state import Levels, State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from . import Optimizer

STYLE = """
  :root { color-scheme: light dark; --page: #fff; --ink: #1c2233; --faint: #5d6577; --rule: #dde1ea; --good: #e8f1fa;
    --mark: #0072b2; --set: #fde9c8 }
  @media (prefers-color-scheme: dark) {
    :root { --page: #14161b; --ink: #e8eaf1; --faint: #a3abbd; --rule: #333947; --good: #1b2a3a; --mark: #6cb6ff; --set: #4a3a1c }
  }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
    background: var(--page) }
  p { max-width: 46rem }
  figure { margin: 1rem 0; overflow-x: auto }
  .wide { background: linear-gradient(to right, var(--page) 2rem, transparent) left / 4rem 100% no-repeat local,
    linear-gradient(to left, var(--page) 2rem, transparent) right / 4rem 100% no-repeat local,
    linear-gradient(to right, var(--rule), transparent) left / 1rem 100% no-repeat,
    linear-gradient(to left, var(--rule), transparent) right / 1rem 100% no-repeat }
  @media (max-width: 40rem) { .wide > svg { max-width: none !important } body { margin: 1rem auto } }
  table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
  th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--rule) }
  th:first-child, td:first-child { text-align: left }
  .advice { background: var(--good); border-left: 4px solid var(--mark); padding: .6rem 1rem; font-size: 1.15rem }
  .row { display: flex; flex-wrap: wrap; gap: 1rem }
  td.set { font-weight: bold; background: var(--set) }
"""


def write_report(
    optimizer: "Optimizer", path: str | os.PathLike[str], *, optimum: float | None = None
) -> Path:
    """Write the page, whole or not at all; it needs no other file and no network."""
    with atomic_write(path, "w") as file:
        file.write(html_report(optimizer, optimum=optimum))
    return Path(path)


def html_report(optimizer: "Optimizer", *, optimum: float | None = None) -> str:
    """The page as text."""
    state = optimizer.state
    current_belief = optimizer.current_belief
    settings, said = state.settings, html.escape
    title = f"{'Least' if settings.objective == 'min' else 'Greatest'} {settings.target}"
    parts = [
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>{said(title)}</title>\n<style>{STYLE}</style>\n<h1>{said(title)}</h1>",
        _advice(optimizer),
        "<h2>Problem</h2>",
        _question(state),
        "<h2>Progress</h2>",
        _progress(current_belief, optimum),
        "<h2>Effect of each variable</h2>",
        f"<p>Expected {said(settings.target)} if a variable is set; the band holds it with probability 0.9. "
        "Dots are experiments that set this variable alone.</p>",
        effects_part(current_belief),
        "<h2>Causes</h2>",
        graph_part(current_belief),
        "<h2>Experiments</h2>",
        _experiments(state),
        "</html>\n",
    ]
    return "\n".join(parts)


def _advice(optimizer: "Optimizer") -> str:
    if not optimizer.state.rows:
        return '<p class="advice">No rows yet: nothing is recommended.</p>'
    found = optimizer.recommend()
    return (
        f'<p class="advice">Recommended: <b>{html.escape(action_text(found.do))}</b>. Expected '
        f"{html.escape(found.target)} {found.expected:.4g}, between {found.low:.4g} and {found.high:.4g} with probability "
        "0.9.</p>" + "".join(f"\n<p>{html.escape(note)}</p>" for note in found.notes)
    )


def _question(state: State) -> str:
    settings = state.settings
    rows = [
        [v.name + (" (target)" if v.name == settings.target else ""), v.values_text, v.cost_text]
        for v in settings.variables
    ]
    graph = settings.graph
    known = "partly known" if graph.forbidden or graph.tiers or graph.probabilities else "unknown"
    if graph.required or graph.known:
        edges = ", ".join(f"{a} → {b}" for a, b in graph.required)
        known = f"{'the graph is known' if graph.known else 'known edges'}: {edges}"
    facts = {
        "strategy": settings.strategy or "given as an object",
        "graph": known,
        "rows before": str(sum(row.given for row in state.rows)),
        "experiments": f"{len(state.made)} made, {len(state.pending)} pending",
        "cost": f"{state.spent:g}" + (f" of {settings.budget:g}" if settings.budget is not None else ""),
        "mechanisms": settings.mechanism,
        "seed": str(settings.seed),
    }
    if state.stopped:
        facts["stopped"] = state.stopped
    listed = "".join(f"<li>{name}: {html.escape(fact)}</li>" for name, fact in facts.items())
    return _table(["variable", "can be set to", "cost"], rows) + f"\n<ul>{listed}</ul>"


def _progress(current_belief: CurrentBelief, optimum: float | None) -> str:
    if not current_belief.state.made:
        return "<p>No experiment was made yet.</p>"
    target = current_belief.settings.target
    title = "Best so far" if optimum is None else "Regret"
    chart = picture(lambda: svg_text(plot_regret(current_belief, optimum, (420, 260)), title))
    units = ""
    if optimum is not None:
        units = (
            f"<p>Regret is in units of {html.escape(target)} here: how far the expected value is from the optimum, {optimum:g}. "
            "Benchmarks of acbo divide it by the regret of doing nothing, the first point of the line, so that 1 is doing "
            "nothing.</p>\n"
        )
    return (
        f"{units}<p>The line is the current expectation of the best action tried so far, starting with doing nothing. "
        f"Dots are measurements.</p>\n<figure>{chart}</figure>"
    )


def effects_part(current_belief: CurrentBelief) -> str:
    """A chart of the expected target for each variable that can be set."""
    target = current_belief.settings.target

    def charts() -> str:
        return "".join(svg_text(plot_effect(curve, target), curve.name) for curve in current_belief.curves)

    return f'<div class="row">{picture(charts)}</div>'


def graph_part(current_belief: CurrentBelief) -> str:
    """The graph with arrows as strong as their probability, and the same in numbers."""
    names, edges = current_belief.settings.names, current_belief.edges
    graph = picture(lambda: graph_svg(edges, names, target=current_belief.settings.target))
    matrix = picture(lambda: edge_matrix_svg(edges, names, title="row causes column, in per cent"))
    shown = f'<figure class="wide">{graph}</figure><figure class="wide">{matrix}</figure>'
    return f"<p>Arrows are as strong as their probability.</p>\n{shown}"


def picture(draw: Callable[[], str]) -> str:
    """The result of `draw`, or without matplotlib a note that says how to install it."""
    try:
        return draw()
    except ImportError as error:
        return f'<p class="note">{html.escape(str(error))}</p>'


def _experiments(state: State) -> str:
    settings = state.settings
    given = sum(row.given for row in state.rows)
    heads = ["experiment", *settings.names, "cost"]
    listed: list[tuple[str, Levels, Levels]] = []  # experiment, known values, values that were set
    for row in state.rows:
        if not row.given:
            number = "observation" if not row.do else "elsewhere"
            number = number if row.experiment is None else str(row.experiment)
            values = dict(zip(settings.names, row.values, strict=True))
            listed.append((number, values, state.levels(row)))
    listed += [(f"{pending.experiment} (pending)", pending.do, pending.do) for pending in state.pending]
    rows = [
        [
            number,
            *(f"{known[v]:.5g}" if v in known else "" for v in settings.names),
            f"{settings.price(do):g}",
        ]
        for number, known, do in listed
    ]
    marks = [{1 + settings.names.index(name) for name in do} for _, _, do in listed]
    note = f"<p>{given} rows were given before the first experiment. Values that were set are marked.</p>\n"
    return note + _table(heads, rows, marks)


def _table(heads: list[str], rows: list[list[str]], marks: list[set[int]] | None = None) -> str:
    top = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    lines = []
    for number, row in enumerate(rows):
        marked = marks[number] if marks else set()
        cells = [
            f"<td{' class=set' if at in marked else ''}>{html.escape(cell)}</td>"
            for at, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>\n<tr>{top}</tr>\n" + "\n".join(lines) + "\n</table>"


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
            sign = current_belief.settings.sign
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

"""The report of an optimization as one HTML page: recommendation, progress, effects, graph, and all experiments."""

import html
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from acbo.pictures import edge_matrix_svg, graph_svg, svg_text
from jaxworlds.store import atomic_write

from .advice import action_text
from .current_belief import CurrentBelief
from .plots import plot_effect, plot_regret
from .state import State

if TYPE_CHECKING:
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
    known = (
        ("the graph is known: " if graph.known else "known edges: ")
        + ", ".join(f"{a} → {b}" for a, b in graph.required)
        if graph.required or graph.known
        else "partly known"
        if graph.forbidden or graph.tiers or graph.probabilities
        else "unknown"
    )
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
    rows: list[list[str]] = []
    marks: list[set[int]] = []
    for row in state.rows:
        if not row.given:
            number = "observation" if not row.do else "elsewhere"
            number = number if row.experiment is None else str(row.experiment)
            price = f"{settings.price(state.levels(row)):g}"
            rows.append([number, *(f"{value:.5g}" for value in row.values), price])
            marks.append({1 + settings.names.index(name) for name in row.do})
    for pending in state.pending:
        shown = [f"{pending.do[name]:.5g}" if name in pending.do else "" for name in settings.names]
        rows.append([f"{pending.experiment} (pending)", *shown, f"{settings.price(pending.do):g}"])
        marks.append({1 + settings.names.index(name) for name in pending.do})
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

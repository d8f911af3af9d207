"""Pictures of causal graphs without a plotting library: node and link, matrices, and a table for the terminal.

All take edges as booleans or as probabilities, `[i, j]` for i → j, and return SVG as text, to be written to a file or
put into a page.
"""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from .answers import likely_graph

if TYPE_CHECKING:
    from rich.table import Table

Edges = Shaped[Array | np.ndarray, "d d"]
Truth = Bool[Array | np.ndarray, "d d"]
Point = Float[np.ndarray, "2"]

COLUMN, ROW, HIGH, LETTER = 150, 62, 30, 7.6
"""Distances between nodes, height of a node, and width of a letter, in pixels."""
FOUND, WRONG, MISSED, PLAIN = "#0072b2", "#d55e00", "#8a9099", "#3d7ab8"
"""Colours of edges that are there and seen, seen and not there, there and not seen, and of all where truth is unknown.

Blue and orange of Okabe and Ito (2008) differ for every kind of colour vision; wrong edges are dashed as well.
"""
FRAME = "#e69f00"
"""Of a true edge in a matrix: seen around white cells and dark ones."""
MEASURED = WRONG
"""Colour of single measurements over a line."""
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def layered_places(edges: Edges) -> Float[np.ndarray, "d 2"]:
    """Column and row of each node: causes to the left of their effects, neighbours near one another.

    Of probabilities above 1/2 that go round in a circle, the least likely edge does not count.
    """
    names = [str(v) for v in range(len(edges))]
    graph = likely_graph(np.asarray(edges, float), names)
    d = len(graph)
    column = np.zeros(d, int)
    for _ in range(d):
        column = np.maximum(column, np.where(graph, column[:, None] + 1, 0).max(0, initial=0))
    # Causes stand next to the first of their effects: long arrows cross what lies between.
    for v in np.argsort(-column, kind="stable"):
        if graph[v].any():
            column[v] = column[graph[v]].min() - 1
    row = np.zeros(d)
    for c in range(column.max(initial=0) + 1):
        here = np.flatnonzero(column == c)
        wanted = [row[graph[:, v]].mean() if graph[:, v].any() else 0.0 for v in here]
        order = here[np.argsort(wanted, kind="stable")]
        row[order] = np.arange(len(order)) - (len(order) - 1) / 2
    return np.stack([column, row], axis=-1).astype(float)


def graph_svg(
    edges: Edges,
    names: Sequence[str],
    *,
    target: str | None = None,
    truth: Truth | None = None,
    places: Float[np.ndarray, "d 2"] | None = None,
    least: float = 0.1,
    title: str = "",
) -> str:
    """Nodes with names, arrows as strong as their probability; those below `least` are left out.

    With `truth`, arrows that are there are blue, those that are not are orange and dashed, and those that were not seen
    are grey and dotted. Pictures with the same `places` (from `layered_places`) can be laid side by side.
    """
    given = _checked(edges, names)
    if target is not None and target not in names:
        raise ValueError(f"`target` must be one of {', '.join(names)}; got {target!r}.")
    at = layered_places(edges if truth is None else truth) if places is None else np.asarray(places, float)
    at = at * (COLUMN, ROW)
    half = np.array([[max(44.0, LETTER * len(name) + 18) / 2, HIGH / 2] for name in names])
    drawn = np.argwhere((given >= least) | (False if truth is None else np.asarray(truth)))
    bends = [_bend(at, half, int(i), int(j)) for i, j in drawn]
    parts = [
        _arrow(at, half, int(i), int(j), bend, float(given[i, j]), truth, least, names)
        for (i, j), bend in zip(drawn, bends, strict=True)
    ]
    parts += [_node(at[v], 2 * half[v, 0], name, name == target) for v, name in enumerate(names)]
    reached = [
        point
        for (i, j), bend in zip(drawn, bends, strict=True)
        for point in _curve(_rim(at[i], bend, half[i]), bend, _rim(at[j], bend, half[j] + 2))
    ]
    low = np.min([*(at - half), *reached], axis=0) - 8
    high = np.max([*(at + half), *reached], axis=0) + 8
    if title:
        low = low - (0, 26)
        parts.insert(0, _heading(title, low[0] + 8, low[1] + 18))
    return _svg(low, high, title or "Causal graph", parts)


def edge_matrix_svg(
    edges: Edges,
    names: Sequence[str],
    *,
    truth: Truth | None = None,
    cell: int = 34,
    title: str = "",
) -> str:
    """A square of probabilities, row causes column: the darker the likelier; true edges have a frame."""
    given = _checked(edges, names)
    left, top = (
        LETTER * max(map(len, names)) + 14,
        LETTER * max(map(len, names)) * 0.75 + (40 if title else 20),
    )
    parts = [_heading(title, 8, 18)] if title else []
    for i, cause in enumerate(names):
        middle = cell * (i + 0.5)
        parts.append(
            f'<text x="{left - 6:.1f}" y="{top + middle + 4:.1f}" text-anchor="end" {FONT} '
            f'fill="currentColor">{html.escape(cause)}</text>'
        )
        x, y = left + middle, top - 6
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-45 {x:.1f} {y:.1f})" {FONT} '
            f'fill="currentColor">{html.escape(cause)}</text>'
        )
        for j, effect in enumerate(names):
            p = float(given[i, j])
            framed = truth is not None and bool(truth[i, j])
            edge = f'stroke="{FRAME}" stroke-width="3"' if framed else 'stroke="#d0d4da" stroke-width="1"'
            x, y = left + cell * j, top + middle - cell / 2
            inset = 1.5 if framed else 0.5
            parts.append(
                f'<rect x="{x + inset:.1f}" y="{y + inset:.1f}" width="{cell - 2 * inset:g}" '
                f'height="{cell - 2 * inset:g}" fill="{_shade(p) if i != j else "#eceef1"}" {edge}>'
                f"<title>{html.escape(f'{cause} → {effect}: {p:.3f}')}</title></rect>"
            )
            if i != j and p >= 0.005:
                ink = "#ffffff" if p > 0.5 else "#202124"
                parts.append(
                    f'<text x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" text-anchor="middle" {FONT} '
                    f'fill="{ink}">{_percent(p)}</text>'
                )
    # The last of the slanting names leans to the right.
    width = max(left + cell * len(names) + LETTER * len(names[-1]) * 0.75, LETTER * len(title) + 8) + 8
    high = np.array([width, top + cell * len(names) + 6])
    return _svg(np.zeros(2), high, title or "Edge probabilities", parts)


def edge_table(
    columns: Mapping[str, Edges], names: Sequence[str], *, least: float = 0.1, title: str | None = None
) -> "Table":
    """A table for the terminal: every edge that some column gives `least` or more, in per cent."""
    from rich.markup import escape
    from rich.table import Table

    given = {heading: _checked(edges, names) for heading, edges in columns.items()}
    table = Table("edge", title=title)
    for heading in given:
        table.add_column(heading, justify="right")
    shown = np.max(list(given.values()), axis=0) >= least
    for i, j in np.argwhere(shown):
        marks = [_percent(float(edges[i, j])) if edges[i, j] >= 0.005 else "·" for edges in given.values()]
        table.add_row(escape(f"{names[i]} → {names[j]}"), *marks)
    return table


def _checked(edges: Shaped[Array | np.ndarray, "..."], names: Sequence[str]) -> Float[np.ndarray, "d d"]:
    given = np.asarray(edges, float)
    if not names or given.shape != (len(names),) * 2:
        raise ValueError(
            f"`edges` must have a row and a column for each of the {len(names)} names; got shape {given.shape}. "
            "`acbo.answers.probabilities_of(answer, names)` takes off the padding."
        )
    if not ((given >= 0) & (given <= 1 + 1e-6)).all():
        raise ValueError(
            f"`edges` must be probabilities or booleans; got numbers from {given.min():g} to {given.max():g}."
        )
    return given


def _percent(p: float) -> str:
    return f"{100 * p:.0f}"


def _shade(p: float) -> str:
    """From white to dark blue."""
    dark = np.array([31, 58, 110])
    return "#{:02x}{:02x}{:02x}".format(*np.rint(255 + (dark - 255) * min(p, 1.0)).astype(int))


def _heading(title: str, x: float, y: float) -> str:
    said = html.escape(title)
    return f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-weight="bold" fill="currentColor">{said}</text>'


def _svg(low: Point, high: Point, label: str, parts: Sequence[str]) -> str:
    inside, (width, height) = "\n".join(parts), high - low
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{low[0]:.0f} {low[1]:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{html.escape(label)}" '
        f'style="max-width:100%;height:auto">\n{inside}\n</svg>'
    )


def _node(at: Point, wide: float, name: str, is_target: bool) -> str:
    x, y = at
    fill, line = ("#ffe3a3", "#b8860b") if is_target else ("#eef2f8", "#5f6b7a")
    return (
        f'<rect x="{x - wide / 2:.1f}" y="{y - HIGH / 2:.1f}" width="{wide:.1f}" height="{HIGH}" rx="9" '
        f'fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
        f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle" {FONT} fill="#202124">{html.escape(name)}</text>'
    )


def _bend(at: Float[np.ndarray, "d 2"], half: Float[np.ndarray, "d 2"], i: int, j: int) -> Point:
    """Where an arrow bends to, so that it crosses as few other nodes as possible, and bends as little."""
    along = at[j] - at[i]
    across = np.array([along[1], -along[0]])
    others = [v for v in range(len(at)) if v not in (i, j)]
    best, fewest = (at[i] + at[j]) / 2, np.inf
    for size in (0.0, 0.2, -0.2, 0.35, -0.35, 0.5, -0.5, 0.7, -0.7):
        bend = (at[i] + at[j]) / 2 + size * across
        curve = _curve(at[i], bend, at[j])
        crossed = (np.abs(curve[:, None] - at[others]) < half[others] + 6).all(-1).any(0).sum()
        if crossed < fewest:
            best, fewest = bend, crossed
    return best


def _curve(start: Point, bend: Point, end: Point) -> Float[np.ndarray, "41 2"]:
    part = np.linspace(0, 1, 41)[:, None]
    return (1 - part) ** 2 * start + 2 * part * (1 - part) * bend + part**2 * end


def _arrow(
    at: Float[np.ndarray, "d 2"],
    half: Float[np.ndarray, "d 2"],
    i: int,
    j: int,
    bend: Point,
    p: float,
    truth: Truth | None,
    least: float,
    names: Sequence[str],
) -> str:
    """A line with a head at its effect."""
    missed = p < least
    colour = PLAIN if truth is None else MISSED if missed else FOUND if truth[i, j] else WRONG
    start, end = _rim(at[i], bend, half[i]), _rim(at[j], bend, half[j] + 2)
    back = (bend - end) / (np.hypot(*(bend - end)) or 1.0)
    side = np.array([-back[1], back[0]])
    corners = (end, end + 10 * back + 4.5 * side, end + 10 * back - 4.5 * side)
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    dashes = {MISSED: ' stroke-dasharray="2 5"', WRONG: ' stroke-dasharray="9 5"'}.get(colour, "")
    clear = 0.8 if missed else 0.25 + 0.75 * p
    tail = end + 7 * back
    return (
        f'<g opacity="{clear:.2f}"><title>{html.escape(f"{names[i]} → {names[j]}: {p:.3f}")}</title>'
        f'<path d="M{start[0]:.1f},{start[1]:.1f} Q{bend[0]:.1f},{bend[1]:.1f} {tail[0]:.1f},{tail[1]:.1f}" '
        f'fill="none" stroke="{colour}" stroke-width="{1.2 + 1.6 * (0 if missed else p):.1f}"{dashes}/>'
        f'<polygon points="{head}" fill="{colour}"/></g>'
    )


def _rim(middle: Point, towards: Point, half: Point) -> Point:
    """Where the line from the middle of a node leaves its rectangle."""
    step = towards - middle
    reach = [size / abs(s) for size, s in zip(half + 1, step, strict=True) if abs(s) > 1e-9]
    return middle + step * min([*reach, 1.0])

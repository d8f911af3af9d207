"""Pictures of causal graphs, drawn with matplotlib: nodes and arrows, matrices, and a table for the terminal.

All take edges as booleans or as probabilities, `[i, j]` for i → j. Figures are made without matplotlib's global state; as
SVG they have no background, and their text takes the colour of the page around them.
"""

import contextlib
import hashlib
import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from .answers import likely_graph
from .names import place
from .optional import optional_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Edges = Shaped[Array | np.ndarray, "d d"]
Truth = Bool[Array | np.ndarray, "d d"]
Point = Float[np.ndarray, "2"]

COLUMN, ROW, HIGH, LETTER = 150, 62, 30, 7.6
"""Distances between nodes, height of a node, and width of a letter, in pixels."""
FOUND, WRONG, MISSED, PLAIN = "#0072b2", "#d55e00", "#8a9099", "#3d7ab8"
"""Colours of edges: true and found, found but not true, true but missed, and of all edges where the truth is unknown.

Blue and orange of Okabe and Ito (2008) differ for every kind of colour vision; wrong edges are dashed as well.
"""
FRAME = "#e69f00"
"""Colour of the frame of a true edge in a matrix: visible around white cells and dark ones."""
MEASURED = WRONG
"""Colour of single measurements over a line."""
INK = "#1c2234"
"""Colour of text and axes in figures; in SVG they take the colour of the page."""
BENDS = (0.0, 0.2, -0.2, 0.35, -0.35, 0.5, -0.5, 0.7, -0.7)
"""Possible bends of an arrow, as parts of its length; matplotlib's `rad`."""


@contextlib.contextmanager
def picture_style() -> Iterator[None]:
    """Fonts and colours of all figures, while they are made and written."""
    style: dict[str, Any] = {
        "font.size": 11,
        "axes.titlesize": 13,
        "axes.titleweight": "bold",
        "axes.labelsize": 12,
        "axes.grid": True,
        "axes.axisbelow": True,
        "legend.framealpha": 0.0,
        "lines.markeredgewidth": 0.0,
        "grid.color": INK,
        "grid.alpha": 0.15,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "acbo",
        "text.parse_math": False,  # a dollar in a name is a dollar
    }
    style |= dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    with optional_package("matplotlib", "A picture").rc_context(style):
        yield


def new_figure(width: float, height: float, **options: Any) -> "Figure":
    """An empty figure of this size in pixels of SVG."""
    figure = optional_package("matplotlib.figure", "A picture").Figure
    return figure(figsize=(width / 72, height / 72), **options)


def svg_text(figure: "Figure", label: str, tips: Mapping[str, str] | None = None) -> str:
    """A figure as SVG to put into a page: no background, no address outside, ids of its own.

    - `label`: what the picture shows, for screen readers.
    - `tips`: texts that appear over artists, by the `gid` of the artist.
    """
    file = io.StringIO()
    with picture_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has other fonts
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", dpi=72, transparent=True, metadata=nothing)
    text = file.getvalue()
    # A style inside one picture would hold for the whole page.
    parts = r"<metadata>.*?</metadata>\s*|<style.*?</style>\s*|<!--.*?-->\s*"
    text = re.sub(parts, "", text[text.index("<svg") :], flags=re.DOTALL)
    for name, tip in (tips or {}).items():
        text = text.replace(f'<g id="{name}">', f"<g>\n<title>{html.escape(tip)}</title>")
    own = hashlib.blake2b(f"{label}{text}".encode(), digest_size=4).hexdigest()
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{m[1]}-{own}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)([^")]+)', rf"\1\2-{own}", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text.replace(INK, "currentColor"))
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', text)[:2])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(label)}" '
        'style="max-width:100%;height:auto;stroke-linejoin:round">'
    )
    return head + text[text.index(">") + 1 :].rstrip()


def layered_places(edges: Edges) -> Float[np.ndarray, "d 2"]:
    """Column and row of each node: causes to the left of their effects, neighbours near one another.

    Where edges with probabilities above 1/2 form a cycle, its least likely edge does not count.
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
    """`graph_figure` as SVG text, for a file or a page; a name and a number appear over every arrow."""
    figure = graph_figure(edges, names, target=target, truth=truth, places=places, least=least, title=title)
    given = np.asarray(edges, float)
    tips = {
        f"edge-{i}-{j}": f"{names[i]} → {names[j]}: {given[i, j]:.3f}" for i, j in np.ndindex(given.shape)
    }
    return svg_text(figure, title or "Causal graph", tips)


def graph_figure(
    edges: Edges,
    names: Sequence[str],
    *,
    target: str | None = None,
    truth: Truth | None = None,
    places: Float[np.ndarray, "d 2"] | None = None,
    least: float = 0.1,
    title: str = "",
) -> "Figure":
    """Nodes with names, and arrows as strong as their probability; those below `least` are left out.

    With `truth`, true arrows are blue, wrong ones orange and dashed, and missed ones grey and dotted. Pictures with the
    same `places` (from `layered_places`) can be laid side by side.
    """
    given = _edge_probabilities(edges, names)
    if target is not None:
        place(target, names, "target")
    at = layered_places(edges if truth is None else truth) if places is None else np.asarray(places, float)
    at = at * (COLUMN, -ROW)
    half = np.array([[max(44.0, LETTER * len(name) + 18) / 2, HIGH / 2] for name in names])
    drawn = np.argwhere((given >= least) | (False if truth is None else np.asarray(truth))).tolist()
    bends = [_least_crossing_bend(at, half, i, j) for i, j in drawn]
    curves = [_curve(at[i], at[j], bend) for (i, j), bend in zip(drawn, bends, strict=True)]
    low = np.min([*(at - half), *np.concatenate([at, *curves])], axis=0) - 8
    high = np.max([*(at + half), *np.concatenate([at, *curves])], axis=0) + 8
    high[1] += 26 if title else 0
    high[0] = max(high[0], low[0] + LETTER * len(title) + 16)
    with picture_style():
        figure = new_figure(*(high - low).tolist())
        axes = figure.add_axes((0, 0, 1, 1), xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_axis_off()
        boxes = [
            _draw_node(axes, at[v], 2 * half[v, 0], name, name == target) for v, name in enumerate(names)
        ]
        for (i, j), bend in zip(drawn, bends, strict=True):
            style = _arrow_style(float(given[i, j]), None if truth is None else bool(truth[i, j]), least)
            _draw_arrow(axes, (at[i], at[j]), (boxes[i], boxes[j]), bend, style).set_gid(f"edge-{i}-{j}")
        if title:
            axes.text(low[0] + 8, high[1] - 18, title, weight="bold", fontsize=13)
    return figure


def edge_matrix_svg(
    edges: Edges, names: Sequence[str], *, truth: Truth | None = None, cell: int = 34, title: str = ""
) -> str:
    """A square of probabilities as SVG text, row causes column: the darker the likelier; true edges have a frame."""
    given = _edge_probabilities(edges, names)
    d, slanted = len(names), LETTER * max(map(len, names))
    left, top, right = slanted + 14, slanted * 0.75 + (40 if title else 20), LETTER * len(names[-1]) * 0.75
    width, height = max(left + cell * d + right, LETTER * len(title) + 8) + 8, top + cell * d + 6
    with picture_style():
        figure = new_figure(width, height)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        if title:
            axes.text(8, 18, title, weight="bold", fontsize=13)
        for i, name in enumerate(names):
            middle = cell * (i + 0.5)
            axes.text(left - 6, top + middle, name, ha="right", va="center", fontsize=13)
            slanted_name = axes.text(left + middle, top - 6, name, ha="left", va="bottom", fontsize=13)
            slanted_name.set(rotation=40, rotation_mode="anchor")
        for i, j in np.ndindex(d, d):
            framed = truth is not None and bool(truth[i, j])
            corner = np.array([left + cell * j, top + cell * i])
            _draw_cell(axes, corner, cell, float(given[i, j]) if i != j else None, framed, f"cell-{i}-{j}")
    tips = {f"cell-{i}-{j}": f"{names[i]} → {names[j]}: {given[i, j]:.3f}" for i, j in np.ndindex(d, d)}
    return svg_text(figure, title or "Edge probabilities", tips)


def edge_table(
    columns: Mapping[str, Edges], names: Sequence[str], *, least: float = 0.1, title: str | None = None
) -> "Table":
    """A table for the terminal, in per cent: every edge with a probability of `least` or more in some column."""
    from rich.markup import escape
    from rich.table import Table

    given = {heading: _edge_probabilities(edges, names) for heading, edges in columns.items()}
    table = Table("edge", title=title)
    for heading in given:
        table.add_column(heading, justify="right")
    shown = np.max(list(given.values()), axis=0) >= least
    for i, j in np.argwhere(shown):
        marks = [f"{100 * edges[i, j]:.0f}" if edges[i, j] >= 0.005 else "·" for edges in given.values()]
        table.add_row(escape(f"{names[i]} → {names[j]}"), *marks)
    return table


def _edge_probabilities(
    edges: Shaped[Array | np.ndarray, "..."], names: Sequence[str]
) -> Float[np.ndarray, "d d"]:
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


def _draw_node(axes: Any, at: Point, wide: float, name: str, is_target: bool) -> Any:
    """A rounded box with a name; returns the box, at which arrows end."""
    from matplotlib.patches import FancyBboxPatch

    fill, line = ("#ffe3a3", "#b8860b") if is_target else ("#eef2f8", "#5f6b7a")
    corner = (at[0] - wide / 2, at[1] - HIGH / 2)
    shape = "round,pad=0,rounding_size=9"
    box = FancyBboxPatch(
        corner, wide, HIGH, boxstyle=shape, facecolor=fill, edgecolor=line, linewidth=1.5, zorder=3
    )
    axes.add_patch(box)
    axes.text(*at, name, ha="center", va="center_baseline", fontsize=13, color="#202124", zorder=4)
    return box


def _arrow_style(p: float, is_true: bool | None, least: float) -> dict[str, Any]:
    """Colour, dashes, width and opacity of an arrow: the stronger, the likelier."""
    missed = p < least
    colour = PLAIN if is_true is None else MISSED if missed else FOUND if is_true else WRONG
    dashes = {MISSED: (0, (1.5, 3)), WRONG: (0, (5, 3))}.get(colour, "solid")
    strength = (
        {"linewidth": 1.2, "alpha": 0.8} if missed else {"linewidth": 1.2 + 1.6 * p, "alpha": 0.25 + 0.75 * p}
    )
    return {"color": colour, "linestyle": dashes, **strength}


def _draw_arrow(
    axes: Any, ends: tuple[Point, Point], boxes: tuple[Any, Any], bend: float, style: Mapping[str, Any]
) -> Any:
    from matplotlib.patches import FancyArrowPatch

    head = "-|>,head_length=9,head_width=4"
    shape = {"arrowstyle": head, "mutation_scale": 1, "connectionstyle": f"arc3,rad={bend}"}
    rims = {"patchA": boxes[0], "patchB": boxes[1], "shrinkA": 1, "shrinkB": 3}
    arrow = FancyArrowPatch(tuple(ends[0]), tuple(ends[1]), **shape, **rims, **style)
    axes.add_patch(arrow)
    return arrow


def _draw_cell(axes: Any, corner: Point, cell: int, p: float | None, framed: bool, gid: str) -> None:
    """A cell from white to dark blue with its number in per cent; `p` is None on the diagonal."""
    from matplotlib.patches import Rectangle

    dark = np.array([31, 58, 110]) / 255
    fill = "#eceef1" if p is None else tuple(1 + (dark - 1) * min(p, 1.0))
    inset, line, width = (1.5, FRAME, 3.0) if framed else (0.5, "#d0d4da", 1.0)
    (x, y), size = corner + inset, cell - 2 * inset
    axes.add_patch(Rectangle((x, y), size, size, facecolor=fill, edgecolor=line, linewidth=width, gid=gid))
    if p is not None and p >= 0.005:
        ink = "#ffffff" if p > 0.5 else "#202124"
        middle = (x + size / 2, y + size / 2)
        axes.text(*middle, f"{100 * p:.0f}", ha="center", va="center_baseline", fontsize=13, color=ink)


def _least_crossing_bend(
    at: Float[np.ndarray, "d 2"], half: Float[np.ndarray, "d 2"], i: int, j: int
) -> float:
    """The smallest bend with which an arrow crosses the fewest other nodes."""
    others = [v for v in range(len(at)) if v not in (i, j)]

    def crossings(bend: float) -> int:
        curve = _curve(at[i], at[j], bend)
        return int((np.abs(curve[:, None] - at[others]) < half[others] + 6).all(-1).any(0).sum())

    return min(BENDS, key=crossings)


def _curve(start: Point, end: Point, bend: float) -> Float[np.ndarray, "41 2"]:
    """Points of matplotlib's `arc3`: a parabola between two points."""
    along = end - start
    middle = (start + end) / 2 + bend * np.array([along[1], -along[0]])
    part = np.linspace(0, 1, 41)[:, None]
    return (1 - part) ** 2 * start + 2 * part * (1 - part) * middle + part**2 * end

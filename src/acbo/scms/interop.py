"""Models and data in and out of networkx, pandas and pgmpy, each imported when it is used."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from acbo.data import Dataset, demand_digits
from acbo.names import number, place, require_distinct, short, text_remedy, truth_marks, without
from acbo.optional import optional_package

from .builders import Costs, Ranges, linear_model, padded_size
from .causal_model import CausalModel
from .dsl import equation
from .mechanisms import NOISES

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


def from_networkx(
    graph: "nx.DiGraph",
    *,
    target: str | None = None,
    ranges: Ranges | None = None,
    hidden: Sequence[str] = (),
    costs: Costs | None = None,
    size: int | None = None,
) -> CausalModel:
    """The linear model of a directed graph, with what `to_networkx` writes.

    An edge's `weight` is its effect (1 where it has none). A node may have `bias`, `scale` (1 where it has none),
    `noise` (a kind), `hidden`, `low` and `high`, `cost` and `cost_per_unit`, and the graph a `target`; arguments take
    their place. A node that says it is not linear is refused.
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise ValueError(f"`graph` must be a networkx DiGraph; got {type(graph).__name__}.")
    nodes = list(graph.nodes)
    names = [str(node) for node in nodes]
    require_distinct(names, "graph")
    d = len(names)
    weights, adjacency = np.zeros((d, d)), np.zeros((d, d), bool)
    for cause, effect, facts in graph.edges(data=True):
        i, j = nodes.index(cause), nodes.index(effect)
        adjacency[i, j] = True
        weights[i, j] = number(
            facts.get("weight", 1.0), f"graph: weight of {short(cause)} -> {short(effect)}"
        )
    prices, own, kinds = {}, {}, []
    facts = [graph.nodes[node] for node in nodes]
    for name, fact in zip(names, facts, strict=True):
        noise = str(fact.get("noise", "gaussian"))
        kinds.append(place(noise, NOISES, "noise"))
        _demand_linear(name, str(fact.get("mechanism", "linear")), noise, "graph")
        if "low" in fact and "high" in fact:
            own[name] = (fact["low"], fact["high"])
        if "cost" in fact:
            per_unit = number(fact.get("cost_per_unit", 0.0), "graph: cost_per_unit")
            prices[name] = (number(fact["cost"], f"graph: cost of {short(name)}"), per_unit)
    goal = graph.graph.get("target") if target is None else target
    return linear_model(
        names,
        weights,
        scale=np.array([number(fact.get("scale", 1.0), "graph: scale") for fact in facts]),
        bias=np.array([number(fact.get("bias", 0.0), "graph: bias") for fact in facts]),
        kind=np.array(kinds, np.int32),
        adjacency=adjacency,
        target=None if goal is None else str(goal),
        ranges=ranges if ranges is not None else own or None,
        hidden=[*hidden, *(n for n, f in zip(names, facts, strict=True) if f.get("hidden"))],
        costs=prices if costs is None else costs,
        size=size,
    )


def _demand_linear(name: str, mechanism: str, noise: str, argument: str) -> None:
    """Raise for mechanisms and noise that weights alone cannot describe."""
    if mechanism != "linear" or noise == "heteroscedastic":
        raise ValueError(
            f"`{argument}` must be of a linear model whose noise does not depend on causes; {short(name)} is {mechanism} with "
            f"{noise} noise. Text keeps every kind: `parse_model(str(model))`."
        )


def to_networkx(model: CausalModel) -> "nx.DiGraph":
    """The graph with weights on its edges; nodes carry bias, scale, noise, mechanism, equation, ranges and costs."""
    graph = optional_package("networkx", "`to_networkx`").DiGraph(target=model.target)
    m, noise = model.scm.mechanism, model.scm.noise
    ranges, mechanisms, noises = model.ranges, model.mechanisms, model.noises
    for v, name in enumerate(model.names):
        facts = {"bias": float(m.bias[v]), "scale": float(noise.scale[v]), "noise": noises[name]}
        facts |= {"mechanism": mechanisms[name], "equation": equation(model, name)}
        if name in model.hidden:
            facts["hidden"] = True
        if name in ranges:
            facts["low"], facts["high"] = ranges[name]
            facts |= {"cost": float(model.scm.cost_fixed[v]), "cost_per_unit": float(model.scm.cost_unit[v])}
        graph.add_node(name, **facts)
    for cause, effect in model.edges:
        graph.add_edge(cause, effect, weight=float(m.weight[model.index(cause), model.index(effect)]))
    return graph


def from_adjacency_frame(frame: "pd.DataFrame", **options: Any) -> CausalModel:
    """A linear model from a square table of weights, row causes column; options as for `linear_model`."""
    rows, columns = [str(v) for v in frame.index], [str(v) for v in frame.columns]
    require_distinct(columns, "frame")
    if sorted(rows) != sorted(columns):
        raise ValueError(
            f"`frame` must have the same names in rows and columns; got rows {short(rows)} and columns {short(columns)}. "
            "Set `frame.index = frame.columns` if they are in one order."
        )
    order = [rows.index(name) for name in columns]
    weights = [[number(value, "frame: weights") for value in frame.iloc[row]] for row in order]
    return linear_model(columns, np.array(weights, float).reshape(len(columns), -1), **options)


def to_adjacency_frame(model: CausalModel, weights: bool = True) -> "pd.DataFrame":
    """A square table, row causes column: linear weights, or booleans for edges of every kind."""
    d = len(model.names)
    table = np.asarray(model.scm.mechanism.weight if weights else model.scm.adjacency)[:d, :d]
    frame = optional_package("pandas", "`to_adjacency_frame`").DataFrame
    return frame(table, index=list(model.names), columns=list(model.names))


def from_edge_frame(
    frame: "pd.DataFrame",
    source: str = "source",
    target_column: str = "target",
    weight: str = "weight",
    **options: Any,
) -> CausalModel:
    """A linear model from a table with one edge per row; without a column of weights they are 1.

    Where a column `mechanism` says that an effect is not linear, as `to_edge_frame` does, the table is refused.
    Variables without edges are not in it: give them to `from_adjacency_frame`. Options as for `linear_model`.
    """
    for column in (source, target_column):
        place(column, [str(c) for c in frame.columns], "frame: columns")
    pairs = [(str(a), str(b)) for a, b in zip(frame[source], frame[target_column], strict=True)]
    for row, pair in enumerate(pairs):
        if pair in pairs[:row]:
            raise ValueError(f"`frame` must hold each edge once; got {pair[0][:60]} -> {pair[1][:60]} twice.")
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if "mechanism" in frame.columns:
        for (_, effect), mechanism in zip(pairs, frame["mechanism"], strict=True):
            _demand_linear(effect, str(mechanism), "gaussian", "frame")
    values = frame[weight] if weight in frame.columns else np.ones(len(frame))
    weights, adjacency = np.zeros((len(names),) * 2), np.zeros((len(names),) * 2, bool)
    for (cause, effect), value in zip(pairs, values, strict=True):
        place_of = names.index(cause), names.index(effect)
        weights[place_of], adjacency[place_of] = number(value, f"frame: {weight}"), True
    return linear_model(names, weights, adjacency=adjacency, **options)


def to_edge_frame(model: CausalModel) -> "pd.DataFrame":
    """One row per edge: source, target, linear weight, and the effect's kind of mechanism."""
    kinds, weight = model.mechanisms, np.asarray(model.scm.mechanism.weight)
    rows = [
        (cause, effect, float(weight[model.index(cause), model.index(effect)]), kinds[effect])
        for cause, effect in model.edges
    ]
    return optional_package("pandas", "`to_edge_frame`").DataFrame(
        rows, columns=["source", "target", "weight", "mechanism"]
    )


def to_frame(data: Dataset, names: Sequence[str]) -> "pd.DataFrame":
    """The real rows and observed variables as columns; what was set stands in `frame.attrs["intervened"]`."""
    pandas = optional_package("pandas", "`to_frame`")
    shown = np.flatnonzero(np.asarray(data.live))
    if len(names) <= shown.max(initial=-1):
        raise ValueError(
            f"`names` must name every live variable, up to number {shown.max()}; got {len(names)} names."
        )
    rows, columns = np.asarray(data.rows), [names[int(v)] for v in shown]
    frame = pandas.DataFrame(np.asarray(data.values)[rows][:, shown], columns=columns)
    touched = np.asarray(data.intervened)[rows][:, shown]
    # Plain lists: pandas compares attrs when it joins tables, which arrays do not survive.
    frame.attrs["intervened"] = touched.tolist()
    frame.attrs["intervened_at"] = [frame.index.tolist(), columns]
    return frame


def from_frame(
    frame: "pd.DataFrame",
    *,
    target: str | int,
    intervened: "pd.DataFrame | Bool[np.ndarray, 'n d'] | str | int | None" = None,
    size: int | None = None,
) -> tuple[Dataset, tuple[str, ...]]:
    """The data of a table, padded, with the names of its columns.

    `intervened` marks the entries that were set: a table or an array of the frame's shape, or the name of a column that
    says for each row which variables were set, joined by commas, or nothing. Without it, what `to_frame` stored is used,
    and otherwise nothing was set.
    """
    if isinstance(frame, str | os.PathLike):
        raise TypeError(
            f"`frame` must be a data frame, not a path; got {short(os.fspath(frame))}. Read the file first: "
            f"acbo.from_frame(pandas.read_csv({os.fspath(frame)!r}), ...)."
        )
    if not hasattr(frame, "columns"):
        raise TypeError(
            f"`frame` must be a data frame; got {type(frame).__name__}. `acbo.dataset(values, intervened, target=0)` takes "
            "arrays."
        )
    said = None
    if isinstance(intervened, str | int):
        at = place(str(intervened), [str(column) for column in frame.columns], "intervened")
        said, frame = frame.iloc[:, at], frame.iloc[:, [v for v in range(frame.shape[1]) if v != at]]
    names = tuple(str(column) for column in frame.columns)
    require_distinct(names, "frame")
    values = _numbers(frame, names)
    if np.isinf(values).any() or (np.abs(values) > float(jnp.finfo(jnp.result_type(float)).max)).any():
        raise ValueError(f"`frame` must be finite in {jnp.result_type(float)}; a number is larger than that.")
    if np.isnan(values).any():
        bad = names[int(np.argwhere(np.isnan(values))[0, 1])]
        raise ValueError(
            f"`frame` must have a number in every entry; got a missing one in {bad!r}. Drop such rows."
        )
    demand_digits(values, names, "frame")
    if said is not None:
        touched = _said_to_be_set(said, names)  # pyright: ignore[reportArgumentType]
    elif intervened is None:
        touched = _stored_marks(frame, names)
    elif hasattr(intervened, "columns"):
        table: Any = intervened
        for column in map(str, table.columns):
            place(column, names, "intervened")
        # Names of columns may be text in one table and whole numbers in the other.
        marks = table.set_axis([str(column) for column in table.columns], axis=1)
        touched = truth_marks(marks.reindex(columns=list(names), fill_value=False), "intervened")
    else:
        touched = truth_marks(intervened, "intervened")
    if touched.shape != values.shape:
        raise ValueError(f"`intervened` must have the shape of `frame`, {values.shape}; got {touched.shape}.")
    d, goal = len(names), place(str(target), names, "target")
    extra = (padded_size(d) if size is None else size) - d
    if extra < 0:
        raise ValueError(f"`size` must be at least the number of columns, {d}; got {size}.")
    wide = [(0, 0), (0, extra)]
    data = Dataset(
        values=jnp.asarray(np.pad(values, wide), jnp.result_type(float)),
        intervened=jnp.asarray(np.pad(touched, wide)),
        rows=jnp.ones(len(values), bool),
        live=jnp.arange(d + extra) < d,
        target=jnp.asarray(goal, jnp.int32),
    )
    return data, names


def _numbers(frame: "pd.DataFrame", names: Sequence[str]) -> Float[np.ndarray, "n d"]:
    """The table as double precision; NaN for what is missing. Text is refused, even where it reads like a number."""
    for at, (name, kind) in enumerate(zip(names, frame.dtypes, strict=True)):
        column = frame.iloc[:, at]
        if kind.kind in "cmM":
            raise ValueError(
                f"`frame` must hold real numbers; column {name!r} has {kind}. Turn it into numbers, or drop it: "
                f"{without([name])}."
            )
        if kind.kind in "biuf":
            continue
        for label, cell in zip(frame.index, column, strict=True):
            missing = cell is None or type(cell).__name__ in ("NAType", "NaTType")  # the last two of pandas
            if isinstance(cell, str | bytes) or not (hasattr(cell, "__float__") or missing):
                raise ValueError(
                    f"`frame` must hold numbers; column {name!r} has {short(cell)} in row {short(label)}."
                    f"{text_remedy(cell, name)} Pass `intervened={name!r}` if the column says what was set."
                )
    try:
        return np.asarray(frame.to_numpy(float, na_value=np.nan), float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"`frame` must hold numbers of double precision; {str(error)[:200]}.") from error


def _said_to_be_set(said: "pd.Series", names: Sequence[str]) -> Bool[np.ndarray, "n d"]:
    """Marks from a column of names; an empty entry or a missing one is an observation."""
    touched = np.zeros((len(said), len(names)), bool)
    for row, entry in enumerate(said):
        # A column of single whole numbers is numbers to pandas, with fractions where some are missing.
        if isinstance(entry, int | float | np.number) and entry == entry:
            whole = isinstance(entry, int | np.integer) or float(entry).is_integer()
            entry = str(int(entry)) if whole else str(entry)
        for name in entry.split(",") if isinstance(entry, str) and entry.strip() else ():
            touched[row, place(name.strip(), names, f"frame: {said.name}")] = True
    return touched


def _stored_marks(frame: "pd.DataFrame", names: Sequence[str]) -> Bool[np.ndarray, "n d"]:
    """The marks that `to_frame` stored, for the current rows and columns of the table."""
    stored = frame.attrs.get("intervened")
    if stored is None:
        return np.zeros((len(frame), len(names)), bool)
    rows, columns = frame.attrs.get("intervened_at", (frame.index.tolist(), list(names)))
    place_of = {label: number for number, label in enumerate(rows)}
    labels = frame.index.tolist()
    if len(set(labels)) < len(labels) or not set(labels) <= set(place_of) or not set(names) <= set(columns):
        raise ValueError(
            "`frame` must have rows and columns of the table that `to_frame` made, because it remembers what was set in "
            "them; others are here. Pass `intervened`."
        )
    kept = np.asarray(stored, bool).reshape(len(rows), len(columns))
    return kept[np.ix_([place_of[label] for label in labels], [columns.index(name) for name in names])]

"""Parsing of measured rows with the variables set in each: all rows are valid, or an error changes nothing."""

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from acbo.names import place, short, short_list, suggestion, text_remedy, truth_marks, without
from acbo.scms.interop import from_frame

from .state import Pending, Row, Settings, State
from .variables import RESERVED

Table = Any
"""A data frame, a Series, a mapping, or a list of mappings."""
Marks = Any
"""The variables that were set: a name, names, a column of names, or a mask of the rows' shape."""


def parse_rows(state: State, rows: Table, do: Marks = None) -> tuple[Row, ...]:
    """Parse the rows given to `tell`, each with its experiment if it has one."""
    records = _records(rows)
    if not records:
        raise ValueError("`rows` must hold at least one row; got none. Tell what was measured.")
    marks = _marks(state.settings, records, rows, do)
    pending = {p.experiment: p for p in state.pending}
    made = {row.experiment for row in state.rows if row.experiment is not None}
    found: list[Row] = []
    for number, (record, names) in enumerate(zip(records, marks, strict=True)):
        where = f"rows[{number}]"
        experiment = _experiment(record.pop("experiment", None), where)
        if experiment is not None:
            if experiment in made:
                raise ValueError(
                    f"`{where}` must be of an experiment that has no result yet; experiment {experiment} was told. "
                    "Leave it out, or tell a repetition without its number and with `do=`."
                )
            if experiment not in pending:
                gone = experiment in state.cancelled
                raise ValueError(
                    f"`{where}` must be of a pending experiment, {_some(pending)}; got {experiment}, which "
                    f"{'was cancelled' if gone else 'was never asked for'}. Tell it without its number and with `do=`."
                )
            made.add(experiment)
            names = _fill_in(state.settings, pending[experiment], record, names, where)
        elif not names:
            _note_likely_result(state.settings, record, pending, where)
        found.append(_row(state.settings, record, names, experiment, where))
    return tuple(found)


def _note_likely_result(
    settings: Settings, record: Mapping[str, Any], pending: Mapping[int, Any], where: str
) -> None:
    """Warn of a row that has what a pending experiment sets and not its number: it counts as an observation."""
    for number, asked in pending.items():
        if asked.do and all(
            name in record and _same(settings, name, record[name], value) for name, value in asked.do.items()
        ):
            warnings.warn(
                f"`{where}` counts as an observation, though it has what experiment {number} sets. If it is its result, "
                f"tell it with `experiment={number}`; the experiment is still pending.",
                stacklevel=4,
            )
            return


def initial_rows(settings: Settings, frame: Any, intervened: Marks = None) -> tuple[Row, ...]:
    """Parse the rows given before the first experiment, marked as for `acbo.from_frame`."""
    if frame is None:
        return ()
    records = _records(frame, "data")
    if records and settings.target not in records[0] and not suggestion(settings.target, records[0]):
        raise ValueError(
            f"`data` must have a column of the target, {settings.target!r}; got {short_list(', '.join(records[0]))}. Add it: "
            f"data=frame.assign(**{{{settings.target!r}: [...]}})."
        )
    if intervened is None and getattr(frame, "attrs", {}).get("intervened") is not None:
        # What `to_frame` remembers of what was set.
        try:
            data, names = from_frame(frame, target=settings.target)
        except ValueError as error:
            raise ValueError(str(error).replace("`frame`", "`data`")) from None
        intervened = np.asarray(data.intervened)[:, : len(names)]
    marks = _marks(settings, records, frame, intervened, "intervened")
    if any("experiment" in record for record in records):
        raise ValueError(
            "`data` must be rows from before; got a column 'experiment'. Use `tell` for results of `ask`. For the history of "
            "another optimization, pass `data=history.drop(columns='experiment')` and `intervened='set'`."
        )
    return tuple(
        _row(settings, record, names, None, f"data[{number}]", given=True)
        for number, (record, names) in enumerate(zip(records, marks, strict=True))
    )


def _records(rows: Table, argument: str = "rows") -> list[dict[str, Any]]:
    """One dictionary per row; the index is taken where it is that of `ask`."""
    if hasattr(rows, "columns"):
        if getattr(rows.index, "name", None) == "experiment" and "experiment" not in rows.columns:
            rows = rows.reset_index()
        if getattr(rows.columns, "nlevels", 1) > 1:
            raise ValueError(
                f"`{argument}` must have columns of one name each; got names of {rows.columns.nlevels} levels. Keep the last: "
                "frame.columns = frame.columns.get_level_values(-1)."
            )
        names = [str(column) for column in rows.columns]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(
                f"`{argument}` must have each column once; got {', '.join(sorted(twice))} twice."
            )
        return [dict(zip(names, values, strict=True)) for values in rows.itertuples(index=False, name=None)]
    if isinstance(rows, Mapping) or hasattr(rows, "to_dict"):
        rows = [rows if isinstance(rows, Mapping) else rows.to_dict()]
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return [{str(name): value for name, value in row.items()} for row in rows]
    if isinstance(rows, str | os.PathLike):
        raise TypeError(
            f"`{argument}` must be a data frame, not a path; got {short(os.fspath(rows))}. Read the file first: "
            f"{argument}=pandas.read_csv({os.fspath(rows)!r})."
        )
    example = (
        "tell({'experiment': 0, 'dose': 3, 'pain': 1.5})"
        if argument == "rows"
        else "data=pandas.DataFrame(...)"
    )
    raise TypeError(
        f"`{argument}` must be a data frame, a mapping or a list of mappings; got {type(rows).__name__}. Write {example}."
    )


def _marks(
    settings: Settings, records: list[dict[str, Any]], rows: Table, do: Any, argument: str = "do"
) -> list[list[str]]:
    """The variables set in each row; a column of such names is removed from the rows."""
    if _is_name(do):
        do = str(do)
    if isinstance(do, str) and do not in settings.names:
        for record in records:
            if do not in record:
                place(do, settings.names, argument)
            record["do"] = record.pop(do)
        do = None
    if do is None:
        return [_names_in_row(settings, record, f"rows[{n}]") for n, record in enumerate(records)]
    if isinstance(do, str):
        return [[do] for _ in records]
    if isinstance(do, list | tuple) and all(_is_name(name) for name in do):
        names = [str(name) for name in do]
        for name in names:
            place(name, settings.names, argument)
        if len(set(names)) < len(names):
            raise ValueError(
                f"`{argument}` must name each variable once, because a list tells what was set in every row; got "
                f"{short(names)}. For a name for each row, add a column: frame.assign(do=[...])."
            )
        return [names for _ in records]
    return _names_in_mask(settings, records, rows, do, argument)


def _is_name(said: Any) -> bool:
    """True for text, and for whole numbers, which name columns too."""
    return isinstance(said, str | Integral) and not isinstance(said, bool)


def _names_in_mask(
    settings: Settings, records: list[dict[str, Any]], rows: Table, do: Any, argument: str
) -> list[list[str]]:
    """The names under the marks of a mask."""
    if hasattr(do, "columns"):
        columns = [str(column) for column in do.columns]
        for column in columns:
            place(column, settings.names, argument)
    else:
        columns = [str(c) for c in getattr(rows, "columns", settings.names) if str(c) in settings.names]
    mask = (
        truth_marks(do, argument)
        if hasattr(do, "__len__") and not isinstance(do, set | Mapping)
        else np.zeros((), bool)
    )
    if mask.shape != (len(records), len(columns)):
        raise ValueError(
            f"`{argument}` must mark each of {len(records)} rows and {len(columns)} variables; got shape {mask.shape} of "
            f"{type(do).__name__}. For what was set in every row pass a name or a list of names; for a name for each row add a "
            "column: frame.assign(do=[...])."
        )
    return [[name for name, marked in zip(columns, row, strict=True) if marked] for row in mask]


def _names_in_row(settings: Settings, record: dict[str, Any], where: str) -> list[str]:
    """Names in the row's own `do`: a text, a list, or values by name that are then part of the row."""
    said = record.pop("do", None)
    if isinstance(said, Mapping):
        for name, value in said.items():
            if name in record and not _same(settings, str(name), record[name], value):
                raise ValueError(
                    f"`{where}` must say one value of {name!r}; got {record[name]!r} measured and {value!r} set."
                )
            record[str(name)] = value
        names = [str(name) for name in said]
    elif isinstance(said, str):
        names = [name.strip() for name in said.split(",") if name.strip()]
    elif said is None or (not isinstance(said, Iterable) and _missing(said)):
        names = []
    elif isinstance(said, Iterable) and not isinstance(said, bytes):
        names = [str(name) for name in said]
    else:
        raise ValueError(
            f"`{where}` must say what was set by names joined by commas; got {short(said)} in `do`. Write 'dose', or "
            "{'dose': 3}."
        )
    for name in names:
        place(name, settings.names, f"{where}: do")
    return names


def _fill_in(
    settings: Settings, asked: Pending, record: dict[str, Any], names: Sequence[str], where: str
) -> list[str]:
    """Write the values of the experiment into its row; different measured values raise."""
    experiment, do = asked.experiment, asked.do
    if names and set(names) != set(do):
        raise ValueError(
            f"`{where}` must set what experiment {experiment} sets, {_some(do)}; got {', '.join(names)}. "
            "Tell what was made instead without its number."
        )
    for name, value in do.items():
        given = record.get(name)
        if given is not None and not _missing(given) and not _same(settings, name, given, value):
            raise ValueError(
                f"`{where}` must have {name!r} as experiment {experiment} sets it, {value:g}; got {given!r}. If another "
                "value was set, tell it without the number and with `do=`, and cancel the experiment."
            )
        record[name] = value
    return list(do)


def _row(
    settings: Settings,
    record: dict[str, Any],
    names: Sequence[str],
    experiment: int | None,
    where: str,
    given: bool = False,
) -> Row:
    record.pop("cost", None)
    extra = [name for name in record if name not in settings.names]
    if extra:
        known, near = ", ".join(settings.names), suggestion(extra[0], settings.names)
        if extra[0] in RESERVED:
            near = (
                " If it says what was set, pass `intervened='set'` with `data`, and `do='set'` with `tell`; else drop it: "
                f"{without(extra)}."
            )
        remedy = near or (
            f" Drop it, as in {without(extra)}, or describe it in `variables`: {{{short(extra[0])}: None}} for one that is "
            "only measured."
        )
        raise ValueError(
            f"`{where}` must have values of the variables only ({short_list(known)}); got the column {short(extra[0])}"
            f"{f' and {len(extra) - 1} more' if len(extra) > 1 else ''}.{remedy}"
        )
    missing = [name for name in settings.names if name not in record]
    if missing:
        goal = " (the target)" if settings.target in missing else ""
        raise ValueError(
            f"`{where}` must have a value of every variable; got none of {', '.join(missing)}{goal}. Measure it, or "
            "leave the variable out of the problem."
        )
    values = tuple(_finite(record[name], name, where) for name in settings.names)
    for name in names:
        if name == settings.target:
            raise ValueError(f"`{where}` must not set the target; got {name!r} as set.")
        if not given:
            settings.variable(name, where).refuse(values[settings.names.index(name)], where)
    return Row(values, tuple(dict.fromkeys(names)), experiment, given)  # "dose, dose" is dose


def _finite(value: Any, name: str, where: str) -> float:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise _no_number(value, name, where)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except TypeError as error:  # arrays, and dates of NumPy
        raise _no_number(value, name, where) from error
    if not math.isfinite(number):
        raise ValueError(
            f"`{where}` must have a finite number for {name!r}; got {number}. Leave the row out if it was not measured."
        )
    if abs(number) > LARGEST:
        raise ValueError(
            f"`{where}` must have a number below {LARGEST:g} for {name!r}, whose square is a number too; got {number:g}. Give "
            "the variable another unit."
        )
    return number


def _no_number(value: Any, name: str, where: str) -> ValueError:
    """The error for a cell that holds no number."""
    blank = isinstance(value, str) and value.strip().lower() in ("", "nan")
    if blank or (not isinstance(value, str) and (value is None or _missing(value))):
        remedy = " Leave the row out if it was not measured."
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        remedy = " Write pandas.DataFrame(...) around columns of values; a mapping is one row."
    else:
        remedy = text_remedy(value, name)
        if not remedy or without([name]) in remedy:  # every variable must have a value
            remedy = f" Turn it into numbers, or leave {name!r} out of `variables` and, by {without([name])}, of the table."
    return ValueError(f"`{where}` must have a number for {name!r}; got {short(value)}.{remedy}")


def _experiment(number: Any, where: str) -> int | None:
    if number is None or _missing(number):
        return None
    real = isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)
    if not real or number % 1 != 0:
        raise ValueError(f"`{where}` must name its experiment by a whole number; got {number!r}.")
    return int(number)


LARGEST = 1e100
"""Largest measurement: sums of squares of larger ones overflow."""


def _missing(value: Any) -> bool:
    """NaN, NaT or pandas' NA, which equal nothing, not even themselves."""
    try:
        return not bool(value == value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _same(settings: Settings, name: str, a: Any, b: Any) -> bool:
    """True if two values of a variable are one but for rounding."""
    span = next((v.span for v in settings.variables if v.name == name), 0.0)
    try:
        # Simulators often answer in single precision.
        return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9 * span)
    except (TypeError, ValueError):
        return False


def _some(things: Any) -> str:
    return ", ".join(map(str, things)) or "of which there are none"

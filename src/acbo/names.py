"""Names of variables: looked up with a suggestion when misspelt, and checked for doubles."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from jaxworlds.arguments import short as short
from jaxworlds.arguments import suggestion as suggestion


def place(name: str, names: Sequence[str], argument: str) -> int:
    """The index of `name`, or an error that suggests the nearest one.

    >>> place("Z", ("X", "Z"), "do")
    1
    """
    if name in names:
        return names.index(name)
    listed = short_list(", ".join(names))
    raise ValueError(f"`{argument}` must be one of {listed}; got {short(name)}.{suggestion(name, names)}")


def require_distinct(names: Sequence[str], argument: str) -> None:
    """Raise for names that are repeated or empty."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"`{argument}` must name each variable once; got {short(name)} twice. Rename one of them."
            )
        if not name:
            raise ValueError(f"`{argument}` must not hold empty names; got {short(tuple(names))}.")
        seen.add(name)


def number(value: Any, argument: str) -> float:
    """A finite number, or an error that names the argument."""
    try:
        found = float(value) if not isinstance(value, str | bytes) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"`{argument}` must be a finite number; got {short(value)}.")
    return found


def short_list(listed: str) -> str:
    """A list of names that fits into a message."""
    return listed if len(listed) <= 600 else f"{listed[:600]}…"


def text_remedy(value: Any, column: str) -> str:
    """The remedy for a cell that holds text instead of a number; empty for anything else.

    >>> text_remedy("45,5", "dose")
    ' Write 45.5 with a point; pandas.read_csv(path, decimal=",") reads a file with decimal commas.'
    """
    if not isinstance(value, str):
        return ""
    for text, decimal in ((value, False), (value.replace(",", "."), True)):
        try:
            found = float(text)
        except ValueError:
            continue
        if "_" in text or found != found:  # numbers to Python alone
            continue
        if decimal:
            return f' Write {found:g} with a point; pandas.read_csv(path, decimal=",") reads a file with decimal commas.'
        whole = f"frame[{column!r}] = pandas.to_numeric(frame[{column!r}])"
        if column.isdigit():
            whole = "frame = frame.apply(pandas.to_numeric)"
        return f" It is text; write {found:g} without quotes, or make the column of a table numbers: {whole}."
    return f" Columns are numbers: give each category a number, or drop the column: {without([column])}."


def truth_marks(given: Any, argument: str) -> Bool[np.ndarray, "*shape"]:
    """Marks of True and False, or 1 and 0; text, NaN and other numbers, which would all count as true, are refused.

    >>> truth_marks([[1, 0]], "intervened").tolist()
    [[True, False]]
    """
    try:
        found = np.asarray(given)
    except ValueError:  # lists of several lengths
        return np.zeros(0, bool)
    if found.dtype == bool:
        return found
    for mark in found.ravel().tolist():
        if mark is not None and not (isinstance(mark, int | float) and mark in (0, 1)):
            raise ValueError(
                f"`{argument}` must mark what was set by True and False; got {short(mark)}. Write mask == 'True' for a table of "
                "text, and mask.fillna(False) where marks are missing."
            )
    return found.astype(bool)


def without(columns: Sequence[str]) -> str:
    """The code that drops columns of a table; names that are digits may be text in it or whole numbers.

    >>> without(["batch"]), without(["0"])
    ("frame.drop(columns=['batch'])", "frame.rename(columns=str).drop(columns=['0'])")
    """
    frame = "frame.rename(columns=str)" if any(name.isdigit() for name in columns) else "frame"
    return f"{frame}.drop(columns={short(list(columns), 300)})"

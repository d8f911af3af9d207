"""Names of variables: looked up with a suggestion when misspelt, and checked for doubles."""

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any


def place(name: str, names: Sequence[str], argument: str) -> int:
    """The index of `name`, or an error that suggests the nearest one.

    >>> place("Z", ("X", "Z"), "do")
    1
    """
    if name in names:
        return names.index(name)
    listed = ", ".join(names)
    listed = listed if len(listed) <= 600 else f"{listed[:600]}…"
    raise ValueError(f"`{argument}` must be one of {listed}; got {short(name)}.{suggestion(name, names)}")


def short(value: Any, longest: int = 100) -> str:
    """A value as messages show it: whole where that is a line, and cut where it is more."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def suggestion(name: str, names: Iterable[str]) -> str:
    """' Did you mean ...?' where a name comes close, else nothing."""
    known = list(names)
    if not isinstance(name, str) or len(name) > 200:
        return ""
    folded = {known_name.casefold(): known_name for known_name in known}
    close = difflib.get_close_matches(name.casefold(), folded, 1)
    return f" Did you mean {folded[close[0]]!r}?" if close else ""


def require_distinct(names: Sequence[str], argument: str) -> None:
    """Refuse names that occur twice, or are empty."""
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

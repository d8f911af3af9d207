"""Names of variables: looked up with a suggestion when misspelt, and checked for doubles."""

import difflib
from collections.abc import Iterable, Sequence


def place(name: str, names: Sequence[str], argument: str) -> int:
    """The index of `name`, or an error that suggests the nearest one.

    >>> place("Z", ("X", "Z"), "do")
    1
    """
    if name in names:
        return names.index(name)
    raise ValueError(
        f"`{argument}` must be one of {', '.join(names)}; got {name!r}.{suggestion(name, names)}"
    )


def suggestion(name: str, names: Iterable[str]) -> str:
    """' Did you mean ...?' where a name comes close, else nothing."""
    known = list(names)
    folded = {known_name.casefold(): known_name for known_name in known}
    close = difflib.get_close_matches(name.casefold(), folded, 1)
    return f" Did you mean {folded[close[0]]!r}?" if close else ""


def require_distinct(names: Sequence[str], argument: str) -> None:
    """Refuse names that occur twice, or are empty."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"`{argument}` must name each variable once; got {name!r} twice. Rename one of them."
            )
        if not name:
            raise ValueError(f"`{argument}` must not hold empty names; got {tuple(names)!r}.")
        seen.add(name)

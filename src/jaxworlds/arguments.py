"""Arguments that people get wrong in every system alike, refused in words before JAX meets them."""

import datetime
import difflib
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def demand_key(key: Any, name: str = "key") -> Any:
    """`key` if it is a random key of JAX, of the new kind or the old; a number is refused with the way to go."""
    if isinstance(key, jax.Array | np.ndarray):
        is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        if is_key or (key.dtype == np.uint32 and key.ndim and key.shape[-1] in (2, 4)):
            return key
    seed = key if isinstance(key, int) else 0
    raise TypeError(
        f"`{name}` must be a random key of JAX; got {short(key)}. Write `jax.random.key({seed})`"
        + (", and split it for a batch." if name == "keys" else ".")
    )


def demand_call(function: Any, name: str, order: str) -> None:
    """Refuse what cannot be called; `order` shows the order of the arguments."""
    if not callable(function):
        raise TypeError(f"`{name}` must be a function; got {short(function)}. The order is {order}.")


def demand_whole(value: Any, name: str, remedy: str) -> int:
    """`value` as an int if it is a whole number of Python, NumPy or JAX; a fraction is not rounded but refused."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a whole number; got {short(value)}. {remedy}") from None


def demand_no_dates(times: Any, name: str) -> None:
    """Refuse dates and spans between them: NumPy turns these into a number of days, hours or nanoseconds by their own unit."""
    try:
        values = np.asarray(times)
    except ValueError:  # no array at all, which is told elsewhere
        return
    dates = values.dtype.kind in "mM" or (
        values.dtype == object
        and any(isinstance(one, datetime.date | datetime.timedelta) for one in values.flat)
    )
    if dates:
        raise TypeError(
            f"`{name}` must be numbers, such as seconds from the first slice of the field; got {short(times)}. Write "
            "`(date - first) / np.timedelta64(1, 's')`."
        )


def short(value: Any, longest: int = 100) -> str:
    """A value as messages show it: on one line, whole where that is short, and cut where it is long."""
    text = repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def suggestion(name: Any, names: Iterable[str]) -> str:
    """' Did you mean ...?' where a name comes close, else nothing.

    >>> suggestion("double-gyre", ["double_gyre", "abc_flow"])
    " Did you mean 'double_gyre'?"
    """
    if not isinstance(name, str) or len(name) > 200:
        return ""
    folded = {known.casefold(): known for known in names}
    close = difflib.get_close_matches(name.casefold(), folded, 1)
    return f" Did you mean {folded[close[0]]!r}?" if close else ""

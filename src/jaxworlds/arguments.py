"""Checks of arguments that all systems share, with errors that say what to pass instead."""

import datetime
import difflib
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def demand_key(key: Any, name: str = "key") -> Any:
    """Return `key` if it is a JAX random key, typed or old-style; raise for a number, with the call that makes a key."""
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
    """Raise for a value that cannot be called; `order` shows the order of the arguments."""
    if not callable(function):
        raise TypeError(f"`{name}` must be a function; got {short(function)}. The order is {order}.")


def demand_whole(value: Any, name: str, remedy: str) -> int:
    """Return `value` as an int if it is a whole number of Python, NumPy or JAX; raise for a fraction instead of rounding."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a whole number; got {short(value)}. {remedy}") from None


def demand_no_dates(times: Any, name: str) -> None:
    """Raise for dates and time spans: NumPy would turn them into numbers of their own unit, such as days."""
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
    """A value for messages: on one line, cut if it is long."""
    text = repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def suggestion(name: Any, names: Iterable[str]) -> str:
    """' Did you mean ...?' if a known name is similar, else an empty text.

    >>> suggestion("double-gyre", ["double_gyre", "abc_flow"])
    " Did you mean 'double_gyre'?"
    """
    if not isinstance(name, str) or len(name) > 200:
        return ""
    folded = {known.casefold(): known for known in names}
    close = difflib.get_close_matches(name.casefold(), folded, 1)
    return f" Did you mean {folded[close[0]]!r}?" if close else ""

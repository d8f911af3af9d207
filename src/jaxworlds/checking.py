"""Checks inside compiled code: absent from the program unless checking is on; a failure is a clear error."""

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

_MODES = ("raise", "nan", "breakpoint", "off")

# Part of JAX's trace key, so that flipping it retraces. Made at import, because making a context later would
# retrace every function that is compiled by then.
_checking = jax.make_user_context(default_value=False)


class CheckError(RuntimeError):
    """A check failed inside compiled code."""


def checking_on() -> Any:
    """Context in which checks are compiled in: `with checking_on(): step(state)`. Flipping retraces once."""
    return _checking(True)


def checking_off() -> Any:
    """Context in which `check` leaves no trace in the program."""
    return _checking(False)


def set_checking(on: bool) -> None:
    """Turn checking on or off for the whole process, outside the two contexts."""
    _checking.set_global(on)


def is_checking() -> bool:
    """Whether functions traced now contain their checks."""
    return bool(_checking.value)


def check(tree: Any, bad: Any, message: str, *, on_error: str | None = None) -> Any:
    """Return `tree`; raise `message` if `bad` is true. Use the result, or the check is optimised away.

    While checking is off (the default) `tree` comes back as it is and the program holds nothing of the check.
    `on_error` is "raise", "nan", "breakpoint" or "off", by default the environment's `EQX_ON_ERROR` as it is
    at trace time. With "nan" only the bad lanes of a `vmap` turn NaN, and only inexact arrays can: integers
    pass unmarked.

    ```python
    position = check(position, ~jnp.isfinite(position).all(), "`position` must be finite; lower `dt`.")
    ```
    """
    mode = on_error or os.environ.get("EQX_ON_ERROR", "raise")
    if mode not in _MODES:
        raise ValueError(f"`on_error` must be one of {', '.join(_MODES)}; got {mode!r}.")
    if not is_checking() or mode == "off":
        return tree
    if mode == "nan":
        # eqx.error_if poisons every lane of a vmap (ledger/core.md §1a: 1 of 4 bad gives 4 NaN).
        failed = jnp.any(jnp.asarray(bad))
        poison = lambda leaf: jnp.where(failed, jnp.nan, leaf) if eqx.is_inexact_array(leaf) else leaf  # noqa: E731
        return jax.tree.map(poison, tree)
    return eqx.error_if(tree, bad, message, on_error=mode)  # pyright: ignore[reportArgumentType]


def clear_errors(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` with failed checks raised as `CheckError` with their message alone, also under plain `jax.jit`.

    While checking is on it waits for the result, since a GPU reports errors late.
    """

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_checking():
            return fn(*args, **kwargs)
        callbacks = logging.getLogger("jax._src.callback")
        callbacks.addFilter(_is_no_check)
        try:
            return jax.block_until_ready(fn(*args, **kwargs))
        # JAX raises JaxRuntimeError at the first call and ValueError from its fast path later.
        except (jax.errors.JaxRuntimeError, ValueError, eqx.EquinoxRuntimeError) as error:
            _, found, rest = str(error).partition("EquinoxRuntimeError: ")
            if not found:
                raise
            raise CheckError(rest.split("\n\n\n---")[0].split("\n\n---")[0].strip()) from None
        finally:
            callbacks.removeFilter(_is_no_check)

    return call


def _is_no_check(record: logging.LogRecord) -> bool:
    """True for log entries of other failures than a check's, which raises its own error."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "_EquinoxRuntimeError"

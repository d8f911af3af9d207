"""The loud fallback: what cannot be traced runs uncompiled, with a warning, a count and a way to refuse."""

import functools
import inspect
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from ..static import unhashable_path
from . import _calls

_TRACING_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_UNHASHABLE = "Non-hashable static arguments"
# 58–82×: ledger/core.md §1b, `jax.disable_jit()` on a 200-iteration loop over 30×30 grids.
_SLOWER = (
    "`{}` could not be compiled and runs uncompiled, 58–82 times slower where we measured it. "
    "{} Later fallbacks are only counted (`fallback_counts`); `strict=True` refuses them."
)

_counts: Counter[str] = Counter()
_lock = threading.Lock()
_strict_default: bool | None = None


class FallbackWarning(UserWarning):
    """A function that should be compiled runs uncompiled."""


class FallbackError(RuntimeError):
    """A fallback was needed and strict mode refused it."""


def set_strict(strict: bool | None) -> None:
    """Refuse (True) or permit (False) every fallback of this process; None obeys `JAXWORLDS_STRICT` again."""
    global _strict_default
    _strict_default = strict


def is_strict(strict: bool | None = None) -> bool:
    """Whether fallbacks are refused: by the argument, else by `set_strict`, else by `JAXWORLDS_STRICT`."""
    for choice in (strict, _strict_default):
        if choice is not None:
            return choice
    return os.environ.get("JAXWORLDS_STRICT", "").lower() in ("1", "true", "yes", "on")


def fallback_counts() -> dict[str, int]:
    """How many calls of each function ran uncompiled since the start or `reset_fallback_counts`."""
    with _lock:
        return dict(_counts)


def reset_fallback_counts() -> None:
    """Forget the counts; warnings already given are not given again."""
    with _lock:
        _counts.clear()


def fallback(
    fn: Callable[..., Any], *, strict: bool | None = None, name: str | None = None
) -> Callable[..., Any]:
    """`fn` compiled, or run uncompiled when it cannot be traced: same arguments, same results, never silent.

    Only failures of tracing fall back: Python control flow or conversion on traced values, and unhashable
    static arguments. Errors that `fn` raises itself pass through. The first fallback warns
    (`FallbackWarning`), each is counted (`fallback_counts`), and strict mode raises `FallbackError` instead.
    A plain `fn` is compiled with `eqx.filter_jit`.

    ```python
    step = fallback(train_step)
    params = step(params, batch)   # compiled, or a warning that says why not
    ```
    """
    jitted: Any = fn if hasattr(fn, "lower") else eqx.filter_jit(fn)
    plain = inspect.unwrap(fn)
    label = name or f"{plain.__module__}.{getattr(plain, '__qualname__', type(plain).__name__)}"
    refused: set[Any] = set()
    warned = threading.Event()

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = _calls.Call(plain, args, kwargs, _calls.static_arguments(jitted))
        # Tracing again what failed before would cost a trace per call.
        key = frozenset(made.signature().items()) if refused else None
        if key is None or key not in refused:
            try:
                return jitted(*args, **kwargs)
            except (*_TRACING_ERRORS, ValueError) as error:
                if not isinstance(error, _TRACING_ERRORS) and _UNHASHABLE not in str(error):
                    raise
                reason = _reason(error, made)
                if is_strict(strict):
                    raise FallbackError(
                        f"`{label}` cannot be compiled, and strict mode refuses it uncompiled. {reason}"
                    ) from error
                refused.add(frozenset(made.signature().items()))
                if not warned.is_set():
                    warned.set()
                    warnings.warn(_SLOWER.format(label, reason), FallbackWarning, stacklevel=2)
        elif is_strict(strict):
            raise FallbackError(f"`{label}` cannot be compiled for these arguments; strict mode refuses it.")
        with _lock:
            _counts[label] += 1
        try:
            return plain(*args, **kwargs)  # functions inside it stay compiled
        except _TRACING_ERRORS:  # unless they cannot be traced either
            with jax.disable_jit():
                return plain(*args, **kwargs)

    return call


def _reason(error: Exception, call: _calls.Call) -> str:
    """One sentence for people: the first line of JAX's error, or the path of the unhashable argument."""
    if _UNHASHABLE in str(error):
        given = [*((f"args[{i}]", value) for i, value in enumerate(call.args)), *call.kwargs.items()]
        for position, (name, value) in enumerate(given):
            if call.is_static(position, name) and (path := unhashable_path(value, name)) is not None:
                return f"Static argument `{path}` is not hashable; use `jaxworlds.static.freeze`."
    first = next(line for line in str(error).splitlines() if line.strip())
    return f"{type(error).__name__}: {first}"

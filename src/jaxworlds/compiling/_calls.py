"""Calls of jitted functions: their static arguments, their arguments by path, and the call that JAX traces now."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _trees

_KEYWORDS = "<keywords>"

Signature = dict[str, _trees.Entry]


class Call(NamedTuple):
    """A call of a jitted function.

    `statics` holds the names and positions of static arguments; None means all that is no array.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    statics: frozenset[str | int] | None

    def signature(self) -> Signature:
        """Every argument by path, described without keeping its data alive."""
        found: Signature = {}
        try:
            parameters = inspect.signature(self.fn).parameters.values()
        except (TypeError, ValueError):
            parameters = ()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        for index, value in enumerate(self.args):
            name = names[index] if index < len(names) else f"args[{index}]"
            found |= _trees.entries(value, name, static=self.is_static(index, name))
        for name, value in self.kwargs.items():
            found |= _trees.entries(value, name, static=self.is_static(name, name))
        # To JAX a keyword call differs from a positional one, so the spelling is part of the signature.
        found[_KEYWORDS] = _trees.Entry("static", ", ".join(sorted(self.kwargs)) or "none")
        return found

    def is_static(self, key: str | int, name: str) -> bool:
        """Whether the argument of this position or name is static."""
        return self.statics is None or key in self.statics or name in self.statics


def changes(old: Signature, new: Signature, *, placements: bool = True) -> list[str]:
    """What changed from one call to the next, by argument path; the spelling only when nothing else did."""
    before, after = ({path: e for path, e in call.items() if path != _KEYWORDS} for call in (old, new))
    found = _trees.differences(before, after, placements=placements)
    if not found and old[_KEYWORDS] != new[_KEYWORDS]:
        return [f"arguments given by keyword changed from {old[_KEYWORDS].text} to {new[_KEYWORDS].text}"]
    return found


def identities(fn: Any) -> tuple[Any, Any]:
    """The function and its code, which stays the same when a nested function is defined again.

    Other callables stand for their class, since equinox rebuilds them for each call.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    return (type(fn), type(fn)) if code is None else (fn, code)


def static_arguments(jitted: Any) -> frozenset[str | int] | None:
    """Names and positions that a `jax.jit` function holds static; None for `eqx.filter_jit`: all but arrays.

    JAX has no public way to ask; on a version without `_jit_info` no argument counts as static.
    """
    if hasattr(jitted, "lower") and not hasattr(jitted, "trace"):  # eqx.filter_jit
        return None
    return _statics_of(getattr(jitted, "_jit_info", None))


def _statics_of(jit_info: Any) -> frozenset[str | int]:
    return frozenset((*getattr(jit_info, "static_argnums", ()), *getattr(jit_info, "static_argnames", ())))


def call_on_the_stack() -> Call | None:
    """The innermost jitted call that is being traced or lowered now, read from JAX's own frames.

    JAX tells listeners the name of a function but not its arguments. Its frames hold them under these names
    on jax 0.10 to 0.12; where a version has others this finds nothing, and reasons come from
    `CompileWatch.wrap` and from JAX's log.
    """
    frame = sys._getframe(1)
    while frame is not None:
        code, local = frame.f_code, frame.f_locals
        if code.co_filename.endswith("pjit.py") and code.co_name in ("cache_miss", "jit_trace"):
            if "args" not in local or "kwargs" not in local:
                return None
            jitted: Any = local.get("jit_func")
            fn: Any = local.get("fun", getattr(jitted, "_fun", jitted))
            statics = _statics_of(local.get("jit_info", getattr(jitted, "_jit_info", None)))
            return _equinox_call(frame) or Call(fn, local["args"], local["kwargs"], statics)
        frame = frame.f_back
    return None


def _equinox_call(frame: Any) -> Call | None:
    """The `eqx.filter_jit` call behind the jit call of `frame`, with the arguments as they were given."""
    while frame is not None and frame.f_code.co_filename.endswith(("pjit.py", "traceback_util.py")):
        frame = frame.f_back
    if frame is None or "jit_wrapper" not in frame.f_locals:
        return None
    local = frame.f_locals
    return Call(local["jit_wrapper"].__wrapped__, local["args"], local["kwargs"], None)

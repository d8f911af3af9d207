"""The compile watch: what JAX traced and compiled, what it cost, and which argument made it do so."""

import functools
import inspect
import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax

from .. import _trees
from ..compile_events import CompileListener
from . import _calls

_LOGGERS = ("jax._src.interpreters.partial_eval", "jax._src.compiler", "jax._src.compilation_cache")

_MOST_SIGNATURES = 64  # per function; older ones are forgotten

_UNCHANGED = (
    "no argument changed; a JAX setting or context did, caches were cleared, or `jit` was applied again"
)
_MADE_AGAIN = (
    "no argument changed, but this is a new function object of the same code; "
    "inside a loop, make and jit the function once before it"
)


class RecompileError(RuntimeError):
    """Something was compiled inside `no_recompile`."""


@dataclass
class FunctionCompiles:
    """Counts and seconds of one function, with a reason for each repeated trace."""

    name: str
    traces: int = 0
    compiles: int = 0
    trace_s: float = 0.0
    lower_s: float = 0.0
    compile_s: float = 0.0
    reasons: list[str] = field(default_factory=list)
    jax_own: bool = False

    @property
    def seconds(self) -> float:
        """Trace, lower and compile together."""
        return self.trace_s + self.lower_s + self.compile_s

    def __str__(self) -> str:
        head = f"{self.name}: {self.traces} traces, {self.compiles} compiles, {self.seconds:.3f} s"
        return "\n".join((head, *(f"  again because {reason}" for reason in self.reasons)))


class CompileWatch:
    """Counts traces and compiles per function, in every thread, and explains each repeated one.

    Functions need no change: `jax.jit` and `eqx.filter_jit` functions are seen as they are. Watches may nest
    and overlap. A compile that the disk cache answered counts as a compile, and in `disk_hits` too.

    ```python
    with CompileWatch() as watch:
        step(state, 0.1)
        step(wider_state, 0.1)
    print(watch.report())
    # step: 2 traces, 2 compiles, 0.061 s
    #   again because argument `state.grid` changed from int32[16,30,30] to int32[32,30,30]
    ```
    """

    def __init__(self) -> None:
        self.functions: dict[str, FunctionCompiles] = {}
        self.disk_hits = 0
        self.disk_misses = 0
        self._lock = threading.RLock()

    def start(self) -> "CompileWatch":
        """Open the watch; the `with` statement does it for you."""
        _hub.add(self)
        return self

    def stop(self) -> None:
        """Close the watch. Closing twice does nothing."""
        _hub.remove(self)

    def __enter__(self) -> "CompileWatch":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, name: str) -> FunctionCompiles:
        """Counts of the function of this name; all zero if it was neither traced nor compiled."""
        return self.functions.get(name, FunctionCompiles(name))

    @property
    def traces(self) -> int:
        """Traces of all functions."""
        return sum(seen.traces for seen in self.functions.values())

    @property
    def compiles(self) -> int:
        """Compiles of all functions, JAX's own operations included."""
        return sum(seen.compiles for seen in self.functions.values())

    @property
    def compile_seconds(self) -> float:
        """Seconds of tracing, lowering and compiling, of all functions together."""
        return sum(seen.seconds for seen in self.functions.values())

    @property
    def reasons(self) -> list[str]:
        """Every reason, each with the name of its function."""
        return [f"{seen.name}: {reason}" for seen in self.functions.values() for reason in seen.reasons]

    def wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, recording its arguments itself, for a JAX version whose frames this watch cannot read."""

        @functools.wraps(fn)
        def recorder(*args: Any, **kwargs: Any) -> Any:
            call = _calls.Call(inspect.unwrap(fn), args, kwargs, _calls.static_arguments(fn))
            _hub.thread.wrapped.append(call)
            try:
                return fn(*args, **kwargs)
            finally:
                _hub.thread.wrapped.pop()

        return recorder

    def report(self) -> str:
        """A table for people: totals, then each function with its reasons, then JAX's own operations."""
        by_cost = sorted(self.functions.values(), key=lambda seen: -seen.seconds)
        sums = {
            phase: sum(getattr(s, f"{phase}_s") for s in by_cost) for phase in ("trace", "lower", "compile")
        }
        lines = [
            f"{self.traces} traces, {self.compiles} compiles ({self.disk_hits} from the disk cache): "
            + ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in sums.items())
        ]
        lines += [str(seen) for seen in by_cost if not seen.jax_own]
        if own := [seen for seen in by_cost if seen.jax_own]:
            names = ", ".join(_trees.shorten(f"{seen.name} ×{seen.compiles}" for seen in own))
            seconds = sum(seen.seconds for seen in own)
            lines.append(f"JAX's own operations outside jit, {seconds:.3f} s: {names}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.report()

    def _record(self, phase: str, name: str, seconds: float, jax_own: bool, reason: str | None) -> None:
        with self._lock:
            seen = self.functions.setdefault(name, FunctionCompiles(name))
            setattr(seen, f"{phase}_s", getattr(seen, f"{phase}_s") + seconds)
            seen.traces += phase == "trace"
            seen.compiles += phase == "compile"
            seen.jax_own |= jax_own
            if reason is not None and not seen.jax_own:
                seen.reasons.append(reason)

    def _refuse(self, name: str) -> None:
        """Called when all watches have recorded a lowering or compile; `no_recompile` raises here."""


class _Guard(CompileWatch):
    """A watch that refuses what its own thread compiles."""

    def __init__(self, allow: tuple[str, ...], allow_eager: bool) -> None:
        super().__init__()
        self._allow = frozenset(allow)
        self._allow_eager = allow_eager
        self._thread = threading.get_ident()

    def _refuse(self, name: str) -> None:
        seen = self[name]
        if name in self._allow or threading.get_ident() != self._thread:
            return
        if seen.jax_own and self._allow_eager:
            return
        if seen.reasons:
            why = f"Reason: {seen.reasons[-1]}."
        elif seen.jax_own:
            why = "It is JAX's own operation outside jit; move it into jit or pass `allow_eager=True`."
        else:
            why = "It was first called with these arguments here; warm it up before."
        raise RecompileError(f"`{name}` was compiled inside `no_recompile`. {why}")


@contextmanager
def no_recompile(*, allow: tuple[str, ...] = (), allow_eager: bool = False) -> Iterator[CompileWatch]:
    """Raise `RecompileError` the moment this thread lowers anything for compilation, naming what and why.

    The compile is stopped before XLA starts. `allow` names functions that may compile;
    `allow_eager` permits operations that JAX runs by itself outside jit, such as `jnp.ones(3)`.
    """
    with _Guard(allow, allow_eager) as guard:
        yield guard


class _MissFilter(logging.Filter):
    """Takes what JAX logs about cache misses out of its log, unless the user asked for it."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("TRACING CACHE MISS"):
            _hub.thread.miss = _reason_in(text)
            return _hub.explain_asked
        # The same setting makes JAX log its writes to the disk cache; the watch counts them.
        return _hub.explain_asked or "persistent c" not in text.lower()


def _reason_in(text: str) -> str | None:
    """The reason inside JAX's explanation; None for a function it never saw."""
    found = []
    for name, now, before in re.findall(r"\* at (.+), now (.+) and before (.+)", text):
        if "dynamic_nodonate" in name or "Static(val=" in now:
            # Packed by filter_jit or by static arguments: the positions mean nothing to people.
            return "an argument changed since a call before this watch; open the watch earlier to see which"
        found.append(f"argument `{name}` changed from {before.split('https://')[0]} to {now}")
    for name, now, before in re.findall(r"\* (\w+) differs: now (.+) and before (.+)", text):
        found.append(f"JAX context `{name}` changed from {before} to {now}")
    return "; ".join(_trees.shorten(found)) or None


class _Thread(threading.local):
    """Of each thread: the calls that `CompileWatch.wrap` records now, and JAX's latest explanation, not yet read."""

    def __init__(self) -> None:
        self.wrapped: list[_calls.Call] = []
        self.miss: str | None = None


class _Hub(CompileListener):
    """The one listener behind all open watches, registered only while there is one."""

    def __init__(self) -> None:
        self.watches: list[CompileWatch] = []
        self.lock = threading.RLock()
        self.thread = _Thread()
        # Whether the user sees JAX's explanations, and the setting to restore: a context may differ from it.
        self.explain_asked = False
        self.explain_global = False
        self.filter = _MissFilter()
        # Signatures of the calls traced while a watch was open: by function for as long as it lives, and by code
        # object until the last watch closes.
        self.signatures: weakref.WeakKeyDictionary[Any, list[_calls.Signature]] = weakref.WeakKeyDictionary()
        self.by_code: dict[Any, list[_calls.Signature]] = {}

    def add(self, watch: CompileWatch) -> None:
        with self.lock:
            if not self.watches:
                self.listen()
                for name in _LOGGERS:
                    logging.getLogger(name).addFilter(self.filter)
                setting: Any = jax.explain_cache_misses
                self.explain_asked = bool(setting.value)
                self.explain_global = bool(setting.get_global())
                jax.config.update("jax_explain_cache_misses", True)
            if watch not in self.watches:
                self.watches.append(watch)

    def remove(self, watch: CompileWatch) -> None:
        with self.lock:
            if watch not in self.watches:
                return
            self.watches.remove(watch)
            if not self.watches:
                self.stop_listening()
                for name in _LOGGERS:
                    logging.getLogger(name).removeFilter(self.filter)
                jax.config.update("jax_explain_cache_misses", self.explain_global)
                self.by_code.clear()

    def remember(self, call: _calls.Call, signature: _calls.Signature) -> None:
        """Keep the signature of a call that was traced, so that the next trace can be explained."""
        function, code = _calls.identities(call.fn)
        with self.lock:
            for known in (self.signatures.setdefault(function, []), self.by_code.setdefault(code, [])):
                if signature not in known:
                    known.append(signature)
                    del known[:-_MOST_SIGNATURES]

    def explain(self, phase: str, call: _calls.Call | None, logged: str | None) -> str | None:
        """Why this function is traced or lowered again; None the first time.

        A lowering without a trace is a new placement of arguments of known types.
        """
        if call is None:
            return logged
        try:
            signature = call.signature()
        except Exception as error:  # noqa: BLE001 - a user's __repr__ or property must not break the computation
            return logged or f"its arguments could not be described ({type(error).__name__}: {error})"
        function, code = _calls.identities(call.fn)
        known = list(self.signatures.get(function, ()))
        made_again = not known and signature in self.by_code.get(code, ())
        if phase != "trace":
            known = [old for old in known if not _calls.changes(old, signature, placements=False)]
        # The nearest earlier call explains best; of equally near ones the latest.
        changed = min((_calls.changes(old, signature) for old in reversed(known)), key=len, default=[])
        self.remember(call, signature)
        if changed:
            return "; ".join(changed)
        if phase != "trace":
            return None
        # Without a known call it was traced before any watch: only JAX knows the earlier arguments.
        return logged or (_MADE_AGAIN if made_again else _UNCHANGED if known else None)

    def on_disk(self, hit: bool) -> None:
        for watch in list(self.watches):
            watch.disk_hits += hit
            watch.disk_misses += not hit

    def on_phase(self, phase: str, seconds: float, function: str) -> None:
        name = re.sub(r"^jit\((.*)\)$", r"\1", function)
        call, reason = None, None
        if phase != "compile":
            call = _calls.call_on_the_stack() or next(reversed(self.thread.wrapped), None)
            logged = None
            if phase == "trace":
                logged, self.thread.miss = self.thread.miss, None
            reason = self.explain(phase, call, logged)
        # An operation of JAX that runs outside jit, and no user's function.
        jax_own = call is not None and str(getattr(call.fn, "__module__", "")).split(".")[0] == "jax"
        watches = list(self.watches)
        for watch in watches:
            watch._record(phase, name, seconds, jax_own, reason)
        if phase != "trace":
            for watch in watches:
                watch._refuse(name)


_hub = _Hub()

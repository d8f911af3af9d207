"""Compiling ahead of time from shapes, and warm-up.

A jitted function is never None and compiles only when called, so its existence proves nothing. The proof is
`compile_ahead`: it returns when the program compiled and raises when it cannot.
"""

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import _trees
from ..arguments import short
from ..memory import MB, MemoryPrediction, predict_memory
from . import _calls
from ._watch import CompileWatch, _hub


@dataclass(frozen=True)
class Compiled:
    """A program compiled for one set of argument types. Call it like the function; other types are refused.

    `trace_s`, `lower_s` and `compile_s` are seconds (a phase that JAX had cached takes almost none).
    `executable` is JAX's own `jax.stages.Compiled`.
    """

    name: str
    trace_s: float
    lower_s: float
    compile_s: float
    executable: jax.stages.Compiled
    lowered: jax.stages.Lowered = field(repr=False)
    _call: _calls.Call = field(repr=False)
    _signature: _calls.Signature = field(repr=False)
    _run: Callable[..., Any] = field(repr=False)

    @functools.cached_property
    def memory(self) -> MemoryPrediction:
        """Bytes that one run needs, read from the program."""
        return predict_memory(self.executable)

    @functools.cached_property
    def program_bytes(self) -> int:
        """Length of the lowered program as text, a figure that does not depend on the machine's speed."""
        return len(self.lowered.as_text())

    @property
    def seconds(self) -> float:
        """Trace, lower and compile together."""
        return self.trace_s + self.lower_s + self.compile_s

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Static arguments are given as to the function and must be the compiled ones."""
        if self._statics(args, kwargs) != self._statics(self._call.args, self._call.kwargs):
            self._refuse(args, kwargs, None)
        try:
            return self._run(*args, **kwargs)
        except TypeError as error:
            self._refuse(args, kwargs, error)
            raise

    def __str__(self) -> str:
        return (
            f"{self.name}: trace {self.trace_s:.3f} s, lower {self.lower_s:.3f} s, "
            f"compile {self.compile_s:.3f} s; peak {self.memory.peak / MB:.1f} MB"
        )

    def _statics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What must be equal in every call: the static arguments, or for filter_jit all that is no array."""
        statics = self._call.statics
        if statics is not None:
            given = (*enumerate(args), *kwargs.items())
            return {key: (type(value), value) for key, value in given if key in statics}
        leaves, structure = jax.tree.flatten((args, kwargs))
        return [None if _trees.is_array(leaf) else (type(leaf), leaf) for leaf in leaves], structure

    def _refuse(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError | None) -> None:
        given = self._call._replace(args=args, kwargs=kwargs).signature()
        changed = _calls.changes(self._signature, given, placements=False)
        if not changed and error is not None:
            return
        listed = "\n".join(f"  {line}" for line in changed or ["a static argument changed"])
        raise TypeError(
            f"`{self.name}` was compiled ahead for other arguments:\n{listed}\n"
            "Call it with the compiled types, or `compile_ahead` again for these."
        ) from error


def compile_ahead(
    fn: Callable[..., Any],
    *args: Any,
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    **kwargs: Any,
) -> Compiled:
    """Compile `fn` now, from arrays, `jax.ShapeDtypeStruct`s, or a mix; nothing runs and no data is needed.

    `fn` may be plain (compiled with `jax.jit` and the two options), a `jax.jit` function or an
    `eqx.filter_jit` function. Later ordinary calls of a jitted `fn` with these types do not compile again:
    JAX keeps the program. Raises what tracing or compiling raises, so returning proves that `fn` compiles.

    ```python
    step = compile_ahead(update, jax.ShapeDtypeStruct((1024, 30, 30), jnp.int32))
    print(step, step.memory.peak)
    grids = step(grids)
    ```
    """
    fn, args, kwargs = _without_partial(fn, args, kwargs)
    jitted: Any = fn
    if not hasattr(fn, "lower"):
        jitted = jax.jit(fn, static_argnames=static_argnames, donate_argnums=donate_argnums)
    elif static_argnames or donate_argnums:
        raise TypeError(
            f"`{_name(fn)}` is jitted already and has its own options; "
            "drop `static_argnames` and `donate_argnums`, or pass the plain function."
        )
    call = _calls.Call(inspect.unwrap(jitted), args, kwargs, _calls.static_arguments(jitted))
    lowered, trace_s, lower_s = (_lower_filtered if call.statics is None else _lower)(jitted, call)
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    signature = call.signature()
    _hub.remember(call, signature)
    executable: jax.stages.Compiled = getattr(compiled, "compiled", compiled)
    return Compiled(
        name=_name(jitted),
        trace_s=trace_s,
        lower_s=lower_s,
        compile_s=compile_s,
        executable=executable,
        lowered=getattr(lowered, "lowered", lowered),
        _call=call._replace(args=jax.tree.map(_abstract, args), kwargs=jax.tree.map(_abstract, kwargs)),
        _signature=signature,
        _run=functools.partial(_run_dynamic, compiled, call.statics) if call.statics else compiled,
    )


def _without_partial(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], Any]:
    """Move the arguments of a partial (a bound filter_jit method is one too) to the call."""
    while isinstance(fn, functools.partial | eqx.Partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    return fn, args, kwargs


def _run_dynamic(compiled: Any, statics: frozenset[str | int], /, *args: Any, **kwargs: Any) -> Any:
    """Call a program of `jax.jit` without the static arguments, which it has inside."""
    dynamic = (value for index, value in enumerate(args) if index not in statics)
    return compiled(*dynamic, **{key: value for key, value in kwargs.items() if key not in statics})


def _lower(jitted: Any, call: _calls.Call) -> tuple[Any, float, float]:
    """The lowered program, and the seconds of tracing and of lowering."""
    start = time.perf_counter()
    traced = jitted.trace(*call.args, **call.kwargs)
    traced_at = time.perf_counter()
    return traced.lower(), traced_at - start, time.perf_counter() - traced_at


def _lower_filtered(jitted: Any, call: _calls.Call) -> tuple[Any, float, float]:
    """The same for filter_jit, whose `lower` takes arrays only and does not show the time of the trace."""
    args, kwargs = jax.tree.map(_stand_in, (call.args, call.kwargs))
    with CompileWatch() as watch:
        start = time.perf_counter()
        lowered = jitted.lower(*args, **kwargs)
        seconds = time.perf_counter() - start
    trace_s = watch[_name(jitted)].trace_s
    return lowered, trace_s, seconds - trace_s


def _stand_in(leaf: Any) -> Any:
    """For a ShapeDtypeStruct an array of its type; without memory unless it is sharded, weak or a key."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if _trees.is_key(leaf):
        return _trees.zero_keys(leaf)
    if leaf.weak_type:
        return jax.lax.broadcast(np.zeros((), leaf.dtype).item(), leaf.shape)
    array = np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return array if leaf.sharding is None else jax.device_put(array, leaf.sharding)


def _abstract(leaf: Any) -> Any:
    """A leaf without its data, so that a compiled program keeps no array of its first arguments alive."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if _trees.is_array(leaf) else leaf


def _name(fn: Any) -> str:
    plain = inspect.unwrap(fn)
    return getattr(plain, "__name__", type(plain).__name__)


@dataclass(frozen=True)
class WarmUp:
    """The programs that a warm-up compiled, by name."""

    programs: dict[str, Compiled]

    @property
    def seconds(self) -> float:
        """Trace, lower and compile of all programs."""
        return sum(program.seconds for program in self.programs.values())

    def __getitem__(self, name: str) -> Compiled:
        return self.programs[name]

    def __str__(self) -> str:
        head = f"warmed up {len(self.programs)} functions in {self.seconds:.3f} s"
        return "\n".join((head, *(f"  {program}" for program in self.programs.values())))


def warm_up(*calls: dict[str, tuple[Any, ...]] | tuple[Any, ...], progress: bool = False) -> WarmUp:
    """Compile several jitted functions ahead, so that their first calls with these types do not compile.

    Each call is `(fn, *args)`, or all come as `{name: (fn, *args)}`; arguments are arrays or shapes. Keyword
    arguments go in as `functools.partial(fn, key=value)`.

    ```python
    print(warm_up({"reset": (reset, key), "step": (step, state_shapes, action_shapes)}))
    ```
    """
    named: dict[str, tuple[Any, ...]] = {}
    for call in calls:
        for name, item in call.items() if isinstance(call, dict) else [(_name(_inner(call[0])), call)]:
            while name in named:
                name += "'"
            named[name] = item
    for name, (fn, *_) in named.items():
        if not hasattr(_inner(fn), "lower"):
            raise TypeError(
                f"`{name}` must be a jitted function; got {short(fn)}, which never compiles. "
                "Decorate it with `jax.jit` or `eqx.filter_jit`."
            )
    programs: dict[str, Compiled] = {}
    with _bar(progress, len(named)) as advance:
        for name, (fn, *args) in named.items():
            advance(name)
            programs[name] = compile_ahead(fn, *args)
    return WarmUp(programs)


def _inner(fn: Any) -> Any:
    """The function inside partials."""
    return _without_partial(fn, (), {})[0]


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar, or nothing; the function it gives announces the next name."""
    if not shown:
        yield lambda _: None
        return
    from rich.markup import escape
    from rich.progress import Progress

    with Progress() as bar:
        task, done = bar.add_task("warm-up", total=total), itertools.count()
        yield lambda name: bar.update(task, completed=next(done), description=f"compiling {escape(name)}")
        bar.update(task, completed=total, description="warm-up")

"""Taps: values out of compiled code; batched under `vmap`, sampled on the device, absent when switched off.

```python
import jax, jax.numpy as jnp
from jaxworlds import tap, tap_stats

@jax.jit
def run(grids, period):
    def step(grids, t):
        grids = (grids + 1) % 10
        tap("grids", grids, print, step=t, period=period)   # one host call per `period` steps
        return grids, None
    return jax.lax.scan(step, grids, jnp.arange(1000))[0]

run(jnp.zeros((64, 30, 30), jnp.int32), 100)
print(tap_stats()["grids"])
```

**Which way out of a program?** A tap is for looking into a running program. Where speed matters, let the
rollout driver hand you values between chunks: no callback is in the program, which stays cacheable and
exportable. Figures for 1,024 worlds of 30×30 grids (ledger/core.md §2):

| way | CPU, 1.2–1.6 ms/step | H200, 13 µs/step |
|---|---|---|
| `taps_off()` | 0: not in the program | 0 |
| between chunks of 100 | −1 % | +39 % |
| tap in an outer scan, once per inner scan of 100 | −2 % | +21 % |
| tap in the step, `period=100` | −13…+13 % | +129 %: the gate alone synchronises with the host each step |
| tap in the step, every step | +280…+2,020 µs | +154 µs |

So: on a GPU never gate inside the step. On a CPU the cost of `period=100` is within the noise of ±13 % at
1,024 worlds, but a call is about 0.1–0.2 ms whatever the step: one tiny world went from 1.4 to 3.9 µs/step.
On jax 0.10 a program with a tap is not kept in the persistent compilation cache.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, PyTree

from .._trees import is_key
from ..arguments import demand_call, short
from . import _periods, _sinks
from ._sinks import TapStats


class _Ambient:
    """Step and period for taps that name none. Equal only to itself, so that no two share a trace."""

    def __init__(self, step: Any, period: Any) -> None:
        self.step, self.period = step, period


class _Switch(NamedTuple):
    enabled: bool
    ambient: _Ambient | None


# Part of JAX's trace key: another value here means another trace, never the other program reused in silence.
# Made at import because adding a context is not thread-safe and makes JAX trace again what it traced before.
# Starts no backend.
_switch = jax.make_user_context(default_value=_Switch(True, None))


def taps_enabled() -> bool:
    """Whether a function traced now would contain its taps."""
    return _switch.value.enabled


def set_taps(enabled: bool) -> None:
    """Set the default of the process: with False, programs traced from now on contain no taps."""
    _switch.set_global(_Switch(enabled, None))


@contextlib.contextmanager
def taps_off() -> Iterator[None]:
    """Within this block (of this thread) functions are traced, or found in the cache, without their taps."""
    with _switch(_switch.value._replace(enabled=False)):
        yield


@contextlib.contextmanager
def taps_on() -> Iterator[None]:
    """The opposite of `taps_off()`; the inner block wins."""
    with _switch(_switch.value._replace(enabled=True)):
        yield


@contextlib.contextmanager
def ambient(step: Any, period: Any = None) -> Iterator[None]:
    """Give `step` and `period` to every tap traced in this block that names none itself.

    For drivers: enter it inside the traced function (a scan body), where `step` is a tracer. A jitted
    function called in the block is traced again for it, because its taps depend on this step; so do not wrap
    eager loops in it.
    """
    if not _switch.value.enabled:
        yield
        return
    scope = _Ambient(step, period)
    with _switch(_switch.value._replace(ambient=scope)):
        try:
            yield
        finally:
            # JAX's caches keep `scope` as a key; they must not keep tracers alive.
            scope.step = scope.period = None


def tap(
    name: str,
    value: PyTree,
    sink: Callable[[Any], Any] | None = None,
    *,
    step: Any = None,
    period: Any = None,
    where: Any = None,
) -> None:
    """Hand `value` to `sink` on the host, from inside `jit`, `vmap`, `scan`, `cond` or `grad`.

    The sink receives `value` with read-only NumPy arrays as leaves; leaves that are no numbers (strings,
    functions) pass unchanged, and typed PRNG keys arrive as their `key_data`. Under `vmap`, nested too, it
    is called **once** for the whole batch: every leaf has all batch axes in front, outermost first, and
    leaves that were not batched are broadcast to them (views that cost no memory). Inside `shard_map` it is
    called once per shard.

    A failing sink never breaks the computation: failures are counted, the first is logged, and after three
    in a row (`register_sink` sets another number) the sink is cut off. Only KeyboardInterrupt passes, and
    ends the run.

    **Arguments:**

    - `name`: under which `tap_stats()` counts, and `register_sink` finds this tap.
    - `value`: any pytree.
    - `sink`: a function of the value. None: the one registered under `name` when the value arrives; without
        one the last value is kept in `tap_stats()[name].last_value`.
    - `step`, `period`: call only when `step % period == 0`. Both may be traced, so another period does not
        recompile; a period below 1 never fires. A `step` alone ties the tap to the loop: JAX may hoist a
        tap on a loop-invariant value out of a differentiated scan (jax#16637). Per-world steps under `vmap`
        act like `where`.
    - `where`: a boolean, e.g. `done`. Under `vmap` the host is called only if it holds for some element,
        and receives only these elements, along one leading axis. Without `vmap` a boolean array selects
        along the leading axes of the leaves. Use it instead of `lax.cond` under `vmap`, where both branches
        run and the tap with them.

    Under differentiation a tap runs in the forward pass only, once, with `jax.checkpoint` too.

    !!! Example

        ```python
        @jax.jit
        @jax.vmap
        def finish(reward, done):
            tap("finished", reward, print, where=done)   # one call, with the rewards of the finished worlds
            return jnp.where(done, 0.0, reward)
        ```
    """
    if not isinstance(name, str):
        raise TypeError(f"`name` must be a string; got {short(name)}. The order is tap(name, value, sink).")
    if sink is not None:
        demand_call(sink, "sink", "tap(name, value, sink)")
    switch = _switch.value
    if not switch.enabled:
        return
    if switch.ambient is not None:
        step = switch.ambient.step if step is None else step
        period = switch.ambient.period if period is None else period
    gate = _gate(step, period)
    if gate is False:
        return
    leaves, treedef = jax.tree.flatten(value)
    numeric = tuple(map(_is_numeric, leaves))
    arrays = [
        jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf)
        for leaf in itertools.compress(leaves, numeric)
    ]
    selected = _selection(gate, where, arrays)
    anchor = [jnp.asarray(step)] if step is not None and period is None else []
    operands = [jax.lax.stop_gradient(x) for x in (*arrays, *anchor)]
    constants = tuple(None if is_array else leaf for leaf, is_array in zip(leaves, numeric, strict=True))
    site = _Site(name, sink, treedef, constants, numeric, operand_axes=((),) * len(operands))
    _emit(site, selected, operands)


def _gate(step: Any, period: Any) -> bool | Bool[Array, ""] | None:
    """Whether to fire at this step: None for always, a Python bool where it is known while tracing."""
    if period is None:
        return None
    if step is None:
        raise ValueError(
            "`period` needs `step`; got `step=None`. Pass the loop counter, or use `ambient(step, period)`."
        )
    for label, number in (("step", step), ("period", period)):
        shape, dtype = jnp.shape(number), jnp.result_type(number)
        if shape or not jnp.issubdtype(dtype, jnp.integer):
            raise ValueError(f"`{label}` must be one integer; got shape {shape}, dtype {dtype}.")
    if isinstance(period, int):
        if period < 1:
            return False
        if isinstance(step, int):
            return step % period == 0
    period = jnp.asarray(period)
    return (period > 0) & (jnp.asarray(step) % jnp.maximum(period, 1) == 0)


def _selection(gate: Any, where: Any, arrays: Sequence[Array]) -> Bool[Array, "..."] | None:
    """The gate and the user's `where` as one boolean array; None when the tap always fires."""
    gate = None if gate is True else gate
    if where is None:
        return gate
    where = jnp.asarray(where)
    if where.dtype != jnp.bool_:
        raise TypeError(
            f"`where` must be boolean; got dtype {where.dtype}. Compare first, e.g. `where=count > 0`."
        )
    for x in arrays:
        if x.shape[: where.ndim] != where.shape:
            raise ValueError(
                f"`where` selects along the leading axes of every leaf; got `where` of shape {where.shape} "
                f"and a leaf of shape {x.shape}. Give every leaf these leading axes."
            )
    return where if gate is None else where & gate


def _is_numeric(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array | bool | int | float | complex):
        return True
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OSUMm"


@dataclass(frozen=True)
class _Site:
    """One tap in one program: where its values go, and the batch axes that `vmap` put around it so far."""

    name: str
    sink: Callable[[Any], Any] | None
    treedef: Any
    constants: tuple[Any, ...]
    numeric: tuple[bool, ...]
    operand_axes: tuple[tuple[bool, ...], ...]  # which batch axes each operand has
    selected_axes: tuple[bool, ...] = ()  # which of them the selection has
    axes: tuple[int, ...] = ()  # their sizes, outermost first

    def with_batch(self, size: int, selected: bool, operands: Sequence[bool]) -> "_Site":
        """The same tap inside one more `vmap`."""
        return replace(
            self,
            axes=(size, *self.axes),
            selected_axes=(selected, *self.selected_axes),
            operand_axes=tuple((b, *has) for b, has in zip(operands, self.operand_axes, strict=True)),
        )

    def receive(self, selected: Any, operands: Sequence[Any]) -> None:
        """The host function: rebuild the value from NumPy arrays and deliver it."""
        started = time.perf_counter()
        # Before anything else: JAX work dispatched from the callback thread can hang (jax#24255, #25861).
        arrays = [
            self._spread(np.asarray(x), has) for x, has in zip(operands, self.operand_axes, strict=True)
        ]
        items = math.prod(self.axes)
        if selected is not None:
            chosen = self._spread(np.asarray(selected), self.selected_axes)
            arrays = [x[chosen] for x in arrays[: sum(self.numeric)]]
            items = int(np.count_nonzero(chosen))
        found = iter(arrays)
        leaves = [next(found) if n else c for n, c in zip(self.numeric, self.constants, strict=True)]
        _sinks.deliver(self.name, self.sink, jax.tree.unflatten(self.treedef, leaves), items, started)

    def _spread(self, x: np.ndarray, has: tuple[bool, ...]) -> np.ndarray:
        """`x` with all batch axes in front, as a view."""
        if all(has):
            return x
        own = iter(x.shape)
        with_ones = [next(own) if present else 1 for present in has]
        element = tuple(own)
        return np.broadcast_to(x.reshape(*with_ones, *element), (*self.axes, *element))


def _emit(site: _Site, selected: Bool[Array, "..."] | None, operands: Sequence[Array]) -> None:
    """Put the call into the program such that `vmap` turns it into one call with one more batch axis."""
    conditional = isinstance(selected, Tracer)
    # Eager code: decide here instead of compiling a `cond` for one use.
    if selected is not None and not conditional and not np.any(selected):
        return

    @jax.custom_batching.custom_vmap
    def send(selected: Any, operands: Any) -> tuple[()]:
        def call() -> None:
            # A selection without axes is a gate: it has done its work, and the host takes everything.
            on_host = None if selected is None or selected.ndim == 0 else _gather(selected)
            jax.debug.callback(site.receive, on_host, [_gather(x) for x in operands])

        if conditional:
            jax.lax.cond(jnp.any(selected), call, lambda: None)
        else:
            call()
        return ()

    @send.def_vmap
    def _(axis_size: int, in_batched: Any, selected: Any, operands: Any) -> tuple[tuple[()], tuple[()]]:
        selected_batched, operands_batched = in_batched
        _emit(site.with_batch(axis_size, bool(selected_batched), operands_batched), selected, operands)
        return (), ()

    send(selected, list(operands))


def _gather(x: Array) -> Array:
    """`x` replicated over its mesh, so that the host sees it whole.

    Without it XLA gathers as well, but complains about an "involuntary full rematerialization". The barrier
    keeps the replication from spreading to the rest of the program, which else loses its sharding (seen on
    0.10.2 and 0.12.0).
    """
    mesh = jax.typeof(x).sharding.mesh
    if mesh.empty or mesh.size == 1 or AxisType.Manual in mesh.axis_types:
        return x
    x = jax.lax.optimization_barrier(x)
    whole = NamedSharding(mesh, PartitionSpec())
    if all(kind == AxisType.Explicit for kind in mesh.axis_types):
        return jax.sharding.reshard(x, whole)
    return jax.lax.with_sharding_constraint(x, whole)


def tap_stats() -> dict[str, TapStats]:
    """Statistics per name since the start or the last `reset_tap_stats()`. Runs no program."""
    return _sinks.snapshot(_periods.call_cost)


def print_tap_report() -> None:
    """Print `tap_stats()` as a table, with the cost of a call on this machine (measured once, in 0.2 s)."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    title = f"Taps (each call also stalls the program for about {1e3 * _periods.measure_call_cost():.2f} ms)"
    # Narrow: twelve columns in frames were cut to "to…" and "blo…" in a terminal of 80.
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("name", overflow="fold")
    for column in ("calls", "items", "avg ms", "max ms", "total ms", "blocking ms", "MB"):
        table.add_column(column, justify="right", overflow="fold")
    table.add_column("state", overflow="fold")
    for s in tap_stats().values():
        times = (
            f"{t:.3f}" if t < 10 else f"{t:.0f}" for t in (s.avg_ms, s.max_ms, s.total_ms, s.blocking_ms)
        )
        state = s._trouble() or "ok"
        table.add_row(escape(s.name), str(s.calls), str(s.items), *times, f"{s.bytes / 1e6:.1f}", state)
    Console().print(table)

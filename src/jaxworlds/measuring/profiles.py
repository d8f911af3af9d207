"""Profiling: the operations that take the time, as a table in the terminal."""

import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ..arguments import demand_call
from ..text import format_seconds, render
from ._timing import Sampler


@dataclass(frozen=True)
class Operation:
    """One operation of the compiled program.

    `self_s` leaves out operations nested in it (the body of a loop); `share` is its part of all self time;
    `contains` lists the primitives that were fused into it, where known.
    """

    name: str
    contains: str
    calls: int
    total_s: float
    self_s: float
    share: float


@dataclass(frozen=True)
class Profile:
    """Operations by falling self time, over `calls` captured calls that took `wall_s` together.

    `busy_s` is the self time of all operations over all threads or streams: far below `wall_s`, the device
    waits for Python; above it, operations ran in parallel.
    """

    operations: tuple[Operation, ...]
    calls: int
    wall_s: float
    busy_s: float
    top: int
    folder: Path | None

    def table(self) -> Any:
        """A rich table of the `top` operations: print it with `rich.print`."""
        from rich.markup import escape
        from rich.table import Table

        title = f"{self.calls} calls, {format_seconds(self.wall_s)} wall, {format_seconds(self.busy_s)} busy"
        table = Table(title=title, title_justify="left")
        for heading in ("operation", "contains"):
            table.add_column(heading, overflow="fold")
        for heading in ("calls", "total ms", "self ms", "share"):
            table.add_column(heading, justify="right", no_wrap=True)
        for op in self.operations[: self.top]:
            figures = (f"{op.calls}", f"{op.total_s * 1e3:.3f}", f"{op.self_s * 1e3:.3f}", f"{op.share:.1%}")
            table.add_row(escape(op.name), escape(op.contains), *figures)
        return table

    def __str__(self) -> str:
        if not self.operations:
            return "no device operations were captured: does the function run JAX code?"
        lines = [render(self.table())]
        if len(self.operations) > self.top:
            rest = sum(op.share for op in self.operations[self.top :])
            lines.append(f"{len(self.operations) - self.top} more operations take {rest:.1%}")
        if self.folder is not None:
            lines.append(f"View the timeline with: xprof --logdir {self.folder}  (pip install xprof)")
        return "\n".join(lines)


def profile(
    fn: Callable[..., Any],
    *args: Any,
    folder: str | os.PathLike[str] | None = None,
    top: int = 15,
    calls: int = 3,
) -> Profile:
    """Capture `calls` calls with JAX's profiler and rank the operations, in this process and without
    TensorBoard.

    `fn` is called as it is, after one warm-up, so compilation is not in the capture; jit it first to see
    its compiled operations. With `folder` the full capture is kept there for a timeline viewer. Donated
    arguments are copied.

        print(profile(jax.jit(lambda x: jnp.sin(x @ x).sum()), jnp.ones((300, 300))))
    """
    demand_call(fn, "fn", "profile(fn, *args)")
    if calls < 1:
        raise ValueError(
            f"`calls` must be at least 1; got {calls}. Without a call there is nothing to capture."
        )
    if not hasattr(jax.profiler, "ProfileData"):
        raise RuntimeError(
            f"jax {jax.__version__} has no `jax.profiler.ProfileData`, which reads captures. Install jax "
            "0.10 or newer, or capture with `jax.profiler.trace(folder)` and view with "
            "`xprof --logdir folder`."
        )
    call = Sampler(fn, args, most_calls=1)  # one call a sample, so that a step of the timeline is a call
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary if folder is None else folder)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Python frames are most of a capture and no part of the table
        with jax.profiler.trace(str(target), profiler_options=options):
            start = time.perf_counter()
            for step in range(calls):
                with jax.profiler.StepTraceAnnotation("call", step_num=step):
                    call()
            wall_s = time.perf_counter() - start
        captures = sorted(
            target.glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns
        )
        if not captures:
            raise RuntimeError(
                f"the profiler wrote no capture to `{target}`. Is another trace running in this process?"
            )
        operations = _operations(captures[-1], _contents(fn, args))
    busy_s = sum((op.self_s for op in operations), 0.0)
    return Profile(operations, calls, wall_s, busy_s, top, None if folder is None else target.resolve())


def _operations(capture: Path, contents: dict[str, str]) -> tuple[Operation, ...]:
    """Sum the events of a capture by operation, largest self time first."""
    sums: dict[str, tuple[int, float, float]] = {}
    with warnings.catch_warnings():
        # jaxlib's reader builds its types without a module name, which Python 3.12+ remarks on.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        for line in _lines(jax.profiler.ProfileData.from_file(str(capture))):
            for name, duration, own in _self_times(line):
                count, total, self_ns = sums.get(name, (0, 0.0, 0.0))
                sums[name] = count + 1, total + duration, self_ns + own
    busy = sum(own for _, _, own in sums.values()) or 1.0
    ranked = sorted(sums.items(), key=lambda item: -item[1][2])
    return tuple(
        Operation(name, contents.get(name, ""), count, total * 1e-9, own * 1e-9, own / busy)
        for name, (count, total, own) in ranked
    )


_Event = tuple[str, float, float]


def _lines(data: Any) -> Iterable[list[_Event]]:
    """Per thread or stream, (name, start, end) in ns of the events that are compiled operations."""
    planes = list(data.planes)
    # Accelerators have planes of their own; there the host's threads only launch. The CPU backend runs on
    # host threads.
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    for plane in devices or planes:
        lines = list(plane.lines)
        # Some backends add lines that repeat the same time by module, step or source; "XLA Ops" then holds
        # it once.
        for line in [line for line in lines if line.name == "XLA Ops"] or lines:
            events = []
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None or (devices and "Memcpy" in event.name):
                    end = event.start_ns + event.duration_ns
                    events.append((str(operation or event.name), event.start_ns, end))
            yield events


def _self_times(events: list[_Event]) -> list[tuple[str, float, float]]:
    """(name, duration, self time) of nested events: an inner event's time is not its parent's own."""
    ordered = sorted(events, key=lambda event: (event[1], -event[2]))
    own = [end - start for _, start, end in ordered]
    open_events: list[int] = []
    for index, (_, start, end) in enumerate(ordered):
        # Kernels on one GPU stream overlap by a little without being nested: a parent must end last.
        while open_events and (ordered[open_events[-1]][2] <= start or ordered[open_events[-1]][2] < end):
            open_events.pop()
        if open_events:
            parent = open_events[-1]
            own[parent] = max(0.0, own[parent] - (end - start))
        open_events.append(index)
    return [(name, end - start, self_ns) for (name, start, end), self_ns in zip(ordered, own, strict=True)]


def _contents(fn: Any, args: tuple[Any, ...]) -> dict[str, str]:
    """Primitives in each operation, from the optimised program; empty where `fn` cannot be lowered."""
    if not hasattr(fn, "lower"):
        return {}
    executable = fn.lower(*args).compile()
    return _primitives(getattr(executable, "compiled", executable).as_text() or "")


def _primitives(program: str) -> dict[str, str]:
    """Operation name → its primitives, from HLO text: those of the computation it calls, or its own."""
    inside: dict[str, list[str]] = {}
    operations: list[tuple[str, str | None, list[str]]] = []
    computation = ""
    for line in program.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            computation = header[1]
        elif instruction := re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = ", line):
            called = re.search(r"calls=%?([\w.\-]+)", line)
            names = [name.rpartition("/")[2] for name in re.findall(r'op_name="([^"]*)"', line)]
            if " parameter(" not in line:
                inside.setdefault(computation, []).extend(names)
            operations.append((instruction[1], called[1] if called else None, names))
    return {
        name: ", ".join(dict.fromkeys((inside.get(called) if called else None) or names))
        for name, called, names in operations
    }

"""The host side of a run, between two chunks: fetching, agreeing with other processes, signals and progress."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._trees import is_key, on_key_data
from ..batching import map_with_axes

# How urgently a process wants to stop: asked by a callback, by Ctrl-C, by a scheduler. The most urgent one decides for all.
STOP, INTERRUPT, TERMINATE = 1, 2, 3
OUTCOMES: dict[int, Any] = {STOP: "stopped", INTERRUPT: "interrupted", TERMINATE: "terminated"}


def count_worlds(carry: Any, axes: Any, *, strict: bool) -> int:
    """The size of the worlds axis, which with `strict` every leaf marked 0 must share; 1 where they do not."""
    sizes: dict[int, str] = {}

    def note(path: Any, axis: int | None, leaf: Any) -> None:
        name = f"carry{jax.tree_util.keystr(path)}"
        if axis == 0 and np.ndim(leaf):
            sizes.setdefault(np.shape(leaf)[0], name)
        elif axis == 0 and strict:
            raise ValueError(
                f"`{name}` must have a leading axis of worlds; it is a scalar. "
                "Mark it None in `axes` if one value serves all worlds."
            )

    map_with_axes(note, axes, carry)
    if strict and len(sizes) > 1:
        found = ", ".join(f"{name}: {size}" for size, name in sizes.items())
        raise ValueError(
            f"`carry` must have one number of worlds; got {found}. Mark what all share None in `axes`."
        )
    return next(iter(sizes)) if len(sizes) == 1 else 1


def put(leaf: Any, where: Any, *, fresh: bool) -> Any:
    """Place one array; `fresh` promises memory that nobody else sees, so that it may be donated."""
    if is_key(leaf) and where is not None and not where.is_fully_addressable:
        # JAX 0.10 places typed keys on the devices of this process only.
        return on_key_data(lambda data: put(data, where, fresh=fresh), leaf)
    if where is None and not fresh and isinstance(leaf, jax.Array):
        return leaf  # already in its place; `device_put` would make a second handle on jax 0.11
    if not isinstance(leaf, jax.Array):
        leaf = np.array(leaf)  # on a CPU JAX would share NumPy's memory
    elif fresh and where is not None and where.is_fully_replicated and leaf.is_fully_addressable:
        leaf = leaf.copy()  # replicating shares the memory of the first device, whatever `may_alias` says
    return jax.device_put(leaf, where, may_alias=not fresh)


def to_host(tree: Any) -> Any:
    """Fetch to NumPy; arrays spread over several processes are gathered first, typed keys stay keys."""
    return jax.tree.map(_fetch, tree)


def _fetch(leaf: Any) -> Any:
    if is_key(leaf):
        return leaf if leaf.is_fully_addressable else on_key_data(_fetch, leaf)
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    if leaf.is_fully_replicated:
        return np.asarray(leaf.addressable_data(0))
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def most_urgent(level: int) -> int:
    """The highest level that any process asks for: several processes must stop or save at the same chunk."""
    if jax.process_count() == 1:
        return level
    from jax.experimental import multihost_utils

    return int(np.max(multihost_utils.process_allgather(np.asarray(level))))


def join(parts: list[Any]) -> Any:
    """Records of several chunks as one, along their first axis."""
    if not parts:
        return None
    return jax.tree.map(lambda *leaves: (jnp if is_key(leaves[0]) else np).concatenate(leaves), *parts)


def is_true(answer: Any) -> bool:
    """True if a callback returned a true boolean of Python, NumPy or JAX; other values are ignored."""
    is_boolean = isinstance(answer, bool | np.bool_ | np.ndarray | jax.Array)
    return is_boolean and np.shape(answer) == () and bool(answer)


class StopRequest:
    """Whether a signal asked this process to stop, and how urgently; a run inside a run tells the outer one too."""

    def __init__(self, outer: "StopRequest | None" = None) -> None:
        self.level, self.outer = 0, outer

    def want(self, level: int) -> None:
        self.level = max(self.level, level)
        if self.outer is not None:
            self.outer.want(level)

    def ask(self, signum: int, frame: Any) -> None:
        """The handler of a signal."""
        if signum == signal.SIGINT and self.level >= INTERRUPT:
            raise KeyboardInterrupt
        hint = "; Ctrl-C again stops at once" if signum == signal.SIGINT else " (SIGTERM)"
        if not self.level and jax.process_index() == 0:
            print(f"\nstopping at the end of this chunk{hint}", file=sys.stderr, flush=True)
        self.want(TERMINATE if signum == signal.SIGTERM else INTERRUPT)


@contextlib.contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to stop after this chunk; a second Ctrl-C interrupts at once.

    SIGTERM is how SLURM and other schedulers announce the end of a job. It may come more than once, from the launcher
    and from the scheduler, so only the first one counts; they kill what does not stop in time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield StopRequest()
        return
    outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    stop = StopRequest(outer if isinstance(outer, StopRequest) else None)
    kept = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in kept.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def progress_bar(wanted: bool | None, worlds: int, done: int, length: int) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and remaining time, updated between chunks; nothing without a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if wanted is False or (wanted is None and not console.is_terminal) or jax.process_index() > 0:
        yield lambda step: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=False) as bars:
        task = bars.add_task("compiling", total=length, completed=done, rate="")
        began: list[tuple[float, int]] = []

        def show(step: int) -> None:
            # The first chunk compiles, so the rate is counted from its end.
            began.append((time.perf_counter(), step))
            (t0, s0), (t1, s1) = began[0], began[-1]
            unit, name = ("world-steps/s", f"{worlds:,} worlds") if worlds != 1 else ("steps/s", "running")
            rate = f"{worlds * (s1 - s0) / (t1 - t0):,.0f} {unit}" if s1 > s0 else ""
            bars.update(task, completed=step, description=name, rate=rate)

        yield show

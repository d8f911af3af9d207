"""Looking at grids and episodes from inside compiled code: the guides' callback names, over the core's taps.

Every function here works inside `jit`, `vmap` and `scan` and outside of JAX alike, is left out of programs
traced under `jaxworlds.taps.taps_off()`, and never breaks the computation when printing or your function
fails.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxworlds.taps import measure_call_cost, print_tap_report, reset_tap_stats, tap, tap_stats

from .colors import ARC_COLORS as ARC_COLORS
from .colors import readable_ink

_SHOWN = 3  # members of a batch that are printed; the rest is counted


def jax_log_grid(grid: ArrayLike, mask: ArrayLike | None = None, title: str = "Grid") -> None:
    """Print a grid from inside compiled code. Under `vmap` one call prints the first few grids of the batch.

    `mask` marks the cells that belong to the grid; without it all of them do.
    """
    cells = jnp.asarray(grid)
    valid = None if mask is None else jnp.asarray(mask)
    _check_grid(cells.shape, None if valid is None else valid.shape)
    tap("jax_log_grid", {"grid": cells, "mask": valid, "title": title}, _print_tapped_grid)


def _print_tapped_grid(value: dict[str, Any]) -> None:
    log_grid_to_console(**value)


def log_grid_to_console(grid: ArrayLike, mask: ArrayLike | None = None, title: str = "Grid") -> None:
    """Print a grid: in ARC's colours on a terminal, as digits elsewhere.

    Cells outside `mask` show as `.`, and so do cells of −1 in a grid of ARC's colours. A stack of grids
    prints its first few. For use outside of compiled code; inside it is `jax_log_grid`.
    """
    cells = np.asarray(grid)
    valid = np.ones(cells.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    _check_grid(cells.shape, valid.shape)
    valid = np.broadcast_to(valid, cells.shape)
    if cells.dtype.kind == "i" and cells.size and cells.min() == -1 and cells.max() < len(ARC_COLORS):
        valid = valid & (cells >= 0)
    stack = cells.reshape(-1, *cells.shape[-2:])
    valid = valid.reshape(stack.shape)
    for i in range(min(len(stack), _SHOWN)):
        number = f" [{i}]" if cells.ndim > 2 else ""
        more = f" (+{len(stack) - _SHOWN} more)" if i == _SHOWN - 1 and len(stack) > _SHOWN else ""
        height, width = stack[i].shape
        _print_one_grid(stack[i], valid[i], f"{title}{number} {height}×{width}{more}")


def _check_grid(shape: tuple[int, ...], mask_shape: tuple[int, ...] | None) -> None:
    if len(shape) < 2:
        raise ValueError(f"`grid` must have rows and columns; got shape {shape}.")
    if mask_shape is not None and (len(mask_shape) > len(shape) or mask_shape != shape[-len(mask_shape) :]):
        raise ValueError(f"`mask` must have the shape of `grid`; got {mask_shape} and {shape}.")


def _print_one_grid(cells: np.ndarray, valid: np.ndarray, heading: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout)
    words = np.where(valid, cells.astype(str), ".")
    width = max((len(word) for word in words.flat), default=1)
    text = Text(heading + "\n")
    for row, row_words, row_valid in zip(cells, words, valid, strict=True):
        for cell, word, is_valid in zip(row, row_words, row_valid, strict=True):
            style = "" if is_valid else "dim"
            if is_valid and cell in range(len(ARC_COLORS)):
                style = f"{readable_ink(int(cell))} on {ARC_COLORS[int(cell)]}"
            text.append(f"{word:>{width + 1}}", style if console.is_terminal else "")
        text.append("\n")
    # Lines must not be folded in a log: a folded grid is unreadable.
    console.print(text, end="", soft_wrap=True)


def jax_log_episode_summary(
    episode_num: ArrayLike,
    steps: ArrayLike,
    total_reward: ArrayLike,
    final_similarity: ArrayLike,
    success: ArrayLike,
) -> None:
    """Print one line about an episode from inside compiled code; for a batch, the first few."""
    numbers = (episode_num, steps, total_reward, final_similarity, success)
    tap("jax_log_episode_summary", [jnp.asarray(x) for x in numbers], _print_episodes)


def _print_episodes(columns: list[np.ndarray]) -> None:
    from rich.console import Console
    from rich.text import Text

    rows = list(zip(*(column.reshape(-1).tolist() for column in columns), strict=True))
    lines = []
    for number, steps, reward, similarity, success in rows[:_SHOWN]:
        result = f"reward {reward:.3f}, similarity {similarity:.3f}, "
        outcome = ("success", "green") if success else ("failure", "red")
        lines.append(Text.assemble(f"Episode {number:g}: {steps:g} steps, ", result, outcome))
    if len(rows) > _SHOWN:
        successes = sum(bool(row[-1]) for row in rows)
        lines.append(Text(f"(+{len(rows) - _SHOWN} more; {successes} of {len(rows)} succeeded)"))
    Console(file=sys.stdout).print(Text("\n").join(lines), soft_wrap=True)


class _Throttle:
    """Runs a function only as often as its mean cost per call allows.

    Each call earns `limit_ms` and a run spends what it took. Nothing is saved up beyond one call, so that a
    function that turns slow after a thousand fast calls is slowed down at once.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._credit_ms = 0.0
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget what was spent and skipped. The lock stays: a callback may be holding it."""
        with self._lock:
            self.skipped = 0
            self._credit_ms = 0.0

    def run(self, value: dict[str, Any]) -> None:
        limit_ms = value["limit_ms"].item
        with self._lock:
            self._credit_ms = min(self._credit_ms + limit_ms, limit_ms)
            if self._credit_ms <= 0:
                self.skipped += 1
                return
        start = time.perf_counter()
        try:
            value["function"].item(*value["arguments"])
        finally:
            with self._lock:
                self._credit_ms -= 1e3 * (time.perf_counter() - start)


class _Fixed:
    """Carries a Python object through a tap as it is, even when it is a number or a pytree."""

    def __init__(self, item: Any) -> None:
        self.item = item


_throttles: dict[str, _Throttle] = {}


def adaptive_visualization_callback(
    fn: Callable[..., Any], *args: Any, callback_name: str | None = None, max_avg_time_ms: float = 5.0
) -> None:
    """Call `fn(*args)` on the host with NumPy arrays, and skip it as often as its mean time per call demands.

    A function that takes ten times `max_avg_time_ms` runs at about one call in ten. The decision falls on
    the host, at run time, so the transfer of `args` (about 0.1 ms) stays; to save that too, use
    `jaxworlds.taps.tap` with `step=` and `period=`. Under `vmap`, `fn` is called once with the batch axes
    in front. Calls that share `callback_name` (by default the name of `fn`) share one limit.
    """
    if max_avg_time_ms <= 0:
        raise ValueError(
            f"`max_avg_time_ms` must be positive; got {max_avg_time_ms}. Use `taps_off()` to leave it out."
        )
    name = callback_name or getattr(fn, "__name__", type(fn).__name__)
    throttle = _throttles.setdefault(name, _Throttle())
    tap(name, {"function": _Fixed(fn), "limit_ms": _Fixed(max_avg_time_ms), "arguments": args}, throttle.run)


def get_callback_performance_stats() -> dict[str, dict[str, Any]]:
    """What each callback did so far, by name: times in milliseconds of host time per call, and counts.

    `stall_ms_per_call` is what a call costs the program on top of `avg_time_ms` (measured once, about 0.2 s).
    """
    measure_call_cost()
    stats = {}
    for name, s in tap_stats().items():
        throttled = _throttles[name].skipped if name in _throttles else 0
        stats[name] = {
            "total_calls": s.calls,
            "avg_time_ms": s.avg_ms,
            "max_time_ms": s.max_ms,
            "min_time_ms": s.min_ms,
            "total_time_ms": s.total_ms,
            "error_count": s.errors,
            "dropped": s.dropped,
            "skipped": s.skipped + throttled,
            "stall_ms_per_call": s.stall_ms_per_call,
        }
    return stats


def print_callback_performance_report() -> None:
    """Print the statistics of all callbacks as a table."""
    print_tap_report()


def reset_callback_performance_stats() -> None:
    """Set all statistics to zero; callbacks that were stopped or throttled start again."""
    reset_tap_stats()
    for throttle in _throttles.values():
        throttle.clear()

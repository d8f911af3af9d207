"""Sampling periods of taps: the cost of one call on this machine, and a period that bounds it."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32

from . import _sinks

call_cost: float | None = None
"""Seconds per call if they were measured already."""
_call_cost_lock = threading.Lock()


def measure_call_cost() -> float:
    """Seconds that one call to the host costs a program on this machine when the sink does nothing.

    Measured at the first use with two small programs, then remembered: about 100 µs on the ledger's 2-core
    CPU.
    """
    global call_cost
    with _call_cost_lock:
        if call_cost is None:
            # Another thread has no trace in progress, so this works inside a trace too.
            with ThreadPoolExecutor(1) as pool:
                call_cost = pool.submit(_measure_call_cost).result()
        return call_cost


def _measure_call_cost(length: int = 64, repeats: int = 7) -> float:
    def counter(callback: bool) -> Callable[[Any], Any]:
        def tap_cost_step(x: Any, t: Any) -> tuple[Any, None]:
            if callback:
                jax.debug.callback(lambda _: None, x)
            return x + t, None

        return jax.jit(lambda x: jax.lax.scan(tap_cost_step, x, jnp.arange(length))[0])

    programs = {callback: counter(callback) for callback in (False, True)}
    seconds = {False: math.inf, True: math.inf}
    start_value = np.int32(0)
    for program in programs.values():
        jax.block_until_ready(program(start_value))
    for _ in range(repeats):  # interleaved, so that both see the same load
        for callback, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(start_value))
            seconds[callback] = min(seconds[callback], time.perf_counter() - start)
    return max(0.0, (seconds[True] - seconds[False]) / length)


class AdaptivePeriod:
    """A sampling period that keeps one tap within a share of the run time, without recompiling.

    Pass `.value` to the program as an argument and call `.update(seconds)` after each chunk. The cost is
    the time the program waited for the host plus `measure_call_cost()` per call. Above `budget` the period
    grows at once by the ratio; below half of it, it is halved: between the two it rests. The
    taps' `step` must count on from chunk to chunk, or a period longer than the chunk has no effect.

    !!! Example

        ```python
        period = AdaptivePeriod("grids", budget=0.02)
        for _ in range(chunks):
            every = period.value   # before the clock starts: the first read measures the cost of a call
            start = time.perf_counter()
            state = jax.block_until_ready(run_chunk(state, every))   # taps with `period=every`
            period.update(time.perf_counter() - start)
        ```
    """

    def __init__(self, name: str, budget: float = 0.02, initial: int = 1, maximum: int = 100_000) -> None:
        if not 0 < budget < 1:
            raise ValueError(f"`budget` is a share of the run time between 0 and 1; got {budget}.")
        if not 1 <= initial <= maximum < 2**31:
            raise ValueError(f"`initial` must be between 1 and `maximum`; got {initial} and {maximum}.")
        self.name, self.budget, self.maximum = name, budget, maximum
        self.period = initial
        self.fraction: float | None = None  # of the last window in which the tap fired
        self._seen = _sinks.cost_so_far(name)
        self._elapsed = 0.0

    @property
    def value(self) -> Int32[np.ndarray, ""]:
        """The period now, as an int32 array: every period has the same type, so none recompiles.

        The first read in a process runs `measure_call_cost()`; do not time it with the chunk.
        """
        measure_call_cost()  # before the first chunk: later its compiles could trip a recompilation guard
        return np.asarray(self.period, np.int32)

    def update(self, elapsed_seconds: float) -> None:
        """Adapt to what happened in the last `elapsed_seconds` of the run."""
        if elapsed_seconds <= 0:
            raise ValueError(f"`elapsed_seconds` must be positive; got {elapsed_seconds}.")
        self._elapsed += elapsed_seconds
        calls, blocking = now = _sinks.cost_so_far(self.name)
        if calls < self._seen[0]:  # the statistics were reset
            self._seen = (0, 0.0)
        new_calls = calls - self._seen[0]
        if new_calls == 0:  # the period is longer than the chunk: wait for a window that holds a call
            return
        self.fraction = (blocking - self._seen[1] + new_calls * measure_call_cost()) / self._elapsed
        if self.fraction > self.budget:
            self.period = min(self.maximum, math.ceil(self.period * self.fraction / self.budget))
        elif self.fraction < self.budget / 2:
            self.period = max(1, self.period // 2)
        self._seen, self._elapsed = now, 0.0

    def __repr__(self) -> str:
        state = f"period={self.period}, fraction={self.fraction}, budget={self.budget}"
        return f"AdaptivePeriod({self.name!r}, {state})"

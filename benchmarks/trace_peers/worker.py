"""Runs one tracer as a process of its own and answers requests line by line; needs NumPy alone.

A tracer is an object with `versions() -> dict` and `run(n, steps) -> positions`: it moves the first `n` seeds of the
job by `steps` steps of the job's length. Its process is started with a folder of arrays and options as JSON:

    python parcels_rk4.py FOLDER '{"kernel": "rk4"}'

Requests and replies are JSON, one a line. The clocks run in the tracer's own process: `cpu_s` counts all its threads.
"""

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Tracer(Protocol):
    """What is timed."""

    def versions(self) -> dict[str, str]:
        """Names and versions of what does the work."""
        ...

    def run(self, n: int, steps: int) -> np.ndarray:
        """Positions (n, dim) of the first `n` seeds after `steps` steps."""
        ...


@contextlib.contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    """Wall seconds, and CPU seconds of all threads, known when the block ends."""
    clock: dict[str, float] = {}
    cpu, wall = time.process_time(), time.perf_counter()
    yield clock
    clock["wall_s"], clock["cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu


def largest_size() -> int:
    """Bytes of memory this process held at most. `getrusage` would count what its parent held when it was started."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed_run(tracer: Tracer, n: int, steps: int) -> tuple[np.ndarray, dict[str, Any]]:
    """One run with both clocks, and what else is known of it.

    A tracer may have `finish(positions, steps) -> figures`, which is not timed, and `steps_taken` where it does not take
    the steps asked for.
    """
    with stopwatch() as clock:
        positions = tracer.run(n, steps)
    more = tracer.finish(positions, steps) if hasattr(tracer, "finish") else {}
    taken = getattr(tracer, "steps_taken", steps)
    return positions, {**clock, "steps_taken": taken, "process_bytes": largest_size(), **more}


def serve(make: Callable[..., Tracer]) -> None:
    """Make the tracer from the command line and answer until the input ends."""
    # Libraries print to the standard output; replies must not mix with that.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    start, before = time.perf_counter(), largest_size()
    tracer = make(folder, **options)
    ready = {"setup_s": time.perf_counter() - start, "bytes_before": before, "versions": tracer.versions()}
    replies.write(json.dumps(ready) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        positions, reply = timed_run(tracer, request["n"], request["steps"])
        np.save(request["to"], positions[: request["keep"]])
        replies.write(json.dumps(reply) + "\n")

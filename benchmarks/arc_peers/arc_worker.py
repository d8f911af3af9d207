"""Runs one player of ARC as a process of its own and answers requests line by line; needs NumPy alone.

    python arcle_o2arc.py TASKS.json

A player has `versions()`, `prepare(form, side, batch)`, which compiles what must be and returns figures of that,
`play()`, which plays a while, waits for the end and returns how many steps that were, those of a batch counted each,
and `ends()`, the episodes ended so far, by which one sees that it plays.
Requests and replies are JSON, one a line. The clocks run in the player's own process: `cpu_s` counts all its threads.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WARM_UP_S = 20.0
"""A player that is slow gets no more than this to bring its environments to different places of their episodes."""


class Player(Protocol):
    """Who is timed."""

    def versions(self) -> dict[str, str]:
        """Names and versions of what does the work."""
        ...

    def prepare(self, form: str, side: int, batch: int) -> dict[str, Any]:
        """Make ready to play a batch with actions of a format on a square canvas."""
        ...

    def play(self) -> int:
        """Play for a while; returns the steps of all environments together."""
        ...

    def ends(self) -> int:
        """Episodes ended since `prepare`."""
        ...


def serve(make: Callable[[list[dict[str, Any]]], Player]) -> None:
    """Make the player from the tasks named on the command line and answer until the input ends."""
    # Libraries print to the standard output; replies must not mix with that.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tasks = json.loads(Path(sys.argv[1]).read_text())
    player = make(tasks)
    replies.write(json.dumps({"versions": player.versions()}) + "\n")
    ready: dict[str, Any] = {}
    played = 0
    for line in sys.stdin:
        request = json.loads(line)
        asked = (request["form"], request["side"], request["batch"])
        if ready.get("asked") != asked:
            start = time.perf_counter()
            figures = player.prepare(*asked)
            ready = {"asked": asked, "figures": {"ready_s": time.perf_counter() - start, **figures}}
            played = _warm_up(player, request["batch"])
        steps, cpu, wall = 0, time.process_time(), time.perf_counter()
        while steps == 0 or time.perf_counter() - wall < request["seconds"]:
            steps += player.play()
        clock = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        played += steps
        more = {"ends per step": player.ends() / played, "process_bytes": largest_size()}
        reply = {"steps": steps, **clock, **more, **ready["figures"]}
        replies.write(json.dumps(reply) + "\n")


def _warm_up(player: Player, batch: int) -> int:
    start, steps = time.perf_counter(), 0
    while steps < 100 * batch and time.perf_counter() - start < WARM_UP_S:
        steps += player.play()
    return steps


def largest_size() -> int | None:
    """Bytes of memory this process held at most."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

"""Our timed program beside the original and ARCLE: processes that take turns, and how many times as fast ours is."""

import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from arc_processes import Missing, Process, python_of
from arc_program import Canvas, Sample, rates
from ours_jaxarc import write_tasks

GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Several processes share the device's memory."""


DEFAULT = "ours, default observation"
OURS = {"ours": "", DEFAULT: "default observation, "}
"""Our players, and how the names of their ratios begin: the first sees packed grids, the second what the settings give."""


class Beside:
    """What was found of all players, and why some could not play."""

    def __init__(
        self, peers: Path | None, original: Path | None, on_cpu: bool, seconds: float, rounds: int
    ) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.ratios: dict[str, dict[str, float]] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.skipped: dict[str, str] = {}
        self._peers, self._folder, self._on_cpu = peers, original, on_cpu
        self._seconds, self._rounds = seconds, rounds

    @contextlib.contextmanager
    def players(self, canvas: Canvas) -> Iterator[dict[str, Process]]:
        """Those that can be started on these tasks, until the block ends."""
        players: dict[str, Process] = {}
        with tempfile.TemporaryDirectory() as folder:
            tasks = Path(folder) / "tasks.json"
            write_tasks(canvas.tasks, tasks)
            start: dict[str, Callable[[], Process]] = {
                "ours": lambda: Process(sys.executable, "ours_jaxarc.py", tasks, GROWING),
                DEFAULT: lambda: Process(
                    sys.executable,
                    "ours_jaxarc.py",
                    tasks,
                    {**GROWING, "BENCH_OBSERVATION": "default (int8, input, clipboard)"},
                ),
                "original": lambda: self._original(tasks),
                "ARCLE": lambda: self._arcle(tasks),
            }
            try:
                for name, make in start.items():
                    try:
                        players[name] = make()
                    except Missing as reason:
                        if name in OURS:
                            raise
                        self.skipped[name] = str(reason)
                        continue
                    told = ", ".join(f"{key} {value}" for key, value in players[name].versions.items())
                    self.versions[name] = {"versions": told}
                yield players
            finally:
                for player in players.values():
                    player.close()

    # A peer must not import our packages by way of PYTHONPATH: ours is a `jaxarc` too.
    def _original(self, tasks: Path) -> Process:
        if self._folder is not None:
            changed = {**GROWING, "PYTHONPATH": str(self._folder.resolve())}
            return Process(sys.executable, "original_jaxarc.py", tasks, changed)
        if not self._on_cpu:
            raise Missing("name its folder with --original; its environment has no jax for this device")
        changed = {**GROWING, "PYTHONPATH": None}
        return Process(python_of(self._peers, "original"), "original_jaxarc.py", tasks, changed)

    def _arcle(self, tasks: Path) -> Process:
        if not self._on_cpu:
            raise Missing("knows no GPU")
        return Process(python_of(self._peers, "arcle"), "arcle_o2arc.py", tasks, {"PYTHONPATH": None})

    def play(self, players: dict[str, Process], canvas: Canvas, batch: int) -> None:
        """One turn to compile and warm up, then the timed rounds; who fails leaves `players`."""
        replies: dict[str, list[dict[str, Any]]] = {name: [] for name in players}
        shuffler = random.Random(0)
        for timed in (False, *[True] * self._rounds):
            for name in shuffler.sample(list(players), len(players)):
                try:
                    reply = players[name].play("bbox", canvas.side, batch, self._seconds)
                except Missing as reason:
                    if name in OURS:
                        raise
                    self.skipped[f"{name}, {canvas.name}, B={batch:,}"] = str(reason)
                    players.pop(name).close()
                    replies.pop(name)
                    continue
                if timed:
                    replies[name].append(reply)
        label = f"{canvas.name}, B={batch:,}"
        samples = {name: [_sample(reply) for reply in some] for name, some in replies.items()}
        self.rows |= {f"{name}, {label}": _row(replies[name][-1], samples[name]) for name in replies}
        for own, word in OURS.items():
            self.ratios |= {
                f"{word}over {name}, {label}": ratios(samples[own], some)
                for name, some in samples.items()
                if name not in OURS
            }


def _sample(reply: Mapping[str, Any]) -> Sample:
    return Sample(reply["steps"], reply["wall_s"], reply["cpu_s"])


def _row(last: Mapping[str, Any], samples: list[Sample]) -> dict[str, Any]:
    more = {key: last[key] for key in ("ends per step", "ready_s", "compile_s") if key in last}
    size = last["process_bytes"]
    return {**rates(samples), **more, "process, MB": size and size / 1e6}


def ratios(ours: list[Sample], theirs: list[Sample]) -> dict[str, float]:
    """How many times as many steps ours takes, round by round: per CPU-second the median, least and most, and per second."""
    pairs = list(zip(ours, theirs, strict=True))
    cpu = [(a.steps / a.cpu_s) / (b.steps / b.cpu_s) for a, b in pairs]
    wall = [(a.steps / a.wall_s) / (b.steps / b.wall_s) for a, b in pairs]
    return {
        "per CPU-s": float(np.median(cpu)),
        "least": min(cpu),
        "most": max(cpu),
        "per s": float(np.median(wall)),
    }

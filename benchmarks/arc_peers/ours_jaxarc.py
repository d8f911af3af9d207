"""Our timed program as a process of its own, to take turns with peers that are processes too."""

import json
import os
from pathlib import Path
from typing import Any

import arc_worker
import jax
from arc_program import Canvas, Program

import jaxarc.tasks
from jaxworlds.measuring import environment


class Ours:
    """A batch of our environments."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        jax.config.update("jax_enable_compilation_cache", False)  # compile times are those of the compiler
        raw = [jaxarc.tasks.parse_task(task, task_id=task["id"]) for task in tasks]
        self._tasks = jaxarc.tasks.TaskSet.of(raw)
        self._program: Program | None = None

    def versions(self) -> dict[str, str]:
        found = environment()
        return {name: str(found[name]) for name in ("commit", "jax", "equinox")}

    def prepare(self, form: str, side: int, batch: int) -> dict[str, Any]:
        observation = os.environ.get("BENCH_OBSERVATION", "packed")
        self._program = Program(Canvas(side, self._tasks, ""), form, batch, observation)
        program = self._program
        return {"compile_s": program.trace_s + program.lower_s + program.compile_s}

    def play(self) -> int:
        assert self._program is not None
        self._program.call()
        return self._program.steps * self._program.batch

    def ends(self) -> int:
        assert self._program is not None
        return self._program.ends()


def write_tasks(tasks: Any, path: Path) -> None:
    """Tasks as a list in one JSON file, which every player reads."""
    pairs = lambda some: [{"input": a.tolist(), "output": b.tolist()} for a, b in some if b is not None]  # noqa: E731
    path.write_text(json.dumps([{"id": t.id, "train": pairs(t.train), "test": pairs(t.test)} for t in tasks]))


if __name__ == "__main__":
    arc_worker.serve(Ours)

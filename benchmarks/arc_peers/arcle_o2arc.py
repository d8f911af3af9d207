"""Random play in ARCLE's O2ARC environment: one environment in a Python loop, a new random task when an episode ends.

ARCLE knows no batches, so `batch` changes nothing. Actions are drawn in blocks beforehand: its own cost is timed, not
that of single random numbers. Its operations 0 to 34 are not all ours (ledger, section 3), but as many.
"""

import importlib.metadata
import os
import sys
import warnings
from typing import Any

import arc_worker
import numpy as np

BLOCK, STEP_LIMIT = 2048, 100


class Arcle:
    """One environment."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        warnings.simplefilter("ignore")
        sys.setrecursionlimit(10_000)  # its flood goes one call deeper for each cell
        self._tasks = tasks

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in ("arcle", "numpy", "gymnasium")}

    def prepare(self, form: str, side: int, batch: int) -> dict[str, Any]:
        from arcle.envs import O2ARCv2Env
        from arcle.loaders import Loader

        tasks = self._tasks

        class OurTasks(Loader):
            def get_path(self, **_: Any) -> list[str]:
                return []

            def parse(self, **_: Any) -> list[Any]:
                sides = lambda pairs, name: [np.array(pair[name], np.int8) for pair in pairs]  # noqa: E731
                return [
                    (
                        *(
                            sides(task[part], name)
                            for part in ("train", "test")
                            for name in ("input", "output")
                        ),
                        {"id": task["id"]},
                    )
                    for task in tasks
                ]

        self._form, self._side = form, side
        self._env = O2ARCv2Env(OurTasks(), (side, side), max_trial=1)
        self._draw, self._taken = np.random.default_rng(0), 0
        self._ends = 0
        self._restart()
        return {}

    def _restart(self) -> None:
        self._env.reset(options={"prob_index": int(self._draw.integers(len(self._tasks)))})
        self._taken = 0

    def play(self) -> int:
        side, env = self._side, self._env
        operations = self._draw.integers(35, size=BLOCK).tolist()
        corners = self._draw.integers(side, size=(BLOCK, 2, 2))
        if self._form == "point":
            corners[:, 1] = corners[:, 0]
        corners = np.sort(corners, axis=1)
        masks = self._draw.random((BLOCK, side, side)) < 0.5 if self._form == "mask" else None
        boxes = corners.reshape(BLOCK, 4).tolist()
        for at in range(BLOCK):
            if masks is None:
                top, left, bottom, right = boxes[at]
                selection = np.zeros((side, side), np.int8)
                selection[top : bottom + 1, left : right + 1] = 1
            else:
                selection = masks[at].astype(np.int8)
            *_, terminated, _, _ = env.step({"operation": operations[at], "selection": selection})
            self._taken += 1
            if terminated or self._taken >= STEP_LIMIT:
                self._ends += 1
                self._restart()
        return BLOCK

    def ends(self) -> int:
        return self._ends


if __name__ == "__main__":
    arc_worker.serve(Arcle)

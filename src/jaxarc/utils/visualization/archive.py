"""Episodes in a folder, one file each, that come back as they were."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.store import CompressedStorage, atomic_write

from .records import EpisodeRecord, PairRecord, StepRecord

STEP_NUMBERS = ("reward", "similarity", "valid", "terminated", "truncated", "success", "pair_index")


class EpisodeArchive:
    """Episodes in a folder, one file each: compressed with checksums, or as plain `.npz`."""

    def __init__(self, folder: Path, compression: bool) -> None:
        self.folder = folder
        self._compressed = CompressedStorage(folder) if compression else None

    def __contains__(self, key: str) -> bool:
        return key in self._compressed if self._compressed else self._file(key).is_file()

    def save(self, key: str, episode: EpisodeRecord) -> None:
        """Write `episode` under `key`, whole or not at all."""
        facts, arrays = to_arrays(episode)
        if self._compressed:
            self._compressed.save({"facts": facts, "arrays": arrays}, key)
            return
        with atomic_write(self._file(key)) as file:
            np.savez(file, allow_pickle=False, facts=np.array(json.dumps(facts)), **arrays)

    def load(self, key: str) -> EpisodeRecord:
        """The episode saved under `key`, with equal arrays and numbers."""
        if self._compressed:
            found = self._compressed.load(key)
            return from_arrays(found["facts"], found["arrays"])
        with np.load(self._file(key), allow_pickle=False) as file:
            return from_arrays(
                json.loads(str(file["facts"])), {k: file[k] for k in file.files if k != "facts"}
            )

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"


def to_arrays(episode: EpisodeRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """An episode as plain facts and named arrays, which `from_arrays` makes an episode again."""
    facts: dict[str, Any] = {
        "task_id": episode.task_id,
        "mode": episode.mode,
        "length": episode.length,
        "pairs": {},
    }
    arrays: dict[str, Any] = {"input": episode.input}
    if episode.target is not None:
        arrays["target"] = episode.target
    for name in ("operation", *STEP_NUMBERS):
        arrays[name] = np.array([getattr(step, name) for step in episode.steps])
    for i, step in enumerate(episode.steps):
        grids = {"selection": step.selection, "before": step.before, "after": step.after}
        if step.pair is not None:
            facts["pairs"][str(i)] = [step.pair.mode, step.pair.index]
            grids |= {k: v for k, v in asdict(step.pair).items() if isinstance(v, np.ndarray)}
        arrays |= {f"{name}_{i}": grid for name, grid in grids.items()}
    return facts, arrays


def from_arrays(facts: dict[str, Any], arrays: dict[str, Any]) -> EpisodeRecord:
    """The episode that `to_arrays` took apart."""
    steps = []
    for i in range(facts["length"]):
        numbers = {name: arrays[name][i].item() for name in ("operation", *STEP_NUMBERS)}
        grids = {name: arrays[f"{name}_{i}"] for name in ("selection", "before", "after")}
        place = facts["pairs"].get(str(i))
        pair = (
            PairRecord(place[0], place[1], arrays[f"input_{i}"], arrays.get(f"target_{i}")) if place else None
        )
        steps.append(StepRecord(**numbers, **grids, pair=pair))
    return EpisodeRecord(facts["task_id"], facts["mode"], arrays["input"], arrays.get("target"), tuple(steps))

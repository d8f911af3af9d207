"""Episodes in a folder, one file each, that come back as they were."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.store import CompressedStorage, StoreError, atomic_write, read_archive

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
            found, where = self._compressed.load(key), self.folder / f"{key}.jxw"
        else:
            where = self._file(key)
            found = {"arrays": read_archive(where)}
        try:
            if not self._compressed:
                found["facts"] = json.loads(str(found["arrays"].pop("facts")))
            return from_arrays(found["facts"], found["arrays"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{where}: holds no episode ({repr(error)[:200]}). It is damaged, or something else."
            ) from error

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"


def to_arrays(episode: EpisodeRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """An episode as plain facts and named arrays, which `from_arrays` makes an episode again."""
    facts: dict[str, Any] = {name: getattr(episode, name) for name in ("task_id", "mode", "length")}
    facts["pairs"] = {}
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


def _check_parts(facts: Any, arrays: Any) -> None:
    """Refuse facts and arrays of other kinds or lengths than `to_arrays` makes."""
    length = facts["length"]
    if type(length) is not int or not 0 <= length <= len(arrays):
        raise ValueError(f"it must have a step for each group of arrays; it says {str(length)[:40]}")
    if not all(isinstance(facts[name], str) for name in ("task_id", "mode")) or not isinstance(
        facts["pairs"], dict
    ):
        raise ValueError("its task, mode or pairs are something else than text")
    for place in facts["pairs"].values():
        if not (isinstance(place, list | tuple) and [*map(type, place)] == [str, int]):
            raise ValueError(f"a pair is {str(place)[:40]}, not mode and number")
    kinds = {"operation": "iu", "pair_index": "iu", "reward": "f", "similarity": "f"}
    for name in ("operation", *STEP_NUMBERS):
        values = arrays[name]
        if values.shape != (length,) or (length and values.dtype.kind not in kinds.get(name, "b")):
            raise ValueError(
                f"{name!r} must have one value for each of {length} steps; it is {values.dtype}{values.shape}"
            )
    for name, values in arrays.items():
        if name in kinds or name in STEP_NUMBERS:
            continue
        kind = np.bool_ if name.startswith("selection") else np.int8
        found = (values.dtype, values.ndim) if isinstance(values, np.ndarray) else ()
        if found != (kind, 2) or values.size > _MOST_CELLS:
            raise ValueError(f"{name[:40]!r} must be a grid; it is {getattr(values, 'dtype', type(values))}")
        if kind is np.int8 and values.size and not -1 <= values.min() <= values.max() < _COLOURS:
            raise ValueError(f"{name[:40]!r} holds {values.min()} to {values.max()}, which are no colours")


_MOST_CELLS = 1 << 20
_COLOURS = 10


def from_arrays(facts: dict[str, Any], arrays: dict[str, Any]) -> EpisodeRecord:
    """The episode that `to_arrays` took apart; ValueError where the parts are not those of one."""
    _check_parts(facts, arrays)
    steps = []
    for i in range(facts["length"]):
        numbers = {name: arrays[name][i].item() for name in ("operation", *STEP_NUMBERS)}
        grids = {name: arrays[f"{name}_{i}"] for name in ("selection", "before", "after")}
        pair = None
        if place := facts["pairs"].get(str(i)):
            pair = PairRecord(place[0], place[1], arrays[f"input_{i}"], arrays.get(f"target_{i}"))
        steps.append(StepRecord(**numbers, **grids, pair=pair))
    return EpisodeRecord(facts["task_id"], facts["mode"], arrays["input"], arrays.get("target"), tuple(steps))

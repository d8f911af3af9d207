"""Loaders of jaxarc: ARC JSON in its forms, packed task files, saved states, settings in YAML, recorded episodes."""

import functools
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import Loader, demand
from fuzz_mutants import MUTANTS, WHOLE, spoil_bytes, spoil_json

_JSON = ("bytes", "json", "json", "json", "text", "encoding")


def _task(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)

    def pair() -> dict[str, Any]:
        return {side: draw.integers(0, 10, (3, 4)).tolist() for side in ("input", "output")}

    return {"train": [pair(), pair()], "test": [pair()]}


def _one(folder: Path) -> list[bytes]:
    return [json.dumps(_task(0)).encode(), json.dumps({"a": _task(0), "b": _task(1)}).encode()]


def _in_folder(folder: Path) -> list[bytes]:
    (folder / "tasks/training").mkdir(parents=True)
    (folder / "tasks/training/b.json").write_text(json.dumps(_task(1)))
    return [json.dumps(_task(0)).encode()]


def _kaggle(folder: Path, mutate: str) -> list[bytes]:
    tasks = {name: _task(k) for k, name in enumerate("ab")}
    solutions = {name: [pair.pop("output") for pair in task["test"]] for name, task in tasks.items()}
    parts = {"challenges": json.dumps(tasks).encode(), "solutions": json.dumps(solutions).encode()}
    for name, data in parts.items():
        (folder / f"set_{name}.json").write_bytes(data)
    return [parts[mutate]]


def _demand_tasks(tasks: Any) -> None:
    demand(len(tasks) > 0, "no tasks")
    for name in tasks.ids:
        raw = tasks.raw(name)
        for pair in (*raw.train, *raw.test):
            for grid in pair:
                if grid is not None:
                    demand(
                        grid.dtype == np.int8 and grid.ndim == 2 and 0 <= grid.min() <= grid.max() <= 9,
                        "a grid is none",
                    )


def read_tasks(path: Path) -> None:
    """Load a file of tasks."""
    from jaxarc.tasks import load

    _demand_tasks(load(path))


def read_task_folder(path: Path) -> None:
    """Load the folder that the file is in."""
    from jaxarc.tasks import load

    _demand_tasks(load(path.parent.parent))


def read_kaggle(path: Path) -> None:
    """Load challenges with their solutions."""
    from jaxarc.tasks import load

    _demand_tasks(load(path.with_name("set_challenges.json")))


def _bank(folder: Path) -> list[bytes]:
    from jaxarc.tasks import TaskSet, parse_task
    from jaxarc.tasks.mapped import write_task_file

    tasks = TaskSet.of([parse_task(_task(k), task_id=f"t{k}") for k in range(3)])
    write_task_file(tasks, folder / "made.arcbank", splits={"training": [0, 1]})
    return [(folder / "made.arcbank").read_bytes()]


def spoil_bank(rng: random.Random, data: bytes) -> bytes:
    """A task file with a spoiled header or body, its digests made to fit."""
    from jaxarc.tasks import task_file as t

    digest = lambda part: hashlib.blake2b(part, digest_size=16).digest()  # noqa: E731
    _, version, zero, at, length, _ = t._PREFIX.unpack(data[: t._PREFIX.size])
    body, text = data[64:at], data[at : at + length]
    if rng.random() < 0.6:
        text = spoil_json(rng, text)
    if rng.random() < 0.4:
        changed = bytearray(body)
        for _ in range(rng.choice((1, 2, 8))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        body = bytes(changed) if rng.random() < 0.7 else spoil_bytes(rng, body)
    place, size = 64 + len(body), len(text)
    if rng.random() < 0.05:
        place, size = rng.choice(WHOLE), rng.choice(WHOLE)
    prefix = t._PREFIX.pack(t.MAGIC, version, zero, place, size, digest(text))
    return prefix + digest(prefix) + body + text


MUTANTS["bank"] = spoil_bank


def read_bank(path: Path) -> None:
    """Open a task file, read all of it, look for ids, and verify."""
    from jaxarc.tasks.mapped import open_task_file

    tasks = open_task_file(path)
    _demand_tasks(tasks.task_set())
    for k in range(len(tasks)):
        demand(isinstance(tasks.id_of(k), str), "an id is no text")
    tasks.raw(tasks.ids[0])
    tasks.verify()


@functools.cache
def _world() -> Any:
    import jax.random as jr

    from jaxarc.envs import arc_reset
    from jaxarc.tasks import TaskSet, parse_task
    from jaxarc.testing import create_test_config

    tasks = TaskSet.of([parse_task(_task(k), task_id=f"t{k}") for k in range(3)])
    config = create_test_config(max_episode_steps=20, grid_size=8)
    state, _ = arc_reset(jr.key(0), config, tasks)
    single, _ = arc_reset(jr.key(0), config, tasks.get_task_by_index(1))
    return tasks, state, single


def _arc_states(folder: Path) -> list[bytes]:
    from jaxarc.envs.state_files import save_state_efficiently

    made = []
    for state in _world()[1:]:
        save_state_efficiently(state, folder / "made.jxw")
        made.append((folder / "made.jxw").read_bytes())
    return made


def read_arc_state(path: Path) -> None:
    """Load a saved state with its tasks."""
    import jax

    from jaxarc.envs.state_files import load_state_efficiently

    tasks, state, _ = _world()
    found = load_state_efficiently(path, tasks, state)
    for a, b in zip(jax.tree.leaves(found.working_grid), jax.tree.leaves(state.working_grid), strict=True):
        demand(a.shape == b.shape and a.dtype == b.dtype, "a leaf differs")


def _yaml(folder: Path) -> list[bytes]:
    return [
        b"""environment:
  max_episode_steps: 50
  autoreset: null
dataset:
  max_grid_height: 30
  max_grid_width: 30
action:
  selection_format: mask
reward:
  success: 10.0
visualization:
  enabled: false
"""
    ]


def spoil_yaml(rng: random.Random, data: bytes) -> bytes:
    """Settings with anchors, tags and interpolations that a reader must not follow."""
    odd = (
        "&a [*a]", "*a", "!!python/object/apply:os.system ['true']", "${environment}", "${oc.env:HOME}", "${a.b.c}",
        "{a: 1, a: 2}", "[1, 2", "- x", "? x", "|\n  text", "2020-01-01", "1e400", "0o7", ".nan", "!!binary aGk=", "!!set {a}",
        "${oc.create:1}", "???", "&a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]",
    )  # fmt: skip
    lines = data.decode().split("\n")
    at = rng.randrange(len(lines) - 1)
    key = lines[at].split(":")[0]
    lines[at] = f"{key}: {rng.choice(odd)}"
    return "\n".join(lines).encode()


MUTANTS["yaml"] = spoil_yaml


def read_settings(path: Path) -> None:
    """Read settings from YAML."""
    from jaxarc.envs.adapter import config_from_yaml
    from jaxarc.envs.config import JaxArcConfig

    found = config_from_yaml(path)
    demand(isinstance(found, JaxArcConfig), "no config came back")
    hash(found)


@functools.cache
def _episode() -> Any:
    from jaxarc.utils.visualization import EpisodeRecord, PairRecord, StepRecord

    grid = np.arange(6, dtype=np.int8).reshape(2, 3)
    pair = PairRecord("train", 1, grid, grid)
    facts = {
        "reward": 0.5,
        "similarity": 0.25,
        "valid": True,
        "terminated": False,
        "truncated": False,
        "success": False,
    }
    steps = [
        StepRecord(
            operation=k,
            selection=grid > k,
            before=grid,
            after=grid,
            pair_index=k,
            pair=pair if k else None,
            **facts,
        )
        for k in range(2)
    ]
    return EpisodeRecord("task", "train", grid, grid, tuple(steps))


def _episodes(compression: bool) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        from jaxarc.utils.visualization.archive import EpisodeArchive

        EpisodeArchive(folder, compression).save("episode", _episode())
        return [(folder / ("episode.jxw" if compression else "episode.npz")).read_bytes()]

    return seeds


def _demand_episode(found: Any) -> None:
    from jaxarc.utils.visualization.replay import replay_data

    demand(found.input.dtype == np.int8 and found.input.ndim == 2, "input is no grid")
    for step in found.steps:
        for grid in (step.before, step.after):
            demand(grid.dtype == np.int8 and grid.ndim == 2, "a step has no grid")
        demand(step.selection.dtype == bool, "a selection is none")
    json.dumps(replay_data(found))


def read_replay(path: Path) -> None:
    """Load a replay as `jaxarc show` does."""
    from jaxarc._commands.show import read_episode

    _demand_episode(read_episode(path))


def read_session(path: Path) -> None:
    """Load an episode of a recorded session."""
    from jaxarc.utils.visualization.archive import EpisodeArchive

    _demand_episode(EpisodeArchive(path.parent, compression=True).load(path.stem))


LOADERS = [
    Loader("arc/task.json", "task.json", _one, read_tasks, _JSON, weight=6),
    Loader("arc/folder", "tasks/training/a.json", _in_folder, read_task_folder, _JSON, ("tasks",), 3),
    Loader(
        "arc/challenges",
        "set_challenges.json",
        lambda f: _kaggle(f, "challenges"),
        read_kaggle,
        _JSON,
        ("set_",),
        4,
    ),
    Loader(
        "arc/solutions",
        "set_solutions.json",
        lambda f: _kaggle(f, "solutions"),
        read_kaggle,
        _JSON,
        ("set_",),
        4,
    ),
    Loader("arc/bank", "tasks.arcbank", _bank, read_bank, ("bytes", "bank", "bank", "bank"), weight=4),
    Loader(
        "arc/state",
        "state.jxw",
        _arc_states,
        read_arc_state,
        ("bytes", "container", "container"),
        ("`parser`",),
        1,
    ),
    Loader(
        "arc/settings.yaml",
        "settings.yaml",
        _yaml,
        read_settings,
        ("bytes", "text", "yaml", "encoding"),
        weight=2,
        also=(TypeError,),
    ),
    Loader("arc/replay.npz", "episode.npz", _episodes(False), read_replay, ("bytes", "zip", "zip"), weight=3),
    Loader(
        "arc/session",
        "episode.jxw",
        _episodes(True),
        read_session,
        ("bytes", "container", "container"),
        weight=4,
    ),
]

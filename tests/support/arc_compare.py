"""Random play of the compiled environment beside the NumPy oracle: every field of every step must be equal.

As a command it takes many steps over all scenarios: `python tests/support/arc_compare.py --steps 1000000`.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arc_oracle
import jax
import numpy as np

from jaxarc.envs import (
    BboxAction,
    EnvironmentConfig,
    JaxArcConfig,
    MaskAction,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    batch_reset,
    batch_step,
    explain,
)
from jaxarc.envs.history import records
from jaxarc.tasks import RawTask, TaskSet
from jaxarc.tasks.planes import PLANES
from jaxworlds.measuring import environment
from jaxworlds.store import atomic_write

KINDS = {"point": PointAction, "bbox": BboxAction, "mask": MaskAction}


def decode_host(planes: Any, cols: int) -> np.ndarray:
    """`planes.decode` written in NumPy: uint32 (…, 4, rows) to int8 (…, rows, cols)."""
    words = np.ascontiguousarray(np.asarray(planes, np.uint32)).astype("<u4")
    bits = np.unpackbits(words[..., None].view(np.uint8), axis=-1, bitorder="little")[..., :cols]
    levels = np.arange(PLANES, dtype=np.uint8)[:, None, None]
    return (bits << levels).sum(-3, dtype=np.uint8).astype(np.int8)


@dataclass(frozen=True)
class Scenario:
    """One way to play: a format, a canvas, rules, and the tasks to play on ("real", "tiny", or "bare": tiny ones
    of which some have no test pairs)."""

    name: str
    format: str
    canvas: tuple[int, int] = (30, 30)
    tasks: str = "real"
    mode: int = 0
    max_episode_steps: int = 40
    rules: dict[str, Any] = field(default_factory=dict)
    autoreset: str | None = None
    history_format: str | None = None


SCENARIOS = (
    Scenario("point 30x30", "point"),
    Scenario("bbox 30x30", "bbox", max_episode_steps=100),
    Scenario("mask 30x30", "mask"),
    Scenario("test pairs, two attempts", "bbox", mode=1, rules={"max_attempts": 2}),
    Scenario("another format than the history's", "mask", history_format="point"),
    Scenario("autoreset to tasks", "bbox", autoreset="task", max_episode_steps=15),
    Scenario("autoreset to pairs", "mask", autoreset="pair", max_episode_steps=12),
    Scenario("tiny point", "point", (4, 6), "tiny", autoreset="task", rules={"max_attempts": 3}),
    Scenario("tiny bbox", "bbox", (6, 4), "tiny", autoreset="same"),
    Scenario("tiny mask", "mask", (5, 5), "tiny"),
    Scenario("tall canvas", "bbox", (32, 7), "tiny"),
    Scenario("full words", "mask", (32, 32), "tiny"),
    Scenario("one row", "bbox", (1, 32), "row"),
    Scenario("changing pairs", "bbox", (30, 30), rules={"control_operations": True, "max_attempts": 2}),
    Scenario(
        "all pairs",
        "point",
        (4, 6),
        "tiny",
        rules={"control_operations": True, "solve": "all", "max_attempts": 200},
        max_episode_steps=300,
    ),
    Scenario("no test pairs to go to", "point", (4, 6), "bare", rules={"control_operations": True}),
    Scenario(
        "all pairs, autoreset",
        "mask",
        (5, 5),
        "tiny",
        rules={"control_operations": True, "solve": "all", "max_attempts": 2},
        autoreset="pair",
    ),
    Scenario(
        "test pairs and back",
        "bbox",
        (6, 5),
        "tiny",
        mode=1,
        rules={"control_operations": True, "max_attempts": 5},
        autoreset="task",
    ),
    Scenario("rotation about the center", "bbox", (12, 12), "tiny", rules={"rotation": "center"}),
    Scenario("rotation about the center, masks", "mask", rules={"rotation": "center"}),
    Scenario("rotation about the center, 5x5", "mask", (5, 5), "tiny", rules={"rotation": "center"}),
    Scenario("few operations", "bbox", rules={"allowed_operations": (0, 3, 12, 20, 24, 28, 29, 33, 34)}),
)


def tiny_tasks(canvas: tuple[int, int], count: int = 24, least_tests: int = 1) -> TaskSet:
    """Tasks so small that random actions solve them, and some whose answer is their input."""
    rng = np.random.default_rng(7)

    def grid(most: int) -> np.ndarray:
        high, wide = (int(rng.integers(1, min(most, side) + 1)) for side in canvas)
        return rng.integers(0, int(rng.integers(1, 11)), (high, wide)).astype(np.int8)

    def pair(most: int) -> tuple[np.ndarray, np.ndarray]:
        source = grid(most)
        return source, source.copy() if rng.random() < 0.5 else grid(2)

    tasks = []
    for number in range(count):
        most = (2, 4, 32)[number % 3]
        train = tuple(pair(most) for _ in range(int(rng.integers(1, 5))))
        test = tuple(pair(most) for _ in range(int(rng.integers(least_tests, 4))))
        tasks.append(RawTask(f"tiny{number}", train, test, "made up"))
    return TaskSet.of(tasks)


def tasks_of(scenario: Scenario) -> TaskSet:
    """The tasks that a scenario plays on."""
    if scenario.tasks == "real":
        import jaxarc.tasks

        return jaxarc.tasks.load("arc-agi-1", split="training")
    return tiny_tasks(scenario.canvas, least_tests=0 if scenario.tasks == "bare" else 1)


def config_of(scenario: Scenario) -> JaxArcConfig:
    """The environment's config for a scenario."""
    rules = scenario.rules
    return JaxArcConfig(
        environment=EnvironmentConfig(
            max_episode_steps=scenario.max_episode_steps,
            max_attempts=rules.get("max_attempts", 1),
            solve=rules.get("solve", "pair"),
            autoreset=scenario.autoreset,  # pyright: ignore[reportArgumentType]
        ),
        dataset=UnifiedDatasetConfig(*scenario.canvas),
        action=UnifiedActionConfig(
            selection_format=scenario.history_format or scenario.format,  # pyright: ignore[reportArgumentType]
            control_operations=rules.get("control_operations", False),
            allowed_operations=rules.get("allowed_operations"),
            rotation=rules.get("rotation", "corner"),
        ),
    )


def _pairs(task: RawTask) -> tuple[list, list]:
    return list(task.train), [(a, b) for a, b in task.test if b is not None]


class Match:
    """A batch of environments, and one oracle for each."""

    def __init__(self, scenario: Scenario, batch: int, seed: int) -> None:
        self.scenario, self.batch = scenario, batch
        self.rng = np.random.default_rng(seed)
        self.tasks, self.config = tasks_of(scenario), config_of(scenario)
        self.raw = list(self.tasks)
        self.rules = arc_oracle.Rules(
            canvas=scenario.canvas, max_episode_steps=scenario.max_episode_steps, **scenario.rules
        )
        last = arc_oracle.UNSOLVED_TEST if self.rules.control_operations else arc_oracle.SUBMIT
        self.operations = scenario.rules.get("allowed_operations") or range(last + 1)
        self.live_steps = 0
        self.seen: Counter[str] = Counter()
        self.mismatches: list[str] = []
        self.start(seed)

    def start(self, seed: int) -> None:
        """New episodes for all."""
        keys = jax.random.split(jax.random.key(seed), self.batch)
        self.states, _ = batch_reset(keys, self.config, self.tasks, episode_mode=self.scenario.mode)
        self.oracles = [self.oracle(i) for i in range(self.batch)]
        self.compare_states("reset")

    def oracle(self, i: int) -> arc_oracle.Episode:
        """An oracle at the start of the episode that environment `i` chose."""
        task = self.raw[int(self.states.task_index[i])]
        mode, pair = int(self.states.episode_mode[i]), int(self.states.pair_index[i])
        return arc_oracle.Episode(*_pairs(task), self.rules, mode, pair)

    def step(self) -> None:
        """One step of all, compared."""
        chosen = [self.choose(oracle) for oracle in self.oracles]
        kind = KINDS[self.scenario.format]
        columns = [np.stack([action[1][k] for action in chosen]) for k in range(1, len(chosen[0][1]))]
        actions = kind(np.array([op for op, _ in chosen], np.int64).astype(np.int32), *columns)
        before = self.states
        self.states, _, reward, done, info = batch_step(self.states, actions, self.config)
        got = {name: np.asarray(value) for name, value in info.items() if name != "final_observation"}
        got |= {"reward": np.asarray(reward), "done": np.asarray(done)}
        shown = info["final_observation"]
        final_grid, final_size = np.asarray(shown.grid), np.asarray(shown.size)
        restarted = []
        for i, (oracle, (operation, action)) in enumerate(zip(self.oracles, chosen, strict=True)):
            was_done = oracle.done
            want = oracle.step(operation, action)
            self.live_steps += not was_done
            self.compare_step(i, operation, action, want, got)
            h, w = final_size[i]
            if not np.array_equal(final_grid[i, :h, :w], oracle.grid) or (final_grid[i, h:] != -1).any():
                self.mismatches.append(f"{self.scenario.name}: final observation, {operation} {action}")
            self.seen[f"op {operation}"] += 1
            self.seen["valid" if want["valid"] else "invalid"] += 1
            self.seen["success"] += want["success"] and not was_done
            self.seen["truncated"] += want["truncated"] and not was_done
            if want["done"] and not was_done:
                if self.scenario.autoreset is None:
                    self.compare_history(i, self.states)
                else:
                    restarted.append(i)
        for i in restarted:
            self.compare_choice(i, before)
            self.oracles[i] = self.oracle(i)
        self.compare_states("step")
        # Finished episodes are stepped on for a while, to see that they stay as they are.
        finished = np.mean([oracle.done for oracle in self.oracles])
        if self.scenario.autoreset is None and finished > 0.4:
            self.start(int(self.rng.integers(2**31)))

    def choose(self, oracle: arc_oracle.Episode) -> tuple[int, tuple]:
        """A random action; now and then one that makes the answer, so that submissions are right too."""
        canvas, form = self.scenario.canvas, self.scenario.format
        operation, action = arc_oracle.random_action(
            self.rng, canvas, form, self.operations, oracle.grid.shape
        )
        if arc_oracle.solved(oracle.grid, oracle.target) and self.rng.random() < 0.5:
            operation = arc_oracle.SUBMIT
        elif operation == arc_oracle.SUBMIT and self.rng.random() < 0.7:
            operation = int(self.rng.integers(34))
        return operation, action

    def compare_step(self, i: int, operation: int, action: tuple, want: dict, got: dict) -> None:
        names = {
            "done": "done",
            "valid": "valid_action",
            "terminated": "terminated",
            "truncated": "truncated",
            "success": "success",
            "step_count": "step_count",
            "similarity": "similarity",
            "mode": "episode_mode",
            "pair": "current_pair_index",
        }
        for mine, theirs in names.items():
            # Similarity is a quotient: equal to the last bit on a CPU, within 2 units in the last place on a GPU.
            apart = abs(float(want[mine]) - float(got[theirs][i]))
            if apart > (want[mine] != 1.0) * (mine == "similarity") * 2.4e-7 * float(want[mine]):
                self.mismatches.append(
                    f"{self.scenario.name}: {theirs} {got[theirs][i]} is not {want[mine]} at {operation} {action}"
                )
        if abs(want["reward"] - got["reward"][i]) > 1e-5:
            self.mismatches.append(f"{self.scenario.name}: reward {got['reward'][i]} is not {want['reward']}")

    def compare_states(self, when: str) -> None:
        """Grids, clipboards and counts of all environments."""
        width = self.scenario.canvas[1]
        s = jax.tree.map(np.asarray, jax.device_get(self.states))
        grids, clips = decode_host(s.planes, width), decode_host(s.clipboard, width)
        held = np.unpackbits(
            np.ascontiguousarray(s.clipboard_mask)[..., None].view(np.uint8), axis=-1, bitorder="little"
        ).astype(bool)[..., :width]
        for i, oracle in enumerate(self.oracles):
            h, w = int(s.height[i]), int(s.width[i])
            fine = (h, w) == oracle.grid.shape and np.array_equal(grids[i, :h, :w], oracle.grid)
            fine &= not grids[i, h:].any() and not grids[i, :, w:].any()
            clip = np.zeros_like(held[i])
            patch = np.zeros_like(grids[i])
            if oracle.clipboard is not None:
                ch, cw = oracle.clipboard.patch.shape
                clip[:ch, :cw] = oracle.clipboard.mask
                patch[:ch, :cw] = np.where(oracle.clipboard.mask, oracle.clipboard.patch, 0)
            fine &= np.array_equal(clip, held[i]) and np.array_equal(patch, clips[i])
            fine &= int(s.attempts_used[i]) == oracle.attempts and bool(s.terminated[i]) == oracle.terminated
            fine &= int(s.step_count[i]) == oracle.step_count
            if not fine:
                self.mismatches.append(f"{self.scenario.name}: state {i} after {when}")

    def compare_choice(self, i: int, before: Any) -> None:
        """After an autoreset the pair must be one that the mode of autoreset allows."""
        task, pair = int(self.states.task_index[i]), int(self.states.pair_index[i])
        mode = int(self.states.episode_mode[i])
        pairs = _pairs(self.raw[task])[mode]
        fine = 0 <= pair < len(pairs) and mode == self.scenario.mode
        if self.scenario.autoreset in ("same", "pair"):
            fine &= task == int(before.task_index[i])
        if self.scenario.autoreset == "same":
            fine &= pair == int(before.reset_pair[i])
        if not fine:
            self.mismatches.append(f"{self.scenario.name}: autoreset to task {task} pair {pair}")

    def compare_history(self, i: int, states: Any) -> None:
        """What the history keeps of a finished episode."""
        mine = jax.tree.map(lambda leaf: leaf[i], states.action_history)
        kept, wanted = records(mine, self.scenario.canvas[1]), self.oracles[i].history
        fine = len(kept["operation"]) == len(wanted)
        for at, want in enumerate(wanted if fine else ()):
            operation = want["operation"] if 0 <= want["operation"] < 63 else 63
            fine &= kept["operation"][at] == operation and bool(kept["valid"][at]) == want["valid"]
            fine &= kept["pair_index"][at] == want["pair"] and kept["episode_mode"][at] == want["mode"]
            chosen = arc_oracle.select(want["action"], self.scenario.canvas)
            if kept["exact"][at] and chosen is not None:
                names = {"point": ("row", "col"), "bbox": ("r1", "c1", "r2", "c2"), "mask": ("selection",)}
                form = mine.format
                again = arc_oracle.select((form, *(kept[n][at] for n in names[form])), self.scenario.canvas)
                fine &= again is not None and np.array_equal(again, chosen)
            elif self.scenario.history_format is None and chosen is not None:
                fine = False
        self.seen["histories"] += 1
        if not fine:
            self.mismatches.append(f"{self.scenario.name}: history {i}")


def play(scenario: Scenario, steps: int, batch: int, seed: int) -> Match:
    """Take at least `steps` steps of unfinished episodes and compare them all."""
    match = Match(scenario, batch, seed)
    while match.live_steps < steps:
        match.step()
    return match


def path_of(match: Match) -> str:
    """What carried out the steps: the GPU's kernel, the CPU's, or XLA's code."""
    idle = jax.numpy.zeros(match.states.height.shape, jax.numpy.int32)
    path = explain(match.states, PointAction(idle, idle, idle), match.config)
    return {"gpu": "GPU kernel", "cpu": "CPU kernels", "xla": "XLA"}[path.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="k/n: every n-th scenario from the k-th")
    parser.add_argument("--out", type=Path, help="folder for a result file")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    each = -(-options.steps // len(SCENARIOS))  # the parts together take all of them
    total, wrong, began, rows = 0, 0, time.perf_counter(), {}
    for number, scenario in enumerate(SCENARIOS[part::parts]):
        match = play(scenario, each, options.batch, options.seed + 1000 * number + part)
        steps = match.live_steps
        total, wrong = total + steps, wrong + len(match.mismatches)
        operations = sum(name.startswith("op ") for name in match.seen)
        counts = {
            name: match.seen[name] for name in ("valid", "invalid", "success", "truncated", "histories")
        }
        result = f"{steps:,} steps, {len(match.mismatches)} mismatches, {operations} ids"
        print(f"{scenario.name}: {result}, {counts}", flush=True)
        rows[scenario.name] = {
            "steps": steps,
            "mismatches": len(match.mismatches),
            **counts,
            "by": path_of(match),
        }
        for line in match.mismatches[:5]:
            print("   ", line)
    summary = {"steps": total, "mismatches": wrong, "seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps(summary))
    if options.out is not None:
        name = "arc_oracle" if parts == 1 else f"arc_oracle-{part + 1}-of-{parts}"
        found = {"name": name, "environment": environment(), "results": summary, "scenarios": rows}
        with atomic_write(options.out / f"{name}.json") as file:
            file.write((json.dumps(found, indent=1) + "\n").encode())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""jaxarc's part of `make demo`: a task, an episode solved by scripted actions, its replay, and the speed of random play."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from jaxworlds.commands.demo import Section, Speed, facts_table, framed, waiting

from . import tasks
from ._commands.rollout import settings
from .agents.rollout import rollout
from .dispatch import arc_reset, batch_reset
from .envs.config import JaxArcConfig, UnifiedDatasetConfig
from .envs.episodes import Played, random_policy
from .envs.operations import FLOOD, Operation
from .envs.structured_actions import PointAction

TASK = "00d62c1b"
"""A task of ARC-AGI-1: fill what the green loops enclose."""


def demo(out: Path, console: Any, *, batch: int = 1024, steps: int = 100) -> Section:
    """Run the demo of jaxarc, print and return what it saw. Raises if the task is not solved."""
    console.print("[bold]jaxarc[/]: ARC puzzles as environments")
    began = time.perf_counter()
    training = tasks.load("arc-agi-1", split="training")
    seconds = time.perf_counter() - began
    console.print(f"{len(training)} tasks of ARC-AGI-1 loaded in {seconds:.2f} s")
    with waiting(console, "an episode, step by step"):
        picture, replay, solved = _solve(training, console)
    with waiting(console, "random play"):
        report, speed = _random_play(training, batch, steps)
    console.print(report)
    rows = {
        "tasks": f"{len(training)}, {training.bank.nbytes / 1e6:.1f} MB on the device, loaded in {seconds:.2f} s",
        "the episode": solved,
        "random play": report,
    }
    body = (
        "<p>ARC is a collection of puzzles that people solve at a glance and machines do not: from a few examples, find the "
        "rule, and draw the answer. Here each puzzle is an environment in which an agent edits a grid and hands it in.</p>\n"
        f'<figure class="wide">{picture}</figure>\n'
        f"<p>The task <code>{TASK}</code>: examples of input and output, and the input to answer. "
        "The rule: fill what the green loops enclose.</p>\n"
        "<h3>An episode, to watch</h3>\n"
        "<p>A short script solves one of its examples: it floods each enclosed region and hands the grid in. Press play, or step "
        "with the arrow keys. Similarity is the share of cells that agree with the target.</p>\n"
        f"{framed(replay, 'Replay of the episode', '46rem')}\n{facts_table(*rows.items())}"
    )
    summary = "Puzzles of ARC as environments, millions of steps a second, for agents that learn to reason."
    return Section(
        "jaxarc: ARC puzzles as environments",
        body,
        (speed,),
        summary,
        {"jaxarc show 00d62c1b": "a puzzle in the terminal"},
    )


def _solve(training: tasks.TaskSet, console: Any) -> tuple[str, str, str]:
    """The picture of the task, a page on which a solved episode can be watched, and how it went."""
    from .utils.visualization import episode_html, print_task, record_episode, task_svg

    task = training.raw(TASK)
    if console.is_terminal:
        print_task(task, console=console)
    config = JaxArcConfig(dataset=UnifiedDatasetConfig(20, 20))
    state, _ = arc_reset(jr.key(0), config, training.get_task_by_id(TASK), initial_pair_idx=4)
    source, target = task.train[4]
    actions = [*enclosed_floods(source, target), PointAction(Operation.SUBMIT, 0, 0)]
    episode = record_episode(state, actions, config, task_id=TASK)
    if not episode.success:
        raise RuntimeError(f"the scripted actions did not solve {TASK}. Please report this.")
    said = f"solved in {episode.length} actions, reward {episode.total_reward:.2f}"
    console.print(f"task {TASK}: {said}", highlight=False)
    return task_svg(task), episode_html(episode), said


def enclosed_floods(source: np.ndarray, target: np.ndarray) -> list[PointAction]:
    """One flood for each region in which the two grids differ, if whole regions of one colour change to another."""
    grid, actions = np.array(source), []
    while (grid != target).any():
        row, col = (int(at) for at in np.argwhere(grid != target)[0])
        old, new = grid[row, col], target[row, col]
        pending = [(row, col)]
        while pending:
            r, c = pending.pop()
            if 0 <= r < grid.shape[0] and 0 <= c < grid.shape[1] and grid[r, c] == old:
                grid[r, c] = new
                pending += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
        actions.append(PointAction(FLOOD + int(new), row, col))
        if len(actions) > grid.size:
            raise ValueError("`target` must differ from `source` in whole regions; these do not.")
    return actions


def _random_play(training: tasks.TaskSet, batch: int, steps: int) -> tuple[str, Speed]:
    config = settings(training, "bbox", "random", steps)
    states, seen = batch_reset(jr.split(jr.key(1), batch), config, training)
    policy = random_policy(config)

    def time_run(turn: int) -> tuple[float, Played]:
        began = time.perf_counter()
        played = jax.block_until_ready(rollout(policy, None, states, seen, jr.key(2 + turn), config, steps))
        return time.perf_counter() - began, played

    first, _ = time_run(0)  # compiles
    seconds, (played, *_) = zip(*(time_run(turn) for turn in (1, 2, 3)), strict=True)
    taken = float(np.median(seconds))
    rate = batch * steps / taken
    ended, won = int(played.episodes.sum()), int(played.successes.sum())
    said = (
        f"{batch:,} environments at once on grids up to 30×30, random actions: {rate:,.0f} steps/s; "
        f"{ended:,} episodes ended, {won} of them solved by chance"
    )
    job = f"jaxarc: random play, {batch:,} environments at 30×30"
    return said, Speed(job, rate, "steps/s", max(first - taken, 0.0))

"""jaxarc's part of `make demo`: a task, an episode solved by scripted actions, its replay, and how fast chance plays."""

import html
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from jaxworlds.demo import Section

from . import tasks
from .envs.config import (
    EnvironmentConfig,
    JaxArcConfig,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
)
from .envs.episodes import random_policy, rollout
from .envs.functional import arc_reset, batch_reset
from .envs.operations import FLOOD, SUBMIT
from .envs.structured_actions import PointAction

TASK = "00d62c1b"
"""A task of ARC-AGI-1: fill what the green loops enclose."""


def demo(out: Path, console: Any, *, batch: int = 1024, steps: int = 100) -> Section:
    """Run the demo of jaxarc, print and return what it saw. Raises if the task is not solved."""
    console.print("\n[bold]jaxarc[/]: ARC puzzles as environments")
    began = time.perf_counter()
    training = tasks.load("arc-agi-1", split="training")
    seconds = time.perf_counter() - began
    console.print(f"{len(training)} tasks of ARC-AGI-1 loaded in {seconds:.2f} s")
    picture, replay = _solve(training, out, console)
    report = _random_play(training, batch, steps)
    console.print(report)
    rows = {
        "tasks": f"{len(training)}, {training.bank.nbytes / 1e6:.1f} MB on the device, loaded in {seconds:.2f} s",
        "random play": report,
    }
    table = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    body = (
        f"<p>The task <code>{TASK}</code>, as the environment holds it.</p>\n<figure>{picture}</figure>\n"
        f"<p>One of its pairs, solved by flooding what is enclosed and submitting: "
        f'<a href="{replay}">the replay</a>.</p>\n'
        f'<iframe src="{replay}" title="Replay of the episode" style="width:100%;height:44rem;border:1px solid #ccc">'
        f"</iframe>\n<table>{table}</table>"
    )
    return Section("jaxarc: ARC puzzles as environments", body)


def _solve(training: tasks.TaskSet, out: Path, console: Any) -> tuple[str, str]:
    """The picture of the task, and the name of the page on which a solved episode can be watched."""
    from .utils.visualization import episode_html, print_task, record_episode, task_svg

    task = training.raw(TASK)
    if console.is_terminal:
        print_task(task, console=console)
    config = JaxArcConfig(dataset=UnifiedDatasetConfig(20, 20))
    state, _ = arc_reset(jr.key(0), config, training.get_task_by_id(TASK), initial_pair_idx=4)
    source, target = task.train[4]
    actions = [*enclosed_floods(source, target), PointAction(SUBMIT, 0, 0)]
    episode = record_episode(state, actions, config)
    if not episode.success:
        raise RuntimeError(f"the scripted actions did not solve {TASK}. Please report this.")
    name = "arc_replay.html"
    episode_html(episode, out / name)
    console.print(
        f"Solved in {episode.length} actions, reward {episode.total_reward:.2f}; replay: {out / name}"
    )
    return task_svg(task), name


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


def _random_play(training: tasks.TaskSet, batch: int, steps: int) -> str:
    config = JaxArcConfig(
        environment=EnvironmentConfig(autoreset="task"),
        action=UnifiedActionConfig(selection_format="bbox", history=False),
        observation=ObservationConfig(format="packed", input=False, clipboard=False),
    )
    states, seen = batch_reset(jr.split(jr.key(1), batch), config, training)
    policy = random_policy(config)
    jax.block_until_ready(rollout(policy, None, states, seen, jr.key(2), config, steps))  # compiles
    began = time.perf_counter()
    played = jax.block_until_ready(rollout(policy, None, states, seen, jr.key(3), config, steps))
    rate = batch * steps / (time.perf_counter() - began)
    ended, won = int(played.episodes.sum()), int(played.successes.sum())
    return (
        f"{batch:,} environments at 30×30, boxes, new task after each episode: {rate:,.0f} steps/s; "
        f"{ended:,} episodes ended, {won} of them solved by chance"
    )

"""`jaxarc rollout`: a batch of environments played at random or by painting the answers."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr

from jaxworlds._commands import checked_suffix, is_first, machine, machine_words, print_json, say
from jaxworlds._ending import cause_of, code_of
from jaxworlds._host import OUTCOMES, most_urgent, stop_on_signal, to_host
from jaxworlds._timing import CompileEvents
from jaxworlds.meshes import shard_worlds

from ..envs.config import (
    EnvironmentConfig,
    JaxArcConfig,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
)
from ..envs.episodes import Played, random_actions, random_policy
from ..envs.episodes import play as play_steps
from ..envs.functional import arc_reset, batch_reset
from ..envs.scripted import painting_actions, solve_by_painting
from ..envs.state import state_axes, with_tasks
from ..tasks import datasets
from ..tasks.taskset import TaskSet
from .showing import write_episode

CHUNK = 50
"""Steps of one compiled call: progress is shown, and Ctrl-C and SIGTERM heeded, between two."""


@dataclass
class Count:
    """What came of playing; seconds without compiling."""

    steps: int = 0
    episodes: int = 0
    solved: int = 0
    reward: float | None = 0.0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    outcome: str = "finished"

    @property
    def stopped(self) -> bool:
        """Whether it ended before all steps were taken."""
        return self.outcome != "finished"


def play(
    dataset: str,
    split: str | None,
    task: str | None,
    policy: str,
    environments: int,
    steps: int,
    format: str,
    seed: int,
    replay: tuple[Path, ...],
    json: bool,
    mesh: Any = None,
) -> int:
    """Play, tell what came of it, and write one episode where asked."""
    for name, value in (("environments", environments), ("steps", steps)):
        if value < 1:
            raise ValueError(f"`--{name}` must be at least 1; got {value}.")
    for path in replay:
        checked_suffix(path, (".html", ".json", ".npz"), "replay")
    tasks = chosen_tasks(dataset, split, task)
    config = settings(tasks, format, policy, steps)
    where = machine()
    if not json:
        side = "×".join(map(str, config.canvas))
        say(f"{len(tasks)} tasks of {tasks.name}, {environments:,} environments at {side}, {format} actions")
        say(f"on {machine_words(where)}")
    states, _ = batch_reset(jr.split(jr.key(seed), environments), config, tasks)
    if mesh is not None:
        states = shard_worlds(states, mesh, state_axes(states))
    count = _paint(states, config) if policy == "paint" else _at_random(states, config, steps, seed, not json)
    for path in replay if is_first() else ():
        write_episode(one_episode(tasks, config, policy, steps, seed), path)
    rate = count.steps / count.seconds if count.seconds else 0.0
    if json:
        facts = {
            "tasks": len(tasks),
            "environments": environments,
            "policy": policy,
            "format": format,
            "seed": seed,
        }
        told = {**facts, **vars(count), "stopped": count.stopped, "steps_per_second": rate, "replay": replay}
        print_json({**told, **where})
    else:
        share = 100 * count.solved / count.episodes if count.episodes else 0.0
        say(f"compiled in {count.compile_seconds:.2f} s")
        say(f"{count.steps:,} steps in {count.seconds:.3f} s: {rate:,.0f} steps/s")
        reward = "" if count.reward is None else f", reward {count.reward:,.2f}"
        say(f"{count.episodes:,} episodes ended, {count.solved:,} solved ({share:.1f} %){reward}")
        for path in replay:
            say(f"wrote {path}")
        if count.stopped:
            say(f"stopped early by {cause_of(count.outcome)}")
    return code_of(count.outcome)


def chosen_tasks(dataset: str, split: str | None, task: str | None) -> TaskSet:
    """The tasks to play: all of a set, a split of it, or one."""
    tasks = datasets.load(dataset, split=split)
    return tasks if task is None else tasks.subset([task])


def settings(tasks: TaskSet, form: Any, policy: str, steps: int) -> JaxArcConfig:
    """An environment as large as the tasks need; random play goes on with another task, painting ends."""
    height, width = tasks.canvas
    painting = policy == "paint"
    environment = (
        EnvironmentConfig(max_episode_steps=steps) if painting else EnvironmentConfig(autoreset="task")
    )
    return JaxArcConfig(
        environment=environment,
        dataset=UnifiedDatasetConfig(height, width),
        action=UnifiedActionConfig(selection_format=form, history=False),
        observation=ObservationConfig(format="packed", input=False, clipboard=False),
    )


class Program(NamedTuple):
    """Random play compiled: `call(states without tasks, tasks, key) -> Played`, and what compiling took."""

    call: Any
    seconds: float
    from_disk: bool


def compiled_play(config: JaxArcConfig, states: Any, steps: int) -> Program:
    """So many random steps of a batch, compiled ahead."""
    policy = random_policy(config)
    began = time.perf_counter()
    with CompileEvents() as events:
        lowered = play_steps.lower(  # pyright: ignore[reportFunctionMemberAccess]
            policy, None, with_tasks(states, None), states.task_data, jr.key(0), config, steps
        )
        program = lowered.compile()
    seconds = time.perf_counter() - began
    return Program(lambda bare, bank, key: program(None, bare, bank, key), seconds, events.disk_hits > 0)


def _at_random(states: Any, config: JaxArcConfig, steps: int, seed: int, progress: bool) -> Count:
    from rich.console import Console
    from rich.progress import Progress

    chunk = min(CHUNK, steps)
    sizes = [chunk] * (steps // chunk) + ([steps % chunk] if steps % chunk else [])
    programs: dict[int, Any] = {}
    count = Count()
    for size in dict.fromkeys(sizes):
        program = compiled_play(config, states, size)
        programs[size] = program.call
        count.compile_seconds += program.seconds
    bare, tasks = with_tasks(states, None), states.task_data
    console = Console(stderr=True)
    key = jr.fold_in(jr.key(seed), 1)
    quiet = not (progress and console.is_terminal)
    with stop_on_signal() as asked, Progress(console=console, transient=True, disable=quiet) as bar:
        shown = bar.add_task("steps", total=steps)
        for number, size in enumerate(sizes):
            began = time.perf_counter()
            played: Played = jax.block_until_ready(programs[size](bare, tasks, jr.fold_in(key, number)))
            count.seconds += time.perf_counter() - began
            bare = played.states
            _add(count, played)
            bar.advance(shown, size)
            level = most_urgent(asked.level)  # several hosts stop at the same chunk
            if level and number + 1 < len(sizes):
                count.outcome = OUTCOMES[level]
                break
    return count


def _add(count: Count, played: Played) -> None:
    steps, episodes, solved, reward = to_host(
        (played.steps, played.episodes, played.successes, played.reward)
    )
    count.steps += int(steps.sum())
    count.episodes += int(episodes.sum())
    count.solved += int(solved.sum())
    count.reward = (count.reward or 0.0) + float(reward.sum())


def _paint(states: Any, config: JaxArcConfig) -> Count:
    began = time.perf_counter()
    with CompileEvents() as events:
        painted = jax.block_until_ready(solve_by_painting(states, config))
    whole = time.perf_counter() - began
    steps, done, solved = to_host((painted.steps, painted.states.done, painted.success))
    return Count(
        steps=int(steps.sum()),
        episodes=int(done.sum()),
        solved=int(solved.sum()),
        reward=None,
        seconds=max(whole - events.seconds, 1e-9),
        compile_seconds=events.seconds,
    )


def one_episode(tasks: TaskSet, config: JaxArcConfig, policy: str, steps: int, seed: int) -> Any:
    """An episode of the first task, step by step, with every grid kept."""
    from ..utils.visualization.records import record_episode

    name = tasks.ids[0]
    start = arc_reset(jr.fold_in(jr.key(seed), 2), config, tasks, task_index=0, initial_pair_idx=0)
    form = config.action.selection_format
    if policy == "paint":
        source, target = tasks.raw(name).train[0]
        actions: Any = painting_actions(source, target, form, config.canvas)
    else:
        keys = jr.split(jr.fold_in(jr.key(seed), 3), steps)
        actions = lambda seen, t: random_actions(keys[t], config)  # noqa: E731
    return record_episode(start, actions, config, task_id=name, max_steps=steps)

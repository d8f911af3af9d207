"""`jaxarc rollout`: a batch of environments played at random or by painting the answers."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int32, PRNGKeyArray

from jaxworlds.batching import plan_batch_size, shard_worlds, spread_over
from jaxworlds.commands import (
    checkpoint_option,
    demand_suffix,
    is_first,
    machine,
    machine_words,
    print_json,
    say,
)
from jaxworlds.compile_events import CompileEvents
from jaxworlds.memory import demand_memory, predict_memory, tree_bytes
from jaxworlds.processes.exits import code_of, stopped_by
from jaxworlds.rollout import Checkpoint, Rollout, holds_run, resume, run, to_host

from ..agents.painter import painting_actions, solve_by_painting
from ..agents.rollout import Tally, advance, empty_tally
from ..agents.rollout import play as play_steps
from ..dispatch import arc_reset, batch_reset, batch_step
from ..envs.config import (
    EnvironmentConfig,
    JaxArcConfig,
    ObservationConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
)
from ..envs.episodes import random_actions, random_policy
from ..envs.state import ArcEnvState, join_tasks, state_axes
from ..tasks.taskset import TaskSet
from .options import Rollout as Options
from .show import write_episode
from .sources import demand_id, load_tasks, reword_errors

# Environment steps between two looks at Ctrl-C and the clock, about a second's worth: 3 million steps/s on two CPU cores,
# 2.9 billion on an H200 (benchmarks/results).
_PER_CHUNK, _PER_CHUNK_CPU = 1_000_000_000, 2_000_000
_LONGEST_CHUNK = 2048
_RESET = 1.1
"""Memory that a reset takes, in multiples of its results: 1,734 of 1,639 bytes an environment at 30×30 (measured 2026-11-19)."""


@dataclass
class Count:
    """What came of playing; seconds of this call, without compiling."""

    steps: int = 0
    episodes: int = 0
    solved: int = 0
    reward: float | None = 0.0
    seconds: float = 0.0
    steps_per_second: float = 0.0
    compile_seconds: float = 0.0
    outcome: str = "finished"

    @property
    def stopped(self) -> bool:
        """Whether it ended before all steps were taken."""
        return self.outcome != "finished"


def play(options: Options, mesh: Any = None) -> int:
    """Play, report the result, and write one episode if `--replay` asks for it."""
    environments, steps, policy = options.environments, options.steps, options.policy
    for name, value in (("environments", environments), ("steps", steps)):
        if value < 1:
            raise ValueError(f"`--{name}` must be at least 1; got {value}.")
    if options.checkpoint is not None and policy == "paint":
        raise ValueError("`--checkpoint` goes with random play; painting takes seconds. Leave it out.")
    kept = checkpoint_option(options.checkpoint, options.checkpoint_every)
    if mesh is not None and environments % mesh.size:
        raise ValueError(
            f"`--environments` must be a multiple of the {mesh.size} devices, which share them; got {environments}. "
            f"Take {-(-environments // mesh.size) * mesh.size}."
        )
    if options.resume and options.checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint`, the folder of the run that goes on; got none.")
    for path in options.replay:
        demand_suffix(path, (".html", ".json", ".npz"), "replay")
    tasks = chosen_tasks(options)
    config = settings(tasks, options.format, policy, steps)
    where = machine()
    if not options.json:
        side = "×".join(map(str, config.canvas))
        say(
            f"{len(tasks)} tasks of {tasks.name}, {environments:,} environments at {side}, {options.format} actions"
        )
        say(f"on {machine_words(where)}")
    demand_room(environments, config, tasks, mesh)
    states, _ = batch_reset(jr.split(jr.key(options.seed), environments), config, tasks)
    if policy == "paint":
        placed = states if mesh is None else shard_worlds(states, mesh, state_axes(states))
        with spread_over(mesh):
            count = _paint(placed, config)
    else:
        table = Table(states.task_data, jr.fold_in(jr.key(options.seed), 1), jnp.asarray(steps, jnp.int32))
        how = {"shared": table, "mesh": mesh, "progress": False if options.json else None}
        count = _at_random(states, config, steps, kept, options.resume, how)
    for path in options.replay if is_first() else ():
        write_episode(one_episode(tasks, config, policy, steps, options.seed), path)
    if options.json:
        names = ("environments", "policy", "format", "seed", "checkpoint")
        facts = {"tasks": len(tasks), **{name: getattr(options, name) for name in names}}
        print_json({**facts, **vars(count), "stopped": count.stopped, "replay": options.replay, **where})
    else:
        _tell(count, options)
    return code_of(count.outcome)


def _tell(count: Count, options: Options) -> None:
    share = 100 * count.solved / count.episodes if count.episodes else 0.0
    say(f"compiled in {count.compile_seconds:.2f} s")
    if count.steps_per_second or count.stopped:
        say(f"{count.steps:,} steps in {count.seconds:.3f} s: {count.steps_per_second:,.0f} steps/s")
    else:
        say(f"{count.steps:,} steps: the run in {options.checkpoint} was finished already")
        say("pass another `--checkpoint` to play again")
    reward = "" if count.reward is None else f", reward {count.reward:,.2f}"
    say(f"{count.episodes:,} episodes ended, {count.solved:,} solved ({share:.1f} %){reward}")
    for path in options.replay:
        say(f"wrote {path}")
    if early := stopped_by(count.outcome, options.checkpoint):
        say(early)


def chosen_tasks(options: Options) -> TaskSet:
    """The tasks to play: all of a set, a split of it, or one."""
    tasks = load_tasks(options.dataset, "--dataset", options.split)
    return tasks if options.task is None else tasks.subset([demand_id(tasks, options.task, "--task")])


def settings(tasks: TaskSet, form: Any, policy: str, steps: int) -> JaxArcConfig:
    """An environment as large as the tasks need; random play goes on with another task, painting ends."""
    rules: dict[str, Any] = {"max_episode_steps": steps} if policy == "paint" else {"autoreset": "task"}
    return JaxArcConfig(
        environment=EnvironmentConfig(**rules),
        dataset=UnifiedDatasetConfig(*tasks.canvas),
        action=UnifiedActionConfig(selection_format=form, history=False),
        observation=ObservationConfig(format="packed", input=False, clipboard=False),
    )


class Program(NamedTuple):
    """Random play compiled: `call(states without tasks, tasks, key) -> Played`, and what compiling took."""

    call: Any
    seconds: float
    from_disk: bool


def compiled_play(config: JaxArcConfig, states: Any, steps: int) -> Program:
    """Compile `steps` random steps of a batch ahead of time."""
    policy = random_policy(config)
    began = time.perf_counter()
    with CompileEvents() as events:
        lowered = play_steps.lower(  # pyright: ignore[reportFunctionMemberAccess]
            policy, None, join_tasks(states, None), states.task_data, jr.key(0), config, steps
        )
        program = lowered.compile()
    seconds = time.perf_counter() - began
    need = predict_memory(program)
    demand_memory(need.peak - need.arguments, _fewer)
    return Program(lambda bare, bank, key: program(None, bare, bank, key), seconds, events.disk_hits > 0)


class Table(eqx.Module):
    """What all environments share; a checkpoint of another one is refused."""

    tasks: Any
    key: PRNGKeyArray
    length: Int32[Array, ""]


@dataclass(frozen=True)
class RandomStep:
    """The driver's step: random actions for all environments."""

    config: JaxArcConfig

    def __call__(self, tally: Tally, t: Int32[Array, ""], table: Table) -> tuple[Tally, None]:
        """Draw, step and count."""
        batch = tally.steps.shape[0]
        actions = random_actions(jr.fold_in(table.key, t), self.config, batch)
        return advance(tally, actions, table.tasks, self.config), None


def _at_random(
    states: ArcEnvState,
    config: JaxArcConfig,
    steps: int,
    kept: Checkpoint | None,
    goes_on: bool,
    options: dict[str, Any],
) -> Count:
    """Random play by the core's driver: over devices, with progress, and from where a run was left."""
    step, start = RandomStep(config), empty_tally(states)
    if goes_on and kept is not None and holds_run(kept.folder):  # the same line serves the first time too
        return _count_of(resume(step, start, kept, **options))
    chunk = chunk_length(states.height.shape[0], steps)
    return _count_of(run(step, start, steps, chunk=chunk, checkpoint=kept, **options))


def demand_room(environments: int, config: JaxArcConfig, tasks: TaskSet, mesh: Any = None) -> None:
    """Refuse a batch that memory cannot hold before any of it is made: most systems lend more than they have, and kill later."""
    reset = jax.eval_shape(lambda key: arc_reset(key, config, tasks), jr.key(0))
    needed = int(environments * _RESET * tree_bytes((join_tasks(reset[0], None), reset[1])))
    parts = mesh.size if mesh is not None and jax.default_backend() == "cpu" else 1  # one memory for them all
    demand_memory(needed // parts, _fewer)


def _fewer(share: float) -> str:
    return "Take fewer `--environments`."


def fitting_environments(tasks: TaskSet, format: str, policy: str, steps: int) -> int:
    """The largest power of two of environments that fits, as the compiled program tells; none that does not is tried."""
    config = settings(tasks, format, policy, steps)
    bank = tasks.bank

    def play_once(states: ArcEnvState, bank: Any, key: Array) -> Any:
        actions = random_actions(key, config, states.height.shape[0])
        return batch_step(join_tasks(states, bank), actions, config)

    def arguments(batch: int) -> tuple[Any, ...]:
        one = join_tasks(arc_reset(jr.key(0), config, tasks)[0], None)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype), one), bank, jr.key(0)

    plan = plan_batch_size(play_once, arguments, sizes=(64, 256), measure=False, fraction=0.5)
    return 1 << (plan.batch_size.bit_length() - 1)


def fewer_environments(tasks: TaskSet, formats: tuple[str, ...], policy: str, steps: int, given: int) -> str:
    """What to type after `given` environments were too many."""
    try:
        fitting = min(fitting_environments(tasks, form, policy, steps) for form in formats)
    except ValueError:  # so little is left that nothing can be planned
        fitting = given
    if fitting < given:
        return f"`--environments {fitting}` fits; got {given}."
    return f"Try `--environments {max(given // 2, 1)}`; got {given}."  # memory was short of what it is now


def chunk_length(environments: int, steps: int) -> int:
    """Steps of one compiled call, about a second's worth: a divisor of all steps where one is near."""
    worth = _PER_CHUNK_CPU if jax.default_backend() == "cpu" else _PER_CHUNK
    most = min(max(worth // environments, 1), _LONGEST_CHUNK, steps)
    return next((size for size in range(most, most // 2, -1) if steps % size == 0), most)


def _count_of(found: Rollout) -> Count:
    tally: Tally = found.carry
    steps, episodes, solved, reward = to_host((tally.steps, tally.episodes, tally.solved, tally.reward))
    return Count(
        steps=int(steps.sum()),
        episodes=int(episodes.sum()),
        solved=int(solved.sum()),
        reward=float(reward.sum(dtype="float64")),
        seconds=max(found.seconds - found.compile_seconds, 1e-9),
        steps_per_second=found.world_steps_per_second,
        compile_seconds=found.compile_seconds,
        outcome=found.outcome,
    )


def _paint(states: Any, config: JaxArcConfig) -> Count:
    began = time.perf_counter()
    words = {"`config.environment.max_episode_steps`": "`--steps`"}
    with reword_errors(words), CompileEvents() as events:
        painted = jax.block_until_ready(solve_by_painting(states, config))
    whole = time.perf_counter() - began
    steps, done, solved = to_host((painted.steps, painted.states.done, painted.success))
    seconds = max(whole - events.seconds, 1e-9)
    return Count(
        steps=int(steps.sum()),
        episodes=int(done.sum()),
        solved=int(solved.sum()),
        reward=None,
        seconds=seconds,
        steps_per_second=float(steps.sum()) / seconds,
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

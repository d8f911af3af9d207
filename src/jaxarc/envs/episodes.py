"""Playing whole episodes: a random policy, rollouts in one compiled loop, and the official score on test pairs."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float32, Int32, PRNGKeyArray, PyTree, UInt32

from jaxworlds.arguments import demand_call, demand_key, short
from jaxworlds.static import config, is_hashable_config, replace

from ..tasks import planes
from ..tasks.taskset import TaskSet
from .config import FIRST_EXTRA, JaxArcConfig, official
from .functional import batch_observe, batch_reset, batch_step
from .kernels.switch import switched_on
from .observations import ArcObservation
from .operations import SUBMIT
from .state import ArcEnvState, demand_tasks, join_tasks
from .structured_actions import AbstractAction, BboxAction, MaskAction, PointAction

Policy = Callable[[PyTree, ArcObservation, PRNGKeyArray], AbstractAction]
"""`policy(params, observation, key)` gives the action; of a batch, one for each environment."""


def random_actions(
    key: PRNGKeyArray | UInt32[Array, " words"],
    config: JaxArcConfig,
    batch: int | None = None,
    selection_format: str | None = None,
) -> AbstractAction:
    """A batch of actions, or one: operations uniform over those allowed, coordinates uniform over the canvas.

    A mask selects each cell with probability one half.
    """
    form = selection_format or config.action.selection_format
    if form not in ("point", "bbox", "mask"):
        raise ValueError(f"`selection_format` must be 'point', 'bbox' or 'mask'; got {form!r}.")
    rows, cols = config.canvas
    allowed = config.action.allowed_operations or config.action.existing_operations
    shape = () if batch is None else (batch,)
    # One draw for the whole batch is what a GPU likes best, and half a word is enough for a number.
    words = jr.bits(demand_key(key), ({"point": 2, "bbox": 3, "mask": 1 + rows}[form], *shape), jnp.uint32)
    chosen = _below(words[0] >> 16, len(allowed))
    every = allowed == tuple(range(len(allowed)))
    operation = chosen if every else jnp.asarray(allowed, jnp.int32)[chosen]
    if form == "mask":
        return MaskAction(operation, jnp.moveaxis(words[1:], 0, -1) & planes.low_bits(jnp.int32(cols)))
    row, col = _below(words[0] & 0xFFFF, rows), _below(words[1] >> 16, cols)
    if form == "point":
        return PointAction(operation, row, col)
    other_row, other_col = _below(words[1] & 0xFFFF, rows), _below(words[2] >> 16, cols)
    return BboxAction(operation, row, col, other_row, other_col)


def _below(halves: UInt32[Array, "*b"], count: int) -> Int32[Array, "*b"]:
    """Numbers from 0 to `count` − 1 from 16 random bits each, all as likely (to 1 in 2^16 ÷ count)."""
    return ((halves * jnp.uint32(count)) >> 16).astype(jnp.int32)


def random_policy(config: JaxArcConfig, selection_format: str | None = None) -> Policy:
    """A policy that draws `random_actions`, whatever it sees: one of them, or one for each environment of a batch.

    Equal settings make equal policies, so that a compiled rollout is found again.
    """
    return _RandomPolicy(config, selection_format)


@config
class _RandomPolicy:
    settings: JaxArcConfig
    selection_format: str | None

    def __call__(self, params: PyTree, seen: ArcObservation, key: PRNGKeyArray) -> AbstractAction:
        batch = seen.step_count.shape[0] if seen.step_count.ndim else None
        return random_actions(key, self.settings, batch, self.selection_format)


class Played(eqx.Module):
    """What came of a rollout, one number for each environment: summed rewards, episodes ended and solved, steps taken."""

    states: ArcEnvState
    observations: ArcObservation
    reward: Float32[Array, " b"]
    episodes: Int32[Array, " b"]
    successes: Int32[Array, " b"]
    steps: Int32[Array, " b"]


ROLLOUT = "rollout(policy, params, states, observations, key, config, steps)"


def rollout(
    policy: Policy,
    params: PyTree,
    states: ArcEnvState,
    observations: ArcObservation,
    key: PRNGKeyArray,
    config: JaxArcConfig,
    steps: int,
) -> Played:
    """Let a policy play a batch for `steps` steps in one compiled loop.

    Without autoreset, environments whose episode is over wait: they earn nothing and count no step. `observations` are
    not used: the loop looks at the states itself.
    """
    demand_call(policy, "policy", ROLLOUT)
    if not isinstance(states, ArcEnvState):
        raise TypeError(
            f"`states` must come from batch_reset; got {type(states).__name__}. The order is {ROLLOUT}."
        )
    if not (isinstance(steps, int | np.integer) and steps >= 0):
        raise ValueError(
            f"`steps` must be a whole number of at least 0; got {short(steps)}. The order is {ROLLOUT}."
        )
    if not is_hashable_config(policy):
        raise TypeError(
            f"`policy` must be hashable, for it is part of the program; got {type(policy).__name__} with arrays in it. "
            "Pass what has arrays as `params`: "
            "rollout(lambda model, seen, key: model(seen, key), model, states, ...)."
        )
    demand_key(key)
    tasks = states.task_data
    demand_tasks(states, tasks)
    played = play(policy, params, join_tasks(states, None), tasks, key, config, steps, switched_on())
    return eqx.tree_at(lambda p: p.states, played, join_tasks(played.states, tasks))


@functools.partial(jax.jit, static_argnames=("policy", "config", "steps", "kernels"))
def play(
    policy: Policy,
    params: PyTree,
    states: ArcEnvState,
    tasks: Any,
    key: PRNGKeyArray,
    config: JaxArcConfig,
    steps: int,
    kernels: bool = True,
) -> Played:
    """The compiled loop of `rollout`: the states come and go without their tasks, which `jit` would copy.

    `kernels` says whether they were switched on at the call: only a part of the program's name, so that a switch that is
    turned later makes another program.
    """

    look = lambda states: batch_observe(join_tasks(states, tasks), config)  # noqa: E731

    def step(carry: _Count, key: PRNGKeyArray) -> tuple[_Count, None]:
        # Looked at again, not carried: a loop would hold the packed grid twice and copy it at every step.
        actions = policy(params, look(carry.states), key)
        states, _, reward, done, info = batch_step(join_tasks(carry.states, tasks), actions, config)
        live = ~info["was_over"]
        ended = done & live
        return _Count(
            states=join_tasks(states, None),
            reward=carry.reward + reward,
            episodes=carry.episodes + ended.astype(jnp.int32),
            successes=carry.successes + (info["success"] & ended).astype(jnp.int32),
            steps=carry.steps + live.astype(jnp.int32),
        ), None

    batch = states.height.shape
    zero = jnp.zeros(batch, jnp.int32)
    start = _Count(states, jnp.zeros(batch, jnp.float32), zero, zero, zero)
    end = jax.lax.scan(step, start, jr.split(key, steps))[0]
    return Played(end.states, look(end.states), end.reward, end.episodes, end.successes, end.steps)


class _Count(NamedTuple):
    """What the loop of `play` carries."""

    states: ArcEnvState
    reward: Array
    episodes: Array
    successes: Array
    steps: Array


@dataclasses.dataclass(frozen=True)
class Score:
    """The official score: `outputs_solved` of `outputs` test outputs, each with two attempts.

    `score` is the share of outputs solved; `tasks_solved` counts tasks all of whose outputs are.
    """

    solved: dict[str, tuple[bool, ...]]

    @property
    def outputs(self) -> int:
        """Test outputs asked for."""
        return sum(map(len, self.solved.values()))

    @property
    def outputs_solved(self) -> int:
        """Test outputs that an attempt got right."""
        return sum(map(sum, self.solved.values()))

    @property
    def tasks_solved(self) -> int:
        """Tasks with every test output right."""
        return sum(map(all, self.solved.values()))

    @property
    def score(self) -> float:
        """Share of test outputs solved, from 0 to 1."""
        return self.outputs_solved / self.outputs if self.outputs else 0.0

    def __str__(self) -> str:
        return (
            f"{self.outputs_solved} of {self.outputs} test outputs ({100 * self.score:.1f} %), "
            f"{self.tasks_solved} of {len(self.solved)} tasks"
        )


def evaluate(
    policy: Policy, params: PyTree, tasks: TaskSet, config: JaxArcConfig, key: PRNGKeyArray, attempts: int = 2
) -> Score:
    """Play every test pair of a set of tasks once, with two attempts each, and score the submissions.

    Rewards, attempts and mode of the config are set to the official rules, and an episode stays on its pair: control
    operations are off.
    """
    _demand_answers(tasks)
    config = official(config)
    allowed = config.action.allowed_operations
    if allowed is not None:
        allowed = tuple(one for one in allowed if one <= SUBMIT or one >= FIRST_EXTRA)
    config = replace(
        config,
        environment=replace(config.environment, max_attempts=attempts, autoreset=None, solve="pair"),
        action=replace(config.action, control_operations=False, allowed_operations=allowed),
    )
    pairs = [(task, pair) for task, raw in enumerate(tasks) for pair in range(len(raw.test))]
    key_reset, key_play = jr.split(demand_key(key))
    task, pair = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    states, seen = batch_reset(
        jr.split(key_reset, len(pairs)), config, tasks, initial_pair_idx=pair, task_index=task
    )
    played = rollout(policy, params, states, seen, key_play, config, config.environment.max_episode_steps)
    success = np.asarray(played.states.success)
    return Score(
        {tasks.id_of(i): tuple(bool(s) for s in success[task == i]) for i in np.unique(task).tolist()}
    )


def score_submissions(tasks: TaskSet, submissions: Mapping[str, Sequence[Any]], attempts: int = 2) -> Score:
    """Score answers made elsewhere: for each task id, for each test output, up to two grids.

    An output's attempts are a list of grids, or `{"attempt_1": grid, "attempt_2": grid}` as in Kaggle's file. Grids are
    lists of rows or integer arrays; tasks that are missing count as unsolved.

    ```python
    score_submissions(tasks, {"007bbfb7": [[first_grid, second_grid]]})
    ```
    """
    _demand_answers(tasks)
    known = set(tasks.ids)
    for task_id in submissions:
        if task_id not in known:
            raise KeyError(f"`submissions` must name tasks of `tasks`; it has no {task_id!r}.")
    solved: dict[str, tuple[bool, ...]] = {}
    for raw in tasks:
        if not raw.test:
            continue
        answers = submissions.get(raw.id, [()] * len(raw.test))
        if len(answers) != len(raw.test):
            raise ValueError(
                f"`submissions[{raw.id!r}]` must hold attempts for all {len(raw.test)} test outputs; "
                f"got {len(answers)}."
            )
        tries = [
            _attempts(given, attempts, f"submissions[{raw.id!r}][{at}]") for at, given in enumerate(answers)
        ]
        solved[raw.id] = tuple(
            output is not None and any(np.array_equal(grid, output) for grid in grids)
            for grids, (_, output) in zip(tries, raw.test, strict=True)
        )
    return Score(solved)


def _attempts(given: Any, most: int, place: str) -> list[np.ndarray]:
    """The attempts at one output as arrays; what is no grid is refused by its place."""
    grids = list(given.values() if isinstance(given, Mapping) else given)
    if len(grids) > most:
        raise ValueError(
            f"`{place}` must hold at most {most} attempts; got {len(grids)}. Attempts at one output are a list of grids."
        )
    made = []
    for number, grid in enumerate(grids):
        try:
            cells = np.asarray(grid)
        except ValueError:  # rows of different length
            cells = np.empty(0)
        if cells.ndim != 2 or not np.issubdtype(cells.dtype, np.integer):
            raise ValueError(
                f"`{place}`, attempt {number}, must be a grid: rows of equal length that hold colours 0 to 9; "
                f"got {grid!r:.60}. Attempts at one output are a list of grids."
            )
        made.append(cells)
    return made


def _demand_answers(tasks: TaskSet) -> None:
    """Raise unless every test output is known, for otherwise a score says nothing."""
    if not isinstance(tasks, TaskSet):
        raise TypeError(
            f"`tasks` must be a TaskSet, such as `jaxarc.tasks.load('arc-agi-1')`; got {type(tasks).__name__}."
        )
    outputs = [output for raw in tasks for _, output in raw.test]
    if not outputs:
        raise ValueError("`tasks` must have test pairs to be scored; got none. Load a split that has them.")
    missing = sum(output is None for output in outputs)
    if missing:
        raise ValueError(
            f"`tasks` must know the answers to be scored; {missing} of {len(outputs)} test outputs are missing. "
            "Load the challenges together with their solutions file."
        )

"""The official score: every test pair, two attempts each, by a policy or by answers made elsewhere."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from jaxworlds.arguments import demand_key
from jaxworlds.static import replace

from ..dispatch import batch_reset
from ..envs.config import JaxArcConfig, official
from ..envs.episodes import Policy
from ..tasks.taskset import TaskSet
from .rollout import rollout


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
    config = replace(config, environment=replace(config.environment, max_attempts=attempts, autoreset=None))
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

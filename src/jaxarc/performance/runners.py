"""Whole episodes in one compiled program, for one environment or a batch, with a policy of yours."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from jaxworlds.static import replace

from ..agents.rollout import play_loop
from ..dispatch import batch_observe, batch_reset
from ..envs.config import JaxArcConfig
from ..envs.episodes import Policy
from ..envs.observations import ArcObservation
from ..envs.state import ArcEnvState, copy_tasks, join_tasks
from ..envs.structured_actions import AbstractAction, BboxAction, MaskAction, PointAction
from ..tasks.bank import JaxArcTask, TaskBank, as_bank, demand_fit


def create_optimized_episode_runner(
    config: JaxArcConfig, task: Any, max_steps: int = 50, policy: Policy | None = None
) -> Callable[..., dict[str, Any]]:
    """A function `run_episode(key, policy_params)` that plays one episode without leaving the device.

    It returns `final_state`, `episode_reward` and `episode_length`. An episode ends when the environment says so or
    after `max_steps`; `config.environment.autoreset` is switched off, so `final_state` is its last state. Several keys
    at once play as many episodes: then everything has the batch's axis in front, and `final_state.task_data` is there
    once. `policy` is `(policy_params, observation, key) -> action`; by default `scripted_policy(config)`, which takes
    the guide's steps. Two runners with equal configs and the same policy share one program.

    ```python
    run_episode = create_optimized_episode_runner(config, task, policy=random_policy(config))
    run_episode(jax.random.key(0), None)["episode_length"]
    run_episode(jax.random.split(jax.random.key(0), 64), None)["episode_reward"].shape  # (64,)
    ```
    """
    config, tasks = without_autoreset(config, task)
    policy = scripted_policy(config) if policy is None else policy
    if max_steps < 1:
        raise ValueError(f"`max_steps` must be at least 1; got {max_steps}.")

    def run_episode(key: Array, policy_params: Any = None) -> dict[str, Any]:
        run = run_one if jnp.shape(key) == _key_shape(key) else run_many
        state, reward, length = run(key, policy_params, tasks, config, policy, max_steps)
        return {
            "final_state": join_tasks(state, copy_tasks(tasks)),
            "episode_reward": reward,
            "episode_length": length,
        }

    return run_episode


def scripted_policy(config: JaxArcConfig) -> Policy:
    """The guide's policy: paint one cell after the other in column 5 with colour 0, in the config's format."""
    return eqx.Partial(_scripted_step, config)


def scripted_action(config: JaxArcConfig, step: Int[Array, "*b"] | Int[np.ndarray, "*b"]) -> AbstractAction:
    """The action of `scripted_policy` at a step: rows 5 to 14 in turn, or fewer on a smaller canvas."""
    height, width = config.canvas
    zero = step * 0
    row, col = (step % 10 + 5) % height, zero + 5 % width
    if config.action.selection_format == "point":
        return PointAction(zero, row, col)
    if config.action.selection_format == "bbox":
        return BboxAction(zero, row, col, row, col)
    cells = np.arange(height)[:, None] == row[..., None, None]
    return MaskAction(zero, cells & (np.arange(width) == col[..., None, None]))


def _scripted_step(
    config: JaxArcConfig, policy_params: Any, obs: ArcObservation, key: Array
) -> AbstractAction:
    return scripted_action(config, obs.step_count)


def without_autoreset(config: JaxArcConfig, task: Any) -> tuple[JaxArcConfig, JaxArcTask | TaskBank]:
    """The config without autoreset, and the tasks as states hold them; refused here if they cannot go together."""
    tasks = task if isinstance(task, JaxArcTask) else as_bank(task)
    demand_fit(tasks, *config.canvas)
    rules = config.environment
    if rules.episode_mode == "test" and not np.all(np.asarray(as_bank(tasks).num_test)):
        raise ValueError(
            "`episode_mode='test'` needs test pairs, and a task has none. Select tasks that have them."
        )
    return replace(config, environment=replace(rules, autoreset=None)), tasks


def _key_shape(key: Array) -> tuple[int, ...]:
    """The shape of one key: () of a typed one, one word or more of a raw one."""
    return () if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jnp.shape(key)[-1:]


# The tasks go in as an argument: captured, they would be constants of the program.
@eqx.filter_jit
def run_many(
    keys: Array, policy_params: Any, tasks: Any, config: JaxArcConfig, policy: Policy, max_steps: int
) -> tuple[ArcEnvState, Array, Array]:
    """States at the end (without their tasks), rewards and lengths of an episode for each key."""
    pairs = jax.vmap(jr.split)(keys)
    key_reset, key_policy = pairs[:, 0], pairs[:, 1]
    states, _ = batch_reset(key_reset, config, tasks)

    def choose(states: ArcEnvState, t: Array) -> AbstractAction:
        one = lambda seen, key: policy(policy_params, seen, jr.fold_in(key, t))  # noqa: E731
        return jax.vmap(one)(batch_observe(states, config), key_policy)

    end = play_loop(choose, states, tasks, config, jnp.arange(max_steps), until_over=True)
    return end.states, end.reward, end.steps


@eqx.filter_jit
def run_one(
    key: Array, policy_params: Any, tasks: Any, config: JaxArcConfig, policy: Policy, max_steps: int
) -> tuple[ArcEnvState, Array, Array]:
    """`run_many` of one key, without the batch's axis."""
    many = run_many(key[None], policy_params, tasks, config, policy, max_steps)
    return jax.tree.map(lambda leaf: leaf[0], many)

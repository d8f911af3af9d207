"""Batches: the size that pays, groups of workers, and a size that follows the memory in use."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from jaxworlds.compiling import Compiled, compile_ahead
from jaxworlds.measuring import measure, time_call
from jaxworlds.memory import live_bytes, predict_memory

from ..dispatch import arc_reset, batch_step
from ..envs.config import JaxArcConfig
from ..envs.episodes import Policy
from ..envs.state import ArcEnvState, join_tasks
from ..envs.structured_actions import AbstractAction
from .runners import run_many, scripted_action, scripted_policy, without_autoreset

_GB = 2**30


def find_optimal_batch_size(
    config: JaxArcConfig, task: Any, max_batch_size: int = 1024, target_memory_gb: float | int = 8
) -> tuple[int | None, dict[int, dict[str, float]]]:
    """The batch size with the most steps per second, and for each power of two that was tried what it gave.

    - `throughput`: environment steps per second of `batch_step`, from the median of 10 calls that wait for results.
    - `per_env_time`: its inverse, seconds for the step of one environment.
    - `memory_used_gb`: what a step needs by its compiled program, tasks included, in units of 2³⁰ bytes. A size that
      would need more than `target_memory_gb` is not run, and none beyond it.
    - `efficiency`: the share of the best throughput found, so 1 for the best size. The smallest size that reaches
      `TARGET_BATCH_EFFICIENCY` is the one to take if memory is wanted for other things.
    """
    if max_batch_size < 1:
        raise ValueError(f"`max_batch_size` must be at least 1; got {max_batch_size}.")
    config, tasks = without_autoreset(config, task)
    one = join_tasks(arc_reset(jr.key(42), config, tasks)[0], None)
    found: dict[int, dict[str, float]] = {}
    for size in (2**power for power in range(max_batch_size.bit_length())):
        shapes = jax.tree.map(lambda leaf, n=size: jax.ShapeDtypeStruct((n, *leaf.shape), leaf.dtype), one)
        actions = scripted_action(config, np.zeros(size, np.int32))
        memory = predict_memory(_step, shapes, tasks, actions, config).peak / _GB
        if memory > target_memory_gb:
            print(f"Batch {size}: needs {memory:.3f} GB, over the limit of {target_memory_gb} GB")
            break
        # On the host: on the device every size would compile a program of its own.
        states = jax.tree.map(lambda leaf, n=size: jnp.asarray(np.repeat(np.asarray(leaf)[None], n, 0)), one)
        timing = measure(_step, states, tasks, actions, config, repeats=10, min_seconds=0.0)
        rate = size / timing.median_s
        found[size] = {"throughput": rate, "per_env_time": 1 / rate, "memory_used_gb": memory}
        print(f"Batch {size:4d}: {rate:10,.0f} steps/s, {1e6 / rate:8.2f} µs/step, {memory:.4f} GB")
    if not found:
        return None, {}
    best = max(found, key=lambda size: found[size]["throughput"])
    for row in found.values():
        row["efficiency"] = row["throughput"] / found[best]["throughput"]
    print(f"\nOptimal batch size: {best} ({found[best]['throughput']:,.0f} steps/s)")
    return best, found


@jax.jit
def _step(states: ArcEnvState, tasks: Any, actions: AbstractAction, config: JaxArcConfig) -> Any:
    """`batch_step` as one program that can be asked for its memory; the tasks do not come out again."""
    new, *rest = batch_step(join_tasks(states, tasks), actions, config)
    return join_tasks(new, None), *rest


def hierarchical_batch_processing(
    num_workers: int = 4,
    envs_per_worker: int = 64,
    episodes_per_worker: int = 10,
    config: JaxArcConfig | None = None,
    task: Any = None,
    policy: Policy | None = None,
    policy_params: Any = None,
    max_steps: int = 50,
    key: Array | None = None,
) -> list[Float[Array, " envs"]]:
    """Rewards of `num_workers` × `episodes_per_worker` batches of episodes, each of `envs_per_worker` environments.

    All batches run through one compiled program, one after the other, each with keys of its own. An episode ends
    when the environment says so or after `max_steps`, and only steps that were taken count. `policy` is
    `(policy_params, observation, key) -> action`, by default `scripted_policy(config)`.
    """
    if task is None:
        raise ValueError("`task` must be the task or the tasks to work on; got None.")
    counts = {"num_workers": num_workers, "envs_per_worker": envs_per_worker}
    counts |= {"episodes_per_worker": episodes_per_worker, "max_steps": max_steps}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be at least 1; got {count}.")
    config, tasks = without_autoreset(JaxArcConfig() if config is None else config, task)
    policy = scripted_policy(config) if policy is None else policy
    key = jr.key(42) if key is None else key
    batches = num_workers * episodes_per_worker
    print(f"Processing {batches} batches of {envs_per_worker} episodes, {num_workers} workers")
    rewards, steps = [], 0
    for worker in range(num_workers):
        key_worker = jr.fold_in(key, worker)
        for episode in range(episodes_per_worker):
            keys = jr.split(jr.fold_in(key_worker, episode), envs_per_worker)
            _, reward, length = run_many(keys, policy_params, tasks, config, policy, max_steps)
            rewards.append(reward)
            steps += int(np.sum(length))
        print(f"Worker {worker + 1}/{num_workers} done")
    together = np.concatenate([np.asarray(reward) for reward in rewards])
    print("\nResults:")
    print(f"   Total episodes: {together.size}")
    print(f"   Total environment steps: {steps}")
    print(f"   Mean reward: {together.mean():.3f}")
    print(f"   Std reward: {together.std():.3f}")
    return rewards


class DynamicBatchProcessor:
    """Runs batches of episodes, half as large above 80 % of the memory limit and twice as large below 40 %.

    Sizes come from one ladder, `initial_batch_size` halved down to 1 and doubled up to 512, and each compiles once,
    before its time is taken. Memory is what arrays hold now and the program of the current size needs on top, in
    units of 2³⁰ bytes, on the device that holds most. `performance_history` has a row for each batch: `episode`,
    `batch_size`, `throughput` (environment steps per second) and `memory_gb`.

        processor = DynamicBatchProcessor(config, task, policy=random_policy(config))
        rewards = processor.process_batch(num_episodes=20)
    """

    max_batch_size = 512
    steps_per_episode = 20

    def __init__(
        self,
        config: JaxArcConfig,
        task: Any,
        initial_batch_size: int = 64,
        memory_limit_gb: float | int = 4,
        policy: Policy | None = None,
        policy_params: Any = None,
    ):
        if not 1 <= initial_batch_size <= self.max_batch_size:
            raise ValueError(
                f"`initial_batch_size` must be from 1 to {self.max_batch_size}; got {initial_batch_size}."
            )
        if not memory_limit_gb > 0:
            raise ValueError(f"`memory_limit_gb` must be above 0; got {memory_limit_gb}.")
        self.config, self.task = without_autoreset(config, task)
        self.policy = scripted_policy(self.config) if policy is None else policy
        self.policy_params = policy_params
        self.memory_limit_gb = memory_limit_gb
        self.performance_history: list[dict[str, Any]] = []
        self._sizes = _ladder(initial_batch_size, self.max_batch_size)
        self._at = self._sizes.index(initial_batch_size)
        self._programs: dict[int, Compiled] = {}

    @property
    def current_batch_size(self) -> int:
        """Environments of the next batch, unless memory says otherwise."""
        return self._sizes[self._at]

    def process_batch(self, num_episodes: int = 10) -> list[Float[Array, " envs"]]:
        """Run `num_episodes` batches, all with new keys, and return the rewards of each."""
        rewards = []
        for _ in range(num_episodes):
            self._adapt()
            episode, size = len(self.performance_history), self.current_batch_size
            keys = jr.split(jr.fold_in(jr.key(42), episode), size)
            program, memory = self._program(size), self._memory_gb()
            (_, reward, length), seconds = time_call(program, *self._arguments(keys))
            rate = int(np.sum(length)) / seconds
            row = {"episode": episode, "batch_size": size, "throughput": rate, "memory_gb": memory}
            self.performance_history.append(row)
            rewards.append(reward)
            if episode % 5 == 0:
                said = f"batch_size={size}, throughput={rate:,.0f} steps/s, memory={memory:.3f} GB"
                print(f"Episode {episode}: {said}")
        return rewards

    def _adapt(self) -> None:
        memory = self._memory_gb()
        move = (memory < 0.4 * self.memory_limit_gb) - (memory > 0.8 * self.memory_limit_gb)
        old, self._at = self._at, min(max(self._at + move, 0), len(self._sizes) - 1)
        if self._at != old:
            word = "Increasing" if move > 0 else "Reducing"
            print(f"{word} batch size: {self._sizes[old]} → {self.current_batch_size}")

    def _memory_gb(self) -> float:
        need = self._program(self.current_batch_size).memory
        extra = need.outputs + need.temporaries + need.scratch - need.aliased
        return (max(live_bytes().values(), default=0) + extra) / _GB

    def _program(self, size: int) -> Compiled:
        if size not in self._programs:
            self._programs[size] = compile_ahead(run_many, *self._arguments(jr.split(jr.key(0), size)))
        return self._programs[size]

    def _arguments(self, keys: Array) -> tuple[Any, ...]:
        return keys, self.policy_params, self.task, self.config, self.policy, self.steps_per_episode


def _ladder(start: int, most: int) -> list[int]:
    """`start` halved down to 1 and doubled up to `most`, ascending."""
    sizes = [start]
    while sizes[0] > 1:
        sizes.insert(0, sizes[0] // 2)
    while sizes[-1] < most:
        sizes.append(min(most, 2 * sizes[-1]))
    return sizes

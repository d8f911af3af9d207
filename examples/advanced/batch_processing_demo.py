"""A curriculum on the device: 256 environments draw small puzzles three times as often, and restart by themselves.

All environments share one bank of tasks, which the batch of states holds once: `state_axes` tells `jaxworlds.run` so.
Weights say how often a task is drawn; changing them compiles nothing.
"""

import jax.random as jr
import numpy as np

import jaxarc.tasks
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedActionConfig,
    batch_reset,
    batch_step,
    state_axes,
    state_bytes,
)
from jaxarc.envs.episodes import random_actions
from jaxworlds import run

BATCH, STEPS = 256, 200
CONFIG = JaxArcConfig(
    environment=EnvironmentConfig(max_episode_steps=20, autoreset="task"),
    action=UnifiedActionConfig(selection_format="bbox", history=False),
)


def step(carry, t):
    """One random step of every environment: the new states, and their tasks, ends, successes and rewards."""
    states, key = carry
    actions = random_actions(jr.fold_in(key, t), CONFIG, BATCH)
    states, _, reward, done, info = batch_step(states, actions, CONFIG)
    seen = {"task": info["task_index"], "done": done, "success": info["success"], "reward": reward}
    return (states, key), seen


def main() -> None:
    tasks = jaxarc.tasks.load("arc-agi-1", "training")
    small = np.array([max(max(a.shape + b.shape) for a, b in task.train + task.test) <= 10 for task in tasks])
    print(f"{len(tasks)} tasks, {small.sum()} of them with no side over 10 cells")

    weights = np.where(small, 3.0, 1.0)
    weights[::2] = 0.0  # every second task is kept back, say for a test
    bank = tasks.bank.with_weights(weights)
    print(f"one bank of {bank.nbytes / 1e6:.1f} MB for {BATCH} environments")

    states, _ = batch_reset(jr.split(jr.key(0), BATCH), CONFIG, bank)
    axes = (state_axes(states), None)
    result = run(step, (states, jr.key(1)), STEPS, axes=axes, record_every=1, progress=False)
    print(result)

    seen, done = result.records["task"], result.records["done"]
    assert result.finished
    assert seen.shape == (STEPS, BATCH)
    first = np.asarray(states.task_index)
    drawn = np.concatenate([first, seen[1:][done[:-1]]])  # the task after each end of an episode
    share, expected = small[drawn].mean(), weights[small].sum() / weights.sum()
    print(f"{done.sum()} episodes ended, {drawn.size} tasks drawn, {len(np.unique(drawn))} different ones")
    print(f"small puzzles: {share:.1%} of the draws, {expected:.1%} by their weights")
    assert (drawn % 2 == 1).all(), "a task of weight 0 was drawn"
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / drawn.size)
    print(
        f"random play: {result.records['success'].sum()} solved, mean reward {result.records['reward'].mean():.3f}"
    )

    own = state_bytes(states)
    print(f"{own} bytes per environment")
    assert own < 2_500


if __name__ == "__main__":
    main()

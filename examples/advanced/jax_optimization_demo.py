"""One program for 400 puzzles: compile reset and step once, then play every training task of ARC-AGI-1 with them.

The first calls of `arc_reset` and `arc_step` compile; after that nothing does, whatever the task, the pair or the action,
because tasks are data of one shape and the config is a static value that equals itself.
"""

import time

import jax
import numpy as np

import jaxarc.tasks
from jaxarc.envs import EnvironmentConfig, JaxArcConfig, PointAction, arc_reset, arc_step
from jaxarc.performance import TARGET_STEP_TIME, verify_config_hashability
from jaxworlds import CompileWatch, no_recompile
from jaxworlds.measuring import time_call


def make_config() -> JaxArcConfig:
    return JaxArcConfig(environment=EnvironmentConfig(max_episode_steps=50))


def main() -> None:
    tasks = jaxarc.tasks.load("arc-agi-1", "training")
    print(tasks)
    config = make_config()
    assert verify_config_hashability(config)

    # Equal configs are one program, even if they were written down twice.
    assert make_config() == config
    assert hash(make_config()) == hash(config)

    key = jax.random.key(0)
    print("\nFirst calls compile, second calls only run:")
    (state, _), first_reset = time_call(arc_reset, key, config, tasks, task_index=0)
    _, first_step = time_call(arc_step, state, PointAction(3, 0, 0), config)
    _, reset = time_call(arc_reset, key, make_config(), tasks, task_index=1)
    (state, *_), step = time_call(arc_step, state, PointAction(4, 1, 1), make_config())
    print(f"  arc_reset {first_reset * 1e3:8.1f} ms, then {reset * 1e3:6.2f} ms")
    print(f"  arc_step  {first_step * 1e3:8.1f} ms, then {step * 1e3:6.2f} ms")

    print("\nEvery task, five random steps each, and not one compilation more:")
    draw = np.random.default_rng(0)
    start, steps, similarities = time.perf_counter(), 0, []
    with no_recompile(), CompileWatch() as watch:
        for index in range(len(tasks)):
            state, obs = arc_reset(key, config, tasks, task_index=index)
            height, width = obs.size.tolist()
            for _ in range(5):
                action = PointAction(draw.integers(35), draw.integers(height), draw.integers(width))
                state, _, _, _, info = arc_step(state, action, config)
                steps += 1
            similarities.append(info["similarity"])
    seconds = time.perf_counter() - start
    assert watch.compiles == 0
    print(f"  {len(tasks)} tasks, {steps} steps, {watch.compiles} compilations, {seconds:.2f} s")
    print(
        f"  {seconds / steps * 1e3:.2f} ms per step, resets included (the guide's target: {TARGET_STEP_TIME} ms)"
    )
    print(f"  mean similarity to the answer: {np.mean(jax.device_get(similarities)):.3f}")


if __name__ == "__main__":
    main()

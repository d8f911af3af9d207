"""Six habits that keep a JAX program right and quick, each shown on a batch of ARC environments, each checked."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import jaxarc.tasks
from jaxarc.envs import EnvironmentConfig, JaxArcConfig, PointAction, batch_reset, batch_step
from jaxarc.utils.error_handling import JAXErrorHandler
from jaxworlds import CheckError, checking_on, clear_errors, no_recompile

BATCH = 128
CONFIG = JaxArcConfig(environment=EnvironmentConfig(max_episode_steps=30))
SUBMIT = 34


def paint(row: int, operation: int = 2) -> PointAction:
    return PointAction(np.full(BATCH, operation), np.full(BATCH, row), np.full(BATCH, 0))


def main() -> None:
    tasks = jaxarc.tasks.load("arc-agi-1", "training")

    print("1. Split keys. A key used twice gives the same episode twice.")
    key = jr.key(0)
    same, _ = batch_reset(jnp.repeat(key[None], BATCH, axis=0), CONFIG, tasks)
    states, _ = batch_reset(jr.split(key, BATCH), CONFIG, tasks)
    different = [len(np.unique(np.asarray(found.task_index))) for found in (same, states)]
    print(f"   one key {BATCH} times: {different[0]} task; {BATCH} keys: {different[1]} tasks")
    assert different[0] == 1 < different[1]

    print("2. Warm up, then forbid compiling: a shape that changed by accident shows at once.")
    batch_step(states, paint(0), CONFIG)
    with no_recompile():
        for row in range(1, 5):
            stepped, *_ = batch_step(states, paint(row), CONFIG)

    print("3. Wait before you read the clock: JAX returns before it has computed.")
    jax.block_until_ready(stepped)
    start = time.perf_counter()
    for row in range(20):
        stepped, *_ = batch_step(stepped, paint(row % 10), CONFIG)
    returned = time.perf_counter() - start
    jax.block_until_ready(stepped)
    finished = time.perf_counter() - start
    print(
        f"   20 calls came back after {returned * 1e3:.1f} ms; they were done after {finished * 1e3:.1f} ms"
    )
    print(f"   {20 * BATCH / finished:,.0f} steps per second")
    assert finished >= returned

    print("4. Look at `valid_action`. What cannot be done is ignored, and said.")
    before = np.asarray(states.working_grid)
    after, _, _, _, info = batch_step(states, paint(30), CONFIG)  # row 30 of a canvas of 30
    print(f"   {int(info['valid_action'].sum())} of {BATCH} actions on row 30 were valid")
    assert not info["valid_action"].any()
    np.testing.assert_array_equal(after.working_grid, before)

    print("5. Check where it matters, inside compiled code.")
    with checking_on():
        validate = clear_errors(eqx.filter_jit(JAXErrorHandler.validate_action))
        validate(PointAction(0, 29, 0), CONFIG)
        try:
            validate(PointAction(0, 30, 0), CONFIG)
        except CheckError as error:
            print(f"   {str(error)[:100]} …")
        else:
            raise AssertionError("an action outside of the canvas passed")

    print("6. Tell an end from a limit: bootstrap a value after `truncated`, not after `terminated`.")
    ended, _, _, done, info = batch_step(states, paint(0, SUBMIT), CONFIG)
    assert (info["terminated"] == done).all()
    assert not info["truncated"].any()
    for row in range(30):
        stepped, _, reward, done, info = batch_step(states if row == 0 else stepped, paint(row % 5), CONFIG)
    print(f"   after a submission: terminated; after 30 steps: {int(info['truncated'].sum())} truncated")
    assert info["truncated"].all()
    assert not info["terminated"].any()
    kept, _, reward, done, _ = batch_step(ended, paint(0), CONFIG)  # a finished episode stays as it is
    assert done.all()
    assert not reward.any()
    np.testing.assert_array_equal(kept.working_grid, ended.working_grid)


if __name__ == "__main__":
    main()

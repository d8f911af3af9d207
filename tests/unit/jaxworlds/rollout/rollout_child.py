"""A run for test_rollout_kill.py to kill: `python rollout_child.py FOLDER`."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr

from jaxworlds.rollout import Checkpoint, Rollout, resume, run

LENGTH, CHUNK, STRIDE, WORLDS = 1500, 10, 5, 32


def start() -> tuple[jax.Array, jax.Array]:
    return jnp.linspace(0.1, 0.9, WORLDS), jr.split(jr.key(3), WORLDS)


@jax.vmap
def walk(world: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x, key = world
    key, sub = jr.split(key)
    return jnp.clip(3.9 * x * (1 - x) + 1e-3 * jr.normal(sub), 0.01, 0.99), key


def step(worlds: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    worlds = walk(worlds)
    return worlds, worlds[0]


def whole(folder: Path | None) -> Rollout:
    saving = None if folder is None else Checkpoint(folder, every_seconds=0.0)
    return run(step, start(), LENGTH, chunk=CHUNK, record_every=STRIDE, checkpoint=saving)


def rest(folder: Path) -> Rollout:
    return resume(step, start(), folder)


if __name__ == "__main__":
    whole(Path(sys.argv[1]))

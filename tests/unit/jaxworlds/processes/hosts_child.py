"""A command for test_hosts.py to run on several hosts, to stop and to kill: `hosts_child.py --out found.npz --hosts 2 ...`."""

import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import xla_bridge

from jaxworlds.commands import DistributedCommand, is_first, print_json, run_command
from jaxworlds.processes.exits import code_of
from jaxworlds.rollout import Checkpoint, Rollout, holds_run, resume, run, to_host

CHUNK, WORLDS = 5, 8


def start() -> jax.Array:
    return jnp.arange(WORLDS, dtype=jnp.uint32)


def step(worlds: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A generator of random integers, whose every bit hangs on every step before."""
    worlds = worlds * jnp.uint32(1664525) + jnp.uint32(1013904223)
    return worlds, worlds >> 16


def rest(folder: Path) -> Rollout:
    return resume(step, start(), folder)


@dataclasses.dataclass(frozen=True)
class Walk(DistributedCommand):
    """Walk slowly, and save at every chunk."""

    out: Path
    steps: int = 200
    pause: float = 0.0
    checkpoint: Path | None = None
    resume: bool = False

    def compute(self) -> int:
        saving = None if self.checkpoint is None else Checkpoint(self.checkpoint, every_seconds=0)
        options = {"mesh": self.mesh, "on_chunk": lambda _: time.sleep(self.pause)}
        if self.resume and saving is not None and holds_run(saving):
            found = resume(step, start(), saving, **options)
        else:
            found = run(step, start(), self.steps, chunk=CHUNK, record_every=1, checkpoint=saving, **options)
        carry = to_host(found.carry)
        if is_first():
            np.savez(self.out, carry=carry, records=found.records)
        seen = xla_bridge.CUDA_VISIBLE_DEVICES.value
        print_json({"outcome": found.outcome, "step": found.step, "hosts": jax.process_count(), "gpus": seen})
        return code_of(found.outcome)


if __name__ == "__main__":
    run_command(Walk, "walk", "Walk.")

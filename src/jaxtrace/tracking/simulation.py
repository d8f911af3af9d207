"""Whole runs as one pure function: what gradients go through."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..boundaries.base import AbstractBoundary, Unbounded
from ..fields.base import AbstractField
from ..integrators.base import AbstractIntegrator, AnyKey
from ..motion import Motion
from .particles import Particles, begin, step_particles
from .schedule import Schedule


def simulate(
    field: AbstractField,
    integrator: AbstractIntegrator,
    boundary: AbstractBoundary | None,
    seeds: Float[Array | np.ndarray, "n dim"],
    schedule: Schedule,
    *,
    key: AnyKey | None = None,
    identity: Int[Array | np.ndarray, " n"] | None = None,
    stop_outside: bool = True,
    checkpointed: bool = False,
) -> tuple[Float[Array, "times n dim"], Particles]:
    """Positions at the recorded times of `schedule`, and the particles at its end.

    Pure and differentiable, forward and reverse, with respect to seeds, field values, diffusivity and every other array
    in its arguments; `schedule` (from `plan_schedule`) is fixed. The same steps as a tracker takes. Reverse mode keeps
    every step; `checkpointed=True` keeps the recorded ones and computes the steps between them again. Adaptive
    integrators and mesh walls need their `differentiable=True` for it.

    ```python
    plan = plan_schedule((0.0, 1.0), n_timesteps=11, dt=0.01, particles=len(seeds))

    def miss(seeds):
        positions, _ = simulate(field, RK4(), None, seeds, plan)
        return jnp.sum((positions[-1] - target) ** 2)

    jax.grad(miss)(seeds)
    ```
    """
    points = jnp.asarray(seeds, jnp.result_type(float))
    count = points.shape[0]
    if len(schedule.releases) != count:
        raise ValueError(
            f"`schedule` must be planned for the {count} particles of `seeds`; it is for {len(schedule.releases)}. "
            "Pass particles=len(seeds) to plan_schedule."
        )
    motion = Motion(
        field, integrator, boundary or Unbounded(), jax.random.key(0) if key is None else key, stop_outside
    )
    real = points.dtype
    t, dt = jnp.asarray(schedule.edges, real), jnp.asarray(np.diff(schedule.edges), real)
    numbers = jnp.arange(count, dtype=jnp.int32) if identity is None else jnp.asarray(identity, jnp.int32)
    begun = jnp.asarray(schedule.releases, jnp.int32)
    particles = begin(motion, points, numbers, begun, jnp.asarray(schedule.release_times, real))
    counts = np.diff(schedule.marks)
    most, uneven = int(counts.max()), bool((counts != counts.max()).any())

    def step(particles: Particles, row: Any) -> Particles:
        return step_particles(motion, particles, row, t[row], dt[row])[0]

    def stretch(particles: Particles, bounds: Any) -> tuple[Particles, Any]:
        first, last = bounds

        def one(particles: Particles, offset: Any) -> tuple[Particles, None]:
            row = first + offset
            if not uneven:
                return step(particles, row), None
            # Shorter stretches wait for the longest one; a branch, because a masked step would cost a whole one.
            return jax.lax.cond(row < last, step, lambda particles, _: particles, particles, row), None

        particles, _ = jax.lax.scan(one, particles, jnp.arange(most, dtype=jnp.int32))
        return particles, particles.position

    bounds = jnp.asarray(schedule.marks[:-1], jnp.int32), jnp.asarray(schedule.marks[1:], jnp.int32)
    body = jax.checkpoint(stretch) if checkpointed else stretch
    particles, positions = jax.lax.scan(body, particles, bounds)
    return jnp.concatenate([points[None], positions]), particles

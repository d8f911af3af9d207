"""Programs compiled ahead of any run, for those who want to hold one in their hands."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxworlds.compiling import Compiled, compile_ahead

from .driving import Job, shapes_of
from .particles import step_particles
from .units import Shared, Unit, tables_of


def compiled_step(job: Job) -> Compiled:
    """One step of a batch: `(motion, particles, row, t, dt) -> (particles, hits)`."""
    real = jax.ShapeDtypeStruct((), jnp.result_type(float))
    row = jax.ShapeDtypeStruct((), jnp.int32)
    return compile_ahead(_step, job.motion, shapes_of(job), row, real, real)


def compiled_simulate(job: Job) -> Compiled:
    """The steps up to a recorded time: `(particles, number of the time, shared) -> (particles, record)`."""
    shared = Shared(job.motion, tables_of(job.schedule, job.cutting), job.reduction)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return compile_ahead(_simulate, job.unit, shapes_of(job), number, shared)


_step = eqx.filter_jit(step_particles)


@eqx.filter_jit
def _simulate(unit: Unit, particles: Any, number: Any, shared: Shared) -> Any:
    return unit(particles, number, shared)

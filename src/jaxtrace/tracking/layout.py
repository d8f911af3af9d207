"""The layout of a field's moments: chosen for a kernel, by a rule, or by measuring for about a second."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields.base import AbstractField, Scalar
from ..fields.grid_series import AbstractSeries
from ..fields.moments import Layout
from ..integrators.base import AbstractIntegrator, particle_key
from ..kernels import AbstractKernel
from ..motion import Motion

# Blending pays from this number of particles per row of the grid. On two CPU cores (64³ rows, cubic in time) a particle
# that reads all slices itself takes 0.9 µs for a step, and blending three moments 12 ns for a row; on an H200 1.2 ns and
# 1.7 ns.
_PARTICLES_PER_ROW_CPU, _PARTICLES_PER_ROW = 1 / 60, 1.0
_STEPS = 4


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Which layout was chosen and why; `rates` are measured particle-steps per second, empty where a rule decided."""

    layout: Layout
    reason: str
    rates: dict[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"layout {self.layout!r}: {self.reason}"


def choose_layout(
    motion: Motion, layout: Any, particles: int, tune: Callable[[], Tuning], kernel: AbstractKernel | None
) -> Tuning | None:
    """The `layout` asked for, or for "auto" the best one for `kernel` or XLA; None for a field without slices.

    `motion` has the field as it lies on a device.
    """
    if not isinstance(motion.field, AbstractSeries):
        if layout not in ("auto", "tune"):
            raise ValueError(
                f"`layout` must be 'auto' for a {type(motion.field).__name__}, which holds no slices; got {layout!r}."
            )
        return None
    if layout != "auto":
        return tune() if layout == "tune" else Tuning(layout, "as given")
    if kernel is not None and kernel.refusal(motion.integrator, motion.field, motion.boundary) is None:
        best = kernel.best_layout(motion.field, particles)
        if best is not None:
            return Tuning(*best)
    return ruled_layout(motion.field, motion.integrator, particles)


def layouts_for(field: AbstractField, half: bool = False) -> tuple[Layout, ...]:
    """The layouts a field can have; those in 16 bits only where `half` precision is allowed."""
    if not isinstance(field, AbstractSeries):
        return ("direct",)
    cells: tuple[Layout, ...] = ("cells", "cells16") if half else ("cells",)
    return ("direct", "rows", *(cells if field.grid.packable else ()))


def ruled_layout(field: AbstractField, integrator: AbstractIntegrator, particles: int) -> Tuning:
    """The layout that a rule of thumb picks without measuring; the same for the same sizes on the same backend."""
    if not isinstance(field, AbstractSeries):
        return Tuning("direct", "the field has no slices to blend")
    if integrator.adaptive:
        return Tuning("direct", "adaptive steps have a time of their own for each particle")
    on_cpu = jax.default_backend() == "cpu"
    enough = _PARTICLES_PER_ROW_CPU if on_cpu else _PARTICLES_PER_ROW
    if particles < enough * field.grid.size:
        return Tuning(
            "direct", f"{particles:,} particles read less than blending {field.grid.size:,} rows costs"
        )
    if on_cpu or not field.grid.packable:
        return Tuning("rows", "slices are blended once for all particles")
    return Tuning("cells", "slices are blended once for all particles, corners of a cell side by side")


def tuned_layout(
    field: AbstractField,
    integrator: AbstractIntegrator,
    positions: Float[np.ndarray, "particles dim"] | Float[Array, "particles dim"],
    t: float,
    dt: float,
    *,
    half: bool = False,
    seconds: float = 1.0,
) -> Tuning:
    """The fastest layout for these particles, measured for about `seconds` in all, compilation apart."""
    choices = layouts_for(field, half)
    if len(choices) == 1 or integrator.adaptive:
        return ruled_layout(field, integrator, len(positions))
    assert isinstance(field, AbstractSeries)
    start = jnp.asarray(positions, float)
    span = tuple(jnp.asarray(value, float) for value in (t, dt))
    rates: dict[str, float] = {}
    for layout in choices:
        run = functools.partial(_steps, field.with_layout(layout), integrator, start, *span)
        jax.block_until_ready(run())
        rates[layout] = len(positions) * _STEPS / _best_time(run, seconds / len(choices))
    best = max(rates, key=rates.__getitem__)
    said = ", ".join(f"{name} {rate / 1e6:.1f}" for name, rate in rates.items())
    return Tuning(best, f"measured, million particle-steps/s: {said}", rates)  # pyright: ignore[reportArgumentType]


def _best_time(run: functools.partial[Array], seconds: float) -> float:
    best, end = np.inf, time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        jax.block_until_ready(run())
        now = time.perf_counter()
        best = min(best, now - began)
        if now + best > end:
            return best


@eqx.filter_jit
def _steps(
    field: AbstractField,
    integrator: AbstractIntegrator,
    position: Float[Array, "particles dim"],
    t: Scalar,
    dt: Scalar,
) -> Float[Array, "particles dim"]:
    """A few steps of all particles, without boundary or records."""
    state = jax.vmap(lambda x: integrator.start(field, x, t))(position)
    numbers = jnp.arange(position.shape[0])
    key = jax.random.key(0)

    def step(row: Array, state: object) -> object:
        def one(state: object, number: Array) -> object:
            drawn = particle_key(key, number, row) if integrator.stochastic else None
            # Another time at each step, else the compiler would blend once for all of them.
            return integrator.step(field, state, t + row * dt / _STEPS, dt, drawn)  # pyright: ignore[reportArgumentType]

        return jax.vmap(one)(state, numbers)

    return jax.lax.fori_loop(0, _STEPS, step, state).position


def ring_shapes(stream: Any) -> Any:
    """The shapes of what a streamed field keeps on the device, the smallest ring: what programs are planned with."""
    slots = min(len(stream.times), {"nearest": 1, "linear": 2, "cubic": 4}[stream.time_interpolation])
    return eqx.filter_eval_shape(lambda: stream.empty_ring(slots))

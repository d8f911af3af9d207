"""The Runge–Kutta step on packed cells as one GPU kernel: positions stay in registers, samples are few wide reads.

XLA runs the same step as a dozen kernels that hand positions and velocities on through memory. On an H200 with ten
million particles in a 64³ grid the kernel takes 0.8 ms for a step where XLA takes 2.1 ms, on a mesh of 257,250
tetrahedra 1.2 ms where XLA takes 160 ms (benchmarks/results/nvidia-h200). The XLA path is its twin, to rounding.
"""

import functools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from ..boundaries.base import AbstractBoundary, Unbounded
from ..fields.base import Index, Scalar
from ..fields.grid_series import AbstractSeries
from ..fields.moments import PackedMoment
from ..fields.sphere import Sphere, circles, nearest_turn, place_in_chart
from ..motion import Motion
from .base import KNOWN_GRIDS, AbstractKernel, Block, Causes, KernelState
from .gpu_grid import GridSampler
from .gpu_mesh import MeshSampler

Sampler = GridSampler | MeshSampler
# Particles and warps of a block. A block walks until its slowest particle has arrived: small ones wait less.
_BLOCKS = {GridSampler: (64, 2), MeshSampler: (32, 1)}


class GpuKernel(AbstractKernel):
    """RK4 in open space through Pallas and Triton; interpreted on a CPU, for tests."""

    name = "GPU kernel"
    backend = "gpu"
    reads = ("cells", "cells16")

    def _refusal(self, field: AbstractSeries, boundary: AbstractBoundary) -> str | None:
        if not isinstance(boundary, Unbounded):
            return f"it takes steps in open space, not with {type(boundary).__name__}"
        if max(jnp.result_type(float).itemsize, field.data.dtype.itemsize) > 4:
            return "it computes in single precision"
        if _sampler(field) is None:
            return KNOWN_GRIDS
        if not _pallas_has_triton():
            return f"jax {jax.__version__} no longer builds it"
        return None

    def step(
        self, motion: Motion, before: KernelState, number: Index, t: Scalar, dt: Scalar, causes: Causes
    ) -> tuple[KernelState, Int32[Array, " patches"]]:
        assert isinstance(motion.field, AbstractSeries)
        after = fused_step(
            motion.field,
            before,
            number,
            t,
            dt,
            outside=causes.outside if motion.stop_outside else None,
            not_finite=causes.not_finite,
            interpret=jax.default_backend() == "cpu",
        )
        return after, jnp.zeros(0, jnp.int32)


GPU = GpuKernel()


def _pallas_has_triton() -> bool:
    """Whether this version of jax can build the kernel; the part of it that does may go (jax 0.11 says so)."""
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    return hasattr(triton, "load")


def _sampler(field: AbstractSeries) -> Sampler | None:
    return GridSampler.of(field) or MeshSampler.of(field)


def fused_step(
    field: AbstractSeries,
    before: KernelState,
    number: Index,
    t: Scalar,
    dt: Scalar,
    *,
    outside: int | None,
    not_finite: int,
    interpret: bool = False,
) -> KernelState:
    """RK4 step `number` of all particles that move, from `position + residual`; the others stay as they are.

    The new residual is what rounding keeps from the new position. A particle that the field does not hold stays and ends
    for the cause `outside`; with None it goes on. One whose next place is not finite stays and ends for `not_finite`.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plt

    sampler = _sampler(field)
    assert sampler is not None
    count, dim = before.position.shape
    moments = [cast(PackedMoment, field.in_metres.at(time)) for time in (t, t + 0.5 * dt, t + dt)]
    hints, shape = jax.tree.flatten(before.hint)
    changed = [before.position.reshape(-1), before.residual.reshape(-1), before.ended, before.cause, *hints]
    numbers = jnp.stack([dt, moments[0].scale]).astype(before.position.dtype)
    if field.middle_longitude is not None:
        numbers = jnp.append(numbers, field.middle_longitude.astype(before.position.dtype))
    flags = jnp.stack([number, moments[0].known.astype(jnp.int32)])
    tables = sampler.tables(field)
    values = [moment.values.reshape(-1) for moment in moments]
    size = values[0].size
    if sampler.rolled:
        values = [jnp.concatenate(values)]
    fixed = [before.begun, numbers, flags, *values, *tables]
    block, warps = _BLOCKS[type(sampler)]
    kernel = functools.partial(
        _kernel,
        pallas=(pl.program_id, plt.load, plt.store),
        sampler=sampler,
        sizes=_Sizes(count, dim, block, len(hints), len(values), size, len(tables)),
        outside=outside,
        not_finite=not_finite,
        sphere=field.sphere,
    )
    call = pl.pallas_call(
        kernel,
        grid=(math.ceil(count / block),),
        in_specs=[pl.no_block_spec] * (len(changed) + len(fixed)),
        out_specs=[pl.no_block_spec] * len(changed),
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in changed],
        input_output_aliases={k: k for k in range(len(changed))},
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )
    moved, kept, ended, cause, *ahead = call(*changed, *fixed)
    return before._replace(
        position=moved.reshape(count, dim),
        residual=kept.reshape(count, dim),
        hint=jax.tree.unflatten(shape, ahead),
        ended=ended,
        cause=cause,
    )


class _Sizes(NamedTuple):
    particles: int
    dim: int
    block: int
    hints: int
    moments: int
    """How many arrays hold the three moments."""
    moment: int
    """Numbers of one moment."""
    tables: int


class _Stage(NamedTuple):
    """A Runge–Kutta step after one of its samples."""

    slope: list[Array]
    total: list[Array]
    held: Array
    """1 where the field held the particle at the beginning."""
    hint: list[Array]


# Of each sample: the share of the step that lies before it, its weight in the sum, and its moment.
_STAGES = ((0.0, 1.0, 0), (0.5, 2.0, 1), (0.5, 2.0, 1), (1.0, 1.0, 2))


def _kernel(
    *refs: Any,
    pallas: tuple[Any, Any, Any],
    sampler: Sampler,
    sizes: _Sizes,
    outside: int | None,
    not_finite: int,
    sphere: Sphere | None,
) -> None:
    """One block of particles. Outputs lie where the inputs of the same meaning lie: only what changes is written."""
    program, load, store = pallas
    dim, size = sizes.dim, sizes.block
    given = iter(refs)
    position, rest, ended, _, *hints = (next(given) for _ in range(4 + sizes.hints))
    begun, numbers, flags, *moments = (next(given) for _ in range(3 + sizes.moments))
    tables = [next(given) for _ in range(sizes.tables)]
    moved, kept, new_ended, new_cause, *new_hints = given
    lanes = program(0) * size + jnp.arange(size)
    here = lanes < sizes.particles
    block = Block(lanes, here, load)
    row, known = flags[0], flags[1] != 0
    moving = here & (load(begun.at[lanes], mask=here, other=0) <= row)
    moving = moving & (row < load(ended.at[lanes], mask=here, other=0))
    x = [load(position.at[lanes * dim + axis], mask=here, other=0.0) for axis in range(dim)]
    low = [load(rest.at[lanes * dim + axis], mask=here, other=0.0) for axis in range(dim)]
    dt, scale = numbers[0], numbers[1]
    middle = None if sphere is None else circles(x[1], sphere.equator)
    if sphere is not None and middle is not None:
        # What is added to positions is in metres, in the charts around them.
        degree = sphere.metres_per_degree
        low[:2] = low[0] * (degree * middle.cos), low[1] * degree
    hint = [load(one.at[lanes], mask=here, other=0) for one in hints]
    still = [jnp.zeros_like(one) for one in low]
    begin = _Stage(still, still, here.astype(jnp.int32), hint)

    def stage(number: Any, ahead: Any, counts: Any, values: Any, base: Any, before: _Stage) -> _Stage:
        """One of the four samples: at `ahead` times the slope before it, weighing `counts` in the sum."""
        way = [b + ahead * k for b, k in zip(low, before.slope, strict=True)]
        east = None
        if sphere is not None and middle is not None:
            *way[:2], east = place_in_chart(middle, way[0], way[1], sphere.radius)
        at = [a + b for a, b in zip(x, way, strict=True)]
        if sphere is not None:
            at[0] = nearest_turn(at[0], numbers[2])
        velocity, inside, hint = sampler.sample(block, tables, values, base, at, before.hint)
        slope = [scale * one for one in velocity]
        if east is not None:
            u, v = slope[:2]
            slope[:2] = east[0] * u - east[1] * v, east[1] * u + east[0] * v
        total = [a + counts * b for a, b in zip(before.total, slope, strict=True)]
        return _Stage(slope, total, jnp.where((number == 0) & ~inside, 0, before.held), hint)

    if sampler.rolled:  # a quarter of the code: compiling the walk four times takes a minute

        def loop_stage(number: Any, before: _Stage) -> _Stage:
            moment = (number + 1) // 2
            place = moment.astype(dt.dtype)  # no selection among scalars: Triton's lowering of it fails
            ahead, counts = 0.5 * dt * place, 1.0 + place * (2.0 - place)
            return stage(number, ahead, counts, moments[0], moment * sizes.moment, before)

        last = jax.lax.fori_loop(0, 4, loop_stage, begin)
    else:
        last = begin
        for number, (share, counts, moment) in enumerate(_STAGES):
            last = stage(number, share * dt, counts, moments[moment], 0, last)
    goes = moving
    if outside is not None:
        held = (last.held == 1) & known
        goes, lost = moving & held, moving & ~held
        store(new_ended.at[lanes], jnp.broadcast_to(row, lanes.shape), mask=lost)
        store(new_cause.at[lanes], jnp.full(lanes.shape, outside, jnp.int32), mask=lost)
    ways = [a + (dt / 6) * b for a, b in zip(low, last.total, strict=True)]
    if sphere is not None and middle is not None:
        *ways[:2], _ = place_in_chart(middle, ways[0], ways[1], sphere.radius)
    ends = [a + b for a, b in zip(x, ways, strict=True)]
    finite = here
    for end in ends:
        finite = finite & (end - end == 0)  # False for NaN and infinities
    goes, broken = goes & finite, goes & ~finite
    store(new_ended.at[lanes], jnp.broadcast_to(row, lanes.shape), mask=broken)
    store(new_cause.at[lanes], jnp.full(lanes.shape, not_finite, jnp.int32), mask=broken)
    for axis, (way, new) in enumerate(zip(ways, ends, strict=True)):
        store(moved.at[lanes * dim + axis], new, mask=goes)
        store(kept.at[lanes * dim + axis], way - (new - x[axis]), mask=goes)
    for new_hint, one in zip(new_hints, last.hint, strict=True):
        store(new_hint.at[lanes], one, mask=goes)

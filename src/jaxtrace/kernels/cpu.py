"""A step of RK4 on a CPU as one kernel in C++: samples, walls and the ends of particles, each particle with real branches.

XLA computes a step as a dozen loops over all particles, with a wall's rare work done for everybody. Its program is the
kernel's twin, to rounding, and takes over where the kernel does not know the field or the walls, for derivatives
(`simulate`), and where there is no C++ compiler. `JAXTRACE_KERNELS=off` leaves everything to XLA. Over a mesh each device
calls the kernel with the particles it holds (`jaxworlds.batching.on_each_device`).
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from jaxworlds.kernels import kernel_origin, kernel_targets, switched_on

from ..boundaries.base import AbstractBoundary, Unbounded
from ..boundaries.box import FACES, Box
from ..boundaries.mesh import BEHAVIOURS, MeshWalls
from ..boundaries.reinjection import InletBoundary, Ranks
from ..fields.base import AbstractGrid, Index, Scalar
from ..fields.grid_series import AbstractSeries
from ..fields.meshes.search import SimplexSearch
from ..fields.moments import BlendedMoment, Layout
from ..fields.structured import UniformGrid
from ..fields.unstructured import UnstructuredGrid
from ..motion import Motion
from .base import KNOWN_GRIDS, AbstractKernel, Causes, KernelState

SWITCH = "JAXTRACE_KERNELS"
SOURCE = Path(__file__).with_name("native.cc")
_SLICES = {"nearest": 1, "linear": 2, "cubic": 4}
_MOST_PATCHES = 64
_NO_WALLS, _BOX, _MESH = range(3)
# Blending pays from this number of particles per row of the grid, by the slices that count. On two CPU cores (64³ rows) it
# takes 30 ns for a row, and a step of a particle that reads four slices 40 ns longer than of one that reads blended rows.
_PARTICLES_PER_ROW = {1: np.inf, 2: 6.0, 4: 0.75}


def library(on_sphere: bool = False) -> dict[str, str] | None:
    """The names under which XLA knows the compiled functions; None where there are none, or they are switched off."""
    if not switched_on(SWITCH) or jax.default_backend() != "cpu":
        return None
    return kernel_targets(SOURCE, ("jaxtrace_step", "jaxtrace_rank"), "jaxtrace", macros(on_sphere))


def macros(on_sphere: bool) -> tuple[str, ...]:
    """What the C++ compiler is told: the steps on a sphere are a library of their own."""
    return ("JAXTRACE_SPHERE",) if on_sphere else ()


class CpuKernel(AbstractKernel):
    """RK4 in C++, from the wheel or compiled once for each machine."""

    name = "C++ kernel"
    backend = "cpu"
    reads = ("direct", "rows")

    def _refusal(self, field: AbstractSeries, boundary: AbstractBoundary) -> str | None:
        if not _knows_grid(field.grid):
            return KNOWN_GRIDS
        if not _knows_walls(boundary, field.grid):
            return f"it knows boxes, walls of the field's mesh, and inlets among them, not {type(boundary).__name__}"
        if not switched_on(SWITCH):
            return f"{SWITCH}=off"
        if library(field.sphere is not None) is None:
            return "there is no C++ compiler that builds it, see `jaxworlds doctor`"
        return None

    def words(self, field: Any) -> str:
        return f"{self.name}, {kernel_origin(SOURCE, macros(field.sphere is not None))}"

    def layouts(self, field: AbstractSeries) -> tuple[Layout, ...]:
        """Those whose values are as wide as positions are."""
        wanted: dict[Layout, Any] = {"direct": field.data.dtype, "rows": field.clock.coordinates.dtype}
        return tuple(layout for layout, dtype in wanted.items() if dtype == _real())

    def best_layout(self, field: AbstractSeries, particles: int) -> tuple[Layout, str] | None:
        """Blended rows where there are enough particles for each row of the grid."""
        choices = self.layouts(field)
        if not choices:
            return None
        slices = 1 if field.clock.count == 1 else _SLICES[field.time_interpolation]
        enough = particles >= _PARTICLES_PER_ROW[slices] * field.grid.size
        if "direct" in choices and not ("rows" in choices and enough):
            return "direct", "the kernel reads the slices that count"
        return "rows", "slices are blended once for all particles"

    def step(
        self, motion: Motion, before: KernelState, number: Index, t: Scalar, dt: Scalar, causes: Causes
    ) -> tuple[KernelState, Int32[Array, " patches"]]:
        field, boundary = motion.field, motion.boundary
        assert isinstance(field, AbstractSeries)
        sphere = field.sphere
        known = library(sphere is not None)
        if known is None:
            raise RuntimeError(
                f"The kernel of this run is gone: `{SWITCH}` must stay as it was when the run was planned."
            )
        walls = boundary.walls if isinstance(boundary, InletBoundary) else boundary
        kind = _BOX if isinstance(walls, Box) else _MESH if isinstance(walls, MeshWalls) else _NO_WALLS
        real = before.position.dtype
        values, slices, weights, count = _moments(field, [t, t + 0.5 * dt, t + dt])
        on_mesh = isinstance(field.grid, UnstructuredGrid)
        call = _Call(
            [int(on_mesh), count, int(motion.stop_outside), *causes, kind], [*values], sphere is not None
        )
        if sphere is not None:
            call.tables.append(
                jnp.stack([sphere.radius, sphere.equator, field.grid.middle[0]]).astype(_real())
            )
        call.grid(field.grid)
        call.walls(walls)
        numbers = jnp.stack([dt, *weights]).astype(real)
        integers = jnp.stack([number, field.knows(jnp.asarray(t, field.times.dtype)), *slices]).astype(
            jnp.int32
        )
        shares = jnp.zeros(0, real) if before.share is None else before.share
        hints = before.hint if on_mesh else jnp.zeros(0, jnp.int32)
        changed = [before.position, before.residual, before.ended, before.cause, shares, hints]
        patches = jax.ShapeDtypeStruct((len(boundary.patches),), jnp.int32)
        shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in changed]
        fixed = [before.begun, numbers, integers, jnp.asarray(np.asarray(call.plan, np.int32)), *call.tables]
        kept = {k: k for k in range(len(changed))}
        target = jax.ffi.ffi_call(known["jaxtrace_step"], [*shapes, patches], input_output_aliases=kept)
        position, residual, ended, cause, share, hint, hits = target(*changed, *fixed)
        after = before._replace(
            position=position,
            residual=residual,
            ended=ended,
            cause=cause,
            share=None if before.share is None else share,
            hint=hint if on_mesh else before.hint,
        )
        return after, hits

    def ranks(self) -> Ranks:
        """Also in the order of the slots' numbers where particles are sorted in space."""
        return free_ranks


CPU = CpuKernel()


def _real() -> Any:
    return jnp.zeros((), float).dtype


def _knows_grid(grid: AbstractGrid) -> bool:
    if grid.dim not in (2, 3) or grid.size >= 2**31:
        return False
    if isinstance(grid, UniformGrid):
        return grid.layout.packable and grid.layout.plain
    return isinstance(grid, UnstructuredGrid) and grid.packable and _knows_search(grid)


def _knows_search(grid: UnstructuredGrid) -> bool:
    return grid.owner is None and grid.search.box.dtype == _real() and grid.search.rows.shape[0] < 2**30


def _knows_walls(boundary: AbstractBoundary, grid: AbstractGrid) -> bool:
    if isinstance(boundary, InletBoundary):
        return _knows_walls(boundary.walls, grid)
    if isinstance(boundary, MeshWalls):
        few = len(boundary.patches) <= _MOST_PATCHES and boundary.grid.dim == grid.dim
        return few and isinstance(grid, UnstructuredGrid) and _knows_search(boundary.grid)
    if isinstance(boundary, Box):
        return len(boundary.faces) == grid.dim
    return isinstance(boundary, Unbounded)


@dataclasses.dataclass
class _Call:
    """The kernel's arguments besides the particles: tables, and whole numbers known at trace time."""

    plan: list[int]
    tables: list[Array]
    on_sphere: bool

    def search(self, search: SimplexSearch) -> None:
        self.tables += [search.rows, search.clear, search.frame, search.bin_first, search.bin_members]
        self.plan += [search.max_walk, *search.bin_shape]

    def grid(self, grid: AbstractGrid) -> None:
        if isinstance(grid, UniformGrid):
            self.tables.append(jnp.concatenate([grid.origin, grid.spacing]).astype(_real()))
            self.plan += [*grid.layout.shape, *grid.layout.order]
        else:
            assert isinstance(grid, UnstructuredGrid)
            self.search(grid.search)
            self.tables.append(grid.nodes)

    def walls(self, boundary: AbstractBoundary) -> None:
        if isinstance(boundary, Box):
            self.tables.append(jnp.concatenate([boundary.low, boundary.high]).astype(_real()))
            self.plan += [FACES.index(face) for pair in boundary.faces for face in pair]
        elif isinstance(boundary, MeshWalls):
            self.search(boundary.grid.search)
            self.tables.append(boundary.balls.astype(_real()))
            if self.on_sphere:  # NaN where the walls know no turns
                middle = jnp.nan if boundary.grid.sphere is None else boundary.grid.middle[0]
                self.tables.append(jnp.stack([middle]).astype(_real()))
            self.plan += [boundary.crossings, *map(BEHAVIOURS.index, boundary.behaviour)]


def free_ranks(free: Bool[Array, " n"], number: Int32[Array, " n"]) -> tuple[Array, Array]:
    """The place of each free slot among all free ones by their numbers, from 1 on; and how many there are."""
    known = library()
    assert known is not None
    shapes = [jax.ShapeDtypeStruct(number.shape, jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)]
    rank, count = jax.ffi.ffi_call(known["jaxtrace_rank"], shapes)(free, number)
    return rank, count


def _moments(field: AbstractSeries, times: list[Scalar]) -> tuple[list[Array], list[Array], list[Array], int]:
    """For three times the arrays to read, four places in each and their weights, and how many of the four count."""
    if field.layout == "rows":
        moments = [field.in_metres.at(time) for time in times]
        values = [moment.values for moment in moments if isinstance(moment, BlendedMoment)]
        one, none = jnp.ones((), _real()), jnp.zeros((), _real())
        return values, [jnp.int32(0)] * 12, [one, none, none, none] * 3, 1
    slices: list[Array] = []
    weights: list[Array] = []
    count = 1
    for time in times:
        some, parts = field.time_stencil(jnp.asarray(time, field.times.dtype))
        count = len(some)
        slices += [*some, *[some[0]] * (4 - count)]
        weights += [*parts, *[jnp.zeros_like(parts[0])] * (4 - count)]
    return [field.data] * 3, slices, weights, count

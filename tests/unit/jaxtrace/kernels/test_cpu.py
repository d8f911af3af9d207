"""The CPU kernel beside XLA's code: the same paths to rounding; and where it is not to be used, XLA's code alone."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import Delaunay

from jaxtrace.boundaries import mesh_walls
from jaxtrace.fields import Mesh, TimeSeriesField, UniformGrid, UnstructuredGrid
from jaxtrace.integrators import RK4
from jaxtrace.kernels.cpu import library
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import (
    box_boundary,
    continuous_inlet_boundary_factory,
    inlet_outlet_boundary_factory,
)
from jaxtrace.tracking.driver import compiled_step
from jaxtrace.tracking.driver import start as begun
from jaxtrace.tracking.plan import plan_run
from jaxtrace.tracking.schedule import plan_schedule
from jaxtrace.tracking.simulation import simulate
from jaxworlds.kernels import native as core

pytestmark = [
    pytest.mark.usefixtures("quick_compile"),
    # Kernel and XLA must agree about seeds outside the field as well.
    pytest.mark.filterwarnings("ignore:`initial_positions` must lie in the field"),
]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"
)
TIMES = np.linspace(0, 1, 5)
# Positions of about 1 after 20 steps: kernel and XLA round sums and products in another order.
ROUNDING = 2e-6


def values(points: np.ndarray) -> np.ndarray:
    """A swirl that turns with time and leaves the unit box on some sides."""
    x, y = points[:, 0] - 0.5, points[:, 1] - 0.5
    rest = [0.3 * np.sin(5 * points[:, 0] * points[:, -1])] * (points.shape[1] - 2)
    return np.stack([np.stack([-2 * y + t * x, 2 * x + t * y, *rest], -1) for t in TIMES]).astype(np.float32)


def box_field(dim: int, **options: Any) -> TimeSeriesField:
    shape = (6, 5, 7)[:dim]
    order = options.pop("order", "C")
    grid = UniformGrid(np.zeros(dim), 1 / (np.array(shape) - 1.0), shape, order=order)
    return TimeSeriesField(values(np.asarray(grid.positions)), TIMES, grid=grid, **options)


def mesh_field(dim: int, **options: Any) -> TimeSeriesField:
    axes = np.meshgrid(*[np.linspace(0, 1, 5)] * dim, indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], -1)
    points += np.random.default_rng(0).uniform(-0.05, 0.05, points.shape) * ((points > 0) & (points < 1))
    cells = Delaunay(points).simplices
    corners = points[cells]
    cells = cells[np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) > 1e-7]  # flat ones on the faces
    sides = {
        f"{'xy'[axis]}_{end}": lambda middle, axis=axis, place=place: np.abs(middle[:, axis] - place) < 1e-6
        for axis in (0, 1)
        for end, place in (("min", 0.0), ("max", 1.0))
    }
    mesh = Mesh(points, {"triangle" if dim == 2 else "tetra": cells.astype(int)}, sides)
    return TimeSeriesField(values(points), TIMES, grid=UnstructuredGrid(mesh), **options)


def seeds(dim: int, count: int = 700) -> np.ndarray:
    """Points inside, on faces and corners, just beyond them and far away."""
    found = np.random.default_rng(1).uniform(0, 1, (count, dim)).astype(np.float32)
    found[:40, 0], found[40:60], found[60:80], found[80:90] = 1.0, 1.0, 0.0, 1.0 + 1e-7
    found[90:100], found[100:110] = -1e-3, 7.0
    return found


def runs(field: Any, walls: Any, start: np.ndarray, **options: Any) -> list[Any]:
    """The same run by the kernel and by XLA; half of the particles come later."""
    found = []
    for fused in (True, False):
        tracker = create_tracker(field=field, boundary_condition=walls, fused=fused, **options)
        late = np.where(np.arange(len(start)) % 2, 0.3, 0.0)
        found.append(tracker.track_particles(start, (0.0, 1.0), 3, 0.05, release_times=late, progress=False))
    return found


def assert_alike(kernel: Any, xla: Any) -> None:
    np.testing.assert_array_equal(kernel.alive, xla.alive)
    np.testing.assert_array_equal(kernel.outcomes, xla.outcomes)
    np.testing.assert_allclose(kernel.end_times, xla.end_times, atol=ROUNDING)
    assert kernel.patch_counts == xla.patch_counts
    np.testing.assert_allclose(kernel.positions, xla.positions, atol=ROUNDING)


@needs_compiler
@pytest.mark.parametrize(
    ("dim", "options"),
    [
        (2, {"time_interpolation": "linear"}),
        (2, {"layout": "rows", "order": "F"}),
        (3, {"time_interpolation": "linear", "order": (1, 2, 0)}),
        (3, {}),
        (3, {"layout": "rows"}),
        (3, {"extrapolation": "outside", "time_interpolation": "nearest"}),
    ],
)
def test_grids(dim: int, options: dict[str, Any]) -> None:
    field = box_field(dim, **options)
    given = {"layout": "rows"} if options.get("layout") else {"layout": "direct"}
    kernel, xla = runs(field, None, seeds(dim), **given)
    assert_alike(kernel, xla)
    assert 50 < kernel.alive[-1].sum() < 650  # some have left the box


@needs_compiler
@pytest.mark.parametrize(("dim", "walled"), [(2, False), (3, True)])
def test_meshes_and_their_walls(dim: int, walled: bool) -> None:
    field = mesh_field(dim)
    rules = {"x_min": "stick", "x_max": "bounce", "y_min": "slip", "y_max": "absorb", "boundary": "bounce"}
    assert isinstance(field.grid, UnstructuredGrid)
    walls = mesh_walls(field.grid, rules) if walled else None
    kernel, xla = runs(field, walls, seeds(dim, 300), layout="direct")
    assert_alike(kernel, xla)
    assert not walled or min(kernel.patch_counts.values()) > 5


@needs_compiler
def test_hanging_faces_are_looked_up_in_bins() -> None:
    """Two cells beside four smaller ones: walks end at the faces between them, nobody is lost."""
    coarse = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
    fine = np.array([[1, 0], [2, 0], [2, 0.5], [1, 0.5], [2, 1], [1, 1]], float)
    cells = np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7], [7, 6, 8], [7, 8, 9]])
    grid = UnstructuredGrid(Mesh(np.concatenate([coarse, fine]), {"triangle": cells}))
    flow = np.broadcast_to(np.array([1.0, 0.0], np.float32), (2, 10, 2))
    field = TimeSeriesField(flow, [0.0, 1.0], grid=grid)
    start = np.stack([np.full(50, 0.5), np.linspace(0.01, 0.99, 50)], -1).astype(np.float32)
    kernel, xla = runs(field, None, start, layout="direct")
    assert_alike(kernel, xla)
    assert kernel.alive[-1].all()


BOX = [[0.2, 0.2, 0.2], [0.8, 0.7, 0.8]]


@needs_compiler
@pytest.mark.parametrize(
    "faces",
    ["periodic", "reflective", "clamping", "absorbing", "open", "mixed", "inlet", "rate"],
)
def test_box_walls(faces: str) -> None:
    mixed = ["periodic", ("reflective", "absorbing"), ("clamping", "open")]
    if faces == "inlet":
        walls: Any = continuous_inlet_boundary_factory(BOX)
    elif faces == "rate":
        walls = inlet_outlet_boundary_factory(BOX, rate=300.0)
    else:
        walls = box_boundary(BOX, mixed if faces == "mixed" else faces)
    low, high = np.asarray(BOX, np.float32)
    start = low + np.random.default_rng(1).uniform(0, 1, (500, 3)).astype(np.float32) * (high - low)
    kernel, xla = runs(box_field(3), walls, start, layout="direct")
    assert_alike(kernel, xla)
    assert sum(kernel.patch_counts.values()) > 50
    if faces == "rate":  # who is born where does not depend on how particles are sorted
        again = create_tracker(field=box_field(3), boundary_condition=walls, sort_every=4, layout="direct")
        late = np.where(np.arange(500) % 2, 0.3, 0.0)
        found = again.track_particles(start, (0.0, 1.0), 3, 0.05, release_times=late, progress=False)
        np.testing.assert_array_equal(found.positions, kernel.positions)
        np.testing.assert_array_equal(found.generation, xla.generation)


@needs_compiler
def test_a_nan_ends_a_particle_and_no_other() -> None:
    for field in (box_field(3), mesh_field(2)):
        start = seeds(field.dim, 200)
        tracker = create_tracker(field=field, layout="direct", fused=True)
        plan = plan_schedule((0.0, 1.0), 3, 0.05, particles=200)
        job, _ = plan_run(tracker.options, start, plan)
        step = compiled_step(job)
        particles = begun(job, job.motion, 0, 200)
        broken = particles.position.at[7, 1].set(jnp.nan)
        particles = dataclasses.replace(particles, position=broken)
        found, _ = step(job.motion, particles, jnp.int32(0), jnp.float32(0), jnp.float32(0.05))
        assert int(found.ended[7]) == 0
        assert int(found.cause[7]) == -2
        assert np.isfinite(np.delete(np.asarray(found.position), 7, 0)).all()


@needs_compiler
def test_many_particles_are_shared_among_threads() -> None:
    """A particle's path does not depend on how many there are."""
    few = seeds(3, 150)
    tracker = create_tracker(field=box_field(3), layout="direct", fused=True, sort_every=0)
    alone = tracker.track_particles(few, (0.0, 1.0), 3, 0.05, progress=False).positions
    many = tracker.track_particles(np.tile(few, (40, 1)), (0.0, 1.0), 3, 0.05, progress=False).positions
    assert many is not None
    np.testing.assert_array_equal(many.reshape(3, 40, 150, 3), np.asarray(alone)[:, None].repeat(40, 1))


@needs_compiler
def test_double_precision() -> None:
    with jax.enable_x64(True):
        field = box_field(3, dtype=np.float64)
        kernel, xla = runs(field, None, seeds(3).astype(np.float64), layout="direct")
        np.testing.assert_allclose(kernel.positions, xla.positions, atol=1e-14)
        np.testing.assert_array_equal(kernel.alive, xla.alive)


def test_derivatives_take_the_other_path() -> None:
    """`simulate` is XLA's code with or without a compiler, so gradients are there."""
    plan = plan_schedule((0.0, 0.1), 2, 0.05, particles=3)
    start = jnp.asarray(seeds(2)[200:203])
    field = box_field(2)

    def where(start: jax.Array) -> jax.Array:
        return simulate(field, RK4(), None, start, plan)[0][-1].sum()

    slope = jax.grad(where)(start)
    nudged = start.at[0, 0].add(1e-2)
    assert float(slope[0, 0]) == pytest.approx(float((where(nudged) - where(start)) / 1e-2), rel=0.05)


def uses_kernel(**options: Any) -> bool:
    return create_tracker(field=box_field(2), **options).explain(100, 3, time_span=(0.0, 1.0)).fused


@needs_compiler
def test_who_takes_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses_kernel()
    assert not uses_kernel(fused=False)
    assert not uses_kernel(integrator_name="euler")
    monkeypatch.setenv("JAXTRACE_KERNELS", "off")
    assert not uses_kernel()
    monkeypatch.setenv("JAXTRACE_KERNELS", "yes")
    with pytest.raises(ValueError, match="'auto' or 'off'; got 'yes'"):
        uses_kernel()


def test_without_a_compiler_xla_does_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAXWORLDS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setattr(core, "_missing", {})  # or later tests would be warned of kernels that are there
    core._register.cache_clear()
    try:
        assert library() is None
        assert not uses_kernel()
    finally:
        core._register.cache_clear()


@needs_compiler
def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the library in the cache a new process needs no compiler."""
    assert library() is not None
    monkeypatch.setenv("CXX", "/nowhere/c++")
    core._register.cache_clear()
    assert library() is not None

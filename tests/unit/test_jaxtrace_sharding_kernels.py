"""Kernels and sorting over devices: each steps and sorts its own particles, and the paths have the bits of one device."""

import dataclasses
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.spatial import Delaunay

from jaxtrace.fields import TimeSeriesField, UniformGrid
from jaxtrace.fields.streaming import StreamedField
from jaxtrace.fields.unstructured import Mesh, UnstructuredGrid
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import box_boundary, inlet_outlet_boundary_factory
from jaxtrace.tracking.driving import in_order, start
from jaxtrace.tracking.particles import axes_of
from jaxtrace.tracking.preparing import prepare
from jaxtrace.tracking.reductions import histogram
from jaxtrace.tracking.units import Shared, tables_of
from jaxtrace.tracking.walls import mesh_walls
from jaxworlds import no_recompile, world_mesh
from jaxworlds._chunk import advance
from jaxworlds.checkpoints import Checkpoint, ResumeWarning
from jaxworlds.rollout import _Driver

pytestmark = [
    pytest.mark.usefixtures("quick_compile"),
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler, no kernel"
    ),
]
TIMES = np.linspace(0, 1, 5)
BOX = [[0.2, 0.2, 0.2], [0.8, 0.7, 0.8]]
SHAPE = (6, 5, 7)
COUNT = 91  # filled up to a multiple of the devices


def values(points: np.ndarray) -> np.ndarray:
    """A swirl that turns with time and leaves the unit box on some sides."""
    x, y = points[:, 0] - 0.5, points[:, 1] - 0.5
    rest = [0.3 * np.sin(5 * points[:, 0] * points[:, -1])] * (points.shape[1] - 2)
    return np.stack([np.stack([-2 * y + t * x, 2 * x + t * y, *rest], -1) for t in TIMES]).astype(np.float32)


def grid() -> UniformGrid:
    return UniformGrid(np.zeros(3), 1 / (np.array(SHAPE) - 1.0), SHAPE)


def field(**options: Any) -> TimeSeriesField:
    return TimeSeriesField(values(np.asarray(grid().positions)), TIMES, grid=grid(), **options)


def triangles() -> TimeSeriesField:
    points = np.stack([axis.ravel() for axis in np.meshgrid(*[np.linspace(0, 1, 5)] * 2, indexing="ij")], -1)
    mesh = Mesh(points, {"triangle": Delaunay(points).simplices.astype(int)})
    return TimeSeriesField(values(points), TIMES, grid=UnstructuredGrid(mesh))


def seeds(dim: int = 3, count: int = COUNT) -> np.ndarray:
    low, high = np.asarray(BOX, np.float32)[:, :dim]
    return low + np.random.default_rng(1).uniform(0, 1, (count, dim)).astype(np.float32) * (high - low)


def ran(mesh: Any, start: np.ndarray, span: tuple[float, float] = (0.0, 1.0), **options: Any) -> Any:
    tracker = create_tracker(mesh=mesh, **options)
    late = np.where(np.arange(len(start)) % 2, 0.3, 0.0)
    return tracker.track_particles(start, span, 5, 0.05, release_times=late, progress=False)


def assert_same(spread: Any, alone: Any) -> None:
    np.testing.assert_array_equal(spread.positions, alone.positions)
    np.testing.assert_array_equal(spread.alive, alone.alive)
    np.testing.assert_array_equal(spread.outcomes, alone.outcomes)
    np.testing.assert_array_equal(spread.patches, alone.patches)
    assert spread.patch_counts == alone.patch_counts


def walls_of(name: str) -> dict[str, Any]:
    if name == "mesh":
        found = triangles()
        assert isinstance(found.grid, UnstructuredGrid)
        return {"field": found, "boundary_condition": mesh_walls(found.grid, {"boundary": "bounce"}), "layout": "direct"}
    faces = ["periodic", ("reflective", "absorbing"), ("clamping", "open")]
    rated = inlet_outlet_boundary_factory(BOX, rate=120.0)
    return {
        "field": field(),
        "boundary_condition": rated if name == "rate" else box_boundary(BOX, faces),
        "layout": "rows" if name == "box, rows" else "direct",
    }


@pytest.mark.parametrize("name", ["box", "box, rows", "mesh", "rate"])
def test_paths_have_the_bits_of_one_device(name: str, devices: list[jax.Device]) -> None:
    options = {**walls_of(name), "sort_every": 4}
    begin = seeds(options["field"].dim)
    alone, spread = (ran(mesh, begin, **options) for mesh in (None, world_mesh()))
    assert_same(spread, alone)
    assert sum(alone.patch_counts.values()) > 20
    report = create_tracker(mesh=world_mesh(), **options).explain(COUNT, 5, time_span=(0.0, 1.0))
    assert "one kernel" in str(report)
    assert "every 4 steps" in str(report)
    if name == "rate":
        np.testing.assert_array_equal(spread.generation, alone.generation)
        assert spread.info["inlet_missed"] == alone.info["inlet_missed"] > 0
        assert alone.generation.max() > 0


def test_an_inlet_with_a_rate_fills_the_same_slots_without_a_kernel(devices: list[jax.Device]) -> None:
    options = {**walls_of("rate"), "fused": False}
    alone, spread = (ran(mesh, seeds(), **options) for mesh in (None, world_mesh()))
    np.testing.assert_array_equal(spread.generation, alone.generation)
    np.testing.assert_allclose(spread.positions, alone.positions, atol=1e-5)
    with pytest.raises(ValueError, match="`sort_every` must be 0 or None .* got 4"):
        ran(world_mesh(), seeds(), **options, sort_every=4)


@pytest.mark.parametrize("kind", ["grid", "triangles"])
def test_the_kernel_for_gpus_has_the_bits_of_one_device(kind: str, devices: list[jax.Device]) -> None:
    """In Pallas' interpreter."""
    made = field() if kind == "grid" else triangles()
    options = {"field": made, "layout": "cells", "fused": True, "sort_every": 4}
    begin = seeds(made.dim, 21)
    alone, spread = (ran(mesh, begin, (0.0, 0.4), **options) for mesh in (None, world_mesh()))
    assert_same(spread, alone)
    assert np.ptp(alone.positions[:, :, 0]) > 0.1


def program_of(tracker: Any, begin: np.ndarray, mesh: Any) -> str:
    """The compiled program of a chunk."""
    plan = tracker.plan((0.0, 1.0), 3, 0.1, particles=len(begin))
    job, _ = prepare(tracker.options, begin, plan)
    particles = start(job, job.motion, 0, len(begin))
    shared = Shared(job.motion, tables_of(plan, job.cutting), None)
    driver = _Driver(job.unit, shared, None, axes_of(particles), mesh, None, None, 1, True, None, False)
    carry = driver.place(particles, copy=True)
    text = advance.lower(*driver.arguments(carry, 0, 4), program=driver.program(4, 1)).compile().as_text()
    assert text is not None
    return text


@pytest.mark.parametrize("rated", [False, True])
def test_a_device_steps_its_own_particles_and_sends_none(rated: bool, devices: list[jax.Device]) -> None:
    several = len(devices) > 1
    options = walls_of("rate" if rated else "box")
    tracker = create_tracker(mesh=world_mesh(), sort_every=4, **options)
    text = program_of(tracker, seeds(count=5 * len(devices)), world_mesh())
    calls = [line for line in text.splitlines() if 'custom_call_target="jaxtrace_step' in line]
    assert calls
    assert all(re.search(r"= \(f32\[5,3\]", line) for line in calls)
    assert all(re.search(r"sort\(.*[us]32\[5\]|[us]32\[5\].*sort\(", line) for line in text.splitlines() if " sort(" in line)
    for word in ("all-gather", "all-to-all", "collective-permute"):
        assert word not in text
    reduced = re.findall(r"= (\S+?)(?:\{\d*\})? all-reduce\(", text)
    # Counts at walls are added up once, after the steps; the free slots of devices in each.
    assert sorted(reduced) == sorted(["s32[6]", *([f"s32[{len(devices)}]"] if rated else [])] if several else reduced)
    assert several or len(reduced) <= 2


def test_a_spread_kernel_compiles_once(devices: list[jax.Device]) -> None:
    tracker = create_tracker(mesh=world_mesh(), sort_every=4, **walls_of("box"))
    first = tracker.track_particles(seeds(), (0.0, 1.0), 5, 0.05, progress=False)
    with no_recompile(allow_eager=True):
        again = tracker.track_particles(seeds(), (0.0, 1.0), 5, 0.05, progress=False)
    np.testing.assert_array_equal(again.positions, first.positions)


def test_velocities_and_reductions_of_sorted_particles(devices: list[jax.Device]) -> None:
    options = {
        **walls_of("box"),
        "record_velocities": True,
        "reduce": histogram(np.asarray(BOX).tolist(), 3),
        "keep_positions": True,
        "sort_every": 4,
    }
    alone, spread = (ran(mesh, seeds(), **options) for mesh in (None, world_mesh()))
    assert_same(spread, alone)
    np.testing.assert_allclose(spread.velocities, alone.velocities, atol=1e-5)
    np.testing.assert_array_equal(spread.reduced, alone.reduced)
    assert alone.reduced.sum() > 0


def test_a_streamed_field_is_read_by_the_kernels_of_all_devices(devices: list[jax.Device]) -> None:
    whole = field()
    stream = StreamedField(np.asarray(whole.data), TIMES, grid())
    options = {"boundary_condition": box_boundary(BOX, "reflective"), "layout": "direct", "sort_every": 4}
    streamed = ran(world_mesh(), seeds(), field=stream, **options)
    resident = ran(None, seeds(), field=stream, **options)
    assert_same(streamed, resident)
    report = create_tracker(mesh=world_mesh(), field=stream, **options).explain(COUNT, 5, time_span=(0.0, 1.0))
    assert report.fused


def saved(folder: Path, mesh: Any, options: dict[str, Any], stop: bool) -> Any:
    """A run into a folder that stops after its third chunk, or one that goes on there."""
    chunks = []

    def third(done: int, total: int) -> bool:
        chunks.append(done)
        return stop and len(chunks) == 3

    tracker = create_tracker(mesh=mesh, progress_callback=third, **options)
    begin = seeds(count=96)
    saving = Checkpoint(folder, every_seconds=0) if stop else folder
    return tracker.track_particles(
        begin, (0.0, 1.0), 21, 0.02, checkpoint=saving, resume=not stop, progress=False
    )


@pytest.mark.parametrize(
    ("before", "after", "sorts"), [(None, 8, True), (8, None, True), (2, 8, True), (None, 8, False)]
)
def test_a_sorted_run_goes_on_with_another_number_of_devices(
    before: int | None,
    after: int | None,
    sorts: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: list[jax.Device],
) -> None:
    monkeypatch.setattr("jaxtrace.tracking.cutting._CHUNK_STEPS_CPU", 400)
    options = {**walls_of("rate"), "sort_every": 4}
    meshes = [None if count is None else world_mesh(min(count, len(devices))) for count in (before, after)]
    whole = create_tracker(mesh=meshes[1], **options).track_particles(
        seeds(count=96), (0.0, 1.0), 21, 0.02, progress=False
    )
    part = saved(tmp_path, meshes[0], options, stop=True)
    assert part.outcome == "stopped"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = saved(tmp_path, meshes[1], {**options, "sort_every": 4 if sorts else 0}, stop=False)
    assert_same(result, whole)
    np.testing.assert_array_equal(result.generation, whole.generation)
    sizes = [1 if mesh is None else mesh.size for mesh in meshes]
    told = [str(one.message) for one in said if issubclass(one.category, ResumeWarning)]
    # The program is the same on any number of devices; only sorting changes it.
    assert sum("device(s) and goes on" in text for text in told) == (sizes[0] != sizes[1])
    assert sum("program of this run differs" in text for text in told) == (not sorts)


def test_particles_of_a_checkpoint_lie_as_devices_want_them(devices: list[jax.Device]) -> None:
    tracker = create_tracker(**walls_of("box"))
    plan = tracker.plan((0.0, 1.0), 3, 0.1, particles=8)
    job, _ = prepare(tracker.options, seeds(count=8), plan)
    particles = start(job, job.motion, 0, 8)
    mixed = np.array([1, 0, 3, 2, 5, 4, 7, 6])
    held = dataclasses.replace(
        particles, identity=particles.identity[mixed], position=particles.position[mixed]
    )
    assert in_order(held, 4, sorts=True) is held  # each of four devices has its own two
    for found in (in_order(held, 8, sorts=True), in_order(held, 1, sorts=False)):
        np.testing.assert_array_equal(found.identity, np.arange(8))
        np.testing.assert_array_equal(found.position, particles.position)


def test_a_kernel_that_does_not_know_the_field_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="`fused` must be False here.*got Euler on layout"):
        ran(world_mesh(), seeds(), field=field(), integrator_name="euler", fused=True)


def test_batches_are_planned_for_one_device_with_its_kernel(
    devices: list[jax.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that is planned with holds the particles of a device once: nothing is gathered."""
    from jaxtrace.tracking import arranging

    monkeypatch.setattr(arranging, "CHUNK_BYTES", 2**18)
    monkeypatch.setattr(arranging, "live_bytes", dict)
    several = world_mesh()
    found = [
        create_tracker(mesh=mesh, memory_limit_gb=0.05, sort_every=4, **walls_of("box")).explain(
            200_000 * mesh.size, 3, time_span=(0.0, 1.0)
        )
        for mesh in (world_mesh(1), several)
    ]
    assert found[0].batches > 1
    assert found[1].batch_size == pytest.approx(found[0].batch_size * several.size, rel=0.02)

"""Kernels and sorting over devices: each steps and sorts its own particles, and the paths have the bits of one device."""

import dataclasses
import re
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy.spatial import Delaunay

from jaxtrace.boundaries import mesh_walls
from jaxtrace.fields import Mesh, StreamedField, TimeSeriesField, UniformGrid, UnstructuredGrid, constant_flow
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import box_boundary, inlet_outlet_boundary_factory
from jaxtrace.tracking.driver import sort_by_number, start
from jaxtrace.tracking.particles import axes_of
from jaxtrace.tracking.plan import plan_run
from jaxtrace.tracking.reductions import histogram
from jaxtrace.tracking.segment import Shared, device_tables
from jaxworlds import no_recompile, world_mesh
from jaxworlds.rollout import Checkpoint, ResumeWarning
from jaxworlds.rollout._chunk import advance
from jaxworlds.rollout._loop import Driver, Job

pytestmark = [
    pytest.mark.devices,
    pytest.mark.usefixtures("quick_compile"),
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler, no kernel"
    ),
]
several = pytest.mark.skipif("len(jax.devices()) < 8", reason="needs 8 simulated devices")
TIMES = np.linspace(0, 1, 5)
BOX = [[0.2, 0.2], [0.8, 0.7]]
COUNT = 91  # filled up to a multiple of the devices


def values(points: np.ndarray) -> np.ndarray:
    """A swirl that turns with time and leaves the box on all sides."""
    x, y = points[:, 0] - 0.5, points[:, 1] - 0.5
    return np.stack([np.stack([-2 * y + t * x, 2 * x + t * y], -1) for t in TIMES]).astype(np.float32)


def grid() -> UniformGrid:
    return UniformGrid(np.zeros(2), np.array([0.2, 0.25]), (6, 5))


def field() -> TimeSeriesField:
    return TimeSeriesField(values(np.asarray(grid().positions)), TIMES, grid=grid())


def triangles() -> TimeSeriesField:
    axes = np.meshgrid(*[np.linspace(0.1, 0.8, 5)] * 2, indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], -1)
    mesh = Mesh(points, {"triangle": Delaunay(points).simplices.astype(int)})
    return TimeSeriesField(values(points), TIMES, grid=UnstructuredGrid(mesh))


def seeds(count: int = COUNT) -> np.ndarray:
    low, high = np.asarray(BOX, np.float32)
    return low + np.random.default_rng(1).uniform(0, 1, (count, 2)).astype(np.float32) * (high - low)


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


def problem(name: str) -> dict[str, Any]:
    """Field, walls and layout by a name."""
    if name == "triangles":
        found = triangles()
        assert isinstance(found.grid, UnstructuredGrid)
        walls = mesh_walls(found.grid, {"boundary": "bounce"})
        return {"field": found, "boundary_condition": walls, "layout": "direct"}
    walls = box_boundary(BOX, ["periodic", ("reflective", "absorbing")])
    rated = inlet_outlet_boundary_factory(BOX, rate=120.0)
    return {
        "field": field(),
        "boundary_condition": rated if name == "rate" else walls,
        "layout": "rows" if name == "rows" else "direct",
    }


@pytest.mark.parametrize("name", ["box", "rows", "triangles", "rate"])
def test_paths_have_the_bits_of_one_device(name: str, devices: list[jax.Device]) -> None:
    options = {**problem(name), "sort_every": 4}
    if name == "box":
        options |= {"record_velocities": True, "reduce": histogram(BOX, 3), "keep_positions": True}
    alone, spread = (ran(mesh, seeds(), **options) for mesh in (None, world_mesh()))
    assert_same(spread, alone)
    assert sum(alone.patch_counts.values()) > 20
    report = create_tracker(mesh=world_mesh(), **options).explain(COUNT, 5, time_span=(0.0, 1.0))
    assert "one kernel" in str(report)
    assert "every 4 steps" in str(report)
    if name == "triangles":
        with no_recompile(allow_eager=True):
            again = ran(world_mesh(), seeds(), **options)
        assert_same(again, alone)
    if name == "rate":
        np.testing.assert_array_equal(spread.generation, alone.generation)
        assert spread.info["inlet_missed"] == alone.info["inlet_missed"] > 0
        assert alone.generation.max() > 0
    if name == "box":
        np.testing.assert_allclose(spread.velocities, alone.velocities, atol=1e-6)
        np.testing.assert_array_equal(spread.reduced, alone.reduced)
        assert alone.reduced.sum() > 0


def test_an_inlet_with_a_rate_fills_the_same_slots_without_a_kernel(devices: list[jax.Device]) -> None:
    walls = inlet_outlet_boundary_factory(BOX, rate=60.0)
    options = {"field": constant_flow([1.0, 0.0]), "boundary_condition": walls}
    alone, spread = (ran(mesh, seeds(), **options) for mesh in (None, world_mesh()))
    np.testing.assert_array_equal(spread.generation, alone.generation)
    np.testing.assert_allclose(spread.positions, alone.positions, atol=1e-5)
    assert spread.info["inlet_missed"] == alone.info["inlet_missed"]
    assert 0 < (alone.generation[-1] > 0).sum() < COUNT
    with pytest.raises(ValueError, match=r"`sort_every` must be 0 or None .* got 4"):
        ran(world_mesh(), seeds(), **options, sort_every=4)


@pytest.mark.parametrize("kind", ["grid", "triangles"])
def test_the_kernel_for_gpus_has_the_bits_of_one_device(kind: str, devices: list[jax.Device]) -> None:
    """In Pallas' interpreter."""
    made = field() if kind == "grid" else triangles()
    options = {"field": made, "layout": "cells", "fused": True, "sort_every": 4}
    alone, spread = (ran(mesh, seeds(21), (0.0, 0.4), **options) for mesh in (None, world_mesh()))
    assert_same(spread, alone)
    assert np.ptp(alone.positions[:, :, 0]) > 0.1


def chunk_of(tracker: Any, begin: np.ndarray, mesh: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the core's program for a chunk of this tracker's run."""
    plan = tracker.plan((0.0, 1.0), 3, 0.1, particles=len(begin))
    job, _ = plan_run(tracker.options, begin, plan)
    particles = start(job, job.motion, 0, len(begin))
    shared = Shared(job.motion, device_tables(plan, job.chunks), None)
    driver = Driver(
        Job(
            step=job.segment,
            inputs=None,
            shared=shared,
            shared_at=None,
            axes=axes_of(particles),
            mesh=mesh,
            keep_records=True,
            observe=None,
            on_chunk=None,
            tap_every=1,
            progress=False,
            check_memory=True,
        ),
        None,
    )
    carry = driver.place(particles, copy=True)
    return driver.arguments(carry, 0, 4), {"program": driver.program(4, 1)}


@pytest.mark.parametrize("name", ["box", "rate"])
def test_a_device_steps_its_own_particles_and_sends_none(name: str, devices: list[jax.Device]) -> None:
    tracker = create_tracker(mesh=world_mesh(), sort_every=4, **problem(name))
    arguments, program = chunk_of(tracker, seeds(5 * len(devices)), world_mesh())
    text = advance.lower(*arguments, **program).compile().as_text()
    assert text is not None
    calls = [line for line in text.splitlines() if 'custom_call_target="jaxtrace_step' in line]
    sorts = [line for line in text.splitlines() if " sort(" in line]
    assert calls
    assert sorts
    assert all("= (f32[5,2]" in line for line in calls)
    assert all("= u32[5]" in line for line in sorts)
    for word in ("all-gather", "all-to-all", "collective-permute"):
        assert word not in text
    # Counts at walls are added up once, after the steps; free slots of the devices in each step that may fill them.
    wanted = ["s32[4]", *([f"s32[{len(devices)}]"] if name == "rate" else [])]
    found = re.findall(r"= (s32\[\d+\])\S* all-reduce\(", text)
    assert len(found) == text.count(" all-reduce(")
    assert sorted(found) == sorted(wanted if len(devices) > 1 else found)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
def test_the_kernel_for_gpus_is_lowered_for_the_particles_of_a_device(
    monkeypatch: pytest.MonkeyPatch, devices: list[jax.Device]
) -> None:
    tracker = create_tracker(mesh=world_mesh(), field=field(), layout="cells", fused=True, sort_every=4)
    arguments, program = chunk_of(tracker, seeds(50 * len(devices)), world_mesh())
    with monkeypatch.context() as pretended:
        pretended.setattr(jax, "default_backend", lambda: "gpu")
        traced = advance.trace(*arguments, **program)
        try:
            text = traced.lower(lowering_platforms=("cuda",)).as_text()
        except RuntimeError as error:
            pytest.skip(f"this version of jax lowers kernels only where a GPU is: {error}")
    calls = [line for line in text.splitlines() if "triton" in line and "custom_call" in line]
    assert calls
    assert all(
        line.endswith("-> (tensor<100xf32>, tensor<100xf32>, tensor<50xi32>, tensor<50xi32>)")
        for line in calls
    )
    assert not re.search("all_gather|all_to_all|collective_permute", text)


@several
def test_a_streamed_field_is_read_by_the_kernels_of_all_devices(devices: list[jax.Device]) -> None:
    whole = field()
    stream = StreamedField(np.asarray(whole.data), TIMES, grid(), time_interpolation="linear", resident=3)
    options = {"boundary_condition": box_boundary(BOX, "reflective"), "layout": "direct", "sort_every": 4}
    streamed = ran(world_mesh(), seeds(), field=stream, **options)
    resident = ran(None, seeds(), field=stream, **options)
    assert_same(streamed, resident)
    report = create_tracker(mesh=world_mesh(), field=stream, **options).explain(
        COUNT, 5, time_span=(0.0, 1.0)
    )
    assert report.fused


@pytest.fixture(scope="module")
def unbroken() -> Any:
    """A sorted run with an inlet, on one device."""
    tracker = create_tracker(sort_every=4, **problem("rate"))
    return tracker.track_particles(seeds(96), (0.0, 1.0), 21, 0.02, progress=False)


def saved(folder: Path, mesh: Any, sort: int, stop: bool) -> Any:
    """The same run into a folder, which stops after its third chunk; or one that goes on there."""
    chunks = []

    def third(done: int, total: int) -> bool:
        chunks.append(done)
        return stop and len(chunks) == 3

    tracker = create_tracker(mesh=mesh, progress_callback=third, sort_every=sort, **problem("rate"))
    saving = Checkpoint(folder, every_seconds=0) if stop else folder
    return tracker.track_particles(
        seeds(96), (0.0, 1.0), 21, 0.02, checkpoint=saving, resume=not stop, progress=False
    )


@several
@pytest.mark.parametrize(("before", "after", "sorts"), [(None, 8, True), (8, None, True), (None, 8, False)])
def test_a_sorted_run_goes_on_with_another_number_of_devices(
    before: int | None,
    after: int | None,
    sorts: bool,
    unbroken: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jaxtrace.tracking.chunks._CHUNK_STEPS_CPU", 400)
    before_mesh, after_mesh = (None if count is None else world_mesh(count) for count in (before, after))
    assert saved(tmp_path, before_mesh, 4, stop=True).outcome == "stopped"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = saved(tmp_path, after_mesh, 4 if sorts else 0, stop=False)
    assert_same(result, unbroken)
    np.testing.assert_array_equal(result.generation, unbroken.generation)
    told = [str(one.message) for one in said if issubclass(one.category, ResumeWarning)]
    assert sum("device(s) and goes on" in text for text in told) == 1
    # The program is the same on any number of devices; only sorting changes it.
    assert sum("program of this run differs" in text for text in told) == (not sorts)


def test_particles_of_a_checkpoint_lie_as_devices_want_them(devices: list[jax.Device]) -> None:
    tracker = create_tracker(**problem("box"))
    plan = tracker.plan((0.0, 1.0), 3, 0.1, particles=8)
    job, _ = plan_run(tracker.options, seeds(8), plan)
    particles = start(job, job.motion, 0, 8)
    mixed = np.array([1, 0, 3, 2, 5, 4, 7, 6])
    held = dataclasses.replace(
        particles, identity=particles.identity[mixed], position=particles.position[mixed]
    )
    assert sort_by_number(held, 4, sorts=True) is held  # each of four devices has its own two
    for found in (sort_by_number(held, 8, sorts=True), sort_by_number(held, 1, sorts=False)):
        np.testing.assert_array_equal(found.identity, np.arange(8))
        np.testing.assert_array_equal(found.position, particles.position)


def test_a_kernel_is_refused_in_words_where_it_cannot_run() -> None:
    with pytest.raises(ValueError, match=r"`fused` must be False or None here.*steps of RK4, not of Euler"):
        ran(world_mesh(), seeds(), field=field(), integrator_name="euler", fused=True)
    device = SimpleNamespace(platform="tpu", device_kind="none")
    elsewhere = SimpleNamespace(size=2, devices=np.array([device, device]))
    with pytest.raises(
        ValueError, match="kernels are made for 'cpu', the default backend; got devices of 'tpu'"
    ):
        create_tracker(field=field(), mesh=elsewhere, fused=True).explain(8, 2, time_span=(0.0, 1.0))
    assert not create_tracker(field=field(), mesh=elsewhere).explain(8, 2, time_span=(0.0, 1.0)).fused


@several
def test_batches_are_planned_for_one_device_with_its_kernel(
    devices: list[jax.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that is planned with gathers nothing: eight devices hold eight times as many particles as one."""
    monkeypatch.setattr("jaxtrace.tracking.plan.CHUNK_BYTES", 2**18)
    most = []
    for mesh in (world_mesh(1), world_mesh()):
        tracker = create_tracker(mesh=mesh, memory_limit_gb=0.08, sort_every=4, **problem("box"))
        report = tracker.explain(1_000_000 * mesh.size, 3, time_span=(0.0, 1.0))
        assert report.fused
        assert report.batches > 1
        found = re.search(r"are ([\d,]+)", report.batch_reason)
        assert found is not None
        most.append(int(found[1].replace(",", "")))
    # The plan is found by trying sizes a tenth apart. With a gather it would be an eighth.
    assert most[1] == pytest.approx(most[0] * len(devices), rel=0.1)

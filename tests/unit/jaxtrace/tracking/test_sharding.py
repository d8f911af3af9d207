"""Particles spread over devices: the same paths, the same counts, and one program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.fields import TimeSeriesField, UniformGrid, constant_flow, double_gyre
from jaxtrace.tracking import create_tracker
from jaxtrace.tracking.boundary import continuous_inlet_boundary_factory, reflective_boundary
from jaxtrace.tracking.driver import start
from jaxtrace.tracking.particles import axes_of
from jaxtrace.tracking.plan import plan_run
from jaxtrace.tracking.reductions import histogram
from jaxtrace.tracking.segment import Shared, device_tables
from jaxworlds import no_recompile, shard_worlds, world_mesh
from jaxworlds.batching import spread_over

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("quick_compile")]

BOX = [[0.3, 0.1], [1.7, 0.9]]


def seeds(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.31, 0.89, (count, 2)).astype(np.float32)


def test_spread_particles_move_alike_and_compile_once(devices: list[jax.Device]) -> None:
    start = seeds(2 * len(devices) + 3)  # filled up to a multiple of the devices
    walls = reflective_boundary(BOX)
    options = {"diffusivity": 0.01, "boundary_condition": walls, "field": double_gyre(1.0)}
    alone = create_tracker("milstein", **options).track_particles(start, (0.0, 1.0), 5, 0.05)
    tracker = create_tracker("milstein", mesh=world_mesh(), **options)
    spread = tracker.track_particles(start, (0.0, 1.0), 5, 0.05)
    np.testing.assert_allclose(spread.positions, alone.positions, atol=1e-5)
    assert spread.patch_counts == alone.patch_counts
    assert sum(alone.patch_counts.values()) > 0
    assert spread.info["devices"] == len(devices)
    assert len(spread.ids) == len(start)
    with no_recompile(allow_eager=True):
        again = tracker.track_particles(start, (0.0, 1.0), 5, 0.05)
    np.testing.assert_array_equal(again.positions, spread.positions)


def test_steps_send_nothing_between_devices(devices: list[jax.Device]) -> None:
    grid = UniformGrid([0.0, 0.0], [0.25, 0.25], (9, 5))
    field = TimeSeriesField(np.zeros((3, 45, 2), np.float32), np.linspace(0, 1, 3), grid=grid)
    mesh = world_mesh()
    tracker = create_tracker(
        field=field, boundary_condition=reflective_boundary(BOX), mesh=mesh, layout="rows", fused=False
    )
    plan = tracker.plan((0.0, 1.0), 3, 0.1, particles=4 * len(devices))
    job, _ = plan_run(tracker.options, seeds(4 * len(devices)), plan)
    particles = start(job, job.motion, 0, 4 * len(devices))
    shared = Shared(job.motion, device_tables(plan, job.chunks), None)
    spread = shard_worlds((particles, shared), mesh, (axes_of(particles), None))

    @eqx.filter_jit
    def program(particles: Any, shared: Shared) -> Any:
        with spread_over(mesh):
            return job.segment(particles, jnp.int32(1), shared)

    text = program.lower(*spread).compile().compiled.as_text()
    for word in ("all-gather", "all-to-all", "collective-permute"):
        assert word not in text
    # Counts at walls are added up once, after the steps.
    assert text.count("= s32[4]{0} all-reduce(") == (1 if len(devices) > 1 else 0)
    assert text.count(" all-reduce(") == (1 if len(devices) > 1 else 0)


def test_inlets_and_reductions_work_over_devices(devices: list[jax.Device]) -> None:
    start = seeds(4 * len(devices))
    inlet = continuous_inlet_boundary_factory([[0.0, 0.0], [1.0, 1.0]])
    results = [
        create_tracker(
            field=constant_flow([1.0, 0.0]),
            boundary_condition=inlet,
            mesh=mesh,
            reduce=histogram([[0, 0], [1, 1]], 4),
            keep_positions=True,
        ).track_particles(start, (0.0, 2.0), 5, 0.05)
        for mesh in (None, world_mesh())
    ]
    np.testing.assert_allclose(results[0].positions, results[1].positions, atol=1e-5)
    np.testing.assert_array_equal(results[0].generation, results[1].generation)
    assert (results[0].generation[-1] >= 1).all()  # pyright: ignore[reportOptionalSubscript]
    assert (results[1].reduced.sum((1, 2)) == len(start)).all()
    assert jnp.asarray(results[1].reduced).shape == (5, 4, 4)

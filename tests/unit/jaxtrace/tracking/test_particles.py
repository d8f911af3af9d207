"""What becomes of particles: walls, ends, releases, births, and digits that rounding would lose."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.boundaries import mesh_walls
from jaxtrace.fields import AnalyticField, Mesh, TimeSeriesField, UniformGrid, UnstructuredGrid, constant_flow
from jaxtrace.integrators import RK4, Dopri5
from jaxtrace.tracking import Outcome, Trajectory, create_tracker, plan_schedule, simulate
from jaxtrace.tracking.boundary import (
    absorbing_boundary,
    box_boundary,
    clamping_boundary,
    inlet_outlet_boundary_factory,
    periodic_boundary,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

BOX = [[0.0, 0.0], [1.0, 1.0]]


def track(
    start: Any, *, velocity: Any = (1.0, 0.0), until: float = 1.0, times: int = 5, **options: Any
) -> Trajectory:
    """Particles in an even flow, a step of 0.05."""
    calls = {name: options.pop(name) for name in ("release_times",) if name in options}
    tracker = create_tracker(field=constant_flow(velocity), **options)
    return tracker.track_particles(np.asarray(start), (0.0, until), times, 0.05, **calls)


def test_absorbed_particles_end_on_the_face_and_are_counted() -> None:
    walls = absorbing_boundary(BOX)
    result = track([[0.1, 0.5], [0.68, 0.5], [0.92, 0.5]], boundary_condition=walls, until=0.5, times=6)
    np.testing.assert_allclose(result.final, [[0.6, 0.5], [1.0, 0.5], [1.0, 0.5]], atol=1e-6)
    np.testing.assert_array_equal(result.outcomes, [Outcome.MOVING, Outcome.LEFT, Outcome.LEFT])
    assert [result.patch_names[p] if p >= 0 else None for p in result.patches] == [None, "x_max", "x_max"]
    assert result.patch_counts == {"x_min": 0, "x_max": 2, "y_min": 0, "y_max": 0}
    np.testing.assert_array_equal(result.alive.sum(0), [6, 4, 1])  # pyright: ignore[reportOptionalMemberAccess]
    np.testing.assert_allclose(result.ages[-1], [0.5, 0.32, 0.08], atol=1e-6)  # pyright: ignore
    assert "2 left through a patch" in result.summary()
    assert "x_max 2" in result.summary()


def test_periodic_particles_come_back_and_their_turns_are_counted() -> None:
    result = track([[0.5, 0.5], [0.1, 0.2]], boundary_condition=periodic_boundary(BOX), until=3.0)
    np.testing.assert_allclose(result.final, [[0.5, 0.5], [0.1, 0.2]], atol=1e-5)
    assert result.patch_counts["x_max"] == 6
    assert (result.outcomes == Outcome.MOVING).all()


@pytest.mark.parametrize(
    ("ages", "said"),
    [
        ([1.0, 0.5, 0.0, 0.0], "3 left the field, 2 of them where they began"),
        ([1.0, 0.5, 0.5, 0.0], "3 left the field, 1 of them where it began"),
        ([1.0, 0.0, 0.0, 0.0], "3 left the field, all of them where they began"),
        ([1.0, 0.5, 0.5, 0.5], "3 left the field"),
    ],
)
def test_the_summary_tells_seeds_outside_of_the_field(ages: list[float], said: str) -> None:
    result = Trajectory(
        positions=np.zeros((2, 4, 2)),
        times=np.array([0.0, 1.0]),
        ids=np.arange(4),
        alive=np.zeros((2, 4), bool),
        ages=np.array([[0.0] * 4, ages]),
        release_times=np.zeros(4),
        outcomes=np.array([Outcome.MOVING, *[Outcome.OUTSIDE] * 3], np.int8),
        patches=np.full(4, -1),
    )
    assert result.summary().splitlines()[2].strip() == said


def gridded(**options: Any) -> TimeSeriesField:
    """The flow (1, 0.5) known in the unit square only, with a spacing that is no binary fraction."""
    grid = UniformGrid([0.0, 0.0], [0.1, 0.1], (11, 11))
    return TimeSeriesField(np.tile(np.float32([1.0, 0.5]), (1, 121, 1)), grid=grid, **options)


def test_particles_end_where_the_field_does() -> None:
    tracker = create_tracker(field=gridded())
    result = tracker.track_particles(np.array([[0.5, 0.5], [0.1, 0.1]]), (0.0, 0.8), 3, 0.05)
    assert result.outcome_names[result.outcomes[0]] == "left the field"
    assert result.outcomes[1] == Outcome.MOVING
    assert 1.0 < result.final[0, 0] <= 1.05 + 1e-6  # not further than the step that led out
    assert result.patches[0] == -1
    free = create_tracker(field=gridded(), stop_outside=False)
    onwards = free.track_particles(np.array([[0.5, 0.5], [0.1, 0.1]]), (0.0, 0.8), 3, 0.05)
    np.testing.assert_allclose(onwards.final, [[1.3, 0.9], [0.9, 0.5]], atol=1e-5)
    assert (onwards.outcomes == Outcome.MOVING).all()


def test_a_particle_held_on_the_edge_is_still_inside() -> None:
    tracker = create_tracker(field=gridded(), boundary_condition=clamping_boundary(BOX))
    result = tracker.track_particles(np.array([[0.5, 0.5]]), (0.0, 2.0), 3, 0.05)
    np.testing.assert_array_equal(result.final, [[1.0, 1.0]])
    assert result.outcomes[0] == Outcome.MOVING
    # The first hit is the step that reaches the face, and every step after it meets the face again.
    assert result.patch_counts["x_max"] == 30


def test_edges_of_any_size_hold_particles_in_the_field() -> None:
    """Rounding of origin, spacing and bounds must not push a particle on a face out of the field."""
    draw = np.random.default_rng(0)
    for _ in range(8):
        low, size = draw.uniform(-50, 50, 2), draw.uniform(0.001, 100, 2)
        grid = UniformGrid(low, size / 12, (13, 13))
        field = TimeSeriesField(np.tile(np.float32(size), (1, 169, 1)), grid=grid)
        tracker = create_tracker(field=field, boundary_condition=clamping_boundary([low, low + size]))
        result = tracker.track_particles(np.array([low + 0.5 * size]), (0.0, 2.0), 3, 0.1)
        np.testing.assert_array_equal(result.final[0], np.float32(low + size))
        assert result.outcomes[0] == Outcome.MOVING


def meshed(patches: Any) -> UnstructuredGrid:
    """The unit square in triangles."""
    line = np.linspace(0.0, 1.0, 6)
    points = np.stack([axis.ravel() for axis in np.meshgrid(line, line, indexing="ij")], -1)
    first = (6 * np.arange(5)[:, None] + np.arange(5)).ravel()
    corners = np.r_[np.c_[first, first + 6, first + 7], np.c_[first, first + 7, first + 1]]
    return UnstructuredGrid(Mesh(points, {"triangle": corners}, patches))


def test_walls_of_a_mesh_guide_and_absorb() -> None:
    grid = meshed({"outlet": lambda middle: middle[:, 0] > 1 - 1e-6})
    field = TimeSeriesField(np.tile(np.float32([1.0, 0.5]), (1, 36, 1)), grid=grid)
    walls = mesh_walls(grid, {"outlet": "absorb"})  # the other walls guide
    tracker = create_tracker(field=field, boundary_condition=walls)
    start = np.array([[0.1, 0.1], [0.1, 0.9], [0.93, 0.2]])
    result = tracker.track_particles(start, (0.0, 0.8), 9, 0.02)
    np.testing.assert_allclose(result.final[0], [0.9, 0.5], atol=1e-5)
    np.testing.assert_allclose(result.final[1], [0.9, 1.0], atol=1e-4)  # along the upper wall from t = 0.2 on
    assert result.final[1, 1] <= 1.0
    np.testing.assert_allclose(result.final[2], [1.0, 0.235], atol=1e-3)
    assert result.outcomes.tolist() == [Outcome.MOVING, Outcome.MOVING, Outcome.LEFT]
    assert result.patch_names[result.patches[2]] == "outlet"
    assert result.patch_counts["outlet"] == 1
    other = next(name for name in result.patch_names if name != "outlet")
    assert 28 <= result.patch_counts[other] <= 31  # once in each of the thirty steps at the wall


def test_released_late_means_resting_before() -> None:
    result = track([[0.0, 0.0]] * 3, release_times=[0.0, 0.52, 1.0], until=1.0)
    np.testing.assert_allclose(result.final[:, 0], [1.0, 0.48, 0.0], atol=1e-6)
    np.testing.assert_allclose(result.release_times, [0.0, 0.52, 1.0])
    np.testing.assert_array_equal(result.alive[:, 1], [False, False, False, True, True])  # pyright: ignore
    late = track(
        [[0.0, 0.0]] * 2, release_times=[0.0, 0.9], until=1.0, progress_callback=lambda done, total: None
    )
    assert late.outcomes.tolist() == [Outcome.MOVING, Outcome.MOVING]


def test_who_runs_out_of_adaptive_steps_is_stopped_and_said() -> None:
    fast = AnalyticField(lambda x, t: jnp.stack([jnp.cos(300 * t), 0 * x[1]]), 2)
    tracker = create_tracker(field=fast, integrator=Dopri5(rtol=1e-6, atol=1e-7, max_steps=5))
    result = tracker.track_particles(np.array([[0.5, 0.5]]), (0.0, 1.0), 3)
    assert result.outcomes[0] == Outcome.STEP_LIMIT
    assert "ran out of steps" in result.summary()
    assert not result.alive[-1, 0]  # pyright: ignore[reportOptionalSubscript]


# --- inlets ---


def stream(rate: float | None, **options: Any) -> Trajectory:
    walls = inlet_outlet_boundary_factory(BOX, rate=rate)
    start = np.stack([np.linspace(0.02, 0.98, 25), np.full(25, 0.5)], -1)
    return track(start, until=2.0, times=9, boundary_condition=walls, **options)


def test_a_slot_is_filled_again_with_a_new_age_and_generation() -> None:
    result = stream(None)
    assert result.generation is not None
    assert result.ages is not None
    assert result.alive.all()  # pyright: ignore[reportOptionalMemberAccess]
    np.testing.assert_array_equal(result.generation[0], 0)
    np.testing.assert_array_equal(result.generation[-1], 2)  # two crossings in two units of time
    # Born at x = 0, they move with speed 1: age is place.
    born = result.generation > 0
    np.testing.assert_allclose(result.positions[..., 0][born], result.ages[born], atol=1e-5)  # pyright: ignore
    assert result.ages.max() < 1.05
    assert result.patch_counts["x_max"] == 50
    assert np.ptp(result.positions[-1, :, 1]) > 0.5  # pyright: ignore # they are born all over the face


def test_a_rate_counts_births_and_says_which_found_no_room() -> None:
    result = stream(5.0)
    births = int(result.generation[-1].sum())  # pyright: ignore[reportOptionalSubscript]
    assert births + result.info["inlet_missed"] == 10
    assert births == 10 or result.info["inlet_missed"] > 0
    living = int(result.alive[-1].sum())  # pyright: ignore[reportOptionalSubscript]
    assert 4 <= living <= 6  # a rate of 5 and a life of 1
    gone = result.outcomes[~result.alive[-1]]  # pyright: ignore[reportOptionalSubscript]
    assert (gone == Outcome.LEFT).all()


def test_a_rate_is_shared_by_batches() -> None:
    whole, parts = stream(8.0), stream(8.0, batch_size=5)
    totals = [int(result.generation[-1].sum()) for result in (whole, parts)]  # pyright: ignore
    assert totals[0] == 16
    assert abs(totals[1] - 16) <= 5  # each batch rounds its share down


def test_none_is_born_before_a_slot_is_free() -> None:
    result = stream(100.0, velocity=(0.2, 0.0))
    assert result.info["inlet_missed"] > 100
    assert result.alive.all()  # pyright: ignore[reportOptionalMemberAccess]


# --- inertia ---


def test_inertia_begins_with_the_fluid_and_falls_with_its_final_speed() -> None:
    result = track(
        [[0.0, 0.0]],
        velocity=(1.0, 0.0),
        until=2.0,
        integrator_name="inertial",
        relaxation_time=0.05,
        gravity=(0.0, -10.0),
        record_velocities=True,
    )
    assert result.velocities is not None
    np.testing.assert_allclose(result.velocities[0, 0], [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(result.velocities[-1, 0], [1.0, -0.5], atol=1e-5)
    np.testing.assert_allclose(result.final[0], [2.0, -0.5 * (2.0 - 0.05)], atol=1e-4)


def test_a_mirror_turns_the_velocity_of_a_heavy_particle() -> None:
    tracker = create_tracker(
        "inertial",
        constant_flow([0.0, 0.0]),
        box_boundary(BOX, "reflective"),
        relaxation_time=1e6,
        record_velocities=True,
    )
    # Still fluid and no gravity: it rests. Released with the fluid's velocity, nothing moves.
    result = tracker.track_particles(np.array([[0.5, 0.5]]), (0.0, 1.0), 3, 0.05)
    np.testing.assert_array_equal(result.final, [[0.5, 0.5]])
    flow = AnalyticField(lambda x, t: jnp.where(t < 0.01, 1.0, 0.0) * jnp.array([1.0, 0.0]), 2)
    tracker = create_tracker(
        "inertial", flow, box_boundary(BOX, "reflective"), relaxation_time=1e6, record_velocities=True
    )
    result = tracker.track_particles(np.array([[0.5, 0.5]]), (0.0, 1.0), 3, 0.05)
    np.testing.assert_allclose(result.final, [[0.5, 0.5]], atol=1e-4)  # half a unit there, half a unit back
    np.testing.assert_allclose(result.velocities[-1], [[-1.0, 0.0]], atol=1e-4)  # pyright: ignore


# --- rounding ---


def test_many_small_steps_lose_no_digits() -> None:
    """Ten thousand steps far below the spacing of floats at 1000 would not move a particle without care."""
    result = track([[1000.0, 0.0]], velocity=(1e-4, 1e-4), until=500.0, times=2)
    assert result.info["steps"] == 10_000
    np.testing.assert_allclose(result.final[0, 0], 1000.05, atol=7e-5)
    np.testing.assert_allclose(result.final[0, 1], 0.05, rtol=1e-6)


def test_the_care_for_digits_does_not_reach_gradients() -> None:
    plan = plan_schedule((0.0, 1.0), 2, 0.1, particles=1)
    field = AnalyticField(lambda x, t: -x, 1)
    slope = jax.grad(lambda x: simulate(field, RK4(), None, x, plan)[0][-1].sum())(jnp.array([[1.0]]))
    np.testing.assert_allclose(slope, np.exp(-1.0), rtol=1e-5)

"""Ends that nobody asked for: no finite velocity, seeds where nothing flows; and ends to the moment within a step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.boundaries import masked_walls
from jaxtrace.fields import (
    AnalyticField,
    RectilinearGrid,
    StreamedField,
    TimeSeriesField,
    UniformGrid,
    constant_flow,
)
from jaxtrace.integrators import RK4, Dopri5
from jaxtrace.kernels import GPU, KernelState
from jaxtrace.kernels.gpu import fused_step
from jaxtrace.motion import Motion
from jaxtrace.tracking import Outcome, Trajectory, create_tracker, seeding
from jaxtrace.tracking.boundary import (
    absorbing_boundary,
    box_boundary,
    clamping_boundary,
    composed_boundary,
    inlet_outlet_boundary_factory,
    no_boundary,
    periodic_boundary,
    reflective_boundary,
    spherical_boundary,
)
from jaxtrace.tracking.particles import begin
from jaxtrace.tracking.reductions import Moments, histogram

pytestmark = pytest.mark.usefixtures("quick_compile")

INTEGRATORS: dict[str, dict[str, Any]] = {
    "rk4": {},
    "euler": {},
    "midpoint": {},
    "dopri5": {},
    "inertial": {"relaxation_time": 0.1},
    "euler_maruyama": {"diffusivity": 1e-8},
    "milstein": {"diffusivity": 1e-8},
}


def hole(x: jax.Array, t: jax.Array) -> jax.Array:
    """The flow (1, 0), without a velocity for x between 0.7 and 0.8; it does not see that a place is NaN."""
    return jnp.where((x[0] > 0.7) & (x[0] < 0.8), jnp.nan, 1.0) * jnp.array([1.0, 0.0])


# --- a field that gives NaN ---


@pytest.mark.parametrize("name", INTEGRATORS)
def test_without_a_finite_velocity_a_particle_stops_where_it_was(name: str) -> None:
    tracker = create_tracker(name, AnalyticField(hole, 2), **INTEGRATORS[name])
    start = np.array([[0.5, 0.5], [0.9, 0.2], [0.75, 0.2]])
    run = tracker.track_particles(start, (0.0, 1.0), 21)
    assert run.positions is not None
    assert run.ages is not None
    assert np.isfinite(run.positions).all()
    assert run.outcomes.tolist() == [Outcome.NOT_FINITE, Outcome.MOVING, Outcome.NOT_FINITE]
    # The last finite place lies before the hole, no further from it than two steps; it is kept to the end.
    assert 0.6 <= run.final[0, 0] <= 0.75 + 1e-5
    np.testing.assert_allclose(run.final[0, 0] - 0.5, run.ages[-1, 0], atol=2e-3)
    np.testing.assert_array_equal(run.final[2], np.float32(start[2]))
    assert run.end_times is not None
    np.testing.assert_allclose(run.end_times, np.array([run.ages[-1, 0], np.nan, 0.0]), atol=1e-6)
    assert "2 stopped where the field gives no finite velocity" in run.summary()


def test_an_adaptive_integrator_stops_just_before_the_hole() -> None:
    """By shorter and shorter steps, within one interval, at the moment that belongs to the place."""
    run = create_tracker("dopri5", AnalyticField(hole, 2)).track_particles([[0.5, 0.5]], (0.0, 1.0), 2)
    assert run.outcomes.tolist() == [Outcome.NOT_FINITE]
    np.testing.assert_allclose(run.final[0, 0], 0.7, atol=1e-4)
    np.testing.assert_allclose(run.end_times, [0.2], atol=1e-4)  # pyright: ignore


def test_a_sum_of_fields_ends_particles_where_one_of_them_does() -> None:
    grids = [UniformGrid([0.0, 0.0], [0.1, 0.1], shape) for shape in ((11, 11), (6, 11))]
    one, other = (
        TimeSeriesField(np.tile(np.array([0.5, 0.0], np.float32), (1, grid.size, 1)), grid=grid)
        for grid in grids
    )
    total = AnalyticField(lambda x, t: one(x, t) + other(x, t), 2)  # NaN for x > 0.5
    run = create_tracker("rk4", total).track_particles([[0.2, 0.5], [0.1, 0.5]], (0.0, 0.5), 6, 0.1)
    assert run.outcomes.tolist() == [Outcome.NOT_FINITE] * 2
    np.testing.assert_allclose(run.final[:, 0], [0.4, 0.4], atol=0.1 + 1e-5)
    assert np.isfinite(run.final).all()


def test_infinite_places_are_no_ends_at_a_wall() -> None:
    """A clamp would put an infinite place on its face, a mirror would fold it: both must not see it."""
    fast = AnalyticField(lambda x, t: jnp.array([1.0, 0.0]) / jnp.where(x[0] > 0.5, 0.0, 1.0), 2)
    box = [[0.0, 0.0], [1.0, 1.0]]
    for walls in (
        clamping_boundary(box),
        reflective_boundary(box),
        periodic_boundary(box),
        absorbing_boundary(box),
    ):
        run = create_tracker("euler", fast, walls).track_particles([[0.2, 0.5]], (0.0, 1.0), 11)
        assert run.outcomes.tolist() == [Outcome.NOT_FINITE]
        assert 0.5 <= run.final[0, 0] <= 0.61
        assert not any(run.patch_counts.values())


def test_reductions_leave_stopped_particles_out() -> None:
    field = AnalyticField(hole, 2)
    for reduce in (histogram([[0.0, 0.0], [2.0, 1.0]], (4, 1)), Moments()):
        run = create_tracker("rk4", field, reduce=reduce).track_particles(
            [[0.5, 0.5], [0.9, 0.2]], (0.0, 1.0), 5, 0.05
        )
        leaves = jax.tree.leaves(run.reduced)
        assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert run.reduced["count"].tolist() == [2, 1, 1, 1, 1]
    assert run.end_times is not None  # also where no positions are kept
    np.testing.assert_allclose(run.end_times[0], 0.2, atol=0.051)


def test_files_and_facts_keep_the_outcome(tmp_path: Any) -> None:
    run = create_tracker("rk4", AnalyticField(hole, 2)).track_particles(
        [[0.5, 0.5], [0.9, 0.2]], (0.0, 1.0), 5, 0.05
    )
    for name in ("run.npz", "run.nc"):
        again = Trajectory.load(run.save(tmp_path / name))
        np.testing.assert_array_equal(again.outcomes, run.outcomes)
        np.testing.assert_array_equal(again.end_times, run.end_times)  # pyright: ignore[reportArgumentType]
        assert again.summary() == run.summary()


# --- ends to the moment within a step ---

BOX = [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("name", ["rk4", "euler", "midpoint", "dopri5", "inertial"])
def test_half_a_unit_of_time_is_half_a_unit_whatever_the_step(name: str) -> None:
    for dt in (0.2, 0.3, 0.07, 1.0):
        options: dict[str, Any] = {"relaxation_time": 0.1} if name == "inertial" else {}
        tracker = create_tracker(name, constant_flow([1.0, 0.0]), absorbing_boundary(BOX), **options)
        run = tracker.track_particles([[0.5, 0.5], [0.9, 0.5]], (0.0, 2.0), 3, dt, release_times=[0.0, 1.0])
        np.testing.assert_allclose(run.end_times, [0.5, 1.1], atol=1e-6)  # pyright: ignore
        np.testing.assert_allclose(run.ages[-1], [0.5, 0.1], atol=1e-6)  # pyright: ignore
        np.testing.assert_allclose(run.ages[1], [0.5, 0.0], atol=1e-6)  # pyright: ignore


def test_back_in_time_ends_are_exact_too() -> None:
    tracker = create_tracker("rk4", constant_flow([1.0, 0.0]), absorbing_boundary(BOX))
    run = tracker.track_particles([[0.5, 0.5]], (2.0, 0.0), 3, 0.3)
    np.testing.assert_allclose(run.end_times, [1.5], atol=1e-6)  # pyright: ignore
    np.testing.assert_allclose(run.ages[-1], [0.5], atol=1e-6)  # pyright: ignore


def errors(field: Any, walls: Any, start: Any, exact: Any, steps: Any) -> np.ndarray:
    """The greatest error of the ends' times, by the number of steps in two units of time."""
    found = []
    with jax.enable_x64(True):
        tracker = create_tracker("rk4", field(), walls())
        for count in steps:
            run = tracker.track_particles(np.asarray(start, np.float64), (0.0, 2.0), 2, 2.0 / count)
            assert (run.outcomes == Outcome.LEFT).all()
            found.append(np.abs(run.end_times - exact).max())  # pyright: ignore
    return np.array(found)


def orders(found: np.ndarray) -> np.ndarray:
    return np.log2(found[:-1] / found[1:])


def test_ends_are_found_with_order_three_at_straight_and_round_walls() -> None:
    """dx/dt = x leaves at x = 1 after log(1 / x); the chord alone would give order two."""
    start = np.stack([np.linspace(0.2, 0.9, 40), np.zeros(40)], -1)
    exact = np.log(1 / start[:, 0])
    grow = lambda: AnalyticField(lambda x, t: x, 2)  # noqa: E731
    for walls in (
        lambda: absorbing_boundary([[-1.0, -1.0], [1.0, 1.0]]),
        lambda: spherical_boundary((0.0, 0.0), 1.0, "absorbing"),
        lambda: composed_boundary(
            box_boundary([[-3.0, -3.0], [3.0, 3.0]], ["open", "periodic"]),
            absorbing_boundary([[-1.0, -1.0], [1.0, 1.0]]),
        ),
    ):
        found = errors(grow, walls, start, exact, (10, 20, 40, 80))
        assert (orders(found) > 2.7).all()
        assert found[-1] < 1e-6


def test_ends_in_a_turning_flow() -> None:
    """Solid rotation leaves a strip where sin(angle) says; paths are curved and meet the wall at an angle."""
    turn = lambda: AnalyticField(lambda x, t: jnp.stack([-x[1], x[0]]), 2)  # noqa: E731
    radius = np.linspace(0.8, 1.5, 30)
    start = np.stack([radius, np.zeros(30)], -1)
    found = errors(
        turn,
        lambda: box_boundary([[-9.0, -9.0], [9.0, 0.7]], [("open", "open"), ("open", "absorbing")]),
        start,
        np.arcsin(0.7 / radius),
        (16, 32, 64, 128),
    )
    assert orders(found).mean() > 2.6
    assert found[-1] < 2e-6


def test_a_random_walk_leaves_on_its_chord() -> None:
    """Its path within a step has no slope: the straight way decides, so that noise-free it is exact."""
    tracker = create_tracker(
        "euler_maruyama", constant_flow([1.0, 0.0]), absorbing_boundary(BOX), diffusivity=0.0
    )
    run = tracker.track_particles([[0.5, 0.5]], (0.0, 2.0), 3, 0.2)
    np.testing.assert_allclose(run.end_times, [0.5], atol=1e-6)  # pyright: ignore


def test_slots_of_an_inlet_keep_exact_ages() -> None:
    """A slot that waits for an inlet without particles tells for how long its last one lived."""
    walls = inlet_outlet_boundary_factory(BOX, rate=0.0)
    tracker = create_tracker("rk4", constant_flow([1.0, 0.0]), walls)
    run = tracker.track_particles([[0.5, 0.5], [0.13, 0.5]], (0.0, 2.0), 5, 0.2)
    np.testing.assert_allclose(run.ages[-1], [0.5, 0.87], atol=1e-6)  # pyright: ignore
    np.testing.assert_allclose(run.ages[1], [0.5, 0.5], atol=1e-6)  # pyright: ignore


def test_what_nobody_ends_at_keeps_no_shares() -> None:
    """Off means absent: a wall that ends nobody costs no array; one that does, alone or within others, has it."""
    box = [[0.0, 0.0], [1.0, 1.0]]
    post = spherical_boundary((0.5, 0.5), 0.1, side="outside")
    grid = bay()
    for walls, kept in (
        (None, False),
        (reflective_boundary(box), False),
        (composed_boundary(post, periodic_boundary(box)), False),
        (masked_walls(grid, "slip", "slip"), False),
        (inlet_outlet_boundary_factory(box), True),
        (composed_boundary(post, absorbing_boundary(box)), True),
        (masked_walls(grid, "slip"), True),
    ):
        motion = Motion(constant_flow([1.0, 0.0]), RK4(), walls or no_boundary(), jax.random.key(0))
        none = jnp.zeros(2, jnp.int32)
        assert (begin(motion, jnp.zeros((2, 2)), none, none, jnp.zeros(2)).share is not None) == kept


def test_who_runs_out_of_steps_says_when() -> None:
    """Place and time of the end belong together: dx/dt = 1 beside a swing that needs many steps."""
    fast = AnalyticField(lambda x, t: jnp.stack([1.0 + 0 * x[0], 300 * jnp.cos(300 * t)]), 2)
    tracker = create_tracker(field=fast, integrator=Dopri5(rtol=1e-6, atol=1e-7, max_steps=20))
    run = tracker.track_particles(np.array([[0.0, 0.5]]), (0.0, 1.0), 3)
    assert run.outcomes[0] == Outcome.STEP_LIMIT
    assert 0 < run.end_times[0] < 0.5  # pyright: ignore[reportOptionalSubscript]
    np.testing.assert_allclose(run.end_times[0], run.final[0, 0], rtol=1e-4)  # pyright: ignore


# --- seeds where nothing moves ---


def coast() -> TimeSeriesField:
    """The flow (0.2, 0.1) in the unit square, with land beyond x = 0.6 and y = 0.5."""
    land = np.zeros((10, 10), bool)
    land[6:, 5:] = True
    grid = UniformGrid((0.0, 0.0), (0.1, 0.1), (11, 11), mask=land)
    return TimeSeriesField(np.tile(np.array([0.2, 0.1], np.float32), (grid.size, 1)), grid=grid)


BEGAN = r"They stay where they are, with the outcome 'began outside the field or its boundary, or on land'"


@pytest.mark.parametrize("fused", [None, False])
def test_seeds_outside_or_on_land_are_counted_and_told(fused: bool | None) -> None:
    tracker = create_tracker("rk4", coast(), fused=fused)
    start = [[0.1, 0.1], [0.9, 0.9], [3.0, 3.0], [0.55, 0.1]]
    with pytest.warns(
        UserWarning, match=r"2 of 4 do not \(1 beyond \(0, 0\) to \(1, 1\), 1 on land.*" + BEGAN
    ):
        run = tracker.track_particles(start, (0.0, 3.0), 4, 0.5, release_times=[0.0, 1.0, 0.0, 0.0])
    began, left = Outcome.BEGAN_OUTSIDE, Outcome.OUTSIDE
    assert run.outcomes.tolist() == [Outcome.MOVING, began, began, left]
    np.testing.assert_array_equal(run.final[1:3], np.asarray(start, np.float32)[1:3])
    np.testing.assert_array_equal(run.end_times[1:3], [1.0, 0.0])  # pyright: ignore[reportOptionalSubscript]
    assert "2 began outside the field or its boundary, or on land" in run.summary()
    with pytest.raises(
        ValueError, match=r"none does \(1 beyond .*, 1 on land.*random_seeds\(n, bounds, inside=field\)"
    ):
        tracker.track_particles(start[1:3], (0.0, 1.0), 2)


@pytest.mark.parametrize("fused", [None, False])
def test_who_leaves_the_field_with_the_last_step_has_left_it(fused: bool | None) -> None:
    """Steps look at their beginning, so that the last one left particles outside "still moving"."""
    start = [[0.9, 0.2], [0.5, 0.1], [0.1, 0.1], [0.55, 0.5]]
    left, moving, late = Outcome.OUTSIDE, Outcome.MOVING, [0.0, 0.0, 1.0, 0.0]
    tracker = create_tracker("rk4", coast(), fused=fused)
    with pytest.warns(UserWarning, match="1 of 4 does not"):
        run = tracker.track_particles([*start[:3], [0.9, 0.9]], (0.0, 1.0), 3, 0.5, release_times=late)
    assert run.outcomes.tolist() == [left, moving, moving, Outcome.BEGAN_OUTSIDE]
    assert run.final[0, 0] > 1
    assert run.alive is not None
    assert run.alive[-1].tolist() == [False, True, True, False]
    onto_land = tracker.track_particles(start, (0.0, 0.5), 2, 0.5)
    assert onto_land.outcomes.tolist() == [moving, moving, moving, left]
    np.testing.assert_array_equal(onto_land.end_times, [np.nan, np.nan, np.nan, 0.5])  # pyright: ignore
    longer = tracker.track_particles(start, (0.0, 1.0), 3, 0.5)
    assert longer.outcomes[3] == left
    assert longer.end_times[3] == 0.5  # pyright: ignore[reportOptionalSubscript]
    field = coast()
    streamed = create_tracker("rk4", StreamedField(np.asarray(field.data), [0.0], field.grid), fused=fused)
    assert streamed.track_particles(start, (0.0, 0.5), 2, 0.5).outcomes[3] == left
    free = create_tracker("rk4", coast(), fused=fused, stop_outside=False)
    assert (free.track_particles(start, (0.0, 0.5), 2, 0.5).outcomes == moving).all()


def test_seeds_outside_a_wall_are_not_moved_inside() -> None:
    box = [[0.0, 0.0], [1.0, 1.0]]
    flow = constant_flow([0.1, 0.0])
    start = np.array([[0.5, 0.5], [3.0, 0.5], [-0.2, 0.5]])
    hits = {
        "reflective": reflective_boundary(box),
        "clamping": clamping_boundary(box),
        "absorbing": absorbing_boundary(box),
        "round": spherical_boundary((0.5, 0.5), 0.6),
        "composed": composed_boundary(
            box_boundary([[0.0, 0.0], [1.0, 1.0]], ["open", "periodic"]), reflective_boundary(box)
        ),
    }
    for walls in hits.values():
        with pytest.warns(
            UserWarning, match=r"2 of 3 do not, the first is number 1 at \(3, 0.5\)\. " + BEGAN
        ):
            run = create_tracker("rk4", flow, walls, reduce=Moments(), keep_positions=True).track_particles(
                start, (0.0, 1.0), 3, 0.5
            )
        np.testing.assert_allclose(run.final, [[0.6, 0.5], [3.0, 0.5], [-0.2, 0.5]], atol=1e-6)
        assert run.outcomes.tolist() == [Outcome.MOVING, Outcome.BEGAN_OUTSIDE, Outcome.BEGAN_OUTSIDE]
        assert run.reduced["count"].tolist() == [1, 1, 1]
        assert not any(run.patch_counts.values())
        with pytest.raises(
            ValueError, match=r"`initial_positions` must lie within `boundary_condition`.*none does"
        ):
            create_tracker("rk4", flow, walls).track_particles(start[1:], (0.0, 1.0), 2)


def test_where_seeds_are_free_nothing_is_said() -> None:
    """Beyond a period they are wrapped, beyond an open face free, on a face and off a plane without extent fine."""
    flow = constant_flow([0.1, 0.0])
    around = composed_boundary(
        box_boundary([[0.0, 0.0], [1.0, 1.0]], ["periodic", "open"]), spherical_boundary((0.5, 0.5), 0.7)
    )
    for walls, start in (
        (periodic_boundary([[0.0, 0.0], [1.0, 1.0]]), [[3.0, -2.0]]),
        (around, [[7.5, 0.5]]),
        (box_boundary([[0.1, 0.1], [0.7, 0.7]], ["open", "reflective"]), [[5.0, 0.7], [0.1, 0.1]]),
        (reflective_boundary([[0.0, 0.5], [1.0, 0.5]]), [[0.5, 9.0]]),
    ):
        run = create_tracker("rk4", flow, walls).track_particles(start, (0.0, 1.0), 2)
        assert (run.outcomes == Outcome.MOVING).all()


def test_an_inlet_fills_the_slots_of_seeds_outside() -> None:
    walls = inlet_outlet_boundary_factory([[0.0, 0.0], [1.0, 1.0]])
    with pytest.warns(UserWarning, match="1 of 2 does not.*the inlet fills their slots"):
        run = create_tracker("rk4", constant_flow([0.1, 0.0]), walls).track_particles(
            [[0.5, 0.5], [3.0, 0.5]], (0.0, 1.0), 3, 0.1
        )
    assert run.generation is not None
    assert run.generation[-1].tolist() == [0, 1]


def test_numbers_are_no_flags_of_inside() -> None:
    """NaN, as of a depth on land, counted as inside."""
    for numbers in (lambda x: x[:, 0] * np.nan, lambda x: x[:, 0] - 0.5):
        with pytest.raises(
            TypeError, match=r"`inside` must return flags.* got numbers of type float.*Compare them"
        ):
            seeding.random_seeds(10, [[0.0, 0.0], [1.0, 1.0]], inside=numbers)


@pytest.mark.parametrize("inside", ["field", "grid", "function"])
def test_seeds_are_drawn_in_water(inside: str) -> None:
    field, box = coast(), [[0.0, 0.0], [1.0, 1.0]]
    where: Any = {
        "field": field,
        "grid": field.grid,
        "function": lambda x: (x[:, 0] < 0.6) | (x[:, 1] < 0.5),
    }[inside]
    for n, found in (
        (200, seeding.random_seeds(200, box, inside=where)),
        (200, seeding.low_discrepancy_seeds(200, box, inside=where)),
        (200, seeding.ball_seeds((0.6, 0.5), 0.3, 200, inside=where)),
        (200, seeding.density_seeds(200, box, lambda x: x[0], inside=where)),
        (80, seeding.uniform_grid_seeds(10, box, False, inside=where)),
        (80, seeding.stratified_seeds(10, box, inside=where)),
        (30, seeding.line_seeds((0.0, 0.0), (1.0, 1.0), 50, inside=where)),
        (30, seeding.circle_seeds((0.6, 0.5), 0.2, 40, inside=where)),
        (80, seeding.rectangle_seeds((0.05, 0.05), (0.9, 0.0), (0.0, 0.9), 10, inside=where)),
    ):
        points = np.asarray(found)
        assert abs(len(points) - n) <= 1
        assert not ((points[:, 0] > 0.6 + 1e-6) & (points[:, 1] > 0.5 + 1e-6)).any()
    # An even cloud stays even, and the first points are those drawn without a condition.
    free = np.asarray(seeding.random_seeds(200, box))
    held = np.asarray(seeding.random_seeds(200, box, inside=where))
    wet = ~((free[:, 0] > 0.6) & (free[:, 1] > 0.5))
    np.testing.assert_array_equal(held[: wet.sum()], free[wet])


def test_refusals_of_inside_name_argument_demand_and_value() -> None:
    box = [[0.7, 0.7], [0.8, 0.8]]
    with pytest.raises(
        ValueError, match=r"`inside` must hold more of where seeds are drawn.*0 lie inside, and `n` is 10"
    ):
        seeding.random_seeds(10, box, inside=coast())
    with pytest.raises(ValueError, match=r"`inside` must hold some of the 4 seeds; it holds none"):
        seeding.uniform_grid_seeds(2, box, inside=coast())
    with pytest.raises(
        TypeError, match=r"`inside` must be a field, a grid, a boundary, or a function.*got str"
    ):
        seeding.random_seeds(10, box, inside="water")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"one flag for each of 10 points; got shape \(1,\)"):
        seeding.random_seeds(10, box, inside=lambda x: np.ones(1))


# --- coasts and open edges ---


def bay() -> UniformGrid:
    """The sea beyond a coast at x = 1 and around an island, with open edges at x = 4, y = 0 and y = 3."""
    land = np.zeros((40, 30), bool)
    land[:10] = True
    land[20:24, 12:18] = True
    return UniformGrid((0.0, 0.0), (0.1, 0.1), (41, 31), mask=land)


def drift(velocity: Any, walls: Any, start: Any, until: float = 3.0) -> Trajectory:
    grid = bay()
    field = TimeSeriesField(np.tile(np.float32(velocity), (grid.size, 1)), grid=grid)
    return create_tracker("rk4", field, walls).track_particles(start, (0.0, until), 4, 0.03)


@pytest.mark.parametrize("behaviour", ["slip", "stick", "bounce", "absorb"])
def test_coast_and_open_edge_are_two_patches_with_two_outcomes(behaviour: str) -> None:
    """To the west a coast, to the east the edge: one holds as it is told, over the other particles leave."""
    walls = masked_walls(bay(), behaviour)
    assert walls.patches == ("coast", "open_edge")
    west = drift([-0.5, 0.0], walls, [[2.0, 0.5], [1.5, 1.25]])
    east = drift([0.5, 0.0], walls, [[3.0, 0.5], [3.52, 2.5]])
    if behaviour == "absorb":
        assert west.outcomes.tolist() == [Outcome.STRANDED] * 2
        np.testing.assert_allclose(west.final, [[1.0, 0.5], [1.0, 1.25]], atol=1e-4)
        np.testing.assert_allclose(west.end_times, [2.0, 1.0], atol=1e-4)  # pyright: ignore
        assert west.patch_counts == {"coast": 2, "open_edge": 0}
    else:
        assert west.outcomes.tolist() == [Outcome.MOVING] * 2
        assert (west.final[:, 0] >= 1.0 - 1e-6).all()
        assert (west.final[:, 0] < 1.05).all()
        assert west.patch_counts["coast"] > 20
        assert west.patch_counts["open_edge"] == 0
    assert east.outcomes.tolist() == [Outcome.LEFT_EDGE] * 2
    np.testing.assert_allclose(east.final, [[4.0, 0.5], [4.0, 2.5]], atol=1e-4)
    np.testing.assert_allclose(east.end_times, [2.0, 0.96], atol=1e-4)  # pyright: ignore
    assert east.patch_counts == {"coast": 0, "open_edge": 2}
    assert [east.patch_names[patch] for patch in east.patches] == ["open_edge"] * 2
    assert "2 left over the open edge of the grid" in east.summary()


@pytest.mark.parametrize("open_edge", ["slip", "stick", "bounce"])
def test_an_open_edge_can_hold(open_edge: str) -> None:
    run = drift([0.5, 0.1], masked_walls(bay(), "absorb", open_edge), [[3.0, 0.5], [3.5, 2.0]])
    assert run.outcomes.tolist() == [Outcome.MOVING] * 2
    assert (run.final[:, 0] > 3.9).all()
    assert (run.final[:, 0] <= 4.0 + 1e-5).all()
    along = run.final[:, 1] - [0.5, 2.0]
    np.testing.assert_allclose(along, 0.0 + (0.2 if open_edge == "stick" else 0.3), atol=0.11)
    assert run.patch_counts["open_edge"] > 20


def test_who_slips_along_a_coast_leaves_over_the_edge_behind_it() -> None:
    """Coast and edge meet at (1, 3): held by the one, gone over the other."""
    run = drift([-0.5, 0.5], masked_walls(bay(), "slip"), [[1.2, 2.0]])
    assert run.outcomes.tolist() == [Outcome.LEFT_EDGE]
    np.testing.assert_allclose(run.final, [[1.0, 3.0]], atol=0.02)
    np.testing.assert_allclose(run.end_times, [2.0], atol=1e-3)  # pyright: ignore
    assert run.patch_counts["coast"] > 20
    assert run.patch_counts["open_edge"] == 1


def test_where_coast_and_edge_meet_nobody_ends_on_land() -> None:
    """A step that meets the coast before the edge slips along the coast, and leaves in the water beside it."""
    land = np.zeros((4, 4), bool)
    land[2, 3] = True  # reaches the edge at y = 4
    for grid in (
        UniformGrid((0.0, 0.0), (1.0, 1.0), (5, 5), mask=land),
        RectilinearGrid([np.arange(5.0), np.arange(5.0)], mask=land),
    ):
        for behaviour in ("slip", "bounce"):
            done = masked_walls(grid, behaviour)(jnp.array([1.9, 3.4]), jnp.array([2.4, 4.2]))
            np.testing.assert_allclose(done.position, [1.9, 4.0], atol=1e-5)
            assert (int(done.patch), done.hits.tolist()) == (1, [1, 1])
            np.testing.assert_allclose(done.share, 0.75, atol=1e-5)


def test_coasts_of_other_grids_and_of_no_mask() -> None:
    """Rectilinear grids tell both apart as well; a grid without land has an edge only."""
    land = np.zeros((4, 3), bool)
    land[0] = True
    axes = [np.array([0.0, 1.0, 1.5, 2.5, 4.0]), np.array([0.0, 1.0, 2.0, 3.0])]
    for grid, coast_at in ((RectilinearGrid(axes, mask=land), 1.0), (RectilinearGrid(axes), 0.0)):
        walls = masked_walls(grid, "absorb")
        step = jax.vmap(lambda old, new, walls=walls: walls(old, new))
        done = step(jnp.array([[1.2, 0.5], [3.9, 0.5]]), jnp.array([[-0.1, 0.5], [4.1, 0.5]]))
        assert done.patch.tolist() == [0 if coast_at else 1, 1]
        np.testing.assert_allclose(done.position, [[coast_at, 0.5], [4.0, 0.5]], atol=1e-5)
        np.testing.assert_allclose(done.share, [(1.2 - coast_at) / 1.3, 0.5], atol=1e-5)


def test_an_open_edge_is_refused_where_unknown() -> None:
    with pytest.raises(
        ValueError, match="`open_edge` must be one of 'leave', 'slip', 'stick', 'bounce'; got 'glue'"
    ):
        masked_walls(bay(), open_edge="glue")


# --- numbers that are none ---


def test_numbers_that_are_none_are_refused_where_they_are_given() -> None:
    box, nan, inf = [[0.0, 0.0], [1.0, 1.0]], np.nan, np.inf
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: spherical_boundary((0.0, 0.0), inf), "`radius` must be finite; got inf"),
        (lambda: seeding.circle_seeds((0.0, 0.0), inf, 3), "`radius` must be finite; got inf"),
        (lambda: seeding.ball_seeds((0.0, 0.0), nan, 3), "`radius` must be positive; got nan"),
        (
            lambda: inlet_outlet_boundary_factory(box, rate=inf),
            "`rate` must be at least 0 .* finite; got inf",
        ),
        (
            lambda: inlet_outlet_boundary_factory(box, inlet_distribution="gaussian", mean=[0.0, nan]),
            "`mean` must have 2 finite coordinates",
        ),
        (lambda: UniformGrid([nan, 0.0], [1.0, 1.0], (2, 2)), "`origin` must be finite"),
        (
            lambda: TimeSeriesField(
                np.full((4, 2), 1e6), grid=UniformGrid([0, 0], [1, 1], (2, 2)), dtype="float16"
            ),
            r"`data` must be finite in float16, whose greatest number is 65504; got up to 1e\+06",
        ),
    ]
    for make, message in refused:
        with pytest.raises(ValueError, match=message):
            make()


def test_nobody_is_born_where_a_function_gives_no_place() -> None:
    def place(words: jax.Array, left: jax.Array, slot: jax.Array) -> jax.Array:
        return jnp.where(slot % 2 == 0, jnp.nan, words[: left.shape[0]] * jnp.array([0.0, 1.0]))

    walls = inlet_outlet_boundary_factory(BOX, inlet_particle_generator=place)
    run = create_tracker("rk4", constant_flow([1.0, 0.0]), walls).track_particles(
        [[0.5, 0.5], [0.6, 0.5]], (0.0, 1.0), 3, 0.1
    )
    assert np.isfinite(np.asarray(run.positions)).all()
    assert run.generation is not None
    assert run.generation[-1].tolist() == [0, 1]
    assert run.info["inlet_missed"] > 0


def test_the_gpu_kernel_stops_where_the_velocity_overflows() -> None:
    """In Pallas' interpreter; XLA's code is its twin."""
    grid = UniformGrid([0.0, 0.0], [0.5, 0.5], (3, 3))
    data = np.tile(np.array([0.1, 0.0], np.float32), (1, 9, 1))
    data[:, 6:] = 3e38  # for x = 1: finite, but not the place it leads to
    field = TimeSeriesField(data, grid=grid).with_layout("cells")
    assert GPU.refusal(RK4(), field, no_boundary()) is None
    assert field.layout in GPU.layouts(field)
    start = jnp.array([[0.1, 0.5], [0.9, 0.5]])
    none = jnp.zeros(2, jnp.int32)
    before = KernelState(start, jnp.zeros_like(start), (), none, jnp.full(2, 99, jnp.int32), none - 1, None)
    after = fused_step(
        field,
        before,
        jnp.int32(7),
        jnp.float32(0),
        jnp.float32(1.0),
        outside=-2,
        not_finite=-4,
        interpret=True,
    )
    assert after.ended.tolist() == [99, 7]
    assert after.cause.tolist() == [-1, -4]
    np.testing.assert_array_equal(after.position[1], start[1])
    np.testing.assert_allclose(after.position[0], [0.2, 0.5], atol=1e-6)

"""The tracker: what it returns, that it does not matter how a run is cut, and what it says."""

import io
import itertools
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from rich.console import Console

from jaxtrace.fields import (
    AnalyticField,
    StreamedField,
    TimeSeriesField,
    UniformGrid,
    constant_flow,
    double_gyre,
    solid_rotation,
)
from jaxtrace.integrators import RK4, Dopri5, Milstein
from jaxtrace.tracking import Trajectory, checks, create_tracker, plan_schedule, simulate, uniform_grid_seeds
from jaxtrace.tracking.boundary import (
    continuous_inlet_boundary_factory,
    inlet_outlet_boundary_factory,
    periodic_boundary,
    reflective_boundary,
)
from jaxtrace.tracking.reductions import (
    AbstractReduction,
    MeanSquareDisplacement,
    Moments,
    count_in,
    histogram,
)
from jaxtrace.tracking.segment import Snapshot
from jaxworlds.compiling import no_recompile
from jaxworlds.rollout import Checkpoint
from jaxworlds.store import StoreError

pytestmark = pytest.mark.usefixtures("quick_compile")

BOX = [[0.0, 0.0], [1.0, 1.0]]
GYRE_BOX = [[0.3, 0.1], [1.7, 0.9]]  # smaller than the gyres, so that walls are met
TIMES = np.linspace(0.0, 2.0, 6)


def series(seed: int = 0, **options: Any) -> TimeSeriesField:
    """A rough flow in the unit square, weak enough to stay in it with walls."""
    draw = np.random.default_rng(seed)
    grid = UniformGrid([0.0, 0.0], [1 / 8, 1 / 8], (9, 9))
    data = 0.2 * draw.standard_normal((6, 81, 2))
    return TimeSeriesField(data.astype(np.float32), TIMES, grid=grid, **options)


def seeds(count: int = 40, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.31, 0.89, (count, 2)).astype(np.float32)


def walled(**options: Any) -> Any:
    """Two vortices in a box with mirrors; a function compiles faster than a series."""
    return create_tracker(field=double_gyre(1.0), boundary_condition=reflective_boundary(GYRE_BOX), **options)


# --- what comes out ---


def test_the_guides_call_moves_by_four_tenths() -> None:
    start = uniform_grid_seeds((30, 25, 10), [[0, 0, 0], [3, 2.5, 1]])
    tracker = create_tracker("rk4", constant_flow([0.1, 0.0, 0.0]), batch_size=len(start))
    result = tracker.track_particles(
        initial_positions=start, time_span=(0.0, 4.0), n_timesteps=1500, dt=0.005
    )
    assert result.positions is not None
    assert result.positions.shape == (1500, 7500, 3)
    np.testing.assert_allclose(result.final - np.asarray(start), [[0.4, 0, 0]] * 7500, atol=1e-6)
    np.testing.assert_array_equal(result.positions[0], start)
    np.testing.assert_allclose(result.times, np.linspace(0, 4, 1500))
    halfway = result.positions[750] - np.asarray(start)
    np.testing.assert_allclose(halfway[:, 0], 0.1 * result.times[750], atol=1e-6)
    assert result.outcome == "finished"
    assert result.alive is not None
    assert result.alive.all()
    np.testing.assert_allclose(result.ages[-1], 4.0)  # pyright: ignore[reportOptionalSubscript]
    np.testing.assert_array_equal(result.ids, np.arange(7500))
    assert "7,500 still moving" in result.summary()


def test_rk4_turns_a_solid_body_by_the_right_angle() -> None:
    tracker = create_tracker(field=solid_rotation(rate=2 * np.pi))
    result = tracker.track_particles(np.array([[1.0, 0.0], [0.0, 0.5]]), (0.0, 1.25), n_timesteps=6, dt=0.01)
    np.testing.assert_allclose(result.final, [[0.0, 1.0], [-0.5, 0.0]], atol=1e-5)
    np.testing.assert_allclose(result.positions[2], [[-1.0, 0.0], [0.0, -0.5]], atol=1e-5)  # pyright: ignore


def test_back_in_time_returns_to_the_seeds() -> None:
    tracker = create_tracker(field=double_gyre(1.0))
    there = tracker.track_particles(seeds(), (0.0, 2.0), n_timesteps=5, dt=0.01)
    back = tracker.track_particles(there.final, (2.0, 0.0), n_timesteps=5, dt=0.01)
    assert np.abs(there.final - seeds()).max() > 0.05
    np.testing.assert_allclose(back.final, seeds(), atol=1e-5)
    np.testing.assert_allclose(back.positions, there.positions[::-1], atol=1e-5)  # pyright: ignore
    np.testing.assert_allclose(back.times, there.times[::-1])
    assert (np.diff(back.ages[:, 0]) > 0).all()  # pyright: ignore[reportOptionalSubscript]


def test_velocities_are_the_fields_at_the_recorded_times() -> None:
    field = double_gyre(1.0)
    result = create_tracker(field=field, record_velocities=True).track_particles(seeds(), (0.2, 1.0), 4, 0.05)
    for number, t in enumerate(result.times):
        expected = field(result.positions[number], float(t))  # pyright: ignore[reportOptionalSubscript]
        np.testing.assert_allclose(result.velocities[number], expected, atol=2e-6)  # pyright: ignore


def test_ids_releases_and_names_come_back() -> None:
    names = np.array([f"p{i}" for i in range(3)])
    tracker = create_tracker(field=constant_flow([1.0, 0.0]))
    result = tracker.track_particles(
        np.zeros((3, 2)), (0.0, 1.0), 3, 0.1, ids=names, release_times=[0.0, 0.25, 1.0]
    )
    np.testing.assert_allclose(
        result.positions[:, :, 0], [[0, 0, 0], [0.5, 0.25, 0], [1, 0.75, 0]], atol=1e-6
    )  # pyright: ignore
    np.testing.assert_array_equal(result.alive, [[True, False, False], [True, True, False], [True] * 3])
    np.testing.assert_allclose(result.ages, [[0, 0, 0], [0.5, 0.25, 0], [1, 0.75, 0]])  # pyright: ignore
    np.testing.assert_array_equal(result.ids, names)
    np.testing.assert_array_equal(result.release_times, [0.0, 0.25, 1.0])


def test_plain_lists_integers_and_jax_arrays_are_accepted() -> None:
    tracker = create_tracker(field=constant_flow([1.0, 0.0]))
    for start in ([[0, 0], [1, 2]], np.array([[0, 0], [1, 2]]), jnp.array([[0.0, 0.0], [1.0, 2.0]])):
        np.testing.assert_allclose(
            tracker.track_particles(start, (0, 1), 2).final, [[1, 0], [2, 2]], atol=1e-6
        )


def test_double_precision_is_used_throughout() -> None:
    was = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_x64", True)
    try:
        tracker = create_tracker(field=solid_rotation(rate=2 * np.pi))
        result = tracker.track_particles(np.array([[1.0, 0.0]]), (0.0, 1.0), n_timesteps=2, dt=0.001)
        assert result.final.dtype == np.float64
        np.testing.assert_allclose(result.final, [[1.0, 0.0]], atol=1e-9)
    finally:
        jax.config.update("jax_enable_x64", was)


# --- however it is cut ---


def walk(**options: Any) -> Trajectory:
    tracker = walled(integrator_name="milstein", diffusivity=0.01, **options)
    return tracker.track_particles(seeds(), (0.0, 1.0), 4, 0.05)


def test_batches_give_the_bits_of_one_batch() -> None:
    whole, parts = walk(), walk(batch_size=13)
    np.testing.assert_array_equal(parts.positions, whole.positions)
    assert parts.patch_counts == whole.patch_counts
    assert (parts.info["batches"], whole.info["batches"]) == (4, 1)
    assert sum(whole.patch_counts.values()) > 0


def test_a_seed_decides_about_randomness() -> None:
    np.testing.assert_array_equal(walk().final, walk(seed=0).final)
    assert np.abs(walk().final - walk(seed=1).final).max() > 0.01


def test_a_streamed_field_gives_the_bits_of_a_resident_one() -> None:
    field = series()
    streamed = StreamedField(np.asarray(field.data), TIMES, grid=field.grid, resident=5)
    # Only the two ends are recorded, and yet no more than five slices are needed at a time.
    near_walls = (seeds() - 0.31) / 0.58
    results = [
        create_tracker(field=one, boundary_condition=reflective_boundary(BOX), layout="rows").track_particles(
            near_walls, (0.0, 2.0), 2, 0.05
        )
        for one in (field, streamed)
    ]
    np.testing.assert_array_equal(results[0].positions, results[1].positions)
    assert results[0].patch_counts == results[1].patch_counts
    assert sum(results[0].patch_counts.values()) > 5
    assert len(results[1]) == 2


def test_memory_limits_make_batches() -> None:
    many = np.random.default_rng(0).uniform(0, 1, (60_000, 2))
    report = create_tracker(field=constant_flow([1.0, 0.0]), memory_limit_gb=0.2).explain(len(many), 3)
    assert report.batches == 1
    tight = create_tracker(field=constant_flow([1.0, 0.0]), memory_limit_gb=0.15)
    report = tight.explain(len(many) * 10, 3)
    assert report.batches > 1
    assert report.batch_size * report.batches >= report.particles
    assert "most that fit" in report.batch_reason
    with pytest.raises(ValueError, match="memory"):
        create_tracker(field=constant_flow([1.0, 0.0]), memory_limit_gb=0.001).explain(1000, 3)


# --- interruption and resume ---


def _stopped(folder: Path, after: int, **options: Any) -> Trajectory:
    calls = []

    def callback(done: int, total: int) -> bool:
        calls.append((done, total))
        return len(calls) >= after

    tracker = walled(progress_callback=callback, **options)
    return tracker.track_particles(
        seeds(), (0.0, 2.0), 41, 0.05, checkpoint=Checkpoint(folder, every_seconds=0)
    )


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few recorded times, so that a small run has many."""
    monkeypatch.setattr("jaxtrace.tracking.chunks._CHUNK_STEPS_CPU", 400)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("batch_size", [None, 17])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(tmp_path: Path, batch_size: int | None) -> None:
    options = {"integrator_name": "milstein", "diffusivity": 0.01, "batch_size": batch_size}
    whole = walled(**options).track_particles(seeds(), (0.0, 2.0), 41, 0.05)
    part = _stopped(tmp_path, after=4, **options)
    assert part.outcome == "stopped"
    assert len(part) < 41 if batch_size is None else (part.outcomes == 5).any()
    np.testing.assert_array_equal(part.positions[:, :17], whole.positions[: len(part), :17])  # pyright: ignore
    result = walled(**options).track_particles(
        seeds(), (0.0, 2.0), 41, 0.05, checkpoint=tmp_path, resume=True
    )
    assert result.outcome == "finished"
    np.testing.assert_array_equal(result.positions, whole.positions)
    assert result.patch_counts == whole.patch_counts
    again = walled(**options).track_particles(seeds(), (0.0, 2.0), 41, 0.05, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(again.positions, whole.positions)  # a finished run is returned


@pytest.mark.usefixtures("short_chunks")
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path, after=2)
    for start, span in ((seeds(seed=5), (0.0, 2.0)), (seeds(), (0.0, 1.9))):
        with pytest.raises(StoreError, match=r"`checkpoint` .* belongs to another run: other seeds, times"):
            walled().track_particles(start, span, 41, 0.05, checkpoint=tmp_path, resume=True)
    with pytest.raises(StoreError, match="without a run"):
        walled().track_particles(seeds(), (0.0, 2.0), 41, 0.05, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="needs `checkpoint`"):
        walled().track_particles(seeds(), (0.0, 2.0), 41, 0.05, resume=True)


@pytest.mark.usefixtures("short_chunks")
def test_ctrl_c_returns_what_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    whole = walled(batch_size=17).track_particles(seeds(), (0.0, 2.0), 41, 0.05)

    pressed = []

    def press(done: int, total: int) -> None:
        if done > 0.4 * total and not pressed:
            pressed.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    part = walled(batch_size=17, progress_callback=press).track_particles(seeds(), (0.0, 2.0), 41, 0.05)
    assert part.outcome == "interrupted"
    assert len(part) == 41  # the first batch was finished
    np.testing.assert_array_equal(part.positions[:, :17], whole.positions[:, :17])  # pyright: ignore
    assert np.isnan(part.positions[-1, 17:]).all()  # pyright: ignore[reportOptionalSubscript]
    assert not part.alive[-1, 17:].any()  # pyright: ignore[reportOptionalSubscript]
    np.testing.assert_array_equal(part.positions[1, 17:34], whole.positions[1, 17:34])  # pyright: ignore
    assert part.outcome_names[part.outcomes[-1]] == "not computed before the run was interrupted"
    assert "stopping at the end" in capsys.readouterr().err


@pytest.mark.usefixtures("short_chunks")
def test_progress_counts_steps_of_all_batches() -> None:
    seen: list[tuple[int, int]] = []
    tracker = walled(batch_size=17, progress_callback=lambda done, total: seen.append((done, total)))
    tracker.track_particles(seeds(), (0.0, 2.0), 41, 0.05)
    assert seen[-1] == (120, 120)
    assert len(seen) > 4
    assert all(a[0] <= b[0] for a, b in itertools.pairwise(seen))


# --- reductions ---


def reduced(reduction: Any, **options: Any) -> Trajectory:
    return walled(reduce=reduction, **options).track_particles(seeds(), (0.0, 1.0), 5, 0.05)


def test_reductions_agree_with_the_positions() -> None:
    found = reduced(Moments(jnp.array([0.5, 0.5])), keep_positions=True)
    positions = found.positions
    assert positions is not None
    np.testing.assert_allclose(found.reduced["mean"], positions.mean(1), rtol=1e-5)
    np.testing.assert_allclose(found.reduced["covariance"][2], np.cov(positions[2].T, bias=True), rtol=1e-4)
    np.testing.assert_array_equal(found.reduced["count"], 40)
    # In batches of 13 the last one is filled up with particles that must not count.
    kept = reduced(histogram(GYRE_BOX, (4, 3)), batch_size=13)
    assert kept.positions is None
    expected = [np.histogramdd(x, (4, 3), [(0.3, 1.7), (0.1, 0.9)])[0] for x in positions]
    np.testing.assert_array_equal(kept.reduced, expected)
    spread = reduced(MeanSquareDisplacement(jnp.asarray(seeds())), batch_size=13)
    np.testing.assert_allclose(spread.reduced, ((positions - seeds()) ** 2).mean(1), rtol=1e-4, atol=1e-9)
    inside = reduced(count_in([[0, 0], [0.5, 1]]))
    np.testing.assert_array_equal(inside.reduced, (positions[:, :, 0] <= 0.5).sum(1))


def test_moments_far_from_the_origin_keep_their_digits() -> None:
    """Squares of 6,600 km leave nothing of 100 m in single precision."""
    far = np.float32(seeds() * 100 + [5e5, 6.6e6])
    found = create_tracker(field=constant_flow([0.5, 0.5]), reduce=Moments(), keep_positions=True)
    run = found.track_particles(far, (0.0, 8.0), 3)
    assert run.positions is not None
    exact = run.positions[-1].astype(float)
    np.testing.assert_allclose(run.reduced["mean"][-1], exact.mean(0), rtol=1e-7)
    np.testing.assert_allclose(run.reduced["covariance"][-1], np.cov(exact.T, bias=True), rtol=1e-3, atol=1.0)


def test_steps_that_large_positions_swallow_are_told() -> None:
    """0.2 m beside 6,600 km, known to 0.5 m, is nothing in single precision; RK4 keeps what is lost."""
    grid = UniformGrid([5e5, 6.6e6], [100.0, 100.0], (5, 5))
    field, start = TimeSeriesField(np.full((25, 2), 0.2, "f4"), grid=grid), [[500_100.0, 6_600_100.0]]
    moved = create_tracker("rk4", field).track_particles(start, (0.0, 100.0), dt=1.0, record_every=100)
    np.testing.assert_allclose(moved.final - start, [[20.0, 20.0]], atol=0.5)
    for name, options in (("dopri5", {}), ("euler_maruyama", {"diffusivity": 1e-4})):
        with pytest.warns(
            UserWarning, match=r"up to 6.6e\+06 are known to 0.5 in float32, and .* lost in rounding"
        ):
            create_tracker(name, field, **options).track_particles(start, (0.0, 2.0), dt=1.0)
    create_tracker("dopri5", field).track_particles(start, (0.0, 200.0), dt=100.0)
    create_tracker("euler_maruyama", field, diffusivity=1.0).track_particles(start, (0.0, 2.0), dt=1.0)


def test_a_displacement_needs_the_place_where_each_particle_began() -> None:
    with pytest.raises(
        ValueError, match=r"`seeds` of MeanSquareDisplacement must have shape \(40, 2\).*got \(8, 2\)"
    ):
        reduced(MeanSquareDisplacement(jnp.asarray(seeds(8))))
    spread = MeanSquareDisplacement(jnp.asarray(seeds()))
    inlet = inlet_outlet_boundary_factory([[0, 0], [2, 1]])
    flow = constant_flow([1.0, 0.0])
    with pytest.raises(ValueError, match="MeanSquareDisplacement where an inlet fills slots"):
        create_tracker("rk4", flow, inlet, reduce=spread).track_particles(seeds(), (0.0, 1.0), 3)
    around = create_tracker("rk4", flow, periodic_boundary([[0, 0], [2, 1]]), reduce=spread)
    with pytest.warns(UserWarning, match="distances beyond half a period are too short"):
        around.track_particles(seeds(), (0.0, 0.1), 2)


def test_a_plain_function_reduces_one_batch_and_no_more() -> None:
    def rightmost(snapshot: Snapshot) -> Array:
        return jnp.where(snapshot.moving, snapshot.position[:, 0], -jnp.inf).max()

    found = reduced(rightmost, keep_positions=True)
    np.testing.assert_array_equal(found.reduced, found.positions[:, :, 0].max(1))  # pyright: ignore
    with pytest.raises(ValueError, match="whose parts add up, for 4 batches"):
        reduced(rightmost, batch_size=10)


def test_a_reduction_sees_velocities_where_they_are_recorded() -> None:
    class Energy(AbstractReduction):
        def __call__(self, snapshot: Snapshot) -> Array:
            assert snapshot.velocity is not None
            return jnp.where(snapshot.moving, (snapshot.velocity**2).sum(-1), 0.0).sum()

    tracker = create_tracker(field=constant_flow([3.0, 4.0]), reduce=Energy(), record_velocities=True)
    np.testing.assert_allclose(tracker.track_particles(seeds(8), (0.0, 1.0), 3).reduced, [200.0] * 3)


# --- the pure function ---


def test_simulate_takes_the_trackers_steps_bit_for_bit() -> None:
    releases = np.where(np.arange(40) < 5, 0.33, 0.0)
    plan = walled().plan((0.0, 1.0), 3, 0.1, particles=40, release_times=releases)
    assert plan.steps_per_record[0] != plan.steps_per_record[1]
    field, walls = double_gyre(1.0), reflective_boundary(GYRE_BOX)
    positions, particles = jax.jit(lambda x: simulate(field, RK4(), walls, x, plan))(jnp.asarray(seeds()))
    result = walled().track_particles(seeds(), (0.0, 1.0), 3, 0.1, release_times=releases)
    np.testing.assert_array_equal(positions, result.positions)
    np.testing.assert_array_equal(particles.position, result.final)


def test_gradients_agree_with_the_closed_form() -> None:
    """dx/dt = a x: the end is exp(a t) x, its derivatives exp(a t) and t exp(a t) x."""

    plan = plan_schedule((0.0, 1.0), 3, 0.05, particles=2)

    def end(rate: Array, x: Array) -> Array:
        field = AnalyticField(lambda x, t, rate: rate * x, 1, rate)
        return simulate(field, RK4(), None, x, plan, checkpointed=True)[0][-1].sum()

    start = jnp.array([[1.0], [2.0]])
    rate = jnp.asarray(0.3)
    by_rate, by_seed = jax.grad(end, (0, 1))(rate, start)
    np.testing.assert_allclose(by_seed, np.exp(0.3), rtol=1e-6)
    np.testing.assert_allclose(by_rate, 3 * np.exp(0.3), rtol=1e-6)
    _, tangent = jax.jvp(lambda r: end(r, start), (rate,), (jnp.ones(()),))
    np.testing.assert_allclose(tangent, 3 * np.exp(0.3), rtol=1e-6)


def test_gradients_reach_field_values_and_diffusivity() -> None:
    field = series(time_interpolation="linear")
    plan = plan_schedule((0.0, 0.4), 2, 0.1, particles=3)
    start = jnp.asarray(seeds(3))

    def end(data: Array, diffusivity: Array) -> Array:
        walk = Milstein(diffusivity)
        positions, _ = simulate(
            field.replace(data=data), walk, None, start, plan, key=jax.random.key(3), stop_outside=False
        )
        return (positions[-1] ** 2).sum()

    value = jax.jit(end)
    diffusivity, draw = jnp.asarray(0.01), np.random.default_rng(2)
    by_data, by_diffusivity = jax.jit(jax.grad(end, (0, 1)))(field.data, diffusivity)
    assert np.isfinite(by_data).all()
    change = jnp.asarray(3e-3 * draw.standard_normal(field.data.shape), jnp.float32)
    rise = value(field.data + change, diffusivity) - value(field.data - change, diffusivity)
    np.testing.assert_allclose(2 * jnp.vdot(by_data, change), rise, rtol=1e-2)
    rise = value(field.data, diffusivity + 1e-4) - value(field.data, diffusivity - 1e-4)
    np.testing.assert_allclose(2e-4 * by_diffusivity, rise, rtol=2e-2)


# --- what is said ---


def test_explain_says_what_a_series_will_meet() -> None:
    tracker = create_tracker(field=series(), boundary_condition=reflective_boundary(BOX))
    report = tracker.explain(100, n_timesteps=11, time_span=(0.0, 2.0), dt=0.05)
    assert (report.recorded_times, report.steps, report.steps_per_record) == (11, 40, (4, 4))
    assert report.slices_met == 4
    assert report.layout == "rows"
    assert report.field_bytes > 6 * 81 * 2 * 4
    assert not report.compiled
    assert "not yet" in str(report)
    assert create_tracker(field=series(), layout="direct").explain(100, 11).layout_reason == "as given"
    assert (
        create_tracker(field=series()).explain(1, 11).layout == "direct"
    )  # one particle reads what it needs
    streamed = StreamedField(np.asarray(series().data), TIMES, grid=series().grid)
    ring = create_tracker(field=streamed).explain(100, 11, (0.0, 2.0), 0.05).ring
    assert ring is not None
    assert "of 6 slices on the device" in ring


def test_compile_compiles_what_a_run_needs() -> None:
    tracker = walled()
    assert not tracker.compiled
    after = tracker.compile(40, n_timesteps=12, time_span=(0.0, 1.5), dt=0.05)
    assert after.compiled
    assert after.compile_seconds is not None
    assert after.compile_seconds > 0
    with no_recompile(allow_eager=True):
        tracker.track_particles(seeds(), (0.0, 1.5), 12, 0.05)
    assert tracker.explain().compiled
    assert tracker.explain().particles == 40
    page = io.StringIO()
    Console(width=200, file=page).print(tracker.explain())
    assert "slice times met" in page.getvalue()


def test_the_old_recipe_runs_and_is_said_once_to_be_unnecessary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_said", set())
    tracker = walled(batch_size=8)
    with pytest.warns(UserWarning, match="unnecessary"):
        step = tracker._compiled_step
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulated = tracker._compiled_simulate
        assert tracker._compiled_step is step
    assert isinstance(step.executable, jax.stages.Compiled)
    assert isinstance(simulated.executable, jax.stages.Compiled)
    assert "while" in simulated.executable.as_text()
    with pytest.warns(UserWarning, match="`use_jax_jit=False` has no effect"):
        create_tracker(field=series(), use_jax_jit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_tracker(field=series(), use_jax_jit=False)
        create_tracker(
            field=series(),
            use_jax_jit=True,
            static_compilation=True,
            use_scan_jit=True,
            device_put_inputs=True,
        )


def test_times_beyond_the_field_are_said_or_refused() -> None:
    with pytest.warns(UserWarning, match="last slice holds"):
        create_tracker(field=series()).explain(3, 3, (0.0, 2.5))
    strict = series(extrapolation="outside")
    with pytest.raises(ValueError, match="0 to 2"):
        create_tracker(field=strict).track_particles(seeds(3), (0.0, 2.5), 3, 0.1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: create_tracker(), "`field` must be given"),
        (lambda: create_tracker(field=lambda x: x), "AnalyticField"),
        (lambda: create_tracker("rk4", series(), batchsize=3), "`batchsize` is known neither"),
        (lambda: create_tracker("dopri5", series(), tol=3), "rtol, atol"),
        (lambda: create_tracker("rk5", series()), "`integrator_name` must be one of"),
        (lambda: create_tracker("euler", series(), integrator=RK4()), "both name"),
        (lambda: create_tracker(field=series(), boundary_condition=lambda x: x), "boundary"),
        (lambda: create_tracker(field=series(), batch_size=0), "at least 1"),
        (lambda: create_tracker(field=constant_flow([1.0]), layout="rows").explain(5, 3), "no slices"),
        (
            lambda: create_tracker("euler", series(), fused=True, layout="rows").explain(5, 3),
            "`fused` must be False",
        ),
        (lambda: walled().track_particles(np.zeros((3, 3)), (0, 1), 3), r"\(particles, 2\)"),
        (lambda: walled().track_particles(np.full((3, 2), np.nan), (0, 1), 3), "finite; 3 of 3"),
        (lambda: walled().track_particles(seeds(3), (0, 1), 3, ids=[1, 1, 2]), "different"),
        (
            lambda: create_tracker("inertial", series(), relaxation_time=0.1).track_particles(
                seeds(3), (1, 0), 3
            ),
            "cannot go back",
        ),
    ],
)
def test_wrong_use_is_refused_at_once(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_an_inlet_keeps_its_stream_in_batches() -> None:
    inlet = continuous_inlet_boundary_factory(BOX)
    results = [
        create_tracker(
            field=constant_flow([1.0, 0.1]), boundary_condition=inlet, batch_size=size
        ).track_particles(seeds(), (0.0, 3.0), 7, 0.05)
        for size in (None, 17)
    ]
    np.testing.assert_array_equal(results[0].positions, results[1].positions)
    np.testing.assert_array_equal(results[0].generation, results[1].generation)
    assert results[0].generation is not None
    assert (results[0].generation[-1] >= 2).all()


def test_adaptive_steps_agree_with_small_ones() -> None:
    fine = create_tracker(field=double_gyre(1.0)).track_particles(seeds(), (0.0, 1.0), 3, 0.005)
    adaptive = create_tracker(field=double_gyre(1.0), integrator=Dopri5(rtol=1e-6, atol=1e-7))
    free = adaptive.track_particles(seeds(), (0.0, 1.0), 3)
    assert free.info["steps"] == 2
    np.testing.assert_allclose(free.final, fine.final, atol=1e-4)

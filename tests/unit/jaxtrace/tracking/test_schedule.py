"""The schedule: which times are computed, recorded and met, and what is refused."""

import datetime

import numpy as np
import pytest

from jaxtrace.fields import StreamedField, UniformGrid
from jaxtrace.tracking.checks import checked_span
from jaxtrace.tracking.chunks import bucket, plan_chunks, segment_edges
from jaxtrace.tracking.schedule import plan_schedule
from jaxworlds.arguments import demand_no_dates

SLICES = np.linspace(0.0, 2.0, 6)


def steps(plan: object) -> np.ndarray:
    return np.diff(plan.edges)  # pyright: ignore[reportAttributeAccessIssue]


def test_the_guides_call_records_1500_times_from_end_to_end() -> None:
    plan = plan_schedule((0.0, 4.0), n_timesteps=1500, dt=0.005)
    assert plan.times[0] == 0.0
    assert plan.times[-1] == 4.0
    assert len(plan.times) == 1500
    assert plan.steps == 1499
    np.testing.assert_allclose(steps(plan), 4 / 1499, rtol=1e-12)


def test_recorded_times_are_edges_and_no_step_exceeds_dt() -> None:
    plan = plan_schedule((0.3, 1.7), n_timesteps=4, dt=0.1)
    np.testing.assert_array_equal(plan.edges[plan.marks], plan.times)
    np.testing.assert_allclose(plan.times, np.linspace(0.3, 1.7, 4))
    assert steps(plan).max() <= 0.1 * (1 + 1e-12)
    assert plan.steps == 3 * 5
    assert plan.steps_per_record == (5, 5)


def test_a_whole_number_of_steps_is_not_one_more_by_rounding() -> None:
    assert plan_schedule((0.0, 1.0), n_timesteps=2, dt=0.1).steps == 10
    assert plan_schedule((0.0, 0.3), n_timesteps=4, dt=0.1).steps == 3


def test_steps_end_on_slice_times() -> None:
    plan = plan_schedule((0.1, 1.9), n_timesteps=3, dt=0.3, slice_times=SLICES)
    inner = SLICES[(SLICES > 0.1) & (SLICES < 1.9)]
    assert np.isin(inner, plan.edges).all()
    assert plan.slices_met == len(inner) == 4
    free = plan_schedule((0.1, 1.9), n_timesteps=3, dt=0.25, slice_times=SLICES, land_on_slices=False)
    assert free.slices_met == 0
    assert free.steps == 8


def test_slices_in_single_precision_make_no_tiny_steps() -> None:
    rounded = SLICES.astype(np.float32).astype(np.float64)
    plan = plan_schedule((0.0, 2.0), n_timesteps=11, dt=0.1, slice_times=rounded)
    assert plan.steps == 20
    assert plan.slices_met == 4


def test_back_in_time_edges_fall() -> None:
    plan = plan_schedule((2.0, 0.0), n_timesteps=5, dt=0.3, slice_times=SLICES)
    assert plan.backward
    assert (steps(plan) < 0).all()
    assert steps(plan).min() >= -0.3 * (1 + 1e-12)
    np.testing.assert_array_equal(plan.edges[plan.marks], np.linspace(2.0, 0.0, 5))
    assert plan.slices_met == 4


def test_defaults_of_dt_say_where_they_come_from() -> None:
    assert plan_schedule((0.0, 1.0), n_timesteps=5).dt == 0.25
    series = plan_schedule((0.0, 2.0), n_timesteps=2, slice_times=SLICES)
    assert series.dt == pytest.approx(0.4 / 20)
    assert "20th" in series.reason
    whole = plan_schedule((0.0, 2.0), n_timesteps=3, slice_times=SLICES, whole_intervals=True)
    assert whole.dt == 1.0
    assert whole.steps == 6  # cut at the four inner slices


def test_without_n_timesteps_every_step_is_recorded_or_every_kth() -> None:
    plan = plan_schedule((0.0, 1.0), dt=0.3)
    np.testing.assert_allclose(plan.times, np.linspace(0, 1, 5))
    assert plan.steps == 4
    third = plan_schedule((0.0, 1.0), dt=0.3, record_every=3)
    assert (third.steps, len(third.times)) == (6, 3)
    assert third.times[-1] == 1.0


def test_releases_become_edges_where_they_are_few() -> None:
    wanted = [0.0, 0.13, 0.13, 0.77, 1.0]
    plan = plan_schedule((0.0, 1.0), n_timesteps=3, dt=0.25, release_times=wanted, particles=5)
    np.testing.assert_array_equal(plan.release_times, wanted)
    np.testing.assert_array_equal(plan.edges[plan.releases], wanted)
    assert plan.releases[0] == 0
    assert plan.releases[-1] == plan.steps


def test_many_releases_are_rounded_to_the_next_edge_and_said() -> None:
    wanted = np.linspace(0.0, 1.0, 1001)
    plan = plan_schedule((0.0, 1.0), n_timesteps=2, dt=0.1, release_times=wanted, particles=1001)
    assert plan.steps == 10
    assert (plan.release_times >= wanted - 1e-6).all()
    assert (plan.release_times - wanted).max() < 0.1
    np.testing.assert_allclose(plan.release_times[100], 0.1)  # one that is an edge already
    back = plan_schedule((1.0, 0.0), n_timesteps=2, dt=0.1, release_times=wanted, particles=1001)
    assert (back.release_times <= wanted + 1e-6).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"time_span": (0.0, 1.0), "n_timesteps": 1, "dt": 0.1}, "at least 2"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 5, "dt": 0.0}, "positive"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 5, "dt": -0.1}, "smaller end"),
        ({"time_span": (1.0, 1.0), "n_timesteps": 5}, "begins and ends at 1.0"),
        ({"time_span": (0.0, np.inf), "n_timesteps": 5}, "finite"),
        ({"time_span": (0.0, 1.0)}, "got neither"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 3, "dt": 2.0}, "length of `time_span`, 1; got 2"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 3, "record_every": 2}, "both say"),
        ({"time_span": (0.0, 1.0), "dt": 0.1, "record_every": 0}, "at least 1"),
        ({"time_span": (1e6, 1e6 + 1), "n_timesteps": 3, "dt": 0.1}, "Subtract an origin"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 3, "release_times": [0.0, 2.0]}, "particle 1 at 2"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 3, "release_times": [0.0]}, "each of the 2 particles"),
        ({"time_span": (0.0, 1.0), "n_timesteps": 2, "dt": 1e-12}, "resolution"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan_schedule(**arguments, particles=2)


def test_releases_in_single_precision_may_end_with_the_span() -> None:
    wanted = np.linspace(0.0, 0.1, 4, dtype=np.float32)  # the last is 0.1 + 1.5e-9
    plan = plan_schedule((0.0, 0.1), n_timesteps=3, release_times=wanted, particles=4)
    assert plan.release_times[-1] == 0.1
    assert plan_schedule((0.1, 0.0), n_timesteps=3, release_times=wanted, particles=4).releases[-1] == 0


DAYS = np.datetime64("2024-03-01") + np.arange(2)


@pytest.mark.parametrize(
    "dates", [DAYS, DAYS - DAYS[0], DAYS.astype("datetime64[s]").astype(datetime.datetime)]
)
def test_dates_are_refused_where_no_date_of_time_0_is_known(dates: np.ndarray) -> None:
    calls = [  # those that take anything; types are checked in tests before a call of the others
        ("time_span", lambda: checked_span(dates)),
        ("release_times", lambda: plan_schedule((0.0, 1.0), 3, release_times=dates, particles=2)),
        ("dt", lambda: demand_no_dates(dates[0], "dt")),
    ]
    for name, call in calls:
        with pytest.raises(TypeError, match=rf"`{name}` must be numbers.*np\.timedelta64\(1, 's'\)"):
            call()


def test_spans_of_time_are_no_dates_of_slices() -> None:
    grid, data = UniformGrid((0.0, 0.0), (1.0, 1.0), (2, 2)), np.zeros((2, 4, 2))
    with pytest.raises(TypeError, match=r"`times` must be numbers.*np\.timedelta64\(1, 's'\)"):
        StreamedField(data, DAYS - DAYS[0], grid)


def test_units_cover_the_steps_once_and_end_on_records() -> None:
    plan = plan_schedule((0.0, 2.0), n_timesteps=7, dt=0.013, slice_times=SLICES)
    for batch in (1, 100_000, 10_000_000):
        chunks = plan_chunks(plan, batch, 12 * batch)
        ends = segment_edges(plan, chunks.parts, chunks.table)
        assert (np.diff(ends) >= 0).all()
        np.testing.assert_array_equal(ends[chunks.parts - 1 :: chunks.parts][:7], plan.marks)
        assert ends[-1] == ends[-2] == plan.steps  # the last unit is empty
        assert chunks.segments % chunks.chunk == 0
        assert chunks.chunk % chunks.parts == 0
        assert chunks.segments >= 7 * chunks.parts
        times = chunks.times_of(0, chunks.segments // chunks.every)
        np.testing.assert_array_equal(times[:7], np.arange(7))
    assert chunks.parts > 1  # ten million particles: a unit of all steps would be too long to stop


def test_similar_runs_share_the_sizes_of_a_program() -> None:
    many, some = (
        plan_chunks(plan_schedule((0.0, 1.0), n_timesteps=n, dt=1.0), 1000, 12_000) for n in (1500, 1490)
    )
    assert (many.chunk, many.rows, many.table) == (some.chunk, some.rows, some.table)
    assert [bucket(count) for count in (1, 7, 9, 17, 1000, 1025)] == [1, 7, 9, 18, 1024, 1152]

"""Pictures of trajectories: what is drawn is read back from the figures and files, piece by piece."""

import base64
import dataclasses
import inspect
import itertools
import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from jaxtrace.fields import TimeSeriesField, UniformGrid, linear_flow
from jaxtrace.tracking.boundary import (
    box_boundary,
    composed_boundary,
    cylindrical_boundary,
    inlet_outlet_boundary_factory,
    periodic_boundary,
    spherical_boundary,
)
from jaxtrace.tracking.particles import Outcome
from jaxtrace.tracking.trajectory import Trajectory
from jaxtrace.visualization import (
    animate,
    player_html,
    plot_paths,
    plot_positions,
    plot_speed,
    terminal_picture,
)
from jaxtrace.visualization.fields import speed_raster
from jaxtrace.visualization.outlines import outlines, periods_of
from jaxtrace.visualization.shown import interruptions, particle_numbers, select

pytestmark = pytest.mark.usefixtures("quick_compile")


def trajectory_of(positions: Any, **changes: Any) -> Trajectory:
    """A trajectory through given positions (times, particles, dim), one unit of time apart, all alive."""
    places = np.asarray(positions, np.float32)
    count, particles = places.shape[:2]
    ages = np.repeat(np.arange(count, dtype=np.float32)[:, None], particles, axis=1)
    facts = {
        "positions": places,
        "times": np.arange(count, dtype=np.float64),
        "ids": np.arange(particles),
        "alive": np.ones((count, particles), bool),
        "ages": ages,
        "release_times": np.zeros(particles),
        "outcomes": np.zeros(particles, np.int8),
        "patches": np.full(particles, -1, np.int32),
        "patch_names": ("x_min", "x_max"),
    }
    return Trajectory(**{**facts, **changes})


def straight(particles: int = 5, times: int = 11, velocity: tuple[float, ...] = (0.1, 0.02)) -> Trajectory:
    """Particles abreast in a constant flow."""
    start = np.zeros((particles, len(velocity)))
    start[:, 1] = np.arange(particles)
    return trajectory_of(start + np.arange(times)[:, None, None] * np.array(velocity))


def wrapped(times: int = 40) -> Trajectory:
    """Three particles that go round and round in a unit square."""
    way = np.array([[0.04, 0.0], [-0.05, 0.03], [0.0, 0.045]])
    return trajectory_of(np.mod(0.5 + np.arange(times)[:, None, None] * way, 1.0))


def pieces(figure: Figure) -> np.ndarray:
    """The ends (pieces, 2, axes) of all pieces of paths in a figure."""
    (lines,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    return np.array(lines.get_segments())


def dots(figure: Figure) -> list[np.ndarray]:
    """The offsets of every scatter in a figure."""
    return [np.asarray(c.get_offsets()) for c in figure.axes[0].collections if isinstance(c, PathCollection)]


# Which particles


def test_as_many_particles_are_chosen_as_asked_and_evenly() -> None:
    chosen = particle_numbers(7500, None, 600)
    assert len(chosen) == len(set(chosen.tolist())) == 600
    per_tenth = np.histogram(chosen, bins=10, range=(0, 7500))[0]
    assert per_tenth.min() >= 59
    assert per_tenth.max() <= 61
    # Of a lattice (30, 25, 10) of seeds every row, column and layer is seen alike.
    layers, columns = np.bincount(chosen % 10), np.bincount(chosen // 10 % 25)
    assert len(layers) == 10
    assert layers.min() >= 55
    assert len(columns) == 25
    assert columns.min() >= 20


def test_every_and_few_particles_are_taken_as_they_are() -> None:
    assert particle_numbers(10, 3, 2).tolist() == [0, 3, 6, 9]
    assert particle_numbers(4, None, 600).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="`every` must be at least 1; got 0"):
        particle_numbers(10, 0, 2)


# Where paths are interrupted


def test_paths_are_interrupted_exactly_where_a_period_is_passed() -> None:
    found = wrapped()
    assert found.positions is not None
    passed = (np.abs(np.diff(found.positions, axis=0)) > 0.5).any(axis=-1)
    assert passed.sum() == 7
    none = np.zeros_like(passed)
    by_rule = interruptions(found.positions.astype(float), none)
    np.testing.assert_array_equal(by_rule, passed)
    np.testing.assert_array_equal(
        interruptions(found.positions.astype(float), none, np.array([1.0, np.inf])),
        np.abs(np.diff(found.positions[..., 0], axis=0)) > 0.5,
    )


def test_long_steps_of_a_straight_path_are_no_periods() -> None:
    """Two recorded times: every way is the whole extent, and none of them is a jump."""
    found = straight(times=2, velocity=(3.0, 1.0))
    shown = select(found, "speed", most=10)
    assert shown.joined.all()


def test_a_slot_with_a_new_particle_begins_a_new_path() -> None:
    found = straight(particles=2)
    generation = np.zeros((11, 2), np.int32)
    generation[6:, 1] = 1
    joined = select(dataclasses.replace(found, generation=generation), "speed", most=10).joined
    assert joined[:, 0].all()
    assert np.flatnonzero(~joined[:, 1]).tolist() == [5]
    # Without generations a birth is seen from an age that falls.
    assert found.ages is not None
    ages = found.ages.copy()
    ages[6:, 1] -= 6
    joined = select(dataclasses.replace(found, ages=ages), "speed", most=10).joined
    assert np.flatnonzero(~joined[:, 1]).tolist() == [5]


def test_times_left_out_keep_interruptions_and_ends() -> None:
    found = straight(particles=1, times=101)
    generation = np.zeros((101, 1), np.int32)
    generation[34:] = 1
    shown = select(dataclasses.replace(found, generation=generation), "speed", most=10, times=11)
    assert shown.times.tolist() == list(range(0, 101, 10))
    assert np.flatnonzero(~shown.joined[:, 0]).tolist() == [3], "between the times 30 and 40"


# Values


def test_speeds_come_from_ways_or_from_recorded_velocities() -> None:
    found = straight(velocity=(0.3, 0.4))
    np.testing.assert_allclose(select(found, "speed", most=10).values, 0.5, rtol=1e-5)
    np.testing.assert_allclose(
        select(wrapped(), "speed", most=10).values[:, 0], 0.04, rtol=1e-4, err_msg="not across a period"
    )
    told = dataclasses.replace(found, velocities=np.full((11, 5, 2), 3.0, np.float32))
    np.testing.assert_allclose(select(told, "speed", most=10).values, np.sqrt(18), rtol=1e-6)


def test_speeds_of_particles_that_begin_or_end_between_recorded_times() -> None:
    ages = np.array([[0, 0], [1, 0.25], [1.5, 1.25], [1.5, 2.25]], np.float32)  # one ends, the other waits
    found = trajectory_of(np.stack([0.4 * ages, 0 * ages], -1), ages=ages)
    np.testing.assert_allclose(select(found, "speed", most=10).values[:3], 0.4, rtol=1e-5)


def test_a_path_in_the_place_of_the_time_is_told() -> None:
    call = inspect.unwrap(plot_positions)  # types are checked before in tests
    with pytest.raises(TypeError, match=r"`at` must be a time; got 'a\.png'\. Write `path='a\.png'`"):
        call(straight(), "a.png")


def test_values_are_ages_times_names_and_kinds() -> None:
    found = dataclasses.replace(straight(particles=3), ids=np.array([7, 8, 9]))
    assert select(found, "age", most=10).values[4].tolist() == [4, 4, 4]
    assert select(found, "time", most=10).values[:3, 0].tolist() == [0, 1, 2]
    assert select(found, "id", most=10).values[0].tolist() == [7, 8, 9]
    assert select(found, "patch", most=10).values[0].tolist() == [-1, -1, -1]
    named = dataclasses.replace(found, ids=np.array(["a", "b", "c"]))
    assert select(named, "id", most=10).values[0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"`color` must be one of speed, age, .*; got 'weight'"):
        select(found, "weight", most=10)
    with pytest.raises(ValueError, match="this one has none"):
        select(dataclasses.replace(found, ages=None), "age", most=10)


def ended_and_waiting() -> Trajectory:
    """Particle 0 goes on, 1 ends after time 4, 2 begins by time 6, 3 is never alive, 4 waits beyond the last time."""
    alive = np.ones((11, 5), bool)
    alive[5:, 1] = False
    alive[:6, 2] = False
    alive[:, 3:] = False
    outcomes = [Outcome.MOVING, Outcome.LEFT, Outcome.MOVING, Outcome.OUTSIDE, Outcome.UNRELEASED]
    found = straight()
    assert found.positions is not None
    places = found.positions.copy()
    places[5:, 1] = places[5, 1]
    places[:7, 2], places[:, 3], places[:, 4] = places[6, 2], places[0, 3], places[0, 4]
    return dataclasses.replace(
        found,
        positions=places,
        alive=alive,
        release_times=np.array([0, 0, 4.5, 0, 99.0]),  # the tracker may round a release up to a later step
        outcomes=np.array(outcomes, np.int8),
        patches=np.array([-1, 1, -1, -1, -1], np.int32),
    )


def test_ended_is_neither_alive_nor_waiting() -> None:
    shown = select(ended_and_waiting(), "speed", most=10)
    assert shown.ended[:, 0].sum() == 0
    assert np.flatnonzero(shown.ended[:, 1]).tolist() == [5, 6, 7, 8, 9, 10]
    assert shown.ended[:, 2].sum() == 0
    assert shown.ended[:, 3].all(), "outside from the start"
    assert shown.ended[:, 4].sum() == 0
    assert shown.extent[1, 1] < 3.5, "what waits is not drawn and takes no room"


# Figures


def test_paths_are_drawn_piece_by_piece_and_said(tmp_path: Path) -> None:
    file = tmp_path / "new" / "paths.png"
    figure = plot_paths(straight(), file, every=2, length_unit="m", time_unit="s", title="A stream")
    found = pieces(figure)
    assert found.shape == (3 * 10, 2, 2)
    np.testing.assert_allclose(found[:, 1] - found[:, 0], np.tile([0.1, 0.02], (30, 1)), atol=1e-6)
    ax, bar = figure.axes[0], figure.axes[0].child_axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel(), bar.get_ylabel()) == ("x (m)", "y (m)", "speed (m/s)")
    assert ax.get_title(loc="left") == "A stream\n3 of 5 particles, t = 0 to 10 s"
    with Image.open(file) as picture:
        assert picture.width == 975, "a tall picture is narrow"
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 50
    assert "matplotlib.pyplot" not in sys.modules, "no global state"


def test_no_piece_crosses_the_domain() -> None:
    found = wrapped()
    for boundary in (None, periodic_boundary([[0, 0], [1, 1]])):
        drawn = pieces(plot_paths(found, boundary=boundary))
        assert np.abs(drawn[:, 1] - drawn[:, 0]).max() < 0.06
        assert len(drawn) == 39 * 3 - 7


def test_long_runs_of_many_particles_stay_drawable() -> None:
    figure = plot_paths(straight(particles=1000, times=501, velocity=(0.002, 0.0)))
    drawn = pieces(figure)
    assert len(drawn) == 300 * 299, "of 501 times 300"
    assert figure.axes[0].get_title(loc="left").startswith("300 of 1,000 particles")
    assert drawn[..., 0].max() == pytest.approx(1.0), "the last time is drawn"


def test_ended_particles_are_crosses_and_others_dots() -> None:
    found = ended_and_waiting()
    heads, crosses = dots(plot_paths(found))
    np.testing.assert_allclose(heads, found.final[[0, 2]])
    np.testing.assert_allclose(crosses, found.final[[1, 3]])
    moved = pieces(plot_paths(found))
    assert len(moved) == 10 + 5 + 4, "who rests draws nothing"


def test_outcomes_have_a_colour_and_a_count_each() -> None:
    figure = plot_paths(ended_and_waiting(), color="outcome")
    legend = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert legend == {
        f"{Outcome.MOVING.sentence}: 2",
        f"{Outcome.LEFT.sentence}: 1",
        f"{Outcome.OUTSIDE.sentence}: 1",
        f"{Outcome.UNRELEASED.sentence}: 1",
    }
    (lines,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    colors = [to_hex(c).upper() for c in lines.get_colors()]
    assert colors == ["#0072B2"] * 10 + ["#D55E00"] * 5 + ["#0072B2"] * 4
    patches = plot_paths(ended_and_waiting(), color="patch").axes[0].get_legend().get_texts()
    assert [text.get_text() for text in patches] == ["no patch: 4", "x_max: 1"]


def test_the_list_of_kinds_hides_no_path() -> None:
    figure = plot_paths(ended_and_waiting(), color="outcome")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    below = axes.get_legend().get_window_extent()
    assert below.y1 < axes.xaxis.label.get_window_extent().y0, "under the name of the axis"
    assert below.y0 >= 0, "and within the picture"


def test_faster_is_lighter() -> None:
    slow, fast = straight(particles=1).positions, straight(particles=1, velocity=(0.3, 0.0)).positions
    figure = plot_paths(trajectory_of(np.concatenate([slow, fast], axis=1)))
    (lines,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    lightness = np.array(lines.get_colors())[:, :3] @ (0.2126, 0.7152, 0.0722)
    assert lightness[0] < 0.5 < lightness[-1]


def test_three_axes_and_any_two_of_them() -> None:
    found = straight(velocity=(0.1, 0.02, 0.5))
    figure = plot_paths(found, length_unit="m")
    ax: Any = figure.axes[0]
    assert (ax.name, ax.get_zlabel()) == ("3d", "z (m)")
    assert ax.get_zlim()[1] > 5
    for dims in ("xz", (0, 2)):
        flat = plot_paths(found, dims=dims)
        np.testing.assert_allclose((pieces(flat)[:, 1] - pieces(flat)[:, 0])[0], [0.1, 0.5], atol=1e-6)
        assert flat.axes[0].get_ylabel() == "z"
    for wrong in ("x", "xx", "xw", (0, 3)):
        with pytest.raises(ValueError, match="`dims` must name two or three different axes among xyz"):
            plot_paths(found, dims=wrong)
    with pytest.raises(ValueError, match="`field` can be shown behind two axes only"):
        plot_paths(found, field=linear_flow(np.eye(3).tolist()))


def test_positions_are_those_of_the_nearest_time() -> None:
    found = straight()
    assert found.positions is not None
    figure = plot_positions(found, at=3.4, time_unit="s")
    (drawn,) = dots(figure)
    np.testing.assert_allclose(drawn, found.positions[3])
    assert figure.axes[0].get_title(loc="left") == "5 particles, t = 3 s"
    np.testing.assert_allclose(dots(plot_positions(found))[0], found.final)


def test_times_that_nothing_is_known_at_are_told() -> None:
    """NaN gave the first picture, and a time beyond the series that of its last slice under a title of another date."""
    with pytest.raises(ValueError, match="`at` must be finite; got nan"):
        plot_positions(straight(), at=float("nan"))
    field = gradient_field()
    with pytest.raises(ValueError, match="`time` must be finite; got nan"):
        plot_speed(field, time=float("nan"))
    with pytest.warns(
        UserWarning, match=r"`time` must lie within .*, 0 to 1; got 7\. The last slice is drawn"
    ):
        plot_speed(field, time=7.0)
    with pytest.warns(UserWarning, match=r"2015-11-16 .* got 2015-11-15 .*\. The first slice is drawn"):
        plot_speed(field.with_epoch("2015-11-16"), time="2015-11-15")


def test_pictures_go_into_given_axes() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_paths(straight(), ax=right) is figure
    assert not left.collections
    assert right.collections
    with pytest.raises(ValueError, match="`ax` must be three-dimensional"):
        plot_paths(straight(velocity=(0.1, 0.0, 0.2)), ax=left)


def test_wrong_files_and_trajectories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`path` must end in one of .*\.png.*; got 'paths.xyz'"):
        plot_paths(straight(), tmp_path / "paths.xyz")
    with pytest.raises(ValueError, match="`trajectory` must hold positions"):
        plot_paths(dataclasses.replace(straight(), positions=None))
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "jaxworlds\[trace\]"'):
        plot_paths(straight())


# Fields and boundaries


def gradient_field() -> TimeSeriesField:
    """u = x + 2 y on [0, 2] × [0, 1], times the time."""
    grid = UniformGrid([0.0, 0.0], [0.5, 0.5], [5, 3])
    x, y = np.asarray(grid.positions).T
    one = np.stack([x + 2 * y, np.zeros_like(x)], axis=-1)
    return TimeSeriesField(np.stack([0 * one, one]), [0.0, 1.0], grid=grid)


def test_the_raster_is_the_speed_at_its_middles_lowest_row_first() -> None:
    found = speed_raster(gradient_field(), [0.5, 1.0], np.array([[0.0, 0.0], [4.0, 1.0]]), width=8)
    assert found.shape == (2, 2, 8)
    np.testing.assert_allclose(found[1, 0, :4], [0.75, 1.25, 1.75, 2.25], rtol=1e-6)
    np.testing.assert_allclose(found[1, 1, :4], [1.75, 2.25, 2.75, 3.25], rtol=1e-6)
    np.testing.assert_allclose(found[0, :, :4], found[1, :, :4] / 2, rtol=1e-6)
    assert np.isnan(found[:, :, 4:]).all(), "outside the field"


def test_a_field_lies_behind_the_paths_at_the_last_time() -> None:
    found = dataclasses.replace(straight(), times=np.linspace(0, 0.5, 11))
    figure = plot_paths(found, field=gradient_field())
    (image,) = figure.axes[0].images
    shown = np.ma.filled(image.get_array(), np.nan)
    assert np.nanmax(shown) == pytest.approx(2.0, rel=0.05), "half of the speed at time 1"
    assert figure.axes[0].get_ylim()[1] >= 4, "room for both"


def test_the_speed_of_a_field_is_a_picture(tmp_path: Path) -> None:
    figure = plot_speed(gradient_field(), tmp_path / "speed.svg", time=1.0, length_unit="m", time_unit="s")
    ax = figure.axes[0]
    assert ax.child_axes[0].get_ylabel() == "speed (m/s)"
    assert ax.get_title(loc="left") == "t = 1 s"
    assert "<svg" in (tmp_path / "speed.svg").read_text()
    cut = plot_speed(
        linear_flow(np.eye(3).tolist()), bounds=[[0, 0, 0], [1, 1, 4]], dims="xz", through=[0, 0.25, 0]
    )
    assert cut.axes[0].get_title(loc="left") == "t = 0, y = 0.25"
    assert cut.axes[0].images[0].get_array().max() == pytest.approx(np.sqrt(1 + 0.25**2 + 16), rel=0.02)
    with pytest.raises(ValueError, match="`bounds` must say what part to draw"):
        plot_speed(linear_flow(np.eye(2).tolist()))


def test_boundaries_are_seen_by_what_they_do() -> None:
    box = box_boundary([[0, 0], [2, 1]], [("reflective", "absorbing"), "periodic"])
    lines = outlines(composed_boundary(spherical_boundary((1.0, 0.5), 0.25, side="outside"), box), (0, 1))
    assert [line.kind for line in lines] == ["body", "wall", "outlet", "periodic", "periodic"]
    np.testing.assert_allclose(np.linalg.norm(lines[0].points - (1.0, 0.5), axis=1), 0.25)
    np.testing.assert_allclose(lines[2].points, [[2, 0], [2, 1]])
    np.testing.assert_allclose(lines[3].points, [[0, 0], [2, 0]])
    np.testing.assert_allclose(periods_of(box), [np.inf, 1.0])
    inlet = inlet_outlet_boundary_factory([[0, 0], [2, 1]])
    assert [line.kind for line in outlines(inlet, (0, 1))] == ["wall", "outlet", "wall", "wall"]
    assert periods_of(None) is None
    assert outlines(None, (0, 1)) == []
    edges = outlines(box_boundary([[0, 0, 0], [1, 2, 3]]), (0, 1, 2))
    lengths = sorted(float(np.ptp(edge.points, axis=0).sum()) for edge in edges)
    assert lengths == [1.0] * 4 + [2.0] * 4 + [3.0] * 4
    assert len({edge.points.tobytes() for edge in edges}) == 12
    tube = cylindrical_boundary("z", (0.0, 0.0), 1.0)
    assert [len(outlines(tube, dims)) for dims in ((0, 1), (0, 2), (0, 1, 2))] == [1, 0, 0]
    figure = plot_paths(straight(), boundary=box)
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--", ":", ":"]


# Animations


def page_parts(page: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a page holds: its facts, and its bytes unpacked by the format's own words."""
    facts = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    packed = re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1]  # type: ignore[index]
    data = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    frames, count, axes = len(facts["times"]), facts["count"], len(facts["axes"])
    whole = frames * count * axes
    folded = data[:whole].astype(int) + 256 * data[whole : 2 * whole].astype(int)
    ways = np.where(folded & 1, -((folded + 1) >> 1), folded >> 1).reshape(frames, count, axes)
    low, high = np.array(facts["extent"])
    rest = data[2 * whole :]
    parts = {"positions": low + np.cumsum(ways, axis=0) / facts["steps"] * (high - low).max()}
    sizes = {"state": count, "level": count}
    if "raster" in facts:
        sizes["raster"] = facts["raster"][0] * facts["raster"][1]
    for name, size in sizes.items():
        parts[name] = np.cumsum(rest[: frames * size].reshape(frames, size), axis=0, dtype=np.uint8)
        rest = rest[frames * size :]
    assert rest.size == 0
    return facts, parts


def test_a_page_holds_positions_states_and_colours() -> None:
    found = ended_and_waiting()
    facts, parts = page_parts(player_html(found, color="outcome", length_unit="m", time_unit="s"))
    assert found.positions is not None
    step = np.ptp(found.positions, axis=(0, 1)).max() / 8191
    np.testing.assert_allclose(parts["positions"], found.positions, atol=0.51 * step + 1e-6)
    alive, ended, joined = parts["state"] & 1, parts["state"] & 2, parts["state"] & 4
    np.testing.assert_array_equal(alive, found.alive)
    assert (ended[:, 1] > 0).tolist() == [False] * 5 + [True] * 6
    assert (joined[:-1] > 0).all()
    assert not joined[-1].any()
    assert parts["level"][0].tolist() == [0, 1, 0, 2, 3]
    assert facts["kinds"][1] == [1, f"{Outcome.LEFT.sentence}: 1"]
    assert facts["axes"] == ["x (m)", "y (m)"]
    assert (facts["note"], facts["timeUnit"]) == ("5 particles", "s")


def test_a_page_holds_the_field_and_the_boundary_and_breaks_at_periods() -> None:
    found = wrapped()
    facts, parts = page_parts(player_html(found, boundary=periodic_boundary([[0, 0], [1, 1]])))
    assert ((parts["state"][:-1] & 4) == 0).sum() == 7
    assert found.positions is not None
    np.testing.assert_allclose(parts["positions"], found.positions, atol=0.51 / 8191 + 1e-6)
    assert [kind for kind, _ in facts["outlines"]] == ["periodic"] * 4
    assert facts["limits"][1] == pytest.approx(np.hypot(0.05, 0.03), rel=1e-3)
    facts, parts = page_parts(player_html(straight(times=3), field=gradient_field()))
    rows, cols = facts["raster"]
    raster = parts["raster"].reshape(3, rows, cols)
    assert not raster[0][raster[0] < 255].any(), "no flow at time 0"
    assert raster[1][raster[1] < 255].max() > 240
    assert (raster[:, -1] == 255).all(), "above the field there is none"


def test_a_page_needs_nothing_else_and_keeps_words_as_words(tmp_path: Path) -> None:
    path = animate(straight(), tmp_path / "deep" / "flow.html", title='</script><b>"@DATA@@PAYLOAD@')
    page = path.read_text(encoding="utf-8")
    facts, _ = page_parts(page)
    assert facts["note"] == "5 particles"
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&quot;@DATA@@PAYLOAD@") == 2
    assert not re.search(r"http|\bsrc=|\bhref=|@import|url\(", page)


def test_pages_of_many_particles_stay_small() -> None:
    angle = np.arange(400)[:, None] / 30 + np.linspace(0, 6, 4000)
    radius = np.linspace(0.2, 1, 4000)
    found = trajectory_of(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1))
    page = player_html(found)
    facts, parts = page_parts(page)
    assert parts["positions"].shape == (160, 1500, 2)
    assert facts["note"] == "1,500 of 4,000 particles"
    assert len(page) < 1_500_000


@pytest.mark.parametrize("name", ["flow.gif", "flow.png", "flow.apng"])
def test_pictures_move(tmp_path: Path, name: str) -> None:
    path = animate(straight(times=30), tmp_path / name, frames=6, seconds=1.2, field=gradient_field())
    with Image.open(path) as moving:
        assert moving.format == ("GIF" if name.endswith("gif") else "PNG")
        assert moving.n_frames == 6
        frames = []
        for number in range(6):
            moving.seek(number)
            frames.append(np.asarray(moving.convert("RGB")).astype(int))
            assert moving.info["duration"] == 200
    below = [frame[len(frame) // 5 :] for frame in frames]  # without the heading, which tells the time
    assert all((a != b).any() for a, b in itertools.pairwise(below))


def test_animations_refuse_what_they_cannot_do(tmp_path: Path) -> None:
    for path, options, message in (
        ("flow.mp4", {}, r"`path` must end in .html, .gif, .png or .apng; got 'flow.mp4'"),
        ("flow.gif", {"frames": 1}, "`frames` must be at least 2; got 1"),
        ("flow.gif", {"seconds": 0.0}, "`seconds` must be positive; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            animate(straight(), tmp_path / path, **options)
    assert not list(tmp_path.iterdir())


# The terminal


def test_the_terminal_shows_every_dot_in_its_place() -> None:
    corners = trajectory_of([[[0, 0], [2, 0], [0, 1], [2, 1], [1, 0.5]]] * 2)
    picture = terminal_picture(corners, width=8).splitlines()
    assert [len(line) for line in picture] == [8, 8]
    assert picture[0][0] == "⠁"
    assert picture[0][-1] == "⠈"
    assert picture[1][0] == "⡀"
    assert picture[1][-1] == "⢀"
    assert sum(line.count("⠀") for line in picture) == 16 - 5
    rising = terminal_picture(trajectory_of([[[0, 0], [2, 1]]] * 2), width=8).splitlines()
    assert (rising[0][0], rising[0][-1], rising[1][0], rising[1][-1]) == ("⠀", "⠈", "⡀", "⠀")
    moving = trajectory_of([[[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]])
    assert terminal_picture(moving, at=0.2, width=2) != terminal_picture(moving, width=2)
    with pytest.raises(ValueError, match="`width` must be at least 1"):
        terminal_picture(corners, width=0)

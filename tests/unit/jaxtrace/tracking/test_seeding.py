"""Seeding: counts, places, moments, and refusals that say what to change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxtrace.tracking.seeding import (
    ball_seeds,
    circle_seeds,
    density_seeds,
    line_seeds,
    low_discrepancy_seeds,
    random_seeds,
    rectangle_seeds,
    release_times,
    repeated_seeds,
    sphere_seeds,
    stratified_seeds,
    table_seeds,
    uniform_grid_seeds,
)

BOX = [[-1.0, 0.0, 2.0], [1.0, 4.0, 3.0]]


def test_the_guides_grid() -> None:
    seeds = uniform_grid_seeds(
        resolution=(30, 25, 10), bounds=[np.zeros(3), np.ones(3)], include_boundaries=True
    )
    assert seeds.shape == (7500, 3)
    assert seeds.dtype == jnp.float32
    np.testing.assert_array_equal(seeds.min(0), 0.0)
    np.testing.assert_array_equal(seeds.max(0), 1.0)
    assert len(np.unique(np.asarray(seeds), axis=0)) == 7500
    # the last axis runs fastest
    np.testing.assert_allclose(seeds[:2], [[0, 0, 0], [0, 0, 1 / 9]], atol=1e-7)


def test_a_grid_of_cell_middles_and_of_two_dimensions() -> None:
    seeds = uniform_grid_seeds((2, 4), [[0.0, 0.0], [2.0, 4.0]], include_boundaries=False)
    np.testing.assert_allclose(seeds[:5], [[0.5, 0.5], [0.5, 1.5], [0.5, 2.5], [0.5, 3.5], [1.5, 0.5]])
    flat = uniform_grid_seeds((3, 3, 1), [[0, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(flat[:, 2], 0.0)
    assert uniform_grid_seeds(4, [[0.0], [1.0]]).shape == (4, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: random_seeds(n, BOX, key=3),
        lambda n: low_discrepancy_seeds(n, BOX),
        lambda n: low_discrepancy_seeds(n, BOX, key=jr.key(1)),
        lambda n: stratified_seeds((20, 20, 10), BOX, key=1),
        lambda n: density_seeds(n, BOX, np.ones((4, 4, 4)), key=2),
    ],
    ids=["random", "low discrepancy", "shifted", "stratified", "density"],
)
def test_even_clouds_have_the_moments_of_the_box(make: Callable[[int], Any]) -> None:
    n = 4000
    seeds = np.asarray(make(n))
    low, high = np.array(BOX)
    assert seeds.shape == (n, 3)
    assert (seeds >= low).all()
    assert (seeds <= high).all()
    share = (seeds - low) / (high - low)
    # The mean of n uniforms scatters by 1/sqrt(12 n), the variance by 1/sqrt(180 n); four of each.
    assert np.abs(share.mean(0) - 0.5).max() < 4 / np.sqrt(12 * n)
    assert np.abs(share.var(0) - 1 / 12).max() < 4 / np.sqrt(180 * n)
    assert np.abs(np.corrcoef(share.T) - np.eye(3)).max() < 4 / np.sqrt(n)


def test_low_discrepancy_is_more_even_than_chance() -> None:
    def unevenness(seeds: Any) -> float:
        cells = np.histogram2d(*np.asarray(seeds).T, bins=16, range=[[0, 1], [0, 1]])[0]
        return float(((cells - 8) ** 2).mean())

    box = [[0.0, 0.0], [1.0, 1.0]]
    assert unevenness(low_discrepancy_seeds(2048, box)) < 0.3 * unevenness(random_seeds(2048, box))


def test_one_seed_in_every_stratum() -> None:
    seeds = np.asarray(stratified_seeds((7, 5), [[0.0, 0.0], [7.0, 5.0]], key=4))
    cells = {tuple(cell) for cell in np.floor(seeds).astype(int)}
    assert len(cells) == 35


def test_keys_decide_and_numbers_are_keys() -> None:
    box = [[0.0, 0.0], [1.0, 1.0]]
    np.testing.assert_array_equal(random_seeds(5, box, key=7), random_seeds(5, box, key=jr.key(7)))
    assert not np.array_equal(random_seeds(5, box, key=7), random_seeds(5, box, key=8))


def test_a_line_holds_both_ends() -> None:
    np.testing.assert_allclose(line_seeds([0, 0], [4, 2], 3), [[0, 0], [2, 1], [4, 2]])
    np.testing.assert_allclose(line_seeds([0, 0, 0], [4, 2, 8], 1), [[2, 1, 4]])


def test_circles_lie_across_their_normal() -> None:
    flat = np.asarray(circle_seeds([1.0, 2.0], 0.5, 4))
    np.testing.assert_allclose(flat, [[1.5, 2], [1, 2.5], [0.5, 2], [1, 1.5]], atol=1e-6)
    np.testing.assert_allclose(circle_seeds([0, 0, 5], 1.0, 4)[:2], [[1, 0, 5], [0, 1, 5]], atol=1e-6)
    normal = np.array([1.0, 2.0, -1.0])
    tilted = np.asarray(circle_seeds([1, 1, 1], 2.0, 50, normal=normal)) - 1
    np.testing.assert_allclose(np.linalg.norm(tilted, axis=1), 2.0, rtol=1e-5)
    np.testing.assert_allclose(tilted @ normal, 0.0, atol=1e-5)
    np.testing.assert_allclose(tilted.mean(0), 0.0, atol=1e-5)


@pytest.mark.parametrize("key", [None, 5])
def test_spheres_have_no_preferred_direction(key: int | None) -> None:
    n = 3000
    unit = (np.asarray(sphere_seeds([1, 2, 3], 2.0, n, key=key)) - [1, 2, 3]) / 2.0
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-5)
    assert np.abs(unit.mean(0)).max() < 4 / np.sqrt(3 * n)
    np.testing.assert_allclose(unit.T @ unit / n, np.eye(3) / 3, atol=0.03)


@pytest.mark.parametrize("dim", [2, 3])
def test_balls_are_filled_evenly(dim: int) -> None:
    n = 4000
    offset = np.asarray(ball_seeds(np.zeros(dim), 1.0, n, key=1))
    radius = np.linalg.norm(offset, axis=1)
    assert radius.max() <= 1 + 1e-6
    # radius to the power dim is uniform
    assert abs((radius**dim).mean() - 0.5) < 4 / np.sqrt(12 * n)
    assert np.abs(offset.mean(0)).max() < 4 / np.sqrt(n)


def test_rectangles_span_two_edges() -> None:
    seeds = rectangle_seeds([0, 0, 1], [2, 0, 0], [0, 1, 1], (3, 2))
    expected = [[0, 0, 1], [0, 1, 2], [1, 0, 1], [1, 1, 2], [2, 0, 1], [2, 1, 2]]
    np.testing.assert_allclose(seeds, expected)


def test_density_by_function_and_by_grid() -> None:
    n, box = 8000, [[0.0, 0.0], [1.0, 2.0]]
    slope = np.asarray(density_seeds(n, box, lambda x: x[0], key=1, resolution=(100, 2)))
    # density 2x on [0, 1]: mean 2/3, variance 1/18
    assert abs(slope[:, 0].mean() - 2 / 3) < 4 * np.sqrt(1 / 18 / n) + 1e-4
    assert abs(slope[:, 1].mean() - 1.0) < 4 * np.sqrt(1 / 3 / n)
    only = np.zeros((2, 4))
    only[1, 2] = 5.0
    seeds = np.asarray(density_seeds(200, box, only))
    assert (seeds >= [0.5, 1.0]).all()
    assert (seeds <= [1.0, 1.5]).all()


def test_tables(tmp_path: Path) -> None:
    expected = [[1.0, 2.0], [3.0, 4.5]]
    np.testing.assert_array_equal(table_seeds(np.array(expected)), expected)
    np.testing.assert_array_equal(table_seeds({"y": [2.0, 4.5], "x": [1, 3], "name": ["a", "b"]}), expected)
    file = tmp_path / "seeds.csv"
    file.write_text("name, lon, lat\na,1,2\nb,3,4.5\n")
    np.testing.assert_array_equal(table_seeds(file, columns=["lon", "lat"]), expected)
    with pytest.raises(
        ValueError, match=r"`columns` must be among the table's name, lon, lat; got none of x, y, z"
    ) as refused:
        table_seeds(file)
    assert str(refused.value).endswith("or in Python pass `columns=['lon', 'lat']`.")
    with pytest.raises(ValueError, match=r"seeds\.csv line 2: `name` must be a number; got 'a'"):
        table_seeds(file, columns=["name", "lon"])
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        table_seeds(tmp_path / "none.csv")
    file.write_text("x,y\n1,2\n3\n")
    with pytest.raises(ValueError, match="line 3 has 1 values"):
        table_seeds(file)


def test_a_column_of_times_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    file = tmp_path / "seeds.csv"
    for name in ("time", "Release_Time", "date", "t"):
        file.write_text(f"x,y,{name}\n1,2,2015-11-16\n3,4.5,2015-11-17\n")
        with pytest.warns(
            UserWarning, match=rf"seeds\.csv: the column '{name}' is not used: all .*`release_times`"
        ):
            np.testing.assert_array_equal(table_seeds(file), [[1.0, 2.0], [3.0, 4.5]])


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 3.0], "y": [2.0, 4.5], "id": [7, 8]})
    np.testing.assert_array_equal(table_seeds(frame), [[1.0, 2.0], [3.0, 4.5]])


def test_release_over_time() -> None:
    np.testing.assert_array_equal(release_times(3, 2.0), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(release_times(5, 0.0, 1.0), [0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(release_times(6, 1.0, interval=0.5, per_release=2), [1, 1, 1.5, 1.5, 2, 2])
    seeds = repeated_seeds(np.array([[0.0, 0.0], [1.0, 1.0]]), 3)
    assert seeds.shape == (6, 2)
    np.testing.assert_array_equal(seeds[2:4], [[0, 0], [1, 1]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: uniform_grid_seeds((2, 2), BOX),
            r"`resolution` must be one number or 3 numbers of at least 1; got \(2, 2\)",
        ),
        (lambda: uniform_grid_seeds(2, [[1.0, 0.0], [0.0, 1.0]]), "`bounds` must be finite with each lowest"),
        (lambda: uniform_grid_seeds(2, [0.0, 1.0]), "`bounds` must be"),
        (lambda: random_seeds(0, BOX), "`n` must be at least 1; got 0"),
        (lambda: line_seeds([0, 0], [1, 1, 1], 3), "`start` and `end` must have equal length; got 2 and 3"),
        (lambda: circle_seeds([0, 0], -1.0, 3), "`radius` must be positive; got -1.0"),
        (
            lambda: circle_seeds([0, 0], 1.0, 3, normal=[0, 0, 1]),
            "`normal` must be left out in two dimensions",
        ),
        (lambda: sphere_seeds([0, 0], 1.0, 3), "`center` must have three coordinates; got 2"),
        (lambda: density_seeds(3, BOX, np.zeros((2, 2, 2))), "`density` must be finite, nowhere negative"),
        (lambda: density_seeds(3, BOX, np.ones((2, 2))), "`density` must have one axis for each of the 3"),
        (lambda: table_seeds(np.zeros(3)), r"`table` must hold \(n, dim\) positions; got shape \(3,\)"),
        (lambda: release_times(3, 0.0, 1.0, interval=0.1), "`end` and `interval` cannot both be given"),
    ],
)
def test_refusals_name_argument_demand_and_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()

"""Velocity fields: exactness, order, derivatives, land, lattices, and what is refused."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from jaxtrace.fields import (
    AnalyticField,
    CurvilinearGrid,
    RectilinearGrid,
    TimeSeriesField,
    UniformGrid,
    abc_flow,
    constant_flow,
    double_gyre,
    find_lattice,
    linear_flow,
    peninsula,
    peninsula_stream,
    solid_rotation,
)
from jaxtrace.fields.time_series import _say_unnecessary
from jaxtrace.fields.weights import Knots, row_weights

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def unchecked():
    """Arguments reach our own checks, as they do outside of tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def stretched(count, low=0.0, high=2.0):
    return low + (high - low) * np.linspace(0, 1, count) ** 1.7


def bent(shape):
    """Nodes of a ring sector, every cell skewed."""
    unit = np.stack(np.meshgrid(*[np.linspace(0, 1, n) for n in shape], indexing="ij"), -1)
    radius, angle = 1 + unit[..., 0] + 0.1 * unit[..., 1], 0.3 + 2 * unit[..., 1]
    parts = [radius * np.cos(angle), radius * np.sin(angle)]
    if len(shape) == 3:
        parts.append(unit[..., 2] + 0.2 * np.sin(2 * unit[..., 0]))
    return np.stack(parts, -1)


def uniform(dim, **options):
    return UniformGrid(
        np.array([-1.0, 3.0, 0.5])[:dim], np.array([0.25, -0.5, 0.1])[:dim], (7, 6, 5)[:dim], **options
    )


def rectilinear(dim, **options):
    axes = [stretched(7), stretched(6, -3, -1)[::-1], stretched(5, 10, 11)]
    return RectilinearGrid(axes[:dim], **options)


def points_in(grid, count, seed=0):
    """Points inside a grid: random mixtures of the corners of its box, or of the nodes of a bent one."""
    rng = np.random.default_rng(seed)
    if isinstance(grid, CurvilinearGrid):
        shape = grid.layout.shape
        nodes = np.asarray(grid.points).reshape(*shape, -1)
        cell = [rng.integers(0, n - 1, count) for n in shape]
        share = rng.uniform(0, 1, (len(shape), count, 1))
        total = 0
        for corner in np.ndindex(*(2,) * len(shape)):
            weight = np.prod([s if c else 1 - s for s, c in zip(share, corner, strict=True)], 0)
            total = total + weight * nodes[tuple(i + c for i, c in zip(cell, corner, strict=True))]
        return total.astype(grid.points.dtype)
    low, high = np.asarray(grid.bounds)
    return rng.uniform(low, high, (count, len(low))).astype(low.dtype)


def linear_values(positions, seed=1):
    """A linear vector field's matrix and offset."""
    rng = np.random.default_rng(seed)
    dim = positions.shape[-1]
    return rng.normal(size=(dim, dim)), rng.normal(size=dim)


GRIDS = {
    f"{make.__name__}-{dim}d-{centring}-{interpolation}": (make, dim, centring, interpolation)
    for make in (uniform, rectilinear)
    for dim in (1, 2, 3)
    for centring in ("node", "cell")
    for interpolation in ("linear", "cubic")
    if not (dim == 1 and make is rectilinear) and not (dim == 2 and make is uniform and centring == "cell")
} | {
    f"curvilinear-{dim}d-{centring}": (None, dim, centring, "linear")
    for dim in (2, 3)
    for centring in ("node", "cell")
}


def build(case):
    make, dim, centring, interpolation = case
    if make is None:
        points = bent((6, 7, 5)[:dim])
        if dim == 3:
            points = points[:, ::-1]  # left-handed
        return CurvilinearGrid(points, centring=centring)
    return make(dim, centring=centring, interpolation=interpolation)


def check_linear(case, tolerance):
    grid = build(case)
    matrix, offset = linear_values(grid.positions)
    rows = np.asarray(grid.positions, np.float64) @ matrix.T + offset
    field = TimeSeriesField(rows, grid=grid)
    x = points_in(grid, 200)
    got = np.asarray(field(x, 0.0))
    want = x.astype(np.float64) @ matrix.T + offset
    assert got.dtype == x.dtype
    scale = np.abs(want).max() + np.abs(matrix).sum() * np.abs(x).max()
    assert np.abs(got - want).max() <= tolerance * scale
    # The whole box of a structured grid is inside, its surroundings are not.
    low, high = np.asarray(grid.bounds)
    beyond = high + 0.01 * (high - low)
    assert np.isnan(np.asarray(field(beyond, 0.0))).all()


@pytest.mark.parametrize("name", GRIDS)
def test_a_linear_field_is_exact_on_every_grid(name):
    check_linear(GRIDS[name], 2e-6)


@pytest.mark.parametrize(
    "name", [n for n in GRIDS if n in ("rectilinear-2d-cell-cubic", "curvilinear-2d-cell")]
)
def test_a_linear_field_is_exact_in_double_precision(name):
    with jax.enable_x64(True):
        check_linear(GRIDS[name], 4e-15)


def smooth(x):
    return np.stack([np.sin(2 * x[:, 0]) * np.cos(x[:, 1]), np.exp(0.5 * x[:, 0]) * np.sin(3 * x[:, 1])], -1)


def spatial_errors(make, counts):
    errors = []
    # Away from the edges, where one-sided slopes have the same order but another factor.
    x = np.random.default_rng(0).uniform(0.2, 0.8, (4000, 2))
    for count in counts:
        grid = make(count)
        field = TimeSeriesField(smooth(np.asarray(grid.positions, np.float64)), grid=grid)
        errors.append(np.sqrt(np.mean((np.asarray(field(x, 0.0)) - smooth(x)) ** 2)))
    return errors


def order_of(errors, counts):
    return np.polyfit(np.log(1.0 / np.asarray(counts)), np.log(errors), 1)[0]


def curved(count):
    unit = np.stack(np.meshgrid(*[np.linspace(0, 1, count + 1)] * 2, indexing="ij"), -1)
    bump = np.sin(np.pi * unit[..., :1]) * np.sin(np.pi * unit[..., 1:])
    return CurvilinearGrid(unit + 0.1 * bump)


@pytest.mark.parametrize(
    ("interpolation", "centring", "kind", "order"),
    [
        ("nearest", "node", "uniform", 1),
        ("linear", "node", "uniform", 2),
        ("linear", "cell", "uniform", 2),
        ("cubic", "node", "uniform", 3),
        ("cubic", "cell", "uniform", 3),
        ("linear", "node", "stretched", 2),
        ("cubic", "node", "stretched", 3),
        ("linear", "node", "curved", 2),
    ],
)
def test_the_order_in_space_is_the_theory(interpolation, centring, kind, order):
    options = {"interpolation": interpolation, "centring": centring}

    def make(count):
        if kind == "uniform":
            return UniformGrid([0.0, 0.0], [1 / count] * 2, [count + 1] * 2, **options)
        if kind == "curved":
            return curved(count)
        axis = np.linspace(0, 1, count + 1)
        return RectilinearGrid([axis + 0.1 * np.sin(np.pi * axis)] * 2, **options)

    counts = (16, 32, 64)
    with jax.enable_x64(True):
        measured = order_of(spatial_errors(make, counts), counts)
    assert abs(measured - order) < 0.2, measured


@pytest.mark.parametrize(("interpolation", "order"), [("nearest", 1), ("linear", 2), ("cubic", 3)])
@pytest.mark.parametrize("even", [True, False])
def test_the_order_in_time_is_the_theory(interpolation, order, even):
    counts = (32, 64, 128)
    moments = np.linspace(0, 3, 4001)
    errors = []
    with jax.enable_x64(True):
        grid = UniformGrid([0.0], [1.0], (2,))
        for count in counts:
            times = np.linspace(0, 3, count + 1)
            times = times if even else times + 0.2 * np.sin(np.pi * times / 3)
            data = np.broadcast_to(np.sin(2 * times)[:, None, None], (count + 1, 2, 1))
            field = TimeSeriesField(data, times, grid=grid, time_interpolation=interpolation)
            at = jax.jit(jax.vmap(lambda t, f=field: f.sample(jnp.array([0.3]), t, ()).velocity[0]))
            errors.append(np.abs(np.asarray(at(moments)) - np.sin(2 * moments)).max())
    measured = order_of(errors, counts)
    assert abs(measured - order) < 0.2, measured


def test_cubic_in_time_is_the_default_from_four_slices_and_exact_for_parabolas():
    grid = UniformGrid([0.0], [1.0], (2,))

    def series(count):
        times = np.array([0.0, 0.5, 1.5, 2.0, 4.0])[:count]
        return TimeSeriesField(np.tile((times**2)[:, None, None], (1, 2, 1)), times, grid=grid)

    assert [series(n).time_interpolation for n in (2, 3, 4, 5)] == ["linear", "linear", "cubic", "cubic"]
    for t in (0.0, 0.2, 0.7, 1.6, 3.0, 4.0):
        np.testing.assert_allclose(series(5)(jnp.array([0.5]), t), [t * t], rtol=2e-6, atol=1e-6)


def test_beyond_its_times_the_end_slices_hold_and_may_count_as_outside():
    grid = UniformGrid([0.0], [1.0], (2,))
    data = np.array([1.0, 2.0, 4.0])[:, None, None] * np.ones((3, 2, 1))
    field = TimeSeriesField(data, [0.0, 1.0, 2.0], grid=grid)
    assert field.time_range == (0.0, 2.0)
    at = jnp.array([0.5])
    assert [float(field(at, t)[0]) for t in (-5.0, 0.5, 9.0)] == [1.0, 1.5, 4.0]
    strict = field.replace(extrapolation="outside")
    flags = [bool(strict.sample(at, jnp.float32(t), ()).inside) for t in (-0.1, 0.0, 2.0, 2.1)]
    assert flags == [False, True, True, False]
    steady = TimeSeriesField(data[:1], grid=grid)
    assert steady.time_range == (-np.inf, np.inf)
    assert float(steady(at, 77.0)[0]) == 1.0


@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_scipy_agrees_on_a_stretched_grid(method):
    from scipy.interpolate import RegularGridInterpolator

    axes = (stretched(9), stretched(7, -1, 1), stretched(5, 0, 3))
    values = np.random.default_rng(0).normal(size=(9, 7, 5, 3)).astype(np.float32)
    grid = RectilinearGrid(axes, interpolation=method)
    field = TimeSeriesField(values[None], grid=grid)
    x = points_in(grid, 300)
    want = RegularGridInterpolator(axes, values.astype(np.float64), method=method)(x)
    np.testing.assert_allclose(field(x, 0.0), want, atol=1e-5)


def test_scipy_agrees_between_the_middles_of_stretched_cells():
    from scipy.interpolate import RegularGridInterpolator

    axes = (stretched(9), stretched(7, -1, 1))
    middles = tuple((a[1:] + a[:-1]) / 2 for a in axes)
    values = np.random.default_rng(0).normal(size=(8, 6, 2)).astype(np.float32)
    field = TimeSeriesField(values[None], grid=RectilinearGrid(axes, centring="cell"))
    low, high = np.array([m[0] for m in middles]), np.array([m[-1] for m in middles])
    x = np.random.default_rng(1).uniform(low, high, (300, 2)).astype(np.float32)
    want = RegularGridInterpolator(middles, values.astype(np.float64), bounds_error=False, fill_value=None)(x)
    np.testing.assert_allclose(field(x, 0.0), want, atol=1e-5)


def test_knots_are_found_by_bins_and_by_bisection_alike():
    even, steep = np.linspace(0, 1, 20), np.cumsum(2.0 ** np.arange(20)) * 1e-6
    for values in (even, stretched(50), steep):
        knots = Knots(values.astype(np.float32))
        held = np.asarray(knots.coordinates)
        x = np.concatenate(
            [held, np.random.default_rng(0).uniform(held[0], held[-1], 500).astype(np.float32)]
        )
        want = np.clip(np.searchsorted(held, x, side="right") - 1, 0, len(held) - 2)
        np.testing.assert_array_equal(jax.vmap(knots.locate)(jnp.asarray(x)), want)
    assert Knots(steep.astype(np.float32)).first.size == 0
    assert Knots(even.astype(np.float32)).first.size > 0


def test_cubic_weights_pass_through_the_values():
    knots = Knots(np.array([0.0, 1.0, 1.5, 4.0], np.float32))
    for number, x in enumerate([0.0, 1.0, 1.5, 4.0]):
        index, weight = row_weights(knots.place(jnp.float32(x), knots.locate(jnp.float32(x))), 4, "cubic")
        total = np.zeros(4)
        np.add.at(total, np.asarray(index), np.asarray(weight))
        np.testing.assert_allclose(total, np.eye(4)[number], atol=1e-6)


@pytest.mark.parametrize("name", ["uniform-2d-node-cubic", "curvilinear-2d-node"])
def test_derivatives_with_respect_to_position_and_data(name):
    with jax.enable_x64(True):
        grid = build(GRIDS[name])
        dim = grid.dim
        times = np.array([0.0, 1.0, 2.5, 3.0])
        data = np.random.default_rng(0).normal(size=(4, grid.size, dim))
        field = TimeSeriesField(data, times, grid=grid)
        x = jnp.asarray(points_in(grid, 1)[0])
        t = jnp.float64(1.3)

        def velocity(x, data):
            changed = field.replace(data=data)
            return changed.sample(x, t, changed.start(x)).velocity

        velocity = jax.jit(velocity)
        got, by_data = jax.jit(jax.jacrev(velocity, argnums=(0, 1)))(x, field.data)
        forward = jax.jit(jax.jacfwd(velocity))(x, field.data)
        h = 1e-6
        want = np.stack(
            [(velocity(x + h * e, data) - velocity(x - h * e, data)) / (2 * h) for e in np.eye(dim)], -1
        )
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(forward, got, rtol=1e-9, atol=1e-10)
        # Linear in the data: the derivative is the product of the weights in space and time.
        by_data = by_data[0][..., 0]
        stencil = jax.jit(lambda p: grid.stencil(p, grid.start(p)))(x)
        weights = np.zeros((4, grid.size))
        for slice_number, weight in zip(*field.time_stencil(t), strict=True):
            np.add.at(
                weights[int(slice_number)],
                np.asarray(stencil.index),
                float(weight) * np.asarray(stencil.weight),
            )
        np.testing.assert_allclose(by_data, weights, atol=1e-12)


def test_second_derivatives_pass_through_a_bent_cell():
    with jax.enable_x64(True):
        points = np.array([[[0.0, 0.0], [0.1, 1.0]], [[1.0, 0.2], [1.4, 1.5]]])
        grid = CurvilinearGrid(points)
        field = TimeSeriesField(np.array([[[0.0, 1.0], [2.0, 0.5], [1.0, -1.0], [3.0, 4.0]]]), grid=grid)

        def first(x):
            return field.sample(x, jnp.float64(0), grid.start(x)).velocity[0]

        x = jnp.array([0.6, 0.7])
        h = 1e-5
        slope = jax.jit(jax.grad(first))
        want = np.stack([(slope(x + h * e) - slope(x - h * e)) / (2 * h) for e in np.eye(2)])
        np.testing.assert_allclose(jax.jit(jax.hessian(first))(x), want, rtol=1e-6, atol=1e-8)
        assert np.abs(want).max() > 0.1


def test_batches_and_compiled_code_give_what_single_points_give():
    grid = rectilinear(2, interpolation="cubic")
    values = np.random.default_rng(0).normal(size=(5, grid.size, 2))
    field = TimeSeriesField(values, np.arange(5.0), grid=grid)
    x = jnp.asarray(points_in(grid, 4))
    t = jnp.float32(1.7)
    alone = jnp.stack([field.sample(p, t, ()).velocity for p in x])
    mapped = jax.vmap(lambda p: field.sample(p, t, ()).velocity)(x)
    compiled = jax.jit(lambda f, p: jax.vmap(lambda q: f.sample(q, t, ()).velocity)(p))(field, x)
    np.testing.assert_allclose(mapped, alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compiled, alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(field(x.reshape(2, 2, 2), t), mapped.reshape(2, 2, 2), rtol=1e-5, atol=1e-6)


def test_new_values_and_times_do_not_compile_again():
    grid = uniform(2)
    traced = eqx.filter_jit(
        eqx.debug.assert_max_traces(lambda f, x, t: f.sample(x, t, ()).velocity, max_traces=1)
    )
    field = TimeSeriesField(np.ones((4, grid.size, 2)), np.arange(4.0), grid=grid)
    x = jnp.asarray(points_in(grid, 1)[0])
    first = traced(field, x, jnp.float32(0.5))
    other = field.replace(data=3 * np.asarray(field.data))
    np.testing.assert_allclose(traced(other, x, jnp.float32(1.5)), 3 * np.asarray(first), rtol=1e-6)
    traced(field.replace(times=np.arange(4.0) + 7), x, jnp.float32(8))


def test_the_type_follows_the_positions_and_half_precision_only_stores():
    grid = uniform(2)
    values = np.random.default_rng(0).normal(size=(1, grid.size, 2))
    full, half = TimeSeriesField(values, grid=grid), TimeSeriesField(values, grid=grid, dtype="float16")
    assert full.data.dtype == jnp.float32
    assert half.data.dtype == jnp.float16
    x = points_in(grid, 50)
    assert half(x, 0.0).dtype == jnp.float32
    np.testing.assert_allclose(half(x, 0.0), full(x, 0.0), atol=2**-11 * np.abs(values).max())


# Land


def test_a_point_in_a_land_cell_is_outside_and_its_neighbours_are_not():
    land = np.zeros((4, 3), bool)
    land[1, 2] = True
    for options in ({}, {"order": "F"}, {"interpolation": "cubic"}):
        grid = UniformGrid([0.0, 0.0], [1.0, 1.0], (5, 4), mask=land, **options)
        inside = {
            p: bool(grid.stencil(jnp.array(p)).inside)
            for p in [(1.5, 2.5), (0.5, 2.5), (1.5, 1.5), (3.9, 0.1)]
        }
        assert list(inside.values()) == [False, True, True, True]
    falling = RectilinearGrid([np.arange(5.0)[::-1], np.arange(4.0)], mask=land)
    assert not falling.stencil(jnp.array([2.5, 2.5])).inside  # the second cell from the other end
    assert falling.stencil(jnp.array([1.5, 2.5])).inside
    bent_grid = CurvilinearGrid(bent((5, 4)), mask=land)
    corners = np.asarray(bent_grid.points).reshape(5, 4, 2)
    middle = [corners[i : i + 2, j : j + 2].mean((0, 1)) for i, j in ((1, 2), (0, 2))]
    found = [bool(bent_grid.stencil(jnp.asarray(m), bent_grid.start(jnp.asarray(m))).inside) for m in middle]
    assert found == [False, True]


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_values_on_land_can_be_left_out(interpolation):
    shape = (6, 6)
    land = np.zeros(shape, bool)
    land[3:, 2:4] = True
    values = np.where(land[..., None], np.nan, 7.0) * np.ones(2)
    options = {"mask": land, "interpolation": interpolation}
    keep = TimeSeriesField(values[None], grid=UniformGrid([0.0, 0.0], [1.0, 1.0], shape, **options))
    grid = UniformGrid([0.0, 0.0], [1.0, 1.0], shape, land_values="drop", **options)
    drop = TimeSeriesField(values[None], grid=grid)
    near = jnp.array([2.6, 2.5])  # two of the four nodes around it are land
    assert drop(near, 0.0)[0] == pytest.approx(7.0, rel=1e-6)
    assert float(keep(near, 0.0)[0]) < 5.0
    everywhere = points_in(grid, 400)
    got = np.asarray(drop(everywhere, 0.0))
    wet = np.isfinite(got)
    np.testing.assert_allclose(got[wet], 7.0, rtol=1e-5)
    cell = np.clip(everywhere.astype(int), 0, 4)
    np.testing.assert_array_equal(~wet[:, 0], (cell[:, 0] >= 3) & (cell[:, 1] == 2))
    alone = np.zeros(shape, bool)
    alone[2, 2] = True
    lone = UniformGrid(
        [0.0, 0.0], [1.0, 1.0], shape, mask=alone, land_values="drop", interpolation=interpolation
    )
    values = np.where(alone[..., None], 99.0, 7.0) * np.ones(2)
    exactly_on_land = TimeSeriesField(values, grid=lone)(jnp.array([2.0, 2.0]), 0.0)
    np.testing.assert_allclose(exactly_on_land, 7.0, rtol=1e-6)


def test_a_node_is_land_when_all_cells_around_it_are():
    land = np.zeros((3, 3), bool)
    land[0] = land[1, 2] = True
    on_land = np.zeros((4, 4), bool)
    on_land[0] = on_land[1, 3] = True
    for order in ("C", "F"):
        grid = UniformGrid([0.0, 0.0], [1.0, 1.0], (4, 4), mask=land, order=order)
        assert grid.land_rows is not None
        np.testing.assert_array_equal(grid.land_rows, on_land.reshape(-1, order=order))
    cells = UniformGrid([0.0, 0.0], [1.0, 1.0], (4, 4), mask=land, centring="cell")
    np.testing.assert_array_equal(cells.land_rows, land.reshape(-1))


def test_not_a_number_is_refused_where_no_land_is():
    grid = uniform(2)
    values = np.ones((1, grid.size, 2))
    values[0, 5] = np.nan
    with pytest.raises(ValueError, match=r"first is row 5.*mask"):
        TimeSeriesField(values, grid=grid)
    with pytest.raises(
        ValueError, match=r"shape of the cells \(6, 5\) or of the nodes \(7, 6\); got \(2, 2\)"
    ):
        uniform(2, mask=np.zeros((2, 2), bool))


# Bare positions


def lattice_case(axes, scramble):
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    if scramble == "F":
        nodes = nodes.transpose(*reversed(range(len(axes))), len(axes))
    nodes = nodes.reshape(-1, len(axes))
    if scramble == "random":
        nodes = np.random.default_rng(0).permutation(nodes)
    return nodes.astype(np.float32)


@pytest.mark.parametrize("scramble", ["C", "F", "random"])
@pytest.mark.parametrize("even", [True, False])
def test_a_lattice_in_any_order_is_recognised_and_exact(scramble, even):
    axes = [np.linspace(0, 0.1, 7), np.linspace(0, 0.04, 5)[::-1], np.linspace(0, 0.008, 4)]
    if not even:
        axes[0] = stretched(7)
    nodes = lattice_case(axes, scramble)
    matrix, offset = linear_values(nodes)
    field = TimeSeriesField(data=(nodes @ matrix.T + offset)[None], times=[0.0], positions=nodes)
    assert type(field.grid) is (UniformGrid if even else RectilinearGrid)
    assert (field.grid.layout.rows is None) == (scramble != "random")
    np.testing.assert_allclose(field.positions, nodes, atol=1e-7)
    x = points_in(field.grid, 200)
    np.testing.assert_allclose(field(x, 0.0), x @ matrix.T + offset, atol=5e-6)


def test_scattered_positions_are_triangulated_and_exact():
    nodes = np.random.default_rng(0).uniform(0, 1, (150, 2)).astype(np.float32)
    assert find_lattice(nodes) is None
    matrix, offset = linear_values(nodes)
    field = TimeSeriesField(data=(nodes @ matrix.T + offset)[None], times=[0.0], positions=nodes)
    x = np.random.default_rng(1).uniform(0.2, 0.8, (100, 2)).astype(np.float32)
    np.testing.assert_allclose(field(x, 0.0), x @ matrix.T + offset, atol=1e-5)
    with pytest.raises(ValueError, match="no lattice; got 'cubic'"):
        TimeSeriesField(np.ones((1, 150, 2)), positions=nodes, interpolation="cubic")


def test_almost_a_lattice_is_none():
    nodes = lattice_case([np.arange(4.0), np.arange(3.0)], "C")
    assert find_lattice(nodes) is not None
    moved = nodes.copy()
    moved[5] += 0.01
    assert find_lattice(moved) is None
    twice = nodes.copy()
    twice[5] = nodes[6]
    assert find_lattice(twice) is None


def test_a_flat_lattice_in_three_dimensions_is_the_same_at_every_height():
    nodes = lattice_case([np.arange(4.0), np.arange(3.0), [0.5]], "C")
    field = TimeSeriesField(data=nodes[None], positions=nodes)
    np.testing.assert_allclose(field(jnp.array([1.5, 0.25, 9.0]), 0.0), [1.5, 0.25, 0.5], atol=1e-6)


# What users of older versions do


def test_the_arrays_lie_on_the_device_and_equal_assignments_pass_with_one_warning():
    nodes = lattice_case([np.arange(4.0), np.arange(3.0), np.arange(3.0)], "random")
    data = np.random.default_rng(0).normal(size=(5, 36, 3))
    field = TimeSeriesField(data=data, times=np.arange(5.0), positions=nodes)
    for array, shape in ((field.data, (5, 36, 3)), (field.positions, (36, 3)), (field.times, (5,))):
        assert isinstance(array, jax.Array)
        assert array.shape == shape
        assert array.devices()
    np.testing.assert_array_equal(field.data, data.astype(np.float32))
    _say_unnecessary.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        field.data = jnp.asarray(field.data)
        field._data_dev = data
        field._times_dev = np.arange(5.0)
        field._pos_dev = jax.device_put(nodes)
    assert ["unnecessary" in str(w.message) for w in seen] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.times = field.times


@pytest.mark.parametrize("name", ["data", "_data_dev", "times", "positions"])
def test_other_values_are_refused_and_replace_is_named(name):
    grid = uniform(2)
    field = TimeSeriesField(np.ones((2, grid.size, 2)), [0.0, 1.0], grid=grid)
    before = np.asarray(getattr(field, name))
    with pytest.raises(AttributeError, match=r"field\.replace\("):
        setattr(field, name, before + 1)
    with pytest.raises(AttributeError, match=r"field\.replace\("):
        setattr(field, name, before[:1])
    np.testing.assert_array_equal(getattr(field, name), before)
    with pytest.raises(AttributeError, match="cannot assign"):
        field.grid = grid


def test_replace_changes_what_is_named_and_nothing_else():
    nodes = lattice_case([np.arange(4.0), np.arange(3.0)], "C")
    field = TimeSeriesField(np.ones((4, 12, 2)), np.arange(4.0), nodes)
    assert field.replace(time_interpolation="nearest").time_interpolation == "nearest"
    assert field.replace(interpolation="cubic").grid.layout.interpolation == "cubic"
    np.testing.assert_array_equal(field.replace(times=np.arange(4.0) * 2).times, [0, 2, 4, 6])
    shifted = field.replace(positions=nodes + 10)
    np.testing.assert_array_equal(shifted.grid.bounds, np.asarray(field.grid.bounds) + 10)
    with pytest.raises(TypeError, match="got spam"):
        field.replace(spam=1)
    with pytest.raises(ValueError, match=r"shape \(times, 12, 2\)"):
        field.replace(data=np.ones((4, 11, 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": [0.0, 1.0, 1.0]}, "rise strictly"),
        ({"times": [0.0, 1.0]}, "each of the 3 slices"),
        ({"times": None}, "each of the 3 slices; got None"),
        ({"times": 1.7e9 + np.arange(3)}, r"lost beside.*times - times\[0\]"),
        ({"time_interpolation": "quintic"}, "'nearest', 'linear', 'cubic'; got 'quintic'"),
        ({"extrapolation": "error"}, "'clamp', 'outside'"),
        ({"interpolation": "cubic"}, "belongs to the grid"),
        ({"positions": np.zeros((3, 2))}, "got both"),
        ({"grid": None}, "got neither"),
        ({"data": np.ones((3, 5, 2))}, r"\(times, 42, 2\) for this grid; got \(3, 5, 2\)"),
    ],
)
def test_contradictions_are_refused(arguments, message, unchecked):
    good = {"data": np.ones((3, 42, 2)), "times": [0.0, 1.0, 2.0], "grid": uniform(2)}
    TimeSeriesField(**good)
    with pytest.raises(ValueError, match=message):
        TimeSeriesField(**{**good, **arguments})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformGrid([0.0], [0.0], (3,)), "not zero"),
        (lambda: UniformGrid([0.0, 1.0], [1.0], (3,)), "one length; got 2, 1 and 1"),
        (lambda: uniform(2, order="Z"), "'C', 'F' or the 2 axes"),
        (lambda: uniform(2, rows=np.zeros(42, int)), "0 to 41 once"),
        (lambda: uniform(2, interpolation="spline"), "got 'spline'"),
        (lambda: RectilinearGrid([[0.0, 2.0, 1.0]]), r"`axes\[0\]` must be finite and rise"),
        (lambda: RectilinearGrid([1e8 + np.arange(4.0)]), "Subtract an origin"),
        (lambda: CurvilinearGrid(np.zeros((3, 2))), r"\(nx, ny, 2\)"),
        (lambda: CurvilinearGrid(bent((3, 3)), interpolation="cubic"), "'nearest' or 'linear'"),
        (lambda: CurvilinearGrid(bent((2, 3)), centring="cell"), "two cells or more"),
    ],
)
def test_impossible_grids_are_refused(make, message, unchecked):
    with pytest.raises(ValueError, match=message):
        make()


# Bent grids


@pytest.mark.parametrize("dim", [2, 3])
def test_a_skewed_grid_loses_no_point_from_any_hint_at_any_scale(dim):
    shape = (10, 12, 7)[:dim]
    nodes = bent(shape)
    rng = np.random.default_rng(3)
    inner = (slice(1, -1),) * dim
    nodes[inner] += rng.uniform(-0.025, 0.025, nodes[inner].shape)
    for scale in (1.0, 1e-4):
        grid = CurvilinearGrid((nodes * scale).astype(np.float32))
        x = jnp.asarray(points_in(grid, 1500))
        hints = jnp.asarray(rng.integers(0, np.prod(np.array(shape) - 1), 1500), jnp.int32)
        found = jax.jit(jax.vmap(lambda g, p, h: g.stencil(p, h), (None, 0, 0)))(grid, x, hints)
        assert found.inside.all()
        back = jnp.einsum("nk,nkd->nd", found.weight, grid.points[found.index], precision="highest")
        assert jnp.abs(back - x).max() < 2e-6 * scale
        again = jax.jit(jax.vmap(lambda g, p, h: g.stencil(p, h), (None, 0, 0)))(grid, x, found.hint)
        assert (again.hint == found.hint).mean() > 0.999


def test_an_old_cell_on_the_other_side_of_a_ring_loses_no_point():
    radius, angle = np.meshgrid(np.linspace(1, 1.3, 4), np.linspace(0, 6.1, 60), indexing="ij")
    grid = CurvilinearGrid(np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).astype(np.float32))
    x = jnp.asarray(points_in(grid, 1500))
    hints = jnp.asarray(np.random.default_rng(0).integers(0, 3 * 59, 1500), jnp.int32)
    found = jax.jit(jax.vmap(lambda g, p, h: g.stencil(p, h), (None, 0, 0)))(grid, x, hints)
    assert found.inside.all()


def test_outside_a_bent_grid_is_reported():
    grid = CurvilinearGrid(bent((20, 40)).astype(np.float32))
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.5, 2.5, (3000, 2)).astype(np.float32)
    angle = np.arctan2(x[:, 1], x[:, 0])
    along = (angle - 0.3) / 2
    radius = np.hypot(x[:, 0], x[:, 1])
    inner, outer = 1 + 0.1 * along, 2 + 0.1 * along
    want = (along > 0) & (along < 1) & (radius > inner) & (radius < outer)
    # Between the arc and its chords neither answer is wrong.
    sure = (
        np.minimum.reduce([np.abs(along), np.abs(along - 1), np.abs(radius - inner), np.abs(radius - outer)])
        > 0.01
    )
    found = jax.jit(jax.vmap(lambda p: grid.stencil(p, grid.start(p)).inside))(x)
    np.testing.assert_array_equal(np.asarray(found)[sure], want[sure])


def test_nearest_takes_one_value():
    for grid in (uniform(2, interpolation="nearest"), CurvilinearGrid(bent((6, 7)), interpolation="nearest")):
        field = TimeSeriesField(np.asarray(grid.positions), grid=grid)
        x = points_in(grid, 100)
        rows = np.asarray(grid.positions)
        got = np.asarray(field(x, 0.0))
        assert np.isin(got.view(np.complex64), rows.view(np.complex64)).all()
    cells = CurvilinearGrid(bent((6, 7)), interpolation="nearest", centring="cell")
    field = TimeSeriesField(np.asarray(cells.positions), grid=cells)
    np.testing.assert_allclose(field(cells.positions, 0.0), cells.positions, atol=1e-6)


# Analytic


def test_the_double_gyre_is_the_common_job_of_the_benchmark():
    x, y, z, t = 0.7, 0.3, 0.6, 1.9
    s = 0.25 * np.sin(2 * np.pi / 10 * t)
    f, slope = s * x * x + (1 - 2 * s) * x, 2 * s * x + 1 - 2 * s
    want = [
        -np.pi * 0.1 * np.sin(np.pi * f) * np.cos(np.pi * y),
        np.pi * 0.1 * np.cos(np.pi * f) * np.sin(np.pi * y) * slope,
        z * (1 - z) * (z - 0.25 * np.sin(4 * np.pi / 10 * t) - 0.5),
    ]
    np.testing.assert_allclose(double_gyre(dim=3)(jnp.array([x, y, z]), t), want, rtol=1e-5)
    np.testing.assert_allclose(double_gyre()(jnp.array([x, y]), t), want[:2], rtol=1e-5)
    with pytest.raises(ValueError, match="2 or 3; got 4"):
        double_gyre(dim=4)


@pytest.mark.parametrize(
    "field",
    [double_gyre(), abc_flow(swing=0.3), peninsula(), solid_rotation(2.0, (0.1, 0.2, 0.3))],
    ids=["gyre", "abc", "peninsula", "rotation"],
)
def test_the_ready_flows_have_no_divergence(field):
    def velocity(x):
        return field.sample(x, jnp.float32(0.7), ()).velocity

    x = jnp.asarray(np.random.default_rng(0).uniform(0.1, 0.9, (20, field.dim)), jnp.float32)
    x = x.at[:, 1].add(0.4)
    slopes = jax.vmap(jax.jacfwd(velocity))(x)
    assert jnp.abs(jnp.trace(slopes, axis1=1, axis2=2)).max() < 1e-5
    assert jnp.abs(slopes).max() > 0.1


def test_the_peninsula_follows_its_stream_function_and_is_land_inside():
    field = peninsula(speed=2.0)
    x = jnp.array([[0.1, 0.2], [0.5, 0.6], [0.9, 0.4]])
    slope = jax.vmap(jax.grad(lambda p: peninsula_stream(field, p)))(x)
    np.testing.assert_allclose(
        field(x, 0.0), jnp.stack([slope[:, 1], -slope[:, 0]], -1), rtol=1e-5, atol=1e-6
    )
    assert jnp.isnan(field(jnp.array([0.5, 0.1]), 0.0)).all()


def test_small_flows_and_parameters(unchecked):
    rotation = solid_rotation(3.0, (1.0, 0.0))
    np.testing.assert_allclose(rotation(jnp.array([2.0, 1.0]), 0.0), [-3.0, 3.0])
    np.testing.assert_allclose(constant_flow([0.1, 0.0, 0.2])(jnp.zeros((4, 3)), 5.0), [[0.1, 0, 0.2]] * 4)
    flow = linear_flow([[1.0, 2.0], [0.0, 1.0]], [1.0, 1.0], [0.0, 0.5])
    np.testing.assert_allclose(flow(jnp.array([1.0, 2.0]), 2.0), [6.0, 4.0])
    gain = jax.grad(lambda p: AnalyticField(lambda x, t, p: p * x, 2, p)(jnp.array([1.0, 2.0]), 0.0).sum())
    assert float(gain(jnp.float32(5.0))) == 3.0
    with pytest.raises(ValueError, match=r"shape \(2,\).*got \(\)"):
        AnalyticField(lambda x, t: x[0], 2)(jnp.zeros(2), 0.0)
    with pytest.raises(ValueError, match="3 coordinates"):
        constant_flow([0.0, 0.0, 0.0])(jnp.zeros(2), 0.0)
    with pytest.raises(TypeError, match="callable"):
        AnalyticField(3, 2)


def test_points_on_the_faces_lie_inside():
    rng = np.random.default_rng(0)
    for _ in range(6):
        low = rng.uniform(-1, 1, 2)
        high = low + rng.uniform(0.1, 2.0, 2)
        counts = rng.integers(3, 60, 2)
        axes = [np.linspace(a, b, n).astype(np.float32) for a, b, n in zip(low, high, counts, strict=True)]
        points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], -1)
        field = TimeSeriesField(np.ones_like(points), positions=points)
        corners = np.array([[axes[0][i], axes[1][j]] for i in (0, -1) for j in (0, -1)])
        assert np.isfinite(field(corners, 0.0)).all()
        beyond = corners + 1e-4 * np.sign(corners - points.mean(0)).astype(np.float32)
        assert np.isnan(field(beyond, 0.0)).all()

"""Laws of fields on grids: weights sum to one, constants stay, turning an axis round changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrace.fields import RectilinearGrid, TimeSeriesField, UniformGrid, find_lattice

pytestmark = pytest.mark.usefixtures("quick_compile")

INTERPOLATIONS = st.sampled_from(["nearest", "linear", "cubic"])
CENTRINGS = st.sampled_from(["node", "cell"])
SEEDS = st.integers(0, 2**31)
few = settings(max_examples=8, deadline=None)


def axes_from(seed, dim=2):
    """Strictly rising axes of few sizes, so that programs are compiled once for each."""
    rng = np.random.default_rng(seed)
    counts = rng.choice([2, 3, 5], dim)
    return [np.cumsum(rng.uniform(0.1, 1.0, n)) * 10.0 ** rng.integers(-3, 4) for n in counts]


def points_between(axes, seed, count=20):
    rng = np.random.default_rng(seed)
    return np.stack([rng.uniform(a[0], a[-1], count) for a in axes], -1).astype(np.float32)


@jax.jit
def stencils(grid, points):
    return jax.vmap(lambda x: grid.stencil(x, ()))(points)


@given(SEEDS, INTERPOLATIONS, CENTRINGS)
@few
def test_weights_sum_to_one_rows_exist_and_points_are_reproduced(seed, interpolation, centring):
    axes = axes_from(seed)
    grid = RectilinearGrid(axes, interpolation=interpolation, centring=centring)
    x = np.clip(points_between(axes, seed), *np.asarray(grid.bounds))
    found = stencils(grid, jnp.asarray(x))
    assert found.inside.all()
    assert ((found.index >= 0) & (found.index < grid.size)).all()
    np.testing.assert_allclose(found.weight.sum(-1), 1, atol=1e-5)
    if interpolation != "nearest":
        back = np.einsum("nk,nkd->nd", found.weight, np.asarray(grid.positions)[found.index])
        for axis, count in enumerate(grid.counts):
            if count > 1:  # a single cell along an axis holds one value, which cannot follow the point
                scale = np.abs(axes[axis]).max()
                np.testing.assert_allclose(back[:, axis], x[:, axis], atol=1e-5 * scale)


@given(SEEDS, INTERPOLATIONS, CENTRINGS)
@few
def test_turning_an_axis_round_changes_nothing(seed, interpolation, centring):
    axes = axes_from(seed)
    options = {"interpolation": interpolation, "centring": centring}
    grid = RectilinearGrid(axes, **options)
    turned = RectilinearGrid([axes[0][::-1], axes[1]], **options)
    values = np.random.default_rng(seed).normal(size=(1, *grid.counts, 2))
    x = points_between(axes, seed)
    plain = TimeSeriesField(values, grid=grid)(x, 0.0)
    np.testing.assert_allclose(TimeSeriesField(values[:, ::-1], grid=turned)(x, 0.0), plain, atol=2e-5)


@given(SEEDS, INTERPOLATIONS)
@few
def test_even_axes_give_the_same_on_both_kinds_of_grid(seed, interpolation):
    rng = np.random.default_rng(seed)
    origin, spacing = rng.uniform(-5, 5, 2), rng.uniform(0.1, 2, 2)
    shape = (4, 5)
    even = UniformGrid(origin, spacing, shape, interpolation=interpolation)
    listed = RectilinearGrid(
        [o + h * np.arange(n) for o, h, n in zip(origin, spacing, shape, strict=True)],
        interpolation=interpolation,
    )
    values = rng.normal(size=(1, 4, 5, 2))
    share = rng.uniform(0.02, 0.98, (20, 2))
    # Away from the middles of intervals, where nearest may round either way.
    share = np.where(np.abs((share * [3, 4]) % 1 - 0.5) < 0.01, share + 0.01, share)
    x = (origin + share * spacing * [3, 4]).astype(np.float32)
    one, two = (TimeSeriesField(values, grid=grid)(x, 0.0) for grid in (even, listed))
    np.testing.assert_allclose(one, two, atol=1e-4)


@given(SEEDS)
@few
def test_the_order_of_a_lattice_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    axes = axes_from(seed, 3)
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    values = rng.normal(size=(1, len(nodes), 3))
    mixed = rng.permutation(len(nodes))
    plain, shuffled = find_lattice(nodes), find_lattice(nodes[mixed])
    assert plain is not None
    assert shuffled is not None
    x = jnp.asarray(points_between(axes, seed))
    one = TimeSeriesField(values, grid=plain)(x, 0.0)
    two = TimeSeriesField(values[:, mixed], grid=shuffled)(x, 0.0)
    np.testing.assert_allclose(one, two, atol=1e-5)


@given(SEEDS)
@few
def test_land_left_out_never_leaves_the_range_of_the_wet_values(seed):
    rng = np.random.default_rng(seed)
    land = rng.random((6, 5)) < 0.4
    values = np.where(land[..., None], 1e6, rng.uniform(-1, 1, (6, 5, 2)))
    for interpolation in ("linear", "cubic"):
        grid = UniformGrid(
            [0.0, 0.0], [1.0, 1.0], (6, 5), mask=land, land_values="drop", interpolation=interpolation
        )
        got = np.asarray(
            TimeSeriesField(values[None], grid=grid)(rng.uniform(0, 4, (50, 2)).astype(np.float32), 0.0)
        )
        reached = got[np.isfinite(got)]
        assert np.all(
            np.abs(reached) < 1.7
        )  # Catmull–Rom overshoots by at most a quarter in each of two axes

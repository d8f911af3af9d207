"""Moments of a series: every layout gives the numbers of direct samples, the kernel those of its twin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.boundaries import Unbounded
from jaxtrace.fields import (
    CurvilinearGrid,
    Mesh,
    RectilinearGrid,
    TimeSeriesField,
    UniformGrid,
    UnstructuredGrid,
    delaunay_grid,
    linear_flow,
)
from jaxtrace.fields.moments import columns
from jaxtrace.integrators import RK4, Euler
from jaxtrace.integrators.base import ParticleState
from jaxtrace.kernels import GPU, KernelState
from jaxtrace.kernels.gpu import fused_step
from jaxtrace.motion import Motion
from jaxtrace.tracking.layout import layouts_for, ruled_layout, tuned_layout
from jaxtrace.tracking.space_order import curve_order, curve_places, put_in_slots

pytestmark = pytest.mark.usefixtures("quick_compile")
RNG = np.random.default_rng(4)


def gpu_takes(integrator, field):
    motion = Motion(field, integrator, Unbounded(), jax.random.key(0))
    return GPU.why_not(motion) is None


def uniform(dim, order="C"):
    return UniformGrid([0.1] * dim, [0.25, 0.5, 1.0][:dim], (9, 7, 5)[:dim], order=order)


def stretched():
    return RectilinearGrid([np.cumsum(RNG.uniform(0.5, 1.5, n)) for n in (6, 5, 4)])


def bent():
    x, y = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5), indexing="ij")
    return CurvilinearGrid(np.stack([x + 0.1 * np.sin(3 * y), y + 0.1 * x * x], -1))


def scattered():
    return delaunay_grid(RNG.uniform(size=(60, 3)))


GRIDS = {
    "uniform2": lambda: uniform(2),
    "uniform3": lambda: uniform(3),
    "fortran": lambda: uniform(3, "F"),
    "stretched": stretched,
    "bent": bent,
    "scattered": scattered,
}


def series(grid, layout="direct", times=6, **options):
    rng = np.random.default_rng(1)
    data = rng.normal(size=(times, grid.size, grid.dim)).astype(np.float32)
    clock = np.cumsum(rng.uniform(0.5, 1.5, times))
    return TimeSeriesField(data, clock, grid=grid, layout=layout, **options)


def points(grid, count=200, beyond=0.2):
    low, high = np.asarray(grid.bounds)
    extent = high - low
    drawn = np.random.default_rng(2).uniform(low - beyond * extent, high + beyond * extent, (count, grid.dim))
    return jnp.asarray(drawn.astype(np.float32))


def samples(field, x, t):
    moment = field.at(jnp.float32(t))
    return jax.vmap(lambda p: moment.sample(p, field.start(p)))(x)


@pytest.mark.parametrize(
    ("name", "time_interpolation"),
    [(name, "cubic") for name in GRIDS if name not in ("uniform2", "uniform3")]
    + [("uniform2", "linear"), ("uniform2", "nearest")],
)
def test_every_layout_gives_the_direct_samples(name, time_interpolation):
    grid = GRIDS[name]()
    field = series(grid, time_interpolation=time_interpolation)
    x, t = points(grid), 2.345
    expected = jax.jit(jax.vmap(lambda p: field.sample(p, jnp.float32(t), field.start(p))))(x)
    largest = float(jnp.abs(field.data).max())
    assert largest < float(field.scale) <= 2 * largest
    assert np.frexp(field.scale)[0] == 0.5  # a power of two
    for layout in layouts_for(field, half=True):
        if layout == "direct":
            continue
        found = jax.jit(samples)(field.with_layout(layout), x, t)
        # Cubic weights sum to at most 1.25 in magnitude; 2⁻¹¹ is half a unit in the last place of 11 bits.
        bound = 1.25 * largest * 2.0**-11 if layout == "cells16" else 4e-6 * largest
        assert float(jnp.abs(found.velocity - expected.velocity).max()) <= bound, layout
        np.testing.assert_array_equal(found.inside, expected.inside)
        assert 0 < int(found.inside.sum()) < len(x)


def test_half_precision_differs_and_is_scaled_by_the_greatest_speed():
    grid = uniform(3)
    field = series(grid).replace(data=series(grid).data * 1e7)  # far beyond what 16 bits can hold
    x = points(grid, beyond=-0.05)
    exact = samples(field.with_layout("cells"), x, 2.0).velocity
    short = samples(field.with_layout("cells16"), x, 2.0).velocity
    off = float(jnp.abs(exact - short).max()) / float(field.scale)
    assert 1e-6 < off < 2.0**-11


def test_what_cannot_be_packed_is_refused():
    field = series(UniformGrid([0.0, 0.0], [1.0, 1.0], (4, 4), interpolation="cubic"))
    assert layouts_for(field) == ("direct", "rows")
    with pytest.raises(ValueError, match=r"`layout` must be 'direct' or 'rows'.*'cells'"):
        field.with_layout("cells")


@pytest.mark.parametrize("layout", ["rows", "cells"])
def test_gradients_pass_through_a_layout(layout):
    grid = uniform(2)
    x = points(grid, 20, beyond=-0.1)

    def total(data, layout):
        field = series(grid).replace(data=data).with_layout(layout)
        return jnp.sum(samples(field, x, 2.0).velocity ** 2)

    data = series(grid).data
    expected = jax.grad(total)(data, "direct")
    assert float(jnp.abs(expected).max()) > 0.1
    np.testing.assert_allclose(jax.grad(total)(data, layout), expected, atol=2e-5)


def ring_of_triangles():
    """A mesh with a hole: walks across it get stuck, and the bins must help."""
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 25)[:-1], np.linspace(0.3, 1.0, 5), indexing="ij")
    nodes = np.arange(angle.size).reshape(angle.shape)
    a, b = nodes[:, :-1], np.roll(nodes, -1, 0)[:, :-1]
    c, d = np.roll(nodes, -1, 0)[:, 1:], nodes[:, 1:]
    triangles = np.concatenate([np.stack(t, -1).reshape(-1, 3) for t in ((a, b, c), (a, c, d))])
    at = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    return UnstructuredGrid(Mesh(at, {"triangle": triangles}))


FUSED = {
    "uniform2": lambda: uniform(2),
    "uniform3": lambda: uniform(3, "F"),
    "ring": ring_of_triangles,
    "tetrahedra": lambda: delaunay_grid(RNG.uniform(size=(200, 3))),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [("uniform2", "cells"), ("uniform3", "cells16"), ("ring", "cells"), ("tetrahedra", "cells16")],
)
def test_the_kernel_takes_the_step_of_its_twin(name, layout):
    grid = FUSED[name]()
    field = series(grid, layout)
    assert gpu_takes(RK4(), field)
    x, t, dt = points(grid, 150), jnp.float32(1.7), jnp.float32(0.05)  # not a multiple of the kernel's block
    rest = 1e-3 * jnp.ones_like(x)
    count = len(x)
    row, never = jnp.int32(5), np.iinfo(np.int32).max
    begun = jnp.where(jnp.arange(count) % 7 == 0, 6, 0).astype(jnp.int32)  # some begin later
    ended = jnp.where(jnp.arange(count) % 5 == 0, 3, never).astype(jnp.int32)  # some have ended
    # The hints of meshes are far from the truth for half of the particles.
    hint = jax.tree.map(lambda near: jnp.where(jnp.arange(count) % 2 == 0, near, 0), jax.vmap(grid.start)(x))
    before = KernelState(x, rest, hint, begun, ended, jnp.full(count, -1, jnp.int32), None)
    step = functools.partial(fused_step, field, before, row, t, dt, not_finite=-3, interpret=True)
    after = step(outside=-2)
    moved, kept, found = after.position, after.residual, after.hint
    state = jax.vmap(lambda p, hint: RK4().step(field, ParticleState(p, p, hint, jnp.bool_(True)), t, dt))(
        x + rest, hint
    )
    moving = (begun <= row) & (row < ended)
    goes, lost = moving & state.inside, moving & ~state.inside
    assert min(int(goes.sum()), int(lost.sum()), int((~moving).sum())) > 10
    np.testing.assert_allclose((moved + kept)[goes], state.position[goes], atol=2e-6)
    np.testing.assert_array_equal(moved[~goes], x[~goes])
    np.testing.assert_array_equal(kept[~goes], rest[~goes])
    np.testing.assert_array_equal(after.ended, jnp.where(lost, row, ended))
    np.testing.assert_array_equal(after.cause, jnp.where(lost, -2, -1))
    for ours, twins, before in zip(*map(jax.tree.leaves, (found, state.hint, hint)), strict=True):
        np.testing.assert_array_equal(ours, jnp.where(goes, twins, before))
    assert float(jnp.abs(moved - x)[goes].max()) > 0.02
    # What rounding kept is far below the position's last place, and not nothing.
    assert 0 < float(jnp.abs(kept[goes]).max()) < 1e-6
    onwards = step(outside=None)
    np.testing.assert_allclose(onwards.position[lost], state.position[lost], atol=2e-6)
    np.testing.assert_array_equal(onwards.ended, ended)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["uniform3", "tetrahedra"])
def test_the_kernel_can_be_lowered_for_a_gpu(name):
    grid = FUSED[name]()
    field, x = series(grid, "cells16"), points(grid, 150)
    none = jnp.zeros(len(x), jnp.int32)

    def step(x, hint):
        t, dt = jnp.float32(1.7), jnp.float32(0.05)
        before = KernelState(x, jnp.zeros_like(x), hint, none, none + 9, none, None)
        return fused_step(field, before, jnp.int32(1), t, dt, outside=-2, not_finite=-3)

    traced = jax.jit(step).trace(x, jax.vmap(grid.start)(x))
    try:
        program = traced.lower(lowering_platforms=("cuda",)).as_text()
    except RuntimeError as error:
        pytest.skip(f"this version of jax lowers kernels only where a GPU is: {error}")
    assert "triton" in program
    assert str(len(x)) in program


def test_the_kernel_is_for_packed_uniform_grids_and_simplices_only():
    packed = series(uniform(3), "cells")
    assert gpu_takes(RK4(), packed)
    assert not gpu_takes(Euler(), packed)
    assert not gpu_takes(RK4(), packed.with_layout("rows"))
    assert not gpu_takes(RK4(), series(stretched(), "cells"))
    quad = Mesh([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], {"quad": [[0, 1, 2, 3]]})
    assert not gpu_takes(RK4(), series(UnstructuredGrid(quad), "cells"))
    assert not gpu_takes(RK4(), linear_flow(jnp.eye(3)))


def test_rows_are_padded_to_powers_of_two():
    assert [columns(dim) for dim in (1, 2, 3, 4)] == [1, 2, 4, 4]
    moment = series(uniform(3), "rows").at(jnp.float32(2.0))
    assert moment.values.shape == (9 * 7 * 5, 4)
    assert series(uniform(3), "cells16").at(jnp.float32(2.0)).values.dtype == jnp.float16


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_curve_keeps_neighbours_together(dim):
    count = 16
    axes = np.meshgrid(*[np.arange(count)] * dim, indexing="ij")
    x = jnp.asarray(np.stack([a.ravel() for a in axes], -1), jnp.float32)
    x = x[np.random.default_rng(0).permutation(len(x))]
    low, high = jnp.zeros(dim), jnp.full(dim, float(count - 1))
    order = curve_order(x, low, high)
    assert sorted(order.tolist()) == list(range(len(x)))
    # The first half of the curve is the lower half of the first axis.
    half = x[order][: len(x) // 2]
    assert float(half[:, 0].max()) < count / 2
    along = np.abs(np.diff(np.asarray(x[order]), axis=0)).sum(1)
    assert along.mean() < 2.0
    assert len(set(curve_places(x, low, high).tolist())) == len(x)


def test_sorted_particles_return_to_their_slots():
    x = points(uniform(3), 50)
    order = curve_order(x, jnp.zeros(3), jnp.ones(3))
    back = put_in_slots({"x": x[order]}, (order + 7).astype(jnp.int32))
    np.testing.assert_array_equal(back["x"], x)
    assert not np.array_equal(x[order], x)


def test_the_rule_and_the_measurement_name_a_layout():
    field = series(uniform(3))
    assert ruled_layout(field, RK4(), 1).layout == "direct"
    assert ruled_layout(field, RK4(), 10_000).layout == "rows"
    assert ruled_layout(linear_flow(jnp.eye(2)), RK4(), 10_000).layout == "direct"
    tuning = tuned_layout(field, RK4(), np.asarray(points(field.grid, 64)), 1.0, 0.01, seconds=0.02)
    assert tuning.layout == max(tuning.rates, key=tuning.rates.get)
    assert set(tuning.rates) == {"direct", "rows", "cells"}
    assert "million particle-steps/s" in str(tuning)

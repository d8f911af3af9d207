"""Unstructured grids: every cell kind, every scale, hanging faces, walls, bays and scattered nodes."""

import inspect
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrace.fields import Mesh, UnstructuredGrid, delaunay_grid
from jaxtrace.fields.meshes.averages import nodal_averages
from jaxtrace.fields.meshes.shapes import SHAPES, divide, shape_matrix

pytestmark = pytest.mark.usefixtures("quick_compile")
SHARED = Path(__file__).resolve().parents[5] / "shared"
DISK = SHARED / "data/trace/vtk_cfd/disk_out_ref.ex2"
# Cuts of one brick of a lattice; every face is cut alike from both sides.
KUHN = [[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]
PRISMS = [[0, 1, 2, 4, 5, 6], [0, 2, 3, 4, 6, 7]]
KINDS = ["triangle", "quad", "tetra", "hexahedron", "wedge"]


def lattice(shape, low=0.0, high=1.0):
    """Points of a lattice from `low` to `high` and its bricks (or quads)."""
    dim = len(shape)
    low, high = np.broadcast_to(low, dim), np.broadcast_to(high, dim)
    axes = [np.linspace(low[k], high[k], n + 1) for k, n in enumerate(shape)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    number = np.arange(points[..., 0].size).reshape(points.shape[:-1])
    corners = SHAPES["quad" if dim == 2 else "hexahedron"].corners
    cut = [slice(None, -1), slice(1, None)]
    bricks = np.stack([number[tuple(cut[c] for c in corner)].ravel() for corner in corners], -1)
    return points.reshape(-1, dim), bricks


def cells_of(kind, bricks):
    """Bricks, or the cells of another kind they are cut into."""
    cuts = {"triangle": [[0, 1, 2], [0, 2, 3]], "tetra": KUHN, "wedge": PRISMS}
    return {kind: bricks[:, cuts[kind]].reshape(-1, len(SHAPES[kind].corners)) if kind in cuts else bricks}


def distorted(kind, n=4, jitter=0.15, seed=0):
    """A mesh of one kind: every node moved at random (faces no longer plane), then an affine map."""
    rng = np.random.default_rng(seed)
    dim = SHAPES[kind].dim
    points, bricks = lattice((n,) * dim)
    points = points + jitter / n * rng.uniform(-1, 1, points.shape)
    skew = np.eye(dim) + 0.3 * rng.uniform(-1, 1, (dim, dim))
    return points @ skew.T + rng.uniform(-1, 1, dim), cells_of(kind, bricks)


def points_inside(mesh, n, seed=1):
    """Random points of random cells, by the shape functions of the cells."""
    rng = np.random.default_rng(seed)
    found = []
    for name, nodes in mesh.cells.items():
        shape = SHAPES[name]
        cell = rng.integers(0, len(nodes), n // len(mesh.cells))
        weight = rng.dirichlet(np.ones(len(shape.corners)), len(cell))
        xi = weight @ np.asarray(shape.corners, float)  # any mean of the corners lies in the reference cell
        powers = np.asarray([[0] * shape.dim, *np.eye(shape.dim, dtype=int)])
        if shape.dim == 2:
            powers = np.r_[powers, [[1, 1]]]
        else:
            powers = np.r_[powers, [[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]]
        terms = np.prod(xi[:, None] ** powers, -1)
        found.append(
            np.einsum(
                "nk,nkd->nd", terms @ shape_matrix(shape, len(shape.corners)).T, mesh.points[nodes[cell]]
            )
        )
    return np.concatenate(found)


def brute_force(mesh, x):
    """Lowest barycentric coordinate of each point in its best simplex: positive inside, negative outside."""
    best = np.full(len(x), -np.inf)
    for name, nodes in mesh.cells.items():
        for simplex in mesh.points[divide(SHAPES[name], nodes)[0].reshape(-1, mesh.dim + 1)]:
            rest = np.linalg.solve((simplex[1:] - simplex[0]).T, (x - simplex[0]).T)
            best = np.maximum(best, np.minimum(rest.min(0), 1 - rest.sum(0)))
    return best


@eqx.filter_jit
def read(grid, values, x, hint=None):
    """Values at many points, whether they are inside, and the hints."""

    def one(x, hint):
        found = grid.stencil(x, grid.start(x) if hint is None else hint)
        return jnp.sum(found.weight[:, None] * values[found.index], 0), found.inside, found.hint, found.weight

    return jax.vmap(one, in_axes=(0, None if hint is None else 0))(x, hint)


def f32(x):
    return jnp.asarray(x, jnp.float32)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_linear_fields_are_exact_on_every_kind_of_cell_and_scale(kind, scale):
    points, cells = distorted(kind)
    mesh = Mesh(points * scale, cells)
    grid = UnstructuredGrid(mesh)
    x = points_inside(mesh, 2000)
    slope = np.random.default_rng(2).normal(size=(mesh.dim, 3)) / scale
    got, inside, _, weight = read(grid, f32(mesh.points @ slope + 1), f32(x))
    assert inside.all()
    np.testing.assert_allclose(got, x @ slope + 1, atol=8e-6)
    np.testing.assert_allclose(weight.sum(1), 1, atol=2e-6)


def test_a_mesh_of_several_kinds_is_exact_and_joined():
    points, bricks = lattice((4, 4, 4))
    points = points + 0.03 * np.random.default_rng(0).uniform(-1, 1, points.shape)
    left = points[bricks].mean(1)[:, 0] < 0.5
    mesh = Mesh(points, {"wedge": bricks[left][:, PRISMS].reshape(-1, 6), "hexahedron": bricks[~left]})
    grid = UnstructuredGrid(mesh)
    x = points_inside(mesh, 4000)
    got, inside, _, _ = read(grid, f32(points), f32(x))
    assert inside.all()
    np.testing.assert_allclose(got, x, atol=2e-6)
    across = mesh.neighbours[:64][mesh.neighbours[:64] >= 64]
    assert len(across) == 16  # the 16 faces between the halves are open
    assert grid.neighbours.shape == (64 + 32, 6)
    assert (np.asarray(grid.neighbours)[:64, 5] == np.arange(64)).all()  # a prism has no sixth face


@pytest.mark.parametrize("kind", ["hexahedron", "wedge"])
def test_cells_cut_the_faces_they_share_alike_whatever_the_numbering(kind):
    points, bricks = lattice((3, 3, 3))
    shuffled = np.random.default_rng(0).permutation(len(points))
    cells = shuffled[cells_of(kind, bricks)[kind]]
    pieces = divide(SHAPES[kind], cells)[0].reshape(-1, 4)
    place = np.empty_like(points)
    place[shuffled] = points
    corners = place[pieces]
    assert np.linalg.det(corners[:, 1:] - corners[:, :1]).sum() / 6 == pytest.approx(1)
    faces = np.sort(pieces[:, [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]].reshape(-1, 3), 1)
    single = np.unique(faces, axis=0, return_counts=True)[1] == 1
    assert single.sum() == 6 * 9 * 2  # the triangles of the outer faces, no others


def test_strongly_warped_bricks_still_reproduce_position():
    rng = np.random.default_rng(5)
    points, bricks = lattice((3, 3, 3))
    mesh = Mesh(points + 0.25 / 3 * rng.uniform(-1, 1, points.shape), {"hexahedron": bricks})
    x = points_inside(mesh, 5000)
    got, inside, _, _ = read(UnstructuredGrid(mesh), f32(mesh.points), f32(x))
    assert inside.all()
    np.testing.assert_allclose(got, x, atol=2e-6)


def non_conforming(kind):
    """Coarse cells for x < 1, cells a third as wide beyond, sharing no node: every face between hangs."""
    coarse, big = lattice((2, 2, 2), 0.0, (1.0, 1.0, 1.0))
    fine, small = lattice((3, 6, 6), (1.0, 0.0, 0.0), (2.0, 1.0, 1.0))
    return Mesh(np.r_[coarse, fine], cells_of(kind, np.r_[big, small + len(coarse)]))


def conforming(kind):
    """A box whose inner nodes are moved at random."""
    points, bricks = lattice((5, 4, 6), 0.0, (2.0, 1.0, 1.0))
    rim = ((points == 0) | (points == [2.0, 1.0, 1.0])).any(1)
    moved = points + 0.04 * np.random.default_rng(3).uniform(-1, 1, points.shape) * ~rim[:, None]
    return Mesh(moved, cells_of(kind, bricks))


@pytest.mark.parametrize("build", [conforming, non_conforming])
@pytest.mark.parametrize("kind", ["tetra", "hexahedron", "wedge"])
def test_no_interior_point_is_lost(build, kind):
    mesh = build(kind)
    grid = UnstructuredGrid(mesh)
    x = f32(np.random.default_rng(4).uniform(1e-6, [2 - 1e-6, 1 - 1e-6, 1 - 1e-6], (100_000, 3)))
    near = jax.jit(jax.vmap(grid.start))(x)
    hint = near.at[::2].set(
        near[1::2]
    )  # every other point starts at another one's place, often on the other side
    got, inside, _, _ = read(grid, f32(mesh.points), x, hint)
    assert int((~inside).sum()) == 0
    np.testing.assert_allclose(got, x, atol=2e-6)


def test_hanging_faces_are_linked_both_ways():
    mesh = non_conforming("hexahedron")
    between = (
        (mesh.neighbours[:8] >= 8).sum(),
        (mesh.neighbours[8:] < 8).sum() - (mesh.neighbours[8:] < 0).sum(),
    )
    assert between == (4, 36)  # 4 coarse faces, 36 fine ones
    faces = mesh.boundary_faces()
    assert len(faces.cell) == 4 + 4 * 4 + 36 + 4 * 18
    assert not np.isclose(mesh.points[faces.nodes][..., 0], 1.0).all(1).any()


def bay(n=4, kind="quad"):
    """A horseshoe of three arms around a gap that opens upwards."""
    dim = SHAPES[kind].dim
    points, bricks = lattice((3 * n, 3 * n, 2)[:dim], 0.0, 3.0)
    middle = points[bricks].mean(1)
    keep = ~((np.abs(middle[:, 0] - 1.5) < 0.5) & (middle[:, 1] > 1))
    return Mesh(points, cells_of(kind, bricks[keep]))


@pytest.mark.parametrize("kind", KINDS)
def test_walks_from_anywhere_agree_with_brute_force_around_a_bay(kind):
    mesh = bay(2, kind)
    grid = UnstructuredGrid(mesh)
    rng = np.random.default_rng(6)
    x = rng.uniform(-0.3, 3.3, (3000, mesh.dim))
    truth = brute_force(mesh, x)
    clear = np.abs(truth) > 1e-4  # points on a wall may fall either way
    hint = jnp.asarray(rng.integers(0, grid.search.links.shape[0], len(x)), jnp.int32)
    got, inside, found, _ = read(grid, f32(mesh.points), f32(x), hint)
    np.testing.assert_array_equal(np.asarray(inside)[clear], truth[clear] > 0)
    assert 0.3 < np.mean(inside) < 0.8
    within = np.asarray(inside) & clear
    np.testing.assert_allclose(got[within], x[within], atol=3e-6)
    assert np.isfinite(np.asarray(got)).all()
    _, again, _, _ = read(grid, f32(mesh.points), f32(x), found)
    np.testing.assert_array_equal(np.asarray(again)[clear], truth[clear] > 0)


def test_a_walk_that_ends_in_a_bay_is_saved_by_the_bins():
    mesh = bay()
    grid = UnstructuredGrid(mesh)
    left, right = f32([0.5, 2.9]), f32([2.5, 2.9])
    start = grid.stencil(left, grid.start(left)).hint
    assert bool(grid.stencil(right, start).inside)
    lost = eqx.tree_at(lambda g: g.search.bin_first, grid, jnp.zeros_like(grid.search.bin_first))
    assert not bool(lost.stencil(right, start).inside)  # without bins the straight walk stops at the gap
    short = UnstructuredGrid(mesh, max_walk=0)
    assert bool(short.stencil(right, start).inside)


def test_clear_space_spares_the_search_only_where_it_is_clear():
    mesh = bay(4)
    grid = UnstructuredGrid(mesh)
    walls = (np.asarray(grid.search.links) < 0).any(1)
    clear = np.asarray(grid.search.clear)
    assert (clear[~walls] == 0).all()
    assert (clear[walls] > 0).mean() > 0.9
    # A gap narrower than half a cell: nothing behind its walls may be called clear beyond the gap.
    left, right = lattice((2, 2), 0.0, 1.0), lattice((2, 2), (1.1, 0.0), (2.1, 1.0))
    split = Mesh(np.r_[left[0], right[0]], {"quad": np.r_[left[1], right[1] + len(left[0])]})
    grid = UnstructuredGrid(split)
    x = f32([[1.05, 0.5], [1.2, 0.4], [0.9, 0.6]])
    hint = jnp.full((3,), grid.stencil(x[2], grid.start(x[2])).hint)
    assert read(grid, f32(split.points), x, hint)[1].tolist() == [False, True, True]


def test_points_outside_and_nan_are_reported_with_finite_values():
    grid = UnstructuredGrid(conforming("tetra"))
    x = f32([[-1e-3, 0.5, 0.5], [1.0, 0.5, 1.001], [50.0, -50.0, 0.5], [np.nan, 0.5, 0.5], [1.0, 0.5, 0.5]])
    got, inside, hint, weight = read(grid, grid.positions, x)
    assert inside.tolist() == [False, False, False, False, True]
    np.testing.assert_allclose(got[0], [0.0, 0.5, 0.5], atol=0.1)  # the value of a near point
    assert float(weight[:3].min()) >= 0
    assert float(weight[:3].max()) <= 1
    assert (np.asarray(hint) >= 0).all()


def _inside(grid, x):
    return jax.vmap(lambda x: grid.stencil(x, grid.start(x)).inside)(x)


def test_one_compilation_serves_meshes_of_one_shape():
    grids = []
    for scale in (1.0, 2.0):
        points, cells = lattice((3, 3))
        grids.append(UnstructuredGrid(Mesh(points * scale, {"quad": cells})))
    sizes = [[leaf.shape for leaf in jax.tree.leaves(grid)] for grid in grids]
    assert sizes[0] == sizes[1]
    locate = jax.jit(eqx.debug.assert_max_traces(_inside, max_traces=1))
    assert [locate(grid, f32([[1.5, 0.5], [0.5, 0.5]])).tolist() for grid in grids] == [
        [False, True],
        [True, True],
    ]


def test_derivatives_are_those_of_the_interpolated_field():
    mesh = Mesh(*distorted("hexahedron"))
    grid = UnstructuredGrid(mesh)
    values = f32(np.sin(2 * mesh.points))
    x = f32(points_inside(mesh, 20))[3]

    @jax.jit
    def value(x, values):
        found = grid.stencil(x, grid.start(x))
        return jnp.sum(found.weight[:, None] * values[found.index], 0)

    forward, backward = jax.jit(jax.jacfwd(value)), jax.jit(jax.jacrev(value))
    got = forward(x, values)
    np.testing.assert_allclose(got, backward(x, values), atol=1e-5)
    step = 2e-3 * np.eye(3, dtype=np.float32)
    numeric = np.stack([(value(x + s, values) - value(x - s, values)) / 4e-3 for s in step], 1)
    np.testing.assert_allclose(got, numeric, atol=5e-3)
    np.testing.assert_allclose(backward(x, f32(mesh.points)), np.eye(3), atol=1e-5)


def test_reversed_cells_are_turned_and_counted():
    points, cells = distorted("wedge")
    reversed_ = {"wedge": cells["wedge"].copy()}
    reversed_["wedge"][::2] = reversed_["wedge"][::2][:, [3, 4, 5, 0, 1, 2]]
    mesh = Mesh(points, reversed_)
    assert mesh.flipped == len(cells["wedge"]) // 2
    np.testing.assert_array_equal(mesh.cells["wedge"], Mesh(points, cells).cells["wedge"])


SQUARE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("points", "cells", "message"),
    [
        (SQUARE, {"quad": [[0, 1, 2, 4]]}, "must name points 0 to 3; cell 0 has"),
        (SQUARE, {"quad": [[0, 1, 2]]}, r"shape \(cells, 4\)"),
        (SQUARE, {"quad": [[0, 1, 3, 2]]}, "twisted or not convex, the first is cell 0"),
        (SQUARE, {"triangle": [[0, 1, 2], [0, 1, 1]]}, "without volume, the first is cell 1"),
        (SQUARE, {"triangle": [[0, 1, 2], [0, 2, 3], [2, 0, 1]]}, "first pair is cells 0 and 2"),
        (SQUARE, {"tetra": [[0, 1, 2, 3]]}, "give three coordinates"),
        (SQUARE, {"polygon": [[0, 1, 2, 3]]}, "triangle, quad, tetra"),
        (SQUARE, {}, "at least one cell"),
        ([[0.0, np.nan]], {}, "point 0"),
        ([[0.0]], {}, r"\(points, 2\)"),
        (
            [*SQUARE, [0.5, -1.0], [0.5, 2.0]],
            {"triangle": [[0, 1, 2], [0, 1, 3], [0, 1, 4]]},
            "must not overlap; cells",
        ),
    ],
)
def test_unsound_meshes_are_refused_by_name(points, cells, message):
    with pytest.raises(ValueError, match=message):
        Mesh(points, {k: np.asarray(v) for k, v in cells.items()}).topology  # noqa: B018


@pytest.mark.parametrize(
    ("dim", "corners", "name"), [(2, 3, "triangle"), (2, 4, "quad"), (3, 8, "hexahedron")]
)
def test_cells_without_their_type_are_refused_with_the_mapping_to_write(dim, corners, name):
    given = np.arange(corners)[None]
    untyped = inspect.unwrap(Mesh.__init__)  # as users meet it: the tests check types
    with pytest.raises(TypeError, match=f"`cells` must map .*; got ndarray. Write `{{'{name}': corners}}`"):
        untyped(object.__new__(Mesh), np.zeros((corners, dim)), given)


def test_a_mesh_that_float32_cannot_resolve_is_refused():
    points, cells = lattice((2, 2), 0.0, 1e-6)
    with pytest.raises(ValueError, match=r"resolved by float32.*Move the origin"):
        UnstructuredGrid(Mesh(points + 10.0, {"quad": cells}))


def test_patches_number_the_boundary():
    points, quads = lattice((3, 2), 0.0, (3.0, 2.0))
    inlet = [[0, 1], [1, 2]]  # the two edges at x = 0
    mesh = Mesh(points, {"quad": quads}, {"inlet": inlet, "outlet": lambda middle: middle[:, 0] > 2.9})
    faces = mesh.boundary_faces()
    assert mesh.patch_names == ("inlet", "outlet", "boundary")
    assert np.bincount(faces.patch).tolist() == [2, 2, 6]
    grid = UnstructuredGrid(mesh)
    behind = np.asarray(grid.neighbours)
    assert sorted(behind[behind < 0].tolist()) == [-3] * 6 + [-2] * 2 + [-1] * 2
    links = np.asarray(grid.search.links)
    assert sorted(links[links < 0].tolist()) == [-3] * 6 + [-2] * 2 + [-1] * 2
    for cell, face in zip(*np.nonzero(behind >= 0), strict=True):
        assert cell in behind[behind[cell, face]]
    with pytest.raises(ValueError, match=r"'inlet'.*faces of the boundary"):
        Mesh(points, {"quad": quads}, {"inlet": [[1, 4]]}).boundary_faces()
    with pytest.raises(ValueError, match='name "boundary"'):
        Mesh(points, {"quad": quads}, {"boundary": inlet})


@pytest.mark.parametrize("kind", ["triangle", "wedge"])
def test_boundary_faces_of_a_volume_add_up(kind):
    """The outward normals of a closed surface cancel, and the flux of position is dim × volume."""
    mesh = Mesh(*distorted(kind))
    faces = mesh.boundary_faces()
    total, flux = np.zeros(mesh.dim), 0.0
    for nodes in faces.nodes:
        p = mesh.points[nodes[nodes >= 0]]
        if mesh.dim == 2:
            normal = np.array([p[1, 1] - p[0, 1], p[0, 0] - p[1, 0]])
        else:
            normal = 0.5 * sum(np.cross(p[k] - p[0], p[k + 1] - p[0]) for k in range(1, len(p) - 1))
        total, flux = total + normal, flux + normal @ (p.mean(0) - mesh.points.mean(0))
    np.testing.assert_allclose(total, 0, atol=1e-12)
    simplices = mesh.topology.simplices.corners
    volume = np.linalg.det(simplices[:, 1:] - simplices[:, :1]).sum() / (2 if mesh.dim == 2 else 6)
    assert flux == pytest.approx(mesh.dim * volume, rel=0.02)


def test_cell_data_are_read_from_the_cell_around_the_point():
    points, quads = lattice((4, 4))
    mesh = Mesh(points, {"quad": quads})
    grid = UnstructuredGrid(mesh, centring="cell")
    assert grid.size == 16
    x = points_inside(mesh, 500)
    got, inside, _, _ = read(grid, f32(mesh.cell_centres), f32(x))
    assert inside.all()
    np.testing.assert_allclose(got, (np.floor(x * 4) + 0.5) / 4, atol=1e-6)
    with pytest.raises(ValueError, match="nodal_averages"):
        UnstructuredGrid(mesh, "linear", "cell")
    with pytest.raises(ValueError, match="'nearest', 'linear'"):
        UnstructuredGrid(mesh, "cubic")
    nearest = UnstructuredGrid(mesh, "nearest")
    got, _, _, _ = read(nearest, f32(points), f32(x))
    np.testing.assert_allclose(got, np.round(x * 4) / 4, atol=1e-6)


def test_nodal_averages_keep_linear_fields():
    mesh = Mesh(*distorted("tetra", 5))
    slope = np.random.default_rng(0).normal(size=(3, 2))
    got = nodal_averages(mesh, np.stack([mesh.cell_centres @ slope, 2 * mesh.cell_centres @ slope]))
    assert got.shape == (2, len(mesh.points), 2)
    np.testing.assert_allclose(got[0], mesh.points @ slope, atol=1e-10)  # corners with a single cell too
    np.testing.assert_allclose(nodal_averages(mesh, np.ones((mesh.cell_count, 1))), 1, atol=1e-10)
    with pytest.raises(ValueError, match="must have 750 cells"):
        nodal_averages(mesh, np.ones((3, 1)))


@pytest.mark.parametrize("kind", ["quad", "hexahedron", "wedge"])
@pytest.mark.parametrize("jitter", [0.0, 0.01, 0.15])
def test_cells_almost_in_one_plane_do_not_blow_up_values_at_walls(kind, jitter):
    mesh = Mesh(*distorted(kind, 6, jitter))
    slope = np.arange(1.0, mesh.dim + 1)[:, None]
    exact = nodal_averages(mesh, mesh.cell_centres @ slope)
    np.testing.assert_allclose(exact, mesh.points @ slope, atol=1e-10)
    waves = nodal_averages(mesh, np.sin(3 * mesh.cell_centres @ slope / mesh.dim))
    assert np.abs(waves).max() < 2  # least squares over one layer of cells made up to 12 of it


def test_nodal_averages_of_a_mesh_one_cell_thick_are_level_across_it():
    points, bricks = lattice((5, 4, 1), high=(1.0, 1.0, 0.01))
    points[:, :2] += 0.03 * np.sin(7 * points[:, 1::-1])  # not even
    mesh = Mesh(points, {"hexahedron": bricks})
    got = nodal_averages(mesh, mesh.cell_centres @ np.array([[1.0], [2.0], [50.0]]))
    np.testing.assert_allclose(got[:, 0], points @ [1.0, 2.0, 0.0] + 50 * 0.005, atol=1e-10)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("regular", [True, False])
def test_scattered_nodes_make_an_exact_linear_grid(dim, regular):
    rng = np.random.default_rng(7)
    points = lattice((6,) * dim, 0.0, 1e-3)[0] if regular else rng.uniform(0, 1e-3, (400, dim))
    grid = delaunay_grid(points)
    x = 0.5e-3 + 0.3e-3 * rng.uniform(-1, 1, (5000, dim))
    got, inside, _, _ = read(grid, f32(points * 1e3), f32(x))
    assert inside.all()
    np.testing.assert_allclose(got, x * 1e3, atol=5e-6)
    outside = f32(rng.uniform(2e-3, 3e-3, (50, dim)))
    assert not read(grid, f32(points), outside)[1].any()


def test_delaunay_refuses_flat_sets_and_leaves_out_long_cells():
    rng = np.random.default_rng(0)
    flat = np.c_[rng.uniform(size=(50, 2)), np.full(50, 0.3)]
    with pytest.raises(ValueError, match=r"span 3 dimensions.*Drop the coordinate"):
        delaunay_grid(flat)
    with pytest.raises(ValueError, match="more nodes than coordinates"):
        delaunay_grid(flat[:3])
    points = bay().points
    used = np.unique(bay().cells["quad"])
    gap = f32([1.5, 2.5])
    closed, open_ = delaunay_grid(points[used]), delaunay_grid(points[used], max_edge=0.5)
    assert bool(closed.stencil(gap, closed.start(gap)).inside)
    assert not bool(open_.stencil(gap, open_.start(gap)).inside)
    with pytest.raises(ValueError, match="`max_edge` must leave some cells"):
        delaunay_grid(points, max_edge=1e-3)


@pytest.mark.skipif(not DISK.exists(), reason=f"needs {DISK}")
def test_a_real_mesh_of_hexahedra_loses_no_point():
    from scipy.io import netcdf_file

    with netcdf_file(DISK, mmap=False) as file:
        names = file.variables
        if "coord" in names:
            points = np.array(names["coord"][:], float).T
        else:
            points = np.stack([np.array(names[f"coord{a}"][:], float) for a in "xyz"], -1)
        blocks = [np.array(names[n][:], int) - 1 for n in sorted(names) if n.startswith("connect")]
    mesh = Mesh(points, {"hexahedron": np.concatenate([b for b in blocks if b.shape[1] == 8])})
    assert mesh.cell_count > 5000
    grid = UnstructuredGrid(mesh)
    simplices = mesh.topology.simplices.corners
    rng = np.random.default_rng(0)
    which = rng.integers(0, len(simplices), 20_000)
    x = np.einsum("nk,nkd->nd", rng.dirichlet(np.ones(4), len(which)), simplices[which])
    got, inside, _, _ = read(grid, f32(points), f32(x))
    assert int((~inside).sum()) == 0
    np.testing.assert_allclose(got, x, atol=1e-5 * np.abs(points).max())

"""Walls that follow a grid: masked cells are never entered, mesh patches stick, bounce, slip and absorb where they should."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxtrace.boundaries import MeshWalls, masked_walls, mesh_walls
from jaxtrace.fields import Mesh, UnstructuredGrid
from jaxtrace.fields.structured import UniformGrid
from jaxtrace.fields.subset import LARGE_BATCH
from jaxtrace.tracking.boundary import (
    AbstractBoundary,
    box_boundary,
    composed_boundary,
    reflective_boundary,
)

pytestmark = pytest.mark.usefixtures("quick_compile")


@eqx.filter_jit
def run(boundary: AbstractBoundary, old: Array, new: Array) -> Any:
    return jax.vmap(lambda old, new: boundary(old, new, new - old))(old, new)


@eqx.filter_jit
def follow(walls: MeshWalls, old: Array, new: Array, hints: Array) -> Any:
    return jax.vmap(lambda old, new, hint: walls.follow(old, new, new - old, hint))(old, new, hints)


def step(boundary: AbstractBoundary, old: Any, new: Any) -> Any:
    done = run(boundary, jnp.asarray([old], float), jnp.asarray([new], float))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], done)


def square(patches: Any = None, shuffled: int = 5) -> UnstructuredGrid:
    """The unit square in triangles of uneven shape."""
    line = np.linspace(0.0, 1.0, shuffled + 1)
    points = np.stack([axis.ravel() for axis in np.meshgrid(line, line, indexing="ij")], -1)
    inner = ((points > 0) & (points < 1)).all(1)
    points[inner] += np.random.default_rng(0).uniform(-0.2, 0.2, (inner.sum(), 2)) / shuffled
    i, j = (number.ravel() for number in np.meshgrid(range(shuffled), range(shuffled), indexing="ij"))
    a = i * (shuffled + 1) + j
    b, c, d = a + shuffled + 1, a + shuffled + 2, a + 1
    return UnstructuredGrid(Mesh(points, {"triangle": np.r_[np.c_[a, b, c], np.c_[a, c, d]]}, patches))


SIDES = {
    "left": lambda middle: middle[:, 0] < 1e-6,
    "right": lambda middle: middle[:, 0] > 1 - 1e-6,
    "bottom": lambda middle: middle[:, 1] < 1e-6,
}


def cube(cells: int = 2) -> UnstructuredGrid:
    """The unit cube in hexahedra, which the grid cuts into tetrahedra."""
    line = np.linspace(0.0, 1.0, cells + 1)
    points = np.stack([axis.ravel() for axis in np.meshgrid(line, line, line, indexing="ij")], -1)
    number = np.arange((cells + 1) ** 3).reshape((cells + 1,) * 3)
    low, high = slice(0, -1), slice(1, None)
    corners = [(low, low), (high, low), (high, high), (low, high)]
    nodes = [number[x, y, z].ravel() for z in (low, high) for x, y in corners]
    return UnstructuredGrid(Mesh(points, {"hexahedron": np.stack(nodes, -1)}))


def random_paths(dim: int, n: int = 300, length: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    old = rng.uniform(0.02, 0.98, (n, dim)).astype(np.float32)
    return old, (old + rng.normal(0, length, (n, dim))).astype(np.float32)


def test_walls_of_a_grid_in_a_channel_with_a_period() -> None:
    """A step over the period that also meets a wall slips along a mesh, or stays where it was before a coast."""
    around = box_boundary([[0.0, 0.0], [1.0, 1.0]], ["periodic", "open"])
    slid = step(composed_boundary(around, mesh_walls(square(), "slip")), [0.95, 0.98], [1.05, 1.03])
    np.testing.assert_allclose(slid.position, [0.05, 1.0], atol=1e-4)
    coast = UniformGrid([0.0, 0.0], [0.25, 0.25], (5, 5), mask=np.arange(16).reshape(4, 4) < 4)
    stuck = step(composed_boundary(around, masked_walls(coast, "stick")), [0.95, 0.5], [1.05, 0.5])
    np.testing.assert_allclose(stuck.position, [0.95, 0.5], atol=1e-6)
    assert stuck.hits.tolist() == [1, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("dim", [2, 3])
def test_bouncing_in_a_meshed_box_is_the_mirror_box(dim: int) -> None:
    grid = square() if dim == 2 else cube()
    old, new = random_paths(dim)
    walls = run(mesh_walls(grid, "bounce"), jnp.asarray(old), jnp.asarray(new))
    box = run(reflective_boundary([[0.0] * dim, [1.0] * dim]), jnp.asarray(old), jnp.asarray(new))
    np.testing.assert_allclose(walls.position, box.position, atol=2e-5)
    np.testing.assert_allclose(walls.velocity, box.velocity, atol=2e-5)
    np.testing.assert_array_equal(walls.hits.sum(1), box.hits.sum(1))
    assert int(walls.hits.max()) > 1


@pytest.mark.parametrize("dim", [2, 3])
def test_slipping_in_a_meshed_box_is_clamping(dim: int) -> None:
    grid = square() if dim == 2 else cube()
    old, new = random_paths(dim)
    done = run(mesh_walls(grid, "slip"), jnp.asarray(old), jnp.asarray(new))
    np.testing.assert_allclose(done.position, np.clip(new, 0, 1), atol=2e-5)
    slid = np.where((new < 0) | (new > 1), 0.0, new - old)
    np.testing.assert_allclose(done.velocity, slid, atol=2e-5)
    inside = jax.jit(jax.vmap(lambda x: grid.stencil(x, grid.start(x)).inside))
    assert bool(inside(done.position).all())


def test_each_patch_does_its_own_and_counts() -> None:
    grid = square(SIDES)
    walls = mesh_walls(grid, {"left": "stick", "right": "absorb", "bottom": "bounce"})
    assert walls.patches == ("left", "right", "bottom", "boundary")
    gone = step(walls, [0.5, 0.5], [1.5, 0.7])
    assert not gone.alive
    np.testing.assert_allclose(gone.position, [1.0, 0.6], atol=1e-5)
    assert int(gone.patch) == 1
    assert gone.hits.tolist() == [0, 1, 0, 0]
    stuck = step(walls, [0.5, 0.5], [-0.5, 0.7])
    assert stuck.alive
    np.testing.assert_allclose(stuck.position, [0.0, 0.6], atol=1e-5)
    np.testing.assert_array_equal(stuck.velocity, 0.0)
    slid = step(walls, [0.5, 0.5], [0.6, 1.5])
    np.testing.assert_allclose(slid.position, [0.6, 1.0], atol=1e-5)
    both = step(walls, [0.5, 0.5], [1.5, -1.0])
    np.testing.assert_allclose(both.position, [1.0, 0.25], atol=1e-5)
    assert both.hits.tolist() == [0, 1, 1, 0]


def test_a_hole_is_a_wall_too() -> None:
    """A ring of four quads around a square hole: the straight way through the hole is cut."""
    outer = np.array([[0, 0], [3, 0], [3, 3], [0, 3]], float)
    inner = np.array([[1, 1], [2, 1], [2, 2], [1, 2]], float)
    ring = [[0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
    grid = UnstructuredGrid(Mesh(np.r_[outer, inner], {"quad": ring}))
    done = step(mesh_walls(grid, "stick"), [0.5, 1.4], [2.5, 1.6])
    np.testing.assert_allclose(done.position, [1.0, 1.45], atol=1e-5)
    back = step(mesh_walls(grid, "bounce"), [0.5, 1.5], [1.25, 1.5])
    np.testing.assert_allclose(back.position, [0.75, 1.5], atol=1e-5)


def test_who_begins_outside_is_left_alone_and_endless_paths_end_where_they_began() -> None:
    grid = square()
    outside = step(mesh_walls(grid, "bounce"), [1.5, 0.5], [1.7, 0.5])
    np.testing.assert_allclose(outside.position, [1.7, 0.5])
    short = step(mesh_walls(grid, "bounce", crossings=2), [0.5, 0.5], [40.5, 0.7])
    np.testing.assert_array_equal(short.position, [0.5, 0.5])


def test_gradients_through_mesh_walls() -> None:
    walls = mesh_walls(square(), "bounce", differentiable=True)
    forward = mesh_walls(square(), "bounce")
    old, new = jnp.asarray([0.5, 0.5]), jnp.asarray([1.3, 0.6])
    back = jax.jit(jax.jacrev(lambda new: walls(old, new).position))(new)
    np.testing.assert_allclose(back, [[-1, 0], [0, 1]], atol=1e-5)
    np.testing.assert_allclose(
        jax.jit(jax.jacfwd(lambda new: forward(old, new).position))(new), back, atol=1e-5
    )


def test_a_large_batch_is_treated_as_its_parts_are() -> None:
    """From LARGE_BATCH particles on only those near walls are followed; the others keep their step to the last bit."""
    grid = square(SIDES, 12)
    old, new = random_paths(2, n=LARGE_BATCH + 77, length=0.03)
    walls = mesh_walls(grid, {"left": "stick", "right": "absorb", "bottom": "bounce", "boundary": "slip"})
    hints = jax.jit(jax.vmap(grid.start))(jnp.asarray(old))
    every = follow(walls, jnp.asarray(old), jnp.asarray(new), hints)
    some = run(walls, jnp.asarray(old), jnp.asarray(new))
    for one in every._fields:
        np.testing.assert_allclose(getattr(some, one), getattr(every, one), atol=1e-6)
    followed = np.asarray(
        jax.vmap(lambda *step: walls.may_meet(*step))(jnp.asarray(old), jnp.asarray(new), hints)
    )
    met = ((new < 0) | (new > 1)).any(1)
    assert 0.01 < met.mean() < followed.mean() < 0.5
    np.testing.assert_array_equal(some.position[~followed], new[~followed])
    np.testing.assert_array_equal(some.hits.sum(1) > 0, met)
    assert (some.hits.sum(0) > 5).all()


def test_balls_are_clear_of_walls_of_every_size() -> None:
    """Beside a wall of faces a hundred times smaller than the cells; a plate between two cells, a corner that juts in."""
    fine = np.linspace(0.0, 1.0, 101)
    points = np.r_[np.c_[fine, np.zeros(101)], [[0.0, 1.0], [1.0, 1.0], [0.5, 2.0]]]
    fan = [[k, k + 1, 101] for k in range(100)]
    grid = UnstructuredGrid(Mesh(points, {"triangle": [*fan, [100, 102, 101], [101, 102, 103]]}))
    balls = np.asarray(mesh_walls(grid).balls)
    middle, radius = balls[:, :-1], balls[:, -1]
    faces = np.r_[
        [[points[k], points[k + 1]] for k in range(100)],
        [[[0, 0], [0, 1]], [[1, 0], [1, 1]], [[0, 1], [0.5, 2]], [[1, 1], [0.5, 2]]],
    ]
    way = faces[:, 1] - faces[:, 0]
    share = ((middle[:, None] - faces[:, 0]) * way).sum(-1) / (way**2).sum(-1)
    foot = faces[:, 0] + np.clip(share, 0, 1)[..., None] * way
    distance = np.linalg.norm(middle[:, None] - foot, axis=-1).min(1)
    assert (radius <= distance).all()
    assert (radius > 0.8 * distance).mean() > 0.9


def bay() -> UniformGrid:
    """Eight by six cells of water with an island of two by two cells at x 3..5, y 2..4."""
    land = np.zeros((8, 6), bool)
    land[3:5, 2:4] = True
    return UniformGrid([0.0, 0.0], [1.0, 1.0], (9, 7), mask=land)


@pytest.mark.parametrize("behaviour", ["slip", "stick", "bounce", "absorb"])
def test_nobody_goes_ashore(behaviour: str) -> None:
    grid = bay()
    rng = np.random.default_rng(2)
    old = rng.uniform([0, 0], [8, 6], (500, 2)).astype(np.float32)
    wet = jax.jit(jax.vmap(lambda x: grid.stencil(x, grid.start(x)).inside))
    old = old[np.asarray(wet(jnp.asarray(old)))]
    new = (old + rng.uniform(-0.9, 0.9, old.shape)).astype(np.float32)
    done = run(masked_walls(grid, behaviour, behaviour), jnp.asarray(old), jnp.asarray(new))
    assert bool(wet(done.position).all())
    free = np.asarray(wet(jnp.asarray(new)))
    assert 20 < (~free).sum() < 200
    np.testing.assert_array_equal(done.position[free], new[free])
    np.testing.assert_array_equal(done.hits.sum(1), (~free).astype(int))
    assert (done.hits.sum(0) > 5).all()
    np.testing.assert_array_equal(done.alive, free if behaviour == "absorb" else np.ones(len(old), bool))


def test_coasts_guide_stop_or_turn() -> None:
    grid = bay()
    old, new = [2.75, 3.0], [3.25, 3.125]
    slip = step(masked_walls(grid), old, new)
    np.testing.assert_allclose(slip.position, [2.75, 3.125])
    np.testing.assert_allclose(slip.velocity, [0.0, 0.125])
    np.testing.assert_allclose(step(masked_walls(grid, "stick"), old, new).position, old)
    bounce = step(masked_walls(grid, "bounce"), old, new)
    np.testing.assert_allclose(bounce.position, [2.25, 3.125])
    np.testing.assert_allclose(bounce.velocity, [-0.5, 0.125])
    gone = step(masked_walls(grid, "absorb"), old, new)
    assert not gone.alive
    assert int(gone.patch) == 0


def test_refusals_name_argument_demand_and_value() -> None:
    with pytest.raises(
        ValueError, match="`behaviour` must be one of 'stick', 'bounce', 'slip', 'absorb'; got 'glue'"
    ):
        mesh_walls(square(), "glue")
    with pytest.raises(
        ValueError, match=r"`behaviour` must name patches of the mesh \(boundary\); got 'roof'"
    ):
        mesh_walls(square(), {"roof": "stick"})
    with pytest.raises(ValueError, match="`behaviour` must be one of"):
        masked_walls(bay(), "glue")

"""Boundaries and inlets: known bounces, exits on the face, round walls, births, and refusals."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, PyTree

from jaxtrace.boundaries.inlets import alias_table
from jaxtrace.boundaries.reinjection import slot_words
from jaxtrace.fields import AnalyticField
from jaxtrace.fields.base import AbstractField, Sample
from jaxtrace.tracking.boundary import (
    AbstractBoundary,
    absorbing_boundary,
    box_boundary,
    clamping_boundary,
    composed_boundary,
    continuous_inlet_boundary_factory,
    cylindrical_boundary,
    inlet_outlet_boundary_factory,
    no_boundary,
    periodic_boundary,
    reflective_boundary,
    spherical_boundary,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

UNIT = [[0.0, 0.0], [1.0, 1.0]]


def step(boundary: AbstractBoundary, old: Any, new: Any, velocity: Any = None) -> Any:
    """One particle's step, compiled."""
    old, new = jnp.asarray(old, float), jnp.asarray(new, float)
    velocity = new - old if velocity is None else jnp.asarray(velocity, float)
    return _step(boundary, old, new, velocity)


@eqx.filter_jit
def _step(boundary: AbstractBoundary, old: Array, new: Array, velocity: Array) -> Any:
    return boundary(old, new, velocity)


def test_the_guides_three() -> None:
    bounds = [np.zeros(3), np.ones(3)]
    old, new = [0.5, 0.5, 0.5], [1.3, -0.2, 0.6]
    np.testing.assert_allclose(
        step(reflective_boundary(bounds), old, new).position, [0.7, 0.2, 0.6], rtol=1e-6
    )
    np.testing.assert_allclose(step(periodic_boundary(bounds), old, new).position, [0.3, 0.8, 0.6], rtol=1e-5)
    np.testing.assert_allclose(step(clamping_boundary(bounds), old, new).position, [1.0, 0.0, 0.6])
    np.testing.assert_allclose(step(no_boundary(), old, new).position, new)


def test_many_bounces_in_one_step() -> None:
    # 0.5 + 3.3: up through 1 (turn), down through 0 (turn), up to 0.8 ... at 3.8 the image is 0.2.
    done = step(reflective_boundary(UNIT), [0.5, 0.5], [3.8, -1.25])
    np.testing.assert_allclose(done.position, [0.2, 0.75], rtol=1e-5)
    assert done.hits.tolist() == [1, 2, 1, 1]
    np.testing.assert_allclose(done.velocity, [-3.3, -1.75], rtol=1e-6)
    assert int(done.patch) == -1


def test_periods_are_counted() -> None:
    boundary = periodic_boundary(UNIT)
    done = step(boundary, [0.5, 0.5], [3.25, -1.5])
    np.testing.assert_allclose(done.position, [0.25, 0.5], rtol=1e-6)
    assert dict(zip(boundary.patches, done.hits.tolist(), strict=True)) == {
        "x_min": 0,
        "x_max": 3,
        "y_min": 2,
        "y_max": 0,
    }


def test_a_step_out_by_less_than_rounding_stays_in_the_half_open_box() -> None:
    done = step(periodic_boundary(UNIT), [0.0, 0.5], [-1e-10, 1.0])
    np.testing.assert_array_equal(done.position, [0.0, 0.0])


def test_absorbed_on_the_first_face_of_the_path() -> None:
    done = step(absorbing_boundary(UNIT), [0.5, 0.5], [1.5, 2.5])
    assert not bool(done.alive)
    np.testing.assert_allclose(done.position, [0.75, 1.0], rtol=1e-6)
    assert done.position[1] == 1.0
    assert done.hits.tolist() == [0, 0, 0, 1]
    assert int(done.patch) == 3
    assert bool(step(absorbing_boundary(UNIT), [0.5, 0.5], [1.0, 0.0]).alive)


def test_axes_of_different_kinds_share_one_path() -> None:
    boundary = box_boundary(UNIT, ["absorbing", "periodic"])
    done = step(boundary, [0.5, 0.5], [1.5, 2.5])
    # The way ends at x = 1, after half of it, where y = 1.5 is 0.5 one period on.
    np.testing.assert_allclose(done.position, [1.0, 0.5], rtol=1e-6)
    assert done.hits.tolist() == [0, 1, 0, 1]
    assert int(done.patch) == 1


def test_a_mirror_before_a_drain() -> None:
    boundary = box_boundary([[0.0], [1.0]], [("reflective", "absorbing")])
    back = step(boundary, [0.2], [-0.5])
    assert bool(back.alive)
    np.testing.assert_allclose(back.position, [0.5], rtol=1e-6)
    np.testing.assert_allclose(back.velocity, [0.7], rtol=1e-6)
    gone = step(boundary, [0.2], [-1.3])
    assert not bool(gone.alive)
    assert gone.position[0] == 1.0
    assert int(gone.patch) == 1
    clamp = step(box_boundary([[0.0], [1.0]], [("clamping", "reflective")]), [0.2], [2.5])
    np.testing.assert_allclose(clamp.position, [0.0])
    np.testing.assert_allclose(clamp.velocity, [0.0])


def test_an_axis_without_extent_pins_its_coordinate() -> None:
    flat = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    for make in (reflective_boundary, periodic_boundary, clamping_boundary):
        done = step(make(flat), [0.5, 0.5, 0.0], [0.75, 0.5, 0.125])
        np.testing.assert_allclose(done.position, [0.75, 0.5, 0.0])
    assert bool(step(absorbing_boundary(flat), [0.5, 0.5, 0.0], [0.75, 0.5, 0.0]).alive)


def test_round_mirror_of_known_angle() -> None:
    boundary = spherical_boundary([0.0, 0.0], 1.0)
    # Straight at the wall and back; then along a chord that is the side of a square.
    np.testing.assert_allclose(step(boundary, [0.5, 0.0], [1.25, 0.0]).position, [0.75, 0.0], atol=1e-6)
    corner = np.sqrt(0.5)
    done = step(boundary, [corner, 0.0], [corner, 1.0])
    np.testing.assert_allclose(done.position, [corner - (1 - corner), corner], atol=1e-6)
    np.testing.assert_allclose(done.velocity, [-1.0, 0.0], atol=1e-5)
    around = step(boundary, [corner, 0.0], [corner, 4 * np.sqrt(2) * 0.75])
    assert int(around.hits[0]) == 3
    np.testing.assert_allclose(np.abs(around.position), [0.0, corner], atol=1e-5)


def test_round_walls_from_outside() -> None:
    boundary = spherical_boundary([0.0, 0.0, 0.0], 1.0, side="outside")
    # Through the whole obstacle in one step: both ends are allowed, the way is not.
    done = step(boundary, [-2.0, 0.0, 0.0], [2.0, 0.0, 0.0])
    np.testing.assert_allclose(done.position, [-4.0, 0.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(done.velocity, [-4.0, 0.0, 0.0], atol=1e-5)
    passing = step(boundary, [-2.0, 1.5, 0.0], [2.0, 1.5, 0.0])
    np.testing.assert_allclose(passing.position, [2.0, 1.5, 0.0])
    stuck = step(
        spherical_boundary([0.0, 0.0, 0.0], 1.0, "absorbing", "outside"), [-2.0, 0.6, 0.0], [2.0, 0.6, 0.0]
    )
    assert not bool(stuck.alive)
    np.testing.assert_allclose(stuck.position, [-0.8, 0.6, 0.0], atol=1e-5)


def test_round_clamp_and_drain() -> None:
    clamp = step(spherical_boundary([1.0, 0.0], 2.0, "clamping"), [1.0, 0.0], [1.0, 3.0], velocity=[1.0, 3.0])
    np.testing.assert_allclose(clamp.position, [1.0, 2.0], atol=1e-5)
    np.testing.assert_allclose(clamp.velocity, [1.0, 0.0], atol=1e-5)
    drain = step(spherical_boundary([1.0, 0.0], 2.0, "absorbing"), [1.0, 0.0], [7.0, 8.0])
    np.testing.assert_allclose(drain.position, [2.2, 1.6], atol=1e-5)
    assert int(drain.patch) == 0


@pytest.mark.parametrize("axis", ["x", "y", "z", 2, (1.0, 1.0, 0.0)])
def test_cylinders_along_any_axis(axis: Any) -> None:
    direction = (
        np.eye(3)["xyz".index(axis)]
        if isinstance(axis, str)
        else np.eye(3)[axis]
        if isinstance(axis, int)
        else None
    )
    direction = np.array(axis) / np.sqrt(2) if direction is None else direction
    boundary = cylindrical_boundary(axis, center=np.zeros(3), radius=1.0)
    sideways = np.cross(direction, [0.3, -0.5, 0.8])
    sideways /= np.linalg.norm(sideways)
    done = step(boundary, np.zeros(3), 1.4 * sideways + 5 * direction)
    np.testing.assert_allclose(done.position, 0.6 * sideways + 5 * direction, atol=1e-5)
    np.testing.assert_allclose(done.velocity, -1.4 * sideways + 5 * direction, atol=1e-5)


def test_a_closed_cylinder() -> None:
    boundary = cylindrical_boundary("y", center=[0.0, 0.0], radius=1.0, height=2.0)
    assert boundary.patches == ("cylinder", "x_min", "x_max", "y_min", "y_max", "z_min", "z_max")
    done = step(boundary, [0.0, 0.0, 0.0], [1.5, 1.25, 0.0])
    np.testing.assert_allclose(done.position, [0.5, 0.75, 0.0], atol=1e-5)
    assert done.hits.tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_the_first_of_several_to_absorb_decides() -> None:
    drain = spherical_boundary([0.0, 0.0], 1.0, "absorbing")
    boundary = composed_boundary(drain, reflective_boundary([[-0.5, -0.5], [0.5, 0.5]]))
    gone = step(boundary, [0.0, 0.0], [2.0, 0.0])
    assert not bool(gone.alive)
    np.testing.assert_allclose(gone.position, [1.0, 0.0], atol=1e-5)
    assert int(gone.patch) == 0
    assert gone.hits.tolist() == [1, 0, 0, 0, 0]
    kept = step(boundary, [0.0, 0.0], [0.7, 0.0])
    np.testing.assert_allclose(kept.position, [0.3, 0.0], atol=1e-6)
    later = step(composed_boundary(no_boundary(), drain, absorbing_boundary(UNIT)), [0.5, 0.5], [0.5, -0.1])
    assert int(later.patch) == 3


def test_after_a_period_the_others_see_no_path_across_the_domain() -> None:
    """The step from 0.9 over the face to 0.05 passed no post in the middle; one near the face it does meet."""
    for wall in ("absorbing", "reflective"):
        post = spherical_boundary([0.5, 0.5], 0.1, wall, "outside")
        free = step(composed_boundary(periodic_boundary(UNIT), post), [0.9, 0.5], [1.05, 0.5])
        np.testing.assert_allclose(free.position, [0.05, 0.5], atol=1e-6)
        assert bool(free.alive)
        assert free.hits.tolist() == [0, 1, 0, 0, 0]
    around = composed_boundary(
        periodic_boundary(UNIT), spherical_boundary([0.1, 0.5], 0.05, "absorbing", "outside")
    )
    met = step(around, [0.9, 0.5], [1.15, 0.5])
    np.testing.assert_allclose(met.position, [0.05, 0.5], atol=1e-6)
    assert not bool(met.alive)
    mirror = composed_boundary(
        periodic_boundary(UNIT), spherical_boundary([0.1, 0.5], 0.05, "reflective", "outside")
    )
    back = step(mirror, [0.9, 0.5], [1.15, 0.5])
    np.testing.assert_allclose(back.position, [0.95, 0.5], atol=1e-5)
    assert back.hits.tolist() == [1, 1, 0, 0, 1]
    long = box_boundary([[-1, -1, 0], [1, 1, 4]], ["open", "open", "periodic"])
    pipe = composed_boundary(long, cylindrical_boundary("z", radius=1.0, condition="absorbing"))
    drained = step(pipe, [0.9, 0.0, 3.9], [1.1, 0.0, 4.3])
    np.testing.assert_allclose(drained.position, [1.0, 0.0, 0.1], atol=1e-5)
    down = step(composed_boundary(around), [0.2, 0.3], [-0.1, -0.2])
    np.testing.assert_allclose(down.position, [0.9, 0.8], atol=1e-6)
    assert bool(down.alive)


BOUNDARIES = {
    "mixed": box_boundary(UNIT, ["periodic", ("reflective", "absorbing")]),
    "reflective": reflective_boundary(UNIT),
    "clamping": clamping_boundary(UNIT),
    "sphere": spherical_boundary([0.5, 0.5], 0.5),
    "obstacle": spherical_boundary([0.5, 0.5], 0.1, side="outside"),
    "inlet": continuous_inlet_boundary_factory(UNIT),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_one_compilation_for_a_batch_and_finite_gradients(name: str) -> None:
    boundary = BOUNDARIES[name]
    key_old, key_way = jr.split(jr.key(0))
    old = 0.2 + 0.6 * jr.uniform(key_old, (64, 2))
    new = old + jr.normal(key_way, (64, 2)).at[0].set(0.0)

    @eqx.filter_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def many(boundary: AbstractBoundary, old: Array, new: Array) -> Array:
        return jax.vmap(boundary)(old, new).position

    first = many(boundary, old, new)
    shifted = jax.tree.map(lambda leaf: leaf * 1.0, boundary)
    np.testing.assert_array_equal(many(shifted, old, new), first)
    for direction in (jax.jacfwd, jax.jacrev):
        slopes = jax.jit(jax.vmap(direction(lambda old, new: boundary(old, new).position, argnums=(0, 1))))(
            old, new
        )
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))


def test_gradient_through_a_mirror_is_minus_one() -> None:
    mirror = reflective_boundary(UNIT)
    slope = jax.jit(jax.grad(lambda x: mirror(jnp.full(2, 0.5), jnp.stack([x, x])).position[0]))
    assert float(slope(jnp.asarray(1.25))) == -1.0
    assert float(slope(jnp.asarray(0.75))) == 1.0
    assert float(slope(jnp.asarray(2.25))) == 1.0


def reborn(
    boundary: Any, n: int = 2000, dt: float = 0.1, left: Any = None, alive: Any = None, **more: Any
) -> Any:
    """A batch of slots, all free unless said."""
    dim = len(boundary.walls.faces)
    position = jnp.full((n, dim), 1.0) if left is None else jnp.asarray(left)
    living = jnp.zeros(n, bool) if alive is None else jnp.asarray(alive)
    return _reinject(boundary, position, living, jnp.asarray(dt), jr.key(5), **more)


@eqx.filter_jit
def _reinject(boundary: Any, *args: Any, **more: Any) -> Any:
    return boundary.reinject(*args, **more)


def test_uniform_inlet_fills_free_slots_only() -> None:
    boundary = continuous_inlet_boundary_factory([[0.0, 0.0, 0.0], [4.0, 2.0, 1.0]])
    alive = np.arange(2000) % 2 == 0
    result = reborn(boundary, alive=alive)
    np.testing.assert_array_equal(result.born, ~alive)
    assert bool(result.alive.all())
    np.testing.assert_array_equal(result.position[alive], 1.0)
    fresh = np.asarray(result.position)[~alive]
    np.testing.assert_array_equal(fresh[:, 0], 0.0)
    share = fresh[:, 1:] / [2.0, 1.0]
    assert ((share >= 0) & (share <= 1)).all()
    assert np.abs(share.mean(0) - 0.5).max() < 4 / np.sqrt(12 * 1000)
    assert np.abs(share.var(0) - 1 / 12).max() < 4 / np.sqrt(180 * 1000)
    assert abs(np.corrcoef(share.T)[0, 1]) < 4 / np.sqrt(1000)


def test_the_other_direction_enters_at_the_other_face() -> None:
    boundary = continuous_inlet_boundary_factory(UNIT, "y", "negative")
    np.testing.assert_array_equal(reborn(boundary).position[:, 1], 1.0)
    gone = step(boundary, [0.5, 0.1], [0.5, -0.1])
    assert not bool(gone.alive)
    assert bool(step(boundary, [0.5, 0.9], [0.5, 1.1]).alive)


def test_gaussian_inlet_is_a_bell_cut_at_the_edges() -> None:
    bell = continuous_inlet_boundary_factory(
        UNIT, inlet_distribution="gaussian", mean=[0.0, 0.4], deviation=0.1
    )
    y = np.asarray(reborn(bell, 4000).position)[:, 1]
    assert abs(y.mean() - 0.4) < 4 * 0.1 / np.sqrt(4000)
    assert abs(y.std() / 0.1 - 1) < 4 / np.sqrt(2 * 4000)
    wide = continuous_inlet_boundary_factory(
        UNIT, inlet_distribution="gaussian", mean=[0.0, 0.0], deviation=1.0
    )
    y = np.asarray(reborn(wide, 4000).position)[:, 1]
    # Half a bell up to one deviation: its mean is (phi(0) - phi(1)) / (Phi(1) - 1/2) = 0.4598.
    assert abs(y.mean() - 0.4598) < 0.02
    assert (y == 0).mean() < 0.01
    assert y.max() <= 1.0


def test_grid_inlet_keeps_the_lattice() -> None:
    lattice = {"x": 30, "y": 5, "z": 3}
    boundary = continuous_inlet_boundary_factory(
        [[0, 0, 0], [4, 2, 1]], inlet_distribution="grid", concentrations=lattice
    )
    left = [[4.0, 0.6, 0.9], [4.0, 1.99, 0.1], [4.0, 1.0, 0.5]]
    np.testing.assert_allclose(reborn(boundary, 3, left=left).position, [[0, 0.5, 1], [0, 2, 0], [0, 1, 0.5]])
    cycle = continuous_inlet_boundary_factory(
        [[0, 0, 0], [4, 2, 1]], inlet_distribution="grid", concentrations=lattice, order="cycle"
    )
    places = np.asarray(reborn(cycle, 30).position)
    assert len(np.unique(places, axis=0)) == 15
    np.testing.assert_array_equal(places[:15], places[15:])


class Shear(AbstractField):
    """Enters through the left face with a speed that grows from 0 at the bottom; leaves again at the top quarter."""

    dim: int = eqx.field(static=True, default=2)

    def start(self, x: Float[Array, " dim"]) -> PyTree:
        return ()

    def sample(self, x: Float[Array, " dim"], t: Float[Array, ""], hint: PyTree) -> Sample:
        return Sample(jnp.stack([jnp.where(x[1] < 0.75, x[1], -1.0), 0.0 * t]), jnp.asarray(True), ())


def test_flux_inlet_follows_the_flow() -> None:
    boundary = continuous_inlet_boundary_factory(
        UNIT, inlet_distribution="flux", field=Shear(), concentrations={"y": 80}
    )
    n = 6000
    result = np.asarray(reborn(boundary, n).position)
    np.testing.assert_array_equal(result[:, 0], 0.0)
    y = result[:, 1]
    assert y.max() <= 0.75
    # density proportional to y on [0, 3/4]: mean 1/2, variance (3/4)²/18
    assert abs(y.mean() - 0.5) < 4 * np.sqrt(0.75**2 / 18 / n)
    assert abs(y.var() / (0.75**2 / 18) - 1) < 0.1
    with pytest.raises(ValueError, match="must flow in through the x face"):
        continuous_inlet_boundary_factory([[0, 0.8], [1, 1]], inlet_distribution="flux", field=Shear())


def test_flux_inlet_starts_few_beside_a_wall() -> None:
    flow = AnalyticField(lambda x, t: jnp.stack([x[1] * (1 - x[1]), 0.0 * t]), dim=2)
    boundary = continuous_inlet_boundary_factory(UNIT, inlet_distribution="flux", field=flow)
    y = np.asarray(reborn(boundary, 20_000).position)[:, 1]
    beside = np.minimum(y, 1 - y) < 0.02  # 0.24 % of the flow; ten cells of even density put 1.1 % there
    assert abs(beside.mean() - 2 * (3 * 0.02**2 - 2 * 0.02**3)) < 0.0015


def test_alias_table_gives_back_the_weights() -> None:
    weights = np.array([0.0, 3.0, 1.0, 0.5, 7.5])
    keep, other = alias_table(weights)
    chance = np.bincount(other, weights=1 - keep, minlength=5) + keep
    np.testing.assert_allclose(chance / 5, weights / weights.sum(), atol=1e-12)


def test_a_rate_carries_fractions_and_reports_what_found_no_slot() -> None:
    boundary = inlet_outlet_boundary_factory(UNIT, rate=25.0)
    position, alive = jnp.zeros((12, 2)), jnp.zeros(12, bool)
    carry, born = jnp.zeros(()), []
    for number in range(8):
        result = _reinject(boundary, position, alive, jnp.asarray(0.1), jr.key(number), carry)
        position, alive, carry = result.position, result.alive, result.carry
        born.append(int(result.born.sum()))
    # 2.5 a step: 2, 3, 2, 3, 2 fill the twelve slots; then there is none left.
    assert born == [2, 3, 2, 3, 2, 0, 0, 0]
    assert int(result.missed) == 3
    assert int(_reinject(boundary, position, ~alive, jnp.asarray(-0.1), jr.key(0)).born.sum()) == 2
    never = inlet_outlet_boundary_factory(UNIT, rate=0.0)
    assert not bool(reborn(never).born.any())


def test_an_inlet_of_ones_own() -> None:
    boundary = inlet_outlet_boundary_factory(
        UNIT,
        inlet_position="max",
        outlet_position="min",
        inlet_particle_generator=lambda words, left, slot: left * 0.5,
    )
    np.testing.assert_array_equal(reborn(boundary, 3).position, 0.5)
    assert not bool(step(boundary, [0.1, 0.5], [-0.1, 0.5]).alive)


def test_births_belong_to_slot_and_step() -> None:
    boundary = continuous_inlet_boundary_factory(UNIT)
    whole = reborn(boundary, 100).position
    part = reborn(boundary, 40, slots=jnp.arange(60, 100, dtype=jnp.int32)).position
    np.testing.assert_array_equal(part, whole[60:])
    words = np.asarray(
        jnp.concatenate([slot_words(jr.key(k), jnp.arange(500, dtype=jnp.int32)) for k in range(20)])
    )
    assert len(np.unique(words[:, 0])) > 9950
    assert (words >= 0).all()
    assert (words < 1).all()
    assert np.abs(words.mean(0) - 0.5).max() < 4 / np.sqrt(12 * len(words))
    assert np.abs(np.corrcoef(words.T) - np.eye(4)).max() < 4 / np.sqrt(len(words))
    steps = words[:, 0].reshape(20, 500)
    assert abs(np.corrcoef(steps[:-1].ravel(), steps[1:].ravel())[0, 1]) < 4 / np.sqrt(len(words))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: reflective_boundary([0.0, 1.0]), r"`bounds` must be \[lowest corner, highest corner\]"),
        (lambda: reflective_boundary([[0, 0], [1, -1]]), "each lowest coordinate at most the highest"),
        (lambda: box_boundary(UNIT, ["periodic"]), "`faces` must name one behaviour for each of the 2 axes"),
        (lambda: box_boundary(UNIT, "sticky"), "`faces` must hold words among periodic"),
        (lambda: box_boundary(UNIT, [("periodic", "reflective"), "open"]), "periodic on both sides"),
        (lambda: spherical_boundary([0, 0], 0.0), "`radius` must be positive; got 0.0"),
        (
            lambda: spherical_boundary([0, 0], 1.0, "slippery"),
            "`condition` must be reflective, clamping or absorbing",
        ),
        (lambda: cylindrical_boundary("w"), "`axis` must be one of x, y, z or 0 to 2; got 'w'"),
        (
            lambda: cylindrical_boundary((1.0, 1.0, 0.0), height=1.0, center=[0, 0, 0]),
            "`height` must be positive",
        ),
        (
            lambda: inlet_outlet_boundary_factory(UNIT, inlet_axis="z"),
            "`inlet_axis` must be one of x, y or 0 to 1",
        ),
        (lambda: inlet_outlet_boundary_factory(UNIT, inlet_position="max"), "one each; got 'max' and 'max'"),
        (lambda: inlet_outlet_boundary_factory(UNIT, rate=-1.0), "`rate` must be at least 0"),
        (lambda: continuous_inlet_boundary_factory(UNIT, flow_direction="up"), "`flow_direction` must be"),
        (lambda: continuous_inlet_boundary_factory(UNIT, concentrations={"z": 3}), "keys among x, y; got"),
        (lambda: continuous_inlet_boundary_factory(UNIT, inlet_distribution="flux"), "`field` must be given"),
    ],
)
def test_refusals_name_argument_demand_and_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()

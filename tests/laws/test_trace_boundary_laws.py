"""Laws of boundaries: positions end inside, nothing happens twice, folding agrees with a loop that bounces one by one."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from jaxtrace.tracking.boundary import (
    AbstractBoundary,
    Bounced,
    box_boundary,
    clamping_boundary,
    composed_boundary,
    cylindrical_boundary,
    periodic_boundary,
    reflective_boundary,
    spherical_boundary,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

LOW, HIGH = np.array([-1.0, 0.5, 2.0], np.float32), np.array([1.0, 0.75, 12.0], np.float32)
COUNT = 32


@eqx.filter_jit
def run(boundary: AbstractBoundary, old: Array, new: Array) -> Bounced:
    return jax.vmap(lambda old, new: boundary(old, new, new - old))(old, new)


def apply(boundary: AbstractBoundary, old: Any, new: Any) -> Bounced:
    return jax.tree.map(
        np.asarray, run(boundary, jnp.asarray(old, jnp.float32), jnp.asarray(new, jnp.float32))
    )


shares = st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=3 * COUNT, max_size=3 * COUNT)
ways = st.lists(st.floats(-6, 6, width=32, allow_subnormal=False), min_size=3 * COUNT, max_size=3 * COUNT)
few = settings(max_examples=15, deadline=None)


def paths(share: list[float], way: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Steps from inside the box, up to six times as long as it."""
    old = LOW + np.reshape(share, (COUNT, 3)).astype(np.float32) * (HIGH - LOW)
    return old, (old + np.reshape(way, (COUNT, 3)) * (HIGH - LOW)).astype(np.float32)


def loop_of_bounces(old: float, new: float, low: float, high: float) -> tuple[float, float, int, int]:
    """Position, sign of the velocity and hits of a particle between two mirrors, one bounce after the other."""
    sign, below, above = 1.0, 0, 0
    while not low <= new <= high:
        if new > high:
            new, above = 2 * high - new, above + 1
        else:
            new, below = 2 * low - new, below + 1
        sign = -sign
    return new, sign, below, above


@few
@given(shares, ways)
def test_reflection_agrees_with_bouncing_one_by_one(share: list[float], way: list[float]) -> None:
    old, new = paths(share, way)
    done = apply(reflective_boundary([LOW, HIGH]), old, new)
    for i, axis in np.ndindex(COUNT, 3):
        size = float(HIGH[axis] - LOW[axis])
        at, sign, below, above = loop_of_bounces(
            float(old[i, axis]), float(new[i, axis]), float(LOW[axis]), float(HIGH[axis])
        )
        assert abs(done.position[i, axis] - at) < 1e-5 * size
        # Within rounding of a mirror one bounce more or less is the same place.
        if min(abs(at - LOW[axis]), abs(at - HIGH[axis])) > 1e-4 * size:
            assert done.velocity[i, axis] == sign * (new[i, axis] - old[i, axis])
            assert done.hits[i, 2 * axis : 2 * axis + 2].tolist() == [below, above]


BOXES = {
    "reflective": reflective_boundary([LOW, HIGH]),
    "periodic": periodic_boundary([LOW, HIGH]),
    "clamping": clamping_boundary([LOW, HIGH]),
    "absorbing": box_boundary([LOW, HIGH], "absorbing"),
    "mixed": box_boundary([LOW, HIGH], ["periodic", ("reflective", "absorbing"), ("absorbing", "clamping")]),
}


@pytest.mark.parametrize("name", BOXES)
@few
@given(share=shares, way=ways)
def test_positions_end_inside_and_stay(name: str, share: list[float], way: list[float]) -> None:
    boundary = BOXES[name]
    old, new = paths(share, way)
    done = apply(boundary, old, new)
    assert (done.position >= LOW).all()
    assert (done.position <= HIGH).all()
    again = apply(boundary, done.position, done.position)
    np.testing.assert_array_equal(
        again.position, np.where(done.position == HIGH, again.position, done.position)
    )
    if name == "periodic":
        assert (done.position < HIGH).all()
    elif name != "mixed":
        np.testing.assert_array_equal(again.position, done.position)
        assert (again.hits == 0).all()
    # A particle dies exactly when a patch says so.
    np.testing.assert_array_equal(done.alive, done.patch < 0)


@pytest.mark.parametrize("name", BOXES)
@few
@given(share=shares, other=shares)
def test_steps_inside_are_left_alone_bit_by_bit(name: str, share: list[float], other: list[float]) -> None:
    old, _ = paths(share, [0.0] * (3 * COUNT))
    new, _ = paths([min(value, 0.99) for value in other], [0.0] * (3 * COUNT))
    done = apply(BOXES[name], old, new)
    np.testing.assert_array_equal(done.position, new)
    np.testing.assert_array_equal(done.velocity, new - old)
    assert done.alive.all()


@few
@example([0.0] * (3 * COUNT), [-1.1920928955078125e-07] * (3 * COUNT), 0)
@given(shares, ways, st.integers(-4, 4))
def test_periods_commute_with_shifts_and_can_be_undone(
    share: list[float], way: list[float], turns: int
) -> None:
    old, new = paths(share, way)
    size = HIGH - LOW
    boundary = periodic_boundary([LOW, HIGH])
    done = apply(boundary, old, new)
    moved = apply(boundary, old, new + turns * size)
    gap = np.abs(done.position - moved.position) / size
    assert (np.minimum(gap, 1 - gap) < 2e-5).all()
    windings = done.hits[:, 1::2] - done.hits[:, ::2]
    np.testing.assert_allclose(done.position + windings * size, new, atol=2e-5 * size.max())


@few
@given(shares, ways)
def test_a_mirror_folds_distances(share: list[float], way: list[float]) -> None:
    """Two particles are never further apart after a fold than before, and single folds keep the distance to the wall."""
    old, new = paths(share, way)
    done = apply(reflective_boundary([LOW, HIGH]), old, new).position
    before, after = np.abs(new[1:] - new[:-1]), np.abs(done[1:] - done[:-1])
    assert (after <= before + 1e-5 * (HIGH - LOW)).all()
    once = (new > HIGH) & (new < 2 * HIGH - LOW)
    np.testing.assert_allclose((HIGH - done)[once], (new - HIGH)[once], atol=1e-4)


@few
@given(shares, ways)
def test_the_exit_lies_on_the_straight_path(share: list[float], way: list[float]) -> None:
    old, new = paths(share, way)
    done = apply(BOXES["absorbing"], old, new)
    for i in np.flatnonzero(~done.alive):
        axis, side = divmod(int(done.patch[i]), 2)
        face = (LOW, HIGH)[side][axis]
        assert done.position[i, axis] == face
        part = (np.float64(face) - old[i, axis]) / (np.float64(new[i, axis]) - old[i, axis])
        assert -1e-6 <= part <= 1 + 1e-6
        expected = old[i] + part * (new[i].astype(np.float64) - old[i])
        np.testing.assert_allclose(done.position[i], expected, atol=1e-4)
        assert (expected >= LOW - 1e-4).all()
        assert (expected <= HIGH + 1e-4).all()
    beyond = ((new < LOW) | (new > HIGH)).any(axis=1)
    np.testing.assert_array_equal(~done.alive, beyond)


CENTRE, RADIUS = np.array([1.0, -2.0, 0.5], np.float32), 3.0
ROUND = {
    "sphere": spherical_boundary(CENTRE, RADIUS),
    "cylinder": cylindrical_boundary("y", CENTRE, RADIUS),
    "tilted": cylindrical_boundary((1.0, 2.0, -1.0), CENTRE, RADIUS),
    "closed": cylindrical_boundary("z", CENTRE, RADIUS, height=4.0),
    "clamp": spherical_boundary(CENTRE, RADIUS, "clamping"),
    "drain": spherical_boundary(CENTRE, RADIUS, "absorbing"),
    "shell": composed_boundary(
        spherical_boundary(CENTRE, RADIUS), spherical_boundary(CENTRE, 1.0, "clamping", "outside")
    ),
}


@pytest.mark.parametrize("name", ROUND)
@few
@given(share=shares, way=ways)
def test_round_walls_hold(name: str, share: list[float], way: list[float]) -> None:
    inner = np.reshape(share, (COUNT, 3)).astype(np.float32) - 0.5
    old = (CENTRE + inner * (2 * RADIUS / np.sqrt(3)) * 0.99).astype(np.float32)
    if name == "shell":
        old = old + (old == CENTRE) + np.sign(old - CENTRE) * 0.7
        old = CENTRE + (old - CENTRE) * np.minimum(
            1, 2.9 / np.linalg.norm(old - CENTRE, axis=1, keepdims=True)
        )
    new = (old + np.reshape(way, (COUNT, 3))).astype(np.float32)
    done = apply(ROUND[name], old, new)
    across = done.position - CENTRE
    if name in ("cylinder", "closed"):
        across = np.delete(across, 1 if name == "cylinder" else 2, axis=1)
    if name == "tilted":
        axis = np.array([1.0, 2.0, -1.0]) / np.sqrt(6)
        across = across - (across @ axis)[:, None] * axis
    distance = np.linalg.norm(across, axis=1)
    assert (distance <= RADIUS * (1 + 1e-6)).all()
    if name == "closed":
        assert (np.abs(done.position[:, 2] - 0.5) <= 2.0).all()
    if name == "shell":
        assert (distance >= 1 - 1e-6).all()
    if name in ("sphere", "cylinder", "tilted"):
        # A mirror changes the direction of the velocity, never its size.
        speeds = np.linalg.norm(done.velocity, axis=1), np.linalg.norm(new - old, axis=1)
        np.testing.assert_allclose(*speeds, rtol=1e-4, atol=1e-5)
    untouched = done.hits.sum(axis=1) == 0
    np.testing.assert_array_equal(done.position[untouched], new[untouched])
    if name == "drain":
        np.testing.assert_allclose(distance[~done.alive], RADIUS, rtol=1e-5)


@few
@given(shares, ways)
def test_a_step_between_round_mirrors_can_be_taken_back(share: list[float], way: list[float]) -> None:
    """Light retraces its path: from the end, with the velocity reversed, the same way leads to the beginning."""
    inner = np.reshape(share, (COUNT, 3)).astype(np.float32) - 0.5
    old = (CENTRE + inner * 2.0).astype(np.float32)
    new = (old + 0.8 * np.reshape(way, (COUNT, 3))).astype(np.float32)
    boundary = ROUND["sphere"]
    done = apply(boundary, old, new)
    back = apply(boundary, done.position, done.position - done.velocity)
    settled = (done.hits[:, 0] < 3) & (back.hits[:, 0] == done.hits[:, 0])
    np.testing.assert_allclose(back.position[settled], old[settled], atol=2e-3)

"""Reinjection: an inlet fills the slots of particles that have left, at once or at a given rate."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, PyTree, UInt32

from ..fields.base import AbstractGrid, Index, Scalar, Vector
from ..integrators.base import AnyKey
from .base import AbstractBoundary, Bounced, Flags, Points
from .box import AXES, Bounds, axis_number, box_boundary, box_corners
from .inlets import AbstractInlet, GeneratedInlet, face_inlet

Ranks = Callable[[Bool[Array, " slots"], Int32[Array, " slots"]], tuple[Array, Array]]
"""The place of each free slot among the free ones, from 1 on, and how many there are; from flags and the slots' numbers."""


def ranks_in_place(free: Bool[Array, " slots"], numbers: Int32[Array, " slots"]) -> tuple[Array, Array]:
    """The place of each free slot among the free ones as they lie, which is by their numbers; and how many there are."""
    rank = jnp.cumsum(free)
    return rank, rank[-1]


class Reborn(eqx.Module):
    """A batch after the inlet has filled its free slots."""

    position: Float[Array, "slots dim"]
    alive: Bool[Array, " slots"]
    born: Bool[Array, " slots"]
    """The slots that hold a new particle, whose age and search hint start again."""
    carry: Scalar
    """The fraction of a particle that is still owed; pass it to the next call."""
    missed: Index
    """Particles that were due and found no free slot, or for which a function gave no finite place; not made up for."""


class InletBoundary(AbstractBoundary):
    """Walls around, and an inlet that fills the slots of particles that have left.

    `rate` counts particles per unit of time for the whole batch; without one every free slot is filled at once.
    """

    walls: AbstractBoundary
    inlet: AbstractInlet
    rate: Scalar | None = None

    @property
    def patches(self) -> tuple[str, ...]:
        """Those of the walls."""
        return self.walls.patches

    @property
    def _ends_some(self) -> bool:
        return self.walls._ends_some

    @property
    def endings(self) -> tuple[str, ...]:
        """Those of the walls."""
        return self.walls.endings

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Apply the walls; `reinject` adds births afterwards, for the whole batch."""
        return self.walls(old, new, velocity, hint)

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        return self.walls._holds(points, checked)

    def reinject(
        self,
        position: Float[Array, "slots dim"],
        alive: Bool[Array, " slots"],
        dt: Scalar,
        key: AnyKey,
        carry: Scalar | None = None,
        slots: Int32[Array, " slots"] | None = None,
        ranks: Ranks = ranks_in_place,
        devices: tuple[str, ...] = (),
    ) -> Reborn:
        """Fill free slots. `key` belongs to the step; `slots` numbers this batch's slots among all (0, 1, ... else).

        They are filled in the order that `ranks` gives them by their numbers. Where `devices` names the axes of a mesh, the
        slots are those of one device, and the rate is that of all.
        """
        numbers = jnp.arange(alive.shape[0], dtype=jnp.int32) if slots is None else slots
        owed = jnp.zeros((), position.dtype) if carry is None else carry
        free = ~alive
        missed = jnp.zeros((), jnp.int32)
        if self.rate is None:
            born = free
        else:
            owed = owed + self.rate.astype(position.dtype) * jnp.abs(dt).astype(position.dtype)
            due = jnp.floor(owed)
            rank, total = _among_all(*ranks(free, numbers), devices)
            born = free & (rank <= due)
            owed = owed - due
            missed = jnp.maximum(due.astype(jnp.int32) - total.astype(jnp.int32), 0)
        words = slot_words(key, numbers)
        fresh = jax.vmap(self.inlet.place)(words, position, numbers)
        if isinstance(self.inlet, GeneratedInlet):  # nobody is born at a place that is no place
            placed = jnp.isfinite(fresh).all(1)
            missed = missed + (born & ~placed).sum(dtype=jnp.int32)
            born = born & placed
        return Reborn(jnp.where(born[:, None], fresh, position), alive | born, born, owed, missed)


def _among_all(
    rank: Int[Array, " slots"], count: Int[Array, ""], devices: tuple[str, ...]
) -> tuple[Int[Array, " slots"], Int[Array, ""]]:
    """The places of this device's free slots among those of all devices, whose numbers follow one another."""
    if not devices:
        return rank, count
    place, numbers = jax.lax.axis_index(devices), jnp.arange(jax.lax.axis_size(devices))
    counts = jax.lax.psum(jnp.where(numbers == place, count, 0), devices)
    before = jnp.sum(jnp.where(numbers < place, counts, 0), dtype=counts.dtype)
    return rank + before, jnp.sum(counts, dtype=counts.dtype)


def slot_words(key: AnyKey, slots: Int32[Array, " slots"]) -> Float[Array, "slots 4"]:
    """Four numbers in [0, 1) for each slot: the same for a slot however slots are batched.

    Births are rare, but a compiled step draws for every slot; a full cipher for each would cost more than the walls.
    So the step's key is drawn from once, and the slot's number is stirred into it by integer mixing.
    """
    seed = jr.bits(key, (2,), jnp.uint32)
    start = _stir(slots.astype(jnp.uint32) * np.uint32(0x9E3779B9) + seed[0]) ^ seed[1]
    words = jnp.stack([_stir(start + np.uint32(number * 0x85EBCA6B % 2**32)) for number in range(1, 5)], -1)
    return (words >> 8).astype(jnp.float32) * np.float32(2.0**-24)


def _stir(word: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """Every bit of the result depends on every bit of the word (lowbias32 of C. Wellons' hash prospector)."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)


def inlet_outlet_boundary_factory(
    bounds: Bounds,
    inlet_axis: str | int = "x",
    inlet_position: str = "min",
    outlet_position: str = "max",
    inlet_particle_generator: AbstractInlet | Callable[..., Any] | None = None,
    *,
    inlet_distribution: str = "uniform",
    rate: float | None = None,
    lateral: str = "reflective",
    inlet_face: str = "reflective",
    **shape: Any,
) -> InletBoundary:
    """A box with an inlet on one face of an axis and an outlet on the other.

    A particle that passes the outlet leaves; its slot is filled at the inlet, at once or with `rate` particles per time (0 for
    never). The inlet's own face and the faces beside turn particles back unless `inlet_face` and `lateral` name
    another behaviour. `shape` goes to `face_inlet`: resolution, mean, deviation, field, time, order.
    """
    corners = box_corners(bounds)
    axis = axis_number(inlet_axis, corners.shape[1], "inlet_axis")
    sides = {"min": 0, "max": 1}
    if inlet_position not in sides or outlet_position not in sides or inlet_position == outlet_position:
        raise ValueError(
            "`inlet_position` and `outlet_position` must be 'min' and 'max', one each; "
            f"got {inlet_position!r} and {outlet_position!r}."
        )
    upper = inlet_position == "max"
    pair = ("absorbing", inlet_face) if upper else (inlet_face, "absorbing")
    faces: list[Any] = [lateral] * corners.shape[1]
    faces[axis] = pair
    given = inlet_particle_generator
    if given is None:
        inlet = face_inlet(corners, axis, upper, inlet_distribution, **shape)
    else:
        inlet = given if isinstance(given, AbstractInlet) else GeneratedInlet(cast(Any, given))
    if rate is not None and not 0 <= rate < np.inf:
        raise ValueError(
            f"`rate` must be at least 0 particles per time, and finite; got {rate}. Pass None to fill slots at once."
        )
    return InletBoundary(
        box_boundary(corners, faces), inlet, None if rate is None else jnp.asarray(rate, float)
    )


def continuous_inlet_boundary_factory(
    bounds: Bounds,
    flow_axis: str | int = "x",
    flow_direction: str = "positive",
    inlet_distribution: str = "uniform",
    concentrations: Mapping[str, int] | None = None,
    **options: Any,
) -> InletBoundary:
    """An endless stream: a particle that leaves downstream enters upstream in the same step.

    `concentrations` is the lattice of the inlet, such as `{"x": 30, "y": 25, "z": 10}`; with
    `inlet_distribution="grid"` a particle re-enters at the lattice point it left beside. `options` are those of
    `inlet_outlet_boundary_factory`.
    """
    corners = box_corners(bounds)
    if flow_direction not in ("positive", "negative"):
        raise ValueError(f"`flow_direction` must be 'positive' or 'negative'; got {flow_direction!r}.")
    ends = ("min", "max") if flow_direction == "positive" else ("max", "min")
    if concentrations is not None:
        names = AXES[: corners.shape[1]]
        if not set(concentrations) <= set(names):
            raise ValueError(
                f"`concentrations` must have keys among {', '.join(names)}; got {sorted(concentrations)}."
            )
        options = {"resolution": [int(concentrations.get(name, 1)) for name in names], **options}
    return inlet_outlet_boundary_factory(
        corners, flow_axis, *ends, inlet_distribution=inlet_distribution, **options
    )

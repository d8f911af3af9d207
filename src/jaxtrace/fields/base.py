"""What every velocity field and every grid offers: values for one point, and whether the point lies inside."""

import abc
import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, PyTree, Shaped

from .epoch import epoch_of, in_seconds, without_epoch
from .sphere import Sphere

Interpolation = Literal["nearest", "linear", "cubic"]
"""How values between the nodes are found, in space or in time."""

Vector = Float[Array, " dim"]
"""A position, a difference between two, or a velocity."""
Scalar = Float[Array, ""]
"""One number."""
Index = Int32[Array, ""]
"""The number of a cell, a row, a step or a patch."""
Flag = Bool[Array, ""]
"""True or False, known when the program runs."""


class Stencil(eqx.Module):
    """Where a grid reads its values for one point: the rows of the data, and what each counts.

    Rows and weights are tuples of scalars: as arrays of `k` they would be stored and read again for every particle.
    """

    rows: tuple[Int[Array, ""], ...]
    weights: tuple[Scalar, ...]
    """They sum to one."""
    inside: Flag
    """Whether the point lies in the grid and not in a masked cell; outside, the weights are those of a near point."""
    hint: PyTree
    """Where to start looking next time: a cell number for meshes, `()` for grids that need no search."""
    pack: Int[Array, ""] | None = None
    """The row of `AbstractGrid.pack` that holds the values of all `rows` side by side."""

    @property
    def index(self) -> Int[Array, "*n k"]:
        """The rows as one array."""
        return jnp.stack(self.rows, -1)

    @property
    def weight(self) -> Float[Array, "*n k"]:
        """The weights as one array."""
        return jnp.stack(self.weights, -1)


class AbstractGrid(eqx.Module):
    """Geometry without data: it turns a point into rows of the data and their weights."""

    sphere: Sphere | None = eqx.field(static=True, kw_only=True, default=None)
    """Where the first two coordinates are longitude and latitude in degrees and velocities are in m/s; else None."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of coordinates of a point."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of rows the data must have: one for each node, or for each cell."""

    @property
    @abc.abstractmethod
    def bounds(self) -> Float[Array, "2 dim"]:
        """The lowest and the highest corner of the box around the grid."""

    @property
    def middle(self) -> Vector:
        """The middle of that box."""
        low, high = self.bounds
        return low + 0.5 * (high - low)

    @property
    @abc.abstractmethod
    def positions(self) -> Float[Array, "size dim"]:
        """Where the values sit, in the order of the data's rows."""

    @abc.abstractmethod
    def start(self, x: Vector) -> PyTree:
        """The hint for a point seen for the first time."""

    @abc.abstractmethod
    def stencil(self, x: Vector, hint: PyTree) -> Stencil:
        """Rows and weights for one point. A point outside gets those of a near point, so that values stay finite."""

    @property
    def packable(self) -> bool:
        """Whether `pack` can lay the values of a stencil side by side."""
        return False

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "packs _"]:
        """The values of every possible stencil side by side, in the order of `Stencil.weights`: one read for a point."""
        raise TypeError(f"{type(self).__name__} does not pack its values; see `packable`.")


class Sample(eqx.Module):
    """The velocity at one point and time."""

    velocity: Vector
    inside: Flag
    """Whether the point lies in the field; outside, the velocity is that of a near point."""
    hint: PyTree


class AbstractField(eqx.Module):
    """A velocity in space and time, sampled for one particle; `jax.vmap` makes it many.

    Samples are in units of the coordinates per second, on a sphere in degrees per second.
    """

    dim: eqx.AbstractVar[int]

    @property
    def time_range(self) -> tuple[float, float]:
        """The first and the last time the field knows; infinite where it holds for all times."""
        return (-np.inf, np.inf)

    @property
    def sphere(self) -> Sphere | None:
        """The sphere on which longitudes and latitudes lie, where the field's own velocities are in m/s; else None."""
        return None

    @property
    def in_metres(self) -> "AbstractField":
        """On a sphere the same field with samples in m/s east and north; else the field itself."""
        return self

    @property
    def middle_longitude(self) -> Scalar | None:
        """On a sphere the longitude around which the field lies; None where it holds for all."""
        return None

    @abc.abstractmethod
    def start(self, x: Vector) -> PyTree:
        """The hint for a particle that is sampled for the first time."""

    @abc.abstractmethod
    def sample(self, x: Vector, t: Scalar, hint: PyTree) -> Sample:
        """The velocity at `x` and `t`, looked for from `hint`."""

    def at(self, t: Scalar) -> "AbstractMoment":
        """The field at one time. Where `t` is the same for all particles, work that depends on time alone is done once."""
        return FieldAtTime(self, jnp.asarray(t))

    def __call__(self, x: Float[Array | np.ndarray, "*n dim"], t: Any) -> Float[Array, "*n dim"]:
        """Velocities of one point `(dim,)` or of many `(..., dim)`; NaN for points outside the field.

        `t` is a time, or a date where the field has an `epoch`.
        """
        points = jnp.asarray(x)
        if points.ndim == 0 or points.shape[-1] != self.dim:
            raise ValueError(
                f"`x` must hold points of {self.dim} coordinates in its last axis; got shape {points.shape}."
            )
        t = in_seconds(t, epoch_of(self), "t")
        return _velocities(without_epoch(self), points, jnp.asarray(t, points.dtype))


class AbstractMoment(eqx.Module):
    """A velocity in space at one time."""

    @abc.abstractmethod
    def sample(self, x: Vector, hint: PyTree) -> Sample:
        """The velocity at `x`, looked for from `hint`."""


class FieldAtTime(AbstractMoment):
    """A field and a time."""

    field: AbstractField
    t: Scalar

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        return self.field.sample(x, self.t, hint)


@eqx.filter_jit
def _velocities(field: AbstractField, points: Float[Array, "*n dim"], t: Scalar) -> Float[Array, "*n dim"]:
    def one(x: Vector) -> Vector:
        found = field.sample(x, t, field.start(x))
        return jnp.where(found.inside, found.velocity, jnp.nan)

    return jax.vmap(one)(points.reshape(-1, field.dim)).reshape(points.shape)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a `value` of the argument `name` that is not among the `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}; got {value!r}.")


def copy_with(module: Any, **changes: Any) -> Any:
    """The same module with other values in some fields; nothing is checked or computed again."""
    other = object.__new__(type(module))
    for field in dataclasses.fields(module):
        value = changes[field.name] if field.name in changes else getattr(module, field.name)
        object.__setattr__(other, field.name, value)
    return other

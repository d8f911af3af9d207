"""Round walls: spheres, circles and cylinders that particles stay inside of, or stay out of."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..fields.base import AbstractGrid, Flag, Index, Scalar, Vector
from .base import AbstractBoundary, Bounced, Flags, Points

Wall = Literal["reflective", "clamping", "absorbing"]
Side = Literal["inside", "outside"]
# Where the path is, what is left of it, where it ends so far, the velocity, and the bounces.
_Ahead = tuple[Vector, Vector, Vector, Vector, Index]


class Round(AbstractBoundary):
    """A sphere around `centre`, or a cylinder where `axis` is a unit vector along it (zero for a sphere).

    The straight path is cut where it meets the wall. A mirror turns the rest of the way about the wall's normal, up
    to `bounces` times; what would still leave then is put on the wall. A clamp keeps the way along the wall only in
    so far as the end is brought to the nearest wall point. Patch: `name`.
    """

    centre: Vector
    radius: Scalar
    axis: Vector
    wall: Wall = eqx.field(static=True, default="reflective")
    side: Side = eqx.field(static=True, default="inside")
    name: str = eqx.field(static=True, default="sphere")
    bounces: int = eqx.field(static=True, default=4)

    @property
    def patches(self) -> tuple[str, ...]:
        """One."""
        return (self.name,)

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Follow the path from wall to wall."""
        velocity = jnp.zeros_like(new) if velocity is None else velocity
        if self.wall == "reflective":
            return self._mirror(old, new, velocity)
        start, way = self._across(old), self._across(new - old)
        share, met = self._meet(start, way)
        # Where the old place was already on the wrong side no crossing exists: the nearest wall point stands for it.
        met = met | self._wrong(self._across(new))
        if self.wall == "absorbing":
            end = jnp.where(met, old + share * (new - old), new)
            alive = ~met
        else:
            end, alive = new, jnp.ones((), bool)
        end = jnp.where(met, self._onto(end), end)
        normal = self._normal(end)
        stopped = velocity - dot(velocity, normal) * normal
        velocity = jnp.where(met & (self.wall == "clamping"), stopped, velocity)
        found = _result(end, velocity, alive, met.astype(jnp.int32))
        if self.wall != "absorbing":
            return found
        return dataclasses.replace(found, share=jnp.where(met, share, 1.0), normal=normal)

    @property
    def _ends_some(self) -> bool:
        return self.wall == "absorbing"

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        axis, radius = np.asarray(self.axis, np.float64), float(self.radius)
        away = points - np.asarray(self.centre, np.float64)
        away = away - (away @ axis)[:, None] * axis
        distance = np.linalg.norm(away, axis=1)
        slack = 4 * np.finfo(points.dtype).eps * (radius + np.abs(self.centre).max())
        return distance <= radius + slack if self.side == "inside" else distance >= radius - slack

    def _mirror(self, old: Vector, new: Vector, velocity: Vector) -> Bounced:
        """Specular reflections, in a loop of fixed length so that gradients pass both ways."""

        def bounce(ahead: _Ahead, nothing: None) -> tuple[_Ahead, None]:
            here, way, _, velocity, hits = ahead
            share, met = self._meet(self._across(here), self._across(way))
            wall = self._onto(here + share * way)
            normal = self._normal(wall)
            rest = (1 - share) * way
            rest = rest - 2 * dot(rest, normal) * normal
            turned = velocity - 2 * dot(velocity, normal) * normal
            then = (wall, rest, wall + rest, turned, hits + 1)
            return jax.tree.map(lambda a, b: jnp.where(met, a, b), then, ahead), None

        start = (old, new - old, new, velocity, jnp.zeros((), jnp.int32))
        times = self.bounces if self.side == "inside" else 1
        (_, _, end, velocity, hits), _ = jax.lax.scan(bounce, start, length=times)
        # What the last bounce left on the forbidden side is put on the wall.
        end = jnp.where(self._wrong(self._across(end)), self._onto(end), end)
        return _result(end, velocity, jnp.ones((), bool), hits)

    def _across(self, x: Vector) -> Vector:
        """A vector's part that the wall can see: all of it, or what is perpendicular to the cylinder's axis."""
        axis = self.axis.astype(x.dtype)
        return x - dot(x, axis) * axis

    def _offset(self, x: Vector) -> Vector:
        return self._across(x - self.centre.astype(x.dtype))

    def _normal(self, x: Vector) -> Vector:
        """Unit vector from the centre to `x`; any direction in the centre itself."""
        offset = self._offset(x)
        square = dot(offset, offset)
        some = square > 0
        return jnp.where(some, offset, 0.0) / jnp.sqrt(jnp.where(some, square, 1.0))

    def _wrong(self, across: Vector) -> Flag:
        """Whether a place (its seen part, not yet relative to the centre) lies on the forbidden side."""
        away = across - self._across(self.centre.astype(across.dtype))
        square = dot(away, away)
        limit = self.radius.astype(across.dtype) ** 2
        return square > limit if self.side == "inside" else square < limit

    def _onto(self, x: Vector) -> Vector:
        """The wall point nearest to `x`, never beyond it by rounding."""
        offset = self._offset(x)
        inward = 1 - 4 * jnp.finfo(x.dtype).eps
        radius = self.radius.astype(x.dtype) * (inward if self.side == "inside" else 1 / inward)
        return x - offset + radius * self._direction(x)

    def _direction(self, x: Vector) -> Vector:
        """As the normal, but some fixed direction across the axis in the very centre."""
        normal = self._normal(x)
        flat = jnp.ones_like(x) * (jnp.arange(x.shape[0]) == jnp.argmin(jnp.abs(self.axis)))
        flat = self._across(flat)
        flat = flat / jnp.sqrt(dot(flat, flat))
        return jnp.where(dot(normal, normal) > 0, normal, flat)

    def _meet(self, start: Vector, way: Vector) -> tuple[Scalar, Flag]:
        """The share of the way until the wall, and whether the way is that long: |start + share way| = radius."""
        start = start - self._across(self.centre.astype(start.dtype))
        a, b = dot(way, way), dot(start, way)
        c = dot(start, start) - self.radius.astype(start.dtype) ** 2
        moves = a > 0
        a = jnp.where(moves, a, 1.0)
        if self.side == "inside":
            c = jnp.minimum(c, 0.0)
            end = start + way
            leaves = moves & (dot(end, end) > self.radius.astype(start.dtype) ** 2)
            root = _root(b * b - a * c)
            # Two forms of one root; each is free of cancellation on its side.
            share = jnp.where(b > 0, -c / jnp.where(b > 0, b + root, 1.0), (root - b) / a)
            return jnp.where(leaves, jnp.clip(share, 0.0, 1.0), 0.0), leaves
        c = jnp.maximum(c, 0.0)
        inner = b * b - a * c
        share = c / jnp.where(b < 0, _root(inner) - b, 1.0)
        enters = moves & (b < 0) & (inner > 0) & (share <= 1)
        return jnp.where(enters, share, 0.0), enters


def dot(a: Vector, b: Vector) -> Scalar:
    """Scalar product written out: on a CPU a reduction over two or three entries would break the loop over particles."""
    return sum((a[i] * b[i] for i in range(1, a.shape[0])), start=a[0] * b[0])


def _root(value: Scalar) -> Scalar:
    """Square root of what is positive, with slope 0 elsewhere."""
    positive = value > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, value, 1.0)), 0.0)


def _result(position: Vector, velocity: Vector, alive: Flag, hits: Array) -> Bounced:
    """For a boundary of one patch."""
    return Bounced(position, velocity, alive, hits[None], jnp.where(alive, -1, 0).astype(jnp.int32))

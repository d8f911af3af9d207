"""The box: faces that are periodic, mirrors, clamps, drains or open, folded exactly for steps of any length."""

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from ..fields.base import AbstractGrid, Index, Scalar, Vector
from ..fields.isolation import isolate
from .base import AbstractBoundary, Bounced, Flags, Points

Face = Literal["periodic", "reflective", "clamping", "absorbing", "open"]
FACES = ("periodic", "reflective", "clamping", "absorbing", "open")
# Beyond these a particle may not begin; on the outer side of others it is wrapped, or free.
_HOLDING = ("reflective", "clamping", "absorbing")
AXES = "xyz"
Bounds = Float[Array | np.ndarray, "2 dim"] | Sequence[Any]


class Box(AbstractBoundary):
    """An axis-aligned box, each face with its own behaviour, for steps of any length.

    Reflections and periods are folded exactly however often a step crosses. An absorbed particle ends at the point
    where its straight path first meets an absorbing face. Patches are x_min, x_max, y_min, ...; for periodic axes
    the difference of the two counts is the number of periods travelled. An axis of no extent pins its coordinate.
    """

    low: Vector
    high: Vector
    faces: tuple[tuple[Face, Face], ...] = eqx.field(static=True)

    @property
    def patches(self) -> tuple[str, ...]:
        """Two for each axis."""
        names = [AXES[i] if i < len(AXES) else f"axis{i}" for i in range(len(self.faces))]
        return tuple(f"{name}_{side}" for name in names for side in ("min", "max"))

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Cut the path at the first absorbing face, then fold, wrap or clip each axis."""
        low, high = self.low.astype(new.dtype), self.high.astype(new.dtype)
        velocity = jnp.zeros_like(new) if velocity is None else velocity
        end, face, cut = self._absorb(old, new, low, high)
        folded: Any = end, jnp.ones_like(new), *jnp.zeros((2, *new.shape), jnp.int32)
        for kind in dict.fromkeys(self.faces):
            done = _between_faces(end, low, high, kind)
            here = np.array([faces == kind for faces in self.faces])
            pairs = zip(done, folded, strict=True)
            folded = done if here.all() else [jnp.where(here, a, b) for a, b in pairs]
        position, factor, below, above = folded
        absorbed = jnp.arange(2 * len(self.faces)) == face
        hits = jnp.stack([below, above], axis=-1).reshape(-1) + absorbed.astype(jnp.int32)
        across = (jnp.arange(len(self.faces)) == face // 2).astype(new.dtype)
        return Bounced(position, velocity * factor, face < 0, hits, face, cut, across)

    def _view_from(self, old: Vector, done: Bounced) -> Vector | None:
        along = self._has_period
        if not along.any():
            return None
        below, above = done.hits.reshape(-1, 2).T
        size = jnp.where(along, self.high - self.low, 0.0).astype(old.dtype)  # open axes may have no end
        return old - jnp.where(along, above - below, 0) * size

    def _wrap(self, x: Vector) -> tuple[Vector, Int32[Array, " patches"]]:
        along = self._has_period
        low, high = self.low.astype(x.dtype), self.high.astype(x.dtype)
        place, _, below, above = _periodic(x, low, high)
        hits = jnp.where(along[:, None], jnp.stack([below, above], axis=-1), 0).reshape(-1)
        return jnp.where(along, place, x), hits

    @property
    def _ends_some(self) -> bool:
        return any("absorbing" in pair for pair in self.faces)

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        held = np.ones(len(points), bool)
        for axis, pair in enumerate(self.faces):
            if low[axis] == high[axis]:  # the coordinate is pinned, wherever a particle begins
                continue
            x, ends = points[:, axis], np.array([low[axis], high[axis]])
            slack = 4 * np.finfo(points.dtype).eps * np.abs(ends[np.isfinite(ends)]).max(initial=0.0)
            if pair[0] in _HOLDING and x.min() < ends[0] - slack:
                held &= x >= ends[0] - slack
            if pair[1] in _HOLDING and x.max() > ends[1] + slack:
                held &= x <= ends[1] + slack
        return held

    def _bring_back(self, points: Points) -> Points:
        low, high = np.asarray(self.low, points.dtype), np.asarray(self.high, points.dtype)
        size = np.where(self._has_period & (high > low), high - low, 1)
        return np.where(self._has_period, low + np.mod(points - low, size), points)

    @property
    def _has_period(self) -> Bool[np.ndarray, " dim"]:
        return np.array([pair == ("periodic", "periodic") for pair in self.faces])

    def _absorb(self, old: Vector, new: Vector, low: Vector, high: Vector) -> tuple[Vector, Index, Scalar]:
        """End of the path at its first absorbing face, the number of that face (-1 for none), and the share until there."""
        drains = np.argwhere(np.array(self.faces) == "absorbing").tolist()
        if not drains:
            return new, jnp.full((), -1, jnp.int32), jnp.ones((), new.dtype)
        # Which face comes first is found once for all that follows from it: position, life, counts and patch.
        always = self.low[0] == self.low[0]
        cut, face = isolate(always, functools.partial(self._first, drains), old, new, low, high)
        met = (face >= 0) & (jnp.arange(len(self.faces)) == face // 2)
        end = jnp.where(face < 0, new, old + cut * (new - old))
        return jnp.where(met, jnp.where(face % 2 == 0, low, high), end), face, cut

    def _first(
        self, drains: list[list[int]], old: Vector, new: Vector, low: Vector, high: Vector
    ) -> tuple[Scalar, Index]:
        """The share of the way to the first absorbing face and that face's number; -1 where none is met."""
        # Face by face and written out: a reduction over so few entries would break the loop over particles on a CPU.
        cut, face = jnp.full((), jnp.inf, new.dtype), jnp.full((), -1, jnp.int32)
        for axis, side in drains:
            share = self._share(axis, side, old, new, low, high)
            face = jnp.where((share <= 1) & (share < cut), 2 * axis + side, face)
            cut = jnp.minimum(cut, share)
        return jnp.where(face < 0, 1.0, cut).astype(new.dtype), face

    def _share(self, axis: int, side: int, old: Vector, new: Vector, low: Vector, high: Vector) -> Scalar:
        """The share of the way after which an absorbing face is passed; infinite where it is not."""
        planes = [((low, high)[side][axis], side == 1)]
        if self.faces[axis][1 - side] == "reflective":
            # Beyond a mirror on the other side the face appears at its image, to be passed the other way.
            planes.append((2 * (low, high)[1 - side][axis] - (low, high)[side][axis], side == 0))
        way = new[axis] - old[axis]
        safe = jnp.where(way == 0, 1.0, way)
        share = jnp.full_like(way, jnp.inf)
        for plane, upwards in planes:
            passed = new[axis] > plane if upwards else new[axis] < plane
            part = jnp.where(way == 0, 0.0, jnp.clip((plane - old[axis]) / safe, 0.0, 1.0))
            share = jnp.where(passed, part, share)
        return share


Folded = tuple[Vector, Vector, Int32[Array, " dim"], Int32[Array, " dim"]]


def _between_faces(x: Vector, low: Vector, high: Vector, kind: tuple[Face, Face]) -> Folded:
    """Places brought back between two faces, factors of the velocity, and how often each face was met."""
    if kind == ("periodic", "periodic"):
        return _periodic(x, low, high)
    return _reflective(x, low, high) if kind == ("reflective", "reflective") else _mixed(x, low, high, kind)


def _periodic(x: Vector, low: Vector, high: Vector) -> Folded:
    """Wrap into [low, high)."""
    size = _extent(low, high)
    inside = (x >= low) & (x < high)
    # A quotient and not a remainder, which is a call for each number on a CPU; the places it finds are as exact as `x`.
    turns = jnp.where(inside | (high <= low), 0.0, jnp.floor((x - low) / size)).astype(x.dtype)
    wrapped = jnp.maximum(x - turns * size, low)
    # A hair below the lower face is, after rounding, on the upper one: the next period's lower face.
    over = (wrapped >= high) & (high > low)
    wrapped = jnp.where(over | (high <= low), low, wrapped)
    count = turns.astype(jnp.int32) + over
    return jnp.where(inside, x, wrapped), jnp.ones_like(x), jnp.maximum(-count, 0), jnp.maximum(count, 0)


def _reflective(x: Vector, low: Vector, high: Vector) -> Folded:
    """The path folded at both mirrors as often as it meets them."""
    size = _extent(low, high)
    inside = (x >= low) & (x <= high)
    turns = jnp.where(inside | (high <= low), 0.0, jnp.floor((x - low) / size)).astype(x.dtype)
    signed = turns.astype(jnp.int32)
    odd = (signed & 1) == 1
    along = x - turns * size
    folded = jnp.clip(jnp.where(odd, low + high - along, along), low, high)
    count = jnp.abs(signed)
    near, far = (count + 1) >> 1, count >> 1
    up = signed > 0
    sign = jnp.where(odd, -1.0, 1.0).astype(x.dtype)
    return jnp.where(inside, x, folded), sign, jnp.where(up, far, near), jnp.where(up, near, far)


def _mixed(x: Vector, low: Vector, high: Vector, kind: tuple[Face, Face]) -> Folded:
    """Faces that fold nothing, or two different ones: mirrors first, then the others.

    An absorbing face has cut the path already, so that only rounding is clipped; an open one counts the crossings.
    """
    factor, counts = jnp.ones_like(x), [jnp.zeros(x.shape, jnp.int32)] * 2
    for side, face in enumerate(kind):
        if face == "reflective":
            past = x < low if side == 0 else x > high
            x = jnp.where(past, 2 * (low if side == 0 else high) - x, x)
            factor = jnp.where(past, -1.0, factor).astype(x.dtype)
            counts[side] = past.astype(jnp.int32)
    for side, face in enumerate(kind):
        past = x < low if side == 0 else x > high
        if face in ("clamping", "absorbing"):
            x = jnp.maximum(x, low) if side == 0 else jnp.minimum(x, high)
        if face == "clamping":
            factor = jnp.where(past, 0.0, factor).astype(x.dtype)
        if face in ("clamping", "open"):
            counts[side] = past.astype(jnp.int32)
    return x, factor, counts[0], counts[1]


def _extent(low: Vector, high: Vector) -> Vector:
    """Size of the box, 1 where it has none."""
    return jnp.where(high > low, high - low, 1.0).astype(low.dtype)


def box_boundary(bounds: Bounds, faces: str | Sequence[str | Sequence[str]] = "reflective") -> Box:
    """A box whose faces are "periodic", "reflective", "clamping", "absorbing" or "open".

    `bounds` is `[lowest corner, highest corner]` in any dimension; `faces` one word for all, or one for each axis,
    or a pair (lower, upper) for an axis.

    ```python
    box_boundary([[0, 0], [2, 1]], ["periodic", ("reflective", "absorbing")])
    ```
    """
    corners = box_corners(bounds)
    dim = corners.shape[1]
    each = [faces] * dim if isinstance(faces, str) else list(faces)
    if len(each) != dim:
        raise ValueError(
            f"`faces` must name one behaviour for each of the {dim} axes of `bounds`; got {len(each)}."
        )
    pairs: list[tuple[str, ...]] = [(face, face) if isinstance(face, str) else tuple(face) for face in each]
    for pair in pairs:
        if len(pair) != 2 or any(face not in FACES for face in pair):
            raise ValueError(
                f"`faces` must hold words among {', '.join(FACES)}, or pairs of them; got {pair}."
            )
        if "periodic" in pair and len(set(pair)) > 1:
            raise ValueError(f"`faces` must be periodic on both sides of an axis or on none; got {pair}.")
    return Box(jnp.asarray(corners[0], float), jnp.asarray(corners[1], float), cast(Any, tuple(pairs)))


def box_corners(bounds: Bounds, name: str = "bounds") -> np.ndarray:
    """`[low, high]` as a (2, dim) array of finite numbers in order; an extent of 0 is allowed."""
    corners: np.ndarray = np.zeros(())
    with suppress(TypeError, ValueError):  # the shape below tells
        corners = np.asarray([np.asarray(corner, np.float64) for corner in bounds])
    if corners.ndim != 2 or corners.shape[0] != 2 or corners.shape[1] == 0:
        raise ValueError(
            f"`{name}` must be [lowest corner, highest corner] of equal length; got {bounds!r}. "
            "Example: [[0, 0, 0], [2, 1, 1]], from 0 to 2 along x."
        )
    if not np.isfinite(corners).all() or (corners[0] > corners[1]).any():
        raise ValueError(
            f"`{name}` must be finite with each lowest coordinate at most the highest; "
            f"got {corners[0].tolist()} and {corners[1].tolist()}. "
            "Write [[x_low, y_low], [x_high, y_high]]."
        )
    return corners


def axis_number(axis: str | int, dim: int, name: str = "axis") -> int:
    """0, 1, 2 for "x", "y", "z" or the number itself."""
    number = AXES.find(axis.lower()) if isinstance(axis, str) and len(axis) == 1 else axis
    if not isinstance(number, int) or not 0 <= number < dim:
        raise ValueError(f"`{name}` must be one of {', '.join(AXES[:dim])} or 0 to {dim - 1}; got {axis!r}.")
    return number


def checked_point(given: Any, name: str) -> np.ndarray:
    """One point of finite coordinates."""
    point = np.asarray(given, np.float64)
    if point.ndim != 1 or not np.isfinite(point).all():
        raise ValueError(f"`{name}` must be one point of finite coordinates; got {given!r}.")
    return point


def checked_size(value: float, name: str = "radius") -> float:
    """A finite length above 0."""
    if not 0 < value < np.inf:
        raise ValueError(f"`{name}` must be {'finite' if value > 0 else 'positive'}; got {value}.")
    return value

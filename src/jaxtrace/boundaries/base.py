"""The interface of a boundary, for one particle, and several boundaries in turn."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from ..fields.base import AbstractGrid, Flag, Index, Scalar, Vector
from ..fields.chart import on_turn_of

Points = Float[np.ndarray, "n dim"]
Flags = Bool[np.ndarray, " n"]


class Bounced(eqx.Module):
    """One step after a boundary was applied."""

    position: Vector
    """Inside the domain, or on its edge where the particle ended."""
    velocity: Vector
    """The particle's own velocity, mirrored or stopped as its position was; tracers may ignore it."""
    alive: Flag
    """False for a particle that left through an absorbing part; its position is where it left."""
    hits: Int32[Array, " patches"]
    """How often the step met each patch, in the order of the boundary's `patches`."""
    patch: Index
    """The patch that ended the particle, else -1."""
    share: Scalar = eqx.field(converter=lambda share: jnp.asarray(share, float), default=1.0)
    """Of the straight way from `old` to `new`, the part before the particle ended; 1 for one that goes on."""
    normal: Vector | None = None
    """A direction across the wall where the particle ended, of any length; zeros or None where none is known."""


class AbstractBoundary(eqx.Module):
    """A pure map of one particle's step `old` to `new`; `jax.vmap` makes it many."""

    _from_hint: ClassVar[bool] = False
    """Whether the path is followed from the cell that `hint` names, so that `old` must lie there."""

    @property
    @abc.abstractmethod
    def patches(self) -> tuple[str, ...]:
        """Names of the parts that `hits` counts."""

    @property
    def _ends_some(self) -> bool:
        """Whether particles may end here, so that it matters when."""
        return bool(self.patches)

    @property
    def endings(self) -> tuple[str, ...]:
        """The name in `Outcome` of an end at each patch."""
        return ("LEFT",) * len(self.patches)

    @abc.abstractmethod
    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Bring a step back into the domain. `hint` is the field's; only walls that follow a mesh read it."""

    def _view_from(self, old: Vector, done: Bounced) -> Vector | None:
        """`old` as seen from the step's end, as many periods away as were passed; None without periods."""
        return None

    def _wrap(self, x: Vector) -> tuple[Vector, Int32[Array, " patches"]]:
        """A place brought back by whole periods, and how often each patch was met."""
        return x, jnp.zeros((len(self.patches),), jnp.int32)

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        """True for points where a particle may begin because the boundary would not move it. `checked` is the field's grid."""
        return np.ones(len(points), bool)

    def _bring_back(self, points: Points) -> Points:
        """The points as many periods away as it takes to lie in the domain."""
        return points


@eqx.filter_jit
def _lie_inside(grid: AbstractGrid, points: Float[Array, "n dim"], hints: PyTree) -> Bool[Array, " n"]:
    def inside(x: Vector, hint: PyTree) -> Flag:
        x = on_turn_of(grid, x)
        return grid.stencil(x, grid.start(x) if hint is None else hint).inside

    return jax.vmap(inside)(points, hints)


def lie_inside(grid: AbstractGrid, points: Points, hints: PyTree = None) -> Flags:
    """Which points lie in the grid and not on land; `hints` says where to look for them first."""
    return np.asarray(_lie_inside(grid, jnp.asarray(points, float), hints))


class Unbounded(AbstractBoundary):
    """No boundary: every step is kept."""

    @property
    def patches(self) -> tuple[str, ...]:
        """None."""
        return ()

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """The step as it is."""
        return Bounced(
            new,
            jnp.zeros_like(new) if velocity is None else velocity,
            jnp.ones((), bool),
            jnp.zeros((0,), jnp.int32),
            jnp.full((), -1, jnp.int32),
        )


class Composed(AbstractBoundary):
    """Several boundaries in turn, each applied to the result of the one before; the first to absorb decides.

    After a period was passed, those that follow see a step that began as many periods away, not one across the domain;
    only walls that follow a mesh begin where the particle was.
    """

    parts: tuple[AbstractBoundary, ...]

    @property
    def patches(self) -> tuple[str, ...]:
        """Those of all parts, in order."""
        return tuple(name for part in self.parts for name in part.patches)

    @property
    def _ends_some(self) -> bool:
        return any(part._ends_some for part in self.parts)

    @property
    def endings(self) -> tuple[str, ...]:
        """Those of all parts, in order."""
        return tuple(name for part in self.parts for name in part.endings)

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        held = np.ones(len(points), bool)
        for part in self.parts:
            held &= part._holds(points, checked)
            points = part._bring_back(points)
        return held

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """The parts one after the other."""
        result = Unbounded()(old, new, velocity)
        periodic: list[tuple[AbstractBoundary, int]] = []
        seen = old
        for part in self.parts:
            begin = old if part._from_hint else seen
            then = part(begin, result.position, result.velocity, hint)
            first = len(result.hits)
            position, hits = then.position, jnp.concatenate([result.hits, then.hits])
            for earlier, at in periodic:  # a wall may have sent the particle back across the face
                position, more = earlier._wrap(position)
                hits = hits.at[at : at + len(more)].add(more)
            ended = jnp.where(then.patch >= 0, then.patch + first, -1)
            unmet = jnp.concatenate([result.hits, jnp.zeros_like(then.hits)])
            normals = [jnp.zeros_like(new) if one.normal is None else one.normal for one in (then, result)]
            result = Bounced(
                position=jnp.where(result.alive, position, result.position),
                velocity=jnp.where(result.alive, then.velocity, result.velocity),
                alive=result.alive & then.alive,
                hits=jnp.where(result.alive, hits, unmet),
                patch=jnp.where(result.alive, ended, result.patch),
                share=jnp.where(result.alive, then.share, result.share),
                normal=jnp.where(result.alive, *normals),
            )
            carried = part._view_from(seen, then)
            if carried is not None:
                seen = carried
                periodic.append((part, first))
        return result

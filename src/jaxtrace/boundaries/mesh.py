"""Walls of a mesh: a step is followed from cell to cell until it meets a boundary patch, and on from there."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import while_loop
from jaxtyping import Array, Float, Int, Int32, PyTree

from ..fields.base import AbstractGrid, Flag, Index, Scalar, Vector, check_choice
from ..fields.chart import on_turn_of
from ..fields.isolation import isolate
from ..fields.meshes.bins import clear_balls
from ..fields.meshes.search import rounding
from ..fields.meshes.shapes import sum_products
from ..fields.subset import LARGE_BATCH, apply_to_subset
from ..fields.unstructured import UnstructuredGrid
from ..fields.weights import take
from .base import AbstractBoundary, Bounced, Flags, Points, lie_inside

Behaviour = Literal["stick", "bounce", "slip", "absorb"]
BEHAVIOURS = ("stick", "bounce", "slip", "absorb")
STICK, BOUNCE, SLIP, ABSORB = range(4)


class _Path(eqx.Module):
    """The rest of a step: from a place on it to the end that it would have without walls."""

    here: Vector
    end: Vector
    velocity: Vector | None
    simplex: Index
    """The one that holds the end, or whose wall the path meets."""
    ahead: Flag
    """Whether there is such a wall."""
    crossed: Index
    hits: Int32[Array, " patches"]
    patch: Index
    """The patch that ended the particle, else -1."""
    taken: Scalar
    """The share of the step that lies behind `here`, or before the end where a patch ended the particle."""
    normal: Vector
    """Across the wall that ended the particle, where it was the first one met; else zeros."""


class _Result(NamedTuple):
    """The parts of a `Bounced` that differ from particle to particle."""

    position: Vector
    velocity: Vector | None
    hits: Int32[Array, " patches"]
    patch: Index
    share: Scalar | None
    """As `Bounced` has it, and the direction across the wall; None where no patch ends particles."""
    normal: Vector | None


class _Face(NamedTuple):
    """The face of a simplex that a path passes first."""

    share: Scalar
    """Of the path until there; 2 where it passes none."""
    height: Scalar
    """Of the path's beginning above the face; the corner opposite is 1 high."""
    fall: Scalar
    """Of height along the path."""
    slope: list[Scalar]
    """Gradient of the height."""
    link: Int[Array, ""]
    tolerance: Scalar


class MeshWalls(AbstractBoundary):
    """The boundary patches of a mesh: the path is followed from cell to cell until a wall, and on from there.

    At a patch a particle sticks (stays on the wall for this step), bounces like light, slips along the wall, or is
    absorbed. `hint` is the grid's own, near the old place. A step meets at most `crossings` cells and walls; a longer one
    ends where it began. Steps within one of the `balls` meet no wall and are left as they are.
    Derivatives backwards need `differentiable=True`, which follows every path.
    """

    _from_hint: ClassVar[bool] = True

    grid: UnstructuredGrid
    balls: Float[Array, "simplices dim1"]
    """Middle and radius of a ball around each simplex that no wall enters."""
    behaviour: tuple[Behaviour, ...] = eqx.field(static=True)
    crossings: int = eqx.field(static=True, default=64)
    differentiable: bool = eqx.field(static=True, default=False)

    @property
    def patches(self) -> tuple[str, ...]:
        """Those of the mesh."""
        return self.grid.patch_names

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Follow the path."""
        here = on_turn_of(self.grid, old)
        begin = self.grid.start(here) if isinstance(hint, tuple) else hint
        treat = MeshWalls.follow if self.differentiable else _bounce
        end = new
        if self.grid.sphere is not None:  # the mesh may have its longitudes on another turn
            end = new + jax.lax.stop_gradient(here - old)
        done = treat(self, here, end, velocity, begin)
        position = done.position
        if self.grid.sphere is not None:  # and what no wall changed is not rounded
            position = jnp.where(position == end, new, position - jax.lax.stop_gradient(here - old))
        own = jnp.zeros_like(new) if done.velocity is None else done.velocity
        ending = {} if done.share is None else {"share": done.share, "normal": done.normal}
        return Bounced(position, own, done.patch < 0, done.hits, done.patch, **ending)

    @property
    def _ends_some(self) -> bool:
        """Whether a patch ends particles."""
        return "absorb" in self.behaviour

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        return super()._holds(points) if self.grid is checked else lie_inside(self.grid, points)

    def may_meet(self, old: Vector, new: Vector, hint: Index) -> Flag:
        """Whether a step may meet a wall: False where both its ends lie in a ball without one."""
        near = jnp.clip(hint, 0, self.balls.shape[0] - 1)
        ball = isolate(self.grid.search.always, lambda near: take(self.balls, near), near)
        square = jnp.maximum(ball[-1], 0.0) ** 2
        ends = [[x[k] - ball[k] for k in range(x.shape[0])] for x in (old, new)]
        within = [sum_products(offset, offset) < square for offset in ends]
        return ~(within[0] & within[1])

    def follow(self, old: Vector, new: Vector, velocity: Vector | None, hint: Index) -> _Result:
        """The whole path of one particle."""
        begin, inside = self.grid.search.locate(old, hint)
        none = jnp.full((), -1, jnp.int32)
        hits = jnp.zeros(len(self.patches), jnp.int32)
        still = jnp.zeros((), new.dtype)
        path = _Path(old, new, velocity, begin, inside, jnp.int32(0), hits, none, still, jnp.zeros_like(new))
        # A particle that begins outside meets no wall: its step is left as it is.
        path = self._walk(path)
        kind = "checkpointed" if self.differentiable else "lax"
        done = while_loop(
            lambda path: path.ahead & (path.crossed < self.crossings),
            lambda path: self._walk(self._strike(path)),
            path,
            max_steps=self.crossings,
            kind=kind,
        )
        position = jnp.where(done.ahead, old, done.end)
        share = jnp.where(done.patch < 0, 1.0, done.taken).astype(new.dtype) if self._ends_some else None
        normal = done.normal if self._ends_some else None
        return _Result(position, done.velocity, done.hits, done.patch, share, normal)

    def _walk(self, path: _Path) -> _Path:
        """From cell to cell along the path, to its end or to a wall."""
        walls, here, end = jax.lax.stop_gradient((self, path.here, path.end))

        # The simplex, or -1 - (2 × simplex + whether it ends at a wall): one number, so that XLA computes it once.
        def on(walk: tuple[Array, Array]) -> tuple[Array, Array]:
            state, crossed = walk
            simplex = jnp.maximum(state, 0)  # those who have arrived read the first row: it is in the cache
            passed = walls._exit_face(simplex, here, end)
            goes = (passed.share <= 1) & (crossed < walls.crossings)
            strikes = goes & (passed.link < 0) | (crossed >= walls.crossings)
            onward = jnp.where(strikes | ~goes, -1 - (2 * simplex + strikes), passed.link)
            return onward.astype(jnp.int32), crossed + 1

        still = -1 - 2 * path.simplex
        walk = (jnp.where(path.ahead, path.simplex, still), path.crossed)
        state, crossed = jax.lax.while_loop(lambda walk: walk[0] >= 0, on, walk)
        simplex, ahead = (-1 - state) // 2, (-1 - state) % 2 == 1
        return eqx.tree_at(lambda p: (p.simplex, p.ahead, p.crossed), path, (simplex, ahead, crossed))

    def _exit_face(self, simplex: Index, here: Vector, end: Vector) -> _Face:
        # In scalars: XLA turns small matrix products under `vmap` into slow batched ones.
        inverse, corner, links = self.grid.search.row(simplex)
        tolerance = rounding(inverse, corner)
        slopes = [[-sum(column[1:], column[0]) for column in zip(*inverse, strict=True)], *inverse]
        dim = len(corner)
        rest = [sum_products(row, [here[k] - corner[k] for k in range(dim)]) for row in inverse]
        way = [end[k] - here[k] for k in range(dim)]
        found = None
        for slope, height, link in zip(slopes, [1 - sum(rest[1:], rest[0]), *rest], links, strict=True):
            fall = -sum_products(slope, way)
            leaves = height - fall < -tolerance
            share = jnp.where(leaves, jnp.clip(height / jnp.where(leaves, fall, 1.0), 0.0, 1.0), 2.0)
            face = _Face(share, height, fall, slope, link, tolerance)
            if found is not None:
                first = share < found.share
                face = jax.tree.map(lambda a, b, first=first: jnp.where(first, a, b), face, found)
            found = face
        assert found is not None
        return found

    def _strike(self, path: _Path) -> _Path:
        """Apply the wall ahead to the path."""
        face = self._exit_face(path.simplex, path.here, path.end)
        normal = jnp.stack(face.slope)
        steep = jnp.maximum(sum_products(face.slope, face.slope), jnp.finfo(normal.dtype).tiny)
        wall = path.here + face.share * (path.end - path.here)
        # A trace inside, so that rounding does not put the particle behind the wall.
        short = jnp.maximum(2 * face.tolerance - (face.height - face.share * face.fall), 0.0)
        wall = wall + (short / steep) * normal
        beyond = (sum_products(face.slope, list(path.end - wall)) / steep) * normal

        patch = jnp.maximum(-1 - face.link, 0).astype(jnp.int32)
        rule = take(jnp.asarray([BEHAVIOURS.index(name) for name in self.behaviour], jnp.int32), patch)
        ends = (rule == STICK) | (rule == ABSORB)
        slid = path.end - beyond + (2 * face.tolerance / steep) * normal
        after = jnp.where(rule == BOUNCE, path.end - 2 * beyond, slid)
        absorbed = rule == ABSORB
        velocity = path.velocity
        if velocity is not None:
            across = (sum_products(face.slope, list(velocity)) / steep) * normal
            turned = velocity - jnp.where(rule == BOUNCE, 2 * across, across)
            turned = jnp.where(rule == STICK, jnp.zeros_like(velocity), turned)
            velocity = jnp.where(absorbed, velocity, turned)
        # A path that has crossed too much is at no wall: it stays as it is and ahead.
        strikes = (face.share <= 1) & (face.link < 0)
        then = _Path(
            here=wall,
            end=jnp.where(ends, wall, after),
            velocity=velocity,
            simplex=path.simplex,
            ahead=~ends,
            crossed=path.crossed,
            hits=path.hits + (jnp.arange(len(self.patches)) == patch),
            patch=jnp.where(absorbed, patch, path.patch),
            taken=path.taken + face.share * (1 - path.taken),
            # Behind a first wall the path bends, so its curve before the wall no longer applies.
            normal=jnp.where(absorbed & (path.hits.sum() == 0), normal, 0.0),
        )
        return jax.tree.map(lambda a, b: jnp.where(strikes, a, b), then, path)


_treat = jax.custom_batching.custom_vmap(MeshWalls.follow)
_bounce = jax.custom_jvp(_treat)


@_bounce.defjvp
def _bounce_change(primals: Any, tangents: Any) -> Any:
    """Derivatives forwards follow every path."""
    walls, *step, hint = primals
    return jax.jvp(lambda *step: walls.follow(*step, hint), step, list(tangents[1:4]))


@_treat.def_vmap
def _treat_many(size: int, batched: Any, walls: MeshWalls, *step: Any) -> tuple[_Result, Any]:
    """In a large batch, only the paths that may meet a wall are followed."""
    if size < LARGE_BATCH or any(jax.tree.leaves(batched[0])):
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        done = jax.vmap(MeshWalls.follow, in_axes=axes, axis_size=size)(walls, *step)
        return done, jax.tree.map(lambda _: True, done)

    def spread(x: Array, has: bool) -> Array:
        return x if has else jnp.broadcast_to(x, (size, *x.shape))

    old, new, velocity, hint = jax.tree.map(spread, step, tuple(batched[1:]))
    none = jnp.zeros((size, len(walls.patches)), jnp.int32)
    end = (jnp.ones(size, new.dtype), jnp.zeros_like(new)) if walls._ends_some else (None, None)
    free = _Result(new, velocity, none, jnp.full(size, -1, jnp.int32), *end)
    needed = jax.vmap(walls.may_meet)(old, new, hint)
    done = apply_to_subset(walls.follow, needed, (old, new, velocity, hint), free, walls.grid.search.always)
    return done, jax.tree.map(lambda _: True, done)


def mesh_walls(
    grid: UnstructuredGrid, behaviour: str | Mapping[str, str] = "slip", **options: Any
) -> MeshWalls:
    """Walls at the patches of a mesh. `behaviour` is one word for all, or a mapping from patches; the others slip.

    ```python
    mesh_walls(grid, {"inlet": "bounce", "outlet": "absorb", "boundary": "stick"})
    ```
    """
    names = grid.patch_names
    given = dict.fromkeys(names, behaviour) if isinstance(behaviour, str) else dict(behaviour)
    lost = [name for name in given if name not in names]
    if lost:
        raise ValueError(f"`behaviour` must name patches of the mesh ({', '.join(names)}); got {lost[0]!r}.")
    rules = [given.get(name, "slip") for name in names]
    for rule in rules:
        check_choice("behaviour", rule, BEHAVIOURS)
    search = grid.search
    balls = clear_balls(search.corners(), np.asarray(search.links) < 0)
    # What rounding may change, of positions and of the balls.
    balls[:, -1] = 0.999 * balls[:, -1] - 64 * np.finfo(search.box.dtype).eps * np.abs(search.box).max()
    return MeshWalls(grid, jnp.asarray(balls, search.box.dtype), cast(Any, tuple(rules)), **options)

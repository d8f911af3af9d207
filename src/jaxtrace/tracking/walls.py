"""Walls that follow the grid: no flux into masked cells, and what happens at the boundary patches of a mesh."""

from collections.abc import Mapping
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from ..fields.base import AbstractGrid
from ..fields.mesh_search import clear_balls
from ..fields.unstructured import UnstructuredGrid
from .bouncing import AbstractBoundary, Bounced, Flags, Points, Vector, lie_inside
from .patches import BEHAVIOURS, Behaviour
from .patches import MeshWalls as MeshWalls


class MaskedWalls(AbstractBoundary):
    """Coasts: a step that would end outside the grid or in a masked cell is not taken, or not all of it.

    "slip" takes the step axis by axis, the longest part first, and leaves out what leads ashore; "stick" stays where
    the particle was; "bounce" takes the step axis by axis and turns back what leads ashore; "absorb" ends there.
    Steps longer than a cell may pass over a headland. Patch: `wall`.
    """

    grid: AbstractGrid
    behaviour: Behaviour = eqx.field(static=True, default="slip")

    @property
    def patches(self) -> tuple[str, ...]:
        """One."""
        return ("wall",)

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Take as much of the step as stays in the water."""
        velocity = jnp.zeros_like(new) if velocity is None else velocity
        free = self._wet(new)
        alive = jnp.ones((), bool)
        end, factor = new, jnp.ones_like(new)
        if self.behaviour == "stick":
            end, factor = jnp.where(free, new, old), jnp.where(free, 1.0, 0.0)
        elif self.behaviour == "absorb":
            end, alive = jnp.where(free, new, old), free
        else:
            end, factor = self._axis_by_axis(old, new, free)
        hits = (~free).astype(jnp.int32)[None]
        return Bounced(
            end, (velocity * factor).astype(new.dtype), alive, hits, jnp.where(alive, -1, 0).astype(jnp.int32)
        )

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        return super()._holds(points) if self.grid is checked else lie_inside(self.grid, points)

    def _axis_by_axis(self, old: Vector, new: Vector, free: Bool[Array, ""]) -> tuple[Vector, Vector]:
        """Where the parts of the step that stay in the water lead, and what becomes of each velocity component."""
        way = new - old
        here, factor = old, jnp.ones_like(new)
        order = jnp.argsort(-jnp.abs(way))
        for turn in range(new.shape[0]):
            axis = jnp.arange(new.shape[0]) == order[turn]
            tried = jnp.where(axis, here + way, here)
            wet = self._wet(tried)
            if self.behaviour == "bounce":
                turned = jnp.where(axis, here - way, here)
                back = self._wet(turned)
                here = jnp.where(wet, tried, jnp.where(back, turned, here))
                factor = jnp.where(axis & ~wet, -1.0, factor)
            else:
                here = jnp.where(wet, tried, here)
                factor = jnp.where(axis & ~wet, 0.0, factor)
        return jnp.where(free, new, here), jnp.where(free, 1.0, factor)

    def _wet(self, x: Vector) -> Bool[Array, ""]:
        return self.grid.stencil(x, self.grid.start(x)).inside


def masked_walls(grid: AbstractGrid, behaviour: str = "slip") -> MaskedWalls:
    """No flux into the masked cells of a grid, nor out of the grid: "slip", "stick", "bounce" or "absorb"."""
    _check(behaviour, "behaviour")
    return MaskedWalls(grid, cast(Behaviour, behaviour))


def mesh_walls(
    grid: UnstructuredGrid, behaviour: str | Mapping[str, str] = "slip", **options: Any
) -> MeshWalls:
    """What happens at each patch of a mesh; a mapping names patches, the others slip.

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
        _check(rule, "behaviour")
    search = grid.search
    balls = clear_balls(search.corners(), np.asarray(search.links) < 0)
    # What rounding may change, of positions and of the balls.
    balls[:, -1] = 0.999 * balls[:, -1] - 64 * np.finfo(search.box.dtype).eps * np.abs(search.box).max()
    return MeshWalls(grid, jnp.asarray(balls, search.box.dtype), cast(Any, tuple(rules)), **options)


def _check(value: str, name: str) -> None:
    if value not in BEHAVIOURS:
        raise ValueError(f"`{name}` must be one of {', '.join(BEHAVIOURS)}; got {value!r}.")

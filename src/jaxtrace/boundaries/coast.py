"""Coasts: walls around the masked cells of a grid, and its open edge."""

from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..fields.base import AbstractGrid, Flag, Index, Scalar, Vector, check_choice
from ..fields.chart import on_turn_of
from .base import AbstractBoundary, Bounced, Flags, Points, lie_inside
from .mesh import BEHAVIOURS, Behaviour

OpenEdge = Literal["leave", "slip", "stick", "bounce"]
OPEN_EDGES = ("leave", "slip", "stick", "bounce")
# The place where a step first meets land or the edge is known to this power of a half of the step.
_HALVINGS = 24


class MaskedWalls(AbstractBoundary):
    """Coasts and the open edge of a grid: they handle steps that would end in a masked cell or outside the grid.

    At the coast `behaviour` says it: "slip" takes the step axis by axis, the longest part first, and leaves out what leads
    ashore; "stick" stays where the particle was; "bounce" takes the step axis by axis and turns back what leads ashore;
    "absorb" ends the particle where the straight way meets land. At the open edge, where the data end and the water does not,
    `open_edge` says it: "leave" ends the particle on the edge; "slip", "stick" and "bounce" hold it as a coast does.
    Steps longer than a cell may pass over a headland. Patches: `coast` and `open_edge`, each with an outcome of its own.
    """

    grid: AbstractGrid
    behaviour: Behaviour = eqx.field(static=True, default="slip")
    open_edge: OpenEdge = eqx.field(static=True, default="leave")

    @property
    def patches(self) -> tuple[str, ...]:
        """Two."""
        return ("coast", "open_edge")

    @property
    def _ends_some(self) -> bool:
        return self.behaviour == "absorb" or self.open_edge == "leave"

    @property
    def endings(self) -> tuple[str, ...]:
        """Stranded, or gone over the edge."""
        return ("STRANDED", "LEFT_EDGE")

    def __call__(
        self, old: Vector, new: Vector, velocity: Vector | None = None, hint: PyTree = ()
    ) -> Bounced:
        """Keep the part of the step that stays in the water."""
        velocity = jnp.zeros_like(new) if velocity is None else velocity
        free = self._wet(new)
        first = _bisect(self._wet, old, new, ~free)
        # After a period was passed the step may begin outside the grid; its end then tells what it met.
        ashore = ~free & self._within(jnp.where(self._within(old), first.beyond, new))
        afar = ~free & ~ashore
        end, factor, along = self._held(old, new, free, ashore)
        gone, share = jnp.zeros((), bool), first.low
        if self.behaviour == "absorb":
            gone = gone | ashore
        if self.open_edge == "leave":
            gone = gone | afar
        position = jnp.where(gone, first.held, end)
        if self.open_edge == "leave" and self.behaviour in ("slip", "bounce"):
            # A particle that slips along a coast may cross the edge by that.
            over = ashore & along.leaves
            late = _bisect(self._wet, along.begin, along.end, over)
            gone, share = gone | over, jnp.where(over, late.low, share)
            position = jnp.where(over, late.held, position)
            afar = afar | over
        velocity = (velocity * jnp.where(gone, 1.0, factor)).astype(new.dtype)
        strikes = jnp.stack([ashore, afar]).astype(jnp.int32)
        patch = jnp.where(gone, jnp.where(afar, 1, 0), -1).astype(jnp.int32)
        return Bounced(position, velocity, ~gone, strikes, patch, jnp.where(gone, share, 1.0))

    def _holds(self, points: Points, checked: AbstractGrid | None = None) -> Flags:
        return super()._holds(points) if self.grid is checked else lie_inside(self.grid, points)

    def _held(self, old: Vector, new: Vector, free: Flag, ashore: Flag) -> tuple[Vector, Vector, "_Part"]:
        """Where a step leads of a particle that does not end, what becomes of each velocity component, and a part of the step
        that leads from a coast over the open edge."""
        end, factor, along = new, jnp.ones_like(new), _Part(jnp.zeros((), bool), old, new)
        for rule, here in ((self.behaviour, ashore), (self.open_edge, ~free & ~ashore)):
            if rule == "stick":
                end, factor = jnp.where(here, old, end), jnp.where(here, 0.0, factor)
            elif rule in ("slip", "bounce"):
                slid, turned, part = self._axis_by_axis(old, new, rule)
                along = part if rule == self.behaviour else along
                end, factor = jnp.where(here, slid, end), jnp.where(here, turned, factor)
        return end, factor, along

    def _axis_by_axis(self, old: Vector, new: Vector, rule: str) -> tuple[Vector, Vector, "_Part"]:
        """Where the parts of the step that stay in the water lead, and what becomes of each velocity component."""
        way = new - old
        here, factor, over = old, jnp.ones_like(new), _Part(jnp.zeros((), bool), old, new)
        order = jnp.argsort(-jnp.abs(way))
        for turn in range(new.shape[0]):
            axis = jnp.arange(new.shape[0]) == order[turn]
            tried = jnp.where(axis, here + way, here)
            # Over an edge that is open the step may lead: the particle then leaves there.
            goes = self._wet(tried)
            if self.open_edge == "leave":
                leaves = ~self._within(tried) & ~over.leaves
                first = _Part(leaves, here, tried)
                over = jax.tree.map(lambda a, b, now=leaves: jnp.where(now, a, b), first, over)
                goes = goes | over.leaves
            stays = here
            if rule == "bounce":
                turned = jnp.where(axis, here - way, here)
                stays = jnp.where(self._wet(turned), turned, here)
            here = jnp.where(goes, tried, stays)
            factor = jnp.where(axis & ~goes, -1.0 if rule == "bounce" else 0.0, factor)
        return here, factor, over

    def _wet(self, x: Vector) -> Flag:
        x = on_turn_of(self.grid, x)
        return self.grid.stencil(x, self.grid.start(x)).inside

    def _within(self, x: Vector) -> Flag:
        """Whether a place lies in the grid, land or not."""
        grid, x = self.grid, on_turn_of(self.grid, x)
        if getattr(getattr(grid, "layout", None), "land", None) is not None:
            grid = eqx.tree_at(lambda g: g.layout.land, grid, None)
        return grid.stencil(x, grid.start(x)).inside


class _Part(NamedTuple):
    """A part of a step along one axis, and whether it leads over the open edge."""

    leaves: Flag
    begin: Vector
    end: Vector


class _Halved(NamedTuple):
    """A way between a share that holds and a share that does not, with the places there."""

    low: Scalar
    high: Scalar
    held: Vector
    beyond: Vector
    tried: Vector
    turn: Index


def _bisect(holds: Callable[[Vector], Flag], old: Vector, new: Vector, needed: Flag) -> _Halved:
    """Where the straight way from `old`, which holds, ceases to hold; `old` and `new` themselves unless needed.

    A batch of which nobody needs it takes no turn.
    """
    old, new, needed = jax.lax.stop_gradient((old, new, needed))

    def halve(state: _Halved) -> _Halved:
        good, middle = holds(state.tried), 0.5 * (state.low + state.high)
        low, high = jnp.where(good, middle, state.low), jnp.where(good, state.high, middle)
        # A place is stored before it is tested: computed twice it may round to both sides of a coast.
        return _Halved(
            low,
            high,
            jnp.where(good, state.tried, state.held),
            jnp.where(good, state.beyond, state.tried),
            old + 0.5 * (low + high) * (new - old),
            state.turn + 1,
        )

    zero = jnp.zeros((), new.dtype)
    turn = jnp.where(needed, 0, _HALVINGS).astype(jnp.int32)
    begin = _Halved(zero, jnp.ones_like(zero), old, new, old + 0.5 * (new - old), turn)
    return jax.lax.while_loop(lambda state: state.turn < _HALVINGS, halve, begin)


def masked_walls(grid: AbstractGrid, behaviour: str = "slip", open_edge: str = "leave") -> MaskedWalls:
    """Coasts around the masked cells of a grid, and its open edge.

    At the coast a particle goes on by "slip", "stick" or "bounce", or ends by "absorb"; over the open edge it leaves, unless
    `open_edge` is "slip", "stick" or "bounce".

    ```python
    masked_walls(field.grid, "absorb")                    # strand on the coast, leave over the edge
    masked_walls(field.grid, "slip", open_edge="slip")    # a closed basin: nobody leaves
    ```
    """
    check_choice("behaviour", behaviour, BEHAVIOURS)
    open_edge = "leave" if open_edge == "absorb" else open_edge
    check_choice("open_edge", open_edge, OPEN_EDGES)
    return MaskedWalls(grid, cast(Behaviour, behaviour), cast(OpenEdge, open_edge))

"""Grids whose cells are boxes: evenly spaced, or given by the coordinates along each axis."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped

from .base import Flag, Interpolation, Scalar, Stencil, Vector
from .grid_rows import AbstractStructuredGrid, Centring, GridRows, Mask, Numbers, Order
from .land import LandValues
from .sphere import Sphere
from .weights import Knots, Place, ascending, take


class AbstractBoxGrid(AbstractStructuredGrid):
    """A grid whose cells are boxes: a point is placed along each axis by itself."""

    @property
    @abc.abstractmethod
    def axes(self) -> tuple[Float[Array, " _"], ...]:
        """The coordinates of the nodes along each axis, as they were given."""

    @abc.abstractmethod
    def _along(self, axis: int, x: Scalar) -> tuple[Place | None, Int[Array, ""], Flag, Flag]:
        """Among several nodes: the place among the values, the cell, and whether `x` is not below and not above them."""

    @property
    def positions(self) -> Float[Array, "size dim"]:
        axes = self.axes
        if self.layout.centring == "cell":
            axes = tuple((a[1:] + a[:-1]) / 2 if a.size > 1 else a for a in axes)
        points = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        return jnp.zeros_like(points).at[self.layout.numbers()].set(points)

    def start(self, x: Vector) -> PyTree:
        return ()

    @property
    def packable(self) -> bool:
        return self.layout.packable

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "size _"]:
        return self.layout.pack(values)

    def stencil(self, x: Vector, hint: PyTree = ()) -> Stencil:
        places: list[Place | None] = []
        cells: list[Int[Array, ""]] = []
        inside = jnp.bool_(True)
        for axis, nodes in enumerate(self.layout.shape):
            place, cell = None, jnp.int32(0)
            if nodes > 1:
                place, cell, above, below = self._along(axis, x[axis])
                inside = inside & above & below
            places.append(place)
            cells.append(cell)
        return self.layout.stencil(places, cells, inside, x.dtype)


class UniformGrid(AbstractBoxGrid):
    """Evenly spaced nodes `origin + number × spacing`, in one, two or three dimensions.

    A negative spacing numbers the nodes downwards. Along an axis with a single node nothing varies, and every point
    lies inside. Cell data are read at the middles of the cells and carried on to the faces, so that linear fields
    are exact everywhere. `mask` marks land (True) by cell or by node.
    """

    origin: Vector
    spacing: Vector
    layout: GridRows

    def __init__(
        self,
        origin: Sequence[float] | Vector | Float[np.ndarray, " dim"],
        spacing: Sequence[float] | Vector | Float[np.ndarray, " dim"],
        shape: Sequence[int],
        *,
        interpolation: Interpolation = "linear",
        centring: Centring = "node",
        order: Order = "C",
        rows: Numbers | None = None,
        mask: Mask | None = None,
        land_values: LandValues = "keep",
        sphere: Sphere | None = None,
    ) -> None:
        self.sphere = sphere
        self.origin, self.spacing = _floats(origin), _floats(spacing)
        if not len(self.origin) == len(self.spacing) == len(shape):
            raise ValueError(
                f"`origin`, `spacing` and `shape` must be of one length; got {len(self.origin)}, "
                f"{len(self.spacing)} and {len(shape)}."
            )
        if not np.all(np.isfinite(self.origin)):
            raise ValueError(f"`origin` must be finite; got {np.asarray(self.origin)}.")
        if not np.all(np.isfinite(self.spacing) & (np.asarray(self.spacing) != 0)):
            raise ValueError(f"`spacing` must be finite and not zero; got {np.asarray(self.spacing)}.")
        self.layout = GridRows(shape, interpolation, centring, order, rows, mask, land_values)

    @property
    def bounds(self) -> Float[Array, "2 dim"]:
        end = self.origin + (jnp.asarray(self.layout.shape) - 1).astype(self.origin.dtype) * self.spacing
        return jnp.stack([jnp.minimum(self.origin, end), jnp.maximum(self.origin, end)])

    @property
    def axes(self) -> tuple[Float[Array, " _"], ...]:
        """The coordinates of the nodes along each axis."""
        return tuple(
            o + jnp.arange(n, dtype=o.dtype) * h
            for o, h, n in zip(self.origin, self.spacing, self.layout.shape, strict=True)
        )

    def _along(self, axis: int, x: Scalar) -> tuple[Place | None, Int[Array, ""], Flag, Flag]:
        nodes = self.layout.shape[axis]
        at = (x - self.origin[axis]) / self.spacing[axis]
        slack = face_slack(nodes, self.origin[axis], self.spacing[axis], x.dtype)
        above, below = at >= -slack, at <= nodes - 1 + slack
        at = jnp.clip(at, 0, nodes - 1)
        cell = jnp.clip(at.astype(jnp.int32), 0, nodes - 2)
        centred = self.layout.centring == "cell"
        place = _between_middles(at - 0.5, nodes - 1) if centred else Place(cell, at - cell)
        return place, cell, above, below


def face_slack(nodes: int, origin: Array, spacing: Array, dtype: jnp.dtype) -> Array:
    """How far, in cells, rounding may carry a point of a face beyond it: a seed on the upper face lies inside."""
    return 4 * jnp.finfo(dtype).eps * (nodes + jnp.abs(origin / spacing)).astype(dtype)


def _between_middles(at: Scalar, count: int) -> Place | None:
    """The place among evenly spaced middles of cells; beyond the outermost, the last interval is carried on."""
    if count == 1:
        return None
    # Floor, not truncation: half a cell before the first middle is still before it.
    interval = jnp.clip(jnp.floor(at).astype(jnp.int32), 0, count - 2)
    return Place(interval, at - interval)


class RectilinearGrid(AbstractBoxGrid):
    """Nodes at the crossings of given coordinates along each axis, rising or falling, of any spacing.

    Single nodes, cell data and `mask` are as for `UniformGrid`.
    """

    knots: tuple[Knots, ...]
    """The nodes along each axis, ascending."""
    middles: tuple[Knots | None, ...]
    """The middles of the cells along each axis, where the data are for cells."""
    falling: tuple[bool, ...] = eqx.field(static=True)
    layout: GridRows

    def __init__(
        self,
        axes: Sequence[Sequence[float] | Float[Array, " _"] | Float[np.ndarray, " _"]],
        *,
        interpolation: Interpolation = "linear",
        centring: Centring = "node",
        order: Order = "C",
        rows: Numbers | None = None,
        mask: Mask | None = None,
        land_values: LandValues = "keep",
        sphere: Sphere | None = None,
    ) -> None:
        self.sphere = sphere
        given = [np.atleast_1d(np.asarray(a)) for a in axes]
        self.layout = GridRows(
            [a.size for a in given], interpolation, centring, order, rows, mask, land_values
        )
        self.falling = tuple(bool(a.size > 1 and a[0] > a[-1]) for a in given)
        rising = [
            ascending(f"axes[{k}]", a[::-1] if down else a, "Subtract an origin from positions and axes.")
            for k, (a, down) in enumerate(zip(given, self.falling, strict=True))
        ]
        self.knots = tuple(Knots(a) for a in rising)
        centred = centring == "cell"
        self.middles = tuple(Knots((a[1:] + a[:-1]) / 2) if centred and a.size > 2 else None for a in rising)

    @property
    def bounds(self) -> Float[Array, "2 dim"]:
        return jnp.stack([jnp.stack([k.coordinates[end] for k in self.knots]) for end in (0, -1)])

    @property
    def axes(self) -> tuple[Float[Array, " _"], ...]:
        """The coordinates of the nodes along each axis, as they were given."""
        return tuple(
            k.coordinates[::-1] if down else k.coordinates
            for k, down in zip(self.knots, self.falling, strict=True)
        )

    def _along(self, axis: int, x: Scalar) -> tuple[Place | None, Int[Array, ""], Flag, Flag]:
        knots, middles = self.knots[axis], self.middles[axis]
        low, high = knots.coordinates[0], knots.coordinates[-1]
        at = jnp.clip(x, low, high)
        cell = knots.locate(at)
        place = knots.place(at, cell) if self.layout.centring == "node" else None
        if middles is not None:
            before = at < take(middles.coordinates, cell)
            place = middles.place(at, jnp.clip(cell - before, 0, middles.count - 2))
        if self.falling[axis]:  # the same among knots that are numbered from the other end
            cell = knots.count - 2 - cell
            if place is not None:
                interval = self.layout.counts[axis] - 2 - place.interval
                place = Place(interval, 1 - place.fraction, place.right, place.left)
        return place, cell, x >= low, x <= high


def _floats(values: Sequence[float] | Float[Array, " n"] | Float[np.ndarray, " n"]) -> Float[Array, " n"]:
    found = jnp.asarray(values)
    return found if jnp.issubdtype(found.dtype, jnp.floating) else found.astype(jnp.result_type(float))

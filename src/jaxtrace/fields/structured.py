"""Grids whose cells are boxes: evenly spaced, or given by the coordinates along each axis."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from .base import AbstractGrid, Interpolation, Stencil
from .grid_rows import Centring, GridRows, Mask, Numbers, Order
from .land import LandValues
from .sphere import Sphere
from .weights import Knots, Place, ascending, take


class UniformGrid(AbstractGrid):
    """Evenly spaced nodes `origin + number × spacing`, in one, two or three dimensions.

    A negative spacing numbers the nodes downwards. Along an axis with a single node nothing varies, and every point
    lies inside. Cell data are read at the middles of the cells and carried on to the faces, so that linear fields
    are exact everywhere. `mask` marks land (True) by cell or by node.
    """

    origin: Float[Array, " dim"]
    spacing: Float[Array, " dim"]
    layout: GridRows

    def __init__(
        self,
        origin: Sequence[float] | Float[Array, " dim"] | Float[np.ndarray, " dim"],
        spacing: Sequence[float] | Float[Array, " dim"] | Float[np.ndarray, " dim"],
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
    def dim(self) -> int:
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def counts(self) -> tuple[int, ...]:
        """Values along each axis."""
        return self.layout.counts

    @property
    def land_rows(self) -> Bool[Array, " size"] | None:
        """Which rows of the data lie on land."""
        return None if self.layout.land is None else self.layout.land.rows

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

    @property
    def positions(self) -> Float[Array, "size dim"]:
        return _positions(self.axes, self.layout)

    def start(self, x: Float[Array, " dim"]) -> PyTree:
        return ()

    @property
    def packable(self) -> bool:
        return self.layout.packable

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "size _"]:
        return self.layout.pack(values)

    def stencil(self, x: Float[Array, " dim"], hint: PyTree = ()) -> Stencil:
        places: list[Place | None] = []
        cells: list[Int[Array, ""]] = []
        inside = jnp.bool_(True)
        for axis, nodes in enumerate(self.layout.shape):
            if nodes == 1:
                places.append(None)
                cells.append(jnp.int32(0))
                continue
            at = (x[axis] - self.origin[axis]) / self.spacing[axis]
            slack = face_slack(nodes, self.origin[axis], self.spacing[axis], x.dtype)
            inside = inside & (at >= -slack) & (at <= nodes - 1 + slack)
            at = jnp.clip(at, 0, nodes - 1)
            cell = jnp.clip(at.astype(jnp.int32), 0, nodes - 2)
            cells.append(cell)
            if self.layout.centring == "node":
                places.append(Place(cell, at - cell))
            else:
                places.append(_between_middles(at - 0.5, nodes - 1))
        return self.layout.stencil(places, cells, inside, x.dtype)


def face_slack(nodes: int, origin: Array, spacing: Array, dtype: jnp.dtype) -> Array:
    """How far, in cells, rounding may carry a point of a face beyond it: a seed on the upper face lies inside."""
    return 4 * jnp.finfo(dtype).eps * (nodes + jnp.abs(origin / spacing)).astype(dtype)


def _between_middles(at: Float[Array, ""], count: int) -> Place | None:
    """The place among evenly spaced middles of cells; beyond the outermost, the last interval is carried on."""
    if count == 1:
        return None
    # Floor, not truncation: half a cell before the first middle is still before it.
    interval = jnp.clip(jnp.floor(at).astype(jnp.int32), 0, count - 2)
    return Place(interval, at - interval)


class RectilinearGrid(AbstractGrid):
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
    def dim(self) -> int:
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def counts(self) -> tuple[int, ...]:
        """Values along each axis."""
        return self.layout.counts

    @property
    def land_rows(self) -> Bool[Array, " size"] | None:
        """Which rows of the data lie on land."""
        return None if self.layout.land is None else self.layout.land.rows

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

    @property
    def positions(self) -> Float[Array, "size dim"]:
        return _positions(self.axes, self.layout)

    def start(self, x: Float[Array, " dim"]) -> PyTree:
        return ()

    @property
    def packable(self) -> bool:
        return self.layout.packable

    def pack(self, values: Shaped[Array, "size columns"]) -> Shaped[Array, "size _"]:
        return self.layout.pack(values)

    def stencil(self, x: Float[Array, " dim"], hint: PyTree = ()) -> Stencil:
        places: list[Place | None] = []
        cells: list[Int[Array, ""]] = []
        inside = jnp.bool_(True)
        for axis, (knots, middles) in enumerate(zip(self.knots, self.middles, strict=True)):
            if knots.count == 1:
                places.append(None)
                cells.append(jnp.int32(0))
                continue
            low, high = knots.coordinates[0], knots.coordinates[-1]
            inside = inside & (x[axis] >= low) & (x[axis] <= high)
            at = jnp.clip(x[axis], low, high)
            cell = knots.locate(at)
            place = None
            if self.layout.centring == "node":
                place = knots.place(at, cell)
            elif middles is not None:
                below = at < take(middles.coordinates, cell)
                place = middles.place(at, jnp.clip(cell - below, 0, middles.count - 2))
            down = self.falling[axis]
            places.append(_from_the_end(place, self.layout.counts[axis]) if down and place else place)
            cells.append(knots.count - 2 - cell if down else cell)
        return self.layout.stencil(places, cells, inside, x.dtype)


def _from_the_end(place: Place, count: int) -> Place:
    """The same place among knots that are numbered from the other end."""
    return Place(count - 2 - place.interval, 1 - place.fraction, place.right, place.left)


def _floats(values: Sequence[float] | Float[Array, " n"] | Float[np.ndarray, " n"]) -> Float[Array, " n"]:
    found = jnp.asarray(values)
    return found if jnp.issubdtype(found.dtype, jnp.floating) else found.astype(jnp.result_type(float))


def _positions(axes: tuple[Float[Array, " _"], ...], layout: GridRows) -> Float[Array, "size dim"]:
    """Where the values sit, in the order of the rows."""
    if layout.centring == "cell":
        axes = tuple((a[1:] + a[:-1]) / 2 if a.size > 1 else a for a in axes)
    points = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    return jnp.zeros_like(points).at[layout.numbers()].set(points)

"""Actions: an operation and the cells it acts on, as a point, a box or a mask."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from jaxworlds.arguments import short

from ..tasks import planes


class AbstractAction(eqx.Module):
    """An operation and a selection. Fields are single numbers, or hold one for each environment of a batch."""

    operation: eqx.AbstractVar[Int32[Array, "*b"]]

    @abc.abstractmethod
    def selection_rows(self, height: int, width: int) -> UInt32[Array, " {height}"]:
        """The selection of one environment as one word per row; only cells on the canvas."""

    @abc.abstractmethod
    def on_canvas(self, height: int, width: int) -> Bool[Array, "*b"]:
        """Whether every coordinate lies on the canvas: of one action, or of each of a batch."""

    def to_selection_mask(self, grid_shape: tuple[int, int]) -> Bool[Array, "*b height width"]:
        """The selection as a mask of `grid_shape`; coordinates outside of it select nothing."""
        height, width = (int(side) for side in grid_shape)
        if not (1 <= height <= planes.MAX_SIDE and 1 <= width <= planes.MAX_SIDE):
            raise ValueError(f"`grid_shape` must be between 1×1 and 32×32; got {tuple(grid_shape)}.")
        if self.operation.ndim:
            return eqx.filter_vmap(lambda action: action.to_selection_mask((height, width)))(self)
        return planes.unpack_mask(self.selection_rows(height, width), width)


class PointAction(AbstractAction):
    """Acts on the cell at (`row`, `col`)."""

    operation: Int32[Array, "*b"]
    row: Int32[Array, "*b"]
    col: Int32[Array, "*b"]

    def __init__(self, operation: Any, row: Any, col: Any) -> None:
        self.operation, self.row, self.col = _integers(operation=operation, row=row, col=col)

    def selection_rows(self, height: int, width: int) -> UInt32[Array, " {height}"]:
        words = planes.rectangle(height, self.row, self.col, self.row, self.col)
        return jnp.where(self.on_canvas(height, width), words, jnp.uint32(0))

    def on_canvas(self, height: int, width: int) -> Bool[Array, "*b"]:
        return _inside(self.row, height) & _inside(self.col, width)


class BboxAction(AbstractAction):
    """Acts on the rectangle between two opposite corners, both included, given in any order."""

    operation: Int32[Array, "*b"]
    r1: Int32[Array, "*b"]
    c1: Int32[Array, "*b"]
    r2: Int32[Array, "*b"]
    c2: Int32[Array, "*b"]

    def __init__(self, operation: Any, r1: Any, c1: Any, r2: Any, c2: Any) -> None:
        self.operation, self.r1, self.c1, self.r2, self.c2 = _integers(
            operation=operation, r1=r1, c1=c1, r2=r2, c2=c2
        )

    def selection_rows(self, height: int, width: int) -> UInt32[Array, " {height}"]:
        top, bottom = jnp.minimum(self.r1, self.r2), jnp.maximum(self.r1, self.r2)
        left, right = jnp.minimum(self.c1, self.c2), jnp.maximum(self.c1, self.c2)
        return planes.rectangle(height, top, left, bottom, jnp.minimum(right, width - 1))

    def on_canvas(self, height: int, width: int) -> Bool[Array, "*b"]:
        rows = _inside(self.r1, height) & _inside(self.r2, height)
        return rows & _inside(self.c1, width) & _inside(self.c2, width)


class MaskAction(AbstractAction):
    """Acts on any set of cells: `selection` is a mask (height, width), or packed, one uint32 word per row.

    Bit `c` of a word is column `c`. Words that mark columns off the canvas make the action invalid.
    """

    operation: Int32[Array, "*b"]
    selection: Bool[Array, "*b height width"] | UInt32[Array, "*b height"]

    def __init__(self, operation: Any, selection: Any) -> None:
        (self.operation,) = _integers(operation=operation)
        cells = jnp.asarray(selection)
        if cells.dtype != bool and not jnp.issubdtype(cells.dtype, jnp.integer):
            raise TypeError(
                f"`selection` must hold booleans or integers; got {cells.dtype}. "
                "Numbers between 0 and 1 need a threshold: `selection=shares > 0.5`."
            )
        batch = self.operation.shape
        packed = cells.dtype == jnp.uint32 and cells.ndim == len(batch) + 1
        if cells.shape[: len(batch)] != batch or not (packed or cells.ndim == len(batch) + 2):
            raise ValueError(
                "`selection` must be a mask (height, width), or uint32 words (height,), for each operation; "
                f"got {cells.dtype} of shape {cells.shape} with operations of shape {self.operation.shape}."
            )
        self.selection = cells if packed else cells.astype(bool)

    @property
    def is_packed(self) -> bool:
        """Whether the selection is held as one word per row."""
        return self.selection.dtype == jnp.uint32

    def selection_rows(self, height: int, width: int) -> UInt32[Array, " {height}"]:
        shape = self.selection.shape
        if shape != ((height,) if self.is_packed else (height, width)):
            raise ValueError(
                f"`selection` must have the shape of the canvas, {height}×{width}; got {shape}. "
                "Make the mask as large as `max_grid_height` × `max_grid_width`."
            )
        words = self.selection if self.is_packed else planes.pack_mask(self.selection)
        return words & planes.low_bits(jnp.int32(width))

    def on_canvas(self, height: int, width: int) -> Bool[Array, "*b"]:
        if not self.is_packed:
            return jnp.ones(self.operation.shape, bool)
        off = jnp.uint32(0xFFFFFFFF) & ~planes.low_bits(jnp.int32(width))
        return ~jnp.any((self.selection & off) != 0, axis=-1)


FORMATS: dict[str, tuple[type[AbstractAction], tuple[str, ...]]] = {
    "point": (PointAction, ("row", "col")),
    "bbox": (BboxAction, ("r1", "c1", "r2", "c2")),
    "mask": (MaskAction, ("selection",)),
}
"""The action of each format, and the names of its selection."""


def demand_action(action: Any) -> AbstractAction:
    """`action` if it is one; dictionaries, once used for actions, are refused with the way to go."""
    if isinstance(action, AbstractAction):
        return action
    raise TypeError(
        "`action` must be a PointAction, BboxAction or MaskAction; "
        f"got {type(action).__name__}. Write PointAction(operation=0, row=5, col=5)."
    )


def _integers(**fields: Any) -> list[Array]:
    made = []
    for name, value in fields.items():
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        if not jnp.issubdtype(array.dtype, jnp.integer):
            known = " `jaxarc.envs.operations` has them by name: FLOOD + 4." if name == "operation" else ""
            raise TypeError(f"`{name}` must hold integers; got {short(value)}.{known}")
        on_host = isinstance(array, np.ndarray) and array.size
        if on_host and not -(2**31) <= array.min() <= array.max() < 2**31:
            raise ValueError(f"`{name}` must fit 32 bits; got values from {array.min()} to {array.max()}.")
        made.append(jnp.asarray(array, jnp.int32))
    if len({array.shape for array in made}) > 1:
        made = jnp.broadcast_arrays(*made)
    return made


def _inside(at: Array, size: int) -> Array:
    return (at >= 0) & (at < size)

"""Samples of packed uniform cells inside the kernel of `fused`: one wide read for each."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ..fields.grid_rows import strides_of
from ..fields.grid_series import AbstractSeries
from ..fields.moments import columns
from ..fields.structured import UniformGrid, face_slack
from .base import Block


@dataclasses.dataclass(frozen=True)
class GridSampler:
    """What is constant of a uniform grid."""

    rolled: ClassVar[bool] = False
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, field: AbstractSeries) -> "GridSampler | None":
        """The sampler of a field, or None where it does not lie in cells that this kernel knows."""
        grid = field.grid
        if (
            not isinstance(grid, UniformGrid)
            or not grid.layout.plain
            or grid.size * columns(grid.dim) * 2**grid.dim >= 2**31
        ):
            return None
        return cls(grid.layout.shape, strides_of(grid.layout.shape, grid.layout.order))

    def tables(self, field: AbstractSeries) -> list[Array]:
        """What the kernel reads of the grid: its origin and its spacing."""
        assert isinstance(field.grid, UniformGrid)
        return [jnp.concatenate([field.grid.origin, field.grid.spacing])]

    def sample(
        self, block: Block, tables: list[Any], values: Any, base: Any, x: list[Array], hint: list[Array]
    ) -> tuple[list[Array], Array, list[Array]]:
        """Velocities at `x`, whether the grid holds the points, and no hints."""
        (numbers,), dim, width = tables, len(self.shape), columns(len(self.shape))
        column = jnp.arange(2**dim * width)
        corner, component = (column // width)[None, :], (column % width)[None, :]
        place, weight, held = jnp.zeros_like(block.lanes), None, block.here
        for axis, nodes in enumerate(self.shape):
            origin, spacing = numbers[axis].astype(x[0].dtype), numbers[dim + axis].astype(x[0].dtype)
            at = (x[axis] - origin) / spacing
            slack = face_slack(nodes, origin, spacing, at.dtype)
            held = held & (at >= -slack) & (at <= nodes - 1 + slack)
            at = jnp.clip(at, 0.0, nodes - 1.0)
            cell = jnp.clip(at.astype(jnp.int32), 0, nodes - 2)
            fraction = (at - cell.astype(at.dtype))[:, None]
            upper = ((corner >> (dim - 1 - axis)) & 1) == 1
            part = jnp.where(upper, fraction, 1.0 - fraction)
            weight = part if weight is None else weight * part
            place = place + cell * self.strides[axis]
        first = base + place * (2**dim * width)
        row = block.load(values.at[first[:, None] + column[None, :]]).astype(x[0].dtype)
        weighted = row * weight
        found = [jnp.sum(jnp.where(component == axis, weighted, 0.0), axis=1) for axis in range(dim)]
        return found, held, hint

"""A series of slices at one time: blended once for all particles, and laid out so that a sample is few wide reads."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from .base import AbstractGrid, AbstractMoment, Sample, Stencil
from .isolation import isolate
from .weights import take

Layout = Literal["direct", "rows", "cells", "cells16"]
"""How a moment of a series is laid out.

- `direct`: not at all; every sample reads its rows from all slices that count. Best for few particles on a large grid.
- `rows`: slices blended once for all particles, one pad_columns row for each node. Best on a CPU.
- `cells`: blended, and the corners of each cell side by side: one read for a sample. Best on a GPU.
- `cells16`: the same in 16 bits, scaled by the greatest speed: each component is rounded by at most 2⁻¹¹ of the
  greatest component in the data.
"""
LAYOUTS: tuple[Layout, ...] = ("direct", "rows", "cells", "cells16")


class BlendedMoment(AbstractMoment):
    """One pad_columns row of velocities for each value of the grid."""

    values: Shaped[Array, "size columns"]
    grid: AbstractGrid
    known: Bool[Array, ""]
    """Whether the time lies in the field's range, or the ends hold beyond."""
    always: Bool[Array, ""]

    def sample(self, x: Float[Array, " dim"], hint: PyTree) -> Sample:
        def here(x: Float[Array, " dim"], hint: PyTree) -> Sample:
            stencil = self.grid.stencil(x, hint)
            total = sum_rows(self.values, stencil.rows, stencil.weights)
            return Sample(total[: x.shape[0]], stencil.inside & self.known, stencil.hint)

        return isolate(self.always, here, x, hint)


class PackedMoment(AbstractMoment):
    """The velocities of a cell's corners side by side in one row."""

    values: Shaped[Array, "packs columns"]
    scale: Float[Array, ""]
    grid: AbstractGrid
    known: Bool[Array, ""]
    always: Bool[Array, ""]

    def sample(self, x: Float[Array, " dim"], hint: PyTree) -> Sample:
        def here(x: Float[Array, " dim"], hint: PyTree) -> Sample:
            dim = x.shape[0]
            stencil = self.grid.stencil(x, hint)
            assert stencil.pack is not None
            row = take(self.values, stencil.pack).astype(x.dtype)
            width = columns(dim)
            total = jnp.zeros_like(x)
            for number, weight in enumerate(stencil.weights):
                total = total + weight * row[number * width : number * width + dim]
            return Sample(total * self.scale.astype(x.dtype), stencil.inside & self.known, stencil.hint)

        return isolate(self.always, here, x, hint)


def blend(
    data: Shaped[Array, "times rows dim"],
    slices: list[Int[Array, ""]],
    weights: list[Float[Array, ""]],
) -> Float[Array, "rows dim"]:
    """The slices that count, weighted and summed."""
    total = None
    for number, weight in zip(slices, weights, strict=True):
        part = weight * take(data, number).astype(weight.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def columns(dim: int) -> int:
    """The next power of two: a row is then read as a whole and never lies across two lines of a cache."""
    return 1 << (dim - 1).bit_length()


def pad_columns(values: Float[Array, "rows dim"]) -> Float[Array, "rows columns"]:
    """Rows padded so that each is one aligned read; three columns take twice as long on a CPU."""
    dim = values.shape[1]
    return jnp.pad(values, ((0, 0), (0, columns(dim) - dim)))


def pack_cells(
    grid: AbstractGrid, values: Float[Array, "rows dim"], scale: Float[Array, ""], half: bool
) -> Shaped[Array, "packs columns"]:
    """Corners side by side, each pad_columns; in 16 bits where `half`, divided by `scale`."""
    if half:
        values = (values / scale).astype(jnp.float16)
    return grid.pack(pad_columns(values))


def sum_rows(
    values: Shaped[Array, "rows columns"],
    rows: tuple[Int[Array, ""], ...],
    weights: tuple[Float[Array, ""], ...],
) -> Float[Array, " columns"]:
    """The rows that count, weighted and summed."""
    dtype = weights[0].dtype
    total = None
    for row, weight in zip(rows, weights, strict=True):
        part = weight * take(values, row).astype(dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def sum_slices(
    data: Shaped[Array, "times rows dim"],
    slices: list[Int[Array, ""]],
    weights: list[Float[Array, ""]],
    stencil: Stencil,
    dtype: jnp.dtype,
) -> Float[Array, " dim"]:
    """The rows that count in the slices that count, for one particle at its own time."""
    times, rows, dim = data.shape
    countable = times * rows < 2**31  # else an int32 cannot number all rows
    flat = data.reshape(times * rows, dim) if countable else data
    total = jnp.zeros((dim,), dtype)
    for number, weight in zip(slices, weights, strict=True):
        if countable:
            part = sum_rows(flat, tuple(number * rows + row for row in stencil.rows), stencil.weights)
        else:
            values = [flat.at[number, row].get(mode="promise_in_bounds") for row in stencil.rows]
            part = sum(
                (w * v.astype(dtype) for w, v in zip(stencil.weights, values, strict=True)),
                start=jnp.zeros_like(total),
            )
        total = total + weight.astype(dtype) * part
    return total

"""A series of slices at one time: blended once for all particles, and laid out so that a sample is few wide reads."""

from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, Shaped

from .base import AbstractGrid, AbstractMoment, Flag, Sample, Scalar, Stencil, Vector
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
    known: Flag
    """Whether the time lies in the field's range, or the ends hold beyond."""
    always: Flag

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        def here(x: Vector, hint: PyTree) -> Sample:
            stencil = self.grid.stencil(x, hint)
            total = weighted_sum(self.values, stencil.rows, stencil.weights)
            return Sample(total[: x.shape[0]], stencil.inside & self.known, stencil.hint)

        return isolate(self.always, here, x, hint)


class PackedMoment(AbstractMoment):
    """The velocities of a cell's corners side by side in one row."""

    values: Shaped[Array, "packs columns"]
    scale: Scalar
    grid: AbstractGrid
    known: Flag
    always: Flag

    def sample(self, x: Vector, hint: PyTree) -> Sample:
        def here(x: Vector, hint: PyTree) -> Sample:
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


def weighted_sum(
    values: Shaped[Array, "rows ..."], numbers: Sequence[Int[Array, ""]], weights: Sequence[Scalar]
) -> Float[Array, "..."]:
    """The rows, or the slices, that count, weighted and summed."""
    pairs = zip(numbers, weights, strict=True)
    parts = [weight * take(values, number).astype(weight.dtype) for number, weight in pairs]
    return sum(parts[1:], parts[0])


def columns(dim: int) -> int:
    """The next power of two: a row is then read as a whole and never lies across two lines of a cache."""
    return 1 << (dim - 1).bit_length()


def pad_columns(values: Float[Array, "rows dim"]) -> Float[Array, "rows columns"]:
    """Rows padded so that each is one aligned read; three columns take twice as long on a CPU."""
    dim = values.shape[1]
    return jnp.pad(values, ((0, 0), (0, columns(dim) - dim)))


def sum_slices(
    data: Shaped[Array, "times rows dim"],
    slices: list[Int[Array, ""]],
    weights: list[Scalar],
    stencil: Stencil,
    dtype: jnp.dtype,
) -> Vector:
    """The rows that count in the slices that count, for one particle at its own time."""
    times, rows, dim = data.shape
    if countable := times * rows < 2**31:  # else an int32 cannot number all rows
        data = data.reshape(times * rows, dim)

    def read(number: Int[Array, ""], row: Int[Array, ""]) -> Shaped[Array, " dim"]:
        if countable:
            return take(data, number * rows + row)
        return data.at[number, row].get(mode="promise_in_bounds")

    total = jnp.zeros((dim,), dtype)
    for number, weight in zip(slices, weights, strict=True):
        parts = [
            w * read(number, row).astype(w.dtype)
            for row, w in zip(stencil.rows, stencil.weights, strict=True)
        ]
        total = total + weight.astype(dtype) * sum(parts[1:], parts[0])
    return total

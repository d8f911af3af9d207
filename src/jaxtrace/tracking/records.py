"""Arrays over all recorded times and particles, filled chunk by chunk while the run goes on."""

from typing import Any

import jax
import numpy as np

from .chunks import ChunkPlan

# Kept for the whole batch, not for each particle; several batches add up.
SUMMED = ("hits", "missed", "reduced")


class Records:
    """The records of a run; entries that are never computed stay NaN, or 0."""

    def __init__(self, times: int, particles: int):
        self.times, self.particles = times, particles
        self.arrays: dict[str, np.ndarray] = {}
        self.sums: dict[str, Any] = {}

    def take(
        self, part: dict[str, Any], chunks: ChunkPlan, first_segment: int, first: int, last: int
    ) -> None:
        """Records of consecutive segments of the particles from `first` to `last`."""
        count = len(part["missed"])
        numbers = chunks.times_of(first_segment, count)
        rows = np.flatnonzero((numbers >= 0) & (numbers < self.times))
        if not rows.size:
            return
        # Recorded times follow one another, so that both sides of every copy are plain slices.
        begin, stride = int(rows[0]), chunks.parts // chunks.every
        from_rows = slice(begin, int(rows[-1]) + 1, stride)
        to_rows = slice(int(numbers[begin]), int(numbers[begin]) + len(rows))
        for name, values in part.items():
            if name in SUMMED:
                self._add(name, values, from_rows, to_rows)
                continue
            if name not in self.arrays:
                shape = (self.times, self.particles, *values.shape[2:])
                fill = np.nan if np.issubdtype(values.dtype, np.floating) else 0
                covers = last - first == self.particles
                self.arrays[name] = (
                    np.empty(shape, values.dtype) if covers else np.full(shape, fill, values.dtype)
                )
            self.arrays[name][to_rows, first:last] = values[from_rows, : last - first]

    def _add(self, name: str, values: Any, from_rows: slice, to_rows: slice) -> None:
        """Sums over batches, whole numbers in 64 bits."""

        def empty(leaf: np.ndarray) -> np.ndarray:
            whole = np.issubdtype(leaf.dtype, np.integer) or leaf.dtype == bool
            return np.zeros((self.times, *leaf.shape[1:]), np.int64 if whole else leaf.dtype)

        def add(total: np.ndarray, leaf: np.ndarray) -> None:
            total[to_rows] += leaf[from_rows]

        if name not in self.sums:
            self.sums[name] = jax.tree.map(empty, values)
        jax.tree.map(add, self.sums[name], values)

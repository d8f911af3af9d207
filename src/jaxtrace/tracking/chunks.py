"""How a run is cut, segments between records and chunks of segments that share one program, and the records they fill."""

import dataclasses
from typing import Any

import jax
import numpy as np

from .schedule import Schedule

# A chunk should take about 0.2 s: time to show progress and to stop, long against its dispatch (35 µs on a CPU, 0.45 ms
# on an H200). Particle-steps per second: 1e7 on two cores, 5e9 on an H200 (ledger/jaxtrace.md, 7 and 8).
_CHUNK_STEPS, _CHUNK_STEPS_CPU = 1_000_000_000, 2_000_000
# Records of a chunk are fetched while the next one runs; small enough that two of them never matter.
CHUNK_BYTES = 32 * 2**20
_MOST_UNITS = 2048
# Kept for the whole batch, not for each particle; several batches add up.
SUMMED = ("hits", "missed", "reduced")


@dataclasses.dataclass(frozen=True)
class ChunkPlan:
    """How a schedule is cut into segments and chunks, and how large its tables are."""

    parts: int
    """Units for each recorded time; the last of them ends there."""
    every: int
    """Units from one fetched record to the next: `parts`, or 1 where chunks must end between recorded times."""
    chunk: int
    """Units in one compiled program."""
    segments: int
    """Units of the whole run, empty ones at its end included: a multiple of the chunk."""
    rows: int
    """Length of the table of steps."""
    table: int
    """Length of the table of segments; its last one is empty, and stands for all behind it."""

    def times_of(self, first_segment: int, count: int) -> np.ndarray:
        """The number of the recorded time for each of `count` records from `first_segment` on; -1 between them."""
        ends = first_segment + self.every * np.arange(1, count + 1)
        return np.where(ends % self.parts == 0, ends // self.parts - 1, -1)


def plan_chunks(schedule: Schedule, batch: int, record_bytes: int) -> ChunkPlan:
    """Chunks that take a fraction of a second; all sizes are rounded so that similar runs share one program."""
    # Particle-steps that take about 0.2 s on the default device.
    target = _CHUNK_STEPS_CPU if jax.default_backend() == "cpu" else _CHUNK_STEPS
    records = len(schedule.times)
    most = schedule.steps_per_record[1]
    parts = min(power_above(most * batch / (4 * target)), power_below(most))
    mean = max(schedule.steps / (records - 1), 1)
    in_time, in_memory = target / (mean * batch), CHUNK_BYTES / max(record_bytes, 1)
    chunk = min(power_below(min(in_time, in_memory, _MOST_UNITS / parts)), power_above(records)) * parts
    segments = -(-records * parts // chunk) * chunk
    return ChunkPlan(
        parts, parts, chunk, segments, bucket(schedule.steps + 1, 1024), bucket(records * parts + 1, 256)
    )


def plan_ring_chunks(schedule: Schedule, field: Any, limit_bytes: int | None, whole: ChunkPlan) -> ChunkPlan:
    """The same for a field of which a few slices are present: segments that are not longer than from slice to slice."""
    span = np.abs(np.diff(schedule.times)).max()
    slices = np.asarray(field.times, np.float64)
    spacing = np.diff(slices).min() if len(slices) > 1 else span
    parts = max(whole.parts, power_above(span / spacing * (1 - 1e-6)))
    parts = min(parts, power_above(schedule.steps_per_record[1]))
    segments = len(schedule.times) * parts
    times = segment_times(schedule, parts, segments)
    chunk = field.plan(times, limit_bytes, longest=whole.chunk).chunk
    padded = -(-segments // chunk) * chunk
    return ChunkPlan(parts, 1, chunk, padded, whole.rows, bucket(segments + 1, 256))


def segment_edges(schedule: Schedule, parts: int, segments: int) -> np.ndarray:
    """The edge at which each segment ends; segments behind the last recorded time are empty."""
    ends = np.concatenate([[0], schedule.marks])
    shares = np.arange(1, parts + 1) / parts
    last = (ends[:-1, None] + np.round(np.diff(ends)[:, None] * shares)).astype(np.int64).reshape(-1)
    return np.concatenate([last, np.full(segments - len(last), schedule.steps)])


def segment_times(schedule: Schedule, parts: int, segments: int) -> np.ndarray:
    """The beginning of every segment, and the end of the last."""
    return schedule.edges[np.concatenate([[0], segment_edges(schedule, parts, segments)])]


def power_below(value: float) -> int:
    """The greatest power of two that is not greater, at least 1."""
    return 2 ** max(int(np.floor(np.log2(max(value, 1)))), 0)


def power_above(value: float) -> int:
    """The smallest power of two that is not smaller, at least 1."""
    return 2 ** max(int(np.ceil(np.log2(max(value, 1)))), 0)


def bucket(count: int, least: int = 1) -> int:
    """The next of eight sizes for each power of two, from `least` on: similar counts share one program."""
    count = max(count, least)
    step = max(power_below(count) // 8, 1)
    return -(-count // step) * step


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

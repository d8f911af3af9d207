"""The ring at run time: a thread reads slices, which go to the device and into their slots while a chunk runs."""

import dataclasses
import functools
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int32, Shaped

from .ring_field import RingField, RingPlan

Slice = Shaped[np.ndarray, "rows dim"]


class RingKeeper:
    """The slices of one run: those on the device, those on their way, and the thread that reads the next.

    `field_at` overwrites slots in place, so the field of a chunk is valid until the next call. Chunks may come in any
    order: after a jump the ring is filled again. Close it, or use it in a `with`.
    """

    def __init__(
        self,
        plan: RingPlan,
        empty: RingField,
        read: Callable[[int], Slice],
        read_ahead: int | None = None,
        sharding: Any = None,
        into: Callable[[RingField], Any] | None = None,
    ) -> None:
        """`empty` has room for the plan's slots; `read(k)` returns slice k in its type, or raises."""
        self.plan = plan
        self._put = functools.partial(jax.device_put, device=sharding)
        self._field = jax.tree.map(self._put, empty)
        self._into = into
        self._ahead = read_ahead or max(2, 2 * plan.staged)
        self._held = np.full(plan.slots, -1)
        self._greatest = np.zeros(plan.slots)
        self._reader = _Reader(read)
        self._end = weakref.finalize(self, self._reader.close)

    @property
    def chunk(self) -> int:
        """Units in a chunk, for `run`."""
        return self.plan.chunk

    @property
    def slices_read(self) -> int:
        """How many slices were taken in so far."""
        return self._reader.taken

    @property
    def seconds_waited(self) -> float:
        """How long chunks had to wait for slices that were not yet read."""
        return self._reader.waited

    def shared_at(self, step: int, steps: int) -> Any:
        """What a chunk shares, for `run` and `resume`: the field, or what `into` makes of it."""
        field = self.field_at(step, steps)
        return field if self._into is None else self._into(field)

    def field_at(self, step: int, steps: int) -> RingField:
        """The field for the chunk of `steps` units from `step` on; with `steps=0` only the shapes of what changes."""
        if steps == 0:
            changing = (self._field.data, self._field.within, self._field.scale)
            shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in changing]
            return eqx.tree_at(lambda f: (f.data, f.within, f.scale), self._field, shapes)
        if not self._end.alive:
            raise ValueError(
                "the keeper must be open; this one was closed. Ask inside the `with` that opened it."
            )
        first, last = self.plan.window(step, steps)
        if last - first >= self.plan.slots:
            raise ValueError(
                f"the ring must hold the {last - first + 1} slices that units {step} to {step + steps - 1} need; it has "
                f"{self.plan.slots}. Use chunks of {self.chunk}; a resumed run needs the memory limit it began with."
            )
        missing = self._in_order(k for k in range(first, last + 1) if self._held[k % self.plan.slots] != k)
        order = [*missing, *self._beyond(first, last)]
        for position, number in enumerate(missing):
            if position and position % self.plan.staged == 0:
                jax.block_until_ready(self._field.data)  # no more slices on their way than planned
            self._reader.expect(order[position : position + 1 + self._ahead])
            self._take_in(number)
        self._reader.expect(order[len(missing) : len(missing) + self._ahead])
        within = np.asarray(self.plan.intervals(step, steps), np.int32)
        self._field = dataclasses.replace(
            self._field, within=self._put(within), scale=self._scale(first, last)
        )
        return self._field

    def close(self) -> None:
        """End the reading; a slice that is being read is waited for."""
        self._end()

    def __enter__(self) -> "RingKeeper":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _in_order(self, numbers: Any) -> list[int]:
        """As they come into use."""
        return sorted(numbers, reverse=self.plan.backward)

    def _beyond(self, first: int, last: int) -> list[int]:
        """The slices that come into use after those of a window."""
        lowest, highest = self.plan.window(0, len(self.plan.lowest))
        ahead = range(lowest, first) if self.plan.backward else range(last + 1, highest + 1)
        return self._in_order(ahead)[: self._ahead]

    def _take_in(self, number: int) -> None:
        """Send a slice to the device and put it into its slot, after the chunks that still read its old content."""
        values = self._reader.take(number)
        slot = number % self.plan.slots
        self._held[slot] = -1
        data = _overwrite(self._field.data, self._put(values), np.int32(slot))
        self._field = dataclasses.replace(self._field, data=data)
        self._held[slot] = number
        if self._field.layout == "cells16":
            self._greatest[slot] = np.abs(values).max(initial=0)

    def _scale(self, first: int, last: int) -> Array:
        """A power of two, so that dividing by it is exact and the rounding does not depend on the chunk."""
        if self._field.layout != "cells16":
            return self._field.scale
        greatest = max(self._greatest[k % self.plan.slots] for k in range(first, last + 1))
        scale = 2.0 ** np.ceil(np.log2(greatest)) if greatest > 0 else 1.0
        return self._put(np.asarray(scale, self._field.scale.dtype))


@functools.partial(jax.jit, donate_argnums=0)
def _overwrite(
    ring: Shaped[Array, "slots rows dim"],
    values: Shaped[Array, "rows dim"],
    slot: Int32[Array | np.ndarray, ""],
) -> Shaped[Array, "slots rows dim"]:
    """The ring with one slot overwritten in place, once the programs launched before have read it."""
    return jax.lax.dynamic_update_index_in_dim(ring, values, slot, 0)


class _Reader:
    """Reads slices ahead, one at a time, in a thread of its own; errors come out where a slice is taken."""

    def __init__(self, read: Callable[[int], Slice]) -> None:
        self._read = read
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jaxtrace-slices")
        self._expected: dict[int, Future[Slice]] = {}
        self.taken, self.waited = 0, 0.0

    def expect(self, numbers: list[int]) -> None:
        """Read these next, in this order; others that were expected are dropped."""
        for number in self._expected.keys() - set(numbers):
            self._expected.pop(number).cancel()
        for number in numbers:
            if number not in self._expected:
                self._expected[number] = self._pool.submit(self._read, number)

    def take(self, number: int) -> Slice:
        """An expected slice, waited for."""
        began = time.perf_counter()
        values = self._expected.pop(number).result()
        self.waited += time.perf_counter() - began
        self.taken += 1
        return values

    def close(self) -> None:
        self._expected.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

"""Batches of any size: padded to a few compiled sizes, or mapped piece by piece."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import PyTree

from .._trees import is_key, on_key_data
from ..arguments import demand_call, demand_whole, short
from .meshes import leaf_name, map_with_axes, shard_worlds
from .plans import BatchPlan


class BucketedBatches:
    """Call a batched function with any number of rows, through one compiled program per bucket size.

    A batch is padded to the next of `sizes` by repeating its last row, and the result is cut back; more rows
    than the largest size go in pieces. `fn` must treat every row on its own: a mean over the batch would see
    the padding. Padding and cutting happen in host memory, since on the device each new size would compile
    again; so results are NumPy arrays (PRNG keys stay keys). `axes` is the `in_axes` of `jax.vmap`: 0 for
    arguments with rows, None for those that all rows share. With `mesh` each padded batch is spread over its
    devices.

    ```python
    evaluate = BucketedBatches(jax.vmap(lambda x: jnp.sin(x).sum()), sizes=(64, 256))
    evaluate(np.ones((10, 3))).shape  # (10,)
    evaluate(np.ones((1000, 3))).shape  # (1000,), in pieces of 256
    evaluate.traces  # 2, whatever sizes come next
    ```
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        sizes: Sequence[int] = (64, 256, 1024),
        *,
        axes: PyTree = 0,
        mesh: Mesh | None = None,
    ):
        demand_call(fn, "fn", "BucketedBatches(fn, sizes)")
        if not isinstance(sizes, Iterable):
            raise TypeError(
                f"`sizes` must be several sizes; got {short(sizes)}. Write `sizes=({short(sizes)},)`."
            )
        self.sizes = tuple(sorted({demand_whole(size, "sizes", "They count rows.") for size in sizes}))
        if not self.sizes or self.sizes[0] < 1:
            raise ValueError(f"`sizes` must hold sizes of at least 1; got {tuple(sizes)}.")
        if mesh is not None and any(size % mesh.size for size in self.sizes):
            raise ValueError(
                f"`sizes` must be multiples of the {mesh.size} devices of `mesh`; got {self.sizes}."
            )
        self.axes, self.mesh = axes, mesh
        self.traces = 0
        """How often `fn` was traced: once per compiled program."""

        def counting_call(*args: Any) -> Any:
            self.traces += 1  # runs while tracing only
            return fn(*args)

        self._program = jax.jit(counting_call)

    @classmethod
    def from_plan(
        cls,
        fn: Callable[..., Any],
        plan: BatchPlan,
        count: int = 3,
        *,
        axes: PyTree = 0,
        mesh: Mesh | None = None,
    ) -> "BucketedBatches":
        """Buckets of the planned batch size, a quarter of it, and so on: none larger than memory allows."""
        step = 1 if mesh is None else mesh.size
        sizes = [max(step, plan.batch_size // 4**power // step * step) for power in range(count)]
        return cls(fn, sizes, axes=axes, mesh=mesh)

    def __call__(self, *args: Any) -> Any:
        axes = tuple(self.axes) if isinstance(self.axes, list | tuple) else (self.axes,) * len(args)
        counts: dict[int, str] = {}

        def has_rows(path: Any, axis: int | None, leaf: Any) -> bool:
            if axis is not None and not np.shape(leaf):
                raise ValueError(
                    f"{leaf_name(path)} has no rows. Mark what all rows share with None in `axes`."
                )
            if axis is not None:
                counts.setdefault(np.shape(leaf)[0], leaf_name(path))
            return axis is not None

        batched = jax.tree.leaves(map_with_axes(has_rows, axes, args))
        if len(counts) != 1:
            found = ", ".join(f"{name} has {rows}" for rows, name in counts.items()) or "none has any"
            raise ValueError(f"the arguments must have rows, all equally many; {found}.")
        (rows,) = counts
        largest = self.sizes[-1]
        stops = range(largest, rows + largest, largest) or [0]  # an empty batch is one piece of no rows
        pieces = [self._piece(args, batched, max(0, stop - largest), min(rows, stop)) for stop in stops]
        return jax.tree.map(_join, *pieces)

    def _piece(self, args: tuple[Any, ...], batched: list[bool], start: int, stop: int) -> Any:
        size = next(size for size in self.sizes if size >= stop - start)
        leaves, structure = jax.tree.flatten(args)
        pairs = zip(leaves, batched, strict=True)
        leaves = [_host_rows(leaf, start, stop, size) if rows else leaf for leaf, rows in pairs]
        if self.mesh is not None:
            leaves = shard_worlds(leaves, self.mesh, [0 if rows else None for rows in batched])
        result = self._program(*jax.tree.unflatten(structure, leaves))

        def cut(leaf: Any) -> Any:
            if np.shape(leaf)[:1] != (size,):
                raise ValueError(
                    f"`fn` must return arrays with one row per row of its batch ({size}); got the shape "
                    f"{np.shape(leaf)}. Reduce over the batch outside of it."
                )
            return _on_host(lambda data: data[: stop - start], leaf)

        return jax.tree.map(cut, result)


def _on_host(fn: Callable[..., Any], *leaves: Any) -> Any:
    """Apply `fn` to arrays in host memory; to the data of PRNG keys, of which it makes keys again."""
    on_arrays = lambda *arrays: fn(*map(np.asarray, arrays))  # noqa: E731
    return on_key_data(on_arrays, *leaves) if is_key(leaves[0]) else on_arrays(*leaves)


def _host_rows(leaf: Any, start: int, stop: int, size: int) -> Any:
    """Rows of `leaf` in host memory, the last repeated up to `size`: valid values, so nothing turns NaN."""

    def pad(whole: np.ndarray) -> np.ndarray:
        rows = whole[start:stop]
        if len(rows) == 0:
            return np.zeros((size, *whole.shape[1:]), whole.dtype)
        missing = size - len(rows)
        return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing else rows

    return _on_host(pad, leaf)


def _join(*pieces: Any) -> Any:
    return pieces[0] if len(pieces) == 1 else _on_host(lambda *parts: np.concatenate(parts), *pieces)


def chunked_map(fn: Callable[[Any], Any], xs: PyTree, batch_size: int) -> PyTree:
    """Map `fn`, written for one item, over the leading axis of `xs`, `batch_size` items at a time.

    The memory of a step is that of `batch_size` items, however many there are. jax arrays (also inside `jit`)
    are mapped in one program on the device. NumPy arrays, also memory-mapped ones, may be larger than the
    device: they go piece by piece through one compiled program, the last piece padded with its last item, and
    come back as NumPy arrays.

    ```python
    chunked_map(lambda x: x**2, jnp.arange(10.0), batch_size=4)
    chunked_map(lambda x: x**2, np.load("large.npy", mmap_mode="r"), batch_size=1024)
    ```
    """
    demand_call(fn, "fn", "chunked_map(fn, xs, batch_size)")
    batch_size = demand_whole(batch_size, "batch_size", "It counts the items that are mapped at once.")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1; got {batch_size}.")
    leaves = jax.tree.leaves(xs)
    lengths = {np.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) != 1 or () in lengths:
        shapes = [np.shape(leaf) for leaf in leaves]
        raise ValueError(f"`xs` must hold arrays of one common leading length; got the shapes {shapes}.")
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        traced = any(isinstance(leaf, Tracer) for leaf in leaves)
        return (jax.lax.map if traced else _map_on_device)(fn, xs, batch_size=batch_size)
    ((length,),) = lengths
    return _map_from_host(fn, xs, batch_size, length)


@eqx.filter_jit
def _map_on_device(fn: Callable[[Any], Any], xs: PyTree, batch_size: int) -> PyTree:
    return jax.lax.map(fn, xs, batch_size=batch_size)


@eqx.filter_jit
def _map_piece(fn: Callable[[Any], Any], xs: PyTree) -> PyTree:
    return jax.vmap(fn)(xs)


def _map_from_host(fn: Callable[[Any], Any], xs: PyTree, batch_size: int, length: int) -> PyTree:
    def piece(start: int) -> Any:
        rows = jax.tree.map(lambda x: _host_rows(x, start, min(length, start + batch_size), batch_size), xs)
        return _map_piece(fn, jax.tree.map(jnp.asarray, rows))

    part = piece(0)
    if any(map(is_key, jax.tree.leaves(part))):
        raise TypeError("`fn` must return plain arrays for NumPy input. Return `jax.random.key_data(key)`.")
    results = jax.tree.map(lambda leaf: np.empty((length, *leaf.shape[1:]), leaf.dtype), part)
    for start in range(0, length, batch_size):
        part = piece(start) if start else part
        for whole, leaf in zip(jax.tree.leaves(results), jax.tree.leaves(part), strict=True):
            whole[start : start + batch_size] = np.asarray(leaf)[: length - start]
    return results

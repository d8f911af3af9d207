"""Tasks on the device: one of them as people write it, or any number packed into one bank."""

import weakref
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float32, Int8, Int32, UInt32

from . import planes

TRAIN, TEST = 0, 1
"""Values of `episode_mode`: work on demonstration pairs, or on test pairs."""


class TaskBank(eqx.Module):
    """Any number of tasks in one set of arrays, shared by all environments of a batch.

    The pairs of all tasks stand in one table: those of task `i` begin at `first_pair[i]`, demonstrations first,
    test pairs after them. A test pair whose answer is unknown has the output size 0×0. `cumulative` holds the
    running sum of the sampling weights (see `with_weights`). `offset` is the `task_index` of the first task.
    """

    inputs: UInt32[Array, "pairs 4 rows"]
    outputs: UInt32[Array, "pairs 4 rows"]
    input_sizes: Int32[Array, "pairs 2"]
    output_sizes: Int32[Array, "pairs 2"]
    first_pair: Int32[Array, " tasks"]
    num_train: Int32[Array, " tasks"]
    num_test: Int32[Array, " tasks"]
    cumulative: Float32[Array, " tasks"]
    offset: Int32[Array, ""]
    width: int = eqx.field(static=True)
    max_pairs: int = eqx.field(static=True)

    def __len__(self) -> int:
        return self.first_pair.shape[-1]

    @property
    def height(self) -> int:
        """Rows of the canvas that the bank was packed for."""
        return self.inputs.shape[-1]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))

    def with_weights(self, weights: ArrayLike | Sequence[float]) -> "TaskBank":
        """The same tasks, drawn with these weights: non-negative, one for each task, any sum above 0.

        It works inside compiled code, and a state takes the new bank with
        `eqx.tree_at(lambda s: s.task_data, state, bank)`: nothing compiles again.
        """
        shares = weights if isinstance(weights, Tracer) else np.asarray(weights, np.float64)
        if shares.shape != self.first_pair.shape:
            raise ValueError(
                f"`weights` must hold one number for each of the {len(self)} tasks; got shape {shares.shape}."
            )
        if isinstance(shares, np.ndarray):
            if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
                raise ValueError(
                    "`weights` must be finite and not negative, and at least one above 0; "
                    f"got values from {shares.min()} to {shares.max()}."
                )
            sums = np.cumsum(shares / shares.max())
            return eqx.tree_at(lambda bank: bank.cumulative, self, jnp.asarray(sums / sums[-1], jnp.float32))
        # XLA does not add in order, so sums may wobble by a bit: a task of weight 0 must still get no interval at all.
        # And it may divide by multiplying with a reciprocal: the end must be 1, or the last task would get the rest.
        sums = jnp.cumsum(shares.astype(jnp.float32))
        sums = jax.lax.cummax(jnp.where(shares > 0, sums, jnp.float32(0)))
        parts = jnp.where(sums == sums[-1], jnp.float32(1), sums / sums[-1])
        return eqx.tree_at(lambda bank: bank.cumulative, self, parts)

    def draw_task(self, bits: UInt32[Array, ""]) -> Int32[Array, ""]:
        """The `task_index` of a task drawn by weight, from 32 random bits."""
        # 24 bits give every float32 in [0, 1) the same chance, and never 1.
        part = (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)
        row = jnp.searchsorted(self.cumulative, part, side="right", method="scan_unrolled").astype(jnp.int32)
        return jnp.minimum(row, len(self) - 1) + self.offset

    def pairs_of(self, task: Int32[Array, "*b"], mode: Int32[Array, "*b"]) -> Int32[Array, "*b"]:
        """How many demonstration (mode 0) or test pairs (mode 1) a task has."""
        row = task - self.offset
        return jnp.where(mode == TEST, self.num_test[row], self.num_train[row])

    def place_of(
        self, task: Int32[Array, "*b"], mode: Int32[Array, "*b"], pair: Int32[Array, "*b"]
    ) -> Int32[Array, "*b"]:
        """Where a pair stands in the table."""
        row = task - self.offset
        return self.first_pair[row] + jnp.where(mode == TEST, self.num_train[row], 0) + pair

    def has_pair(
        self,
        task: Int32[Array, "*b"],
        mode: Int32[Array, "*b"],
        pair: Int32[Array, "*b"],
        canvas: tuple[int, int],
    ) -> Bool[Array, "*b"]:
        """Whether a task and a pair of it are here, and both its grids fit a canvas of `(rows, columns)`."""
        row = task - self.offset
        there = (row >= 0) & (row < len(self)) & (pair >= 0) & (pair < self.pairs_of(task, mode))
        if self.height <= canvas[0] and self.width <= canvas[1]:
            return there  # whatever was packed for a smaller canvas fits: nothing to look up
        place = self.place_of(task, mode, pair)
        sizes = jnp.maximum(self.input_sizes[place], self.output_sizes[place])
        return there & (sizes <= jnp.asarray(canvas, jnp.int32)).all(-1)

    def input_at(self, place: Int32[Array, ""], rows: int) -> "Grid":
        """The input of a pair, on a canvas of `rows` rows."""
        size = self.input_sizes[place]
        return Grid(planes.fit_rows(self.inputs[place], rows), size[0], size[1])

    def output_at(self, place: Int32[Array, ""], rows: int) -> "Grid":
        """The output of a pair, on a canvas of `rows` rows."""
        size = self.output_sizes[place]
        return Grid(planes.fit_rows(self.outputs[place], rows), size[0], size[1])


class Grid(eqx.Module):
    """A grid as bit planes, with the size of its active part; every cell outside of it is 0."""

    planes: UInt32[Array, "4 rows"]
    height: Int32[Array, ""]
    width: Int32[Array, ""]

    @property
    def active(self) -> UInt32[Array, " rows"]:
        """The mask of the active part."""
        return planes.active(self.planes.shape[-1], self.height, self.width)


class JaxArcTask(eqx.Module):
    """One task: padded grids with masks, for any number of pairs.

    A mask marks the active part of its grid, which is the top-left rectangle; pairs beyond `num_train_pairs` and
    `num_test_pairs` are padding. Counts and `task_index` become int32 arrays, so that tasks of one shape share one
    compiled program.
    """

    input_grids_examples: Int8[Array, "train rows cols"]
    input_masks_examples: Bool[Array, "train rows cols"]
    output_grids_examples: Int8[Array, "train rows cols"]
    output_masks_examples: Bool[Array, "train rows cols"]
    num_train_pairs: Int32[Array, ""]
    test_input_grids: Int8[Array, "test rows cols"]
    test_input_masks: Bool[Array, "test rows cols"]
    true_test_output_grids: Int8[Array, "test rows cols"]
    true_test_output_masks: Bool[Array, "test rows cols"]
    num_test_pairs: Int32[Array, ""]
    task_index: Int32[Array, ""]

    def __init__(
        self,
        input_grids_examples: Any,
        input_masks_examples: Any,
        output_grids_examples: Any,
        output_masks_examples: Any,
        num_train_pairs: Any,
        test_input_grids: Any,
        test_input_masks: Any,
        true_test_output_grids: Any,
        true_test_output_masks: Any,
        num_test_pairs: Any,
        task_index: Any,
    ) -> None:
        train = np.shape(input_grids_examples)
        test = (*np.shape(test_input_grids)[:1], *train[1:])
        self.input_grids_examples = _grids("input_grids_examples", input_grids_examples, train)
        self.input_masks_examples = _masks("input_masks_examples", input_masks_examples, train)
        self.output_grids_examples = _grids("output_grids_examples", output_grids_examples, train)
        self.output_masks_examples = _masks("output_masks_examples", output_masks_examples, train)
        self.test_input_grids = _grids("test_input_grids", test_input_grids, test)
        self.test_input_masks = _masks("test_input_masks", test_input_masks, test)
        self.true_test_output_grids = _grids("true_test_output_grids", true_test_output_grids, test)
        self.true_test_output_masks = _masks("true_test_output_masks", true_test_output_masks, test)
        self.num_train_pairs = _count("num_train_pairs", num_train_pairs, train[0], least=1)
        self.num_test_pairs = _count("num_test_pairs", num_test_pairs, test[0], least=0)
        self.task_index = jnp.asarray(task_index, jnp.int32)

    @property
    def bank(self) -> TaskBank:
        """The task as a bank of one."""
        return as_bank(self)


def _stack(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Grids or masks as one array of this shape."""
    array = jnp.asarray(value)
    if array.ndim != 3 or array.shape[1:] != shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (pairs, height, width), the same for all; got {array.shape}."
        )
    if array.shape[0] != shape[0]:
        raise ValueError(f"`{name}` must hold {shape[0]} pairs like the inputs; got {array.shape[0]}.")
    return array


def _grids(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    cells = _stack(name, value, shape)
    if not (1 <= cells.shape[1] <= planes.MAX_SIDE and 1 <= cells.shape[2] <= planes.MAX_SIDE):
        raise ValueError(f"`{name}` must be at most 32 cells high and wide; got {cells.shape[1:]}.")
    if not jnp.issubdtype(cells.dtype, jnp.integer):
        raise TypeError(f"`{name}` must hold integers; got {cells.dtype}. Colours are 0 to 9.")
    if not isinstance(cells, Tracer) and cells.size and not (cells.min() >= -1 and cells.max() <= 9):
        raise ValueError(f"`{name}` must hold colours 0 to 9 (or −1 outside the mask); got {cells.max()}.")
    return cells.astype(jnp.int8)


def _masks(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    mask = _stack(name, value, shape).astype(bool)
    if not isinstance(mask, Tracer):
        cells = np.asarray(mask)
        rows, cols = np.asarray(cells.any(2)), np.asarray(cells.any(1))
        corner = rows[:, :, None] & cols[:, None, :]
        in_order = (np.diff(rows.astype(int)) <= 0).all() and (np.diff(cols.astype(int)) <= 0).all()
        if not (in_order and np.array_equal(corner, cells)):
            raise ValueError(f"`{name}` must mark top-left rectangles: a grid starts at row 0, column 0.")
    return mask


def _count(name: str, value: Any, slots: int, least: int) -> Array:
    count = jnp.asarray(value)
    if count.ndim or not jnp.issubdtype(count.dtype, jnp.integer):
        raise TypeError(f"`{name}` must be one integer; got {count.dtype} of shape {count.shape}.")
    if not isinstance(count, Tracer) and not least <= int(count) <= slots:
        raise ValueError(f"`{name}` must be between {least} and {slots}, the pairs given; got {int(count)}.")
    return count.astype(jnp.int32)


def as_bank(task_data: Any) -> TaskBank:
    """A bank of whatever may be passed as `task_data`: a bank, one task, or a set of tasks with a `bank`."""
    if isinstance(task_data, TaskBank):
        return task_data
    if isinstance(task_data, JaxArcTask):
        return _bank_of_one(task_data)
    if isinstance(getattr(task_data, "bank", None), TaskBank):
        return task_data.bank
    mapped = callable(getattr(task_data, "task_set", None))
    remedy = "Pass its `.task_set()`" if mapped else "Try `jaxarc.tasks.load('arc-agi-1')`"
    raise TypeError(
        "`task_data` must be a JaxArcTask, a TaskBank or a set of tasks; "
        f"got {type(task_data).__name__}. {remedy}."
    )


def _bank_of_one(task: JaxArcTask) -> TaskBank:
    slots = task.input_grids_examples.shape[0]
    # Test pairs follow the demonstrations at once: padding between them is closed by moving the test pairs up.
    order = jnp.arange(slots + task.test_input_grids.shape[0])
    order = jnp.where(order < task.num_train_pairs, order, order - task.num_train_pairs + slots)

    def pack(grids: tuple[Array, Array], masks: tuple[Array, Array]) -> tuple[Array, Array]:
        mask = jnp.concatenate(masks)
        words = planes.encode(jnp.where(mask, jnp.concatenate(grids), 0))
        sizes = jnp.stack([mask.any(2).sum(1), mask.any(1).sum(1)], axis=1).astype(jnp.int32)
        return words.at[order].get(mode="clip"), sizes.at[order].get(mode="clip")

    inputs, input_sizes = pack(
        (task.input_grids_examples, task.test_input_grids), (task.input_masks_examples, task.test_input_masks)
    )
    outputs, output_sizes = pack(
        (task.output_grids_examples, task.true_test_output_grids),
        (task.output_masks_examples, task.true_test_output_masks),
    )
    one = lambda value: jnp.asarray(value, jnp.int32).reshape(1)  # noqa: E731
    return TaskBank(
        inputs=inputs,
        outputs=outputs,
        input_sizes=input_sizes,
        output_sizes=output_sizes,
        first_pair=one(0),
        num_train=one(task.num_train_pairs),
        num_test=one(task.num_test_pairs),
        cumulative=jnp.ones(1, jnp.float32),
        offset=task.task_index,
        width=task.input_grids_examples.shape[2],
        max_pairs=max(slots, task.test_input_grids.shape[0]),
    )


def max_pairs(task_data: Any) -> int:
    """The most pairs of one mode that a task has room for."""
    if isinstance(task_data, JaxArcTask):
        return max(task_data.input_grids_examples.shape[-3], task_data.test_input_grids.shape[-3])
    return as_bank(task_data).max_pairs


def largest_size(task_data: Any) -> tuple[int, int] | None:
    """Height and width that every grid fits into; None while they are being traced."""
    whose = _sizes_of(task_data)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(task_data)):
        return None
    # Asked at every step from Python where tasks were packed for a larger canvas: looked at on the device once.
    known = _LARGEST.get(id(whose))
    if known is not None and known[0]() is whose:
        return known[1]
    largest = _largest_size(task_data)
    _remember_largest(whose, largest)
    return largest


_LARGEST: dict[int, tuple[weakref.ref, tuple[int, int]]] = {}


def same_sizes(copy: Any, original: Any) -> Any:
    """`copy`, of which is known what `largest_size` knows of `original`: nothing is looked up on the device again."""
    known = _LARGEST.get(id(_sizes_of(original)))
    if known is not None and known[0]() is _sizes_of(original):
        _remember_largest(_sizes_of(copy), known[1])
    return copy


def _sizes_of(task_data: Any) -> Array:
    single = isinstance(task_data, JaxArcTask)
    return task_data.input_masks_examples if single else as_bank(task_data).input_sizes


def _remember_largest(whose: Array, largest: tuple[int, int]) -> None:
    place = id(whose)
    _LARGEST[place] = weakref.ref(whose, lambda _: _LARGEST.pop(place, None)), largest


def _largest_size(task_data: Any) -> tuple[int, int]:
    if isinstance(task_data, JaxArcTask):
        train = np.stack([task_data.input_masks_examples, task_data.output_masks_examples])
        test = np.stack([task_data.test_input_masks, task_data.true_test_output_masks])
        masks = np.concatenate([train, test], axis=-3)
        return int(masks.any(-1).sum(-1).max(initial=0)), int(masks.any(-2).sum(-1).max(initial=0))
    bank = as_bank(task_data)
    # Padding pairs of one task may repeat real ones, never larger ones.
    sizes = [np.asarray(part).reshape(-1, 2) for part in (bank.input_sizes, bank.output_sizes)]
    largest = np.concatenate(sizes).max(0)
    return int(largest[0]), int(largest[1])


def demand_fit(task_data: Any, height: int, width: int) -> None:
    """Raise unless every grid of the tasks fits a canvas of `height` × `width` cells."""
    if isinstance(task_data, JaxArcTask):
        own = task_data.input_grids_examples.shape[-2:]
    else:
        task_data = as_bank(task_data)
        own = (task_data.height, task_data.width)
    if own[0] <= height and own[1] <= width:
        return
    largest = largest_size(task_data)
    if largest is not None and (largest[0] > height or largest[1] > width):
        raise ValueError(
            f"`task_data` holds a grid of {largest[0]}×{largest[1]} cells, and the canvas has {height}×{width}. "
            "Raise `UnifiedDatasetConfig(max_grid_height=, max_grid_width=)`, or select smaller tasks."
        )

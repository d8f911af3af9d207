"""Augmentation on the device: the eight symmetries, colour permutations and the order of demonstrations, invertible."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, Int8, Int32, PRNGKeyArray, UInt32

from jaxworlds.arguments import demand_key
from jaxworlds.checking import check
from jaxworlds.promotion import usual_promotion

from . import planes
from .bank import Grid, JaxArcTask, TaskBank, as_bank
from .parser import COLOURS

SYMMETRIES = (
    "identity",
    "rotate counter-clockwise",
    "rotate by 180°",
    "rotate clockwise",
    "flip left-right",
    "flip up-down",
    "transpose",
    "transpose the other diagonal",
)
"""The meaning of `Augmentation.symmetry`."""
KEEP_SHAPE = (0, 2, 4, 5)
"""The symmetries that do not exchange height and width."""

# Each symmetry is a transposition or none, then rows reversed or not, then columns reversed or not.
_TRANSPOSED = np.array([0, 1, 0, 1, 0, 0, 1, 1], bool)
_ROWS_REVERSED = np.array([0, 1, 1, 0, 0, 1, 0, 1], bool)
_COLUMNS_REVERSED = np.array([0, 0, 1, 1, 1, 0, 0, 1], bool)
_INVERSE = np.array([0, 3, 2, 1, 4, 5, 6, 7], np.int32)
_NARROW = (
    "A transposing symmetry needs as many rows as the grid has columns. "
    "Pass `rows=`, leave `keep_canvas` off, or draw from `symmetries=KEEP_SHAPE`."
)


class Augmentation(eqx.Module):
    """One way to see a task differently; all its grids change alike.

    `symmetry` counts in `SYMMETRIES`. Cells of colour `c` become `colours[c]`. Demonstration `i` of the new task is
    demonstration `pair_order[i]` of the old one; an empty `pair_order` leaves the order alone.
    """

    symmetry: Int32[Array, "*tasks"]
    colours: Int32[Array, "*tasks 10"]
    pair_order: Int32[Array, "*tasks slots"]


def random_augmentation(
    key: PRNGKeyArray | UInt32[Array, "2"],
    task: JaxArcTask | None = None,
    *,
    symmetries: Sequence[int] = tuple(range(8)),
    colours: bool = True,
    fixed_colours: Sequence[int] = (0,),
    pair_order: bool = True,
) -> Augmentation:
    """A random augmentation of one task, or without `task` of grids alone (their pairs keep their order).

    Every one of `symmetries` is equally likely. With `colours` all colours but `fixed_colours` change places;
    with `pair_order` the demonstrations do.
    """
    if not isinstance(task, JaxArcTask | None):
        raise TypeError(
            f"`task` must be a JaxArcTask or None; got {type(task).__name__}. "
            "For all tasks of a set use `random_augmentations(key, tasks.bank)`."
        )
    slots = 0 if task is None else task.input_grids_examples.shape[0]
    count = jnp.int32(0) if task is None else task.num_train_pairs
    return _draw(demand_key(key), count, slots, tuple(symmetries), colours, tuple(fixed_colours), pair_order)


def random_augmentations(
    key: PRNGKeyArray | UInt32[Array, "2"],
    bank: Any,
    *,
    symmetries: Sequence[int] = tuple(range(8)),
    colours: bool = True,
    fixed_colours: Sequence[int] = (0,),
    pair_order: bool = True,
) -> Augmentation:
    """A random augmentation for each task of a bank, or of a set of tasks; the arguments of `random_augmentation`."""
    bank = as_bank(bank)
    options = (tuple(symmetries), colours, tuple(fixed_colours), pair_order)
    return _draw_many(demand_key(key), bank.num_train, bank.max_pairs, *options)


@usual_promotion
@eqx.filter_jit
def inverse(augmentation: Augmentation) -> Augmentation:
    """The augmentation that undoes this one; of many at a time, if there are many."""
    return Augmentation(
        symmetry=jnp.asarray(_INVERSE)[augmentation.symmetry],
        colours=_inverse_of(augmentation.colours),
        pair_order=_inverse_of(augmentation.pair_order),
    )


def augment_grid(grid: Grid, augmentation: Augmentation, rows: int | None = None) -> Grid:
    """One grid seen through an augmentation, again in the top-left corner.

    `rows` is the number of rows of the result, by default those of the grid; a transposed grid must fit into them.
    """
    rows = grid.planes.shape[-1] if rows is None else rows
    if not isinstance(augmentation.symmetry, Tracer) and not isinstance(grid.width, Tracer):
        height = int(grid.width if _TRANSPOSED[int(augmentation.symmetry)] else grid.height)
        if height > rows:
            raise ValueError(
                f"The augmented grid is {height} rows high, and the canvas has {rows}. {_NARROW}"
            )
    return _transform(grid, augmentation, rows)


def augment_bank(bank: Any, augmentations: Augmentation, *, keep_canvas: bool = False) -> TaskBank:
    """A bank, or a set of tasks, with every task seen through its own augmentation, all pairs of a task through the same.

    The canvas becomes square, as high and wide as the longer side, so that every symmetry fits; `keep_canvas`
    leaves it as it is, and then only `KEEP_SHAPE` may be used on a canvas that is not square. Sampling weights stay.

        bank = augment_bank(bank, random_augmentations(key, bank))
    """
    bank = as_bank(bank)
    single, tasks = augmentations.symmetry.ndim == 0, len(bank)
    if single and (tasks == 1 or not augmentations.pair_order.size):
        augmentations = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (tasks, *leaf.shape)), augmentations)
    if augmentations.symmetry.shape != (tasks,):
        raise ValueError(
            f"`augmentations` must hold one for each of the {tasks} tasks; got {augmentations.symmetry.shape}. "
            "Draw them with `random_augmentations(key, bank)`."
        )
    height, width = _canvas((bank.height, bank.width), augmentations.symmetry, keep_canvas)
    return _transform_bank(bank, augmentations, height, width)


def augment_task(task: JaxArcTask, augmentation: Augmentation, *, keep_canvas: bool = False) -> JaxArcTask:
    """One task seen through an augmentation; `keep_canvas` as in `augment_bank`."""
    slots = task.input_grids_examples.shape[0]
    canvas = _canvas(task.input_grids_examples.shape[1:], augmentation.symmetry, keep_canvas)
    if augmentation.pair_order.shape not in ((0,), (slots,)):
        raise ValueError(
            f"`augmentation.pair_order` must be empty or have {slots} entries, the pair slots of the task; "
            f"got shape {augmentation.pair_order.shape}. Draw it with `random_augmentation(key, task)`."
        )
    order = augmentation.pair_order if augmentation.pair_order.size else jnp.arange(slots, dtype=jnp.int32)
    return _transform_task(task, augmentation, order, canvas)


@usual_promotion
@eqx.filter_jit
def _transform(grid: Grid, augmentation: Augmentation, rows: int) -> Grid:
    transposed = jnp.asarray(_TRANSPOSED)[augmentation.symmetry]
    height = jnp.where(transposed, grid.width, grid.height)
    width = jnp.where(transposed, grid.height, grid.width)
    height = check(height, height > rows, _NARROW)
    words = _recolour(grid, augmentation.colours)
    full = planes.fit_rows(words, planes.MAX_SIDE)
    full = jnp.where(transposed, planes.transpose(full), full)
    upside_down = planes.take_rows(full, height - 1 - jnp.arange(planes.MAX_SIDE, dtype=jnp.int32))
    full = jnp.where(jnp.asarray(_ROWS_REVERSED)[augmentation.symmetry], upside_down, full)
    mirrored = planes.shift_columns(planes.reverse_bits(full), width - planes.MAX_SIDE)
    full = jnp.where(jnp.asarray(_COLUMNS_REVERSED)[augmentation.symmetry], mirrored, full)
    return Grid(planes.fit_rows(full, rows), height, width)


@usual_promotion
@eqx.filter_jit
def _transform_bank(bank: TaskBank, each: Augmentation, height: int, width: int) -> TaskBank:
    places = jnp.arange(bank.inputs.shape[0], dtype=jnp.int32)
    task = jnp.searchsorted(bank.first_pair, places, side="right").astype(jnp.int32) - 1
    pair = places - bank.first_pair[task]
    source = places
    if each.pair_order.shape[-1]:
        slot = jnp.minimum(pair, each.pair_order.shape[-1] - 1)
        moved = bank.first_pair[task] + each.pair_order[task, slot]
        source = jnp.where(pair < bank.num_train[task], moved, places)
    own = jax.tree.map(lambda leaf: leaf[task], each)

    def transform(one: Augmentation, words: Array, size: Array) -> tuple[Array, Array]:
        new = augment_grid(Grid(words, size[0], size[1]), one, height)
        return new.planes, jnp.stack([new.height, new.width])

    # Both sides in one go: the program is half as long, and so is its compilation.
    words = jnp.stack([bank.inputs[source], bank.outputs[source]], axis=1)
    sizes = jnp.stack([bank.input_sizes[source], bank.output_sizes[source]], axis=1)
    words, sizes = jax.vmap(jax.vmap(transform, in_axes=(None, 0, 0)))(own, words, sizes)
    grids = {"inputs": words[:, 0], "outputs": words[:, 1]}
    return replace(bank, **grids, input_sizes=sizes[:, 0], output_sizes=sizes[:, 1], width=width)


@usual_promotion
@eqx.filter_jit
def _transform_task(
    task: JaxArcTask, augmentation: Augmentation, order: Int32[Array, " slots"], canvas: tuple[int, int]
) -> JaxArcTask:
    slots, tests = task.input_grids_examples.shape[0], task.test_input_grids.shape[0]
    parts = (
        (task.input_grids_examples[order], task.input_masks_examples[order]),
        (task.output_grids_examples[order], task.output_masks_examples[order]),
        (task.test_input_grids, task.test_input_masks),
        (task.true_test_output_grids, task.true_test_output_masks),
    )
    cells, masks = (jnp.concatenate(one) for one in zip(*parts, strict=True))
    cells, masks = jax.vmap(lambda c, m: _dense(augmentation, c, m, canvas))(cells, masks)
    cuts = (slots, 2 * slots, 2 * slots + tests)
    inputs, outputs, tests, answers = zip(jnp.split(cells, cuts), jnp.split(masks, cuts), strict=True)
    train = *inputs, *outputs, task.num_train_pairs
    return JaxArcTask(*train, *tests, *answers, task.num_test_pairs, task.task_index)


@usual_promotion
@eqx.filter_jit
def _draw_many(key: Array, counts: Int32[Array, " tasks"], slots: int, *options: Any) -> Augmentation:
    keys = jr.split(key, counts.shape[0])
    return jax.vmap(lambda one, count: _draw(one, count, slots, *options))(keys, counts)


@usual_promotion
@eqx.filter_jit
def _draw(
    key: Array,
    count: Int32[Array, ""],
    slots: int,
    symmetries: tuple[int, ...],
    colours: bool,
    fixed: tuple[int, ...],
    pair_order: bool,
) -> Augmentation:
    if not symmetries or not set(symmetries) <= set(range(8)):
        raise ValueError(f"`symmetries` must be some of 0 to 7, see `SYMMETRIES`; got {symmetries}.")
    if not set(fixed) <= set(range(COLOURS)):
        raise ValueError(f"`fixed_colours` must be colours 0 to 9; got {fixed}.")
    free = np.array([c for c in range(COLOURS) if c not in fixed], np.int32)
    # One draw for all, and ranks instead of sorts: a sort of ten numbers takes XLA seconds to compile on a CPU.
    bits = jr.bits(key, (1 + len(free) + slots,), jnp.uint32)
    chosen = jnp.array(symmetries, jnp.int32)[bits[0] % np.uint32(len(symmetries))]
    palette = jnp.arange(COLOURS, dtype=jnp.int32)
    if colours and len(free):
        palette = palette.at[free].set(jnp.asarray(free)[_ranks(bits[1 : 1 + len(free)])])
    order = jnp.arange(slots, dtype=jnp.int32)
    if pair_order and slots:
        # Slots past the last demonstration rank behind all others, in their order, and so stay in place.
        order = _ranks(jnp.where(order < count, bits[1 + len(free) :] >> 1, np.uint32(2**31)))
    return Augmentation(chosen, palette, order)


def _ranks(numbers: UInt32[Array, " n"]) -> Int32[Array, " n"]:
    """The place of each number in ascending order; of equal ones the earlier comes first."""
    at = np.arange(numbers.shape[0])
    before = (numbers[None, :] < numbers[:, None]) | (
        (numbers[None, :] == numbers[:, None]) & (at[None, :] < at[:, None])
    )
    return before.sum(1, dtype=jnp.int32)


def _inverse_of(permutation: Int32[Array, "*b n"]) -> Int32[Array, "*b n"]:
    at = np.arange(permutation.shape[-1], dtype=np.int32)
    return ((permutation[..., None, :] == at[:, None]) * at).sum(-1, dtype=jnp.int32)


def _recolour(grid: Grid, colours: Int32[Array, " 10"]) -> UInt32[Array, "4 rows"]:
    """The planes of a grid with its colours exchanged."""
    words, inside = grid.planes, grid.active
    result = jnp.zeros_like(words)
    for colour in range(COLOURS):
        cells = inside
        for level in range(planes.PLANES):
            cells = cells & (words[level] if colour >> level & 1 else ~words[level])
        bits = (colours[colour] >> jnp.arange(planes.PLANES, dtype=jnp.int32)) & 1
        result = result | jnp.where(bits[:, None] == 1, cells, jnp.uint32(0))
    return result


def _dense(
    augmentation: Augmentation,
    cells: Int8[Array, "rows cols"],
    mask: Bool[Array, "rows cols"],
    canvas: tuple[int, int],
) -> tuple[Int8[Array, "side side2"], Bool[Array, "side side2"]]:
    size = mask.any(1).sum(dtype=jnp.int32), mask.any(0).sum(dtype=jnp.int32)
    grid = Grid(planes.encode(jnp.where(mask, cells, 0)), *size)
    new = augment_grid(grid, augmentation, canvas[0])
    return planes.decode(new.planes, canvas[1]), planes.unpack_mask(new.active, canvas[1])


def _canvas(canvas: tuple[int, ...], symmetry: Int[Array, "*b"], keep: bool) -> tuple[int, int]:
    height, width = canvas
    if height == width or not keep:
        return max(height, width), max(height, width)
    if not isinstance(symmetry, Tracer) and _TRANSPOSED[np.asarray(symmetry)].any():
        raise ValueError(
            f"`keep_canvas` must be off for symmetries that exchange height and width, as the canvas has "
            f"{height}×{width} cells. Draw with `symmetries=KEEP_SHAPE`, or let the canvas grow."
        )
    return height, width

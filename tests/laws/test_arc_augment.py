"""Laws of augmentation: NumPy's symmetries are the oracle, and the inverse gives back every cell, size and pair."""

from typing import Any

import arc_compare
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxarc.tasks import (
    KEEP_SHAPE,
    SYMMETRIES,
    Augmentation,
    TaskSet,
    augment_bank,
    augment_grid,
    augment_task,
    inverse,
    parse_task,
    planes,
    random_augmentation,
    random_augmentations,
)
from jaxarc.tasks.bank import Grid
from jaxworlds.checking import CheckError, checking_on, clear_errors

pytestmark = pytest.mark.usefixtures("quick_compile")

ORACLE = {
    "identity": lambda m: m,
    "rotate counter-clockwise": lambda m: np.rot90(m),
    "rotate by 180°": lambda m: np.rot90(m, 2),
    "rotate clockwise": lambda m: np.rot90(m, -1),
    "flip left-right": np.fliplr,
    "flip up-down": np.flipud,
    "transpose": lambda m: m.T,
    "transpose the other diagonal": lambda m: np.rot90(m, 2).T,
}
ROWS = 32
apply_compiled = jax.jit(augment_grid)
sizes = st.integers(1, 32)
symmetries = st.integers(0, 7)
palettes = st.permutations(range(10))


def on_device(cells: np.ndarray) -> Grid:
    padded = np.zeros((ROWS, 32), np.int8)
    padded[: cells.shape[0], : cells.shape[1]] = cells
    height, width = cells.shape
    return Grid(jnp.asarray(planes.encode_host(padded)), jnp.int32(height), jnp.int32(width))


def on_host(grid: Grid) -> np.ndarray:
    cells = arc_compare.decode_host(grid.planes, 32)
    height, width = int(grid.height), int(grid.width)
    assert not cells[height:].any(), "cells outside of the active part must be 0"
    assert not cells[:, width:].any(), "cells outside of the active part must be 0"
    return cells[:height, :width]


def augmentation(symmetry: int, colours: Any = range(10), order: Any = ()) -> Augmentation:
    return Augmentation(
        jnp.int32(symmetry), jnp.array(list(colours), jnp.int32), jnp.array(list(order), jnp.int32)
    )


@given(height=sizes, width=sizes, symmetry=symmetries, colours=palettes, seed=st.integers(0, 2**16))
@settings(max_examples=150, deadline=None)
def test_a_grid_follows_numpy_and_comes_back(
    height: int, width: int, symmetry: int, colours: list[int], seed: int
) -> None:
    cells = np.random.default_rng(seed).integers(0, 10, (height, width), dtype=np.int8)
    change = augmentation(symmetry, colours)
    seen = apply_compiled(on_device(cells), change)
    assert np.array_equal(on_host(seen), ORACLE[SYMMETRIES[symmetry]](np.array(colours)[cells]))
    assert np.array_equal(on_host(apply_compiled(seen, inverse(change))), cells)


def made(canvas: tuple[int, int] = (6, 9), tasks: int = 12) -> TaskSet:
    rng = np.random.default_rng(3)

    def grid() -> list[list[int]]:
        return rng.integers(0, 10, [int(rng.integers(1, side + 1)) for side in canvas]).tolist()

    def task(name: str) -> Any:
        pairs = [{"input": grid(), "output": grid()} for _ in range(int(rng.integers(1, 6)))]
        return parse_task({"train": pairs, "test": [{"input": grid()}]}, task_id=name)

    return TaskSet.of(task(str(i)) for i in range(tasks)).with_canvas(*canvas)


@pytest.fixture(scope="module")
def some() -> TaskSet:
    return made()


@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_a_bank_comes_back(some: TaskSet, seed: int) -> None:
    square = some.with_canvas(9, 9).bank
    changes = random_augmentations(jr.key(seed), square)
    assert eqx.tree_equal(augment_bank(augment_bank(square, changes), inverse(changes)), square)
    assert eqx.tree_equal(inverse(inverse(changes)), changes)


@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_every_pair_of_a_bank_is_the_oracles(some: TaskSet, seed: int) -> None:
    changes = random_augmentations(jr.key(seed), some, fixed_colours=())
    seen = jax.tree.map(np.asarray, augment_bank(some, changes))
    for row, raw in enumerate(some):
        look = ORACLE[SYMMETRIES[int(changes.symmetry[row])]]
        palette, order = np.asarray(changes.colours[row]), np.asarray(changes.pair_order[row])
        pairs = [raw.train[order[at]] for at in range(len(raw.train))] + list(raw.test)
        assert sorted(order[: len(raw.train)]) == list(range(len(raw.train)))
        for at, pair in enumerate(pairs):
            place = int(seen.first_pair[row]) + at
            for grid, words, size in zip(
                pair, (seen.inputs, seen.outputs), (seen.input_sizes, seen.output_sizes), strict=True
            ):
                h, w = size[place]
                found = arc_compare.decode_host(words[place], seen.width)
                assert found.sum() == found[:h, :w].sum()
                if grid is None:
                    assert (h, w) == (0, 0)
                else:
                    assert np.array_equal(found[:h, :w], look(palette[grid]))


def test_a_task_and_its_row_of_the_bank_change_alike(some: TaskSet) -> None:
    changes = random_augmentations(jr.key(5), some.bank)
    seen = augment_bank(some.bank, changes)
    for row in (0, 7):
        task = some.get_task_by_index(row)
        own = jax.tree.map(lambda leaf, row=row: leaf[row], changes)
        own = eqx.tree_at(lambda c: c.pair_order, own, own.pair_order[: task.input_grids_examples.shape[0]])
        one, place = augment_task(task, own).bank, int(seen.first_pair[row])
        pairs = int(one.num_train[0] + one.num_test[0])
        for name in ("inputs", "outputs", "input_sizes", "output_sizes"):
            assert np.array_equal(getattr(one, name)[:pairs], getattr(seen, name)[place : place + pairs]), (
                name
            )
        assert int(one.offset) == row


@given(seed=st.integers(0, 2**31), row=st.integers(0, 11))
@settings(max_examples=15, deadline=None)
def test_a_task_comes_back(some: TaskSet, seed: int, row: int) -> None:
    task = some.with_canvas(9, 9).get_task_by_index(row)
    change = random_augmentation(jr.key(seed), task)
    assert eqx.tree_equal(augment_task(augment_task(task, change), inverse(change)), task)


def test_compiled_equals_eager() -> None:
    grid = on_device(np.random.default_rng(0).integers(0, 10, (5, 8), dtype=np.int8))
    change = augmentation(7, [3, 1, 0, 2, 9, 5, 8, 7, 4, 6])
    with jax.disable_jit():
        eager = augment_grid(grid, change)
    assert eqx.tree_equal(apply_compiled(grid, change), eager)


def test_draws_keep_to_what_was_asked(some: TaskSet) -> None:
    keys = jr.split(jr.key(0), 400)
    free = jax.vmap(lambda key: random_augmentation(key, fixed_colours=()))(keys)
    assert np.bincount(free.symmetry, minlength=8).min() > 20
    assert all(len(set(np.asarray(free.colours[:, c]).tolist())) == 10 for c in range(10))
    assert (np.sort(free.colours, axis=1) == np.arange(10)).all()
    options: dict[str, Any] = {"fixed_colours": (0, 5), "symmetries": KEEP_SHAPE}
    held = jax.vmap(lambda key: random_augmentations(key, some.bank, **options))(keys)
    assert set(np.asarray(held.symmetry).ravel().tolist()) == set(KEEP_SHAPE)
    assert (held.colours[..., [0, 5]] == np.array([0, 5])).all()
    assert (np.sort(held.colours, axis=-1) == np.arange(10)).all()
    three = int(np.flatnonzero(np.asarray(some.bank.num_train) == 3)[0])
    orders, seen = np.unique(np.asarray(held.pair_order)[:, three], axis=0, return_counts=True)
    assert (orders[:, 3:] == np.arange(3, orders.shape[1])).all()
    assert len(orders) == 6
    assert seen.min() > 40
    still = random_augmentation(keys[0], some.get_task_by_index(three), colours=False, pair_order=False)
    assert (still.colours == np.arange(10)).all()
    assert (still.pair_order == np.arange(some.slots[0])).all()
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"symmetries": (8,)}, "`symmetries` must be some of 0 to 7"),
        ({"symmetries": ()}, "`symmetries` must be some of 0 to 7"),
        ({"fixed_colours": (10,)}, "`fixed_colours` must be colours 0 to 9"),
    )
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            random_augmentation(jr.key(0), **options)


def test_a_canvas_that_is_not_square_grows_or_refuses(some: TaskSet) -> None:
    kept = random_augmentations(jr.key(0), some.bank, symmetries=KEEP_SHAPE)
    seen = augment_bank(some.bank, kept, keep_canvas=True)
    assert (seen.height, seen.width) == (6, 9)
    assert eqx.tree_equal(augment_bank(seen, inverse(kept), keep_canvas=True), some.bank)
    with pytest.raises(ValueError, match=r"`keep_canvas` must be off .* as the canvas has 6×9 cells"):
        augment_bank(some.bank, augmentation(6), keep_canvas=True)
    wide = Grid(jnp.zeros((4, 3), jnp.uint32), jnp.int32(2), jnp.int32(5))
    with pytest.raises(ValueError, match="is 5 rows high, and the canvas has 3"):
        augment_grid(wide, augmentation(6))
    assert augment_grid(wide, augmentation(6), rows=5).planes.shape == (4, 5)
    with checking_on(), pytest.raises(CheckError, match="needs as many rows as the grid has columns"):
        clear_errors(jax.jit(augment_grid))(wide, augmentation(6))


def test_augmentations_that_do_not_fit_are_refused(some: TaskSet) -> None:
    with pytest.raises(ValueError, match=r"one for each of the 12 tasks; got \(3,\)"):
        augment_bank(
            some.bank, jax.tree.map(lambda leaf: leaf[:3], random_augmentations(jr.key(0), some.bank))
        )
    with pytest.raises(ValueError, match=r"one for each of the 12 tasks; got \(\)"):
        augment_bank(some.bank, augmentation(0, order=range(5)))
    with pytest.raises(ValueError, match="must be empty or have"):
        augment_task(some.get_task_by_index(0), augmentation(0, order=range(9)))


def test_one_augmentation_serves_all_tasks(some: TaskSet) -> None:
    square, swap = some.with_canvas(9, 9).bank, augmentation(4, [0, 2, 1, *range(3, 10)])
    seen = augment_bank(square, swap)
    assert not eqx.tree_equal(seen, square)
    assert eqx.tree_equal(augment_bank(seen, swap), square)

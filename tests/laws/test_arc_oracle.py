"""The NumPy oracle of the ARC environment: typed-out examples of every operation, and the laws it keeps."""

import arc_oracle as oracle
import numpy as np
import pytest
from arc_oracle import Clipboard, Episode, Rules
from hypothesis import given, settings
from hypothesis import strategies as st

CANVAS = (6, 7)
NOWHERE = ("mask", np.zeros(CANVAS, bool))


def g(*rows: str) -> np.ndarray:
    """A grid from its rows of digits."""
    return np.array([[int(ch) for ch in row] for row in rows], np.int8)


def m(*rows: str, canvas: tuple[int, int] = CANVAS) -> tuple[str, np.ndarray]:
    """A mask action from rows of `x` and `.`, at the top-left of the canvas."""
    mask = np.zeros(canvas, bool)
    for r, row in enumerate(rows):
        for c, ch in enumerate(row):
            mask[r, c] = ch == "x"
    return ("mask", mask)


def run(
    operation: int,
    grid: np.ndarray,
    action: tuple,
    clipboard: Clipboard | None = None,
    source: np.ndarray | None = None,
    canvas: tuple[int, int] = CANVAS,
    rotation: str = "corner",
) -> tuple[np.ndarray, Clipboard | None, bool]:
    """`apply` for an action, with a check that no argument was changed."""
    selection = oracle.select(action, canvas)
    assert selection is not None
    source = grid if source is None else source
    kept = [grid.copy(), source.copy(), selection.copy()]
    kept += [] if clipboard is None else [clipboard.patch.copy(), clipboard.mask.copy()]
    out, clip, valid = oracle.apply(grid, clipboard, source, operation, selection, canvas, rotation)
    now = [grid, source, selection] + ([] if clipboard is None else [clipboard.patch, clipboard.mask])
    assert all(np.array_equal(a, b) for a, b in zip(kept, now, strict=True))
    assert out.dtype == np.int8
    assert out is not grid
    assert not np.shares_memory(out, grid)
    return out, clip, valid


def expect(operation: int, grid: np.ndarray, action: tuple, result: np.ndarray, **kw: object) -> None:
    """The operation is valid, gives the result and leaves the clipboard alone."""
    out, clip, valid = run(operation, grid, action, **kw)  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, result)
    assert valid
    assert clip is kw.get("clipboard")


def refuse(operation: int, grid: np.ndarray, action: tuple) -> None:
    """The operation is invalid and changes neither grid nor clipboard."""
    held = Clipboard(g("5"), np.ones((1, 1), bool))
    out, clip, valid = run(operation, grid, action, held)
    np.testing.assert_array_equal(out, grid)
    assert clip is held
    assert not valid


# Selections


def test_a_point_is_one_cell():
    np.testing.assert_array_equal(oracle.select(("point", 1, 2), (2, 4)), m("....", "..x.", canvas=(2, 4))[1])


@pytest.mark.parametrize("corners", [(0, 1, 2, 2), (2, 2, 0, 1), (0, 2, 2, 1), (2, 1, 0, 2)])
def test_a_box_is_inclusive_and_its_corners_come_in_any_order(corners):
    expected = m(".xx.", ".xx.", ".xx.", "....", canvas=(4, 4))[1]
    np.testing.assert_array_equal(oracle.select(("bbox", *corners), (4, 4)), expected)


def test_a_mask_selects_itself_and_is_copied():
    _, mask = m("x.x", ".x.")
    selection = oracle.select(("mask", mask), CANVAS)
    assert selection is not None
    np.testing.assert_array_equal(selection, mask)
    assert not np.shares_memory(selection, mask)


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("value", [-1, "limit", 1000])
def test_every_coordinate_must_lie_on_the_canvas(position, value):
    value = CANVAS[position % 2] if value == "limit" else value
    corners = [0, 0, 0, 0]
    corners[position] = value
    assert oracle.select(("bbox", *corners), CANVAS) is None
    if position < 2:
        assert oracle.select(("point", *corners[:2]), CANVAS) is None


def test_the_last_cell_of_the_canvas_is_on_it():
    selection = oracle.select(("point", 5, 6), CANVAS)
    assert selection is not None
    assert oracle.cells_of(selection) == [(5, 6)]


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="canvas' shape"):
        oracle.select(("mask", np.zeros((2, 2), bool)), CANVAS)


# Painting


@pytest.mark.parametrize("colour", range(10))
def test_fill(colour):
    grid = g("123", "456")
    expected = grid.copy()
    expected[0, 1] = expected[1, 1] = colour
    expect(colour, grid, ("bbox", 0, 1, 1, 1), expected)


def test_fill_scattered_and_clipped_to_the_active_grid():
    expect(7, g("123", "456"), m("x.xx", ".x.x", "xxxx"), g("727", "476"))
    expect(7, g("11", "11"), ("bbox", 1, 1, 5, 6), g("11", "17"))


def test_fill_of_nothing_is_valid_and_changes_nothing():
    expect(7, g("12", "34"), NOWHERE, g("12", "34"))


@pytest.mark.parametrize("action", [("point", 4, 4), ("bbox", 2, 0, 5, 6), m("...x", "..x.")])
@pytest.mark.parametrize("operation", range(32))
def test_a_selection_off_the_grid_is_none_and_not_everything(operation, action):
    refuse(operation, g("12", "34"), action)


@pytest.mark.parametrize("action", [("point", 4, 4), ("bbox", 2, 0, 5, 6), m("...x", "..x.")])
def test_off_the_grid_counts_where_the_canvas_is_meant_or_no_selection_needed(action):
    expect(32, g("1"), action, g("23"), source=g("23"))
    assert run(33, g("1"), action)[2]
    env = episode(control_operations=True)
    assert env.step(36, action)["valid"]
    assert env.step(34, action)["valid"]


@pytest.mark.parametrize("colour", range(10))
def test_flood_takes_the_component_and_not_its_diagonal_neighbours(colour):
    c = str(colour)
    grid = g("3300", "0330", "0003", "3300")
    expected = g(f"{c}{c}00", f"0{c}{c}0", "0003", "3300")
    expect(10 + colour, grid, ("point", 0, 0), expected)


def test_flood_of_a_spiral_and_of_its_own_colour():
    spiral = g("22222", "00002", "22202", "20002", "22222")
    expect(15, spiral, ("point", 2, 0), g("55555", "00005", "55505", "50005", "55555"))
    expect(12, spiral, ("point", 2, 0), spiral)
    expect(10, spiral, ("point", 0, 0), np.zeros((5, 5), np.int8))


def test_flood_stays_in_the_active_grid_whose_outside_is_no_colour():
    expect(14, g("010", "010"), ("point", 0, 0), g("410", "410"))


def test_flood_needs_exactly_one_active_cell():
    grid = g("11", "12")
    refuse(13, grid, NOWHERE)
    refuse(13, grid, ("bbox", 0, 0, 0, 1))
    refuse(13, grid, ("point", 4, 4))
    expect(13, grid, m("..x", ".x.", "xxx"), g("11", "13"))


# Moving and turning


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (20, g("1511", "0000", "0000", "3333")),
        (21, g("1111", "0000", "0500", "3333")),
        (22, g("1111", "5000", "0000", "3333")),
        (23, g("1111", "0050", "0000", "3333")),
    ],
)
def test_move_one_cell_overwrites_and_leaves_zero(operation, result):
    expect(operation, g("1111", "0500", "0000", "3333"), ("point", 1, 1), result)


@pytest.mark.parametrize(
    ("operation", "result"),
    [(20, g("456", "000")), (21, g("000", "123")), (22, g("230", "560")), (23, g("012", "045"))],
)
@pytest.mark.parametrize("action", [NOWHERE, ("bbox", 0, 0, 1, 2)])
def test_moving_nothing_or_everything_moves_the_active_grid_and_loses_the_edge(operation, result, action):
    expect(operation, g("123", "456"), action, result)


def test_moving_a_scattered_selection_moves_only_its_cells_and_carries_colour_zero():
    expect(23, g("1234", "5678"), m("x.x.", ".x.."), g("0103", "5068"))
    expect(21, g("0", "9"), ("point", 0, 0), g("0", "0"))


def test_a_cell_at_the_border_is_lost():
    expect(22, g("12", "34"), ("point", 1, 0), g("12", "04"))
    expect(23, g("12", "34"), ("bbox", 0, 1, 1, 6), g("10", "30"))


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (24, g("741", "852", "963")),
        (25, g("369", "258", "147")),
        (26, g("321", "654", "987")),
        (27, g("789", "456", "123")),
    ],
)
@pytest.mark.parametrize("action", [NOWHERE, ("bbox", 0, 0, 2, 2)])
def test_turning_a_whole_square(operation, result, action):
    expect(operation, g("123", "456", "789"), action, result)


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (24, g("0000", "0410", "0520", "0630")),
        (25, g("0000", "0360", "0250", "0140")),
        (26, g("0000", "0321", "0654", "0000")),
        (27, g("0000", "0456", "0123", "0000")),
    ],
)
def test_turning_a_rectangle_inside_the_grid_keeps_its_top_left(operation, result):
    expect(operation, g("0000", "0123", "0456", "0000"), ("bbox", 1, 1, 2, 3), result)


def test_rotation_overwrites_what_it_lands_on_and_leaves_zero_where_it_stood():
    expect(24, g("123", "777", "777"), ("bbox", 0, 0, 0, 2), g("100", "277", "377"))
    expect(25, g("123", "777", "777"), ("bbox", 0, 0, 0, 2), g("300", "277", "177"))


def test_rotation_is_clipped_to_the_active_grid():
    expect(24, g("123", "456"), NOWHERE, g("410", "520"))
    expect(25, g("123", "456"), NOWHERE, g("360", "250"))
    expect(24, g("12", "34", "56"), NOWHERE, g("53", "64", "00"))
    expect(24, g("00", "00", "12"), ("bbox", 2, 0, 2, 1), g("00", "00", "10"))


def test_rotation_of_a_mask_moves_only_its_cells_within_their_bounding_box():
    grid = g("1299", "3999", "9999")
    expect(24, grid, m("xx..", "x..."), g("3199", "0299", "9999"))
    expect(25, grid, m("xx..", "x..."), g("2099", "1399", "9999"))
    expect(24, g("1299", "9993", "9999", "9999"), m("xx..", "...x"), g("0199", "9290", "9999", "3999"))


def test_flip_of_a_mask_moves_only_its_cells_within_their_bounding_box():
    grid = g("9999", "9124", "9399")
    shape = m("....", ".xx.", ".x..")
    expect(26, grid, shape, g("9999", "9214", "9039"))
    expect(27, grid, shape, g("9999", "9304", "9129"))


def test_a_turned_colour_zero_overwrites_too():
    expect(26, g("0777", "7771"), m("x...", "...x"), g("0770", "1770"))


# Clipboard


def test_copy_takes_the_bounding_box_and_its_mask_colour_zero_included():
    grid = g("1020", "3405", "6789")
    out, clip, valid = run(28, grid, m(".xx", "x..."))
    assert valid
    assert clip is not None
    np.testing.assert_array_equal(out, grid)
    np.testing.assert_array_equal(clip.patch, g("002", "300"))
    np.testing.assert_array_equal(clip.mask, [[False, True, True], [True, False, False]])
    assert clip.patch.dtype == np.int8


def test_cut_copies_and_leaves_zero():
    out, clip, valid = run(30, g("12", "34"), ("bbox", 0, 1, 1, 5))
    assert valid
    assert clip is not None
    np.testing.assert_array_equal(out, g("10", "30"))
    np.testing.assert_array_equal(clip.patch, g("2", "4"))
    assert clip.mask.shape == (2, 1)
    assert clip.mask.all()


@pytest.mark.parametrize("operation", [28, 30])
@pytest.mark.parametrize("action", [NOWHERE, ("point", 2, 0), ("point", 0, 2)])
def test_copy_and_cut_of_nothing_are_invalid(operation, action):
    refuse(operation, g("12", "34"), action)


def test_a_new_copy_replaces_the_clipboard():
    held = Clipboard(g("55", "55"), np.ones((2, 2), bool))
    _, clip, _ = run(28, g("12", "34"), ("point", 1, 0), held)
    assert clip is not None
    np.testing.assert_array_equal(clip.patch, g("3"))


def test_paste_puts_the_patch_at_the_selections_top_left():
    held = Clipboard(g("12", "34"), np.ones((2, 2), bool))
    expect(29, g("9999", "9999", "9999"), ("point", 1, 1), g("9999", "9129", "9349"), clipboard=held)
    expect(29, g("9999", "9999", "9999"), ("bbox", 2, 3, 0, 2), g("9912", "9934", "9999"), clipboard=held)


def test_paste_anchors_at_the_corner_of_the_masks_bounding_box_even_where_it_is_not_selected():
    held = Clipboard(g("5"), np.ones((1, 1), bool))
    expect(29, g("999", "999", "999"), m("...", "..x", ".x."), g("999", "959", "999"), clipboard=held)


def test_paste_writes_only_masked_cells_and_writes_colour_zero():
    held = Clipboard(g("10", "02"), np.array([[True, True], [False, True]]))
    expect(29, g("999", "999"), ("point", 0, 0), g("109", "929"), clipboard=held)


def test_an_oversized_paste_is_clipped_to_the_active_grid():
    held = Clipboard(np.arange(1, 10, dtype=np.int8).reshape(3, 3), np.ones((3, 3), bool))
    expect(29, g("00", "00"), ("point", 0, 0), g("12", "45"), clipboard=held)
    expect(29, g("00", "00"), ("point", 1, 1), g("00", "01"), clipboard=held)


def test_paste_with_nothing_to_paste_or_nowhere_to_paste_it_does_nothing():
    held = Clipboard(g("5"), np.ones((1, 1), bool))
    expect(29, g("12"), ("point", 0, 0), g("12"))
    expect(29, g("12"), NOWHERE, g("12"), clipboard=held)
    refuse(29, g("12"), ("point", 1, 0))


# Clear, copy input, resize


def test_clear_takes_the_selection_or_everything():
    expect(31, g("123", "456"), m("x.x", ".x."), g("020", "406"))
    expect(31, g("123", "456"), NOWHERE, g("000", "000"))
    refuse(31, g("123", "456"), ("point", 5, 6))


def test_copy_input_brings_its_size():
    expect(32, g("1"), ("point", 0, 0), g("23", "45", "67"), source=g("23", "45", "67"))
    expect(32, g("1111", "1111"), NOWHERE, g("2"), source=g("2"))


def test_resize_grows_with_zero_and_keeps_content():
    expect(33, g("12", "34"), ("point", 2, 3), g("1200", "3400", "0000"))
    expect(33, g("12", "34"), ("bbox", 5, 6, 0, 0), np.pad(g("12", "34"), ((0, 4), (0, 5))))


def test_resize_shrinks_and_may_do_both():
    expect(33, g("123", "456", "789"), ("point", 0, 1), g("12"))
    expect(33, g("123", "456"), ("bbox", 2, 0, 1, 0), g("1", "4", "0"))
    expect(33, g("123", "456"), ("point", 0, 0), g("1"))
    expect(33, g("12", "34"), ("point", 1, 1), g("12", "34"))


def test_resize_by_a_mask_ends_at_the_last_row_and_the_last_column():
    expect(33, g("12", "34"), m("...x", "....", ".x.."), g("1200", "3400", "0000"))


def test_resize_to_nothing_is_invalid():
    refuse(33, g("12", "34"), NOWHERE)


def test_what_was_cut_off_does_not_come_back():
    small, _, _ = run(33, g("123", "456"), ("point", 0, 0))
    expect(33, small, ("point", 1, 2), g("100", "000"))


@pytest.mark.parametrize("operation", [-1, 34, 35, 42])
def test_apply_knows_only_the_grid_operations(operation):
    with pytest.raises(ValueError, match=r"0\.\.33"):
        oracle.apply(g("1"), None, g("1"), operation, np.zeros(CANVAS, bool), CANVAS)


# Similarity


@pytest.mark.parametrize(
    ("grid", "target", "share", "right"),
    [
        (g("12", "34"), g("12", "34"), 1.0, True),
        (g("12", "30"), g("12", "34"), 3 / 4, False),
        (g("120", "340", "000"), g("12", "34"), 4 / 9, False),
        (g("1"), g("12", "34"), 1 / 4, False),
        (g("111"), g("1", "1"), 1 / 4, False),
        (g("0"), g("1"), 0.0, False),
        (g("000"), g("0"), 1 / 3, False),
    ],
)
def test_similarity_counts_the_union(grid, target, share, right):
    found = oracle.similarity(grid, target)
    assert found.dtype == np.float32
    assert found == np.float32(share)
    assert oracle.similarity(target, grid) == found
    assert oracle.solved(grid, target) is right
    assert (found == 1) is np.bool_(right)


# Episodes


TRAIN_PAIRS = [(g("10"), g("12")), (g("0", "3"), g("3", "3")), (g("444"), g("444"))]
TEST_PAIRS = [(g("50"), g("55")), (g("6"), g("66"))]
HERE = ("point", 0, 0)


def episode(mode: int = 0, pair: int = 0, test: list = TEST_PAIRS, **rules: object) -> Episode:
    return Episode(TRAIN_PAIRS, test, Rules(canvas=CANVAS, **rules), mode, pair)  # type: ignore[arg-type]


def f32(value: float) -> object:
    return pytest.approx(value, abs=1e-6)


def test_an_episode_starts_from_the_pairs_input():
    env = episode(1, 1)
    np.testing.assert_array_equal(env.grid, g("6"))
    assert (env.mode, env.pair, env.step_count, env.attempts, env.clipboard) == (1, 1, 0, 0, None)
    assert not env.done
    assert env.similarity == np.float32(0.5)
    with pytest.raises(ValueError, match="pair"):
        episode(0, 3)


def test_painting_and_submitting_the_answer_succeeds():
    env = episode()
    painted = env.step(2, ("point", 0, 1))
    assert painted["reward"] == f32(0.5 - 0.01)
    assert painted["similarity"] == 1
    assert not painted["success"]
    assert not painted["done"]
    last = env.step(34, HERE)
    assert last["reward"] == f32(10 - 0.01)
    assert last["success"]
    assert last["terminated"]
    assert not last["truncated"]
    assert last["valid"]
    assert env.step_count == 2
    assert last["reward"].dtype == np.float32


def test_spoiling_costs_similarity():
    assert episode().step(9, HERE)["reward"] == f32(-0.5 - 0.01)


def test_test_mode_pays_only_for_the_submission():
    env = episode(1, 0)
    assert env.step(5, ("point", 0, 1))["reward"] == f32(-0.01)
    assert env.step(34, NOWHERE)["reward"] == f32(9.99)
    assert env.success


def test_a_wrong_submission_ends_the_episode_at_the_last_attempt():
    env = episode()
    out = env.step(34, HERE)
    assert out["reward"] == f32(-1.01)
    assert out["terminated"]
    assert out["valid"]
    assert not out["success"]
    env = episode(max_attempts=2)
    assert not env.step(34, HERE)["done"]
    assert env.attempts == 1
    env.step(2, ("point", 0, 1))
    assert env.step(34, HERE)["success"]
    env = episode(max_attempts=2)
    env.step(34, HERE)
    assert env.step(34, HERE)["terminated"]
    assert not env.success


def test_an_answer_of_the_wrong_size_is_wrong():
    env = episode()
    env.step(2, ("point", 0, 1))
    env.step(33, ("point", 1, 1))
    assert env.similarity == np.float32(0.5)
    assert not env.step(34, HERE)["success"]


def test_the_step_limit_truncates_unless_the_last_step_terminates():
    env = episode(max_episode_steps=2)
    assert not env.step(2, ("point", 0, 1))["done"]
    out = env.step(2, ("point", 0, 1))
    assert out["truncated"]
    assert out["done"]
    assert not out["terminated"]
    env = episode(max_episode_steps=2)
    env.step(2, ("point", 0, 1))
    out = env.step(34, HERE)
    assert out["terminated"]
    assert not out["truncated"]


@pytest.mark.parametrize("operation", [0, 32, 34, 99])
def test_a_finished_episode_stays_as_it_is(operation):
    env = episode(max_episode_steps=1, max_attempts=5)
    first = env.step(9, HERE)
    kept = env.grid.copy()
    after = env.step(operation, HERE)
    assert after == first | {"reward": 0, "valid": False}
    np.testing.assert_array_equal(env.grid, kept)
    assert env.attempts == 0
    assert len(env.history) == 1


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        (-1, HERE),
        (35, HERE),
        (41, HERE),
        (42, HERE),
        (1, HERE),  # not allowed below
        (9, ("point", -1, 0)),
        (9, ("bbox", 0, 0, 0, 7)),
        (34, ("point", 6, 0)),
        (32, ("point", 0, 7)),
        (10, NOWHERE),
        (28, NOWHERE),
        (30, ("point", 3, 3)),
        (33, NOWHERE),
    ],
)
def test_invalid_actions_count_as_a_step_and_change_nothing_else(operation, action):
    env = episode(allowed_operations=tuple(i for i in range(-5, 50) if i != 1))
    out = env.step(operation, action)
    assert out["valid"] is False
    assert out["reward"] == f32(-0.01)
    assert out["step_count"] == 1
    assert not out["done"]
    np.testing.assert_array_equal(env.grid, g("10"))
    assert env.clipboard is None
    assert not env.wrong
    assert env.history[-1]["valid"] is False


def test_the_clipboard_lives_through_the_episode_and_history_tells_all():
    env = episode()
    env.step(28, HERE)
    env.step(29, ("point", 0, 1))
    np.testing.assert_array_equal(env.grid, g("11"))
    assert [(h["operation"], h["time"], h["pair"], h["valid"]) for h in env.history] == [
        (28, 0, 0, True),
        (29, 1, 0, True),
    ]


# Control operations


@pytest.mark.parametrize(
    ("start", "operation", "end"),
    [
        ((0, 0), 35, (0, 1)),
        ((0, 2), 35, (0, 0)),
        ((1, 1), 35, (0, 0)),
        ((0, 1), 36, (0, 0)),
        ((0, 0), 36, (0, 2)),
        ((1, 0), 36, (0, 2)),
        ((1, 0), 37, (1, 1)),
        ((1, 1), 37, (1, 0)),
        ((0, 2), 37, (1, 0)),
        ((1, 1), 38, (1, 0)),
        ((1, 0), 38, (1, 1)),
        ((0, 0), 38, (1, 1)),
        ((0, 2), 39, (0, 2)),
        ((1, 1), 39, (1, 1)),
        ((0, 2), 40, (0, 0)),
        ((1, 1), 40, (0, 0)),
        ((1, 1), 41, (1, 0)),
        ((0, 1), 41, (1, 0)),
    ],
)
def test_control_operations_load_the_pairs_input(start, operation, end):
    env = episode(*start, control_operations=True)
    env.step(28, HERE)
    spoiled = env.step(33, ("point", 4, 4))["reward"]
    held = env.clipboard
    out = env.step(operation, HERE)
    assert out["valid"]
    assert out["reward"] + spoiled == f32(-0.02)  # what was lost, or gained, is given back
    assert (env.mode, env.pair) == end == (out["mode"], out["pair"])
    np.testing.assert_array_equal(env.grid, (TRAIN_PAIRS, TEST_PAIRS)[end[0]][end[1]][0])
    assert env.clipboard is (None if operation == 39 else held)
    assert out["similarity"] == oracle.similarity(env.grid, env.target)


@pytest.mark.parametrize("operation", [37, 38, 41])
def test_without_test_pairs_there_is_no_way_to_one(operation):
    env = episode(test=[], control_operations=True)
    env.step(9, HERE)
    out = env.step(operation, HERE)
    assert not out["valid"]
    np.testing.assert_array_equal(env.grid, g("90"))
    assert (env.mode, env.pair) == (0, 0)


def test_a_control_operation_needs_its_coordinates_on_the_canvas_and_its_permission():
    assert not episode(control_operations=True).step(35, ("point", 6, 0))["valid"]
    assert not episode(control_operations=True, allowed_operations=(0, 34)).step(35, HERE)["valid"]
    assert not episode(control_operations=True).step(42, HERE)["valid"]


def test_wrong_attempts_belong_to_their_pair():
    env = episode(control_operations=True, max_attempts=2)
    env.step(34, HERE)
    env.step(35, HERE)
    assert env.attempts == 0
    env.step(34, HERE)
    assert not env.done
    env.step(36, HERE)
    assert env.attempts == 1
    assert env.step(34, HERE)["terminated"]


def test_solve_all_ends_when_every_pair_of_the_mode_is_solved():
    env = episode(control_operations=True, solve="all", max_attempts=2)
    env.step(2, ("point", 0, 1))
    first = env.step(34, HERE)
    assert first["valid"]
    assert first["reward"] == f32(-0.01)
    assert not first["done"]
    again = env.step(34, HERE)
    assert not again["valid"]
    env.step(9, HERE)
    assert not env.step(34, HERE)["valid"]
    assert env.attempts == 0
    env.step(40, HERE)
    assert env.pair == 1
    env.step(3, HERE)
    env.step(34, HERE)
    env.step(40, HERE)
    assert env.pair == 2
    last = env.step(34, HERE)
    assert last["success"]
    assert last["terminated"]
    assert last["reward"] == f32(9.99)


def test_solving_one_mode_counts_for_that_mode_only():
    env = episode(1, 0, control_operations=True, solve="all")
    env.step(5, ("point", 0, 1))
    env.step(34, HERE)
    assert env.solved == {(1, 0)}
    env.step(40, HERE)
    assert (env.mode, env.pair) == (0, 0)
    env.step(41, HERE)
    assert (env.mode, env.pair) == (1, 1)
    env.step(33, ("point", 0, 1))
    env.step(6, ("point", 0, 1))
    assert env.step(34, HERE)["success"]


def test_only_pairs_of_the_episodes_mode_are_scored():
    for start, operation, answer in ((1, 36, None), (0, 37, 5)):
        env = episode(start, 0, control_operations=True)
        env.step(operation, HERE)
        if answer is None:
            assert oracle.solved(env.grid, env.target)  # that demonstration's input is its answer
        else:
            assert env.step(answer, ("point", 0, 1))["similarity"] == 1
        out = env.step(34, HERE)
        assert (out["valid"], out["success"], out["done"]) == (False, False, False)
        assert out["reward"] == f32(-0.01)
        assert not env.wrong
        assert not env.solved


def test_a_guest_on_a_demonstration_earns_nothing():
    env = episode(1, 0, control_operations=True)
    env.step(35, HERE)
    out = env.step(2, ("point", 0, 1))
    assert out["similarity"] == 1
    assert out["reward"] == f32(-0.01)


def test_what_was_gained_is_given_back_unless_the_pair_is_solved():
    env = episode(control_operations=True, solve="all", max_attempts=9)
    for operation in (39, 35, 37, 40):
        assert env.step(2, ("point", 0, 1))["reward"] == f32(0.5 - 0.01)
        assert env.step(operation, HERE)["reward"] == f32(-0.5 - 0.01)
        env.step(40, HERE)
        assert env.pair == 0
    env.step(2, ("point", 0, 1))
    env.step(34, HERE)
    assert env.step(35, HERE)["reward"] == f32(-0.01)  # solved: the gain stays
    assert env.step(3, HERE)["reward"] == f32(0.5 - 0.01)
    assert env.step(36, HERE)["reward"] == f32(-0.5 - 0.01)
    assert env.step(2, ("point", 0, 1))["reward"] == f32(-0.01)  # and is not earned again


def test_all_solved_leaves_no_first_unsolved_pair():
    env = episode(1, 0, control_operations=True, solve="all")
    env.solved = {(0, 0), (0, 1), (0, 2)}
    assert not env.step(40, HERE)["valid"]
    assert (env.mode, env.pair) == (1, 0)


def test_solve_all_needs_control_operations():
    with pytest.raises(ValueError, match="control_operations"):
        Rules(solve="all")
    with pytest.raises(ValueError, match="solve"):
        Rules(solve="some")


# Laws


def grids(max_side: int = 9, colours: int = 10) -> st.SearchStrategy[np.ndarray]:
    """Grids of any size up to the side, drawn by a seed."""

    def build(height: int, width: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, colours, (height, width)).astype(np.int8)

    sides = st.integers(1, max_side)
    return st.builds(build, sides, sides, st.integers(0, 2**32 - 1))


@st.composite
def grid_and_box(draw: st.DrawFn, square: bool = False) -> tuple[np.ndarray, tuple]:
    grid = draw(grids())
    height, width = grid.shape
    if square:
        side = draw(st.integers(1, min(height, width)))
        top, left = draw(st.integers(0, height - side)), draw(st.integers(0, width - side))
        return grid, ("bbox", top, left, top + side - 1, left + side - 1)
    rows, cols = st.integers(0, height - 1), st.integers(0, width - 1)
    return grid, ("bbox", draw(rows), draw(cols), draw(rows), draw(cols))


LAW_CANVAS = (9, 9)
law = settings(max_examples=60, deadline=None)


def repeat(operations: list[int], grid: np.ndarray, action: tuple) -> np.ndarray:
    clipboard = None
    out = grid
    for operation in operations:
        out, clipboard, valid = run(operation, out, action, clipboard, canvas=LAW_CANVAS)
        assert valid
    return out


@law
@given(grid_and_box(square=True))
def test_four_rotations_of_a_full_square_are_the_identity(case):
    grid, box = case
    for operations in ([24] * 4, [25] * 4, [24, 25], [25, 24], [24, 24, 26, 27]):
        np.testing.assert_array_equal(repeat(operations, grid, box), grid)


@law
@given(grid_and_box(), st.sampled_from([24, 25]))
def test_a_rotation_about_the_center_loses_nothing_and_is_undone_by_the_other(case, operation):
    """An object on an empty grid: it stays whole, or the rotation is invalid; turned back it is where it was."""
    grid, (_, *corners) = case
    (top, bottom), (left, right) = sorted(corners[::2]), sorted(corners[1::2])
    field = np.zeros_like(grid)
    field[top : bottom + 1, left : right + 1] = grid[top : bottom + 1, left : right + 1] % 9 + 1
    box = ("bbox", *corners)
    turned, _, valid = run(operation, field, box, canvas=LAW_CANVAS, rotation="center")
    if not valid:
        np.testing.assert_array_equal(turned, field)
        return
    assert sorted(turned[turned > 0]) == sorted(field[field > 0])
    rows, cols = np.nonzero(turned)
    landed = ("bbox", rows.min(), cols.min(), rows.max(), cols.max())
    middle = lambda a, b, c, d: np.array([a + c, b + d]) / 2  # noqa: E731
    assert np.abs(middle(*landed[1:]) - middle(top, left, bottom, right)).max() <= 0.5
    back, _, valid = run(49 - operation, turned, landed, canvas=LAW_CANVAS, rotation="center")
    assert valid
    np.testing.assert_array_equal(back, field)


def test_rotations_about_the_center_by_hand():
    cross = g("00000", "00100", "00200", "00300", "00000")
    turned = run(24, cross, ("bbox", 1, 2, 3, 2), rotation="center")[0]
    np.testing.assert_array_equal(turned, g("00000", "00000", "03210", "00000", "00000"))
    edge = g("100", "200", "300")
    out, _, valid = run(24, edge, ("bbox", 0, 0, 2, 0), rotation="center")
    assert not valid
    np.testing.assert_array_equal(out, edge)
    expect(24, edge, ("bbox", 0, 0, 2, 0), g("321", "000", "000"))
    # Without a selection the whole grid turns, if it is a square.
    np.testing.assert_array_equal(run(24, g("12", "34"), NOWHERE, rotation="center")[0], g("31", "42"))
    assert not run(24, g("123", "456"), NOWHERE, rotation="center")[2]


@law
@given(grid_and_box())
def test_two_flips_of_a_full_rectangle_are_the_identity(case):
    grid, box = case
    for operation in (26, 27):
        np.testing.assert_array_equal(repeat([operation] * 2, grid, box), grid)


@law
@given(grid_and_box(square=True))
def test_turns_of_a_square_are_numpys(case):
    grid, box = case
    _, top, left, bottom, right = box
    inside = (slice(top, bottom + 1), slice(left, right + 1))
    turns = {24: lambda a: np.rot90(a, -1), 25: np.rot90, 26: np.fliplr, 27: np.flipud}
    for operation, numpys in turns.items():
        expected = grid.copy()
        expected[inside] = numpys(grid[inside])
        np.testing.assert_array_equal(repeat([operation], grid, box), expected)


@law
@given(grids(), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.5, 1.0]))
def test_cut_then_paste_at_the_same_place_is_the_identity(grid, seed, density):
    height, width = grid.shape
    mask = np.random.default_rng(seed).random(LAW_CANVAS) < density
    mask[height - 1, width - 1] = True
    np.testing.assert_array_equal(repeat([28, 29], grid, ("mask", mask)), grid)
    cut, clipboard, _ = run(30, grid, ("mask", mask), canvas=LAW_CANVAS)
    assert not cut[mask[:height, :width]].any()
    back, _, _ = run(29, cut, ("mask", mask), clipboard, canvas=LAW_CANVAS)
    np.testing.assert_array_equal(back, grid)


@law
@given(grids(colours=3), st.data())
def test_flood_agrees_with_scipys_labels(grid, data):
    ndimage = pytest.importorskip("scipy.ndimage")
    r = data.draw(st.integers(0, grid.shape[0] - 1))
    c = data.draw(st.integers(0, grid.shape[1] - 1))
    labels, _ = ndimage.label(grid == grid[r, c])
    expected = np.where(labels == labels[r, c], 7, grid)
    out, _, valid = run(17, grid, ("point", r, c), canvas=LAW_CANVAS)
    assert valid
    np.testing.assert_array_equal(out, expected)


@law
@given(grids(), grids())
def test_similarity_is_one_exactly_when_solved(grid, target):
    assert 0 <= oracle.similarity(grid, target) <= 1
    assert (oracle.similarity(grid, target) == 1) == oracle.solved(grid, target)


# The random actions


@pytest.mark.parametrize("fmt", ["point", "bbox", "mask"])
def test_random_episodes_keep_the_invariants(fmt):
    rng = np.random.default_rng(5)
    rules = Rules(canvas=(8, 6), max_episode_steps=40, max_attempts=3, control_operations=True, solve="all")
    for _ in range(20):
        env = Episode(TRAIN_PAIRS, TEST_PAIRS, rules, int(rng.integers(2)), int(rng.integers(2)))
        while not env.done:
            before = (env.grid.copy(), env.clipboard, env.mode, env.pair, dict(env.wrong), set(env.solved))
            out = env.step(*oracle.random_action(rng, rules.canvas, fmt, range(42), env.grid.shape))
            assert env.grid.dtype == np.int8
            assert 1 <= env.grid.shape[0] <= 8
            assert 1 <= env.grid.shape[1] <= 6
            assert env.grid.min() >= 0
            assert env.grid.max() <= 9
            assert np.isfinite(out["reward"])
            if not out["valid"]:
                np.testing.assert_array_equal(env.grid, before[0])
                assert (env.clipboard, env.mode, env.pair, env.wrong, env.solved) == before[1:]
        assert env.step_count <= 40


@pytest.mark.parametrize("fmt", ["point", "bbox", "mask"])
def test_random_actions_are_a_good_mixture(fmt):
    rng = np.random.default_rng(11)
    canvas, size, draws = (12, 10), (6, 7), 3000
    drawn = [oracle.random_action(rng, canvas, fmt, range(35), size) for _ in range(draws)]
    operations = np.array([operation for operation, _ in drawn])
    assert set(range(35)) <= set(operations.tolist())
    assert 0.02 < np.mean((operations < 0) | (operations > 34)) < 0.06
    counts = {"off": 0, "empty": 0, "partly": 0, "beside": 0, "one": 0, "full": 0, "holes": 0, "reversed": 0}
    for _, action in drawn:
        assert action[0] == fmt
        selection = oracle.select(action, canvas)
        if selection is None:
            counts["off"] += 1
            continue
        inside = int(selection[:6, :7].sum())
        total = int(selection.sum())
        counts["empty"] += total == 0
        counts["beside"] += total > 0 and inside == 0
        counts["partly"] += 0 < inside < total
        counts["one"] += inside == 1
        counts["full"] += inside == 42
        if fmt == "bbox":
            counts["reversed"] += action[1] > action[3] or action[2] > action[4]
        if total:
            _, _, bh, bw = oracle.bounding_box(oracle.cells_of(selection))
            counts["holes"] += total < bh * bw
    wanted = {
        "point": {"off", "beside", "one"},
        "bbox": {"off", "beside", "partly", "one", "full", "reversed"},
        "mask": {"empty", "beside", "partly", "one", "full", "holes"},
    }[fmt]
    assert {name for name, count in counts.items() if count > 0.02 * draws} == wanted
    assert {name for name, count in counts.items() if count} == wanted


def test_random_actions_refuse_an_unknown_format():
    with pytest.raises(ValueError, match="fmt"):
        oracle.random_action(np.random.default_rng(0), (5, 5), "line", range(35), (5, 5))

"""Pictures of grids, pairs, tasks, steps and episodes: what is in the files is what was given."""

import io
import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import jaxarc.utils.visualization as seeing
from jaxarc.utils.visualization import EpisodeRecord, PairRecord, StepRecord
from jaxarc.utils.visualization.colors import ARC_COLORS, COLOR_NAMES, arc_palette, color_rgb, readable_ink
from jaxarc.utils.visualization.panels import shown_steps, step_panels, task_pairs
from jaxarc.utils.visualization.records import grid_cells, operation_name
from jaxarc.utils.visualization.scene import MARGIN, edges

pytestmark = pytest.mark.usefixtures("quick_compile")

SVG = "{http://www.w3.org/2000/svg}"
RNG = np.random.default_rng(0)
GRID = RNG.integers(0, 10, (5, 7)).astype(np.int8)


def selection(rows, cols, canvas=(30, 30)):
    mask = np.zeros(canvas, bool)
    mask[rows, cols] = True
    return mask


def make_step(before, after, operation=3, where=None, **changes):
    facts = {"reward": 0.25, "similarity": 0.5, "valid": True, "terminated": False, "truncated": False}
    facts |= {"success": False, "pair_index": 0, **changes}
    chosen = selection(slice(1, 3), slice(0, 2)) if where is None else where
    return StepRecord(operation, chosen, before, after, **facts)


def make_episode(steps=6, shape=(5, 7), mode="train", seed=0, name="task <&> 7"):
    """Random boxes painted one after the other, ended by a submit."""
    rng = np.random.default_rng(seed)
    start, target = rng.integers(0, 10, (2, *shape)).astype(np.int8)
    grid, made = start, []
    for t in range(steps):
        r, c = rng.integers(0, shape[0]), rng.integers(0, shape[1])
        where = selection(slice(r, r + 3), slice(c, c + 2))
        last = t == steps - 1
        after, color = grid.copy(), int(rng.integers(0, 10))
        if not last:
            after[r : r + 3, c : c + 2] = color
        facts = {"similarity": float(np.mean(after == target)), "valid": t % 3 != 1, "terminated": last}
        made.append(make_step(grid, after, 34 if last else color, where, reward=0.1 * t - 0.2, **facts))
        grid = after
    return EpisodeRecord(name, mode, start, target if mode == "train" else None, tuple(made))


# --- colours and grids ---


def test_the_palette_is_the_official_one():
    assert len(ARC_COLORS) == len(COLOR_NAMES) == 10
    assert COLOR_NAMES[2] == "red"
    np.testing.assert_array_equal(arc_palette()[[0, 1, 9]], [(0, 0, 0), (0, 116, 217), (135, 12, 37)])
    assert [readable_ink(c) for c in (0, 4)] == ["white", "black"]
    from jaxarc.utils.visualization.callbacks import ARC_COLORS as old_home

    assert old_home is ARC_COLORS


def test_a_grid_is_cut_to_its_active_size_whichever_way_it_is_given():
    padded = np.full((30, 30), -1, np.int8)
    padded[:5, :7] = GRID
    mask = padded >= 0
    for cells in (
        grid_cells(GRID),
        grid_cells(GRID.tolist()),
        grid_cells(padded),
        grid_cells(np.where(mask, padded, 0), mask),
    ):
        np.testing.assert_array_equal(cells, GRID)
    assert grid_cells(np.full((3, 3), -1)).shape == grid_cells([[]]).shape == (0, 0)
    holes = grid_cells([[1, 2], [3, 4]], [[True, False], [True, True]])
    np.testing.assert_array_equal(holes, [[1, -1], [3, 4]])


def test_wrong_grids_are_refused_by_name():
    with pytest.raises(ValueError, match=r"colours 0 to 9.*got 12 at row 1, column 0"):
        seeing.grid_svg([[1, 2], [12, 4]])
    with pytest.raises(ValueError, match="`mask` must have the shape"):
        seeing.grid_svg(GRID, [[True]])
    with pytest.raises(ValueError, match="whole numbers in rows and columns"):
        seeing.grid_png(np.zeros((2, 2, 2), np.int8))
    with pytest.raises(ValueError, match="`selection` must have rows"):
        seeing.grid_svg(GRID, selection=np.zeros(3, bool))
    with pytest.raises(ValueError, match="`scale` must be at least 1"):
        seeing.grid_png(GRID, scale=0)
    with pytest.raises(TypeError, match="`task` must be"):
        seeing.task_svg(5)
    with pytest.raises(ValueError, match="`max_steps` must be at least 1"):
        seeing.episode_svg(make_episode(), max_steps=0)


def test_operations_have_names():
    assert [operation_name(i) for i in (0, 13, 34)] == ["fill 0", "flood 3", "submit"]
    assert operation_name(99) == "unknown operation 99"


def test_edges_go_around_the_marked_cells():
    marked = np.array([[1, 1], [0, 1]], bool)
    around = {tuple(line) for line in edges(marked, inner=False).tolist()}
    assert around == {(0, 0, 2, 0), (0, 1, 1, 1), (1, 2, 2, 2), (0, 0, 0, 1), (1, 1, 1, 2), (2, 0, 2, 2)}
    inside = {tuple(line) for line in edges(marked, inner=True).tolist()}
    assert inside - around == {(0, 1, 2, 1), (1, 0, 1, 2)}
    assert edges(np.zeros((2, 2), bool), inner=True).shape == (0, 4)


# --- SVG ---


def areas(svg, cell):
    """Cells of each colour that an SVG draws, from the rectangles of its paths."""
    found = Counter()
    for path in ET.fromstring(svg).iter(f"{SVG}path"):
        if path.get("class") == "cells":
            for _, _, width, height in re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)", path.attrib["d"]):
                assert int(height) == cell
                found[path.attrib["fill"]] += int(width) // cell
    return found


def colors_of(*grids):
    return Counter(ARC_COLORS[c] for grid in grids for c in np.asarray(grid).ravel() if c >= 0)


def words(svg):
    return [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]


def kinds(svg):
    return Counter(path.get("class") for path in ET.fromstring(svg).iter(f"{SVG}path"))


def test_a_grid_as_svg_holds_every_cell_once_and_nothing_outside():
    padded = np.full((30, 30), -1, np.int8)
    padded[:5, :7] = GRID
    svg = seeing.grid_svg(padded, title='a "title" <&>', selection=selection(1, 2), cell=10)
    root = ET.fromstring(svg)
    assert areas(svg, 10) == colors_of(GRID)
    assert root.find(f"{SVG}title").text == 'a "title" <&> 5×7'
    assert words(svg) == ['a "title" <&> 5×7']
    assert kinds(svg)["selection"] == kinds(svg)["grid"] == 1
    assert int(root.get("viewBox").split()[3]) == 2 * MARGIN + 12 + 50
    (outline,) = [p for p in root.iter(f"{SVG}path") if p.get("class") == "selection"]
    x, y = MARGIN + 20, MARGIN + 12 + 10
    assert set(re.findall(r"M(\d+) (\d+)([HV])(\d+)", outline.get("d"))) == {
        (str(x), str(y), "H", str(x + 10)),
        (str(x), str(y + 10), "H", str(x + 10)),
        (str(x), str(y), "V", str(y + 10)),
        (str(x + 10), str(y), "V", str(y + 10)),
    }


def test_text_that_xml_cannot_hold_does_not_break_the_svg():
    svg = seeing.grid_svg(GRID, title="bad \x00\x1b ]]> &amp;")
    assert words(svg) == ["bad \ufffd\ufffd ]]> &amp; 5×7"]


def test_masked_cells_inside_a_grid_are_not_drawn():
    mask = np.ones(GRID.shape, bool)
    mask[2, 3] = False
    assert areas(seeing.grid_svg(GRID, mask, cell=6), 6) == colors_of(np.where(mask, GRID, -1))


TASK = {
    "train": [
        {"input": [[1, 2]], "output": [[3], [3]]},
        {"input": [[4]], "output": [[5, 5, 5]]},
    ],
    "test": [{"input": [[6, 6]], "output": [[9, 9], [9, 9]]}],
}


def padded_task():
    """The same task with the fields of the guides, padded to 4×4."""

    def stack(grids):
        cells, masks = np.zeros((3, 4, 4), np.int8), np.zeros((3, 4, 4), bool)
        for i, grid in enumerate(grids):
            height, width = np.shape(grid)
            cells[i, :height, :width], masks[i, :height, :width] = grid, True
        return cells, masks

    made = {}
    for part, side, name in (
        ("train", "input", "input_{}_examples"),
        ("train", "output", "output_{}_examples"),
        ("test", "input", "test_input_{}"),
        ("test", "output", "true_test_output_{}"),
    ):
        cells, masks = stack([pair[side] for pair in TASK[part]])
        made |= {name.format("grids"): cells, name.format("masks"): masks}
    return SimpleNamespace(**made, num_train_pairs=np.int32(2), num_test_pairs=np.int32(1))


@pytest.mark.parametrize(
    "task",
    [
        TASK,
        padded_task(),
        SimpleNamespace(**{part: [tuple(pair.values()) for pair in pairs] for part, pairs in TASK.items()}),
    ],
    ids=["json", "jaxarc", "tuples"],
)
def test_a_task_shows_its_pairs_and_hides_the_answers_of_its_tests(task):
    shown = [pair[side] for pair in TASK["train"] for side in ("input", "output")] + [
        TASK["test"][0]["input"]
    ]
    svg = seeing.task_svg(task, title="t", cell=5)
    assert areas(svg, 5) == sum((colors_of(grid) for grid in shown), Counter())
    assert ARC_COLORS[9] not in areas(svg, 5)
    assert words(svg)[:3] == ["t", "train 1 input 1×2", "output 2×1"]
    assert areas(seeing.task_svg(task, answers=True, cell=5), 5)[ARC_COLORS[9]] == 4
    assert [name for name, *_ in task_pairs(task)] == ["train 1", "train 2", "test 1"]
    assert len(ET.fromstring(seeing.task_svg({"train": [], "test": []}))) == 2


def test_a_pair_and_a_step_as_svg():
    other = (GRID + 1) % 10
    assert areas(seeing.pair_svg(GRID, other, cell=8), 8) == colors_of(GRID, other)
    assert areas(seeing.pair_svg(GRID, None, cell=8), 8) == colors_of(GRID)
    svg = seeing.step_svg(make_step(GRID, other, valid=False), title="step 3", target=GRID, cell=8)
    assert areas(svg, 8) == colors_of(GRID, other, GRID)
    assert words(svg)[:3] == ["step 3: fill 3", "reward +0.250 · similarity 0.500 · invalid", "before 5×7"]
    assert kinds(svg)["selection"] == 1


def test_only_resize_shows_what_is_selected_outside_of_the_grid():
    where = selection(slice(0, 8), slice(0, 9))
    resize, fill = (make_step(GRID, GRID, op, where) for op in (33, 3))
    assert step_panels(resize)[0].cells.shape == (8, 9)
    assert step_panels(resize)[0].selection.sum() == 72
    assert step_panels(fill)[0].cells.shape == GRID.shape


def test_an_episode_as_svg_shows_the_puzzle_and_every_step():
    episode = make_episode(6)
    svg = seeing.episode_svg(episode, cell=4)
    assert areas(svg, 4) == colors_of(episode.input, episode.target, *(s.after for s in episode.steps))
    assert words(svg)[0] == "task <&> 7 (train)"
    assert f"6 {operation_name(34)}" in words(svg)
    assert kinds(svg)["curve"] == 1
    test = make_episode(6, mode="test")
    assert areas(seeing.episode_svg(test, cell=4), 4) == colors_of(test.input, *(s.after for s in test.steps))
    assert words(seeing.episode_svg(make_episode(0)))[1] == "unfinished · 0 steps · reward +0.000"


def test_long_episodes_show_evenly_spread_steps():
    assert shown_steps(5, 10) == [0, 1, 2, 3, 4]
    assert shown_steps(500, 1) == [499]
    chosen = shown_steps(500, 60)
    assert (len(chosen), chosen[0], chosen[-1]) == (60, 0, 499)
    assert max(np.diff(chosen)) <= 9
    svg = seeing.episode_svg(make_episode(30), max_steps=10)
    assert "10 of 30 steps" in words(svg)


# --- PNG ---


def png_frames(data):
    """The frames of a PNG file as RGB, each composed as a viewer would; and every checksum proven."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert chunks[-1][0] == b"IEND"
    width, height, *format = struct.unpack(">IIBBBBB", chunks[0][1])
    assert format == [8, 3, 0, 0, 0]
    palette = np.frombuffer(dict(chunks)[b"PLTE"], np.uint8).reshape(-1, 3)
    frames, shown, place = [], np.zeros((height, width), np.uint8), (width, height, 0, 0)
    sequence = []
    for kind, body in chunks:
        if kind == b"fcTL":
            number, *place = struct.unpack(">IIIII", body[:20])
            sequence.append(number)
        if kind in (b"IDAT", b"fdAT"):
            if kind == b"fdAT":
                sequence.append(struct.unpack(">I", body[:4])[0])
            pixels = zlib.decompress(body if kind == b"IDAT" else body[4:])
            w, h, x, y = place
            rows = np.frombuffer(pixels, np.uint8).reshape(h, w + 1)
            assert not rows[:, 0].any()
            shown = shown.copy()
            shown[y : y + h, x : x + w] = rows[:, 1:]
            frames.append(palette[shown])
    assert sequence == list(range(len(sequence)))
    assert len(frames) == struct.unpack(">II", dict(chunks).get(b"acTL", struct.pack(">II", 1, 0)))[0]
    return frames


def centres(picture, shape, cell, x=MARGIN, y=MARGIN):
    """Colours in the middle of each cell of a grid whose corner is at (x, y)."""
    rows, cols = (cell * np.arange(n) + cell // 2 for n in shape)
    return picture[np.ix_(y + rows, x + cols)]


@pytest.mark.parametrize("scale", [1, 3])
def test_a_grid_as_png_has_the_colours_of_its_cells(scale):
    (picture,) = png_frames(seeing.grid_png(GRID, cell=10, scale=scale))
    size = tuple(scale * (2 * MARGIN + 10 * n) for n in GRID.shape)
    assert picture.shape == (*size, 3)
    found = centres(picture, GRID.shape, 10 * scale, scale * MARGIN, scale * MARGIN)
    np.testing.assert_array_equal(found, arc_palette()[GRID])
    assert (picture[0, 0] == 255).all()


def test_padding_stays_paper_and_the_selection_is_outlined_in_the_png():
    cells = np.where(np.arange(7) < 4, GRID, -1)
    (picture,) = png_frames(seeing.grid_png(cells, cell=10, scale=1))
    assert picture.shape[1] == 2 * MARGIN + 40
    holes = GRID.copy()
    holes[2, 2] = -1
    (picture,) = png_frames(seeing.grid_png(holes, cell=10, scale=1, selection=selection(0, 1)))
    assert centres(picture, GRID.shape, 10)[2, 2].tolist() == [255, 255, 255]
    edge = picture[MARGIN : MARGIN + 11, MARGIN + 10]
    assert (edge == 255).all()  # the white line on the left of the selected cell
    assert (
        picture[MARGIN : MARGIN + 11, MARGIN + 8 : MARGIN + 10] != 255
    ).any()  # and the dark one beside it


def test_titles_are_written_in_the_png():
    plain = png_frames(seeing.grid_png(GRID, cell=20, scale=1))[0]
    titled = png_frames(seeing.grid_png(GRID, cell=20, scale=1, title="Ünknown glyphs"))[0]
    assert titled.shape[0] == plain.shape[0] + 12
    heading = titled[MARGIN : MARGIN + 8, MARGIN:]
    ink = (heading == color_rgb("#222222")).all(-1)
    assert 60 < ink.sum() < 500
    np.testing.assert_array_equal(titled[MARGIN + 12 :, : plain.shape[1]], plain[MARGIN:])


def test_pairs_tasks_steps_and_episodes_as_png():
    other = np.full((3, 3), 7, np.int8)
    episode = make_episode(4)
    orange, nine = color_rgb(ARC_COLORS[7]), color_rgb(ARC_COLORS[9])

    def pixels(data, color):
        (picture,) = png_frames(data)
        return int((picture == color).all(-1).sum())

    assert pixels(seeing.pair_png(np.zeros((2, 2), np.int8), other, cell=10), orange) > 9 * 18**2
    assert pixels(seeing.pair_png(np.zeros((2, 2), np.int8), None, cell=10), orange) == 0
    assert pixels(seeing.step_png(make_step(np.zeros((2, 2), np.int8), other), cell=10), orange) > 9 * 18**2
    assert pixels(seeing.task_png(TASK, cell=10), nine) == 0
    assert pixels(seeing.task_png(TASK, cell=10, answers=True), nine) > 4 * 18**2
    count = sum(
        int((grid == 7).sum()) for grid in (episode.input, episode.target, *(s.after for s in episode.steps))
    )
    shown = pixels(seeing.episode_png(episode, cell=10), orange)
    assert 0.6 * 400 * count < shown <= 400 * count  # outlines cover some


def test_the_animation_plays_the_start_and_every_step():
    episode = make_episode(5)
    frames = png_frames(seeing.episode_animation(episode, cell=6, scale=1, delay_ms=100))
    assert len(frames) == 6
    assert len({frame.shape for frame in frames}) == 1
    # Panels stand in a row: input, before, after, target; each as wide as its title of 12 letters at least.
    y, width = MARGIN + 3 * 12 + 4 + 12, max(7 * 6, 12 * 6)
    first = max(7 * 6, 6 * len("input 5×7"))
    x_after = MARGIN + first + 14 + width + 14
    for number, frame in enumerate(frames):
        grid = episode.input if number == 0 else episode.steps[number - 1].after
        np.testing.assert_array_equal(centres(frame, grid.shape, 6, x_after, y), arc_palette()[grid])
    still = EpisodeRecord("x", "train", GRID, GRID, (make_step(GRID, GRID), make_step(GRID, GRID)))
    assert len(png_frames(seeing.episode_animation(still))) == 3
    assert len(png_frames(seeing.episode_animation(make_episode(0)))) == 1


# --- HTML ---


def page_data(page):
    (data,) = re.findall(r'<script type="application/json" id="episode">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def unroll(text):
    return "".join(symbol * int(length or 1) for symbol, length in re.findall(r"([a-jx.])(\d*)", text))


def page_grids(data):
    """The grids of a page, decoded as its script does."""
    grids = []
    for height, width, text in data["grids"]:
        cells = np.array([-1 if c == "." else ord(c) - 97 for c in unroll(text)], np.int8).reshape(
            height, width
        )
        if "." in text:
            assert grids[-1].shape == cells.shape
            cells = np.where(cells < 0, grids[-1], cells)
        grids.append(cells)
    return grids


@pytest.mark.parametrize("mode", ["train", "test"])
def test_the_replay_holds_every_step_and_decodes_to_the_same_grids(mode, tmp_path):
    episode = make_episode(40, (9, 11), mode)
    page = seeing.episode_html(episode, tmp_path / "deep" / "episode.html")
    assert "const RESIZE = 33;" in page
    assert (tmp_path / "deep" / "episode.html").read_text(encoding="utf-8") == page
    data = page_data(page)
    grids = page_grids(data)
    assert len(data["steps"]) == 40
    for row, step in zip(data["steps"], episode.steps, strict=True):
        operation, before, after, (height, width, text), reward, similarity, flags, pair = row
        assert data["operations"][str(operation)] == operation_name(step.operation)
        np.testing.assert_array_equal(grids[before], step.before)
        np.testing.assert_array_equal(grids[after], step.after)
        marked = np.array([c == "x" for c in unroll(text)]).reshape(height, width)
        np.testing.assert_array_equal(marked, step.selection)
        assert (reward, similarity) == pytest.approx((step.reward, step.similarity), abs=1e-5)
        assert (flags, pair) == (step.valid + 2 * step.terminated + 8 * step.success, 0)
    shown, index, start, target = data["pairs"][0]
    assert (shown, index) == (mode, 0)
    np.testing.assert_array_equal(grids[start], episode.input)
    if mode == "test":
        assert target is None
    else:
        np.testing.assert_array_equal(grids[target], episode.target)


def test_the_replay_is_one_file_that_no_name_can_break():
    page = seeing.episode_html(make_episode(2, name="</script><b>@DATA@"))
    assert "<title>&lt;/script&gt;&lt;b&gt;" in page
    assert page.count("</script>") == 2
    assert not re.search(r"https?://|src=|@import|fetch\(", page)
    assert page_data(page)["task"] == "</script><b>@DATA@"
    for part in ('id="slider"', 'id="play"', "ArrowLeft", "prefers-color-scheme", 'id="curve"'):
        assert part in page


def test_a_long_episode_makes_a_small_page_and_other_pairs_are_in_it():
    assert len(seeing.episode_html(make_episode(500, (30, 30)))) < 200_000
    pair = PairRecord("test", 1, (GRID + 1) % 10, None)
    steps = (
        make_step(GRID, GRID, reward=float("nan")),
        make_step(GRID, pair.input, 37, pair=pair, pair_index=1),
    )
    data = page_data(seeing.episode_html(EpisodeRecord("x", "train", GRID, GRID, steps)))
    assert [row[:2] for row in data["pairs"]] == [["train", 0], ["test", 1]]
    np.testing.assert_array_equal(page_grids(data)[data["pairs"][1][2]], pair.input)
    assert [row[7] for row in data["steps"]] == [0, 1]
    assert data["steps"][0][4] is None


def test_how_an_episode_ended_in_words():
    end = make_step(GRID, GRID)

    def outcome(**changes):
        step = StepRecord(**{**vars(end), **changes})
        return EpisodeRecord("x", "train", GRID, GRID, (end, step)).outcome

    assert outcome(success=True, terminated=True) == "solved"
    assert outcome(terminated=True) == "failed"
    assert outcome(truncated=True) == "out of steps"
    assert outcome() == "unfinished"
    episode = make_episode(3)
    assert (episode.length, episode.success) == (3, False)
    assert episode.total_reward == pytest.approx(-0.2 - 0.1 + 0.0)


# --- the terminal ---


def terminal(width=80, colors=True):
    system = "truecolor" if colors else None
    return Console(file=io.StringIO(), force_terminal=colors, color_system=system, width=width)


def shown(print_it, *args, width=80, colors=True, **kwargs):
    console = terminal(width, colors)
    print_it(*args, console=console, **kwargs)
    return console.file.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


BIG = RNG.integers(0, 10, (30, 30)).astype(np.int8)


def test_a_large_grid_takes_60_columns_in_its_colours():
    out = shown(seeing.print_grid, BIG, title="Grid", selection=selection(0, 1))
    lines = plain(out)
    assert lines[0] == "Grid 30×30"
    assert [len(line) for line in lines[1:]] == [60] * 30
    assert lines[1].strip() == "[]"
    assert lines[1].index("[]") == 2
    r, g, b = color_rgb(ARC_COLORS[int(BIG[0, 0])])
    assert f"48;2;{r};{g};{b}m  " in out.splitlines()[1]


def test_large_pairs_tasks_and_steps_fit_80_columns():
    task = {
        "train": [{"input": BIG, "output": BIG}, {"input": GRID, "output": BIG}],
        "test": [{"input": BIG}],
    }
    for colors in (True, False):
        for out in (
            shown(seeing.print_pair, BIG, BIG, colors=colors),
            shown(seeing.print_task, task, title="t", colors=colors),
            shown(seeing.print_step, make_step(BIG, BIG), title="step 1:", colors=colors),
        ):
            assert max(map(len, plain(out))) <= 80


def test_a_pair_is_wide_then_half_then_stacked():
    def lines(width):
        return plain(shown(seeing.print_pair, BIG, BIG, width=width))

    assert (len(lines(122)), max(map(len, lines(122)))) == (31, 122)
    half = lines(80)
    assert (len(half), half[1]) == (16, "▀" * 30 + "  " + "▀" * 30)
    stacked = lines(61)
    assert (len(stacked), max(map(len, stacked))) == (62, 60)
    tiny = lines(40)
    assert (len(tiny), tiny[1]) == (32, "▀" * 30)
    assert lines(20) == tiny  # too narrow for any look: the smallest one, not folded


def test_half_blocks_carry_both_rows_and_pale_selections():
    grid = np.array([[1, 2], [3, 4], [5, 6]], np.int8)
    out = shown(seeing.print_grid, np.pad(grid, ((0, 0), (0, 60)), mode="edge"), selection=selection(0, 0))
    first = out.splitlines()[1]
    pale = ";".join(str((c + 255) // 2) for c in color_rgb(ARC_COLORS[1]))
    green = ";".join(map(str, color_rgb(ARC_COLORS[3])))
    assert first.startswith(f"\x1b[38;2;{pale};48;2;{green}m▀")
    assert plain(out)[2] == "▀" * 62
    assert "48;2" not in out.splitlines()[2]  # an odd number of rows: no cell below the last one


def test_without_colours_the_cells_are_digits_and_selected_ones_are_starred():
    mask = np.array([[1, 1], [1, 0]], bool)
    out = shown(seeing.print_grid, [[1, 2], [3, 4]], mask, selection=selection(1, 0), colors=False)
    assert out == "Grid 2×2\n 1 2\n*3 .\n"
    pair = plain(shown(seeing.print_pair, BIG, BIG, colors=False))
    assert pair[1] == "".join(map(str, BIG[0])) + "  " + "".join(map(str, BIG[0]))
    out = shown(seeing.print_pair, [[1, 2]], [[3]], title="P", colors=False)
    assert out == "P\ninput 1×2  output 1×1\n 1 2        3\n"


def test_a_step_says_what_was_done_where_and_what_came_of_it():
    lines = plain(
        shown(seeing.print_step, make_step(GRID, GRID, valid=False, truncated=True), title="step 4:")
    )
    assert lines[0] == "step 4: fill 3 on 4 cells in rows 1–2, columns 0–1"
    assert lines[1] == "reward +0.250 · similarity 0.500 · invalid · truncated"
    assert lines[2].split() == ["before", "5×7", "after", "5×7"]
    assert lines[4].startswith("[][]")
    one = make_step(GRID, GRID, where=selection(2, 3))
    assert plain(shown(seeing.print_step, one))[0] == "fill 3 on cell (2, 3)"
    none = make_step(GRID, GRID, where=np.zeros((5, 7), bool), success=True, terminated=True)
    assert plain(shown(seeing.print_step, none, target=GRID))[0] == "fill 3 on nothing selected"
    assert shown(seeing.print_episode, make_episode(3), colors=False) == (
        f"task <&> 7 (train): failed · 3 steps · reward -0.300 · similarity {make_episode(3).final_similarity:.3f}\n"
    )


def test_renderables_take_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(len(line) for line in seeing.render_pair(BIG, BIG).plain.splitlines()) == 62
    assert max(len(line) for line in seeing.render_grid(BIG, title="g").plain.splitlines()) == 60
    assert seeing.render_task(TASK).plain.startswith("train 1 input 1×2")
    assert seeing.render_step(make_step(BIG, BIG)).plain.startswith("fill 3 on 4 cells")


def test_a_padded_grid_logged_from_compiled_code_fits_80_columns(capsys):
    padded = np.full((30, 30), -1, np.int8)
    padded[:2, :2] = 5
    seeing.log_grid_to_console(padded)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == " 5 5" + " ." * 28
    assert max(map(len, lines)) == 60


def test_episode_summaries_are_coloured_on_a_terminal(monkeypatch, capsys):
    def make(file):
        return Console(file=file, force_terminal=True, color_system="standard")

    monkeypatch.setattr("rich.console.Console", make)
    seeing.jax_log_episode_summary(1, 2, 0.5, 0.25, True)
    seeing.jax_log_episode_summary(2, 2, 0.5, 0.25, False)
    from jaxworlds.taps import flush_taps

    flush_taps(5.0)
    out = capsys.readouterr().out
    assert "\x1b[32msuccess" in out
    assert "\x1b[31mfailure" in out

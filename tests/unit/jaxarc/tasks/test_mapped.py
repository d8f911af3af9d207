"""Task files: what was written comes back task by task, and no damaged byte goes unnoticed."""

import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest

from jaxarc.tasks import (
    MappedTasks,
    RawTask,
    TaskError,
    TaskSet,
    as_bank,
    load,
    mapped,
    open_task_file,
    write_task_file,
)
from jaxworlds.store import StoreError

pytestmark = pytest.mark.usefixtures("quick_compile")

COUNT = 40


def made(rng: np.random.Generator, name: str) -> RawTask:
    def grid() -> np.ndarray:
        return rng.integers(0, 10, rng.integers(1, 9, 2), dtype=np.int8)

    train = tuple((grid(), grid()) for _ in range(int(rng.integers(1, 5))))
    test = tuple((grid(), grid() if rng.random() < 0.7 else None) for _ in range(int(rng.integers(0, 3))))
    return RawTask(name, train, test, "made")


def tasks(count: int = COUNT) -> Iterator[RawTask]:
    rng = np.random.default_rng(0)
    return (made(rng, f"tâche-{i}") for i in range(count))


def same(a: RawTask, b: RawTask) -> bool:
    pairs = zip((*a.train, *a.test), (*b.train, *b.test), strict=True)
    grids = [(x, y) for one, other in pairs for x, y in zip(one, other, strict=True)]
    return (a.id, len(a.train)) == (b.id, len(b.train)) and all(
        (x is None) == (y is None) and (x is None or np.array_equal(x, y)) for x, y in grids
    )


@pytest.fixture(scope="module")
def in_memory() -> TaskSet:
    splits = {"training": range(30), "evaluation": range(30, COUNT)}
    return TaskSet.of(tasks(), name="made", version="7", splits=splits)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, in_memory: TaskSet) -> Path:
    file = tmp_path_factory.mktemp("mapped") / "new folder" / "made.arcbank"
    assert write_task_file(in_memory, file) == COUNT
    return file


def test_a_file_holds_what_the_set_held(path: Path, in_memory: TaskSet) -> None:
    found = open_task_file(path, verify=True)
    assert (len(found), found.ids, found.canvas, found.slots) == (
        COUNT,
        in_memory.ids,
        in_memory.canvas,
        in_memory.slots,
    )
    assert (found.name, found.version, found.content_hash) == ("made", "7", in_memory.content_hash)
    assert all(same(found.raw(row), task) for row, task in enumerate(in_memory))
    assert [rows.tolist() for rows in found.splits.values()] == [
        rows.tolist() for rows in in_memory.splits.values()
    ]
    assert os.listdir(path.parent) == ["made.arcbank"]


def test_single_tasks_equal_those_of_the_set(path: Path, in_memory: TaskSet) -> None:
    found = open_task_file(path)
    for row in (0, 17, COUNT - 1):
        assert eqx.tree_equal(found.get_task(row), in_memory.get_task_by_index(row))
    batch = found.get_batch_tasks([3, "tâche-9"])
    assert [int(task.task_index) for task in batch] == [3, 9]
    assert eqx.tree_equal(batch[1], found.get_task_by_id("tâche-9"))
    assert eqx.tree_equal(found.get_batch_tasks(np.array([5]))[0], found.get_task_by_index(5))


def test_banks_of_some_tasks_and_of_all(path: Path, in_memory: TaskSet) -> None:
    found = open_task_file(path)
    assert eqx.tree_equal(found.bank(), in_memory.bank)
    rows = [12, 3, 30]
    assert eqx.tree_equal(found.bank(rows), in_memory.subset(rows).with_canvas(*found.canvas).bank)
    assert found.bank(["tâche-4"]).height == found.canvas[0]
    with pytest.raises(ValueError, match="must name at least one task"):
        found.bank([])


def test_a_file_loads_as_a_set(path: Path, in_memory: TaskSet) -> None:
    whole = load(path)
    assert whole.content_hash == in_memory.content_hash
    assert len(load(path, "evaluation")) == 10
    assert open_task_file(path).task_set([7, 2]).ids == ("tâche-7", "tâche-2")


def test_lookup_names_what_is_missing(path: Path) -> None:
    found = open_task_file(path)
    assert [found.index_of(found.id_of(row)) for row in range(COUNT)] == list(range(COUNT))
    with pytest.raises(TypeError, match=r"`index` must be a whole number; got 1\.9\."):
        found.get_task(1.9)
    with pytest.raises(TypeError, match=r"got MappedTasks\. Pass its `\.task_set\(\)`"):
        as_bank(found)
    with pytest.raises(ValueError, match=r"one of the 40 ids in .*; got 'nobody'"):
        found.get_task("nobody")
    for row in (COUNT, -1):
        with pytest.raises(ValueError, match=f"from 0 to 39, the tasks in the file; got {row}"):
            found.get_task(row)


def test_writing_streams_and_counts(tmp_path: Path) -> None:
    counts: list[int] = []
    assert write_task_file(tasks(5), tmp_path / "x.arcbank", progress=counts.append) == 5
    assert counts == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="must hold at least one task"):
        write_task_file([], tmp_path / "y.arcbank")
    with pytest.raises(TaskError, match=r"'tâche-0' comes twice"):
        write_task_file([*tasks(3), *tasks(1)], tmp_path / "y.arcbank")
    grid = np.zeros((2, 2), np.int8)
    for wrong in (grid + 11, grid[0], np.zeros((33, 1), np.int8), np.zeros((0, 1), np.int8)):
        with pytest.raises(TaskError, match=r"task 'w': must have train pairs, and grids of at most 32×32"):
            write_task_file([RawTask("w", ((grid, wrong),), ())], tmp_path / "y.arcbank")
    with pytest.raises(TaskError, match=r"task 'w': must have train pairs"):
        write_task_file([RawTask("w", (), ((grid, grid),))], tmp_path / "y.arcbank")
    assert os.listdir(tmp_path) == ["x.arcbank"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.arcbank"
    write_task_file(tasks(2), file)

    def failing() -> Iterator[RawTask]:
        yield from tasks(1)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        write_task_file(failing(), file)
    assert len(open_task_file(file, verify=True)) == 2


def test_equal_hashes_of_different_ids_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxarc.tasks import task_file

    for module in (task_file, mapped):
        monkeypatch.setattr(module, "id_hash", lambda task_id: 7)
    write_task_file(tasks(4), tmp_path / "x.arcbank")
    found = open_task_file(tmp_path / "x.arcbank")
    assert [found.index_of(f"tâche-{row}") for row in range(4)] == [0, 1, 2, 3]


def damaged(path: Path, tmp_path: Path, at: int, value: bytes) -> Path:
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    file = tmp_path / "damaged.arcbank"
    file.write_bytes(content)
    return file


def part(path: Path, key: str) -> dict[str, Any]:
    from jaxarc.tasks.task_file import read_header

    return read_header(path)["parts"][key]


def test_foreign_and_cut_files_are_refused(path: Path, tmp_path: Path) -> None:
    content, file = path.read_bytes(), tmp_path / "cut.arcbank"
    for length in (0, 5, 40):
        file.write_bytes(content[:length])
        with pytest.raises(StoreError, match=r"must be a task file|must be at least 64 bytes long; found 40"):
            open_task_file(file)
    file.write_bytes(content[:-1])
    with pytest.raises(StoreError, match=rf"must be {len(content)} bytes long; found {len(content) - 1}"):
        open_task_file(file)
    file.write_bytes(b'{"train": []}')
    with pytest.raises(StoreError, match=r"python -m jaxarc\.tasks\.mapped SOURCE"):
        open_task_file(file)
    with pytest.raises(StoreError, match=r"format version 1; found 2"):
        open_task_file(damaged(path, tmp_path, 8, struct.pack("<I", 2)))
    with pytest.raises(StoreError, match=r"first 64 bytes do not match"):
        open_task_file(damaged(path, tmp_path, 20, b"\xff"))
    with pytest.raises(StoreError, match=r"header does not match its digest"):
        open_task_file(damaged(path, tmp_path, len(content) - 3, b"\0"))


def test_every_damaged_byte_is_found_by_verify(path: Path, tmp_path: Path) -> None:
    for key in open_task_file(path)._parts:
        start = part(path, key)["start"]
        flipped = bytes([path.read_bytes()[start] ^ 1])
        with pytest.raises(StoreError, match=f"'{key}' does not match its digest"):
            open_task_file(damaged(path, tmp_path, start, flipped), verify=True)


def test_a_set_is_never_loaded_with_a_colour_that_nobody_wrote(path: Path, tmp_path: Path) -> None:
    start = part(path, "cells")["start"]
    other = damaged(path, tmp_path, start, bytes([path.read_bytes()[start] ^ 1]))
    with pytest.raises(StoreError, match=r"'cells' does not match its digest\. The file is damaged"):
        load(other)


@pytest.mark.parametrize(
    ("key", "item", "value"),
    [
        ("cells", 0, b"\xff"),
        ("sizes", 0, b"\x1f"),
        ("sizes", 1, b"\xff"),
        ("first_pair", 8, struct.pack("<q", 10**12)),
        ("first_pair", 8, struct.pack("<q", -1)),
        ("first_byte", 8, struct.pack("<q", 10**12)),
        ("num_train", 0, struct.pack("<i", 99)),
    ],
)
def test_a_damaged_task_is_refused_and_the_others_are_read(
    path: Path, tmp_path: Path, key: str, item: int, value: bytes
) -> None:
    found = open_task_file(damaged(path, tmp_path, part(path, key)["start"] + item, value))
    for read in (found.get_task, found.raw, lambda row: found.bank([5, row])):
        with pytest.raises(
            StoreError, match=r"the arrays of task 0 contradict each other\. The file is damaged"
        ):
            read(0)
    with pytest.raises(StoreError, match="contradict"):
        found.bank()
    assert int(found.get_task(5).task_index) == 5


def test_the_command_writes_a_folder_with_its_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = '{"train": [{"input": [[null]], "output": [[1]]}], "test": []}'
    for place in ("a/one.json", "b/two.json"):
        (tmp_path / "src" / place).parent.mkdir(parents=True)
        (tmp_path / "src" / place).write_text(task)
    out = tmp_path / "out.arcbank"
    assert mapped.main([str(tmp_path / "src"), str(out)]) == 2
    assert "task 'one', train pair 0 input, row 0, column 0" in capsys.readouterr().err
    assert not out.exists()
    assert mapped.main([str(tmp_path / "src"), str(out), "--null-as", "0"]) == 0
    assert f"{out}: 2 tasks" in capsys.readouterr().out
    found = open_task_file(out, verify=True)
    assert (found.ids, list(found.splits)) == (("one", "two"), ["a", "b"])


@pytest.mark.own_process
def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"train": [{"input": [[1]], "output": [[2]]}], "test": []}')
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "jaxarc.tasks.mapped",
        str(tmp_path),
        str(tmp_path / "t.arcbank"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert isinstance(open_task_file(tmp_path / "t.arcbank"), MappedTasks)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """15 MB are written and read task by task, and never more than a little of it is in memory."""
    file, grid = tmp_path / "large.arcbank", np.zeros((32, 32), np.int8)
    tracemalloc.start()
    try:
        write_task_file((RawTask(str(i), ((grid, grid),) * 30, ()) for i in range(500)), file)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert open_task_file(file).raw(400).id == "400"
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 15_000_000
    assert written < 4_000_000
    assert read < 1_000_000

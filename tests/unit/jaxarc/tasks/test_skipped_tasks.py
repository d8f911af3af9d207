"""Collections in which some tasks cannot be used: a verdict for each, and the others on demand."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxarc.cli import main
from jaxarc.tasks import TaskError, load, load_1d, load_concept, load_folder, load_mini
from jaxarc.tasks.mapped import main as convert


def row(width: int) -> dict[str, Any]:
    pair = {"input": [[1] * width], "output": [[2] * width]}
    return {"train": [pair], "test": [pair]}


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Ten tasks of one row in two folders, three of them wider than a canvas can be, one damaged."""
    folder = tmp_path / "rows"
    for at in range(10):
        part = folder / ("fill" if at < 5 else "move")
        part.mkdir(parents=True, exist_ok=True)
        task = row(40 if at in (1, 5, 9) else 32 - at)
        (part / f"row_{at}.json").write_text("{" if at == 2 else json.dumps(task))
    return folder


@pytest.mark.parametrize("read", [load, load_1d, load_concept, load_folder, load_mini])
def test_a_collection_is_refused_with_counts_and_read_with_skip(wide: Path, read: Any) -> None:
    with pytest.raises(TaskError, match=r"4 of 10 tasks cannot be used, 3 of them larger than 32×32") as told:
        read(wide)
    assert "`skip=True`" in str(told.value)
    assert "row_1.json" in str(told.value)
    tasks = read(wide, skip=True)
    assert tasks.ids == tuple(f"row_{at}" for at in (0, 3, 4, 6, 7, 8))
    assert {key: len(rows) for key, rows in tasks.splits.items()} == {"fill": 3, "move": 3}
    assert [Path(place).stem for place in tasks.skipped] == [f"row_{at}" for at in (1, 2, 5, 9)]
    assert "at most 32 cells wide" in tasks.skipped[str(wide / "fill" / "row_1.json")]
    assert "4 skipped" in repr(tasks)
    assert tasks.split("fill").with_canvas(32, 32).skipped == tasks.skipped


def test_many_tasks_in_one_file_have_a_verdict_each(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps({f"t{at}": row(30 + 4 * at) for at in range(3)}))
    with pytest.raises(TaskError, match=r"2 of 3 tasks cannot be used, 2 of them larger"):
        load(file)
    tasks = load(file, skip=True)
    assert tasks.ids == ("t0",)
    assert list(tasks.skipped) == [f"{file}: t1", f"{file}: t2"]


def test_nothing_left_is_an_error_with_skip_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(row(50)))
    with pytest.raises(TaskError, match=r"2 of 2 tasks cannot be used") as told:
        load(tmp_path, skip=True)
    assert "skip=True" not in str(told.value)


def test_the_command_names_an_option_and_skips(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["data", str(wide)])
    assert ended.value.code == 2
    assert "`jaxarc data SOURCE --skip --out tasks.arcbank`" in " ".join(capsys.readouterr().err.split())
    out = wide.parent / "good.arcbank"
    with pytest.raises(SystemExit) as ended:
        main(["data", str(wide), "--skip", "--out", str(out)])
    assert ended.value.code == 0
    assert "skipped 4 tasks" in capsys.readouterr().out
    assert len(load(out)) == 6


def test_the_converter_writes_nothing_of_a_collection_it_refuses(wide: Path) -> None:
    out = wide.parent / "all.arcbank"
    assert convert([str(wide), str(out)]) == 2
    assert not out.exists()

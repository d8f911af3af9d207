"""The command `jaxarc` as a person uses it: every part once, every kind of wrong input, and what scripts read."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from jaxarc._commands import rollout as playing
from jaxarc.cli import main

pytestmark = pytest.mark.usefixtures("quick_compile")

PAIR = {"input": [[0, 1], [0, 0]], "output": [[2, 1], [0, 0]]}
TASK = {"train": [PAIR, PAIR], "test": [{"input": [[1, 1]], "output": [[3, 3]]}]}


def run_cli(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for name in ("one", "two"):
        (tasks / f"{name}.json").write_text(json.dumps(TASK))
    return tasks


def test_help_has_an_example_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    shown = capsys.readouterr().out
    for command in ("show", "rollout", "data", "bench"):
        assert f"Example: jaxarc {command}" in shown
    assert run_cli("rollout", "--help") == 0
    assert "--environments" in capsys.readouterr().out


def test_a_task_is_shown_drawn_and_printed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("show", "one", "--dataset", folder) == 0
    shown = capsys.readouterr().out
    assert "train 1 input 2×2" in shown
    assert "test 1" in shown
    assert run_cli("show", folder / "one.json", "--json") == 0
    assert "output" not in json.loads(capsys.readouterr().out)["test"][0], "answers are not given away"
    assert run_cli("show", "one", "--dataset", folder, "--json", "--answers") == 0
    assert json.loads(capsys.readouterr().out) == TASK
    starts = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html>"}
    for suffix, start in starts.items():
        file = tmp_path / f"task.{suffix}"
        assert run_cli("show", "one", "--dataset", folder, "--out", file) == 0
        assert file.read_bytes().startswith(start)
    assert "wrote" in capsys.readouterr().out


def test_random_play_is_counted_and_can_be_watched(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"episode.{suffix}" for suffix in ("html", "json", "npz")]
    sizes = ["--environments", "3", "--steps", "7", "--format", "point"]
    assert run_cli("rollout", "--dataset", folder, *sizes, "--replay", *files, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 21
    assert found["steps_per_second"] > 0
    assert found["compile_seconds"] > 0
    assert found["jax"]
    assert "<!doctype html>" in files[0].read_text()[:100].lower()
    assert json.loads(files[1].read_text())["task"] == "one"
    assert run_cli("show", files[2]) == 0
    assert "one (train): " in capsys.readouterr().out
    assert run_cli("rollout", "--dataset", folder, *sizes) == 0
    shown = capsys.readouterr().out
    assert "21 steps in" in shown
    assert "2 tasks of tasks, 3 environments at 2×2" in shown


def test_painting_solves_every_task(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, episode = tmp_path / "solved.html", tmp_path / "solved.npz"
    given = [
        "--policy",
        "paint",
        "--environments",
        "4",
        "--task",
        "two",
        "--steps",
        "5",
        "--replay",
        page,
        episode,
    ]
    assert run_cli("rollout", "--dataset", folder, *given) == 0
    assert "4 episodes ended, 4 solved (100.0 %)" in capsys.readouterr().out
    assert '"outcome":"solved"' in page.read_text()
    assert run_cli("show", episode, "--out", tmp_path / "solved.png") == 0
    assert run_cli("show", episode, "--json") == 0
    assert '"outcome": "solved"' in capsys.readouterr().out


PLAY = ["--environments", "3", "--steps", "28", "--format", "point", "--json"]


@pytest.fixture(params=[signal.SIGINT])
def interrupted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of seven steps, and a signal when the first one is done: Ctrl-C, unless another is asked for."""
    run = playing.run

    def press(chunk: Any) -> None:
        if chunk.step == 7:
            signal.raise_signal(request.param)

    monkeypatch.setattr(playing, "run", lambda *args, **options: run(*args, **options, on_chunk=press))
    monkeypatch.setattr(playing, "_PER_CHUNK_CPU", 3 * 7)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_ends_between_chunks_and_tells_what_was_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("rollout", "--dataset", folder, *PLAY) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["stopped"] is True
    assert found["steps"] == 3 * 14, "the chunk that was under way is played to its end"
    assert run_cli("rollout", "--dataset", folder, *PLAY[:-1]) == 130
    assert "stopped early by Ctrl-C; --checkpoint makes runs resumable" in capsys.readouterr().out


@pytest.mark.parametrize("interrupted", [signal.SIGTERM], indirect=True)
@pytest.mark.usefixtures("interrupted")
def test_sigterm_ends_between_chunks_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("rollout", "--dataset", folder, *PLAY) == 143
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["steps"]) == ("terminated", 3 * 14)


@pytest.mark.usefixtures("interrupted")
def test_random_play_goes_on_from_its_checkpoint(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = ["--checkpoint", tmp_path / "saved"]
    # The same line, with --resume, serves the first time and every time after.
    assert run_cli("rollout", "--dataset", folder, *PLAY, *saved, "--resume") == 130
    capsys.readouterr()
    assert run_cli("rollout", "--dataset", folder, *PLAY, *saved, "--resume") == 0
    resumed = json.loads(capsys.readouterr().out)
    monkeypatch.undo()
    assert run_cli("rollout", "--dataset", folder, *PLAY[:-1], *saved, "--resume") == 0
    said = capsys.readouterr().out
    assert f"84 steps: the run in {tmp_path / 'saved'} was finished already" in said
    assert "steps/s" not in said
    assert run_cli("rollout", "--dataset", folder, *PLAY) == 0
    whole = json.loads(capsys.readouterr().out)
    same = ("steps", "episodes", "solved", "reward", "stopped")
    assert {name: resumed[name] for name in same} == {name: whole[name] for name in same}
    assert whole["steps"] == 3 * 28
    for other in (["--seed", "1"], ["--steps", "35"]):
        assert run_cli("rollout", "--dataset", folder, *PLAY, *other, *saved, "--resume") == 2
        assert "saved" in capsys.readouterr().err


def test_chunks_are_short_for_many_environments_and_divide_the_steps() -> None:
    assert playing.chunk_length(1024, 1000) == 1000
    assert playing.chunk_length(10_000_000, 1000) == 1
    assert playing.chunk_length(2000, 5000) == 1000
    assert playing.chunk_length(2000, 997 * 2) == 997
    assert playing.chunk_length(2000, 1009 * 3) == 1000, "no divisor is near: the last chunk is shorter"


def test_data_is_listed_described_checked_and_converted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("data", "--json") == 0
    sets = json.loads(capsys.readouterr().out)["sets"]
    assert {"arc-agi-1", "arc-agi-2"} == {row["name"] for row in sets}
    assert run_cli("data") == 0
    assert "Mini-ARC" in capsys.readouterr().out
    assert run_cli("data", folder, "--ids") == 0
    assert capsys.readouterr().out.split() == ["one", "two"]
    for name in ("all.arcbank", "all.json"):
        assert run_cli("data", folder, "--check", "--out", tmp_path / name) == 0
        assert "no fault" in capsys.readouterr().out
        assert run_cli("data", tmp_path / name, "--check", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["tasks"] == 2
        assert found["canvas"] == [2, 2]
    (folder / "bad.json").write_text(json.dumps({"train": [{"input": [[11]], "output": [[1]]}], "test": []}))
    (folder / "cut.json").write_text('{"train": [')
    assert run_cli("data", folder, "--check") == 1
    shown = capsys.readouterr().out
    assert "2 files are not right" in shown
    assert "train pair 0 input, row 0, column 0" in shown
    assert "cut.json, line 1" in shown
    assert run_cli("data", folder, "--check", "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 2
    (tmp_path / "all.arcbank").write_bytes((tmp_path / "all.arcbank").read_bytes()[:-8])
    assert run_cli("data", tmp_path / "all.arcbank", "--check") == 1


def test_stepping_is_timed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--dataset", folder, "--environments", "3", "--steps", "7", "--rounds", "1", "--canvas", "2"]
    assert run_cli("bench", *given, "--formats", "point", "--json") == 0
    row = json.loads(capsys.readouterr().out)["formats"]["point"]
    assert row["steps_per_second"] == pytest.approx(3 / row["step_seconds"])
    assert row["compile_seconds"] > 0
    assert run_cli("bench", *given, "--formats", "point") == 0
    assert "steps/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "onne", "--dataset", "{}"], "Did you mean 'one'?"),
        (["show", "one", "--dataset", "{}", "--out", "task.txt"], "must end in .svg, .png, .html"),
        (["show", "one", "--dataset", "{}", "--out", "nowhere/task.svg"], "folder that exists"),
        (["show", "none.json"], "a path that exists"),
        (["show", "none.npz"], "is not there"),
        (["show", "one", "--dataset", "arc-agi-9"], "`--dataset` must be 'arc-agi-1'"),
        (["rollout", "--dataset", "{}", "--steps", "0"], "`--steps` must be at least 1"),
        (["rollout", "--dataset", "{}", "--split", "none"], "`--split` must be a split"),
        (["show", "x" * 20, "--dataset", "{}"], "`task` must be one of the 2 ids of the set; got 'xxx"),
        (["show", "x" * 20, "--dataset", "{}"], "`jaxarc data SOURCE --ids` lists them"),
        (["rollout", "--dataset", "{}", "--task", "three"], "`--task` must be one of the 2 ids"),
        (
            ["rollout", "--dataset", "{}", "--policy", "paint", "--steps", "1"],
            "`--steps` must be at least 2 to",
        ),
        (["rollout", "--dataset", "{}", "--replay", "a.gif"], "must end in .html"),
        (["rollout", "--dataset", "{}", "--resume"], "`--resume` needs `--checkpoint`"),
        (["rollout", "--dataset", "{}", "--policy", "paint", "--checkpoint", "run"], "goes with random play"),
        (["data", "--check"], "`source` must be given"),
        (["data", "{}", "--out", "tasks.csv"], "must end in .arcbank, .json"),
        (["bench", "--dataset", "{}", "--canvas", "99"], "from 1 to 32"),
        (["bench", "--dataset", "{}", "--rounds", "0"], "`--rounds` must be at least 1"),
    ],
)
def test_wrong_input_ends_with_one_line(
    arguments: list[str],
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder.parent)
    assert run_cli(*(argument.replace("{}", str(folder)) for argument in arguments)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("jaxarc: ")
    assert len(error.splitlines()) == 1


def test_a_damaged_episode_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    assert run_cli("show", tmp_path / "bad.npz") == 2
    assert "must be a saved episode" in capsys.readouterr().err
    assert run_cli("show") == 2, "an option that is missing is told by the parser"

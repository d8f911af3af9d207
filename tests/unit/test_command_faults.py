"""What people type and what they are shown: odd terminals, closed pipes, pipes for files, bad values, too little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxarc.cli import main as jaxarc
from jaxarc.tasks import load
from jaxtrace.cli import main as jaxtrace
from jaxtrace.tracking.seeding import table_seeds
from jaxworlds import store
from jaxworlds._commands import out_of_memory, special_file
from jaxworlds.checkpoints import Checkpoint


def ended(main, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command and what it said on stderr."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code, " ".join(capsys.readouterr().err.split())


def test_a_terminal_without_unicode_is_shown_simpler_characters() -> None:
    changed = {
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "JAX_PLATFORMS": "cpu",
    }
    code = "from jaxarc.cli import main; main(['data', 'arc-agi-1'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=os.environ | changed, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"30x30" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    code = "from jaxarc.cli import main; main(['data', 'arc-agi-1'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ.copy()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(120) == 141
    assert said == b""


def test_a_named_pipe_is_refused_by_commands_and_loaders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "field.vtu"
    os.mkfifo(pipe)
    code, said = ended(jaxtrace, ["info", str(pipe)], capsys)
    assert code == 2
    assert f"{pipe} is a named pipe" in said
    code, said = ended(jaxarc, ["rollout", "--dataset", str(pipe)], capsys)
    assert (code, "`dataset` must be a file or a folder" in said) == (2, True)
    tasks = tmp_path / "tasks.json"
    os.mkfifo(tasks)
    for read in (store.read_header, load):
        with pytest.raises((OSError, ValueError)):
            read(tasks)
    assert special_file("/dev/null") == "a device"
    assert special_file(tmp_path) is None
    assert special_file(tmp_path / "nothing") is None


def test_a_bad_value_is_told_by_option_demand_and_value(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(jaxtrace, ["run", "field.vtu", "--times", "abc"], capsys)
    assert (code, said) == (2, "`--times` must be a whole number; got 'abc'.")
    code, said = ended(jaxarc, ["rollout", "--steps", "1.5"], capsys)
    assert (code, said) == (2, "`--steps` must be a whole number; got '1.5'.")
    code, said = ended(jaxarc, ["rollout", "--checkpoint-every", "often"], capsys)
    assert (code, said) == (2, "`--checkpoint-every` must be a number; got 'often'.")


def test_a_word_among_coordinates_is_told_by_file_and_line(tmp_path: Path) -> None:
    table = tmp_path / "seeds.csv"
    table.write_text("name,x,y\na,1,2\nb,oops,3\n")
    with pytest.raises(ValueError, match=r"seeds.csv line 3: `x` must be a number; got 'oops'"):
        table_seeds(table)
    table.write_text("name,x,y\na,1,2\nb,2,3\n")  # words in other columns are fine
    assert table_seeds(table).shape == (2, 2)


def test_environments_are_shared_evenly(capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace

    from jaxarc._commands.playing import play

    with pytest.raises(
        ValueError, match=r"`--environments` must be a multiple of the 2 devices.* got 3\. Take 4"
    ):
        play(
            *("arc-agi-1", None, None, "random", 3, 5, "bbox", 0, None, 30.0, False, (), False),
            mesh=SimpleNamespace(size=2),
        )


def test_checkpoints_come_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxarc._commands import playing

    seen = []
    usual = playing.run
    monkeypatch.setattr(playing, "run", lambda *a, **k: (seen.append(k["checkpoint"]), usual(*a, **k))[1])
    data = tmp_path / "tasks.json"
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    data.write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    line = ["rollout", "--dataset", str(data), "--environments", "4", "--steps", "4"]
    with pytest.raises(SystemExit) as end:
        jaxarc([*line, "--checkpoint", str(tmp_path / "run"), "--checkpoint-every", "0"])
    assert end.value.code == 0
    assert seen[0].every_seconds == 0
    code, said = ended(jaxarc, [*line, "--checkpoint-every", "-1"], capsys)
    assert (code, "`--checkpoint-every` must be at least 0" in said) == (2, True)


def test_tracking_is_saved_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxtrace.tracking import driving

    seen = []
    usual = driving.run
    monkeypatch.setattr(driving, "run", lambda *a, **k: (seen.append(k["checkpoint"]), usual(*a, **k))[1])
    line = ["run", "double_gyre", "--particles", "2", "--times", "3"]
    with pytest.raises(SystemExit) as end:
        jaxtrace([*line, "--checkpoint", str(tmp_path / "run"), "--checkpoint-every", "7.5", "--json"])
    assert end.value.code == 0
    assert seen[0].every_seconds == 7.5
    assert json.loads(capsys.readouterr().out)["checkpoint"] == str(tmp_path / "run")
    code, said = ended(jaxtrace, [*line, "--checkpoint-every", "inf"], capsys)
    assert (code, "`--checkpoint-every` must be at least 0 seconds; got inf" in said) == (2, True)


def test_training_is_saved_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from acbo.cli import main as acbo
    from acbo.policy import commands

    class Enough(Exception):
        pass

    def seen(*given: object, checkpoint: Checkpoint, **more: object) -> None:
        assert checkpoint == Checkpoint(tmp_path / "run", every_seconds=0)
        raise Enough

    monkeypatch.setattr(commands, "train_policy", seen)
    line = ["train", "--out", str(tmp_path / "mine.safetensors"), "--checkpoint", str(tmp_path / "run")]
    with pytest.raises(Enough):
        acbo([*line, "--checkpoint-every", "0"])
    code, said = ended(acbo, [*line, "--checkpoint-every", "-1"], capsys)
    assert (code, "`--checkpoint-every` must be at least 0 seconds; got -1.0" in said) == (2, True)


def test_too_little_memory_is_one_line_with_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jax.errors import JaxRuntimeError

    from jaxarc._commands import playing

    def full(*_: object, **__: object) -> None:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 107374182400 bytes.")

    monkeypatch.setattr(playing, "batch_reset", full)
    data = tmp_path / "tasks.json"
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    data.write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    code, said = ended(jaxarc, ["rollout", "--dataset", str(data), "--environments", "99999"], capsys)
    assert code == 2
    assert "jaxarc: out of memory (107374182400 bytes asked for at once). `--environments " in said
    assert "fits; got 99999." in said
    assert "Ask for less" in out_of_memory(object(), MemoryError())

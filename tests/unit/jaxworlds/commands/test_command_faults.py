"""What people type and what they are shown: odd terminals, closed pipes, pipes for files, bad values, too little memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acbo.cli import main as acbo
from jaxarc.cli import main as jaxarc
from jaxarc.tasks import load
from jaxtrace.cli import main as jaxtrace
from jaxtrace.tracking.seeding import table_seeds
from jaxworlds import store
from jaxworlds.commands import out_of_memory
from jaxworlds.rollout import Checkpoint
from jaxworlds.special_files import special_file

pytestmark = pytest.mark.devices


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


@pytest.mark.parametrize("line", [["--help"], ["--version"], ["rollout", "--help"]])
def test_help_for_a_reader_that_has_seen_enough_is_no_fault(line: list[str]) -> None:
    code = f"from jaxarc.cli import main; main({line!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(120) == 141
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(("where", "code"), [(">/dev/full", 2), (">&-", 0)])
def test_output_that_cannot_be_written_is_told_in_a_line(where: str, code: int) -> None:
    for line in ("['--help']", "['data']"):
        done = subprocess.run(
            ["bash", "-c", f'exec {sys.executable} -c "from jaxarc.cli import main; main({line})" {where}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == (1 if code else 0)


def test_a_named_pipe_is_refused_by_commands_and_loaders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "field.vtu"
    os.mkfifo(pipe)
    code, said = ended(jaxtrace, ["info", str(pipe)], capsys)
    assert code == 2
    assert f"{pipe} is a named pipe" in said
    code, said = ended(jaxarc, ["rollout", "--dataset", str(pipe)], capsys)
    assert (code, "`--dataset` must be a file or a folder" in said) == (2, True)
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


def test_what_is_wrong_with_a_table_of_seeds_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "seeds.csv"
    line = ["run", "double_gyre", "--seeds", str(table), "--out", str(tmp_path / "o.npz")]
    table.write_text("lon,lat\n0.1,0.2\n")
    code, said = ended(jaxtrace, line, capsys)
    assert code == 2
    assert "seeds.csv: " in said
    assert "lon, lat; got none of x, y, z. Write x,y for them in the first line of " in said
    table.write_text("x,y\n0.1,0.2\n0.3,nan\n")
    code, said = ended(jaxtrace, line, capsys)
    assert code == 2
    assert "`--seeds` must be finite in float32; row 1 is [0.3, nan] (1 such rows). See " in said
    assert said.endswith("seeds.csv line 3: correct it, or leave the line out.")


def test_seeds_that_no_memory_holds_are_told_with_a_remedy() -> None:
    from jaxtrace._commands.problem import _made

    def greedy() -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    with pytest.raises(ValueError, match=r"cannot be made: Unable to allocate 3 TiB\. .* ask for fewer"):
        _made({"kind": "even"}, {"even": greedy}, "seeds", None)


def test_environments_are_shared_evenly(capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace

    from jaxarc._commands.rollout import play
    from jaxarc.cli import Rollout

    with pytest.raises(
        ValueError, match=r"`--environments` must be a multiple of the 2 devices.* got 3\. Take 4"
    ):
        play(Rollout(environments=3, steps=5), SimpleNamespace(size=2))


def test_checkpoints_come_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxarc._commands import rollout as playing

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
    from jaxtrace.tracking import driver

    seen = []
    usual = driver.run
    monkeypatch.setattr(driver, "run", lambda *a, **k: (seen.append(k["checkpoint"]), usual(*a, **k))[1])
    line = ["run", "double_gyre", "--particles", "2", "--times", "3", "--dt", "0.1"]
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
    from acbo._commands import policies as commands
    from acbo.cli import main as acbo

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

    from jaxarc._commands import rollout as playing

    def full(*_: object, **__: object) -> None:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 107374182400 bytes.")

    monkeypatch.setattr(playing, "batch_reset", full)
    data = tmp_path / "tasks.json"
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    data.write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    code, said = ended(jaxarc, ["rollout", "--dataset", str(data), "--environments", "99999"], capsys)
    assert code == 2
    assert "jaxarc: out of memory (107374182400 bytes asked for at once). Try `--environments 49999`" in said
    monkeypatch.setattr(playing, "fitting_environments", lambda *_: 1024)
    code, said = ended(jaxarc, ["rollout", "--dataset", str(data), "--environments", "99999"], capsys)
    assert "`--environments 1024` fits; got 99999." in said
    assert "Ask for less" in out_of_memory(object(), MemoryError())


@pytest.mark.parametrize("command", [["rollout"], ["bench", "--formats", "bbox", "--canvas", "2"]])
def test_more_environments_than_memory_holds_are_refused_before_they_are_made(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "tasks.json"
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    data.write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    given = 10**12
    line = [*command, "--dataset", str(data), "--environments", str(given), "--steps", "2"]
    code, said = ended(jaxarc, line, capsys)
    assert code == 2
    found = re.search(
        r"jaxarc: out of memory \(.* GB needed, .* free\)\. `--environments (\d+)` fits; got", said
    )
    assert found is not None, said
    assert 1 <= int(found[1]) < given


def test_who_leaves_no_memory_to_plan_with_is_told_to_halve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxarc._commands import rollout as playing

    def nothing(*_: object) -> int:
        raise ValueError("no memory is left to plan with")

    monkeypatch.setattr(playing, "fitting_environments", nothing)
    data = tmp_path / "tasks.json"
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    data.write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    said = playing.fewer_environments(load(data), ("bbox",), "random", 2, 1001)
    assert said == "Try `--environments 500`; got 1001."


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
def test_a_limit_of_the_shell_counts_as_memory() -> None:
    code = "from jaxworlds.memory._host_memory import host_memory_free; print(host_memory_free())"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 1000000; exec {sys.executable} -c '{code}'"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 0 < int(done.stdout) < 1_024_000_000


@pytest.mark.parametrize(
    ("arguments", "demand"),
    [
        (["rollout", "--seed", str(2**32)], "`--seed` must be from 0 to 4294967295; got 4294967296."),
        (["rollout", "--seed", "-1"], "`--seed` must be from 0 to 4294967295; got -1."),
        (["rollout", "--steps", "9" * 20], "`--steps` must be at most 2147483647"),
        (["bench", "--steps", "9" * 20], "`--steps` must be at most 2147483647"),
        (["rollout", "--devices", "100000"], "`--devices` must be at most 512 for each host"),
        (
            ["rollout", "--hosts", "9" * 20, "--host", "0", "--coordinator", "localhost:1"],
            "`--hosts` must be at most 65536",
        ),
        (
            ["data", "{}", "--null-as", "-5", "--check"],
            "`--null-as` must be a colour from 0 to 9; got -5.",
        ),
        (["bench", "--dataset", "{}", "--canvas", "1"], "`--canvas` must be the side of a square"),
    ],
)
def test_a_number_that_cannot_be_is_told_by_its_option(
    arguments: list[str], demand: str, small_tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed beyond 32 bits was another seed, silently; others ended in tracebacks, or took all threads or memory."""
    typed = [argument.replace("{}", str(small_tasks)) for argument in arguments]
    if arguments[0] == "rollout":
        typed += ["--dataset", str(small_tasks), "--environments", "2"]
    code, said = ended(jaxarc, typed, capsys)
    assert code == 2, said
    assert said.startswith(f"jaxarc: {demand}")


@pytest.fixture
def small_tasks(tmp_path: Path) -> Path:
    """A folder with one task of 2×2 cells."""
    pair = {"input": [[1, 2], [3, 4]], "output": [[4, 3], [2, 1]]}
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps({"train": [pair], "test": [pair]}))
    return folder


def test_names_in_files_do_not_steer_a_terminal(
    small_tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_tasks / "one.json").rename(small_tasks / "\x1b]0;owned\x07.json")
    with pytest.raises(SystemExit):
        jaxarc(["data", str(small_tasks), "--ids"])
    assert capsys.readouterr().out == " ]0;owned \n"
    ended(jaxarc, ["show", "\x1b[2J", "--dataset", str(small_tasks)], capsys)
    (small_tasks / "\x1b]0;owned\x07.json").write_text("[")
    _, said = ended(jaxarc, ["data", str(small_tasks)], capsys)
    assert "owned" in said
    assert "\x1b" not in said
    array = {"\x1b[31mred": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    header = json.dumps({"__metadata__": {"kind": "\x1b[2Jx"}, **array}).encode()
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(SystemExit) as end:
        acbo(["show", str(weights)])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "[31mred" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["eval", "--sizes", "1000000000"],
            "`--sizes` must be numbers of variables, 2 at least and 64 at most",
        ),
        (["bench", "--rows", "2000000000"], "`--rows` must be at most 65536; got 2000000000."),
        (["bench", "--variables", "65"], "`--variables` must be at most 64; got 65."),
        (["train", "--group", "2"], "`--group` must be at least 8; got 2."),
        (["train", "--group", "257"], "`--group` must be at most 256; got 257."),
        (["train", "--size", "65"], "`--size` must be at most 64; got 65."),
    ],
)
def test_sizes_that_no_memory_holds_are_refused_by_acbo(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first took all memory until the kernel killed it, the second aborted inside XLA."""
    code, told = ended(acbo, arguments, capsys)
    assert code == 2
    assert told.startswith(f"acbo: {said}")


def test_numbers_and_options_of_jaxtrace_are_spelled_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(jaxtrace, ["run", "double_gyre", "--particles", "9" * 20, "--times", "2"], capsys)
    assert (code, said) == (2, f"jaxtrace: `--particles` must be at most 2147483647; got {'9' * 20}.")
    code, said = ended(jaxtrace, ["run", "double_gyre", "--earth-radius", "1"], capsys)
    assert code == 2
    assert said.startswith("jaxtrace: `--earth-radius` must be left out")

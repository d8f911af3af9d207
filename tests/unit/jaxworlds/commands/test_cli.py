"""The command `jaxworlds` as a person uses it."""

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro

from jaxarc.cli import main as play
from jaxworlds import commands
from jaxworlds.cli import main
from jaxworlds.commands import _command, _installation, benchmarks, doctor
from jaxworlds.commands import demo as demo_module
from jaxworlds.processes._lifeline import MissingHostError
from jaxworlds.processes.exits import Terminated


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code if isinstance(ended.value.code, int) else 1


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("demo", "doctor", "bench", "Example: jaxworlds doctor --json"))


def test_doctor_finds_this_machine_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is True
    levels = {f["name"]: f["level"] for f in found["findings"]}
    assert levels["compile"] == levels["callback"] == levels["sharding"] == "ok"
    assert found["report"]["jax"] == jax.__version__
    assert run_cli("doctor") == 0
    assert "Everything works." in capsys.readouterr().out


def test_doctor_reports_what_fails_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> str:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(doctor, "_check_compile", broken)
    assert run_cli("doctor") == 1
    shown = capsys.readouterr().out
    assert "no compiler here" in shown
    assert "reinstall jax" in shown
    assert "Something does not work" in shown


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"JAX_PLATFORMS": "cuda"}, "unset JAX_PLATFORMS"),
        ({"JAXWORLDS_CACHE_DIR": "/dev/null/x"}, "JAXWORLDS_CACHE_DIR"),
    ],
)
def test_doctor_survives_what_it_is_there_for(environment: dict[str, str], word: str) -> None:
    command = [sys.executable, "-m", "jaxworlds.cli", "doctor", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] is False
    assert any(word in f["remedy"] for f in found["findings"] if f["level"] == "bad")


def test_doctor_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    finding = doctor.Finding("gpu", "note", "odd [/x] text", "install `jax[cuda13]`")
    doctor.print_diagnosis(doctor.Diagnosis(None, (finding,)))
    shown = capsys.readouterr().out
    assert "jax[cuda13]" in shown
    assert "[/x]" in shown


def test_doctor_sees_worlds_that_are_not_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    import jaxworlds.batching

    monkeypatch.setattr(jaxworlds.batching, "shard_worlds", lambda x, mesh: jnp.asarray(x))
    finding = doctor._try("sharding", doctor._check_sharding)
    assert finding.level == ("ok" if jax.device_count() == 1 else "bad")


def test_doctor_knows_the_odd_settings() -> None:
    report = doctor.diagnose().report
    assert report is not None
    odd = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ("flags", "note")}
    with jax.debug_nans(True):
        assert ("nans", "note") in [(f.name, f.level) for f in _installation.odd_settings(report, {})]
    with jax.disable_jit():
        assert ("jit", "bad") in [(f.name, f.level) for f in _installation.odd_settings(report, {})]
    assert [f for f in _installation.odd_settings(report, {"JAX_PLATFORMS": "cpu"}) if f.level == "bad"] == []
    for variable, expected in odd.items():
        found = _installation.odd_settings(report, {variable: "1", "JAX_PLATFORMS": "cpu"})
        assert expected in [(f.name, f.level) for f in found]
        assert all(f.remedy for f in found)


def test_the_demo_world_conserves_what_it_must() -> None:
    """Without reaction and feed, diffusion keeps the mean; a uniform dish without v stays as it is."""
    world = demo_module.GrayScott(jnp.ones((8, 8)), jnp.zeros((8, 8)), jnp.float32(0.03), jnp.float32(0.06))
    after = demo_module.advance(world)
    np.testing.assert_allclose(after.u, 1.0, rtol=1e-6)
    np.testing.assert_allclose(after.v, 0.0)
    field = jax.random.normal(jax.random.key(0), (8, 8))
    assert abs(float(demo_module.laplacian(field).sum())) < 1e-4
    wave = jnp.sin(2 * jnp.pi * jnp.arange(64) / 64)[:, None] * jnp.ones(64)
    # The nine-point stencil has eigenvalue -(0.6)(1 - cos k) for a plane wave along an axis.
    expected = -0.6 * (1 - np.cos(2 * np.pi / 64)) * wave
    np.testing.assert_allclose(demo_module.laplacian(wave), expected, atol=1e-5)


def test_bench_says_where_it_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("bench", "--only", "chess") == 2
    assert "must be part of one of core, jaxarc" in capsys.readouterr().err
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path / "benchmarks")
    assert run_cli("bench") == 2
    assert "part of the repository" in capsys.readouterr().err


SCRIPT = """
import json, pathlib, sys
if "--fail" in sys.argv:
    sys.exit("no figures today")
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1], "cpu")
folder.mkdir(parents=True)
peers = "--peers" in sys.argv
rows = {"ours, 5×5, B=4": {"steps/s": 8.0}} | ({"ARCLE, 5×5, B=4": {"steps/s": 2.0}} if peers else {})
results = {"peers": {"figures": rows}, "peers: skipped": {"figures": {"original": {"reason": "run with --setup-peers"}}}}
where = dict(device_count=1, device_kind="cpu", cpu_model="a cpu", cores=2, jax="0.10", python="3.11")
(folder / "arc.json").write_text(json.dumps({"environment": where, "results": results}))
"""


def test_benchmarks_become_one_table_with_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fake.py").write_text(SCRIPT)
    of_arc, of_core = (
        next(b.rows for b in benchmarks.benchmarks() if b.name == n) for n in ("jaxarc", "core")
    )
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    good = benchmarks.Benchmark("jaxarc", "fake.py", (), (), True, of_arc)
    bad = benchmarks.Benchmark("core", "fake.py", ("--fail",), ("--fail",), False, of_core)
    monkeypatch.setattr(benchmarks, "benchmarks", lambda: (good, bad))
    assert run_cli("bench", "--only", "jaxarc", "--peers", str(tmp_path / "none")) == 0
    shown = capsys.readouterr().out
    assert "none here" in shown
    assert "jaxarc: original" in shown
    assert "jaxworlds bench --setup-peers" in shown
    assert run_cli("bench", "--peers", str(tmp_path), "--json") == 1, "one of them failed"
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == {"core": "no figures today"}
    assert found["rows"][0]["peer"] == "ARCLE"
    assert found["rows"][0]["times"] == 4.0


def test_figures_of_every_benchmark_become_rows() -> None:
    """From the committed results, which have the form that the scripts write."""
    folder = Path(benchmarks.FOLDER) / "results" / "cpu"
    files = {"core": "core.json", "jaxarc": "arc.json", "acbo-learning": "acbo-inference.json"}
    files |= {"jaxtrace": "trace-only-common.json", "acbo-asking": "acbo-policy.json"}
    for one in benchmarks.benchmarks():
        results = json.loads((folder / files[one.name]).read_text())["results"]
        rows = list(one.rows({name: part["figures"] for name, part in results.items()}))
        assert rows, one.name
        assert all(row.ours > 0 for row in rows)
        assert any(row.times and row.peer for row in rows), one.name
    slower = benchmarks.Row("acbo", "ask", "s/ask", 0.1, "other", 0.3)
    assert slower.times == pytest.approx(3.0), "of seconds, fewer are faster"


class Ending(commands.Command):
    """A command that ends as it is told to."""

    def __init__(self, error: BaseException | None) -> None:
        object.__setattr__(self, "error", error)

    def compute(self) -> int:
        warnings.warn("take care", UserWarning, stacklevel=1)
        if self.error is not None:  # pyright: ignore[reportAttributeAccessIssue]
            raise self.error  # pyright: ignore[reportAttributeAccessIssue]
        return 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (ValueError("`x` must\n be 1; got 2."), 2),
        (FileNotFoundError(2, "No such file", "none"), 2),
        (ImportError("install it"), 2),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
        (MissingHostError("host 1 did not come"), 75),
    ],
)
@pytest.mark.filterwarnings("default")
def test_every_command_ends_with_its_code(
    error: BaseException | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tyro, "cli", lambda *_, **__: Ending(error))
    with pytest.raises(SystemExit) as ended:
        commands.run_command(Ending, "tool", "A tool.", [])
    assert ended.value.code == code
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "note: take care", "a warning is a line, without a place in our code"
    assert "Traceback" not in "".join(shown)
    if code == 2:
        assert shown[1].startswith("tool: ")
        assert len(shown) == 2


def test_sigterm_is_heeded_as_ctrl_c_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    ending = Ending(None)
    object.__setattr__(ending, "run", lambda: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(tyro, "cli", lambda *_, **__: ending)
    with pytest.raises(SystemExit) as ended:
        commands.run_command(Ending, "tool", "A tool.", ["run"])  # from a shell the process would end at once
    assert ended.value.code == 143
    assert capsys.readouterr().err == "stopped by SIGTERM\n"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_what_libraries_write_does_not_mix_with_what_a_command_says(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with _command._our_output():
        os.write(1, b"[Gloo] connected\n")
        commands.print_json({"steps": 3})
    print("after")
    shown = capfd.readouterr()
    assert shown.out == '{\n "steps": 3\n}\nafter\n'
    assert shown.err == "[Gloo] connected\n"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "Give both, or let SLURM or Open MPI start it."),
        ({"SLURM_JOB_ID": "7"}, "Give both, or start it with `srun`."),
        (
            {
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_NODELIST": "n",
                "SLURM_NTASKS": "4",
                "SLURM_PROCID": "0",
                "SLURM_LOCALID": "0",
            },
            "`processes` (`--hosts`) must be the 4 that SLURM started; got 2.",
        ),
    ],
)
def test_hosts_that_nobody_numbered_are_told_how(
    variables: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        play(["rollout", "--hosts", "2"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_tasks_that_do_not_share_the_work_are_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("SIZE", "2"), ("RANK", "0"), ("LOCAL_RANK", "0"), ("LOCAL_SIZE", "2")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    _command._note_tasks()
    assert "each does all of the work; `--hosts 2` makes them share it" in capsys.readouterr().err
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    _command._note_tasks()
    assert capsys.readouterr().err == ""


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tyro, "cli", lambda *_, **__: Ending(RuntimeError("a bug")))
    monkeypatch.setattr(warnings, "warn", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match="a bug"):
        commands.run_command(Ending, "tool", "A tool.", [])


@pytest.mark.own_process
@pytest.mark.parametrize("program", ["jaxworlds", "jaxarc", "jaxtrace", "acbo"])
def test_help_starts_no_jax(program: str) -> None:
    code = f"import sys, {program}.cli; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_what_json_cannot_hold_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_json({"rate": float("nan"), "sizes": (np.int32(3), float("inf")), "file": Path("a")})
    assert json.loads(capsys.readouterr().out) == {"rate": None, "sizes": [3, None], "file": "a"}


@pytest.mark.own_process
def test_a_ctrl_c_in_the_collector_is_heeded() -> None:
    """Python swallows what is raised in a callback of the collector; JAX has one, and it runs often while tracing."""
    program = """
import gc, signal, sys, time
from jaxworlds.commands import keep_interrupts
gc.callbacks.append(lambda phase, info: signal.raise_signal(signal.SIGINT) if phase == "start" else None)
try:
    with keep_interrupts():
        gc.collect()
        gc.callbacks.clear()
        time.sleep(20)
except KeyboardInterrupt:
    sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.own_process
def test_ctrl_c_ends_with_its_code_also_while_threads_work() -> None:
    program = """
import signal, sys, threading, time, tyro
from jaxworlds import commands

class Work:
    def run(self):
        threading.Thread(target=time.sleep, args=(30,)).start()  # an interpreter would wait for it
        signal.raise_signal(signal.SIGINT)

sys.argv = ["work"]
tyro.cli = lambda *a, **k: Work()
commands.run_command(Work, "work", "Works.")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=25)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "stopped\n"


def test_a_missing_file_is_named_without_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    error = FileNotFoundError(2, "No such file or directory", "none.toml")
    assert commands.one_line(error) == "none.toml: No such file or directory"


def test_outputs_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"`--out` must lie in a folder that can be written; .* cannot"):
        commands.demand_suffix(tmp_path / "a.png", (".png",), "out")


def test_the_bare_name_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli() == 0
    assert "doctor" in capsys.readouterr().out

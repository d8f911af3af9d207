"""Hosts that are stopped, that die, and that scripts start: real processes, which end in time, with a sentence and a code."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

CHILD = Path(__file__).with_name("hosts_child.py")
ROOT = CHILD.parents[4]
SCRIPTS = ROOT / "examples" / "launch"
pytestmark = [
    pytest.mark.own_process,
    pytest.mark.skipif(jax.device_count() > 1, reason="starts processes with devices of their own"),
]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "XLA_"))}
    return {**kept, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **more}


def child() -> Any:
    spec = importlib.util.spec_from_file_location("hosts_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Two:
    """The same command in two processes."""

    def __init__(self, *options: object):
        self.port = free_port()
        common = [sys.executable, str(CHILD), *map(str, options), "--hosts", "2", "--patience", "60"]
        self.processes = [
            subprocess.Popen(
                [*common, "--host", str(host), "--coordinator", f"localhost:{self.port}"],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for host in range(2)
        ]

    def __enter__(self) -> "Two":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def await_steps(self, folder: Path, steps: int) -> None:
        """Until so many steps are saved."""
        deadline = time.monotonic() + 120
        while not any(int(file.stem[5:]) >= steps for file in folder.glob("step-*.jwstate")):
            assert all(process.poll() is None for process in self.processes), self.end()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> list[tuple[int, str, str]]:
        """Exit code, output and error stream of both, which must end by themselves."""
        ended = [process.communicate(timeout=60) for process in self.processes]
        return [(process.returncode, *texts) for process, texts in zip(self.processes, ended, strict=True)]


def test_a_run_that_is_stopped_and_then_loses_a_host_keeps_its_bits(tmp_path: Path) -> None:
    folder, out = tmp_path / "saved", tmp_path / "found.npz"
    options = ("--out", out, "--checkpoint", folder, "--pause", 0.05, "--steps", 5000)
    with Two(*options) as two:
        two.await_steps(folder, 10)
        two.processes[1].send_signal(signal.SIGTERM)  # one host is told, both stop at the same chunk
        (code, said, noted), (other, silent, _) = two.end()
    assert (code, other) == (143, 143), noted
    assert json.loads(said)["outcome"] == "terminated"
    assert silent == "", "host 0 speaks for all"

    reached = int(max(folder.glob("step-*")).stem[5:])
    assert reached == json.loads(said)["step"]
    with Two(*options, "--resume") as two:
        two.await_steps(folder, reached + 10)
        began = time.monotonic()
        two.processes[0].kill()
        (_, _, _), (code, _, noted) = two.end()
        took = time.monotonic() - began
    assert code == 75
    assert took < 10
    assert "host 0 (localhost) is gone: it was killed, crashed, or lost its machine or network" in noted
    assert f"What was saved to {folder} is whole: the same command with --resume goes on" in noted
    assert "Traceback" not in noted
    assert not re.search(r"^ +@ +0x", noted, re.MULTILINE), "no stack of C++ functions"

    module = child()
    saved = max(folder.glob("step-*"))
    steps = int(saved.stem[5:])
    assert steps > reached
    whole = module.run(module.step, module.start(), 5000, chunk=module.CHUNK, record_every=1)
    with pytest.warns(UserWarning, match="was written on 2 device"):
        rest = module.rest(folder)
    assert rest.first_step == steps
    assert rest.finished
    assert np.array_equal(rest.carry, whole.carry)
    assert np.array_equal(rest.records, whole.records)


def test_the_others_hear_of_a_host_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    options = ("--out", tmp_path / "x.npz", "--checkpoint", folder, "--pause", 0.05, "--steps", 5000)
    with Two(*options) as two:
        two.await_steps(folder, 5)
        two.processes[1].kill()
        (code, said, noted), _ = two.end()
    assert code == 75
    assert said == ""
    assert re.search(rf"host 1 \({re.escape(socket.gethostname())}\) is gone", noted)
    assert "Traceback" not in noted


def test_a_host_whose_command_fails_takes_the_others_with_it(tmp_path: Path) -> None:
    """Host 0 alone writes, here into a folder that is not there."""
    with Two("--out", tmp_path / "none" / "found.npz", "--steps", 10) as two:
        (code, _, noted), (other, _, _) = two.end()
    assert (code, other) == (2, 2)
    assert re.search(r"walk: .*none/found\.npz.*[Nn]o such file or directory", noted), noted
    assert "Traceback" not in noted


def test_hosts_with_other_options_do_not_begin(tmp_path: Path) -> None:
    two = Two("--out", tmp_path / "x.npz", "--steps", 10)
    two.processes[1].kill()
    two.processes[1].communicate()
    line = [sys.executable, str(CHILD), "--out", str(tmp_path / "x.npz"), "--steps", "11"]
    place = ["--hosts", "2", "--host", "1", "--coordinator", f"localhost:{two.port}"]
    two.processes[1] = subprocess.Popen(
        [*line, *place], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with two:
        ended = two.end()
    for code, _, noted in ended:
        assert code == 2
        assert "walk: `--steps` must be the same on all hosts; host 0" in noted
        assert "has 10, host 1" in noted
        assert noted.count("\n") == 1


@pytest.mark.parametrize("frozen", [1, 0])
def test_a_host_that_is_frozen_is_noticed_in_silence_seconds(frozen: int, tmp_path: Path) -> None:
    """SIGSTOP leaves its connections open, and its kernel answers for it."""
    folder = tmp_path / "saved"
    options = ("--out", tmp_path / "x.npz", "--checkpoint", folder, "--pause", 0.05, "--steps", 100_000)
    with Two(*options, "--silence", 3) as two:
        two.await_steps(folder, 5)
        began = time.monotonic()
        two.processes[frozen].send_signal(signal.SIGSTOP)
        _, noted = two.processes[1 - frozen].communicate(timeout=60)
        took = time.monotonic() - began
    assert two.processes[1 - frozen].returncode == 75
    assert 2 < took < 20
    where = "localhost" if frozen == 0 else re.escape(socket.gethostname())
    assert re.search(rf"host {frozen} \({where}\) has given no sign of life for 3 s: it is frozen", noted)
    assert "the same command with --resume goes on" in noted
    assert "Traceback" not in noted


# Launch scripts, with stand-ins for the programs of a cluster.

SRUN = """#!/bin/bash
# Two nodes of one task each, as srun would start them.
for task in 0 1; do
  SLURM_JOB_ID=$PORT_JOB SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task \\
    SLURM_LOCALID=0 SLURM_NODEID=$task SLURM_STEP_TASKS_PER_NODE='1(x2)' "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task"; one=$?; ((one > code)) && code=$one; done
exit "${code:-0}"
"""
SSH = """#!/bin/bash
# The command of `ssh -n host command`, here but out of reach of the terminal.
[[ $1 == -n ]] && exec </dev/null && shift
echo "$1" >>"$HOSTS_SEEN"
shift
exec setsid --wait bash -c "$*"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for stand-ins."""
    (folder := tmp_path / "programs").mkdir()
    return folder


def add(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def launched(
    script: str, programs: Path, *words: object, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(SCRIPTS / script), *map(str, words)],
        cwd=programs,
        env=environment(PATH=path, **variables),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_script_for_slurm_gives_what_one_process_gives(programs: Path, tmp_path: Path) -> None:
    add(programs, "srun", SRUN)
    words = ["jaxtrace", "run", "double_gyre", "--lattice", "8", "4", "--span", "0", "2", "--times", "5"]
    words += ["--dt", "0.1", "--json", "--out"]
    tool = [sys.executable, "-m", "jaxtrace.cli", *words[1:]]
    # The port of a job is made of its number.
    job = str(free_port() % 4096)
    variables = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": job, "PORT_JOB": job}
    done = launched("slurm.sh", programs, *tool, "several.npz", **variables)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["particles"], said["times"], said["info"]["devices"]) == (32, 5, 2)
    alone = subprocess.run([*tool, "one.npz"], cwd=programs, env=environment(), timeout=200, check=False)
    assert alone.returncode == 0
    with np.load(programs / "several.npz") as several, np.load(programs / "one.npz") as one:
        np.testing.assert_allclose(several["positions"], one["positions"], rtol=1e-5, atol=1e-5)
        assert np.array_equal(several["alive"], one["alive"])


@pytest.mark.parametrize(
    ("code", "words", "turns", "again"),
    [
        (143, "tool --resume", "0", True),
        (75, "tool --resume", "3", True),
        (143, "tool", "0", False),
        (143, "tool --resume", "20", False),
        (2, "tool --resume", "0", False),
        (0, "tool --resume", "0", False),
    ],
)
def test_a_job_that_was_stopped_is_queued_again(
    code: int, words: str, turns: str, again: bool, programs: Path
) -> None:
    add(programs, "srun", f'#!/bin/bash\necho "$@"\nexit {code}\n')
    add(programs, "scontrol", '#!/bin/bash\necho "scontrol $*"\n')
    done = launched(
        "slurm.sh",
        programs,
        *words.split(),
        SLURM_NTASKS="4",
        SLURM_JOB_ID="7",
        SLURM_RESTART_COUNT=turns,
    )
    assert done.returncode == code
    assert done.stdout.splitlines() == [f"{words} --hosts 4", *["scontrol requeue 7"] * again]


def test_the_script_for_ssh_runs_all_hosts_and_passes_ctrl_c_on(programs: Path, tmp_path: Path) -> None:
    add(programs, "ssh", SSH)
    out, folder, seen = tmp_path / "a b.npz", tmp_path / "saved", tmp_path / "seen"
    tool = [sys.executable, CHILD, "--out", out, "--checkpoint", folder, "--steps", 60]
    variables = {"PORT": str(free_port()), "HOSTS_SEEN": str(seen), "HOME": str(tmp_path)}
    done = launched("ssh.sh", programs, "localhost,127.0.0.1", *tool, **variables)
    assert done.returncode == 0, done.stderr
    (pid,) = (tmp_path / ".cache" / "jaxworlds").iterdir()
    assert pid.read_text().strip().isdecimal()
    assert pid.parent.stat().st_mode & 0o077 == 0, "others can neither read nor replace what is killed"
    said = json.loads(done.stdout)
    assert said == {"outcome": "finished", "step": 60, "hosts": 2, "gpus": "all"}
    assert sorted(seen.read_text().split()) == ["127.0.0.1", "localhost"]
    module = child()
    whole = module.run(module.step, module.start(), 60, chunk=module.CHUNK, record_every=1)
    with np.load(out) as found:
        assert np.array_equal(found["carry"], whole.carry)
        assert np.array_equal(found["records"], whole.records)

    later = tmp_path / "later"
    tool = [sys.executable, CHILD, "--out", out, "--checkpoint", later, "--steps", 5000, "--pause", 0.05]
    # A shell that was started with Ctrl-C ignored, as in the background of a script, cannot heed it.
    heeding = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", heeding, "bash", SCRIPTS / "ssh.sh", "localhost,127.0.0.1", *tool]
    path = f"{programs}:{os.environ['PATH']}"
    with subprocess.Popen(
        [*map(str, command)],
        cwd=programs,
        env=environment(PATH=path, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as script:
        deadline = time.monotonic() + 120
        while not list(later.glob("step-*[1-9]*.jwstate")):
            assert script.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(script.pid, signal.SIGINT)  # what a terminal sends
        said, noted = script.communicate(timeout=60)
    assert script.returncode == 130, noted
    assert json.loads(said)["outcome"] == "interrupted"


def test_the_scripts_give_all_hosts_one_secret_that_no_command_line_shows(programs: Path) -> None:
    show = '#!/bin/bash\necho "$JAXWORLDS_TOKEN" >>"$SEEN"\n'
    add(programs, "tool", show + 'tr "\\0" " " </proc/$PPID/cmdline >>"$LINES"\n')
    add(programs, "srun", '#!/bin/bash\n"$1"; "$1"\n')
    add(programs, "ssh", '#!/bin/bash\necho "$*" >>"$LINES"\nshift\nexec bash -c "$*"\n')
    made = set()
    for script, words in (("slurm.sh", ()), ("ssh.sh", ("a,b",)), ("ssh.sh", ("a,b",))):
        seen, lines = programs / f"seen{len(made)}", programs / f"lines{len(made)}"
        named = {"SEEN": str(seen), "LINES": str(lines), "HOME": str(programs), "SLURM_NTASKS": "2"}
        done = launched(script, programs, *words, programs / "tool", **named)
        assert done.returncode == 0, done.stderr
        first, second = seen.read_text().split()
        assert first == second
        assert re.fullmatch("[0-9a-f]{64}", first)
        assert first not in lines.read_text()
        made.add(first)
    assert len(made) == 3, "every run has its own"


def test_the_page_shows_the_scripts() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    for script in sorted(SCRIPTS.glob("*.sh")):
        assert f"```bash\n{script.read_text()}```" in page, f"docs/scaling.md does not show {script.name}"
        subprocess.run(["bash", "-n", str(script)], check=True)

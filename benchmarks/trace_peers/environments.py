"""Peers in virtual environments of their own: making them, and talking to a tracer in another process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peer_tools import Missing, answer

HERE = Path(__file__).resolve().parent


class Environment(NamedTuple):
    """What pip installs, and for which Python where it is not ours."""

    packages: tuple[str, ...]
    python: str | None = None


ENVIRONMENTS = {
    "parcels": Environment(("parcels>=4,<5",)),
    "vtk": Environment(("vtk",)),
    # The last release line whose tracer interpolates in time as it should (ledger/jaxtrace.md, 7).
    "vtk-9.3": Environment(("vtk==9.3.1", "numpy<2")),
    "diffrax": Environment(("diffrax",)),
    # Its numbalsoda has wheels up to Python 3.10, and needs a Fortran compiler beyond.
    "numbacs": Environment(("numbacs", "packaging"), "3.10"),
}


def set_up(folder: Path) -> dict[str, str]:
    """Make the environments that are not there yet; returns why some could not be made."""
    folder.mkdir(parents=True, exist_ok=True)
    reasons = {}
    for name, wanted in ENVIRONMENTS.items():
        if (folder / name / "ready").exists():
            continue
        print(f"installing {', '.join(wanted.packages)} into {folder / name} ...", flush=True)
        try:
            _install(folder / name, wanted)
        except Missing as reason:
            reasons[name] = str(reason)
            (folder / f"{name}.reason").write_text(str(reason))
            print(f"  not installed: {reason}")
    return reasons


def python_of(folder: Path | None, name: str) -> Path:
    """The interpreter of a peer's environment."""
    if folder is None:
        raise Missing("no environments named; make them with --setup-peers DIR")
    if not (folder / name / "ready").exists():
        why = folder / f"{name}.reason"
        said = why.read_text() if why.exists() else "run with --setup-peers"
        raise Missing(f"not installed in {folder}: {said}")
    return folder / name / "bin" / "python"


def _install(target: Path, wanted: Environment) -> None:
    shutil.rmtree(target, ignore_errors=True)
    _checked([_interpreter(wanted.python), "-m", "venv", str(target)])
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _checked([*pip, "--only-binary=numpy,scipy,numba,llvmlite,vtk", *wanted.packages])
    (target / "ready").write_text(" ".join(wanted.packages))


def _interpreter(version: str | None) -> str:
    """Our own Python, or one of the wanted version that starts."""
    if version is None or sys.version.startswith(version + "."):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [
        shutil.which(f"python{version}"),
        *sorted(map(str, pyenv.glob(f"{version}.*/bin/python{version}"))),
    ]
    for candidate in filter(None, found):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    raise Missing(f"needs Python {version}, which is not here")


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        wrong = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise Missing(wrong[-1].removeprefix("ERROR: ").strip())


class Process:
    """A tracer in a process of its own (see `worker.py`)."""

    def __init__(
        self,
        python: Path | str,
        script: str,
        folder: Path,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if environment is None:  # a peer must not import our packages by way of PYTHONPATH
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [str(python), str(HERE / script), str(folder), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=dict(environment),
        )
        self._result = Path(folder) / f"result-{self._process.pid}.npy"
        try:
            self.about = self._answer(300)
        except BaseException:
            self.close()
            raise

    def run(
        self, n: int, steps: int, keep: int = 100_000, limit_s: float = 900
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The first `keep` positions, and what the run cost."""
        assert self._process.stdin is not None
        request = {"n": n, "steps": steps, "keep": keep, "to": str(self._result)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = self._answer(limit_s)
        return np.load(self._result), reply

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        self._result.unlink(missing_ok=True)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        return answer(self._process, self._errors, limit_s)

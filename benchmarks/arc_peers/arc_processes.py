"""Peers of the ARC environments: their virtual environments, the original as a folder, and players in other processes."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peer_tools import Missing, answer, checked, make_environments

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = {"original": "jaxarc==1.0.3", "arcle": "arcle==0.2.6"}
# What the original imports besides jax and numpy, found by looking at `sys.modules` after its start.
ORIGINAL_IMPORTS = (
    *(
        "jaxarc==1.0.3",
        "stoa-env==0.1.2",
        "equinox",
        "jaxtyping",
        "wadler_lindig",
        "chex",
        "toolz",
        "absl-py",
    ),
    *("flax", "etils", "msgpack", "typing_extensions", "hydra-core", "omegaconf==2.3.1", "pyyaml", "loguru"),
    *("drawsvg", "pyprojroot", "rich<15", "markdown-it-py", "mdurl", "pygments", "packaging", "tqdm"),
)
NOT_NEEDED = ("bin", "numpy", "jax", "jaxlib", "*/tests")


def set_up(folder: Path) -> None:
    """Make the environments that are not there yet; one that cannot be made says why."""
    make_environments(folder, ENVIRONMENTS)


def pack_original(folder: Path, python: str = "3.12") -> None:
    """Put the original and what it imports, jax and numpy left out, into a folder for a machine without a network."""
    shutil.rmtree(folder, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        str(folder),
    ]
    wheels = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    checked([*pip, *wheels, *ORIGINAL_IMPORTS])
    checked([*pip, "antlr4-python3-runtime==4.9.3"])  # omegaconf's parser: pure Python, but no wheel
    for pattern in NOT_NEEDED:
        for found in folder.glob(pattern):
            shutil.rmtree(found, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB")


def python_of(folder: Path | None, name: str) -> Path:
    """The interpreter of a peer's environment."""
    if folder is None:
        raise Missing("no environments named; make them with --setup-peers DIR")
    if not (folder / name / "ready").exists():
        raise Missing(f"not installed in {folder}; run with --setup-peers")
    return folder / name / "bin" / "python"


class Process:
    """A player in a process of its own (see `arc_worker.py`)."""

    def __init__(
        self, python: Path | str, script: str, tasks: Path, changed: Mapping[str, str | None]
    ) -> None:
        """`changed` names variables of the environment that are set, or with None left out."""
        inherited = {name: value for name, value in os.environ.items() if name not in changed}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [str(python), str(HERE / script), str(tasks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=inherited | {name: value for name, value in changed.items() if value is not None},
        )
        try:
            self.versions: dict[str, str] = self._answer(300)["versions"]
        except BaseException:
            self.close()
            raise

    def play(self, form: str, side: int, batch: int, seconds: float, limit_s: float = 600) -> dict[str, Any]:
        """Let it play for about so long: what it did and what that cost."""
        assert self._process.stdin is not None
        request = {"form": form, "side": side, "batch": batch, "seconds": seconds}
        with contextlib.suppress(BrokenPipeError):  # `_answer` tells why it ended
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer(limit_s)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        return answer(self._process, self._errors, limit_s)

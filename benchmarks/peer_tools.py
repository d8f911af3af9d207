"""What all benchmarks need of peers in virtual environments of their own: making these, and waiting for an answer."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class Missing(Exception):
    """A peer that cannot run here, and why."""


def checked(command: list[str]) -> None:
    """Run a command; one that fails is `Missing`, for the reason it told last."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        wrong = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise Missing(wrong[-1].removeprefix("ERROR: ").strip())


def make_environments(folder: Path, packages: Mapping[str, str]) -> None:
    """Make the environments that are not there yet, one for each package; one that cannot be made says why."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in packages.items():
        target = folder / name
        if (target / "ready").exists():
            continue
        print(f"installing {package} into {target} ...", flush=True)
        shutil.rmtree(target, ignore_errors=True)
        try:
            checked([sys.executable, "-m", "venv", str(target)])
            checked([str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", package])
            (target / "ready").write_text(package)
        except Missing as reason:
            print(f"  not installed: {reason}")


def answer(process: subprocess.Popen[str], errors: IO[str], limit_s: float) -> dict[str, Any]:
    """The next line that a process writes, as JSON; a process that is silent or dead is `Missing`, for what it said."""
    assert process.stdout is not None
    watch = threading.Timer(limit_s, process.kill)
    watch.start()
    line = process.stdout.readline()
    in_time = watch.is_alive()
    watch.cancel()
    if line:
        return json.loads(line)
    if not in_time:
        raise Missing(f"no answer within {limit_s:.0f} s")
    process.wait()
    errors.seek(0)
    lines = [text for text in errors.read().splitlines() if text.strip()]
    told = [text for text in lines if "Error" in text] or lines
    raise Missing(told[-1] if told else f"ended with {process.returncode}")

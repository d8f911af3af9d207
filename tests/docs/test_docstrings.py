"""The `>>>` examples in the docstrings of all our modules print what they say."""

import doctest
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")


def modules() -> list[str]:
    names = []
    for package in PACKAGES:
        root = importlib.import_module(package)
        names += [package, *(found.name for found in pkgutil.walk_packages(root.__path__, f"{package}."))]
    return names


def run_examples() -> dict[str, dict[str, int]]:
    """How many examples of each module were run and how many failed; what failed is printed."""
    counts = {}
    for name in modules():
        result = doctest.testmod(importlib.import_module(name))
        counts[name] = {"run": result.attempted, "failed": result.failed}
    return counts


@pytest.mark.own_process
def test_the_examples_in_docstrings_run(tmp_path: Path) -> None:
    # In a process of their own: an example may configure the runtime, which holds for the whole process.
    command = [sys.executable, __file__, str(tmp_path / "counts.json")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert {name for name, count in counts.items() if count["failed"]} == set(), done.stdout
    assert set(counts) == set(modules())
    assert sum(count["run"] for count in counts.values()) >= 5
    assert counts["jaxworlds.rollout.driver"]["run"] == 3


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(run_examples()))

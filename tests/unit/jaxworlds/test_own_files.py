"""Another distribution in a folder of ours, as `jaxarc` 1.x beside jaxworlds: an error with a remedy, whatever pip left."""

import base64
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxworlds import own_files
from jaxworlds.commands import _installation

pytestmark = pytest.mark.devices

SOURCE = Path(__file__).parents[3] / "src"
# How `jaxarc` 1.0.3 begins.
THEIRS = "from __future__ import annotations\nfrom ._version import version as __version__\nfrom .configs import X\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages: the core and the parts of jaxarc that say whose it is."""
    for name in ("__init__", "own_files", "_version", "lazy"):
        (tmp_path / "jaxworlds").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "jaxworlds" / f"{name}.py", tmp_path / "jaxworlds")
    shutil.copytree(SOURCE / "jaxarc" / "_version", tmp_path / "jaxarc" / "_version")
    shutil.copy(SOURCE / "jaxarc" / "__init__.py", tmp_path / "jaxarc")
    return tmp_path


def imported(site: Path, name: str) -> str:
    """The last line of what an import says; nothing if it works."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {name}"],
        env={**kept, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def distribute(site: Path, **files: str) -> None:
    """What pip does when it installs the other distribution."""
    (site / "JaxARC-1.0.3.dist-info").mkdir()
    for name, text in files.items():
        (site / "jaxarc" / f"{name}.py").write_text(text)


@pytest.mark.own_process
def test_ours_alone_is_no_trouble(site: Path) -> None:
    (site / "jaxarc_tools-2.0.dist-info").mkdir()
    (site / "jaxworlds-0.1.0.dist-info").mkdir()
    assert imported(site, "jaxarc") == ""
    assert imported(site, "jaxarc._version") == ""


@pytest.mark.own_process
def test_the_other_one_installed_over_ours_is_an_error_at_its_first_import(site: Path) -> None:
    distribute(site, __init__=THEIRS, _version="version = '1.0.3'\n")
    said = imported(site, "jaxarc")
    assert said.startswith("ImportError: the package `jaxarc` is not as jaxworlds installed it: ")
    assert "jaxarc/__init__.py is another distribution's file" in said
    assert "Type `pip uninstall -y jaxarc`, then `pip install --force-reinstall --no-deps jaxworlds`" in said


@pytest.mark.own_process
def test_ours_installed_over_the_other_one_is_an_error(site: Path) -> None:
    distribute(site, _version="version = '1.0.3'\n", types="")
    said = imported(site, "jaxarc")
    assert "JaxARC 1.0.3 put files into the same folder as jaxworlds" in said
    assert "pip uninstall -y jaxarc" in said


@pytest.mark.own_process
def test_what_is_left_after_the_other_one_was_uninstalled_says_so(site: Path) -> None:
    (site / "jaxarc" / "__init__.py").unlink()
    assert "its `__init__.py` is gone" in imported(site, "jaxarc._version")


@pytest.mark.parametrize("module", ["cli.py", "tasks/__init__.py", "envs/config.py"])
def test_modules_that_the_other_one_does_not_have_look(module: str) -> None:
    assert "import _version" in (SOURCE / "jaxarc" / module).read_text()


def test_the_doctor_finds_files_that_are_not_ours(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        """The list of files that an installer keeps."""

        def __init__(self) -> None:
            self.files = []
            for path in sorted((site / "jaxarc").rglob("*.py")):
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
                )
                self.files.append(importlib.metadata.PackagePath(path.relative_to(site)))
                self.files[-1].hash = importlib.metadata.FileHash(f"sha256={digest}")

        def locate_file(self, file: Any) -> Path:
            return site / file

    installed = Installed()
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    assert own_files.trouble_of("jaxarc") is None
    (site / "jaxarc" / "_version" / "__init__.py").write_text("changed")
    (site / "jaxarc" / "__init__.py").unlink()
    trouble = own_files.trouble_of("jaxarc")
    assert trouble == "2 of its files are not those that were installed, such as jaxarc/__init__.py"
    found = {f.name: f for f in _installation.package_findings()}
    assert list(found) == ["package jaxarc"]
    assert found["package jaxarc"].level == "bad"
    assert "pip uninstall -y jaxarc" in found["package jaxarc"].remedy


def test_the_doctor_finds_a_package_that_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "__init__.py").write_text("")
    (tmp_path / "lost").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert f"Python finds it at {(tmp_path / 'elsewhere').resolve()}" in str(
        own_files.trouble_of("elsewhere")
    )
    assert "its `__init__.py` is gone" in str(own_files.trouble_of("lost"))
    assert own_files.trouble_of("not_there_at_all") == "it is not there"

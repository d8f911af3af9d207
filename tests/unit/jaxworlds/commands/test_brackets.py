"""Names and paths with brackets, such as "flow [m]", are printed as they are: rich would take them for markup."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import rich.console

from jaxarc.tasks import load_folder
from jaxworlds.commands import _output, doctor
from jaxworlds.measuring import PerformanceMonitor, comparison, profiles
from jaxworlds.text import render

pytestmark = pytest.mark.devices

NAME = "flow [m] [/x]"


def test_tables_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    _output.show_table(NAME, (NAME, "figure"), [(NAME, "1")], note=NAME)
    assert capsys.readouterr().out.count(NAME) == 4


def test_spinners(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    terminal = rich.console.Console(force_terminal=True, width=80, file=stream)
    monkeypatch.setattr(rich.console, "Console", lambda **_: terminal)
    with _output.show_status(NAME) as tell:
        tell(f"now {NAME}")
    assert NAME in stream.getvalue()
    assert f"now {NAME}" in stream.getvalue()


def test_monitor_comparison_profile_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = PerformanceMonitor()
    monitor.metrics[NAME] = [0.1]
    assert NAME in render(monitor.table())
    found = comparison.compare({NAME: lambda: np.ones(3), "other [b]": lambda: np.ones(3)}, rounds=5)
    assert NAME in str(found)
    assert f"time ÷ {NAME}" in " ".join(str(found).split())
    assert "other [b]" in str(found)
    op = profiles.Operation(name=NAME, contains="[a]", calls=1, total_s=1.0, self_s=1.0, share=1.0)
    profile = profiles.Profile(operations=(op,), calls=1, wall_s=1.0, busy_s=1.0, top=3, folder=None)
    assert NAME in render(profile.table())
    doctor.print_diagnosis(doctor.Diagnosis(None, (doctor.Finding(NAME, "ok", NAME),)))
    assert NAME in capsys.readouterr().out


def test_a_set_of_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tasks [m] of [b]"
    folder.mkdir()
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    (folder / "one.json").write_text(json.dumps({"train": [pair], "test": [pair]}))
    load_folder(folder).describe()
    assert "tasks [m] of [b]" in " ".join(capsys.readouterr().out.split())

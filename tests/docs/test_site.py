"""The documentation as a site: it builds without a warning, needs no network, fits its pages, and its reference is whole."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import page_widths
import pytest

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = ROOT / "tests" / "architecture" / "public_api.txt"
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built documentation."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """The functions that write the pages of the reference."""
    return runpy.run_path(str(ROOT / "docs" / "reference" / "rooms.py"))


@pytest.mark.own_process
@pytest.mark.slow
def test_the_site_needs_no_network(site: Path) -> None:
    pages = [file.read_text() for file in site.rglob("*.html")]
    assert len(pages) > 60
    assert {
        found for page in pages for found in re.findall(r'(?:src|href)="?(https?:[^" >]+)', page)
    } == set()


@pytest.mark.own_process
@pytest.mark.slow
def test_the_reference_shows_types_shapes_and_examples(site: Path) -> None:
    text = "".join(map(_text, (site / "reference").rglob("*.html")))
    assert re.search(r'Float\[Array, "\w+ dim"\]', text)
    assert not re.search(r'Array, " \w', text), "a shape stands without the leading blank of the source"
    answers = _text(site / "reference" / "acbo" / "answers.html")
    assert ">>> likely_edges(" in answers
    for page in (site / "reference").rglob("*.html"):
        assert "<p>&gt;&gt;&gt;" not in page.read_text(), f"{page.name}: an example is not shown as code"
        assert "<blockquote>" not in page.read_text(), f"{page.name}: an example is shown as a quotation"


def _text(page: Path) -> str:
    """The text of a page without its tags."""
    return re.sub(r"<[^>]+>", "", page.read_text()).replace("&quot;", '"').replace("&gt;", ">")


@pytest.mark.own_process
@pytest.mark.slow
def test_nothing_is_wider_than_its_page(site: Path) -> None:
    chromium = page_widths.find_chromium()
    if chromium is None:
        pytest.skip(f"needs one of {', '.join(page_widths.NAMES)}, to lay the pages out")
    assert page_widths.wide_elements(site, chromium) == []


def test_every_re_exported_name_is_in_the_reference(reference: dict[str, Any]) -> None:
    shown = _homes_in_reference(reference)
    missing = []
    for package in PACKAGES:
        for module in reference["modules_of"](reference["package_of"](package)):
            names = reference["public_names"](module) if module.is_init_module else []
            homes = {name: module.members[name].canonical_path for name in names}
            missing += [f"{module.path}.{name}" for name, home in homes.items() if home not in shown]
    assert missing == []
    assert len(shown) > 400


def test_every_name_that_a_page_or_an_example_imports_is_in_the_reference(reference: dict[str, Any]) -> None:
    shown = _homes_in_reference(reference)
    missing = []
    for document in DOCUMENTS:
        for module, name in _imports(document):
            found = reference["package_of"](module.split(".")[0])
            for part in [*module.split(".")[1:], name]:
                found = found.members.get(part) if found is not None else None
            if (
                found is not None
                and not found.is_module
                and found.canonical_path not in shown
                and found.has_docstring
            ):
                missing.append(f"{document.name}: {module}.{name}")
    assert missing == []


def test_the_reference_shows_no_internals_and_nothing_undescribed(reference: dict[str, Any]) -> None:
    silent = []
    for package in PACKAGES:
        for room in reference["rooms"](package):
            assert not re.search(r"[./]_[a-z]", room.path), room.path
            for module, names in room.names.items():
                parts = module.split(".")[1:]
                members = reference["package_of"](package)[parts].members
                silent += [
                    f"{module}.{n}"
                    for n in names
                    if not (members[n].is_attribute or members[n].has_docstring)
                ]
    assert silent == []


def _homes_in_reference(reference: dict[str, Any]) -> set[str]:
    """Where the names are defined that the reference shows."""
    found = set()
    for package in PACKAGES:
        top = reference["package_of"](package)
        found |= {top.members[name].canonical_path for name in reference["public_names"](top)}
        for room in reference["rooms"](package):
            for module, names in room.names.items():
                members = top[module.split(".")[1:]].members
                found |= {members[name].canonical_path for name in names}
    return found


def _imports(document: Path) -> list[tuple[str, str]]:
    """(module, name) of every `from ... import ...` of ours in a script, or in the blocks of a page."""
    text = document.read_text()
    codes = [text] if document.suffix == ".py" else re.findall(r"(?ms)^```python[^\n]*\n(.*?)^```", text)
    nodes = [node for code in codes for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if node.module and node.module.split(".")[0] in PACKAGES]
    return [(node.module or "", alias.name) for node in ours for alias in node.names]

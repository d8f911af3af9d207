"""Pictures and pages that scripts in docs/ write are those that the scripts write today."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("quick_compile")

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("script", ["operations.py", "architecture.py", "seeing.py"])
def test_pictures_are_up_to_date(script: str) -> None:
    made = runpy.run_path(str(PICTURES / script))["pictures"]()
    for name, text in made.items():
        assert (PICTURES / name).read_text() == text, f"{name}: run python docs/pictures/{script}"


def test_every_operation_is_in_a_picture() -> None:
    panels = runpy.run_path(str(PICTURES / "operations.py"))["PICTURES"]
    shown = {panel.operation for row in panels.values() for panel in row}
    fills, floods = set(range(10)), set(range(10, 20))
    assert shown >= set(range(20, 42))
    assert shown & fills
    assert shown & floods


def test_pictures_are_small_and_shown() -> None:
    pages = "".join(page.read_text() for page in PICTURES.parent.rglob("*.md"))
    for file in PICTURES.glob("*.svg"):
        assert file.stat().st_size < 40_000, file.name
        assert f"pictures/{file.name})" in pages, file.name


def test_reference_pages_are_up_to_date() -> None:
    script = PICTURES.parent / "reference" / "write_reference.py"
    made = runpy.run_path(str(script))["pages"]()
    assert set(made) == {f"{name}.md" for name in ("jaxworlds", "jaxarc", "acbo", "jaxtrace")}
    for name, text in made.items():
        written = script.with_name(name).read_text()
        assert written == text, f"{name}: run python docs/reference/write_reference.py"
        undescribed = [line for line in text.splitlines() if line.endswith("|  |")]
        assert undescribed == []


def test_every_public_name_is_in_the_reference() -> None:
    reference = runpy.run_path(str(PICTURES.parent / "reference" / "write_reference.py"))
    shown = "".join(text for text in reference["pages"]().values())
    late = reference["homes"]()
    missing = []
    for path in reference["public_paths"]():
        module, name = path.rsplit(".", 1)
        ours = reference["definition"](late.get(path, module), name) is not None
        if f"| `{name}" not in shown and ours:
            missing.append(path)
    assert missing == []

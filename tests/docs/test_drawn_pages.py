"""Pictures that scripts in docs/ write are those that the scripts write today."""

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

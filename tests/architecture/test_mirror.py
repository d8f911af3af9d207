"""Unit tests lie where their source lies: `tests/unit/<package>/<folder>` beside `src/<package>/<folder>`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT, SOURCE = ROOT / "tests" / "unit", ROOT / "src"
FOLDERS = sorted({file.parent.relative_to(UNIT) for file in UNIT.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_of_tests_is_a_folder_or_module_of_the_sources(folder: Path) -> None:
    assert folder.parts, f"{UNIT} itself holds no tests: move them into the folder of their package"
    source = SOURCE / folder
    assert source.is_dir() or source.with_suffix(".py").is_file(), (
        f"tests/unit/{folder} has no src/{folder}: move the tests where the source went"
    )

"""The table of renamed names on the migration page: what stands under "now" is there, what stands under "before" is not."""

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
SECTION = "## Names of 22: plain English\n"
NAME = re.compile(r"`((?:jaxworlds|jaxarc|acbo|jaxtrace)(?:\.\w+)+)[`(]")


def renamed() -> list[tuple[str, str]]:
    """The rows of the table: (before, now)."""
    section = PAGE.read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert rows[0] == ["before", "now"]
    return [(before, now) for before, now in rows[1:]]


def exists(name: str) -> bool:
    """True for a module, and for a name in a module or in a class."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_every_new_name_is_there() -> None:
    names = {name for _, now in renamed() for name in NAME.findall(now)}
    assert len(names) >= 5
    assert sorted(name for name in names if not exists(name)) == []


def test_every_row_names_what_replaces_it_in_full() -> None:
    assert [before for before, now in renamed() if not NAME.search(now) and "gone" not in now] == []


def test_a_name_that_is_not_there_is_seen() -> None:
    assert exists("jaxworlds.rollout.run")
    assert exists("jaxtrace.fields.Mesh")
    assert not exists("jaxworlds.rollout.ran")
    assert not exists("jaxworlds.no_such_room.run")

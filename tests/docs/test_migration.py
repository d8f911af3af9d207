"""The table of renamed names on the migration page: what stands under "now" is there."""

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
SECTION = "## Names of 22: plain English\n"
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
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


def unknown_names(before: str, now: str) -> list[str]:
    """Names under "now" that are not there; one without its module is looked for in the modules that the row names."""
    modules = {name.rpartition(".")[0] for name in NAME.findall(f"{before} {now}")} | set(NAME.findall(now))
    bare = [name for name in re.findall(r"`(\w+)[`(]", now) if name not in PACKAGES]
    wrong = [name for name in NAME.findall(now) if not exists(name)]
    return wrong + [name for name in bare if not any(exists(f"{module}.{name}") for module in modules)]


def test_every_new_name_is_there() -> None:
    assert len(renamed()) >= 5
    assert {before: wrong for before, now in renamed() if (wrong := unknown_names(before, now))} == {}


def test_a_name_that_is_not_there_is_seen() -> None:
    assert exists("jaxworlds.rollout.run")
    assert exists("jaxtrace.fields.Mesh")
    assert not exists("jaxworlds.rollout.ran")
    assert not exists("jaxworlds.no_such_room.run")
    assert unknown_names("`jaxworlds.rollout.ran`", "`run`, `runs`") == ["runs"]

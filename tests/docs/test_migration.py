"""The table of renamed names on the migration page: what stands under "now" is there."""

import functools
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, SOURCE = ROOT / "docs" / "migration.md", ROOT / "src"
SECTION = "## Names of 22: plain English\n"
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
NAME = re.compile(r"`((?:jaxworlds|jaxarc|acbo|jaxtrace)(?:\.\w+)+)[`(]")


def table_rows() -> list[tuple[str, str]]:
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


@functools.cache
def defined_names() -> frozenset[str]:
    """Modules, functions, classes and fields anywhere in the sources."""
    files = list(SOURCE.rglob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    words = re.findall(r"(?m)^ *(?:def|class) (\w+)|^ *(\w+)(?:: [^=\n]+)?(?: = .*)?$", text)
    return frozenset(
        {file.stem for file in files}
        | {file.parent.name for file in files}
        | {w for pair in words for w in pair}
    )


def unknown_names(now: str) -> list[str]:
    """Names under "now" that are not there; one without its module must be defined somewhere."""
    wrong = [name for name in NAME.findall(now) if not exists(name)]
    bare = [
        name
        for name in re.findall(r"`\.?((?:\w+\.)?\w+)[`(]", now)
        if not name.startswith((*PACKAGES, "jax."))
    ]
    return wrong + [name for name in bare if not set(name.split(".")) <= defined_names()]


def test_every_new_name_is_there() -> None:
    assert len(table_rows()) >= 5
    assert {before: wrong for before, now in table_rows() if (wrong := unknown_names(now))} == {}


def test_a_name_that_is_not_there_is_seen() -> None:
    assert exists("jaxworlds.rollout.run")
    assert exists("jaxtrace.fields.Mesh")
    assert not exists("jaxworlds.rollout.ran")
    assert not exists("jaxworlds.no_such_room.run")
    assert unknown_names("`jaxworlds.rollout.ran`, `run`, `ran`") == ["jaxworlds.rollout.ran", "ran"]

"""The house beside the models of the field, counted: names, sizes of folders and functions. Ceilings may only fall.

What stands in the way of a ceiling: `python tests/architecture/test_house.py`.
"""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

MODULES_IN_A_FOLDER = 20
SHORT_FUNCTION = 40
SHORT_SHARE = 0.97

# Where we are; who lowers a count lowers its ceiling. The bar for participles is 1 % of the functions: diffrax has 0.9 %,
# Parcels 0.5 %, gymnax 0.4 %, BayBE 0.1 %.
PARTICIPLES = 13
GERUND_MODULES = 3
CROWDED: dict[str, int] = {}

PARTICIPLE = re.compile(r"_*[a-z]+(ed|awn|own|un|ept|old|aid|ade|ought|osen|aken|iven|een|itten|ound)")
"""The last word of a name that says what was done and not what is done."""
NOUNS_AND_VERBS = (
    *(
        "grid",
        "need",
        "speed",
        "feed",
        "seed",
        "embed",
        "shed",
        "even",
        "open",
        "listen",
        "flatten",
        "rollout",
    ),
    *("output", "layout", "mixed", "shared", "unstructured", "proceed"),
)
WORDS = {"around", "bound", "background", "round", "sound", "run", "fun", "made"}
# Gerunds that a ledger or a guide promises, or that a room has as its public name.
PUBLIC_GERUNDS = {
    "jaxworlds.batching",
    "jaxworlds.checking",
    "jaxworlds.compiling",
    "jaxworlds.measuring",
    "jaxarc.performance.batching",
    "jaxarc.performance.compiling",
    "jaxarc.testing",
    "jaxarc.utils.error_handling",
    "jaxtrace.tracking",
}


class Function(NamedTuple):
    """One function or method, with its own lines: nested functions count, docstrings do too."""

    place: str
    name: str
    lines: int


@functools.cache
def functions() -> list[Function]:
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append(Function(f"{file.relative_to(ROOT)}:{node.lineno}", node.name, lines))
    return found


def is_participle(name: str) -> bool:
    """True for `begun` and `drawn`, False for `seed` and `background`."""
    fits = PARTICIPLE.fullmatch(name) is not None
    return fits and name.strip("_") not in WORDS and not name.endswith(tuple(NOUNS_AND_VERBS))


def participles() -> list[Function]:
    return [function for function in functions() if is_participle(function.name)]


def crowd_counts() -> dict[str, int]:
    """Folders of more than 20 modules."""
    folders = sorted({file.parent for file in SOURCE.rglob("*.py")})
    counts = {
        str(folder.relative_to(SOURCE)): len(set(folder.glob("*.py")) - {folder / "__init__.py"})
        for folder in folders
    }
    return {folder: count for folder, count in counts.items() if count > MODULES_IN_A_FOLDER}


def gerund_modules() -> list[str]:
    """Modules and folders that are named for what happens and not for what they hold."""
    paths = [path for path in SOURCE.rglob("*") if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths}
    return sorted(name for name in names - PUBLIC_GERUNDS if re.search(r"(?<!\bstr)(?<!\br)ing$", name))


def test_functions_are_verbs_or_nouns() -> None:
    assert len(participles()) <= PARTICIPLES, [f"{one.place} {one.name}" for one in participles()]


def test_functions_fit_on_a_screen() -> None:
    short = sum(function.lines <= SHORT_FUNCTION for function in functions())
    assert short >= SHORT_SHARE * len(functions())


def test_folders_hold_about_twenty_modules() -> None:
    assert {folder: count for folder, count in crowd_counts().items() if count > CROWDED.get(folder, 0)} == {}


def test_modules_are_nouns() -> None:
    assert len(gerund_modules()) <= GERUND_MODULES, gerund_modules()


def test_the_pattern_tells_participles_from_nouns() -> None:
    assert all(map(is_participle, ["begun", "drawn", "counted", "_judged", "chosen", "written"]))
    assert not any(
        map(is_participle, ["seed", "_random_seed", "run", "background", "uniform_grid", "speed", "begin"])
    )


if __name__ == "__main__":
    for one in participles():
        print(f"{one.place}: {one.name}")
    long = [function for function in functions() if function.lines > SHORT_FUNCTION]
    for one in long:
        print(f"{one.place}: {one.name}, {one.lines} lines")
    print("\n".join(gerund_modules()), crowd_counts(), sep="\n")
    total = len(functions())
    print(
        f"{total} functions; participles {len(participles())} ({len(participles()) / total:.2%}), "
        f"within {SHORT_FUNCTION} lines {1 - len(long) / total:.2%}, gerund modules {len(gerund_modules())}"
    )

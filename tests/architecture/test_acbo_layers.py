"""The layers of acbo: each folder imports from its own layer or a lower one, and the folders form no cycle."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ACBO = Path(__file__).resolve().parents[2] / "src" / "acbo"
LAYERS = (
    {"data", "names", "optional", "linear_algebra", "_limits"},
    {"scms", "inference", "train_loop"},
    {"problem", "surrogate"},
    {"beliefs", "experiments", "answers", "pictures"},
    {"policy"},
    {"strategies"},
    {"optimizer", "guide"},
    {"_commands", "demo", "cli"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_rooms(file: Path, root: Path = ACBO) -> Iterator[tuple[str, int]]:
    """(folder of acbo or module beside the folders, line) for every import of a file, at any depth of its code."""
    here = ("acbo", *file.relative_to(root).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*(here[: len(here) + 1 - node.level] if node.level else ())]
            base += node.module.split(".") if node.module else []
            modules = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for owner, *inner in modules:
            if owner == "acbo" and inner and inner[0] in LEVEL:
                yield inner[0], node.lineno


def room_graph(root: Path = ACBO) -> dict[str, set[str]]:
    """What each folder, and each module beside the folders, imports of the others."""
    graph: dict[str, set[str]] = {}
    for file in sorted(root.rglob("*.py")):
        own = file.relative_to(root).parts[0].removesuffix(".py")
        if own != "__init__":  # it loads names lazily
            graph.setdefault(own, set()).update(name for name, _ in imported_rooms(file, root))
            graph[own].discard(own)
    return graph


def test_every_folder_has_a_layer_and_imports_no_higher_one() -> None:
    graph = room_graph()
    assert set(graph) == set(LEVEL)
    higher = {
        name: {other for other in others if LEVEL[other] > LEVEL[name]} for name, others in graph.items()
    }
    assert {name: others for name, others in higher.items() if others} == {}


def test_the_folders_form_no_cycle() -> None:
    graph = room_graph()
    assert graph["optimizer"] >= {"strategies", "beliefs"}, "an empty graph has no cycles either"
    list(graphlib.TopologicalSorter(graph).static_order())


def test_a_cycle_is_seen_even_in_a_late_import(tmp_path: Path) -> None:
    for name, text in {
        "policy/grpo.py": "from acbo.strategies.base import AbstractStrategy\n",
        "strategies/base.py": "def f():\n    from ..policy import grpo\n",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    with pytest.raises(graphlib.CycleError):
        list(graphlib.TopologicalSorter(room_graph(tmp_path)).static_order())

"""The layers: systems import the core and themselves, the core imports no system and names none, heavy packages come late.

What a package, or a folder of the core, keeps for itself begins with an underscore, and nobody else imports it. The folders
of the core and the modules beside them form no cycle.
"""

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
CORE = "jaxworlds"
SYSTEMS = ("jaxarc", "acbo", "jaxtrace")
# What a module may import at its top; everything else is imported inside the function that needs it.
# ml_dtypes is part of jax: it holds bfloat16 and its like.
EVERYWHERE = {"jax", "ml_dtypes", "numpy", "equinox", "jaxtyping", *sys.stdlib_module_names}
FILES = sorted(SOURCE.rglob("*.py"))


def imports(file: Path) -> Iterator[tuple[str, bool, int]]:
    """(top package, whether at the module's top level, line) for every import, relative ones resolved."""
    tree = ast.parse(file.read_text())
    package = file.relative_to(SOURCE).parts[0]
    late = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _type_checking(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [package if node.level else (node.module or "").split(".")[0]]
        else:
            continue
        for name in names:
            yield name, id(node) not in late, node.lineno


def imported(file: Path) -> Iterator[tuple[str, str, int]]:
    """(absolute module, name, line) for every import in a file, at any depth of its code; no name for `import module`."""
    here = file.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name, node.lineno) for alias in node.names)


def is_private(name: str) -> bool:
    """True for `_name`; dunder names such as `__version__` are public."""
    return name.startswith("_") and not name.startswith("__")


def room(module: str, name: str) -> str:
    """The folder of the core that an import leads to, or the module beside the folders; "" for `jaxworlds` itself."""
    parts = [*module.split("."), *([name] if name else [])][1:2]
    first = parts[0] if parts else ""
    at = SOURCE / CORE / first
    return first if at.is_dir() or at.with_suffix(".py").is_file() else ""


def private_imports(file: Path) -> list[str]:
    """Imports of what another package, or another folder of the core, keeps for itself."""
    package, first, *_ = file.relative_to(SOURCE).parts
    found = []
    for module, name, line in imported(file):
        owner, *inner = module.split(".")
        if owner not in (CORE, *SYSTEMS):
            continue
        private = any(is_private(part) for part in (*inner, name))
        if owner == package == CORE:  # a private module beside the folders is for the whole core
            of = room(module, name)
            private = private and of != first and bool(of) and (SOURCE / CORE / of).is_dir()
        elif owner == package:  # a system's own affair
            private = False
        if private:
            found.append(f"{'.'.join(filter(None, (module, name)))} (line {line})")
    return found


def rooms(files: list[Path]) -> dict[str, set[str]]:
    """What each folder of the core, and each module beside them, imports of the others, late imports too."""
    graph: dict[str, set[str]] = {}
    for file in files:
        package, first, *_ = file.relative_to(SOURCE).parts
        if package != CORE or first == "__init__.py":  # which says where names are, and imports none of them
            continue
        own = first.removesuffix(".py")
        targets = {room(module, name) for module, name, _ in imported(file) if module.split(".")[0] == CORE}
        graph.setdefault(own, set()).update(targets - {"", own})
    return graph


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_keep_the_layers(file: Path) -> None:
    package = file.relative_to(SOURCE).parts[0]
    forbidden = set(SYSTEMS) - {package}
    top = {*EVERYWHERE, CORE, package, *({"tyro"} if file.name == "cli.py" else ())}
    wrong = [f"{name} (line {line})" for name, _, line in imports(file) if name in forbidden]
    heavy = [f"{name} (line {line})" for name, early, line in imports(file) if early and name not in top]
    assert not wrong, f"{package} must not import {', '.join(wrong)}"
    assert not heavy, f"import inside the function that needs it: {', '.join(heavy)}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_nobody_imports_what_others_keep_for_themselves(file: Path) -> None:
    assert private_imports(file) == []


def test_the_folders_of_the_core_form_no_cycle() -> None:
    graph = rooms(FILES)
    assert graph["rollout"] >= {"store", "taps", "batching"}, "an empty graph has no cycles either"
    list(graphlib.TopologicalSorter(graph).static_order())


ARC_FACADES = ("envs/__init__.py", "envs/functional.py", "envs/episodes.py")
"""They name what stands above the definitions, for type checkers alone; it is imported on first use."""


def arc_rooms() -> dict[str, set[str]]:
    """What each folder of jaxarc, and each module beside them, imports of the others, late imports too."""
    graph: dict[str, set[str]] = {}
    home = SOURCE / "jaxarc"
    for file in sorted(home.rglob("*.py")):
        inside = file.relative_to(home)
        if inside.name == "__init__.py" and len(inside.parts) == 1:
            continue
        own = inside.parts[0].removesuffix(".py")
        below_facade = inside.as_posix() in ARC_FACADES
        for module, name, _ in imported(file):
            parts = [*module.split("."), *([name] if name else [])]
            if parts[0] != "jaxarc" or len(parts) < 2 or parts[1] == own or parts[1].startswith("__"):
                continue
            if below_facade and parts[1] in ("dispatch", "agents"):
                continue
            graph.setdefault(own, set()).add(parts[1])
    return graph


def test_the_definitions_of_jaxarc_import_no_kernel() -> None:
    graph = arc_rooms()
    assert graph["tasks"] <= {"_version"}
    assert graph["envs"] <= {"_version", "tasks"}
    assert graph["kernels"] <= {"envs", "tasks"}
    assert graph["dispatch"] == {"envs", "kernels", "tasks"}
    for facade in ARC_FACADES:  # nothing of it when the definitions are imported
        tree = ast.parse((SOURCE / "jaxarc" / facade).read_text())
        early = [
            node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 2
        ]
        assert not [module for module in early if module.split(".")[0] in ("dispatch", "agents", "kernels")]


def test_the_folders_of_jaxarc_form_no_cycle() -> None:
    list(graphlib.TopologicalSorter(arc_rooms()).static_order())


def test_the_core_names_no_system() -> None:
    named = re.compile(rf"\b({'|'.join(SYSTEMS)})")
    texts = {
        f: f.read_text() for f in (SOURCE / CORE).rglob("*") if f.suffix in (".py", ".h", ".html", ".typed")
    }
    assert len(texts) > 60
    assert {str(file): found for file, text in texts.items() if (found := named.findall(text))} == {}


def test_breaches_of_privacy_and_cycles_are_seen(tmp_path: Path) -> None:
    files = {
        "jaxworlds/_trees.py": "",
        "jaxworlds/static.py": "from ._trees import walk\n",
        "jaxworlds/store/_container.py": "from .._trees import walk\nfrom ..static import config\n",
        "jaxworlds/store/states.py": "from ._container import read\n\ndef f():\n    from ..rollout import run\n",
        "jaxworlds/rollout/driver.py": (
            "from ..store import save\nfrom ..store._container import read\nfrom ..store import _container\n"
        ),
        "acbo/own.py": "from jaxworlds import __version__\nfrom jaxworlds.store import save\nfrom ._mine import x\n",
        "acbo/bad.py": (
            "from jaxworlds._trees import walk\nfrom jaxworlds.static import _config\nimport jaxworlds.store._container\n"
        ),
    }
    global SOURCE
    kept = SOURCE
    try:
        SOURCE = tmp_path
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        found = {name: private_imports(tmp_path / name) for name in files}
        assert {name: lines for name, lines in found.items() if lines} == {
            "jaxworlds/rollout/driver.py": [
                "jaxworlds.store._container.read (line 2)",
                "jaxworlds.store._container (line 3)",
            ],
            "acbo/bad.py": [
                "jaxworlds._trees.walk (line 1)",
                "jaxworlds.static._config (line 2)",
                "jaxworlds.store._container (line 3)",
            ],
        }
        graph = rooms([tmp_path / name for name in files])
        assert graph["store"] == {"_trees", "static", "rollout"}
        with pytest.raises(graphlib.CycleError):
            list(graphlib.TopologicalSorter(graph).static_order())
    finally:
        SOURCE = kept


def test_the_check_itself_sees_a_breach(tmp_path: Path) -> None:
    """A check that cannot fail is none: feed it a file that breaks both rules."""
    global SOURCE
    kept = SOURCE
    try:
        SOURCE = tmp_path
        bad = tmp_path / "jaxworlds" / "bad.py"
        bad.parent.mkdir()
        bad.write_text("import jaxarc\nimport pandas\ndef f():\n    import vtk\n")
        assert [(n, early) for n, early, _ in imports(bad)] == [
            ("jaxarc", True),
            ("pandas", True),
            ("vtk", False),
        ]
        with pytest.raises(AssertionError, match="must not import jaxarc"):
            test_imports_keep_the_layers(bad)
    finally:
        SOURCE = kept


def test_the_runtime_can_be_imported_before_jax() -> None:
    for file in (SOURCE / CORE / "__init__.py", *(SOURCE / CORE / "runtime").glob("*.py")):
        early = {n for n, top, _ in imports(file) if top}
        assert not early & {"jax", "equinox", "numpy"}, file.name


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(f.relative_to(SOURCE)) for f in FILES if not ast.get_docstring(ast.parse(f.read_text()))]
    assert silent == []


# --- jaxtrace: what exists, how it moves, what drives it, what people see ---

TRACE_DEFINITIONS = ("fields", "integrators", "boundaries", "motion")
# `trajectory.save()`, `.load()`, `.to_dataset()` and `.plot()` reach upwards, inside the methods, for those who type them.
CONVENIENCES = {"trajectory.py": {"io", "visualization"}}


def folders_of_jaxtrace() -> dict[str, set[str]]:
    """What each folder of jaxtrace, and each module beside them, imports of the others, late imports too."""
    graph: dict[str, set[str]] = {}
    for file in FILES:
        package, first, *_ = file.relative_to(SOURCE).parts
        if (
            package != "jaxtrace" or first == "__init__.py"
        ):  # which says where names are, and imports none of them
            continue
        own = first.removesuffix(".py")
        targets = set()
        for module, name, _ in imported(file):
            parts = [*module.split("."), *([name] if name else [])]
            if parts[0] == "jaxtrace" and len(parts) > 1:
                targets.add(parts[1])
        known = {
            name
            for name in targets
            if (SOURCE / "jaxtrace" / name).is_dir() or (SOURCE / "jaxtrace" / f"{name}.py").is_file()
        }
        graph.setdefault(own, set()).update(known - {own} - CONVENIENCES.get(file.name, set()))
    return graph


def test_the_folders_of_jaxtrace_form_no_cycle() -> None:
    graph = folders_of_jaxtrace()
    assert graph["tracking"] >= {"fields", "integrators", "boundaries", "kernels"}, (
        "an empty graph has no cycles either"
    )
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("folder", TRACE_DEFINITIONS)
def test_no_definition_of_jaxtrace_imports_a_kernel(folder: str) -> None:
    above = {"kernels", "tracking", "io", "visualization", "_commands"}
    assert not folders_of_jaxtrace()[folder] & above


def test_kernels_of_jaxtrace_know_nothing_of_who_drives_them() -> None:
    assert not folders_of_jaxtrace()["kernels"] & {"tracking", "io", "visualization", "_commands"}


# Messages between hosts carry HMACs, wheels list digests of their own kind, and users have baselines under the old key.
OTHER_DIGESTS = {
    "jaxworlds/processes/_token.py": "sha256",
    "jaxworlds/processes/_wire.py": "sha256",
    "jaxworlds/own_files.py": "new",
    "jaxworlds/measuring/_environment.py": "sha256",
}


def test_there_is_one_digest() -> None:
    found = {
        (str(file.relative_to(SOURCE)), name)
        for file in FILES
        for name in re.findall(r"\bhashlib\.(\w+)", file.read_text())
        if name != "blake2b"
    }
    assert found == set(OTHER_DIGESTS.items()), "use `hashlib.blake2b`"


def test_one_module_listens_to_jax_and_one_finds_the_cache_and_one_writes_png() -> None:
    homes = {
        r"jax\.monitoring\.register": "jaxworlds/compile_events.py",
        r"XDG_CACHE_HOME": "jaxworlds/runtime/_cache.py",
        r"acTL": "jaxworlds/pictures.py",
    }
    for pattern, home in homes.items():
        found = {str(file.relative_to(SOURCE)) for file in FILES if re.search(pattern, file.read_text())}
        assert found == {home}, pattern

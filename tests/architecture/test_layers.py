"""The layers: systems import the core and themselves, the core imports no system, heavy packages come late."""

import ast
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
    for name in ("runtime.py", "__init__.py"):
        early = {n for n, top, _ in imports(SOURCE / CORE / name) if top}
        assert not early & {"jax", "equinox", "numpy"}, name


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(f.relative_to(SOURCE)) for f in FILES if not ast.get_docstring(ast.parse(f.read_text()))]
    assert silent == []

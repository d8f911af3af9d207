"""Files are data: nothing in the sources unpickles, evaluates or executes what a file or a user says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}


def breaches(tree: ast.AST) -> Iterator[str]:
    """What a file must not do, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            )
            yield from (f"import of {name} (line {line})" for name in names if name.split(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"call of {node.func.id} (line {line})"
        for word in node.keywords:
            if word.arg == "allow_pickle" and not (
                isinstance(word.value, ast.Constant) and word.value.value is False
            ):
                yield f"allow_pickle is not False (line {line})"
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner, name = node.func.value.id, node.func.attr
            loader = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
            loader += "".join(ast.unparse(word.value) for word in node.keywords if word.arg == "Loader")
            if owner == "yaml" and name in ("load", "load_all", "compose") and "SafeLoader" not in loader:
                yield f"yaml.{name} without a safe loader (line {line})"
            if owner == "yaml" and "unsafe" in name:
                yield f"yaml.{name} (line {line})"
            # Without the word NumPy refuses objects by itself; said, it stays so where a default changes.
            if (
                owner == "np"
                and name == "load"
                and not any(word.arg == "allow_pickle" for word in node.keywords)
            ):
                yield f"np.load without allow_pickle=False (line {line})"
            if (owner, name) in (("os", "system"), ("os", "popen")):
                yield f"os.{name} (line {line})"


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_source_runs_what_a_file_says(file: Path) -> None:
    assert not list(breaches(ast.parse(file.read_text())))


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from cloudpickle import loads",
        "eval(text)",
        "exec(open(path).read())",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "os.system(text)",
    ],
)
def test_the_check_sees_every_breach(text: str) -> None:
    assert list(breaches(ast.parse(text)))


def test_what_is_safe_passes() -> None:
    safe = "np.load(path, allow_pickle=False); yaml.compose(text, yaml.SafeLoader); ast.literal_eval(text); model.eval()"
    assert not list(breaches(ast.parse(safe)))

"""Writes docs/reference/*.md: every public name once, with its parameters and its first sentence, read off the sources.

python docs/reference/write_reference.py

Which names are public says tests/architecture/public_api.txt. Nothing is imported, so that it takes a second.
"""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES, SNAPSHOT = ROOT / "src", ROOT / "tests" / "architecture" / "public_api.txt"
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
Node = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
LONGEST = 24
"""Letters of a default value that is shown; a longer one is left to the source."""


class Found(NamedTuple):
    """Where a name is defined, and what the source says of it."""

    module: str
    node: Node
    said: str


def file_of(module: str) -> Path:
    """Where the source of a module or of a package is."""
    path = SOURCES.joinpath(*module.split("."))
    whole = path / "__init__.py"
    return whole if whole.is_file() else path.with_suffix(".py")


@functools.cache
def tree_of(module: str) -> tuple[ast.Module, bool]:
    """The source of a module, parsed, and whether it is a package."""
    file = file_of(module)
    return ast.parse(file.read_bytes()), file.name == "__init__.py"


@functools.cache
def lines_of(module: str) -> list[bytes]:
    """The source of a module as lines of bytes, which is how the parser counts columns."""
    return file_of(module).read_bytes().splitlines()


def written(module: str, node: ast.expr) -> str:
    """An expression as its source has it, on one line: versions of Python write it back differently."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    lines = lines_of(module)[first : last + 1]
    lines[-1] = lines[-1][: node.end_col_offset]
    lines[0] = lines[0][node.col_offset :]
    return " ".join(b" ".join(lines).decode().split())


@functools.cache
def definition(module: str, name: str) -> Found | None:
    """The definition behind a name, followed through re-exports; None where it is not ours."""
    tree, package = tree_of(module)
    bodies = [tree.body, *(part.body for part in tree.body if isinstance(part, ast.If | ast.Try))]
    for body in bodies:
        for at, statement in enumerate(body):
            following = body[at + 1] if at + 1 < len(body) else None
            match statement:
                case ast.FunctionDef(name=found) | ast.ClassDef(name=found) if found == name:
                    if any(
                        isinstance(one, ast.Name) and one.id == "overload" for one in statement.decorator_list
                    ):
                        continue
                    return Found(module, statement, ast.get_docstring(statement) or "")
                case ast.Assign(targets=targets):
                    flat = [t for target in targets for t in getattr(target, "elts", [target])]
                    if any(isinstance(t, ast.Name) and t.id == name for t in flat):
                        return Found(module, statement, _literal(following))
                case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                    return Found(module, statement, _literal(following))
                case ast.ImportFrom(module=home, level=level, names=imported):
                    for alias in imported:
                        if (alias.asname or alias.name) == name:
                            base = module.split(".")[: -level + package or None] if level else []
                            source = ".".join([*base, *([home] if home else [])])
                            ours = source.split(".")[0] in PACKAGES
                            return definition(source, alias.name) if ours else None
    return None


def _literal(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def parameters(module: str, node: Node) -> str | None:
    """What can be passed, without types: of a function, of `__init__`, or the fields of a class; None for a value."""
    match node:
        case ast.FunctionDef(args=args):
            return _arguments(module, args)
        case ast.ClassDef(body=body):
            for part in body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    return _arguments(module, part.args, without="self")
            fields = [part for part in body if isinstance(part, ast.AnnAssign)]
            shown = [_field(module, part) for part in fields if isinstance(part.target, ast.Name)]
            return ", ".join(one for one in shown if not one.startswith("_")) or None
    return None


def _field(module: str, part: ast.AnnAssign) -> str:
    name = part.target.id if isinstance(part.target, ast.Name) else ""
    if "ClassVar" in written(module, part.annotation):
        return "_"
    if isinstance(part.value, ast.Call) and written(module, part.value.func).endswith("field"):
        given = {word.arg: word.value for word in part.value.keywords}
        return name + (_default(module, given["default"]) if "default" in given else "")
    return name + ("" if part.value is None else _default(module, part.value))


def _default(module: str, value: ast.expr) -> str:
    text = written(module, value)
    return f"={text}" if len(text) <= LONGEST else "=…"


def _arguments(module: str, args: ast.arguments, without: str = "") -> str:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    shown = [
        arg.arg + (_default(module, value) if value else "")
        for arg, value in zip(plain, defaults, strict=True)
        if arg.arg != without
    ]
    if args.vararg or args.kwonlyargs:
        shown.append(f"*{args.vararg.arg if args.vararg else ''}")
    shown += [
        arg.arg + (_default(module, value) if value else "")
        for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return ", ".join([*shown, *([f"**{args.kwarg.arg}"] if args.kwarg else [])])


def sentence(text: str) -> str:
    """The first sentence of a docstring, on one line of a table."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    found = re.match(r".+?[.?!](?=\s|$)", first)
    return (found[0] if found else first).replace("|", "\\|")


def row(path: str, found: Found) -> str:
    """One line of a table."""
    name, given = path.rsplit(".", 1)[1], parameters(found.module, found.node)
    said = sentence(found.said)
    if isinstance(found.node, ast.ClassDef):
        methods = [
            part.name
            for part in found.node.body
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and not part.decorator_list
        ]
        said += f" Methods: {', '.join(f'`{method}`' for method in methods)}." if methods else ""
    elif not said and isinstance(found.node, ast.Assign | ast.AnnAssign) and found.node.value is not None:
        value = written(found.module, found.node.value).replace("|", "\\|")
        said = f"`{value}`" if len(value) <= 80 else f"`{value[:77]} …`"
    call = "" if given is None and not isinstance(found.node, ast.FunctionDef) else f"({given or ''})"
    shown = f"{name}{call}".replace("|", "\\|")
    return f"| `{shown}` | {said} |"


def public_paths() -> list[str]:
    """The public names with their modules, each once, as the snapshot lists them."""
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(re.split(r"[( ]", line)[0] for line in lines))


def homes() -> dict[str, str]:
    """Names at the top of the core, which are imported late, and their modules."""
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" -> ") for line in lines if " -> " in line)


def pages() -> dict[str, str]:
    """Every file of this script with what it must hold."""
    late = homes()
    shortest: dict[tuple[str, str], tuple[str, Found]] = {}
    for path in public_paths():
        module, name = path.rsplit(".", 1)
        found = definition(late.get(path, module), name)
        if found is None:
            continue
        key = found.module, f"{found.node.lineno} {name}"
        if key not in shortest or (path.count("."), path) < (shortest[key][0].count("."), shortest[key][0]):
            shortest[key] = path, found
    made = {}
    for package in PACKAGES:
        mine = {path: found for path, found in shortest.values() if path.split(".")[0] == package}
        modules = sorted({path.rsplit(".", 1)[0] for path in mine}, key=lambda name: (name.count("."), name))
        parts = [
            f"# Reference: {package}\n\nEvery public name once, under the shortest path that it can be imported from;\n"
            "written by `docs/reference/write_reference.py` from the sources.\n"
        ]
        for module in modules:
            tree, _ = tree_of(module)
            rows = [row(path, mine[path]) for path in sorted(mine) if path.rsplit(".", 1)[0] == module]
            about = sentence(ast.get_docstring(tree) or "").replace("\\|", "|")
            parts.append(f"## `{module}`\n\n{about}\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n")
        made[f"{package}.md"] = "\n".join(parts)
    return made


def main() -> None:
    for name, text in pages().items():
        temporary = HERE / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(HERE / name)


if __name__ == "__main__":
    main()

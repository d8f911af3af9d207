"""The pages of the reference, written while the documentation is built: one for each room, that is, each public folder or module.

A page shows the names that a room re-exports, and then the modules inside it that a page or an example of this repository
names. What is in neither is for contributors, who read the sources. MkDocs calls `on_config` and `on_files`
(`hooks:` in mkdocs.yml); nothing is imported, so a page cannot fail on a package that is missing.
"""

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import griffe

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
PACKAGES = ("jaxarc", "jaxtrace", "acbo", "jaxworlds")
COMMANDS = ("cli", "demo")
"""Modules whose use is a command: docs/commands.md shows them."""
Object = griffe.Object | griffe.Alias


class Room(NamedTuple):
    """One page: a folder or a module, and the names that it shows, by the module to import them from."""

    path: str
    names: dict[str, list[str]]

    @property
    def page(self) -> str:
        package, _, inside = self.path.partition(".")
        return f"reference/{package}/{inside or 'all'}.md"


@functools.cache
def package_of(name: str) -> griffe.Module:
    """The sources of a package, read and not imported."""
    loader = griffe.GriffeLoader(search_paths=[SOURCES])
    for package in PACKAGES:
        loader.load(package, try_relative_path=False)
    loader.resolve_aliases(implicit=True)
    return loader.modules_collection[name]


def modules_of(module: griffe.Module) -> list[griffe.Module]:
    """A module and all below it, without those whose names begin with an underscore."""
    inside = [
        m for m in module.members.values() if isinstance(m, griffe.Module) and not m.name.startswith("_")
    ]
    return [module, *(m for one in sorted(inside, key=lambda one: one.name) for m in modules_of(one))]


def public_names(module: griffe.Module) -> list[str]:
    """Names that a module defines, and those it re-exports as `from x import name as name`."""
    text = module.filepath.read_text(encoding="utf-8") if isinstance(module.filepath, Path) else ""
    exported = set(re.findall(r"import (\w+) as \1$", text, re.MULTILINE))
    return [
        name
        for name, member in module.members.items()
        if not name.startswith("_")
        and (name in exported and _is_found(member) if member.is_alias else _is_shown(member))
    ]


def _is_found(alias: Object) -> bool:
    """True for what is defined in our sources; values that stand together, as in `A, B = 1, 2`, have no meaning of their own."""
    if alias.target_path.split(".")[0] not in PACKAGES:
        return False
    try:
        return bool(alias.final_target)
    except griffe.AliasResolutionError:
        return False


def _is_shown(member: Object) -> bool:
    """True for classes, functions and values with a docstring; modules have pages, plain values are details."""
    return not member.is_module and (not member.is_attribute or member.has_docstring)


@functools.cache
def named_modules() -> frozenset[str]:
    """Modules of ours that README, a page or an example names."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return frozenset(re.findall(rf"\b((?:{'|'.join(PACKAGES)})(?:\.[a-z_0-9]+)+)", text))


def is_named(module: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for name in named_modules())


def rooms(package: str) -> list[Room]:
    """The pages of a package in alphabetical order; every name is on the page of the shortest path that imports it."""
    found: dict[str, Room] = {}
    taken: set[str] = set()
    modules = [
        m for m in modules_of(package_of(package)) if m.path.split(".")[1:2] not in [[c] for c in COMMANDS]
    ]
    folders = [m for m in modules if m.is_init_module and m.path != package]
    beside = [m for m in modules if not m.is_init_module and is_named(m.path)]
    for module in sorted(
        [*folders, *beside], key=lambda m: (m.path.count("."), m.is_init_module is False, m.path)
    ):
        names = [n for n in public_names(module) if _home(module, n) not in taken]
        if not names:
            continue
        taken |= {_home(module, name) for name in names}
        room = module if module.is_init_module or module.parent.path == package else module.parent
        page = found.setdefault(room.path, Room(room.path, {}))
        page.names[module.path] = names
    return [found[path] for path in sorted(found)]


def _home(module: griffe.Module, name: str) -> str:
    return module.members[name].canonical_path


def first_sentence(text: str) -> str:
    found = re.match(r".+?[.?!](?=\s|$)", " ".join(text.split("\n\n")[0].split()))
    return found[0] if found else " ".join(text.split("\n\n")[0].split())


def docstring_of(module: str) -> str:
    found = package_of(module.split(".")[0])[module.split(".")[1:]] if "." in module else package_of(module)
    return found.docstring.value if found.docstring else ""


def room_page(room: Room) -> str:
    """The page of a room: what it re-exports, and its modules, under headings of their own."""
    parts = [f"# {room.path}\n"]
    if room.path not in room.names:
        parts.append(docstring_of(room.path))
    for module, names in room.names.items():
        parts.append(f"## Import from {module}\n")
        parts.append(members(module, names))
    return "\n".join(parts)


def members(module: str, names: list[str]) -> str:
    """The block that mkdocstrings replaces by the names of a module."""
    shown = "".join(f"        - {name}\n" for name in names)
    return f"::: {module}\n    options:\n      members:\n{shown}" if names else ""


def overview_page(package: str) -> str:
    """The page of a package: the names at its top, and its rooms."""
    parts = [f"# Reference: {package}\n\n{docstring_of(package)}\n"]
    top, found = package_of(package), rooms(package)
    if names := sorted(public_names(top)):
        links = ", ".join(f"[`{name}`][{_home(top, name)}]" for name in names)
        parts.append(f"## Names that `import {package}` gives\n\n{links}\n")
        elsewhere = {
            _home(top[path.split(".")[1:]], n)
            for room in found
            for path in room.names
            for n in room.names[path]
        }
        parts.append(members(package, [name for name in names if _home(top, name) not in elsewhere]))
    rows = [
        f"| [`{room.path}`]({room.page.removeprefix('reference/')}) | {first_sentence(docstring_of(room.path))} |"
        for room in found
    ]
    parts.append("## Rooms\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Every page of the reference by its path in docs/."""
    made = {f"reference/{package}.md": overview_page(package) for package in PACKAGES}
    return made | {room.page: room_page(room) for package in PACKAGES for room in rooms(package)}


def on_config(config: Any) -> Any:
    """Put the rooms of each package into the menu, below its overview."""

    def menu(entries: list[Any]) -> list[Any]:
        return [_entry(entry, menu) for entry in entries]

    config.nav = menu(config.nav)
    return config


def _entry(entry: Any, menu: Any) -> Any:
    (title, target), *_ = entry.items()
    if isinstance(target, list):
        return {title: menu(target)}
    package = Path(target).stem
    if target != f"reference/{package}.md":
        return entry
    below = [{room.path.removeprefix(f"{package}."): room.page} for room in rooms(package)]
    return {title: [{"Overview": target}, *below]}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the reference to those of the folder."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files

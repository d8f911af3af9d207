"""Public names of a package that load on first use, so that importing it costs almost nothing."""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose `__init__` imports its public names `if TYPE_CHECKING` only.

    So each name stands once, where type checkers read it too. At the end of the package's `__init__`:
    `__getattr__, __dir__ = lazy_names(__name__)`. Modules of the package are found by their names. A module may do the same
    with names that it shows under a second address.
    """
    namespace = vars(sys.modules[package])
    homes, is_folder = public_homes(package), "__path__" in namespace
    if is_folder:  # or `from package import *` would not find them
        namespace["__all__"] = sorted({*homes, *namespace.get("__all__", ())})

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is not None:
            value = getattr(importlib.import_module(f".{home}", namespace["__package__"]), name)
        elif is_folder and not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = value
        return value

    return load, lambda: sorted({*namespace, *homes})


def public_homes(package: str) -> dict[str, str]:
    """The modules that a package's public names come from, read from the imports under its `if TYPE_CHECKING`.

    They are named from within the package: `.home` is a module beside it.
    """
    loader: Any = sys.modules[package].__loader__
    blocks = [node for node in ast.parse(loader.get_source(package)).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: "." * (node.level - 1) + (node.module or "") for node in imports for alias in node.names
    }


def keep_module_names(package: str, moved: Mapping[str, str]) -> None:
    """Make moved modules of `package` importable by their former names; `moved` maps former to present names."""
    sys.meta_path.append(_FormerNames(package, moved))


class _FormerNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module under its former name; asked last, and only by those who use such a name."""

    def __init__(self, package: str, moved: Mapping[str, str]) -> None:
        self._moved = {f"{package}.{name}": f"{package}.{now}" for name, now in moved.items()}

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in self._moved else None

    def exec_module(self, module: ModuleType) -> None:
        # What stands here when this returns is what the importer gets.
        sys.modules[module.__name__] = importlib.import_module(self._moved[module.__name__])

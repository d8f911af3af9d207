"""The public names, listed once: a change here is a change for users, so it must be made on purpose.

After a wanted change: `python tests/architecture/test_public_api.py` writes the list anew.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import jaxworlds

SNAPSHOT = Path(__file__).with_name("public_api.txt")
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")


def public_names(module: ModuleType) -> list[str]:
    """Names a module defines or re-exports on purpose, with the parameters of what can be called."""
    lines = []
    for name, value in sorted(vars(module).items()):
        home = getattr(value, "__module__", "") or ""
        if name.startswith("_") or inspect.ismodule(value) or home.split(".")[0] not in PACKAGES:
            continue
        is_package = hasattr(module, "__path__")
        if home != module.__name__ and not is_package and module.__name__.split(".")[0] == home.split(".")[0]:
            continue
        try:
            parameters = ", ".join(inspect.signature(value).parameters) if callable(value) else None
        except (TypeError, ValueError):
            parameters = None
        lines.append(f"{module.__name__}.{name}" + ("" if parameters is None else f"({parameters})"))
    return lines


def snapshot() -> str:
    lines = [f"jaxworlds.{name} -> jaxworlds.{home}" for name, home in sorted(jaxworlds._HOMES.items())]
    for package in PACKAGES:
        root = importlib.import_module(package)
        modules = [root.__name__, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
        for name in modules:
            if not any(part.startswith("_") for part in name.split(".")):
                lines += public_names(importlib.import_module(name))
    return "\n".join(dict.fromkeys(lines)) + "\n"


def test_the_public_api_is_the_one_that_was_agreed() -> None:
    assert snapshot() == SNAPSHOT.read_text()


def test_names_at_the_top_are_those_of_their_homes() -> None:
    for name, home in jaxworlds._HOMES.items():
        assert getattr(jaxworlds, name) is getattr(importlib.import_module(f"jaxworlds.{home}"), name)
    assert set(jaxworlds._HOMES) < set(dir(jaxworlds))


def test_type_checkers_see_the_same_names() -> None:
    text = Path(jaxworlds.__file__).read_text().split("if TYPE_CHECKING:")[1].split("\n\n\n")[0]
    for name, home in jaxworlds._HOMES.items():
        assert f"from .{home} import {name} as {name}" in text, name


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())

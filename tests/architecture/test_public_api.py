"""The public names, listed once: a change here is a change for users, so it must be made on purpose.

After a wanted change: `python tests/architecture/test_public_api.py` writes the list anew.
"""

import ast
import enum
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

import jaxworlds
from jaxworlds.lazy import public_homes

SNAPSHOT = Path(__file__).with_name("public_api.txt")
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")


def names_on_purpose(source: str) -> list[str]:
    """Names a module defines, and those it re-exports as `from x import Name as Name`; a mere import is neither."""
    names: list[str] = []
    for statement in ast.parse(source).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Assign(targets=targets):
                names += [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=late):  # names that are loaded on first use
                names += names_on_purpose("\n".join(map(ast.unparse, late)))
            case ast.ImportFrom(module=home, level=level, names=imported):
                ours = level > 0 or (home or "").split(".")[0] in PACKAGES
                names += [alias.asname for alias in imported if ours and alias.asname]
    return sorted({name for name in names if not name.startswith("_")})


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module, with the parameters of what can be called."""
    assert module.__file__ is not None
    lines = []
    for name in names_on_purpose(Path(module.__file__).read_text(encoding="utf-8")):
        value = getattr(module, name)
        if isinstance(value, TypeVar) or inspect.ismodule(value):
            continue
        home = str(getattr(value, "__module__", "")).split(".")[0]
        try:
            # To call an enumeration is to look up a member; how that reads is Python's affair, and changes with it.
            looked_up = isinstance(value, enum.EnumType)
            callable_here = callable(value) and home in PACKAGES and not looked_up
            parameters = ", ".join(inspect.signature(value).parameters) if callable_here else None
        except (TypeError, ValueError):
            parameters = None
        lines.append(f"{module.__name__}.{name}" + ("" if parameters is None else f"({parameters})"))
    return lines


def snapshot() -> str:
    lines = [
        f"jaxworlds.{name} -> jaxworlds.{home}" for name, home in sorted(public_homes("jaxworlds").items())
    ]
    for package in PACKAGES:
        root = importlib.import_module(package)
        modules = [root.__name__, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
        for name in modules:
            if not any(part.startswith("_") for part in name.split(".")):
                lines += public_names(importlib.import_module(name))
    return "\n".join(dict.fromkeys(lines)) + "\n"


def test_the_public_api_is_the_one_that_was_agreed() -> None:
    assert snapshot() == SNAPSHOT.read_text()


@pytest.mark.parametrize("package", ["jaxworlds", "jaxtrace", "acbo"])
def test_a_star_import_gives_every_public_name(package: str) -> None:
    found: dict[str, Any] = {}
    exec(f"from {package} import *", found)
    homes = public_homes(package)
    assert len(homes) > 15
    assert homes.keys() <= found.keys()


def test_a_re_export_is_public_and_a_mere_import_is_not() -> None:
    source = """
import math
from typing import Any as Any
from ._private import Store as Store
from ._private import helper
from .public import shared as shared
from jaxworlds.taps import tap
from jaxworlds.budget import frozen_garbage as Collector
from jaxworlds.budget import MemoryManager as _Manager
LIMIT: int = 3
_hidden = 4
def work(): ...
class Thing: ...
"""
    assert names_on_purpose(source) == ["Collector", "LIMIT", "Store", "Thing", "shared", "work"]


def test_names_with_a_private_home_are_listed_with_their_parameters() -> None:
    lines = snapshot().splitlines()
    for start in (
        "jaxworlds.compiling.fallback(fn, ",
        "jaxworlds.compiling.CompileWatch()",
        "jaxworlds.store.CompressedStorage(folder, ",
        "jaxworlds.store.open_array(path, ",
        "jaxworlds.taps.register_sink(name, ",
        "jaxarc.utils.visualization.memory.MemoryManager(max_total_memory_mb",
        "jaxarc.performance.TARGET_STEP_TIME",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start
    accidental = {
        "jaxworlds.static.T",
        "acbo.guide.measurements.compare",
        "jaxarc.utils.visualization.callbacks.tap",
    }
    assert not accidental & {line.split("(")[0] for line in lines}
    # Every name at the top has its parameters, or that it has none to call, stated under its home.
    homes = {line.split("(")[0] for line in lines}
    for name, home in public_homes("jaxworlds").items():
        assert f"jaxworlds.{home}.{name}" in homes, name


def test_names_at_the_top_are_those_of_their_homes() -> None:
    for name, home in public_homes("jaxworlds").items():
        assert getattr(jaxworlds, name) is getattr(importlib.import_module(f"jaxworlds.{home}"), name)
    assert set(public_homes("jaxworlds")) < set(dir(jaxworlds))


@pytest.mark.parametrize(
    "name",
    [
        "baselines.Verdict",
        "budget.MemoryManager",
        "caching.lazy_file",
        "checkpoints.holds_run",
        "comparing.compare",
        "demo.Section",
        "doctor.diagnose",
        "leaks.find_leaks",
        "meshes.on_each_device",
        "monitoring.PerformanceMonitor",
        "planning.plan_batch_size",
        "profiling.profile",
    ],
)
def test_former_names_of_modules_still_import(name: str) -> None:
    module, value = name.split(".")
    former = importlib.import_module(f"jaxworlds.{module}")
    assert former is getattr(jaxworlds, module)
    assert former.__name__ != f"jaxworlds.{module}", "it is the module of now, not a copy"
    home = importlib.import_module(getattr(former, value).__module__)
    assert getattr(home, value) is getattr(former, value)


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())

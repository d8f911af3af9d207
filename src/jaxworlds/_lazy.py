"""Public names of a package that load on first use, so that importing it costs almost nothing."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `homes` gives the module of each name, and modules are found by theirs.

    In the package's `__init__`: `__getattr__, __dir__ = lazy_names(__name__, _HOMES)`.
    """
    namespace = vars(sys.modules[package])
    namespace["__all__"] = sorted(homes)  # or `from package import *` would find nothing

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is not None:
            value = getattr(importlib.import_module(f"{package}.{home}"), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = value
        return value

    return load, lambda: sorted({*namespace, *homes})

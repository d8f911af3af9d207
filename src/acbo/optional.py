"""Optional packages, imported where they are used."""

import importlib
from types import ModuleType


def optional_package(package: str, purpose: str) -> ModuleType:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        whole = package.split(".")[0]  # of pgmpy.models, pgmpy is what can be installed
        command = "'jaxworlds[causal]'" if whole in ("matplotlib", "networkx", "optax", "pandas") else whole
        raise ImportError(f"{purpose} needs the package {whole}: pip install {command}.") from error

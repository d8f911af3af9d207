"""jaxworlds: the core under three JAX systems. A world is a state pytree and a pure step; the core runs many of them.

Names load on first use, so `import jaxworlds` costs almost nothing, imports no jax and starts no backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that is its home.
_HOMES: dict[str, str] = {}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    pass


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'jaxworlds' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jaxworlds.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""Reset and step as pure functions, under the name that the guides use; `jaxarc.dispatch` holds them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..dispatch import Stepped as Stepped
    from ..dispatch import arc_reset as arc_reset
    from ..dispatch import arc_step as arc_step
    from ..dispatch import batch_observe as batch_observe
    from ..dispatch import batch_reset as batch_reset
    from ..dispatch import batch_step as batch_step

_NAMES = ("Stepped", "arc_reset", "arc_step", "batch_observe", "batch_reset", "batch_step")


# On first use: the definitions in this folder import nothing of what picks a kernel.
def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("jaxarc.dispatch"), name)

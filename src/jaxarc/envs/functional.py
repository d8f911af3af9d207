"""Reset and step as pure functions, under the name that the guides use; `jaxarc.dispatch` holds them."""

from typing import TYPE_CHECKING

from jaxworlds.lazy import lazy_names

if TYPE_CHECKING:
    from ..dispatch import Stepped as Stepped
    from ..dispatch import arc_reset as arc_reset
    from ..dispatch import arc_step as arc_step
    from ..dispatch import batch_observe as batch_observe
    from ..dispatch import batch_reset as batch_reset
    from ..dispatch import batch_step as batch_step

# On first use: the definitions in this folder import nothing of what picks a kernel.
__getattr__, __dir__ = lazy_names(__name__)

"""A guard: `jaxarc` 1.x imports its `_version` first of all, and where it was installed over this package finds this folder."""

from jaxworlds import __version__ as __version__
from jaxworlds.own_files import demand_own_files

demand_own_files("jaxarc")

version = __version__

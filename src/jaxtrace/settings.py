"""Defaults for the whole process: precision, device and memory; the home is `jaxworlds.runtime`."""

from jaxworlds.runtime import Settings as Settings
from jaxworlds.runtime import configure as configure
from jaxworlds.runtime import settings as settings

DOUBLE = (
    "use double precision: call `jaxtrace.configure(dtype='float64')`, and then make the field again (from files with "
    "`dtype='float64'`)"
)
"""Remedy for too few digits; a field keeps the precision in which it was made."""
WATER = (
    "Keep those {where} with `jaxtrace.tracking.seeding.seeds_inside(seeds, field)`, or draw them there: "
    "`random_seeds(n, bounds, inside=field)`"
)
"""Remedy for seeds outside the field; `where` is "inside" or "in water"."""
HELD = "Keep those inside with `jaxtrace.tracking.seeding.seeds_inside(seeds, boundary)`"
"""Remedy for seeds outside the boundary."""

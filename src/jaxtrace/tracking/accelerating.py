"""How often particles are sorted in space."""

import jax

from ..boundaries.reinjection import InletBoundary
from ..fields.series import AbstractSeries
from ..motion import Motion

# Measured on an H200 with ten million particles in 64³ nodes: sorting takes 1.3 ms, a step 1.06 ms unsorted and 0.68 ms
# sorted; after 50 steps of the double gyre the order is still good (0.77 ms a step, sorting included).
_SORT_EVERY = 50
_SORTED_FROM = 200_000
# On two CPU cores with 100,000 particles in 64³ nodes: sorting takes 5 ms, a step 15 ms unsorted and 10 ms sorted. Nodes
# that fit into a core's own cache are read fast in any order.
_SORTED_FROM_CPU = 20_000
_NODES_IN_CACHE = 30_000


def fills_in_place(motion: Motion) -> bool:
    """Whether slots are filled in the order in which they lie: an inlet with a rate does so without a kernel."""
    return (
        isinstance(motion.boundary, InletBoundary) and motion.boundary.rate is not None and not motion.fused
    )


def sort_period(motion: Motion, particles: int, steps_between_records: int) -> int:
    """Steps from one sorting of the particles of a device to the next; 0 for never."""
    if not isinstance(motion.field, AbstractSeries):
        return 0
    on_cpu = jax.default_backend() == "cpu"
    worth = (
        (motion.field.layout != "direct" or motion.fused)
        and motion.field.dim <= 3
        and particles >= (_SORTED_FROM_CPU if on_cpu else _SORTED_FROM)
        and not (on_cpu and motion.field.grid.size < _NODES_IN_CACHE)
        and steps_between_records >= _SORT_EVERY // 2
    )
    return _SORT_EVERY if worth and not fills_in_place(motion) else 0

"""Particles in the order of a space-filling curve, so that neighbours in memory read neighbouring cells; and how often."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int32, PyTree, UInt32

from ..boundaries.reinjection import InletBoundary
from ..fields.base import Vector
from ..fields.grid_series import AbstractSeries
from ..motion import Motion

# Shift and mask that spread the low bits of a word so that room is left for the bits of the other axes.
_SPREAD = {
    1: (),
    2: ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)),
    3: ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)),
}
_BITS = {1: 31, 2: 16, 3: 10}
# With fewer bits the boxes of the curve are too large to keep neighbours together.
_LEAST_BITS = 9
# Measured on an H200 with ten million particles in 64³ nodes: sorting takes 1.3 ms, a step 1.06 ms unsorted and 0.68 ms
# sorted; after 50 steps of the double gyre the order is still good (0.77 ms a step, sorting included).
_SORT_EVERY = 50
_SORTED_FROM = 200_000
# On two CPU cores with 100,000 particles in 64³ nodes: sorting takes 5 ms, a step 15 ms unsorted and 10 ms sorted. Nodes
# that fit into a core's own cache are read fast in any order.
_SORTED_FROM_CPU = 20_000
_NODES_IN_CACHE = 30_000


def curve_places(position: Float[Array, "n dim"], low: Vector, high: Vector) -> UInt32[Array, " n"]:
    """The place of each position on the Morton curve through the box; positions beyond count as on its edge."""
    dim = position.shape[1]
    bits = _BITS[dim]
    extent = jnp.where(high > low, high - low, 1.0)
    share = jnp.clip((position - low) / extent, 0.0, 1.0)
    cell = jnp.minimum(share * 2.0**bits, 2.0**bits - 1).astype(jnp.uint32)
    place = jnp.zeros(position.shape[0], jnp.uint32)
    for axis in range(dim):
        word = cell[:, axis]
        for shift, mask in _SPREAD[dim]:
            word = (word | (word << shift)) & jnp.uint32(mask)
        place = place | (word << (dim - 1 - axis))
    return place


def curve_order(position: Float[Array, "n dim"], low: Vector, high: Vector) -> Int[Array, " n"]:
    """The particles' numbers from the beginning of the curve to its end.

    On a CPU place and number share a word where the place keeps enough bits: sorting single words takes an eighth of
    the time of sorting pairs.
    """
    places = curve_places(position, low, high)
    count, dim = position.shape
    taken = max(count - 1, 1).bit_length()
    spare = 32 - taken
    if jax.default_backend() != "cpu" or spare < _LEAST_BITS:
        return jnp.argsort(places)
    coarse = jnp.minimum(places >> max(dim * _BITS[dim] - spare, 0), jnp.uint32(2**spare - 1))
    words = (coarse << taken) | jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(words) & jnp.uint32(2**taken - 1)).astype(jnp.int32)


def put_in_slots(values: PyTree, identity: Int32[Array, " n"]) -> PyTree:
    """Values of sorted particles put back into the order of their numbers, which are consecutive."""
    slot = identity - jnp.min(identity)

    def put(leaf: Array) -> Array:
        return jnp.zeros_like(leaf).at[slot].set(leaf, unique_indices=True, mode="promise_in_bounds")

    return jax.tree.map(put, values)


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

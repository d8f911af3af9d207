"""Structural causal models as padded arrays: one compiled program serves models of mixed size, graph and mechanism."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from .graphs import inverse, topological_order
from .mechanisms import Mechanism, Noise, no_units

AXES = {"adjacency": "dd", "weight": "dd", "spread": "dd", "inner": "ddk", "target": ""}
AXES |= dict.fromkeys(("phase", "outer", "activation", "reach"), "dk")
"""Axes of the arrays of a model, by field: variables `d` and units `k`. Fields that are not here have the axis `d`."""


class SCM(eqx.Module):
    """A causal model over `d` variables, some of which may be padding.

    Padded variables are not live: they have no edges and no noise, cannot be manipulated, and read 0. Names live
    outside, in `CausalModel`, so that renaming compiles nothing.
    """

    adjacency: Bool[Array, "d d"]
    """`[i, j]`: i causes j."""
    order: Int32[Array, " d"]
    """Variables so that causes come first, padding last."""
    live: Bool[Array, " d"]
    observed: Bool[Array, " d"]
    """True for live variables in the data; the others are hidden, such as confounders."""
    target: Int32[Array, ""]
    mechanism: Mechanism
    noise: Noise
    low: Float[Array, " d"]
    """Least value an intervention may set."""
    high: Float[Array, " d"]
    cost_fixed: Float[Array, " d"]
    """Price of touching a variable at all."""
    cost_unit: Float[Array, " d"]
    """Price per unit of the value set, or of the shift."""
    manipulable: Bool[Array, " d"]

    @property
    def size(self) -> int:
        """Number of variables, the padded ones included."""
        return self.adjacency.shape[-1]

    @property
    def is_linear(self) -> Bool[Array, ""]:
        """True if all mechanisms are linear, so that expectations have closed forms."""
        return jnp.all(self.mechanism.is_linear)

    @property
    def parents(self) -> Bool[Array, " d"]:
        """True for direct causes of the target."""
        return self.adjacency[:, self.target]


def linear_scm(
    weight: Float[Array, "d d"],
    scale: Float[Array, " d"] | float = 1.0,
    bias: Float[Array, " d"] | float = 0.0,
    *,
    target: int | Int32[Array, ""] = -1,
    kind: Int32[Array, " d"] | int = 0,
    low: Float[Array, " d"] | float = -2.0,
    high: Float[Array, " d"] | float = 2.0,
    live: Bool[Array, " d"] | None = None,
    units: int = 0,
) -> SCM:
    """The linear model `x_j = bias_j + Σ_i weight[i, j] x_i + scale_j · noise`; edges are where weights are not 0.

    The target may be counted from the end. All live variables but the target are manipulable, at price 1.
    """
    dtype, d = jnp.result_type(float), weight.shape[0]
    live = jnp.ones(d, bool) if live is None else live
    both = live[:, None] & live[None]
    weight = jnp.where(both, weight, 0).astype(dtype)
    adjacency = weight != 0
    goal = jnp.asarray(target, jnp.int32) % d

    def each(value: Float[Array, " d"] | float) -> Float[Array, " d"]:
        return jnp.where(live, jnp.broadcast_to(jnp.asarray(value, dtype), (d,)), 0)

    manipulable = live & (jnp.arange(d) != goal)
    return SCM(
        adjacency=adjacency,
        order=topological_order(adjacency, live),
        live=live,
        observed=live,
        target=goal,
        mechanism=Mechanism(bias=each(bias), weight=weight, **no_units(d, units), functions=()),
        noise=Noise(
            jnp.broadcast_to(jnp.asarray(kind, jnp.int32), (d,)), each(scale), jnp.zeros_like(weight)
        ),
        low=jnp.where(manipulable, each(low), 0),
        high=jnp.where(manipulable, each(high), 0),
        cost_fixed=jnp.where(manipulable, each(1.0), 0),
        cost_unit=jnp.zeros(d, dtype),
        manipulable=manipulable,
    )


def map_arrays(fn: Callable[[str, str, Array], Array], scm: SCM) -> SCM:
    """The model with `fn(field, axes, array)` in place of each array."""

    def of_leaf(path: tuple, array: Array) -> Array:
        field = path[-1].name
        return fn(field, AXES.get(field, "d"), array)

    return jax.tree_util.tree_map_with_path(of_leaf, scm)


@jax.jit
def permute(scm: SCM, permutation: Int32[Array, " d"]) -> SCM:
    """The same model with variable `permutation[i]` moved to place i."""
    moved = inverse(permutation)

    def move(_: str, axes: str, a: Array) -> Array:
        a = a[permutation] if axes.startswith("d") else a
        return a[:, permutation] if axes.startswith("dd") else a

    numbers = (moved[scm.order], moved[scm.target])
    return eqx.tree_at(lambda scm: (scm.order, scm.target), map_arrays(move, scm), numbers)


@partial(jax.jit, static_argnames=("size", "units"))
def pad(scm: SCM, size: int, units: int | None = None) -> SCM:
    """The same model with padding up to `size` variables and, where given, `units` units per variable."""
    d, k = scm.size, scm.mechanism.units
    units = k if units is None else units
    if size < d or units < k:
        raise ValueError(
            f"`size` and `units` must be at least those of the model, {d} and {k}; got {size} and {units}. "
            "Padding only adds."
        )

    def grow(field: str, axes: str, a: Array) -> Array:
        widths = [(0, {"d": size - d, "k": units - k}[axis]) for axis in axes]
        return jnp.pad(a, widths, constant_values=jnp.inf if field == "reach" else 0) if axes else a

    order = jnp.concatenate([scm.order, jnp.arange(d, size, dtype=jnp.int32)])
    return eqx.tree_at(lambda scm: scm.order, map_arrays(grow, scm), order)

"""Named models from weights or from equations, on the host: checked, padded, and ready for compiled programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from acbo.data import BUCKETS, Dataset, bucket
from acbo.names import number, place, require_distinct

from .causal_model import CausalModel
from .equations import Expression, Functions, units_of
from .graphs import require_acyclic, topological_order
from .mechanisms import ACTIVATIONS, NOISES, Mechanism, Noise, no_units
from .samples import largest_value
from .scm import AXES, SCM

Ranges = Mapping[str, tuple[float, float]]
Costs = Mapping[str, tuple[float, float]]
DEFAULT_RANGE = (-2.0, 2.0)
UNITS = (0, 4, 8, 16, 32, 64)
"""Numbers of units that models are padded to, so that few programs serve many texts."""


def padded_size(variables: int) -> int:
    """The bucket that holds this many variables; above the last bucket, the number itself."""
    return bucket(variables) if variables <= BUCKETS[-1] else variables


def linear_model(
    names: Sequence[str],
    weights: Float[np.ndarray, "d d"],
    *,
    scale: Float[np.ndarray, " d"] | float = 1.0,
    bias: Float[np.ndarray, " d"] | float = 0.0,
    kind: Int[np.ndarray, " d"] | int = 0,
    adjacency: Bool[np.ndarray, "d d"] | None = None,
    target: str | None = None,
    ranges: Ranges | None = None,
    hidden: Sequence[str] = (),
    costs: Costs | None = None,
    size: int | None = None,
    units: int = 0,
) -> CausalModel:
    """A linear model with names; `weights[i, j]` is the effect of variable i on variable j.

    Edges are where weights are not 0, unless `adjacency` says so. Without `target` it is Y, or the only variable that
    causes nothing. Without `ranges` all observed variables but the target may be set from -2 to 2; with them, those
    that have one. `costs` gives (fixed, per unit) prices; the default is (1, 0).
    """
    d = len(names)
    edges = (weights != 0) if adjacency is None else adjacency
    fields = {"bias": np.broadcast_to(np.asarray(bias, float), d), "weight": weights, **_empty(d, units)}
    noise = {
        "kind": np.broadcast_to(np.asarray(kind, np.int32), d),
        "scale": np.broadcast_to(np.asarray(scale, float), d),
        "spread": np.zeros((d, d)),
    }
    return _assemble(names, edges, fields, noise, target, ranges, hidden, costs, size)


def model_from_equations(
    names: Sequence[str],
    equations: Mapping[str, Expression],
    *,
    target: str | None = None,
    ranges: Ranges | None = None,
    hidden: Sequence[str] = (),
    costs: Costs | None = None,
    size: int | None = None,
    units: int | None = None,
    functions: Functions | None = None,
) -> CausalModel:
    """The model in which each variable equals its expression; the rest is as for `linear_model`."""
    d = len(names)
    own = tuple((functions or {}).items())
    numbers = [*ACTIVATIONS, *(name for name, _ in own)]
    layers = {name: units_of(equations[name]) for name in names}
    most = max(map(len, layers.values()), default=0)
    count = next((u for u in UNITS if u >= most), most) if units is None else units
    if count < most:
        raise ValueError(f"`units` must be at least {most} for these equations; got {count}. Leave it out.")
    fields = {"bias": np.zeros(d), "weight": np.zeros((d, d)), **_empty(d, count)}
    kind, scale, spread = np.zeros(d, np.int32), np.zeros(d), np.zeros((d, d))
    adjacency = np.zeros((d, d), bool)
    for j, name in enumerate(names):
        expression = equations[name]
        for cause in expression.names:
            adjacency[place(cause, names, "equations"), j] = True
        for monomial, value in expression.monomials.items():
            if len(monomial) == 0:
                fields["bias"][j] = value
            elif len(monomial) == 1:
                fields["weight"][names.index(monomial[0]), j] = value
        for k, unit in enumerate(layers[name]):
            fields["activation"][j, k] = numbers.index(unit.function)
            fields["outer"][j, k], fields["phase"][j, k] = unit.amplitude, unit.affine.get("", 0.0)
            fields["reach"][j, k] = unit.reach
            for cause, value in unit.affine.items():
                if cause:
                    fields["inner"][names.index(cause), j, k] = value
        if expression.noise:
            kind[j], scale[j] = NOISES.index(expression.noise.kind), expression.noise.scale
            for cause, value in expression.noise.spread.items():
                spread[names.index(cause), j] = value
    noise = {"kind": kind, "scale": scale, "spread": spread}
    return _assemble(names, adjacency, fields, noise, target, ranges, hidden, costs, size, own)


def _empty(d: int, units: int) -> dict[str, np.ndarray]:
    """Arrays for unused units, to be filled in."""
    return {name: np.array(field) for name, field in no_units(d, units).items()}


def _assemble(
    names: Sequence[str],
    adjacency: Bool[np.ndarray, "d d"],
    mechanism: Mapping[str, np.ndarray],
    noise: Mapping[str, np.ndarray],
    target: str | None,
    ranges: Ranges | None,
    hidden: Sequence[str],
    costs: Costs | None,
    size: int | None,
    functions: tuple[tuple[str, Callable[[Any], Any]], ...] = (),
) -> CausalModel:
    names = tuple(names)
    require_distinct(names, "names")
    require_acyclic(adjacency, names, "edges")
    d = len(names)
    full = padded_size(d) if size is None else size
    if full < d:
        raise ValueError(f"`size` must be at least the number of variables, {d}; got {full}.")
    goal = place(target, names, "target") if target is not None else _only_sink(names, adjacency)
    low, high, fixed, unit = np.zeros((4, d))
    observed, manipulable = np.ones(d, bool), np.zeros(d, bool)
    for name in hidden:
        observed[place(name, names, "hidden")] = False
    if not observed[goal]:
        raise ValueError(
            f"`hidden` must not hold the target; got {tuple(hidden)!r} and the target {names[goal]!r}."
        )
    if ranges is None:
        ranges = {n: DEFAULT_RANGE for v, n in enumerate(names) if observed[v] and v != goal}
    for name, pair in ranges.items():
        v = place(name, names, "ranges")
        least, greatest = (number(end, f"ranges: {name[:60]}") for end in pair)
        if not least <= greatest or not observed[v] or v == goal:
            raise ValueError(
                f"`ranges` must give (low, high) with low <= high to observed variables other than the target; got "
                f"{(least, greatest)} for {name!r}."
            )
        low[v], high[v], manipulable[v], fixed[v] = least, greatest, True, 1.0
    for name, price in (costs or {}).items():
        v = place(name, names, "costs")
        fixed[v], unit[v] = price

    most = largest_value(mechanism["outer"].shape[-1])

    def pad_field(name: str, array: np.ndarray) -> jnp.ndarray:
        widths = [(0, full - d if axis == "d" else 0) for axis in AXES.get(name, "d")]
        whole = np.pad(array, widths, constant_values=np.inf if name == "reach" else 0)
        with np.errstate(over="ignore"):  # told below
            made = jnp.asarray(
                whole, {"f": jnp.result_type(float), "i": jnp.int32, "b": bool}[array.dtype.kind]
            )
        if array.dtype.kind == "f" and name != "reach" and not np.isfinite(np.asarray(made)).all():
            raise ValueError(f"`{name}` must be finite in {made.dtype}; a number of the model is not.")
        if name in ("bias", "scale", "low", "high") and (np.abs(array) > most).any():
            raise ValueError(
                f"`{name}` must lie within ±{most:.0e}, where values are held; got {np.abs(array).max():.3g}. Use other units."
            )
        return made

    own = {"adjacency": adjacency, "live": np.ones(d, bool), "observed": observed, "manipulable": manipulable}
    own |= {"low": low, "high": high, "cost_fixed": fixed, "cost_unit": unit}
    of_mechanism, of_noise, of_model = (
        {name: pad_field(name, array) for name, array in fields.items()} for fields in (mechanism, noise, own)
    )
    scm = SCM(
        order=topological_order(of_model["adjacency"], of_model["live"]),
        target=jnp.asarray(goal, jnp.int32),
        mechanism=Mechanism(**of_mechanism, functions=functions),
        noise=Noise(**of_noise),
        **of_model,
    )
    return CausalModel(names, scm)


def _only_sink(names: Sequence[str], adjacency: Bool[np.ndarray, "d d"]) -> int:
    if "Y" in names:
        return names.index("Y")
    sinks = np.flatnonzero(~adjacency.any(1))
    if len(sinks) != 1:
        raise ValueError(
            f"`target` must be given where no variable is called Y and several cause nothing; got None, and "
            f"{', '.join(names[int(v)] for v in sinks)} cause nothing. Pass `target={names[int(sinks[0])]!r}`."
        )
    return int(sinks[0])


def fit_linear_model(
    names: Sequence[str], adjacency: Bool[np.ndarray, "d d"], data: Dataset, **options: Any
) -> CausalModel:
    """The linear-Gaussian model of a graph that explains the data best; options as for `linear_model`.

    Rows in which a variable was set say nothing about its mechanism and are left out for it. Without a target among
    the options, the data's holds.
    """
    d = len(names)
    values, rows = np.asarray(data.values, float)[:, :d], np.asarray(data.rows)
    touched = np.asarray(data.intervened)[:, :d]
    weights, bias, scale = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for j in range(d):
        causes = np.flatnonzero(adjacency[:, j])
        kept = rows & ~touched[:, j]
        free = int(kept.sum()) - len(causes) - 1
        if free < 1:
            raise ValueError(
                f"`data` must have more rows in which {names[j]!r} was not set than it has causes plus one, "
                f"{len(causes) + 1}; got {int(kept.sum())}."
            )
        x, y = values[kept][:, causes], values[kept, j]
        middle, spread = x.mean(0), x.std(0)
        # In one unit, or the causes with small numbers are lost to rounding; a constant explains nothing.
        spread[spread <= 1e-12 * np.abs(x).max(0)] = np.inf
        design = (x - middle) / spread
        solution = np.linalg.lstsq(design, y - y.mean(), rcond=None)[0]
        left = y - y.mean() - design @ solution
        weights[causes, j] = solution / spread
        bias[j] = y.mean() - middle @ weights[causes, j]
        scale[j] = np.sqrt(left @ left / free)
    options.setdefault("target", names[int(data.target)])
    return linear_model(names, weights, scale=scale, bias=bias, adjacency=adjacency, **options)

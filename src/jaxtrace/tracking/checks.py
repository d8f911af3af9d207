"""Checks of a tracker's arguments: seeds, names, times, and switches of older versions."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int8, Shaped

from jaxworlds.arguments import demand_no_dates, short

from ..boundaries.base import AbstractBoundary
from ..fields.chart import on_turn_of
from ..fields.epoch import Epoch
from ..fields.time_series import TimeSeriesField
from ..integrators.base import AbstractIntegrator
from ..integrators.names import INTEGRATORS, integrator_named
from ..settings import DOUBLE, HELD, WATER
from .particles import Outcome

Positions = Shaped[Array | np.ndarray, "..."] | Sequence[Any]


def checked_seeds(positions: Positions, dim: int) -> Float[np.ndarray, "particles dim"]:
    """Finite positions in the default precision."""
    try:
        seeds = np.asarray(positions, jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`initial_positions` must be numbers, a row of {dim} for each particle; got {short(positions)}."
        ) from error
    if seeds.size == 0:
        raise ValueError(
            f"`initial_positions` must have shape (particles, {dim}) for this field, one particle at least; got shape "
            f"{seeds.shape}, no particle. Was all of a selection left out?"
        )
    if seeds.ndim != 2 or seeds.shape[1] != dim or len(seeds) == 0:
        remedy = (
            f" For one particle write {[seeds.tolist()]}."
            if seeds.shape == (dim,)
            else " Transpose it."
            if seeds.ndim == 2 and seeds.shape[0] == dim
            else ""
        )
        raise ValueError(
            f"`initial_positions` must have shape (particles, {dim}) for this field; got {seeds.shape}.{remedy}"
        )
    bad = np.flatnonzero(~np.isfinite(seeds).all(1))
    if bad.size:
        raise ValueError(
            f"`initial_positions` must be finite; {bad.size} of {len(seeds)} are not, the first is number {bad[0]}."
        )
    return seeds


def demand_dimension(boundary: Any, dim: int) -> None:
    """Refuse walls of another dimension than the field's, where they say theirs."""
    for part in (*getattr(boundary, "parts", ()), getattr(boundary, "walls", None)):
        if part is not None:
            demand_dimension(part, dim)
    low = getattr(boundary, "low", None)
    if low is not None and np.shape(low) != (dim,):
        raise ValueError(
            f"`boundary_condition` must have the {dim} dimensions of the field; got a box of {np.shape(low)[-1]}."
        )


def checked_span(time_span: Any) -> tuple[float, float]:
    """Begin and end as numbers; anything else is refused."""
    demand_no_dates(time_span, "time_span")
    try:
        values = np.asarray(time_span, np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (2,) or not np.isfinite(values).all():
        raise ValueError(f"`time_span` must be two finite times, (begin, end); got {time_span!r}.")
    return float(values[0]), float(values[1])


def slice_times(field: Any) -> np.ndarray | None:
    """When the slices of a series hold; None for a field without slices."""
    times = getattr(field, "times", None)
    return None if times is None or len(times) < 2 else np.asarray(times, np.float64)


def check_range(field: Any, time_span: Sequence[float], epoch: Epoch | None = None) -> None:
    """Refuse times the field does not know, or say what holds there."""
    low, high = field.time_range
    time_span = checked_span(time_span)
    slack = 1e-6 * max(abs(low), abs(high)) if np.isfinite([low, high]).all() else 0.0
    if min(time_span) >= low - slack and max(time_span) <= high + slack:
        return
    message = f"`time_span` {time_span} reaches beyond the times of the field, {low:g} to {high:g}"
    if epoch is not None:
        first, last, begin, end = epoch.texts([low, high, *time_span])
        message = (
            f"`time_span` from {begin} to {end} reaches beyond the times of the field, {first} to {last}"
        )
    if getattr(field, "extrapolation", "clamp") == "outside":
        raise ValueError(
            f"{message}, where it reports `outside`. Shorten the span, or use extrapolation='clamp'."
        )
    warnings.warn(f"{message}; the first or last slice holds there.", stacklevel=4)


def barred_seeds(
    seeds: Float[np.ndarray, "particles dim"], boundary: AbstractBoundary, field: Any
) -> Bool[np.ndarray, " particles"] | None:
    """Which particles begin where the boundary would move them; None for none. All of them are an error, some a warning."""
    barred = ~boundary._holds(seeds, getattr(field, "grid", None))
    if not barred.any():
        return None
    first = int(np.flatnonzero(barred)[0])
    message = (
        f"`initial_positions` must lie within `boundary_condition` ({type(boundary).__name__}); {_count_text(barred)}, the "
        f"first is number {first} at {point_text(seeds[first])}"
    )
    remedy = f"{HELD}."
    if barred.all():
        raise ValueError(f"{message}. Move them, or the boundary.")
    then = f"They stay where they are, with the outcome {Outcome.BEGAN_OUTSIDE.sentence!r}."
    if hasattr(boundary, "reinject"):
        then = "They end at once, and the inlet fills their slots."
    warnings.warn(f"{message}. {then} {remedy}", stacklevel=3)
    return barred


def tell_seeds_outside(
    outcomes: Int8[np.ndarray, " particles"],
    seeds: Float[np.ndarray, "particles dim"],
    field: Any,
    barred: Bool[np.ndarray, " particles"] | None,
) -> None:
    """Say how many particles began where the field does not hold them: an error if all did, a warning if some."""
    began = outcomes == Outcome.BEGAN_OUTSIDE
    lost = began if barred is None else began & ~barred
    if not lost.any():
        return
    grid = getattr(field, "grid", None)
    where = "in water" if getattr(grid, "land_rows", None) is not None else "inside"
    message = f"`initial_positions` must lie in the field and not on land; {_count_text(lost)}"
    if grid is not None:
        low, high = np.asarray(grid.bounds)
        turned = np.asarray(jax.vmap(lambda x: on_turn_of(grid, x))(jnp.asarray(seeds)))
        beyond = int(((turned < low) | (turned > high)).any(1)[lost].sum())
        rest = int(lost.sum()) - beyond
        parts = [f"{beyond:,} beyond {point_text(low)} to {point_text(high)}"] if beyond else []
        parts += [f"{rest:,} on land or in holes"] if rest else []
        message += f" ({', '.join(parts)})"
    first = int(np.flatnonzero(lost)[0])
    message += f". The first is number {first} at {point_text(seeds[first])}"
    remedy = f"{WATER.format(where=where)}."
    if began.all():
        raise ValueError(f"{message}. Are they in the field's coordinates? {remedy}")
    warnings.warn(
        f"{message}. They stay where they are, with the outcome {Outcome.BEGAN_OUTSIDE.sentence!r}. {remedy}",
        stacklevel=3,
    )


def point_text(point: Any) -> str:
    """A point with the digits that matter."""
    return f"({', '.join(f'{value:g}' for value in np.asarray(point))})"


def _count_text(wrong: Bool[np.ndarray, " particles"]) -> str:
    count = int(wrong.sum())
    if count == len(wrong):
        return "none does" if count > 1 else "it does not"
    return f"{count:,} of {len(wrong):,} {'does' if count == 1 else 'do'} not"


def tell_lost_steps(
    field: Any, integrator: Any, seeds: Float[np.ndarray, "particles dim"], dt: float
) -> None:
    """Warn where steps are lost beside large positions; integrators that only add to a position keep what is lost."""
    sphere = getattr(field, "sphere", None)
    if integrator.adds_increments or (sphere is not None and integrator.steps_in_metres):
        return
    largest = float(np.abs(seeds).max())
    unit = float(np.spacing(seeds.dtype.type(largest)))
    amount = getattr(integrator, "diffusivity", None)
    if amount is not None and not callable(amount) and np.max(amount) > 0:
        # Kicks are rounded up as often as down, so that longer ones are right on average.
        way, enough = float(np.sqrt(2 * np.max(amount) * dt)), 2 * unit
    elif isinstance(field, TimeSeriesField) and amount is None:
        way, enough = float(field.scale) * dt, 16 * unit
    else:
        return
    if sphere is not None:
        way = way / sphere.metres_per_degree
    if 0 < way < enough:
        warnings.warn(
            f"`initial_positions` up to {largest:.3g} are known to {unit:.2g} in {seeds.dtype}, and "
            f"{type(integrator).__name__} goes at most about {way:.2g} in a step of {dt:.3g}: much of it is lost in rounding. "
            f"Subtract an origin from all positions (`origin=` where files are read), take longer steps, or {DOUBLE}.",
            stacklevel=3,
        )


# Square metres per second: below it nothing spreads on a globe, but what was meant for degrees does.
_LITTLE = 1e-4


def tell_units_on_sphere(field: Any, integrator: AbstractIntegrator) -> None:
    """Warn where an integrator's numbers or formulas are probably for degrees, though it steps in metres; or the reverse."""
    sphere = getattr(field, "sphere", None)
    if sphere is None:
        return
    if not integrator.steps_in_metres:
        warnings.warn(
            f"{type(integrator).__name__} does not declare `steps_in_metres = True`, so that it gets longitude and latitude and "
            "velocities in degrees per second: right away from the poles and rough within a few steps of them.",
            stacklevel=3,
        )
    amount = getattr(integrator, "diffusivity", None)
    if amount is None or callable(amount):
        return
    most = float(np.max(np.broadcast_to(np.asarray(amount), (field.dim,))[:2]))
    if 0 < most < _LITTLE:
        warnings.warn(
            f"`diffusivity` is in m²/s where velocities are in m/s on longitudes and latitudes; got {most:g}, next to nothing. "
            f"One in degrees²/s must be multiplied by {sphere.metres_per_degree:.0f}².",
            stacklevel=3,
        )


def checked_integrator(
    name: str | AbstractIntegrator, given: AbstractIntegrator | None, options: dict[str, Any]
) -> AbstractIntegrator:
    """The integrator that was named or given, with its options."""
    if given is not None and name != "rk4":
        raise ValueError(
            f"`integrator` and `integrator_name` both name an integrator; got {type(given).__name__} and "
            f"{name!r}. Give one."
        )
    chosen = name if given is None else given
    kind = INTEGRATORS.get(chosen.lower().replace("-", "_")) if isinstance(chosen, str) else None
    known = [field.name for field in dataclasses.fields(kind)] if kind is not None else []
    unknown = [option for option in options if kind is not None and option not in known]
    if unknown:
        its = f"whose options are {', '.join(known)}" if known else "which has no options"
        raise TypeError(
            f"`{unknown[0]}` is known neither to create_tracker nor to the integrator {chosen!r}, {its}."
        )
    return integrator_named(chosen, **options)


def checked_ids(ids: Any, count: int) -> Shaped[np.ndarray, " particles"]:
    """One name for each particle, all different."""
    if ids is None:
        return np.arange(count)
    names = np.asarray(ids)
    if names.shape != (count,):
        raise ValueError(
            f"`ids` must hold one name for each of the {count} particles; got shape {names.shape}."
        )
    if len(np.unique(names)) != count:
        raise ValueError("`ids` must be different from each other; some are repeated.")
    return names


_said: set[str] = set()


def say_once(message: str, stacklevel: int = 3) -> None:
    """A note for users of older recipes, once in a process."""
    if message not in _said:
        _said.add(message)
        warnings.warn(message, stacklevel=stacklevel)


def is_streamed(field: Any) -> bool:
    """Whether a field is read while it is used."""
    return hasattr(field, "open") and hasattr(field, "plan")


def known_span(field: Any) -> tuple[float, float]:
    """The times of a field, or one unit of time where it holds for all."""
    low, high = field.time_range
    return (float(low), float(high)) if np.isfinite([low, high]).all() else (0.0, 1.0)

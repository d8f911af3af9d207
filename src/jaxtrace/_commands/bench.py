"""`jaxtrace bench`: particle-steps a second on this machine, without compile time."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxworlds.commands import machine, machine_words, print_json, show_status, show_table
from jaxworlds.measuring import format_seconds

from ..boundaries import reflective_boundary
from ..fields import TimeSeriesField, UniformGrid, double_gyre
from ..integrators.names import integrator_named
from ..tracking import create_tracker
from ..tracking.seeding import low_discrepancy_seeds

BOUNDS, SPAN, SLICES, SHAPE = ((0.0, 0.0), (2.0, 1.0)), (0.0, 10.0), 21, (201, 101)


def bench(particles: int, steps: int, rounds: int, integrators: tuple[str, ...], json: bool) -> int:
    """Time each integrator on the double gyre, as slices on a grid."""
    for name, value in (("particles", particles), ("steps", steps), ("rounds", rounds)):
        if value < 1:
            raise ValueError(f"`--{name}` must be at least 1; got {value}.")
    if not integrators:
        raise ValueError("`--integrators` must name at least one; got none.")
    for name in integrators:
        _demand_no_options(name)
    where, field = machine(), sampled_gyre()
    found = {}
    for name in integrators:
        with show_status(f"{name}: compiling and timing"):
            found[name] = time_integrator(name, field, particles, steps, rounds)
    if json:
        print_json({"particles": particles, "steps": steps, "rounds": rounds, "integrators": found, **where})
        return 0
    rows = [
        (
            name,
            f"{row['particle_steps_per_second']:,.0f}",
            *map(format_seconds, (row["seconds"], row["compile_seconds"])),
        )
        for name, row in found.items()
    ]
    shape = "×".join(map(str, SHAPE))
    title = f"{particles:,} particles, {steps} steps, double gyre in {SLICES} slices of {shape} nodes, mirrors around"
    show_table(title, ("integrator", "particle-steps/s", "a run", "compiling"), rows, machine_words(where))
    return 0


def _demand_no_options(name: str) -> None:
    """Refuse an integrator that cannot be timed by its name alone."""
    try:
        integrator_named(name)
    except TypeError as error:
        needs = str(error).partition(": ")[2] or str(error)
        raise ValueError(
            f"`--integrators` must need no options; {name} needs {needs}. Time it as `jaxtrace run double_gyre "
            f"--integrator {name} --option {needs.split(' ')[0].strip(chr(39))}=0.1`, which tells its rate."
        ) from error


def sampled_gyre() -> TimeSeriesField:
    """The double gyre as a simulation would leave it: slices on a grid."""
    (low, high), flow = np.array(BOUNDS), double_gyre()
    grid = UniformGrid(low, (high - low) / (np.array(SHAPE) - 1), SHAPE)
    times = np.linspace(*SPAN, SLICES)
    points = jnp.asarray(grid.positions)
    return TimeSeriesField(np.stack([np.asarray(flow(points, float(t))) for t in times]), times, grid=grid)


def time_integrator(name: str, field: Any, particles: int, steps: int, rounds: int) -> dict[str, float]:
    """The median of `rounds` runs, after one that compiles; positions are kept at the last time alone."""
    tracker = create_tracker(name, field, reflective_boundary(BOUNDS))
    seeds = low_discrepancy_seeds(particles, BOUNDS)
    dt = (SPAN[1] - SPAN[0]) / steps
    track = functools.partial(tracker.track_particles, seeds, SPAN, 2, dt=dt, progress=False)
    first, *runs = (track().info for _ in range(rounds + 1))
    medians = {
        word: float(np.median([run[word] for run in runs]))
        for word in ("particle_steps_per_second", "seconds")
    }
    return {**medians, "steps": first["steps"], "compile_seconds": first["compile_seconds"]}

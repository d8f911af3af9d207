"""jaxtrace's part of `make demo`: a stream past a cylinder that sheds vortices, as a picture and as an animation.

The flow is kinematic, after Jung, Tél and Ziemniak (Chaos 3, 555, 1993): a stream function with a cylinder at rest in a
stream and two vortices that form behind it in turn. It is read on a grid at some times only, as a simulation's output.
"""

import html
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxworlds.commands.demo import Section, Speed, framed
from jaxworlds.pictures import data_uri

from .boundaries import composed_boundary, inlet_outlet_boundary_factory, spherical_boundary
from .fields import TimeSeriesField, UniformGrid
from .tracking import InletBoundary, Outcome, Trajectory, create_tracker
from .tracking.seeding import low_discrepancy_seeds
from .visualization import player_html, plot_paths, terminal_picture
from .visualization.canvas import MISSING

BOUNDS = ((-3.0, -3.0), (11.0, 3.0))
"""The channel, in radii of the cylinder."""
LABELS: dict[str, Any] = {"length_unit": "radii", "time_unit": "periods"}
STREAM, SWIRL, DRIFT, LIFE = 4.5, 5.0, 3.2, 3
"""Speed upstream, strength of a vortex, how far it drifts in a period, and for how many periods."""


def stream_function(
    x: Float[np.ndarray, "*n"], y: Float[np.ndarray, "*n"], t: float
) -> Float[np.ndarray, "*n"]:
    """ψ of the flow past a cylinder of radius 1 in the origin; time counts periods of shedding."""
    away = np.maximum(np.hypot(x, y), 1.0) - 1.0
    slowed = 1 - np.exp(-away * (1 + 1.5 * away))  # 0 on the cylinder: nothing flows through it
    shelter = 1 - 0.9 * np.exp(-((x - 1) ** 2) / 4 - y**2)  # behind it the stream is weak
    total = STREAM * shelter * (y - y**3 / 40)  # slower along the walls of the channel
    # A vortex above and one below in every period, half a period apart, each for some periods.
    for number in range(2 * LIFE):
        side = 1.0 if number % 2 == 0 else -1.0
        life = (t + number / 2) / LIFE % 1.0
        strength = SWIRL * side * np.sin(np.pi * np.sqrt(life))
        total = total - strength * np.exp(
            -0.7 * (x - 1.2 - DRIFT * LIFE * life) ** 2 - 1.1 * (y - 0.5 * side) ** 2
        )
    return slowed * total


def velocity(points: Float[np.ndarray, "n 2"], t: float, h: float = 1e-4) -> Float[np.ndarray, "n 2"]:
    """u = ∂ψ/∂y, v = −∂ψ/∂x, by central differences: free of divergence."""
    x, y = np.asarray(points, np.float64).T
    u = stream_function(x, y + h, t) - stream_function(x, y - h, t)
    v = stream_function(x - h, y, t) - stream_function(x + h, y, t)
    return np.stack([u, v], axis=-1) / (2 * h)


def wake(periods: int, spacing: float = 0.1, slices: int = 16) -> TimeSeriesField:
    """The flow as a simulation would leave it: on a grid, with this many `slices` in a period."""
    low, high = np.array(BOUNDS)
    grid = UniformGrid(low, [spacing, spacing], [round(size / spacing) + 1 for size in high - low])
    one = np.stack([velocity(np.asarray(grid.positions), k / slices) for k in range(slices)])
    data = np.concatenate([np.tile(one, (periods, 1, 1)), one[:1]]).astype(np.float32)
    return TimeSeriesField(data, np.arange(len(data)) / slices, grid=grid)


def channel(field: TimeSeriesField) -> InletBoundary:
    """Mirrors above, below and around the cylinder; who leaves on the right enters on the left, where fluid does."""
    ends = inlet_outlet_boundary_factory(
        BOUNDS, "x", inlet_distribution="flux", field=field, resolution=(1, 60)
    )
    cylinder = spherical_boundary((0.0, 0.0), 1.0, "reflective", side="outside")
    return InletBoundary(composed_boundary(cylinder, ends.walls), ends.inlet)


def demo(out: Path, console: Any, *, particles: int = 2000, periods: int = 5, times: int = 151) -> Section:
    """Run the demo of jaxtrace, print and return what it saw. Raises if a particle is lost."""
    if importlib.util.find_spec("matplotlib") is None:  # said before anything is computed
        raise ImportError(MISSING)
    console.print("[bold]jaxtrace[/]: particles through time-dependent fields")
    field = wake(periods)
    boundary = channel(field)
    # A few more than asked, because some would begin inside the cylinder.
    seeds = np.asarray(low_discrepancy_seeds(particles + particles // 20 + 10, BOUNDS))
    seeds = seeds[np.linalg.norm(seeds, axis=1) > 1.02][:particles]
    tracker = create_tracker("rk4", field, boundary)
    trajectory = tracker.track_particles(seeds, (0.0, periods), times, dt=1 / 200)
    _check(trajectory)
    info, met = trajectory.info, trajectory.patch_counts
    walls = met["x_min"] + met["y_min"] + met["y_max"]
    report = (
        f"{len(trajectory.ids):,} particles, {info['steps']:,} Runge–Kutta steps: "
        f"{info['particle_steps_per_second']:,.0f} particle-steps/s; "
        f"{met['x_max']:,} left through the outlet and entered again, "
        f"the walls turned back {walls:,} and the cylinder {met['circle']:,}"
    )
    console.print(report)
    if console.is_terminal:
        console.print(terminal_picture(trajectory), highlight=False)
    drawn: dict[str, Any] = {"color": "age", "field": field, "boundary": boundary, **LABELS}
    page = player_html(trajectory, seconds=12, title="Particles in a wake", **drawn)
    body = (
        "<p>Where does something go that drifts with a flow: smoke, plankton, a pollutant, blood cells? A stream past a cylinder "
        f"sheds a vortex above and one below in every period, and is known on a grid at {len(field.times)} times, as a "
        f"simulation leaves it. {particles:,} particles drift with it: they enter on the left, are turned back by the walls "
        "and the cylinder, and leave on the right.</p>\n"
        f"{framed(page, 'Animation of the particles', '31rem')}\n<figure>{_picture(trajectory, drawn)}"
        "<figcaption>The same run as a still picture: paths of some particles. Colour: how long ago each entered, in periods "
        "of shedding. Grey: speed of the flow at the end. Lengths are in radii of the cylinder.</figcaption></figure>\n"
        f"<p>{html.escape(report)}.</p>"
    )
    job = f"jaxtrace: {len(trajectory.ids):,} particles, Runge–Kutta, walls and an inlet"
    speed = Speed(job, info["particle_steps_per_second"], "particle-steps/s", info["compile_seconds"])
    summary = "Particles through flows from files, grids, meshes or formulas, past walls and inlets."
    return Section(
        "jaxtrace: particles through time-dependent fields",
        body,
        (speed,),
        summary,
        {"jaxtrace plot double_gyre --out gyre.png": "a flow as a picture"},
    )


def _check(trajectory: Trajectory) -> None:
    """Every particle is in the channel and outside the cylinder at every time, and on its way at the last."""
    low, high = np.array(BOUNDS)
    assert trajectory.positions is not None
    inside = ((trajectory.positions >= low) & (trajectory.positions <= high)).all()
    outside = (np.linalg.norm(trajectory.positions, axis=-1) > 1 - 1e-5).all()
    if not (inside and outside and (trajectory.outcomes == Outcome.MOVING).all()):
        raise RuntimeError("a particle left the channel other than through its outlet. Please report this.")


def _picture(trajectory: Trajectory, drawn: dict[str, Any]) -> str:
    """Paths of some eighty particles as an `<img>`."""
    figure = plot_paths(trajectory, every=max(1, len(trajectory.ids) // 80), **drawn)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    alt = "Paths of some of the particles: they pass the cylinder and curl behind it"
    return f'<img src="{data_uri(file.getvalue())}" alt="{alt}">'

"""The command `jaxtrace`: info, run, plot and bench."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxworlds._commands import Computing, Spreading, run_command

Missing = Literal["land", "zero", "fill"]


@dataclasses.dataclass(frozen=True)
class Info(Computing):
    """What is in a file: grid, size, times, variables, bounds and memory of a field, or what became of saved particles.

    Example: jaxtrace info "run/flow_*.vtu"
    """

    file: tyro.conf.Positional[str]
    """A NetCDF or VTK file, a Zarr store, a pattern in quotes, a collection (.pvd), or trajectories (.npz, .nc, .zarr)."""
    velocity: tuple[str, ...] = ()
    """The vector, or one name for each component, where several could be meant."""
    missing: Missing | None = None
    """What values that are missing mean, land unless given; fill: chunks that a Zarr store lacks are its fill value."""
    earth_radius: float | None = None
    """Metres, for m/s on longitudes and latitudes; 6371000 unless given."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.looking import info

        return info(self.file, self.velocity, self.missing, self.json, self.earth_radius)


@dataclasses.dataclass(frozen=True)
class Run(Spreading):
    """Move particles through a field and write their paths.

    The field is a file, a pattern, or a flow by its name (`double_gyre`, `abc_flow`, `peninsula`, `solid_rotation`). A problem
    in a .toml file says the same in more detail; options given here replace what it says. Ctrl-C and SIGTERM stop cleanly and
    write what was computed; with `--checkpoint` the same command with `--resume` goes on from there.

    Example: jaxtrace run "run/flow_*.vtu" --particles 1000 --boundary reflective --dt 0.01 --times 101 --out paths.nc
    """

    problem: tyro.conf.Positional[str]
    """A field, or a problem in a .toml file."""
    velocity: tuple[str, ...] = ()
    """The vector, or one name for each component, where several could be meant."""
    missing: Missing | None = None
    """What values that are missing mean, land unless given; fill: chunks that a Zarr store lacks are its fill value."""
    earth_radius: float | None = None
    """Metres, for m/s on longitudes and latitudes; 6371000 unless given."""
    particles: int | None = None
    """How many, spread evenly over the field; 1000 unless given."""
    lattice: tuple[int, ...] = ()
    """Instead: how many along each axis."""
    seeds: Path | None = None
    """Instead: a CSV file with the columns x, y and z."""
    bounds: tuple[float, ...] = ()
    """Lower and then upper corner of where particles begin and of the boundary; the field's own unless given."""
    boundary: Literal["none", "reflective", "periodic", "absorbing", "clamping"] | None = None
    """What happens at the walls of that box; nothing unless given."""
    integrator: str | None = None
    """rk4 unless given; euler, midpoint, dopri5, euler_maruyama, milstein."""
    dt: float | None = None
    """Largest step in time, in the field's unit; unless given, a twentieth of the time between two slices."""
    span: tuple[float, float] | None = None
    """First and last time; the field's own unless given. A smaller last one goes back in time."""
    times: int | None = None
    """How many times are recorded; 101 unless given."""
    out: Path | None = None
    """Trajectories to write: .nc, .zarr, .npz, .vtp (paths for ParaView) or .pvd (an animation for it)."""
    checkpoint: Path | None = None
    """Folder to save the run to as it goes."""
    resume: bool = False
    """Go on with the run in that folder; where there is none, begin."""
    seed: int | None = None
    """Seed of random walks."""
    plan: bool = False
    """Say what would be done and what memory it needs, and stop."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.running import run

        return run(**self.own_options(), mesh=self.mesh)


@dataclasses.dataclass(frozen=True)
class Plot(Computing):
    """Draw trajectories or a field: a picture, a page that plays, or dots in the terminal.

    Trajectories become paths (.png, .svg, .pdf), an animation (.html, .gif), or with `--at` positions at one time. A field
    becomes its speed with arrows.

    Example: jaxtrace plot paths.nc --out paths.png --color age
    """

    file: tyro.conf.Positional[str]
    """Trajectories (.npz, .nc, .zarr), or a field: a file, a store, a pattern, or a flow by its name."""
    out: Path | None = None
    """Picture to write; without it particles are shown in the terminal."""
    field: str | None = None
    """Field to draw behind trajectories."""
    missing: Missing | None = None
    """What values of the field that are missing mean, land unless given; fill: those of chunks that a Zarr store lacks."""
    color: Literal["speed", "age", "time", "id", "outcome", "patch"] = "speed"
    """What the colours of particles mean."""
    at: float | None = None
    """Time to draw; of a field its first time, of trajectories all of them unless given."""
    dims: str | None = None
    """Axes, such as xz; of a field in space a cut through its middle."""
    bounds: tuple[float, ...] = ()
    """Lower and then upper corner of what to draw of a flow that has no grid."""
    length_unit: str = ""
    """Written on the axes, such as m."""
    time_unit: str = ""
    """Written beside times, such as s."""

    def compute(self) -> int:
        from ._commands.plotting import plot

        return plot(**self.own_options())


@dataclasses.dataclass(frozen=True)
class Bench(Computing):
    """Time tracking on this machine: particle-steps a second through a grid in slices, compiling apart.

    Example: jaxtrace bench --particles 10000 --steps 200
    """

    particles: int = 10_000
    """How many at once."""
    steps: int = 200
    """Steps of one timed run."""
    rounds: int = 3
    """Timed runs; the median counts."""
    integrators: tuple[str, ...] = ("euler", "rk4", "dopri5")
    """What to time."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.timing import bench

        return bench(**self.own_options())


Command = (
    Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `jaxtrace`."""
    run_command(Command, "jaxtrace", "Particles through time-dependent velocity fields.", arguments)


if __name__ == "__main__":
    main()

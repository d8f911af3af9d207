"""The command `jaxtrace`: info, run, plot and bench."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from jaxworlds.commands import Command, DistributedCommand, run_command
from jaxworlds.runtime import configure

from .settings import DOUBLE, HELD, WATER

Missing = Literal["land", "zero", "fill"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading(Command):
    """How files are read as a field; each option is an argument of `load_optimized_dataset`."""

    velocity: tuple[str, ...] = ()
    """The vector, or one name for each component (none: zero), where several could be meant."""
    missing: Missing | None = None
    """Meaning of missing values (default: land); fill: chunks missing from a Zarr store hold its fill value."""
    partly_missing: Literal["land", "zero"] | None = None
    """Meaning of nodes with one missing component (default: land)."""
    cell_data: Literal["linear", "average", "nearest"] | None = None
    """How values of cells are read (default: linear)."""
    earth_radius: float | None = None
    """In metres, for velocities in m/s on longitudes and latitudes (default: 6371000)."""
    select: tuple[str, ...] = dataclasses.field(default=(), metadata={"word": "DIMENSION=N ..."})
    """One index along a dimension of NetCDF or Zarr, such as depth=0."""
    attributes: tuple[str, ...] = dataclasses.field(
        default=(), metadata={"word": "VARIABLE.ATTRIBUTE=VALUE ..."}
    )
    """What NetCDF or Zarr do not say, or say wrongly, of a variable, such as nav_lon.units=degrees_east."""
    keep_units: bool = False
    """Leave velocities as they are in the file, in place of converting them to units of the coordinates."""
    dim: int | None = None
    """2 or 3 dimensions (default: 2 for a flat grid without flow across it)."""
    slice_times: tuple[str, ...] = dataclasses.field(default=(), metadata={"word": "TIME ..."})
    """The time or date of each slice, in place of those in the files."""
    origin: tuple[float, ...] = ()
    """Subtracted from all coordinates, whose digits are lost where they are large."""
    interpolation: Literal["nearest", "linear", "cubic"] | None = None
    """In space (default: linear)."""
    dtype: Literal["float16", "bfloat16", "float32", "float64"] | None = None
    """How velocities are stored (default: float32)."""
    since: str | None = dataclasses.field(default=None, metadata={"word": "DATE"})
    """Date of time 0, such as 2015-11-16, where the files say none; what comes out then shows dates."""

    spellings: ClassVar[Mapping[str, str]] = {
        "convert_units=False": "--keep-units",
        "times=": "slice_times",
        "epoch=": "since",
        "time_span": "--span",
        "n_timesteps": "--times",
        "initial_positions": "--seeds",
        "integrator_name": "--integrator",
        "pattern": "FILE",
        "boundary_condition": "--boundary",
        "resolution": "--lattice",
        "table": "--seeds",
        "file": "FILE",
        **dict.fromkeys(
            (WATER.format(where=where) for where in ("inside", "in water")),
            "Give `--bounds` or `--seeds` within the field, or draw them there in a problem file: "
            '`seeds = {kind = "random", n = 1000, inside = "field"}`',
        ),
        HELD: "Give `--bounds` that hold them",
        DOUBLE: "use double precision: `--dtype float64`",
    }
    """Which option stands for an argument of another name in a message."""

    def run(self) -> int:
        """Double precision where fields are read in it; then as every command."""
        if self.dtype == "float64":
            configure(dtype="float64")
        return super().run()

    def reading(self) -> dict[str, Any]:
        """The options that are given, as arguments of `load_optimized_dataset`."""
        from ._commands.sources import reading_of

        return reading_of({field.name: getattr(self, field.name) for field in dataclasses.fields(Reading)})

    def own_options(self) -> dict[str, Any]:
        """The options of this command without those of reading and those that `DistributedCommand` has."""
        shared = {field.name for field in dataclasses.fields(Reading)}
        return {name: value for name, value in super().own_options().items() if name not in shared}


@dataclasses.dataclass(frozen=True)
class Info(Reading):
    """What is in a file: grid, size, times, variables, bounds and memory of a field, or the outcomes of saved particles.

    Example: jaxtrace info "run/flow_*.vtu"
    """

    file: tyro.conf.Positional[str]
    """A NetCDF or VTK file, a Zarr store, a pattern in quotes, a collection (.pvd), or trajectories (.npz, .nc, .zarr)."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.info import info

        return info(self.file, self.reading(), self.json)


@dataclasses.dataclass(frozen=True)
class Run(Reading, DistributedCommand):
    """Move particles through a field and write their paths.

    The field is a file, a pattern, or a flow by its name (`double_gyre`, `abc_flow`, `peninsula`, `solid_rotation`). A problem
    in a .toml file says the same in more detail; options given here replace what it says. Ctrl-C and SIGTERM stop cleanly and
    write what was computed; with `--checkpoint` the same command with `--resume` goes on from there.

    Example: jaxtrace run "run/flow_*.vtu" --particles 1000 --boundary reflective --dt 0.01 --times 101 --out paths.nc
    """

    problem: tyro.conf.Positional[str]
    """A field, or a problem in a .toml file."""
    particles: int | None = None
    """How many, spread evenly over the field (default: 1000)."""
    lattice: tuple[int, ...] = ()
    """Number along each axis, instead of `--particles`."""
    seeds: Path | None = None
    """CSV file with the columns x, y and z, instead of `--particles`."""
    bounds: tuple[float, ...] = ()
    """Lower, then upper corner of the box for seeds and boundary (default: that of the field)."""
    boundary: Literal["none", "reflective", "periodic", "absorbing", "clamping"] | None = None
    """What happens at the walls of that box (default: none; particles that leave the field end after a whole step)."""
    integrator: str | None = None
    """rk4 (default), euler, midpoint, dopri5, euler_maruyama or milstein."""
    option: tuple[str, ...] = dataclasses.field(default=(), metadata={"word": "NAME=VALUE ..."})
    """Options of the integrator, such as diffusivity=0.1 or rtol=1e-6."""
    dt: float | None = None
    """Largest time step, in the field's unit (default: a twentieth of the time between two slices)."""
    span: tuple[str, str] | None = dataclasses.field(default=None, metadata={"word": "X X"})
    """First and last time or date (2015-11-16T06:00; default: those of the field). With the later one first, time runs back."""
    times: int | None = None
    """How many times are recorded (default: 101)."""
    out: Path | None = None
    """Trajectories to write: .nc, .zarr, .npz, .vtp (paths for ParaView) or .pvd (an animation for it)."""
    checkpoint: Path | None = None
    """Folder to save the run to as it goes."""
    checkpoint_every: float = 30.0
    """Seconds between two saves; 0 saves after every chunk of steps."""
    resume: bool = False
    """Continue the run in that folder, or start one if the folder has none."""
    seed: int | None = None
    """Seed of random walks."""
    plan: bool = False
    """Print the plan and its memory, and stop."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.run import run

        return run(**self.own_options(), reading=self.reading(), mesh=self.mesh)


@dataclasses.dataclass(frozen=True)
class Plot(Reading):
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
    color: Literal["speed", "age", "time", "id", "outcome", "patch"] = "speed"
    """Quantity that colours particles."""
    at: str | None = dataclasses.field(default=None, metadata={"word": "X"})
    """Time or date to draw (default: the first time of a field, all times of trajectories)."""
    dims: str | None = None
    """Axes, such as xz; of a field in space a cut through its middle."""
    bounds: tuple[float, ...] = ()
    """Lower and then upper corner of what to draw of a flow that has no grid."""
    length_unit: str = ""
    """Unit on the axes, such as m."""
    time_unit: str = ""
    """Unit of times, such as s."""

    spellings: ClassVar[Mapping[str, str]] = {**Reading.spellings, "time": "--at"}

    def compute(self) -> int:
        from ._commands.plot import plot

        return plot(**self.own_options(), reading=self.reading())


@dataclasses.dataclass(frozen=True)
class Bench(Command):
    """Time tracking on this machine: particle-steps a second through a grid in slices, without compile time.

    Example: jaxtrace bench --particles 10000 --steps 200
    """

    particles: int = 10_000
    """Number of particles."""
    steps: int = 200
    """Steps of one timed run."""
    rounds: int = 3
    """Timed runs; the median counts."""
    integrators: tuple[str, ...] = ("euler", "rk4", "dopri5")
    """Integrators to time."""
    json: bool = False
    """Print one JSON object for scripts."""

    spellings: ClassVar[Mapping[str, str]] = {"integrator_name": "--integrators"}

    def compute(self) -> int:
        from ._commands.bench import bench

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

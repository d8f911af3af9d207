"""The command `jaxarc`: show, rollout, data and bench."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxworlds.commands import Command, DistributedCommand, run_command

from . import _version  # noqa: F401 - an error with a remedy where another distribution changed this package

Format = Literal["point", "bbox", "mask"]


@dataclasses.dataclass(frozen=True)
class Show:
    """Draw a task or a saved episode, in the terminal or as a picture.

    Example: jaxarc show 00d62c1b --out task.svg
    """

    task: tyro.conf.Positional[str]
    """Id of a task, a JSON file with one, or an episode that `jaxarc rollout` saved (.npz)."""
    dataset: str = "arc-agi-1"
    """Where the id is looked up: arc-agi-1, arc-agi-2, a folder, a JSON file or an .arcbank file."""
    answers: bool = False
    """Show test outputs too."""
    out: Path | None = None
    """Picture to write: .svg, .png or .html."""
    json: bool = False
    """Print the task in ARC's own JSON, or the episode as plain data."""

    def run(self) -> int:
        from ._commands.show import show

        return show(**vars(self))


@dataclasses.dataclass(frozen=True)
class Rollout(DistributedCommand):
    """Play many environments at once and tell what came of it: episodes, solved ones, speed.

    Actions are random, or with `--policy paint` those that paint the known answers, one episode in each environment. Ctrl-C
    or SIGTERM ends after the chunk in hand and tells of what was played; with `--checkpoint` the same command and `--resume`
    goes on with the same bits.

    Example: jaxarc rollout --environments 256 --steps 500 --replay episode.html
    """

    dataset: str = "arc-agi-1"
    """arc-agi-1, arc-agi-2, a folder, a JSON file or an .arcbank file."""
    split: str | None = None
    """Such as training or evaluation; all tasks by default."""
    task: str | None = None
    """Play this task alone."""
    policy: Literal["random", "paint"] = "random"
    """Who plays."""
    environments: int = 256
    """How many at once."""
    steps: int = 500
    """Steps of each; of `paint`, the most that an episode may take."""
    format: Format = "bbox"
    """How actions select cells."""
    seed: int = 0
    """Seed of tasks and actions."""
    checkpoint: Path | None = None
    """Folder to save random play to as it goes."""
    checkpoint_every: float = 30.0
    """Seconds between two saves; 0 saves after every chunk of steps, about a second."""
    resume: bool = False
    """Continue from the checkpoint, on any number of devices; start if there is no checkpoint."""
    replay: tuple[Path, ...] = ()
    """Play one more episode and write it: .html to watch, .json as plain data, .npz for `jaxarc show`."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.rollout import play

        return play(**self.own_options(), mesh=self.mesh)

    def what_fits(self) -> str:
        """A batch that fits, for who asked for too many environments."""
        from ._commands.rollout import chosen_tasks, fewer_environments

        tasks = chosen_tasks(self.dataset, self.split, self.task)
        return fewer_environments(tasks, (self.format,), self.policy, self.steps, self.environments)


@dataclasses.dataclass(frozen=True)
class Data:
    """List the data sets there are, look into one, check files of tasks, or put them into one file.

    Without a source it lists the sets by name. Checking reads every file and tells all faults; it ends with 1 if there are any.

    Example: jaxarc data my_tasks --check --out my_tasks.arcbank
    """

    source: tyro.conf.Positional[str | None] = None
    """arc-agi-1, arc-agi-2, a folder, a JSON file or an .arcbank file."""
    ids: bool = False
    """List the ids of all tasks."""
    check: bool = False
    """Read file by file and tell every fault."""
    out: Path | None = None
    """File to write all tasks to: .arcbank (read through a memory map) or .json."""
    null_as: int | None = None
    """Colour of null cells in a folder (Mini-ARC: 0)."""
    flat_rows: bool = False
    """Take flat lists in a folder as grids of one row (1D-ARC)."""
    id_from: Literal["name", "path"] = "name"
    """What ids of a folder are made of."""
    skip: bool = False
    """Leave out tasks that cannot be used, such as those larger than 32×32 cells, and say how many."""
    json: bool = False
    """Print one JSON object for scripts."""

    def run(self) -> int:
        from ._commands.data import data

        return data(**vars(self))


@dataclasses.dataclass(frozen=True)
class Bench(Command):
    """Time random play on this machine: steps a second for each way of selecting, compiling apart.

    Example: jaxarc bench --environments 1024 --formats bbox
    """

    environments: int = 1024
    """How many at once."""
    steps: int = 100
    """Steps of one timed call."""
    rounds: int = 5
    """Timed calls; the median counts."""
    formats: tuple[Format, ...] = ("point", "bbox", "mask")
    """How actions select cells."""
    canvas: int = 30
    """Side of the largest grid; tasks that do not fit are left out."""
    dataset: str = "arc-agi-1"
    """arc-agi-1, arc-agi-2, a folder, a JSON file or an .arcbank file."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.bench import bench

        return bench(**self.own_options())

    def what_fits(self) -> str:
        """A batch that fits, for who asked for too many environments."""
        from ._commands.bench import tasks_within
        from ._commands.rollout import fewer_environments

        tasks = tasks_within(self.dataset, self.canvas)
        return fewer_environments(tasks, self.formats, "random", self.steps, self.environments)


Command = (
    Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `jaxarc`."""
    run_command(Command, "jaxarc", "ARC puzzles as environments.", arguments)


if __name__ == "__main__":
    main()

"""The command `jaxarc`: show, rollout, data and bench."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxworlds.commands import run_command

from . import _version  # noqa: F401 - an error with a remedy where another distribution changed this package
from ._commands.options import Bench as Bench
from ._commands.options import Format as Format
from ._commands.options import Rollout as Rollout


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
class Data:
    """List the data sets, describe one, check files of tasks, or write all tasks into one file.

    Without a source it lists the sets by name. `--check` reads every file and reports each fault; any fault ends it with 1.

    Example: jaxarc data my_tasks --check --out my_tasks.arcbank
    """

    source: tyro.conf.Positional[str | None] = None
    """arc-agi-1, arc-agi-2, a folder, a JSON file or an .arcbank file."""
    ids: bool = False
    """List the ids of all tasks."""
    check: bool = False
    """Read file by file and report every fault."""
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

"""The command `jaxworlds`: demo, doctor and bench."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from .commands import Command, print_json, run_command


@dataclasses.dataclass(frozen=True)
class Demo(Command):
    """Run every system on embedded defaults and write a page to look at.

    Example: jaxworlds demo --out report
    """

    out: Path = Path("report")
    """Folder for index.html."""
    steps: int = 6000
    """Steps of the core's part; fewer is quicker."""

    def compute(self) -> int:
        from .commands.demo import demo

        if self.steps < 8:
            raise ValueError(f"`--steps` must be at least 8; got {self.steps}. The demo stops in the middle.")
        demo(self.out, steps=self.steps)
        return 0


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Show versions, devices and settings, check that they work, and suggest remedies; exits with 1 if something fails.

    Example: jaxworlds doctor --json
    """

    json: bool = False
    """Print one JSON object for scripts."""

    def run(self) -> int:
        from .commands.doctor import diagnose, print_diagnosis

        diagnosis = diagnose()
        if self.json:
            print_json({**dataclasses.asdict(diagnosis), "healthy": diagnosis.healthy})
        else:
            print_diagnosis(diagnosis)
        return 0 if diagnosis.healthy else 1


@dataclasses.dataclass(frozen=True)
class Bench:
    """Run all benchmarks small, beside their peers where these are installed, and print one table.

    Needs a checkout of the repository. Peers live in environments of their own, which `--setup-peers` makes; a peer that is
    missing is named with what to do. `make bench` measures at full size. Ends with 1 if a benchmark fails.

    Example: jaxworlds bench --quick
    """

    quick: bool = False
    """Only the parts that a newcomer looks at; minutes instead of half an hour."""
    only: str = ""
    """Only benchmarks whose name contains this."""
    peers: Path = Path(".peers")
    """Folder of the peers' environments."""
    setup_peers: bool = False
    """Make those that are missing first; needs a network."""
    json: bool = False
    """Print one JSON object for scripts."""

    def run(self) -> int:
        from .commands.benchmarks import bench

        return bench(**vars(self))


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `jaxworlds`."""
    run_command(Command, "jaxworlds", "One JAX core under three systems.", arguments)


if __name__ == "__main__":
    main()

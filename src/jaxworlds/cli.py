"""The command `jaxworlds`: demo, doctor and bench."""

import dataclasses
import json
import runpy
import sys
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Demo:
    """Run every system on embedded defaults and write a page to look at.

    Example: jaxworlds demo --out report
    """

    out: Path = Path("report")
    """Folder for index.html."""
    steps: int = 6000
    """Steps to take; fewer is quicker."""

    def run(self) -> int:
        from .demo import demo
        from .runtime import configure

        if self.steps < 8:
            print(
                f"`--steps` must be at least 8; got {self.steps}. The demo stops in the middle.",
                file=sys.stderr,
            )
            return 2
        configure()
        demo(self.out, steps=self.steps)
        return 0


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Show what runs here, check that it works, and say what to do about anything odd.

    Example: jaxworlds doctor --json
    """

    json: bool = False
    """Print one JSON object for scripts."""

    def run(self) -> int:
        from .doctor import diagnose, print_diagnosis

        diagnosis = diagnose()
        if self.json:
            print(json.dumps({**dataclasses.asdict(diagnosis), "healthy": diagnosis.healthy}, default=str))
        else:
            print_diagnosis(diagnosis)
        return 0 if diagnosis.healthy else 1


@dataclasses.dataclass(frozen=True)
class Bench:
    """Run the core's benchmarks next to their peers (needs a checkout of the repository).

    Example: jaxworlds bench --quick
    """

    quick: bool = False
    """Smaller and shorter."""

    def run(self) -> int:
        script = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_core.py"
        if not script.exists():
            print(
                f"the benchmarks are part of the repository, not of the package; {script} is not there.",
                file=sys.stderr,
            )
            return 2
        sys.argv = [str(script), *(["--quick"] if self.quick else [])]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
        return 0


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `jaxworlds`."""
    command = tyro.cli(
        Command, args=arguments, prog="jaxworlds", description="One JAX core under three systems."
    )  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        sys.exit(command.run())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

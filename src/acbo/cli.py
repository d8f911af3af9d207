"""The command `acbo`: optimize and show."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Optimize:
    """Choose experiments for the problem in a TOML file, in the terminal or against its simulator.

    A problem says `target`, `[variables]` with ranges, and perhaps `objective`, `budget`, `experiments`, `graph`, `data`, and
    one of `simulator = "module:function"`, `model = "..."`, `benchmark = "toy"`. Without one of these, you make the
    experiments and type what was measured.

    Example: acbo optimize problem.toml --state run.json --report run.html
    """

    problem: tyro.conf.Positional[Path]
    """The problem."""
    state: Path | None = None
    """File to keep the optimization in, and to go on from. In the terminal, beside the problem by default."""
    report: Path | None = None
    """HTML page to write at the end."""
    trials: int | None = None
    """Most experiments to make now."""

    def run(self) -> int:
        from rich.console import Console

        from jaxworlds.runtime import configure

        from .optimizer.problem_file import read_problem
        from .optimizer.terminal import interact, show_advice

        console = Console()
        configure()
        problem = read_problem(self.problem)
        state = self.state
        if state is None and problem.simulator is None:
            state = self.problem.with_suffix(".state.json")
        resumed = state is not None and state.exists()
        if resumed:
            assert state is not None
            optimizer = problem.resume(state)
        else:
            optimizer = problem.start(state)
        if state is not None:
            console.print(
                f"{'going on with' if resumed else 'keeping'} {state}", highlight=False, soft_wrap=True
            )
        if problem.simulator is None:
            interact(optimizer, console, self.trials)
        elif optimizer.remaining >= 1 or optimizer.state.pending:
            optimizer.run(self.trials)
        show_advice(optimizer, console)
        if self.report is not None:
            optimizer.report(self.report, optimum=problem.optimum)
            console.print(f"report: {self.report}", highlight=False, soft_wrap=True)
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Show a saved optimization, a file of weights, or a problem in the terminal.

    Example: acbo show run.json
    """

    file: tyro.conf.Positional[Path]
    """What to show."""

    def run(self) -> int:
        from rich.console import Console

        from jaxworlds.runtime import configure

        from .optimizer.terminal import show

        configure()
        show(self.file, Console())
        return 0


Command = (
    Annotated[Optimize, tyro.conf.subcommand("optimize")] | Annotated[Show, tyro.conf.subcommand("show")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `acbo`."""
    command = tyro.cli(
        Command, args=arguments, prog="acbo", description="Choose experiments, and learn what causes what."
    )  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        sys.exit(command.run())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except (ValueError, ImportError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

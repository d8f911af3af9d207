"""The command `acbo`: optimize, show, train, eval and bench."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxworlds._commands import Computing, Spreading, run_command


@dataclasses.dataclass(frozen=True)
class Optimize(Computing):
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

    def compute(self) -> int:
        from rich.console import Console

        from .optimizer.problem_file import read_problem
        from .optimizer.terminal import interact, show_advice

        console = Console()
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
class Show(Computing):
    """Show a saved optimization, a file of weights, or a problem in the terminal.

    Example: acbo show run.json
    """

    file: tyro.conf.Positional[Path]
    """What to show."""

    def compute(self) -> int:
        from rich.console import Console

        from .optimizer.terminal import show

        show(self.file, Console())
        return 0


@dataclasses.dataclass(frozen=True)
class Train(Spreading):
    """Train a policy on random causal models, on this machine's device, and write it to a file.

    Ctrl-C or SIGTERM ends early and still writes what was learned; a second Ctrl-C ends at once and writes nothing. With
    `--checkpoint` the same command with `--resume` goes on from there.

    Example: acbo train --out mine.safetensors --updates 500 --size 6
    """

    out: Path = Path("policy.safetensors")
    """File of weights to write."""
    updates: int = 1000
    """Updates; the first fifth imitates, the rest is GRPO."""
    models: int = 64
    """Causal models of one update."""
    group: int = 16
    """Episodes on each of them."""
    width: int = 32
    """Of the network."""
    layers: int = 2
    """Of the network."""
    size: int = 10
    """Most variables of a model."""
    seed: int = 0
    """Of everything random."""
    checkpoint: Path | None = None
    """Folder to save the training to as it goes."""
    resume: bool = False
    """Go on with the training in that folder; where there is none, begin."""

    def compute(self) -> int:
        from rich.console import Console

        from jaxworlds._ending import code_of

        from .policy.commands import train

        return code_of(train(**self.own_options(), mesh=self.mesh, console=Console()))


@dataclasses.dataclass(frozen=True)
class Evaluate(Spreading):
    """Play a policy and other strategies on the same random models, and compare their regrets.

    Regret 0 is the best intervention, 1 is to do nothing. `cbo` is told the graph, the others are not.

    Example: acbo eval mine.safetensors --strategies random gp_ei --sizes 5 --out cells.csv
    """

    policy: tyro.conf.Positional[str] = "default"
    """A file of `acbo train`, or `default` for the policy of the package."""
    strategies: tuple[str, ...] = ("random", "gp_ei", "cbo")
    """What to compare it with."""
    sizes: tuple[int, ...] = (5, 10)
    """Numbers of variables."""
    families: tuple[str, ...] = ("erdos_renyi", "scale_free")
    """Families of graphs."""
    models: int = 20
    """Models of every size and family."""
    seed: int = 0
    """Of models and noise."""
    out: Path | None = None
    """CSV file for every size and family."""

    def compute(self) -> int:
        from rich.console import Console

        from .policy.commands import evaluate

        evaluate(**self.own_options(), mesh=self.mesh, console=Console())
        return 0


@dataclasses.dataclass(frozen=True)
class Bench(Computing):
    """Time how long a policy takes to choose an experiment, beside causal Bayesian optimization with the known graph.

    Example: acbo bench --variables 10
    """

    policy: tyro.conf.Positional[str] = "default"
    """A file of `acbo train`, or `default` for the policy of the package."""
    variables: int = 10
    """Of the causal model."""
    rows: int = 60
    """Of data, a fifth of them experiments."""
    repeats: int = 30
    """Calls that are timed, after one that compiles."""

    def compute(self) -> int:
        from rich.console import Console

        from .policy.commands import bench

        bench(**self.own_options(), console=Console())
        return 0


Command = (
    Annotated[Optimize, tyro.conf.subcommand("optimize")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("eval")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `acbo`."""
    run_command(Command, "acbo", "Choose experiments, and learn what causes what.", arguments)


if __name__ == "__main__":
    main()

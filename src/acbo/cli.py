"""The command `acbo`: optimize, show, train, eval and bench."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from jaxworlds.commands import Command, DistributedCommand, run_command


@dataclasses.dataclass(frozen=True)
class Optimize(Command):
    """Choose experiments for the problem in a TOML file, in the terminal or against its simulator.

    A problem says `target`, `[variables]` with ranges, and perhaps `objective`, `budget`, `experiments`, `graph`, `data`, and
    one of `simulator = "module:function"`, `model = "..."`, `benchmark = "toy"`. Without one of these, you make the
    experiments and type what was measured.

    Example: acbo optimize problem.toml --state run.json --report run.html
    """

    problem: tyro.conf.Positional[Path]
    """The problem, a .toml file."""
    state: Path | None = None
    """File that stores the optimization and from which it continues. In the terminal, by default beside the problem."""
    report: Path | None = None
    """HTML page to write at the end."""
    trials: int | None = None
    """Most experiments to make now; by default all that the problem allows."""
    json: bool = False
    """Print one JSON object for scripts; needs a simulator."""

    def compute(self) -> int:
        from ._commands.terminal import optimize

        return optimize(**self.own_options())


@dataclasses.dataclass(frozen=True)
class Show(Command):
    """Show a saved optimization, a file of weights, or a problem in the terminal.

    Example: acbo show run.json
    """

    file: tyro.conf.Positional[Path]
    """A saved optimization (.json), weights (.safetensors) or a problem (.toml)."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.terminal import show_file

        return show_file(self.file, self.json)


@dataclasses.dataclass(frozen=True)
class Train(DistributedCommand):
    """Train a policy on random causal models, on this machine's device, and write it to a file.

    Ctrl-C or SIGTERM ends early and still writes the policy; a second Ctrl-C ends at once and writes nothing. With
    `--checkpoint`, the same command and `--resume` continue with identical bits.

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
    """Width of the network."""
    layers: int = 2
    """Layers of the network."""
    size: int = 10
    """Most variables of a model."""
    seed: int = 0
    """Seed of everything random."""
    checkpoint: Path | None = None
    """Folder for checkpoints of the training."""
    checkpoint_every: float = 30.0
    """Seconds between two saves; 0 saves after every chunk of updates."""
    resume: bool = False
    """Continue from the checkpoint, on any number of devices; start a new training if there is none."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.policies import train

        return train(**self.own_options(), mesh=self.mesh)

    def what_fits(self) -> str:
        """The remedy for too little memory."""
        fewer = f"Try `--models {max(self.models // 2, 1)}`" if self.models > 1 else "Try a smaller `--width`"
        return f"{fewer}, or a smaller `--group` or `--size`."


@dataclasses.dataclass(frozen=True)
class Evaluate(DistributedCommand):
    """Play a policy and other strategies on the same random models, and compare their regrets.

    Regret 0 is the best intervention, 1 is to do nothing. `cbo` is told the graph, the others are not.

    Example: acbo eval mine.safetensors --strategies random gp_ei --sizes 5 --out cells.csv
    """

    spellings: ClassVar[Mapping[str, str]] = {"strategy=": "strategies"}
    """Names of options in messages."""

    policy: tyro.conf.Positional[str] = "default"
    """A file of `acbo train`, or `default` for the policy of the package."""
    strategies: tuple[str, ...] = ("random", "gp_ei", "cbo")
    """Strategies to compare it with."""
    sizes: tuple[int, ...] = (5, 10)
    """Numbers of variables."""
    families: tuple[str, ...] = ("erdos_renyi", "scale_free")
    """Families of graphs."""
    models: int = 20
    """Models of every size and family."""
    seed: int = 0
    """Seed of models and noise."""
    out: Path | None = None
    """CSV file for every size and family."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.policies import evaluate

        return evaluate(**self.own_options(), mesh=self.mesh)


@dataclasses.dataclass(frozen=True)
class Bench(Command):
    """Time how long a policy takes to choose an experiment, beside causal Bayesian optimization with the known graph.

    Example: acbo bench --variables 10
    """

    policy: tyro.conf.Positional[str] = "default"
    """A file of `acbo train`, or `default` for the policy of the package."""
    variables: int = 10
    """Variables of the causal model."""
    rows: int = 60
    """Rows of data, a fifth of them experiments."""
    repeats: int = 30
    """Calls that are timed, after one that compiles."""
    json: bool = False
    """Print one JSON object for scripts."""

    def compute(self) -> int:
        from ._commands.policies import bench

        return bench(**self.own_options())


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

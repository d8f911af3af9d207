"""The options of the commands that compute, as they are typed and as their modules take them."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxworlds.commands import Command, DistributedCommand

Format = Literal["point", "bbox", "mask"]


@dataclasses.dataclass(frozen=True)
class Rollout(DistributedCommand):
    """Play many environments at once and report episodes, solved tasks and speed.

    Actions are random, or with `--policy paint` those that paint the known answers, one episode in each environment. Ctrl-C
    or SIGTERM ends after the present chunk and reports what was played; with `--checkpoint`, the same command and `--resume`
    continue with identical bits.

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
        from .rollout import play

        return play(self, self.mesh)

    def what_fits(self) -> str:
        """The remedy after too many environments: a number that fits."""
        from .rollout import chosen_tasks, fewer_environments

        tasks = chosen_tasks(self)
        return fewer_environments(tasks, (self.format,), self.policy, self.steps, self.environments)


@dataclasses.dataclass(frozen=True)
class Bench(Command):
    """Time random play on this machine: steps a second for each action format, without compile time.

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
        from .bench import bench

        return bench(self)

    def what_fits(self) -> str:
        """The remedy after too many environments: a number that fits."""
        from .bench import tasks_within
        from .rollout import fewer_environments

        tasks = tasks_within(self)
        return fewer_environments(tasks, self.formats, "random", self.steps, self.environments)

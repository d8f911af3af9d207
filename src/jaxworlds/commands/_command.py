"""Base classes of commands, on one device or spread over devices and hosts, and checks of their options."""

import abc
import contextlib
import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..processes import start_processes
from ..runtime import configure
from ..special_files import special_file

_DEVICES_OF_CPU = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(abc.ABC):
    """A command that computes."""

    def run(self) -> int:
        """Configure the runtime, then do the work."""
        configure()
        return self.compute()

    @abc.abstractmethod
    def compute(self) -> int:
        """The work of the command; the exit code."""

    def own_options(self) -> dict[str, Any]:
        """The options of this command without those that `DistributedCommand` has."""
        shared = {field.name for field in dataclasses.fields(DistributedCommand)}
        return {name: value for name, value in vars(self).items() if name not in shared}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedCommand(Command):
    """A command that spreads its work over devices and hosts."""

    devices: int | None = None
    """Devices to spread the work over, those of all hosts together; a CPU is split into as many. Default: one."""
    hosts: int = 1
    """Processes that run this same command together, one on each host or several on one."""
    host: int | None = None
    """Which of them this is, from 0; SLURM and Open MPI tell it by themselves."""
    coordinator: str | None = None
    """Where host 0 is reached by all, as name:port; SLURM and Open MPI tell it by themselves."""
    patience: int = 120
    """Seconds to wait for the other hosts at the start."""
    silence: int = 60
    """Seconds without a sign of life after which a host counts as lost; the end of a process is noticed at once."""

    def run(self) -> int:
        """Configure the runtime, join the other hosts, then do the work; only host 0 prints."""
        self._settle()
        if self.hosts == 1:
            _note_tasks()
            return self.compute()
        self._join()
        import jax

        if jax.process_index() == 0:
            with _our_output():
                return self.compute()
        with (
            open(os.devnull, "w") as nowhere,
            _our_output(),
            contextlib.redirect_stdout(nowhere),
            warnings.catch_warnings(action="ignore"),
        ):
            return self.compute()

    def _join(self) -> None:
        from ..processes.launchers import find_place
        from ..processes.membership import code_facts, lifeline

        if find_place() is None and (self.host is None or self.coordinator is None):
            inside = "SLURM_JOB_ID" in os.environ
            launch = "start it with `srun`" if inside else "let SLURM or Open MPI start it"
            raise ValueError(
                f"`--hosts {self.hosts}` needs `--host`, the number of this one, and `--coordinator`, where host 0 is reached; "
                f"got {self.host} and {self.coordinator}. Give both, or {launch}."
            )
        package = type(self).__module__.split(".")[0]
        apart = ("host", "coordinator", "patience", "silence", "hosts")
        options = ((name, value) for name, value in vars(self).items() if name not in apart)
        same = {
            "the command": f"{package} {type(self).__name__.lower()}",
            **{f"`--{name.replace('_', '-')}`": str(value) for name, value in options},
            **code_facts("jaxworlds", package),
        }
        waits = {"timeout_s": self.patience, "silence_s": self.silence}
        start_processes(self.coordinator, self.hosts, self.host, **waits, same=same)
        if (line := lifeline()) is not None:
            line.advice = self.advice

    @property
    def advice(self) -> str:
        """What to do after a host was lost."""
        if not hasattr(self, "resume"):
            return "Nothing was saved on the way: start the command again."
        folder = getattr(self, "checkpoint", None)
        if folder is None:
            return "Start the command again; with `--checkpoint` it could go on."
        return (
            f"What was saved to {folder} is whole: the same command with --resume goes on, "
            "on these or on another number of hosts."
        )

    def _settle(self) -> None:
        for name in ("devices", "hosts", "patience", "silence"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`--{name}` must be at least 1; got {value}.")
        if self.hosts == 1 and (self.host is not None or self.coordinator is not None):
            raise ValueError("`--host` and `--coordinator` go with `--hosts`, how many there are; got 1.")
        if self.devices is not None and self.devices % self.hosts:
            raise ValueError(
                f"`--devices` must be a multiple of the {self.hosts} hosts, which share them; got {self.devices}."
            )
        own = None if self.devices is None else self.devices // self.hosts
        if own is not None and own > _DEVICES_OF_CPU:
            raise ValueError(
                f"`--devices` must be at most {_DEVICES_OF_CPU} for each host, since each takes its own threads; got "
                f"{self.devices} for {self.hosts} host{'s' * (self.hosts > 1)}."
            )
        configure(cpu_devices=own)

    @property
    def mesh(self) -> Any:
        """The devices to spread worlds over; None for one device."""
        from ..batching import world_mesh

        return None if self.devices is None and self.hosts == 1 else world_mesh(self.devices)


def is_first() -> bool:
    """Whether this process writes files: one of several does."""
    import jax

    return jax.process_index() == 0


def _note_tasks() -> None:
    """Print a note if a launcher started several processes that do not share the work."""
    from ..processes.launchers import find_place

    place = find_place()
    if place is not None and place.processes > 1 and place.process == 0:
        print(
            f"note: {place.launcher} started {place.processes} processes, and each does all of the work; "
            f"`--hosts {place.processes}` makes them share it.",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _our_output() -> Iterator[None]:
    """Within this block, output of libraries goes to the error stream; stdout carries only what the command prints.

    Gloo, by which CPUs of several hosts talk, says there who is connected with whom.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no output at all
        yield
        return
    os.dup2(2, 1)
    ours = os.fdopen(kept, "w", encoding="utf-8", closefd=False)
    try:
        with contextlib.redirect_stdout(ours):
            yield
    finally:
        ours.flush()
        os.dup2(kept, 1)
        os.close(kept)


WRITTEN = ("out", "replay", "report", "checkpoint", "save")
"""Options that name what a command writes."""


def demand_plain_files(options: dict[str, Any]) -> None:
    """Raise if an input is a named pipe, a socket or a device: opening or reading one may block for ever."""
    for name, one in _values(options, WRITTEN):
        readable = isinstance(one, str | Path) and str(one) and "\0" not in str(one)
        if readable and (kind := special_file(one)):
            raise ValueError(
                f"`{name}` must be a file or a folder; {one} is {kind}. Write what comes from it to a file first."
            )


_LARGEST = 2**31 - 1
"""The largest whole number that a program compiled for 32 bits counts to."""
_MOST = {"seed": 2**32 - 1, "hosts": 2**16, "devices": 2**20}
_ROOM = ("environments",)
"""Options of which a number that is too large is told with one that the memory holds."""


def demand_sizes(options: dict[str, Any]) -> None:
    """Raise if a whole number is too large for 32 bits; a larger seed would silently become another one."""
    for name, one in _values(options, _ROOM):
        if not isinstance(one, int) or isinstance(one, bool):
            continue
        most = _MOST.get(name, _LARGEST)
        if one > most or (name == "seed" and one < 0):
            span = f"from 0 to {most}" if name == "seed" else f"at most {most}"
            raise ValueError(f"`--{name.replace('_', '-')}` must be {span}; got {one}.")


def _values(options: dict[str, Any], without: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Name and value of each option, and each value of those that take several."""
    for name, value in options.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if name not in without:
                yield name, one


def demand_suffix(path: Path, known: tuple[str, ...], option: str) -> str:
    """Return the suffix of an output file; raise if it is unknown or the folder cannot be written."""
    suffix, folder = path.suffix.lower(), path.absolute().parent
    if suffix not in known:
        raise ValueError(f"`--{option}` must end in {', '.join(known)}; got {path.name!r}.")
    must = f"`--{option}` must lie in a folder that"
    if not folder.is_dir():
        raise ValueError(f"{must} exists; {path.parent} does not. Make it first.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{must} can be written; {folder} cannot. Take another one.")
    return suffix


def checkpoint_option(folder: Path | None, every: float) -> Any:
    """The `Checkpoint` that `--checkpoint` and `--checkpoint-every` ask for; None without a folder."""
    from ..rollout import Checkpoint

    if not 0 <= every < float("inf"):
        raise ValueError(f"`--checkpoint-every` must be at least 0 seconds; got {every}.")
    return None if folder is None else Checkpoint(folder, every_seconds=every)

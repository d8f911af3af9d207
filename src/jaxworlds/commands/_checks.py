"""Checks of options, before a command computes: files to read and to write, numbers, checkpoints."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..special_files import special_file

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

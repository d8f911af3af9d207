"""Paths that must be files: opening a pipe, a socket or a device may wait for ever, and a folder cannot be opened."""

import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def special_file(path: str | os.PathLike[str]) -> str | None:
    """ "a named pipe", "a socket" or "a device"; None for files, folders and missing paths."""
    try:
        return _KINDS.get(stat.S_IFMT(Path(path).stat().st_mode))
    except (OSError, ValueError):
        return None


def demand_file(path: str | os.PathLike[str]) -> None:
    """Raise if a path is a folder, a pipe, a socket or a device."""
    if Path(path).is_dir():
        raise IsADirectoryError(
            f"`path` must be a file; {path} is a folder. Name a file in it: {Path(path, 'NAME')}."
        )
    if kind := special_file(path):
        raise OSError(f"{path} must be a file; it is {kind}. Write what comes from it to a file first.")

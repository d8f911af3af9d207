"""Folders that appear whole or not at all: written under a temporary name, then exchanged in one step."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from ._container import DISK_ERRORS, PathLike, sync_folder

# From linux/fs.h and from sys/stdio.h of macOS.
_EXCHANGE, _SWAP, _HERE = 2, 2, -100
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def atomic_folder(path: PathLike) -> Iterator[Path]:
    """A new empty folder to write to, which becomes `path` at the end: readers see the old folder or the whole new one.

    It lies beside `path` under a hidden name and is synced to disk, file by file, before it is renamed. An old folder is
    exchanged with it in one step and then removed (where the system has no such step, in two: between them a killed
    process leaves the old one under a hidden name). On any exception the new one is removed and the old one stays.
    A link is followed.

        with atomic_folder("runs/paths.zarr") as folder:
            (folder / "zarr.json").write_text(text)
    """
    target = Path(os.path.realpath(path) if os.path.islink(path) else path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for inside, _, names in os.walk(temporary):
            for name in names:
                with open(os.path.join(inside, name), "rb+") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(inside))
        replaced = _put(temporary, target)
    except BaseException as error:  # a KeyboardInterrupt must not leave the temporary behind either
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None and error.errno in DISK_ERRORS:
            error.filename = str(target)  # a full disk does not say which file it was
        raise
    sync_folder(target.parent)
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def _put(new: Path, target: Path) -> Path | None:
    """Rename `new` to `target`; what lay there comes back under its new name."""
    if not target.is_dir():
        os.replace(new, target)
        return None
    if exchange(new, target):
        return new
    old = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.tmp")
    os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        os.replace(old, target)
        raise
    return old


def exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where the system cannot."""
    name = {"linux": "renameat2", "darwin": "renamex_np"}.get(sys.platform)
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    if function is None:
        return False
    old, new = os.fsencode(one), os.fsencode(other)
    on_linux = (_HERE, old, _HERE, new, ctypes.c_uint(_EXCHANGE))
    if function(*(on_linux if name == "renameat2" else (old, new, ctypes.c_uint(_SWAP)))) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(other))

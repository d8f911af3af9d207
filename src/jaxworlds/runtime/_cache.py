"""The compilation cache: its folder, and entries that a killed process left unfinished, found and removed.

JAX writes an entry in place. One that was not written to its end is never replaced: every later process that wants it
warns and compiles again.
"""

import contextlib
import importlib
import os
import time
import warnings
import zlib
from pathlib import Path
from typing import Literal

from ._machine import program_key

_CHECKED = ".checked"  # its time of change: entries up to it were looked at
_SETTLED_S = 60.0  # a younger entry may still be being written
_PATIENCE_S = 0.2  # of one start; the next one goes on
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def cache_home() -> Path | Literal["off"]:
    """Where programs are cached for all processes of this user: `JAXWORLDS_CACHE_DIR`, which may be "off", else the user's
    cache folder."""
    given = os.environ.get("JAXWORLDS_CACHE_DIR")
    if given == "off":
        return "off"
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxworlds"


def cache_folder(cache_dir: str | Path | None) -> Path | Literal["off"] | None:
    """The folder to use for this jaxlib and processor, made if need be; None leaves the cache as it is."""
    if cache_dir is None:
        return None
    is_default = cache_dir == "auto" and not os.environ.get("JAXWORLDS_CACHE_DIR")
    if is_default and (given := importlib.import_module("jax").config.jax_compilation_cache_dir):
        return Path(given)
    if cache_dir == "auto":
        cache_dir = cache_home()
    if str(cache_dir) == "off":
        return "off"
    folder = Path(cache_dir).expanduser().absolute() / program_key()
    writable = False
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    if not writable and is_default:
        warnings.warn(
            f"{folder} cannot be written: programs are not cached. Set JAXWORLDS_CACHE_DIR.", stacklevel=3
        )
        return "off"
    if not writable:
        raise ValueError(
            f"`cache_dir` must be a folder that can be written; got {str(cache_dir)!r}. "
            'Pass another folder, set JAXWORLDS_CACHE_DIR, or pass `cache_dir="off"`.'
        )
    return folder


def use_cache(folder: Path | Literal["off"]) -> None:
    """Point JAX's persistent cache at a folder, or turn it off."""
    jax = importlib.import_module("jax")
    chosen = None if folder == "off" else str(folder)
    if jax.config.jax_compilation_cache_dir != chosen:
        if folder != "off":
            remove_unfinished(folder)
        jax.config.update("jax_compilation_cache_dir", chosen)
        # The folder is read once, at the first compilation; a later change needs the reset.
        importlib.import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()
    if chosen is not None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def remove_unfinished(folder: Path) -> int:
    """Remove entries that end too early, and tell how many. Each entry is looked at once, by a process that starts later."""
    stamp = folder / _CHECKED
    try:
        checked = stamp.stat().st_mtime if stamp.exists() else 0.0
        if folder.stat().st_mtime <= checked:
            return 0
        with os.scandir(folder) as found:
            entries = [(file.stat().st_mtime, file.path) for file in found if file.name.endswith("-cache")]
    except OSError:  # another process tidies up here too
        return 0
    began, settled, removed = time.monotonic(), time.time() - _SETTLED_S, 0
    for changed, path in sorted(entry for entry in entries if checked < entry[0] <= settled):
        # Entries of one time are looked at together: where clocks are coarse, the stamp cannot tell them apart.
        if changed > checked and time.monotonic() - began > _PATIENCE_S:
            break
        checked = changed
        try:
            if not _is_whole(Path(path).read_bytes()):
                os.unlink(path)
                removed += 1
        except OSError:
            continue
    else:
        checked = max(checked, settled)
    with contextlib.suppress(OSError):  # a folder that others own: looked at again next time
        stamp.touch()
        os.utime(stamp, (checked, checked))
    return removed


def _is_whole(entry: bytes) -> bool:
    """Whether compressed data reach their end. Entries of an unknown format count as whole."""
    if entry.startswith(_ZSTANDARD):
        try:
            import zstandard
        except ImportError:
            return True
        stream, fault = zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
    else:
        stream, fault = zlib.decompressobj(), zlib.error
    try:
        stream.decompress(entry)
    except fault:
        return False
    return stream.eof

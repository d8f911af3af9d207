"""Entries of JAX's compilation cache that a killed process left unfinished: found and removed.

JAX writes an entry in place. One that was not written to its end is never replaced: every later process that wants it
warns and compiles again.
"""

import os
import time
import zlib
from pathlib import Path

_CHECKED = ".checked"  # its time of change: entries up to it were looked at
_SETTLED_S = 60.0  # a younger entry may still be being written
_PATIENCE_S = 0.2  # of one start; the next one goes on
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


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
    try:
        stamp.touch()
        os.utime(stamp, (checked, checked))
    except OSError:  # a folder that others own: looked at again next time
        pass
    return removed


def _is_whole(entry: bytes) -> bool:
    """Whether compressed data reach their end. What cannot be read here is not for this process to judge."""
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

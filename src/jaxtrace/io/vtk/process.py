"""Formats that VTK's own readers read, in a process of their own: a crash of VTK is one clear error.

The process is started once and reused. Each request has limits on memory and time, by the size of the file.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..files import DatasetError, named_errors
from .data import CENTRINGS, POLYGONAL, VtkData, checked_cells, checked_extent, stack_cells

FORMATS = {
    ".vtk": "legacy",
    ".case": "EnSight",
    ".encas": "EnSight",
    ".foam": "OpenFOAM",
    ".ex2": "Exodus",
    ".exo": "Exodus",
    ".e": "Exodus",
    ".cgns": "CGNS",
}
"""Format by suffix."""
SECONDS = 20.0
"""Time limit of a small file; large ones get a second more for each 10 MB."""
MEMORY = 1 << 30
"""Memory limit of a small file; large ones get twenty times their size more."""

_POISONED = {"MALLOC_PERTURB_": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
"""Has Linux fill fresh memory with one byte, by which values show that VTK never read."""
SCRIPT = Path(__file__).with_name("child.py")
_NUMBERS = re.compile(rb"\s*([-+.]?\d|[-+]?(nan|inf))")
"""How a line of numbers begins in a legacy file."""


class VtkProcess:
    """The process with VTK in it, started when it is first needed and again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, path: Path, **request: Any) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
        """The facts and arrays of a file; `DatasetError` where VTK refuses it, dies of it, or does not end."""
        size = _size(path)
        request = {
            "path": str(path),
            "reader": FORMATS[path.suffix.lower()],
            "memory": MEMORY + 20 * size,
            "seconds": int(SECONDS / 2 + size / 1e7),  # of a processor
            **request,
        }
        with self._lock:
            process = self._running_process()
            expired = threading.Event()
            limit = SECONDS + size / 1e7

            def stop() -> None:
                expired.set()
                process.kill()

            timer = threading.Timer(limit, stop)
            timer.start()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                header, parts = self._answer(process)
            except (EOFError, OSError, ValueError) as error:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)  # a process that crashes takes its time
                code = self.close()
                if expired.is_set():
                    why = f"VTK did not end within {limit:.0f} seconds"
                elif code == -getattr(signal, "SIGXCPU", 0):
                    why = "VTK used too much time"
                elif code < 0:
                    why = f"VTK crashed ({signal.Signals(-code).name})"
                else:
                    why = f"VTK's process ended with status {code}; is the package vtk whole?"
                raise DatasetError(f"{path}: {why}. The file is damaged or too large.") from error
            except BaseException:  # Ctrl-C, with half an answer read
                self.close()
                raise
            finally:
                timer.cancel()
        if "error" in header:
            raise DatasetError(
                f"{path}: VTK cannot use the file: {header['error'].rstrip('.')}. Is it damaged or cut off?"
            )
        return header, parts

    def close(self) -> int:
        """End the process; its exit status."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        process.kill()  # nothing happens where it has ended by itself
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is lost with it
                pipe.close() if pipe is not None else None
        return code

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            if importlib.util.find_spec("vtkmodules") is None:
                raise ImportError('VTK files need the package vtk: pip install "jaxworlds[trace]".')
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_POISONED},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
            self._owner = os.getpid()
            assert self._process.stdout is not None
            self._process.stdout.readline()  # it is ready, or it has ended
        return self._process

    @staticmethod
    def _answer(process: subprocess.Popen[bytes]) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        header = json.loads(line)
        parts = []
        for facts in header.get("parts", []):
            arrays = {}
            for name, kind, shape in facts["arrays"]:
                values = np.empty(shape, np.dtype(kind))
                if values.nbytes and process.stdout.readinto(values.data.cast("B")) != values.nbytes:  # pyright: ignore
                    raise EOFError
                arrays[name] = values
            parts.append(arrays)
        return header, parts


_VTK = VtkProcess()


def time_steps(path: Path) -> list[float]:
    """The times of the steps that a file declares; none where it holds one."""
    return _VTK.ask(path, only_times=True)[0]["times"]


def read_with_vtk(path: Path, wanted: frozenset[str] | None = None, step: int | None = None) -> list[VtkData]:
    """The data sets in a file, at one of its time steps."""
    header, parts = _VTK.ask(path, wanted=None if wanted is None else sorted(wanted), step=step)
    kinds = (ValueError, OverflowError)
    with named_errors(f"{path}: the file cannot be used", kinds, " It is damaged or cut off."):
        found = [_data(facts, arrays) for facts, arrays in zip(header["parts"], parts, strict=True)]
    if not found:
        raise DatasetError(f"{path}: the file holds no grid or mesh.")
    if path.suffix.lower() == ".vtk" and wanted is None:
        _check_text(path, parts[0])
    return found


def _check_text(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Refuse a legacy file in text with fewer numbers than it declares: VTK makes up the others."""
    with open(path, "rb") as file:
        head = [file.readline() for _ in range(3)]
        if head[2].strip().upper() != b"ASCII":
            return
        numbers, line = 0, b""
        for line in file:
            if _NUMBERS.match(line):
                numbers += len(line.split())
    bounded = re.search(rb"Version\s+(\d+)", head[0])
    fewer = 0 if bounded and int(bounded[1]) >= 5 else sum(name.startswith("offsets") for name in arrays)
    needed = sum(values.size for values in arrays.values()) - fewer
    if numbers < needed:
        raise DatasetError(
            f"{path}: the file declares {needed:,} numbers and holds {numbers:,}. It is damaged or cut off."
        )
    if line[-1:].strip():
        warnings.warn(
            f"{path}: the text does not end with a line end; if it was cut off there, its last number is wrong.",
            UserWarning,
            stacklevel=2,
        )


def _data(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> VtkData:
    """One data set, checked."""
    made: dict[str, Any] = {
        name: tuple(facts[name]) for name in ("origin", "spacing", "direction") if name in facts
    }
    if "extent" in facts:
        made["extent"] = checked_extent(list(facts["extent"]), "the extent")
    if facts["kind"] == "RectilinearGrid":
        made["axes"] = tuple(arrays[f"axis/{name}"] for name in "XYZ")
    if "points" in arrays:
        made["points"] = arrays["points"]
    cells = []
    for kind in (0, *POLYGONAL.values()):
        if f"offsets/{kind}" in arrays:
            offsets, corners = arrays[f"offsets/{kind}"], arrays[f"corners/{kind}"]
            types = np.full(len(offsets) - 1, kind) if kind else arrays["types"]
            cells.append(checked_cells(types, offsets, corners, "cells"))
    values, fields = {}, {}
    for name, array in arrays.items():
        place, _, own = name.partition("/")
        if place in CENTRINGS:
            values[place, own] = array
        elif place == "field":
            fields[own] = array
    unread = {(centring, name): (width, why) for centring, name, width, why in facts["unread"]}
    return VtkData(facts["kind"], values, fields, **made, **stack_cells(cells), unread=unread)


def _size(path: Path) -> int:
    """Bytes of a file and of those beside it that it may name."""
    if path.suffix.lower() in (".vtk", ".ex2", ".exo", ".e", ".cgns"):
        return os.path.getsize(path)
    return sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())

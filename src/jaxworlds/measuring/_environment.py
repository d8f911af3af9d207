"""The environment of a measurement: machine, versions, commit."""

import datetime
import hashlib
import os
import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from ..runtime import cores, cpu_name


def environment() -> dict[str, Any]:
    """Where a figure was measured: devices, CPU, versions, commit, date and load. Starts the backend.

    The host's name is given as a hash: enough to tell two machines apart, and nothing more.
    """
    import equinox
    import numpy

    devices = jax.devices()
    return {
        "backend": jax.default_backend(),
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "cpu_model": cpu_name(),
        "cores": cores(),
        "platform": platform.platform(),
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": numpy.__version__,
        "equinox": equinox.__version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def baseline_key() -> str:
    """The machine and version that a baseline belongs to: host fingerprint, versions of jax and jaxlib, devices.

    The fingerprint is of the CPU model, the cores and the architecture, not of the host's name: containers
    get a new name each time, and would never meet their own baseline.
    """
    hardware = f"{cpu_name()}|{cores()}|{platform.machine()}|{platform.system()}"
    fingerprint = hashlib.sha256(hardware.encode()).hexdigest()[:12]
    devices = jax.devices()
    kind = f"{jax.default_backend()}-{devices[0].device_kind}-x{len(devices)}"
    return f"{fingerprint}/jax-{jax.__version__}/jaxlib-{metadata.version('jaxlib')}/{kind}"


def commit() -> str | None:
    """Commit of the checkout this package runs from, `-dirty` if tracked files changed; None if installed."""
    package = Path(__file__).resolve().parents[1]
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed package may lie inside a stranger's repository (a `.venv` there): its commit says nothing
    # about us.
    if top is None or Path(top).resolve() / "src" / package.name != package:
        return None
    return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a read-only git command; None without git, outside a repository, or after 5 seconds."""
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # never write to the repository, not even its index
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, env=quiet, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None

"""Join a run of several processes: meet the others, start JAX between them, and leave at the end."""

import atexit
import glob
import hashlib
import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

from ._hub import Hub
from ._lifeline import Card, Lifeline, hold_aborts
from ._member import Member
from ._wire import own_address, split_address, with_port
from .launchers import Place, own_devices

# What decides over a program and its numbers. A package that is not there is the same on all hosts, or not.
_PACKAGES = ("jaxworlds", "jax", "jaxlib", "numpy", "equinox", "optax")

_lifeline: Lifeline | None = None


def lifeline() -> Lifeline | None:
    """The connection with the other processes of this run; None where there are none."""
    return _lifeline


def join(
    coordinator: str,
    processes: int,
    process: int,
    place: Place | None,
    *,
    facts: dict[str, str],
    patience_s: int,
    silence_s: int,
) -> None:
    """Meet the other processes, then start JAX's own service between them."""
    global _lifeline
    card = Card(process, processes, {**facts, **machine_facts()})
    line: Lifeline = (Hub if process == 0 else Member)(card, coordinator, silence_s)
    try:
        port = line.meet(patience_s)
    except BaseException:
        line.close()
        raise
    name = split_address(coordinator)[0]
    alone = own_address(name)
    where = name if alone is None else alone
    where = with_port(where, port)
    bind = with_port(line.address, port) if isinstance(line, Hub) else None
    if alone is None and os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"):
        bind = None  # JAX reads it itself
    jax = importlib.import_module("jax")
    # It would take SIGTERM for itself and tell nobody, so that a process could only be killed.
    jax.config.update("jax_enable_preemption_service", False)
    hold_aborts()
    _lifeline = line
    atexit.register(_part)
    sys.excepthook = _on_error
    jax.distributed.initialize(
        where,
        processes,
        process,
        # Without this JAX takes one GPU for each process where SLURM or Open MPI started it.
        cluster_detection_method="deactivate",
        local_device_ids=None if place is None else own_devices(place),
        initialization_timeout=patience_s,
        heartbeat_timeout_seconds=max(100, 2 * silence_s),  # the lifeline knows sooner, and says more
        coordinator_bind_address=bind,
    )


def _on_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Handle an uncaught error. The lifeline explains one that follows from the loss of another process."""
    assert _lifeline is not None
    _lifeline.await_judgement(f"{kind.__name__}: {error}")
    sys.__excepthook__(kind, error, trace)


def _part() -> None:
    """At the end of the process: fail if it fails, else wait for the others."""
    assert _lifeline is not None
    error = getattr(sys, "last_value", None)
    if error is not None:
        _lifeline.fail(f"{type(error).__name__}: {error}", 1)
    _lifeline.leave()
    importlib.import_module("jax").distributed.shutdown()


def machine_facts() -> dict[str, str]:
    """Facts that must be equal on all hosts."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "nothing"
    config: Any = importlib.import_module("jax").config
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **versions,
        "the precision": "float64" if config.jax_enable_x64 else "float32",
        "JAX_PLATFORMS": config.jax_platforms or "nothing",
        "the kind of device": "GPU" if glob.glob("/dev/nvidia[0-9]*") else "no GPU",
    }


def code_facts(*packages: str) -> dict[str, str]:
    """A digest of the sources of packages: copies of one version may differ."""
    digest = hashlib.blake2b(digest_size=6)
    for package in packages:
        folder = Path(str(importlib.import_module(package).__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return {f"the code of {' and '.join(packages)}": digest.hexdigest()}


def proxies_left_out(coordinator: str) -> None:
    """Exclude process 0 from proxies."""
    name = split_address(coordinator)[0]
    for variable in ("no_proxy", "NO_PROXY"):
        os.environ[variable] = ",".join(filter(None, (os.environ.get(variable), name)))

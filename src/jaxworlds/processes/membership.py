"""Join a run of several processes: meet the others, start JAX between them, and leave at the end."""

import atexit
import contextlib
import glob
import hashlib
import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

from ..runtime import RuntimeConflictError, backend_started
from ._hub import Hub
from ._lifeline import Card, Lifeline, hold_aborts
from ._member import Member
from ._wire import split_address, with_port
from .launchers import Place, find_place, own_devices

# What decides over a program and its numbers. A package that is not there is the same on all hosts, or not.
_PACKAGES = ("jaxworlds", "jax", "jaxlib", "numpy", "equinox", "optax")

_lifeline: Lifeline | None = None


def lifeline() -> Lifeline | None:
    """The connection with the other processes of this run; None where there are none."""
    return _lifeline


def start_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout_s: int = 120,
    silence_s: int = 60,
    same: dict[str, str] | None = None,
) -> None:
    """Join this process to the others of the same run, on one host or several; call it before any JAX operation.

    Under SLURM, Open MPI or a cloud TPU all three arguments may be left out. Elsewhere give every process the same
    `coordinator` ("host:port", reachable from all), the number of `processes` and its own `process` number from 0.
    Afterwards `jax.devices()` lists the devices of all processes. Calling it again is harmless. Where other machines can reach
    the coordinator, the environment variable `JAXWORLDS_TOKEN` must hold the same secret in all processes.

    - `timeout_s`: how long the processes wait for each other; then each raises a `ConnectionError` that says who is missing.
    - `silence_s`: after so long without a sign of life from another process (it is frozen, or its machine is gone) it counts
      as lost. The end of a process is noticed at once. The others then end too, with exit code 75 and a sentence, since JAX
      cannot go on without one.
    - `same`: names and values that must be equal in all processes, beside the versions of packages; a `ValueError` otherwise.
    """
    jax = importlib.import_module("jax")
    if jax.distributed.is_initialized():
        if coordinator is None and processes is None and process is None:
            return
        running = (jax.process_count(), jax.process_index())
        if processes not in (None, running[0]) or process not in (None, running[1]):
            raise RuntimeConflictError(
                f"`processes={processes}, process={process}` differs from what already runs: processes={running[0]}, "
                f"process={running[1]}. Start a new Python process to join another run."
            )
        return
    place = find_place()
    if place is not None:
        if processes not in (None, place.processes):
            raise ValueError(
                f"`processes` (`--hosts`) must be the {place.processes} that {place.launcher} started; got {processes}."
            )
        coordinator = coordinator or place.coordinator
        if coordinator is None:
            raise ValueError(
                f"`coordinator` must be given, as name:port of the first process: {place.launcher} does not tell where it runs."
            )
        processes = processes or place.processes
        process = place.process if process is None else process
    if (coordinator, processes, process).count(None) in (1, 2):
        raise ValueError(
            "`coordinator`, `processes` and `process` must be given together, or all left out for automatic "
            f"detection; got coordinator={coordinator!r}, processes={processes}, process={process}."
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ValueError(f"`process` must be in 0..{processes - 1}; got {process}. Count processes from 0.")
    for name, value in (("timeout_s", timeout_s), ("silence_s", silence_s)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1; got {value}.")
    if backend_started():
        raise RuntimeConflictError(
            "`start_processes` must come before the first JAX operation, but JAX has already started its backend. "
            "Move the call to the top of the program."
        )
    if coordinator is None or processes is None or process is None:
        try:  # JAX detects the cluster (TPU pods, Kubernetes) where neither arguments nor a known launcher tell
            jax.distributed.initialize(initialization_timeout=timeout_s)
        except (ValueError, RuntimeError) as error:
            raise RuntimeError(
                f"the processes could not be joined: {error}\nGive every process `coordinator='host:port'`, "
                "`processes=N` and `process=0..N-1`, and check that the port of process 0 is reachable from all hosts."
            ) from error
        return
    join(coordinator, processes, process, place, facts=same or {}, patience_s=timeout_s, silence_s=silence_s)


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
    bind = with_port(line.address, port) if isinstance(line, Hub) else None
    if line.loopback is None and os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"):
        bind = None  # JAX reads it itself
    jax = importlib.import_module("jax")
    # It would take SIGTERM for itself and tell nobody, so that a process could only be killed.
    jax.config.update("jax_enable_preemption_service", False)
    hold_aborts()
    _lifeline = line
    atexit.register(_part)
    sys.excepthook = _on_error
    jax.distributed.initialize(
        with_port(line.loopback or line.name_of_first, port),
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
    versions = dict.fromkeys(_PACKAGES, "nothing")
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
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

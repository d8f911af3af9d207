"""`start_processes`: join this process to the others of the same run."""

import importlib

from ..runtime import RuntimeConflictError, backend_started
from .launchers import find_place
from .membership import join


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
    given = (coordinator, processes, process)
    if any(value is None for value in given) and any(value is not None for value in given):
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
        _start_by_jax(timeout_s)
        return
    join(coordinator, processes, process, place, facts=same or {}, patience_s=timeout_s, silence_s=silence_s)


def _start_by_jax(timeout_s: int) -> None:
    """Let JAX detect the cluster (TPU pods, Kubernetes) when neither arguments nor a known launcher tell."""
    try:
        importlib.import_module("jax").distributed.initialize(initialization_timeout=timeout_s)
    except (ValueError, RuntimeError) as error:
        raise RuntimeError(
            f"the processes could not be joined: {error}\nGive every process `coordinator='host:port'`, "
            "`processes=N` and `process=0..N-1`, and check that the port of process 0 is reachable from all hosts."
        ) from error

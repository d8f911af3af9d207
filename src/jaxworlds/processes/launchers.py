"""The place of this process among several, from the environment of SLURM or Open MPI."""

import dataclasses
import os
import re
from collections.abc import Mapping

# Above the range from which Linux takes ports by itself (32768 to 60999).
_FIRST_PORT, _PORTS = 61440, 4096


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of this process in a run, and on its node."""

    launcher: str
    coordinator: str | None
    processes: int
    process: int
    local: int
    """Number of this process among those on its node."""
    beside: int
    """How many there are on its node."""


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place of this process by its launcher; None without a known launcher."""
    return _slurm(environment) or _open_mpi(environment)


def _slurm(e: Mapping[str, str]) -> Place | None:
    needed = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
    if any(name not in e for name in needed):
        return None
    # Steps of one job may run at the same time, so that the job's number alone is not enough.
    step = int(e.get("SLURM_STEP_ID", "0")) % _PORTS
    port = _FIRST_PORT + (int(e["SLURM_JOB_ID"]) + 509 * step) % _PORTS
    counts = tasks_per_node(e.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    node = int(e.get("SLURM_NODEID", "0"))
    return Place(
        launcher="SLURM",
        coordinator=f"{first_node(e['SLURM_STEP_NODELIST'])}:{port}",
        processes=int(e.get("SLURM_STEP_NUM_TASKS", e["SLURM_NTASKS"])),
        process=int(e["SLURM_PROCID"]),
        local=int(e["SLURM_LOCALID"]),
        beside=counts[node] if node < len(counts) else 1,
    )


def _open_mpi(e: Mapping[str, str]) -> Place | None:
    numbers = [e.get(f"OMPI_COMM_WORLD_{name}") for name in ("SIZE", "RANK", "LOCAL_RANK", "LOCAL_SIZE")]
    if any(number is None for number in numbers):
        return None
    size, rank, local, beside = (int(number or 0) for number in numbers)
    # Such as "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911": where `mpirun` runs. Open MPI 5 does not tell it.
    found = re.match(r"(\d+)\.\d+;tcp://([^,:;]+)", e.get("OMPI_MCA_orte_hnp_uri", ""))
    coordinator = None
    if found is not None:
        # The upper half of this number counts jobs, the lower half is zero.
        coordinator = f"{found[2]}:{_FIRST_PORT + (int(found[1]) >> 16) % _PORTS}"
    return Place("Open MPI", coordinator, size, rank, local, beside)


def first_node(nodes: str) -> str:
    """The first of a list of nodes as SLURM writes it: `gpu[003-005,009]-ib,login` is gpu003-ib."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0]) if first else nodes


def tasks_per_node(text: str) -> list[int]:
    """How many tasks each node has, as SLURM writes it: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def own_devices(place: Place, environment: Mapping[str, str] = os.environ) -> list[int] | None:
    """Numbers of the GPUs that this process takes of those that it sees; None for all.

    A launcher either gives every process GPUs of its own or shows all processes of a node the same ones, which they share.
    """
    if place.beside == 1:
        return None
    if "CUDA_VISIBLE_DEVICES" not in environment:
        return [place.local]
    seen = len([name for name in environment["CUDA_VISIBLE_DEVICES"].split(",") if name])
    if seen < int(environment.get("SLURM_GPUS_ON_NODE", "0")):
        return None
    share = seen // place.beside
    return list(range(place.local * share, (place.local + 1) * share)) or None

"""Who a process is, as launchers tell it. The variables of SLURM are those of 22.05 on two nodes with four GPUs each."""

from typing import Any

import pytest

from jaxworlds.processes.launchers import find_place, first_node, own_devices, tasks_per_node

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "3,1",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "2",
    "SLURM_GPUS_ON_NODE": "4",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}
MPI = {f"OMPI_COMM_WORLD_{name}": "4" for name in ("SIZE", "LOCAL_SIZE")} | {
    f"OMPI_COMM_WORLD_{name}": "3" for name in ("RANK", "LOCAL_RANK")
}


def test_a_step_of_slurm_tells_everything() -> None:
    place = find_place(STEP)
    assert place is not None
    assert (place.launcher, place.coordinator, place.processes, place.process) == (
        "SLURM",
        "node1:61447",
        4,
        2,
    )
    assert (place.local, place.beside) == (2, 3)
    last = find_place({**STEP, "SLURM_NODEID": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "0"})
    assert last is not None
    assert (last.process, last.local, last.beside) == (3, 0, 1)
    second = find_place({**STEP, "SLURM_STEP_ID": "1"})
    assert second is not None
    assert second.coordinator not in (None, place.coordinator), "two steps of a job may run at once"
    far = find_place({**STEP, "SLURM_JOB_ID": str(2**31), "SLURM_STEP_ID": "4294967293"})
    assert far is not None
    assert 61440 <= int(str(far.coordinator).split(":")[1]) < 65536


def test_the_script_of_a_job_is_no_step() -> None:
    assert find_place({name: value for name, value in STEP.items() if "STEP" not in name}) is None
    assert find_place({}) is None


def test_open_mpi_tells_everything_before_its_fifth_version() -> None:
    place = find_place({**MPI, "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"})
    assert place is not None
    assert (place.coordinator, place.processes, place.process) == (
        f"10.96.0.1:{61440 + (1531576320 >> 16) % 4096}",
        4,
        3,
    )
    fifth = find_place(MPI)
    assert fifth is not None
    assert fifth.coordinator is None
    assert fifth.process == 3


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("node[001-015],host2", "node001"),
        ("node[001,007-015],host2", "node001"),
        ("gpu[003-005,009]-ib,login", "gpu003-ib"),
        ("rack[1-2]n[4-8]", "rack1n4"),
        ("a-b.c[7]", "a-b.c7"),
    ],
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


def test_tasks_of_each_node() -> None:
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert tasks_per_node("1") == [1]


@pytest.mark.parametrize(
    ("changed", "own"),
    [
        # One process on a node has all that it sees, where JAX by itself would take one.
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}, None),
        # Processes that see the same GPUs share them ...
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_LOCALID": "1"}, [2, 3]),
        ({"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_LOCALID": "3"}, [3]),
        # ... those that were given GPUs of their own (`--gpus-per-task=2`) have them all.
        (
            {
                "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
                "SLURM_LOCALID": "1",
                "CUDA_VISIBLE_DEVICES": "2,3",
            },
            None,
        ),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": None}, [1]),
    ],
)
def test_the_gpus_of_a_process(changed: dict[str, Any], own: list[int] | None) -> None:
    step = {name: value for name, value in {**STEP, **changed}.items() if value is not None}
    place = find_place(step)
    assert place is not None
    assert own_devices(place, step) == own

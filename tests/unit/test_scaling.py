"""One run over several processes and devices: all three systems give what one device gives."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CHILD = Path(__file__).with_name("scaling_child.py")
pytestmark = [
    pytest.mark.own_process,
    pytest.mark.skipif("len(jax.devices()) > 1", reason="starts processes with devices of their own"),
]


def ran(folder: Path, devices: int, hosts: int) -> dict[str, np.ndarray]:
    """What `hosts` processes found together on `devices` devices."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    folder.mkdir()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    commands = [
        [sys.executable, str(CHILD), str(folder), str(devices), str(hosts), str(host), str(port)]
        for host in range(hosts)
    ]
    children = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        errors = [child.communicate(timeout=240)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0] * hosts, errors[0][-3000:]
    with np.load(folder / "found.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return ran(tmp_path_factory.mktemp("scaling") / "alone", 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "devices"), [(2, 8), (4, 4), (1, 8)])
def test_processes_and_devices_change_no_result(
    hosts: int, devices: int, alone: dict[str, np.ndarray], tmp_path: Path
) -> None:
    together = ran(tmp_path / "together", devices, hosts)
    assert together.keys() == alone.keys()
    assert alone["arc episodes"].sum() > 0
    assert np.ptp(alone["trace positions"]) > 0
    for name, value in alone.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(together[name], value, err_msg=name)

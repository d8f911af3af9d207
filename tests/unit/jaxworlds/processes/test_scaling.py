"""One run over several processes and devices: all three systems give what one device gives."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxarc.cli import main

CHILD = Path(__file__).with_name("scaling_child.py")
pytestmark = [
    pytest.mark.own_process,
    pytest.mark.skipif(jax.device_count() > 1, reason="starts processes with devices of their own"),
]


def ran(folder: Path, devices: int, hosts: int, training: bool) -> dict[str, np.ndarray]:
    """What `hosts` processes found together on `devices` devices, with or without training a policy."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    folder.mkdir()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    commands = [
        [sys.executable, str(CHILD), str(folder), *map(str, (devices, hosts, host, port, int(training)))]
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


def assert_same_on(hosts: int, devices: int, training: bool, folder: Path) -> None:
    alone, together = (
        ran(folder / "alone", 0, 1, training),
        ran(folder / "together", devices, hosts, training),
    )
    assert together.keys() == alone.keys()
    assert alone["arc episodes"].sum() > 0
    assert np.ptp(alone["trace positions"]) > 0
    assert any("weights" in name for name in alone) == training
    for name, value in alone.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(together[name], value, err_msg=name)


def test_two_processes_of_four_devices_change_no_result(tmp_path: Path) -> None:
    assert_same_on(2, 8, False, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "devices"), [(2, 8), (4, 4), (1, 8)])
def test_processes_and_devices_change_no_result(hosts: int, devices: int, tmp_path: Path) -> None:
    assert_same_on(hosts, devices, True, tmp_path)


def said(*arguments: str) -> dict[str, Any]:
    """What a command tells scripts, in a process of its own."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-m", f"{arguments[0]}.cli", *arguments[1:], "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_commands_of_the_page_say_the_same_on_one_device() -> None:
    page = Path(__file__).parents[4] / "docs" / "scaling.md"
    block = re.search(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        words = shlex.split(line)
        assert words[-2:] == ["--devices", "2"]
        several, one = said(*words), said(*words[:-2])
        same = {"steps", "episodes", "solved"} if words[0] == "jaxarc" else {"particles", "times"}
        assert same <= one.keys()
        assert {name: several[name] for name in same} == {name: one[name] for name in same}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "0"], "`--devices` must be at least 1; got 0"),
        (["--devices", "3", "--hosts", "2"], "must be a multiple of the 2 hosts"),
        (["--host", "1"], "go with `--hosts`"),
    ],
)
def test_wrong_numbers_end_with_a_sentence(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rollout", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err

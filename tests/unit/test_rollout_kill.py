"""SIGKILL at a random moment, twenty times: what is on disk always leads to the bits of the uninterrupted run."""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax  # noqa: F401 - named in the skip condition
import jax.random as jr
import numpy as np
import pytest

from jaxworlds.runtime import settings

CHILD = Path(__file__).with_name("rollout_child.py")
KILLS = 20 if os.environ.get("JAXWORLDS_TEST_THOROUGH", "0") not in ("", "0") else 5


def _child_module():
    spec = importlib.util.spec_from_file_location("rollout_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a run and return as soon as its first file is there: before it has compiled, let alone stepped."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(settings().cache_dir)}
    child = subprocess.Popen([sys.executable, str(CHILD), str(folder)], env=environment)
    deadline = time.monotonic() + 120
    while not list(folder.glob("step-*.jwstate")):
        assert child.poll() is None, "the child must not end before it has begun"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return child


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.skipif("len(jax.devices()) > 1", reason="killed once, on one device")
def test_sigkill_at_a_random_moment_never_costs_the_bits(tmp_path: Path) -> None:
    module = _child_module()
    expected = module.whole(None)
    with _start(tmp_path / "unbroken") as unbroken:
        started = time.monotonic()
        assert unbroken.wait(timeout=120) == 0
        lasts = time.monotonic() - started
    dice = random.Random(20)
    broken_off, steps = 0, set()
    for kill in range(KILLS):
        folder = tmp_path / f"kill-{kill}"
        with _start(folder) as child:
            time.sleep(dice.uniform(0, lasts))
            child.send_signal(signal.SIGKILL)
            broken_off += child.wait(timeout=60) == -signal.SIGKILL
        steps.add(max(folder.glob("step-*")).stem)
        result = module.rest(folder)
        assert result.finished
        assert np.array_equal(np.asarray(result.carry[0]), np.asarray(expected.carry[0]))
        assert np.array_equal(jr.key_data(result.carry[1]), jr.key_data(expected.carry[1]))
        assert np.array_equal(result.records, expected.records)
        assert not list(folder.glob("*.tmp")), "what a killed write left behind is swept away"
    assert broken_off >= KILLS // 2, "most children must die in the middle, or nothing was tried"
    assert len(steps) > KILLS // 4, "the moments must differ"

"""SIGKILL at a random moment, twenty times: what is on disk always leads to the bits of the uninterrupted run.

The moments are counted in what the run has saved, never in seconds: how quick the machine is decides nothing.
"""

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


def _saved(folder: Path) -> int:
    """The last step on disk; -1 before there is one."""
    return max((int(file.stem.removeprefix("step-")) for file in folder.glob("step-*.jwstate")), default=-1)


def _kill(folder: Path, step: int, dice: random.Random) -> bool:
    """Start a run and kill it once `step` is saved, somewhere in the work of the next chunk; did it die of that?"""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(settings().cache_dir)}
    with subprocess.Popen([sys.executable, str(CHILD), str(folder)], env=environment) as child:
        deadline = time.monotonic() + 120
        while _saved(folder) < step:
            assert child.poll() is None, "the child must not end before it has begun"
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        time.sleep(dice.uniform(0, 0.005))
        child.send_signal(signal.SIGKILL)
        return child.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.skipif("len(jax.devices()) > 1", reason="killed once, on one device")
def test_sigkill_at_a_random_moment_never_costs_the_bits(tmp_path: Path) -> None:
    module = _child_module()
    expected = module.whole(None)
    dice = random.Random(20)
    broken_off, steps = 0, set()
    for attempt in range(3 * KILLS):
        folder = tmp_path / f"kill-{attempt}"
        # The last tenth is left out: a run that has ended before the signal comes is no trial.
        broken_off += _kill(folder, dice.randrange(0, int(0.9 * module.LENGTH)), dice)
        steps.add(_saved(folder))
        result = module.rest(folder)
        assert result.finished
        assert np.array_equal(np.asarray(result.carry[0]), np.asarray(expected.carry[0]))
        assert np.array_equal(jr.key_data(result.carry[1]), jr.key_data(expected.carry[1]))
        assert np.array_equal(result.records, expected.records)
        assert not list(folder.glob("*.tmp")), "what a killed write left behind is swept away"
        if broken_off == KILLS:
            break
    assert broken_off == KILLS, "children must die in the middle, or nothing was tried"
    assert len(steps) > KILLS // 4, "the moments must differ"

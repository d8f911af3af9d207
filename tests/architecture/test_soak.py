"""Long runs in short: after a warm-up nothing is compiled and no array stays behind. `make soak` runs them at full length."""

import importlib.util
import mmap
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CALLS = 8  # each is looked at, which takes a collection of all objects
pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("soak", BENCHMARKS / "soak.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["soak"] = module  # dataclasses look for their module there
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.mark.parametrize("name", ["arc", "tracker", "surrogate", "policy", "asking"])
def test_rounds_compile_nothing_and_leave_no_array(soak: ModuleType, name: str) -> None:
    (part,) = (part for part in soak.PARTS if part.name == name)
    found = soak.soak(part, 4 * part.units)
    assert found.compiles == 0, found.report
    assert len(set(found.looks[:, soak.ARRAYS].tolist())) == 1, found.looks
    assert found.looks[-1, 0] == 4 * part.units


def part_of(soak: ModuleType, work: object) -> object:
    return soak.Part("made up", "calls", 1, CALLS, lambda: work)


def test_a_round_that_leaves_nothing_is_flat(soak: ModuleType) -> None:
    double = jax.jit(lambda x: 2 * x)
    found = soak.soak(part_of(soak, lambda: double(np.float32(1)).block_until_ready()), CALLS)
    assert found.growing() == []
    assert found.figures()["run"]["flat"] == "yes"
    assert found.figures()["live arrays"]["growth in the second half"] == pytest.approx(0, abs=1e-9)


def test_what_grows_is_named(soak: ModuleType) -> None:
    kept: list[object] = []

    def keep_arrays() -> None:
        kept.append(jax.device_put(np.zeros(2, np.float32)))

    def keep_objects() -> None:
        kept.append([[number] for number in range(100)])

    def keep_bytes() -> None:
        pages = mmap.mmap(-1, 2**24)  # an array might take memory that the process holds already
        pages.write(bytes(2**24))
        kept.append(pages)

    def compile_again() -> None:
        jax.jit(lambda x: x + len(kept))(jnp.float32(1))

    for work, word in (
        (keep_arrays, "live arrays grew from"),
        (keep_objects, "Python objects grew from"),
        (keep_bytes, "resident memory grew by"),
        (compile_again, "programs were compiled after the warm-up"),
    ):
        grown = soak.soak(part_of(soak, work), CALLS).growing()
        assert any(word in line for line in grown), (work.__name__, grown)
        kept.clear()

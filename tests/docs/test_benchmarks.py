"""The benchmarks stay runnable and compare like with like; the README's figures are those of the committed results."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("bench_core", BENCHMARKS / "bench_core.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_way_of_driving_does_the_same_work(bench: ModuleType) -> None:
    ways = bench._drivers(bench.grids(4), 200)
    by_hand = np.asarray(ways["hand-written scan"]())
    for name in ("the same again", "run", "run, watched between chunks"):
        assert np.array_equal(ways[name](), by_hand), name
    assert np.array_equal(ways["run, records every 100"]()[-1], by_hand[0])


def test_every_way_of_tapping_does_the_same_work(bench: ModuleType) -> None:
    ways = bench._tapped(bench.grids(4), 200)
    results = {name: np.asarray(way()) for name, way in ways.items()}
    assert all(np.array_equal(found, results["no tap in the code"]) for found in results.values())


def test_a_benchmark_runs_and_leaves_its_environment(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "bench_core.py"),
        "--quick",
        "--only",
        "import",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("*.json")
    result = json.loads(file.read_text())
    assert result["environment"]["jax"]
    assert result["results"]["import"]["figures"]["import jax"]["median_s"] > 0


def test_the_readme_shows_the_committed_figures() -> None:
    command = [sys.executable, str(BENCHMARKS / "write_figures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

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


def test_the_benchmark_of_structure_learners_starts() -> None:
    """A run of its parts compiles for minutes; its modules and options are what can break unseen."""
    command = [sys.executable, str(BENCHMARKS / "bench_acbo_inference.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "--setup-peers" in done.stdout


def test_a_peer_that_was_broken_off_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(
        "acbo_peer_worker", BENCHMARKS / "acbo_peers" / "peer_worker.py"
    )
    assert spec is not None
    assert spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    cases, answers = tmp_path / "cases.npz", tmp_path / "answers.json"
    np.savez(cases, values=np.arange(24.0).reshape(3, 4, 2))
    asked = []

    def learn(rows: np.ndarray, seed: int, factor: float) -> dict[str, list[float]]:
        asked.append(seed)
        return {"edges": (factor * rows[0]).tolist()}

    for count in (2, 3):
        options = json.dumps({"cases": count, "factor": 2.0})
        monkeypatch.setattr(sys, "argv", ["peer", str(cases), str(answers), options])
        worker.serve(learn, lambda: {"peer": "1"})
    found = json.loads(answers.read_text())
    assert asked == [0, 1, 2]
    assert [answer["edges"] for answer in found["answers"]] == [[0.0, 2.0], [16.0, 18.0], [32.0, 34.0]]
    assert all(answer["wall_s"] >= 0 and answer["cpu_s"] >= 0 for answer in found["answers"])


def test_the_readme_shows_the_committed_figures() -> None:
    command = [sys.executable, str(BENCHMARKS / "write_figures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

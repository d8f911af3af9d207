"""Kernels of the wheel beside those that `-march=native` gives here: how much does a library for everybody cost?

    python benchmarks/bench_kernels_prebuilt.py            # needs the oldest jax that we support
    python benchmarks/bench_kernels_prebuilt.py --quick    # does it run?

One process for each library, with a copy of the sources beside it. Each compiles its jobs first; then all run each job once a
round, in an order drawn anew for each round. The ratio is that of CPU seconds to those of the library compiled here, in the
same round: above 1 is slower. The library for AVX2
stands beside one compiled here without AVX-512. Results go to results/<device>/kernels-prebuilt.json.
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import harness
from compare_versions import ROOT, Version

sys.path.insert(0, str(ROOT))

from hatch_build import build_libraries

from jaxworlds.kernels.prebuilt import cpu_levels

NATIVE, AVX2 = "compiled here", "compiled here without AVX-512"
PEERS = {AVX2: AVX2, "prebuilt for x86-64-v3": AVX2}
JOBS = (
    "jaxarc, 30×30, packed observation, B=1,024",
    "jaxtrace, regular grid, 100,000 particles",
    "jaxtrace, tetrahedra, 100,000 particles",
    "jaxtrace, longitudes and latitudes, 100,000 particles",
)


def copy_sources(folder: Path) -> Path:
    """What the jobs need of this tree."""
    for name in ("src", "benchmarks", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("results", "__pycache__"))
    return folder


def trees(folder: Path) -> dict[str, Path]:
    """A copy of the sources without a library, and one with the library of each level that this processor runs."""
    found = {NATIVE: copy_sources(folder / "native"), AVX2: copy_sources(folder / "avx2")}
    for level in cpu_levels():
        found[f"prebuilt for {level}"] = copy_sources(folder / level)
    for place, library in build_libraries(folder):
        level = library.stem.partition("-")[2]
        if (tree := found.get(f"prebuilt for {level}")) is not None:
            (tree / "src" / place).parent.mkdir(exist_ok=True)
            shutil.copy(library, tree / "src" / place)
    return found


def rows(job: str, versions: dict[str, Version], rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU seconds of each library, and the ratio to that compiled here with an interval of the median."""
    order = random.Random(0)
    took: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(rounds):
        for name in order.sample(sorted(versions), len(versions)):
            took[name].append(versions[name].run(job)["cpu_s"])
    found = {}
    for name, seconds in took.items():
        ratios = np.array(seconds) / np.array(took[PEERS.get(name, NATIVE)])
        low, high = np.percentile(
            np.median(np.random.default_rng(0).choice(ratios, (2000, rounds)), 1), (2.5, 97.5)
        )
        found[name] = {
            "CPU_s": float(np.median(seconds)),
            "CPU ratio": float(np.median(ratios)),
            "low": float(low),
            "high": float(high),
            "ratio of the best": min(seconds) / min(took[PEERS.get(name, NATIVE)]),
        }
    return found


def main() -> None:
    options = harness.parse(__doc__.splitlines()[0])
    report = harness.PartsReport("kernels-prebuilt", options)
    jobs, rounds = [job for job in JOBS if options.wants(job)], 3 if options.quick else 25
    with tempfile.TemporaryDirectory() as name:
        versions: dict[str, Version] = {}
        try:
            for library, tree in trees(Path(name).resolve()).items():
                os.environ["CXX"] = "g++ -mno-avx512f" if library == AVX2 else "g++"
                os.environ["JAXWORLDS_CACHE_DIR"] = str(tree / "cache")
                versions[library] = Version(tree, jobs)
            for job in jobs:
                turns = rounds * (6 if "jaxarc" in job else 1)  # one takes 20 ms
                report.add(job, rows(job, versions, turns), f"{turns} rounds in turns; CPU seconds of a job")
        finally:
            for version in versions.values():
                version.close()
    report.finish()


if __name__ == "__main__":
    main()

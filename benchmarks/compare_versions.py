"""The headline jobs on a CPU with two versions of the sources, in turns: is anything slower than before?

    python benchmarks/compare_versions.py --before v0.1.0          # a revision of this repository, beside the files as they are
    python benchmarks/compare_versions.py --before HEAD --only jaxtrace
    python benchmarks/compare_versions.py --before HEAD --rounds 3  # does it run?

Each version has one process, which compiles every job first. Then both run each job once a round, in an order drawn anew for
each round. The ratio is that of the new version's seconds to the old one's in the same round: above 1 is slower. CPU seconds
mind neighbours on a shared machine least. Results go to results/<device>/versions.json.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import harness

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent / "versions"))

from jobs import JOBS  # noqa: E402


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The files of a revision in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "before"
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(folder), revision],
            check=True,
        )
        try:
            yield folder
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=True)


class Version:
    """A process that runs the jobs with the sources of one tree."""

    def __init__(self, tree: Path, jobs: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "versions" / "jobs.py"), *jobs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        origin = Path(self._reply()["from"])
        if not origin.is_relative_to(tree.resolve()):
            raise RuntimeError(f"The jobs ran the sources of {origin}, not those of {tree}.")

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("A version's process has ended; its error is above.")
        return json.loads(line)

    def run(self, job: str) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        return self._reply()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(jobs: list[str], versions: dict[str, Version], rounds: int) -> dict[str, dict[str, Any]]:
    """Median seconds of each job, and the ratios of the rounds with an interval of the median."""
    order = random.Random(0)
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        took: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
        for _ in range(rounds):
            for name in order.sample(sorted(versions), len(versions)):
                took[name].append(versions[name].run(job))
        seconds = {
            (name, clock): np.array([one[clock] for one in found])
            for name, found in took.items()
            for clock in ("cpu_s", "wall_s")
        }
        ratios = seconds["after", "cpu_s"] / seconds["before", "cpu_s"]
        draws = np.random.default_rng(0).choice(ratios, (2000, rounds))
        low, high = np.percentile(np.median(draws, 1), (2.5, 97.5))
        rows[job] = {
            "before, CPU_s": float(np.median(seconds["before", "cpu_s"])),
            "after, CPU_s": float(np.median(seconds["after", "cpu_s"])),
            "CPU ratio": float(np.median(ratios)),
            "low": float(low),
            "high": float(high),
            "ratio of the best": float(seconds["after", "cpu_s"].min() / seconds["before", "cpu_s"].min()),
            "wall ratio": float(np.median(seconds["after", "wall_s"] / seconds["before", "wall_s"])),
        }
        print(job, {name: round(value, 4) for name, value in rows[job].items()}, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, metavar="REVISION", help="the version to compare with")
    parser.add_argument("--only", default="", metavar="TEXT", help="only jobs whose name contains TEXT")
    parser.add_argument("--rounds", type=int, default=31, help="runs of each job with each version")
    parser.add_argument(
        "--out", type=Path, default=harness.RESULTS, metavar="FOLDER", help="folder of the results"
    )
    found = parser.parse_args()
    jobs = [name for name in JOBS if found.only.lower() in name.lower()]
    if not jobs:
        parser.error(f"--only {found.only!r} is in the name of no job; there are: {'; '.join(JOBS)}")
    report = harness.PartsReport("versions", harness.Options(out=found.out))
    revision = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", found.before],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with checkout(revision) as before:
        versions: dict[str, Version] = {}
        try:
            for name, tree in {"before": before, "after": ROOT}.items():
                versions[name] = Version(tree, jobs)
            rows = compare(jobs, versions, found.rounds)
        finally:
            for version in versions.values():
                version.close()
    note = f"before: {revision}; {found.rounds} rounds in turns; interval of the median ratio by bootstrap"
    report.add(f"beside {revision}", rows, note)
    report.finish()


if __name__ == "__main__":
    main()

"""`jaxworlds bench`: run the repository's benchmarks, each in its own process, and show one table with peers."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..text import format_seconds
from ._output import machine_words, print_json, say, show_table

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
_SECONDS = 1800
"""Time limit of one benchmark."""

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: our speed and a peer's at the same job; more is better, except for seconds."""

    benchmark: str
    job: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None

    @property
    def times(self) -> float | None:
        """How many times as fast ours is."""
        if self.theirs is None or not self.theirs or not self.ours:
            return None
        return self.theirs / self.ours if self.unit.startswith("s/") else self.ours / self.theirs


@dataclass(frozen=True)
class Benchmark:
    """A script with its options, and how its figures become rows."""

    name: str
    script: str
    small: tuple[str, ...]
    """Options of the small form of all parts, and of the quick selection of them."""
    quick: tuple[str, ...]
    takes_peers: bool
    rows: Callable[[Results], Iterator[Row]]


def benchmarks() -> tuple[Benchmark, ...]:
    """The benchmarks that `table.py` beside the scripts lists."""
    spec = importlib.util.spec_from_file_location("benchmarks_table", FOLDER / "table.py")
    if spec is None or spec.loader is None or not FOLDER.is_dir():
        raise ValueError(
            f"the benchmarks are part of the repository, not of the package; {FOLDER} is not there."
        )
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return table.BENCHMARKS


@dataclass
class Found:
    """Results of all benchmarks."""

    rows: list[Row]
    missing: dict[str, dict[str, str]]
    """For each benchmark its peers that could not run, and why."""
    failed: dict[str, str]
    seconds: dict[str, float]
    environment: dict[str, Any]


def bench(quick: bool, only: str, peers: Path, setup_peers: bool, json: bool) -> int:
    """Run the benchmarks and show one table, or one JSON object."""
    known = benchmarks()
    chosen = [one for one in known if only.lower() in one.name]
    if not chosen:
        raise ValueError(f"`--only` must be part of one of {', '.join(b.name for b in known)}; got {only!r}.")
    found = Found([], {}, {}, {}, {})
    with tempfile.TemporaryDirectory() as out:
        for number, one in enumerate(chosen, start=1):
            print(f"{number}/{len(chosen)} {one.name} ...", end=" ", file=sys.stderr, flush=True)
            began = time.perf_counter()
            _run(one, quick, peers.absolute(), setup_peers, Path(out) / one.name, found)
            found.seconds[one.name] = time.perf_counter() - began
            print(f"{found.seconds[one.name]:.0f} s", file=sys.stderr, flush=True)
    if json:
        print_json({**asdict(found), "rows": [{**asdict(row), "times": row.times} for row in found.rows]})
    else:
        _show(found, peers)
    return 1 if found.failed else 0


def _run(one: Benchmark, quick: bool, peers: Path, setup: bool, out: Path, found: Found) -> None:
    options = list(one.quick if quick else one.small)
    if one.takes_peers and (setup or peers.is_dir()):
        options += ["--setup-peers" if setup else "--peers", str(peers)]
    command = [sys.executable, str(FOLDER / one.script), *options, "--out", str(out)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=FOLDER.parent
        )
    except subprocess.TimeoutExpired:
        found.failed[one.name] = f"did not end within {_SECONDS} s"
        return
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        found.failed[one.name] = lines[-1] if lines else f"ended with {done.returncode}"
        return
    for file in sorted(out.rglob("*.json")):
        document = json.loads(file.read_text())
        found.environment = found.environment or document["environment"]
        results = {name: part["figures"] for name, part in document["results"].items()}
        found.rows += one.rows(results)
        for name, part in results.items():
            if name.endswith(": skipped"):
                reasons = {peer: row["reason"] for peer, row in part.items()}
                found.missing.setdefault(one.name, {}).update(reasons)


def _show(found: Found, peers: Path) -> None:
    rows = []
    for row in found.rows:
        ours, theirs = _figure(row.ours, row.unit), _figure(row.theirs, row.unit)
        faster = "" if row.times is None else f"{row.times:.3g} ×"
        rows.append((row.benchmark, row.job, ours, row.peer or "none here", theirs, faster))
    title = "Small sizes: a look, not a verdict; `make bench` measures at full size."
    head = ("system", "job", "ours", "peer", "theirs", "ours is faster")
    show_table(title, head, rows, machine_words(found.environment) if found.environment else "")
    for name, why in found.failed.items():
        say(f"failed: {name}: {why}")
    if found.missing:
        say("peers that are not here:")
        for name, peers_of in found.missing.items():
            listed = [peer + ("" if "setup-peers" in why else f" ({why})") for peer, why in peers_of.items()]
            say(f"  {name}: {'; '.join(listed)}")
        say(f"make their environments (needs a network): jaxworlds bench --setup-peers --peers {peers}")


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit.startswith("s/"):
        return f"{format_seconds(value)}/{unit[2:]}"
    return f"{value:,.0f} {unit}"

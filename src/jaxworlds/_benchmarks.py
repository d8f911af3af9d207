"""`jaxworlds bench`: the repository's benchmarks, one after the other in processes of their own, as one table with peers."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ._commands import machine_words, print_json, say, show_table
from ._timing import format_seconds

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
_SECONDS = 1800
"""A benchmark that takes longer is ended and told of."""

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: how fast we are, and how fast a peer is at the same job; more is better but for seconds."""

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


def core_rows(results: Results) -> Iterator[Row]:
    """The driver beside a `lax.scan` written by hand."""
    part = results.get("driver against a hand-written scan", {})
    for name, row in part.items():
        worlds, _, way = name.partition(": ")
        if way == "run":
            peer = part[f"{worlds}: hand-written scan"]
            rate = "world_steps_per_second"
            yield Row("core", f"the driver, {worlds}", "steps/s", row[rate], "hand-written scan", peer[rate])


def arc_rows(results: Results) -> Iterator[Row]:
    """Random play beside the original and ARCLE."""
    part = results.get("peers", {})
    for name, row in part.items():
        who, _, job = name.partition(", ")
        if who != "ours":
            continue
        peers = [other for other in ("original", "ARCLE") if f"{other}, {job}" in part]
        for peer in peers or [""]:
            theirs = part[f"{peer}, {job}"]["steps/s"] if peer else None
            yield Row("jaxarc", f"random play, {job}", "steps/s", row["steps/s"], peer, theirs)


def trace_rows(results: Results) -> Iterator[Row]:
    """Particles on a grid beside other tracers."""
    part = results.get("common job", {})
    ours = {name: row for name, row in part.items() if name.startswith("ours, linear in time")}
    peers = {name: row for name, row in part.items() if not name.startswith("ours")}
    for name, row in ours.items():
        count = name.rpartition("time, ")[2]
        job = f"RK4 on a grid, {count} particles"
        beside = {who: found for who, found in peers.items() if who.endswith(f", {count}")}
        for who, found in beside.items() or {"": {}}.items():
            peer = who.removesuffix(f", {count}")
            yield Row("jaxtrace", job, "paths/s", row["paths/s"], peer, found.get("paths/s"))


def learner_rows(results: Results) -> Iterator[Row]:
    """Who causes what, beside other learners of structure; seconds for a dataset."""
    for name, part in results.items():
        if not name.startswith("peers, ") or ":" in name:
            continue
        peers = {who: row for who, row in part.items() if not who.startswith(("surrogate", "teacher"))}
        for peer, row in peers.items() or {"": {}}.items():
            job = f"surrogate, {name.removeprefix('peers, ')}"
            yield Row("acbo", job, "s/dataset", part["surrogate"]["wall_s"], peer, row.get("wall_s"))


def ask_rows(results: Results) -> Iterator[Row]:
    """The next experiment, beside strategies that people know; seconds for an answer."""
    part = results.get("ask", {})
    if "policy" not in part:
        return
    ours = part["policy"]["median, ms"] / 1e3
    for peer in ("causal BO, graph known", "GP-EI, no graph"):
        if peer in part:
            yield Row(
                "acbo", "next experiment, 10 variables", "s/ask", ours, peer, part[peer]["median, ms"] / 1e3
            )


BENCHMARKS = (
    Benchmark("core", "bench_core.py", ("--quick",), ("--quick", "--only", "driver"), False, core_rows),
    Benchmark("jaxarc", "bench_arc.py", ("--quick",), ("--quick", "--only", "peers"), True, arc_rows),
    Benchmark(
        "jaxtrace",
        "bench_trace.py",
        ("--small",),
        (
            "--small",
            "--only",
            "common",
            "--tracers",
            "linear in time",
            "Parcels",
            "VTK",
            "diffrax",
            "NumbaCS",
        ),
        True,
        trace_rows,
    ),
    Benchmark(
        "acbo-learning",
        "bench_acbo_inference.py",
        ("--quick",),
        ("--quick", "--only", "peers"),
        True,
        learner_rows,
    ),
    Benchmark(
        "acbo-asking", "bench_acbo_policy.py", ("--quick",), ("--quick", "--only", "ask"), False, ask_rows
    ),
)


@dataclass
class Found:
    """What came of all benchmarks."""

    rows: list[Row]
    missing: dict[str, dict[str, str]]
    """For each benchmark its peers that could not run, and why."""
    failed: dict[str, str]
    seconds: dict[str, float]
    environment: dict[str, Any]


def bench(quick: bool, only: str, peers: Path, setup_peers: bool, json: bool) -> int:
    """Run the benchmarks and show one table, or one JSON object."""
    if not FOLDER.is_dir():
        raise ValueError(
            f"the benchmarks are part of the repository, not of the package; {FOLDER} is not there."
        )
    chosen = [one for one in BENCHMARKS if only.lower() in one.name]
    if not chosen:
        raise ValueError(
            f"`--only` must be part of one of {', '.join(b.name for b in BENCHMARKS)}; got {only!r}."
        )
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
    rows = [
        (
            row.benchmark,
            row.job,
            _figure(row.ours, row.unit),
            row.peer or "none here",
            "" if row.theirs is None else _figure(row.theirs, row.unit),
            "" if row.times is None else f"{row.times:.3g} ×",
        )
        for row in found.rows
    ]
    where = found.environment
    show_table(
        "Small sizes: a look, not a verdict; `make bench` measures at full size.",
        ("system", "job", "ours", "peer", "theirs", "ours is faster"),
        rows,
        machine_words(where) if where else "",
    )
    for name, why in found.failed.items():
        say(f"failed: {name}: {why}")
    if found.missing:
        say("peers that are not here:")
        for name, peers_of in found.missing.items():
            listed = [peer + ("" if "setup-peers" in why else f" ({why})") for peer, why in peers_of.items()]
            say(f"  {name}: {'; '.join(listed)}")
        say(f"make their environments (needs a network): jaxworlds bench --setup-peers --peers {peers}")


def _figure(value: float, unit: str) -> str:
    if unit.startswith("s/"):
        return f"{format_seconds(value)}/{unit[2:]}"
    return f"{value:,.0f} {unit}"

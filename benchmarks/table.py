"""The table of `jaxworlds bench`: which scripts it runs, with which options, and which of their figures become rows."""

from collections.abc import Iterator

from jaxworlds.commands.benchmarks import Benchmark, Results, Row


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

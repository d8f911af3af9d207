"""Particle tracking beside its peers: the same job for all, speed and error in every row.

    python benchmarks/bench_trace.py --setup-peers .peers        # makes the peers' environments where missing, then runs
    python benchmarks/bench_trace.py --peers .peers --only tet   # one part, with the environments that are there
    python benchmarks/bench_trace.py --peers .peers --tracers linear Parcels   # some tracers
    python benchmarks/bench_trace.py --device-only               # no other processes: ours, and diffrax where importable
    python benchmarks/bench_trace.py --small                     # every part on a tiny job: does it run?

The job is that of `trace_peers/job.py`. Parts: common job, tetrahedra, boundaries, mesh patches, guide's job, bars. All
tracers of a part are timed in turns in the same run; compile time, steady state and memory are apart. Results go to
results/<device>/trace.json and trace.png.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import harness

PEERS = Path(__file__).resolve().parent / "trace_peers"
sys.path.insert(0, str(PEERS))  # its modules also run alone, in environments without this project

import job  # noqa: E402
import worker  # noqa: E402
from bars import compare_with_bars  # noqa: E402
from environments import Missing, Process, python_of, set_up  # noqa: E402
from picture import draw  # noqa: E402

# name: environment, script, options, time steps of a timed run by number of particles (200 where not given).
PEER_ROWS: dict[str, tuple[str, str, dict[str, Any], dict[int, int]]] = {
    "Parcels 4, RK4": ("parcels", "parcels_rk4.py", {}, {10_000: 40, 100_000: 20}),
    "VTK newest, its 40 steps": ("vtk", "vtk_tracer.py", {}, {}),
    "VTK newest, 200 steps": ("vtk", "vtk_tracer.py", {"refine": 5}, {100_000: 20}),
    "VTK 9.3.1, its 40 steps": ("vtk-9.3", "vtk_tracer.py", {}, {}),
    "VTK 9.3.1, 200 steps": ("vtk-9.3", "vtk_tracer.py", {"refine": 5}, {100_000: 20}),
    "diffrax, RK4": ("diffrax", "diffrax_rk4.py", {}, {100_000: 100}),
    "NumbaCS, 2-D linear, adaptive": ("numbacs", "numbacs_flowmap.py", {}, {}),
    "NumbaCS, 2-D spline, adaptive": ("numbacs", "numbacs_flowmap.py", {"spline": True}, {}),
}
OUR_ROWS: dict[str, dict[str, Any]] = {
    "ours, default (cubic in time)": {},
    "ours, linear in time": {"time": "linear"},
    "ours, default, float16 storage": {"storage": "float16"},
    "ours, linear, float16 storage": {"time": "linear", "storage": "float16"},
}
# Particles over as many simulated devices as there are cores.
SPREAD = "ours, linear, one device per core"
# What an accelerator gains from, switched off or on one by one.
DEVICE_ROWS: dict[str, dict[str, Any]] = {
    "ours, default, 16-bit cells": {"tracker": {"layout": "cells16"}},
    "ours, linear, 16-bit cells": {"time": "linear", "tracker": {"layout": "cells16"}},
    "ours, linear, 16-bit cells, unsorted": {
        "time": "linear",
        "tracker": {"layout": "cells16", "sort_every": 0},
    },
    "ours, linear, unsorted": {"time": "linear", "tracker": {"sort_every": 0}},
    "ours, linear, not fused": {"time": "linear", "tracker": {"fused": False}},
    "ours, default, unsorted": {"tracker": {"sort_every": 0}},
    "ours, default, not fused": {"tracker": {"fused": False}},
}
TET_ROWS: dict[str, dict[str, Any]] = {
    "ours, default (cubic in time)": {},
    "ours, linear in time": {"time": "linear"},
}
TET_PEERS = {
    "VTK newest, its 40 steps": ("vtk", "vtk_tracer.py", {}, {100_000: 20}),
    "VTK 9.3.1, its 40 steps": ("vtk-9.3", "vtk_tracer.py", {}, {100_000: 20}),
}
SHOWN = ("psteps/s", "psteps/cpu-s", "paths/s", "median", "p99", "max", "lost")
MESHES = {"tets": "conforming", "hanging": "non-conforming"}


class Inside:
    """A tracer in this process: on an accelerator, whose memory one process holds."""

    def __init__(self, tracer: worker.Tracer) -> None:
        self.tracer = tracer
        self.about = {"versions": tracer.versions()}

    def run(self, n: int, steps: int) -> tuple[np.ndarray, dict[str, Any]]:
        return worker.timed_run(self.tracer, n, steps)

    def close(self) -> None:
        pass


class Bench:
    """Sizes, the folder of the job's arrays, and where the peers are."""

    def __init__(self, found: argparse.Namespace, folder: Path, report: harness.Report) -> None:
        on_cpu = jax.default_backend() == "cpu"
        self.folder, self.report, self.small = folder, report, found.small
        self.peers = found.setup_peers or found.peers
        self.tracers = found.tracers or [""]
        self.apart = on_cpu and not found.device_only
        usual = [1_000] if found.small else [10_000, 100_000] if on_cpu else [10_000_000]
        self.counts = found.particles or usual
        self.rounds = found.rounds or (1 if found.small else 3)
        self.exact = job.reference(100 if found.small else job.REFERENCES)
        field = job.series(*((16, 6) if found.small else ()))
        job.save(folder, {"velocities": field.velocities, "seeds": job.seeds(max(self.counts))})
        meshes = [job.kuhn_mesh((6, 6, 6)), job.hanging_mesh(4, 6)]
        if not found.small:
            meshes = [job.kuhn_mesh((35, 35, 35)), job.hanging_mesh(22, 33)]
        for name, mesh in zip(MESHES, meshes, strict=True):
            values = job.at_points(mesh.points, job.slice_times(len(field.times)))
            job.save(folder / name, {**mesh._asdict(), "velocities": values})

    def ours(self, options: Mapping[str, Any]) -> Any:
        """Our tracer: in a process of its own beside peers, else here."""
        if self.apart:
            devices = options.get("tracker", {}).get("mesh", 1)
            flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"} if devices > 1 else {}
            return Process(sys.executable, "ours.py", self.folder, options, {**os.environ, **flags})
        from ours import Ours

        return Inside(Ours(self.folder, **options))

    def peer(self, environment: str, script: str, options: Mapping[str, Any]) -> Any:
        """A peer in its environment; in this process only diffrax can be."""
        if self.apart:
            return Process(python_of(self.peers, environment), script, self.folder, options)
        if environment != "diffrax":
            raise Missing("runs in a process of its own only, without --device-only")
        try:
            from diffrax_rk4 import Diffrax
        except ImportError as error:
            raise Missing(f"{error.name} cannot be imported here") from error
        return Inside(Diffrax(self.folder, **options))


def common(bench: Bench) -> None:
    """The regular grid: ours beside all peers."""
    note = (
        "rates of whole calls, host to host; error at t = 10 against DOP853 in the analytic field; VTK newer than 9.3 "
        "reads the wrong slice; NumbaCS does the plane alone and tells no steps"
    )
    rows = dict(OUR_ROWS)
    if jax.default_backend() != "cpu":
        rows |= DEVICE_ROWS
    elif not bench.small:
        rows["ours, cubic in space and time"] = {"space": "cubic"}
    if bench.apart and (cores := bench.report.environment["cores"]) > 1:
        rows[SPREAD] = {"time": "linear", "tracker": {"mesh": cores}}
    side_by_side(bench, "common job", note, rows, PEER_ROWS)


def tetrahedra(bench: Bench) -> None:
    """Meshes with matching faces and with hanging ones: ours beside VTK on the same mesh."""
    for mesh, kind in MESHES.items():
        ours = {name: {**options, "mesh": mesh} for name, options in TET_ROWS.items()}
        peers = {name: (e, s, {**o, "mesh": mesh}, steps) for name, (e, s, o, steps) in TET_PEERS.items()}
        cells = len(np.load(bench.folder / mesh / "tets.npy"))
        note = f"{cells:,} tetrahedra; lost: particles given up or outside, though nobody can leave the box"
        side_by_side(bench, f"tetrahedra, {kind}", note, ours, peers)


def side_by_side(
    bench: Bench, part: str, note: str, ours: Mapping[str, Any], peers: Mapping[str, Any]
) -> None:
    """Report all tracers for all numbers of particles, timed in turns; those that cannot run say why."""
    ours, peers = (
        {k: v for k, v in some.items() if any(t in k for t in bench.tracers)} for some in (ours, peers)
    )
    rows: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    runners: dict[str, Any] = {}
    steps: dict[str, dict[int, int]] = {}
    errors: dict[str, dict[str, float]] = {}
    versions: dict[str, Any] = {}
    try:
        for name, options in ours.items():
            runners[name], steps[name] = bench.ours(options), {}
        for name, (environment, script, options, few) in peers.items():
            try:
                runners[name], steps[name] = bench.peer(environment, script, options), few
            except Missing as reason:
                skipped[name] = str(reason)
        for name, runner in runners.items():
            versions[name] = {"versions": ", ".join(f"{k} {v}" for k, v in runner.about["versions"].items())}
        for n in bench.counts:
            rows |= _turns(bench, runners, steps, n, errors, skipped)
    finally:
        for runner in runners.values():
            runner.close()
    shown = {name: {key: row[key] for key in SHOWN if key in row} for name, row in rows.items()}
    bench.report.add(part, shown, note)
    costs = {name: {key: row[key] for key in row if key not in SHOWN} for name, row in rows.items()}
    note = "medians of timed runs of `steps` steps; first: with compiling; bytes: the most its process, its device ever held"
    bench.report.add(f"{part}: costs", costs, note)
    bench.report.add(f"{part}: versions", versions)
    if skipped:
        bench.report.add(f"{part}: skipped", {name: {"reason": reason} for name, reason in skipped.items()})


def _turns(
    bench: Bench,
    runners: dict[str, Any],
    steps: Mapping[str, Any],
    n: int,
    errors: dict[str, Any],
    skipped: dict[str, str],
) -> dict[str, Any]:
    """One row for each tracer that does not fail: first a run for compiling and for the error, then timed rounds."""
    first: dict[str, Any] = {}
    timed: dict[str, list[Any]] = {name: [] for name in runners}
    length = {name: job.STEPS if bench.small else steps[name].get(n, job.STEPS) for name in runners}

    def attempt(name: str, asked: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        try:
            return runners[name].run(n, asked)
        except Missing as reason:
            skipped[f"{name}, {n:,}"] = str(reason)
            runners.pop(name).close()
            return None

    for name in list(runners):
        asked = length[name] if name in errors else job.STEPS  # the same seeds come first for every n
        if (done := attempt(name, asked)) is not None:
            positions, first[name] = done
            if name not in errors:
                errors[name] = job.errors(positions, bench.exact)
            if asked == job.STEPS:
                first[name].setdefault("lost", job.lost(_in_space(positions)))
    shuffler = random.Random(0)
    for _ in range(bench.rounds):
        for name in shuffler.sample(sorted(runners), len(runners)):
            if (done := attempt(name, length[name])) is not None:
                timed[name].append(done[1])
    return {
        f"{name}, {n:,}": _row(n, length[name], first[name], timed[name], errors[name]) for name in runners
    }


def _row(
    n: int, length: int, first: Mapping[str, Any], timed: list[Any], errors: Mapping[str, Any]
) -> dict[str, Any]:
    wall, cpu = (float(np.median([reply[name] for reply in timed])) for name in ("wall_s", "cpu_s"))
    taken = timed[0]["steps_taken"]
    row = {
        "psteps/s": n * taken / wall if taken else None,
        "psteps/cpu-s": n * taken / cpu if taken else None,
        "paths/s": n * (length / job.STEPS) / wall,
        **errors,
        "lost": first.get("lost"),
        "steps": taken or None,
        "median_s": wall,
        "cpu_s": cpu,
        "first_s": first["wall_s"],
        "compile_s": first.get("compile_s"),
        "loop psteps/s": timed[-1].get("loop psteps/s"),
        "process_bytes": timed[-1]["process_bytes"],
        "device_bytes": timed[-1].get("device_bytes"),
    }
    return {name: value for name, value in row.items() if value is not None}


def _in_space(positions: np.ndarray) -> np.ndarray:
    """Positions in the plane with a height, so that all are looked at alike."""
    return positions if positions.shape[1] == 3 else np.c_[positions, np.full(len(positions), 0.5)]


def costs(bench: Bench, name: str) -> None:
    """What a part of `trace_peers/costs.py` measures in this process."""
    import costs

    for part, (rows, note) in getattr(costs, name)(bench.folder, max(bench.counts), bench.small).items():
        bench.report.add(part, rows, note)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a tiny job, one round: does everything run?")
    parser.add_argument(
        "--device-only", action="store_true", help="no other processes; only what is importable here"
    )
    parser.add_argument("--peers", type=Path, metavar="DIR", help="folder of the peers' virtual environments")
    parser.add_argument(
        "--setup-peers", type=Path, metavar="DIR", help="the same; make those that are missing first"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run only the parts whose name contains TEXT"
    )
    parser.add_argument(
        "--out", type=Path, default=harness.RESULTS, metavar="FOLDER", help="folder of the results"
    )
    parser.add_argument(
        "--tracers", nargs="+", metavar="TEXT", help="only tracers whose name contains one of these"
    )
    parser.add_argument("--rounds", type=int, help="timed runs of each tracer")
    parser.add_argument("--particles", type=int, nargs="+", metavar="N", help="numbers of particles")
    return parser.parse_args(arguments)


def main() -> None:
    found = parse()
    if found.setup_peers:
        set_up(found.setup_peers)
    options = harness.Options(found.small, found.only, found.out)
    report = harness.Report("trace", options)
    parts = {
        "common job": common,
        "tetrahedra": tetrahedra,
        "boundaries": lambda bench: costs(bench, "boundary_costs"),
        "mesh patches": lambda bench: costs(bench, "patch_costs"),
        "guide's job": lambda bench: costs(bench, "guide_job"),
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(found, Path(folder), report)
        for name, part in parts.items():
            if options.wants(name):
                part(bench)
                report.finish()  # a long run that breaks off keeps what it has
        rows = compare_with_bars(report.results, max(bench.counts), jax.default_backend() == "cpu")
        if rows and not found.small:
            report.add("bars", rows, "of issue 4; the worst case where there are several")
    path = report.finish()
    print(f"wrote {draw(report.results, path.with_suffix('.png'))}")


if __name__ == "__main__":
    main()

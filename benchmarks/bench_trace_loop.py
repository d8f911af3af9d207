"""The integration loop alone: particle-steps per second of the compiled program, without results sent to the host.

    python benchmarks/bench_trace_loop.py            # ten million particles on an accelerator, 100,000 on a CPU
    python benchmarks/bench_trace_loop.py --quick    # does it run?

The job is that of `trace_peers/job.py`, through the public interface: positions are replaced by a count on the device
(`reduce=`), so that a call is its steps. `whole call` sends the positions of both recorded times to the host as well.
The kernel's and the layouts' errors are those of `bench_trace.py`, which runs the same programs.
"""

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import harness

sys.path.insert(0, str(Path(__file__).resolve().parent / "trace_peers"))

import job
from ours import box_grid

from jaxtrace import create_tracker
from jaxtrace.fields import Mesh, TimeSeriesField, UnstructuredGrid
from jaxtrace.tracking.reductions import Count

GRID_ROWS: dict[str, dict[str, Any]] = {
    "cubic in time, 16-bit cells": {"layout": "cells16"},
    "cubic in time, 16-bit cells, not sorted": {"layout": "cells16", "sort_every": 0},
    "cubic in time, 16-bit cells, XLA instead of the kernel": {"layout": "cells16", "fused": False},
    "linear in time, 16-bit cells": {"layout": "cells16", "time": "linear"},
    "cubic in time, default layout": {},
    "linear in time, default layout": {"time": "linear"},
    "cubic in time, rows": {"layout": "rows"},
}
MESH_ROWS: dict[str, dict[str, Any]] = {
    "cubic in time, 16-bit cells": {"layout": "cells16"},
    "cubic in time, cells": {"layout": "cells"},
    "cubic in time, rows": {"layout": "rows"},
}


def rows_of(
    grid: Any, velocities: np.ndarray, seeds: np.ndarray, steps: int, rounds: int, asked: dict[str, Any]
) -> dict[str, Any]:
    """The best of some calls for each layout, without and with positions on the host."""
    found: dict[str, Any] = {}
    on_cpu = jax.default_backend() == "cpu"
    span = (job.SPAN[0], job.SPAN[0] + steps * job.DT)
    for name, options in asked.items():
        given = dict(options)
        if on_cpu and (
            "fused" in given or "sort_every" in given or given.get("layout", "").startswith("cells")
        ):
            continue  # what a CPU has no use for
        field = TimeSeriesField(
            velocities,
            job.slice_times(len(velocities)),
            grid=grid,
            time_interpolation=given.pop("time", None),
        )
        row: dict[str, Any] = {}
        for reduce in (Count(), None):
            tracker = create_tracker(field=field, reduce=reduce, **given)
            first = _call(tracker, seeds, span)
            calls = [_call(tracker, seeds, span) for _ in range(rounds)]
            if reduce is not None:
                row["compile_s"] = first[1].info["compile_seconds"]
                row["psteps/s"] = max(done.info["loop_particle_steps_per_second"] for _, done in calls)
                row["left"] = len(seeds) - int(np.asarray(calls[-1][1].reduced)[-1])
            else:
                row["whole call, psteps/s"] = len(seeds) * steps / min(seconds for seconds, _ in calls)
        found[name] = row
        print(name, row, flush=True)
    return found


def _call(tracker: Any, seeds: np.ndarray, span: tuple[float, float]) -> tuple[float, Any]:
    began = time.perf_counter()
    done = tracker.track_particles(seeds, span, n_timesteps=2, dt=job.DT, progress=False)
    return time.perf_counter() - began, done


def main() -> None:
    options = harness.parse(__doc__ or "")
    report = harness.Report("trace_loop", options)
    on_cpu = jax.default_backend() == "cpu"
    count = 1_000 if options.quick else 100_000 if on_cpu else 10_000_000
    size, steps, rounds = (16, 20, 1) if options.quick else (64, 200, 3)
    series = job.series(size, 6 if options.quick else 21)
    seeds = job.seeds(count)
    if options.wants("grid"):
        grid = box_grid(series.velocities.shape[1:4])
        rows = rows_of(grid, series.velocities, seeds, steps, rounds, GRID_ROWS)
        report.add(f"grid, {count:,} particles", rows, "the loop of the tracker; left: particles that ended")
        report.finish()
    if options.wants("tetrahedra"):
        for kind, mesh in (
            ("conforming", job.kuhn_mesh((6, 6, 6) if options.quick else (35, 35, 35))),
            ("non-conforming", job.hanging_mesh(*((4, 6) if options.quick else (22, 33)))),
        ):
            values = job.at_points(mesh.points, job.slice_times(len(series.times)))
            grid = UnstructuredGrid(Mesh(mesh.points, {"tetra": mesh.tets}))
            rows = rows_of(grid, values, seeds, min(steps, 40), rounds, MESH_ROWS)
            report.add(f"tetrahedra, {kind}, {len(mesh.tets):,} cells, {count:,} particles", rows)
            report.finish()
    report.finish()


if __name__ == "__main__":
    main()

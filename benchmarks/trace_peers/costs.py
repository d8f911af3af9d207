"""What boundaries, inlets and walls of a mesh add to a step, and what the guide's job takes; all by whole public calls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import job
import numpy as np
import worker
from ours import box_grid, tet_grid

from jaxtrace import create_tracker, uniform_grid_seeds
from jaxtrace.fields import TimeSeriesField
from jaxtrace.tracking import boundary as b
from jaxtrace.tracking.boundary import mesh_walls
from jaxworlds.measuring import compare

Parts = dict[str, tuple[dict[str, Any], str]]
FACES = ("periodic", "reflective", "clamping", "absorbing", "open")
RULES = ("stick", "bounce", "slip", "absorb")
NOTE = "whole calls with it against calls without, in turns; `none again` shows the noise; hits: of walls, by particle"


def boundary_costs(folder: Path, n: int, small: bool) -> Parts:
    """Every box boundary and inlet on the common job, with walls at the edge of the field and with walls met by many."""
    field = _box_field(folder)
    parts = {}
    for where, margin in (("at the edge of the field", 0.0), ("met by many", 0.05)):
        inset = margin * (job.HIGH - job.LOW)
        box = np.stack([job.LOW + inset, job.HIGH - inset])
        tried = {"none": None, "none again": None} | {face: b.box_boundary(box, face) for face in FACES}
        tried["mixed"] = b.box_boundary(box, ["periodic", ("reflective", "absorbing"), "clamping"])
        tried |= _inlets(box, field, flows_in=margin > 0)
        if small:
            tried = {name: tried[name] for name in ("none", "reflective", "inlet, uniform")}
        share = (job.seeds(n) - job.LOW) / (job.HIGH - job.LOW)
        rows = _ratios(field, tried, (box[0] + share * (box[1] - box[0])).astype(np.float32), small)
        parts[f"boundaries, {where}"] = (rows, NOTE)
    return parts


def _inlets(box: np.ndarray, field: Any, flows_in: bool) -> dict[str, Any]:
    make = b.continuous_inlet_boundary_factory
    lattice = {"y": 25, "z": 10}
    found = {
        "inlet, uniform": make(box),
        "inlet, gaussian": make(box, inlet_distribution="gaussian"),
        "inlet, grid": make(box, inlet_distribution="grid", concentrations=lattice),
        "inlet at a rate": b.inlet_outlet_boundary_factory(box, rate=1000.0),
    }
    if flows_in:
        found["inlet, flux"] = make(box, inlet_distribution="flux", field=field)
    return found


def patch_costs(folder: Path, n: int, small: bool) -> Parts:
    """Walls of a mesh on the tetrahedral job, and on one whose drift drives particles against them."""
    grid, points = tet_grid(folder / "tets"), np.load(folder / "tets" / "points.npy")
    times = job.slice_times(len(np.load(folder / "velocities.npy", mmap_mode="r")))
    parts = {}
    for where, drift in (("hardly met", 0.0), ("met by many", np.array([0.05, 0.03, 0.03]))):
        field = TimeSeriesField(job.at_points(points, times, drift), times, grid=grid)
        tried = {"none": None, "none again": None}
        tried |= {rule: mesh_walls(grid, rule) for rule in RULES[: 1 if small else None]}
        parts[f"mesh patches, {where}"] = (_ratios(field, tried, job.seeds(n), small), NOTE)
    return parts


def _ratios(field: Any, tried: Mapping[str, Any], seeds: np.ndarray, small: bool) -> dict[str, Any]:
    """Times with each boundary over those with none; on a CPU of a fifth of the job, to have more rounds."""
    steps = job.STEPS if jax.default_backend() != "cpu" else job.STEPS // 5
    span = (job.SPAN[0], job.SPAN[0] + steps * job.DT)
    trackers = {name: create_tracker(field=field, boundary_condition=given) for name, given in tried.items()}

    def call(name: str) -> Any:
        return trackers[name].track_particles(seeds, time_span=span, n_timesteps=2, dt=job.DT)

    met = {name: sum(call(name).patch_counts.values()) for name in tried}
    thunks = {name: lambda name=name: call(name).positions for name in tried}
    found = compare(thunks, rounds=2 if small else 7).figures()
    return {
        name: {
            "psteps/s": len(seeds) * steps / row["median_s"],
            **{
                key: row[key]
                for key in ("median_s", "cpu_s", "ratio", "ratio_low", "ratio_high", "cpu_ratio")
            },
            "hits": met[name] / len(seeds),
        }
        for name, row in found.items()
    }


def guide_job(folder: Path, n: int, small: bool) -> Parts:
    """The guide's call: 7,500 particles, 1,500 recorded times, all of them on the host at the end."""
    bounds = [job.LOW, job.HIGH]
    resolution, times = ((6, 5, 2), 150) if small else ((30, 25, 10), 1500)
    seeds = uniform_grid_seeds(resolution=resolution, bounds=bounds, include_boundaries=True)
    rows = {}
    for name, given in {"no boundary": None, "reflective": b.reflective_boundary(bounds)}.items():
        tracker = create_tracker("rk4", _box_field(folder), given, batch_size=len(seeds))
        clocks = []
        for _ in range(2 if small else 6):
            with worker.stopwatch() as clock:
                done = tracker.track_particles(seeds, time_span=(0.0, 4.0), n_timesteps=times, dt=0.005)
            clocks.append(clock)
        assert done.positions.shape == (times, len(seeds), 3)
        wall, cpu = (float(np.median([c[key] for c in clocks[1:]])) for key in ("wall_s", "cpu_s"))
        rows[name] = {
            "psteps/s": done.info["steps"] * len(seeds) / wall,
            "wall_s": wall,
            "cpu_s": cpu,
            "first_s": clocks[0]["wall_s"],
            "steps": done.info["steps"],
            "result_bytes": done.positions.nbytes,
        }
    return {"guide's job": (rows, "host to device, all steps, and all recorded positions back on the host")}


def _box_field(folder: Path) -> TimeSeriesField:
    values = np.load(folder / "velocities.npy")
    return TimeSeriesField(values, job.slice_times(len(values)), grid=box_grid(values.shape[1:4]))

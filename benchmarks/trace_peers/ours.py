"""jaxtrace on the common job, through its public interface alone."""

from pathlib import Path
from typing import Any

import jax
import job
import numpy as np
import worker

from jaxtrace import create_tracker
from jaxtrace.fields import Mesh, TimeSeriesField, UniformGrid, UnstructuredGrid

SIDES = {f"{axis}_{end}": (number, end) for number, axis in enumerate("xyz") for end in ("min", "max")}


class Ours:
    """`mesh` names a folder with points and tets; `tracker` holds further options of `create_tracker`."""

    def __init__(
        self,
        folder: Path,
        time: str | None = None,
        space: str = "linear",
        storage: str = "float32",
        mesh: str | None = None,
        tracker: dict[str, Any] | None = None,
    ) -> None:
        velocities = np.load((folder / mesh if mesh else folder) / "velocities.npy")
        grid = box_grid(velocities.shape[1:4], space) if mesh is None else tet_grid(folder / mesh)
        times = job.slice_times(len(velocities))
        self.field = TimeSeriesField(velocities, times, grid=grid, time_interpolation=time, dtype=storage)
        self.tracker = create_tracker(field=self.field, **(tracker or {}))
        self.seeds = np.load(folder / "seeds.npy")
        self.last: Any = None

    def versions(self) -> dict[str, str]:
        return {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "numpy": np.__version__}

    def run(self, n: int, steps: int) -> np.ndarray:
        span = (job.SPAN[0], job.SPAN[0] + steps * job.DT)
        self.last = self.tracker.track_particles(
            initial_positions=self.seeds[:n], time_span=span, n_timesteps=2, dt=job.DT
        )
        return self.last.positions[-1]

    def finish(self, positions: np.ndarray, steps: int) -> dict[str, Any]:
        """What the tracker says of the last run."""
        done, self.last = self.last, None
        assert done.info["steps"] == steps, f"asked for {steps} steps, took {done.info['steps']}"
        return {
            "compile_s": done.info["compile_seconds"],
            "loop psteps/s": done.info["loop_particle_steps_per_second"],
            "lost": job.lost(positions, done.alive[-1]),
            **_device_bytes(),
        }


def box_grid(shape: tuple[int, ...], space: str = "linear") -> UniformGrid:
    """The job's regular grid."""
    spacing = (job.HIGH - job.LOW) / (np.array(shape) - 1)
    return UniformGrid(job.LOW.astype(np.float32), spacing.astype(np.float32), shape, interpolation=space)


def tet_grid(folder: Path) -> UnstructuredGrid:
    """The mesh of a folder; the six sides of the box are its patches."""
    points, tets = np.load(folder / "points.npy"), np.load(folder / "tets.npy")

    def side(axis: int, end: str) -> Any:
        plane = (job.LOW if end == "min" else job.HIGH)[axis]
        return lambda middle: np.abs(middle[:, axis] - plane) < 1e-6

    patches = {name: side(axis, end) for name, (axis, end) in SIDES.items()}
    return UnstructuredGrid(Mesh(points, {"tetra": tets}, patches))


def _device_bytes() -> dict[str, int]:
    """The largest amount of device memory in use so far, where the backend counts it."""
    found = jax.devices()[0].memory_stats()
    return {"device_bytes": int(found["peak_bytes_in_use"])} if found else {}


if __name__ == "__main__":
    worker.serve(Ours)

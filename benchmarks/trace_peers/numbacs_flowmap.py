"""NumbaCS on the part of the common job that it can do: u and v in the plane, adaptive DOP853, no fixed steps."""

from math import copysign
from pathlib import Path

import job
import numpy as np
import worker


class NumbaCS:
    """`spline` chooses cubic splines in space and time, its recommendation; else linear."""

    def __init__(self, folder: Path, spline: bool = False) -> None:
        from numbacs.flows import get_flow_2D, get_flow_linear_2D, get_interp_arrays_2D
        from numbacs.integration import flowmap

        velocities = np.load(folder / "velocities.npy")[:, :, :, 0, :2].astype(np.float64)
        slices, nx, ny, _ = velocities.shape
        u, v = (np.ascontiguousarray(velocities[..., axis]) for axis in range(2))
        times, x, y = job.slice_times(slices), np.linspace(0, 2, nx), np.linspace(0, 1, ny)
        grid, *arrays = get_interp_arrays_2D(times, x, y, u, v) if spline else (None, u, v)
        if spline:
            self.flow = get_flow_2D(grid, *arrays, extrap_mode="linear")
        else:
            grid = tuple((axis[0], axis[-1], len(axis)) for axis in (times, x, y))
            self.flow = get_flow_linear_2D(grid, u, v, extrap_mode="linear")
        self.flowmap = flowmap
        self.seeds = np.load(folder / "seeds.npy")[:, :2].astype(np.float64)
        self.steps_taken = 0  # not told; adaptive

    def versions(self) -> dict[str, str]:
        from importlib import metadata

        return {name: metadata.version(name) for name in ("numbacs", "numba", "numbalsoda", "numpy")}

    def run(self, n: int, steps: int) -> np.ndarray:
        length = steps * job.DT
        return self.flowmap(self.flow, job.SPAN[0], length, self.seeds[:n], np.array([copysign(1.0, length)]))


if __name__ == "__main__":
    worker.serve(NumbaCS)

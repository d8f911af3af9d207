"""The whole workflow: a field from files or arrays, an inlet, seven thousand particles, results on disk, a picture.

    python examples/example_workflow_fast.py                                # makes a duct flow of its own
    python examples/example_workflow_fast.py results "run/flow_*.vtu"       # reads a series of files

No environment variables, no copies to a device, no switches: a field lies on the device since it was made, every
boundary is compiled, and batches are planned from the memory there is.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import jaxtrace as jt
from jaxtrace.tracking.boundary import continuous_inlet_boundary_factory
from jaxtrace.visualization import animate, plot_paths


def duct_flow() -> jt.TimeSeriesField:
    """A pulsating stream through a square duct with a vortex that turns one way and the other, as bare arrays."""
    axes = np.linspace(0, 3, 31), np.linspace(0, 1, 17), np.linspace(0, 1, 17)
    times = np.linspace(0, 4, 33)
    x, y, z = np.meshgrid(*axes, indexing="ij")
    slices = []
    for t in times:
        along = 8 * y * (1 - y) * z * (1 - z) * (1 + 0.5 * np.sin(2 * np.pi * t))
        turn = 0.6 * np.sin(np.pi * t / 2)
        across = turn * np.sin(np.pi * y) * np.cos(np.pi * z), -turn * np.cos(np.pi * y) * np.sin(np.pi * z)
        slices.append(np.stack([along, *across], axis=-1).reshape(-1, 3))
    nodes = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    return jt.TimeSeriesField(data=np.stack(slices), times=times, positions=nodes)  # seen to be a lattice


def main(folder: Path, pattern: str | None = None) -> None:
    jt.configure(
        dtype="float32"
    )  # before the first array; device="gpu" insists on one, else JAX takes the best
    field = duct_flow() if pattern is None else jt.load_optimized_dataset(pattern, max_time_steps=40)
    bounds = np.asarray(field.grid.bounds)
    start, end = field.time_range

    # Who leaves downstream enters upstream, where and as often as the fluid does; walls turn particles back.
    boundary = continuous_inlet_boundary_factory(
        bounds, flow_axis="x", inlet_distribution="flux", field=field, time=start, resolution=(1, 40, 40)
    )
    seeds = jt.uniform_grid_seeds(resolution=(30, 25, 10), bounds=bounds, include_boundaries=False)
    tracker = jt.create_tracker(integrator_name="rk4", field=field, boundary_condition=boundary)
    # 101 times are recorded, both ends included; steps are at most `dt` long and end on recorded and slice times.
    trajectory = tracker.track_particles(
        seeds, time_span=(start, end), n_timesteps=101, dt=(end - start) / 160
    )
    print(trajectory.summary())

    assert trajectory.positions.shape == (101, 7500, 3)
    inside = (trajectory.positions >= bounds[0] - 1e-5) & (trajectory.positions <= bounds[1] + 1e-5)
    assert inside.all(), "walls, inlet and outlet hold every particle"
    assert trajectory.alive.all(), "every slot is filled again at once"

    trajectory.save(folder / "particles.npz")  # all of it, for NumPy
    trajectory.save(folder / "particles.pvd")  # one .vtp for each time, for ParaView
    plot_paths(
        trajectory, folder / "paths.png", color="age", boundary=boundary, length_unit="m", time_unit="s"
    )
    animate(trajectory, folder / "particles.html", color="speed", boundary=boundary, time_unit="s")
    print("\n".join(f"{path.stat().st_size:>12,} bytes  {path}" for path in sorted(folder.glob("pa*.*"))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), *sys.argv[2:3])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

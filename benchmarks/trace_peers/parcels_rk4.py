"""Parcels 4 on the common job: A-grid data through its own converter, `ParticleSet.execute` with a built-in kernel."""

from pathlib import Path

import job
import numpy as np
import worker


class Parcels:
    """A flat mesh; Parcels counts z downwards and its converter turns W round, which is undone here."""

    def __init__(self, folder: Path, kernel: str = "AdvectionRK4_3D") -> None:
        import parcels
        import xarray as xr

        velocities = np.load(folder / "velocities.npy")
        slices, nx, ny, nz, _ = velocities.shape
        x, y, z = (np.linspace(a, b, n) for a, b, n in zip(job.LOW, job.HIGH, (nx, ny, nz), strict=True))
        coordinates = {
            "time": (
                "time",
                (job.slice_times(slices) * 1e9).round().astype("timedelta64[ns]"),
                {"axis": "T"},
            ),
            "depth": ("depth", z, {"axis": "Z"}),
            "latitude": ("latitude", y, {"axis": "Y"}),
            "longitude": ("longitude", x, {"axis": "X"}),
        }
        dims = ("time", "depth", "latitude", "longitude")
        fields = {
            name: xr.DataArray(
                np.ascontiguousarray(sign * velocities[..., axis].transpose(0, 3, 2, 1)), coordinates, dims
            )
            for axis, (name, sign) in enumerate((("U", 1), ("V", 1), ("W", -1)))
        }
        data = parcels.convert.copernicusmarine_to_sgrid(fields=fields)
        self.fieldset = parcels.FieldSet.from_sgrid_conventions(data, mesh="flat")
        self.kernel = getattr(parcels.kernels, kernel)
        self.seeds = np.load(folder / "seeds.npy")

    def versions(self) -> dict[str, str]:
        import parcels

        return {"parcels": parcels.__version__, "numpy": np.__version__}

    def run(self, n: int, steps: int) -> np.ndarray:
        import parcels

        x, y, z = self.seeds[:n].astype(np.float64).T
        particles = parcels.ParticleSet(self.fieldset, t=np.zeros(n, "timedelta64[ns]"), x=x, y=y, z=z)
        run = np.timedelta64(round(steps * job.DT * 1e9), "ns")
        particles.execute(
            self.kernel, dt=np.timedelta64(round(job.DT * 1e9), "ns"), runtime=run, verbose_progress=False
        )
        order = np.argsort(particles.particle_id)
        return np.stack([np.asarray(c)[order] for c in (particles.x, particles.y, particles.z)], -1)


if __name__ == "__main__":
    worker.serve(Parcels)

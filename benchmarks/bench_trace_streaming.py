"""Out of core in time: a series four times larger than the memory it may use, against the same ring fed from memory.

    python benchmarks/bench_trace_streaming.py [--quick] [--only reading|streaming]

The job: a time-dependent double gyre on 64³ nodes in 40 slices, one `.npy` file each; 100,000 particles, RK4 with 20
steps from slice to slice, cubic in time. Every way of feeding the ring must give the same bits.
"""

import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import harness
from jaxtrace.fields import StreamedField
from jaxtrace.fields.structured import UniformGrid
from jaxtrace.integrators import RK4
from jaxtrace.integrators.base import ParticleState
from jaxworlds.measuring import compare
from jaxworlds.rollout import run

STEPS_PER_SLICE = 20
SHARE = 4  # the series is so many times larger than the memory allowed


class Job:
    """The files of the series, the particles, and one run through them."""

    def __init__(self, folder: Path, nodes: int, slices: int, particles: int) -> None:
        self.times = np.linspace(0.0, 10.0, slices)
        self.edges = np.linspace(0.0, 10.0, (slices - 1) * STEPS_PER_SLICE + 1)
        spacing = np.array([2.0, 1.0, 1.0]) / (nodes - 1)
        self.grid = UniformGrid(np.zeros(3, np.float32), spacing.astype(np.float32), (nodes,) * 3)
        self.data = np.stack([double_gyre(np.asarray(self.grid.positions), t) for t in self.times])
        self.files = [folder / f"velocity_{number}.npy" for number in range(slices)]
        for file, values in zip(self.files, self.data, strict=True):
            with file.open("wb") as out:
                np.save(out, values)
                out.flush()
                os.fsync(out.fileno())  # a page that is not yet written cannot be dropped from the cache
        low, high = np.array([[0.1, 0.1, 0.1], [1.9, 0.9, 0.9]])
        seeds = np.random.default_rng(0).uniform(low, high, (particles, 3))
        self.particles = jnp.asarray(seeds, jnp.float32)
        self.layout = "rows" if jax.default_backend() == "cpu" else "cells"
        self.t = jnp.asarray(self.edges, jnp.float32)
        self.dt = jnp.asarray(np.diff(self.edges), jnp.float32)
        self.limit = self.data.nbytes // SHARE
        self.waited: dict[str, float] = {}
        self.plan = ""

    @property
    def steps(self) -> int:
        return len(self.edges) - 1

    def streamed(self, name: str, source: Any, cold: bool = False) -> jax.Array:
        """One run with the ring fed from `source`."""
        if cold:
            drop_from_cache(self.files)
        field = StreamedField(source, self.times, self.grid, layout=self.layout)
        with field.open(self.edges, self.limit) as keeper:
            shared_at = lambda at, steps: (keeper.field_at(at, steps), self.t, self.dt)  # noqa: E731
            result = run(advance, self.particles, self.steps, shared_at=shared_at, chunk=keeper.chunk)
            self.waited[name], self.plan = keeper.seconds_waited, str(keeper.plan)
        return result.carry

    def resident(self) -> jax.Array:
        """One run with the whole series on the device, without a ring."""
        field = StreamedField(self.data, self.times, self.grid, layout=self.layout).load()
        return run(advance, self.particles, self.steps, shared=(field, self.t, self.dt), chunk=20).carry


def advance(x: jax.Array, number: jax.Array, shared: Any) -> tuple[jax.Array, None]:
    """One RK4 step of all particles."""
    field, t, dt = shared

    def one(x: jax.Array) -> jax.Array:
        state = ParticleState(x, jnp.zeros_like(x), (), jnp.bool_(True))
        return RK4().step(field, state, t[number], dt[number]).position

    return jax.vmap(one)(x), None


def double_gyre(points: np.ndarray, t: float) -> np.ndarray:
    """Velocities of a double gyre whose middle swings, with a weak flow along the third axis."""
    x, y, z = points.T
    swing = 0.25 * np.sin(2 * np.pi * t / 10 * 3)
    inner = swing * x**2 + (1 - 2 * swing) * x
    slope = 2 * swing * x + 1 - 2 * swing
    u = -0.1 * np.pi * np.sin(np.pi * inner) * np.cos(np.pi * y)
    v = 0.1 * np.pi * np.cos(np.pi * inner) * np.sin(np.pi * y) * slope
    w = 0.02 * np.sin(np.pi * z) * np.cos(np.pi * y)
    return np.stack([u, v, w], -1).astype(np.float32)


def drop_from_cache(files: list[Path]) -> None:
    """Have the next read of these files come from the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def reading(report: harness.Report, job: Job, quick: bool) -> None:
    """How fast the files alone can be read, from the page cache and from the disk."""
    rows: dict[str, Any] = {}
    for name, cold in (("page cache", False), ("disk", True)):
        seconds = []
        for _ in range(2 if quick else 5):
            if cold:
                drop_from_cache(job.files)
            began = time.perf_counter()
            for file in job.files:
                np.load(file)
            seconds.append(time.perf_counter() - began)
        rows[name] = {"all_slices_s": min(seconds), "gb_per_second": job.data.nbytes / min(seconds) / 1e9}
    report.add("reading", rows, f"{len(job.files)} files, {job.data.nbytes / 1e6:.0f} MB; best of the rounds")


def streaming(report: harness.Report, job: Job, quick: bool) -> None:
    """The bar: at least 70 % of the speed of the same ring program fed from memory, with the same bits."""
    names = ("ring, from memory", "ring, from files", "ring, from cold files", "no ring, all resident")
    ways: dict[str, Callable[[], jax.Array]] = {
        names[0]: functools.partial(job.streamed, names[0], job.data),
        names[1]: functools.partial(job.streamed, names[1], job.files),
        names[2]: functools.partial(job.streamed, names[2], job.files, cold=True),
        names[3]: job.resident,
    }
    ends = {name: np.asarray(way()) for name, way in ways.items()}
    found = compare(ways, rounds=2 if quick else 3)
    rows = {}
    for name, figures in found.figures().items():
        rows[name] = {
            "median_s": figures["median_s"],
            "best_s": figures["best_s"],
            "million_particle_steps_per_second": len(job.particles) * job.steps / figures["best_s"] / 1e6,
            "speed_percent": 100 / figures["ratio"],
            "best_speed_percent": 100 / figures["best_ratio"],
            "waited_s": job.waited.get(name, 0.0),
            "same_bits": str(np.array_equal(ends[name], ends[names[0]])),
        }
    note = (
        f"{job.plan}; allowed {job.limit / 1e6:.1f} MB; {len(job.particles):,} particles, {job.steps} steps"
    )
    report.add("streaming", rows, note)


PARTS = {"reading": reading, "streaming": streaming}


def main() -> None:
    options = harness.parse(__doc__ or "")
    report = harness.Report("trace_streaming", options)
    sizes = (32, 28, 10_000) if options.quick else (64, 40, 100_000)
    folder = Path(tempfile.mkdtemp(prefix="slices-", dir=Path(__file__).resolve().parent))
    try:
        job = Job(folder, *sizes)
        for name, part in PARTS.items():
            if options.wants(name):
                part(report, job, options.quick)
    finally:
        shutil.rmtree(folder)
    report.finish()


if __name__ == "__main__":
    main()

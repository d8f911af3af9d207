"""The jobs of `compare_versions.py`, run by one source tree in a process of its own.

    PYTHONPATH=<tree>/src python benchmarks/versions/jobs.py JOB...

It prints a line of JSON when all jobs are compiled. For each name of a job on its input it runs that job once and answers
with wall and CPU seconds. What is written here uses public names that both versions have; programs that the benchmarks of a
version hold are taken from its own tree.
"""

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OWN_SOURCES = Path(__file__).resolve().parents[2] / "src"
TREE = Path(os.environ.get("PYTHONPATH", str(OWN_SOURCES)).split(os.pathsep)[0]).resolve().parent
BENCHMARKS = TREE / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "arc_peers"), str(BENCHMARKS / "trace_peers")]

Run = Callable[[], Any]


def _arc(observation: str) -> Run:
    import arc_program

    program = arc_program.Program(arc_program.large_canvas(), "bbox", 1024, observation, steps=64)
    program.warm_up(20.0)
    return program.call


def _trace(mesh: bool, particles: int, steps: int) -> Run:
    import job
    import numpy as np
    from ours import Ours

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = job.kuhn_mesh((35, 35, 35)) if mesh else None
        if found is not None:
            values = job.at_points(found.points, job.slice_times())
            job.save(folder / "tets", {**found._asdict(), "velocities": values})
        else:
            job.save(folder, {"velocities": job.series().velocities})
        np.save(folder / "seeds.npy", job.seeds(particles))
        tracer = Ours(folder, time="linear", mesh="tets" if mesh else None)
    return lambda: tracer.run(particles, steps)


def _geographic(particles: int, steps: int) -> Run:
    """Velocities in m/s on longitudes and latitudes."""
    import numpy as np

    sys.path.insert(0, str(TREE / "tests" / "support"))
    import geo_reference as geo

    from jaxtrace import create_tracker, load_optimized_dataset

    lon, lat, times, data = geo.ocean()
    field = load_optimized_dataset(
        geo.ocean_dataset(lon, lat, times, data), time_interpolation="linear", verbose=False
    )
    tracker = create_tracker(field=field)
    key = np.random.default_rng(1)
    seeds = np.stack([key.uniform(14, 41, particles), key.uniform(-46, -29, particles)], -1)
    span = (0.0, 3600.0 * steps)
    return lambda: tracker.track_particles(
        seeds.astype(np.float32), span, n_timesteps=2, dt=3600.0, progress=False
    )


def _driver(by_hand: bool) -> Run:
    import jax
    import jax.numpy as jnp

    from bench_core import grids, step
    from jaxworlds import run

    start = grids(1024)
    if by_hand:
        scan = jax.jit(lambda g: jax.lax.scan(step, g, jnp.arange(1024, dtype=jnp.int32))[0])
        return lambda: scan(start)
    return lambda: run(step, start, 1024, chunk=256).carry


def _choose() -> Run:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import acbo
    from acbo.experiments import problem_of

    prior = acbo.scm_prior(mechanisms="linear", variables=(10, 10))
    scm = acbo.sample_scm(jax.random.key(0), prior, size=16, units=0)
    data = jax.tree.map(np.asarray, acbo.sample_mixed(scm, jax.random.key(1), 64, 50))
    problem, policy = problem_of(scm), acbo.pretrained_policy()
    choose = eqx.filter_jit(lambda s, p, d, r, k: s.choose(p, d, r, k))

    def once() -> Any:
        for turn in range(8):
            there = jax.tree.map(jnp.asarray, data)
            choice = choose(policy, problem, there, jnp.asarray(5.0), jax.random.key(turn))
            np.asarray(choice.mask), np.asarray(choice.value)

    return once


def _ask() -> Run:
    """The next experiment of an optimizer, with beliefs that stand already and from the beginning."""
    import numpy as np
    import pandas as pd

    from acbo import Optimizer

    names = [f"x{number}" for number in range(9)]
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(draw.normal(size=(64, 9)), columns=names)
    rows["y"] = rows["x0"] - rows["x1"] + 0.1 * draw.normal(size=64)
    variables = dict.fromkeys(names, (-2.0, 2.0)) | {"y": None}

    def once() -> Any:
        optimizer = Optimizer(variables, target="y", data=rows, seed=1)
        for _ in range(2):
            optimizer.ask()

    return once


def _zarr(kind: str, job: str) -> Run:
    """Opening a Zarr store, or reading all its slices in turn, or particles through it while it streams."""
    import warnings

    import numcodecs
    import numpy as np
    import xarray
    import zarr

    from jaxtrace import create_tracker, load_optimized_dataset
    from jaxtrace.io import open_dataset

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "ocean.zarr"
    rng, shape = np.random.default_rng(0), (48, 200, 300)
    data = {
        name: (("time", "y", "x"), rng.normal(size=shape).astype("f4"), {"units": "m s-1"}) for name in "uv"
    }
    places = {name: (name, np.arange(float(n)), {"units": "m"}) for name, n in (("y", 200), ("x", 300))}
    clock = {"time": ("time", 3600.0 * np.arange(48), {"units": "seconds since 2024-03-01"})}
    packing: dict[str, tuple[int, dict[str, Any]]] = {
        "format 2, Blosc": (2, {"chunks": (8, 100, 150), "compressors": numcodecs.Blosc("lz4")}),
        "format 3, Zstandard": (3, {"chunks": (8, 100, 150), "compressors": zarr.codecs.ZstdCodec()}),
        "format 3, shards": (3, {"chunks": (4, 50, 75), "shards": (8, 200, 300)}),
    }
    version, encoding = packing[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xarray.Dataset(data, {**places, **clock}).to_zarr(
            path, zarr_format=version, consolidated=False, encoding=dict.fromkeys("uv", encoding)
        )

    def opening() -> None:
        open_dataset(path)

    def reading() -> None:
        opened = open_dataset(path)
        for number in range(len(opened)):
            opened.read(number)

    seeds = rng.uniform([50, 50], [250, 150], (1000, 2)).astype(np.float32)
    field = load_optimized_dataset(path, stream=True, verbose=False)
    tracker = create_tracker(field=field)

    def tracking() -> Any:
        return tracker.track_particles(seeds, (0.0, 47 * 3600.0), n_timesteps=2, dt=1800.0, progress=False)

    runs: dict[str, Run] = {"open": opening, "read 48 slices": reading, "track 1,000 particles": tracking}
    run = runs[job]
    run.__dict__["folder"] = folder  # the store is kept as long as the job
    return run


ZARR = {
    f"jaxtrace, Zarr, {kind}: {job}": (kind, job)
    for kind in ("format 2, Blosc", "format 3, Zstandard", "format 3, shards")
    for job in ("open", "read 48 slices", "track 1,000 particles")
}
JOBS: dict[str, Callable[[], Run]] = {
    "jaxarc, 30×30, packed observation, B=1,024": lambda: _arc("packed"),
    "jaxarc, 30×30, default observation, B=1,024": lambda: _arc("default (int8, input, clipboard)"),
    "jaxtrace, regular grid, 100,000 particles": lambda: _trace(False, 100_000, 40),
    "jaxtrace, tetrahedra, 100,000 particles": lambda: _trace(True, 100_000, 20),
    "jaxtrace, longitudes and latitudes, 100,000 particles": lambda: _geographic(100_000, 40),
    "core, `run`, 1,024 worlds": lambda: _driver(by_hand=False),
    "core, hand-written scan, 1,024 worlds": lambda: _driver(by_hand=True),
    "acbo, 8 choices of the policy": _choose,
    "acbo, a new optimizer and two of its `ask`": _ask,
    **{name: functools.partial(_zarr, *given) for name, given in ZARR.items()},
}


def main() -> None:
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    # Libraries print to the standard output; replies must not mix with that.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ready = {name: JOBS[name]() for name in sys.argv[1:]}
    for once in ready.values():
        for _ in range(2):
            jax.block_until_ready(once())
    import jaxworlds

    replies.write(json.dumps({"from": str(Path(jaxworlds.__file__).parents[1])}) + "\n")
    for line in sys.stdin:
        once = ready[line.strip()]
        cpu, wall = time.process_time(), time.perf_counter()
        jax.block_until_ready(once())
        took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        replies.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main()

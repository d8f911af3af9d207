"""What the core costs: the driver, taps, memory prediction, the persistent cache, and the import.

    python benchmarks/bench_core.py [--quick] [--only driver|taps|memory|cache|import]

Every figure stands next to its peer in the same interleaved run: a hand-written `lax.scan`, the program without
taps, the memory that was really taken, the process without a cache, `import jax` alone.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

import jax
import jax.numpy as jnp

import harness
from jaxworlds.measuring import compare
from jaxworlds.rollout import run
from jaxworlds.taps import flush_taps, reset_tap_stats, tap, taps_off, taps_on

SIZE = 30
WORLDS = (1, 64, 1024)


def grids(worlds: int) -> jax.Array:
    return jax.random.randint(jax.random.key(worlds), (worlds, SIZE, SIZE), 0, 10, jnp.int32)


def advance(grid: jax.Array) -> jax.Array:
    """One world: a cellular automaton on a 30×30 grid of ten colours."""
    around = sum(jnp.roll(grid, s, a) for s in (1, -1) for a in (0, 1))
    return (3 * grid + 7 * around + 1) % 10


def step(worlds: jax.Array, t: Any) -> tuple[jax.Array, None]:
    return jax.vmap(advance)(worlds), None


def tapped_step(worlds: jax.Array, t: Any) -> tuple[jax.Array, None]:
    worlds = jax.vmap(advance)(worlds)
    tap("bench", worlds[0], lambda grid: None)
    return worlds, None


def length_for(worlds: int, quick: bool) -> int:
    """Steps that take about half a second, on two cores or on a GPU."""
    on_cpu = jax.default_backend() == "cpu"
    steps = {1: 204_800, 64: 10_240, 1024: 512}[worlds] if on_cpu else 20_480
    return max(128, steps // 10 if quick else steps)


def driver(report: harness.Report, quick: bool) -> None:
    """The driver against a hand-written scan of the same step."""
    rows: dict[str, Any] = {}
    for worlds in WORLDS:
        length = length_for(worlds, quick)
        found = compare(_drivers(grids(worlds), length), rounds=5 if quick else 15)
        for name, figures in found.figures().items():
            rate = worlds * length / figures["median_s"]
            rows[f"{worlds:,} worlds: {name}"] = {**_short(figures), "world_steps_per_second": rate}
    note = "ratio to the hand-written scan of the same number of worlds; `the same again` shows the noise"
    report.add("driver against a hand-written scan", rows, note)

    # The bar, with many short rounds: noise on a shared machine comes in bursts, which rounds must be shorter than.
    length = 256 if jax.default_backend() == "cpu" else 20_480
    ways = _drivers(grids(1024), length, chunk=length // 4)
    three = {name: ways[name] for name in ("hand-written scan", "the same again", "run")}
    found = compare(three, rounds=10 if quick else 151)
    rows = {name: _short(figures) for name, figures in found.figures().items()}
    report.add("driver, 1,024 worlds", rows, f"{length} steps in 4 chunks, {len(found.order)} rounds")


def _short(figures: dict[str, float]) -> dict[str, float]:
    names = ("median_s", "best_s", "ratio", "ratio_low", "ratio_high", "cpu_ratio", "best_ratio")
    return {name: figures[name] for name in names}


def _drivers(start: jax.Array, length: int, chunk: int | None = None) -> dict[str, Any]:
    by_hand = jax.jit(lambda g: jax.lax.scan(step, g, jnp.arange(length, dtype=jnp.int32))[0])
    return {
        "hand-written scan": lambda: by_hand(start),
        "the same again": lambda: by_hand(start),
        "run": lambda: run(step, start, length, chunk=chunk).carry,
        "run, records every 100": lambda: run(recorded_step, start, length, record_every=100).records,
        "run, watched between chunks": lambda: run(step, start, length, observe=_mean, on_chunk=_look).carry,
    }


def recorded_step(worlds: jax.Array, t: Any) -> tuple[jax.Array, jax.Array]:
    worlds, _ = step(worlds, t)
    return worlds, worlds[0]


def _mean(worlds: jax.Array) -> jax.Array:
    return worlds.mean()


def _look(chunk: Any) -> None:
    float(chunk.observed)


def taps(report: harness.Report, quick: bool) -> None:
    """A tap of one grid: off, sampled, and at every step, against the step without a tap."""
    rows: dict[str, Any] = {}
    with taps_off():
        off = _lowered_text(tapped_step)
    with taps_on():
        on = _lowered_text(tapped_step)
    identical = off == _lowered_text(plain_step_with_the_same_values)
    for worlds in WORLDS:
        length = {1: 4096, 64: 2048, 1024: 512}[worlds] // (4 if quick else 1)
        found = compare(_tapped(grids(worlds), length), rounds=5 if quick else 15)
        flush_taps()
        reset_tap_stats()
        for name, figures in found.figures().items():
            rows[f"{worlds:,} worlds: {name}"] = {
                **_short(figures),
                "us_per_step": 1e6 * figures["median_s"] / length,
            }
    note = f"lowered program with taps off identical to the one without: {identical}; with taps on it differs: {on != off}"
    report.add("taps", rows, note)

    length = 300 if jax.default_backend() == "cpu" else 20_000
    ways = _tapped(grids(1024), length)
    four = {
        name: ways[name] for name in ("no tap in the code", "the same again", "tap, off", "tap, every 100")
    }
    found = compare(four, rounds=10 if quick else 101)
    rows = {name: _short(figures) for name, figures in found.figures().items()}
    report.add(
        "taps, 1,024 worlds",
        rows,
        f"{length} steps, {len(found.order)} rounds; the tap carries one grid of 30×30",
    )


def _tapped(start: jax.Array, length: int) -> dict[str, Any]:
    def tap_run(enabled: bool, every: int) -> jax.Array:
        with taps_on() if enabled else taps_off():
            return run(tapped_step, start, length, tap_every=every).carry

    return {
        "no tap in the code": lambda: run(step, start, length).carry,
        "the same again": lambda: run(step, start, length).carry,
        "tap, off": lambda: tap_run(False, 1),
        "tap, every 100": lambda: tap_run(True, 100),
        "tap, every step": lambda: tap_run(True, 1),
    }


def plain_step_with_the_same_values(worlds: jax.Array, t: Any) -> tuple[jax.Array, None]:
    worlds = jax.vmap(advance)(worlds)
    return worlds, None


def _lowered_text(fn: Any) -> str:
    def program(worlds: jax.Array) -> Any:
        return jax.lax.scan(fn, worlds, jnp.arange(10, dtype=jnp.int32))[0]

    return jax.jit(program).lower(grids(64)).as_text()


MEMORY_PROGRAMS = {
    "scan, stacked grids": """
        def program(x):
            return jax.lax.scan(lambda c, t: (c * 3 + t, c), x, jnp.arange(32))
        shape = (int(BYTES / 33 / 3600), 30, 30)
    """,
    "sort and reverse": """
        def program(x):
            return jnp.sort(x, axis=0) + x[::-1]
        shape = (int(BYTES / 6 / 4),)
    """,
    "Fourier transform": """
        def program(x):
            return jnp.fft.fft(jax.lax.complex(x, x))
        shape = (int(BYTES / 28 / 1000) * 1000,)
    """,
    "top-k": """
        def program(x):
            return jax.lax.top_k(x, x.size // 2)
        shape = (int(BYTES / 12 / 1000) * 1000,)
    """,
    "gradient through a scan": """
        def program(x):
            loss = lambda y: jax.lax.scan(lambda c, t: (jnp.tanh(c * 1.01 + t), None), y, jnp.arange(16.0))[0].sum()
            return jax.grad(loss)(x)
        shape = (int(BYTES / 19 / 4),)
    """,
    "matrix products": """
        def program(x):
            y = jnp.tanh(x @ x)
            return y @ x + y
        shape = (int((BYTES / 4 / 4) ** 0.5),) * 2
    """,
}


def memory(report: harness.Report, quick: bool) -> None:
    """Peak bytes predicted from the compiled program against what the process really took."""
    rows = {}
    for name, source in MEMORY_PROGRAMS.items():
        sizes = (150, 600) if jax.default_backend() == "cpu" else (600, 4800)
        for megabytes in sizes[:1] if quick else sizes:
            found = _memory_probe(
                MEMORY_PROBE.replace("PROGRAM", textwrap.dedent(source)).replace("BYTES", f"{megabytes}e6")
            )
            error = found["predicted"] / found["measured"] - 1
            rows[f"{name}, {megabytes} MB"] = {
                "predicted_mb": found["predicted"] / 1e6,
                "measured_mb": found["measured"] / 1e6,
                "error_percent": 100 * error,
            }
    report.add(
        "memory prediction",
        rows,
        "measured: arguments + growth of the peak (resident set, or the GPU's own count), in a process of its own",
    )


MEMORY_PROBE = """
import json, gc, re
import jax, jax.numpy as jnp, numpy as np
from jaxworlds.memory import predict_memory
PROGRAM
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
device = jax.local_devices()[0]
on_gpu = device.platform == "gpu"
program = jax.jit(program)
predicted = predict_memory(program, jax.ShapeDtypeStruct(shape, jnp.float32)).peak
compiled = program.lower(jax.ShapeDtypeStruct(shape, jnp.float32)).compile()
if not on_gpu:   # start the thread pools; a GPU's peak cannot be forgotten, so nothing may come before
    jax.block_until_ready(jax.jit(lambda a: jnp.sort(a) @ a)(jnp.ones((64, 64))))
rows = np.random.default_rng(0).random(shape[-1], dtype=np.float32)
x = jax.block_until_ready(jax.device_put(np.broadcast_to(rows, shape).copy()))
del rows; gc.collect()
if not on_gpu:
    open("/proc/self/clear_refs", "w").write("5")   # forget the peak so far
before = device.memory_stats()["bytes_in_use"] if on_gpu else resident()
out = jax.block_until_ready(compiled(x))
after = device.memory_stats()["peak_bytes_in_use"] if on_gpu else peak()
print(json.dumps({"predicted": predicted, "measured": x.nbytes + after - before}))
"""


def _in_process(code: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"the probe failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _memory_probe(code: str) -> dict[str, Any]:
    """Compile in one process, measure in the next: tuning kernels takes device memory too, which is not the program's."""
    if jax.default_backend() == "cpu":
        return _in_process(code)
    with tempfile.TemporaryDirectory() as folder:
        kept = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        _in_process(code, **kept)
        return _in_process(code, **kept)


CACHE_PROBE = """
import json, sys, time
began = time.perf_counter()
import jax, jax.numpy as jnp, jaxworlds
jaxworlds.configure(cache_dir=sys.argv[1] if len(sys.argv) > 1 else "FOLDER")
def op(k):
    return lambda g: jnp.where(jnp.sort(g, axis=0) > k, jnp.roll(g, k, 1), g[::-1] * k)
def step(g, t):
    ops = [op(k) for k in range(36)]
    return jax.vmap(lambda g, i: jax.lax.switch(i, ops, g), in_axes=(0, 0))(g, (g[:, 0, 0] + t) % 36), None
imported = time.perf_counter()
from jaxworlds import run
run(step, jnp.zeros((64, 30, 30), jnp.int32), 20)
done = time.perf_counter()
run(step, jnp.zeros((64, 30, 30), jnp.int32), 20)
print(json.dumps({"first_call_s": done - imported, "process_s": done - began, "second_call_s": time.perf_counter() - done}))
"""


def cache(report: harness.Report, quick: bool) -> None:
    """First call of a 36-branch rollout in a fresh process: no cache, an empty cache, a warm one."""
    rounds = 1 if quick else 3
    found: dict[str, list[dict[str, float]]] = {"no cache": [], "empty cache": [], "warm cache": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, where in (("no cache", "off"), ("empty cache", folder), ("warm cache", folder)):
                found[name].append(
                    _in_process(CACHE_PROBE.replace("FOLDER", where), JAXWORLDS_CACHE_DIR="off")
                )
    rows = {
        name: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for name, results in found.items()
    }
    report.add("persistent cache", rows, f"median of {rounds} fresh processes each, interleaved")


def imports(report: harness.Report, quick: bool) -> None:
    """Wall time of a fresh interpreter that imports jax, alone and with jaxworlds."""
    commands = {
        "import jax": "import jax",
        "import jax, jaxworlds": "import jax, jaxworlds",
        "and everything at its top": "import jax, jaxworlds; [getattr(jaxworlds, n) for n in jaxworlds.__all__]",
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(3 if quick else 15):
        for name, code in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[name].append(time.perf_counter() - began)
    base = statistics.median(times["import jax"])
    rows = {
        name: {"median_s": statistics.median(t), "best_s": min(t), "added_s": statistics.median(t) - base}
        for name, t in times.items()
    }
    report.add("import", rows)


PARTS = {"driver": driver, "taps": taps, "memory": memory, "cache": cache, "import": imports}


def main() -> None:
    options = harness.parse(__doc__ or "")
    chosen = {name: part for name, part in PARTS.items() if options.wants(name)}
    if not chosen:
        raise SystemExit(f"`--only` must be part of one of {', '.join(PARTS)}; got {options.only!r}.")
    report = harness.Report("core", options)
    for part in chosen.values():
        part(report, options.quick)
    report.finish()


if __name__ == "__main__":
    main()

"""`make demo`: the core runs one small real world, proves its promises on it, and writes a page to look at.

The world is the Gray–Scott reaction–diffusion system (Pearson, Science 261, 1993): two substances on a torus, one
feeding on the other. Each world has its own feed and kill rate, so one program draws the whole map of patterns.
"""

import html
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from . import pictures
from .compiling import CompileWatch
from .memory import predict_memory
from .rollout import Rollout, resume, run
from .runtime import RuntimeReport, runtime_report

# Rates of Pearson's map that hold spots, worms, mazes and dividing cells.
FEED = (0.018, 0.026, 0.034, 0.042, 0.050, 0.058)
KILL = (0.053, 0.056, 0.0585, 0.061, 0.063, 0.065)


class GrayScott(eqx.Module):
    """One world: the two concentrations, and the two rates that make its pattern."""

    u: Float[Array, "*worlds size size"]
    v: Float[Array, "*worlds size size"]
    feed: Float[Array, "*worlds"]
    kill: Float[Array, "*worlds"]


def start(key: PRNGKeyArray, feed: Float[Array, ""], kill: Float[Array, ""], size: int) -> GrayScott:
    """A calm dish with a few seeded squares, noisy enough to break every symmetry."""
    key_place, key_noise = jr.split(key)
    corners = jr.randint(key_place, (6, 2), 0, size)
    rows = jnp.arange(size)
    near = (
        (rows[None] - corners[:, :1]) % size < size // 8,
        (rows[None] - corners[:, 1:]) % size < size // 8,
    )
    seeded = jnp.any(near[0][:, :, None] & near[1][:, None, :], axis=0)
    noise = 0.02 * jr.normal(key_noise, (size, size))
    u = jnp.where(seeded, 0.5, 1.0) + noise
    v = jnp.where(seeded, 0.25, 0.0) + jnp.abs(noise)
    return GrayScott(u, v, feed, kill)


def laplacian(field: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Nine-point Laplacian on the torus."""
    up, down = jnp.roll(field, 1, 0), jnp.roll(field, -1, 0)
    rows = up + down
    beside = jnp.roll(field, 1, 1) + jnp.roll(field, -1, 1)
    corners = jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1)
    return 0.2 * (rows + beside) + 0.05 * corners - field


def advance(world: GrayScott) -> GrayScott:
    """One explicit Euler step of du = Du ∇²u − uv² + F(1−u), dv = Dv ∇²v + uv² − (F+k)v, with dt = 1."""
    reaction = world.u * world.v**2
    u = world.u + 1.0 * laplacian(world.u) - reaction + world.feed * (1 - world.u)
    v = world.v + 0.5 * laplacian(world.v) + reaction - (world.feed + world.kill) * world.v
    return GrayScott(u, v, world.feed, world.kill)


def step(worlds: GrayScott, t: Any) -> tuple[GrayScott, Any]:
    """The step of all worlds, as the driver takes it; what it shows is the second substance."""
    worlds = jax.vmap(advance)(worlds)
    return worlds, worlds.v


def dishes(size: int = 64) -> GrayScott:
    """One dish for every pair of rates."""
    feed, kill = (jnp.asarray(g.ravel(), jnp.float32) for g in np.meshgrid(FEED, KILL, indexing="ij"))
    keys = jr.split(jr.key(1993), len(feed))
    return jax.jit(jax.vmap(start, in_axes=(0, 0, 0, None)), static_argnums=3)(keys, feed, kill, size)


def demo(out: Path, *, steps: int = 6000, size: int = 64) -> Path:
    """Run the demo and return the page it wrote."""
    from rich.console import Console

    console = Console()
    began = time.perf_counter()
    report = runtime_report()
    console.print(
        f"[bold]jaxworlds[/] on {len(report.devices)} × {report.devices[0].kind}, jax {report.jax}\n"
    )
    worlds = dishes(size)
    stride = max(1, steps // 24)
    chunk = stride * max(1, 250 // stride)

    with CompileWatch() as watch:
        whole = run(step, worlds, steps, chunk=chunk, record_every=stride)
    console.print(f"Gray–Scott, {size}×{size} cells: {whole}")

    folder = out / "checkpoint"
    half = chunk * max(1, steps // chunk // 2)
    from .checkpoints import Checkpoint

    broken = run(
        step,
        worlds,
        steps,
        chunk=chunk,
        record_every=stride,
        checkpoint=Checkpoint(folder, overwrite=True),
        on_chunk=lambda c: c.step >= half,
    )
    again = resume(step, worlds, folder)
    same = all(
        np.array_equal(a, b)
        for a, b in zip(
            jax.tree.leaves((whole.carry, whole.records)),
            jax.tree.leaves((again.carry, again.records)),
            strict=True,
        )
    )
    stop = f"stopped at step {broken.step:,}, resumed to {again.step:,}"
    console.print(f"Checkpoint: {stop}; bits {'equal' if same else 'DIFFER'}")
    memory = predict_memory(jax.jit(jax.vmap(advance)), worlds)
    console.print(f"Memory of one step, predicted from the program: {memory.peak / 1e6:.1f} MB")

    frames = _frames(whole, size)
    if console.is_terminal:
        console.print(pictures.terminal(frames[-1], width=72))
    page = _page(report, whole, stop, same, watch, memory.peak, frames)
    from .store import atomic_write

    path = out / "index.html"
    with atomic_write(path) as file:
        file.write(page.encode())
    console.print(_next_steps())
    console.print(f"\nReport: [bold]{path}[/] ({time.perf_counter() - began:.1f} s)")
    if not same:
        raise SystemExit(
            "the resumed run does not have the bits of the uninterrupted one: please report this"
        )
    return path


def _frames(whole: Rollout, size: int) -> list[np.ndarray]:
    shape = (len(FEED), len(KILL), size, size)
    return [pictures.levels(pictures.mosaic(v.reshape(shape)), 0.0, 0.4) for v in whole.records]


def _next_steps() -> str:
    return (
        "\nThis is the core. Next on it: [bold]jaxarc[/] (ARC puzzles as environments), [bold]jaxtrace[/] (particle "
        "tracking),\n[bold]acbo[/] (causal Bayesian optimization). Try also: jaxworlds doctor, make bench, make docs."
    )


def _page(
    report: RuntimeReport,
    whole: Rollout,
    stop: str,
    same: bool,
    watch: CompileWatch,
    peak: int,
    frames: list[np.ndarray],
) -> str:
    cells = whole.worlds * frames[0].shape[0] // len(FEED) * (frames[0].shape[1] // len(KILL))
    rows = {
        "worlds × steps": f"{whole.worlds} × {whole.step:,}",
        "rate": f"{whole.world_steps_per_second:,.0f} world-steps/s "
        f"({whole.world_steps_per_second * cells / whole.worlds / 1e6:,.0f} million cell updates/s)",
        "time": f"{whole.seconds:.2f} s, of which {whole.compile_seconds:.2f} s tracing and compiling",
        "checkpoint": f"{stop}; bits {'equal to' if same else 'DIFFERENT from'} the uninterrupted run",
        "memory of one step": f"{peak / 1e6:.1f} MB, predicted from the compiled program",
    }
    table = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
    movie, still = (
        pictures.data_uri(p) for p in (pictures.animated_png(frames, 120), pictures.png(frames[-1]))
    )
    kills = "".join(f"<span>{k:g}</span>" for k in KILL)
    feeds = "".join(f"<span>{f:g}</span>" for f in FEED)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>jaxworlds demo</title><style>
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}}
h1{{margin-bottom:0}} table{{border-collapse:collapse;margin:1rem 0}} th,td{{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ddd}}
figure{{margin:1.5rem 0}} .map{{display:grid;grid-template-columns:3rem min(36rem,80vw);gap:.3rem}} .map img{{width:100%;image-rendering:pixelated}}
.feed{{display:flex;flex-direction:column;justify-content:space-around;text-align:right;font-size:.8rem}}
.kill{{grid-column:2;display:flex;justify-content:space-around;font-size:.8rem}} pre{{background:#f5f5f5;padding:1rem;overflow:auto}}
</style><h1>jaxworlds</h1><p>Three scientific systems on one JAX core. This page was written by <code>make demo</code>.</p>
<h2>One program, {whole.worlds} worlds</h2><p>The Gray–Scott reaction–diffusion system: every tile is a world with its own feed rate
(rows) and kill rate (columns), all stepped by one compiled program. Yellow is the feeding substance.</p>
<figure><div class="map"><div class="feed">{feeds}</div><img src="{movie}" alt="Growth of the patterns in all worlds">
<div class="kill">{kills}</div></div><figcaption>From the seeds to step {whole.step:,}. Rows: feed rate F. Columns: kill rate k.</figcaption></figure>
<details><summary>The last step as a still picture</summary><img src="{still}" alt="Patterns at the last step" style="width:min(36rem,80vw)"></details>
<h2>What was measured here</h2><table>{table}</table><h2>Compilations of the run</h2><pre>{html.escape(watch.report())}</pre>
<h2>Where it ran</h2><pre>{html.escape(str(report))}</pre>
<h2>What comes next</h2><ul><li><b>jaxarc</b>: ARC puzzles as reinforcement-learning environments</li>
<li><b>jaxtrace</b>: particles through time-dependent velocity fields</li><li><b>acbo</b>: which experiment next, when the causal graph is unknown</li></ul></html>
"""

"""`make demo`: the core runs one small real world, proves its promises on it, and writes a page to look at.

The world is the Gray–Scott reaction–diffusion system (Pearson, Science 261, 1993): two substances on a torus, one
feeding on the other. Each world has its own feed and kill rate, so one program draws the whole map of patterns.
"""

import contextlib
import dataclasses
import html
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from string import Template
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import pictures
from ..compiling import CompileWatch
from ..memory import predict_memory
from ..processes.exits import Terminated
from ..rollout import Checkpoint, Rollout, resume, run
from ..runtime import RuntimeReport, runtime_report
from ..store import atomic_write
from ..text import format_seconds
from ._output import people_console

_EXTRA = re.compile(r"jaxworlds\[([a-z]+)\]")
GROUP = "jaxworlds.demos"
"""Entry points of this group are functions `(out, console) -> Section`: each system adds its own part of the demo."""

# Rates of Pearson's map that hold spots, worms, mazes and dividing cells.
FEED = (0.018, 0.026, 0.034, 0.042, 0.050, 0.058)
KILL = (0.053, 0.056, 0.0585, 0.061, 0.063, 0.065)

TRY = {"jaxworlds doctor": "whether all is well with this machine"}
"""What to try after the demo besides the commands that the sections bring, and what it shows."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """A speed that was measured here: `value` of `unit` (`s/…` is seconds for one), without the seconds of compiling."""

    job: str
    value: float
    unit: str
    compile_seconds: float

    def __str__(self) -> str:
        if self.unit.startswith("s/"):
            return f"{format_seconds(self.value)} per {self.unit[2:]}"
        return f"{self.value:,.0f} {self.unit}"


@dataclasses.dataclass(frozen=True)
class Section:
    """One system's part of the demo's page: a heading, what stands under it as HTML, how fast it was, and why to look."""

    title: str
    body: str
    speeds: tuple[Speed, ...] = ()
    summary: str = ""
    to_try: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Commands to try afterwards, and what each shows."""


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
    near = (rows - corners[:, :, None]) % size < size // 8  # of each square: its rows, its columns
    seeded = jnp.any(near[:, 0, :, None] & near[:, 1, None, :], axis=0)
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
    """Run the demo and return the page it wrote. Raises if a promise does not hold."""
    from rich.markup import escape
    from rich.table import Table

    console = people_console()
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    report = runtime_report()
    parts = _parts()
    devices = f"{len(report.devices)} × {report.devices[0].kind}"
    console.print(
        f"[bold]jaxworlds[/] on {escape(devices)}, {report.cores} cores, jax {report.jax}", highlight=False
    )
    console.print("This takes a minute or two; most of it is compiling.\n")
    core, machinery = _core(out, console, steps, size, len(parts) + 1)
    sections, missing = [], {}
    for number, part in enumerate(parts, start=2):
        started = time.perf_counter()
        console.print(f"\n[dim]{number}/{len(parts) + 1}[/]", end=" ")
        section, error = _section(part, out, console)
        sections.append(section)
        if error is not None:
            missing[part.name] = error
        console.print(f"[dim]{time.perf_counter() - started:.0f} s[/]")
    path = out / "index.html"
    with atomic_write(path, "w") as file:
        file.write(_page(report, core, machinery, sections, missing, time.perf_counter() - began))
    console.print()
    table = Table("measured here", "speed", "compiling", title="")
    for speed in _speeds(sections, core):
        table.add_row(escape(speed.job), escape(str(speed)), format_seconds(speed.compile_seconds))
    console.print(table)
    console.print(f"\nTry also:\n{_to_try(sections, missing)}", highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"\nReport: [bold]{escape(str(path))}[/] ({time.perf_counter() - began:.1f} s)", soft_wrap=True
    )
    return path


@dataclasses.dataclass(frozen=True)
class Core:
    """Results of the core's own part of the demo."""

    whole: Rollout
    resumed: str
    peak: int
    frames: list[np.ndarray]

    @property
    def speed(self) -> Speed:
        """Of the uninterrupted run."""
        side = self.whole.carry.u.shape[-1]
        job = f"core: Gray–Scott, {self.whole.worlds} worlds of {side}×{side} cells"
        return Speed(job, self.whole.world_steps_per_second, "world-steps/s", self.whole.compile_seconds)


def _core(out: Path, console: Any, steps: int, size: int, parts: int) -> tuple[Core, CompileWatch]:
    """Run all dishes, stop and resume them, and predict their memory."""
    console.print(f"[dim]1/{parts}[/] [bold]the core[/]: one program, many worlds")
    worlds = dishes(size)
    stride = max(1, steps // 24)
    with CompileWatch() as watch:
        # At least four chunks, so that there is a middle to stop in.
        chunk = stride * max(1, min(250 // stride, steps // stride // 4))
        whole = _unbroken(run(step, worlds, steps, chunk=chunk, record_every=stride))
    console.print(f"Gray–Scott, {size}×{size} cells: {whole}")
    with tempfile.TemporaryDirectory(dir=out, prefix="checkpoint-") as folder:
        resumed = _stop_and_resume(worlds, whole, stride, Path(folder))
    console.print(f"Checkpoint: {resumed}")
    memory = predict_memory(jax.jit(jax.vmap(advance)), worlds)
    console.print(f"Memory of one step, predicted from the program: {memory.peak / 1e6:.1f} MB")
    shape = (len(FEED), len(KILL), size, size)
    frames = [pictures.levels(pictures.mosaic(v.reshape(shape)), 0.0, 0.4) for v in whole.records]
    if console.is_terminal:
        console.print(pictures.terminal(frames[-1], width=72))
    return Core(whole, resumed, memory.peak, frames), watch


def _speeds(sections: Sequence[Section], core: Core) -> list[Speed]:
    """Those of the systems, then the core's."""
    return [*(speed for section in sections for speed in section.speeds), core.speed]


def _to_try(sections: Sequence[Section], missing: Mapping[str, str]) -> str:
    """Commands to try, with the path of the environment unless it is active.

    `missing` holds the errors of parts that could not be shown: in place of their commands stands the way to get them.
    """
    here = os.path.relpath(os.path.dirname(sys.executable))
    lines = {
        (words if shutil.which(words.split()[0]) else os.path.join(here, words)): what
        for group in (*(section.to_try for section in sections), TRY)
        for words, what in group.items()
    }
    extras = sorted({extra for error in missing.values() for extra in _EXTRA.findall(error)})
    if extras:
        active = os.path.dirname(shutil.which("pip") or "") == os.path.dirname(sys.executable)
        pip = "pip" if active else f"{os.path.join(here, 'python')} -m pip"
        lines[f"{pip} install 'jaxworlds[{','.join(extras)}]'"] = (
            f"what {', '.join(missing)} need to be shown"
        )
    width = max(map(len, lines))
    return "\n".join(f"  {words:<{width}}  # {what}" for words, what in lines.items())


def _unbroken(result: Rollout) -> Rollout:
    """Return the result of a finished run; raise if it was interrupted."""
    if result.outcome in ("interrupted", "terminated"):
        raise Terminated if result.outcome == "terminated" else KeyboardInterrupt
    return result


def _stop_and_resume(worlds: GrayScott, whole: Rollout, stride: int, folder: Path) -> str:
    """Stop a second run half-way, resume it from disk, and compare every bit with the run that was not stopped."""
    half = lambda chunk: chunk.step >= whole.length // 2  # noqa: E731
    job: dict[str, Any] = {"chunk": whole.chunk, "record_every": stride, "on_chunk": half}
    broken = _unbroken(run(step, worlds, whole.length, checkpoint=Checkpoint(folder, overwrite=True), **job))
    if broken.finished:
        short = f"a run of {whole.length} steps is too short to be stopped in the middle"
        raise RuntimeError(f"{short}. Take more `steps`.")
    again = _unbroken(resume(step, worlds, folder))
    ends = [jax.tree.leaves((found.carry, found.records)) for found in (whole, again)]
    if not all(np.array_equal(a, b) for a, b in zip(*ends, strict=True)):
        raise RuntimeError(
            "the resumed run does not have the bits of the uninterrupted one. Please report this."
        )
    return (
        f"stopped at step {broken.step:,}, resumed to {again.step:,}; every bit equals the uninterrupted run"
    )


def _parts() -> list[EntryPoint]:
    """Parts of the installed systems, by name of their entry points."""
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _section(part: EntryPoint, out: Path, console: Any) -> tuple[Section, str | None]:
    """The section of one system, and the error if a package it needs is missing."""
    from rich.markup import escape

    try:
        return part.load()(out, console), None
    except ImportError as error:
        console.print(f"[bold]{escape(part.name)}[/] is not shown: {escape(str(error))}")
        return Section(part.name, f"<p>Not shown: {html.escape(str(error))}</p>"), str(error)


def _page(
    report: RuntimeReport,
    core: Core,
    watch: CompileWatch,
    sections: list[Section],
    missing: Mapping[str, str],
    seconds: float,
) -> str:
    whole = core.whole
    rate = whole.world_steps_per_second
    cells = whole.carry.u.shape[-1] * whole.carry.u.shape[-2]
    rows = {
        "worlds × steps": f"{whole.worlds} × {whole.step:,}",
        "rate": f"{rate:,.0f} world-steps/s ({rate * cells / 1e6:,.0f} million cell updates/s)",
        "time": f"{whole.seconds:.2f} s, of which {whole.compile_seconds:.2f} s tracing and compiling",
        "checkpoint": core.resumed,
        "memory of one step": f"{core.peak / 1e6:.1f} MB, predicted from the compiled program",
    }
    devices = f"{len(report.devices)} × {report.devices[0].kind} ({report.cpu}, {report.cores} cores)"
    template = resources.files("jaxworlds.commands").joinpath("demo_page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        seconds=f"{seconds:.0f}",
        worlds=whole.worlds,
        step=f"{whole.step:,}",
        feeds="".join(f"<span>{f:g}</span>" for f in FEED),
        kills="".join(f"<span>{k:g}</span>" for k in KILL),
        movie=pictures.data_uri(pictures.animated_png(core.frames, 120)),
        still=pictures.data_uri(pictures.png(core.frames[-1])),
        table=facts_table(*rows.items()),
        speeds=facts_table(
            *((one.job, str(one), format_seconds(one.compile_seconds)) for one in _speeds(sections, core)),
            heads=("job", "speed", "tracing and compiling"),
        ),
        where=html.escape(
            f"{devices}, jax {report.jax}, jaxlib {report.jaxlib}, Python {report.python}, "
            f"{time.strftime('%Y-%m-%d %H:%M')}"
        ),
        compilations=html.escape(watch.report()),
        machine=html.escape(str(report)),
        commands=html.escape(_to_try(sections, missing)),
        contents="".join(_card(number, part) for number, part in enumerate(sections)),
        systems="".join(
            f'<section id="part{number}">\n<h2>{html.escape(part.title)}</h2>\n{part.body}\n</section>\n'
            for number, part in enumerate(sections)
        ),
    )


def _card(number: int, part: Section) -> str:
    """The link to a section, with why to follow it."""
    name, _, rest = part.title.partition(": ")
    said = part.summary or rest[:1].upper() + rest[1:]
    return f'<a href="#part{number}"><b>{html.escape(name)}</b><span>{html.escape(said)}</span></a>\n'


def waiting(console: Any, words: str) -> contextlib.AbstractContextManager[Any]:
    """Within this block, a terminal shows a spinner; a file shows nothing."""
    return console.status(words) if console.is_terminal else contextlib.nullcontext()


def framed(page: str, title: str, height: str) -> str:
    """An HTML page in a frame that fits its content; `height` is used until the content is loaded."""
    grow = (
        "const frame = this, inner = this.contentDocument.body; "
        "new ResizeObserver(() => { frame.style.height = inner.offsetHeight + 2 + 'px' }).observe(inner)"
    )
    return f'<iframe srcdoc="{html.escape(page)}" title="{html.escape(title)}" style="height:{height}" onload="{grow}"></iframe>'


def facts_table(*rows: tuple[str, ...], heads: tuple[str, ...] = ()) -> str:
    """An HTML table: rows that begin with their name, under optional `heads`; wide ones scroll."""
    top = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    top = f"<thead><tr>{top}</tr></thead>" if heads else ""
    lines = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        f"{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    return f'<div class="scroll"><table>{top}{lines}</table></div>'

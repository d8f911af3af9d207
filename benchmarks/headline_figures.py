"""The README's table: one row for each promise, from the committed results, with device and date."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Results(NamedTuple):
    """One committed file of results."""

    document: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Results":
        return cls(json.loads(path.read_text()))

    def figures(self, part: str) -> dict[str, Any]:
        return self.document["results"][part]["figures"]

    def where(self, part: str) -> str:
        """The device, and the day when the part was measured."""
        found = self.document["environment"]
        day = self.document["results"][part].get("measured", found)["date"][:10]
        device = f"{found['cores']} CPU cores" if found["backend"] == "cpu" else found["device_kind"]
        return f"{device}, {day}"


def headlines(results: Path) -> str:
    """The table, as Markdown."""
    rows = [*_arc(results), *_trace(results), *_acbo(results)]
    head = "\n| | measured | beside it | where, when |\n|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"


def top(results: Path) -> str:
    """The three figures at the top of the README, one for each system."""
    systems = (
        (_arc(results), "30×30 environments, packed"),
        (_trace(results), "whole calls"),
        (_acbo(results), "regret"),
    )
    lines = []
    for rows, wanted in systems:
        what, figure, beside, where = next(row for row in rows if wanted in row[0])
        name, rest = what.split(": ", 1)
        lines.append(f"- {name}, {rest}: **{figure}**, {beside} ({where})\n")
    return "\n" + "".join(lines) + "\n"


def _arc(results: Path) -> Iterator[tuple[str, ...]]:
    gpu, cpu = (Results.read(results / device / "arc.json") for device in ("nvidia-h200", "cpu"))
    over = gpu.figures("peers: ours over theirs")
    for size in ("30×30", "5×5"):
        rows = {name: row["steps/s"] for name, row in gpu.figures("batch").items() if f", {size}," in name}
        best = max(rows, key=lambda name: rows[name])
        ratio = over[f"over original, {size}, B=65,536"]["per s"]
        yield (
            f"jaxarc: steps of {size} environments, packed observation, {best.rsplit(', ', 1)[1]}",
            f"{rows[best] / 1e9:.1f} billion/s",
            f"{ratio:.0f} times the original (B=65,536)",
            gpu.where("batch"),
        )
    ours, mine = cpu.figures("peers: ours over theirs"), cpu.figures("peers")
    original, arcle = (ours[f"over {name}, 30×30, B=1,024"]["per CPU-s"] for name in ("original", "ARCLE"))
    yield (
        "jaxarc: the same, 30×30, packed observation, B=1,024, per CPU-second",
        f"{mine['ours, 30×30, B=1,024']['steps/CPU-s'] / 1e6:.1f} million",
        f"{original:.0f} times the original, {arcle:.0f} times ARCLE",
        cpu.where("peers"),
    )
    measured = [
        size for size in ("30×30", "5×5") if f"default observation, over original, {size}, B=1,024" in ours
    ]
    for size in measured:
        label = f"{size}, B=1,024"
        original, arcle = (
            ours[f"default observation, over {name}, {label}"]["per CPU-s"] for name in ("original", "ARCLE")
        )
        yield _default_row(
            cpu, size, mine[f"ours, default observation, {label}"]["steps/CPU-s"], original, arcle
        )
    if not measured:
        # Results of before the peers were played beside both: the default's speed is that of another part of the same run.
        label = "30×30, B=1,024"
        speed = cpu.figures("observations")["default (int8, input, clipboard), B=1,024"]["steps/CPU-s"]
        theirs = [mine[f"{name}, {label}"]["steps/CPU-s"] for name in ("original", "ARCLE")]
        yield _default_row(cpu, "30×30", speed, *(speed / peer for peer in theirs))


def _default_row(cpu: Results, size: str, speed: float, original: float, arcle: float) -> tuple[str, ...]:
    return (
        f"jaxarc: the same, {size}, default observation, B=1,024, per CPU-second",
        f"{speed / 1e6:.1f} million",
        f"{original:.0f} times the original, {arcle:.0f} times ARCLE",
        cpu.where("peers"),
    )


def _trace(results: Path) -> Iterator[tuple[str, ...]]:
    loop = Results.read(results / "nvidia-h200" / "trace_loop.json")
    part = "grid, 10,000,000 particles"
    grid = loop.figures(part)
    fast, exact = (grid[f"cubic in time, {name}"]["psteps/s"] for name in ("16-bit cells", "default layout"))
    yield (
        "jaxtrace: RK4 steps of 10 million particles, cubic in time",
        f"{exact / 1e9:.1f} billion/s",
        f"{fast / 1e9:.1f} billion/s with values in 16 bits",
        loop.where(part),
    )
    job = Results.read(results / "cpu" / "trace-only-common.json")
    rows = job.figures("common job")
    linear, cubic = (rows[f"ours, {name}, 100,000"] for name in ("linear in time", "default (cubic in time)"))
    theirs = rows["Parcels 4, RK4, 100,000"]
    yield (
        "jaxtrace: RK4 steps of 100,000 particles, linear in time, whole calls",
        f"{linear['psteps/s'] / 1e6:.1f} million/s",
        f"{linear['psteps/s'] / theirs['psteps/s']:.0f} times Parcels 4",
        job.where("common job"),
    )
    yield (
        "jaxtrace: error of 99 % of those paths at most, cubic in time (the default)",
        f"{cubic['p99']:.3f}",
        f"{theirs['p99']:.3f} with Parcels 4; ours at {cubic['psteps/s'] / 1e6:.1f} million/s",
        job.where("common job"),
    )
    mesh = Results.read(results / "cpu" / "trace-only-tetrahedra.json")
    cells = {name: row["psteps/s"] for name, row in mesh.figures("tetrahedra, conforming").items()}
    mine, theirs = cells["ours, linear in time, 100,000"], cells["VTK 9.3.1, its 40 steps, 100,000"]
    yield (
        "jaxtrace: RK4 steps of 100,000 particles through tetrahedra",
        f"{mine / 1e6:.1f} million/s",
        f"{mine / theirs:.0f} times VTK 9.3.1",
        mesh.where("tetrahedra, conforming"),
    )


def _acbo(results: Path) -> Iterator[tuple[str, ...]]:
    policy = Results.read(results / "cpu" / "acbo-policy.json")
    regret = {name: row["regret"] for name, row in policy.figures("linear models").items()}
    known, blind = regret["causal BO, graph known"], regret["GP-EI, no graph"]
    yield (
        "acbo: regret after 10 experiments, graph unknown (0 is best, 1 is to do nothing)",
        f"{regret['policy']:.3f}",
        f"{known:.3f} for causal BO that knows the graph, {blind:.2f} for GP-EI",
        policy.where("linear models"),
    )
    ask = policy.figures("ask")["policy"]["median, ms"]
    rival = policy.figures("ask")["causal BO, graph known"]["median, ms"]
    yield (
        "acbo: to choose the next experiment",
        f"{ask:.1f} ms",
        f"causal BO {rival:.1f} ms",
        policy.where("ask"),
    )
    answers = Results.read(results / "cpu" / "acbo-inference.json")
    part = "peers, 10 variables"
    mine = answers.figures(part)["surrogate"]
    over = answers.figures(f"{part}: DiBS over surrogate")["DiBS, marginal BGe"]
    yield (
        f"acbo: edges among 10 variables from 100 observations, AUROC, {over['models']} models",
        f"{over['AUROC, surrogate']:.2f} in {1e3 * mine['wall_s']:.0f} ms",
        f"DiBS {over['AUROC, DiBS at its best']:.2f}, {over['CPU']:,.0f} times the CPU time",
        answers.where(part),
    )

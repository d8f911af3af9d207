"""Tables of single pages, by the name that a page's mark gives them; each from the committed results alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headline_figures import top

DEVICES = ("cpu", "nvidia-h200")


def read(results: Path, device: str, file: str) -> dict[str, Any]:
    """One committed file of results."""
    return json.loads((results / device / f"{file}.json").read_text())


def figures_of(document: dict[str, Any], part: str) -> dict[str, Any]:
    """The figures of one part of a file."""
    return document["results"][part]["figures"]


def place(document: dict[str, Any], part: str) -> str:
    """Where and when a part was measured, as a sentence before its table."""
    found = document["environment"]
    day = document["results"][part].get("measured", found)["date"][:10]
    cpu = f"{found['cpu_model']}, {found['cores']} cores"
    return f"{cpu if found['backend'] == 'cpu' else found['device_kind']}, jax {found['jax']}, {day}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def millions(rate: float) -> str:
    """A rate in millions, or in billions where that is shorter."""
    return f"{rate / 1e9:.2f} billion" if rate >= 1e9 else f"{rate / 1e6:.3g} million"


def formats(results: Path) -> str:
    """jaxarc: what the three formats of an action cost."""
    text = ""
    for device in DEVICES:
        arc = read(results, device, "arc")
        speeds, moved = figures_of(arc, "formats"), figures_of(arc, "kernels")
        rows = []
        for name, row in speeds.items():
            touched = moved.get(name, {}).get("bytes accessed by a step")
            rows.append([name, millions(row["steps/s"]), "-" if touched is None else f"{touched:,.0f}"])
        text += f"\n{place(arc, 'formats')}:\n"
        text += table(["actions", "steps/s", "bytes that a step reads and writes"], rows)
    return text


def time_interpolation(results: Path) -> str:
    """jaxtrace: error and speed of linear and cubic in time, and of layouts."""
    job = read(results, "cpu", "trace-only-common")
    rows = [
        [
            name.rsplit(", ", 1)[0],
            *(f"{row[key]:.4f}" for key in ("median", "p99")),
            millions(row["psteps/s"]),
        ]
        for name, row in figures_of(job, "common job").items()
    ]
    text = f"\n{place(job, 'common job')}; 100,000 particles, 200 RK4 steps, linear in space, whole calls:\n"
    text += table(["in time", "error, median", "error, 99 %", "particle-steps/s"], rows)
    loop, part = read(results, "nvidia-h200", "trace_loop"), "grid, 10,000,000 particles"
    rows = [[name, millions(row["psteps/s"])] for name, row in figures_of(loop, part).items()]
    text += f"{place(loop, part)}; ten million particles, the loop alone:\n"
    return text + table(["in time, and how values are kept", "particle-steps/s"], rows)


def strategies(results: Path) -> str:
    """acbo: regret and time of every strategy."""
    policy, host = read(results, "nvidia-h200", "acbo-policy"), read(results, "cpu", "acbo-policy")
    straight, bent = (figures_of(policy, part) for part in ("linear models", "nonlinear models"))
    ask = figures_of(host, "ask")

    def regret(found: dict[str, Any] | None) -> str:
        return "-" if found is None else f"{found['regret']:.3f} ± {found['± 95 %']:.3f}"

    rows = [
        [
            *(name, regret(row), regret(bent.get(name))),
            *(f"{ask[name]['median, ms']:.1f} ms", f"{ask[name]['first, s']:.1f} s"),
        ]
        for name, row in sorted(straight.items(), key=lambda item: item[1]["regret"])
    ]
    models = straight["policy"]["models"], bent["policy"]["models"]
    text = f"\nRegret: {place(policy, 'linear models')}; up to {models[0]:,} linear and {models[1]:,} bent models. "
    text += f"Time: {place(host, 'ask')}.\n"
    head = ["strategy", "regret, linear", "regret, bent", "an `ask`", "the first, with compiling"]
    return text + table(head, rows)


def published_problems(results: Path) -> str:
    """acbo: the problems of the literature, whose effects bend."""
    policy = read(results, "cpu", "acbo-policy")
    rows = [
        [
            *name.split(", ", 1),
            f"{row['regret']:.3f}",
            f"{row['largest']:.3f}",
            f"{1e3 * row['s per ask']:.0f} ms",
        ]
        for name, row in figures_of(policy, "literature").items()
    ]
    text = f"\n{place(policy, 'literature')}; ten seeds:\n"
    return text + table(["problem", "strategy", "mean regret", "largest", "an `ask`"], rows)


def _first_calls(results: Path) -> Iterator[list[str]]:
    cache = figures_of(read(results, "cpu", "core-only-cache"), "persistent cache")
    for name, row in cache.items():
        yield [f"core's example, {name}", f"{row['first_call_s']:.2f} s", f"{row['second_call_s']:.3f} s"]
    steps = figures_of(read(results, "cpu", "arc"), "compile: first steps")
    for name, row in steps.items():
        yield [
            f"`arc_step`, {name}",
            f"{row['first arc_step_s']:.2f} s",
            f"{row['second arc_step_s']:.4f} s",
        ]


def compiling(results: Path) -> str:
    """What the first call of a process costs."""
    cache = read(results, "cpu", "core-only-cache")
    text = f"\n{place(cache, 'persistent cache')}:\n"
    return text + table(["in a new process", "first call", "second call"], list(_first_calls(results)))


def batches(results: Path) -> str:
    """What a larger batch brings."""
    rows: dict[str, list[str]] = {}
    for device in DEVICES:
        for name, row in figures_of(read(results, device, "arc"), "batch").items():
            if ", 30×30," in name:
                rows.setdefault(name.rsplit(", ", 1)[1], ["-"] * len(DEVICES))[DEVICES.index(device)] = (
                    millions(row["steps/s"])
                )
    order = sorted(rows, key=lambda name: int(name.removeprefix("B=").replace(",", "")))
    where = [place(read(results, device, "arc"), "batch") for device in DEVICES]
    return table(["30×30 environments, steps/s", *where], [[name, *rows[name]] for name in order])


def from_python(results: Path) -> str:
    """What leaving the compiled program at every step costs."""
    arc = read(results, "cpu", "arc")
    rows = [
        [name, f"{1e6 * row['median_s']:,.0f} µs", f"{row['steps/s']:,.0f}"]
        for name, row in figures_of(arc, "small").items()
    ]
    return f"\n{place(arc, 'small')}:\n" + table(["one step", "time", "environment steps/s"], rows)


def taps(results: Path) -> str:
    """What a tap costs, by how many worlds run and how often it fires."""
    text = ""
    for device, file in (("cpu", "core"), ("nvidia-h200", "core-only-taps")):
        core = read(results, device, file)
        rows = []
        for worlds in ("1", "64", "1,024"):
            found = {
                name.split(": ")[1]: row["ratio"]
                for name, row in figures_of(core, "taps").items()
                if name.startswith(f"{worlds} worlds")
            }
            kinds = ("the same again", "tap, off", "tap, every 100", "tap, every step")
            rows.append([worlds, *(f"{found[kind]:.2f}" for kind in kinds)])
        text += f"\n{place(core, 'taps')}; time against the same program without a tap:\n"
        text += table(["worlds", "noise", "off", "every 100 steps", "every step"], rows)
    return text


def memory(results: Path) -> str:
    """How well memory is predicted before anything runs."""
    rows: dict[str, list[str]] = {}
    documents = [read(results, device, "core-only-memory") for device in DEVICES]
    for k, document in enumerate(documents):
        for name, row in figures_of(document, "memory prediction").items():
            cell = (
                f"{row['predicted_mb']:,.0f} of {row['measured_mb']:,.0f} MB ({row['error_percent']:+.1f} %)"
            )
            rows.setdefault(name, ["-"] * len(documents))[k] = cell
    where = [place(document, "memory prediction") for document in documents]
    return table(["predicted of measured", *where], [[name, *cells] for name, cells in rows.items()])


FIGURES: dict[str, Callable[[Path], str]] = {
    "readme-top": top,
    "jaxarc-formats": formats,
    "jaxtrace-interpolation": time_interpolation,
    "acbo-strategies": strategies,
    "acbo-published-problems": published_problems,
    "compiling": compiling,
    "batches": batches,
    "from-python": from_python,
    "taps": taps,
    "memory": memory,
}

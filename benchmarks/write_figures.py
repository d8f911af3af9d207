"""Writes figures of the README and of pages in docs/ from the committed results, so that no claim is typed by hand.

python benchmarks/write_figures.py          # rewrites them
python benchmarks/write_figures.py --check  # exits with 1 if one is out of date
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from headline_figures import headlines
from page_figures import FIGURES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CORE_PAGE = ROOT / "docs" / "measuring.md"
ARC_PAGE = ROOT / "docs" / "jaxarc" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
BETWEEN = re.compile(r"(<!-- figures:[^\n]*-->\n).*?(<!-- end of figures -->)", re.DOTALL)
NAMED = re.compile(r"<!-- figures: ([\w-]+);")
"""The mark of a table that has a name in `page_figures.FIGURES`; a page may have several."""


def main() -> None:
    stale = []
    whole = {README: lambda: headlines(RESULTS), CORE_PAGE: figures, ARC_PAGE: arc_figures}
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text()

        def made(found: re.Match[str], page: Path = page) -> str:
            named = NAMED.match(found[1])
            return found[1] + (FIGURES[named[1]](RESULTS) if named else whole[page]()) + found[2]

        written = BETWEEN.sub(made, text)
        if written != text:
            stale.append(str(page))
            if "--check" not in sys.argv:
                page.write_text(written)
    if "--check" in sys.argv and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run python {Path(__file__).name}")


def figures() -> str:
    """One table per device with committed results of the core: the whole run, or the parts that were run apart."""
    devices = sorted({file.parent for file in RESULTS.glob("*/core*.json")})
    return "".join(device_table(merged(folder)) for folder in devices)


def merged(folder: Path) -> dict[str, Any]:
    """The results of one device; a part that was run apart replaces that of the whole run."""
    files = sorted(f for f in folder.glob("core*.json") if not f.stem.endswith("-quick"))
    documents = [json.loads(file.read_text()) for file in files]
    results = {name: part for document in documents for name, part in document["results"].items()}
    return {"environment": documents[0]["environment"], "results": results}


def device_table(result: dict[str, Any]) -> str:
    """The figures of one device."""
    where = result["environment"]
    parts = {name: part["figures"] for name, part in result["results"].items()}
    name = where["cpu_model"] if where["backend"] == "cpu" else where["device_kind"]
    cores = f", {where['cores']} cores" if where["backend"] == "cpu" else ""
    rows = []
    if found := parts.get("driver, 1,024 worlds"):
        rows.append(("`run` against a hand-written `lax.scan`, 1,024 worlds", ratio(found["run"])))
        rows.append(("(noise: the same scan against itself)", ratio(found["the same again"])))
    if found := parts.get("taps, 1,024 worlds"):
        rows.append(("tap of one 30×30 grid, switched off, 1,024 worlds", ratio(found["tap, off"])))
        rows.append(("tap of one 30×30 grid, every 100 steps, 1,024 worlds", ratio(found["tap, every 100"])))
        rows.append(("(noise: the same run against itself)", ratio(found["the same again"])))
    if found := parts.get("memory prediction"):
        errors = {name: abs(row["error_percent"]) for name, row in found.items()}
        good, worst = sum(error <= 5 for error in errors.values()), max(errors, key=lambda name: errors[name])
        rows.append(
            ("memory predicted within 5 %", f"{good} of {len(errors)}; worst {errors[worst]:.1f} % ({worst})")
        )
    if found := parts.get("persistent cache"):
        cold, warm = found["no cache"]["first_call_s"], found["warm cache"]["first_call_s"]
        rows.append(
            ("first call in a new process, without and with the cache", f"{cold:.2f} s, {warm:.2f} s")
        )
    if found := parts.get("import"):
        added = found["import jax, jaxworlds"]["best_s"] - found["import jax"]["best_s"]
        rows.append(("`import jaxworlds` after `import jax`, fastest of each", f"{1e3 * added:+.0f} ms"))
    head = f"\nMeasured on {name}{cores}, jax {where['jax']}, {where['date'][:10]} (`make bench`):\n\n| | |\n|---|---|\n"
    return head + "".join(f"| {what} | {value} |\n" for what, value in rows) + "\n"


def ratio(row: dict[str, float]) -> str:
    """A cost in percent with its 95 % interval."""
    middle, low, high = (100 * (row[key] - 1) for key in ("ratio", "ratio_low", "ratio_high"))
    best = 100 * (row["best_ratio"] - 1)
    return f"{middle:+.1f} % time ({low:+.1f} to {high:+.1f}); fastest samples {best:+.1f} %"


def arc_figures() -> str:
    """What was measured of jaxarc, device by device."""
    files = sorted(RESULTS.glob("*/arc.json"))
    return "".join(arc_tables(json.loads(file.read_text())) for file in files)


def arc_tables(result: dict[str, Any]) -> str:
    """The tables of one device: speed by format and observation, peers, small batches, compiling, kernels."""
    where, results = result["environment"], result["results"]
    parts = {name: part["figures"] for name, part in results.items()}
    on_cpu = where["backend"] == "cpu"
    name = f"{where['cpu_model']}, {where['cores']} cores" if on_cpu else where["device_kind"]
    text = f"\n## {name}\n\njax {where['jax']}, python {where['python']}, {where['date'][:10]}"
    text += f", load average {where['load_average'][0]:.1f} at the start.\n" if on_cpu else ".\n"
    speeds = {
        "formats": "actions, packed observation",
        "observations": "bbox actions, 30×30",
        "batch": "batch, packed observation",
        "peers": "beside peers; ours with packed observation unless named",
    }
    for part, head in speeds.items():
        rows = [[row, count(f["steps/s"]), count(f["steps/CPU-s"])] for row, f in parts.get(part, {}).items()]
        text += table([head, "steps/s", "steps per CPU-second"], rows)
    rows = [
        [row, *(f"{f[key]:.1f}" for key in ("per CPU-s", "least", "most"))]
        for row, f in parts.get("peers: ours over theirs", {}).items()
    ]
    text += table(
        [
            "ours, with packed observation unless named",
            "times, per CPU-second",
            "least of the rounds",
            "most",
        ],
        rows,
    )
    rows = [
        [row, f"{1e6 * f['median_s']:,.0f} µs", count(f["steps/s"])]
        for row, f in parts.get("small", {}).items()
    ]
    text += table(
        ["small batches, packed observation unless named", "one step of the batch", "steps/s"], rows
    )
    rows = [
        [row, *(f"{f[key]:.2f} s" for key in ("trace_s", "lower_s", "compile_s", "total CPU_s"))]
        for row, f in parts.get("compile", {}).items()
    ]
    text += table(["the timed program", "trace", "lower", "compile", "all, CPU-seconds"], rows)
    rows = [
        [row, *(f"{f[key]:.2f} s" for key in ("import_s", "first arc_step_s", "from import to there_s"))]
        for row, f in parts.get("compile: first steps", {}).items()
    ]
    text += table(["a new process", "import", "first `arc_step`", "from the import to its end"], rows)
    keys = ("kernels a step", "loops in it", "kernels in those", "state, B", "bytes accessed by a step")
    rows = [
        [row, *(f"{f[key]:,.0f}" if f[key] is not None else "-" for key in keys)]
        for row, f in parts.get("kernels", {}).items()
    ]
    return text + table(
        ["one step", "kernels", "loops", "kernels in these", "bytes of a state", "bytes accessed"], rows
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, or nothing where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def count(value: float) -> str:
    """`1234567` as `1.2 million`, in three figures at most."""
    if value >= 1e6:
        return f"{value / 1e6:,.0f} million" if value >= 1e8 else f"{value / 1e6:.3g} million"
    return f"{float(f'{value:.3g}'):,.0f}"


if __name__ == "__main__":
    main()

"""Writes the figures of the README from the committed results, so that no claim is typed by hand.

python benchmarks/write_figures.py          # rewrites the README
python benchmarks/write_figures.py --check  # exits with 1 if the README is out of date
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
BETWEEN = re.compile(r"(<!-- figures:[^\n]*-->\n).*?(<!-- end of figures -->)", re.DOTALL)


def main() -> None:
    text = README.read_text()
    written = BETWEEN.sub(lambda found: found[1] + figures() + found[2], text)
    if "--check" in sys.argv:
        sys.exit(0 if written == text else f"{README} is out of date: run python {Path(__file__).name}")
    README.write_text(written)


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
    """The figures of one device that the README promises."""
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


if __name__ == "__main__":
    main()

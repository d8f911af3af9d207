"""Steps a second against the size of the batch, as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Okabe and Ito's colours, which people with any colour vision tell apart; markers and lines differ too.
LOOKS = {
    "30×30": ("#0072B2", "o", "-"),
    "5×5": ("#E69F00", "s", "--"),
    "original, 30×30": ("#D55E00", "^", ":"),
    "original, 5×5": ("#CC79A7", "v", ":"),
    "ARCLE, 30×30": ("#009E73", "D", ""),
    "ARCLE, 5×5": ("#56B4E9", "X", ""),
}


def curves(results: Mapping[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Points (batch, steps/s) by line, from the parts `batch` and `peers`."""
    found: dict[str, dict[int, float]] = {}
    for part in ("batch", "peers"):
        for name, row in results.get(part, {}).get("figures", {}).items():
            label, _, size = name.rpartition(", B=")
            label = label.removeprefix("bbox, ")
            if label in LOOKS and isinstance(row, Mapping) and "steps/s" in row:
                found.setdefault(label, {})[int(size.replace(",", ""))] = row["steps/s"]
    return {label: sorted(found[label].items()) for label in LOOKS if label in found}


def draw(results: Mapping[str, Any], device: str, path: Path) -> str:
    """Write the picture; returns its path, or why there is none."""
    lines = curves(results)
    if not lines:
        return "no picture: neither `batch` nor `peers` was run"
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return 'no picture: matplotlib is missing, pip install "jaxworlds[all]"'
    with rc_context({"svg.hashsalt": "arc", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4.6), layout="constrained")
        axes = figure.subplots()
        for label, points in lines.items():
            colour, marker, style = LOOKS[label]
            name = label if "," in label else f"jaxworlds, {label}"
            axes.loglog(
                *zip(*points, strict=True), color=colour, marker=marker, linestyle=style or "none", label=name
            )
        axes.set(xlabel="environments in the batch", ylabel="steps per second")
        axes.set_title(
            f"Random bbox actions, step limit 100, autoreset to random tasks — {device}", fontsize=9
        )
        axes.grid(alpha=0.3, which="both", linewidth=0.4)
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None})
    return f"wrote {path}"

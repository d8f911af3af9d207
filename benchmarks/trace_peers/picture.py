"""The jobs as a picture: how fast against how wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MARKERS = "osD^v<>PX*hp"
OURS, THEIRS = "#0072B2", "#D55E00"


def draw(results: Mapping[str, Any], path: Path) -> str:
    """Write a PNG with a point for each tracer of each job; returns its path, or why there is none."""
    shown = {name: points for name, part in results.items() if (points := most_particles(part["figures"]))}
    if not shown:
        return "no picture: no part with errors was run"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return 'no picture: matplotlib is missing, pip install "jaxworlds[trace]"'
    figure = Figure(figsize=(5.2 * len(shown), 6.8), layout="constrained")
    for axes, (name, points) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
    ):
        counts = {True: 0, False: 0}
        for label, (speed, error) in points.items():
            own = label.startswith("ours")
            marker = MARKERS[counts[own] % len(MARKERS)]
            counts[own] += 1
            axes.loglog(
                speed,
                error,
                marker,
                color=OURS if own else THEIRS,
                label=label,
                markersize=7,
                alpha=0.8,
                linestyle="none",
            )
        axes.set(title=name, xlabel="paths from t = 0 to 10 per second, whole calls")
        axes.set_ylabel("99th percentile of the error at t = 10")
        axes.grid(alpha=0.3, which="both", linewidth=0.4)
        axes.margins(0.1, 0.15)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=1, frameon=False)
    figure.savefig(path, dpi=140)
    return str(path)


def most_particles(figures: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Speed and error of every tracer that has both, with the most particles it was run with."""
    found: dict[str, tuple[int, str, tuple[float, float]]] = {}
    for label, row in figures.items():
        if not isinstance(row, Mapping) or not {"paths/s", "p99"} <= set(row):
            continue
        name, _, count = label.rpartition(", ")
        number = int(count.replace(",", ""))
        if name not in found or number > found[name][0]:
            found[name] = (number, label, (row["paths/s"], row["p99"]))
    return {label: point for _, label, point in found.values()}

"""The bars of issue 4 beside what one run of the benchmark measured."""

from collections.abc import Mapping
from typing import Any

LINEAR_IN_TIME = ("Parcels", "VTK", "diffrax", "NumbaCS, 2-D linear", "ours, linear in time")
DEFAULT, LINEAR = "ours, default (cubic in time)", "ours, linear in time"
SPREAD = "ours, linear, one device per core"
# On an accelerator half precision is allowed.
DEFAULTS = (DEFAULT, "ours, default, float16 storage", "ours, default, 16-bit cells")
LINEARS = (LINEAR, "ours, linear, float16 storage", "ours, linear, 16-bit cells")


def compare_with_bars(results: Mapping[str, Any], n: int, on_cpu: bool) -> dict[str, dict[str, Any]]:
    """One row for each bar whose part was run: the value, the bar, and whether it is met."""
    parts = {name: part["figures"] for name, part in results.items()}

    def of(part: str, figure: str, *rows: str) -> float | None:
        """The largest of a figure over some rows at this number of particles."""
        found = (parts.get(part, {}).get(f"{row}, {n:,}", {}).get(figure) for row in rows)
        return max((value for value in found if value is not None), default=None)

    rows = [
        *_common(parts, of, on_cpu),
        *_tetrahedra(of, on_cpu),
        *(
            _worst(name, figures)
            for name, figures in parts.items()
            if name.startswith(("boundaries", "mesh patches"))
        ),
    ]
    if (found := parts.get("guide's job")) and not on_cpu:
        rows.append(("guide's job, seconds", found["reflective"]["wall_s"], "at most", 0.5))
    return {
        name: {"value": value, "": side, "bar": bar, "met": _met(value, side, bar)}
        for name, value, side, bar in rows
        if value is not None
    }


def _common(parts: Mapping[str, Any], of: Any, on_cpu: bool) -> list[tuple[str, Any, str, float]]:
    job = "common job"
    fastest = of(job, "psteps/s", *((LINEAR, SPREAD) if on_cpu else LINEARS))
    parcels, ours = of(job, "psteps/s", "Parcels 4, RK4"), of(job, "p99", DEFAULT)
    theirs = [
        r["p99"] for name, r in parts.get(job, {}).items() if name.startswith(LINEAR_IN_TIME) and "p99" in r
    ]
    rows = [
        ("linear, psteps/s", fastest, "at least", 1e7 if on_cpu else 1e10),
        ("linear over Parcels 4", fastest / parcels if fastest and parcels else None, "at least", 100),
        (
            "p99 of those linear in time over ours",
            min(theirs) / ours if theirs and ours else None,
            "at least",
            5,
        ),
    ]
    if not on_cpu:
        rows.append(("cubic in time, psteps/s", of(job, "psteps/s", *DEFAULTS), "at least", 3e9))
    return rows


def _tetrahedra(of: Any, on_cpu: bool) -> list[tuple[str, Any, str, float]]:
    rows = []
    for kind in ("conforming", "non-conforming"):
        part = f"tetrahedra, {kind}"
        rows.append((f"{part}, psteps/s", of(part, "psteps/s", LINEAR), "at least", 4e6 if on_cpu else 1e9))
        rows.append((f"{part}, lost", of(part, "lost", LINEAR, DEFAULT), "at most", 0))
    return rows


def _worst(part: str, figures: Mapping[str, Any]) -> tuple[str, Any, str, float]:
    """The dearest boundary of a part."""
    name, row = max(
        ((k, v) for k, v in figures.items() if "none" not in k), key=lambda pair: pair[1]["ratio"]
    )
    return f"{part}: {name}", row["ratio"], "at most", 1.3


def _met(value: float, side: str, bar: float) -> str:
    return "yes" if (value >= bar if side == "at least" else value <= bar) else "NO"

"""Comparing alternatives side by side: one interleaved run, paired ratios with an interval, CPU seconds."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import demand_call, short
from ..text import format_seconds, render
from ._timing import Sample, Sampler, Timings, no_garbage_collection


@dataclass(frozen=True)
class Alternative(Timings):
    """One row of a comparison.

    `ratio` is its time over the first alternative's: the median of round-by-round ratios, with a 95 %
    bootstrap interval; `cpu_ratio` the same in CPU seconds. `best_ratio` compares the fastest samples: on a
    machine with neighbours, who only ever add time, it is the cleanest figure for the work itself.
    """

    ratio: float
    ratio_low: float
    ratio_high: float
    cpu_ratio: float
    best_ratio: float

    @property
    def differs(self) -> bool:
        """Whether the interval of the ratio excludes 1: beyond the noise of this run."""
        return not self.ratio_low <= 1.0 <= self.ratio_high


@dataclass(frozen=True)
class Comparison:
    """Alternatives measured side by side; `order[r]` is the order in which round `r` ran them."""

    rows: tuple[Alternative, ...]
    order: tuple[tuple[str, ...], ...]

    def __getitem__(self, name: str) -> Alternative:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no alternative {name!r}; this comparison has {[row.name for row in self.rows]}.")

    def figures(self) -> dict[str, dict[str, float]]:
        """Plain figures per alternative, for JSON."""
        times = ("median_s", "iqr_s", "best_s", "cpu_s")
        names = (*times, "ratio", "ratio_low", "ratio_high", "cpu_ratio", "best_ratio")
        return {row.name: {name: float(getattr(row, name)) for name in names} for row in self.rows}

    def table(self) -> Any:
        """A rich table: print it with `rich.print`."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=f"{len(self.order)} interleaved rounds", title_justify="left")
        table.add_column("alternative")
        first = self.rows[0]
        ratio = f"time ÷ {escape(first.name)}"
        for heading in ("median", "IQR", "CPU", ratio, "95 % interval", "CPU ratio"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            interval = f"{row.ratio_low:.3f} – {row.ratio_high:.3f}{'' if row.differs else ' (noise)'}"
            times = map(format_seconds, (row.median_s, row.iqr_s, row.cpu_s))
            ratios = (f"{row.ratio:.3f}", "" if row is first else interval, f"{row.cpu_ratio:.3f}")
            table.add_row(escape(row.name), *times, *ratios)
        return table

    def __str__(self) -> str:
        return render(self.table())


def compare(
    alternatives: Mapping[str, Callable[..., Any]],
    *args: Any,
    rounds: int = 30,
    seed: int = 0,
) -> Comparison:
    """Time alternatives in one interleaved run: each round runs all of them, in an order shuffled by `seed`.

    All get the same `args` (none: they are thunks) and are called as they are, so that compiled and
    uncompiled code can be compared; each is warmed up first, fast ones are called several times per round,
    and donated arguments are copied outside the timed stretch. Drift and neighbours on the machine hit all
    alternatives alike, and ratios are taken within a round.

        result = compare({"scan": scan_version, "loop": loop_version}, x)
        print(result)
        result["loop"].ratio             # 1.8: takes 1.8 times as long as "scan"
    """
    if not isinstance(alternatives, Mapping) or not alternatives:
        got = short(alternatives) if alternatives else "none"
        raise ValueError(
            f"`alternatives` must name at least one callable; got {got}. Pass `{{'name': fn, ...}}`."
        )
    for name, fn in alternatives.items():
        demand_call(fn, f"alternatives[{name!r}]", "compare({'name': fn, ...}, *args)")
    if rounds < 1:
        raise ValueError(f"`rounds` must be at least 1; got {rounds}. Use 20 or more for a usable interval.")
    shuffler = random.Random(seed)
    samples: dict[str, list[Sample]] = {name: [] for name in alternatives}
    order = []
    with no_garbage_collection():
        samplers = {name: Sampler(fn, args) for name, fn in alternatives.items()}
        for _ in range(rounds):
            turn = list(samplers)
            shuffler.shuffle(turn)
            for name in turn:
                samples[name].append(samplers[name]())
            order.append(tuple(turn))
    first = samples[next(iter(alternatives))]
    rows = [_row(first, name, found, samplers[name].calls, seed) for name, found in samples.items()]
    return Comparison(tuple(rows), tuple(order))


def _row(first: list[Sample], name: str, samples: list[Sample], calls: int, seed: int) -> Alternative:
    """The row of one alternative, with a 95 % bootstrap interval over rounds."""
    (wall, cpu), (first_wall, first_cpu) = (
        np.array([(sample.wall_s, sample.cpu_s) for sample in found]).T for found in (samples, first)
    )
    ratios = wall / first_wall
    drawn = np.random.default_rng(seed).integers(0, len(ratios), size=(2000, len(ratios)))
    low, high = np.percentile(np.median(ratios[drawn], axis=1), (2.5, 97.5))
    return Alternative(
        name,
        tuple(wall.tolist()),
        tuple(cpu.tolist()),
        calls,
        ratio=float(np.median(ratios)),
        ratio_low=float(low),
        ratio_high=float(high),
        cpu_ratio=float(np.sum(cpu) / max(np.sum(first_cpu), 1e-12)),
        best_ratio=float(np.min(wall) / np.min(first_wall)),
    )

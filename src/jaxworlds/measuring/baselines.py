"""Baselines: figures of earlier runs, kept per machine and version, and verdicts on what changed since."""

import datetime
import json
import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..text import format_bytes, format_seconds
from ._environment import baseline_key, commit

_FORMAT = "jaxworlds-baseline"
_VERSION = 1

# Relative growth of a `…_bytes` figure that is no news; every other integer must stay as it is.
_BYTES_TOLERANCE = 0.10
# A judged time regresses beyond both: this many interquartile ranges of the baseline, and this relative
# growth.
_TIME_IQRS = 3.0
_TIME_GROWTH = 0.20

Status = Literal["ok", "regressed", "improved", "new"]


class BaselineError(ValueError):
    """A baseline file that cannot be read, or figures that cannot be kept."""


@dataclass(frozen=True)
class Verdict:
    """`status` of figures against their baseline, and a text with one line for each figure."""

    name: str
    status: Status
    text: str

    @property
    def regressed(self) -> bool:
        """Whether a judged figure got worse."""
        return self.status == "regressed"

    def __str__(self) -> str:
        return f"{self.name}: {self.status}\n{self.text}"


class Baseline:
    """Figures by name for one key (`baseline_key()` by default), in a JSON file that holds many keys.

    Integer figures are costs that do not depend on the weather (compile counts, program size, bytes): they
    are judged, smaller is better. Floats (times, rates) are kept and reported; times are judged only on
    request.

        baseline = Baseline.load("benchmarks/baselines.json")
        verdict = baseline.judge("step", result.figures())       # result = measure(step, state)
        if verdict.status == "new":
            baseline.record("step", result.figures())
        assert not verdict.regressed, str(verdict)
    """

    def __init__(self, path: str | os.PathLike[str], key: str, entries: dict[str, dict[str, Any]]) -> None:
        self.path = Path(path)
        self.key = key
        self._entries = entries

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: str | None = None) -> "Baseline":
        """The baseline in this file; an empty one when the file does not exist yet."""
        key = baseline_key() if key is None else key
        return cls(path, key, _read(Path(path)).get(key, {}))

    @property
    def names(self) -> list[str]:
        """Names that have figures under this key."""
        return sorted(self._entries)

    def figures(self, name: str) -> dict[str, int | float] | None:
        """The recorded figures of one name; None when there are none."""
        entry = self._entries.get(name)
        return None if entry is None else dict(entry["figures"])

    def record(self, name: str, figures: Mapping[str, Any]) -> None:
        """Keep these figures as the baseline of `name`, and write the file at once.

        The file is read again just before, so entries of other keys and names stay; two processes that
        record in the same instant may still lose one of the two entries.
        """
        from ..store import atomic_write

        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = {"figures": _plain(figures), "date": date, "commit": commit()}
        everything = _read(self.path)
        self._entries = everything.setdefault(self.key, {})
        self._entries[name] = entry
        document = {"format": _FORMAT, "version": _VERSION, "baselines": everything}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n")

    def judge(
        self,
        name: str,
        figures: Mapping[str, Any],
        *,
        tolerance: Mapping[str, float | int] | None = None,
        judge_time: bool = False,
    ) -> Verdict:
        """Compare figures with their baseline.

        `tolerance` gives the relative growth allowed per figure; by default 0.1 for names ending in `bytes`
        and 0 for every other integer. A judged figure that is missing now counts as a regression: a gate
        that vanished is no gate. With `judge_time=True` each `…median_s` is judged too: it regresses when
        it grew by more than 20 % and by more than 3 interquartile ranges (`…iqr_s` of the baseline).
        """
        known, found = self.figures(name), _plain(figures)
        if known is None:
            return Verdict(name, "new", f"  no baseline for {self.key}; `record` makes one")
        allowed = dict(tolerance or {})
        names = sorted({*known, *found})
        marks = {figure: _judge_one(figure, known, found, allowed, judge_time) for figure in names}
        lines = [_line(figure, known.get(figure), found.get(figure), mark) for figure, mark in marks.items()]
        kinds = set(marks.values())
        status: Status = "regressed" if "regressed" in kinds else "improved" if "improved" in kinds else "ok"
        return Verdict(name, status, "\n".join(lines))


def _judge_one(
    figure: str,
    known: Mapping[str, int | float],
    found: Mapping[str, int | float],
    tolerance: Mapping[str, float | int],
    judge_time: bool,
) -> str:
    """The mark of one figure: `ok`, `improved`, `regressed`, or `` when it is reported only."""
    before, now = known.get(figure), found.get(figure)
    if before is None:
        return ""  # first seen: the next `record` makes it a baseline
    is_time = judge_time and figure.endswith("median_s")
    if not (isinstance(before, int) or is_time):
        return ""
    if now is None:
        return "regressed"
    if is_time:
        spread = known.get(figure.removesuffix("median_s") + "iqr_s", 0.0)
        band = max(_TIME_IQRS * spread, _TIME_GROWTH * before)
    else:
        band = before * tolerance.get(figure, _BYTES_TOLERANCE if figure.endswith("bytes") else 0.0)
    return "regressed" if now > before + band else "improved" if now < before - band else "ok"


def _line(figure: str, before: int | float | None, now: int | float | None, mark: str) -> str:
    number = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"  # noqa: E731
    show = format_seconds if figure.endswith("_s") else format_bytes if figure.endswith("bytes") else number
    change = ""
    if before and now is not None and now != before:
        change = f" ({100 * (now - before) / before:+.1f} %)"
    was, gone = "-" if before is None else show(before), "gone" if now is None else show(now)
    return f"  {figure}: {was} → {gone}{change}{' ' + mark if mark else ''}"


def _plain(figures: Mapping[str, Any]) -> dict[str, int | float]:
    """Figures as Python integers and finite floats."""
    plain: dict[str, int | float] = {}
    for name, value in figures.items():
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            plain[name] = int(value)
        elif isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
            plain[name] = float(value)
        else:
            raise BaselineError(
                f"figure `{name}` must be an integer or a finite float; got {value!r}. "
                "Convert arrays with `.item()` and leave out what is unknown."
            )
    return plain


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """All baselines of a file by key; nothing when it does not exist."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:  # also text that is no UTF-8
        raise _corrupt(path, str(error)[:200]) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise _corrupt(path, f'it lacks "format": "{_FORMAT}"')
    if (version := document.get("version")) != _VERSION:
        raise _corrupt(path, f"its version is {repr(version)[:40]}, this code reads {_VERSION}")
    everything: Any = document.get("baselines")
    try:
        entries = [entry for names in everything.values() for entry in names.values()]
        figures: list[Any] = [value for entry in entries for value in entry["figures"].values()]
    except (KeyError, TypeError, AttributeError):
        figures = [None]
    if not all(type(value) in (int, float) and abs(value) < 1e300 for value in figures):
        raise _corrupt(path, '"baselines" must map key → name → {"figures": {name: number}}')
    return everything


def _corrupt(path: Path, why: str) -> BaselineError:
    return BaselineError(
        f"`{path}` is not a baseline file: {why}. "
        "Restore it from version control, or delete it and record again."
    )

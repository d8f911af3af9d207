"""What every benchmark shares: its options, the header with the environment, tables, and the JSON result
file.

    options = harness.parse("What the rollout driver costs over a hand-written scan.")
    report = harness.Report("rollout", options)
    report.add("1024 worlds", compare({...}).figures())
    report.finish()                      # prints the tables, writes results/<device>/rollout.json
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxworlds.measuring import environment, format_seconds, show
from jaxworlds.store import atomic_write

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Options:
    """`quick` asks for smaller sizes and fewer rounds; `only` for the parts whose name contains it."""

    quick: bool = False
    only: str = ""
    out: Path = RESULTS

    def wants(self, part: str) -> bool:
        """Whether this part of the benchmark was asked for."""
        return self.only.lower() in part.lower()


def parse(description: str, arguments: Sequence[str] | None = None) -> Options:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run only the parts whose name contains TEXT"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="FOLDER", help="folder of the result files"
    )
    found = parser.parse_args(arguments)
    return Options(found.quick, found.only, found.out)


def device_folder(kind: str) -> str:
    """A device kind as a folder name: `NVIDIA H200` as `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "unknown"


class Report:
    """Collects the figures of one benchmark, prints each as it comes, and writes all of them at the end.

    The environment is taken at the start, so that the load average is that of the machine, not of the
    benchmark.
    """

    def __init__(self, name: str, options: Options) -> None:
        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
            raise ValueError(
                f"`name` must be a plain file name; got {name!r}. Use letters, digits, `_`, `-`."
            )
        self.name = name
        self.options = options
        self.environment = environment()
        self.results: dict[str, Any] = {}
        found = self.environment
        print(
            f"{name}: {found['device_count']} × {found['device_kind']} ({found['backend']}), "
            f"{found['cpu_model']}, {found['cores']} cores, jax {found['jax']}, python {found['python']}, "
            f"load {found['load_average']}"
        )

    @property
    def path(self) -> Path:
        """Where `finish` writes. A part of a benchmark, or a quick one, never overwrites the full result."""
        partial = f"-only-{device_folder(self.options.only)}" if self.options.only else ""
        quick = "-quick" if self.options.quick else ""
        folder = self.options.out / device_folder(self.environment["device_kind"])
        return folder / f"{self.name}{partial}{quick}.json"

    def add(self, part: str, figures: Mapping[str, Any], note: str = "") -> None:
        """Keep the figures of one part and print them: `{figure: value}` or `{row: {figure: value}}`."""
        if part in self.results:
            raise ValueError(f"`part` {part!r} was added before. Give every part a name of its own.")
        figures = json.loads(json.dumps(dict(figures), allow_nan=False, default=_plain))
        self.results[part] = {"figures": figures, **({"note": note} if note else {})}
        show(_table(part, figures, note))

    def finish(self) -> Path:
        """Say where the result file is."""
        self._write()
        print(f"wrote {self.path}")
        return self.path

    def _write(self) -> None:
        """Write the parts so far, whole or not at all: a long benchmark that breaks off loses only its last part."""
        document = {"name": self.name, "environment": self.environment, "results": self.results}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")


def _table(title: str, figures: Mapping[str, Any], note: str) -> Any:
    from rich.table import Table

    rows = figures if all(isinstance(row, Mapping) for row in figures.values()) else {"": figures}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table = Table("", title=title, caption=note or None, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column.removesuffix("_s"), justify="right")
    for name, row in rows.items():
        table.add_row(name, *(_cell(column, row.get(column)) for column in columns))
    return table


def _cell(column: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    if column.endswith("_s"):
        return format_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _plain(value: Any) -> Any:
    """NumPy and JAX scalars and arrays as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"`{value!r}` cannot be written as JSON. Pass numbers, strings, lists and dicts.")


class PartsReport(Report):
    """All parts in one file: those not run now stay as they were."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        before = json.loads(self.path.read_text())["results"] if self.path.exists() else {}
        self.results = before

    @property
    def path(self) -> Path:
        quick = "-quick" if self.options.quick else ""
        return self.options.out / device_folder(self.environment["device_kind"]) / f"{self.name}{quick}.json"

    def add(self, part: str, figures: Mapping[str, Any], note: str = "") -> None:
        self.results.pop(part, None)
        super().add(part, figures, note)
        now = environment()
        self.results[part]["measured"] = {key: now[key] for key in ("date", "commit", "jax", "load_average")}
        self._write()
